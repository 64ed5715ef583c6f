"""What the attention benchmark counts, predicts and reports; its timings are nobody's test."""

import json

import pytest
import torch

from repro.bench import attention as bench
from repro.bench import recorded, stored
from repro.errors import ReproError


def test_longer_texts_are_timed_less_often():
    assert [bench.rounds_at(n, 5) for n in (512, 8192, 16384, 32768, 65536)] == [5, 5, 3, 2, 1]


@pytest.mark.parametrize("warm_up", [True, False])
def test_only_the_first_turn_is_for_warming_up(warm_up):
    from repro.bench import compare

    runs = []
    found = compare({"one": lambda: runs.append(1) or 7}, rounds=3, warm_up=warm_up)
    assert len(runs) == 3 + warm_up and found["one"]["lowest"] <= found["one"]["tokens_per_second"]


@pytest.mark.parametrize(("known", "expected"), [
    ({}, 0), ({512: 10}, 40), ({256: 10, 512: 20}, 40), ({256: 10, 512: 40}, 160), ({512: None}, 0)])
def test_expected_bytes(known, expected):
    measured = {("one", "forward", n): {"peak_bytes": peak} for n, peak in known.items()}
    assert bench.expected_bytes(measured, "one", "forward", 1024) == expected


@pytest.fixture
def tiny(monkeypatch):
    """Two contenders that attend to everything, one keeping n * n numbers; 2 MiB of free memory."""
    square = bench.Contender(lambda x: torch.softmax(x["query"] @ x["key"].mT, -1) @ x["value"])
    monkeypatch.setattr(bench, "contenders", lambda *_: {"blocked": bench.Contender(bench.dense_causal),
                                                         "dense, causal": bench.Contender(bench.dense_causal),
                                                         "square": square})
    monkeypatch.setattr(bench, "HEADS", 1)
    monkeypatch.setattr(bench, "free_bytes", lambda device: 2 * 2**20)


def test_report(tiny, tmp_path):
    found = bench.main(tmp_path / "bench.json", lengths=(128, 256, 512), rounds=1, window=8)
    assert json.loads((tmp_path / "bench.json").read_text()) == found
    runs = {(run["contender"], run["pass"], run["n"]): run for run in found["notes"]["runs"]}
    assert len(runs) == 3 * 2 * 3
    for which in bench.PASSES:
        assert "seconds" not in runs["square", which, 512]
        assert runs["square", which, 512]["not_attempted"].startswith("would need")
        assert runs["square", which, 256]["peak_bytes"] > 3 * runs["square", which, 128]["peak_bytes"] > 0
        assert runs["blocked", which, 512]["seconds"] > 0
    assert set(found["speeds"]) == {"blocked", "dense, causal"}


def test_contenders_that_take_part_alone(tiny, tmp_path):
    found = bench.main(tmp_path / "bench.json", lengths=(64,), rounds=1, window=8, only=("square",))
    assert {run["contender"] for run in found["notes"]["runs"]} == {"square"}
    assert found["settings"]["only"] == ["square"]
    with pytest.raises(ReproError, match="Did you mean 'square'"):
        bench.measure((64,), 1, 8, only=("sqare",))


def test_bars():
    def run(speed, peak):
        return {"tokens_per_second": speed, "peak_bytes": peak}

    both = bench.PASSES[1]
    measured = {("blocked", both, 8192): run(60, 1), ("dense, causal", both, 8192): run(10, 1),
                ("blocked", both, 16384): run(54, 3), ("dense, mask", both, 16384): run(1, 33),
                ("local-attention", both, 8192): {"not_attempted": "would need 9 GiB"}}
    assert bench.ratios(measured, "cpu") == {"N = 8,192: blocked / dense, causal": (6.0, 5),
                                             "blocked: N = 16,384 / N = 8,192": (0.9, 0.87),
                                             "N = 16,384, memory: dense, mask / blocked": (11.0, 10)}


def test_bars_of_strided_and_fixed_patterns():
    measured = {(name, bench.PASSES[1], n): {"tokens_per_second": speed, "peak_bytes": None}
                for name, n, speed in (("strided", 4096, 30), ("dense, causal", 4096, 10), ("fixed", 16384, 45),
                                       ("dense, causal", 16384, 5))}
    assert bench.ratios(measured, "cpu") == {"N = 4,096: strided / dense, causal": (3.0, 2),
                                             "N = 16,384: fixed / dense, causal": (9.0, 6)}


@pytest.mark.parametrize(("n", "stride"), [(4096, 64), (8192, 64), (16384, 128)])
def test_strides_grow_as_the_root_of_the_text(n, stride):
    assert bench.strided_at(n).stride == stride and bench.fixed_at(n).stride == 2 * stride


def test_exponents():
    measured = {("one", "forward", n): {"seconds": 3 * n**1.5} for n in (512, 2048, 4096, 8192)}
    assert bench.exponents(measured) == {"one: forward": pytest.approx(1.5)}


def test_floors(monkeypatch):
    """Arithmetic decides where it is slow, moving tensors where that is."""
    side, pairs = 1024, 4096 * 4097 // 2
    monkeypatch.setattr(bench, "seconds", lambda work, device: 2 * side**3 if work.__name__ == "<lambda>" else 0)
    floors = {(row["pattern"], row["pass"]): row["seconds"] for row in bench.floors(64, (4096,), "cpu")}
    assert floors["causal", "forward"] == 4 * 64 * 8 * pairs
    assert floors["causal", "forward+backward"] == 14 * 64 * 8 * pairs
    assert floors["window", "forward"] == 4 * 64 * 8 * (64 * 4096 - 64 * 63 // 2)
    monkeypatch.setattr(bench, "seconds", lambda work, device: 0 if work.__name__ == "<lambda>" else 32 * side**2)
    floors = {(row["pattern"], row["pass"]): row["seconds"] for row in bench.floors(64, (4096,), "cpu")}
    assert floors["causal", "forward"] == floors["window", "forward"] == 4 * 4096 * 8 * 64 * 4


def test_one_pass_alone(tiny):
    measured = bench.measure((128,), 1, 8, passes=bench.PASSES[1:])
    assert list(measured) == [(name, bench.PASSES[1], 128) for name in ("blocked", "dense, causal", "square")]


def test_panels_of_a_run_have_its_points_and_floors():
    both = bench.PASSES[1]
    runs = [{"contender": "one", "pass": both, "n": 512, "seconds": 0.5, "peak_bytes": 3 * 2**20},
            {"contender": "one", "pass": both, "n": 1024, "not_attempted": "would need 9 GiB"},
            {"contender": "one", "pass": "forward", "n": 512, "seconds": 0.1, "peak_bytes": 2**20},
            {"contender": "two", "pass": "forward", "n": 512, "seconds": 0.1, "peak_bytes": None}]
    floors = [{"pattern": "causal", "pass": which, "n": n, "seconds": n / 1e5}
              for which in bench.PASSES for n in (512, 1024)]
    found = {"notes": {"runs": runs, "floors": floors}}
    assert bench.panels(found) == {
        "time (ms)": {"one": [[512, 500.0]], "two": [], "floor, causal": [[512, 5.12], [1024, 10.24]]},
        "memory added (MiB)": {"one": [[512, 3.0]], "two": []}}
    assert bench.panels(found, "forward")["memory added (MiB)"] == {"one": [[512, 1.0]], "two": []}
    assert bench.panels(None) == {"time (ms)": {}, "memory added (MiB)": {}}


def test_a_run_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    assert stored("attention") is None
    with pytest.raises(ReproError, match="make it with `repro bench attention --json results/bench/attention.json`"):
        recorded("attention")


def test_the_growth_table_has_a_row_for_each_contender_and_a_column_for_each_pass():
    powers = {"loop: forward": 1.0, "dense, mask: forward": 2.0, "dense, mask: forward+backward": 2.1}
    table = bench.growth_table({"notes": {"exponents": powers}})
    assert table.loc["dense, mask"].to_dict() == {"forward": 2.0, "forward+backward": 2.1}
    assert table.loc["loop", "forward"] == 1.0 and table.isna().sum().sum() == 1
