"""How every model of summaries is trained: on pairs of a text and its summary, in batches by length."""

from functools import partial


def fit(config, context, objective, pairs, separator: int, description: str, unit: str):
    """Train `objective` on `pairs["train"]` as its config says; return the result and a function from an objective to
    its loss on `pairs["validation"]`, in nats per token of the summaries.

    pairs: for each split (text, summary, whether the summary is whole), as token ids. separator: the id between the
    two, which also ends a whole summary. description and unit are those of the progress bar.
    """
    from repro.evaluation.summaries import nats, padded
    from repro.training import LengthBuckets, TrainConfig, train

    n = sum(len(target) + ended for _, target, ended in pairs["validation"])

    def validate(objective) -> float:
        return float(nats(objective.model, pairs["validation"], separator).sum()) / n

    batches = LengthBuckets(pairs["train"], [len(given) for given, *_ in pairs["train"]],
                            partial(padded, separator=separator), config.batch_size, config.seed)
    total = config.epochs * len(pairs["train"])
    settings = TrainConfig(
        total, config.learning_rate, int(config.warmup_share * total / config.batch_size), "linear",
        config.weight_decay, validate_every=len(pairs["train"]), precision=config.precision, seed=config.seed,
        optimizer=config.optimizer, decayed=config.decayed)
    with context.progress(total, description, unit) as bar:
        return train(objective, batches, settings, context.folder / "training", validate, bar), validate
