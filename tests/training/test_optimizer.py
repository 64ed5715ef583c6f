"""Which weights Muon changes, and how; and bfloat16 on a processor."""

import hashlib
import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration, RobertaConfig, RobertaForSequenceClassification

from repro.attention import SlidingWindow
from repro.bf16 import bf16_products
from repro.errors import ReproError
from repro.models import GPT, LSTM, Decoder, DecoderConfig, GPTConfig, LSTMConfig, gpt2_mini
from repro.training import NextToken, Sequences, TrainConfig, WindowedLM, train
from repro.training.optimizer import matrices, optimizers
from repro.training.state import fingerprint

TEXT = np.cumsum(np.random.default_rng(0).integers(1, 4, size=3000)) % 29


def config(steps=6, **changes):
    settings = {"tokens": 64 * steps, "learning_rate": 0.01, "warmup_steps": 3, "optimizer": "muon"}
    return TrainConfig(**settings | changes)


def decoder():
    torch.manual_seed(0)
    return Decoder(DecoderConfig(29, 16, 2, (SlidingWindow(4),) * 2))


def names(model):
    """The weights that Muon would change, by name."""
    found = {id(weight) for weight in matrices(model)}
    return {name for name, weight in model.named_parameters() if id(weight) in found}


def of_layers(form, n, *inside):
    return {form.format(k, name) for k in range(n) for name in inside}


GPT2 = "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"


def test_muon_takes_the_matrices_of_the_blocks_of_gpt2():
    model = gpt2_mini(2, 16, 2, 29, 16)
    assert names(model) == of_layers("transformer.h.{}.{}.weight", 2, *GPT2)
    assert model.get_output_embeddings().weight is model.transformer.wte.weight


def test_and_of_the_recurrent_model_but_not_its_module(tiny_recurrent):
    model = tiny_recurrent()
    assert names(model) == of_layers("transformer.h.{}.{}.weight", 3, *GPT2)
    assert any(weight.ndim == 2 for name, weight in model.named_parameters() if "recurrence.feedforward" in name)


def test_and_of_our_decoder_but_not_the_vectors_of_its_heads():
    model = decoder()
    assert names(model) == of_layers("layers.{}.{}.weight", 2, "attention.project", "attention.out", "inner", "outer")
    assert model.layers[0].attention.u.ndim == 2


def test_and_of_an_lstm_the_gates_and_the_way_back():
    model = LSTM(LSTMConfig(29, 8, 16))
    assert names(model) == {"layers.0.weight_ih_l0", "layers.0.weight_hh_l0", "layers.1.weight"}
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    train(NextToken(model), Sequences(TEXT, 8, 4), config(2))
    assert all(not torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_and_of_encoders_but_not_the_classifier():
    size = {"vocab_size": 29, "max_position_embeddings": 20}
    roberta = RobertaForSequenceClassification(RobertaConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, **size))
    inside = [f"attention.self.{x}" for x in ("query", "key", "value")]
    inside += ["attention.output.dense", "intermediate.dense", "output.dense"]
    assert names(roberta) == of_layers("roberta.encoder.layer.{}.{}.weight", 2, *inside)
    bart = BartForConditionalGeneration(BartConfig(
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, **size))
    assert len(names(bart)) == 6 + 10
    assert all(".layers.0." in name and "norm" not in name and name.endswith("weight") for name in names(bart))


def test_an_embedding_inside_a_block_or_tied_to_its_layer_is_none():
    block = nn.ModuleDict({"near": nn.Embedding(5, 4), "far": nn.Linear(4, 5), "own": nn.Linear(4, 5, bias=False)})
    block["far"].weight = block["near"].weight
    module = nn.Module()
    module.blocks, module.head = nn.ModuleList([block]), nn.Linear(5, 3)
    assert names(module) == {"blocks.0.own.weight"}


@pytest.mark.parametrize("choice", ["muon", "adamw"])
def test_every_weight_has_one_optimiser(tiny_recurrent, choice):
    objective = WindowedLM(tiny_recurrent(), 8)
    found = optimizers(objective, config(optimizer=choice))
    assert [type(optimizer).__name__ for optimizer in found] == (["Muon", "AdamW"] if choice == "muon" else ["AdamW"])
    changed = [id(weight) for optimizer in found for group in optimizer.param_groups for weight in group["params"]]
    assert sorted(changed) == sorted(id(weight) for weight in objective.parameters())


def roberta():
    return RobertaForSequenceClassification(RobertaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=29,
        max_position_embeddings=20))


ROBERTA = "roberta.encoder.layer.0.{}.{}"
SPARED = {  # model -> the weights that decay leaves alone, by hand
    "GPT": (lambda: GPT(GPTConfig(29, 16, 1, 16, 2)), {
        *of_layers("layers.{}.{}.bias", 1, "project", "out", "inner", "outer"),
        *(f"{norm}.{part}" for norm in ("layers.0.norm_1", "layers.0.norm_2", "norm") for part in ("weight", "bias"))}),
    "GPT-2": (lambda: gpt2_mini(1, 16, 2, 29, 16), {
        *of_layers("transformer.h.{}.{}.bias", 1, *GPT2),
        *(f"transformer.{norm}.{part}" for norm in ("h.0.ln_1", "h.0.ln_2", "ln_f") for part in ("weight", "bias"))}),
    "RoBERTa": (roberta, {
        *(ROBERTA.format(f"attention.self.{one}", "bias") for one in ("query", "key", "value")),
        *(ROBERTA.format(one, "bias") for one in ("attention.output.dense", "intermediate.dense", "output.dense")),
        *(ROBERTA.format(f"{one}.LayerNorm", part) for one in ("attention.output", "output")
          for part in ("weight", "bias")),
        "roberta.embeddings.LayerNorm.weight", "roberta.embeddings.LayerNorm.bias",
        "classifier.dense.bias", "classifier.out_proj.bias"}),
    "LSTM": (lambda: LSTM(LSTMConfig(29, 8, 16)), {"layers.0.bias_ih_l0", "layers.0.bias_hh_l0", "layers.1.bias"}),
    "Decoder": (decoder, None)}


@pytest.mark.parametrize("choice", ["muon", "adamw"])
@pytest.mark.parametrize("name", SPARED)
def test_weight_decay_leaves_biases_and_norms_alone(name, choice):
    make, spared = SPARED[name]
    model = make()
    called = {id(weight): key for key, weight in model.named_parameters()}
    found = optimizers(model, config(optimizer=choice, weight_decay=0.1))
    groups = [(group["weight_decay"], {called[id(weight)] for weight in group["params"]})
              for optimizer in found for group in optimizer.param_groups]
    assert sorted(key for _, keys in groups for key in keys) == sorted(called.values())  # each in one group
    assert {decay for decay, _ in groups} == {0.0, 0.1}
    left = {key for decay, keys in groups for key in keys if decay == 0}
    if spared is None:  # vectors of its heads are stored as (heads, size)
        spared = {key for key, weight in model.named_parameters() if weight.ndim == 1} | {
            f"layers.{k}.attention.{one}" for k in range(2) for one in "uv"}
    assert left == spared
    whole = optimizers(model, config(optimizer=choice, weight_decay=0.1, decayed="all"))
    assert [group["weight_decay"] for one in whole for group in one.param_groups] == [0.1] * len(whole)


@pytest.mark.parametrize("decayed", ["matrices", "all"])
def test_without_a_gradient_only_what_decays_shrinks(decayed):
    """A step at rate r with decay d multiplies by 1 - r d."""
    model = gpt2_mini(1, 16, 2, 29, 16)
    for weight in model.parameters():
        torch.nn.init.ones_(weight)
        weight.grad = torch.zeros_like(weight)
    for optimizer in optimizers(model, config(learning_rate=0.5, weight_decay=0.1, decayed=decayed)):
        optimizer.step()
    shrunk = {name: weight.flatten()[0].item() for name, weight in model.named_parameters()}
    assert all(value == pytest.approx(0.95 if decayed == "all" or name not in SPARED["GPT-2"][1] else 1)
               for name, value in shrunk.items())


def test_a_checkpoint_of_before_there_was_the_choice_goes_on():
    """What a checkpoint is known by does not mention it where all weights decay, or none."""
    sequences, model = Sequences(TEXT, 16, 4), NextToken(decoder())
    known = {(decay, choice): fingerprint(model, config(weight_decay=decay, decayed=choice), sequences)
             for decay in (0.0, 0.1) for choice in ("matrices", "all")}
    assert known[0.0, "matrices"] == known[0.0, "all"]
    assert len(set(known.values())) == 3
    before = asdict(config(weight_decay=0.1))
    described = {"training": {key: value for key, value in before.items()
                              if key not in ("decayed", "checkpoint_every", "module_learning_rate")},
                 "objective": model.settings(), "batches": sequences.settings()}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode())
    for name, x in model.state_dict().items():
        digest.update(f"{name} {tuple(x.shape)}".encode() + x.flatten().view(torch.uint8).numpy().tobytes())
    assert digest.hexdigest() == known[0.1, "all"]


@pytest.mark.parametrize("decayed", ["matrices", "all"])
def test_a_training_goes_on_from_its_checkpoint(tmp_path, decayed):
    settings = config(6, weight_decay=0.1, decayed=decayed, validate_every=64 * 3)
    whole, halved = decoder(), decoder()
    train(NextToken(whole), Sequences(TEXT, 16, 4), settings, device="cpu")

    class Killed(Exception):
        pass

    class Cut(Sequences):
        def batch(self, step):
            if step == 4:
                raise Killed
            return super().batch(step)

    with pytest.raises(Killed):
        train(NextToken(halved), Cut(TEXT, 16, 4), settings, tmp_path, device="cpu")
    halved = decoder()
    train(NextToken(halved), Sequences(TEXT, 16, 4), settings, tmp_path, device="cpu")
    assert all(one.equal(other) for one, other in zip(whole.parameters(), halved.parameters(), strict=True))


@pytest.mark.parametrize(("changes", "rates"), [
    ({}, [1 / 3, 2 / 3, 1, 1, 1, 1]), ({"decay": "linear", "weight_decay": 2.0}, [1 / 3, 2 / 3, 1, 1, 2 / 3, 1 / 3])],
    ids=str)
def test_the_schedule_moves_both_optimisers(changes, rates):
    """The same gradients, handed to each of torch's optimisers with the rates worked out by hand."""
    objective, twin = NextToken(decoder()), decoder()
    watched = [objective.model.layers[1].outer.weight, objective.model.embed.weight]
    copies, gradients = [twin.layers[1].outer.weight, twin.embed.weight], {weight: [] for weight in watched}
    for weight in watched:
        weight.register_hook(lambda gradient, weight=weight: gradients[weight].append(gradient.clone()))
    settings = config(clip=1e9, **changes)
    train(objective, Sequences(TEXT, 16, 4), settings, device="cpu")
    decay = settings.weight_decay
    alone = [torch.optim.Muon([copies[0]], weight_decay=decay, adjust_lr_fn="match_rms_adamw"),
             torch.optim.AdamW([copies[1]], weight_decay=decay)]
    for optimizer, copy, weight in zip(alone, copies, watched, strict=True):
        for rate, copy.grad in zip(rates, gradients[weight], strict=True):
            optimizer.param_groups[0]["lr"] = 0.01 * rate
            with bf16_products(copy.device):  # as in training: sums in the same order
                optimizer.step()
        torch.testing.assert_close(weight, copy)


def test_a_step_of_muon_is_orthogonal_and_as_large_as_one_of_adamw():
    before, objective = decoder().layers[0].outer.weight, NextToken(decoder())
    train(objective, Sequences(TEXT, 16, 4), config(1, warmup_steps=0, learning_rate=0.02), device="cpu")
    step = (objective.model.layers[0].outer.weight - before).detach()  # (16, 64)
    assert step.square().mean().sqrt() == pytest.approx(0.2 * 0.02, rel=0.2)
    stretch = torch.linalg.svdvals(step) / (0.2 * 0.02 * 64**0.5)
    assert stretch.max() < 1.3
    assert stretch[-3] > 0.6  # the weakest directions are not yet stretched after five rounds


def test_muon_needs_blocks(bigram, stream):
    with pytest.raises(ReproError, match="'muon', but Bigram has no blocks.*optimizer='adamw'"):
        train(bigram(), Sequences(stream, 8, 4), config(), device="cpu")


@pytest.mark.parametrize("choice", ["muon", "adamw"])
def test_the_module_has_a_rate_of_its_own_on_the_same_schedule(tiny_recurrent, choice):
    model = tiny_recurrent()
    settings = config(3, optimizer=choice, module_learning_rate=0.04, warmup_steps=2)
    found = optimizers(WindowedLM(model, 8), settings)
    own = {id(weight) for weight in model.recurrence.parameters()}
    rates = {id(weight): group.get("times", 1.0) for optimizer in found for group in optimizer.param_groups
             for weight in group["params"]}
    assert set(rates) == {id(weight) for weight in model.parameters()}
    assert {key for key, times in rates.items() if times == 4} == own
    assert {times for key, times in rates.items() if key not in own} == {1}


def test_a_step_of_the_module_is_as_much_larger_as_its_rate(tiny_recurrent):
    """The first step of Adam is the rate itself, in the direction of the gradient."""
    moved = {}
    for rate in (None, 0.03):
        model = tiny_recurrent()
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        settings = config(1, optimizer="adamw", warmup_steps=0, module_learning_rate=rate)
        train(WindowedLM(model, 4), Sequences(TEXT, 16, 4), settings, device="cpu")
        moved[rate] = {name: (weight - before[name]).abs().max().item() for name, weight in model.named_parameters()}
    for name, step in moved[None].items():
        times = 3 if name.startswith("recurrence.") else 1
        assert moved[0.03][name] == pytest.approx(times * step, rel=0.02), name


def test_a_rate_of_a_module_that_is_not_there_is_refused(tiny_gpt2):
    with pytest.raises(ReproError, match="module_learning_rate is 0.04, but GPT2LMHeadModel adds no weights"):
        optimizers(WindowedLM(tiny_gpt2(), 8), config(module_learning_rate=0.04))
    with pytest.raises(ReproError, match="module_learning_rate is 0"):
        config(module_learning_rate=0.0)


# Bfloat16 and half precision, on a processor.


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_the_bits_train_like_fp32(precision):
    curves = []
    for one in ("no", precision):
        torch.manual_seed(0)
        objective = WindowedLM(gpt2_mini(2, 32, 2, 29, 16), 16)
        settings = config(60, precision=one, learning_rate=0.003)
        curves.append(train(objective, Sequences(TEXT, 16, 4), settings, device="cpu").curves["train_loss"])
    assert curves[0] != curves[1]
    for (_, exact), (_, rounded) in zip(*curves, strict=True):
        assert rounded == pytest.approx(exact, rel=0.01)


class Overflowing(torch.amp.GradScaler):
    """Starts at a scale at which gradients overflow; notes the scale before each step."""

    def __init__(self, device, enabled):
        super().__init__(device, init_scale=2.0**40, growth_interval=2_000, enabled=enabled)
        self.seen = []
        Overflowing.last = self

    def update(self):
        self.seen.append(self.get_scale())
        super().update()


def test_fp16_leaves_out_steps_that_overflow_and_halves_the_scale(monkeypatch, tmp_path):
    torch.manual_seed(0)
    objective = WindowedLM(gpt2_mini(2, 32, 2, 29, 16), 16)
    before = {name: weight.clone() for name, weight in objective.state_dict().items()}
    losses, seen = [], []

    class Watched(Sequences):
        def batch(self, step):
            same = all(weight.equal(before[name]) for name, weight in objective.state_dict().items())
            seen.append(same)
            return super().batch(0)  # always the same one

    monkeypatch.setattr(torch.amp, "GradScaler", Overflowing)
    batches = Watched(TEXT, 16, 4)
    settings = config(60, precision="fp16", learning_rate=0.01, warmup_steps=0)
    losses = train(objective, batches, settings, tmp_path, device="cpu").curves["train_loss"]
    scales = Overflowing.last.seen
    left_out = sum(seen) - 1  # before the first step nothing can have moved
    assert 10 < left_out < 40 and seen == [True] * (left_out + 1) + [False] * (59 - left_out)
    assert scales[:left_out + 1] == [2.0 ** (40 - k) for k in range(left_out + 1)]
    assert min(scales) >= scales[left_out] / 16  # once in a while one more
    assert losses[-1][1] < losses[0][1] - 0.5 and all(weight.isfinite().all() for weight in objective.parameters())
    kept = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["scaler"]
    assert kept["scale"] == scales[-1]


def test_no_optimiser_takes_a_step_in_which_gradients_of_another_overflow(monkeypatch):
    class Huge(torch.amp.GradScaler):
        def __init__(self, device, enabled):
            super().__init__(device, init_scale=2.0**75, enabled=enabled)

    monkeypatch.setattr(torch.amp, "GradScaler", Huge)
    objective = WindowedLM(gpt2_mini(2, 32, 2, 29, 16), 16)
    matrix, vector = objective.model.transformer.h[0].attn.c_attn.weight, objective.model.transformer.ln_f.bias
    before, same = matrix.detach().clone(), []

    def forward(batch):
        same.append(matrix.equal(before))
        return matrix.sum() + 1e18 * vector.sum()  # above 2^68 the second is infinite in float32

    monkeypatch.setattr(objective, "forward", forward)
    settings = config(20, precision="fp16", warmup_steps=0, optimizer="muon", weight_decay=0.1)  # vectors have AdamW
    train(objective, Sequences(TEXT, 16, 4), settings, device="cpu")
    assert same == [True] * 8 + [False] * 12


def test_a_gradient_that_overflows_at_any_scale_is_an_error(monkeypatch):
    class Small(torch.amp.GradScaler):
        def __init__(self, device, enabled):
            super().__init__(device, init_scale=1.0, enabled=enabled)

    monkeypatch.setattr(torch.amp, "GradScaler", Small)
    objective = WindowedLM(gpt2_mini(2, 32, 2, 29, 16), 16)
    monkeypatch.setattr(objective, "forward", lambda batch: next(objective.parameters()).sum() * 3e38 * 3e38)
    with pytest.raises(ReproError, match="lower the learning rate or lengthen the warm-up"):
        train(objective, Sequences(TEXT, 16, 4), config(60, precision="fp16"), device="cpu")


@pytest.mark.parametrize(("step", "share"), [(0, 0.1), (9, 1.0), (10, 1.0), (55, 0.5), (99, 0.0003)])
def test_the_cosine_schedule(step, share):
    settings = config(60, decay="cosine", warmup_steps=10, learning_rate=2.0)
    assert settings.rate(step, 100) == pytest.approx(2 * share, abs=2e-4)


@pytest.mark.parametrize(("step", "share"), [(4, 0.5), (9, 1.0), (10, 1.0), (55, 0.125), (82, 0.008), (99, 1 / 90**3)])
def test_the_cubic_schedule(step, share):
    """The power-3 polynomial of Beltagy et al. (2020), section 5."""
    settings = config(60, decay="cubic", warmup_steps=10, learning_rate=2.0)
    assert settings.rate(step, 100) == pytest.approx(2 * share, rel=1e-6)
