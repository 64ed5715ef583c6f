"""Which runs there are of GPT."""

from pathlib import Path

from repro.papers.gpt1_2018 import finetuning, pretraining, zero_shot
from repro.study import Store, experiment


def test_the_short_trainings_are_declared_and_those_that_are_needed():
    plan = experiment("pretrain-gpt").plan("small")
    assert [one.model for one in plan[:2]] == ["transformer", "lstm"] and len(plan) == 2 + 2 * 4 + 1
    assert [short for one in plan[:2] for short in pretraining.search(one)] == plan[2:-1]
    assert plan[-1] == plan[-2].model_copy(update={"learning_rate": 0.1})  # beyond the LSTM's highest
    assert {(one.optimizer, one.weight_decay) for one in plan} == {("muon", 0.1)}  # alike for both
    assert {one.tokens for one in plan} == {15_000_000, 1_500_000}


def test_the_grid_has_every_part_that_is_shown():
    plan = experiment("finetune-gpt").plan("small")
    def of(task, **fields):
        return [one for one in plan if one.task == task and all(getattr(one, k) == v for k, v in fields.items())]
    for task in finetuning.TABLE_5:
        assert {one.variant for one in of(task, transferred=None, train_examples=None)} == set(finetuning.VARIANTS)
    for task in ("openbookqa", "race"):
        assert {one.variant for one in of(task)} == {"full", "no-pretraining", "shuffled-labels"}
    for task in ("sick", "sst2"):
        assert [one.transferred for one in of(task, variant="full", train_examples=None)] == [None, *range(7)]
    assert {one.learning_rate for one in plan if one.transferred is not None} == {3e-4}, "they differ in layers alone"
    for variant in ("full", "no-auxiliary"):
        examples = [one.train_examples for one in of("sst2", variant=variant, transferred=None)]
        assert examples == [None, 500, 5_000, 20_000]
    assert {(one.train_examples, one.epochs) for one in plan} == {(None, 2), (500, 10), (5_000, 2), (20_000, 2)}
    assert len(plan) == 30 + 6 + 14 + 6
    assert {(one.train_examples, one.at_most) for one in plan} == {
        (None, 2_500), (500, None), (5_000, None), (20_000, None)}
    assert {one.at_most for one in experiment("finetune-gpt").plan("paper")} == {None}


def test_heuristics_are_asked_of_both_models_at_the_same_rows():
    plan = experiment("zero-shot-gpt").plan("small")
    assert {(one.task, one.model) for one in plan} == {
        (task, model) for task in ("cola", "sst2", "race", "gap") for model in ("transformer", "lstm")}
    assert {one.examples for one in plan if one.task == "race"} == {300}
    assert {one.task for one in plan if one.train_draw == "random"} == {"cola"}, "the one with a threshold"
    for one in plan:
        need, = experiment("zero-shot-gpt").needs(one)
        assert need.model == one.model and need.learning_rate is None and need.checkpoints == 8


def test_what_is_fine_tuned_takes_its_rate_from_trials_of_what_it_starts_from():
    plan = experiment("finetune-gpt-rates").plan("small")
    tried, longer = [one for one in plan if one.epochs == 2], [one for one in plan if one.epochs == 6]
    assert [(one.variant, one.learning_rate, one.task) for one in longer] == [
        (*best, task) for best in (("full", 1e-3), ("no-pretraining", 3e-4), ("no-auxiliary", 1e-4), ("lstm", 3e-3))
        for task in ("sick", "sst2", "stsb")]
    rates = {"full": (3e-4, 1e-3, 3e-3, 1e-2), "no-pretraining": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
             "no-auxiliary": (3e-5, 1e-4, 3e-4, 1e-3, 3e-3), "lstm": (1e-3, 3e-3, 1e-2, 3e-2)}
    assert [(one.variant, one.learning_rate, one.task) for one in tried] == [
        (variant, rate, task) for variant in rates for rate in rates[variant] for task in ("sick", "sst2", "stsb")]
    for one in experiment("finetune-gpt").plan("small", seeds=(0, 1)):
        own = "full" if one.variant == "shuffled-labels" else one.variant
        assert finetuning.rates_of(one) == [
            other for other in tried if other.variant == own and one.transferred is None]
    assert {one.learning_rate for one in experiment("finetune-gpt").plan("small") if one.transferred is None} == {None}
    assert finetuning.rates_of(experiment("finetune-gpt").plan("paper")[0]) == []
    best = {}
    for one in tried:  # of the committed records
        record = Store.for_scale("small", Path(__file__).parents[3] / "results").look(one)
        best.setdefault(one.variant, {}).setdefault(one.learning_rate, []).append(record.metrics["held_out_score"])
    taken = {variant: max(rates, key=lambda rate: sum(rates[rate])) for variant, rates in best.items()}
    assert finetuning.LONGER == taken and finetuning.LAYER_RATE == taken["no-pretraining"]
    none = next(one for one in experiment("finetune-gpt").plan("small") if one.transferred == 0)
    assert finetuning.rates_of(none.model_copy(update={"learning_rate": None})) == [
        one for one in tried if one.variant == "no-pretraining"], "nearly nothing is pretrained"


def test_the_rate_with_the_best_mean_over_tasks_is_taken():
    scores = {"sick": {3e-4: 50, 1e-3: 55, 3e-3: 70, 1e-2: 40}, "sst2": {3e-4: 60, 1e-3: 59, 3e-3: 40, 1e-2: 61},
              "stsb": {3e-4: 9, 1e-3: 9, 3e-3: 9, 1e-2: 10}}

    def need(one):
        assert one.variant == "full", "what starts from the same weights"
        return type("Record", (), {"metrics": {"held_out_score": scores[one.task][one.learning_rate]}}), None

    context = type("Context", (), {"need": staticmethod(need)})
    wanted = experiment("finetune-gpt").plan("small", {"task": "rte", "variant": "shuffled-labels"})[0]
    assert finetuning.best_rate(wanted, context) == 1e-3
    assert finetuning.best_rate(wanted.model_copy(update={"learning_rate": 0.5}), context) == 0.5


def test_rows_of_a_threshold_are_those_that_are_drawn():
    one = experiment("zero-shot-gpt").plan("smoke", {"task": "belonging"})[0]
    first, some = (zero_shot.rows_of(one.model_copy(update={"train_draw": how}), "train")
                   for how in ("first", "random"))
    assert some[0] == finetuning.drawn("belonging", 400) != first[0] and len(first[0]) == len(some[0]) == 400
    assert some[1] == [row.label for row in some[0]]
