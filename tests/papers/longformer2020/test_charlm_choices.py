"""The model of Table 4 with one change at a time: what each row changes, and that nothing else differs."""

import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import get_args

import pytest

from repro.data import tokens
from repro.models.decoder import DETAILS as BUILT
from repro.papers.longformer2020.charlm import Detail, decoder_config, evaluate, trained
from repro.papers.longformer2020.charlm_choices import ALL_HEADS, AS_THERE, BASE, DETAILS, POSITIONS, choice
from repro.papers.longformer2020.charlm_tables import window_layout
from repro.study import ArtifactContext, artifact, claim, experiment, model_folder, run

SCALES = ["smoke", "small"]
ALONE = {"smoke": [], "small": [DETAILS["scaled"], DETAILS["shared"], DETAILS["bare"]]}


def rows(scale):
    return experiment("charlm-choices").plan(scale)


def of_table_4(scale, dilated):
    """The run of Table 4 at the settings that the rows change: windows that grow, without dilation or with it."""
    dilation = BASE[scale]["dilation"] if dilated else (1,) * len(BASE[scale]["windows"])
    config, = experiment("charlm-ablation").plan(scale, BASE[scale] | {"dilation": dilation})
    assert window_layout(config) == ("increasing", dilated)
    return config


@pytest.mark.parametrize("scale", SCALES)
def test_a_row_is_the_run_of_table_4_with_one_thing_otherwise(scale):
    found = {}
    for config in rows(scale):
        values, base = config.model_dump(), of_table_4(scale, choice(config) == ALL_HEADS).model_dump()
        found[choice(config)] = {key for key in values if values[key] != base[key]} - {"experiment"}
    assert found == {
        AS_THERE: {"details"}, **{name: {"details"} for name in ALONE[scale]},
        POSITIONS["absolute"]: {"positions", "eval_length", "eval_step"}, POSITIONS["none"]: {"positions"},
        ALL_HEADS: {"dilated_heads"}}


@pytest.mark.parametrize("scale", SCALES)
def test_every_head_is_dilated_where_all_are(scale):
    config, two = next(one for one in rows(scale) if choice(one) == ALL_HEADS), of_table_4(scale, True)
    steps = [[head.dilation for head in layer] for layer in decoder_config(config, 2).patterns]
    assert steps == [[step] * 4 for step in config.dilation] and max(config.dilation) > 1
    assert [[head.dilation for head in layer] for layer in decoder_config(two, 2).patterns] == [
        [step] * 2 + [1] * 2 for step in config.dilation]


@pytest.mark.parametrize("scale", SCALES)
def test_shorter_sequences_hold_all_that_a_scored_character_depends_on(scale):
    config = next(one for one in rows(scale) if one.positions == "absolute")
    assert config.eval_length == config.length
    assert sum(window - 1 for window in config.windows) <= config.eval_length - config.eval_step


def test_records_say_what_was_chosen_and_those_before_hold_nothing_of_it():
    for scale in SCALES:
        assert [choice(config.settings()) for config in rows(scale)] == list(map(choice, rows(scale)))
        for name in ("charlm", "charlm-ablation", "charlm-cost"):
            for config in experiment(name).plan(scale):
                assert not {"positions", "details", "doubling"} & config.settings().keys()
    assert get_args(Detail) == tuple(BUILT) == tuple(DETAILS)


@pytest.mark.parametrize("chosen", [{"details": '["scaled","dropout","shared","bare"]'}, {"positions": "absolute"}])
def test_the_trained_model_comes_back(home, chosen):
    """Through two phases, the second with other windows; also where layers share weights."""
    config, = experiment("charlm-choices").plan("smoke", {
        "windows": "[1,2]", "dilation": "[1,2]", "n_embd": 8, "position_size": 4, "length": 16, "steps": "[3,2]",
        "batch_sizes": "[2,2]", "held_out": 100, "scored": 100, "eval_length": 24, "eval_step": 12, "dropout": 0.1,
        "dilated_heads": 2, "details": "[]", "positions": "relative"} | chosen)
    record = run(config, progress=False)
    model, coder = trained(config, model_folder(config, progress=False))
    text = {split: tokens(config.corpus, split, coder).ids for split in ("validation", "test")}
    bar = SimpleNamespace(advance=lambda n, **info: None)
    found, _ = evaluate(config, SimpleNamespace(progress=lambda *told: nullcontext(bar)), model, text)
    assert found == pytest.approx(record.metrics, rel=1e-6)
    assert model.config.details == tuple(config.details) and model.config.positions == config.positions
    assert record.metrics["parameters"] == sum(weight.numel() for weight in model.parameters())


def record(config, seed, loss):
    nll = [10 * math.log(2) * (hard + loss) for hard in (1.0, 2.0, 4.0)]
    return SimpleNamespace(
        id=f"{choice(config)}-{seed}", seed=seed, scale=config.scale, experiment=config.experiment,
        config=config.settings(), metrics={"validation_bits_per_character": loss},
        documents=dict.fromkeys(("validation", "test"), {"nll": nll, "n_characters": [10] * 3}))


def test_two_heads_are_held_against_all():
    one = claim("longformer2020-two-heads")
    judged = [config for config in one.plan("small") if one.where(config)]
    assert sorted((config.experiment, window_layout(config)) for config in judged) == [
        ("charlm-ablation", ("increasing", True)), ("charlm-choices", ("increasing", True))]
    losses = {"charlm-ablation": (1.0, 1.1, 1.2), "charlm-choices": (1.3, 1.4, 1.5)}
    found = one.judge([record(config, seed, loss) for config in judged
                       for seed, loss in enumerate(losses[config.experiment])])
    assert found.effect == pytest.approx(-0.3) and found.verdict == "reproduced" and found.n_seeds == 3
    assert one.family == claim("longformer2020-later-phases").family and one.assay is None


def test_the_table_holds_every_choice_against_windows_that_grow(monkeypatch, tmp_path):
    empty = artifact("longformer2020-choices").render("small", also=(), results=tmp_path).table
    assert set(empty["dev"]) == {"not run"} and set(empty["difference"]) == {"–", "not run"}
    shown = artifact("longformer2020-choices")
    at = {"charlm-ablation": 0, "charlm-choices": 1}

    def records_of(self, config):
        later = config.details != ("bare",)  # has no seed that the others have
        return [record(config, seed + 5 * (not later), 2 + at[config.experiment] / 10) for seed in range(3)]

    monkeypatch.setattr(ArtifactContext, "records_of", records_of)
    table = shown.render("small", also=(), results=tmp_path).table.set_index("choice")
    assert list(table.index) == ["windows that grow (Table 4)", "dilation on two heads (Table 4)", AS_THERE,
                                 *ALONE["small"], *POSITIONS.values(), ALL_HEADS]
    told = dict(table["difference"])
    assert told.pop("windows that grow (Table 4)") == "–" and told.pop(DETAILS["bare"]) == "not run"
    assert told.pop("dilation on two heads (Table 4)").startswith("0.000 [")
    assert all(text.startswith("+0.100") for text in told.values())
