"""Summarizers: decoders that read input and summary as one text, and two models that read them separately.

All take the input `source` (B, L), padded with zeros, its `lengths` (B,), and `ids` (B, T): separator, then summary.
They return logits (B, T, V) for the token after each of `ids`.
"""

from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repro.attention import Causal, Full
from repro.checked import checked
from repro.configs import Dropout, Positive, config
from repro.hf_compat import cache_argument, cache_in
from repro.ids import check_ids, check_lengths, embedded, same_batch, tied_output
from repro.models.decoder import Layer, LayersConfig, sinusoids


class Read(NamedTuple):
    """The output for a batch: logits for the summary, logits for the input (None unless a decoder reads both), and the
    loss that keeps experts in use."""

    logits: Tensor  # (B, T, V)
    source: Tensor | None  # (B, L, V): after each token of the input; the separator follows the last one
    balance: Tensor | float


@checked
class OneText(nn.Module):
    """A decoder that reads input, separator and summary as one text (T-D, section 4.2.3): a `Decoder`, a `TDMCA` or
    a `Pretrained`.

    >>> from repro.attention import Causal
    >>> model = OneText(Decoder(DecoderConfig(9, 8, 2, (Causal(),))))
    >>> source, summary = torch.tensor([[3, 4, 5]]), torch.tensor([[0, 6, 7]])
    >>> model(source, torch.tensor([3]), summary).shape
    torch.Size([1, 3, 9])
    """

    def __init__(self, decoder: nn.Module):
        super().__init__()
        self.decoder, self.config = decoder, decoder.config

    def forward(self, source: Tensor, lengths: Tensor, ids: Tensor) -> Tensor:
        return self.read(source, lengths, ids).logits

    def read(self, source: Tensor, lengths: Tensor, ids: Tensor, id_lengths: Tensor | None = None) -> Read:
        """The output for summary and input. A summary directly follows its input, even if inputs differ in length.

        id_lengths (B,): how many of `ids` are not padding; experts are then balanced over real tokens only. None:
        padding counts, too.
        """
        check_pair(source, lengths, ids)
        rows = torch.arange(ids.shape[1], device=ids.device) + lengths[:, None]  # the positions of `ids`
        text = F.pad(source, (0, ids.shape[1])).scatter(1, rows, ids)
        there = ()
        if id_lengths is not None and hasattr(self.decoder, "balance"):
            there = (torch.arange(text.shape[1], device=ids.device) < (lengths + id_lengths)[:, None],)
        logits = self.decoder(text, *there)
        shown = logits.gather(1, rows[..., None].expand(-1, -1, logits.shape[2]))
        return Read(shown, logits[:, :source.shape[1]], getattr(self.decoder, "balance", 0.0))


@checked
class Pretrained(nn.Module):
    """A GPT-2 (`transformers`) as the decoder of a `OneText`: token ids (B, N), N at most its context, to logits.

    >>> model = OneText(Pretrained(gpt2_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9)))
    >>> model(torch.tensor([[3, 4, 5]]), torch.tensor([3]), torch.tensor([[0, 6, 7]])).shape
    torch.Size([1, 3, 9])
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, ids: Tensor) -> Tensor:
        check_ids(ids, self.config.vocab_size, self.config.n_positions)
        return self.model(ids, use_cache=False).logits

    @checked
    def extend(self, ids: Tensor, past: "GPT2Past | None" = None) -> "tuple[Tensor, GPT2Past]":
        """Logits (B, V) for the token after `ids` (B, T), which follow the tokens in `past`; and the extended past."""
        read = past.cache.get_seq_length() if past else 0
        check_ids(ids, self.config.vocab_size, self.config.n_positions - read)
        output = self.model(ids, **cache_argument(past.cache if past else None), use_cache=True)
        return output.logits[:, -1], GPT2Past(cache_in(output))


class GPT2Past(NamedTuple):
    """The cache of `Pretrained`: a cache of transformers, which changes in place."""

    cache: Any

    def select(self, rows: list[int]) -> "GPT2Past":
        """Like `repro.models.past.Past.select`, but changes this cache in place."""
        self.cache.reorder_cache(torch.tensor(rows))
        return self


@config
class EncoderDecoderConfig:
    """Size of an `EncoderDecoder`: n_layer layers in the encoder and in the decoder.

    Raises ReproError for sizes that do not match.

    >>> EncoderDecoderConfig(vocab_size=9, n_embd=8, n_head=2, n_layer=1).parameters
    2225
    """

    vocab_size: Positive
    n_embd: Positive
    n_head: Positive
    n_layer: Positive
    dropout: Dropout = 0.0
    position_size: Positive | None = None

    def __post_init__(self):
        _ = self.encoder  # raises ReproError for sizes that do not match

    @property
    def encoder(self) -> LayersConfig:
        """The encoder layers; those of the decoder also attend to the input."""
        return LayersConfig(self.vocab_size, self.n_embd, self.n_head, (Full(),) * self.n_layer, self.dropout,
                            self.position_size)

    @property
    def parameters(self) -> int:
        """All weights."""
        across = self.n_layer * (4 * self.n_embd + 2) * self.n_embd
        embedding = (self.vocab_size + 2) * self.n_embd  # and the norm
        return 2 * self.encoder.parameters - embedding + 2 * self.n_embd + across + self.vocab_size

    def flops(self, n: int, target: int) -> float:
        """Floating-point operations of the forward pass for an input of n tokens and a summary of `target` tokens,
        counted as in `LayersConfig.flops_per_token`."""
        read = self.encoder.flops_per_token(n) * n
        own = LayersConfig(self.vocab_size, self.n_embd, self.n_head, (Causal(),) * self.n_layer,
                           position_size=self.position_size).flops_per_token(target) * target
        across = self.n_layer * (2 * 2 * self.n_embd**2 * (n + target) + 4 * self.n_embd * n * target)
        return read + own + across + 2 * self.n_embd * self.vocab_size * target

    def to_dict(self) -> dict:
        """All fields, for comparing settings."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@checked
class EncoderDecoder(nn.Module):
    """T-ED: an encoder reads the input in both directions, and a decoder writes the summary, attending to the encoder
    (Vaswani et al. 2017). Layers as in `Decoder`, with relative positions inside each text and none between them.

    >>> model = EncoderDecoder(EncoderDecoderConfig(vocab_size=9, n_embd=8, n_head=2, n_layer=1))
    >>> model(torch.tensor([[3, 4, 5]]), torch.tensor([3]), torch.tensor([[0, 6, 7]])).shape
    torch.Size([1, 3, 9])
    """

    def __init__(self, config: EncoderDecoderConfig, implementation: str = "auto", recompute: bool = False):
        super().__init__()
        self.config, self.implementation, self.recompute = config, implementation, recompute
        stack = config.encoder
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.encoder = nn.ModuleList(Layer(stack, (Full(),) * config.n_head) for _ in range(config.n_layer))
        self.layers = nn.ModuleList(Looking(stack) for _ in range(config.n_layer))
        self.norm_source, self.norm = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.dropout = nn.Dropout(config.dropout)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, source: Tensor, lengths: Tensor, ids: Tensor) -> Tensor:
        check_pair(source, lengths, ids)
        return self.decode(self.encode(source, lengths), lengths, ids)

    def read(self, source: Tensor, lengths: Tensor, ids: Tensor, id_lengths: Tensor | None = None) -> Read:
        """The output for the summary only."""
        return Read(self(source, lengths, ids), None, 0.0)

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        """The encoding of the input (B, L, n_embd)."""
        x = self.dropout(embedded(self.embed, source, name="source"))
        check_lengths(lengths, source)
        waves, there = sinusoids(source.shape[1], self.config.encoder.n_waves).to(x), within(source, lengths)
        for layer in self.encoder:
            x = layer(x, waves, self.implementation, there)
        return self.norm_source(x)

    def decode(self, memory: Tensor, lengths: Tensor, ids: Tensor) -> Tensor:
        """Logits (B, T, V), given the result of the encoder."""
        x = self.dropout(embedded(self.embed, ids))
        waves, there = sinusoids(ids.shape[1], self.config.encoder.n_waves).to(x), within(memory, lengths)
        for layer in self.layers:
            x = layer(x, waves, self.implementation, memory, there)
        return tied_output(self.norm(x), self.embed, self.bias)


class Looking(Layer):
    """A causal layer that attends to the encoder's states between its self-attention and its feedforward network."""

    def __init__(self, config: LayersConfig):
        super().__init__(config, (Causal(),) * config.n_head)
        self.n_head = config.n_head
        self.norm_across = nn.LayerNorm(config.n_embd)
        self.query, self.key, self.value, self.out = (
            nn.Linear(config.n_embd, config.n_embd, bias=False) for _ in range(4))

    def forward(self, x: Tensor, waves: Tensor, implementation: str, memory: Tensor, there: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm_1(x), waves, implementation))
        x = x + self.dropout(self.across(self.norm_across(x), memory, there, implementation))
        return x + self.dropout(self.outer(F.gelu(self.inner(self.norm_2(x)))))

    def across(self, x: Tensor, memory: Tensor, there: Tensor, implementation: str) -> Tensor:
        """Attention of x (B, T, n_embd) to the encoder's states (B, L, n_embd), where `there` (B, L) is True."""
        query, key, value = (layer(part).unflatten(2, (self.n_head, -1)).transpose(1, 2) for layer, part in (
            (self.query, x), (self.key, memory), (self.value, memory)))
        if implementation in ("products", "rows"):  # plain products, as in `repro.attention.products`
            scores = (query @ key.mT) * query.shape[3]**-0.5
            seen = scores.masked_fill(~there[:, None, None], -torch.inf).softmax(-1).to(value.dtype) @ value
        else:
            seen = F.scaled_dot_product_attention(query, key, value, there[:, None, None])
        return self.out(seen.transpose(1, 2).flatten(2))


@config
class Seq2SeqConfig:
    """Size of a `Seq2Seq`. Raises ReproError for sizes below 1.

    >>> Seq2SeqConfig(vocab_size=9, n_embd=8).parameters
    2585
    """

    vocab_size: Positive
    n_embd: Positive = 128
    n_layer: Positive = 2
    dropout: Dropout = 0.0

    @property
    def parameters(self) -> int:
        """All weights."""
        d = self.n_embd
        return 2 * self.n_layer * (8 * d + 8) * d + 3 * d * d + d + (self.vocab_size * (d + 1))

    def flops(self, n: int, target: int) -> float:
        """Floating-point operations of the forward pass for an input of n tokens and a summary of `target` tokens."""
        d = self.n_embd
        return (2 * 8 * self.n_layer * d * d * (n + target) + 2 * 3 * d * d * target + 4 * d * n * target
                + 2 * d * self.vocab_size * target)

    def to_dict(self) -> dict:
        """All fields, for comparing settings."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@checked
class Seq2Seq(nn.Module):
    """A recurrent encoder and decoder (LSTM) with attention (Bahdanau et al. 2015, as in Luong et al. 2015).

    >>> model = Seq2Seq(Seq2SeqConfig(vocab_size=9, n_embd=8))
    >>> model(torch.tensor([[3, 4, 5]]), torch.tensor([3]), torch.tensor([[0, 6, 7]])).shape
    torch.Size([1, 3, 9])
    """

    def __init__(self, config: Seq2SeqConfig):
        super().__init__()
        d = config.n_embd
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, d)
        between = config.dropout if config.n_layer > 1 else 0.0
        self.encoder = nn.LSTM(d, d, config.n_layer, batch_first=True, dropout=between)
        self.recurrent = nn.LSTM(d, d, config.n_layer, batch_first=True, dropout=between)
        self.match = nn.Linear(d, d, bias=False)
        self.mix = nn.Linear(2 * d, d)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.dropout = nn.Dropout(config.dropout)
        nn.init.normal_(self.embed.weight, std=0.1)

    def forward(self, source: Tensor, lengths: Tensor, ids: Tensor) -> Tensor:
        check_pair(source, lengths, ids)
        return self.decode(self.encode(source, lengths), lengths, ids)

    def read(self, source: Tensor, lengths: Tensor, ids: Tensor, id_lengths: Tensor | None = None) -> Read:
        """The output for the summary only."""
        return Read(self(source, lengths, ids), None, 0.0)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The states of all tokens of the input, and the final state, from which the decoder starts."""
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

        x = self.dropout(embedded(self.embed, source, name="source"))
        check_lengths(lengths, source)
        packed = pack_padded_sequence(x, lengths.cpu(), True, False)
        states, last = self.encoder(packed)
        return pad_packed_sequence(states, True, total_length=source.shape[1])[0], last

    def decode(self, memory: tuple[Tensor, tuple[Tensor, Tensor]], lengths: Tensor, ids: Tensor) -> Tensor:
        """Logits (B, T, V), given the result of the encoder."""
        states, last = memory
        x, _ = self.recurrent(self.dropout(embedded(self.embed, ids)), last)
        scores = self.match(x) @ states.mT
        hidden = ~within(states, lengths)[:, None]
        seen = scores.masked_fill(hidden, -torch.inf).softmax(-1).to(states.dtype) @ states
        return tied_output(self.dropout(self.mix(torch.cat([x, seen], -1)).tanh()), self.embed, self.bias)


def check_pair(source: Tensor, lengths: Tensor, ids: Tensor) -> None:
    """Raise ReproError unless these are inputs (B, L), their lengths (B,) and summary prefixes (B, T)."""
    check_ids(source, name="source")
    check_ids(ids)
    same_batch(source=source, ids=ids)
    check_lengths(lengths, source)


def within(source: Tensor, lengths: Tensor) -> Tensor:
    """(B, L) bool: which tokens of each row of `source` belong to its input."""
    return torch.arange(source.shape[1], device=source.device) < lengths[:, None]
