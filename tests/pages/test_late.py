"""A criterion that was changed when its runs were known is told in the claim's own row, wherever it is shown."""

import json
import re

import pytest
from typer.testing import CliRunner

from repro import cli, paths
from repro.pages import in_short, verdict_table
from repro.pages.board import Scoreboard
from repro.pages.listing import listing
from repro.study import Artifact, Claim, Measured, claim, claims, register

TOLD = "criterion changed after the runs (before: less than half)"


@pytest.fixture
def late(toy):
    """Two claims, the first of which had another criterion."""
    shared = {"paper": "toy2020", "source": "Table 1", "experiment": "toy-recurrence", "about": ("toy-table",),
              "measure": lambda records: Measured([[-1.0, -1.2, -1.1]]), "direction": "lower", "unit": "book"}
    shared |= dict.fromkeys(("why_no_paper_effect", "why_no_control", "why_no_assay"), "a toy")
    register(Artifact("toy-table", "toy2020", "Toy table", "06_toy", "toy-recurrence", lambda context: None, "Table 1"),
             Claim(id="toy-late", sentence="It helps.", criterion_before="less than half", **shared),
             Claim(id="toy-beforehand", sentence="It is free.", **shared))


def test_the_row_of_a_claim_says_what_its_criterion_was_before(late):
    effects = verdict_table("smoke", "06_toy").frame.set_index("claim")["effect"]
    assert effects["It helps."].str.endswith(f"; {TOLD}").tolist() == [True, True]  # at small and at smoke
    assert not effects["It is free."].str.contains("criterion").any()


def test_lists_commands_and_pages_say_it_too(late):
    declared = {one["id"]: one for one in listing()["claims"]}
    assert declared["toy-late"]["criterion_before"] == "less than half"
    assert "criterion_before" not in declared["toy-beforehand"]
    shown = {name: CliRunner().invoke(cli.main, f"show {name}").stdout for name in ("toy-late", "toy-beforehand")}
    assert TOLD in " ".join(shown["toy-late"].split()) and "criterion" not in shown["toy-beforehand"]
    told = json.loads(CliRunner().invoke(cli.main, "show toy-late --json").stdout)
    assert told["criterion_before"] == "less than half"
    told = in_short("06_toy", "Why?", "So.").badges
    assert told["text/plain"].splitlines() == [
        "not run: It helps. (Table 1, small, criterion changed after the runs)",
        "not run: It is free. (Table 1, small)"]
    assert told["text/html"].count("criterion changed after the runs") == 1
    board = Scoreboard()._repr_html_()
    mark = '<abbr title="criterion changed after the runs">late</abbr>'
    assert board.count(TOLD) == 1 and board.count(f"Table 1, {mark}") == 1


def test_the_log_names_every_claim_that_was_changed_late_and_no_other():
    log = (paths.home() / "book" / "what-did-not-work.md").read_text()
    entry = next(part for part in log.split("\n- **") if part.startswith("Claims changed after their runs."))
    named = re.findall(r"`(\w+\d{4}-[\w-]+)`", entry)
    assert len(named) == len(set(named)) >= 30
    assert set(named) == {one.id for one in claims() if one.criterion_before}
    assert all(claim(id).late == f"criterion changed after the runs (before: {claim(id).criterion_before})"
               for id in named)
