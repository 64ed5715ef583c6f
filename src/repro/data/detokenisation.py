"""De-tokenizers: turn corpora that were split into words into normal text, and back (Radford et al. 2019, 3.1).

WikiText and LAMBADA have spaces around punctuation, and marks such as " @-@ ", which no other text has. They raise the
loss of a model that was not trained on them. Without them, the score is still valid for the corpus if nothing is lost:
`invert(apply(x)) == x` for every string x.

This is ensured as follows. The words of a line are separated by spaces. Rules decide which words directly follow the
previous one, so that a *chunk* of words is written without spaces. A chunk is written only if reading it back (with the
rules of the tokenizer that made the corpus) gives its words; otherwise its words stay separate. A word that cannot be
read back even alone gets an escape mark: the text after it, up to the next space, is one word.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from repro.errors import check_text, unknown

MARK = "\ue000"  # private use: in no normal text; if a text contains it, it is escaped like any other word
LONGEST = 64  # words in a chunk, which is read again with every word that is added


@dataclass(frozen=True)
class Detokeniser:
    """The rules that join the words of a corpus and split the text again.

    joins: words of a line -> for each, whether it directly follows the previous one.
    write: words of a chunk -> the chunk. read: a chunk without a mark -> its words.
    edges: whether spaces at the edges of lines, as in WikiText, are dropped.

    >>> style = detokeniser("wikitext")
    >>> style.name, style.apply('He said : " no . "')
    ('wikitext', 'He said: "no."')
    """

    name: str
    joins: Callable[[Sequence[str]], list[bool]] = field(repr=False)
    write: Callable[[Sequence[str]], str] = field(repr=False)
    read: Callable[[str], tuple[str, ...]] = field(repr=False)
    edges: bool = False
    mark: str = MARK

    def apply(self, text: str) -> str:
        """`text` as normal text."""
        if not self._edged(check_text(text, "the text")):
            return "\n".join(" ".join(self._chunks(line.split(" "))) for line in text.split("\n"))
        *lines, last = text.split("\n")
        return " " + "\n".join([*map(self._without_edges, lines), last and self._without_edges(last, blank=None)])

    def invert(self, text: str) -> str:
        """The original of a `text` that `apply` returned."""
        if not self._edged(check_text(text, "the text")):
            return "\n".join(self._words(line) for line in text.split("\n"))
        *lines, last = text[1:].split("\n")
        return "\n".join([*map(self._with_edges, lines), last and self._with_edges(last)])

    def _edged(self, text: str) -> bool:
        """Whether spaces at the edges of lines are dropped; the first one is kept as a marker."""
        return self.edges and text.startswith(" ")

    def _without_edges(self, line: str, blank: str | None = "") -> str:
        """A line without its edge spaces, or with a mark and a space in front if it has others. blank: how " " is
        written."""
        if line == " " and blank is not None:
            return blank
        if len(line) > 2 and line[0] == line[-1] == " ":
            return " ".join(self._chunks(line[1:-1].split(" ")))
        return f"{MARK} " + " ".join(self._chunks(line.split(" ")))

    def _with_edges(self, line: str) -> str:
        if not line:
            return " "
        return self._words(line[2:]) if line.startswith(f"{MARK} ") else f" {self._words(line)} "

    def _words(self, line: str) -> str:
        return " ".join(word for chunk in line.split(" ") for word in self._read(chunk))

    def _read(self, chunk: str) -> tuple[str, ...]:
        """The words of a chunk."""
        return (chunk[1:],) if chunk.startswith(MARK) else self.read(chunk)

    def _chunks(self, words: Sequence[str]) -> Iterator[str]:
        """The chunks of a line: each as long as the rules allow and as can be read back."""
        joined, start = self.joins(words), 0
        while start < len(words):
            stop = start + 1
            chunk = words[start] if self._read(words[start]) == (words[start],) else MARK + words[start]
            while longer := self._longer(words, joined, start, stop):
                chunk, stop = longer
            yield chunk
            start = stop

    def _longer(self, words: Sequence[str], joined: list[bool], start: int, stop: int) -> tuple[str, int] | None:
        """The chunk with one to three more words, and its end; None if no such chunk can be read back."""
        for end in range(stop + 1, min(stop + 3, len(words)) + 1):
            if not joined[end - 1] or end - start > LONGEST:
                return None
            chunk = self.write(words[start:end])
            if self._read(chunk) == tuple(words[start:end]):
                return chunk, end
        return None


def detokeniser(style: str) -> Detokeniser:
    """The de-tokeniser of a corpus: "wikitext" or "lambada" (its plain form: lower case, cut into words).

    `.apply(text)` and `.invert(text)` are pure functions; `.mark` is the escape mark. ReproError for another style.

    >>> style = detokeniser("wikitext")
    >>> plain = style.apply("It 's 3 @.@ 5 km ( 2 miles ) .")
    >>> plain, style.invert(plain)
    ("It's 3.5 km (2 miles).", "It 's 3 @.@ 5 km ( 2 miles ) .")
    """
    if not isinstance(style, str) or style not in _STYLES:
        raise unknown("style of a de-tokeniser", style, _STYLES)
    return _STYLES[style]


SHORT = ("Adm|Ave|Bros|Brig|Capt|Cmdr|Col|Corp|Cpl|Dr|Drs|Ens|Gen|Gov|Hon|Insp|Jr|Lt|Maj|Messrs|Mlle|Mme|Mr|Mrs|Ms|"
         "Msgr|No|Nos|Op|Pfc|Ph|Prof|Pvt|Rep|Reps|Res|Rev|Rt|Sen|Sens|Sfc|Sgt|Sr|St|Ste|Supt|Surg|vs|var|pp")
WIKITEXT = re.compile(rf"""
    (?P<stands_for> <unk> | <formula> )
  | (?P<dots> \.{{2,}} )
  | (?P<initials> [^\W\d_] (?: \. [^\W\d_] (?!\w) )+ \.? | [A-Z] \. (?!\w) )
  | (?P<short> (?<!\w) (?:{SHORT}) \. (?![\w.]) )
  | (?P<site> \w*[^\W\d_] (?: \. [^\W\d_]\w* )+ )
  | (?P<comma> (?<=\d) , (?=\d) )
  | (?P<point> (?<=\d) \. (?=\d) )
  | (?P<hyphen> (?<=.) - | - (?=.) )
  | (?P<ending> (?: (?<=[\w.)\]%°]) | (?<=[\w.!?,)]") ) '\w+ )
  | \w+ | .
""", re.VERBOSE | re.DOTALL)
WRITTEN = {"@-@": "-", "@,@": ",", "@.@": "."}
MEANT = {"hyphen": "@-@", "comma": "@,@", "point": "@.@"}

BEHIND = frozenset(", . ; : ! ? ) ] } % ... ” ’ ° ′ ″".split())  # directly follow the previous word
BEFORE = frozenset("( [ { “ ‘ $ £ € ₤ ¥ #".split())  # directly precede the next word
BETWEEN = frozenset("@-@ @,@ @.@ / — ‑ ⁄".split())  # both
ENDINGS = frozenset("s t m d re ve ll".split())


def _joins_wikitext(words: Sequence[str]) -> list[bool]:
    """Quotes open and close in turn; heading marks are joined, and so are ranges and times between numbers."""
    n, quoted, single = len(words), False, False
    behind, before = [False] * (n + 1), [False] * (n + 1)
    heading = n > 2 and words[0] == words[-1] == "="
    for k, word in enumerate(words):
        last, following = words[k - 1] if k else "", words[k + 1] if k + 1 < n else ""
        numbers = last[-1:].isdigit() and following[:1].isdigit()
        behind[k] = (word in BEHIND or word in BETWEEN or word == "–" and numbers
                     or len(word) > 1 and word[0] == "'" and word[1:].isalnum())
        before[k] = (word in BEFORE or word in BETWEEN or word in ("–", ":") and numbers
                     or word == "’" and following in ENDINGS or word == "°" and following in ("C", "F"))
        if heading and word == "=":
            behind[k] = last == "="
        elif word == '"':
            behind[k], before[k], quoted = quoted, not quoted, not quoted
        elif word == "'":
            opens = not single and not last.endswith("s") and (following[:1].isdigit() or "'" in words[k + 1:])
            behind[k], before[k], single = not opens, opens, opens
    return [k > 0 and (behind[k] or before[k - 1]) for k in range(n)]


def _write_wikitext(words: Sequence[str]) -> str:
    return "".join(WRITTEN.get(word, word) for word in words)


@lru_cache(2**16)
def _read_wikitext(chunk: str) -> tuple[str, ...]:
    """Split as by the Moses tokenizer; an empty chunk is an empty word."""
    return tuple(MEANT.get(found.lastgroup, found[0]) for found in WIKITEXT.finditer(chunk)) or ("",)


LAMBADA = re.compile(r"""
    (?P<open> (?<! [\w.,!?;:)%*'-] ) " (?=.) )
  | (?P<close> " )
  | (?P<word> (?<! [\w'] ) '(?: em|til|cause|bout|round|n|kay|cos ) (?!\w) )
  | (?P<single> (?<! [\w.,!?;:)%*'-] ) ' (?=\w) )
  | (?P<ending> (?<=.) '(?: s|m|d|re|ll|ve ) (?!\w) )
  | (?P<dots> \.{2,} | -{2,} | \*{2,} | [?!]{2,} )
  | (?P<initials> [^\W\d_] (?: \. [^\W\d_] (?!\w) )+ \.? | [a-hj-z] \. (?!\w) )
  | (?P<short> (?<!\w) (?: mr|mrs|ms|dr|st|det|jr|sr|vs|lt|sgt|capt|col|gen|prof|rev|mt ) \. (?![\w.]) )
  | (?P<split> (?<![\w-]) (?: can(?=not\b) | gon(?=na\b) | wan(?=na\b) | got(?=ta\b) | gim(?=me\b) | lem(?=me\b) ) )
  | (?P<not> n't (?!\w) )
  | (?P<before_not> \w+ (?= n't (?!\w) ) )
  | \w+ (?: (?: [-’/&.]+ | (?<=\d)[,:](?=\d) | ' (?! (?: s|m|d|re|ll|ve|t ) (?!\w) ) ) \w+ )*
  | .
""", re.VERBOSE | re.DOTALL)
SPLIT = {("can", "not"), ("gon", "na"), ("wan", "na"), ("got", "ta"), ("gim", "me"), ("lem", "me")}
BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}
WRITTEN_LAMBADA = BRACKETS | {"``": '"', "''": '"', "`": "'"}
MEANT_LAMBADA = {"open": "``", "close": "''", "single": "`"}
BRACKETED = {sign: word for word, sign in BRACKETS.items()}
BEHIND_LAMBADA = frozenset(", . ; : ! ? % ... ?! !? '' ' n't 's 'm 'd 're 'll 've -rrb- -rsb- -rcb-".split())
BEFORE_LAMBADA = frozenset("`` ` $ # -lrb- -lsb- -lcb-".split())


def _joins_lambada(words: Sequence[str]) -> list[bool]:
    return [k > 0 and (words[k] in BEHIND_LAMBADA or words[k - 1] in BEFORE_LAMBADA
                       or (words[k - 1], words[k]) in SPLIT) for k in range(len(words))]


def _write_lambada(words: Sequence[str]) -> str:
    return "".join(WRITTEN_LAMBADA.get(word, word) for word in words)


@lru_cache(2**16)
def _read_lambada(chunk: str) -> tuple[str, ...]:
    """Split as by the Penn Treebank tokenizer."""
    return tuple(MEANT_LAMBADA.get(found.lastgroup) or BRACKETED.get(found[0], found[0])
                 for found in LAMBADA.finditer(chunk)) or ("",)


_STYLES = {"wikitext": Detokeniser("wikitext", _joins_wikitext, _write_wikitext, _read_wikitext, edges=True),
           "lambada": Detokeniser("lambada", _joins_lambada, _write_lambada, _read_lambada)}
