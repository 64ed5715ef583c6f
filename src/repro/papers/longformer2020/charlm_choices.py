"""Variants of the character model: the details of Transformer-XL's code, other positions, dilation on all heads.

Each row is the run of Table 4 with one change, on the same text in the same order. The paper prints none of these. The
rows of `small` were declared before any of these runs: three seeds each, the first three of Table 4. The single
details, which no claim is about, have one seed.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from repro.papers.longformer2020.charlm import (
    ABLATION,
    CHAPTER,
    ONE_PHASE,
    OTHER_TEXT,
    PAPER,
    SIZES,
    Config,
    Detail,
    as_trained,
    estimate,
    execute,
)
from repro.papers.longformer2020.charlm_tables import (
    METRIC,
    compared,
    seeds_of,
    told_mean,
    window_layout,
)
from repro.study import ADDED, Artifact, ArtifactContext, Experiment, register

if TYPE_CHECKING:
    import pandas

BASE = {scale: ONE_PHASE[scale] for scale in ("smoke", "small")}  # the run of Table 4 that each row changes
GROWN, TWO_HEADS = ("increasing", False), ("increasing", True)
AS_THERE = "all details of Transformer-XL's code"
DETAILS = {
    "scaled": "embeddings times the square root of the width", "dropout": "dropout in more places",
    "shared": "one u and v for all layers", "bare": "no layernorm after the last layer",
}
POSITIONS = {"absolute": "positions added to the embedding", "none": "no positions"}
ALL_HEADS = "dilation on all heads"


def rows(scale: str) -> list[dict]:
    """All details together, then each alone (not at `smoke`; without dropout its places make no difference); other
    positions; dilation on all heads.

    Added positions are scored on sequences of training length, because they have learned no later positions. This
    length covers everything these windows can reach.
    """
    base, sizes = BASE[scale], SIZES[scale] | BASE[scale]
    plain = {"windows": base["windows"], "dilation": (1,) * len(base["windows"])}
    alone = [] if scale == "smoke" else [one for one in get_args(Detail) if one != "dropout" or sizes.get("dropout")]
    return [plain | {"details": get_args(Detail)}, *(plain | {"details": (one,)} for one in alone),
            plain | {"positions": "absolute"} | as_trained(base), plain | {"positions": "none"},
            {"windows": base["windows"], "dilation": base["dilation"], "dilated_heads": sizes.get("n_head", 4)}]


CHOICES = Experiment(
    name="charlm-choices", paper=PAPER, config=Config, grid=rows, execute=execute, estimate=estimate,
    summary="The character model with Transformer-XL's details, other positions, dilation on all heads.",
    scales={scale: SIZES[scale] | base for scale, base in BASE.items()}, rereading=OTHER_TEXT)
register(CHOICES)


def choice(config: Any) -> str:
    """The change in a run of `charlm-choices`.

    config: a run's config, or what a record holds of it.
    """
    values = config if isinstance(config, Mapping) else config.model_dump()
    details, positions = values.get("details", ()), values.get("positions", "relative")
    if details:
        return DETAILS[details[0]] if len(details) == 1 else AS_THERE
    return POSITIONS[positions] if positions != "relative" else ALL_HEADS


def choices(context: ArtifactContext) -> "pandas.DataFrame":
    """Bits per character on validation text for each variant, and the difference from growing windows."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        base = {window_layout(config): config for config in context.plan(scale, experiment=ABLATION.name)}
        grown = context.records_of(base[GROWN])
        chosen = {"windows that grow (Table 4)": base[GROWN], "dilation on two heads (Table 4)": base[TWO_HEADS]} | {
            choice(config): config for config in context.plan(scale, experiment=CHOICES.name)}
        for name, config in chosen.items():
            found = grown if config is base[GROWN] else context.records_of(config)
            rows.append([name, scale, told_mean(found, METRIC), seeds_of(found),
                         "–" if found is grown else compared(found, grown)])
    return pandas.DataFrame(rows, columns=["choice", "scale", "dev", "seeds", "difference"])


register(
    Artifact(id="longformer2020-choices", paper=PAPER, chapter=CHAPTER, experiment=(CHOICES.name, ABLATION.name),
             title="The model of Table 4 with one change at a time: bits per character on the development text",
             look_for="Differences are on development and test text together.", source=ADDED, build=choices))
