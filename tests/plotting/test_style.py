"""One name, one colour: in every figure, and never twice in one."""

import pytest
from matplotlib.colors import to_hex, to_rgb

from repro.bench.attention import VARIANTS, contenders
from repro.errors import ReproError
from repro.papers.longformer2020.attention_memory import MEANING
from repro.papers.yoshida2020.propagation.tables import READERS, WRITERS
from repro.plotting import LiveCurve, draw_bars, draw_curves, draw_growth, draw_own_and_other, draw_reach
from repro.plotting.style import CYCLE, SERIES, canvas, colours, house, named, series

FIGURES = {  # lines that stand together
    "tables": ["baseline", "recurrent", "baseline trained with overlap"], "readers": READERS.values(),
    "writers": WRITERS.values(), "scales": ["paper", "small", "medium", "smoke"],
    "memory of attention": MEANING.values(), "recomputation": ["none", "layer", "window", "window+layer"],
    "losses": ["train loss", "validation loss", "test loss"], "cost": ["no dilation", "dilation 4 on 2 heads"],
}


def shown(axis):
    return {line.get_label(): to_hex(line.get_color()).upper() for line in axis.lines
            if not line.get_label().startswith("_")}


def test_a_line_belongs_to_the_longest_series_that_its_name_begins_with():
    assert series("recurrent, overlap 5") == "recurrent"
    assert series("baseline trained with overlap, overlap 5") == "baseline trained with overlap"
    assert series("dense, causal") == "dense, causal" and series("dense (reference)") == "dense"
    assert series("window+layer") == "window+layer"
    assert [series(name) for name in ("recurrently", "loops", "a baseline", "flex-like", "")] == [None] * 5


@pytest.mark.parametrize("names", FIGURES.values(), ids=FIGURES)
def test_series_that_stand_together_each_keep_their_colour(names):
    found = colours(names)
    firsts = {series(name): name for name in reversed(list(names))}  # further lines of a series are shades of it
    assert len(set(found.values())) == len(list(names))
    assert all(found[name] == SERIES[known] for known, name in firsts.items() if known)


def test_the_contenders_of_the_benchmark_each_have_a_colour_of_their_own():
    names = [name for name in contenders(8, "cpu", "forward") if name not in VARIANTS]  # which are in no figure
    found = colours(names)
    assert len(set(found.values())) == len(names) == 14
    firsts = {SERIES[name]: name for name in reversed(names) if name in SERIES}
    assert all(found[name] == colour for colour, name in firsts.items())
    shades = [name for name in names if name not in SERIES]  # of the series that their names begin with
    assert shades == [f"Longformer layer, ours, {name}" for name in ("loop", "chunks")]


def test_an_implementation_has_one_colour_in_every_figure():
    timed = draw_growth({"ms": {name: [[1, 1.0], [2, 2.0]] for name in ("dense, mask", "loop", "blocked")}})
    counted = draw_growth({"MiB": {MEANING[name]: [[1, 1.0], [2, 2.0]] for name in ("loop", "blocked", "full")}})
    times, counts = shown(timed.axes[0]), shown(counted.axes[0])
    assert times["loop"] == counts[MEANING["loop"]] and times["blocked"] == counts[MEANING["blocked"]]
    assert times["dense, mask"] == counts[MEANING["full"]]


def test_no_two_lines_of_a_figure_are_alike_however_many():
    names = ["recurrent", *(f"baseline, overlap {overlap}" for overlap in range(8)), *(f"line {k}" for k in range(20))]
    found = colours(names)
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    assert found["recurrent"] == SERIES["recurrent"] and found["baseline, overlap 0"] == SERIES["baseline"]


def test_an_unknown_name_keeps_its_colour_unless_a_series_has_that():
    alone = {name: colours([name])[name] for name in (f"line {k}" for k in range(40))}
    assert set(alone.values()) == set(CYCLE)
    for name, colour in alone.items():
        found = colours([name, "recurrent"])
        assert found["recurrent"] == SERIES["recurrent"] != found[name]
        assert found[name] == colour or colour == SERIES["recurrent"]


def test_the_cycle_can_be_read_on_white_and_on_black():
    def contrast(colour, other):
        bright, dark = sorted((sum(weight * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
                                   for weight, part in zip((0.2126, 0.7152, 0.0722), to_rgb(one), strict=True))
                               for one in (colour, other)), reverse=True)
        return (bright + 0.05) / (dark + 0.05)

    assert len(set(CYCLE)) == len(CYCLE)
    assert all(contrast(colour, "white") > 2 and contrast(colour, "black") > 2 for colour in CYCLE)
    for name in (name for name in SERIES if ", " not in name):
        lines = list(colours([f"{name}, overlap {k}" for k in range(5)]).values())
        assert lines[0] == SERIES[name] and all(min(contrast(one, "white"), contrast(one, "black")) > 2
                                                  for one in lines)
        assert min(contrast(a, b) for k, a in enumerate(lines) for b in lines[:k]) > 1.2


TWICE = "the label 'baseline' comes twice"


def test_two_lines_with_one_label_are_refused():
    line = [[0, 1.0], [1, 2.0]]
    assert named([("a", 1), ("b", 2)]) == {"a": 1, "b": 2}
    with pytest.raises(ReproError, match=TWICE):
        draw_curves([("baseline", line), ("baseline", line)])
    with pytest.raises(ReproError, match=TWICE):
        draw_curves({"baseline": line}, bounds={"baseline": 2.0})
    with pytest.raises(ReproError, match=TWICE):
        draw_bars([("baseline", 1.0), ("baseline", 2.0)], "perplexity")


def test_a_live_curve_refuses_a_name_in_use():
    live = LiveCurve(bounds={"best": 1.0})
    live.line("baseline").advance(1)
    live.line("recurrent")
    with pytest.raises(ReproError, match=TWICE):
        live.line("baseline")
    with pytest.raises(ReproError, match="'best' comes twice"):
        live.line("best")
    assert list(live.curves) == ["baseline", "recurrent"]


def test_readers_and_writers_are_told_apart():
    figure = draw_reach({name: [(0.1, 0.05, 0.2)] for name in READERS.values()})
    assert shown(figure.axes[0]) == {name: SERIES[name] for name in READERS.values()}
    triple = (1.0, 0.9, 1.1)
    rows = draw_own_and_other({"recurrent": (triple, triple), "the true text": (triple, triple)}, "nats").axes[0]
    assert SERIES["recurrent"] in {to_hex(line.get_color()).upper() for line in rows.lines}


def test_seaborn_reads_the_house_style():
    import seaborn

    with house():
        assert [to_hex(colour).upper() for colour in seaborn.color_palette()] == list(CYCLE)
        assert seaborn.axes_style()["axes.grid"] and not seaborn.axes_style()["axes.spines.top"]


def test_a_canvas_is_in_the_house_style():
    _, axis = canvas(alt="two axes")
    assert not axis.spines["top"].get_visible() and axis.xaxis.get_gridlines()[0].get_visible()


def test_a_caption_begins_with_what_to_see():
    figure, _ = canvas(alt="nats against tokens.")
    assert figure.look_for("A falling curve\n  means progress.") is figure
    assert figure.alt == "A falling curve means progress. Nats against tokens."
    with pytest.raises(ReproError, match="look_for has no words; give a sentence"):
        figure.look_for(" ")
