"""Cloze questions in the form of the Children's Book Test (Hill et al. 2016), made from any book.

Twenty sentences of a book are the context; in the one after them a word is left out, and ten words of its kind are the
candidates. The test itself uses children's books and a tagger; here the kinds are inferred from the book alone, so
these are other questions, with other names.

names: words that are always capitalized in the book, also inside sentences. nouns: words that often occur between an
article or possessive and a punctuation mark or function word.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from repro.data.examples import MultipleChoice

READ = 200_000  # characters: the beginning of a book, from which its questions are
VERSION = 1  # part of the fingerprints: increase it whenever the questions change
BLANK = "XXXXX"
KINDS = ("names", "nouns")
CONTEXT, CANDIDATES = 20, 10  # sentences, words

WORD = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*")
END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z])")
SHORTENED = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Rev|Col|Gen|Capt|Lt|Sgt|Prof|Hon|Jr|Sr|No|vol|p|pp|etc|i\.e|e\.g|viz)"
                       r"|\b[A-Z])\.[\"')\]]*$")
OPENS = frozenset("the a an this that his her their our my your its".split())
FOLLOWS = frozenset("of was is were had has and in to with that which who on at for from by as".split())
NO_NOUN = frozenset("same other others first last latter former rest most more one two three own whole very".split())
NO_NAME = frozenset("Mrs Miss Sir Lady Lord God Chapter The And But".split())


def sentences(text: str) -> list[str]:
    """The sentences of a book, with single spaces; a heading or other text without a period joins the next one."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        start, flat = 0, " ".join(paragraph.split())
        for end in END.finditer(flat):
            if not SHORTENED.search(flat[start:end.start()]):
                found.append(flat[start:end.end()].strip())
                start = end.end()
        if flat[start:]:
            found.append(flat[start:])
    return found


def vocabulary(word_lists: Sequence[Sequence[str]], kind: str) -> set[str]:
    """The names or nouns among the words of a book's sentences."""
    if kind == "names":
        inside = Counter(word for words in word_lists for word in words[1:] if word[0].isupper())
        small = {word for words in word_lists for word in words if word[0].islower()}
        return {word for word, n in inside.items() if n >= 3 and len(word) > 2 and "'" not in word
                and not word.isupper() and word.lower() not in small and word not in NO_NAME}
    every = Counter(word for words in word_lists for word in words)
    framed = Counter(word for words in word_lists for before, word, after in zip(words, words[1:], [*words[2:], "of"],
                                                                                 strict=False)
                     if before.lower() in OPENS and after in FOLLOWS)
    return {word for word, n in framed.items()
            if n >= 3 and n >= 0.15 * every[word] and word.islower() and len(word) > 2 and "'" not in word
            and word not in OPENS | FOLLOWS | NO_NOUN}


def questions(name: str, text: str, kind: str, most: int) -> Iterator[MultipleChoice]:
    """Up to `most` questions on a text, spread over it, each with a context of its own.

    The answer occurs once in its sentence, and also in the context. Candidates are the words of its kind in context and
    sentence; if there are fewer than ten, earlier ones are added, the nearest first.
    """
    parts = sentences(text)
    word_lists = [WORD.findall(part) for part in parts]
    known = vocabulary(word_lists, kind)
    starts = range(0, len(parts) - CONTEXT, CONTEXT + 1)
    found = [one for start in starts if (one := _question(name, parts, word_lists, known, start))]
    step = max(len(found) / most, 1)
    yield from (found[int(k * step)] for k in range(min(most, len(found))))


def _question(name: str, parts: Sequence[str], word_lists: Sequence[Sequence[str]], known: set[str],
              start: int) -> MultipleChoice | None:
    """The question on the sentence after the twenty from `start` on; None if no word in it can be asked for."""
    at = start + CONTEXT
    asked, words = parts[at], word_lists[at]
    context = [word for words in word_lists[start:at] for word in words if word in known]
    able = [word for word in words if word in context and words.count(word) == 1 and asked.count(word) == 1]
    if not 5 <= len(words) <= 60 or not able:
        return None
    identity = f"{name}-{at}"
    answer = min(able, key=lambda word: _hash(identity, word))
    others = dict.fromkeys([*reversed(context), *(word for word in words if word in known)])
    for earlier in range(start - 1, -1, -1):
        if len(others) >= 4 * CANDIDATES:
            break
        others |= dict.fromkeys(word for word in word_lists[earlier] if word in known)
    others.pop(answer, None)
    near = [word for word in others if word.lower() != answer.lower()][:CANDIDATES - 1]
    if len(near) < CANDIDATES - 1:
        return None
    candidates = tuple(sorted([answer, *near], key=lambda word: _hash(identity, word)[::-1]))
    return MultipleChoice(identity, re.sub(rf"(?<![A-Za-z]){re.escape(answer)}(?![A-Za-z])", BLANK, asked),
                          candidates, candidates.index(answer), (" ".join(parts[start:at]),))


def _hash(identity: str, word: str) -> str:
    return hashlib.sha256(f"{identity}/{word}".encode()).hexdigest()
