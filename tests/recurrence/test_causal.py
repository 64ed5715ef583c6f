"""RecurrentLM against a dense reference and against transformers, and where its gradients go."""

import pytest
import torch
from torch.nn import functional as F

from repro.errors import ReproError
from repro.evaluation import perplexity
from repro.hf_compat import cache_argument
from repro.recurrence import MaskedOut, RecurrenceConfig, RecurrentLM
from repro.recurrence.causal import attention_with_previous

SETTINGS = [{}, {"insert_layer": 0}, {"insert_layer": 2}, {"n_embeddings": 2}, {"insert": "every"},
            {"insert": "every", "n_embeddings": 3, "hidden_layers": 1}, {"insert_layer": 2, "residual": True},
            {"insert_layer": 2, "residual": True, "normalize": True}]
SIZES = [(12, 4, 0), (13, 4, 0), (15, 4, 0), (13, 5, 2), (14, 4, 3), (3, 4, 1), (4, 4, 1), (5, 4, 1), (1, 4, 0),
         (6, 1, 0), (40, 16, 5)]  # tokens, window, overlap


def text(n, batch=2, seed=0):
    return torch.randint(29, (batch, n), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_logits_and_gradients_equal_the_dense_reference(tiny_recurrent, dense, settings):
    model, ids = tiny_recurrent(dtype=torch.float64, **settings), text(17)
    aim = torch.randn(2, 17, 29, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    out = model(ids, window=4, overlap=1).logits
    expected = dense(model, ids, 4, 1)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    names, weights = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad((out * aim).sum(), weights)
    wanted = torch.autograd.grad((expected * aim).sum(), weights)
    for name, a, b in zip(names, found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9 * b.abs().max().item(), msg=lambda m, n=name: n + m)
    assert min(gradient.abs().max() for gradient in wanted) > 1e-6


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("recurrent", [True, False])
def test_any_length_window_and_overlap(tiny_recurrent, dense, size, recurrent):
    n, window, overlap = size
    model, ids = tiny_recurrent(dtype=torch.float64), text(n)
    with torch.no_grad():
        logits = model(ids, window=window, overlap=overlap, recurrent=recurrent).logits
        expected = dense(model, ids, window, overlap, recurrent=recurrent)
    assert logits.shape == (2, n, 29)
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [(20, 6, 0), (21, 6, 2), (5, 6, 0), (33, 16, 15), (40, None, 0)], ids=str)
def test_masked_out_it_is_transformers_gpt2_on_each_window(tiny_recurrent, tiny_config, window_of, size):
    from transformers import GPT2LMHeadModel

    n, window, overlap = size
    model, ids = tiny_recurrent(), text(n)
    plain = GPT2LMHeadModel(tiny_config(attn_implementation="eager")).eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        logits = model(ids, window=window, overlap=overlap, recurrent=False).logits
        for i in range(n):
            start, _ = window_of(i + 1, n + 1, window or 16, overlap)
            alone = plain(ids[:, start:i + 1]).logits[:, -1]
            torch.testing.assert_close(logits[:, i], alone, rtol=1e-6, atol=5e-6)
        recurrent = model(ids, window=window, overlap=overlap).logits
    first = window or 16
    torch.testing.assert_close(recurrent[:, :first], logits[:, :first], rtol=0, atol=0)
    if n > first:
        assert (recurrent[:, first:] - logits[:, first:]).abs().amax(-1).min() > 1e-3  # all see h_prev afterwards


def test_masked_out_equals_gpt2_of_ordinary_initialisation_to_1e_6(tiny_config):
    from transformers import GPT2LMHeadModel

    torch.manual_seed(0)
    plain = GPT2LMHeadModel(tiny_config(attn_implementation="eager")).eval()
    model = RecurrentLM(tiny_config(), RecurrenceConfig(insert_layer=1)).eval()
    model.load_state_dict(plain.state_dict(), strict=False)
    ids = text(32)
    with torch.no_grad():
        logits = model(ids, window=16, recurrent=False).logits
        for k in (0, 16):
            torch.testing.assert_close(logits[:, k:k + 16], plain(ids[:, k:k + 16]).logits, rtol=0, atol=1e-6)


def test_a_padding_mask_counts_for_the_keys_of_a_cache(tiny_recurrent, tiny_config):
    from transformers import DynamicCache, GPT2LMHeadModel

    model, ids = tiny_recurrent(), text(11)
    plain = GPT2LMHeadModel(tiny_config(attn_implementation="eager")).eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    seen = torch.ones_like(ids)
    seen[0, :3] = seen[1, 6] = 0  # padding in front, and a token left out
    caches = DynamicCache(), DynamicCache()
    for start, stop in ((0, 5), (5, 8), (8, 9), (9, 11)):
        with torch.no_grad():
            found, expected = (one.transformer(ids[:, start:stop], attention_mask=seen[:, :stop], use_cache=True,
                                               **cache_argument(cache)).last_hidden_state
                               for one, cache in zip((model, plain), caches, strict=True))
        for a, b, row in zip(found, expected, seen[:, start:stop].bool(), strict=True):
            torch.testing.assert_close(a[row], b[row], rtol=1e-5, atol=1e-5)
    keys = torch.ones(1, 2, 3, 4)
    with pytest.raises(ReproError, match="attention uses attention_mask, which is not possible with a carried state"):
        attention_with_previous(None, keys, keys, keys, torch.ones(3, 3, dtype=torch.bool), previous=(keys, keys))


@pytest.mark.parametrize("kind", ["embd_pdrop", "attn_pdrop", "resid_pdrop"])
def test_dropout_falls_where_transformers_lets_it_fall(tiny_recurrent, tiny_config, kind):
    from transformers import GPT2LMHeadModel

    model, ids = tiny_recurrent(changes={kind: 0.3}), text(14)
    plain = GPT2LMHeadModel(tiny_config(attn_implementation="sdpa", **{kind: 0.3}))
    plain.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        without = plain.eval()(ids).logits
        torch.manual_seed(0)
        expected = plain.train()(ids).logits
        torch.manual_seed(0)
        found = model.train()(ids).logits
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert (expected - without).abs().max() > 0.1


@pytest.mark.parametrize(("n_previous", "n_queries", "n_keys", "scaling"), [
    (0, 9, 9, None), (1, 9, 9, None), (3, 9, 9, 0.2), (1, 1, 6, None)])
def test_bf16_on_a_cpu_takes_plain_products_with_the_same_numbers(n_previous, n_queries, n_keys, scaling):
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, n, 8, generator=generator).bfloat16() for n in (n_queries, n_keys, n_keys))
    previous = None
    if n_previous:
        previous = tuple(torch.randn(2, 3, n_previous, 8, generator=generator).bfloat16() for _ in range(2))
    plain, _ = attention_with_previous(None, query, key, value, scaling=scaling, previous=previous)
    fused, _ = attention_with_previous(None, query.float(), key.float(), value.float(), scaling=scaling,
                                       previous=previous and tuple(x.float() for x in previous))
    assert plain.dtype == torch.bfloat16 and plain.shape == fused.shape == (2, n_queries, 3, 8)
    torch.testing.assert_close(plain.float(), fused, rtol=0.03, atol=0.03)
    assert (plain.float() - fused).abs().max() > 0  # rounded otherwise, so it is the other way


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("overlap", [0, 2])
def test_with_h_prev_held_fixed_nothing_of_the_previous_window_is_seen(tiny_recurrent, settings, overlap):
    model = tiny_recurrent(dtype=torch.float64, **settings)
    ids, changed = text(9), text(9)
    changed[:, :5 - overlap] = (changed[:, :5 - overlap] + 1) % 29  # all that only the first window reads
    fixed = []

    def hold(module, args, out):
        fixed.append(out.detach())
        return fixed[0]

    with torch.no_grad():
        free = model(ids, window=5, overlap=overlap).logits, model(changed, window=5, overlap=overlap).logits
        model.recurrence.register_forward_hook(hold)
        held = model(ids, window=5, overlap=overlap).logits, model(changed, window=5, overlap=overlap).logits
        second = slice(5, 10 - overlap)
        torch.testing.assert_close(held[0][:, second], free[0][:, second], rtol=0, atol=0)
        torch.testing.assert_close(held[0][:, second], held[1][:, second], rtol=0, atol=0)
        # Free, the change arrives, at the first position after the cut (T + 1) and at every later one.
        assert (free[0][:, second] - free[1][:, second]).abs().amax(-1).min() > 1e-4
        fixed[0] = fixed[0] * torch.linspace(-1, 2, 16, dtype=torch.float64)
        assert (model(ids, window=5, overlap=overlap).logits - free[0])[:, second].abs().amax(-1).min() > 1e-4


def embeddings_read(model):
    """What each window reads, in order, with gradients kept."""
    read = []

    def keep(module, args, out):
        out.retain_grad()
        read.append(out)

    model.transformer.wte.register_forward_hook(keep)
    return read


def gradient_sizes(read):
    """Per window and position the size of the gradient; 0.0 exactly where there is none."""
    return [torch.zeros(x.shape[1]) if x.grad is None else x.grad.abs().sum((0, 2)) for x in read]


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("recompute", ["none", "layer"])
def test_the_loss_of_a_window_reaches_the_tokens_of_all_windows_before_it(tiny_recurrent, overlap, recompute):
    model = tiny_recurrent(dtype=torch.float64)
    read = embeddings_read(model)
    span = 4 - overlap
    n = 4 + 7 * span
    logits = model(text(n), window=4, overlap=overlap, recompute=recompute).logits
    i = 6
    at = 4 + (i - 1) * span  # the first position that window i scores
    logits[:, at + 1].square().sum().backward()
    sizes = gradient_sizes(read)
    for k in (i - 1, i - 5, 0):
        assert sizes[k].min() > 1e-12  # every token of window i-1, of window i-5 and of the first
    used = overlap + 2  # positions of window i up to the one asked about
    assert sizes[i][:used].min() > 1e-12
    assert sizes[i][used:].abs().max() == 0  # causal inside the window
    assert sum(size.abs().sum() for size in sizes[i + 1:]) == 0


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("recompute", ["none", "layer"])
@pytest.mark.parametrize(("truncate", "reached"), [(None, 0), (1, 6), (2, 6), (3, 6), (4, 4), (5, 5), (7, 0)])
def test_a_cut_stops_the_gradient_exactly_there(tiny_recurrent, truncate, reached, overlap, recompute):
    """Seven windows, the loss in the last, cuts before windows k, 2k, …; `reached` is the earliest with a gradient."""
    model = tiny_recurrent(dtype=torch.float64)
    ids = text(4 + 6 * (4 - overlap))
    whole = model(ids, window=4, overlap=overlap).logits
    read = embeddings_read(model)
    logits = model(ids, window=4, overlap=overlap, truncate=truncate, recompute=recompute).logits
    torch.testing.assert_close(logits, whole, rtol=0, atol=1e-12)  # cutting changes gradients only
    logits[:, -1].square().sum().backward()
    sizes = gradient_sizes(read)
    assert len(sizes) == 7
    for k in range(7):
        assert sizes[k].min() > 1e-12 if k >= reached else sizes[k].max() == 0


@pytest.mark.parametrize("truncate", [2, 3])
def test_gradients_with_cuts_equal_the_dense_reference(tiny_recurrent, dense, truncate):
    model, ids = tiny_recurrent(dtype=torch.float64), text(26)
    weights = list(model.parameters())
    aim = torch.randn(2, 26, 29, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = torch.autograd.grad((model(ids, window=4, truncate=truncate).logits * aim).sum(), weights)
    cut = dense(model, ids, 4, cut=lambda k: k in range(truncate, 26, truncate))
    wanted = torch.autograd.grad((cut * aim).sum(), weights)
    whole = torch.autograd.grad((dense(model, ids, 4) * aim).sum(), weights)
    assert not any(torch.allclose(a, b, rtol=1e-6) for a, b in zip(wanted[:2], whole[:2], strict=True))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9 * b.abs().max().item())


def test_masked_out_nothing_arrives_from_earlier_windows(tiny_recurrent):
    model = tiny_recurrent(dtype=torch.float64)
    read = embeddings_read(model)
    logits = model(text(12), window=4, recurrent=False).logits
    logits[:, -1].square().sum().backward()
    sizes = gradient_sizes(read)
    assert [bool(size.max() == 0) for size in sizes[:2]] == [True, True]
    assert sizes[2].min() > 1e-12
    assert all(p.grad is None or p.grad.abs().max() == 0 for p in model.recurrence.parameters())


def test_masked_out_is_scored_as_gpt2(tiny_recurrent, tiny_gpt2):
    model, plain = tiny_recurrent(), tiny_gpt2()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("recurrence.")})
    tokens = text(40)[0]
    masked = MaskedOut(model.train())
    for window, overlap in ((8, 0), (8, 3), (16, 15)):
        score = perplexity(masked, tokens, window, overlap)
        assert score.nll == pytest.approx(perplexity(plain, tokens, window, overlap).nll, rel=1e-6)
        assert abs(score.nll - perplexity(model, tokens, window, overlap).nll) > 0.1
    assert model.training


def test_masked_out_keeps_to_the_context(tiny_recurrent):
    with pytest.raises(ReproError, match="context ends at 16"):
        perplexity(MaskedOut(tiny_recurrent()), text(40)[0], 17, 0)


def test_later_tokens_change_nothing_before_them(tiny_recurrent):
    model, ids = tiny_recurrent(dtype=torch.float64), text(20)
    with torch.no_grad():
        before = model(ids, window=4, overlap=1).logits
        for i in range(20):
            changed = ids.clone()
            changed[:, i] = (changed[:, i] + 1) % 29
            after = model(changed, window=4, overlap=1).logits
            torch.testing.assert_close(after[:, :i], before[:, :i], rtol=0, atol=1e-12)
            assert (after - before)[:, i:].abs().amax(-1).min() > 1e-12  # and everything from there on


def test_sequences_of_a_batch_do_not_mix(tiny_recurrent):
    model, ids = tiny_recurrent(dtype=torch.float64), text(14, batch=3)
    with torch.no_grad():
        together = model(ids, window=4, overlap=1).logits
        for b in range(3):
            alone = model(ids[b:b + 1], window=4, overlap=1).logits[0]
            torch.testing.assert_close(together[b], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("return_logits", [True, False])
@pytest.mark.parametrize("size", [(12, 4, 0), (13, 4, 0), (14, 4, 0), (14, 5, 2), (3, 4, 0), (2, 4, 3)], ids=str)
def test_the_loss_is_the_mean_over_the_targets(tiny_recurrent, dense, size, return_logits):
    n, window, overlap = size
    model, ids = tiny_recurrent(), text(n)
    with torch.no_grad():
        double = {name: weight.double() for name, weight in model.named_parameters()}
        logits = dense(model, ids, window, overlap, weights=double)[:, :-1]
        out = model(ids, window=window, overlap=overlap, labels=ids, return_logits=return_logits)
    expected = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    assert out.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert (out.logits is None) == (not return_logits)
    assert return_logits is False or out.logits.shape == (2, n, 29)


def test_labels_of_minus_100_are_not_scored(tiny_recurrent):
    model, ids = tiny_recurrent(), text(15)
    labels = ids.clone()
    labels[0, :9] = -100  # a whole window and a half of the first text
    labels[1, 4] = labels[1, 14] = -100
    with torch.no_grad():
        out = model(ids, window=4, overlap=1, labels=labels)
        lean = model(ids, window=4, overlap=1, labels=labels, return_logits=False)
        none = model(ids, window=4, labels=torch.full_like(ids, -100))
    nll = F.cross_entropy(out.logits[:, :-1].double().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    counted = (labels[:, 1:] != -100).flatten()
    assert counted.sum() == 6 + 12
    assert out.loss.item() == pytest.approx(nll[counted].mean().item(), rel=1e-5)
    assert lean.loss.item() == pytest.approx(out.loss.item(), rel=1e-6)
    assert none.loss.item() == 0.0


def test_without_labels_there_is_no_loss_and_without_a_window_the_context_is_one(tiny_recurrent):
    model, ids = tiny_recurrent(), text(20)
    with torch.no_grad():
        assert model(ids).loss is None
        torch.testing.assert_close(model(ids).logits, model(ids, window=16).logits, rtol=0, atol=0)
        assert not torch.equal(model(ids).logits, model(ids, window=15).logits)


def test_base_weights_keep_their_names(tiny_recurrent, tiny_gpt2):
    names, plain = set(tiny_recurrent().state_dict()), set(tiny_gpt2().state_dict())
    assert plain < names
    assert {name.split(".")[0] for name in names - plain} == {"recurrence"}
    assert names - plain == {"recurrence.layer_scores", *(f"recurrence.feedforward.{k}.{part}"
                             for k in (0, 2, 4) for part in ("weight", "bias"))}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saving_and_loading_loses_nothing(tiny_recurrent, tmp_path, dtype):
    model = tiny_recurrent(dtype=dtype, n_embeddings=2, insert="every")
    model.save_pretrained(tmp_path)
    again = RecurrentLM.from_pretrained(tmp_path, dtype=dtype)
    assert again.recurrence.config == model.recurrence.config
    assert again.state_dict().keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name
        assert again.state_dict()[name].dtype == dtype
    assert not again.training
    with torch.no_grad():
        assert torch.equal(again(text(13), window=4).logits, model(text(13), window=4).logits)
    tied = again.lm_head.weight.data_ptr() == again.transformer.wte.weight.data_ptr()
    assert tied
    again.save_pretrained(tmp_path / "second")
    assert (tmp_path / "second" / "config.json").read_text() == (tmp_path / "config.json").read_text()
    files = [folder / "model.safetensors" for folder in (tmp_path, tmp_path / "second")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_transformers_reads_the_base_weights_of_a_saved_model(tiny_recurrent, tmp_path):
    from transformers import GPT2LMHeadModel

    model = tiny_recurrent()
    model.save_pretrained(tmp_path)
    plain = GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    for name, weight in plain.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name
    with torch.no_grad():
        torch.testing.assert_close(plain(text(10)).logits, model(text(10)).logits, rtol=1e-6, atol=5e-6)


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_another_attention_implementation_is_refused_or_without_effect(tiny_recurrent, name):
    model, ids = tiny_recurrent(), text(13)
    with torch.no_grad():
        expected = model(ids, window=4).logits
        try:
            model.set_attn_implementation(name)
            logits = model(ids, window=4).logits
        except ReproError:
            return
        torch.testing.assert_close(logits, expected)


def test_building_a_model_leaves_the_given_config_alone(tiny_config):
    config = tiny_config()
    before = config.to_dict()
    model = RecurrentLM(config, RecurrenceConfig(insert_layer=1))
    assert config.to_dict() == before
    assert model.config.recurrence["insert_layer"] == 1


def test_a_module_is_attached_to_any_gpt2(tiny_gpt2, tmp_path):
    plain = tiny_gpt2(n_inner=24, layer_norm_epsilon=1e-3, activation_function="relu")
    plain.save_pretrained(tmp_path)
    settings = RecurrenceConfig(insert_layer=0, hidden_size=7, hidden_layers=2)
    model = RecurrentLM.from_pretrained(tmp_path, recurrence=settings)
    assert model.recurrence.config == settings
    for name, weight in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name
    with torch.no_grad():
        torch.testing.assert_close(model(text(10)).logits, plain(text(10)).logits, rtol=1e-6, atol=5e-6)
    assert RecurrentLM.from_pretrained(tmp_path).recurrence.config == RecurrenceConfig()


def test_settings_that_contradict_the_saved_ones_are_refused(tiny_recurrent, tmp_path):
    model = tiny_recurrent(insert_layer=1, hidden_size=12)
    model.save_pretrained(tmp_path)
    same = RecurrentLM.from_pretrained(tmp_path, recurrence=model.recurrence.config)
    assert torch.equal(same.recurrence.layer_scores, model.recurrence.layer_scores)
    with pytest.raises(ReproError, match="was saved with recurrence"):
        RecurrentLM.from_pretrained(tmp_path, recurrence=RecurrenceConfig(insert_layer=0, hidden_size=12))


@pytest.mark.parametrize(("arguments", "words"), [
    ({"window": 4, "overlap": 4}, "overlap is 4"), ({"window": 4, "overlap": -1}, "overlap is -1"),
    ({"window": 17}, "context ends at 16"), ({"window": -1}, "window is -1"), ({"overlap": 16}, "overlap is 16"),
    ({"window": 4, "recompute": "windows"}, "Did you mean 'window'")])
def test_impossible_requests_are_refused(tiny_recurrent, arguments, words):
    with pytest.raises(ReproError, match=words):
        tiny_recurrent()(text(10), **arguments)


@pytest.mark.parametrize("labels", [text(9), text(10, batch=1), text(10)[0]], ids=["short", "one row", "no batch"])
def test_labels_of_another_shape_are_refused(tiny_recurrent, labels):
    with pytest.raises(ReproError, match="labels have shape"):
        tiny_recurrent()(text(10), window=4, labels=labels)


def test_a_window_of_nothing_is_refused(tiny_recurrent):
    with pytest.raises(ReproError, match="window is 0"):
        tiny_recurrent()(text(10), window=0)


@pytest.mark.parametrize("ids", [text(0), text(10)[0]], ids=["nothing", "no batch"])
def test_input_of_another_shape_is_refused(tiny_recurrent, ids):
    with pytest.raises(ReproError, match="input_ids"):
        tiny_recurrent()(ids, window=4)
