"""Books with typographic marks scored in both readings, on two tiny books and a model that knows no context."""

from dataclasses import replace
from math import log
from types import SimpleNamespace

import pytest
import torch

from repro.papers.yoshida2020.normalisation.typed import EXPERIMENT, measured, perplexities
from repro.study.progress import Progress

PLAIN_BOOK, MARKED = "It is plain. " * 40, "“It’s so” —  he\n\nsaid. " * 40


class Letters:
    """A token for each character; ids of plain ones are below 128."""

    bos = 0

    def encode(self, text):
        return [min(ord(sign), 200) for sign in text]


def likes_plain(ids):
    """The same prediction everywhere: a plain character has twice the weight of any other."""
    weights = torch.ones(256)
    weights[:128] = 2
    return weights.log().expand(*ids.shape, 256)


@pytest.fixture
def books(monkeypatch):
    import repro.data

    plain = repro.data.corpus

    def corpus(name):
        rows = [SimpleNamespace(id="plain", text=PLAIN_BOOK), SimpleNamespace(id="marked", text=MARKED)]
        source = replace(plain(name).of_text(), normalise=None, apart_from=())
        monkeypatch.setattr(type(source), "stream", lambda self, split: iter(rows))
        return source
    monkeypatch.setattr(repro.data, "corpus", corpus)


def test_marked_books_alone_are_scored_as_typed_and_as_read(books):
    config = EXPERIMENT.plan("small", {"words": 10, "window": 20})[0]
    losses, n_words, names = measured(config, likes_plain, Letters(), SimpleNamespace(progress=Progress(False)))
    typed = "“It’s so” —  he\n\nsaid. “It’s so” —  he\n\nsaid."  # ten words
    assert names == ["marked"] and n_words == [10]
    strange = sum(ord(sign) > 127 for sign in typed)
    assert strange == 8  # twice an opening quote, an apostrophe, a closing quote, a dash
    read = typed.replace("—", "--")
    assert losses["read"] == pytest.approx([len(read) * log(384 / 2)])
    assert losses["typed"] == pytest.approx([(len(typed) - strange) * log(384 / 2) + strange * log(384)])
    found = perplexities({"typed": [log(8), log(2)], "read": [log(4), 0.0]}, [1, 1])
    assert found == pytest.approx({"typed_word_perplexity": 4, "read_word_perplexity": 2})
