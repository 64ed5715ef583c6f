"""The claims on T-DMCA: what fits into memory, which input helps, and what extraction alone finds."""

from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING, Any

from repro.papers.liu2018 import cost, extraction
from repro.papers.liu2018.summarise import BASE, EXPERIMENT, EXTRACTORS, PAPER
from repro.papers.liu2018.tables import (
    EXTRACTOR,
    FIGURE_3,
    TABLE_3,
    TABLE_4,
    Settings,
    has_extractor,
    is_run,
    of_the_scale,
)
from repro.study import Assay, Claim, Measured, Record, register
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import numpy as np

CONTROL = "the same difference when both models read another article's input"
SHARED = {"paper": PAPER, "experiment": EXPERIMENT.name, "direction": "lower", "unit": "document", "control": CONTROL,
          "unit_shown": "nats per token of the lead"}
COUNTED = {"paper": PAPER, "experiment": cost.EXPERIMENT.name, "unit": "exact",
           "about": (cost.TABLE.id, cost.FIGURE.id)}
EXTRACTED = {"paper": PAPER, "experiment": extraction.EXPERIMENT.name, "source": "Figure 2",
             "about": (extraction.FIGURE.id,), "direction": "higher", "unit": "document", "same_weights": True,
             "unit_shown": "in ROUGE-L F1 (0 to 1)",
             "why_no_control": "no model is involved: the methods are compared on the same articles",
             "why_no_paper_effect": "the paper draws these bars and prints no number"}


def ratio(metric: str, one: str, other: str):
    """Measures the ratio of a metric between two models; the metric is counted, so there is no interval."""
    def measure(records):
        found = {record.config["model"]: record.metrics[metric] for record in records}
        return Measured([[found[one] / found[other]]])
    return measure


def gain(better: Callable[[Any], bool]) -> Callable[[list[Record]], Measured]:
    """Measures the difference in nats per token between the runs for which `better` holds and the others, by article;
    the control is the same with another article's input."""
    def measure(records: list[Record]) -> Measured:
        import numpy as np

        better_runs, others = ([record for record in records if better(Settings(record.config)) is wanted]
                               for wanted in (True, False))
        effects, control = (np.array([_difference(a, b, key) for a, b in zip(better_runs, others, strict=True)])
                            for key in ("nats", "other"))
        return Measured(effects, control)
    return measure


def _difference(ours: Record, theirs: Record, key: str) -> "np.ndarray":
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    ours, theirs = ours.documents["test"], theirs.documents["test"]
    return linearised(np.subtract(ours[key], theirs[key]), ours["tokens"])


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


def compared(id: str, better: Callable[[Any], bool], worse: Callable[[Any], bool], **fields: Any) -> Claim:
    """The claim that runs for which `better` holds have a lower log-perplexity than those for which `worse` holds."""
    def both(config: Any) -> bool:
        return better(config) or worse(config)

    assay = Assay("what the better model gains from its own article, compared with another one", both, reading)
    return Claim(id=id, **SHARED, where=both, measure=gain(better), assay=assay, **fields)


def share(worse: str, better: str) -> Callable[[list[Record]], Measured]:
    """Measures how much better one extractor's input is than another's, as a share of what cheating gains over the
    beginning of an article, in nats per token over all seeds; the control is the same with another article's input.

    A gain from cheating below a thousandth of a nat counts as a thousandth, so that it can be divided by.
    """
    def measure(records: list[Record]) -> Measured:
        import numpy as np

        found = {name: [record for record in records if Settings(record.config).extractor == name]
                 for name in EXTRACTORS}
        ends = (fmean(record.metrics["test_log_perplexity"] for record in found[name])
                for name in ("identity", "cheating"))
        way = max(next(ends) - next(ends), 1e-3)
        effects, control = (np.array([_difference(a, b, key)
                                      for a, b in zip(found[worse], found[better], strict=True)])
                            for key in ("nats", "other"))
        return Measured(effects / way, control / way, f"cheating gains {way:.3f} nats per token of the lead")
    return measure


def printed_share(worse: str, better: str) -> Callable[[], float]:
    """The same share in Table 3, for all sources together."""
    return lambda: printed_extractors(worse, better) / printed_extractors("identity", "cheating")


def searched(id: str, model: str, sentence: str, short: str) -> Claim:
    """The claim that a model does better with the top results of a search than with the beginning of an article."""
    return Claim(id=id, **SHARED | {"direction": "higher", "unit_shown": "of the gain from cheating"},
                 where=lambda config: any(has_extractor(name, model)(config) for name in EXTRACTORS),
                 measure=share("identity", EXTRACTOR), source="Table 3", about=(TABLE_3.id,), sentence=sentence,
                 short=short, paper_effect=printed_share("identity", EXTRACTOR), family="liu2018-extractors-search",
                 why_no_assay="effects are shares of what cheating gains over the beginning of an article; a gain "
                              "below 0.001 nat counts as 0.001, so the interval is wide if cheating gains little")


def cheated(id: str, model: str, sentence: str, short: str) -> Claim:
    """The claim that a model does better with text that has the lead's own bigrams than with the results of a search.

    In nats, because as a share of cheating's gain it would be one minus the effect of `searched`.
    """
    return compared(id, has_extractor("cheating", model), has_extractor(EXTRACTOR, model), source="Table 3",
                    about=(TABLE_3.id,), family="liu2018-extractors-cheating", sentence=sentence, short=short,
                    paper_effect=lambda: printed_extractors("cheating", EXTRACTOR),
                    criterion_before="the share of cheating's gain that a search leaves: one minus the effect of the "
                                     "claim on a search")


def reading(records: list[Record]) -> float:
    """The largest mean gain, in nats per token of the lead, of a model from its own article's input over another's."""
    gains: dict[tuple, list[float]] = {}
    for record in records:
        settings = Settings(record.config)
        reader = settings.model, settings.length, settings.n_experts, settings.extractor
        gains.setdefault(reader, []).append(
            record.metrics["other_log_perplexity"] - record.metrics["test_log_perplexity"])
    return max(map(fmean, gains.values()))


def _base_reads(place: int) -> Callable[[Any], bool]:
    """A filter for runs of the base model at the length with the index `place` in BASE."""
    return lambda config: (of_the_scale(config) and config.model == "gpt2-mini" and config.extractor == EXTRACTOR
                           and config.length == BASE[config.scale][place])


def printed_longer() -> float:
    """T-D's gain from 4,000 tokens of input instead of 500, as printed with Figure 3 and the samples."""
    found = {row["input_length_L_tokens"]: float(row["test_log_perplexity_per_wordpiece"])
             for row in printed_rows("liu2018_figure3_logperplexity_vs_L")
             if row["model"] == "T-D" and row["confidence"] == "exact"}
    return found["4000"] - found["500"]


def more_of_the_lead(method: str, other: str):
    """Measures how much more of the lead one method finds than another, by article."""
    def measure(records: list[Record]) -> Measured:
        import numpy as np

        return Measured(np.array([np.subtract(record.documents["test"][method], record.documents["test"][other])
                                  for record in records]))
    return measure


def cheating_gain(records: list[Record]) -> float:
    """The mean ROUGE-L F1 of cheating minus that of an article's beginning."""
    return fmean(record.metrics["cheating"] - record.metrics["identity"] for record in records)


CHEATING = Assay("cheating against the beginning", lambda config: True, cheating_gain)
SEARCH = "The top results of a search for the title make a better input than the beginning of the article"
ROOM = ("Better extraction would help: paragraphs chosen by their overlap with the lead itself ('cheating') give a "
        "lower loss than paragraphs found by tf-idf")
register(
    Claim(id="liu2018-memory-half", **COUNTED, source="section 4.2.3", direction="lower", null=1.0,
          where=lambda config: config.model in ("t-ed", "t-d"), measure=ratio("parameters", "t-d", "t-ed"),
          paper_effect=lambda: 0.5, unit_shown="times the weights of T-ED",
          sentence="A decoder alone needs fewer weights than an encoder and a decoder (the paper: nearly half).",
          short="A decoder alone needs fewer weights."),
    Claim(id="liu2018-memory-length", **COUNTED, source="section 4.2.4", direction="higher", null=1.0,
          where=lambda config: config.model in ("t-d", "t-dmca"), measure=ratio("longest", "t-dmca", "t-d"),
          paper_effect=lambda: 3.0, unit_shown="times the input of T-D",
          sentence="Memory-compressed attention trains on a longer input in the same memory (the paper: three times as "
                   "long).", short="Compressed attention trains on a longer input."))
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
    compared("liu2018-table4-seq2seq", lambda c: is_run(c, "t-ed", 0), lambda c: is_run(c, "seq2seq", 0),
             source="Table 4", about=(TABLE_4.id,), family="liu2018-models",
             paper_effect=printed(("Transformer-ED", ""), ("seq2seq-attention", "")),
             sentence="A recurrent sequence-to-sequence model with attention does worse than T-ED.",
             short="A recurrent sequence-to-sequence model is worse than T-ED."),
    compared("liu2018-table4-one-text", lambda c: is_run(c, "t-d", 1), lambda c: is_run(c, "t-ed", 0), source="Table 4",
             about=(TABLE_4.id, FIGURE_3.id), family="liu2018-models",
             paper_effect=printed(("Transformer-D", ""), ("Transformer-ED", "")),
             sentence="A decoder that reads the input as text, longer inputs included, does better than T-ED.",
             short="A decoder that reads the input as text is better than T-ED."),
    compared("liu2018-table4-compressed", lambda c: is_run(c, "t-dmca", 2), lambda c: is_run(c, "t-d", 1),
             source="Table 4", about=(TABLE_4.id, FIGURE_3.id), family="liu2018-models",
             paper_effect=printed(("Transformer-DMCA", "0"), ("Transformer-D", "")),
             sentence="Memory-compressed attention, with the longer inputs that it allows, does better than T-D.",
             short="Compressed attention with longer inputs is better than T-D."),
    compared("liu2018-table4-experts", lambda c: is_run(c, "t-dmca", 2, experts=True), lambda c: is_run(c, "t-dmca", 2),
             source="Table 4", about=(TABLE_4.id, FIGURE_3.id), family="liu2018-models",
             paper_effect=printed(("Transformer-DMCA", "128"), ("Transformer-DMCA", "0")),
             sentence="A mixture of experts helps with long inputs."))
register(
    Claim(id="liu2018-figure2-tfidf", **EXTRACTED, measure=more_of_the_lead("tf-idf", "textrank"),
          family="liu2018-extractive", assay=CHEATING,
          sentence="Extraction by tf-idf of the title finds more of the lead than TextRank.",
          short="Tf-idf of the title finds more of the lead than TextRank."),
    Claim(id="liu2018-figure2-sumbasic", **EXTRACTED, measure=more_of_the_lead("tf-idf", "sumbasic"),
          family="liu2018-extractive", assay=CHEATING,
          sentence="Extraction by tf-idf of the title finds more of the lead than SumBasic.",
          short="Tf-idf of the title finds more of the lead than SumBasic."))
