"""Replace typographic characters by plain ones, and join full lines into paragraphs: a declared step of a corpus,
`Corpus.normalise`.

Most books of Project Gutenberg are typed with plain quotes, two hyphens for a dash and three points for an ellipsis; a
few are not, and neither is Wikipedia. To a model that has read only plain ones the others are unknown words.

Books of Project Gutenberg are broken into lines of about 70 characters. A model of such text expects a line end every
dozen words; normal text without them is unlike anything it has read.

A text with an unlisted typographic character raises an error: the author of a corpus has to decide what it means.
Letters, digits, accents, and mathematical and currency signs are never changed or rejected.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from repro.errors import ReproError


@dataclass(frozen=True)
class Normalisation:
    """Character replacements. `name` and `version` are part of a corpus's fingerprint.

    Increase the version when the result changes for a text that was readable before. A newly listed character needs no
    new version, because texts with it could not be read.

    plain: character -> its replacement. left: typographic characters that are kept. joins: whether lines
    are joined (`unwrap`).
    """

    name: str
    version: int
    plain: Mapping[str, str] = field(repr=False)
    left: str = field(default="", repr=False)
    joins: bool = False

    def __call__(self, text: str, where: str = "a text") -> str:
        """`text` with plain characters. Raises ReproError for a typographic one that is in neither table, naming
        `where` it was found."""
        text = unwrap(text) if self.joins else text
        if text.isascii():
            return text
        strange = [c for c in set(text) - self.plain.keys() - set(self.left) if typographic(c)]
        if strange:
            first = min(strange, key=text.index)
            raise ReproError(f"{where} has {_named(first)} at character {text.index(first):,}, which the normalisation "
                             f"'{self.name}' does not know; add it to its tables in repro.data.normalisation, among "
                             "those read as plain ones or those left as they are.")
        return text.translate(str.maketrans(dict(self.plain)))

    def count(self, text: str) -> int:
        """The number of characters of `text` that are replaced."""
        return 0 if text.isascii() else sum(map(text.count, self.plain.keys() & set(text)))

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


FULL = 0.8  # as long as this share of all lines at most are: the width to which a text was broken


def unwrap(text: str) -> str:
    r"""`text` without the line ends at which the next word did not fit.

    The width comes from the text: eight lines in ten are at most that long. Shorter lines, as in headings, tables and
    verse, are kept, and so are paragraph ends; in a book of mostly verse, its longest lines count as full. No space is
    added after two hyphens. In gutenberg-pretrain this removes 90% of the line ends inside paragraphs.

    >>> print(unwrap("The robin came down and\nsat on the fence. It had\nseen us.\n\nWe were--\nI think--still."))
    The robin came down and sat on the fence. It had seen us.
    <BLANKLINE>
    We were--
    I think--still.
    """
    lines = text.split("\n")
    lengths = sorted(len(line) for line in lines if line.strip())
    width = lengths[int(FULL * len(lengths))] if lengths else 0
    found = lines[:1]
    for before, line in pairwise(lines):
        word = line.split(maxsplit=1)[:1]
        if before.strip() and word and len(before) + 1 + len(word[0]) > width:
            found[-1] += ("" if before.endswith("--") else " ") + line.lstrip()
        else:
            found.append(line)
    return "\n".join(found)


def typographic(character: str) -> bool:
    """Whether a character could replace a plain quote, dash, ellipsis, space or pair of letters, or nothing.

    By its Unicode category: quotes that open (Pi) or close (Pf), dashes (Pd), spaces and separators (Zs, Zl, Zp),
    characters that are not seen (Cf). By its name, for the quotes, ellipses and hyphens that have other categories.
    Visible ones of the block General Punctuation; Latin ligatures such as the one of f and i; the control characters of
    Latin-1, which is what the quotes of Windows-1252 become when they are misread.
    """
    code = ord(character)
    if code < 0x80:
        return False
    return (code < 0xa0 or 0x2010 <= code <= 0x2027 or 0x2030 <= code <= 0x205e or 0xfb00 <= code <= 0xfb06
            or unicodedata.category(character) in ("Pi", "Pf", "Pd", "Zs", "Zl", "Zp", "Cf")
            or re.search("QUOTATION MARK|ELLIPSIS|HYPHEN|DASH$", unicodedata.name(character, "")) is not None)


def _named(character: str) -> str:
    return f"U+{ord(character):04X} ({unicodedata.name(character, 'a control character')})"


PLAIN = Normalisation("plain punctuation", 1, {
    **dict.fromkeys("‘’‚‛′‵‹›", "'"),
    **dict.fromkeys("“”„‟″‶«»", '"'),
    **dict.fromkeys("‐‑‒–", "-"),  # hyphens, figure dash, en dash
    **dict.fromkeys("—―", "--"),  # em dash, horizontal bar
    "…": "...", "‥": "..",
    "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st",
}, left="†‡•‣‧‰‱⁄‼‽⁇⁈⁉※‿〜־❮❯"  # none of these is a quote, a dash or an ellipsis of English text
        "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"  # spaces
        "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff")  # not seen: joiners, marks of direction, of the byte order
UNWRAPPED = replace(PLAIN, name="plain punctuation, full lines joined", version=1, joins=True)
