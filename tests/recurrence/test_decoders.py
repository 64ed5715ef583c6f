"""The recurrence module in decoders of transformers: h_prev as one token more in front of a layer."""

import copy

import pytest
import torch
from tiny_decoders import FAMILIES, SIZES, config, plain_class, text
from torch import nn

from repro.errors import ReproError
from repro.evaluation import perplexity
from repro.models import load_causal_lm, save_causal_lm
from repro.recurrence import MaskedOut, RecurrenceConfig, RecurrentLM
from repro.recurrence.memories import complete
from repro.recurrence.windowed import WindowByWindow
from repro.windows import windows

SETTINGS = [{}, {"insert_layer": 0}, {"insert_layer": 2, "residual": True},
            {"insert_layer": 2, "residual": True, "normalize": True}, {"n_embeddings": 2}, {"insert": "every"}]


OTHERS = {"olmo2": {}, "stablelm": {}, "phi3": {}, "glm": {}, "gpt_neox": {}, "ministral3": {"rope_parameters": {
    "rope_type": "default", "rope_theta": 1e4, "llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 4}}}
TABLES = {"opt": {"ffn_dim": 24, "word_embed_proj_dim": 16}, "gpt_bigcode": {}}  # with a table of position embeddings


@pytest.fixture
def folder(tmp_path):
    """The folder of a tiny decoder: (family, **config changes)."""
    def make(family, **changes):
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.manual_seed(0)
        config = AutoConfig.for_model(family, **SIZES | FAMILIES.get(family, {}) | changes)
        model = AutoModelForCausalLM.from_config(config)
        for weight in model.parameters():
            nn.init.normal_(weight, std=0.3) if weight.ndim > 1 else nn.init.normal_(weight, 1.0, 0.1)
        model.save_pretrained(tmp_path / family)
        return tmp_path / family
    return make


@pytest.fixture
def recurrent(folder):
    """A tiny decoder with random module: (family, config changes, **recurrence settings)."""
    def make(family, changes=None, dtype=torch.float64, **settings):
        model = RecurrentLM.from_pretrained(folder(family, **changes or {}),
                                            RecurrenceConfig(**{"hidden_size": 8} | settings))
        torch.manual_seed(1)
        for weight in model.recurrence.parameters():
            nn.init.normal_(weight, std=0.4)
        return model.to(dtype)
    return make


def by_hand(model, ids, window, overlap):
    """Logits (B, N, V) by transformers alone: h_prev goes through the whole layer as a token of a longer text, whose
    rotary positions begin below 0, with explicit masks."""
    config, settings = model.config, model.recurrence.config
    base, n_open = model.base_model, model.n_opening
    z, start, logits = None, 0, []
    while start < ids.shape[1]:
        part = ids[:, start:start + window]
        if n_open:
            part = nn.functional.pad(part, (1, 0), value=config.opening_token)
        h_prev = None if z is None else model.recurrence(*z)
        n, length = 0 if h_prev is None else h_prev.shape[1], part.shape[1]
        hidden, pooled, layer_input = base.get_input_embeddings()(part), [], None
        for index, layer in enumerate(base.layers):
            sees = n and (settings.insert == "every" or index == settings.insert_layer)
            if settings.residual and index == settings.insert_layer:
                layer_input = hidden[:, n_open:].mean(1)
            e = n if sees else 0
            positions = torch.arange(-e, length)[None]
            kind = config.layer_types[index] if getattr(config, "layer_types", None) else None
            rotated = base.rotary_emb(hidden, positions, kind) if config.model_type == "gemma3_text" else (
                base.rotary_emb(hidden, positions))
            i, j = positions[0][:, None], positions[0][None]
            seen = j <= i
            sliding = config.model_type == "mistral" or kind == "sliding_attention" and config.model_type != "qwen2"
            if sliding:
                seen = seen & ((i - j < config.sliding_window) | (j < 0))
            if sees:
                hidden = torch.cat([h_prev, hidden], 1)
            hidden = layer(hidden, attention_mask=seen[None, None], position_embeddings=rotated,
                           position_ids=positions.clamp(min=0))
            hidden = (hidden if isinstance(hidden, torch.Tensor) else hidden[0])[:, e:]
            pooled.append(hidden[:, n_open:].mean(1))
        hidden = (base.final_layer_norm if config.model_type == "gpt_neox" else base.norm)(hidden)[:, n_open:]
        pooled[-1] = hidden.mean(1)
        if settings.normalize:
            pooled = [one / one.square().mean(-1, keepdim=True).sqrt() for one in pooled]
        z = sum(w * one for w, one in zip(model.recurrence.layer_weights, pooled, strict=True)),
        z += (layer_input,) if settings.residual else ()
        logits.append(model.get_output_embeddings()(hidden[:, 0 if start == 0 else overlap:]))
        start += window - overlap
        if start + overlap >= ids.shape[1]:
            break
    return torch.cat(logits, 1)


@pytest.mark.parametrize("opening", [None, 1])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_equal_a_reading_by_hand(recurrent, family, settings, opening):
    model, ids = recurrent(family, {"opening_token": opening} if opening else {}, **settings), text(19)
    aim = torch.randn(2, 19, 29, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    out = model(ids, window=8, overlap=3).logits
    expected = by_hand(model, ids, 8, 3)
    torch.testing.assert_close(out, expected, rtol=1e-7, atol=1e-7)
    weights = list(model.parameters())
    found, wanted = (torch.autograd.grad((one * aim).sum(), weights) for one in (out, expected))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6 * b.abs().max().item())
    assert min(gradient.abs().max() for gradient in wanted) > 1e-7


@pytest.mark.parametrize("settings", [{"insert_layer": 2, "residual": True}, {"insert": "every", "n_embeddings": 2}])
@pytest.mark.parametrize("family", OTHERS)  # whose layers are not known inside
def test_other_families_equal_a_reading_by_hand(recurrent, family, settings):
    model, ids = recurrent(family, OTHERS[family] | {"opening_token": 1}, **settings), text(19)
    out, expected = model(ids, window=8, overlap=3).logits, by_hand(model, ids, 8, 3)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)
    with torch.no_grad():
        _, z = model._read_window(ids[:, :6], None, 4)
        cached, again = model._reader(z, 4), WindowByWindow._reader(model, z, 4)
        for n in (3, 4, 6):
            torch.testing.assert_close(cached(ids[:, :n]), again(ids[:, :n]), rtol=1e-6, atol=1e-6)
    made = model.generate(ids, 6, window=6, overlap=2)
    for n in range(19, 25):
        with torch.no_grad():
            best = model(made[:, :n], window=6, overlap=2).logits[:, -1].argmax(-1)
        assert (made[:, n] == best).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_first_window_is_the_plain_model_and_masking_gives_it_everywhere(recurrent, family):
    from transformers import AutoModelForCausalLM

    model, ids = recurrent(family), text(16)
    plain = AutoModelForCausalLM.from_config(copy.deepcopy(model.config), attn_implementation="sdpa").double().eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        logits, masked = model(ids, window=8).logits, MaskedOut(model)(ids[:, 8:])
        torch.testing.assert_close(logits[:, :8], plain(ids[:, :8]).logits, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(masked, plain(ids[:, 8:]).logits, rtol=1e-7, atol=1e-7)
    assert (logits[:, 8:] - masked).abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_no_later_token_is_seen(recurrent, family):
    model, ids = recurrent(family), text(20)
    other = ids.clone()
    other[:, 13] = (other[:, 13] - 2) % 26 + 3
    with torch.no_grad():
        a, b = (model(one, window=8, overlap=3).logits for one in (ids, other))
    torch.testing.assert_close(a[:, :13], b[:, :13], rtol=0, atol=0)
    assert (a[:, 13:] - b[:, 13:]).abs().amax(-1).min() > 1e-6


@pytest.mark.parametrize("overlap", [0, 3])
@pytest.mark.parametrize("settings", [{}, {"residual": True, "normalize": True, "insert_layer": 2, "pool": "max"},
                                      {"insert": "every"}])
@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_layers_below_h_prev_read_many_windows_at_once(recurrent, monkeypatch, family, settings, overlap):
    model, ids, calls = recurrent(family, {"opening_token": 1}, **settings), text(45), []
    model.base_model.layers[0].register_forward_hook(lambda *_: calls.append(1))

    def read(**how):
        calls.clear()
        out = model(ids, window=8, overlap=overlap, labels=ids, **how)
        gradients = torch.autograd.grad(out.loss, list(model.parameters()), materialize_grads=True)
        return (out.loss, out.logits, *gradients), len(calls)

    cover = windows(46, 8, overlap)
    together, few = read()
    states = list(model.read_windows(ids, cover[:-1]))
    monkeypatch.setattr(type(model), "together", 8)  # fewer than two texts of one window
    one_by_one, many = read()
    assert many == len(cover) and few == (many if settings.get("insert") else 2)  # the last window is shorter
    for a, b in zip(together, one_by_one, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    for a, b in zip(states, model.read_windows(ids, cover[:-1]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    for how in ({"truncate": 1}, {"truncate": 2}):
        cut = read(**how)[0]
        monkeypatch.setattr(type(model), "together", 2048)
        for a, b in zip(cut, read(**how)[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
        monkeypatch.setattr(type(model), "together", 8)


@pytest.mark.parametrize("recompute", ["layer", "window", "window+layer"])
@pytest.mark.parametrize("settings", [{}, {"residual": True}, {"residual": True, "normalize": True}])
@pytest.mark.parametrize("family", FAMILIES)
def test_recomputation_changes_no_gradient(recurrent, family, settings, recompute):
    model, ids = recurrent(family, {"opening_token": 1}, **settings), text(21)

    def gradients(how):
        loss = model.train()(ids, window=8, overlap=2, labels=ids, recompute=how, return_logits=False).loss
        return loss, torch.autograd.grad(loss, list(model.parameters()))

    (loss, plain), (again, others) = gradients("none"), gradients(recompute)
    torch.testing.assert_close(loss, again, rtol=1e-9, atol=0)
    for a, b in zip(plain, others, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)  # Gemma's norms are in single precision
    assert not any(layer.gradient_checkpointing for layer in model.base_model.layers)


@pytest.mark.parametrize("recompute", ["layer", "window", "window+layer"])
@pytest.mark.parametrize("family", FAMILIES)
def test_recomputed_attention_drops_the_same_again(recurrent, monkeypatch, family, recompute):
    """Its modules have no `Dropout`, only a number."""
    model, ids = recurrent(family, {"attention_dropout": 0.5}).train(), text(21)
    monkeypatch.setattr(type(model), "together", 1)  # so that all ways draw numbers window by window

    def gradients(how, seed=5):
        torch.manual_seed(seed)
        loss = model(ids, window=8, labels=ids, recompute=how, return_logits=False).loss
        return loss, torch.autograd.grad(loss, list(model.parameters()))

    (loss, plain), (again, others), (another, _) = gradients("none"), gradients(recompute), gradients("none", seed=6)
    torch.testing.assert_close(loss, again, rtol=1e-9, atol=0)
    assert abs(loss - another) > 1e-3
    for a, b in zip(plain, others, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)  # Gemma's norms are in single precision


@pytest.mark.parametrize("family", FAMILIES)
def test_it_saves_loads_and_generates(recurrent, family, tmp_path):
    model, ids = recurrent(family, {"opening_token": 1}, torch.float32, residual=True, normalize=True), text(9)
    save_causal_lm(model, tmp_path / "saved")
    again = load_causal_lm(tmp_path / "saved")
    with torch.no_grad():
        torch.testing.assert_close(again(ids, window=4).logits, model(ids, window=4).logits, rtol=0, atol=0)
    made = again.generate(ids, 8, window=6, overlap=2)
    for n in range(9, 17):
        with torch.no_grad():
            best = again(made[:, :n], window=6, overlap=2).logits[:, -1].argmax(-1)
        assert (made[:, n] == best).all()
    with pytest.raises(ReproError, match="was saved with recurrence"):
        RecurrentLM.from_pretrained(tmp_path / "saved", RecurrenceConfig(insert_layer=0))


MODULES = [{}, {"residual": True}, {"residual": True, "normalize": True}]  # the paper's own form first


@pytest.mark.parametrize("settings", MODULES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_it_trains_in_both_precisions(recurrent, family, settings):
    model, ids, losses = recurrent(family, {"opening_token": 1}, torch.float32, **settings).train(), text(21), []
    for autocast in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            losses.append(model(ids, window=8, overlap=2, labels=ids, return_logits=False).loss)
        losses[-1].backward()
        assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=0.05)


def test_the_opening_token_stands_before_each_window_of_a_plain_model(folder):
    from transformers import AutoModelForCausalLM

    path = folder("llama", opening_token=1)
    opened, plain = load_causal_lm(path), AutoModelForCausalLM.from_pretrained(path).eval()
    ids = text(15, batch=1)[0]
    found = perplexity(opened, ids, window=6, overlap=2).target_nll
    with torch.no_grad():
        for target in range(1, 15):
            start = 0 if target <= 6 else -(-(target - 6) // 4) * 4
            before = torch.cat([torch.tensor([1]), ids[start:target]])[None]
            nll = -plain(before).logits[0, -1].log_softmax(-1)[ids[target]].item()
            assert found[target - 1] == pytest.approx(nll, abs=1e-5)
    with pytest.raises(ReproError, match="without a mask"):
        opened(ids[None], attention_mask=torch.ones(1, 15))


def test_other_models_are_refused_in_one_line(tmp_path):
    from transformers import BertConfig, BertModel, GPTNeoConfig, GPTNeoForCausalLM

    BertModel(BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                         intermediate_size=8)).save_pretrained(tmp_path / "bert")
    GPTNeoForCausalLM(GPTNeoConfig(vocab_size=9, hidden_size=8, num_layers=2, num_heads=2, intermediate_size=8,
                                   attention_types=[[["global"], 2]])).save_pretrained(tmp_path / "neo")
    for name in ("bert", "neo"):
        with pytest.raises(ReproError, match="give GPT-2, Llama") as error:
            RecurrentLM.from_pretrained(tmp_path / name)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_copy_reads_with_its_own_module(recurrent, family):
    model, ids = recurrent(family, {"opening_token": 1}, residual=True), text(16)
    other = copy.deepcopy(model)
    with torch.no_grad():
        before = other(ids, window=8).logits
        for weight in model.parameters():
            weight.zero_()
        torch.testing.assert_close(other(ids, window=8).logits, before, rtol=0, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_another_attention_is_refused(recurrent, family):
    model, ids = recurrent(family, {"opening_token": 1}, residual=True), text(19)
    for name in ("eager", "sdpa", "flex_attention", "flash_attention_2", "bogus"):
        with pytest.raises(ReproError, match=f"is '{name}'; a Recurrent.*ForCausalLM needs repro_memory, which"):
            model.set_attn_implementation(name)
    for name in ("eager", "flex_attention"):
        model.config._attn_implementation = name
        with pytest.raises(ReproError, match="needs repro_memory, which"):
            model(ids, window=8)


@pytest.mark.parametrize("settings", MODULES, ids=str)
@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_compiled_it_has_the_same_loss_and_gradients(recurrent, family, settings):
    model, ids = recurrent(family, {"opening_token": 1}, torch.float32, **settings).train(), text(20)

    def gradients(call):
        loss = call(ids, window=8, overlap=2, labels=ids).loss
        return loss, *torch.autograd.grad(loss, list(model.parameters()))

    plain, compiled = gradients(model), gradients(torch.compile(model, backend="eager"))
    for a, b in zip(plain, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("family", "changes", "words"), [
    ("nanochat", {"final_logit_softcapping": None}, "a model of type nanochat does more than its layers, .* off by"),
    ("gemma4_text", {"hidden_size_per_layer_input": 0}, r"type gemma4_text cannot be read layer by layer \(Ambiguous")])
def test_models_that_are_not_their_layers_alone_are_refused_in_one_line(folder, family, changes, words):
    with pytest.raises(ReproError, match=words) as error:
        RecurrentLM.from_pretrained(folder(family, **changes))
    assert "\n" not in str(error.value)


def test_a_saved_model_is_compared_with_its_plain_model_again(folder, tmp_path):
    """Another version of transformers may do something around its layers."""
    from repro.recurrence.decoders import memory_class, recurrent_class

    plain = plain_class("nanochat")
    given = config("nanochat", final_logit_softcapping=None)
    recurrent_class(plain)(given, RecurrenceConfig(hidden_size=8)).save_pretrained(tmp_path / "recurrent")
    memory_class(plain)(given, complete("gated")).save_pretrained(tmp_path / "gated")
    for name in ("recurrent", "gated"):
        with pytest.raises(ReproError, match="a model of type nanochat does more than its layers"):
            load_causal_lm(tmp_path / name)
    model = RecurrentLM.from_pretrained(folder("olmo2", opening_token=1))
    model.save_pretrained(tmp_path / "right")
    for attention in (None, "repro_memory"):
        again = RecurrentLM.from_pretrained(tmp_path / "right", attn_implementation=attention)
        assert again.config._attn_implementation == "repro_memory"
        assert torch.equal(again(text(9), window=4).logits, model(text(9), window=4).logits)


@pytest.mark.parametrize("family", [*OTHERS, *TABLES])
def test_other_families_are_their_layers(folder, family):
    changes = (OTHERS | TABLES)[family] | {"opening_token": 1}
    for dtype in (torch.float32, torch.bfloat16):
        model = RecurrentLM.from_pretrained(folder(family, **changes), dtype=dtype)
        assert model.dtype == dtype and model(text(9), window=4).logits.isfinite().all()


@pytest.mark.parametrize("settings", [{}, {"insert_layer": 0, "n_embeddings": 2}], ids=str)
@pytest.mark.parametrize("family", TABLES)
def test_a_vector_has_no_place_in_a_table_of_positions(folder, family, settings):
    """transformers' layer reads h_prev in front of the tokens, which keep their positions, under a causal mask."""
    from transformers import AutoModelForCausalLM

    path, ids = folder(family, **TABLES[family]), text(16)
    model = RecurrentLM.from_pretrained(path, RecurrenceConfig(hidden_size=8, **settings))
    plain = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
    layers = getattr(plain.base_model, "decoder", plain.base_model)
    layer = getattr(layers, "h" if family == "gpt_bigcode" else "layers")[model.recurrence.config.insert_layer]
    with torch.no_grad():
        first = plain(ids[:, :8], output_hidden_states=True)
        h_prev = model.recurrence(sum(w * x.mean(1) for w, x in zip(
            model.recurrence.layer_weights, first.hidden_states[1:], strict=True)))
        n = h_prev.shape[1]
        mask = torch.full((8 + n, 8 + n), torch.finfo(torch.float32).min).triu(1)[None, None]
        layer.register_forward_pre_hook(lambda module, args, kwargs: (
            (torch.cat([h_prev, args[0]], 1), *args[1:]), kwargs | {"attention_mask": mask}), with_kwargs=True)
        layer.register_forward_hook(lambda module, args, out: out[:, n:])
        expected, found = plain(ids[:, 8:], use_cache=False).logits, model(ids, window=8).logits
    torch.testing.assert_close(found[:, :8], first.logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[:, 8:], expected, rtol=1e-4, atol=1e-4)
    made = model.generate(ids[:, :3], 12, window=8, overlap=2)
    for k in range(3, 15):
        with torch.no_grad():
            assert (made[:, k] == model(made[:, :k], window=8, overlap=2).logits[:, -1].argmax(-1)).all()
    opened = RecurrentLM.from_pretrained(folder(family, **TABLES[family] | {"opening_token": 1}))
    assert opened(text(63)).logits.shape[1] == 63
    with pytest.raises(ReproError, match="needs 65 positions, but the model has 64; choose a smaller window"):
        opened(text(64))


def test_the_embedding_dropout_of_starcoder_is_that_of_the_plain_model(folder):
    from transformers import AutoModelForCausalLM

    path, ids, seen = folder("starcoder2", embedding_dropout=0.5), text(9), []
    for model in (RecurrentLM.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path)):
        model.train().base_model.layers[0].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
        torch.manual_seed(3)
        model(ids)
    assert torch.equal(*seen) and (seen[0] == 0).float().mean() > 0.3


def test_experts_are_refused(tmp_path):
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {key: SIZES[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                         "num_attention_heads", "num_key_value_heads")}
    MixtralForCausalLM(MixtralConfig(**sizes, num_local_experts=2, num_experts_per_tok=1)).save_pretrained(tmp_path)
    with pytest.raises(ReproError, match=r"is a mixture of experts \(mixtral\)"):
        RecurrentLM.from_pretrained(tmp_path)


@pytest.mark.parametrize("token", [-1, 29, 1.0, "<bos>"])
def test_an_opening_token_is_one_of_the_vocabulary(recurrent, token):
    with pytest.raises(ReproError, match="opening_token is .*; it must be a token id from 0 to 28"):
        recurrent("llama", {"opening_token": token})


def test_recomputed_layers_leave_the_checkpointing_of_the_user_on(recurrent):
    model = recurrent("llama", {}, torch.float32).train()
    model.activation_checkpointing_enable()
    model(text(19), window=8, labels=text(19), recompute="layer").loss.backward()
    assert all(layer.gradient_checkpointing and layer.training for layer in model.model.layers)


def test_recomputed_layers_read_in_the_mode_that_they_are_in(recurrent):
    """In evaluation mode, transformers' checkpointing needs a layer in training mode; its computation must not."""
    model, modes = recurrent("llama", {}, torch.float32), []
    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_, layer=layer: modes.append(layer.training))
    for training in (False, True):
        model.train(training)
        modes.clear()
        model(text(9), window=9, labels=text(9), recompute="layer").loss.backward()
        assert modes == [training] * 6  # each of 3 layers once, and once again in the backward pass
        assert [layer.training for layer in model.model.layers] == [training] * 3


def test_a_model_whose_layers_cannot_be_reached_is_refused():
    from transformers import GPTNeoXJapaneseConfig, GPTNeoXJapaneseForCausalLM

    from repro.recurrence.decoders import recurrent_class

    sizes = {key: SIZES[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")}
    model = recurrent_class(GPTNeoXJapaneseForCausalLM)(GPTNeoXJapaneseConfig(**sizes))
    with pytest.raises(ReproError, match="layers of RecurrentGPTNeoXJapaneseForCausalLM do not get the keyword"):
        model(text(9), window=4)


def test_weights_of_another_shape_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"][:3].clone()
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ReproError, match="has weights of other shapes than its config.json says"):
        RecurrentLM.from_pretrained(tmp_path)


def test_threads_wait_for_each_other(recurrent):
    from concurrent.futures import ThreadPoolExecutor

    model, texts = recurrent("llama", insert_layer=2), [text(30, seed=k) for k in range(8)]
    layers = list(model.base_model.layers)

    def read(ids):
        with torch.no_grad():
            return [model(ids, window=8, overlap=2).logits for _ in range(3)][-1]

    want = [read(ids) for ids in texts]
    with ThreadPoolExecutor(4) as pool:
        for one, found in zip(want, pool.map(read, texts), strict=True):
            torch.testing.assert_close(found, one, rtol=0, atol=0)
    assert all(a is b for a, b in zip(layers, model.base_model.layers, strict=True))


@pytest.mark.parametrize(("kind", "changes", "name"), [
    ("gemma2", {}, "final_logit_softcapping"), ("granite", {"logits_scaling": 4.0}, "logits_scaling"),
    ("cohere", {}, "logit_scale"), ("gemma3_text", FAMILIES["gemma3_text"] | {"final_logit_softcapping": 5.0},
                                    "final_logit_softcapping")])
def test_a_model_that_changes_its_logits_is_refused(tmp_path, kind, changes, name):
    from transformers import AutoConfig, AutoModelForCausalLM

    from repro.evaluation import perplexity
    from repro.evaluation.scoring import states_and_head
    from repro.models.opened import Opened
    from repro.recurrence import with_memory

    plain = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES | changes)).eval()
    plain.save_pretrained(tmp_path)
    refused = [lambda: RecurrentLM.from_pretrained(tmp_path)]
    if kind == "gemma3_text":
        refused += [lambda: with_memory(tmp_path, "gated"), lambda: Opened(plain, 1, 8)]
        assert states_and_head(plain, text(9))[1] is None  # scored by its own logits
    for make in refused:
        with pytest.raises(ReproError, match=f"{name} of this {kind} is .*, so its logits are not a plain product"):
            make()
    ids = text(9, batch=1)[0]
    with torch.no_grad():
        want = nn.functional.cross_entropy(plain(ids[None]).logits[0, :-1], ids[1:], reduction="sum").item()
    assert perplexity(plain, ids, 9, 0).nll == pytest.approx(want, rel=1e-5)
