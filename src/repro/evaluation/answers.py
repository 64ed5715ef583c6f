"""Scoring short answers: exact match and F1 over words, and the span that a reader's logits choose in several windows.

The rules are those of HotpotQA (Yang et al. 2018), SQuAD (Rajpurkar et al. 2016) and TriviaQA (Joshi et al. 2017).
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from repro.errors import ReproError, check_text, check_whole, is_series, unknown

if TYPE_CHECKING:
    from torch import Tensor

RULES = ("hotpotqa", "squad", "triviaqa")
WHOLE = ("yes", "no", "noanswer")  # HotpotQA: either right or wrong, without partial credit
LONGEST = 30  # tokens of an answer
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TO_BLANKS = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))


def normalise_answer(text: str, rules: str = "hotpotqa") -> str:
    """The answer in lower case, without punctuation and the articles a, an and the, with single spaces between words,
    as in the papers' scripts.

    rules: "hotpotqa" and "squad" delete punctuation; "triviaqa" replaces it, and the quotes ‘ ’ ´ `, with blanks.
    Raises ReproError for other rules, and if the answer is not a string.

    >>> normalise_answer("The  Eiffel Tower!"), normalise_answer("Jean-Luc", "triviaqa")
    ('eiffel tower', 'jean luc')
    """
    if not isinstance(rules, str) or rules not in RULES:
        raise unknown("rules of answers", rules, RULES)
    plain = check_text(text, "the answer").lower().translate(_TO_BLANKS if rules == "triviaqa" else _PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())


def answer_scores(prediction: str, answers: str | Sequence[str], rules: str = "hotpotqa") -> tuple[float, float]:
    """(exact match, F1) of a prediction, from 0 to 1. With several answers, each score uses its own best answer.

    F1 compares the bags of words that `normalise_answer` leaves. "hotpotqa": if the prediction or the answer is yes, no
    or noanswer, F1 is 0 unless both are equal; "squad" and "triviaqa" have no such words. As in the papers' scripts, an
    answer that normalizes to nothing (an article alone) can match exactly but has an F1 of 0.
    Raises ReproError for other rules, a prediction that is not a string, and a missing answer.

    >>> exact, f1 = answer_scores("the Eiffel Tower in Paris", ["Eiffel Tower"])
    >>> exact, round(f1, 3)
    (0.0, 0.667)
    """
    if not isinstance(prediction, str):
        raise ReproError(f"prediction is {prediction!r}; give a text, which may be empty.")
    answers = list(answers) if is_series(answers) else [answers]
    if not answers or not all(isinstance(one, str) and one.strip() for one in answers):
        raise ReproError(f"answers are {answers!r}; give at least one that is a text and not empty.")
    answer = normalise_answer(prediction, rules)
    wanted = [normalise_answer(one, rules) for one in answers]
    return max(float(answer == one) for one in wanted), max(_f1(*overlap(answer, one, rules)) for one in wanted)


def overlap(answer: str, wanted: str, rules: str) -> tuple[int, int, int]:
    """The words that two normalized answers have in common, and the words of each."""
    told, right = answer.split(), wanted.split()
    whole = rules == "hotpotqa" and answer != wanted and (answer in WHOLE or wanted in WHOLE)
    return 0 if whole else (Counter(told) & Counter(right)).total(), len(told), len(right)


def _f1(common: int, told: int, right: int) -> float:
    return 2 * common / (told + right) if common else 0.0


def harmonic(precision: float, recall: float) -> float:
    """F1: the harmonic mean of precision and recall; 0 if both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def best_spans(start_logits: "Tensor", end_logits: "Tensor", text: "Tensor",
               longest: int = LONGEST) -> list[tuple[int, int, int]]:
    """For each question, the window and the first and last token of the span with the highest sum of two logits.

    start_logits, end_logits (B, W, T); text (B, W, T): True for tokens of the text, False for the question and padding.
    A span is completely in the text of one window and has at most `longest` tokens; the first of equal spans wins.
    Raises ReproError for a question without text, NaN logits, and shapes that differ.
    """
    import torch

    parts = {"start_logits": start_logits, "end_logits": end_logits, "text": text}
    if not all(isinstance(part, torch.Tensor) for part in parts.values()) or text.dtype != torch.bool or not (
            start_logits.shape == end_logits.shape == text.shape) or text.ndim != 3:
        shapes = ", ".join(f"{name} {tuple(getattr(part, 'shape', ()))}" for name, part in parts.items())
        raise ReproError(f"got {shapes}; all must be tensors of one shape (B, W, T), and text a bool tensor.")
    check_whole(longest, "longest", of="tokens")
    if (start_logits.isnan() | end_logits.isnan())[text].any():
        raise ReproError("some logits of the text are NaN; check the model's weights.")
    if not text.flatten(1).any(1).all():
        empty = int((~text.flatten(1).any(1)).nonzero()[0])
        raise ReproError(f"question {empty} of the batch has no text tokens to answer from.")
    length = text.shape[-1]
    least = torch.finfo(torch.float32).min / 4  # above the -inf of what is no text, also as a sum of two
    start, end = (x.float().clamp(min=least).masked_fill(~text, -torch.inf) for x in (start_logits, end_logits))
    within = torch.ones(length, length, dtype=torch.bool, device=text.device).triu().tril(longest - 1)
    others = (~text).cumsum(-1)  # tokens before this one that are not text
    found = []
    for one, other, gaps in zip(start, end, others, strict=True):  # all pairs of tokens of a question's windows
        allowed = within & (gaps[:, :, None] == gaps[:, None, :])
        pairs = (one[:, :, None] + other[:, None, :]).masked_fill(~allowed, -torch.inf)
        window, pair = divmod(int(pairs.flatten().argmax()), length * length)
        found.append((window, *divmod(pair, length)))
    return found
