"""What a GPU would be asked, without one: FlexAttention on tensors that have shapes and no numbers (device "meta").

Its own check of devices knows no "meta", and is switched off; nothing else differs from a GPU until the kernel is made.
"""

import pytest
import torch
from torch.nn.attention import flex_attention as pytorch

from repro.attention import Causal, Document, Fixed, Global, SlidingWindow, Strided, choose
from repro.attention.flex import BLOCK, LEAST_SIZE, block_mask, flex

# Heads, positions, features of queries and of values: 5,000 are no multiple of a block; 576 are too many for the
# kernel's tiles on some GPUs, and 8 too few for any.
SIZES = [(12, 8_192, 64, 64), (8, 4_096, 576, 512), (2, 5_000, 8, 20)]
PATTERNS = [SlidingWindow(256), SlidingWindow(512, causal=False) | Global([0, 9]), Strided(128), Fixed(128, 32),
            Document([0] * 3_000 + [1] * 9_000) & Causal()]


@pytest.fixture(autouse=True)
def without_numbers(monkeypatch):
    """Meta tensors are let in, nothing is compiled, and no mask of theirs is kept."""
    monkeypatch.setattr(pytorch, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(pytorch, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    yield
    block_mask.cache_clear()


def inputs(heads, n, size, value_size, batch=2, dtype=torch.bfloat16):
    return [torch.empty(batch, heads, n, d, device="meta", dtype=dtype, requires_grad=True)
            for d in (size, size, value_size)]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda one: repr(one)[:40])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_shapes_forward_and_backward(sizes, pattern):
    heads, n, size, value_size = sizes
    x = inputs(*sizes)
    out = flex(*x, pattern, size**-0.5)
    assert (out.shape, out.dtype, out.device.type) == ((2, heads, n, value_size), torch.bfloat16, "meta")
    for given, gradient in zip(x, torch.autograd.grad(out, x, torch.empty_like(out)), strict=True):
        assert (gradient.shape, gradient.dtype) == (given.shape, given.dtype)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("samples", [False, True])
def test_what_reaches_the_operator(sizes, samples, monkeypatch):
    """Sizes that its kernel takes, one mask for all heads, as many blocks as cover the positions."""
    heads, n, size, value_size = sizes
    asked = []
    real = pytorch.flex_attention
    monkeypatch.setattr("repro.attention.flex.flex_attention",
                        lambda *tensors, **settings: asked.append((tensors, settings)) or real(*tensors, **settings))
    key_mask, documents = (torch.empty(2, n, device="meta", dtype=kind) if samples else None
                           for kind in (torch.bool, torch.int64))
    flex(*inputs(*sizes), SlidingWindow(256), 0.5, key_mask, documents)
    (tensors, settings), count = asked[0], -(-n // BLOCK)
    assert [one.shape[-1] for one in tensors] == [max(LEAST_SIZE, one) for one in (size, size, value_size)]
    blocks = settings["block_mask"]
    assert settings["scale"] == 0.5 and blocks.seq_lengths == (n, n) and blocks.BLOCK_SIZE == (BLOCK, BLOCK)
    for numbers, indices in ((blocks.kv_num_blocks, blocks.kv_indices), (blocks.q_num_blocks, blocks.q_indices)):
        assert (numbers.shape, indices.shape) == ((1, 1, count), (1, 1, count, count))
        assert numbers.dtype == indices.dtype == torch.int32 and indices.device.type == "meta"
    assert (blocks.full_kv_num_blocks is None) == samples  # with padding no block is surely whole


@pytest.mark.parametrize("n", [8_192, 65_536])
def test_blocks_of_a_window_at_a_gpus_size(n):
    """A window of two blocks needs the query's own block and the one two before in part, the one between whole."""
    blocks, count = block_mask(SlidingWindow(2 * BLOCK), n), n // BLOCK
    part, whole = blocks.kv_num_blocks[0, 0], blocks.full_kv_num_blocks[0, 0]
    assert part.tolist() == [1, 1] + [2] * (count - 2) and whole.tolist() == [0] + [1] * (count - 1)
    last = count - 1
    assert set(blocks.kv_indices[0, 0, last, :2].tolist()) == {last - 2, last}
    assert blocks.full_kv_indices[0, 0, last, 0] == last - 1
    back, all_back = blocks.q_num_blocks[0, 0], blocks.full_q_num_blocks[0, 0]  # of the backward pass, by keys
    assert back.tolist() == [2] * (count - 2) + [1, 1] and all_back.tolist() == [1] * (count - 1) + [0]


def test_a_graph_with_one_operator_forward_and_one_backward():
    """Traced whole, as on a GPU, up to the point where a kernel would be made."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    graphs = []
    backend = aot_autograd(fw_compiler=lambda graph, example: graphs.append(graph) or make_boxed_func(graph.forward))
    x = inputs(12, 8_192, 64, 64)
    blocks = block_mask(SlidingWindow(256) | Global([0, 9]), 8_192, torch.device("meta"))
    out = torch.compile(pytorch.flex_attention, backend=backend, fullgraph=True, dynamic=False)(
        *x, block_mask=blocks, scale=0.125)
    gradients = torch.autograd.grad(out, x, torch.empty_like(out))
    assert [one.shape for one in gradients] == [one.shape for one in x]
    called = [[node.target.name() for node in graph.graph.nodes if "flex_attention" in str(node.target)]
              for graph in graphs]
    assert called == [["flex_attention"], ["flex_attention_backward"]]


def test_what_a_gpu_takes():
    """576 features are left to `blocked`: the tiles of the kernel may outgrow a GPU's shared memory."""
    names = [choose(SlidingWindow(256), n, "cuda", torch.bfloat16, size=size).name for _, n, size, _ in SIZES]
    assert names == ["flex", "blocked", "flex"]
