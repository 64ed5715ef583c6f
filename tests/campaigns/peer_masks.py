"""Masks of attention-gym against our patterns, and allenai's sliding chunks against our Longformer attention."""

import sys
import types

import torch
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_mask, noop_mask

from repro.attention import (
    BlockLocal,
    Causal,
    Columns,
    Document,
    Global,
    LongformerSelfAttention,
    Prefix,
    Rows,
    SlidingWindow,
    attend,
)
from repro.attention.conversions import Neighbourhood
from repro.errors import ReproError

N = 96
LENGTHS = [7, 1, 40, 16, 32]  # of documents that fill N positions
IMPLEMENTATIONS = "loop", "dense", "blocked"


def pairs() -> dict:
    """attention-gym's masks and our patterns that should be equal, by a name for each pair."""
    from attn_gym import masks as gym
    from attn_gym.masks.document_mask import length_to_offsets

    ids = [number for number, length in enumerate(LENGTHS) for _ in range(length)]
    offsets, chosen = length_to_offsets(LENGTHS, "cpu"), torch.zeros(N, dtype=torch.bool)
    chosen[[0, 8, 50]] = True
    found = {"causal": (gym.causal_mask, Causal())}
    for window in 0, 1, 3, 8, 40, 200:
        found[f"sliding window {window}"] = gym.generate_sliding_window(window), SlidingWindow(window + 1)
        found[f"window {window} in documents"] = (
            gym.generate_doc_mask_mod(gym.generate_sliding_window(window), offsets),
            Document(ids) & SlidingWindow(window + 1))
        found[f"window {window} and global tokens"] = (
            gym.generate_global_sliding_window(window, chosen), SlidingWindow(2 * window, causal=False)
            | Global([0, 8, 50]))
    for window, dilation in (4, 2), (5, 2), (4, 1), (12, 3), (40, 7):
        found[f"dilated window {window} by {dilation}"] = (
            gym.generate_dilated_sliding_window(window, dilation),
            SlidingWindow(2 * (window // dilation), dilation, causal=False))
    for first in 1, 10, 95:
        found[f"prefix of {first}"] = gym.generate_prefix_lm_mask(first), Prefix(first) | Causal()
    for block in 1, 16, 40:
        found[f"causal blocks of {block}"] = gym.batchify_mask_mod(gym.causal_mask, block), BlockLocal(block)
        found[f"blocks of {block}"] = (gym.batchify_mask_mod(noop_mask, block),
                                       Document([i // block for i in range(N)]))
    for kernel in 1, 5, 31:
        found[f"neighborhood of {kernel}"] = gym.generate_natten(N, N, 1, kernel), Neighbourhood(kernel, 1, N)
    for sink in False, True:
        found[f"spatial head of video, sink {sink}"] = (
            gym.generate_spatial_head_mask_mod(4, 4, 23, attn_sink=sink, width=1, round_width=4),
            SlidingWindow(2 * 19, causal=False) | Rows(range(4)) | Columns(range(4 + 23 * sink)))
    found["documents"] = gym.generate_doc_mask_mod(noop_mask, offsets), Document(ids)
    found["causal documents"] = gym.generate_doc_mask_mod(gym.causal_mask, offsets), Document(ids) & Causal()
    found["packed causal documents"] = gym.generate_packed_causal_doc_mask_mod(offsets), Document(ids) & Causal()
    return found


def masks() -> list[dict]:
    """A row for each pair, and for each of our implementations its attention under attention-gym's mask."""
    rows, (query, key, value) = [], torch.randn(3, 1, 2, N, 8, generator=torch.Generator().manual_seed(0))
    for name, (theirs, pattern) in pairs().items():
        mask = create_mask(theirs, 1, 1, N, N, "cpu")[0, 0]
        equal = torch.equal(pattern.mask(N), mask) and torch.equal(pattern.per_query(N), mask.sum(1))
        rows.append(_row("attention-gym: masks", name, lambda equal=equal: equal))
        want = F.scaled_dot_product_attention(query, key, value, mask)
        for one in IMPLEMENTATIONS:
            rows.append(_row("attention-gym: attention", f"{name}, {one}", lambda p=pattern, one=one, w=want:
                             torch.allclose(attend(query, key, value, p, one), w, atol=1e-6)))
    return rows


def chunks() -> list[dict]:
    """Outputs and gradients of our attention and layer against allenai's, with padding and global tokens."""
    sys.modules.setdefault("pytorch_lightning", types.SimpleNamespace(LightningModule=object))  # unused here
    vars(sys.modules["transformers"]).setdefault("AdamW", None)  # gone from there, and unused here
    import longformer as allenai

    rows = []
    for window, n in (2, 16), (4, 16), (8, 48), (16, 64):
        rows.append(_row("allenai: sliding chunks", f"window {window}, {n} tokens",
                         lambda w=window, n=n: _functions(allenai, w, n)))
        for case in "plain", "padding", "globals", "globals and padding", "globals that differ":
            rows.append(_row("allenai: layer", f"window {window}, {n} tokens, {case}",
                             lambda w=window, n=n, case=case: _layer(allenai, w, n, case)))
    return rows


def _functions(allenai, window: int, n: int) -> bool:
    """`sliding_chunks_matmul_qk`, softmax and `sliding_chunks_matmul_pv` against `attend`."""
    parts = torch.randn(3, 2, 3, n, 8, generator=torch.Generator().manual_seed(n))
    ours, theirs = ([part.clone().requires_grad_() for part in parts] for _ in range(2))
    query, key, value = (part.transpose(1, 2) for part in theirs)
    scores = allenai.sliding_chunks_matmul_qk(query / 8**0.5, key, window, padding_value=0)
    want = allenai.sliding_chunks_matmul_pv(scores.softmax(-1), value, window).transpose(1, 2)
    found = attend(*ours, SlidingWindow(2 * window, causal=False), "blocked")
    return _same(found, want, ours, theirs)


def _layer(allenai, window: int, n: int, case: str) -> bool:
    """allenai's LongformerSelfAttention against ours with its weights."""
    torch.manual_seed(n)
    config = allenai.LongformerConfig(attention_window=[window], hidden_size=16, num_attention_heads=2,
                                      attention_probs_dropout_prob=0.0)
    config.output_attentions = False
    layer = allenai.LongformerSelfAttention(config, 0)
    ours = LongformerSelfAttention.from_transformers(layer, window=2 * window)
    real, chosen = torch.ones(2, n, dtype=torch.long), torch.zeros(2, n, dtype=torch.long)
    if "padding" in case:
        real[1, -n // 3:] = 0
    if "globals" in case:
        chosen[:, [0, n // 2]] = 1
        chosen[1, n // 2] = "differ" not in case
    mask = torch.where(real == 1, chosen, -1)[:, None, None] * 10_000.0
    x, y = (torch.randn(2, n, 16, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2))
    names = [name for name, _ in layer.named_parameters() if "global" in case or "_global" not in name]
    return _same(ours(x, real, chosen), layer(y, mask)[0],
                 *([z, *(dict(one.named_parameters())[name] for name in names)] for z, one in ((x, ours), (y, layer))))


def _same(found, want, ours, theirs) -> bool:
    """Whether outputs agree, and the gradients of a weighted sum of them."""
    weights = torch.randn(want.shape, generator=torch.Generator().manual_seed(2))
    pairs = [(found, want), *zip(torch.autograd.grad((found * weights).sum(), ours),
                                 torch.autograd.grad((want * weights).sum(), theirs), strict=True)]
    return all(torch.allclose(one, other, atol=2e-5, rtol=1e-4) for one, other in pairs)


def _row(kind: str, case: str, check) -> dict:
    """A row of the report: passed, refused or failed."""
    try:
        ours, why = ("passed", "") if check() else ("failed", "the numbers differ")
    except ReproError as error:
        ours, why = "refused", str(error)
    return {"group": kind, "kind": kind, "case": case, "theirs": "passed", "ours": ours, "why": why}
