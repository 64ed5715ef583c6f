"""Questions with candidates, in the format of WikiHop (section 6.1 and appendix D.1).

The question and all candidates stand before the context: [q] question [/q] [ent] candidate [/ent] ... </s> </s>
context </s> context </s>, with the encoder's own separators. Every piece of a text that is read in pieces begins so.
A linear layer gives each candidate a logit, which is averaged over pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from repro.data.clozes import BLANK
from repro.errors import ReproError
from repro.papers.longformer2020.tasks.frame import Task
from repro.papers.longformer2020.tasks.reader import Example, Words

if TYPE_CHECKING:
    from torch import Tensor, nn

SPECIAL = "[q]", "[/q]", "[ent]", "[/ent]"


@dataclass(frozen=True)
class Candidates(Task):
    """Questions with candidates.

    state: the token that a candidate's logit is computed from, its "ent" as in the paper or the first token of its own
    "word". global_tokens: whether question and candidates attend globally.
    """

    printed: str = "WikiHop"
    metric: str = "accuracy"
    unit: str = "question"
    special: Sequence[str] = SPECIAL
    state: str = "ent"
    global_tokens: bool = True

    def rows(self, config: Any) -> dict[str, list]:
        """The training questions and those of the test split. For a corpus without one, its validation questions."""
        from repro.data import corpus

        source = corpus(config.corpus)
        test = "test" if "test" in source.splits else "validation"
        train = list(source.examples("train"))
        return {"train": train[:config.n_train], "validation": [], "test": list(source.examples(test))}

    def example(self, row: Any, words: Words) -> Example:
        """Raises ReproError for a question without candidates."""
        if not row.candidates:
            raise ReproError(f"question {row.id} has no candidates; give it at least the right one.")
        prefix, places = [words.cls, words["[q]"], *with_blank(row.question, words), words["[/q]"]], []
        for candidate in row.candidates:
            places.append(len(prefix) + (self.state == "word"))
            prefix += [words["[ent]"], *words.encode(candidate), words["[/ent]"]]
        context = [token for text in row.paragraphs for token in [words.sep, *words.encode(text)]][1:]
        every = range(len(prefix)) if self.global_tokens else ()
        return Example(row, [*prefix, words.sep, words.sep], context, global_prefix=every,
                       targets=(places, row.answer))

    def head(self, config: Any, width: int) -> "nn.Module":
        from repro.models.task_heads import CandidateHead

        return CandidateHead(width)

    def targets(self, examples: Sequence[Example]) -> "dict[str, Tensor]":
        import torch
        from torch.nn.utils.rnn import pad_sequence

        return {"candidates": pad_sequence([torch.tensor(one.targets[0]) for one in examples], True, -1),
                "answers": torch.tensor([one.targets[1] for one in examples])}

    def predictions(self, outputs: "Tensor", examples: Sequence[Example]) -> list[int]:
        return outputs.argmax(-1).tolist()

    def score(self, rows: Sequence[Any], predictions: Sequence[int]) -> tuple[dict[str, float], dict[str, list]]:
        right = [100 * (row.answer == found) for row, found in zip(rows, predictions, strict=True)]
        return {"accuracy": sum(right) / len(right)}, {
            "id": [row.id for row in rows], "prediction": list(predictions), "accuracy": right}

    def known(self, config: Any, rows: dict[str, list]) -> dict[str, float]:
        """The accuracy of guesses: of any candidate; of the most frequent and the latest name, for names of books. For
        generated questions also the best possible accuracy, with and without the context."""
        from repro.data import corpus
        from repro.data.book_names import latest, most_frequent

        test = rows["test"]
        found = {"chance": sum(1 / len(row.candidates) for row in test)}
        if made := corpus(config.corpus).generator:
            found |= {"best": sum(made.best_score(row) for row in test),
                      "best_without_context": sum(made.best_score(row, 0) for row in test)}
        if config.corpus == "book-names":
            for name, guess in (("most_frequent", most_frequent), ("latest", latest)):
                found[name] = sum((row.answer in (some := guess(row))) / len(some) for row in test)
        return {name: 100 * value / len(test) for name, value in found.items()}


def with_blank(question: str, words: Words) -> list[int]:
    """The ids of a question; where a word is left out stands the encoder's own mask. Raises ReproError if a blank needs
    one that the tokenizer lacks."""
    first, *others = question.split(BLANK)
    return [*words.encode(first), *(token for part in others for token in [words.mask, *words.encode(part)])]
