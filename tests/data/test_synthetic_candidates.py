"""Questions with candidates: one topic fits, the end of the text decides, and the best scores are known."""

from collections import Counter

import pytest

from repro.data import corpus
from repro.data.synthetic import NAMES, TOPICS
from repro.data.synthetic_candidates import CANDIDATES, SyntheticCandidates
from repro.errors import ReproError

OF = {word: number for number, topic in enumerate(TOPICS) for words in topic for word in words}


def test_one_candidate_has_the_topic_of_the_story_and_no_name_helps():
    places = Counter()
    for index in range(200):
        row = CANDIDATES.example("train", index)
        names, story = (text.split() for text in row.paragraphs)
        assert set(names) <= set(NAMES) and len(names) == 64 and len(story) == 24
        topics = [OF[word] for word in row.candidates]
        told = {OF[word] for word in story if word in OF}
        assert len(set(topics)) == 4 and told == {topics[row.answer]}
        assert not set(row.candidates) & {*names, *story}
        places[row.answer] += 1
    assert len(places) == 4 and max(places.values()) < 1.6 * min(places.values())


@pytest.mark.parametrize("n_words", [None, 88, 64, 0])
def test_the_best_score_needs_a_word_of_the_story(n_words):
    for index in range(30):
        row = CANDIDATES.example("test", index)
        read = " ".join(row.paragraphs).split()[:n_words]
        assert CANDIDATES.best_score(row, n_words) == (1.0 if any(word in OF for word in read) else 0.25)


def test_questions_are_always_the_same_and_splits_differ():
    rows = {split: list(corpus("synthetic-candidates").examples(split)) for split in ("train", "test")}
    assert rows["train"][0] == CANDIDATES.example("train", 0) and len(rows["train"]) == 1_600
    assert not {row.paragraphs for row in rows["train"]} & {row.paragraphs for row in rows["test"]}
    assert {word for row in rows["test"] for text in (row.question, *row.paragraphs, *row.candidates)
            for word in text.split()} <= set(CANDIDATES.lexicon())
    assert SyntheticCandidates(n_names=3).fingerprint() != CANDIDATES.fingerprint()


def test_a_story_too_short_to_show_a_topic_is_refused():
    with pytest.raises(ReproError, match="story_words"):
        SyntheticCandidates(story_words=7)
