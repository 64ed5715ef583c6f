"""Questions on the names of a book: what an excerpt is, which words are names, and what the question leaves out."""

import os
import re

import pytest

from repro.data import corpus, example_readers
from repro.data.book_names import LENGTH, SHARES, TOKEN, excerpts, latest, most_frequent, names, questions
from repro.data.clozes import BLANK, sentences
from repro.data.examples import MultipleChoice

real = pytest.mark.skipif("REPRO_DATA" not in os.environ, reason="needs the real corpora: REPRO_DATA is not set")
PEOPLE = "Adam Bertha Conrad Dora Egon".split()


def book(people=PEOPLE, n=200):
    """Sentences of 12 tokens in which people take turns."""
    n_people = len(people)
    return " ".join(f"Then {people[k % n_people]} met {people[(k + 1 + k // n_people % 2) % n_people]} and they "
                    "walked on for two hours." for k in range(n))


def test_excerpts_hold_whole_sentences_up_to_the_limit():
    half = LENGTH // 2
    assert list(excerpts([half, half, 1, half - 1, half, 5])) == [(0, 2), (2, 5)]
    assert list(excerpts([half, half, 1, half - 1, half + 1, 5])) == [(0, 2), (2, 4)]
    assert list(excerpts([LENGTH + 7, 3, LENGTH])) == [(0, 1), (1, 2)], "a long sentence is an excerpt by itself"
    assert list(excerpts([LENGTH])) == [] == list(excerpts([])), "nothing follows"


@pytest.mark.parametrize(("word", "found"), [
    ("we saw Ann . Then Ann left", ["Ann"]), ("Ann left . Ann came", []), ("we saw Ann", []),
    ("we saw Rose and Rose 's rose", []), ("we saw TOM and TOM", []), ("of Mrs X and Mrs Y", []), ("by Jo , Jo", [])])
def test_names_occur_twice_and_once_inside_a_sentence(word, found):
    tokens = [part.split() for part in re.split(r" (?=\bThen|\bAnn came)", word)]
    assert names(tokens, {one for part in tokens for one in part if one.islower()}) == found


def test_the_question_is_the_next_sentence_with_one_name_left_out():
    text, parts = book(), sentences(book())
    found = list(questions("b", text, most=9))
    assert len(found) == 200 * 12 // LENGTH == 2
    for start, one in zip((0, LENGTH // 12), found, strict=True):
        at = int(one.id.split("-")[1])
        assert at == start + LENGTH // 12 and one.paragraphs == (" ".join(parts[start:at]),)
        assert len(TOKEN.findall(one.paragraphs[0])) <= LENGTH < len(TOKEN.findall(" ".join(parts[start:at + 1])))
        assert one.question.replace(BLANK, one.candidates[one.answer]) == parts[at] and one.question.count(BLANK) == 1
        assert one.candidates == tuple(PEOPLE)
    assert found == list(questions("b", text, most=9)) and list(questions("b", text, most=1)) == found[:1]


@pytest.mark.parametrize(("n", "asked"), [(3, 0), (4, 2), (10, 2), (11, 0)])
def test_a_question_has_four_to_ten_candidates(n, asked):
    people = [f"Per{'abcdefghijk'[k] * 3}" for k in range(n)]
    assert len(list(questions("b", book(people), most=9))) == asked


def test_a_sentence_without_a_name_of_the_excerpt_is_passed_over():
    filler, n = "So they all went home again in the late hours.", LENGTH // 12
    start = book(n=n)
    near, far = (f"{start} {' '.join([filler] * gap)} Then Dora slept for a week. {filler}" for gap in (3, 30))
    one, = questions("b", near, most=9)
    assert one.question == f"Then {BLANK} slept for a week." and one.candidates[one.answer] == "Dora"
    assert list(questions("b", far, most=9)) == []


def test_guesses_that_only_count_names():
    one = MultipleChoice("1", f"{BLANK} ran.", ("Ann", "Ben", "Cid"), 0, ("Ann saw Ben. Ben and Ann met Cid.",))
    assert most_frequent(one) == [0, 1] and latest(one) == [2]


def test_a_table_of_books_is_read_book_by_book(declare, monkeypatch):
    from repro.data import book_names

    monkeypatch.setitem(SHARES, "train", book_names.Share(1, 9_999))
    toy = declare(example_readers.book_names(), [{"id": 7, "text": book()}, {"id": 8, "text": "No."},
                                                 {"id": 9, "text": book()}])
    assert [one.id.split("-")[0] for one in toy.examples("train")] == ["7", "9"]


@real
def test_real_questions_can_be_answered_from_their_excerpt():
    rows = list(corpus("book-names").examples("test"))
    assert len(rows) == 600 and len({one.id for one in rows}) == 600
    assert len({one.id.split("-")[0] for one in rows}) == 33
    for one in rows:
        answer = one.candidates[one.answer]
        assert len(re.findall(rf"(?<![A-Za-z]){answer}(?![A-Za-z])", one.paragraphs[0])) >= 2
        assert 4 <= len(one.candidates) <= 10 and answer not in one.question
