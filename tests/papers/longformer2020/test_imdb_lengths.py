"""The table that divides IMDB's accuracy by the length of a review, from the committed records."""

import json
from pathlib import Path

import pytest

from repro.data import corpus, tokeniser
from repro.study import artifact

ROOT = Path(__file__).parents[3]
IMDB_LENGTHS = ROOT / "results/small/context-lengths/1da9602739a26b59.json"


def test_imdb_by_length_from_the_records_by_hand():
    """Accuracies and gain of both groups from the committed records, without the table's own code."""
    shown = artifact("longformer2020-imdb-lengths").render("pretrained", ()).table
    pieces = json.loads(IMDB_LENGTHS.read_text())["documents"]["all"]["wordpieces"][10_000:]
    right = {"short": [], "longformer": []}
    for path in (ROOT / "results/pretrained/longformer-tasks").glob("*.json"):
        record = json.loads(path.read_text())
        if record["config"]["task"] == "imdb" and record["config"]["model"] in right:
            test = record["documents"]["test"]
            right[record["config"]["model"]].append([a == b for a, b in zip(
                test["label"], test["prediction"], strict=True)])
    means = {model: [sum(one) / len(one) for one in zip(*seeds, strict=True)] for model, seeds in right.items()}
    for (_, row), fits in zip(shown.iterrows(), (True, False), strict=True):
        group = [k for k, n in enumerate(pieces) if (n <= 512) == fits]
        assert row["reviews"] == f"{len(group):,}"
        short, long = (100 * sum(means[model][k] for k in group) / len(group) for model in right)
        for name, value in (("short", short), ("Longformer", long), ("gain", long - short)):
            assert float(row[name].split()[0]) == pytest.approx(value, abs=0.0501), name


def test_imdb_lengths_are_in_the_order_of_its_test_reviews():
    if not corpus("imdb-subset").available():
        pytest.skip("imdb-subset is not on this machine")
    pieces = json.loads(IMDB_LENGTHS.read_text())["documents"]["all"]["wordpieces"]
    rows, coder = list(corpus("imdb-subset").examples("test")), tokeniser("gpt2")
    assert [len(coder.encode(row.text)) for row in rows[:40]] == pieces[-len(rows):][:40]
    records = [json.loads(path.read_text()) for path in (ROOT / "results/pretrained/longformer-tasks").glob("*.json")]
    names = {tuple(one["documents"]["test"]["id"]) for one in records if one["config"]["task"] == "imdb"}
    assert names == {tuple(row.id for row in rows)}


def test_imdb_by_length_without_records(tmp_path):
    shown = artifact("longformer2020-imdb-lengths").render("pretrained", (), tmp_path).table
    assert set(shown["gain"]) == {"not run"} and list(shown["tokens of a review"]) == ["up to 512", "more than 512"]
