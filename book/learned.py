"""Fill the page of findings: each is a sentence with numbers from records, and the claims that it rests on."""

import html
import re

from repro.pages import badge
from repro.study import claim
from repro.study.cache import caching
from repro.study.claims import latest
from repro.study.paper import Finding

BLOCK = re.compile(r"^:::\{finding\} (.*?)\n(.*?)\n:::$", re.MULTILINE | re.DOTALL)
CHANGED = "*The verdicts behind this finding have changed, so its text must be rewritten.*"


def findings(text: str) -> list[Finding]:
    """The findings of a page: blocks that begin with `:::{finding} ID: VERDICT; ID: VERDICT`."""
    return [finding(found) for found in BLOCK.finditer(text)]


def finding(found: re.Match) -> Finding:
    """One block as a finding, which holds only while all of its claims have these verdicts."""
    pairs = (one.rpartition(": ") for one in found[1].split("; "))
    return Finding(found[2], {id: verdict for id, _, verdict in pairs})


@caching()
def filled(text: str) -> str:
    """The page with its findings: numbers from records, then a badge for each claim, which links to its evidence."""
    return BLOCK.sub(lambda found: written(finding(found)), text)


def written(one: Finding) -> str:
    """A finding as Markdown, or a note that its verdicts have changed, with the links to its claims."""
    return f"{one.written() or CHANGED}\n\n<ul class=\"verdicts\">{''.join(map(evidence, one.verdicts))}</ul>"


def evidence(id: str) -> str:
    """The verdict on a claim, its short sentence and its effect; the link leads to its records."""
    known, (scale, found) = claim(id), latest(claim(id))
    mark = badge(found.verdict, f"notebooks/22_scoreboard.html#{id}", f"{known.sentence} {found.text}")
    measured = html.escape(f"{found.measured} {found.unit}".strip(), quote=False)
    return f"<li>{mark} {html.escape(known.brief, quote=False)} <small>{scale}: {measured}</small></li>"
