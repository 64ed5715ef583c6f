"""From an article to a model's input: extracted, tokenized, cut at L (Liu et al. 2018, sections 4.1 and 4.2)."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from repro.data.extraction import paragraphs, ranked
from repro.errors import ReproError

if TYPE_CHECKING:
    from repro.data.examples import Summary


class Read(NamedTuple):
    """An article as a model reads it."""

    source: Any  # token ids: the title and the ranked paragraphs, the first L of them
    target: Any  # token ids of the summary, without its end
    cut: bool  # whether there was more than L
    ended: bool = True  # whether the summary is complete, so that its end must be predicted


def extracted(row: "Summary", method: str) -> list[str]:
    """The title, then the paragraphs of an article in the order of an extraction method."""
    passages = paragraphs(row.document)
    return [row.title, *(passages[k] for k in ranked(method, row.title, passages, row.summary))]


def read(rows: Iterable["Summary"], coder: Any, method: str, length: int, longest: int) -> list[Read]:
    """The first `length` tokens of each article and the first `longest` tokens of its summary.

    Raises ReproError if no article has that many tokens, because a longer input would change nothing.
    """
    found = [_read(extracted(row, method), row.summary, coder.encode, length, longest) for row in rows]
    if found and not any(len(one.source) == length for one in found):
        most = max(len(one.source) for one in found)
        raise ReproError(f"length is {length} tokens, but the longest article has only {most}; choose at most that.")
    return found


def _read(texts: list[str], summary: str, encode: Callable, length: int, longest: int) -> Read:
    """Tokenize only as much text as can be read: every word has at least one token."""
    taken, n = [], 0
    for text in texts:
        taken.append(text)
        n += len(text.split())
        if n > length:
            break
    ids, target = encode("\n".join(taken)), encode(summary)
    return Read(ids[:length], target[:longest], len(ids) > length or len(taken) < len(texts), len(target) <= longest)
