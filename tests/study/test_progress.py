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
    bar.advance(30, loss=4.0)
    bar.advance(10, loss=3.14159)
    text = "\n".join(str(column.render(bars.display.tasks[0])) for column in bars.display.columns[::2])
    assert "training" in text
    assert bars.display.tasks[0].percentage == 40
    assert bars.display.tasks[0].fields["info"].endswith(" tokens/s · loss 3.142")
    bar.close()
    assert bars.display.tasks == []
    bars.display.stop()


def test_what_an_earlier_run_did_is_done_but_not_speed(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    bar = progress.Progress()(1000, "training", "tokens")
    clock[0] = 10.0  # loading
    bar.advance(900)
    clock[0] = 80.0
    bar.advance(70, loss=2.5)
    assert bar.done == 970
    assert capsys.readouterr().err == "training 97%, 30 s left · 1 tokens/s · loss 2.5\n"


def test_one_step_alone_has_no_speed(monkeypatch, capsys):
    monkeypatch.setattr(progress._Log, "every", -1.0)
    progress.Progress()(10, "training", "tokens").advance(5)
    assert capsys.readouterr().err == "training 50%\n"


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
    assert shown[0] == "training 40% · loss 3.142"
    assert shown[-1] == ""
