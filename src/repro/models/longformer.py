"""Longformer, converted from RoBERTa or BERT (Beltagy et al. 2020, section 5) or loaded from transformers' checkpoints.

The weights have the names of transformers' LongformerForMaskedLM. The attention is ours, which needs no padding to a
multiple of the window and no full mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import (
    BertForMaskedLM,
    BertModel,
    LongformerConfig,
    LongformerForMaskedLM,
    RobertaForMaskedLM,
    RobertaModel,
)
from transformers.modeling_outputs import MaskedLMOutput

from repro.attention import Full, LongformerSelfAttention
from repro.checked import checked
from repro.checkpoints import load_whole, quietly
from repro.errors import ReproError, is_series, short, unknown
from repro.ids import check_ids, check_labels, check_targets
from repro.loss import cross_entropy
from repro.models.roberta_mini import load_masked_lm
from repro.recompute import recomputed

POSITIONS = ("copy", "random")
KEPT = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
        "hidden_dropout_prob", "attention_probs_dropout_prob", "type_vocab_size", "initializer_range", "layer_norm_eps",
        "pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings")  # of the base's config
BASES = (RobertaForMaskedLM, RobertaModel, BertForMaskedLM, BertModel)
HEADS = {"lm_head.": "lm_head.", "cls.predictions.transform.dense.": "lm_head.dense.",
         "cls.predictions.transform.LayerNorm.": "lm_head.layer_norm.", "cls.predictions.": "lm_head."}


@dataclass
class LongformerOutput(MaskedLMOutput):
    """The output of `Longformer`: loss, logits (B, N, V), and the last layer's states (B, N, d)."""

    last_hidden_state: Tensor | None = None


@checked
class Longformer(LongformerForMaskedLM):
    """A masked language model for long texts: a window around every token, and global tokens that see all tokens.

    `save_pretrained` and transformers' LongformerForMaskedLM can read each other's files.

    >>> from transformers import LongformerConfig
    >>> small = LongformerConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8, attention_window=[4])
    >>> Longformer(small)(torch.randint(4, 30, (1, 20))).logits.shape
    torch.Size([1, 20, 30])
    """

    def __init__(self, config: LongformerConfig):
        super().__init__(config)
        for layer in self.longformer.encoder.layer:
            layer.attention.self = LongformerSelfAttention.from_transformers(layer.attention.self)

    @classmethod
    def from_roberta(cls, roberta: RobertaForMaskedLM | str | Path, max_positions: int = 4096,
                     window: int | Sequence[int] = 512, positions: str = "copy") -> "Longformer":
        """`longformer_from` for a RobertaForMaskedLM, or the folder or hub name of one, which is read in float32.

        Raises ReproError as `longformer_from` does, and for a missing checkpoint.
        """
        base = load_masked_lm(roberta).eval() if isinstance(roberta, (str, Path)) else roberta
        if not isinstance(base, RobertaForMaskedLM):
            raise ReproError(f"roberta is a {type(base).__name__}; it must be a RobertaForMaskedLM, or the folder or "
                             "hub name of one.")
        return longformer_from(base, max_positions, window, positions)

    @classmethod
    def from_pretrained(cls, name_or_folder: str | Path, **kwargs) -> "Longformer":
        """Load a Longformer that this class or transformers saved, by its folder or hub name. Weights are fp32 unless
        `dtype` says otherwise. Raises ReproError for a checkpoint that is missing, of another kind, damaged or
        incomplete."""
        return load_whole(super().from_pretrained, "longformer", name_or_folder, "allenai/longformer-base-4096",
                          "Longformer.from_roberta converts one of roberta", **{"dtype": torch.float32} | kwargs)

    def save_pretrained(self, folder: str | Path, **kwargs) -> None:
        """Write the model as transformers does."""
        with quietly():
            super().save_pretrained(folder, **kwargs)

    def resize_token_embeddings(self, *arguments, **named) -> nn.Embedding:
        """Like transformers, but also resizes the second bias of a model with an untied output layer. In transformers
        it keeps the old size, so that the saved RobertaForMaskedLM or LongformerForMaskedLM does not load."""
        found = super().resize_token_embeddings(*arguments, **named)
        head = self.lm_head
        if head.bias.shape != head.decoder.bias.shape:
            head.bias = nn.Parameter(head.decoder.bias.detach().clone())
        return found

    @property
    def n_positions(self) -> int:
        """The largest number of tokens that a text can have."""
        return self.config.max_position_embeddings - self.config.pad_token_id - 1

    @checked
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None,
                global_attention_mask: Tensor | None = None, labels: Tensor | None = None,
                token_type_ids: Tensor | None = None, return_dict: bool | None = None,
                output_hidden_states: bool | None = None,
                output_attentions: bool | None = None) -> LongformerOutput | tuple[Tensor, ...]:
        """Logits (B, N, V) and states (B, N, d) of token ids (B, N), with any N up to `n_positions`.

        attention_mask (B, N): 0 for padding and, as in transformers, 2 for global tokens. global_attention_mask (B, N):
        1 for global tokens. token_type_ids (B, N): as tokenizers give them; None: 0. labels (B, N): the targets; -100
        is ignored; the loss is the mean over the others, in nats.
        return_dict: False for a tuple, as in transformers.
        Raises ReproError for a text beyond `n_positions`, masks or labels of another shape, labels outside the
        vocabulary or without a target, and requests for the hidden states or attentions of all layers, which are not
        stored.
        """
        for name, value in (("output_hidden_states", output_hidden_states), ("output_attentions", output_attentions)):
            if value:
                raise ReproError(f"{name} is {value}, but this Longformer stores none; remove it, or open the saved "
                                 "checkpoint with transformers' LongformerForMaskedLM.")
        states = self.encode(input_ids, attention_mask, global_attention_mask, token_type_ids)
        logits, loss = self.lm_head(states), None
        if labels is not None:
            check_labels(labels, self.config.vocab_size, input_ids)
            loss = cross_entropy(logits.flatten(0, 1), labels.flatten()) / check_targets(labels)
        if return_dict is False:
            return MaskedLMOutput(loss=loss, logits=logits).to_tuple()
        return LongformerOutput(loss=loss, logits=logits, last_hidden_state=states)

    @checked
    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None,
               global_attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None) -> Tensor:
        """The last layer's states (B, N, d), for any head; arguments and errors as in `forward`."""
        check_ids(input_ids, self.config.vocab_size, name="input_ids")
        if token_type_ids is not None:
            check_ids(token_type_ids, self.config.type_vocab_size, name="token_type_ids")
            if token_type_ids.shape != input_ids.shape:
                raise ReproError(f"token_type_ids have shape {tuple(token_type_ids.shape)}; give that of input_ids, "
                                 f"{tuple(input_ids.shape)}.")
        reached = input_ids.shape[1]
        if reached > self.n_positions:  # padding has no position
            reached = int((input_ids != self.config.pad_token_id).sum(1).max())
        if reached > self.n_positions:
            raise ReproError(f"the text has {reached} tokens, but this Longformer has {self.n_positions} positions; "
                             "give it at most that many, or convert with more max_positions.")
        if attention_mask is not None and attention_mask.shape == input_ids.shape:
            if (attention_mask > 1).any():
                more = attention_mask > 1
                global_attention_mask = more if global_attention_mask is None else more | (global_attention_mask > 0)
            if attention_mask.all():
                attention_mask = None  # nothing is hidden
        hidden = self.longformer.embeddings(input_ids, token_type_ids)
        again = self.training and self.longformer.encoder.gradient_checkpointing
        for layer in self.longformer.encoder.layer:
            hidden = recomputed(again, self._read, layer, hidden, attention_mask, global_attention_mask)
        return hidden

    def _read(self, layer, hidden: Tensor, attention_mask: Tensor | None, chosen: Tensor | None) -> Tensor:
        """One layer: attention, then feedforward, each with its residual and norm."""
        attended = layer.attention.output(layer.attention.self(hidden, attention_mask, chosen), hidden)
        return layer.output(layer.intermediate(attended), attended)

    def learn_positions_only(self, first: int) -> None:
        """Freeze all weights except the embeddings of positions from `first` on (counted from 0).

        Use an optimizer without weight decay, or the embeddings of the first positions would shrink.
        """
        self.requires_grad_(False)
        table = self.longformer.embeddings.position_embeddings.requires_grad_(True)
        table.__class__ = LaterPositions  # which has the same weights, and is copied with the model
        table.first = first + self.config.pad_token_id + 1


class LaterPositions(nn.Embedding):
    """An embedding whose rows before `first` get no gradient."""

    def forward(self, ids: Tensor) -> Tensor:
        found = super().forward(ids)
        return torch.where((ids >= self.first)[..., None], found, found.detach())


def longformer_from(model: nn.Module, max_positions: int = 4096, window: int | Sequence[int] | Full = 512,
                    positions: str = "copy") -> Longformer:
    """Convert a RoBERTa or BERT so that it reads up to `max_positions` tokens; training can continue from it.

    model: a RobertaForMaskedLM, RobertaModel, BertForMaskedLM or BertModel; it is not changed. A model without a head
    that predicts tokens gets a new one, tied to the embeddings. A pooler is left out.
    window: keys on both sides of a token together, an even number; one for all layers, or one per layer. `Full()`: all
    keys, as in the base; it is saved as a window over all positions.
    positions: "copy" lets position i have the row of position i mod P of the base, which has P; "random" draws the rows
    of all positions. All other weights keep their values. The global projections start as copies of the local ones.
    Positions count real tokens from the left, so padding must follow a text, as tokenizers of both models do.

    Raises ReproError for windows that are odd or do not match the layers, for `max_positions` below the base's, for an
    unknown `positions`, and for a model of another kind.

    >>> from transformers import BertConfig, BertModel
    >>> bert = BertModel(BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8, max_position_embeddings=16))
    >>> longformer_from(bert, max_positions=64, window=4).encode(torch.randint(1, 30, (1, 50))).shape
    torch.Size([1, 50, 8])
    """
    if not isinstance(positions, str) or positions not in POSITIONS:
        raise unknown("positions", positions, POSITIONS)
    _check_base(model)
    old = model.base_model.embeddings.position_embeddings.weight
    first = model.config.pad_token_id + 1  # the row of the first token
    unused = first if isinstance(model, (RobertaForMaskedLM, RobertaModel)) else 0  # rows of the base before its first
    known = len(old) - unused
    if not isinstance(max_positions, Integral):
        raise ReproError(f"max_positions is {max_positions!r:.40}; it must be a whole number.")
    if max_positions < known:
        raise ReproError(f"max_positions is {max_positions}, but the base already has {known}; give at least that "
                         "many.")
    everything = isinstance(window, Full)
    windows = windows_per_layer(2 * int(max_positions) if everything else window, model.config.num_hidden_layers)
    config = LongformerConfig(
        **{name: getattr(model.config, name) for name in KEPT}, sep_token_id=model.config.eos_token_id,
        max_position_embeddings=int(max_positions) + first, attention_window=windows)
    made = Longformer(config).to(old)
    table = old.new_zeros(len(made.longformer.embeddings.position_embeddings.weight), old.shape[1])
    table[:unused] = old[:unused].detach()
    table[first:] = old[unused + torch.arange(int(max_positions), device=old.device) % known].detach()
    if positions == "random":
        table[first:].normal_(std=config.initializer_range)
    weights = {f"longformer.{name}": weight for name, weight in model.base_model.state_dict().items()
               if not name.startswith("pooler.")} | _head(model)
    weights["longformer.embeddings.position_embeddings.weight"] = table
    missing, strange = made.load_state_dict(weights, strict=False)
    lost = [name for name in missing if "_global." not in name and not name.startswith("lm_head.")]
    assert not strange and not lost, (lost, strange)
    for layer in made.longformer.encoder.layer:
        layer.attention.self.copy_local_to_global()
        if everything:
            layer.attention.self.pattern = window
    return made.train(model.training)


def _check_base(model: object) -> None:
    """Raise ReproError unless a Longformer can use the weights of this model."""
    if not isinstance(model, BASES):
        raise ReproError(f"model is {short(model, 40) if isinstance(model, str) else 'a ' + type(model).__name__}; it "
                         f"must be one of {', '.join(kind.__name__ for kind in BASES)}.")
    if model.config.is_decoder:
        raise ReproError("model is a decoder, whose tokens do not see later ones; give one with is_decoder=False.")
    if model.config.pad_token_id is None:
        raise ReproError("model.config has no pad_token_id, which Longformer's positions count from; set it.")
    if (kind := getattr(model.config, "position_embedding_type", None)) not in (None, "absolute"):
        raise ReproError(f"model has {kind} positions; Longformer's are absolute, so give a model with those.")
    if isinstance(model, BertForMaskedLM) and model.config.hidden_act != "gelu":
        raise ReproError(f"the head of this BertForMaskedLM uses {model.config.hidden_act}, Longformer's always uses "
                         "gelu; give its `bert`, which has no head.")


def _head(model: nn.Module) -> dict[str, Tensor]:
    """The weights of the head that predicts tokens, by their names in Longformer."""
    found = {}
    for name, weight in model.state_dict().items():
        part = next((part for part in HEADS if name.startswith(part)), None)
        if part:
            found[HEADS[part] + name.removeprefix(part)] = weight
    return found


def windows_per_layer(window: int | Sequence[int], n_layer: int) -> list[int]:
    """One window for each layer."""
    plain = window.tolist() if hasattr(window, "tolist") else window  # numpy's and torch's numbers too
    each = list(plain) if is_series(plain) else [plain] * n_layer
    if len(each) != n_layer:
        raise ReproError(f"window is {each}, {len(each)} for {n_layer} layers; give one number, or one for each layer.")
    for one in each:
        if not isinstance(one, Integral) or one < 2 or one % 2:
            raise ReproError(f"window is {one!r}; it has half on each side of a token, so it must be an even "
                             "number of keys, at least 2.")
    return [int(one) for one in each]
