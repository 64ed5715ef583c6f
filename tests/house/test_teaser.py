"""The README's results are those of the committed records."""

from pathlib import Path

import teaser

ROOT = Path(__file__).parents[2]


def test_the_readme_shows_what_the_records_say():
    text = (ROOT / "README.md").read_text()
    assert teaser.filled(text) == text, "run `python book/teaser.py`"
    assert text.count("% of T") == 5
    assert "not run" not in teaser.teaser()
