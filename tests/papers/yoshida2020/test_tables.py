"""Tables on recurrence: differences paired over documents, and what was learned."""

from math import log
from types import SimpleNamespace

import pytest

from repro.errors import ReproError
from repro.markup import bounded
from repro.papers.yoshida2020.perplexity import tables
from repro.papers.yoshida2020.perplexity.tables import (
    CONTROL,
    FIRST,
    compare,
    gain_points,
    layer_weights,
    learning_curves,
    learning_rates,
)
from repro.plotting import draw_curves
from repro.study import ArtifactContext, artifact
from repro.study.artifacts import same_seeds

WORDS = [100, 200, 300, 400]


def record(model: str, ratio: float, overlap: int = 0, masked: float = 1.0, trained: int | None = None,
           seed: int = 0):
    """Documents of very different difficulty; `ratio` times the word perplexity of the baseline on each of them."""
    nll = [n * (log(ratio) + hard) for n, hard in zip(WORDS, (3.0, 5.0, 4.0, 6.0), strict=True)]
    return SimpleNamespace(
        id=model, model=model, scale="small", seed=seed,
        config={"model": model, "overlap": overlap, "train_overlap": trained},
        documents={"test": {"nll": nll, "n_words": WORDS}},
        metrics={"test_word_perplexity": ratio * 100, "test_word_perplexity_masked": masked * 100})


def test_the_difference_is_paired_and_relative():
    value, low, high = compare([record("recurrent", 0.9)], [record("baseline", 1.0)], "test")
    assert value == pytest.approx(-0.1) and low == pytest.approx(-0.1) and high == pytest.approx(-0.1)


def test_seeds_that_both_have_are_paired():
    ours, theirs = [record("recurrent", ratio, seed=seed) for seed, ratio in ((0, 0.9), (1, 0.8), (3, 0.1))], [
        record("baseline", ratio, seed=seed) for seed, ratio in ((1, 1.0), (0, 1.0), (2, 9.0))]
    value, low, high = compare(ours, sorted(theirs, key=lambda one: one.seed), "test")
    assert value == pytest.approx((0.9 * 0.8)**0.5 - 1) and low < -0.2 < -0.1 < high
    with pytest.raises(ReproError, match="records recurrent, baseline have no seed in common"):
        compare(ours[2:], theirs[:1], "test")


def test_learning_curves_keep_the_control_apart_from_the_baseline():
    records = [record("baseline", 1.0), record("recurrent", 0.9), record("baseline", 0.8, trained=5)]
    for height, one in enumerate(records):
        one.curves = {"validation_loss": [[0, float(height)], [1, float(height)]]}
    drawn = draw_curves(learning_curves(records)).axes[0].lines
    assert {line.get_label(): line.get_ydata()[0] for line in drawn} == {
        "baseline, overlap 0": 0, "recurrent, overlap 0": 1, "baseline trained with overlap, overlap 0": 2}
    assert len({line.get_color() for line in drawn}) == 3
    with pytest.raises(ReproError, match="'baseline, overlap 0' comes twice"):
        draw_curves(learning_curves([*records, records[0]]))


def tuned(model, overlap, taken, candidates, weights=None, window=300, block=1, **notes):
    notes |= {"candidates": candidates, "learning_rate": taken, "layer_weights": weights}
    config = {"model": model, "window": window, "overlap": overlap, "insert_layer": block, "train_overlap": None}
    return SimpleNamespace(model=model, scale="small", config=config, notes=notes)


def test_what_was_tried_stands_beside_what_was_taken_for_each_window():
    third = {"module_learning_rate": 0.03, "zero_init": False}
    records = [tuned("recurrent", 5, 0.003, [(0.003, 4.5), (0.01, 4.75)], window=64, module_learning_rate=0.003,
                     zero_init=True),
               tuned("recurrent", 5, 0.01, [(0.003, 4.5), (0.01, 4.25)], **third),
               tuned("baseline", 0, 0.003, [(0.003, 4.75), (0.01, 5.0)]),
               tuned("recurrent", 0, 0.01, [(0.003, 4.5), (0.01, 4.25)], **third),
               tuned("recurrent", 0, 0.01, [])]  # took the rate that another had chosen
    assert learning_rates(records).to_dict("records") == [
        {"model": "baseline", "T": 300, "0.003": "4.7500", "0.01": "5.0000", "chosen": "0.003", "its module": "–"},
        {"model": "recurrent", "T": 300, "0.003": "4.5000", "0.01": "4.2500", "chosen": "0.01",
         "its module": "3 times that rate, last layer from noise"},
        {"model": "recurrent", "T": 64, "0.003": "4.5000", "0.01": "4.7500", "chosen": "0.003",
         "its module": "that rate, last layer from zero"}]


def test_layer_weights_are_the_mean_over_seeds_of_the_module_where_the_paper_has_it():
    records = [tuned("recurrent", 5, 0.01, [], [0.25, 0.75]), tuned("recurrent", 0, 0.01, [], [0.5, 0.5]),
               tuned("recurrent", 0, 0.01, [], [0.75, 0.25]), tuned("recurrent", 0, 0.01, [], [0.0, 1.0], block=0),
               tuned("recurrent", 0, 0.01, [], [1.0, 0.0], window=64), tuned("baseline", 0, 0.01, [])]
    assert list(layer_weights(records).items()) == [
        ("T = 300, overlap 0", [0.625, 0.375]), ("T = 300, overlap 5", [0.25, 0.75]),
        ("T = 64, overlap 0", [1.0, 0.0])]


def told(found, plan):
    """A context whose records at `small` are `found`: (kind of model, overlap) -> records."""
    configs = [SimpleNamespace(name=name, window=300, overlap=overlap) for name, overlap in plan]

    def records_of(config):
        return found.get((config.name, config.overlap), [])

    return SimpleNamespace(scales=("small",), plan=lambda scale: configs, records_of=records_of,
                           at_common_seeds=lambda some: same_seeds([records_of(config) for config in some]))


def test_the_points_of_the_gains_are_each_of_what_they_are_called(monkeypatch):
    monkeypatch.setattr(tables, "row_kind", lambda config: config.name)
    ours, base = record("recurrent", 0.9, masked=0.99), record("baseline", 1.0)
    late = record("recurrent", 0.8, 50)
    for name, ratio in (("masked", 1.02), ("other_document", 1.1)):
        late.documents["test"][f"nll_{name}"] = record("recurrent", ratio).documents["test"]["nll"]
        late.metrics[f"test_word_perplexity_{name}"] = 100 * ratio
    found = {("recurrent", 0): [ours], ("baseline", 0): [base], ("recurrent", 50): [late], ("baseline", 50): [base],
             (CONTROL, 50): [record("baseline", 0.85, 50)], (FIRST, 0): [record("recurrent", 0.7)]}
    frame = gain_points(told(found, [*found, ("recurrent", 5), ("baseline", 5)]), "yoshida2020_table1_wikitext103")
    points = {(row["name"], round(row["overlap"], 1)): row["gain"] for _, row in frame.iterrows()}
    printed = {key: value for key, value in points.items() if key[0] == "paper"}
    assert [round(overlap, 1) for _, overlap in printed] == [0, 1.7, 3.3, 10, 16.7]
    assert printed["paper", 0.0] == pytest.approx(100 * (30.47 - 29.01) / 30.47, abs=0.01)
    assert {key: round(value, 6) for key, value in points.items() if key[0] != "paper"} == {
        ("recurrent", 0.0): 10, ("module masked out", 0.0): 1, ("recurrent, first block", 0.0): 30,
        ("recurrent", 16.7): 20, ("vs. baseline trained with overlap", 16.7): round(100 * (1 - 0.8 / 0.85), 6),
        ("module masked out", 16.7): -2, ("another document's state", 16.7): -10}
    alone = frame[(frame["name"] == "module masked out") & (frame["overlap"] == 0)].iloc[0]
    assert alone[["low", "high"]].isna().all()  # only the sum was kept
    assert (frame["low"] <= frame["gain"] + 1e-9)[frame["low"].notna()].all()
    assert gain_points(told({}, list(found)), "yoshida2020_table1_wikitext103").empty
    smoke = told(found, list(found))
    smoke.scales = ("smoke", "small")
    both = gain_points(smoke, "yoshida2020_table1_wikitext103")
    assert set(both.loc[both["name"] == "paper", "source"]) == {"small"}  # text of another kind is no paper's
    assert set(both["source"]) == {"smoke", "small"}


def test_levels_side_by_side_are_of_the_same_seeds(monkeypatch):
    monkeypatch.setattr(tables, "row_kind", lambda config: config.name)
    found = {("recurrent", 0): [record("recurrent", 0.9, seed=seed) for seed in (2, 3, 4)],
             ("baseline", 0): [record("baseline", 1.0, seed=seed) for seed in range(5)],
             ("baseline", 50): [record("baseline", 0.8, 50, seed=seed) for seed in (1, 2, 3, 4)]}
    context = told(found, [*found, ("recurrent", 50)])
    levels = tables._levels(context, "small")
    assert {key: [one.seed for one in records] for key, records in levels.items()} == {
        ("recurrent", 0): [2, 3, 4], ("baseline", 0): [2, 3, 4], ("baseline", round(50 / 300, 9)): [2, 3, 4],
        ("recurrent", round(50 / 300, 9)): []}


@pytest.mark.parametrize(("id", "table"), [("yoshida2020-table1-gain", "yoshida2020_table1_wikitext103"),
                                           ("yoshida2020-table2-gain", "yoshida2020_table2_pg19")])
def test_the_figure_of_the_gains_draws_the_committed_numbers_of_the_table(id, table):
    """A gain is a change with the other sign; intervals are those of the cells."""
    context = ArtifactContext(artifact(id), ("small",))
    cells = tables.gains(context, table).set_index("overlap")
    points = gain_points(ArtifactContext(artifact(f"{id}-figure"), ("small",)), table)
    ours = points[points["name"].isin(["recurrent", FIRST])]
    assert len(ours)
    for row in ours.itertuples():
        column = "small: test" + ", first block" * (row.name == FIRST)
        assert cells.loc[f"{row.overlap / 100:.1%} of T", column] == bounded(
            -row.gain / 100, -row.high / 100, -row.low / 100, "+.1%")
