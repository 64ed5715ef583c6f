"""Gains on classification by the length of a text: on the texts that the short model reads whole, and on the others."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from repro.papers.longformer2020.context_lengths import EXPERIMENT as COUNTING
from repro.papers.longformer2020.context_lengths import LIMIT
from repro.papers.longformer2020.tasks.experiment import EXPERIMENT, PAPER, TASKS
from repro.papers.longformer2020.tasks.reader import AS_SHORT, CUT, LONG, SHORT
from repro.papers.longformer2020.tasks.tables import AS_SHORT_SHOWN, CONTRAST, cell, metric_of, same_texts
from repro.study import Artifact, ArtifactContext, Record, RunConfig, register
from repro.study.artifacts import NOT_RUN

if TYPE_CHECKING:
    import pandas

    from repro.papers.longformer2020.tasks.frame import Task

# Whether a text fits into what the short model reads; None: all texts.
GROUPS = {"all": None, f"up to {LIMIT}": True, f"more than {LIMIT}": False}


def by_length(context: ArtifactContext) -> "pandas.DataFrame":
    """Scores in %, with 95% intervals, on all texts, on those that the short model reads whole, and on those that it
    cuts off.

    "gain": of Longformer over the short model. "from reading more": over a Longformer that reads no more than the short
    model. Both are paired by seed. Lengths are those of Table 6.
    """
    import pandas

    rows = []
    for task in (TASKS[name] for name in CONTRAST):
        for scale in reversed(context.scales):
            configs = {config.model: config for config in context.plan(scale, task=task.name) if config.model != CUT}
            counting = _counting(scale, {config.corpus for config in configs.values()})
            if counting is None:
                continue
            length = {one: n for record in context.records_of(counting) if "id" in record.documents["all"]
                      for one, n in zip(*(record.documents["all"][key] for key in ("id", "wordpieces")), strict=True)}
            found = dict(zip(configs, context.at_common_seeds(list(configs.values())), strict=True)) if length else {}
            for group, fits in GROUPS.items():
                rows.append([task.printed, metric_of(task), group, scale, *_of_length(task, found, length, fits)])
    return pandas.DataFrame(rows, columns=["task", "metric", "tokens of a text", "scale", "texts", "short",
                                           AS_SHORT_SHOWN, "Longformer", "gain", "from reading more"])


def _counting(scale: str, corpora: Collection[str]) -> RunConfig | None:
    """The run that counts the wordpieces of every text of one of these corpora, at `small` or at this scale."""
    return next((config for name in ("small", scale) if name in COUNTING.scales
                 for config in COUNTING.plan(name) if config.corpus in corpora), None)


def _of_length(task: "Task", found: dict[str, list[Record]], length: dict[str, int], fits: bool | None) -> list[str]:
    """The number of tested texts of a group, the models' scores on them, and both gains."""
    import numpy as np

    def chosen(records: list[Record]) -> "np.ndarray":
        return np.array([[fits is None or (length[one] <= LIMIT) == fits for one in record.documents[task.split]["id"]]
                         for record in records])

    def values(records: list[Record]) -> "np.ndarray | None":
        return task.values(records, chosen(records)) if records else None

    def gain(model: str, other: str) -> str:
        ours, theirs = same_texts(task, found.get(model, []), found.get(other, []))
        return cell(values(ours) - values(theirs), "+.1f") if ours else NOT_RUN

    ids = {one for records in found.values() for record in records for one, counts in
           zip(record.documents[task.split]["id"], chosen([record])[0], strict=True) if counts}
    scores = (cell(values(found.get(model, []))) for model in (SHORT, AS_SHORT, LONG))
    return [f"{len(ids):,}" if ids else NOT_RUN, *scores, gain(LONG, SHORT), gain(LONG, AS_SHORT)]


BY_LENGTH = Artifact(
    id="longformer2020-gain-by-length", paper=PAPER, chapter="20_classification_and_coreference",
    source="not in the paper; a check of Table 7", experiment=EXPERIMENT.name, build=by_length,
    title="Hyperpartisan and IMDB by the length of a text: scores in %",
    look_for="The last column is the gain over a Longformer that reads only what the short model reads. Lengths are "
             "those of Table 6, in RoBERTa's wordpieces; in MiniLM's, up to 3% of a group would be in the other one.")
register(BY_LENGTH)
