"""Models with windows of their own, in some layers or all: `repro_sliding` computes what they themselves compute."""

import pytest
import torch
import transformers

from repro.attention import SlidingWindow, Strided, register
from repro.errors import ReproError

N, VOCABULARY = 23, 31
DECODER = {"num_hidden_layers": 3, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4,
           "num_key_value_heads": 2, "head_dim": 4, "vocab_size": VOCABULARY, "max_position_embeddings": 64,
           "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": None, "sliding_window": 5}
MIXED = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
MODELS = {
    "Mistral": ({}, [5, 5, 5]),
    "Qwen2": ({"use_sliding_window": True, "max_window_layers": 2}, [None, None, 5]),
    "Qwen3": ({"use_sliding_window": True, "max_window_layers": 1}, [None, 5, 5]),
    "Qwen2Moe": ({"use_sliding_window": True, "max_window_layers": 1, "num_experts": 2, "num_experts_per_tok": 1,
                  "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8}, [5, None, None]),
    "Gemma3": ({**MIXED, "query_pre_attn_scalar": 4}, [5, None, 5]),
    "Olmo3": (MIXED, [5, None, 5]),
    "Cohere2": (MIXED, [5, None, 5]),
    "ModernBert": ({**MIXED, "local_attention": 6, "sliding_window": None, "cls_token_id": 0, "sep_token_id": 0},
                   [3, None, 3]),
}


@pytest.fixture(scope="module", autouse=True)
def registered():
    register()


def build(name, shake, **changes):
    kind = "ModernBertForMaskedLM" if name == "ModernBert" else f"{name}ForCausalLM"
    config = getattr(transformers, f"{name}TextConfig" if name == "Gemma3" else f"{name}Config")
    settings = {key: value for key, value in (DECODER | MODELS[name][0] | changes).items() if value is not None
                or key == "eos_token_id"}
    return shake(getattr(transformers, kind)(config(**settings, attn_implementation="eager"))).eval()


def ids_of(seed=0):
    return torch.randint(2, VOCABULARY, (2, N), generator=torch.Generator().manual_seed(seed))


def both(model, *inputs, name="repro_sliding", **named):
    """The logits by the model's own attention, then by ours."""
    found = []
    for implementation in "eager", name:
        model.set_attn_implementation(implementation)
        model.config._attn_implementation = implementation  # before 5.9 ModernBERT could only be built with it
        with torch.no_grad():
            found.append(model(*inputs, **named).logits)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_as_the_model_itself(name, shake, monkeypatch):
    model, ids = build(name, shake), ids_of()
    real = torch.ones(2, N, dtype=torch.long)
    real[1, :4] = 0
    own, ours = both(model, ids)
    torch.testing.assert_close(ours, own, atol=2e-5, rtol=1e-4)
    own, ours = both(model, ids, attention_mask=real)
    torch.testing.assert_close(ours[real.bool()], own[real.bool()], atol=2e-5, rtol=1e-4)
    asked = []
    monkeypatch.setattr("repro.attention.position_mask.attend",
                        lambda q, k, v, pattern, **rest: asked.append(pattern) or v)
    both(model, ids)
    causal = name != "ModernBert"
    assert [getattr(one, "window", None) for one in asked] == [
        width if width is None or causal else 2 * width for width in MODELS[name][1]]


@pytest.mark.parametrize("name", [name for name in MODELS if name != "ModernBert"])
def test_packed_and_generated(name, shake):
    model, ids = build(name, shake), ids_of()
    positions = torch.cat([torch.arange(9), torch.arange(N - 9)])[None]
    own, ours = both(model, ids[:1], position_ids=positions, use_cache=False)
    torch.testing.assert_close(ours, own, atol=2e-5, rtol=1e-4)
    assert (own - both(model, ids[:1])[0]).abs().max() > 1e-3
    found = []
    for implementation, cache in ("eager", "dynamic"), ("repro_sliding", "dynamic"), ("repro_sliding", "static"):
        model.set_attn_implementation(implementation)
        found.append(model.generate(ids, max_new_tokens=9, do_sample=False, output_logits=True,
                                    return_dict_in_generate=True, cache_implementation=cache))
    for one in found[1:]:
        torch.testing.assert_close(torch.stack(one.logits), torch.stack(found[0].logits), atol=5e-5, rtol=1e-4)


def test_gaps_and_other_patterns_in_a_model_that_mixes(shake):
    """Gaps go to the layers with a window; a pattern of another name goes to all of them."""
    model, ids = build("Gemma3", shake, sliding_dilation=2), ids_of()
    masks = {"sliding_attention": SlidingWindow(5, 2), "full_attention": SlidingWindow(N)}
    own = both(model, ids, attention_mask={kind: torch.zeros(1, 1, N, N).masked_fill(~one.mask(N), torch.finfo().min)
                                           for kind, one in masks.items()})[0]
    torch.testing.assert_close(both(model, ids)[1], own, atol=2e-5, rtol=1e-4)
    model.config.strided_stride = 4
    mask = torch.zeros(1, 1, N, N).masked_fill(~Strided(4).mask(N), torch.finfo().min)
    own = both(model, ids, attention_mask=dict.fromkeys(masks, mask))[0]
    torch.testing.assert_close(both(model, ids, name="repro_strided")[1], own, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "changes", "said"), [
    ("Qwen2", {"max_window_layers": 3}, "layer_types of this qwen2 names no sliding_attention"),
    ("Qwen2", {"use_sliding_window": False}, "sliding_window is missing in the config"),
    ("Gemma3", {"use_bidirectional_attention": True}, "adds its own mask to its attention"),
])
def test_refused(name, changes, said, shake):
    with pytest.raises(ReproError, match=said):
        both(build(name, shake, **changes), ids_of())


@pytest.mark.parametrize("name", ["Qwen2", "Qwen3"])
def test_compiled_in_one_graph(name, shake):
    """Forward; Mistral is in test_registration, Gemma 3 and ModernBERT in test_model_checks."""
    torch.compiler.reset()  # a limit counts what the tests before this one compiled
    model, ids, graphs = build(name, shake), ids_of(), []
    model.set_attn_implementation("repro_sliding")
    compiled = torch.compile(model, backend=lambda graph, _: graphs.append(graph) or graph, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(ids, use_cache=False).logits, model(ids, use_cache=False).logits)
    calls = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert len(graphs) == 1 and sum("repro" in one and "attend" in one for one in calls) == 3


def test_layers_that_we_do_not_know_are_refused():
    config = transformers.Llama4TextConfig(
        **{key: value for key, value in DECODER.items() if key not in ("sliding_window", "intermediate_size")},
        intermediate_size=24, intermediate_size_mlp=24, num_local_experts=2, attention_chunk_size=8,
        layer_types=["chunked_attention", "full_attention", "chunked_attention"], sliding_window=5,
        attn_implementation="repro_sliding")
    with pytest.raises(ReproError, match="this llama4_text has chunked_attention; 'repro_sliding' knows only"):
        transformers.Llama4ForCausalLM(config).eval()(ids_of())
