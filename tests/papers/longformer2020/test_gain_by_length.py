"""The table that divides the gains on IMDB and Hyperpartisan by the length of a text, from the committed records."""

import json
from pathlib import Path

import numpy as np
import pytest

from repro.data import corpus, tokeniser
from repro.evaluation.classification import score
from repro.papers.longformer2020.tasks.classification import HYPERPARTISAN, IMDB
from repro.study import artifact
from repro.study.record import Record

ROOT = Path(__file__).parents[3]
COUNTS = {"IMDB": "imdb-subset", "Hyperpartisan": "hyperpartisan"}
COLUMNS = {"short": "short", "longformer-short": "Longformer, cut like short", "longformer": "Longformer"}
GAINS = {"gain": "short", "from reading more": "longformer-short"}
GROUPS = {"all": lambda n: True, "up to 512": lambda n: n <= 512, "more than 512": lambda n: n > 512}


def raw(folder: str) -> list[dict]:
    return [json.loads(path.read_text()) for path in (ROOT / "results" / folder).glob("*.json")]


def lengths(task: str) -> dict[str, int]:
    counted, = (one for one in raw("small/context-lengths") if one["config"]["corpus"] == COUNTS[task])
    return dict(zip(counted["documents"]["all"]["id"], counted["documents"]["all"]["wordpieces"], strict=True))


def seeds_of(task: str) -> dict[str, dict[int, dict]]:
    """The test texts of each model by seed."""
    found = {model: {} for model in COLUMNS}
    for one in raw("pretrained/longformer-tasks"):
        if one["config"]["task"] == task.lower() and one["config"]["model"] in found:
            found[one["config"]["model"]][one["config"]["seed"]] = one["documents"]["test"]
    return found


def by_hand(task: str, tests: list[dict], fits) -> float:
    """Accuracy or F1 in % of the texts of some lengths."""
    length = lengths(task)
    pairs = [(a, b) for test in tests
             for one, a, b in zip(test["id"], test["label"], test["prediction"], strict=True) if fits(length[one])]
    if task == "IMDB":
        return 100 * sum(a == b for a, b in pairs) / len(pairs)
    return 100 * 2 * sum(a == b == 1 for a, b in pairs) / sum(a + b for a, b in pairs)


@pytest.mark.parametrize("task", COUNTS)
def test_scores_by_length_from_the_records_by_hand(task):
    """Scores and gains of all groups, without the table's own code."""
    shown = artifact("longformer2020-gain-by-length").render("pretrained", ()).table
    found, length = seeds_of(task), lengths(task)
    enough = [set(one) for one in found.values() if len(one) >= 3]
    common = set.intersection(*enough)
    found = {model: {seed: one for seed, one in tests.items() if seed in common} for model, tests in found.items()}
    ids = {one for test in found["short"].values() for one in test["id"]}
    for name, fits in GROUPS.items():
        row, = (row for _, row in shown.iterrows() if (row["task"], row["tokens of a text"]) == (task, name))
        assert row["texts"] == f"{sum(fits(length[one]) for one in ids):,}"
        for model, column in COLUMNS.items():
            if found[model]:
                assert float(row[column].split()[0]) == pytest.approx(
                    by_hand(task, list(found[model].values()), fits), abs=0.0501), column
        for column, other in GAINS.items():
            if seeds := found["longformer"].keys() & found[other].keys():
                ours, theirs = (by_hand(task, [found[model][seed] for seed in seeds], fits)
                                for model in ("longformer", other))
                assert float(row[column].split()[0]) == pytest.approx(ours - theirs, abs=0.0501), column


@pytest.mark.parametrize("task", [IMDB, HYPERPARTISAN])
def test_chosen_documents_alone_count(task):
    found = [Record.read(path) for path in sorted((ROOT / "results/pretrained/longformer-tasks").glob("*.json"))]
    records = [one for one in found if (one.config["task"], one.config["model"]) == (task.name, "longformer")][:2]
    every = task.values(records)
    half = np.arange(every.size).reshape(every.shape) % 2 == 0
    assert np.array_equal(task.values(records, np.ones_like(half)), every)
    label, guess = (np.array([one.documents["test"][name] for one in records])[half]
                    for name in ("label", "prediction"))
    part = task.values(records, half)
    assert part.mean() == pytest.approx(100 * score(label.tolist(), guess.tolist(), task.metric))
    assert np.allclose(part[~half], part.mean())  # what does not count does not move the mean
    assert not task.values(records, np.zeros_like(half)).any()


@pytest.mark.parametrize("task", COUNTS)
def test_every_tested_text_has_the_length_that_was_counted(task):
    """The first forty are counted again if the corpus is on this machine."""
    length = lengths(task)
    assert {one for tests in seeds_of(task).values() for test in tests.values() for one in test["id"]} <= length.keys()
    if not corpus(COUNTS[task]).available():
        pytest.skip(f"{COUNTS[task]} is not on this machine")
    coder = tokeniser("gpt2")
    for row in list(corpus(COUNTS[task]).examples("test"))[:40]:
        assert len(coder.encode(row.text)) == length[row.id]


def test_gain_by_length_without_records(tmp_path):
    shown = artifact("longformer2020-gain-by-length").render("pretrained", (), tmp_path).table
    assert set(shown["gain"]) == set(shown["texts"]) == {"not run"}
    assert list(shown["tokens of a text"]) == list(GROUPS) * 2
    assert artifact("longformer2020-gain-by-length").render("smoke", (), tmp_path).table.empty  # no run counts them
