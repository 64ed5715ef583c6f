"""The scoreboard: every claim with its verdict and what it rests on, every table and figure; filtered by a reader.

All of it is HTML that needs no script: `board.js` only hides what was not asked for.
"""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import repro
from repro import page, paths
from repro.study.artifacts import NOT_RUN, Artifact, artifacts
from repro.study.cache import caching
from repro.study.chapter_text import COMMITTED, SIGNS, badge, css_class, latest
from repro.study.claims import Claim, claims, overall, tally
from repro.study.plan import command
from repro.study.registry import cited, title
from repro.study.rule import Verdict
from repro.study.settings import SCALES
from repro.study.store import Store

ROOT = Path(repro.__file__).parent
SCRIPT = Path(__file__).with_suffix(".js")
ROWS = 20  # are laid out together, when they are looked at: a filter of many answers at once
MARKS = {  # of an effect, so that no verdict is told by its colour alone; each lies around 0, 0
    "reproduced": '<circle r="5"/>', "reproduced, smaller": '<circle r="3.5"/>',
    "not reproduced": '<path d="M-4.5-4.5h9v9h-9z"/>',
    "inconclusive": '<path d="M0-6 6 5H-6z"/>', "not testable here": '<path class="line" d="M-4.5-4.5l9 9m0-9l-9 9"/>',
    "open": '<circle class="line" r="4.5"/><path d="M0-4.5a4.5 4.5 0 0 1 0 9z"/>',
    "machinery works": '<circle r="2.5"/>',
}
LEGEND = ("Each strip has a scale of its own: no effect in the middle, the side on which the paper puts it to the "
          "right; our effect with its interval (95 %, wider where claims of a family share one error), the paper's as "
          "a hollow diamond. Gray: effects too small to distinguish from zero. Changed late: "
          "the criterion changed after the runs; the unfolded row says what it was before.")
LATE = ', <abbr title="criterion changed after the runs">changed late</abbr>'  # behind the source, in a line


@dataclass(frozen=True, repr=False)
class Scoreboard:
    """Every claim, then every table and figure, as a page for a notebook. results: the folder of the records.

    >>> Scoreboard(results=folder).results == folder
    True
    """

    results: Path | str | None = None

    def _repr_html_(self) -> str:
        with caching():
            told = [(one, *latest(one, self.results)) for one in claims()]
            shown = [(one, *standing_of(one, self.results)) for one in artifacts()]
            judged = {one.paper: 0 for one, *_ in (*told, *shown)}
            for one, _, found in told:
                judged[one.paper] += found.verdict != NOT_RUN
            papers = sorted(judged, key=lambda paper: -judged[paper])
            parts = [_paper(paper, [row for row in told if row[0].paper == paper], self.results) for paper in papers]
            gallery = _gallery(sorted(shown, key=lambda at: papers.index(at[0].paper)))
        choices = {"paper": {paper: title(paper) for paper in papers},
                   "verdict": {name: name for name in SIGNS if any(found.verdict == name for *_, found in told)},
                   "scale": {scale: scale for scale in SCALES if any(
                       at == scale and found.verdict != NOT_RUN for _, at, found in told)}}
        shown = f'<p class="legend">{LEGEND}</p>{"".join(parts)}{gallery}'
        return (f'<section class="board" aria-label="Scoreboard">{_filters(choices)}{shown}'
                f"<script>{SCRIPT.read_text()}</script></section>")

    def __repr__(self) -> str:
        counted = ", ".join(f"{n} {verdict}" for verdict, n in tally(claims()).items())
        return f"Scoreboard of {len(claims())} claims ({counted}) and {len(artifacts())} tables and figures."


def standing_of(one: Artifact, results: Path | str | None = None) -> tuple[str, str]:
    """The largest scale, smoke apart, at which the claims about an artifact were judged, and their verdict there; where
    none was, the scale is "" and the verdict "not run", or "" for an artifact that no claim is about."""
    found = "" if not any(one.id in other.about for other in claims()) else NOT_RUN
    for scale in COMMITTED:
        if scale in one.scales and (verdict := overall(one, scale, results)) and verdict.verdict != NOT_RUN:
            return scale, verdict.verdict
    return "", found


def strip(one: Claim, found: Verdict) -> str:
    """The effect of a claim as a drawing (SVG): from no effect in the middle to the claimed side at the right, the
    interval, the paper's effect and the smallest one that could have been detected. "" where nothing was measured."""
    if found.effect is None:
        return ""
    sign, paper = 1 if one.direction == "higher" else -1, one.expected()
    widest = max(abs(end - found.null) for end in (found.effect, found.low, found.high, paper) if end is not None) or 1

    def place(value: float) -> str:
        return f"{100 * sign * (value - found.null) / widest:.1f}"

    parts = []
    if found.detectable:
        reach = min(106, 100 * found.detectable / widest)
        parts.append(f'<path class="band" d="M{-reach:.1f}-8h{2 * reach:.1f}v16h{-2 * reach:.1f}z"/>')
    parts.append('<path class="null" d="M0-9v18"/>')
    if found.low is not None:
        parts.append(f'<path class="line" d="M{place(found.low)} 0H{place(found.high)}"/>')
    if paper is not None:
        parts.append(f'<path class="paper" transform="translate({place(paper)})" d="M0-6 5 0 0 6-5 0z"/>')
    parts.append(f'<g transform="translate({place(found.effect)})">{MARKS[found.verdict]}</g>')
    return (f'<svg class="strip {css_class(found.verdict)}" viewBox="-112 -10 224 20" aria-hidden="true">'
            f'{"".join(parts)}</svg>')


def row(one: Claim, scale: str, found: Verdict) -> str:
    """A claim in a line: badge, sentence in short, strip, and the effect in numbers, whose unit is in the details."""
    effect = found.text.partition("; ")[0].removesuffix(f" {one.told_in}") if found.effect is not None else ""
    where = _text(f"{one.source}{f', {scale}' * bool(effect)}") + LATE * bool(one.late)
    return (f'{badge(found.verdict)} <span class="sentence">{_text(one.brief)} <small>{where}</small></span>'
            f'<span class="effect">{strip(one, found)}<small>{_text(effect)}</small></span>')


def place_of(one: Artifact | Claim) -> str:
    """Where a chapter shows an artifact or tells of a claim, as an address beside it; "" where it is not written."""
    there = one.chapter and (paths.home() / "notebooks" / f"{one.chapter}.ipynb").exists()
    return f"{one.chapter}.html#{one.id}" if there else ""


def _filters(choices: dict[str, dict[str, str]]) -> str:
    """The form, which is there for those who have the script; and where to take everything."""
    selects = "".join(
        f'<label>{name} <select name="{name}"><option value="">all</option>{"".join(options)}</select></label>'
        for name, known in choices.items() for options in [[
            f'<option value="{html.escape(value)}">{_text(told)}</option>' for value, told in known.items()]])
    return (f'<form hidden>{selects}<button type="reset">show all</button></form><p role="status"><output></output></p>'
            "<noscript><p>The filters need JavaScript, which is switched off: here are all claims, tables and figures."
            "</p></noscript>"
            '<p class="take">All of it, as <code>repro list --json</code> prints it: '
            '<a href="../scoreboard.json" download>JSON</a>, <a href="../scoreboard.csv" download>CSV</a>.</p>')


def _paper(paper: str, told: Sequence[tuple[Claim, str, Verdict]], results: Path | str | None) -> str:
    if not told:
        return ""
    counted = " ".join(f"{badge(verdict)} {n}" for verdict, n in tally([one for one, *_ in told], results).items())
    rows = [_claim(*one, results) for one in told]
    parts = (f'<div class="rows">{"".join(rows[k:k + ROWS])}</div>' for k in range(0, len(rows), ROWS))
    return (f'<section class="paper"><h3>{_text(title(paper))}</h3><p class="counts">{counted}</p>'
            f'{"".join(parts)}</section>')


def _data(paper: str, verdict: str, scale: str) -> str:
    """What the filters go by."""
    return "".join(f' data-{name}="{html.escape(value)}"' for name, value in (
        ("paper", paper), ("verdict", verdict), ("scale", scale)))


def _claim(one: Claim, scale: str, found: Verdict, results: Path | str | None) -> str:
    """A claim in a line, and folded below it everything that its verdict rests on."""
    known = _data(one.paper, found.verdict, scale if found.verdict != NOT_RUN else "")
    told = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in _declared(one).items() if text)
    return (f'<details class="claim" id="{one.id}"{known}><summary>{row(one, scale, found)}</summary><div>'
            f'<dl>{told}</dl>{_scales(one, results)}{_records(one, results)}</div></details>')


def _declared(one: Claim) -> dict[str, str]:
    """What was said of a claim before it was judged, as HTML."""
    file, line = one.declared_at
    own = file.is_relative_to(ROOT)  # and not of a test, or of somebody's notebook
    source = f"{Path('src/repro', file.relative_to(ROOT)) if own else file.name}:{line}"
    shown = [other for other in artifacts() if other.id in one.about]
    links = [_link(place_of(other), f"{other.source}: {other.title}") for other in shown]
    expected, side = one.expected(), f"{one.direction} than {one.null:g}"
    return {
        "in full": _text(one.sentence) if one.short else "",
        "in the book": ", ".join([_link(place_of(one), f"chapter {one.chapter.partition('_')[0].lstrip('0')}"), *links]
                                 if one.chapter else links),
        "judged by": _text(f"an effect {'(as the log of a ratio) ' * one.relative}{side}, " + (
            "which is exact" if one.unit == "exact" else
            f"for each {one.unit}, at {'one seed or more' if one.same_weights else f'{one.seeds} seeds or more'}")),
        "the paper's effect": _text(one.why_no_paper_effect if expected is None else one.write(expected)),
        "control": _text(one.control or one.why_no_control),
        "assay": _text(one.assay.what if one.assay else one.why_no_assay),
        "shares its error with": _text(one.family),
        "changed": _text(one.late),
        "declared in": _link(f"../{source.replace(':', '#L')}" if own else "", source),
    }


def _scales(one: Claim, results: Path | str | None) -> str:
    """A table of the verdicts, a row a scale; without scales at which nothing was run."""
    import pandas

    found = {scale: one.verdict(scale, results) for scale in reversed(SCALES) if scale in one.scales}
    lines = [{"at": scale, "verdict": told.verdict, "effect": told.text} | one.words(told)
             for scale, told in found.items() if told.verdict != NOT_RUN]
    if lines:
        return page.table(pandas.DataFrame(lines).fillna("–"))
    commands = {line for told in found.values() for line in told.text.partition(": ")[2].split("; ") if line}
    told = ", ".join(f"<code>{_text(line)}</code>" for line in sorted(commands))
    return f"<p>Not run: {told or 'it is planned nowhere'}.</p>"


def _records(one: Claim, results: Path | str | None) -> str:
    """The records of a claim that lie in the repository, each with its file and the command that makes it."""
    rows: dict[str, str] = {}
    for scale in (scale for scale in COMMITTED if scale in one.scales):
        for config, found in one.records(scale, results):
            for record in found:
                file = Store.for_scale(scale, results).path(record).relative_to(Store.for_scale(scale, results).folder)
                again = command(config.model_copy(update={"seed": record.seed}))
                rows[record.id] = f'<li>{_link(f"../results/{file}", record.id)} <code>{_text(again)}</code></li>'
    if not rows:
        return ""
    return (f"<details><summary>{len(rows)} record{'s' * (len(rows) > 1)}, with their commands</summary>"
            f"<ul>{''.join(rows.values())}</ul></details>")


def _gallery(shown: Iterable[tuple[Artifact, str, str]]) -> str:
    """Every table and figure as a card that leads to its place; the book draws the small picture in it."""
    cards = []
    for one, scale, verdict in shown:
        address, told = place_of(one), badge(verdict) if verdict else ""
        inside = (f'<span class="thumb {one.kind}" data-artifact="{one.id}"></span>'
                  f'<b>{_text(cited(one.paper))}, {_text(one.source)}</b> {_text(one.title)}')
        link = f'<a href="{address}">{inside}</a>' if address else f"<span>{inside}</span>"
        cards.append(f"<li{_data(one.paper, verdict, scale)}>{link} {told}</li>")
    return f'<section class="gallery"><h3>Tables and figures</h3><ul>{"".join(cards)}</ul></section>'


def _link(address: str, told: str) -> str:
    return f'<a href="{html.escape(address)}">{_text(told)}</a>' if address else _text(told)


def _text(told: Any) -> str:
    return html.escape(str(told), quote=False)
