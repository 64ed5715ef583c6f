"""Training steps: ours in float32 and bfloat16 compared with transformers.Trainer and a plain loop, for small models
and Gemma 3. Also how long Gemma takes to load, and Muon compared with AdamW."""

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.nn import functional as F

from repro.errors import ReproError

WIDTHS = {128: 4, 256: 8}  # width of the model -> heads
PEERS = ("All: AdamW without weight decay, gradients clipped to norm 1, nothing logged or saved. Trainer alone: a rate "
         "that falls to 0, shuffled examples, no target for a row's last token, a look for NaN at every step. Gemma: "
         "all use eager attention; ours train in bfloat16 where the processor has it, else in float32. Each Trainer "
         "names its precision; float32 where it names none.")
TRAINER, LOOP, SINGLE, HALF = "transformers.Trainer", "plain loop", "ours, fp32", "ours, bf16"
TRAINER_HALF = f"{TRAINER}, bf16"
PUBLISHED = "gemma-3-270m"


def main(json_path=None, widths: dict[int, int] = WIDTHS, n_layer: int = 6, vocabulary: int = 8192,
         batch_size: int = 8, length: int = 256, steps: int = 10, rounds: int = 3, optimiser_tokens: int = 500_000,
         scale: str | None = None, gemma_folders: tuple[Path, Path] | None = None) -> dict:
    """Time `steps` optimizer steps of each contender at every width, on one thread; then compare the optimizers.

    On a CPU, time is processor time; with one thread it equals wall-clock time if nothing else runs.

    The setup in each call of `train` is also timed, but does not matter with this many `steps`. optimiser_tokens:
    length of each of the two training runs. scale: scale of the base model whose text and sizes are used; by default
    `small` if its corpora are available, otherwise `smoke`. gemma_folders: a published Gemma 3 and the same model with
    a cut vocabulary; by default those of the study at `pretrained`.
    """
    from repro.bench import compare, report
    from repro.bf16 import has_bf16
    from repro.study import Run, experiment

    base = experiment("pretrain-gpt2-mini")
    scale = scale or ("small" if Run(base.plan("small")[0]).data_at_hand else "smoke")
    settings = {"widths": widths, "n_layer": n_layer, "vocabulary": vocabulary, "batch_size": batch_size,
                "length": length, "steps": steps, "rounds": rounds, "optimiser_tokens": optimiser_tokens,
                "scale": scale}
    try:
        gemma_folders, absent = gemma_folders or study_folders(), ""
    except ReproError as error:
        absent = str(error)
    settings["gemma"] = None if absent else gemma_folders[0].name
    speeds, ratios = {}, {}
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    with one_thread():
        for width, heads in widths.items():
            works = contenders(n_layer, width, heads, vocabulary, batch_size, length, steps)
            found = compare(works, rounds, clock=clock)
            speeds |= {f"width {width}: {name}": speed for name, speed in found.items()}
            for name in (LOOP, SINGLE, HALF):
                ratio = found[name]["tokens_per_second"] / found[TRAINER]["tokens_per_second"]
                asked = 2.0 if (name, width) == (HALF, 256) and has_bf16() else None
                ratios[f"width {width}: {name} / {TRAINER}"] = ratio, asked
        found = compare(windowed(), rounds, clock=clock)
        speeds |= {f"windows: {name}": speed for name, speed in found.items()}
        plain, recurrent = (speed["tokens_per_second"] for speed in found.values())
        ratios["recurrent / plain"] = recurrent / plain, 0.8
        found, more = gemma_rows(gemma_folders, absent, rounds, clock)
        speeds, ratios = speeds | found, ratios | more
        muon = optimisers(base.plan(scale)[0], optimiser_tokens, steps, rounds, clock)
        speeds |= {f"{scale}: {name}": speed for name, speed in muon["speeds"].items()}
        ratios |= {f"loss, Muon / AdamW, {at}": (muon[at]["Muon"] / muon[at]["AdamW"], 1.0, "at most")
                   for at in ("equal tokens", "equal seconds")}
        return report("training", settings, f"Training, {n_layer} layers, {batch_size} x {length} tokens", speeds,
                      ratios, json_path, peers=PEERS, optimisers=muon)


def contenders(n_layer: int, width: int, heads: int, vocabulary: int, batch_size: int, length: int, steps: int
               ) -> dict[str, Callable[[], int]]:
    """By name, contenders that train their own copy of one model for `steps` steps on the same tokens; each returns
    their number."""
    import numpy as np

    from repro.models import gpt2_mini
    from repro.training import Sequences

    stream = np.random.default_rng(0).integers(vocabulary, size=(steps + 2) * batch_size * length)
    sequences = Sequences(stream, length, batch_size)

    def fresh():
        torch.manual_seed(0)
        return gpt2_mini(n_layer, width, heads, vocabulary, length)

    models = {name: fresh() for name in (TRAINER, LOOP, SINGLE, HALF)}
    return {TRAINER: trainer(models[TRAINER], sequences, steps),
            LOOP: lambda: loop(models[LOOP], sequences, steps),
            SINGLE: lambda: ours(models[SINGLE], sequences, steps, length),
            HALF: lambda: ours(models[HALF], sequences, steps, length, precision="bf16")}


def trainer(model, sequences, steps: int, **settings) -> Callable[[], int]:
    """transformers.Trainer with its defaults except for `settings`, ready to train: its arguments and examples are
    prepared here, untimed."""
    from transformers import PrinterCallback, Trainer, TrainingArguments

    examples = [{"input_ids": row[:-1], "labels": row[:-1]} for k in range(steps) for row in sequences.batch(k)]
    folder = tempfile.TemporaryDirectory()  # removed with the returned function
    arguments = TrainingArguments(
        folder.name, per_device_train_batch_size=sequences.batch_size, max_steps=steps, save_strategy="no",
        report_to="none", logging_strategy="no", disable_tqdm=True, use_cpu=not torch.cuda.is_available(), **settings)
    peer = Trainer(model, arguments, train_dataset=examples)
    peer.remove_callback(PrinterCallback)

    def train(folder=folder) -> int:
        peer.train()
        return steps * sequences.tokens_per_batch
    return train


def loop(model, sequences, steps: int) -> int:
    """A typical hand-written loop, as in nanoGPT: logits of all positions, their loss, clipping, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.train()
    for step in range(steps):
        batch = sequences.batch(step)
        logits = model(batch[:, :-1]).logits
        F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return steps * sequences.tokens_per_batch


def ours(model, sequences, steps: int, window: int, **settings) -> int:
    """repro.training.train."""
    from repro.training import TrainConfig, WindowedLM, train

    config = TrainConfig(steps * sequences.tokens_per_batch, 1e-4, warmup_steps=0, validate_every=10**12, **settings)
    return train(WindowedLM(model, window), sequences, config).tokens


def windowed(steps: int = 3, window: int = 300, n_windows: int = 20, batch_size: int = 2) -> dict[str, Callable]:
    """Plain and recurrent training of the base model of `small`, on the same windows."""
    import numpy as np

    from repro.models import gpt2_mini
    from repro.recurrence import RecurrentLM
    from repro.study import experiment
    from repro.training import Sequences

    small = experiment("pretrain-gpt2-mini").plan("small")[0]
    torch.manual_seed(0)
    plain = gpt2_mini(small.n_layer, small.n_embd, small.n_head, small.vocab_size)
    recurrent = RecurrentLM(plain.config)
    stream = np.random.default_rng(0).integers(small.vocab_size, size=(batch_size + 2) * window * n_windows)
    sequences = Sequences(stream, window * n_windows, batch_size)
    return {"plain": lambda: ours(plain, sequences, steps, window),
            "recurrent": lambda: ours(recurrent, sequences, steps, window)}


def gemma_rows(folders: tuple[Path, Path] | None, absent: str, rounds: int, clock: Callable[[], float]
               ) -> tuple[dict, dict]:
    """The speeds and ratios of Gemma, as in `main`. If Gemma is not here, `absent` says how to get it.

    Loading is timed from the second time on, when the vocabulary is already cut and the files have been read once. It
    is measured in wall-clock time, because it also waits for the disk. Fetching again is timed only for a folder that
    was fetched.
    """
    from repro.bench import compare
    from repro.bf16 import has_bf16
    from repro.models.pretrained import fetch, home, is_here, load

    native = has_bf16()
    own, against = f"Gemma: {HALF if native else SINGLE}", "Gemma: recurrent / plain"
    loading, fetching = "Gemma: seconds to load it again", "Gemma: seconds to fetch it again"
    same = {f"{own} / {TRAINER_HALF}": (None,)} if native else {}
    bounds = {f"{own} / {TRAINER}": (2.0 if native else None,), **same, against: (0.9,),
              f"{loading}, whole": (10.0, "at most"), f"{loading}, with a cut vocabulary": (10.0, "at most"),
              fetching: (0.1, "at most")}
    if absent:
        return {}, {name: (absent, *bound) for name, bound in bounds.items()}
    whole, cut = folders
    found = compare(gemma(cut), rounds, clock=clock)
    speed = {name: one["tokens_per_second"] for name, one in found.items()}
    fetched = is_here(whole.name) and whole.samefile(home() / whole.name)
    measured = {**{f"{own} / {peer}": speed["plain"] / speed[peer] for peer in speed if peer.startswith(TRAINER)},
                against: speed["recurrent"] / speed["plain"], f"{loading}, whole": seconds(lambda: load(whole), rounds),
                f"{loading}, with a cut vocabulary": seconds(lambda: load(cut), rounds),
                fetching: seconds(lambda: fetch(whole.name, progress=False), rounds) if fetched else
                f"{whole.name} was given as a folder, not fetched"}
    return ({f"Gemma: {name}": one for name, one in found.items()},
            {name: (value, *bounds[name]) for name, value in measured.items()})


def study_folders() -> tuple[Path, Path]:
    """The folders of Gemma 3 270M and of the same model with the vocabulary of the study's texts. Raises ReproError,
    with the command to get it, if it is not here."""
    from repro.models.pretrained import folder, is_here
    from repro.papers.base.pretraining import cut_model
    from repro.study import experiment

    if not is_here(PUBLISHED):
        raise ReproError(f"not here: repro models fetch {PUBLISHED}")
    return folder(PUBLISHED), cut_model(experiment("pretrain-gpt2-mini").plan("pretrained")[0])


def seconds(work: Callable[[], object], rounds: int) -> float:
    """The median seconds of a call, not counting the first."""
    took = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def gemma(folder: Path, steps: int = 1, window: int = 300, n_windows: int = 4, batch_size: int = 2
          ) -> dict[str, Callable[[], int]]:
    """A step on the same windows by a Gemma in a folder: by the Trainer, by ours, and by ours with a recurrence module
    in the middle layer. Attention uses plain products, except for fused attention with the module in float32. On
    processors with bfloat16, ours train in bfloat16, and the Trainer in both float32 and bfloat16. If the folder names
    an opening token, ours also read it, as in the study's runs."""
    import numpy as np

    from repro.bf16 import has_bf16
    from repro.models import load_causal_lm
    from repro.models.pretrained import load
    from repro.recurrence import RecurrenceConfig, RecurrentLM
    from repro.training import Sequences

    native = has_bf16()
    peers = {name: load(folder)[0] for name in (TRAINER, *([TRAINER_HALF] if native else []))}
    config = peers[TRAINER].config
    stream = np.random.default_rng(0).integers(config.vocab_size, size=(batch_size + 2) * window * n_windows)
    rows, sequences = (Sequences(stream, length, count) for length, count in (
        (window, batch_size * n_windows), (window * n_windows, batch_size)))
    half = {"precision": "bf16"} if native else {}
    models = {"plain": load_causal_lm(folder), "recurrent": RecurrentLM.from_pretrained(folder, RecurrenceConfig(
        config.num_hidden_layers // 2, residual=True, normalize=True), dtype=torch.float32)}
    for model in (*peers.values(), models["plain"]):
        model.set_attn_implementation("eager")  # a model with a module has its own attention
    return {name: trainer(model, rows, steps, bf16=name == TRAINER_HALF) for name, model in peers.items()} | {
        name: lambda model=model: ours(model, sequences, steps, window, **half) for name, model in models.items()}


def optimisers(base, tokens: int, steps: int, rounds: int, clock: Callable[[], float] = time.perf_counter,
               rate: float = 3e-3) -> dict:
    """Validation losses (nats per token) of AdamW and Muon after `tokens`, and of Muon after the time that AdamW took.

    base: the config of the base model whose text, tokenizer and sizes are used. Both train at the same learning rate,
    in bf16 if the processor has it. Their speeds are measured in turns, so that "equal seconds" means the time on an
    otherwise idle machine. After that time, Muon has seen as many tokens as its speed allows.
    """
    from repro.bench import compare
    from repro.bf16 import has_bf16
    from repro.data import tokeniser
    from repro.data import tokens as corpus_tokens
    from repro.evaluation import perplexity
    from repro.models import gpt2_mini
    from repro.training import Sequences, TrainConfig, WindowedLM, train

    coder = tokeniser(base.tokeniser, base.vocab_size, base.tokeniser_corpora)
    text = corpus_tokens(base.corpus, "train", coder).ids
    held_out = corpus_tokens(base.corpus, "validation", coder).ids[:20_000]
    sequences = Sequences(text, base.sequence, base.batch_size)
    precision = "bf16" if has_bf16() else "no"
    names = {"AdamW": "adamw", "Muon": "muon"}

    def fresh():
        torch.manual_seed(0)
        return gpt2_mini(base.n_layer, base.n_embd, base.n_head, coder.vocab_size, base.n_positions, coder.bos)

    def loss(objective):
        score = perplexity(objective.model, held_out, base.sequence, 0)
        return score.nll / score.n_scored

    def curve(optimizer):
        config = TrainConfig(tokens, rate, validate_every=max(1, tokens // 10), precision=precision,
                             optimizer=optimizer)
        return train(WindowedLM(fresh(), base.sequence), sequences, config, validate=loss).curves["validation_loss"]

    models = {name: fresh() for name in names}
    speeds = compare({name: lambda name=name: ours(models[name], sequences, steps, base.sequence, precision=precision,
                                                   optimizer=names[name]) for name in names}, rounds,
                     clock=clock)
    curves = {name: curve(optimizer) for name, optimizer in names.items()}
    share = speeds["Muon"]["tokens_per_second"] / speeds["AdamW"]["tokens_per_second"]
    return {"speeds": speeds, "curves": curves, "learning_rate": rate, "precision": precision,
            "equal tokens": {name: curves[name][-1][1] for name in names},
            "equal seconds": {"AdamW": curves["AdamW"][-1][1],
                              "Muon": after(curves["Muon"], min(1.0, share) * curves["Muon"][-1][0])}}


def after(curve: list[list[float]], tokens: float) -> float:
    """The value of a curve of [tokens, value] at `tokens`, interpolated linearly."""
    import numpy as np

    return float(np.interp(tokens, *zip(*curve, strict=True)))


@contextmanager
def one_thread():
    """In the `with` block, torch uses one thread, as in each of several simultaneous training runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
