"""Random nests of control flow; see `random_nests`."""

from __future__ import annotations

import os

from checks import each
from random_nests import check_nest

MORE = int(os.environ.get("FLUID_MORE_EXAMPLES", "1"))


@each("first", range(0, 100, 10))
def test_nests(first: int) -> None:
    """Each of ten programs, three deep, to order 2."""
    for seed in range(first * MORE, (first + 10) * MORE):
        check_nest(seed)
