"""The values that figures keep, which the book offers as CSV, are those that they draw."""

import csv
import doctest
import html
import inspect
import json
import re
from itertools import chain
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

import repro.plotting as plotting
from repro.errors import ReproError
from repro.markup import as_csv, figure
from repro.plotting import draw_bars, draw_curves, draw_effects, draw_growth, draw_patterns, draw_table_curves
from repro.study import artifact
from repro.study.published import printed_rows

ROOT = Path(__file__).parents[2]
DIAGRAMS = {"draw_images", "draw_inputs", "draw_insertion", "draw_memory_compressed", "draw_prompts", "draw_recurrence",
            "draw_spectrograms", "draw_windows"}  # mechanisms and pixels show no values; WITHOUT: their captions
WITHOUT = re.compile(r"Images\. |Spectrograms: |How an example of .* is read|Windows of \d+ tokens over|The prompts "
                     r"of|Who sees whom in the two kinds|Block \d+ gets one more|\d+ windows of \d+ tokens;")


def example(name):
    """The figure of a function's own example."""
    *before, last = doctest.DocTestParser().get_examples(inspect.getdoc(getattr(plotting, name)))
    scope = vars(plotting) | {"torch": torch, "np": np, "pandas": pandas}
    for one in before:
        exec(one.source, scope)
    return eval(re.sub(r"^print\(|\.alt\b.*$", "", last.source.strip()), scope)


@pytest.mark.parametrize("name", [name for name in plotting.__all__ if name.startswith("draw_")])
def test_every_figure_but_a_diagram_keeps_its_values(name):
    drawn = example(name)
    assert bool(drawn.values) == (name not in DIAGRAMS)
    assert bool(WITHOUT.search(drawn.look_for("See it.").alt)) == (name in DIAGRAMS)


def numbers(drawn):
    """Every coordinate of the lines, marks and bars of a figure, to six digits."""
    for axis in drawn.axes:
        for line in axis.lines:
            yield from map("{:.6g}".format, chain.from_iterable(np.asarray(line.get_xydata(), float)))
        for marks in axis.collections:
            yield from map("{:.6g}".format, np.asarray(marks.get_offsets(), float).ravel())
        for bar in axis.patches:
            yield from map("{:.6g}".format, (bar.get_width(), bar.get_height()))


@pytest.mark.parametrize("name", [
    "draw_bars", "draw_cost_and_quality", "draw_cost_front", "draw_curves", "draw_effects", "draw_growth",
    "draw_layer_weights", "draw_memory", "draw_quality_and_cost"])
def test_the_values_are_coordinates_of_what_is_drawn(name):
    drawn = example(name)
    measure = list(drawn.values[0])[-1 if "low" not in drawn.values[0] else -3]
    values = [f"{row[measure]:.6g}" for row in drawn.values]
    assert values and set(values) <= set(numbers(drawn))


def test_curves_bars_and_growth_keep_each_point_and_bound():
    drawn = draw_curves({"a": [[0, 5.0], [9, 3.5]]}, ("steps", "nats"), {"best": 2.0})
    assert drawn.values == [{"line": "a", "steps": 0, "nats": 5.0}, {"line": "a", "steps": 9, "nats": 3.5},
                            {"line": "best", "steps": None, "nats": 2.0}]
    assert draw_bars({"a": 1.5, "b": 2.5}, "right (%)", bounds={"guess": 2}).values == [
        {"name": "a", "right (%)": 1.5}, {"name": "b", "right (%)": 2.5}, {"name": "guess", "right (%)": 2}]
    assert draw_growth({"pairs": {"full": [[8, 64]], "none": []}}, "n").values == [
        {"panel": "pairs", "line": "full", "n": 8, "value": 64}]
    assert [row["run"] for row in draw_effects({"p": {"s": {"small": [4, 6]}}}, "points").values] == [1, 2]


def test_points_without_a_number_are_neither_drawn_nor_kept():
    frame = pandas.DataFrame({"source": "small", "model": "baseline", "overlap": [0, 5], "low": [3, 4],
                              "perplexity": ["3.5", "not run"], "high": [4, 5], "other": 7})
    assert draw_table_curves(frame).values == [{"source": "small", "line": "baseline", "overlap (tokens)": 0,
                                                "perplexity per word": 3.5, "low": 3, "high": 4}]


def test_a_pattern_keeps_the_keys_of_each_query():
    from repro.attention import SlidingWindow, Strided

    both = draw_patterns({"window": SlidingWindow(2), "strided": Strided(2).heads}, n=4).values
    assert [row["keys"] for row in both[:4]] == ["0", "0 1", "1 2", "2 3"]
    assert both[7] == {"pattern": "strided", "query": 3, "keys": "2 3", "keys added by the second": "1"}


def test_weights_keep_three_digits_and_leave_zeros_empty():
    found = plotting.draw_weights({"head": torch.tensor([[1.0, 0.0], [0.12345, 0.0004]])})
    assert found.values == [{"panel": "head", "query": 0, "key 0": 1.0, "key 1": None},
                            {"panel": "head", "query": 1, "key 0": 0.123, "key 1": None}]
    assert as_csv(found.values) == "panel,query,key 0,key 1\nhead,0,1,\nhead,1,0.123,\n"


def test_a_csv_has_all_columns_whole_numbers_and_six_digits_of_others():
    rows = [{"a": 1 / 3, "b": "x, y"}, {"a": float("nan"), "c": 2.0},
            {"a": np.float32(0.5), "b": True, "c": 12_345_678}, {"a": 87_654_321.0, "c": 12_345_678.5}]
    assert as_csv(rows) == 'a,b,c\n0.333333,"x, y",\n,,2\n0.5,True,12345678\n87654321,,1.23457e+07\n'


def test_a_page_carries_the_values_out_of_sight():
    shown = figure("<svg></svg>", "What.", values=[{"line": 'a "b" <c>', "y": 1}])
    (kept,) = re.findall('<figure class="drawing" data-csv="([^"<>]*)">', shown)
    assert html.unescape(kept) == 'line,y\n"a ""b"" <c>",1\n'
    assert "data-csv" not in figure("<svg></svg>", "What.")


def test_the_values_of_two_figures_are_those_of_records_and_of_the_paper():
    rows = list(csv.DictReader(artifact("sparse2019-cost-figure").render("small").as_csv().splitlines()))
    records = [json.loads(file.read_text()) for file in (ROOT / "results/small/factorised-cost").glob("*.json")]
    wanted = {("allowed pairs", one["config"]["pattern"], n, pairs) for one in records for n, pairs in
              one["curves"]["pairs"]}
    assert len(wanted) == 12 and wanted == {(row["panel"], row["line"], int(row["positions N"]), float(row["value"]))
                                            for row in rows if row["panel"] == "allowed pairs"}

    rows = list(csv.DictReader(artifact("liu2018-figure3").render("small").as_csv().splitlines()))
    (loss,) = (one["metrics"]["test_log_perplexity"] for one in map(json.loads, (
        file.read_text() for file in (ROOT / "results/small/summarise").glob("*.json")))
        if [one["config"][key] for key in ("corpus", "model", "length")] == ["scisummnet-subset", "t-d", 500])
    assert [row["nats per token of the lead"] for row in rows if row["source"] == "small" and row["line"] == "T-D"
            and row["input tokens L"] == "500"] == [f"{loss:.6g}"]
    paper = {row["test_log_perplexity_per_wordpiece"] for row in printed_rows("liu2018_figure3_logperplexity_vs_L")}
    assert {row["nats per token of the lead"] for row in rows if row["source"] == "paper"} <= {
        f"{float(one):g}" for one in paper if one}


def test_a_figure_without_records_has_no_values_to_save(tmp_path):
    with pytest.raises(ReproError, match="sparse2019-cost-figure has no values to save"):
        artifact("sparse2019-cost-figure").render("small", results=tmp_path).as_csv()
    assert artifact("sparse2019-cost").render("small").as_csv().count("\n") > 3  # a table is its cells


def stored():
    """(chapter, figures of its stored outputs as HTML) of every chapter."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        outputs = [output for cell in json.loads(path.read_text())["cells"] for output in cell.get("outputs", [])]
        pages = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
        yield path.stem, [one for page in pages for one in re.findall(
            '<figure class="drawing".*?</figure>', page, re.DOTALL)]


@pytest.mark.parametrize(("chapter", "figures"), list(stored()), ids=lambda one: one if isinstance(one, str) else "")
def test_every_figure_of_a_chapter_has_its_values(chapter, figures):
    without = [label for one in figures if "data-csv=" not in one.partition(">")[0] for label in re.findall(
        'aria-label="([^"]*)"', one)[-1:] if not WITHOUT.search(html.unescape(label)) and "not run" not in label]
    assert not without, f"{chapter}: {without}"
