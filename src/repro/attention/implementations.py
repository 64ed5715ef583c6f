"""Several implementations of one attention: each gives the same result as `dense`."""

import logging
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._triton import has_triton_package

from repro.attention import blocked as tiled
from repro.attention import chunks as chunked
from repro.attention.decoding import last_rows
from repro.attention.patterns import Causal, Columns, Full, Pattern
from repro.attention.sample_globals import columns_first, with_rows
from repro.checked import checked
from repro.errors import ReproError, check_whole, unknown

log = logging.getLogger(__name__)


class Case(NamedTuple):
    """The properties of a call that decide between implementations; `device` is a type such as "cpu"."""

    pattern: Pattern
    n: int
    device: str
    dtype: torch.dtype
    gradients: bool
    size: int = 64  # of a head's queries and keys
    documents: bool = False
    dropout: bool = False


class Choice(NamedTuple):
    """The implementation that `auto` uses, and why."""

    name: str
    reason: str


def dense(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, scale: float, key_mask: Tensor | None = None,
          documents: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """The reference: computes every score and masks it by the pattern. Any dtype, any device."""
    first, settings = key.shape[2] - query.shape[2], {"dropout_p": dropout, "scale": scale}
    if key_mask is None and documents is None and not first and pattern in (Full(), Causal()):
        return F.scaled_dot_product_attention(query, key, value, is_causal=pattern == Causal(), **settings)
    if documents is None:
        j = torch.arange(key.shape[2], device=query.device)
        mask = pattern(j[first:, None], j)
    else:
        i = positions_in(documents)
        mask = pattern(i[:, :, None], i[:, None]) & (documents[:, :, None] == documents[:, None])
        mask = mask[:, None]
    if key_mask is not None:
        mask = mask & key_mask[:, None, None]
    return F.scaled_dot_product_attention(query, key, value, mask, **settings)


def positions_in(documents: Tensor) -> Tensor:
    """(B, N): the position of each token in its document, counted from 0; `documents` (B, N) as in `attend`."""
    i = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    starts = F.pad(documents[:, 1:] != documents[:, :-1], (1, 0))
    return i - torch.where(starts, i, 0).cummax(1).values


def loop(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern, scale: float, key_mask: Tensor | None = None,
         documents: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """One diagonal of the score matrix at a time: little memory, much time (Beltagy et al. 2020, section 3.2)."""
    dtype, n = query.dtype, query.shape[2]
    query, key, value = (x.to(torch.promote_types(dtype, torch.float32)) for x in (query, key, value))
    position = torch.arange(n, device=query.device)
    diagonals = [(slice(max(0, offset), n + min(0, offset)), slice(max(0, -offset), n - max(0, offset)))
                 for offset in _diagonals(pattern, n)]
    if not diagonals:  # no query sees any key
        return torch.zeros_like(value).to(dtype) + 0 * (query.sum() + key.sum() + value.sum()).to(dtype)
    scores, allowed = [], []
    for rows, keys in diagonals:
        around = rows.start, n - rows.stop
        scores.append(F.pad((query[:, :, rows] * key[:, :, keys]).sum(-1), around))
        seen = pattern(position[rows], position[keys])
        if key_mask is not None:
            seen = seen & key_mask[:, None, keys]
        if documents is not None:
            seen = seen & (documents[:, None, rows] == documents[:, None, keys])
        allowed.append(F.pad(seen, around))
    allowed = torch.stack(allowed, -1)
    weights = (torch.stack(scores, -1) * scale).masked_fill(~allowed, torch.finfo(query.dtype).min).softmax(-1)
    weights = F.dropout(weights * allowed, dropout)  # zeros for a query that sees no key
    out = 0
    for number, (rows, keys) in enumerate(diagonals):
        part = weights[:, :, rows, number, None] * value[:, :, keys]
        out = out + F.pad(part, (0, 0, rows.start, n - rows.stop))
    return out.to(dtype)


def _diagonals(pattern: Pattern, n: int) -> list[int]:
    """The values of i - j that allowed pairs can have."""
    position, found = torch.arange(n), set()
    for part in pattern.parts:
        for first, last, step in (keys.within(n, position) for keys in part.keys(position)):
            near, far = (position - last)[first <= last], (position - first)[first <= last]
            if near.numel():
                gap = step if (far % step).unique().numel() == 1 else 1
                found.update(range(far.max().item(), near.min().item() - 1, -gap))
    return sorted(found)


def flex(*arguments) -> Tensor:
    """FlexAttention (PyTorch): compiled for the pattern on a GPU; forward only on a CPU, for checks."""
    from repro.attention.flex import flex  # takes seconds to import

    return flex(*arguments)


IMPLEMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "dense": dense, "loop": loop, "chunks": chunked.chunks, "blocked": tiled.blocked, "flex": flex}
DTYPES = torch.float64, torch.float32, torch.bfloat16, torch.float16
WIDE = 256  # features of a query; with more, FlexAttention tiles may exceed a GPU's shared memory (not tested)
SHORT = 256  # up to this many positions, skipping pairs saves nothing


def refusal(name: str, case: Case) -> str | None:
    """Why this implementation cannot compute the case; None if it can."""
    if name != "dense" and case.documents and not case.pattern.steady:
        return (f"positions restart in every document, and {case.pattern} depends on positions, not only on "
                "distances; use 'dense'.")
    if name == "chunks":
        return chunked.refusal(case.pattern)
    if name == "flex" and case.dropout:
        return "FlexAttention has no dropout; use 'blocked'."
    if name == "blocked":
        share = tiled.density(case.pattern)
        return None if share <= 0.5 else (
            f"under {case.pattern} a late query sees {share:.0%} of all keys; 'blocked' is for sparse patterns: "
            "windows, dilated or not, blocks, strides, and their unions with a few global positions. Use 'dense'.")
    if name == "flex" and case.device == "cpu" and case.gradients:
        return "FlexAttention has no backward pass on CPU; use 'blocked', or torch.no_grad()."
    if name == "flex" and case.device not in ("cpu", "cuda"):
        return f"FlexAttention runs on cuda and, forward only, on cpu, but not on {case.device}; use 'blocked'."
    if name == "flex" and case.device == "cuda" and torch.cuda.is_available() and not has_triton_package():
        return "FlexAttention is compiled by Triton, which is not installed here; use 'blocked'."
    if name == "flex" and case.device == "cuda" and case.dtype == torch.float64:
        return "FlexAttention's kernel has no float64; use 'blocked'."
    return None


@checked
def choose(pattern: Pattern, n: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32,
           gradients: bool = True, size: int = 64) -> Choice:
    """The implementation that `auto` uses for n positions on a type of device, and the reason.

    gradients: whether a backward pass will follow. size: features of a head's queries and keys.

    >>> choose(SlidingWindow(256), 8_192).name
    'blocked'
    >>> choose(Causal(), 8_192)
    Choice(name='dense', reason='PyTorch has its own kernel for this pattern')
    """
    check_whole(n, "n", of="positions")
    check_whole(size, "size")
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise ReproError(f"device is {device!r}; give one such as cpu or cuda.") from error
    return _choose(Case(pattern, n, kind, dtype, gradients, size))


@lru_cache(maxsize=256)
def _choose(case: Case) -> Choice:
    choice = _weigh(case)
    log.info("%s at N = %d on %s: %s, because %s", case.pattern, case.n, case.device, *choice)
    return choice


def _weigh(case: Case) -> Choice:
    if case.pattern in (Full(), Causal()) and not case.documents:
        return Choice("dense", "PyTorch has its own kernel for this pattern")
    if case.n <= SHORT:
        return Choice("dense", f"up to {SHORT} positions, skipping pairs saves nothing")
    if case.device == "cuda" and case.size <= WIDE and not refusal("flex", case):
        return Choice("flex", "on a GPU it is compiled for the pattern")
    if refusal("blocked", case):
        return Choice("dense", "the pattern needs positions in documents, or does not stay sparse" if case.documents
                      else "the pattern does not stay sparse")
    share = tiled.share_of_pairs(case.pattern, case.n, case.device)
    if share > 0.5:
        return Choice("dense", f"tiles would cover {share:.0%} of all pairs")
    return Choice("blocked", f"its tiles cover {share:.0%} of all pairs")


def attend(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern | Sequence[Pattern],
           implementation: str = "auto", scale: float | None = None, key_mask: Tensor | None = None,
           documents: Tensor | None = None, dropout: float = 0.0, columns: Tensor | None = None,
           rows: Tensor | None = None) -> Tensor:
    """Attention of the queries to the keys that the pattern allows.

    query: (B, H, Q, D); key: (B, H, N, D); value: (B, H, N, E), where E may differ from D. If Q < N, the queries have
    the last Q positions, and the implementation must be "auto", "blocked" or "dense". Returns (B, H, Q, E) in the dtype
    of the inputs. Under autocast, inputs of a single dtype keep it; mixed dtypes, as with rotary positions, are cast to
    the autocast dtype.
    pattern: one for all heads, or a sequence of H. implementation: "dense", "loop", "chunks", "blocked", "flex", or
    "auto" for the result of `choose`. scale: of the scores, 1 / sqrt(D) if None. key_mask: (B, N) bool, False for keys
    that no query may see (padding). documents: (B, N) whole numbers, the document of each position: documents are
    concatenated, and each is read separately.
    dropout: the share of attention weights that are dropped, with the others scaled up; seeded by torch.manual_seed.
    "flex" has no dropout: requested by name it raises an error, and "auto" uses "blocked" or "dense" instead, also on a
    GPU. columns, rows: (B, N) bool, tokens that all queries see, and tokens that see all keys, in addition to the
    pattern: like `Columns` and `Rows`, but different for each sample, and like `Global` if both are the same tensor.
    With columns, patterns that depend on positions, such as `Fixed`, are computed sample by sample. A query that sees
    no key gets zeros, and its gradients are 0.

    Raises ReproError for an unknown or unsuitable implementation, and for shapes, dtypes or patterns that do not
    match.

    >>> q, k, v = torch.randn(3, 1, 2, 64, 8)
    >>> blocked = attend(q, k, v, SlidingWindow(16), implementation="blocked")
    >>> torch.allclose(blocked, attend(q, k, v, SlidingWindow(16), implementation="dense"), atol=1e-5)
    True
    >>> attend(q, k, v, [SlidingWindow(16), Causal()]).shape
    torch.Size([1, 2, 64, 8])
    """
    if not isinstance(implementation, str) or implementation not in ("auto", *IMPLEMENTATIONS):
        raise unknown("implementation", implementation, ("auto", *IMPLEMENTATIONS))
    for name, part in (("query", query), ("key", key), ("value", value), ("key_mask", key_mask),
                       ("documents", documents), ("columns", columns), ("rows", rows)):
        if not isinstance(part, Tensor) and (part is not None or name in ("query", "key", "value")):
            raise ReproError(f"{name} is a {type(part).__name__}; it must be a tensor.")
    if not query.dtype == key.dtype == value.dtype:
        query, key, value = autocast(query, key, value)
    patterns = _check(query, key, value, pattern, key_mask, documents, dropout)
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, (int, float)) or not abs(scale) < 2**63):
        raise ReproError(f"scale is {scale!r}; it must be a number, or None for 1 / sqrt(D).")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if columns is not None or rows is not None:
        return _chosen(query, key, value, patterns, implementation, scale, key_mask, documents, dropout, columns, rows)
    rest = scale, key_mask, documents, dropout
    with torch.autocast(query.device.type, enabled=False):
        if len(set(patterns)) == 1:
            return _one(query, key, value, patterns[0], implementation, *rest)
        out = {}
        for pattern in dict.fromkeys(patterns):
            heads = [head for head, own in enumerate(patterns) if own == pattern]
            found = _one(*(x[:, heads] for x in (query, key, value)), pattern, implementation, *rest)
            out.update(zip(heads, found.unbind(1), strict=True))
        return torch.stack([out[head] for head in range(len(patterns))], 1)


def autocast(*tensors: Tensor) -> list[Tensor]:
    """The tensors as PyTorch's attention takes them: cast to the autocast dtype, unless they are float64."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return list(tensors)
    dtype = torch.get_autocast_dtype(device)
    return [x if x.dtype == torch.float64 else x.to(dtype) for x in tensors]


def _chosen(query, key, value, patterns, implementation, scale, key_mask, documents, dropout, columns, rows) -> Tensor:
    """`attend` with columns or rows that differ between samples; in one call if patterns depend on distances only."""
    _check_chosen(query, key, documents, columns=columns, rows=rows)
    if columns is None or not columns.any():
        out = attend(query, key, value, patterns, implementation, scale, key_mask, dropout=dropout)
    elif all(one.steady for one in patterns):
        *longer, longer_mask = columns_first(query, key, value, patterns, columns, key_mask)
        out = attend(*longer, implementation, scale, longer_mask, dropout=dropout)[:, :, -query.shape[2]:]
    else:  # positions count from the start of a row, so columns cannot be copied to the front
        masks = [None] * len(query) if key_mask is None else key_mask.split(1)
        samples = zip(query.split(1), key.split(1), value.split(1), columns, masks, strict=True)
        out = torch.cat([attend(q, k, v, [one | Columns(mine.nonzero().flatten()) for one in patterns], implementation,
                                scale, mask, dropout=dropout) for q, k, v, mine, mask in samples])
    if rows is None or not rows.any():
        return out
    with torch.autocast(query.device.type, enabled=False):
        return with_rows(out, query, key, value, rows, scale, key_mask, dropout)


def _one(query, key, value, pattern, implementation, scale, key_mask, documents, dropout) -> Tensor:
    """`attend` for heads that share one pattern."""
    if query.shape[2] < key.shape[2]:
        if implementation not in ("auto", "blocked", "dense") or documents is not None:
            what = "documents" if documents is not None else f"implementation '{implementation}'"
            raise ReproError(f"there are {query.shape[2]} queries, {key.shape[2]} keys and {what}; with fewer queries, "
                             "the implementation must be 'auto', 'blocked' or 'dense', and there are no documents.")
        if implementation != "dense":
            return last_rows(query, key, value, pattern, scale, key_mask, dropout)
    gradients = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    case = Case(pattern, query.shape[2], query.device.type, query.dtype, gradients, query.shape[3],
                documents is not None, dropout > 0)
    name = _choose(case).name if implementation == "auto" else implementation
    if reason := refusal(name, case):
        raise ReproError(f"implementation is '{name}', but {reason}")
    return IMPLEMENTATIONS[name](query, key, value, pattern, scale, key_mask, documents, dropout)


def _check(query: Tensor, key: Tensor, value: Tensor, pattern: Pattern | Sequence[Pattern], key_mask: Tensor | None,
           documents: Tensor | None, dropout: float) -> list[Pattern]:
    """The pattern of every head, after checking all inputs."""
    shapes = tuple(query.shape), tuple(key.shape), tuple(value.shape)
    if ({len(shape) for shape in shapes} != {4} or len({shape[:2] for shape in shapes}) > 1
            or key.shape[2] != value.shape[2] or query.shape[2] > key.shape[2] or query.shape[3] != key.shape[3]
            or 0 in query.shape[1:]):
        raise ReproError(f"query is {shapes[0]}, key {shapes[1]}, value {shapes[2]}; query and key must be "
                         "(B, H, N, D), the value (B, H, N, E), with H, N and D at least 1; a query may be shorter "
                         "and then has the last positions. Patterns apply to a single text, so there is none for "
                         "cross-attention.")
    if query.dtype not in DTYPES or not query.dtype == key.dtype == value.dtype:
        raise ReproError(f"query is {query.dtype}, key {key.dtype}, value {value.dtype}; all three must be one of "
                         f"{', '.join(str(dtype) for dtype in DTYPES)}.")
    batch, heads, n, _ = key.shape
    if key_mask is not None and (key_mask.shape != (batch, n) or key_mask.dtype != torch.bool):
        raise ReproError(f"key_mask is {key_mask.dtype} {tuple(key_mask.shape)}; it must be torch.bool and (B, N), "
                         f"here {(batch, n)}.")
    if documents is not None and (documents.shape != (batch, n) or documents.dtype not in (torch.int32, torch.int64)):
        raise ReproError(f"documents are {documents.dtype} {tuple(documents.shape)}; they must be whole numbers and "
                         f"(B, N), here {(batch, n)}.")
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise ReproError(f"dropout is {dropout!r}; it must be at least 0 and less than 1.")
    patterns = list(pattern) if isinstance(pattern, Sequence) else [pattern] * heads
    for one in patterns:
        if not isinstance(one, Pattern):
            raise ReproError(f"pattern has the type {type(one).__name__}; it must be a Pattern, or a sequence with one "
                             "for each head.")
    if len(patterns) != heads:
        raise ReproError(f"pattern names {len(patterns)} patterns, but there are {heads} heads; give one for all, or "
                         "one for each.")
    for one in dict.fromkeys(patterns):
        one.check(n)
    return patterns


def _check_chosen(query: Tensor, key: Tensor, documents: Tensor | None, **masks: Tensor | None) -> None:
    """Check the inputs if columns or rows differ between samples."""
    shape = query.shape[0], query.shape[2]
    for name, mask in masks.items():
        if mask is not None and (mask.shape != shape or mask.dtype != torch.bool):
            raise ReproError(f"{name} are {mask.dtype} {tuple(mask.shape)}; they must be torch.bool and (B, N), here "
                             f"{shape}.")
    if query.shape[2] < key.shape[2] or documents is not None:
        raise ReproError("columns and rows need one complete text per row, but there are "
                         + (f"documents ({documents.dtype})" if documents is not None else
                            f"{query.shape[2]} queries and {key.shape[2]} keys") + "; leave them out.")
