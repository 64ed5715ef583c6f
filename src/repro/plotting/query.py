"""One page of text as one of its words sees it, with every pattern."""

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from repro.errors import ReproError
from repro.plotting.words import ColouredText

if TYPE_CHECKING:
    from repro.attention import Pattern

HEADS = ["b2", "r2"]  # colors of a pattern's first or only head, and of the words that only the second head adds
STYLE = ("<style>.query{display:grid;gap:1em 1.5em;grid-template-columns:repeat(auto-fit,minmax(min(100%,15rem),1fr))}"
         ".words .query p{font-size:.8em;line-height:1.65;margin:.2em 0}.words .query span{padding:.05em .1em}"
         ".words .asks{border-radius:0;outline:2px solid;font-weight:700}</style>")


def draw_query(words: Sequence[str], query: int, patterns: Mapping[str, "Pattern | Sequence[Pattern]"]) -> ColouredText:
    """The words that the word at position `query` may attend to, one copy of the page for each pattern.

    patterns: name -> pattern whose positions are words. For a sequence of two heads, words of the first are blue, and
    words that only the second adds are orange. Raises ReproError for a query outside the page, and for more than two
    heads.

    >>> from repro.attention import SlidingWindow
    >>> draw_query("a cat sat on a mat".split(), 3, {"window": SlidingWindow(2)}).alt
    'What "on" at position 3 of 6 words may attend to: window 2 words.'
    """
    n = len(words)
    if not 0 <= query < n:
        raise ReproError(f"query is {query}; the page has the positions 0 to {n - 1}.")
    parts, counts, values = [], [], []
    for name, pattern in patterns.items():
        heads = [pattern] if not isinstance(pattern, Sequence) else pattern
        if len(heads) > len(HEADS):
            raise ReproError(f"pattern '{name}' has {len(heads)} heads; at most {len(HEADS)} can be distinguished.")
        seen = [head.mask(n)[query].tolist() for head in heads]
        shown = [_word(word, [row[j] for row in seen], j == query) for j, word in enumerate(words)]
        count = sum(map(any, zip(*seen, strict=True)))
        parts.append(f"<div><b>{html.escape(name)}</b>: {count} words<p>{' '.join(shown)}</p></div>")
        counts.append(f"{name} {count}")
        values += [{"pattern": name, "head": head, "position": j, "word": words[j]}
                   for head, row in enumerate(seen, 1) for j in range(n) if row[j]]
    alt = f'What "{words[query]}" at position {query} of {n} words may attend to: {", ".join(counts)} words.'
    return ColouredText(f'{STYLE}<div class="query">{"".join(parts)}</div>', alt, values)


def _word(word: str, seen: Sequence[bool], asks: bool) -> str:
    names = [kind for kind, one in zip(HEADS, seen, strict=False) if one][:1] + ["asks"] * asks
    return f'<span class="{" ".join(names)}">{html.escape(word)}</span>' if names else html.escape(word)
