"""How threads wait: what `repro` sets before torch is loaded, and that libgomp reads it then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro import doctor, openmp

ROOT = Path(__file__).parents[1]
STARTED = ("from typer.testing import CliRunner; from repro import cli; CliRunner().invoke(cli.main, 'bench none'); "
           "import torch")


def settings_of_libgomp(code, **given):
    """The settings that libgomp prints when torch is loaded, in a new process that was `given` some."""
    clean = {name: value for name, value in os.environ.items() if name not in (openmp.POLICY, openmp.SPINS)}
    done = subprocess.run([sys.executable, "-c", code], env=clean | given | {"OMP_DISPLAY_ENV": "VERBOSE"},
                          capture_output=True, text=True, check=True)
    lines = [line.split(" = ") for line in done.stderr.splitlines() if " = " in line]
    return {name.strip(): value.strip("'") for name, value in lines}


@pytest.mark.skipif(sys.platform != "linux", reason="torch has another OpenMP there")
def test_a_command_of_repro_lets_threads_sleep_and_keeps_what_the_user_sets():
    assert int(settings_of_libgomp("import torch")["GOMP_SPINCOUNT"]) > 0
    assert settings_of_libgomp(STARTED)["GOMP_SPINCOUNT"] == "1000"
    assert settings_of_libgomp(STARTED, OMP_WAIT_POLICY="PASSIVE")["GOMP_SPINCOUNT"] == "0"
    kept = settings_of_libgomp(STARTED, OMP_WAIT_POLICY="ACTIVE")
    assert kept["OMP_WAIT_POLICY"] == "ACTIVE" and int(kept["GOMP_SPINCOUNT"]) > 0
    assert settings_of_libgomp(STARTED, GOMP_SPINCOUNT="7")["GOMP_SPINCOUNT"] == "7"


def test_nothing_is_set_once_torch_is_loaded(monkeypatch):
    monkeypatch.delenv(openmp.POLICY, raising=False)
    monkeypatch.delenv(openmp.SPINS, raising=False)
    monkeypatch.setitem(sys.modules, "torch", object())
    openmp.sleep_while_waiting()
    assert openmp.POLICY not in os.environ
    monkeypatch.delitem(sys.modules, "torch")
    openmp.sleep_while_waiting()
    assert (os.environ[openmp.POLICY], os.environ[openmp.SPINS]) == ("PASSIVE", "1000")
    monkeypatch.delenv(openmp.POLICY)
    monkeypatch.delenv(openmp.SPINS)


@pytest.mark.parametrize(("settings", "said"), [
    ({}, "spinning"), ({"OMP_WAIT_POLICY": "passive"}, "asleep (OMP_WAIT_POLICY=passive)"),
    ({"OMP_WAIT_POLICY": "ACTIVE"}, "spinning (OMP_WAIT_POLICY=ACTIVE)"),
    ({"GOMP_SPINCOUNT": "0"}, "asleep (GOMP_SPINCOUNT=0)"),
    ({"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "1000"}, "soon asleep (GOMP_SPINCOUNT=1000)"),
    ({"GOMP_SPINCOUNT": "INFINITY"}, "spinning (GOMP_SPINCOUNT=INFINITY)"),
    ({"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1001"}, "spinning (GOMP_SPINCOUNT=1001)")])
def test_the_number_of_spins_counts_before_the_policy(settings, said):
    assert openmp.waiting(settings) == said


def test_the_doctor_says_how_threads_wait_and_who_set_it(monkeypatch):
    monkeypatch.delenv(openmp.SPINS, raising=False)
    monkeypatch.setenv(openmp.POLICY, "PASSIVE")
    given = doctor._waiting({openmp.POLICY: "PASSIVE"})
    assert (given.found, given.lack) == ("asleep (OMP_WAIT_POLICY=PASSIVE)", "")
    ours = doctor._waiting({})
    assert ours.found == "asleep (OMP_WAIT_POLICY=PASSIVE), set by repro"
    assert ours.lack == "before your own Python starts: export OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=1000"
    monkeypatch.setenv(openmp.POLICY, "ACTIVE")
    spinning = doctor._waiting({openmp.POLICY: "ACTIVE"})
    assert spinning.found.startswith("spinning") and "export OMP_WAIT_POLICY=PASSIVE" in spinning.lack


def test_make_and_its_steps_set_it_unless_the_user_does():
    for given, found in (({}, "PASSIVE 1000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
                         ({"GOMP_SPINCOUNT": "7"}, "PASSIVE 7")):
        clean = {name: value for name, value in os.environ.items() if name not in (openmp.POLICY, openmp.SPINS)}
        said = subprocess.run(["make", "--silent", "--file=-", "said"], cwd=ROOT, env=clean | given, text=True,
                              input="include Makefile\nsaid:\n\t@echo $$OMP_WAIT_POLICY $$GOMP_SPINCOUNT\n",
                              capture_output=True, check=True).stdout
        assert said.strip() == found
    assert "\nsleep_while_waiting()\n" in (ROOT / "Snakefile").read_text()
