"""What all of Longformer's tasks share: costs and units, by hand."""

from types import SimpleNamespace

import pytest

from repro.papers.base.pretraining import PROCESS
from repro.papers.longformer2020.tasks import frame
from repro.papers.longformer2020.tasks.ablation import task_of
from repro.papers.longformer2020.tasks.classification import IMDB
from repro.papers.longformer2020.tasks.hotpotqa import HOTPOTQA
from repro.papers.longformer2020.tasks.triviaqa import TRIVIAQA
from repro.study import experiment

BASE = SimpleNamespace(n_embd=4, n_layer=2, n_positions=8)
TEXTS = 2 * 3 * 50 + 300 + 2 * 7  # two passes forward and back, those read once, and those that choose an epoch


@pytest.fixture
def cost(monkeypatch):
    """The estimate of a run on a corpus of 300 test texts of 1,000 tokens."""
    monkeypatch.setattr(frame, "base_of", lambda config: BASE)
    monkeypatch.setattr(frame, "PRETRAINING", SimpleNamespace(estimate=lambda base: SimpleNamespace(parameters=100)))
    monkeypatch.setattr(frame, "KNOWN", {"made": (1_000, 300, 1_000)})
    settings = {"scale": "smoke", "corpus": "made", "n_train": 50, "epochs": 2, "batch_size": 3, "window": 10, "cut": 9,
                "max_positions": 600, "recompute": False}

    def estimated(task=TRIVIAQA, positions=600, **changes):
        return frame.estimate(SimpleNamespace(**settings | changes), task, positions, held_out=7)

    return estimated


def test_the_costs_of_a_longformer(cost):
    found = cost(model="longformer")
    assert found.parameters == 100 + (600 - 8) * 4 + 3 * 2 * (16 + 4) == 2_588
    assert found.training_tokens == 2 * 50 * 600
    assert found.flops == 600 * 2 * (24 * 16 + 4 * 10 * 4) * TEXTS
    assert found.memory_bytes == PROCESS + 16 * 2_588 + 3 * 600 * 4 * 4 * 34 * 2
    assert found.seconds == pytest.approx(found.flops / 2e10)
    less = cost(model="longformer", recompute=True)
    assert found.memory_bytes - less.memory_bytes == 3 * 600 * 4 * 4 * (34 * 2 - (2 * 2 + 34))
    assert cost(HOTPOTQA, model="longformer").seconds == pytest.approx(HOTPOTQA.cost * found.seconds)


def test_a_cut_text_and_pieces_cost_what_is_read(cost):
    cut = cost(model="longformer-cut")
    assert cut.flops == 9 * 2 * (24 * 16 + 4 * 9 * 4) * TEXTS
    pieces, one = cost(model="short", positions=8), cost(IMDB, model="short", positions=8)
    assert pieces.flops == 600 * 2 * (24 * 16 + 4 * 8 * 4) * TEXTS  # a token sees its piece
    assert one.flops == 8 * 2 * (24 * 16 + 4 * 8 * 4) * TEXTS  # only the first piece
    assert pieces.parameters == 100 + 3 * 2 * (16 + 4)
    assert pieces.memory_bytes - one.memory_bytes == 3 * (600 - 8) * 4 * 4 * 34 * 2  # all pieces of a text at once


def test_both_experiments_use_these_costs():
    for name, settings in (("longformer-tasks", {"task": "imdb"}), ("wikihop-ablation", {})):
        declared = experiment(name)
        config = next(one for one in declared.plan("pretrained", settings) if one.model == "longformer")
        task = IMDB if settings else task_of(config)
        assert declared.estimate(config).flops == frame.estimate(
            config, task, 4_096, getattr(config, "held_out", 0)).flops


def test_units_have_one_rule_for_all_tasks():
    told = {"test_nats": "nats per example", "nats": "nats per example", "validation_accuracy": "per cent",
            "f1": "per cent", "best_short": "per cent", "tokens_read": "tokens per example",
            "train_examples": "examples", "parameters": "weights"}
    for task in (IMDB, TRIVIAQA, HOTPOTQA):
        assert {name: task.unit_of(name) for name in told} == told
    assert HOTPOTQA.unit_of("paragraphs_kept") == "paragraphs per question"
    assert TRIVIAQA.unit == HOTPOTQA.unit == "question" and IMDB.unit == "document"


def test_table_7_shows_one_task_or_one_model_alone():
    from repro.study import artifact

    shown = artifact("longformer2020-table7").render("pretrained", sets={"task": "hyperpartisan"}).content
    assert list(shown[shown["source"] != "the paper"]["task"]) == ["Hyperpartisan"]
    assert shown.iloc[-1]["seeds"] == "5" and len(shown) == 7
    alone = artifact("longformer2020-table7").render("pretrained", sets={"model": "short"}).content.iloc[-1]
    assert alone["short"].startswith("66.5 [") and (alone["Longformer"], alone["gain"]) == ("not run", "not run")


def test_gains_are_paired_when_one_model_has_fewer_seeds(tmp_path):
    """Five seeds of the short model and two of Longformer: the gain is that of the two."""
    from pathlib import Path

    from repro.study import Store, artifact
    from repro.study.record import Record

    means = {}
    for path in (Path(__file__).parents[3] / "results/pretrained/longformer-tasks").glob("*.json"):
        record = Record.read(path)
        task, model = record.config["task"], record.config["model"]
        if task == "imdb" and (model == "short" or model == "longformer" and record.seed in (1, 3)):
            Store(tmp_path).put(record)
            means[model, record.seed] = record.metrics["accuracy"]
    wanted = sum(means["longformer", seed] - means["short", seed] for seed in (1, 3)) / 2
    shown = artifact("longformer2020-table7").render("pretrained", results=tmp_path, sets={"task": "imdb"}).content
    gain, = shown[shown["source"].str.endswith("imdb-subset")]["gain"]
    assert len(means) == 7 and float(gain.split()[0]) == pytest.approx(wanted, abs=0.051)
