"""Typographic characters read as plain ones, a declared step of a corpus: `Corpus.normalise`.

Most books of Project Gutenberg are typed with plain quotes, two hyphens for a dash and three points for an ellipsis; a
few are not, and neither is Wikipedia. To a model that has read only plain ones the others are unknown words.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field

from repro.errors import ReproError


@dataclass(frozen=True)
class Normalisation:
    """Which characters are read as which others. `name` and `version` enter the fingerprint of a corpus: raise the
    version with every change of the tables.

    plain: character -> what is read instead. left: typographic characters that stay as they are.
    """

    name: str
    version: int
    plain: Mapping[str, str] = field(repr=False)
    left: str = field(default="", repr=False)

    def __call__(self, text: str, where: str = "a text") -> str:
        """`text` with plain characters. Raises ReproError for a typographic one that is in neither table, naming
        `where` it was found."""
        if text.isascii():
            return text
        strange = [c for c in set(text) - self.plain.keys() - set(self.left) if typographic(c)]
        if strange:
            first = min(strange, key=text.index)
            raise ReproError(f"{where} has {_told(first)} at character {text.index(first):,}, which the normalisation "
                             f"'{self.name}' does not know; add it to its tables in repro.data.normalisation, among "
                             "those read as plain ones or those left as they are.")
        return text.translate(str.maketrans(dict(self.plain)))

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def typographic(character: str) -> bool:
    """Whether a character could be a quote, a dash or an ellipsis that is not plain: one by its Unicode category or
    name, a visible one of the block General Punctuation, or a control character of Latin-1, which is what the quotes of
    Windows-1252 become when they are misread."""
    code = ord(character)
    if code < 0x80:
        return False
    return (code < 0xa0 or 0x2010 <= code <= 0x2027 or 0x2030 <= code <= 0x205e
            or unicodedata.category(character) in ("Pi", "Pf", "Pd")
            or re.search("QUOTATION MARK|ELLIPSIS|HYPHEN|DASH$", unicodedata.name(character, "")) is not None)


def _told(character: str) -> str:
    return f"U+{ord(character):04X} ({unicodedata.name(character, 'a control character')})"


PLAIN = Normalisation("plain punctuation", 1, {
    **dict.fromkeys("‘’‚‛′‵‹›", "'"),
    **dict.fromkeys("“”„‟″‶«»", '"'),
    **dict.fromkeys("‐‑‒–", "-"),  # hyphens, figure dash, en dash
    **dict.fromkeys("—―", "--"),  # em dash, horizontal bar
    "…": "...", "‥": "..",
}, left="†‡•‣‧‰‱⁄‼‽⁇⁈⁉※‿〜־")  # none of these is a quote, a dash or an ellipsis of English text
