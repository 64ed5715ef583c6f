"""Coreference, coarse to fine, on the states of the encoder (section 6.2): LitBank, OntoNotes and generated stories."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from repro.papers.longformer2020.tasks.frame import Task
from repro.papers.longformer2020.tasks.reader import Example, Words

if TYPE_CHECKING:
    from torch import Tensor, nn

    from repro.models.coreference import CoreferenceOutput

SCORES = ("muc", "b_cubed", "ceaf_e")


class Resolved(NamedTuple):
    """The prediction for a document: clusters of at least two mentions (start, stop), and mentions in no cluster."""

    clusters: list
    singletons: list


@dataclass(frozen=True)
class Clusters(Task):
    """Documents whose mentions are to be clustered. No token is global."""

    piece: int | None = 384
    cost: float = 3.5  # measured with MiniLM on LitBank: pairs of mentions take more time than the encoder

    def rows(self, config: Any) -> dict[str, list]:
        from repro.data import corpus

        source = corpus(config.corpus)
        found = {split: list(source.examples(split)) for split in ("train", "validation", "test")}
        return found | {"train": found["train"][:config.n_train]}

    def example(self, row: Any, words: Words) -> Example:
        """Each word in tokens of its own. Targets are the tokens start:stop of each word."""
        ids, places = [], []
        for number, word in enumerate(row.tokens):
            pieces = words.encode(word if not number else f" {word}") or [words.unknown]
            places.append((len(ids), len(ids) + len(pieces)))
            ids += pieces
        return Example(row, [words.cls], ids, targets=places)

    def head(self, config: Any, width: int) -> "nn.Module":
        from repro.data import corpus
        from repro.models import Coreference
        from repro.models.task_heads import ClusterHead

        genres = len(corpus(config.corpus).labels)  # OntoNotes' genres, whose words have speakers
        return ClusterHead(Coreference(width, config.max_words, config.kept, hidden=config.head_hidden,
                                       dropout=config.head_dropout, genres=genres, speakers=genres > 0))

    def targets(self, examples: Sequence[Example]) -> "dict[str, Tensor]":
        """Words and mentions that were read, padded with zeros: `words` (B, W, 2) as tokens start:stop, `sentences`
        (B, W), and `mentions` (B, M, 3) as words start:stop with a cluster's number. Where there
        are speakers, also `speakers` (B, W) and `genre` (B,)."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        found: dict[str, list[Tensor]] = {}
        for one in examples:
            words = [place for place in one.targets if place[1] <= len(one.context)]
            parts = {"words": torch.tensor(words, dtype=torch.int64).reshape(-1, 2), "mentions": torch.tensor([
                (start, stop, number) for number, cluster in enumerate(one.row.clusters)
                for start, stop in cluster if stop <= len(words)], dtype=torch.int64).reshape(-1, 3)}
            parts["sentences"] = torch.tensor([k for k, each in enumerate(one.row.sentences) for _ in each])
            if one.row.speakers:
                names = list(dict.fromkeys(one.row.speakers))
                parts["speakers"] = torch.tensor([names.index(name) for name in one.row.speakers])
                parts["genre"] = torch.tensor(one.row.genre)
            for name, values in parts.items():
                found.setdefault(name, []).append(values)
        return {name: torch.stack(values) if values[0].ndim == 0 else pad_sequence(values, batch_first=True)
                for name, values in found.items()}

    def predictions(self, outputs: "list[CoreferenceOutput]", examples: Sequence[Example]) -> list[Resolved]:
        return [Resolved(one.clusters, one.singletons) for one in outputs]

    def score(self, rows: Sequence[Any], predictions: Sequence[Resolved]) -> tuple[dict[str, float], dict[str, list]]:
        """The average F1 without and with singletons, in %; `documents` has the counts behind the first."""
        from repro.evaluation import coreference_scores

        found = [one.clusters for one in predictions]
        gold = [linked(row) for row in rows]
        every = [[*one.clusters, *([mention] for mention in one.singletons)] for one in predictions]
        scores = coreference_scores(gold, found)
        metrics = {"average_f1": scores.average_f1, **{f"{name}_f1": getattr(scores, name).f1 for name in SCORES},
                   "average_f1_with_singletons": coreference_scores([row.clusters for row in rows], every).average_f1,
                   "mentions_found": _share_found(rows, every)}
        each = [coreference_scores([ours], [theirs]) for ours, theirs in zip(gold, found, strict=True)]
        counts = {name: [[*getattr(one, name).found, *getattr(one, name).right] for one in each] for name in SCORES}
        return {name: 100 * value for name, value in metrics.items()}, {
            "id": [row.id for row in rows], "average_f1": [100 * one.average_f1 for one in each], **counts,
            "clusters": found}

    def values(self, records: Sequence[Any]) -> np.ndarray:
        """(seeds, documents) in %, whose mean is the average F1."""
        return np.array([100 * average_f1_by_document(record.documents[self.split]) for record in records])

    def known(self, config: Any, rows: dict[str, list]) -> dict[str, float]:
        """For generated stories, the best average F1 with the story, and that of the best fixed answer.

        The second, `best_short`, is the best of a reader in pieces that does not pass the topic on through spans. The
        short model can: refinement mixes the state of a span with those of its likely antecedents, also from other
        pieces, as in Joshi et al. (2019), who read separate pieces too. So it may score higher.
        """
        from repro.data import corpus
        from repro.evaluation import coreference_scores

        if not (made := corpus(config.corpus).generator):
            return {}
        gold, people = [linked(row) for row in rows["test"]], [made.people(row) for row in rows["test"]]
        fixed = (coreference_scores(gold, [[[*(one[k] for k in some), one[-1]]] for one in people]).average_f1
                 for some in _some(range(len(people[0]) - 1)))
        return {"best": 100.0, "best_short": 100 * max(fixed)}


def average_f1_by_document(counts: Mapping[str, Sequence[Sequence[float]]]) -> np.ndarray:
    """One number for each document, with mean average F1; its spread is that of the F1 when other documents are drawn
    (first-order Taylor series).

    counts: by score, for each document what was found, of how much, what was right, of how much.
    """
    from repro.evaluation.bootstrap import linearised

    each = []
    for name in SCORES:
        found, wanted, right, predicted = np.array(counts[name], dtype=float).T
        if not found.sum() or not right.sum():
            each.append(np.zeros(len(found)))
            continue
        recall, precision = linearised(found, wanted), linearised(right, predicted)
        r, p = recall.mean(), precision.mean()
        f1 = 2 * p * r / (p + r)
        each.append(f1 + f1**2 / 2 * ((recall - r) / r**2 + (precision - p) / p**2))
    return np.mean(each, 0)


def linked(row: Any) -> list:
    """The clusters of a document with at least two mentions."""
    return [cluster for cluster in row.clusters if len(cluster) > 1]


def _share_found(rows: Sequence[Any], clusters: Sequence[Sequence]) -> float:
    """The share of all right mentions, singletons too, that are among the predicted ones."""
    gold, found = ([{mention for cluster in one for mention in cluster} for one in every]
                   for every in ([row.clusters for row in rows], clusters))
    return sum(len(one & other) for one, other in zip(gold, found, strict=True)) / max(1, sum(map(len, gold)))


def _some(numbers: range) -> Iterator[tuple[int, ...]]:
    """Every choice of at least one of the numbers."""
    return chain.from_iterable(combinations(numbers, n) for n in range(1, len(numbers) + 1))


COREFERENCE = Clusters("coreference", {
    # A story in the first piece decides who is meant by a word in the next. Every word is kept as a mention: with one
    # link in a text, pruning would drop both ends of it before they are learned.
    "smoke": {"corpus": "synthetic-coreference", "max_positions": 256, "window": 256, "cut": 60, "epochs": 1,
              "batch_size": 8, "learning_rate": 5e-3, "head_learning_rate": 3e-3, "optimizer": "muon",
              "best": "average_f1", "max_words": 1, "kept": 1.0, "head_hidden": 32, "head_dropout": 0.0},
    "pretrained": {"corpus": "litbank", "epochs": 10, "batch_size": 1, "learning_rate": 5e-5,
                   "head_learning_rate": 5e-4, "precision": "bf16", "best": "average_f1"},
    "paper": {"corpus": "ontonotes", "epochs": 20, "batch_size": 1, "window": 512, "learning_rate": 1e-5,
              "head_learning_rate": 1e-4, "precision": "bf16", "recompute": True, "best": "average_f1",
              "head_hidden": 3_000}}, "OntoNotes", "average_f1")
