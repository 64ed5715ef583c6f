"""The toy study with claims."""

import pytest
from toy_claims import declare


@pytest.fixture
def judged(toy):
    """The claims, declared."""
    return declare()
