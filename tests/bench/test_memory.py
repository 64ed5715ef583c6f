"""The memory benchmark at a tiny size: what it reports, not how fast it is."""

import json

import pytest

from repro.bench import memory, recorded
from repro.study import experiment


@pytest.fixture
def tiny(monkeypatch):
    """The benchmark's model at the size of a toy."""
    plan = experiment("pretrain-gpt2-mini").plan
    sizes = {"n_layer": 3, "n_embd": 16, "n_head": 2, "vocab_size": 50}
    monkeypatch.setattr(type(experiment("pretrain-gpt2-mini")), "plan",
                        lambda self, scale: [one.model_copy(update=sizes) for one in plan(scale)])


def test_the_report_has_memory_speeds_and_ratios(tiny, tmp_path, monkeypatch, capsys):
    path = tmp_path / "results/bench/memory.json"
    found = memory.main(path, window=6, n_windows=4, batch_size=1, rounds=1, places=(9, 33))
    assert json.loads(path.read_text()) == json.loads(json.dumps(found))
    rows = {(row["recompute"], row["windows"]): row for row in found["notes"]["memory"]}
    assert sorted(n for kind, n in rows if kind == "window+layer") == [1, 4, 64]
    assert rows["window", 64]["measured"] - rows["window", 4]["measured"] == 60 * 16 * 4  # z of every further window
    assert rows["none", 64]["measured"] > 2 * rows["window", 64]["measured"]
    ratio = found["ratios"]["peak memory: 4 windows / 1 window"]
    assert ratio["measured"] == rows["window", 4]["measured"] / rows["window", 1]["measured"]
    assert (ratio["wanted"], ratio["bound"]) == (1.3, "at most")
    speed = {name: value["tokens_per_second"] for name, value in found["speeds"].items()}
    cost = found["ratios"]["generation: cost of token 33 / token 9"]
    assert cost["measured"] == speed["generation, recurrent, token 9"] / speed["generation, recurrent, token 33"]
    training = found["ratios"]["training: recurrent with windows recomputed / plain"]
    assert training == {"measured": speed["training, recurrent, windows recomputed"] / speed[
        "training, plain, nothing recomputed"], "wanted": 0.6, "bound": "at least"}
    assert "off by" in capsys.readouterr().out
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    asked = [told.removesuffix(": missed") for told in recorded("memory").data["wanted"]]
    assert asked == ["at least 0.6", "at most 1.3", "at most 1.2", "at least 1"]


def test_the_cost_of_a_token_is_the_mean_over_the_window_that_ends_with_it(tiny_recurrent, monkeypatch):
    model, lengths, ticks = tiny_recurrent(), [], iter(range(1000))
    generate = type(model).generate

    def generating(self, text, n, **arguments):
        written = generate(self, text, n, **arguments)
        lengths.append(written.shape[1])
        return written

    monkeypatch.setattr(type(model), "generate", generating)
    monkeypatch.setattr(memory.time, "perf_counter", lambda: 0.5 * next(ticks))  # half a second for every token
    speeds = memory.generation(model, 4, (8, 20), 2, "cpu")
    assert lengths == [8, 20] * 9  # the places take turns, once to warm up
    assert [found["tokens_per_second"] for found in speeds.values()] == [2.0, 2.0]


def test_plain_generation_reads_a_whole_window_for_each_token(tiny_gpt2):
    model, read = tiny_gpt2(), []
    model.transformer.h[0].register_forward_hook(lambda module, args, out: read.append(args[0].shape[1]))
    assert memory.reread(model, 8, n=3) == 3
    assert read == [8, 8, 8]
