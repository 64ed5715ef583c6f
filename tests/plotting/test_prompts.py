"""The diagram of GPT-2's prompts: its boxes, and that its text is what the model is given."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from repro.errors import ReproError
from repro.evaluation import generation
from repro.papers.gpt2_2019 import sets
from repro.papers.gpt2_2019.prompts import CUE, GIVEN, PROMPTS
from repro.plotting import COLOURS
from repro.plotting.prompts import draw_prompts


def prompt_of(lines) -> str:
    """The text that a model is given: all lines up to the run that it writes or scores."""
    return "\n".join(" ".join(text for text, kind in line if kind in (GIVEN, CUE)) for line in lines)


def test_every_run_of_text_has_a_box_of_its_kind():
    answer = [("A:", "cue"), ("yes", "scored"), ("and more", "left out")]
    figure = draw_prompts({"one": [[("a text", "given")], answer]})
    axis = figure.axes[0]
    drawn = [text.get_text() for text in axis.texts]
    assert drawn[:5] == ["one", "a text", "A:", "yes", "and more"]
    assert drawn[5:] == ["given", "names the task", "written or scored by the model"]
    faces = Counter(to_hex(patch.get_facecolor()).upper() for patch in axis.patches)
    assert faces == {COLOURS["read"]: 2, COLOURS["pale"]: 2, COLOURS["scored"]: 2}  # each once, and in the key
    assert min(text.get_fontsize() for text in axis.texts) >= 9


def test_boxes_of_a_line_do_not_overlap():
    for figure in (draw_prompts(PROMPTS), draw_prompts({"x": [[("a", "cue"), ("b", "given"), ("c", "scored")]]})):
        lines = {}
        for patch in figure.axes[0].patches:
            box = patch.get_bbox()
            lines.setdefault(round(box.y0, 3), []).append((box.x0, box.x1))
        assert all(one[1] < other[0] for row in lines.values() for one, other in zip(sorted(row), sorted(row)[1:],
                                                                                     strict=False))


@pytest.mark.parametrize(("tasks", "words"), [({}, "no text"), ({"one": []}, "no text"), ({"one": [[]]}, "no text"),
                                              ({"one": [[("a", "green")]]}, "kind of text")])
def test_what_cannot_be_drawn_is_refused(tasks, words):
    with pytest.raises(ReproError, match=words):
        draw_prompts(tasks)


class Letters:
    """A tokeniser whose ids are letters, so that a prompt is text."""

    def encode(self, text):
        return np.array([ord(letter) for letter in text], np.int64)

    def decode(self, ids):
        return "".join(map(chr, ids))


@pytest.fixture
def given(monkeypatch):
    """The prompts that the functions of `sets` give to a model, as text; it writes nothing but line ends."""
    found = []

    def continued(model, prompts, n_new, *more):
        found.extend(Letters().decode(one) for one in prompts)
        return np.full((len(prompts), n_new), ord("\n")), np.ones((len(prompts), n_new))

    def branch_nll(model, prefix, branches):
        found.extend(Letters().decode([*prefix, *branch]) for branch in branches)
        return list(range(len(branches)))

    monkeypatch.setattr(generation, "continued", continued)
    monkeypatch.setattr(generation, "branch_nll", branch_nll)
    monkeypatch.setattr(sets, "SHOTS", 1)  # the figure leaves out the other four
    return found


MODEL = SimpleNamespace(config=SimpleNamespace(n_positions=1_000))


def test_prompts_of_questions(given):
    row = SimpleNamespace(question="Who came first?", answer="Ann", supporting=[(0, 0)],
                          paragraphs=[SimpleNamespace(text="Ann came first. Then Bob came.")])
    sets.reading(MODEL, Letters(), [row])
    assert given[0] == prompt_of(PROMPTS["Reading comprehension"])
    given.clear()
    asked = SimpleNamespace(question="Who painted Guernica?", answer="Picasso")
    sets.closed_book(MODEL, Letters(), [asked, asked], [SimpleNamespace(question="Who wrote Hamlet?",
                                                                        answer="Shakespeare")])
    assert given[0] == prompt_of(PROMPTS["Questions without a text"])


def test_prompts_of_summaries_and_translations(given):
    sets.summaries(MODEL, Letters(), [SimpleNamespace(document="The whole article.", summary="Short.")], 0, 10)
    assert given[0] == prompt_of(PROMPTS["Summary"])
    given.clear()
    sets.translations(MODEL, Letters(), [SimpleNamespace(document="the garden", summary="le jardin")],
                      [SimpleNamespace(document="the house", summary="la maison")])
    assert given[0] == prompt_of(PROMPTS["Translation"])


def test_prompts_of_clozes_are_scored_with_the_rest_of_the_sentence(given):
    row = SimpleNamespace(paragraphs=["The fox met a bear."], question=f"Then the {sets.BLANK} ran home.",
                          candidates=["fox", "bear"], answer=0, id="book-1")
    sets.clozes(MODEL, Letters(), [row])
    lines = PROMPTS["CBT: fill in the blank (score every candidate)"]
    assert given == [" ".join(text for text, _ in line) for line in lines]
