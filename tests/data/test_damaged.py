"""Files of corpora that are damaged, cut short, of another encoding or of another form: one clear line each."""

import json
import lzma
from dataclasses import replace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from repro.data import Corpus, Document, Split, corpus, example_readers, files, overlap, readers, task, tokens, webtext
from repro.data.detokenisation import detokeniser
from repro.data.ngrams import NgramFilter, normalise
from repro.data.tokenisation import Bytes, tokeniser
from repro.data.web import Page
from repro.errors import ReproError

TEXT = " \n = One = \n \n A naïve text — 日本 . \n"
BOOKS = [{"id": k, "text": f"Book {k}: a naïve text — 日本 .\n" * 9} for k in range(5)]
HOTPOT = {"id": "h1", "question": "Who?", "answer": "Ann", "type": "bridge", "level": "hard",
          "context_titles": ["One", "Two"], "context_sentences": [["Anna met Ann.", " Ann ran."], ["No one."]],
          "supporting_titles": ["Two", "One"], "supporting_sent_ids": [0, 1]}
GAP = {"id": "g1", "text": "Ann met Eve; she ran.", "pronoun": "she", "pronoun_offset": 13, "a": "Ann", "a_offset": 0,
       "a_coref": False, "b": "Eve", "b_offset": 8, "b_coref": True}
TABLES = {  # reader -> a row that it takes
    "labelled": (example_readers.labelled(), {"text": "a b", "label": 1}),
    "scored": (example_readers.labelled(pair="pair", score=(0, 5)), {"text": "a", "pair": "b", "label": 2.5}),
    "questions": (example_readers.questions(), HOTPOT),
    "choices": (example_readers.choices(), {"id": "c", "question": "Which?", "choices": ["a", "b"], "label": 1}),
    "last_words": (example_readers.last_words(), {"text": "a b"}),
    "coreference": (example_readers.coreference(), {"doc_id": "b", "sentences": [["Ann", "ran"]],
                                                    "clusters": [[[0, 0]]]}),
    "pronouns": (example_readers.pronouns(), GAP),
    "summaries": (example_readers.summaries(), {"id": "s", "title": "T", "document": "a b", "summary": "a"}),
    "recordings": (example_readers.recordings(4), {"title": "T", "seconds": 1.0, "mulaw_u8": b"abcd"}),
    "shelf": (readers.shelf, BOOKS[0]), "shelf with held-out": (readers.shelf_with_held_out, BOOKS[0]),
    "wikitext": (readers.wikitext, {"text": TEXT}),
    "clozes": (example_readers.cloze_questions("names", 2), BOOKS[0]),
    "book_names": (example_readers.book_names(), BOOKS[0])}


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """(reader, {file: bytes}, its pattern) -> a corpus of the one split "train"."""
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))

    def made(read, content, file="rows.parquet", **more):
        (tmp_path / "toy").mkdir(exist_ok=True)
        (tmp_path / "toy" / file).write_bytes(content)
        return Corpus("toy", "CC0", "elsewhere", more.pop("splits", {"train": Split("all", file)}), read, folder="toy",
                      labels=("no", "yes"), **more)
    return made


def parquet(rows) -> bytes:
    out = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), out)
    return out.getvalue().to_pybytes()


def npz(**named) -> bytes:
    import io
    out = io.BytesIO()
    np.savez_compressed(out, **named)
    return out.getvalue()


IMAGES = npz(image=np.zeros((3, 2, 2, 3), np.uint8), label=np.zeros(3, np.int64))
KINDS = {  # name -> (reader, file, what is in it)
    "books": (readers.shelf, "rows.parquet", parquet(BOOKS)),
    "articles": (readers.wikitext, "text.xz", lzma.compress(TEXT.encode())),
    "images": (example_readers.images(), "rows.npz", IMAGES),
    "questions": (example_readers.questions(), "rows.parquet", parquet([HOTPOT] * 5))}


def read(toy) -> list:
    """All rows; a failure must be one clear line."""
    try:
        return list(toy.documents("train") if toy.is_text else toy.examples("train"))
    except ReproError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
        raise


def damaged(content: bytes):
    n = len(content)
    yield from {"empty": b"", "half": content[:n // 2], "no end": content[:-1], "only the end": content[n // 2:],
                "zeros": bytes(n), "JSON": b'{"id": 1, "text": "a"}\n' * 9, "a page": b"<html>404</html>",
                "a pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"}.items()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [name for name, _ in damaged(b"  ")])
def test_a_damaged_file_ends_in_one_line_that_names_it(shelf, kind, how):
    reader, file, content = KINDS[kind]
    assert read(shelf(reader, content, file))
    with pytest.raises(ReproError, match=f"{file} is damaged or truncated"):
        read(shelf(reader, dict(damaged(content))[how], file))


def test_a_file_that_unpacks_to_more_than_a_corpus_has_is_refused(shelf, monkeypatch):
    monkeypatch.setattr("repro.data.files.MOST_ROWS", 5)
    assert len(read(shelf(readers.shelf, parquet(BOOKS)))) == 5
    with pytest.raises(ReproError, match="has 6 rows; a file of a corpus has at most 5"):
        read(shelf(readers.shelf, parquet([*BOOKS, BOOKS[0]])))
    packed = lzma.compress(TEXT.encode()) + lzma.compress(b"more\n")  # of two streams
    monkeypatch.setattr("repro.data.files.MOST_BYTES", len(TEXT.encode()) + 5)
    assert read(shelf(readers.wikitext, packed, "text.xz"))[0].text == TEXT + "more\n"
    monkeypatch.setattr("repro.data.files.MOST_BYTES", len(TEXT.encode()) + 4)
    with pytest.raises(ReproError, match="text.xz is damaged or truncated .it has more than 47 bytes"):
        read(shelf(readers.wikitext, packed, "text.xz"))
    monkeypatch.undo()
    with pytest.raises(EOFError, match="it ends inside a stream"):
        files._decompressed(packed[:-3])


def test_an_array_without_rows_is_refused(shelf):
    with pytest.raises(ReproError, match="rows.npz has a single number as image, and no rows"):
        read(shelf(example_readers.images(), npz(image=np.float64(3), label=np.float64(3)), "rows.npz"))


@pytest.mark.parametrize("kind", KINDS)
def test_any_byte_may_be_another(shelf, kind):
    """What is read then is of the right form, or refused in one line: no other error."""
    reader, file, content = KINDS[kind]
    draw, refused = np.random.default_rng(0), 0
    for place in draw.integers(len(content), size=60):
        changed = bytearray(content)
        changed[place] ^= 1 << int(draw.integers(8))
        try:
            assert all(isinstance(one, reader.row) for one in read(shelf(reader, bytes(changed), file)))
        except ReproError:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "shift-jis"])
def test_a_text_of_another_encoding(shelf, encoding):
    content = lzma.compress(("日本" if encoding == "shift-jis" else "naïve").encode(encoding))
    with pytest.raises(ReproError, match="text.xz is damaged"):
        read(shelf(readers.wikitext, content, "text.xz"))


@pytest.mark.parametrize("content", [lzma.compress(b""), lzma.compress(b" \n \n"), parquet([{"text": ""}])])
def test_a_text_without_a_word(shelf, content):
    file = "text.xz" if content[:1] == b"\xfd" else "rows.parquet"
    with pytest.raises(ReproError, match="corpus toy, train, has no row in its files"):
        read(shelf(readers.wikitext, content, file))


def wrong_values(row: dict):
    """Each value of a row in turn replaced by null and by values of other types."""
    for name in row:
        for value in (None, 3, 2.5, True, b"\xff\xfe", "text", ["a"], [["a"]], [[[1]]], {"a": 1}, []):
            if type(value) is not type(row[name]) and not (isinstance(value, (int, float)) and isinstance(
                    row[name], (int, float))):
                yield name, value


@pytest.mark.parametrize("kind", TABLES)
def test_values_of_another_type_are_refused_or_read_as_what_they_are(shelf, kind):
    reader, row = TABLES[kind]
    assert read(shelf(reader, parquet([row]))) if kind not in ("clozes", "book_names") else True
    refused = 0
    for name, value in wrong_values(row):
        toy = shelf(reader, parquet([row | {name: value}]))
        try:
            assert all(isinstance(one, reader.row) for one in read(toy)), (name, value)
        except ReproError as error:
            assert "toy" in str(error) and "train" in str(error) or ".parquet" in str(error)
            refused += 1
    assert refused > 5
    with pytest.raises(ReproError, match="has no column"):
        read(shelf(reader, parquet([{"other": 1}])))
    with pytest.raises(ReproError, match="has no column|has no row in its files"):
        read(shelf(reader, parquet([row][:0])))


def test_a_text_that_is_cut_into_splits_is_as_long_as_they_are(shelf):
    splits = {name: Split(name, "text", 1, n_bytes=n) for name, n in (("train", 6), ("validation", 2), ("test", 2))}
    whole = shelf(readers.cut_text, b"0123456789", "text", splits=splits)
    assert [whole.documents(name)[0].text for name in splits] == ["012345", "67", "89"]
    for n in (0, 1, 6, 9):
        with pytest.raises(ReproError, match="is damaged or truncated|it has [0-9] bytes, and .* take 10"):
            shelf(readers.cut_text, b"0123456789"[:n], "text", splits=splits).documents("train")


def test_paragraphs_and_books_of_another_form(shelf, tmp_path):
    splits = {"train": Split("all", ("questions.parquet", "books.parquet"))}
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "books.parquet").write_bytes(parquet([{"id": "no number", "text": "a"}]))
    row = {"context_titles": ["a"], "context_sentences": [["b"]]}
    for change, words in (({"context_titles": None}, "do not fit"), ({"context_sentences": [[None]]}, "do not fit"),
                          ({"context_titles": ["a", "b"]}, "do not fit"), ({}, "is named by no number")):
        toy = shelf(readers.wikipedia_and_books, parquet([{"context_titles": ["x"], "context_sentences": [["y"]]},
                                                          row | change]), "questions.parquet", splits=splits)
        with pytest.raises(ReproError, match=words):
            read(toy)


def test_a_split_without_documents_has_no_tokens(shelf):
    toy = shelf(readers.shelf, parquet(BOOKS[:1]))
    assert len(tokens(toy, "train", Bytes(bytes(range(256))))) == 1
    for bad in (0, -1, 2.5, "1", True):
        with pytest.raises(ReproError, match="n_documents is"):
            tokens(toy, "train", Bytes(bytes(range(256))), n_documents=bad)
    for bad in (None, "bpe", 3):
        with pytest.raises(ReproError, match="tokeniser is"):
            tokens(toy, "train", bad)


BOOK = corpus("synthetic-books")
ASKS = {
    "corpus": corpus, "task": task, "tokeniser": tokeniser, "its corpus": lambda bad: tokeniser("bpe", 300, bad),
    "documents": BOOK.documents, "split": BOOK.split, "n_words": BOOK.n_words,
    "fingerprint": lambda bad: BOOK.fingerprint([bad]), "normalise": normalise,
    "overlap": lambda bad: overlap(bad, NgramFilter(9, 3)), "filter": lambda bad: overlap(["a"], bad),
    "update": lambda bad: NgramFilter(9, 3).update(bad), "detokeniser": detokeniser,
    "apply": lambda bad: detokeniser("wikitext").apply(bad), "invert": lambda bad: detokeniser("lambada").invert(bad),
    "webtext": webtext, "text": lambda bad: Document("id", bad), "id": lambda bad: Document(bad, "text"),
    "url": lambda bad: Page(bad, 3, "2017-01-01", ""), "day": lambda bad: Page("https://a.example", 3, bad, ""),
    "html": lambda bad: Page("https://a.example", 3, "2017-01-01", bad)}
COUNTS = {
    "n_books": lambda bad: BOOK.documents("test", n_books=bad),
    "rows of a task": lambda bad: list(replace(task("topics"), n_test=bad).examples("test")),
    "karma": lambda bad: Page("https://a.example", "3" if bad else bad, "2017-01-01", "")}


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("bad", [None, 3, 2.5, [3], b"text", True])
def test_public_names_say_what_they_need(ask, bad):
    with pytest.raises(ReproError) as error:
        ASKS[ask](bad)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("bad", [-1, 2.5, "1", True, [1]])
def test_counts_are_whole_numbers(bad):
    for ask in COUNTS.values():
        with pytest.raises(ReproError):
            ask(bad)


def test_lines_of_articles_that_are_no_articles(tmp_path):
    from repro.data.wikisum import build

    good = {"title": "T", "lead": "A lead of words.", "citations": ["A text that is another."], "search": []}
    for number, line in enumerate(["", "{", '{"title": "T"', "[1, 2]", "3", '"text"', json.dumps(good | {"title": 3}),
                                   json.dumps(good | {"citations": "one"}), json.dumps(good | {"lead": ""}),
                                   "\ufeff" + json.dumps(good), '{"title": "\\ud800", "lead": "a"}']):
        source = tmp_path / f"articles-{number}.jsonl"
        source.write_text(json.dumps(good) + "\n" + line + "\n", encoding="utf-8")
        if not line:
            continue
        with pytest.raises(ReproError) as error:
            build(source, tmp_path / f"out-{number}")
        assert "\n" not in str(error.value) and "line 2" in str(error.value)
    for content in (b"", b"\xff\xfe{}\n", json.dumps(good).encode("utf-16")):
        source = tmp_path / "broken.jsonl"
        source.write_bytes(content)
        with pytest.raises(ReproError):
            build(source, tmp_path / "broken")
