"""An encoder that classifies documents: a window around every token, and a first token that sees all tokens.

Its layers are those of the decoder, with bidirectional patterns. Longformer gives the first token global
attention when it classifies (Beltagy et al. 2020, sections 3.1 and 6.3); here it has no separate projections.
Information from other windows reaches this token one layer later, so the windows of the last layer have no effect.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from repro.attention import Global, Pattern, SlidingWindow
from repro.checked import checked
from repro.configs import Positive, config
from repro.errors import check_whole
from repro.ids import check_lengths, embedded
from repro.models.decoder import Layer, LayersConfig, sinusoids


@config
class EncoderConfig(LayersConfig):
    """Size and patterns of an `Encoder`. Raises ReproError for sizes that do not match.

    >>> EncoderConfig(9, 8, 2, classifier_patterns(window=4, n_layer=2)).n_labels
    2
    """

    n_labels: Annotated[Positive, Field(ge=2)] = 2

    @property
    def parameters(self) -> int:
        """Number of weights, including the classifier."""
        return super().parameters + (self.n_embd + 1) * self.n_labels


@checked
class Encoder(nn.Module):
    """Documents (B, N) of token ids to logits (B, n_labels), predicted from the first token. N has no limit.

    lengths (B,): the number of tokens of each document; the rest is padding, which is masked. None: no padding.
    implementation: one of `attend`.

    >>> config = EncoderConfig(9, 8, 2, classifier_patterns(window=4, n_layer=2), n_labels=3)
    >>> Encoder(config)(torch.zeros(2, 50, dtype=torch.int64), lengths=torch.tensor([50, 20])).shape
    torch.Size([2, 3])
    """

    def __init__(self, config: EncoderConfig, implementation: str = "auto"):
        super().__init__()
        self.config, self.implementation = config, implementation
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.layers = nn.ModuleList(Layer(config, patterns) for patterns in config.patterns)
        self.norm = nn.LayerNorm(config.n_embd)
        self.classify = nn.Linear(config.n_embd, config.n_labels)
        self.dropout = nn.Dropout(config.dropout)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02 if name == "embed.weight" else config.n_embd**-0.5)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        x, n = self.dropout(embedded(self.embed, ids)), ids.shape[1]
        if lengths is not None:
            check_lengths(lengths, ids)
        known = None if lengths is None else torch.arange(n, device=ids.device) < lengths[:, None]
        waves = sinusoids(n, self.config.n_waves).to(x)
        for layer in self.layers:
            x = layer(x, waves, self.implementation, known)
        return self.classify(self.dropout(self.norm(x[:, 0])))


@checked
def classifier_patterns(window: int, n_layer: int) -> tuple[Pattern, ...]:
    """The patterns of every layer: a window of `window` keys, half on each side of a token, and a global first token.

    Raises ReproError for an odd window, one below 2, and fewer than one layer.

    >>> classifier_patterns(window=2, n_layer=1)[0].mask(4).int()
    tensor([[1, 1, 1, 1],
            [1, 1, 1, 0],
            [1, 1, 1, 1],
            [1, 0, 1, 1]], dtype=torch.int32)
    """
    check_whole(window, "window", 2, of="tokens")
    check_whole(n_layer, "n_layer")
    return (SlidingWindow(window, causal=False) | Global([0]),) * n_layer
