"""Evaluation of fine-tuned models by word perplexity, for the perplexity tables of the recurrence chapters."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.base.gpt2_mini import PROCESS, RATE, tokeniser_of
from repro.papers.yoshida2020.perplexity import finetuning
from repro.papers.yoshida2020.perplexity.finetuning import FINETUNING, held_out, module_parameters
from repro.study import Absent, Estimate, Experiment, Outcome, Rereading, RunConfig

HEAD = 4_000  # tokens that are scored of each document in another text
WINDOWS = 4  # the fewest windows in such a document: in a shorter one, an overlap gives few tokens more context


class Config(finetuning.Config):
    """A fine-tuned model and the overlap at which it is tested.

    A recurrent model is trained with the overlap of the test and a baseline on disjoint windows, unless `train_overlap`
    is set.
    """

    train_overlap: int | None = Field(None, ge=0)  # tokens; None: as in the paper
    test_positions: Literal["all", "passed"] = "all"  # the positions of a window that are pooled in testing
    splits: tuple[Literal["validation", "test"], ...] = ("validation", "test")
    test_head: Annotated[int | None, Field(ge=2), Absent(None)] = None  # first tokens scored of a test book; None: all
    # The corpus whose text is scored, in the first `test_head` tokens of each document; None: `corpus`.
    scored_corpus: Annotated[str | None, Absent(None)] = None
    fine_tuned: Annotated[bool, Absent(True)] = True  # whether the model is fine-tuned; if not, it is the base model

    @model_validator(mode="after")
    def _is_there(self):
        if not self.fine_tuned and self.model != "baseline":
            raise ValueError(f"model is {self.model} and fine_tuned is False; only a baseline can be the base model")
        return self


def trained(config) -> finetuning.Config:
    """The fine-tuning behind an evaluation."""
    default = config.overlap if config.model == "recurrent" else 0
    values = {key: getattr(config, key) for key in finetuning.Config.model_fields}
    return finetuning.Config(**values | {
        "experiment": FINETUNING.name, "overlap": default if config.train_overlap is None else config.train_overlap})


def sources(config) -> list[RunConfig]:
    """The run that trains the model to be scored."""
    return [trained(config)] if config.fine_tuned else PRETRAINING.plan(config.scale)


def others(config) -> list[str]:
    """The corpora that a run reads in addition to the corpus of its fine-tuning."""
    return [config.scored_corpus] if config.scored_corpus else []


def scored(config, split: str, coder):
    """The tokens of a split that are scored."""
    from repro.data import tokens

    if split == "validation" and not config.scored_corpus:
        return held_out(config, coder)
    text = tokens(config.scored_corpus or config.corpus, split, coder)
    return text.heads(config.test_head, coder) if config.test_head else text


def evaluate(config, context) -> Outcome:
    from dataclasses import replace

    import torch

    from repro.evaluation import score_documents, score_other_document
    from repro.evaluation.flops import decoder_flops
    from repro.models import load_causal_lm
    from repro.recurrence import MaskedOut

    source, = sources(config)
    tuned, folder = context.need(source)
    model = load_causal_lm(folder / "model").to("cuda" if torch.cuda.is_available() else "cpu")
    if config.model == "recurrent" and not config.memory:
        model.recurrence.config = replace(model.recurrence.config, positions=config.test_positions)
    coder = tokeniser_of(PRETRAINING.plan(config.scale)[0])
    metrics, documents = {}, {}
    for split in config.splits:
        text = scored(config, split, coder)
        with context.progress(len(text.ids), f"scoring {split}, overlap {config.overlap}", "tokens") as bar:
            score, nll = score_documents(model, text, config.window, config.overlap, progress=bar.advance)
        documents[split] = {"nll": nll.tolist(), "n_words": text.n_words.tolist(), "n_bytes": text.n_bytes.tolist()}
        metrics |= {f"{split}_word_perplexity": score.per_word, f"{split}_token_perplexity": score.per_token,
                    f"{split}_bits_per_byte": score.bits_per_byte}
        if config.model == "recurrent":
            controls = {"masked": score_documents(MaskedOut(model), text, config.window, config.overlap)}
            if len(text) > 1:  # a single document has no other
                controls["other_document"] = score_other_document(model, text, config.window, config.overlap)
            for name, (control, losses) in controls.items():
                metrics[f"{split}_word_perplexity_{name}"] = control.per_word
                documents[split][f"nll_{name}"] = losses.tolist()
    metrics["flops_per_token"] = decoder_flops(model.config, config.window, config.overlap)
    if hasattr(model, "memory"):
        metrics["flops_per_token"] += model.memory.flops_per_token(config.window, config.overlap)
    units = {name: "per word" if "word" in name else "bits per byte" if "byte" in name else
             "FLOPs per scored token" if "flops" in name else "per token" for name in metrics}
    return Outcome(metrics, units, config.memory or config.model, tuned.curves, documents,
                   {**(tuned.notes if config.fine_tuned else {}), "trained_by": tuned.id})


def table_rows(baseline: Iterable[int] = (), recurrent: Iterable[int] = (), controls: Iterable[int] = (),
               first: Iterable[int] = (), literal: Iterable[int] = ()) -> list[dict[str, Any]]:
    """Grid points of a table; each argument lists the overlaps of one kind of model.

    baseline, recurrent: the two models that are compared. controls: baselines trained on the overlapping windows of the
    test. first: recurrent models with the module at the first block. The first of our six blocks is as deep as the
    second of the paper's twelve, which is the other reading of "the second layer". literal: recurrent models with the
    module exactly as in the paper, at a scale whose own module differs.
    """
    return [*({"model": "baseline", "overlap": overlap} for overlap in baseline),
            *({"model": "recurrent", "overlap": overlap} for overlap in recurrent),
            *({"model": "baseline", "overlap": overlap, "train_overlap": overlap} for overlap in controls),
            *({"model": "recurrent", "overlap": overlap, "insert_layer": 0} for overlap in first),
            *({"model": "recurrent", "overlap": overlap, "insert_layer": 1, "residual": False,
               "zero_init": False, "normalize": False} for overlap in literal)]


def estimate_evaluation(config, scored_tokens: int) -> Estimate:
    """The cost of an evaluation. scored_tokens: tokens of all splits together."""
    from repro.evaluation import flops_per_token

    base = PRETRAINING.plan(config.scale)[0]
    n = PRETRAINING.estimate(base).parameters + module_parameters(config, base)
    per_token = flops_per_token(base.n_layer, base.n_embd, config.window, config.overlap)
    readings = 3.3 if config.model == "recurrent" else 1  # plain, masked, and with another document's states
    flops = (per_token + 2 * base.n_embd * base.vocab_size) * scored_tokens * readings
    return Estimate(n, 0, flops, PROCESS + 4 * n, flops / RATE[config.scale] / 2)  # twice the rate of training


def alone(configs: Iterable[Any]) -> bool:
    """Whether these configs only compare ways in which a baseline reads, so that any language model will do."""
    return all(config.model == "baseline" and config.train_overlap is None for config in configs)


def reread(configs: Sequence[Any], name: str) -> list[dict[str, Any]]:
    """The settings with which these configs read the beginning of each document of the corpus `name`.

    The base model needs no fine-tuning to compare overlaps, so no run reads the study's corpus. Both splits would be
    the same text, so the test split is enough unless some configs do not have it.
    """
    own = {"fine_tuned": False, "corpus": name} if alone(configs) else {}
    if all("test" in config.splits for config in configs):
        own["splits"] = ("test",)
    return [{"scored_corpus": name, "test_head": config.test_head or HEAD, **own} for config in configs]


def model_of(configs: Sequence[Any]) -> str:
    """How reading another text differs from the study, in words: the models, and how much they read."""
    base = "by the base model, without fine-tuning; " if alone(configs) else ""
    heads = sorted({config.test_head or HEAD for config in configs})
    return f"{base}at most the first {' or '.join(f'{head:,}' for head in heads)} tokens of each document"


def evaluation(name: str, summary: str, scales: Mapping[str, Mapping[str, Any]],
               grid: Callable[[str], list[dict[str, Any]]], scored_tokens: Mapping[str, int]) -> Experiment:
    """An experiment that scores one fine-tuned model at each point of a grid.

    scored_tokens: about how many tokens validation and test text have together, by scale. Only estimates use it; runs
    count the tokens.
    """
    return Experiment(
        name=name, paper="yoshida2020", summary=summary, config=Config, scales=scales, execute=evaluate, grid=grid,
        estimate=lambda config: estimate_evaluation(config, scored_tokens[config.scale]),
        needs=sources, reads=others,
        rereading=Rereading(reread, lambda config: WINDOWS * config.window,
                            lambda config: tokeniser_of(PRETRAINING.plan(config.scale)[0]), note=model_of))
