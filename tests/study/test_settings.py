"""Configs, plans and ids."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from typing import Annotated

import numpy as np
import pytest

from repro.errors import ReproError
from repro.study import Absent, Experiment, Record, Run, Store, command, experiment, register, registry, run, run_id
from repro.study.plan import state
from repro.study.settings import canonical, identify, sha256


def points(plan):
    return [(c.seed, c.model, c.overlap) for c in plan]


def test_plan_is_grid_times_seeds(toy):
    assert points(toy.experiment.plan("smoke", seeds=(0, 3))) == [
        (0, "baseline", 0), (0, "baseline", 5), (0, "recurrent", 0), (0, "recurrent", 5),
        (3, "baseline", 0), (3, "baseline", 5), (3, "recurrent", 0), (3, "recurrent", 5)]
    assert {c.rate for c in toy.experiment.plan("smoke")} == {1e-3}
    assert {c.rate for c in toy.experiment.plan("small")} == {1e-4}


def test_a_set_key_replaces_grid_values_and_duplicates_are_dropped(toy):
    assert points(toy.experiment.plan("smoke", {"overlap": "7"})) == [(0, "baseline", 7), (0, "recurrent", 7)]
    assert points(toy.experiment.plan("smoke", {"overlap": "10,20", "model": "recurrent"})) == [
        (0, "recurrent", 10), (0, "recurrent", 20)]
    assert points(toy.experiment.plan("smoke", {"overlap": [1, 2], "model": "baseline"})) == [
        (0, "baseline", 1), (0, "baseline", 2)]
    assert toy.experiment.plan("smoke", {"layers": "[1,2]"})[0].layers == (1, 2)
    assert toy.experiment.plan("smoke", {"layers": (3, 4)})[0].layers == (3, 4)
    assert toy.experiment.plan("smoke", {"limit": "null"})[0].limit is None
    assert [c.limit for c in toy.experiment.plan("smoke", {"limit": "4,null,4"})] == 4 * [4, None]


@pytest.mark.parametrize(("scale", "sets", "words"), [
    ("smoke", {"overlop": "5"}, "unknown key of toy-recurrence 'overlop'. Did you mean 'overlap'?"),
    ("smal", {}, "unknown scale 'smal'. Did you mean 'small'? Known: small, smoke."),
    ("paper", {}, "unknown scale 'paper'"),
    ("smoke", {"scale": "small"}, "unknown key of toy-recurrence 'scale'"),
    ("smoke", {"corpus": "toy-txt"}, "unknown corpus 'toy-txt'. Did you mean 'toy-text'?"),
    ("smoke", {"overlap": "300"}, "toy-recurrence: overlap 300 must be smaller than window 300."),
    ("smoke", {"window": "5"}, "overlap 5 must be smaller than window 5"),
    ("smoke", {"layers": "3"}, "layers is '3'; it must be a list, written […, …]."),
    ("smoke", {"overlap": "five"}, "overlap is 'five'; it must be a whole number."),
    ("smoke", {"model": "reccurent"}, "unknown model 'reccurent'. Did you mean 'recurrent'?"),
    ("smoke", {"rate": "nan"}, "rate is 'nan'; it must be a finite number."),
    ("smoke", {"seed": "-1"}, "seed is '-1'; it must be at least 0."),
    ("smoke", {"seed": str(2**32)}, "seed is '4294967296'; it must be below 4294967296."),
    ("smoke", {"model": "RECURRENT"}, "unknown model 'RECURRENT'. Did you mean 'recurrent'?"),
    ("smoke", {"layers": "[1,"}, "cannot read [1, as JSON"),
    ("smoke", {"corpus": "x" * 5_000}, "unknown corpus '" + "x" * 100),
])
def test_bad_plans_are_told_in_one_line(toy, scale, sets, words):
    with pytest.raises(ReproError) as error:
        toy.experiment.plan(scale, sets)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_list_where_a_validator_looks_up_a_name_is_told_in_one_line():
    for name, key in (("pretrain-gpt2-sizes", "size"), ("wikihop-ablation", "configuration"),
                      ("longformer-tasks", "task")):
        for value in ('["nope", [1]]', '{"a": 1}'):
            with pytest.raises(ReproError, match=f"{key}.*nope|{key}.*'a': 1") as error:
                experiment(name).plan("smoke", {key: value})
            assert "\n" not in str(error.value)
    with pytest.raises(ReproError, match="unknown model 'nope'"):  # `memory` decides, but a name that is none stays one
        experiment("memories-pg19").plan("smoke", {"model": "nope"})
    with pytest.raises(ReproError, match="unknown corpus '../../x'"):
        experiment("memories-pg19").plan("smoke", {"scored_corpus": "../../x"})
    with pytest.raises(ReproError, match="layers is '../../x'; give one letter for each layer"):
        experiment("summarise-memory").plan("smoke", {"layers": "../../x"})


def test_largest_allowed_overlap_is_accepted(toy):
    assert toy.experiment.plan("smoke", {"overlap": "299"})[0].overlap == 299


def test_canonical_json_is_known_and_ignores_key_order():
    assert canonical({"b": 1.0, "a": [1, None, np.float32(0.5)]}) == '{"a":[1,null,0.5],"b":1.0}'
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})
    with pytest.raises(ReproError, match="not finite"):
        canonical({"loss": float("nan")})


def test_id_is_the_documented_hash_and_the_same_in_another_process():
    config = {"z": 1, "a": {"y": 0.1, "x": "ü"}}
    text = '{"config":{"a":{"x":"\\u00fc","y":0.1},"z":1},"data":"f00","needs":["1","2"]}'
    wanted = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert identify(config, "f00", ["2", "1"]) == wanted
    code = ("import json, sys; from repro.study.settings import identify; "
            "print(identify(json.loads(sys.argv[1]), 'f00', '12'))")
    other_order = json.dumps({"a": {"x": "ü", "y": 0.1}, "z": 1})
    found = subprocess.run([sys.executable, "-c", code, other_order], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == wanted


def test_id_changes_with_config_default_data_and_needs(toy):
    config = toy.experiment.plan("smoke")[0]
    first = run_id(config)
    assert len(first) == 16
    assert int(first, 16) >= 0
    assert run_id(toy.experiment.plan("smoke", {"rate": "0.001"})[0]) == first
    assert run_id(toy.experiment.plan("smoke", {"share": "1.0"})[0]) == first
    others = [run_id(toy.experiment.plan("smoke", {key: value})[0])
              for key, value in {"rate": "0.0011", "overlap": "1", "seed": "1", "layers": "[3]"}.items()]

    class OtherDefault(type(config)):
        window: int = 301

    others.append(run_id(OtherDefault(experiment=config.experiment, scale="smoke", corpus="toy-text")))
    toy.texts["toy-text"] += "."
    others.append(run_id(config))
    toy.texts["toy-text"] = toy.texts["toy-text"][:-1]
    assert run_id(config) == first
    toy.texts["toy-books"] += "."
    others.append(run_id(config))
    assert len({first, *others}) == 8


def test_a_further_corpus_that_is_read_counts_in_the_id_and_must_be_there(toy):
    config = toy.base.plan("smoke")[0]
    alone = run_id(config)
    object.__setattr__(toy.base, "reads", lambda config: ("toy-text",))
    both = run_id(config)
    text = {name: hashlib.sha256(toy.texts[name].encode()).hexdigest() for name in toy.texts}
    parts = {"config": config.model_dump(mode="json"), "data": text["toy-books"], "needs": []}
    assert alone == sha256(parts)[:16]
    assert both == sha256(parts | {"reads": {"toy-text": text["toy-text"]}})[:16]
    toy.texts["toy-text"] += "!"
    assert run_id(config) not in (alone, both)
    assert Run(config).data_at_hand
    toy.absent.add("toy-text")
    assert not Run(config).data_at_hand
    with pytest.raises(ReproError, match="unknown corpus 'toy-txt'. Did you mean 'toy-text'?"):
        replace(toy.base, reads=lambda config: ("toy-txt",)).plan("smoke")


def test_what_a_tokeniser_is_trained_on_counts_in_the_id_of_the_base_model():
    pretraining = experiment("pretrain-gpt2-mini")
    for scale in pretraining.scales:
        config, = pretraining.plan(scale)
        assert tuple(pretraining.reads(config)) == config.tokeniser_corpora
    assert pretraining.reads(pretraining.plan("small")[0]) == ("books-and-wikipedia",)


def test_the_command_runs_exactly_that_config(toy):
    config = toy.experiment.plan("smoke", {"layers": "[1,2]"}, seeds=(2,))[3]
    line = command(config)
    assert line == ("repro run toy-recurrence --scale smoke --set model=recurrent --set overlap=5 --set 'layers=[1,2]' "
                    "--seed 2")
    sets = dict(item.strip("'").split("=") for item in line.split() if "=" in item)
    assert toy.experiment.plan("smoke", sets, seeds=(2,)) == [config]


def test_a_name_is_declared_once(toy):
    with pytest.raises(ReproError, match="experiment 'toy-base' is declared twice"):
        register(toy.base)
    assert isinstance(toy.base, Experiment)


def test_the_catalog_loads_and_every_experiment_plans_each_of_its_scales():
    from repro.study import experiments

    for one in experiments():
        for scale in one.scales:
            assert one.plan(scale), (one.name, scale)
            for config in one.plan(scale):
                one.estimate(config)


def grown(toy, monkeypatch, *, default="adamw", meant="adamw", revision=0):
    """The toy base experiment after its config has got a field more, of which older records have nothing."""
    class Grown(toy.base.config):
        optimizer: Annotated[str, Absent(meant)] = default

    later = replace(toy.base, config=Grown, revision=revision)
    monkeypatch.setitem(registry._declared[Experiment], "toy-base", later)
    return later


def test_a_field_that_is_added_changes_no_id_while_it_means_what_was_done_before(toy, monkeypatch):
    before = run(toy.base.plan("small")[0], progress=False)
    later = grown(toy, monkeypatch).plan("small")[0]
    assert later.optimizer == "adamw"
    assert run_id(later) == before.id
    assert Store.for_scale("small").get(later) == before
    toy.absent.add("toy-books")  # the record is found by its settings too
    assert Store.for_scale("small").get(later) == before
    toy.absent.clear()
    again = run(later, progress=False, force=True)
    assert (again.id, again.digest, again.config) == (before.id, before.digest, before.config)


def test_another_value_of_the_added_field_is_another_run(toy, monkeypatch):
    before = run_id(toy.base.plan("small")[0])
    other = grown(toy, monkeypatch).plan("small", {"optimizer": "muon"})[0]
    assert run_id(other) != before
    record = run(other, progress=False)
    assert record.config["optimizer"] == "muon"
    assert Record.read(Store.for_scale("small").path(record)) == record


def test_another_default_and_another_meaning_change_the_id(toy, monkeypatch):
    before = run_id(toy.base.plan("small")[0])
    changed = grown(toy, monkeypatch, default="muon").plan("small")[0]
    assert run_id(changed) != before
    assert run_id(changed) == run_id(grown(toy, monkeypatch).plan("small", {"optimizer": "muon"})[0])
    revised = grown(toy, monkeypatch, revision=1).plan("small")[0]
    assert run_id(revised) not in (before, run_id(changed))
    record = run(revised, progress=False)
    assert Record.read(Store.for_scale("small").path(record)).revision == 1
    assert run_id(grown(toy, monkeypatch, revision=2).plan("small")[0]) not in (before, record.id)


def test_what_was_meant_is_compared_as_a_value(toy):
    class Grown(toy.base.config):
        share: Annotated[float, Absent(1)] = 1
        parts: Annotated[tuple[int, ...], Absent(())] = ()

    config = Grown(experiment="toy-base", scale="smoke", corpus="toy-books")
    assert config.settings() == toy.base.plan("smoke")[0].settings()
    assert config.model_copy(update={"parts": (2,)}).settings()["parts"] == [2]


def test_a_revision_counts_where_the_data_is_absent_too(toy, monkeypatch):
    before, above = run(toy.base.plan("small")[0], progress=False), toy.experiment.plan("small")[0]
    run(above, progress=False)
    toy.absent.update(toy.texts)
    store, later = Store.for_scale("small"), grown(toy, monkeypatch, revision=1).plan("small")[0]
    assert store.get(later) is None and store.seeds(later) == [] and state(later) == "to do"
    assert store.get(above) is None
    assert state(above) == f"stale: built on toy-base {before.id}, from before that experiment was revised"
    toy.absent.clear()
    revised = run(later, progress=False)
    toy.absent.update(toy.texts)
    assert store.get(later) == revised != before


def test_the_runs_that_stand_on_a_grown_one_keep_their_ids_too(toy, monkeypatch):
    before = [run_id(config) for config in toy.experiment.plan("small")]
    grown(toy, monkeypatch)
    assert [run_id(config) for config in toy.experiment.plan("small")] == before
    grown(toy, monkeypatch, revision=1)
    assert not set(before) & {run_id(config) for config in toy.experiment.plan("small")}
