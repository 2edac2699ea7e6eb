"""The cache that holds what ops find out about kinds of arrays."""

from __future__ import annotations

from fluid.values.cache import PROCESS_LIMIT, Cache


def test_it_holds_no_more_than_it_may() -> None:
    cache: Cache[int, str] = Cache(3)
    for number in range(10):
        assert cache.keep(number, str(number)) == str(number)
        assert cache.get(number) == str(number)
        assert len(cache) <= 3
    assert cache == {9: "9"}


def test_by_default_it_may_hold_much() -> None:
    cache: Cache[int, int] = Cache()
    for number in range(PROCESS_LIMIT):
        cache.keep(number, -number)
    assert len(cache) == PROCESS_LIMIT
    cache.keep(PROCESS_LIMIT, 1)
    assert cache == {PROCESS_LIMIT: 1}
