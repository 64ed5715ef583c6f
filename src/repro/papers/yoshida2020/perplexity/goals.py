"""Goals that a base model must reach for the paper's effects to be visible, and whether ours reaches them."""

from typing import TYPE_CHECKING

from repro.evaluation.bootstrap import bootstrap, bootstrap_ratio
from repro.markup import bounded
from repro.study import Artifact, register
from repro.study.artifacts import NOT_RUN

if TYPE_CHECKING:
    import pandas

PERPLEXITY, GAIN = 250, 0.04  # per word; of the baseline, from the largest overlap
TABLE_1, BY_POSITION = "recurrence-wikitext103", "loss-by-position"


def goals(context) -> "pandas.DataFrame":
    """A row per goal and scale: the target, the result (means over seeds, 95% intervals over documents), and whether
    it is met. Generated text has no such goals: `smoke` shows only the result."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        disjoint, overlapped = _baselines(context, scale)
        late = [record for config in context.plan(scale, experiment=BY_POSITION) for record in
                context.records_of(config)][:1]
        for goal, wanted, (found, met) in (
                ("word perplexity of the fine-tuned baseline on test text", f"below {PERPLEXITY}",
                 _perplexity(disjoint)),
                ("gain of the baseline from the largest overlap", f"at least {GAIN:.0%}",
                 _gain(disjoint, overlapped)),
                ("gain of the base model from more distant context", "more than 0 nats per token", _late(late))):
            rows.append([goal, scale, wanted if scale != "smoke" else "–", found,
                         "–" if scale == "smoke" or met is None else "yes" if met else "no"])
    return pandas.DataFrame(rows, columns=["goal", "scale", "target", "result", "met"])


def _baselines(context, scale: str) -> list:
    """The records of the baseline on disjoint windows and with the largest overlap, trained as in the table, at the
    seeds that both have."""
    plan = context.plan(scale, experiment=TABLE_1, model="baseline", train_overlap=None)
    overlaps = sorted({config.overlap for config in plan})
    chosen = [next(config for config in plan if config.overlap == overlap) for overlap in (overlaps[0], overlaps[-1])]
    return context.at_common_seeds(chosen)


def _nll(records) -> list[list[float]]:
    """The loss of each test document in nats, (seeds, documents)."""
    return [record.documents["test"]["nll"] for record in records]


def _perplexity(records) -> tuple[str, bool | None]:
    if not records:
        return NOT_RUN, None
    found = bootstrap(_nll(records), records[0].documents["test"]["n_words"])
    return bounded(*found, ",.1f"), found.value < PERPLEXITY


def _gain(disjoint, overlapped) -> tuple[str, bool | None]:
    """The relative change of perplexity, paired by seed and document."""
    both = {record.seed for record in disjoint} & {record.seed for record in overlapped}
    disjoint, overlapped = ([record for record in some if record.seed in both] for some in (disjoint, overlapped))
    if not both:
        return NOT_RUN, None
    ratio, low, high = bootstrap(_nll(overlapped), disjoint[0].documents["test"]["n_words"], against=_nll(disjoint))
    return bounded(1 - ratio, 1 - high, 1 - low, "+.1%"), 1 - ratio >= GAIN


def _late(records: list) -> tuple[str, bool | None]:
    """The loss at positions `after` + 1 to twice `after`, minus the loss at later positions."""
    if not records:
        return NOT_RUN, None
    record, = records
    gains = record.documents["validation"]["late_gain"]
    value, low, high = bootstrap_ratio(gains, [1] * len(gains))
    after, window = record.config["after"], record.config["window"]
    found = bounded(value, low, high, "+.3f")
    return f"{found}: positions {2 * after + 1} to {window} against {after + 1} to {2 * after}", low > 0


register(Artifact(
    id="base-goals", paper="yoshida2020", title="Goals of the base model, and whether it reaches them",
    chapter="02_corpora_and_base_models", experiment=(TABLE_1, BY_POSITION), source="not in the paper; set here",
    build=goals))
