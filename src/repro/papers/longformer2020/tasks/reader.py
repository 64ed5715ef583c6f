"""A long text in tokens, with the positions that attend globally, and the tokenizer of an encoder with added tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

MODELS = SHORT, LONG, CUT, AS_SHORT = "short", "longformer", "longformer-cut", "longformer-short"


@dataclass(frozen=True)
class Example:
    """A text in tokens: what stands before every piece, the context, and which tokens of both attend globally.

    The separator after the context is added later. row: the example of the corpus. targets: what the task looks for,
    in any form; its positions count from the beginning of the context. whole: tokens of the text before it was cut.
    """

    row: Any
    prefix: Sequence[int]
    context: Sequence[int]
    global_prefix: Sequence[int] = ()  # positions in the prefix
    global_context: Sequence[int] = ()  # positions in the context
    targets: Any = None
    whole: int = 0  # 0: not cut

    def cut(self, n: int) -> "Example":
        """The same example with the first `n` tokens of its context. Targets stay, also those beyond it."""
        return replace(self, context=self.context[:n], global_context=[k for k in self.global_context if k < n],
                       whole=self.whole or len(self))

    def __len__(self) -> int:
        return len(self.prefix) + len(self.context) + 1


@dataclass(frozen=True)
class Words:
    """A tokenizer with its special tokens, and those that a task adds, which get the first ids after its own."""

    coder: Any
    added: Sequence[str] = ()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        return self.coder.encode(text).tolist()

    def __getitem__(self, name: str) -> int:
        """The id of an added token."""
        return self.coder.vocab_size + list(self.added).index(name)

    @property
    def cls(self) -> int:
        """The token that opens a text."""
        return self.coder.bos

    @property
    def sep(self) -> int:
        """The token that ends a text or a part of it."""
        return self.coder.special("sep")

    @property
    def unknown(self) -> int:
        """The token for what the tokenizer does not know."""
        return self.coder.special("unk")

    @property
    def pad(self) -> int:
        """The token that fills a batch."""
        return self.coder.special("pad")

    @property
    def mask(self) -> int:
        """The token that hides another."""
        return self.coder.special("mask")
