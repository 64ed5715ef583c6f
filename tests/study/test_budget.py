"""A budget of time: the order of runs, what fits by a fake clock, and whole records after a stop or a kill."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import types

import pytest

from repro import paths
from repro.errors import ReproError
from repro.study import Claim, Measured, Record, Store, experiment, register, run
from repro.study.budget import Job, lacking, make, missing, ordered, rehearse, seconds_of, spend, with_needs
from repro.study.progress import TimeIsUp


class Clock:
    """A clock that only moves when a run is made. `takes` gives the seconds that each run really takes."""

    def __init__(self, takes):
        self.now, self.takes, self.made = 1_000.0, takes, []

    def __call__(self):
        return self.now

    def make(self, name, deadline):
        took = self.takes[name]
        if isinstance(took, Exception):
            raise took
        if self.now + took > deadline:
            self.now = deadline
            raise TimeIsUp
        self.now += took
        self.made.append(name)


def jobs_of(**seconds):
    return {name: Job(f"experiment-{name}", taken) for name, taken in seconds.items()}


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("12m", 720), ("1h30m", 5_400), ("2h", 7_200),
                                               ("1h1m1s", 3_661), ("1h1s", 3_601), (" 5m ", 300)])
def test_a_budget_is_hours_minutes_and_seconds(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "12", "0s", "0h0m", "-3m", "1.5h", "30m1h", "12 m", "m", "12min", "1d", "nan",
                                  "９m", "1m\n2s", "9999999s"])
def test_another_budget_is_refused_in_one_line(text):
    with pytest.raises(ReproError, match="such as 90s, 12m or 1h30m") as raised:
        seconds_of(text)
    assert "\n" not in str(raised.value)


def test_runs_that_decide_the_most_claims_come_first_then_the_shortest_then_the_first_declared():
    jobs = jobs_of(a=5.0, b=9.0, c=2.0, d=2.0, e=1.0, f=0.5)
    decides = {"one": ["a"], "two": ["b"], "three": ["b"], "four": ["d"], "five": ["c"]}
    assert ordered(jobs, decides, seconds=1_000) == ["b", "d", "c", "a", "f", "e"]
    assert ordered(jobs, dict(reversed(decides.items())), seconds=1_000) == ["b", "c", "d", "a", "f", "e"]


def test_a_set_counts_every_claim_that_it_decides_on_the_way():
    jobs = jobs_of(a=5.0, b=5.0, c=1.0)
    decides = {"c": ["c"], "a": ["a"], "b": ["b"], "both": ["a", "b"]}
    assert ordered(jobs, decides, seconds=1_000) == ["a", "b", "c"]


@pytest.mark.parametrize(("seconds", "first"), [(10.0, "big"), (9.99, "small")])
def test_a_set_that_fits_comes_before_one_that_decides_more_but_does_not(seconds, first):
    jobs = jobs_of(big=10.0, small=1.0)
    decides = {"one": ["big"], "two": ["big"], "three": ["small"]}
    assert ordered(jobs, decides, seconds)[0] == first


def test_runs_come_after_the_needs_that_they_share():
    jobs = {"deep": Job("deep", 1.0), "base": Job("base", 4.0, ("deep",)), "one": Job("tuned", 2.0, ("base",)),
            "two": Job("tuned", 2.0, ("base",)), "alone": Job("alone", 3.0)}
    decides = {"one": ["one"], "two": ["two"], "alone": ["alone"]}
    # alone is cheapest while one and two still have to pay for base; once base is chosen, two costs only itself
    assert ordered(jobs, decides, seconds=1_000) == ["alone", "deep", "base", "one", "two"]
    assert with_needs(jobs, ["two", "one"]) == ["deep", "base", "two", "one"]
    clock = Clock({name: job.seconds for name, job in jobs.items()})
    spend(jobs, ordered(jobs, decides, 1_000), 1_000, clock.make, clock)
    assert clock.made == ["alone", "deep", "base", "one", "two"], "each once"


def test_a_run_that_was_begun_continues_first_and_takes_what_is_left_of_it():
    jobs = jobs_of(valued=5.0, begun=100.0) | {"begun": Job("b", 100.0, spent=95.0)}
    order = ordered(jobs, {"one": ["valued"]}, seconds=10)
    assert order == ["begun", "valued"]
    assert rehearse(jobs, order, 10).finished == {"begun": 5.0, "valued": 5.0}
    assert "begun" in rehearse(jobs, order, 4.99).skipped
    over = {"begun": Job("b", 100.0, spent=130.0)}  # it takes longer than its estimate: it still continues
    assert rehearse(over, over, 1).finished == {"begun": 0.0}


def test_a_begun_run_that_cannot_be_finished_leaves_the_order_of_the_others_alone():
    jobs = {"begun": Job("a", 36_000.0, spent=10.0), "base": Job("b", 500.0), "long": Job("c", 5_000.0, ("base",)),
            "one": Job("d", 300.0)}
    decides = {"first": ["long"], "second": ["long"], "third": ["one"]}
    order = ordered(jobs, decides, seconds=720)
    assert order == ["one", "base", "long", "begun"]
    assert list(rehearse(jobs, order, 720).finished) == ["one"]


@pytest.mark.parametrize(("seconds", "order"), [(30.0, ["need", "begun", "valued"]),
                                                (29.9, ["valued", "need", "begun"])])
def test_a_begun_run_comes_first_where_it_and_its_needs_fit(seconds, order):
    jobs = {"begun": Job("a", 100.0, ("need",), spent=80.0), "need": Job("b", 10.0), "valued": Job("c", 1.0)}
    assert ordered(jobs, {"one": ["valued"]}, seconds) == order


def test_a_begun_run_whose_need_lacks_its_data_does_not_come_first():
    jobs = {"begun": Job("a", 9.0, ("need",), spent=8.0), "need": Job("b", 1.0, lacking="no data"),
            "one": Job("c", 5.0)}
    assert ordered(jobs, {"one": ["one"]}, seconds=60)[0] == "one"


def test_a_second_begun_run_comes_first_only_where_it_fits_beside_the_first():
    jobs = {"first": Job("a", 10.0, spent=4.0), "second": Job("b", 10.0, spent=5.0), "valued": Job("c", 4.0)}
    assert ordered(jobs, {"one": ["valued"]}, seconds=11) == ["first", "second", "valued"]
    assert ordered(jobs, {"one": ["valued"]}, seconds=10.9) == ["first", "valued", "second"]


@pytest.mark.parametrize(("left", "tried"), [(66.1, True), (65.9, False)])
def test_a_run_whose_time_was_lost_waits_for_a_tenth_more_however_fast_others_are(left, tried):
    """At a tenth of the estimates, 100 s become 32.5 s; but 60 s were not enough."""
    jobs = {"quick": Job("same", 60.0), "lost": Job("same", 100.0, lost=60.0)}
    clock = Clock({"quick": 6.0, "lost": 1.0})
    assert ("lost" in spend(jobs, jobs, 6 + left, clock.make, clock).finished) is tried


def test_a_claim_that_cannot_be_decided_here_gives_its_runs_no_value():
    jobs = {"here": Job("a", 1.0), "absent": Job("b", 1.0, lacking="its data is not here"), "other": Job("c", 0.5)}
    assert ordered(jobs, {"one": ["here", "absent"], "two": ["other"]}, 10)[0] == "other"
    assert rehearse(jobs, jobs, 10).skipped == {"absent": "its data is not here"}


@pytest.mark.parametrize(("left", "fits"), [(30.0, True), (29.999, False)])
def test_what_fits_exactly_is_made(left, fits):
    jobs = jobs_of(one=10.0, two=30.0)
    assert ("two" in rehearse(jobs, jobs, 10.0 + left).finished) is fits


def test_what_does_not_fit_is_skipped_and_what_comes_after_it_is_made():
    jobs = jobs_of(long=61.0, short=30.0, another=30.0)
    clock = Clock({name: job.seconds for name, job in jobs.items()})
    found = spend(jobs, jobs, 60, clock.make, clock)
    assert clock.made == ["short", "another"] and found.stopped is None
    assert found.skipped == {"long": "takes about 61 s, 0 s left"}


def test_estimates_follow_the_pace_of_finished_runs():
    """The first run takes 4 times its 60 s, so the pace of its experiment is (240 + 60 * 2.5) / 120 = 3.25, that of
    others (240 + 60) / 120 = 2.5: 100 s become 325 s and 250 s."""
    jobs = {"first": Job("same", 60.0), "alike": Job("same", 100.0), "other": Job("other", 100.0)}
    for left, made in ((325.1, "alike"), (324.9, "other"), (250.1, "other"), (249.9, None)):
        clock = Clock({"first": 240.0, "alike": left, "other": left})
        found = spend(jobs, jobs, 240 + left, clock.make, clock)
        assert clock.made == ["first", *filter(None, [made])], left
        assert not found.failed and found.stopped is None
    clock = Clock({"first": 6.0, "alike": 10.0, "other": 10.0})  # ten times as fast: (6 + 60 * .55) / 120 = 0.325
    assert spend(jobs, jobs, 60 + 32.5, clock.make, clock).finished == {"first": 6.0, "alike": 10.0, "other": 10.0}


def test_a_run_that_is_stopped_ends_the_budget_on_time():
    jobs = jobs_of(one=10.0, two=10.0, three=1.0)
    clock = Clock({"one": 10.0, "two": 50.0, "three": 1.0})
    lines = []
    found = spend(jobs, jobs, 30, clock.make, clock, lines.append)
    assert (found.stopped, clock.now) == ("two", 1_030.0)
    assert found.skipped == {"three": "takes about 1 s, 0 s left"}
    assert [found.state(name)[0] for name in jobs] == ["made", "stopped", "skipped"]
    assert lines == ["experiment-one took 10 s, 20 s left"]


def test_a_run_that_fails_takes_down_those_that_need_it_and_no_others():
    jobs = {"base": Job("base", 1.0), "tuned": Job("tuned", 1.0, ("base",)), "alone": Job("alone", 1.0),
            "broken": Job("broken", 1.0)}
    clock = Clock({"base": ReproError("it diverged."), "alone": 1.0, "tuned": 1.0, "broken": KeyError("x")})
    found = spend(jobs, jobs, 60, clock.make, clock)
    assert clock.made == ["alone"]
    assert found.failed == {"base": "it diverged.", "broken": "KeyError: 'x'"}
    assert found.skipped == {"tuned": "needs base, which failed"}
    assert found.state("base") == ("failed", "it diverged.")


def claim_of(id, where, seeds=3, **more):
    return Claim(id=id, paper="toy2020", sentence="It helps.", source="Table 1", experiment="toy-recurrence",
                 measure=lambda records: Measured([[-1.0, -1.2]] * 3), where=where, direction="lower", unit="book",
                 paper_effect=lambda: -3.0, why_no_control="a toy", why_no_assay="a toy", seeds=seeds, **more)


@pytest.fixture
def claimed(toy):
    """The toy study with a claim on two of its four runs, at three seeds, and one on a third run at one."""
    register(claim_of("toy-gain", lambda config: config.overlap == 0),
             claim_of("toy-same", lambda config: (config.model, config.overlap) == ("recurrent", 5), same_weights=True))
    return toy


def test_a_claim_lacks_the_runs_and_seeds_that_it_asks_for(claimed):
    from repro.study import claim

    def lacks(id):
        return [(config.model, config.seed) for config in lacking(claim(id), "small")]

    both = ("baseline", "recurrent")
    assert lacks("toy-gain") == [(model, seed) for seed in (0, 1, 2) for model in both]
    assert lacks("toy-same") == [("recurrent", 0)]
    for config in claimed.experiment.plan("small", {"overlap": 0, "model": "baseline"}, seeds=(0, 7)):
        run(config, progress=False)
    assert lacks("toy-gain") == [("recurrent", 0), ("baseline", 1), ("recurrent", 1), ("baseline", 2), ("recurrent", 2)]
    for config in claimed.experiment.plan("small", {"overlap": 0, "model": "recurrent"}, seeds=(7,)):
        run(config, progress=False)  # seed 7 is common: two more are enough
    assert lacks("toy-gain") == [("recurrent", 0), ("baseline", 1), ("recurrent", 1)]
    for config in claimed.experiment.plan("small", {"overlap": 0}, seeds=(0, 1)):
        run(config, progress=False)
    assert lacks("toy-gain") == []


def test_the_jobs_of_a_scale_are_its_missing_runs_and_the_seeds_of_claims_with_shared_needs(claimed):
    runs, jobs, decides = missing("small")
    base = claimed.base.plan("small")[0].key
    assert len(jobs) == 1 + 4 + 4  # the base model, four runs at seed 0, and two more seeds of two runs
    assert jobs[base] == Job("toy-base", 1.5)
    assert all(job.needs == (base,) and job.seconds == 2.5 for name, job in jobs.items() if name != base)
    assert {id: len(names) for id, names in decides.items()} == {"toy-gain": 6, "toy-same": 1}
    order = ordered(jobs, decides, 100)
    assert order[0] == base and runs[order[1]].overlap == 5, "one claim each, and this one takes less time"
    assert [runs[name].seed for name in order[2:]] == [0, 0, 1, 1, 2, 2, 0], "the run that decides nothing is last"
    run(claimed.base.plan("small")[0], progress=False)
    assert base not in missing("small")[1]
    (paths.work() / "runs").rename(paths.work() / "elsewhere")  # its weights are gone, and the others need them
    assert base in missing("small")[1]
    claimed.absent.add("toy-text")
    assert all("not on this machine" in job.lacking for name, job in missing("small")[1].items() if name != base)


def called(line):
    from typer.testing import CliRunner

    from repro import cli

    done = CliRunner().invoke(cli.main, line)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_the_command_makes_what_fits_and_the_next_one_continues(claimed, monkeypatch):
    code, out, err = called("run --budget 6s --scale small --dry-run")
    assert (code, err, claimed.executed) == (0, "", [])
    lines = [line for line in out.splitlines() if line.startswith("repro run")]
    assert len(lines) == 9 and [line.split("  ")[-1].strip() or line for line in lines][:2]
    assert "fits: in 2 s" in lines[0] and "toy-base" in lines[0]
    assert "--set model=recurrent --set overlap=5" in lines[1] and "fits" in lines[1]
    assert all("skipped: takes about 2 s, 2 s left" in line for line in lines[2:])
    assert out.splitlines()[-1] == "2 fits, 0 stopped, 7 skipped, 0 failed"
    told = json.loads(called("run --budget 1m --scale small --json")[1])
    assert (told["made"], told["skipped"], told["dry_run"]) == (9, 0, False)
    assert [row["claims"] for row in told["runs"]] == [2, 1, *[1] * 6, 0]
    assert len(Store.for_scale("small").find("toy-recurrence", "small")) == 8
    assert called("run --budget 1m --scale small")[1].splitlines()[0] == "small: 0 missing runs, 60 s"


def test_a_budget_of_one_experiment_takes_its_plan_and_what_it_needs(claimed):
    told = json.loads(called("run toy-recurrence --budget 1m --set overlap=0 --seed 3 --json")[1])
    assert [row["command"].split("--set")[0] for row in told["runs"]] == [
        "repro run toy-base --scale smoke", *["repro run toy-recurrence --scale smoke "] * 2]
    assert told["made"] == 3 and {config.seed for config in claimed.executed[1:]} == {3}


def test_a_failed_run_is_told_and_ends_in_exit_code_2(claimed, monkeypatch):
    def execute(config, context):
        raise ReproError("the loss is not finite.")

    object.__setattr__(claimed.base, "execute", execute)
    code, out, err = called("run --budget 1m")
    assert code == 2 and "needs toy-base, which failed" in out
    assert err.splitlines()[-1] == "repro: error: 1 of the runs failed, the first with: the loss is not finite."


@pytest.mark.parametrize(("line", "words"), [
    ("run --budget 12", "the budget '12' is not a duration above 0; write hours, minutes and seconds"),
    ("run toy-base --budget soon", "the budget 'soon' is not a duration"),
    ("run --budget 1m --scale smal", "unknown scale 'smal'. Did you mean 'small'?"),
    ("run --budget 1m --set overlap=5", "Missing argument 'EXPERIMENT' for --set"),
    ("run --budget 1m --seed 1", "Missing argument 'EXPERIMENT' for --seed"),
    ("run toy-base --budget 1m --force", "leave one of them out"),
    ("run toy-bsae --budget 1m", "Did you mean 'toy-base'?"),
    ("run", "Missing argument 'EXPERIMENT'")])
def test_bad_input_is_refused_in_one_line(claimed, line, words):
    code, out, err = called(line)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err and claimed.executed == []


def test_make_hands_a_budget_to_the_command():
    def lines(*words):
        return subprocess.run(["make", "--no-print-directory", "-n", "runs", "SCALE=small", *words], cwd=paths.home(),
                              check=True, capture_output=True, text=True).stdout.splitlines()

    assert lines("BUDGET=12m")[-1] == ".venv/bin/repro run --scale small --budget 12m"
    assert "snakemake runs" in lines()[-1]


def test_a_run_that_is_out_of_time_is_stopped_at_a_step_and_its_time_is_kept(claimed):
    steps = itertools.count(1)
    config = claimed.experiment.plan("smoke")[0]
    run(claimed.base.plan("smoke")[0], progress=False)
    with pytest.raises(TimeIsUp):
        make(config, None, lambda: next(steps) == 4, progress=False)
    assert next(steps) == 5 and Store.for_scale("smoke").get(config) is None
    spent = list((paths.work() / "runs").glob("*.spent"))
    assert len(spent) == 1 and all(float(one) >= 0 for one in spent[0].read_text().split())
    spent[0].write_text("2.0 0.5\n")
    job = missing("smoke")[1][config.key]
    assert (job.spent, job.lost) == (2.0, 0.5)
    make(config, None, lambda: False, progress=False)
    assert Store.for_scale("smoke").get(config) and not list((paths.work() / "runs").glob("*.spent"))


@pytest.fixture
def timed(claimed, monkeypatch):
    """The claimed toy study on a clock of its own. budget(seconds) spends a budget on two runs of 10 steps: one takes
    0.4 s a step, the other 0.1 s, and both are estimated at 2.5 s. The slow one writes a checkpoint at the steps in
    `saves`, but does not read it."""
    slow, quick = claimed.experiment.plan("smoke")[:2]
    run(claimed.base.plan("smoke")[0], progress=False)
    self = types.SimpleNamespace(now=1_000.0, saves=set(), slow=slow, quick=quick)
    clock, execute = lambda: self.now, claimed.experiment.execute
    monkeypatch.setattr("repro.study.budget.time", types.SimpleNamespace(time=clock, monotonic=clock))

    def steps(config, context):
        with context.progress(10, "evaluating") as bar:
            for step in range(1, 11):
                self.now += 0.4 if config == slow else 0.1
                if config == slow and step in self.saves:
                    (context.folder / "checkpoint.pt").write_text("")
                    os.utime(context.folder / "checkpoint.pt", (self.now, self.now))
                bar.advance()
        return execute(config, context)

    def budget(seconds):
        runs, jobs, _ = missing("smoke", only=[slow, quick])
        found = spend(jobs, ordered(jobs, {}, seconds), seconds, lambda name, deadline: make(
            runs[name], None, lambda: self.now >= deadline, progress=False), clock)
        assert not found.failed
        return found

    object.__setattr__(claimed.experiment, "execute", steps)
    self.budget = budget
    return self


def test_a_run_without_a_checkpoint_does_not_take_every_budget_from_the_others(timed):
    assert timed.budget(3).stopped == timed.slow.key, "of two equal estimates it is the first declared"
    second = timed.budget(3)
    assert list(second.finished) == [timed.quick.key] and second.stopped is None
    assert timed.budget(3).skipped == {timed.slow.key: "takes about 4 s, 3 s left"}
    assert list(timed.budget(5).finished) == [timed.slow.key]


@pytest.mark.parametrize(("saves", "kept", "lost"), [((), 0.0, 3.2), ((3,), 1.2, 2.0), ((3, 5), 2.0, 1.2),
                                                     ((8,), 3.2, 0)])
def test_time_up_to_the_last_checkpoint_counts_and_time_after_it_is_lost(timed, saves, kept, lost):
    timed.saves = set(saves)
    assert timed.budget(3.1).stopped == timed.slow.key  # at the end of its eighth step
    job = missing("smoke")[1][timed.slow.key]
    assert (job.spent, job.lost) == pytest.approx((kept, lost), abs=1e-3)


def test_a_checkpoint_of_an_earlier_budget_is_counted_once(timed):
    timed.saves = {3}
    timed.budget(3.1)
    timed.saves = set()
    with pytest.raises(TimeIsUp):
        make(timed.slow, None, lambda: True, progress=False)  # at its first step
    job = missing("smoke")[1][timed.slow.key]
    assert (job.spent, job.lost) == pytest.approx((1.2, 2.0), abs=1e-3), "the longer of both losses"


def test_training_stopped_at_any_step_continues_to_the_same_record(tmp_path, monkeypatch):
    """Stopped by a clock at two steps, far from any validation, a run ends in the record of an undisturbed one."""
    sets = {"tokens": "10240", "validate_every": "5120", "n_embd": "16"}
    config = experiment("pretrain-gpt2-mini").plan("smoke", sets)[0]
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "one"))
    whole = run(config, tmp_path / "whole", progress=False)
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "two"))
    for stop in (2, 3):
        asked = itertools.count(1)  # twice a step: whether to write a checkpoint, and whether to stop
        with pytest.raises(TimeIsUp):
            make(config, tmp_path / "stopped", lambda asked=asked, n=2 * stop: next(asked) > n, progress=False)
        spent, lost = map(float, next((tmp_path / "two").rglob("*.spent")).read_text().split())
        assert spent > lost, "its checkpoint keeps nearly all of its time"
        assert not list((tmp_path / "stopped").rglob("*.json"))
        assert list((tmp_path / "two").rglob("checkpoint.pt"))
    again = run(config, tmp_path / "stopped", progress=False)
    assert again.digest == whole.digest and again.cost["resumed"]


COUNTED = "import repro.papers.example; from repro.cli import main; main()"


def test_a_budget_killed_at_random_moments_leaves_whole_records_and_the_next_continues(tmp_path):
    """SIGKILL at a random moment, and once a record is there: every record is whole, and none is made twice."""
    environment = {**os.environ, "REPRO_WORK": str(tmp_path / "work"), "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, "-c", COUNTED, "run", "counted-words", "--budget", "10m", "--results",
             str(tmp_path / "results")]

    def records():
        return {path: Record.read(path).cost["created"] for path in (tmp_path / "results").rglob("*.json")
                if path.name[0] != "."}

    def killed(seen):
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not seen(process):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        return records()

    def after_a_moment(process):
        try:
            return process.wait(timeout=random.uniform(0.5, 5)) is not None
        except subprocess.TimeoutExpired:
            return True

    first = killed(after_a_moment)
    second = killed(lambda process: records().keys() - first.keys())
    assert second and first.items() <= second.items()
    subprocess.run(words, env=environment, check=True, capture_output=True)
    last = records()
    assert len(last) == 3 and second.items() <= last.items()
