"""Tables and verdicts that compare recurrent with baseline models: perplexity by overlap, and the paired gain."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from repro.errors import ReproError
from repro.study.published import published
from repro.study.store import Record
from repro.study.tables import NOT_RUN, Artifact, ArtifactContext
from repro.study.verdicts import INCONCLUSIVE, Verdict, judge_difference

if TYPE_CHECKING:
    import pandas

    from repro.evaluation import Interval

SPLITS = ("validation", "test")


def perplexities(context: ArtifactContext, table: str) -> "pandas.DataFrame":
    """One row per model and overlap: the paper's perplexities beside ours, with 95 % intervals over documents.

    "cost" is T / (T - overlap), what a scored token costs beside one of disjoint windows. Windows differ
    between scales, so rows meet where the overlap is the same share of the window.
    """
    import pandas

    printed = {_point(row): row for row in published(table).to_dict("records")}
    planned = [(config.model, config.overlap / config.window) for scale in context.scales
               for config in context.plan(scale)]
    rows = []
    for model, share in sorted({*printed, *((model, round(share, 9)) for model, share in planned)}):
        paper = printed.get((model, share), {})
        row = {"model": model, "overlap / T": f"{share:.1%}"}
        row |= {f"paper: {split}": paper.get(f"{split}_perplexity_per_word") for split in SPLITS}
        row |= {"paper: FLOPs/token": paper and f"{paper['flops_per_token_1e8']}e8" or None,
                "cost": f"{1 / (1 - share):.3f}"}
        for scale in reversed(context.scales):
            found = _at(context, scale, model, share)
            row |= {f"{scale}: {split}": _perplexity(found, split) for split in SPLITS}
        rows.append({name: _cell(value) for name, value in row.items()})
    return pandas.DataFrame(rows)


def _point(printed: dict[str, str]) -> tuple[str, float]:
    """Model and overlap, as a share of the window, of a printed row."""
    model = "recurrent" if "recurrence" in printed["model"] else "baseline"
    return model, round(int(printed["overlap_tokens"]) / int(printed["window_tokens"]), 9)


def curves(artifact: Artifact, table: str, scales: Sequence[str]) -> "pandas.DataFrame":
    """Test perplexity against overlap in per cent of the window, a row a point: source, model, overlap, perplexity, and
    the interval `low`, `high` of ours. Points without a record are left out."""
    import pandas

    rows = []
    for printed in published(table).to_dict("records"):
        model, share = _point(printed)
        rows.append({"source": "paper", "model": model, "perplexity": float(printed["test_perplexity_per_word"]),
                     "overlap": 100 * share})
    for scale in scales:
        context = ArtifactContext(artifact, (scale,))
        for config in context.plan():
            if records := context.records_of(config):
                value, low, high = interval(records, "test")
                rows.append({"source": scale, "model": config.model, "overlap": 100 * config.overlap / config.window,
                             "perplexity": value, "low": low, "high": high})
    return pandas.DataFrame(rows)


def gains(context: ArtifactContext, table: str) -> "pandas.DataFrame":
    """One row per overlap: by how much the recurrent model's perplexity differs, in per cent of the baseline's.

    "module" is what of it goes when the module of the same model is masked out (on test documents).
    """
    import pandas

    printed = published(table)
    recurrent = printed["model"].str.contains("recurrence")
    rows = []
    for ours in printed[recurrent].to_dict("records"):
        base = printed[~recurrent & (printed["overlap_tokens"] == ours["overlap_tokens"])].iloc[0]
        share = int(ours["overlap_tokens"]) / int(ours["window_tokens"])
        row = {"overlap": f"{share:.1%} of T"}
        for split in SPLITS:
            name = f"{split}_perplexity_per_word"
            row[f"paper: {split}"] = f"{float(ours[name]) / float(base[name]) - 1:+.1%}"
        for scale in reversed(context.scales):
            pair = [_at(context, scale, model, share) for model in ("recurrent", "baseline")]
            for split in SPLITS:
                row[f"{scale}: {split}"] = _percent(*compare(*pair, split)) if all(pair) else min(pair, key=bool)
            row[f"{scale}: module"] = pair[0] and f"{module_effect(pair[0]):+.2%}"
        rows.append({name: _cell(value) for name, value in row.items()})
    return pandas.DataFrame(rows)


def interval(records: list[Record], split: str) -> "Interval":
    """Word perplexity of one config on `split` and its 95 % interval over documents; losses averaged over seeds."""
    from repro.evaluation import bootstrap

    return bootstrap(_nll(records, split), records[0].documents[split]["n_words"])


def compare(records: list[Record], against: list[Record], split: str) -> tuple[float, float, float]:
    """Relative difference in word perplexity and its 95 % interval, paired over the documents of `split`.

    With several seeds the per-document losses are averaged first; the interval is over documents only.
    """
    from repro.evaluation import bootstrap

    interval = bootstrap(_nll(records, split), records[0].documents[split]["n_words"], _nll(against, split))
    return interval.value - 1, interval.low - 1, interval.high - 1


def judge_gain(records: list[Record]) -> Verdict:
    """Recurrent against baseline on test documents, one of each per seed, at the same overlap."""
    verdict, from_training = _gain(records)
    if not from_training:
        return verdict
    own = module_effect([record for record in records if record.model == "recurrent"])
    text = f"{verdict.text}; of this the module gives {own:+.2%}, the rest comes from training"
    return replace(verdict, verdict=INCONCLUSIVE if verdict.effect < 0 else verdict.verdict, text=text)


def _gain(records: list[Record]) -> tuple[Verdict, bool]:
    """The verdict on recurrent against baseline, and whether the difference stays when the module is masked out.

    A recurrent model that was trained at its overlap read more windows than the baseline did, and can be better for
    that alone: a gain is the memory's only if more than half of it goes with the module.
    """
    recurrent, baseline = ([r for r in records if r.model == model] for model in ("recurrent", "baseline"))
    verdict = judge_difference(*compare(recurrent, baseline, "test"), "lower", percent=True)
    return verdict, verdict.verdict != INCONCLUSIVE and not module_effect(recurrent) < verdict.effect / 2 < 0


def module_effect(recurrent: list[Record]) -> float:
    """Relative difference in test perplexity between recurrent models and the same with their module masked out."""
    return fmean(r.metrics["test_word_perplexity"] / r.metrics["test_word_perplexity_masked"] for r in recurrent) - 1


def judge_overlap(records: list[Record]) -> Verdict:
    """The same model with its larger overlap against none, on test documents."""
    disjoint = [record for record in records if record.config["overlap"] == 0]
    overlapped = [record for record in records if record.config["overlap"] > 0]
    return judge_difference(*compare(overlapped, disjoint, "test"), "lower", percent=True)


def judge_shrinking(records: list[Record]) -> Verdict:
    """The relative gain on disjoint windows against that at the larger overlap, over the same resampled documents.

    The effect is the ratio of the two perplexity ratios, minus 1: below zero when the gain without overlap is larger.
    """
    from repro.evaluation import bootstrap

    def difference(overlapped: bool) -> list[float]:
        chosen = [record for record in records if (record.config["overlap"] > 0) == overlapped]
        pair = [_nll([r for r in chosen if r.model == model], "test") for model in ("recurrent", "baseline")]
        return [ours - base for ours, base in zip(*pair, strict=True)]

    interval = bootstrap(difference(False), records[0].documents["test"]["n_words"], difference(True))
    verdict = judge_difference(interval.value - 1, interval.low - 1, interval.high - 1, "lower", percent=True)
    foreign = [_gain([r for r in records if (r.config["overlap"] > 0) == overlapped])[1]
               for overlapped in (False, True)]
    if verdict.verdict != INCONCLUSIVE and any(foreign):
        return replace(verdict, verdict=INCONCLUSIVE, text=f"{verdict.text}; a gain compared here is not the module's")
    return verdict


def _at(context: ArtifactContext, scale: str, model: str, share: float) -> list[Record] | None:
    """The records of a model whose overlap is this share of its window; None when the scale has no such run."""
    planned = [config for config in context.plan(scale, model=model)
               if abs(config.overlap / config.window - share) < 1e-8]
    return [record for config in planned for record in context.records_of(config)] if planned else None


def _cell(value: str | list | None) -> str:
    """What a table shows for a value, for records that are missing ([]), and where none are planned (None)."""
    return "–" if value is None else value or NOT_RUN


def _nll(records: list[Record], split: str) -> list[float]:
    """Per-document nll in nats, averaged over seeds."""
    losses = [record.documents[split]["nll"] for record in records]
    if len({len(loss) for loss in losses}) != 1:
        raise ReproError(f"records {', '.join(r.id for r in records)} scored different {split} documents.")
    return [sum(one) / len(one) for one in zip(*losses, strict=True)]


def _perplexity(records: list[Record] | None, split: str) -> str | list | None:
    if not records:
        return records
    value, low, high = interval(records, split)
    digits = 2 if value < 100 else 0
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _percent(value: float, low: float, high: float) -> str:
    return f"{value:+.1%} [{low:+.1%}, {high:+.1%}]"
