"""Decoders that read input and summary as one text, and the models that read them apart."""

import pytest
import torch

from repro.attention import Causal
from repro.errors import ReproError
from repro.evaluation.summaries import padded
from repro.models import (
    TDMCA,
    Decoder,
    DecoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    OneText,
    Seq2Seq,
    Seq2SeqConfig,
    TDMCAConfig,
)
from repro.recompute import flops
from repro.training import Summaries

V, D = 9, 8


def models():
    torch.manual_seed(0)
    yield OneText(Decoder(DecoderConfig(V, D, 2, (Causal(),) * 2)))
    yield EncoderDecoder(EncoderDecoderConfig(V, D, 2, 2))
    yield EncoderDecoder(EncoderDecoderConfig(V, D, 2, 2), "products")
    yield Seq2Seq(Seq2SeqConfig(V, D))


SOURCE, IDS = torch.tensor([[3, 4, 5, 6, 7], [8, 1, 2, 0, 0]]), torch.tensor([[0, 2, 3, 4], [0, 6, 7, 0]])
LENGTHS = torch.tensor([5, 3])


def test_every_token_of_the_input_and_every_earlier_one_of_the_summary_counts_and_no_other():
    for model in models():
        model.double().eval()
        for parameter in model.parameters():
            parameter.data.normal_(generator=torch.Generator().manual_seed(parameter.numel()))
        before = model(SOURCE, LENGTHS, IDS)[1]
        for j in range(5):
            changed = SOURCE.clone()
            changed[1, j] = (changed[1, j] + 1) % V
            moved = (model(changed, LENGTHS, IDS)[1] - before).abs().amax(-1) > 1e-12
            assert moved.tolist() == [j < 3] * 4, (type(model), j)
        for j in range(4):
            changed = IDS.clone()
            changed[1, j] = (changed[1, j] + 1) % V
            moved = (model(SOURCE, LENGTHS, changed)[1] - before).abs().amax(-1) > 1e-12
            assert moved.tolist() == [k >= j for k in range(4)], (type(model), j)


def test_one_text_is_input_separator_summary():
    model = next(models())
    text = torch.tensor([[8, 1, 2, 0, 6, 7]])
    told = model.read(SOURCE, LENGTHS, IDS)
    logits = model.decoder(text)[0]
    torch.testing.assert_close(told.logits[1, :3], logits[3:])
    torch.testing.assert_close(told.source[1, :3], logits[:3])


def test_both_attentions_across_agree():
    _, auto, products, _ = models()
    products.load_state_dict(auto.state_dict())
    torch.testing.assert_close(auto(SOURCE, LENGTHS, IDS), products(SOURCE, LENGTHS, IDS))


def test_weights_and_operations_are_counted():
    for model in models():
        assert model.config.parameters == sum(weight.numel() for weight in model.parameters())
    model = EncoderDecoder(EncoderDecoderConfig(V, D, 2, 2, position_size=6), "products")
    source, ids = torch.zeros(1, 40, dtype=torch.int64), torch.zeros(1, 12, dtype=torch.int64)
    counted = flops(lambda: model(source, torch.tensor([40]), ids))
    # the counter sees all pairs of the causal attention, and the positions' weights, of both sides
    own = 2 * 2 * (2 * D // 2 + 6) * 2 * (12 * 12 - 12 * 13 // 2)
    assert counted == pytest.approx(model.config.flops(40, 12) + own, rel=0.05)


def test_the_loss_is_that_of_all_tokens_or_of_the_summary_alone():
    model = next(models()).eval()
    labels = torch.tensor([[2, 3, 4, 0], [6, 7, 0, -100]])
    batch = {"source": SOURCE, "lengths": LENGTHS, "ids": IDS, "labels": labels}
    texts = [[3, 4, 5, 6, 7, 0, 2, 3, 4, 0], [8, 1, 2, 0, 6, 7, 0]]
    of_input, of_summary, n = 0.0, 0.0, [0, 0]
    for text, length in zip(texts, (5, 3), strict=True):
        told = model.decoder(torch.tensor([text[:-1]]))[0].log_softmax(-1)
        for k, token in enumerate(text[1:]):
            if k + 1 < length:
                of_input, n[0] = of_input - told[k, token], n[0] + 1
            elif k + 1 > length:
                of_summary, n[1] = of_summary - told[k, token], n[1] + 1
    assert n == [6, 7]
    for weight in (0.0, 0.5, 1.0):
        wanted = (of_summary + weight * of_input) / (7 + weight * 6)
        torch.testing.assert_close(Summaries(model, weight)(batch), wanted)


@pytest.mark.parametrize("make,told", [
    (lambda: EncoderDecoderConfig(V, 7, 2, 1), "multiple of the heads"),
    (lambda: EncoderDecoderConfig(V, D, 2, 0), "n_layer is 0"), (lambda: Seq2SeqConfig(V, 0), "n_embd is 0")])
def test_bad_sizes(make, told):
    with pytest.raises(ReproError, match=told):
        make()


def test_experts_are_balanced_over_input_and_summary_and_over_no_padding():
    """Two texts of different length in one batch are balanced as their tokens are without padding."""
    torch.manual_seed(0)
    model = OneText(TDMCA(TDMCAConfig(V, D, 2, "LM", 4, n_experts=3, expert_layers=(1,)))).eval()
    for parameter in model.parameters():
        parameter.data.normal_(generator=torch.Generator().manual_seed(parameter.numel()))
    pairs = [([3, 4, 5, 6, 7], [2, 3, 4]), ([8, 1], [6])]
    with torch.no_grad():
        use = 0
        for pair in pairs:
            batch = padded([pair], 0)
            model(batch["source"], batch["lengths"], batch["ids"])
            use = use + model.decoder.use[1]
        batch, found = padded(pairs, 0), {}
        for padding in (False, True):
            objective = Summaries(model, balance_padding=padding)
            objective(batch)
            found[padding] = model.decoder.use[1]
    assert found[False].equal(use) and found[False].sum() == 2 * (9 + 4)
    assert found[True].sum() == 2 * 2 * 9
