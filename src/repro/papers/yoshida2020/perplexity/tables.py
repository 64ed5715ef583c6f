"""Tables that compare recurrent with baseline models: perplexity by overlap, and the paired gain."""

from collections.abc import Sequence
from math import expm1
from statistics import fmean, mode
from typing import TYPE_CHECKING

from repro.errors import ReproError
from repro.markup import bounded, signed
from repro.study.artifacts import NOT_RUN, ArtifactContext, heading, paired
from repro.study.published import published
from repro.study.record import Record
from repro.study.rule import judge
from repro.study.settings import RunConfig

if TYPE_CHECKING:
    import numpy as np
    import pandas

    from repro.evaluation import Interval

SPLITS = ("validation", "test")
CONTROL = "baseline trained with overlap"
NO_MODULE = "same model, module masked"
CONTROL_LOSSES = ("nll_masked", "nll_other_document")  # by document: without h_prev, with another document's h_prev
LITERAL = "recurrent, as in the paper"  # at a scale whose own module differs from the paper's
UNSCALED = "recurrent, not normalized"  # at a scale whose own module is normalized
FIRST = "recurrent, first block"  # the first of six blocks, as deep as the paper's second of twelve


def perplexities(context: ArtifactContext, table: str) -> "pandas.DataFrame":
    """One row per model and overlap: the paper's perplexities next to ours, with 95% intervals over documents.

    Ours are means over the seeds that all rows of a scale share; some comparisons use more. "cost" is T / (T -
    overlap), the cost of a scored token relative to disjoint windows. Windows differ between scales, so overlaps that
    are the same share of the window share a row.
    """
    import pandas

    printed = {_point(row): row for row in published(table).to_dict("records")}
    planned = [(row_kind(config), config.overlap / config.window) for scale in context.scales
               for config in _table(context, scale)]
    ours = {scale: _levels(context, scale) for scale in context.scales}
    rows = []
    for model, share in sorted({*printed, *((model, round(share, 9)) for model, share in planned)}):
        paper = printed.get((model, share), {})
        row = {"model": model, "overlap / T": f"{share:.1%}"}
        row |= {f"paper: {split}": paper.get(f"{split}_perplexity_per_word") for split in SPLITS}
        row |= {"paper: FLOPs/token": paper and f"{paper['flops_per_token_1e8']}e8" or None,
                "cost": f"{1 / (1 - share):.3f}"}
        for scale in reversed(context.scales):
            found = ours[scale].get((model, share))
            row |= {f"{heading(scale)}: {split}": perplexity(found, split) for split in SPLITS}
        rows.append({name: _cell(value) for name, value in row.items()})
    return pandas.DataFrame(rows)


def _levels(context: ArtifactContext, scale: str) -> dict[tuple[str, float], list[Record]]:
    """The records of the table by model and overlap, as a share of the window, at the seeds that all of them have."""
    plan = _table(context, scale)
    return {(row_kind(config), round(config.overlap / config.window, 9)): records
            for config, records in zip(plan, context.at_common_seeds(plan), strict=True)}


def _point(printed: dict[str, str]) -> tuple[str, float]:
    """Model and overlap, as a share of the window, of a printed row."""
    model = "recurrent" if "recurrence" in printed["model"] else "baseline"
    return model, round(int(printed["overlap_tokens"]) / int(printed["window_tokens"]), 9)


def learning_curves(records: Sequence[Record], curve: str = "validation_loss") -> list[tuple[str, list[list[float]]]]:
    """The curve of each record, named by kind of model and test overlap, in the form that `draw_curves` takes."""
    return [(f"{row_kind(record)}, overlap {record.config['overlap']}", record.curves[curve]) for record in records]


def learning_rates(records: Sequence[Record]) -> "pandas.DataFrame":
    """One row per kind of model and window: its validation loss, nats per token, after a short training at each
    candidate rate, the learning rate that was chosen, and the setting of the module.

    records: records of fine-tuning, all on one text. Records that chose among the same candidates share a row.
    """
    import pandas

    chose = {(record.model, record.config["window"]): record.notes for record in records if record.notes["candidates"]}
    rows = []
    for (model, window), notes in sorted(chose.items(), key=lambda one: (-one[0][1], one[0][0])):
        tried = {f"{rate:g}": f"{loss:.4f}" for rate, loss in notes["candidates"]}
        rows.append({"model": model, "T": window} | tried | {"chosen": f"{notes['learning_rate']:g}",
                                                            "its module": _module_setting(notes)})
    return pandas.DataFrame(rows)


def _module_setting(notes: dict) -> str:
    """How the module of a fine-tuned model was trained, in words; a dash for a model without one."""
    if "zero_init" not in notes:
        return "–"
    times = round(notes["module_learning_rate"] / notes["learning_rate"], 3)
    rate = "that rate" if times == 1 else f"{times:g} times that rate"
    return f"{rate}, last layer from {'zero' if notes['zero_init'] else 'noise'}"


def layer_weights(records: Sequence[Record]) -> dict[str, list[float]]:
    """The learned weight of each layer in z, the mean over seeds, by window and overlap of training. Models with the
    module at the first block are left out."""
    found: dict[tuple[int, int], list[list[float]]] = {}
    for record in records:
        if record.model == "recurrent" and is_literal_reading(record):
            of = record.config["window"], record.config["overlap"]
            found.setdefault(of, []).append(record.notes["layer_weights"])
    return {f"T = {window}, overlap {overlap}": [fmean(layer) for layer in zip(*found[window, overlap], strict=True)]
            for window, overlap in sorted(found, key=lambda one: (-one[0], one[1]))}


def gains(context: ArtifactContext, table: str) -> "pandas.DataFrame":
    """One row per overlap: the recurrent model's perplexity minus the baseline's, in % of the baseline's.

    "vs. baseline trained with overlap": compared with a baseline trained with the same overlap. "vs. same model, module
    masked": compared on test text if the masked model has read it, else on validation text. The model with its module
    at the first block has the same columns.
    """
    import pandas

    printed = published(table)
    recurrent = printed["model"].str.contains("recurrence")
    rows = []
    for ours in printed[recurrent].to_dict("records"):
        base = printed[~recurrent & (printed["overlap_tokens"] == ours["overlap_tokens"])].iloc[0]
        share = int(ours["overlap_tokens"]) / int(ours["window_tokens"])
        row = {"overlap": f"{share:.1%} of T"}
        for split in SPLITS:
            name = f"{split}_perplexity_per_word"
            row[f"paper: {split}"] = signed(float(ours[name]) / float(base[name]) - 1, ".1%")
        for scale in reversed(context.scales):
            pair = [_at(context, scale, model, share) for model in ("recurrent", "baseline")]
            for split in SPLITS:
                row[f"{heading(scale)}: {split}"] = (
                    bounded(*compare(*pair, split), "+.1%") if all(pair) else min(pair, key=bool))
            row |= _beside(context, scale, share, "recurrent", "")
            if not all(is_literal_reading(config) for config in context.plan(scale)):
                first = _at(context, scale, FIRST, share)
                row[f"{heading(scale)}: test, first block"] = (
                    bounded(*compare(first, pair[1], "test"), "+.1%") if first and pair[1] else first)
                row |= _beside(context, scale, share, FIRST, ", first block")
        rows.append({name: _cell(value) for name, value in row.items()})
    return pandas.DataFrame(rows)


def _beside(context: ArtifactContext, scale: str, share: float, model: str, of: str) -> dict:
    """The cells of `gains` that put a gain in perspective: against a baseline trained with overlap, and the effect
    of the module."""
    records, cells = _at(context, scale, model, share), {}
    if any(row_kind(config) == CONTROL for config in context.plan(scale)):
        control = _at(context, scale, CONTROL, share)
        cells[f"{heading(scale)}: test{of}, vs. {CONTROL}"] = (
            bounded(*compare(records, control, "test"), "+.1%") if records and control else records and control)
    cells[f"{heading(scale)}: vs. {NO_MODULE}{of}"] = records and signed(module_effect(records), ".2%")
    return cells


def gain_figure(context: ArtifactContext, table: str):
    """`gain_points` drawn, a panel for each scale."""
    from repro.plotting import draw_gains

    return draw_gains(gain_points(context, table), ("paper", *GAINS))


def gain_points(context: ArtifactContext, table: str) -> "pandas.DataFrame":
    """`gains` on test text as points, in % of the baseline's perplexity; above 0, recurrence helps.

    One row per point: source, name (of GAINS), overlap (% of T), the gain and its interval `low`, `high`, which may be
    missing. The paper's points appear in the panel of every scale but `smoke`, whose generated text has nothing in
    common with the paper's.
    """
    import pandas

    printed = {_point(row): float(row["test_perplexity_per_word"]) for row in published(table).to_dict("records")}
    rows = []
    for scale in reversed(context.scales):
        ours = _gains_at(context, scale)
        rows += [{"source": scale, "name": "paper", "overlap": 100 * share,
                  "gain": 100 * (1 - value / printed["baseline", share])}
                 for (model, share), value in printed.items() if model == "recurrent" and ours and scale != "smoke"]
        rows += ours
    return pandas.DataFrame(rows, columns=["source", "name", "overlap", "gain", "low", "high"])


# The marks in the figure of gains: a kind of model, the losses that count, and the model it is compared with.
GAINS = {"recurrent": ("recurrent", "nll", "baseline"), FIRST: (FIRST, "nll", "baseline"),
         f"vs. {CONTROL}": ("recurrent", "nll", CONTROL),
         "module masked out": ("recurrent", "nll_masked", "baseline"),
         "another document's state": ("recurrent", "nll_other_document", "baseline")}


def _gains_at(context: ArtifactContext, scale: str) -> list[dict]:
    """The points of `gain_points` at a scale."""
    rows = []
    for share in sorted({config.overlap / config.window for config in _table(context, scale)}):
        for name, (model, losses, against) in GAINS.items():
            pair = [_at(context, scale, one, share) for one in (model, against)]
            if all(pair) and (found := _change(*pair, losses)):
                gain, high, low = (-100 * change for change in found)
                rows.append({"source": scale, "name": name, "overlap": 100 * share, "gain": gain, "low": low,
                             "high": high})
    return rows


def _change(records: list[Record], against: list[Record], losses: str) -> tuple[float, float, float] | None:
    """`compare` on test text with these losses. Records that kept only the perplexity give no interval; records that
    did not measure these losses give None."""
    name = losses.replace("nll", "test_word_perplexity")
    if any(name not in record.metrics for record in records):
        return None
    if all(losses in record.documents["test"] for record in records):
        return compare(records, against, "test", losses)
    ratio = fmean(ours.metrics[name] for ours in records) / fmean(base.metrics["test_word_perplexity"]
                                                                  for base in against)
    return ratio - 1, float("nan"), float("nan")


def interval(records: list[Record], split: str) -> "Interval":
    """Word perplexity of one config on `split` and its 95% interval over documents; losses averaged over seeds."""
    from repro.evaluation import bootstrap

    losses = [record.documents[split]["nll"] for record in records]
    if len(set(map(len, losses))) != 1:
        raise ReproError(f"records {', '.join(r.id for r in records)} scored different {split} documents.")
    return bootstrap(losses, records[0].documents[split]["n_words"])


def change(records: Sequence[Record], against: Sequence[Record], losses: str = "nll", split: str = "test") -> str:
    """`compare` as a cell; "not run" if one of the two has no record, a dash if they have no seed in common."""
    if not (records and against):
        return NOT_RUN
    shared = all(paired(records, against))
    return bounded(*compare(records, against, split, losses), "+.1%") if shared else "–"


def compare(records: Sequence[Record], against: Sequence[Record], split: str,
            losses: str = "nll") -> tuple[float, float, float]:
    """Relative difference in word perplexity and its 95% interval, over documents of `split` and the seeds that both
    have, as in verdicts; with one seed, over documents alone. losses: the losses of `records`, such as "nll_masked"."""
    pair = paired(records, against)
    if not all(pair):
        raise ReproError(f"records {', '.join(r.id for r in (*records, *against))} have no seed in common; run both "
                         "with the same --seed.")
    found = judge(log_ratio(*pair, split, losses), "lower", seeds=1)
    return expm1(found.effect), expm1(found.low), expm1(found.high)


def log_ratio(records: Sequence[Record], against: Sequence[Record], split: str = "test",
              losses: str = "nll") -> "np.ndarray":
    """The log of the ratio of word perplexities, (seeds, documents). Each seed is compared with the same seed.

    Raises ReproError if the two did not score the same documents.
    """
    import numpy as np

    return np.array([by_document(ours, ours.documents[split][losses], theirs, split)
                     for ours, theirs in zip(records, against, strict=True)])


def by_document(ours: Record, nll: Sequence[float], theirs: Record, split: str) -> "np.ndarray":
    """`log_ratio` of a record, with these losses, to another, (documents,)."""
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    words, other = ours.documents[split]["n_words"], theirs.documents[split]
    if words != other["n_words"]:
        raise ReproError(f"records {ours.id} and {theirs.id} scored different {split} documents.")
    return linearised(np.asarray(nll) - other["nll"], words)


def module_effect(recurrent: Sequence[Record], split: str = "test") -> float:
    """Relative difference in perplexity between recurrent models and the same models with their module masked out.

    On `split`, or on validation text if the masked model has not read `split`.
    """
    name = f"{split}_word_perplexity"
    if f"{name}_masked" not in recurrent[0].metrics:
        name = "validation_word_perplexity"
    return fmean(record.metrics[name] / record.metrics[f"{name}_masked"] for record in recurrent) - 1


def row_kind(run) -> str:
    """The kind of model of a config or record: "baseline", CONTROL (a baseline trained with overlap), or recurrent.

    Recurrent models: "recurrent" has the module of its scale; FIRST has it at the first block. At `pretrained`, where
    the scale's own module is normalized, LITERAL has the paper's module and UNSCALED the scale's own one without
    normalization.
    """
    values = vars(run) if isinstance(run, RunConfig) else run.config
    if values["model"] == "baseline":
        return CONTROL if values["train_overlap"] else "baseline"
    if run.scale == "pretrained" and not values.get("normalize"):
        return UNSCALED if values.get("residual") else LITERAL
    return FIRST if values.get("insert_layer") == 0 else values["model"]


def is_literal_reading(run) -> bool:
    """Whether a config or record takes "the second layer" literally, and not as the first of six blocks."""
    return row_kind(run) != FIRST


def _table(context: ArtifactContext, scale: str) -> list:
    """The plan's configs at the table's window, which is the window of most configs."""
    plan = context.plan(scale)
    return [config for config in plan if config.window == mode(config.window for config in plan)]


def _at(context: ArtifactContext, scale: str, model: str, share: float) -> list[Record] | None:
    """The records of a model whose overlap is this share of its window; None if the scale plans no such run."""
    planned = [config for config in _table(context, scale) if row_kind(config) == model
               and abs(config.overlap / config.window - share) < 1e-8]
    return [record for config in planned for record in context.records_of(config)] if planned else None


def _cell(value: str | list | None) -> str:
    """The text that a table shows for a value: "not run" for missing records ([]), a dash for none planned (None)."""
    return "–" if value is None else value or NOT_RUN


def perplexity(records: list[Record] | None, split: str) -> str | list | None:
    """Word perplexity with its interval; without records, `records` itself."""
    if not records:
        return records
    value, low, high = interval(records, split)
    return bounded(value, low, high, ".2f" if value < 100 else ".0f")
