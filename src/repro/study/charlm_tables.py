"""Tables, figure and verdicts of the character language models: bits per character, and how sure a difference is."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from repro.errors import ReproError
from repro.study.published import published
from repro.study.store import Record
from repro.study.tables import NOT_RUN, ArtifactContext
from repro.study.verdicts import Verdict, judge_difference

if TYPE_CHECKING:
    import pandas

METRIC = "validation_bits_per_character"
ROWS = {  # of Table 4: the kind of run that each is
    "Decreasing w": ("decreasing", False), "Fixed w": ("fixed", False), "Increasing w": ("increasing", False),
    "No dilation": ("increasing", False), "Dilation on 2 heads": ("increasing", True),
}


class Difference(NamedTuple):
    """Bits per character of one kind of run less those of another, paired by seed, with 95 % intervals."""

    value: float
    over_text: tuple[float, float]
    over_seeds: tuple[float, float] | None  # None for a single seed
    n_seeds: int

    @property
    def interval(self) -> tuple[float, float]:
        """The lower of the low ends and the higher of the high ones."""
        lows, highs = zip(*filter(None, (self.over_text, self.over_seeds)), strict=True)
        return min(lows), max(highs)


def kind(config: Any) -> tuple[str, bool]:
    """How the windows of a run go from the bottom layer to the top, and whether a layer is dilated.

    config: a run's config, or what a record holds of it.
    """
    values = config if isinstance(config, Mapping) else config.model_dump()
    windows, dilated = list(values["windows"]), max(values["dilation"]) > 1
    if None in windows:
        return "full", dilated
    name = ("fixed" if len(set(windows)) == 1 else "increasing" if windows == sorted(windows) else
            "decreasing" if windows == sorted(windows, reverse=True) else "mixed")
    return name, dilated


def compare(records: list[Record], against: list[Record]) -> Difference:
    """The difference on validation text, over the seeds that both have.

    over_seeds: Student's t on the differences seed by seed; over_text: the paired bootstrap of
    `repro.evaluation.bootstrap` over blocks of the text, losses averaged over seeds first.
    Raises ReproError when there is no common seed.
    """
    from math import log2, sqrt

    from repro.evaluation import bootstrap

    ours, theirs = ({record.seed: record for record in some} for some in (records, against))
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        raise ReproError(f"seeds {sorted(ours)} and {sorted(theirs)}: nothing to pair; run both with the same --seed.")
    differences = [ours[seed].metrics[METRIC] - theirs[seed].metrics[METRIC] for seed in seeds]
    blocks = [[fmean(losses) for losses in zip(*(some[seed].documents["validation"]["nll"] for seed in seeds),
                                               strict=True)] for some in (ours, theirs)]
    _, low, high = map(log2, bootstrap(blocks[0], ours[seeds[0]].documents["validation"]["n_characters"], blocks[1]))
    value, over_seeds = fmean(differences), None
    if len(seeds) > 1:
        from scipy.stats import t

        reach = t.ppf(0.975, len(seeds) - 1) * stdev(differences) / sqrt(len(seeds))
        over_seeds = (value - reach, value + reach)
    return Difference(value, (low, high), over_seeds, len(seeds))


def judge_pair(records: list[Record], better: tuple[str, bool]) -> Verdict:
    """Whether runs of the kind `better` have fewer bits per character than the others among `records`."""
    chosen = [record for record in records if kind(record.config) == better]
    difference = compare(chosen, [record for record in records if kind(record.config) != better])
    verdict = judge_difference(difference.value, *difference.interval, "lower")
    source = f"{difference.n_seeds} seeds and blocks of text" if difference.over_seeds else "blocks of text, one seed"
    return replace(verdict, text=f"{verdict.text} bits, interval over {source}")


def ablation(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 4: bits per character on validation text, mean over seeds, and the difference to "Increasing w"."""
    import pandas

    rows = []
    for printed in published("longformer2020_table4_ablation").to_dict("records"):
        row = {"": printed["configuration"], "paper: dev": printed["dev_bpc"]}
        for scale in reversed(context.scales):
            plan = {kind(config): config for config in context.plan(scale)}
            config, growing = plan.get(ROWS[printed["configuration"]]), plan.get(ROWS["Increasing w"])
            found, base = (context.records_of(one) if one else [] for one in (config, growing))
            row[f"{scale}: w"] = f"{config.windows[0]} to {config.windows[-1]}" if config else "–"
            row[f"{scale}: dev"] = _mean(found, METRIC)
            row[f"{scale}: difference"] = "–" if config == growing else (
                _difference(compare(found, base)) if found and base else NOT_RUN)
        rows.append(row)
    return pandas.DataFrame(rows)


def models(context: ArtifactContext, table: str, model: str) -> "pandas.DataFrame":
    """Tables 2 and 3: the printed rows, and below those of a corpus ours, with the text they were trained on."""
    import pandas

    printed = published(table)
    printed = printed if "dataset" in printed else printed.assign(dataset="enwik8", dev_bpc="")
    rows, ours = [], {"text8": [], "enwik8": []}
    for scale in reversed(context.scales):
        for config in context.plan(scale, model=model):
            found = context.records_of(config)
            name = config.corpus.removesuffix("-prefix")
            ours.setdefault(name, []).append({
                "corpus": config.corpus, "model": f"this study, {scale}, {len(config.windows)} layers",
                "parameters": _mean(found, "parameters", 1e-6) + " M" * bool(found), "dev": _mean(found, METRIC),
                "test": _mean(found, "test_bits_per_character")})
    for name, own in ours.items():
        rows += [{"corpus": name, "model": row["model"],
                  "parameters": f"{row['parameters_millions']} M" if row["parameters_millions"] else "–",
                  "dev": row["dev_bpc"] or "–", "test": row["test_bpc"]}
                 for row in printed[printed["dataset"] == name].to_dict("records")] + own
    return pandas.DataFrame(rows)


def cost_and_quality(context: ArtifactContext):
    """Bits per character on validation text against attended pairs, a line for each dilation, and full attention."""
    from repro.plotting import canvas, house
    from repro.plotting.curves import paint

    labels = ("pairs per character", "bits per character")
    with house():
        figure, axes = canvas(3.2, columns=len(context.scales), squeeze=False, alt=(
            f"{labels[1]} against attended {labels[0]}, by window and dilation; panels: {', '.join(context.scales)}."))
        for axis, scale in zip(axes[0], reversed(context.scales), strict=True):
            curves, bounds = {}, {}
            for config in context.plan(scale):
                if not (found := context.records_of(config)):
                    continue
                quality = fmean(record.metrics[METRIC] for record in found)
                if kind(config)[0] == "full":
                    bounds[f"full: {found[0].metrics['pairs_per_character']:,.0f} pairs"] = quality
                else:
                    gap = max(config.dilation)
                    curves.setdefault("no dilation" if gap == 1 else f"dilation {gap}", []).append(
                        [found[0].metrics["pairs_per_character"], quality])
            paint(axis, curves, labels, bounds)
            axis.set_title(scale if curves else f"{scale}: {NOT_RUN}")
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    return figure


def _mean(records: list[Record], metric: str, times: float = 1) -> str:
    """The mean over seeds, with the standard deviation where there are several."""
    values = [times * record.metrics[metric] for record in records]
    if not values:
        return NOT_RUN
    spread = f" ± {stdev(values):.3f}" if len(values) > 1 and stdev(values) else ""
    return f"{fmean(values):.3f}{spread}"


def _difference(difference: Difference) -> str:
    low, high = difference.interval
    return f"{difference.value:+.3f} [{low:+.3f}, {high:+.3f}]"
