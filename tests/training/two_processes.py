"""Two trainings, run by test_distributed.py on one process and, under torchrun, on two; every process leaves a file."""

import os
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from repro.errors import ReproError
from repro.processes import first, leave
from repro.recurrence import RecurrenceConfig, RecurrentLM
from repro.training import Sequences, TrainConfig, WindowedLM, train

TEXT = np.cumsum(np.random.default_rng(0).integers(1, 4, size=500)) % 13


class Named(Sequences):
    """Batches that are a mapping."""

    def batch(self, step):
        return {"tokens": super().batch(step)}


class OfNamed(nn.Module):
    """The objective that reads them."""

    def __init__(self, objective):
        super().__init__()
        self.objective = objective

    def forward(self, batch):
        return self.objective(batch["tokens"])

    def settings(self):
        return self.objective.settings()


def objective(kind):
    if kind == "named":
        return OfNamed(objective("plain"))
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=13, n_positions=8, resid_pdrop=0.0, embd_pdrop=0.0,
                        attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    if kind == "plain":
        return WindowedLM(GPT2LMHeadModel(config).double(), 4, 1)
    model = RecurrentLM(config, RecurrenceConfig(insert_layer=1, hidden_size=8, hidden_layers=1)).double()
    return WindowedLM(model, 4, recompute="window" if kind == "recomputed" else "none",
                      truncate=1 if kind == "truncated" else None)  # truncated: no gradient for the layer scores


def validate(module):
    with torch.no_grad():
        return getattr(module, "objective", module)(torch.from_numpy(TEXT[:39].copy()).view(3, 13)).item()


def settings(steps, kind="plain"):
    return TrainConfig(tokens=48 * steps, learning_rate=0.01, warmup_steps=3, clip=0.5, validate_every=48 * 4,
                       checkpoint_every=0, optimizer="muon" if kind == "muon" else "adamw")


class Interrupted(Exception):
    pass


class StopAfter:
    def __init__(self, steps):
        self.left = steps

    def advance(self, n, **info):
        self.left -= bool(info)
        if self.left == 0:
            raise Interrupted


def trained(kind, folder=None, interrupt=False):
    """What a training of eight steps with a batch of four sequences leaves, and what this process read of it."""
    module, read = objective(kind), []
    reading = getattr(module, "objective", module)
    reading.register_forward_pre_hook(lambda x, batch: read.append(batch[0].clone()) if x.training else None)
    sequences = (Named if kind == "named" else Sequences)(TEXT, 12, 4, seed=2)
    if interrupt:
        try:
            train(objective(kind), sequences, settings(8, kind), folder, validate, StopAfter(5), device="cpu")
        except Interrupted:
            pass
    result = train(module, sequences, settings(8, kind), folder, validate, device="cpu")
    return {"weights": module.state_dict(), "result": asdict(result), "read": read}


def main(folder):
    from accelerate import PartialState

    left = {kind: trained(kind, folder / kind)
            for kind in ("plain", "named", "recurrent", "recomputed", "truncated", "muon")}
    left["continued"] = trained("recurrent", folder / "continued", interrupt=True)
    try:
        train(objective("plain"), Sequences(TEXT, 12, 3), settings(8), device="cpu")
    except ReproError as error:
        left["refused"] = str(error)
    state = PartialState()
    try:  # the first goes on with a finished training, the second finds none
        trained("recurrent", folder / ("continued" if state.is_main_process else "elsewhere"))
    except ReproError as error:
        left["apart"] = str(error)
    left["told"] = first(os.getpid)
    try:
        first(lambda: 1 // 0)
    except ZeroDivisionError:
        left["raised"] = True
    left["process"] = (state.process_index, state.num_processes, os.getpid())
    leave()
    left["parted"] = not torch.distributed.is_initialized()
    torch.save(left, folder / f"process{state.process_index}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
