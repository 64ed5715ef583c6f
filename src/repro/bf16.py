"""Bfloat16 products on processors without instructions for them, where torch's own products take about 60 times as long
as in float32.

The product of two bfloat16 numbers is exact in float32, and processors that have the instructions add such products up
in float32 and round once, at the end. So operands that are widened, multiplied in float32 and rounded give the same
numbers, except for the order of summation. Fused attention keeps its weights in float32, which torch's own rounds.

The products of layers, attention and Muon are widened, forward and backward. Products in place, into a given tensor
(`out=`), in another thread or in inference mode stay as slow as they were; nothing here uses them.
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
    """Whether the processor has instructions for bfloat16 products; if not, torch emulates them."""
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in BF16)


@contextmanager
def bf16_products(device: torch.device, wanted: bool = True) -> Iterator[None]:
    """Inside the `with` block, products of bfloat16 tensors on a CPU without the instructions go through float32.

    Nothing changes if `wanted` is False, on another device, or if the processor has the instructions. Every torch
    operation inside takes about 50 microseconds longer, so use it only around such products.
    """
    if not wanted or device.type != "cpu" or has_bf16():
        yield
        return
    with _Widened():
        yield


class _Widened(TorchDispatchMode):
    """Widens products, including those of autograd and optimizers."""

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
