"""What tests of several papers share."""

import pytest

from repro.study import run
from repro.training import trainer as trainer_module


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where the runs of a file write."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("REPRO_HOME", str(folder))
        patch.setenv("REPRO_WORK", str(folder / "work"))
        yield folder


@pytest.fixture
def killed_at(tmp_path, monkeypatch):
    """(batches, config, at, steps) -> the record of a run that is killed when it asks for batch number `at` of `steps`
    of the class `batches`, and then goes on. A checkpoint is written in every step, and none is repeated."""
    def made(batches, config, at, steps):
        monkeypatch.setattr(trainer_module.time, "monotonic", iter(range(0, 10**6, 100)).__next__)
        plain, left = batches.batch, [at]

        def batch(self, step):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return plain(self, step)

        monkeypatch.setattr(batches, "batch", batch)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "results", progress=False)
        left[0] = steps - at
        again = run(config, tmp_path / "results", progress=False)
        assert left[0] == 0 and again.cost["resumed"]
        return again
    return made
