"""The table that divides the gains on IMDB and Hyperpartisan by the length of a text, from the committed records."""

import json
from pathlib import Path

import numpy as np
import pytest

from repro.data import corpus, tokeniser
from repro.papers.longformer2020.tasks.classification import HYPERPARTISAN, IMDB
from repro.study import artifact
from repro.study.record import Record

ROOT = Path(__file__).parents[3]
COUNTS = {"IMDB": "imdb-subset", "Hyperpartisan": "hyperpartisan"}
COLUMNS = {"short": "short", "longformer-short": "Longformer, cut as short", "longformer": "Longformer"}


def raw(folder: str) -> list[dict]:
    return [json.loads(path.read_text()) for path in (ROOT / "results" / folder).glob("*.json")]


def lengths(task: str) -> dict[str, int]:
    counted, = (one for one in raw("small/context-lengths") if one["config"]["corpus"] == COUNTS[task])
    return dict(zip(counted["documents"]["all"]["id"], counted["documents"]["all"]["wordpieces"], strict=True))


def answers(task: str, model: str) -> list[tuple]:
    """(id, label, prediction) of every test text of every seed that all compared models have."""
    found = {}
    for one in raw("pretrained/longformer-tasks"):
        if one["config"]["task"] == task.lower():
            found.setdefault(one["config"]["model"], {})[one["config"]["seed"]] = one["documents"]["test"]
    seeds = set.intersection(*(set(found[name]) for name in COLUMNS))
    return [row for seed in sorted(seeds) for row in zip(*(
        found[model][seed][key] for key in ("id", "label", "prediction")), strict=True)]


@pytest.mark.parametrize("task", COUNTS)
def test_scores_by_length_from_the_records_by_hand(task):
    """Scores and gain of both groups, without the table's own code."""
    shown = artifact("longformer2020-gain-by-length").render("pretrained", ()).table
    length = lengths(task)
    for fits, name in ((True, "up to 512"), (False, "more than 512")):
        row, = (row for _, row in shown.iterrows() if (row["task"], row["tokens of a text"]) == (task, name))
        ids = {one for one, *_ in answers(task, "short") if (length[one] <= 512) == fits}
        assert row["texts"] == f"{len(ids):,}"
        scores = []
        for model in COLUMNS:
            pairs = [(label, guess) for one, label, guess in answers(task, model) if one in ids]
            hits = sum(a == b == 1 for a, b in pairs)
            scores.append(sum(a == b for a, b in pairs) / len(pairs) if task == "IMDB" else
                          2 * hits / (sum(a for a, _ in pairs) + sum(b for _, b in pairs)))
        scores = [100 * score for score in scores]
        for column, value in zip([*COLUMNS.values(), "gain"], [*scores, scores[-1] - scores[0]], strict=True):
            assert float(row[column].split()[0]) == pytest.approx(value, abs=0.0501), column


@pytest.mark.parametrize("task", [IMDB, HYPERPARTISAN])
def test_values_of_all_documents_are_those_without_a_choice(task):
    """And those of no choice sum to the parts: hits and counts of two groups add up to the whole score."""
    found = [Record.read(path) for path in sorted((ROOT / "results/pretrained/longformer-tasks").glob("*.json"))]
    records = [one for one in found if (one.config["task"], one.config["model"]) == (task.name, "longformer")][:2]
    every = task.values(records)
    half = np.arange(every.size).reshape(every.shape) % 2 == 0
    assert np.array_equal(task.values(records, np.ones_like(half)), every)
    parts = [task.values(records, chosen) for chosen in (half, ~half)]
    assert min(part.mean() for part in parts) <= every.mean() <= max(part.mean() for part in parts)
    assert np.allclose(parts[0][~half], parts[0].mean())  # what does not count does not move the mean


@pytest.mark.parametrize("task", COUNTS)
def test_every_tested_text_has_the_length_that_was_counted(task):
    """Every test text was counted; the first forty are counted again where the corpus is at hand."""
    length = lengths(task)
    assert {one for one, *_ in answers(task, "short")} <= length.keys()
    if not corpus(COUNTS[task]).available():
        pytest.skip(f"{COUNTS[task]} is not on this machine")
    coder = tokeniser("gpt2")
    for row in list(corpus(COUNTS[task]).examples("test"))[:40]:
        assert len(coder.encode(row.text)) == length[row.id]


def test_gain_by_length_without_records(tmp_path):
    shown = artifact("longformer2020-gain-by-length").render("pretrained", (), tmp_path).table
    assert set(shown["gain"]) == {"not run"} and list(shown["tokens of a text"]) == ["up to 512", "more than 512"] * 2
