"""Memory and cost of recomputation: counted against sums done by hand, and predicted before anything runs."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from repro.errors import ReproError
from repro.recompute import RECOMPUTE, Plan, flops, paper_model, peak_memory, recomputed, training_memory, training_step

VOCABULARY = 29


def measure(n_layer, width, vocabulary, window, n_windows, batch, recompute, precision="no", activation="gelu_new"):
    """Memory of training a model with these sizes, counted on tensors without numbers: (bytes, model)."""
    from repro.models import gpt2_mini
    from repro.recurrence import RecurrentLM

    with FakeTensorMode():
        model = RecurrentLM(gpt2_mini(n_layer, width, 4, vocabulary, activation=activation).config)
        ids = torch.zeros((batch, window * n_windows + 1), dtype=torch.long)
        return training_memory(model, ids, window, recompute, precision), model


def text(n, batch=2):
    return torch.randint(VOCABULARY, (batch, n), generator=torch.Generator().manual_seed(0))


def test_every_storage_is_counted_once_from_its_making_to_its_end():
    there = torch.ones(1000)

    def step():
        first = there * 2  # 4,000 bytes
        view = first.view(10, 100)[2:].T
        first.add_(1)
        there.mul_(2)
        second = view.contiguous()  # 3,200 bytes more
        del first, view  # 4,000 bytes fewer
        third = torch.zeros(100, dtype=torch.float64)  # 800 bytes more
        return second, third

    assert peak_memory(step) == peak_memory(step, limit=7200) == 7200
    assert peak_memory(step, limit=7199) == math.inf


def test_what_is_freed_makes_room():
    def step(n):
        for _ in range(n):
            torch.zeros(250)

    assert peak_memory(lambda: step(1)) == peak_memory(lambda: step(5)) == 1000


def test_what_autograd_keeps_is_counted():
    weight = torch.ones(100, requires_grad=True)
    assert peak_memory(lambda: weight.exp().exp().exp().exp()) == 4 * 400  # each keeps its result
    assert peak_memory(lambda: weight + 1 + 1 + 1 + 1) == 2 * 400  # sums keep nothing
    with torch.no_grad():
        assert peak_memory(lambda: weight.exp().exp().exp().exp()) == 2 * 400


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_allocator_is_asked():
    before = torch.ones(2**20, device="cuda")
    assert peak_memory(lambda: (before * 2) * 2, "cuda") == 2 * 2**22


@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_counting_without_numbers_is_counting(tiny_config, recompute):
    from repro.recurrence import RecurrentLM

    real = training_memory(RecurrentLM(tiny_config()), text(13), 4, recompute)
    with FakeTensorMode():
        assert training_memory(RecurrentLM(tiny_config()), torch.zeros((2, 13), dtype=torch.long), 4, recompute) == real


def test_a_training_step_trains(tiny_recurrent):
    model, ids = tiny_recurrent(), text(13)
    loss = model(ids, 4, labels=ids).loss.item()
    step = training_step(model, ids, 4, "window")
    for _ in range(5):
        step()
    assert model(ids, 4, labels=ids).loss.item() < loss
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize("recompute", ["window", "window+layer"])
def test_a_further_window_adds_half_of_what_the_paper_allows(tiny_recurrent, recompute):
    allowed = paper_model(0, 12, 16, batch_size=3) - paper_model(0, 11, 16, batch_size=3)
    peaks = [training_memory(tiny_recurrent(), text(6 * n + 1, 3), 6, recompute) for n in (3, 4, 9)]
    assert peaks[1] - peaks[0] == allowed / 2 == 16 * 3 * 4  # z, in single precision
    assert peaks[2] - peaks[1] == 5 * 16 * 3 * 4


def test_the_papers_model_by_hand():
    assert paper_model(1000, 1, 16) == 1000 + 2 * 16 * 4
    assert paper_model(1000, 20, 768, batch_size=4, bytes_each=2) == 1000 + 20 * 2 * 768 * 4 * 2


@pytest.mark.parametrize(("dropout", "kept"), [(0.0, 0), (0.1, 3)])
def test_random_states_are_kept_where_there_is_dropout(tiny_recurrent, monkeypatch, dropout, kept):
    asked, get_rng_state = [], torch.get_rng_state
    monkeypatch.setattr(torch, "get_rng_state", lambda: asked.append(1) or get_rng_state())
    model, ids = tiny_recurrent(changes={"attn_pdrop": dropout}), text(13)
    model.train()(ids, 4, labels=ids, recompute="window", return_logits=False)
    assert len(asked) == kept
    model.eval()(ids, 4, labels=ids, recompute="window", return_logits=False)
    assert len(asked) == kept


class Named(torch.nn.Module):
    """A module that drops half of its numbers, by a share in an attribute or in its config."""

    def __init__(self, config=None, **own):
        super().__init__()
        self.config = config or SimpleNamespace()
        vars(self).update(own)

    def forward(self, x):
        return torch.nn.functional.dropout(x, 0.5, self.training)


@pytest.mark.parametrize("module", [
    torch.nn.Dropout(0.5), Named(dropout=0.5), Named(attention_dropout=0.5), Named(attn_pdrop=0.5),
    Named(SimpleNamespace(hidden_dropout=0.5)), torch.nn.Sequential(torch.nn.Identity(), Named(attention_dropout=0.5))],
    ids=["Dropout", "dropout", "attention_dropout", "attn_pdrop", "config", "part"])
def test_a_dropout_of_any_name_draws_the_same_again(module):
    x = torch.ones(50, requires_grad=True)
    torch.manual_seed(0)
    out = recomputed(True, module, x)
    gradient, = torch.autograd.grad((out * out).sum(), x)
    assert torch.equal(gradient, 4 * out) and 10 < (out > 0).sum() < 40  # out is 2 where x is kept, else 0


def test_what_is_recomputed_keeps_its_arguments_alone():
    layer = torch.nn.Sequential(torch.nn.Linear(10, 100), torch.nn.Tanh(), torch.nn.Linear(100, 1))
    x = torch.ones(5, 10, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        out = recomputed(True, layer, x)
    assert [t.shape for t in kept] == [x.shape]
    assert not kept.clear()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        plain = recomputed(False, layer, x)
    assert len(kept) > 1
    for a, b in zip(*(torch.autograd.grad(y.sum(), [x, *layer.parameters()]) for y in (out, plain)), strict=True):
        assert torch.equal(a, b)


LAYERS, WIDTH, HIDDEN, BATCH, WINDOW = 3, 16, 12, 2, 8


def products():
    """FLOPs of one window's forward pass by what does them: 2 for every multiplication and addition."""
    tokens = BATCH * WINDOW
    blocks = LAYERS * 2 * tokens * 12 * WIDTH**2
    attention = LAYERS * 2 * 2 * BATCH * WINDOW**2 * WIDTH
    with_previous = 2 * 2 * BATCH * ((WINDOW + 1)**2 - WINDOW**2) * WIDTH  # one query (padding) and one key more
    with_previous += 2 * BATCH * WIDTH * 2 * WIDTH  # the key and the value of h_prev
    module = 2 * BATCH * (WIDTH * HIDDEN + HIDDEN**2 + HIDDEN * WIDTH)
    return SimpleNamespace(blocks=blocks + attention, with_previous=with_previous, module=module,
                           pool=2 * BATCH * LAYERS * WIDTH, output=2 * tokens * WIDTH * VOCABULARY,
                           last_projections=LAYERS * 2 * tokens * 4 * WIDTH**2)


@pytest.mark.parametrize("n_windows", [1, 3])
def test_recomputation_adds_exactly_one_forward_pass(tiny_recurrent, n_windows):
    model, ids, part = tiny_recurrent().train(), text(WINDOW * n_windows + 1, BATCH), products()
    forward = flops(lambda: model(ids, WINDOW, labels=ids, return_logits=False))
    later = n_windows - 1  # windows that have an h_prev
    blocks = n_windows * part.blocks + later * part.with_previous
    assert forward == blocks + n_windows * (part.pool + part.output) + later * part.module

    cost = {kind: flops(training_step(model, ids, WINDOW, kind)) for kind in RECOMPUTE}
    # Everything that a window does is done once more: blocks, pooling, module and output layer.
    assert cost["window"] - cost["none"] == forward
    # By layer, blocks and output layer; of each block the last product is spared, since nobody needs its result.
    by_layer = blocks - n_windows * part.last_projections + n_windows * part.output
    assert cost["layer"] - cost["none"] == by_layer
    # Both: the window, all but its output layer, and then each layer of it.
    assert cost["window+layer"] - cost["none"] == forward - n_windows * part.output + by_layer


SHAPES = {"wide": (3, 256, 300, 128, 2), "small": (4, 128, 4096, 300, 1), "smoke": (3, 64, 205, 30, 8)}


@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh"])
@pytest.mark.parametrize(("shape", "n_windows"), [("wide", 3), ("small", 4), ("smoke", 1)])
def test_the_plan_foretells_the_peak(shape, recompute, n_windows, activation):
    n_layer, width, vocabulary, window, batch = SHAPES[shape]
    measured, model = measure(n_layer, width, vocabulary, window, n_windows, batch, recompute, activation=activation)
    plan = Plan.of(model, window=window, n_windows=n_windows, batch_size=batch, recompute=recompute)
    assert plan.peak == pytest.approx(measured, rel=0.15)
    resident = 12 * plan.n_parameters  # known beforehand: without it the rest has to be right too
    if n_windows > 1:
        assert plan.peak - resident == pytest.approx(measured - resident, rel=0.15)


@pytest.mark.parametrize("recompute", ["layer", "window"])
def test_the_plan_foretells_the_peak_of_gpt2_small(recompute):
    measured, model = measure(12, 768, 50_257, 300, 3, 1, recompute)
    plan = Plan.of(model, n_windows=3, recompute=recompute)
    assert plan.n_parameters == 124_439_808 + 12 + 769 * 200 + 2 * 201 * 200 + 201 * 768  # GPT-2 small and the module
    assert plan.peak == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize("recompute", ["none", "window+layer"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_plan_knows_autocast(monkeypatch, recompute, device):
    if device == "cuda":  # its autocast takes powers in single precision, that of a CPU does not
        power = torch.pow
        monkeypatch.setattr(torch, "pow", lambda x, exponent: power(x.float(), exponent))
    measured, model = measure(3, 128, 1000, 100, 4, 4, recompute, "bf16")
    plan = Plan.of(model, window=100, n_windows=4, batch_size=4, recompute=recompute, precision="bf16", device=device)
    assert plan.peak == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_the_most_windows_are_the_last_that_fit(recompute):
    plan = Plan(12, 768, 50_257, 124_000_000, n_windows=7, batch_size=2, recompute=recompute)
    needed = plan.peak + 7 * 300 * 2 * 8  # and the text
    assert plan.most_windows(needed) == 7
    assert plan.most_windows(needed - 1) == 6
    assert replace(plan, n_windows=8).peak > plan.peak > replace(plan, n_windows=6).peak
    assert plan.most_windows(1e9) == 0  # not even the weights


@pytest.mark.parametrize(("changes", "words"), [
    ({"recompute": "windows"}, "unknown recompute 'windows'. Did you mean 'window'?"),
    ({"precision": "fp16"}, "unknown precision 'fp16'"), ({"device": "gpu"}, "unknown device 'gpu'"),
    ({"n_windows": 0}, "n_windows is 0; it must be at least 1"), ({"window": -3}, "window is -3")])
def test_impossible_plans_are_refused(changes, words):
    with pytest.raises(ReproError, match=words):
        Plan(**{"n_layer": 3, "d_model": 8, "vocab_size": 29, "n_parameters": 1000} | changes)
