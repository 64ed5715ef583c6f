"""What make would do, asked of Snakemake without doing it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
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
    return sorted(re.findall(r"run: (repro run .*) \(gpus", output))


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


def chapters(*changed: str) -> set[str]:
    """The chapters that would be made again if nothing but these files had changed since all was made."""
    code = ("import hashlib, json, os, re, sys; from pathlib import Path; os.chdir(sys.argv[1]); "
            "text = Path('Snakefile').read_text().split('localrules')[0]; config = {}; "
            "expand = lambda *a, **k: []; exec(text); "
            "print(json.dumps({name: chapter_code(name) for name in CHAPTERS}))")

    def codes(root: Path) -> dict[str, str]:
        done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    with tempfile.TemporaryDirectory() as copy:
        for name in ("src", "notebooks", "results"):
            shutil.copytree(ROOT / name, Path(copy) / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("Snakefile", "constraints.txt"):
            shutil.copy(ROOT / name, copy)
        before = codes(Path(copy))
        for name in changed:
            with (Path(copy) / name).open("a") as file:
                file.write("\n# changed\n")
        after = codes(Path(copy))
    return {name for name in before if before[name] != after[name]}


def test_a_change_in_one_paper_redoes_the_chapters_that_tell_about_it():
    every = {path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    longformer = chapters("src/repro/papers/longformer2020/charlm.py")
    yoshida = chapters("src/repro/papers/yoshida2020/tables.py")
    assert {"16_patterns_and_implementations", "17_character_lm", "22_scoreboard"} <= longformer
    assert {"06_wikitext103", "07_pg19", "08_what_is_propagated", "22_scoreboard"} <= yoshida
    assert not {name for name in longformer if name.startswith(("03", "04", "05", "06", "07", "08"))}
    assert not yoshida & {"16_patterns_and_implementations", "17_character_lm"}
    assert chapters("src/repro/papers/base/gpt2_mini.py") == chapters("src/repro/study/ids.py") == every
    assert chapters("src/repro/cli.py") == set()
