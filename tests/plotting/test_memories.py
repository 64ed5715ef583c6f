"""The diagram of the memories says what the memories themselves say, and names every one of them."""

import pytest
from letters import unreadable
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from transformers import GPT2Config

from repro.errors import ReproError
from repro.evaluation import flops_per_token
from repro.plotting import COLOURS, draw_memories
from repro.recurrence.memories import MEMORIES, complete, make

SIZE = {"n_layer": 6, "d_model": 256, "n_head": 4, "window": 64}


def cells(figure, kind):
    return [patch for patch in figure.findobj(Rectangle) if patch.get_gid() == kind]


def made(name):
    return make(GPT2Config(n_layer=6, n_embd=256, n_head=4), complete(name))


@pytest.fixture(scope="module")
def figure():
    return draw_memories(**SIZE)


def test_every_memory_has_a_row_and_the_numbers_that_it_counts(figure):
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert set(MEMORIES) <= set(shown)
    plain = flops_per_token(6, 256, 64, 0)
    for name in MEMORIES:
        at, memory = shown.index(name), made(name)
        assert f"{memory.state_numbers(64):,}" in shown[at:at + 7]
        assert f"+{100 * memory.flops_per_token(64, 0) / plain:.1f}%" in shown[at:at + 7]


def test_blocks_are_marked_where_a_memory_enters(figure):
    entered = [len(made(name).carried(64).enters) for name in MEMORIES]
    assert len(cells(figure, "enters")) == sum(entered)
    assert {to_hex(patch.get_facecolor()).upper() for patch in cells(figure, "enters")} == {COLOURS["h_prev"]}
    assert len(cells(figure, "leaves")) + len(cells(figure, "enters")) + len(cells(figure, "block")) == (
        2 * len(MEMORIES) * (6 + 1))


def test_vectors_and_tokens_are_counted_one_by_one():
    looks = {name: made(name).carried(64) for name in MEMORIES}
    counted = {name: look.rows * look.columns for name, look in looks.items()}
    assert {name: counted[name] for name in ("yoshida", "embeddings-4", "rmt", "block-recurrent", "compressed")} == {
        "yoshida": 1, "embeddings-4": 1, "rmt": 8, "block-recurrent": 16, "compressed": 32}
    assert counted["knn"] == 1024 // 32 and looks["knn"].found == 1


@pytest.mark.parametrize("size", [SIZE, {"n_layer": 12, "d_model": 768, "n_head": 12, "window": 300},
                                  {"n_layer": 3, "d_model": 64, "n_head": 4, "window": 30}])
def test_letters_stay_inside_and_apart_and_are_large_enough(size):
    figure = draw_memories(**size)
    assert unreadable(figure) == []


@pytest.mark.parametrize("size", [{"n_layer": 13}, {"n_layer": 1}, {"window": 0}])
def test_a_size_that_cannot_be_drawn_is_refused(size):
    with pytest.raises(ReproError):
        draw_memories(**size)
