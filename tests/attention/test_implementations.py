"""Every implementation against a softmax written out, in outputs and gradients."""

import itertools
import math
import os
import re
import shutil
from typing import NamedTuple

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from repro.attention import (
    BlockLocal,
    Causal,
    Columns,
    Document,
    Fixed,
    Full,
    Global,
    Pattern,
    SlidingWindow,
    Strided,
    attend,
    choose,
    flash,
)
from repro.attention.blocked import block_size
from repro.attention.flex import flex
from repro.attention.implementations import DTYPES, Case, _diagonals, _weigh, refusal
from repro.attention.tiles import Hidden, tiles
from repro.errors import ReproError

TRAINABLE = ["dense", "loop", "blocked"]
WINDOWS = [SlidingWindow(1), SlidingWindow(7), SlidingWindow(0, causal=False), SlidingWindow(6, causal=False),
           SlidingWindow(64), SlidingWindow(500), SlidingWindow(500, causal=False)]
FLEX_CPU = "torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"  # compiling costs seconds
quick = settings(max_examples=25, deadline=None, derandomize=True, database=None)


def written_out(query, key, value, masks, scale=None):
    """Attention from its definition in float64; masks (H, N, N) or (B, H, N, N). Nothing seen: zeros."""
    query, key, value = (x.double() for x in (query, key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.einsum("bhid,bhjd->bhij", query, key) * scale
    weights = torch.where(masks, (scores - scores.detach().amax(-1, keepdim=True)).exp(), 0)
    return torch.einsum("bhij,bhjd->bhid", weights / weights.sum(-1, keepdim=True).clamp(min=1e-300), value)


def inputs(batch, heads, n, size, value_size=None, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = size, size, value_size or size
    return [torch.randn(batch, heads, n, d, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
            for d in sizes]


def agree(found, want, x, weights, tolerance=1e-9):
    """Outputs are equal, and so are the gradients of their weighted sum."""
    torch.testing.assert_close(found.double(), want, atol=tolerance, rtol=tolerance)
    grads = torch.autograd.grad((found.double() * weights).sum(), x, retain_graph=True)
    expected = torch.autograd.grad((want * weights).sum(), x)
    for grad, other in zip(grads, expected, strict=True):
        assert not grad.isnan().any()
        torch.testing.assert_close(grad.double(), other.double(), atol=tolerance * 10, rtol=tolerance * 10)


@st.composite
def sparse_patterns(draw, n):
    """A pattern that `blocked` takes, and perhaps global positions, some at the ends."""
    size = draw(st.integers(1, 2 * n))  # windows longer than the sequence too
    kind = draw(st.sampled_from(["causal", "both", "strided", "fixed", "block", "intersection"]))
    dilation = draw(st.integers(1, 5))
    pattern = {"causal": lambda: SlidingWindow(size, dilation),
               "both": lambda: SlidingWindow(size - size % 2, dilation, causal=False),
               "strided": lambda: Strided(dilation + 2), "fixed": lambda: Fixed(dilation + 4, 2),
               "block": lambda: BlockLocal(size),
               "intersection": lambda: Strided(dilation + 2) & SlidingWindow(size, 2)}[kind]()
    positions = draw(st.sets(st.sampled_from([0, n // 3, n // 2, n - 1]), max_size=3))
    if positions:
        pattern = pattern | Global(positions)
        pattern = pattern & Causal() if draw(st.booleans()) else pattern
    return pattern


class Asked(NamedTuple):
    n: int
    heads: int
    pattern: Pattern | list[Pattern]
    share_kept: float | None = None  # of the keys, by key_mask; 0 leaves every query without one
    dtype: torch.dtype = torch.float64
    seed: int = 0

    def prepare(self):
        """Inputs, key_mask, and what comes out of the definition."""
        x = inputs(2, self.heads, self.n, 4, 3, self.dtype, self.seed)
        patterns = self.pattern if isinstance(self.pattern, list) else [self.pattern] * self.heads
        masks, key_mask = torch.stack([one.mask(self.n) for one in patterns]), None
        if self.share_kept is not None:
            key_mask = torch.rand(2, self.n, generator=torch.Generator().manual_seed(self.seed)) < self.share_kept
            masks = masks & key_mask[:, None, None]
        return x, key_mask, written_out(*x, masks)

    @property
    def tolerance(self):
        """Half precision is rounded at the end, not on the way."""
        return {torch.float64: 1e-9, torch.float32: 1e-5}.get(self.dtype, torch.finfo(self.dtype).eps)


@st.composite
def cases(draw):
    n, heads = draw(st.integers(1, 150)), draw(st.integers(1, 3))
    patterns = draw(st.one_of(sparse_patterns(n), st.lists(sparse_patterns(n), min_size=heads, max_size=heads)))
    return Asked(n, heads, patterns, draw(st.sampled_from([None, 0.5, 0.0])), draw(st.sampled_from(DTYPES)),
                 draw(st.integers(0, 99)))


EXAMPLES = (
    Asked(130, 2, SlidingWindow(1)), Asked(129, 2, SlidingWindow(64)), Asked(128, 1, SlidingWindow(300)),
    Asked(131, 3, [SlidingWindow(20), SlidingWindow(9, 4), SlidingWindow(20)], 0.5), Asked(3, 1, SlidingWindow(2), 0.0),
    Asked(97, 2, SlidingWindow(10, causal=False) | Global([0, 96]), 0.5),
    *(Asked(100, 2, SlidingWindow(40) | Global([5]), None, dtype) for dtype in DTYPES),
    Asked(1, 1, SlidingWindow(2, causal=False) | Global([0])))


def with_examples(test):
    for one in EXAMPLES:
        test = example(case=one)(test)
    return test


@quick
@given(case=cases())
@with_examples
@pytest.mark.parametrize("name", [*TRAINABLE, "blocked, no kernel"])
def test_outputs_and_gradients(name, case):
    x, key_mask, want = case.prepare()
    with pytest.MonkeyPatch.context() as patch:
        if name == "blocked, no kernel":
            patch.setattr(flash, "FORWARD", "a_name_that_pytorch_has_not")
        assert flash.available(torch.device("cpu")) == (name != "blocked, no kernel")
        found = attend(*x, case.pattern, name.partition(",")[0], key_mask=key_mask)
        assert found.dtype == case.dtype
        agree(found, want, x, torch.randn_like(want), case.tolerance)


@quick
@given(case=cases())
@with_examples
def test_flex_forward(case):
    x, key_mask, want = case.prepare()
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(FLEX_CPU, True)
        found = attend(*x, case.pattern, "flex", key_mask=key_mask)
    torch.testing.assert_close(found.double(), want, atol=case.tolerance, rtol=case.tolerance)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", [Asked(600, 2, [SlidingWindow(300), SlidingWindow(70, 3)], 0.5, torch.float32),
                                  Asked(257, 1, SlidingWindow(9) | Global([0, 256]), None, torch.float32)])
def test_flex_on_a_gpu(case):
    x, key_mask, want = case.prepare()
    on_gpu = [part.detach().cuda().requires_grad_() for part in x]
    found = attend(*on_gpu, case.pattern, "flex", key_mask=None if key_mask is None else key_mask.cuda())
    weights = torch.randn_like(want)
    grads = torch.autograd.grad((found.cpu().double() * weights).sum(), on_gpu)
    torch.testing.assert_close(found.cpu().double(), want, atol=1e-2, rtol=1e-2)  # tf32
    for grad, other in zip(grads, torch.autograd.grad((want * weights).sum(), x), strict=True):
        torch.testing.assert_close(grad.cpu(), other, atol=3e-2, rtol=3e-2)


@pytest.mark.parametrize("name", ["dense", "loop"])
@pytest.mark.parametrize("pattern", [Full(), Causal()])
def test_dense_patterns(name, pattern):
    x = inputs(2, 2, 17, 4)
    key_mask = torch.arange(17) >= torch.tensor([[0], [5]])
    for padding, masks in (None, pattern.mask(17)), (key_mask, pattern.mask(17) & key_mask[:, None, None]):
        want = written_out(*x, masks)
        agree(attend(*x, pattern, name, key_mask=padding), want, x, torch.randn_like(want))


@pytest.mark.parametrize("name", TRAINABLE)
def test_scale_autocast_and_large_scores(name):
    x = inputs(1, 2, 90, 4, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(*x, SlidingWindow(5), name, scale=40.0)  # in bfloat16 these scores would be off by far
    agree(found, written_out(*x, SlidingWindow(5).mask(90), 40.0), x, torch.ones(1), 1e-3)


@pytest.mark.parametrize("name", TRAINABLE)
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_several_dtypes_under_autocast(name, half):
    """Rotary positions lift queries and keys to float32, values stay in 16 bits: all are computed in 16."""
    x = inputs(1, 2, 90, 4, dtype=torch.float32)
    mixed = x[0], x[1], x[2].to(half)
    with torch.autocast("cpu", half):
        found = attend(*mixed, SlidingWindow(5), name)
    assert found.dtype == half
    want = written_out(*x, SlidingWindow(5).mask(90))
    assert (found.float() - want).norm() < (0.02 if half == torch.bfloat16 else 0.003) * want.norm()
    with pytest.raises(ReproError, match=f"query is torch.float32, key torch.float32, value {half}"):
        attend(*mixed, SlidingWindow(5), name)


LAYOUTS = {  # of (B, H, N, D) in memory
    **{f"order {order}": lambda x, order=order: x.permute(order).contiguous().permute([*map(order.index, range(4))])
       for order in itertools.permutations(range(4))},
    "after other features": lambda x: torch.cat([x, x, x], 3)[..., x.shape[3]:-x.shape[3]],
    "every second feature": lambda x: torch.stack([x, -x], 4).flatten(3)[..., ::2],
    "every second position": lambda x: torch.stack([-x, x], 3).flatten(2, 3)[:, :, 1::2],
    **{f"one for all in {dim}": lambda x, dim=dim: x.narrow(dim, 0, 1).expand_as(x) for dim in range(4)},
}


@pytest.mark.parametrize("name", [*TRAINABLE, "blocked, no kernel", "chunks", "flex"])
@pytest.mark.parametrize(("dtype", "tolerance", "native"), [
    (torch.float32, 1e-5, False), (torch.bfloat16, 0.05, False), (torch.bfloat16, 0.05, True)])
def test_any_layout_in_memory(name, dtype, tolerance, native, monkeypatch):
    """Query, key and value each have another layout; native: on a processor with instructions for bfloat16."""
    monkeypatch.setattr(FLEX_CPU, True)
    monkeypatch.setattr(flash, "takes", lambda dtype: native and dtype == torch.bfloat16)
    if name == "blocked, no kernel":
        monkeypatch.setattr(flash, "FORWARD", "a_name_that_pytorch_has_not")
    patterns = [SlidingWindow(6)]
    if name not in ("chunks", "flex"):
        patterns += [SlidingWindow(6, 3), BlockLocal(7), SlidingWindow(4, causal=False) | Global([5]), Strided(7)]
    layouts = list(LAYOUTS.values())
    for number, layout in enumerate(layouts):
        pattern = patterns[number % len(patterns)]
        x = inputs(1 + number % 2, 2, 42, 4, 4 - number % 2, dtype, number)
        laid_out = [by(part) for by, part in zip((layout, layouts[number - 1], layouts[number - 7]), x, strict=True)]
        weights = layout(torch.randn_like(x[2].detach()).double())
        with torch.set_grad_enabled(name != "flex"):
            outs = attend(*laid_out, pattern, name.partition(",")[0]), written_out(*laid_out, pattern.mask(42))
        pairs = [outs]
        if name != "flex":
            pairs += zip(*(torch.autograd.grad((out.double() * weights).sum(), x, retain_graph=True) for out in outs),
                         strict=True)
        for found, want in pairs:
            found, want = found.double(), want.double()
            assert (found - want).norm() <= tolerance * (1 + want.norm()), list(LAYOUTS)[number]


@pytest.mark.parametrize("name", TRAINABLE)
@pytest.mark.parametrize("which", range(3))
def test_gradient_of_one_input(name, which):
    x = [part.detach().requires_grad_(k == which) for k, part in enumerate(inputs(1, 2, 40, 4, 6))]
    want = written_out(*x, SlidingWindow(5).mask(40))
    agree(attend(*x, SlidingWindow(5), name), want, [x[which]], torch.randn_like(want))


@pytest.mark.filterwarnings("error")
def test_flex_on_a_cpu_gives_no_advice_to_compile(monkeypatch):
    """PyTorch gives it once in a process, so it has to forget that it did."""
    shown = set()
    monkeypatch.setattr("torch.nn.attention.flex_attention._WARNINGS_SHOWN", shown)
    found = attend(*(part.detach().float() for part in inputs(1, 1, 20, 8)), SlidingWindow(5), "flex")
    assert found.shape == (1, 1, 20, 8) and shown  # PyTorch meant to give it, so it is ours that held it back


@pytest.mark.parametrize("pattern", [
    SlidingWindow(300), SlidingWindow(200, 3), SlidingWindow(508, causal=False), SlidingWindow(510, causal=False),
    SlidingWindow(129), SlidingWindow(130), SlidingWindow(400, causal=False) | Global([0, 300]), Strided(150),
    Fixed(140, 20), BlockLocal(130), Causal(), Full()], ids=repr)
def test_flex_skips_what_it_may(pattern):
    """Blocks that the kernel skips hold no allowed pair; those in which it asks nothing hold no other."""
    from repro.attention.flex import BLOCK, block_mask

    for n in 384, 600:
        blocks = block_mask(pattern, n)
        mask = torch.nn.functional.pad(pattern.mask(n), (0, -n % BLOCK, 0, -n % BLOCK))
        allowed = mask.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK)).sum((1, 3))
        visited, whole = torch.zeros_like(allowed), torch.zeros_like(allowed)
        for counts, order, into in ((blocks.kv_num_blocks, blocks.kv_indices, visited),
                                    (blocks.full_kv_num_blocks, blocks.full_kv_indices, whole)):
            for row, count in enumerate(counts[0, 0]):
                into[row, order[0, 0, row, :count]] = 1
        assert not (visited * whole).any()
        assert ((visited + whole).bool() >= allowed.bool()).all()
        if n == 384:  # every block is inside the sequence
            assert torch.equal(whole.bool(), allowed == BLOCK**2)


@quick
@given(data=st.data(), n=st.integers(2, 200), block=st.sampled_from([1, 7, 64]))
@pytest.mark.parametrize("by_keys", [False, True])
def test_tiles_hold_every_pair_once(by_keys, data, n, block):
    pattern, position = data.draw(sparse_patterns(n)), torch.arange(n)
    times = torch.zeros(n, n)
    for rows, keys, bias in tiles(pattern, n, block, by_keys=by_keys):
        sizes = len(position[rows]), len(position[keys])
        assert sizes[by_keys] <= block or min(sizes) <= n // 8
        times[rows, keys] += 1 if bias is None else bias.isfinite().float()
    assert torch.equal(times, pattern.mask(n).float())


@quick
@given(st.integers(1, 3), st.integers(1, 9), st.integers(0, 9), st.integers(1, 6), st.integers(0, 3))
def test_places_of_many_tiles(step, size, move, number, start):
    """What each tile reads, and that all tiles' numbers arrive at their positions, however they overlap."""
    n = start + move * (number - 1) + (size - 1) * step + 1
    places = flash.Places(slice(start, start + (size - 1) * step + 1, step), move, number)
    x, values = torch.randn(2, n, 3, dtype=torch.float64), torch.randn(2, number, size, 3, dtype=torch.float64)
    listed = [[start + tile * move + at * step for at in range(size)] for tile in range(number)]
    assert torch.equal(places.read(x), x[:, listed])
    assert places.apart == (len({at for one in listed for at in one}) == size * number)
    want = x.clone()
    for tile, positions in enumerate(listed):
        for at, position in enumerate(positions):
            want[:, position] += values[:, tile, at]
    places.add(x, values)
    torch.testing.assert_close(x, want)


@pytest.mark.parametrize("positions", [range(16), range(0, 8192, 512)], ids=["together", "spread"])
@pytest.mark.parametrize("by_keys", [False, True])
def test_global_positions_add_one_tile_of_keys_and_one_of_queries(positions, by_keys):
    window = SlidingWindow(256, causal=False)
    alone, both = (flash.runs(pattern, 8192, torch.float32, 64, by_keys)
                   for pattern in (window, window | Global(positions)))
    assert len(both) == len(alone) + 2
    assert [run.fresh for run in both[-2:]] == [False, False] and all(run.fresh for run in alone) != by_keys


@pytest.mark.parametrize("pattern", [SlidingWindow(40), SlidingWindow(40, 3) | Global([5, 60])], ids=str)
def test_scores_of_halves_are_not_rounded_to_halves(pattern):
    """Scores of some 100 that differ by less than bfloat16 tells apart (0.5) decide who is heard."""
    draw = torch.Generator().manual_seed(0)
    x = [torch.randn(2, 70, 16, generator=draw) for _ in range(3)]
    x = [(part * by).bfloat16().requires_grad_() for part, by in zip(x, (5, 5, 1), strict=True)]
    want = written_out(*(part[:, None] for part in x), pattern.mask(70), 1.0)
    hidden = Hidden(None, None, 1, 0.0, 0)
    found = flash.fused(*x, pattern, 1.0, hidden)[:, None]
    assert (want.abs() < 20).all()
    torch.testing.assert_close(found.double(), want, atol=0.02, rtol=0.02)
    weights = torch.randn(want.shape, generator=draw).bfloat16().double()
    grads = torch.autograd.grad((found.double() * weights).sum(), x)
    for grad, other in zip(grads, torch.autograd.grad((want * weights).sum(), x), strict=True):
        assert (grad.double() - other.double()).norm() < 0.02 * other.double().norm()


@quick
@given(data=st.data(), n=st.integers(2, 60))
def test_diagonals(data, n):
    pattern = data.draw(sparse_patterns(n))
    i, j = pattern.mask(n).nonzero().unbind(1)
    assert set((i - j).tolist()) <= set(_diagonals(pattern, n))


def test_tiles_and_diagonals_stay_few():
    """What makes these implementations worth having: pairs computed, per allowed pair."""
    n = 4096
    for pattern in SlidingWindow(256), SlidingWindow(256, 4), SlidingWindow(256, causal=False), BlockLocal(256):
        area = sum(len(range(*tile.rows.indices(n))) * len(range(*tile.keys.indices(n)))
                   for tile in tiles(pattern, n, block_size("cpu")))
        assert area <= 1.2 * pattern.count(n)
    assert _diagonals(SlidingWindow(5, 3), 100) == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("pattern", [SlidingWindow(4), SlidingWindow(4, 2, causal=False), Strided(5), Causal(),
                                     BlockLocal(4), Fixed(5, 2), SlidingWindow(6) | Global([2])], ids=repr)
@pytest.mark.parametrize("name", ["auto", *TRAINABLE, "flex"])
def test_documents_are_read_as_if_alone(name, pattern, monkeypatch):
    monkeypatch.setattr(FLEX_CPU, True)
    x, lengths = inputs(2, 2, 21, 4), ([5, 9, 7], [1, 20])
    documents = torch.stack([torch.repeat_interleave(torch.arange(len(one)) * 3 % 5, torch.tensor(one))
                             for one in lengths])
    if name != "dense" and name != "auto" and not pattern.steady or (name, pattern) == ("blocked", Causal()):
        with pytest.raises(ReproError, match="use 'dense'|Use 'dense'"), torch.no_grad():
            attend(*x, pattern, name, documents=documents)
        return
    want = torch.cat([torch.cat([written_out(*(part[row:row + 1, :, start:start + n] for part in x),
                                             torch.stack([looking(pattern, n)] * 2))
                                 for start, n in zip(torch.tensor([0, *one]).cumsum(0).tolist(), one, strict=False)], 2)
                      for row, one in enumerate(lengths)])
    if name == "flex":
        with torch.no_grad():
            torch.testing.assert_close(attend(*x, pattern, name, documents=documents), want, atol=1e-9, rtol=1e-9)
    else:
        agree(attend(*x, pattern, name, documents=documents), want, x, torch.randn_like(want))


def looking(pattern, n):
    i = torch.arange(n)
    return pattern(i[:, None], i)


@pytest.mark.parametrize("pattern", [SlidingWindow(4), SlidingWindow(3, 4), Strided(5), Causal(), Full(), Fixed(5, 2),
                                     SlidingWindow(6, 2) | Columns([2, 9]), Columns([]), Document([0] * 7 + [1] * 193)],
                         ids=str)
@pytest.mark.parametrize("n_queries", [1, 3, 150])
@pytest.mark.parametrize("name", ["auto", "dense"])
def test_fewer_queries_are_the_last_ones(pattern, n_queries, name):
    x = inputs(2, 2, 200, 4, 3)
    key_mask = torch.rand(2, 200, generator=torch.Generator().manual_seed(1)) < 0.5
    shorter = [x[0][:, :, -n_queries:], *x[1:]]
    for padding, mask in (None, pattern.mask(200).expand(2, 1, -1, -1)), (
            key_mask, pattern.mask(200) & key_mask[:, None, None]):
        want = written_out(*x, mask)[:, :, -n_queries:]
        agree(attend(*shorter, pattern, name, key_mask=padding), want, x, torch.randn_like(want))


@pytest.mark.parametrize("pattern", [SlidingWindow(16), SlidingWindow(8, 3), SlidingWindow(8) | Columns([0, 700])],
                         ids=repr)
def test_a_query_at_the_end_reads_only_what_it_sees(pattern, monkeypatch):
    """The number of keys that reach the product is the number that are seen, however long the text is."""
    read = []
    real = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention",
                        lambda q, k, *rest, **more: read.append(k.shape[2]) or real(q, k, *rest, **more))
    for n in 3000, 30_000:
        with torch.no_grad():
            attend(torch.ones(1, 1, 1, 4), *(torch.ones(1, 1, n, 4) for _ in range(2)), pattern)
    assert read[0] == read[1] == pattern.per_query(3000)[-1]


def dropped(x, pattern, name, share, seed, **settings):
    """(the probabilities after dropout, one row for each query) by values that name their position."""
    torch.manual_seed(seed)
    values = torch.eye(x[1].shape[2], dtype=x[1].dtype).expand(*x[1].shape[:3], -1)
    return attend(x[0], x[1], values, pattern, name, dropout=share, **settings)


@pytest.mark.parametrize("name", TRAINABLE)
def test_dropout(name):
    """Weights are left out or grown by 1 / (1 - share), the same for the same seed; on average nothing changes."""
    pattern, share, n, often = SlidingWindow(12, causal=False) | Global([3]), 0.25, 40, 100
    x = inputs(2, 2, n, 4)
    whole = dropped(x, pattern, name, 0.0, 0)
    found = dropped(x, pattern, name, share, 1)
    assert torch.equal(found, dropped(x, pattern, name, share, 1))
    assert not torch.equal(found, dropped(x, pattern, name, share, 2))
    seen = whole > 1e-12
    torch.testing.assert_close(found, torch.where(found > 0, whole / (1 - share), 0))
    assert (found[seen] == 0).double().mean() == pytest.approx(share, abs=0.03)
    with torch.no_grad():
        mean = sum(dropped(x, pattern, name, share, seed) for seed in range(often)) / often
    assert ((mean - whole).abs() / (whole * math.sqrt(share / (1 - share) / often) + 1e-9)).max() < 7  # standard errors
    weights = torch.randn(2, 2, n, 4, dtype=torch.float64)
    torch.manual_seed(1)
    got = torch.autograd.grad((attend(*x, pattern, name, dropout=share) * weights).sum(), x)
    kept = (found.detach() > 0) / (1 - share)
    scores = torch.einsum("bhid,bhjd->bhij", *x[:2]) / 2
    shares = scores.masked_fill(~pattern.mask(n), -torch.inf).softmax(-1) * kept
    want = torch.autograd.grad(((shares @ x[2]) * weights).sum(), x)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-7)


def test_dropout_on_a_gpu_is_not_for_flex():
    case = Case(SlidingWindow(256), 8192, "cuda", torch.float32, True, 64, dropout=True)
    assert refusal("flex", case) == "FlexAttention has no dropout; use 'blocked'."
    x = [part.detach() for part in inputs(1, 1, 20, 8)]
    with pytest.raises(ReproError, match="'flex', but FlexAttention has no dropout"):
        attend(*x, SlidingWindow(5), "flex", dropout=0.1)


def test_without_triton_a_gpu_has_no_flex(monkeypatch):
    case = Case(SlidingWindow(256), 8192, "cuda", torch.float32, True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("repro.attention.implementations.has_triton_package", lambda: True)
    assert refusal("flex", case) is None
    monkeypatch.setattr("repro.attention.implementations.has_triton_package", lambda: False)
    assert "Triton, which is not installed here; use 'blocked'" in refusal("flex", case)
    assert _weigh(case).name == "blocked"


@pytest.mark.parametrize("compiled", [None, True])
def test_flex_compiled_for_real(compiled):
    """Other positions are other numbers, and nothing is compiled for them. By default FlexAttention is traced on a CPU
    and its graph run as it is; `compiled` makes machine code of it. Takes some 10 s on one core each."""
    from torch._dynamo.utils import counters

    if compiled and not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("needs a C++ compiler")
    x = [part.detach().float() for part in inputs(1, 1, 16, 8)]
    found, graphs = [], []
    for positions in [0, 7, 15], [0, 1, 2, 3], [5]:
        pattern = SlidingWindow(16, causal=False) | Global(positions)
        found.append((flex(*x, pattern, 8**-0.5, compiled=compiled), written_out(*x, pattern.mask(16))))
        graphs.append(counters["stats"]["unique_graphs"])
    for one, want in found:
        torch.testing.assert_close(one.double(), want, atol=1e-5, rtol=1e-5)
    assert graphs[0] > 0 and graphs[0] == graphs[-1]


@pytest.mark.parametrize("n", [1, 6, 61])
@pytest.mark.parametrize("share_kept", [None, 0.5, 0.0])
@pytest.mark.parametrize("pattern", WINDOWS, ids=repr)
def test_chunks(pattern, n, share_kept):
    case = Asked(n, 2, pattern, share_kept)
    x, key_mask, want = case.prepare()
    agree(attend(*x, pattern, "chunks", key_mask=key_mask), want, x, torch.randn_like(want))


def test_chunks_read_documents_in_every_dtype_and_drop_weights():
    documents = torch.tensor([[0] * 9 + [4] * 20, [1] * 28 + [0]])
    for dtype in DTYPES:
        x = inputs(2, 2, 29, 4, dtype=dtype)
        for pattern in SlidingWindow(5), SlidingWindow(6, causal=False):
            want = written_out(*x, pattern.mask(29) & (documents[:, None, :, None] == documents[:, None, None]))
            found = attend(*x, pattern, "chunks", documents=documents)
            assert found.dtype == dtype
            agree(found, want, x, torch.randn_like(want), Asked(29, 2, pattern, None, dtype).tolerance)
    x = inputs(1, 2, 40, 4)
    whole, found = (dropped(x, SlidingWindow(12, causal=False), "chunks", share, 1) for share in (0.0, 0.25))
    torch.testing.assert_close(found, torch.where(found > 0, whole / 0.75, 0))
    assert (found[whole > 0] == 0).double().mean().item() == pytest.approx(0.25, abs=0.05)


def test_chunks_are_one_product_of_twice_what_is_needed(monkeypatch):
    """As the paper has it (Appendix A): blocks of twice the reach, overlapping by half."""
    computed, real = [], torch.matmul
    monkeypatch.setattr("torch.matmul", lambda a, b: computed.append(real(a, b)) or computed[-1])
    attend(*inputs(1, 1, 4096, 4, dtype=torch.float32), SlidingWindow(64, causal=False), "chunks")
    assert [tuple(one.shape) for one in computed] == [(1, 1, 129, 64, 64), (1, 1, 128, 32, 4)]
    assert computed[0].numel() / SlidingWindow(64, causal=False).count(4096) == pytest.approx(2, rel=0.02)


def some(n, *rows):
    """(B, n) bool: True at the positions that each row lists."""
    return torch.stack([torch.isin(torch.arange(n), torch.tensor(row).long()) for row in rows])


@pytest.mark.parametrize("name", ["auto", *TRAINABLE, "flex"])
@pytest.mark.parametrize("pattern", [SlidingWindow(9), SlidingWindow(8, 2, causal=False),
                                     [SlidingWindow(2), Strided(5)], BlockLocal(7), [Fixed(5, 2), SlidingWindow(3)],
                                     Fixed(5, 2).heads[1], Fixed(5, 2) | Full()], ids=repr)
@pytest.mark.parametrize("padding", [False, True])
def test_columns_and_rows_of_each_sample(pattern, name, padding, monkeypatch):
    """Global tokens that differ from sample to sample: none, several, adjacent ones, padding."""
    monkeypatch.setattr(FLEX_CPU, True)
    n, patterns = 50, pattern if isinstance(pattern, list) else [pattern] * 2
    columns, rows = some(n, [0, 7, 8, 49], [], [30]), some(n, [0, 7, 8, 49], [5], [])
    key_mask = some(n, range(50), range(20), [2, 30, 31]) if padding else None
    masks = torch.stack([one.mask(n) for one in patterns]) | columns[:, None, None] | rows[:, None, :, None]
    masks = masks & key_mask[:, None, None] if padding else masks
    x = inputs(3, 2, n, 4, 3)
    want = written_out(*x, masks)
    if name == "blocked" and pattern == Fixed(5, 2) | Full():
        with pytest.raises(ReproError, match="a late query sees 100% of all keys"):
            attend(*x, pattern, name, key_mask=key_mask, columns=columns, rows=rows)
        return
    with torch.set_grad_enabled(name != "flex"):
        found = attend(*x, pattern, name, key_mask=key_mask, columns=columns, rows=rows)
    if name == "flex":
        torch.testing.assert_close(found, want, atol=1e-9, rtol=1e-9)
    else:
        agree(found, want, x, torch.randn_like(want))


def test_a_batch_with_columns_of_its_own_is_one_call(monkeypatch):
    """And another batch finds what was kept of the first one's pattern, though its columns are others."""
    from repro.attention import implementations

    asked, real = [], implementations._one
    monkeypatch.setattr(implementations, "_one", lambda q, k, v, pattern, *rest: asked.append((pattern, k.shape))
                        or real(q, k, v, pattern, *rest))
    x = inputs(3, 2, 300, 4)
    for columns in some(300, [0, 100], [200], []), some(300, [7], [8, 9, 10], [0, 299]):
        attend(*x, SlidingWindow(8), columns=columns)
    assert len(asked) == 2 and asked[0] == asked[1] == (SlidingWindow(8) | Columns(range(8)), (3, 2, 308, 4))


def test_dropout_of_columns_and_rows():
    chosen, (query, key, _) = some(20, [3, 4], [11]), inputs(2, 1, 20, 4)
    values = torch.eye(20, dtype=torch.float64).expand(2, 1, -1, -1)
    found = []
    for share, seed in (0.0, 0), (0.25, 1), (0.25, 1), (0.25, 2):
        torch.manual_seed(seed)
        found.append(attend(query, key, values, SlidingWindow(4), dropout=share, columns=chosen, rows=chosen))
    whole, one, again, other = found
    assert torch.equal(one, again) and not torch.equal(one, other)
    torch.testing.assert_close(one, torch.where(one > 0, whole / 0.75, 0))
    for part in (whole > 0) & chosen[:, None, None], (whole > 0) & chosen[:, None, :, None]:
        assert 0.1 < (one[part] == 0).double().mean() < 0.4


def test_memory_is_linear():
    """What the backward pass keeps grows with n, not n * n."""
    def kept(n):
        sizes, x = [], inputs(1, 1, n, 8, dtype=torch.float32)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            attend(*x, SlidingWindow(16), "blocked")
        return sum(sizes)

    assert kept(2048) == 2 * kept(1024) < 64 * 2048


def test_auto_agrees_with_its_choice(caplog):
    x = inputs(1, 2, 301, 4)
    with caplog.at_level("INFO", "repro"):
        attend(*x, SlidingWindow(8))
    assert "N = 301 on cpu: blocked, because its tiles cover 12% of all pairs" in caplog.text
    assert choose(SlidingWindow(8), 301, torch.device("cpu")) == choose(SlidingWindow(8), 301)
    torch.testing.assert_close(attend(*x, SlidingWindow(8)), attend(*x, SlidingWindow(8), "blocked"), rtol=0, atol=0)


@pytest.mark.parametrize(("arguments", "name", "reason"), [
    ((SlidingWindow(256), 8192), "blocked", "cover 3%"),
    ((SlidingWindow(8), 256), "dense", "up to 256 positions"),
    ((SlidingWindow(8), 257), "blocked", "cover 1[0-9]%"),
    ((SlidingWindow(8000), 8192), "dense", "cover 5[0-9]%"),
    ((Causal(), 8192), "dense", "own kernel"),
    ((Causal() | Global([3]), 8192), "dense", "does not stay sparse"),
    ((SlidingWindow(256), 8192, "cuda"), "flex", "compiled"),
    ((SlidingWindow(256), 8192, "cuda", torch.float32, True, 256), "flex", "compiled"),
    ((SlidingWindow(256), 8192, "cuda", torch.float32, True, 576), "blocked", "cover"),
    ((SlidingWindow(256), 8192, "cuda", torch.float64), "blocked", "cover"),
    ((SlidingWindow(256), 8192, "cpu", torch.float32, False), "blocked", "cover"),
])
def test_choose(arguments, name, reason):
    found = choose(*arguments)
    assert found.name == name
    assert re.search(reason, found.reason)


@pytest.mark.parametrize(("arguments", "said"), [
    ({"implementation": "fast"}, "unknown implementation 'fast'"),
    ({"pattern": Causal(), "implementation": "blocked"}, "'blocked', but under Causal.* a late query sees 100%"),
    ({"pattern": Strided(1), "implementation": "blocked"}, "sees 100%"),
    ({"implementation": "flex"}, "no backward pass on CPU; use 'blocked'"),
    ({"pattern": [SlidingWindow(2)] * 3}, "3 patterns, but there are 2 heads"),
    ({"pattern": SlidingWindow(2) | Global([9])}, "positions name 9, but the sequence has 9: 0 to 8"),
    ({"key_mask": torch.ones(1, 8, dtype=torch.bool)}, r"key_mask is torch.bool \(1, 8\)"),
    ({"key_mask": torch.ones(1, 9)}, "key_mask is torch.float32"),
    ({"pattern": [SlidingWindow(2), 3]}, "pattern has the type int; it must be a Pattern"),
    ({"pattern": torch.ones(9, 9) > 0}, "pattern has the type Tensor; it must be a Pattern"),
    ({"query": torch.ones(1, 2, 9, 5)}, r"query is \(1, 2, 9, 5\), key \(1, 2, 9, 4\)"),
    ({"query": torch.ones(1, 2, 10, 4)}, r"query is \(1, 2, 10, 4\), key \(1, 2, 9, 4\).*none for cross-attention"),
    ({"query": torch.ones(1, 2, 3, 4), "implementation": "loop"}, "3 queries, 9 keys and implementation 'loop'"),
    ({"query": torch.ones(1, 2, 3, 4), "columns": torch.ones(1, 3) > 0}, "there are 3 queries and 9 keys; leave them"),
    ({"columns": torch.ones(1, 8) > 0}, r"columns are torch.bool \(1, 8\); they must be torch.bool .* here \(1, 9\)"),
    ({"rows": torch.ones(1, 9)}, r"rows are torch.float32 \(1, 9\)"),
    ({"rows": torch.ones(1, 9) > 0, "documents": torch.ones(1, 9).long()}, "there are documents .* leave them out"),
    ({"pattern": SlidingWindow(2, 2), "implementation": "chunks"}, "one window without gaps, .* use 'blocked'"),
    ({"pattern": SlidingWindow(2) | Global([0]), "implementation": "chunks"}, "'chunks', but chunks compute one"),
    ({"documents": torch.ones(1, 9)}, r"documents are torch.float32 \(1, 9\); they must be whole numbers"),
    ({"documents": torch.ones(1, 8).long()}, r"documents are torch.int64 \(1, 8\)"),
    ({"documents": torch.ones(1, 9).long(), "pattern": BlockLocal(2), "implementation": "blocked"},
     "positions restart in every document, and BlockLocal"),
    ({"dropout": 1.0}, "dropout is 1.0; it must be at least 0 and less than 1"),
    ({"key": torch.ones(1, 2, 9, 4, dtype=torch.float64)}, "key torch.float64"),
    ({"value": torch.ones(1, 2, 8, 4)}, r"value \(1, 2, 8, 4\); query and key must be \(B, H, N, D\)"),
    ({key: torch.ones(1, 2, 9, 0) for key in ("query", "key", "value")}, "with H, N and D at least 1"),
    ({key: torch.ones(1, 2, 9, 4, dtype=torch.long) for key in ("query", "key", "value")}, "query is torch.int64"),
])
def test_bad_input(arguments, said):
    x = dict(zip(("query", "key", "value"), inputs(1, 2, 9, 4, dtype=torch.float32), strict=True))
    with pytest.raises(ReproError, match=said):
        attend(**{**x, "pattern": SlidingWindow(2), **arguments})


@pytest.mark.parametrize("name", TRAINABLE)
@pytest.mark.parametrize("causal", [True, False])
def test_the_window_ends_where_it_says(name, causal):
    """The farthest key of a window counts, the next one does not: with equal scores a query returns its shares."""
    n, window, dilation = 80, 10, 3
    nothing, shares = torch.zeros(1, 1, n, 4), torch.eye(n)[None, None]
    found = attend(nothing, nothing, shares, SlidingWindow(window, dilation, causal), name)[0, 0] > 0
    reach = range(-(window - 1), 1) if causal else range(-(window // 2), window // 2 + 1)
    for i in range(n):
        expected = {i + k * dilation for k in reach} & set(range(n))
        assert set(found[i].nonzero().flatten().tolist()) == expected
