"""The one loss of the study: negative log-likelihood in nats, never in less than single precision."""

import torch
from torch import Tensor
from torch.nn import functional as F


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "sum") -> Tensor:
    """Of `targets` (n,) under `logits` (n, V); a target of -100 counts nothing. reduction: "sum" or "none" (n,)."""
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    return F.cross_entropy(logits, targets, ignore_index=-100, reduction=reduction)
