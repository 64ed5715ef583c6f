"""Tables as HTML, read back with a parser: what stands where, what is a number, what is folded away."""

import re

import pytest
from bs4 import BeautifulSoup

from repro import markup


def read_html(text):
    return BeautifulSoup(text, "html.parser")


def read(rows, caption="", id=""):
    import pandas

    return read_html(markup.table(pandas.DataFrame(rows), caption, id))


def texts(row):
    return [cell.get_text() for cell in row.find_all(["th", "td"])]


ROWS = [{"model": "<a>", "paper: test": "29.00", "cost": "1.0", "small: test": "36.93 [36.1, 37.8]",
         "small: module": "not run", "smoke: test": "5.1"},
        {"model": "b", "paper: test": "–", "cost": "2.0", "small: test": "not run", "small: module": "not run",
         "smoke: test": "5.2"}]


def test_columns_of_one_scale_stand_under_one_heading():
    upper, lower = read(ROWS).thead.find_all("tr")
    assert texts(upper) == ["model", "paper", "cost", "small", "smoke"]
    assert [(cell.get("colspan"), cell.get("rowspan")) for cell in upper.find_all("th")] == [
        (None, "2"), ("1", None), (None, "2"), ("2", None), ("1", None)]
    assert texts(lower) == ["test", "test", "module", "test"]


def test_numbers_stand_to_the_right_and_intervals_and_gaps_apart():
    table = read(ROWS)
    first, second = table.tbody.find_all("tr")
    assert [cell.get("class") for cell in first.find_all("td")] == [
        ["number"], ["number"], ["number"], None, ["number", "smoke"]]
    assert first.th["scope"] == "row" and first.th.get_text() == "<a>"
    assert [one.get_text() for one in table.select(".interval")] == ["[36.1, 37.8]"]
    assert [one.get_text() for one in table.select(".absent")] == ["not run", "–", "not run", "not run"]
    assert texts(second) == ["b", "–", "2.0", "not run", "not run", "5.2"]


def test_a_standard_deviation_stands_small_behind_its_number():
    table = read([{"of": of, "SST-2": told} for of, told in (("one", "70.4 ± 0.5"), ("other", "-0.6"), ("none", "–"))])
    assert [cell.get("class") for cell in table.tbody.select("td")] == [["number", "deviates"]] * 3
    assert [cell.get_text() for cell in table.tbody.select("td")] == ["70.4 ± 0.5", "-0.6", "–"]
    assert [one.get_text() for one in table.select(".interval")] == ["± 0.5"]


def test_smoke_is_folded_only_beside_another_scale_of_ours():
    assert len(read(ROWS).select("input[type=checkbox]")) == 1 and len(read(ROWS).select(".smoke")) == 4
    alone = [{name: cell for name, cell in row.items() if "small" not in name} for row in ROWS]
    assert not read(alone).select("input, .smoke")


def test_rows_of_smoke_are_folded_where_a_cell_tells_whose_they_are():
    rows = [{"source": source, "text": "a"} for source in (
        "the paper", "this study, small", "this study, smoke, books", "smoke")]
    assert [row.get("class") for row in read(rows).tbody.find_all("tr")] == [None, None, ["smoke"], None]
    assert not read(rows[:1] + rows[2:]).select("input, .smoke")  # there is no other scale beside it


def test_a_column_is_folded_with_the_rows_of_smoke_where_no_other_row_has_anything_in_it():
    rows = [{"source": source, "MNLI": one, "SICK": other, "nouns": made, "gap": "–"} for source, one, other, made in (
        ("the paper", "82.1", "–", "–"), ("this study, small", "–", "not run", "–"),
        ("this study, smoke", "–", "–", "91.0"))]
    found = read(rows)
    assert [cell.get("class") for cell in found.thead.find_all("th")] == [
        None, ["number"], None, ["number", "smoke"], None]
    assert [cell.get_text() for cell in found.tbody.select("td.smoke")] == ["–", "–", "91.0"]
    assert not read(rows[:1] + rows[2:]).select(".smoke")  # nothing is folded there
    grouped = [{{"nouns": "set: nouns", "MNLI": "set: MNLI"}.get(name, name): cell for name, cell in row.items()}
               for row in rows]
    assert not read(grouped).thead.select(".smoke")  # or a group's heading would stand over too many columns


def test_rows_of_smoke_are_folded_where_a_column_tells_the_scale():
    rows = [{"scale": scale, "value": 1} for scale in ("small", "smoke", "smoke")]
    assert [row.get("class") for row in read(rows).tbody.find_all("tr")] == [None, ["smoke"], ["smoke"]]
    assert not read(rows[1:]).select("input, .smoke")


def test_caption_and_name_and_columns_in_pairs():
    import pandas

    table = read(ROWS, "<b>below</b>", "toy")
    assert table.table["id"] == "toy" and table.figcaption.b.get_text() == "below"
    pairs = pandas.DataFrame([[1, 2, 3]], columns=pandas.MultiIndex.from_tuples([("", "n"), ("a", "x"), ("a", "y")]))
    upper, lower = BeautifulSoup(markup.table(pairs), "html.parser").thead.find_all("tr")
    assert texts(upper) == ["n", "a"] and texts(lower) == ["x", "y"]


@pytest.mark.parametrize(("cells", "is_numeric"), [
    (["1", "2,048", "-3.5%", "+1.2 %", "1.7e-12", "<0.1", "2.1x", "not run", "–"], True),
    (["1.2% [0.9%, 1.5%]"], True), (["–", "not run"], False), (["1 to 16"], False), (["3", "text8"], False),
    ([], False), (["7f3e1"], False), (["0.5 [read as text]", "x"], False),
])
def test_a_column_of_numbers_holds_nothing_else(cells, is_numeric):
    assert markup.numeric(cells) is is_numeric


@pytest.mark.parametrize(("value", "style", "told"), [
    (-0.000049, ".2%", "0.00%"), (0.000049, ".2%", "0.00%"), (-0.00006, ".2%", "-0.01%"), (0.0, ".1%", "0.0%"),
    (0.0123, ".1%", "+1.2%"), (-1.0, ".1%", "-100.0%"), (-0.004, ".0%", "0%"), (-0.0004, ".3f", "0.000"),
    (0.25, ".3f", "+0.250"),
])
def test_what_rounds_to_nothing_has_no_sign(value, style, told):
    assert markup.signed(value, style) == told


def test_an_interval_stands_behind_its_number():
    assert markup.bounded(-0.012, -0.02, 0.0004, "+.1%") == "-1.2% [-2.0%, 0.0%]"
    assert markup.bounded(1764.2, 1700.0, 1800.5, ",.0f") == "1,764 [1,700, 1,800]"


def test_no_frame_is_cut_out_by_a_shape_of_another():
    """Browsers show nothing of what is cut out by a shape that is hidden, as those of all other frames are."""
    svg = ('<svg role="img" aria-label="W"><g clip-path="url(#p1)">{}</g><use xlink:href="#p1"/>'
           '<clipPath id="p1"/></svg>')
    found = read_html(markup.figure(svg.format(0), "What.", {str(k): svg.format(k) for k in (1, 2)})).find_all("svg")
    names = [one.find("clippath")["id"] for one in found]
    assert len(set(names)) == 3
    for one, name in zip(found, names, strict=True):
        assert one.g["clip-path"] == f"url(#{name})" and one.use["xlink:href"] == f"#{name}"


def test_frames_stand_in_turn_where_the_picture_stood():
    svg = '<svg role="img" aria-label="What it shows." width="1pt"></svg>'
    steps = dict.fromkeys(("before", "layer 1", "layer 2"), svg)
    plain, moving = markup.figure(svg, "What."), markup.figure(svg, "What.", steps)
    assert "moving" not in plain and plain.count("<svg") == 1
    assert moving.count("<svg") == 4 and moving.count('aria-label="What it shows."') == 1
    assert moving.index('aria-label="What it shows."') < moving.index('<div class="moving" aria-hidden="true">')
    turns = [float(one) for one in re.findall(r"animation-delay: (-[\d.]+)s", moving)]
    period = float(re.search(r"turn-of-3 ([\d.]+)s", moving)[1])
    assert "33.3333% { visibility: hidden }" in moving
    for turn in range(3):  # one is seen at a time, in order
        moment = (turn + 0.5) * markup.FRAME
        assert [k for k, delay in enumerate(turns) if (moment - delay) % period < period / 3] == [turn]
    words = [one.text.strip() for one in read_html(moving).select(".steps > label")]
    assert words == ["All", "Play", "before", "layer 1", "layer 2"] and moving.count(" checked>") == 1


@pytest.mark.parametrize(("cell", "data"), [
    ("12", 12), ("1,234", 1234), ("−0.50", -0.5), ("1.8e+08", 1.8e8), ("", None), ("–", None), ("not run", "not run"),
    ("18.54 [18.10, 19.00]", {"value": 18.54, "low": 18.1, "high": 19.0}),
    ("3.0 ± 0.2", {"value": 3.0, "deviation": 0.2}),
    ("+1.2%", {"value": 1.2, "unit": "%"}), ("2.1x", {"value": 2.1, "unit": "x"}), ("<0.01", "<0.01"),
    ("12 x 3", "12 x 3"),
])
def test_a_cell_as_data(cell, data):
    found = markup.as_data(cell)
    assert found == data and type(found) is type(data)


@pytest.mark.parametrize(("ends", "shown"), [
    ((97.5, 93.2, 101.8), "97.5 [93.2, 100.0]"), ((4.7, -0.4, 9.8), "4.7 [0.0, 9.8]"),
    ((50, 0, 100), "50.0 [0.0, 100.0]"), ((50, 0.1, 99.9), "50.0 [0.1, 99.9]")])
def test_the_interval_of_a_score_ends_at_0_and_100(ends, shown):
    assert markup.percentage(*ends) == shown
