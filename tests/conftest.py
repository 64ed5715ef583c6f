"""Tiny models with weights large enough to matter, a second, slow and plain implementation to hold them against, and a
toy study: two experiments on a stand-in corpus, in a temporary project."""

import gc
import hashlib
import math
import os
import types
from typing import Literal

import pytest
from pydantic import model_validator

import repro.data
from repro.errors import ReproError, unknown
from repro.study import Estimate, Experiment, Outcome, RunConfig, experiment, registry

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before a test imports huggingface_hub: it would wait for the network


# The files that take longest start first, so that no process is left with one at the end.
LONGEST = ("test_pages", "test_graph", "test_kill", "test_torchrun", "test_alone", "test_fuzz", "test_model_types")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(scope="module", autouse=True)
def settled():
    """Leave what is there before a module of tests out of garbage collection, which ends every run of the study: it
    took 0.2 s a run, almost all of it for the modules of PyTorch."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def tiny_config():
    """A GPT2Config of 3 layers, width 16, 29 tokens and a context of 16; dropout off."""
    def make(**changes):
        from transformers import GPT2Config

        settings = {"n_layer": 3, "n_embd": 16, "n_head": 2, "vocab_size": 29, "n_positions": 16, "bos_token_id": 0,
                    "eos_token_id": 0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        return GPT2Config(**settings | changes)
    return make


@pytest.fixture(scope="session")
def shake():
    """Give every weight of a model, biases, norms and layer scores included, a random value of a telling size."""
    def randomise(model, seed=0):
        import torch

        generator = torch.Generator().manual_seed(seed)
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if name.endswith("layer_scores"):
                parameter.data.copy_(noise)
            elif parameter.ndim == 1:
                parameter.data.copy_(0.3 * noise + (1 if ".ln_" in name and name.endswith("weight") else 0))
            else:
                parameter.data.copy_(noise * 1.5 / math.sqrt(parameter.shape[-1]))
        return model
    return randomise


@pytest.fixture(scope="session")
def tiny_gpt2(tiny_config, shake):
    """A transformers GPT2LMHeadModel in eval mode: (seed, dtype, **config changes)."""
    def make(seed=0, dtype=None, **changes):
        import torch
        from transformers import GPT2LMHeadModel

        return shake(GPT2LMHeadModel(tiny_config(**changes)).to(dtype or torch.float32), seed).eval()
    return make


@pytest.fixture(scope="session")
def tiny_recurrent(tiny_config, shake):
    """A RecurrentLM in eval mode: (seed, dtype, config changes, **recurrence settings)."""
    def make(seed=0, dtype=None, changes=None, **settings):
        import torch

        from repro.recurrence import RecurrenceConfig, RecurrentLM

        settings = RecurrenceConfig(**{"insert_layer": 1, "hidden_size": 12, "hidden_layers": 2} | settings)
        model = RecurrentLM(tiny_config(**changes or {}), settings).to(dtype or torch.float32)
        return shake(model, seed).eval()
    return make


@pytest.fixture(scope="session")
def tiny_memory(tiny_config, shake):
    """A MemoryLM in eval mode: (memory, dtype, fresh, **settings). fresh: with its initial weights, not random ones."""
    small = {"yoshida": {"hidden_size": 12, "hidden_layers": 2}, "yoshida-first": {"hidden_size": 12},
             "embeddings-4": {"hidden_size": 12, "hidden_layers": 1}, "gated": {"hidden_size": 12, "hidden_layers": 1},
             "rmt": {"n_tokens": 2}, "block-recurrent": {"n_states": 3}, "compressed": {"rate": 2, "windows": 2},
             "knn": {"layer": 1, "k": 2, "n_tokens": 6}}

    def make(memory, dtype=None, fresh=False, changes=None, **settings):
        import torch

        from repro.recurrence import MemoryLM
        from repro.recurrence.memories import complete

        torch.manual_seed(0)
        model = MemoryLM(tiny_config(**changes or {}), complete(memory, **small.get(memory, {}) | settings))
        shake(model.transformer if fresh else model)
        return model.to(dtype or torch.float32).eval()
    return make


@pytest.fixture(scope="session")
def tiny_bpe():
    """A byte-level tokeniser of 270 ids, trained on next to nothing; <|endoftext|> is 0."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from repro.data import Tokeniser

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(["the old king said to the queen"], trainers.BpeTrainer(
        vocab_size=270, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return Tokeniser("bpe-270", made)


@pytest.fixture(scope="session")
def window_of():
    """The window (start, end of its inputs) that scores a target, from the target alone: no loop over windows."""
    def find(target, n_tokens, window, overlap):
        k = max(0, math.ceil((target - window) / (window - overlap)))
        start = k * (window - overlap)
        return start, min(start + window, n_tokens - 1)
    return find


@pytest.fixture(scope="session")
def dense(window_of):
    """Logits (B, N, V) of a RecurrentLM written out from its weights: explicit mask, explicit softmax, no caching.

    `logits[:, i]` comes from the window that scores token i + 1. `cut(k)` says whether h_prev is cut off from the
    gradient before window k; `recurrent=False` gives no window an h_prev.
    """
    import torch

    def norm(x, weights, name, eps):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def affine(x, weights, name):
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def attention(x, extra, weights, name, heads):
        """x (B, T, d) are queries, keys and values; extra (B, E, d) are keys and values only, seen by everyone."""
        both = x if extra is None else torch.cat([extra, x], 1)
        size = x.shape[-1] // heads
        first = both.shape[1] - x.shape[1]
        query, key, value = affine(both, weights, f"{name}.c_attn").split(x.shape[-1], -1)
        allowed = torch.ones(x.shape[1], both.shape[1], dtype=torch.bool)
        for i in range(x.shape[1]):
            for j in range(x.shape[1]):
                allowed[i, first + j] = j <= i
        out = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            scores = query[:, first:, part] @ key[..., part].transpose(1, 2) / math.sqrt(size)
            scores = scores.masked_fill(~allowed, -math.inf)
            out.append(scores.exp() / scores.exp().sum(-1, keepdim=True) @ value[..., part])
        return affine(torch.cat(out, -1), weights, f"{name}.c_proj")

    def feedforward(z, weights, settings):
        for layer in range(settings.hidden_layers + 1):
            name = f"recurrence.feedforward.{2 * layer}"
            z = z @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
            if layer < settings.hidden_layers:
                z = z * 0.5 * (1 + torch.erf(z / math.sqrt(2)))
        return z.reshape(len(z), settings.n_embeddings, -1)

    def size_of(x):
        return ((x * x).sum(-1, keepdim=True) / x.shape[-1]) ** 0.5

    def one_window(ids, h_prev, weights, config, settings):
        x = weights["transformer.wte.weight"][ids] + weights["transformer.wpe.weight"][:ids.shape[1]]
        z, layer_input = 0, x.new_zeros(())
        scores = weights["recurrence.layer_scores"]
        for layer in range(config.n_layer):
            if settings.residual and layer == settings.insert_layer:
                layer_input = x.sum(1, keepdim=True) / x.shape[1]
            name, eps = f"transformer.h.{layer}", config.layer_norm_epsilon
            extra = None
            if h_prev is not None and (settings.insert == "every" or layer == settings.insert_layer):
                extra = norm(h_prev, weights, f"{name}.ln_1", eps)
            x = x + attention(norm(x, weights, f"{name}.ln_1", eps), extra, weights, f"{name}.attn", config.n_head)
            inner = affine(norm(x, weights, f"{name}.ln_2", eps), weights, f"{name}.mlp.c_fc")
            inner = 0.5 * inner * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
            x = x + affine(inner, weights, f"{name}.mlp.c_proj")
            if layer == config.n_layer - 1:
                x = norm(x, weights, "transformer.ln_f", eps)
            mean = x.sum(1) / x.shape[1]
            mean = mean / size_of(mean) if settings.normalize else mean
            z = z + scores[layer].exp() / scores.exp().sum() * mean
        return x, (z, layer_input)

    def logits(model, ids, window, overlap=0, recurrent=True, cut=lambda k: False, weights=None, predict_next=True):
        weights = dict(model.named_parameters()) if weights is None else weights
        settings, out = model.recurrence.config, {}
        n_tokens = ids.shape[1] + predict_next  # the token after the last is a target too
        spans = sorted({window_of(target, n_tokens, window, overlap) for target in range(1, n_tokens)})
        z = None
        for k, (start, stop) in enumerate(spans):
            h_prev = None
            if z is not None and recurrent:
                pooled, layer_input = (x.detach() if cut(k) else x for x in z)
                h_prev = feedforward(pooled, weights, settings)
                h_prev = (h_prev * size_of(layer_input) if settings.normalize else h_prev) + layer_input
            hidden, z = one_window(ids[:, start:stop], h_prev, weights, model.config, settings)
            scores = hidden @ weights["transformer.wte.weight"].T
            for position in range(start, stop):
                if window_of(position + 1, n_tokens, window, overlap) == (start, stop):
                    out[position] = scores[:, position - start]
        return torch.stack([out[position] for position in range(n_tokens - 1)], 1)
    return logits


class BaseConfig(RunConfig):
    width: int = 8


class ToyConfig(RunConfig):
    model: Literal["baseline", "recurrent"] = "baseline"
    window: int = 300
    overlap: int = 0
    rate: float = 1e-3
    layers: tuple[int, ...] = (2,)
    limit: int | None = 3
    share: float = 1  # an int on purpose: it must mean the same as 1.0

    @model_validator(mode="after")
    def _fits(self) -> "ToyConfig":
        if self.overlap >= self.window:
            raise ValueError(f"overlap {self.overlap} must be smaller than window {self.window}")
        return self


class Toy:
    """The toy study: its experiments, its corpora, and the list of what was executed."""

    def __init__(self):
        self.executed = []
        self.noise = 0.0
        self.texts = {"toy-text": "once upon a time", "toy-books": "a book"}
        self.absent = set()
        self.base = Experiment(
            name="toy-base", paper="toy2020", summary="A base model.", config=BaseConfig,
            scales={"smoke": {"corpus": "toy-books"}, "small": {"corpus": "toy-books", "width": 16}},
            execute=self.execute_base, estimate=lambda c: Estimate(c.width, 100, 6e2 * c.width, 4 * c.width, 1.5))
        self.experiment = Experiment(
            name="toy-recurrence", paper="toy2020", summary="A toy.", config=ToyConfig,
            scales={"smoke": {"corpus": "toy-text"}, "small": {"corpus": "toy-text", "rate": 1e-4}},
            grid=lambda scale: [{"model": m, "overlap": o} for m in ("baseline", "recurrent") for o in (0, 5)],
            execute=self.execute, estimate=lambda c: Estimate(8, 100, 4.8e3, 32, 2.5),
            needs=lambda c: [self.base.plan(c.scale)[0]])

    def corpus(self, name):
        if name not in self.texts:
            raise unknown("corpus", name, self.texts)
        fingerprint = hashlib.sha256(self.texts[name].encode()).hexdigest()

        def told():
            if name in self.absent:
                raise ReproError(f"corpus {name} is not here")
            return fingerprint

        return types.SimpleNamespace(name=name, part_of="toy: 1 of 9 texts" if name == "toy-text" else None,
                                     available=lambda: name not in self.absent, fingerprint=told,
                                     way="get it somewhere")

    def execute_base(self, config, context):
        self.executed.append(config)
        (context.folder / "model").mkdir(exist_ok=True)
        (context.folder / "model" / "weights").write_text(str(config.width))
        return Outcome({"loss": 3.0 + self.noise}, {"loss": "nats"}, "base")

    def execute(self, config, context):
        self.executed.append(config)
        record, folder = context.need(self.base.plan(config.scale)[0])
        width = int((folder / "model" / "weights").read_text())
        with context.progress(10, "training", "token") as bar:
            for _ in range(10):
                bar.advance(1, loss=record.metrics["loss"])
        value = 30 - config.overlap / 10 - (config.model == "recurrent") + config.seed / 4
        return Outcome({"test_word_perplexity": value, "width": width}, {"test_word_perplexity": "per word",
                       "width": "units"}, config.model, curves={"loss": [(0, 3.5), (1, 3.25)]},
                       documents={"test": {"nll": [1.5, 2.5]}})


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A registered toy study whose results and work folders are temporary."""
    study = Toy()
    monkeypatch.setattr(registry, "_declared", {})
    monkeypatch.setattr(registry, "_modules", {})
    monkeypatch.setattr(registry, "_discover", lambda: None)
    monkeypatch.setattr(repro.data, "corpus", study.corpus, raising=False)
    monkeypatch.setattr(repro.data, "corpora", lambda: [study.corpus(name) for name in study.texts], raising=False)
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    registry.register(study.base, study.experiment)
    assert experiment("toy-base") is study.base
    return study
