"""How close an answer comes to the one that is wanted: exactly, or word by word (Rajpurkar et al. 2016)."""

import re
import string
from collections import Counter

SIGNS = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> str:
    """In lower case, without punctuation and articles, with single blanks."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(SIGNS)).split())


def exact(wanted: str, told: str) -> bool:
    """Whether both are the same, normalised."""
    return normalised(wanted) == normalised(told)


def word_f1(wanted: str, told: str) -> float:
    """F1 of the words of both, normalised, 0 to 1; of two empty answers 1."""
    wanted, told = normalised(wanted).split(), normalised(told).split()
    if not wanted or not told:
        return float(wanted == told)
    return 2 * (Counter(wanted) & Counter(told)).total() / (len(wanted) + len(told))
