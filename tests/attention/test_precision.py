"""Precision, autocast, caches, checkpointing and compilation: models train with our patterns as they do with sdpa.

The truth is transformers' own attention (sdpa) under an equal mask, in the same precision.
"""


import re

import pytest
import torch
import transformers

from repro.attention import BlockLocal, Causal, Fixed, Global, SlidingWindow, Strided, register
from repro.hf_compat import cache_argument

N, VOCABULARY, WINDOW = 19, 31, 5
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
SHAPE = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4,
         "vocab_size": VOCABULARY, "max_position_embeddings": 64, "pad_token_id": 1, "bos_token_id": 0,
         "eos_token_id": None, "sliding_window": WINDOW}
ROTARY = SHAPE | {"num_key_value_heads": 2, "head_dim": 4}
MIXED = {"layer_types": ["sliding_attention", "full_attention"]}
OWN = MIXED | {"use_sliding_window": True}
MOE = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8}
FAMILIES = {
    "GPT2": SHAPE | {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
    "Llama": ROTARY,
    "Mistral": ROTARY,
    "Qwen2": ROTARY | OWN,
    "Qwen3": ROTARY | OWN,
    "Qwen2Moe": ROTARY | OWN | MOE,
    "Gemma3": ROTARY | MIXED | {"query_pre_attn_scalar": 4},
    "Olmo3": ROTARY | MIXED,
    "Cohere2": ROTARY | MIXED,
    "ModernBert": SHAPE | MIXED | {"local_attention": 2 * WINDOW, "sliding_window": None, "cls_token_id": 0,
                                   "sep_token_id": 0},
}
DECODERS = [family for family in FAMILIES if family != "ModernBert"]
AUTOCAST = [(F32, BF16), (F32, F16), (BF16, BF16), (F16, F16)]  # of weights, and what autocast computes in
PRECISIONS = [(F32, None), (BF16, None), (F16, None), *AUTOCAST]
CLOSE = {F32: 1e-4, BF16: 5e-2, F16: 1e-2}  # relative: 2 to 10 times what one rounding more or less changes
WITHOUT_WINDOWS = "GPT2", "Llama"  # sdpa gets the window as a mask there


@pytest.fixture(scope="module", autouse=True)
def registered():
    register()


@pytest.fixture(scope="module")
def build(shake):
    """A tiny model of a family, the same weights every time."""
    def make(family, dtype=F32, implementation="repro_sliding"):
        model = getattr(transformers, "ModernBertForMaskedLM" if family == "ModernBert" else f"{family}ForCausalLM"
                        if family != "GPT2" else "GPT2LMHeadModel")
        config = getattr(transformers, "Gemma3TextConfig" if family == "Gemma3" else f"{family}Config")
        settings = {name: value for name, value in FAMILIES[family].items()
                    if value is not None or name == "eos_token_id"}
        return shake(model(config(**settings, attn_implementation=implementation))).to(dtype)
    return make


@pytest.fixture(scope="module")
def exact():
    """What sdpa gives in single precision, by family."""
    return {}


def ids(n=N):
    return torch.randint(2, VOCABULARY, (2, n), generator=torch.Generator().manual_seed(0))


def autocast(dtype):
    return torch.autocast("cpu", dtype or BF16, enabled=dtype is not None)


def settings(family, implementation, cache=False):
    """What a model is called with so that it computes the window, whichever attention it has."""
    found = {} if family == "ModernBert" else {"use_cache": cache}
    if implementation == "sdpa" and family in WITHOUT_WINDOWS:
        found["attention_mask"] = SlidingWindow(WINDOW).mask(N).expand(2, 1, N, N)
    return found


def trained(model, family, amp, cache=False, implementation="repro_sliding"):
    """Logits, and the gradients of all weights in one row."""
    with autocast(amp):
        out = model(ids(), labels=ids(), **settings(family, implementation, cache))
    out.loss.backward()
    grads = [weights.grad.float().flatten() for weights in model.parameters() if weights.grad is not None]
    model.zero_grad()
    return out.logits.detach().float(), torch.cat(grads)


def assert_near(found, want, dtype):
    assert found.isfinite().all()
    assert (found - want).norm() <= CLOSE[dtype] * want.norm(), ((found - want).norm() / want.norm()).item()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("dtype", "amp"), PRECISIONS)
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*deprecated")  # its new name is younger than 5.5
def test_training(family, dtype, amp, build, exact):
    """With a cache, without, with checkpointing; against sdpa in that precision, and single precision itself."""
    theirs = build(family, dtype, "sdpa").train()
    want = trained(theirs, family, amp, implementation="sdpa")
    if family not in exact:
        exact[family] = trained(build(family, F32, "sdpa").train(), family, None, implementation="sdpa")
    ours = build(family, dtype).train()
    found = [trained(ours, family, amp, cache) for cache in (False, True)[:1 + (family in DECODERS)]]
    ours.gradient_checkpointing_enable()
    found.append(trained(ours, family, amp))
    for one in found:
        for part, other, true in zip(one, want, exact[family], strict=True):
            assert_near(part, other, amp or dtype)
            assert_near(part, true, BF16 if BF16 in (amp, dtype) else amp or dtype)
    assert torch.equal(found[-1][1], found[0][1])


@pytest.mark.parametrize(("name", "settings", "pattern"), [
    ("full", {}, Causal()), ("causal", {}, Causal()), ("strided", {"strided_stride": 4}, Strided(4)),
    ("fixed", {"fixed_stride": 5, "fixed_summary": 2}, Fixed(5, 2)), ("block_local", {"block_local_block": 5},
    BlockLocal(5)), ("global", {"global_positions": [0, 3]}, Global([0, 3]) & Causal()),
    ("sliding", {"sliding_dilation": 2}, SlidingWindow(WINDOW, 2))])
def test_every_name_under_autocast(name, settings, pattern, build):
    """Training with and without dropout of weights, then evaluation."""
    ours, theirs = build("Llama", implementation=f"repro_{name}"), build("Llama", implementation="sdpa")
    for setting, value in settings.items():
        setattr(ours.config, setting, value)
    mask = {"attention_mask": pattern.mask(N).expand(2, 1, N, N)}
    found = []
    for model, more in (ours, {}), (theirs, mask):
        with autocast(BF16):
            out = model.train()(ids(), labels=ids(), use_cache=False, **more)
        out.loss.backward()
        with autocast(BF16), torch.no_grad():
            read = model.eval()(ids(), use_cache=False, **more).logits.float()
        found.append((torch.cat([weights.grad.flatten() for weights in model.parameters()]), read))
    for one, other in zip(*found, strict=True):
        assert_near(one, other, BF16)
    for layer in ours.train().model.layers:
        layer.self_attn.attention_dropout = 0.3
    torch.manual_seed(0)
    with autocast(BF16):
        dropped = ours(ids(), labels=ids(), use_cache=False)
    dropped.loss.backward()
    assert (dropped.logits.float() - found[0][1]).norm() > 2 * CLOSE[BF16] * found[0][1].norm()
    assert all(weights.grad.isfinite().all() for weights in ours.parameters())


def in_pieces(model, cache):
    """Logits of the text in three pieces, the middle one a single token."""
    return torch.cat([model(piece, use_cache=True, **cache_argument(cache)).logits.float()
                      for piece in ids().split([9, 1, 9], 1)], 1)


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize(("dtype", "amp"), PRECISIONS)
def test_reading_in_pieces(family, dtype, amp, build):
    """By each cache; against the whole text without one."""
    model = build(family, dtype).eval()
    with torch.no_grad(), autocast(amp):
        want = model(ids(), use_cache=False).logits.float()
        assert_near(in_pieces(model, transformers.DynamicCache(config=model.config)), want, amp or dtype)
        try:
            found = in_pieces(model, transformers.StaticCache(model.config, max_cache_len=32))
        except RuntimeError as error:
            assert dtype == F32 and amp
            model.set_attn_implementation("sdpa")
            with pytest.raises(RuntimeError, match=re.escape(str(error))):
                in_pieces(model, transformers.StaticCache(model.config, max_cache_len=32))
        else:
            assert_near(found, want, amp or dtype)


@pytest.mark.parametrize(("family", "precision", "checkpointing", "cache"), [
    ("GPT2", (F32, BF16), False, False), ("Llama", (F32, BF16), True, False), ("Mistral", (F32, BF16), False, False),
    ("Qwen2", (BF16, None), True, False), ("Qwen3", (F32, None), True, False), ("Qwen2Moe", (F16, None), False, False),
    ("Gemma3", (F32, BF16), False, False), ("Olmo3", (BF16, BF16), False, True), ("Cohere2", (F32, None), False, False),
    ("ModernBert", (F32, BF16), True, False)])
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*deprecated")
def test_compiled(family, precision, checkpointing, cache, build):
    """Logits and gradients are those without compilation."""
    torch.compiler.reset()
    dtype, amp = precision
    model = build(family, dtype).train()
    want = trained(model, family, amp, cache)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    backend = "aot_eager" if family == "Llama" else "eager"  # seconds against a second
    found = trained(torch.compile(model, backend=backend), family, amp, cache)
    for one, other in zip(found, want, strict=True):
        assert_near(one, other, amp or dtype)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*deprecated")
def test_the_trainer_of_transformers_in_bf16(checkpointing, build, tmp_path):
    """Two steps; the weights end where sdpa takes them under the same mask, to the precision of bfloat16."""
    ended = []
    for implementation in "repro_sliding", "sdpa":
        model = build("Llama", implementation=implementation)
        before = model.model.layers[0].self_attn.q_proj.weight.detach().clone()
        rows = [{"input_ids": row, "labels": row} for row in ids().repeat(2, 1)]
        if implementation == "sdpa":
            rows = [row | {"attention_mask": SlidingWindow(WINDOW).mask(N)[None]} for row in rows]
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=2, per_device_train_batch_size=2, bf16=True, use_cpu=True, report_to=[],
            gradient_checkpointing=checkpointing, learning_rate=0.01, save_strategy="no", disable_tqdm=True)
        result = transformers.Trainer(model, arguments, train_dataset=rows).train()
        assert result.global_step == 2 and result.training_loss > 0
        ended.append(model.model.layers[0].self_attn.q_proj.weight.detach() - before)
    assert ended[0].abs().max() > 0.005 and (ended[0] - ended[1]).norm() < 0.2 * ended[1].norm()
