"""Patterns inside transformers' models against the same models with a dense mask."""

from importlib.metadata import version

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    CLIPVisionConfig,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LayoutLMConfig,
    LayoutLMForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    MistralConfig,
    MistralForCausalLM,
    PegasusXConfig,
    PegasusXForConditionalGeneration,
    RobertaConfig,
    RobertaForMaskedLM,
)

from repro.attention import BlockLocal, Causal, Fixed, Full, Global, Prefix, SlidingWindow, Strided, register
from repro.attention.registration import _of_padding
from repro.errors import ReproError
from repro.hf_compat import cache_argument, cache_in

N, VOCABULARY = 21, 31
DECODERS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config, {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 40,
                                           "scale_attn_by_inverse_layer_idx": True,
                                           "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}),
    "llama": (LlamaForCausalLM, LlamaConfig, {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 24,
                                              "num_attention_heads": 4, "num_key_value_heads": 2,
                                              "max_position_embeddings": 40}),
}
SETTINGS = [
    ("sliding", {"sliding_window": 4}, SlidingWindow(4)),
    ("sliding", {"sliding_window": 1}, SlidingWindow(1)),
    ("sliding", {"sliding_window": 3, "sliding_dilation": 3}, SlidingWindow(3, 3)),
    ("strided", {"strided_stride": 4}, Strided(4)),
    ("fixed", {"fixed_stride": 5, "fixed_summary": 2}, Fixed(5, 2)),
    ("block_local", {"block_local_block": 5}, BlockLocal(5)),
    ("global", {"global_positions": [0, 3]}, Global([0, 3]) & Causal()),
    ("full", {}, Causal()),
    ("causal", {}, Causal()),
]


DECODERS["mistral"] = (MistralForCausalLM, MistralConfig, DECODERS["llama"][2])  # windows of its own in transformers


@pytest.fixture(scope="module", autouse=True)
def registered():
    register()
    register()  # twice does no harm


def build(kind, settings, folder, shake, name, patterns):
    """(the dense model, the same weights saved and loaded again with a pattern)."""
    model_class, config_class, shape = kind
    ends = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 1}
    dense = shake(model_class(config_class(**shape, **ends, attn_implementation="sdpa"))).eval()
    for key, value in settings.items():
        setattr(dense.config, key, value)
    dense.save_pretrained(folder)
    for key in settings:
        setattr(dense.config, key, None)
    loaded = model_class.from_pretrained(folder, attn_implementation=f"repro_{name}").eval()
    assert all(getattr(loaded.config, key) == value for key, value in settings.items())
    return dense, loaded


def continued(dense, ids, pattern, steps, real=None):
    """Greedy continuation by the dense model, which reads everything anew at every step."""
    logits = []
    for _ in range(steps):
        mask = pattern(torch.arange(ids.shape[1])[:, None], torch.arange(ids.shape[1])).expand(len(ids), 1, -1, -1)
        positions = None
        if real is not None:
            real = torch.nn.functional.pad(real, (0, ids.shape[1] - real.shape[1]), value=True)
            mask = mask & real[:, None, None]
            positions = (real.long().cumsum(1) - 1).clamp(min=0)
        logits.append(dense(ids, attention_mask=mask, position_ids=positions, use_cache=False).logits[:, -1])
        ids = torch.cat([ids, logits[-1].argmax(-1, keepdim=True)], 1)
    return ids, torch.stack(logits, 1)


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize(("name", "settings", "pattern"), SETTINGS, ids=lambda x: x if isinstance(x, str) else "")
def test_decoder(kind, name, settings, pattern, tmp_path, shake):
    dense, loaded = build(DECODERS[kind], settings, tmp_path, shake, name, pattern)
    ids = torch.randint(2, VOCABULARY, (2, N), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        want = dense(ids, attention_mask=pattern.mask(N).expand(2, 1, N, N)).logits
        torch.testing.assert_close(loaded(ids).logits, want, atol=2e-5, rtol=1e-4)
        if pattern != Causal():
            assert (want - dense(ids).logits).abs().max() > 1e-2
        want, logits = continued(dense, ids, pattern, 12)
        found = loaded.generate(ids, max_new_tokens=12, do_sample=False, output_logits=True,
                                return_dict_in_generate=True)
    torch.testing.assert_close(torch.stack(found.logits, 1), logits, atol=2e-5, rtol=1e-4)
    assert torch.equal(found.sequences, want)


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize(("cache", "dilation"), [("dynamic", 1), ("dynamic", 2), ("static", 1)])
def test_padding_and_caches(kind, cache, dilation, tmp_path, shake):
    settings = {"sliding_window": 3, "sliding_dilation": dilation}
    dense, loaded = build(DECODERS[kind], settings, tmp_path, shake, "sliding", None)
    ids = torch.randint(2, VOCABULARY, (2, N), generator=torch.Generator().manual_seed(0))
    real = torch.ones(2, N, dtype=torch.bool)
    real[1, :4] = False
    with torch.no_grad():
        want, logits = continued(dense, ids, SlidingWindow(3, dilation), 6, real)
        found = loaded.generate(ids, attention_mask=real.long(), max_new_tokens=6, do_sample=False, output_logits=True,
                                return_dict_in_generate=True, cache_implementation=cache)
    torch.testing.assert_close(torch.stack(found.logits, 1), logits, atol=2e-5, rtol=1e-4)
    assert torch.equal(found.sequences, want)


def test_a_cache_that_drops_what_is_needed(tiny_gpt2):
    """A window without gaps keeps its length of keys; where more is needed nothing wrong comes out, but a sentence."""
    model, ids = with_window(tiny_gpt2(n_positions=40, sliding_window=4)), torch.zeros(1, 30, dtype=torch.long)
    out = model.generate(ids, max_new_tokens=3, do_sample=False, return_dict_in_generate=True)
    assert {layer.keys.shape[2] for layer in cache_in(out).layers} == {3}
    model.config.sliding_dilation = 2
    with pytest.raises(ReproError, match=r"query 30 sees key 24 under .* has dropped all keys before 27; use one that"):
        model.generate(ids, max_new_tokens=3, do_sample=False, cache_implementation="static")
    out = model.generate(ids, max_new_tokens=3, do_sample=False, return_dict_in_generate=True)
    assert {layer.keys.shape[2] for layer in cache_in(out).layers} == {32}


@pytest.mark.parametrize("cache", ["of the config", "of its own"])
def test_in_pieces(cache, tmp_path, shake):
    dense, loaded = build(DECODERS["gpt2"], {"sliding_window": 4}, tmp_path, shake, "sliding", None)
    ids = torch.randint(2, VOCABULARY, (1, N), generator=torch.Generator().manual_seed(0))
    cache = DynamicCache(config=loaded.config) if cache == "of the config" else DynamicCache()
    with torch.no_grad():
        pieces = [loaded(piece, **cache_argument(cache)).logits for piece in ids.split([9, 7, 5], 1)]
        want = dense(ids, attention_mask=SlidingWindow(4).mask(N)[None, None]).logits
    torch.testing.assert_close(torch.cat(pieces, 1), want, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "settings", "pattern"), SETTINGS, ids=lambda x: x if isinstance(x, str) else "")
@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_packed_sequences(kind, name, settings, pattern, tmp_path, shake):
    dense, loaded = build(DECODERS[kind], settings, tmp_path, shake, name, None)
    ids = torch.randint(2, VOCABULARY, (1, 12), generator=torch.Generator().manual_seed(0))
    positions = torch.cat([torch.arange(5), torch.arange(7)])[None]
    with torch.no_grad():
        packed = loaded(ids, position_ids=positions, use_cache=False).logits
        alone = [dense(part, attention_mask=pattern.mask(part.shape[1])[None, None]).logits
                 for part in ids.split([5, 7], 1)]
    torch.testing.assert_close(packed, torch.cat(alone, 1), atol=2e-5, rtol=1e-4)


def test_gradients(tmp_path, shake):
    dense, loaded = build(DECODERS["gpt2"], {"sliding_window": 4}, tmp_path, shake, "sliding", None)
    ids = torch.randint(2, VOCABULARY, (2, N), generator=torch.Generator().manual_seed(0))
    dense(ids, attention_mask=SlidingWindow(4).mask(N).expand(2, 1, N, N), labels=ids).loss.backward()
    loaded.train()(ids, labels=ids).loss.backward()
    found = dict(loaded.named_parameters())
    for name, parameter in dense.named_parameters():
        torch.testing.assert_close(found[name].grad, parameter.grad, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(("name", "settings", "pattern"), [
    ("sliding", {"sliding_window": 4}, SlidingWindow(4, causal=False)),
    ("sliding", {"sliding_window": 4, "sliding_dilation": 2}, SlidingWindow(4, 2, causal=False)),
    ("global", {"global_positions": [0, 3]}, Global([0, 3]))])
def test_encoder(name, settings, pattern, tmp_path, shake):
    shape = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2,
             "max_position_embeddings": 40}
    dense, loaded = build((RobertaForMaskedLM, RobertaConfig, shape), settings, tmp_path, shake, name, pattern)
    ids = torch.randint(2, VOCABULARY, (2, N), generator=torch.Generator().manual_seed(0))
    real = torch.ones(2, N, dtype=torch.bool)
    real[1, 15:] = False
    with torch.no_grad():
        want = dense(ids, attention_mask=pattern.mask(N).expand(2, 1, N, N)).logits
        torch.testing.assert_close(loaded(ids).logits, want, atol=2e-5, rtol=1e-4)
        want = dense(ids, attention_mask=pattern.mask(N) & real[:, None, None]).logits
        found = loaded(ids, attention_mask=real.long()).logits
    torch.testing.assert_close(found[real], want[real], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("n_target", [7, N])
def test_encoder_decoder(n_target, tmp_path, shake):
    shape = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
             "encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 60,
             "decoder_start_token_id": 2, "forced_eos_token_id": None}
    settings = {"sliding_window": 4, "sliding_dilation": 2}
    dense, loaded = build((BartForConditionalGeneration, BartConfig, shape), settings, tmp_path, shake, "sliding", None)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, VOCABULARY, (2, N), generator=generator)
    target = torch.cat([torch.full((2, 1), 2), torch.randint(2, VOCABULARY, (2, n_target - 1), generator=generator)], 1)
    real = torch.ones(2, N, dtype=torch.bool)
    real[1, 15:] = False

    def by_hand(target):
        both_ways = SlidingWindow(4, 2, causal=False).mask(N) & real[:, None, None]
        read = dense.model.encoder(ids, attention_mask=both_ways)
        n = target.shape[1]
        back = SlidingWindow(4, 2).mask(n).expand(2, 1, n, n)
        return dense(encoder_outputs=read, attention_mask=real.long(), decoder_input_ids=target,
                     decoder_attention_mask=back, use_cache=False).logits

    with torch.no_grad():
        found = loaded(ids, attention_mask=real.long(), decoder_input_ids=target).logits
        torch.testing.assert_close(found, by_hand(target), atol=2e-5, rtol=1e-4)
        found = loaded.generate(ids, attention_mask=real.long(), decoder_input_ids=target, max_new_tokens=8,
                                do_sample=False, num_beams=1, output_logits=True, return_dict_in_generate=True)
        for step in range(8):
            want = by_hand(found.sequences[:, :n_target + step])[:, -1]
            torch.testing.assert_close(found.logits[step], want, atol=2e-5, rtol=1e-4)
            assert torch.equal(found.sequences[:, n_target + step], want.argmax(-1))


def test_a_decoder_that_does_not_say_that_it_is_causal(shake):
    """In PEGASUS-X all its layers are marked alike, with keys of the text itself or of an encoder; here as many."""
    model = shake(PegasusXForConditionalGeneration(PegasusXConfig(
        encoder_layers=1, decoder_layers=2, d_model=16, encoder_ffn_dim=24, decoder_ffn_dim=24, sliding_window=4,
        encoder_attention_heads=2, decoder_attention_heads=2, vocab_size=VOCABULARY, block_size=4,
        num_global_tokens=2, forced_eos_token_id=None, attn_implementation="eager"))).eval()
    ids, target = torch.randint(2, VOCABULARY, (2, 2, N), generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(2, 1, N, N).masked_fill(~SlidingWindow(4).mask(N), torch.finfo().min)
    want = read_aloud(model, ids, decoder_input_ids=target, decoder_attention_mask=mask, use_cache=False)
    with_window(model)
    torch.testing.assert_close(read_aloud(model, ids, decoder_input_ids=target), want, atol=2e-5, rtol=1e-4)
    compiled = torch.compile(model.model.decoder, backend="aot_eager", fullgraph=True)
    read = model.model.encoder(ids).last_hidden_state
    with torch.no_grad():
        found = compiled(target, encoder_hidden_states=read, use_cache=False).last_hidden_state
        torch.testing.assert_close(model.lm_head(found), want, atol=2e-5, rtol=1e-4)
    written = model.generate(ids, decoder_input_ids=target[:, :5], max_new_tokens=8, do_sample=False, num_beams=1,
                             output_logits=True, return_dict_in_generate=True)
    whole = read_aloud(model, ids, decoder_input_ids=written.sequences[:, :-1])[:, -8:]
    torch.testing.assert_close(torch.stack(written.logits, 1), whole, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_that_makes_its_own_padding_mask(compiled, shake):
    """LayoutLM hands its layers (B, 1, 1, N); a user's (B, 1, N, N) still takes the place of the window."""
    if tuple(map(int, version("transformers").split(".")[:2])) < (5, 23):
        pytest.skip("in this version LayoutLM computes its attention by itself and is refused")
    config = LayoutLMConfig(num_hidden_layers=1, hidden_size=16, num_attention_heads=2, intermediate_size=24,
                            vocab_size=VOCABULARY, max_position_embeddings=40, max_2d_position_embeddings=9,
                            sliding_window=4, attn_implementation="eager")
    model = shake(LayoutLMForMaskedLM(config)).eval()
    ids, real = torch.randint(2, VOCABULARY, (2, N)), torch.ones(2, N, dtype=torch.long)
    real[1, 15:] = 0
    mask = SlidingWindow(4, causal=False).mask(N) & real[:, None, None].bool()
    layer, masks = model.layoutlm.encoder.layer[0].attention.self, []
    layer.register_forward_pre_hook(lambda module, inputs, named: (
        inputs, named | ({"attention_mask": masks[0]} if masks else {})), with_kwargs=True)
    masks.append(torch.zeros(2, 1, N, N).masked_fill(~mask, torch.finfo().min))
    want = read_aloud(model, ids, attention_mask=real)[real.bool()]
    with_window(model)
    torch.testing.assert_close(read_aloud(model, ids)[real.bool()], want, atol=2e-5, rtol=1e-4)
    read = torch.compile(model, backend="eager") if compiled else model
    masks[0] = torch.full((2, 1, 1, N), -0.5)
    with pytest.raises(ReproError, match="LayoutLMSelfAttention adds a bias per key to its scores"):
        read_aloud(read, ids)
    masks.clear()
    torch.testing.assert_close(read_aloud(read, ids, attention_mask=real)[real.bool()], want, atol=2e-5, rtol=1e-4)


class Checks(TorchDispatchMode):
    """Counts the checks of masks for added biases."""

    n = 0

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        self.n += operation is torch.ops.repro.real_keys.default
        return operation(*arguments, **named or {})


def test_layers_share_one_check_of_their_mask_until_it_changes():
    """The check waits for a GPU, so that one per layer would slow every step."""
    query, mask = torch.randn(2, 1, N, 4), torch.zeros(2, 1, 1, N)
    layer = torch.nn.Identity()
    mask[1, ..., 15:] = torch.finfo().min
    with Checks() as checks:
        first, again = (_of_padding(mask, "repro_sliding", layer, query, query) for _ in range(2))
        assert checks.n == 1 and torch.equal(first, again)
        assert torch.equal(first[:, 0, 0, N:] >= 0, mask[:, 0, 0] == 0)
        mask[0, ..., 3] = torch.finfo().min
        changed = _of_padding(mask, "repro_sliding", layer, query, query)
        assert checks.n == 2 and torch.equal(changed[:, 0, 0, N:] >= 0, mask[:, 0, 0] == 0)
        mask[0, ..., 4] = -0.5
        with pytest.raises(ReproError, match="Identity adds a bias per key"):
            _of_padding(mask, "repro_sliding", layer, query, query)


def test_full_encoder_stays_full(tmp_path, shake):
    shape = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2}
    dense, loaded = build((RobertaForMaskedLM, RobertaConfig, shape), {}, tmp_path, shake, "full", Full())
    ids = torch.arange(2, 2 + N)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, dense(ids).logits, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "settings", "said"), [
    ("sliding", {}, "sliding_window is missing in the config"),
    ("sliding", {"sliding_window": 0}, "window is 0 keys"),
    ("sliding", {"sliding_window": 4.5}, "window is 4.5 keys; .* a whole number"),
    ("global", {"global_positions": 3}, "positions are 3; give whole numbers"),
    ("sliding", {"sliding_window": 4, "sliding_dilation": 0}, "dilation is 0"),
    ("fixed", {"fixed_stride": 4}, "fixed_summary is missing"),
    ("global", {"global_positions": [N]}, f"positions name {N}"),
])
def test_bad_settings(name, settings, said, tiny_gpt2):
    model = tiny_gpt2(n_positions=N, **settings)
    model.set_attn_implementation(f"repro_{name}")
    with pytest.raises(ReproError, match=said):
        model(torch.zeros(1, N, dtype=torch.long))


def test_odd_window_in_an_encoder(shake):
    config = RobertaConfig(num_hidden_layers=1, hidden_size=16, num_attention_heads=2, vocab_size=VOCABULARY,
                           intermediate_size=8, sliding_window=5, attn_implementation="repro_sliding")
    with pytest.raises(ReproError, match="window is 5; .* must be even"):
        RobertaForMaskedLM(config).eval()(torch.arange(2, 9)[None])


def test_dropout_of_weights(tiny_gpt2):
    """A model in training drops weights, as the seed says; on average it does what it does without."""
    model = tiny_gpt2(n_layer=1, attn_pdrop=0.3, sliding_window=4, dtype=torch.float64)
    model.set_attn_implementation("repro_sliding")
    ids, heard = torch.arange(9)[None], []
    model.transformer.h[0].attn.register_forward_hook(lambda module, inputs, out: heard.append(out[0].detach()))
    for seed in 0, 0, *range(150):
        torch.manual_seed(seed)
        model.train()(ids)
    model.eval()(ids)
    assert torch.equal(heard[0], heard[1]) and not torch.equal(heard[0], heard[3])
    trained, read = torch.stack(heard[2:-1]), heard[-1]
    error = trained.std(0) / 150**0.5
    assert (error > 1e-3).any() and ((trained.mean(0) - read).abs() < 5 * error + 1e-9).all()


def tiny_roberta(**settings):
    return RobertaForMaskedLM(RobertaConfig(num_hidden_layers=1, hidden_size=16, num_attention_heads=2, pad_token_id=1,
                                            vocab_size=VOCABULARY, intermediate_size=8, max_position_embeddings=12,
                                            sliding_window=4, attn_implementation="repro_sliding", **settings)).eval()


def with_window(model):
    model.set_attn_implementation("repro_sliding")
    return model.eval()


def test_a_text_beyond_the_positions_of_gpt2(tiny_gpt2):
    model = with_window(tiny_gpt2(n_positions=10, sliding_window=4))
    assert model(torch.zeros(1, 10, dtype=torch.long)).logits.shape[1] == 10
    for read in (model, model.transformer):
        with pytest.raises(ReproError, match="has 11 tokens, but this GPT2Model has 10 learned .* at most 10 tokens"):
            read(torch.zeros(1, 11, dtype=torch.long))
        with pytest.raises(ReproError, match="has 11 tokens"):
            read(inputs_embeds=torch.zeros(1, 11, model.config.n_embd))
    model.set_attn_implementation("sdpa")
    with pytest.raises(ReproError, match="has 11 tokens"):  # whoever asked once is told in our words
        model(torch.zeros(1, 11, dtype=torch.long))


def test_a_text_beyond_the_positions_of_a_model_that_is_loaded(tiny_gpt2, tmp_path):
    tiny_gpt2(n_positions=10, sliding_window=4).save_pretrained(tmp_path)
    model = GPT2LMHeadModel.from_pretrained(tmp_path, attn_implementation="repro_sliding")
    with pytest.raises(ReproError, match="has 11 tokens"):
        model(torch.zeros(1, 11, dtype=torch.long))
    assert list(model.state_dict()) == list(tiny_gpt2(n_positions=10).state_dict())


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_ends_where_the_positions_end(cache, tiny_gpt2):
    model = with_window(tiny_gpt2(n_positions=10, sliding_window=4))
    start = torch.zeros(1, 8, dtype=torch.long)
    settings = {"do_sample": False, "cache_implementation": cache}
    assert model.generate(start, max_new_tokens=3, **settings).shape[1] == 11  # the last one is not read
    with pytest.raises(ReproError, match=r"has 11 tokens \(10 of them in the cache\), but this GPT2Model"):
        model.generate(start, max_new_tokens=4, **settings)


def test_padding_takes_no_position_in_generation(tiny_gpt2):
    model = with_window(tiny_gpt2(n_positions=10, sliding_window=4))
    real = torch.tensor([[0] * 5 + [1] * 5])
    found = model.generate(torch.zeros(1, 10, dtype=torch.long), attention_mask=real, max_new_tokens=6, do_sample=False)
    assert found.shape[1] == 16
    with pytest.raises(ReproError, match="has 11 tokens"):
        model.generate(torch.zeros(1, 10, dtype=torch.long), attention_mask=real, max_new_tokens=7, do_sample=False)


@pytest.mark.parametrize(("name", "settings"), [
    ("block_local", {"block_local_block": 4}), ("fixed", {"fixed_stride": 4, "fixed_summary": 1}),
    ("global", {"global_positions": (0,)}), ("strided", {"strided_stride": 3}), ("sliding", {"sliding_window": 3})])
def test_padding_in_front_never_moves_a_pattern(name, settings, tiny_gpt2):
    """Whoever counts positions from the start of a row refuses it; who asks for distances reads the text as alone."""
    model = tiny_gpt2(n_positions=20, **settings)
    model.set_attn_implementation(f"repro_{name}")
    ids = torch.randint(2, 20, (1, 9), generator=torch.Generator().manual_seed(0))
    longer = torch.cat([ids.new_zeros(1, 3), ids], 1)
    real, places = (longer.new_tensor([row]) for row in ([0] * 3 + [1] * 9, [0] * 3 + [*range(9)]))
    with torch.no_grad():
        alone = model.eval()(ids).logits
        behind = model(torch.cat([ids, ids.new_zeros(1, 3)], 1), attention_mask=real.flip(1)).logits[:, :9]
        torch.testing.assert_close(behind, alone, atol=1e-5, rtol=1e-4)
        if name in ("sliding", "strided"):
            found = model(longer, attention_mask=real, position_ids=places).logits[:, 3:]
            torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-4)
        else:
            with pytest.raises(ReproError, match="a row begins with padding.*pad on the right"):
                model(longer, attention_mask=real, position_ids=places)


def test_a_model_with_attention_of_its_own_is_left_alone(tiny_recurrent):
    """The recurrent model's attention has a name that begins like ours."""
    model = tiny_recurrent()
    assert not hasattr(model.config, "attn_implementation") and not model._forward_pre_hooks


def test_a_text_beyond_the_positions_of_roberta():
    model = tiny_roberta()
    ids = torch.full((2, 10), 5)
    assert model(ids).logits.shape[1] == 10
    longer = torch.cat([ids, ids[:, :1]], 1)
    with pytest.raises(ReproError, match="has 11 tokens, but this RobertaModel has 10 learned positions"):
        model(longer)
    with pytest.raises(ReproError, match="has 11 tokens"):
        model(inputs_embeds=torch.zeros(1, 11, 16))
    longer[:, 3] = 1  # padding has no position of its own
    assert model(longer, attention_mask=(longer != 1).long()).logits.shape[1] == 11
    assert model(ids, position_ids=torch.arange(2, 12)[None].expand(2, -1)).logits.shape[1] == 10


def test_positions_of_a_decoder_of_robertas_kind():
    model = tiny_roberta(is_decoder=True)
    cache = DynamicCache(config=model.config)
    model(torch.full((1, 7), 5), **cache_argument(cache), use_cache=True)
    with pytest.raises(ReproError, match=r"has 11 tokens \(7 of them in the cache\)"):
        model(torch.full((1, 4), 5), **cache_argument(cache), use_cache=True)


def test_a_text_beyond_the_positions_of_bart():
    config = BartConfig(encoder_layers=1, decoder_layers=1, d_model=16, encoder_ffn_dim=8, decoder_ffn_dim=8,
                        encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=10,
                        vocab_size=VOCABULARY, sliding_window=4, attn_implementation="repro_sliding")
    model, ids = BartForConditionalGeneration(config).eval(), torch.full((1, 11), 5)
    assert model(ids[:, :10], decoder_input_ids=ids[:, :10]).logits.shape[1] == 10
    with pytest.raises(ReproError, match="this BartEncoder has 10 learned positions"):
        model(ids, decoder_input_ids=ids[:, :10])
    with pytest.raises(ReproError, match="this BartDecoder has 10 learned positions"):
        model(ids[:, :10], decoder_input_ids=ids)


def test_positions_that_a_short_text_names(tiny_gpt2):
    model, ids = with_window(tiny_gpt2(n_positions=10, sliding_window=4)), torch.zeros(1, 3, dtype=torch.long)
    assert model(ids, position_ids=torch.tensor([[7, 8, 9]])).logits.shape[1] == 3
    with pytest.raises(ReproError, match="position_ids reach 11 positions, but this GPT2Model has 10 learned p"):
        model(ids, position_ids=torch.tensor([[8, 9, 10]]))


def test_a_compiled_model_tells_of_a_text_beyond_its_positions(tiny_gpt2):
    """Of a padded one it knows too little: there RoBERTa's padding takes no position."""
    torch.compiler.reset()
    model = torch.compile(with_window(tiny_gpt2(n_layer=1, n_positions=10, sliding_window=4)), backend="eager")
    assert model(torch.zeros(1, 10, dtype=torch.long), use_cache=False).logits.shape[1] == 10
    with pytest.raises(ReproError, match="has 11 tokens, but this GPT2Model has 10 learned positions"):
        model(torch.zeros(1, 11, dtype=torch.long), use_cache=False)
    padded = torch.tensor([[5] * 10 + [1]])
    model = torch.compile(tiny_roberta(), backend="eager", fullgraph=True)
    assert model(padded, attention_mask=(padded != 1).long()).logits.shape[1] == 11


def test_rotary_positions_have_no_end():
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, hidden_size=16, intermediate_size=8, vocab_size=9,
                                         num_attention_heads=2, max_position_embeddings=10, sliding_window=4,
                                         attn_implementation="repro_sliding")).eval()
    assert model(torch.zeros(1, 30, dtype=torch.long)).logits.shape[1] == 30


def read_aloud(model, ids, **settings):
    with torch.no_grad():
        return model(ids, **settings).logits


def test_no_global_positions(tiny_gpt2):
    """An empty list is no global tokens: everybody's attention is nothing, and the model still reads."""
    model, ids = tiny_gpt2(global_positions=[]), torch.arange(9)[None]
    model.set_attn_implementation("repro_global")
    want = read_aloud(tiny_gpt2(), ids, attention_mask=torch.zeros(1, 1, 9, 9, dtype=torch.bool))
    torch.testing.assert_close(read_aloud(model, ids), want)


@pytest.mark.parametrize("name", ["repro_sliding", "mine"])
def test_a_saved_model_comes_back_with_its_attention(name, tiny_gpt2, tmp_path):
    register("mine", SlidingWindow(2) | Strided(5))
    model, ids = tiny_gpt2(sliding_window=4), torch.arange(16)[None]
    full = read_aloud(model, ids)
    model.set_attn_implementation(name)
    want = read_aloud(model, ids)
    assert (want - full).abs().max() > 1e-2
    for _ in range(2):  # a saved model that was loaded can be saved as well
        model.save_pretrained(tmp_path)
        model = GPT2LMHeadModel.from_pretrained(tmp_path)
        assert torch.equal(read_aloud(model, ids), want)
    asked = GPT2LMHeadModel.from_pretrained(tmp_path, attn_implementation="sdpa")
    model.set_attn_implementation("sdpa")
    for one in asked, model:
        torch.testing.assert_close(read_aloud(one, ids), full)
        one.save_pretrained(tmp_path / "full")
        torch.testing.assert_close(read_aloud(GPT2LMHeadModel.from_pretrained(tmp_path / "full"), ids), full)


def test_the_text_model_inside_another_comes_back_with_its_attention(shake, tmp_path):
    """Its own attention, beside another one for images; and the usual one where that is asked for."""
    text = LlamaConfig(**DECODERS["llama"][2], vocab_size=VOCABULARY, sliding_window=4)
    images = CLIPVisionConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                              image_size=8, patch_size=4)
    config = LlavaConfig(text_config=text, vision_config=images, image_token_index=30,
                         attn_implementation={"text_config": "repro_sliding", "vision_config": "sdpa"})
    model, ids = shake(LlavaForConditionalGeneration(config)).eval(), torch.arange(16)[None]
    model.save_pretrained(tmp_path)
    again, full = (LlavaForConditionalGeneration.from_pretrained(tmp_path, **settings).eval()
                   for settings in ({}, {"attn_implementation": "sdpa"}))
    assert torch.equal(read_aloud(again, ids), read_aloud(model, ids))
    assert [one._attn_implementation for one in (again.config.text_config, again.config.vision_config)] == [
        "repro_sliding", "sdpa"]
    assert (read_aloud(full, ids) - read_aloud(model, ids)).abs().max() > 1e-2


def test_loading_an_attention_that_is_not_registered(tiny_gpt2, tmp_path):
    model = with_window(tiny_gpt2(sliding_window=4))
    model.save_pretrained(tmp_path)
    config = (tmp_path / "config.json").read_text()
    assert config.count("repro_sliding") == 2
    (tmp_path / "config.json").write_text(config.replace("repro_sliding", "repro_of_later"))
    with pytest.raises(ValueError, match="repro_of_later"):
        GPT2LMHeadModel.from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", [*DECODERS, "roberta"])
def test_probabilities(kind, shake, monkeypatch):
    """output_attentions gives what eager attention gives under the same mask."""
    model_class, config_class, shape = DECODERS.get(kind) or (RobertaForMaskedLM, RobertaConfig, {
        "num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2})
    model = shake(model_class(config_class(**shape, vocab_size=VOCABULARY, sliding_window=4,
                                           attn_implementation="eager"))).eval()
    ids, causal = torch.arange(2, 2 + 12)[None], kind != "roberta"
    mask = torch.zeros(1, 1, 12, 12).masked_fill(~SlidingWindow(4, causal=causal).mask(12), torch.finfo().min)
    with torch.no_grad():
        want = model(ids, attention_mask=mask, output_attentions=True).attentions
        model.set_attn_implementation("repro_sliding")
        found = model(ids, output_attentions=True).attentions
    assert len(found) == len(want) == 2
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other)
    monkeypatch.setattr("repro.attention.registration.LONGEST", 11)
    with pytest.raises(ReproError, match="output_attentions asks for 12 x 12 probabilities a head; .* at most 11 keys"):
        model(ids, output_attentions=True)


@pytest.mark.parametrize("kind", DECODERS)
def test_probabilities_that_the_config_asks_for(kind, shake):
    """The config alone suffices, and the gradient of the output is what it is for the probabilities of eager attention:
    transformers' own tests ask for both."""
    model_class, config_class, shape = DECODERS[kind]
    config = config_class(**shape, vocab_size=VOCABULARY, attn_implementation="eager")
    model = shake(model_class(config)).double().eval()
    model.config.output_attentions = True
    found = []
    for name in "eager", "repro_full":
        model.set_attn_implementation(name)
        outputs = model(torch.arange(2, 2 + 9)[None])
        grads = torch.autograd.grad(outputs.logits.square().sum(), outputs.attentions)
        found.append([outputs.logits, *outputs.attentions, *grads])
    assert len(found[0]) == len(found[1]) == 5 and all(grad.any() for grad in grads)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)  # Llama's own softmax is in float32


def test_a_pattern_of_ones_own(tiny_gpt2, shake):
    """One for all, one for each head, and a window that grows from layer to layer."""
    ids = torch.arange(16)[None]
    register("everywhere", SlidingWindow(6, causal=False) | Global([2]))
    register("by_head", [SlidingWindow(2), SlidingWindow(3, 3)])
    register("by_layer", lambda config, layer: SlidingWindow(config.grows * (layer + 1)))
    one = (SlidingWindow(6, causal=False) | Global([2])).mask(16).tril()
    masks = {"everywhere": [one.expand(1, 1, -1, -1)] * 3,
             "by_head": [torch.stack([SlidingWindow(2).mask(16), SlidingWindow(3, 3).mask(16)])[None]] * 3,
             "by_layer": [SlidingWindow(2 * k).mask(16).expand(1, 1, -1, -1) for k in (1, 2, 3)]}
    for name, per_layer in masks.items():
        model, by_hand = tiny_gpt2(grows=2), tiny_gpt2()
        model.set_attn_implementation(name)
        for layer, mask in zip(by_hand.transformer.h, per_layer, strict=True):
            layer.attn.register_forward_pre_hook(
                lambda module, inputs, named, mask=mask: (inputs, {**named, "attention_mask": mask}), with_kwargs=True)
        torch.testing.assert_close(read_aloud(model, ids), read_aloud(by_hand, ids))
        whole = model.generate(ids[:, :6], max_new_tokens=8, do_sample=False, output_logits=True,
                               return_dict_in_generate=True)
        again = read_aloud(model, whole.sequences[:, :-1])[:, 5:]
        torch.testing.assert_close(torch.stack(whole.logits, 1), again, atol=2e-5, rtol=1e-4)


def test_a_prefix_is_read_both_ways(tiny_gpt2):
    register("question_first", Prefix(5) | Causal())
    model, ids = tiny_gpt2(), torch.arange(12)[None]
    want = read_aloud(model, ids, attention_mask=(Prefix(5) | Causal()).mask(12)[None, None])
    model.set_attn_implementation("question_first")
    torch.testing.assert_close(read_aloud(model, ids), want)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_prefix_that_a_cache_has_read_in_part(cache, tiny_gpt2):
    """Its beginning did not see its end: refused, unless everything is read anew, or the prefix is causal."""
    register("question_first", Prefix(5) | Causal())
    register("sinks", Prefix(5) & Causal() | SlidingWindow(2))
    model, ids = tiny_gpt2(), torch.arange(6)[None]
    model.set_attn_implementation("question_first")
    settings = {"max_new_tokens": 3, "do_sample": False}
    with pytest.raises(ReproError, match=r"under Prefix\(n=5\) \| Causal.* position 3 sees position 4, but was read "):
        model.generate(ids[:, :4], cache_implementation=cache, **settings)
    assert model.generate(ids[:, :4], use_cache=False, **settings).shape[1] == 7
    assert model.generate(ids[:, :5], cache_implementation=cache, **settings).shape[1] == 8
    model.set_attn_implementation("sinks")
    assert model.generate(ids[:, :4], cache_implementation=cache, **settings).shape[1] == 7


@pytest.mark.parametrize(("arguments", "said"), [
    (("mine",), "name is 'mine' and pattern is None; give both"),
    (("repro_mine", SlidingWindow(2)), "the name must be new and not start with repro_"),
    (("sdpa", SlidingWindow(2)), "name is 'sdpa', .* the name must be new"),
    (("mine", "window"), "pattern 'window'; the name must be new"),
    (("mine", SlidingWindow), "pattern <class .*SlidingWindow'>; the name must be new"),
    (("mine", []), r"pattern \[\]; the name must be new"),
    (("mine", [SlidingWindow(2), "full"]), r"'full'\]; the name must be new"),
    (("mine", 3), "pattern 3; .* the pattern be a Pattern, one for each head, or a function"),
])
def test_bad_registrations(arguments, said):
    with pytest.raises(ReproError, match=said):
        register(*arguments)


@pytest.mark.parametrize(("pattern", "said"), [
    ([SlidingWindow(2)] * 3, "pattern names 3 patterns, but there are 2 heads"),
    (lambda config, layer: [SlidingWindow(2)][layer], "gives layer 1 no pattern: list index out of range"),
    (lambda config, layer: None, "gives layer 0 None; it has to give a Pattern, or one for each head"),
    (lambda config, layer: ["full"], r"gives layer 0 \['full'\]; it has to give"),
])
def test_patterns_that_do_not_fit_the_model(pattern, said, tiny_gpt2):
    register("unfit", pattern)
    model = tiny_gpt2()
    model.set_attn_implementation("unfit")
    with pytest.raises(ReproError, match=said):
        model(torch.zeros(1, 5, dtype=torch.long))


class Graphs:
    """A backend of torch.compile that counts graphs and remembers what they compute."""

    def __init__(self):
        self.count, self.operations, self.shapes = 0, [], []

    def __call__(self, graph, inputs):
        from torch._dynamo.backends.debugging import aot_eager

        self.count += 1
        for node in graph.graph.nodes:
            self.operations.append(str(node.target))
            value = node.meta.get("example_value")
            self.shapes += [tuple(value.shape)] if isinstance(value, torch.Tensor) else []
        return aot_eager(graph, inputs)


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_compiled(kind, shake):
    """One graph that calls our attention, without a mask of N x N; with the numbers of the model as it is."""
    n, (model_class, config_class, shape) = 29, DECODERS[kind]
    model = shake(model_class(config_class(**shape, vocab_size=VOCABULARY, sliding_window=4,
                                           attn_implementation="repro_sliding")))
    ids = torch.randint(2, VOCABULARY, (2, n), generator=torch.Generator().manual_seed(0))
    want = model(ids, labels=ids, use_cache=False)
    want.loss.backward()
    expected = {name: weights.grad.clone() for name, weights in model.named_parameters()}
    model.zero_grad()
    graphs = Graphs()
    found = torch.compile(model, backend=graphs, fullgraph=True)(ids, labels=ids, use_cache=False)
    found.loss.backward()
    torch.testing.assert_close(found.logits, want.logits)
    for name, weights in model.named_parameters():
        torch.testing.assert_close(weights.grad, expected[name], atol=1e-5, rtol=1e-4)
    assert graphs.count == 1 and sum("repro" in one and "attend" in one for one in graphs.operations) == 2
    assert not [shape for shape in graphs.shapes if shape.count(n) > 1]
    positions = torch.cat([torch.arange(9), torch.arange(20)])[None].expand(2, -1)
    packed = read_aloud(model.eval(), ids, position_ids=positions, use_cache=False)
    again = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(read_aloud(again, ids, position_ids=positions, use_cache=False), packed)
    assert (packed[:, 9:] - read_aloud(model, ids)[:, 9:]).abs().max() > 1e-2


def test_a_compiled_pattern_of_ones_own_is_never_stale(tiny_gpt2):
    """Other values in the config, and the name given again, count as they do without compilation."""
    torch.compiler.reset()
    register("grows", lambda config, layer: SlidingWindow(config.grows[layer] + config.more))
    model, ids, seen = tiny_gpt2(n_layer=1, grows=[1], more=1), torch.arange(16)[None], []
    model.set_attn_implementation("grows")
    compiled = torch.compile(model, backend="eager", fullgraph=True)

    def agree():
        seen.append(read_aloud(compiled, ids, use_cache=False))
        torch.testing.assert_close(seen[-1], read_aloud(model, ids, use_cache=False))

    agree()
    model.config.more = 3
    agree()
    model.config.grows[0] = 7
    agree()
    register("grows", SlidingWindow(2))
    agree()
    assert min((one - other).abs().max() for one, other in zip(seen, seen[1:], strict=False)) > 1e-2
