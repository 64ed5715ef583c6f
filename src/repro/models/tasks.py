"""Fine-tuning GPT: every task is read as a text, and the last token predicts the answer (Radford et al. 2018, 3.2-3.3).

A text starts with one new token and ends with another; a third separates two texts. Only their embeddings and one
matrix are new. During fine-tuning, the model continues to predict tokens, which the paper found to help.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repro.checked import checked
from repro.cpu import exact_products
from repro.errors import ReproError, check_method, check_whole, unknown
from repro.ids import evaluating, what
from repro.loss import check_lm_weight, cross_entropy
from repro.models.gpt import INIT

FORMS = {"classification": 1, "entailment": 1, "similarity": 2, "multiple-choice": None}  # sequences of an example
TEXTS = {"classification": "a text", "entailment": "a premise and a hypothesis", "similarity": "two texts",
         "multiple-choice": "a document, a question and at least two candidates"}
START, DELIMITER, EXTRACT = range(3)  # the new tokens; their ids come after those of the vocabulary

Ids = list[int]
Predicted = tuple[Tensor, Tensor, Tensor]  # states (n, d), the tokens that follow (n,), and loss weights (n,)


@checked
def encode_example(form: str, texts: Sequence[str], tokeniser, limit: int) -> list[Ids]:
    """The sequences of token ids (1, 1, 2 or K of them) that a `TaskModel` reads for an example (Figure 1).

    form: "classification" (a text), "entailment" (premise, hypothesis), "similarity" (two texts, read in both orders)
    or "multiple-choice" (document, question, K candidates; the document or the question may be empty, for tasks that
    have only one of them). Special tokens that occur in a text are read as text; a word tokenizer, which cannot do
    that, rejects them. limit: the most tokens of a sequence. If it is longer, the document is truncated if there are
    candidates; otherwise the longer text, and the second of two equally long ones. Special tokens are kept.

    Raises ReproError for an unknown form, another number of texts, and a text that is not a string or has no words.
    Raises it also for a limit that is not a whole number, leaves nothing of a text, or is too short for question and
    candidate.

    >>> from repro.data import train_bpe
    >>> coder = train_bpe(["a cat sat. a dog ran."], 260)
    >>> first, second = encode_example("similarity", ("a cat", "a dog"), coder, limit=16)
    >>> sorted(first) == sorted(second), first == second
    (True, False)
    """
    check_method(tokeniser, "tokeniser", "encode", "repro.data.tokeniser(...)")
    parts = _encoded(form, (texts,) if isinstance(texts, str) else tuple(texts), tokeniser, limit)
    start, delimiter, extract = (tokeniser.vocab_size + k for k in (START, DELIMITER, EXTRACT))
    if form == "multiple-choice":
        document, question, *candidates = parts
        room = [limit - 3 - len(question) - len(candidate) for candidate in candidates]
        _check_room(limit, limit - min(room), "question and candidate take")
        return [[start, *document[:left], *question, delimiter, *candidate, extract]
                for left, candidate in zip(room, candidates, strict=True)]
    _check_room(limit, 2 * len(parts) + 1, f"an example of {form} has at least")
    lengths = _fitting([len(ids) for ids in parts], limit - len(parts) - 1)
    parts = [ids[:length] for ids, length in zip(parts, lengths, strict=True)]
    if form == "classification":
        return [[start, *parts[0], extract]]
    first, second = parts
    both = [[start, *first, delimiter, *second, extract], [start, *second, delimiter, *first, extract]]
    return both[:FORMS[form]]


def _encoded(form: str, texts: tuple[str, ...], tokeniser, limit: int) -> list[Ids]:
    """The ids of each text. Raises ReproError unless the texts are an example of this form."""
    if not isinstance(form, str) or form not in FORMS:
        raise unknown("form", form, FORMS)
    choice = form == "multiple-choice"
    if len(texts) < 4 if choice else len(texts) != (1 if form == "classification" else 2):
        raise ReproError(f"there are {len(texts)} texts; an example of {form} has {TEXTS[form]}.")
    if isinstance(limit, bool) or not isinstance(limit, Integral):
        raise ReproError(f"limit is {limit!r}; it must be a whole number of tokens.")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ReproError(f"text {number + 1} of {len(texts)} is {type(text).__name__}, not a string.")
    parts = [[int(i) for i in tokeniser.encode(text)] for text in texts]
    said = [bool(ids) and not text.isspace() for ids, text in zip(parts, texts, strict=True)]
    for number, ids in enumerate(parts):
        if not said[number] and not (choice and number < 2 and any(said[:2])):
            raise ReproError(f"text {number + 1} of {len(texts)} is empty; an example of {form} has {TEXTS[form]}.")
        if getattr(tokeniser, "bos", None) in ids:
            raise ReproError(f"text {number + 1} of {len(texts)} has <|endoftext|>, which tokenizer {tokeniser.name} "
                             "treats as the end of a text; remove it.")
    return parts


def _check_room(limit: int, least: int, why: str) -> None:
    if limit < least:
        raise ReproError(f"limit is {limit} tokens; {why} {least}, including the special ones; give more, or remove "
                         "the example.")


def _fitting(lengths: list[int], room: int) -> list[int]:
    """The lengths of one or two texts after truncating the longer one, or the second of equal ones, until both fit."""
    if sum(lengths) <= room:
        return lengths
    if len(lengths) == 1:
        return [room]
    first = min(lengths[0], max((room + 1) // 2, room - lengths[1]))
    return [first, room - first]


@checked
def collate(examples: Iterable[Sequence[Ids]]) -> tuple[Tensor, Tensor]:
    """A batch of encoded examples: ids (B, S, N), padded with zeros, and lengths (B, S), both int64.

    Raises ReproError for no examples, for examples with different numbers of sequences, an empty sequence, and anything
    but sequences of whole numbers.

    >>> ids, lengths = collate([[[1, 2, 3]], [[4, 5]]])
    >>> ids.tolist(), lengths.tolist()
    ([[[1, 2, 3]], [[4, 5, 0]]], [[3], [2]])
    """
    examples = list(examples)
    if not all(isinstance(example, Sequence) and not isinstance(example, str) for example in examples):
        raise ReproError("an example of this batch is not a list of sequences of ids, such as [[1, 2, 3]].")
    examples = [list(example) for example in examples]
    counts = sorted({len(example) for example in examples})
    if len(counts) != 1 or not counts[0]:
        raise ReproError(f"the examples of this batch have {' and '.join(map(str, counts)) or 'no'} sequences; a "
                         "batch needs examples with the same number, at least one: group them by candidates.")
    if not all(hasattr(ids, "__len__") and not isinstance(ids, str) for example in examples for ids in example):
        raise ReproError("an example of this batch is a list of ids; it must be a list of sequences, such as "
                         "[[1, 2, 3]] for one sequence.")
    lengths = torch.tensor([[len(ids) for ids in example] for example in examples])
    if not lengths.all():
        raise ReproError("a sequence of this batch has no tokens; encode examples with `encode_example`.")
    batch = torch.zeros(*lengths.shape, int(lengths.max()), dtype=torch.int64)
    for rows, example in zip(batch, examples, strict=True):
        for row, ids in zip(rows, example, strict=True):
            given = torch.as_tensor(ids)
            if given.is_floating_point():
                raise ReproError(f"a sequence of this batch has {given.dtype} instead of ids; give whole numbers.")
            row[:len(ids)] = given
    return batch, lengths


@checked
def labelled(examples: Sequence[tuple[Sequence[Ids], float]]) -> dict[str, Tensor]:
    """A batch from pairs (encoded example, label): `ids` and `lengths` of `collate`, and `labels` (B,).

    >>> batch = labelled([([[1, 2, 3]], 0), ([[4, 5]], 1)])
    >>> batch["ids"].shape, batch["labels"]
    (torch.Size([2, 1, 3]), tensor([0, 1]))
    """
    if not all(isinstance(one, Sequence) and not isinstance(one, str) and len(one) == 2 for one in examples):
        raise ReproError("give pairs of an encoded example and its label.")
    ids, lengths = collate([example for example, _ in examples])
    return {"ids": ids, "lengths": lengths, "labels": torch.tensor([label for _, label in examples])}


class Told:
    """The output of a `TaskModel` for a batch.

    logits: (B, n_outputs), or (B, S) for candidates. task_loss: mean cross entropy in nats, or mean squared error.
    loss: task_loss + lm_weight * lm_loss. Both are None without labels.
    """

    def __init__(self, logits: Tensor, task_loss: Tensor | None, predicted: Callable[[], Tensor], lm_weight: float):
        self.logits, self.task_loss, self._predicted = logits, task_loss, predicted
        self.loss = task_loss
        if task_loss is not None and lm_weight:
            self.loss = task_loss + lm_weight * self.lm_loss

    @cached_property
    def lm_loss(self) -> Tensor:
        """Mean over sequences of the mean nats per token, from the second token on, under a softmax over V + 3 tokens.

        Computed on first access, and for `loss` only if its weight is not 0, because the output layer is slow.
        """
        return self._predicted()


@checked
class TaskModel(nn.Module):
    """A fine-tuned language model: maps (B, S, N) ids of `collate` to logits and losses (`Told`).

    base: a `GPT`, or another model with `embed`, `read` and a tied output layer, such as `LSTM`; it is not copied.
    form: as in `encode_example`. n_outputs: the number of labels; 1 predicts a number, with squared error; always 1 for
    candidates, because the softmax is over them. dropout: of the state that predicts the answer. If two texts are read
    in both orders, the two states are added.

    Candidates share a beginning, which a `GPT` reads once (`shared`): the same results in a fraction of the time.
    Raises ReproError for an unknown form and numbers out of range.

    >>> base = GPT(GPTConfig(vocab_size=9, n_positions=64, n_layer=1, n_embd=8, n_head=2))
    >>> model = TaskModel(base, "entailment", n_outputs=3)
    >>> output = model(**labelled([([[1, 2, 3, 4]], 0), ([[1, 2, 3]], 2)]))
    >>> output.logits.shape, output.loss.requires_grad
    (torch.Size([2, 3]), True)
    """

    def __init__(self, base: nn.Module, form: str, n_outputs: int = 1, dropout: float = 0.1):
        super().__init__()
        if not isinstance(form, str) or form not in FORMS:
            raise unknown("form", form, FORMS)
        if isinstance(n_outputs, bool) or not isinstance(n_outputs, Integral):
            raise ReproError(f"n_outputs is {n_outputs!r}; it must be a whole number.")
        if n_outputs < 1 or form == "multiple-choice" and n_outputs != 1:
            raise ReproError(f"n_outputs is {n_outputs}; it must be at least 1, and 1 for multiple-choice, where each "
                             "candidate has one.")
        if not isinstance(dropout, Real) or not 0 <= dropout < 1:
            raise ReproError(f"dropout is {dropout!r}; it must be at least 0 and below 1.")
        self.base, self.form, self.n_outputs = base, form, n_outputs
        self.shared = True  # read the common part of candidates once
        width, weight = base.config.n_embd, base.embed.weight
        self.special = nn.Embedding(3, width, device=weight.device, dtype=weight.dtype)
        self.head = nn.Linear(width, n_outputs, bias=False, device=weight.device, dtype=weight.dtype)
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.head.weight, std=INIT)
        with torch.no_grad():  # with the standard deviation of the base's embeddings
            self.special.weight.normal_().mul_(base.embed.weight.std())

    def settings(self) -> dict:
        """Everything that determines its results, except the weights."""
        return {"base": self.base.config.to_dict(), "form": self.form, "n_outputs": self.n_outputs,
                "dropout": self.dropout.p}

    @checked
    def forward(self, ids: Tensor, lengths: Tensor, labels: Tensor | Sequence[float] | None = None,
                lm_weight: float = 0.5) -> Told:
        """ids: (B, S, N), lengths: (B, S), of `collate`. labels: (B,), the index of a label or candidate, or the number
        to predict. lm_weight: the weight of the language-model loss.

        Raises ReproError for shapes that do not match, numbers out of range, texts beyond the context of the base, and
        texts from another tokenizer than the base's.
        """
        for name, part in (("ids", ids), ("lengths", lengths)):
            if not isinstance(part, Tensor):
                raise ReproError(f"{name} are {what(part)}; give the tensor from `collate`.")
        try:
            labels = None if labels is None else torch.as_tensor(labels, device=ids.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ReproError(f"labels are {labels!r}; give a tensor or a list of numbers.") from error
        self._check(ids, lengths, labels, lm_weight)
        ids = ids[:, :, :int(lengths.max())]
        ids = ids.masked_fill(~_there(ids, lengths), 0)  # padding may have any id
        table = torch.cat([self.base.embed.weight, self.special.weight])
        n = _in_common(ids, lengths) if self._may_share(ids) else None
        states, predicted = (self._apart(ids, lengths, table) if n is None or not n.all() else
                             self._branching(ids, lengths, n, table))
        state = states if self.form == "multiple-choice" else states.sum(1)
        logits = self.head(self.dropout(state))
        logits = logits.squeeze(2) if self.form == "multiple-choice" else logits
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))

        def lm_loss() -> Tensor:
            known, tokens, weights = predicted()
            return (cross_entropy(F.linear(known.to(table.dtype), table), tokens, "none") * weights).sum()

        return Told(logits, None if labels is None else self._task_loss(logits, labels), lm_loss, lm_weight)

    def _task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if logits.shape[1] > 1:
            return cross_entropy(logits, labels.long()) / len(labels)
        return (logits[:, 0] - labels.to(logits)).square().mean()

    def _may_share(self, ids: Tensor) -> bool:
        return self.shared and self.form == "multiple-choice" and hasattr(self.base, "read_branches")

    def _apart(self, ids: Tensor, lengths: Tensor, table: Tensor) -> tuple[Tensor, Callable[[], Predicted]]:
        """Every sequence read in full: the states (B, S, d) of its last token, and the states that predict its
        tokens."""
        states = self.base.read(F.embedding(ids.flatten(0, 1), table)).unflatten(0, ids.shape[:2])
        weight = _shares(lengths, states)

        def predicted() -> Predicted:
            there = torch.arange(1, ids.shape[2], device=ids.device) < lengths[..., None]
            return states[:, :, :-1][there], ids[:, :, 1:][there], weight[..., None].expand(there.shape)[there]

        return _at(states, lengths - 1), predicted

    def _branching(self, ids: Tensor, lengths: Tensor, n: Tensor, table: Tensor
                   ) -> tuple[Tensor, Callable[[], Predicted]]:
        """The same, but the first n (B,) tokens, which all sequences of an example share, are read only once."""
        many, trunk_size = ids.shape[1], int(n.max())
        column = torch.arange(trunk_size, device=ids.device) - (trunk_size - n)[:, None]  # position; below 0: padding
        place = n[:, None] + torch.arange(int((lengths - n[:, None]).max()), device=ids.device)
        trunk = ids[:, 0].gather(1, column.clamp(min=0))
        at = place.clamp(max=ids.shape[2] - 1)[:, None].expand(-1, many, -1)
        branches = ids.gather(2, at)
        read, states = self.base.read_branches(F.embedding(trunk, table), F.embedding(branches, table), n)
        weight = _shares(lengths, states)

        def predicted() -> Predicted:
            inside = column[:, :-1] >= 0
            beyond = place[:, None, 1:] < lengths[..., None]
            fork = read[:, -1:].expand(-1, many, -1)  # the last common token predicts the first token of every branch
            return tuple(torch.cat(parts) for parts in (
                (read[:, :-1][inside], fork.flatten(0, 1), states[:, :, :-1][beyond]),
                (trunk[:, 1:][inside], branches[:, :, 0].flatten(), branches[:, :, 1:][beyond]),
                (weight.sum(1, keepdim=True).expand(inside.shape)[inside], weight.flatten(),
                 weight[..., None].expand(beyond.shape)[beyond])))

        return _at(states, lengths - n[:, None] - 1), predicted

    def _check(self, ids: Tensor, lengths: Tensor, labels: Tensor | None, lm_weight: float) -> None:
        """Raise ReproError for shapes that do not match or values out of range."""
        if ids.ndim != 3 or lengths.shape != ids.shape[:2] or not len(ids):
            raise ReproError(f"ids are {tuple(ids.shape)} and lengths {tuple(lengths.shape)}; they must be (B, S, N) "
                             "and (B, S), as `collate` gives them, with at least one example.")
        if not {ids.dtype, lengths.dtype} <= {torch.int64, torch.int32}:
            raise ReproError(f"ids are {ids.dtype} and lengths {lengths.dtype}; both must be int64 or int32.")
        if FORMS[self.form] not in (None, ids.shape[1]) or self.form == "multiple-choice" and ids.shape[1] < 2:
            raise ReproError(f"the examples have {ids.shape[1]} sequences; those of {self.form} have "
                             f"{FORMS[self.form] or 'one for each of at least two candidates'}.")
        if not 2 <= int(lengths.min()) <= int(lengths.max()) <= ids.shape[2]:
            raise ReproError(f"lengths are {int(lengths.min())} to {int(lengths.max())}; they must be 2 to "
                             f"{ids.shape[2]}, the length of a sequence.")
        context = getattr(self.base.config, "n_positions", None)
        if context is not None and int(lengths.max()) > context:
            raise ReproError(f"a text has {int(lengths.max()):,} tokens, but the model's context ends at {context:,}; "
                             f"encode examples with a limit of at most {context:,}.")
        check_lm_weight(lm_weight)
        self._check_tokens(ids, lengths)
        if labels is not None:
            self._check_labels(ids, labels)

    def _check_tokens(self, ids: Tensor, lengths: Tensor) -> None:
        """Raise ReproError for ids beyond the vocabulary, and for start or end tokens of another tokenizer."""
        size, tokens = self.base.config.vocab_size, ids[_there(ids, lengths)]
        first, last = ids[:, :, 0], _at(ids[..., None], lengths - 1)[..., 0]
        same = bool((first == first[0, 0]).all() and (last == first + EXTRACT).all())
        if not 0 <= int(tokens.min()) <= int(tokens.max()) < size + 3 or same and int(first[0, 0]) != size:
            raise ReproError(f"the texts have ids from {int(tokens.min())} to {int(tokens.max())} and start with "
                             f"{int(first[0, 0])}, but the base has {size} ids, so that they start with {size} and end "
                             f"with {size + EXTRACT}; encode them with the tokenizer of the base.")

    def _check_labels(self, ids: Tensor, labels: Tensor) -> None:
        n = ids.shape[1] if self.form == "multiple-choice" else self.n_outputs
        if labels.shape != ids.shape[:1]:
            raise ReproError(f"labels are {tuple(labels.shape)}; give one for each of the {len(ids)} examples.")
        if n == 1 and not bool(torch.isfinite(labels).all()):
            raise ReproError("a label is not finite; with n_outputs=1 labels are numbers.")
        if n > 1 and (labels.is_floating_point() or not 0 <= int(labels.min()) <= int(labels.max()) < n):
            raise ReproError(f"labels are {labels.dtype} from {labels.min().item()} to {labels.max().item()}; they "
                             f"must be whole numbers from 0 to {n - 1}.")


@checked
@torch.no_grad()
def answers(model: TaskModel, examples: Sequence[Sequence[Ids]], batch_size: int = 32) -> np.ndarray:
    """The logits (examples, outputs or candidates) float64 of encoded examples, in their order. Dropout is off.

    Batches hold examples of similar length. On a CPU, large float32 products take the fastest exact path
    (`repro.cpu`). Raises ReproError for no examples, different numbers of candidates, and batch sizes below 1.

    >>> base = GPT(GPTConfig(vocab_size=9, n_positions=64, n_layer=1, n_embd=8, n_head=2))
    >>> answers(TaskModel(base, "classification", n_outputs=2), [[[1, 2, 3]], [[4, 5]]]).shape
    (2, 2)
    """
    check_whole(batch_size, "batch_size")
    collate(examples)  # raises ReproError for examples that do not match
    lengths = [max(map(len, example)) for example in examples]
    order, device = np.argsort(lengths, kind="stable"), model.head.weight.device
    found = []
    with evaluating(model), exact_products(model, batch_size * len(examples[0]) * max(lengths), device):
        for start in range(0, len(order), batch_size):
            ids, sizes = collate([examples[k] for k in order[start:start + batch_size]])
            found.append(model(ids.to(device), sizes.to(device)).logits.double().cpu())
    return torch.cat(found).numpy()[np.argsort(order)]


def _there(ids: Tensor, lengths: Tensor) -> Tensor:
    """(B, S, N) bool: True for tokens, False for padding."""
    return torch.arange(ids.shape[2], device=ids.device) < lengths[..., None]


def _shares(lengths: Tensor, states: Tensor) -> Tensor:
    """(B, S): the weight of each token, from the second on, in the mean of the means of all sequences."""
    return 1 / ((lengths - 1) * lengths.numel()).to(torch.promote_types(states.dtype, torch.float32))


def _in_common(ids: Tensor, lengths: Tensor) -> Tensor:
    """(B,): the length of the common beginning of the sequences of an example; each keeps at least one token."""
    shared = (ids == ids[:, :1]).all(1).long().cumprod(1).sum(1)
    return shared.minimum(lengths.min(1).values - 1)


def _at(values: Tensor, index: Tensor) -> Tensor:
    """(B, S, d): the vectors of `values` (B, S, N, d) at `index` (B, S)."""
    return values.gather(2, index[..., None, None].expand(-1, -1, 1, values.shape[3])).squeeze(2)
