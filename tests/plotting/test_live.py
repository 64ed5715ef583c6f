"""The live curve: what it collects, when it draws, and the one output it leaves in a notebook."""

import nbformat
import pytest

from repro.plotting import LiveCurve, live


class Shown:
    """A stand-in for a notebook's output area."""

    def __init__(self):
        self.figures = []

    def display(self, figure, display_id):
        self.figures.append(figure)
        return self

    def update(self, figure):
        self.figures.append(figure)


@pytest.fixture
def notebook(monkeypatch):
    import IPython.display

    shown = Shown()
    monkeypatch.setattr(live, "in_notebook", lambda: True)
    monkeypatch.setattr(IPython.display, "display", shown.display)
    monkeypatch.delenv("PYTEST_VERSION", raising=False)
    return shown


def train(curve, steps=6):
    line = curve.line("recurrent")
    for step in range(steps):
        line.advance(100, loss=float(step))


def test_points_are_means_over_steps():
    with LiveCurve(every=2) as curve:
        train(curve)
    assert curve.curves == {"recurrent": [[200, 0.5], [400, 2.5], [600, 4.5]]}
    assert list(curve.figure.axes[0].lines[0].get_ydata()) == [0.5, 2.5, 4.5]


def test_outside_a_notebook_nothing_is_shown(capsys):
    with LiveCurve(every=1) as curve:
        train(curve)
    assert capsys.readouterr() == ("", "")


def test_it_draws_while_training_and_once_more_at_the_end(notebook):
    with LiveCurve(every=2, refresh=0) as curve:
        train(curve)
    assert len(notebook.figures) == 4
    assert len(notebook.figures[-1].axes[0].lines[0].get_ydata()) == 3


@pytest.mark.parametrize("name", ["REPRO_QUIET", "PYTEST_VERSION"])
def test_when_quiet_only_the_finished_figure_is_shown(notebook, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    with LiveCurve(every=2, refresh=0) as curve:
        train(curve)
    assert len(notebook.figures) == 1


def test_a_training_that_fails_leaves_the_curve_so_far(notebook):
    curve = LiveCurve(every=1, refresh=60)
    with pytest.raises(TypeError), curve:
        curve.line("loss").advance(100, loss="diverged")
    assert len(notebook.figures) == 1


def test_a_notebook_stores_one_figure(monkeypatch):
    from nbclient import NotebookClient

    monkeypatch.delenv("PYTEST_VERSION", raising=False)
    source = ("from repro.plotting import LiveCurve\nwith LiveCurve(every=1, refresh=0) as curve:\n"
              "    line = curve.line('loss')\n    for step in range(4):\n        line.advance(1, loss=4.0 - step)")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(book, kernel_name="python3").execute()
    outputs = book.cells[0].outputs
    assert [output.output_type for output in outputs] == ["display_data"]
    assert outputs[0].data["text/plain"].endswith("loss.")


def test_the_caption_says_what_to_see_and_names_curves_and_bounds():
    with LiveCurve(bounds={"best possible": 2.0}, every=1, look_for="Look at the gap.") as one:
        one.line("model").advance(8, loss=2.5)
    assert one.figure.alt == "Look at the gap. Nats per token against tokens: model, best possible."
