"""Depth and cost: what a start does to variance and gradients, what is counted, and what claims measure of it."""

from math import log
from types import SimpleNamespace

import pytest
import torch

from repro.errors import ReproError
from repro.models import SparseConfig, SparseTransformer
from repro.papers.sparse2019 import cost, depth, effects
from repro.papers.sparse2019.pictures import Clip, heard, learned_attention, waveform
from repro.study import experiment


def untrained(scaled, n_layer=32):
    torch.manual_seed(0)
    return SparseTransformer(SparseConfig(20, 16, n_layer, 2, 32, scaled=scaled, columns=4))


def test_variance_grows_with_depth_unless_output_weights_are_scaled():
    ids = torch.randint(20, (4, 17), generator=torch.Generator().manual_seed(0))
    found = {scaled: depth.at_start(untrained(scaled), ids) for scaled in (True, False)}
    rise = {scaled: curves["variance"][-1][1] - curves["variance"][0][1] for scaled, curves in found.items()}
    assert rise[False] > 10 * abs(rise[True]) > 0
    assert [at for at, _ in found[True]["variance"]] == list(range(33))
    assert [at for at, _ in found[True]["gradient"]] == list(range(1, 33))


def test_gradients_of_the_start_are_those_of_each_layer_and_are_left_behind():
    model, ids = untrained(True, 2), torch.randint(20, (1, 9), generator=torch.Generator().manual_seed(0))
    found = depth.at_start(model, ids)["gradient"]
    assert all(weight.grad is None for weight in model.parameters())
    direction = torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(0))
    x = model.embedded(ids[:, :-1])
    for layer in model.layers:
        x = layer(x, "dense", False)
    grads = torch.autograd.grad((model.norm(x) * direction).mean(), list(model.layers[1].parameters()))
    assert found[1] == [2, pytest.approx(sum(grad.square().sum() for grad in grads).sqrt().item(), rel=1e-4)]


def told(n_layer, scaled, seed=0, rate=1e-3, **metrics):
    return SimpleNamespace(config={"n_layer": n_layer, "scaled": scaled, "learning_rate": rate}, seed=seed,
                           metrics={"validation_bits_per_byte": 1.0} | metrics)


def test_claims_about_depth_look_at_the_deepest_models():
    records = [told(n, scaled, seed, test_bits_per_byte=3 + seed - 0.5 * scaled * (n == 8),
                    growth_of_variance=2.0 if scaled else 8.0, gradient_ratio=0.5 if scaled else 8.0,
                    bytes_per_token_kept=100.0 * n, bytes_per_token_recomputed=25.0 * n)
               for n in (4, 8) for scaled in (True, False) for seed in (0, 1)]
    bits = effects.deepest(lambda record: record.metrics["test_bits_per_byte"])(records).effects
    assert [one.tolist() for one in bits] == [[-0.5], [-0.5]]
    assert [one.tolist() for one in effects.grown(records).effects] == [[pytest.approx(log(1 / 4))]] * 2
    assert [one.tolist() for one in effects.evened(records).effects] == [[pytest.approx(log(2) - log(8))]] * 2
    assert effects.saved([one for one in records if one.config["scaled"]]).effects == [[pytest.approx(log(1 / 4))]]


def test_memory_is_told_in_kibibytes_and_in_tokens_of_a_card():
    plan = [SimpleNamespace(n_layer=4, n_embd=32, length=128)]
    found = [SimpleNamespace(metrics={"bytes_per_token_kept": 4096.0, "bytes_per_token_recomputed": 1024.0})]
    table = depth.memory(SimpleNamespace(scales=("small",), plan=lambda scale, scaled: plan,
                                         records_of=lambda config: found))
    assert table["length trained"].tolist() == ["16,384", "128"]
    assert table.iloc[1][["KiB per token, kept", "KiB per token, recomputed"]].tolist() == ["4.0", "1.0"]
    assert table["tokens in 16 GiB, kept"].tolist() == ["–", "4.19 M"]  # 2**34 / 2**12


def test_each_start_is_judged_at_the_rate_that_serves_it_best_on_other_text():
    """One seed likes the other rate, and the test text would choose otherwise: neither decides."""
    bits = {(True, 1): [(1.0, 5.0), (1.0, 6.0)], (True, 2): [(0.5, 4.0), (2.0, 4.0)],  # validation, test
            (False, 1): [(3.0, 1.0), (3.0, 1.0)], (False, 2): [(2.0, 7.0), (2.5, 9.0)]}
    records = [told(8, scaled, seed, rate, validation_bits_per_byte=seen, test_bits_per_byte=unseen)
               for (scaled, rate), values in bits.items() for seed, (seen, unseen) in enumerate(values)]
    found = effects.deepest(lambda record: record.metrics["test_bits_per_byte"])(records).effects
    assert [one.tolist() for one in found] == [[5 - 7], [6 - 9]]


def test_the_deepest_models_are_trained_at_several_rates():
    plan = [(one.n_layer, one.scaled, one.learning_rate) for one in experiment("sparse-depth").plan("small")]
    assert len(plan) == 12 and {rate for n, _, rate in plan if n == 128} == set(depth.RATES["small"])
    own = depth.SCALES["small"]["learning_rate"]
    assert own in depth.RATES["small"] and all(rate == own for n, _, rate in plan if n < 128)


def test_figures_show_layers_that_double():
    assert depth.doublings([[k, -k] for k in range(13)]) == [[1, -1], [2, -2], [4, -4], [8, -8]]


def test_the_power_of_n_is_fitted():
    assert cost.slope([[n, 7 * n**1.5] for n in (64, 256, 1_024)]) == pytest.approx(1.5)


def test_strides_follow_the_length():
    plan = {one.pattern: one for one in experiment("factorised-cost").plan("smoke")}
    assert cost.pattern_at(plan["strided"], 1_024).stride == 32
    assert cost.pattern_at(plan["fixed"], 1_024).stride == 64


@pytest.mark.parametrize(("changes", "words"), [
    ({"lengths": "[64]"}, "give two or more, in incr"), ({"lengths": "[64,16]"}, "give two or more, in incr"),
    ({"pattern": "fixed", "summary": 40, "lengths": "[256,512]"}, "summary is 40; it must lie between 1 and the str")])
def test_lengths_and_summaries_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(ReproError, match=words):
        experiment("factorised-cost").plan("smoke", changes)


def test_learned_attention_is_what_the_layers_use():
    torch.manual_seed(0)
    model = SparseTransformer(SparseConfig(11, 9, 2, 2, 8, columns=3)).double()
    for weight in model.parameters():
        weight.data = torch.randn_like(weight)
    ids = torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(0))
    first, second = learned_attention(model, ids)
    assert first.shape == (2, 9, 9)
    torch.testing.assert_close(first.sum(-1), torch.ones(2, 9, dtype=torch.float64))
    assert (second.triu(1) == 0).all() and not torch.allclose(first, second)


def test_whom_a_position_has_heard_from():
    from repro.attention import BlockLocal, SlidingWindow

    one, two = heard(((SlidingWindow(2),), (BlockLocal(3),)), 6)
    assert one.equal(SlidingWindow(2).mask(6))
    assert two[3].tolist() == [False, False, True, True, False, False]  # by its own first layer
    assert two[5].tolist() == [False, False, True, True, True, True]


def test_a_clip_is_a_wav_file_as_loud_as_it_can_be():
    import io
    import wave

    import numpy as np

    clip = Clip(np.array([0, 0.1, -0.2]), "three samples")
    with wave.open(io.BytesIO(clip.wav())) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (12_000, 1, 2)
        assert np.frombuffer(file.readframes(3), "<i2").tolist() == [0, 16_000, -32_000]
    page = clip._repr_mimebundle_()["text/html"]
    assert "<audio controls" in page and "three samples" in page
    assert "<audio" not in Clip(np.zeros(0), "not run")._repr_mimebundle_()["text/html"]
    assert waveform(np.array([255], np.uint8))[0] == pytest.approx(1)
