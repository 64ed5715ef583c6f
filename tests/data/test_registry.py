"""Corpora: what they read, what they count, and what they say when something is missing or damaged."""

import lzma
import os

import pytest

from repro.data import corpora, corpus, registry
from repro.data.readers import articles
from repro.errors import ReproError

real = pytest.mark.skipif("REPRO_DATA" not in os.environ, reason="needs the real corpora: REPRO_DATA is not set")


@real
def test_published_denominators_of_wikitext103():
    rows = {(row.split, row.what): row for row in corpus("wikitext-103").check()}
    assert rows["validation", "words with line ends"].found == 217_646
    assert rows["test", "words with line ends"].found == 245_569
    assert rows["train", "words with line ends"].found == 2_088_628
    assert all(row.ok for row in rows.values())


@real
@pytest.mark.parametrize("name", ["text8-prefix", "enwik8-prefix"])
def test_prefixes_are_whole(name):
    assert all(row.ok for row in corpus(name).check())


@real
def test_real_books():
    held_out = [book.id for book in corpus("gutenberg-pretrain").documents("validation")]
    assert held_out == ["10993", "11378", "10908"]
    test = corpus("pg19-subset").documents("test")
    assert len(test) == 33
    assert sum(len(book.text.split()) for book in test) == 2_285_427


def test_wikitext_is_cut_into_articles_and_nothing_is_lost(data, sample):
    found = corpus("wikitext-103").documents("validation")
    assert [document.text for document in found] == sample.articles
    assert [document.id for document in found] == ["Robin ( bird )", "Second", "3"]
    train = corpus("wikitext-103").documents("train")
    assert "".join(document.text for document in train) == "".join(sample.articles * 3)


@pytest.mark.parametrize("text", ["", "no title\n", " = = Only a section = = \n \n", " \n"])
def test_text_without_a_title_is_one_article(text):
    assert "".join(document.text for document in articles(text)) == text
    assert len(articles(text)) == 1


def test_words_count_line_ends_in_wikitext_only():
    assert corpus("wikitext-103").n_words(" = A = \n \n b c . \n") == 9
    assert corpus("pg19-subset").n_words("a b\nc\n\n") == 3


def test_books_in_order_and_as_they_are(data, sample):
    train = corpus("pg19-subset").documents("train")
    every = {**sample.books["train-00-of-02"], **sample.books["train-01-of-02"]}
    assert {int(book.id): book.text for book in train} == every
    assert [book.id for book in train] == ["101", "102", "103"]
    assert corpus("pg19-subset").documents("train", 2) == train[:2]


def test_check_names_what_is_wrong(data):
    wrong = {(row.split, row.what): (row.expected, row.found) for row in corpus("pg19-subset").check() if not row.ok}
    assert wrong["test", "documents"] == (33, 1)
    assert wrong["test", "words"] == (2_285_427, 3)


def test_check_counts(data, sample):
    found = {(row.split, row.what): row.found for row in corpus("wikitext-103").check()}
    text = "".join(sample.articles)
    words = len(text.split())
    assert found["validation", "documents"] == 3
    assert found["validation", "words"] == words
    assert found["validation", "words with line ends"] == words + text.count("\n")
    assert found["validation", "bytes"] == len(text.encode()) > len(text)


def test_held_out_books_are_chosen_by_id(data, sample):
    sample.put_parquet(data / "gutenberg-pretrain" / "train-00-of-01.parquet",
                {"id": [10993, 1, 10908, 2], "text": ["a", "b", "c", "d"]})
    pretrain = corpus("gutenberg-pretrain")
    assert [book.id for book in pretrain.documents("train")] == ["1", "2"]
    assert [book.id for book in pretrain.documents("validation")] == ["10993", "10908"]


def test_a_prefix_is_cut_by_bytes(data):
    sizes = [split.n_bytes for split in corpus("text8-prefix").splits.values()]
    text = "".join(chr(ord("a") + i % 26) for i in range(sum(sizes)))
    (data / "text8").mkdir()
    (data / "text8" / "text8-first-6877825-bytes.xz").write_bytes(lzma.compress(text.encode(), preset=0))
    parts = [corpus("text8-prefix").documents(split)[0].text for split in ("train", "validation", "test")]
    assert [len(part) for part in parts] == sizes == [6_190_043, 343_891, 343_891]
    assert "".join(parts) == text


@pytest.mark.parametrize("name", ["enwik8", "text8"])
def test_whole_files_are_cut_as_the_paper_cuts_them(name):
    assert [split.n_bytes for split in corpus(name).splits.values()] == [90_000_000, 5_000_000, 5_000_000]
    assert list(corpus(name).splits) == ["train", "validation", "test"]


def test_fingerprint_follows_content_not_place_or_time(data, monkeypatch, sample):
    before = corpus("pg19-subset").fingerprint()
    test_only = corpus("pg19-subset").fingerprint(["test"])
    moved = data.rename(data.with_name("elsewhere"))
    monkeypatch.setenv("REPRO_DATA", str(moved))
    for path in moved.rglob("*.parquet"):
        os.utime(path, (1, 1))
    assert corpus("pg19-subset").fingerprint() == before != test_only
    sample.put_parquet(moved / "pg19-subset" / "validation.parquet", {"id": [104], "text": ["held in"]})
    assert corpus("pg19-subset").fingerprint() != before
    assert corpus("pg19-subset").fingerprint(["test"]) == test_only


def test_a_corpus_is_the_same_text_whatever_else_lies_there(data, sample):
    part, full = corpus("wikitext-103"), corpus("wikitext-103-full")
    assert "2 %" in part.part_of
    assert full.part_of is None
    assert corpus("pg19-subset").part_of.startswith("PG-19: 384 of 28,602")
    before = part.fingerprint()
    for folder in (data / "wikitext", data / "wikitext-103-full"):
        sample.put_parquet(folder / "wikitext-103.train-00-of-02.parquet", {"text": [" = W = \n \n whole \n"]})
    with pytest.raises(ReproError, match=r"has 1 files wikitext-103\.train-\*-of-\*\.parquet instead of 2"):
        full.documents("train")
    sample.put_parquet(data / "wikitext-103-full" / "wikitext-103.train-01-of-02.parquet", {"text": [" more \n"]})
    assert full.documents("train")[0].text == " = W = \n \n whole \n more \n"
    assert "".join(document.text for document in part.documents("train")) == "".join(sample.articles * 3)
    assert part.fingerprint() == before


def test_embedded_corpus_needs_no_folder(monkeypatch):
    monkeypatch.setenv("REPRO_DATA", "/nowhere")
    books = corpus("synthetic-books")
    assert books.available()
    assert books.part_of is None
    assert all(row.ok for row in books.check())
    assert len({books.fingerprint([split]) for split in books.splits}) == 3


def test_every_corpus_says_what_it_is():
    names = [one.name for one in corpora()]
    assert len(names) == len(set(names))
    for one in corpora():
        assert one.licence
        assert one.source
        assert list(one.splits)[0] == "train" or not one.is_text or one.name == "wikitext-103-unk"  # only evaluated on
        assert one.origin or one.generator or one.made_of or not one.is_text
        assert one.generator or one.folder
        if one.name.endswith(("-subset", "-sample", "-prefix")):
            assert " of " in one.part_of
    for name in ("pg19-subset", "gutenberg-pretrain", "text8-prefix", "enwik8-prefix"):
        assert " of " in corpus(name).part_of or "first" in corpus(name).part_of


def test_every_corpus_says_how_it_is_had():
    assert corpus("hyperpartisan").layout == ["hyperpartisan/byarticle.parquet"]
    assert corpus("hyperpartisan").way == (
        "it cannot be fetched: put hyperpartisan/byarticle.parquet, from doi.org/10.5281/zenodo.1489920 (by article), "
        "by way of a public copy, into the folder REPRO_DATA")
    assert corpus("wikitext-103").layout == [
        "wikitext/wikitext-2.train.parquet", "wikitext/wiki.valid.raw.xz", "wikitext/wiki.test.raw.xz"]
    for one in corpora():
        fetched = one.way == f"get it with: repro data fetch {one.name}"
        assert fetched == (one.origin is not None)
        assert fetched or one.generator or one.made_of or all(path in one.way for path in one.layout)


def test_unknown_corpus_and_split(data):
    with pytest.raises(ReproError, match="unknown corpus 'wikitext103'. Did you mean 'wikitext-103'?"):
        corpus("wikitext103")
    with pytest.raises(ReproError, match="unknown split of pg19-subset 'valid'. Did you mean 'validation'?"):
        corpus("pg19-subset").documents("valid")


def test_missing_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    with pytest.raises(ReproError, match="set REPRO_DATA=.* or run `repro data fetch wikitext-103`"):
        corpus("wikitext-103").documents("test")
    assert not corpus("wikitext-103").available()


def test_without_repro_data_the_project_folder_is_read(data, monkeypatch):
    monkeypatch.delenv("REPRO_DATA")
    monkeypatch.setenv("REPRO_HOME", str(data.parent))
    assert len(corpus("pg19-subset").documents("test")) == 1


@pytest.mark.parametrize("keep", [0, 10, 0.5, -1])
def test_truncated_parquet(data, keep):
    path = data / "pg19-subset" / "test.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(ReproError, match=r"test\.parquet is damaged or truncated .*fetch the corpus again"):
        corpus("pg19-subset").documents("test")


def test_parquet_damaged_inside(data, sample):
    path = data / "pg19-subset" / "test.parquet"
    sample.put_parquet(path, {"id": [1], "text": ["a long text " * 10_000]})
    content = bytearray(path.read_bytes())
    content[20:60] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(ReproError, match=r"test\.parquet is damaged"):
        corpus("pg19-subset").documents("test")


@pytest.mark.parametrize("content", [b"", b"not xz", lzma.compress(b"text " * 1000)[:-20], lzma.compress(b"\xff\xfe")])
def test_damaged_xz(data, content):
    (data / "wikitext" / "wiki.test.raw.xz").write_bytes(content)
    with pytest.raises(ReproError, match=r"wiki\.test\.raw\.xz is damaged or truncated"):
        corpus("wikitext-103").documents("test")


def test_missing_shard(data):
    (data / "pg19-subset" / "train-01-of-02.parquet").unlink()
    with pytest.raises(ReproError, match="has 1 files train-.* instead of 2: a file is missing"):
        corpus("pg19-subset").documents("train")
    assert not corpus("pg19-subset").available()


def test_parquet_of_something_else(data, sample):
    sample.put_parquet(data / "pg19-subset" / "test.parquet", {"id": [1], "words": ["a"]})
    with pytest.raises(ReproError, match="has no column text"):
        corpus("pg19-subset").documents("test")


@pytest.mark.parametrize(("n_books", "told"), [(0, "at least 1"), (4, "has only 3 documents")])
def test_impossible_number_of_books(data, n_books, told):
    with pytest.raises(ReproError, match=told):
        corpus("pg19-subset").documents("train", n_books)


def test_two_entries_of_one_name_are_refused_in_one_line():
    first, *_ = corpora()
    with pytest.raises(ReproError, match=f"corpus '{first.name}' is declared twice in repro.data.registry; rename one"):
        registry._by_name([*corpora(), first])
