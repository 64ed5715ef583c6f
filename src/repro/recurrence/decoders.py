"""The recurrence module in any decoder of transformers whose layers receive their rotary embedding (Llama, Mistral,
Qwen, Gemma): h_prev is put in front of the input of one layer, and taken off behind it (Yoshida et al. 2020, Figure 2).
"""

import copy
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import Cache, DynamicLayer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from repro.checkpoints import config_of, whole
from repro.errors import ReproError
from repro.hf_compat import cache_argument, check_logits
from repro.recurrence.module import Recurrence, RecurrenceConfig, check_same
from repro.recurrence.opening import open_windows
from repro.recurrence.windowed import WindowByWindow, check_attention, in_class

ATTENTION = ("sdpa", "eager")  # functions whose mask can be extended
# The layers in use and the positions of the rotary embedding are set in the model while it reads, so a second thread
# waits. One lock for all models: a lock in a model could be neither copied nor pickled.
ALONE = threading.RLock()
TOGETHER = 2048  # tokens that the layers below h_prev read at once: a CPU's matrix products are then near their best


@dataclass
class Reading:
    """The data that layers need and leave while one window is read: the pooled output of each layer, and the pooled
    input of the layer that sees h_prev (B, E, d), which is None in a first window. below: the hidden states that enter
    that layer, if they have been read before; layer `top` leaves them where only the layers below are read. n_cached:
    positions of h_prev in the key/value cache in use; None without one. With a cache nothing is pooled."""

    model: "RecurrentDecoder"
    h_prev: Tensor | None
    stride: int | None
    pooled: dict[int, Tensor] = field(default_factory=dict)
    below: Tensor | None = None
    top: int | None = None
    layer_input: Tensor | None = None
    n_cached: int | None = None

    @property
    def n(self) -> int:
        """Positions in front of the window."""
        return 0 if self.h_prev is None else self.h_prev.shape[1]

    def inserts(self, index: int) -> bool:
        """Whether a layer sees h_prev."""
        settings = self.model.recurrence.config
        return settings.insert == "every" or index == settings.insert_layer

    def check(self) -> None:
        """Raise ReproError if the model did not hand this to its layers."""
        if not self.pooled:
            raise ReproError(f"the layers of {type(self.model).__name__} do not get the keyword arguments of the "
                             "model, so they cannot be given h_prev; give GPT-2, Llama, Mistral, Qwen or Gemma.")

    def pool(self, hidden: Tensor) -> Tensor:
        """One vector (B, d) for hidden states (B, T, d), the opening token left out."""
        return self.model.recurrence.pool(hidden[:, self.model.n_opening:], self.stride)


class RecurrentDecoder(WindowByWindow):
    """A decoder with a recurrence module; `recurrent_class` adds the model's own class.

    The layer's own norm, projections, heads and rotary embedding apply to h_prev, at the positions before the first of
    the window. All tokens of the window see it, in a layer with a sliding window, too. The layers below need no h_prev
    and read many windows at once.
    """

    together = TOGETHER
    attention = ATTENTION

    def __init__(self, config, recurrence: RecurrenceConfig | None = None):
        super().__init__(copy.deepcopy(config))
        settings = recurrence or RecurrenceConfig(**(getattr(config, "recurrence", None) or {}))
        config = self.config
        check_logits(config)
        config.recurrence = settings.to_dict()
        self.recurrence = Recurrence(settings, config.num_hidden_layers, config.hidden_size)
        self.recurrence.reset_parameters()
        rotary = getattr(self.base_model, "rotary_emb", None)
        layers = getattr(self.base_model, "layers", None)
        if not isinstance(rotary, nn.Module) or len(layers or ()) != config.num_hidden_layers:
            raise ReproError(f"{type(self).__name__} has no list of decoder layers with one rotary embedding, so "
                             "h_prev cannot be put in front of a layer; give GPT-2, Llama, Mistral, Qwen or Gemma.")
        self.n_opening = open_windows(self)
        rotary.n_previous = 0
        rotary.register_forward_pre_hook(_longer, with_kwargs=True)
        for index, layer in enumerate(layers):
            layer.register_forward_pre_hook(partial(_before, index), with_kwargs=True)
            layer.register_forward_hook(partial(_behind, index), with_kwargs=True)

    def added_parameters(self):
        """The weights that the base model does not have."""
        return self.recurrence.parameters()

    @property
    def n_below(self) -> int:
        """The number of layers that no h_prev reaches."""
        settings = self.recurrence.config
        return 0 if settings.insert == "every" else settings.insert_layer

    def _read_below(self, ids: list[Tensor], stride: int | None, recompute_layers: bool = False) -> list[tuple]:
        """For each window the hidden states that enter the layer with h_prev, and the pooled outputs of those below."""
        if len(ids) == 1 or not self.n_below:
            return [()] * len(ids)
        self._check_attention()
        reading = Reading(self, None, stride, top=self.n_below - 1)
        with ALONE, _layers_recomputed(self, recompute_layers), _layers_used(self, range(self.n_below)):
            self.base_model(input_ids=torch.stack(ids, 1).flatten(0, 1), use_cache=False, reading=reading)
        reading.check()

        def of_windows(x: Tensor) -> tuple[Tensor, ...]:
            return x.unflatten(0, (-1, len(ids))).unbind(1)

        pooled = [of_windows(reading.pooled[index]) for index in range(self.n_below)]
        return list(zip(of_windows(reading.below), zip(*pooled, strict=True), strict=True))

    def _read_window(self, ids: Tensor, z: Tensor | tuple | None, stride: int | None = None,
                     recompute_layers: bool = False, below: Tensor | None = None, pooled: tuple[Tensor, ...] = ()):
        """Hidden states (B, T, d) of one window after the final norm, and its z, as in `RecurrentLM`. below, pooled:
        from `_read_below`."""
        self._check_attention()
        reading = Reading(self, self.recurrence.h_prev(z), stride, dict(enumerate(pooled)), below)
        used = range(len(pooled), self.config.num_hidden_layers)
        # Layers get the reading as an argument, so that they have it when the backward pass calls them again.
        with (ALONE, _layers_recomputed(self, recompute_layers), _layers_used(self, used),
              _counting_from(self, reading.n)):
            hidden = self.base_model(input_ids=ids, use_cache=False, reading=reading).last_hidden_state
        reading.check()
        pooled = [reading.pooled[index] for index in range(self.config.num_hidden_layers - 1)]
        return hidden, self.recurrence.state([*pooled, self.recurrence.pool(hidden, stride)], reading.layer_input)

    def _reader(self, z, stride):
        """As in `WindowByWindow`. The first call puts h_prev in front, and its keys and values stay in the cache.

        A rotary embedding of type "longrope" turns all keys in another way once the window is long, so there is none.
        """
        self._check_attention()
        if "longrope" in kinds_of_rotation(self.config):
            return super()._reader(z, stride)
        reading = Reading(self, self.recurrence.h_prev(z), stride, n_cached=0)
        cache = Cache(layers=[BehindPrevious(reading.n * reading.inserts(index))
                              for index in range(self.config.num_hidden_layers)])

        def read(ids: Tensor) -> Tensor:
            n_read = max(cache.get_seq_length() - self.n_opening, 0)
            now = replace(reading, h_prev=None, n_cached=reading.n) if n_read else reading
            with ALONE, _counting_from(self, now.n):
                return self.base_model(input_ids=ids[:, n_read:], use_cache=True, reading=now,
                                       **cache_argument(cache)).last_hidden_state[:, -1]

        return read


class BehindPrevious(DynamicLayer):
    """Keys and values of a layer; the first `n` belong to h_prev and are not counted as tokens."""

    def __init__(self, n: int):
        super().__init__()
        self.n = n

    def get_seq_length(self) -> int:
        return max(super().get_seq_length() - self.n, 0)


# Hooks get the model from the reading they are given, not from their own memory, so that a copied model works.


def _longer(rotary: nn.Module, args: tuple, kwargs: dict):
    """Let the rotary embedding count from the positions of h_prev."""
    if not rotary.n_previous:
        return None
    x, *rest = args
    positions = rest[0] if rest else kwargs["position_ids"]
    before = torch.arange(-rotary.n_previous, 0, device=positions.device).expand(positions.shape[0], -1)
    positions = torch.cat([before + positions[:, :1], positions], 1)
    if rest:
        return (x, positions, *rest[1:]), kwargs
    return args, kwargs | {"position_ids": positions}


def _before(index: int, layer: nn.Module, args: tuple, kwargs: dict):
    """Put h_prev in front of the layer's input, or take its positions off where the layer does not see it."""
    if (reading := kwargs.get("reading")) is None:
        return None
    hidden, *rest = args
    settings = reading.model.recurrence.config
    if reading.below is not None and index == settings.insert_layer:
        hidden = reading.below
    if settings.residual and index == settings.insert_layer and reading.n_cached is None:
        reading.layer_input = reading.pool(hidden)
    if reading.n_cached and reading.inserts(index):
        mask = with_previous(kwargs.get("attention_mask"), reading.n_cached, 0)
        return (hidden, *rest), kwargs | {"attention_mask": mask}
    if not reading.n:
        return (hidden, *rest), kwargs
    if reading.inserts(index):
        hidden = torch.cat([reading.h_prev.to(hidden.dtype), hidden], 1)
        mask = with_previous(kwargs.get("attention_mask"), reading.n, reading.n)
        return (hidden, *rest), kwargs | {"attention_mask": mask}
    rotated = tuple(one[:, reading.n:] for one in kwargs["position_embeddings"])
    return args, kwargs | {"position_embeddings": rotated}


def _behind(index: int, layer: nn.Module, args: tuple, kwargs: dict, output):
    """Take h_prev off and pool the layer's output."""
    if (reading := kwargs.get("reading")) is None:
        return None
    whole = isinstance(output, Tensor)
    hidden = output if whole else output[0]
    if reading.n and reading.inserts(index):
        hidden = hidden[:, reading.n:]
    if reading.n_cached is None:
        reading.pooled[index] = reading.pool(hidden)
    if index == reading.top:
        reading.below = hidden
    return hidden if whole else (hidden, *output[1:])


def kinds_of_rotation(config) -> set[str]:
    """The types of a model's rotary embedding, such as "default" or "yarn"; Gemma has one for each kind of layer."""
    settings = getattr(config, "rope_parameters", None) or {}
    return {one.get("rope_type") for one in (settings, *settings.values()) if isinstance(one, dict)}


def with_previous(mask: Tensor | None, n: int, n_queries: int) -> Tensor | None:
    """A causal mask (B, 1, Q, K), bool or added to the scores, for n keys more in front, visible to all, which are also
    `n_queries` queries. None stays None, plain causality."""
    if mask is None:
        return None
    seen = True if mask.dtype == torch.bool else 0.0
    unseen = False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
    mask = nn.functional.pad(mask, (n, 0, n_queries, 0), value=seen)
    mask[..., :n_queries, n:] = unseen
    return mask


class Passed(nn.Module):
    """A layer that only passes its input on."""

    def forward(self, hidden: Tensor, *args, **kwargs) -> Tensor:
        return hidden


@contextmanager
def _layers_used(model: nn.Module, used: range):
    """Within it the model has only the layers of these indices."""
    base, layers = model.base_model, model.base_model.layers
    if len(used) < len(layers):
        base.layers = nn.ModuleList([layer if index in used else Passed() for index, layer in enumerate(layers)])
    try:
        yield
    finally:
        base.layers = layers


@contextmanager
def _counting_from(model: nn.Module, n: int):
    """Within it the rotary embedding begins `n` positions before the first token."""
    rotary = model.base_model.rotary_emb
    rotary.n_previous = n
    try:
        yield
    finally:
        rotary.n_previous = 0


def _recomputed(layer: nn.Module, training: bool, read, *args):
    """A layer's output, which the backward pass computes again; the layer reads in the mode that it was in."""
    layer.training = training
    return checkpoint(read, *args, use_reentrant=False)


@contextmanager
def _layers_recomputed(model: nn.Module, recompute: bool):
    """Within it the layers store their inputs alone, if `recompute`: transformers' own switch, without its warnings."""
    layers = model.base_model.layers if recompute else ()
    names = ("gradient_checkpointing", "training", "_gradient_checkpointing_func")
    before = [{name: getattr(layer, name, None) for name in names} for layer in layers]
    try:
        for layer in layers:
            layer._gradient_checkpointing_func = partial(_recomputed, layer, layer.training)
            layer.gradient_checkpointing = layer.training = True  # else transformers does not call it
        yield
    finally:
        for layer, values in zip(layers, before, strict=True):
            for name, value in values.items():
                setattr(layer, name, value)


def __getattr__(name: str) -> type:  # pickle looks for the class of a model here
    import transformers

    base = getattr(transformers, name.removeprefix("Recurrent"), None) if name.startswith("Recurrent") else None
    if base is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return recurrent_class(base)


@lru_cache
def recurrent_class(base: type) -> type:
    """The class of a decoder with a recurrence module, from its class in transformers, such as LlamaForCausalLM."""
    return type(f"Recurrent{base.__name__}", (RecurrentDecoder, base), {"__doc__": f"{base.__name__} with recurrence."})


def decoder_of(name_or_path) -> tuple:
    """The config of a checkpoint (hub name or folder) and its class in transformers. Raises ReproError for a model that
    is no decoder."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, AutoConfig

    kind = config_of(None, name_or_path).get("model_type")
    known = isinstance(kind, str) and kind in CONFIG_MAPPING_NAMES
    config = AutoConfig.from_pretrained(str(name_or_path)) if known else None
    decodes = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    # Without this setting BERT and its kin see later tokens even in their class for causal language modeling.
    if not decodes or type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        raise ReproError(f"{name_or_path} is a checkpoint of {kind}, which is no decoder; give GPT-2, Llama, Mistral, "
                         "Qwen or Gemma.")
    return config, MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def recurrent_decoder(name_or_path, recurrence: RecurrenceConfig | None = None, **kwargs) -> RecurrentDecoder:
    """A saved decoder with its module, or a fresh module in a plain one (hub name or folder), in evaluation mode.

    Raises ReproError for a model that is no decoder or whose layers cannot be given h_prev, if `recurrence` contradicts
    the saved module, and for a missing or damaged checkpoint.
    """
    check_attention(kwargs.get("attn_implementation") or ATTENTION[0], ATTENTION, "decoder with a module")
    config, plain = decoder_of(name_or_path)
    if (stored := getattr(config, "recurrence", None)) is not None:
        check_same(name_or_path, stored, recurrence)
        return whole(recurrent_class(plain).from_pretrained, config.model_type, name_or_path, **kwargs)[0]
    if getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None):
        raise ReproError(f"{name_or_path} is a mixture of experts ({config.model_type}), whose layers cannot be given "
                         "h_prev; give Llama, Mistral, Qwen or Gemma without experts.")
    with torch.device("meta"):
        recurrent_class(plain)(config, recurrence)  # refuses what cannot be read before its weights are
    base, _ = whole(plain.from_pretrained, config.model_type, name_or_path, **kwargs)
    return in_class(recurrent_class(plain), base, recurrence)
