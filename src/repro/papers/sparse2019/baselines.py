"""Baselines without a network for Table 1: linear prediction, or a compressor. Not in the paper.

A loss in bits means little without a baseline. For images and sound, we predict each byte as a weighted sum of earlier
bytes nearby, with the weights that fit the training data best, and code the residual by how often it occurred there.
For text we use `xz`, which compresses the test text after the whole training text. The baselines are scored on the same
bytes as the models, except for the first 32 of sound. Unlike a model, they never lose the context before a byte.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import Field

from repro.papers.sparse2019.data import read, waveform
from repro.papers.sparse2019.settings import IMAGE, LARGE_IMAGES, LENGTHS, SOUND, TEXT
from repro.study import Estimate, Experiment, Outcome, RunConfig

NEAR = (0, -1), (-1, 0), (-1, -1), (-1, 1), (0, -2), (-2, 0)  # offsets (row, column) of predictors
ORDER = 32  # earlier samples that predict a sample of sound
CLASSES = 16  # classes of pixels, by how much their surroundings vary
SMOOTHING = 0.05  # initial count of every value
MID = 128  # the value of bytes outside the image


class Config(RunConfig):
    """A corpus, and the part of its test split that is scored."""

    side: int = Field(8, ge=1)  # pixels of an image's side, after shrinking; for images
    scored: int | None = Field(None, ge=1)  # images, or bytes of text and sound; None: all


def execute(config, context) -> Outcome:
    from repro.data import corpus

    kind, data = corpus(config.corpus).content_kind, read(config)
    test = data.test[:config.scored]
    bits = (_images(data.train, test, config.side) if kind == "image" else
            _sound(data.train, test) if kind == "audio" else _text(data.train, test))
    return Outcome({"test_bits_per_byte": bits}, {"test_bits_per_byte": "bits per byte"}, f"{kind} without a network")


def fitted(x, y):
    """(features,) float64: the least-squares weights from x (n, features) to y (n,)."""
    n = max(1, len(x) // 100_000)  # parts, to limit how much is copied at a time
    products, sums = 0, 0
    for one, other in zip(np.array_split(x, n), np.array_split(y, n), strict=True):
        one = one.astype(float)
        products, sums = products + one.T @ one, sums + one.T @ other
    return np.linalg.lstsq(products, sums, rcond=None)[0]


def coded(kinds, values, test_kinds, test_values, n: int) -> float:
    """Mean bits of the test values, each 0 to n - 1, if coded by their frequency in training among values of the same
    kind."""
    counts = np.full((int(max(kinds.max(), test_kinds.max())) + 1, n), SMOOTHING)
    np.add.at(counts, (kinds, values), 1)
    return float(-np.log2(counts / counts.sum(1, keepdims=True))[test_kinds, test_values].mean())


def _images(train, test, side: int) -> float:
    """Each channel by itself, predicted from nearby pixels and from the earlier channels of its pixel."""
    total = 0.0
    for channel in range(3):
        (x, y), (given, wanted) = (_near(rows[:, 1:].reshape(-1, side, side, 3), channel) for rows in (train, test))
        weights = fitted(x, y)
        steps = np.quantile(_roughness(x, channel), np.linspace(0, 1, CLASSES + 1)[1:-1])
        kinds, left = zip(*((np.digitize(_roughness(a, channel), steps), _whole(b - a @ weights))
                            for a, b in ((x, y), (given, wanted))), strict=True)
        total += coded(kinds[0], left[0], kinds[1], left[1], 1024)
    return total / 3


def _near(images, channel: int):
    """(pixels, features) and (pixels,): the predictors of one channel of every pixel, and the values to predict."""
    side = images.shape[1]
    wide = np.pad(images.astype(np.float32), ((0, 0), (2, 0), (2, 2), (0, 0)), constant_values=MID)
    parts = [wide[:, 2 + row:2 + row + side, 2 + column:2 + column + side] for row, column in NEAR]
    features = np.concatenate([*parts, images[..., :channel],
                               np.ones_like(images[..., :1])], -1, dtype=np.float32)
    return features.reshape(-1, features.shape[-1]), images[..., channel].reshape(-1).astype(np.float32)


def _roughness(features, channel: int):
    """How much the pixels to the left and above differ from the pixel diagonally between them."""
    left, above, corner = (features[:, 3 * place + channel] for place in range(3))
    return np.abs(left - corner) + np.abs(above - corner)


def _whole(left):
    """The residual, rounded and shifted to 0 to 1,023."""
    return np.clip(np.round(left) + 512, 0, 1023).astype(int)


def _sound(train, test) -> float:
    """Each sample is predicted from ORDER earlier ones; its mu-law code is then coded given the prediction's code."""
    wave = waveform(np.arange(256, dtype=np.uint8))
    middles = (wave[1:] + wave[:-1]) / 2
    windows = sliding_window_view(wave[train], ORDER + 1)
    weights = fitted(windows[:, :-1], windows[:, -1])
    kinds = [np.searchsorted(middles, np.correlate(wave[codes[:-1]], weights)) for codes in (train, test)]
    return coded(kinds[0], train[ORDER:], kinds[1], test[ORDER:], 256)


def _text(train, test) -> float:
    """Growth of the compressed training text when the test text is appended, in bits per byte of the test text."""
    import lzma

    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": max(4096, len(train) + len(test))}]  # looks back to the start

    def packed(ids) -> int:
        return len(lzma.compress(np.asarray(ids, np.uint8).tobytes(), filters=filters))

    return 8 * (packed(np.concatenate([train, test])) - packed(train)) / len(test)


def grid(scale: str) -> list[dict]:
    """Images as in Table 2, full-size images if a model reads them, text, and sound."""
    images = [IMAGE[scale]] + [IMAGE[scale] | LARGE_IMAGES] * (scale == "small")
    streams = TEXT[scale], SOUND[scale] | LENGTHS[scale][0]
    return [*({"corpus": one["corpus"], "side": one["side"], "scored": one.get("scored")} for one in images),
            *({"corpus": one["corpus"], "scored": one["scored"] * one["length"] if "scored" in one else None}
              for one in streams)]


READ = {"smoke": 1e6, "small": 25e6, "medium": 25e6, "paper": 2e8}  # bytes of training data, about


def estimate(config) -> Estimate:
    n = READ[config.scale]
    return Estimate(0, 0, 4 * ORDER**2 * n, int(2**29 + 100 * n), 10 + 2e-6 * n)


EXPERIMENT = Experiment(
    name="sparse-baselines", paper="sparse2019", summary="Images, text and sound without a network, in bits per byte.",
    config=Config, scales={scale: {"corpus": values["corpus"]} for scale, values in IMAGE.items()}, grid=grid,
    execute=execute, estimate=estimate)
