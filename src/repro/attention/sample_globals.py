"""Tokens that differ between samples, mainly global tokens: one kernel for the batch, at any positions."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from repro.attention.patterns import Columns, Pattern

ROUND = 8  # the number of copies is rounded up to a multiple, so that similar batches share cached patterns


class SampleGlobals(NamedTuple):
    """The True entries of a (B, N) mask: each is position `position` of `sample`, its `slot`-th one; at most `most` per
    sample."""

    sample: Tensor
    position: Tensor
    slot: Tensor
    most: int

    @classmethod
    def from_mask(cls, mask: Tensor) -> "SampleGlobals":
        sample, position = mask.nonzero(as_tuple=True)
        return cls(sample, position, mask.cumsum(1)[sample, position] - 1, int(mask.sum(1).max()))

    def gather(self, x: Tensor, number: int | None = None) -> Tensor:
        """(B, H, N, D) -> (B, H, number, D): the selected tokens of each sample in order, padded with zeros; number:
        `most` if None."""
        batch, heads, _, size = x.shape
        out = x.new_zeros(batch, self.most if number is None else number, heads, size)
        return out.index_put((self.sample, self.slot), x.transpose(1, 2)[self.sample, self.position]).transpose(1, 2)

    def put(self, x: Tensor, found: Tensor) -> Tensor:
        """(B, H, N, E) with `found` (B, H, most, E) at the selected positions, in the dtype of x."""
        found = found.transpose(1, 2)[self.sample, self.slot].to(x.dtype)
        return x.transpose(1, 2).index_put((self.sample, self.position), found).transpose(1, 2)


def columns_first(query: Tensor, key: Tensor, value: Tensor, patterns: list[Pattern], columns: Tensor,
                  key_mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, list[Pattern], Tensor]:
    """The inputs with a copy of every column in front, so that one pattern makes it visible in all samples.

    At its original position a column is hidden, because no key may be seen twice. The patterns must depend on distances
    only: the copies shift all other positions, and the returned texts are longer by their number.
    """
    chosen = SampleGlobals.from_mask(columns)
    number = -(-chosen.most // ROUND) * ROUND
    real = torch.ones_like(columns) if key_mask is None else key_mask
    longer = [torch.cat([chosen.gather(x, number), x], 2) for x in (key, value)]
    seen = torch.cat([chosen.gather(real[:, None, :, None], number)[:, 0, :, 0], real & ~columns], 1)
    in_front = Columns(range(number))
    return F.pad(query, (0, 0, number, 0)), *longer, [one | in_front for one in patterns], seen


def with_rows(out: Tensor, query: Tensor, key: Tensor, value: Tensor, rows: Tensor, scale: float,
              key_mask: Tensor | None, dropout: float) -> Tensor:
    """`out` (B, H, N, E), in which the `rows` (B, N) see all keys."""
    chosen, mask = SampleGlobals.from_mask(rows), None if key_mask is None else key_mask[:, None, None]
    return chosen.put(out, F.scaled_dot_product_attention(chosen.gather(query), key, value, mask, dropout, scale=scale))
