"""Readers of questions, from corpus to table and verdicts, on a tiny base model and questions of known best scores."""

import contextlib
import importlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from repro.data import Corpus, Split, corpus, registry
from repro.data import example_readers as readers
from repro.data.examples import Paragraph, Question
from repro.data.synthetic_hops import SyntheticHops
from repro.errors import ReproError
from repro.evaluation import answer_scores
from repro.papers.base.pretraining import new_tokeniser
from repro.papers.yoshida2020.claims import hotpotqa as claims
from repro.papers.yoshida2020.hotpotqa import experiment as hotpotqa
from repro.papers.yoshida2020.hotpotqa import tables as hotpotqa_tables
from repro.study import artifact, claim, experiment, model_folder, run
from repro.study.settings import as_text
from repro.training import Answers, LengthBuckets

EXPERIMENT, RATES = experiment("recurrence-hotpotqa"), experiment("recurrence-hotpotqa-rates")
TINY = {"n_layer": 3, "n_embd": 16, "n_head": 2, "sequence": 64, "n_positions": 100, "batch_size": 4, "growing": [],
        "tokens": 1_000, "warmup_steps": 2, "validate_every": 1_000, "vocab_size": 300, "optimizer": "adamw"}


@pytest.mark.parametrize("scale", ["small", "medium", "paper"])
def test_other_scales_are_declared(scale):
    plan = EXPERIMENT.plan(scale)
    assert [config.model for config in plan[:2]] == ["baseline", "recurrent"]
    more = [(config.model, config.epochs) for config in plan[2:]]
    assert more == [("baseline", 3), ("recurrent", 3)] * (scale == "small")
    assert [hotpotqa_tables.is_main(config) for config in plan] == [True] * 2 + [False] * len(more)
    assert [hotpotqa_tables._module(config) for config in plan[2:3]] == ["3 epochs"] * (scale == "small")
    for config in plan:
        told = EXPERIMENT.estimate(config)
        assert told.parameters > 6.9e6 and told.seconds > 0 and told.memory_bytes > 2**30
        assert (config.window, config.insert_layer, config.hidden_size, config.hidden_layers) == (512, 1, 768, 1)
        assert len(hotpotqa.rates_of(config)) == (0 if scale == "paper" else 3)
    same = plan[1].model_dump(exclude={"model"})
    assert same == plan[0].model_dump(exclude={"model"})
    if scale == "small":
        assert (plan[0].corpus, plan[0].epochs, plan[0].held_out) == ("hotpotqa-subset", 1, 300)
        assert len(RATES.plan("small")) == 6
    if scale == "paper":
        assert (plan[0].n_train, plan[0].epochs, plan[0].rates) == (30_000, 4, (2e-5,))
        assert hotpotqa.base_of(plan[0]).source == "FacebookAI/roberta-base"


@pytest.mark.parametrize(("sets", "said"), [
    ({"window": 65}, "window is 65 tokens, but the base model has n_positions=64"),
    ({"insert_layer": 3}, "insert_layer is 3, but the base model has layers 0 to 2"),
    ({"rates": "[1e-3, 2e-3]"}, "held_out is 0, but held-out questions must choose among 2 rates"),
    ({"n_train": "3"}, "n_train is 3 and 0 of these are held out; at least a batch of 16 must remain"),
    ({"rates": "[]"}, "rates"), ({"rates": "[-1]"}, "rates.*must be above 0"), ({"model": "memory"}, "model 'memory'"),
    ({"corpus": "hotpot"}, "unknown corpus 'hotpot'"),
])
def test_settings_that_cannot_be(sets, said):
    with pytest.raises(ReproError, match=said):
        EXPERIMENT.plan("smoke", sets)


def test_the_estimate_of_smoke_counts_the_tokens_that_are_read():
    config = EXPERIMENT.plan("smoke")[0]
    rows = list(corpus("synthetic-hops").examples("train"))
    coder = new_tokeniser(hotpotqa.base_of(config))
    found, _ = hotpotqa.prepared(rows[:60], coder, config.window)
    each = sum(len(window.ids) for one in found for window in one.windows) / 60
    assert EXPERIMENT.estimate(config).training_tokens == pytest.approx(config.epochs * len(rows) * each, rel=0.1)


@pytest.fixture(scope="module")
def study(home):
    """Every run of smoke, on a tiny base and few questions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._BY_NAME, "tiny-hops", Corpus(
            "tiny-hops", "MIT", "embedded", {"train": Split("", n_examples=24), "validation": Split("", n_examples=16)},
            readers.generated[Question], generator=SyntheticHops(story_words=8, n_names=1)))
        base, = hotpotqa.PRETRAINING.plan("smoke", {name: as_text(value) for name, value in TINY.items()})
        patch.setattr(hotpotqa, "base_of", lambda config, plain=hotpotqa.base_of: base
                      if config.scale == "smoke" else plain(config))
        plans = importlib.import_module("repro.study.experiment")
        patch.setattr(plans, "_plan", plans._plan.__wrapped__)  # or these plans would be kept for later tests
        smoke = {"corpus": "tiny-hops", "window": 50, "batch_size": 4, "hidden_size": 8, "epochs": 2, "held_out": 6,
                "search_train": 8, "precision": "bf16"}
        patch.setitem(hotpotqa.SCALES, "smoke", hotpotqa.SCALES["smoke"] | smoke)
        plan = EXPERIMENT.plan("smoke")
        yield SimpleNamespace(plan=plan, folder=home / "results", found=[
            run(config, home / "results", progress=False) for config in plan])


@pytest.mark.parametrize("at", [3, 7])
def test_killed_in_either_epoch_a_reader_ends_in_the_same_record(study, tmp_path, monkeypatch, killed_at, at):
    """Nine steps are two epochs."""
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    assert killed_at(LengthBuckets, study.plan[1], at, 9).digest == study.found[1].digest


def test_what_a_record_tells_of_each_question(study):
    baseline, recurrent, deeper, later = study.found
    assert [one.model for one in study.found] == ["baseline", *["recurrent"] * 3]
    for config, record in zip(study.plan, study.found, strict=True):
        told = record.documents["validation"]
        ways = ["", "swapped_"] if record.model == "baseline" else ["", "masked_", "other_"]
        for way in ways:
            for score in ("answer_f1", "answer_exact_match"):
                values = told[f"{way}{score}"]
                assert len(values) == 16 and all(0 <= one <= 100 for one in values)
                assert record.metrics[f"{way}{score}"] == pytest.approx(np.mean(values))
        assert record.units["answer_f1"] == "per cent"
        assert set(told["distance"]) <= {0, 1} and set(told["windows"]) <= {1, 2}
        first = record.notes["samples"][0]
        exact, f1 = answer_scores(first["told"], first["wanted"])
        assert (told["answer_exact_match"][0], told["answer_f1"][0]) == (100 * exact, pytest.approx(100 * f1))
        low, high = record.metrics["best_alone"], record.metrics["best_together"]
        assert low < high == 100
        assert record.metrics["share_recovered"] == pytest.approx(
            (record.metrics["answer_exact_match"] - low) / (high - low))
        assert record.metrics["parameters"] == EXPERIMENT.estimate(config).parameters
        assert record.metrics["train_questions"] == 18 and record.notes["left_out"] == 0
        after = [nats for _, nats in record.curves["validation_loss"]]
        assert len(after) == 2 and record.metrics["held_out_answer_nats"] == min(after)
        assert record.metrics["epochs_kept"] == 1 + after.index(min(after))
    assert set(baseline.documents) == {"validation"} == set(recurrent.documents)  # three paragraphs give no assay
    assert len({recurrent.digest, deeper.digest, later.digest}) == 3
    assert "by_window" not in baseline.notes
    one = recurrent.notes["by_window"]
    assert one["questions"] == 16 >= one["changed"] >= (one["told"] != one["masked"])
    assert len(one["windows"]) > 1 and one["windows"][0][1] == one["windows"][0][3], "the first has no h_prev"
    assert one["windows"][1][1:3] != one["windows"][1][3:]
    surest = max(one["windows"], key=lambda row: row[2])
    assert all(0 < sum(row[way] for row in one["windows"]) <= 1 for way in (2, 4)), "shares of all spans together"
    assert one["told"] in ("yes", "no", surest[1])
    shown = artifact("yoshida2020-hotpotqa-windows").render("smoke", (), study.folder).table
    assert shown["with h_prev"][0] == f"{one['changed']} of 16"
    assert shown["what is read"][1] == f"{one['question']} (wanted: {one['wanted']})"
    assert shown["with h_prev"][2] == f"{one['windows'][0][1]} ({100 * one['windows'][0][2]:.2g}%)"
    assert len(shown) == 2 + len(one["windows"])
    assert recurrent.metrics["parameters"] == baseline.metrics["parameters"] + 2 * 16 * 8 + 8 + 16
    assert deeper.metrics["parameters"] == recurrent.metrics["parameters"] + 8 * 8 + 8
    assert run(study.plan[1], study.folder / "again", progress=False, force=True).digest == recurrent.digest


def test_readers_are_trained_and_asked_as_what_they_are(study, monkeypatch):
    """Only the recurrent one is trained with h_prev; its controls leave that out, and take that of others."""
    told, asked = [], []

    class Told(Answers):
        def __init__(self, model, recurrent, recompute):
            told.append(recurrent)
            super().__init__(model, recurrent, recompute)

    def answered(model, questions, recurrent=True, given=None, **more):
        asked.append((recurrent, given))
        return [("", 1.0) for _ in questions]

    def train(objective, batches, settings, folder, validate, progress):
        told.append(settings)
        return SimpleNamespace(curves={"validation_loss": [[18, validate(objective)], [36, validate(objective)]]})

    monkeypatch.setattr("repro.training.Answers", Told)
    monkeypatch.setattr("repro.training.train", train)
    monkeypatch.setattr(hotpotqa, "read_by", answered)
    monkeypatch.setattr(hotpotqa, "states_of_others", lambda *_: "others")
    for config in study.plan[:2]:
        base = model_folder(hotpotqa.base_of(config), progress=False).parent
        context = SimpleNamespace(
            folder=study.folder.parent / f"asked-{config.model}", need=lambda one, base=base: (None, base),
            progress=lambda *_: contextlib.nullcontext(SimpleNamespace(advance=lambda *_: None)))
        hotpotqa.execute(config, context)
    trained_so, settings, recurs, same = told
    assert (trained_so, recurs) == (False, True) and settings == same
    assert (settings.decay, settings.tokens, settings.warmup_steps) == ("linear", 36, int(0.1 * 36 / 4))
    assert settings.validate_every == 18
    epochs = [(False, None)] * 2, [(True, None)] * 2
    assert asked == [*epochs[0], *[(False, None)] * 2, *epochs[1], (True, None), (False, None), (True, "others")]


def test_table_figures_and_verdicts(study):
    shown = artifact("yoshida2020-table3").render("smoke", (), study.folder).table
    assert shown["F1"][:2].tolist() == ["48.17", "49.12"]
    assert shown["model"][:2].tolist() == ["baseline", "recurrent"]
    ours, guess = shown.iloc[2:6], shown.iloc[6]
    assert (guess["model"], guess["nats"]) == ("a guess", f"{study.found[0].metrics['guess_answer_nats']:.3f}")
    assert not (ours == "not run").any(axis=None)
    assert ours["F1"].iloc[0].startswith(f"{study.found[0].metrics['answer_f1']:.1f} [")
    assert ours["module"].tolist()[1:] == [f"{n} hidden x 8, index {at}" for n, at in ((1, 1), (2, 1), (1, 2))]
    said = artifact("yoshida2020-hotpotqa-answers").render("smoke", (), study.folder).table
    samples = [record.notes["samples"] for record in study.found[:2]]
    assert said["baseline"].tolist() == [one["told"] for one in samples[0]]
    assert said["recurrent"].tolist() == [one["told"] for one in samples[1]] and len(said) == 5
    assert artifact("yoshida2020-hotpotqa-distance").render("smoke", (), study.folder).png()
    assert len(artifact("yoshida2020-hotpotqa-open").render("smoke", (), study.folder).table) == 13
    for name, effect in (("f1", 0.95), ("exact-match", 1.0)):
        one = claim(f"yoshida2020-table3-{name}")
        assert one.paper_effect() == pytest.approx(effect)
        told = one.verdict("smoke", study.folder)
        assert told.verdict == "machinery works" and told.n_units == 16 and told.control is not None
        want = study.found[1].metrics[f"answer_{name.replace('-', '_')}"] - study.found[0].metrics[
            f"answer_{name.replace('-', '_')}"]
        assert told.effect == pytest.approx(want)


def test_f1_by_distance_is_told_of_enough_questions_alone(monkeypatch):
    """Twenty of each seed; at distance 1 there are nineteen."""
    frames = []
    monkeypatch.setattr("repro.plotting.draw_table_curves", lambda frame, *rest: frames.append(frame))
    told = {"distance": [0] * 20 + [1] * 19 + [-1] * 30, "answer_f1": [1., 3.] * 10 + [9.] * 49}
    records = [SimpleNamespace(documents={"validation": told})] * 2
    config = EXPERIMENT.plan("smoke")[0]
    hotpotqa_tables.by_distance(SimpleNamespace(scales=["smoke"], plan=lambda scale: [config],
                                                records_of=lambda config: records))
    assert frames[0][["distance", "f1"]].to_numpy().tolist() == [[0, 2]]


def test_the_control_is_the_one_with_the_higher_score():
    def record(model, **scores):
        return SimpleNamespace(model=model, documents={"validation": scores})
    base = record("baseline", answer_f1=[0., 50.])
    ours = record("recurrent", answer_f1=[100., 60.], masked_answer_f1=[0., 0.],
                  other_answer_f1=[90., 0.])
    told = claims.gain("answer_f1")([base, ours])
    np.testing.assert_allclose(told.effects, [[100, 10]])
    np.testing.assert_allclose(told.control, [[90, -50]])
    assert "another question" in told.note
    lower = claims.gain("answer_f1", -1)([base, ours])
    np.testing.assert_allclose(lower.control, [[0, -50]])  # where lower is better the masked one is


def test_the_room_of_an_assay_is_what_is_lost():
    def lost(together, apart, sign=1):
        return claims.room("answer_f1", sign)([SimpleNamespace(
            documents={"assay": {
                "together_answer_f1": together, "apart_answer_f1": apart}})])

    assert lost([40., 41., 40.], [15., 15., 16.]) == pytest.approx(25)
    shown = hotpotqa_tables._together([SimpleNamespace(documents={"assay": {
        "together_answer_f1": [40., 42.], "apart_answer_f1": [15., 16.]}})])
    assert shown.startswith("+25.5 [") and hotpotqa_tables._together([SimpleNamespace(documents={})]) == "–"
    assert lost([15., 15., 16.], [40., 41., 40.]) == pytest.approx(-25)
    assert lost([15., 15., 16.], [40., 41., 40.], -1) == pytest.approx(25)
    assert lost([40., 0., 9.], [0., 30., 9.]) == pytest.approx(10 / 3)
    assert claims.room("answer_f1")([SimpleNamespace(documents={"validation": {}})]) is None


def test_only_second_paragraphs_change_places_between_both_ways_of_the_assay(study, monkeypatch):
    """Paragraphs 1 and 3 are needed; 4 is the nearest in length to 1, and 0 to 3. Others tell of too few paragraphs,
    of too many that are needed, and of windows that hold one alone."""
    lengths = {"A": 9, "B": 20, "C": 60, "D": 8, "E": 21}
    parts = tuple(Paragraph(name, (name.lower() * n,)) for name, n in lengths.items())
    one = Question("q", "which", parts, "yes", (), ((1, 0), (3, 0)))
    others = [replace(one, paragraphs=parts[:3], supporting=((0, 0), (1, 0))), replace(one, supporting=((1, 0),)),
              replace(one, supporting=((0, 0), (1, 0), (3, 0)))]
    read, config = [], study.plan[0]
    monkeypatch.setattr(hotpotqa, "read_by", lambda model, ones, **how: read.append(ones) or [("no", 2.)] * len(ones))
    coder = hotpotqa.tokeniser_of(hotpotqa.base_of(config))
    found = hotpotqa.assay(config.model_copy(update={"window": 100}), None, [one, *others], coder)
    assert found["together_answer_nats"] == found["apart_answer_nats"] == [2.] and len(found) == 6
    shown = [["".join(c for c in text if c.isupper()) for text in one.texts] for (one,) in read]
    assert shown == [["BD", "EA"], ["BA", "ED"]]
    assert hotpotqa.assay(config.model_copy(update={"window": 30}), None, [one], coder) == {}
    assert hotpotqa.assay(config.model_copy(update={"window": 6}), None, [one], coder) == {}


def test_how_many_answers_the_module_changes(study, monkeypatch):
    coder = hotpotqa.tokeniser_of(hotpotqa.base_of(study.plan[0]))
    held, _ = hotpotqa.prepared(list(corpus("tiny-hops").examples("validation"))[:4], coder, 30, must_stand=False)
    monkeypatch.setattr(hotpotqa, "by_window", lambda model, one, recurrent: [("x", 0.1)] * len(one.windows))
    told = hotpotqa.window_by_window(None, held, ["a", "b", "c", "d"], ["a", "B", "c", "D"])
    assert (told["changed"], told["questions"], told["told"], told["masked"]) == (2, 4, "b", "B")


def test_every_text_with_the_question_after_it(study):
    rows = list(corpus("tiny-hops").examples("validation"))[:3]
    coder = hotpotqa.tokeniser_of(hotpotqa.base_of(study.plan[0]))
    plain, _ = hotpotqa.prepared(rows, coder, 50, must_stand=False)
    told = hotpotqa.swapped(plain, coder, 50)
    assert [one.question.question for one in told] == [rows[k].question for k in (1, 2, 0)]
    assert [one.context for one in told] == [one.context for one in plain]
    assert [(one.type, one.question.answer) for one in told] == [(one.type, one.question.answer) for one in plain]
    for one in told:
        assert list(one.windows[-1].ids[1:one.before - 1]) == list(coder.encode(one.question.question))


def test_the_learning_rate_is_the_best_of_those_tried_on_questions_held_out(study, monkeypatch):
    config = study.plan[0].model_copy(update={"rates": (1e-3, 2e-3, 1e-5), "n_train": 20})
    tried = hotpotqa.rates_of(config)
    assert [(one.experiment, one.learning_rate, one.seed) for one in tried] == [
        (RATES.name, rate, 0) for rate in config.rates]
    assert hotpotqa.rates_of(config.model_copy(update={"seed": 2, "epochs": 5})) == tried
    assert EXPERIMENT.needs(config)[1:] == tried and not EXPERIMENT.needs(study.plan[0])[1:]
    scores = dict(zip(config.rates, (10., 3., 20.), strict=True))
    context = SimpleNamespace(need=lambda one: (SimpleNamespace(
        metrics={"held_out_answer_nats": scores[one.learning_rate]},
        config={"learning_rate": one.learning_rate}), None))
    assert hotpotqa.best_rate(config, context) == 2e-3
    assert hotpotqa.best_rate(config.model_copy(update={"learning_rate": 7e-4}), None) == 7e-4
    seen, plain = [], hotpotqa.prepared

    def noted(rows, *rest, **more):
        seen.append({row.id for row in rows})
        return plain(rows, *rest, **more)

    monkeypatch.setattr(hotpotqa, "prepared", noted)
    record = run(tried[0], study.folder, progress=False)
    held, train = seen[0], seen[1]
    assert (len(held), len(train)) == (6, 8) and not held & train
    assert 0 <= record.metrics["held_out_answer_f1"] <= 100 and record.metrics["held_out_answer_nats"] > 0


def test_what_is_held_out_is_the_same_in_every_run_and_in_no_training(study):
    config, rows = study.plan[0], [row.id for row in corpus("tiny-hops").examples("train")]
    (held, others), (same, searched) = hotpotqa.set_apart(config), hotpotqa.set_apart(config, searching=True)
    assert held == same and len(held) == 6 and len(searched) == 8
    assert [row.id for row in others] == [name for name in rows if name not in {row.id for row in held}]
    assert not {row.id for row in held} & {row.id for row in searched}
    assert [row.id for row in hotpotqa.set_apart(config.model_copy(update={"held_out": 0}))[1]] == rows


def test_a_guess_takes_all_tokens_and_the_usual_types(study):
    """By hand: ln of how many tokens there are for each that is right, and of how rare the type is."""
    rows = list(corpus("tiny-hops").examples("train"))
    coder = hotpotqa.tokeniser_of(hotpotqa.base_of(study.plan[0]))
    questions, _ = hotpotqa.prepared(rows, coder, 50)
    kinds = [row.answer if row.answer in ("yes", "no") else "span" for row in rows]
    for one, kind, nats in zip(questions, kinds, hotpotqa.guessed(questions, rows), strict=True):
        want = np.log((len(rows) + 3) / (1 + kinds.count(kind)))
        if one.answers:
            text = sum(window.stop - window.start for window in one.windows)
            right = [len({(k, at[way]) for k, *at in one.answers}) for way in (0, 1)]
            want += np.mean([np.log(text / n) for n in right])
        assert nats == pytest.approx(want, rel=1e-5)


def test_questions_whose_answer_stands_nowhere_are_left_out_of_training(study):
    rows = list(corpus("tiny-hops").examples("train"))[:4]
    lost = replace(next(row for row in rows if row.spans), answer="a fable", spans=())
    coder = hotpotqa.tokeniser_of(hotpotqa.base_of(study.plan[0]))
    found, left_out = hotpotqa.prepared([*rows, lost], coder, 50)
    assert (len(found), left_out) == (4, 1)
    every, _ = hotpotqa.prepared(corpus("tiny-hops").examples("train"), coder, 50)
    learnt = {row.id for row in hotpotqa.set_apart(study.plan[0])[1]}
    cut = sum(bool(one.question.spans) and not one.answers for one in every if one.question.id in learnt)
    assert cut > 0 and {record.notes["type_alone"] for record in study.found} == {cut}
    assert len(hotpotqa.prepared([*rows, lost], coder, 50, must_stand=False)[0]) == 5


def test_more_training_questions_than_there_are(study):
    with pytest.raises(ReproError, match="n_train is 25, but tiny-hops has 24"):
        hotpotqa.training_questions(study.plan[0].model_copy(update={"n_train": 25}))
