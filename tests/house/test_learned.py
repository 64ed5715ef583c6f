"""The page of findings: its numbers come from records, and its words agree with the verdicts."""

import re

import landing
import learned
import one_page
import pytest

from repro.study import ADDED, Claim, Measured, artifacts, claim, claims, register, run
from repro.study.claims import DECIDED, WORST_FIRST, latest
from repro.study.paper import papers
from repro.study.rule import NOT_TESTABLE
from repro.study.runs import Run

PAGE = (landing.ROOT / "book/what-we-learned.md").read_text()
OF_PAPERS = {paper.id: (landing.ROOT / f"book/{paper.id}.md").read_text() for paper in papers()}
PAGES = {"what-we-learned": PAGE, **OF_PAPERS}
FINDINGS = [one for page in PAGES.values() for one in learned.findings(page)]
FIELD = re.compile(r"\{(\d)\.(\w+)[^{}]*\}")
CORPORA = {  # words for a text -> the corpora that they are words for, by the start of their names
    r"news articles?": ("hyperpartisan",), r"articles?": ("wikitext", "hyperpartisan"), r"reviews?": ("imdb",),
    r"(?:WikiText(?:-103)?|Wikipedia)": ("wikitext",), r"LAMBADA": ("lambada",), r"(?:sound|music)": ("piano",),
    r"(?:scientific papers|abstracts?|another paper)": ("scisummnet",), r"(?:images?|pixels?)": ("cifar10",),
    r"books?": ("pg19", "gutenberg", "books", "cloze")}
PAPERS = re.compile(  # what says something of the paper's texts, not of ours
    r"\((?:the )?paper\b[^)]*\)|\([^)]*\bin the paper\b[^)]*\)|\bIn the paper\b[^;.]*[;.]"
    r"|\([^)]*\{\d\.paper\w*[^)]*\)|\bThe paper's\b[^.]*\{\d\.paper[^.]*\.")
TYPED = re.compile(r"\d+(?:\.\d+)? ?%|\d+\.\d+|\b\d+ (?:nats|bits|points)\b")  # results; settings are whole numbers


def test_five_questions_have_findings():
    asked = [part for part in PAGE.split("\n## ") if "?" in part.split("\n")[0]]
    assert len(asked) == 5 and all(2 <= len(learned.findings(part)) <= 6 for part in asked)


@pytest.mark.parametrize("name", PAGES)
def test_the_findings_of_a_page_are_those_of_the_records(name):
    found = learned.findings(PAGES[name])
    stale = [one.text[:60] for one in found if not one.written()]
    assert found and len(stale) <= len(found) // 6, f"rewrite in book/{name}.md: {stale}"


def test_every_number_of_a_finding_is_a_field_and_a_size_without_a_sign_has_a_sure_direction():
    for page in PAGES.values():
        assert not TYPED.search(learned.BLOCK.sub("", page))
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


def corpora_of(one: Claim) -> set[str]:
    """The corpora that are read by the runs that judge a claim."""
    scale = latest(one)[0]
    return {name for config in one.needed(scale) for name in (
        getattr(config, "scored_corpus", None) or config.corpus, *Run(config).experiment.reads(config)) if name}


def misnamed(text: str, corpora: list[set[str]]) -> list[str]:
    """Words of a finding for texts that none of its claims has read, or that the claim of the number before them has
    not read; `corpora` has those of each claim."""
    ours, wrong = PAPERS.sub(" ", text), []
    for words, starts in CORPORA.items():
        known = [any(name.startswith(starts) for name in names) for names in corpora]
        for found in re.finditer(rf"\b{words}\b", ours):
            if not any(known):
                wrong.append(found[0])
        for place, clause in re.findall(r"\{(\d)\.[^{}]*\}([^{}.;]*)", ours):
            if re.match(rf"[^,]*\b(?:on|of)(?: our)? {words}\b", clause) and not known[int(place)]:
                wrong.append(f"{{{place}}}{clause}")
    return wrong


def test_a_finding_names_the_corpora_of_its_records():
    shown = [one for paper in papers() for one in (paper.finding, paper.headline) if one.text]
    n = 0
    for one in FINDINGS + shown:
        corpora = [corpora_of(claim(id)) for id in one.verdicts]
        assert all(corpora) and not misnamed(one.text, corpora), (one.text, corpora)
        n += any(re.search(rf"\b{words}\b", one.text) for words in CORPORA)
    assert n > 20


@pytest.mark.parametrize(("text", "wrong"), [
    ("It saves {0.size:.1%} on articles and {1.size:.1%} on books (paper, on images: {0.paper:.1f}).", []),
    ("It saves {0.size:.1%} on books and {1.size:.1%} on articles.", ["{0} on books and ", "{1} on articles"]),
    ("It saves {0.size:.1%} on our books.", ["{0} on our books"]),
    ("It writes the abstract of another paper. In the paper, it reads images; ours are books.",
     ["abstract", "another paper"]),
    ("It saves more on images.", ["images"])])
def test_a_wrong_corpus_is_found(text, wrong):
    assert misnamed("It writes Wikipedia's leads (for Wikipedia, in the paper: {0.paper:.1f}).", [{"scisummnet"}]) == [
        "Wikipedia"]
    assert sorted(misnamed(text, [{"wikitext-103"}, {"pg19-subset", "gutenberg-pretrain"}])) == sorted(wrong)


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


@pytest.mark.parametrize("paper", OF_PAPERS)
def test_the_page_of_a_paper_has_each_of_its_claims_once_under_its_verdict_and_each_table(paper):
    text = one_page.filled(OF_PAPERS[paper], paper)
    assert learned.CHANGED not in text and "<!--" not in text
    folded, _, tables = text.partition("## All claims")[2].partition("## The paper's tables and figures")
    parts = folded.split("<details>")[1:]
    own = [one for one in claims() if one.paper == paper]
    assert sum(part.count("<li>") for part in parts) == len(own)
    for part in parts:
        verdict = next(name for name in sorted(WORST_FIRST, key=len, reverse=True) if f"</span> {name}<" in part)
        ids = re.findall(r'22_scoreboard.html#([\w-]+)"', part)
        assert ids and {latest(claim(id))[1].verdict for id in ids} == {verdict}
    shown = sorted((one for one in artifacts() if one.paper == paper), key=lambda one: int(one.chapter[:2]))
    printed, ours = ([one for one in shown if one.source.startswith(ADDED) is wanted] for wanted in (False, True))
    rows = [line for line in tables.splitlines() if line.startswith("| ") and ".html#" in line]
    assert [row.split(" | ")[0].removeprefix("| ").lower() for row in rows] == [one.source.lower() for one in printed]
    assert re.findall(r'#([\w-]+)">', tables) == [one.id for one in printed + ours]
