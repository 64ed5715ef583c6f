"""Small images whose rows repeat, and whose best possible code length is known.

Each pixel has one of a few colors, which its first byte determines. The pixels of the first `period` rows (one or two)
are drawn evenly. Every later row repeats the row `period` rows above it, except that each pixel is drawn again with
probability `noise`. So only the pixel `period` rows above helps to predict a pixel. In the sequence of bytes it is one
or two rows back, where a column of strided attention sees it.
"""

import hashlib
import random
from dataclasses import dataclass
from functools import cached_property
from math import log2

import numpy as np

from repro.data.examples import Image
from repro.errors import check_ranges

VERSION = 1  # raise it when the images of a given seed change
LABELS = ("every row repeats", "every second row repeats")


@dataclass(frozen=True)
class SyntheticImages:
    """The process that draws the images; each is a function of these numbers, its split and its index.

    side: pixels of a side. colours: number of colors that a pixel can have. noise: probability that a pixel of a
    repeated row is drawn again. Raises ReproError for numbers out of range.
    """

    side: int = 8
    colours: int = 8
    noise: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        limits = {"side": (3, 256), "colours": (2, 128), "noise": (0, 1)}
        check_ranges(self, limits, "synthetic images")

    def example(self, split: str, index: int) -> Image:
        """Image `index` of `split`; its label is its period minus 1."""
        draw = random.Random(f"images {VERSION}/{self.seed}/{split}/{index}")
        period = 1 + int(draw.random() * 2)
        rows: list[list[int]] = []
        for row in range(self.side):
            above = rows[row - period] if row >= period else None
            rows.append([above[k] if above and draw.random() >= self.noise else int(draw.random() * self.colours)
                         for k in range(self.side)])
        return Image(f"{split}-{index}", self._palette[np.array(rows)], period - 1)

    def best_bits(self) -> float:
        """The fewest bits per byte, on average, that a model can need if it knows the period from the start.

        A pixel of the first `period` rows takes log2(`colours`) bits. A later pixel takes the entropy of its color:
        probably the color above, or any other. The bits of a pixel are spread over its three bytes.
        """
        same = 1 - self.noise + self.noise / self.colours
        other = self.noise / self.colours
        again = -sum(times * p * log2(p) for times, p in ((1, same), (self.colours - 1, other)) if p > 0)
        pixel = sum((period * log2(self.colours) + (self.side - period) * again) / self.side for period in (1, 2)) / 2
        return pixel / 3

    def lexicon(self) -> list[str]:
        """No words."""
        return []

    def fingerprint(self) -> str:
        """sha256 (hex) that changes with any parameter and with how images are drawn."""
        identity = f"{self} {VERSION} {self.example('train', 0).pixels.tobytes().hex()}"
        return hashlib.sha256(identity.encode()).hexdigest()

    @cached_property
    def _palette(self) -> np.ndarray:
        """(colours, 3): the first bytes rise evenly, the others are drawn once."""
        draw = random.Random(f"palette {VERSION}/{self.seed}")
        return np.array([[round(255 * k / (self.colours - 1)), int(draw.random() * 256), int(draw.random() * 256)]
                         for k in range(self.colours)], np.uint8)


IMAGES = SyntheticImages()  # the corpus `synthetic-images`
SIZES = {"train": 1_000, "test": 60}
