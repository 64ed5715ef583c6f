"""The reader of questions: its windows, and BERT and RoBERTa with h_prev against transformers and explicit
arithmetic."""

import math

import pytest
import torch
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    RobertaConfig,
    RobertaForQuestionAnswering,
    RobertaModel,
)

from repro.errors import ReproError
from repro.evaluation.answers import best_spans
from repro.models import load_model, roberta_mini, save_model
from repro.recurrence import RecurrenceConfig, RecurrentBert, RecurrentEncoder, RecurrentRoberta, question_windows
from repro.training import Answers

SMALL = RecurrenceConfig(insert_layer=1, hidden_size=12, hidden_layers=1, layers="last")


SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24,
         "vocab_size": 31, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
KINDS = {  # 20 positions each
    "roberta": (RobertaConfig(**SIZES, max_position_embeddings=22, type_vocab_size=1, layer_norm_eps=1e-5),
                RecurrentRoberta, RobertaModel, RobertaForQuestionAnswering),
    "bert": (BertConfig(**SIZES, max_position_embeddings=20), RecurrentBert, BertModel, BertForQuestionAnswering)}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def config(kind):
    return KINDS[kind][0]


@pytest.fixture(scope="module")
def make(config, shake):
    def reader(settings=SMALL, dtype=torch.float64):
        return shake(RecurrentEncoder(config, settings).to(dtype)).eval()
    return reader


def windows(batch=2, n=3, length=8, seed=0):
    """Windows of real tokens but for the end of each question's last one."""
    ids = torch.randint(4, 31, (batch, n, length), generator=torch.Generator().manual_seed(seed))
    real = torch.ones_like(ids)
    ids[:, -1, length - 3:], real[:, -1, length - 3:] = 1, 0
    return ids, real


def test_windows_by_hand():
    found = question_windows([7, 8], [20, 21, 22, 23, 24, 25, 26], window=8)
    assert found == [([0, 7, 8, 2, 20, 21, 22, 2], 0, 3), ([0, 7, 8, 2, 23, 24, 25, 2], 3, 6),
                     ([0, 7, 8, 2, 26, 2], 6, 7)]
    assert question_windows([7], range(10, 13), 7, bos=5, sep=6) == [([5, 7, 6, 10, 11, 12, 6], 0, 3)]
    ids, start, stop = question_windows(torch.tensor([7]), torch.arange(600))[1]
    assert (len(ids), start, stop) == (512 - (508 - 92), 508, 600)
    assert type(ids) is list and type(ids[1]) is int


@pytest.mark.parametrize(("question", "context", "window", "said"), [
    ([], [5], 8, "the question is empty"), ([5], [], 8, "the context is empty"),
    ([5] * 5, [5], 8, "window is 8 tokens, but the question has 5 .* at least 9"),
    ([5] * 9, [5], 8, "the question has 9"), ([5], [5], 9.5, "window is 9.5; it must be a whole number"),
    ("what", [5], 9, "question and context must be token ids"), ([5], None, 9, "context is None; it must be a list"),
    ([5], [1.7], 9, "must be token ids"),
])
def test_questions_that_cannot_be_put_into_windows(question, context, window, said):
    with pytest.raises(ReproError, match=said):
        question_windows(question, context, window)


def test_without_recurrence_it_is_transformers_reader_on_each_window(make, config, kind):
    model, theirs = make(), KINDS[kind][3](config).double().eval()
    assert type(model) is KINDS[kind][1]
    theirs.load_state_dict({name: weight for name, weight in model.state_dict().items()
                            if name.startswith((f"{kind}.", "qa_outputs."))})
    ids, real = windows()
    read = model(ids, real, recurrent=False)
    assert read.start_logits.shape == read.end_logits.shape == (2, 3, 8)
    assert read.type_logits.shape == (2, 3) and read.last_hidden_state.shape == (2, 3, 8, 16)
    firsts = []
    for k in range(3):
        want = theirs(ids[:, k], attention_mask=real[:, k])
        hidden = theirs.base_model(ids[:, k], attention_mask=real[:, k]).last_hidden_state
        there = real[:, k].bool()
        torch.testing.assert_close(read.start_logits[:, k][there], want.start_logits[there])
        torch.testing.assert_close(read.end_logits[:, k][there], want.end_logits[there])
        torch.testing.assert_close(read.last_hidden_state[:, k][there], hidden[there])
        firsts.append(hidden[:, 0])
    torch.testing.assert_close(read.type_logits, model.answer_type(torch.stack(firsts).amax(0)))
    recurrent = model(ids, real)
    torch.testing.assert_close(recurrent.start_logits[:, 0], read.start_logits[:, 0])
    for k in (1, 2):
        assert not torch.allclose(recurrent.start_logits[:, k], read.start_logits[:, k], atol=1e-3)


def dense(model, ids, real):
    """Hidden states of every window written out from the weights: explicit masks and softmax, a question at a time."""
    base, first = model.base_model_prefix, 2 * (model.base_model_prefix == "roberta")
    w, settings = dict(model.named_parameters()), model.recurrence.config
    heads, eps = model.config.num_attention_heads, model.config.layer_norm_eps

    def norm(x, name):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def affine(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def gelu(x):
        return 0.5 * x * (1 + torch.erf(x / 2**0.5))

    def one(tokens, h_prev):
        e = f"{base}.embeddings"
        places = range(first, first + len(tokens))
        x = w[f"{e}.word_embeddings.weight"][tokens] + w[f"{e}.position_embeddings.weight"][places]
        x = norm(x + w[f"{e}.token_type_embeddings.weight"][0], f"{e}.LayerNorm")
        pooled, token = [], None
        for layer in range(model.config.num_hidden_layers):
            name = f"{base}.encoder.layer.{layer}"
            token = x.mean(0) if layer == settings.insert_layer else token
            sees = h_prev is not None and (settings.insert == "every" or layer == settings.insert_layer)
            keys = torch.cat([h_prev, x]) if sees else x
            query, key, value = (affine(y, f"{name}.attention.self.{part}")
                                 for part, y in (("query", x), ("key", keys), ("value", keys)))
            size, out = x.shape[-1] // heads, []
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                out.append((query[:, part] @ key[:, part].T / math.sqrt(size)).softmax(-1) @ value[:, part])
            x = norm(affine(torch.cat(out, -1), f"{name}.attention.output.dense") + x,
                     f"{name}.attention.output.LayerNorm")
            inner = gelu(affine(x, f"{name}.intermediate.dense"))
            x = norm(affine(inner, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
            pooled.append(x.mean(0))
        if settings.normalize:
            pooled = [z / z.square().mean().sqrt() for z in pooled]
        if settings.layers == "last":
            return x, pooled[-1], token
        scores = w["recurrence.layer_scores"].softmax(0)
        return x, sum(score * z for score, z in zip(scores, pooled, strict=True)), token

    found = []
    for row, there in zip(ids, real.bool(), strict=True):
        h_prev, states = None, []
        for tokens, kept in zip(row, there, strict=True):
            x, z, token = one(tokens[kept], h_prev)
            for number in range(settings.hidden_layers + 1):
                z = affine(z, f"recurrence.feedforward.{2 * number}")
                z = gelu(z) if number < settings.hidden_layers else z
            h_prev = z.reshape(settings.n_embeddings, -1)
            if settings.residual:
                h_prev = token + h_prev * (token.square().mean().sqrt() if settings.normalize else 1)
            states.append(x)
        found.append(states)
    return found


@pytest.mark.parametrize("settings", [
    SMALL, RecurrenceConfig(2, 8, 2, layers="last"), RecurrenceConfig(0, 8, 1),
    RecurrenceConfig(1, 8, 1, n_embeddings=3, insert="every", layers="last"),
    RecurrenceConfig(1, 8, 1, layers="last", residual=True), RecurrenceConfig(2, 8, 1, layers="last", residual=True,
                                                                              normalize=True),
    RecurrenceConfig(0, 8, 1, residual=True, normalize=True)], ids=str)
def test_against_explicit_arithmetic_with_every_gradient(make, settings):
    model, (ids, real) = make(settings), windows()
    read = model(ids, real)
    mine, theirs = 0, 0
    for b, states in enumerate(dense(model, ids, real)):
        for k, want in enumerate(states):
            found = read.last_hidden_state[b, k][real[b, k].bool()]
            torch.testing.assert_close(found, want)
            weights = torch.randn(want.shape, generator=torch.Generator().manual_seed(b * 3 + k), dtype=want.dtype)
            mine, theirs = mine + (found * weights).sum(), theirs + (want * weights).sum()
    names, parameters = zip(*model.named_parameters(), strict=True)
    for name, *grads in zip(names, *(torch.autograd.grad(x, parameters, allow_unused=True) for x in (mine, theirs)),
                            strict=True):
        if name.startswith((f"{model.base_model_prefix}.", "recurrence.")):
            torch.testing.assert_close(*(0 * model.qa_outputs.bias.sum() if g is None else g for g in grads),
                                       msg=lambda m, name=name: f"{name} {m}")


def test_the_papers_reading_is_what_a_reader_starts_with(config, kind):
    model = RecurrentEncoder(config)
    assert model.recurrence.config == RecurrenceConfig(insert_layer=1, hidden_size=768, hidden_layers=1, layers="last")
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()
              if not name.startswith(f"{kind}.")}
    assert shapes == {
        "qa_outputs.weight": (2, 16), "qa_outputs.bias": (2,), "answer_type.weight": (3, 16), "answer_type.bias": (3,),
        "recurrence.feedforward.0.weight": (768, 16), "recurrence.feedforward.0.bias": (768,),
        "recurrence.feedforward.2.weight": (16, 768), "recurrence.feedforward.2.bias": (16,)}
    theirs = KINDS[kind][3](config).state_dict()
    assert {name for name in model.state_dict() if not name.startswith(("answer_type.", "recurrence."))} == set(theirs)
    assert model.recurrence.feedforward[0].weight.std().item() == pytest.approx((2 / 16)**0.5, rel=0.05)


def test_windows_of_padding_change_nothing(make):
    model, (ids, real) = make(), windows()
    want = model(ids, real)
    padding = torch.full((2, 2, 8), 1)
    for place in (3, 1, 0):  # behind, between, in front
        longer, mask = (torch.cat([x[:, :place], fill, x[:, place:]], 1)
                        for x, fill in ((ids, padding), (real, 0 * padding)))
        kept = [k for k in range(5) if not place <= k < place + 2]
        for recurrent in (True, False):
            read, plain = model(longer, mask, recurrent), want if recurrent else model(ids, real, False)
            for name in ("start_logits", "end_logits", "last_hidden_state"):
                torch.testing.assert_close(getattr(read, name)[:, kept], getattr(plain, name))
                assert getattr(read, name).isfinite().all()
            torch.testing.assert_close(read.type_logits, plain.type_logits)
    alone = model(ids[:1, :2], real[:1, :2])  # questions with different numbers of windows, in one batch
    mixed = ids.clone(), real.clone()
    mixed[0][0, 2], mixed[1][0, 2] = 1, 0
    read = model(*mixed)
    torch.testing.assert_close(read.start_logits[:1, :2], alone.start_logits)
    torch.testing.assert_close(read.type_logits[:1], alone.type_logits)
    torch.testing.assert_close(read.start_logits[1], want.start_logits[1])


def test_padding_has_no_position(make):
    model, (ids, real) = make(), windows(length=20)
    longer, mask = torch.nn.functional.pad(ids, (0, 5), value=1), torch.nn.functional.pad(real, (0, 5))
    torch.testing.assert_close(model(longer, mask).start_logits[..., :20][real.bool()],
                               model(ids, real).start_logits[real.bool()])


@pytest.mark.parametrize("recurrent", [True, False])
def test_padding_behind_the_longest_of_a_window_is_not_read(make, recurrent):
    model, (ids, real), shapes = make(), windows(), []
    real[0, 2] = 0
    model.base_model.embeddings.register_forward_hook(lambda module, given, made: shapes.append(tuple(given[0].shape)))
    read = model(ids, real, recurrent)
    assert shapes == [(2, 8), (2, 8), (1, 5)]
    assert not read.last_hidden_state[:, 2, 5:].any() and not read.last_hidden_state[0, 2].any()


@pytest.mark.parametrize("pool", ["mean", "max", "attention"])
@pytest.mark.parametrize("recurrent", [True, False])
def test_a_window_of_padding_for_all_questions_is_not_read(make, pool, recurrent):
    model, (ids, real) = make(RecurrenceConfig(1, 12, 1, layers="last", pool=pool)), windows()
    longer, mask = (torch.cat([x, torch.full((2, 1, 8), fill)], 1) for x, fill in ((ids, 1), (real, 0)))
    read, want = model(longer, mask, recurrent), model(ids, real, recurrent)
    torch.testing.assert_close(read.start_logits[:, :3], want.start_logits)
    torch.testing.assert_close(read.type_logits, want.type_logits)


@pytest.mark.parametrize("recurrent", [True, False])
def test_recomputing_windows_gives_the_same_gradients(make, recurrent):
    model, (ids, real) = make(), windows()
    real[0, 2] = 0
    found = []
    for recompute in ("none", "window"):
        model.zero_grad()
        read = model(ids, real, recurrent, recompute=recompute)
        (read.start_logits.sin().sum() + read.end_logits.cos().sum() + read.type_logits.sum()).backward()
        found.append({name: None if x.grad is None else x.grad.clone() for name, x in model.named_parameters()})
    assert (found[0]["recurrence.feedforward.0.weight"] is not None) == recurrent
    for name, grad in found[0].items():
        assert (grad is None) == (found[1][name] is None)
        if grad is not None:
            torch.testing.assert_close(found[1][name], grad)


def test_recomputing_windows_keeps_little(make):
    model, (ids, _) = make(dtype=torch.float32), windows(2, 12)

    def kept(recompute):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.nbytes) or x, lambda x: x):
            model(ids[:, :, :5], recompute=recompute).start_logits.sum().backward()
        return sum(sizes)
    assert kept("window") < 0.2 * kept("none")


def test_another_questions_states_take_the_place_of_its_own(make):
    model, (ids, real) = make(), windows()
    states = model.states(ids, real)
    assert states.shape == (2, 3, 16)
    want = model(ids, real)
    torch.testing.assert_close(states[:, 0], want.last_hidden_state[:, 0].mean(1))
    torch.testing.assert_close(states[:, 2], want.last_hidden_state[:, 2, :5].mean(1))
    own = model(ids, real, given=states.roll(1, 1))  # window k sees what k - 1 left; the first sees nothing
    torch.testing.assert_close(own.start_logits, want.start_logits)
    other = model(ids, real, given=states.roll(1, 1).roll(1, 0))
    torch.testing.assert_close(other.start_logits[:, 0], want.start_logits[:, 0])
    assert not torch.allclose(other.start_logits[:, 1:], want.start_logits[:, 1:], atol=1e-6)


def test_saved_and_loaded(make, kind, tmp_path):
    model, (ids, real) = make(dtype=torch.float32), windows()
    model.save_pretrained(tmp_path / "reader")
    again = RecurrentEncoder.from_pretrained(tmp_path / "reader")
    assert type(again) is type(load_model(tmp_path / "reader")) is KINDS[kind][1]
    assert not again.training and again.recurrence.config == SMALL
    assert torch.equal(again(ids, real).start_logits, model(ids, real).start_logits)
    assert torch.equal(again(ids, real).type_logits, model(ids, real).type_logits)
    with pytest.raises(ReproError, match="was saved with recurrence .*'hidden_size': 12"):
        RecurrentEncoder.from_pretrained(tmp_path / "reader", RecurrenceConfig())
    with pytest.raises(ReproError, match="recurrence is a dict; give a RecurrenceConfig"):
        RecurrentEncoder.from_pretrained(tmp_path / "reader", {"hidden_size": 12})
    _, report = KINDS[kind][3].from_pretrained(tmp_path / "reader", output_loading_info=True)
    assert not report["missing_keys"]


def test_made_of_any_checkpoint_of_its_kind(config, kind, shake, tmp_path):
    plain = shake(KINDS[kind][2](config))
    plain.save_pretrained(tmp_path)
    fresh = RecurrentEncoder.from_pretrained(tmp_path, SMALL)
    for name, weight in fresh.base_model.state_dict().items():
        assert torch.equal(weight, plain.state_dict()[name])
    assert fresh.recurrence.feedforward[0].weight.std().item() == pytest.approx((2 / 16)**0.5, rel=0.25)
    other = KINDS["bert" if kind == "roberta" else "roberta"][1]
    with pytest.raises(ReproError, match=f"the checkpoint .* is of {kind}, not of {other.named}; give one of "):
        other.from_pretrained(tmp_path)
    with pytest.raises(ReproError, match=f"config is of {kind}, not of {other.named}"):
        other(config)


def test_a_roberta_with_its_output_layer_and_checkpoints_that_are_none(shake, tmp_path):
    masked = shake(roberta_mini(2, 16, 2, 31, 20))
    save_model(masked, tmp_path / "masked", "bf16")
    fresh = RecurrentEncoder.from_pretrained(tmp_path / "masked", SMALL)
    assert fresh.dtype == torch.float32
    for name, weight in masked.roberta.state_dict().items():
        assert torch.equal(fresh.roberta.state_dict()[name], weight.bfloat16().float())
    assert fresh.recurrence.feedforward[0].weight.std().item() == pytest.approx((2 / 16)**0.5, rel=0.25)
    assert fresh.qa_outputs.weight.std().item() < 0.05
    GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=9)).save_pretrained(tmp_path / "gpt2")
    (tmp_path / "empty").mkdir()
    (tmp_path / "masked" / "model.safetensors").write_bytes(b"")
    for name, said in (("gpt2", "is of gpt2, not of BERT or RoBERTa; give one"), ("empty", "holds no config.json"),
                       ("masked", "checkpoint in .*masked is damaged"), ("nowhere", "no checkpoint '.*nowhere'")):
        with pytest.raises(ReproError, match=said):
            RecurrentEncoder.from_pretrained(tmp_path / name)
    with pytest.raises(ReproError, match="a checkpoint is read by its folder or hub name .*, not by None"):
        RecurrentEncoder.from_pretrained(None)
    with pytest.raises(ReproError, match="config is of gpt2, not of BERT or RoBERTa"):
        RecurrentEncoder(GPT2Config())
    with pytest.raises(ReproError, match="position_embedding_type is 'relative_key'; .* absolute positions"):
        RecurrentBert(BertConfig(**SIZES, position_embedding_type="relative_key"))


def test_a_decoder_is_refused_and_only_roberta_needs_an_id_of_padding():
    with pytest.raises(ReproError, match="is_decoder is True"):
        RecurrentBert(BertConfig(**SIZES, is_decoder=True))
    with pytest.raises(ReproError, match="pad_token_id is None, but positions of RoBERTa count from it"):
        RecurrentRoberta(RobertaConfig(**SIZES | {"pad_token_id": None}))
    made = RecurrentBert(BertConfig(**SIZES | {"pad_token_id": None}))
    assert made.n_positions == made.config.max_position_embeddings


def test_in_bfloat16_it_reads_the_same_but_for_rounding(make):
    """On a CPU attention is computed another way then."""
    (ids, real), model = windows(), make()
    want, found = model(ids, real), model.to(torch.bfloat16)(ids, real)
    assert found.start_logits.dtype == torch.bfloat16
    near = (found.last_hidden_state.double() - want.last_hidden_state)[real.bool()].abs()
    assert near.mean() < 0.02 * want.last_hidden_state.abs().mean()
    torch.testing.assert_close(found.type_logits.double(), want.type_logits, atol=0.1, rtol=0.1)


@pytest.mark.parametrize(("arguments", "said"), [
    ((torch.ones(2, 8, dtype=torch.int64),), r"windows are torch.int64 of shape \(2, 8\)"),
    ((torch.full((1, 1, 21), 5),), r"a window has 21 tokens, but this (BERT|RoBERTa) has 20 positions"),
    ((torch.full((1, 2, 5), 5), torch.ones(1, 2, 4)), r"attention_mask has shape \(1, 2, 4\), windows \(1, 2, 5\)"),
    ((torch.full((1, 2, 5), 5), torch.zeros(1, 2, 5)), "a question has only padding"),
    ((torch.full((1, 2, 5), 5), None, True, "windows"), "unknown recompute 'windows'.*none, window"),
    ((torch.full((2, 3, 5), 5), None, True, "none", torch.zeros(2, 2, 8)), r"given has shape \(2, 2, 8\); .*\(2, 3, "),
    ((torch.full((2, 3, 5), 5), None, True, "none", torch.zeros(1, 3, 8)), r"given has shape \(1, 3, 8\)"),
    ((torch.full((1, 2, 5), 5), None, False, "none", torch.zeros(1, 2, 16)), "recurrent=False sees none"),
])
def test_bad_input(make, arguments, said):
    with pytest.raises(ReproError, match=said):
        make()(*arguments)


def test_the_loss_is_one_softmax_over_the_text_of_all_windows(make):
    """Written out for a span in one place, one in two places, and a question whose answer is no."""
    model, (ids, real) = make(), windows(3)
    text = real.bool() & (torch.arange(8) > 2)
    starts, ends = torch.zeros_like(text), torch.zeros_like(text)
    starts[0, 1, 4] = ends[0, 1, 6] = True
    starts[1, 0, 3] = ends[1, 0, 3] = starts[1, 2, 3] = ends[1, 2, 4] = True
    batch = {"windows": ids, "attention_mask": real, "text": text, "starts": starts, "ends": ends,
             "types": torch.tensor([0, 0, 2])}
    read, want = model(ids, real), 0
    for b, right in enumerate(([((1, 4), (1, 6))], [((0, 3), (0, 3)), ((2, 3), (2, 4))], [])):
        want = want - read.type_logits[b].log_softmax(0)[(0, 0, 2)[b]]
        for side, logits in enumerate((read.start_logits[b], read.end_logits[b])):
            if right:
                every = sum(logits[w, t].exp() for w in range(3) for t in range(8) if text[b, w, t])
                want = want - (sum(logits[one[side]].exp() for one in right) / every).log() / 2
    torch.testing.assert_close(Answers(model)(batch), want / 3)
    want.backward()
    assert all(x.grad is None or x.grad.isfinite().all() for x in model.parameters())
    assert not torch.allclose(Answers(model, recurrent=False)(batch), want / 3)
    assert best_spans(read.start_logits, read.end_logits, text)[0][1] > 2


def test_compiled_it_reads_the_same(make):
    model, given, counts = make(dtype=torch.float32), windows(), torch._dynamo.utils.counters["frames"]
    traced = counts["ok"]
    found, want = (vars(call(*given)) for call in (torch.compile(model, backend="eager"), model))
    assert found.keys() == want.keys() and counts["ok"] > traced
    for name in want:
        torch.testing.assert_close(found[name], want[name], msg=lambda said, name=name: f"{name}: {said}")
