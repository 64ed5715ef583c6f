"""Classification by the first token: reviews of films, partisan news, and generated documents (section 6.3)."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from repro.papers.longformer2020.tasks.frame import Task
from repro.papers.longformer2020.tasks.reader import Example, Words

if TYPE_CHECKING:
    from torch import Tensor, nn

FOLDS = 5  # of Hyperpartisan


@dataclass(frozen=True)
class Classification(Task):
    """Texts with one of two labels. The first token attends globally.

    folds: whether the seed chooses one of five parts as the test set; five seeds then test every example once.
    """

    folds: bool = False
    first_piece: bool = True

    def rows(self, config: Any) -> dict[str, list]:
        from repro.data import corpus

        source = corpus(config.corpus)
        found = {split: list(source.examples(split)) for split in source.splits}
        if self.folds:
            found = fold([row for rows in found.values() for row in rows], config.seed)
        found["train"] = unseen(found["train"], found["test"])
        draw = random.Random(0)
        train = found["train"]
        if "validation" not in found:
            draw.shuffle(train)
            found["validation"], train = train[:config.held_out], train[config.held_out:]
        if config.n_train is not None:
            train = draw.sample(train, min(config.n_train, len(train)))
        return {"train": train, "validation": found["validation"], "test": found["test"]}

    def example(self, row: Any, words: Words) -> Example:
        return Example(row, [words.cls], words.encode(row.text), global_prefix=[0], targets=row.label)

    def head(self, config: Any, width: int) -> "nn.Module":
        from repro.models.task_heads import LabelHead

        return LabelHead(width, 2)

    def targets(self, examples: Sequence[Example]) -> "dict[str, Tensor]":
        import torch

        return {"labels": torch.tensor([one.targets for one in examples])}

    def predictions(self, outputs: "Tensor", examples: Sequence[Example]) -> list[int]:
        return outputs.argmax(-1).tolist()

    def score(self, rows: Sequence[Any], predictions: Sequence[int]) -> tuple[dict[str, float], dict[str, list]]:
        from repro.evaluation.classification import METRICS, score

        labels = [row.label for row in rows]
        return {name: 100 * score(labels, predictions, name) for name in METRICS}, {
            "id": [row.id for row in rows], "label": labels, "prediction": list(predictions)}

    def values(self, records: Sequence[Any], chosen: np.ndarray | None = None) -> np.ndarray:
        """(seeds, documents) in %, whose mean is the accuracy, or the F1, of the documents of all seeds together.

        chosen (seeds, documents): True for the documents that count; None: all of them. The mean is 0 if there is
        nothing to count.
        """
        from repro.evaluation.bootstrap import linearised

        label, predicted = (np.array([record.documents[self.split][name] for record in records])
                            for name in ("label", "prediction"))
        right, counted = ((label == predicted, np.ones_like(label)) if self.metric == "accuracy" else
                          (2 * (label & predicted), label + predicted))
        right, counted = (one * (1 if chosen is None else chosen) for one in (right, counted))
        if not counted.any():  # as in `repro.evaluation.classification.score`
            return np.zeros(label.shape)
        return 100 * linearised(right.ravel(), counted.ravel()).reshape(label.shape)

    def known(self, config: Any, rows: dict[str, list]) -> dict[str, float]:
        """For generated texts, the best possible accuracy with the whole text, and with its beginning."""
        from repro.data import corpus

        if not (made := corpus(config.corpus).generator):
            return {}
        whole, short = (made.best_hits(rows["test"], window) for window in (None, made.far))
        return {"best": 100 * sum(whole) / len(whole), "best_short": 100 * sum(short) / len(short)}


def fold(rows: Sequence[Any], seed: int) -> dict[str, list]:
    """The rows in an order drawn once: part `seed` of five is the test set, the others are for training."""
    shuffled = sorted(rows, key=lambda row: row.id)
    random.Random(0).shuffle(shuffled)
    test = shuffled[seed % FOLDS::FOLDS]
    names = {row.id for row in test}
    return {"train": [row for row in shuffled if row.id not in names], "test": test}


def unseen(rows: Iterable[Any], tested: Iterable[Any]) -> list:
    """The rows whose text is not that of a tested one, spaces aside: some reviews and articles occur twice."""
    known = {" ".join(row.text.split()) for row in tested}
    return [row for row in rows if " ".join(row.text.split()) not in known]


# At smoke, most of five words in the second half of a text of 128 decide its label.
SMOKE = {"corpus": "synthetic-reviews", "max_positions": 192, "window": 16, "cut": 48, "epochs": 1, "batch_size": 8,
         "learning_rate": 5e-3, "optimizer": "muon", "best": "accuracy"}
PRETRAINED = {"precision": "bf16"}
# Appendix D: warmup takes a tenth of the steps.
PUBLISHED = PRETRAINED | {"window": 512, "epochs": 15, "batch_size": 32, "learning_rate": 3e-5, "recompute": True}
IMDB = Classification("imdb", {
    "smoke": SMOKE,
    "pretrained": PRETRAINED | {"corpus": "imdb-subset", "n_train": 3_000, "held_out": 500, "epochs": 1,
                                "best": "accuracy"},
    "paper": PUBLISHED | {"corpus": "imdb", "held_out": 2_500, "best": "accuracy"}}, "IMDB", "accuracy")
HYPERPARTISAN = Classification("hyperpartisan", {
    # On 220 articles and 150 others of the first fold, the short model had its lowest loss after two passes.
    "pretrained": PRETRAINED | {"corpus": "hyperpartisan", "held_out": 64, "epochs": 2, "batch_size": 4, "best": "f1"},
    "paper": PUBLISHED | {"corpus": "hyperpartisan", "held_out": 64, "best": "f1"}},
    "Hyperpartisan", "f1", folds=True)
