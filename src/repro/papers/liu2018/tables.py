"""Tables 3 and 4 and Figure 3 with our results."""

import itertools
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from repro.markup import bounded
from repro.papers.liu2018.summarise import CHAPTER, EXPERIMENT, EXTRACTORS, LENGTHS, PAPER, SCALES
from repro.study import Artifact, ArtifactContext, Record, judge, published, register
from repro.study.artifacts import NOT_RUN, heading
from repro.study.published import printed_rows
from repro.study.store import Store

if TYPE_CHECKING:
    import pandas

NAMES = {"seq2seq": "seq2seq-attention", "t-ed": "T-ED", "t-d": "T-D", "t-dmca": "T-DMCA",
         "gpt2-mini": "T-D, pretrained"}
THEIRS = {"seq2seq-attention": "seq2seq", "Transformer-ED": "t-ed", "Transformer-D": "t-d",
          "Transformer-DMCA": "t-dmca"}
EXTRACTOR = "tf-idf"  # of Table 4 and Figure 3
COLUMNS = ["scale", "model", "articles", "L", "experts", "log-perplexity", "with another article's input",
           "best possible", "nats per word", "ROUGE-L F1", "repeated 3-grams", "optimizer", "seeds"]
OPTIMIZERS = {"adamw": "AdamW", "muon": "Muon"}


def architectures(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 4: the printed rows, then ours: nats per token of the lead with 95% intervals over seeds and articles.

    "best possible" is the lowest log-perplexity that the same part of the same articles allows, if it is known.
    """
    import pandas

    rows = [["the paper", NAMES[THEIRS[row["model"]]], "WikiSum", _count(row["input_length_L_tokens"]),
             row["moe_experts"] or "–", row["test_log_perplexity_per_wordpiece"], *"–––", row["rouge_l_f1"],
             *"–––"]
            for row in published("liu2018_table4_architectures").to_dict("records")]
    for scale in reversed(context.scales):
        rows += [_row(context, config, str(config.n_experts) if config.model == "t-dmca" else "–")
                 for config in context.plan(scale, extractor=EXTRACTOR) if _headline(config)]
    return articles_last(pandas.DataFrame(rows, columns=COLUMNS))


def extractors(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 3: the loss on the lead for a model that reads the text that each extractor ranks first."""
    import pandas

    rows = [["the paper", "T-ED", row["extractor"], f"WikiSum, {row['corpus']}", row["input_length_L_tokens"],
             row["test_log_perplexity_per_wordpiece"], "–", "–", row["rouge_l_f1"], "–", "–"]
            for row in published("liu2018_table3_extractive_L500").to_dict("records")]
    for scale in reversed(context.scales):
        for model, name, config in itertools.product(("t-ed", "gpt2-mini"), EXTRACTORS, context.plan(scale)):
            if has_extractor(name, model)(config):
                first, called, corpus, length, _, *numbers = _row(context, config, "")
                rows.append([first, called, name, corpus, length, *numbers[:3], numbers[4], *numbers[6:]])
    return articles_last(pandas.DataFrame(rows, columns=[
        "scale", "model", "extractor", "articles", "L", "log-perplexity", "with another article's input",
        "best possible", "ROUGE-L F1", "optimizer", "seeds"]))


def articles_last(frame: "pandas.DataFrame") -> "pandas.DataFrame":
    """Move the column of articles after the numbers, so that a narrow page shows the numbers first."""
    frame.insert(len(frame.columns) - 2, "articles", frame.pop("articles"))
    return frame


def by_length(context: ArtifactContext):
    """Figure 3: log-perplexity by L, one panel for the paper's printed points and one for each scale."""
    import pandas

    from repro.plotting import draw_table_curves

    rows = [{"source": "paper", "model": _name(row["model"].lower(), int(row["moe_experts"] or 0)),
             "length": row["input_length_L_tokens"], "value": row["test_log_perplexity_per_wordpiece"]}
            for row in printed_rows("liu2018_figure3_logperplexity_vs_L")
            if row["source"] == "Table 4" or row["input_length_L_tokens"] == "100"]
    for scale in reversed(context.scales):
        for config in context.plan(scale, extractor=EXTRACTOR):
            curve = of_the_scale(config) and config.model not in ("seq2seq", "gpt2-mini")
            found = context.records_of(config) if curve else []
            if found:
                rows.append({"source": scale, "model": _name(config.model, config.n_experts), "length": config.length,
                             "value": fmean(record.metrics["test_log_perplexity"] for record in found)})
    labels = "input tokens L", "nats per token of the lead"
    return draw_table_curves(pandas.DataFrame(rows), "length", "value", labels, log_x=True)


def samples(context: ArtifactContext) -> "pandas.DataFrame":
    """The lead of one article, and what beam search wrote for it with each model at its longest input."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        last = {}  # of each model; plans go from short inputs to long ones
        for config in context.plan(scale, extractor=EXTRACTOR):
            for record in context.records_of(config)[:1] if of_the_scale(config) else []:
                last[_name(config.model, config.n_experts)] = config.length, record.notes["samples"][0]
        for model, (length, sample) in last.items():
            if not rows or rows[-1]["scale"] != scale:
                rows.append({"scale": scale, "article": sample["title"], "written by": "its authors", "L": "–",
                             "the lead": sample["wanted"]})
            rows.append({"scale": scale, "article": sample["title"], "written by": model, "L": f"{length:,}",
                         "the lead": sample["told"]})
    return pandas.DataFrame(rows or [{"scale": context.scales[0], "the lead": NOT_RUN}])


def costs(context: ArtifactContext) -> "pandas.DataFrame":
    """Weights and operations of each model of Table 4, counted at the shortest input."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        for config in context.plan(scale, extractor=EXTRACTOR):
            if config.length == LENGTHS[scale][0] and of_the_scale(config):
                found = [record.metrics for record in context.records_of(config)[:1]]
                rows.append({"scale": scale, "model": NAMES[config.model], "L": f"{config.length:,}",
                             "weights": f"{found[0]['parameters']:,.0f}" if found else NOT_RUN,
                             "operations per article": f"{found[0]['flops']:.2e}" if found else NOT_RUN})
    return pandas.DataFrame(rows)


class Settings:
    """A record's config, with settings as attributes; a setting that the record lacks has the default of the class."""

    def __init__(self, values: dict):
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        return EXPERIMENT.config.model_fields[name].default


def of_the_scale(config: Any) -> bool:
    """Whether a run uses the corpus that a scale's claims are about."""
    return config.corpus == SCALES[config.scale]["corpus"]


def _headline(config: Any) -> bool:
    """Whether a run is in Table 4; Figure 3 draws the other lengths."""
    place = {"seq2seq": 0, "t-ed": 0, "t-d": 1, "t-dmca": 2}.get(config.model)
    return (not of_the_scale(config) or place is None or config.length == LENGTHS[config.scale][place]
            or config.n_experts > 0)


def is_run(config: Any, model: str, place: int, extractor: str = EXTRACTOR, experts: bool = False) -> bool:
    """Whether a run has this model and extractor, the length with the index `place` in LENGTHS, and experts or not."""
    return (of_the_scale(config) and config.model == model and config.length == LENGTHS[config.scale][place]
            and config.extractor == extractor and (config.n_experts > 0) is experts)


def has_extractor(name: str, model: str = "t-ed") -> Callable[[Any], bool]:
    """A filter for runs of a model on the shortest input with this extractor."""
    return lambda config: is_run(config, model, 0, name)


def _row(context: ArtifactContext, config: Any, experts: str) -> list[str]:
    found = context.records_of(config)
    first = [heading(config.scale), NAMES[config.model], config.corpus, f"{config.length:,}", experts]
    if not found:
        return [*first, *[NOT_RUN] * 6, OPTIMIZERS[config.optimizer], NOT_RUN]
    if config.n_experts:
        first[-1] += f", each used {_mean(found, 'least_used', 0, 100)} to {_mean(found, 'most_used', 0, 100)}%"
    return [*first, _interval(found, "nats"), _interval(found, "other"), _mean(found, "best_log_perplexity", 3),
            _mean(found, "test_nats_per_word", 2), _mean(found, "rouge_l", 1, 100), _mean(found, "repetition", 2),
            OPTIMIZERS[config.optimizer], str(len(found))]


def leads_at_the_limit(record: Record) -> str:
    """How many of a record's test leads reach the limit of tokens: "12 of 80".

    Valid for records that count an end token for every lead, also for leads that were cut (`end_cut_leads`).
    """
    tokens, most = record.documents["test"]["tokens"], Settings(record.config).longest_target + 1
    return f"{sum(n >= most for n in tokens)} of {len(tokens)}"


def cut_leads(scale: str, model: str = "t-ed") -> str:
    """`leads_at_the_limit` of a model, in its tokens, at a scale with `end_cut_leads`; or "not run"."""
    config = next(config for config in EXPERIMENT.plan(scale) if config.model == model and of_the_scale(config))
    found = Store.for_scale(scale).seeds(config)
    return leads_at_the_limit(found[0]) if found else NOT_RUN


def _interval(records: Sequence[Record], key: str) -> str:
    """Nats per token with the interval over seeds and articles."""
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    documents = [record.documents["test"] for record in records]
    found = judge(np.array([linearised(one[key], one["tokens"]) for one in documents]), "lower", seeds=1)
    return bounded(found.effect, found.low, found.high, ".3f")


def _mean(records: Sequence[Record], metric: str, digits: int, times: float = 1.0) -> str:
    values = [times * record.metrics[metric] for record in records if metric in record.metrics]
    return f"{fmean(values):.{digits}f}" if values else "–"


def _name(model: str, experts: int) -> str:
    return NAMES[model] + (f", {experts} experts" if experts else "")


def _count(number: str) -> str:
    return f"{int(number):,}"


OF = {"paper": PAPER, "chapter": CHAPTER, "experiment": EXPERIMENT.name}
TABLE_4 = Artifact(id="liu2018-table4", **OF, source="Table 4", build=architectures,
                   title="Log-perplexity and ROUGE-L of the leads that each model writes (ours: other models, "
                         "articles and tokens)")
FIGURE_3 = Artifact(id="liu2018-figure3", **OF, source="Figure 3", build=by_length, kind="figure",
                    title="Log-perplexity by length of the input (the paper: only the points that it prints)",
                    look_for="If a model profits from longer inputs, its line falls to the right. That alone does not "
                             "show that it uses them; compare its loss with another article's input in Table 4.")
TABLE_3 = Artifact(id="liu2018-table3", **OF, source="Table 3", build=extractors,
                   title="Log-perplexity and ROUGE-L by extractor")
SAMPLES = Artifact(id="liu2018-figure4", **OF, source="Figure 4", build=samples,
                   title="Leads of the same article, by model (ours: other articles than the paper's)")
COSTS = Artifact(id="liu2018-costs", **OF, source="section 4.2.3", build=costs,
                 title="Weights and operations of the models of Table 4")
register(TABLE_4, FIGURE_3, TABLE_3, SAMPLES, COSTS)
