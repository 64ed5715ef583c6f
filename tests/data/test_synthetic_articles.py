"""Articles of known best log-perplexity: what they hold, and the bound against counting every lead there could be."""

import math
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from repro.data import corpus, tokeniser
from repro.data.synthetic import NAMES
from repro.data.synthetic_articles import ALIAS, ARTICLES, FILLER, RELATIONS, SIZES, SyntheticArticles
from repro.errors import ReproError


def test_a_lead_restates_facts_that_stand_in_one_place_anywhere():
    places, named = Counter(), 0
    for index in range(300):
        row = ARTICLES.example("train", index)
        lines = [line.split() for line in row.document.split("\n")]
        assert len(lines) == ARTICLES.n_paragraphs
        assert {len(line) for line in lines} == {ARTICLES.paragraph_words}
        name, *rest = row.summary.split()
        assert name == row.title and len(rest) == 2 * ARTICLES.n_facts
        for wording, value, (wordings, values) in zip(rest[::2], rest[1::2], RELATIONS, strict=False):
            assert wording in wordings and value in values
            place, = (k for k, line in enumerate(lines) if value in line)
            places[place] += 1
            who, *told = lines[place][:5]
            assert who in (name, ALIAS) and told in ([wordings[0], value, wordings[1], value],
                                                     [wordings[1], value, wordings[0], value])
            named += lines[place][0] == name
    assert set(places) == set(range(ARTICLES.n_paragraphs)) and max(places.values()) < 3 * min(places.values())
    assert named / places.total() == pytest.approx(ARTICLES.named, abs=0.06)
    assert len(set(ARTICLES.lexicon())) == len(ARTICLES.lexicon())
    assert not set(FILLER) & {word for wordings, values in RELATIONS for word in (*wordings, *values)}


def test_the_best_reader_is_that_of_counting_every_lead():
    """Every lead that agrees with what was seen is equally likely."""
    process = SyntheticArticles(n_facts=2, n_values=3)
    row = process.example("test", 0)
    _, _, first, _, second = row.summary.split()
    for name, known in product((None, row.title), ([], [first], [second], [first, second])):
        agree = sum(1 for who in NAMES for one in RELATIONS[0][1][:3] for two in RELATIONS[1][1][:3]
                    for _ in product(*(wordings for wordings, _ in RELATIONS[:2]))
                    if name in (None, who) and {first, second} & set(known) <= {one, two})
        told = process.best_nats(row, " ".join(filter(None, [name, *known, *FILLER])))
        assert told == pytest.approx(math.log(agree))


def test_the_corpus_is_the_generators():
    source = corpus("synthetic-articles")
    rows = list(source.examples("test"))
    assert len(rows) == SIZES["test"] and rows[3] == ARTICLES.example("test", 3)
    assert len({row.document for row in rows}) == len(rows)
    assert all(row.ok for row in source.check())
    coder = tokeniser("word", corpus="synthetic-articles")
    assert coder.decode(coder.encode(rows[0].summary)) == rows[0].summary
    assert source.fingerprint() != replace(ARTICLES, named=0.4).fingerprint()
    assert replace(ARTICLES, seed=1).example("test", 0) != rows[0]


@pytest.mark.parametrize("change", [{"n_facts": 5}, {"n_facts": 0}, {"n_paragraphs": 2}, {"paragraph_words": 4},
                                    {"n_values": 1}, {"named": 1.5}])
def test_numbers_that_do_not_fit_are_refused(change):
    with pytest.raises(ReproError, match=f"{next(iter(change))}="):
        replace(ARTICLES, **change)
