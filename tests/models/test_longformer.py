"""RoBERTa made into Longformer: against transformers' own model, and against the RoBERTa that it was made of."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from transformers import LongformerConfig, LongformerForMaskedLM, RobertaConfig, RobertaForMaskedLM

from repro.errors import ReproError
from repro.models import Longformer, roberta_mini, save_model
from repro.training import MaskedLM


@pytest.fixture(scope="module")
def roberta(shake):
    """3 layers of width 16, 31 ids, 20 positions; the row of padding is 0, as in every trained model."""
    model = shake(roberta_mini(3, 16, 2, 31, 20)).eval()
    model.roberta.embeddings.word_embeddings.weight.data[1] = 0
    return model


@pytest.fixture(scope="module")
def theirs(shake):
    config = LongformerConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=3, intermediate_size=24,
                              attention_window=[4, 8, 4], vocab_size=31, max_position_embeddings=52, pad_token_id=1,
                              attention_probs_dropout_prob=0.1, hidden_dropout_prob=0.1, layer_norm_eps=1e-5,
                              type_vocab_size=1)
    return shake(LongformerForMaskedLM(config), 1).eval()


def text(n, seed=0):
    """Two texts of n tokens, the second with padding behind and a global token; the first has two of those."""
    ids = torch.randint(4, 30, (2, n), generator=torch.Generator().manual_seed(seed))
    masks = {"attention_mask": torch.ones_like(ids), "global_attention_mask": torch.zeros_like(ids)}
    masks["attention_mask"][1, n - n // 3:] = 0
    ids[1, n - n // 3:] = 1
    masks["global_attention_mask"][0, [0, n // 2]] = masks["global_attention_mask"][1, 2] = 1
    return ids, masks


def told(model, ids, masks):
    """Logits, and the gradients of every weight that has one, of a mean of the real tokens' losses."""
    model.zero_grad()
    out = model(ids, **masks, labels=ids.masked_fill(masks["attention_mask"] == 0, -100))
    out.loss.backward()
    return out.logits.detach(), {name: torch.zeros_like(one) if one.grad is None else one.grad.clone()
                                 for name, one in model.named_parameters()}, out.loss.item()


@pytest.mark.parametrize("n", [48, 29, 5])
def test_logits_and_gradients_are_transformers_both_ways(theirs, tmp_path, n):
    theirs.save_pretrained(tmp_path / "theirs")
    ours = Longformer.from_pretrained(tmp_path / "theirs")
    assert isinstance(ours, LongformerForMaskedLM) and not ours.training
    ours.save_pretrained(tmp_path / "ours")
    again, report = LongformerForMaskedLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids, masks = text(n)
    want, grads, loss = told(theirs, ids, masks)
    for model in (ours, again):
        logits, found, value = told(model, ids, masks)
        torch.testing.assert_close(logits, want, atol=1e-5, rtol=1e-5)
        assert value == pytest.approx(loss, rel=1e-5)
        for name, grad in grads.items():
            torch.testing.assert_close(found[name], grad, atol=1e-5, rtol=1e-4, msg=lambda m, name=name: f"{name} {m}")
    plain = ours(ids[:1]).logits, theirs(ids[:1]).logits
    torch.testing.assert_close(*plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("n", [20, 13])
def test_under_a_window_over_everything_it_is_the_roberta(roberta, n):
    """Global tokens change nothing, since their projections start as the others'; nor do their gradients, summed."""
    ours = Longformer.from_roberta(roberta, 60, window=40)
    ids, masks = text(n, 2)
    want, grads, _ = told(roberta, ids, {"attention_mask": masks["attention_mask"]})
    found, own, _ = told(ours, ids, masks)
    real = masks["attention_mask"].bool()
    torch.testing.assert_close(found[real], want[real], atol=1e-5, rtol=1e-5)
    for name, grad in grads.items():
        other = own[name.replace("roberta.", "longformer.", 1)]
        part, dot, kind = name.rpartition(".")
        if part.endswith((".query", ".key", ".value")):
            other = other + own[f"longformer.{part.removeprefix('roberta.')}_global{dot}{kind}"]
        elif part.endswith("position_embeddings"):
            other = other[:len(grad)]
        torch.testing.assert_close(other, grad, atol=1e-5, rtol=1e-4, msg=lambda m, name=name: f"{name} {m}")
    narrow = Longformer.from_roberta(roberta, 60, window=4)(ids, **masks).logits
    assert not torch.allclose(narrow[real], want[real], atol=1e-3)


def test_up_to_half_a_window_and_one_token_nothing_changes(roberta):
    """A window of w shows w/2 keys on each side: of w/2 + 1 tokens every one sees all, of one more the ends do not."""
    ours, ids = Longformer.from_roberta(roberta, 60, window=8), text(20)[0][:1]
    for n, same in ((1, True), (5, True), (6, False)):
        assert torch.allclose(ours(ids[:, :n]).logits, roberta(ids[:, :n]).logits, atol=1e-5) == same


def test_positions_are_copied_round_and_round_exactly(roberta):
    old = roberta.roberta.embeddings.position_embeddings.weight
    new = Longformer.from_roberta(roberta, 47, window=4).longformer.embeddings.position_embeddings.weight
    assert len(new) == 49
    assert torch.equal(new[:2], old[:2])
    for i in range(47):
        assert torch.equal(new[2 + i], old[2 + i % 20])
    model = Longformer.from_roberta(roberta, 20, window=4)
    assert torch.equal(model.longformer.embeddings.position_embeddings.weight, old)


def test_random_positions_are_drawn_and_all_else_is_kept(roberta):
    before = {name: weight.clone() for name, weight in roberta.state_dict().items()}
    torch.manual_seed(3)
    copied, drawn = (Longformer.from_roberta(roberta, 2_000, [4, 4, 8], how) for how in ("copy", "random"))
    name = "longformer.embeddings.position_embeddings.weight"
    rows = drawn.state_dict()[name]
    assert torch.equal(rows[:2], copied.state_dict()[name][:2])
    assert rows[2:].std().item() == pytest.approx(roberta.config.initializer_range, rel=0.02)
    assert len(rows.unique(dim=0)) == 2_002
    for key, weight in copied.state_dict().items():
        assert key == name or torch.equal(weight, drawn.state_dict()[key])
        if key != name:
            source = key.replace("longformer.", "roberta.", 1).replace("_global", "")
            assert torch.equal(weight, roberta.state_dict()[source]), key
    assert copied.config.attention_window == [4, 4, 8]
    assert all(torch.equal(weight, before[key]) for key, weight in roberta.state_dict().items())


def test_from_a_folder_and_with_the_bases_settings(roberta, tmp_path):
    save_model(roberta, tmp_path / "base")
    ours = Longformer.from_roberta(str(tmp_path / "base"), 40, window=6)
    assert not ours.training and ours.n_positions == 40
    ids, masks = text(31)
    torch.testing.assert_close(ours(ids, **masks).logits,
                               Longformer.from_roberta(roberta, 40, window=6)(ids, **masks).logits)
    config = RobertaConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
                           vocab_size=11, max_position_embeddings=12, hidden_act="relu", hidden_dropout_prob=0.2,
                           attention_probs_dropout_prob=0.3, layer_norm_eps=1e-3, type_vocab_size=2)
    told = Longformer.from_roberta(RobertaForMaskedLM(config).double().train(), 10, window=2)
    assert told.dtype == torch.float64 and told.training
    assert told.longformer.encoder.layer[0].attention.self.dropout == 0.3
    for name in ("hidden_act", "hidden_dropout_prob", "layer_norm_eps", "type_vocab_size"):
        assert getattr(told.config, name) == getattr(config, name)


def test_encoding_layers_recomputed_and_masked_training_give_the_same(roberta):
    ours = Longformer.from_roberta(roberta, 60, window=6)
    ids, masks = text(33)
    states = ours.encode(ids, **masks)
    assert states.shape == (2, 33, 16)
    torch.testing.assert_close(ours.lm_head(states), ours(ids, **masks).logits)
    batch = {"ids": ids[:1], "positions": torch.tensor([[3, 17, 30]]), "targets": torch.tensor([[5, -100, 9]])}
    logits = ours(ids[:1]).logits[0, [3, 30]].log_softmax(-1)
    want = -(logits[0, 5] + logits[1, 9]) / 2
    torch.testing.assert_close(MaskedLM(ours)(batch), want)
    _, grads, _ = told(ours.train(), ids, masks)
    ours.activation_checkpointing_enable()
    _, again, _ = told(ours, ids, masks)
    ours.activation_checkpointing_disable()
    ours.eval()
    assert all(torch.equal(grad, again[name]) for name, grad in grads.items())


def test_only_later_positions_learn(roberta):
    ours = Longformer.from_roberta(roberta, 60, window=6).train()
    before = {name: weight.clone() for name, weight in ours.state_dict().items()}
    ours.learn_positions_only(20)
    optimizer = torch.optim.AdamW([one for one in ours.parameters() if one.requires_grad], 0.1, weight_decay=0.0)
    ids = text(50)[0][:1]
    ours(ids, labels=ids).loss.backward()
    optimizer.step()
    name = "longformer.embeddings.position_embeddings.weight"
    moved = (ours.state_dict()[name] != before[name]).any(1).nonzero()[:, 0].tolist()
    assert moved == list(range(22, 52))
    assert all(torch.equal(weight, before[key]) for key, weight in ours.state_dict().items() if key != name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_positions_stay_frozen_in_every_copy(roberta, dtype):
    """Against a hook that erases the gradient of the first rows, which only the table that it is put on has."""
    ours = Longformer.from_roberta(roberta, 60, window=6).to(dtype)
    ids, name = text(50)[0], "longformer.embeddings.position_embeddings.weight"
    hooked = copy.deepcopy(ours).requires_grad_(False)
    table = hooked.get_parameter(name).requires_grad_(True)
    table.register_hook(lambda grad: torch.cat([torch.zeros_like(grad[:22]), grad[22:]]))
    wanted = hooked(ids, labels=ids)
    wanted.loss.backward()
    keys = list(ours.state_dict())
    ours.learn_positions_only(20)
    assert list(ours.state_dict()) == keys
    for one in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.optim.swa_utils.AveragedModel(
            ours).module):
        one.zero_grad()
        found = one(ids, labels=ids)
        found.loss.backward()
        grads = {key: weight.grad for key, weight in one.named_parameters() if weight.requires_grad}
        assert list(grads) == [name] and not grads[name][:22].any() and grads[name][22:52].any()
        assert torch.equal(found.logits, wanted.logits) and torch.equal(grads[name], table.grad)
    ours.learn_positions_only(30)
    ours.zero_grad()
    ours(ids, labels=ids).loss.backward()
    assert not ours.get_parameter(name).grad[:32].any() and ours.get_parameter(name).grad[32:52].any()


@pytest.mark.parametrize(("change", "said"), [
    ({"window": 5}, "window is 5; it has half on each side .* even number"),
    ({"window": [4, 4]}, r"window is \[4, 4\], 2 for 3 layers"),
    ({"window": [4, 3, 4]}, "window is 3; "),
    ({"window": 0}, "window is 0; "),
    ({"window": 4.0}, "window is 4.0; "),
    ({"window": "4"}, "window is '4'; "),
    ({"window": {0: 4, 1: 4, 2: 4}}, "window is {0: 4, 1: 4, 2: 4}; "),
    ({"max_positions": 21.5}, "max_positions is 21.5; it must be a whole number"),
    ({"max_positions": 19}, "max_positions is 19, but the base already has 20"),
    ({"positions": "copied"}, "unknown positions 'copied'. Did you mean 'copy'.* Known: copy, random"),
    ({"roberta": torch.nn.Linear(2, 2)}, "roberta is a Linear; it must be a RobertaForMaskedLM"),
])
def test_bad_conversions(roberta, change, said):
    with pytest.raises(ReproError, match=said) as error:
        Longformer.from_roberta(**{"roberta": roberta, "max_positions": 40, "window": 4} | change)
    assert "\n" not in str(error.value)


def test_windows_may_be_numpys_or_torchs_numbers(roberta):
    for window in (np.int64(4), np.array([4, 4, 4]), torch.tensor([4, 4, 4]), [np.int32(4)] * 3):
        assert Longformer.from_roberta(roberta, 20, window).config.attention_window == [4, 4, 4]


def test_what_else_transformers_takes(theirs, tmp_path):
    """Global tokens as a 2 of attention_mask, and the token types that tokenisers give."""
    theirs.save_pretrained(tmp_path / "theirs")
    ours, (ids, masks) = Longformer.from_pretrained(tmp_path / "theirs"), text(24)
    mask = masks["attention_mask"] * (1 + masks["global_attention_mask"])
    want = theirs(ids, attention_mask=mask).logits
    for found in (ours(ids, mask).logits, ours(ids, mask, masks["global_attention_mask"]).logits,
                  ours(input_ids=ids, attention_mask=mask, token_type_ids=0 * ids).logits):
        torch.testing.assert_close(found, want, atol=1e-5, rtol=1e-5)
    loss, logits = ours(ids, mask, labels=ids, return_dict=False)
    torch.testing.assert_close(logits, want, atol=1e-5, rtol=1e-5)
    assert loss == ours(ids, mask, labels=ids, output_hidden_states=False).loss
    for name in ("output_hidden_states", "output_attentions"):
        with pytest.raises(ReproError, match=f"{name} is True, but this Longformer stores none"):
            ours(ids, **{name: True})


def test_bad_texts_and_labels(roberta, tmp_path):
    ours, ids = Longformer.from_roberta(roberta, 24, window=4), torch.full((1, 25), 5)
    with pytest.raises(ReproError, match="the text has 25 tokens, but this Longformer has 24 positions"):
        ours(ids)
    ids[0, 20:] = 1  # padding has no position
    assert ours(ids, attention_mask=(ids != 1).long()).logits.shape == (1, 25, 31)
    with pytest.raises(ReproError, match=r"labels have shape \(1, 24\)"):
        ours(ids[:, :24], labels=torch.full((1, 24), -100))
    with pytest.raises(ReproError, match=r"labels have shape \(1, 3\), input_ids \(1, 24\)"):
        ours(ids[:, :24], labels=ids[:, :3])
    for labels, said in ((ids[:, :24] + 100, "labels go from 101 to 105, but the model knows 0 to 30"),
                         (ids[:, :24] - 10, "labels go from -9 to -5"), (ids[:, :24].float(), "labels are torch.flo")):
        with pytest.raises(ReproError, match=said):
            ours(ids[:, :24], labels=labels)
    with pytest.raises(ReproError, match=r"attention_mask is \(1, 3\); it must be \(B, N\), here \(1, 24\)"):
        ours(ids[:, :24], attention_mask=torch.ones(1, 3))
    with pytest.raises(ReproError, match="has no tokens"):
        ours(ids[:, :0])
    for read, example in ((Longformer.from_pretrained, "allenai/longformer-base-4096"),
                          (Longformer.from_roberta, "FacebookAI/roberta-base")):
        with pytest.raises(ReproError, match=f"no checkpoint '.*nowhere' .*{example}"):
            read(tmp_path / "nowhere")


def test_checkpoints_of_another_kind_and_those_without_weights_are_refused(roberta, tmp_path):
    save_model(roberta, tmp_path / "roberta")
    ours = Longformer.from_roberta(roberta, 24, window=4)
    save_model(ours, tmp_path / "longformer")
    model, told = Longformer.from_pretrained(tmp_path / "longformer", output_loading_info=True)
    assert isinstance(model, Longformer) and not told["missing_keys"]
    kept = {name: weight for name, weight in ours.state_dict().items() if "query_global" not in name}
    LongformerForMaskedLM.save_pretrained(ours, tmp_path / "part", state_dict=kept)
    for read, name, said in (
            (Longformer.from_pretrained, "roberta", "a checkpoint of roberta, not of longformer; Longformer.from_rob"),
            (Longformer.from_pretrained, "part", "lacks 6 weights, the first of them .*query_global"),
            (Longformer.from_roberta, "longformer", "a checkpoint of longformer, not of roberta; give")):
        with pytest.raises(ReproError, match=said):
            read(tmp_path / name)


def test_words_that_are_not_tied_to_the_output_layer_stay_so(tmp_path, shake):
    config = RobertaConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
                           vocab_size=31, max_position_embeddings=22, tie_word_embeddings=False)
    base = shake(RobertaForMaskedLM(config)).eval()
    ours, ids = Longformer.from_roberta(base, 40, window=40), text(20)[0]
    ours.save_pretrained(tmp_path / "ours")
    for model in (ours, Longformer.from_pretrained(tmp_path / "ours")):
        torch.testing.assert_close(model(ids[:1]).logits, base(ids[:1]).logits, atol=1e-5, rtol=1e-5)


def test_a_fresh_one_starts_as_transformers_does():
    """Its attention too, which is put in after transformers has drawn its weights."""
    torch.manual_seed(0)
    config = LongformerConfig(hidden_size=64, num_attention_heads=2, num_hidden_layers=1, attention_window=4,
                              vocab_size=50, max_position_embeddings=20)
    layer = Longformer(config).longformer.encoder.layer[0].attention.self
    for name in ("query", "key", "value", "query_global"):
        assert getattr(layer, name).weight.std().item() == pytest.approx(config.initializer_range, rel=0.1)
    assert math.isclose(layer.dropout, config.attention_probs_dropout_prob)


@pytest.mark.parametrize("tied", [True, False])
def test_a_resized_vocabulary_is_saved_and_loaded(tied, tmp_path):
    """By transformers' own class, too; that class, resized by itself, saves what does not load where it is not tied."""
    config = LongformerConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=1, intermediate_size=16,
                              attention_window=[4], vocab_size=31, max_position_embeddings=52, tie_word_embeddings=tied)
    model, ids = Longformer(copy.deepcopy(config)).eval(), torch.arange(25, 40)[None]
    model.resize_token_embeddings(40, mean_resizing=False)
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        want = model(ids).logits
        torch.testing.assert_close(Longformer.from_pretrained(tmp_path).eval()(ids).logits, want)
        torch.testing.assert_close(LongformerForMaskedLM.from_pretrained(tmp_path).eval()(ids).logits, want)
    assert want.shape == (1, 15, 40)
    if not tied:
        own = LongformerForMaskedLM(config)
        own.resize_token_embeddings(40, mean_resizing=False)
        assert len(own.lm_head.bias) != len(own.lm_head.decoder.bias)  # a later transformers may need no remedy
