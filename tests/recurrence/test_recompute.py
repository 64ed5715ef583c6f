"""Recomputation: the same numbers, less kept, more computed."""

import pytest
import torch

from repro.recompute import RECOMPUTE

BATCH, WIDTH, WINDOW = 2, 16, 8


def text(n, seed=0):
    return torch.randint(29, (BATCH, n), generator=torch.Generator().manual_seed(seed))


def gradients(model, ids, seed=0, **arguments):
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    out = model(ids, labels=ids, **arguments)
    out.loss.backward()
    return out, {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("recompute", RECOMPUTE[1:])
@pytest.mark.parametrize("return_logits", [True, False])
@pytest.mark.parametrize("arguments", [
    {"window": 4}, {"window": 5, "overlap": 2}, {"window": 4, "overlap": 3}, {"window": 4, "truncate": 2},
    {"window": 4, "recurrent": False}, {"window": 16}], ids=str)
@pytest.mark.parametrize("settings", [{}, {"insert": "every", "n_embeddings": 2}], ids=["one", "every"])
def test_gradients_equal_those_without(tiny_recurrent, recompute, return_logits, arguments, settings):
    model, ids = tiny_recurrent(dtype=torch.float64, **settings).train(), text(19)
    plain, expected = gradients(model, ids, **arguments)
    other, found = gradients(model, ids, **arguments, recompute=recompute, return_logits=return_logits)
    assert other.loss.item() == pytest.approx(plain.loss.item(), rel=1e-12)
    if return_logits:
        torch.testing.assert_close(other.logits, plain.logits, rtol=1e-12, atol=1e-12)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-6, atol=1e-6 * gradient.abs().max().item())
    assert expected["transformer.wpe.weight"].abs().max() > 1e-6


@pytest.mark.parametrize("recompute", RECOMPUTE[1:])
def test_dropout_draws_the_same_again(tiny_recurrent, recompute):
    dropout = {"resid_pdrop": 0.2, "embd_pdrop": 0.2, "attn_pdrop": 0.2}
    model, ids = tiny_recurrent(dtype=torch.float64, changes=dropout).train(), text(19)
    plain, expected = gradients(model, ids, window=4, seed=5)
    other, found = gradients(model, ids, window=4, seed=5, recompute=recompute)
    another, _ = gradients(model, ids, window=4, seed=6)
    assert other.loss.item() == pytest.approx(plain.loss.item(), rel=1e-12)
    assert abs(another.loss.item() - plain.loss.item()) > 1e-3
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-6, atol=1e-6 * gradient.abs().max().item())


def bytes_kept(model, ids, recompute):
    """Bytes of all storages that autograd holds between forward and backward, weights and inputs not counted."""
    known = {p.untyped_storage().data_ptr() for p in model.parameters()} | {ids.untyped_storage().data_ptr()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(ids, window=WINDOW, labels=ids, recompute=recompute, return_logits=False).loss
        size = sum(kept.values())
        loss.backward()
    return size


@pytest.mark.parametrize("insert", ["one", "every"])
def test_window_keeps_almost_nothing_of_a_further_window(tiny_recurrent, insert):
    model = tiny_recurrent(dtype=torch.float64, insert=insert).train()
    growth = {}
    for recompute in RECOMPUTE:
        few, many = (bytes_kept(model, text(1 + WINDOW * n), recompute) for n in (4, 12))
        growth[recompute] = (many - few) / 8
    vector = BATCH * WIDTH * 8  # one float64 vector of the model's width per sequence
    assert growth["window"] == growth["window+layer"] == vector  # z alone: h_prev is made again, the text is not copied
    states = 5 * WINDOW * vector  # what goes into the three layers, the last layer norm and the output layer
    assert states <= growth["layer"] < 1.1 * states + 30 * vector
    assert growth["layer"] < 0.3 * growth["none"]


def test_each_kind_computes_again_what_it_says(tiny_recurrent):
    model, ids = tiny_recurrent().train(), text(1 + 5 * WINDOW)
    counts = {"embeddings": 0, "blocks": 0, "h_prev": 0}  # begun, since recomputing a block stops at its last need

    def count(name):
        def hook(*_):
            counts[name] += 1
        return hook

    model.transformer.wte.register_forward_pre_hook(count("embeddings"))
    model.recurrence.register_forward_pre_hook(count("h_prev"))
    for block in model.transformer.h:
        block.register_forward_pre_hook(count("blocks"))
    expected = {"none": (5, 15, 4), "layer": (5, 30, 4), "window": (10, 30, 8), "window+layer": (10, 45, 8)}
    for recompute, numbers in expected.items():
        counts.update(dict.fromkeys(counts, 0))
        gradients(model, ids, window=WINDOW, recompute=recompute, return_logits=False)
        assert tuple(counts.values()) == numbers, recompute


@pytest.mark.parametrize("recompute", RECOMPUTE[1:])
def test_without_gradients_nothing_is_recomputed_or_different(tiny_recurrent, recompute):
    model, ids = tiny_recurrent(), text(19)
    with torch.no_grad():
        plain = model(ids, window=4, labels=ids)
        other = model(ids, window=4, labels=ids, recompute=recompute)
    assert torch.equal(plain.logits, other.logits)
    assert plain.loss == other.loss
    assert not other.loss.requires_grad
