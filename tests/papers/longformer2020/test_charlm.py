"""Character language models: the settings of Table 12, phases that resume, the paper's protocol, and how pairs of runs
are judged."""

import math
import re
from contextlib import nullcontext
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch
from letters import smallest

from repro.attention.implementations import IMPLEMENTATIONS
from repro.data import tokens
from repro.errors import ReproError
from repro.models import receptive_field
from repro.papers.longformer2020 import counted_weights, one_run, schedule
from repro.papers.longformer2020.charlm import (
    BLOCK,
    Implementation,
    bits,
    decoder_config,
    evaluate,
    phase_length,
    phase_settings,
    stretched,
    train_in_phases,
    trained,
    training_tokens,
)
from repro.papers.longformer2020.charlm_tables import (
    NARROW,
    TOGETHER,
    _difference,
    ablation,
    cost_and_quality,
    difference,
    stretches,
    told_text,
    window_layout,
)
from repro.study import artifact, claim, experiment, model_folder, published, run
from repro.training import Sequences, TrainConfig, train

TINY = {"windows": "[1,2]", "dilation": "[1,2]", "n_embd": 8, "position_size": 4, "length": 16, "longest": 40,
        "steps": "[4,3,2]", "batch_sizes": "[3,2,2]", "held_out": 200, "scored": 150, "eval_length": 48,
        "eval_step": 20, "dropout": 0.1, "model": "small", "implementations": '["dense","loop","blocked","flex"]'}
GROWN, FLAT, SHRUNK = ("increasing", False), ("fixed", False), ("decreasing", False)
SOURCES = "the paper", "this study, paper", "this study, small"  # of rows of Table 4


@pytest.fixture(scope="module")
def tiny():
    """The config of a run that takes a second."""
    config, = experiment("charlm").plan("smoke", TINY)
    return config


@pytest.fixture(scope="module")
def whole(home, tiny):
    """A run from the start to its end, and what it trained with: lengths and batches, settings, and the weights before
    and after each phase."""
    seen, settings, weights = [], [], []
    plain, made = Sequences.__init__, TrainConfig.__init__

    def noted(objective, *rest):
        weights.append(deepcopy(objective.model.state_dict()))
        result = train(objective, *rest)
        weights.append(deepcopy(objective.model.state_dict()))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sequences, "__init__", lambda self, *rest: seen.append(rest[1:3]) or plain(self, *rest))
        patch.setattr(TrainConfig, "__init__", lambda self, *rest, **named: (
            settings.append(self) or made(self, *rest, **named)))
        patch.setattr("repro.training.train", noted)
        return SimpleNamespace(record=run(tiny, progress=False), seen=seen, settings=settings, weights=weights)


@pytest.fixture
def model(whole, tiny):
    """The model that it left, and its tokeniser."""
    return trained(tiny, model_folder(tiny, progress=False))


def printed() -> dict[str, str]:
    rows = published("longformer2020_table12_char_lm_hyperparameters").to_dict("records")
    return {row["parameter"]: row["value_interpreted"] or row["value_as_printed"] for row in rows}


def numbers(text: str) -> list[int]:
    return [int(float(number.strip().lower().removesuffix("k")) * (1000 if "k" in number.lower() else 1))
            for number in text.split(",")]


@pytest.mark.parametrize(("model", "layers"), [("small", 12), ("large", 30)])
def test_the_paper_scale_is_table_12(model, layers):
    table, rows = printed(), published("longformer2020_text_settings").to_dict("records")
    said = {row["parameter"]: row["value"] for row in rows if row["topic"] == "character LM"}
    for config in experiment("charlm").plan("paper"):
        if config.model != model:
            continue
        sizes = table[f"{model.capitalize()} model config"]
        assert sizes == f"{len(config.windows)} layers, {config.n_head} heads, {config.n_embd} hidden size"
        assert f"{config.dropout} ({model} model)" in table["Dropout"]
        assert (config.clip, config.weight_decay) == (float(table["Gradient clipping"]), float(table["Weight decay"]))
        assert list(config.steps) == numbers(table[f"Steps per phase ({model})"])
        assert list(config.batch_sizes) == numbers(table["Batch size per phase"])
        assert len(config.steps) == int(table["Number of phases"])
        assert phase_length(config, 0) == int(table["Phase 1 sequence length"].replace(",", ""))
        assert table["Phase 5 sequence length"].startswith(f"{phase_length(config, 4):,}")
        phases = [phase_settings(config, phase) for phase in range(5)]
        assert [phases[0].learning_rate, phases[4].learning_rate] == [float(table[f"Phase {k} LR"]) for k in (1, 5)]
        assert all(one.learning_rate == 2 * after.learning_rate for one, after in pairwise(phases))
        assert table["Warmup"] == "10% of the phase steps with maximum 10K steps"
        assert [one.warmup_steps for one in phases] == [min(steps // 10, 10_000) for steps in config.steps]
        assert table["LR scheduler"].startswith("constant") and {one.decay for one in phases} == {"none"}
        assert {(one.clip, one.weight_decay, one.precision) for one in phases} == {(0.25, 0.01, "bf16")}
        assert (config.position_size, decoder_config(config, 205).dropout) == (config.n_embd, config.dropout)
        assert [config.eval_length, config.eval_step] == [
            int(said["evaluation sequence length"]), int(said["evaluation step"])]
        for phase, name in ((0, "Phase 1 window sizes"), (4, "Phase 5 window sizes")):
            windows = [layer[-1].window for layer in decoder_config(config, 205, phase).patterns]
            assert table[name] == f"{windows[0]:,} (bottom layer) - {windows[-1]:,} (top layer)"
            assert windows == sorted(windows)
        gaps = table[f"Dilation ({model} model)"]
        for layer, heads in enumerate(decoder_config(config, 205).patterns):
            (first, last, gap), = [found for found in ranges(gaps) if found[0] <= layer <= found[1]]
            assert [head.dilation for head in heads] == [gap + 1] * 2 + [1] * 6  # dilation 0 of the paper is none
        assert table["Dilation heads"] == f"{config.dilated_heads} heads only"
        assert len(config.windows) == layers and config.corpus in ("text8", "enwik8") and config.scored is None


def test_table_12_shows_every_printed_setting_and_ours_are_equal_at_paper_scale(tmp_path):
    table = artifact("longformer2020-table12").render("small", results=tmp_path).table.set_index("setting")
    names = [row["parameter"] for row in published("longformer2020_table12_char_lm_hyperparameters").to_dict("records")]
    text = published("longformer2020_text_settings").query("topic == 'character LM'")["parameter"].tolist()
    shown = [name.split(" (")[0] if name not in names else name for name in table.index]
    assert shown == names + text[3:] and text[:3] == [
        "training phases", "first-phase sequence length", "last-phase sequence length"]  # they are in Table 12 too
    differ = {}
    for name, row in table.iterrows():
        paper = row["paper"].partition(" [read as ")[2].removesuffix("]") or row["paper"]
        if name != "dropout values tried (Appendix B)" and name != "phase-1 learning rates tried (Appendix B)":
            if paper.lower() != row["full"].lower():
                differ[name] = row["full"]
    assert differ == {
        "Phase 5 sequence length": "23,040",  # without the reason
        "hardware small (Appendix B)": "one GPU", "hardware large (Appendix B)": "one GPU",
        "precision (Appendix B)": "bf16/fp32 mixed, attention in fp32"}
    assert table.loc["Steps per phase (small)", "small"] == "800, 400, 200, 80, 40"
    assert table.loc["Dilation (small model)", "small"] == (
        "0 (layers 0-2), 1 (layer 3), 2 (layer 4), 3 (layer 5)")
    assert table.loc["data (Appendix B)", "small"].startswith("6.88M characters split 6.19M / 0.344M / 0.344M; ")


def test_a_phase_is_trained_as_table_12_says(monkeypatch):
    """Warm-up of a tenth of the steps but at most 10,000, then a constant rate; halved from phase to phase."""
    made, built, text = [], [], {"train": np.zeros(600_000, int), "validation": np.zeros(100, int)}
    plain = TrainConfig.__init__
    monkeypatch.setattr(TrainConfig, "__init__", lambda self, *rest, **named: (
        made.append(self) or plain(self, *rest, **named)))
    monkeypatch.setattr("repro.training.train", lambda *rest: SimpleNamespace(curves={}, tokens=0))
    monkeypatch.setattr("repro.models.Decoder", lambda *rest: built.append(rest[1:]) or torch.nn.Linear(1, 1))
    config = experiment("charlm").plan("paper", {"optimizer": "muon", "attention": "products"})[0]
    bar = nullcontext(SimpleNamespace(advance=lambda n, **info: None))
    model, _ = train_in_phases(config, SimpleNamespace(progress=lambda *told: bar, folder=Path("unused")), text, 28)
    assert built == [("products", True)] * 5 and model.implementation == "auto"
    assert {one.optimizer for one in made} == {"muon"}
    assert [one.warmup_steps for one in made] == [10_000, 5_000, 5_000, 3_500, 500]
    assert [one.learning_rate for one in made] == [0.00025 / 2**phase for phase in range(5)]
    assert made[0].rate(9_999, 430_000) == made[0].rate(429_999, 430_000) == 0.00025
    assert {(one.precision, one.clip, one.weight_decay) for one in made} == {("bf16", 0.25, 0.01)}


def ranges(text: str) -> list[tuple[int, int, int]]:
    """"0 (layers 0-5), 1 (layers 6-7)" as [(0, 5, 0), (6, 7, 1)]."""
    found = []
    for part in text.split(", "):
        gap, layers = part.rstrip(")").split(" (layers ")
        found.append((*map(int, layers.split("-")), int(gap)))
    return found


def test_the_ablation_is_phase_1_of_the_small_model():
    table, plan = published("longformer2020_table4_ablation"), experiment("charlm-ablation").plan("paper")
    assert {config.steps for config in plan} == {(int(table.training_steps[0]),)}
    shrinking, fixed, growing, dilated, narrow = plan
    ends = {row.configuration: (int(row.window_bottom_layer), int(row.window_top_layer))
            for row in table.itertuples() if row.window_top_layer}
    assert (shrinking.windows[0], shrinking.windows[-1]) == ends["Decreasing w"]
    assert (growing.windows[0], growing.windows[-1]) == ends["Increasing w"]
    assert (fixed.windows[0], fixed.windows[-1]) == ends["Fixed w"] == (230, 230)
    assert dilated.windows == growing.windows and set(growing.dilation) == {1} and max(dilated.dilation) == 4
    assert set(narrow.windows) == {growing.windows[0]} and set(narrow.dilation) == {1}
    assert [window_layout(config) for config in plan] == [SHRUNK, FLAT, GROWN, ("increasing", True), NARROW]


def test_runs_at_small_take_five_core_hours_and_score_thirty_stretches_of_each_text():
    table, (*windows, full) = (experiment(name).plan("small") for name in ("charlm-ablation", "charlm-cost"))
    runs = 5 * table + 3 * [*windows[::2], full] + windows[1::2]  # as many as have seeds
    assert 4 * 3600 < sum(experiment(one.experiment).estimate(one).seconds for one in runs) < 5 * 3600
    assert {one.scored // BLOCK // TOGETHER for one in runs} == {30} and len(runs) == 40


@pytest.mark.parametrize(("scale", "window"), [("smoke", 7), ("small", 27), ("medium", 230), ("paper", 230)])
def test_a_fixed_window_is_the_mean_rounded_up(scale, window):
    plan = experiment("charlm-ablation").plan(scale)
    assert set(plan[1].windows) == {window} and window - 1 < fmean(plan[2].windows) <= window


@pytest.mark.parametrize("scale", ["smoke", "small", "medium", "paper"])
def test_every_scale_keeps_the_proportions(scale):
    for name in ("charlm", "charlm-ablation"):
        for config in experiment(name).plan(scale):
            assert max(config.windows) == 16 * min(config.windows) == config.length / 4 or len(set(config.windows)) == 1
    staged = experiment("charlm").plan(scale)[0]
    assert [phase_length(staged, k) / staged.length for k in range(5)] == [1, 2, 4, 8, 11.25]
    assert [staged.batch_sizes[0] / size for size in staged.batch_sizes] == [1, 1, 2, 2, 2]


def test_a_schedule_is_spread_over_any_number_of_layers():
    assert stretched((1, 2, 3), 6) == (1, 1, 2, 2, 3, 3) and stretched((1, 1, 2, 2, 3, 3), 3) == (1, 2, 3)


def test_a_run_of_three_phases(whole, tiny):
    assert whole.seen == [(16, 3), (32, 2), (40, 2)]  # doubled, up to `longest`
    assert whole.settings == [phase_settings(tiny, phase) for phase in range(3)]
    assert [one.learning_rate for one in whole.settings] == [tiny.learning_rate / 2**phase for phase in range(3)]
    assert [one.tokens for one in whole.settings] == [4 * 48, 3 * 64, 2 * 80] == training_tokens(tiny)
    assert [decoder_config(tiny, 9, phase).patterns[1][-1].window for phase in range(3)] == [2, 4, 8]
    (first, *begun), (*ended, _) = whole.weights[::2], whole.weights[1::2]
    assert all(torch.equal(one[name], other[name]) for one, other in zip(ended, begun, strict=True) for name in one)
    assert not torch.equal(first["embed.weight"], ended[0]["embed.weight"])
    at = [x for x, _ in whole.record.curves["train_loss"]]
    assert at == sorted(at) and at[-1] == sum(training_tokens(tiny))
    for split in ("validation", "test"):
        held = whole.record.documents[split]
        assert sum(held["n_characters"]) == 150
        found = sum(held["nll"]) / math.log(2) / 150
        assert whole.record.metrics[f"{split}_bits_per_character"] == pytest.approx(found)
    pooled = whole.record.metrics["pooled_bits_per_character"]
    assert pooled == pytest.approx(fmean(whole.record.metrics[f"{split}_bits_per_character"]
                                         for split in ("validation", "test")))  # of texts of one length


def test_every_implementation_gives_the_same_bits_per_character(whole):
    found = [whole.record.metrics[f"validation_bits_per_character_{name}"]
             for name in ("dense", "loop", "blocked", "flex")]
    assert max(found) - min(found) < 1e-4 and found[0] > 1


def evaluated(config, model, text):
    bar = SimpleNamespace(advance=lambda n, **info: None)
    return evaluate(config, SimpleNamespace(progress=lambda *told: nullcontext(bar)), model, text)[0]


def test_the_trained_model_comes_back(whole, tiny, model):
    text = {split: tokens(tiny.corpus, split, model[1]).ids for split in ("validation", "test")}
    assert evaluated(tiny, model[0], text) == pytest.approx(whole.record.metrics, rel=1e-6)


def test_a_character_is_scored_at_the_end_of_an_overlapping_sequence(tiny, model):
    """The paper's protocol, written out: sequences of eval_length, each scored on its last eval_step characters."""
    length, step = 24, 18  # the model sees 17 back: what it reads before the scored ones matters
    for weights in model[0].parameters():
        torch.nn.init.normal_(weights, generator=torch.Generator().manual_seed(0))
    ids = tokens(tiny.corpus, "test", model[1]).ids[:length + 6 * step + 1]
    config = tiny.model_copy(update={"implementations": (), "eval_length": length, "eval_step": step})
    found = evaluated(config, model[0], {"validation": ids[::-1].copy(), "test": ids})
    total, ids = 0.0, torch.from_numpy(ids.astype("int64"))
    for stop in range(length, len(ids), step):
        logits = model[0](ids[None, stop - length:stop])[0].log_softmax(-1)
        losses = -logits[torch.arange(length), ids[stop - length + 1:stop + 1]]
        total += (losses if stop == length else losses[-step:]).sum().item()
    assert found["test_bits_per_character"] == pytest.approx(total / math.log(2) / (len(ids) - 1), rel=1e-5)


@pytest.mark.parametrize("at", [2, 6, 8])
def test_a_run_that_is_stopped_goes_on_in_its_phase(whole, tiny, home, tmp_path, monkeypatch, at):
    """9 steps: 4, 3 and 2. It ends in the same record, and repeats no finished phase."""
    monkeypatch.setenv("REPRO_WORK", str(tmp_path))
    (tmp_path / "tokens").symlink_to(home / "work" / "tokens")
    plain, drawn = Sequences.batch, []

    def stopping(self, step):
        drawn.append((self.length, step))
        if len(drawn) == at:
            raise KeyboardInterrupt
        return plain(self, step)

    monkeypatch.setattr(Sequences, "batch", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(tiny, tmp_path / "results", progress=False)
    record = run(tiny, tmp_path / "results", progress=False)
    assert record.cost["resumed"] and record.digest == whole.record.digest
    reached = drawn[at - 1][0]
    assert min(length for length, _ in drawn[at:]) == reached == {2: 16, 6: 32, 8: 40}[at]


def record(windows, seed, loss, dilation=(1, 1), blocks=(1.0, 2.0, 4.0)):
    """Blocks of 10 characters that differ much in difficulty; `loss` more bits per character on each."""
    nll = [10 * math.log(2) * (hard + loss) for hard in blocks]
    return SimpleNamespace(
        id=f"{windows}-{seed}", seed=seed,
        config={"windows": list(windows), "dilation": list(dilation), "dilated_heads": 2},
        metrics={"validation_bits_per_character": fmean(blocks) + loss},
        documents=dict.fromkeys(("validation", "test"), {"nll": nll, "n_characters": [10] * len(blocks)}))


def runs(windows, losses):
    return [record(windows, seed, loss) for seed, loss in enumerate(losses)]


def test_differences_are_paired_by_seed_and_stretch():
    found = difference(runs((1, 2), (0.1, 0.2, 0.6)), runs((2, 2), (0.0, 0.2, 0.4)))
    assert found == pytest.approx(np.array([[0.1] * 3, [0.0] * 3, [0.2] * 3]))
    uneven = difference([record((1, 2), 0, 0, blocks=(1.3, 2.0, 4.0))], runs((2, 2), (0.0,)))
    assert found.shape == (3, 3) and uneven == pytest.approx(np.array([[0.3, 0.0, 0.0]]))
    both = difference([record((1, 2), 0, 0, blocks=(1.3, 2.0, 4.0))], runs((2, 2), (0.0,)), ("validation", "test"))
    assert both == pytest.approx(np.array([[0.3, 0.0, 0.0] * 2]))


def test_five_neighbouring_blocks_are_one_unit():
    """Differences that cancel within each five blocks leave no doubt; moved by one block they leave some."""
    even = [2.0] * 50
    cancel = [2 + times * difference for times in (1, 3) * 5 for difference in (0.2, 0.1, 0.0, -0.1, -0.2)]
    for blocks, certain in ((cancel, True), (cancel[1:] + cancel[:1], False)):
        found = difference([record((1, 2), 0, 0, blocks=blocks)], [record((2, 2), 0, 0, blocks=even)])
        assert found.shape == (1, 10) and found.mean() == pytest.approx(0)
        assert bool(found.std() < 1e-9) is certain


def test_the_table_tells_a_difference_as_verdicts_do():
    pair = runs((1, 2), (0.1, 0.2, 0.6)), runs((2, 2), (0.0, 0.2, 0.4))
    reach = 4.302653 * stdev([0.1, 0.0, 0.2]) / math.sqrt(3)  # Student's t with 2 degrees of freedom
    assert _difference(*pair) == f"+0.100 [{0.1 - reach:+.3f}, {0.1 + reach:+.3f}]"
    alone = _difference([record((1, 2), 0, 0, blocks=(1.3, 2.0, 4.0))], pair[1][:1])
    assert alone.startswith("+0.100 [") and alone.endswith("] over text only")


def test_a_difference_of_the_table_has_the_text_of_its_claim(monkeypatch):
    """The committed records: one number in the table, the verdict and what is written about them."""
    monkeypatch.delenv("REPRO_HOME", raising=False)  # runs of this file have a home of their own, without records
    table = artifact("longformer2020-table4").render("small", also=()).table
    ours = table[table["source"] != "the paper"].set_index("configuration")["difference"]
    for name, row in (("dilation", "Dilation on 2 heads"), ("order", "Decreasing w"), ("increasing", "Fixed w")):
        effect = claim(f"longformer2020-table4-{name}").verdict("small").effect
        assert float(ours[row].partition(" ")[0]) == pytest.approx(effect if name == "dilation" else -effect, abs=6e-4)


@pytest.mark.parametrize(("n", "sums"), [
    (50, [5] * 10), (27, [5] * 5 + [2]), (25, [5] * 5), (24, [4] * 6), (10, [2] * 5), (9, [1] * 9), (4, [1] * 4)])
def test_a_short_text_is_drawn_in_shorter_stretches(n, sums):
    assert stretches([1] * n) == sums and sum(stretches(list(range(n)))) == sum(range(n))


@pytest.mark.parametrize(("losses", "verdict"), [
    ((-0.020, -0.021, -0.022, -0.020, -0.021), "reproduced"), ((0.020, 0.021, 0.022, 0.020, 0.021), "not reproduced"),
    ((-0.02, -0.3, 0.1, 0.0, -0.1), "not testable here"), ((-0.009, -0.014, 0.004, -0.015, 0.001), "inconclusive"),
    ((-0.020, -0.021, -0.022), "open")])
def test_a_pair_is_judged_over_seeds_and_text(losses, verdict):
    found = claim("longformer2020-table4-increasing").judge(runs((2, 2), (0.0,) * len(losses)) + runs((1, 2), losses))
    assert found.verdict == verdict and found.effect == pytest.approx(fmean(losses))
    assert found.paper_effect == pytest.approx(1.21 - 1.23) and found.n_units == 6
    assert "bits" in found.text


def test_the_rows_of_table_4_are_one_family():
    found = [claim(f"longformer2020-table4-{name}") for name in ("increasing", "decreasing", "order", "dilation")]
    assert {one.family for one in found} == {"longformer2020-table4"}
    assert [round(one.paper_effect(), 3) for one in found] == [-0.02, -0.01, -0.03, -0.01]


@pytest.mark.parametrize(("windows", "dilation", "heads", "found"), [
    ((1, 2, 2), (1, 1, 1), 2, GROWN), ((2, 2, 1), (1, 1, 1), 2, SHRUNK), ((2, 2, 2), (1, 1, 1), 2, FLAT),
    ((1, 2, 1), (1, 1, 1), 2, ("mixed", False)), ((None, None), (1, 1), 2, ("full", False)),
    ((1, 2), (1, 4), 1, ("increasing", True)), ((1, 2), (1, 4), 0, GROWN)])
def test_kinds_of_runs(windows, dilation, heads, found):
    assert window_layout({"windows": list(windows), "dilation": list(dilation), "dilated_heads": heads}) == found


def test_a_narrow_run_is_one_with_the_narrowest_window_of_its_scale_in_all_layers():
    for windows, scale, found in (((4, 4), "small", NARROW), ((4, 4), "paper", FLAT), ((32, 32), "paper", NARROW),
                                  ((1, 1), "smoke", NARROW),
                                  ((16, 16), "small", FLAT), ((4, 8), "small", GROWN)):
        assert window_layout({"windows": windows, "dilation": (1, 1), "dilated_heads": 2, "scale": scale}) == found


def test_the_assay_of_table_4_is_what_wider_windows_than_the_narrowest_are_worth():
    one = claim("longformer2020-table4-order")
    positive = [config for config in one.plan("small") if one.assay.where(config)]
    assert [config.windows for config in positive] == [(4, 8, 32, 64), (4, 4, 4, 4)]
    found = [SimpleNamespace(seed=seed, config=config.settings(), metrics={"pooled_bits_per_character": bits})
             for config, losses in zip(positive, ([1.8, 2.0], [1.93, 1.95, 9.0]), strict=True)
             for seed, bits in enumerate(losses)]  # a seed that only one of them has counts nothing
    assert one.assay.room(found) == pytest.approx(0.04)
    pair = runs((2, 1), (0.1,) * 5) + runs((1, 2), (0.0,) * 5)
    assert one.judge(pair, found).verdict == "reproduced"
    assert one.judge(pair, found[1:]).verdict == "reproduced", "a sure sign needs no room"
    torn = runs((2, 1), (0.1,) * 5) + runs((1, 2), (0.0, 0.2, 0.0, 0.2, 0.1))
    assert one.judge(torn, found[1:]).reason == "no room"  # at the second seed alone
    assert one.assay.room(found[:2]) is None


def test_claims_compare_the_rows_they_name():
    named = {"increasing": {GROWN, FLAT}, "decreasing": {FLAT, SHRUNK}, "order": {GROWN, SHRUNK},
             "dilation": {GROWN, ("increasing", True)}}
    better = {"increasing": GROWN, "decreasing": FLAT, "order": GROWN, "dilation": ("increasing", True)}
    for name, kinds in named.items():
        one = claim(f"longformer2020-table4-{name}")
        plan = [config for config in one.plan("small") if one.where(config)]
        assert {window_layout(config) for config in plan} == kinds
        found = [record(config.windows, seed, -0.1 * (window_layout(config) == better[name]), config.dilation)
                 for config in plan for seed in range(3)]
        assert one.judge(found).effect == pytest.approx(-0.1)


@pytest.mark.parametrize("scale", ["smoke", "small", "medium", "paper"])
def test_artifacts_without_records(tmp_path, scale):
    for name in ("table2", "table3", "table4", "implementations"):
        table = artifact(f"longformer2020-{name}").render(scale, results=tmp_path).table
        assert "not run" in table.to_string()
    figure = artifact("longformer2020-window-cost").render(scale, results=tmp_path).content
    assert [axis.get_title("left") for axis in figure.axes] == ["not run"] and not figure.axes[0].axison


def test_table_4_has_every_printed_row_and_ours_below_it(tmp_path):
    table = artifact("longformer2020-table4").render("paper", results=tmp_path).table
    paper, ours, small = (table[table["source"] == source] for source in SOURCES)
    assert list(paper["dev"]) == ["1.24", "1.23", "1.21", "1.21", "1.20"]
    assert list(paper["w"]) == ["512 to 32", "230", "32 to 512", "–", "–"]
    assert list(paper["difference"]) == ["+0.03", "+0.02", "–", "–", "-0.01"]
    assert list(ours["w"]) == ["512 to 32", "230", "32 to 512", "32 to 512", "32 to 512", "32"]
    assert set(paper["text"]) == set(ours["text"]) == {"text8 (100M characters)"} and set(ours["scored"]) == {"all"}
    assert set(small["text"]) == {"text8-prefix (6.88M of 100M characters)"}
    assert set(small["scored"]) == {"first 150,000"}
    assert list(table["source"]) == [SOURCES[0], SOURCES[2], SOURCES[1]] * 5 + [SOURCES[2], SOURCES[1]]


def test_table_4_pairs_what_has_a_common_seed():
    grown = experiment("charlm-ablation").plan("small")[2]
    losses = {"decreasing": {0: 0.3, 1: 0.5, 2: 0.4}, "fixed": {7: 0.2}, "increasing": {0: 0.0, 1: 0.1, 2: 0.2},
              "narrow": {0: 0.4, 1: 0.4}}

    def records_of(config):
        name, dilated = window_layout(config)
        return [record(config.windows, seed, loss) for seed, loss in losses[name].items()] if not dilated else []

    table = ablation(SimpleNamespace(
        scales=("small",), plan=lambda scale: experiment("charlm-ablation").plan(scale), records_of=records_of))
    ours = table[table["source"] == SOURCES[2]].set_index("configuration")
    reach = 4.302653 * stdev([0.3, 0.4, 0.2]) / math.sqrt(3)
    assert ours.loc["Decreasing w", "difference"] == f"+0.300 [{0.3 - reach:+.3f}, {0.3 + reach:+.3f}]"
    assert ours.loc["Fixed w", "difference"] == "not run" and ours.loc["Fixed w", "seeds"] == "1 (7)"
    assert ours.loc["Dilation on 2 heads", ["dev", "seeds", "difference"]].tolist() == ["not run"] * 3
    assert ours.loc["Narrowest w (added)", ["w", "seeds"]].tolist() == ["4", "2 (0, 1)"]
    assert ours.loc["Narrowest w (added)", "difference"].startswith("+0.350 [")
    assert ours.loc["Increasing w", "seeds"] == "3 (0, 1, 2)" and grown.windows == (4, 8, 32, 64)
    losses["fixed"] = {2: 0.1}
    table = ablation(SimpleNamespace(
        scales=("small",), plan=lambda scale: experiment("charlm-ablation").plan(scale), records_of=records_of))
    single = table[table["source"] == SOURCES[2]].set_index("configuration").loc["Fixed w"]
    assert single["difference"] == "-0.100 [-0.100, -0.100] over text only" and single["seeds"] == "1 (2)"
    mean = fmean((1.0, 2.0, 4.0))
    assert ours.loc["Decreasing w", "dev"] == f"{mean + 0.4:.3f} ± 0.100"


@pytest.mark.parametrize(("name", "told"), [
    ("text8", "text8 (100M characters)"), ("enwik8-prefix", "enwik8-prefix (4.15M of 100M characters)"),
    ("synthetic-books", "synthetic-books (generated, 0.71M words)"), ("gutenberg-pretrain", "gutenberg-pretrain")])
def test_a_text_is_told_with_its_size(name, told):
    assert told_text(name) == told


def test_tables_show_every_seed_and_whose_text_it_was(whole, tiny):
    found = [whole.record, run(tiny.model_copy(update={"seed": 1}), progress=False)]
    shown = artifact("longformer2020-table2").render("smoke", also=(), sets=TINY)
    ours = shown.table[shown.table["model"].str.startswith("this study")]
    values = [one.metrics["test_bits_per_character"] for one in found]
    assert ours["text"].tolist() == ["synthetic-books (generated, 0.71M words)"]
    assert ours["test"].item() == f"{fmean(values):.3f} ± {stdev(values):.3f}"
    assert ours["scored"].item() == "first 150" and "2 seeds" in shown.caption
    agreed = artifact("longformer2020-implementations").render("smoke", also=(), sets=TINY).table
    names = ["dense", "loop", "blocked", "flex"]
    assert set(names) == set(IMPLEMENTATIONS) - {"chunks"} == set(get_args(Implementation))  # these cannot dilate
    bits = [[one.metrics[f"validation_bits_per_character_{name}"] for name in names] for one in found]
    assert agreed[names].iloc[0].tolist() == [f"{fmean(some):.6f}" for some in zip(*bits, strict=True)]
    assert float(agreed["largest difference"].item()) == pytest.approx(
        max(max(some) - min(some) for some in bits), rel=0.5)


def test_approximate_sizes_are_told_as_such(tmp_path):
    table = artifact("longformer2020-table3").render("small", results=tmp_path).table.set_index("model")
    assert table.loc["Sparse (Child et al. 2019)", "parameters"] == "≈ 100 M"
    assert table.loc["Longformer (the paper)", "parameters"] == "102 M"


def test_the_cost_figure_has_a_point_for_every_window_and_full_attention():
    plan = experiment("charlm-cost").plan("small")
    found = [SimpleNamespace(metrics={"pairs_per_character": 200.0 - k, "validation_bits_per_character": 2.0 - k / 10})
             for k in range(len(plan))]
    context = SimpleNamespace(scales=("smoke", "small"), plan=lambda scale: plan if scale == "small" else [],
                              records_of=lambda config: [found[plan.index(config)]])
    figure = cost_and_quality(context)
    axis, = figure.axes  # no panel for what was not run
    assert smallest(figure) >= 9
    lines = {line.get_label(): line.get_xydata().tolist() for line in axis.lines}
    assert lines["no dilation"] == [[196, 1.6], [198, 1.8], [200, 2.0]]
    assert lines["dilation 4 on 2 heads"] == [[195, 1.5], [197, 1.7], [199, 1.9]]
    assert {y for _, y in lines["full attention"]} == {1.4} and axis.get_title("left") == "small"
    assert [194, 1.4] in [line.get_xydata().tolist()[0] for line in axis.lines]
    assert [text.get_text() for text in axis.texts] == [f"w = {w}" for w in (64, 16, 4)] * 2


@pytest.mark.parametrize(("sets", "told"), [
    ({"dilation": "[1]"}, "dilation has 1 numbers and windows has 2"),
    ({"steps": "[1,2]"}, "batch_sizes has 3 numbers"),
    ({"windows": "[0,2]"}, "windows.0"), ({"dilated_heads": 9}, "dilated_heads is 9; it must be at most n_head (4)"),
    ({"implementations": '["dense","blokced"]'}, "unknown implementations 'blokced'. Did you mean 'blocked'?"),
    ({"n_embd": 6}, "n_embd is 6 and n_head 4"), ({"eval_step": 49}, "eval_step is 49 characters")])
def test_settings_that_cannot_be(sets, told):
    with pytest.raises(ReproError, match=re.escape(told)) as raised:
        experiment("charlm").plan("smoke", TINY | sets)
    assert "\n" not in str(raised.value)


def test_bits_per_character():
    one, other = (SimpleNamespace(nll=n * math.log(2), n_scored=scored) for n, scored in ((6, 4), (2, 12)))
    assert (bits(one), bits(one, other)) == (pytest.approx(1.5), pytest.approx(0.5))


def test_the_schedule_doubles_windows_and_lengths_and_halves_the_rate():
    table = schedule()
    assert list(table["windows"]) == ["32 to 512", "64 to 1,024", "128 to 2,048", "256 to 4,096", "512 to 8,192"]
    assert list(table["characters"]) == [2_048, 4_096, 8_192, 16_384, 23_040]
    rates = [float(rate) for rate in table["learning rate"]]
    assert all(later == pytest.approx(earlier / 2) for earlier, later in pairwise(rates))
    config = experiment("charlm").plan("paper")[0]
    field = receptive_field(decoder_config(config, 2, 0).patterns, 9_000)[-1]
    assert field.long().argmax() == 9_000 - 1 - table["reach"][0]  # the first position that the last one depends on


def test_both_models_have_as_many_weights_as_printed():
    table = counted_weights()
    assert list(table["model"]) == ["small", "large"]
    for printed, ours in zip(table["paper"], table["our count"], strict=True):
        assert float(ours) == pytest.approx(float(printed), abs=0.6)  # millions


def test_a_run_of_table_4_is_told_for_each_scale():
    table = one_run(["small", "paper"])
    assert list(table) == ["small", "paper"]
    config = experiment("charlm-ablation").plan("paper")[2]
    assert table["paper"]["characters read in training"] == f"{sum(training_tokens(config)):,}"
    assert table["paper"]["widest window"] == "512" and table["small"]["decay"] == "linear"
