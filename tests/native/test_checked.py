"""Tests of the guards that protect tests of kernels: red zones, bounds of each access, equal results of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from checks import each
from harness import CROSS, TARGETS, emits, run

from fluid.executor.native.emitter import DOUBLE, FLOAT, Function, Type, Value
from fluid.executor.native.kernel import Share


def doubling(extent: int, lanes: int, element: Type = FLOAT, stride: int = 1, before: int = 0) -> Callable[..., None]:
    """A kernel that doubles as many elements, `lanes` at a time, from another element than the first."""

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        source, target = pointers
        start, stop = share.of(f, max(extent // lanes, 1))

        def step(i: Value) -> None:
            index = f.add(f.mul(i, lanes * stride), before)
            f.store(f.mul(f.load(f.at(source, index, element), element.of(lanes)), 2.0), f.at(target, index, element))

        f.loop(start, stop, 1, [], step)

    return body


def test_a_kernel_runs_over_views_of_any_stride() -> None:
    for target in TARGETS:
        for dtype, element in ((np.float32, FLOAT), (np.float64, DOUBLE)):
            x = np.arange(16, dtype=dtype)
            np.testing.assert_array_equal(run(doubling(16, 4, element), [x, np.zeros_like(x)], target)[1], 2 * x)
            _, y = run(doubling(8, 1, element, stride=2), [x[::2], np.zeros_like(x)[::2]], target)
            np.testing.assert_array_equal(y, 2 * x[::2])
            _, y = run(doubling(16, 1, element, stride=-1), [x[::-1], np.zeros_like(x)[::-1]], target)
            np.testing.assert_array_equal(y, 2 * x[::-1])
    assert run(doubling(0, 1, before=0), [np.zeros(1, np.float32)] * 2, checked=False)[0].tolist() == [0]


@each(
    "extent, elements, lanes, before, stride, message",
    [
        (16, 15, 4, 0, 1, "operand 0 at byte 48, outside"),  # a tail that goes past the end
        (15, 15, 16, 0, 1, "operand 0 at byte 0, outside"),  # a vector that is wider than the whole
        (16, 16, 4, -1, 1, "operand 0 at byte -4, outside"),
        (4, 4, 1, 10**9, 1, "operand 0 at byte 4000000000, outside"),  # which unchecked would end the process
        (0, 0, 1, 0, 1, "operand 0 at byte 0, outside"),
    ],
)
def test_an_access_outside_is_told_and_touches_nothing(
    extent: int, elements: int, lanes: int, before: int, stride: int, message: str
) -> None:
    x = np.zeros(elements, np.float32)
    with pytest.raises(AssertionError, match=message):
        run(doubling(extent, lanes, before=before, stride=stride), [x, x])


def test_only_the_first_lanes_are_asked_for() -> None:
    """Read and write 3 of 8 lanes that end with an array, or one element behind it."""

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        start, _ = share.of(f, 1)
        source, target = (f.at(pointer, f.add(f.int64(start), first), FLOAT) for pointer in pointers)
        f.store_first(f.load_first(source, FLOAT.of(8), 3), target, 3)

    x = np.arange(5, dtype=np.float32)
    for target in TARGETS:
        first = 2
        assert run(body, [x, np.zeros_like(x)], target)[1].tolist() == [0, 0, 2, 3, 4]
        first = 3
        with pytest.raises(AssertionError, match="operand 0 at byte 12, outside"):
            run(body, [x, np.zeros_like(x)], target)


def test_red_zones_tell_of_writes_that_are_not_checked() -> None:
    x = np.zeros(15, np.float32)
    with pytest.raises(AssertionError, match=r"wrote outside operand 1, at bytes \[60, 61"):
        run(doubling(16, 4), [x, x], checked=False)
    gaps = np.zeros(16, np.float32)
    with pytest.raises(AssertionError, match=r"wrote outside operand 1, at bytes \[4, 5"):
        run(doubling(8, 1), [gaps, gaps[::2]], threads=[1])


def test_threads_that_give_other_bits_are_told() -> None:
    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        f.store_number(f.convert(share.threads, FLOAT), pointers[0])

    with pytest.raises(AssertionError, match="2 threads, checked: operand 0 has other bits"):
        run(body, [np.zeros(1, np.float32)])


def test_objects_for_other_processors() -> None:
    def machine(code: bytes) -> Any:
        return int.from_bytes(code[18:20], "little")

    machines = {name: machine(emits(doubling(64, target.vector_bytes // 4), 2, target)) for name, target in CROSS.items()}
    assert machines == {"AVX2": 62, "AVX-512": 62, "NEON": 183}
