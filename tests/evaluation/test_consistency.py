"""Names and pronouns counted by hand."""

import pytest

from repro.evaluation.consistency import common_words, genders, kept_genders, kept_names, names

COMMON = {"the", "then", "near", "river", "he", "she", "king"}


def test_a_common_word_is_often_in_lower_case():
    texts = ["the Robin, the barn; Then the", "barn The the then BARN the barn"]
    assert common_words(texts, least=3) == {"the", "barn"}
    assert common_words(texts, least=5) == {"the"}
    assert common_words(texts, least=6) == set()


@pytest.mark.parametrize(("text", "expected"), [
    ("The river. Then Robin saw Alex, and Robin's King", ["Robin", "Alex", "Robin"]),
    ("Mr. Darcy and Lady Anne", ["Darcy", "Anne"]), ("I am ROBIN 4th a_B", []), ("É Élise O'Brien", ["Élise", "Brien"]),
    ("", [])])
def test_names_are_capitalised_and_not_common(text, expected):
    assert names(text, COMMON) == expected


def test_a_name_is_kept_if_it_stands_in_the_context():
    assert kept_names("Robin saw Alex.", "Alex, Alex and Sam. Robin", COMMON) == (3, 4)
    assert kept_names("robin", "Robin", COMMON) == (0, 1)
    assert kept_names("Robin", "the river", COMMON) == (0, 0)


def test_gendered_pronouns_are_found_in_any_case():
    assert genders("He gave her his hat; it was HERS, they said: herself, him") == [
        "male", "female", "male", "female", "female", "male"]


@pytest.mark.parametrize(("context", "continuation", "expected"), [
    ("she saw her", "her hat, his hat, She", (2, 3)), ("He", "his she", (1, 2)), ("he", "it is the", (0, 0)),
    ("he saw her", "his hat", (0, 0)),  # two genders: nothing is asked
    ("it is", "his hat", (0, 0)), ("she", "his", (0, 1))])
def test_pronouns_are_held_against_contexts_of_one_gender(context, continuation, expected):
    assert kept_genders(context, continuation) == expected
