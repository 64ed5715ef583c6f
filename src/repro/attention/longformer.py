"""Longformer's self-attention layer: a window for all tokens, and global tokens with separate projections."""

import copy

from torch import Tensor, nn
from torch.nn import functional as F

from repro.attention.implementations import attend
from repro.attention.patterns import SlidingWindow
from repro.attention.sample_globals import SampleGlobals
from repro.checked import checked
from repro.errors import ReproError, check_number, check_whole

LOCAL = "query", "key", "value"


@checked
class LongformerSelfAttention(nn.Module):
    """Windowed self-attention with global tokens (Beltagy et al. 2020, section 3.1).

    window: the number of keys on both sides of a query together; must be even. dropout: of attention weights, in
    training. Parameters are named as in transformers. The global projections start as copies of the local ones.

    >>> layer = LongformerSelfAttention(hidden_size=16, num_heads=2, window=4)
    >>> layer(torch.zeros(1, 10, 16)).shape
    torch.Size([1, 10, 16])
    """

    def __init__(self, hidden_size: int, num_heads: int, window: int, dilation: int = 1, implementation: str = "auto",
                 dropout: float = 0.0):
        super().__init__()
        check_whole(hidden_size, "hidden_size")
        check_whole(window, "window", 2, of="tokens")
        check_number(dropout, "dropout", below=1)
        if num_heads < 1 or hidden_size % num_heads:
            raise ReproError(f"num_heads is {num_heads}; it must divide the hidden size ({hidden_size}).")
        self.num_heads, self.implementation, self.dropout = num_heads, implementation, dropout
        self.pattern = SlidingWindow(window, dilation, causal=False)
        for name in LOCAL:
            self.add_module(name, nn.Linear(hidden_size, hidden_size))
        self.copy_local_to_global()

    def copy_local_to_global(self) -> None:
        """Copy the local projections to the global ones."""
        for name in LOCAL:
            self.add_module(f"{name}_global", copy.deepcopy(getattr(self, name)))

    @classmethod
    def from_transformers(cls, layer: nn.Module, window: int | None = None, dilation: int = 1,
                          implementation: str = "auto") -> "LongformerSelfAttention":
        """Our layer with the weights of a layer from transformers.

        A LongformerSelfAttention provides its window and global projections. For any other layer with `query`,
        `key` and `value`, such as RoBERTa's, give a `window`; its projections are also used for global tokens. Dropout
        is kept. Raises ReproError for a missing window or a layer without these projections.
        """
        weights = {name: value for name, value in layer.state_dict().items() if name.split(".")[0] in LOCAL}
        if len(weights) != 2 * len(LOCAL):
            raise ReproError(f"layer is a {type(layer).__name__}; it must have the linear maps {', '.join(LOCAL)}.")
        if window is None:
            half = getattr(layer, "one_sided_attn_window_size", None)
            if half is None:
                raise ReproError(f"window is None, and a {type(layer).__name__} has none; give an even number of keys.")
            window = 2 * half
        heads = layer.num_heads if hasattr(layer, "num_heads") else layer.num_attention_heads
        dropout = getattr(layer, "dropout", 0.0)
        ours = cls(layer.query.in_features, heads, window, dilation, implementation,
                   dropout.p if isinstance(dropout, nn.Dropout) else dropout).to(layer.query.weight)
        ours.load_state_dict(weights, strict=False)
        ours.copy_local_to_global()
        if hasattr(layer, "query_global"):
            ours.load_state_dict(layer.state_dict())
        return ours.train(layer.training)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None,
                global_attention_mask: Tensor | None = None, is_index_masked: Tensor | None = None,
                is_index_global_attn: Tensor | None = None, is_global_attn: bool | None = None,
                output_attentions: bool = False) -> Tensor | tuple[Tensor]:
        """hidden_states (B, N, d) -> (B, N, d), of any length.

        attention_mask (B, N): 0 for padding, which no token attends to and whose output is 0.
        global_attention_mask (B, N): 1 for global tokens, which may differ between sequences.
        The other arguments match how LongformerModel and LEDEncoder in transformers call their layers:
        is_index_masked and is_index_global_attn (B, N) replace the masks, and the layer returns a tuple.
        Raises ReproError for a mask of another shape, and for output_attentions.
        """
        if output_attentions:
            raise ReproError("output_attentions is True, but this layer does not store probabilities; remove it, or "
                             "use transformers' own layer.")
        if is_index_masked is not None or is_index_global_attn is not None:
            real = None if is_index_masked is None or not is_index_masked.any() else ~is_index_masked
            return (self(hidden_states, real, is_index_global_attn),)
        masks = {"attention_mask": attention_mask, "global_attention_mask": global_attention_mask}
        for name, mask in masks.items():
            if mask is not None and mask.shape != (shape := hidden_states.shape[:2]):
                raise ReproError(f"{name} is {tuple(mask.shape)}; it must be (B, N), here {tuple(shape)}.")
        real, chosen = (None if mask is None else mask.bool() for mask in masks.values())
        if chosen is not None and not chosen.any():
            chosen = None
        share = self.dropout if self.training else 0.0
        out = attend(*(self._heads(name, hidden_states) for name in LOCAL), self.pattern, self.implementation,
                     key_mask=real, dropout=share, columns=chosen)
        if chosen is not None:
            out = self._with_globals(hidden_states, out, SampleGlobals.from_mask(chosen), real, share)
        out = out.transpose(1, 2).flatten(2)
        return out if real is None else out * real[..., None]

    def _with_globals(self, hidden: Tensor, out: Tensor, chosen: SampleGlobals, real: Tensor | None,
                      share: float) -> Tensor:
        """`out` (B, H, N, D) in which global tokens see all tokens, through separate projections."""
        queries = self._heads("query_global", chosen.gather(hidden[:, None])[:, 0])
        mask = None if real is None else real[:, None, None]
        if share or chosen.most >= queries.shape[-1]:
            keys, values = self._heads("key_global", hidden), self._heads("value_global", hidden)
            found = F.scaled_dot_product_attention(queries, keys, values, mask, share)
        else:
            found = self._of_few(queries, hidden, mask)
        return chosen.put(out, found)

    def _of_few(self, queries: Tensor, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """The attention of global `queries` (B, H, M, D) over `hidden` (B, N, d), without projecting all of it.

        q (W_k x) is (q W_k) x, and the sum of p (W_v x) is W_v times the sum of p x: H M numbers for each token and
        projection instead of d. A key bias shifts all scores of a query equally and has no effect.
        """
        of_keys, of_values = (getattr(self, f"{name}_global").weight.unflatten(0, (self.num_heads, -1))
                              for name in ("key", "value"))  # (H, D, d)
        bias = (self.value_global.bias + 0 * self.key_global.bias).unflatten(0, (self.num_heads, 1, -1))
        wide = (queries @ of_keys).flatten(1, 2)[:, None]  # (B, 1, H M, d)
        seen = F.scaled_dot_product_attention(wide, hidden[:, None], hidden[:, None], mask,
                                              scale=queries.shape[-1]**-0.5)
        return seen[:, 0].unflatten(1, queries.shape[1:3]) @ of_values.transpose(1, 2) + bias

    def _heads(self, name: str, hidden: Tensor) -> Tensor:
        return getattr(self, name)(hidden).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
