"""CoNLL 2012's files: written line by line here, and read back."""

import pytest

from repro.data import corpus
from repro.data.conll import GENRES, documents
from repro.errors import ReproError

# A word, its speaker, its mentions. Cluster 7 has a mention inside another; 3 and 1 overlap in "my".
TEXT = [[("I", "Ann", "(1)"), ("saw", "Ann", "-"), ("my", "Ann", "(3|(1)"), ("dog", "Ann", "3)")],
        [("A", "Bob", "(7"), ("friend", "Bob", "-"), ("of", "Bob", "-"), ("friends", "Bob", "(7)|7)"),
         (".", "Bob", "-")],
        [("It", "-", "(3)|(9)")]]


def lines(text=TEXT, name="bc/cctv/00/cctv_0000", part=1):
    return [f"#begin document ({name}); part {part:03}",
            *(line for sentence in text for line in (*(f"{name} {part} {k} {word} X X - - - {speaker} * {mention}"
                                                       for k, (word, speaker, mention) in enumerate(sentence)), "")),
            "#end document"]


def test_words_speakers_and_clusters():
    found, = documents(lines())
    assert found.id == "bc/cctv/00/cctv_0000/1" and GENRES[found.genre] == "bc"
    assert found.sentences == tuple(tuple(word for word, _, _ in sentence) for sentence in TEXT)
    assert found.speakers == tuple(speaker for sentence in TEXT for _, speaker, _ in sentence)
    # "It" is in two clusters and stays in the first
    assert found.clusters == (((0, 1), (2, 3)), ((2, 4), (9, 10)), ((4, 8), (7, 8)))


def test_parts_are_documents_and_clusters_do_not_reach_across():
    first, second = documents(lines() + lines(part=2, name="wb/x"))
    assert (first.id, second.id, GENRES[second.genre]) == ("bc/cctv/00/cctv_0000/1", "wb/x/2", "wb")
    assert first.clusters == second.clusters


@pytest.mark.parametrize("text, said", [
    (lines()[:-1], "the file ends inside document bc/cctv/00/cctv_0000/1"),
    (lines([[("I", "Ann", "(1")]]), "cluster 1 of document bc/cctv/00/cctv_0000/1 has a mention that never ends"),
    (lines([[("I", "Ann", "1)")]]), "line 2: a mention of cluster 1 ends that never started"),
    (lines(name="zz/x"), "of an unknown genre; known are bc"),
    (lines()[:1] + ["bc/x 0 0 I"], "line 2 has 4 columns; CoNLL 2012 has 11 or more"),
    (lines()[1:], "line 1 has 12 columns outside a document")])
def test_a_damaged_file_is_one_line(text, said):
    with pytest.raises(ReproError) as error:
        list(documents(text))
    assert said in str(error.value)


def test_the_corpus_reads_the_files_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    (tmp_path / "ontonotes").mkdir()
    for name in ("train", "dev", "test"):
        (tmp_path / "ontonotes" / f"{name}.english.v4_gold_conll").write_text("\n".join(lines(name=f"nw/{name}")))
    assert [row.id for row in corpus("ontonotes").examples("validation")] == ["nw/dev/1"]
    (tmp_path / "ontonotes" / "test.english.v4_gold_conll").write_text("\n".join(lines()[:-1]))
    with pytest.raises(ReproError, match="ontonotes, test, .*: line .* it was cut"):
        list(corpus("ontonotes").examples("test"))
