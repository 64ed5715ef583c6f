"""Memory and speed of recurrent training that recomputes windows, and the cost of a token after a long text."""

import time
from statistics import median


def main(json_path=None, window: int = 300, n_windows: int = 20, batch_size: int = 2, rounds: int = 5,
         places: tuple[int, int] = (1_000, 10_000)) -> dict:
    """Measure one untrained model of the size of `small`: peaks compared with the predictions of `Plan`, and speeds.

    places: the generated tokens to compare. A token's cost is the mean over the window that ends with it.
    """
    import numpy as np
    import torch

    from repro.bench import compare, report
    from repro.models import gpt2_mini
    from repro.recurrence import RecurrentLM
    from repro.study import experiment
    from repro.training import Sequences, TrainConfig, WindowedLM, train

    small = experiment("pretrain-gpt2-mini").plan("small")[0]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    plain = gpt2_mini(small.n_layer, small.n_embd, small.n_head, small.vocab_size).to(device)
    recurrent = RecurrentLM(plain.config).to(device)
    stream = np.random.default_rng(0).integers(small.vocab_size, size=(batch_size + 2) * window * n_windows)
    sequences = Sequences(stream, window * n_windows, batch_size)

    def steps(model, recompute):
        settings = TrainConfig(sequences.tokens_per_batch, 1e-4, warmup_steps=0, validate_every=10**12)
        return train(WindowedLM(model, window, recompute=recompute), sequences, settings).tokens

    peaks = memory(recurrent, window, (1, n_windows, 64), batch_size, device)
    speeds = compare({"training, plain, nothing recomputed": lambda: steps(plain, "none"),
                      "training, recurrent, windows recomputed": lambda: steps(recurrent, "window")}, rounds)
    speeds |= generation(recurrent, window, places, rounds, device)
    speeds |= compare({"generation, plain, a whole window read for each": lambda: reread(plain, window)}, rounds)
    whole, windowed, early, late, again = (found["tokens_per_second"] for found in speeds.values())
    few, many = (row["measured"] for row in peaks if row["recompute"] == "window" and row["windows"] in (1, n_windows))
    settings = {"window": window, "n_windows": n_windows, "batch_size": batch_size, "rounds": rounds, "places": places,
                "model": small.model_dump(mode="json", include={"n_layer", "n_embd", "n_head", "vocab_size"})}
    return report(
        "memory", settings, f"Memory and speed, T = {window}, {batch_size} sequences", speeds,
        {"training: recurrent with windows recomputed / plain": (windowed / whole, 0.6),
         f"peak memory: {n_windows} windows / 1 window": (many / few, 1.3, "at most"),
         f"generation: cost of token {places[1]:,} / token {places[0]:,}": (early / late, 1.2, "at most"),
         f"generation: token {places[1]:,} / plain with overlap T - 1": (late / again, 1.0)},
        json_path, memory=peaks)


def memory(model, window: int, lengths, batch_size: int, device: str) -> list[dict]:
    """Measured and predicted peaks in bytes, one row per kind of recomputation and number of windows; also printed."""
    import torch
    from rich.console import Console
    from rich.table import Table

    from repro.recompute import RECOMPUTE, Plan, training_memory

    rows = []
    table = Table("recomputed", "windows", "measured (MiB)", "predicted (MiB)", "off by",
                  title="Peak memory of training", title_justify="left")
    for recompute in RECOMPUTE:
        for n in lengths:
            ids = torch.zeros((batch_size, n * window + 1), dtype=torch.long, device=device)
            measured = training_memory(model, ids, window, recompute)
            plan = Plan.of(model, window=window, n_windows=n, batch_size=batch_size, recompute=recompute, device=device)
            rows.append({"recompute": recompute, "windows": n, "measured": measured, "predicted": plan.peak})
            table.add_row(recompute, str(n), *(f"{size / 2**20:,.1f}" for size in (measured, plan.peak)),
                          f"{plan.peak / measured - 1:+.1%}")
    Console().print(table)
    return rows


def generation(model, window: int, places: tuple[int, int], rounds: int, device: str) -> dict:
    """Tokens per second while writing the `window` tokens that end with the token at each of `places`.

    The preceding text is read first, outside the timing, so that the places can take turns.
    """
    import torch

    found = {place: [] for place in places}
    for turn in range(4 * rounds + 1):
        for place in places:
            times = []
            hook = model.lm_head.register_forward_hook(lambda *_: times.append(time.perf_counter()))  # noqa: B023
            text = torch.zeros((1, place - window - 1), dtype=torch.long, device=device)
            model.generate(text, window + 1, window=window)
            hook.remove()
            if turn:
                found[place].append(window / (times[window] - times[0]))
    return {f"generation, recurrent, token {place:,}": {
        "tokens_per_second": median(speeds), "lowest": min(speeds), "highest": max(speeds)}
        for place, speeds in found.items()}


def reread(model, window: int, n: int = 20) -> int:
    """Write `n` tokens with plain GPT-2 at overlap T - 1: all positions shift with every token, so a cache cannot
    help."""
    import torch

    ids = torch.zeros((1, window), dtype=torch.long, device=model.device)
    with torch.no_grad():
        for _ in range(n):
            hidden = model.base_model(input_ids=ids[:, -window:], use_cache=False).last_hidden_state
            ids = torch.cat([ids, model.lm_head(hidden[:, -1:]).argmax(-1)], 1)
    return n
