"""Plans and tables of the chapter on books."""

from itertools import product
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from repro.cli import main
from repro.data import corpora
from repro.errors import ReproError
from repro.markup import bounded
from repro.papers.yoshida2020.perplexity.pg19_tables import (
    cost_points,
    families,
    larger_window,
    window_points,
    window_table,
)
from repro.study import ArtifactContext, artifact, experiment
from repro.study.settings import SCALES


def test_estimates_know_every_corpus_at_every_scale():
    from repro.models.vocabulary import covers

    for scale in SCALES:
        for corpus, documents in product(corpora(), ("null", "3")):
            sets = {"corpus": corpus.name, "train_documents": documents, "steps": "null"}
            if scale == "pretrained" and not covers(corpus.name, "train", None if documents == "null" else 3):
                continue  # its model has not their tokens: they are refused (test_gemma.py)
            for config in experiment("finetune-gpt2").plan(scale, sets):
                if not corpus.is_text:
                    with pytest.raises(ReproError, match=f"{corpus.name} contains examples"):
                        experiment("finetune-gpt2").estimate(config)
                elif "train" not in corpus.splits:
                    with pytest.raises(ReproError, match=f"split of {corpus.name}.*train"):
                        experiment("finetune-gpt2").estimate(config)
                else:
                    assert experiment("finetune-gpt2").estimate(config).training_tokens > 0
    books = {"corpus": "pg19-subset", "steps": "null"}
    whole, few = (experiment("finetune-gpt2").plan("small", books | {"train_documents": n})[0] for n in ("null", "96"))
    tokens = [experiment("finetune-gpt2").estimate(config).training_tokens for config in (whole, few)]
    assert tokens[0] == pytest.approx(4 * tokens[1], rel=1e-3)


def test_the_plans_hold_the_points_of_the_paper():
    plan = experiment("recurrence-pg19").plan("small")
    table = {(c.model, c.overlap) for c in plan if "test" in c.splits}
    assert table == {("baseline", o) for o in (0, 5, 10, 30, 50, 75, 100, 150, 200)} | {
        ("recurrent", o) for o in (0, 5, 10, 30, 50)}
    assert {c.window for c in plan if "test" in c.splits} == {300}
    curves = families(plan)
    assert {(c.model, c.overlap) for c in curves} == {("recurrent", 0)} | {("baseline", o) for o in (0, 10, 30, 50)}
    assert {c.window for c in curves} == {200, 300, 600} and len(curves) == 15


def test_paper_scale_has_the_published_settings():
    plan = experiment("recurrence-pg19").plan("paper")
    one = next(c for c in plan if c.model == "recurrent" and c.window == 300 and c.overlap == 50)
    assert (one.train_documents, one.epochs, one.warmup_steps, one.validate_every) == (1250, 2.0, 100, 2_000_000)
    assert (one.patience, one.steps) == (None, None)  # two epochs are two epochs; the best checkpoint is kept
    assert (one.insert_layer, one.hidden_layers, one.hidden_size, one.windows_per_sequence) == (1, 3, 200, 20)
    assert one.validation_head == 15_000
    assert experiment("pretrain-gpt2-mini").plan("paper")[0].source == "openai-community/gpt2"


def test_variations_are_each_one_change(monkeypatch):
    plan = experiment("variations-pg19").plan("small")
    first = plan[0].model_dump()
    changed = [{key for key, value in c.model_dump().items() if value != first[key]} for c in plan]
    assert changed[0] == set()
    assert all(len(one) == 1 for one in changed[1:12])
    assert [c.insert_layer for c in plan[8:12]] == [0, 2, 3, 5]
    assert [(c.overlap, c.train_overlap, c.test_positions) for c in plan[12:]] == [
        (10, 0, "all"), (10, 0, "passed"), (10, None, "all")]
    assert "not run" in str(artifact("yoshida2020-variations").render("paper", also=()).table)


@pytest.mark.parametrize(("scale", "rows"), [("smoke", 12), ("small", 15), ("paper", 16)])
def test_each_row_of_the_variations_is_the_run_that_it_names(monkeypatch, scale, rows):
    from repro.papers.yoshida2020.perplexity import pg19_tables as tables
    from repro.papers.yoshida2020.perplexity.variations import variations

    monkeypatch.setattr(tables, "perplexity_cell", lambda config, split: config)
    monkeypatch.setattr(tables, "module_effect", lambda config: 0.0)
    monkeypatch.setattr(tables, "change", lambda one, other, split: "+0.0%")
    plan = experiment("variations-pg19").plan(scale)
    shown = SimpleNamespace(scales=(scale,), plan=lambda scale: plan, at_common_seeds=list)
    found = tables.variation_table(shown, variations).set_index("variation")
    assert list(found.index) == list(variations(scale)) and len(found) == rows
    for name, wanted in (("max pooling", {"pool": "max"}), ("4 embeddings", {"n_embeddings": 4}),
                         ("final layer only", {"layers": "last"}), ("h_prev detached", {"truncate": 1}),
                         ("higher capacity", {"hidden_size": 800})):
        config = found["validation"][name]
        assert {key: getattr(config, key) for key in wanted} == wanted and config.overlap == 0
    for name in found.index[-3:]:
        config = found["validation"][name]
        assert f"overlap {config.overlap}, {config.test_positions} positions" in name
        assert ("disjoint" in name) == (config.train_overlap == 0)
    assert not (found["change"] == "the same here").any()
    assert found.index[found["change"] == "–"].tolist() == [found.index[0], found.index[-3]]
    places = found["validation"][found.index.str.startswith("inserted at the")].drop("inserted at every layer",
                                                                                      errors="ignore")
    last = {"smoke": 2, "small": 5, "paper": 11}[scale]
    assert [config.insert_layer for config in places] == ([0, 2, 3, last] if scale != "smoke" else [last])


@pytest.mark.parametrize(("name", "sets"), [("propagation-pg19", {"window": 2000}), ("context-use", {"window": 5000}),
                                            ("recurrence-pg19", {"window": 1025, "overlap": 0})])
def test_a_window_beyond_the_context_is_refused_before_anything_runs(name, sets):
    with pytest.raises(ReproError, match=f"window is {sets['window']} tokens, but the model's context ends at 1024"):
        experiment(name).plan("small", sets)


def test_the_dry_run_at_paper_scale_tells_the_published_settings():
    told = CliRunner().invoke(main, ["run", "recurrence-pg19", "--scale", "paper", "--dry-run"]).stdout
    line = next(line for line in told.splitlines() if "settings of every run" in line)
    for setting in ("train_documents=1250", "epochs=2.0", "warmup_steps=100", "validate_every=2000000",
                    "insert_layer=1", "hidden_layers=3", "hidden_size=200", "windows_per_sequence=20",
                    "validation_head=15000"):
        assert setting in line
    assert "openai-community/gpt2" in told


def test_a_change_needs_a_seed_that_both_have():
    from repro.papers.yoshida2020.perplexity.tables import change

    def record(ratio, seed):
        return SimpleNamespace(id=f"{seed}", seed=seed, documents={"validation": {
            "nll": [100 * ratio, 200 * ratio], "n_words": [100, 200]}})

    assert change([record(1.0, 1)], [record(1.0, 0)], split="validation") == "–"
    assert change([record(1.0, 1)], []) == change([], [record(1.0, 0)]) == "not run"
    assert change([record(0.9, 0), record(5.0, 1)], [record(1.0, 0)], split="validation").startswith("-9.5%")


def test_the_figures_of_windows_and_costs_draw_the_committed_numbers_of_the_table():
    """The change by recurrence at every window, at the seeds that the table counts; the paper's is that of Table 2."""
    figure, table, costs = (ArtifactContext(artifact(f"yoshida2020-figure{name}"), ("small",))
                            for name in ("4", "4-values", "5"))
    rows = window_table(table).set_index("window")
    ours = window_points(figure).query("model == 'recurrent'").set_index("source")
    assert len(ours.loc["small"]) == len(rows) > 1 and ours.loc["paper", "change"] == pytest.approx(
        100 * (155.27 / 172.25 - 1))
    both = cost_points(costs).query("model == 'recurrent' and source == 'small'").set_index("window")
    for row in ours.loc["small"].itertuples():
        shares = [end / 100 for end in (row.change, row.low, row.high)]
        assert rows.loc[row.window, "change by recurrence"] == bounded(*shares, "+.1%")
        assert both.loc[row.window, ["cost", "change", "low", "high"]].tolist() == [0, row.change, row.low, row.high]
        assert int(rows.loc[row.window, "seeds"]) >= 3
    masked = window_points(figure).query("model != 'recurrent'")
    assert len(masked) == len(rows) and not set(masked["change"]) & set(ours["change"])


def test_what_a_larger_window_changes_agrees_with_the_table():
    """FLOPs per token of a layer of width d = 256, by hand: 2 d (12 d + T)."""
    table = window_table(ArtifactContext(artifact("yoshida2020-figure4-values"), ("small",))).set_index("window")
    change, cost = larger_window(200, 600)
    assert table.loc[200, "change by window"] == "–"
    assert table.loc[600, "change by window"].startswith(f"{change.value:+.1%} [")
    assert cost.value == pytest.approx((12 * 256 + 600) / (12 * 256 + 200) - 1)
    assert larger_window(20, 40, "smoke")[0].command.startswith("repro run recurrence-pg19 --scale smoke")


def test_costs_of_overlap_are_beyond_those_of_disjoint_windows_of_the_same_size():
    """With an overlap of o of T tokens, T tokens are computed for T - o that are scored."""
    found = cost_points(ArtifactContext(artifact("yoshida2020-figure5"), ("small",))).query("source == 'small'")
    assert len(found) == 15
    for row in found.itertuples():
        assert row.cost == pytest.approx(100 * (row.window / (row.window - row.overlap) - 1))
        assert (row.change == 0) == (row.model == "baseline" and row.overlap == 0)
