"""Baselines without a language model: the commonest label, counted words, and half of the text.

If the hypothesis or the candidates alone give a label away, a score says nothing about reading. Words are weighted by
tf-idf, and ridge regression learns each label against all others.
"""

import re
from collections import Counter
from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse import csr_matrix

WORD = re.compile(r"\w+")
PENALTY = 1.0  # of ridge regression, as a multiple of the squared weights


class Words:
    """The words and pairs of neighboring words of some texts, and how rare each of them is."""

    def __init__(self, texts: Sequence[str]):
        seen = Counter(name for text in texts for name in set(_names(text)))
        self.place = {name: k for k, name in enumerate(sorted(seen))}
        self.rarity = {name: 1 + log((1 + len(texts)) / (1 + n)) for name, n in seen.items()}

    def __call__(self, texts: Sequence[str]) -> "csr_matrix":
        """(texts, names): a row of length 1 for each text, or of zeros for a text without known words."""
        import numpy as np
        from scipy.sparse import csr_matrix

        rows, columns, values = [], [], []
        for row, text in enumerate(texts):
            counts = {name: n for name, n in Counter(_names(text)).items() if name in self.place}
            weights = np.array([(1 + log(n)) * self.rarity[name] for name, n in counts.items()])
            rows += [row] * len(counts)
            columns += [self.place[name] for name in counts]
            values += (weights / max(np.linalg.norm(weights), 1e-12)).tolist()
        return csr_matrix((values, (rows, columns)), (len(texts), len(self.place)))


def _names(text: str) -> list[str]:
    found = WORD.findall(text.lower())
    return found + [f"{one} {other}" for one, other in zip(found, found[1:], strict=False)]


def ridge(features: "csr_matrix", wanted: "np.ndarray", others: "csr_matrix") -> "np.ndarray":
    """(rows of others, columns of wanted): predictions of a linear map of the features, with a constant."""
    import numpy as np
    from scipy.sparse.linalg import lsqr

    middle = wanted.mean(0)
    weights = [lsqr(features, column, damp=PENALTY**0.5, atol=1e-6, btol=1e-6, iter_lim=200)[0]
               for column in (wanted - middle).T]
    return np.stack([others @ weight for weight in weights], 1) + middle


def baselines(rows: Sequence[Any], others: Sequence[Any], n_outputs: int) -> dict[str, "np.ndarray"]:
    """The predictions of each baseline for `others`, trained on `rows`: labels, numbers of candidates, or scores if
    n_outputs is 1.

    majority: the commonest label, or the mean score. words: tf-idf of all texts, and of the words that two texts share;
    for candidates, the one most similar to document and question, without training. alone: words of the second text
    only, or of the candidates only; missing for tasks with one text.
    """
    import numpy as np

    if hasattr(rows[0], "candidates"):
        return _of_candidates(rows, others)
    labels = np.array([row.label for row in rows], float)
    classes = labels[:, None] if n_outputs == 1 else np.eye(n_outputs)[labels.astype(int)]
    words = Words([text for row in rows for text in row.texts])

    def predict(parts) -> "np.ndarray":
        found = ridge(parts(rows), classes, parts(others))
        return found[:, 0] if n_outputs == 1 else found.argmax(1)

    commonest = labels.mean() if n_outputs == 1 else classes.sum(0).argmax()
    found = {"majority": np.full(len(others), commonest), "words": predict(lambda some: _features(words, some))}
    if len(rows[0].texts) > 1:
        found["alone"] = predict(lambda some: words([row.texts[-1] for row in some]))
    return found


def _features(words: Words, rows: Sequence[Any]) -> "csr_matrix":
    """The words of each text; for two texts also their product and its sum, which is their cosine."""
    from scipy.sparse import csr_matrix, hstack

    parts = [words([row.texts[k] for row in rows]) for k in range(len(rows[0].texts))]
    if len(parts) == 1:
        return parts[0]
    both = parts[0].multiply(parts[1]).tocsr()
    return hstack([*parts, both, csr_matrix(both.sum(1))]).tocsr()


def _of_candidates(rows: Sequence[Any], others: Sequence[Any]) -> dict[str, "np.ndarray"]:
    import numpy as np

    every = (*rows, *others)  # a word that a candidate shares with its own document may be in no other document
    words = Words([text for row in every for text in (*row.paragraphs, row.question, *row.candidates)])
    shown = [float(k == row.answer) for row in rows for k in range(len(row.candidates))]
    learnt = ridge(words([one for row in rows for one in row.candidates]), np.array(shown)[:, None],
                   words([one for row in others for one in row.candidates]))[:, 0]
    sizes = np.cumsum([len(row.candidates) for row in others])[:-1]
    near = [(words(row.candidates) @ words([" ".join((*row.paragraphs, row.question))]).T).toarray()[:, 0]
            for row in others]
    common = Counter(row.answer for row in rows).most_common(1)[0][0]
    return {"majority": np.full(len(others), common), "words": np.array([one.argmax() for one in near]),
            "alone": np.array([part.argmax() for part in np.split(learnt, sizes)])}
