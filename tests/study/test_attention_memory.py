"""The memory of attention at tiny sizes, its claims, and what is shown when nothing was run."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import repro.data
from repro.attention import SlidingWindow
from repro.errors import ReproError
from repro.study import artifact, experiment
from repro.study.catalog.longformer_attention import execute, judge_chunks, judge_growth
from repro.study.progress import Progress

W, SHORT, LONG = 8, 64, 128
TINY = {"window": W, "lengths": [(SHORT, LONG)], "n_head": 2, "head_size": 4}


@pytest.fixture
def outcome(monkeypatch):
    """What a tiny run leaves, on a text of 512 tokens."""
    text = SimpleNamespace(ids=np.arange(512, dtype=np.int32) % 11)
    monkeypatch.setattr(repro.data, "tokeniser", lambda *args, **kwargs: None)
    monkeypatch.setattr(repro.data, "tokens", lambda *args: text)

    def run(implementation, **sets):
        config, = experiment("attention-memory").plan("smoke", TINY | sets | {"implementation": implementation})
        return execute(config, SimpleNamespace(progress=Progress(False), folder=Path()))

    return run


@pytest.mark.parametrize("name", ["full", "kernel", "chunks", "loop", "blocked"])
def test_every_implementation_computes_attention_and_counts_the_same_twice(outcome, name):
    found = outcome(name)
    assert found.metrics["difference"] < 1e-5
    assert [n for n, _ in found.curves["peak"]] == [n for n, _ in found.curves["scores"]] == [SHORT, LONG]
    assert found.metrics["bytes_per_token"] == dict(found.curves["peak"])[LONG] / LONG
    assert found.metrics["bytes_per_token"] >= 2 * 4 * 4 * 4  # output and three gradients: heads, size, bytes
    again = outcome(name)
    assert (again.metrics, again.curves) == (found.metrics, found.curves)
    assert found.units.keys() == found.metrics.keys()


def test_scores_are_counted_by_implementation(outcome):
    allowed = SlidingWindow(W, causal=False).count(LONG)
    scores = {name: dict(outcome(name).curves["scores"])[LONG] for name in ("full", "chunks", "loop", "blocked")}
    assert scores["full"] == LONG**2
    assert scores["chunks"] == (2 * LONG // W - 1) * W**2  # blocks of w that overlap by half (Appendix A)
    assert scores["loop"] == allowed == LONG * (W + 1) - W // 2 * (W // 2 + 1)
    assert allowed < scores["blocked"] < LONG**2


def test_full_attention_grows_quadratically_and_a_kernel_does_not(outcome):
    growth = {name: outcome(name, lengths=[(256, 512)]).metrics["growth"]
              for name in ("full", "kernel", "blocked", "loop")}
    assert growth.pop("full") > 1.9 and max(growth.values()) < 1.1


def test_the_text_must_be_long_enough(outcome):
    with pytest.raises(ReproError, match="512 tokens, 520 are needed; choose less"):
        outcome("full", lengths=[(8, 520)])


@pytest.mark.parametrize(("sets", "words"), [
    ({"lengths": [(128, 64)]}, "give two or more that rise"), ({"lengths": [(64,)]}, "give two or more that rise"),
    ({"lengths": [(96, 128)], "window": 64}, "chunks need multiples of the window"), ({"window": 7}, "multiple of 2"),
    ({"implementation": "loops"}, "Input should be 'full', 'kernel'")])
def test_impossible_settings_are_refused(sets, words):
    with pytest.raises(ReproError, match=words):
        experiment("attention-memory").plan("smoke", sets)


def records(**growth):
    return [SimpleNamespace(config={"implementation": name}, metrics={"growth": value})
            for name, value in ({"full": 1.99, "chunks": 1.0, "loop": 1.0, "blocked": 0.9} | growth).items()]


@pytest.mark.parametrize(("growth", "verdict"), [
    ({}, "reproduced"), ({"loop": 1.11}, "not reproduced"), ({"full": 1.7}, "not reproduced")])
def test_growth_is_judged_by_the_worst(growth, verdict):
    told = judge_growth(records(**growth))
    assert told.verdict == verdict
    assert told.text == f"windows: N to the 0.90 to {growth.get('loop', 1.0):.2f}; full: {growth.get('full', 1.99):.2f}"


@pytest.mark.parametrize(("factor", "verdict"), [
    (1.95, "reproduced"), (2.05, "reproduced"), (1.85, "not reproduced"), (2.15, "not reproduced")])
def test_chunks_are_judged_against_two(factor, verdict):
    assert judge_chunks([SimpleNamespace(metrics={"scores_per_pair": factor})]).verdict == verdict


def test_without_records_the_table_and_the_figure_say_so(tmp_path):
    shown = artifact("longformer2020-appendix-a").render("smoke", also=(), results=tmp_path)
    assert set(shown.table.iloc[:, 2:].values.ravel()) == {"not run"}
    stated, ours = artifact("longformer2020-figure1").render("smoke", also=(), results=tmp_path).content.axes
    assert [text.get_text() for text in ours.texts] == ["not run"]
    full, chunk, perfect = (line.get_ydata() for line in stated.lines)
    assert full[-1] == 4 * 2048**2 / 2**20
    assert list(chunk) == [2 * value for value in perfect]
