"""The README's results are those of the committed records."""

from pathlib import Path

import teaser

ROOT = Path(__file__).parents[2]


def test_the_readme_shows_what_the_records_say():
    text = (ROOT / "README.md").read_text()
    assert teaser.filled(text) == text, "run `python book/teaser.py`"
    assert text.count("% of T") == 5
    assert teaser.teaser().count("not run") <= 2, "the controls at overlaps of 10 and 30 may still have to be run"
