"""What make would do, asked of Snakemake without doing it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def dry_run(target: str, profile: str, scale: str, **config: str) -> str:
    """The jobs of `target` as if nothing had been made yet."""
    environment = {name: value for name, value in os.environ.items() if name != "REPRO_DATA"}
    options = ["--profile", f"profiles/{profile}", "--config", f"scale={scale}",
               *(f"{key}={value}" for key, value in config.items())]
    if profile == "local":
        options += ["--cores", "2"]
    done = subprocess.run([BIN / "snakemake", target, "--dry-run", "--forceall", "--nolock", *options], cwd=ROOT,
                          env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def commands(output: str) -> list[str]:
    return sorted(line for told in re.findall(r"run: (repro run .*) \(gpus", output) for line in told.split(" && "))


def jobs(output: str) -> dict[str, int]:
    return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", output, re.MULTILINE)}


def planned(scale: str) -> list[str]:
    """The commands of every run of a scale and of what it needs, each once, as `repro` tells them."""
    told = []
    for one in repro("list", "--json")["experiments"]:
        if scale in one["scales"]:
            for run in repro("run", one["name"], "--scale", scale, "--dry-run", "--json"):
                told += [run["command"], *run["needs"]]
    return sorted(set(told))


def repro(*words: str):
    return json.loads(subprocess.run([BIN / "repro", *words], capture_output=True, text=True, check=True).stdout)


def test_the_book_needs_every_smoke_run_and_every_chapter():
    output = dry_run("book", "local", "smoke")
    assert commands(output) == planned("smoke")
    chapters = len(list((ROOT / "notebooks").glob("[0-9]*.ipynb")))
    assert jobs(output).get("chapter", 0) == chapters
    assert jobs(output)["book"] == 1


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
    grid = [run for run in repro("run", experiment, "--scale", "paper", "--dry-run", "--json") if not run["done"]]
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


HEAD = """
import json, os, sys
from pathlib import Path
config, expand = {}, lambda *names, **values: []
exec(Path("Snakefile").read_text().split("localrules")[0])
"""
TOLD = HEAD + """
def told():
    for remembered in (code, runs, papers):
        remembered.cache_clear()
    return {name: {"code": chapter_code(name), "records": records(name)} for name in CHAPTERS}
before, found = told(), {}
for changed in sys.argv[1:]:
    with Path(changed).open("a") as file:
        file.write("\\n# changed\\n")
    after = told()
    found[changed] = {part: [name for name in CHAPTERS if after[name][part] != before[name][part]]
                      for part in ("code", "records")}
    before = after
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def redone(tmp_path_factory):
    """What of each chapter counts as changed when nothing but one file has changed since all was made."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("src", "notebooks", "results", "book"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "constraints.txt"):
        shutil.copy(ROOT / name, copy)
    papers = "src/repro/papers"
    files = [f"{papers}/longformer2020/charlm.py", f"{papers}/yoshida2020/tables.py", f"{papers}/base/gpt2_mini.py",
             f"{papers}/example.py", "src/repro/study/ids.py", "src/repro/cli.py", "src/repro/bench/memory.py",
             "results/small/charlm/note.json", "results/bench/note.json"]
    environment = os.environ | {"REPRO_HOME": str(copy)}
    done = subprocess.run([sys.executable, "-c", TOLD, *files], cwd=copy, env=environment, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    names = {"results/small/charlm/note.json": "charlm_records", "results/bench/note.json": "bench"}
    return {names.get(name, Path(name).stem): parts for name, parts in json.loads(done.stdout).items()}


def test_a_change_in_one_paper_redoes_the_chapters_that_tell_about_it(redone):
    every = {path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    longformer, yoshida = set(redone["charlm"]["code"]), set(redone["tables"]["code"])
    assert {"16_patterns_and_implementations", "17_character_lm", "22_scoreboard"} <= longformer
    assert {"06_wikitext103", "07_pg19", "08_what_is_propagated", "22_scoreboard"} <= yoshida
    assert not {name for name in longformer if name.startswith(("03", "04", "05", "06", "07", "08"))}
    assert not yoshida & {"16_patterns_and_implementations", "17_character_lm"}
    for name in ("gpt2_mini", "ids", "example"):
        assert set(redone[name]["code"]) == every, name
    assert redone["cli"]["code"] == []
    assert "16_patterns_and_implementations" in redone["memory"]["code"] and set(redone["memory"]["code"]) < every


def test_a_record_redoes_the_chapters_that_may_show_it(redone):
    assert {"17_character_lm", "22_scoreboard"} <= set(redone["charlm_records"]["records"])
    assert "06_wikitext103" not in redone["charlm_records"]["records"]
    assert "16_patterns_and_implementations" in redone["bench"]["records"]
    assert "06_wikitext103" not in redone["bench"]["records"]


def test_what_a_paper_is_shown_with_are_its_own_runs_and_the_base_model():
    script = HEAD + """
told = ("06_wikitext103", "17_character_lm", "22_scoreboard")
print(json.dumps({name: [run.experiment for stamp in shown(name) for run in jobs("smoke")[Path(stamp).name]]
                  for name in told}))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {name: set(experiments) for name, experiments in json.loads(done.stdout).items()}
    assert {"recurrence-wikitext103", "pretrain-gpt2-mini"} <= found["06_wikitext103"]
    assert "charlm" not in found["06_wikitext103"] and "recurrence-wikitext103" not in found["17_character_lm"]
    assert found["22_scoreboard"] >= found["06_wikitext103"] | found["17_character_lm"]


def test_a_job_holds_runs_of_one_paper_that_do_not_need_each_other():
    script = HEAD + """
def told(run):
    return package(experiment(run.experiment)), plan.key(run), [plan.key(need) for need in plan.needed([run])]

told = {scale: [list(map(told, row)) for row in jobs(scale).values()] for scale in ("smoke", "small")}
print(json.dumps([told, list(runs("smoke"))]))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told, every = json.loads(done.stdout)
    assert sorted(key for row in told["smoke"] for _, key, _ in row) == sorted(every)  # each in one job
    for row in told["smoke"]:
        assert len(row) <= 8 and len({name for name, _, _ in row}) == 1
        assert not {key for _, key, _ in row} & {need for _, _, needs in row for need in needs}
    assert len(told["smoke"]) < len(every) / 5
    assert {len(row) for row in told["small"]} == {1}


def test_several_commands_are_done_in_one_process_until_one_fails(monkeypatch):
    from repro import several

    done = []

    def main(words):
        done.append(words)
        raise SystemExit(2 if "worse" in words else 0)

    monkeypatch.setattr(several, "main", main)
    several.several(["repro run one --set 'a=[1, 2]'", "repro list"])
    assert done == [["run", "one", "--set", "a=[1, 2]"], ["list"]]
    with pytest.raises(SystemExit) as end:
        several.several(["repro run worse", "repro list"])
    assert end.value.code == 2 and done[2:] == [["run", "worse"]]
