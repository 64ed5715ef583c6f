"""The claims on recurrence in Gemma 3 270M."""

from repro.papers.yoshida2020.claims.effects import (
    MASKED,
    both,
    gain,
    less,
    own_state,
    printed,
    printed_overlap,
    room_of_overlap,
)
from repro.papers.yoshida2020.perplexity.gemma import ARTIFACT, EVALUATION, OVERLAP, TABLE, on_cpu
from repro.papers.yoshida2020.perplexity.tables import LITERAL, UNSCALED, row_kind
from repro.study import ADDED, Assay, Claim, Measured, Record


def point(*models: str, overlaps=(0,), cpu: bool = False):
    """A test of whether a config is one of these kinds of model, at one of these overlaps, trained on CPU or GPU."""
    return lambda config: row_kind(config) in models and config.overlap in overlaps and on_cpu(config) == cpu


def normalization(records: list[Record]) -> Measured:
    """The gain of the normalized module minus the gain of the same module not normalized, trained at the same rate."""
    return less(gain(records), gain(records, model=UNSCALED))


def sentence(module: str) -> str:
    return (f"On books in windows of 64 tokens without overlap, Gemma 3 270M with a recurrence module {module} has a "
            "lower test perplexity than the same model fine-tuned without one.")


CLAIM = {"paper": "yoshida2020", "source": ADDED, "experiment": EVALUATION.name,
         "about": (ARTIFACT.id,), "unit": "book", "direction": "lower", "relative": True, "control": MASKED, "seeds": 3,
         "unit_shown": "in perplexity",
         "paper_effect": printed(TABLE, *both(0)), "family": "yoshida2020-gemma",
         "assay": Assay("the baseline's gain from an overlap of a sixth of the window",
                        point("baseline", overlaps=(0, OVERLAP)), room_of_overlap, printed_overlap(TABLE))}
ANY_SIZE = {"paper_effect": None, "assay": None, "why_no_assay": "a difference of any size counts"}
CLAIMS = (
    Claim(id="yoshida2020-gemma-gain", **CLAIM, where=point("baseline", UNSCALED),
          measure=lambda records: gain(records, model=UNSCALED),
          sentence=sentence("in its middle layer"),
          short="Recurrence in the middle of Gemma helps."),
    Claim(id="yoshida2020-gemma-gain-papers-module", **CLAIM, where=point("baseline", LITERAL),
          measure=lambda records: gain(records, model=LITERAL),
          sentence=sentence("as in the paper (second layer, randomly initialized)"),
          short="The paper's own module in Gemma helps."),
    Claim(id="yoshida2020-gemma-gain-normalized", **CLAIM, measure=gain,
          where=point("baseline", "recurrent", cpu=True),
          sentence=sentence("in its middle layer that reads normalized states"),
          short="A normalized module in Gemma helps."),
    Claim(id="yoshida2020-gemma-own-state", **CLAIM | ANY_SIZE | {
        "control": "", "why_no_control": "the effect already compares the same weights with two states",
        "why_no_paper_effect": "the paper does not exchange states"},
          measure=own_state, where=point("recurrent", cpu=True),
          sentence="On books in windows of 64 tokens without overlap, Gemma 3 270M with a normalized module in its "
                   "middle layer has a lower test perplexity with the state of its own book than with another book's.",
          short="Gemma: the state of its own book predicts it better."),
    Claim(id="yoshida2020-gemma-normalization",
          **CLAIM | ANY_SIZE | {"why_no_paper_effect": "the paper's module is not normalized"},
          measure=normalization, where=point("baseline", "recurrent", UNSCALED, cpu=True),
          sentence="On books in windows of 64 tokens without overlap, a recurrence module in the middle layer of Gemma "
                   "3 270M that reads normalized states lowers test perplexity more than the same module without "
                   "normalization, trained at the same rate.",
          short="Gemma: normalization adds to the module's gain."),
)
