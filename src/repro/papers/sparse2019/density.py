"""Train, score and sample a Sparse Transformer of images, text or sound (Child et al. 2019, section 7).

The rows of a table differ in their settings: the pattern, how heads share it, the position embeddings, or the length
and size. All are scored in bits per byte, and every byte is scored once.
"""

import base64
from math import log, prod
from typing import Annotated, Literal

from pydantic import Field, model_validator

from repro.errors import ReproError
from repro.papers.base.pretraining import Decayed, Earlier, check_growing, split
from repro.papers.sparse2019.data import START, read
from repro.papers.sparse2019.settings import is_image
from repro.study import Absent, Estimate, Outcome, RunConfig

BLOCK = 1_000  # bytes of text or sound whose losses a record stores as one sum
PROMPT = 2_000  # bytes of real sound or text that a drawn clip continues, at most
CHANNELS = 3


class Config(RunConfig):
    """A Sparse Transformer: pattern, size, training, scoring and sampling."""

    pattern: Literal["dense", "fixed", "strided", "window"] = "strided"
    integration: Literal["interleaved", "merged", "multi-head"] = "merged"  # how layers combine a pattern's two heads
    stride: int = Field(24, ge=1)  # positions; with "dense" it only sets the width of the attention embeddings
    summary: int = Field(4, ge=1)  # positions of a block that all later ones see; for "fixed"
    side: int = Field(8, ge=1)  # pixels of an image's side, after shrinking; for images
    length: int = Field(192, ge=2)  # bytes of a sequence; the whole image for images
    # Earlier stages for text and sound: (bytes of a sequence, share of the steps). All steps read the same number of
    # bytes.
    growing: Annotated[tuple[Earlier, ...], Absent(())] = ()
    n_layer: int = Field(2, ge=1)
    n_head: int = Field(2, ge=1)
    n_embd: int = Field(32, ge=1)
    inner: int = Field(4, ge=1)  # width of the feedforward network, in n_embd
    key_size: int | None = Field(None, ge=1)  # features of a head's query and key; None: as many as its value has
    dropout: float = Field(0.0, ge=0, lt=1)
    embeddings: tuple[Literal["data", "attention"], ...] = ("attention",)
    steps: int = Field(100, ge=1)
    batch_size: int = Field(8, ge=1)  # sequences
    learning_rate: float = Field(3.5e-4, gt=0)
    warmup_share: float = Field(0.1, ge=0, lt=1)  # share of the steps with a linear warm-up; `decay` follows
    decay: Annotated[Literal["cosine", "linear"], Absent("cosine")] = "cosine"  # of the learning rate
    weight_decay: float = Field(0.01, ge=0)
    decayed: Decayed = "matrices"
    clip: float = Field(1.0, gt=0)
    optimizer: Literal["adamw", "muon"] = "adamw"
    precision: Literal["no", "bf16", "fp16"] = "no"
    attention: Literal["auto", "products"] = "auto"  # in training; scoring uses "auto" in single precision
    recompute: bool = False
    validations: int = Field(2, ge=1)
    held_out: int = Field(40, ge=1)  # sequences of the validation split that each validation reads
    scored: int | None = Field(None, ge=1)  # sequences of the test split; None: all
    contexts: tuple[Annotated[int, Field(ge=0)], ...] = ()  # minimum bytes before every scored byte; for text
    drawn: int = Field(0, ge=0)  # images drawn and halves completed; for sound and text, any number draws one clip
    clip_length: int | None = Field(None, ge=1)  # bytes of that clip; None: a whole sequence

    @model_validator(mode="after")
    def _fits(self):
        if self.stride > self.length:
            raise ValueError(f"stride is {self.stride}, longer than the {self.length} positions of a sequence; choose "
                             f"one of 1 to {self.length}, about {round(self.length**0.5)}")
        if self.pattern == "fixed" and self.summary > self.stride:
            raise ValueError(f"summary is {self.summary}; choose 1 to the stride ({self.stride})")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd is {self.n_embd} and n_head {self.n_head}; the width must be a multiple of the "
                             "heads")
        if "data" in self.embeddings and self.length != prod(self.shape):
            raise ValueError(f"length is {self.length}, but an image of side {self.side} has {prod(self.shape)} bytes; "
                             "data embeddings are for whole images")
        check_growing(self.growing, self.batch_size, length=self.length)
        if self.growing and is_image(self):
            raise ValueError(f"growing is {self.growing}, but an image is read whole; leave growing out")
        if self.contexts and max(self.contexts) >= self.length:
            raise ValueError(f"contexts are {self.contexts}; each must be below the length ({self.length})")
        return self

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels of an image."""
        return self.side, self.side, CHANNELS

    @property
    def training_bytes(self) -> int:
        """Bytes read in training, with repetitions."""
        return self.steps * self.batch_size * self.length


def pattern_of(config):
    """The attention pattern of a run, whose heads the model assigns to its layers."""
    from repro.attention import Causal, Fixed, SlidingWindow, Strided

    return {"dense": lambda: Causal(), "strided": lambda: Strided(config.stride),
            "fixed": lambda: Fixed(config.stride, config.summary),
            "window": lambda: SlidingWindow(config.stride)}[config.pattern]()


def model_config(config, vocab_size: int):
    """Size and pattern of a run's model."""
    from repro.models import SparseConfig

    return SparseConfig(vocab_size, config.length, config.n_layer, config.n_head, config.n_embd, pattern_of(config),
                        config.integration, config.key_size, config.inner, config.dropout, config.embeddings,
                        config.shape if "data" in config.embeddings else (), config.stride)


def trained(config, folder):
    """The trained model of the run of `config`, from `folder` (`repro.study.model_folder(config)`)."""
    from safetensors.torch import load_file

    from repro.models import SparseTransformer

    weights = load_file(folder / "model.safetensors")
    model = SparseTransformer(model_config(config, len(weights["embed.weight"])))
    model.load_state_dict(weights)
    return model.eval()


def execute(config, context):
    import torch
    from safetensors.torch import save

    from repro.models import SparseTransformer
    from repro.paths import write_atomic

    data = read(config)
    if data.train.ndim == 2 and data.train.shape[1] - 1 != config.length:
        raise ReproError(f"length is {config.length}, but an image of side {config.side} has "
                         f"{data.train.shape[1] - 1} bytes; set length={data.train.shape[1] - 1}.")
    torch.manual_seed(config.seed)
    model = SparseTransformer(model_config(config, data.vocab_size), config.attention, config.recompute)
    curves = fit(config, context, model, data)
    model.implementation, model.recompute = "auto", False
    write_atomic(context.folder / "model" / "model.safetensors",
                 save({name: weight.cpu().contiguous() for name, weight in model.state_dict().items()}))
    metrics, documents = evaluate(config, context, model, data)
    notes = {"drawn": draw(config, context, model, data)} if config.drawn else {}
    return Outcome(metrics, {name: unit(name) for name in metrics}, config.pattern, curves, documents,
                   notes | {"training_bytes": config.training_bytes})


def fit(config, context, model, data) -> dict:
    """Train the model in place and return the curves."""
    from repro.training import NextToken, TrainConfig, train

    batches = batches_of(config, data)
    total = config.steps * batches.units_per_batch
    settings = TrainConfig(total, config.learning_rate, int(config.warmup_share * config.steps), config.decay,
                           config.weight_decay, config.clip, -(-total // config.validations),
                           precision=config.precision, seed=config.seed, optimizer=config.optimizer,
                           decayed=config.decayed)
    with context.progress(total, f"training {config.pattern}", batches.unit) as bar:
        found = train(NextToken(model), batches, settings, context.folder / "training",
                      lambda objective: nats(objective.model, config, data.validation, config.held_out).mean(), bar)
    return found.curves


def batches_of(config, data):
    """Batches of whole images, or of sequences of a stream, which may grow in stages."""
    import torch

    from repro.training import LengthBuckets, Sequences, Stages

    if data.train.ndim == 1:
        stages = [(Sequences(data.train, length, size, config.seed), steps) for length, size, steps in
                  split(config.growing, config.length, config.batch_size, config.steps)]
        return Stages(stages) if config.growing else stages[0][0]
    rows = torch.from_numpy(data.train)
    return LengthBuckets(rows, [config.length] * len(rows), torch.stack, config.batch_size, config.seed)


def nats(model, config, tokens, most: int | None, overlap: int = 0):
    """(targets,) float64: the loss in nats of every byte of the first `most` sequences; for images (images, bytes)."""
    import numpy as np
    import torch

    from repro.evaluation import perplexity
    from repro.evaluation.scoring import window_nll
    from repro.ids import evaluating

    if tokens.ndim == 1:
        ids = tokens[:None if most is None else most * config.length + 1]
        return perplexity(model, ids, config.length, overlap).target_nll.astype(np.float64)
    device = next(model.parameters()).device
    found = []
    with torch.no_grad(), evaluating(model):
        for rows in torch.from_numpy(tokens[:most]).split(8):
            logits = model(rows[:, :-1].to(device))
            losses = window_nll(logits.flatten(0, 1), rows[:, 1:].flatten().to(device), None)
            found.append(losses.cpu().double().numpy().reshape(len(rows), -1))
    return np.concatenate(found)


def evaluate(config, context, model, data) -> tuple[dict, dict]:
    """Metrics, and the losses of the test split per image, or per stretch of text or sound."""
    import numpy as np

    from repro.recompute import peak_memory

    losses = nats(model, config, data.test, config.scored)
    metrics = {"test_bits_per_byte": losses.mean() / log(2)}
    documents = {"test": blocks(losses)}
    for least in config.contexts:
        scored = nats(model, config, data.test, config.scored, least)
        metrics[f"test_bits_at_{least}"] = scored.mean() / log(2)
        documents[f"test at {least}"] = blocks(scored)
    settings = model.config
    peak = peak_memory(lambda: step(model, config, data))
    return {name: float(value) for name, value in metrics.items()} | {
        "parameters": settings.parameters, "pairs_per_byte": settings.pairs_per_token(config.length),
        "flops_per_byte": settings.flops_per_token(config.length),
        "memory_per_sequence": float(np.float64(peak))}, documents


def step(model, config, data) -> None:
    """One sequence through the layers, forward and backward, to count memory; leaves no gradients.

    The output layer is left out: its logits can be computed in parts, and would outweigh a small model.
    """
    import torch

    row = data.train[0] if data.train.ndim == 2 else data.train[:config.length + 1]
    x = model.embedded(torch.from_numpy(row)[None, :-1].to(next(model.parameters()).device))
    for layer in model.layers:
        x = layer(x, "auto", config.recompute)
    x.sum().backward()
    model.zero_grad(set_to_none=True)


def blocks(losses) -> dict[str, list]:
    """Summed nats and the number of bytes behind each sum: one sum per image, otherwise one per BLOCK bytes."""
    import numpy as np

    if losses.ndim == 2:
        return {"nll": losses.sum(1).tolist(), "n_bytes": [losses.shape[1]] * len(losses)}
    starts = np.arange(0, len(losses), BLOCK)
    return {"nll": np.add.reduceat(losses, starts).tolist(),
            "n_bytes": np.diff(starts, append=len(losses)).tolist()}


def draw(config, context, model, data) -> dict[str, list[str]]:
    """Samples of the model, bytes in base64: images and completed halves with their originals, or a clip of sound or
    text with the beginning that it continues."""
    import torch

    from repro.models import sample

    device = next(model.parameters()).device
    if data.test.ndim == 2:
        only = torch.arange(data.vocab_size, device=device) < START
        halves = torch.from_numpy(data.test[:config.drawn, :1 + config.length // 2]).to(device)
        starts = halves[:, :1]
        with context.progress(config.length + config.length // 2, "drawing images", "bytes") as bar:
            found = {"samples": sample(model, starts, config.length, config.seed, 1.0, only, bar.advance),
                     "completions": sample(model, halves, config.length - config.length // 2, config.seed, 1.0, only,
                                           bar.advance)}
        found |= {"originals": torch.from_numpy(data.test[:config.drawn])}
        return {name: [packed(row) for row in rows[:, 1:]] for name, rows in found.items()}
    given = min(PROMPT, config.length // 4)
    n_new = (config.clip_length or config.length) - given
    start = torch.from_numpy(data.test[:1 + given])[None].to(device)
    with context.progress(n_new, "drawing sound", "samples") as bar:
        clip = sample(model, start, min(n_new, config.length - given), config.seed, 1.0, None, bar.advance)
    return {"given": [packed(start[0, 1:])], "clip": [packed(clip[0, 1:])]}


def packed(tokens) -> str:
    """Bytes as base64, as a record stores them; `unpacked` is the inverse."""
    import numpy as np

    return base64.b64encode(tokens.cpu().numpy().astype(np.uint8).tobytes()).decode()


def unpacked(text: str):
    """(n,) uint8: the bytes that `packed` encoded."""
    import numpy as np

    return np.frombuffer(base64.b64decode(text), np.uint8)


def unit(metric: str) -> str:
    units = {"parameters": "weights", "pairs_per_byte": "pairs per byte read, all layers and heads",
            "flops_per_byte": "FLOPs per byte read, forward",
            "memory_per_sequence": "bytes added by the layers for one sequence forward and backward"}
    return units.get(metric, "bits per byte")


RATE = {"smoke": 8e9, "small": 3.5e10, "medium": 2e13, "paper": 5e13}  # FLOP/s that the machine of each scale sustains
SEQUENCES = 500  # of a test split, about


def estimate(config):
    settings = model_config(config, START + 1)
    n = config.training_bytes
    times = 1 + sum(config.length / (config.length - least) for least in config.contexts)  # how often a byte is read
    scored = (config.scored or SEQUENCES) * config.length * times
    drawn = 2 * config.drawn * config.length
    flops = settings.flops_per_token(config.length) * (3 * n + scored + drawn)
    kept = config.batch_size * config.length * config.n_embd * config.n_layer * (3 if config.recompute else 30)
    return Estimate(settings.parameters, n, flops, 2**30 + 16 * settings.parameters + 4 * kept,
                    flops / RATE[config.scale])
