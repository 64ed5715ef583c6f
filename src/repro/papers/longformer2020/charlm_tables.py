"""Tables, figure and measures of the character language models: bits per character and intervals of differences."""

from collections.abc import Callable, Mapping, Sequence
from math import log
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from repro.markup import bounded, signed
from repro.study.artifacts import NOT_RUN, ArtifactContext
from repro.study.claims import Measured
from repro.study.published import printed_rows, published
from repro.study.record import Record
from repro.study.rule import judge

if TYPE_CHECKING:
    import numpy as np
    import pandas

METRIC = "validation_bits_per_character"
ROWS = {  # rows of Table 4 and the kind of run behind each
    "Decreasing w": ("decreasing", False), "Fixed w": ("fixed", False), "Increasing w": ("increasing", False),
    "No dilation": ("increasing", False), "Dilation on 2 heads": ("increasing", True),
}
NARROW = ("narrow", False)  # our own row: the narrowest window in all layers
NARROWEST = {"smoke": 1, "small": 4, "medium": 32, "paper": 32}  # its keys: the bottom window of the growing windows
FULL = "full attention"
ANY_SIZE = "the paper prints no number, so a difference of any size counts"  # why a claim has no assay
TOGETHER = 5  # adjacent blocks of a record that count as one unit, because hard text comes in stretches
SAME = [name for name in ROWS if ROWS[name] == ROWS["Increasing w"]]  # the run that the others are compared with


def window_layout(config: Any) -> tuple[str, bool]:
    """How the windows of a run change from the bottom layer to the top, and whether a head is dilated.

    config: a run's config, or the config in a record.
    """
    values = config if isinstance(config, Mapping) else config.model_dump()
    windows, dilated = list(values["windows"]), max(values["dilation"]) > 1 and values["dilated_heads"] > 0
    if None in windows:
        return "full", dilated
    name = ("narrow" if set(windows) == {NARROWEST.get(values.get("scale"))} else
            "fixed" if len(set(windows)) == 1 else "increasing" if windows == sorted(windows) else
            "decreasing" if windows == sorted(windows, reverse=True) else "mixed")
    return name, dilated


def difference(records: Sequence[Record], against: Sequence[Record], splits: Sequence[str] = ("validation",)
               ) -> "np.ndarray":
    """Bits per character of `records` minus those of `against`, (seeds, stretches of the text), seed by seed.

    Both are ordered by seed and have the same seeds.
    """
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    found = []
    for ours, theirs in zip(records, against, strict=True):
        pieces = [[np.array(stretches(blocks)) for blocks in (
            np.subtract(ours.documents[split]["nll"], theirs.documents[split]["nll"]) / log(2),
            ours.documents[split]["n_characters"])] for split in splits]
        found.append(linearised(*map(np.concatenate, zip(*pieces, strict=True))))
    return np.array(found)


def stretches(blocks: list[float]) -> list[float]:
    """Sums of TOGETHER adjacent blocks; of fewer, down to one, if the text would leave fewer than 5 such sums."""
    together = max(1, min(TOGETHER, len(blocks) // 5))
    return [sum(blocks[at:at + together]) for at in range(0, len(blocks), together)]


def fewer_bits(better: tuple[str, bool]) -> Callable[[list[Record]], Measured]:
    """A measure of the kind `better` against the other runs, on validation and test text together."""
    def measure(records: list[Record]) -> Measured:
        chosen, others = ([record for record in records if (window_layout(record.config) == better) is wanted]
                          for wanted in (True, False))
        return Measured(difference(chosen, others, ("validation", "test")))
    return measure


def wide_beats_narrow(records: Sequence[Record]) -> float | None:
    """The gain of growing windows over the narrowest window in all layers, in bits per character on all text, at the
    seeds that both have; None without common seeds."""
    narrow, grown = ({record.seed: record.metrics["pooled_bits_per_character"] for record in records
                      if window_layout(record.config) == wanted} for wanted in (NARROW, ROWS["Increasing w"]))
    gains = [narrow[seed] - grown[seed] for seed in narrow.keys() & grown.keys()]
    return fmean(gains) if gains else None


def printed_difference(better: str, other: str) -> Callable[[], float]:
    """Bits per character of one row of Table 4 minus those of another."""
    def effect() -> float:
        rows = printed_rows("longformer2020_table4_ablation")
        bits = {row["configuration"]: float(row["dev_bpc"]) for row in rows}
        return round(bits[better] - bits[other], 6)
    return effect


def ablation(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 4: the paper's row and ours for each configuration, with the text and the difference to "Increasing w"."""
    import pandas

    printed = published("longformer2020_table4_ablation").to_dict("records")
    least = next(float(row["dev_bpc"]) for row in printed if row["configuration"] == "Increasing w")
    rows = []
    for row in printed:
        name, ends = row["configuration"], [row["window_bottom_layer"], row["window_top_layer"]]
        rows.append([name, "the paper", told_text(row["dataset"]), "all", _windows(ends) if all(ends) else "–",
                     row["dev_bpc"], "–", signed(float(row["dev_bpc"]) - least, ".2f")])
        rows += _ours(context, name, ROWS[name])
    rows += _ours(context, "Narrowest w (added)", NARROW)
    frame = pandas.DataFrame(rows, columns=["configuration", "source", "text", "scored", "w", "dev", "seeds",
                                            "difference"])
    frame.loc[frame["configuration"].isin(SAME), "difference"] = "–"
    return frame


def _ours(context: ArtifactContext, name: str, wanted: tuple[str, bool]) -> list[list]:
    """One row of Table 4 for each scale whose plan has this kind of run."""
    rows = []
    for scale in reversed(context.scales):
        plan = {window_layout(config): config for config in context.plan(scale)}
        if config := plan.get(wanted):
            grown = plan.get(ROWS["Increasing w"])
            found, base = (context.records_of(one) if one else [] for one in (config, grown))
            rows.append([name, f"this study, {scale}", told_text(config.corpus), _scored(config),
                         _windows(config.windows), told_mean(found, METRIC), seeds_of(found), compared(found, base)])
    return rows


def models(context: ArtifactContext, table: str, model: str) -> "pandas.DataFrame":
    """Tables 2 and 3: the printed rows of each corpus, then ours, with the training text."""
    import pandas

    printed = published(table)
    printed = printed if "dataset" in printed else printed.assign(dataset="enwik8", dev_bpc="")
    rows, ours = [], {"text8": [], "enwik8": []}
    for scale in reversed(context.scales):
        for config in context.plan(scale, model=model):
            found = context.records_of(config)
            name = config.corpus.removesuffix("-prefix")
            ours.setdefault(name, []).append({
                "text": told_text(config.corpus), "model": f"this study, {scale}, {len(config.windows)} layers",
                "parameters": told_mean(found, "parameters", 1e-6) + " M" * bool(found), "scored": _scored(config),
                "dev": told_mean(found, METRIC), "test": told_mean(found, "test_bits_per_character")})
    for name, own in ours.items():
        for row in printed[printed["dataset"] == name].to_dict("records"):
            about = "≈ " * (row.get("parameters_approximate") == "yes")
            rows.append({"text": told_text(name), "model": row["model"].replace("(ours)", "(the paper)"),
                         "parameters": f"{about}{row['parameters_millions']} M" if row["parameters_millions"] else "–",
                         "scored": "all", "dev": row["dev_bpc"] or "–", "test": row["test_bpc"]})
        rows += own
    return pandas.DataFrame(rows)


def agreement(context: ArtifactContext) -> "pandas.DataFrame":
    """Bits per character of one model with each implementation of attention, on the start of the validation text."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            found = context.records_of(config)
            bits = [[record.metrics[f"{METRIC}_{name}"] for name in config.implementations] for record in found]
            rows.append({"scale": scale, "text": config.corpus, "model": config.model}
                        | {name: f"{fmean(values):.6f}" if values else NOT_RUN
                           for name, values in zip(config.implementations, zip(*bits, strict=True) if bits else
                                                   [()] * len(config.implementations), strict=True)}
                        | {"largest difference": f"{max(max(own) - min(own) for own in bits):.0e}"
                           if any(bits) else NOT_RUN})
    frame = pandas.DataFrame(rows)
    return frame[[*frame.columns.drop("largest difference"), "largest difference"]].fillna("–")


def cost_and_quality(context: ArtifactContext):
    """Bits per character on validation text against attended pairs, one panel per scale with runs.

    One line per dilation, one point per window, and full attention as the limit.
    """
    from repro.plotting import draw_cost_and_quality

    points = {scale: found for scale in reversed(context.scales) if (found := _cost_points(context, scale))}
    return draw_cost_and_quality(points, FULL, ("pairs per character", "bits per character, validation"))


def _cost_points(context: ArtifactContext, scale: str) -> dict[str, list[tuple]]:
    """Line -> (pairs per character, bits per character, name of the window) of each run, sorted by pairs."""
    lines = {}
    for config in context.plan(scale):
        if found := context.records_of(config):
            order, dilated = window_layout(config)
            name = (FULL if order == "full" else "no dilation" if not dilated else
                    f"dilation {max(config.dilation)} on {config.dilated_heads} heads")
            lines.setdefault(name, []).append((found[0].metrics["pairs_per_character"], fmean(
                record.metrics[METRIC] for record in found), f"w = {config.windows[-1]}"))
    return {name: sorted(line, key=lambda at: at[0]) for name, line in lines.items()}


def told_text(name: str) -> str:
    """A corpus with its size and, if it is a part, the size of the whole: "text8-prefix (6.88M of 100M characters)"."""
    from repro.data import corpus

    if corpus(name).generator:
        return f"{name} (generated, {sum(split.n_words for split in corpus(name).splits.values()) / 1e6:.2g}M words)"
    sizes = [sum(split.n_bytes or 0 for split in corpus(one).splits.values())
             for one in dict.fromkeys((name, name.removesuffix("-prefix")))]
    return f"{name} ({' of '.join(f'{size / 1e6:.3g}M' for size in sizes)} characters)" if all(sizes) else name


def _windows(windows) -> str:
    """Keys of the bottom and the top layer."""
    first, last = windows[0], windows[-1]
    return f"{first}" if first == last else f"{first} to {last}"


def _scored(config) -> str:
    """How much of a split is scored."""
    return "all" if config.scored is None else f"first {config.scored:,}"


def told_mean(records: list[Record], metric: str, times: float = 1) -> str:
    """The mean over seeds, with the standard deviation if there are several."""
    values = [times * record.metrics[metric] for record in records]
    if not values:
        return NOT_RUN
    spread = f" ± {stdev(values):.3f}" if len(values) > 1 and stdev(values) else ""
    return f"{fmean(values):.3f}{spread}"


def seeds_of(records: list[Record]) -> str:
    """How many seeds, and which: "3 (0, 1, 2)"."""
    return f"{len(records)} ({', '.join(str(record.seed) for record in records)})" if records else NOT_RUN


def compared(records: list[Record], against: list[Record]) -> str:
    """`_difference` at the seeds that both have; "not run" without common seeds."""
    common = {record.seed for record in records} & {record.seed for record in against}
    paired = [[record for record in some if record.seed in common] for some in (records, against)]
    return _difference(*paired) if common else NOT_RUN


def _difference(records: list[Record], against: list[Record]) -> str:
    """The difference on validation and test text together, with its interval over seeds and text, as in verdicts; with
    one seed, over text only."""
    found = judge(difference(records, against, ("validation", "test")), "lower", seeds=1, stretches=True)
    return bounded(found.effect, found.low, found.high, "+.3f") + " over text only" * (len(records) == 1)
