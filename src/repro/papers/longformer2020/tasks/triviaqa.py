"""Questions with an answer somewhere in a long document: every match of a right answer counts (appendix D, TriviaQA).

TriviaQA cannot be had here. In its place, questions of HotpotQA are read under its rules: the ten paragraphs are one
document, and nothing says which match of the answer is meant.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from repro.papers.longformer2020.tasks.reader import Example, Words
from repro.papers.longformer2020.tasks.spans import (
    PRETRAINED,
    SMOKE,
    Answers,
    Laid,
    SpanTask,
    best_answers,
    set_apart,
    span_targets,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


def matches(document: str, answers: Sequence[str]) -> list[tuple[int, int]]:
    """Where an answer occurs in the document as words of its own, in any case: (start, stop) in characters, in order.

    >>> matches("Paris, the city; not Parisian. PARIS", ["paris", "city"])
    [(0, 5), (11, 15), (31, 36)]
    """
    words = "|".join(map(re.escape, sorted(filter(None, map(str.strip, answers)), key=len, reverse=True)))
    return [match.span() for match in re.finditer(rf"(?i)(?<!\w)(?:{words})(?!\w)", document)] if words else []


def document_of(row: Any) -> str:
    """The paragraphs of a question as one text, each below its title."""
    return "\n".join(row.texts[1:])


@dataclass(frozen=True)
class TriviaQA(SpanTask):
    """A question, then its document. The question attends globally."""

    def rows(self, config: Any) -> dict[str, list]:
        """Questions whose answer is yes or no are left out, since none cuts it from a text; so are training questions
        without a match."""
        from repro.data import corpus

        source = corpus(config.corpus)
        found = {split: [row for row in source.examples(split) if row.answer_type == "span"]
                 for split in ("train", "validation")}
        found["train"] = [row for row in found["train"] if matches(document_of(row), row.answers)]
        return set_apart(config, found["train"]) | {"test": found["validation"]}

    def example(self, row: Any, words: Words) -> Example:
        laid, document = Laid(words), document_of(row)
        laid.add(document, 0)
        prefix = [words.cls, *words.encode(row.question), words.sep]
        spans = laid.spans((0, *place) for place in matches(document, row.answers))
        return Example(row, prefix, laid.ids, range(len(prefix)), targets=Answers(spans, laid.places, [document]))

    def head(self, config: Any, width: int) -> "nn.Module":
        from repro.models.task_heads import SpanHead

        return SpanHead(width)

    def targets(self, examples: Sequence[Example]) -> "dict[str, Tensor]":
        return span_targets(examples)

    def predictions(self, outputs: "Mapping[str, Tensor]", examples: Sequence[Example]) -> list[str]:
        return best_answers(outputs, examples)

    def score(self, rows: Sequence[Any], predictions: Sequence[str]) -> tuple[dict[str, float], dict[str, list]]:
        from repro.evaluation import answer_scores

        pairs = [answer_scores(told, row.answers, "triviaqa") for row, told in zip(rows, predictions, strict=True)]
        exact, f1 = ([100 * one for one in ones] for ones in zip(*pairs, strict=True))
        return {"f1": sum(f1) / len(f1), "exact_match": sum(exact) / len(exact)}, {
            "id": [row.id for row in rows], "f1": f1, "exact_match": exact}


TRIVIAQA = TriviaQA("triviaqa", {"smoke": SMOKE, "pretrained": PRETRAINED}, "TriviaQA", "f1")
