"""The diagram of T-DMCA's layers against what the layers let a query see."""

from collections import Counter

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from repro.errors import ReproError
from repro.models import tdmca
from repro.plotting import COLOURS
from repro.plotting.compressed import GAP, draw_memory_compressed


def bars(figure, *kinds):
    return [patch for patch in figure.findobj(Rectangle) if patch.get_gid() in kinds]


def seen_by(query, patches, left, n_tokens):
    """The tokens that patches in the row of a query cover."""
    row = [patch for patch in patches if round(patch.get_y() - 0.04) == -1 - query]
    return sorted(token for patch in row for token in range(n_tokens)
                  if patch.get_x() < left + token + 0.5 < patch.get_x() + patch.get_width())


@pytest.mark.parametrize(("n_tokens", "block", "stride"), [(12, 4, 3), (10, 3, 4), (7, 7, 1)])
def test_a_query_sees_its_block_or_all_earlier_tokens_by_few_keys(n_tokens, block, stride):
    figure = draw_memory_compressed(n_tokens, block, stride)
    local, keys = bars(figure, "local"), bars(figure, "key", "part")
    for query in range(n_tokens):
        start = query // block * block
        assert seen_by(query, local, 0, n_tokens) == list(range(start, query + 1))
        assert seen_by(query, keys, n_tokens + GAP, n_tokens) == list(range(query + 1))
    rows = Counter(round(patch.get_y() - 0.04) for patch in keys)
    assert rows == {-1 - query: -(-(query + 1) // stride) for query in range(n_tokens)}


def test_a_part_of_a_group_has_the_key_that_the_layer_computes_from_it():
    """A query inside a group sees one more key than whole groups, and that key depends on the part that it has read."""
    figure = draw_memory_compressed(12, 4, 3)
    assert len(bars(figure, "part")) == 8  # two of three queries, in each of four groups
    assert {to_hex(patch.get_facecolor()).upper() for patch in bars(figure, "part")} == {COLOURS["h_prev"]}
    torch.manual_seed(0)
    layer, text = torch.nn.Conv1d(4, 4, 3, 3), torch.randn(1, 12, 4)
    keys = tdmca.so_far(layer, text)
    for token in range(12):
        other = text.clone()
        other[:, token] += 1
        changed = (tdmca.so_far(layer, other) != keys).any(2)[0].nonzero().flatten().tolist()
        assert changed == list(range(token, token // 3 * 3 + 3))


def test_sizes_that_cannot_be_drawn_are_refused():
    with pytest.raises(ReproError, match="stride is 0"):
        draw_memory_compressed(stride=0)
    with pytest.raises(ReproError, match="block is 13"):
        draw_memory_compressed(block=13)
    with pytest.raises(ReproError, match="cannot be drawn"):
        draw_memory_compressed(n_tokens=60)
