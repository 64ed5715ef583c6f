"""The memory of attention at tiny sizes, its claims, and what is shown when nothing was run."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import repro.data
from repro.errors import ReproError
from repro.papers.longformer2020.attention_memory import MEANING, execute
from repro.study import artifact, claim, experiment
from repro.study.progress import Progress
from repro.study.store import Store

W, LENGTHS, HEADS, SIZE = 8, (64, 128, 200), 2, 4
TINY = {"window": W, "lengths": [LENGTHS], "n_head": HEADS, "head_size": SIZE}
SCORES = {"full": [64**2, 128**2, 200**2], "kernel": [64**2, 128**2, 200**2],
          "chunks": [15 * W**2, 31 * W**2, 49 * W**2],  # blocks of w that overlap by half (Appendix A)
          "own chunks": [17 * W**2, 33 * W**2, 51 * W**2],  # and half a block beyond either end
          "loop": [556, 1132, 1780],  # w + 1 keys each, less 4 + 3 + 2 + 1 at either end
          # tiles of 32 queries and 4 keys more on each side, but for the ends; of 200, the last has 8 queries
          "blocked": [32 * (36 + 36), 32 * (36 + 2 * 40 + 36), 32 * (36 + 5 * 40) + 8 * 12]}


@pytest.fixture
def outcome(monkeypatch):
    """What a tiny run leaves, on a text of 512 tokens."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # there tiles are larger, and bytes the allocator's
    text = SimpleNamespace(ids=np.arange(512, dtype=np.int32) % 11)
    monkeypatch.setattr(repro.data, "tokeniser", lambda *args, **kwargs: None)
    monkeypatch.setattr(repro.data, "tokens", lambda *args: text)

    def run(implementation, **sets):
        config, = experiment("attention-memory").plan("smoke", TINY | sets | {"implementation": implementation})
        return execute(config, SimpleNamespace(progress=Progress(False), folder=Path()))

    return run


@pytest.mark.parametrize("name", SCORES)
def test_every_implementation_computes_attention_and_counts_the_same_twice(outcome, name):
    found = outcome(name)
    assert found.metrics["difference"] < 1e-5
    assert found.metrics["bytes_per_token"] == dict(found.curves["peak"])[LENGTHS[-1]] / LENGTHS[-1]
    assert found.metrics["bytes_per_token"] >= 4 * 4 * HEADS * SIZE  # output and three gradients
    again = outcome(name)
    assert (again.metrics, again.curves) == (found.metrics, found.curves)
    assert found.units.keys() == found.metrics.keys()


@pytest.mark.parametrize("name", SCORES)
def test_scores_are_those_counted_by_hand(outcome, name):
    found = outcome(name)
    assert found.curves["scores"] == [[n, number] for n, number in zip(LENGTHS, SCORES[name], strict=True)]
    apart = np.abs(np.subtract.outer(range(LENGTHS[-1]), range(LENGTHS[-1])))
    allowed = (apart <= W // 2).sum() if name in ("chunks", "own chunks", "loop", "blocked") else apart.size
    assert found.metrics["scores_per_pair"] == SCORES[name][-1] / allowed


def test_peaks_of_the_kernel_are_those_added_up_by_hand(outcome):
    each = 4 * HEADS * (4 * SIZE + 1)  # output, three gradients and the log of a sum, for a query of every head
    assert outcome("kernel").curves["peak"] == [[n, each * n + 8] for n in LENGTHS]  # 8: the loss and its gradient


@pytest.mark.parametrize("name", SCORES)
def test_growth_is_fitted_to_all_lengths(outcome, name):
    found = outcome(name)
    n, peak = np.log(found.curves["peak"]).T  # three lengths, not evenly apart: any two of them give another slope
    assert found.metrics["growth"] == pytest.approx(np.polyfit(n, peak, 1)[0], rel=1e-9)


def test_full_attention_grows_quadratically_and_a_kernel_does_not(outcome):
    growth = {name: outcome(name, lengths=[(256, 512)]).metrics["growth"]
              for name in ("full", "kernel", "blocked", "loop")}
    assert growth.pop("full") > 1.9 and max(growth.values()) < 1.1


def test_the_text_must_be_long_enough(outcome):
    with pytest.raises(ReproError, match="512 tokens, 520 are needed. Choose shorter"):
        outcome("full", lengths=[(8, 520)])


@pytest.mark.parametrize(("sets", "words"), [
    ({"lengths": [(128, 64)]}, "give two or more, in incr"), ({"lengths": [(64,)]}, "give two or more, in incr"),
    ({"lengths": [(96, 128)], "window": 64}, "chunks need multiples of the window"), ({"window": 7}, "multiple of 2"),
    ({"implementation": "loops"}, "unknown implementation 'loops'. Did you mean 'loop'")])
def test_impossible_settings_are_refused(sets, words):
    with pytest.raises(ReproError, match=words):
        experiment("attention-memory").plan("smoke", sets)


def records(metric, **values):
    return [SimpleNamespace(config={"implementation": name}, metrics={metric: value}, seed=0)
            for name, value in values.items()]


@pytest.mark.parametrize(("id", "growth", "verdict", "effect"), [
    ("linear", {"chunks": 1.0, "own chunks": 1.0, "loop": 1.09, "blocked": 0.9}, "reproduced", 1.09),
    ("linear", {"chunks": 1.0, "own chunks": 1.11, "loop": 1.0, "blocked": 0.9}, "not reproduced", 1.11),
    ("quadratic", {"full": 1.99}, "reproduced", 1.99), ("quadratic", {"full": 1.7}, "not reproduced", 1.7)])
def test_growth_is_judged_by_the_worst(id, growth, verdict, effect):
    told = claim(f"longformer2020-figure1-{id}").judge(records("growth", **growth))
    assert (told.verdict, told.effect, told.low, told.high, told.exact) == (verdict, effect, effect, effect, True)
    assert told.text.startswith(f"{effect:.3g} as exponent of the length")


@pytest.mark.parametrize(("chunks", "verdict"), [
    (1300, "reproduced, smaller"), (2000, "reproduced"), (1000, "not reproduced")])
def test_chunks_are_judged_by_their_bytes(chunks, verdict):
    told = claim("longformer2020-appendix-a-chunks").judge(records("bytes_per_token", chunks=chunks, loop=1000))
    assert (told.verdict, told.effect, told.paper_effect) == (verdict, chunks / 1000, 2.0)


def test_claims_read_the_implementations_that_they_name():
    for id, names in (("figure1-linear", ["chunks", "own chunks", "loop", "blocked"]), ("figure1-quadratic", ["full"]),
                      ("appendix-a-chunks", ["chunks", "loop"])):
        one = claim(f"longformer2020-{id}")
        assert [config.implementation for config in one.needed("small")] == names


def test_the_table_compares_all_but_the_reference_with_the_reference(outcome, monkeypatch):
    monkeypatch.setattr(Store, "seeds", lambda self, config: [SimpleNamespace(
        id="1", scale="smoke", seed=0, config=config.model_dump(), data={"name": "x", "part_of": None},
        metrics=outcome(config.implementation).metrics)])
    shown = artifact("longformer2020-appendix-a").render("smoke", also=()).table.set_index("implementation")
    assert [name for name, told in shown["difference from dense"].items() if told == "–"] == [MEANING["kernel"]]
    assert "not run" not in shown.values


def test_without_records_the_table_and_the_figure_say_so(tmp_path):
    shown = artifact("longformer2020-appendix-a").render("smoke", also=(), results=tmp_path)
    assert set(shown.table.iloc[:, 2:].values.ravel()) == {"not run"}
    stated, ours = artifact("longformer2020-figure1").render("smoke", also=(), results=tmp_path).content.axes
    assert [text.get_text() for text in ours.texts] == ["not run"]
    full, chunk, perfect = (line.get_ydata() for line in stated.lines)
    assert full[-1] == 4 * 2048**2 / 2**20
    assert list(chunk) == [2 * value for value in perfect]
