"""Our RoBERTa of any size: its number of weights, its positions, and the loss on masked positions only."""

import math

import pytest
import torch
from transformers import RobertaModel

from repro.errors import ReproError
from repro.models import Longformer, load_masked_lm, roberta_mini, roberta_parameters, save_model
from repro.training import MaskedLM


@pytest.mark.parametrize("size", [(2, 16, 29, 32), (3, 24, 11, 8), (1, 8, 300, 512)], ids=str)
def test_the_number_of_weights_is_the_models(size):
    n_layer, n_embd, vocabulary, context = size
    model = roberta_mini(n_layer, n_embd, 4, vocabulary, context)
    assert roberta_parameters(*size) == sum(p.numel() for p in model.parameters())


def test_roberta_base_has_its_known_number_of_weights():
    """As transformers counts RobertaForMaskedLM of FacebookAI/roberta-base."""
    assert roberta_parameters(12, 768, 50_265) == 124_697_433


def test_the_model_is_roberta_of_the_size_asked_for():
    from transformers import RobertaForMaskedLM

    model = roberta_mini(2, 16, 4, 29, 32)
    config = model.config
    assert type(model) is RobertaForMaskedLM
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (2, 16, 4)
    assert (config.intermediate_size, config.vocab_size) == (64, 29)
    assert (config.bos_token_id, config.pad_token_id, config.eos_token_id) == (0, 1, 2)
    assert model.roberta.embeddings.position_embeddings.weight.shape == (34, 16)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert roberta_mini(1, 8, 2, 11).config.max_position_embeddings == 514
    ids = torch.arange(4, 24).view(2, 10)
    model.train()
    assert torch.equal(model(ids).logits, model(ids).logits), "no dropout"
    assert model(torch.full((1, 32), 5)).logits.shape == (1, 32, 29), "as many tokens as it has positions"
    with pytest.raises(Exception):  # noqa: B017 what torch raises for a row that is not there
        model(torch.full((1, 33), 5))


def test_positions_can_start_as_waves():
    plain, waved = (roberta_mini(1, 8, 2, 11, 12, amplitude) for amplitude in (None, 0.5))
    rows = waved.roberta.embeddings.position_embeddings.weight
    for place in range(12):
        for pair in range(4):
            angle = place / 10_000 ** (2 * pair / 8)
            found = rows[2 + place, 2 * pair:2 * pair + 2].tolist()
            assert found == pytest.approx([0.5 * math.sin(angle), 0.5 * math.cos(angle)], abs=1e-6)
    assert rows[1].eq(0).all() and rows.requires_grad and rows.shape == (14, 8)
    assert plain.roberta.embeddings.position_embeddings.weight[2:].std() < 0.03, "RoBERTa's own start"


def test_the_model_is_the_same_as_written_out(shake):
    """Post-norm layers, positions from 2 on, and an output layer of its own before the tied matrix."""
    model = shake(roberta_mini(2, 8, 2, 13, 12), 3).double().eval()
    w = dict(model.named_parameters())
    ids = torch.tensor([[0, 5, 9, 4, 12, 2]])

    def norm(x, name):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def affine(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def gelu(x):
        return 0.5 * x * (1 + torch.erf(x / 2**0.5))

    e = "roberta.embeddings"
    x = w[f"{e}.word_embeddings.weight"][ids] + w[f"{e}.position_embeddings.weight"][2:8]
    x = norm(x + w[f"{e}.token_type_embeddings.weight"][0], f"{e}.LayerNorm")
    for layer in ("roberta.encoder.layer.0", "roberta.encoder.layer.1"):
        heads = []
        query, key, value = (affine(x, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
        for part in (slice(0, 4), slice(4, 8)):
            scores = query[..., part] @ key[..., part].transpose(1, 2) / 4**0.5
            heads.append(scores.softmax(-1) @ value[..., part])
        out = f"{layer}.attention.output"
        x = norm(affine(torch.cat(heads, -1), f"{out}.dense") + x, f"{out}.LayerNorm")
        inner = gelu(affine(x, f"{layer}.intermediate.dense"))
        x = norm(affine(inner, f"{layer}.output.dense") + x, f"{layer}.output.LayerNorm")
    x = norm(gelu(affine(x, "lm_head.dense")), "lm_head.layer_norm")
    logits = x @ w[f"{e}.word_embeddings.weight"].T + w["lm_head.bias"]
    torch.testing.assert_close(model(ids).logits, logits)


def test_the_loss_is_transformers_on_the_masked_positions(shake):
    model = shake(roberta_mini(2, 8, 2, 13, 12)).double().eval()
    draw = torch.Generator().manual_seed(0)
    ids, truth = (torch.randint(4, 12, (3, 10), generator=draw) for _ in range(2))
    positions = torch.tensor([[1, 4], [2, 8], [3, 5]])
    targets = truth.gather(1, positions)
    targets[1, 1] = -100
    labels = torch.full((3, 10), -100).scatter(1, positions, targets)
    theirs = model(ids, labels=labels).loss
    objective, seen = MaskedLM(model), []
    model.lm_head.register_forward_hook(lambda layer, inputs, output: seen.append(tuple(output.shape)))
    ours = objective({"ids": ids, "positions": positions, "targets": targets})
    torch.testing.assert_close(ours, theirs)
    assert seen == [(3, 2, 13)], "the output layer sees masked positions only"
    ours.backward()
    mine = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    theirs.backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(mine[name], weight.grad)


def test_a_folder_comes_back_as_what_was_saved_and_bad_ones_are_named(tmp_path):
    model = roberta_mini(1, 8, 2, 11, 8)
    save_model(model, tmp_path / "model")
    again = load_masked_lm(tmp_path / "model").state_dict()
    assert all(torch.equal(weight, again[name]) for name, weight in model.state_dict().items())
    (tmp_path / "empty").mkdir()
    save_model(Longformer.from_roberta(model, 8, 2), tmp_path / "longformer")
    RobertaModel(model.config).save_pretrained(tmp_path / "headless")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"")
    for name, told in (("model", "is damaged"), ("empty", "holds no config.json"),
                       ("longformer", "is a checkpoint of longformer, not of roberta"),
                       ("headless", "lacks [0-9]+ weights, the first of them lm_head"),
                       ("nowhere", "no checkpoint .*FacebookAI/roberta-base")):
        with pytest.raises(ReproError, match=told):
            load_masked_lm(tmp_path / name)


def test_without_a_network_a_hub_name_is_not_said_to_be_unknown(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ReproError, match="'FacebookAI/not-in-the-cache' here, and the hub is out of reach; connect"):
        load_masked_lm("FacebookAI/not-in-the-cache")


def test_heads_must_divide_the_width():
    with pytest.raises(ReproError, match="n_embd is 16 and n_head 3"):
        roberta_mini(1, 16, 3, 11)


@pytest.mark.parametrize("name", ["n_layer", "n_embd", "n_head", "vocab_size", "n_positions"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ReproError, match=f"{name} is 0; it must be a whole number of at least 1"):
        roberta_mini(**{"n_layer": 1, "n_embd": 4, "n_head": 2, "vocab_size": 11, name: 0})
