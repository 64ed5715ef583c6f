"""Progress bars: rich in a terminal, one passing line in a notebook, silent anywhere else."""

import io

import IPython.display
import pytest

from repro.study import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def work():
    with progress.Progress() as bars, bars(100, "training", "tokens") as bar:
        bar.advance(40, loss=3.14159)
        bar.advance(60, loss=2.0)
        return bar.done


def test_silent_when_nobody_looks(capsys):
    assert work() == 100
    with progress.Progress(show=False) as bars:
        bars(10, "x").advance(10)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setattr("sys.stderr", Terminal())
    bars = progress.Progress()
    bar = bars(100, "training", "tokens")
    bar.advance(40, loss=3.14159)
    text = "\n".join(str(column.render(bars.display.tasks[0])) for column in bars.display.columns[::2])
    assert "training" in text
    assert bars.display.tasks[0].percentage == 40
    assert bars.display.tasks[0].fields["info"].endswith(" tokens/s · loss 3.142")
    bar.close()
    assert bars.display.tasks == []
    bars.display.stop()


@pytest.mark.parametrize("rank", ["1", "7"])
def test_only_the_first_process_shows_bars(monkeypatch, rank):
    monkeypatch.setattr("sys.stderr", Terminal())
    assert progress.Progress().display is not None
    monkeypatch.setenv("RANK", rank)
    assert progress.Progress().display is None


def test_a_notebook_keeps_no_trace(monkeypatch):
    shown = []

    class Handle:
        def update(self, line):
            shown.append(str(line))

    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(IPython.display, "display", lambda line, display_id: Handle())
    assert work() == 100
    assert shown[0].startswith("training 40%, ")
    assert shown[-1] == ""
