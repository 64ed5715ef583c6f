"""The landing page's chart: the gain from recurrence at each window size, by base model, with the records behind it."""

import html
from itertools import groupby

from repro.markup import bounded, signed
from repro.papers.yoshida2020.perplexity.gain_by_window import BASES, Gain, gains_by_window
from repro.study import Store

TICKS = (10, 8, 6, 4, 2, 0, -2)  # %, of perplexity
TOP, BOTTOM = 11, -3.5  # of the panel, %
STEP = 2.6  # between neighbors at one window, % of the panel's width
CAPTION = (
    "Recurrence passes a memory from one window of text to the next. Marks show how much this changes perplexity; the "
    "short gray line under a mark shows the same model with its memory masked out. Compare the two: only the "
    "difference comes from the memory. Bars are 95% intervals of each mark alone; verdicts use wider ones. Filled "
    "marks feed the memory into the second layer, as in the paper, hollow ones into another. Point at a mark for its "
    "numbers, records and command.")
SCRIPT = """(() => {
const chart = document.querySelector(".gain:not(.ready)"), points = [...chart.querySelectorAll(".point")];
const choose = (point) => { for (const one of points) { const chosen = one === point;
one.setAttribute("aria-current", chosen);
document.getElementById(one.hash.slice(1)).classList.toggle("chosen", chosen); } };
for (const one of points) for (const event of ["mouseenter", "focus", "click"])
one.addEventListener(event, (on) => { if (event === "click") on.preventDefault(); choose(one); });
choose(points[0]); chart.classList.add("ready"); })();"""


def chart() -> str:
    """The chart as HTML: marks that a reader can point at, each with its details; "" without records."""
    found = gains_by_window()
    if not found:
        return ""
    windows = [(window, list(gains)) for window, gains in groupby(found, key=lambda one: one.window)]
    ids = {id(gain): f"gain-{k}" for k, gain in enumerate(found, 1)}
    lines = "".join(f'<i class="tick{" none" * (not tick)}" style="top: {_top(tick / 100):.1f}%"><b>{-tick:+d}%</b></i>'
                    .replace("+0%", "0%") for tick in TICKS)
    names = "".join(f'<span style="left: {_left(k, len(windows)):.1f}%">{window}</span>'
                    for k, (window, _) in enumerate(windows))
    marks = "".join(_mark(gain, ids[id(gain)], _left(k, len(windows)) + STEP * (n - (len(gains) - 1) / 2))
                    for k, (_, gains) in enumerate(windows) for n, gain in enumerate(gains))
    about = "".join(_about(gain, ids[id(gain)]) for gain in found)
    shown = [scale for scale in BASES if any(gain.scale == scale for gain in found)]
    return ('<figure class="gain"><div class="choice" role="group" aria-label="What the chart shows">'
            + "".join(_choice(f"of-{scale or 'print'}", BASES[scale]) for scale in shown)
            + "".join(_choice(text, text) for text in dict.fromkeys(gain.text for gain in found))
            + '</div><div class="panel"><em class="above">↑ lower perplexity (better)</em>'
            f'<em class="below">↓ higher perplexity (worse)</em>{lines}{marks}</div>'
            f'<div class="windows">{names}</div><p class="axis">tokens in a window</p>'
            f'<div class="about">{about}</div><figcaption>{CAPTION}</figcaption>'
            f"<script>{SCRIPT}</script></figure>")


def _choice(kind: str, name: str) -> str:
    return f'<label class="{kind}"><input type="checkbox" name="{kind}" checked><i></i> {html.escape(name)}</label>'


def _left(k: int, n: int) -> float:
    """The middle of the k-th of n windows, % of the panel's width."""
    return 100 * (k + 0.5) / n


def _top(gain: float) -> float:
    """The place of a gain, % of the panel's height from above. One outside the panel is drawn at its edge."""
    return min(100.0, max(0.0, 100 * (TOP - 100 * gain) / (TOP - BOTTOM)))


def _mark(gain: Gain, name: str, left: float) -> str:
    words = html.escape(f"{_title(gain)}: perplexity {changed(gain)}")
    parts = ""
    if gain.low is not None and gain.high is not None:
        upper, lower = _top(-gain.low), _top(-gain.high)
        parts += f'<i class="bar" style="top: {upper:.2f}%; height: {lower - upper:.2f}%"></i>'
    if gain.masked is not None:
        parts += f'<i class="masked" style="top: {_top(-gain.masked):.2f}%"></i>'
    kinds = f'of-{gain.scale or "print"} {gain.text}{" papers" * gain.module.endswith("in the paper")}'
    return (f'<a class="point {kinds}" href="#{name}" title="{words}" style="left: {left:.2f}%">{parts}'
            f'<i class="mark" style="top: {_top(-gain.change):.2f}%"></i>'
            f'<span class="visually-hidden">{words}</span></a>')


def _title(gain: Gain) -> str:
    return f"{gain.base} on {gain.text}, windows of {gain.window} tokens"


def changed(gain: Gain) -> str:
    """The change in perplexity with its interval, if it has one."""
    if gain.low is None or gain.high is None:
        return signed(gain.change, ".1%")
    return bounded(gain.change, gain.low, gain.high, "+.1%")


def _about(gain: Gain, name: str) -> str:
    """The numbers, records and command of a mark."""
    facts = [f"perplexity {changed(gain)}"]
    if gain.masked is not None:
        facts.append(f"{signed(gain.masked, '.1%')} with the module masked out")
    if gain.recurrent:
        facts.append(f"{len(gain.recurrent)} seeds, {gain.split} text")
    lines = [f"<b>{html.escape(_title(gain))}</b>, module {html.escape(gain.module)}: {'; '.join(facts)}."]
    for what, records in (("recurrent", gain.recurrent), ("baseline", gain.baseline)):
        store = Store.for_scale(gain.scale) if records else None
        links = " ".join(f'<a href="results/{store.path(one).relative_to(store.folder)}">seed {one.seed}</a>'
                         for one in records)
        lines.append(f"Records, {what}: {links}." if links else "")
    lines.append(f"<code>{html.escape(gain.command)} --results mine</code>" if gain.command else
                 "" if gain.recurrent else "Printed in the paper.")
    return f'<div id="{name}">{" ".join(filter(None, lines))}</div>'
