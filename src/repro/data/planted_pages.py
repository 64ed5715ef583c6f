"""Shared pages with planted cases of everything that `repro.data.web` leaves out; the case of each page is known.

The articles are beginnings of embedded books. Each is surrounded by a menu, an advertisement and a footer, which do not
belong to the page's text.
"""

import random
from dataclasses import replace

from repro.data.synthetic import BOOKS
from repro.data.web import Page

VERSION = 1  # raise it when the pages of a given seed change
CASES = ("karma", "date", "text", "Wikipedia", "duplicate")  # named by the step that leaves such a page out
AROUND = ("Home News Sport Weather Subscribe now", "Buy two kettles and get the third one free", "All rights reserved")


def pages(n: int, planted: int, seed: int = 0) -> list[tuple[Page, str]]:
    """`n` pages to keep and `planted` pages of each case, in an order drawn by `seed`: (page, its case or "").

    Copies come last. Every other copy differs from its original in one word; the rest do not differ.
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
    """Article `index`, in paragraphs of 60 words."""
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
