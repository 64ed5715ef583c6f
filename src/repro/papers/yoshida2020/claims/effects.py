"""Measures of the claims about perplexity: effects by seed and document, as logs of ratios of word perplexities.

The log of such a ratio is a difference in nats per word. It is linearized by document (`repro.evaluation.bootstrap`),
so that its mean over documents is the difference over the whole corpus, for documents of any length.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, Any

from repro.papers.yoshida2020.perplexity.tables import (
    CONTROL,
    CONTROL_LOSSES,
    FIRST,
    by_document,
    compare,
    log_ratio,
    module_effect,
    row_kind,
)
from repro.study import Assay, Experiment, Measured, Record, experiment, judge
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import numpy as np

MASKED = "the better of the model with its module masked out and with another document's state"
EXPERIMENTS = "recurrence-pg19", "recurrence-wikitext103"
SAME_WEIGHTS = "the same weights read the same text, so there is no added part to remove"
WINDOW = {"smoke": 30}  # tokens in a window of the paper's tables; at other scales 300
SMOKE = {0: 0, 30: 3, 50: 5, 200: 20}  # overlaps in windows of 300 tokens -> in `smoke`'s windows of 30


def at_points(*points: tuple[str, int], also: Sequence[tuple[str, int]] = ()) -> Callable[[Any], bool]:
    """A test of whether a config is one of these points, each a kind of model and its overlap in 300 tokens.

    also: points that count, too, if they are planned. A scale that does not plan all `points` has no match.
    """
    def where(config) -> bool:
        needed, known = ({(model, SMOKE.get(overlap) if config.scale == "smoke" else overlap)
                          for model, overlap in some} for some in (points, (*points, *also)))
        planned = _planned(experiment(config.experiment), config.scale)
        return needed <= planned and _tested(config) and _point(config) in known
    return where


@lru_cache(maxsize=64)
def _planned(planner: Experiment, scale: str) -> frozenset[tuple[str, int]]:
    """The points that an experiment plans at a scale. Cached, because claims ask for them for every config."""
    return frozenset(_point(config) for config in planner.plan(scale) if _tested(config))


def _tested(config) -> bool:
    """Whether a config has the window of the paper's tables and reads test text."""
    return config.window == WINDOW.get(config.scale, 300) and "test" in config.splits


def _point(config) -> tuple[str, int]:
    return row_kind(config), config.overlap


def both(overlap: int) -> list[tuple[str, int]]:
    """The recurrent model and the baseline at an overlap."""
    return [("recurrent", overlap), ("baseline", overlap)]


def matched_baseline(overlap: int) -> list[tuple[str, int]]:
    """The baseline trained on the same windows as a recurrent model with this overlap."""
    return [(CONTROL, overlap)] if overlap else []


def records_of_kind(records: Sequence[Record], model: str, overlap: Callable[[list[int]], int] = min) -> list[Record]:
    """The records of a kind of model at its smallest (`min`) or largest (`max`) overlap among `records`, in their
    order."""
    same = [record for record in records if row_kind(record) == model]
    chosen = overlap([record.config["overlap"] for record in same]) if same else None
    return [record for record in same if record.config["overlap"] == chosen]


def without_module(recurrent: Sequence[Record], against: Sequence[Record], split: str = "test") -> "np.ndarray":
    """`log_ratio` of the recurrent models without their module, (seeds, documents): the better of masking it out and
    giving it another document's state.

    Records that kept no such losses give (seeds, 1): the ratio as a whole. It uses the loss from masking on validation
    text if the masked model has not read the test text.
    """
    import numpy as np

    pairs = list(zip(recurrent, against, strict=True))
    kept = [name for name in CONTROL_LOSSES if all(name in record.documents[split] for record in recurrent)]
    if kept:
        found = [np.array([by_document(ours, ours.documents[split][name], theirs, split) for ours, theirs in pairs])
                 for name in kept]
        return min(found, key=np.mean)
    taken = np.array([[log(1 + module_effect([record], split))] for record in recurrent])
    return log_ratio(recurrent, against, split).mean(1, keepdims=True) - taken


def gain(records: Sequence[Record], split: str = "test", model: str = "recurrent") -> Measured:
    """Recurrent against baseline at one overlap; `model`: the kind of recurrent model.

    A recurrent model trained on overlapping windows has read more windows than a baseline trained on disjoint ones, and
    may be better for that reason alone. If there is a baseline trained on overlapping windows, it is compared instead.
    """
    recurrent, trained_so = records_of_kind(records, model), records_of_kind(records, CONTROL)
    baseline = trained_so or records_of_kind(records, "baseline")
    return Measured(log_ratio(recurrent, baseline, split), without_module(recurrent, baseline, split),
                    "against a baseline trained with that overlap too" if trained_so else "")


def own_state(records: Sequence[Record], split: str = "test") -> Measured:
    """Recurrent models with the state of their own document against the same models with another document's."""
    import numpy as np

    return Measured(-np.array([by_document(record, record.documents[split]["nll_other_document"], record, split)
                               for record in records_of_kind(records, "recurrent")]))


def shrinking(records: Sequence[Record]) -> Measured:
    """The gain on disjoint windows minus the gain at the larger overlap."""
    return less(*(gain([record for record in records if record.config["overlap"] == overlap])
                   for overlap in _ends(record.config["overlap"] for record in records)))


def widening(records: Sequence[Record]) -> Measured:
    """The gain at the smallest window, or the difference between this gain and the gain at the largest window, on
    validation text: the less certain of the two, because a gap cannot widen if there is no gain."""
    ends = _ends(record.config["window"] for record in records)
    least, most = (gain([record for record in records if record.config["window"] == window], "validation")
                   for window in ends)
    return hardest([least._replace(note=f"window {ends[0]} alone"),
                    less(least, most)._replace(note=f"window {ends[0]} less window {ends[1]}")])


def more_on_books(records: Sequence[Record]) -> Measured:
    """The gain on books minus the gain on Wikipedia articles. Articles are averaged in groups, one group per book; both
    are sampled independently, so it does not matter which group is paired with which book."""
    books, articles = (gain([record for record in records if record.experiment == name]) for name in EXPERIMENTS)
    n = min(books.effects.shape[1], articles.effects.shape[1])
    return less(*(Measured(*(grouped(values, n) for values in (one.effects, one.control)))
                   for one in (books, articles)))


def grouped(effects: "np.ndarray", n: int) -> "np.ndarray":
    """Effects (seeds, units) averaged over n groups of neighboring units, with the same mean, (seeds, n); unchanged if
    there are fewer units."""
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    groups = np.array_split(np.arange(effects.shape[1]), n)
    if effects.shape[1] <= n:
        return effects
    return np.array([linearised([seed[group].sum() for group in groups], list(map(len, groups))) for seed in effects])


def _ends(values) -> tuple[int, int]:
    values = list(values)
    return min(values), max(values)


def less(first: Measured, second: Measured) -> Measured:
    """The first effect minus the second, and the first control minus the second."""
    return Measured(first.effects - second.effects, first.control - second.control)


def first_gain(records: Sequence[Record]) -> Measured:
    """`gain` of the recurrent model with its module at the first block."""
    return gain(records, model=FIRST)


def overlap_gain(records: Sequence[Record], model: str = "baseline") -> Measured:
    """A model with its larger overlap against the same model with its smaller one."""
    return Measured(log_ratio(records_of_kind(records, model, max), records_of_kind(records, model), "test"))


def falling(records: Sequence[Record]) -> Measured:
    """Each overlap against the next smaller one; the step whose improvement is least certain."""
    steps = []
    for fewer, more in pairwise(sorted({record.config["overlap"] for record in records})):
        pair = [[record for record in records if record.config["overlap"] == overlap] for overlap in (more, fewer)]
        steps.append(Measured(log_ratio(*pair), note=f"from overlap {fewer} to {more}"))
    return hardest(steps)


def every_window(records: Sequence[Record]) -> Measured:
    """`gain` on disjoint windows of every size, on validation text; the window at which it is least certain."""
    return hardest([gain([record for record in records if record.config["window"] == window], "validation")._replace(
        note=f"window {window}") for window in sorted({record.config["window"] for record in records})])


def pareto_margin(records: Sequence[Record]) -> Measured:
    """Each recurrent point against every other that costs no more, on validation text; the least certain pair."""
    points: dict[tuple, list[Record]] = {}
    for record in records:
        points.setdefault((row_kind(record), record.config["window"], record.config["overlap"]), []).append(record)
    pairs = []
    for (model, window, _), ours in points.items():
        for (other, size, overlap), theirs in points.items():
            dear = theirs[0].metrics["flops_per_token"] > ours[0].metrics["flops_per_token"]
            if model == "recurrent" and theirs is not ours and not dear:
                note = f"recurrent {window} against {other} {size} with overlap {overlap}"
                pairs.append(Measured(log_ratio(ours, theirs, "validation"),
                                      without_module(ours, theirs, "validation"), note))
    return hardest(pairs)


def hardest(every: Sequence[Measured]) -> Measured:
    """The least certain of several effects, all of which must lie below 0 and beyond their controls."""
    def end(one: Measured) -> float:
        beyond = [] if one.control is None else [one.effects - one.control]
        return max(judge(values, "lower", seeds=1).high for values in (one.effects, *beyond))
    return max(every, key=end)


def printed(table: str, *points: tuple[str, int]) -> Callable[[], float]:
    """The log of a printed ratio of test perplexities: the first point over the second."""
    def effect() -> float:
        first, second = (_printed(table)[point] for point in points)
        return log(first / second)
    return effect


def printed_steps(table: str, model: str) -> Callable[[], float]:
    """The log of the printed ratio between two neighboring overlaps of a model: the step where perplexity falls
    least."""
    def effect() -> float:
        values = [value for (name, _), value in sorted(_printed(table).items()) if name == model]
        return max(log(more / fewer) for fewer, more in pairwise(values))
    return effect


def _printed(table: str) -> dict[tuple[str, int], float]:
    """(model, overlap) -> the printed test perplexity."""
    return {("recurrent" if "recurrence" in row["model"] else "baseline", int(row["overlap_tokens"])):
            float(row["test_perplexity_per_word"]) for row in printed_rows(table)}


def context_counts(*tables: str, overlap: int = 50, since: int = 0) -> Assay:
    """The assay that measures the baseline's gain from a larger overlap, which certainly gives it more context. A
    memory of the previous window cannot be expected to gain much more. With several texts, the smallest gain counts.

    tables: the paper's tables that print this gain. since: the smaller overlap.
    """
    over = f", over one of {since}" if since else ""
    return Assay(f"the baseline's gain from an overlap of {overlap} of 300 tokens{over}",
                 at_points(("baseline", since), ("baseline", overlap)), room_of_overlap,
                 printed_overlap(*tables, overlap=overlap, since=since))


def printed_overlap(*tables: str, overlap: int = 50, since: int = 0) -> Callable[[], float]:
    """The log of the printed gain of the baseline from a larger overlap; with several tables, the smallest."""
    return lambda: min(-printed(table, ("baseline", overlap), ("baseline", since))() for table in tables)


def room_of_overlap(records: Sequence[Record]) -> float:
    """The baseline's gain from the larger overlap over the smaller one; with several experiments, the smallest."""
    found = []
    for name in {record.experiment for record in records}:
        ends = [records_of_kind([record for record in records if record.experiment == name], "baseline", end)
                for end in (max, min)]
        found.append(-log(1 + compare(*ends, "test")[0]))
    return min(found)
