"""What transformers' own test suite asks of an attention, asked of ours in five families.

GPT-2, Llama, Mistral, Gemma 3 and ModernBERT; the last two mix layers with a window and without.
"""

import pytest
import torch
import transformers

from repro.attention import register
from repro.errors import ReproError

N, VOCABULARY, WINDOW = 22, 31, 5
ENDS = {"vocab_size": VOCABULARY, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": None}
SHAPE = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2,
         "max_position_embeddings": 64} | ENDS
ROTARY = SHAPE | {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}
MIXED = {"layer_types": ["sliding_attention", "full_attention"]}
FAMILIES = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 64,
                                               "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0} | ENDS),
    "llama": ("LlamaForCausalLM", "LlamaConfig", ROTARY),
    "mistral": ("MistralForCausalLM", "MistralConfig", ROTARY),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", ROTARY | MIXED | {"query_pre_attn_scalar": 4}),
    "modernbert": ("ModernBertForMaskedLM", "ModernBertConfig",
                   SHAPE | MIXED | {"cls_token_id": 0, "sep_token_id": 0}),
}
DECODERS = [name for name in FAMILIES if name != "modernbert"]


@pytest.fixture(scope="module", autouse=True)
def registered():
    register()


@pytest.fixture
def build(shake):
    """A tiny model of a family, the same weights every time; window: keys of a decoder, of both sides in ModernBERT."""
    def make(family, implementation="repro_sliding", window=WINDOW, **changes):
        model_class, config_class, settings = FAMILIES[family]
        own = {"local_attention": 2 * window} if family == "modernbert" else {"sliding_window": window}
        config = getattr(transformers, config_class)(**settings | own | changes, attn_implementation=implementation)
        return shake(getattr(transformers, model_class)(config)).eval()
    return make


def text(rows=2, n=N, seed=0):
    return torch.randint(2, VOCABULARY, (rows, n), generator=torch.Generator().manual_seed(seed))


def assert_close(one, other):
    torch.testing.assert_close(one, other, atol=5e-5, rtol=1e-4)


def gradients(model, **inputs):
    model.zero_grad()
    out = model(**inputs)
    out.logits.square().mean().backward()
    return out, {name: weights.grad.clone() for name, weights in model.named_parameters() if weights.grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_of_the_whole_text_is_full_attention(family, build):
    """Hidden states and gradients of every weight; a window one key shorter already differs."""
    inputs = {"input_ids": text(), "output_hidden_states": True}
    own = {"use_cache": False} if family in DECODERS else {}
    eager, found = (gradients(build(family, name, N), **inputs, **own) for name in ("eager", "repro_sliding"))
    for one, other in zip(found[0].hidden_states, eager[0].hidden_states, strict=True):
        assert_close(one, other)
    assert_close(found[0].logits, eager[0].logits)
    assert found[1].keys() == eager[1].keys() and len(found[1]) > 10
    for name, grad in found[1].items():
        assert_close(grad, eager[1][name])
    with torch.no_grad():
        shorter = build(family, window=N - 1 if family in DECODERS else N - 2)(text()).logits
    assert (shorter - found[0].logits).abs().max() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_and_loaded(family, build, tmp_path):
    model = build(family)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(text()).logits, model(text()).logits)
    assert again.config._attn_implementation == "repro_sliding"
    assert again.state_dict().keys() == model.state_dict().keys()


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize("settings", [{"num_beams": 1}, {"num_beams": 2}, {"num_beams": 1, "prefill_chunk_size": 4}],
                         ids=["greedy", "beams", "read in pieces"])
def test_generation_with_and_without_a_cache(family, settings, build):
    model, found = build(family), []
    for cache in {"use_cache": False}, {"use_cache": True}:
        rest = settings if cache["use_cache"] else {"num_beams": settings["num_beams"]}
        found.append(model.generate(text(n=12), max_new_tokens=9, do_sample=False, output_scores=True,
                                    return_dict_in_generate=True, **rest, **cache))
    assert torch.equal(found[0].sequences, found[1].sequences)
    assert_close(torch.stack(found[1].scores), torch.stack(found[0].scores))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(family, side, build):
    """A text of 15 tokens beside one of 22 gives what it gives alone, and so does what is generated after it."""
    model, ids = build(family), text()
    short, rest = ids[1:, :15], torch.full((1, N - 15), ENDS["pad_token_id"])
    both = torch.cat([ids[:1], torch.cat([rest, short] if side == "left" else [short, rest], 1)])
    real = (both != ENDS["pad_token_id"]).long()
    positions = {"position_ids": (real.cumsum(1) - 1).clamp(min=0)} if family in DECODERS else {}
    with torch.no_grad():
        found = model(both, attention_mask=real, **positions).logits
        assert_close(found[:1], model(ids[:1]).logits)
        assert_close(found[1:, real[1].bool()], model(short).logits)
    if family in DECODERS and side == "left":
        written = model.generate(both, attention_mask=real, max_new_tokens=6, do_sample=False)[1:, N:]
        assert torch.equal(written, model.generate(short, max_new_tokens=6, do_sample=False)[:, 15:])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_is_its_texts_and_vectors_are_their_tokens(family, build):
    model, ids = build(family), text(rows=3)
    with torch.no_grad():
        together = model(ids).logits
        assert_close(torch.cat([model(row[None]).logits for row in ids]), together)
        assert_close(model(inputs_embeds=model.get_input_embeddings()(ids)).logits, together)


@pytest.mark.parametrize("family", [name for name in DECODERS if name != "gpt2"])
def test_packed_texts_are_read_apart(family, build):
    model, ids = build(family), text(rows=1)
    positions = torch.cat([torch.arange(8), torch.arange(N - 8)])[None]
    with torch.no_grad():
        packed = model(ids, position_ids=positions, use_cache=False).logits
        assert_close(packed, torch.cat([model(part).logits for part in ids.split([8, N - 8], 1)], 1))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*deprecated")  # its new name is younger than 5.5
def test_gradient_checkpointing(family, reentrant, build):
    model = build(family).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    ids, real = text(), torch.ones(2, N, dtype=torch.long)
    real[1, 17:] = 0
    settings = {"input_ids": ids, "attention_mask": real} | ({"use_cache": False} if family in DECODERS else {})
    want = gradients(model, **settings)[1]
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert model.is_gradient_checkpointing
    found = gradients(model, **settings)[1]
    assert found.keys() == want.keys()
    for name, grad in found.items():
        assert_close(grad, want[name])


@pytest.mark.parametrize("family", ["mistral", "gemma3", "modernbert"])
def test_probabilities_are_those_of_the_model_itself(family, build):
    """In padded texts too; for GPT-2 and Llama, which have no windows, see test_registration."""
    real = torch.ones(2, N, dtype=torch.long)
    real[1, 17:] = 0
    with torch.no_grad():
        own, found = (build(family, name)(text(), attention_mask=real, output_attentions=True).attentions
                      for name in ("eager", "repro_sliding"))
    assert len(found) == 2
    for one, other in zip(found, own, strict=True):
        assert one.shape == other.shape
        assert_close(one[0], other[0])
        assert_close(one[1, :, :17], other[1, :, :17])


@pytest.mark.parametrize("family", ["gpt2", "gemma3", "modernbert"])
def test_compiled_in_one_graph(family, build):
    """Llama and Mistral, with gradients, are in test_registration."""
    model, ids = build(family), text()
    own = {"use_cache": False} if family in DECODERS else {}
    compiled, graphs = torch.compile(model, backend=lambda graph, _: graphs.append(graph) or graph, fullgraph=True), []
    with torch.no_grad():
        assert_close(compiled(ids, **own).logits, model(ids, **own).logits)
    calls = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert len(graphs) == 1 and sum("repro" in one and "attend" in one for one in calls) == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision(family, build):
    model = build(family)
    with torch.no_grad():
        want = model(text()).logits
        found = model.to(torch.bfloat16)(text()).logits
    assert found.dtype == torch.bfloat16
    assert (found.float() - want).norm() < 0.1 * want.norm()


SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": VOCABULARY}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": VOCABULARY}


@pytest.mark.parametrize(("model", "config", "settings", "said"), [
    ("Gemma2ForCausalLM", "Gemma2Config", ROTARY, "Gemma2Attention sets softcap, which"),
    ("GptOssForCausalLM", "GptOssConfig", ROTARY | {"num_local_experts": 2, "num_experts_per_tok": 1},
     "GptOssAttention sets s_aux, which"),
    ("T5ForConditionalGeneration", "T5Config", T5, "T5Attention sets position_bias|computes its attention by itself"),
    ("BloomForCausalLM", "BloomConfig", {"hidden_size": 16, "n_layer": 1, "n_head": 2, "vocab_size": VOCABULARY},
     "BloomForCausalLM computes its attention by itself and would not ask for 'repro_sliding'"),
    ("DebertaV2ForMaskedLM", "DebertaV2Config", SMALL | {"intermediate_size": 8}, "computes its attention by itself"),
    ("FalconForCausalLM", "FalconConfig", SMALL, "FalconForCausalLM computes its attention by itself"),
    ("DogeForCausalLM", "DogeConfig", ROTARY, r"DogeAttention has masks \(2, 4, 22, 22\), one for each head, which"),
    ("LongformerForMaskedLM", "LongformerConfig", SMALL | {"intermediate_size": 8, "attention_window": 4},
     "Replace its layers by LongformerSelfAttention"),
])
def test_what_would_be_wrong_without_a_word_is_refused(model, config, settings, said):
    """Softcap, sinks, biases by position, masks for each head; models that never ask for an attention."""
    config = getattr(transformers, config)(**settings, sliding_window=4, attn_implementation="repro_sliding")
    with pytest.raises(ReproError, match=said):
        more = {"decoder_input_ids": text()} if config.is_encoder_decoder else {}
        getattr(transformers, model)(config).eval()(text(), **more)


@pytest.mark.parametrize("family", ["Bloom", "Falcon"])
def test_what_would_not_change_is_refused_when_it_is_set(family):
    model = getattr(transformers, f"{family}ForCausalLM")(getattr(transformers, f"{family}Config")(
        hidden_size=16, n_layer=1, num_hidden_layers=1, n_head=2, num_attention_heads=2, vocab_size=VOCABULARY))
    with pytest.raises(ReproError, match=f"{family}.* computes its attention by itself and would not ask for 'repro_s"):
        model.set_attn_implementation("repro_sliding")
    with pytest.raises(ReproError, match=f"{family}.* computes its attention by itself"):
        model.set_attn_implementation({"": "repro_sliding"})
    model.set_attn_implementation("eager")
    model.set_attn_implementation({"": "eager"})


def test_an_unknown_name_is_refused(build):
    with pytest.raises(ValueError, match="repro_slidng"):
        build("llama", "repro_slidng")
