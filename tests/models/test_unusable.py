"""Folders that no model can be made of: one line from every loader, and nothing written."""

import json
import shutil
from pathlib import Path

import pytest
import tiny_gemma
import torch
from tiny_decoders import SIZES
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LEDConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LongformerConfig,
    RobertaConfig,
    RobertaForMaskedLM,
)

from repro.errors import ReproError
from repro.models import LED, Longformer, load_causal_lm, load_masked_lm, load_model, pretrained, vocabulary
from repro.recurrence import RecurrenceConfig, RecurrentEncoder, RecurrentLM, with_memory

ENCODER = {"vocab_size": 29, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
BASES = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=29, n_layer=2, n_head=2, n_embd=8, n_positions=16)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "bert": lambda: BertModel(BertConfig(**ENCODER)), "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**ENCODER)),
    "longformer": lambda: Longformer(LongformerConfig(**ENCODER, attention_window=[4, 4])),
    "led": lambda: LED(LEDConfig(
        vocab_size=29, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, attention_window=4,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_encoder_position_embeddings=16,
        max_decoder_position_embeddings=16))}
LOADERS = {  # what reads a folder, and the model that is in it
    "recurrence, GPT-2": (RecurrentLM.from_pretrained, "gpt2"), "recurrence": (RecurrentLM.from_pretrained, "llama"),
    "plain, GPT-2": (load_causal_lm, "gpt2"), "plain": (load_causal_lm, "llama"),
    "memory, GPT-2": (lambda here: with_memory(here, "gated"), "gpt2"),
    "memory": (lambda here: with_memory(here, "gated"), "llama"), "reader": (RecurrentEncoder.from_pretrained, "bert"),
    "masked": (load_masked_lm, "roberta"), "any": (load_model, "gpt2"), "Longformer": (Longformer.from_pretrained,
                                                                                      "longformer"),
    "converted": (lambda here: Longformer.from_roberta(here, 600, 4), "roberta"), "LED": (LED.from_pretrained, "led"),
    "fetched": (pretrained.load, "gemma"),
    "cut": (lambda here: vocabulary.cut(here, Path(str(here)).with_name("cut"), ["the cat"]), "gemma")}


def settings(**changes):
    """Harm that puts other values into config.json."""
    def harm(here):
        told = json.loads((here / "config.json").read_text())
        (here / "config.json").write_text(json.dumps(told | changes))
    return harm


def content(text, name="config.json"):
    return lambda here: (here / name).write_bytes(text)


HARM = {
    "list": content(b"[1, 2]"), "null": content(b"null"), "number": content(b"3"), "cut": content(b"{"),
    "empty": content(b""), "binary": content(b"\xff\xfe\x00"), "no settings": content(b"{}"),
    "gone": lambda here: (here / "config.json").unlink(),
    "no weights": lambda here: (here / "model.safetensors").unlink(),
    "cut weights": lambda here: (here / "model.safetensors").write_bytes(
        (here / "model.safetensors").read_bytes()[:-40]),
    "other weights": content(b"x" * 40, "model.safetensors"),
    "another width": settings(hidden_size=12, n_embd=12, d_model=12, head_dim=7),
    "no heads": settings(num_attention_heads=0, n_head=0, encoder_attention_heads=0),
    "vocabulary": settings(vocab_size="many"), "below 0": settings(vocab_size=-3),
    "activation": settings(hidden_act="x", hidden_activation="x", activation_function="x"),
    "quantized": settings(quantization_config=3), "type": settings(dtype="float7"),
    "attention": settings(_attn_implementation="x", attn_implementation="x")}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder of one of BASES, the only thing in tmp_path / "here"."""
    def make(base):
        here = tmp_path / "here" / "model"
        here.mkdir(parents=True)
        torch.manual_seed(0)
        tiny_gemma.folder(here) if base == "gemma" else BASES[base]().save_pretrained(here)
        return here

    monkeypatch.setenv("REPRO_MODELS", str(tmp_path / "models"))
    return make


def refused(read, *given):
    """What is said in the one line of the error."""
    with pytest.raises(ReproError) as error:
        read(*given)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600
    return str(error.value)


@pytest.mark.parametrize("loader", LOADERS)
def test_a_damaged_folder_is_named_and_nothing_is_written(place, loader):
    read, base = LOADERS[loader]
    here = place(base)
    read(here)  # as it is, it can be read
    whole = {path.name: path.read_bytes() for path in here.iterdir()}
    shutil.rmtree(here.with_name("cut"), ignore_errors=True)
    for name, harm in HARM.items():
        harm(here)
        assert str(here) in refused(read, here), name
        assert [*here.parent.iterdir()] == [here], name
        for file, old in whole.items():
            (here / file).write_bytes(old)


@pytest.mark.parametrize("loader", LOADERS)
def test_what_is_no_folder_and_no_name(place, loader, tmp_path):
    read = LOADERS[loader][0]
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for given in (tmp_path / "empty", tmp_path / "file", tmp_path / "no" / "where", tmp_path / ("x" * 300), "a\0b",
                  None, 3, ["gpt2"]):
        refused(read, given)


@pytest.mark.parametrize(("loader", "base"), [
    ("recurrence", "bert"), ("recurrence", "led"), ("plain", "bert"), ("plain", "longformer"), ("memory", "bert"),
    ("recurrence", "roberta"), ("plain", "roberta"), ("memory", "roberta"),
    ("reader", "llama"), ("reader", "gpt2"), ("masked", "llama"), ("Longformer", "gpt2"), ("LED", "longformer"),
    ("fetched", "bert"), ("cut", "bert")])
def test_a_model_of_another_kind(place, loader, base):
    here = place(base)
    said = refused(LOADERS[loader][0], here)
    assert str(here) in said
    if loader in ("recurrence", "plain", "memory"):  # RoBERTa has a class for causal models, but sees later tokens
        assert f"is a checkpoint of {base}, which is no decoder; give GPT-2, Llama, Mistral, Qwen or Gemma" in said


@pytest.mark.parametrize("kind", ["recurrence", "memory"])
@pytest.mark.parametrize("base", ["gpt2", "llama"])
def test_stored_settings_of_a_module_that_are_no_object(place, base, kind):
    here = place(base)
    settings(**{kind: ["x"]})(here)
    with pytest.raises(ReproError, match=rf"{kind} in the config.json of .* is \['x'\]; it must be the settings that"):
        load_causal_lm(here)


@pytest.mark.parametrize("base", ["gpt2", "llama"])
def test_a_module_beyond_the_last_layer(place, base):
    here = place(base)
    last = 1 if base == "gpt2" else 2
    assert RecurrentLM.from_pretrained(here, RecurrenceConfig(insert_layer=last)).recurrence.n_layer == last + 1
    for read in (lambda: RecurrentLM.from_pretrained(here, RecurrenceConfig(insert_layer=last + 1)),
                 lambda: load_causal_lm(here, RecurrenceConfig(insert_layer=last + 1)),
                 lambda: with_memory(here, "yoshida", insert_layer=last + 1)):
        assert refused(read) == f"insert_layer is {last + 1}, but the model has layers 0 to {last}."


@pytest.mark.parametrize("base", ["gpt2", "llama"])
def test_a_window_beyond_the_positions_and_ids_beyond_the_vocabulary(place, base):
    """Such ids are those of the whole tokenizer in a model whose vocabulary was cut."""
    here, ids, context = place(base), torch.tensor([[3, 4, 28, 5, 6]]), 16 if base == "gpt2" else 64
    strange = torch.tensor([[3, 4, 29, 5, 6]])
    for model in (RecurrentLM.from_pretrained(here), with_memory(here, "gated")):
        assert model(ids, window=context).logits.shape == (1, 5, 29)
        for read in (model, lambda *given, model=model: model.generate(given[0], 3, given[1])):
            assert f"window is {context + 1} tokens, but the model's context ends at {context}" in refused(
                read, ids, context + 1)
            assert "input_ids go from 3 to 29, but the model knows 0 to 28; encode the text with its own" in refused(
                read, strange, 4)
        assert model(ids, window=2, labels=ids.masked_fill(ids == 28, -100)).loss > 0
        for labels in (strange, ids - 5):
            assert "labels go from" in refused(model, ids, 2, 0, labels)


def test_an_encoder_needs_the_package_of_its_attention(place):
    here = place("bert")
    said = refused(lambda: RecurrentEncoder.from_pretrained(here, attn_implementation="flash_attention_2"))
    assert f"{here} cannot be loaded: FlashAttention2 has been toggled on" in said and "Install the package" in said
