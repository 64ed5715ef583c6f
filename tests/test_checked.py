"""Arguments are compared with their annotations: numbers of any size are floats, but whole numbers fit into 64 bits."""

import math

import pytest

from repro.checked import checked, fits
from repro.errors import ReproError
from repro.study import judge


@pytest.mark.parametrize(("value", "kind", "right"), [
    (10**20, float, True), (-2**64, float, True), (2**63, float, True), (10**400, float, False),
    (10**400, float | None, False), (math.inf, float, True), (math.nan, float, False), (True, float, False),
    (2**63 - 1, int, True), (2**63, int, False), (-2**63, int, False), (10**20, int | float, True)])
def test_what_fits_a_number(value, kind, right):
    assert fits(value, kind) is right


def test_a_large_whole_number_is_a_number():
    assert checked(lambda x: x)(10**20) == 10**20
    assert judge([[2e20, 2.1e20]], "higher", paper_effect=10**20, seeds=1).paper_effect == 1e20
    with pytest.raises(ReproError, match="paper_effect is 1000.*; it must be a number"):
        judge([[2.0, 2.1]], "higher", paper_effect=10**400, seeds=1)
