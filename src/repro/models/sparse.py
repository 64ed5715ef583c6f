"""The Sparse Transformer: a deep decoder of factorised attention (Child et al. 2019, sections 4.3 and 5).

It has pre-activation residual blocks whose initial output weights shrink with depth, and learned position embeddings
for the data or for the attention pattern. Attention and feedforward layers can be recomputed in the backward pass.
"""

from collections.abc import Callable
from dataclasses import fields
from math import prod, sqrt
from typing import Any, Literal

import torch
from pydantic import InstanceOf
from torch import Tensor, nn

from repro.attention import Causal, Fixed, Pattern, attend
from repro.attention.products import products
from repro.checked import checked
from repro.configs import Dropout, Positive, Tuple, config
from repro.errors import ReproError, check_whole, unknown
from repro.ids import check_ids, check_temperature, drawn, embedded, evaluating, what
from repro.models.decoder import check_causal
from repro.recompute import recomputed

INTEGRATIONS = ("interleaved", "merged", "multi-head")
EMBEDDINGS = ("data", "attention")
INIT = 0.125  # standard deviation of an initial weight, times the root of its number of inputs (Appendix)


@checked
def integrated(pattern: Pattern, integration: str, n_layer: int, n_head: int) -> tuple[tuple[Pattern, ...], ...]:
    """The pattern of every head of every layer, from the bottom (section 4.2).

    If `pattern` has p parts, its `.heads`, integration says which head uses which. "interleaved": all heads of layer r
    use part r mod p. "merged": every head uses the union. "multi-head": the heads of a layer take turns. Heads with
    summaries use different sub-blocks (section 4.3). A pattern without `.heads`, such as Causal(), is used by all
    heads. Raises ReproError for an unknown integration, and for too few layers or heads to use all parts.

    >>> from repro.attention import Strided
    >>> layers = integrated(Strided(4), "interleaved", n_layer=3, n_head=1)
    >>> [layer[0].count(16) for layer in layers]
    [58, 40, 58]
    """
    if integration not in INTEGRATIONS:
        raise unknown("integration", integration, INTEGRATIONS)
    check_whole(n_layer, "n_layer")
    check_whole(n_head, "n_head")
    p = len(getattr(pattern, "heads", (pattern,)))
    for name, n, needed in (("interleaved", n_layer, "layers"), ("multi-head", n_head, "heads")):
        if integration == name and n < p:
            raise ReproError(f"integration is {name} with {n} {needed}; a pattern of {p} parts needs at least {p} of "
                             "them, or some would be left out: use more, or integration='merged'.")

    def layer(r: int) -> tuple[Pattern, ...]:
        own = [pattern] * n_head
        if isinstance(pattern, Fixed) and n_head > 1:
            own = [Fixed(pattern.stride, pattern.summary, _sub_block(pattern, head, integration))
                   for head in range(n_head)]
        if integration == "merged" or not hasattr(pattern, "heads"):
            return tuple(own)
        return tuple(one.heads[(r if integration == "interleaved" else head) % p] for head, one in enumerate(own))
    return tuple(layer(r) for r in range(n_layer))


def _sub_block(pattern: Fixed, head: int, integration: str) -> int:
    """The sub-block of a head: the next one for every head with summaries; with "multi-head", every p-th head."""
    turn = head // len(pattern.heads) if integration == "multi-head" else head
    return (pattern.sub_block + turn) % (pattern.stride // pattern.summary)


@config
class SparseConfig:
    """Size and patterns of a `SparseTransformer`. Raises ReproError for settings that do not match.

    embeddings: position embeddings, "data" (row, column and channel of an image, whose sizes are `shape`; for a
    sequence without a shape, its one index) and "attention" (row and column in a matrix). columns: the width of that
    matrix; None: the pattern's stride or, if it has none, about the square root of the length.

    >>> from repro.attention import Strided
    >>> SparseConfig(vocab_size=9, length=16, n_layer=2, n_head=2, n_embd=8, pattern=Strided(4)).parameters
    1977
    """

    vocab_size: Positive
    length: Positive  # maximum number of positions
    n_layer: Positive
    n_head: Positive
    n_embd: Positive
    pattern: InstanceOf[Pattern] = Causal()  # noqa: RUF009  (frozen)
    integration: Literal[*INTEGRATIONS] = "merged"
    key_size: Positive | None = None  # of a head's query and key; None: n_embd / n_head; the paper's images: half
    inner: Positive = 4  # width of the feedforward network, in multiples of n_embd; the paper's images: 2
    dropout: Dropout = 0.0  # only at the end of each residual branch
    embeddings: Tuple[Literal[*EMBEDDINGS]] = ("attention",)
    shape: Tuple[Positive] = ()
    columns: Positive | None = None
    scaled: bool = True  # scale initial output weights of both branches by 1 / sqrt(2 n_layer)

    def __post_init__(self):
        if self.n_embd % self.n_head:
            raise ReproError(f"n_embd is {self.n_embd} and n_head {self.n_head}; the width must be a multiple of the "
                             "heads.")
        stride = getattr(self.pattern, "stride", 1)
        if stride > self.length:
            raise ReproError(f"stride is {stride}, but a sequence has {self.length} positions; choose a stride "
                             f"of 1 to {self.length}, about {round(sqrt(self.length))}.")
        if self.shape and prod(self.shape) != self.length:
            raise ReproError(f"shape is {self.shape}, {prod(self.shape):,} numbers, but a sequence has {self.length:,} "
                             "positions; both need as many.")
        for layer, patterns in enumerate(self.patterns):
            check_causal(patterns, layer)

    @property
    def patterns(self) -> tuple[tuple[Pattern, ...], ...]:
        """The patterns per layer, from the bottom, one for each head."""
        return integrated(self.pattern, self.integration, self.n_layer, self.n_head)

    @property
    def of_key(self) -> int:
        """Number of features of a head's query and key."""
        return self.key_size or self.n_embd // self.n_head

    @property
    def tables(self) -> tuple[int, ...]:
        """Number of entries in each table of position embeddings."""
        data = (self.shape or (self.length,)) if "data" in self.embeddings else ()
        return data + ((-(-self.length // self.width), self.width) if "attention" in self.embeddings else ())

    @property
    def width(self) -> int:
        """Number of columns in the matrix of positions."""
        return self.columns or getattr(self.pattern, "stride", None) or max(1, round(sqrt(self.length)))

    @property
    def matrices(self) -> int:
        """Number of weights in the matrices of the layers."""
        return self.n_layer * self.n_embd * (2 * self.n_head * self.of_key + (2 + 2 * self.inner) * self.n_embd)

    @property
    def parameters(self) -> int:
        """Number of weights: matrices, biases and norms of the layers, embeddings, last norm, output layer."""
        small = self.n_layer * (2 * self.n_head * self.of_key + (7 + self.inner) * self.n_embd)
        return self.matrices + small + (2 * self.vocab_size + sum(self.tables) + 2) * self.n_embd + self.vocab_size

    def pairs_per_token(self, n: int) -> float:
        """(query, key) pairs of all layers and heads in a sequence of n positions, divided by n."""
        counts = {one: one.count(n) for one in {one for layer in self.patterns for one in layer}}
        return sum(counts[one] for layer in self.patterns for one in layer) / n

    def flops_per_token(self, n: int) -> float:
        """Floating-point operations of the forward pass per position, in a sequence of n: 2 for each weight, and 2 for
        each product in a score or in a weighted sum of values."""
        return (2 * self.matrices + 2 * self.n_embd * self.vocab_size
                + 2 * (self.of_key + self.n_embd // self.n_head) * self.pairs_per_token(n))

    def to_dict(self) -> dict:
        """All fields, for comparing settings."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@checked
class SparseTransformer(nn.Module):
    """Token ids (B, N) to logits (B, N, V); logits[:, i] predicts token i + 1, whose position in the data is i.

    implementation: one of `attend`, or "products", in the precision of autocast. recompute: store only the input of
    each residual branch and compute the rest again in the backward pass (section 5.4). Weights are initialized as in
    the paper, the output layer at 0, so that the first loss is log V.

    >>> from repro.attention import Strided
    >>> config = SparseConfig(vocab_size=9, length=16, n_layer=2, n_head=2, n_embd=8, pattern=Strided(4))
    >>> SparseTransformer(config)(torch.zeros(1, 16, dtype=torch.int64)).shape
    torch.Size([1, 16, 9])
    """

    def __init__(self, config: SparseConfig, implementation: str = "auto", recompute: bool = False):
        super().__init__()
        self.config, self.recompute = config, recompute
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.places = nn.ModuleDict({f"of_{k}": nn.Embedding(size, config.n_embd)
                                     for k, size in enumerate(config.tables)})
        self.layers = nn.ModuleList(Block(config, patterns) for patterns in config.patterns)
        self.norm = nn.LayerNorm(config.n_embd)
        self.output = nn.Linear(config.n_embd, config.vocab_size)
        self.implementation = implementation
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=INIT / sqrt(module.in_features))
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.embed.weight, std=INIT / sqrt(config.n_embd))
        for table in self.places.values():
            nn.init.normal_(table.weight, std=INIT / sqrt(config.n_embd * len(config.tables)))
        nn.init.zeros_(self.output.weight)
        if config.scaled:
            self.shrink_outputs()

    def shrink_outputs(self) -> None:
        """Output weights of both branches of every layer by 1 / sqrt(2 n_layer) (section 5.2)."""
        for block in self.layers:
            for branch in (block.attention, block.feedforward):
                branch.out.weight.data /= sqrt(2 * self.config.n_layer)

    @checked
    def forward(self, ids: Tensor, cache: "Cache | None" = None) -> Tensor:
        x = self.embedded(ids, 0 if cache is None else cache.filled)
        for number, layer in enumerate(self.layers):
            x = layer(x, self.implementation, self.recompute, None if cache is None else cache.appender(number))
        if cache is not None:
            cache.filled += ids.shape[1]
        return self.output(self.norm(x))

    def embedded(self, ids: Tensor, first: int = 0) -> Tensor:
        """(B, N, n_embd): the input of the first layer; `ids` have positions from `first` on.

        Raises ReproError for positions beyond `length`.
        """
        x = embedded(self.embed, ids)
        stop = first + ids.shape[1]
        if stop > self.config.length:
            raise ReproError(f"there are {stop:,} positions, but this model has embeddings for {self.config.length:,}; "
                             "cut the sequence, or give a model of another length.")
        for table, index in zip(self.places.values(), self.indices(first, stop, ids.device), strict=True):
            x = x + table(index)
        return x

    def indices(self, first: int, stop: int, device=None) -> list[Tensor]:
        """The entries in each table for the positions first .. stop - 1."""
        i, config, found = torch.arange(first, stop, device=device), self.config, []
        if "data" in config.embeddings:
            found += torch.unravel_index(i, config.shape or (config.length,))
        if "attention" in config.embeddings:
            found += [i // config.width, i % config.width]
        return found


class Block(nn.Module):
    """Attention, then the feedforward network, each added to its input."""

    def __init__(self, config: SparseConfig, patterns: tuple[Pattern, ...]):
        super().__init__()
        self.attention, self.feedforward = Attention(config, patterns), Feedforward(config)

    def forward(self, x: Tensor, implementation: str, recompute: bool, cache=None) -> Tensor:
        x = x + recomputed(recompute, self.attention, x, implementation, cache)
        return x + recomputed(recompute, self.feedforward, x)


class Attention(nn.Module):
    """The attention branch: norm, attention of every head by its own pattern, output weights, dropout."""

    def __init__(self, config: SparseConfig, patterns: tuple[Pattern, ...]):
        super().__init__()
        self.patterns = patterns
        self.norm = nn.LayerNorm(config.n_embd)
        keys = config.n_head * config.of_key
        self.sizes = keys, keys, config.n_embd
        self.project = nn.Linear(config.n_embd, sum(self.sizes))
        self.out = nn.Linear(config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, implementation: str, cache=None) -> Tensor:
        heads = len(self.patterns)
        query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2)
                             for part in self.project(self.norm(x)).split(self.sizes, -1))
        if cache is not None:
            key, value = cache(key, value)
            implementation = "auto"  # lets `attend` read only the keys that a late query sees
        if implementation == "products":
            seen = products(query, key, value, self.patterns, query.shape[-1] ** -0.5)
        else:
            wide = query.dtype if x.is_cuda else torch.promote_types(query.dtype, torch.float32)
            seen = attend(query.to(wide), key.to(wide), value.to(wide), self.patterns, implementation)
        return self.dropout(self.out(seen.transpose(1, 2).flatten(2).to(x.dtype)))


class Feedforward(nn.Module):
    """The feedforward branch: norm, two layers with x * sigmoid(1.702 x) between them, dropout (section 5.2)."""

    def __init__(self, config: SparseConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.n_embd)
        self.inner = nn.Linear(config.n_embd, config.inner * config.n_embd)
        self.out = nn.Linear(config.inner * config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(self.norm(x))
        return self.dropout(self.out(x * torch.sigmoid(1.702 * x)))


class Cache:
    """A cache of the keys and values of all positions read so far."""

    def __init__(self, model: SparseTransformer, batch: int):
        config, weight = model.config, model.embed.weight
        self.filled = 0
        self.parts = [tuple(weight.new_empty(batch, config.n_head, config.length, size)
                            for size in (config.of_key, config.n_embd // config.n_head)) for _ in model.layers]

    def appender(self, layer: int):
        """A function that adds the keys and values of new positions and returns all of them."""
        def added(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            stop = self.filled + key.shape[2]
            for kept, new in zip(self.parts[layer], (key, value), strict=True):
                kept[:, :, self.filled:stop] = new
            return tuple(kept[:, :, :stop] for kept in self.parts[layer])
        return added


@checked
@torch.no_grad()
def sample(model: SparseTransformer, ids: Tensor, n_new: int, seed: int = 0, temperature: float = 1.0,
           allowed: Tensor | None = None, progress: Callable[[int], Any] | None = None) -> Tensor:
    """(B, K + n_new): `ids` (B, K), K at least 1, and tokens sampled after them, one position at a time.

    temperature: 1.0 in the paper, with no other tricks. allowed (V,) bool: which tokens may be sampled; None: all.
    Raises ReproError for more positions than the model has, unknown ids, a number of tokens below 0, a
    temperature that is not above 0, and `allowed` of another shape or without a token.

    >>> model = SparseTransformer(SparseConfig(vocab_size=9, length=8, n_layer=1, n_head=2, n_embd=8))
    >>> sample(model, torch.tensor([[3, 4]]), n_new=6, seed=1)[0, :2]
    tensor([3, 4])
    """
    check_ids(ids, model.config.vocab_size)
    check_whole(n_new, "n_new", 0)
    check_whole(seed, "seed", 0)
    if ids.shape[1] - 1 + n_new > model.config.length:
        raise ReproError(f"{ids.shape[1]} given and {n_new:,} sampled tokens are more than the {model.config.length:,} "
                         "positions of this model; draw fewer.")
    check_temperature(temperature)
    if allowed is not None and (not isinstance(allowed, Tensor) or allowed.dtype != torch.bool or
                                allowed.shape != (model.config.vocab_size,) or not allowed.any()):
        raise ReproError(f"allowed is {what(allowed)}; give a bool for each of the {model.config.vocab_size:,} tokens, "
                         "True for at least one.")
    generator = torch.Generator(ids.device).manual_seed(seed)
    cache, out = Cache(model, len(ids)), [ids]
    with evaluating(model):
        for _ in range(n_new):
            logits = model(out[-1], cache)[:, -1]
            if allowed is not None:
                logits = logits.masked_fill(~allowed, -torch.inf)
            out.append(drawn(logits, temperature, generator))
            if progress is not None:
                progress(1)
    return torch.cat(out, 1)
