"""A training step of a Sparse Transformer with each pattern, to see where factorized attention is faster than dense.

First the sizes of Table 2 at `small` (Child et al. 2019), for images and text; then the text model on longer sequences.
"""

import time

CASES = {  # bytes, stride, summary, layers, heads, width
    "images, 768 bytes": (768, 48, 8, 4, 2, 64), "text, 1,024 bytes": (1_024, 32, 8, 2, 4, 128),
    "text, 4,096 bytes": (4_096, 64, 16, 2, 4, 128), "text, 8,192 bytes": (8_192, 90, 22, 2, 4, 128),
}
PATTERNS = "dense", "fixed", "strided"


def models(n: int, stride: int, summary: int, n_layer: int, n_head: int, n_embd: int) -> dict:
    """One untrained model for each pattern."""
    import torch

    from repro.attention import Causal, Fixed, Strided
    from repro.models import SparseConfig, SparseTransformer

    torch.manual_seed(0)
    patterns = dict(zip(PATTERNS, (Causal(), Fixed(stride, summary), Strided(stride)), strict=True))
    return {name: SparseTransformer(SparseConfig(256, n, n_layer, n_head, n_embd, pattern))
            for name, pattern in patterns.items()}


def step(model, ids, precision: str) -> int:
    """One forward and backward pass; returns the number of bytes read and leaves no gradients."""
    import torch
    from torch.nn import functional as F

    with torch.autocast(ids.device.type, torch.bfloat16, enabled=precision == "bf16"):
        logits = model(ids[:, :-1])
    F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten()).backward()
    model.zero_grad(set_to_none=True)
    if ids.is_cuda:
        torch.cuda.synchronize()
    return ids[:, 1:].numel()


def main(json_path=None, cases: dict[str, tuple[int, ...]] = CASES, rounds: int = 5) -> dict:
    """Time forward and backward passes of one sequence in turns; on a CPU, one thread is timed in processor seconds."""
    from functools import partial

    import torch

    from repro.bench import compare, report
    from repro.bf16 import has_bf16

    on_gpu = torch.cuda.is_available()
    device, precision = "cuda" if on_gpu else "cpu", "bf16" if on_gpu or has_bf16() else "no"
    torch.set_num_threads(1)
    speeds, ratios = {}, {}
    for case, sizes in cases.items():
        ids = torch.randint(256, (1, sizes[0] + 1), generator=torch.Generator().manual_seed(0)).to(device)
        work = {f"{name}, {case}": partial(step, model.to(device), ids, precision)
                for name, model in models(*sizes).items()}
        speeds |= compare(work, rounds, clock=time.perf_counter if on_gpu else time.process_time)
        for name in PATTERNS[1:]:
            one, dense = (speeds[f"{which}, {case}"]["tokens_per_second"] for which in (name, PATTERNS[0]))
            ratios[f"{name} against dense, {case}"] = one / dense, None
    settings = {"cases": cases, "rounds": rounds, "device": device, "precision": precision}
    return report("factorised", settings, "A training step of a Sparse Transformer", speeds, ratios, json_path, "bytes")
