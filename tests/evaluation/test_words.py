"""Losses by word against counting by hand, and what makes a name, a pronoun or a topic word."""

import numpy as np

from repro.evaluation.words import kind_of, spans, whole_words, word_of

TEXT = "  Ann's ship, \n\nsank.\n"
# Each token where it lies: two blanks, "An", "n's", " sh", "ip", ",", " \n\n", "sank", ".", "\n"
TOKENS = np.array([(0, 2), (2, 4), (4, 7), (7, 10), (10, 12), (12, 13), (13, 16), (16, 20), (20, 21), (21, 22)])


def test_words_are_what_blanks_separate():
    assert [TEXT[a:b] for a, b in spans(TEXT)] == ["Ann's", "ship,", "sank."]
    assert spans(" \n").shape == (0, 2)


def test_a_token_counts_for_the_word_it_ends_in_and_a_blank_for_the_next():
    assert word_of(spans(TEXT), TOKENS).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_a_page_has_the_words_whose_tokens_are_all_on_it():
    which = word_of(spans(TEXT), TOKENS)
    pages = [(first, stop) for first in range(10) for stop in range(1, 11)]
    whole = [[word for word in range(4) if all(first <= k < stop for k in range(10) if which[k] == word)]
             for first, stop in pages]
    assert [[*range(*whole_words(which, *page))] for page in pages] == whole


def test_kinds_of_words():
    kinds = {"Her": "pronoun", "himself,": "pronoun", "it": "other", "Merton.": "name", "Then": "other",
             "ships,": "topic", "Ships": "other", "(": "other"}
    assert {word: kind_of(word, {"then", "ships", "her"}, {"ships"}) for word in kinds} == kinds
