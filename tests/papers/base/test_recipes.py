"""Recipes that were tried: what each row differs in, and the table of their losses."""

from types import SimpleNamespace

from repro.papers.base import gpt2_mini
from repro.papers.base.pretraining import stages
from repro.papers.base.recipes import EXPERIMENT, TAKEN, table


def test_rows_differ_in_optimiser_and_rate_alone_and_are_short():
    base = gpt2_mini.EXPERIMENT.plan("small")[0]
    plan = EXPERIMENT.plan("small")
    rows = [(one.optimizer, one.learning_rate) for one in plan]
    assert rows == [("muon", 3e-3), ("muon", 6e-3), ("adamw", 1e-3), ("adamw", 3e-3)]
    assert len({str(one.model_copy(update={"optimizer": "muon", "learning_rate": 1})) for one in plan}) == 1
    for name in ("corpus", "vocab_size", "n_layer", "n_embd", "n_positions", "weight_decay", "precision"):
        assert getattr(plan[0], name) == getattr(base, name)
    assert (plan[0].tokens, stages(plan[0])) == (2_000_000, [(256, 16, 489)])
    assert plan[0].weights == "fp32"  # these weights are nobody's to keep


def test_the_table_marks_the_recipe_of_the_base_model():
    plan = EXPERIMENT.plan("small")
    losses = {plan[0]: 4.8765, plan[2]: 5.4321}
    context = SimpleNamespace(scales=("small",), plan=EXPERIMENT.plan, records_of=lambda config: [
        SimpleNamespace(metrics={"validation_token_loss": losses[config]})] if config in losses else [])
    frame = table(context)
    assert frame["nats per token"].tolist() == ["4.877", "not run", "5.432", "not run"]
    assert frame[""].tolist() == [TAKEN, "", "", ""]
    assert frame.loc[0, "batch"] == "16 x 256" and frame.loc[2, "optimizer"] == "adamw"
