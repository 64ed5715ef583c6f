"""GPT-2 with the recurrence module: h_prev as a key and a value more in the attention of one layer."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from repro.checked import checked
from repro.checkpoints import config_of, reading, whole
from repro.errors import ReproError
from repro.ids import embedded
from repro.recompute import recomputed
from repro.recurrence.decoders import recurrent_decoder
from repro.recurrence.module import Recurrence, RecurrenceConfig, check_same, check_settings
from repro.recurrence.windowed import WindowByWindow, in_class

ATTENTION = "repro_recurrence"
BASE = "openai-community/gpt2"  # if the checkpoint can be read


def attention_with_previous(module, query, key, value, attention_mask=None, dropout=0.0, scaling=None, previous=None,
                            **others):
    """Causal attention (B, H, N, D) in which every position also sees the keys and values of h_prev, if given.

    previous: (key, value), each (B, H, E, D). They are never queries: the E queries put in front only align the
    causal triangle with the longer keys, and their results are dropped. Raises ReproError for `others` that would
    change the scores.
    """
    check_scores(others)
    n_previous = 0
    if previous is not None:
        n_previous = previous[0].shape[2]
        key, value = torch.cat([previous[0], key], 2), torch.cat([previous[1], value], 2)
    if query.dtype == torch.bfloat16 and query.device.type == "cpu" and attention_mask is None:
        return plain_products(query, key, value, dropout, scaling).transpose(1, 2), None
    if attention_mask is not None and n_previous == 0:
        out = F.scaled_dot_product_attention(query, key, value, attention_mask, dropout, scale=scaling)
    elif query.shape[2] == 1:  # generation with a cache: the single new position sees everything
        out = F.scaled_dot_product_attention(query, key, value, None, dropout, scale=scaling)
    else:
        query = F.pad(query, (0, 0, key.shape[2] - query.shape[2], 0))
        out = F.scaled_dot_product_attention(query, key, value, None, dropout, is_causal=True, scale=scaling)
        out = out[:, :, n_previous:]
    return out.transpose(1, 2), None


def check_scores(others: dict) -> None:
    """Raise ReproError if a model gives its attention something that changes the scores and is not done here."""
    if given := [name for name in ("softcap", "s_aux", "position_bias", "head_mask") if others.get(name) is not None]:
        raise ReproError(f"this model's attention uses {', '.join(given)}, which is not possible with a carried state; "
                         "give a model without it.")


def plain_products(query, key, value, dropout=0.0, scaling=None):
    """Causal attention (B, H, N, D) as two products and a softmax. Extra keys come first and are visible to all
    queries. In bfloat16 on a CPU, training is 1.1 to 1.3 times as fast as with the fused function."""
    scaling = query.shape[-1]**-0.5 if scaling is None else scaling
    n_queries, n_keys = query.shape[2], key.shape[2]
    mask = query.new_full((n_queries, n_keys), -torch.inf).triu(n_keys - n_queries + 1)
    weights = ((query * scaling) @ key.transpose(2, 3) + mask).softmax(-1)
    return F.dropout(weights, dropout) @ value


AttentionInterface.register(ATTENTION, attention_with_previous)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


class WindowByWindowGPT2(WindowByWindow, GPT2LMHeadModel):
    """GPT-2 that carries a state."""

    attention = (ATTENTION,)

    def _embedded(self, ids: Tensor) -> Tensor:
        """Tokens and their positions in the window (B, T, d); positions start again in every window."""
        base = self.transformer
        return base.drop(embedded(base.wte, ids) + base.wpe(torch.arange(ids.shape[1], device=ids.device)))

    @classmethod
    def _attached(cls, name_or_path, settings, **kwargs) -> "WindowByWindowGPT2":
        """A GPT-2 checkpoint (hub name or folder) with a fresh module that makes and reads the state."""
        return in_class(cls, whole(GPT2LMHeadModel.from_pretrained, "gpt2", name_or_path, **kwargs)[0], settings)


@checked
class RecurrentLM(WindowByWindowGPT2):
    """A GPT-2 language model with a recurrence module (Yoshida et al. 2020, section 3).

    The base weights keep the names they have in `GPT2LMHeadModel`; the module's are under `recurrence.`.

    >>> from transformers import GPT2Config
    >>> model = RecurrentLM(GPT2Config(vocab_size=9, n_layer=2, n_head=2, n_embd=8))
    >>> ids = torch.arange(18)[None] % 9
    >>> out = model(ids, window=6, overlap=2, labels=ids)
    >>> out.logits.shape, out.loss.requires_grad
    (torch.Size([1, 18, 9]), True)
    """

    def __init__(self, config: GPT2Config, recurrence: RecurrenceConfig | None = None):
        super().__init__(copy.deepcopy(config))
        check_settings(recurrence)
        settings = recurrence or RecurrenceConfig(**(getattr(config, "recurrence", None) or {}))
        config = self.config
        config.recurrence = settings.to_dict()
        self.set_attn_implementation(ATTENTION)
        self.recurrence = Recurrence(settings, config.n_layer, config.n_embd)
        self.recurrence.reset_parameters()

    @classmethod
    def from_pretrained(cls, name_or_path, recurrence: RecurrenceConfig | None = None, **kwargs) -> "RecurrentLM":
        """Load a saved RecurrentLM, or attach a fresh recurrence module to a decoder: its folder, its hub name, or the
        name of a model that `repro models fetch` brought, such as gemma-3-270m.

        A decoder other than GPT-2, such as Llama or Gemma, becomes a `repro.recurrence.decoders.RecurrentDecoder`, with
        the same methods. Raises ReproError for other models, if `recurrence` contradicts the saved model, and for a
        missing or damaged checkpoint.
        """
        check_settings(recurrence)
        with reading(name_or_path, BASE) as name_or_path:
            settings = config_of(None, name_or_path)
            if settings.get("model_type") != "gpt2":
                return recurrent_decoder(name_or_path, recurrence, **kwargs)
            if settings.get("recurrence") is None:
                return cls._attached(name_or_path, recurrence, **kwargs)
            check_same(name_or_path, settings["recurrence"], recurrence)
            return whole(super().from_pretrained, "gpt2", name_or_path, **kwargs)[0]

    def _read_window(self, ids: Tensor, z: Tensor | None, stride: int | None = None,
                     recompute_layers: bool = False) -> tuple[Tensor, Tensor]:
        """Hidden states (B, T, d) of one window after the final layer norm, and its z (B, d), with `residual` a pair of
        z and the pooled input of `insert_layer`.

        z: from the previous window, used to compute h_prev; None for a first window. stride: tokens until the
        next window starts.
        """
        base = self.transformer
        previous = self._previous(z)
        self._check_attention()
        hidden = self._embedded(ids)
        pooled, layer_input = [], None
        for index, block in enumerate(base.h):
            if self.recurrence.config.residual and index == self.recurrence.config.insert_layer:
                layer_input = self.recurrence.pool(hidden, stride)
            hidden = recomputed(recompute_layers, block, hidden, previous=previous.get(index))
            if index == len(base.h) - 1:
                hidden = base.ln_f(hidden)
            pooled.append(self.recurrence.pool(hidden, stride))
        return hidden, self.recurrence.state(pooled, layer_input)

    def added_parameters(self) -> Iterator[nn.Parameter]:
        """The weights that the base model does not have."""
        return self.recurrence.parameters()

    def _previous(self, z: Tensor | None) -> dict[int, tuple[Tensor, Tensor]]:
        """h_prev as (key, value) for every layer that sees it: the layer's norm and projections treat it as a token."""
        if (h_prev := self.recurrence.h_prev(z)) is None:
            return {}
        settings = self.recurrence.config
        layers = range(self.config.n_layer) if settings.insert == "every" else [settings.insert_layer]
        previous = {}
        for index in layers:
            block = self.transformer.h[index]
            _, key, value = block.attn.c_attn(block.ln_1(h_prev)).chunk(3, -1)
            previous[index] = tuple(x.unflatten(-1, (block.attn.num_heads, -1)).transpose(1, 2) for x in (key, value))
        return previous

    def _reader(self, z, stride):
        cache, previous = DynamicCache(), self._previous(z)

        def read(ids: Tensor) -> Tensor:
            n_read = cache.get_seq_length()
            return self._read_cached(ids[:, n_read:], n_read, previous, cache)[:, -1]

        return read

    def _read_cached(self, ids: Tensor, position: int, previous: dict, cache: DynamicCache) -> Tensor:
        """Hidden states of the new tokens `ids` (B, n) that follow `position` cached ones in the same window."""
        base = self.transformer
        self._check_attention()
        places = torch.arange(position, position + ids.shape[1], device=ids.device)
        hidden = base.wte(ids) + base.wpe(places)
        for index, block in enumerate(base.h):
            hidden = block(hidden, cache, previous=previous.get(index))
        return base.ln_f(hidden)


@checked
class MaskedOut(nn.Module):
    """A RecurrentLM whose module is masked out, for scoring: the difference shows how much it relies on h_prev.

    >>> from transformers import GPT2Config
    >>> model = RecurrentLM(GPT2Config(vocab_size=9, n_layer=2, n_head=2, n_embd=8)).eval()
    >>> MaskedOut(model)(torch.arange(8)[None]).shape
    torch.Size([1, 8, 9])
    """

    def __init__(self, model: RecurrentLM):
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (B, T, V) of separate windows `ids` (B, T)."""
        return self.model(ids, recurrent=False).logits
