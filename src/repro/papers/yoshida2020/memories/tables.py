"""The table and the figure of the memories: gain, cost and reach of each."""

import math
from statistics import fmean, median
from typing import TYPE_CHECKING

from repro.papers.yoshida2020.perplexity.evaluation import trained
from repro.papers.yoshida2020.perplexity.pg19_tables import perplexity_cell
from repro.papers.yoshida2020.perplexity.tables import CONTROL_LOSSES, change, compare
from repro.study.artifacts import NOT_RUN, ArtifactContext, paired
from repro.study.record import Record
from repro.study.settings import RunConfig

if TYPE_CHECKING:
    import pandas

KNOWN = "synthetic-books"


def memory_table(context: ArtifactContext) -> "pandas.DataFrame":
    """A row for each memory. Means over the seeds that all rows share; perplexity with its interval over books; changes
    relative to "none" on the same text, paired by seed and book. With one seed the interval covers books only.

    "seeds": for the scale's text; if the known gain has another number of seeds, it follows in brackets. "other
    document": the state comes from another book. "known gain": on generated text, the saved nats as a share of the nats
    that the whole book offers beyond the window. They are relative to "none", or to the same model without its state if
    that is better. "tokens/s": in fine-tuning, validation included.
    """
    import pandas

    rows = []
    for scale in reversed(context.scales):
        found, known = (_side_by_side(context, scale, known=known) for known in (False, True))
        for config, records in found:
            row = {"scale": scale, "memory": config.memory} | dict.fromkeys(COLUMNS, NOT_RUN)
            if records:
                plain = [record for other, some in found if other.memory == "none" for record in some]
                row |= _cells(config, records, plain) | {"tokens/s": speed(context, config)}
            if shares := gained(known, config.memory):
                row["known gain"] = f"{fmean(shares):+.0%}" if config.memory != "none" else "–"
                row["seeds"] += f" ({len(shares)})" * (0 < len(records) != len(shares))
            rows.append(row)
    return pandas.DataFrame(rows)


def _side_by_side(context: ArtifactContext, scale: str, known: bool = False) -> list[tuple[RunConfig, list[Record]]]:
    """Each memory on the scale's text, or on the generated one, with its records at the seeds that all share."""
    plan = context.plan(scale)
    text = KNOWN if known else plan[0].corpus
    mine = [config for config in plan if config.corpus == text]
    return list(zip(mine, context.at_common_seeds(mine), strict=True))


COLUMNS = ("seeds", "weights", "state (numbers)", "FLOPs/token", "tokens/s", "test perplexity", "change", "masked",
           "other document", "reach (windows)", "known gain")


def _cells(config, records: list[Record], plain: list[Record]) -> dict[str, str]:
    """The cells of a row that come from its own records."""
    metrics = records[0].metrics
    controls = {name: [record.metrics.get(f"test_word_perplexity_{key}") for record in records]
                for name, key in (("masked", "masked"), ("other document", "other_document"))}
    return {"seeds": str(len(records)), "weights": f"{metrics['weights']:,.0f}",
            "state (numbers)": f"{metrics['state_numbers']:,.0f}",
            "FLOPs/token": f"{metrics['flops_per_token']:.3g}", "test perplexity": perplexity_cell(records, "test"),
            "change": change(records, plain) if config.memory != "none" else "–",
            **{name: "–" if None in values else f"{fmean(values):.{2 if fmean(values) < 100 else 0}f}"
               for name, values in controls.items()},
            "reach (windows)": reach([record.metrics["reach_windows"] for record in records],
                                     config.windows_per_sequence - 1)}


def gained(known: list[tuple[RunConfig, list[Record]]], memory: str) -> list[float]:
    """The share of the known gain that a memory recovers, for each seed that it shares with "none".

    It is measured against the best of three: "none", and the same model with its state masked or from another document.
    """
    found = {config.memory: {record.seed: record for record in records} for config, records in known}
    plain = found.get("none", {})
    ours = [record for seed, record in found.get(memory, {}).items() if seed in plain]
    kept = [record.documents["test"] for record in ours]
    without = [[sum(plain[record.seed].documents["test"]["nll"]) for record in ours]]
    without += [[sum(one[name]) for one in kept] for name in CONTROL_LOSSES if all(name in one for one in kept)]
    return [(nats - sum(one["nll"])) / (record.metrics["known_gain"] * sum(one["n_words"]))
            for record, one, nats in zip(ours, kept, min(without, key=sum), strict=True)]


def reach(windows: list[float], most: int) -> str:
    """The mean over seeds, or "≥ most" for a memory that reaches as far as the text allows."""
    return f"≥ {most}" if min(windows) >= most else f"{fmean(windows):.3g}"


def speed(context: ArtifactContext, config) -> str:
    """Tokens per second of fine-tuning, the median over seeds."""
    runs = context.records_of(trained(config))
    return f"{median(run.notes['tokens'] / run.cost['wall_seconds'] for run in runs):,.0f}" if runs else NOT_RUN


def cost_figure(context: ArtifactContext):
    """FLOPs per token of each memory, and its change of test perplexity against "none": `cost_points` drawn."""
    from repro.plotting import draw_quality_and_cost

    return draw_quality_and_cost(cost_points(context), "test perplexity (%)")


def cost_points(context: ArtifactContext) -> "pandas.DataFrame":
    """The cells "FLOPs/token" and "change" of `memory_table` as numbers, a row for each memory and scale: `change`,
    `low`, `high` in %, paired as in the table; "none" has 0 without an interval."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        found = _side_by_side(context, scale)
        plain = [record for config, records in found if config.memory == "none" for record in records]
        for config, records in found:
            if not records or config.memory != "none" and not all(paired(records, plain)):
                continue
            change = (0, math.nan, math.nan) if config.memory == "none" else compare(records, plain, "test")
            rows.append([scale, config.memory, records[0].metrics["flops_per_token"], *(100 * one for one in change)])
    return pandas.DataFrame(rows, columns=["source", "name", "flops", "change", "low", "high"])
