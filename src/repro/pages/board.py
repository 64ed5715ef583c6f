"""The scoreboard: every claim with its verdict and evidence, and every table and figure; readers can filter it.

The HTML works without a script; `board.js` only hides the rows that a filter excludes.
"""

import html
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import repro
from repro import markup, paths
from repro.pages.verdicts import LOOKS, badge, columns, css_class
from repro.study.artifacts import Artifact, artifacts
from repro.study.cache import caching
from repro.study.claims import Claim, claims, latest, tally
from repro.study.registry import cited, title
from repro.study.rule import NOT_RUN, NOT_TESTABLE, Verdict
from repro.study.runs import command
from repro.study.settings import COMMITTED, SCALES
from repro.study.store import Store

ROOT = Path(repro.__file__).parent
SCRIPT = Path(__file__).with_suffix(".js")
ROWS = 20  # per block; a browser lays out a block only when it is in view, so filters answer at once
LEGEND = ("Each strip has its own scale. Center line: no effect. Right of it: the direction that the paper claims. "
          "The filled mark is our effect with its interval (95%, wider if several claims share one error "
          "rate); the hollow diamond is the paper's effect; the dashed line is the control, the same without the "
          "mechanism: an effect counts only beyond it. Gray: effects too small to distinguish from zero.")
LATE_LEGEND = ("Late: we changed this claim's criterion after seeing results. Its row on the scoreboard shows the "
               "earlier one.")
NO_MORE = "no more than its control"  # a reason that the rule gives
# Above the strips of a paper.
SIDES = '<p class="sides"><span>← against the claim</span> | <span>as claimed →</span></p>'
LATE = ', <abbr title="criterion changed after the runs">late</abbr>'  # follows the source in a row


@dataclass(frozen=True, repr=False)
class Scoreboard:
    """Every claim, then every table and figure, as HTML for a notebook. results: the folder of the records.

    >>> Scoreboard(results=folder).results == folder
    True
    """

    results: Path | str | None = None

    def _repr_html_(self) -> str:
        with caching():
            found = [(one, *latest(one, self.results)) for one in claims()]
            shown = [(one, [row for row in found if one.id in row[0].about]) for one in artifacts()]
            judged = {one.paper: 0 for one, *_ in (*found, *shown)}
            for one, _, verdict in found:
                judged[one.paper] += verdict.verdict != NOT_RUN
            papers = sorted(judged, key=lambda paper: -judged[paper])
            parts = [_paper(paper, [row for row in found if row[0].paper == paper], self.results) for paper in papers]
            gallery = _gallery(sorted(shown, key=lambda row: papers.index(row[0].paper)))
        choices = {"paper": {paper: title(paper) for paper in papers},
                   "verdict": {name: name for name in LOOKS if any(verdict.verdict == name for *_, verdict in found)},
                   "scale": {scale: scale for scale in SCALES if any(
                       where == scale and verdict.verdict != NOT_RUN for _, where, verdict in found)}}
        shown = f'<p class="legend">{LEGEND} {LATE_LEGEND}</p>{"".join(parts)}{gallery}'
        return (f'<section class="board" aria-label="Scoreboard">{_filters(choices)}{shown}'
                f"<script>{SCRIPT.read_text()}</script></section>")

    def __repr__(self) -> str:
        counted = ", ".join(f"{n} {verdict}" for verdict, n in tally(claims()).items())
        return f"Scoreboard of {len(claims())} claims ({counted}) and {len(artifacts())} tables and figures."


def strip(one: Claim, found: Verdict) -> str:
    """A claim's effect as a drawing (SVG): no effect in the middle, the claimed side on the right, with the interval,
    the paper's effect, the control and the smallest detectable effect. "" if nothing was measured."""
    if found.effect is None:
        return ""
    sign, paper = 1 if one.direction == "higher" else -1, one.expected()
    ends = (found.effect, found.low, found.high, paper, found.control)
    widest = max(abs(end - found.null) for end in ends if end is not None) or 1

    def place(value: float) -> str:
        return f"{100 * sign * (value - found.null) / widest:.0f}"

    parts = []
    if found.detectable:
        reach = round(min(106, 100 * found.detectable / widest))
        parts.append(f'<path class="band" d="M{-reach}-8h{2 * reach}v16h{-2 * reach}z"/>')
    parts.append('<path class="null" d="M0-9v18"/>')
    if found.control is not None:
        parts.append(f'<path class="control" d="M{place(found.control)}-8v16"/>')
    if found.low is not None:
        parts.append(f'<path class="line" d="M{place(found.low)} 0H{place(found.high)}"/>')
    if paper is not None:
        parts.append(f'<path class="paper" transform="translate({place(paper)})" d="M0-6 5 0 0 6-5 0z"/>')
    parts.append(f'<g transform="translate({place(found.effect)})">{LOOKS[found.verdict].mark}</g>')
    return (f'<svg class="strip {css_class(found.verdict)}" viewBox="-112 -10 224 20" aria-hidden="true">'
            f'{"".join(parts)}</svg>')


def row(one: Claim, scale: str, found: Verdict) -> str:
    """A claim in one row: badge, short sentence, strip, and the effect as a number with its unit."""
    source = one.source.partition(";")[0]
    where = _text(f"{source}{f', {scale}' * bool(found.measured)}{f'; {why(found)}' * bool(why(found))}")
    where += LATE * bool(one.late)
    return (f'{badge(found.verdict)} <span class="sentence">{_text(one.brief)} <small>{where}</small></span>'
            f'<span class="effect">{strip(one, found)}<small><span>{_text(found.measured)}</span> '
            f'{_text(found.unit)}</small></span>')


def why(found: Verdict) -> str:
    """Why a claim is not testable here, or that its effect is no more than its control; "" for other verdicts.

    Without it, a row with an effect on the claimed side would contradict its verdict.
    """
    return found.reason if found.verdict == NOT_TESTABLE else NO_MORE * (NO_MORE in found.because)


def place_of(one: Artifact | Claim) -> str:
    """The address of an artifact or claim in its chapter, relative to this page; "" if that chapter does not exist."""
    there = one.chapter and (paths.home() / "notebooks" / f"{one.chapter}.ipynb").exists()
    return f"{one.chapter}.html#{one.id}" if there else ""


def _filters(choices: dict[str, dict[str, str]]) -> str:
    """The filter form, hidden until the script runs, and the download links."""
    selects = "".join(
        f'<label>{name} <select name="{name}"><option value="">all</option>{"".join(options)}</select></label>'
        for name, known in choices.items() for options in [[
            f'<option value="{html.escape(value)}">{_text(label)}</option>' for value, label in known.items()]])
    return (f'<form hidden>{selects}<button type="reset">show all</button></form><p role="status"><output></output></p>'
            "<noscript><p>The filters need JavaScript, which is switched off. All claims, tables and figures are shown."
            "</p></noscript>"
            '<p class="take">Download the output of <code>repro list --json</code>: '
            '<a href="../scoreboard.json" download>JSON</a>, <a href="../scoreboard.csv" download>CSV</a>.</p>')


def _paper(paper: str, rows: Sequence[tuple[Claim, str, Verdict]], results: Path | str | None) -> str:
    if not rows:
        return ""
    counted = " ".join(f"{badge(verdict)} {n}" for verdict, n in tally([one for one, *_ in rows], results).items())
    lines = [_claim(*one, results) for one in rows]
    parts = (f'<div class="rows">{"".join(lines[k:k + ROWS])}</div>' for k in range(0, len(lines), ROWS))
    return (f'<section class="paper"><details open><summary><h3>{_text(title(paper))}</h3></summary>'
            f'<p class="counts">{counted}</p>{SIDES}{"".join(parts)}</details></section>')


def _data(paper: str, rows: Sequence[tuple[Claim, str, Verdict]]) -> str:
    """The attributes that the filters read: what holds for any of these claims, separated by "|"."""
    verdicts = [found.verdict for *_, found in rows]
    scales = [scale for _, scale, found in rows if found.verdict != NOT_RUN]
    return "".join(f' data-{name}="{html.escape("|".join(dict.fromkeys(values)))}"' for name, values in (
        ("paper", [paper]), ("verdict", verdicts), ("scale", scales)))


def _claim(one: Claim, scale: str, found: Verdict, results: Path | str | None) -> str:
    """A claim in one row, with the evidence for its verdict folded below."""
    known = _data(one.paper, [(one, scale, found)])
    declared = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in _declared(one).items() if text)
    return (f'<details class="claim" id="{one.id}"{known}><summary>{row(one, scale, found)}</summary><div>'
            f'<dl>{declared}</dl>{_scales(one, results)}{_records(one, results)}</div></details>')


def _declared(one: Claim) -> dict[str, str]:
    """The declaration of a claim: everything fixed before it was judged, as HTML."""
    file, line = one.declared_at
    own = file.is_relative_to(ROOT)  # not from a test or a reader's notebook
    source = f"{Path('src/repro', file.relative_to(ROOT)) if own else file.name}:{line}"
    shown = [other for other in artifacts() if other.id in one.about]
    links = [_link(place_of(other), f"{other.source}: {other.title}") for other in shown]
    expected, side = one.expected(), f"{one.direction} than {one.null:g}"
    return {
        "in full": _text(one.sentence) if one.short else "",
        "in the book": ", ".join([_link(place_of(one), f"chapter {one.chapter.partition('_')[0].lstrip('0')}"), *links]
                                 if one.chapter else links),
        "judged by": _text(f"an effect {'(the log of a ratio) ' * one.relative}{side}, " + (
            "measured exactly" if one.unit == "exact" else
            f"measured per {one.unit}, with {'one seed' if one.same_weights else f'{one.seeds} seeds'} or more")),
        "the paper's effect": _text(one.why_no_paper_effect if expected is None else one.write(expected)),
        "control": _text(one.control or one.why_no_control),
        "assay": _text(one.assay.what if one.assay else one.why_no_assay),
        "error rate shared within": _text(one.family),
        "changed": _text(one.late),
        "declared in": _link(f"../{source.replace(':', '#L')}" if own else "", source),
    }


def _scales(one: Claim, results: Path | str | None) -> str:
    """A table of the verdicts, one row per scale; scales without runs are left out."""
    import pandas

    found = {scale: one.verdict(scale, results) for scale in reversed(SCALES) if scale in one.scales}
    lines = [{"at": scale, "verdict": verdict.verdict, "effect": verdict.text} | columns(one, verdict)
             for scale, verdict in found.items() if verdict.verdict != NOT_RUN]
    if lines:
        return markup.table(pandas.DataFrame(lines).fillna("–"))
    commands = {line for verdict in found.values() for line in verdict.commands}
    listed = ", ".join(f"<code>{_text(line)}</code>" for line in sorted(commands))
    return f"<p>{f'Not run: {listed}' if listed else 'Not planned at any scale'}.</p>"


def _records(one: Claim, results: Path | str | None) -> str:
    """The committed records of a claim, each with its file and the command that makes it."""
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


def _gallery(shown: Iterable[tuple[Artifact, Sequence[tuple[Claim, str, Verdict]]]]) -> str:
    """Every table and figure as a card that links to its chapter and counts the verdicts of the claims about it; the
    book adds the thumbnail."""
    cards = []
    for one, rows in shown:
        address, found = place_of(one), Counter(verdict.verdict for *_, verdict in rows)
        marks = " ".join(badge(verdict, n=found[verdict]) for verdict in LOOKS if verdict in found)
        inside = (f'<span class="thumb {one.kind}" data-artifact="{one.id}"></span>'
                  f'<b>{_text(cited(one.paper))}, {_text(one.source)}</b> {_text(one.title)}')
        link = f'<a href="{address}">{inside}</a>' if address else f"<span>{inside}</span>"
        cards.append(f"<li{_data(one.paper, rows)}>{link} {marks}</li>")
    return f'<section class="gallery"><h3>Tables and figures</h3><ul>{"".join(cards)}</ul></section>'


def _link(address: str, label: str) -> str:
    return f'<a href="{html.escape(address)}">{_text(label)}</a>' if address else _text(label)


def _text(value: Any) -> str:
    return html.escape(str(value), quote=False)
