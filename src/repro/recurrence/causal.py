"""Language models that read a long text window by window and carry a state from each window to the next, and GPT-2 with
the recurrence module."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_outputs import CausalLMOutput
from transformers.modeling_utils import AttentionInterface

from repro.checked import checked
from repro.checkpoints import config_of, reading, whole
from repro.errors import ReproError, check_whole, unknown
from repro.ids import check_ids, check_temperature, embedded, evaluating
from repro.loss import cross_entropy
from repro.recompute import RECOMPUTE, recomputed
from repro.recurrence.module import Recurrence, RecurrenceConfig, check_same, check_settings
from repro.windows import Window, check_window, context_of, windows

ATTENTION = "repro_recurrence"
BASE = "openai-community/gpt2"  # if the checkpoint can be read


def attention_with_previous(module, query, key, value, attention_mask=None, dropout=0.0, scaling=None, previous=None,
                            **_):
    """Causal attention (B, H, N, D) in which every position also sees the keys and values of h_prev, if given.

    previous: (key, value), each (B, H, E, D). They are never queries: the E queries put in front only align the
    causal triangle with the longer keys, and their results are dropped.
    """
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


class WindowByWindow:
    """A causal language model of transformers that reads a text window by window and carries a state, z, from each to
    the next.

    A subclass, whose other base is the model's class, implements `_read_window(ids, z, stride, recompute_layers)`,
    which reads one window and returns the hidden states (B, T, d) after the final norm and the next z, a tensor or
    tuples of tensors; the first z is None.
    """

    @checked
    def forward(self, input_ids: Tensor, window: int | None = None, overlap: int = 0, labels: Tensor | None = None,
                recompute: str = "none", recurrent: bool = True, truncate: int | None = None,
                return_logits: bool = True) -> CausalLMOutput:
        """Read `input_ids` (B, N) window by window; return the loss and logits (B, N, V).

        window, overlap: in tokens; window=None is the whole context. labels: `input_ids`, shifted inside; -100 is not
        scored; the loss is the mean over scored targets, in nats. logits[:, i] predicts token i+1 and comes
        from the window that scores it. The first window has no z.
        recompute: what the backward pass computes again instead of storing: "none", each "layer" (including the output
        layer), each "window" (which stores only z, if `return_logits` is False), or each window and, within it, each
        layer ("window+layer").
        recurrent: False reads every window as a first one; a `RecurrentLM` is then plain GPT-2 on separate windows.
        truncate: detach z before every `truncate`-th window; None never detaches. With 1, the module's feedforward
        layers still learn, but the parts that compute z, such as the layer weights, get no gradient from later
        windows.

        Raises ReproError for a window or overlap out of range, an unknown `recompute`, a `truncate` below 1, or
        labels of another shape.
        """
        window = context_of(self) if window is None else window
        check_window(window, overlap, context_of(self))
        if truncate is not None:
            check_whole(truncate, "truncate", of="windows")
        check_ids(input_ids, name="input_ids", least=1 if labels is None else 2)
        if recompute not in RECOMPUTE:
            raise unknown("recompute", recompute, RECOMPUTE)
        if labels is not None and (not isinstance(labels, Tensor) or labels.shape != input_ids.shape):
            raise ReproError(f"labels have shape {tuple(getattr(labels, 'shape', ()))}, input_ids "
                             f"{tuple(input_ids.shape)}; they must be the same.")
        length = input_ids.shape[1]
        # The last token has no target: its logits are needed, its loss is not.
        cover = windows(length + 1 if return_logits else length, window, overlap)
        total, z, logits = 0.0, None, []
        for index, span in enumerate(cover):
            if truncate is not None and index % truncate == 0 and z is not None:
                z = tree_map(Tensor.detach, z)
            ids = input_ids[:, span.start:span.stop]
            targets = None if labels is None else labels[:, span.first_target:span.stop + 1]  # a view: nothing to store
            nll, z, out = recomputed("window" in recompute, self._score_window, ids, z if recurrent else None, targets,
                                     span.offset, window - overlap, "layer" in recompute, return_logits)
            total = total + nll
            logits.append(out)
        loss = None if labels is None else total / (labels[:, 1:] != -100).sum().clamp(min=1)
        return CausalLMOutput(loss=loss, logits=torch.cat(logits, 1) if return_logits else None)

    def _score_window(self, ids, z, targets, offset, stride, recompute_layers, return_logits):
        """Summed nll of the scored positions, z for the next window, and their logits if requested."""
        hidden, z = self._read_window(ids, z, stride, recompute_layers)
        nll, logits = recomputed(recompute_layers, self._score, hidden[:, offset:], targets, return_logits)
        return nll, z, logits

    def _score(self, hidden, targets, return_logits):
        """The output layer and the loss: summed nll of the available targets, and the logits if requested."""
        logits = self.get_output_embeddings()(hidden)
        nll = 0.0
        if targets is not None:
            nll = cross_entropy(logits[:, :targets.shape[1]].flatten(0, 1), targets.flatten())
        return nll, logits if return_logits else None

    def read_windows(self, tokens: Tensor, cover: list[Window]) -> Iterator[Tensor]:
        """Hidden states (B, stop - start, d) of each window in turn; z is carried along."""
        z = None
        stride = cover[1].start - cover[0].start if cover[1:] else None
        for span in cover:
            hidden, z = self._read_window(tokens[:, span.start:span.stop], z, stride)
            yield hidden

    @checked
    @torch.no_grad()
    def generate(self, input_ids: Tensor, max_new_tokens: int, window: int | None = None, overlap: int = 0,
                 do_sample: bool = False, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        """Continue `input_ids` (B, N) by `max_new_tokens` tokens, across as many windows as needed.

        Greedy unless `do_sample`. A full window is read once more to get its z, and the next one starts with the last
        `overlap` tokens. The cost per token does not grow with length.
        Raises ReproError for an empty prompt, a window or overlap out of range, and a temperature that is not above 0.
        """
        window = context_of(self) if window is None else window
        check_window(window, overlap, context_of(self))
        check_ids(input_ids, self.config.vocab_size, name="input_ids")
        check_whole(max_new_tokens, "max_new_tokens", 0)
        check_temperature(temperature)
        with evaluating(self):
            return self._generate(input_ids, max_new_tokens, window, overlap, do_sample, temperature, generator)


class WindowByWindowGPT2(WindowByWindow, GPT2LMHeadModel):
    """GPT-2 that carries a state; `attention` names the attention function that handles it."""

    attention = ATTENTION

    def _embedded(self, ids: Tensor) -> Tensor:
        """Tokens and their positions in the window (B, T, d); positions start again in every window."""
        base = self.transformer
        return base.drop(embedded(base.wte, ids) + base.wpe(torch.arange(ids.shape[1], device=ids.device)))

    def _check_attention(self) -> None:
        """Reject another attention function, which would silently drop the carried state and the causal mask."""
        if self.config._attn_implementation != self.attention:
            raise ReproError(f"attn_implementation is '{self.config._attn_implementation}'; a {type(self).__name__} "
                             f"needs '{self.attention}', which handles the carried state. Keep that setting.")

    @classmethod
    def _attached(cls, name_or_path, settings, **kwargs) -> "WindowByWindowGPT2":
        """A GPT-2 checkpoint (hub name or folder) with a fresh module that makes and reads the state."""
        return in_class(cls, whole(GPT2LMHeadModel.from_pretrained, "gpt2", name_or_path, **kwargs)[0], settings)


def in_class(cls: type, base: nn.Module, settings) -> WindowByWindow:
    """A model of `cls`, made with `settings`, with all weights of `base`, in evaluation mode."""
    model = cls(base.config, settings).to(base.dtype)
    missing, unexpected = model.load_state_dict(base.state_dict(), strict=False)
    assert not unexpected and not any(name in base.state_dict() for name in missing), (missing, unexpected)
    model.generation_config = base.generation_config
    return model.eval()


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
        """Load a saved RecurrentLM, or attach a fresh recurrence module to a decoder (hub name or folder).

        A decoder other than GPT-2, such as Llama or Gemma, becomes a `repro.recurrence.decoders.RecurrentDecoder`, with
        the same methods. Raises ReproError for other models, if `recurrence` contradicts the saved model, and for a
        missing or damaged checkpoint.
        """
        check_settings(recurrence)
        with reading(name_or_path, BASE):
            told = config_of(None, name_or_path)
            if told.get("model_type") != "gpt2":
                from repro.recurrence.decoders import recurrent_decoder

                return recurrent_decoder(name_or_path, recurrence, **kwargs)
            if told.get("recurrence") is None:
                return cls._attached(name_or_path, recurrence, **kwargs)
            check_same(name_or_path, told["recurrence"], recurrence)
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
        z = self.recurrence.combine(pooled)
        return hidden, z if layer_input is None else (z, layer_input)

    def added_parameters(self) -> Iterator[nn.Parameter]:
        """The weights that the base model does not have."""
        return self.recurrence.parameters()

    def _previous(self, z: Tensor | None) -> dict[int, tuple[Tensor, Tensor]]:
        """h_prev as (key, value) for every layer that sees it: the layer's norm and projections treat it as a token."""
        if z is None:
            return {}
        settings = self.recurrence.config
        h_prev = self.recurrence(*z) if isinstance(z, tuple) else self.recurrence(z)
        layers = range(self.config.n_layer) if settings.insert == "every" else [settings.insert_layer]
        previous = {}
        for index in layers:
            block = self.transformer.h[index]
            _, key, value = block.attn.c_attn(block.ln_1(h_prev)).chunk(3, -1)
            previous[index] = tuple(x.unflatten(-1, (block.attn.num_heads, -1)).transpose(1, 2) for x in (key, value))
        return previous

    def _generate(self, prompt, max_new_tokens, window, overlap, do_sample, temperature, generator):
        batch, given = prompt.shape
        tokens = torch.cat([prompt, prompt.new_empty(batch, max_new_tokens)], 1)  # allocated once
        z, start = None, 0
        cache, n_read = DynamicCache(), 0
        for length in range(given, given + max_new_tokens):
            while length - start > window:  # the window is full: pass its z on and start the next one
                _, z = self._read_window(tokens[:, start:start + window], z, window - overlap)
                start += window - overlap
                cache, n_read = DynamicCache(), 0
            hidden = self._read_cached(tokens[:, start + n_read:length], n_read, self._previous(z), cache)
            n_read = length - start
            logits = self.lm_head(hidden[:, -1])
            tokens[:, length:length + 1] = chosen(logits, do_sample, temperature, generator)
        return tokens

    def _read_cached(self, ids: Tensor, position: int, previous: dict, cache: DynamicCache) -> Tensor:
        """Hidden states of the new tokens `ids` (B, n) that follow `position` cached ones in the same window."""
        base = self.transformer
        self._check_attention()
        places = torch.arange(position, position + ids.shape[1], device=ids.device)
        hidden = base.wte(ids) + base.wpe(places)
        for index, block in enumerate(base.h):
            hidden = block(hidden, cache, previous=previous.get(index))
        return base.ln_f(hidden)


def chosen(logits: Tensor, do_sample: bool, temperature: float, generator: torch.Generator | None) -> Tensor:
    """The next tokens (B, 1): sampled from the logits (B, V), or the most likely ones."""
    if do_sample:
        return torch.multinomial((logits.float() / temperature).softmax(-1), 1, generator=generator)
    return logits.argmax(-1, keepdim=True)


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
