"""A token in front of every window, for models that use it as an attention sink, such as Gemma."""

from functools import partial

from torch import nn

from repro.errors import ReproError
from repro.hf_compat import cache_in


def open_windows(model: nn.Module) -> int:
    """Make a model of transformers read `config.opening_token` in front of every text it is given; return how many
    tokens that adds, 0 if its config names none.

    The token takes the first position and is not a target: the states and logits are those of the given ids alone.
    With a key/value cache it is read with the first part of a text. Padding would separate the token from the
    text, so the model refuses a mask.
    """
    token = getattr(model.config, "opening_token", None)
    if token is None:
        return 0
    if type(token) is not int or not 0 <= token < model.config.vocab_size:
        raise ReproError(f"opening_token is {token!r:.40}; it must be a token id from 0 to "
                         f"{model.config.vocab_size - 1}.")
    model.base_model.register_forward_pre_hook(partial(_in_front, token), with_kwargs=True)
    model.base_model.register_forward_hook(_taken_off, with_kwargs=True)
    return 1


def _in_front(token: int, base: nn.Module, args: tuple, kwargs: dict):
    ids, *rest = args or (kwargs.pop("input_ids", None),)
    if ids is None or rest or kwargs.get("attention_mask") is not None:
        raise ReproError(f"this {type(base).__name__} opens every window with token {token}; give it input_ids alone, "
                         "without a mask.")
    cache = cache_in(kwargs)
    if cache is None or not cache.get_seq_length():
        ids = nn.functional.pad(ids, (1, 0), value=token)
    return (), kwargs | {"input_ids": ids, "use_cache": cache is not None}


def _taken_off(base: nn.Module, args: tuple, kwargs: dict, output):
    cache = cache_in(kwargs)
    if cache is None or cache.get_seq_length() == kwargs["input_ids"].shape[1]:  # the first part of a text
        output.last_hidden_state = output.last_hidden_state[:, 1:]
    return output
