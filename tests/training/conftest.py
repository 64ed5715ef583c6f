"""A problem small enough to train in milliseconds, in double precision so that other code can be compared exactly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Bigram(nn.Module):
    """Predicts each token from the one before it."""

    def __init__(self, vocabulary=11, width=6, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.read = nn.Embedding(vocabulary, width)
        self.write = nn.Linear(width, vocabulary)
        self.scale = nn.Parameter(torch.tensor(1.5))  # a number without dimensions is a weight too
        self.double()

    def forward(self, tokens):
        logits = self.scale * self.write(torch.tanh(self.read(tokens[:, :-1])))
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@pytest.fixture
def bigram():
    return Bigram


@pytest.fixture
def stream():
    """400 tokens; mostly the next one follows from the last."""
    random = np.random.default_rng(0)
    steps = np.where(random.random(400) < 0.8, 1, random.integers(11, size=400))
    return np.cumsum(steps) % 11


@pytest.fixture
def script():
    """Run a script of this folder in its own interpreter and return the JSON it prints last."""
    def run(*command, launcher=()):
        path = Path(__file__).with_name(command[0])
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, *launcher, str(path), *map(str, command[1:])], env=environment,
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.strip().splitlines()[-1])
    return run
