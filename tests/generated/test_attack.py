"""Random programs by number, small ones; see `attack`."""

from __future__ import annotations

import pytest
from attack import check, smallest
from checks import MORE

pytestmark = pytest.mark.numpy_alone


@pytest.mark.random
@pytest.mark.parametrize("part", range(4))
def test_random_programs(part: int) -> None:
    """A quarter of them."""
    for seed in range(part * 125 * MORE, (part + 1) * 125 * MORE):
        try:
            check(seed, thorough=False)
        except Exception as error:
            raise AssertionError(f"program {seed}: {smallest(seed, thorough=False)}") from error
