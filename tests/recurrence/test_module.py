"""The pooling of Equation 1, the feedforward network, and what the settings accept."""

import math

import pytest
import torch
from transformers import GPT2Config

from repro.errors import ReproError
from repro.recurrence import Recurrence, RecurrenceConfig, RecurrentLM


def test_defaults_are_the_papers():
    assert RecurrenceConfig().to_dict() == {"insert_layer": 1, "hidden_size": 200, "hidden_layers": 3, "pool": "mean",
                                            "n_embeddings": 1, "insert": "one", "layers": "learned",
                                            "positions": "all"}


def test_the_papers_network_has_three_hidden_layers_of_200():
    module = Recurrence(RecurrenceConfig(), n_layer=12, d_model=768)
    linear = [layer for layer in module.feedforward if isinstance(layer, torch.nn.Linear)]
    assert [(x.in_features, x.out_features) for x in linear] == [(768, 200), (200, 200), (200, 200), (200, 768)]
    by_hand = (768 * 200 + 200) + 2 * (200 * 200 + 200) + (200 * 768 + 768) + 12
    assert sum(p.numel() for p in module.parameters()) == by_hand == 388580


def test_layer_weights_start_equal_and_are_a_softmax():
    module = Recurrence(RecurrenceConfig(), n_layer=4, d_model=8)
    module.reset_parameters()
    torch.testing.assert_close(module.layer_weights, torch.full((4,), 0.25), rtol=0, atol=0)
    module.layer_scores.data = torch.tensor([0.0, 1.0, 2.0, 3.0]).log()
    torch.testing.assert_close(module.layer_weights, torch.tensor([0, 1 / 6, 2 / 6, 3 / 6]))
    means = torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(module.combine(list(means)), (means[1] + 2 * means[2] + 3 * means[3]) / 6)


def test_each_way_of_pooling_by_hand():
    hidden = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))

    def module(**settings):
        return Recurrence(RecurrenceConfig(**settings), n_layer=3, d_model=4)
    torch.testing.assert_close(module().pool(hidden), sum(hidden[:, t] for t in range(5)) / 5)
    largest = [[max(hidden[b, t, d].item() for t in range(5)) for d in range(4)] for b in range(2)]
    torch.testing.assert_close(module(pool="max").pool(hidden), torch.tensor(largest))
    attentive = module(pool="attention")
    torch.testing.assert_close(attentive.pool(hidden), hidden.mean(1))  # a fresh key of zeros weighs all alike
    attentive.pooling_key.data = torch.tensor([1.0, -2.0, 0.5, 3.0])
    scores = [[math.exp(sum(hidden[b, t, d].item() * attentive.pooling_key[d].item() for d in range(4)) / 2)
               for t in range(5)] for b in range(2)]
    by_hand = [sum(scores[b][t] / sum(scores[b]) * hidden[b, t] for t in range(5)) for b in range(2)]
    torch.testing.assert_close(attentive.pool(hidden), torch.stack(by_hand))


@pytest.mark.parametrize("pool", ["mean", "max", "attention"])
def test_padding_counts_nothing_in_any_way_of_pooling(pool):
    draw = torch.Generator().manual_seed(0)
    hidden, more = torch.randn(2, 5, 4, generator=draw), torch.full((2, 2, 4), 99.0)
    module = Recurrence(RecurrenceConfig(pool=pool), n_layer=3, d_model=4)
    if pool == "attention":
        module.pooling_key.data = torch.randn(4, generator=draw)
    padded, real = torch.cat([hidden[:, :2], more, hidden[:, 2:]], 1), torch.ones(2, 7, dtype=torch.bool)
    real[:, 2:4] = False
    torch.testing.assert_close(module.pool(padded, real=real), module.pool(hidden))
    first = Recurrence(RecurrenceConfig(positions="passed"), 3, 4).pool(padded, 3, real)
    torch.testing.assert_close(first, hidden[:, :2].mean(1))


def test_passed_positions_are_those_before_the_next_window():
    hidden = torch.arange(6.0).view(1, 6, 1)
    assert Recurrence(RecurrenceConfig(positions="passed"), 3, 1).pool(hidden, stride=4).item() == (0 + 1 + 2 + 3) / 4
    assert Recurrence(RecurrenceConfig(), 3, 1).pool(hidden, stride=4).item() == 2.5


def test_last_layer_alone_has_no_weights_to_learn():
    module = Recurrence(RecurrenceConfig(layers="last"), n_layer=3, d_model=4)
    module.reset_parameters()
    assert module.layer_weights.tolist() == [0, 0, 1]
    assert not any("layer_scores" in name for name, _ in module.named_parameters())
    pooled = [torch.full((1, 4), float(k)) for k in range(3)]
    assert module.combine(pooled).tolist() == [[2.0] * 4]


@pytest.mark.parametrize("settings", [{"pool": "max"}, {"pool": "attention"}, {"layers": "last"}, {"n_embeddings": 2},
                                      {"insert": "every"}, {"positions": "passed"}], ids=str)
def test_each_variation_reads_the_window_before_in_forward_and_in_evaluation(tiny_recurrent, settings):
    from repro.windows import windows

    model = tiny_recurrent(dtype=torch.float64, **settings)
    ids = torch.randint(29, (1, 15), generator=torch.Generator().manual_seed(0))
    other = ids.clone()
    other[0, 1] = (other[0, 1] + 1) % 29
    with torch.no_grad():
        logits, changed = (model(x, window=6, overlap=2).logits for x in (ids, other))
        cover = windows(16, 6, 2)
        read = [model.lm_head(hidden)[:, span.offset:]
                for hidden, span in zip(model.read_windows(ids, cover), cover, strict=True)]
    assert (logits[:, 6:] - changed[:, 6:]).abs().max() > 1e-6
    torch.testing.assert_close(torch.cat(read, 1), logits)
    assert all(p.grad is not None for p in _trained(model, ids))


def _trained(model, ids):
    model(ids, window=6, overlap=2, labels=ids).loss.backward()
    return list(model.recurrence.parameters())


def test_a_fresh_network_keeps_the_size_of_what_passes_and_depends_on_it():
    torch.manual_seed(0)
    module = Recurrence(RecurrenceConfig(n_embeddings=2), n_layer=4, d_model=64)
    module.reset_parameters()
    z = torch.randn(500, 64)
    h_prev = module(z)
    assert h_prev.shape == (500, 2, 64)
    assert 0.3 < h_prev.std().item() < 3  # GPT-2's own initialisation would leave about 0.00001
    assert h_prev.std(0).mean().item() > 0.3
    assert not torch.equal(h_prev[:, 0], h_prev[:, 1])


def test_a_network_that_starts_at_zero_gives_zeros_and_learns(tiny_recurrent):
    settings = RecurrenceConfig(hidden_size=8, zero_init=True)
    assert settings.to_dict()["zero_init"] is True and RecurrenceConfig(**settings.to_dict()) == settings
    module = Recurrence(settings, 3, 16)
    module.reset_parameters()
    z = torch.randn(5, 16)
    out = module(z)
    assert torch.equal(out, torch.zeros(5, 1, 16))
    (out - torch.ones(16)).square().sum().backward()
    assert module.feedforward[-1].weight.grad.abs().max() > 0
    assert all(layer.weight.abs().max() > 0 for layer in module.feedforward[:-1:2])


def test_the_several_embeddings_are_the_parts_of_one_output():
    module = Recurrence(RecurrenceConfig(n_embeddings=3, hidden_size=5), n_layer=3, d_model=4)
    z = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    flat = module.feedforward(z)
    for k in range(3):
        torch.testing.assert_close(module(z)[:, k], flat[:, 4 * k:4 * k + 4], rtol=0, atol=0)


@pytest.mark.parametrize("scores", [None, [0.5, -2.0, 1.0]])
def test_z_of_the_first_window_is_equation_1_over_transformers_states(tiny_recurrent, tiny_config, scores):
    from transformers import GPT2LMHeadModel

    model = tiny_recurrent(dtype=torch.float64)
    if scores:
        model.recurrence.layer_scores.data = torch.tensor(scores, dtype=torch.float64)
    plain = GPT2LMHeadModel(tiny_config(attn_implementation="eager")).double().eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    ids = torch.randint(29, (2, 14), generator=torch.Generator().manual_seed(0))
    seen = []
    model.recurrence.register_forward_hook(lambda module, args, out: seen.append((args[0], out)))
    with torch.no_grad():
        model(ids, window=6)
        states = plain(ids[:, :6], output_hidden_states=True).hidden_states
    assert len(states) == 4  # the embeddings, which Equation 1 does not take, and three layers
    weights = model.recurrence.layer_scores.exp() / model.recurrence.layer_scores.exp().sum()
    z = sum(weight * state.mean(1) for weight, state in zip(weights, states[1:], strict=True))
    assert len(seen) == 2  # windows 1 and 2 are given an h_prev, window 0 is not
    torch.testing.assert_close(seen[0][0], z, rtol=1e-9, atol=1e-9)
    assert seen[0][1].shape == (2, 1, 16)


@pytest.mark.parametrize(("settings", "words"), [
    ({"pool": "meen"}, "Did you mean 'mean'"), ({"insert": "evry"}, "Did you mean 'every'"),
    ({"layers": "lest"}, "Did you mean 'last'"), ({"positions": "past"}, "positions"),
    ({"insert_layer": -1}, "insert_layer is -1"), ({"hidden_size": 0}, "hidden_size is 0"),
    ({"hidden_layers": 0}, "hidden_layers is 0"), ({"n_embeddings": 0}, "n_embeddings is 0")])
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(ReproError, match=words):
        RecurrenceConfig(**settings)


def test_a_layer_that_is_not_there_is_refused(tiny_recurrent):
    assert Recurrence(RecurrenceConfig(insert_layer=2), 3, 8).layer_scores.shape == (3,)
    with pytest.raises(ReproError, match="insert_layer is 3.*layers 0 to 2"):
        tiny_recurrent(insert_layer=3)


@pytest.mark.parametrize("make", [RecurrentLM, RecurrentLM.from_pretrained])
def test_settings_are_no_dictionary(make):
    with pytest.raises(ReproError, match="recurrence is .* RecurrenceConfig"):
        make(GPT2Config(vocab_size=9, n_layer=2, n_head=2, n_embd=8), {"insert_layer": 1})


def test_with_residual_a_fresh_module_gives_the_pooled_input_of_its_layer():
    module = Recurrence(RecurrenceConfig(residual=True, zero_init=True, n_embeddings=2), n_layer=3, d_model=8)
    module.reset_parameters()
    z, layer_input = torch.randn(2, 5, 8)
    torch.testing.assert_close(module(z, layer_input), layer_input[:, None].expand(5, 2, 8), rtol=0, atol=0)
    for recurrence, given in ((module, None), (Recurrence(RecurrenceConfig(), 3, 8), layer_input)):
        with pytest.raises(ReproError, match="it is needed with residual=True, and only there"):
            recurrence(z, given)
    with pytest.raises(ReproError, match="residual adds the input of one layer, but insert is 'every'"):
        RecurrenceConfig(insert="every", residual=True)
    assert RecurrenceConfig(residual=True).to_dict()["residual"] and "residual" not in RecurrenceConfig().to_dict()


def test_normalized_states_and_a_step_in_units_of_the_input():
    module = Recurrence(RecurrenceConfig(residual=True, normalize=True, hidden_size=4), n_layer=2, d_model=8)
    first, second, layer_input = torch.randn(3, 5, 8).mul(1e3)
    unit = [one / one.norm(dim=-1, keepdim=True) * 8**0.5 for one in (first, second, layer_input)]
    z, same = module.state([first, second], layer_input)
    torch.testing.assert_close(z, (unit[0] + unit[1]) / 2)
    assert same is layer_input
    step = module.feedforward(z) * (layer_input / unit[2])[:, :1]
    torch.testing.assert_close(module(z, layer_input)[:, 0], layer_input + step)
    huge, _ = module.state([first * 100, second * 100], layer_input)
    torch.testing.assert_close(huge, z)  # the size of a state says nothing
    nothing = torch.zeros(5, 8)
    assert torch.isfinite(module(*module.state([nothing, nothing], nothing))).all()
    with pytest.raises(ReproError, match="needs residual=True"):
        RecurrenceConfig(normalize=True)
