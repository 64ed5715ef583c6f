"""Overlapped perplexity against the strided-window loop of the transformers documentation."""

import math


def strided_loop(model, tokens, window: int, overlap: int) -> float:
    """Total nll (nats) of `tokens` (N,) by the documented recipe: one window a call, logits for all its positions.

    Each call is given one token more than the window, because the model shifts its labels inside.
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


def main(json_path=None, n_tokens: int = 6_001, window: int = 300, overlap: int = 200, rounds: int = 5) -> dict:
    """Time both on the same model and tokens; the totals must agree to 1e-5."""
    import torch

    from repro.bench import compare, report
    from repro.evaluation import perplexity
    from repro.study import experiment

    small = experiment("pretrain-gpt2-mini").plan("small")[0]
    from repro.models import gpt2_mini

    torch.manual_seed(0)
    model = gpt2_mini(small.n_layer, small.n_embd, small.n_head, small.vocab_size).eval()
    tokens = torch.randint(small.vocab_size, (n_tokens,))
    ours, theirs = perplexity(model, tokens, window, overlap).nll, strided_loop(model, tokens, window, overlap)
    assert math.isclose(ours, theirs, rel_tol=1e-5), (ours, theirs)

    speeds = compare({
        "repro.evaluation.perplexity": lambda: perplexity(model, tokens, window, overlap).n_scored,
        "strided-window loop": lambda: strided_loop(model, tokens, window, overlap) and n_tokens - 1}, rounds)
    fast, slow = (found["tokens_per_second"] for found in speeds.values())
    return report(f"Overlapped perplexity, T = {window}, overlap {overlap}", speeds,
                  {"repro / strided loop": (fast / slow, 3.0)}, json_path, total_nll=[ours, theirs])
