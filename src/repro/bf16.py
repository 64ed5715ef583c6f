"""Bfloat16 products on processors that have no instructions for them, where torch's own take some 60 times as long as
those in float32.

The product of two bfloat16 numbers is exact in float32, and processors that have the instructions add such products up
in float32 and round once, at the end. So operands that are widened, multiplied in float32 and rounded give the same
numbers but for the order of sums. Fused attention keeps its weights in float32 inside, which torch rounds there.

Widened are the products that layers, attention and Muon ask for, forward and backward. Products in place, into a given
tensor (`out=`), in another thread or in inference mode stay as slow as they were; nothing here uses them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

BF16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # instructions by their names in torch, of x86 and of ARM
FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default,
            torch.ops.aten.baddbmm.default, FUSED.default,
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default}


def has_bf16() -> bool:
    """Whether it multiplies bfloat16 numbers itself; where it does not, torch works them out in another way."""
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in BF16)


@contextmanager
def bf16_products(device: torch.device, wanted: bool = True) -> Iterator[None]:
    """Within it, products of bfloat16 tensors on a CPU without the instructions go through float32.

    wanted: False changes nothing, and neither does another device or a processor that has them. Every operation of
    torch takes some 50 microseconds longer inside, so it pays where there are such products.
    """
    if not wanted or device.type != "cpu" or has_bf16():
        yield
        return
    with _Widened():
        yield


class _Widened(TorchDispatchMode):
    """Also sees what autograd and optimisers compute."""

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if function not in PRODUCTS or args[0].dtype != torch.bfloat16:
            return function(*args, **kwargs)
        args, kwargs = tree_map_only(torch.Tensor, _widened, (args, kwargs))
        found = function(*args, **kwargs)
        if function is FUSED.default:  # the logs of its sums are float32 there, too
            return found[0].bfloat16(), found[1]
        return tree_map_only(torch.Tensor, torch.Tensor.bfloat16, found)


def _widened(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype == torch.bfloat16 else x
