"""Tables 1 to 4 with the paper's rows next to ours."""

import itertools
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from repro.markup import signed
from repro.papers.sparse2019.settings import (
    IMAGE,
    LENGTHS,
    PATTERNS,
    WINDOW,
    is_as_large_as_fits,
    is_image,
    is_plain,
    kind_of,
)
from repro.study.artifacts import NOT_RUN, ArtifactContext
from repro.study.published import printed_rows, published
from repro.study.record import Record

if TYPE_CHECKING:
    import pandas

BITS = "test_bits_per_byte"
PRINTED = {"dense": "Dense attention", "fixed": "Sparse Transformer (fixed)",
           "strided": "Sparse Transformer (strided)"}
PATTERN_NAMES = {WINDOW: "local window only"}
WORTH = "difference from local window (shared seeds)"
DIFFERENCE = "difference from merged (shared seeds)"
TIME, PAIRS = "time per iteration, as printed", "pairs per byte, all layers and heads"
WHOLE = {"CIFAR-10": "CIFAR-10, complete", "Enwik8": "enwik8, complete"}
# Our rows below the paper's: the kind of data and the pattern.
OURS = {"CIFAR-10": ("image", "strided"), "Enwik8": ("text", "fixed"),
        "Classical music, 5 s at 12 kHz": ("audio", "strided")}
NO_NETWORK = {"image": "linear prediction from nearby pixels (no network)",
           "text": "xz primed with the training text (no network)",
           "audio": "linear prediction from earlier samples (no network)"}


def density(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 1: the models that the paper compares; below each data set our model, and the cost without a network."""
    rows = []
    for name, group in published("sparse2019_table1_density_modelling").groupby("dataset", sort=False):
        rows += [{"data": WHOLE.get(name, name), "model": row["model"], "source": "the paper",
                  "parameters": f"{row['parameters_millions']} M" if row["parameters_millions"] else "–",
                  "bits per byte": row["bits_per_byte"], "bytes trained on": "–", "bytes scored": "–", "seeds": "–"}
                 for row in group.to_dict("records")]
        for config in every_plan(context):
            if in_table_1(config, *OURS.get(name, ("none", ""))):
                found, network = context.records_of(config), is_network(config)
                model = f"Sparse Transformer ({config.pattern})" if network else NO_NETWORK[kind_of(config)]
                rows.append({"data": data_read(config), "source": f"this study, {config.scale}", "model": model,
                             "parameters": weights(found) if network else "–", "bits per byte": mean(found, BITS),
                             "bytes trained on": f"{config.training_bytes:,}" if network else "whole split",
                             "bytes scored": scored(config),
                             "seeds": (len(found) if network else "–") if found else NOT_RUN})
    return bits_in_front(rows)


def bits_in_front(rows: list[dict]) -> "pandas.DataFrame":
    """A table with bits per byte moved directly after the names of its rows."""
    import pandas

    frame = pandas.DataFrame(rows)
    frame.insert(2, "bits per byte", frame.pop("bits per byte"))
    return frame


def every_plan(context: ArtifactContext) -> Iterator:
    """The planned runs of all shown scales, the largest scale first."""
    return (config for scale in reversed(context.scales) for config in context.plan(scale))


def is_network(config) -> bool:
    """Whether a run trains a model; otherwise it is a baseline without one."""
    return "pattern" in type(config).model_fields


def in_table_1(config, kind: str, pattern: str) -> bool:
    """Whether a run belongs in Table 1: this kind of data, with the paper's full model or without a network."""
    if kind_of(config) != kind or not is_network(config):
        return kind_of(config) == kind
    shortest = kind != "audio" or config.length == LENGTHS[config.scale][0]["length"] and is_as_large_as_fits(config)
    return config.pattern == pattern and config.integration == "merged" and bool(config.embeddings) and shortest


def patterns(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 2: the paper's bits and time for each data set and pattern, with our bits and forward FLOPs per byte.

    We add the local window and the baselines without a network. Bits are means over all seeds of a row. WORTH compares
    a row with the window at the seeds that both have, as the claims' assay does; if the numbers of seeds differ, it is
    not the difference of the two means.
    """
    printed = {(row["dataset"], row["model"]): row for row in printed_rows("sparse2019_table2_patterns")}
    rows = []
    for name, image in (("Enwik8", False), ("CIFAR-10", True)):
        for pattern in (*PATTERNS, WINDOW):
            if pattern in PRINTED:
                row = printed[name, PRINTED[pattern]]
                rows.append({"data": f"{WHOLE[name]}, {int(row['context_length_bytes']):,} bytes", "pattern": pattern,
                             "source": "the paper", "bits per byte": row["bits_per_byte"], WORTH: "–",
                             TIME: row["time_per_iteration_as_printed"], "FLOPs per byte": "–", PAIRS: "–"})
            for scale in reversed(context.scales):
                rows += [_row_of_patterns(context, config, window) for config, window in (
                    itertools.product(*(_planned(context, scale, image, one) for one in (pattern, WINDOW))))]
        for config in every_plan(context):
            if not is_network(config) and kind_of(config) == OURS[name][0] and (
                    not image or config.side == IMAGE[config.scale]["side"]):
                rows.append({"data": data_read(config), "pattern": NO_NETWORK[kind_of(config)],
                             "source": f"this study, {config.scale}",
                             "bits per byte": mean(context.records_of(config), BITS), WORTH: "–", TIME: "–",
                             "FLOPs per byte": "–", PAIRS: "–"})
    return bits_in_front(rows)


def _planned(context: ArtifactContext, scale: str, image: bool, pattern: str) -> list:
    """The run of Table 2 on images or text with a pattern, as a list; empty if none is planned."""
    return [config for config in context.plan(scale, pattern=pattern) if is_image(config) is image and is_plain(config)]


def _row_of_patterns(context: ArtifactContext, config, window) -> dict:
    """One of our rows in Table 2."""
    found = context.records_of(config)
    return {"data": data_read(config), "pattern": PATTERN_NAMES.get(config.pattern, config.pattern),
            "source": f"this study, {config.scale}", "bits per byte": mean(found, BITS),
            WORTH: difference(found, context.records_of(window)) if config != window else "–", TIME: "–",
            "FLOPs per byte": mean(found, "flops_per_byte", 1e-6, ".2f", " M"),
            PAIRS: mean(found, "pairs_per_byte", 1, ",.0f")}


def contexts(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 3: bits per byte for each minimum context; the same weights in all rows of a scale."""
    import pandas

    rows = [{"minimum context": f"{int(row['minimum_context_length_tokens']):,}", "sequence length": "12,288",
             "source": "the paper", "bits per byte": row["enwik8_bits_per_byte"]}
            for row in printed_rows("sparse2019_table3_context_length")]
    for scale in reversed(context.scales):
        for config in context.plan(scale, pattern="fixed"):
            if is_image(config):
                continue
            found = context.records_of(config)
            rows += [{"minimum context": f"{least:,}", "sequence length": f"{config.length:,}",
                      "source": f"this study, {scale}, {config.corpus}",
                      "bits per byte": mean(found, f"test_bits_at_{least}" if least else BITS, style=".4f")}
                     for least in (0, *config.contexts)]
    return pandas.DataFrame(rows)


def audio(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 4: longer sound with smaller models, then our control, the smallest model on the shortest sequences."""
    import pandas

    rows = [{"sequence length": f"{int(row['sequence_length']):,}", "source": "the paper",
             "parameters": f"{row['parameters_millions']} M", "memory": "one 16 GB GPU",
             "bits per byte": row["bits_per_byte"]} for row in printed_rows("sparse2019_table4_audio")]
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            found = context.records_of(config)
            kind = "" if is_as_large_as_fits(config) else ", control: smallest model, shortest sequences"
            rows.append({"sequence length": f"{config.length:,}",
                         "source": f"this study, {scale}, {config.corpus}{kind}",
                         "parameters": weights(found), "bits per byte": mean(found, BITS),
                         "memory": mean(found, "memory_per_sequence", 2**-20, ",.0f", " MiB")})
    return pandas.DataFrame(rows)


def variants(context: ArtifactContext) -> "pandas.DataFrame":
    """Bits per byte of images for each way in which heads share a pattern, and without position embeddings."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        plain = next(config for config in context.plan(scale, pattern="strided")
                     if is_image(config) and is_plain(config))
        base = context.records_of(plain)
        for config in context.plan(scale, pattern="strided", side=plain.side):
            if is_image(config):
                found = context.records_of(config)
                rows.append({"scale": scale, "images": data_read(config), "heads": config.integration,
                             "embeddings": ", ".join(config.embeddings) or "none", "bits per byte": mean(found, BITS),
                             DIFFERENCE: difference(found, base) if config != plain else "–"})
    return pandas.DataFrame(rows)


def difference(found: Sequence[Record], base: Sequence[Record]) -> str:
    """Mean difference in bits per byte, over the seeds that both have."""
    known = {record.seed: record.metrics[BITS] for record in base}
    values = [record.metrics[BITS] - known[record.seed] for record in found if record.seed in known]
    return signed(fmean(values), ".3f") if values else NOT_RUN


def data_read(config) -> str:
    """The data of a run: "cifar10-subset (subset), 16 x 16 x 3"."""
    from repro.data import corpus

    part = ("generated" if corpus(config.corpus).generator else "subset" if corpus(config.corpus).part_of
            else "complete")
    size = f"{config.side} x {config.side} x 3" if is_image(config) else (
        f"{config.length:,} bytes" if is_network(config) else "one stream")
    return f"{config.corpus} ({part}), {size}"


def scored(config) -> str:
    """How many bytes of the test split are scored."""
    if config.scored is None:
        return "all"
    if is_network(config):
        return f"{config.scored * config.length:,}"
    return f"{config.scored * (3 * config.side**2 if kind_of(config) == 'image' else 1):,}"


def weights(found: Sequence[Record]) -> str:
    """Millions of weights."""
    return mean(found, "parameters", 1e-6, ".3g", " M")


def mean(found: Sequence[Record], metric: str, times: float = 1, style: str = ".3f", unit: str = "") -> str:
    """The mean over seeds, with the standard deviation if several seeds differ."""
    values = [times * record.metrics[metric] for record in found]
    if not values:
        return NOT_RUN
    spread = f" ± {stdev(values):{style}}" if len(values) > 1 and stdev(values) > 1e-9 * abs(fmean(values)) else ""
    return f"{fmean(values):{style}}{spread}{unit}"
