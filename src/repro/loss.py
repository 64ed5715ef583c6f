"""The one loss of the study: negative log-likelihood in nats, never in less than single precision."""

from numbers import Real

import torch
from torch import Tensor
from torch.nn import functional as F

from repro.errors import ReproError


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "sum") -> Tensor:
    """Of `targets` (n,) under `logits` (n, V); a target of -100 counts nothing. reduction: "sum" or "none" (n,)."""
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    return F.cross_entropy(logits, targets, ignore_index=-100, reduction=reduction)


def check_lm_weight(value: object) -> None:
    """Raise ReproError unless what the loss of tokens counts is a number from 0 on that a float32 holds."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= torch.finfo(torch.float32).max:
        raise ReproError(f"lm_weight is {value!r}; it must be at least 0 and finite.")
