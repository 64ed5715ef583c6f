"""A text whose mentions carry the color and the number of their cluster, so that coreference is visible at a glance."""

import html
from collections.abc import Mapping, Sequence

from repro.errors import ReproError
from repro.plotting.style import CYCLE
from repro.plotting.words import ColouredText

Mention = tuple[int, int]
TINT = "38"  # opacity of a color over the page, light or dark: letters stay readable, nested mentions are darker

STYLE = "".join([
    "<style>",
    ".mentions{font-size:.9em;text-align:left}.mentions p{line-height:2.1;margin:.2em 0 .9em}",
    ".mentions span{border-radius:.3em;padding:.15em .2em;border-bottom:2px solid}",
    ".mentions .single{border-bottom:2px dotted;background:none}",
    ".mentions sub{font-weight:700;font-size:.7em;padding-left:.15em}",
    *(f".mentions .k{k}{{background:{colour}{TINT};border-color:{colour}}}" for k, colour in enumerate(CYCLE)),
    "</style>"])


def draw_clusters(words: Sequence[str], panels: Mapping[str, Sequence[Sequence[Mention]]]) -> ColouredText:
    """One text per panel: mentions are tinted and numbered by cluster; mentions that are alone in their cluster are
    dotted.

    panels: the title of each panel -> clusters of mentions (start, stop) in words. Clusters are numbered by their first
    mention. Raises ReproError if there are no panels or words, and for mentions that cross or are outside the words.

    >>> draw_clusters(["Ann", "saw", "her", "dog"], {"right": [[(0, 1), (2, 3)], [(2, 4)]]}).alt
    'Text with its mentions. right: 1 cluster of two or more mentions and 1 mention alone. Cluster 1: Ann, her.'
    """
    if not panels or not words:
        raise ReproError("there is nothing to draw: give words and at least one panel of clusters.")
    parts, described, values = [], [], []
    for title, clusters in panels.items():
        ordered = sorted((sorted(map(tuple, one)) for one in clusters if one), key=lambda one: one[0])
        linked = [one for one in ordered if len(one) > 1]
        alone = sum(len(one) == 1 for one in ordered)
        names = {mention: number for number, one in enumerate(linked, 1) for mention in one}
        every = sorted((mention for one in ordered for mention in one), key=lambda one: (one[0], -one[1]))
        _check(title, every, len(words))
        values += [{"panel": title, "cluster": names.get(mention, "alone"), "start": mention[0], "stop": mention[1],
                    "mention": " ".join(words[slice(*mention)])} for mention in every]
        listed = [f"Cluster {number}: {', '.join(' '.join(words[slice(*mention)]) for mention in one)}."
                  for number, one in enumerate(linked, 1)]
        counted = (f"{len(linked)} cluster{'s' * (len(linked) != 1)} of two or more mentions and {alone} "
                   f"mention{'s' * (alone != 1)} alone.")
        described.append(" ".join([f"{title}: {counted}", *listed]))
        parts.append(f"<p><b>{html.escape(title)}</b>: {counted}</p><p>{_marked(words, every, names)}</p>")
    return ColouredText(f'{STYLE}<div class="mentions">{"".join(parts)}</div>',
                        "Text with its mentions. " + " ".join(described), values)


def _check(title: str, mentions: Sequence[Mention], n: int) -> None:
    """Raise ReproError for mentions that are outside the words, occur twice, or cross. mentions: outer ones first."""
    open_at: list[Mention] = []
    for start, stop in mentions:
        if not 0 <= start < stop <= n:
            raise ReproError(f"'{title}' has a mention of words {start}:{stop}; there are {n} words.")
        while open_at and open_at[-1][1] <= start:
            open_at.pop()
        if open_at and (stop > open_at[-1][1] or (start, stop) == open_at[-1]):
            wrong = "twice" if (start, stop) == open_at[-1] else f"crossing {open_at[-1][0]}:{open_at[-1][1]}"
            raise ReproError(f"'{title}' has the mention of words {start}:{stop} {wrong}; leave one of them out.")
        open_at.append((start, stop))


def _marked(words: Sequence[str], mentions: Sequence[Mention], names: Mapping[Mention, int]) -> str:
    """The words as HTML, with an element around every mention and the number of its cluster at its end."""
    found = []
    for place, word in enumerate(words):
        opened = []
        for mention in mentions:
            if mention[0] == place:
                kind = f"k{(names[mention] - 1) % len(CYCLE)}" if mention in names else "single"
                opened.append(f'<span class="{kind}">')
        closed = [f"<sub>{names[mention]}</sub></span>" if mention in names else "</span>"
                  for mention in reversed(mentions) if mention[1] == place + 1]
        found.append("".join(opened) + html.escape(word) + "".join(closed))
    return " ".join(found)
