"""Facets on cupy: results beside numpy's, on `support.strict_cupy`, which refuses what cupy refuses, and on a CUDA device."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from numeric import flat
from samples import Sample
from support.comparing import VECTORS, assert_same_up_to_factors
from support.host_cublas import HostCuBlas
from support.host_cudnn import HostCuDnn
from support.strict_cupy import cupy as strict_cupy

from fluid.errors import FluidError
from fluid.executor import CUDAPlace, Executor, Scope, is_compiled_with_cuda
from fluid.executor.binding import array_types
from fluid.executor.binding.compiled import apply_op
from fluid.executor.planned import recording
from fluid.executor.runtime.cublas import declare_functions
from fluid.executor.runtime.cudnn import _cudnn_on
from fluid.opdef import registry
from fluid.opdef.registry import Rule, grad_slot
from fluid.values.lod_array import array_of, lod_of, with_lod

from .case import Case, OneOp
from .facet import Engine, facet, float32

__all__: list[str] = []


@contextmanager
def on_strict_cupy() -> Iterator[None]:
    """The namespace of CUDAPlace(0) is `strict_cupy`."""
    array_types._array_types.clear()  # they name the namespace of "cuda:0"
    with patch.dict(sys.modules, cupy=strict_cupy):
        yield
    array_types._array_types.clear()


def host(value: Any) -> Any:
    """Arrays of the device as numpy's."""
    if isinstance(value, dict):
        return {slot: host(item) for slot, item in value.items()}
    if isinstance(value, list):
        return [host(item) for item in value]
    return None if value is None else array_of(value).get()


def assert_close(found: Any, expected: Any, what: str) -> None:
    if isinstance(expected, list):
        for position, pair in enumerate(zip(found, expected, strict=True)):
            assert_close(*pair, f"{what}[{position}]")
        return
    assert (found is None) == (expected is None), what
    expected = array_of(expected)
    if expected is not None:
        assert found.shape == expected.shape and found.dtype == expected.dtype, what
        scale = max(1.0, float(np.abs(expected, where=np.isfinite(expected), out=np.zeros(expected.shape)).max(initial=0)))
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * scale, err_msg=what)


DRAWN = ("random_crop", "shuffle_batch")
"""Ops that draw by a seed among their inputs: another generator draws otherwise."""


def is_quick(key: str, dtype: str) -> bool:
    """The default run checks all samples."""
    return True


@facet(float32, engine=Engine("cupy", setting=on_strict_cupy), is_quick=is_quick)
def cupy(case: Case) -> None:
    """Results and gradients under cupy's interface beside numpy's."""
    check(case)


@contextmanager
def on_strict_cudnn() -> Iterator[None]:
    """The same, with a cuDNN of the host."""
    _cudnn_on.cache_clear()
    with on_strict_cupy(), patch.dict(sys.modules, cudnn=HostCuDnn()):
        yield
    _cudnn_on.cache_clear()


@facet(float32, lambda case: "conv" in case.type, Engine("cupy with cuDNN", setting=on_strict_cudnn), is_quick)
def cupy_with_cudnn(case: Case) -> None:
    """Results and gradients of convolutions by cuDNN beside numpy's."""
    check(case)


@contextmanager
def on_streams_that_record() -> Iterator[None]:
    """The same, with a cuBLAS of the host."""
    library = declare_functions(HostCuBlas())
    with on_strict_cudnn(), patch.object(recording, "load_cublas", lambda xp: library), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # not every op can be recorded
        warnings.filterwarnings("error", ".*otherwise than its calls")
        yield


@facet(
    float32,
    lambda case: not case.sample.random,
    Engine("recorded cupy", setting=on_streams_that_record),
    lambda key, dtype: key.endswith("-0"),
)
def recorded_on_cupy(case: Case) -> None:
    """Recorded runs of the op and its gradient beside runs call by call, with new numbers in each run."""
    one = OneOp(case)
    fetch = one.with_gradients()
    full, halves = one.fed, dict[str, Any]()
    for name, value in one.feed.items():
        half = value * value.dtype.type(0.5) if value.dtype.kind == "f" else value
        halves[name] = (half, full[name][1]) if name in one.lods else half
    places = CUDAPlace(0), CUDAPlace(0, recorded=True)
    executors, scopes = [Executor(place) for place in places], (Scope(), Scope())
    for feed in (full, halves) * 3:
        try:
            expected = executors[0].run(one.program, feed, fetch, scope=scopes[0])
        except FluidError:  # the halves are no numbers for this op
            expected, feed = executors[0].run(one.program, full, fetch, scope=scopes[0]), full
        for var, value, like in zip(fetch, executors[1].run(one.program, feed, fetch, scope=scopes[1]), expected, strict=True):
            assert_close(value, like, var.name)


if is_compiled_with_cuda():

    @facet(float32, engine=Engine("CUDA", "cupy"), is_quick=is_quick)
    def cupy_on_a_device(case: Case) -> None:
        """Results and gradients on a CUDA device beside numpy's."""
        check(case)


def check(case: Case) -> None:
    """Compare an op and its gradient, in the namespace of CUDAPlace(0), with numpy."""
    op_type, sample, namespace = case.type, case.sample, sys.modules["cupy"]
    inputs = case.with_lods(case.inputs)
    expected = apply_op(op_type, inputs, sample.attrs)
    found = apply_op(op_type, inputs, sample.attrs, xp=namespace)
    made = [array_of(item) for value in found.values() for item in flat(value) if item is not None]
    assert all(isinstance(array, namespace.ndarray) for array in made)
    if sample.random or op_type in DRAWN:
        for slot, value in host(found).items():
            for number, (drawn, like) in enumerate(zip(flat(value), flat(expected[slot]), strict=True)):
                assert_drawn_alike(op_type, drawn, None if like is None else array_of(like), f"{op_type}.{slot}[{number}]")
        return
    for slot, value in host(found).items():
        if slot in VECTORS.get(op_type, {}):
            assert_same_up_to_factors(value, expected[slot], VECTORS[op_type][slot], f"{op_type}.{slot}")
        else:
            assert_close(value, expected[slot], f"{op_type}.{slot}")
    check_gradient(op_type, sample, inputs, expected, namespace)


def assert_drawn_alike(op_type: str, found: Any, expected: Any, what: str) -> None:
    """Draws of two generators agree in shape, mean and deviation; shuffled arrays hold the same numbers."""
    assert (found is None) == (expected is None), what
    if found is None:
        return
    assert found.dtype == expected.dtype, what
    if op_type in ("randperm", "shuffle_batch") and expected.size > 1:
        assert np.array_equal(np.sort(found, None), np.sort(expected, None)), what
    if op_type in ("graph_khop_sampler", "rpn_target_assign"):
        return  # how many are drawn differs
    assert found.shape == expected.shape, what
    if expected.size > 8 and expected.dtype.kind in "fiu":
        mean, deviation = (np.array([function(x, dtype="float64") for x in (found, expected)]) for function in (np.mean, np.std))
        assert (deviation[0] > 0) == (deviation[1] > 0), f"{what}: one number for all elements"
        error = max(deviation) / np.sqrt(expected.size)
        assert abs(mean[0] - mean[1]) <= 6 * error and abs(deviation[0] - deviation[1]) <= 6 * error, (
            f"{what}: {mean} {deviation}"
        )


def check_gradient(op_type: str, sample: Sample, inputs: dict[str, Any], outputs: dict[str, Any], cupy: Any) -> None:
    """Compare the gradient op on cupy with numpy."""
    definition = registry.get(op_type)
    rule = definition.rule
    if not isinstance(rule, Rule) or definition.inline_grad or sample.orders == 0:
        return
    rng = np.random.default_rng(0)
    cotangents: dict[str, Any] = {}
    for slot in rule.cotangents:
        arrays = flat(outputs.get(slot))
        if all(item is not None and item.dtype.kind == "f" for item in arrays):
            gradients = [with_lod(rng.standard_normal(item.shape).astype(item.dtype), lod_of(item)) for item in arrays]
            cotangents[grad_slot(slot)] = gradients if definition.outputs[slot].many else gradients[0]
    reads = {
        **{slot: inputs.get(slot) for slot in rule.inputs},
        **{slot: outputs.get(slot) for slot in rule.outputs},
        **cotangents,
    }
    reads = {slot: value for slot, value in reads.items() if value is not None}
    slots = sample.wrt if sample.wrt is not None else rule.wrt
    floats = [
        slot
        for slot in slots
        if slot in inputs and all(np.asarray(array_of(item)).dtype.kind == "f" for item in flat(inputs[slot]))
    ]
    wanted = {grad_slot(slot) for slot in floats}
    if not cotangents or not wanted:
        return
    expected = apply_op(definition.grad_type, reads, sample.attrs, wanted)
    found = apply_op(definition.grad_type, reads, sample.attrs, wanted, xp=cupy)
    for slot, value in host(found).items():
        assert_close(value, expected[slot], f"{definition.grad_type}.{slot}")
