"""Scoring a fine-tuned model: which positions are pooled, what is masked out, what a fine-tuning is asked for."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from repro.data import tokeniser, tokens
from repro.models import load_causal_lm, save_causal_lm
from repro.papers.yoshida2020.evaluation import evaluate, trained
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


def test_which_fine_tuning_is_behind_an_evaluation():
    plan = experiment("recurrence-wikitext103").plan("small")
    behind = {(one.model, one.overlap, one.train_overlap): trained(one) for one in plan}
    assert {run.experiment for run in behind.values()} == {"finetune-gpt2"}
    assert [behind["baseline", overlap, None].overlap for overlap in (0, 5, 50)] == [0, 0, 0]
    assert [behind["recurrent", overlap, None].overlap for overlap in (0, 5, 50)] == [0, 5, 50]
    assert behind["baseline", 50, 50].overlap == 50
    books = experiment("recurrence-pg19").plan("small")
    assert {trained(one).train_documents for one in books} == {20}
    assert len({trained(one).model_dump_json() for one in books}) == 14
