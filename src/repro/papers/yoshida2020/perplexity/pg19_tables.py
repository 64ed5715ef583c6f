"""Figures and tables of the chapter on books: window sizes, cost, and variations of the module."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from repro.markup import signed
from repro.papers.yoshida2020.perplexity.tables import change, interval, module_effect, perplexity, row_kind
from repro.study.artifacts import NOT_RUN, ArtifactContext
from repro.study.published import published
from repro.study.record import Record

if TYPE_CHECKING:
    import pandas

FIGURE = "yoshida2020_figure5_flops_pareto"


def points(context: ArtifactContext) -> "pandas.DataFrame":
    """Figures 4 and 5 as rows: source, model, overlap and window in tokens, FLOPs a token, validation perplexity.

    `low` and `high` bound the 95% interval over documents. The paper printed one point of each curve.
    """
    import pandas

    rows = [{"source": "paper", "model": "recurrent" if row["curve"].startswith("Recurrent") else "baseline",
             "overlap": int(row["overlap_tokens"]), "window": int(row["window_tokens"]),
             "flops": 1e8 * float(row["flops_per_token_1e8"]),
             "perplexity": float(row["pg19_validation_perplexity_per_word"])}
            for row in published(FIGURE).to_dict("records") if row["pg19_validation_perplexity_per_word"]]
    for scale in reversed(context.scales):
        plan = families(context.plan(scale))
        for config, records in zip(plan, context.at_common_seeds(plan), strict=True):
            if records:
                value, low, high = interval(records, "validation")
                rows.append({"source": scale, "model": config.model, "overlap": config.overlap,
                             "window": config.window, "flops": records[0].metrics["flops_per_token"],
                             "perplexity": value, "low": low, "high": high})
    return pandas.DataFrame(rows)


def families(plan: list) -> list:
    """The configs of the five curves of Figure 5: those whose overlap is tested at every window size."""
    plan = [config for config in plan if row_kind(config) in ("baseline", "recurrent")]
    sizes = {config.window for config in plan}
    return [config for config in plan
            if len(sizes) > 1 and sizes == {other.window for other in plan
                         if (other.model, other.overlap) == (config.model, config.overlap)}]


def window_table(context: ArtifactContext) -> "pandas.DataFrame":
    """Figure 4 in numbers: validation perplexity on disjoint windows by window size, and the paired gain, all at the
    seeds that every window size has."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        plan = [config for config in context.plan(scale, overlap=0) if row_kind(config) in ("baseline", "recurrent")]
        found = {(config.window, config.model): records for config, records in zip(
            plan, context.at_common_seeds(plan), strict=True)}
        for window in sorted({config.window for config in plan}):
            base, ours = (found.get((window, model), []) for model in ("baseline", "recurrent"))
            rows.append({"scale": scale, "window": window, "baseline": perplexity_cell(base, "validation"),
                         "recurrent": perplexity_cell(ours, "validation"),
                         "change": change(ours, base, split="validation"),
                         "seeds": str(len({one.seed for one in base} & {one.seed for one in ours}))})
    return pandas.DataFrame(rows)


def perplexity_cell(records: Sequence[Record], split: str) -> str:
    """Word perplexity with its interval, or "not run"."""
    return perplexity(list(records), split) or NOT_RUN


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
    """Each variation on disjoint windows next to the paper's module, then the models tested with overlap.

    variations: scale -> name of the row -> what it changes in the first one. "change" is relative to the first row of
    the same overlap, paired over documents; "module" is the effect of masking the module out.
    """
    import pandas

    rows = []
    for scale in reversed(context.scales):
        plan, firsts = context.plan(scale), {}
        found = context.at_common_seeds(plan)
        for name, changes in variations(scale).items():
            for config, records in ((one, some) for one, some in zip(plan, found, strict=True)
                                    if one == plan[0].model_copy(update=changes)):
                first, compared, others = firsts.setdefault(config.overlap, (name, config, records))
                changed = "–" if name == first else change(records, others, split="validation")
                rows.append({"scale": scale, "variation": name, "validation": perplexity_cell(records, "validation"),
                             "change": "the same here" if config == compared and name != first else changed,
                             "module": signed(module_effect(records), ".2%") if records else NOT_RUN})
    return pandas.DataFrame(rows)
