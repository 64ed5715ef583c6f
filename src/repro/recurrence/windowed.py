"""Language models that read a long text window by window and carry a state from each window to the next."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from transformers.modeling_outputs import CausalLMOutput

from repro.checked import checked
from repro.errors import ReproError, check_whole, is_series, short, unknown
from repro.ids import check_finite, check_ids, check_labels, check_temperature, drawn, evaluating
from repro.loss import cross_entropy
from repro.recompute import RECOMPUTE, recomputed
from repro.windows import Window, check_window, context_of, windows

NEUTRAL = {"num_beams": 1, "num_return_sequences": 1, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0,
           "use_cache": True}  # settings of transformers' `generate`, with the values that change nothing here


class WindowByWindow:
    """A causal language model of transformers that reads a text window by window and carries a state, z, from each
    window to the next.

    A subclass, whose other base is the model's class, implements `_read_window(ids, z, stride, recompute_layers)`. It
    reads one window and returns the hidden states (B, T, d) after the final norm and the next z, a tensor or tuples of
    tensors; the first z is None. The layers below the state need no z, so it may also run them on many windows at
    once: `together` is then the number of tokens at once, and `_read_below` returns more arguments for `_read_window`.
    """

    together = 1
    attention: tuple[str, ...] = ()  # the attention functions that handle the state

    def set_attn_implementation(self, attn_implementation: str, *args, **kwargs) -> None:
        """As in transformers. Raises ReproError for an attention function that would drop the carried state."""
        self._check_attention(attn_implementation)
        super().set_attn_implementation(attn_implementation, *args, **kwargs)

    def _check_attention(self, name: str | None = None) -> None:
        """Reject an attention function that would silently drop the carried state. name: None for the one in use."""
        check_attention(self.config._attn_implementation if name is None else name, self.attention, type(self).__name__)

    @checked
    def forward(self, input_ids: Tensor, window: int | None = None, overlap: int = 0, labels: Tensor | None = None,
                recompute: str = "none", recurrent: bool = True, truncate: int | None = None,
                return_logits: bool = True, attention_mask: Tensor | None = None) -> CausalLMOutput:
        """Read `input_ids` (B, N) window by window; return the loss and logits (B, N, V).

        window, overlap: in tokens; window=None is the whole context. labels: `input_ids`, shifted inside; targets of
        -100 are not scored; the loss is the mean over scored targets, in nats. It is 0 if there are none, because one
        process of a training may get such a batch. logits[:, i] predicts token i+1 and comes from the window that
        scores it. The first window has no z.
        recompute: what the backward pass computes again instead of storing: "none", each "layer" (including the output
        layer), each "window" (which stores only z, if `return_logits` is False), or each window and, within it, each
        layer ("window+layer"). The last two read windows one by one, so their dropout may differ from that of the
        others.
        recurrent: False reads every window as if it were the first; a `RecurrentLM` is then plain GPT-2 on separate
        windows.
        truncate: detach z before every `truncate`-th window; None never detaches. With 1, the module's feedforward
        layers still learn, but the parts that compute z, such as the layer weights, get no gradient from later
        windows.
        attention_mask (B, N): as tokenizers give it; all ones, since texts have no padding.

        Raises ReproError for a window or overlap out of range, an unknown `recompute`, a `truncate` below 1, labels of
        another shape, ids and labels outside the model's vocabulary, and padding.
        """
        window = context_of(self) if window is None else window
        check_window(window, overlap, context_of(self))
        if truncate is not None:
            check_whole(truncate, "truncate", of="windows")
        known = self.get_input_embeddings().num_embeddings
        check_ids(input_ids, known, name="input_ids", least=1 if labels is None else 2)
        self._check_mask(attention_mask, input_ids)
        if recompute not in RECOMPUTE:
            raise unknown("recompute", recompute, RECOMPUTE)
        if labels is not None:
            check_labels(labels, known, input_ids)
        length = input_ids.shape[1]
        # The last token has no target: its logits are needed, its loss is not.
        cover = windows(length + 1 if return_logits else length, window, overlap)
        total, z, logits, index = 0.0, None, [], 0
        alone = "window" in recompute or not recurrent
        for group in in_groups(cover, 1 if alone else self.together // (len(input_ids) * window), truncate):
            if truncate is not None and index % truncate == 0 and z is not None:
                z = tree_map(Tensor.detach, z)
            ids = [input_ids[:, span.start:span.stop] for span in group]
            targets = None  # views: nothing to store
            if labels is not None:
                targets = [labels[:, span.first_target:span.stop + 1] for span in group]
            nll, z, out = recomputed("window" in recompute, self._score_windows, ids, z if recurrent else None, targets,
                                     [span.offset for span in group], window - overlap, "layer" in recompute,
                                     return_logits)
            total, index = total + nll, index + len(group)
            logits.append(out)
        loss = None if labels is None else total / (labels[:, 1:] != -100).sum().clamp(min=1)
        return CausalLMOutput(loss=loss, logits=torch.cat(logits, 1) if return_logits else None)

    def _score_windows(self, ids, z, targets, offsets, stride, recompute_layers, return_logits):
        """Summed nll of the scored positions of consecutive windows, z for the next one, and the logits if
        requested."""
        scored = []
        for one, below, offset in zip(ids, self._read_below(ids, stride, recompute_layers), offsets, strict=True):
            hidden, z = self._read_window(one, z, stride, recompute_layers, *below)
            scored.append(hidden[:, offset:])
        if len(scored) > 1:
            scored, targets = [torch.cat(scored, 1)], None if targets is None else [torch.cat(targets, 1)]
        nll, logits = recomputed(recompute_layers, self._score, scored[0], targets and targets[0], return_logits)
        return nll, z, logits

    def _read_below(self, ids: list[Tensor], stride: int | None, recompute_layers: bool = False) -> list[tuple]:
        """For each window of `ids` (B, T) the arguments that `_read_window` gets besides the usual ones: none here."""
        return [()] * len(ids)

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
        for group in in_groups(cover, self.together // (len(tokens) * (cover[0].stop - cover[0].start))):
            ids = [tokens[:, span.start:span.stop] for span in group]
            for one, below in zip(ids, self._read_below(ids, stride), strict=True):
                hidden, z = self._read_window(one, z, stride, False, *below)
                yield hidden

    @checked
    @torch.no_grad()
    def generate(self, input_ids: Tensor, max_new_tokens: int = 20, window: int | None = None, overlap: int = 0,
                 do_sample: bool = False, temperature: float = 1.0, generator: torch.Generator | None = None,
                 eos_token_id: int | Sequence[int] | None = None, pad_token_id: int | None = None,
                 attention_mask: Tensor | None = None, **others) -> Tensor:
        """Continue `input_ids` (B, N) by up to `max_new_tokens` tokens, across as many windows as needed.

        Greedy unless `do_sample`. A full window is read once more to get its z, and the next one starts with the last
        `overlap` tokens. The cost per token does not grow with length. A model whose memory consists of vectors
        before a window, as with the recurrence module, reads a new token with a key/value cache; if `Memory.before` is
        None, every new token reads its whole window again.
        eos_token_id: a text ends after this id, or after one of several; it is then filled with `pad_token_id` (None:
        the first `eos_token_id`) until all texts have ended. None: no text ends early. attention_mask: as in `forward`.
        Raises ReproError for an empty prompt, padding, a window or overlap out of range, a temperature that is not
        above 0, and ids that the model does not have. Other settings of transformers, such as `num_beams`, raise it
        unless they would not change the result.
        """
        window = context_of(self) if window is None else window
        check_window(window, overlap, context_of(self))
        check_ids(input_ids, self.config.vocab_size, name="input_ids")
        check_whole(max_new_tokens, "max_new_tokens", 0)
        check_temperature(temperature)
        self._check_mask(attention_mask, input_ids)
        for name, value in others.items():
            if value is not None and (name not in NEUTRAL or value != NEUTRAL[name]):
                raise ReproError(f"{name} is {short(value)}; a {type(self).__name__} generates greedily, or samples "
                                 "from all tokens at a `temperature`, and has no such setting. Leave it out.")
        ends = list(eos_token_id) if is_series(eos_token_id) else [] if eos_token_id is None else [eos_token_id]
        for one in ends:
            check_whole(one, "eos_token_id", 0, self.config.vocab_size - 1)
        fill = [*ends, 0][0] if pad_token_id is None else pad_token_id
        check_whole(fill, "pad_token_id", 0, self.config.vocab_size - 1)
        with evaluating(self):
            return self._generate(input_ids, max_new_tokens, window, overlap, do_sample, temperature, generator,
                                  ends, fill)

    def _check_mask(self, mask: Tensor | None, ids: Tensor) -> None:
        """Raise ReproError unless this is None or 1 for all tokens."""
        if mask is not None and mask.shape != ids.shape:
            raise ReproError(f"attention_mask has shape {tuple(mask.shape)}; it must be that of input_ids, "
                             f"{tuple(ids.shape)}.")
        if mask is not None and not mask.all():
            raise ReproError(f"attention_mask is 0 for {int((mask == 0).sum())} tokens, but a {type(self).__name__} "
                             "reads no padding; give texts of the same length, or one at a time.")

    def _generate(self, prompt, max_new_tokens, window, overlap, do_sample, temperature, generator, ends, fill):
        batch, given = prompt.shape
        tokens = torch.cat([prompt, prompt.new_empty(batch, max_new_tokens)], 1)  # allocated once
        stride, z, start, read = window - overlap, None, 0, self._reader(None, window - overlap)
        ends = torch.tensor(ends, dtype=torch.int64, device=prompt.device)
        ended = torch.zeros(batch, 1, dtype=torch.bool, device=prompt.device)
        for length in range(given, given + max_new_tokens):
            while length - start > window:  # the window is full: pass its state on and start the next one
                _, z = self._read_window(tokens[:, start:start + window], z, stride)
                start, read = start + stride, self._reader(z, stride)
            logits = self.get_output_embeddings()(read(tokens[:, start:length]))
            new = chosen(logits, do_sample, temperature, generator).masked_fill(ended, fill)
            tokens[:, length:length + 1], ended = new, ended | torch.isin(new, ends)
            if len(ends) and ended.all():
                return tokens[:, :length + 1]
        return tokens

    def _reader(self, z, stride: int) -> Callable[[Tensor], Tensor]:
        """A function that maps the tokens so far of one window (B, n) to the last hidden state (B, d). This one reads
        all of them at every call, which works for every kind of state."""
        return lambda ids: self._read_window(ids, z, stride)[0][:, -1]


def check_attention(name: str, known: tuple[str, ...], model: str) -> None:
    """Raise ReproError for an attention function that is not in `known`. model: the class that needs one."""
    if name not in known:
        raise ReproError(f"attn_implementation is {name!r:.60}; a {model} needs {' or '.join(known)}, which handles "
                         "the carried state.")


def in_groups(cover: list[Window], most: int, truncate: int | None = None) -> Iterator[list[Window]]:
    """Runs of consecutive windows of the same length, at most `most` (at least one) in each. A new run begins at every
    `truncate`-th window."""
    group: list[Window] = []
    for index, span in enumerate(cover):
        if group and (len(group) >= most or span.stop - span.start != group[0].stop - group[0].start
                      or (truncate is not None and index % truncate == 0)):
            yield group
            group = []
        group.append(span)
    yield group


def in_class(cls: type, base: nn.Module, settings) -> WindowByWindow:
    """A model of `cls`, made with `settings`, with all weights of `base`, in evaluation mode."""
    model = cls(base.config, settings).to(base.dtype)
    missing, unexpected = model.load_state_dict(base.state_dict(), strict=False)
    assert not unexpected and not any(name in base.state_dict() for name in missing), (missing, unexpected)
    model.generation_config = base.generation_config
    return model.eval()


def chosen(logits: Tensor, do_sample: bool, temperature: float, generator: torch.Generator | None) -> Tensor:
    """The next tokens (B, 1): sampled from the logits (B, V), or the most likely ones. Raises ReproError for NaN."""
    if do_sample:
        return drawn(logits, temperature, generator)
    check_finite(logits.amax(-1), "logits")
    return logits.argmax(-1, keepdim=True)
