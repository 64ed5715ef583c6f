"""Which books use typographic quotes and dashes, and how reading them as plain ones changes the results.

Not in the paper. Test books with marks that no training book has are hard for a reason unrelated to context;
`repro.data.normalisation` defines the replacements.
"""

import math
from collections.abc import Mapping

from repro.pages import Metric
from repro.study import Artifact, Estimate, Experiment, Outcome, RunConfig, Store, command, experiment, register
from repro.study.artifacts import NOT_RUN

SPLITS = ("train", "validation", "test")
MANY = 5  # marks per 1,000 words; a text with more uses them


class Config(RunConfig):
    """Every split of `corpus`, as its files have it and as it is read."""


def execute(config, context) -> Outcome:
    from dataclasses import replace

    from repro.data import corpus
    from repro.data.normalisation import PLAIN

    source = replace(corpus(config.corpus).of_text(), normalise=None, apart_from=())
    metrics, documents, names = {}, {}, {}
    for split in source.splits:
        words, marks, left, used = [], [], 0, {}
        with context.progress(1, f"{config.corpus}, {split}", "splits") as bar:
            for one in source.stream(split):
                words.append(len(one.text.split()))
                marks.append(PLAIN.count(one.text))
                left += PLAIN.count(PLAIN(one.text, f"corpus {source.name}, {split}, document {one.id}"))
                if uses(marks[-1], words[-1]):
                    used[one.id] = 1000 * marks[-1] / words[-1]
            bar.advance(1)
        many = [n for n, m in zip(words, marks, strict=True) if uses(m, n)]
        metrics |= {f"{split}_documents": len(words), f"{split}_marked": len(many),
                    f"{split}_marked_words": sum(many) / sum(words), f"{split}_marks": 1000 * sum(marks) / sum(words),
                    f"{split}_marks_after": 1000 * left / sum(words)}
        documents[split] = {"marks": marks, "n_words": words}
        names[split] = used
    units = {name: "share of the words" if name.endswith("words") else "marks per 1,000 words" if "marks" in name
             else "documents" for name in metrics}
    return Outcome(metrics, units, "none", documents=documents, notes={"normalisation": str(PLAIN), "marked": names})


def uses(marks: int, words: int) -> bool:
    """Whether a text uses typographic marks throughout, not just by accident."""
    return 1000 * marks > MANY * words


def table(context):
    """A row for each split: how many of its texts use typographic marks, and their share of the words."""
    import pandas as pd

    rows = {}
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            for record in context.records_of(config):
                for split in (one for one in SPLITS if one in record.notes["marked"]):
                    worst = record.notes["marked"][split]
                    values = {name: record.metrics[f"{split}_{name}"] for name in (
                        "documents", "marked", "marked_words", "marks", "marks_after")}
                    most = max(worst, key=worst.get, default="")
                    rows[config.corpus, split] = {
                        "documents": f"{values['documents']:.0f}", "use such marks": f"{values['marked']:.0f}",
                        "share of the words": f"{values['marked_words']:.1%}",
                        "marks per 1,000 words": f"{values['marks']:.2f}", "as read": f"{values['marks_after']:.2f}",
                        "most in one text": f"{worst[most]:.0f} ({most})" if most else ""}
    rows |= {(config.corpus, "every split"): {"documents": NOT_RUN} for config in context.missing.values()}
    index = pd.MultiIndex.from_tuples(rows, names=["corpus", "split"])
    return pd.DataFrame(rows.values(), index).fillna("")


def change_without(left_out: bool = True, scale: str = "small") -> Metric:
    """The effect of recurrence on the word perplexity of the test books, on disjoint windows; the mean over seeds.

    left_out: without the books that use typographic marks.
    """
    counted = Store.for_scale(scale).get(_counted(scale))
    disjoint = [run for run in experiment("recurrence-pg19").plan(scale) if run.overlap == 0 and "test" in run.splits]
    plan = {model: next(run for run in disjoint if run.model == model) for model in ("baseline", "recurrent")}
    records = {model: Store.for_scale(scale).seeds(run) for model, run in plan.items()}
    if counted is None:
        return Metric(None, "+.2%", command(_counted(scale)))
    for model, run in plan.items():
        if not records[model]:
            return Metric(None, "+.2%", command(run))
    marks, words = (counted.documents["test"][name] for name in ("marks", "n_words"))
    kept = [k for k, pair in enumerate(zip(marks, words, strict=True)) if not (left_out and uses(*pair))]
    loss = {model: sum(_per_word(record.documents["test"], kept) for record in found) / len(found)
            for model, found in records.items()}
    return Metric(math.exp(loss["recurrent"] - loss["baseline"]) - 1, "+.2%")


def _per_word(documents: Mapping[str, list], kept: list[int]) -> float:
    """Nats per word of the documents `kept`."""
    return sum(documents["nll"][k] for k in kept) / sum(documents["n_words"][k] for k in kept)


def _counted(scale: str) -> RunConfig:
    return next(run for run in EXPERIMENT.plan(scale) if run.corpus == "pg19-subset")


def estimate(config) -> Estimate:
    return Estimate(0, 0, 0.0, 2**29, 3600.0 if config.scale == "paper" else 30.0)


WHOLE = ("pg19", "wikitext-103-full")
EXPERIMENT = Experiment(
    name="text-normalisation", paper="yoshida2020", summary="Which texts use typographic quotes and dashes.",
    config=Config, scales={scale: {} for scale in ("smoke", "small", "medium", "paper")},
    grid=lambda scale: [{"corpus": name} for name in {"smoke": ("synthetic-books",), "paper": WHOLE}.get(
        scale, ("pg19-subset", "gutenberg-pretrain", "wikitext-103"))],
    execute=execute, estimate=estimate)
register(EXPERIMENT, Artifact(
    id="text-normalisation", paper="yoshida2020", title="Texts with typographic quotes, dashes and ellipses",
    chapter="02_corpora_and_base_models", experiment=EXPERIMENT.name, source="not in the paper",
    build=table))
