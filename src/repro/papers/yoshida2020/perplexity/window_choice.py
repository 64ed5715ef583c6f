"""The window size at which overlap helps our baseline about as much as the paper's. Not in the paper.

It is measured on validation text, with the baseline that was fine-tuned on disjoint windows of 300 tokens, before any
recurrent model is trained. The window chosen here becomes the second window of `finetuning`.
"""

from pydantic import Field, model_validator

from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.base.gpt2_mini import PROCESS, RATE, tokeniser_of
from repro.papers.yoshida2020.perplexity.context_use import tuned
from repro.study import Artifact, Estimate, Experiment, Outcome, Record, RunConfig, register
from repro.study.published import published


class Config(RunConfig):
    """The window sizes that are tried, each without overlap and with an overlap of a sixth."""

    windows: tuple[int, ...] = Field((48, 64, 96, 128), min_length=1)  # tokens

    @model_validator(mode="after")
    def _fits(self):
        context = PRETRAINING.plan(self.scale)[0].n_positions
        for window in self.windows:
            if not 6 <= window <= context:
                raise ValueError(f"windows contains {window} tokens; use sizes from 6, so that a sixth is an overlap, "
                                 f"to the model's context of {context}")
        return self


def execute(config, context) -> Outcome:
    from repro.data import tokens
    from repro.evaluation import score_documents
    from repro.models import load_causal_lm

    _, folder = context.need(tuned(config))
    model = load_causal_lm(folder / "model")
    text = tokens(config.corpus, "validation", tokeniser_of(PRETRAINING.plan(config.scale)[0]))
    curve = []
    for window in config.windows:
        plain, overlapped = (score_documents(model, text, window, overlap)[0].per_word for overlap in (0, window // 6))
        curve.append([window, 1 - overlapped / plain])
    return Outcome({f"gain_{window}": gain for window, gain in curve},
                   {f"gain_{window}": "of perplexity per word" for window, _ in curve}, "baseline",
                   {"gain_by_window": curve})


def estimate(config) -> Estimate:
    from repro.evaluation import flops_per_token

    base = PRETRAINING.plan(config.scale)[0]
    per_token = sum(flops_per_token(base.n_layer, base.n_embd, window, overlap) + 2 * base.n_embd * base.vocab_size
                    for window in config.windows for overlap in (0, window // 6))
    n, flops = PRETRAINING.estimate(base).parameters, 400_000 * per_token
    return Estimate(n, 0, flops, PROCESS + 4 * n, flops / RATE[config.scale])


def papers_gain() -> float:
    """The share by which an overlap of 50 of 300 tokens lowers the paper baseline's validation perplexity (Table 1)."""
    table = published("yoshida2020_table1_wikitext103").query("not model.str.contains('recurrence')")
    at = {int(row["overlap_tokens"]): float(row["validation_perplexity_per_word"])
          for row in table.to_dict("records")}
    return 1 - at[50] / at[0]


def chosen(record: Record) -> int:
    """The window whose gain is nearest to the paper's."""
    return int(min(record.curves["gain_by_window"], key=lambda point: abs(point[1] - papers_gain()))[0])


def choice_table(context):
    """The baseline's gain from an overlap of a sixth at each window, next to the paper's at 300."""
    import pandas

    rows = [{"source": "paper", "T": "300", "overlap": "50", "gain": f"{papers_gain():.1%}", "chosen": ""}]
    for scale in context.scales:
        for record in context.records(scale):
            rows += [{"source": scale, "T": f"{window:.0f}", "overlap": f"{window // 6:.0f}", "gain": f"{gain:.1%}",
                      "chosen": "yes" if window == chosen(record) else ""}
                     for window, gain in record.curves["gain_by_window"]]
    return pandas.DataFrame(rows)


EXPERIMENT = Experiment(
    name="choose-window", paper="yoshida2020", summary="The window at which overlap gains what it gains the paper.",
    config=Config, execute=execute, estimate=estimate, scales={"small": {"corpus": "wikitext-103"}},
    needs=lambda config: [tuned(config)])
ARTIFACT = Artifact(id="choose-window", paper="yoshida2020", chapter="06_wikitext103", experiment=EXPERIMENT.name,
                    title="Gain of the fine-tuned baseline from an overlap of a sixth of the window",
                    source="not in the paper; declared before the runs", build=choice_table)
register(EXPERIMENT, ARTIFACT)
