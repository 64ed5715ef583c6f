"""What a model is shown of each set, and what of its text counts, with a model that writes what it is told to."""

from types import SimpleNamespace

import numpy as np
import pytest

from repro.papers.gpt2_2019 import sets

MODEL = SimpleNamespace(config=SimpleNamespace(n_positions=200))


class Letters:
    """A token for each letter."""

    def encode(self, text):
        return np.array([ord(sign) for sign in text])

    def decode(self, ids):
        return "".join(chr(k) for k in ids)


@pytest.fixture
def written(monkeypatch):
    """What the model writes, whatever it reads; and what it was given to read."""
    asked = []

    def say(*texts):
        def continued(model, prompts, n_new, top_k=None, seed=0):
            asked.append((["".join(map(chr, one)) for one in prompts], n_new, top_k, seed))
            rows = [(text + "~" * n_new)[:n_new] for text in (texts * len(prompts))[:len(prompts)]]
            return np.array([[ord(sign) for sign in row] for row in rows]), np.full((len(rows), n_new), 0.5)
        monkeypatch.setattr("repro.evaluation.generation.continued", continued)
        return asked
    return say


def test_a_summary_is_three_sentences_behind_the_hint(written):
    asked = written("One went out. Two came in. Three was here. Four saw it.")
    article = "Ann ran home. Ben sat down. Cleo sang on. " + "Dan did not. " * 20
    row = SimpleNamespace(document=article, summary="One went out. Two came in. Three was here.")
    found = sets.summaries(MODEL, Letters(), [row], seed=7, n_new=60)
    assert [rest for _, *rest in asked] == [[60, 2, 7]] * 3, "top-k 2"
    for (prompt,), hint in zip((one[0] for one in asked), ("\nTL;DR:", "\n", "\nRD;TL:"), strict=True):
        assert prompt == article[:200 - 60 - len(hint)] + hint
    assert found["hint_rouge1"] == found["hint_rouge2"] == found["hint_rougeL"] == [100.0], "not two, not four"
    lede = SimpleNamespace(document=article, summary="Ann ran home. Ben sat down. Cleo sang on.")
    told = sets.summaries(MODEL, Letters(), [lede], seed=7, n_new=60)
    assert told["lede_3_rougeL"] == [100.0] and told["random_3_rougeL"][0] < 100
    draws = {sets.summaries(MODEL, Letters(), [lede], seed, 60)["random_3_rouge1"][0] for seed in range(6)}
    assert len(draws) > 1


def test_a_question_stands_behind_the_paragraphs_that_support_it(written):
    asked = written("red\nQ: more")
    paragraphs = [SimpleNamespace(text=text) for text in ("No.", "It is red.", "Nor this.", "So it is.")]
    row = SimpleNamespace(question="Which?", answer="red", paragraphs=paragraphs, supporting=[(3, 0), (1, 0), (3, 1)])
    found = sets.reading(MODEL, Letters(), [row])
    assert [prompts for prompts, *_ in asked] == [["So it is.\nIt is red.\nQ: Which?\nA:"], ["Q: Which?\nA:"]]
    assert found == {"f1": [1.0], "f1_alone": [1.0]} and asked[0][1] == sets.ANSWER


def test_five_questions_are_shown_before_one_without_a_text(written):
    asked = written("red\n", "blue\n")
    shown = [SimpleNamespace(question=f"Who {k}?", answer=f"a{k % 2}") for k in range(7)]
    rows = [SimpleNamespace(question="Who is it?", answer="red"), SimpleNamespace(question="What else?", answer="red")]
    model = SimpleNamespace(config=SimpleNamespace(n_positions=1_000))
    found, best = sets.closed_book(model, Letters(), rows, shown)
    before = "".join(f"Q: Who {k}?\nA: a{k % 2}\n" for k in range(5))
    assert asked[0][0] == [before + "Q: Who is it?\nA:", before + "Q: What else?\nA:"]
    assert (found["correct"], found["correct_other"], found["most_common"]) == ([1, 0], [1, 0], [0, 0])
    assert [one["answer"] for one in best] == ["blue", "red"] or [one["answer"] for one in best] == ["red", "blue"]
    assert found["probability"] == pytest.approx([np.exp(-0.5 * 4), np.exp(-0.5 * 5)]), "the line's end counts"


def test_a_translation_stands_behind_five_pairs(written):
    asked = written("le chat\n", "un chien noir\n")
    shown = [SimpleNamespace(document=f"e{k}", summary=f"f{k}") for k in range(7)]
    rows = [SimpleNamespace(document=english, summary=french)
            for english, french in (("the cat", "le chat"), ("a dog", "un chien"))]
    found, bleu = sets.translations(MODEL, Letters(), rows, shown, n_new=20)
    before = "".join(f"e{k} = f{k}\n" for k in range(5))
    assert asked[0][0] == [f"{before}the cat =", f"{before}a dog ="] and asked[0][1] == 20
    assert found["correct"] == [1, 0] and found["f1"] == pytest.approx([1.0, 0.8])
    # 4 of 5 words, 2 of 3 pairs, no triple of one, which counts half; longer than what was wanted: no penalty.
    assert bleu == pytest.approx(100 * (4 / 5 * 2 / 3 * 1 / 2)**(1 / 3))
