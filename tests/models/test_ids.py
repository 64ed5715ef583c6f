"""What is no batch of token ids is refused by every model of our own alike."""

import pytest
import torch

from repro.attention import SlidingWindow
from repro.errors import ReproError
from repro.models import (
    GPT,
    LSTM,
    TDMCA,
    Decoder,
    DecoderConfig,
    GPTConfig,
    LSTMConfig,
    SparseConfig,
    SparseTransformer,
    TDMCAConfig,
)

MODELS = {
    "GPT": lambda: GPT(GPTConfig(9, 16, 1, 8, 2)), "LSTM": lambda: LSTM(LSTMConfig(9, 8, 8)),
    "Decoder": lambda: Decoder(DecoderConfig(9, 8, 2, (SlidingWindow(4),))),
    "TDMCA": lambda: TDMCA(TDMCAConfig(vocab_size=9, n_embd=8, n_head=2)),
    "SparseTransformer": lambda: SparseTransformer(SparseConfig(9, 16, 1, 2, 8))}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ids, told", [
    (torch.zeros(5, dtype=torch.int64), r"ids are torch.int64 of shape \(5,\); give .* \(B, N\)"),
    (torch.zeros(1, 2, 5, dtype=torch.int64), r"of shape \(1, 2, 5\)"),
    (torch.zeros(1, 5), "ids are torch.float32"),
    (torch.tensor([[3, 9]]), "ids go from 3 to 9, but the model knows 0 to 8"),
    (torch.tensor([[-1, 8]]), "ids go from -1 to 8")])
def test_what_is_no_batch_of_ids_is_refused(name, ids, told):
    model = MODELS[name]()
    assert model(torch.tensor([[0, 8]])).shape == (1, 2, 9)
    with pytest.raises(ReproError, match=told):
        model(ids)
