"""What the heuristics read and tell, the threshold, and a record while a model is pretrained."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from repro.data.examples import LabelledText, Mention, MultipleChoice, Pronoun
from repro.errors import ReproError
from repro.papers.gpt1_2018 import finetuning, pretraining, zero_shot
from repro.study import experiment, run

CODER = SimpleNamespace(bos=0, encode=lambda text: np.array([1 + ord(sign) for sign in text]))


def text(ids):
    return "".join(chr(k - 1) for k in ids)


def read(task, row, other=None, limit=200):
    """(what stands before, what is told) of each answer."""
    (found,) = zero_shot.asked(zero_shot.HEURISTICS[task], [row], [other or row], CODER, limit)
    assert all(before[0] == 0 for before, _ in found)
    return [(text(before[1:]), text(told)) for before, told in found]


def test_sentences_are_judged_by_themselves():
    row = LabelledText("a", "They drank.", 1)
    assert read("cola", row) == [("", "They drank.")]
    assert read("cola", row, LabelledText("b", "The pub them.", 0)) == [("", "The pub them.")]


def test_a_feeling_is_told_behind_very():
    row = LabelledText("a", "a joy to watch ", 1)
    assert read("sst2", row) == [("a joy to watch very", " negative"), ("a joy to watch very", " positive")]


def test_candidates_stand_behind_document_and_question_and_only_the_document_loses_its_end():
    row = MultipleChoice("a", "Who?", ("Tom", "Anna"), 1, ("One came.", "So."))
    other = MultipleChoice("b", "Why?", ("x", "y"), 0, ("Far.",))
    assert read("race", row) == [("One came.\nSo.\nWho?", " Tom"), ("One came.\nSo.\nWho?", " Anna")]
    assert read("race", row, other) == [("Far.\nWhy?", " Tom"), ("Far.\nWhy?", " Anna")]
    assert read("race", row, limit=15) == [("One c\nWho?", " Tom"), ("One \nWho?", " Anna")]


def pronoun(told="Ann met Sue. She left.", name="She", **meant):
    return Pronoun("a", told, Mention(name, told.index(name)), Mention("Ann", told.index("Ann")),
                   Mention("Sue", told.index("Sue")), **{"is_a": False, "is_b": True} | meant)


def test_names_take_the_place_of_the_pronoun_and_the_rest_is_told():
    assert read("gap", pronoun()) == [("Ann met Sue. Ann", " left."), ("Ann met Sue. Sue", " left.")]
    assert read("gap", pronoun(), limit=15) == [("Sue. Ann", " left."), ("Sue. Sue", " left.")]  # its beginning is lost
    other = pronoun("Why would Ann or Sue think her wrong?", "her")
    assert read("gap", pronoun(), other)[0] == ("Why would Ann or Sue think Ann", " left.")


def test_pronouns_that_mean_neither_name_or_end_the_text_are_left_out(monkeypatch):
    rows = [pronoun(), pronoun(is_b=False), pronoun(is_a=True, is_b=False), pronoun("Ann met Sue. It was her.", "her."),
            pronoun()]
    monkeypatch.setattr("repro.data.tasks.task", lambda name: SimpleNamespace(examples=lambda split, n: iter(rows)))
    found, labels = zero_shot.rows_of(SimpleNamespace(task="gap", examples=None), "test")
    assert labels == [1, 0, 1] and found == [rows[0], rows[2], rows[4]]


def test_means_are_over_tokens_and_sums_are_not():
    model = lambda ids: torch.zeros(*ids.shape, 4)  # noqa: E731
    texts = [[([0], [1, 2]), ([0, 3], [1])], [([0], [1, 2, 3])]]
    for mean, wanted in ((True, [[1, 1], [1]]), (False, [[2, 1], [3]])):
        found = zero_shot.log_probabilities(model, texts, mean)
        assert [(value / -np.log(4)).tolist() for value in found] == [pytest.approx(one) for one in wanted]


def test_a_threshold_is_the_best_there_is():
    draw = np.random.default_rng(0)
    values, labels = draw.normal(size=60), draw.integers(0, 2, 60)
    for metric in ("accuracy", "matthews"):
        cut = zero_shot.threshold(values, labels, metric)
        best = max(finetuning.score(labels, (values >= one).astype(int), metric) for one in values)
        assert finetuning.score(labels, (values >= cut).astype(int), metric) == best
    assert zero_shot.threshold([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1], "accuracy") == 3


@pytest.mark.parametrize("task", ["belonging", "nouns"])
def test_a_record_tells_of_every_checkpoint_and_of_the_untrained_model(home, monkeypatch, task):
    plan = type(pretraining.EXPERIMENT).plan
    tiny = {"n_embd": 16, "n_head": 2, "batch_size": 4, "tokens": 1_280, "checkpoints": 3}
    monkeypatch.setattr(type(pretraining.EXPERIMENT), "plan", lambda self, scale, sets=None, seeds=(0,): plan(
        self, scale, (tiny if self.name == "pretrain-gpt" else {}) | dict(sets or {}), seeds))
    monkeypatch.setattr(pretraining, "HELD_OUT", 1_000)
    config, = experiment("zero-shot-gpt").plan("smoke", {"task": task, "examples": "30", "train_examples": "20",
                                                         "model": "lstm"})
    record = run(config)
    moments = [0, 512, 1024, 1280]
    assert [tokens for tokens, _ in record.curves["score"]] == moments
    assert [tokens for tokens, _ in record.curves["other_score"]] == [0, 1280]
    for number, (_, value) in enumerate(record.curves["score"]):
        assert value == pytest.approx(100 * np.mean(record.documents[f"checkpoint_{number}"]["correct"]))
    test = record.documents["test"]
    hits = [int(one == other) for one, other in zip(test["label"], test["prediction"], strict=True)]
    assert hits == record.documents["checkpoint_3"]["correct"] and len(hits) == record.metrics["rows"] == 30
    assert record.metrics["test_score"] == pytest.approx(100 * np.mean(hits))
    assert record.metrics["majority_score"] == pytest.approx(100 * max(np.bincount(test["label"])) / 30)
    assert record.metrics["untrained_score"] == record.curves["score"][0][1]


@pytest.mark.parametrize(("changes", "words"), [
    ({"task": "colas"}, "unknown task 'colas'. Did you mean 'cola'"), ({"task": "rte"}, "no heuristic for task rte"),
    ({"task": "nouns", "examples": "1"}, "examples"), ({"task": "nouns", "model": "rnn"}, "model")])
def test_settings_that_cannot_be(changes, words):
    with pytest.raises(ReproError, match=words):
        experiment("zero-shot-gpt").plan("smoke", changes)
