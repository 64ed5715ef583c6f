"""The gain from recurrence on disjoint windows, by base model, text, module and window size. Not in the paper."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repro.errors import ReproError
from repro.papers.yoshida2020.perplexity import gemma, matched, pg19, wikitext103
from repro.papers.yoshida2020.perplexity.tables import FIRST, LITERAL, UNSCALED, compare, row_kind
from repro.study import Experiment, Record, RunConfig, Store, experiments
from repro.study.cache import caching
from repro.study.published import published
from repro.study.runs import command
from repro.study.settings import COMMITTED

EXPERIMENTS = tuple(one.EVALUATION for one in (wikitext103, pg19, matched, gemma))
PRINTED = {"articles": "yoshida2020_table1_wikitext103", "books": "yoshida2020_table2_pg19"}
BASES = {"small": "our small GPT-2", "pretrained": "Gemma 3 270M", "medium": "our medium GPT-2", "paper": "GPT-2, ours",
         "": "the paper's GPT-2"}  # by scale; "" is the paper
PAPERS_PLACE = "at the second layer, as in the paper"
PLACES = {"recurrent": PAPERS_PLACE, LITERAL: PAPERS_PLACE, FIRST: "at the first layer",
          UNSCALED: "in the middle, starting as the mean token"}
# The modules that are used in Gemma only.
NORMALIZED = "in the middle, reading normalized states"
SLOWER = "in the middle, trained as slowly, without normalized states"


@dataclass(frozen=True)
class Gain:
    """A recurrent model against its baseline, both on disjoint windows. Changes are relative changes of word
    perplexity: below 0, recurrence helps."""

    scale: str  # "" for the paper's
    text: str
    module: str
    window: int  # tokens
    change: float
    low: float | None = None  # the 95% interval, over seeds and documents
    high: float | None = None
    masked: float | None = None  # the change with the module masked out
    split: str = "test"
    recurrent: tuple[Record, ...] = ()
    baseline: tuple[Record, ...] = ()
    command: str = ""  # runs one seed of the recurrent model

    @property
    def base(self) -> str:
        """The base model."""
        return BASES[self.scale]


@caching()
def gains_by_window(results: Path | str | None = None) -> list[Gain]:
    """Every gain on disjoint windows that has records, and the paper's; smallest window first. results: the folder of
    the records."""
    found = [gain for one in experiments() if one in EXPERIMENTS for scale in COMMITTED if scale in one.scales
             for gain in _measured(one, scale, results)]
    order = list(PRINTED)
    return sorted([*found, *_printed()] if found else [],
                  key=lambda gain: (gain.window, gain.scale == "", gain.scale != "small", order.index(gain.text)))


def _measured(one: Experiment, scale: str, results: Path | str | None) -> Iterator[Gain]:
    store = Store.for_scale(scale, results)
    plan = [config for config in one.plan(scale) if not config.overlap]
    for config in plan:
        against = _baseline(config, plan)
        recurrent, baseline = store.seeds(config), store.seeds(against) if against else []
        seeds = {record.seed for record in recurrent} & {record.seed for record in baseline}
        if config.model == "recurrent" and seeds:
            shared = [[record for record in some if record.seed in seeds] for some in (recurrent, baseline)]
            split = config.splits[-1]
            masked = all("nll_masked" in record.documents[split] for record in shared[0])
            change, low, high = compare(*shared, split)
            yield Gain(scale, "books" if "pg19" in config.corpus else "articles", _module(config), config.window,
                       change, low, high, compare(*shared, split, "nll_masked")[0] if masked else None, split,
                       *map(tuple, shared), command(config))


def _baseline(config: RunConfig, plan: list[RunConfig]) -> RunConfig | None:
    """The baseline that reads the same text in the same windows, trained on the same device; None if there is none.

    Raises ReproError if there are several.
    """
    same = [other for other in plan if row_kind(other) == "baseline" and _conditions(other) == _conditions(config)]
    if len(same) > 1:
        raise ReproError(f"{config.experiment} has {len(same)} baselines on {config.corpus} in windows of "
                         f"{config.window} tokens; one is needed to compare with.")
    return same[0] if same else None


def _conditions(config: RunConfig) -> tuple:
    """The settings that a recurrent model and its baseline share. In Gemma's experiment these include the device, CPU
    or GPU."""
    device = config.experiment == gemma.EVALUATION.name and gemma.on_cpu(config)
    return config.corpus, config.window, device


def _module(config: RunConfig) -> str:
    if config.normalize:
        return NORMALIZED
    slower = config.experiment == gemma.EVALUATION.name and gemma.on_cpu(config)
    return SLOWER if slower else PLACES[row_kind(config)]


def _printed() -> Iterator[Gain]:
    for text, table in PRINTED.items():
        rows = [row for row in published(table).to_dict("records") if int(row["overlap_tokens"]) == 0]
        recurrent, baseline = (next(float(row["test_perplexity_per_word"]) for row in rows
                                    if ("recurrence" in row["model"]) == whether) for whether in (True, False))
        yield Gain("", text, PAPERS_PLACE, int(rows[0]["window_tokens"]), recurrent / baseline - 1)
