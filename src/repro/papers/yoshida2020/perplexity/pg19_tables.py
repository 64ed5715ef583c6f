"""Figures and tables of the chapter on books: window sizes, cost, and variations of the module."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from repro.markup import signed
from repro.pages import Metric, metric
from repro.papers.yoshida2020.perplexity.tables import NO_MODULE, change, compare, module_effect, perplexity, row_kind
from repro.study.artifacts import NOT_RUN, ArtifactContext
from repro.study.published import published
from repro.study.record import Record

if TYPE_CHECKING:
    import pandas

FIGURE = "yoshida2020_figure5_flops_pareto"
MASKED = {"recurrent": "nll", "recurrent, module masked out": "nll_masked"}  # model -> its losses in a record


def cost_points(context: ArtifactContext) -> "pandas.DataFrame":
    """Figure 5 as rows: source, window and overlap in tokens, model, `cost` and `change`. Both are relative to the
    baseline on disjoint windows of the same size, in %: the extra FLOPs per token, and the change of validation
    perplexity.

    `low` and `high` bound the 95% interval of the change, paired over documents. The paper printed one window size.
    """
    import pandas

    rows = _printed_costs()
    for scale in reversed(context.scales):
        found = _families_found(context, scale)
        for (window, model, overlap), records in sorted(found.items()):
            base = found.get((window, "baseline", 0))
            if records and base:
                flops = [some[0].metrics["flops_per_token"] for some in (records, base)]
                row = {"source": scale, "window": window, "model": model, "overlap": overlap,
                       "cost": 100 * (flops[0] / flops[1] - 1), "change": 0.0}
                rows.append(row if records is base else row | _changed(records, base))
    return pandas.DataFrame(rows, columns=["source", "window", "model", "overlap", "cost", "change", "low", "high"])


def _printed_costs() -> list[dict]:
    """The paper's rows of `cost_points`, which have no interval."""
    rows = [row for row in published(FIGURE).to_dict("records") if row["pg19_validation_perplexity_per_word"]]
    printed = {(row["curve"].split(" ")[0].lower(), int(row["overlap_tokens"])):
               (float(row["flops_per_token_1e8"]), float(row["pg19_validation_perplexity_per_word"])) for row in rows}
    flops, perplexity = printed["baseline", 0]
    return [{"source": "paper", "window": int(rows[0]["window_tokens"]), "model": model, "overlap": overlap,
             "cost": 100 * (cost / flops - 1), "change": 100 * (value / perplexity - 1)}
            for (model, overlap), (cost, value) in sorted(printed.items())]


def _families_found(context: ArtifactContext, scale: str) -> dict[tuple[int, str, int], list[Record]]:
    """The records of `families` by window, model and overlap, at the seeds that all of them have."""
    plan = families(context.plan(scale))
    return {(config.window, config.model, config.overlap): records
            for config, records in zip(plan, context.at_common_seeds(plan), strict=True)}


def _changed(records: Sequence[Record], base: Sequence[Record], losses: str = "nll") -> dict[str, float]:
    """`compare` on validation text, in %."""
    return dict(zip(("change", "low", "high"), (100 * end for end in compare(records, base, "validation", losses)),
                    strict=True))


def window_points(context: ArtifactContext) -> "pandas.DataFrame":
    """Figure 4 as rows: source, window (tokens), `model`, and how its validation perplexity on disjoint windows differs
    from the baseline's in the same windows: `change`, `low` and `high` in %, paired over documents.

    Models: the recurrent model and, as a control, the same model with its module masked out. The paper printed one
    window size.
    """
    import pandas

    rows = [{"source": "paper", "window": row["window"], "model": "recurrent", "change": row["change"]}
            for row in _printed_costs() if row["model"] == "recurrent"]
    for scale in reversed(context.scales):
        found = _families_found(context, scale)
        for window in sorted({window for window, *_ in found}):
            ours, base = (found.get((window, model, 0), []) for model in ("recurrent", "baseline"))
            for name, losses in MASKED.items() if ours and base else ():
                if all(losses in record.documents["validation"] for record in ours):
                    rows.append({"source": scale, "window": window, "model": name} | _changed(ours, base, losses))
    return pandas.DataFrame(rows, columns=["source", "window", "model", "change", "low", "high"])


def families(plan: list) -> list:
    """The configs of the five curves of Figure 5: those whose overlap is tested at every window size."""
    plan = [config for config in plan if row_kind(config) in ("baseline", "recurrent")]
    sizes = {config.window for config in plan}
    return [config for config in plan
            if len(sizes) > 1 and sizes == {other.window for other in plan
                         if (other.model, other.overlap) == (config.model, config.overlap)}]


def window_table(context: ArtifactContext) -> "pandas.DataFrame":
    """Figure 4 in numbers: validation perplexity on disjoint windows by window size, at the seeds that all sizes have.

    Two changes are paired: the recurrent model against the baseline in the same windows, and the baseline against
    itself in the smallest windows.
    """
    import pandas

    rows = []
    for scale in reversed(context.scales):
        plan = [config for config in context.plan(scale, overlap=0) if row_kind(config) in ("baseline", "recurrent")]
        found = {(config.window, config.model): records for config, records in zip(
            plan, context.at_common_seeds(plan), strict=True)}
        sizes = sorted({config.window for config in plan})
        for window in sizes:
            base, ours = (found.get((window, model), []) for model in ("baseline", "recurrent"))
            smallest = found.get((sizes[0], "baseline"), [])
            rows.append({"scale": scale, "window": window, "baseline": perplexity_cell(base, "validation"),
                         "recurrent": perplexity_cell(ours, "validation"),
                         "change by recurrence": change(ours, base, split="validation"),
                         "change by window": change(base, smallest, split="validation") if window > sizes[0] else "–",
                         "seeds": str(len({one.seed for one in base} & {one.seed for one in ours}))})
    return pandas.DataFrame(rows)


def perplexity_cell(records: Sequence[Record], split: str) -> str:
    """Word perplexity with its interval, or "not run"."""
    return perplexity(list(records), split) or NOT_RUN


def cost_figure(context: ArtifactContext):
    """`cost_points` drawn, a panel for each source and window size."""
    from repro.plotting import draw_cost_front

    return draw_cost_front(cost_points(context))


def window_figure(context: ArtifactContext):
    """`window_points` drawn, a panel for each source; a line at 0 is the baseline."""
    from repro.plotting import draw_table_curves

    return draw_table_curves(window_points(context), "window", "change",
                             ("window (tokens)", "change of perplexity (%)"), level=0)


def larger_window(smaller: int, larger: int, scale: str = "small") -> tuple[Metric, Metric]:
    """The relative changes of the baseline's validation perplexity on disjoint windows, and of its FLOPs per token,
    from windows of `smaller` to windows of `larger` tokens; without a value if a record is missing.

    >>> perplexity, flops = larger_window(200, 600)
    >>> f"{flops}"
    '12%'
    """
    def ratio(name: str, style: str) -> Metric:
        large, small = (metric("recurrence-pg19", name, scale, model="baseline", window=window, overlap=0,
                               train_overlap=None) for window in (larger, smaller))
        missing = next((one for one in (large, small) if one.value is None), None)
        return missing or Metric(large.value / small.value - 1, style)

    return ratio("validation_word_perplexity", "+.0%"), ratio("flops_per_token", ".0%")


def variation_table(context: ArtifactContext,
                    variations: Callable[[str], Mapping[str, Mapping[str, Any]]]) -> "pandas.DataFrame":
    """Each variation on disjoint windows next to the paper's module, then the models tested with overlap.

    variations: scale -> name of the row -> the settings that it changes in the first row. "change" is relative to the
    first row with the same overlap, paired over documents; the last column compares with the
    same model with its module masked out.
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
                             f"vs. {NO_MODULE}": signed(module_effect(records), ".2%") if records else NOT_RUN})
    return pandas.DataFrame(rows)
