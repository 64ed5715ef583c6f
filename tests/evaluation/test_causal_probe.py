"""Models that see later tokens are refused in every precision; causal models and noisy functions are not."""

import contextlib

import pytest
import torch

from repro.errors import ReproError
from repro.evaluation import continuation_nll, perplexity
from repro.models import GPT, GPTConfig

V = 29
TEXT = torch.randint(V, (33,), generator=torch.Generator().manual_seed(0))
SIZES = {"vocab_size": V, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
         "max_position_embeddings": 32, "bos_token_id": 0, "eos_token_id": 0}
GPT2 = {"vocab_size": V, "n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 32, "bos_token_id": 0,
        "eos_token_id": 0}
MIXTRAL = SIZES | {"num_key_value_heads": 1, "num_local_experts": 4}
CAUSAL = {"GPT2": GPT2, "Llama": SIZES, "Mixtral": MIXTRAL}
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "autocast": None}
INITIAL = 0.02, 0.1, 0.3, 1.0  # standard deviations of the initial weights


def refused(build, precision) -> list[bool]:
    """Whether `perplexity` refuses each of 5 models in a precision."""
    found = []
    for seed in range(5):
        torch.manual_seed(seed)
        model = build().eval().to(PRECISIONS[precision] or torch.float32)
        cast = torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else contextlib.nullcontext()
        try:
            with cast:
                assert perplexity(model, TEXT, 16, 0).n_scored == len(TEXT) - 1
            found.append(False)
        except ReproError as error:
            assert "is not causal" in str(error)
            found.append(True)
    return found


def family(name, config, **changes):
    import transformers

    kind, _, head = name.partition("For")
    return getattr(transformers, f"{kind}For{head or 'CausalLM'}" if kind != "GPT2" else "GPT2LMHeadModel")(
        getattr(transformers, f"{kind}Config")(**config | changes))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("std", INITIAL)
def test_a_masked_model_is_refused_in_every_precision(precision, std):
    assert refused(lambda: family("BertForMaskedLM", SIZES, initializer_range=std), precision) == [True] * 5


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_model_is_refused_in_no_precision(precision, name):
    for std in INITIAL[::2] if name == "Mixtral" else INITIAL[:1]:
        assert refused(lambda std=std: family(name, CAUSAL[name], initializer_range=std), precision) == [False] * 5


@pytest.mark.parametrize("precision", PRECISIONS)
def test_our_models_are_refused_in_no_precision(precision, tiny_recurrent):
    config = GPTConfig(vocab_size=V, n_positions=32, n_layer=2, n_embd=16, n_head=2)
    assert refused(lambda: GPT(config), precision) == [False] * 5
    seeds = iter(range(5))
    assert refused(lambda: tiny_recurrent(next(seeds)), precision) == [False] * 5


def table(seed=0):
    return torch.randn(V, V, generator=torch.Generator().manual_seed(seed))


def blockwise(size):
    """A function that sees all tokens of its block of `size`, and so those that it must predict."""
    def read(ids):
        shown = torch.zeros(*ids.shape, V)
        for start in range(0, ids.shape[1], size):
            shown[:, start:start + size] = table()[ids[:, start:start + size]].mean(1, keepdim=True)
        return shown
    return read


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 15, 16])
def test_a_function_that_sees_its_whole_block_is_refused(size):
    with pytest.raises(ReproError, match="not causal"):
        perplexity(blockwise(size), TEXT, 16, 0)
    assert perplexity(blockwise(1), TEXT, 16, 0).n_scored == len(TEXT) - 1


@pytest.mark.parametrize("spreads", [False, True])
def test_word_dropout_is_not_taken_for_sight(spreads):
    """2 % of tokens dropped at random: in most pairs of readings both are equal, and a third one is not."""
    generator = torch.Generator().manual_seed(0)

    def noisy(ids):
        shown = table()[torch.where(torch.rand(ids.shape, generator=generator) < 0.02, 0, ids)]
        return shown.cumsum(1) / torch.arange(1, ids.shape[1] + 1)[:, None] if spreads else shown

    assert [perplexity(noisy, TEXT, 16, 0).n_scored for _ in range(60)] == [len(TEXT) - 1] * 60


def test_a_noisy_function_that_looks_ahead_is_refused():
    generator = torch.Generator().manual_seed(0)

    def noisy(ids):
        return table()[ids] + table()[ids.roll(-1, 1)] + 1e-3 * torch.randn(*ids.shape, V, generator=generator)

    with pytest.raises(ReproError, match="not causal"):
        perplexity(noisy, TEXT, 16, 0)


class Stateful:
    """A recurrent function that carries its state from call to call, and so reads batches of one size."""

    def __init__(self):
        self.hidden, self.sizes = None, set()

    def __call__(self, ids):
        cell = torch.nn.GRU(V, V, batch_first=True)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            cell.reset_parameters()
        self.sizes.add(len(ids))
        out, self.hidden = cell(table()[ids], self.hidden)
        return out


@pytest.mark.parametrize("rows", [1, 2])
def test_a_function_reads_batches_of_the_size_that_its_caller_gives(rows):
    model = Stateful()
    assert perplexity(model, TEXT, 16, 0, batch_size=rows).n_scored == 32  # two windows
    assert model.sizes == {rows}
    model = Stateful()
    continuation_nll(model, [TEXT[:9]] * 4, [TEXT[9:12]] * 4, batch_size=rows)
    assert model.sizes == {rows}


def test_a_function_that_fails_in_the_probe_says_so_in_one_line():
    def fixed(ids):
        if ids.shape[1] != 20:
            raise RuntimeError("twenty\ntokens only")
        return table()[ids]

    with pytest.raises(ReproError, match=r"fixed fails with RuntimeError \(twenty\) for token ids \(1, 16\)") as error:
        perplexity(fixed, TEXT[:21], 20, 0)
    assert "\n" not in str(error.value)
