"""Every causal and masked language model of transformers: its attention is the window, or it is refused in one line.

One tiny layer of each type reads a text, and the text with one token changed, for every token. A window lets the change
reach the positions inside it and no others. Types that transformers' own attention cannot read here are not judged.
"""

from importlib.metadata import version

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

from repro.attention import SlidingWindow, attend, register
from repro.errors import ReproError

N, VOCABULARY, WINDOW = 12, 31, 4
KINDS = {"causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
         "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES}
TYPES = [(kind, name) for kind, found in KINDS.items() for name in found]

TINY = {  # what configs call their sizes; each gets those that it has
    "vocab_size": VOCABULARY, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 2,
    "cls_token_id": 0, "sep_token_id": 2, "mask_token_id": 3,
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "word_embed_proj_dim", "emb_dim",
                     "emb_size"), 16),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_dim", "hidden_dim",
                     "ffn_hidden_size", "n_inner"), 24),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "encoder_layers", "decoder_layers", "num_layers", "n_layers",
                     "num_decoder_layers", "num_encoder_layers"), 1),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "n_head", "encoder_attention_heads",
                     "decoder_attention_heads", "num_heads", "n_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "kv_channels", "rotary_dim", "v_head_dim", "qk_head_dim", "q_lora_rank",
                     "kv_lora_rank", "query_pre_attn_scalar"), 8),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"), 40),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 2),
    **dict.fromkeys(("num_experts_per_tok", "n_group", "topk_group", "n_shared_experts"), 1),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 8), "first_k_dense_replace": 0,
    "image_size": 32, "patch_size": 16, "local_attention": WINDOW, "use_sliding_window": True, "max_window_layers": 0,
    "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 8,
    "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 8, "vocab_size_per_layer_input": VOCABULARY,
    "ngram_vocab_size_base": 50, "encoder_hash_byte_group_vocab": 50, "indexer_n_heads": 2, "indexer_kv_heads": 1,
    "indexer_head_dim": 8, "indexer_budget": 4, "indexer_compress_ratio": 2, "entity_vocab_size": 50,
    "entity_emb_size": 8, "d_latents": 16, "num_latents": 8,
}
SPECIAL = {"jamba": {"attn_layer_period": 1, "attn_layer_offset": 0}, "recurrent_gemma": {"block_types": ["attention"]},
           "mobilebert": {"trigram_input": False}, "xmod": {"default_language": "en_XX"},
           "bamba": {"attn_layer_indices": [0]}, "gpt_neo": {"attention_types": [[["global"], 1]]},
           "zamba": {"layers_block_type": ["hybrid"]}, "zamba2": {"layers_block_type": ["hybrid"]},
           "reformer": {"axial_pos_embds": False}}
CARRY = {  # where more than one attention takes a token on, the patterns that are asked for are looked at instead
    "hrm_text": "reads in cycles"}
TWO_TEXTS = {"bart", "mbart", "mvp"}  # as masked models: their decoders see all through their encoders
ON_A_SIDE = {"ultrabert": WINDOW, "ultravbert": WINDOW}  # whose own windows count the keys of one side
MADE_FOR, UNREADABLE = "5.23.0", {  # types that one small layer cannot be made of in that version; it reads all others
    "blt", "cohere_compass_text", "dbrx", "dots3_note", "gemma3n", "gemma3n_text", "gemma4_assistant",
    "gemma4_unified_assistant", "lfm2_moe", "longcat_flash", "mamba2", "musicgen", "musicgen_melody", "neomme",
    "olmo_hybrid", "rwkv", "zamba"}


@pytest.fixture(scope="module", autouse=True)
def registered():
    register()
    register("near", SlidingWindow(2 * WINDOW - 2, causal=False))


def tiny(config_class, kind, more):
    """A config of one small layer, and of small parts."""
    plain = config_class()
    names = {*vars(plain), *getattr(config_class, "attribute_map", {})}
    settings = {name: value for name, value in TINY.items() if name in names}
    if "qk_rope_head_dim" in names and "head_dim" in names:
        settings["head_dim"] = TINY["qk_rope_head_dim"]
    if "local_attention" not in names or kind == "causal":
        settings["sliding_window"] = WINDOW
    layers = vars(plain).get("layer_types")
    if isinstance(getattr(config_class, "layer_types", None), property):
        layers = None
    if layers:
        wanted = ["sliding_attention"] * ("use_sliding_window" in names or "sliding_attention" in layers)
        wanted += [layer for layer in ("full_attention", *layers) if layer in layers and "linear" not in layer]
        settings["layer_types"] = [*wanted, layers[0]][:1]
    parts = {name: tiny(type(part), kind, {}) for name, part in vars(plain).items()
             if isinstance(part, transformers.PreTrainedConfig)}
    return config_class(**settings | parts | more)


def build(kind, name):
    """A tiny model with its own attention, its config, and what it reads: every row has another token changed."""
    model_class = getattr(transformers, KINDS[kind][name])
    config = tiny(CONFIG_MAPPING[name], kind, SPECIAL.get(name, {}))
    if model_class.config_class is not None and not isinstance(config, model_class.config_class):
        config = config.get_text_config()
    if kind == "causal" and hasattr(config, "is_decoder"):
        config.is_decoder = True
    model, generator = model_class(config).eval(), torch.Generator().manual_seed(0)
    for weights in model.parameters():
        weights.data.normal_(0, 0.3 if weights.ndim == 1 else weights.shape[-1] ** -0.5, generator=generator)
    ids = torch.randint(4, VOCABULARY - 1, (1, N), generator=generator).repeat(N + 1, 1)
    changed = torch.arange(N)
    ids[changed, changed] = 4 + (ids[changed, changed] + 7) % (VOCABULARY - 6)
    return model, ids


def read(model, kind, ids):
    with torch.no_grad():
        logits = model(ids, **{"use_cache": False} if kind == "causal" else {}).logits
    assert logits.shape[:2] == ids.shape and logits.isfinite().all()
    return logits


def outcome(kind, name, asked):
    """None for a right window, the sentence of a refusal; raises what transformers' own attention does not."""
    try:
        model, ids = build(kind, name)
        types = getattr(model.config.get_text_config(), "layer_types", None) or ["sliding_attention"]
        ours = "repro_sliding" if "sliding_attention" in types else "near"
        model.set_attn_implementation(ours)
        model.config._attn_implementation = ours
        logits = read(model, kind, ids)
    except ReproError as error:
        return str(error)
    except Exception as error:
        try:
            read(build(kind, name)[0], kind, ids[:1])
        except Exception:
            pytest.skip(f"{name} cannot be read here: {type(error).__name__}")
        raise
    apart = torch.arange(N) - torch.arange(N)[:, None]  # from the changed token to one that is predicted
    both_ways = kind == "masked" and ours == "repro_sliding"
    behind = ON_A_SIDE.get(name, WINDOW // 2) if both_ways else WINDOW - 1
    want = (apart <= behind) & (apart >= (0 if kind == "causal" else -behind))
    if name in CARRY:
        assert asked and all(torch.equal(pattern.mask(N), want.T) for pattern in asked)
    else:
        assert torch.equal((logits[:N] - logits[N:]).abs().amax(-1) > 1e-6, want)
    return None


# In other versions of transformers these see more than their window, and nothing refuses them.
WIDER = {"5.5": {"diffllama", "glm_moe_dsa", "longcat_flash", "moshi", "nemotron"}, "5.24": {"dory"}}


@pytest.mark.parametrize(("kind", "name"), TYPES)
def test_a_window_or_a_refusal(kind, name, monkeypatch):
    if name in WIDER.get(version("transformers").rpartition(".")[0], ()):
        pytest.xfail(f"this version of transformers does not give {name} its window")
    asked = []
    monkeypatch.setattr("repro.attention.position_mask.attend", lambda query, key, value, pattern, **rest: (
        asked.append(pattern) or attend(query, key, value, pattern, **rest)))
    if kind == "masked" and name in TWO_TEXTS:
        pytest.skip("the decoder sees all of the text through the encoder; see test_registration")
    try:
        said = outcome(kind, name, asked)
    except pytest.skip.Exception:
        assert version("transformers") != MADE_FOR or name in UNREADABLE, f"{name} can no longer be read: see tiny()"
        raise
    assert said is None or "\n" not in said
