"""The benchmark of attention beside a busy process: what it times, in which process, and what it divides."""

import pytest

from repro.bench import contention, read, recorded
from repro.errors import ReproError

SECONDS = {("spin", "idle"): 0.2, ("sleep", "idle"): 0.25, ("spin, then sleep", "idle"): 0.21,
           ("spin", "a core taken"): 2.8, ("sleep", "a core taken"): 0.5, ("spin, then sleep", "a core taken"): 0.63}


def test_the_ways_take_turns_and_their_medians_are_divided(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    asked = []

    def fake(way, state, *sizes):
        asked.append((way, state, sizes))
        return [SECONDS[way, state] * k for k in (1, 2, 0.5)]

    monkeypatch.setattr(contention, "in_a_process", fake)
    path = tmp_path / "results/bench/contention.json"
    found = contention.main(path, n=1_000, window=16, rounds=3, turns=2, patience=7.0)
    assert [one[:2] for one in asked] == [
        *[(way, "idle") for way in ("spin", "sleep", "spin, then sleep")] * 2,
        *[(way, "a core taken") for way in ("spin", "sleep", "spin, then sleep")]]
    assert {one[2] for one in asked} == {(3, 1_000, 16, 3, 7.0)}
    assert read(path) == found and found["environment"]["threads"] == found["settings"]["threads"] == 3
    spin, sleep, brief, cost, less = found["ratios"].values()
    assert (spin["measured"], spin["wanted"]) == (pytest.approx(14), None)
    assert (sleep["measured"], sleep["wanted"], sleep["bound"]) == (pytest.approx(2), 4, "at most")
    assert (brief["measured"], brief["wanted"], brief["bound"]) == (pytest.approx(3), 4, "at most")
    assert (cost["measured"], cost["wanted"]) == (pytest.approx(1.25), None)
    assert (less["measured"], less["wanted"]) == (pytest.approx(1.05), None)
    assert found["speeds"]["threads that spin, idle"] == {
        "tokens_per_second": pytest.approx(5_000), "lowest": pytest.approx(2_500), "highest": pytest.approx(10_000)}
    assert list(recorded("contention").data["measured"]) == ["14.00", "2.00", "3.00", "1.25", "1.05"]


def test_a_process_has_its_own_way_to_wait_and_all_threads(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    seen = []

    def run(line, env, **how):
        seen.append((line[-1], {name: env.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
                                                                 "OMP_NUM_THREADS")}))
        return type("Done", (), {"returncode": 0, "stdout": "[0.5]\n", "stderr": ""})

    monkeypatch.setattr("subprocess.run", run)
    assert contention.in_a_process("spin", "idle", 2, 64, 8, 1, 1.0) == [0.5]
    contention.in_a_process("sleep", "a core taken", 4, 64, 8, 1, 1.0)
    contention.in_a_process("spin, then sleep", "idle", 2, 64, 8, 1, 1.0)
    assert [settings for _, settings in seen] == [
        {"OMP_WAIT_POLICY": None, "GOMP_SPINCOUNT": None, "OMP_NUM_THREADS": "2"},
        {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": None, "OMP_NUM_THREADS": "4"},
        {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000", "OMP_NUM_THREADS": "2"}]
    assert seen[1][0].endswith("timed('a core taken', *(64, 8, 1, 1.0))))")


def test_a_real_process_times_real_steps():
    found = contention.in_a_process("sleep", contention.TAKEN, 2, 256, 16, 2, 60.0)
    assert len(found) == 2 and all(0 < seconds < 60 for seconds in found)
    with pytest.raises(ReproError, match="the timing of threads that sleep stopped: .*window is 0"):
        contention.in_a_process("sleep", contention.IDLE, 2, 256, 0, 2, 60.0)


@pytest.mark.parametrize(("said", "told"), [
    ("", "its process ended with status -9 and said nothing; free some memory and run it again."),
    (" \n", "its process ended with status -9 and said nothing; free some memory and run it again."),
    ("first\nlast\n", "last")])
def test_a_process_that_stops_is_told_in_one_line(monkeypatch, said, told):
    monkeypatch.setattr("subprocess.run", lambda *_, **how: type("Done", (), {
        "returncode": -9, "stdout": "", "stderr": said}))
    with pytest.raises(ReproError) as raised:
        contention.in_a_process("spin", "idle", 2, 64, 8, 1, 1.0)
    assert str(raised.value) == f"the timing of threads that spin stopped: {told}"


def test_no_step_begins_when_patience_has_ended():
    now = [0.0]

    def work():
        now[0] += 4.0

    assert contention.repeated(work, 9, 10.0, lambda: now[0]) == [4.0, 4.0, 4.0]  # begun at 0, 4 and 8
    assert contention.repeated(work, 2, 10.0, lambda: now[0]) == [4.0, 4.0]
    assert contention.repeated(work, 9, 0.0, lambda: now[0]) == [4.0]


def test_one_core_cannot_be_shared(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    with pytest.raises(ReproError, match="may use one core only; contention needs at least two"):
        contention.main()
