"""The one loss of the study: negative log-likelihood in nats, never in less than single precision."""

from numbers import Real

import torch
from torch import Tensor
from torch.nn import functional as F

from repro.errors import ReproError, unknown


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "sum") -> Tensor:
    """The cross-entropy of `targets` (n,) under `logits` (n, V); a target of -100 counts nothing. reduction: "sum" or
    "none" (n,)."""
    if not isinstance(logits, Tensor) or not isinstance(targets, Tensor) or logits.ndim != 2 or not (
            logits.is_floating_point() and targets.shape == logits.shape[:1] and targets.dtype == torch.int64):
        shapes = [tuple(getattr(one, "shape", ())) for one in (logits, targets)]
        raise ReproError(f"logits have shape {shapes[0]} and targets {shapes[1]}; give floats (n, V) and int64 (n,).")
    if not isinstance(reduction, str) or reduction not in ("sum", "none"):
        raise unknown("reduction", reduction, ("sum", "none"))
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    return F.cross_entropy(logits, targets, ignore_index=-100, reduction=reduction)


def check_lm_weight(value: object) -> None:
    """Raise ReproError unless what the loss of tokens counts is a number from 0 on that a float32 holds."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= torch.finfo(torch.float32).max:
        raise ReproError(f"lm_weight is {value!r}; it must be at least 0 and finite.")
