"""Where a decoder is loaded from: a fetched model by its name, a folder; and what is refused in one line."""

import json
import pickle

import pytest
import torch
from transformers import BertConfig, BertModel

from repro.errors import ReproError
from repro.models import load_causal_lm
from repro.models.sparse import SparseConfig, SparseTransformer, sample
from repro.recurrence import RecurrentEncoder, RecurrentLM, with_memory

SIZES = {"vocab_size": 29, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 64}


@pytest.fixture
def llama(tmp_path, monkeypatch):
    """The folder of a tiny Llama that was fetched under the name some-llama; the working directory is elsewhere."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    place = tmp_path / "models" / "some-llama"
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(place)
    monkeypatch.setenv("REPRO_MODELS", str(tmp_path / "models"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return place


def test_a_fetched_model_is_found_by_its_name(llama, tiny_gpt2):
    ids, weight = torch.randint(29, (2, 9)), "model.embed_tokens.weight"
    model = RecurrentLM.from_pretrained("some-llama")
    assert torch.equal(model.state_dict()[weight], RecurrentLM.from_pretrained(llama).state_dict()[weight])
    assert model(ids, window=4).logits.shape == (2, 9, 29)
    with torch.no_grad():
        torch.testing.assert_close(load_causal_lm("some-llama")(ids).logits, load_causal_lm(llama)(ids).logits)
    tiny_gpt2().save_pretrained(llama.parent / "some-gpt2")
    assert with_memory("some-gpt2", "gated")(ids, window=4).logits.shape == (2, 9, 29)
    BertModel(BertConfig(vocab_size=29, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
              ).save_pretrained(llama.parent / "some-bert")
    reader = RecurrentEncoder.from_pretrained("some-bert")
    assert reader(ids[:, None], torch.ones_like(ids)[:, None]).start_logits.shape == (2, 1, 9)


def test_a_folder_of_that_name_comes_first(llama, tiny_gpt2):
    tiny_gpt2().save_pretrained("some-llama")
    assert RecurrentLM.from_pretrained("some-llama").config.model_type == "gpt2"


@pytest.mark.parametrize("read", [RecurrentLM.from_pretrained, load_causal_lm, lambda name: with_memory(name, "rmt")],
                         ids=["recurrence", "plain", "memory"])
def test_a_model_that_was_not_fetched_is_named_with_the_command_that_gets_it(llama, read):
    with pytest.raises(ReproError, match="has gemma-3-270m, run `repro models fetch gemma-3-270m`") as error:
        read("gemma-3-270m")
    assert "\n" not in str(error.value)
    with pytest.raises(ReproError) as error:
        read("someone/gemma-3-270m")
    assert "repro models" not in str(error.value)


@pytest.mark.parametrize(("text", "words"), [
    ("[1, 2]", r"config.json of .*some-llama is \[1, 2\]; it must be a JSON object"), ("null", "is None; it must"),
    ('"llama"', "is 'llama'; it must"), ("{", "some-llama is damaged"), ('{"model_type": ["llama"]}', "is no decoder"),
    ('{"model_type": "llama", "hidden_size": "wide"}', "is damaged .*expected int, got str")])
@pytest.mark.parametrize("read", [RecurrentLM.from_pretrained, load_causal_lm], ids=["recurrence", "plain"])
def test_a_config_that_is_none_is_refused_in_one_line(llama, read, text, words):
    (llama / "config.json").write_text(text)
    with pytest.raises(ReproError, match=words) as error:
        read("some-llama")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["flash_attention_2", "flex_attention", "bogus", "eager", "sdpa"])
def test_an_attention_function_that_cannot_see_the_vector_is_refused_before_loading(llama, tiny_gpt2, tmp_path, name):
    tiny_gpt2().save_pretrained(tmp_path / "gpt2")
    for folder, kind in ((llama, "RecurrentLlamaForCausalLM"), (tmp_path / "gpt2", "RecurrentLM")):
        with pytest.raises(ReproError, match=f"is '{name}'; a {kind} needs repro_memory, which handles"):
            RecurrentLM.from_pretrained(folder, attn_implementation=name)
        again = RecurrentLM.from_pretrained(folder, attn_implementation="repro_memory")
        assert again.config._attn_implementation == "repro_memory"


@pytest.mark.parametrize(("key", "stored"), [("memory", "gated"), ("memory", ["gated"]), ("memory", {"n_tokens": 3}),
                                             ("recurrence", "yes")])
def test_stored_settings_that_are_none_are_refused_in_one_line(llama, key, stored):
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {key: stored}))
    for read in ((lambda: with_memory(llama, "gated"), lambda: with_memory(llama)) if key == "memory" else
                 (lambda: RecurrentLM.from_pretrained(llama),)):
        with pytest.raises(ReproError, match=rf"{key} in the config.json of .* is .*; it must be the settings that"):
            read()


def test_a_missing_package_is_named(tiny_gpt2, tmp_path, monkeypatch):
    from transformers import GPT2LMHeadModel

    def absent(*args, **kwargs):
        raise ImportError("flash_attn is not installed.")

    tiny_gpt2().save_pretrained(tmp_path)
    monkeypatch.setattr(GPT2LMHeadModel, "from_pretrained", absent)
    with pytest.raises(ReproError, match="cannot be loaded: flash_attn is not installed. Install the package"):
        RecurrentLM.from_pretrained(tmp_path)


def test_a_recurrent_decoder_is_pickled(llama):
    model, ids = RecurrentLM.from_pretrained(llama), torch.randint(29, (2, 9))
    again = pickle.loads(pickle.dumps(model))
    assert type(again) is type(model)
    with torch.no_grad():
        assert torch.equal(again(ids, window=4).logits, model(ids, window=4).logits)
    from repro.recurrence import decoders

    with pytest.raises(AttributeError, match="no attribute 'RecurrentNothing'"):
        _ = decoders.RecurrentNothing


@pytest.mark.parametrize("do_sample", [True, False])
def test_weights_that_are_not_finite_choose_no_token(llama, tiny_recurrent, do_sample):
    for model in (RecurrentLM.from_pretrained(llama), tiny_recurrent()):
        next(model.recurrence.parameters()).data.fill_(torch.nan)
        with pytest.raises(ReproError, match="logits.* are NaN or infinite, so no token can be chosen"):
            model.generate(torch.randint(29, (2, 9)), 3, window=4, do_sample=do_sample)


def test_a_sparse_transformer_with_such_weights_samples_no_token():
    model = SparseTransformer(SparseConfig(vocab_size=9, length=8, n_layer=1, n_head=2, n_embd=8))
    next(model.parameters()).data.fill_(torch.nan)
    with pytest.raises(ReproError, match="logits at temperature 1 are NaN or infinite"):
        sample(model, torch.tensor([[3, 4]]), n_new=2)


def test_settings_of_another_model_are_refused(llama):
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(ReproError, match="lacks 9 weights, the first of them model.layers.2"):
        RecurrentLM.from_pretrained("some-llama")
