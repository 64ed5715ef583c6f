"""Corpora of examples: declared in one entry, read as typed rows, checked, and clear about what is wrong with a row."""

import os
from itertools import islice

import pytest

from repro.data import Corpus, Split, corpora, corpus, example_readers, tokens
from repro.data import readers as text_readers
from repro.data.examples import ANSWER_TYPES, LabelledText, Paragraph, Question, Span, rewritten
from repro.data.normalisation import PLAIN
from repro.errors import ReproError

real = pytest.mark.skipif("REPRO_DATA" not in os.environ, reason="needs the real corpora: REPRO_DATA is not set")


LABELLED = [{"id": "x", "text": "a b", "label": 1, "split": "train"},
            {"id": "y", "text": "c", "label": 0, "split": "dev"},
            {"id": "z", "text": "d", "label": 1, "split": "train"}]
SPLITS = {"train": Split("two", "rows.parquet", rows="train", n_examples=2, counts={"good": 2, "bad": 0}),
          "validation": Split("one", "rows.parquet", rows="dev", n_examples=1, counts={"good": 1})}


def test_one_entry_is_a_corpus(declare):
    toy = declare(example_readers.labelled(id="id"), LABELLED, labels=("bad", "good"), splits=SPLITS)
    assert (toy.content_kind, toy.is_text, toy.available()) == ("labeled text", False, True)
    assert list(toy.examples("train")) == [LabelledText("x", "a b", 1), LabelledText("z", "d", 1)]
    assert list(toy.examples("validation")) == [LabelledText("y", "c", 0)]
    assert [(row.split, row.what, row.expected, row.found, row.ok) for row in toy.check()] == [
        ("train", "examples", 2, 2, True), ("train", "good", 2, 2, True), ("train", "bad", 0, 0, True),
        ("validation", "examples", 1, 1, True), ("validation", "good", 1, 0, False)]


def test_one_entry_is_a_corpus_of_text(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "all").write_text("abcdef")
    toy = Corpus("toy", "CC0", "elsewhere", {"train": Split("4 bytes", "all", 1, n_bytes=4),
                                             "test": Split("2 bytes", "all", 1, n_bytes=2)},
                 text_readers.cut_text, folder="toy")
    assert [document.text for split in toy.splits for document in toy.documents(split)] == ["abcd", "ef"]
    assert all(row.ok for row in toy.check()) and len(toy.check()) == 4
    assert toy.fingerprint(["train"]) != toy.fingerprint(["test"])


def test_fingerprint_follows_content_columns_and_labels(declare):
    def fingerprint(rows=LABELLED, labels=("bad", "good"), splits=SPLITS, **columns):
        return declare(example_readers.labelled(**columns), rows, labels=labels, splits=splits).fingerprint()

    same = fingerprint()
    assert fingerprint() == same
    others = [fingerprint(rows=LABELLED[:2]), fingerprint(labels=("good", "bad")), fingerprint(text="id"),
              fingerprint(id="id"), fingerprint(splits={**SPLITS, "train": SPLITS["validation"]}),
              fingerprint(label="score", score=(0, 1)), fingerprint(label="score", score=(0, 2))]
    assert len({same, *others}) == 1 + len(others)


def test_examples_are_read_as_they_are_asked_for(declare):
    rows = [{"text": f"text {k}", "label": k // 900} for k in range(1_000)]  # the labels 1 are beyond ("only",)
    toy = declare(example_readers.labelled(), rows, labels=("only",))
    assert [one.id for one in islice(toy.examples("train"), 900)][-1] == "train-899"
    with pytest.raises(ReproError, match="corpus toy, train, row train-900: field label is 1, not 0 to 0 or one of on"):
        list(toy.examples("train"))


@pytest.mark.parametrize(("label", "found"), [("good", 1), (0, 0)])
def test_labels_by_place_or_name(declare, label, found):
    toy = declare(example_readers.labelled(), [{"text": "a", "label": label}], labels=("bad", "good"))
    assert next(toy.examples("train")).label == found


BAD_LABELLED = [
    ({"label": "goodish"}, "field label is 'goodish', not 0 to 1 or one of bad, good"),
    ({"label": 2}, "field label is 2, not 0 to 1"), ({"label": -1}, "field label is -1, not 0 to 1"),
    ({"text": None}, "field text is missing"), ({"text": ""}, "field text is empty"),
    ({"text": 7}, "field text is 7, not text"), ({"second": None}, "field second is missing"),
    ({"second": " "}, "field second is empty")]


@pytest.mark.parametrize(("change", "told"), BAD_LABELLED)
def test_a_bad_row_is_named(declare, change, told):
    row = {"id": "q7", "text": "a", "second": "b", "label": 1} | change
    toy = declare(example_readers.labelled(id="id", pair="second"), [row], labels=("bad", "good"))
    with pytest.raises(ReproError, match=f"^corpus toy, train, row q7: {told}") as error:
        list(toy.examples("train"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("score", "told"), [(5.5, "is 5.5, not a score from 0 to 5"), (float("nan"), "is nan"),
                                             ("4", "is '4', not a score")])
def test_scores_have_a_range(declare, score, told):
    read = example_readers.labelled(label="score", score=(0, 5))
    assert next(declare(read, [{"text": "a", "score": 5.0}]).examples("train")).label == 5.0
    with pytest.raises(ReproError, match=f"row train-0: field score {told}"):
        list(declare(read, [{"text": "a", "score": score}]).examples("train"))


def test_a_file_without_a_column_or_with_another_split(declare):
    toy = declare(example_readers.labelled(text="words"), LABELLED, labels=("bad", "good"), splits=SPLITS)
    with pytest.raises(ReproError, match=r"corpus toy, train: .*rows\.parquet has no column words"):
        list(toy.examples("train"))
    odd = [*LABELLED, {"text": "e", "label": 1, "split": "trian"}]
    toy = declare(example_readers.labelled(), odd, labels=("bad", "good"), splits=SPLITS)
    with pytest.raises(ReproError, match=r"toy, train: field split of .*rows\.parquet is 'trian', not one of train, d"):
        list(toy.examples("train"))


def test_missing_files_say_where_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    sources = ("litbank", "its source is github.com/dbamman/litbank"), ("imdb", "run `repro data fetch imdb`")
    for name, told in sources:
        with pytest.raises(ReproError, match=f"^corpus {name} has no train files .*: set REPRO_DATA=.*{told}"):
            list(corpus(name).examples("train"))
        assert not corpus(name).available()


def test_the_wrong_kind_is_one_clear_line(declare):
    with pytest.raises(ReproError, match=r"synthetic-books contains text, not examples: read it with corpus\('synt"):
        corpus("synthetic-books").examples("train")
    told = r"synthetic-documents contains examples \(labeled text\), not running text: .*\(SPLIT\), where SPLIT is"
    for ask in (corpus("synthetic-documents").documents, corpus("synthetic-documents").stream):
        with pytest.raises(ReproError, match=told):
            ask("test")
    with pytest.raises(ReproError, match=told):
        tokens("synthetic-documents", "test", _Coder())
    with pytest.raises(ReproError, match="unknown split of synthetic-documents 'dev'"):
        corpus("synthetic-documents").examples("dev")


class _Coder:
    fingerprint, vocab_size, bos = "coder", 10, 0


@real
@pytest.mark.parametrize("name", [one.name for one in corpora() if not one.is_text])
def test_real_rows_are_whole(name):
    """Every row of every corpus of examples that is here keeps its class' promises, and the declared counts hold."""
    one = corpus(name)
    if not one.available():
        pytest.skip(f"{name} is not here")
    rows = one.check()
    assert {row.split for row in rows if row.what == "examples"} == set(one.splits)
    assert [row for row in rows if not row.ok] == []
    assert all(isinstance(next(one.examples(split)), one.read.row) for split in one.splits)


def test_an_example_is_rewritten_with_all_its_texts_and_its_spans():
    paragraph = Paragraph("“A”", ("It’s 1969–1974…", "done"), " ")
    row = Question("q", "Who—if any?", (paragraph,), "done", (Span(0, 16, 20),), ((0, 0),))
    told = rewritten(row, PLAIN)
    assert told.paragraphs[0].text == "It's 1969-1974... done" and told.question == "Who--if any?"
    assert told.spans == (Span(0, 18, 22),) and told.supporting == ((0, 0),) and row.spans == (Span(0, 16, 20),)
    assert rewritten(("“", 3, None), PLAIN) == ('"', 3, None)


@pytest.mark.parametrize("name", ["hotpotqa-subset", "scisummnet-subset", "lambada-cased"])
def test_every_example_of_a_test_can_be_read_with_plain_punctuation(name):
    source = corpus(name)
    if not source.available():
        pytest.skip(f"{name} is not here: set REPRO_DATA")
    rows = [rewritten(row, PLAIN) for row in source.examples("test" if "test" in source.splits else "validation")]
    assert rows and not any(PLAIN.count(str(row)) for row in rows)


def test_supported_spans_and_places_of_sentences():
    parts = (Paragraph("A", ("red sail", "a sail"), " "), Paragraph("B", ("sail", ", sail.")))
    spans = (Span(0, 4, 8), Span(0, 11, 15), Span(1, 0, 4), Span(1, 6, 10))
    assert [one.places for one in parts] == [[(0, 8), (9, 15)], [(0, 4), (4, 11)]]
    for supporting, kept in [
            (((0, 1),), spans[1:2]), (((1, 1), (0, 0)), (spans[0], spans[3])), (((1, None),), spans[2:]),
            ((), spans), (((0, 0), (1, 0)), (spans[0], spans[2]))]:
        assert Question("1", "q", parts, "sail", spans, supporting).supported_spans == kept
    assert Question("1", "q", parts, "sail", spans[:1], ((0, 1),)).supported_spans == spans[:1]  # its paragraph
    assert Question("1", "q", parts, "sail", spans[:1], ((1, 0),)).supported_spans == spans[:1]  # anywhere
    assert Question("1", "q", (), "Ann", aliases=("Anna",)).answers == ("Ann", "Anna")
    types = {answer: Question("1", "q", (), answer).answer_type for answer in ("yes", "no", "Yes", "span", "no one")}
    assert types == {"yes": "yes", "no": "no", "Yes": "span", "span": "span", "no one": "span"}
    assert [ANSWER_TYPES.index(kind) for kind in ("span", "yes", "no")] == [0, 1, 2]
    with pytest.raises(ReproError, match="field aliases"):
        Question("1", "q", (), "Ann", aliases=(3,))
