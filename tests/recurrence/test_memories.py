"""What all memories promise: causality, gradients, one way to mask, counts that are true."""

import importlib
import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from repro.errors import ReproError
from repro.evaluation import perplexity
from repro.recompute import RECOMPUTE, flops
from repro.recurrence import MEMORIES, MaskedOut, MemoryLM, RecurrentLM, reach_windows, with_memory
from repro.recurrence.memories import complete
from repro.training import WindowedLM
from repro.windows import windows

every_memory = pytest.mark.parametrize("name", MEMORIES)


def text(n, batch=2, seed=0):
    return torch.randint(29, (batch, n), generator=torch.Generator().manual_seed(seed))


@every_memory
@pytest.mark.parametrize("overlap", [0, 1])
def test_later_tokens_change_nothing_before_them(tiny_memory, name, overlap):
    model, ids = tiny_memory(name, torch.float64), text(14)
    with torch.no_grad():
        before = model(ids, window=4, overlap=overlap).logits
        for i in range(14):
            changed = ids.clone()
            changed[:, i] = (changed[:, i] + 1) % 29
            after = model(changed, window=4, overlap=overlap).logits
            torch.testing.assert_close(after[:, :i], before[:, :i], rtol=0, atol=1e-12)
            assert (after - before)[:, i].abs().amax() > 1e-9


@every_memory
def test_a_window_without_a_state_is_read_as_the_plain_model_reads_it(tiny_memory, tiny_gpt2, name):
    model, ids = tiny_memory(name, torch.float64), text(8)
    plain = tiny_gpt2(dtype=torch.float64)
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("memory.")})
    with torch.no_grad():
        masked = model(ids, window=4, recurrent=False).logits
        alone = torch.cat([model(ids[:, k:k + 4], window=4).logits for k in (0, 4)], 1)
        expected = torch.cat([plain(ids[:, k:k + 4]).logits for k in (0, 4)], 1)
        carried = model(ids, window=4).logits
    torch.testing.assert_close(masked, alone, rtol=0, atol=1e-12)
    assert torch.allclose(masked, expected, rtol=1e-9, atol=1e-9) == model.memory.plain_start
    torch.testing.assert_close(carried[:, :4], masked[:, :4], rtol=0, atol=1e-12)
    assert (carried - masked)[:, 4:].abs().amax(-1).min() > 1e-6  # every later position sees the state


@every_memory
def test_gradients_pass_to_the_window_before_unless_it_is_declared_detached(tiny_memory, name):
    model, read = tiny_memory(name, torch.float64), []

    def keep(module, args, out):
        out.retain_grad()
        read.append(out)

    model.transformer.wte.register_forward_hook(keep)
    ids = text(12)
    model(ids, window=4).logits[:, 8:].square().sum().backward()
    sizes = [0.0 if x.grad is None else x.grad.abs().sum((0, 2)).min().item() for x in read]
    assert len(sizes) == 3
    assert sizes[2] > 1e-9
    assert (sizes[1] > 1e-9) == (not model.memory.detached)
    assert model.memory.detached == (name in ("knn", "cache"))


@every_memory
@pytest.mark.parametrize("recompute", RECOMPUTE[1:])
def test_recomputation_changes_no_number(tiny_memory, name, recompute):
    model, ids, found = tiny_memory(name, torch.float64).train(), text(14), {}
    for how in ("none", recompute):
        model.zero_grad()
        loss = model(ids, window=4, overlap=1, labels=ids, recompute=how, return_logits=False).loss
        loss.backward()
        found[how] = [loss.detach()] + [p.grad.clone() for p in model.parameters() if p.grad is not None]
    for a, b in zip(found[recompute], found["none"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


@every_memory
def test_every_weight_of_a_memory_learns(tiny_memory, name):
    model, ids = tiny_memory(name, torch.float64), text(13)
    model(ids, window=4, labels=ids).loss.backward()
    for key, weight in model.memory.named_parameters():
        assert weight.grad is not None and weight.grad.abs().max() > 1e-12, key


@every_memory
def test_fresh_a_neutral_memory_leaves_the_model_as_it_is(tiny_memory, name):
    model, ids = tiny_memory(name, torch.float64, fresh=True), text(12)
    with torch.no_grad():
        change = (model(ids, window=4).logits - model(ids, window=4, recurrent=False).logits).abs().max().item()
    assert (change < 1e-12) == (name in ("gated", "block-recurrent"))


@every_memory
def test_a_cut_keeps_the_numbers_and_stops_gradients(tiny_memory, name):
    model, ids = tiny_memory(name, torch.float64), text(12)
    whole = model(ids, window=4).logits
    read = []
    model.transformer.wte.register_forward_hook(lambda module, args, out: (out.retain_grad(), read.append(out))[0])
    cut = model(ids, window=4, truncate=1).logits
    torch.testing.assert_close(cut, whole, rtol=0, atol=1e-12)
    cut[:, -1].sum().backward()
    assert [x.grad is None or x.grad.abs().max().item() == 0 for x in read] == [True, True, False]


@every_memory
def test_sequences_of_a_batch_do_not_mix(tiny_memory, name):
    model, ids = tiny_memory(name, torch.float64), text(14, batch=3)
    with torch.no_grad():
        together = model(ids, window=4, overlap=1).logits
        for b in range(3):
            alone = model(ids[b:b + 1], window=4, overlap=1).logits[0]
            torch.testing.assert_close(together[b], alone, rtol=0, atol=1e-11)


@every_memory
@pytest.mark.parametrize("overlap", [0, 1])
def test_training_and_scoring_read_the_same(tiny_memory, name, overlap):
    model, ids = tiny_memory(name), text(15, batch=1)
    with torch.no_grad():
        loss = model(ids, window=4, overlap=overlap, labels=ids).loss.item()
        trained = WindowedLM(model, 4, overlap)(ids).item()
    score = perplexity(model, ids[0], 4, overlap)
    assert score.nll / score.n_scored == pytest.approx(loss, rel=1e-6)
    assert trained == pytest.approx(loss, rel=1e-6)


@every_memory
def test_masked_out_is_scored_window_by_window(tiny_memory, name):
    model, ids = tiny_memory(name), text(15, batch=1)
    with torch.no_grad():
        loss = model(ids, window=4, labels=ids, recurrent=False).loss.item()
    score = perplexity(MaskedOut(model), ids[0], 4, 0)
    assert score.nll / score.n_scored == pytest.approx(loss, rel=1e-6)


def carried(model, ids, window):
    """The state of a model after all windows of a text."""
    state = None
    with torch.no_grad():
        for start in range(0, ids.shape[1], window):
            _, state = model._read_window(ids[:, start:start + window], state)
    return state if isinstance(state, tuple) else (state,)


@every_memory
@pytest.mark.parametrize("window", [4, 5])
def test_the_state_is_as_large_as_declared(tiny_memory, name, window):
    model = tiny_memory(name)
    for batch in (1, 3):
        state = carried(model, text(6 * window, batch), window)
        assert sum(part.numel() for part in state) == batch * model.memory.state_numbers(window)
        assert all(part.shape[0] == batch for part in state)


@every_memory
@pytest.mark.parametrize("window", [4, 6])
def test_the_flops_are_those_of_the_products(tiny_memory, name, window):
    """Against torch's count for one window whose state is full; it takes all pairs of a window where we take half."""
    model = tiny_memory(name, changes={"n_embd": 32, "n_head": 2})
    ids, d = text(6 * window, 1), 32
    state = carried(model, ids, window)
    state = state[0] if torch.is_tensor(model._read_window(ids[:, :window], None)[1]) else state
    with torch.no_grad():
        found = flops(lambda: model._read_window(ids[:, :window], state)) - flops(
            lambda: MaskedOut(model).model.transformer(ids[:, :window], use_cache=False))
    pairs = 0
    if name == "rmt":
        pairs = model.config.n_layer * 4 * d * ((window + 4)**2 - window**2) / 2
    elif name in (before := {"yoshida": 1, "yoshida-first": 1, "embeddings-4": 4, "compressed": 2 * (window // 2),
                             "cache": window}):  # queries put in front as padding
        n = before[name]
        layers = 1 if name.startswith("yoshida") else model.config.n_layer
        pairs = layers * 4 * d * n * (window + n)
    if name == "cache":  # all pairs of the reading alone, too
        pairs += (model.config.n_layer - 1) * 2 * d * window**2
    assert found - pairs == pytest.approx(model.memory.flops_per_window(window), rel=0.001 if name == "cache" else 0.02)
    assert model.memory.flops_per_token(window, 2) == model.memory.flops_per_window(window) / (window - 2)


REACH = {"cache": 1, "compressed": 6, "knn": 2}  # one; layers times windows; 6 tokens of windows of 4


@every_memory
def test_a_change_shows_as_far_back_as_the_memory_reaches(tiny_memory, name):
    model = tiny_memory(name, torch.float64)
    ids, other = text(4 * 9 + 1), text(4 * 9 + 1, seed=1)
    found = reach_windows(model, ids, other, 4, tolerance=0)
    assert len(found.changes) == 8
    far = REACH.get(name, 8)
    assert found.windows == far
    assert [change > 0 for change in found.changes] == [True] * far + [False] * (8 - far)
    assert reach_windows(model, ids, other, 4, tolerance=found.changes[far - 1]).windows < far
    changed = torch.cat([ids[:, :28], other[:, 28:32], ids[:, 32:]], 1)  # by hand, for the window before the last
    with torch.no_grad():
        losses = [torch.nn.functional.cross_entropy(model(x, window=4).logits[:, 32:36].flatten(0, 1),
                                                    ids[:, 33:].flatten(), reduction="none") for x in (ids, changed)]
    assert found.changes[0] == pytest.approx((losses[0] - losses[1]).abs().mean().item(), rel=1e-9)


def test_overlap_is_not_taken_for_memory(tiny_memory, tiny_gpt2):
    model, ids, other = tiny_memory("cache", torch.float64), text(4 + 3 * 5 + 1), text(4 + 3 * 5 + 1, seed=1)
    assert len(windows(ids.shape[1], 4, 1)) == 6
    assert reach_windows(model, ids, other, 4, 1, tolerance=0).windows == 1
    assert reach_windows(tiny_gpt2(), ids, other, 4, 1, tolerance=0) == (0, [0.0] * 5)
    with pytest.raises(ReproError, match="more than one window"):
        reach_windows(model, ids[:, :5], other[:, :5], 4)


@every_memory
def test_bf16_autocast_computes_the_same_to_its_precision(tiny_memory, name):
    model, ids = tiny_memory(name), text(14)
    exact = model(ids, window=4, labels=ids).loss.item()
    model(ids, window=4, labels=ids).loss.backward()
    learning = {name for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(ids, window=4, labels=ids).loss
    loss.backward()
    assert loss.item() == pytest.approx(exact, rel=0.05)
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert set(found) == learning and all(gradient.isfinite().all() for gradient in found.values())


@every_memory
@pytest.mark.parametrize(("given", "window", "overlap"), [(3, 4, 0), (9, 4, 1)])
def test_greedy_generation_equals_running_everything_again(tiny_memory, name, given, window, overlap):
    model, ids = tiny_memory(name, torch.float64), text(given)
    found, used = model.generate(ids, 7, window=window, overlap=overlap), ids
    with torch.no_grad():
        for _ in range(7):
            new = model(used, window=window, overlap=overlap).logits[:, -1].argmax(-1, keepdim=True)
            used = torch.cat([used, new], 1)
    assert found.tolist() == used.tolist()


@every_memory
def test_saving_and_loading_loses_nothing(tiny_memory, tmp_path, name):
    from repro.models import load_causal_lm

    model = tiny_memory(name)
    model.save_pretrained(tmp_path)
    for again in (with_memory(tmp_path), load_causal_lm(tmp_path)):
        assert isinstance(again, MemoryLM)
        assert again.config.memory == model.config.memory
        assert not again.training
        for key, weight in model.state_dict().items():
            assert torch.equal(again.state_dict()[key], weight), key
        with torch.no_grad():
            assert torch.equal(again(text(13), window=4).logits, model(text(13), window=4).logits)


@every_memory
def test_a_memory_is_put_into_any_gpt2(tiny_gpt2, tmp_path, name):
    plain = tiny_gpt2()
    plain.save_pretrained(tmp_path)
    torch.manual_seed(3)
    model = with_memory(tmp_path, name)
    torch.manual_seed(3)
    same = with_memory(tmp_path, name)
    for key, weight in plain.state_dict().items():
        assert torch.equal(model.state_dict()[key], weight), key
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), same.parameters(), strict=True))
    assert model.config.memory["name"] == name
    assert all(key.startswith("memory.") for key in set(model.state_dict()) - set(plain.state_dict()))


@every_memory
def test_a_memory_of_vectors_alone_has_a_key_value_cache(tiny_memory, name):
    model, read, ids = tiny_memory(name, torch.float64), [], text(1)
    hook = model.transformer.h[0].mlp.register_forward_hook(lambda module, args, out: read.append(out.shape[1]))
    made = model.generate(ids, 13, window=5, overlap=1)
    hook.remove()
    once = name in ("compressed", "embeddings-4", "yoshida", "yoshida-first")
    assert (model.memory.before(None) is not None) == once
    assert (read[:5] == [1] * 5) == once and (read[4] in (5, 5 + 2 * 2)) == (not once)
    for n in range(1, 14):
        with torch.no_grad():
            logits = model(made[:, :n], window=5, overlap=1).logits[:, -1]
        assert (made[:, n] == logits.argmax(-1)).all(), n


def test_a_yoshida_of_fewer_settings_is_loaded_and_is_the_same(tiny_memory, tmp_path):
    """Models were saved before the memory had all settings of the module."""
    model = tiny_memory("yoshida")
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for later in ("pool", "layers", "positions", "residual", "normalize"):
        del config["memory"][later]
    (tmp_path / "config.json").write_text(json.dumps(config))
    for again in (with_memory(tmp_path), with_memory(tmp_path, "yoshida", hidden_size=12, hidden_layers=2)):
        with torch.no_grad():
            assert torch.equal(again(text(9), window=4).logits, model(text(9), window=4).logits)
    with pytest.raises(ReproError, match="was saved with memory"):
        with_memory(tmp_path, "yoshida", hidden_size=12, hidden_layers=2, pool="max")


def test_what_cannot_be_is_refused_in_one_line(tiny_memory, tiny_gpt2, tmp_path):
    tiny_gpt2().save_pretrained(tmp_path / "plain")
    tiny_memory("rmt").save_pretrained(tmp_path / "rmt")
    RecurrentLM.from_pretrained(tmp_path / "plain").save_pretrained(tmp_path / "recurrent")
    plain = tmp_path / "plain"
    for make, words in [(lambda: with_memory(plain, "rnt"), "Did you mean 'rmt'"),
                        (lambda: with_memory(plain, "rmt", tokens=2), "Did you mean 'n_tokens'"),
                        (lambda: with_memory(plain, "rmt", n_tokens=-2), "n_tokens of memory 'rmt' is -2"),
                        (lambda: with_memory(plain), "without a memory"),
                        (lambda: with_memory(tmp_path / "rmt", "rmt", n_tokens=5), "was saved with memory"),
                        (lambda: with_memory(plain, "gated", layer=3), "layers 0 to 2"),
                        (lambda: with_memory(plain, "knn", k=0), "k is 0"),
                        (lambda: with_memory(plain, "rmt", n_tokens=0), "n_tokens of memory 'rmt' is 0; it must be"),
                        (lambda: with_memory(plain, "block-recurrent", n_states=0), "is 0; it must be at least 1"),
                        (lambda: RecurrentLM.from_pretrained(tmp_path / "rmt"), "was saved with a memory .*be lost"),
                        (lambda: with_memory(tmp_path / "recurrent", "rmt"), "was saved with a recurrence .*be lost"),
                        (lambda: with_memory(plain, "compressed", rate=0), "rate is 0"),
                        (lambda: with_memory(plain, "compressed", by="max"), "Known: convolution, mean"),
                        (lambda: tiny_memory("cache")(text(20), window=9), "9 tokens and a window of 9 need 18"),
                        (lambda: tiny_memory("rmt")(text(10), window=17), "context ends at 16"),
                        (lambda: tiny_memory("rmt").memory.flops_per_token(4, 4), "overlap is 4")]:
        with pytest.raises(ReproError, match=words):
            make()
    assert with_memory(tmp_path / "rmt", "rmt", n_tokens=2).memory.n_tokens == 2


@pytest.mark.parametrize("read", [lambda folder: with_memory(folder, "gated"), MemoryLM.from_pretrained,
                                  RecurrentLM.from_pretrained], ids=["fresh memory", "saved memory", "recurrence"])
@pytest.mark.parametrize("damage", ["cut in half", "no weights", "no folder", "one weight gone", "a T5"])
def test_a_checkpoint_that_is_missing_or_damaged_is_named(tiny_memory, tiny_gpt2, tmp_path, read, damage, request):
    model = tiny_memory("gated") if "saved memory" in request.node.name else tiny_gpt2()
    model.save_pretrained(tmp_path / "there")
    weights = tmp_path / "there/model.safetensors"
    if damage == "cut in half":
        weights.write_bytes(weights.read_bytes()[:weights.stat().st_size // 2])
    elif damage == "no weights":
        weights.unlink()
    elif damage == "one weight gone":
        kept = load_file(weights)
        del kept["transformer.h.1.mlp.c_fc.weight"]
        save_file(kept, weights, {"format": "pt"})
    elif damage == "a T5":
        (tmp_path / "there/config.json").write_text('{"model_type": "t5"}')
    told = {"cut in half": "there is damaged", "no weights": "there holds no complete checkpoint",
            "no folder": "no checkpoint .*not here", "one weight gone": "there lacks 1 weights, .*h.1.mlp.c_fc.weight",
            "a T5": "there is a checkpoint of t5, (not of gpt2|which is no decoder)"}
    with pytest.raises(ReproError, match=told[damage]) as raised:
        read(tmp_path / ("not here" if damage == "no folder" else "there"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("strange", [29, -1])
def test_ids_of_another_tokeniser_are_told(tiny_memory, tiny_recurrent, strange):
    ids = text(8)
    ids[1, 6] = strange
    told = f"ids go from .*{strange}.* but the model knows 0 to 28"
    for model in (tiny_memory("gated"), tiny_recurrent()):
        with pytest.raises(ReproError, match=told):
            model(ids, window=4)


@pytest.mark.parametrize("name", ["none", "overlap"])
def test_rows_without_a_memory_are_said_to_need_none(tmp_path, name):
    with pytest.raises(ReproError, match=f"memory is '{name}', which means a model without one; load it with "
                                         "repro.models.load_causal_lm, or choose one of block-recurrent, "):
        with_memory(tmp_path, name)


def test_another_attention_implementation_is_refused(tiny_memory):
    model = tiny_memory("cache")
    for name in ("sdpa", "flash_attention_2", "bogus"):
        with pytest.raises(ReproError, match=f"is '{name}'; a MemoryLM needs repro_memory, which handles"):
            model.set_attn_implementation(name)
    model.config._attn_implementation = "sdpa"
    with pytest.raises(ReproError, match="is 'sdpa'; a MemoryLM needs repro_memory, which handles"):
        model(text(9), window=4)


@pytest.fixture
def folder_of_memories(tmp_path, monkeypatch):
    """A folder whose files count as memories too: written by name and text."""
    from repro.recurrence import memories

    monkeypatch.setattr(memories, "__path__", [*memories.__path__, str(tmp_path)])

    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()

    yield write
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(f"{memories.__name__}.{path.stem}", None)


CLASS = """
from repro.recurrence.memories.base import Memory


class {name}(Memory):
    pass
"""


def test_a_file_is_a_memory_under_its_name(folder_of_memories):
    known = list(MEMORIES)
    folder_of_memories(two_words=CLASS.format(name="Toy"))
    assert sorted(MEMORIES) == sorted([*known, "two-words"]) and MEMORIES["two-words"].__name__ == "Toy"


@pytest.mark.parametrize(("text", "words"), [
    ("", "memories/toy.py defines 0 memories; define one class that inherits from Memory"),
    ("from repro.recurrence.memories.gated import Gated", "memories/toy.py defines 0 memories;"),
    (CLASS.format(name="One") + CLASS.format(name="Two"), r"memories/toy.py defines 2 memories \(One, Two\);")])
def test_a_file_without_exactly_one_memory_is_refused_in_one_line(folder_of_memories, text, words):
    folder_of_memories(toy=text)
    with pytest.raises(ReproError, match=words):
        complete("toy")


def test_a_variant_has_the_settings_of_its_memory_and_its_own_defaults():
    assert complete("yoshida-first") == complete("yoshida", insert_layer=0) | {"name": "yoshida-first"}
    assert complete("yoshida-first", insert_layer=2)["insert_layer"] == 2
    assert complete("embeddings-4")["n_embeddings"] == 4
