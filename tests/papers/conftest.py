"""What tests of several papers share."""

import pytest


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where the runs of a file write."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("REPRO_HOME", str(folder))
        patch.setenv("REPRO_WORK", str(folder / "work"))
        yield folder
