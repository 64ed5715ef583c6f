"""Pooling of one window's hidden states and the feedforward network that turns them into h_prev."""

from dataclasses import asdict
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repro.checked import checked
from repro.configs import Natural, Positive, config
from repro.errors import ReproError, check_whole
from repro.ids import what

POOLS = ("mean", "max", "attention")
LAYERS = ("learned", "last")
INSERTS = ("one", "every")
POSITIONS = ("all", "passed")


@config
class RecurrenceConfig:
    """The recurrence module's settings; defaults are those of the paper (section 3, Figure 2).

    insert_layer: index of the block, counted from 0 as in `transformer.h`, whose self-attention sees h_prev: 1 is the
    paper's second layer, as Equation 1 counts layers from 1.
    hidden_size, hidden_layers: width in units and number of the hidden layers of the feedforward network.
    pool: how the positions of a window become one vector: their "mean", their "max", or a mean weighted by "attention"
    with one learned key. layers: "learned" weights over all layers (Equation 1), or the "last" layer alone.
    n_embeddings: the number of vectors in h_prev. insert: "one" gives h_prev to `insert_layer` only, "every" to all
    layers. positions: pool "all" positions of a window, or only those "passed" when the next window starts; with
    overlapping windows, the others are read again there (footnote 3). zero_init: the last layer of the feedforward
    network starts at 0, so that a fresh module gives every window the same h_prev of zeros; not in the paper.
    residual: the pooled input of `insert_layer` is added to h_prev, which then looks like a token of the previous
    window, so that the layer can use it at once; not in the paper. normalize: the feedforward network reads pooled
    outputs divided by their root mean square, and its output is multiplied by the root mean square of the pooled input;
    needs residual, and is not in the paper. States with a few huge coordinates, such as Gemma's, then train at usual
    learning rates.

    >>> RecurrenceConfig(insert_layer=2).hidden_layers
    3
    >>> RecurrenceConfig(pool="sum")
    Traceback (most recent call last):
        ...
    repro.errors.ReproError: unknown pool 'sum'. Known: attention, max, mean.
    """

    insert_layer: Natural = 1
    hidden_size: Positive = 200
    hidden_layers: Positive = 3
    pool: Literal[*POOLS] = "mean"
    n_embeddings: Positive = 1
    insert: Literal[*INSERTS] = "one"
    layers: Literal[*LAYERS] = "learned"
    positions: Literal[*POSITIONS] = "all"
    zero_init: bool = False
    residual: bool = False
    normalize: bool = False

    def __post_init__(self) -> None:
        if self.normalize and not self.residual:
            raise ReproError("normalize=True scales h_prev to the input of its layer, which needs residual=True.")
        if self.residual and self.insert != "one":
            raise ReproError(f"residual adds the input of one layer, but insert is '{self.insert}'; use insert='one'.")

    def to_dict(self) -> dict:
        """The settings as plain values; the last three only if they are on, for compatibility with models saved before
        them."""
        later = ("zero_init", "residual", "normalize")
        return {name: value for name, value in asdict(self).items() if name not in later or value}


def check_settings(recurrence: object) -> None:
    """Raise ReproError unless the argument is a RecurrenceConfig or None."""
    if recurrence is not None and not isinstance(recurrence, RecurrenceConfig):
        raise ReproError(f"recurrence is a {type(recurrence).__name__}; give a RecurrenceConfig.")


def check_same(name_or_path: object, stored: dict, recurrence: RecurrenceConfig | None) -> None:
    """Raise ReproError if settings are given that a saved model does not have."""
    if recurrence is not None and recurrence != RecurrenceConfig(**stored):
        raise ReproError(f"{name_or_path} was saved with recurrence {stored}, not {recurrence.to_dict()}; leave the "
                         "argument out to use the saved one.")


@checked
class Recurrence(nn.Module):
    """z = sum_l w_l mean_t h_t^l with w = softmax over layers (Equation 1), then h_prev = feedforward(z).

    n_layer, d_model: of the base model. The output is `n_embeddings` vectors of width d_model, which are placed in the
    input of a layer like tokens.

    >>> module = Recurrence(RecurrenceConfig(hidden_size=4), n_layer=2, d_model=8)
    >>> module.layer_weights
    tensor([0.5000, 0.5000], grad_fn=<SoftmaxBackward0>)
    >>> h = [torch.randn(1, 5, 8) for _ in range(2)]
    >>> module(module.combine([module.pool(layer) for layer in h])).shape
    torch.Size([1, 1, 8])
    """

    def __init__(self, config: RecurrenceConfig, n_layer: int, d_model: int):
        super().__init__()
        check_whole(d_model, "d_model")
        check_whole(n_layer, "n_layer")
        if config.insert == "one" and config.insert_layer >= n_layer:
            raise ReproError(f"insert_layer is {config.insert_layer}, but the model has layers 0 to {n_layer - 1}.")
        self.config = config
        self.d_model = d_model
        self.n_layer = n_layer
        if config.layers == "learned":
            self.layer_scores = nn.Parameter(torch.zeros(n_layer))
        if config.pool == "attention":
            self.pooling_key = nn.Parameter(torch.zeros(d_model))
        widths = [d_model] + [config.hidden_size] * config.hidden_layers
        layers = [part for a, b in zip(widths, widths[1:], strict=False) for part in (nn.Linear(a, b), nn.GELU())]
        self.feedforward = nn.Sequential(*layers, nn.Linear(widths[-1], config.n_embeddings * d_model))

    def reset_parameters(self) -> None:
        """Equal weights for layers and positions; linear layers preserve the variance of their input (He et al. 2015).

        GPT-2's initialization (0.02) would leave almost nothing of z after four layers.
        """
        for name in ("layer_scores", "pooling_key"):
            if hasattr(self, name):
                nn.init.zeros_(getattr(self, name))
        for layer in self.feedforward:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)
        if self.config.zero_init:
            nn.init.zeros_(self.feedforward[-1].weight)

    @property
    def layer_weights(self) -> Tensor:
        """w (n_layer,): the weight of each layer's output in z; they sum to 1."""
        if self.config.layers == "last":
            return F.one_hot(torch.tensor(self.n_layer - 1), self.n_layer).to(next(self.parameters()))
        return self.layer_scores.softmax(0)

    def pool(self, hidden: Tensor, stride: int | None = None, real: Tensor | None = None) -> Tensor:
        """One vector (B, d_model) for a layer's output in one window (B, T, d_model).

        stride: tokens from this window's start to the next one's, which are those "passed"; None: the whole window.
        real (B, T): False for padding, which is ignored; None: no padding.
        """
        if self.config.positions == "passed":
            hidden, real = hidden[:, :stride], real if real is None else real[:, :stride]
        if self.config.pool == "max":
            return (hidden if real is None else hidden.masked_fill(~real[..., None], -torch.inf)).amax(1)
        if self.config.pool == "attention":
            scores = hidden @ self.pooling_key / self.d_model**0.5
            weights = (scores if real is None else scores.masked_fill(~real, -torch.inf)).softmax(1)
            return torch.einsum("bt,btd->bd", weights, hidden)
        if real is None:
            return hidden.mean(1)
        return (hidden * real[..., None]).sum(1) / real.sum(1, keepdim=True)

    def combine(self, pooled: list[Tensor]) -> Tensor:
        """z (B, d_model) from the result of `pool` for each layer."""
        layers = torch.stack(pooled)
        if self.config.normalize:
            layers = layers / rms(layers)
        return torch.einsum("l,lbd->bd", self.layer_weights, layers)

    def state(self, pooled: list[Tensor], layer_input: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """The state that a window leaves to the next: z, or with `residual` a pair of z and `layer_input`."""
        z = self.combine(pooled)
        return (z, layer_input) if self.config.residual else z

    def h_prev(self, state: Tensor | tuple[Tensor, Tensor] | None) -> Tensor | None:
        """h_prev (B, n_embeddings, d_model) from the result of `state`; None in the first window."""
        if state is None:
            return None
        return self(*state) if isinstance(state, tuple) else self(state)

    def forward(self, z: Tensor, layer_input: Tensor | None = None) -> Tensor:
        """h_prev (B, n_embeddings, d_model) from z (B, d_model). layer_input (B, d_model): with `residual`, the pooled
        input of `insert_layer` in the window before."""
        if not isinstance(z, Tensor) or z.shape[1:] != (self.d_model,) or not z.is_floating_point():
            raise ReproError(f"z is {what(z)}; give floats of shape (B, {self.d_model}).")
        if (layer_input is not None) != self.config.residual:
            raise ReproError(f"layer_input is {what(layer_input)}; it is needed with residual=True, and only there.")
        h_prev = self.feedforward(z).unflatten(-1, (self.config.n_embeddings, self.d_model))
        if layer_input is None:
            return h_prev
        return layer_input[:, None] + (h_prev * rms(layer_input)[:, None] if self.config.normalize else h_prev)


def rms(x: Tensor) -> Tensor:
    """The root mean square over the last dimension, which stays with size 1."""
    squares = x.to(torch.promote_types(x.dtype, torch.float32)).square()
    return squares.mean(-1, keepdim=True).sqrt().clamp_min(1e-6).to(x.dtype)
