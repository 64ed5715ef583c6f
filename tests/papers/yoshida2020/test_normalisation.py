"""Which texts use typographic marks, counted by hand, and what a result is without them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from repro.data import Document, Reader, registry
from repro.errors import ReproError
from repro.papers.yoshida2020.normalisation import experiment as normalisation
from repro.papers.yoshida2020.normalisation.experiment import EXPERIMENT, change_without, execute, uses
from repro.study import artifact
from repro.study.progress import Progress

PLAIN, MARKED = "a word " * 500, "“a” word " * 4  # 8 words with 8 marks
BOOKS = {"train": [("1", PLAIN), ("2", PLAIN + "— — — — —")], "validation": [("3", PLAIN + "— — — — — …")],
         "test": [("860", MARKED), ("4", PLAIN), ("5", "it’s naïve")]}


@pytest.fixture
def counted(monkeypatch):
    """What the run leaves on these books."""
    read = Reader(Document, lambda _, split: (Document(*book) for book in BOOKS[split]))
    monkeypatch.setitem(registry._BY_NAME, "pg19-subset", replace(registry.corpus("pg19-subset"), read=read))
    config = next(run for run in EXPERIMENT.plan("small") if run.corpus == "pg19-subset")
    return execute(config, SimpleNamespace(progress=Progress(False)))


def test_marks_are_counted_by_book(counted):
    told = counted.metrics
    assert [told[f"{split}_documents"] for split in BOOKS] == [2, 1, 3]
    assert [told[f"{split}_marked"] for split in BOOKS] == [0, 1, 2]  # 5 in 1,005 words are not more than 5 in 1,000
    assert told["validation_marks"] == pytest.approx(1000 * 6 / 1006)
    assert told["test_marked_words"] == pytest.approx(10 / 1010)
    assert all(told[f"{split}_marks_after"] == 0 for split in BOOKS)
    assert counted.documents["test"] == {"marks": [8, 0, 1], "n_words": [8, 1000, 2]}
    assert counted.notes["marked"] == {"train": {}, "validation": {"3": pytest.approx(5.964, abs=1e-3)},
                                       "test": {"860": 1000, "5": 500}}
    assert set(counted.units) == set(told)


def test_an_unknown_character_ends_the_run_in_one_line(monkeypatch, counted):
    monkeypatch.setitem(BOOKS, "test", [("861", "a ⸺ b")])
    config = next(run for run in EXPERIMENT.plan("small") if run.corpus == "pg19-subset")
    with pytest.raises(ReproError, match="^corpus pg19-subset, test, document 861 has U.2E3A .* at character 2"):
        execute(config, SimpleNamespace(progress=Progress(False)))


def test_the_bound_is_not_met_by_as_many():
    assert not uses(5, 1000) and uses(6, 1000) and not uses(0, 0)


def test_the_change_is_that_of_the_books_that_are_left(monkeypatch):
    def record(nll):
        return SimpleNamespace(documents={"test": {"nll": nll, "n_words": [8, 10, 30]}})

    runs = {"baseline": [record([80, 20, 60])], "recurrent": [record([96, 19, 57]), record([96, 21, 55])]}
    marks = SimpleNamespace(documents={"test": {"marks": [8, 0, 0], "n_words": [8, 10, 30]}})
    store = SimpleNamespace(get=lambda run: marks, seeds=lambda run: runs[run.model])
    monkeypatch.setattr(normalisation, "Store", SimpleNamespace(for_scale=lambda scale: store))
    assert change_without().value == pytest.approx(2.718281828 ** (76 / 40 - 80 / 40) - 1)
    assert change_without(left_out=False).value == pytest.approx(2.718281828 ** (172 / 48 - 160 / 48) - 1)
    runs["recurrent"] = []
    assert change_without().value is None
    assert "repro run recurrence-pg19" in change_without().command
    store.get = lambda run: None
    assert change_without().command == "repro run text-normalisation --scale small --set corpus=pg19-subset"


def test_the_table_renders_without_records(tmp_path):
    rows = artifact("text-normalisation").render("small", results=tmp_path).table
    assert rows["corpus"].tolist() == ["pg19-subset", "gutenberg-pretrain", "wikitext-103"]
    assert rows["documents"].tolist() == 3 * ["not run"]


def test_the_committed_records_name_the_books():
    """As counted beforehand, with another program."""
    rows = artifact("text-normalisation").render("small").table.set_index(["corpus", "split"])
    assert rows.loc[("pg19-subset", "test"), ["documents", "use such marks", "share of the words"]].tolist() == [
        "33", "9", "39.8%"]
    assert rows.loc[("pg19-subset", "test"), "most in one text"] == "100 (860)"
    assert rows.loc[("pg19-subset", "validation"), "most in one text"] == "18 (1022)"
    trained = [rows.loc[key] for key in (("pg19-subset", "train"), ("gutenberg-pretrain", "train"),
                                         ("gutenberg-pretrain", "validation"))]
    assert [row["use such marks"] for row in trained] == 3 * ["0"]
    assert sum(int(row["documents"]) for row in trained) == 646
    assert set(rows["as read"]) == {"0.00"}
