"""Which documents a fine-tuning reads, and which of their tokens it predicts."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import repro.training
from repro.data import corpus, drawn, registry, tokeniser, tokens
from repro.models import save_causal_lm
from repro.papers.yoshida2020.perplexity.finetuning import execute, leading
from repro.study import experiment

CODER = tokeniser("word", corpus="synthetic-books")


@pytest.fixture
def tuned(tiny_gpt2, tmp_path, monkeypatch):
    """Fine-tunes nothing: gives the record's notes and the batches that a training would get."""
    save_causal_lm(tiny_gpt2(vocab_size=205, n_positions=128), tmp_path / "base" / "model")
    record = SimpleNamespace(notes={"tokeniser": CODER.fingerprint}, id="0")
    bar = SimpleNamespace(advance=lambda n: None)
    context = SimpleNamespace(need=lambda run: (record, tmp_path / "base"), folder=tmp_path / "run",
                              progress=lambda *told: nullcontext(bar))

    def run(**sets):
        given = []
        monkeypatch.setattr(repro.training, "train", lambda objective, batches, *rest, **more: given.append(batches)
                            or repro.training.TrainResult(best={"loss": 1.0}))
        config = experiment("finetune-gpt2").plan("smoke", sets)[0]
        return config, execute(config, context).notes, given[0]

    return run


def test_books_are_the_first_by_name_or_drawn_by_the_seed(tuned):
    config, notes, batches = tuned(train_documents=3)
    assert batches.tokens.tolist() == tokens("synthetic-books", "train", CODER, 3).ids.tolist()
    assert "train_names" not in notes and "train_draw" not in config.settings()
    for seed in (0, 1):
        config, notes, batches = tuned(train_documents=3, train_draw="random", seed=seed)
        names = drawn("synthetic-books", "train", 3, seed)
        assert notes["train_names"] == list(names) and notes["train_documents"] == 3
        assert batches.tokens.tolist() == tokens("synthetic-books", "train", CODER, names=names).ids.tolist()
        assert config.settings()["train_draw"] == "random"
    assert drawn("synthetic-books", "train", 3, 0) != names
    assert "train_names" not in tuned(train_draw="random")[1]  # all of them


def test_what_is_never_predicted_is_no_target_of_the_training(tuned, monkeypatch):
    assert tuned(train_documents=2)[2].targets is None
    source = replace(corpus("synthetic-books"), never_targets=("near", "then"))
    monkeypatch.setitem(registry._BY_NAME, "synthetic-books", source)
    _, notes, batches = tuned(train_documents=2)
    never = {int(CODER.encode(word)[0]) for word in source.never_targets}
    assert batches.targets.tolist() == [token not in never for token in batches.tokens.tolist()]
    assert notes["train_words"] == 5000 - (~batches.targets).sum() < 5000


@pytest.mark.parametrize("n", [5, 2505, 5000])
def test_the_head_of_a_text_keeps_what_is_never_predicted(n):
    source = replace(corpus("synthetic-books"), never_targets=("near", "then"))
    text = tokens(source, "validation", CODER)
    found = leading(text, n)
    np.testing.assert_array_equal(found.targets, text.targets[:len(found.ids)])
    assert len(found.targets) == len(found.ids)
