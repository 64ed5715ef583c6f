"""What make would do, asked of Snakemake without doing it."""

import json
import os
import re
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
