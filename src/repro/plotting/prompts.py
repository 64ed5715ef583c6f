"""Tasks written as texts that a language model continues."""

from collections.abc import Mapping, Sequence

from repro.errors import ReproError, unknown
from repro.plotting.shapes import add_text, box, fit_page
from repro.plotting.style import COLOURS, Drawing, canvas, house

RUNS = {"given": "read", "cue": "pale", "scored": "scored", "left out": None}  # kind of a run of text -> its color


@house()
def draw_prompts(tasks: Mapping[str, Sequence[Sequence[tuple[str, str]]]]) -> Drawing:
    """How tasks are written as texts that a language model continues (Radford et al. 2019, section 3).

    tasks: for each task its lines, for each line its runs of text with their kind. "given" is text of the example,
    "cue" names the task, "scored" is what the model writes or scores, and "left out" marks an omission from the figure.
    Raises ReproError for a task or a line without text and for another kind.

    >>> draw_prompts({"summary": [[("An article.", "given")], [("TL;DR:", "cue"), ("a summary", "scored")]]}).alt
    'The prompts of summary: text of the example, the cue that names the task, and the text that is scored.'
    """
    if not tasks or not all(lines and all(line and all(text for text, _ in line) for line in lines)
                            for lines in tasks.values()):
        raise ReproError("a task or a line has no text; give at least one line per task and one run per line.")
    for kind in (kind for lines in tasks.values() for line in lines for _, kind in line):
        if kind not in RUNS:
            raise unknown("kind of text", kind, RUNS)
    figure, axis = canvas(1, alt=f"The prompts of {', '.join(tasks)}: text of the example, the cue that names the "
                                 "task, and the text that is scored.")
    y, right = 0.0, 0.0
    for name, lines in tasks.items():
        add_text(axis, 0, y, name, ha="left", size=11, weight="bold")
        for line in lines:
            y -= 1.5
            right = max(right, _draw_line(axis, y, line))
        y -= 2.0
    key = {"given": "given", "cue": "names the task", "scored": "written or scored by the model"}
    _draw_line(axis, y, [(text, kind) for kind, text in key.items()])
    return fit_page(figure, axis, (-0.2, max(right, 23)), (y - 0.9, 0.9))


def _draw_line(axis, y: float, line: Sequence[tuple[str, str]]) -> float:
    """Draw runs of text side by side, each in a box of its kind; return the x at which they end."""
    x = 0.0
    for text, kind in line:
        width = 0.37 * max(len(text), 2) + 0.9
        if face := RUNS[kind]:
            axis.add_patch(box(x, y - 0.6, width, 1.3, COLOURS[face], COLOURS[face]))
        add_text(axis, x + width / 2, y, text, size=10, style="normal" if face else "italic",
              color="white" if kind == "scored" else COLOURS["ink" if face else "faint"])
        x += width + 0.15
    return x
