"""Recurrence against the fine-tuned baseline on WikiText-103 (Yoshida et al. 2020, section 4.2 and Table 1)."""

from repro.study import Artifact, Claim, register
from repro.study.catalog.finetune_gpt2 import SCALES
from repro.study.recurrence_runs import evaluation
from repro.study.recurrence_tables import gains, judge_gain, judge_overlap, judge_shrinking, perplexities

OVERLAPS = {"smoke": (0, 3, 5), "small": (0, 5, 10, 30, 50), "medium": (0, 5, 10, 30, 50),
            "paper": (0, 5, 10, 30, 50)}


def grid(scale: str) -> list[dict]:
    """Table 1, and as a control a baseline that was trained on the overlapping windows it is tested on."""
    table = [{"model": model, "overlap": overlap} for model in ("baseline", "recurrent") for overlap in OVERLAPS[scale]]
    return table + [{"model": "baseline", "overlap": max(OVERLAPS[scale]), "train_overlap": max(OVERLAPS[scale])}]


<<<<<<< HEAD
EVALUATION = evaluation("recurrence-wikitext103", "Word perplexity at every overlap (Table 1).", SCALES, grid,
                        {"smoke": 35_000, "small": 850_000, "medium": 600_000, "paper": 536_000})
register(EVALUATION)
=======
def candidates(config):
    """The short fine-tunings, one per learning rate, that choose the rate of `config`."""
    if config.learning_rate is not None:
        return []
    short = {"overlap": 0, "epochs": config.epochs * config.selection_share, "selection_share": 1.0}
    return [config.model_copy(update={**short, "learning_rate": rate, "learning_rates": (rate,)})
            for rate in config.learning_rates]  # which rates stand beside a candidate does not change it


def finetune(config, context):
    import torch

    from repro.data import tokens
    from repro.evaluation import perplexity
    from repro.models import load_causal_lm, save_causal_lm
    from repro.recurrence import RecurrenceConfig
    from repro.training import Sequences, TrainConfig, WindowedLM, train

    pretraining = PRETRAINING.plan(config.scale)[0]
    coder = tokeniser_of(pretraining)
    base = config.base
    if base == "gpt2-mini":
        pretrained, folder = context.need(pretraining)
        base = folder / "model"
        if pretrained.notes["tokeniser"] != coder.fingerprint:
            raise ReproError(f"the base model {pretrained.id} was trained with another tokeniser: the texts that "
                             "made it have changed. Run `repro run pretrain-gpt2-mini --force`.")
    losses = {run.learning_rate: context.need(run)[0].metrics["validation_token_loss"] for run in candidates(config)}
    rate = min(losses, key=losses.get) if config.learning_rate is None else config.learning_rate

    torch.manual_seed(config.seed)
    module = RecurrenceConfig(config.insert_layer, config.hidden_size, config.hidden_layers, config.pool,
                              config.n_embeddings, config.insert)
    model = load_causal_lm(base, module if config.model == "recurrent" else None)
    if model.config.vocab_size != coder.vocab_size:
        raise ReproError(f"base={config.base} has {model.config.vocab_size:,} token ids, the tokeniser of scale "
                         f"{config.scale} {coder.vocab_size:,}; choose a checkpoint trained with that tokeniser.")
    text = tokens(config.corpus, "train", coder)
    held_out = tokens(config.corpus, "validation", coder).ids[:config.validation_tokens]

    def loss(objective):
        score = perplexity(objective.model, held_out, config.window, config.overlap)
        return score.nll / score.n_scored

    settings = TrainConfig(int(config.epochs * len(text.ids)), rate, config.warmup_steps, config.decay,
                           validate_every=config.validate_every, patience=config.patience, precision=config.precision,
                           seed=config.seed)
    length = config.window + (config.windows_per_sequence - 1) * (config.window - config.overlap)
    sequences = Sequences(text.ids, length, config.batch_size, config.seed)
    objective = WindowedLM(model, config.window, config.overlap, config.recompute, config.truncate)
    description = f"{config.model}, overlap {config.overlap}, rate {rate:g}"
    with context.progress(settings.tokens, description, "tokens") as bar:
        result = train(objective, sequences, settings, context.folder, loss, bar)
    save_causal_lm(model, context.folder / "model")
    notes = {"learning_rate": rate, "candidates": [[r, x] for r, x in losses.items()], "tokens": result.tokens,
             "stopped_early": result.stopped_early,
             "rate_at_edge": bool(losses) and rate in (min(losses), max(losses))}
    if config.model == "recurrent":
        notes["layer_weights"] = model.recurrence.layer_weights.tolist()
    return Outcome({"validation_token_loss": result.best_loss}, {"validation_token_loss": "nats per token"},
                   config.model, result.curves, notes=notes)


def training_run(config):
    """The fine-tuning behind an evaluation. A baseline is trained on disjoint windows and tested at all overlaps."""
    values = {**config.model_dump(), "experiment": FINETUNING.name}
    return FinetuneConfig(**{**values, "overlap": 0 if config.model == "baseline" else config.overlap})


def evaluate(config, context):
    import torch

    from repro.data import tokens
    from repro.evaluation import flops_per_token, score_documents
    from repro.models import load_causal_lm
    from repro.recurrence import MaskedOut

    run = training_run(config)
    trained, folder = context.need(run)
    model = load_causal_lm(folder / "model").to("cuda" if torch.cuda.is_available() else "cpu")
    coder = tokeniser_of(PRETRAINING.plan(config.scale)[0])
    metrics, documents = {}, {}
    for split in ("validation", "test"):
        text = tokens(config.corpus, split, coder)
        with context.progress(len(text.ids), f"scoring {split}, overlap {config.overlap}", "tokens") as bar:
            score, nll = score_documents(model, text, config.window, config.overlap, progress=bar.advance)
        documents[split] = {"nll": nll.tolist(), "n_words": text.n_words.tolist(), "n_bytes": text.n_bytes.tolist()}
        metrics |= {f"{split}_word_perplexity": score.per_word, f"{split}_token_perplexity": score.per_token,
                    f"{split}_bits_per_byte": score.bits_per_byte}
        if split == "test" and config.model == "recurrent":
            alone, _ = score_documents(MaskedOut(model), text, config.window, config.overlap)
            metrics["test_word_perplexity_masked"] = alone.per_word
    metrics["flops_per_token"] = flops_per_token(model.config.n_layer, model.config.n_embd, config.window,
                                                 config.overlap)
    units = {name: "per word" if "word" in name else "bits per byte" if "byte" in name else
             "FLOPs per scored token" if "flops" in name else "per token" for name in metrics}
    return Outcome(metrics, units, config.model, trained.curves, documents, {**trained.notes, "trained_by": trained.id})


# About how many tokens the texts have, for estimates; runs count them.
TRAINING_TOKENS = {"smoke": 600_240, "small": 3_300_000, "medium": 2_700_000, "paper": 117_000_000}
SCORED = {"smoke": 35_000, "small": 740_000, "medium": 600_000, "paper": 536_000}


def module_parameters(config, base) -> int:
    """Weights of the recurrence module; none in a baseline."""
    h, d = config.hidden_size, base.n_embd
    feedforward = (d + 1) * h + (config.hidden_layers - 1) * (h + 1) * h + (h + 1) * config.n_embeddings * d
    return base.n_layer + feedforward if config.model == "recurrent" else 0


def estimate_finetuning(config):
    from repro.recompute import Plan

    base = PRETRAINING.plan(config.scale)[0]
    n = PRETRAINING.estimate(base).parameters + module_parameters(config, base)
    tokens = int(config.epochs * TRAINING_TOKENS[config.scale])
    flops = training_flops(base, config.window) * config.window / (config.window - config.overlap) * tokens
    plan = Plan(base.n_layer, base.n_embd, base.vocab_size, n, config.window, config.windows_per_sequence,
                config.batch_size, config.recompute if config.model == "recurrent" else "none", config.precision)
    return Estimate(n, tokens, flops, PROCESS + plan.peak, flops / RATE[config.scale])


def estimate_evaluation(config):
    from repro.evaluation import flops_per_token

    base = PRETRAINING.plan(config.scale)[0]
    n = PRETRAINING.estimate(base).parameters + module_parameters(config, base)
    per_token = flops_per_token(base.n_layer, base.n_embd, config.window, config.overlap)
    flops = (per_token + 2 * base.n_embd * base.vocab_size) * SCORED[config.scale]
    return Estimate(n, 0, flops, PROCESS + 4 * n, flops / RATE[config.scale])


FINETUNING = Experiment(
    name="finetune-wikitext103", paper="yoshida2020", summary="Fine-tune the base model with and without recurrence.",
    config=FinetuneConfig, scales=FAMILY, execute=finetune, estimate=estimate_finetuning,
    grid=lambda scale: [{"model": "baseline"}] + [{"model": "recurrent", "overlap": o} for o in OVERLAPS[scale]],
    needs=lambda config: base_runs(config) + candidates(config))

EVALUATION = Experiment(
    name="recurrence-wikitext103", paper="yoshida2020", summary="Word perplexity at every overlap (Table 1).",
    config=Config, scales=FAMILY, execute=evaluate, estimate=estimate_evaluation,
    grid=lambda scale: [{"model": m, "overlap": o} for m in ("baseline", "recurrent") for o in OVERLAPS[scale]],
    needs=lambda config: [training_run(config)])

register(FINETUNING, EVALUATION)
>>>>>>> wt-recompute

PAPER, TABLE = "yoshida2020", "yoshida2020_table1_wikitext103"
register(
    Artifact(id="yoshida2020-table1", paper=PAPER, title="Word perplexity of baseline and recurrent models by overlap",
             chapter="06_wikitext103", experiment=EVALUATION.name, source="Table 1",
             build=lambda context: perplexities(context, TABLE)),
    Artifact(id="yoshida2020-table1-gain", paper=PAPER, title="What recurrence changes at equal overlap",
             chapter="06_wikitext103", experiment=EVALUATION.name, source="Table 1",
             build=lambda context: gains(context, TABLE)),
    Claim(id="yoshida2020-table1-gain-disjoint", paper=PAPER, source="Table 1", experiment=EVALUATION.name,
          sentence="Without overlap, the recurrent model has a lower test perplexity than the fine-tuned baseline.",
          where=lambda config: config.overlap == 0, judge=judge_gain),
    Claim(id="yoshida2020-table1-gain-overlapped", paper=PAPER, source="Table 1", experiment=EVALUATION.name,
          sentence="Recurrence still helps when both models read with the largest overlap of the table.",
          where=lambda config: config.overlap == max(OVERLAPS[config.scale]), judge=judge_gain),
    Claim(id="yoshida2020-table1-overlap", paper=PAPER, source="Table 1", experiment=EVALUATION.name,
          sentence="The baseline has a lower test perplexity with the largest overlap than on disjoint windows.",
          where=lambda config: config.model == "baseline" and config.overlap in (0, max(OVERLAPS[config.scale])),
          judge=judge_overlap),
    Claim(id="yoshida2020-table1-gain-shrinks", paper=PAPER, source="Table 1", experiment=EVALUATION.name,
          sentence="What recurrence gains is largest on disjoint windows and shrinks as the overlap grows.",
          where=lambda config: config.overlap in (0, max(OVERLAPS[config.scale])), judge=judge_shrinking))
