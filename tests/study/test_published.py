"""The papers' numbers, digit by digit."""

import csv
from importlib.resources import files

import pytest

from repro.errors import ReproError
from repro.study import published
from repro.study.published import published_names


def test_all_files_are_there_with_all_their_rows():
    assert len(published_names()) >= 52  # more with another paper
    assert sum(len(published(name)) for name in published_names()) >= 513


def test_every_cell_is_the_text_of_the_file():
    differing = []
    for name in published_names():
        with (files("repro.study.published") / f"{name}.csv").open(newline="") as file:
            header, *rows = csv.reader(file)
        table = published(name)
        if list(table.columns) != header or table.values.tolist() != rows:
            differing.append(name)
    assert not differing


def test_cells_are_texts_with_the_digits_as_printed():
    table = published("yoshida2020_table1_wikitext103")
    assert list(table["validation_perplexity_per_word"]) == [
        "29.00", "27.99", "27.58", "26.72", "26.17", "27.70", "26.88", "26.51", "25.90", "25.53"]
    assert list(table["test_perplexity_per_word"]) == [
        "30.47", "29.36", "28.88", "27.96", "27.31", "29.01", "28.12", "27.77", "27.12", "26.73"]
    assert list(table["flops_per_token_1e8"]) == 2 * ["1.75", "1.78", "1.81", "1.94", "2.10"]
    assert list(table["train_windows_per_sequence"]) == 5 * [""] + 5 * ["20"]
    assert set(table["confidence"]) == {"exact"}


def test_values_that_are_not_printed_are_empty():
    table = published("yoshida2020_figure4_window_size")
    assert (table["confidence"] == "not printed").sum() == 8


def test_unknown_tables_suggest_the_nearest():
    with pytest.raises(ReproError, match="Did you mean 'yoshida2020_table2_pg19'"):
        published("yoshida2020_table2_pg")
