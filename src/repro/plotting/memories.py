"""The state that each memory carries from window to window, and its cost, drawn from the memories themselves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.patches import Rectangle

from repro.errors import ReproError, check_whole
from repro.plotting.shapes import WORDS, add_text
from repro.plotting.style import COLOURS, WIDTH, Drawing, canvas, house
from repro.windows import check_window

if TYPE_CHECKING:
    from repro.recurrence.memories.base import Carried

UNITS = 35.0  # the width of the drawing
ROW, HIGH = 3.3, 2.5  # distance between memories; height of a stack of blocks
LEFT, CARRIED, RIGHT, NUMBERS, COST = 6.4, (10.3, 20.3), 20.9, 29.3, 34.8  # where columns begin or end
STACK = 3.2  # the width of a stack of blocks
REFERENCE = "cache"  # the memory that others are measured against; it is drawn below a line


@house()
def draw_memories(n_layer: int = 6, d_model: int = 256, n_head: int = 4, window: int = 64) -> Drawing:
    """Every memory of `repro.recurrence.MEMORIES` in a GPT-2 of this size: the state it carries, where the state comes
    from and goes to, and the cost.

    Rows go from the smallest state to the largest, with the reference ("cache") below them. The memories themselves
    count the numbers that a sequence carries from window to window. They also count the forward FLOPs per token that
    they add, shown as a share of the model's own FLOPs. window: in tokens, without overlap.
    Raises ReproError for a size out of range.

    >>> draw_memories(n_layer=3, d_model=64).alt[:58]
    'What each of 10 memories carries from one window to the ne'
    """
    from transformers import GPT2Config

    from repro.evaluation import flops_per_token
    from repro.recurrence.memories import MEMORIES, complete, make

    check_window(window, 0)
    check_whole(n_head, "n_head")
    check_whole(d_model, "d_model")
    check_whole(n_layer, "n_layer")
    if d_model % n_head:
        raise ReproError(f"d_model is {d_model}; it must be a multiple of n_head, {n_head}.")
    if not 2 <= n_layer <= 12:
        raise ReproError(f"n_layer is {n_layer}; there is room for 2 to 12 blocks. Use a number in that range.")
    config = GPT2Config(n_layer=n_layer, n_embd=d_model, n_head=n_head)
    plain = flops_per_token(n_layer, d_model, window, 0)
    figure, axis = canvas(1, alt=(
        f"What each of {len(MEMORIES)} memories carries from one window to the next. Blue: the blocks that the state "
        f"comes from. Orange: the state, and the blocks that read it. Numbers and cost are for a model of {n_layer} "
        f"blocks of width {d_model}, in windows of {window} tokens."))
    for x, ha, words in ((LEFT + STACK / 2, "center", "window k"), (sum(CARRIED) / 2, "center", "what is carried"),
                         (RIGHT + STACK / 2, "center", "window k+1"), (NUMBERS, "right", "numbers\ncarried"),
                         (COST, "right", "added cost\nper token")):
        add_text(axis, x, 0, words, ha=ha, color=COLOURS["faint"])
    figure.values = []
    memories, y = {name: make(config, complete(name)) for name in MEMORIES}, -1.6
    for name in sorted(memories, key=lambda name: (name == REFERENCE, memories[name].state_numbers(window), name)):
        memory = memories[name]
        if name == REFERENCE:
            axis.plot([0, COST], [y - 0.1] * 2, color=COLOURS["faint"], lw=0.8, ls=":")
            y -= 0.6
        look = memory.carried(window)
        add_text(axis, 0, y - HIGH / 2, name, ha="left", weight="bold")
        _stack(axis, LEFT, y, n_layer, look.leaves, COLOURS["read"], "leaves")
        _stack(axis, RIGHT, y, n_layer, look.enters, COLOURS["h_prev"], "enters")
        _cells(axis, y, look)
        add_text(axis, sum(CARRIED) / 2, y - HIGH + 0.25, look.words, color=WORDS["h_prev"])
        add_text(axis, NUMBERS, y - HIGH / 2, f"{memory.state_numbers(window):,}", ha="right")
        share = memory.flops_per_token(window, 0) / plain
        figure.values.append({"memory": name, "numbers carried": memory.state_numbers(window),
                              "added FLOPs per token (%)": 100 * share})
        add_text(axis, COST, y - HIGH / 2, f"+{100 * share:.1f}%", ha="right")
        y -= ROW
    limits = (-0.2, UNITS), (y + 0.4, 1.2)
    axis.set(xlim=limits[0], ylim=limits[1], aspect="equal")
    axis.set_axis_off()
    figure.set_size_inches(WIDTH, (limits[1][1] - limits[1][0]) * WIDTH / (limits[0][1] - limits[0][0]))
    return figure


def _stack(axis, x: float, top: float, n_layer: int, marked: Sequence[int], colour: str, kind: str) -> None:
    """Draw the blocks of a window, the last one on top, and their input below; blocks in `marked` are in color."""
    each = HIGH / (n_layer + 1)
    for block in range(-1, n_layer):
        here = block in marked
        axis.add_patch(Rectangle((x, top - HIGH + (block + 1.1) * each), STACK, 0.8 * each, edgecolor="none",
                                 facecolor=colour if here else COLOURS["grid" if block >= 0 else "empty"],
                                 gid=kind if here else "block"))


def _cells(axis, top: float, look: "Carried") -> None:
    """Draw the state between two windows, and an arrow through it."""
    left, right = CARRIED
    gaps = (look.columns - 1) // look.every if look.every else 0
    size = min(0.75, (right - left - 3) / (look.columns + 0.5 * gaps), 1.5 / look.rows)
    width = (look.columns + 0.5 * gaps) * size
    x, middle = (left + right - width) / 2, top - 0.85
    for start, stop in ((LEFT + STACK + 0.2, x - 0.2), (x + width + 0.2, RIGHT - 0.2)):
        axis.annotate("", (stop, middle), (start, middle), arrowprops={
            "arrowstyle": "-|>", "color": COLOURS["ink"], "lw": 1, "shrinkA": 0, "shrinkB": 0})
    for row in range(look.rows):
        for column in range(look.columns):
            at = x + (column + 0.5 * (column // look.every if look.every else 0)) * size
            seen = not look.found or row * look.columns + column < look.found
            axis.add_patch(Rectangle((at + 0.05 * size, middle + (look.rows / 2 - row - 0.95) * size), 0.9 * size,
                                     0.9 * size, edgecolor="none", facecolor=COLOURS["h_prev" if seen else "pale"],
                                     gid="carried" if seen else "searched"))
