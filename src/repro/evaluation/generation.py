"""Texts that a language model goes on with, greedily or drawn from its likeliest tokens (Radford et al. 2019, 3.5-3.8).
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch

from repro.caches import given
from repro.errors import ReproError
from repro.evaluation.zero_shot import evaluating


@torch.no_grad()
def continued(model, prompts: Sequence[Sequence[int]], n_new: int, top_k: int = 1, seed: int = 0, batch_size: int = 16,
              progress=None) -> tuple[np.ndarray, np.ndarray]:
    """(n, n_new) token ids with which a transformers causal model goes on after each prompt, and their nats.

    top_k: each token is drawn from so many that are the likeliest; 1: always the likeliest. The draws of a prompt are a
    function of the seed and its number. Prompts of one length are read together. The nats, float64, are those under
    the whole distribution. progress: called with the number of prompts done since the last call.
    Raises ReproError for an empty prompt, numbers below 1, a top_k above the vocabulary, and texts beyond the model's
    context.
    """
    from transformers import DynamicCache

    context = model.config.n_positions
    for name, value in (("n_new", n_new), ("top_k", top_k), ("batch_size", batch_size)):
        if value < 1:
            raise ReproError(f"{name} is {value}; it must be at least 1.")
    if top_k > model.config.vocab_size:
        raise ReproError(f"top_k is {top_k:,}; it must be at most the vocabulary ({model.config.vocab_size:,}).")
    groups = defaultdict(list)
    for number, prompt in enumerate(prompts):
        if not 1 <= len(prompt) <= context - n_new + 1:
            raise ReproError(f"prompt {number} has {len(prompt):,} tokens; with {n_new} new ones and a context of "
                             f"{context:,} it must have 1 to {context - n_new + 1:,}.")
        groups[len(prompt)].append(number)
    chance = np.random.default_rng(seed).random((len(prompts), n_new))
    found, nats = np.zeros((len(prompts), n_new), np.int64), np.zeros((len(prompts), n_new))
    device = next(model.parameters()).device
    with evaluating(model):
        for group in groups.values():
            for some in (group[k:k + batch_size] for k in range(0, len(group), batch_size)):
                ids = torch.tensor(np.stack([np.asarray(prompts[k], np.int64) for k in some]), device=device)
                cache = DynamicCache()
                for step in range(n_new):
                    logits = model(input_ids=ids, **given(cache), use_cache=True, logits_to_keep=1).logits[:, -1]
                    told = logits.double().log_softmax(-1)
                    values, likeliest = told.topk(top_k)
                    upto = values.softmax(-1).cumsum(-1)
                    drawn = torch.from_numpy(chance[some, step]).to(device)[:, None]
                    place = (upto[:, :-1] <= drawn).sum(1, keepdim=True)
                    ids = likeliest.gather(1, place)
                    found[some, step], nats[some, step] = ids[:, 0].cpu(), -values.gather(1, place)[:, 0].cpu()
                if progress is not None:
                    progress(len(some))
    return found, nats


@torch.no_grad()
def branch_nll(model, prefix: Sequence[int], branches: Sequence[Sequence[int]]) -> np.ndarray:
    """(branches,) float64: the nats of each way to go on after one prefix, which is read once.

    model: a `repro.models.GPT`. The same as `continuation_nll` of texts that all begin with the prefix.
    Raises ReproError for no branches, an empty one or an empty prefix, and texts beyond the model's context.
    """
    from repro.loss import cross_entropy

    lengths = [len(branch) for branch in branches]
    if not len(prefix) or not lengths or not min(lengths):
        raise ReproError(f"the prefix has {len(prefix)} tokens, the branches {lengths}; each needs at least 1.")
    if len(prefix) + max(lengths) - 1 > model.config.n_positions:
        raise ReproError(f"prefix and longest branch have {len(prefix) + max(lengths):,} tokens, but the model's "
                         f"context ends at {model.config.n_positions:,}; cut the prefix.")
    device = next(model.parameters()).device
    targets = torch.full((len(branches), max(lengths)), -100)
    for row, branch in zip(targets, branches, strict=True):
        row[:len(branch)] = torch.as_tensor(np.asarray(branch, np.int64))
    targets = targets.to(device)
    trunk = torch.as_tensor(np.asarray(prefix, np.int64), device=device)[None]
    with evaluating(model):
        read, states = model.read_branches(model.embed(trunk), model.embed(targets.clamp(min=0))[None],
                                           torch.tensor([len(prefix)], device=device))
        before = torch.cat([read[:, -1:].expand(len(branches), 1, -1), states[0, :, :-1]], 1)
        nats = cross_entropy(model.output(before).flatten(0, 1), targets.flatten(), "none")
    return nats.view_as(targets).double().sum(1).cpu().numpy()
