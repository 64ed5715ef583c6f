"""Explain words on chapter pages: the first use of a term of the glossary shows its definition and links to it."""

import html
import re

TERM = re.compile(r'<dt id="(term-[^"]+)">(.*?)<a class="headerlink".*?</dt>\s*<dd>(.*?)</dd>', re.DOTALL)
ARTICLE = re.compile(r'<article class="bd-article".*?</article>', re.DOTALL)
PARAGRAPH = re.compile(r"<p>.*?</p>", re.DOTALL)
MARKS = re.compile(r"(<[^>]+>)")
CLOSED = "a|code|abbr|span|button"  # in these, text stays as it is
COMMON = {"run", "claim", "experiment", "scale", "share", "interval"}  # words with other uses, which no page underlines


def terms(page: str) -> dict[str, tuple[str, str]]:
    """Each term of the rendered glossary, with its anchor and its definition as plain text."""
    found = TERM.findall(page)
    return {_plain(name): (id, _plain(definition)) for id, name, definition in found}


def explained(page: str, known: dict[str, tuple[str, str]]) -> str:
    """A chapter page on which the first use of each term in its prose is marked."""
    open_ = {name: known[name] for name in sorted(known, key=len, reverse=True) if name not in COMMON}
    return ARTICLE.sub(lambda article: PARAGRAPH.sub(lambda found: _marked(found[0], open_), article[0]), page)


def _marked(paragraph: str, known: dict[str, tuple[str, str]]) -> str:
    """A paragraph in which terms are marked; they are taken out of `known`."""
    parts, depth = MARKS.split(paragraph), 0
    for k, part in enumerate(parts):
        if part.startswith("<"):
            depth += bool(re.match(rf"<(?:{CLOSED})\b", part)) - bool(re.match(rf"</(?:{CLOSED})>", part))
        elif known and not depth:
            names = "|".join(map(re.escape, known))
            parts[k] = re.sub(rf"(?<![\w-])({names})(s?)(?![\w-])", lambda found: _link(found, known), part,
                              flags=re.IGNORECASE)
    return "".join(parts)


def _link(found: re.Match, known: dict[str, tuple[str, str]]) -> str:
    """One use of a term: marked the first time."""
    if found[1].lower() not in known:
        return found[0]
    id, definition = known.pop(found[1].lower())
    return (f'<a class="term" href="../glossary.html#{id}" title="{html.escape(definition)}"><abbr>{found[0]}</abbr>'
            "</a>")


def _plain(text: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]+>", "", text)).split())
