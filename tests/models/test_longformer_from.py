"""BERT and RoBERTa made into Longformer: against the short model, and against transformers' Longformer."""

import copy

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertModel,
    LongformerForMaskedLM,
    LongformerModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
)

from repro.attention import Full
from repro.errors import ReproError
from repro.models import Longformer, longformer_from
from repro.models.pretrained import is_here, load

P = 20  # positions of the short models
SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 31,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "type_vocab_size": 2}
BERT = BertConfig(**SIZE, max_position_embeddings=P, pad_token_id=0)
ROBERTA = RobertaConfig(**SIZE, max_position_embeddings=P + 2, pad_token_id=1)
KINDS = {"BertModel": (BertModel, BERT), "BertForMaskedLM": (BertForMaskedLM, BERT),
         "RobertaModel": (RobertaModel, ROBERTA), "RobertaForMaskedLM": (RobertaForMaskedLM, ROBERTA)}


@pytest.fixture(scope="module", params=KINDS)
def base(request, shake):
    """A short model; the embedding of padding is 0, as in every trained model."""
    kind, config = KINDS[request.param]
    model = shake(kind(copy.deepcopy(config))).eval()
    model.base_model.embeddings.word_embeddings.weight.data[config.pad_token_id] = 0
    return model


def text(model, n):
    """Two texts of two parts; the second ends in padding. Each has its own global tokens."""
    ids = torch.randint(4, 31, (2, n), generator=torch.Generator().manual_seed(0))
    mask, chosen = torch.ones_like(ids), torch.zeros_like(ids)
    ids[1, n - n // 3:], mask[1, n - n // 3:] = model.config.pad_token_id, 0
    chosen[0, [0, n // 2]] = chosen[1, 2] = 1
    types = (torch.arange(n) > 4).long().expand(2, n)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}, chosen


def short_states(model, given):
    return model.base_model(**given).last_hidden_state


@pytest.mark.parametrize("window", [Full(), 2 * P, 4 * P, [2 * P, 4 * P]], ids=str)
@pytest.mark.parametrize("with_globals", [False, True])
def test_where_all_tokens_see_all_it_is_the_short_model(base, window, with_globals):
    """Its states, and its gradients, to which those of the global projections, their copies, add."""
    ours = longformer_from(base, 60, window)
    given, chosen = text(base, P)
    real = given["attention_mask"].bool()
    base.zero_grad()
    want, found = short_states(base, given), ours.encode(**given, global_attention_mask=chosen * with_globals)
    torch.testing.assert_close(found[real], want[real], atol=1e-5, rtol=1e-5)
    (want[real].cos().sum()).backward()
    (found[real].cos().sum()).backward()
    grads = dict(ours.longformer.named_parameters())
    for name, weight in base.base_model.named_parameters():
        if name.startswith("pooler."):
            continue
        part, dot, kind = name.rpartition(".")
        own = grads[name].grad
        if with_globals and part.endswith((".query", ".key", ".value")):
            own = own + grads[f"{part}_global{dot}{kind}"].grad
        if part.endswith("position_embeddings"):
            first = base.config.pad_token_id + 1
            own, grad = own[first:first + P], weight.grad[-P:]
        else:
            grad = weight.grad
        torch.testing.assert_close(own, grad, atol=2e-5, rtol=1e-4, msg=lambda m, name=name: f"{name} {m}")


def test_inside_half_a_window_it_is_the_short_model_and_beyond_it_is_not(base):
    ours, (given, _) = longformer_from(base, 60, window=8), text(base, P)
    for n, same in ((1, True), (5, True), (6, False)):
        cut = {name: x[:1, :n] for name, x in given.items()}
        assert torch.allclose(ours.encode(**cut), short_states(base, cut), atol=1e-5) == same
    assert longformer_from(base, 60, Full()).encode(**cut).allclose(short_states(base, cut), atol=1e-5)


@pytest.mark.parametrize("with_globals", [False, True])
def test_compiled_it_has_the_same_states(base, with_globals):
    ours = longformer_from(base, 60, 8)
    given, chosen = text(base, P)
    with torch.no_grad():
        want, found = (read(**given, global_attention_mask=chosen * with_globals) for read in (
            ours.encode, torch.compile(ours.encode, backend="eager")))
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("with_globals", [False, True])
def test_under_bf16_autocast(base, with_globals):
    ours, (given, chosen) = longformer_from(base, 60, Full()), text(base, P)
    real = given["attention_mask"].bool()
    want = short_states(base, given)[real]
    with torch.autocast("cpu", torch.bfloat16):
        found = ours.encode(**given, global_attention_mask=chosen * with_globals)[real]
        theirs = short_states(base, given)[real]
        far = longformer_from(base, 60, 4).encode(**{name: x.repeat(1, 3) for name, x in given.items()})
    assert (found - want).abs().mean() < 2 * (theirs - want).abs().mean() + 1e-3
    (found.sum() + far.sum()).backward()
    assert all(weight.grad.isfinite().all() for weight in ours.parameters() if weight.grad is not None)


@pytest.mark.parametrize("with_globals", [False, True])
def test_as_transformers_longformer(base, tmp_path, shake, with_globals):
    """Beyond the base's positions, with other global projections than at the start; read from one folder."""
    ours = shake(longformer_from(base, 60, window=[4, 8]), 1)
    pad = base.config.pad_token_id
    for table in (ours.longformer.embeddings.word_embeddings, ours.longformer.embeddings.position_embeddings):
        table.weight.data[pad] = 0
    ours.save_pretrained(tmp_path)
    theirs = LongformerForMaskedLM.from_pretrained(tmp_path).eval()
    given, chosen = text(base, 45)
    real = given["attention_mask"].bool()
    if with_globals:
        given["global_attention_mask"] = chosen
    found, want = ours(**given), theirs(**given)
    torch.testing.assert_close(found.logits[real], want.logits[real], atol=1e-5, rtol=1e-4)
    body = LongformerModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    torch.testing.assert_close(found.last_hidden_state[real], body(**given).last_hidden_state[real], atol=1e-5,
                               rtol=1e-4)
    for model, out in ((ours, found), (theirs, want)):
        model.zero_grad()
        out.logits[real].cos().sum().backward()
    grads = dict(theirs.named_parameters())
    for name, weight in ours.named_parameters():
        if grads[name].grad is not None and weight.grad is not None:
            torch.testing.assert_close(weight.grad, grads[name].grad, atol=1e-4, rtol=1e-3,
                                       msg=lambda m, name=name: f"{name} {m}")
    again = Longformer.from_pretrained(tmp_path)
    assert torch.equal(again(**given).logits, found.logits) and again.n_positions == 60


def test_positions_go_round_and_round_and_the_rest_is_kept(base):
    before = {name: weight.clone() for name, weight in base.state_dict().items()}
    ours, old = longformer_from(base, 47, window=4), base.base_model.embeddings.position_embeddings.weight
    rows, first = ours.longformer.embeddings.position_embeddings.weight, base.config.pad_token_id + 1
    assert len(rows) == 47 + first
    assert all(torch.equal(rows[first + i], old[len(old) - P + i % P]) for i in range(47))
    body, kept = base.base_model.state_dict(), ours.longformer.state_dict()
    for name, weight in kept.items():
        if "position_embeddings" not in name:
            assert torch.equal(weight, body[name.replace("_global", "")]), name
    assert not any(name.startswith("pooler") for name in kept)
    assert all(torch.equal(weight, before[name]) for name, weight in base.state_dict().items()), "the base is unchanged"
    drawn = longformer_from(base, 2_000, 4, positions="random").longformer.embeddings.position_embeddings.weight[first:]
    assert drawn.std().item() == pytest.approx(0.02, rel=0.03) and len(drawn.unique(dim=0)) == 2_000


def test_a_head_is_kept_and_a_new_one_is_tied(base):
    ours, (given, _) = longformer_from(base, 40, Full()), text(base, P)
    assert ours.lm_head.decoder.weight is ours.longformer.embeddings.word_embeddings.weight
    if hasattr(base, "get_output_embeddings") and base.get_output_embeddings() is not None:
        real = given["attention_mask"].bool()
        torch.testing.assert_close(ours(**given).logits[real], base(**given).logits[real], atol=1e-5, rtol=1e-4)
    loss = ours(**given, labels=given["input_ids"]).loss
    loss.backward()
    assert ours.lm_head.dense.weight.grad.abs().sum() > 0 and loss.isfinite()


def test_mode_dtype_and_dropout_are_the_bases():
    config = copy.deepcopy(BERT)
    config.attention_probs_dropout_prob, config.hidden_dropout_prob, config.hidden_act = 0.3, 0.2, "relu"
    config.layer_norm_eps = 1e-3
    ours = longformer_from(BertModel(config).double().train(), 20, 2)
    assert ours.training and ours.dtype == torch.float64
    assert ours.longformer.encoder.layer[1].attention.self.dropout == 0.3
    for name in ("hidden_act", "hidden_dropout_prob", "layer_norm_eps", "type_vocab_size", "pad_token_id"):
        assert getattr(ours.config, name) == getattr(config, name)


def changed(**settings):
    config = copy.deepcopy(BERT)
    for name, value in settings.items():
        setattr(config, name, value)
    return config


@pytest.mark.parametrize(("change", "said"), [
    ({"window": 5}, "window is 5; it has half on each side .* even number"),
    ({"window": [4]}, r"window is \[4\], 1 for 2 layers"), ({"window": None}, "window is None"),
    ({"max_positions": 19}, "max_positions is 19, but the base already has 20"),
    ({"max_positions": 20.5}, "max_positions is 20.5; it must be a whole number"),
    ({"positions": "copied"}, "unknown positions 'copied'"),
    ({"model": torch.nn.Linear(2, 2)}, "model is a Linear; it must be one of RobertaForMaskedLM, .*, BertModel"),
    ({"model": "minilm-l6"}, "model is 'minilm-l6'; it must be one of"), ({"model": None}, "model is a NoneType"),
    ({"model": lambda: BertForPreTraining(BERT)}, "model is a BertForPreTraining"),
    ({"model": lambda: BertModel(changed(is_decoder=True))}, "model is a decoder"),
    ({"model": lambda: BertForMaskedLM(changed(hidden_act="relu"))}, "head of this BertForMaskedLM uses relu"),
])
def test_bad_conversions(change, said):
    change = {name: value() if callable(value) and not isinstance(value, torch.nn.Module) else value
              for name, value in change.items()}
    with pytest.raises(ReproError, match=said) as error:
        longformer_from(**{"model": BertModel(BERT), "max_positions": 40, "window": 4} | change)
    assert "\n" not in str(error.value)


def test_a_base_without_padding_or_absolute_positions():
    for name, value, said in (("pad_token_id", None, "has no pad_token_id"),
                              ("position_embedding_type", "relative_key", "has relative_key positions")):
        model = BertModel(changed())
        setattr(model.config, name, value)
        with pytest.raises(ReproError, match=said):
            longformer_from(model, 40, 4)


def test_more_tokens_than_positions(base):
    ours = longformer_from(base, 24, window=4)
    with pytest.raises(ReproError, match="the text has 25 tokens, but this Longformer has 24 positions"):
        ours.encode(torch.full((1, 25), 5))
    with pytest.raises(ReproError, match="token_type_ids go from 2 to 2"):
        ours.encode(torch.full((1, 9), 5), token_type_ids=torch.full((1, 9), 2))


@pytest.mark.skipif(not is_here("minilm-l6"), reason="needs the model minilm-l6: set REPRO_MODELS")
def test_a_real_encoder():
    """Pairs of texts: the short model's states under `Full`, and transformers' on 600 tokens."""
    model, coder = load("minilm-l6")
    ids = torch.tensor([coder.encode("What does it jump over? " + "The fox jumps over the lazy dog. " * 12).tolist()])
    types = (torch.arange(ids.shape[1]) > 6).long()[None]
    with torch.no_grad():
        want = model(ids, token_type_ids=types).last_hidden_state
        torch.testing.assert_close(longformer_from(model, 4096, Full()).encode(ids, token_type_ids=types), want,
                                   atol=2e-5, rtol=1e-4)
        ours = longformer_from(model, 4096, 64)
        assert ours.n_positions == 4096 and not ours.training
        theirs = LongformerForMaskedLM(ours.config).eval()
        theirs.load_state_dict(ours.state_dict())
        ids, chosen = ids.repeat(1, 6)[:, :600], torch.zeros(1, 600, dtype=torch.int64)
        chosen[:, :7] = 1
        found = ours.encode(ids, global_attention_mask=chosen)
        torch.testing.assert_close(found, theirs.longformer(ids, global_attention_mask=chosen).last_hidden_state,
                                   atol=2e-5, rtol=1e-4)
