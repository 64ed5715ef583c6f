"""Where tiny base models are trained, and one that is killed on the way."""

import shutil

import pytest

from repro.study import run
from repro.training import Sequences
from repro.training import trainer as trainer_module


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
def killed(home, tmp_path, monkeypatch):
    """(config, at, steps) -> the record of a run that is killed after `at` of its steps and then goes on.

    A checkpoint is written in every step, and none is repeated.
    """
    def made(config, at, steps):
        for name in ("tokens", "tokenisers"):
            shutil.copytree(home / "work" / name, tmp_path / name)
        monkeypatch.setenv("REPRO_WORK", str(tmp_path))
        monkeypatch.setattr(trainer_module.time, "monotonic", iter(range(0, 10**6, 100)).__next__)
        plain, left = Sequences.batch, [at]

        def batch(self, step):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return plain(self, step)

        monkeypatch.setattr(Sequences, "batch", batch)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "results", progress=False)
        left[0] = steps - at
        again = run(config, tmp_path / "results", progress=False)
        assert left[0] == 0 and again.cost["resumed"]
        return again
    return made
