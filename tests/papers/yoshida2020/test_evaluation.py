"""Scoring a fine-tuned model: which positions are pooled, what is masked out, what a fine-tuning is asked for."""

import math
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from repro.data import tokeniser, tokens
from repro.errors import ReproError
from repro.models import load_causal_lm, save_causal_lm
from repro.papers.yoshida2020.perplexity.evaluation import evaluate, trained
from repro.papers.yoshida2020.perplexity.finetuning import FINETUNING
from repro.study import experiment


@pytest.mark.parametrize("positions", ["all", "passed"])
def test_a_model_is_tested_with_the_positions_of_the_config(tiny_recurrent, tmp_path, positions):
    import torch

    save_causal_lm(tiny_recurrent(changes={"vocab_size": 205, "n_positions": 30}), tmp_path / "model")
    record = SimpleNamespace(curves={}, notes={}, id="0")
    bar = SimpleNamespace(advance=lambda n: None)
    context = SimpleNamespace(need=lambda run: (record, tmp_path), progress=lambda *told: nullcontext(bar))
    config = next(one for one in experiment("variations-pg19").plan("smoke")
                  if (one.overlap, one.train_overlap, one.test_positions) == (5, 0, positions))
    outcome = evaluate(config, context)

    model = load_causal_lm(tmp_path / "model")
    model.recurrence.config = replace(model.recurrence.config, positions=positions)
    text = tokens("synthetic-books", "validation", tokeniser("word", 0, "synthetic-books"))
    ids = torch.from_numpy(text.document(0)).long()[None]
    with torch.no_grad():
        by_hand, masked = (model(ids, 30, 5, labels=ids, recurrent=on).loss.item() * (ids.shape[1] - 1)
                           for on in (True, False))
    assert outcome.documents["validation"]["nll"][0] == pytest.approx(by_hand, rel=1e-5)
    assert abs(by_hand - masked) > 1e-3
    assert outcome.metrics["validation_word_perplexity_masked"] != outcome.metrics["validation_word_perplexity"]
    assert set(outcome.documents) == {"validation"}
    found = outcome.documents["validation"]
    assert set(found) == {"nll", "nll_masked", "nll_other_document", "n_words", "n_bytes"}
    assert found["nll_masked"][0] == pytest.approx(masked, rel=1e-5)
    for name in ("", "_masked", "_other_document"):
        total = sum(found[f"nll{name}"]) / sum(found["n_words"])
        assert outcome.metrics[f"validation_word_perplexity{name}"] == pytest.approx(math.exp(total), rel=1e-6)
    assert len({sum(found[f"nll{name}"]) for name in ("", "_masked", "_other_document")}) == 3


def test_the_controls_stand_on_test_text_too_and_books_are_read_as_far_as_asked(tiny_recurrent, tmp_path):
    save_causal_lm(tiny_recurrent(changes={"vocab_size": 205, "n_positions": 30}), tmp_path / "model")
    record = SimpleNamespace(curves={}, notes={"steps": 7}, id="0")
    bar = SimpleNamespace(advance=lambda n: None)
    context = SimpleNamespace(need=lambda run: (record, tmp_path), progress=lambda *told: nullcontext(bar))
    config = experiment("recurrence-pg19").plan("smoke", {"model": "recurrent", "overlap": 0, "splits": [["test"]],
                                                          "window": 30, "test_head": 40})[0]
    outcome = evaluate(config, context)
    assert {"test_word_perplexity", "test_word_perplexity_masked", "test_word_perplexity_other_document"} < set(
        outcome.metrics)
    found = outcome.documents["test"]
    assert len(found["nll_other_document"]) == len(found["nll"]) == len(found["nll_masked"])
    assert max(found["n_words"]) <= 40
    assert outcome.notes["steps"] == 7


def test_which_fine_tuning_is_behind_an_evaluation():
    plan = experiment("recurrence-wikitext103").plan("small")
    behind = {(one.model, one.overlap, one.train_overlap): trained(one) for one in plan}
    assert {run.experiment for run in behind.values()} == {"finetune-gpt2"}
    assert [behind["baseline", overlap, None].overlap for overlap in (0, 5, 50)] == [0, 0, 0]
    assert [behind["recurrent", overlap, None].overlap for overlap in (0, 5, 50)] == [0, 5, 50]
    assert behind["baseline", 50, 50].overlap == 50
    books = experiment("recurrence-pg19").plan("small")
    assert {trained(one).train_documents for one in books} == {20}
    assert len({trained(one).model_dump_json() for one in books}) == 16


def test_steps_are_made_and_told_at_every_overlap(tmp_path, tiny_gpt2):
    """A fine-tuning of three steps, without and with overlap, on the same targets."""
    save_causal_lm(tiny_gpt2(vocab_size=205, n_positions=30), tmp_path / "model")
    bar = SimpleNamespace(advance=lambda n, **info: None)
    told = []
    for overlap in (0, 5):
        folder = tmp_path / str(overlap)
        folder.mkdir()
        context = SimpleNamespace(folder=folder, need=lambda run: pytest.fail("no other run is needed"),
                                  progress=lambda *told: nullcontext(bar))
        config = FINETUNING.plan("smoke", {"model": "recurrent", "overlap": overlap, "steps": 3, "zero_init": True,
                                           "base": str(tmp_path / "model"), "module_learning_rate": 0.01,
                                           "validation_tokens": 200})[0]
        told.append(FINETUNING.execute(config, context).notes)
    for notes in told:
        assert (notes["steps"], notes["tokens"]) == (3, 3 * 8 * 8 * 30)
        assert (notes["learning_rate"], notes["module_learning_rate"], notes["zero_init"]) == (2e-3, 0.01, True)


def test_targets_of_a_sequence_without_steps_are_refused():
    with pytest.raises(ReproError, match="sequence is 100 targets.*set steps too"):
        FINETUNING.plan("smoke", {"sequence": 100})
