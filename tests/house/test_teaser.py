"""The README's results are those of the committed records."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readme_shows_what_the_records_say():
    spec = importlib.util.spec_from_file_location("teaser", ROOT / "book/teaser.py")
    teaser = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(teaser)
    text = (ROOT / "README.md").read_text()
    assert teaser.with_results(text) == text, "run `python book/teaser.py`"
    assert text.count("% of T") == 5 and "not run" not in teaser.teaser()
