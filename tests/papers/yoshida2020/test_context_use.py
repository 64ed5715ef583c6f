"""Loss by position, by hand."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from repro.papers.yoshida2020.perplexity import gemma
from repro.papers.yoshida2020.perplexity.context_use import by_stretch, draw, tuned, whole_windows
from repro.papers.yoshida2020.perplexity.evaluation import trained
from repro.study import Store, experiment
from repro.study.progress import Progress


def test_positions_are_averaged_over_windows_and_doubling_stretches():
    nll = np.array([1, 2, 3, 4, 5, 6, 3, 2, 1, 0, 1, 4, 99.0])  # two windows of 6 and a piece of a third
    mean = [2, 2, 2, 2, 3, 5]
    assert by_stretch(nll, 6) == [[1.0, mean[0]], [2.0, mean[1]], [3.5, (mean[2] + mean[3]) / 2],
                                   [5.5, (mean[4] + mean[5]) / 2]]


def test_positions_begin_again_in_every_document():
    """Two documents of 7 and 5 targets in windows of 3: their rests fill no window, not even together."""
    nll = np.array([1, 2, 3, 4, 5, 6, 99, 1, 2, 3, 98, 97.0])
    kept = whole_windows(nll, [7, 5], 3)
    assert kept.tolist() == [1, 2, 3, 4, 5, 6, 1, 2, 3]
    assert by_stretch(kept, 3) == [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]


def test_a_run_counts_positions_from_the_start_of_each_book(monkeypatch):
    """The embedded books have 2,500 words, which windows of 30 do not divide, and this model counts its context."""
    import torch

    from repro import models

    def reader(folder):
        return lambda ids: torch.zeros(*ids.shape, 205).scatter(2, ids[..., None], torch.arange(
            ids.shape[1]).float().expand_as(ids)[..., None])  # position k wrongly favors its own word by k nats

    monkeypatch.setattr(models, "load_causal_lm", reader)
    config, = experiment("context-use").plan("smoke")
    context = SimpleNamespace(need=lambda run: (None, Path("nowhere")), progress=Progress(False))
    found = experiment("context-use").execute(config, context).curves["loss_by_position"]
    losses = np.log(204 + np.exp(np.arange(30)))  # of another word than the last, which is rare to repeat
    stretches = [(0, 1), (1, 2), (2, 4), (4, 8), (8, 16), (16, 30)]
    expected = [losses[first:last].mean() for first, last in stretches]
    assert [loss for _, loss in found] == pytest.approx(expected, rel=0.02)


def test_it_looks_at_the_baseline_of_table_1():
    config, = experiment("context-use").plan("small")
    run = tuned(config)
    assert (run.model, run.corpus, run.window, run.overlap) == ("baseline", "wikitext-103", 300, 0)
    assert run in [experiment("recurrence-wikitext103").needs(one)[0]
                   for one in experiment("recurrence-wikitext103").plan("small")]
    assert tuned(config.model_copy(update={"seed": 2})) == run.model_copy(update={"seed": 2})


def test_at_pretrained_it_looks_at_gemma_with_and_without_the_normalized_module():
    plan = experiment("context-use").plan("pretrained", None, [1])
    ran = {gemma.place(run): trained(run) for run in experiment("recurrence-gemma").plan("pretrained", None, [1])}
    assert [experiment("context-use").needs(config) for config in plan] == [
        [ran[model, True, 0]] for model in ("baseline", "recurrent")]
    assert {(config.window, config.corpus, config.test_head) for config in plan} == {(64, "pg19-subset", 1536)}
    small, = experiment("context-use").plan("small")
    assert [record.id for record in Store.for_scale("small").seeds(small)] == ["bfc61821e6c5c1a9"]  # its record stays


def test_each_model_is_drawn_above_the_lowest_loss_of_the_baseline_and_seeds_are_averaged(monkeypatch):
    from repro import plotting

    drawn = {}
    monkeypatch.setattr(plotting, "draw_curves", lambda lines, **_: drawn.update(lines))
    plan = experiment("context-use").plan("pretrained")
    curves = {"baseline": ([[1, 5.0], [2, 4.0]], [[1, 6.0], [2, 3.0]]), "recurrent": ([[1, 4.0], [2, 3.0]],) * 2}
    draw(SimpleNamespace(scales=("pretrained",), plan=lambda scale: plan, records_of=lambda config: [
        SimpleNamespace(curves={"loss_by_position": curve}) for curve in curves[config.model]]))
    assert drawn == {"pretrained": [[1, 2.0], [2, 0.0]], "pretrained, recurrent": [[1, 0.5], [2, -0.5]]}
