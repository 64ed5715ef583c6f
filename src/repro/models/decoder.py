"""A decoder in which every head has its own attention pattern, with relative positions for any pattern.

Dai et al. (2019, section 3.3) score query i against key j with (q_i + u) . k_j + (q_i + v) . W r_{i-j}, where r_t holds
sines and cosines of t. The sine and the cosine of i - j are sums of products of sines and cosines of i and of j. So the
second term is also a dot product, of features that depend only on i with features that depend only on j. Appending
these features to query and key gives ordinary attention, which every implementation of `attend` can compute.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from repro.attention import Pattern, SlidingWindow, attend
from repro.attention.products import by_rows, products
from repro.checked import checked
from repro.configs import Dropout, Positive, Tuple, config
from repro.errors import ReproError, short
from repro.ids import check_ids, embedded, tied_output
from repro.models.past import Kept, Past, check_past, pieces

ROWS = 512  # tokens that `extend` processes at once


@config
class LayersConfig:
    """Size and patterns of a stack of layers. Raises ReproError for sizes that do not match."""

    vocab_size: Positive
    n_embd: Positive
    n_head: Positive
    patterns: Annotated[Tuple[Any], Field(min_length=1)]  # per layer, from the bottom: one, or one per head
    dropout: Dropout = 0.0  # of embeddings and of the outputs of attention and feedforward network
    position_size: Positive | None = None  # total number of sines and cosines in r; None: n_embd, as in Dai et al.
    positions, details = "relative", ()  # fixed here; fields of a `DecoderConfig`

    def __post_init__(self):
        object.__setattr__(self, "patterns", tuple(_per_head(self, k) for k in range(len(self.patterns))))
        if self.n_embd % self.n_head:
            raise ReproError(f"n_embd is {self.n_embd} and n_head {self.n_head}; the width must be a multiple of the "
                             "heads.")
        if self.n_waves < 2 or self.n_waves % 2:
            raise ReproError(f"position_size is {self.n_waves}; it must be even and at least 2: sines and cosines.")

    @property
    def n_layer(self) -> int:
        """Number of layers."""
        return len(self.patterns)

    @property
    def n_waves(self) -> int:
        """Total number of sines and cosines in r."""
        return self.n_embd if self.position_size is None else self.position_size

    @property
    def n_features(self) -> int:
        """Number of sines and cosines in the scores of every layer; 0 without relative positions."""
        return self.n_waves if self.positions == "relative" else 0

    @property
    def matrices(self) -> int:
        """Number of weights in the matrices of the layers: attention, position and feedforward."""
        return self.n_layer * (12 * self.n_embd + self.n_features) * self.n_embd

    @property
    def parameters(self) -> int:
        """Number of weights without an output layer: the matrices, biases, norms, u and v, and the embedding."""
        return self.matrices + (11 * self.n_layer + 2 + self.vocab_size) * self.n_embd

    @property
    def outputs(self) -> int:
        """Number of outputs per token."""
        return 0

    def pairs_per_token(self, n: int) -> float:
        """(query, key) pairs of all layers and heads in a sequence of n tokens, divided by n."""
        times = Counter(pattern for layer in self.patterns for pattern in layer)
        return sum(times[pattern] * pattern.count(n) for pattern in times) / n

    def flops_per_token(self, n: int) -> float:
        """Floating-point operations of the forward pass per token, in a sequence of n: 2 for each weight, and 2 for
        each product in a score or in a weighted sum of values."""
        head = self.n_embd // self.n_head
        return (2 * self.matrices + 2 * self.n_embd * self.outputs
                + 2 * (2 * head + self.n_features) * self.pairs_per_token(n))

    def to_dict(self) -> dict:
        """All fields, for comparing settings."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


POSITIONS = {
    "relative": "scores know how far apart two positions are (Dai et al. 2019, section 3.3)",
    "absolute": "the same sines and cosines of the position itself, through a matrix, are added to the embedding",
    "none": "positions are only implied by the keys that a pattern lets a query see",
}
DETAILS = {  # optional details from the code of Transformer-XL
    "scaled": "embeddings enter times the square root of the width",
    "dropout": "dropout inside the feedforward network and before the output layer, too",
    "shared": "one u and one v for all layers",
    "bare": "no layernorm after the last layer",
}


@config
class DecoderConfig(LayersConfig):
    """Size and patterns of a `Decoder`. Raises ReproError for sizes that do not fit, patterns that look ahead, and
    unknown positions and details.

    >>> from repro.attention import BlockLocal, Causal
    >>> DecoderConfig(vocab_size=9, n_embd=8, n_head=2, patterns=(Causal(), BlockLocal(4))).parameters
    1937
    """

    positions: Literal[*POSITIONS] = "relative"
    details: Tuple[Literal[*DETAILS]] = ()

    def __post_init__(self):
        super().__post_init__()
        for layer, patterns in enumerate(self.patterns):
            check_causal(patterns, layer)
        if "shared" in self.details and self.positions != "relative":
            raise ReproError(f"details name 'shared', but positions are '{self.positions}': only relative ones have u "
                             "and v. Remove one of the two.")

    @property
    def parameters(self) -> int:
        """Number of weights: the layers, the embedding, which is also the output layer, and the output bias."""
        biases = (1 if "shared" in self.details else self.n_layer) * (self.positions == "relative")  # pairs of u and v
        fewer = 2 * (self.n_layer - biases) + 2 * ("bare" in self.details)
        return super().parameters + self.vocab_size + (self.n_placed - fewer) * self.n_embd

    @property
    def n_placed(self) -> int:
        """Number of sines and cosines that are added to the embedding through a matrix."""
        return self.n_waves if self.positions == "absolute" else 0

    def flops_per_token(self, n: int) -> float:
        return super().flops_per_token(n) + 2 * self.n_placed * self.n_embd

    @property
    def outputs(self) -> int:
        """One logit for every token of the vocabulary."""
        return self.vocab_size


@checked
class Decoder(nn.Module):
    """Token ids (B, N) to logits (B, N, V); logits[:, i] predicts token i + 1. N has no limit.

    Pre-layernorm, GELU, tied embeddings; POSITIONS and DETAILS list the other choices. implementation: one of
    `attend`, in at least single precision, or one of two in the precision of autocast: "products", which keeps all
    N * N scores, and "rows", which skips most scores of later keys. recompute: store only the input of each layer and
    compute the rest again in the backward pass (Chen et al. 2016).

    >>> from repro.attention import SlidingWindow
    >>> model = Decoder(DecoderConfig(vocab_size=9, n_embd=8, n_head=2, patterns=(SlidingWindow(4),) * 2))
    >>> model(torch.zeros(1, 50, dtype=torch.int64)).shape
    torch.Size([1, 50, 9])
    """

    def __init__(self, config: DecoderConfig, implementation: str = "auto", recompute: bool = False):
        super().__init__()
        self.config, self.implementation, self.recompute = config, implementation, recompute
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.layers = nn.ModuleList(Layer(config, patterns) for patterns in config.patterns)
        if "shared" in config.details:
            first = self.layers[0].attention
            for layer in self.layers[1:]:
                layer.attention.u, layer.attention.v = first.u, first.v
        self.norm = nn.Identity() if "bare" in config.details else nn.LayerNorm(config.n_embd)
        self.place = nn.Linear(config.n_placed, config.n_embd, bias=False) if config.n_placed else None
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.dropout = nn.Dropout(config.dropout)
        self.last_dropout = nn.Dropout(config.dropout) if "dropout" in config.details else nn.Identity()
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:  # positions start as large as the embeddings
                nn.init.normal_(parameter, std=0.02 * (2 / config.n_placed)**0.5 if name == "place.weight" else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids: Tensor) -> Tensor:
        for state in self.states(ids):
            x = state
        return self.logits(x)

    def logits(self, x: Tensor) -> Tensor:
        """Logits (..., V) from the output of the last layer (..., n_embd)."""
        return tied_output(self.last_dropout(self.norm(x)), self.embed, self.bias)

    def extend(self, ids: Tensor, past: Past | None = None) -> tuple[Tensor, Past]:
        """Logits (B, V) for the token after `ids` (B, T), which follow the tokens in `past`; and the extended past.

        The logits equal those of `forward` for the last token of the whole text; tokens in `past` are not read again.
        """
        check_ids(ids)
        check_past(past, ids, self.layers)
        start, kept = past or (0, (None,) * len(self.layers))
        for first, behind in pieces(start, ids.shape[1], ROWS):
            x, layers = self.entered(ids[:, first:behind], start + first), []
            waves = sinusoids(start + behind, self.config.n_waves)[start + first:].to(x)
            for layer, seen in zip(self.layers, kept, strict=True):
                x, now = layer.extend(x, waves, start + first, seen)
                layers.append(now)
            kept = tuple(layers)
        return self.logits(x[:, -1]), Past(start + ids.shape[1], kept)

    def states(self, ids: Tensor) -> Iterator[Tensor]:
        """The hidden states (B, N, n_embd): the embeddings, then the output of each layer."""
        x = self.entered(ids)
        waves = sinusoids(ids.shape[1], self.config.n_waves).to(x)
        yield x
        for layer in self.layers:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(layer, x, waves, self.implementation, use_reentrant=False)
            else:
                x = layer(x, waves, self.implementation)
            yield x

    def entered(self, ids: Tensor, start: int = 0) -> Tensor:
        """The input of the first layer (B, N, n_embd); the first token has position `start`."""
        x = embedded(self.embed, ids)
        if "scaled" in self.config.details:
            x = x * self.config.n_embd**0.5
        if self.place is not None:
            x = x + self.place(sinusoids(start + ids.shape[1], self.config.n_waves)[start:].to(x))
        return self.dropout(x)


class Layer(nn.Module):
    """Attention, then the feedforward network, each after a layernorm and added to its input."""

    def __init__(self, config: LayersConfig, patterns: Sequence[Pattern]):
        super().__init__()
        self.attention = (RelativeAttention if config.positions == "relative" else Attention)(config, patterns)
        self.norm_1, self.norm_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.inner = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.outer = nn.Linear(4 * config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)
        self.inner_dropout = nn.Dropout(config.dropout) if "dropout" in config.details else nn.Identity()

    def forward(self, x: Tensor, waves: Tensor, implementation: str, key_mask: Tensor | None = None) -> Tensor:
        return self.with_network(x + self.dropout(self.attention(self.norm_1(x), waves, implementation, key_mask)))

    def with_network(self, x: Tensor) -> Tensor:
        """The states plus the output of the feedforward network."""
        return x + self.dropout(self.outer(self.inner_dropout(F.gelu(self.inner(self.norm_2(x))))))

    def extend(self, x: Tensor, waves: Tensor, start: int, past: Kept | None) -> tuple[Tensor, Kept]:
        """Like `forward`, for tokens from position `start` on, given the stored past; also returns the new past."""
        attended, kept = self.attention.extend(self.norm_1(x), waves, start, past)
        return self.with_network(x + self.dropout(attended)), kept


class Attention(nn.Module):
    """Self-attention, each head with its own pattern; positions are only implied by the pattern."""

    def __init__(self, config: LayersConfig, patterns: Sequence[Pattern]):
        super().__init__()
        self.patterns = patterns
        self.project = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.out = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, x: Tensor, waves: Tensor, implementation: str, key_mask: Tensor | None = None) -> Tensor:
        batch, n, width = x.shape
        parts = self.project(x).view(batch, n, 3, len(self.patterns), -1).permute(2, 0, 3, 1, 4)
        given, scale = parts.dtype, parts.shape[-1]**-0.5
        with torch.autocast(x.device.type, enabled=False):
            wide = torch.promote_types(given, torch.float32)
            query, key, value = (part.to(wide) for part in parts)
            query, key = self.placed(query, key, waves.to(wide))
            if implementation in ("products", "rows"):
                query, key, value = query.to(given), key.to(given), value.to(given)
                multiplied = products if implementation == "products" else by_rows
                seen = multiplied(query, key, value, self.patterns, scale, key_mask)
            else:
                seen = attend(query, key, value, self.patterns, implementation, scale, key_mask)
        return self.out(seen.transpose(1, 2).reshape(batch, n, width).to(x.dtype))

    def extend(self, x: Tensor, waves: Tensor, start: int, past: Kept | None) -> tuple[Tensor, Kept]:
        """Attention of tokens (B, T, n_embd) from position `start` on to themselves and to earlier keys.

        waves: the `sinusoids` of their positions. past: keys and values (B, H, start, ...), None if there are none.
        """
        batch, n, width = x.shape
        query, key, value = self.project(x).view(batch, n, 3, len(self.patterns), -1).permute(2, 0, 3, 1, 4)
        scale = query.shape[-1]**-0.5
        query, key = self.placed(query, key, waves)
        if past is not None:
            key, value = (torch.cat(parts, 2) for parts in zip(past, (key, value), strict=True))
        seen = products(query, key, value, self.patterns, scale, first=start)
        return self.out(seen.transpose(1, 2).reshape(batch, n, width)), (key, value)

    def placed(self, query: Tensor, key: Tensor, waves: Tensor) -> tuple[Tensor, Tensor]:
        """Query and key whose products include positions, given (B, H, N, D) and the `sinusoids` of positions."""
        return query, key


class RelativeAttention(Attention):
    """Self-attention with the relative positions of Dai et al. (2019, section 3.3), each head with its own pattern."""

    def __init__(self, config: LayersConfig, patterns: Sequence[Pattern]):
        super().__init__(config, patterns)
        size = config.n_head, config.n_embd // config.n_head
        self.position = nn.Parameter(torch.empty(*size, config.n_waves))  # W of each head
        self.u, self.v = nn.Parameter(torch.empty(size)), nn.Parameter(torch.empty(size))

    def placed(self, query: Tensor, key: Tensor, waves: Tensor) -> tuple[Tensor, Tensor]:
        u, v, position = (weight.to(query.dtype) for weight in (self.u, self.v, self.position))
        features = rotated((query + v[:, None]) @ position, waves)
        return (torch.cat([query + u[:, None], features], -1),
                torch.cat([key, waves.expand(*key.shape[:2], -1, -1)], -1))


def sinusoids(n: int, size: int) -> Tensor:
    """(n, size) float64: for each position t, the sines of w t, then the cosines, with w from 1 down to 1/10,000 as in
    Vaswani et al. (2017, section 3.5). Single precision would make the sine of a large t inexact."""
    waves = 10_000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.arange(n, dtype=torch.float64)[:, None] * waves
    return torch.cat([angles.sin(), angles.cos()], -1)


def rotated(weights: Tensor, waves: Tensor) -> Tensor:
    """Query features whose dot product with the `sinusoids` of j is that of `weights` with the sinusoids of i - j.

    weights: (..., N, size), those of query i in row i, of the sines first. waves: (N, size), of i in row i. From
    sin(i - j) = sin i cos j - cos i sin j and cos(i - j) = cos i cos j + sin i sin j.
    """
    of_sin, of_cos = weights.chunk(2, -1)
    sin, cos = waves.chunk(2, -1)
    return torch.cat([of_cos * sin - of_sin * cos, of_sin * sin + of_cos * cos], -1)


@checked
def longformer_patterns(windows: Sequence[int], n_head: int, dilation: Sequence[int] | None = None,
                        dilated_heads: int = 2) -> tuple[tuple[Pattern, ...], ...]:
    """The patterns of Longformer as a language model (Beltagy et al. 2020, section 4.1 and Table 12), layer by layer.

    windows, dilation: per layer, from the bottom; the first `dilated_heads` heads of a layer have its dilation, the
    others none. Dilation 1 means none: the paper counts skipped positions, one less.
    Raises ReproError for lists of different length and more dilated heads than heads.

    >>> for heads in longformer_patterns([4, 8], n_head=2, dilation=[1, 2], dilated_heads=1):
    ...     print(heads)
    (SlidingWindow(window=4, dilation=1, causal=True), SlidingWindow(window=4, dilation=1, causal=True))
    (SlidingWindow(window=8, dilation=2, causal=True), SlidingWindow(window=8, dilation=1, causal=True))
    """
    dilation = [1] * len(windows) if dilation is None else dilation
    if len(dilation) != len(windows):
        raise ReproError(f"dilation names {len(dilation)} layers and windows {len(windows)}; both need one number for "
                         "each layer.")
    if not 0 <= dilated_heads <= n_head:
        raise ReproError(f"dilated_heads is {dilated_heads}; it must be between 0 and n_head ({n_head}).")
    return tuple((SlidingWindow(window, step),) * dilated_heads + (SlidingWindow(window),) * (n_head - dilated_heads)
                 for window, step in zip(windows, dilation, strict=True))


def _per_head(config: LayersConfig, layer: int) -> tuple[Pattern, ...]:
    """The pattern of every head of a layer."""
    patterns = config.patterns[layer]
    patterns = (patterns,) * config.n_head if isinstance(patterns, Pattern) else patterns
    if not isinstance(patterns, Sequence) or not all(isinstance(one, Pattern) for one in patterns):
        raise ReproError(f"patterns has {short(patterns)} in layer {layer}; give one, or a list with one for each "
                         "head.")
    if len(patterns) != config.n_head:
        raise ReproError(f"patterns names {len(patterns)} heads in layer {layer}, but n_head is {config.n_head}; give "
                         "one pattern, or one for each head.")
    return tuple(patterns)


def check_causal(patterns: tuple[Pattern, ...], layer: int) -> None:
    """Raise ReproError if a pattern of this layer looks ahead."""
    i = torch.arange(64)
    for pattern in dict.fromkeys(patterns):
        for first, last, _ in (keys for part in pattern.parts for keys in part.keys(i)):
            if bool(((torch.as_tensor(last) > i) & (torch.as_tensor(first) <= last)).any()):
                raise ReproError(f"patterns has {pattern} in layer {layer}, which sees later positions; a decoder "
                                 "needs causal ones.")
