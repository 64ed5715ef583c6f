"""The runs of each scale: patterns on images and text (Tables 1 to 3), and lengths of sound (Table 4).

`paper` follows section 7, which does not state the stride for CIFAR-10. We take one row of pixels, 96 bytes, so that a
column of the pattern contains the pixels above, as the paper describes it. `small` keeps the proportions at a size that
one core trains in minutes; there, the images of Table 2 are shrunk to 16 x 16.
"""

SEEDS = 3
PATTERN_SEEDS = 5  # for the patterns on images, whose printed differences are small
IMAGE = {
    "smoke": {"corpus": "synthetic-images", "side": 8, "length": 192, "stride": 24, "summary": 4, "steps": 60,
              "batch_size": 8, "n_layer": 2, "n_embd": 32, "learning_rate": 1e-2, "scored": 20, "held_out": 8,
              "optimizer": "muon", "drawn": 2},
    "small": {"corpus": "cifar10-subset", "side": 16, "length": 768, "stride": 48, "summary": 8, "steps": 500,
              "batch_size": 8, "n_layer": 4, "n_embd": 64, "n_head": 2, "learning_rate": 1e-2, "scored": 400,
              "held_out": 60, "optimizer": "muon", "decayed": "all", "precision": "bf16", "drawn": 6},
    "medium": {"corpus": "cifar10-subset", "side": 32, "length": 3_072, "stride": 96, "summary": 16, "steps": 4_000,
               "batch_size": 16, "n_layer": 16, "n_embd": 256, "n_head": 2, "key_size": 64, "inner": 2,
               "learning_rate": 6e-4, "dropout": 0.1, "precision": "bf16", "recompute": True, "drawn": 8},
    "paper": {"corpus": "cifar10", "side": 32, "length": 3_072, "stride": 96, "summary": 16, "steps": 180_000,
              "batch_size": 32, "n_layer": 128, "n_embd": 256, "n_head": 2, "key_size": 64, "inner": 2,
              "learning_rate": 3.5e-4, "warmup_share": 5_000 / 180_000, "dropout": 0.25, "precision": "fp16",
              "recompute": True, "drawn": 16},
}
LARGE_IMAGES = {  # one strided model of full-size images at `small`
    "corpus": "cifar10-subset", "side": 32, "length": 3_072, "stride": 96, "steps": 1_500, "batch_size": 2, "drawn": 4,
    "scored": 60, "held_out": 20}
TEXT = {
    "smoke": {"corpus": "synthetic-books", "length": 128, "stride": 16, "summary": 4, "steps": 60, "batch_size": 8,
              "n_layer": 2, "n_embd": 32, "learning_rate": 1e-2, "scored": 30, "held_out": 10, "optimizer": "muon",
              "contexts": (64, 96), "drawn": 1},
    # Short sequences first, later one long sequence per step: more steps fit into the time, and near context is learned
    # first.
    "small": {"corpus": "enwik8-prefix", "length": 1_024, "growing": ((64, 0.15), (256, 0.25)), "stride": 32,
              "summary": 8, "steps": 4_000, "batch_size": 1, "n_layer": 2, "n_embd": 128, "n_head": 4,
              "learning_rate": 6e-3, "scored": 120, "held_out": 30, "optimizer": "muon", "precision": "bf16",
              "contexts": (512, 768, 960), "drawn": 1, "decayed": "all"},
    "medium": {"corpus": "enwik8-prefix", "length": 4_096, "stride": 64, "summary": 16, "steps": 3_000,
               "batch_size": 16, "n_layer": 12, "n_embd": 512, "n_head": 8, "learning_rate": 6e-4, "dropout": 0.2,
               "precision": "bf16", "recompute": True, "contexts": (2_048, 3_072, 3_584, 3_968)},
    "paper": {"corpus": "enwik8", "length": 12_288, "stride": 128, "summary": 32, "steps": 18_300, "batch_size": 32,
              "n_layer": 30, "n_embd": 512, "n_head": 8, "learning_rate": 3.5e-4, "warmup_share": 5_000 / 18_300,
              "dropout": 0.4, "precision": "fp16", "recompute": True,
              "contexts": (6_144, 9_216, 10_752, 11_904, 12_096, 12_160)},
}
IMAGE_EMBEDDINGS = {"embeddings": ("data",)}
TEXT_EMBEDDINGS = {"embeddings": ("attention",)}
PATTERNS = ("dense", "fixed", "strided")
WINDOW = "window"  # our row: only the last `stride` positions; the gain of dense attention over it is the assay
UNSHOWN = {"drawn": 0, "contexts": ()}  # for rows that show no samples and no other contexts

SOUND = {
    "smoke": {"corpus": "synthetic-sound", "pattern": "strided", "steps": 40, "n_head": 2, "learning_rate": 1e-2,
              "optimizer": "muon", "held_out": 4, "drawn": 1},
    "small": {"corpus": "piano-bach", "pattern": "strided", "steps": 600, "n_head": 2, "learning_rate": 6e-3,
              "decay": "linear", "optimizer": "muon", "decayed": "all", "precision": "bf16", "drawn": 1},
    "medium": {"corpus": "piano-bach", "pattern": "strided", "steps": 2_000, "n_head": 4, "learning_rate": 6e-4,
               "precision": "bf16", "recompute": True, "drawn": 1},
    "paper": {"corpus": "piano-bach", "pattern": "strided", "steps": 100_000, "n_head": 16, "learning_rate": 3.5e-4,
              "warmup_share": 0.05, "precision": "fp16", "recompute": True, "drawn": 1},
}
# Rows of Table 4, the shortest first: each has sequences four times as long as the row before, and a model that takes
# about the same memory. Without recomputation, the numbers stored for a sequence are proportional to length x layers x
# width; width and layers shrink to keep that product. With recomputation, the work inside one layer counts too; records
# store the memory of each row. At `small` all rows take the same number of steps, so the longest sequences train on the
# most sound and do not lose for lack of it. There, sequences grow by powers of 4: 30% of the steps have 64 samples, 20%
# have 256, 30% are longer stages, and 20% have the full length.
LENGTHS = {
    "smoke": ({"length": 256, "stride": 16, "n_embd": 48, "n_layer": 4, "batch_size": 4, "scored": 12},
              {"length": 1_024, "stride": 32, "n_embd": 24, "n_layer": 2, "batch_size": 1, "scored": 3}),
    "small": ({"length": 4_096, "stride": 64, "n_embd": 128, "n_layer": 4, "batch_size": 1, "scored": 96,
               "held_out": 32},
              {"length": 16_384, "stride": 128, "n_embd": 64, "n_layer": 2, "batch_size": 1, "scored": 24,
               "held_out": 8},
              {"length": 65_536, "stride": 256, "n_embd": 16, "n_layer": 2, "batch_size": 1, "scored": 6, "held_out": 2,
               "clip_length": 16_384}),
    "medium": ({"length": 16_384, "stride": 128, "n_embd": 512, "n_layer": 16, "batch_size": 4},
               {"length": 65_536, "stride": 256, "n_embd": 256, "n_layer": 8, "batch_size": 1},
               {"length": 262_144, "stride": 512, "n_embd": 128, "n_layer": 4, "batch_size": 1,
                "clip_length": 60_000}),
    "paper": ({"length": 65_536, "stride": 256, "n_embd": 512, "n_layer": 48, "batch_size": 8},
              {"length": 262_144, "stride": 512, "n_embd": 256, "n_layer": 32, "batch_size": 8},
              {"length": 1_048_576, "stride": 1_024, "n_embd": 128, "n_layer": 16, "batch_size": 8, "n_head": 8,
               "clip_length": 262_144}),
}


def density_grid(scale: str) -> list[dict]:
    """Table 2 on images and text, with the window as baseline; then images with the other ways to share heads and
    without embeddings; at `small` also one model of full-size images."""
    image, text = IMAGE[scale] | IMAGE_EMBEDDINGS, TEXT[scale] | TEXT_EMBEDDINGS
    rows = [values | (UNSHOWN if pattern != shown else {}) | {"pattern": pattern}
            for values, shown in ((image, "strided"), (text, "fixed")) for pattern in (*PATTERNS, WINDOW)]
    strided = image | UNSHOWN | {"pattern": "strided"}
    rows += [strided | {"integration": way} for way in ("interleaved", "multi-head")]
    rows.append(strided | {"embeddings": ()})
    return rows + [image | LARGE_IMAGES | {"pattern": "strided"}] * (scale == "small")


def sound_grid(scale: str) -> list[dict]:
    """Table 4; then the smallest model on the shortest sequences, which shows the cost of size alone."""
    rows = LENGTHS[scale]
    if scale == "small":
        rows = [row | {"growing": grown(row["length"])} for row in rows]
    return [*rows, rows[0] | {"drawn": 0} | {key: rows[-1][key] for key in ("n_embd", "n_layer")}]


def grown(length: int) -> tuple[tuple[int, float], ...]:
    """The stages before the full length of a row of Table 4 at `small`: (samples, share of the steps)."""
    longer = [4**k for k in range(5, 10) if 4**k < length]
    return (64, 0.3), (256, 0.2), *((n, round(0.3 / len(longer), 3)) for n in longer)


def is_image(config) -> bool:
    """Whether a run is on images; takes its config, or the dict that a record stores."""
    return kind_of(config) == "image"


def is_sound(config) -> bool:
    """Whether a run is on sound."""
    return kind_of(config) == "audio"


def is_plain(config) -> bool:
    """Whether a run is a row of Table 2: merged heads, with position embeddings, images of the table's side."""
    values = config if isinstance(config, dict) else config.model_dump(mode="json")
    side = IMAGE[values["scale"]]["side"]
    return values["integration"] == "merged" and bool(values["embeddings"]) and (
        not is_image(config) or values["side"] == side)


def is_as_large_as_fits(config) -> bool:
    """Whether a run is a row of Table 4, and not the control: the smallest model on the shortest sequences."""
    values = config if isinstance(config, dict) else config.model_dump(mode="json")
    rows = LENGTHS[values["scale"]]
    return values["length"] > rows[0]["length"] or values["n_embd"] > rows[-1]["n_embd"]


def kind_of(config) -> str:
    """The kind of data of a run: "image", "text" or "audio"."""
    from repro.data import corpus

    return corpus(config["corpus"] if isinstance(config, dict) else config.corpus).content_kind
