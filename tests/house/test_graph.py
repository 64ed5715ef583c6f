"""What make would do, asked of Snakemake without doing it: in this process, where everything is imported once."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import sys
import types
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from repro import cli
from repro.study import experiments, plan

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def process(folder: Path):
    """Snakemake changes the working directory, variables, search path and signal handler: they are put back."""
    before, term = dict(os.environ), signal.getsignal(signal.SIGTERM)
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, term)
            os.environ.clear()
            os.environ.update(before)


def dry_run(targets: str, profile: str, scale: str, **config: str) -> str:
    """The jobs of `targets` as if nothing had been made yet."""
    from snakemake.cli import main

    options = ["--profile", f"profiles/{profile}", "--config", f"scale={scale}",
               *(f"{key}={value}" for key, value in config.items())]
    if profile == "local":
        options += ["--cores", "2"]
    told = io.StringIO()
    with process(ROOT), contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        os.environ.pop("REPRO_DATA", None)
        with pytest.raises(SystemExit) as end:
            main([*targets.split(), "--dry-run", "--forceall", "--nolock", *options])
    assert end.value.code == 0, told.getvalue()
    return told.getvalue()


def commands(output: str) -> list[str]:
    return sorted(line for told in re.findall(r"run: (repro run .*) \(gpus", output) for line in told.split(" && "))


def jobs(output: str) -> dict[str, int]:
    return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", output, re.MULTILINE)}


def planned(scale: str) -> list[str]:
    """The commands of every run of a scale and of what it needs, each once, as `repro` tells them."""
    told = [run for one in experiments() if scale in one.scales for run in dry_runs(one.name, scale)]
    return sorted({line for run in told for line in (run["command"], *run["needs"])})


def dry_runs(experiment: str, scale: str) -> list[dict]:
    """What `repro run --dry-run` tells of every run of an experiment."""
    done = CliRunner().invoke(cli.main, ["run", experiment, "--scale", scale, "--dry-run", "--json"])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_the_book_and_the_check_of_its_outputs_need_every_smoke_run_and_every_chapter_once():
    output = dry_run("book check", "local", "smoke")
    assert commands(output) == planned("smoke")
    chapters = len(list((ROOT / "notebooks").glob("[0-9]*.ipynb")))
    assert jobs(output).get("chapter", 0) == chapters
    assert jobs(output)["book"] == jobs(output)["check"] == 1


@pytest.mark.parametrize("scale", ["small", "medium"])
def test_the_book_trains_nothing_at_other_scales(scale):
    assert "run" not in jobs(dry_run("book", "local", scale))


def test_on_a_cluster_each_run_is_one_job_with_a_gpu():
    output = dry_run("runs", "slurm", "medium")
    assert set(commands(output)) <= set(planned("medium"))
    assert len(commands(output)) == jobs(output)["run"] > 0
    assert re.findall(r"\(gpus (\d+)", output) == ["1"] * jobs(output)["run"]
    assert min(map(int, re.findall(r"minutes (\d+)", output))) >= 30


@pytest.mark.parametrize("experiment", ["recurrence-wikitext103", "recurrence-pg19"])
def test_on_a_cluster_the_grid_of_a_table_is_one_job_per_cell(experiment):
    output = dry_run("runs", "slurm", "paper", experiment=experiment)
    grid = [run for run in dry_runs(experiment, "paper") if not run["done"]]
    submitted = commands(output)
    assert len(submitted) == len(set(submitted)) == jobs(output)["run"]
    assert [line for line in submitted if line.split()[2] == experiment] == sorted(run["command"] for run in grid)
    assert {need for run in grid for need in run["needs"]} <= set(submitted)
    assert re.findall(r"\(gpus (\d+)", output) == ["1"] * len(submitted)


def test_the_cluster_profile_submits_to_slurm():
    assert yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())["executor"] == "slurm"


@pytest.mark.parametrize("profile", ["local", "slurm"])
def test_an_interrupted_step_is_made_again(profile):
    assert yaml.safe_load((ROOT / f"profiles/{profile}/config.yaml").read_text())["rerun-incomplete"] is True


def snakefile(folder: Path = ROOT) -> types.SimpleNamespace:
    """The functions of the Snakefile, with nothing looked up yet. They are to be called inside `process(folder)`."""
    names = {"config": {}, "expand": lambda *names, **values: []}
    exec((folder / "Snakefile").read_text().split("localrules")[0], names)
    return types.SimpleNamespace(**names)


@pytest.fixture(scope="module")
def redone(tmp_path_factory):
    """What of each chapter counts as changed when nothing but one file has changed since all was made."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("src", "notebooks", "book"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "constraints.txt"):
        shutil.copy(ROOT / name, copy)
    for folder in [*(ROOT / "results").glob("*/*"), ROOT / "results/bench"]:
        (copy / folder.relative_to(ROOT)).mkdir(parents=True, exist_ok=True)

    def told():
        make = snakefile(copy)
        return {name: {"code": make.chapter_code(name), "records": make.records(name)} for name in make.CHAPTERS}

    papers = "src/repro/papers"
    files = {Path(name).stem: name for name in (
        f"{papers}/longformer2020/charlm.py", f"{papers}/yoshida2020/perplexity/tables.py",
        f"{papers}/base/gpt2_mini.py", f"{papers}/example.py", "src/repro/study/runs.py", "src/repro/cli.py",
        "src/repro/bench/memory.py")}
    files |= {"charlm_records": "results/small/charlm/note.json", "bench": "results/bench/note.json"}
    found = {}
    with process(copy):
        os.environ["REPRO_HOME"] = str(copy)
        before = told()
        for name, changed in files.items():
            with (copy / changed).open("a") as file:
                file.write("\n# changed\n")
            after = told()
            found[name] = {part: [one for one in after if after[one][part] != before[one][part]]
                           for part in ("code", "records")}
            before = after
    return found


def test_a_change_in_one_paper_redoes_the_chapters_that_tell_about_it(redone):
    every = {path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    longformer, yoshida = set(redone["charlm"]["code"]), set(redone["tables"]["code"])
    assert {"16_patterns_and_implementations", "17_character_lm", "22_scoreboard"} <= longformer
    assert {"06_wikitext103", "07_pg19", "08_what_is_propagated", "22_scoreboard"} <= yoshida
    assert not {name for name in longformer if name.startswith(("03", "04", "05", "06", "07", "08"))}
    assert not yoshida & {"16_patterns_and_implementations", "17_character_lm"}
    for name in ("gpt2_mini", "runs", "example"):
        assert set(redone[name]["code"]) == every, name
    assert redone["cli"]["code"] == []
    assert "16_patterns_and_implementations" in redone["memory"]["code"] and set(redone["memory"]["code"]) < every


def test_a_record_redoes_the_chapters_that_may_show_it(redone):
    assert {"17_character_lm", "22_scoreboard"} <= set(redone["charlm_records"]["records"])
    assert "06_wikitext103" not in redone["charlm_records"]["records"]
    assert "16_patterns_and_implementations" in redone["bench"]["records"]
    assert "06_wikitext103" not in redone["bench"]["records"]


def test_what_a_paper_is_shown_with_are_its_own_runs_and_the_base_model():
    told = ("06_wikitext103", "17_character_lm", "22_scoreboard")
    with process(ROOT):
        make = snakefile()
        found = {name: {run.experiment for stamp in make.shown(name) for run in make.jobs("smoke")[Path(stamp).name]}
                 for name in told}
    assert {"recurrence-wikitext103", "pretrain-gpt2-mini"} <= found["06_wikitext103"]
    assert "charlm" not in found["06_wikitext103"] and "recurrence-wikitext103" not in found["17_character_lm"]
    assert found["22_scoreboard"] >= found["06_wikitext103"] | found["17_character_lm"]


def test_a_job_holds_runs_of_one_paper_that_do_not_need_each_other():
    with process(ROOT):
        make = snakefile()
        smoke, small, every = make.jobs("smoke").values(), make.jobs("small").values(), make.runs("smoke")
    keys = [{run.key for run in row} for row in smoke]
    assert sorted(run.key for row in smoke for run in row) == sorted(every)  # each in one job
    for row, own in zip(smoke, keys, strict=True):
        assert len(row) <= 8 and len({make.package(make.experiment(run.experiment)) for run in row}) == 1
        assert not own & {need.key for run in row for need in plan.needed([run])}
    assert len(smoke) < len(every) / 5
    assert {len(row) for row in small} == {1}


def test_several_commands_are_done_in_one_process_until_one_fails(monkeypatch):
    from repro import batch

    done = []

    def main(words):
        done.append(words)
        raise SystemExit(2 if "worse" in words else 0)

    monkeypatch.setattr(batch, "main", main)
    batch.batch(["repro run one --set 'a=[1, 2]'", "repro list"])
    assert done == [["run", "one", "--set", "a=[1, 2]"], ["list"]]
    with pytest.raises(SystemExit) as end:
        batch.batch(["repro run worse", "repro list"])
    assert end.value.code == 2 and done[2:] == [["run", "worse"]]
