"""Clozes in the form of the Children's Book Test: what is asked, what is offered, and of what kind."""

import os
import re
from itertools import islice

import pytest

from repro.data import corpus, example_readers
from repro.data.clozes import BLANK, CANDIDATES, CONTEXT, KINDS, questions, sentences, vocabulary
from repro.errors import ReproError

real = pytest.mark.skipif("REPRO_DATA" not in os.environ, reason="needs the real corpora: REPRO_DATA is not set")
NAMES = "Adam Bertha Conrad Dora Egon Flora Gustav Hanna Ivan Jutta Karl Lena".split()
NOUNS = "apple basket candle dagger engine feather garden hammer island jacket kettle lantern".split()


def book(n=210):
    """Sentences in which names and nouns take turns."""
    return " ".join(f"Then {NAMES[k % 12]} took the {NOUNS[k * 5 % 12]} of {NAMES[k * 7 % 12]}, and "
                    f"{NAMES[(k + 3) % 12]} gave a {NOUNS[(k * 5 + 4) % 12]} to me." for k in range(n))


def test_sentences():
    assert sentences('Mr. A. Smith came.  "Did he?" Yes,\nhe did!\n\nCHAPTER I\n\nA dog... No. 5 ran') == [
        "Mr. A. Smith came.", '"Did he?"', "Yes, he did!", "CHAPTER I", "A dog...", "No. 5 ran"]
    assert sentences("") == []


def test_names_and_nouns_are_told_from_the_book():
    told = [re.findall(r"[A-Za-z']+", one) for one in sentences(book())]
    assert vocabulary(told, "names") == set(NAMES)
    assert vocabulary(told, "nouns") == set(NOUNS)


def test_a_name_that_is_a_word_too_is_none():
    told = [["We", "saw", "Rose", "and", "Ann"]] * 3 + [["A", "rose"]]
    assert vocabulary(told, "names") == {"Ann"}


@pytest.mark.parametrize(("kind", "words"), [("names", NAMES), ("nouns", NOUNS)])
def test_a_question_is_on_the_sentence_after_twenty(kind, words):
    parts = sentences(book())
    found = list(questions("b", book(), kind, most=20))
    assert len(found) == 10 and len(list(questions("b", book(209), kind, most=20))) == 9
    for one in found:
        at = int(one.id.split("-")[1])
        answer = one.candidates[one.answer]
        assert one.paragraphs == (" ".join(parts[at - CONTEXT:at]),)
        assert one.question.count(BLANK) == 1 and one.question.replace(BLANK, answer) == parts[at]
        assert answer in one.paragraphs[0] and answer not in one.question
        assert len(set(one.candidates)) == CANDIDATES and set(one.candidates) <= set(words)
    assert [int(one.id.split("-")[1]) % 21 for one in found] == [20] * 10
    assert len({one.answer for one in found}) > 3, "the answer's place tells nothing"


def test_few_questions_are_spread_over_the_book_and_always_the_same():
    whole = list(questions("b", book(), "names", most=20))
    few = list(questions("b", book(), "names", most=3))
    assert few == [whole[0], whole[3], whole[6]] == list(questions("b", book(), "names", most=3))
    assert [one.answer for one in questions("other", book(), "names", 20)] != [one.answer for one in whole]


def test_candidates_may_come_from_before_the_context_but_never_from_after():
    early = "Then " + " met the ".join(f"{name}, who saw {name}" for name in NAMES) + ". "
    plain = "So Karl saw Lena and the dog. "
    text = early * 2 + plain * 40
    found = list(questions("b", text, "names", most=20))
    assert found and all({"Karl", "Lena"} <= set(one.candidates) for one in found)
    assert list(questions("b", plain * 40 + early * 4, "names", most=1)) == []


def test_a_text_that_is_too_short_has_none():
    assert list(questions("b", book(20), "names", 20)) == [] == list(questions("b", "", "nouns", 20))
    assert len(list(questions("b", book(21), "names", 20))) == 1


def test_a_table_of_books_is_read_as_questions(declare):
    typed = book().replace("Then", "“Then”")
    read = example_readers.cloze_questions("names", most=2)
    toy = declare(read, [{"id": 7, "text": typed}, {"id": 8, "text": "No."}])
    found = list(toy.examples("train"))
    assert len(found) == 2 and found[0].id.startswith("7-")
    assert '"Then"' in found[0].question, "typed as all books here are"


@real
@pytest.mark.parametrize("kind", KINDS)
def test_real_questions_can_be_answered_from_the_context(kind):
    one = corpus(f"pg19-clozes-{kind}")
    assert one.part_of.startswith("PG-19: its held-out books")
    with pytest.raises(ReproError, match=r"consists of others: run `repro data fetch NAME` for each of pg19-subset\.$"):
        one.fetch()
    for row in islice(one.examples("validation"), 60):
        answer = row.candidates[row.answer]
        assert re.search(rf"(?<![A-Za-z]){answer}(?![A-Za-z])", row.paragraphs[0]) and len(row.candidates) == CANDIDATES
