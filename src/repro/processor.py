"""What the processor of this machine can do."""

import time

BF16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # instructions by their names in torch, of x86 and of ARM


def has_bf16() -> bool:
    """Whether it multiplies bfloat16 numbers itself; where it does not, torch works them out in another way."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in BF16)


def bf16_slowdown(n: int = 256) -> float:
    """How many times as long as in float32 a product of two n x n matrices takes in bfloat16, measured on the spot."""
    import torch

    def seconds(dtype: torch.dtype) -> float:
        matrix, times = torch.ones(n, n, dtype=dtype), []
        for _ in range(4):  # the first one warms up
            start = time.perf_counter()
            matrix @ matrix
            times.append(time.perf_counter() - start)
        return min(times[1:])

    return seconds(torch.bfloat16) / seconds(torch.float32)
