"""Programs for XLA do not grow with the batch: a program unrolled over rows takes minutes to compile."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import log2
from typing import Any

import numpy as np
import pytest
from checks import Checks, each
from numeric import flat
from samples import Sample

pytest.importorskip("jax")

from conformance.case import CASES, KEYS_OF, Case
from conformance.facet import every_dtype
from conformance.on_xla import NOT_COMPILED, Traced

import fluid
from fluid.errors import FluidError
from fluid.executor.runtime.scope import Scope
from fluid.executor.xla.callbacks import REFUSED

pytestmark = pytest.mark.numpy_alone

Rows = frozenset[tuple[str, int]]
"""Inputs whose first dimension grows: slot, index in the slot."""

BY_NATURE = {
    "dynamic_quantize_lstm": "its first dimension counts steps, and each step rounds the states anew",
    "overlap_add": "the first dimension of a frame is its length, which is summed in parts of a hop",
    "overlap_like": "the same",
    "unbind": "it has an output for each row",
}
"""Ops whose program has to grow with a first dimension."""
LARGE = 1 << 19
"""Elements beyond which kernels of numpy's work part by part."""
SLACK = 64
"""Lines by which programs may differ for values that are known while tracing, if they are few."""


def grown_lod(lod: Any, times: int) -> Any:
    """The offsets of all sequences, one copy behind the other."""
    return tuple((0, *(start * level[-1] + offset for start in range(times) for offset in level[1:])) for level in lod)


def grown(sample: Sample, rows: Rows, times: int) -> Sample:
    """A sample with this many copies of the rows of some inputs."""
    inputs, lods = dict(sample.inputs), dict(sample.lods)
    for slot in {slot for slot, _ in rows}:
        items, its_lods = list(flat(inputs[slot])), lods.get(slot)
        for index in range(len(items)):
            if (slot, index) in rows:
                items[index] = np.concatenate([np.asarray(items[index])] * times)
        inputs[slot] = items if isinstance(inputs[slot], list) else items[0]
        if isinstance(its_lods, list):
            lods[slot] = [grown_lod(lod, times) if lod and (slot, index) in rows else lod for index, lod in enumerate(its_lods)]
        elif its_lods:
            lods[slot] = grown_lod(its_lods, times)
    return replace(sample, inputs=inputs, lods=lods)


def batches(sample: Sample) -> list[Rows]:
    """The inputs that may have a batch in common: all of one first dimension, all, and each alone."""
    sizes = {
        (slot, index): np.shape(item)[0]
        for slot, value in sample.inputs.items()
        if value is not None
        for index, item in enumerate(flat(value))
        if np.ndim(item) and len(item)
    }
    together = [frozenset(place for place in sizes if sizes[place] == size) for size in dict.fromkeys(sizes.values())]
    alone = [frozenset([place]) for place in sizes]
    return list(dict.fromkeys(group for group in (*together, frozenset(sizes), *alone) if group))


def elements(value: Any) -> int:
    """How many elements there are in an array, or a list of them."""
    return sum(np.size(item) for item in flat(value))


def lines(case: Case) -> int:
    """Lines of the program that XLA is given for an op and the gradients of its inputs."""
    one = Traced(case)
    fetch = [var for value in one.outputs.values() for var in flat(value)]
    if case.wrt and not case.sample.random:
        fetch += [gradient for gradient in one.first_order()[0] if gradient is not None]
    one.program.random_seed = 1
    plan: Any = fluid.Executor(fluid.XLAPlace()).plan(one.program, one.fed, fetch, scope=Scope())
    return len(plan.lowered().as_text().splitlines())


class _TooLongError(Exception):
    """numpy takes too long to compute a sample of this size."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def stop(*args: Any) -> None:
        raise _TooLongError

    former = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def check(key: str, is_large: bool) -> int:
    """Compare the sizes of a sample's programs; returns how many of its batches grow at all.

    Sums along the batch may take a step more for each doubling; rows that are unrolled take six times as many more from 2 to 8
    copies as from 1 to 2.
    """
    sample, count = CASES[key][1], 0
    dtype = every_dtype(sample)[0]
    first = lines(Case(key, dtype))
    for rows in batches(sample):
        names = ", ".join(f"{slot}[{index}]" for slot, index in sorted(rows))
        try:
            second, third = (lines(Case(key, dtype, grown(sample, rows, times))) for times in (2, 8))
        except (FluidError, ValueError, IndexError):
            continue  # these dimensions have to fit others
        count += 1
        if CASES[key][0] in BY_NATURE:
            continue
        assert third - second <= 3 * max(second - first, 0) + SLACK // 2, (
            f"{key}: {names} with 1, 2, 8 times the rows make programs of {first}, {second}, {third} lines"
        )
        count_of_elements = max(np.size(flat(sample.inputs[slot])[index]) for slot, index in rows)
        made = [sum(map(elements, Case(key, dtype, grown(sample, rows, times)).outputs.values())) for times in (2, 8)]
        is_too_large = made[1] > 5 * made[0]  # the product of two sizes that grow
        if not is_large or not count_of_elements or is_too_large or any(slot in sample.lods for slot, _ in rows):
            continue
        times = -(-LARGE // count_of_elements)
        try:
            with at_most(seconds=5):
                large = lines(Case(key, dtype, grown(sample, rows, times)))
        except (FluidError, ValueError, MemoryError, _TooLongError):
            continue
        allowed = 1.5 * third + SLACK + max(log2(times / 8), 0) * max(third - second, 0)
        assert large <= allowed, f"{key}: {names} of {LARGE} elements make programs of {third} to {large} lines"
    return count


CHECKED = {
    op_type: compiled
    for op_type, keys in KEYS_OF.items()
    if op_type not in REFUSED and (compiled := [key for key in keys if key not in NOT_COMPILED])
}
"""Keys of the samples that are compiled, by op."""
WERE_UNROLLED = [
    *("box_clip-0", "yolov3_loss-0", "random_crop-0", "searchsorted-1", "deformable_psroi_pooling-0", "moved_parts-0"),
    *("moved_parts_back-0", "gather_tree-0", "target_assign-1"),
]


@each("op_type", list(CHECKED)[::24])
def test_first_samples(op_type: str) -> None:
    check(CHECKED[op_type][0], is_large=False)


@pytest.mark.parametrize("key", WERE_UNROLLED)
def test_what_was_unrolled(key: str) -> None:
    assert check(key, is_large=False)


@pytest.mark.slow
@pytest.mark.parametrize("op_type", CHECKED)
def test_all_samples(op_type: str) -> None:
    with Checks() as checks:
        for key in CHECKED[op_type]:
            with checks(key):
                check(key, is_large=True)


POOLS = {
    "overlapping maxima": {"pool_size": 3, "pool_stride": 2, "pool_padding": 1},
    "maxima of 2 by 2": {"pool_size": 2, "pool_stride": 2},
    "averages": {"pool_size": 3, "pool_stride": 2, "pool_padding": 1, "pool_type": "avg"},
    "global averages": {"global_pooling": True, "pool_type": "avg"},
}


@pytest.mark.parametrize("pool", POOLS)
def test_pooling_of_many_large_images(pool: str) -> None:
    """As in ResNet-50, whose program had 223,269 lines, nearly all for one maximum."""
    sizes = []
    for batch in (1, 64):
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            x = fluid.data("x", [batch, 64, 112, 112])
            x.stop_gradient = False
            y = fluid.layers.pool2d(x, **POOLS[pool])
            gradient = fluid.gradients(fluid.layers.reduce_sum(y * y), [x])
            image = np.broadcast_to(np.float32(0), (batch, 64, 112, 112))
            plan: Any = fluid.Executor(fluid.XLAPlace()).plan(feed={"x": image}, fetch_list=gradient)
            sizes.append(len(plan.lowered().as_text().splitlines()))
    assert sizes[1] <= sizes[0] + SLACK // 2
    assert sizes[1] < 200, "XLA took as long for this maximum as for half of the net when it had 700 lines"
