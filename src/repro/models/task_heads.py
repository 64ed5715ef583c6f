"""Heads on the states of a `Reader`: labels, candidates, spans of answers, evidence, and clusters of mentions.

Each has `forward(read, batch)` and `losses(outputs, batch)`, which returns nats (B,).
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repro.loss import any_span_loss, cross_entropy
from repro.models.coreference import Coreference, CoreferenceOutput
from repro.models.long_reader import Read


class LabelHead(nn.Module):
    """Logits (B, labels) from the state of the first token."""

    def __init__(self, width: int, n_labels: int):
        super().__init__()
        self.dense, self.output = nn.Linear(width, width), nn.Linear(width, n_labels)

    def forward(self, read: Read, batch: Mapping[str, Tensor]) -> Tensor:
        return self.output(self.dense(read.first).tanh())

    def losses(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Nats of the right label (B,)."""
        return cross_entropy(logits, batch["labels"], "none")


class CandidateHead(nn.Module):
    """Logits (B, K) of up to K candidates, from the state of one token each; -inf for missing candidates."""

    def __init__(self, width: int):
        super().__init__()
        self.output = nn.Linear(width, 1)

    def forward(self, read: Read, batch: Mapping[str, Tensor]) -> Tensor:
        places = batch["candidates"]  # (B, K) in the prefix; -1: none
        at = places.clamp(min=0)[:, None, :, None].expand(-1, read.prefix.shape[1], -1, read.prefix.shape[3])
        logits = read.over_pieces(self.output(read.prefix.gather(2, at)).squeeze(3))
        return logits.masked_fill(places < 0, float("-inf"))

    def losses(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Nats of the right candidate (B,)."""
        return cross_entropy(logits, batch["answers"], "none")


class SpanHead(nn.Module):
    """Logits of the start and the end of an answer, from the states of the context."""

    def __init__(self, width: int):
        super().__init__()
        self.ends = nn.Linear(width, 2)

    def forward(self, read: Read, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`start`, `end` (B, C), and `text` (B, C) bool: tokens read that an answer may contain."""
        start, end = self.ends(read.context).unbind(-1)
        return {"start": start, "end": end, "text": batch["text"] & read.in_context}

    def losses(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Tensor:
        """(B,) nats: the `any_span_loss` of each example; 0 for examples without a right span in the tokens read."""
        known = batch["spans"][:, 0, 0] >= 0
        nats = 0 * outputs["start"].float().sum(1)  # has a gradient even if no example has a right span
        if known.any():
            start, end, text = (outputs[name][known] for name in ("start", "end", "text"))
            nats[known] = any_span_loss(start, end, batch["spans"][known], text, reduction="none")
        return nats


class EvidenceHeads(nn.Module):
    """The heads for HotpotQA (appendix D): for the span, for the type of answer, and one for each kind of evidence.

    n_types: the number of answer types; type 0 is a span. kinds: names of tensors (B, N, 2) in a batch. They hold, for
    each place where evidence may be, its position, -1 if it is not read, and its label: 1, 0, or -1 if unknown.
    """

    def __init__(self, width: int, n_types: int, kinds: Sequence[str]):
        super().__init__()
        self.span, self.answer_type = SpanHead(width), nn.Linear(width, n_types)
        self.evidence = nn.ModuleDict({kind: nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)) for kind in kinds})

    def forward(self, read: Read, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The span head's outputs; `type` (B, n_types); and logits (B, N) for each kind, -inf for places not read."""
        found = self.span(read, batch) | {"type": self.answer_type(read.first)}
        context, known = F.pad(read.context, (0, 0, 0, 1)), F.pad(read.in_context, (0, 1))  # + one unread token
        for kind, head in self.evidence.items():
            at = batch[kind][..., 0]
            at = at.where(at >= 0, known.shape[1] - 1)
            states = context.gather(1, at[..., None].expand(-1, -1, context.shape[-1]))
            found[kind] = head(states).squeeze(-1).float().masked_fill(~known.gather(1, at), -torch.inf)
        return found

    def losses(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Tensor:
        """(B,) nats: of the span, if the answer is one, and of the type, plus the mean binary cross-entropy over the
        places of each kind that have a known label."""
        total = self.span.losses(outputs, batch) + cross_entropy(outputs["type"], batch["types"], "none")
        for kind in self.evidence:
            logits, labels = outputs[kind], batch[kind][..., 1]
            known = (labels >= 0) & logits.isfinite()
            nats = F.binary_cross_entropy_with_logits(
                logits.where(known, 0.0), labels.clamp(min=0).float(), reduction="none")
            total = total + (nats * known).sum(1) / known.sum(1).clamp(min=1)
        return total


class ClusterHead(nn.Module):
    """`Coreference` for each document of a batch; states of tokens outside words are ignored."""

    def __init__(self, model: Coreference):
        super().__init__()
        self.model = model

    def forward(self, read: Read, batch: Mapping[str, Tensor]) -> list[CoreferenceOutput]:
        """The output for each document."""
        found = []
        for k, states in enumerate(read.context):
            words = batch["words"][k][batch["words"][k, :, 1] > 0]
            gold: dict[int, list] = {}
            for start, stop, cluster in batch["mentions"][k].tolist():
                if stop:
                    gold.setdefault(cluster, []).append((start, stop))
            parts = {name: batch[name][k, :len(words)] for name in ("sentences", "speakers") if name in batch}
            genre = int(batch["genre"][k]) if "genre" in batch else None
            found.append(self.model(states, words, clusters=list(gold.values()), genre=genre, **parts))
        return found

    def losses(self, outputs: list[CoreferenceOutput], batch: Mapping[str, Tensor]) -> Tensor:
        """Nats per kept span (B,)."""
        return torch.stack([one.loss for one in outputs])
