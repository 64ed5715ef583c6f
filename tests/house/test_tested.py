"""The page on testing shows each campaign's report, and the committed reports have no fault."""

import json

import pytest
import tested

PAGE = (tested.FOLDER.parents[1] / "book/how-it-is-tested.md").read_text()
INPUTS = {"cases": 7, "faults": 1, "written_elsewhere": [], "parts": {
    "records": {"cases": 3, "refused": 2, "faults": 1, "longest_cpu_seconds": 0.256, "most_bytes": 12_600_000},
    "corpora": {"cases": 4, "refused": 4, "faults": 0, "longest_cpu_seconds": 1.5, "most_bytes": 1_000_000}}}

KILLS = {"kills": 5, "faults": 0, "ways": {
    "counting": {"kills": 3, "while writing": 1, "after a checkpoint": 2, "runs": 2, "values": 1_200},
    "two processes": {"kills": 2, "before a checkpoint": 2, "runs": 2, "values": 34},
    "a full disk": {"refused": 4, "runs": 5, "values": 9}, "a read-only disk": {"runs": 1, "values": 9}}}


def test_a_report_is_shown_as_a_table(tmp_path):
    (tmp_path / "bad_inputs.json").write_text(json.dumps(INPUTS))
    lines = tested.filled("Before.\n\n<!-- campaign: bad_inputs -->\n\nAfter.", tmp_path).splitlines()
    assert lines[4:7] == ["| records | 3 | 2 | 1 | 0.26 | 13 |", "| corpora | 4 | 4 | 0 | 1.50 | 1.0 |",
                          "| all | 7 | 6 | 1 | 1.50 | 13 |"]
    assert lines[0] == "Before." and lines[-1] == "After." and "folders: 0." in lines[-3]


@pytest.mark.parametrize(("value", "shown"), [(0.0, "<0.01"), (0.0049, "<0.01"), (0.005, "0.01"), (0.256, "0.26")])
def test_a_time_is_never_shown_as_zero(value, shown):
    assert tested.seconds(value) == shown


@pytest.mark.parametrize(("value", "shown"), [
    (0, "<0.1"), (49_999, "<0.1"), (50_001, "0.1"), (131_072, "0.1"), (9_940_000, "9.9"), (9_960_000, "10"),
    (1.5e9, "1,500")])
def test_memory_is_never_shown_as_zero(value, shown):
    assert tested.megabytes(value) == shown


def test_the_kills_are_shown_by_moment(tmp_path):
    (tmp_path / "kills.json").write_text(json.dumps(KILLS))
    lines = tested.filled("<!-- campaign: kills -->", tmp_path).splitlines()
    assert lines[0] == ("| run | runs | kills | before a checkpoint | after a checkpoint | while writing | "
                        "after the record | values compared |")
    assert lines[2:5] == ["| counting | 2 | 3 | 0 | 2 | 1 | 0 | 1,200 |",
                          "| two processes | 2 | 2 | 2 | 0 | 0 | 0 | 34 |", "| all | 4 | 5 | 2 | 2 | 1 | 0 | 1,234 |"]
    assert lines[-1].endswith("a full disk: 4 of 5; a read-only disk: 0 of 1.") and "undisturbed ones: 0." in lines[-1]


def test_the_kills_are_as_many_as_were_asked_for():
    if (path := tested.FOLDER / "kills.json").exists():
        report = json.loads(path.read_text())
        assert report["asked"] == 200 <= report["kills"] == sum(
            one.get(name, 0) for one in report["ways"].values() for name in tested.MOMENTS)
        assert all(one["runs"] and one["values"] for one in report["ways"].values())


def test_what_is_distributed_is_shown_check_by_check(tmp_path):
    checks = {"a wheel": {"found": "3 files", "seconds": 2}, "CITATION.cff": {"found": "valid", "seconds": 0}}
    (tmp_path / "distribution.json").write_text(json.dumps({"checks": checks, "found": []}))
    assert tested.filled("<!-- campaign: distribution -->", tmp_path).splitlines() == [
        "| check | result |", "| --- | --- |", "| a wheel | 3 files |", "| CITATION.cff | valid |"]


def test_tests_of_others_are_counted_by_model_and_by_kind(tmp_path):
    one, other = {"passed": 5, "refused": 0, "failed": 0}, {"passed": 1_200, "refused": 2, "failed": 1}
    refused = [{"why": f"no gradients set to repro_{name}; take eager. Or not."} for name in ("full", "sliding")]
    refused += [{"why": f"but under Prefix(n={n}) | Causal() a late query sees all."} for n in (1, 2, 3)]
    (tmp_path / "peers.json").write_text(json.dumps({
        "groups": {"LED": one, "Llama": other}, "kinds": {"generation": other, "LED": one}, "not_passed": refused,
        "versions": {"transformers": "5.23.0"}, "generation": "a/b@0123456789abcdef", "generation_wide": 7,
        "theirs_not_passed": [one]}))
    lines = tested.filled("<!-- campaign: peers -->", tmp_path).splitlines()
    assert lines[2:5] == ["| LED | 5 | 0 | 0 |", "| Llama | 1,200 | 2 | 1 |", "| all | 1,205 | 2 | 1 |"]
    assert lines[8:10] == ["| generation | 1,200 | 2 | 1 |", ""] and "do not count: 1." in lines[12]
    assert lines[10].startswith("The 1,203 cases") and ": 1,200 passed, 2 were refused, 1 failed. 7 of" in lines[10]
    assert "[a/b at 0123456789ab](https://github.com/a/b/blob/0123456789abcdef/tests/generation/" in lines[10]
    assert lines[-2:] == ["- 2 × no gradients set to ours", "- 3 × but a late query sees all"]


def test_the_page_says_when_the_tests_of_generation_did_not_run():
    assert tested.generation({"generation": None}).startswith("Transformers' own tests of generation did not run")


def test_a_campaign_without_a_report_names_its_command(tmp_path):
    assert tested.filled("<!-- campaign: bad_inputs -->", tmp_path) == (
        "Not run. To run it: `python tests/campaigns/bad_inputs.py`.")


@pytest.mark.parametrize("name", tested.PLACE.findall(PAGE))
def test_the_committed_reports_have_no_fault(name):
    assert (tested.FOLDER.parents[1] / f"tests/campaigns/{name}.py").exists()
    path = tested.FOLDER / f"{name}.json"
    if path.exists():
        report = json.loads(path.read_text())
        assert not report.get("found") and not report.get("written_elsewhere")
        assert report.get("cases", 500) >= 500
        assert not any(one["failed"] for one in report.get("groups", {}).values())


def test_transformers_own_tests_of_generation_ran():
    report = json.loads((tested.FOLDER / "peers.json").read_text())
    repository, commit = report["generation"].split("@")
    assert repository and commit and report["kinds"]["generation"]["passed"] >= 100
    assert 0 < report["generation_wide"] < sum(report["kinds"]["generation"].values())
