"""Scoring coreference: MUC, B-cubed and CEAF-e, as the CoNLL 2012 scorer computes them (Pradhan et al. 2014).

A document is a list of clusters, a cluster a list of mentions, and a mention a pair (start, end).
"""

from collections import Counter
from collections.abc import Sequence
from numbers import Integral
from typing import NamedTuple

from repro.errors import ReproError, is_series, short
from repro.evaluation.answers import harmonic

Mention = tuple[int, int]


class Agreement(NamedTuple):
    """Recall and precision, each as (sum over documents, largest possible sum), and the resulting scores from 0 to 1.

    >>> Agreement((1, 2), (1, 4)).f1
    0.3333333333333333
    """

    found: tuple[float, float]
    right: tuple[float, float]

    @property
    def recall(self) -> float:
        return _share(*self.found)

    @property
    def precision(self) -> float:
        return _share(*self.right)

    @property
    def f1(self) -> float:
        return harmonic(self.precision, self.recall)


class CoreferenceScores(NamedTuple):
    """Three agreements between two partitions of mentions, each with `recall`, `precision` and `f1`."""

    muc: Agreement
    b_cubed: Agreement
    ceaf_e: Agreement

    @property
    def average_f1(self) -> float:
        """The mean of the three F1 scores, by which CoNLL 2012 ranks systems."""
        return sum(one.f1 for one in self) / 3


def coreference_scores(gold: Sequence[Sequence[Sequence[Mention]]],
                       predicted: Sequence[Sequence[Sequence[Mention]]]) -> CoreferenceScores:
    """MUC (Vilain et al. 1995), B-cubed (Bagga and Baldwin 1998) and CEAF-e (Luo 2005) of predicted clusters.

    gold, predicted: for each document its clusters, each a list of (start, end). Two mentions are the same if both
    numbers are. Counts are summed over documents before they are divided; 0 / 0 is 0. Clusters of one mention
    count in B-cubed and CEAF-e, never in MUC; remove them from both sides to ignore them.
    Raises ReproError for unequal numbers of documents, an empty cluster, and a mention that occurs twice in a document,
    is not a pair of whole numbers, or ends before it starts.

    >>> scores = coreference_scores([[[(0, 0), (2, 3), (7, 7)]]], [[[(0, 0), (2, 3)], [(7, 7), (9, 9)]]])
    >>> scores.muc.recall, round(scores.average_f1, 3)
    (0.5, 0.541)
    """
    gold, predicted = (_partitions(one, name) for one, name in ((gold, "gold"), (predicted, "predicted")))
    if len(gold) != len(predicted):
        raise ReproError(f"there are {len(gold)} gold documents and {len(predicted)} predicted ones; give as many "
                         "lists of clusters on both sides, an empty one for a document without clusters.")
    parts = {name: ([0, 0], [0, 0]) for name in CoreferenceScores._fields}
    for key, response in zip(gold, predicted, strict=True):
        aligned = _alignment(key, response)
        for side, (one, other) in enumerate(((key, response), (response, key))):
            for name, pair in (("muc", _links(one, other)), ("b_cubed", _mentions(one, other)),
                               ("ceaf_e", (aligned, len(one)))):
                for k, number in enumerate(pair):
                    parts[name][side][k] += number
    return CoreferenceScores(**{name: Agreement(tuple(found), tuple(right)) for name, (found, right) in parts.items()})


def _partitions(documents: object, name: str) -> list[list[list[Mention]]]:
    """The clusters of each document, checked."""
    return [_clusters(one, f"{name} document {number}") for number, one in enumerate(_listed(documents, name))]


def _clusters(document: object, name: str) -> list[list[Mention]]:
    cluster_of, found = {}, []
    for number, cluster in enumerate(_listed(document, name)):
        found.append([])
        for mention in _listed(cluster, f"cluster {number} of {name}"):
            mention = mention.tolist() if hasattr(mention, "tolist") else mention
            if not isinstance(mention, (tuple, list, Sequence)) or len(mention) != 2 or not all(
                    type(end) is int or isinstance(end, Integral) and not isinstance(end, bool) for end in mention):
                raise ReproError(f"a mention in cluster {number} of {name} is {short(mention, 60)}; give a pair (start,"
                                 " end) of whole numbers.")
            mention = int(mention[0]), int(mention[1])
            if mention[1] < mention[0]:
                raise ReproError(f"a mention in cluster {number} of {name} is {mention}; it must not end before it "
                                 "starts.")
            if mention in cluster_of:
                raise ReproError(f"the mention {mention} occurs twice in {name}, in clusters {cluster_of[mention]} and "
                                 f"{number}; keep one of them.")
            cluster_of[mention] = number
            found[-1].append(mention)
        if not found[-1]:
            raise ReproError(f"cluster {number} of {name} is empty; leave it out.")
    return found


def _listed(value: object, name: str) -> list:
    """`value` as a list. Raises ReproError for a single value and a text."""
    value = value.tolist() if hasattr(value, "tolist") else value  # numpy's and torch's arrays
    if not is_series(value):
        raise ReproError(f"{name} is {short(value, 60)}; give a list: of documents, each a list of clusters, each a "
                         "list of mentions (start, end).")
    return list(value)


def _overlaps(clusters: list[list[Mention]], others: list[list[Mention]]) -> list[Counter]:
    """For each cluster, how many of its mentions each of the others holds."""
    number_of = {mention: number for number, cluster in enumerate(others) for mention in cluster}
    return [Counter(number_of[mention] for mention in cluster if mention in number_of) for cluster in clusters]


def _links(clusters: list[list[Mention]], others: list[list[Mention]]) -> tuple[int, int]:
    """MUC: a cluster has one link fewer than mentions. Returns the links that the other side keeps, and all links."""
    kept = sum(seen.total() - len(seen) for seen in _overlaps(clusters, others))
    return kept, sum(len(cluster) - 1 for cluster in clusters)


def _mentions(clusters: list[list[Mention]], others: list[list[Mention]]) -> tuple[float, int]:
    """B-cubed: the share of a mention's cluster that the other side puts with it, summed over mentions."""
    shared = sum(sum(n * n for n in seen.values()) / len(cluster)
                 for cluster, seen in zip(clusters, _overlaps(clusters, others), strict=True))
    return shared, sum(map(len, clusters))


def _alignment(clusters: list[list[Mention]], others: list[list[Mention]]) -> float:
    """CEAF-e: the best sum of 2 |A and B| / (|A| + |B|) over pairs of clusters, each used once."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    similar = np.zeros((len(clusters), len(others)))
    for row, (cluster, seen) in enumerate(zip(clusters, _overlaps(clusters, others), strict=True)):
        for column, n in seen.items():
            similar[row, column] = 2 * n / (len(cluster) + len(others[column]))
    return float(similar[linear_sum_assignment(similar, maximize=True)].sum())


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
