"""A toy study: two experiments on a stand-in corpus, in a temporary project."""

import hashlib
import types
from typing import Literal

import pytest
from pydantic import model_validator

import repro.data
from repro.errors import ReproError, unknown
from repro.study import Estimate, Experiment, Outcome, RunConfig, config, registry


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
                                     available=lambda: name not in self.absent, fingerprint=told)

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
    monkeypatch.setattr(registry, "_discover", lambda: None)
    monkeypatch.setattr(repro.data, "corpus", study.corpus, raising=False)
    monkeypatch.setattr(repro.data, "corpora", lambda: [study.corpus(name) for name in study.texts], raising=False)
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    registry.register(study.base, study.experiment)
    assert config.experiment("toy-base") is study.base
    return study
