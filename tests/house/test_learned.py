"""The page of findings: its numbers come from records, and its words agree with the verdicts."""

import re

import landing
import learned
import pytest

from repro.study import Claim, Measured, claim, register, run
from repro.study.claims import DECIDED, latest
from repro.study.rule import NOT_TESTABLE

PAGE = (landing.ROOT / "book/what-we-learned.md").read_text()
FINDINGS = learned.findings(PAGE)
FIELD = re.compile(r"\{(\d)\.(\w+)[^{}]*\}")
TYPED = re.compile(r"\d+(?:\.\d+)? ?%|\d+\.\d+|\b\d+ (?:nats|bits|points)\b")  # results; settings are whole numbers


def test_five_questions_have_findings_whose_verdicts_are_those_of_the_records():
    asked = [part for part in PAGE.split("\n## ") if "?" in part.split("\n")[0]]
    assert len(asked) == 5 and all(2 <= len(learned.findings(part)) <= 6 for part in asked)
    stale = [one.text[:60] for one in FINDINGS if not one.written()]
    assert len(stale) <= len(FINDINGS) // 6, f"rewrite in book/what-we-learned.md: {stale}"


def test_every_number_of_a_finding_is_a_field_and_a_size_without_a_sign_has_a_sure_direction():
    plain = learned.BLOCK.sub("", PAGE)
    assert not TYPED.search(plain)
    for one in FINDINGS:
        assert not TYPED.search(FIELD.sub("x", one.text).replace("x%", "")), one.text
        verdicts = list(one.verdicts.values())
        for place, name in FIELD.findall(one.text):
            found = latest(claim(list(one.verdicts)[int(place)]))[1]
            sure = found.low is not None and found.low * found.high > 0 or found.exact
            assert name != "size" or verdicts[int(place)].startswith("reproduced") or sure, (one.text, place)


def test_a_finding_that_names_a_verdict_has_a_claim_with_it():
    for one in FINDINGS:
        named = {verdict for verdict in (*DECIDED, NOT_TESTABLE) if re.search(rf"\b{verdict}\b", one.text)}
        assert named - {"reproduced"} <= set(one.verdicts.values()), one.text


@pytest.fixture
def judged(toy):
    register(Claim(id="toy-gain", paper="toy2020", sentence="It helps.", source="Table 1", experiment="toy-recurrence",
                   measure=lambda records: Measured([[-0.2, -0.21, -0.19]]), direction="lower", unit="book",
                   same_weights=True, why_no_assay="a toy", why_no_control="a toy", unit_shown="nats",
                   why_no_paper_effect="a toy"))
    for config in toy.experiment.plan("small"):
        run(config, progress=False)


@pytest.mark.parametrize(("verdict", "said"), [("reproduced", "It saves 0.2 nats."),
                                               ("not reproduced", learned.CHANGED)])
def test_a_finding_shows_its_number_and_links_to_its_evidence_until_its_verdict_changes(judged, verdict, said):
    text = learned.filled(f"## Does it?\n\n:::{{finding}} toy-gain: {verdict}\nIt saves {{0.size:.1f}} nats.\n:::\n")
    assert f"\n{said}\n" in text and ":::" not in text
    assert 'href="notebooks/22_scoreboard.html#toy-gain"' in text and "✓</span> reproduced</a> It helps." in text
    assert "small: -0.2 [-0.2" in text
