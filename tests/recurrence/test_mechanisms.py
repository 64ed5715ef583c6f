"""Each memory against its mechanism written out once more: slow, explicit, or made of transformers' own model."""

import math

import pytest
import torch

from repro.evaluation import perplexity
from repro.recurrence import RecurrenceConfig, RecurrentLM

T = 4


def text(n, batch=2, seed=0):
    return torch.randint(29, (batch, n), generator=torch.Generator().manual_seed(seed))


def assert_close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def plain(model):
    """transformers' own GPT-2 with the base weights of a MemoryLM."""
    from transformers import GPT2Config, GPT2LMHeadModel

    settings = {k: v for k, v in model.config.to_dict().items() if k != "memory"}
    base = GPT2LMHeadModel(GPT2Config(**settings, attn_implementation="eager")).double().eval()
    base.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("memory.")})
    return base


def layers(model, ids, before=None, heads=None, inputs=None):
    """Inputs of every layer and what follows the last (n_layer + 1 tensors), and (q, k, v) of every layer.

    before: layer -> (B, E, d), seen by all positions. heads(layer, q, k, v, out) -> the attention's result, all
    (B, H, T, D). inputs(layer, hidden) -> the layer's input. Attention is written out query by query.
    """
    base = plain(model).transformer
    hidden = base.wte(ids) + base.wpe.weight[:ids.shape[1]]
    seen, projected = [], []
    for index, block in enumerate(base.h):
        hidden = hidden if inputs is None else inputs(index, hidden)
        seen.append(hidden)
        extra = None if before is None else before.get(index)
        n_before = 0 if extra is None else extra.shape[1]
        whole = hidden if extra is None else torch.cat([extra, hidden], 1)
        q, k, v = (x.unflatten(-1, (model.config.n_head, -1)).transpose(1, 2)
                   for x in block.attn.c_attn(block.ln_1(whole)).chunk(3, -1))
        q = q[:, :, n_before:]
        out = torch.zeros_like(q)
        for i in range(q.shape[2]):
            keys, values = k[:, :, :n_before + i + 1], v[:, :, :n_before + i + 1]
            scores = (q[:, :, i, None] * keys).sum(-1) / math.sqrt(q.shape[-1])
            out[:, :, i] = (scores.softmax(-1)[..., None] * values).sum(2)
        projected.append((q, k, v))
        out = out if heads is None else heads(index, q, k, v, out)
        hidden = hidden + block.attn.c_proj(out.transpose(1, 2).flatten(2))
        hidden = hidden + block.mlp(block.ln_2(hidden))
    seen.append(base.ln_f(hidden))
    return seen, projected


def logits(model, hidden):
    return hidden @ model.transformer.wte.weight.T


def test_the_reference_itself_is_gpt2(tiny_memory):
    model, ids = tiny_memory("cache", torch.float64), text(9)
    assert_close(logits(model, layers(model, ids)[0][-1]), plain(model)(ids).logits)


@pytest.mark.parametrize(("name", "settings", "own"), [
    ("yoshida", {}, {"insert_layer": 1, "hidden_layers": 2}), ("yoshida-first", {}, {"insert_layer": 0}),
    ("embeddings-4", {}, {"insert": "every", "n_embeddings": 4, "hidden_layers": 1}),
    ("yoshida", {"insert_layer": 2, "residual": True, "normalize": True, "n_embeddings": 3}, {"hidden_layers": 2})])
@pytest.mark.parametrize("overlap", [0, 2])
def test_yoshida_is_the_recurrent_model(tiny_memory, tiny_config, dense, name, settings, own, overlap):
    model, ids = tiny_memory(name, torch.float64, **settings), text(15)
    same = RecurrentLM(tiny_config(), RecurrenceConfig(hidden_size=12, **own | settings)).double().eval()
    same.load_state_dict({k.replace("memory.recurrence", "recurrence"): v for k, v in model.state_dict().items()})
    found = model(ids, window=T, overlap=overlap).logits
    assert_close(found, same(ids, window=T, overlap=overlap).logits)
    assert_close(found, dense(same, ids, T, overlap))


def test_the_gate_keeps_some_of_what_it_was_handed(tiny_memory):
    model, ids = tiny_memory("gated", torch.float64, layer=2), text(5 * T)
    memory, found = model.memory, model(ids, window=T).logits
    carried = None
    for k in range(5):
        def inputs(index, hidden, carried=carried):
            return hidden + memory.recurrence(carried) if index == 2 and carried is not None else hidden

        seen, _ = layers(model, ids[:, k * T:k * T + T], inputs=inputs)
        assert_close(found[:, k * T:k * T + T], logits(model, seen[-1]))
        weights = memory.recurrence.layer_scores.softmax(0)
        # the outputs of layers 0, 1, 2; what a layer adds to its input comes after its predecessor's output
        outputs = [*(layer - (memory.recurrence(carried) if i + 1 == 2 and carried is not None else 0)
                     for i, layer in enumerate(seen[1:3])), seen[3]]
        z = sum(w * x.mean(1) for w, x in zip(weights, outputs, strict=True))
        if carried is None:
            carried = z
        else:
            both = torch.cat([carried, z], 1)
            gate = 1 / (1 + (-(both @ memory.gate.weight.T + memory.gate.bias)).exp())
            carried = gate * carried + (1 - gate) * z


def test_memory_tokens_are_embeddings_around_the_text(tiny_memory):
    model, ids = tiny_memory("rmt", torch.float64), text(3 * T)
    base, found = plain(model), model(ids, window=T).logits
    memory = model.memory.first.expand(2, -1, -1)
    for k in range(3):
        tokens = base.transformer.wte(ids[:, k * T:k * T + T]) + base.transformer.wpe.weight[:T]
        whole = torch.cat([memory, tokens, memory], 1)
        whole = whole - base.transformer.wpe.weight[:T + 4]  # which transformers adds by place
        out = base.transformer(inputs_embeds=whole).last_hidden_state
        assert_close(found[:, k * T:k * T + T], logits(model, out[:, 2:-2]))
        memory = out[:, -2:]


def softmax_attention(query, keys, values):
    """Of one head: query (d,), keys and values (n, d)."""
    scores = torch.stack([(query * key).sum() for key in keys]) / math.sqrt(len(query))
    return (scores.softmax(0)[:, None] * values).sum(0)


@pytest.mark.parametrize("overlap", [0, 1])
def test_block_recurrent_states_read_tokens_and_are_read(tiny_memory, overlap):
    model, n = tiny_memory("block-recurrent", torch.float64, layer=1), T - overlap
    memory, ids = model.memory, text(T + 2 * n, batch=1)
    found = model(ids, window=T, overlap=overlap).logits
    heads = [slice(0, 8), slice(8, 16)]
    states, first = torch.zeros(3, 16, dtype=torch.float64), True
    for k in range(3):
        new = []

        def inputs(index, hidden, states=states, first=first, new=new):
            if index != 1:
                return hidden
            tokens = memory.norm_tokens(hidden[0])
            token_q, token_k, token_v = memory.tokens(tokens).split(16, -1)
            state_q, state_k, state_v = memory.states(memory.norm_states(states + memory.ids)).split(16, -1)
            new.extend(torch.cat([softmax_attention(state_q[s, h], torch.cat([state_k, token_k[:n]])[:, h],
                                                    torch.cat([state_v, token_v[:n]])[:, h]) for h in heads])
                       for s in range(3))
            if first:
                return hidden
            read = [torch.cat([softmax_attention(token_q[i, h], state_k[:, h], state_v[:, h]) for h in heads])
                    for i in range(T)]
            return hidden + memory.read_out(torch.stack(read))

        seen, _ = layers(model, ids[:, k * n:k * n + T], inputs=inputs)
        scored = slice(0 if k == 0 else k * n + overlap, k * n + T)
        assert_close(found[:, scored], logits(model, seen[-1])[:, -(scored.stop - scored.start):])
        gate = memory.bias.sigmoid()
        states, first = gate * states + (1 - gate) * memory.write_out(torch.stack(new)), False


@pytest.mark.parametrize("overlap", [0, 1])
def test_linear_memory_is_a_sum_over_everything_passed(tiny_memory, overlap):
    """No matrix is kept: every query weighs every earlier key anew."""
    model, n = tiny_memory("infini", torch.float64), T - overlap
    ids, past = text(T + 3 * n, batch=1), {0: [], 1: [], 2: []}
    found = model(ids, window=T, overlap=overlap).logits

    def feature(x):
        return torch.where(x > 0, x + 1, x.exp())

    for k in range(4):
        def heads(index, q, keys, v, out, k=k):
            mixed = out.clone()
            for head in range(2 if k else 0):
                gate = model.memory.gate[index, head].sigmoid()
                for i in range(T):
                    weights = [(feature(q[0, head, i]) * feature(key[head])).sum() for key, _ in past[index]]
                    recalled = sum(w * value[head] for w, (_, value) in zip(weights, past[index], strict=True))
                    mixed[0, head, i] = gate * recalled / sum(weights) + (1 - gate) * out[0, head, i]
            return mixed

        seen, projected = layers(model, ids[:, k * n:k * n + T], heads=heads)
        for index, (_, keys, values) in enumerate(projected):
            past[index] += [(keys[0, :, i], values[0, :, i]) for i in range(n)]
        scored = slice(0 if k == 0 else k * n + overlap, k * n + T)
        assert_close(found[:, scored], logits(model, seen[-1])[:, -(scored.stop - scored.start):])


@pytest.mark.parametrize(("k", "n_tokens", "overlap"), [(2, 6, 0), (1, 5, 0), (50, 100, 0), (3, 7, 1)])
def test_the_nearest_keys_are_those_of_an_exhaustive_search(tiny_memory, k, n_tokens, overlap):
    model, n = tiny_memory("knn", torch.float64, layer=1, k=k, n_tokens=n_tokens), T - overlap
    ids, past = text(T + 4 * n, batch=1), []
    found = model(ids, window=T, overlap=overlap).logits
    for w in range(5):
        def heads(index, q, keys, v, out, past=tuple(past[-n_tokens:])):
            mixed = out.clone()
            for head in range(2 if past and index == 1 else 0):
                gate = model.memory.gate[head].sigmoid()
                for i in range(T):
                    products = [(q[0, head, i] * key[head]).sum().item() for key, _ in past]
                    nearest_first = sorted(range(len(past)), key=products.__getitem__, reverse=True)
                    keys, values = zip(*(past[place] for place in nearest_first[:k]), strict=True)
                    nearest = softmax_attention(q[0, head, i], [x[head] for x in keys],
                                                torch.stack([x[head] for x in values]))
                    mixed[0, head, i] = gate * nearest + (1 - gate) * out[0, head, i]
            return mixed

        seen, projected = layers(model, ids[:, w * n:w * n + T], heads=heads)
        past += [(projected[1][1][0, :, i], projected[1][2][0, :, i]) for i in range(n)]
        scored = slice(0 if w == 0 else w * n + overlap, w * n + T)
        assert_close(found[:, scored], logits(model, seen[-1])[:, -(scored.stop - scored.start):])


@pytest.mark.parametrize(("window", "overlap"), [(1, 0), (4, 0), (4, 1), (8, 0)])
def test_a_cache_reads_as_one_model_over_both_windows(tiny_memory, window, overlap):
    model, n, scored = tiny_memory("cache", torch.float64), window - overlap, overlap
    ids = text(window + 3 * n)
    found = model(ids, window=window, overlap=overlap).logits
    assert_close(found[:, :window], plain(model)(ids[:, :window]).logits)
    for start in range(n, 4 * n, n):
        both = plain(model)(ids[:, start - n:start + window]).logits
        assert_close(found[:, start + scored:start + window], both[:, n + scored:])


@pytest.mark.parametrize(("window", "overlap"), [(4, 0), (4, 1), (8, 3)])
def test_a_cache_scores_what_long_overlapping_windows_score(tiny_memory, window, overlap):
    model, ids = tiny_memory("cache", torch.float64), text(3 * window, batch=1)[0]
    long = 2 * window - overlap
    assert_close(torch.as_tensor(perplexity(model, ids, window, overlap).target_nll),
                 torch.as_tensor(perplexity(plain(model), ids, long, window).target_nll))


@pytest.mark.parametrize("overlap", [0, 1])
def test_a_cache_holds_the_inputs_of_all_layers_of_a_first_window(tiny_memory, overlap):
    model, n, state = tiny_memory("cache", torch.float64), T - overlap, None
    ids = text(T + 2 * n)
    for start in (0, n, 2 * n):
        _, state = model._read_window(ids[:, start:start + T], state, n)
        seen, _ = layers(model, ids[:, start:start + T])
        assert_close(state, torch.stack(seen[:3], 1)[:, :, :n])


@pytest.mark.parametrize(("rate", "kept", "by"), [(2, 2, "mean"), (2, 1, "convolution"), (3, 3, "mean"),
                                                  (1, 2, "convolution"), (5, 2, "mean")])
def test_compressed_states_are_those_of_groups_of_neighbours(tiny_memory, rate, kept, by):
    model = tiny_memory("compressed", torch.float64, rate=rate, windows=kept, by=by)
    memory, ids, past = model.memory, text(5 * T), []
    found = model(ids, window=T).logits
    for k in range(5):
        before = {index: torch.cat([torch.zeros(2, 0, 16, dtype=torch.float64)] + [
            window[index] + memory.age[index, kept - age] for age, window in zip(range(len(past), 0, -1), past,
                                                                                  strict=True)], 1)
                  for index in range(3)}
        seen, _ = layers(model, ids[:, k * T:k * T + T], before)
        assert_close(found[:, k * T:k * T + T], logits(model, seen[-1]))
        groups = [range(end - rate, end) for end in range(T, rate - 1, -rate)][::-1]
        new = []
        for hidden in seen[:3]:
            made = [sum(hidden[:, i] / rate if by == "mean" else hidden[:, i] @ memory.weight[place]
                        for place, i in enumerate(group)) for group in groups]
            new.append(torch.stack(made, 1) if made else hidden[:, :0])
        past = (past + [new])[-kept:]


def test_a_convolution_starts_as_the_mean(tiny_memory):
    models = [tiny_memory("compressed", torch.float64, fresh=True, by=by) for by in ("mean", "convolution")]
    assert_close(*(model(text(15), window=T).logits for model in models))
