"""Web pages that contain tasks: every addition follows from its page, and the tasks are those of the pages."""

import random
from collections import Counter

import pytest

from repro.data import corpus
from repro.data.synthetic import NAMES, TOPICS
from repro.data.synthetic_web import SIZES, WEB, first_name, phrase


def test_every_addition_follows_from_its_page():
    seen = Counter()
    for page in corpus("synthetic-web").documents("validation"):
        story, *added = page.text.removesuffix("\n").split("\n")
        first = story.split(". ")[0].removesuffix(".")
        name = next(word for word in first.split() if word in NAMES)
        assert " ." not in story and story.endswith(".")
        if added[0].startswith("TL;DR: "):
            kind, right = "summary", added == [f"TL;DR: {first}."]
        elif added[0].startswith("Q: "):
            kind, right = "question", added[1] == f"A: {name}"
        elif added[0].startswith("All this"):
            kind, right = "teller", added[0].split()[-1] == name
        else:
            kind, right = "phrase", all(theirs == ours[::-1] for ours, theirs in (one.split(" = ") for one in added))
        assert right, page.text
        seen[kind] += 1
    assert len(seen) == 4 and min(seen.values()) >= 10  # of 80


def test_a_phrase_has_its_words_backwards_and_the_adjective_behind_the_noun():
    ours, theirs = phrase(random.Random(0))
    (adjective, noun), (first, second) = ours.split(), theirs.split()
    assert (first, second) == (noun[::-1], adjective[::-1])
    assert any(noun in nouns and adjective in adjectives for nouns, _, adjectives in TOPICS)


@pytest.mark.parametrize("kind", ["last-words", "clozes", "questions", "summaries", "translations"])
def test_tasks_are_told_from_what_stands_before_them(kind):
    rows = list(corpus(f"synthetic-{kind}").examples("test"))
    assert len(rows) == SIZES["test"]
    for row in rows:
        if kind == "last-words":
            assert row.target == first_name(row.text.split(". ")[0]) and row.context.endswith(" told by ")
        elif kind == "clozes":
            assert row.candidates[row.answer] in row.paragraphs[0].split(". ")[0] and len(set(row.candidates)) == 4
        elif kind == "questions":
            assert row.answer == first_name(row.paragraphs[0].text)
        elif kind == "summaries":
            assert row.document.startswith(row.summary)
        else:
            assert row.summary == row.document[::-1]


def test_no_two_kinds_or_splits_share_their_stories():
    stories = [" ".join(WEB[kind].story(split, k)) for kind in WEB for split in SIZES for k in range(3)]
    assert len(set(stories)) == len(stories)
    assert len({one.fingerprint() for one in WEB.values()}) == len(WEB)
