"""The generated tasks: that the texts tell the label, and that chance hides it as often as is said."""

from dataclasses import replace

import pytest

from repro.data import corpus, tokeniser
from repro.data.synthetic import TOPICS
from repro.data.synthetic_tasks import LABELS, N_CANDIDATES, SIZES, SyntheticTask
from repro.data.tasks import task
from repro.errors import ReproError

N = 300


def topics(text):
    """The topics that the words of a text belong to."""
    return {number for number, topic in enumerate(TOPICS) for words in topic for word in words if word in text.split()}


def told(kind, row):
    """The label that the texts tell, from the word lists alone."""
    if kind == "nouns":
        [own] = topics(row.paragraphs[0])
        [right] = [k for k, noun in enumerate(row.candidates) if topics(noun) == {own}]
        return right
    [own] = topics(row.text)
    return int(own >= 6) if kind == "topics" else int(topics(row.pair) == {own})


@pytest.mark.parametrize("kind", LABELS)
def test_the_texts_tell_the_label_and_chance_hides_it(kind):
    sure = [SyntheticTask(kind, reliability=1).example("train", k) for k in range(N)]
    labels = [getattr(row, "answer", None) if kind == "nouns" else row.label for row in sure]
    assert labels == [told(kind, row) for row in sure]
    n = N_CANDIDATES if kind == "nouns" else 2
    assert all(abs(labels.count(label) / N - 1 / n) < 0.1 for label in range(n))
    made = SyntheticTask(kind, reliability=0.7)
    rows = [made.example("train", k) for k in range(N)]
    found = [row.answer if kind == "nouns" else row.label for row in rows]
    right = [told(kind, row) for row in rows]
    assert sum(one == other for one, other in zip(found, right, strict=True)) / N == pytest.approx(0.7, abs=0.08)
    assert {(one - other) % n for one, other in zip(found, right, strict=True)} == set(range(n))
    assert made.best_score() == 0.7


@pytest.mark.parametrize("kind", LABELS)
def test_the_corpus_is_the_same_every_time_and_in_the_language_of_the_books(kind):
    source = corpus(f"synthetic-{kind}")
    rows, again = (list(task(kind).examples("test")) for _ in range(2))
    assert rows == again and len(rows) == SIZES["test"] and all(row.ok for row in source.check())
    coder = tokeniser("word", corpus="synthetic-books")
    texts = [(*row.paragraphs, row.question, *row.candidates) if kind == "nouns" else row.texts for row in rows]
    assert all(len(coder.encode(text)) for row in texts for text in row)
    changed = [replace(source.generator, **{name: value}) for name, value in (
        ("n_words", 17), ("reliability", 0.9), ("seed", 1))]
    assert len({source.generator.fingerprint(), *(one.fingerprint() for one in changed)}) == 4


@pytest.mark.parametrize(("changes", "words"), [
    ({"kind": "topic"}, "unknown kind of synthetic task 'topic'. Did you mean 'topics'"), ({"n_words": 5}, "n_words=5"),
    ({"reliability": 0.4}, "reliability=0.4"), ({"reliability": 1.1}, "reliability=1.1")])
def test_tasks_that_cannot_be(changes, words):
    with pytest.raises(ReproError, match=words):
        SyntheticTask(**{"kind": "topics"} | changes)
