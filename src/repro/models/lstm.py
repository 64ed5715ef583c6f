"""The LSTM that GPT is compared with: one layer, a tied output layer (Radford et al. 2018, section 5)."""

from dataclasses import fields
from math import sqrt

import torch
from torch import Tensor, nn

from repro.checked import checked
from repro.configs import Dropout, Positive, config
from repro.ids import embedded
from repro.models.gpt import INIT, GPTConfig
from repro.models.unrolled import unrolled


@config
class LSTMConfig:
    """Size of an `LSTM`. Raises ReproError for sizes below 1.

    >>> LSTMConfig(vocab_size=9, n_embd=8, units=0)
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: units is 0; it must be at least 1.
    """

    vocab_size: Positive
    n_embd: Positive
    units: Positive  # 2,048 in the paper
    dropout: Dropout = 0.0  # of embeddings and of the outputs of the units

    @classmethod
    def as_large_as(cls, config: GPTConfig) -> "LSTMConfig":
        """The LSTM with the same vocabulary, width and dropout, and the closest number of weights, with units in
        multiples of 8.

        With units that are not a multiple of 8, a training step took a third longer.
        """
        linear = 5 * config.n_embd + 8  # solve 4 units^2 + linear units + constant = 0
        constant = (config.vocab_size + 1) * config.n_embd - config.parameters
        units = (-linear + sqrt(linear**2 - 16 * constant)) / 8
        return cls(config.vocab_size, config.n_embd, 8 * max(1, round(units / 8)), config.dropout)

    @property
    def parameters(self) -> int:
        """Number of weights: the embedding, four gates with two biases each, and the layer from units to the width."""
        gates = 4 * self.units * (self.n_embd + self.units + 2)
        return self.vocab_size * self.n_embd + gates + (self.units + 1) * self.n_embd

    def flops_per_token(self, n: int = 0) -> float:
        """Floating-point operations of the forward pass per token, at any length: 2 for each weight of a matrix."""
        return 2 * (4 * self.units * (self.n_embd + self.units) + (self.units + self.vocab_size) * self.n_embd)

    def to_dict(self) -> dict:
        """All fields, for comparing settings."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@checked
class LSTM(nn.Module):
    """Token ids (B, N) to logits (B, N, V); logits[:, i] predicts token i + 1. N has no limit.

    Every text starts from a zero state. Matrices are in an `nn.ModuleList`, like the blocks of transformers, so that
    the same optimizer trains them. Under autocast to bfloat16 on a CPU its products are rounded like a transformer's
    (`unrolled`); on a GPU the recurrence always runs in single precision.

    >>> model = LSTM(LSTMConfig(vocab_size=9, n_embd=8, units=16))
    >>> model(torch.zeros(1, 20, dtype=torch.int64)).shape
    torch.Size([1, 20, 9])
    """

    hidden_then_output = True  # logits are output(hidden(ids)), so that callers can compute only some of them

    def __init__(self, config: LSTMConfig):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.layers = nn.ModuleList([nn.LSTM(config.n_embd, config.units, batch_first=True),
                                     nn.Linear(config.units, config.n_embd)])
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.output.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=INIT)

    def forward(self, ids: Tensor) -> Tensor:
        return self.output(self.hidden(ids))

    def hidden(self, ids: Tensor) -> Tensor:
        """The states (B, N, n_embd), the input of the output layer."""
        return self.read(embedded(self.embed, ids))

    def read(self, x: Tensor) -> Tensor:
        """The states (B, N, n_embd) of already embedded tokens."""
        inputs, device = self.dropout(x), x.device.type
        halved = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.bfloat16
        if device == "cpu" and halved and x.dtype != torch.float64:
            states = unrolled(inputs, self.recurrent)
        else:
            with torch.autocast(device, enabled=False):
                states, _ = self.recurrent(inputs)
        return self.back(self.dropout(states))

    @property
    def recurrent(self) -> nn.LSTM:
        """The layer from embeddings to the states of the units."""
        return self.layers[0]

    @property
    def back(self) -> nn.Linear:
        """The layer from units to the width of an embedding."""
        return self.layers[1]
