"""Overlapped perplexity compared with the strided-window loop in the documentation of transformers."""

import math


def strided_loop(model, tokens, window: int, overlap: int) -> float:
    """Total nll (nats) of `tokens` (N,) by the documented recipe: one window per call, with logits for all its
    positions.

    Each call gets one token more than the window, because the model shifts its labels itself.
    """
    import torch

    total, scored_to = 0.0, 1
    for begin in range(0, len(tokens), window - overlap):
        end = min(begin + window + 1, len(tokens))
        ids = tokens[None, begin:end]
        labels = ids.clone()
        labels[:, :scored_to - begin] = -100
        with torch.no_grad():
            total += model(ids, labels=labels).loss.item() * (end - scored_to)
        scored_to = end
        if end == len(tokens):
            break
    return total


MODELS = {  # name: layers, width, heads, vocabulary, tokens scored
    "gpt2-mini (small)": (4, 128, 4, 4_096, 6_000),
    "gpt2-mini with GPT-2's vocabulary": (4, 128, 4, 50_257, 3_000),
    "GPT-2 small": (12, 768, 12, 50_257, 500),
}


def main(json_path=None, models: dict = MODELS, window: int = 300, overlap: int = 200, rounds: int = 5) -> dict:
    """Time both on the same models and tokens; the totals must agree to 1e-5.

    The ratio that FLOPs allow is reported next to each measured ratio: both ways must read every window completely, and
    only the output layer can be skipped at positions that are not scored. Any further gain comes from memory, batches
    and threads.
    """
    import torch

    from repro.bench import compare, report
    from repro.evaluation import flops_per_token, perplexity
    from repro.models import gpt2_mini

    speeds, ratios, notes = {}, {}, {}
    for name, (n_layer, width, heads, vocabulary, n) in models.items():
        torch.manual_seed(0)
        model = gpt2_mini(n_layer, width, heads, vocabulary).eval()
        tokens = torch.randint(vocabulary, (n + 1,))
        ours, theirs = perplexity(model, tokens, window, overlap).nll, strided_loop(model, tokens, window, overlap)
        assert math.isclose(ours, theirs, rel_tol=1e-5), (ours, theirs)
        labels = f"{name}: repro.evaluation.perplexity", f"{name}: strided-window loop"
        speeds |= compare({labels[0]: lambda: perplexity(model, tokens, window, overlap).n_scored,  # noqa: B023
                           labels[1]: lambda: strided_loop(model, tokens, window, overlap) and n}, rounds)  # noqa: B023
        ratios[name] = speeds[labels[0]]["tokens_per_second"] / speeds[labels[1]]["tokens_per_second"], 3.0
        body, head = flops_per_token(n_layer, width, window, 0), 2 * width * vocabulary
        notes[name] = {"flops_allow": (body + head) / (body + head * (1 - overlap / window)), "nll": [ours, theirs]}
    settings = {"models": models, "window": window, "overlap": overlap, "rounds": rounds}
    title = f"Overlapped perplexity, T = {window}, overlap {overlap}"
    return report("evaluation", settings, title, speeds, ratios, json_path, **notes)
