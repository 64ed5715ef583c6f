"""BERT or RoBERTa that answers a question about a long text. It reads window by window, each starting with the
question, and carries h_prev from each window to the next (Yoshida, Ettinger and Gimpel 2020, section 5.4)."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from operator import index as whole
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel, PretrainedConfig, PreTrainedModel, RobertaConfig, RobertaModel
from transformers.models.bert.modeling_bert import BertPreTrainedModel
from transformers.models.roberta.modeling_roberta import RobertaPreTrainedModel

from repro.checked import checked
from repro.checkpoints import config_of, quietly, reading
from repro.errors import ReproError, check_whole, short, unknown
from repro.ids import check_ids, what
from repro.recompute import recomputed
from repro.recurrence.module import Recurrence, RecurrenceConfig, check_same, check_settings

TYPES = ("span", "yes", "no")  # of answers
RECOMPUTE = ("none", "window")
PAPER = RecurrenceConfig(insert_layer=1, hidden_size=768, hidden_layers=1, layers="last")


class QuestionWindow(NamedTuple):
    """`<s> question </s> context[start:stop] </s>`."""

    ids: list[int]
    start: int
    stop: int


@checked
def question_windows(question: Sequence[int], context: Sequence[int], window: int = 512, bos: int = 0,
                     sep: int = 2) -> list[QuestionWindow]:
    """Split a text into windows of `window` tokens that each start with the question; all but the last are full.

    question, context: token ids without special tokens. Every token of the context is in exactly one window.
    Raises ReproError for an empty question or context, for anything but ids, and for a question that leaves no room for
    text in a window.

    >>> first, last = question_windows([7], [20, 21, 22, 23, 24], window=7)
    >>> first
    QuestionWindow(ids=[0, 7, 2, 20, 21, 22, 2], start=0, stop=3)
    >>> last
    QuestionWindow(ids=[0, 7, 2, 23, 24, 2], start=3, stop=5)
    """
    if isinstance(window, bool) or not isinstance(window, Integral):
        raise ReproError(f"window is {window!r}; it must be a whole number of tokens.")
    try:
        question, context = ([whole(one) for one in ids] for ids in (question, context))
    except TypeError as e:
        raise ReproError("question and context must be token ids, whole numbers; encode texts with the tokenizer of "
                         f"the model ({e}).") from None
    for name, ids in (("question", question), ("context", context)):
        if not ids:
            raise ReproError(f"the {name} is empty ({ids}); give at least one token.")
    for name, one in (("bos", bos), ("sep", sep)):
        check_whole(one, name, 0)
    room = window - len(question) - 3
    if room < 1:
        raise ReproError(f"window is {window} tokens, but the question has {len(question)} and three are special, so "
                         f"no room is left for text; choose a window of at least {len(question) + 4}.")
    spans = [(start, min(start + room, len(context))) for start in range(0, len(context), room)]
    return [QuestionWindow([bos, *question, sep, *context[start:stop], sep], start, stop) for start, stop in spans]


@dataclass
class Read:
    """The output of a reader for questions of W windows of T tokens each."""

    start_logits: Tensor  # (B, W, T)
    end_logits: Tensor  # (B, W, T)
    type_logits: Tensor  # (B, 3): span, yes, no; from <s>, max-pooled over windows
    last_hidden_state: Tensor  # (B, W, T, d)


@checked
class RecurrentEncoder(PreTrainedModel):
    """BERT or RoBERTa with a recurrence module that answers questions about texts of any number of windows.

    The mean over the non-padding tokens of a window's last layer goes through the module's feedforward network. One
    layer of the next window sees the result as key and value only. The class of a reader is `RecurrentBert` or
    `RecurrentRoberta`, depending on its config. Base weights keep transformers' names (`bert.` or `roberta.`, and
    `qa_outputs.`), new weights are under `answer_type.` and `recurrence.`. All tokens of a window have token type 0.
    recurrence: None is the module of the paper's section 5.4. Raises ReproError for a config of any other model.

    >>> from transformers import BertConfig
    >>> small = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
    ...     intermediate_size=8)
    >>> windows = torch.randint(4, 30, (1, 3, 12))  # one question, three windows
    >>> RecurrentEncoder(small)(windows, torch.ones_like(windows)).start_logits.shape
    torch.Size([1, 3, 12])
    """

    example = "google-bert/bert-base-uncased"  # a hub name

    def __new__(cls, config: PretrainedConfig | None = None, *args, **kwargs):  # None when a model is copied
        kind = getattr(config, "model_type", None)
        return super().__new__(cls if config is None else _class_for(cls, kind, "config"))

    def __init__(self, config: PretrainedConfig, recurrence: RecurrenceConfig | None = None):
        check_settings(recurrence)
        if getattr(config, "is_decoder", False):
            raise ReproError("is_decoder is True, but a reader sees later tokens too; give an encoder.")
        if self._padding_skipped and config.pad_token_id is None:
            raise ReproError(f"pad_token_id is None, but positions of {self.named} count from it; set it.")
        if getattr(config, "position_embedding_type", "absolute") not in ("absolute", None):
            raise ReproError(f"position_embedding_type is {short(config.position_embedding_type)}; h_prev has no "
                             "position, so give a model with absolute positions.")
        super().__init__(copy.deepcopy(config))
        stored = getattr(config, "recurrence", None)
        settings = recurrence or (RecurrenceConfig(**stored) if stored else PAPER)
        self.config.recurrence = settings.to_dict()
        setattr(self, self.base_model_prefix, self.encoder_class(self.config, add_pooling_layer=False))
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.answer_type = nn.Linear(config.hidden_size, len(TYPES))
        self.recurrence = Recurrence(settings, config.num_hidden_layers, config.hidden_size)
        self.post_init()
        self.recurrence.reset_parameters()

    @classmethod
    def from_pretrained(cls, name_or_folder: str | Path, recurrence: RecurrenceConfig | None = None,
                        **kwargs) -> "RecurrentEncoder":
        """Load a saved reader, or any BERT or RoBERTa checkpoint, whose missing parts are new: its folder, its hub
        name, or the name of a model that `repro models fetch` downloaded, such as minilm-l6.

        recurrence: for a fresh module; None: as in the paper's section 5.4. Weights are fp32 unless `dtype` is given.
        Raises ReproError if `recurrence` contradicts a saved model, and for a checkpoint that is damaged, incomplete or
        of another kind of model.
        """
        check_settings(recurrence)
        with reading(name_or_folder, cls.example) as name_or_folder:
            values = config_of(None, name_or_folder)
            made = _class_for(cls, values.get("model_type"), f"the checkpoint {name_or_folder}")
            config = made.config_class.from_dict(values)
            stored = getattr(config, "recurrence", None)
            if stored is not None:
                check_same(name_or_folder, stored, recurrence)
            else:
                config.recurrence = (recurrence or PAPER).to_dict()
            model, loading = super(RecurrentEncoder, made).from_pretrained(
                str(name_or_folder), config=config, output_loading_info=True, **{"dtype": torch.float32} | kwargs)
        lost = sorted(name for name in loading["missing_keys"]
                      if stored is not None or name.startswith(f"{made.base_model_prefix}."))
        if lost:
            raise ReproError(f"{name_or_folder} lacks {len(lost)} weights, the first of them {lost[0]}; give a "
                             "complete checkpoint.")
        if stored is None:
            model.recurrence.reset_parameters()
        return model

    def save_pretrained(self, folder: str | Path, **kwargs) -> None:
        """Save the model as transformers does; its question-answering class can load the shared weights."""
        with quietly():
            super().save_pretrained(folder, **kwargs)

    @property
    def n_positions(self) -> int:
        """The most tokens that a window can have."""
        skipped = self.config.pad_token_id + 1 if self._padding_skipped else 0
        return self.config.max_position_embeddings - skipped

    @property
    def state_size(self) -> int:
        """How many numbers a window passes on: the hidden size, or twice that with `residual`."""
        return self.config.hidden_size * (1 + self.recurrence.config.residual)

    def added_parameters(self):
        """The weights that a plain single-window reader does not have."""
        return self.recurrence.parameters()

    @checked
    def forward(self, windows: Tensor, attention_mask: Tensor | None = None, recurrent: bool = True,
                recompute: str = "none", given: Tensor | None = None) -> Read:
        """Read questions (B, W, T), window after window, as `question_windows` makes them.

        attention_mask (B, W, T): 0 for padding, whose outputs are meaningless; a window that is all padding is skipped
        and changes nothing. recurrent: False reads every window without h_prev, like the plain model. recompute:
        "window" stores only the state passed to the next window for the backward pass.
        given (B, W, state_size): the state that each window sees instead of the previous window's (`states` of another
        question).
        Raises ReproError for windows longer than the model's positions, other shapes, and an unknown `recompute`.
        """
        if recompute not in RECOMPUTE:
            raise unknown("recompute", recompute, RECOMPUTE)
        real = self._real(windows, attention_mask)
        batch, n_windows, _ = windows.shape
        if given is not None and tuple(given.shape) != (batch, n_windows, self.state_size):
            raise ReproError(f"given has shape {tuple(given.shape)}; give (questions, windows, width), here "
                             f"{(batch, n_windows, self.state_size)}.")
        if given is not None and not recurrent:
            raise ReproError("given sets the states that windows see, but recurrent=False sees none; leave one out.")
        read = self._windows(windows, real, recompute == "window", given, recurrent)
        hidden = torch.stack([one for one, _ in read], 1)
        start, end = self.qa_outputs(hidden).unbind(-1)
        first = hidden[:, :, 0].masked_fill(~real.any(-1)[..., None], -torch.inf).amax(1)  # (B, d)
        return Read(start, end, self.answer_type(first), hidden)

    def states(self, windows: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(B, W, state_size): the state that each window passes on, before the module's feedforward network. With
        `residual`, the second half is the pooled input of the layer that sees h_prev."""
        return torch.stack([z for _, z in self._windows(windows, self._real(windows, attention_mask), False, None)], 1)

    def _real(self, windows: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Which tokens are not padding (B, W, T), after checking all shapes."""
        if not isinstance(windows, Tensor) or windows.ndim != 3 or not windows.numel():
            raise ReproError(f"windows are {what(windows)}; give ids of shape (questions, windows, tokens).")
        check_ids(windows.flatten(0, 1), self.config.vocab_size, name="windows")
        if attention_mask is not None and not isinstance(attention_mask, Tensor):
            raise ReproError(f"attention_mask is {what(attention_mask)}; give a tensor with the shape of windows.")
        real = torch.ones_like(windows, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        if real.shape != windows.shape:
            raise ReproError(f"attention_mask has shape {tuple(real.shape)}, windows {tuple(windows.shape)}; they must "
                             "be the same.")
        if windows.shape[2] > self.n_positions and (reached := self._reached(windows, real)) > self.n_positions:
            raise ReproError(f"a window has {reached} tokens, but this {self.named} has {self.n_positions} positions; "
                             "give windows of at most that many.")
        if not real.flatten(1).any(1).all():
            raise ReproError("a question has only padding; give each at least one window of tokens.")
        return real

    def _reached(self, windows: Tensor, real: Tensor) -> int:
        """The positions that the longest window needs. Padding at its end needs none."""
        if self._padding_skipped:
            return int((windows != self.config.pad_token_id).sum(2).max())
        return int(real.any(0).any(0).nonzero().max()) + 1

    def _windows(self, windows, real, again, given, recurrent=True):
        """Hidden states (B, T, d) of each window in turn, and z (B, state_size), the state that it passes on."""
        z = self.qa_outputs.weight.new_zeros(len(windows), self.state_size)
        before = torch.zeros(len(windows), dtype=torch.bool, device=windows.device)  # is there a previous window?
        for k in range(windows.shape[1]):
            seen = (z if given is None else given[:, k], before) if recurrent else (None, None)
            hidden, left = self._of_rows(windows[:, k], real[:, k], *seen, again)
            there = real[:, k].any(1)
            z, before = torch.where(there[:, None], left.to(z.dtype), z), before | there
            yield hidden, z

    def _of_rows(self, ids, real, z, before, again):
        """`_read_window` for the rows that are not all padding, up to the longest; zeros elsewhere."""
        there, n = real.any(1), ids.shape[1]
        reached = int(real.any(0).nonzero().max()) + 1 if there.any() else 1  # padding beyond it is not computed
        ids, real = ids[:, :reached], real[:, :reached]
        if there.all():
            hidden, left = recomputed(again, self._read_window, ids, real, z, before)
        else:
            hidden, left = recomputed(again, self._read_window, ids[there], real[there], z if z is None else z[there],
                                      before if before is None else before[there])
            places = there.nonzero()[:, 0]
            hidden, left = (x.new_zeros(len(ids), *x.shape[1:]).index_copy(0, places, x) for x in (hidden, left))
        return F.pad(hidden, (0, 0, 0, n - reached)), left

    def _read_window(self, ids: Tensor, real: Tensor, z: Tensor | None, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Hidden states (B, T, d) of one window, and its z (B, state_size).

        z: from the previous window; before (B,): where there is one. None for both: there is none.
        """
        module, settings = self.recurrence, self.recurrence.config
        h_prev = None if z is None or not before.any() else module(*z.split(self.config.hidden_size, -1))
        mask = None if real.all() else real[:, None, None]  # (B, 1, 1, keys)
        wide = mask
        if h_prev is not None and not (before.all() and mask is None):
            wide = torch.cat([before[:, None].expand(-1, h_prev.shape[1]), real], 1)[:, None, None]
        hidden, pooled, left = self.base_model.embeddings(ids), [], []
        for index, layer in enumerate(self.base_model.encoder.layer):
            if settings.residual and index == settings.insert_layer:
                left = [module.pool(hidden, real=real)]
            sees = h_prev is not None and (settings.insert == "every" or index == settings.insert_layer)
            hidden = _block(layer, hidden, h_prev if sees else None, wide if sees else mask)
            if settings.layers == "learned" or settings.normalize:
                pooled.append(module.pool(hidden, real=real))
        z = module.combine(pooled) if pooled else module.pool(hidden, real=real)
        return hidden, torch.cat([z, *left], -1)


@checked
class RecurrentRoberta(RecurrentEncoder, RobertaPreTrainedModel):
    """A `RecurrentEncoder` made of RoBERTa. Its padding has no position.

    >>> from transformers import RobertaConfig
    >>> small = RobertaConfig(vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
    ...     intermediate_size=8)
    >>> RecurrentRoberta(small).n_positions
    510
    """

    config_class, encoder_class, named = RobertaConfig, RobertaModel, "RoBERTa"
    example, _padding_skipped = "FacebookAI/roberta-base", True


@checked
class RecurrentBert(RecurrentEncoder, BertPreTrainedModel):
    """A `RecurrentEncoder` made of BERT.

    >>> from transformers import BertConfig
    >>> small = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
    ...     intermediate_size=8)
    >>> RecurrentBert(small).n_positions
    512
    """

    config_class, encoder_class, named = BertConfig, BertModel, "BERT"
    _padding_skipped = False


READERS = {"bert": RecurrentBert, "roberta": RecurrentRoberta}


def _class_for(cls: type, kind: str | None, source: object) -> type:
    """The class of a reader for a model type. Raises ReproError for a type that `cls` does not read."""
    known = READERS if cls is RecurrentEncoder else {cls.config_class.model_type: cls}
    if kind in known:
        return known[kind]
    names = " or ".join(made.named for made in known.values())
    raise ReproError(f"{source} is of {kind or 'no model'}, not of {names}; give one of {names}.")


def _block(layer: nn.Module, hidden: Tensor, h_prev: Tensor | None, mask: Tensor | None) -> Tensor:
    """One of RoBERTa's layers (B, T, d), in whose attention every token also sees `h_prev` (B, E, d), if given."""
    own = layer.attention.self
    keys = hidden if h_prev is None else torch.cat([h_prev.to(hidden.dtype), hidden], 1)
    query, key, value = (part(x).unflatten(-1, (own.num_attention_heads, -1)).transpose(1, 2)
                         for part, x in ((own.query, hidden), (own.key, keys), (own.value, keys)))
    out = _attend(query, key, value, mask, own.dropout.p if own.training else 0.0)
    attended = layer.attention.output(out.transpose(1, 2).flatten(2), hidden)
    return layer.output(layer.intermediate(attended), attended)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """(B, H, T, D); mask (B, 1, 1, keys): which keys can be seen. In bfloat16 on a CPU, plain products are faster."""
    if query.dtype != torch.bfloat16 or query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, key, value, mask, dropout)
    scores = query * query.shape[-1]**-0.5 @ key.transpose(2, 3)
    weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1).to(value.dtype)
    return F.dropout(weights, dropout) @ value
