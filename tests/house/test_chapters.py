"""What holds for every chapter, whoever writes it."""

import ast
import json
import re
from pathlib import Path
from statistics import median

import pytest
import toc

from repro.errors import ReproError
from repro.study import SCALES, artifact

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))
each = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


# A chapter that begins in short follows the lesson template.
LESSONS = [path for path in CHAPTERS if '"in-short"' in path.read_text()]
OVERVIEWS = {"22_scoreboard", "23_explorer"}  # show all papers at once and teach none
lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
LADDER = ["In short", "What it means", "What the paper says", "The idea on a small tensor", "The naive version",
          "The code that runs", "Both agree", "(Trained|Computed) live", "The paper's .* (and|beside) ours",
          "Claims and verdicts", "What did not work", "Exercises"]


def code(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def tags(cell: dict) -> list[str]:
    return cell["metadata"].get("tags", [])


def lines(cell: dict) -> list[str]:
    return [line for line in "".join(cell["source"]).splitlines() if line.strip()]


def test_the_table_of_contents_has_every_chapter_and_page_once():
    contents = toc.contents()
    listed = [entry["file"] for part in contents["parts"] for entry in part["chapters"]] + [contents["root"]]
    pages = [path.stem for path in (ROOT / "book").glob("*.md")]
    assert sorted(listed) == sorted(pages + [f"notebooks/{path.stem}" for path in CHAPTERS])


@each
def test_parameters_come_first_and_each_says_what_it_may_be(path):
    first = next(cell for cell in code(path) if "in-short" not in tags(cell))
    assert "parameters" in tags(first)
    source = "".join(first["source"])
    assert source.startswith('scale = "smoke"')
    for node in ast.parse(source).body:
        assert isinstance(node, ast.Assign), f"only names and values: {ast.unparse(node)}"
        assert "#" in source.splitlines()[node.end_lineno - 1], f"no unit or range: {ast.unparse(node)}"


@each
def test_the_first_cell_refuses_numbers_that_no_parameter_can_be(path):
    cells = [cell for cell in code(path) if "in-short" not in tags(cell)]
    (parameters, first), names = ("".join(cell["source"]) for cell in cells[:2]), {}
    exec(parameters, names)
    for name, value in names.items():
        if isinstance(value, (int, float)) or isinstance(value, (list, tuple)) and isinstance(value[0], (int, float)):
            for bad in (-1e308, float("nan"), None, "x"):
                with pytest.raises(ReproError):
                    exec(first, names | {name: bad})


@pytest.mark.parametrize("chapter, name, values", [
    ("01", "contexts", [[1], [2, 0], [1, 1]]), ("05", "lengths", [[1, 2, 3], [4, 8], [8, 3]]),
    ("08", "window", [15]), ("08", "windows_back", [16]), ("11", "merges", [15]), ("12", "vocabulary", [399, 1_301]),
    ("12", "sizes", [[(1, 15)], [(0, 16)]]), ("14", "width", [5]), ("16", "window", [2, 7]),
    ("16", "lengths", [[16], [100], [256, 257]]), ("17", "dilation", [[1], [1] * 5]),
    ("18", "longer", [16, 100, 4_096]), ("18", "window", [7]), ("19", "window", [7, 80]), ("20", "window", [7, 192]),
    ("21", "window", [7]),
])
def test_the_first_cell_refuses_values_that_a_later_cell_cannot_use(chapter, name, values):
    (path,) = (path for path in CHAPTERS if path.stem.startswith(chapter))
    cells = [cell for cell in code(path) if "in-short" not in tags(cell)]
    (parameters, first), names = ("".join(cell["source"]) for cell in cells[:2]), {}
    exec(parameters, names)
    exec(first, dict(names))
    for bad in values:
        with pytest.raises(ReproError):
            exec(first, names | {name: bad})


def test_long_windows_leave_fewer_passages_to_continue():
    (path,) = (path for path in CHAPTERS if path.stem.startswith("08"))
    cells = [cell for cell in code(path) if "in-short" not in tags(cell)]
    (parameters, first), names = ("".join(cell["source"]) for cell in cells[:2]), {}
    exec(parameters, names)
    widest = names | {"window": 128, "continuation": 128, "n_contexts": 108, "windows_back": 3}
    exec(first, dict(widest))
    for bad in ({"n_contexts": 109}, {"windows_back": 4}):
        with pytest.raises(ReproError):
            exec(first, widest | bad)


@lesson
def test_every_scale_that_the_parameters_name_can_be_shown(path):
    """An artifact refuses a scale that its experiments lack."""
    cells = [cell for cell in code(path) if "in-short" not in tags(cell)]
    named = re.findall(r"\w+", lines(cells[0])[0].split("#")[1].partition(":")[0])
    for call in (node for cell in cells if not lines(cell)[0].startswith("%")
                 for node in ast.walk(ast.parse("".join(cell["source"]))) if isinstance(node, ast.Call)):
        match call:
            case ast.Call(ast.Attribute(ast.Call(ast.Name("artifact"), [ast.Constant(id)]), "render"),
                          [ast.Name("scale"), *_]):
                assert set(named) & set(SCALES) <= set(artifact(id).scales), id


@each
def test_the_title_begins_with_the_number_of_the_file(path):
    first = "".join(json.loads(path.read_text())["cells"][0]["source"])
    assert first.startswith(f"# {int(path.stem[:2])} · ")


@each
def test_cells_are_short(path):
    lengths = [len(lines(cell)) for cell in code(path)]
    assert max(lengths) <= 15
    assert median(lengths) <= 6


@each
def test_stored_outputs_are_whole_and_plain(path):
    notebook = json.loads(path.read_text())
    assert not {"papermill", "widgets"} & set(notebook["metadata"])
    for cell in code(path):
        assert cell["execution_count"], f"not executed: {lines(cell)[0]}"
        assert "error" not in [output["output_type"] for output in cell["outputs"]]
        assert "injected-parameters" not in tags(cell)


@each
def test_outputs_that_are_compared_are_marked_by_a_tag(path):
    """Not by nbval's comment, which the reader would see."""
    for cell in code(path):
        assert "NBVAL" not in "".join(cell["source"])
        assert "nbval-check-output" not in tags(cell) or cell["outputs"]


def test_every_chapter_but_the_overviews_is_a_lesson():
    assert {path.stem for path in LESSONS} == {path.stem for path in CHAPTERS} - OVERVIEWS


@lesson
def test_a_lesson_begins_in_short_before_its_parameters(path):
    """The cell shows committed records, so it comes before there is a scale."""
    first, second = code(path)[:2]
    assert tags(first) == ["in-short", "hide-input"]
    assert tags(second) == ["parameters"]
    tree = ast.parse("".join(first["source"]))
    assert "scale" not in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    shown = tree.body[-1].value
    assert shown.func.id == "in_short" and shown.args[0].value == path.stem


@lesson
def test_a_lesson_climbs_the_ladder(path):
    headings = [line[3:] for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "markdown"
                for line in "".join(cell["source"]).splitlines() if line.startswith("## ")]
    found = [heading for heading in headings if any(re.fullmatch(step, heading) for step in LADDER)]
    assert len(found) == len(LADDER), f"of {LADDER} there are {found}"
    assert all(map(re.fullmatch, LADDER, found)), f"in another order: {found}"


@lesson
def test_a_lesson_ends_with_three_exercises_and_their_folded_solutions(path):
    cells = json.loads(path.read_text())["cells"]
    asked = [at for at, cell in enumerate(cells) if "".join(cell["source"]).startswith("### Exercise ")]
    assert len(asked) == 3
    for at, end in zip(asked, [*asked[1:], len(cells)], strict=True):
        solution = [cell for cell in cells[at:end] if cell["cell_type"] == "code"]
        assert solution and all("hide-cell" in tags(cell) for cell in solution)
        assert "assert" in "".join("".join(cell["source"]) for cell in solution), "nothing holds the solution"


@lesson
def test_cells_of_a_lesson_are_narrow_and_plain(path):
    for cell in code(path):
        source = "".join(cell["source"])
        assert max(map(len, source.splitlines())) <= 80, source
        assert not nested(source), source


@lesson
def test_no_output_of_a_lesson_is_a_repr(path):
    for cell in code(path):
        for output in cell["outputs"]:
            assert set(output.get("data", ["no data"])) != {"text/plain"}, f"print it: {lines(cell)[-1]}"
            assert " at 0x" not in json.dumps(output), lines(cell)[-1]


def uncaptioned(source: str) -> list[str]:
    """The drawings of a cell whose caption does not say what to see: calls of draw_... without `look_for`, but those
    that `in_short` gives a caption of its own."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    said = [node.func.value for node in calls if isinstance(node.func, ast.Attribute) and node.func.attr == "look_for"]
    said += [argument for node in calls if getattr(node.func, "id", "") == "in_short" and (
        len(node.args) > 4 or any(one.arg == "caption" for one in node.keywords)) for argument in node.args]
    return [node.func.id for node in calls if getattr(node.func, "id", "").startswith("draw_") and node not in said] + [
        "LiveCurve" for node in calls if getattr(node.func, "id", "") == "LiveCurve"
        and not any(one.arg == "look_for" for one in node.keywords)]


@each
def test_every_drawing_has_a_caption_that_says_what_to_see(path):
    """A drawing knows its axes and values alone, so the chapter adds a sentence."""
    assert [name for cell in code(path) if not "".join(cell["source"]).startswith("%")
            for name in uncaptioned("".join(cell["source"]))] == []


def test_what_counts_as_a_caption():
    assert uncaptioned('draw_bars(a, "b")\ndraw_bars(a, "b").look_for("c")') == ["draw_bars"]
    assert uncaptioned('in_short("01", "?", "!", draw_a(1), "See.")\nin_short("01", "?", "!", draw_b(1))') == ["draw_b"]
    assert uncaptioned('LiveCurve(look_for="Falls.")\nLiveCurve(every=2)') == ["LiveCurve"]


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def nested(source: str) -> bool:
    """Whether a comprehension stands in another, or has two loops."""
    outer = [node for node in ast.walk(ast.parse(source)) if isinstance(node, COMPREHENSIONS)]
    return any(len(node.generators) > 1 or isinstance(inner, COMPREHENSIONS) and inner is not node
               for node in outer for inner in ast.walk(node))


def test_what_counts_as_nested():
    plain = ["[a for a in b]", "[f(a) for a in b] + [a for a in c]"]
    within = ["[a for b in c for a in b]", "[[a for a in b] for b in c]", "{a: sum(x for x in b) for a, b in c}",
              "[a for a in [b for b in c]]"]
    assert [source for source in plain + within if nested(source)] == within


@each
def test_outputs_are_for_readers(path):
    """No name of a class, tuple or bare float, no number with a sign on nothing, no cut text, no picture in pixels."""
    for cell in code(path):
        for output in cell["outputs"]:
            data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
            told, where = "".join(output.get("text", "")), lines(cell)[-1]
            assert set(data) != {"text/plain"}, f"a bare value, not told by print or set as a table: {where}"
            assert "image/png" not in data, f"a picture without words: {where}"
            assert not re.search(r"<[\w.]+ at 0x|\.\.\.</t[dh]>", data.get("text/html", told)), where
            assert not re.search(r"[+-]0\.0+ ?%", data.get("text/html", told)), where


@each
def test_stored_outputs_are_of_runs_that_are_here(path):
    """What `python book/execute.py` stores without the runs of smoke, or before a record had another id."""
    text = path.read_text()
    assert "smoke: all not run" not in text, "run `make runs` first, then execute the chapter again"
    named = set(re.findall(r"results/(?:small|medium|paper)/[a-z0-9-]+/[0-9a-f]{16}\.json", text))
    assert [one for one in sorted(named) if not (ROOT / one).exists()] == []
    if path.stem == "22_scoreboard":
        assert named and "machinery works" in text
