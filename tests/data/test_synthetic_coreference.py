"""The stories with one reference: the topic alone decides who is meant, and nothing near the people shows it."""

import pytest

from repro.data import corpus
from repro.data.synthetic import TOPICS
from repro.data.synthetic_coreference import COREFERENCE, PEOPLE, SyntheticCoreference
from repro.errors import ReproError


def test_the_topic_of_the_story_decides_who_wrote_it():
    seen = set()
    for row in corpus("synthetic-coreference").examples("test"):
        words = row.tokens
        topic, = {k for k, topic in enumerate(TOPICS) if {*words[:COREFERENCE.story_words]} & {*sum(topic, [])}}
        mentions = [words[slice(*mention)] for cluster in row.clusters if len(cluster) > 1 for mention in cluster]
        assert mentions == [(PEOPLE[topic],), ("I",)]
        assert sum(len(cluster) == 1 for cluster in row.clusters) == 3
        seen.add((topic, words.index(PEOPLE[topic])))
    assert len({topic for topic, _ in seen}) == 4 and len(seen) == 16  # every person in every place


def test_what_follows_the_story_is_the_same_for_every_topic():
    rows = list(corpus("synthetic-coreference").examples("train"))
    for row in rows[:50]:
        rest = row.tokens[COREFERENCE.story_words:]
        assert len(rest) == 2 * 7 + 4 * 3 + 3
        assert not {*rest} & {word for topic in TOPICS for words in topic for word in words}


def test_people_are_found_in_the_order_of_their_topics():
    for row in corpus("synthetic-coreference").examples("validation"):
        assert [row.tokens[start:stop] for start, stop in COREFERENCE.people(row)] == [(n,) for n in (*PEOPLE, "I")]
        assert {mention for cluster in row.clusters for mention in cluster} == {*COREFERENCE.people(row)}


def test_the_corpus_is_the_same_every_time_and_holds_only_its_words():
    source = corpus("synthetic-coreference")
    rows = list(source.examples("test"))
    assert rows == list(source.examples("test")) and len({row.tokens for row in rows}) == 200
    assert {word for row in rows for word in row.tokens} == {*COREFERENCE.lexicon()}
    assert all(check.ok for check in source.check())
    assert COREFERENCE.fingerprint() != SyntheticCoreference(seed=1).fingerprint()


@pytest.mark.parametrize("settings", [{"story_words": 6}, {"between": -1}])
def test_numbers_out_of_range(settings):
    with pytest.raises(ReproError, match="allowed are"):
        SyntheticCoreference(**settings)
