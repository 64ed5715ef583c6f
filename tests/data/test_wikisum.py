"""WikiSum from gathered articles: clones go, splits stay, and a build that was stopped goes on."""

import gzip
import json
from collections import Counter

import pytest

from repro.data.wikisum import article, build, is_clone, recall, split_of
from repro.errors import ReproError

LEAD = "Ada Lovelace wrote the first program"


def test_a_clone_has_more_than_half_of_the_leads_words_in_one_stretch():
    assert recall(LEAD, "ada lovelace wrote letters") == 0.5
    assert not is_clone(LEAD, "Ada Lovelace wrote letters")  # half is not more than half
    assert is_clone(LEAD, "Ada Lovelace wrote the letters")
    far = " ".join(["word"] * 30)
    assert is_clone(LEAD, f"{far} Ada Lovelace wrote the first {far}")
    assert not is_clone(LEAD, f"Ada Lovelace {far} wrote the {far} first program")


def test_an_article_is_what_is_left():
    row = {"title": "Ada", "lead": LEAD, "citations": ["She wrote letters to Babbage", LEAD], "search": ["a b c d e"]}
    assert article(row)["document"] == "She wrote letters to Babbage\na b c d e"
    assert article(row, 7)["document"] == "She wrote letters to Babbage\na b"
    assert article(row | {"citations": ["a\nb\tc  d e"]}, 2)["document"] == "a\nb", "whatever stands between words"
    assert article(row | {"citations": [LEAD], "search": []}) is None
    with pytest.raises(ReproError, match="an article has no lead"):
        article({"title": "Ada"})


def test_splits_have_their_shares():
    found = Counter(split_of(f"article {k}") for k in range(4_000))
    assert [round(found[name] / 4_000, 1) for name in ("train", "validation", "test")] == [0.8, 0.1, 0.1]


def test_a_build_goes_on_where_it_was_stopped(tmp_path):
    import pyarrow.parquet as parquet

    source, folder = tmp_path / "articles.jsonl.gz", tmp_path / "wikisum"
    lines = [json.dumps({"title": f"t{k}", "lead": LEAD, "search": [f"text {k}"]}) for k in range(23)]
    with gzip.open(source, "wt") as file:
        file.write("\n".join([*lines[:12], "{broken", *lines[12:]]))
    with pytest.raises(ReproError, match="line 13 is no JSON"):
        build(source, folder, shard=10)
    first = {path.name: path.stat().st_mtime_ns for path in folder.glob("*-00000.*")}
    with gzip.open(source, "wt") as file:
        file.write("\n".join([*lines[:12], "", *lines[12:]]))
    counts = build(source, folder, shard=10)
    assert sum(counts.values()) == 23
    assert first == {path.name: path.stat().st_mtime_ns for path in folder.glob("*-00000.*")}
    rows = [row for path in sorted(folder.glob("*.parquet")) for row in parquet.read_table(path).to_pylist()]
    assert sorted(row["title"] for row in rows) == sorted(f"t{k}" for k in range(23))
    assert counts["test"] == sum(split_of(row["title"]) == "test" for row in rows)
    assert build(source, folder, shard=10) == counts
    with pytest.raises(ReproError, match="there is no"):
        build(tmp_path / "none.jsonl", folder)
