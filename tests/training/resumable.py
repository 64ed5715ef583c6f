"""A training that is killed and started again; run by test_resume.py.

`resumable.py plan FOLDER JSON`: for each named scenario (seconds between checkpoints, points, other settings), fork one
training after the other in the same folder; each is killed with SIGKILL at its own point (`what:how many times`), the
one without a point runs to its end. Prints how each ended and what the last one left.
`resumable.py train FOLDER`: one training; waits for a line of input before each step.
"""

import hashlib
import json
import os
import random
import signal
import sys
from dataclasses import asdict
from pathlib import Path

import accelerate  # noqa: F401  (once, before the forks)
import numpy as np
import torch
import torch._dynamo
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from transformers import GPT2Config

from repro.recurrence import RecurrenceConfig, RecurrentLM
from repro.training import Sequences, TrainConfig, WindowedLM, train

STEPS, PER_STEP = 17, 16  # a step is two sequences of 8 targets; a validation every 5 steps


class Noisy(nn.Module):
    """A loss that uses every random state there is: torch's in its dropout, numpy's and Python's as factors."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        config = GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=11, n_positions=8, resid_pdrop=0.1,
                            embd_pdrop=0.1, attn_pdrop=0.1, bos_token_id=0, eos_token_id=0)
        model = RecurrentLM(config, RecurrenceConfig(insert_layer=1, hidden_size=8, hidden_layers=1))
        self.windowed = WindowedLM(model, window=4, overlap=1, recompute="window")
        self.forwards = 0

    def forward(self, tokens):
        if self.training:
            self.forwards += 1
        return self.windowed(tokens) * (0.5 + np.random.rand()) * (0.5 + random.random())  # noqa: NPY002

    def settings(self):
        return self.windowed.settings()


def validate(objective):
    with torch.no_grad():
        return objective.windowed(torch.arange(18).view(2, 9) % 11).item() + 0.01 * torch.rand(1).item()


def arm(point):
    """Arrange for this process to kill itself at `point`."""
    what, times = point.split(":")
    left = int(times)

    def reached():
        nonlocal left
        left -= 1
        return left == 0

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def patch(module, name, before=None, after=None):
        original = getattr(module, name)

        def patched(*arguments, **options):
            dying = reached()
            if dying and before:
                before(*arguments)
                die()
            value = original(*arguments, **options)
            if dying:
                die()
            return value

        setattr(module, name, patched)

    if what == "step":  # before the forward pass
        forward = Noisy.forward

        def dying(self, tokens):
            if reached():
                die()
            return forward(self, tokens)

        Noisy.forward = dying
    elif what == "stepped":  # weights changed, checkpoint not yet written
        register_optimizer_step_post_hook(lambda *_: reached() and die())
    elif what == "validate":
        patch(sys.modules[__name__], "validate", before=lambda *_: None)
    elif what == "write":  # half of the file written
        patch(os, "fsync", before=lambda file: os.ftruncate(file, os.fstat(file).st_size // 2))
    elif what == "replace":  # the file whole, but still under its temporary name
        patch(os, "replace", before=lambda *_: None)
    elif what == "replaced":
        patch(os, "replace")
    else:
        raise ValueError(point)


def training(folder, checkpoint_every=0, point=None, changes=None, progress=None):
    """Train, and leave what came out in outcome.json."""
    if point == "start":
        os.kill(os.getpid(), signal.SIGKILL)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    objective = Noisy()
    if point:
        arm(point)
    config = TrainConfig(tokens=STEPS * PER_STEP, learning_rate=0.01, warmup_steps=4, decay="linear",
                         weight_decay=0.1, validate_every=5 * PER_STEP, checkpoint_every=checkpoint_every, seed=5,
                         **changes or {})
    sequences = Sequences(np.arange(300) ** 2 % 11, 8, 2, seed=1)
    result = train(objective, sequences, config, folder, validate=lambda x: validate(x), progress=progress,
                   device="cpu")
    weights = b"".join(x.numpy().tobytes() for x in objective.state_dict().values())
    saved = torch.load(Path(folder) / "checkpoint.pt", weights_only=True)
    last = b"".join(x.numpy().tobytes() for x in saved["objective"].values())
    outcome = {"weights": hashlib.sha256(weights).hexdigest(), "last_weights": hashlib.sha256(last).hexdigest(),
               "result": asdict(result), "forwards": objective.forwards,
               "random": [torch.rand(1).item(), np.random.rand(), random.random()]}  # noqa: NPY002
    (Path(folder) / "outcome.json").write_text(json.dumps(outcome))


def fork(folder, checkpoint_every, point, changes):
    """Train in a child process; how it ended: the signal's number, negative, or its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            training(folder, checkpoint_every, point, changes)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


class Asking:
    """Progress that tells each step and waits for a line before the next."""

    def advance(self, n, **info):
        if info:
            print("step", flush=True)
            sys.stdin.readline()


if __name__ == "__main__":
    torch.set_num_threads(1)
    base = Path(sys.argv[2])
    if sys.argv[1] == "train":
        training(base, progress=Asking())
    else:
        ended = {}
        for name, (checkpoint_every, points, changes) in json.loads(sys.argv[3]).items():
            ends = [fork(base / name, checkpoint_every, point, changes) for point in points]
            outcome = base / name / "outcome.json"
            ended[name] = {"ends": ends, "outcome": json.loads(outcome.read_text()) if outcome.exists() else None}
        print(json.dumps(ended))
