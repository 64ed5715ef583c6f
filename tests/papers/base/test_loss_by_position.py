"""Loss of the base model by position: against one window at a time, and what is too long or too short."""

import types
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from repro.data import Tokens
from repro.errors import ReproError
from repro.models import gpt2_mini, save_model
from repro.papers.base import loss_by_position
from repro.papers.base.loss_by_position import EXPERIMENT, execute

LENGTHS = (40, 7, 9, 100)  # tokens of documents; the second has no window of 8 and the token after it
WINDOW, WINDOWS, AFTER = 8, 3, 2


@pytest.fixture
def found(tmp_path, monkeypatch):
    """What it finds for a random model on random documents, and the model and the documents."""
    torch.manual_seed(0)
    model = gpt2_mini(1, 8, 2, 30, 16)
    for weight in model.parameters():
        weight.data.normal_(std=0.5)
    save_model(model, tmp_path / "model")
    draw = np.random.default_rng(0)
    documents = [draw.integers(1, 30, n).astype(np.int32) for n in LENGTHS]
    streams = [np.append(np.int32(0), ids).astype(np.int32) for ids in documents]
    starts = np.cumsum([0, *map(len, streams)])[:-1] + 1
    counted = np.ones(len(LENGTHS), np.int64)
    text = Tokens(np.concatenate(streams), starts, counted, counted, 0, False)
    monkeypatch.setattr(loss_by_position, "tokeniser_of", lambda config: None)
    monkeypatch.setattr("repro.data.tokens", lambda corpus, split, coder: text if split == "validation" else None)

    @contextmanager
    def bar(*_):
        yield types.SimpleNamespace(advance=lambda n: None)

    config, = EXPERIMENT.plan("smoke", {"window": WINDOW, "windows_per_document": WINDOWS, "after": AFTER})
    context = types.SimpleNamespace(need=lambda run: (None, tmp_path), progress=bar)
    return types.SimpleNamespace(outcome=execute(config, context), model=model.eval(), streams=streams)


def test_every_position_is_averaged_over_the_first_windows_of_each_document(found):
    by_document = []
    for ids in found.streams:
        windows = []
        for k in range(WINDOWS):
            part = torch.from_numpy(ids[k * WINDOW:(k + 1) * WINDOW + 1]).long()
            if len(part) == WINDOW + 1:
                with torch.no_grad():
                    logits = found.model(part[None, :-1]).logits[0]
                windows.append(F.cross_entropy(logits, part[1:], reduction="none").numpy())
        if windows:
            by_document.append(np.mean(windows, 0))
    by_document = np.array(by_document)
    assert by_document.shape == (3, WINDOW)
    told, close = found.outcome.documents["validation"], lambda values: pytest.approx(list(values), rel=1e-5)
    assert told["position_1"] == close(by_document[:, 0])
    assert told["position_2"] == close(by_document[:, 1])
    assert told["positions_3_to_4"] == close(by_document[:, 2:4].mean(1))
    assert told["positions_5_to_8"] == close(by_document[:, 4:].mean(1))
    late = by_document[:, 2:4].mean(1) - by_document[:, 4:].mean(1)
    assert told["late_gain"] == close(late)
    assert found.outcome.metrics == {"late_gain": pytest.approx(late.mean(), rel=1e-5),
                                     "token_loss": pytest.approx(by_document.mean(), rel=1e-5)}
    means = by_document.mean(0)
    curve = [[1, means[0]], [2, means[1]], [3.5, means[2:4].mean()], [6.5, means[4:].mean()]]
    assert np.allclose(found.outcome.curves["loss_by_position"], curve, rtol=1e-5)


@pytest.mark.parametrize(("sets", "told"), [
    ({"window": 129}, "window is 129 tokens, but the model's context ends at 128"),
    ({"after": 64}, "after is 64 tokens; it must be less than half the window")])
def test_settings_that_cannot_be(sets, told):
    with pytest.raises(ReproError, match=told):
        EXPERIMENT.plan("smoke", sets)


def test_at_small_it_looks_past_150_tokens_of_a_thousand():
    config, = EXPERIMENT.plan("small")
    assert (config.window, config.after, config.corpus) == (1024, 150, "pg19-subset")
    assert EXPERIMENT.needs(config)[0].experiment == "pretrain-gpt2-mini"
