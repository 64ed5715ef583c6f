"""Scoring questions that need several paragraphs: HotpotQA's joint scores (Yang et al. 2018, section 5), and the choice
of evidence from a reader's logits (Beltagy et al. 2020, appendix D)."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from repro.errors import ReproError, check_whole, is_series, short
from repro.evaluation.answers import answer_scores, harmonic, normalise_answer, overlap
from repro.evaluation.inputs import numbers

if TYPE_CHECKING:
    from torch import Tensor


class HotpotScores(NamedTuple):
    """Exact match and F1 of the answer, of the supporting facts, and of both together; each from 0 to 1."""

    em: float
    f1: float
    sp_em: float
    sp_f1: float
    joint_em: float
    joint_f1: float


def hotpotqa_scores(answer: str, facts: Iterable[tuple[str, int]], gold_answer: str,
                    gold_facts: Iterable[tuple[str, int]]) -> HotpotScores:
    """The six scores of one question by the rules of HotpotQA's script, whose results are means over questions.

    facts, gold_facts: (title of the paragraph, number of the sentence in it); repeated facts count once. Joint
    precision is the precision of the answer times that of the facts, and joint recall the same for recall.
    Raises ReproError for an answer that is not a string, an empty gold answer, and facts that are not such pairs.

    >>> scores = hotpotqa_scores("Paris", [("France", 0), ("Rome", 2)], "Paris", [("France", 0)])
    >>> scores.em, round(scores.joint_f1, 3)
    (1.0, 0.667)
    """
    if not isinstance(gold_answer, str):
        raise ReproError(f"gold_answer is {short(gold_answer, 60)}; give a text.")
    em, f1 = answer_scores(answer, gold_answer, "hotpotqa")
    told, right = _facts(facts, "facts"), _facts(gold_facts, "gold_facts")
    sp_em = float(told == right)
    precision, recall = _shares(*overlap(normalise_answer(answer), normalise_answer(gold_answer), "hotpotqa"))
    sp_precision, sp_recall = _shares(len(told & right), len(told), len(right))
    return HotpotScores(em, f1, sp_em, harmonic(sp_precision, sp_recall), em * sp_em,
                        harmonic(precision * sp_precision, recall * sp_recall))


def two_paragraph_evidence(sentence_logits: "Sequence[float] | Tensor",
                           paragraph_of: "Sequence[int] | Tensor") -> list[int]:
    """The sentences chosen as evidence, in order: every question of HotpotQA has its evidence in two paragraphs.

    From each of the two paragraphs whose best sentences score highest, it chooses the best sentence and all others with
    a logit above 0. The first of equal sentences wins.
    sentence_logits (S,); paragraph_of (S,): the number of the paragraph of each sentence.
    Raises ReproError for sentences of fewer than two paragraphs, NaN logits, and lists of different lengths.

    >>> two_paragraph_evidence([-1.0, 3.0, 0.5, -2.0, -0.1], paragraph_of=[0, 1, 1, 2, 2])
    [1, 2, 4]
    """
    logits, where = (np.asarray(one.detach().cpu().double()) if hasattr(one, "detach") else one
                     for one in (sentence_logits, paragraph_of))
    logits = numbers(logits, "sentence_logits", finite=False)
    where = numbers(where, "paragraph_of")
    if len(logits) != len(where) or (where % 1).any():
        raise ReproError(f"there are {len(logits)} sentence_logits and {len(where)} numbers in paragraph_of; give one "
                         "whole number for each sentence.")
    best, seen = [], set()
    for sentence in np.argsort(-logits, kind="stable"):
        if where[sentence] not in seen:
            seen.add(where[sentence])
            best.append(sentence)
    if len(best) < 2:
        raise ReproError(f"the sentences belong to {len(best) or 'no'} paragraph{'s' * (not best)}; evidence comes from"
                         " two, so give the sentences of at least two paragraphs.")
    kept = np.isin(where, where[best[:2]]) & (logits > 0)
    kept[best[:2]] = True
    return np.flatnonzero(kept).tolist()


def kept_paragraphs(paragraph_logits: "Sequence[float] | Tensor", most: int = 5, above: float = -3.0) -> list[int]:
    """The paragraphs that the first of two stages keeps for the second, in reading order.

    It keeps the `most` paragraphs with the highest logits, if these exceed `above`, and always the best two: a question
    of HotpotQA has its evidence in two paragraphs. The first of equals wins. The defaults are those of appendix D.
    paragraph_logits (P,). Raises ReproError for fewer than two paragraphs, NaN logits, and `most` below 2.

    >>> kept_paragraphs([-4.0, 2.0, -2.9, 5.0])
    [1, 2, 3]
    """
    given = paragraph_logits
    logits = numbers(given.detach().cpu().double().numpy() if hasattr(given, "detach") else given, "paragraph_logits",
                     finite=False)
    check_whole(most, "most", 2, of="paragraphs")
    if len(logits) < 2:
        raise ReproError(f"there {'is one paragraph' if len(logits) else 'are no paragraphs'}; evidence comes from "
                         "two, so give the logits of at least two.")
    order = np.argsort(-logits, kind="stable")
    n = min(most, max(2, int((logits > above).sum())))
    return sorted(order[:n].tolist())


def _shares(common: int, told: int, right: int) -> tuple[float, float]:
    """Precision and recall."""
    return (common / told, common / right) if common else (0.0, 0.0)


def _facts(facts: object, name: str) -> set[tuple[str, int]]:
    if not is_series(facts):
        raise ReproError(f"{name} is {short(facts, 60)}; give a list of pairs (title, number of the sentence).")
    found = list(facts)
    for one in found:
        if not isinstance(one, Sequence) or len(one) != 2 or not isinstance(one[0], str) or (
                not isinstance(one[1], Integral) or isinstance(one[1], bool)):
            raise ReproError(f"{name} holds {short(one, 60)}; give pairs (title, number of the sentence).")
    return {(title, int(number)) for title, number in found}
