"""Table 7's row of Hyperpartisan beside ours, and the verdict on reading documents whole."""

from dataclasses import replace
from typing import TYPE_CHECKING

from repro.errors import ReproError
from repro.page import signed
from repro.study.artifacts import NOT_RUN, ArtifactContext
from repro.study.claims import INCONCLUSIVE, UNPAIRED, Verdict, judge_seeds, seeds_of_both
from repro.study.published import published
from repro.study.record import Record

if TYPE_CHECKING:
    import pandas

PRINTED = (("RoBERTa-base", 512, "roberta_base_percent"), ("Longformer-base", 4_096, "longformer_base_percent"))
CONTROLS = {"majority": "control: always the commonest label", "positive": "control: always the label looked for"}


def hyperpartisan(context: ArtifactContext) -> "pandas.DataFrame":
    """The printed F1 of both pretrained models, then ours on test documents, in per cent, with 95 % intervals.

    "cut" counts the test documents that are longer than what is read of them. "best possible" is what reading so many
    tokens allows on the very same documents, where that is known.
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


def judge_lengths(records: list[Record]) -> Verdict:
    """Whether the runs that read most tokens have a higher F1 on test documents than those that read fewest.

    The text names the paper's effect, and says so where the claim is left open by an interval too wide for it.
    """
    from repro.evaluation.classification import interval

    lengths = sorted({record.config["length"] for record in records})
    if len(lengths) < 2:
        raise ReproError(f"records of length {', '.join(map(str, lengths))} only; two lengths are needed to compare.")
    beginning, whole = ([record for record in records if record.config["length"] == length]
                        for length in (lengths[0], lengths[-1]))
    seeds = seeds_of_both(beginning, whole)
    if not seeds:
        return UNPAIRED
    labels, (ours, theirs) = whole[0].documents["test"]["label"], (
        [record.documents["test"]["prediction"] for record in some if record.seed in seeds]
        for some in (whole, beginning))
    verdict = judge_seeds(*interval(labels, ours, "f1", against=theirs), "higher", len(seeds), "in F1 (0 to 1)",
                          "documents")
    if whole[0].scale == "smoke":  # generated documents, of which the paper says nothing
        return verdict
    short, long = _printed()
    effect = (long - short) / 100
    unseen = (f", which {len(labels)} test documents and {len(seeds)} seed{'s' * (len(seeds) > 1)} are too few to see"
              if verdict.verdict == INCONCLUSIVE and verdict.high - verdict.low > 2 * effect else "")
    told = f"the paper's effect on Hyperpartisan is {signed(effect, '.3f')}{unseen}"
    return replace(verdict, text=f"{verdict.text}; {told}")


def _printed() -> list[float]:
    """The paper's F1 on Hyperpartisan, in per cent, of each model of `PRINTED`."""
    row, = published("longformer2020_table7_finetuning_base").query("dataset == 'Hyperpartisan'").to_dict("records")
    return [float(row[column]) for _, _, column in PRINTED]


def _reads(config) -> str:
    """How much of a document a run reads, and in whose tokens."""
    return f"first {config.length:,}, {'words' if config.vocab_size is None else f'our BPE of {config.vocab_size:,}'}"


def _cut(records: list[Record]) -> str:
    """How many test documents were cut: "6 of 65"."""
    return (f"{records[0].metrics['test_cut']:.0f} of {len(records[0].documents['test']['label'])}" if records
            else NOT_RUN)


def _percent(records: list[Record], metric: str) -> str:
    """The mean over seeds, in per cent, with its interval over seeds and documents."""
    from repro.evaluation.classification import interval

    if not records:
        return NOT_RUN
    found = interval(records[0].documents["test"]["label"],
                     [record.documents["test"]["prediction"] for record in records], metric)
    value, low, high = (f"{100 * number:.1f}" for number in found)
    return f"{value} [{low}, {high}]"


def _best(records: list[Record]) -> str:
    """The accuracy of the best possible reader of as many tokens; "–" where it is not known."""
    known = [record.metrics["test_best_accuracy"] for record in records if "test_best_accuracy" in record.metrics]
    return f"{100 * known[0]:.1f}" if known else "–" if records else NOT_RUN
