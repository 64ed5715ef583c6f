"""The documents of known best accuracy: what they hold, and that the bounds are those of counting every case."""

from dataclasses import replace
from itertools import combinations, product

import pytest

from repro.data import corpus, tokeniser
from repro.data.synthetic_documents import CUES, DOCUMENTS, SyntheticDocuments
from repro.errors import ReproError

FINGERPRINT = "57e0879633e6e2937cd4d58fbf020aef605c41a091bf28cb14261f96bd01ea4b"
SMALL = SyntheticDocuments(n_words=9, far=2, n_cues=3, reliability=0.8)


def test_cues_lie_far_from_the_start_and_nothing_else_tells():
    for index in range(20):
        example = DOCUMENTS.example("train", index)
        words = example.text.split()
        cues = [place for place, word in enumerate(words) if word in CUES[0] + CUES[1]]
        assert len(words) == DOCUMENTS.n_words == 512
        assert len(cues) == DOCUMENTS.n_cues
        assert min(cues) >= DOCUMENTS.far
    assert not set(CUES[0] + CUES[1]) & set(DOCUMENTS._books.lexicon())
    assert len(set(DOCUMENTS.lexicon())) == len(DOCUMENTS.lexicon())


def brute_force(process, window):
    """Expected accuracy of following most cues seen, over every choice of places and of what the cues tell."""
    total, r = 0.0, process.reliability
    places = list(combinations(range(process.far, process.n_words), process.n_cues))
    for chosen in places:
        for told in product((1, -1), repeat=process.n_cues):
            lead = sum(sign for place, sign in zip(chosen, told, strict=True) if place < window)
            chance = r**told.count(1) * (1 - r)**told.count(-1)
            total += chance * (0.5 if lead == 0 else lead > 0)
    return total / len(places)


@pytest.mark.parametrize("window", [2, 4, 6, 9])
def test_drawn_documents_are_as_good_as_expected(window):
    examples = [SMALL.example("test", index) for index in range(2_000)]
    found = sum(SMALL.best_hits(examples, window)) / len(examples)
    assert found == pytest.approx(brute_force(SMALL, window), abs=0.03)


def test_hits_of_one_document():
    from repro.data.examples import LabelledText

    document = LabelledText("x", "the dull splendid honest boat", 1)
    assert [DOCUMENTS.best_hits([document], window)[0] for window in (1, 2, 3, 4, None)] == [0.5, 0.0, 0.5, 1.0, 1.0]


def test_the_corpus_is_the_same_every_time_and_everywhere():
    test = list(corpus("synthetic-documents").examples("test"))
    assert len(test) == 200 and len({one.text for one in test}) == 200
    assert [one.label for one in test] == [one.label for one in corpus("synthetic-documents").examples("test")]
    assert 80 <= sum(one.label for one in test) <= 120
    assert all(row.ok for row in corpus("synthetic-documents").check())
    assert corpus("synthetic-documents").fingerprint() == FINGERPRINT
    changed = [replace(DOCUMENTS, **{name: getattr(DOCUMENTS, name) - d}) for name, d in (
        ("n_words", 1), ("far", 1), ("n_cues", 1), ("reliability", 0.1), ("seed", 1))]
    assert len({DOCUMENTS.fingerprint(), *(one.fingerprint() for one in changed)}) == 6


def test_the_word_tokeniser_knows_every_word():
    coder = tokeniser("word", corpus="synthetic-documents")
    text = DOCUMENTS.example("test", 3).text
    assert coder.decode(coder.encode(text)) == text
    assert coder.vocab_size == len(DOCUMENTS.lexicon()) + 1


@pytest.mark.parametrize(("name", "value", "allowed"), [
    ("reliability", 0.4, "0.5 to 1"), ("reliability", 1.1, "0.5 to 1"), ("n_cues", 0, "1 to 384"),
    ("n_cues", 385, "1 to 384"), ("far", 512, "0 to 511"), ("n_words", 0, "1 to inf")])
def test_impossible_parameters(name, value, allowed):
    with pytest.raises(ReproError, match=f"{name}={value} of synthetic documents: allowed are {allowed}"):
        SyntheticDocuments(**{name: value})
