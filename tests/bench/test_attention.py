"""What the attention benchmark counts, predicts and reports; its timings are nobody's test."""

import json

import pytest
import torch

import repro.bench as bench_of
from repro.bench import attention as bench
from repro.bench import read, recorded, stored
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
    found = bench.main(tmp_path / "bench.json", lengths=(128, 256, 512), rounds=1, window=8, places=(20, 60))
    assert json.loads((tmp_path / "bench.json").read_text()) == found
    runs = {(run["contender"], run["pass"], run["n"]): run for run in found["notes"]["runs"]}
    assert len(runs) == 3 * 2 * 3
    for which in bench.PASSES:
        assert "seconds" not in runs["square", which, 512]
        assert runs["square", which, 512]["not_attempted"].startswith("would need")
        assert runs["square", which, 256]["peak_bytes"] > 3 * runs["square", which, 128]["peak_bytes"] > 0
        assert runs["blocked", which, 512]["seconds"] > 0
    assert set(found["speeds"]) == {"blocked", "dense, causal", "generation, after token 20",
                                    "generation, after token 60"}
    assert found["notes"]["keys_kept"] == [7, 7]  # and the one that is read makes 8
    assert found["ratios"]["generation: keys kept after token 60 / token 20"]["measured"] == 1


class Clock:
    """Moves when a contender of `slow` runs, by seconds that grow with the square of the length."""

    def __init__(self):
        self.now = 50.0

    def __call__(self):
        return self.now

    def slow(self, seconds):
        def run(x):
            self.now += seconds * (x["query"].shape[2] / 256)**2
            return bench.dense_causal(x)
        return bench.Contender(run)


@pytest.fixture
def slow(tiny, monkeypatch):
    """Two contenders of 1 and 10 seconds at 256 positions by the clock that is returned; nothing else takes time."""
    clock = Clock()
    field = {"dense, causal": clock.slow(1.0), "square": clock.slow(10.0)}
    monkeypatch.setattr(bench, "contenders", lambda *_: field)
    monkeypatch.setattr(bench, "floors", lambda *_: [])
    monkeypatch.setattr(bench, "free_bytes", lambda device: 2**40)
    monkeypatch.setattr(bench, "RATIOS_AT", (256, 512, 128))
    monkeypatch.setattr(bench, "peak_memory", lambda work, device: work() and 1)
    return clock


def test_lengths_come_in_the_order_of_ratios_then_the_longest_first(slow):
    assert bench.by_value((64, 128, 256, 1024), bench.PASSES) == [
        (which, n) for which in ("forward+backward", "forward") for n in (256, 128, 1024, 64)]
    assert bench.by_value((64, 256), ("forward",)) == [("forward", 256), ("forward", 64)]


@pytest.mark.parametrize("budget", [0.5, 22, 23, 60, 75, 200])
def test_a_budget_ends_in_time_with_what_is_worth_most(slow, tmp_path, budget):
    """At 256 positions both run once (11 s) and are timed once or twice; at 512 they take 4 and 40 s a run."""
    found = bench.main(tmp_path / "bench.json", lengths=(128, 256, 512), rounds=2, window=8, places=(20, 60),
                       budget=budget, clock=slow)
    assert read(tmp_path / "bench.json") == found and found["settings"]["budget"] == budget
    assert slow.now - 50 <= max(budget, 11 + 11), "only what was never run before may take longer than is left"
    runs = {(run["pass"], run["n"], run["contender"]): "seconds" in run for run in found["notes"]["runs"]}
    both = bench.PASSES[1]
    assert runs[both, 256, "dense, causal"] is True
    assert runs.get((both, 512, "dense, causal"), False) is (budget >= 60)
    assert runs.get((both, 512, "square"), False) is (budget == 200)
    assert ("generation, after token 20" in found["speeds"]) is (budget >= 75), "while half of it is left"
    assert all(run.get("not_attempted", bench.NO_TIME) == bench.NO_TIME for run in found["notes"]["runs"])


def test_a_budget_counts_from_when_the_command_began(slow, tmp_path):
    found = bench.main(None, lengths=(256,), rounds=2, window=8, budget=30, began=slow.now - 31, clock=slow)
    assert found["notes"]["runs"] == [] and found["settings"]["budget"] == 30


def test_a_budget_writes_whole_records_after_each_length(slow, tmp_path, monkeypatch):
    seen = []
    put = bench_of.write_atomic
    monkeypatch.setattr(bench_of, "write_atomic", lambda path, text: (put(path, text), seen.append(
        {(run["pass"], run["n"]) for run in read(path)["notes"]["runs"]})))
    bench.main(tmp_path / "bench.json", lengths=(128, 256), rounds=1, window=8, places=(20, 60), budget=1_000,
               clock=slow)
    order = bench.by_value((128, 256), bench.PASSES)
    assert seen == [*(set(order[:n]) for n in (1, 2, 3, 4)), set(order)]


def test_without_a_budget_every_length_is_measured_in_its_order(slow):
    measured = bench.measure((128, 256), 1, 8, clock=slow)
    assert list(dict.fromkeys((which, n) for _, which, n in measured)) == [
        (which, n) for which in bench.PASSES for n in (128, 256)]
    assert all("seconds" in found for found in measured.values())


@pytest.mark.parametrize("name", ["loop", "chunks", "blocked"])
def test_the_three_of_figure_1_attend_alike(name):
    """Without projections, and with them: what is timed is the same attention."""
    x = bench.inputs(64, "cpu")
    field = bench.contenders(16, "cpu", bench.PASSES[1])
    layer = "Longformer layer, ours" + (f", {name}" if name != "blocked" else "")
    for one, other in (name, "dense, mask"), (layer, "Longformer layer, transformers"):
        found, want = field[one].run(x), field[other].run(x)
        torch.testing.assert_close(found.view(want.shape), want, atol=1e-5, rtol=1e-4)
    assert len(field[layer].parameters) == 6


def test_bars():
    def run(speed, peak):
        return {"tokens_per_second": speed, "peak_bytes": peak}

    both = bench.PASSES[1]
    measured = {("blocked", both, 8192): run(60, 1), ("dense, causal", both, 8192): run(10, 1),
                ("blocked", both, 16384): run(54, 3), ("dense, mask", both, 16384): run(1, 33),
                ("local-attention", both, 8192): {"not_attempted": "would need 9 GiB"}}
    assert bench.ratios(measured, "cpu") == {"N = 8,192: blocked / dense, causal": (6.0, 10),
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


def test_bars_of_time():
    both = bench.PASSES[1]
    measured = {(name, both, 8192): {"seconds": seconds} for name, seconds in (
        ("blocked", 2), ("blocked, 16 global together", 2.5), ("blocked, 16 global spread", 3), (bench.BUSY, 7))}
    lower = [{"pattern": pattern, "n": n, "pass": which, "seconds": {"window": 1, "causal": 9}[pattern] * n / 8192}
             for pattern in ("causal", "window") for n in (4096, 8192) for which in bench.PASSES]
    assert bench.ratios(measured, "cpu", lower) == {
        "N = 8,192, time: blocked / floor": (2.0, 1.9, "at most"),
        "N = 8,192, time: 16 global together / none": (1.25, 1.3, "at most"),
        "N = 8,192, time: 16 global spread / none": (1.5, 1.3, "at most"),
        "N = 8,192, time: a core taken / idle": (3.5, 4, "at most")}


def test_what_dense_attention_and_the_loop_take_is_told_of_one_length_and_pass():
    runs = [{"contender": name, "pass": which, "n": n, "seconds": spent * n * (1 + (which == "forward"))}
            for name, spent in (("dense, causal", 3.0), ("loop", 10.0), ("chunks", 2.0))
            for which in bench.PASSES for n in (4096, 8192)]
    runs.append({"contender": "dense, mask", "pass": "forward+backward", "n": 8192, "not_attempted": "too much"})
    floors = [{"pattern": name, "pass": which, "n": n, "seconds": n * least * (1 + (which == "forward"))}
              for name, least in (("window", 0.1), ("causal", 2.0)) for which in bench.PASSES for n in (4096, 8192)]
    assert bench.times({"notes": {"runs": runs, "floors": floors}}) == {"dense": 1.5, "loop": 5.0}
    assert bench.times(None) == {"dense": None, "loop": None}


def test_a_core_is_taken_and_given_back():
    import time

    import psutil

    before = {child.pid for child in psutil.Process().children()}
    with bench.a_core_taken():
        other, = [child for child in psutil.Process().children() if child.pid not in before]
        used, deadline = other.cpu_times().user, time.monotonic() + 20
        while other.cpu_times().user <= used and time.monotonic() < deadline:
            pass
        assert other.cpu_times().user > used
        if hasattr(other, "cpu_affinity"):
            assert len(other.cpu_affinity()) == 1
    assert not other.is_running()


def test_every_contender_runs_in_its_dtype():
    x = bench.inputs(512, "cpu")
    for name, contender in bench.contenders(64, "cpu", bench.PASSES[1]).items():
        given = bench.cast(x, contender.dtype)
        assert {part.dtype for part in given.values()} == {contender.dtype or torch.float32}
        assert given["query"].requires_grad and not given["flow"].requires_grad
        assert bench.step(contender, given, bench.PASSES[1])() == 512, name


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


def test_what_only_a_ratio_needs_is_timed_there_and_has_no_line(tiny, monkeypatch):
    monkeypatch.setattr(bench, "VARIANTS", ("square",))
    monkeypatch.setattr(bench, "AT", 256)
    measured = bench.measure((128, 256), 1, 8, passes=bench.PASSES[1:])
    assert ("square", bench.PASSES[1], 256) in measured and ("square", bench.PASSES[1], 128) not in measured
    assert list(bench.curves(measured)["time (ms)"]) == ["blocked", "dense, causal"]


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
