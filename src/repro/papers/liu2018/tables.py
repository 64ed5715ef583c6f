"""Tables 3 and 4 and Figure 3 with our results, and what the claims about them measure."""

import itertools
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from repro.page import bounded
from repro.papers.liu2018.summarise import BASE, CHAPTER, EXPERIMENT, EXTRACTORS, LENGTHS, PAPER, SCALES
from repro.study import Artifact, ArtifactContext, Assay, Claim, Measured, Record, judge, published, register
from repro.study.artifacts import NOT_RUN, heading
from repro.study.published import printed_rows
from repro.study.store import Store

if TYPE_CHECKING:
    import numpy as np
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
    """Table 4: the printed rows, then ours: nats per token of the lead with 95 % intervals over seeds and articles.

    "best possible" is what reading so much of the same articles allows, where it is known.
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
    """Table 3: the loss of a model on the text that each extractor ranks first."""
    import pandas

    rows = [["the paper", "T-ED", row["extractor"], f"WikiSum, {row['corpus']}", row["input_length_L_tokens"],
             row["test_log_perplexity_per_wordpiece"], "–", "–", row["rouge_l_f1"], "–", "–"]
            for row in published("liu2018_table3_extractive_L500").to_dict("records")]
    for scale in reversed(context.scales):
        for model, name, config in itertools.product(("t-ed", "gpt2-mini"), EXTRACTORS, context.plan(scale)):
            if _extracted(name, model)(config):
                first, called, corpus, length, _, *told = _row(context, config, "")
                rows.append([first, called, name, corpus, length, *told[:3], told[4], *told[6:]])
    return articles_last(pandas.DataFrame(rows, columns=[
        "scale", "model", "extractor", "articles", "L", "log-perplexity", "with another article's input",
        "best possible", "ROUGE-L F1", "optimizer", "seeds"]))


def articles_last(frame: "pandas.DataFrame") -> "pandas.DataFrame":
    """Move the column of articles behind the numbers, so that a narrow page shows the numbers first."""
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
            curve = _main(config) and config.model not in ("seq2seq", "gpt2-mini")
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
            for record in context.records_of(config)[:1] if _main(config) else []:
                last[_name(config.model, config.n_experts)] = config.length, record.notes["samples"][0]
        for model, (length, sample) in last.items():
            if not rows or rows[-1]["scale"] != scale:
                rows.append({"scale": scale, "article": sample["title"], "written by": "its authors", "L": "–",
                             "the lead": sample["wanted"]})
            rows.append({"scale": scale, "article": sample["title"], "written by": model, "L": f"{length:,}",
                         "the lead": sample["told"]})
    return pandas.DataFrame(rows or [{"scale": context.scales[0], "the lead": NOT_RUN}])


def costs(context: ArtifactContext) -> "pandas.DataFrame":
    """Weights and operations of each model of Table 4, counted."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        for config in context.plan(scale, extractor=EXTRACTOR):
            if config.length == LENGTHS[scale][0] and _main(config):
                found = [record.metrics for record in context.records_of(config)[:1]]
                rows.append({"scale": scale, "model": NAMES[config.model], "L": f"{config.length:,}",
                             "weights": f"{found[0]['parameters']:,.0f}" if found else NOT_RUN,
                             "operations per article": f"{found[0]['flops']:.2e}" if found else NOT_RUN})
    return pandas.DataFrame(rows)


def gain(better: Callable[[Any], bool]) -> Callable[[list[Record]], Measured]:
    """Measures the difference in nats per token between the runs for which `better` holds and the others, by article;
    the control is the same with another article's input."""
    def measure(records: list[Record]) -> Measured:
        import numpy as np

        chosen, others = ([record for record in records if better(_Settings(record.config)) is wanted]
                          for wanted in (True, False))
        told, control = (np.array([_difference(a, b, key) for a, b in zip(chosen, others, strict=True)])
                         for key in ("nats", "other"))
        return Measured(told, control)
    return measure


class _Settings:
    """A record's config, by attribute; a setting that the record lacks has the default of the class."""

    def __init__(self, values: dict):
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        return EXPERIMENT.config.model_fields[name].default


def _difference(ours: Record, theirs: Record, key: str) -> "np.ndarray":
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    ours, theirs = ours.documents["test"], theirs.documents["test"]
    return linearised(np.subtract(ours[key], theirs[key]), ours["tokens"])


def _main(config: Any) -> bool:
    """Whether a run uses the corpus that a scale's claims are about."""
    return config.corpus == SCALES[config.scale]["corpus"]


def _headline(config: Any) -> bool:
    """Whether a run is in Table 4; Figure 3 draws the other lengths."""
    place = {"seq2seq": 0, "t-ed": 0, "t-d": 1, "t-dmca": 2}.get(config.model)
    return not _main(config) or place is None or config.length == LENGTHS[config.scale][place] or config.n_experts > 0


def _is(config: Any, model: str, place: int, extractor: str = EXTRACTOR, experts: bool = False) -> bool:
    """Whether a run has this model and this one of LENGTHS."""
    return (_main(config) and config.model == model and config.length == LENGTHS[config.scale][place]
            and config.extractor == extractor and (config.n_experts > 0) is experts)


def _row(context: ArtifactContext, config: Any, experts: str) -> list[str]:
    found = context.records_of(config)
    first = [heading(config.scale), NAMES[config.model], config.corpus, f"{config.length:,}", experts]
    if not found:
        return [*first, *[NOT_RUN] * 6, OPTIMIZERS[config.optimizer], NOT_RUN]
    if config.n_experts:
        first[-1] += f", each used {_mean(found, 'least_used', 0, 100)} to {_mean(found, 'most_used', 0, 100)} %"
    return [*first, _interval(found, "nats"), _interval(found, "other"), _mean(found, "best_log_perplexity", 3),
            _mean(found, "test_nats_per_word", 2), _mean(found, "rouge_l", 1, 100), _mean(found, "repetition", 2),
            OPTIMIZERS[config.optimizer], str(len(found))]


def leads_at_the_limit(record: Record) -> str:
    """How many of a record's test leads reach the limit of tokens: "12 of 80".

    The record counts an end token for each lead, as all records do that end leads which were cut.
    """
    tokens, most = record.documents["test"]["tokens"], _Settings(record.config).longest_target + 1
    return f"{sum(n >= most for n in tokens)} of {len(tokens)}"


def cut_leads(scale: str, model: str = "t-ed") -> str:
    """`leads_at_the_limit` of a model, in its tokens, at a scale whose runs end cut leads; or "not run"."""
    config = next(config for config in EXPERIMENT.plan(scale) if config.model == model and _main(config))
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


def printed(first: tuple[str, str], second: tuple[str, str]) -> Callable[[], float]:
    """The difference in log-perplexity between two rows of Table 4, each given by its model and its experts."""
    def effect() -> float:
        found = {(row["model"], row["moe_experts"]): float(row["test_log_perplexity_per_wordpiece"])
                 for row in printed_rows("liu2018_table4_architectures")}
        return found[first] - found[second]
    return effect


def printed_extractors(first: str, second: str) -> float:
    """The difference in log-perplexity between two rows of Table 3, for all sources together."""
    found = {row["extractor"]: float(row["test_log_perplexity_per_wordpiece"])
             for row in printed_rows("liu2018_table3_extractive_L500") if row["corpus"] == "combined"}
    return found[first] - found[second]


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

CONTROL = "the same difference when both models read another article's input"
SHARED = {"paper": PAPER, "experiment": EXPERIMENT.name, "direction": "lower", "unit": "document", "control": CONTROL,
          "told_in": "nats per token of the lead"}


def compared(id: str, better: Callable[[Any], bool], worse: Callable[[Any], bool], **fields: Any) -> Claim:
    """The claim that runs for which `better` holds have a lower log-perplexity than those for which `worse` holds."""
    def both(config: Any) -> bool:
        return better(config) or worse(config)

    assay = Assay("what the better model gains from its own article, compared with another one", both, reading)
    return Claim(id=id, **SHARED, where=both, measure=gain(better), assay=assay, **fields)


def _extracted(name: str, model: str = "t-ed") -> Callable[[Any], bool]:
    return lambda config: _is(config, model, 0, name)


def share(worse: str, better: str) -> Callable[[list[Record]], Measured]:
    """Measures how much better one extractor's input is than another's, as a share of the way from the beginning of an
    article to cheating, in nats per token over all seeds; the control is the same with another article's input.

    If that way is zero or negative, a thousandth of a nat replaces it, and no effect can be seen.
    """
    def measure(records: list[Record]) -> Measured:
        import numpy as np

        found = {name: [record for record in records if _Settings(record.config).extractor == name]
                 for name in EXTRACTORS}
        ends = (fmean(record.metrics["test_log_perplexity"] for record in found[name])
                for name in ("identity", "cheating"))
        way = max(next(ends) - next(ends), 1e-3)
        told, control = (np.array([_difference(a, b, key) for a, b in zip(found[worse], found[better], strict=True)])
                         for key in ("nats", "other"))
        return Measured(told / way, control / way, f"the way is {way:.3f} nats per token of the lead")
    return measure


def printed_share(worse: str, better: str) -> Callable[[], float]:
    """The same share in Table 3, for all sources together."""
    return lambda: printed_extractors(worse, better) / printed_extractors("identity", "cheating")


def searched(id: str, model: str, sentence: str, short: str) -> Claim:
    """The claim that a model does better with the top results of a search than with the beginning of an article."""
    return Claim(id=id, **SHARED | {"direction": "higher", "told_in": "of the way from the beginning to cheating"},
                 where=lambda config: any(_extracted(name, model)(config) for name in EXTRACTORS),
                 measure=share("identity", EXTRACTOR), source="Table 3", about=(TABLE_3.id,), sentence=sentence,
                 short=short, paper_effect=printed_share("identity", EXTRACTOR), family="liu2018-extractors-search",
                 why_no_assay="effects are shares of the way from the beginning to cheating; if that way is short, "
                              "no effect can be seen")


def cheated(id: str, model: str, sentence: str, short: str) -> Claim:
    """The claim that a model does better with text that has the lead's own bigrams than with the results of a search.

    In nats, because as a share of the way it would be one minus the effect of `searched`.
    """
    return compared(id, _extracted("cheating", model), _extracted(EXTRACTOR, model), source="Table 3",
                    about=(TABLE_3.id,), family="liu2018-extractors-cheating", sentence=sentence, short=short,
                    paper_effect=lambda: printed_extractors("cheating", EXTRACTOR),
                    criterion_before="the share of the way from the beginning to cheating that a search leaves: one "
                                     "minus the effect of the claim on a search")


def reading(records: list[Record]) -> float:
    """What the better model among the runs gains from its own article's input, in nats per token of the lead."""
    gains: dict[tuple, list[float]] = {}
    for record in records:
        settings = _Settings(record.config)
        reader = settings.model, settings.length, settings.n_experts, settings.extractor
        gains.setdefault(reader, []).append(
            record.metrics["other_log_perplexity"] - record.metrics["test_log_perplexity"])
    return max(map(fmean, gains.values()))


def _base_reads(place: int) -> Callable[[Any], bool]:
    """Whether a run uses the base model at this one of the lengths of BASE."""
    return lambda config: (_main(config) and config.model == "gpt2-mini" and config.extractor == EXTRACTOR
                           and config.length == BASE[config.scale][place])


def printed_longer() -> float:
    """What T-D gains from 4,000 tokens of input instead of 500, as printed with Figure 3 and the samples."""
    found = {row["input_length_L_tokens"]: float(row["test_log_perplexity_per_wordpiece"])
             for row in printed_rows("liu2018_figure3_logperplexity_vs_L")
             if row["model"] == "T-D" and row["confidence"] == "exact"}
    return found["4000"] - found["500"]


SEARCH = "The top results of a search for the title make a better input than the beginning of the article"
ROOM = "Extraction leaves room: text with the lead's own bigrams makes a better input than a search"
register(
    searched("liu2018-table3-tfidf", "t-ed", f"{SEARCH}.", "A search for the title beats the beginning."),
    cheated("liu2018-table3-cheating", "t-ed", f"{ROOM}.", "Text with the lead's own bigrams beats a search."),
    searched("liu2018-table3-tfidf-base", "gpt2-mini", f"{SEARCH}, also for a pretrained model.",
             "A search beats the beginning for a pretrained model, too."),
    cheated("liu2018-table3-cheating-base", "gpt2-mini", f"{ROOM}, also for a pretrained model.",
            "The lead's bigrams beat a search for a pretrained model."),
    compared("liu2018-figure3-longer-base", _base_reads(-1), _base_reads(0), source="Figure 3",
             about=(TABLE_4.id,), family="liu2018-models-base", paper_effect=printed_longer,
             sentence="A pretrained decoder that reads its input as text does better with more of it.",
             short="A pretrained decoder does better with more of the input."),
    compared("liu2018-table4-seq2seq", lambda c: _is(c, "t-ed", 0), lambda c: _is(c, "seq2seq", 0), source="Table 4",
             about=(TABLE_4.id,), family="liu2018-models",
             paper_effect=printed(("Transformer-ED", ""), ("seq2seq-attention", "")),
             sentence="A recurrent sequence-to-sequence model with attention does worse than T-ED.",
             short="A recurrent sequence-to-sequence model is worse than T-ED."),
    compared("liu2018-table4-one-text", lambda c: _is(c, "t-d", 1), lambda c: _is(c, "t-ed", 0), source="Table 4",
             about=(TABLE_4.id, FIGURE_3.id), family="liu2018-models",
             paper_effect=printed(("Transformer-D", ""), ("Transformer-ED", "")),
             sentence="A decoder that reads the input as text, longer inputs included, does better than T-ED.",
             short="A decoder that reads the input as text is better than T-ED."),
    compared("liu2018-table4-compressed", lambda c: _is(c, "t-dmca", 2), lambda c: _is(c, "t-d", 1), source="Table 4",
             about=(TABLE_4.id, FIGURE_3.id), family="liu2018-models",
             paper_effect=printed(("Transformer-DMCA", "0"), ("Transformer-D", "")),
             sentence="Memory-compressed attention, with the longer inputs that it allows, does better than T-D.",
             short="Compressed attention with longer inputs is better than T-D."),
    compared("liu2018-table4-experts", lambda c: _is(c, "t-dmca", 2, experts=True), lambda c: _is(c, "t-dmca", 2),
             source="Table 4", about=(TABLE_4.id, FIGURE_3.id), family="liu2018-models",
             paper_effect=printed(("Transformer-DMCA", "128"), ("Transformer-DMCA", "0")),
             sentence="A mixture of experts helps with long inputs."))
