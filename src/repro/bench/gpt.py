"""GPT: a pre-training step compared with transformers.Trainer and a plain loop; fine-tuning in length buckets compared
with padded batches; and ten candidates that share one document, read once or separately for each."""

import time
from collections.abc import Callable

import torch
from torch.nn import functional as F

from repro.bench.training import TRAINER, one_thread, trainer

LOOP, OURS = "bare loop", "ours"
LONGEST, BATCHES, BUCKETS = "padded to the longest of all", "padded to the longest of a batch", "in length buckets"
EACH, ONCE = "every candidate read in full", "the document read once"
TRAINED, SCORED = "candidates, trained", "candidates, scored"


def main(json_path=None, n_layer: int = 6, width: int = 256, heads: int = 4, vocabulary: int = 8192,
         batch_size: int = 16, length: int = 256, steps: int = 10, pairs: int = 640, pairs_at_once: int = 32,
         candidates: int = 10, document: int = 300, rounds: int = 3) -> dict:
    """Time the contenders in turns on one thread, in bf16 where the processor has it.

    On a CPU, time is processor time; with one thread it equals wall-clock time if nothing else runs.

    pairs: number of sentence pairs to fine-tune on, from RTE if it is available, otherwise random ones of similar
    length. document: tokens shared by the candidates of a question.
    """
    from repro.bench import compare, report
    from repro.bf16 import has_bf16

    settings = {"n_layer": n_layer, "width": width, "heads": heads, "vocabulary": vocabulary, "batch_size": batch_size,
                "length": length, "steps": steps, "pairs": pairs, "pairs_at_once": pairs_at_once,
                "candidates": candidates, "document": document, "rounds": rounds}
    precision = "bf16" if has_bf16() else "no"
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time

    def fresh(positions: int = 512):
        from repro.models import GPT, GPTConfig

        torch.manual_seed(0)
        return GPT(GPTConfig(vocabulary, positions, n_layer, width, heads))

    with one_thread():
        examples, source = entailments(pairs, vocabulary)
        speeds = compare(pretraining(fresh, batch_size, length, steps, precision), rounds, clock=clock)
        speeds |= compare(fine_tuning(fresh, examples, pairs_at_once, precision), rounds, clock=clock)
        for name, training in ((TRAINED, True), (SCORED, False)):
            found = compare(choosing(fresh, vocabulary, candidates, document, precision, training), rounds, clock=clock)
            speeds |= {f"{name}: {way}": speed for way, speed in found.items()}
        pace = {name: speed["tokens_per_second"] for name, speed in speeds.items()}
        ratios = {f"{OURS} / {TRAINER}": (pace[OURS] / pace[TRAINER], 1.0),
                  f"{OURS} / {LOOP}": (pace[OURS] / pace[LOOP], 0.95),
                  f"{BUCKETS} / {LONGEST}": (pace[BUCKETS] / pace[LONGEST], 2.5),
                  f"{BUCKETS} / {BATCHES}": (pace[BUCKETS] / pace[BATCHES], 1.5)}
        ratios |= {f"{name}: {ONCE} / {EACH}": (pace[f"{name}: {ONCE}"] / pace[f"{name}: {EACH}"], 3.0)
                   for name in (TRAINED, SCORED)}
        return report("gpt", settings, f"GPT, {n_layer} layers of width {width}", speeds, ratios, json_path,
                      unit="tokens, pairs or questions", precision=precision, pairs=source)


def pretraining(fresh: Callable, batch_size: int, length: int, steps: int, precision: str
                ) -> dict[str, Callable[[], int]]:
    """By name, contenders that train their own copy of one model for `steps` steps on the same tokens; each returns
    their number."""
    import numpy as np

    from repro.training import NextToken, Sequences, TrainConfig, train

    stream = np.random.default_rng(0).integers(fresh().config.vocab_size, size=(steps + 2) * batch_size * length)
    sequences, bare, own = Sequences(stream, length, batch_size), fresh(), fresh()
    settings = TrainConfig(steps * sequences.tokens_per_batch, 1e-4, warmup_steps=0, validate_every=10**12,
                           precision=precision)
    return {TRAINER: trainer(fresh().to_transformers(), sequences, steps, bf16=precision == "bf16"),
            LOOP: lambda: loop(bare, sequences, steps, precision),
            OURS: lambda: train(NextToken(own), sequences, settings).tokens}


def loop(model, sequences, steps: int, precision: str) -> int:
    """A typical hand-written loop: logits of all positions, their loss, clipping, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
    device = next(model.parameters()).device
    model.train()
    for step in range(steps):
        batch = sequences.batch(step).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1).float(), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return steps * sequences.tokens_per_batch


def entailments(n: int, vocabulary: int) -> tuple[list, str]:
    """The first n encoded examples of RTE with their labels, or random ones of similar length; and which of the two
    they are."""
    import numpy as np

    from repro.data import corpus, tokeniser
    from repro.models import encode_example

    rte = corpus("rte")
    if rte.available():
        coder = tokeniser("bpe", vocabulary, "rte")
        rows = list(rte.examples("train"))[:n]
        return [(encode_example("entailment", row.texts, coder, 512), row.label) for row in rows], "RTE"
    draw = np.random.default_rng(0)
    lengths = np.exp(draw.normal(4.1, 0.52, n)).clip(12, 290).astype(int)  # RTE: median 56, 10% over 134
    return [([[vocabulary, *draw.integers(vocabulary, size=k - 2).tolist(), vocabulary + 2]], int(draw.integers(2)))
            for k in lengths], "random"


def fine_tuning(fresh: Callable, examples: list, batch_size: int, precision: str) -> dict[str, Callable[[], int]]:
    """By name, contenders that train on all examples once, each with its own kind of batches; each returns their
    number."""
    from repro.models import TaskModel, labelled
    from repro.training import LengthBuckets, Task, TrainConfig, train

    lengths = [len(example[0]) for example, _ in examples]
    settings = TrainConfig(len(examples) // batch_size * batch_size, 1e-4, warmup_steps=0, validate_every=10**12,
                           precision=precision)

    def work(pool: int, least: int = 0) -> Callable[[], int]:
        model = TaskModel(padded(fresh(), least), "entailment", 2)
        batches = LengthBuckets(examples, lengths, labelled, batch_size, pool=pool)  # pool of one batch: shuffled
        return lambda: train(Task(model), batches, settings).tokens

    return {LONGEST: work(1, max(lengths)), BATCHES: work(1), BUCKETS: work(50)}


def padded(model, least: int):
    """The same model, but its input is padded to `least` tokens."""
    read = model.read
    model.read = lambda x: read(F.pad(x, (0, 0, 0, max(0, least - x.shape[1]))))[:, :x.shape[1]]
    return model


def choosing(fresh: Callable, vocabulary: int, candidates: int, document: int, precision: str, training: bool,
             batch_size: int = 2, question: int = 12, answer: int = 8) -> dict[str, Callable[[], int]]:
    """By name, contenders that train on some questions about documents, or score them, on a CPU; each returns their
    number."""
    from repro.models import TaskModel, collate

    draw = torch.Generator().manual_seed(0)
    examples = []
    for _ in range(batch_size):
        shared = torch.randint(vocabulary, (document + question,), generator=draw).tolist()
        examples.append([[vocabulary, *shared, vocabulary + 1,
                          *torch.randint(vocabulary, (answer,), generator=draw).tolist(), vocabulary + 2]
                         for _ in range(candidates)])
    ids, lengths = collate(examples)
    labels = torch.zeros(batch_size, dtype=torch.int64)

    def work(shared: bool):
        model = TaskModel(fresh(), "multiple-choice")
        model.shared = shared

        def once() -> int:
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"), torch.set_grad_enabled(training):
                output = model(ids, lengths, labels if training else None)
            if training:
                output.loss.backward()
                model.zero_grad(set_to_none=True)
            return batch_size
        return once

    return {EACH: work(False), ONCE: work(True)}
