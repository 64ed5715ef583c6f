"""A problem small enough to train in milliseconds, in double precision so that other code can be compared exactly."""

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

    def settings(self):
        return {}


@pytest.fixture
def bigram():
    return Bigram


@pytest.fixture
def stream():
    """400 tokens; mostly the next one follows from the last."""
    random = np.random.default_rng(0)
    steps = np.where(random.random(400) < 0.8, 1, random.integers(11, size=400))
    return np.cumsum(steps) % 11
