"""Text with some of its tokens hidden, for models that fill them in, as RoBERTa does (Liu et al. 2019, section 3.1).

Of every sequence 15 % of the tokens are to be predicted. Of these 80 % are shown as <mask>, 10 % as a random token and
10 % as they are. Which ones is drawn anew in every step ("dynamic masking").
"""

import numpy as np
import torch
from torch import Tensor

from repro.checked import checked
from repro.errors import ReproError, check_whole
from repro.training.batches import Batches

START, END, ORDINARY = 0, 2, 4  # ids of <s> and </s>, and the first id that is no special token; <mask> has the last
SHARE = 0.15  # of the tokens of a sequence that are to be predicted
HIDDEN, RANDOM = 0.8, 0.1  # shares of those that are shown as <mask>, and as a random token
MASKS = 1  # keeps the draws of masks apart from those of the order of the text, which take the same seed
IGNORED = -100  # the target that counts nothing


@checked
def masked(rows: np.ndarray, vocab_size: int, draw: np.random.Generator,
           allowed: np.ndarray | None = None) -> dict[str, Tensor]:
    """Rows (B, N) of a stream of token ids as a model is to read them, and what it is to predict.

    The first token of a row gives place to <s> and the last to </s>; so does, to </s>, the <s> that stands before every
    document of a stream. Special tokens are never masked, and of others only those that are `allowed`, (B, N) bool;
    None: all. Returns int64 tensors: `ids` (B, N) as they are shown; `positions` (B, K), ascending, of the tokens to be
    predicted, K = 15 % of the N - 2 others, at least one; and `targets` (B, K), which these tokens are; -100, which
    counts nothing, where a row has fewer than K that can be masked.

    Raises ReproError for rows of fewer than 3 tokens, and for a vocabulary without any that is ordinary.

    >>> import numpy as np
    >>> batch = masked(np.arange(4, 26)[None], vocab_size=50, draw=np.random.default_rng(0))
    >>> batch["ids"].shape, batch["targets"].shape
    (torch.Size([1, 22]), torch.Size([1, 3]))
    """
    if rows.ndim != 2 or rows.dtype.kind not in "iu":
        raise ReproError(f"rows are {rows.dtype} of shape {rows.shape}; give ids (B, N).")
    if allowed is not None and (allowed.dtype != bool or allowed.shape != rows.shape):
        raise ReproError(f"allowed is {allowed.dtype} of shape {allowed.shape}; give bools of shape {rows.shape}.")
    if rows.shape[1] < 3:
        raise ReproError(f"a row has {rows.shape[1]} tokens; between <s> and </s> at least one is needed.")
    _check_vocabulary(vocab_size)
    ids = np.where(rows == START, END, rows).astype(np.int64)
    ids[:, 0], ids[:, -1] = START, END
    mask = vocab_size - 1
    chance = draw.random(ids.shape)
    never = (ids < ORDINARY) | (ids == mask) | (False if allowed is None else ~allowed)
    chance[never] = 2.0  # more than any other: taken last, and then not counted
    chosen = np.argsort(chance, axis=1, kind="stable")[:, :max(1, round(SHARE * (ids.shape[1] - 2)))]
    positions = np.sort(chosen, axis=1)
    tokens = np.take_along_axis(ids, positions, 1)
    ordinary = np.take_along_axis(chance, positions, 1) < 1
    fate, random = draw.random(tokens.shape), draw.integers(ORDINARY, mask, tokens.shape)
    shown = np.where(fate < HIDDEN, mask, np.where(fate < HIDDEN + RANDOM, random, tokens))
    np.put_along_axis(ids, positions, np.where(ordinary, shown, tokens), 1)
    return {"ids": torch.from_numpy(ids), "positions": torch.from_numpy(positions),
            "targets": torch.from_numpy(np.where(ordinary, tokens, IGNORED))}


def _check_vocabulary(vocab_size: int) -> None:
    if vocab_size < ORDINARY + 2:
        raise ReproError(f"vocab_size is {vocab_size}; besides the {ORDINARY} special tokens and <mask> at least one "
                         "other is needed.")


@checked
class Masked:
    """Batches of token sequences (B, N + 1), such as `Sequences` or `Stages`, masked: those of `masked` on (B, N).

    The masks of a step are a function of the seed and the step alone. Of sequences that say which tokens are targets
    only these are masked.

    >>> import numpy as np
    >>> batches = Masked(Sequences(np.arange(4, 204) % 40 + 4, length=20, batch_size=2), vocab_size=50)
    >>> {name: tuple(one.shape) for name, one in batches.batch(0).items()}
    {'ids': (2, 20), 'positions': (2, 3), 'targets': (2, 3)}
    """

    unit = "tokens"

    def __init__(self, batches: Batches, vocab_size: int, seed: int = 0):
        _check_vocabulary(vocab_size)
        check_whole(seed, "seed", 0)
        self.batches, self.vocab_size, self.seed = batches, vocab_size, seed
        self.batch_size, self.units_per_batch = batches.batch_size, batches.units_per_batch

    def batch(self, step: int) -> dict[str, Tensor]:
        """Batch number `step` (counted from 0, without end)."""
        batch, allowed = self.batches.batch(step), None
        if not isinstance(batch, Tensor):
            batch, allowed = batch["input_ids"], (batch["labels"] != IGNORED)[:, :-1].numpy()
        rows = batch[:, :-1].numpy()
        return masked(rows, self.vocab_size, np.random.default_rng([self.seed, step, MASKS]), allowed)

    def settings(self) -> dict:
        """Those of the sequences, how they are masked, and the seed."""
        return {"masked": self.batches.settings(), "shares": [SHARE, HIDDEN, RANDOM], "vocab_size": self.vocab_size,
                "seed": self.seed}
