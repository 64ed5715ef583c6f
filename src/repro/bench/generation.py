"""Generation token by token: a decoder that caches what it has read, compared with one that rereads it for every
token."""

import time
from functools import partial

TOKENS = 8  # tokens written
INPUTS = 500, 1_000  # tokens read before
BEAMS = 4  # texts written in parallel


def decoders() -> dict:
    """T-D and T-DMCA of the same width and layers, untrained."""
    import torch

    from repro.attention import Causal
    from repro.models import TDMCA, Decoder, DecoderConfig, TDMCAConfig

    torch.manual_seed(0)
    size = {"n_embd": 96, "n_head": 4, "position_size": 16}
    return {"T-D": Decoder(DecoderConfig(4_096, patterns=(Causal(),) * 5, **size)).eval(),
            "T-DMCA": TDMCA(TDMCAConfig(4_096, **size)).eval()}


def kept(model, texts, tokens: int) -> list:
    """Logits after `texts` (B, N) and after each of `tokens` most likely tokens that follow; each token is read
    once."""
    logits, past = model.extend(texts)
    logits_of_steps = [logits]
    for _ in range(tokens):
        logits, past = model.extend(logits_of_steps[-1].argmax(-1, keepdim=True), past)
        logits_of_steps.append(logits)
    return logits_of_steps


def again(model, texts, tokens: int) -> list:
    """The same as `kept`, but everything is read again for every token."""
    import torch

    logits_of_steps = [model(texts)[:, -1]]
    for _ in range(tokens):
        texts = torch.cat([texts, logits_of_steps[-1].argmax(-1, keepdim=True)], 1)
        logits_of_steps.append(model(texts)[:, -1])
    return logits_of_steps


def timed(way, model, texts, tokens: int) -> int:
    """Run `way` and return the number of tokens that it writes."""
    way(model, texts, tokens)
    return len(texts) * tokens


def main(json_path=None, inputs: tuple[int, ...] = INPUTS, tokens: int = TOKENS, rounds: int = 3) -> dict:
    """Time both ways on the same texts in seconds of one core; the logits must agree to 1e-3."""
    import torch

    from repro.bench import compare, report

    speeds, ratios = {}, {}
    torch.set_num_threads(1)
    with torch.no_grad():
        for name, model in decoders().items():
            for n in inputs:
                texts = torch.randint(4_096, (BEAMS, n), generator=torch.Generator().manual_seed(n))
                for one, other in zip(kept(model, texts, 4), again(model, texts, 4), strict=True):
                    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
                row = f"{name}, {n:,} tokens read before"
                labels = f"{row}: kept", f"{row}: read again"
                work = {label: partial(timed, way, model, texts, tokens)
                        for label, way in zip(labels, (kept, again), strict=True)}
                speeds |= compare(work, rounds, clock=time.process_time)
                first, second = (speeds[label]["tokens_per_second"] for label in labels)
                ratios[row] = first / second, 2.0
    settings = {"inputs": inputs, "tokens": tokens, "beams": BEAMS, "rounds": rounds}
    return report("generation", settings, "Writing: what was read is kept, or read again", speeds, ratios, json_path)
