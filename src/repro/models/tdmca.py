"""A decoder with memory-compressed attention, for texts too long for full attention (Liu et al. 2018, section 4.2.4).

Layers take turns. A local one (L) attends inside blocks of 256 tokens. A memory-compressed one (M) sees the whole past
in shortened form: a convolution of kernel 3 and stride 3 turns three keys and values into one. A query may see a
compressed key only after its third token, or it would look ahead. Until then, a query sees the tokens of its own group
read so far, with zeros for the rest, as if the text ended there. So every position is visible to all later ones.
"""

from dataclasses import fields
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from repro.attention import Causal
from repro.attention.products import ROWS
from repro.checked import checked
from repro.configs import Dropout, Natural, Positive, Tuple, config
from repro.errors import ReproError
from repro.ids import check_ids, embedded, tied_output, what
from repro.models.decoder import LayersConfig, RelativeAttention, rotated, sinusoids
from repro.models.experts import Experts, check_experts
from repro.models.past import Kept, Past, check_past, pieces


@config
class TDMCAConfig:
    """Size of a `TDMCA`. The defaults are those of the paper, except for the width.

    Raises ReproError for sizes that do not match, letters other than L and M, a convolution that would look ahead
    or skip tokens, and invalid experts or expert layers.

    >>> TDMCAConfig(vocab_size=9, n_embd=8, n_head=2).layers
    'LMLML'
    >>> TDMCAConfig(vocab_size=9, n_embd=8, n_head=2, layers="LX")
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: layers is 'LX' and has 'X'; a layer is L (local) or M (memory-compressed).
    """

    vocab_size: Positive
    n_embd: Positive
    n_head: Positive
    layers: Annotated[str, Field(min_length=1)] = "LMLML"  # from the bottom: local, memory-compressed
    block: Positive = 256  # tokens of a local block
    kernel: Positive = 3  # tokens that make one compressed key
    stride: Positive = 3  # tokens from one compressed key to the next
    n_experts: Natural = 0  # 0: none
    k: Natural = 2  # experts per token; no effect without experts
    expert_layers: Tuple[Natural] = (2,)  # counted from 0; their feedforward networks are the experts
    dropout: Dropout = 0.0
    position_size: Positive | None = None  # sines and cosines of a relative position; None: n_embd

    def __post_init__(self):
        if wrong := sorted(set(self.layers) - {"L", "M"}):
            raise ReproError(f"layers is '{self.layers}' and has '{wrong[0]}'; a layer is L (local) or M "
                             "(memory-compressed).")
        if self.kernel > self.stride:
            raise ReproError(f"kernel is {self.kernel} and stride {self.stride}: a key would see "
                             f"{self.kernel - self.stride} tokens ahead of the next one's beginning; set kernel to the "
                             "stride.")
        if self.kernel < self.stride:
            raise ReproError(f"kernel is {self.kernel} and stride {self.stride}: {self.stride - self.kernel} of "
                             f"{self.stride} tokens would never be seen; set kernel to the stride.")
        if self.n_experts:
            check_experts(self.n_experts, self.k)
            if not self.expert_layers or not all(0 <= layer < len(self.layers) for layer in self.expert_layers):
                raise ReproError(f"expert_layers is {self.expert_layers}; name at least one of the layers 0 to "
                                 f"{len(self.layers) - 1}.")
        _ = self.stack  # raises ReproError for other settings that do not match

    @property
    def stack(self) -> LayersConfig:
        """The same layers with full causal attention, for shared computations."""
        return LayersConfig(self.vocab_size, self.n_embd, self.n_head, (Causal(),) * len(self.layers), self.dropout,
                            self.position_size)

    @property
    def parameters(self) -> int:
        """All weights."""
        convolutions = self.layers.count("M") * 2 * (self.kernel * self.n_embd + 1) * self.n_embd
        network = (8 * self.n_embd + 5) * self.n_embd
        experts = len(self.expert_layers) * ((self.n_experts - 1) * network + 2 * self.n_embd * self.n_experts)
        return self.stack.parameters + self.vocab_size + convolutions + (experts if self.n_experts else 0)

    def pairs_per_token(self, n: int) -> float:
        """(query, key) pairs of all layers and heads in a sequence of n tokens, divided by n. Compressed keys count.
        """
        local = sum(i % self.block + 1 for i in range(n))
        compressed = sum(i // self.stride + 1 for i in range(n))
        return self.n_head * (self.layers.count("L") * local + self.layers.count("M") * compressed) / n

    def flops_per_token(self, n: int) -> float:
        """Floating-point operations of the forward pass per token, in a sequence of n, counted as in `LayersConfig`."""
        matrices = (self.stack.matrices + self.layers.count("M") * 2 * self.n_embd**2
                    + len(self.expert_layers) * bool(self.n_experts) * (self.k - 1) * 8 * self.n_embd**2)
        features = 2 * (self.n_embd // self.n_head) + self.stack.n_waves
        return 2 * matrices + 2 * self.n_embd * self.vocab_size + 2 * features * self.pairs_per_token(n)

    def to_dict(self) -> dict:
        """All fields, for comparing settings."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@checked
class TDMCA(nn.Module):
    """Token ids (B, N) to logits (B, N, V); logits[:, i] predicts token i + 1. N is unlimited and need not be a
    multiple of a block.

    Pre-layernorm, GELU, tied embeddings, relative positions, as in `Decoder`. After a call, `balance` is the loss that
    keeps the experts in use (a scalar; 0 without experts), and `use` the tokens per expert in each layer. The graph of
    `balance` is kept until the next call, for training; a copy of the model has its value only.
    implementation: as in `Decoder`. With "products" and "rows", compressed attention is also in the precision of
    autocast, and only "products" computes scores of all later groups. recompute: store only the input of each layer.

    >>> model = TDMCA(TDMCAConfig(vocab_size=9, n_embd=8, n_head=2, layers="LM", block=16))
    >>> model(torch.zeros(1, 50, dtype=torch.int64)).shape
    torch.Size([1, 50, 9])
    """

    def __init__(self, config: TDMCAConfig, implementation: str = "auto", recompute: bool = False):
        super().__init__()
        self.config, self.implementation, self.recompute = config, implementation, recompute
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.layers = nn.ModuleList(Layer(config, number) for number in range(len(config.layers)))
        self.norm = nn.LayerNorm(config.n_embd)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.dropout = nn.Dropout(config.dropout)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1 and not name.endswith((".gate", ".noise", "_bias")):
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        self.balance, self.use = torch.zeros(()), {}

    def __getstate__(self) -> dict:
        """The attributes for a copy: `balance` without its graph, with which torch could not copy it."""
        return super().__getstate__() | {"balance": self.balance.detach()}

    def forward(self, ids: Tensor, there: Tensor | None = None) -> Tensor:
        """there (B, N) bool: which tokens are text; padding counts neither in `balance` nor in `use`. None: all tokens
        are text."""
        return self.logits(self.hidden(ids, there))

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (..., V) of normalized states (..., n_embd)."""
        return tied_output(hidden, self.embed, self.bias)

    def hidden(self, ids: Tensor, there: Tensor | None = None) -> Tensor:
        """The states (B, N, n_embd), the input of the output layer."""
        if there is not None and (not isinstance(there, Tensor) or there.shape != ids.shape
                                  or there.dtype != torch.bool):
            raise ReproError(f"there is {what(there)}; give a bool for each of the ids.")
        x = self.dropout(embedded(self.embed, ids))
        waves = sinusoids(ids.shape[1], self.config.stack.n_waves).to(x)
        self.balance, self.use = x.new_zeros(()), {}
        for number, layer in enumerate(self.layers):
            given = x, waves, self.implementation, there
            if self.recompute and torch.is_grad_enabled():
                x, balance, use = checkpoint(layer, *given, use_reentrant=False)
            else:
                x, balance, use = layer(*given)
            if use is not None:
                self.balance, self.use[number] = self.balance + balance, use
        return self.norm(x)

    def extend(self, ids: Tensor, past: Past | None = None) -> tuple[Tensor, Past]:
        """Logits (B, V) after the tokens (B, T), which follow those in `past`; and the past including them.

        The logits equal those of `forward` for the last token of the whole text; tokens in `past` are not read again.
        A layer stores only what later tokens can see: a local one the current block, a compressed one a key and a value
        per complete group, and the tokens of the last group.
        """
        check_ids(ids)
        check_past(past, ids, self.layers)
        start, kept = past or (0, (None,) * len(self.layers))
        for first, behind in pieces(start, ids.shape[1], self.config.block):
            x, layers = self.dropout(embedded(self.embed, ids[:, first:behind])), []
            waves = sinusoids(start + behind, self.config.stack.n_waves).to(x)
            for layer, seen in zip(self.layers, kept, strict=True):
                x, now = layer.extend(x, waves, start + first, seen)
                layers.append(now)
            kept = tuple(layers)
        return self.logits(self.norm(x[:, -1])), Past(start + ids.shape[1], kept)


class Layer(nn.Module):
    """Attention, then a feedforward network or experts, each after a layernorm and added to its input."""

    def __init__(self, config: TDMCAConfig, number: int):
        super().__init__()
        compressed = config.layers[number] == "M"
        causal = (Causal(),) * config.n_head
        self.block = None if compressed else config.block
        self.attention = (CompressedAttention(config.stack, config.stride) if compressed else
                          RelativeAttention(config.stack, causal))
        self.norm_1, self.norm_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.experts = (Experts(config.n_embd, config.n_experts, config.k)
                        if config.n_experts and number in config.expert_layers else None)
        if self.experts is None:
            self.inner = nn.Linear(config.n_embd, 4 * config.n_embd)
            self.outer = nn.Linear(4 * config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, waves: Tensor, implementation: str, there: Tensor | None = None
                ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        look = self.attention if self.block is None else self.local
        return self.with_network(x + self.dropout(look(self.norm_1(x), waves, implementation)), there)

    def with_network(self, x: Tensor, there: Tensor | None = None) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The states plus the output of the feedforward network or experts, and the balance and use of the experts."""
        if self.experts is None:
            return x + self.dropout(self.outer(F.gelu(self.inner(self.norm_2(x))))), None, None
        result, balance, use = self.experts(self.norm_2(x).flatten(0, 1), None if there is None else there.flatten())
        return x + self.dropout(result.view_as(x)), balance, use

    def extend(self, x: Tensor, waves: Tensor, start: int, past: Kept | None) -> tuple[Tensor, Kept | None]:
        """Like `forward`, for tokens of one block from position `start` on, given the stored past; also returns the new
        past. waves: the `sinusoids` of all positions up to the last of these tokens."""
        given, behind = self.norm_1(x), start + x.shape[1]
        if self.block is None:
            attended, kept = self.attention.extend(given, waves, start, past)
        else:
            inside = start % self.block
            attended, kept = self.attention.extend(given, waves[inside:inside + x.shape[1]], inside, past)
            kept = kept if behind % self.block else None  # the next token begins a block
        return self.with_network(x + self.dropout(attended))[0], kept

    def local(self, x: Tensor, waves: Tensor, implementation: str) -> Tensor:
        """Causal attention in each block separately; blocks are processed like sequences of a batch."""
        batch, n, width = x.shape
        size = min(self.block, n)
        blocks = F.pad(x, (0, 0, 0, -n % size)).view(-1, size, width)
        return self.attention(blocks, waves[:size], implementation).view(batch, -1, width)[:, :n]


class CompressedAttention(RelativeAttention):
    """Attention to one key and one value for every group of `stride` tokens (B, N, n_embd).

    Query i sees the groups before its own, and the tokens of its own group up to i. A group has the position of its
    first token.
    """

    def __init__(self, config: LayersConfig, stride: int):
        super().__init__(config, (Causal(),) * config.n_head)
        self.stride = stride
        self.key_convolution = nn.Conv1d(config.n_embd, config.n_embd, stride, stride)
        self.value_convolution = nn.Conv1d(config.n_embd, config.n_embd, stride, stride)

    def forward(self, x: Tensor, waves: Tensor, implementation: str, key_mask: Tensor | None = None) -> Tensor:
        return self.extend(x, waves, 0, None, implementation)[0]

    def extend(self, x: Tensor, waves: Tensor, start: int, past: Kept | None,
               implementation: str = "auto") -> tuple[Tensor, Kept]:
        """The output for tokens (B, T, n_embd) from position `start` on, given the past of earlier tokens, and the new
        past. A past has a key and a value for each complete group (B, H, groups, ...). It also has the keys and values
        of the tokens after these, which the convolutions have not read (B, fewer than a stride, n_embd).

        waves: the `sinusoids` of all positions up to the last of these tokens.
        """
        batch, n, width = x.shape
        heads, size = self.u.shape
        query, key, value = self.project(x).chunk(3, -1)
        begin = start // self.stride * self.stride  # of the group that contains `start`
        keys, values, *unread = past or (None, None)
        if start > begin:
            key, value = (torch.cat(two, 1) for two in zip(unread, (key, value), strict=True))
        whole = key.shape[1] // self.stride * self.stride
        unread = key[:, whole:], value[:, whole:]
        key, value = so_far(self.key_convolution, key), so_far(self.value_convolution, value)
        query, key, value = (part.view(batch, -1, heads, size).transpose(1, 2) for part in (query, key, value))
        given = query.dtype
        with torch.autocast(x.device.type, enabled=False):
            wide = torch.promote_types(given, torch.float32)
            query, key, value, waves, u, v, position = (
                t.to(wide) for t in (query, key, value, waves, self.u, self.v, self.position))
            here = waves[start:start + n]
            query = torch.cat([query + u[:, None], rotated((query + v[:, None]) @ position, here)], -1)
            first = waves[torch.arange(begin, start + n, device=x.device) // self.stride * self.stride]
            key = torch.cat([key, first.expand(*key.shape[:2], -1, -1)], -1)
            if implementation in ("products", "rows"):
                query, key, value = query.to(given), key.to(given), value.to(given)
            ends = slice(self.stride - 1, None, self.stride)
            new = key[:, :, ends], value[:, :, ends]
            keys, values = new if keys is None else (torch.cat(two, 2) for two in zip((keys, values), new, strict=True))
            own = key[:, :, start - begin:], value[:, :, start - begin:]
            rows = n if implementation == "products" else ROWS
            seen = groups_and_own(query * size**-0.5, *own, keys, values, self.stride, start, rows)
        out = self.out(seen.transpose(1, 2).reshape(batch, n, width).to(x.dtype))
        return out, (keys, values, *unread)


def so_far(convolution: nn.Conv1d, x: Tensor) -> Tensor:
    """(B, N, d): at token i what the convolution gives for i's group if all after i were zeros; whole at its last."""
    stride, n = convolution.stride[0], x.shape[1]
    groups = F.pad(x, (0, 0, 0, -n % stride)).unflatten(1, (-1, stride))
    taps = torch.einsum("bgti,oit->bgto", groups, convolution.weight)
    return (taps.cumsum(2).flatten(1, 2)[:, :n] + convolution.bias).to(x.dtype)


def groups_and_own(query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, stride: int,
                   start: int = 0, size: int = ROWS) -> Tensor:
    """(B, H, N, E): attention of each query to the keys of the groups before its own, and to its own group so far.

    query, key: (B, H, N, D), of positions `start` on, queries scaled, keys what `so_far` gives there; value:
    (B, H, N, E). keys, values: (B, H, groups, ...), of the whole groups of the text. Queries are read `size` at a time,
    each with no more groups than lie before the last of them; scores are kept for the backward pass.
    """
    n, out = query.shape[2], []
    for first in range(0, n, size):
        rows = slice(first, min(first + size, n))
        m = (start + rows.stop - 1) // stride  # groups before the last query's own
        own = torch.arange(start + rows.start, start + rows.stop, device=query.device) // stride
        hidden = own[:, None] <= torch.arange(m, device=query.device)
        past = (query[:, :, rows] @ keys[:, :, :m].mT).masked_fill(hidden, -torch.inf)
        itself = (query[:, :, rows] * key[:, :, rows]).sum(-1, keepdim=True)
        weights = torch.cat([past, itself], -1).softmax(-1)
        out.append(weights[..., :m] @ values[:, :, :m] + weights[..., m:] * value[:, :, rows])
    return torch.cat(out, 2)
