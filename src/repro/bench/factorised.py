"""A training step of a Sparse Transformer with each pattern: where factorised attention takes less time than dense."""

import time
from math import isqrt

LENGTHS = 768, 1_024, 4_096, 8_192  # bytes: of a small image, of a stretch of text, and longer
PATTERNS = "dense", "fixed", "strided"
SIZE = {"n_layer": 2, "n_head": 2, "n_embd": 64}


def models(n: int) -> dict:
    """One of each pattern for n bytes, its stride the root of n."""
    import torch

    from repro.attention import Causal, Fixed, Strided
    from repro.models import SparseConfig, SparseTransformer

    stride = isqrt(n)
    patterns = dict(zip(PATTERNS, (Causal(), Fixed(stride, max(1, stride // 4)), Strided(stride)), strict=True))
    torch.manual_seed(0)
    return {name: SparseTransformer(SparseConfig(256, n, SIZE["n_layer"], SIZE["n_head"], SIZE["n_embd"], pattern))
            for name, pattern in patterns.items()}


def step(model, ids, precision: str) -> int:
    """The number of bytes that go forward and backward; leaves no gradients."""
    import torch
    from torch.nn import functional as F

    with torch.autocast(ids.device.type, torch.bfloat16, enabled=precision == "bf16"):
        logits = model(ids[:, :-1])
    F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten()).backward()
    model.zero_grad(set_to_none=True)
    return ids[:, 1:].numel()


def main(json_path=None, lengths: tuple[int, ...] = LENGTHS, rounds: int = 5) -> dict:
    """Time forward and backward of one sequence in turns; on a CPU on one thread, whose own seconds count."""
    from functools import partial

    import torch

    from repro.bench import compare, report
    from repro.processor import has_bf16

    on_gpu = torch.cuda.is_available()
    device, precision = "cuda" if on_gpu else "cpu", "bf16" if on_gpu or has_bf16() else "no"
    torch.set_num_threads(1)
    speeds, ratios = {}, {}
    for n in lengths:
        ids = torch.randint(256, (1, n + 1), generator=torch.Generator().manual_seed(n)).to(device)
        work = {f"{name}, {n:,} bytes": partial(step, model.to(device), ids, precision)
                for name, model in models(n).items()}
        speeds |= compare(work, rounds, clock=time.perf_counter if on_gpu else time.process_time)
        for name in PATTERNS[1:]:
            one, dense = (speeds[f"{which}, {n:,} bytes"]["tokens_per_second"] for which in (name, PATTERNS[0]))
            ratios[f"{name} against dense, {n:,} bytes"] = one / dense, None
    settings = {"lengths": lengths, "rounds": rounds, "device": device, "precision": precision, **SIZE}
    return report("factorised", settings, "A training step of a Sparse Transformer", speeds, ratios, json_path, "bytes")
