"""Masked text, as RoBERTa is trained on (Liu et al. 2019, section 3.1).

In every sequence, 15% of the tokens are predicted. <mask> replaces 80% of these and a random token 10%; the rest
stays unchanged. The tokens are drawn again at every step ("dynamic masking").
"""

import numpy as np
import torch
from torch import Tensor

from repro.checked import checked
from repro.errors import ReproError, check_whole
from repro.training.batches import Batches

START, END, ORDINARY = 0, 2, 4  # ids of <s> and </s>, and the first id that is not special; <mask> has the last id
SHARE = 0.15  # share of the tokens in a sequence to predict
HIDDEN, RANDOM = 0.8, 0.1  # of these, the shares shown as <mask>, and as a random token
MASKS = 1  # keeps the random masks apart from the text order, which uses the same seed
IGNORED = -100  # a target that is ignored


@checked
def masked(rows: np.ndarray, vocab_size: int, draw: np.random.Generator,
           allowed: np.ndarray | None = None) -> dict[str, Tensor]:
    """Mask rows (B, N) of a stream of token ids: the input of a model, and its targets.

    <s> replaces the first token of a row and </s> the last; </s> also replaces the <s> before every document in a
    stream. Special tokens are never masked, and other tokens only if `allowed`, (B, N) bool; None: all. Returns int64
    tensors: `ids` (B, N), the input; `positions` (B, K), ascending, of the tokens to predict; and `targets` (B, K),
    these tokens. K is 15% of the N - 2 tokens between <s> and </s>, at least one. If fewer than K tokens of a row can
    be masked, its remaining targets are -100 (ignored).

    Raises ReproError for rows of fewer than 3 tokens, and for a vocabulary without ordinary tokens.

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
        raise ReproError(f"a row has {rows.shape[1]} tokens; it needs at least one between <s> and </s>.")
    _check_vocabulary(vocab_size)
    ids = np.where(rows == START, END, rows).astype(np.int64)
    ids[:, 0], ids[:, -1] = START, END
    mask = vocab_size - 1
    chance = draw.random(ids.shape)
    never = (ids < ORDINARY) | (ids == mask) | (False if allowed is None else ~allowed)
    chance[never] = 2.0  # larger than all others: chosen last, and then ignored
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
        raise ReproError(f"vocab_size is {vocab_size}; it needs at least one token besides the {ORDINARY} special ones "
                         "and <mask>.")


@checked
class Masked:
    """Batches of token sequences (B, N + 1), such as `Sequences` or `Stages`, with `masked` applied to (B, N).

    The masks of a step depend only on the seed and the step. If sequences mark their targets, only these are masked.

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
        """The settings of the sequences, the masking, and the seed."""
        return {"masked": self.batches.settings(), "shares": [SHARE, HIDDEN, RANDOM], "vocab_size": self.vocab_size,
                "seed": self.seed}
