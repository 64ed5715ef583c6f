"""Overlap of generated test texts with training texts: planted, counted, and counted again by hand."""

import re
from dataclasses import replace

import pytest

from repro.data import NgramFilter, corpus, registry
from repro.data.base import Split
from repro.errors import ReproError
from repro.papers.gpt2_2019 import overlap
from repro.study import artifact, claims, experiment, run
from repro.study.published import printed_rows


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A corpus of few short books in the place of the generated one."""
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    books = corpus("synthetic-books")
    tiny = replace(books, generator=replace(books.generator, book_words=400), splits={
        name: Split("", n_documents=n) for name, n in (("train", 5), ("validation", 1), ("test", 3))})
    documents = corpus("synthetic-documents")
    few = replace(documents, splits={"train": Split("", n_examples=20)})
    monkeypatch.setitem(registry._BY_NAME, "synthetic-books", tiny)
    monkeypatch.setitem(registry._BY_NAME, "synthetic-documents", few)
    return tiny


def runs(text, n=8):
    told = re.findall(r"[a-z0-9]+", text.lower())
    return [tuple(told[k:k + n]) for k in range(len(told) - n + 1)]


def test_planted_stretches_are_those_of_the_other_text():
    text, source = " ".join(f"a{k}" for k in range(130)), " ".join(f"b{k}" for k in range(110))
    words = overlap.planted(text, source, every=3).split()
    assert len(words) == 130
    assert [k for k, word in enumerate(words) if word[0] == "b"] == [*range(20), *range(60, 80)]
    assert all(word[1:] == str(k) for k, word in enumerate(words))
    assert overlap.planted("a b", source, 2) == "a b"


def test_a_run_counts_what_exact_sets_count(small):
    config, = experiment("overlap-gpt2").plan("smoke", {"training_set": "own", "random_runs": 500})
    record = run(config, progress=False)
    training = list(small.texts("train"))
    known = {one for text in training for one in runs(text)}
    found = []
    for text, source in zip(small.texts("test"), training, strict=False):
        found.append([one in known for one in runs(overlap.planted(text, source, 5))])
    told = record.documents["planted"]
    assert told == {"n_grams": [len(one) for one in found], "found": [sum(one) for one in found]}
    percent = 100 * sum(told["found"]) / sum(told["n_grams"])
    assert record.metrics["planted_percent"] == pytest.approx(record.metrics["planted_exact_percent"]) and percent > 5
    assert record.metrics["planted_percent"] == percent
    assert record.metrics["random_runs_found"] == 0
    assert (record.metrics["pages_after_links"], record.metrics["pages_after_duplicate"]) == (60, 30)
    assert record.metrics["pages_wrong"] == 0


def test_the_runs_of_another_training_text(small):
    first, second = experiment("overlap-gpt2").plan("smoke", {"random_runs": 10})
    assert (first.training_set, second.training_set) == ("own", "synthetic-documents")
    assert len(list(corpus("synthetic-documents").texts("train"))) == 20
    other = run(second, progress=False)
    known = {one for text in corpus("synthetic-documents").texts("train") for one in runs(text)}
    tested = [one in known for text in overlap.texts(second, "synthetic-books") for one in runs(text)]
    assert other.metrics["planted_percent"] == 100 * sum(tested) / len(tested)
    assert "pages_wrong" not in other.metrics


def test_one_long_text_is_counted_in_blocks():
    known = NgramFilter(10, n=2)
    known.update(["a b"])
    assert overlap.counted(["a b c", "a b a b"], known) == {"n_grams": [2, 3], "found": [1, 2]}
    told = overlap.counted(["a b " * 1_000], known)
    assert told == {"n_grams": [1_000, 999], "found": [500, 500]}


def test_what_is_read_at_small():
    own, books = experiment("overlap-gpt2").plan("small")
    read = experiment("overlap-gpt2").reads
    assert (own.training_set, books.training_set, own.corpus) == ("own", "gutenberg-pretrain", "wikitext-103")
    assert read(own) == ["enwik8-prefix", "lambada-cased", "text8-prefix"]
    assert read(books) == ["enwik8-prefix", "gutenberg-pretrain", "lambada-cased", "text8-prefix"]
    assert (own.n, own.error_rate, own.random_runs, own.planted_every) == (8, 1e-8, 1_000_000, None)


def test_the_papers_mean_is_over_the_sets_that_are_here():
    here = [name for name, one in overlap.SETS["small"].items() if "train" in corpus(one).splits]
    assert sorted(here) == sorted(overlap.HERE)
    own, web = (overlap.mean_of(row) for row in printed_rows(overlap.TABLE_6))
    assert own == pytest.approx((0.66 + 7.50 + 2.34) / 3) and web == pytest.approx((1.63 + 6.31 + 3.94) / 3)
    assert overlap.mean_of({"wikitext2_percent": 1.0, "enwik8_percent": 2.0}) is None


def test_no_verdict_hangs_on_what_books_share_with_an_encyclopedia():
    assert "gpt2_2019-overlap" not in {one.id for one in claims()}


def test_the_table_has_the_papers_rows_and_ours(small):
    shown = artifact("gpt2_2019-table6").render("smoke").table
    assert shown["training text"].tolist() == [
        "own training split of the dataset", "WebText train", "each one's own", "gutenberg-pretrain", "each one's own",
        "synthetic-documents"]
    assert shown["WikiText-2"].tolist() == ["0.66", "1.63", *["not run"] * 4]
    config, = experiment("overlap-gpt2").plan("smoke", {"training_set": "own"})
    record = run(config, progress=False)
    shown = artifact("gpt2_2019-table6").render("smoke").table
    assert shown["generated"].tolist()[-2:] == [f"{record.metrics['planted_percent']:.2f}", "not run"]
    assert shown["PTB"].tolist() == ["2.67", "0.88", "not run", "not run", "–", "not run"]
    assert [overlap._written(share) for share in (None, 0.0, 0.004, 0.006)] == ["–", "0.00", "< 0.01", "0.01"]


@pytest.mark.parametrize(("sets", "told"), [
    ({"training_set": "gutenberg"}, "unknown corpus 'gutenberg'"), ({"n": 0}, "n is 0; it must be at least 1"),
    ({"error_rate": 1}, "error_rate is 1; it must be below 1"), ({"error_rate": 0}, "error_rate is 0"),
    ({"planted_every": 1}, "planted_every is 1"), ({"random_runs": 0}, "random_runs is 0")])
def test_what_is_refused(sets, told):
    with pytest.raises(ReproError, match=told):
        experiment("overlap-gpt2").plan("smoke", sets)


def test_no_run_no_percentage(small):
    config, = experiment("overlap-gpt2").plan("smoke", {"training_set": "own", "n": 500, "random_runs": 1})
    with pytest.raises(ReproError, match="no text of synthetic-books has 500 words to count"):
        run(config, progress=False)
