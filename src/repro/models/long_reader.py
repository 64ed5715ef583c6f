"""A pretrained encoder that reads long texts: whole, in pieces that fit its positions, or only the first piece.

A text has a prefix, such as [CLS] and a question, and a context. RoBERTa and BERT must split the context; every piece
then begins with the prefix, and the states of the pieces are joined. Longformer reads prefix and context at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from repro.attention import Full
from repro.errors import ReproError
from repro.models.longformer import Longformer, longformer_from


def padded(examples: Sequence[Any]) -> dict[str, Tensor]:
    """A batch: `prefix` (B, P) and `context` (B, C), padded with zeros; their lengths and their global tokens."""
    batch = {}
    for name in ("prefix", "context"):
        ids = [torch.as_tensor(getattr(one, name), dtype=torch.int64) for one in examples]
        batch[name] = pad_sequence(ids, batch_first=True)
        batch[f"{name}_length"] = torch.tensor([len(one) for one in ids])
        batch[f"global_{name}"] = torch.zeros(batch[name].shape, dtype=torch.bool)
        for row, one in zip(batch[f"global_{name}"], examples, strict=True):
            row[list(getattr(one, f"global_{name}"))] = True
    return batch


@dataclass(frozen=True)
class Read:
    """The states of a batch of texts. A text read whole is one piece."""

    prefix: Tensor  # (B, W, P, d): of the prefix in each piece; 0 for padding and for pieces that a text lacks
    context: Tensor  # (B, C, d): of all pieces, joined; 0 for padding
    in_prefix: Tensor  # (B, P) bool
    in_context: Tensor  # (B, C) bool: tokens that were read
    pieces: Tensor  # (B, W) bool

    @property
    def first(self) -> Tensor:
        """(B, d): the state of the first token, in the first piece."""
        return self.prefix[:, 0, 0]

    def over_pieces(self, values: Tensor) -> Tensor:
        """(B, W, ...) -> (B, ...): the mean over the pieces of each text."""
        weights = self.pieces.to(values) / self.pieces.sum(1, keepdim=True)
        return (values * weights.reshape(*weights.shape, *[1] * (values.ndim - 2))).sum(1)


class Reader(nn.Module):
    """Reads batches of `padded` with a Longformer.

    piece: tokens in a piece, including the prefix and the separator; None: the whole text. first_piece: read only the
    first piece. sep: the id of the separator at the end of each piece. global_tokens: whether the global tokens of a
    text get global attention; None: only if texts are read whole.

    >>> from transformers import BertConfig, BertModel
    >>> bert = BertModel(BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    ...     intermediate_size=8, max_position_embeddings=16))
    >>> from repro.papers.longformer2020 import Example
    >>> text = padded([Example(None, prefix=[1, 5, 2], context=range(3, 29))])
    >>> read = Reader(longformer_from(bert, 16, Full()), sep=2, piece=16)(text)
    >>> read.context.shape, read.prefix.shape  # three pieces of 12, 12 and 2 tokens
    (torch.Size([1, 26, 8]), torch.Size([1, 3, 3, 8]))
    """

    def __init__(self, encoder: Longformer, sep: int, piece: int | None = None, first_piece: bool = False,
                 global_tokens: bool | None = None):
        super().__init__()
        self.encoder, self.sep, self.piece, self.first_piece = encoder, sep, piece, first_piece
        self.global_tokens = piece is None if global_tokens is None else global_tokens
        self.config = encoder.config
        encoder.lm_head = None  # predicts tokens, which no task needs

    def forward(self, batch: Mapping[str, Tensor]) -> Read:
        """The states of a batch. Raises ReproError for a prefix that leaves no room, and a text that is too long."""
        prefix, context = batch["prefix"], batch["context"]
        before, length = batch["prefix_length"], batch["context_length"]
        room = length.clamp(min=1) if self.piece is None else self.piece - 1 - before  # context tokens in a piece
        if (room < 1).any():
            raise ReproError(f"a prefix has {int(before.max())} tokens, which leaves no room for the context in a "
                             f"piece of {self.piece}; shorten it or use longer pieces.")
        if self.first_piece:
            length = torch.minimum(length, room)
        numbers = torch.arange(max(1, int((length / room).ceil().max())), device=prefix.device)
        starts = numbers * room[:, None]  # (B, W)
        there = (starts < length[:, None]) | (numbers == 0)
        counts = torch.minimum(length[:, None] - starts, room[:, None])[there]
        rows = torch.arange(len(prefix), device=prefix.device)[:, None].expand_as(there)[there]  # the text of a piece
        states = self._states(batch, rows, before[rows], starts[there], counts)
        number = (there.flatten().cumsum(0) - 1).view_as(there)  # (B, W): which piece
        places = torch.arange(context.shape[1], device=prefix.device)
        which = torch.minimum(places // room[:, None], numbers[-1])
        inside = places < length[:, None]
        wide = states.shape[1]
        at = number.gather(1, which) * wide + before[:, None] + places % room[:, None]
        first = torch.arange(prefix.shape[1], device=prefix.device)
        known = first < before[:, None]
        every = there[:, :, None] & known[:, None]
        return Read(_picked(states, number[:, :, None] * wide + first, every), _picked(states, at, inside), known,
                    inside, there)

    def _states(self, batch: Mapping[str, Tensor], rows: Tensor, before: Tensor, starts: Tensor,
                counts: Tensor) -> Tensor:
        """States (M, L, d) of M pieces: of the texts `rows`, each with `counts` tokens of the context from `starts`."""
        prefix, context = batch["prefix"], batch["context"]
        most, every = prefix.shape[1], prefix.shape[1] + context.shape[1]
        place = torch.arange(int((before + counts).max()) + 1, device=prefix.device)
        before, starts, counts = (x[:, None] for x in (before, starts, counts))
        index = torch.where(place < before, place, most + starts + place - before)
        index = torch.where(place < before + counts, index, torch.where(place == before + counts, every, every + 1))
        ends = prefix.new_tensor([self.sep, self.config.pad_token_id]).expand(len(prefix), 2)
        ids = torch.cat([prefix, context, ends], 1)[rows].gather(1, index)
        chosen = None
        if self.global_tokens:
            marks = torch.cat([batch["global_prefix"], batch["global_context"], torch.zeros_like(ends).bool()], 1)
            chosen = marks[rows].gather(1, index)
        return self.encoder.encode(ids, (index <= every).long(), chosen)


def _picked(states: Tensor, at: Tensor, known: Tensor) -> Tensor:
    """States (..., d) at the flat positions `at` (...) of (M, L, d); 0 where a position is not `known`."""
    flat = states.flatten(0, 1)
    return flat[at.clamp(max=len(flat) - 1)] * known[..., None]


class TaskReader(nn.Module):
    """A reader with a head. Batches are those of `collate`.

    The `module_learning_rate` of a training run applies to the head.
    """

    def __init__(self, reader: Reader, head: nn.Module):
        super().__init__()
        self.reader, self.head, self.config = reader, head, reader.config

    def forward(self, batch: Mapping[str, Tensor]) -> Any:
        return self.head(self.reader(batch), batch)

    def added_parameters(self) -> Iterable[nn.Parameter]:
        """The weights of the head."""
        return self.head.parameters()


def load_encoder(folder: Any) -> nn.Module:
    """The encoder of a saved RoBERTa or BERT, in float32, without a head that predicts tokens."""
    import transformers

    from repro.checkpoints import quietly, read_config

    kind = getattr(transformers, read_config(folder)["architectures"][0])
    with quietly():
        return kind.from_pretrained(str(folder), dtype=torch.float32).base_model


def reader_from(base: nn.Module, words: Any, model: str, max_positions: int, window: int,
                first_piece: bool = False, piece: int | None = None) -> Reader:
    """A reader with a pretrained encoder from `load_encoder`, whose embeddings are resized if the task adds tokens.

    model: "short" reads pieces that fit the base's positions, with full attention; any other reads up to
    `max_positions` tokens with this window. The embeddings of added tokens are drawn at random.
    """
    if words.added:
        base.resize_token_embeddings(words.coder.vocab_size + len(words.added), mean_resizing=False)
    if model != "short":
        return Reader(longformer_from(base, max_positions, window), words.sep)
    known = n_positions(base)
    return Reader(longformer_from(base, known, Full()), words.sep, min(piece or known, known), first_piece)


def n_positions(base: nn.Module) -> int:
    """The largest number of tokens that a RoBERTa or BERT can read."""
    unused = base.config.pad_token_id + 1 if base.config.model_type == "roberta" else 0
    return base.config.max_position_embeddings - unused
