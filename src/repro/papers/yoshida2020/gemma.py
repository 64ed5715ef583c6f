"""Recurrence in a real pretrained model: Gemma 3 270M on books, in windows of 64 tokens. Not in the paper.

The base models of `small` have 7 million weights and gain little from context, so little can be measured of a memory.
Gemma gains much. Two modules are compared with a baseline fine-tuned the same way: the paper's own (second layer,
fresh), and one in the middle of the 18 layers that starts as the mean token of the window before. Rates, layer and
start were chosen in trial runs on validation books that left no record, before any test book was read.
"""

from repro.papers.yoshida2020 import finetuning
from repro.papers.yoshida2020.effects import MASKED, both, gain, printed, printed_overlap, room_of_overlap
from repro.papers.yoshida2020.evaluation import evaluation, table_rows
from repro.papers.yoshida2020.tables import LITERAL, change, perplexity, row_kind
from repro.study import Artifact, Assay, Claim, register
from repro.study.artifacts import NOT_RUN

TABLE = "yoshida2020_table2_pg19"
OVERLAP = 10  # of 64 tokens, a sixth
# 80 steps of 1,280 targets, 102,400 in all: a quarter of an hour of one CPU core.
SCALES = {"pretrained": finetuning.SCALES["pretrained"] | {
    "corpus": "pg19-subset", "window": 64, "batch_size": 1, "windows_per_sequence": 20, "steps": 80,
    "train_documents": 60, "learning_rate": 4e-5, "modules": (), "warmup_steps": 10, "validation_head": 1024,
    "validation_tokens": 10_000, "test_head": 1536, "splits": ("test",)}}
MODELS = {"baseline": "no module", "recurrent": "middle layer, starts as the mean token",
          LITERAL: "second layer, fresh (the paper's)"}


def grid(scale: str) -> list[dict]:
    """Both modules and the baseline on disjoint windows, and the baseline with a sixth of overlap."""
    return [row | ({"module_learning_rate": 3e-3} if row["model"] == "recurrent" else {})
            for row in table_rows((0, OVERLAP), (0,), literal=(0,))]


def gains(context):
    """A row per model: its test perplexity, and its change against the baseline of the same seed on disjoint windows,
    as it is and under its controls, with 95 % intervals over seeds and books."""
    import pandas

    rows = []
    for scale in context.scales:
        found = {(row_kind(config), config.overlap): context.records_of(config) for config in context.plan(scale)}
        base = found["baseline", 0]
        overlapped = change(found["baseline", OVERLAP], base)
        rows.append({"model": "baseline", "module": "none; windows overlap by a sixth", "change": overlapped,
                     "seeds": str(len(base)), "test": perplexity(found["baseline", OVERLAP], "test") or NOT_RUN})
        for model, module in MODELS.items():
            records = found[model, 0]
            row = {"model": model.split(",")[0], "module": module, "seeds": str(len(records)),
                   "test": perplexity(records, "test") or NOT_RUN}
            if model != "baseline":
                row |= {"change": change(records, base), "masked out": change(records, base, "nll_masked"),
                        "another book's state": change(records, base, "nll_other_document")}
            rows.append(row)
    return pandas.DataFrame(rows, columns=["model", "module", "seeds", "test", "change", "masked out",
                                           "another book's state"]).fillna("–")


def point(*models: str, overlaps=(0,)):
    """Whether a config is one of these kinds of model, at one of these overlaps."""
    return lambda config: row_kind(config) in models and config.overlap in overlaps


EVALUATION = evaluation("recurrence-gemma", "Recurrence in Gemma 3 270M, in windows of 64 tokens.", SCALES, grid,
                        {"pretrained": 66_000})
ARTIFACT = Artifact(id="recurrence-gemma", paper="yoshida2020", chapter="07_pg19", experiment=EVALUATION.name,
                    title="Recurrence in a pretrained model, Gemma 3 270M, on books in windows of 64 tokens",
                    source="not in the paper; declared before the runs", build=gains)
CLAIM = {"paper": "yoshida2020", "source": "Table 2", "experiment": EVALUATION.name, "about": (ARTIFACT.id,),
         "unit": "book", "direction": "lower", "relative": True, "control": MASKED, "seeds": 3,
         "paper_effect": printed(TABLE, *both(0)), "family": "yoshida2020-gemma",
         "assay": Assay("the baseline's gain from an overlap of a sixth of the window",
                        point("baseline", overlaps=(0, OVERLAP)), room_of_overlap, printed_overlap(TABLE))}
register(
    EVALUATION, ARTIFACT,
    Claim(id="yoshida2020-gemma-gain", **CLAIM, measure=gain, where=point("baseline", "recurrent"),
          sentence="On books in windows of 64 tokens without overlap, Gemma 3 270M with a recurrence module in its "
                   "middle layer has a lower test perplexity than the same model fine-tuned without one.",
          short="Recurrence in the middle of Gemma 3 270M helps."),
    Claim(id="yoshida2020-gemma-gain-papers-module", **CLAIM, where=point("baseline", LITERAL),
          measure=lambda records: gain(records, model=LITERAL),
          sentence="The same holds with the paper's own module, fresh at the second layer.",
          short="The paper's own module in Gemma 3 270M helps."))
