"""Table 10's effects, computed by hand on records of four questions."""

import re
from collections import namedtuple
from types import SimpleNamespace

import pytest

from repro.papers.longformer2020.tasks import ablation_tables as tables
from repro.papers.longformer2020.tasks.ablation import WAYS
from repro.study import artifact, claim, claims

RIGHT = {"longformer": [1, 1, 1, 0], "short": [1, 0, 1, 0], "epochs-15": [1, 1, 1, 1], "full-attention": [1, 1, 0, 0],
         "short-sequence": [1, 1, 0, 1], "no-mlm": [0, 1, 1, 0], "no-projections": [1, 0, 0, 0],
         "no-global": [0, 0, 0, 0], "positions-only": [1, 1, 1, 0]}
RECORDS = [SimpleNamespace(config={"configuration": name}, documents={"test": {"accuracy": [100 * k for k in right]}},
                           metrics={"chance": 20.0, "most_frequent": 40.0}) for name, right in RIGHT.items()]


def test_printed_rows_are_matched_with_their_configurations():
    assert tables.printed_change("epochs-15") == pytest.approx(1.2)
    assert tables.printed_change("no-global") == pytest.approx(-8.3)
    assert tables.printed_change("epochs-15", "short") == pytest.approx(2.6)
    assert sorted(tables.PRINTED) == sorted(RIGHT) == sorted(tables.NAMES)
    for name, row in tables.PRINTED.items():
        if name != "longformer":
            assert tables.printed_change(name) == pytest.approx(float(row["delta_points"])), name


def test_differences_are_paired_by_question():
    assert tables.against("short", "longformer")(RECORDS).effects.tolist() == [[0, -100, 0, 0]]
    assert tables.against("epochs-15", "short")(RECORDS).effects.tolist() == [[0, 100, 0, 100]]


def test_the_largest_loss_is_compared_with_the_next_one():
    found = tables.largest(RECORDS)
    assert found.effects.tolist() == [[-100, 0, 0, 0]] and "no separate projections" in found.note


def test_the_room_is_what_longformer_has_over_the_best_guess():
    assert tables.beyond_guesses(RECORDS) == 75 - 40


def test_eight_signs_and_the_largest_are_claimed_with_the_printed_direction():
    made = {one.id.removeprefix("longformer2020-table10-"): one for one in claims()
            if one.id.startswith("longformer2020-table10-")}
    assert sorted(made) == sorted([*(name for name in RIGHT if name != "longformer"), "largest"])
    for name, one in made.items():
        assert (one.paper_effect() > 0) is (one.direction == "higher") is (name == "epochs-15")
    assert made["largest"].paper_effect() == pytest.approx(-6.2)


SAID = {("start", "base"): "no further masked-token training", ("pieces", True): "in pieces",
        ("start", "positions"): "only longformer changed its other weights", ("epochs", 3): "three times the updates",
        ("length", 0.5): "half the text", ("projections", False): "fewer weights|lacks separate projections",
        ("global_tokens", False): "without global attention"}


@pytest.mark.parametrize("name", [name for name in WAYS if name != "longformer"])
def test_a_claim_says_all_that_differs_from_longformer_and_no_more(name):
    way, main, made = WAYS[name], WAYS["longformer"], claim(f"longformer2020-table10-{name}")
    differs = {(field, value) for field, value in way._asdict().items() if value != getattr(main, field)}
    told = f"{made.sentence} {made.why_no_control}".lower()
    assert {one for one, words in SAID.items() if re.search(words, told)} == differs
    assert made.why_no_control.startswith("Longformer is the control; ")


@pytest.mark.parametrize(("name", "rows"), [("longformer2020-table10", 9), ("longformer2020-table7-wikihop", 1)])
def test_tables_show_the_paper_without_any_record(name, rows, tmp_path):
    shown = artifact(name).render("smoke", results=tmp_path).table
    printed, ours = (shown[(shown["source"] == "the paper") == paper] for paper in (True, False))
    assert len(printed) == rows and len(ours) % rows == 0 and "not run" in ours.to_string()


def test_changes_are_paired_when_one_configuration_has_fewer_seeds():
    """Three seeds of Longformer and two of the short model, in another order: the change is that of the two."""
    def record(name, seed, right):
        return SimpleNamespace(config={"configuration": name}, documents={"test": {"accuracy": right}}, seed=seed,
                               metrics={"accuracy": sum(right) / len(right)})

    found = {"longformer": [record("longformer", seed, [100, 100 * (seed == 1)]) for seed in range(3)],
             "short": [record("short", seed, [0, 100 * (seed == 1)]) for seed in (2, 1)],
             "epochs-15": [record("epochs-15", seed, [100, 100]) for seed in (1, 2, 3)]}
    config = namedtuple("Config", "configuration corpus length epochs")
    plan = [config(name, "book-names", 1_024, 1) for name in found]
    context = SimpleNamespace(scales=("pretrained",), plan=lambda scale: plan,
                              at_common_seeds=lambda some: [found[one.configuration] for one in some])
    ours = tables.table_10(context).iloc[-3:]
    assert list(ours["configuration"]) == [tables.NAMES[name] for name in found]
    changes = [one.split()[0] for one in ours["against Longformer"]]
    assert changes == ["–", "-50.0", "+25.0"] and list(ours["seeds"]) == ["3", "2", "3"]
    assert tables.wikihop(context).iloc[-1]["gain"].split()[0] == "+75.0"
