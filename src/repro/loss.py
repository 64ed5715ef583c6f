"""The losses of the study: negative log-likelihoods in nats, never in less than single precision."""

from collections.abc import Iterable, Sequence
from numbers import Integral, Real

import torch
from torch import Tensor
from torch.nn import functional as F

from repro.errors import ReproError, is_series, short, unknown
from repro.ids import WHOLE, what


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "sum") -> Tensor:
    """The cross-entropy of `targets` (n,), int64 or int32, under `logits` (n, V); targets of -100 are ignored.
    reduction: "sum" or "none" (n,)."""
    if not isinstance(logits, Tensor) or not isinstance(targets, Tensor) or logits.ndim != 2 or not (
            logits.is_floating_point() and targets.shape == logits.shape[:1] and targets.dtype in WHOLE):
        raise ReproError(f"logits are {what(logits)} and targets {what(targets)}; give floats (n, V) and int64 (n,).")
    _check_reduction(reduction, ("sum", "none"))
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    return F.cross_entropy(logits, targets.long(), ignore_index=-100, reduction=reduction)


def any_span_loss(start_logits: Tensor, end_logits: Tensor, spans: Sequence[Iterable[tuple[int, int]]],
                  mask: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """The loss of a reader when any of several spans is a correct answer (Clark and Gardner 2018, section 2.2).

    The loss of an example is the mean of two terms: -log of the total probability of its correct starts, and the same
    for its correct ends. A start or end that several spans share counts once.
    start_logits, end_logits (B, N). spans: for each of the B examples, pairs (start, end) of token positions, both
    inclusive. mask (B, N) bool: False where no answer may start or end; those logits are ignored. None: all count.
    reduction: "mean" over examples (), or "none" (B,).
    Raises ReproError for an example without a span, and for a span that ends before it starts or lies outside the text
    or the mask.

    >>> logits = torch.tensor([[2.0, 1.0, 1.0, 0.0]])
    >>> any_span_loss(logits, logits, [[(0, 1), (0, 2)]]).round(decimals=2)
    tensor(0.7800)
    """
    given = {"start_logits": start_logits, "end_logits": end_logits}
    if not all(isinstance(one, Tensor) and one.ndim == 2 and one.is_floating_point() for one in given.values()) or (
            start_logits.shape != end_logits.shape or not start_logits.numel()):
        shapes = " and ".join(f"{name} {tuple(getattr(one, 'shape', ()))}" for name, one in given.items())
        raise ReproError(f"got {shapes}; give two tensors of floats of one shape (B, N).")
    if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool
                             or mask.shape != start_logits.shape):
        raise ReproError(f"mask is {getattr(mask, 'dtype', type(mask).__name__)} {tuple(getattr(mask, 'shape', ()))}; "
                         f"give a bool tensor with the shape of the logits, {tuple(start_logits.shape)}.")
    _check_reduction(reduction, ("mean", "none"))
    right = _right_ends(spans, mask, *start_logits.shape).to(start_logits.device)
    mask = None if mask is None else mask.to(start_logits.device)
    total = 0
    for logits, ends in zip(given.values(), right, strict=True):
        logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        logits = logits if mask is None else logits.masked_fill(~mask, -torch.inf)
        total = total + (logits.logsumexp(1) - logits.masked_fill(~ends, -torch.inf).logsumexp(1)) / 2
    return total.mean() if reduction == "mean" else total


def _check_reduction(value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise unknown("reduction", value, allowed)


@torch.compiler.disable  # every batch has other spans
def _right_ends(spans: Sequence[Iterable[tuple[int, int]]], mask: Tensor | None, rows: int, length: int) -> Tensor:
    """(2, rows, length) bool: where spans start, and where they end, after checking them.

    The mask is read on every device: a span outside it would cost inf, and its gradients would be NaN.
    """
    spans = spans.tolist() if hasattr(spans, "tolist") else spans  # numpy's and torch's arrays
    listed = [list(one) if is_series(one) else [one]
              for one in (spans if isinstance(spans, Sequence) else [])]
    if len(listed) != rows:
        raise ReproError(f"spans are {short(spans, 60)}; give a list with the spans of each of the {rows} examples.")
    found = torch.zeros(2, rows, length, dtype=torch.bool)
    for row, pairs in enumerate(listed):
        if not pairs:
            raise ReproError(f"example {row} has no span; give at least one right answer, or leave the example out.")
        for pair in pairs:
            pair = pair.tolist() if hasattr(pair, "tolist") else pair
            if isinstance(pair, (tuple, list)):
                pair = tuple(end.tolist() if hasattr(end, "tolist") else end for end in pair)  # of numpy and torch
            if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2 or not all(
                    isinstance(end, Integral) and not isinstance(end, bool) for end in pair):
                raise ReproError(f"a span of example {row} is {short(pair, 60)}; give a pair (start, end) of whole "
                                 "numbers.")
            start, end = pair
            if end < start:
                raise ReproError(f"a span of example {row} is ({start}, {end}); it must not end before it starts.")
            if start < 0 or end >= length:
                raise ReproError(f"a span of example {row} is ({start}, {end}), but the text has tokens 0 to "
                                 f"{length - 1}; cut the spans as the text was cut.")
            found[0, row, start] = found[1, row, end] = True
    if mask is not None and not mask.is_meta and bool((hidden := found & ~mask.cpu()).any()):
        row, token = hidden.any(0).nonzero()[0].tolist()
        raise ReproError(f"a span of example {row} starts or ends at token {token}, where the mask allows no answer; "
                         "leave that span out, or correct the mask.")
    return found


def check_lm_weight(value: object) -> None:
    """Raise ReproError unless the weight of the language-modeling loss is at least 0 and fits into a float32."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= torch.finfo(torch.float32).max:
        raise ReproError(f"lm_weight is {value!r}; it must be at least 0 and finite.")
