"""Pages that were shared, with planted cases of all that `repro.data.web` leaves out; which page is which is known.

The articles are beginnings of the embedded books. Around each stand a menu, an advertisement and a footer, which are no
text of the page.
"""

import random
from dataclasses import replace

from repro.data.synthetic import BOOKS
from repro.data.web import Page

VERSION = 1  # raise it when the pages of a given seed change
CASES = ("karma", "date", "text", "Wikipedia", "duplicate")  # by the step that leaves such a page out
AROUND = ("Home News Sport Weather Subscribe now", "Buy two kettles and get the third one free", "All rights reserved")


def pages(n: int, planted: int, seed: int = 0) -> list[tuple[Page, str]]:
    """`n` pages to keep and `planted` of each of the cases, in an order drawn by `seed`: (page, its case or "").

    Copies differ from what they are copies of in a few words, every other one in none, and come after it.
    """
    draw = random.Random(f"web {VERSION}/{seed}")
    kept = [_page(draw, f"https://site{k}.example/story", k) for k in range(n)]
    spoilt = [_spoilt(draw, case, n + k * len(CASES) + at, case) for k in range(planted)
              for at, case in enumerate(CASES[:-1])]
    made = [(page, "") for page in kept] + spoilt
    draw.shuffle(made)
    copies = draw.sample(kept, planted)
    return made + [(_copy(page, k, changed=k % 2 == 0), "duplicate") for k, page in enumerate(copies)]


def paragraphs(index: int) -> list[str]:
    """The words of article `index`, in paragraphs of 60."""
    words = BOOKS.book("web", index).split()[:300]
    return [" ".join(words[k:k + 60]) for k in range(0, len(words), 60)]


def _page(draw: random.Random, url: str, index: int) -> Page:
    return Page(url, draw.randrange(3, 500), f"20{draw.randrange(10, 18)}-{draw.randrange(1, 13):02}-15",
                _html(paragraphs(index)))


def _spoilt(draw: random.Random, kind: str, index: int, case: str) -> tuple[Page, str]:
    page = _page(draw, f"https://site{index}.example/{kind.lower()}", index)
    if case == "karma":
        page = replace(page, karma=draw.randrange(-5, 3))
    elif case == "date":
        page = replace(page, day="2018-01-01")
    elif case == "text":
        page = replace(page, html=_html([]) if index % 2 else "")
    else:
        page = replace(page, url=f"https://{draw.choice(['en', 'de', 'en.m'])}.wikipedia.org/wiki/Story_{index}")
    return page, case


def _copy(page: Page, number: int, changed: bool) -> Page:
    html = page.html.replace(" the ", " every ", 1) if changed else page.html
    return replace(page, url=f"https://mirror{number}.example/copy", html=html)


def _html(paragraphs: list[str]) -> str:
    menu, advertisement, footer = AROUND
    body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return (f"<html><head><title>A story</title><script>var x = 1;</script></head><body><nav><ul><li>{menu}</li></ul>"
            f"</nav><article>{body}</article><aside class='advertisement'>{advertisement}</aside>"
            f"<footer>{footer}</footer></body></html>")
