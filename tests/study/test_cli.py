"""The command line: what it prints, and how it refuses."""

import json
import os
import shutil
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import repro.data
from repro import cli, doctor, paths
from repro.data.apart import Dropped
from repro.errors import ReproError
from repro.study import Artifact, Claim, Experiment, Measured, Store, register, registry, run
from repro.study.plan import point


@pytest.fixture
def repro_(toy):
    """Calls the command line on the toy study; gives (exit code, stdout, stderr)."""
    register(Artifact("toy-table", "toy2020", "Toy table", "06_toy", "toy-recurrence", build, "Table 1"),
             Claim(id="toy-gain", paper="toy2020", sentence="It helps.", source="Table 1", experiment="toy-recurrence",
                   measure=lambda records: Measured([[-1.0, -1.2, -1.1]]), where=lambda c: c.overlap == 0,
                   direction="lower", unit="book", paper_effect=lambda: -3.0, why_no_control="a toy",
                   why_no_assay="a toy", about=("toy-table",)))

    def call(line):
        done = CliRunner().invoke(cli.main, line)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr

    return call


def build(context):
    import pandas

    return pandas.DataFrame([{"overlap": overlap, "paper": "29.00", "ours": context.value(
        "test_word_perplexity", model="baseline", overlap=overlap)} for overlap in (0, 5)])


def test_list(repro_, toy):
    for config in toy.experiment.plan("smoke", {"overlap": "0"}):
        run(config, progress=False)
    code, out, err = repro_("list")
    assert (code, err) == (0, "")
    for words in ("toy-base", "toy-table", "toy-gain", "smoke 2/4", "smoke 2/2"):
        assert words in out
    assert next(line for line in out.splitlines() if line.startswith("toy-table ")).split() == [
        "toy-table", "table", "06", "Table", "1", "smoke", "2/4", "not", "run"]
    assert out.splitlines()[-1] == "2 experiments, 1 artifacts, 1 claims: 1 not run"
    only = repro_("list toy2020 TABLE smoke 06_toy")[1].splitlines()
    assert [line.split()[0] for line in only if line.startswith("toy")] == ["toy-table", "toy-gain"]
    assert only[-1] == "0 experiments, 1 artifacts, 1 claims: 1 not run"
    base, _ = json.loads(repro_("list --json")[1])["experiments"]
    assert json.loads(repro_("list toy-base --json")[1]) == {"experiments": [base], "artifacts": [], "claims": []}
    by_name = json.loads(repro_("list toy-recurrence --json")[1])
    assert [len(by_name[kind]) for kind in ("experiments", "artifacts", "claims")] == [1, 1, 1]
    for words in ("claim 'not run'", "claim Not run", "claim Gain"):
        assert repro_(f"list {words}")[1].splitlines()[-1].startswith("0 experiments, 0 artifacts, 1 claims")
    for words in ("claim small", "'not reproduced'", "not reproduced", "toy-table toy-gain"):
        assert repro_(f"list {words}")[1].splitlines()[-1] == "0 experiments, 0 artifacts, 0 claims"
    assert "machinery works at smoke" not in out  # generated text is no evidence about a paper
    listed = json.loads(repro_("list --json")[1])
    assert [one["name"] for one in listed["experiments"]] == ["toy-base", "toy-recurrence"]
    (table,), (claim,) = listed["artifacts"], listed["claims"]
    assert (table["paper"], table["id"], table["chapter"], table["verdict"], table["verdict_scale"]) == (
        "toy2020", "toy-table", "06_toy", "not run", None)
    assert claim["chapter"] == "06_toy"
    assert table["scales"]["smoke"]["verdict"] == "machinery works"
    assert table["scales"]["smoke"]["done"] == 2
    assert table["scales"]["smoke"]["planned"] == 4
    told = claim["scales"]["smoke"]
    assert told["text"] == "-1.1 [-1.35, -0.852]" and not told["exact"]
    assert (told["seeds"], told["units"], told["paper_effect"], told["room"]) == (1, 3, -3.0, None)
    assert (told["low"], told["high"], told["detectable"]) == pytest.approx((-1.34841, -0.85159, 0.16166), abs=1e-5)
    assert "why_no_paper_effect" not in told
    missing = claim["scales"]["small"]
    assert (missing["verdict"], missing["seeds"], missing["low"], missing["paper_effect"]) == ("not run", 0, None, -3.0)
    run(toy.experiment.plan("small")[0], progress=False)  # one of two: no verdict at this scale yet
    assert json.loads(repro_("list --json")[1])["claims"][0]["verdict_scale"] is None


def test_a_table_never_breaks_an_id(monkeypatch, capsys):
    id, words = "paper2020-table10-of-something-rather-long", "and then some " * 40
    monkeypatch.setattr(cli, "_console", lambda: Console(width=80, force_terminal=True, color_system=None))
    cli._print_table("Told", ["id", "about", "more"], [[id, words, words]])
    out = capsys.readouterr().out
    assert id in out and max(map(len, out.splitlines())) == 80
    monkeypatch.undo()  # what is no terminal gets a row as one line without frames
    cli._print_table("Told", ["id", "about", "more"], [[id, words, words]])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["Told", "id", id]


def test_run_prints_metrics_and_leaves_records(repro_, toy, tmp_path):
    code, out, err = repro_(f"run toy-recurrence --set overlap=5,7 --set model=baseline --results {tmp_path / 'mine'}")
    assert (code, err) == (0, "")
    for config in toy.experiment.plan("smoke", {"overlap": [5, 7], "model": "baseline"}):
        record = Store(tmp_path / "mine").get(config)
        assert record.id in out
        assert f"{record.metrics['test_word_perplexity']:.1f}" in out
    assert "overlap=7" in out
    assert "test word perplexity" in out and "per word" in out
    assert not (tmp_path / "build" / "results").exists()
    where, show = out.splitlines()[-2:]
    assert where == f"Records are in {tmp_path}/mine/smoke/toy-recurrence"
    line = show.partition("repro ")[2]
    assert show == f"Show them with: repro {line}"
    assert line.startswith("show toy-table --scale smoke --set overlap=5,7 ")
    assert "29.50" in repro_(line)[1]
    planned = repro_(f"run toy-recurrence --set model=baseline --seed 1 --results {tmp_path / 'mine'}")[1]
    assert "show toy-table --scale smoke --results" in planned  # the table compares both models


def test_a_run_into_a_folder_of_ones_own_takes_what_it_needs_from_where_it_is(repro_, toy, tmp_path):
    """Also where the model itself has to be made again: its record is not written a second time."""
    base = run(toy.base.plan("smoke")[0], progress=False)
    rows = [line.split() for line in repro_(f"run toy-recurrence --scale smoke --dry-run --results {tmp_path}/mine")[
        1].splitlines() if "needed:" in line]
    assert [row[0] for row in rows] == [base.id] and rows[0][-1] == "done"
    shutil.rmtree(tmp_path / "work")
    repro_(f"run toy-recurrence --set overlap=1 --set model=baseline --results {tmp_path}/mine")
    assert [path.parent.name for path in (tmp_path / "mine").rglob("*.json")] == ["toy-recurrence"]
    (record,) = Store(tmp_path / "mine").find("toy-recurrence", "smoke")
    assert record.needs == {base.id: base.digest}
    shutil.rmtree(tmp_path / "build")  # nothing is there: what is needed goes into the folder too
    repro_(f"run toy-recurrence --set overlap=2 --set model=baseline --results {tmp_path}/new")
    assert {path.parent.name for path in (tmp_path / "new").rglob("*.json")} == {"toy-base", "toy-recurrence"}


@pytest.mark.parametrize(("value", "told"), [
    (353_575.0, "353,575"), (6.48186, "6.4819"), (1234.5, "1,234"), (0.5, "0.5"), (3.0, "3"),
    (0.00012345678, "0.00012346")])
def test_numbers_of_a_run_are_told_for_readers(value, told):
    assert cli._number(value) == told


def test_run_json_seeds_only_and_force(repro_, toy):
    records = json.loads(repro_("run toy-base --seed 0,1 --seed 4 --json")[1])
    assert [record["seed"] for record in records] == [0, 1, 4]
    toy.noise = 1.0
    again = json.loads(repro_(f"run toy-base --seed 0,1,4 --only {records[1]['id']} --json")[1])
    assert again == records[1:2]
    only = f"--only {records[1]['id']}"
    assert json.loads(repro_(f"run toy-base --seed 0,1,4 {only} {only} --json")[1]) == records[1:2]
    forced = json.loads(repro_(f"run toy-base --seed 0,1,4 --only {records[1]['id']} --json --force")[1])
    assert forced[0]["metrics"] == {"loss": 4.0}
    assert Store.for_scale("smoke").get(toy.base.plan("smoke")[0]).metrics == {"loss": 3.0}


def test_dry_run_says_what_would_run_and_runs_nothing(repro_, toy):
    shown = [repro_(f"run toy-recurrence --dry-run{given}") for given in ("", " --scale small")]
    assert {(code, err) for code, _, err in shown} == {(0, "")} and toy.executed == []
    for scale, (_, out, _) in zip(("smoke", "small"), shown, strict=True):
        assert f"toy-recurrence at {scale}: 4 runs and 1 that they need; to do: " in out and out.count("; to do: ") == 1
    named = "toy-recurrence has other scales: small. To see the runs of one: --scale SCALE.\n"
    assert shown[0][1].endswith(named) and "other scales" not in shown[1][1]
    out = "".join(out for _, out, _ in shown)
    # at each scale: the base model (1.5 s, 6e2 * width FLOPs) and four runs of 2.5 s and 4.8e3 FLOPs
    assert "2.40e+04 FLOPs, 12 s of computing on one CPU core" in out
    assert "2.88e+04 FLOPs, 12 s of computing on one CPU core" in out
    assert out.count("needed: toy-base") == 2
    assert "data toy-text: part of toy: 1 of 9 texts; on this machine" in out
    assert out.count("model=recurrent overlap=5") == 2


def test_dry_run_json_names_ids_commands_needs_and_what_is_done(repro_, toy):
    done = run(toy.experiment.plan("small")[1], progress=False)
    # the base model and one of four runs are done: three times 2.5 s and 4.8e3 FLOPs are left
    assert "1.44e+04 FLOPs, 8 s" in repro_("run toy-recurrence --scale small --dry-run")[1]
    rows = json.loads(repro_("run toy-recurrence --scale small --dry-run --json")[1])
    assert [row["done"] for row in rows] == [False, True, False, False]
    assert [row["state"] for row in rows] == ["to do", "done", "to do", "to do"]
    assert rows[1]["id"] == done.id
    assert rows[1]["config"] == done.config
    assert rows[1]["command"] == "repro run toy-recurrence --scale small --set model=baseline --set overlap=5"
    assert rows[1]["needs"] == ["repro run toy-base --scale small"]
    assert rows[1]["estimate"] == {"parameters": 8, "training_tokens": 100, "flops": 4800.0, "memory_bytes": 32,
                                   "seconds": 2.5, "note": ""}
    assert {row["config"]["scale"] for row in json.loads(repro_("run toy-recurrence --dry-run --json")[1])} == {
        "smoke"}
    (only,) = json.loads(repro_(f"run toy-recurrence --dry-run --json --only {done.id}")[1])
    assert only["config"]["scale"] == "small"


def test_dry_run_shows_the_first_scale_of_an_experiment_without_smoke(repro_, toy):
    scales = {name: one for name, one in toy.base.scales.items() if name != "smoke"}
    registry.declared(Experiment)["toy-base"] = replace(toy.base, scales=scales)
    out = repro_("run toy-base --dry-run")[1]
    assert "toy-base at small: " in out and "other scales" not in out


def test_dry_run_counts_a_base_model_whose_weights_are_gone(repro_, toy):
    run(toy.experiment.plan("small")[1], progress=False)
    line = "run toy-recurrence --scale small --dry-run"
    # three runs of 4.8e3 FLOPs, and none for the base model: its weights lie in the work folder
    assert "1.44e+04 FLOPs, 8 s" in repro_(line)[1] and "to do again" not in repro_(line)[1]
    shutil.rmtree(paths.work())
    out = repro_(line)[1]
    assert "2.40e+04 FLOPs, 9 s" in out and out.count("to do again: its weights are missing") == 1
    for config in toy.experiment.plan("small"):
        run(config, progress=False)
    shutil.rmtree(paths.work())
    assert "to do again" not in repro_(line)[1]  # nobody wants them
    assert len([config for config in toy.executed if config.experiment == "toy-base"]) == 2


def test_dry_run_counts_what_a_base_model_needs_to_be_made_again(repro_, toy):
    first = replace(toy.base, name="toy-first")
    registry.declared(Experiment)["toy-first"] = first
    object.__setattr__(toy.base, "needs", lambda config: first.plan(config.scale))
    run(toy.experiment.plan("small")[1], progress=False)
    line = "run toy-recurrence --scale small --dry-run"
    assert "to do again" not in repro_(line)[1]
    shutil.rmtree(paths.work())
    assert repro_(line)[1].count("to do again: its weights are missing") == 2


def test_dry_run_with_force_counts_what_is_done(repro_, toy):
    run(toy.experiment.plan("small")[1], progress=False)
    line = "run toy-recurrence --scale small --dry-run --force"
    assert "1.92e+04 FLOPs, 10 s" in repro_(line)[1]  # all four, and not their base model
    rows = json.loads(repro_(f"{line} --json")[1])
    assert {row["state"] for row in rows} == {"to do"}
    for config in toy.experiment.plan("small"):
        run(config, progress=False)
    shutil.rmtree(paths.work())
    assert repro_(line)[1].count("to do again: its weights are missing") == 1


def test_dry_run_says_why_a_record_does_not_count(repro_, toy):
    run(toy.experiment.plan("small")[1], progress=False)
    toy.noise = 1.0
    run(toy.base.plan("small")[0], progress=False, force=True)
    row = json.loads(repro_("run toy-recurrence --scale small --dry-run --json")[1])[1]
    assert row["done"] is False
    assert row["state"].startswith("stale: built on another result of toy-base")


def test_a_further_corpus_that_is_read_is_named(repro_, toy):
    object.__setattr__(toy.base, "reads", lambda config: ("toy-text",))
    assert "data toy-text: part of toy: 1 of 9 texts; on this machine" in repro_("run toy-base --dry-run")[1]


def test_dry_run_without_the_data(repro_, toy):
    done = run(toy.experiment.plan("small")[1], progress=False)
    toy.absent |= {"toy-text", "toy-books"}
    rows = json.loads(repro_("run toy-recurrence --scale small --dry-run --json")[1])
    assert [row["id"] for row in rows] == [None, done.id, None, None]
    out = repro_("run toy-recurrence --scale small --dry-run")[1]
    assert "part of toy: 1 of 9 texts; not here, get it somewhere" in out
    assert done.id in out
    assert " id " not in repro_("run toy-recurrence --scale smoke --dry-run")[1]  # no run of it has one


def test_dry_run_tells_needed_runs_apart_and_what_paper_scale_wants(repro_, toy):
    estimate = replace(toy.base.estimate(toy.base.plan("smoke")[0]), note="(taken as it is)")
    base = replace(toy.base, scales={**toy.base.scales, "paper": {"corpus": "toy-books"}}, estimate=lambda c: estimate)
    changed = replace(toy.experiment, scales={**toy.experiment.scales, "paper": {"corpus": "toy-text"}},
                      needs=lambda c: base.plan(c.scale, {"width": [4, 8], "seed": [1, 2]}))
    registry.declared(Experiment).update({"toy-base": base, "toy-recurrence": changed})
    out = repro_("run toy-recurrence --scale paper --dry-run")[1]
    assert "4 runs and 4 that they need; to do: 3.84e+04 FLOPs, 16 s of computing on one GPU" in out
    for words in ("seed=1 width=4", "seed=1 width=8", "seed=2 width=4", "seed=2 width=8"):
        assert f"needed: toy-base {words} (taken as it is)" in out
    assert "data toy-text: part of toy: 1 of 9 texts; on this machine" in out
    assert "data toy-books: whole; on this machine" in out


def test_a_run_is_told_by_the_fewest_keys_that_tell_it_apart(toy):
    plan = [config for model, rate in (("baseline", 1e-3), ("recurrent", 1e-2), ("recurrent", 1e-3))
            for config in toy.experiment.plan("smoke", {"model": model, "overlap": 0, "rate": rate,
                                                        "share": rate, "limit": None if rate == 1e-2 else 3})]
    assert [point(config, plan) for config in plan] == [
        "model=baseline rate=0.001", "model=recurrent rate=0.01", "model=recurrent rate=0.001"]
    assert point(plan[0], plan[:1]) == ""
    open_ends = [config.model_copy(update={"rate": 1e-3, "limit": limit}) for config in plan[:1] for limit in (None, 3)]
    assert [point(config, open_ends) for config in open_ends] == ["", "limit=3"]


def test_dry_run_tells_every_setting_of_every_run(toy):
    """Those that all share once, and for each run those that the table does not show."""
    plan = [config for model, rate in (("baseline", 1e-3), ("recurrent", 1e-2))
            for config in toy.experiment.plan("smoke", {"model": model, "overlap": 0, "rate": rate, "limit": None})]
    common, *own = cli._settings(plan)
    assert common.startswith("settings of every run: ") and "overlap=0" in common and "rate" not in common
    assert own == ["settings of model=baseline: rate=0.001", "settings of model=recurrent: rate=0.01"]
    more = [*plan, *toy.experiment.plan("smoke", {"model": "baseline", "overlap": 5, "rate": 1e-3, "limit": None})]
    assert cli._settings(more)[1:] == ["settings of model=baseline overlap=0 and 1 more: rate=0.001",
                                       "settings of model=recurrent overlap=0: rate=0.01"]
    assert len(cli._settings(plan[:1])) == 1


def test_show(repro_, toy, tmp_path):
    code, out, err = repro_("show toy-table")
    assert (code, err) == (0, "")
    assert out.count("29.00") == 2
    assert "repro run toy-recurrence --scale smoke" in out
    run(toy.experiment.plan("small")[0], progress=False)
    shown = json.loads(repro_(f"show toy-table --scale small --json --save {tmp_path / 'table.csv'}")[1])
    assert shown["rows"] == [{"overlap": 0, "paper": 29.0, "ours": 30.0},
                             {"overlap": 5, "paper": 29.0, "ours": "not run"}]
    assert (tmp_path / "table.csv").read_text() == "overlap,paper,ours\n0,29.00,30.00\n5,29.00,not run\n"


def test_the_records_of_ones_own_are_shown_without_the_scales_that_they_lack(repro_, toy, tmp_path):
    import pandas

    register(Artifact("toy-scales", "toy2020", "Scales", "06_toy", "toy-recurrence", lambda context: pandas.DataFrame(
        {"scale": list(context.scales)}), "Table 2"))
    assert "small" in repro_("show toy-scales")[1]
    own = repro_(f"show toy-scales --results {tmp_path}")[1]
    assert "smoke" in own and "small" not in own


def test_show_a_claim(repro_, toy):
    records = [run(config, progress=False).id for config in toy.experiment.plan("smoke", {"overlap": "0"})]
    run(toy.experiment.plan("small")[0], progress=False)
    code, out, err = repro_("show toy-gain")
    assert (code, err) == (0, "")
    for words in ("It helps.", "toy-gain: Table 1 of toy2020", "machinery works", "-1.1 [-1.35, -0.852]",
                  " ".join(records),
                  "1 of 2 runs missing: repro run toy-recurrence --scale small --set model=recurrent --set overlap=0"):
        assert words in out
    told = json.loads(repro_("show toy-gain --scale smoke --json")[1])
    verdict, = told.pop("verdicts")
    assert told == {"id": "toy-gain", "sentence": "It helps.", "paper": "toy2020", "source": "Table 1",
                    "criterion_before": ""}
    assert (verdict["scale"], verdict["verdict"], verdict["effect"], verdict["seeds"], verdict["records"]) == (
        "smoke", "machinery works", pytest.approx(-1.1), 1, records)
    assert [row["verdict"] for row in json.loads(repro_("show toy-gain --json")[1])["verdicts"]] == [
        "machinery works", "not run"]


@pytest.mark.parametrize(("line", "words"), [
    ("run toy-recurence", "unknown experiment 'toy-recurence'. Did you mean 'toy-recurrence'?"),
    ("run toy-recurrence --scale smal", "unknown scale 'smal'. Did you mean 'small'?"),
    ("run toy-recurrence --set overlop=5", "unknown key of toy-recurrence 'overlop'. Did you mean 'overlap'?"),
    ("run toy-recurrence --set overlap=300", "overlap 300 must be smaller than window 300"),
    ("run toy-recurrence --set overlap=x", "overlap is 'x'; it must be a whole number."),
    ("run toy-recurrence --set corpus=toy-texts", "unknown corpus 'toy-texts'. Did you mean 'toy-text'?"),
    ("run toy-recurrence --set overlap", "--set overlap: write KEY=VALUE"),
    ("run toy-recurrence --set overlap=1 --set overlap=2", "--set overlap is given twice"),
    ("run toy-recurrence --seed one", "seeds must be whole numbers"),
    ("run toy-recurrence --only 0123", "unknown run of toy-recurrence '0123'"),
    ("run toy-recurrence --scael smoke", "No such option: --scael"),
    ("list toy-tabel", "unknown word 'toy-tabel'. Did you mean 'toy-table'?"),
    ("list tabel", "unknown word 'tabel'. Did you mean 'table'?"),
    ("list --results nowhere", "Invalid value for '--results': dir 'nowhere' does not exist."),
    ("show toy-table --results nowhere", "Invalid value for '--results': dir 'nowhere' does not exist."),
    ("run", "Missing argument 'EXPERIMENT'"),
    ("run toy-base --results pyproject.toml", "dir 'pyproject.toml' is a file."),
    ("run toy-base --scale ''", "unknown scale ''"),
    ("run --budget 1m --scale ''", "unknown scale ''"),
    ("show toy-table --scale ''", "unknown scale ''"),
    ("show toy-gain --scale ''", "unknown scale ''"),
    ("list --results pyproject.toml", "dir 'pyproject.toml' is a file."),
    ("rnu toy-recurrence", "No such command 'rnu'. Did you mean 'run'?"),
    ("show toy-tabel", "unknown artifact or claim 'toy-tabel'. Did you mean 'toy-table'?"),
    ("show toy-gian", "unknown artifact or claim 'toy-gian'. Did you mean 'toy-gain'?"),
    ("show toy-gain --scale smal", "unknown scale 'smal'. Did you mean 'small'?"),
    ("show toy-gain --save gain.csv", "toy-gain is a claim"),
    ("show toy-table --save table.png", "--save table.png: toy-table is a table; give a file name ending in .csv."),
    ("show toy-gain --set overlap=5", "--set overlap=5: toy-gain is a claim"),
    ("show toy-table --set overlop=5", "unknown key of toy-recurrence 'overlop'. Did you mean 'overlap'?"),
    ("show toy-table --scale paper", "unknown scale of toy-recurrence 'paper'"),
    ("data check toy-txt", "unknown corpus 'toy-txt'. Did you mean 'toy-text'?"),
    ("data fetch toy-txt", "unknown corpus 'toy-txt'. Did you mean 'toy-text'?"),
    ("data chekc toy-text", "No such command 'chekc'. Did you mean 'check'?"),
    ("", "Missing command."),
])
def test_bad_input_is_told_in_one_line_with_exit_code_2(repro_, toy, line, words):
    code, out, err = repro_(line)
    assert (code, out) == (2, "")
    assert err.startswith("repro: error: ")
    assert words in err
    assert err.count("\n") == 1
    assert toy.executed == []


def test_an_error_is_one_line_even_where_the_input_is_not(repro_):
    code, _, err = repro_(["run", "toy\nbase"])
    assert (code, err.count("\n")) == (2, 1)


def test_a_damaged_record_stops_the_command(repro_, toy):
    record = run(toy.base.plan("smoke")[0], progress=False)
    path = Store.for_scale("smoke").path(record)
    path.write_text(path.read_text()[:100])
    code, out, err = repro_("run toy-base")
    assert (code, out) == (2, "")
    assert f"{path} is not a complete record" in err


@pytest.mark.parametrize("change", [
    {"cost": None}, {"cost": 3}, {"carried_from": None}, {"seed": 7}, {"metrics": []}, {"extra": 1}, {"schema": "x"},
    "[" * 100_000, "null", "[]", ""], ids=lambda change: str(change)[:20])
def test_a_record_that_was_changed_is_told_in_one_line_by_every_command_that_reads_it(repro_, toy, change):
    path = Store.for_scale("smoke").path(run(toy.base.plan("smoke")[0], progress=False))
    path.write_text(change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change))
    for line in ("run toy-base", "run toy-base --budget 1m --dry-run", "run toy-base --dry-run"):
        code, out, err = repro_(line)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert str(path) in err


LEFT_OUT = [("book 7", 3, 1_200, "held-out 1"), ("book 9", 0, 15, "title"), ("book 7", 5, 34, "held-out 2")]


@pytest.fixture
def corpora(monkeypatch):
    """One whole corpus, one with a book too few, one not here, one generated. Gives what was fetched."""
    row, fetched = types.SimpleNamespace, []
    words = {"test": row(description="the test set", n_words=20, n_examples=None)}
    examples = {"test": row(description="the test set", n_words=None, n_examples=1_070)}

    def corpus(name, rows, source="hub/toy", here=True, kind="text", splits=words):
        def fetch(folder):
            if name == "broken":
                raise ReproError("broken cannot be fetched.")
            fetched.append((name, folder))

        return row(name=name, content_kind=kind, source=source, licence="CC0", part_of=None, splits=splits,
                   available=lambda: here, check=lambda: rows, fingerprint=lambda: "f00d" * 16, fetch=fetch,
                   dropped=lambda split: [Dropped(*one) for one in LEFT_OUT] if name == "made" else [],
                   origin=None if name in ("made", "absent") else "hub", generator=name == "made", layout=["a.txt"],
                   way=f"the way to {name}")

    good = row(split="test", what="words", expected=1234, found=1234, ok=True)
    bad = row(split="test", what="documents", expected=3, found=2, ok=False)
    every = [corpus("whole", [good]), corpus("broken", [good, bad]),
             corpus("absent", [], here=False, kind="question", splits=examples),
             corpus("made", [good], source="embedded")]
    monkeypatch.setattr(repro.data, "corpora", lambda: every)
    monkeypatch.setattr(repro.data, "corpus", {one.name: one for one in every}.get)
    return fetched


def test_data_list_and_check(repro_, corpora):
    code, out, _ = repro_("data list")
    assert code == 0
    assert all(name in out for name in ("whole", "broken", "absent", "question"))
    assert max(map(len, out.splitlines())) <= 80
    shown = repro_("data show absent")[1].splitlines()
    assert "source: hub/toy" in shown and any(line.startswith("split test: 1,070 examples") for line in shown)
    rows = json.loads(repro_("data list --json")[1])
    assert [row["available"] for row in rows] == [True, True, False, True]
    assert [row["kind"] for row in rows] == ["text", "text", "question", "text"]
    assert [(row["fetch"], row["files"]) for row in rows] == [(one, ["a.txt"]) for one in (True, True, False, False)]
    assert [row["splits"]["test"]["examples"] for row in rows] == [None, None, 1_070, None]
    code, out, err = repro_("data check whole")
    assert (code, err) == (0, "")
    assert out.count("1,234") == 2
    code, out, err = repro_("data check broken")
    assert code == 2
    assert "WRONG" in out
    assert err == ("repro: error: broken is incomplete: 2 documents in test instead of 3. "
                   "To fix it: the way to broken.\n")
    assert json.loads(repro_("data check whole --json")[1])["rows"][0]["found"] == 1234


def test_data_check_tells_what_is_left_out(repro_, corpora):
    code, out, _ = repro_("data check made")
    assert code == 0
    lines = [line.replace("│", " ").split() for line in out.splitlines() if "book" in line]
    assert lines == [["test", "book", "7", "2", "1,234", "held-out", "1,", "held-out", "2"],
                     ["test", "book", "9", "1", "15", "title"]]
    told = json.loads(repro_("data check made --json")[1])["left_out"]
    assert told[0] == {"split": "test", "document": "book 7", "passage": 3, "n_words": 1_200,
                       "shared_with": "held-out 1"}
    assert len(told) == 3
    assert "Left out" not in repro_("data check whole")[1]


def test_data_fetch(repro_, corpora, tmp_path):
    assert repro_("data fetch made")[:2] == (0, "made is generated by the library; there is nothing to fetch.\n")
    assert repro_("data fetch absent")[0] == 0
    assert repro_(f"data fetch absent {tmp_path}")[0] == 0
    assert corpora == [("absent", None), ("absent", tmp_path)]
    assert repro_("data fetch broken") == (2, "", "repro: error: broken cannot be fetched.\n")


def test_doctor_names_what_is_lacking(repro_, corpora, tmp_path, monkeypatch):
    (tmp_path / "constraints.txt").write_text("# tested\npydantic==0.0.1\nrich==15.0.0\nnot-installed==1.0\n")
    monkeypatch.delenv("REPRO_DATA", raising=False)
    monkeypatch.setattr(doctor, "_speed", list)
    code, out, _ = repro_("doctor --json")
    assert code == 0
    found = {row["what"]: row for row in json.loads(out)}
    assert {"Python", "torch", "device", "FlexAttention", "cores", "memory", "disk", "git", "make",
            "C compiler"} <= set(found)
    assert "pydantic " in found["versions"]["found"]
    assert "(tested: 0.0.1)" in found["versions"]["found"]
    assert "rich" not in found["versions"]["found"]
    assert found["REPRO_DATA"]["found"] == "not set"
    assert found["corpora"] == {"what": "corpora", "found": "2 whole, 1 damaged, 1 not here",
                                "lack": "repro doctor --corpora lists each"}
    assert not [what for what in found if what.startswith("corpus ")]
    each = {row["what"]: row for row in json.loads(repro_("doctor --json --corpora")[1])}
    assert "corpora" not in each and each["corpus whole"] == {"what": "corpus whole", "found": "whole", "lack": ""}
    assert each["corpus broken"] == {"what": "corpus broken", "found": "test: 2 documents, not 3",
                                     "lack": "the way to broken"}
    assert (each["corpus absent"]["found"], each["corpus absent"]["lack"]) == ("not here", "the way to absent")
    monkeypatch.setenv("REPRO_DATA", str(tmp_path / "nowhere"))
    assert doctor.Finding("REPRO_DATA", str(tmp_path / "nowhere"), "there is no such folder") in doctor.findings()


def test_bench_help_names_every_benchmark(repro_):
    names = [path.stem for path in Path(repro.__file__).with_name("bench").glob("[a-z]*.py")]
    _, out, _ = repro_("bench --help")
    assert names and all(name in out for name in names)


def test_bench_calls_the_benchmark(repro_, monkeypatch, tmp_path):
    (tmp_path / "toy.py").write_text("def main(json_path): print('measured', json_path)")
    package = types.ModuleType("repro.bench")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "repro.bench", package)
    monkeypatch.setattr(repro, "bench", package, raising=False)
    monkeypatch.delitem(sys.modules, "repro.bench.toy", raising=False)
    assert repro_("bench toy --json numbers.json")[:2] == (0, "measured numbers.json\n")
    code, _, err = repro_("bench toi")
    assert code == 2
    assert "unknown benchmark 'toi'. Did you mean 'toy'?" in err
    (tmp_path / "attention.py").write_text(
        "PASSES = 'forward', 'forward+backward'\n"
        "def main(json_path, lengths=(1,), rounds=0, passes=None): print(json_path, lengths, rounds, passes)")
    monkeypatch.delitem(sys.modules, "repro.bench.attention", raising=False)
    assert repro_("bench attention")[:2] == (0, "None (1,) 5 None\n")
    assert repro_("bench attention --length 64 --length 32 --length 64 --rounds 2 --pass forward")[:2] == (
        0, "None (32, 64) 2 ('forward',)\n")
    assert repro_("bench toy --budget 90s") == (
        2, "", "repro: error: --budget is 90s, but the benchmark toy takes none; leave it out.\n")
    assert repro_("bench attention --budget 90")[2].startswith(
        "repro: error: the budget '90' is not a duration above 0; write")
    assert repro_("bench toy --length 64") == (
        2, "", "repro: error: --length is 64, but the benchmark toy has no lengths; leave it out.\n")


def test_the_real_command_exits_with_2_and_loads_nothing_heavy(tmp_path):
    code = """
import sys
from repro.cli import main
try:
    main(sys.argv[1:])
finally:
    heavy = {"torch", "transformers", "matplotlib", "pandas", "seaborn"} & set(sys.modules)
    assert not heavy, heavy
"""

    def call(*words):
        return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True,
                              env={**os.environ, "REPRO_HOME": str(tmp_path)})

    for words in (["--help"], ["list"], ["run", "--help"]):
        done = call(*words)
        assert (done.returncode, done.stderr) == (0, "")
    done = call("run", "pretrain-gpt2-mni")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Did you mean 'pretrain-gpt2-mini'?" in done.stderr


def test_plan_shows_what_the_papers_own_runs_need():
    runner = CliRunner()
    found = json.loads(runner.invoke(cli.main, "plan --gpu V100 --utilization 0.25 --price 4 --json").stdout)
    assert found["cluster"] == {"gpu": "V100", "utilization": 0.25, "price": 4.0}
    gpt = found["needs"][0]
    assert (gpt["run"], gpt["parameters"]) == ("GPT", 116_534_784)
    eight = gpt["gpus"]["8"]  # 7.245e19 FLOPs at 125e12 x 0.25 each
    assert eight["hours"] * (1 - eight["waiting"]) == pytest.approx(gpt["flops"] / (8 * 125e12 * 0.25) / 3600)
    assert eight["dollars"] == pytest.approx(eight["hours"] * 32)
    shown = runner.invoke(cli.main, "plan --price 2").stdout.splitlines()
    assert shown[0] == "On A100 GPUs at 30% of their peak and $2.00 an hour"
    assert any(line.startswith("GPT ") and "1 month on 8 GPUs" in line for line in shown)
    refused = runner.invoke(cli.main, "plan --gpu TPU")
    assert refused.exit_code == 2 and "unknown GPU 'TPU'" in refused.stderr
