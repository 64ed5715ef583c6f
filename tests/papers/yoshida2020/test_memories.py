"""Memories side by side: what is compared with what, what a run measures, what the table says."""

from contextlib import nullcontext
from math import exp, log
from types import SimpleNamespace

import pytest

from repro.data import corpus
from repro.data.synthetic import bounds
from repro.errors import ReproError
from repro.markup import bounded
from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.yoshida2020.claims.memories import gain
from repro.papers.yoshida2020.memories.experiment import ROWS, execute, known
from repro.papers.yoshida2020.memories.tables import COLUMNS, cost_figure, cost_points, memory_table, reach
from repro.papers.yoshida2020.perplexity.evaluation import trained
from repro.papers.yoshida2020.perplexity.finetuning import FINETUNING, added_weights
from repro.study import ArtifactContext, artifact, claims, experiment
from repro.study.artifacts import same_seeds

EXPERIMENT = experiment("memories-pg19")


def test_every_memory_is_a_row_and_the_rows_without_one_come_first():
    from repro.recurrence import MEMORIES

    assert ROWS == ("none", "overlap", *MEMORIES)
    for scale in EXPERIMENT.scales:
        rows = [row for row in ROWS if scale != "smoke" or row in ("none", "gated", "rmt", "cache")]
        assert [run.memory for run in EXPERIMENT.plan(scale)][:len(rows)] == rows


@pytest.mark.parametrize("scale", EXPERIMENT.scales)
def test_rows_differ_in_the_memory_alone(scale):
    first, *others = EXPERIMENT.plan(scale)
    mine = [run for run in others if run.corpus == first.corpus]
    for run in mine:
        changed = {key for key, value in run.model_dump().items() if value != first.model_dump()[key]}
        assert changed <= {"memory", "model", "overlap", "train_overlap", "zero_init", "module_learning_rate"}
        assert run.zero_init == (run.memory in ("yoshida", "yoshida-first", "embeddings-4"))
        faster = None if run.memory not in ("infini", "knn") else pytest.approx(30 * first.learning_rate)
        assert run.module_learning_rate == faster
        assert (run.model, trained(run).model) == (("baseline",) * 2 if run.memory == "overlap" else ("recurrent",) * 2)
        assert (run.overlap > 0) == (run.memory == "overlap")
        assert trained(run).overlap == run.overlap
        assert trained(run).steps == first.steps
    assert first.learning_rate is not None  # chosen beforehand, the same for all
    known = [run for run in others if run.corpus != first.corpus]
    assert {run.corpus for run in known} == (set() if scale == "smoke" else {"synthetic-books"})


def test_overlap_costs_as_much_as_the_dearest_memory_and_the_cache_as_much_as_windows_of_twice_the_size():
    from transformers import GPT2Config

    from repro.evaluation import flops_per_token
    from repro.recurrence import MEMORIES
    from repro.recurrence.memories import complete, make

    config = GPT2Config(n_layer=6, n_embd=256, n_head=4)
    plain = flops_per_token(6, 256, 64, 0)
    cost = {name: 1 + make(config, complete(name)).flops_per_token(64, 0) / plain for name in MEMORIES}
    assert cost.pop("cache") == pytest.approx(flops_per_token(6, 256, 128, 64) / plain, abs=0.01)
    overlap = next(run.overlap for run in EXPERIMENT.plan("small") if run.memory == "overlap")
    assert flops_per_token(6, 256, 64, overlap) / plain == pytest.approx(max(cost.values()), abs=0.03)


@pytest.mark.parametrize(("memory", "overlap", "words"), [
    ("none", 5, "memory is none with an overlap of 5"), ("overlap", 0, "an overlap above 0 with memory=overlap"),
    ("rnn", 0, "unknown memory 'rnn'")])
def test_what_contradicts_itself_is_refused(memory, overlap, words):
    with pytest.raises(ReproError, match=words) as raised:
        EXPERIMENT.plan("smoke", {"memory": memory, "overlap": overlap})
    assert "\n" not in str(raised.value)


def test_runs_from_before_there_were_memories_keep_their_settings():
    for name in ("finetune-gpt2", "recurrence-pg19"):
        assert all("memory" not in run.settings() for run in experiment(name).plan("small"))
    assert all(run.settings()["memory"] == run.memory for run in EXPERIMENT.plan("small"))


@pytest.mark.parametrize("memory", ROWS[2:])
def test_weights_are_counted_without_making_them(tiny_gpt2, tmp_path, memory):
    from repro.recurrence import with_memory

    tiny_gpt2().save_pretrained(tmp_path)
    base = SimpleNamespace(n_layer=3, n_embd=16, n_head=2)
    made = sum(weight.numel() for weight in with_memory(tmp_path, memory).added_parameters())
    assert added_weights(memory, base) == made
    assert (made > 0) == (memory != "cache")
    run = next(run for run in EXPERIMENT.plan("small") if run.memory == memory)
    estimates = [EXPERIMENT.estimate(one).parameters for one in (run, EXPERIMENT.plan("small")[0])]
    assert estimates[0] - estimates[1] == added_weights(memory, PRETRAINING.plan("small")[0])


@pytest.mark.parametrize("memory", ["rmt", "cache"])
def test_what_a_memory_computes_is_foretold(memory):
    from transformers import GPT2Config

    from repro.recurrence.memories import complete, make

    base = PRETRAINING.plan("small")[0]
    plain, run = (next(run for run in EXPERIMENT.plan("small") if run.memory == name) for name in ("none", memory))
    flops = [FINETUNING.estimate(trained(one)).flops for one in (plain, run)]
    config = GPT2Config(n_layer=base.n_layer, n_embd=base.n_embd, n_head=base.n_head)
    added = 3 * make(config, complete(memory)).flops_per_token(64, 0)  # forwards once, backwards twice
    assert added > 0 and flops[1] - flops[0] == pytest.approx(added * 768_000)


@pytest.mark.parametrize("memory", ["none", "rmt", "knn", "compressed", "cache"])
def test_a_run_measures_what_the_memory_is(tiny_memory, tiny_gpt2, tmp_path, memory):
    from repro.evaluation import flops_per_token
    from repro.models import save_causal_lm

    changes = {"vocab_size": 205, "n_positions": 60}
    model = tiny_gpt2(**changes) if memory == "none" else tiny_memory(memory, changes=changes)
    save_causal_lm(model, tmp_path / "model")
    record = SimpleNamespace(curves={}, notes={}, id="0")
    bar = SimpleNamespace(advance=lambda n: None)
    context = SimpleNamespace(need=lambda run: (record, tmp_path), progress=lambda *told: nullcontext(bar))
    sets = {"memory": memory, "overlap": 0, "train_overlap": None, "test_head": 95, "windows_per_sequence": 6}
    outcome = execute(EXPERIMENT.plan("smoke", sets)[0], context)

    found = outcome.metrics
    plain = flops_per_token(3, 16, 30, 0)
    if memory == "none":
        assert (found["weights"], found["state_numbers"], found["reach_windows"]) == (0, 0, 0)
        assert found["flops_per_token"] == plain
        assert "test_word_perplexity_other_document" not in found
    else:
        assert found["weights"] == sum(weight.numel() for weight in model.memory.parameters())
        assert found["state_numbers"] == model.memory.state_numbers(30)
        assert found["flops_per_token"] == plain + model.memory.flops_per_window(30) / 30
        changes = outcome.curves["change_by_windows_back"]
        assert [j for j, _ in changes] == [1, 2, 3, 4, 5]
        assert found["reach_windows"] == max(j for j, change in changes if change > 1e-4)
        assert found["reach_windows"] == {"rmt": 5, "knn": 1, "compressed": 5, "cache": 1}[memory]
        controls = [found[f"test_word_perplexity{name}"] for name in ("", "_masked", "_other_document")]
        assert len({round(control, 3) for control in controls}) == 3
    assert outcome.model == memory
    assert set(outcome.units) == set(found)


@pytest.mark.parametrize("head", [None, 40])
def test_the_share_is_between_the_two_bounds(head):
    config = EXPERIMENT.plan("smoke", {"test_head": head})[0]
    words = [book.text.split()[:head] for book in corpus("synthetic-books").documents("test")]
    best = bounds([" ".join(some) for some in words], 30, 0)
    window, whole = best.window_nll.sum(), best.unlimited_nll.sum()
    assert known(config).share(window) == pytest.approx(0)
    assert known(config).share(whole) == pytest.approx(1)
    assert known(config).share((window + whole) / 2) == pytest.approx(0.5)


def record(run, ratio, seed=0, known=0.5, **without):
    words = [100, 200, 300, 400]
    nll = [n * (log(ratio) + hard) for n, hard in zip(words, (3.0, 5.0, 4.0, 6.0), strict=True)]
    carries = {"test_word_perplexity_masked": 50.5, "test_word_perplexity_other_document": 123.4}
    return SimpleNamespace(
        id=f"{run.memory}{seed}", seed=seed, model=run.memory, config=run.model_dump(), notes={"tokens": 6000},
        cost={"wall_seconds": 2.0 + seed}, documents={"test": {"nll": nll, "n_words": words} | {
            name: [n * log(value) + loss for n, loss in zip(words, nll, strict=True)]
            for name, value in without.items()}},
        metrics={"weights": 1234, "state_numbers": 56789, "flops_per_token": 1.234e6, "reach_windows": 3 + seed,
                 "known_gain": known,
                 **(carries if run.model == "recurrent" else {})})


def told(found, scales=("small",)):
    """A context whose records are `found`: run -> records."""
    return SimpleNamespace(scales=scales, plan=lambda scale: EXPERIMENT.plan(scale),
                           records_of=lambda run: found.get(run, []),
                           at_common_seeds=lambda runs: same_seeds([found.get(run, []) for run in runs]))


def test_the_table_sets_books_beside_books_of_a_known_process():
    plan = EXPERIMENT.plan("small")
    none, rmt, known, bare = (next(run for run in plan if (run.memory, run.corpus) == key) for key in (
        ("none", "pg19-subset"), ("rmt", "pg19-subset"), ("rmt", "synthetic-books"), ("none", "synthetic-books")))
    found = {none: [record(none, 1.0), record(none, 1.0, seed=1), record(none, 9.0, seed=5)],
             rmt: [record(rmt, 0.9), record(rmt, 0.9, seed=1)],
             known: [record(known, 7, nll_masked=exp(0.5), nll_other_document=exp(0.75)), record(known, 7, seed=3)],
             bare: [record(bare, 7 * exp(0.375)), record(bare, 7, seed=2)],
             trained(rmt): [record(rmt, 1), record(rmt, 1, seed=2)]}
    frame = memory_table(told(found)).set_index("memory")
    assert list(frame.index) == list(ROWS)
    assert list(frame.columns) == ["scale", *COLUMNS]
    row = frame.loc["rmt"]
    assert dict(row.drop(["scale", "test perplexity"])) == {
        "seeds": "2 (1)", "weights": "1,234", "state (numbers)": "56,789", "FLOPs/token": "1.23e+06",
        "tokens/s": "2,250", "change": "-10.0% [-10.0%, -10.0%]", "masked": "50.50", "other document": "123",
        "reach (windows)": "3.5",
        "known gain": "+75%"}  # of the one seed that both have: 0.375 nats a word of 0.5
    assert frame.loc["none", "change"] == frame.loc["none", "masked"] == frame.loc["none", "known gain"] == "–"
    assert frame.loc["none", "tokens/s"] == "not run"
    assert set(frame.loc["cache"].drop("scale")) == {"not run"}
    found[known][0] = record(known, 7, nll_masked=exp(0.125), nll_other_document=exp(0.75))
    cell = memory_table(told(found)).set_index("memory").loc["rmt", "known gain"]
    assert cell == "+25%", "what the masked memory saves, too, is no gain of the memory's"
    del found[bare]
    assert memory_table(told(found)).set_index("memory").loc["rmt", "known gain"] == "not run"
    alone = memory_table(told({none: [record(none, 1.0)], rmt: [record(rmt, 0.9, seed=1)]})).set_index("memory")
    assert alone.loc["rmt", "change"] == "–"  # no seed in common


def test_the_figure_has_the_numbers_of_the_table():
    """Costs and changes with their intervals, of the rows that were run and share a seed with "none"."""
    plan = EXPERIMENT.plan("small")
    ratios = {"none": 1.0, "infini": 0.9, "rmt": 0.72, "cache": 1.05}
    found = {run: [record(run, ratios[run.memory], seed) for seed in (0, 1)] for run in plan
             if run.corpus == "pg19-subset" and run.memory in ratios}
    found |= {run: [record(run, 1.0, seed=7)] for run in plan if run.memory == "knn" and run.corpus == "pg19-subset"}
    figure, table = cost_figure(told(found)), memory_table(told(found)).set_index("memory")
    cost, effect = figure.axes
    names = [label.get_text() for label in cost.get_yticklabels()]
    assert names == [name for name in ROWS if name in ratios]
    costs, changes = ({names[int(y)]: x for line in axis.lines if line.get_marker() == "o"
                       for x, y in zip(*line.get_data(), strict=True) if x == x} for axis in (cost, effect))
    for name in names:
        assert f"{costs[name]:.3g}" == table.loc[name, "FLOPs/token"]
        assert changes[name] == pytest.approx(100 * (ratios[name] - 1))
        assert name == "none" or table.loc[name, "change"].startswith(f"{changes[name]:+.1f}% ")
    assert cost.get_title(loc="left") == "small"
    assert "not run" in cost_figure(told({})).alt


def test_the_figure_draws_the_committed_numbers_of_the_table():
    shown = ArtifactContext(artifact("memories-pg19-cost"), ("small",))
    points, table = cost_points(shown).set_index("name"), memory_table(shown).set_index("memory")
    assert list(points.index) == list(table.index)
    for name, row in points.iterrows():
        assert f"{row['flops']:.3g}" == table.loc[name, "FLOPs/token"]
        if name != "none":
            assert table.loc[name, "change"] == bounded(*(row[["change", "low", "high"]] / 100), "+.1%")


def test_claims_on_text_of_a_known_process_compare_a_memory_with_none_and_count_what_can_be_known():
    claimed = {one.id: one for one in claims() if one.experiment == "memories-pg19"}
    assert set(claimed) == {"yoshida2020-known-gain-yoshida", "yoshida2020-known-gain-yoshida-first"}
    run = next(run for run in EXPERIMENT.plan("small") if run.memory == "yoshida" and run.corpus == "synthetic-books")
    plain = run.model_copy(update={"memory": "none", "model": "baseline"})
    for masked, effect in ((1.1, 0.9), (0.99, 0.9 / 0.99)):  # beyond the better of the baseline and the masked module
        rows = [one for seed in range(5) for one in (record(plain, 1.0, seed), record(
            run, 0.9, seed, nll_masked=masked / 0.9, nll_other_document=1.2 / 0.9))]
        found = claimed["yoshida2020-known-gain-yoshida"].judge(rows)
        assert (found.effect, found.control) == (pytest.approx(effect - 1), None)
    for one in claimed.values():
        memory = one.id.removeprefix("yoshida2020-known-gain-")
        where = [run for run in EXPERIMENT.plan("small") if one.where(run)]
        assert {(run.corpus, run.memory) for run in where} == {("synthetic-books", memory), ("synthetic-books", "none")}
        assert not any(one.where(run) for run in EXPERIMENT.plan("smoke"))
        assert [run.memory for run in EXPERIMENT.plan("small") if one.assay.where(run)] == ["none"]
    none, ours = (record(run, ratio) for run, ratio in zip(
        [next(run for run in EXPERIMENT.plan("small") if run.memory == name) for name in ("none", "yoshida")],
        (1.0, 0.9), strict=True))
    ours.documents["test"] |= {f"nll_{name}": [nll + n * log(ratio) for nll, n in zip(
        none.documents["test"]["nll"], none.documents["test"]["n_words"], strict=True)]
        for name, ratio in (("masked", 1.1), ("other_document", 1.05))}
    found = gain([ours, none])
    assert found.effects.shape == (1, 4) and found.control is None
    assert found.effects.mean() == pytest.approx(log(0.9))


def test_a_reach_as_far_as_the_text_says_that_it_may_be_farther():
    assert [reach(found, 19) for found in ([19, 19], [18, 19], [7])] == ["≥ 19", "18.5", "7"]


def test_a_last_layer_of_zero_gives_a_state_of_zeros_which_is_still_a_token(tiny_gpt2, tmp_path):
    import torch

    from repro.models import load_causal_lm

    tiny_gpt2().save_pretrained(tmp_path)
    ids = torch.arange(18)[None] % 9
    for zero in (True, False):
        model = load_causal_lm(tmp_path, memory="yoshida", zero_init=zero).eval()
        module = model.memory.recurrence
        assert module.feedforward[-1].weight.eq(0).all() == zero
        assert module(torch.ones(1, module.d_model)).eq(0).all() == zero
        with torch.no_grad():
            seen, alone = (model(ids, window=6, recurrent=recurrent).logits for recurrent in (True, False))
        assert torch.equal(seen[:, :6], alone[:, :6]) and not torch.allclose(seen[:, 6:], alone[:, 6:])
