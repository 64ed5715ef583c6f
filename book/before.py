"""Say at the top of a chapter how long it takes to read and which chapters it builds on."""

import re

BUILDS_ON = {4: (3,), 5: (4,), 6: (3, 4), 7: (6,), 8: (6,), 9: (4,), 12: (11,), 14: (13,), 15: (13,), 17: (16,),
             18: (16,), 19: (9, 18), 20: (18,), 21: (10, 18)}
SPEED = 200  # words a minute
DROPPED = re.compile(r"<(svg|script|style|table)\b.*?</\1>|<details\b.*?</details>|<[^>]+>", re.DOTALL)
HEADING = re.compile(r"<h1>(\d+) · .*?</h1>", re.DOTALL)


def shown(page: str, chapters: dict[int, str]) -> str:
    """A lesson with this line below its heading; other pages as they are. chapters: by number the files that are
    there."""
    if "tag_in-short" not in page:
        return page
    return HEADING.sub(lambda found: found[0] + line(int(found[1]), minutes(page), chapters), page, count=1)


def minutes(page: str) -> int:
    """The minutes needed to read the prose of a page, without figures, tables and folded parts; at least 1."""
    article = page.partition('<article class="bd-article"')[2].partition("</article>")[0]
    return max(1, round(len(DROPPED.sub(" ", article).split()) / SPEED))


def line(number: int, time: int, chapters: dict[int, str]) -> str:
    """The line of one chapter."""
    links = [f'<a href="{chapters[one]}">{one}</a>' for one in BUILDS_ON.get(number, ()) if one in chapters]
    builds = f" Builds on chapter{'s' * (len(links) > 1)} {' and '.join(links)}." if links else ""
    return f'<p class="before">{time} minute{"s" * (time > 1)} to read.{builds}</p>'
