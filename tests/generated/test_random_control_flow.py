"""Random nests of control flow; see `random_nests`."""

from __future__ import annotations

import pytest
from checks import MORE, each
from random_nests import check_nest

pytestmark = pytest.mark.numpy_alone


@pytest.mark.random
@each("seed", range(5 * MORE))
def test_nests(seed: int) -> None:
    """A program with blocks nested three deep, to order 2."""
    check_nest(seed)
