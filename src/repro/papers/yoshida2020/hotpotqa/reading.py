"""From a question to the input of a reader, and from its output to words (Yoshida et al. 2020, section 5.4).

The context is all paragraphs, each after its title. A reader sees the question before every window of the context, and
answers with a span of one window, cut from the original context, or with yes or no.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from repro.data.examples import ANSWER_TYPES
from repro.errors import ReproError
from repro.evaluation.answers import LONGEST, best_spans

if TYPE_CHECKING:
    import torch

    from repro.data.examples import Question
    from repro.recurrence import RecurrentEncoder



class Asked(NamedTuple):
    """A question in the form that a reader reads."""

    question: "Question"
    context: str
    windows: list  # of `repro.recurrence.question_windows`
    offsets: Any  # (tokens, 2): where each token begins and ends in the context
    before: int  # number of special tokens and question tokens before the text of each window
    answers: tuple[tuple[int, int, int], ...]  # (window, first and last token in it) of each right span within reach
    type: int  # of the answer, an index of ANSWER_TYPES
    paragraphs: dict[int, int]  # number of each paragraph that is read -> its first token
    pad: int  # the id that fills a batch

    @property
    def tokens(self) -> int:
        """The number of tokens in all windows together."""
        return sum(len(one.ids) for one in self.windows)

    @property
    def texts(self) -> list[str]:
        """The part of the context in each window."""
        return [self.context[self.offsets[one.start, 0]:self.offsets[one.stop - 1, 1]] for one in self.windows]

    @property
    def distance(self) -> int:
        """How many windows apart the first and last supporting paragraph that are read begin; -1 if none is known."""
        starts = [window.start for window in self.windows]
        found = [bisect_right(starts, self.paragraphs[number]) for number, _ in self.question.supporting
                 if number in self.paragraphs]
        return max(found) - min(found) if found else -1


def asked(question: "Question", coder: Any, window: int, groups: Sequence[Sequence[int]] | None = None,
          must_stand: bool = True) -> Asked:
    """A question in windows of `window` tokens.

    groups: the numbers of the paragraphs that are read, in this order; each group starts a new window. None: all in one
    group. Right spans are the answer's occurrences in a supporting sentence; if there are none, in a supporting
    paragraph; else all. A span that continues in the next window, or has more than 30 tokens, is out of reach and not
    among the `answers`. must_stand: False for a question that is only answered. Raises ReproError, if `must_stand`, for
    an answer that is not yes or no and does not occur in the text that is read, and whenever `question_windows` does.
    """
    from repro.recurrence import question_windows

    context, places = "", {}
    texts = question.texts[1:]
    groups = [range(len(texts))] if groups is None else groups
    for number in chain(*groups):
        context += ("\n" if question.titles[number] else " ") if context else ""
        places[number] = len(context)
        context += texts[number].removeprefix("\n")
    below = {number: place + _below_title(question, number) for number, place in places.items()}
    spans = [(below[one.paragraph] + one.start, below[one.paragraph] + one.stop)
             for one in question.supported_spans if one.paragraph in below]
    kind = ANSWER_TYPES.index(question.answer_type)
    if must_stand and not kind and not spans:
        raise ReproError(f"the answer '{question.answer}' of question {question.id} does not occur in its context; "
                         "leave the question out.")
    coded, ids = coder.encode(question.question), coder.encode(context)
    sep, pad = map(coder.special, ("sep", "pad"))
    offsets = coder.offsets(context)
    starts = {number: int((offsets[:, 1] <= place).sum()) for number, place in places.items()}  # tokens before it
    cuts = [0, *(starts[group[0]] for group in groups[1:]), len(ids)]
    windows = [one._replace(start=one.start + a, stop=one.stop + a) for a, b in zip(cuts, cuts[1:], strict=False)
               if a < b or len(groups) == 1 for one in question_windows(coded, ids[a:b], window, coder.bos, sep)]
    before = len(coded) + 2
    answers = []
    for start, stop in spans:
        first, last = int((offsets[:, 1] <= start).sum()), int((offsets[:, 0] < stop).sum()) - 1
        answers += [(k, before + first - one.start, before + last - one.start) for k, one in enumerate(windows)
                    if one.start <= first and last < one.stop and last - first < LONGEST]
    return Asked(question, context, windows, offsets, before, tuple(answers), kind, starts, pad)


def _below_title(question: "Question", number: int) -> int:
    """The number of characters before a paragraph's own text: its title and a line end, if it has a title."""
    return len(question.titles[number]) + 1 if question.titles[number] else 0


def padded(questions: Sequence[Asked]) -> "dict[str, torch.Tensor]":
    """A batch for `repro.training.Answers`; questions with fewer windows or tokens are padded."""
    import torch

    size = (len(questions), max(len(one.windows) for one in questions),
            max(len(window.ids) for one in questions for window in one.windows))
    batch = {name: torch.zeros(size, dtype=torch.bool) for name in ("attention_mask", "text", "starts", "ends")}
    ids = torch.full(size, questions[0].pad)
    for row, one in enumerate(questions):
        for k, window in enumerate(one.windows):
            ids[row, k, :len(window.ids)] = torch.tensor(window.ids)
            batch["attention_mask"][row, k, :len(window.ids)] = True
            batch["text"][row, k, one.before:len(window.ids) - 1] = True
        for k, first, last in one.answers:
            batch["starts"][row, k, first] = batch["ends"][row, k, last] = True
    return batch | {"windows": ids, "types": torch.tensor([one.type for one in questions])}


def answered(model: "RecurrentEncoder", questions: Sequence[Asked], recurrent: bool = True,
             given: Sequence | None = None, batch_size: int = 8) -> list[str]:
    """The answer of a reader to each question: yes, no, or words cut from its context. Dropout is off.

    given: the states that windows see instead of the previous window's state, (W, d) for each question.
    """
    return [answer for answer, _ in read_by(model, questions, recurrent, given, batch_size)]


def read_by(model: "RecurrentEncoder", questions: Sequence[Asked], recurrent: bool = True,
            given: Sequence | None = None, batch_size: int = 8, progress=None) -> list[tuple[str, float]]:
    """The answer of a reader to each question, and the nats of the right answer, as `repro.training.Answers` counts
    them."""
    from torch.nn.utils.rnn import pad_sequence

    from repro.training.objective import answer_nats

    found: list[tuple[str, float]] = [("", 0.0)] * len(questions)
    for places, batch in _batches(model, questions, batch_size):
        others = None if given is None else pad_sequence([given[k] for k in places], batch_first=True)
        output = model(batch["windows"], batch["attention_mask"], recurrent, given=others)
        spans = best_spans(output.start_logits, output.end_logits, batch["text"])
        nats, kinds = answer_nats(output, batch).tolist(), output.type_logits.argmax(1).tolist()
        for k, kind, span, cost in zip(places, kinds, spans, nats, strict=True):
            found[k] = cut(questions[k], *span) if kind == 0 else ANSWER_TYPES[kind], cost
        if progress is not None:
            progress.advance(len(places))
    return found


def by_window(model: "RecurrentEncoder", one: Asked, recurrent: bool = True) -> list[tuple[str, float]]:
    """The words that each window of a question would give if it were the only one searched (without yes and no), and
    the probability of that span: its start among all tokens of the text, times its end. Dropout is off."""
    found = []
    for _, batch in _batches(model, [one], 1):
        output = model(batch["windows"], batch["attention_mask"], recurrent)
        starts, ends = (logits[0].masked_fill(~batch["text"][0], float("-inf")).flatten().softmax(0).view_as(logits[0])
                        for logits in (output.start_logits, output.end_logits))
        for k in range(len(one.windows)):
            here = (x[:, k:k + 1] for x in (output.start_logits, output.end_logits, batch["text"]))
            _, first, last = best_spans(*here)[0]
            found.append((cut(one, k, first, last), float(starts[k, first] * ends[k, last])))
    return found


def cut(one: Asked, window: int, first: int, last: int) -> str:
    """The words of the context from token `first` to token `last` of a window."""
    offset = one.windows[window].start - one.before
    start, stop = int(one.offsets[offset + first, 0]), int(one.offsets[offset + last, 1])
    return one.context[start:stop].strip()


def states_of_others(model: "RecurrentEncoder", questions: Sequence[Asked], batch_size: int = 8) -> list:
    """For each question, the states (z) of the preceding question's windows, to be used instead of its own.

    Window k sees the state of window k - 1 of the other question; if that has fewer windows, its last state is
    repeated.
    """
    import torch

    own: list = [None] * len(questions)
    for places, batch in _batches(model, questions, batch_size):
        states = model.states(batch["windows"], batch["attention_mask"])
        for k, z in zip(places, states, strict=True):
            own[k] = z[:len(questions[k].windows)]
    found = []
    for k, one in enumerate(questions):
        other = own[k - 1]  # for the first question, the last one
        found.append(other[torch.arange(-1, len(one.windows) - 1).clamp(0, len(other) - 1)])
    return found


def _batches(model: Any, questions: Sequence[Asked], batch_size: int) -> Iterable:
    """Batches of questions of similar length, each as (indices into `questions`, tensors); no gradients, no dropout."""
    import torch

    from repro.ids import evaluating

    order = sorted(range(len(questions)), key=lambda k: questions[k].tokens)
    device = next(model.parameters()).device
    with torch.no_grad(), evaluating(model):
        for start in range(0, len(order), batch_size):
            places = order[start:start + batch_size]
            yield places, {name: x.to(device) for name, x in padded([questions[k] for k in places]).items()}
