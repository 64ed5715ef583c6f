"""Names and pronouns in a continuation that agree with its context."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from repro.errors import check_text, check_whole
from repro.evaluation.inputs import texts_of

WORD = re.compile(r"\b[^\W\d_]{2,}\b")
TITLES = {"mr", "mrs", "ms", "dr", "st", "sir", "madam", "miss", "lord", "lady"}  # titles mean nothing without the name
GENDERS = {**dict.fromkeys(("he", "him", "his", "himself"), "male"),
           **dict.fromkeys(("she", "her", "hers", "herself"), "female")}


class Kept(NamedTuple):
    """`kept` of the `n` names, or pronouns, in a continuation agree with the context."""

    kept: int
    n: int


def common_words(texts: Iterable[str], least: int = 5) -> set[str]:
    """The words that occur in lower case in `texts` at least `least` times. Raises ReproError for one string."""
    check_whole(least, "least", 0)
    counts = Counter(word for text in texts_of(texts, "texts") for word in WORD.findall(text) if word.islower())
    return {word for word, n in counts.items() if n >= least}


def names(text: str, common: set[str]) -> list[str]:
    """The capitalized words of `text`, except titles and `common` words at the start of a sentence.

    Places and peoples also count. A text that is cut inside a word may start or end with part of a name.
    """
    return [word for word in WORD.findall(check_text(text, "the text"))
            if word.istitle() and word.lower() not in common and word.lower() not in TITLES]


def genders(text: str) -> list[str]:
    """"male" or "female" for each third-person singular pronoun of `text` that has a gender, in order."""
    return [GENDERS[word] for word in map(str.lower, WORD.findall(check_text(text, "the text"))) if word in GENDERS]


def kept_names(context: str, continuation: str, common: set[str]) -> Kept:
    """How many names in the continuation also occur in the context."""
    known, found = set(names(context, common)), names(continuation, common)
    return Kept(sum(name in known for name in found), len(found))


def kept_genders(context: str, continuation: str) -> Kept:
    """How many pronouns in the continuation have the gender of the context, if all its pronouns agree.

    A context without pronouns, or with pronouns of both genders, is not counted: (0, 0).
    """
    known, found = set(genders(context)), genders(continuation)
    return Kept(found.count(*known), len(found)) if len(known) == 1 else Kept(0, 0)
