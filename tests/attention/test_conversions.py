"""What "window" means elsewhere: every row of the table against the library, or against its documented rule."""

import pytest
import torch
from local_attention import LocalAttention
from transformers import LongformerConfig
from transformers.masking_utils import (
    sdpa_mask,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from repro.attention import CONVENTIONS
from repro.attention.conversions import Neighbourhood
from repro.errors import ReproError

N = 24


def seen(attention):
    """(N, N) bool, who looks at whom in `attention(query, key, value)` (1, 1, N, D): shares of one-hot values."""
    nothing = torch.zeros(1, 1, N, N)
    return attention(nothing, nothing, torch.eye(N)[None, None])[0, 0] > 0


def from_rule(rule):
    return torch.tensor([[bool(rule(i, j)) for j in range(N)] for i in range(N)])


def longformer(window):
    """transformers' own layer, made to return the shares: zero scores, values that name their position."""
    config = LongformerConfig(hidden_size=N, num_attention_heads=1, attention_window=[window], num_hidden_layers=1)
    layer = LongformerSelfAttention(config, 0).eval()
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    torch.nn.init.eye_(layer.value.weight)
    mask = torch.zeros(1, N)
    return layer(torch.eye(N)[None], mask, mask < 0, mask > 0, False)[0][0] > 0


def local_attention(window, **settings):
    return seen(LocalAttention(window, use_rotary_pos_emb=False, autopad=True, **settings))


def neighbours(i, kernel, dilation):
    """NATTEN's: of the positions with the query's remainder the window of `kernel` that has the query in its middle,
    behind it if there are two; of the windows that lie within the text the one that comes nearest to that."""
    group = list(range(i % dilation, N, dilation))
    windows = [group[start:start + kernel] for start in range(len(group) - kernel + 1)]
    return min(windows, key=lambda window: abs(window[kernel // 2] - i))


LIBRARIES = {  # (library, setting): who sees whom, and the settings to try
    ("repro", "SlidingWindow(w, d)"): (
        lambda w, d: from_rule(lambda i, j: (i - j) % d == 0 and 0 <= i - j < w * d), [(4, 1), (3, 2)]),
    ("repro", "SlidingWindow(w, d, causal=False)"): (
        lambda w, d: from_rule(lambda i, j: (i - j) % d == 0 and abs(i - j) * 2 <= w * d), [(4, 1), (4, 3)]),
    ("Longformer (paper; transformers)", "attention_window"): (longformer, [(4,), (6,)]),
    # allenai, diagonaled_mm: diagonals k = 0 .. 2w stand for the keys at i + d * (k - w)
    ("allenai/longformer", "attention_window, attention_dilation"): (
        lambda w, d: from_rule(lambda i, j: j in [i + d * (k - w) for k in range(2 * w + 1)]), [(2, 1), (3, 2)]),
    # allenai, diagonaled_mm with autoregressive=True: only the diagonals k = 0 .. w
    ("allenai/longformer", "attention_window, attention_dilation, autoregressive=True"): (
        lambda w, d: from_rule(lambda i, j: j in [i + d * (k - w) for k in range(w + 1)]), [(2, 1), (3, 2)]),
    ("transformers, causal masks", "sliding_window"): (
        lambda w: sdpa_mask(1, N, N, mask_function=sliding_window_causal_mask_function(w),
                            allow_is_causal_skip=False)[0, 0], [(1,), (5,)]),
    ("transformers, bidirectional masks", "sliding_window"): (
        lambda w: sdpa_mask(1, N, N, mask_function=sliding_window_bidirectional_mask_function(w),
                            allow_is_causal_skip=False)[0, 0], [(1,), (5,)]),
    # attention-gym: causal and query - key <= window_size
    ("attention-gym", "generate_sliding_window(w)"): (
        lambda w: from_rule(lambda i, j: i >= j >= i - w), [(1,), (4,)]),
    # attention-gym: |query - key| <= window_size and |query - key| % dilation == 0
    ("attention-gym", "generate_dilated_sliding_window(w, d)"): (
        lambda w, d: from_rule(lambda i, j: abs(i - j) <= w and abs(i - j) % d == 0), [(4, 2), (5, 2), (4, 1)]),
    # attention-gym: |query - key| <= window_size, or either of them is global
    ("attention-gym", "generate_global_sliding_window(w, is_global)"): (
        lambda w, chosen=(0,): from_rule(lambda i, j: abs(i - j) <= w or i in chosen or j in chosen),
        [(2,), (3, (0, 8)), (1, (23,)), (0, ())]),
    # flash-attention: the keys between i - left and i + right, both included; -1 is no bound
    ("flash-attention", "window_size=(w, right)"): (
        lambda left, right=0: from_rule(lambda i, j: (left < 0 or j >= i - left) and (right < 0 or j <= i + right)),
        [(4,), (4, 0), (3, 2), (0, 5), (-1, 0), (2, -1), (-1, -1)]),
    ("NATTEN", "kernel_size, dilation"): (
        lambda w, d, n: from_rule(lambda i, j: j in neighbours(i, w, d)), [(5, 1, N), (4, 1, N), (3, 2, N), (4, 5, N)]),
    ("NATTEN", "kernel_size, dilation, is_causal=True"): (
        lambda w, d: from_rule(lambda i, j: j in [i - k * d for k in range(w)]), [(4, 1), (3, 2)]),
    ("local-attention", "window_size, causal=True"): (
        lambda w: local_attention(w, causal=True), [(4,), (5,)]),
    ("local-attention", "window_size, causal=True, exact_windowsize=True"): (
        lambda w: local_attention(w, causal=True, exact_windowsize=True), [(4,), (5,)]),
    ("local-attention", "window_size, causal=False, exact_windowsize=True"): (
        lambda w: local_attention(w, causal=False, exact_windowsize=True), [(4,), (5,)]),
}


@pytest.mark.parametrize("row", CONVENTIONS, ids=lambda row: f"{row.library}: {row.setting}")
def test_row(row):
    who, tries = LIBRARIES[row.library, row.setting]
    for arguments in tries:
        assert torch.equal(who(*arguments), row.pattern(*arguments).mask(N)), arguments


def test_no_row_without_its_library():
    assert {(row.library, row.setting) for row in CONVENTIONS} == set(LIBRARIES)


def test_a_neighbourhood_belongs_to_its_text():
    with pytest.raises(ReproError, match="n is 12, but this neighborhood was made for 24 positions; make one for 12"):
        Neighbourhood(3, 2, 24).mask(12)
    with pytest.raises(ReproError, match="kernel is 5 keys, 5 apart, but n is 24; both must"):
        Neighbourhood(5, 5, 24)
