"""The memory experiment at a tiny size, its claim, and what is shown when nothing was run."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import repro.data
from repro.errors import ReproError
from repro.papers.yoshida2020.peak_memory import execute
from repro.study import artifact, claim, experiment
from repro.study.progress import Progress

TINY = {"n_embd": 16, "window": 6, "windows": [(1, 3, 5, 9)], "batch_size": 2}


@pytest.fixture
def outcome(monkeypatch):
    """What a tiny run leaves, on a text of 200 tokens."""
    text = SimpleNamespace(ids=np.arange(200, dtype=np.int32))
    monkeypatch.setattr(repro.data, "tokeniser", lambda *args, **kwargs: None)
    monkeypatch.setattr(repro.data, "tokens", lambda *args: text)

    def run(**sets):
        config, = experiment("memory-recurrence").plan("smoke", TINY | sets)
        return execute(config, SimpleNamespace(progress=Progress(False), folder=Path()))

    return run


def test_a_run_measures_every_length_and_what_a_further_window_adds(outcome):
    found = outcome(recompute="window")
    assert [n for n, _ in found.curves["peak"]] == [n for n, _ in found.curves["plan"]] == [1, 3, 5, 9]
    assert found.metrics["growth"] == found.metrics["least_growth"] == found.metrics["most_growth"] == 2 * 16 * 4
    assert found.metrics["paper_growth"] == 2 * 2 * 16 * 4
    assert found.metrics["text"] == 2 * 6 * 8
    assert found.metrics["forward_passes"] == 2
    peaks = dict(found.curves["peak"])
    assert peaks[9] - peaks[3] == 6 * found.metrics["growth"]
    worst = max(abs(plan / peaks[n] - 1) for n, plan in found.curves["plan"])
    assert found.metrics["plan_error"] == worst < 0.15
    assert found.units.keys() == found.metrics.keys()


def test_tensors_without_numbers_give_the_same_record(outcome):
    real, fake = outcome(recompute="layer"), outcome(recompute="layer", tensors="fake")
    assert (real.metrics, real.curves) == (fake.metrics, fake.curves)
    assert (real.notes["counted"], fake.notes["counted"]) == ("real tensors", "fake tensors")


def test_the_text_must_be_long_enough(outcome):
    with pytest.raises(ReproError, match="200 tokens, but 206 are needed; choose fewer windows"):
        outcome(recompute="window", windows=[(1, 3, 17)])


@pytest.mark.parametrize(("sets", "words"), [
    ({"windows": [(1, 2, 4)]}, "give rising numbers that include 3 and a larger one"),
    ({"windows": [(1, 2, 3)]}, "include 3 and a larger one"), ({"windows": [(3, 4, 4)]}, "rising numbers"),
    ({"window": 129}, "the context is n_positions=128"),
    ({"recompute": "windows"}, "unknown recompute 'windows'. Did you mean 'window'"),
    ({"n_layer": 2}, "must be at least 3")])
def test_impossible_settings_are_refused(sets, words):
    with pytest.raises(ReproError, match=words):
        experiment("memory-recurrence").plan("smoke", sets)


@pytest.mark.parametrize(("most", "verdict"), [(50, "reproduced"), (119, "reproduced"), (121, "not reproduced")])
def test_the_largest_growth_is_held_against_the_papers_model(most, verdict):
    metrics = {"growth": 10, "least_growth": 5, "most_growth": most, "paper_growth": 100, "text": 30}
    told = claim("yoshida2020-memory-window").judge([SimpleNamespace(metrics=metrics, seed=0)])
    assert (told.verdict, told.effect, told.exact) == (verdict, most / 100, True)
    assert told.text.startswith(f"{most / 100:.3g} times 2k; {(most + 30) / 100:.2f} with the token ids")


@pytest.mark.parametrize(("passes", "verdict"), [(2.0, "reproduced"), (2.04, "reproduced"), (2.5, "not reproduced")])
def test_forward_passes_are_held_against_one_more(passes, verdict):
    told = claim("yoshida2020-memory-forward").judge([SimpleNamespace(metrics={"forward_passes": passes}, seed=0)])
    assert (told.verdict, told.effect) == (verdict, passes)


def test_the_claim_is_about_windows_alone():
    about = claim("yoshida2020-memory-window")
    assert [config.recompute for config in experiment("memory-recurrence").plan("paper") if about.where(config)] == [
        "window"]


def test_without_records_the_table_and_the_figure_say_so(tmp_path):
    shown = artifact("yoshida2020-memory").render("smoke", also=(), results=tmp_path)
    assert list(shown.table["recomputed"]) == ["none", "layer", "window", "window+layer"]
    assert set(shown.table.iloc[:, 2:].values.ravel()) == {"not run"}
    figure = artifact("yoshida2020-memory-growth").render("smoke", also=(), results=tmp_path)
    assert [text.get_text() for text in figure.content.axes[0].texts] == ["not run"]
    assert figure.png().startswith(b"\x89PNG")


def test_the_longest_run_at_the_papers_size_is_planned_with_its_memory():
    by_kind = {config.recompute: experiment("memory-recurrence").estimate(config.model_copy(update={"tensors": "real"}))
               for config in experiment("memory-recurrence").plan("paper")}
    assert by_kind["none"].memory_bytes > 20e9 > 5e9 > by_kind["window"].memory_bytes
    assert by_kind["none"].training_tokens == 300 * (1 + 2 + 3 + 4 + 8 + 16 + 32 + 64)
