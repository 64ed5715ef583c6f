"""Generate text greedily or by sampling from the most likely tokens (Radford et al. 2019, 3.5-3.8)."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch

from repro.errors import ReproError, check_progress, check_whole
from repro.evaluation.checks import (
    check_cache,
    check_losses,
    device_of,
    list_of_ids,
    vocabulary_of,
    written_vocabulary,
)
from repro.evaluation.scoring import check_decoder
from repro.hf_compat import cache_argument
from repro.ids import evaluating
from repro.windows import context_of


@torch.no_grad()
def continued(model, prompts: Sequence[Sequence[int]], n_new: int, top_k: int = 1, seed: int = 0, batch_size: int = 16,
              progress=None) -> tuple[np.ndarray, np.ndarray]:
    """Continue each prompt with a transformers causal model: (n, n_new) token ids, and their nats.

    top_k: each token is sampled from the `top_k` most likely ones; 1: always the most likely. Samples depend only on
    the seed and the number of the prompt. Prompts of equal length are read together. The nats, float64, are under the
    full distribution. progress: called with the number of prompts done since the last call.
    Raises ReproError for no prompts, an empty one, ids that the model does not have, numbers below 1, a top_k above the
    vocabulary, texts beyond the model's context, and a model without a key/value cache or logits.
    """
    check_progress(progress)
    from transformers import DynamicCache

    check_decoder(model)
    check_cache(model)
    context = context_of(model)
    for name, value, least in (("n_new", n_new, 1), ("batch_size", batch_size, 1), ("seed", seed, 0)):
        check_whole(value, name, least)
    check_whole(top_k, "top_k", 1, written_vocabulary(model))
    prompts, groups = list_of_ids(prompts, "prompt", vocabulary_of(model)), defaultdict(list)
    for number, prompt in enumerate(prompts):
        if context is not None and len(prompt) > context - n_new + 1:
            raise ReproError(f"prompt {number} has {len(prompt):,} tokens; with {n_new} new ones and a context of "
                             f"{context:,} it must have at most {context - n_new + 1:,}.")
        groups[len(prompt)].append(number)
    chance = np.random.default_rng(seed).random((len(prompts), n_new))
    found, nats = np.zeros((len(prompts), n_new), np.int64), np.zeros((len(prompts), n_new))
    device = device_of(model)
    with evaluating(model):
        for group in groups.values():
            for some in (group[k:k + batch_size] for k in range(0, len(group), batch_size)):
                ids = torch.stack([prompts[k] for k in some]).to(device)
                cache = DynamicCache()
                for step in range(n_new):
                    known = cache_argument(cache)
                    logits = model(input_ids=ids, **known, use_cache=True, logits_to_keep=1).logits[:, -1]
                    check_losses(logits)
                    log_probabilities = logits.double().log_softmax(-1)
                    values, likeliest = log_probabilities.topk(top_k)
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
    """(branches,) float64: the nats of each continuation of one prefix, which is read only once.

    model: a `repro.models.GPT`. Equal to `continuation_nll` with the same prefix for all continuations.
    Raises ReproError for no branches, an empty one or an empty prefix, ids that the model does not have, texts beyond
    the model's context, and a model of another class.
    """
    from repro.loss import cross_entropy

    if not hasattr(model, "read_branches"):
        raise ReproError(f"model is a {type(model).__name__}, which cannot score branches; give a repro.models.GPT.")
    n_ids, context = model.config.vocab_size, context_of(model)
    (prefix,), branches = list_of_ids([prefix], "prefix", n_ids), list_of_ids(branches, "branch", n_ids)
    longest = max(map(len, branches))
    if context is not None and len(prefix) + longest - 1 > context:
        raise ReproError(f"prefix and longest branch have {len(prefix) + longest:,} tokens, but the model's context "
                         f"ends at {context:,}; cut the prefix.")
    device = device_of(model)
    targets = torch.nn.utils.rnn.pad_sequence(branches, batch_first=True, padding_value=-100).to(device)
    trunk = prefix[None].to(device)
    with evaluating(model):
        read, states = model.read_branches(model.embed(trunk), model.embed(targets.clamp(min=0))[None],
                                           torch.tensor([len(prefix)], device=device))
        before = torch.cat([read[:, -1:].expand(len(branches), 1, -1), states[0, :, :-1]], 1)
        nats = cross_entropy(model.output(before).flatten(0, 1), targets.flatten(), "none")
    check_losses(nats)
    return nats.view_as(targets).double().sum(1).cpu().numpy()
