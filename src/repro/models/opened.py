"""A published decoder that reads an opening token in front of every text, with the methods that zero-shot tasks need.

Gemma was trained on texts that begin with <bos>, and its attention depends on that token. GPT-2 has no such token.
"""

from copy import deepcopy
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repro.checked import checked
from repro.errors import ReproError, check_whole
from repro.evaluation.scoring import PLAIN_HEADS
from repro.hf_compat import cache_argument, check_logits


@checked
class Opened(nn.Module):
    """A causal language model of transformers, `model`, that reads token `bos` in front of every text it is given.

    It scores windows, last words and branches like `repro.models.GPT`, and generates like a model of transformers.
    `bos` does not count toward the context and is no target. A scored text that begins with it gets no second; prompts
    and the trunk of branches must not begin with it.

    context: tokens that it reads at once besides `bos`. exact_output: compute logits in float32 even under autocast,
    for tasks that need the most likely token: in 16 bits, close logits become equal. Logits have the shape (B, N, V).
    Raises ReproError for a model whose logits are not a plain product of states and weights, for a `bos` outside the
    vocabulary, and for a context below 1.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> base = LlamaForCausalLM(LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
    ...     num_attention_heads=2)).eval()
    >>> ids = torch.tensor([[3, 4, 5]])
    >>> opened, plain = Opened(base, bos=2, context=16)(ids), base(torch.tensor([[2, 3, 4, 5]]))
    >>> torch.allclose(opened.logits, plain.logits[:, 1:], atol=1e-6)
    True
    """

    hidden_then_output = True

    def __init__(self, model: nn.Module, bos: int, context: int, exact_output: bool = False):
        super().__init__()
        kind, layer = getattr(getattr(model, "config", None), "model_type", None), None
        if kind in PLAIN_HEADS and hasattr(model, "get_output_embeddings"):
            layer = model.get_output_embeddings()
        if layer is None or getattr(layer, "bias", None) is not None:
            raise ReproError(f"model is a {type(model).__name__}; give a causal language model of transformers of type "
                             f"{', '.join(PLAIN_HEADS)}, with an output layer without bias.")
        check_logits(model.config)
        check_whole(bos, "bos", 0, model.config.get_text_config().vocab_size - 1)
        check_whole(context, "context", of="tokens")
        self.base, self.bos = model.base_model, bos
        self.output = Output(layer, exact_output)
        self.config = deepcopy(model.config)
        self.config.n_positions = context

    def forward(self, input_ids: Tensor, past_key_values=None, cache=None, use_cache: bool = False,
                logits_to_keep: int = 0) -> SimpleNamespace:
        """An object with `logits` for the last `logits_to_keep` tokens; 0: for all tokens."""
        held = past_key_values if cache is None else cache
        if held is None:
            states = self.hidden(input_ids)
        else:
            first = not held.get_seq_length()
            states = self._read(self.embed(F.pad(input_ids, (1, 0), value=self.bos) if first else input_ids), held)
        return SimpleNamespace(logits=self.output(states[:, -(logits_to_keep or input_ids.shape[1]):]))

    def hidden(self, ids: Tensor) -> Tensor:
        """The states (B, N, width) of token ids (B, N)."""
        there = ids[:, :1] == self.bos  # these get a token at the end instead, which changes no earlier state
        in_front, behind = F.pad(ids, (1, 0), value=self.bos), F.pad(ids, (0, 1), value=self.bos)
        states = self.base(input_ids=torch.where(there, behind, in_front), use_cache=False).last_hidden_state
        return torch.where(there[..., None], states[:, :-1], states[:, 1:])

    def embed(self, ids: Tensor) -> Tensor:
        """The embeddings (..., width) of token ids (...)."""
        return self.base.get_input_embeddings()(ids)

    def read_branches(self, trunk: Tensor, branches: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """States of one text and of its continuations: trunk (1, P, width), branches (1, S, T, width), embedded."""
        from transformers import DynamicCache

        held, opening = DynamicCache(), self.embed(torch.full((1, 1), self.bos, device=trunk.device))
        read = self._read(torch.cat([opening, trunk], 1), held)
        held.batch_repeat_interleave(branches.shape[1])
        return read[:, 1:], self._read(branches[0], held)[None]

    def _read(self, embedded: Tensor, held) -> Tensor:
        """The states of embedded tokens (B, N, width) that follow the tokens in the cache `held`, which grows."""
        return self.base(inputs_embeds=embedded, **cache_argument(held), use_cache=True).last_hidden_state


class Output(nn.Module):
    """The output layer of a model: states (..., width) to logits (..., V). exact: in float32 even under autocast."""

    def __init__(self, layer: nn.Module, exact: bool):
        super().__init__()
        self.weight, self.exact = layer.weight, exact

    def forward(self, states: Tensor) -> Tensor:
        if not self.exact:
            return F.linear(states, self.weight)
        with torch.autocast(states.device.type, enabled=False):
            return F.linear(states.float(), self.weight.float())
