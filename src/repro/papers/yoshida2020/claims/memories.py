"""The claims on memories on text with a known possible gain."""

from repro.papers.yoshida2020.claims.effects import without_module
from repro.papers.yoshida2020.memories.experiment import EXPERIMENT, KNOWN, SOURCE
from repro.papers.yoshida2020.perplexity.tables import log_ratio
from repro.study import Assay, Claim, Measured


def rows_of(corpus: str, *memories: str):
    """A test of whether a config is one of these rows on a text. No config of `smoke` is, because all of its text is
    generated."""
    return lambda config: config.scale != "smoke" and config.corpus == corpus and config.memory in memories


def gain(records) -> Measured:
    """A model with a memory against one without on the same text, or against itself without its memory's content
    (`without_module`) if that is better. A gain that survives masking comes from the training, not from the memory."""
    ours, plain = ([record for record in records if (record.config["memory"] == "none") is none]
                   for none in (False, True))
    gained, without = log_ratio(ours, plain), without_module(ours, plain)
    return Measured(gained - without if without.mean() < 0 else gained)


CLAIMS = tuple(
    Claim(id=f"yoshida2020-known-gain-{memory}", paper="yoshida2020", source=SOURCE, experiment=EXPERIMENT.name,
          about=("memories-pg19",), unit="book", direction="lower", relative=True, seeds=5,
          unit_shown="in perplexity",
          why_no_control="the effect already counts only beyond the same model without its module",
          criterion_before="the effect against the baseline, with the gain of the masked module as its control",
          family="yoshida2020-known-gain", where=rows_of(KNOWN["corpus"], memory, "none"), measure=gain,
          why_no_paper_effect="the paper uses no text with a known possible gain",
          assay=Assay("the possible gain from the whole book beyond the window, computed from the generator",
                      rows_of(KNOWN["corpus"], "none"), lambda records: records[0].metrics["known_gain"]),
          sentence=f"On generated text that rewards memory, the recurrent model with its module at the {place} block "
                   "has a lower test perplexity than the fine-tuned baseline, and than itself without its module.",
          short=f"On text that rewards memory, the {place} block helps.")
    for memory, place in (("yoshida", "second"), ("yoshida-first", "first")))
