"""Fetching: the layout that is read, whole files only, and resuming after a kill at any moment."""

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

from repro.data import corpora, corpus, fetch, sources
from repro.errors import ReproError

LINES = {"train": ["", " = A = \n", "", " a b \n", " c \n", "", " = B = \n"],
         "validation": ["", " = V = \n", "", " v w . \n"], "test": ["", " = T = \n", ""]}
COUNTS = {split: len(lines) for split, lines in LINES.items()}
NUMBERS = {"train": [11, 12, 13, 14, 15], "validation": [21, 22], "test": [31, 32, 33]}
PART = {"train": (15, 12, 21), "validation": (14,), "test": (33,)}


def lines(split, skip):
    """Stands in for the hub's WikiText."""
    for text in LINES[split][skip:]:
        yield {"text": text}


def shelf(split, skip):
    """Stands in for the hub's PG-19."""
    for number in NUMBERS[split][skip:]:
        yield {"url": f"http://www.gutenberg.org/ebooks/{number}", "short_book_title": f"Title {number}",
               "publication_date": 1900, "text": f"book {number}\r\n"}


def wikitext():
    return sources.wikitext103(COUNTS, per_file=3)


def every_file(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    return tmp_path / "wikitext-103-full"


def test_a_file_is_no_place_to_fetch_into(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ReproError, match="file is a file; give the folder into which pg19-subset is fetched"):
        corpus("pg19-subset").fetch(tmp_path / "file")


def test_wikitext_becomes_what_is_read(folder):
    opened = []
    fetch.fetch("wikitext-103-full", folder, wikitext(), lambda *place: opened.append(place) or lines(*place),
                progress=False)
    assert opened == [("validation", 0), ("test", 0), ("train", 0)]  # each is read in one go
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest-wikitext-103-full.json", "wiki.test.raw.xz", "wiki.valid.raw.xz",
        *(f"wikitext-103.train-0{k}-of-03.parquet" for k in range(3))]
    for split, texts in LINES.items():
        read = corpus("wikitext-103-full").documents(split)
        assert "".join(document.text for document in read) == "".join(text or " \n" for text in texts)
    assert [document.id for document in corpus("wikitext-103-full").documents("test")] == ["T"]
    assert corpus("wikitext-103-full").part_of is None
    rows = {(row.split, row.what): row for row in corpus("wikitext-103-full").check()}
    assert rows["all", "files as they were fetched"].ok
    assert rows["all", "files as they were fetched"].found == 5
    assert rows["train", "words with line ends"].expected == 103_227_021


@pytest.mark.skipif("REPRO_DATA" not in os.environ, reason="needs the real corpora: REPRO_DATA is not set")
def test_rows_as_the_hub_has_them_give_the_original_file(tmp_path, monkeypatch):
    text = "".join(document.text for document in corpus("wikitext-103").documents("validation"))
    rows = [line if line.strip() else "" for line in text.splitlines(keepends=True)]
    assert len(rows) == sources.WIKITEXT2_ROWS["validation"]
    one = sources.wikitext2({"train": 0, "validation": len(rows), "test": 0})
    source = fetch.Hub(one.name, one.config, one.revision, one.rows, one.parts[:1])
    fetch.fetch("wikitext-103", tmp_path / "wikitext", source,
                lambda split, skip: ({"text": row} for row in rows[skip:]), progress=False)
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    assert "".join(document.text for document in corpus("wikitext-103").documents("validation")) == text


def test_the_part_of_wikitext_is_another_corpus_in_another_folder(folder):
    part = folder.with_name("wikitext")
    fetch.fetch("wikitext-103", part, sources.wikitext2(COUNTS), lines, progress=False)
    assert sorted(path.name for path in part.iterdir()) == [
        "manifest-wikitext-103.json", "wiki.test.raw.xz", "wiki.valid.raw.xz", "wikitext-2.train.parquet"]
    read = corpus("wikitext-103").documents("train")
    assert "".join(document.text for document in read) == "".join(text or " \n" for text in LINES["train"])
    assert (corpus("wikitext-103").origin().config, corpus("wikitext-103-full").origin().config) == (
        "wikitext-2-raw-v1", "wikitext-103-raw-v1")
    before = corpus("wikitext-103").fingerprint()
    fetch.fetch("wikitext-103-full", folder, wikitext(), lines, progress=False)
    assert corpus("wikitext-103").fingerprint() == before


def test_the_text_with_unknown_words_lies_beside_the_raw_one(folder):
    beside = folder.with_name("wikitext")
    fetch.fetch("wikitext-103-unk", beside, sources.wikitext103_unk(COUNTS), lines, progress=False)
    assert sorted(path.name for path in beside.iterdir()) == [
        "manifest-wikitext-103-unk.json", "wiki.test.tokens.xz", "wiki.valid.tokens.xz"]
    assert corpus("wikitext-103-unk").origin().config == "wikitext-103-v1"
    assert corpus("wikitext-103-unk").documents("validation")[0].text == " \n = V = \n \n v w . \n"


def test_pg19_becomes_what_is_read(folder):
    source = sources.pg19({split: len(numbers) for split, numbers in NUMBERS.items()}, per_file=2)
    fetch.fetch("pg19", folder.with_name("pg19"), source, shelf, progress=False)
    for split, numbers in NUMBERS.items():
        assert [(book.id, book.text) for book in corpus("pg19").documents(split)] == [
            (str(number), f"book {number}\r\n") for number in numbers]


def test_part_of_pg19_is_found_wherever_it_is(folder):
    source = sources.pg19_part(PART, {split: len(numbers) for split, numbers in NUMBERS.items()}, per_file=2)
    fetch.fetch("pg19-subset", folder.with_name("pg19-subset"), source, shelf, progress=False)
    found = {split: [int(book.id) for book in corpus("pg19-subset").documents(split)] for split in PART}
    assert found == {"train": [12, 15, 21], "validation": [14], "test": [33]}
    assert {row.what for row in corpus("pg19-subset").check()} == {"documents", "files as they were fetched"}


def test_the_parts_of_pg19_are_disjoint_and_of_their_declared_size():
    for name, sizes in (("pg19-subset", [384, 26, 33]), ("gutenberg-pretrain", [262])):
        parts = corpus(name).origin().parts
        assert parts[-1].stop == sources.PG19_ROWS[parts[-1].split]
        wanted = [row for numbers in (_ids(name)).values() for row in numbers]
        assert [len(numbers) for numbers in _ids(name).values()] == sizes
        assert len(wanted) == len(set(wanted)) == sum(sizes)
    assert not set(_ids("pg19-subset")["train"]) & set(_ids("gutenberg-pretrain")["train"])


def _ids(name):
    from repro.data import books

    return {"pg19-subset": {"train": books.SUBSET_TRAIN, "validation": books.SUBSET_VALIDATION,
                            "test": books.SUBSET_TEST},
            "gutenberg-pretrain": {"train": books.PRETRAIN_TRAIN + books.PRETRAIN_VALIDATION}}[name]


def test_declared_parts_cover_every_row_once():
    rows = {"wikitext-103": sources.WIKITEXT2_ROWS, "wikitext-103-full": sources.WIKITEXT103_ROWS,
            **dict.fromkeys(("pg19", "pg19-subset", "gutenberg-pretrain"), sources.PG19_ROWS)}
    hubs = {one.name: one.origin() for one in corpora() if one.origin and not isinstance(one.origin(), fetch.Archive)}
    assert all(hubs[name].rows == totals for name, totals in rows.items())
    for hub in hubs.values():
        parts, totals = hub.parts, hub.rows
        names = [file for part in parts for file in part.names]
        assert len(names) == len(set(names))
        for split, total in totals.items():
            stretches = [(part.start, part.stop) for part in parts if part.split == split]
            assert stretches[0][0] == 0
            assert stretches[-1][1] == total
            assert all(one[1] == next_one[0] for one, next_one in zip(stretches, stretches[1:], strict=False))


KILLED = """
    import os, signal, sys
    sys.path.insert(0, {here!r})
    import test_fetch, repro.paths
    from repro.data import fetch

    left = {left}
    def count(*_):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def rows(split, skip):
        for row in test_fetch.lines(split, skip):
            count()
            yield row

    if {moment!r} == "write":  # killed with the new file written beside the old one, not yet in its place
        replace = os.replace
        os.replace = lambda *names: (count(), replace(*names))
        rows = test_fetch.lines
    fetch.fetch("wikitext-103-full", sys.argv[1], test_fetch.wikitext(), rows, progress=False)
"""


@pytest.mark.parametrize(("moment", "left", "complete"), [
    ("read", 2, 0), ("read", 6, 1), ("read", 9, 2), ("read", 13, 4), ("write", 0, 0), ("write", 1, 0), ("write", 5, 2),
    ("write", 9, 4)])
def test_killed_and_started_again(folder, tmp_path, moment, left, complete):
    whole = tmp_path / "uninterrupted"
    fetch.fetch("wikitext-103-full", whole, wikitext(), lines, progress=False)
    code = textwrap.dedent(KILLED.format(here=os.path.dirname(__file__), left=left, moment=moment))
    killed = subprocess.run([sys.executable, "-c", code, str(folder)], check=False)
    assert killed.returncode == -signal.SIGKILL
    here = {name: content for name, content in every_file(folder).items() if not name.startswith(".")}
    expected = every_file(whole)
    assert all(content == expected[name] for name, content in here.items() if "manifest" not in name)  # no half file
    assert sum(fetch.verify("wikitext-103-full", folder).values()) == complete

    read = []

    def counted(split, skip):
        for k, row in enumerate(lines(split, skip)):
            read.append((split, skip + k))
            yield row

    fetch.fetch("wikitext-103-full", folder, wikitext(), counted, progress=False)
    assert {name: content for name, content in every_file(folder).items() if not name.startswith(".")} == expected
    assert len(read) == len(set(read)) == sum(part.stop - part.start for part in wikitext().parts[complete:])


def test_nothing_is_read_when_all_is_there(folder):
    fetch.fetch("wikitext-103-full", folder, wikitext(), lines, progress=False)
    before = every_file(folder)
    fetch.fetch("wikitext-103-full", folder, wikitext(), None, progress=False)  # the hub would be an error here
    assert before and every_file(folder) == before


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_bytes(b"short"),
                                   lambda path: path.write_bytes(b"\x00" * path.stat().st_size)])
def test_one_spoilt_file_is_fetched_again(folder, spoil):
    fetch.fetch("wikitext-103-full", folder, wikitext(), lines, progress=False)
    before = every_file(folder)
    spoil(folder / "wikitext-103.train-01-of-03.parquet")
    assert sum(fetch.verify("wikitext-103-full", folder).values()) == 4
    read = []

    def counted(split, skip):
        read.append((split, skip))
        return lines(split, skip)

    fetch.fetch("wikitext-103-full", folder, wikitext(), counted, progress=False)
    assert every_file(folder) == before
    assert read == [("train", 3)]


def test_source_that_fails_says_where_and_keeps_what_is_there(folder):
    def failing(split, skip):
        for k, row in enumerate(lines(split, skip)):
            if split == "train" and skip + k == 4:
                raise ConnectionError("the network\nis gone")
            yield row

    with pytest.raises(ReproError, match=r"stopped at row 4 of train \(ConnectionError: the network is gone\)\. Run "
                                         "`repro data fetch wikitext-103-full` again"):
        fetch.fetch("wikitext-103-full", folder, wikitext(), failing, progress=False)
    assert sum(fetch.verify("wikitext-103-full", folder).values()) == 3


@pytest.mark.parametrize(("declared", "told"), [(3, "has more than 3 rows in validation instead of 3"),
                                                (5, "has only 4 rows in validation instead of 5")])
def test_source_of_another_size_is_refused(folder, declared, told):
    source = sources.wikitext103({**COUNTS, "validation": declared}, per_file=3)
    with pytest.raises(ReproError, match=told):
        fetch.fetch("wikitext-103-full", folder, source, lines, progress=False)
    assert not folder.exists()


def test_full_disk(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ReproError, match="No space left on device"):
        fetch.fetch("wikitext-103-full", folder, wikitext(), lines, progress=False)
    assert every_file(folder) == {}


def test_unreadable_manifest(folder):
    folder.mkdir()
    (folder / "manifest-wikitext-103-full.json").write_text("{")
    with pytest.raises(ReproError, match="Delete it and run `repro data fetch wikitext-103-full`"):
        fetch.fetch("wikitext-103-full", folder, wikitext(), lines, progress=False)


@pytest.mark.parametrize(("chosen", "told"), [
    (lambda: corpus("synthetic-books"), "is generated by the library; there is nothing to fetch"),
    (lambda: replace(corpus("text8"), name="text9", origin=None, source="elsewhere"),
     r"text9 cannot be fetched; put text8/text8 \(from elsewhere\) below .*, or set REPRO_DATA"),
    (lambda: corpus("books-and-wikipedia"),
     "books-and-wikipedia consists of others: run `repro data fetch NAME` for each of gutenberg-pretrain, "
     "wikitext-103, pg19-subset; hotpotqa-subset, 2wikimultihop-sample, lambada, lambada-cased cannot be fetched"),
    (lambda: corpus("pg20"), "Did you mean 'pg19'?")])
def test_what_cannot_be_fetched(tmp_path, chosen, told):
    with pytest.raises(ReproError, match=told):
        chosen().fetch(tmp_path)


def test_the_hub_is_streamed_from_the_row_asked_for(tmp_path, sample, monkeypatch):
    """Through the real `datasets`, from a local folder in the place of a hub id."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    sample.put_parquet(tmp_path / "hub" / "train.parquet", {"text": LINES["train"]})
    source = fetch.Hub(str(tmp_path / "hub"), None, None, {"train": 7}, [])
    assert [row["text"] for row in source.stream("train", 0)] == LINES["train"]
    assert [row["text"] for row in source.stream("train", 5)] == LINES["train"][5:]


@pytest.mark.parametrize("script", ["wikitext103", "pg19", "enwik8", "text8", "imdb", "hotpotqa", "cifar10",
                                    "gpt1_tasks", "wmt14", "arxiv", "wikihop", "triviaqa"])
def test_scripts_run(script):
    from repro import paths

    path = paths.home() / "data_scripts" / f"{script}.py"
    told = subprocess.run([sys.executable, str(path), "--help"], capture_output=True, text=True, check=True).stdout
    assert "FOLDER" in told
    assert "goes on" in told


def test_script_tells_errors_in_one_line(tmp_path):
    from repro import paths

    path = paths.home() / "data_scripts" / "wikitext103.py"
    (tmp_path / "wikitext-103-full").write_text("a file where the folder should be")
    found = subprocess.run([sys.executable, str(path), str(tmp_path)], capture_output=True, text=True, check=False,
                           env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")})
    assert found.returncode != 0
    assert found.stderr.strip().splitlines()[-1].startswith("wikitext103.py: error: ")
    assert "Traceback" not in found.stderr
