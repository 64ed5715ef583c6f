"""A reader's folder as a corpus: what it holds, how it is divided, and how bad folders are refused."""

import os

import pytest

from repro.data import corpus, registry, tokeniser, tokens
from repro.data.apart import near_copies
from repro.data.own_text import own_text
from repro.errors import ReproError


@pytest.fixture
def letters(tmp_path):
    """A folder of two texts and files that do not count."""
    folder = tmp_path / "My letters, 1843"
    folder.mkdir()
    (folder / "b.txt").write_bytes("\ufeff“Wait—” she said…\r\nHe waited.".encode())
    (folder / "a.TXT").write_bytes(b"0123456789")
    (folder / "._b.txt").write_bytes(b"\0\0")
    (folder / "notes.md").write_text("not a document")
    return folder


def test_text_is_read_as_the_corpora_of_the_study_are(letters):
    found = own_text(letters)
    assert found.name == "My-letters-1843" and found.is_text and list(found.splits) == ["validation", "test"]
    assert [(one.id, one.text) for one in found.documents("test")] == [
        ("a.TXT", "0123456789"), ("b.txt", '"Wait--" she said...\nHe waited.')]
    assert found.documents("validation") == found.documents("test")


def test_a_training_text_is_cut_inside_each_document(letters):
    found = own_text(letters, trains=True)
    parts = {split: [one.text for one in found.documents(split)] for split in ("train", "validation", "test")}
    assert {split: texts[0] for split, texts in parts.items()} == {"train": "01234567", "validation": "8", "test": "9"}
    assert ["".join(pieces) for pieces in zip(*parts.values(), strict=True)] == [
        "0123456789", '"Wait--" she said...\nHe waited.']


def test_the_fingerprint_depends_on_content_names_and_use(letters):
    first = own_text(letters).fingerprint()
    assert own_text(letters).fingerprint() == first
    assert own_text(letters, trains=True).fingerprint(["test"]) != own_text(letters).fingerprint(["test"])
    (letters / "a.TXT").rename(letters / "c.txt")
    renamed = own_text(letters).fingerprint()
    (letters / "c.txt").write_bytes(b"0123456780")
    assert len({first, renamed, own_text(letters).fingerprint()}) == 3


def test_it_is_a_corpus_only_while_it_is_in_use(letters, tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    text = own_text(letters, trains=True)
    with registry.also(text):
        assert corpus("My-letters-1843") is text
        coder = tokeniser("byte", corpus=text.name)
        assert coder.known == bytes(sorted({*b'0123456789"Wait--" she said...\nHe waited.'}))  # held-out digits too
        assert tokens(text.name, "validation", coder).n_bytes.tolist() == [1, 3]
    with pytest.raises(ReproError, match="unknown corpus"):
        corpus("My-letters-1843")


def test_a_name_of_the_study_is_extended(tmp_path):
    folder = tmp_path / "pg19-subset"
    folder.mkdir()
    (folder / "one.txt").write_text("A word.")
    assert own_text(folder).name == "pg19-subset-folder"


@pytest.mark.parametrize(("content", "line"), [
    (b"caf\xe9", "byte 3 is 0xe9. Save it as UTF-8"), ("Wort".encode("utf-16"), "binary, or UTF-16: byte 3 is zero"),
    (b"\x89PNG\r\n\x1a\n\0\0", "binary, or UTF-16: byte 8 is zero"), (b"", "has no word"), (b" \n--\n", "has no word")])
def test_a_file_that_is_no_text_is_named(tmp_path, content, line):
    (tmp_path / "good.txt").write_text("A word.")
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(ReproError, match="bad.txt") as error:
        own_text(tmp_path)
    assert line in str(error.value) and "\n" not in str(error.value)


def test_a_copy_is_refused_and_both_files_are_named(tmp_path):
    (tmp_path / "one.txt").write_text("He went home.\nShe stayed.")
    (tmp_path / "two.txt").write_text("He went home. She stayed!")
    assert len(own_text(tmp_path).files) == 2
    (tmp_path / "copy.txt").write_bytes(b" He  went home.\r\n\r\nShe stayed.\n")
    with pytest.raises(ReproError, match=r"one\.txt has the same text as copy\.txt") as error:
        own_text(tmp_path)
    assert "\n" not in str(error.value)


def put(folder, **texts):
    for name, numbers in texts.items():
        (folder / f"{name}.txt").write_text(" ".join(f"w{k}" for k in numbers))


@pytest.mark.parametrize(("shared", "refused"), [(14, False), (15, True), (16, True)])
def test_documents_that_share_more_than_half_of_their_runs_are_refused(tmp_path, shared, refused):
    """Of 16 words, 14 or 15 in the same place: 2 or 3 of the 4 runs of 13 words. The longer text does not count."""
    put(tmp_path, page=range(16), book=[*range(100, 140), *range(shared), *range(200, 240)])
    if not refused:
        assert len(own_text(tmp_path).files) == 2
        return
    with pytest.raises(ReproError) as error:
        own_text(tmp_path)
    line = str(error.value)
    assert f"page.txt shares {25 * (shared - 12)}% of its runs of 13 words with book.txt; more than 50%" in line
    assert "\n" not in line and "more pair" not in line


def test_near_copies_are_found_among_texts_that_all_share_a_license(tmp_path):
    license, first, second = range(500, 530), range(30), range(100, 130)
    put(tmp_path, a=[*license, *first, *range(200, 230)], b=[*license, *second, *range(300, 330)],
        c=[*license, *range(400, 490)])
    assert len(own_text(tmp_path).files) == 3  # 18 of 78 runs
    put(tmp_path, d=[*license, *second, *range(300, 331)], e=[*first, *range(200, 231)])
    with pytest.raises(ReproError, match=r"b\.txt shares 100% of its runs of 13 words with d\.txt \(1 more pair like"):
        own_text(tmp_path)


def test_near_copies_ignore_case_marks_and_repetition():
    words = [f"w{k}" for k in range(20)]
    line, other = " ".join(words), "; ".join(words).upper()
    assert near_copies([("a", line), ("b", f"{other}! "), ("c", "too short")]) == [("a", "b", 1.0)]
    assert near_copies([("a", f"{line} {line}"), ("b", line)]) == [("b", "a", 1.0)]
    assert near_copies([("a", line), ("b", " ".join(words[::-1]))]) == near_copies([]) == []
    assert near_copies([("a", line), ("b", " ".join([*words[:16], *"xyz"]))], 0.6) == []  # 4 of 7 runs: 0.57
    assert near_copies([("a", line), ("b", " ".join([*words[:16], *"xyz"]))], 0.57) == [("b", "a", 4 / 7)]


def test_names_that_differ_only_in_case_stay_two_documents(tmp_path):
    (tmp_path / "a.txt").write_text("A word.")
    (tmp_path / "a.TXT").write_text("Two words.")
    assert [one.id for one in own_text(tmp_path).documents("test")] == ["a.TXT", "a.txt"]


def test_a_folder_without_text_is_refused(tmp_path, monkeypatch):
    (tmp_path / "notes.md").write_text("A word.")
    with pytest.raises(ReproError, match=r"has no \.txt file among its 1 entries"):
        own_text(tmp_path)
    with pytest.raises(ReproError, match="is not here; give a folder"):
        own_text(tmp_path / "missing")
    with pytest.raises(ReproError, match="is not here; give a folder") as error:
        own_text(tmp_path / ("x" * 5_000))  # no file system has such a name
    assert len(str(error.value)) < 600
    with pytest.raises(ReproError, match="is a file; give a folder"):
        own_text(tmp_path / "notes.md")
    monkeypatch.setattr("repro.data.own_text.MOST_BYTES", 6)
    (tmp_path / "one.txt").write_text("A word.")
    with pytest.raises(ReproError, match="has 7 bytes of text; at most 6 are read"):
        own_text(tmp_path)


@pytest.mark.parametrize("bad", ["file", "folder"])
def test_a_name_that_is_not_utf8_is_refused(tmp_path, bad):
    """Records and tables contain it."""
    folder = os.fsencode(tmp_path) + (b"/texts\xff" if bad == "folder" else b"/texts")
    os.mkdir(folder)
    for name in (b"one.txt", b"two\xfe.txt" if bad == "file" else b"two.txt"):
        with open(folder + b"/" + name, "wb") as file:
            file.write(b"A word of " + name[:3])
    with pytest.raises(ReproError, match="is not UTF-8; rename it, records contain it") as error:
        own_text(os.fsdecode(folder))
    assert str(error.value).encode() and "\n" not in str(error.value)
