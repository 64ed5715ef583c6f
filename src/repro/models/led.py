"""LED: a Longformer encoder and a full decoder, for summaries of long texts (Beltagy et al. 2020, section 7).

The weights have the names of transformers' LEDForConditionalGeneration, whose decoder and generation it uses. The
encoder's attention is ours, which needs no padding to a multiple of the window and no full mask.
"""

import copy
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from types import NoneType

import torch
from torch import Tensor, nn
from transformers import BartForConditionalGeneration, GenerationConfig, LEDConfig, LEDForConditionalGeneration
from transformers.modeling_outputs import ModelOutput
from transformers.models.led.modeling_led import (
    LEDDecoderAttention,
    LEDEncoder,
    LEDEncoderBaseModelOutput,
    LEDSeq2SeqLMOutput,
)

from repro.attention import LongformerSelfAttention
from repro.checked import checked
from repro.checkpoints import load_whole, quietly
from repro.errors import ReproError, check_whole, short
from repro.hf_compat import cache_in
from repro.ids import check_ids, check_labels, check_targets, looked_at, same_batch, what
from repro.loss import cross_entropy
from repro.models.longformer import windows_per_layer

UNUSED = 2  # first rows of BART's position tables, which no token uses
KEPT = ("vocab_size", "d_model", "encoder_layers", "encoder_ffn_dim", "encoder_attention_heads", "decoder_layers",
        "decoder_ffn_dim", "decoder_attention_heads", "encoder_layerdrop", "decoder_layerdrop", "activation_function",
        "dropout", "attention_dropout", "activation_dropout", "init_std", "classifier_dropout", "use_cache",
        "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "tie_word_embeddings")  # from BART
COUNTS = {"num_beams": 1, "num_return_sequences": 1, "max_new_tokens": 1, "no_repeat_ngram_size": 0}  # with minima
LOCAL = {"q_proj": "query", "k_proj": "key", "v_proj": "value"}  # BART's names: LED's, in the encoder


@checked
class LED(LEDForConditionalGeneration):
    """An encoder-decoder for long inputs: the encoder sees a window around every token, and global tokens see all.

    `save_pretrained` and transformers' LEDForConditionalGeneration can read each other's files. Without a
    `global_attention_mask`, the first token is global here, as in the paper, but no token is global there, so outputs
    differ unless the mask is given.

    >>> from transformers import LEDConfig
    >>> small = LEDConfig(vocab_size=30, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
    ...     decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, attention_window=4)
    >>> LED(small)(torch.randint(4, 30, (1, 20)), labels=torch.tensor([[7, 9, 2]])).logits.shape
    torch.Size([1, 3, 30])
    """

    def __init__(self, config: LEDConfig):
        config.attention_window = windows_per_layer(config.attention_window, config.encoder_layers)
        super().__init__(config)
        self.led.encoder = Encoder(config)
        for layer in self.led.decoder.layers:
            layer.encoder_attn.__class__ = CrossAttention  # which has the same weights
        self.tie_weights()

    @classmethod
    def from_bart(cls, bart: BartForConditionalGeneration | str | Path, max_positions: int = 16384,
                  window: int | Sequence[int] = 1024) -> "LED":
        """Convert a BART so that its encoder reads up to `max_positions` tokens; training can continue from it.

        bart: a BartForConditionalGeneration, or the folder or hub name of one; it is not changed. window: keys on both
        sides of a token together, an even number; one for all layers, or one per layer. Position i of the encoder is
        position i mod P of BART, where P is its number of positions. The decoder and all other weights are kept, and
        the global projections start as copies of the local ones.

        Raises ReproError for windows that are odd or do not match the layers, for `max_positions` below 1, for a BART
        that scales its embeddings, which LED cannot, and for a missing checkpoint.
        """
        check_whole(max_positions, "max_positions")
        base = _load_bart(bart).eval() if isinstance(bart, (str, Path)) else bart
        if not isinstance(base, BartForConditionalGeneration):
            raise ReproError(f"bart is a {type(base).__name__}; it must be a BartForConditionalGeneration, or the "
                             "folder or hub name of one.")
        if base.config.scale_embedding:
            raise ReproError("scale_embedding of this BART is True, and LED has no such scale; give a BART without it.")
        known = base.config.max_position_embeddings
        config = LEDConfig(
            **{name: getattr(base.config, name) for name in KEPT}, max_encoder_position_embeddings=int(max_positions),
            max_decoder_position_embeddings=known,
            attention_window=windows_per_layer(window, base.config.encoder_layers))
        model = cls(config).to(base.dtype).to(base.device)
        weights = {_renamed(name): weight for name, weight in base.state_dict().items()}
        for part in "encoder", "decoder":
            name = f"led.{part}.embed_positions.weight"
            weights[name] = weights[name][UNUSED:]
        name = "led.encoder.embed_positions.weight"
        weights[name] = weights[name][torch.arange(max_positions, device=base.device) % known]
        missing, strange = model.load_state_dict(weights, strict=False)
        assert not strange and all("_global." in name for name in missing), (missing, strange)
        for layer in model.led.encoder.layers:
            layer.self_attn.longformer_self_attn.copy_local_to_global()
        model.generation_config = copy.deepcopy(base.generation_config)
        return model.train(base.training)

    @classmethod
    def from_pretrained(cls, name_or_folder: str | Path, **kwargs) -> "LED":
        """Load an LED that this class or transformers saved, by its folder or hub name. Weights are fp32 unless `dtype`
        says otherwise. Raises ReproError for a checkpoint that is missing, of another kind, damaged or incomplete, or
        has windows that are odd or do not match its layers."""
        return load_whole(super().from_pretrained, "led", name_or_folder, "allenai/led-base-16384",
                          "LED.from_bart converts one of bart", **{"dtype": torch.float32} | kwargs)

    def save_pretrained(self, folder: str | Path, **kwargs) -> None:
        """Write the model as transformers does."""
        with quietly():
            super().save_pretrained(folder, **kwargs)

    @checked
    def forward(self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None,
                global_attention_mask: Tensor | None = None, decoder_input_ids: Tensor | None = None,
                labels: Tensor | None = None, decoder_attention_mask: Tensor | None = None,
                encoder_outputs: ModelOutput | tuple | None = None, use_cache: bool | None = None,
                return_dict: bool | None = None, **others) -> LEDSeq2SeqLMOutput | tuple[Tensor, ...]:
        """Logits (B, T, V) of the next tokens of the summaries of texts (B, N).

        attention_mask (B, N): 0 for padding. global_attention_mask (B, N): 1 for global tokens; None: the first token
        of each text. decoder_input_ids (B, T): the summaries read so far; None: the start token, then `labels`, or
        `input_ids` without labels, shifted by one. labels (B, T): the targets; -100 is ignored; the loss is the mean
        over the others, in nats. encoder_outputs: the result of an earlier call, which replaces `input_ids`; r B
        summaries are then allowed, with the r summaries of a text in consecutive rows. Other arguments are those of
        transformers; with output_attentions, only the decoder returns its attention weights.
        Raises ReproError for output_hidden_states, more tokens than the encoder or the decoder has positions, a text
        without tokens, masks or labels of another shape, and labels outside the vocabulary or without a target.
        """
        if others.get("output_hidden_states"):
            raise ReproError("output_hidden_states is True, but the encoder of this LED returns its last states alone; "
                             "remove it.")
        if labels is not None:
            check_labels(labels, self.config.vocab_size)
            n = check_targets(labels)
            use_cache = False
        several = encoder_outputs is not None  # summaries of a text
        if not several:
            encoder_outputs = self.led.encoder(input_ids, attention_mask, global_attention_mask)
        if decoder_input_ids is None:
            shifted = input_ids if labels is None else labels
            if shifted is None:
                raise ReproError("decoder_input_ids is None; give them, or labels, or input_ids.")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(shifted)
        self._check_summaries(encoder_outputs, decoder_input_ids, labels, decoder_attention_mask, cache_in(others),
                              several)
        found = super().forward(
            attention_mask=attention_mask, decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask, encoder_outputs=encoder_outputs, use_cache=use_cache,
            return_dict=True, **others)
        if labels is not None:
            loss = cross_entropy(found.logits.flatten(0, 1), labels.flatten()) / n
            found = LEDSeq2SeqLMOutput(loss=loss, **found)
        return found.to_tuple() if return_dict is False else found

    def _check_summaries(self, encoded, ids: Tensor, labels: Tensor | None, mask: Tensor | None, held,
                         several: bool) -> None:
        """Raise ReproError unless the decoder can read `ids` (B, T) after the tokens in its cache `held`, with these
        labels and this mask, for texts `encoded` as states (B, N, d). several: r B summaries are allowed, too."""
        states = encoded[0] if isinstance(encoded, (list, tuple, ModelOutput)) and len(encoded) else encoded
        if not isinstance(states, Tensor) or states.ndim != 3 or states.shape[2] != self.config.d_model:
            raise ReproError(f"encoder_outputs hold {what(states)}; give what the encoder of this LED returns, states "
                             f"of shape (B, N, {self.config.d_model}).")
        check_ids(ids, self.config.vocab_size, name="decoder_input_ids")
        if not several or len(ids) % max(1, len(states)):
            same_batch(texts=states, summaries=ids)
        reached, most = ids.shape[1], self.config.max_decoder_position_embeddings
        if held is not None:
            if getattr(held, "is_compileable", False):  # of a fixed size
                raise ReproError("the cache is static; the decoder of an LED, which masks nothing for single tokens, "
                                 "would attend to its empty slots. Use cache_implementation=\"dynamic\", or leave it "
                                 "out.")
            reached += held.get_seq_length()
        if reached > most:
            raise ReproError(f"the summary has {reached:,} tokens, but the decoder of this LED has {most:,} positions; "
                             "give shorter labels or decoder_input_ids, or generate fewer tokens.")
        for name, one, wanted in (("labels have", labels, ids.shape),
                                  ("decoder_attention_mask has", mask, (len(ids), reached))):
            if one is not None and one.shape != wanted:
                raise ReproError(f"{name} shape {tuple(one.shape)}; it must be (B, T), here {tuple(wanted)}.")

    @checked
    def generate(self, inputs: Tensor | None = None, generation_config: GenerationConfig | None = None,
                 **named) -> Tensor:
        """Generate summaries (B, T) of texts (B, N), with the arguments of transformers; the encoder runs once.

        Raises ReproError for fewer than one beam or token, for a missing text, for input that `forward` rejects, for
        a static cache, and for arguments that transformers rejects.
        """
        given = {name: getattr(generation_config, name, None) for name in (*COUNTS, "length_penalty")} | named
        for name, least in COUNTS.items():
            if given[name] is not None:
                check_whole(given[name], name, least)
        if not isinstance(given["length_penalty"], (NoneType, Real)):
            raise ReproError(f"length_penalty is {short(given['length_penalty'], 60)}; it must be a number, such as "
                             "1.0.")
        texts = inputs if inputs is not None else named.get("input_ids")
        if texts is not None or named.get("encoder_outputs") is None:
            check_ids(texts, self.config.vocab_size, name="input_ids")
        try:
            return super().generate(inputs, generation_config, **named)
        except ReproError:
            raise
        except ValueError as error:
            raise ReproError(f"transformers cannot generate with these arguments: {error} Correct or remove them."
                             ) from error

    def _expand_inputs_for_generation(self, expand_size: int = 1, is_encoder_decoder: bool = False,
                                      input_ids: Tensor | None = None, **named):
        """Repeat the inputs of each beam, but not the texts and their masks, which beams share."""
        mask = named.pop("attention_mask", None)
        ids, named = super()._expand_inputs_for_generation(expand_size, False, input_ids, **named)
        return ids, named | {"attention_mask": mask}

    def _reorder_cache(self, held, beams: Tensor):
        """Beam search calls this after every step. The beams of a text share its keys and values, so only the cache of
        the decoder's self-attention is reordered."""
        held.self_attention_cache.reorder_cache(beams)
        return held


class CrossAttention(LEDDecoderAttention):
    """Attention from summaries (B r, T, d) to texts (B, N, d). The r summaries of a text, its beams, share its keys and
    values. They are read as one summary of r T tokens: cross-attention does not mix tokens of summaries."""

    def forward(self, hidden_states: Tensor, key_value_states: Tensor, past_key_values=None,
                attention_mask: Tensor | None = None, output_attentions: bool = False) -> tuple:
        """See transformers. attention_mask: (B, 1, T, N)."""
        n_texts, (n_summaries, length, width) = len(key_value_states), hidden_states.shape
        if attention_mask is not None:
            attention_mask = attention_mask.repeat(1, 1, n_summaries // n_texts, 1)
        out, weights, held = super().forward(
            hidden_states.reshape(n_texts, -1, width), key_value_states, past_key_values, attention_mask,
            output_attentions)
        if weights is not None:
            weights = weights.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        return out.reshape(n_summaries, length, width), weights, held


class Encoder(LEDEncoder):
    """The encoder of LED, with attention that needs no padding."""

    def __init__(self, config: LEDConfig):
        super().__init__(config)
        for layer in self.layers:
            own = layer.self_attn
            own.longformer_self_attn = LongformerSelfAttention.from_transformers(own.longformer_self_attn)

    def forward(self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None,
                global_attention_mask: Tensor | None = None, return_dict: bool | None = None,
                **others) -> LEDEncoderBaseModelOutput | tuple[Tensor]:
        """States (B, N, d) of texts (B, N); see `LED.forward` for masks and errors."""
        check_ids(input_ids, self.config.vocab_size, name="input_ids")
        n, most = input_ids.shape[1], self.config.max_encoder_position_embeddings
        if n > most:
            raise ReproError(f"the text has {n:,} tokens, but the encoder of this LED has {most:,} positions; give it "
                             "at most that many, or convert with more max_positions.")
        for name, mask in (("attention_mask", attention_mask), ("global_attention_mask", global_attention_mask)):
            if mask is not None and mask.shape != input_ids.shape:
                raise ReproError(f"{name} is {tuple(mask.shape)}; it must have the shape of input_ids, "
                                 f"{tuple(input_ids.shape)}.")
        real, padding = torch.ones_like(input_ids, dtype=torch.bool), None
        if attention_mask is not None:
            real, padding = attention_mask > 0, attention_mask <= 0
            if looked_at(real) and not real.any(1).all():
                raise ReproError(f"text {int(real.any(1).int().argmin())} of the batch has no tokens, because its "
                                 "attention_mask is 0 everywhere; leave it out.")
            if looked_at(real) and real.all():
                padding = None  # decided once, so that no layer has to look
        if global_attention_mask is None:  # the first token
            chosen = torch.zeros_like(real).scatter(1, real.int().argmax(1, keepdim=True), True)
        else:
            chosen = (global_attention_mask > 0) & real
        hidden = self.layernorm_embedding(self.embed_tokens(input_ids) + self.embed_positions(input_ids.shape))
        hidden = nn.functional.dropout(hidden, self.dropout, self.training)
        for layer in self.layers:
            if not self.training or torch.rand([]) >= self.layerdrop:
                hidden = layer(hidden, None, is_index_masked=padding, is_index_global_attn=chosen)[0]
        found = LEDEncoderBaseModelOutput(last_hidden_state=hidden)
        return found.to_tuple() if return_dict is False else found


def _load_bart(name_or_folder: str | Path) -> BartForConditionalGeneration:
    return load_whole(BartForConditionalGeneration.from_pretrained, "bart", name_or_folder, "facebook/bart-base",
                      dtype=torch.float32)


def _renamed(name: str) -> str:
    """LED's name for a weight of BART."""
    name = name.replace("model.", "led.", 1) if name.startswith("model.") else name
    if name.startswith("led.encoder.layers.") and ".self_attn." in name:
        for old, new in LOCAL.items():
            name = name.replace(f"self_attn.{old}", f"self_attn.longformer_self_attn.{new}")
        name = name.replace("self_attn.out_proj", "self_attn.output")
    return name
