"""From a question to windows and back to words: every right token, every cut, and real questions."""

import itertools

import numpy as np
import pytest
import torch

from repro import paths
from repro.data.examples import ANSWER_TYPES, Paragraph, Question, Span
from repro.errors import ReproError
from repro.papers.yoshida2020.hotpotqa import reading
from repro.papers.yoshida2020.hotpotqa.reading import answered, asked, by_window, padded, read_by, states_of_others
from repro.recurrence import reader
from repro.recurrence.reader import Read
from repro.training import Answers


class Words:
    """A tokeniser of words, each with the blank before it, and of line ends."""

    name, bos = "words", 0
    special = {"pad": 1, "sep": 2}.__getitem__

    def __init__(self):
        self.known = {}

    def _pieces(self, text):
        import re
        return [match.span() for match in re.finditer(r" ?[^\s]+|\n", text)]

    def encode(self, text):
        return np.array([self.known.setdefault(text[a:b], 5 + len(self.known)) for a, b in self._pieces(text)], int)

    def offsets(self, text):
        return np.array(self._pieces(text), int)


def question(answer="blue sea", spans=None, supporting=(), **changes):
    paragraphs = (Paragraph("One", ("The blue sea is", " near . ", "A blue sea ends .")),
                  Paragraph("Two &amp; more", ("No more", " than a blue sea .")))
    found = (Span(0, 4, 12), Span(0, 25, 33), Span(1, 15, 23)) if spans is None else spans
    return Question("q", "what is it", paragraphs, answer, found, supporting, **changes)


def test_a_reader_orders_the_types_of_answers_as_questions_do():
    assert ANSWER_TYPES == reader.TYPES


def test_windows_show_every_token_once_and_answers_where_they_stand():
    one = asked(question(), Words(), 12)
    assert one.context == "One\nThe blue sea is near . A blue sea ends .\nTwo & more\nNo more than a blue sea ."
    assert [window[1:] for window in one.windows] == [(0, 6), (6, 12), (12, 18), (18, 24), (24, 25)]
    assert "".join(one.texts) == one.context
    assert one.before == 5 and one.type == 0
    # "blue sea" of the first sentence is tokens 3 and 4: in the first window at 5 + 3
    assert one.answers[0] == (0, 8, 9)
    told = {reading.cut(one, *answer) for answer in one.answers}
    assert told == {"blue sea"} and len(one.answers) == 3
    assert len(asked(question(), Words(), 11).answers) == 2  # a cut goes through the second one
    assert one.distance == -1


@pytest.mark.parametrize(("supporting", "count", "distance"), [
    (((0, 0),), 1, 0), (((0, 2),), 1, 0), (((0, 1),), 2, 0), (((0, None), (1, 1)), 3, 2), (((1, None),), 1, 0),
    (((0, 2), (1, 0)), 1, 2), (((1, 0),), 1, 0)])
def test_known_support_says_which_place_is_meant(supporting, count, distance):
    """In a supporting sentence, else in its paragraph."""
    one = asked(question(supporting=supporting), Words(), 12)
    assert (len(one.answers), one.distance) == (count, distance)


def test_paragraphs_together_and_apart():
    together, apart = (asked(question(supporting=((0, 0), (1, 1))), Words(), 40, groups)
                       for groups in (((0, 1),), ((0,), (1,))))
    assert len(together.windows) == 1 and len(apart.windows) == 2
    assert apart.texts[1].split() == "Two & more No more than a blue sea .".split()
    assert {reading.cut(apart, *answer) for answer in apart.answers} == {"blue sea"}
    second = asked(question(), Words(), 40, [[1]])
    assert second.context == "Two & more\nNo more than a blue sea ." and len(second.answers) == 1


def test_only_some_paragraphs_and_empty_ones():
    parts = (Paragraph("", ("",)), Paragraph("Zero", ("Nothing .",)), *question().paragraphs)
    asks = Question("q", "what is it", parts, "blue sea", (Span(2, 4, 12),), ((2, 0), (3, 1)))
    for only, distance in (([0, 3], 0), ([2, 3], 2), ([3, 2], 2), ([1, 2, 3], 3), ([1], -1)):
        assert asked(asks, Words(), 12, [only], must_stand=False).distance == distance
    apart = asked(asks, Words(), 40, [[number] for number in range(4)])
    assert len(apart.windows) == 3 and apart.distance == 1 and "".join(apart.texts).count("blue sea") == 3


def test_yes_and_no_have_no_span():
    for answer, kind in (("yes", 1), ("no", 2)):
        one = asked(question(answer, ()), Words(), 12)
        assert one.type == kind and not one.answers


@pytest.mark.parametrize(("n", "answers"), [(30, ((0, 5, 34),)), (31, ())])
def test_a_span_too_long_to_be_an_answer_is_none(n, answers):
    text = " ".join(f"w{k}" for k in range(n))
    one = Question("q", "what is it", (Paragraph("", (text,)),), text, (Span(0, 0, len(text)),), ())
    assert asked(one, Words(), 60).answers == answers


def test_bad_questions():
    with pytest.raises(ReproError, match="the answer 'red sea' of question q does not occur in its context"):
        asked(question("red sea", ()), Words(), 12)
    assert asked(question("red sea", ()), Words(), 12, must_stand=False).type == 0
    with pytest.raises(ReproError, match="window is 6 tokens, but the question has 3"):
        asked(question(), Words(), 6)


def test_a_batch_is_padded_and_marks_text_and_answers():
    coder = Words()
    rows = [asked(question(), coder, 12), asked(question("yes", ()), coder, 20)]
    batch = padded(rows)
    assert {name: tuple(x.shape) for name, x in batch.items()} == {"types": (2,)} | dict.fromkeys(
        ("windows", "attention_mask", "text", "starts", "ends"), (2, 5, 20))
    for row, one in enumerate(rows):
        for k in range(5):
            ids = one.windows[k].ids if k < len(one.windows) else []
            assert batch["windows"][row, k].tolist() == ids + [1] * (20 - len(ids))
            assert batch["attention_mask"][row, k].tolist() == [True] * len(ids) + [False] * (20 - len(ids))
            text = batch["text"][row, k].nonzero()[:, 0].tolist()
            assert text == list(range(5, len(ids) - 1))
    assert batch["starts"][0].nonzero().tolist() == [[w, a] for w, a, _ in sorted(rows[0].answers)]
    assert batch["ends"][0].nonzero().tolist() == [[w, b] for w, _, b in sorted(rows[0].answers)]
    assert not batch["starts"][1].any() and batch["types"].tolist() == [0, 1]


class Told(torch.nn.Module):
    """A reader that says yes to questions of one window, and else points at given token ids."""

    def __init__(self, first, last):
        super().__init__()
        self.first, self.last, self.weight = first, last, torch.nn.Parameter(torch.zeros(1))

    def forward(self, windows, mask, recurrent=True, given=None):
        types = torch.zeros(len(windows), 3)
        types[:, 1] = (mask.any(-1).sum(1) == 1).float()
        return Read((windows == self.first).float(), (windows == self.last).float(), types, None)

    def states(self, windows, mask):
        return windows[..., :1].float() + 10 * windows[..., 4:5]


def test_what_is_answered_is_cut_from_the_context_in_the_order_of_the_questions():
    coder = Words()
    rows = [asked(question(), coder, 12), asked(question("yes", ()), coder, 60), asked(question(), coder, 14)]
    model = Told(coder.known[" ends"], coder.known[" ends"]).train()
    assert answered(model, rows, batch_size=2) == ["ends", "yes", "ends"]
    told = read_by(model, rows, batch_size=2)
    assert [answer for answer, _ in told] == ["ends", "yes", "ends"]
    each = [float(Answers(model)(padded([row]))) for row in rows]  # by themselves: padding changes nothing
    assert [nats for _, nats in told] == pytest.approx(each) and len(set(each)) > 1
    assert model.training


def test_what_each_window_would_answer_has_its_share_of_all_spans():
    coder = Words()
    one = asked(question(), coder, 12)
    found = by_window(Told(coder.known[" ends"], coder.known[" ends"]), one)
    everything = np.e + padded([one])["text"].sum().item() - 1  # of the starts; "ends" stands in one place
    where, = (k for k, window in enumerate(one.windows) if coder.known[" ends"] in window.ids)
    assert found[where][0] == "ends"
    for k, (_, share) in enumerate(found):
        assert share == pytest.approx((np.e if k == where else 1)**2 / everything**2)


def test_other_states_are_those_of_the_question_before():
    coder = Words()
    rows = [asked(question(), coder, window) for window in (12, 40, 14)]
    model = Told(0, 0)
    own = [model.states(*(padded([one])[name] for name in ("windows", "attention_mask")))[0] for one in rows]
    others = states_of_others(model, rows, batch_size=2)
    assert [len(one) for one in others] == [5, 1, 4]
    assert torch.equal(others[1], own[0][:1])  # window 0 sees nothing, whatever stands there
    assert torch.equal(others[2][1:], own[1].expand(3, -1))  # one with fewer windows: its last stays
    assert torch.equal(others[0][1:4], own[2][:3]) and torch.equal(others[0][4], own[2][3])


@pytest.mark.skipif(paths.data() is None, reason="needs real questions: set REPRO_DATA")
def test_real_questions_come_back_as_their_answers(tmp_path, monkeypatch):
    """Every answer that stands in a window is cut from it as it was, whatever the tokens."""
    from repro.data import corpus, tokeniser
    from repro.evaluation import normalise_answer

    monkeypatch.setenv("REPRO_WORK", str(tmp_path))
    coder, spans = tokeniser("masked-bpe", 700, "synthetic-books"), 0
    for row in itertools.islice(corpus("hotpotqa-subset").examples("validation"), 25):
        one = asked(row, coder, 400)
        assert "".join(one.texts) == one.context
        assert (one.type > 0) == (row.answer in ("yes", "no"))
        for answer in one.answers:
            spans += 1
            assert normalise_answer(row.answer) in normalise_answer(reading.cut(one, *answer))
            assert len(reading.cut(one, *answer)) <= len(row.answer) + 3
        assert one.distance >= 0
    assert spans > 15
