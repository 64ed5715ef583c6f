"""Checks of token ids, lengths and batches where they enter a model, and temporary evaluation mode.

Checks of shapes and types cost nothing. Values are checked on a CPU, and on a GPU only without gradients, so that a
training step never waits for its GPU here. Values are not checked in compiled code, in `torch.vmap`, on the meta device
or while a CUDA graph is captured.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from repro.errors import ReproError

WHOLE = (torch.int64, torch.int32)


def embedded(embed: nn.Embedding, ids: Tensor, longest: int | None = None, name: str = "ids") -> Tensor:
    """The embeddings (B, N, width) of token ids (B, N). longest: the most tokens that a text may have.

    Raises ReproError for ids that `check_ids` refuses.

    >>> embedded(nn.Embedding(9, 4), torch.tensor([3, 1]))
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: ids are torch.int64 of shape (2,); give int64 numbers of shape (B, N), a text as ids[None].
    """
    on_cpu = isinstance(ids, Tensor) and ids.device.type == "cpu"
    check_ids(ids, None if on_cpu else embed.num_embeddings, longest, name)
    if torch.compiler.is_compiling():
        return embed(ids)
    if not embed.weight.is_meta and ids.device != embed.weight.device:  # on meta: offloaded until the call
        raise ReproError(f"{name} are on {ids.device} and the model on {embed.weight.device}; move one of them.")
    try:
        return embed(ids)  # on a CPU the embedding checks the values itself
    except IndexError:
        if not looked_at(ids):
            raise
        raise _unknown(ids, embed.num_embeddings, name) from None


def tied_output(x: Tensor, embed: nn.Embedding, bias: Tensor | None = None) -> Tensor:
    """Logits (..., ids) of x (..., width) from the weights of the embedding.

    Raises ReproError if these are offloaded: only a call of the embedding itself would load them.
    """
    if embed.weight.is_meta and not x.is_meta:
        raise ReproError("the output layer shares the weights of the embedding, which are offloaded (on meta); "
                         "keep the embedding of this model on its device.")
    return nn.functional.linear(x, embed.weight, bias)


def check_ids(ids: Tensor, vocab_size: int | None = None, longest: int | None = None, name: str = "ids",
              least: int = 1) -> None:
    """Raise ReproError unless these are int64 or int32 numbers (B, N) of at least one text, with `least` to `longest`
    tokens, and from 0 to below `vocab_size`. None: no limit."""
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.dtype not in WHOLE:
        raise ReproError(f"{name} are {what(ids)}; give int64 numbers of shape (B, N), a text as {name}[None].")
    if not ids.shape[0]:
        raise ReproError(f"{name} are {what(ids)}; give at least one text.")
    check_size(ids, longest, least, name)
    if vocab_size is not None and looked_at(ids) and bool(((ids < 0) | (ids >= vocab_size)).any()):
        raise _unknown(ids, vocab_size, name)


def check_labels(labels: Tensor, vocab_size: int, ids: Tensor | None = None) -> None:
    """Raise ReproError unless labels (B, N) are -100, for no target, or ids below `vocab_size`. ids: the input whose
    shape they must have, if any."""
    if ids is not None and (not isinstance(labels, Tensor) or labels.shape != ids.shape):
        raise ReproError(f"labels have shape {tuple(getattr(labels, 'shape', ()))}, input_ids {tuple(ids.shape)}; they "
                         "must be the same.")
    if labels is not ids:
        check_ids(labels.masked_fill(labels == -100, 0), vocab_size, name="labels")


def check_targets(labels: Tensor) -> Tensor:
    """The number of targets, (). Raises ReproError if all labels are -100."""
    if not (n := (labels != -100).sum()):
        raise ReproError(f"labels have shape {tuple(labels.shape)}, and all of them are -100; give at least one "
                         "target.")
    return n


def check_size(texts: Tensor, longest: int | None, least: int = 1, name: str = "ids") -> None:
    """Raise ReproError unless texts (B, N, ...) have `least` to `longest` tokens."""
    if texts.shape[1] < least:
        raise ReproError(f"the text has {texts.shape[1] or 'no'} tokens ({name} are {what(texts)}); give at least "
                         f"{least}, such as <|endoftext|>.")
    if longest is not None and texts.shape[1] > longest:
        raise ReproError(f"the text has {texts.shape[1]:,} tokens, but the model's context ends at {longest:,}; cut "
                         "it, or read it in windows.")


def check_lengths(lengths: Tensor, ids: Tensor, name: str = "lengths") -> None:
    """Raise ReproError unless these are (B,) whole numbers from 1 to the tokens of `ids` (B, N, ...)."""
    if not isinstance(lengths, Tensor) or lengths.ndim != 1 or lengths.dtype not in WHOLE:
        raise ReproError(f"{name} are {what(lengths)}; give int64 numbers of shape (B,), one for each text.")
    same_batch(**{name: lengths, "texts": ids})
    if looked_at(lengths) and not bool(((lengths >= 1) & (lengths <= ids.shape[1])).all()):
        raise ReproError(f"{name} are {int(lengths.min())} to {int(lengths.max())}; they must be 1 to {ids.shape[1]}, "
                         "the tokens that each text has.")


def same_batch(**parts: Tensor) -> None:
    """Raise ReproError for tensors with different numbers of rows, named as in the call."""
    if len({len(part) for part in parts.values()}) > 1:
        counts = " and ".join(f"{len(part)} {name}" for name, part in parts.items())
        raise ReproError(f"the batch has {counts}; give the same number of each.")


def check_temperature(temperature: float) -> None:
    """Raise ReproError unless logits can be divided by it."""
    if isinstance(temperature, bool) or not isinstance(temperature, Real) or not 0 < temperature < math.inf:
        raise ReproError(f"temperature is {temperature!r}; it must be above 0 and finite.")


def drawn(logits: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
    """Token ids (B, 1) sampled from the softmax of logits (B, V) divided by `temperature`; -inf is never sampled.

    Raises ReproError for logits that are NaN or infinite.

    >>> drawn(torch.tensor([[0.0, -math.inf]]))
    tensor([[0]])
    """
    scores = logits.float() / temperature
    check_finite(scores.amax(-1), f"logits at temperature {temperature:g}")
    return torch.multinomial(scores.softmax(-1), 1, generator=generator)


def check_finite(values: Tensor, name: str) -> None:
    """Raise ReproError if a value is NaN or infinite."""
    if not bool(values.isfinite().all()):
        raise ReproError(f"the {name} are NaN or infinite, so no token can be chosen. Load weights that are finite.")


def looked_at(values: Tensor) -> bool:
    """Whether the values of a tensor are checked. Tensors on meta and those of a `FakeTensorMode` have none."""
    if (torch.compiler.is_compiling() or values.is_meta or isinstance(values, torch._subclasses.FakeTensor)
            or torch._C._functorch.is_functorch_wrapped_tensor(values)):
        return False
    capturing = values.is_cuda and torch.cuda.is_current_stream_capturing()
    return values.device.type == "cpu" or not (torch.is_grad_enabled() or capturing)


def what(given: Any) -> str:
    """The type and shape of what was given as token ids."""
    return f"{given.dtype} of shape {tuple(given.shape)}" if isinstance(given, Tensor) else f"a {type(given).__name__}"


def _unknown(ids: Tensor, vocab_size: int, name: str) -> ReproError:
    return ReproError(f"{name} go from {int(ids.min())} to {int(ids.max())}, but the model knows 0 to "
                      f"{vocab_size - 1:,}; encode the text with its own tokeniser.")


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Inside the `with` block dropout is off. Afterwards, even after an error, every part returns to its former mode.

    model: a module; any other function is left as it is. Modes are changed through `train`, which some modules
    override, for example to merge an adapter into its layer.
    """
    before = [(part, part.training) for part in model.modules()] if isinstance(model, nn.Module) else []
    trains = any(training for _, training in before)
    if trains:
        model.eval()
    try:
        yield
    finally:
        if trains:
            for part, training in before:  # parents first: each changes the mode of its parts, too
                if part.training != training:
                    part.train(training)
            for part, training in before:  # a part that two parents share may have changed twice
                part.training = training
