"""GPT and GPT-2: decoders with learned positions and a tied output layer (Radford et al. 2018, section 4.1; 2019, 2.3).

They differ in the position of the norms. GPT normalizes the sum of each branch and its input. GPT-2 moves the norm to
the input of the branch, adds one after the last layer, and starts the last weights of each branch smaller, so that the
sum of the N branches does not grow with depth.
"""

from dataclasses import fields
from math import sqrt
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repro.attention import Causal, attend
from repro.attention.products import products
from repro.bf16 import has_bf16
from repro.checked import checked
from repro.configs import Dropout, Positive, config
from repro.errors import ReproError, unknown
from repro.ids import check_size, embedded
from repro.recompute import recomputed

NORMS = ("post", "pre")  # GPT's, GPT-2's
INIT = 0.02  # standard deviation of an initial weight
Kept = tuple[Tensor, Tensor]  # keys and values of a layer, each (B, H, N, D)


@config
class GPTConfig:
    """Size of a `GPT`. Raises ReproError for sizes that do not match.

    norm: "pre" (GPT-2) or "post" (GPT). dropout: of embeddings, attention weights and residual branches.

    >>> GPTConfig(vocab_size=9, n_positions=64, n_layer=2, n_embd=8, n_head=2).parameters
    2344
    >>> GPTConfig(vocab_size=9, n_positions=64, n_layer=2, n_embd=8, n_head=3)
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: n_embd is 8 and n_head 3; the width must be a multiple of the heads.
    """

    vocab_size: Positive
    n_positions: Positive
    n_layer: Positive
    n_embd: Positive
    n_head: Positive
    norm: Literal[*NORMS] = "pre"
    dropout: Dropout = 0.0

    def __post_init__(self):
        if self.n_embd % self.n_head:
            raise ReproError(f"n_embd is {self.n_embd} and n_head {self.n_head}; the width must be a multiple of the "
                             "heads.")

    @property
    def matrices(self) -> int:
        """Number of weights in the matrices of the layers."""
        return 12 * self.n_layer * self.n_embd**2

    @property
    def parameters(self) -> int:
        """Number of weights: matrices, biases and norms of the layers, embeddings, and any last norm."""
        last = 2 * self.n_embd * (self.norm == "pre")
        return self.matrices + (13 * self.n_layer + self.vocab_size + self.n_positions) * self.n_embd + last

    def flops_per_token(self, n: int) -> float:
        """Floating-point operations of the forward pass per token, in a sequence of n: 2 for each weight of a matrix,
        including the output layer, and 2 for each product in a score or in a weighted sum of values."""
        return 2 * (self.matrices + self.vocab_size * self.n_embd) + 2 * self.n_layer * self.n_embd * (n + 1)

    def to_dict(self) -> dict:
        """All fields, for comparing settings."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class _Sizes(dict):
    def __missing__(self, name: str):
        raise unknown("size", name, self)


# The released weights have these sizes. Table 2 of the 2019 paper prints 117, 345, 762 and 1,542 million, the counts of
# the same models with GPT's vocabulary of 40,478 ids.
SIZES = _Sizes({
    "openai-gpt": GPTConfig(40_478, 512, 12, 768, 12, "post", dropout=0.1),
    "gpt2": GPTConfig(50_257, 1024, 12, 768, 12),
    "gpt2-medium": GPTConfig(50_257, 1024, 24, 1024, 16),
    "gpt2-large": GPTConfig(50_257, 1024, 36, 1280, 20),
    "gpt2-xl": GPTConfig(50_257, 1024, 48, 1600, 25),
})


@checked
class GPT(nn.Module):
    """Token ids (B, N) to logits (B, N, V); logits[:, i] predicts token i + 1. N is at most `n_positions`.

    implementation: one of `attend`; "products", in the precision of autocast; or "auto", which chooses the faster:
    "products" for 16-bit numbers on a CPU with native 16-bit instructions, otherwise `attend`. recompute: store only
    the input of each layer and compute the rest again in the backward pass. Raises ReproError for texts without tokens
    or beyond the context, and on a CPU for unknown ids.

    >>> model = GPT(GPTConfig(vocab_size=9, n_positions=64, n_layer=2, n_embd=8, n_head=2))
    >>> model(torch.zeros(1, 20, dtype=torch.int64)).shape
    torch.Size([1, 20, 9])
    """

    hidden_then_output = True  # logits are output(hidden(ids)), so that callers can compute only some of them

    def __init__(self, config: GPTConfig, implementation: str = "auto", recompute: bool = False):
        super().__init__()
        self.config, self.implementation, self.recompute = config, implementation, recompute
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.places = nn.Embedding(config.n_positions, config.n_embd)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.n_embd) if config.norm == "pre" else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.output.weight = self.embed.weight
        shrunk = INIT / sqrt(2 * config.n_layer) if config.norm == "pre" else INIT
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=shrunk if name.endswith((".out.weight", ".outer.weight")) else INIT)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, ids: Tensor) -> Tensor:
        return self.output(self.hidden(ids))

    def hidden(self, ids: Tensor) -> Tensor:
        """The states (B, N, n_embd) after the last norm, the input of the output layer."""
        return self.read(embedded(self.embed, ids, self.config.n_positions))

    def read(self, x: Tensor) -> Tensor:
        """The states (B, N, n_embd) of already embedded tokens."""
        check_size(x, self.config.n_positions)
        return self._through(x, torch.arange(x.shape[1], device=x.device))[0]

    def read_branches(self, trunk: Tensor, branches: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """States of texts that share a beginning, the trunk, which is read only once: of the trunk and of each branch.

        trunk: (B, P, n_embd), the embedded beginnings; row b has lengths[b] tokens, right-aligned.
        branches: (B, S, T, n_embd), their continuations. Returns (B, P, n_embd) and (B, S, T, n_embd), equal to
        reading each text in full, except that all branches of a trunk share its dropout. Tokens beyond the context
        are treated as padding of branches, and their states are meaningless: callers must check.
        """
        many, (n, steps) = branches.shape[1], (trunk.shape[1], branches.shape[2])
        column = torch.arange(n, device=trunk.device) - (n - lengths)[:, None]
        real, seen = column >= 0, None
        if real.all():
            real = None
        else:
            seen = torch.cat([real, real.new_ones(len(trunk), steps)], 1).repeat_interleave(many, 0)
        trunk, kept = self._through(trunk, column.clamp(min=0), real, keep=True)
        before = [tuple(part.repeat_interleave(many, 0) for part in layer) for layer in kept]
        place = lengths[:, None] + torch.arange(steps, device=trunk.device)
        place = place.clamp(max=self.config.n_positions - 1).repeat_interleave(many, 0)  # positions beyond are padding
        states, _ = self._through(branches.flatten(0, 1), place, seen, before)
        return trunk, states.unflatten(0, (-1, many))

    def _through(self, x: Tensor, place: Tensor, key_mask: Tensor | None = None, before: list[Kept] | None = None,
                 keep: bool = False) -> tuple[Tensor, list[Kept]]:
        """The states of tokens at positions `place`; with `keep`, also the keys and values of all layers.

        before: keys and values of the preceding tokens. key_mask: (B, keys) bool, False for hidden keys.
        """
        x, kept = self.dropout(x + self.places(place)), []
        for number, layer in enumerate(self.layers):
            x, own = recomputed(self.recompute, layer, x, self.implementation, key_mask,
                                None if before is None else before[number])
            if keep:
                kept.append(own)
        return self.norm(x), kept

    @classmethod
    def from_transformers(cls, model, implementation: str = "auto", recompute: bool = False) -> "GPT":
        """A GPT with copies of the weights of a transformers `OpenAIGPTLMHeadModel` or `GPT2LMHeadModel`.

        It also has the model's dropout in residual branches and its training mode. Raises ReproError for another kind
        of model, and for settings that a `GPT` does not support, such as another activation or an untied output layer.
        """
        if not {"OpenAIGPTLMHeadModel", "GPT2LMHeadModel"} & {one.__name__ for one in type(model).__mro__}:
            raise ReproError(f"the model is a {type(model).__name__}; give an OpenAIGPTLMHeadModel or a "
                             "GPT2LMHeadModel.")
        made = cls(_config_of(model.config), implementation, recompute)
        theirs = model.transformer.wte if made.config.norm == "pre" else model.transformer.tokens_embed
        made = made.to(theirs.weight.device, theirs.weight.dtype)
        for ours, other in _pairs(made, model):
            ours.data.copy_(other.data)
        return made.train(model.training)

    def to_transformers(self):
        """This model as an `OpenAIGPTLMHeadModel` or `GPT2LMHeadModel` of transformers, with copies of the weights.

        Its config names no start or end token.
        """
        import transformers

        rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), self.config.dropout)
        sizes = {name: getattr(self.config, name) for name in ("vocab_size", "n_positions", "n_layer", "n_embd",
                                                               "n_head")}
        tokens = {"bos_token_id": None, "eos_token_id": None}
        if self.config.norm == "pre":
            made = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **rates, **tokens))
        else:
            made = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**sizes, **rates, **tokens))
        made = made.to(self.embed.weight.device, self.embed.weight.dtype)
        for ours, other in _pairs(self, made):
            other.data.copy_(ours.data)
        return made.train(self.training)


class Block(nn.Module):
    """Causal attention, then the feedforward network, each added to its input, with the norm before or after."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.norm_1, self.norm_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.project = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.out = nn.Linear(config.n_embd, config.n_embd)
        self.inner = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.outer = nn.Linear(4 * config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, implementation: str, key_mask: Tensor | None = None, before: Kept | None = None
                ) -> tuple[Tensor, Kept]:
        """The output for x (B, N, n_embd), and its keys and values; `before`: those of earlier tokens."""
        if self.config.norm == "pre":
            seen, own = self.attention(self.norm_1(x), implementation, key_mask, before)
            x = x + self.dropout(seen)
            return x + self.dropout(self.feedforward(self.norm_2(x))), own
        seen, own = self.attention(x, implementation, key_mask, before)
        x = self.norm_1(x + self.dropout(seen))
        return self.norm_2(x + self.dropout(self.feedforward(x))), own

    def feedforward(self, x: Tensor) -> Tensor:
        """Two layers with GELU between them, in the tanh form that both models were trained with."""
        return self.outer(F.gelu(self.inner(x), approximate="tanh"))

    def attention(self, x: Tensor, implementation: str, key_mask: Tensor | None, before: Kept | None
                  ) -> tuple[Tensor, Kept]:
        """Causal attention."""
        query, key, value = (part.unflatten(2, (self.config.n_head, -1)).transpose(1, 2)
                             for part in self.project(x).chunk(3, 2))
        own = key, value
        if before is not None:
            key, value = (torch.cat(parts, 2) for parts in zip(before, own, strict=True))
        dropout = self.config.dropout if self.training else 0.0
        on_cpu, half = query.device.type == "cpu", query.dtype in (torch.bfloat16, torch.float16)
        if implementation == "products" or implementation == "auto" and on_cpu and half and has_bf16():
            with torch.autocast(query.device.type, enabled=False):
                seen = products(query, key, value, (Causal(),) * self.config.n_head, query.shape[3]**-0.5, key_mask,
                                dropout)
        else:
            wide = torch.promote_types(query.dtype, torch.float32) if on_cpu else query.dtype
            implementation = implementation if before is None else "auto"  # some take only whole texts
            seen = attend(query.to(wide), key.to(wide), value.to(wide), Causal(), implementation, key_mask=key_mask,
                          dropout=dropout)
        return self.out(seen.transpose(1, 2).flatten(2).to(x.dtype)), own


PARTS = {"norm_1": "ln_1", "project": "attn.c_attn", "out": "attn.c_proj", "norm_2": "ln_2", "inner": "mlp.c_fc",
         "outer": "mlp.c_proj"}  # our names in a layer: transformers' names
ENDS = {"pre": {"embed": "wte", "places": "wpe", "norm": "ln_f"},
        "post": {"embed": "tokens_embed", "places": "positions_embed"}}
PLAIN = {"activation_function": ("gelu_new", "gelu_pytorch_tanh"), "afn": ("gelu", "gelu_new"),
         "layer_norm_epsilon": (1e-5,), "tie_word_embeddings": (True,), "scale_attn_weights": (True,),
         "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)}  # supported values


def _config_of(theirs) -> GPTConfig:
    """The size of a transformers model. Raises ReproError for settings that a `GPT` does not support."""
    norm = {"gpt2": "pre", "openai-gpt": "post"}[theirs.model_type]
    inner = 4 * theirs.n_embd
    for name, known in (PLAIN | {"n_inner": (None, inner)}).items():
        if (found := getattr(theirs, name, known[0])) not in known:
            raise ReproError(f"{name} of this {theirs.model_type} is {found}; a GPT supports only "
                             f"{' or '.join(map(str, known))}.")
    return GPTConfig(theirs.vocab_size, theirs.n_positions, theirs.n_layer, theirs.n_embd, theirs.n_head, norm,
                     float(theirs.resid_pdrop))


def _pairs(ours: GPT, theirs):
    """Pairs of our weights and those of a transformers model, which stores the matrices of its layers transposed."""
    names = {**ENDS[ours.config.norm], **{f"layers.{k}.{one}": f"h.{k}.{other}" for one, other in PARTS.items()
                                          for k in range(ours.config.n_layer)}}
    for name, weight in ours.named_parameters():
        module, _, kind = name.rpartition(".")
        other = theirs.transformer.get_parameter(f"{names[module]}.{kind}")
        yield weight, other.T if weight.ndim == 2 and module.startswith("layers.") else other
