"""Sound of sustained notes: each note repeats a waveform, with a little noise, in 8-bit mu-law.

A clip is a sequence of notes. A note is a sum of three harmonics, so that a sample is like the sample one period
earlier. With probability `noise`, a code is then moved by one, up or down, which nothing can predict.
"""

import hashlib
import math
import random
from dataclasses import dataclass
from math import log2

import numpy as np

from repro.data.examples import Audio
from repro.errors import ReproError

VERSION = 1  # raise it when the clips of a given seed change
RATE = 12_000  # samples a second


@dataclass(frozen=True)
class SyntheticSound:
    """The process that writes the clips; each is a function of these numbers, its split and its index.

    notes: notes in a clip. length: samples of a note. periods: the shortest and the longest waveform, in samples; 24 to
    60 are 500 to 200 Hz. noise: probability that a code is moved. Raises ReproError for numbers out of range.
    """

    notes: int = 8
    length: int = 1_500
    periods: tuple[int, int] = (24, 60)
    noise: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.periods[0] <= self.periods[1] <= self.length:
            raise ReproError(f"periods={self.periods} of synthetic sound: allowed are two rising numbers from 2 to the "
                             f"length of a note ({self.length}).")
        for name, (low, high) in {"notes": (1, 10_000), "noise": (0, 1)}.items():
            if not low <= getattr(self, name) <= high:
                raise ReproError(f"{name}={getattr(self, name)} of synthetic sound: allowed are {low} to {high}.")

    def example(self, split: str, index: int) -> Audio:
        """Clip `index` of `split`."""
        draw = random.Random(f"sound {VERSION}/{self.seed}/{split}/{index}")
        low, high = self.periods
        codes: list[int] = []
        for _ in range(self.notes):
            period = low + int(draw.random() * (high - low + 1))
            shares = [draw.random() / (k + 1) for k in range(3)]
            wave = [sum(share * math.sin(2 * math.pi * (k + 1) * t / period) for k, share in enumerate(shares))
                    / sum(shares) / 3 for t in range(period)]
            for t in range(self.length):
                moved = (1 if draw.random() < 0.5 else -1) if draw.random() < self.noise else 0
                codes.append(min(255, max(0, _mulaw(wave[t % period]) + moved)))
        return Audio(f"{split}-{index}", f"notes {index}", np.array(codes, np.uint8), RATE)

    def best_bits(self) -> float:
        """The fewest bits per sample, on average, that a model can need if it knows the note: the entropy of the
        noise."""
        chances = (1 - self.noise, self.noise / 2, self.noise / 2)
        return -sum(p * log2(p) for p in chances if p > 0)

    def lexicon(self) -> list[str]:
        """No words."""
        return []

    def fingerprint(self) -> str:
        """sha256 (hex) that changes with any parameter and with how clips are written."""
        identity = f"{self} {VERSION} {RATE} {self.example('train', 0).codes.tobytes().hex()}"
        return hashlib.sha256(identity.encode()).hexdigest()


def _mulaw(x: float) -> int:
    """The code (mu = 255) of a sample in -1 .. 1."""
    return round((math.copysign(math.log1p(255 * abs(x)) / math.log(256), x) + 1) * 255 / 2)


SOUND = SyntheticSound()  # the corpus `synthetic-sound`
SIZES = {"train": 8, "validation": 1, "test": 1}
