"""The README's results are those of the committed records."""

from pathlib import Path

import teaser

from repro.papers.yoshida2020.perplexity.gain_by_window import gains_by_window
from repro.study.claims import claim, latest
from repro.study.paper import papers

ROOT = Path(__file__).parents[2]


def test_the_readme_shows_what_the_records_say():
    text = (ROOT / "README.md").read_text()
    assert teaser.filled(text) == text, "run `python book/teaser.py`"


def test_it_opens_with_the_findings_and_shows_every_gain_on_test_text_beside_the_papers():
    told = teaser.results()
    assert [line.split("**")[1] for line in told.splitlines() if line.startswith("- **")] == [
        paper.name for paper in papers()]
    rows = [line.split(" | ") for line in teaser.teaser().splitlines()[2:]]
    assert len(rows) == sum(gain.split == "test" for gain in gains_by_window())
    gemma = latest(claim("yoshida2020-gemma-gain-normalized"))[1]
    row, = (row for row in rows if "reading normalized" in row[3])
    assert row[:3] == ["| 64 tokens", "books", "Gemma 3 270M"] and row[4].startswith(f"{gemma.effect:+.1%} [")
    assert row[5] == f"{gemma.control:+.1%} |"
    assert [row[4] for row in rows if row[2] == "the paper's GPT-2"] == ["-4.8%", "-9.9%"]
