"""WebText from links that people shared: which pages are kept, counted step by step (Radford et al. 2019, section 2.1).

Its makers published only how they made it, not the texts. It holds the text of pages that were linked on Reddit with 3
karma or more, up to December 2017. Wikipedia, on which language models are tested, and duplicates are left out; further
cleaning is not described. The paper extracted the text with Dragnet and Newspaper, which are no longer maintained; we
use trafilatura. The first of several near copies, found by MinHash, is kept.

The input is links and the pages they led to; nothing is fetched.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from numbers import Real
from typing import Any
from urllib.parse import urlsplit

from repro.data.base import Document
from repro.data.ngrams import grams
from repro.errors import ReproError, check_text, is_series

KARMA, LAST = 3, "2017-12-31"
LEAST = 25  # words; a shorter text is usually a remark next to a picture, or menus and other surroundings
STEPS = ("karma", "date", "text", "Wikipedia", "duplicate")  # in this order


@dataclass(frozen=True)
class Page:
    """A link that was shared: where it leads, the karma it got, the day (such as "2017-03-31"), and the page's HTML.

    >>> page = Page("https://a.example/1", karma=5, day="2017-03-31", html="<p>Text.</p>")
    >>> page.day
    '2017-03-31'
    """

    url: str
    karma: int
    day: str
    html: str

    def __post_init__(self) -> None:
        for name in ("url", "day", "html"):
            check_text(getattr(self, name), f"{name} of a page")
        if isinstance(self.karma, bool) or not isinstance(self.karma, Real):
            raise ReproError(f"karma of the page {self.url} is {self.karma!r:.40}; give a number.")


@dataclass(frozen=True)
class WebText:
    """documents: the pages that are kept, in order, by URL. dropped: URL and step of each other page, in order.

    >>> found = webtext([Page("https://a.example/1", karma=1, day="2017-03-31", html="")])
    >>> found.documents, found.dropped
    ([], [('https://a.example/1', 'karma')])
    """

    documents: list[Document]
    dropped: list[tuple[str, str]]

    @property
    def counts(self) -> dict[str, int]:
        """How many links there were, and how many were left after each of the steps."""
        left = {"links": len(self.documents) + len(self.dropped)}
        for step in STEPS:
            left[step] = list(left.values())[-1] - sum(reason == step for _, reason in self.dropped)
        return left


def webtext(pages: Iterable[Page], karma: float = KARMA, first: str | None = None, last: str | None = LAST,
            similar: float = 0.8) -> WebText:
    """The texts of `pages` with at least `karma`, shared from day `first` to day `last`, without Wikipedia and copies.

    similar: a page counts as a copy of an earlier one if their similarity is at least this. The similarity is the runs
    of five words that both have, as a share of the runs that either has (Jaccard's index, 0 to 1). None for a day: no
    limit.
    Raises ReproError for an invalid day, numbers out of range, and missing packages.

    >>> said = "The boats of {} came home before dusk, and every child of {} ran down to count them."
    >>> names = "Ann", "Bea", "Cid", "Dan", "Eve", "Fay", "Gus", "Hal"
    >>> text = "".join(f"<p>{said.format(one, one)}</p>" for one in names)
    >>> html = f"<html><body><article>{text}</article></body></html>"
    >>> found = webtext(Page(f"https://{site}.example/a", 5, "2017-03-31", html) for site in "ab")
    >>> [one.id for one in found.documents], found.dropped
    (['https://a.example/a'], [('https://b.example/a', 'duplicate')])
    """
    if isinstance(similar, bool) or not isinstance(similar, Real) or not 0 < similar <= 1:
        raise ReproError(f"similar={similar}: allowed are shares above 0, up to 1.")
    for day in (first, last):
        if day is not None and not (isinstance(day, str) and not day):
            _day(str(day)[:40])  # raises ReproError for an invalid day
    if first and last and _day(first) > _day(last):
        raise ReproError(f"first={first} is after last={last}: no page would be kept.")
    if isinstance(karma, bool) or not isinstance(karma, Real) or not abs(karma) < 2**63:
        raise ReproError(f"karma={karma!r:.40}: give a number.")
    if not is_series(pages):
        raise ReproError(f"pages is {pages!r:.60}; give a list of repro.data.Page.")
    documents, dropped, known = [], [], _Copies(similar)
    for number, page in enumerate(pages):
        if not isinstance(page, Page):
            raise ReproError(f"page {number} is {page!r:.60}; give a repro.data.Page.")
        reason, content = None, ""
        if page.karma < karma:
            reason = "karma"
        elif first and _day(page.day) < _day(first) or last and _day(page.day) > _day(last):
            reason = "date"
        elif not (content := text(page.html)):
            reason = "text"
        elif is_wikipedia(page.url):
            reason = "Wikipedia"
        elif known.has(content):
            reason = "duplicate"
        if reason:
            dropped.append((page.url, reason))
        else:
            documents.append(Document(page.url, content))
    return WebText(documents, dropped)


def text(html: str) -> str:
    """The text of a page without menus and other surroundings; "" if it has fewer than `LEAST` words."""
    try:
        from trafilatura import extract
    except ImportError as error:
        raise _lacking("trafilatura") from error
    found = extract(html, include_comments=False, include_tables=False) if html.strip() else None
    return found.strip() if found and len(found.split()) >= LEAST else ""


def is_wikipedia(url: str) -> bool:
    """Whether a URL leads to Wikipedia, in any language or form."""
    try:
        host = urlsplit(url if "//" in url else f"//{url}").hostname or ""
    except ValueError:  # a malformed address
        return False
    host = host.lower().rstrip(".")
    return host == "wikipedia.org" or host.endswith(".wikipedia.org")


class _Copies:
    """The texts seen so far, as sketches of their runs of five words."""

    def __init__(self, similar: float, size: int = 256):
        try:
            from datasketch import MinHash, MinHashLSH
        except ImportError as error:
            raise _lacking("datasketch") from error
        self.similar, self.size, self.sketch = similar, size, MinHash
        # The index may find less similar texts, and has no settings for thresholds near 1, so `has` compares again.
        self.index, self.sketches = MinHashLSH(threshold=min(similar, 0.95), num_perm=size), {}

    def has(self, text: str) -> bool:
        """Whether an earlier text is nearly the same as this one; if not, this one is added."""
        found = self.sketch(num_perm=self.size)
        found.update_batch([run.encode() for run in set(grams(text, 5)) or {text}])
        if any(self.sketches[k].jaccard(found) >= self.similar for k in self.index.query(found)):
            return True
        self.sketches[len(self.sketches)] = found
        self.index.insert(len(self.sketches) - 1, found)
        return False


def _day(value: Any) -> date:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise ReproError(f"'{value}' is no day; write it as 2017-12-31.") from None


def _lacking(package: str) -> ReproError:
    return ReproError(f"gathering web text needs the package {package}: pip install 'repro[webtext]'.")
