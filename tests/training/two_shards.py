"""A few training steps of our models, run by test_distributed.py in one process and, under torchrun, in two.

In two, FSDP2 (`torch.distributed.fsdp.fully_shard`) splits weights, gradients and Adam's moments. Every process leaves
a file.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import GPT2Config

from repro.attention import SlidingWindow, Strided
from repro.models import Decoder, DecoderConfig, SparseConfig, SparseTransformer, longformer_from, roberta_mini
from repro.recurrence import RecurrenceConfig, RecurrentLM
from repro.training import NextToken, WindowedLM

KINDS = "recurrent", "recomputed", "window", "strided", "longformer"
STEPS = np.cumsum(np.random.default_rng(0).integers(1, 4, size=4 * 4 * 17)) % 13
BATCHES = torch.from_numpy(STEPS).view(4, 4, 17)  # four steps of four sequences


class FilledIn(nn.Module):
    """The loss of every third token, which the model does not see."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        hidden = torch.arange(tokens.shape[1]) % 3 == 0
        return self.model(tokens.masked_fill(hidden, 3), labels=tokens.masked_fill(~hidden, -100)).loss


def objective(kind):
    """An untrained objective in single precision, without dropout, and the blocks of its model."""
    torch.manual_seed(0)
    if kind in ("recurrent", "recomputed"):
        config = GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=13, n_positions=8, resid_pdrop=0.0,
                            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
        model = RecurrentLM(config, RecurrenceConfig(insert_layer=1, hidden_size=8, hidden_layers=1))
        # Layer 1 makes a key and a value of h_prev outside of its own forward, so it is split with the model around it.
        return WindowedLM(model, 4, recompute="window" if kind == "recomputed" else "none"), model.transformer.h[:1]
    if kind == "window":
        model = Decoder(DecoderConfig(vocab_size=13, n_embd=16, n_head=2, patterns=(SlidingWindow(4),) * 2), "blocked")
        return NextToken(model), model.layers
    if kind == "strided":
        model = SparseTransformer(SparseConfig(vocab_size=13, length=16, n_layer=2, n_head=2, n_embd=16,
                                               pattern=Strided(4)), recompute=True)
        return NextToken(model), model.layers
    model = longformer_from(roberta_mini(2, 16, 2, 13, 20), max_positions=40, window=4)
    # Its layers are read part by part, so each part is split by itself.
    return FilledIn(model), [part for layer in model.longformer.encoder.layer
                             for part in (layer.attention.self, layer.intermediate, layer.output)]


def trained(kind):
    """Losses and final weights, and the share of the weights that this process holds."""
    module, blocks = objective(kind)
    rank, n = (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
    if n > 1:
        mesh = distributed.init_device_mesh("cpu", (n,))
        for block in (*blocks, module):
            fully_shard(block, mesh=mesh)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)
    losses, share = [], 4 // n
    for batch in BATCHES:
        loss = module(batch[rank * share:(rank + 1) * share])
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        if n > 1:
            distributed.all_reduce(mean)
        losses.append(mean.item() / n)
    held = sum((weight.to_local() if isinstance(weight, DTensor) else weight).numel() for weight in module.parameters())
    return {"losses": losses, "held": held / sum(weight.numel() for weight in module.parameters()),
            "split": all(isinstance(weight, DTensor) for weight in module.parameters()),
            "weights": {name: (x.full_tensor() if isinstance(x, DTensor) else x).detach().clone()
                        for name, x in module.state_dict().items()}}


if __name__ == "__main__":
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    left = {kind: trained(kind) for kind in KINDS}
    torch.save(left, Path(sys.argv[1]) / f"process{distributed.get_rank()}.pt")
    distributed.destroy_process_group()
