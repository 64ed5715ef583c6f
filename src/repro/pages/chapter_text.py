"""A chapter's text from records: its first cell, and sentences whose numbers come from records."""

import html
import inspect
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from repro import markup
from repro.checked import checked
from repro.errors import ReproError, unknown
from repro.markup import written
from repro.pages.verdicts import badge
from repro.study.artifacts import ADDED
from repro.study.cache import caching
from repro.study.claims import Claim, claim, claims, latest
from repro.study.experiment import experiment
from repro.study.rule import NOT_REPRODUCED, NOT_RUN, Verdict
from repro.study.runs import command
from repro.study.store import Store

SECTION = "claims-and-verdicts"  # the target of a chapter's badges: its heading "Claims and verdicts"
LATE = ", criterion changed after the runs"  # follows the source of such a claim
SHOWN = 3  # verdicts shown in a chapter's first cell; the others are folded

@dataclass(frozen=True)
class Metric:
    """A number from a record for a `sentence`, formatted with `style`; `value` is None if it was not run.

    >>> f"{Metric(18.5371, '.1f')}, or {Metric(18.5371):.0f}"
    '18.5, or 19'
    """

    value: float | None
    style: str = ".2f"
    command: str = ""  # command to run if the value is missing

    def __format__(self, style: str) -> str:
        return written(self.value, style or self.style)


def metric(experiment_name: str, name: str, scale: str = "small", style: str = ".2f", **fields: Any) -> Metric:
    """The metric `name`, averaged over seeds, of the one planned run of an experiment with these `fields`.

    Raises ReproError for an unknown experiment, scale, field or metric, and if `fields` match no run or several.

    >>> from repro.papers.example import EXPERIMENT
    >>> found = metric(EXPERIMENT.name, "test_word_perplexity", "smoke", ".1f", context=1)
    >>> isinstance(found, Metric), found.style
    (True, '.1f')
    """
    parent = experiment(experiment_name)
    for key in fields:
        if key not in parent.config.model_fields:
            raise unknown(f"key of {experiment_name}", key, parent.config.model_fields)
    plan = [config for config in parent.plan(scale)
            if all(getattr(config, key) == value for key, value in fields.items())]
    if len(plan) != 1:
        raise ReproError(f"{fields or 'no fields'} match {len(plan)} runs of {experiment_name} at {scale}, not one; "
                         f"{'name more fields' if plan else 'use planned values'}.")
    found = Store.for_scale(scale).seeds(plan[0])
    for record in found:
        if name not in record.metrics:
            raise unknown(f"metric of {experiment_name}", name, record.metrics)
    return Metric(fmean(record.metrics[name] for record in found) if found else None, style, command(plan[0]))


@checked
def verdict_of(id: str, scale: str = "small") -> Verdict:
    """The verdict on a claim, for a `sentence`. Raises ReproError for an unknown claim or scale.

    >>> verdict_of("yoshida2020-table1-gain-disjoint", "smoke").verdict
    'not run'
    """
    return claim(id).verdict(scale)


@checked
def effect_on(quantity: str, found: Verdict, style: str = ".1%", unit: str = "") -> Verdict | str:
    """The effect of a claim for a `sentence`, as the predicate of what causes it; `found` itself if it was not run.

    quantity: what changes. style: of the number, as in `format`, without a sign. unit: after the number, such as
    " points". Raises ReproError for an unknown style.

    >>> from repro.study.rule import Verdict
    >>> effect_on("perplexity", Verdict("reproduced", effect=-0.051, low=-0.06, high=-0.04))
    'lowers perplexity by 5.1%'
    >>> effect_on("F1", Verdict("inconclusive", effect=7.1, low=-0.9, high=15.1), ".1f", " points")
    'changes F1 by +7.1 points, which may be chance'
    """
    if found.effect is None:
        return found
    try:
        signed, size = written(found.effect, f"+{style}"), written(abs(found.effect), style)
    except ValueError:
        raise ReproError(f"style is '{style}'; give a format of numbers without a sign, such as '.1%'.") from None
    if found.low is None or found.low <= 0 <= found.high:
        return f"changes {quantity} by {signed}{unit}, which may be chance"
    return f"{'lowers' if found.effect < 0 else 'raises'} {quantity} by {size}{unit}"


@dataclass(frozen=True)
class Sentence:
    """Markdown whose numbers come from records; a terminal shows it without Markdown's marks.

    >>> Sentence("It takes *two* hours.")
    It takes two hours.
    """

    markdown: str

    def _repr_markdown_(self) -> str:
        return self.markdown

    def __repr__(self) -> str:
        return re.sub(r"\*\*|\*|`", "", self.markdown)


@checked
def sentence(template: str, **values: Any) -> Sentence:
    """Prose (Markdown) with `{name}` or `{name:style}` for each of `values`; indentation is removed.

    A value is a number, a `metric`, a word, or the `Verdict` of a claim: `{gain}` is its effect in words and
    `{gain.verdict}`, `{gain.effect:+.1%}`, `{gain.low}`, `{gain.high}` are its parts. A value without a record reads
    "not run", and the prose ends with the command; a sentence without any available value is left out, and if none is
    left, the prose says so. Raises ReproError for a name without a value.

    >>> print(sentence("It costs {flops:.1e} FLOPs a token, or {change:+.1%}.", flops=1.754e8, change=-0.5))
    It costs 1.8e+08 FLOPs a token, or -50.0%.
    """
    missing = dict.fromkeys(one for one in map(_missing, values.values()) if one)
    kept = [_Prose().vformat(part, (), values) for part in re.split(r"(?<=[.!?])(?=\s)", inspect.cleandoc(template))
            if _available(part, values)]
    commands = ", ".join(f"`{line}`" for line in missing)
    if missing and not "".join(kept).strip():
        return Sentence(f"No record exists yet for what this sentence reports. To make it, run {commands}.")
    note = f"({NOT_RUN}: {commands})" if missing else ""
    return Sentence(f"{''.join(kept).strip()} {note}".strip())


def _available(part: str, values: dict[str, Any]) -> bool:
    """Whether a sentence of a template is shown: at least one of its values is available, or it needs none."""
    names = [_value(field) for _, field, _, _ in string.Formatter().parse(part) if field]
    return not names or not all(name in values and _missing(values[name]) for name in names)


def _value(field: str) -> str:
    """The name of the value that a field of a template uses."""
    return re.split(r"[.\[]", field)[0]


class _Prose(string.Formatter):
    def get_field(self, field_name, args, kwargs):
        name = _value(field_name)
        if name not in kwargs:
            raise unknown("value of the sentence", name, kwargs)
        return (None, name) if _missing(kwargs[name]) else super().get_field(field_name, args, kwargs)

    def format_field(self, value, format_spec):
        if value is None:
            return f"*{NOT_RUN}*"
        if isinstance(value, float) and format_spec:
            return written(value, format_spec)
        return value.text if isinstance(value, Verdict) else super().format_field(value, format_spec)


def _missing(value: Any) -> str:
    """The command for a value that was not run; "" for an available one."""
    if isinstance(value, Verdict) and value.verdict == NOT_RUN:
        return "; ".join(value.commands) or value.text
    return value.command if isinstance(value, Metric) and value.value is None else ""


@dataclass(frozen=True)
class InShort:
    """A chapter's first cell as a series of outputs: question and answer, picture, verdicts.

    >>> InShort("How far back?", "Two windows.").question
    'How far back?'
    """

    question: str
    answer: Sentence | str
    verdicts: tuple[tuple[Claim, str, Verdict], ...] = ()  # each with its scale
    chapter: str = ""
    picture: Any = None
    caption: str = ""  # for a drawing, instead of its own caption
    first: tuple[str, ...] = ()  # ids of the claims whose verdicts are shown; the others are folded

    @property
    def text(self) -> Sentence:
        """Question and answer."""
        return Sentence(f"**{self.question}**\n\n{getattr(self.answer, 'markdown', self.answer)}")

    @property
    def badges(self) -> dict[str, str]:
        """The verdicts as a notebook output: claims of the paper first, then ours. Those of `first` are shown or,
        without it, a few, with preference for "not reproduced". The others are folded and counted, as are claims
        without runs. {} without verdicts."""
        if not self.verdicts:
            return {}
        rows, folded, lines, hidden = [], [], [], []
        failures = min(SHOWN, sum(found.verdict == NOT_REPRODUCED for *_, found in self.verdicts))
        places = {True: failures, False: SHOWN - failures}
        for one, scale, found in sorted(self.verdicts, key=lambda row: row[0].source.startswith(ADDED)):
            where = "" if one.chapter == self.chapter else f"{one.chapter}.html"
            failed, source = found.verdict == NOT_REPRODUCED, f"{one.source}, {scale}{LATE * bool(one.late)}"
            row = (f"<li>{badge(found.verdict, f'{where}#{SECTION}', found.text)} "
                   f"{html.escape(one.sentence, quote=False)} <small>{source}</small></li>")
            shown = found.verdict != NOT_RUN and (one.id in self.first if self.first else places[failed] > 0)
            places[failed] -= shown
            (rows if shown else folded).append(row)
            hidden += [] if shown else [found.verdict]
            lines.append(f"{found.verdict}: {one.sentence} ({source})")
        listed = '<ul class="verdicts">{}</ul>'.format
        text = listed("".join(rows)) if rows else ""
        if folded:
            counts = [f"{n} of them {verdict}" for verdict in (NOT_REPRODUCED, NOT_RUN) if (n := hidden.count(verdict))]
            more = ", ".join([f"{len(folded)}{' more' * bool(rows)} claim{'s' * (len(folded) > 1)}", *counts])
            text += f"<details><summary>{more}</summary>{listed(''.join(folded))}</details>"
        return {"text/html": text, "text/plain": "\n".join(lines)}

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.text)
        if self.caption and hasattr(self.picture, "svg"):
            steps = getattr(self.picture, "steps", dict)()
            drawn = markup.figure(self.picture.svg(), html.escape(self.caption, quote=False), steps,
                                  values=getattr(self.picture, "values", ()))
            display({"text/html": drawn, "text/plain": self.caption}, raw=True)
        elif self.picture:
            display(self.picture)
        if self.badges:
            display(self.badges, raw=True)


@caching()
def in_short(chapter: str, question: str, answer: Sentence | str, picture: Any = None, caption: str = "",
             also: Sequence[str] = (), first: Sequence[str] = ()) -> InShort:
    """A chapter's first cell: the question, the answer so far, one picture, and a badge per claim.

    The badges show the chapter's claims and those with ids in `also`, which link to their own chapter. Each is judged
    at the largest scale with committed records, so nothing here depends on the page's scale.
    caption: replaces the description of a drawing; an artifact has its own caption. first: the claims that the answer
    rests on; the verdicts of the others are folded.
    Raises ReproError for an unknown claim.

    >>> cell = in_short("04_recurrence_module", "How can GPT-2 remember?", "By one vector a window.")
    >>> cell.question
    'How can GPT-2 remember?'
    """
    chosen = [*(found for found in claims() if found.chapter == chapter), *map(claim, also)]
    if unused := set(first) - {one.id for one in chosen}:
        raise unknown(f"claim of {chapter}", min(unused), [one.id for one in chosen])
    return InShort(question, answer, tuple((one, *latest(one)) for one in chosen), chapter, picture, caption,
                   tuple(first))
