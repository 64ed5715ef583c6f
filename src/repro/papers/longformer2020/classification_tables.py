"""Table 7's Hyperpartisan row next to ours, and the effect of reading documents whole."""

from typing import TYPE_CHECKING

from repro.markup import percentage
from repro.study.artifacts import NOT_RUN, ArtifactContext
from repro.study.claims import Measured
from repro.study.published import printed_rows
from repro.study.record import Record

if TYPE_CHECKING:
    import pandas

PRINTED = (("RoBERTa-base", 512, "roberta_base_percent"), ("Longformer-base", 4_096, "longformer_base_percent"))
CONTROLS = {"majority": "control: always the most common label", "positive": "control: always the positive label"}


def hyperpartisan(context: ArtifactContext) -> "pandas.DataFrame":
    """The printed F1 of both pretrained models, then ours on test documents, in %, with 95% intervals.

    "cut" counts the test documents that are longer than the tokens read. "best possible" is the accuracy that reading
    so many tokens of these documents allows, where it is known.
    """
    import pandas

    from repro.data import corpus

    rows = [["the paper", f"{name}, pretrained", "Hyperpartisan, the paper's split, dev",
             f"first {length:,}, RoBERTa's BPE", "–", f"{percent:.1f}", "–", "–", "5"]
            for (name, length, _), percent in zip(PRINTED, _printed(), strict=True)]
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            found, reads = context.records_of(config), config.model == "encoder"
            split = "generated" if corpus(config.corpus).generator else "our split"
            rows.append([f"this study, {scale}", "encoder, from scratch" if reads else CONTROLS[config.model],
                         f"{config.corpus}, {split}, test", _reads(config) if reads else "nothing",
                         _cut(found) if reads else "–", _percent(found, "f1"), _percent(found, "accuracy"),
                         _best(found), str(len(found)) if found else NOT_RUN])
    return pandas.DataFrame(rows, columns=["source", "model", "documents", "tokens read", "cut", "F1", "accuracy",
                                           "best possible accuracy", "seeds"])


def whole_or_beginning(records: list[Record]) -> Measured:
    """F1 on test documents of the runs that read the most tokens minus F1 of those that read the fewest, by document.

    F1 is 2 TP / (2 TP + FP + FN), a ratio of sums over documents (`linearised`).
    """
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    def f1(record: Record) -> np.ndarray:
        label, predicted = (np.array(record.documents["test"][name]) for name in ("label", "prediction"))
        return linearised(2 * (label & predicted), label + predicted)

    lengths = sorted({record.config["length"] for record in records})
    beginning, whole = ([record for record in records if record.config["length"] == length]
                        for length in (lengths[0], lengths[-1]))
    return Measured(np.array([f1(ours) - f1(theirs) for ours, theirs in zip(whole, beginning, strict=True)]))


def printed_difference() -> float:
    """The paper's F1 on Hyperpartisan, Longformer minus RoBERTa, 0 to 1."""
    short, long = _printed()
    return (long - short) / 100


def _printed() -> list[float]:
    """The paper's F1 on Hyperpartisan, in %, of each model of `PRINTED`."""
    row, = (row for row in printed_rows("longformer2020_table7_finetuning_base") if row["dataset"] == "Hyperpartisan")
    return [float(row[column]) for _, _, column in PRINTED]


def _reads(config) -> str:
    """How much of a document a run reads, and in which tokens."""
    return f"first {config.length:,}, {'words' if config.vocab_size is None else f'our BPE of {config.vocab_size:,}'}"


def _cut(records: list[Record]) -> str:
    """How many test documents were cut: "6 of 65"."""
    return (f"{records[0].metrics['test_cut']:.0f} of {len(records[0].documents['test']['label'])}" if records
            else NOT_RUN)


def _percent(records: list[Record], metric: str) -> str:
    """The mean over seeds, in %, with its interval over seeds and documents, clipped to 0 and 100."""
    from repro.evaluation.classification import interval

    if not records:
        return NOT_RUN
    found = interval(records[0].documents["test"]["label"],
                     [record.documents["test"]["prediction"] for record in records], metric)
    return percentage(*(100 * number for number in found))


def _best(records: list[Record]) -> str:
    """The accuracy of the best possible reader of the same number of tokens; "–" if it is not known."""
    known = [record.metrics["test_best_accuracy"] for record in records if "test_best_accuracy" in record.metrics]
    return f"{100 * known[0]:.1f}" if known else "–" if records else NOT_RUN
