"""Questions with an answer somewhere in a long document: every match of a right answer counts (appendix D, TriviaQA).

TriviaQA itself is read at `paper` only. There a training question is asked about each of its documents separately, as
in the paper. A test question is asked about all of them, joined and then cut at 4,096 tokens. A document has about
3,500 tokens, so this is little more than the first one, while the paper picks the best answer of several documents. So
our test scores are not comparable with the paper's. At other scales questions of HotpotQA are read under TriviaQA's
rules: the ten paragraphs are one document, and nothing says which match of the answer is meant.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from repro.papers.longformer2020.tasks.reader import Example, Words
from repro.papers.longformer2020.tasks.spans import (
    PRETRAINED,
    PUBLISHED,
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


def has_match(row: Any) -> bool:
    """Whether an answer occurs in the document."""
    return bool(matches(document_of(row), row.answers))


def by_document(row: Any) -> list:
    """A question for each of its documents, about that one alone; the id has the document's number at its end."""
    return [replace(row, id=f"{row.id}/{number}", paragraphs=(one,)) for number, one in enumerate(row.paragraphs)]


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
        known = set_apart(config, filter(has_match, found["train"]))
        if config.corpus == "triviaqa":
            known = {split: [one for row in some for one in by_document(row) if has_match(one)]
                     for split, some in known.items()}
        return known | {"test": found["validation"]}

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


TRIVIAQA = TriviaQA("triviaqa", {
    "smoke": SMOKE, "pretrained": PRETRAINED,
    "paper": PUBLISHED | {"corpus": "triviaqa", "learning_rate": 3e-5, "warmup_share": 0.058}}, "TriviaQA", "f1")
