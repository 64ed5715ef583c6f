"""Pre-training and fine-tuning of GPT: what the variants change, what a record holds, and what is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from repro.data import Tokeniser, tokens
from repro.errors import ReproError
from repro.evaluation import perplexity
from repro.papers.gpt1_2018 import FORMS, finetuning, pretraining
from repro.papers.gpt1_2018.zero_shot import moment
from repro.study import Store, experiment, kept_model, model_folder, run

TINY = {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 64, "batch_size": 4, "tokens": 1_280, "checkpoints": 3}


@pytest.fixture(scope="module")
def tiny():
    """The experiments with a base model at the size of a toy."""
    with pytest.MonkeyPatch.context() as patch:
        plan = type(pretraining.EXPERIMENT).plan

        def small(self, scale, sets=None, seeds=(0,)):
            own = TINY if self.name == "pretrain-gpt" else {}
            return plan(self, scale, own | dict(sets or {}), seeds)
        patch.setattr(type(pretraining.EXPERIMENT), "plan", small)
        patch.setattr(pretraining, "HELD_OUT", 1_000)
        yield


def test_there_are_as_many_checkpoints_as_asked_for_where_steps_do_not_divide(tiny, home):
    one = pretraining.EXPERIMENT.plan("smoke", {"tokens": "2560", "checkpoints": "8"})[0]  # ten steps
    kept = run(one).notes["checkpoints"]
    assert len(kept) == 8 and kept[-1] == 2560


def test_the_rate_is_the_one_at_which_a_short_training_of_the_same_model_went_best(tiny, home, monkeypatch):
    monkeypatch.setattr(pretraining, "RATES", (1e-6, 1e-2))
    for one in pretraining.EXPERIMENT.plan("smoke", {"learning_rate": "null"}):
        tried = pretraining.search(one)
        assert [short.learning_rate for short in tried] == [1e-6, 1e-2]
        assert {(short.tokens, short.model) for short in tried} == {(128, one.model)}
        record, losses = run(one), [run(short).metrics["validation_token_loss"] for short in tried]
        assert losses[1] < losses[0] and record.metrics["learning_rate"] == 1e-2
        assert record.notes["rates_tried"] == [[1e-6, losses[0]], [1e-2, losses[1]]]
    assert pretraining.search(pretraining.EXPERIMENT.plan("smoke")[0]) == []


def test_what_weight_decay_changes_is_less_than_what_a_seed_does(tmp_path, monkeypatch):
    """The sentence of chapter 11."""
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    loss = {}
    for seed, decayed in ((0, "matrices"), (0, "all"), (1, "matrices")):
        one, = pretraining.EXPERIMENT.plan("smoke", {"model": "transformer", "tokens": 20_000, "checkpoints": 1,
                                                     "decayed": decayed}, seeds=(seed,))
        loss[seed, decayed] = run(one, tmp_path, progress=False).metrics["validation_token_loss"]
    changed, seeds = (abs(loss[0, "matrices"] - loss[key]) for key in ((0, "all"), (1, "matrices")))
    assert 0 < changed < 0.01 and changed < seeds
    cells = json.loads((Path(__file__).parents[3] / "notebooks/11_gpt.ipynb").read_text())["cells"]
    words = " ".join(" ".join("".join(cell["source"]) for cell in cells).split())
    assert "loss by less than another seed does" in words


def config(**changes):
    return experiment("finetune-gpt").plan("smoke", changes)[0]


def test_both_models_are_pretrained_and_their_weights_kept(tiny, home):
    for one in pretraining.EXPERIMENT.plan("smoke"):
        record = run(one)
        assert record.notes["checkpoints"] == [512, 1024, 1280] and record.notes["tokens"] == 1280
        told = record.documents["validation"]
        assert set(told["n_tokens"][:-1]) == {64} and sum(told["n_tokens"]) == 999
        assert record.metrics["validation_token_loss"] == pytest.approx(sum(told["nll"]) / 999, rel=1e-3)
        folder = home / "work" / "runs" / record.id
        model = pretraining.read(pretraining.build(one, 205), folder / "model" / pretraining.LAST)
        last, first = (pretraining.read(pretraining.build(one, 205), moment(record, folder, n)) for n in (1280, 512))
        assert record.metrics["parameters"] == sum(weight.numel() for weight in model.parameters())
        assert not torch.equal(first.embed.weight, last.embed.weight) and model.output.weight is model.embed.weight


def test_the_last_weights_stay_beside_the_record_and_other_moments_in_the_work_folder(tiny, home):
    sets = {"tokeniser": "bpe", "vocab_size": "300"}
    for one in pretraining.EXPERIMENT.plan("smoke", sets):
        record = run(one)
        work, kept = home / "work" / "runs" / record.id, kept_model(one)
        assert sorted(path.name for path in kept.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
        weights = load_file(kept / pretraining.LAST)
        assert {weight.dtype for weight in weights.values()} == {torch.bfloat16} and "output.weight" not in weights
        model = pretraining.read(pretraining.build(one, 300), kept / pretraining.LAST)
        trained = pretraining.read(pretraining.build(one, 300), moment(record, work, 1280))
        for ours, theirs in zip(model.parameters(), trained.parameters(), strict=True):
            assert torch.equal(ours, theirs.bfloat16().float())
        text = tokens(one.corpus, "validation", Tokeniser.read(kept / "tokenizer.json")).ids[:1_000]
        assert record.metrics["validation_token_loss"] * 999 == pytest.approx(perplexity(model, text, 64, 0).nll)
        assert model_folder(one) == work / "model", "where all moments are"
        shutil.rmtree(work)
        assert model_folder(one) == kept and not work.exists()
        with pytest.raises(ReproError, match=f"only the last weights stay.*`repro run {record.experiment} .* --force`"):
            moment(record, kept.parent, 512)
    short = pretraining.EXPERIMENT.plan("smoke", sets | {"checkpoints": "1"})[0]
    run(short)
    assert kept_model(short) is None, "nothing starts from those of the search"


@pytest.mark.parametrize("task", ["topics", "nouns"])
def test_a_record_holds_labels_and_predictions_in_the_order_of_the_file(tiny, home, task):
    from repro.data.tasks import task as named

    record = run(config(task=task, train_examples=40, epochs=1))
    labels = [row.answer if task == "nouns" else row.label for row in named(task).examples("test")]
    found = record.documents["test"]
    assert found["label"] == labels and set(found["prediction"]) <= {0, 1, 2, 3}
    hits = sum(one == other for one, other in zip(labels, found["prediction"], strict=True))
    assert record.metrics["test_score"] == pytest.approx(100 * hits / 200) and record.metrics["best_score"] == 95
    assert record.metrics["train_examples"] == 40 and Store.for_scale("smoke").get(config(task=task, train_examples=40,
                                                                                   epochs=1)) == record


def test_a_blank_separates_a_question_from_its_document():
    from types import SimpleNamespace

    def row(question="Where?", *paragraphs):
        return SimpleNamespace(paragraphs=paragraphs, question=question, candidates=("a", "b"))

    told = {(one, join): "".join(finetuning.texts_of(row(*texts), join)[:2]) for join in ("blank", "nothing")
            for one, texts in (("both", ("Where?", "It rained.", "Ann went home.")), ("document", ("", "It rained.")),
                               ("question", ("Where?",)), ("apart", (" Where?", "It rained.")))}
    assert told["both", "blank"] == "It rained.\nAnn went home. Where?"
    assert told["both", "nothing"] == "It rained.\nAnn went home.Where?"
    assert told["document", "blank"] == "It rained." and told["question", "blank"] == "Where?"
    assert told["apart", "blank"] == "It rained. Where?"
    assert {one.join for one in experiment("finetune-gpt").plan("small")} == {"nothing"}, "as the records have it"
    assert {one.join for scale in ("smoke", "paper") for one in experiment("finetune-gpt").plan(scale)} == {"blank"}


def test_a_run_reads_its_questions_as_its_setting_says(tiny, home, monkeypatch):
    seen = []
    monkeypatch.setattr(finetuning, "texts_of", lambda row, join, known=finetuning.texts_of: (
        seen.append(join) or known(row, join)))
    for join in ("blank", "nothing"):
        run(config(task="nouns", train_examples=20, epochs=1, join=join))
        assert set(seen) == {join}
        seen.clear()


def test_at_most_so_many_examples_are_learned_from_and_fewer_where_there_are_fewer(tiny, home):
    for at_most, read in ((40, 40), (10_000, 600)):
        record = run(config(task="topics", at_most=at_most, epochs=1))
        assert record.metrics["train_examples"] == read and {"majority_score", "words_score"} <= record.metrics.keys()
    assert config(task="topics", train_examples=50, at_most=10).at_most is None


def test_a_rate_is_tried_on_training_examples_apart_from_those_that_are_scored(tiny, home, monkeypatch):
    monkeypatch.setattr(finetuning, "HELD_OUT", 100)
    seen, told, real = {}, [], {"tuned": finetuning.tuned, "answered": finetuning.answered}
    for name, at in (("tuned", 3), ("answered", 1)):
        def kept(*given, name=name, at=at):
            seen[name] = given[at]
            told[:] = result = real[name](*given)
            return result
        monkeypatch.setattr(finetuning, name, kept)
    one = config(task="topics", at_most=300, epochs=1, learning_rate=1e-3)
    record = run(one.model_copy(update={"experiment": "finetune-gpt-rates"}))
    drawn = finetuning.training_rows(one)
    coder = pretraining.new_tokeniser(pretraining.EXPERIMENT.plan("smoke")[0])
    assert seen["answered"] == finetuning.as_read("topics", drawn[:100], coder, one.limit)
    assert seen["tuned"] == finetuning.as_read("topics", drawn[100:], coder, one.limit) and len(seen["tuned"]) == 200
    assert record.metrics["held_out_examples"] == 100
    hits = sum(logit == label for logit, (_, label) in zip(told, seen["answered"], strict=True))
    assert record.metrics["held_out_score"] == pytest.approx(hits)

    monkeypatch.setattr(finetuning, "training_rows", lambda config: [*drawn[:99], drawn[150], *drawn[100:]])
    again = run(one.model_copy(update={"experiment": "finetune-gpt-rates"}), force=True)
    assert again.metrics["held_out_examples"] == 99, "one stands among those that are learnt from"
    monkeypatch.setattr(finetuning, "training_rows", lambda config: drawn[:100])
    with pytest.raises(ReproError, match="100 training examples of topics: 100 are held out, and none is left"):
        run(one.model_copy(update={"experiment": "finetune-gpt-rates"}), force=True)


def test_what_is_learnt_from_is_drawn_from_all_rows_and_the_same_at_every_seed(tiny):
    from repro.data.tasks import task

    rows = list(task("topics").examples("train"))
    drawn = finetuning.training_rows(config(task="topics"))
    assert drawn != rows and sorted(map(str, drawn)) == sorted(map(str, rows))
    for changes in ({"train_examples": 50}, {"at_most": 50}, {"train_examples": 50, "seed": 3}):
        assert finetuning.training_rows(config(task="topics", **changes)) == drawn[:50]
    with pytest.raises(ReproError, match="601 rows of task topics, train: .* has only 600"):
        finetuning.drawn("topics", 601)


def test_numbers_are_learnt_less_their_mean_and_told_with_it(tiny, home, monkeypatch):
    monkeypatch.setitem(finetuning.FORMS, "pairs", finetuning.Told("similarity", 1, "pearson"))
    monkeypatch.setattr(finetuning, "answered", lambda model, rows: [0.25] * len(rows))
    learnt = []
    monkeypatch.setattr("repro.training.LengthBuckets", lambda rows, *rest: learnt.extend(rows) or 1 / 0)
    one = config(task="pairs", train_examples=40)
    with pytest.raises(ZeroDivisionError):
        run(one)
    labels = [row.label for row in finetuning.training_rows(one)]
    assert [label for _, label in learnt] == pytest.approx([label - sum(labels) / 40 for label in labels])
    monkeypatch.setattr(finetuning, "tuned", lambda *given: (torch.nn.Linear(1, 1), type("Told", (), {"curves": {}})))
    assert run(one).documents["test"]["prediction"] == pytest.approx([sum(labels) / 40 + 0.25] * 200)


def started(tiny_context, **changes):
    torch.manual_seed(9)
    return finetuning.start(config(task="topics", **changes), tiny_context, type("Coder", (), {"vocab_size": 205}))


def test_sixteen_bits_shorten_what_a_transformer_is_told_to_take_and_half_as_much_an_lstm():
    estimate = experiment("finetune-gpt").estimate
    for variant, times in (("full", 3), ("lstm", 1.5)):
        seconds = [estimate(config(task="topics", variant=variant, precision=precision)).seconds
                   for precision in ("no", "bf16")]
        assert seconds[0] == pytest.approx(times * seconds[1])


def test_what_is_transferred(tiny, home):
    base, _ = pretraining.EXPERIMENT.plan("smoke")
    folder = home / "work" / "runs" / run(base).id
    context = type("Context", (), {"need": staticmethod(lambda config: (None, folder))})
    trained = pretraining.read(pretraining.build(base, 205), folder / "model" / pretraining.LAST)
    fresh = started(context, variant="no-pretraining")
    for transferred, own in ((0, 0), (1, 1), (2, 2), (None, 2)):
        made = started(context, transferred=transferred)
        assert torch.equal(made.embed.weight, trained.embed.weight)
        assert torch.equal(made.places.weight, trained.places.weight)
        for k in range(2):
            other = trained if k < own else fresh
            for one, wanted in zip(made.layers[k].parameters(), other.layers[k].parameters(), strict=True):
                assert torch.equal(one, wanted)
    assert not torch.equal(fresh.embed.weight, trained.embed.weight)


def test_scores_are_in_the_papers_unit():
    labels, told = [1, 1, 1, 0, 0, 1], [1, 0, 1, 0, 1, 1]
    true, false, wrong, missed = 3, 1, 1, 1  # positives told, negatives told, and the two kinds of errors
    matthews = (true * false - wrong * missed) / np.sqrt(4 * 4 * 2 * 2)
    assert finetuning.score(labels, told, "matthews") == pytest.approx(100 * matthews)
    assert finetuning.score(labels, told, "f1") == pytest.approx(100 * 6 / 8)
    assert finetuning.score(labels, told, "accuracy") == pytest.approx(100 * 4 / 6)
    assert finetuning.score([0.0, 1.0, 2.0], [1.0, 3.0, 5.0], "pearson") == pytest.approx(100)
    assert finetuning.score(labels, [1] * 6, "matthews") == 0


@pytest.mark.parametrize(("changes", "words"), [
    ({"task": "topic"}, "unknown task 'topic'. Did you mean 'topics'"), ({"task": "gap"}, "nothing is fine-tuned for"),
    ({"corpus": "cola"}, "corpus is 'cola', but task .* has the corpus synthetic-.*; set only the task"),
    ({"variant": "ful"}, "variant"), ({"transferred": 3}, "transferred is 3, but .* has 2 layers"),
    ({"transferred": -1}, "transferred"), ({"transferred": 99, "variant": "lstm"}, "transferred is 99"),
    ({"transferred": -1, "variant": "no-pretraining"}, "transferred"), ({"lm_weight": -1}, "lm_weight"),
    ({"learning_rate": None}, "learning_rate is null, but rates are tried at small only, not at smoke; give one"),
    ({"train_examples": 0}, "train_examples"),
    ({"limit": 65}, "limit is 65 tokens, .* context ends at 64")])
def test_settings_that_cannot_be(tiny, changes, words):
    with pytest.raises(ReproError, match=words):
        config(**{"task": "topics"} | changes)


def test_layers_are_transferred_only_where_there_are_any(tiny):
    plan = experiment("finetune-gpt").plan("smoke", {"task": "topics", "transferred": "0,1"})
    assert [one.transferred for one in plan if one.variant in ("lstm", "no-pretraining")] == [None, None]
    assert {one.transferred for one in plan if one.variant == "full"} == {0, 1}


def test_every_task_has_a_form_and_its_corpus_is_that_of_the_task(tiny):
    from repro.data.tasks import TASKS

    assert set(FORMS) | {"gap"} == set(TASKS)
    assert config(task="pairs").corpus == "synthetic-pairs"
    assert {one.task for one in experiment("finetune-gpt").plan("smoke")} == set(finetuning.GENERATED)
