"""Images, sound and text as bytes, for training and scoring a Sparse Transformer."""

from typing import NamedTuple

import numpy as np

from repro.errors import ReproError

START = 256  # token before the first byte of an image; in sound and text, a sequence follows the preceding byte instead
RATE = 12_000  # samples a second
QUIET = 20  # mean distance from silence, in codes: piano music is above it in mu-law and below it in linear samples
HELD_OUT = 200  # training images held out for validation, at most; never more than a tenth of them


class Data(NamedTuple):
    """Tokens of each split: for images (images, 1 + bytes), START followed by the bytes; otherwise one stream (N,)."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    vocab_size: int
    fingerprint: str = ""  # of the tokenizer, for text


def read(config) -> Data:
    """The data of a run's corpus. Raises ReproError for a corpus of anything but images, audio or text."""
    from repro.data import corpus

    kind = corpus(config.corpus).content_kind
    if kind == "image":
        return _images(config.corpus, config.side)
    if kind == "audio":
        return Data(*(sound(config.corpus, split) for split in ("train", "validation", "test")), 256)
    if kind == "text":
        return _text(config.corpus)
    raise ReproError(f"corpus {config.corpus} holds {kind}; this model reads images, audio and text.")


def _images(name: str, side: int) -> Data:
    """Images of a corpus; without a validation split, the last training images are used as one."""
    train, test = (np.stack([as_tokens(one, side) for one in _rows(name, split)]) for split in ("train", "test"))
    kept = min(HELD_OUT, len(train) // 10)
    return Data(train[:-kept], train[-kept:], test, START + 1)


def as_tokens(image, side: int) -> np.ndarray:
    """(1 + side * side * 3,) int64: START, then the bytes row by row, pixel by pixel, red, green, blue.

    A larger image is shrunk to the rounded means of square patches. Raises ReproError for an image that is not square
    with three channels, or whose side is not a multiple of `side`.
    """
    height, width, channels = image.pixels.shape
    if height != width or height % side or channels != 3:
        raise ReproError(f"image {image.id} is {height} x {width} x {channels}; it must be square with three "
                         f"channels and a side that is a multiple of {side}. Choose another `side`, or crop it.")
    patch = height // side
    small = image.pixels.reshape(side, patch, side, patch, 3).mean((1, 3), dtype=np.float64)
    return np.concatenate([[START], np.round(small).astype(np.int64).ravel()])


def sound(name: str, split: str) -> np.ndarray:
    """(N,) int64: the codes of all recordings of a split, one after the other.

    Raises ReproError for a split without recordings, for a recording at another rate, and for one of a second or more
    that stays within QUIET codes of silence on average. Such a recording is probably linear: both encodings center on
    128, but mu-law spreads quiet sound over most of its codes. This is a guess, because codes do not say how they are
    encoded: loud linear samples pass, and a recording of silence is refused.
    """
    found = list(_rows(name, split))
    for one in found:
        if one.rate != RATE:
            raise ReproError(f"recording {one.id} of {name} has {one.rate:,} samples a second; this model reads "
                             f"{RATE:,}. Resample it.")
        if len(one.codes) >= RATE and np.abs(one.codes.astype(int) - 128).mean() < QUIET:
            raise ReproError(f"recording {one.id} of {name} keeps within {QUIET} codes of silence on average, like "
                             "music in 8-bit linear samples; this model reads mu-law (mu = 255). Encode it that way.")
    if not found:
        raise ReproError(f"{name} has no recordings in its split {split}; add some, or choose another corpus.")
    return np.concatenate([one.codes for one in found]).astype(np.int64)


def waveform(codes) -> np.ndarray:
    """(n,) float32 in -1 .. 1 of mu-law codes."""
    from repro.data.examples import Audio

    return Audio("drawn", "drawn", codes, RATE).waveform()


def _text(name: str) -> Data:
    from repro.data import tokeniser, tokens

    coder = tokeniser("byte", corpus=name)
    return Data(*(tokens(name, split, coder).ids for split in ("train", "validation", "test")), coder.vocab_size,
                coder.fingerprint)


def _rows(name: str, split: str):
    from repro.data import corpus

    return corpus(name).examples(split)
