"""Runs: once each, needs first, never a different record for the same config."""

import ctypes
import multiprocessing
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from repro import paths
from repro.errors import ReproError
from repro.study import Outcome, Store, experiment, register, run, run_id
from repro.study.runner import environment


def test_a_record_says_what_was_run(toy):
    config = toy.experiment.plan("smoke")[3]
    record = run(config, progress=False)
    base = run(toy.base.plan("smoke")[0], progress=False)
    assert (record.schema, record.id, record.experiment, record.scale, record.model, record.seed) == (
        1, run_id(config), "toy-recurrence", "smoke", "recurrent", 0)
    assert record.config == {"experiment": "toy-recurrence", "scale": "smoke", "seed": 0, "corpus": "toy-text",
                             "model": "recurrent", "window": 300, "overlap": 5, "rate": 0.001, "layers": [2],
                             "limit": 3, "share": 1.0}
    assert record.data == {"name": "toy-text", "fingerprint": toy.corpus("toy-text").fingerprint(),
                           "part_of": "toy: 1 of 9 texts"}
    assert record.metrics == {"test_word_perplexity": 28.5, "width": 8.0}
    assert record.units == {"test_word_perplexity": "per word", "width": "units"}
    assert record.curves == {"loss": [[0, 3.5], [1, 3.25]]}
    assert record.documents == {"test": {"nll": [1.5, 2.5]}}
    assert record.needs == {base.id: base.digest}
    assert set(record.environment) == {"python", "torch", "transformers", "repro", "platform", "cpu", "threads",
                                       "processes", "device", "float32", "bf16"}
    assert record.cost["wall_seconds"] >= 0
    assert record.cost["peak_memory_bytes"] > 1e6
    assert (paths.home() / "build" / "results" / "smoke" / "toy-recurrence" / f"{record.id}.json").exists()


def test_the_environment_says_how_products_are_computed(monkeypatch):
    monkeypatch.setattr("repro.cpu.float32_path", lambda: "onednn")
    for native, word in [(True, "native"), (False, "emulated")]:
        monkeypatch.setattr("repro.bf16.has_bf16", lambda native=native: native)
        assert {"float32": "onednn", "bf16": word}.items() <= environment().items()


def test_records_from_before_the_path_was_told_stay(toy, monkeypatch):
    """Theirs is read as it is; and where it is made again, other last digits are no error."""
    now = environment()
    monkeypatch.setattr("repro.study.runner.environment", lambda: {
        key: value for key, value in now.items() if key not in ("float32", "bf16")})
    old = run(toy.experiment.plan("small")[0], progress=False)
    base = Store(paths.results("small")).get(toy.base.plan("small")[0])
    monkeypatch.setattr("repro.study.runner.environment", lambda: now)
    assert run(toy.experiment.plan("small")[0], progress=False) == old
    shutil.rmtree(paths.work())
    toy.noise = 2**-40
    run(toy.experiment.plan("small")[1], progress=False)  # makes the base again
    assert len(toy.executed) == 4
    assert Store(paths.results("small")).get(toy.base.plan("small")[0]) == base
    assert run(toy.experiment.plan("small")[0], progress=False) == old


def test_a_second_call_reads_the_record(toy):
    config = toy.experiment.plan("smoke")[0]
    first = run(config, progress=False)
    assert run(config, progress=False) == first
    assert [c.experiment for c in toy.executed] == ["toy-base", "toy-recurrence"]


def test_needs_are_run_once_and_reused(toy):
    for config in toy.experiment.plan("smoke"):
        run(config, progress=False)
    assert [c.experiment for c in toy.executed] == ["toy-base"] + 4 * ["toy-recurrence"]


def test_a_need_whose_model_is_gone_is_run_again_and_must_agree(toy):
    base = run(toy.base.plan("smoke")[0], progress=False)
    shutil.rmtree(paths.work() / "runs" / base.id / "model")
    first, second, *_ = toy.experiment.plan("smoke")
    assert run(first, progress=False).needs == {base.id: base.digest}
    assert len(toy.executed) == 3

    shutil.rmtree(paths.work() / "runs" / base.id / "model")
    toy.noise = 2**-40
    with pytest.raises(ReproError, match=f"running toy-base {base.id} again on the same machine gave another record"):
        run(second, progress=False)
    assert Store(paths.results("smoke")).get(toy.base.plan("smoke")[0]) == base


@pytest.mark.parametrize("changed", [{"cpu": "another"}, {"float32": "another path"}], ids=str)
def test_a_need_recorded_on_another_machine_is_run_here_and_its_record_stays(toy, monkeypatch, changed):
    base = run(toy.base.plan("small")[0], progress=False)
    shutil.rmtree(paths.work())
    toy.noise = 0.5
    elsewhere = base.environment | changed
    monkeypatch.setattr("repro.study.runner.environment", lambda: elsewhere)
    record = run(toy.experiment.plan("small")[0], progress=False)
    assert list(record.needs) == [base.id]
    assert record.needs[base.id] != base.digest
    assert Store(paths.results("small")).get(toy.base.plan("small")[0]) == base
    assert Store(paths.results("small")).get(toy.experiment.plan("small")[0]) == record


def test_what_was_built_on_another_result_is_run_again_from_the_start(toy):
    def top(config, context):
        toy.executed.append(config)
        record, folder = context.need(toy.experiment.plan("smoke")[0])
        return Outcome({"loss": record.metrics["width"]}, {"loss": "nats"}, "top")

    def middle(config, context):
        found.append([path.name for path in context.folder.iterdir()])
        (context.folder / "model").mkdir(exist_ok=True)
        return toy.execute(config, context)

    found = []
    object.__setattr__(toy.experiment, "execute", middle)
    register(replace(toy.base, name="toy-top", execute=top, needs=lambda c: [toy.experiment.plan("smoke")[0]]))
    config = experiment("toy-top").plan("smoke")[0]
    first = run(config, progress=False)
    assert run(config, progress=False) == first
    toy.noise = 1.0
    base = run(toy.base.plan("smoke")[0], progress=False, force=True)
    again = run(config, progress=False)
    assert [c.experiment for c in toy.executed] == 2 * ["toy-base", "toy-recurrence", "toy-top"]
    assert found == [[], []]
    middle_record = Store.for_scale("smoke").get(toy.experiment.plan("smoke")[0])
    assert middle_record.needs == {base.id: base.digest}
    assert again.needs == {middle_record.id: middle_record.digest} != first.needs
    assert run(config, progress=False) == again


def test_a_stale_run_that_was_interrupted_while_made_again_goes_on(toy):
    config = toy.experiment.plan("smoke")[0]
    run(config, progress=False)
    toy.noise = 1.0
    run(toy.base.plan("smoke")[0], progress=False, force=True)
    folder = paths.work() / "runs" / run_id(config)
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "checkpoint").write_text("half")
    assert run(config, progress=False).cost["resumed"] is True
    assert (folder / "checkpoint").exists()


def test_a_need_whose_record_is_enough_is_not_run_again_for_its_model(toy, monkeypatch):
    """Its record is here, the folder of its run is not."""
    def folder_of_base():
        toy.executed.clear()
        run(experiment("toy-top").plan("smoke")[0], progress=False, force=True)
        return seen.pop()

    def top(config, context):
        record, folder = context.need(base)
        seen.append(folder)
        return Outcome({"seed": record.seed}, {"seed": "as a number"}, "top")

    seen, (base, *_) = [], toy.base.plan("smoke")
    run(base, progress=False)
    shutil.rmtree(paths.work() / "runs" / run_id(base))
    register(replace(toy.base, name="toy-top", execute=top, needs=lambda c: [base], models_of=lambda c: []))
    assert folder_of_base() is None
    assert [c.experiment for c in toy.executed] == []
    object.__setattr__(experiment("toy-top"), "models_of", None)
    assert folder_of_base() == paths.work() / "runs" / run_id(base)
    assert [c.experiment for c in toy.executed] == ["toy-base"]


def test_an_undeclared_need_is_refused(toy, monkeypatch):
    other = toy.base.plan("smoke", {"width": "9"})[0]
    monkeypatch.setattr(toy, "execute", lambda config, context: context.need(other))
    object.__setattr__(toy.experiment, "execute", toy.execute)
    with pytest.raises(ReproError, match="that is not in its"):
        run(toy.experiment.plan("smoke")[0], progress=False)


def test_force_runs_from_the_start_and_replaces_the_record(toy):
    config = toy.base.plan("smoke")[0]
    run(config, progress=False)
    leftover = paths.work() / "runs" / run_id(config) / "checkpoint"
    leftover.write_text("old")
    toy.noise = 1.0
    assert run(config, progress=False).metrics == {"loss": 3.0}
    assert run(config, progress=False, force=True).metrics == {"loss": 4.0}
    assert run(config, progress=False).metrics == {"loss": 4.0}
    assert not leftover.exists()


def test_results_go_to_another_folder_and_use_the_base_model_that_is_there(toy, tmp_path):
    run(toy.base.plan("smoke")[0], progress=False)
    record = run(toy.experiment.plan("smoke")[0], results=tmp_path / "elsewhere", progress=False)
    assert (tmp_path / "elsewhere" / "smoke" / "toy-recurrence" / f"{record.id}.json").exists()
    assert not (tmp_path / "elsewhere" / "smoke" / "toy-base").exists()
    assert len(toy.executed) == 2


def test_an_interrupted_run_keeps_its_folder(toy):
    config = toy.base.plan("smoke")[0]
    toy.noise = "killed"  # makes the run fail after it wrote to its folder
    with pytest.raises(TypeError):
        run(config, progress=False)
    toy.noise = 0.0
    assert run(config, progress=False).cost["resumed"] is True


@pytest.mark.parametrize(("outcome", "words"), [
    (Outcome({"loss": float("nan")}, {"loss": "nats"}, "base"), "not finite"),
    (Outcome({"loss": 1.0}, {"los": "nats"}, "base"), "these differ: los, loss"),
])
def test_bad_outcomes_leave_no_record(toy, outcome, words):
    object.__setattr__(toy.base, "execute", lambda config, context: outcome)
    config = toy.base.plan("smoke")[0]
    with pytest.raises(ReproError, match=words):
        run(config, progress=False)
    assert Store(paths.results("smoke")).get(config) is None


def test_two_processes_do_not_run_the_same_config_at_the_same_time(toy, tmp_path):
    log = tmp_path / "log"

    def slow(config, context):
        import time

        with log.open("a") as file:
            file.write("executed\n")
        time.sleep(0.5)
        return Outcome({"loss": 1.0}, {"loss": "nats"}, "base")

    object.__setattr__(toy.base, "execute", slow)
    config, fork = toy.base.plan("smoke")[0], multiprocessing.get_context("fork")
    processes = [fork.Process(target=run, args=(config, None, False)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert log.read_text() == "executed\n"


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library cannot be asked for it")
def test_a_process_that_keeps_freed_memory_gives_it_back_between_runs():
    tried = """
from repro.study.runner import give_back
def held():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
before = held()
some = [bytearray(4000 + k % 7 * 4000) for k in range(10_000)]
kept = some[::500]
del some
freed = held()
give_back()
print(before, freed, held())
"""
    settings = os.environ | {"MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_MMAP_MAX_": "0"}
    told = subprocess.run([sys.executable, "-c", tried], env=settings, capture_output=True, text=True, check=True)
    before, freed, after = map(float, told.stdout.split())
    assert freed - before > 100 and after - before < 30


@pytest.mark.parametrize("moment", ["record.json", "its record in the store"])
def test_a_kill_while_a_record_is_written_leaves_nothing_half_written(toy, monkeypatch, moment):
    class Killed(BaseException):
        pass

    config = toy.base.plan("small")[0]
    killed_at = "record.json" if moment == "record.json" else f"{run_id(config)}.json"
    put = os.replace

    def kill(temporary, path):
        if path.name == killed_at:
            raise Killed
        put(temporary, path)

    with monkeypatch.context() as patched:
        patched.setattr(paths.os, "replace", kill)
        with pytest.raises(Killed):
            run(config, progress=False)
    places = paths.results("small"), paths.work()
    assert [path for place in places for path in place.rglob(".*")]
    record = run(config, progress=False)
    assert not [path for place in places for path in place.rglob(".*")]
    assert Store(paths.results("small")).get(config) == record and record.cost["resumed"]
