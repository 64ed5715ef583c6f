"""Figures, tables and verdicts of the chapter on books: window sizes, cost, and variations of the module."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from repro.page import signed
from repro.papers.yoshida2020.tables import compare, interval, kind, module_effect
from repro.study.artifacts import NOT_RUN, ArtifactContext
from repro.study.claims import INCONCLUSIVE, NOT_REPRODUCED, REPRODUCED, Verdict, judge_difference
from repro.study.published import published
from repro.study.record import Record

if TYPE_CHECKING:
    import pandas

FIGURE = "yoshida2020_figure5_flops_pareto"


def points(context: ArtifactContext) -> "pandas.DataFrame":
    """Figures 4 and 5 as rows: source, model, overlap and window in tokens, FLOPs a token, validation perplexity.

    `low` and `high` bound the 95 % interval over documents. The paper printed one point of each curve.
    """
    import pandas

    rows = [{"source": "paper", "model": "recurrent" if row["curve"].startswith("Recurrent") else "baseline",
             "overlap": int(row["overlap_tokens"]), "window": int(row["window_tokens"]),
             "flops": 1e8 * float(row["flops_per_token_1e8"]),
             "perplexity": float(row["pg19_validation_perplexity_per_word"])}
            for row in published(FIGURE).to_dict("records") if row["pg19_validation_perplexity_per_word"]]
    for scale in reversed(context.scales):
        for config in families(context.plan(scale)):
            if records := context.records_of(config):
                value, low, high = interval(records, "validation")
                rows.append({"source": scale, "model": config.model, "overlap": config.overlap,
                             "window": config.window, "flops": records[0].metrics["flops_per_token"],
                             "perplexity": value, "low": low, "high": high})
    return pandas.DataFrame(rows)


def families(plan: list) -> list:
    """The configs of the five curves of Figure 5: those whose overlap is tested at every window size."""
    plan = [config for config in plan if kind(config) in ("baseline", "recurrent")]
    sizes = {config.window for config in plan}
    return [config for config in plan
            if sizes == {other.window for other in plan
                         if (other.model, other.overlap) == (config.model, config.overlap)}]


def window_table(context: ArtifactContext) -> "pandas.DataFrame":
    """Figure 4 in numbers: validation perplexity on disjoint windows by window size, and the paired gain."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        for window in sorted({config.window for config in context.plan(scale)}):
            found = {model: [r for c in context.plan(scale, window=window, overlap=0) if kind(c) == model
                             for r in context.records_of(c)] for model in ("baseline", "recurrent")}
            gain = _percent(*compare(found["recurrent"], found["baseline"], "validation")) if all(
                found.values()) else NOT_RUN
            rows.append({"scale": scale, "window": window, **{model: told(records, "validation")
                                                              for model, records in found.items()}, "change": gain})
    return pandas.DataFrame(rows)


def told(records: Sequence[Record], split: str) -> str:
    """Word perplexity with its interval, or "not run"."""
    if not records:
        return NOT_RUN
    value, low, high = interval(list(records), split)
    digits = 2 if value < 100 else 0
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _percent(value: float, low: float, high: float) -> str:
    value, low, high = (signed(number, ".1%") for number in (value, low, high))
    return f"{value} [{low}, {high}]"


def cost_figure(context: ArtifactContext):
    """Figure 5: perplexity against FLOPs per token, with the Pareto front, a panel for each source."""
    from repro.plotting import draw_cost_front

    return draw_cost_front(points(context))


def window_figure(context: ArtifactContext):
    """Figure 4: perplexity on disjoint windows against the window size, a panel for each source."""
    from repro.plotting import draw_table_curves

    frame = points(context)
    return draw_table_curves(frame[frame["overlap"] == 0], x="window",
                             labels=("window (tokens)", "validation perplexity per word"))


def variation_table(context: ArtifactContext,
                    variations: Callable[[str], Mapping[str, Mapping[str, Any]]]) -> "pandas.DataFrame":
    """Each variation on disjoint windows beside the paper's module, then the models tested with overlap.

    variations: scale -> the name of each row -> what it changes in the first one. "change" is against the first row of
    its overlap, paired over documents; "module" is what masking the module out takes.
    """
    import pandas

    rows = []
    for scale in reversed(context.scales):
        plan, firsts = context.plan(scale), {}
        for name, change in variations(scale).items():
            for config in (one for one in plan if one == plan[0].model_copy(update=change)):
                records = context.records_of(config)
                first, compared, others = firsts.setdefault(config.overlap, (name, config, records))
                changed = _percent(*compare(records, others, "validation")) if records and others else NOT_RUN
                rows.append({"scale": scale, "variation": name, "validation": told(records, "validation"),
                             "change": "–" if name == first else "the same here" if config == compared else changed,
                             "module": signed(module_effect(records), ".2%") if records else NOT_RUN})
    return pandas.DataFrame(rows)


def judge_pair(records: list[Record], margin: float = 0.0, cost: float = math.inf) -> Verdict:
    """Recurrent models against baselines on test documents: their perplexity is below (1 + margin) of the baseline's,
    and what a token costs them below `cost` of what it costs the baseline.

    A recurrent model that is tested with overlap was trained on more windows than the baseline. Where it would hold the
    claim with its module masked out too, the claim is left open.
    """
    recurrent = [record for record in records if record.model == "recurrent"]
    baseline = [record for record in records if record.model == "baseline"]
    value, low, high = compare(recurrent, baseline, "test")
    verdict = judge_difference(value - margin, low - margin, high - margin, "lower").verdict
    share = recurrent[0].metrics["flops_per_token"] / baseline[0].metrics["flops_per_token"]
    text = f"{judge_difference(value, low, high, 'lower', percent=True).text} at {share:.2f} of the cost"
    if share >= cost:
        return Verdict(NOT_REPRODUCED, value, low, high, text)
    if verdict == REPRODUCED and (1 + value) / (1 + module_effect(recurrent)) < 1 + margin:
        text += ", but so it is (on validation text) with its module masked out"
        return Verdict(INCONCLUSIVE, value, low, high, text)
    return Verdict(verdict, value, low, high, text)


def judge_windows(records: list[Record]) -> Verdict:
    """Recurrent against baseline on disjoint windows of every size; the window with the smallest gain decides."""
    pairs = []
    for window in sorted({record.config["window"] for record in records}):
        pair = [[r for r in records if r.config["window"] == window and r.model == model]
                for model in ("recurrent", "baseline")]
        pairs.append((*compare(*pair, "validation"), window))
    return _worst(pairs, "window {}")


def judge_front(records: list[Record]) -> Verdict:
    """Every recurrent point against every other point that costs at most as much; the hardest of them decides."""
    points = _by_config(records)
    pairs = []
    for ours in points:
        for other in points:
            dear = other[0].metrics["flops_per_token"] > ours[0].metrics["flops_per_token"]
            if ours[0].model == "recurrent" and other is not ours and not dear:
                told = f"{other[0].model} {other[0].config['window']} with overlap {other[0].config['overlap']}"
                pairs.append((*compare(ours, other, "validation"), f"{ours[0].config['window']} against {told}"))
    return _worst(pairs, "recurrent {}")


def _by_config(records: Sequence[Record]) -> list[list[Record]]:
    """The records of one config at all seeds together."""
    groups: dict[tuple, list[Record]] = {}
    for record in records:
        groups.setdefault((record.model, record.config["window"], record.config["overlap"]), []).append(record)
    return list(groups.values())


def _worst(pairs: Sequence[tuple], where: str) -> Verdict:
    """The verdict on "every difference is below zero": one that is above refutes it, one that is open leaves it open.

    pairs: (difference, low, high, where it was found). What is told is the pair that speaks most against the claim.
    """
    ranks = {NOT_REPRODUCED: 2, INCONCLUSIVE: 1, REPRODUCED: 0}
    judged = [(judge_difference(value, low, high, "lower", percent=True), at) for value, low, high, at in pairs]
    verdict, at = max(judged, key=lambda one: (ranks[one[0].verdict], one[0].high))
    return replace(verdict, text=f"{verdict.text} ({where.format(at)})")
