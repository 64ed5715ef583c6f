"""Each model of ours under autocast and in 16 bits: training and evaluation give what single precision gives."""

import pytest
import torch
from transformers import BertConfig, RobertaConfig

from repro.attention import Fixed, SlidingWindow, Strided
from repro.models import (
    GPT,
    LSTM,
    TDMCA,
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    GPTConfig,
    LSTMConfig,
    OneText,
    Seq2Seq,
    Seq2SeqConfig,
    SparseConfig,
    SparseTransformer,
    TDMCAConfig,
)
from repro.recurrence import RecurrenceConfig, RecurrentEncoder

N, V, D = 20, 13, 16
IDS = torch.randint(1, V, (2, N), generator=torch.Generator().manual_seed(0))
LENGTHS = torch.tensor([N, N - 6])
PAIR = IDS, LENGTHS, IDS[:, :7]
DECODER = DecoderConfig(V, D, 2, (SlidingWindow(4), [SlidingWindow(3, 2), Strided(4)]))
SPARSE = {"vocab_size": V, "length": N, "n_layer": 2, "n_head": 2, "n_embd": D}
BERT = BertConfig(hidden_size=D, num_hidden_layers=2, num_attention_heads=2, intermediate_size=D, vocab_size=V,
                  max_position_embeddings=N, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
READER = RobertaConfig(hidden_size=D, num_hidden_layers=2, num_attention_heads=2, intermediate_size=D, vocab_size=V,
                       max_position_embeddings=N + 2, pad_token_id=0, hidden_dropout_prob=0.0,
                       attention_probs_dropout_prob=0.0)
MODELS = {  # what makes it, and what it reads
    **{f"decoder, {way}": (lambda way=way: Decoder(DECODER, way), (IDS,)) for way in ("auto", "blocked", "products")},
    "decoder, recomputed": (lambda: Decoder(DECODER, recompute=True), (IDS,)),
    "encoder": (lambda: Encoder(EncoderConfig(V, D, 2, (SlidingWindow(4, causal=False),), n_labels=3)), (IDS, LENGTHS)),
    "strided": (lambda: SparseTransformer(SparseConfig(**SPARSE, pattern=Strided(4))), (IDS,)),
    "fixed, products": (lambda: SparseTransformer(SparseConfig(**SPARSE, pattern=Fixed(4, 2)), "products"), (IDS,)),
    "T-DMCA": (lambda: TDMCA(TDMCAConfig(V, D, 2, layers="LM", block=8)), (IDS,)),
    "GPT": (lambda: GPT(GPTConfig(V, 32, 2, D, 2)), (IDS,)),
    "LSTM": (lambda: LSTM(LSTMConfig(V, D, units=D)), (IDS,)),
    "one text": (lambda: OneText(Decoder(DECODER)), PAIR),
    "encoder and decoder": (lambda: EncoderDecoder(EncoderDecoderConfig(V, D, 2, n_layer=1)), PAIR),
    "seq2seq": (lambda: Seq2Seq(Seq2SeqConfig(V, D)), PAIR),
    "recurrent reader": (lambda: RecurrentEncoder(READER, RecurrenceConfig(insert_layer=1, hidden_size=D,
                                                                           hidden_layers=1)), (IDS.view(1, 2, N),)),
    "recurrent BERT": (lambda: RecurrentEncoder(BERT, RecurrenceConfig(
        insert_layer=1, hidden_size=D, hidden_layers=1, residual=True, normalize=True)), (IDS.view(1, 2, N),)),
}
BF16, F16 = torch.bfloat16, torch.float16
PRECISIONS = {"autocast to bfloat16": (None, BF16), "autocast to float16": (None, F16), "bfloat16": (BF16, None)}


def told(model, inputs, training, amp=None):
    """What a model says, and the gradients of its weights in one row, or none of an evaluation."""
    with torch.autocast("cpu", amp or BF16, enabled=amp is not None), torch.set_grad_enabled(training):
        out = model.train(training)(*inputs)
    out = getattr(out, "start_logits", out).float()
    out = out[out.isfinite()]  # where a pair has padding there are no logits
    if not training:
        return [out]
    out.square().mean().backward()
    grads = torch.cat([torch.zeros_like(one).flatten().float() if one.grad is None else one.grad.flatten().float()
                       for one in model.parameters()])
    model.zero_grad()
    return [out.detach(), grads]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_as_in_single_precision(name, precision):
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model, (dtype, amp) = make(), PRECISIONS[precision]
    if amp == F16 and name == "seq2seq":
        pytest.skip("PyTorch's LSTM has no float16 on this processor")
    for weights in model.parameters():  # some begin as zeros
        weights.data.add_(0.1 * torch.randn_like(weights))
    for training in True, False:
        want = told(model.float(), inputs, training)
        found = told(model.to(dtype or torch.float32), inputs, training, amp)
        for one, other in zip(found, want, strict=True):
            assert one.shape == other.shape and one.isfinite().all()
            assert (one - other).norm() < (0.01 if amp == F16 else 0.08) * other.norm()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_recurrent_model_writes_and_trains(precision, tiny_recurrent):
    dtype, amp = PRECISIONS[precision]
    exact, model = tiny_recurrent(), tiny_recurrent(dtype=dtype)
    ids = torch.randint(0, 29, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", amp or BF16, enabled=amp is not None):
        written = model.generate(ids, 5, window=8, overlap=2)
        loss = model.train()(ids, window=8, overlap=2, labels=ids).loss
    loss.backward()
    assert written.shape == (2, 25)
    assert loss.item() == pytest.approx(exact(ids, window=8, overlap=2, labels=ids).loss.item(), rel=0.05)
    assert all(one.grad.isfinite().all() for one in model.parameters() if one.grad is not None)
