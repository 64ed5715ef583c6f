"""Numbers as text, and tables and figures as HTML, which book/_static/book.css styles."""

import csv
import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    import pandas

NUMBER = re.compile(r"[<>~+−-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)? ?[%x]?")
INTERVAL = re.compile(r" ?(\[[^\[\]]*\]|± ?\d[\d.,]*(?:e[+-]?\d+)?)$")  # or a standard deviation, after a number
ABSENT = {"", "–", "not run", "nan"}
WORDS = re.compile(' role="img" aria-label="[^"]*"')  # of an SVG, for those who cannot see it
NAMES = re.compile(r'\bid="|url\(#|\bhref="#')  # where an SVG defines or uses an id, up to the id itself
FRAME = 1.2  # seconds that a frame is shown
OURS = re.compile(r"this study, (\w+)")  # in a cell: a row of ours, and its scale
FOLDED = "smoke"  # the scale that only shows that the machinery works

FOLD = (f'<style>.tabular:not(:has(:checked)) .{FOLDED} {{ display: none }}</style>'
        f'<label class="fold"><input type="checkbox"> show what was measured at {FOLDED}</label>')


def figure(picture: str, caption: str, frames: Mapping[str, str] | None = None, id: str = "",
           values: Sequence[Mapping[str, Any]] = ()) -> str:
    """A picture (HTML) with its caption (HTML). id: the id of the artifact, a target of links.

    frames: pictures (SVG) by name that a reader can show instead: all of them in a loop, or a chosen one; never in
    print. values: the data of the figure as rows, stored as CSV in the attribute `data-csv`, which the book turns into
    a file and a link.
    """
    before = ""
    if frames:
        shown = "".join(_apart(WORDS.sub("", one, count=1)) for one in frames.values())
        picture = f'<div class="still">{_apart(picture)}</div><div class="moving" aria-hidden="true">{shown}</div>'
        before = _motion(len(frames)) + _choice(frames, f"of-{crc32(shown.encode()):08x}")
    data = f' data-csv="{html.escape(as_csv(values))}"' if values else ""
    return (f'<figure class="drawing"{named(id)}{data}>{before}<div class="scroll">{picture}</div>'
            f'<figcaption>{caption}</figcaption></figure>')


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV. Missing columns, None and NaN give empty cells. Whole numbers have all of their digits, even if they
    are floats; other floats have six significant digits.

    >>> print(as_csv([{"line": "a", "loss": 2 / 3}, {"line": "b", "loss": None, "steps": 1_234_567}]), end="")
    line,loss,steps
    a,0.666667,
    b,,1234567
    """
    text = io.StringIO()
    table = csv.DictWriter(text, dict.fromkeys(name for row in rows for name in row), lineterminator="\n")
    table.writeheader()
    table.writerows({name: _digits(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _digits(value: Any) -> Any:
    """A value for CSV."""
    if value is None or value != value:
        return ""
    if not isinstance(value, Real) or isinstance(value, (Integral, bool)):
        return value
    return int(value) if float(value).is_integer() else f"{value:.6g}"


def _apart(svg: str) -> str:
    """An SVG with unique ids: content clipped by a shape with the same id in a hidden SVG would be invisible."""
    return NAMES.sub(rf"\g<0>of-{crc32(svg.encode()):08x}-", svg)


def _choice(steps: Iterable[str], name: str) -> str:
    """Radio buttons for the whole picture, all frames in turn, or one frame; arrow keys go from one to the next."""
    words = ["All", "Play", *steps]
    return '<div class="steps" role="radiogroup" aria-label="What the figure shows">' + "".join(
        f'<label><input type="radio" name="{name}"{" checked" * (not k)}> {word}</label>'
        for k, word in enumerate(words)) + "</div>"


def _motion(number: int) -> str:
    """The CSS rules that play this many frames, or show one of them; nothing moves until a reader chooses it."""
    def chosen(place: int) -> str:
        return f".steps > label:nth-child({place}) > :checked"

    turns = "".join(f"figure:has({chosen(2)}) .moving > svg:nth-child({k + 1}) "
                    f"{{ animation-delay: {(k - number) * FRAME:g}s }} " for k in range(number))
    steps = "".join(f"figure:has({chosen(k + 3)}) .moving > svg:nth-child({k + 1}) {{ visibility: visible }} "
                    for k in range(number))
    return ("<style>.steps > label { margin-right: 1em; white-space: nowrap } .moving { display: none } "
            "@media print { .steps { display: none } } @media screen { "
            f"figure:not(:has({chosen(1)})) > .scroll > .still {{ display: none }} "
            f"figure:not(:has({chosen(1)})) > .scroll > .moving {{ display: grid }} }} "
            ".moving > svg { grid-area: 1 / 1; visibility: hidden } "
            f"figure:has({chosen(2)}) .moving > svg:last-child {{ visibility: visible }} "  # if animations are off
            f"figure:has({chosen(2)}) .moving > svg "
            f"{{ animation: turn-of-{number} {number * FRAME:g}s step-end infinite }} "
            f"{turns}{steps}@keyframes turn-of-{number} {{ from {{ visibility: visible }} "
            f"{100 / number:g}% {{ visibility: hidden }} to {{ visibility: hidden }} }}</style>")


def named(id: str) -> str:
    """The attribute of an element with this id; "" without one."""
    return f' id="{html.escape(id)}"' if id else ""


def table(frame: "pandas.DataFrame", caption: str = "", id: str = "", rows: Sequence[str] = ()) -> str:
    """A table with its caption (HTML): numbers to the right, intervals small, each row headed by its first cell.

    id: the id of the artifact; rows: an id for each row ("" for none). Both are targets of links. With `rows`, cells
    name their column (`data-head`), for a phone, which shows each row as a block.

    Columns "small: test" and "small: validation" share one heading, "small". If another scale is shown too, columns and
    rows of `smoke` are folded away; a row of `smoke` has this word in a column "scale", or a cell "this study, smoke".
    A column in no group is also folded if only such rows fill it.
    """
    cells = [[str(cell) for cell in row] for row in frame.itertuples(index=False, name=None)]
    heads = [_head(name) for name in frame.columns]
    contents = list(zip(*cells, strict=True)) or [()] * len(heads)
    classes = [["number", *(["deviates"] * any("±" in one for one in column))] if numeric(column) else []
               for column in contents]
    columns = [FOLDED in head for head in heads]
    at = [name for _, name in heads].index("scale") if ("", "scale") in heads else None
    scales = [_scale(row) if at is None else row[at] for row in cells]
    of_smoke = [scale == FOLDED for scale in scales]
    folded = any(_scales(heads)) and any(columns) or any(of_smoke) and len({*scales} - {None}) > 1
    if folded:
        whose_rows = [{own for row, own in zip(cells, of_smoke, strict=True) if row[k] not in ("", "–")}
                      for k in range(len(heads))]  # for each column, whether the rows that fill it are of smoke
        classes = [[*kinds, FOLDED] if own or whose == {True} and not group else kinds
                   for kinds, own, whose, (group, _) in zip(classes, columns, whose_rows, heads, strict=True)]
    named_rows = [name for _, name in heads] if rows else [""] * len(heads)
    body = "".join(_row(row, classes, folded and own, name, named_rows) for row, own, name in zip(
        cells, of_smoke, rows or [""] * len(cells), strict=True))
    whole = f'<table{named(id)}>{_header(heads, classes)}<tbody>{body}</tbody></table>'
    return framed(whole, caption, FOLD if folded else "")


def framed(table: str, caption: str = "", before: str = "") -> str:
    """A table (HTML) in its own box, which scrolls sideways if the page is too narrow for it."""
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f'<figure class="tabular">{before}<div class="scroll" tabindex="0">{table}</div>{below}</figure>'


def signed(value: float, style: str) -> str:
    """A difference with its sign, "+1.20%" for the style ".2%"; a value that rounds to zero has none."""
    return written(value, f"+{style}")


def written(value: float, style: str) -> str:
    """A number in a style such as ".2f" or "+.1%"; a value that rounds to zero has no sign."""
    sign = "+" * style.startswith("+")
    text = format(value, f"{sign}z{style.removeprefix('+')}")
    return text if re.search("[1-9]", text) else text.lstrip("+")


def bounded(value: float, low: float, high: float, style: str) -> str:
    """A number with its interval, in a style for `written`: "-1.2% [-2.0%, -0.4%]"."""
    return "{} [{}, {}]".format(*(written(one, style) for one in (value, low, high)))


def percentage(value: float, low: float, high: float) -> str:
    """A score in % with its interval, which is cut off at 0 and 100, the bounds of a score. Verdicts use the whole
    interval.

    >>> percentage(97.5, 93.2, 101.8)
    '97.5 [93.2, 100.0]'
    """
    return bounded(value, max(low, 0.0), min(high, 100.0), ".1f")


def numeric(cells: Sequence[str]) -> bool:
    """Whether a column holds numbers, with or without intervals, and nothing else except marks of missing values."""
    filled = [cell for cell in cells if cell not in ABSENT]
    return bool(filled) and all(NUMBER.fullmatch(INTERVAL.sub("", cell)) for cell in filled)


def as_data(text: str) -> "int | float | str | dict[str, Any] | None":
    """A cell as JSON can hold it: a number as a number, with its interval or unit as a mapping, no value as None.

    >>> as_data("1,234"), as_data("–"), as_data("not run")
    (1234, None, 'not run')
    >>> as_data("-1.2% [-2.0%, -0.4%]")
    {'value': -1.2, 'low': -2.0, 'high': -0.4, 'unit': '%'}
    """
    if text in ("", "–", "nan"):
        return None
    value, found = INTERVAL.sub("", text), INTERVAL.search(text)
    if not NUMBER.fullmatch(value) or value[0] in "<>~":
        return text
    parts = {"value": _plain(value)}
    if found and found[1].startswith("±"):
        parts["deviation"] = _plain(found[1][1:])
    elif found:
        ends = re.split(r", ", found[1][1:-1])
        if len(ends) != 2 or not all(map(NUMBER.fullmatch, ends)):
            return text
        parts |= {"low": _plain(ends[0]), "high": _plain(ends[1])}
    if value[-1] in "%x":
        parts["unit"] = value[-1]
    return parts if len(parts) > 1 else parts["value"]


def _plain(number: str) -> int | float:
    """A written number as a number: "1,234", "−0.5" with a typographic minus, "3.0%"."""
    digits = number.strip(" %x").replace(",", "").replace("−", "-")
    return float(digits) if re.search(r"[.e]", digits) else int(digits)


def cell(text: str) -> str:
    """The HTML of a cell: an interval in small print after its number, and a missing value set apart."""
    if text and text in ABSENT:
        return f'<span class="absent">{html.escape(text)}</span>'
    value = INTERVAL.sub("", text)
    if value == text or not numeric([value]):
        return html.escape(text)
    found = INTERVAL.search(text)[1]
    kind = " deviation" * found.startswith("±")
    return f'{html.escape(value)} <span class="interval{kind}">{html.escape(found)}</span>'


def _head(name: object) -> tuple[str, str]:
    """The group of a column ("" for none) and its name in it."""
    parts = name if isinstance(name, tuple) else str(name).partition(": ")[::2]
    return (str(parts[0]), str(parts[1])) if parts[1] else ("", str(parts[0]))


def _scale(row: Sequence[str]) -> str | None:
    """The scale of a row of ours; None for a row of a paper."""
    return next((found[1] for found in map(OURS.match, row) if found), None)


def _scales(heads: Sequence[tuple[str, str]]) -> list[str]:
    return [one for head in heads for one in head if one in ("small", "pretrained", "medium", "full")]


def _header(heads: Sequence[tuple[str, str]], classes: Sequence[list[str]]) -> str:
    """One row of headings, or two if columns form groups."""
    def column(k: int, rows: int = 1) -> str:
        deep = f' rowspan="{rows}"' if rows > 1 else ""
        return f'<th scope="col"{_class(classes[k])}{deep}>{html.escape(heads[k][1])}</th>'

    if not any(group for group, _ in heads):
        return f"<thead><tr>{''.join(map(column, range(len(heads))))}</tr></thead>"
    upper, lower = [], []
    for group, places in groupby(range(len(heads)), key=lambda k: heads[k][0] or k):
        places = list(places)
        if isinstance(group, int):
            upper.append(column(group, rows=2))
        else:
            kinds = ["group", *(kind for kind in classes[places[0]] if kind == FOLDED)]
            upper.append(f'<th scope="colgroup" colspan="{len(places)}"{_class(kinds)}>{html.escape(group)}</th>')
            lower += map(column, places)
    return f"<thead><tr>{''.join(upper)}</tr><tr>{''.join(lower)}</tr></thead>"


def _row(cells: Sequence[str], classes: Sequence[list[str]], folded: bool, id: str, heads: Sequence[str]) -> str:
    first, *rest = (f"{_class(kinds)}{_headed(head)}>{cell(text)}</"
                    for text, kinds, head in zip(cells, classes, heads, strict=True))
    inside = f'<th scope="row"{first}th>' + "".join(f"<td{one}td>" for one in rest)
    return f"<tr{_class([FOLDED] if folded else [])}{named(id)}>{inside}</tr>"


def _headed(head: str) -> str:
    return f' data-head="{html.escape(head)}"' if head else ""


def _class(names: Sequence[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""
