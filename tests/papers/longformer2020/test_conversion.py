"""RoBERTa made into Longformer, from a tiny base model to table and verdicts; and what is hidden of books."""

import contextlib
import importlib
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.models import Longformer, load_masked_lm, roberta_mini
from repro.papers.longformer2020 import claims as measures
from repro.papers.longformer2020 import conversion, conversion_tables
from repro.papers.longformer2020.conversion import by_position, hidden, losses, read
from repro.study import Store, artifact, claim, claims, experiment, judge, model_folder, run
from repro.study.settings import as_text

EXPERIMENT = experiment("roberta-to-longformer")
RESULTS = Path(__file__).parents[3] / "results"
TINY = {"n_layer": 2, "n_embd": 16, "n_head": 2, "sequence": 32, "n_positions": 32, "batch_size": 4,
        "growing": [[16, 0.5]], "tokens": 2_000, "warmup_steps": 2, "validate_every": 2_000, "vocab_size": 300}
SMOKE = {"window": 8, "max_positions": 128, "scored_tokens": 256, "batch_size": 2, "learning_rate": 1e-2,
         "precision": "bf16"}


@pytest.mark.parametrize("scale", ["small", "medium", "paper"])
def test_other_scales_are_declared(scale):
    plan = EXPERIMENT.plan(scale)
    for config in plan:
        told = EXPERIMENT.estimate(config)
        assert told.parameters > 7e6 and told.seconds > 0 and told.memory_bytes > 2**30
    if scale == "small":
        trained = {config.configuration: config.tokens for config in plan if config.tokens}
        assert trained == {"short": 400_000, "long": 4_000_000, "frozen": 4_000_000, "roberta-short": 400_000,
                           "roberta-long": 4_000_000}
        rates = {config.learning_rate for config in plan if config.tokens}
        assert rates == {1.5e-4, 5e-4} and conversion.base_of(plan[0]).learning_rate == 3e-3, "a twentieth"
        assert {one.configuration for one in plan if one.learning_rate == 5e-4 and one.tokens} == {"frozen"}
        by_hand, *_ = EXPERIMENT.plan("small", {"configuration": "short", "learning_rate": "0.001"})
        assert by_hand.learning_rate == 1e-3
        assert {config.window for config in plan} == {128, 512} and plan[-1].window == 512
        assert {config.scored_tokens for config in plan} == {16_384}
    if scale == "paper":
        assert {config.source for config in plan} == {"FacebookAI/roberta-base", "FacebookAI/roberta-large"}
        long = next(config for config in plan if config.configuration == "long")
        assert (long.window, long.batch_size, long.learning_rate, long.tokens) == (512, 64, 3e-5, 65_000 * 2**18)
        assert long.kinds == ("Books", "English Wikipedia", "Realnews", "Stories")
        large = {config.configuration: config for config in plan if config.source.endswith("large")}
        assert conversion.base_of(large["roberta"]).n_embd == 1024
        for name, more in (("roberta", 0), ("roberta-long", 0),
                           ("copied", 3_584 * 1_024 + 24 * 3 * (1_024**2 + 1_024))):
            assert EXPERIMENT.estimate(large[name]).parameters == 355_412_057 + more


@pytest.mark.parametrize(("sets", "said"), [
    ({"window": 31}, "window is 31 keys; it must be even"),
    ({"max_positions": 96}, "max_positions is 96 .* multiple of the base's 64 positions"),
    ({"scored_tokens": 700}, "scored_tokens 700"),
    ({"configuration": "long", "tokens": 0}, "configuration is long and tokens is 0; trained ones .* need at least 1"),
    ({"configuration": "copy"}, "unknown configuration 'copy'"),
])
def test_settings_that_cannot_be(sets, said):
    with pytest.raises(ReproError, match=said):
        EXPERIMENT.plan("smoke", sets)


@pytest.mark.parametrize("name", conversion.CONFIGURATIONS)
def test_a_configuration_set_by_hand_is_that_of_the_plan(name):
    want, = (config for config in EXPERIMENT.plan("smoke") if config.configuration == name)
    assert EXPERIMENT.plan("smoke", {"configuration": name}) == [want]
    want = [config for config in EXPERIMENT.plan("small") if config.configuration == name]
    assert EXPERIMENT.plan("small", {"configuration": name, "window": "128"}) == want[:1]
    tokens = {config.configuration: config.tokens for config in EXPERIMENT.plan("smoke", {"tokens": "2000"})}
    assert tokens[name] == (2_000 if name in conversion.TRAINED else 0)


@pytest.mark.parametrize(("name", "sets", "optimizer", "warmup", "each"), [
    ("long", {}, "muon", 3, 2 * 64), ("roberta-long", {}, "muon", 3, 8 * 16), ("frozen", {}, "adamw", 3, 2 * 64),
    ("short", {"warmup_steps": 7}, "muon", 7, 2 * 64)])
def test_a_training_warms_up_and_falls_by_the_third_power(monkeypatch, tmp_path, name, sets, optimizer, warmup, each):
    told = {}

    def train(objective, batches, settings, folder, progress):
        told.update(settings=settings, each=batches.units_per_batch)

    monkeypatch.setattr("repro.training.train", train)
    config = EXPERIMENT.plan("smoke", {"configuration": name})[0].model_copy(update={
        "max_positions": 64, "batch_size": 2, "tokens": 30 * 2 * 64, "precision": "bf16"} | sets)
    roberta = roberta_mini(1, 8, 2, 50, 16)
    model = roberta if name == "roberta-long" else Longformer.from_roberta(roberta, 64, 4)
    text = SimpleNamespace(ids=np.arange(4, 4000) % 40 + 4, targets=None)
    context = SimpleNamespace(folder=tmp_path, progress=lambda *_: contextlib.nullcontext())
    conversion.trained(config, context, model, text, SimpleNamespace(mask=49), 16)
    found = told["settings"]
    assert told["each"] == each and (found.decay, found.optimizer, found.warmup_steps) == ("cubic", optimizer, warmup)
    assert (found.tokens, found.weight_decay, found.learning_rate) == (config.tokens, 0.0, config.learning_rate)
    if name == "short":
        assert {one.warmup_steps for one in EXPERIMENT.plan("paper") if one.tokens} == {500}


@pytest.fixture(scope="module")
def records(home):
    """Every run of smoke, on a tiny base."""
    with pytest.MonkeyPatch.context() as patch:
        plans = importlib.import_module("repro.study.experiment")
        patch.setattr(plans, "_plan", plans._plan.__wrapped__)  # or these plans would be kept for later tests
        base, = conversion.PRETRAINING.plan("smoke", {name: as_text(value) for name, value in TINY.items()})
        patch.setattr(conversion, "base_of", lambda config, plain=conversion.base_of: base
                      if config.scale == "smoke" else plain(config))
        patch.setitem(conversion.LENGTHS, "smoke", (512, 2_048))
        patch.setitem(conversion.SCALES, "smoke", conversion.SCALES["smoke"] | SMOKE)
        plan = EXPERIMENT.plan("smoke")
        found = {config.configuration: run(config, home / "results", progress=False) for config in plan}
        models = {name: model_folder(config, home / "results", progress=False)
                  for name, config in ((one.configuration, one) for one in plan) if config.tokens}
        yield SimpleNamespace(found=found, models=models, base=model_folder(base, progress=False), plan=plan)


def test_every_configuration_predicts_the_same_tokens(records):
    assert list(records.found) == list(conversion.CONFIGURATIONS)
    tokens = [record.documents["validation"]["tokens"] for record in records.found.values()]
    assert all(one == tokens[0] for one in tokens) and len(tokens[0]) == 6
    # 15 % of 30 tokens of each of 8 pieces, less those that are no ordinary tokens
    assert all(8 * round(0.15 * 30) == n for n in tokens[0])
    for name, record in records.found.items():
        nats, n = (record.documents["validation"][key] for key in ("nats", "tokens"))
        assert record.metrics["masked_bits_per_token"] == pytest.approx(sum(nats) / sum(n) / math.log(2))
        assert record.units["masked_bits_per_token"] == "bits per masked token"
        assert ("pieces_nats" in record.documents["validation"]) == (not name.startswith("roberta"))
        inside = record.documents["validation"]["inside_tokens"]
        assert inside == records.found["roberta"].documents["validation"]["inside_tokens"]
        assert all(0 < k < every for k, every in zip(inside, n, strict=True))
        curve = record.curves["loss_by_position"]
        assert all(0 < x < 32 for x, _ in curve) and 8 < len(curve) <= 18
        counts = record.curves["tokens_by_position"]
        assert [x for x, _ in counts] == [x for x, _ in curve] and sum(count for _, count in counts) == sum(n)
    for config, record in zip(records.plan, records.found.values(), strict=True):
        assert EXPERIMENT.estimate(config).parameters == record.metrics["parameters"]
    roberta, copied = (records.found[name].documents["validation"] for name in ("roberta", "copied"))
    assert roberta["nats"] != copied["nats"]


def test_what_is_trained_moves_what_it_should(records):
    base = load_masked_lm(records.base).state_dict()
    copied = Longformer.from_roberta(str(records.base), 128, 8).state_dict()
    where = "longformer.embeddings.position_embeddings.weight"
    for name, folder in records.models.items():
        weights = (load_masked_lm if name.startswith("roberta") else Longformer.from_pretrained)(folder).state_dict()
        moved = {key for key, value in (base if name.startswith("roberta") else copied).items()
                 if not torch.equal(value, weights[key])}
        if name == "frozen":
            assert moved == {where}
            rows = (weights[where] != copied[where]).any(1).nonzero()[:, 0].tolist()
            assert rows == list(range(34, 130))
        else:
            assert len(moved) > 20
    frozen = records.found["frozen"].metrics
    assert 10 * frozen["largest_difference"] < 1e-5 < frozen["difference_beyond"]
    read = {name: records.found[name].curves["train_loss"][-1][0] for name in conversion.TRAINED}
    assert read == {"short": 512, "long": 2_048, "frozen": 2_048, "roberta-short": 512, "roberta-long": 2_048}
    assert set(records.models) == set(conversion.TRAINED)


def test_tables_figure_and_verdicts(records, home):
    shown = artifact("longformer2020-table5").render("smoke", (), home / "results").table
    assert shown["bits per masked token"][:2].tolist() == ["1.846 / 1.496", "10.299 / 8.738"]
    ours = shown.iloc[6:]
    assert len(ours) == 8 and not (ours == "not run").any(axis=None)
    value = records.found["long"].metrics["masked_bits_per_token"]
    assert ours["bits per masked token"].iloc[4].startswith(f"{value:.3f} [")
    kinds = artifact("longformer2020-table13").render("smoke", (), home / "results").table
    assert kinds["text"].tolist() == ["Books", "English Wikipedia", "Realnews", "Stories", "synthetic-books"]
    assert "not run" not in kinds["tokens"].tolist()
    seams = artifact("longformer2020-seams").render("smoke", (), home / "results").content
    places, nats = np.array(records.found["long"].curves["loss_by_position"]).T
    beyond = (nats - nats[(places > 8) & (places < 24)].mean()) / math.log(2)
    for axis, here, away in ((seams.axes[0], places < 16, places), (seams.axes[1], places > 16, 32 - places)):
        line = next(line for line in axis.lines if line.get_label() == "+ long training")
        order = np.argsort(away[here])
        assert line.get_ydata() == pytest.approx(beyond[here][order]) and len(axis.lines) >= 4
    told = artifact("longformer2020-by-position").render("smoke", (), home / "results").table.set_index("configuration")
    assert set(told["positions"]) == {"0 to 15 / 16 to 31"} and len(told) == 8
    curve, counts = (np.array(records.found["short"].curves[f"{name}_by_position"]) for name in ("loss", "tokens"))
    for column, here in (("early positions", curve[:, 0] < 16), ("late positions", curve[:, 0] > 16)):
        value = np.average(curve[here, 1], weights=counts[here, 1]) / math.log(2)
        assert told.loc["+ short training", column] == f"{value:.3f}"
    for one in claims():
        if one.experiment == EXPERIMENT.name:
            told = one.verdict("smoke", home / "results")
            assert told.verdict == "machinery works", one.id
    assert claim("longformer2020-roberta-kept").verdict("smoke", home / "results").exact


def test_the_base_of_small_has_learnt_its_later_positions_too():
    """Else whatever avoids or repairs these looks like what the paper found."""
    roberta = EXPERIMENT.plan("small")[0]
    records = Store.for_scale("small", RESULTS).seeds(roberta)
    near, far = conversion_tables._sides(records, conversion_tables._edge(roberta))
    assert far < near + 0.2


def test_the_papers_effects():
    for name, effect in (("short-training", 1.753 - 1.957),
                         ("long-training", 1.705 - 1.753), ("beyond-roberta", 1.705 - 1.846),
                         ("frozen", 1.850 - 1.957), ("all-weights", 1.705 - 1.850)):
        assert claim(f"longformer2020-{name}").paper_effect() == pytest.approx(effect)
    for name, room in (("copied-positions", 10.299 - 1.846 - 1), ("frozen", 1.957 - 1.846)):
        assert claim(f"longformer2020-{name}").assay.paper() == pytest.approx(room)
    for name in ("short-training", "long-training", "beyond-roberta", "all-weights"):  # of RoBERTa trained on, or of
        assert claim(f"longformer2020-{name}").assay.paper is None  # its window alone, the paper prints nothing
    assert 2**1.880 == pytest.approx(3.68, abs=0.005)  # the perplexity that RoBERTa's Table 3 prints


def fake(name, nats, pieces=None, seed=0):
    documents = {"nats": nats, "tokens": [10, 10]} | ({"pieces_nats": pieces} if pieces else {})
    return SimpleNamespace(config={"configuration": name, "scored_split": "test"}, documents={"test": documents},
                           seed=seed, metrics={"largest_difference": 0.5})


def test_what_claims_measure_by_hand():
    bit = 10 * math.log(2)  # of ten tokens, one bit each
    rows = [fake("roberta", [2 * bit, 4 * bit]), fake("random", [12 * bit, 12 * bit]),
            fake("copied", [3 * bit, 4 * bit]),
            fake("long", [bit, 3 * bit], [2 * bit, 3 * bit]), fake("roberta-long", [bit, 2 * bit])]
    beyond = measures.beyond_roberta(rows)
    np.testing.assert_allclose(beyond.effects, [[-1, -1]])
    np.testing.assert_allclose(beyond.control, [[-1, -2]])
    assert beyond.note == "control: RoBERTa trained as long"
    rows[4] = fake("roberta-long", [9 * bit, 9 * bit])
    pieces = measures.beyond_roberta(rows)
    np.testing.assert_allclose(pieces.control, [[0, -1]])
    assert "pieces" in pieces.note
    for row, nats in zip(rows[::3], ([bit, 2 * bit], [bit, bit]), strict=True):
        row.documents["test"] |= {"inside_nats": nats, "inside_tokens": [10, 10]}
    assert measures.beyond_roberta(rows).note.endswith("ends of RoBERTa's pieces: -0.5")
    plain, held = (measures.compared("long", "copied", *more) for more in ((), ("roberta", "random")))
    np.testing.assert_allclose(plain["measure"](rows).effects, [[-2, -1]])
    np.testing.assert_allclose(held["measure"](rows).effects, [[-2, -1]])
    np.testing.assert_allclose(held["measure"](rows).control, [[-10, -8]])
    assert plain["measure"](rows).control is None
    read = [{config.configuration for config in EXPERIMENT.plan("smoke") if one["where"](config)}
            for one in (plain, held)]
    assert read == [{"long", "copied"}, {"long", "copied", "roberta", "random"}]
    found = measures.unchanged(rows[:1])
    assert found.effects == [[0.5]] and "not measured" in found.note
    rows[0].metrics["difference_beyond"] = 0.75
    assert "one token more: a difference of at least 0.75" in measures.unchanged(rows[:1]).note


def test_a_base_that_makes_nothing_of_positions_cannot_tell_which_are_good():
    bit = 10 * math.log(2)
    assay = claim("longformer2020-copied-positions").assay
    rows = [fake("roberta", [2 * bit, 4 * bit]), fake("random", [12 * bit, 12 * bit])]  # nine bits lost
    assert assay.room(rows) == pytest.approx(8)
    assert assay.room([fake("roberta", [bit, bit]), fake("random", [2 * bit, 2 * bit])]) == 0
    read = {config.configuration for config in EXPERIMENT.plan("smoke") if assay.where(config)}
    assert read == {"roberta", "random"}


def test_what_copying_lost_and_more_training_gives_is_all_there_is_to_repair():
    bit = 10 * math.log(2)
    rows = [fake("copied", [3 * bit, 4 * bit]), fake("roberta", [3 * bit, 3 * bit]),
            fake("roberta-short", [2 * bit, 3 * bit])]
    short, frozen = (claim(f"longformer2020-{name}").assay for name in ("short-training", "frozen"))
    assert (short.room(rows), frozen.room(rows)) == pytest.approx((1.0, 0.5))
    assert frozen.room([fake("copied", [bit, bit]), fake("roberta", [bit, 2 * bit])]) == 0


def test_what_lies_beyond_the_window_in_a_piece_is_the_room_of_longer_texts():
    bit = 10 * math.log(2)
    rows = [fake("copied", [bit, bit], [3 * bit, 4 * bit]), fake("roberta", [2 * bit, 3 * bit])]
    one = claim("longformer2020-beyond-roberta").assay
    assert one.room(rows) == pytest.approx(1)
    assert one.room([fake("copied", [bit, bit], [bit, bit]), fake("roberta", [2 * bit, 2 * bit])]) == 0
    assert {config.configuration for config in EXPERIMENT.plan("smoke") if one.where(config)} == {"copied", "roberta"}


def test_positions_away_from_seams_have_half_a_window_on_either_side_in_their_piece():
    away = conversion.away_from_seams(np.arange(20), 10, 3)
    assert np.flatnonzero(away).tolist() == [3, 4, 5, 6, 13, 14, 15, 16]
    assert not conversion.away_from_seams(np.arange(8), 8, 4).any()


@pytest.mark.parametrize(("fewer", "verdict"), [(8.0, "reproduced"), (0.5, "not reproduced")])
def test_fewer_bits_are_not_far_fewer(fewer, verdict):
    one = claim("longformer2020-copied-positions")
    effects = np.random.default_rng(0).normal(-fewer, 0.1, (3, 26))
    assert judge(effects, one.direction, one.expected(), null=one.null).verdict == verdict


def book(n=64, vocab=40):
    ids = np.random.default_rng(1).integers(4, vocab - 1, n)
    ids[0] = 0
    return ids, SimpleNamespace(scored_tokens=64, max_positions=32, seed=0)


def test_what_is_hidden_stays_hidden_whatever_stretches_are_read():
    ids, config = book(70)
    ids[20] = 0  # a book that holds another's start
    found = hidden(ids, config, 8, 40)
    assert found.plain.shape == (8, 8) and hidden(ids[:31], config, 8, 40) is None
    pieces, stretches, whole = (read(found, length) for length in (8, 16, 64))
    assert pieces["ids"].shape == (8, 8) and whole["ids"].shape == (1, 64)
    assert torch.equal(pieces["ids"], torch.from_numpy(found.shown))
    for batch, length in ((pieces, 8), (stretches, 16), (whole, 64)):
        flat = batch["ids"].flatten()
        told = (batch["positions"] + length * torch.arange(64 // length)[:, None]).flatten()
        kept = batch["targets"].flatten() != -100
        assert torch.equal(batch["targets"].flatten()[kept], torch.from_numpy(ids[:64])[told][kept])
        others = sorted(set(range(64)) - set(told.tolist()))
        for at in others:
            edge = 0 if at % length == 0 else 2 if at % length == length - 1 else None
            assert flat[at] == (edge if edge is not None else 2 if ids[at] == 0 else ids[at])
        assert not {0, 7} & set((told % 8).tolist())
    assert 5 <= (whole["ids"] == 39).sum() <= 8
    again = hidden(ids, config, 8, 40)
    assert all(np.array_equal(one, other) for one, other in zip(found, again, strict=True))
    config.seed = 1
    others = [hidden(ids, config, 8, 40).positions, hidden(ids, config, 8, 40, 1).positions]
    config.seed = 0
    others += [found.positions, hidden(ids, config, 8, 40, 1).positions]
    assert len({one.tobytes() for one in others}) == 4, "each book and each seed has its own places"
    few = hidden(ids, config, 8, 40, targets=ids < 20)
    assert set(few.targets.flatten().tolist()) <= {-100, *range(4, 20)} and (few.targets > 0).any()


def test_losses_are_those_of_each_masked_token(shake):
    ids, config = book()
    found, model = hidden(ids, config, 8, 40), shake(roberta_mini(1, 8, 2, 40, 8)).eval()
    nats, places = losses(model, found, 8)
    batch = read(found, 8)
    labels = torch.full((8, 8), -100).scatter(1, batch["positions"], batch["targets"])
    with torch.no_grad():
        logits = model(batch["ids"]).logits.log_softmax(-1)
    want = [-logits[row, at, labels[row, at]].item() for row in range(8) for at in batch["positions"][row].tolist()
            if labels[row, at] >= 0]
    np.testing.assert_allclose(nats, want, rtol=1e-5)
    assert len(places) == len(nats) and places.max() < 8
    long = Longformer.from_roberta(model, 64, window=128)
    wide, at = losses(long, found, 32)
    assert len(wide) == len(nats) and at.max() > 8 and not np.allclose(wide, nats, rtol=1e-3)


def test_one_token_more_tells_a_window_from_a_wider_one(shake):
    model, (ids, config) = shake(roberta_mini(1, 8, 2, 40, 16)).eval(), book()
    books = [hidden(ids, config, 16, 40)]
    told = {window: [conversion.largest_difference(Longformer.from_roberta(model, 32, window), model, books, n)
                     for n in (5, 6)] for window in (8, 16)}
    assert max(told[8][0], *told[16]) < 1e-5 and told[8][1] > 1e-3


def test_loss_by_position_of_the_copies():
    told = [(np.array([1., 3., 5.]), np.array([0, 32, 31])), (np.array([7.]), np.array([63]))]
    assert by_position(told, 32) == [[0.5, 2.0], [31.5, 6.0]]
    places = np.arange(512)
    assert [len(nats) for _, nats in conversion.stretches([(places.astype(float), places)], 512)] == [
        1, 1, 2, 4, 8, 16, *[32] * 14, 16, 8, 4, 2, 1, 1]
    assert sum(len(nats) for _, nats in conversion.stretches([(places[:24].astype(float), places[:24])], 24)) == 24
