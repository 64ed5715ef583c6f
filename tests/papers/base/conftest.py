"""Where tiny base models are trained, and one that is killed on the way."""

import shutil

import pytest

from repro.training import Sequences


@pytest.fixture(scope="module")
def home(request, tmp_path_factory):
    """Where a file's runs write; `HELD_OUT` tokens of the validation text are read by those of its `MODEL`."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("pretraining")
        patch.setenv("REPRO_HOME", str(folder))
        patch.setenv("REPRO_WORK", str(folder / "work"))
        patch.setattr(request.module.MODEL, "HELD_OUT", request.module.HELD_OUT)
        yield folder


@pytest.fixture
def killed(home, tmp_path, monkeypatch, killed_at):
    """(config, at, steps) -> the record of a run that is killed after `at` of its steps and then goes on.

    A checkpoint is written in every step, and none is repeated.
    """
    def made(config, at, steps):
        for name in ("tokens", "tokenisers"):
            shutil.copytree(home / "work" / name, tmp_path / name)
        monkeypatch.setenv("REPRO_WORK", str(tmp_path))
        return killed_at(Sequences, config, at, steps)
    return made
