"""Generated pictures and sound, and the attention of a trained model."""

import base64
import io
import wave
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.papers.sparse2019.data import RATE, waveform
from repro.papers.sparse2019.density import unpacked
from repro.papers.sparse2019.settings import is_image
from repro.papers.sparse2019.tasks import AUDIO, CHAPTER, DENSITY, PAPER
from repro.study import ADDED, Artifact, register
from repro.study.artifacts import NOT_RUN

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


@dataclass(frozen=True)
class Clip:
    """Sound that plays in a page: `wave` (samples,) float in -1 .. 1, and `words` that describe it."""

    wave: "np.ndarray"
    words: str

    def wav(self) -> bytes:
        """The sound as a 16-bit WAV file at full volume."""
        import numpy as np

        buffer = io.BytesIO()
        loudest = max(float(np.abs(self.wave).max(initial=0)), 1e-6)
        with wave.open(buffer, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes((self.wave / loudest * 32_000).astype("<i2").tobytes())
        return buffer.getvalue()

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        source = base64.b64encode(self.wav()).decode()
        player = f'<audio controls preload="none" src="data:audio/wav;base64,{source}"></audio>' if len(
            self.wave) else ""
        return {"text/html": f"<figure>{player}<figcaption>{self.words}</figcaption></figure>",
                "text/plain": self.words}


def _notes(config, results=None) -> dict:
    """The samples of the first seed of a run; {} if it was not run."""
    from repro.study.store import Store

    found = Store.for_scale(config.scale, results).seeds(config)
    return found[0].notes.get("drawn", {}) if found else {}


def drawn_sound(scale: str = "smoke") -> list[Clip]:
    """A clip for each length of Table 4, including the given beginning; for a missing run, the clip is empty."""
    import numpy as np

    found = []
    for config in (one for one in AUDIO.plan(scale) if one.drawn):
        notes = _notes(config)
        codes = unpacked(notes["clip"][0]) if notes else np.zeros(0, np.uint8)
        words = (f"{len(codes) / RATE:.2f} s; the first {len(unpacked(notes['given'][0])) / RATE:.2f} s are real"
                 if notes else NOT_RUN)
        found.append(Clip(waveform(codes) if notes else np.zeros(0), f"trained on {config.length:,} samples: {words}"))
    return found


def text_notes(scale: str, pattern: str = "fixed") -> tuple:
    """The run of a text model, and the samples of its first seed."""
    config, = (one for one in DENSITY.plan(scale) if not is_image(one) and one.pattern == pattern)
    return config, _notes(config)


def drawn_text(scale: str = "smoke", pattern: str = "fixed") -> str:
    """The continuation of the test text that a text model wrote; or "not run".

    Decoding the ids needs the training text. Without it, the words come from the package's excerpts; if these do not
    have them, a line says what is missing.
    """
    from repro.data import corpus, tokeniser
    from repro.data.excerpts import digest, excerpt

    config, notes = text_notes(scale, pattern)
    if not notes:
        return NOT_RUN
    if not corpus(config.corpus).available():
        return excerpt(digest(notes["clip"][0])) or (
            f"run, but decoding needs {config.corpus}, which is not here. Get it: repro data fetch {config.corpus}")
    coder = tokeniser("byte", corpus=config.corpus)
    given, whole = (unpacked(notes[name][0]) for name in ("given", "clip"))
    return coder.decode(whole[len(given):]).encode("utf-8", "replace").decode()


def drawn_images(context):
    """The figure: drawn images, completed halves and the originals, for every strided model of images."""
    from repro.plotting import draw_images

    rows = {}
    for config in context.plan(pattern="strided"):
        if not is_image(config) or not config.drawn:
            continue
        record = next(iter(context.records_of(config)), None)
        drawn = record.notes["drawn"] if record else {}
        for name, key in (("drawn", "samples"), ("lower half completed", "completions"), ("original", "originals")):
            rows[f"{config.side} x {config.side}, {name}"] = [unpacked(one).reshape(config.shape)
                                                              for one in drawn.get(key, [])]
    return draw_images(rows)


def spectrograms(context):
    """The figure: the clips of every model of Table 4."""
    from repro.plotting import draw_spectrograms

    found = {}
    for config in (one for one in context.plan() if one.drawn):
        for record in context.records_of(config)[:1]:
            found[f"{config.length:,} samples"] = waveform(unpacked(record.notes["drawn"]["clip"][0]))
    return draw_spectrograms(found, RATE)


def learned_attention(model, ids: "Tensor") -> "list[Tensor]":
    """For each layer of a `SparseTransformer`, the attention weights (H, N, N) of its heads, averaged over the rows of
    ids (B, N)."""
    import torch

    found, x = [], model.embedded(ids)
    with torch.no_grad():
        for layer in model.layers:
            part, heads = layer.attention, len(layer.attention.patterns)
            query, key, _ = (one.unflatten(-1, (heads, -1)).transpose(1, 2)
                             for one in part.project(part.norm(x)).split(part.sizes, -1))
            mask = torch.stack([pattern.mask(ids.shape[1]) for pattern in part.patterns])
            scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
            found.append(scores.softmax(-1).nan_to_num().mean(0))
            x = layer(x, "dense", False)
    return found


def heard(patterns, n: int) -> "list[Tensor]":
    """(n, n) bool after each layer: whether position i (row) has received information from position j (column).

    patterns: for each layer, from the bottom, one pattern per head.
    """
    import torch

    found, reached = [], torch.eye(n, dtype=torch.bool)
    for layer in patterns:
        mask = torch.stack([pattern.mask(n) for pattern in layer]).any(0)
        reached = reached | (mask.float() @ reached.float() > 0)
        found.append(reached)
    return found


register(
    Artifact(id="sparse2019-samples", paper=PAPER, chapter=CHAPTER, experiment=DENSITY.name, kind="figure",
             source=f"{ADDED}, after Figure 5", title="Images from scratch, and completed from their upper half",
             build=drawn_images,
             look_for="Look for shapes that continue across the middle of a completed image. A lower half that repeats "
                      "the top of a generated image shows that the model ignores the upper half it was given."),
    Artifact(id="sparse2019-spectrograms", paper=PAPER, chapter=CHAPTER, experiment=AUDIO.name, kind="figure",
             source=f"{ADDED}, after section 7.4", title="Spectrograms of generated sound", build=spectrograms,
             look_for="Held notes are horizontal lines. If they stop where the given beginning ends, the model has not "
                      "learned to hold a note."))

