"""A mixture of experts: many feedforward networks, of which a gate selects k for each token (Shazeer et al. 2017).

Capacity grows with the number of experts, but the operations per token only with k. The gate's noise lets it explore,
and two losses keep it from always choosing the same few experts: the imbalance of their weights, and of their loads.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repro.checked import checked
from repro.errors import ReproError, check_whole
from repro.ids import what


def check_experts(n_experts: int, k: int) -> None:
    """Raises ReproError for fewer than one expert, and for a k that is not from 1 to the number of experts."""
    if n_experts < 1:
        raise ReproError(f"n_experts is {n_experts}; a mixture of experts has at least 1.")
    if not 1 <= k <= n_experts:
        raise ReproError(f"k is {k}; with {n_experts} experts it must be 1 to {n_experts}.")


@checked
class Experts(nn.Module):
    """Map tokens (T, n_embd) to outputs (T, n_embd), the balance loss, and the number of tokens per expert.

    counted (T,) bool: the tokens that enter the loss and the numbers, so that padding can be excluded; None: all.

    Noisy top-k gating (Shazeer et al. 2017, Equations 3 to 5) chooses the k experts with the highest x W_gate + noise.
    The softmax over these k gives their weights. The noise is normal with scale softplus(x W_noise), and is added only
    in training. Raises ReproError for invalid numbers of experts.

    >>> mixed, balance, used = Experts(n_embd=8, n_experts=4)(torch.randn(10, 8))
    >>> mixed.shape, used.sum().item()
    (torch.Size([10, 8]), 20)
    """

    def __init__(self, n_embd: int, n_experts: int, k: int = 2, size: int | None = None):
        super().__init__()
        check_whole(n_embd, "n_embd")
        check_experts(n_experts, k)
        size = 4 * n_embd if size is None else check_whole(size, "size")
        self.n_embd, self.n_experts, self.k, self.size = n_embd, n_experts, k, size
        self.gate = nn.Parameter(torch.zeros(n_embd, n_experts))  # all equally likely at first (Appendix A)
        self.noise = nn.Parameter(torch.zeros(n_embd, n_experts))
        self.inner = nn.Parameter(torch.empty(n_experts, n_embd, size).normal_(std=0.02))
        self.outer = nn.Parameter(torch.empty(n_experts, size, n_embd).normal_(std=0.02))
        self.inner_bias = nn.Parameter(torch.zeros(n_experts, size))
        self.outer_bias = nn.Parameter(torch.zeros(n_experts, n_embd))

    def forward(self, x: Tensor, counted: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        if not isinstance(x, Tensor) or x.ndim != 2 or not x.is_floating_point() or x.shape[1] != self.n_embd:
            raise ReproError(f"tokens are {what(x)}; give floats of shape (T, {self.n_embd}).")
        if counted is not None and (not isinstance(counted, Tensor) or counted.shape != x.shape[:1]
                                    or counted.dtype != torch.bool):
            raise ReproError(f"counted is {what(counted)}; give a bool for each of the {len(x)} tokens.")
        rows = slice(None) if counted is None else counted
        with torch.autocast(x.device.type, enabled=False):
            weights, load = self.weights(x.float() if x.dtype in (torch.bfloat16, torch.float16) else x, rows)
        out = torch.zeros_like(x)
        for expert in range(weights.shape[1]):
            chose = weights[:, expert].nonzero().flatten()
            if len(chose):
                inner = F.gelu(F.linear(x[chose], self.inner[expert].T, self.inner_bias[expert]))
                result = F.linear(inner, self.outer[expert].T, self.outer_bias[expert])
                out = out.index_add(0, chose, (weights[chose, expert, None] * result).to(out.dtype))
        return out, unequal(weights[rows].sum(0)) + unequal(load), (weights[rows] > 0).sum(0).detach()

    def weights(self, x: Tensor, rows: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """(T, experts), k of them above 0 in each row; and the load (experts,) of some `rows`, smooth so that it has
        gradients. Both are in the precision of x, also if the layer's own weights have 16 bits."""
        clean = x @ self.gate.to(x.dtype)
        if not self.training:
            chosen = F.one_hot(clean.topk(self.k).indices, clean.shape[1])
            return kept(clean, self.k), chosen[rows].sum((0, 1)).to(clean)
        scale = F.softplus(x @ self.noise.to(x.dtype)) + 1e-2
        noisy = clean + torch.randn_like(clean) * scale
        return kept(noisy, self.k), chances(clean, noisy, scale, self.k)[rows].sum(0)


def kept(scores: Tensor, k: int) -> Tensor:
    """The softmax of the k highest scores of each row; 0 for the others (Equations 3 and 5)."""
    top, at = scores.topk(k)
    return torch.zeros_like(scores).scatter(-1, at, top.softmax(-1))


def chances(clean: Tensor, noisy: Tensor, scale: Tensor, k: int) -> Tensor:
    """The probability that each expert is among the k if its own noise is drawn again (Shazeer et al. 2017, Equations
    8 and 9).

    An expert must beat the k-th highest score of the others: the k-th of all if it was not chosen, else the k+1-th.
    """
    if k == clean.shape[1]:
        return torch.ones_like(clean)
    top = noisy.topk(k + 1).values
    bar = torch.where(noisy >= top[:, k - 1:k], top[:, k:], top[:, k - 1:k])
    return 0.5 * (1 + torch.erf((clean - bar) / scale / math.sqrt(2)))


def unequal(values: Tensor) -> Tensor:
    """The squared coefficient of variation: 0 when all are equal (Equations 7 and 11)."""
    return values.float().var(unbiased=False) / (values.float().mean() ** 2 + 1e-10)
