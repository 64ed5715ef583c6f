"""One set of versions, the same wherever the study is installed."""

import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PINS = {name.lower().replace("_", "-"): pin for name, pin in
        re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)}


def test_every_requirement_is_pinned_to_a_version_that_it_allows():
    for text in [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]:
        wanted = Requirement(text)
        if wanted.name != PROJECT["name"]:
            assert PINS[wanted.name.lower().replace("_", "-")] in wanted.specifier, text


def test_constraints_name_one_exact_version_each_and_no_build_of_torch():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == len(PINS)
    assert not [line for line in lines if "+" in line]
    assert PINS["torch"] == "2.13.0"


def test_what_is_installed_is_what_the_constraints_say():
    wrong = {}
    for name, pin in PINS.items():
        try:
            found = Version(version(name)).public
        except PackageNotFoundError:
            continue
        if found != pin:
            wrong[name] = (found, pin)
    assert not wrong


def test_what_is_installed_takes_every_python_that_the_readme_promises():
    """A release of 3.11 that a distribution brings may be older than what a package asks for."""
    assert PROJECT["requires-python"] == ">=3.11"
    asked = {one.name.lower().replace("_", "-"): one.metadata["Requires-Python"] for one in distributions()}
    assert not {name: asked[name] for name in PINS.keys() & asked.keys()
                if asked[name] and "3.11.0" not in SpecifierSet(asked[name])}


def test_make_installs_from_the_constraints():
    told = subprocess.run(["make", "-n", "-W", "constraints.txt", "book"], cwd=ROOT, capture_output=True, text=True)
    assert "pip install -c constraints.txt -e '.[book,test]'" in told.stdout
    assert "snakemake book" in told.stdout


def test_attention_is_installed_with_pytorch_alone_and_the_study_with_everything():
    assert [Requirement(text).name for text in PROJECT["dependencies"]] == ["torch"] and not EXTRAS["attention"]
    (lowest,) = (Requirement(text).specifier for text in EXTRAS["transformers"])
    assert PINS["transformers"] in lowest
    for name in EXTRAS.keys() - {"attention", "transformers", "study"}:
        assert any(Requirement(text).name == "repro" and "study" in Requirement(text).extras for text in EXTRAS[name])


def test_make_versions_tries_the_lowest_version_and_the_newest():
    told = subprocess.run(["make", "-n", "versions"], cwd=ROOT, capture_output=True, text=True).stdout
    assert ".ci/versions" in told and "make versions" in (ROOT / ".ci" / "run").read_text()


def test_make_wheel_runs_what_make_test_leaves_out():
    told = subprocess.run(["make", "-n", "wheel"], cwd=ROOT, capture_output=True, text=True).stdout
    (script,) = re.findall(r"pytest -q (\S+)$", told, re.MULTILINE)
    assert "def test_a_wheel_installs_into_an_empty_environment" in (ROOT / script).read_text()
    assert "make wheel" in (ROOT / ".ci" / "run").read_text()


def test_make_test_runs_style_tests_and_three_chapters_and_make_nbval_all():
    def told(*words):
        return subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True).stdout

    def chapters(output):
        return set(re.findall(r"notebooks/[^ ]+\.ipynb", output))

    every = {str(path.relative_to(ROOT)) for path in (ROOT / "notebooks").glob("*.ipynb")}
    test, nbval = told("test"), told("nbval")
    for part in ("pytest", "--nbval-lax", "--nbval-current-env", "--nbval-sanitize-with tests/notebooks/sanitize.cfg"):
        assert part in test and part in nbval
    assert "ruff check" in test and " tests " in test
    assert len(chapters(test)) == 3 and chapters(test) < chapters(nbval) == every
    assert chapters(told("nbval", "CHAPTERS=notebooks/07_pg19.ipynb")) == {"notebooks/07_pg19.ipynb"}


def test_conda_installs_the_same_versions():
    packages = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    python = next(name for name in packages if str(name).startswith("python="))
    assert python.removeprefix("python=") in Requirement(f"python{PROJECT['requires-python']}").specifier
    options = next(entry["pip"] for entry in packages if isinstance(entry, dict))
    assert "-c constraints.txt" in options
    extras = re.search(r"\[(.*)\]", next(option for option in options if option.startswith("-e"))).group(1)
    assert set(extras.split(",")) <= set(EXTRAS)
