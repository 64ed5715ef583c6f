"""BART made into LED: against transformers' own LED, against the BART, and gradients by finite differences."""

import copy

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig, LEDConfig
from transformers import LEDForConditionalGeneration as Theirs

from repro.errors import ReproError
from repro.models import LED, load_model, save_model

SIZES = {"vocab_size": 31, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 20, "dropout": 0.0}
BEAMS = {"num_beams": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 2}


def reads(model):
    """The model with norms around 1, so that the text matters to its summary."""
    for part in model.modules():
        if isinstance(part, torch.nn.LayerNorm):
            part.weight.data += 1
    return model.eval()


@pytest.fixture(scope="module")
def bart(shake):
    """20 positions. Its bias of the logits, which training leaves at 0, is not 0."""
    model = reads(shake(BartForConditionalGeneration(BartConfig(**SIZES, max_position_embeddings=20))))
    model.final_logits_bias.normal_(generator=torch.Generator().manual_seed(1))
    return model


@pytest.fixture(scope="module")
def theirs(shake):
    config = LEDConfig(**SIZES, attention_window=[4, 8], max_encoder_position_embeddings=48,
                       max_decoder_position_embeddings=24)
    return reads(shake(Theirs(config), 1))


def text(n=29, seed=0, targets=7):
    """Two texts, the second with padding behind, and summaries, the first with less targets."""
    draw = torch.Generator().manual_seed(seed)
    ids, labels = (torch.randint(4, 31, (2, m), generator=draw) for m in (n, targets))
    real = torch.ones_like(ids)
    real[1, n - n // 3:], labels[0, targets // 2:] = 0, -100
    return {"input_ids": ids.masked_fill(real == 0, 1), "attention_mask": real, "labels": labels}


def on_the_first(batch):
    return torch.zeros_like(batch["attention_mask"]).index_fill(1, torch.tensor([0]), 1)


def learned(model, **batch):
    """Logits, the loss, and the gradients of all weights by name."""
    model.zero_grad()
    out = model(**batch)
    out.loss.backward()
    return out.logits.detach(), out.loss.detach(), {
        name: torch.zeros_like(one) if one.grad is None else one.grad.clone() for name, one in model.named_parameters()}


def close(found, want, scale=1e-5):
    for one, other in zip(found[:2], want[:2], strict=True):
        torch.testing.assert_close(one, other, atol=scale, rtol=scale)
    for name, grad in want[2].items():
        torch.testing.assert_close(found[2][name], grad, atol=scale, rtol=10 * scale,
                                   msg=lambda m, name=name: f"{name} {m}")


@pytest.mark.parametrize("n", [48, 29, 5])
def test_logits_loss_and_gradients_are_transformers_both_ways(theirs, tmp_path, n):
    theirs.save_pretrained(tmp_path / "theirs")
    ours = LED.from_pretrained(tmp_path / "theirs")
    assert not ours.training and ours.lm_head.weight is ours.led.shared.weight is ours.led.encoder.embed_tokens.weight
    ours.save_pretrained(tmp_path / "ours")
    again, report = Theirs.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    batch = text(n)
    chosen = on_the_first(batch)
    want = learned(theirs, **batch, global_attention_mask=chosen)
    close(learned(ours, **batch), want)  # the first token is the default
    close(learned(again, **batch, global_attention_mask=chosen), want)
    chosen[0, n // 2] = chosen[1, 2] = 1
    close(learned(ours, **batch, global_attention_mask=chosen), learned(theirs, **batch, global_attention_mask=chosen))
    none = torch.zeros_like(chosen)
    close(learned(ours, **batch, global_attention_mask=none), learned(theirs, **batch))


@pytest.mark.parametrize("n", [20, 13])
def test_under_a_window_over_everything_it_is_the_bart(bart, n):
    """Its global tokens, too, since their projections start as the others'. Gradients of both add up to BART's."""
    ours, batch = LED.from_bart(bart, 60, window=40), text(n)
    want, found = learned(bart, **batch), learned(ours, **batch)
    torch.testing.assert_close(found[:2], want[:2], atol=1e-5, rtol=1e-5)
    encoder, names = "led.encoder.layers.0.self_attn.", {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
    for old, new in names.items():
        for kind in ("weight", "bias"):
            both = sum(found[2][f"{encoder}longformer_self_attn.{new}{part}.{kind}"] for part in ("", "_global"))
            torch.testing.assert_close(both, want[2][f"model.encoder.layers.0.self_attn.{old}.{kind}"], atol=1e-5,
                                       rtol=1e-4)
    for name in ("decoder.layers.1.encoder_attn.k_proj.weight", "encoder.layers.1.fc1.weight", "shared.weight"):
        torch.testing.assert_close(found[2][f"led.{name}"], want[2][f"model.{name}"], atol=1e-5, rtol=1e-4)
    narrow = LED.from_bart(bart, 60, window=4)(**batch).logits
    assert not torch.allclose(narrow, want[0], atol=1e-2)


@pytest.mark.parametrize("settings", [{}, BEAMS, BEAMS | {"num_return_sequences": 3, "length_penalty": 0.5}])
def test_it_writes_what_transformers_and_bart_write(theirs, bart, tmp_path, settings):
    theirs.save_pretrained(tmp_path)
    batch = text(19)
    del batch["labels"]
    settings = settings | {"max_new_tokens": 15}
    ours, wide = LED.from_pretrained(tmp_path), LED.from_bart(bart, 60, window=40)
    want = theirs.generate(**batch, global_attention_mask=on_the_first(batch), **settings)
    found = ours.generate(**batch, **settings)
    assert torch.equal(found, want) and len({tuple(row) for row in want.tolist()}) > 1
    assert torch.equal(ours.generate(**batch, **settings, use_cache=False), found)
    assert torch.equal(wide.generate(**batch, **settings), bart.generate(**batch, **settings))


def test_the_encoder_runs_once_and_its_keys_are_not_copied_again(theirs, tmp_path, monkeypatch):
    theirs.save_pretrained(tmp_path)
    ours, calls, kept = LED.from_pretrained(tmp_path), [], []
    ours.led.encoder.register_forward_hook(lambda *_: calls.append(1))
    ours.led.decoder.register_forward_hook(lambda _, given, out: kept.append(
        out.past_key_values.cross_attention_cache.layers[0].keys.data_ptr()))
    ours.generate(text()["input_ids"], **BEAMS, min_new_tokens=12, max_new_tokens=12)
    assert len(calls) == 1 and len(kept) == 12 and len(set(kept)) == 1


def test_layers_get_a_mask_only_where_there_is_padding(bart):
    ours, given = LED.from_bart(bart, 40, window=6), []
    ours.led.encoder.layers[1].self_attn.longformer_self_attn.register_forward_pre_hook(
        lambda _, args, named: given.extend(named[name] for name in named if name == "is_index_masked"),
        with_kwargs=True)
    ids, real = text()["input_ids"], text()["attention_mask"]
    whole = [ours.led.encoder(ids, mask)[0] for mask in (None, torch.ones_like(real))]
    assert given == [None, None] and torch.equal(*whole)
    ours.led.encoder(ids, real)
    assert torch.equal(given[2], real == 0)


def test_positions_are_copied_round_and_round_and_all_else_is_kept(bart):
    before = {name: weight.clone() for name, weight in bart.state_dict().items()}
    old, new = bart.model, LED.from_bart(bart, 47, window=[4, 6]).led
    assert len(new.encoder.embed_positions.weight) == 47
    for i in range(47):
        assert torch.equal(new.encoder.embed_positions.weight[i], old.encoder.embed_positions.weight[2 + i % 20])
    assert torch.equal(new.decoder.embed_positions.weight, old.decoder.embed_positions.weight[2:])
    for name, weight in old.decoder.layers.state_dict().items():
        assert torch.equal(new.decoder.layers.state_dict()[name], weight)
    assert new.config.attention_window == [4, 6]
    attention = new.encoder.layers[1].self_attn.longformer_self_attn
    assert torch.equal(attention.value_global.weight, old.encoder.layers[1].self_attn.v_proj.weight)
    assert attention.value_global.weight is not attention.value.weight
    assert all(torch.equal(weight, before[name]) for name, weight in bart.state_dict().items())
    short = LED.from_bart(bart, 7, window=4).led.encoder.embed_positions.weight
    assert torch.equal(short, old.encoder.embed_positions.weight[2:9])


def test_from_a_folder_with_the_barts_settings(bart, tmp_path):
    save_model(bart, tmp_path / "bart")
    batch = text()
    ours = LED.from_bart(str(tmp_path / "bart"), 40, window=6)
    assert not ours.training
    want = ours(**batch).logits
    torch.testing.assert_close(LED.from_bart(bart, 40, window=6)(**batch).logits, want)
    save_model(ours, tmp_path / "led")
    torch.testing.assert_close(load_model(tmp_path / "led")(**batch).logits, want)
    config = BartConfig(**SIZES | {"dropout": 0.2}, attention_dropout=0.3, activation_function="relu",
                        encoder_layerdrop=0.1, max_position_embeddings=20)
    told = LED.from_bart(BartForConditionalGeneration(config).double().train(), 40, window=4)
    assert told.dtype == torch.float64 and told.training and told.generation_config.forced_eos_token_id == 2
    assert told.led.encoder.layers[0].self_attn.longformer_self_attn.dropout == 0.3
    assert all(getattr(told.config, name) == getattr(config, name)
               for name in ("dropout", "activation_function", "encoder_layerdrop"))


def test_gradients_by_finite_differences(bart):
    """One direction of each weight, in float64, at a global token, beside padding, in and outside windows."""
    model, batch = LED.from_bart(bart, 40, window=4).double(), text(19)
    _, _, grads = learned(model, **batch)
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            way = torch.randn(weight.shape, generator=draw, dtype=torch.float64)
            ends = []
            for step in (1e-5, -2e-5):
                weight += step * way
                ends.append(model(**batch).loss.item())
            weight += 1e-5 * way
            assert (ends[0] - ends[1]) / 2e-5 == pytest.approx((grads[name] * way).sum().item(), rel=1e-5, abs=1e-8)


def test_a_compiled_encoder_is_the_same():
    torch.compiler.reset()
    model, batch = LED(LEDConfig(**SIZES | {"encoder_layers": 1, "decoder_layers": 1}, attention_window=4)), text()
    read, given = model.led.encoder, (batch["input_ids"], batch["attention_mask"])
    torch.testing.assert_close(torch.compile(read, backend="eager")(*given)[0], read(*given)[0])


def test_recomputed_and_under_autocast_it_is_the_same(bart):
    model, batch = LED.from_bart(bart, 40, window=6).train(), text(33)
    want = learned(model, **batch)
    model.activation_checkpointing_enable()
    close(learned(model, **batch), want)
    model.activation_checkpointing_disable()
    with torch.autocast("cpu", torch.bfloat16):
        logits, loss, grads = learned(model, **batch)
    assert loss.dtype == torch.float32 and (logits - want[0]).norm() < 0.03 * want[0].norm()
    found, right = (torch.cat([one.flatten().float() for one in each.values()]) for each in (grads, want[2]))
    assert (found - right).norm() < 0.08 * right.norm()


def test_dropped_layers_and_dropout_only_in_training(bart):
    model, batch = LED.from_bart(bart, 40, window=6), text()
    model.led.encoder.layerdrop = model.led.encoder.dropout = 0.5
    torch.testing.assert_close(model(**batch).loss, model(**batch).loss)
    torch.manual_seed(0)
    assert len({model.train()(**batch).loss.item() for _ in range(3)}) > 1


def test_what_else_transformers_takes(theirs, tmp_path):
    theirs.save_pretrained(tmp_path)
    ours, batch = LED.from_pretrained(tmp_path), text()
    given = batch | {"global_attention_mask": on_the_first(batch), "output_attentions": True}
    want, found = theirs(**given), ours(**given)
    assert len(found.cross_attentions) == 2 and found.cross_attentions[0].shape == (2, 2, 7, 29)
    torch.testing.assert_close(found.cross_attentions, want.cross_attentions)
    with pytest.raises(ReproError, match="output_hidden_states is True"):
        ours(**batch, output_hidden_states=True)
    loss, logits, *_ = ours(**batch, return_dict=False)
    assert torch.equal(loss, found.loss) and torch.equal(logits, found.logits)
    states = ours.get_encoder()(batch["input_ids"], batch["attention_mask"])
    batch.pop("input_ids")
    assert torch.equal(ours(**batch, encoder_outputs=states).logits, logits)


def test_padding_in_front_moves_the_first_token(theirs, tmp_path):
    theirs.save_pretrained(tmp_path)
    ours, batch = LED.from_pretrained(tmp_path), text(16)
    real, chosen = torch.ones(2, 16), torch.zeros(2, 16)
    real[0, :3], chosen[0, 3], chosen[1, 0] = 0, 1, 1
    given = {"input_ids": batch["input_ids"], "labels": batch["labels"], "attention_mask": real.long()}
    torch.testing.assert_close(ours(**given).loss, theirs(**given, global_attention_mask=chosen.long()).loss)


@pytest.mark.parametrize(("change", "said"), [
    ({"window": 5}, "window is 5; it has half on each side .* even number"),
    ({"window": [4]}, r"window is \[4\], 1 for 2 layers"),
    ({"max_positions": 0}, "max_positions is 0; it must be a whole number of at least 1"),
    ({"max_positions": 21.5}, "max_positions is 21.5; it must be a whole number"),
    ({"bart": torch.nn.Linear(2, 2)}, "bart is a Linear; it must be a BartForConditionalGeneration"),
    ({"bart": "nowhere"}, "no checkpoint 'nowhere' .*facebook/bart-base"),
])
def test_bad_conversions(bart, change, said):
    with pytest.raises(ReproError, match=said) as error:
        LED.from_bart(**{"bart": bart, "max_positions": 40, "window": 4} | change)
    assert "\n" not in str(error.value)


def test_a_bart_that_scales_its_embeddings_is_refused():
    with pytest.raises(ReproError, match="scale_embedding of this BART is True"):
        LED.from_bart(BartForConditionalGeneration(BartConfig(**SIZES, scale_embedding=True)))


IDS = torch.full((1, 24), 5)
BAD = [
    ({"input_ids": torch.full((1, 25), 5)}, "the text has 25 tokens, but the encoder of this LED has 24 positions"),
    ({"input_ids": IDS[:, :0]}, "the text has no tokens"),
    ({"attention_mask": 0 * IDS}, "text 0 of the batch has no tokens"),
    ({"attention_mask": IDS[:, :3]}, r"attention_mask is \(1, 3\); it must have the shape of input_ids, \(1, 24\)"),
    ({"global_attention_mask": IDS[:, :23]}, r"global_attention_mask is \(1, 23\); it must have the shape of input_i"),
    ({"input_ids": IDS + 40}, "input_ids go from 45 to 45, but the model knows 0 to 30"),
    ({"labels": torch.full((1, 3), -100)}, r"labels have shape \(1, 3\), and all of them are -100"),
    ({"labels": IDS[:, :3] + 40}, "labels go from 45 to 45"),
    ({"labels": IDS[:, :21]}, "the summary has 21 tokens, but the decoder of this LED has 20 positions"),
    ({"labels": IDS[:, :3], "decoder_input_ids": IDS[:, :4]}, r"labels have shape \(1, 3\); it must be \(B, T\), h"),
    ({"decoder_input_ids": IDS[:, :3], "decoder_attention_mask": IDS[:, :2]},
     r"decoder_attention_mask has shape \(1, 2\); it must be \(B, T\), here \(1, 3\)"),
    ({"decoder_input_ids": IDS[:, :3], "encoder_outputs": (torch.zeros(1, 4, 8),)},
     r"encoder_outputs hold torch.float32 of shape \(1, 4, 8\); give what .* \(B, N, 16\)"),
    ({"labels": IDS[:, :3].repeat(2, 1)}, "the batch has 1 texts and 2 summaries"),
    ({"input_ids": None}, "input_ids are a NoneType"),
]


@pytest.mark.parametrize(("change", "said"), BAD)
def test_bad_texts_and_labels(bart, change, said):
    ours = LED.from_bart(bart, 24, window=4)
    with pytest.raises(ReproError, match=said) as error:
        ours(**{"input_ids": IDS} | change)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("change", "said"), [
    ({"num_beams": 0}, "num_beams is 0; it must be a whole number of at least 1"),
    ({"generation_config": GenerationConfig(num_beams=0)}, "num_beams is 0; "),
    ({"inputs": IDS[:, :0]}, "the text has no tokens"),
    ({"inputs": torch.full((1, 25), 5)}, "the text has 25 tokens"),
    ({"max_new_tokens": 25, "min_new_tokens": 25}, "the summary has 21 tokens"),
    ({"global_attention_mask": IDS[:, :3]}, r"global_attention_mask is \(1, 3\)"),
    ({"inputs": None}, "input_ids are a NoneType; give int64"),
    ({"max_new_tokens": 0}, "max_new_tokens is 0; it must be a whole number of at least 1"),
    ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size is -1; it must be a whole number of at least 0"),
    ({"num_beams": 2, "num_return_sequences": 3}, "transformers cannot generate with these arguments: .* smaller"),
    ({"length_penalty": "2"}, "length_penalty is '2'; it must be a number, such as 1.0"),
    ({"cache_implementation": "static"}, "the cache is static; .* Use cache_implementation=.dynamic"),
    ({"cache_implementation": "static", "num_beams": 2}, "the cache is static; "),
    ({"generation_config": GenerationConfig(cache_implementation="sliding_window")}, "the cache is static; "),
    ({"beams": 2}, "transformers cannot generate with these arguments: .*'beams'"),
])
def test_bad_generation(bart, change, said):
    ours = LED.from_bart(bart, 24, window=4)
    with pytest.raises(ReproError, match=said) as error:
        ours.generate(**{"inputs": IDS} | change)
    assert "\n" not in str(error.value)


def test_a_cache_that_grows_may_be_named(bart):
    ours, settings = LED.from_bart(bart, 24, window=4), {"num_beams": 2, "max_new_tokens": 5}
    assert torch.equal(ours.generate(IDS, **settings, cache_implementation="dynamic"), ours.generate(IDS, **settings))


def test_it_writes_from_encoded_texts_without_their_tokens(bart):
    ours, settings = LED.from_bart(bart, 24, window=4), {"num_beams": 2, "max_new_tokens": 5}
    states = ours.led.encoder(IDS)
    assert torch.equal(ours.generate(encoder_outputs=states, **settings), ours.generate(IDS, **settings))


@pytest.mark.parametrize("bf16", [False, True])
def test_several_summaries_of_a_text_share_it_as_if_it_were_repeated(bart, bf16):
    """Loss, gradients and attention weights, where the texts have different padding."""
    ours, batch = LED.from_bart(bart, 32, window=4), text()
    given, real = batch["input_ids"], batch["attention_mask"]
    labels = torch.cat([text(seed=k)["labels"] for k in range(3)])  # three summaries of each text
    whole = {"labels": labels, "output_attentions": True}

    def losses(repeats):
        ours.zero_grad()
        states = ours.led.encoder(given, real)[0].repeat_interleave(repeats, 0)
        with torch.autocast("cpu", torch.bfloat16, bf16):
            out = ours(attention_mask=real.repeat_interleave(repeats, 0), encoder_outputs=(states,), **whole)
        out.loss.backward()
        return out, {name: one.grad.clone() for name, one in ours.named_parameters() if one.grad is not None}

    (shared, own), (repeated, want) = losses(1), losses(3)
    close = {"atol": 2e-2, "rtol": 2e-2} if bf16 else {"atol": 1e-5, "rtol": 1e-4}
    torch.testing.assert_close(shared.logits, repeated.logits, **close)
    assert own.keys() == want.keys()
    for name in want:
        torch.testing.assert_close(own[name], want[name], **close)
    assert not torch.allclose(shared.logits[:3], shared.logits[3:], atol=0.1)  # the text matters
    for one, other in zip(shared.cross_attentions, repeated.cross_attentions, strict=True):
        assert one.shape == (6, 2, 7, 29)
        torch.testing.assert_close(one, other, **close)
    with pytest.raises(ReproError, match="2 texts and 5 summaries"):
        ours(attention_mask=real, encoder_outputs=(ours.led.encoder(given, real)[0],), labels=labels[:5])


def test_beams_write_the_same_without_a_cache_and_under_autocast(bart):
    """Without a cache, beams of several tokens at once share a text; the texts have different padding."""
    ours, batch = LED.from_bart(bart, 32, window=4), text()
    given = {"attention_mask": batch["attention_mask"], "max_new_tokens": 6, "return_dict_in_generate": True,
             "output_scores": True, **BEAMS}
    cached, uncached = (ours.generate(batch["input_ids"], use_cache=use, **given) for use in (True, False))
    assert torch.equal(cached.sequences, uncached.sequences)
    for one, other in zip(cached.scores, uncached.scores, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = ours.generate(batch["input_ids"], **given)
    torch.testing.assert_close(rounded.scores[0], cached.scores[0], atol=5e-2, rtol=5e-2)


def test_shared_texts_with_recomputed_and_compiled_layers(bart):
    ours, batch = LED.from_bart(bart, 32, window=4), text()
    states = ours.led.encoder(batch["input_ids"], batch["attention_mask"])[0].detach()
    given = {"attention_mask": batch["attention_mask"], "encoder_outputs": (states,),
             "labels": torch.cat([text(seed=k)["labels"] for k in range(2)])}
    want = learned(ours.train(), **given)
    ours.activation_checkpointing_enable()
    close(learned(ours, **given), want)
    ours.activation_checkpointing_disable()
    layer = torch.compile(ours.led.decoder.layers[0].encoder_attn, backend="aot_eager", fullgraph=True)
    hidden = torch.randn(4, 3, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(layer(hidden, states)[0], ours.led.decoder.layers[0].encoder_attn(hidden, states)[0])


def test_beams_and_drawn_summaries_hold_each_text_once(bart):
    ours, batch = LED.from_bart(bart, 32, window=4), text()
    for settings in ({"num_beams": 4}, {"do_sample": True, "num_return_sequences": 4}):
        out = ours.generate(batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=5,
                            return_dict_in_generate=True, **settings)
        held = out.past_key_values
        assert {len(layer.keys) for layer in held.cross_attention_cache.layers} == {2}
        assert {len(layer.keys) for layer in held.self_attention_cache.layers} == {8}


@pytest.mark.parametrize(("windows", "said"), [([4, 5], "window is 5; .* even number"), ([4], "1 for 2 layers"),
                                               (7, "window is 7; ")])
def test_checkpoints_with_bad_windows(theirs, tmp_path, windows, said):
    config = copy.deepcopy(theirs.config)
    theirs.save_pretrained(tmp_path)
    config.attention_window = windows
    config.save_pretrained(tmp_path)
    with pytest.raises(ReproError, match=said):
        LED.from_pretrained(tmp_path)


def test_checkpoints_of_another_kind_and_those_without_weights_are_refused(bart, tmp_path):
    save_model(bart, tmp_path / "bart")
    ours = LED.from_bart(bart, 24, window=4)
    kept = {name: weight for name, weight in ours.state_dict().items() if "query_global" not in name}
    Theirs.save_pretrained(ours, tmp_path / "part", state_dict=kept)
    for name, said in (("bart", "a checkpoint of bart, not of led; LED.from_bart converts one"),
                       ("part", "lacks 4 weights, the first of them .*query_global"),
                       ("nowhere", "no checkpoint '.*nowhere' .*allenai/led-base-16384")):
        with pytest.raises(ReproError, match=said):
            LED.from_pretrained(tmp_path / name)
