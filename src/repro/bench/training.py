"""Training steps: ours against transformers.Trainer, and recurrent against plain."""

import tempfile


def main(json_path=None, window: int = 300, n_windows: int = 20, batch_size: int = 2, steps: int = 3,
         rounds: int = 5) -> dict:
    """Time `steps` optimiser steps on the same windows with each; every contender trains its own copy of one model."""
    import numpy as np
    import torch
    from transformers import Trainer, TrainingArguments

    from repro.bench import compare, report
    from repro.models import gpt2_mini
    from repro.recurrence import RecurrentLM
    from repro.study import experiment
    from repro.training import Sequences, TrainConfig, WindowedLM, train

    small = experiment("pretrain-gpt2-mini").plan("small")[0]

    def fresh():
        torch.manual_seed(0)
        return gpt2_mini(small.n_layer, small.n_embd, small.n_head, small.vocab_size)

    def ours(model):
        settings = TrainConfig(steps * sequences.tokens_per_batch, 1e-4, warmup_steps=0, validate_every=10**12)
        return train(WindowedLM(model, window), sequences, settings).tokens

    def theirs():
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, per_device_train_batch_size=batch_size * n_windows, max_steps=steps, learning_rate=1e-4,
                lr_scheduler_type="constant", optim="adamw_torch_fused", logging_strategy="no", save_strategy="no",
                report_to="none", disable_tqdm=True, use_cpu=not torch.cuda.is_available())
            Trainer(trainer_model, arguments, train_dataset=examples).train()
        return steps * batch_size * n_windows * window

    rng = np.random.default_rng(0)
    stream = rng.integers(small.vocab_size, size=(steps * batch_size + 2) * window * n_windows)
    sequences = Sequences(stream, window * n_windows, batch_size)
    rows = torch.from_numpy(stream[:steps * batch_size * n_windows * (window + 1)]).view(-1, window + 1)
    examples = [{"input_ids": row, "labels": row} for row in rows]  # window + 1: labels are shifted inside

    plain_model, trainer_model, recurrent_model = fresh(), fresh(), RecurrentLM(fresh().config)
    speeds = compare({"plain, repro.training": lambda: ours(plain_model), "plain, transformers.Trainer": theirs,
                      "recurrent, repro.training": lambda: ours(recurrent_model)}, rounds)
    plain, peer, recurrent = (found["tokens_per_second"] for found in speeds.values())
    return report(f"Training, T = {window}, {batch_size} sequences of {n_windows} windows", speeds,
                  {"plain: repro / transformers.Trainer": (plain / peer, 1.0),
                   "recurrent / plain": (recurrent / plain, 0.8)}, json_path)
