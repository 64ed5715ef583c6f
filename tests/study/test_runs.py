"""A run: what follows from its config."""

import hashlib
import json

import pytest

from repro.errors import ReproError
from repro.study import Run, command, run, run_id


def test_a_run_gives_its_experiment_its_command_its_id_and_what_it_needs(toy):
    config = toy.experiment.plan("smoke")[1]
    one = Run(config)
    assert one.experiment is toy.experiment and one == Run(config) and hash(one) == hash(Run(config))
    assert one.command == command(config)
    assert one.id == run_id(config) == run(config, progress=False).id
    assert [need.experiment for need in one.needs] == ["toy-base"] and one.models == one.needs


def test_its_key_is_a_hash_of_every_setting(toy):
    first, second = toy.experiment.plan("smoke")[:2]
    text = json.dumps(first.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    assert first.key == hashlib.sha256(text.encode()).hexdigest()[:16] != second.key


def test_without_its_data_a_run_has_no_id(toy):
    config = toy.base.plan("small")[0]
    toy.absent.add(config.corpus)
    assert not Run(config).data_at_hand
    with pytest.raises(ReproError, match=config.corpus):
        assert Run(config).id
