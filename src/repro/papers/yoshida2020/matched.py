"""Recurrence at the window at which overlap is worth to our baseline what it is to the paper's. Not in the paper.

The paper's 300 tokens are long for a small model: what stands before a window helps it little. At a shorter window an
overlap of a sixth gives our baseline the paper's 10 %, and a memory has as much to stand in for. `window_choice` finds
it on validation text, with a baseline alone, before any recurrent model is trained.
"""

from typing import Any

from repro.page import signed
from repro.papers.yoshida2020 import finetuning, pg19
from repro.papers.yoshida2020.evaluation import evaluation, table_rows
from repro.papers.yoshida2020.tables import FIRST, compare, kind, module_effect
from repro.study import Artifact
from repro.study.artifacts import NOT_RUN

SCALES: dict[str, dict[str, Any]] = {}  # of `small` from the next revision on: finetuning's, at its second window


def grid(scale: str) -> list[dict[str, Any]]:
    """Test text of both kinds: recurrent models on disjoint windows, baselines without and with a sixth of overlap."""
    window = finetuning.SECOND[scale] | {"splits": ("test",)}
    texts = {"wikitext-103": {}, "pg19-subset": pg19.SCALES[scale] | {"sequence": None}}
    rows = table_rows((0, window["window"] // 6), (0,), first=(0,))
    return [row | text | {"corpus": corpus} | window for corpus, text in texts.items() for row in rows]


def matched_table(context):
    """A row for each text: what overlap gives the baseline, and what recurrence gives without any, with its controls.

    Relative changes of test perplexity against the baseline without overlap, with 95 % intervals over documents.
    """
    import pandas

    rows = []
    for scale in context.scales:
        for corpus in dict.fromkeys(config.corpus for config in context.plan(scale)):
            plan = [config for config in context.plan(scale) if config.corpus == corpus]
            found = {(kind(config), config.overlap > 0): context.records_of(config) for config in plan}
            base = found["baseline", False]
            row = {"scale": scale, "text": corpus, "T": plan[0].window}
            for name, records in (("baseline, overlap T/6", found["baseline", True]),
                                  ("recurrent", found["recurrent", False]), (FIRST, found[FIRST, False])):
                value = compare(records, base, "test") if records and base else None
                row[name] = "{} [{}, {}]".format(*(signed(x, ".1%") for x in value)) if value else NOT_RUN
            for name, records in (("module", found["recurrent", False]), ("module, first block", found[FIRST, False])):
                row[name] = signed(module_effect(records), ".2%") if records else NOT_RUN
            rows.append(row)
    return pandas.DataFrame(rows)


EVALUATION = evaluation("recurrence-matched", "Recurrence at the window at which overlap is worth the paper's 10 %.",
                        SCALES, grid, {"small": 236_000})
ARTIFACT = Artifact(id="recurrence-matched", paper="yoshida2020", chapter="06_wikitext103", experiment=EVALUATION.name,
                    title="Recurrence at the window at which overlap is worth the paper's 10 %",
                    source="not in the paper; declared before the runs", build=matched_table)
