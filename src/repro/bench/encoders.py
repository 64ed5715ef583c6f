"""Encoders compared with those of transformers: a converted Longformer, a step on masked tokens (RobertaForMaskedLM
with labels), and LED in training and in writing summaries. Also a question reader with h_prev compared with one
without.

Ours is trained with an output layer on the masked tokens only, transformers' with labels for all positions; the speed
of ours with labels for all positions is also reported. For classification, a converted BERT of MiniLM's size is
compared with transformers' Longformer, and batches of similar length with shuffled ones. Coreference scoring is timed
on as many mentions as LitBank has.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from repro.bench.training import one_thread

OURS, SAME_CALL, THEIRS = "ours, masked tokens alone", "ours, labels", "LongformerForMaskedLM, labels"
MASKED, LABELS = "masked tokens alone", "RobertaForMaskedLM, labels"
RECURRENT, DISJOINT = "recurrent reader", "disjoint reader"
OURS_LED, THEIRS_LED = "LED", "LEDForConditionalGeneration"
BODY, THEIR_BODY = "ours, states", "LongformerModel, states"
BY_LENGTH, SHUFFLED = "batches by length", "padding to the longest"
SCORED = "coreference scores (mentions)"
MINILM = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536,
          "vocab_size": 30_522, "max_position_embeddings": 512}
# Wordpieces of IMDB's reviews at 32 evenly spaced quantiles, from the record of `context-lengths`.
REVIEWS = (57, 78, 100, 122, 137, 144, 150, 156, 161, 167, 173, 180, 188, 195, 205, 214, 225, 237, 251, 265, 281, 301,
           324, 347, 378, 409, 450, 503, 567, 661, 792, 1071)
LITBANK = 100, 291, 79  # documents, mentions of each, clusters of each


def main(json_path=None, n_layer: int = 6, width: int = 256, heads: int = 4, vocabulary: int = 8192, n: int = 4096,
         window: int = 512, globals_: int = 24, piece: int = 512, batch_size: int = 8, questions: int = 4,
         windows: int = 3, led_window: int = 1024, summary: int = 128, beams: int = 4, rounds: int = 3,
         precision: str = "no", bert: Mapping[str, int] = MINILM, bert_window: int = 256,
         reviews: Sequence[int] = REVIEWS, annotated: tuple[int, int, int] = LITBANK) -> dict:
    """Time the contenders in turns, forward and backward, on one thread; precision: "no" (float32) or "bf16".

    On a CPU, time is processor time; with one thread it equals wall-clock time if nothing else runs.

    n, window: tokens of a long text and keys around each. globals_: number of its tokens that are global, spread
    evenly. piece, batch_size: length and number of the texts that RoBERTa reads at once. questions, windows: input of
    the question readers, each window with `piece` tokens. led_window: window of an LED with `n_layer` layers on both
    sides, which reads `n` tokens. summary, beams: tokens that it writes, and the beams of its search. bert,
    bert_window: the size of the BERT converted for classification, and its window. reviews: their lengths. annotated:
    documents, mentions of each and clusters of each, for coreference scores.
    """
    from repro.bench import compare, report

    settings = {"n_layer": n_layer, "width": width, "heads": heads, "vocabulary": vocabulary, "n": n, "window": window,
                "globals": globals_, "piece": piece, "batch_size": batch_size, "questions": questions,
                "windows": windows, "led_window": led_window, "summary": summary, "beams": beams, "rounds": rounds,
                "precision": precision, "bert": dict(bert), "bert_window": bert_window, "reviews": list(reviews),
                "annotated": list(annotated)}
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time

    def fresh():
        from repro.models import roberta_mini

        torch.manual_seed(0)
        return roberta_mini(n_layer, width, heads, vocabulary, piece)

    led_trains, led_writes = summaries(n_layer, width, heads, vocabulary, n, led_window, summary, beams, precision)
    measured = {
        f"{n:,} tokens": (long_texts(fresh, n, window, 0, precision), OURS, THEIRS, 1.7),
        f"{n:,} tokens, {globals_} global": (long_texts(fresh, n, window, globals_, precision), OURS, THEIRS, 1.7),
        f"{piece} tokens": (masked_tokens(fresh, batch_size, piece, precision), MASKED, LABELS, 1.15),
        "questions": (readers(fresh, questions, windows, piece, precision), RECURRENT, DISJOINT, 0.8),
        f"{n:,} tokens, window {led_window:,}, to {summary}": (led_trains, OURS_LED, THEIRS_LED, 1.5),
        f"{n:,} tokens to {summary}, {beams} beams": (led_writes, OURS_LED, THEIRS_LED, 1.0),
        f"{n:,} tokens, BERT": (converted(bert, n, bert_window, precision), BODY, THEIR_BODY, 1.7),
        "reviews": (classified(bert, reviews, batch_size, bert_window, precision), BY_LENGTH, SHUFFLED, 1.5)}
    speeds, ratios = {}, {}
    with one_thread():
        for title, (works, first, second, bound) in measured.items():
            found = compare(works, rounds, clock=clock)
            speeds |= {f"{title}: {name}": speed for name, speed in found.items()}
            for name in works:
                if name != second:
                    ratio = found[name]["tokens_per_second"] / found[second]["tokens_per_second"]
                    ratios[f"{title}: {name} / {second}"] = ratio, bound if name == first else None
        speeds |= compare({SCORED: coreference(*annotated)}, rounds, clock=time.process_time)
    mentions = annotated[0] * annotated[1]
    seconds = mentions / speeds[SCORED]["tokens_per_second"]
    ratios[f"seconds to score {mentions:,} mentions"] = seconds, 1.0, "at most"
    return report("encoders", settings, f"Encoders, {n_layer} layers of width {width}, window {window}", speeds, ratios,
                  json_path)


def step(loss: Callable[[], Tensor], model: nn.Module, tokens: int, precision: str) -> Callable[[], int]:
    """A forward and backward pass; the returned function runs it and returns the number of tokens read."""
    device = next(model.parameters()).device

    def work() -> int:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            found = loss()
        found.backward()
        model.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return tokens
    return work


def placed(model: nn.Module) -> nn.Module:
    """The model in training mode, on the GPU if there is one."""
    return model.train().to("cuda" if torch.cuda.is_available() else "cpu")


def masked_batch(rows: int, length: int, vocabulary: int) -> dict[str, Tensor]:
    """Random text with masks as in training (`repro.training.masked`), and also `labels` (rows, length)."""
    import numpy as np

    from repro.training import masked

    draw = np.random.default_rng(0)
    batch = masked(draw.integers(4, vocabulary - 1, (rows, length)), vocabulary, draw)
    labels = torch.full_like(batch["ids"], -100).scatter_(1, batch["positions"], batch["targets"])
    return batch | {"labels": labels}


def long_texts(fresh: Callable, n: int, window: int, globals_: int, precision: str) -> dict[str, Callable[[], int]]:
    """By name, contenders that learn to predict the masked tokens of one long text, all from the same weights."""
    from transformers import LongformerForMaskedLM

    from repro.models import Longformer
    from repro.training import MaskedLM

    own = Longformer.from_roberta(fresh(), n, window)
    peer = LongformerForMaskedLM(own.config)
    peer.load_state_dict(own.state_dict())
    own, peer = placed(own), placed(peer)
    batch = {name: x.to(own.device) for name, x in masked_batch(1, n, own.config.vocab_size).items()}
    chosen = None
    if globals_:
        chosen = torch.zeros_like(batch["ids"])
        chosen[:, [k * n // globals_ for k in range(globals_)]] = 1
        batch["global_attention_mask"] = chosen

    def labelled(model):
        return lambda: model(batch["ids"], global_attention_mask=chosen, labels=batch["labels"]).loss

    return {name: step(loss, model, n, precision) for name, loss, model in (
        (OURS, lambda: MaskedLM(own)(batch), own), (SAME_CALL, labelled(own), own), (THEIRS, labelled(peer), peer))}


def masked_tokens(fresh: Callable, batch_size: int, length: int, precision: str) -> dict[str, Callable[[], int]]:
    """By name, contenders that predict the masked tokens of the same text: with our objective, and with transformers'
    labels."""
    from repro.training import MaskedLM

    own, peer = placed(fresh()), placed(fresh())
    if precision == "bf16" and own.device.type == "cpu":
        own.set_attn_implementation("eager")  # as in training: plain products, which are faster
    batch = {name: x.to(own.device) for name, x in masked_batch(batch_size, length, own.config.vocab_size).items()}
    tokens = batch["ids"].numel()
    return {MASKED: step(lambda: MaskedLM(own)(batch), own, tokens, precision),
            LABELS: step(lambda: peer(input_ids=batch["ids"], labels=batch["labels"]).loss, peer, tokens, precision)}


def readers(fresh: Callable, questions: int, windows: int, length: int, precision: str) -> dict[str, Callable[[], int]]:
    """By name, contenders that learn from the same questions: window after window with h_prev, and all windows at
    once."""
    from repro.recurrence import RecurrentRoberta
    from repro.training import Answers

    base = fresh()
    models = {name: RecurrentRoberta(base.config) for name in (RECURRENT, DISJOINT)}
    models[DISJOINT].load_state_dict(models[RECURRENT].state_dict())
    shape = questions, windows, length
    draw = torch.Generator().manual_seed(0)
    text = torch.zeros(shape, dtype=torch.bool)
    text[:, :, length // 8:-1] = True  # after a question
    starts, ends = torch.zeros_like(text), torch.zeros_like(text)
    starts[:, windows // 2, length // 2] = ends[:, windows // 2, length // 2 + 2] = True
    batch = {"windows": torch.randint(4, base.config.vocab_size - 1, shape, generator=draw), "text": text,
             "attention_mask": torch.ones_like(text), "starts": starts, "ends": ends,
             "types": torch.zeros(questions, dtype=torch.int64)}
    works = {}
    for name, model in models.items():
        objective = placed(Answers(model, recurrent=name == RECURRENT))
        given = {key: x.to(model.device) for key, x in batch.items()}
        works[name] = step(lambda objective=objective, given=given: objective(given), objective, text.numel(),
                           precision)
    return works


def summaries(n_layer: int, width: int, heads: int, vocabulary: int, n: int, window: int, summary: int, beams: int,
              precision: str) -> tuple[dict[str, Callable[[], int]], dict[str, Callable[[], int]]]:
    """By name, contenders that learn from a long text and its summary, and contenders that write one by beam search;
    all have the same weights and a global first token."""
    from transformers import LEDConfig, LEDForConditionalGeneration

    from repro.models import LED

    torch.manual_seed(0)
    own = LED(LEDConfig(
        vocab_size=vocabulary, d_model=width, encoder_layers=n_layer, decoder_layers=n_layer,
        encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width, max_encoder_position_embeddings=n, max_decoder_position_embeddings=summary + 1,
        attention_window=window, dropout=0.0))
    peer = LEDForConditionalGeneration(own.config)
    peer.load_state_dict(own.state_dict())
    draw = torch.Generator().manual_seed(0)
    ids, labels = (torch.randint(4, vocabulary, (1, size), generator=draw) for size in (n, summary))
    trains, writes = {}, {}
    for name, model in ((OURS_LED, own), (THEIRS_LED, peer)):
        given, wanted = ids.to(placed(model).device), labels.to(model.device)
        first = torch.zeros_like(given).index_fill(1, torch.tensor([0], device=model.device), 1)
        trains[name] = step(lambda model=model, given=given, first=first, wanted=wanted: model(
            given, global_attention_mask=first, labels=wanted).loss, model, n, precision)
        writes[name] = writing(model, given, first, summary, beams, precision)
    return trains, writes


def writing(model: nn.Module, ids: Tensor, first: Tensor, summary: int, beams: int, precision: str) -> Callable:
    """A beam search for a summary of this many tokens; the returned function runs it and returns the number of tokens
    read."""
    def work() -> int:
        model.eval()
        with torch.no_grad(), torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bf16"):
            model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), global_attention_mask=first,
                           num_beams=beams, min_new_tokens=summary, max_new_tokens=summary)
        model.train()
        return ids.numel()
    return work


def short_bert(size: Mapping[str, int]) -> nn.Module:
    """A BERT of this size with fresh weights, always the same, and no dropout."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return BertModel(BertConfig(**size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def converted(size: Mapping[str, int], n: int, window: int, precision: str) -> dict[str, Callable[[], int]]:
    """By name, contenders that encode one long text whose first token is global, all with the same weights."""
    from transformers import LongformerModel

    from repro.models import longformer_from

    own = longformer_from(short_bert(size), max(n, size["max_position_embeddings"]), window)
    peer = LongformerModel(own.config, add_pooling_layer=False)
    peer.load_state_dict(own.longformer.state_dict())
    own, peer = placed(own), placed(peer)
    ids = torch.randint(1, size["vocab_size"], (1, n), generator=torch.Generator().manual_seed(0)).to(own.device)
    chosen = (torch.arange(n, device=ids.device) == 0).long()[None]
    states = {BODY: lambda: own.encode(ids, global_attention_mask=chosen),
              THEIR_BODY: lambda: peer(ids, global_attention_mask=chosen).last_hidden_state}
    return {name: step(lambda one=one: one().float().square().mean(), model, n, precision)
            for (name, one), model in zip(states.items(), (own, peer), strict=True)}


def classified(size: Mapping[str, int], lengths: Sequence[int], batch_size: int, window: int,
               precision: str) -> dict[str, Callable[[], int]]:
    """By name, contenders that learn the labels of the same texts, each text once: in batches of similar length, and in
    shuffled ones.

    Each batch is padded to its longest text; padding is not counted as tokens.
    """
    from repro.models import longformer_from
    from repro.training import LengthBuckets

    draw = torch.Generator().manual_seed(0)
    texts = [torch.randint(1, size["vocab_size"], (n,), generator=draw) for n in lengths]
    own = longformer_from(short_bert(size), max(*lengths, size["max_position_embeddings"]), window)
    model = placed(nn.ModuleDict({"encoder": own, "head": nn.Linear(size["hidden_size"], 2)}))

    def padded(rows: list[Tensor]) -> Tensor:
        return nn.utils.rnn.pad_sequence(rows, batch_first=True).to(own.device)

    def learn(batches: LengthBuckets) -> Callable[[], int]:
        def passes() -> int:
            tokens = 0
            for k in range(batches.per_epoch):
                ids = batches.batch(k)
                tokens += step(lambda ids=ids: loss(ids), model, int((ids > 0).sum()), precision)()
            return tokens
        return passes

    def loss(ids: Tensor) -> Tensor:
        first = torch.zeros_like(ids)
        first[:, 0] = 1
        states = own.encode(ids, (ids > 0).long(), first)
        return nn.functional.cross_entropy(model["head"](states[:, 0]).float(), ids[:, 1] % 2)

    return {name: learn(LengthBuckets(texts, lengths, padded, batch_size, pool=pool))
            for name, pool in ((BY_LENGTH, 50), (SHUFFLED, 1))}


def coreference(documents: int, mentions: int, clusters: int) -> Callable[[], int]:
    """A scoring of predicted clusters: a few large and many small ones, with a tenth of the mentions lost and a fifth
    moved."""
    import random

    from repro.evaluation import coreference_scores

    draw, gold, predicted = random.Random(0), [], []
    for _ in range(documents):
        cluster_of = {(k, k + draw.randrange(3)): int(clusters * draw.random() ** 3) for k in range(mentions)}
        moved = {mention: draw.randrange(clusters) if draw.random() < 0.2 else number
                 for mention, number in cluster_of.items() if draw.random() < 0.9}
        for where, side in ((cluster_of, gold), (moved, predicted)):
            grouped = {}
            for mention, number in where.items():
                grouped.setdefault(number, []).append(mention)
            side.append(list(grouped.values()))

    def work() -> int:
        coreference_scores(gold, predicted)
        return documents * mentions
    return work
