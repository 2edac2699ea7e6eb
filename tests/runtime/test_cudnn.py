"""Convolutions of cupy's arrays by cuDNN: on a stand-in for NVIDIA's module, and the plans that the library itself makes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.host_cudnn import HostCuDnn
from support.strict_cupy import cupy

from fluid.executor.binding.compiled import apply_op
from fluid.executor.runtime import cudnn
from fluid.executor.runtime.cudnn import CuDnn

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 7, 8), (4, 3, 3, 2), {}),
    "one image": ((1, 3, 5, 5), (4, 3, 3, 3), {"paddings": [1, 1]}),
    "strides that skip a row": ((2, 3, 8, 7), (4, 3, 3, 3), {"strides": [2, 3], "paddings": [1, 0]}),
    "dilated": ((2, 3, 9, 9), (4, 3, 3, 3), {"dilations": [2, 3], "paddings": [2, 2]}),
    "uneven padding": ((2, 3, 6, 6), (4, 3, 3, 3), {"paddings": [0, 1, 2, 1]}),
    "more padding than filter": ((2, 3, 4, 4), (2, 3, 2, 2), {"paddings": [3, 3]}),
    "groups": ((2, 6, 5, 5), (4, 3, 3, 3), {"groups": 2}),
    "each channel alone": ((2, 4, 5, 5), (8, 1, 3, 3), {"groups": 4}),
    "pointwise": ((3, 4, 5, 5), (2, 4, 1, 1), {}),
    "volumes": ((2, 3, 4, 5, 6), (4, 3, 2, 3, 2), {"strides": [1, 2, 1], "paddings": [1, 0, 1]}),
}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostCuDnn]:
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    stand_in = HostCuDnn()
    monkeypatch.setitem(sys.modules, "cudnn", stand_in)
    cudnn._cudnn_on.cache_clear()
    yield stand_in
    cudnn._cudnn_on.cache_clear()


def arrays_of(name: str, layout: str, dtype: str = "float32") -> tuple[Any, Any, dict[str, Any], str]:
    """Image, filter and attributes of a case, and its op."""
    image, filter_, attrs = CASES[name]
    rng, dims = np.random.default_rng(0), len(image) - 2
    x, w = rng.standard_normal(image).astype(dtype), rng.standard_normal(filter_).astype(dtype)
    if layout.endswith("C"):
        x = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    attrs = {"strides": [1] * dims, "paddings": [0] * dims, "dilations": [1] * dims, "groups": 1, "data_format": layout, **attrs}
    return x, w, attrs, "conv2d" if dims == 2 else "conv3d"


def layouts_of(name: str) -> tuple[str, str]:
    return ("NCHW", "NHWC") if len(CASES[name][0]) == 4 else ("NCDHW", "NDHWC")


@pytest.mark.parametrize("name", CASES)
def test_convolutions_and_gradients_are_those_of_numpy(name: str, library: HostCuDnn) -> None:
    for layout in layouts_of(name):
        for dtype in ("float32", "float64", "float16"):
            x, w, attrs, op = arrays_of(name, layout, dtype)
            expected = apply_op(op, {"Input": x, "Filter": w}, attrs)["Output"]
            back = {"Input": x, "Filter": w, "Output@GRAD": expected}
            wanted = {"Output": expected, **apply_op(f"{op}_grad", back, attrs)}
            library.calls.clear()
            found = apply_op(op, {"Input": cupy.asarray(x), "Filter": cupy.asarray(w)}, attrs, xp=cupy)
            found |= apply_op(f"{op}_grad", {slot: cupy.asarray(value) for slot, value in back.items()}, attrs, xp=cupy)
            assert sorted(library.calls) == ["dgrad", "fprop", "wgrad"]
            for slot, value in wanted.items():
                scale = float(np.abs(value.astype("float64")).max())
                near = 3e-3 if dtype == "float16" else 1e-5
                np.testing.assert_allclose(found[slot].get(), value, near, near * scale, err_msg=f"{layout} {dtype} {slot}")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_transposed_convolutions(layout: str, library: HostCuDnn) -> None:
    x, _, attrs, _ = arrays_of("groups", layout)
    filter_ = np.random.default_rng(1).standard_normal((6, 2, 3, 3)).astype("float32")
    attrs |= {"strides": [2, 2], "output_size": [11, 12]}
    expected = apply_op("conv2d_transpose", {"Input": x, "Filter": filter_}, attrs)["Output"]
    inputs = {"Input": cupy.asarray(x), "Filter": cupy.asarray(filter_)}
    np.testing.assert_allclose(apply_op("conv2d_transpose", inputs, attrs, xp=cupy)["Output"].get(), expected, 1e-5, 1e-5)
    assert library.calls == ["dgrad"]


def convolved(times: int = 1) -> Any:
    """The output of the plain case on the stand-in for cupy, after some runs."""
    x, w, attrs, op = arrays_of("plain", "NCHW")
    for _ in range(times):
        output = apply_op(op, {"Input": cupy.asarray(x), "Filter": cupy.asarray(w)}, attrs, xp=cupy)["Output"].get()
    return output


def expected_output() -> Any:
    x, w, attrs, op = arrays_of("plain", "NCHW")
    return apply_op(op, {"Input": x, "Filter": w}, attrs)["Output"]


def test_equal_sizes_share_a_plan(library: HostCuDnn) -> None:
    convolved(5)
    assert len(library.graphs) == 1 and len(library.calls) == 5


def test_arrays_at_odd_addresses_are_copied(library: HostCuDnn) -> None:
    shape = (2, 3, 5, 5)
    moved = [cupy.zeros(size + 1, "float32")[1:] for size in (150, 27, 18)]
    image, filter_, out = (array.reshape(to) for array, to in zip(moved, (shape, (1, 3, 3, 3), (2, 1, 3, 3)), strict=True))
    image[...] = cupy.asarray(np.random.default_rng(0).standard_normal(shape).astype("float32"))
    filter_[...] = 1
    layouts = [cudnn.layout_of(array) for array in (image, filter_, out)]
    convolution = cudnn.CuDnnConvolution(0, "fprop", "float32", *layouts, ((0, 0), (0, 0)), (1, 1), (1, 1))
    call = cudnn.convolution_call(cupy, cupy.empty, convolution, image, filter_, out)
    assert call is not None
    call()
    windows = np.lib.stride_tricks.sliding_window_view(image.get(), (3, 3), (2, 3))
    np.testing.assert_allclose(out.get()[:, 0], windows.sum((1, 4, 5)), 1e-5, 1e-5)


def test_threads_take_turns(library: HostCuDnn) -> None:
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: convolved(10), range(16)):
            np.testing.assert_allclose(found, expected_output(), 1e-5, 1e-5)


def test_without_a_plan_patches_are_multiplied(library: HostCuDnn) -> None:
    library.has_plans = False
    np.testing.assert_allclose(convolved(2), expected_output(), 1e-5, 1e-5)
    assert not library.calls


@pytest.mark.filterwarnings("error")
def test_without_the_package_patches_are_multiplied(library: HostCuDnn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", None)
    np.testing.assert_allclose(convolved(2), expected_output(), 1e-5, 1e-5)


def test_a_library_that_does_not_work_is_named_once(library: HostCuDnn, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("cudnnHandle Create failed")

    monkeypatch.setattr(library, "create_handle", fail)
    with pytest.warns(RuntimeWarning, match="cuDNN does not work, .*: cudnnHandle Create failed") as warned:
        np.testing.assert_allclose(convolved(3), expected_output(), 1e-5, 1e-5)
    assert len(warned) == 1


def test_plans_neither_round_to_tf32_nor_change_bits(library: HostCuDnn, monkeypatch: pytest.MonkeyPatch) -> None:
    convolved()
    assert [note.name for note in library.graphs[-1].notes] == ["NONDETERMINISTIC", "TENSOR_CORE", "DOWN_CONVERT_INPUTS"]
    monkeypatch.setenv("CUPY_TF32", "1")
    cudnn._cudnn_on.cache_clear()
    convolved()
    assert [note.name for note in library.graphs[-1].notes] == ["NONDETERMINISTIC"]


# ---------------------------------------------------------------------------------------------------- the library itself
_H200 = {
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
    "multiProcessorCount": 132, "smCountOrigin": 0, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
    "supportCoopLaunch": 1, "totalGlobalMem": 150_000_000_000, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
    "l2CacheSize": 62914560, "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000, "deviceName": "NVIDIA H200",
}  # fmt: skip
"""A device for which cuDNN makes plans without having it."""


class _WithoutDevice:
    """The module, making plans for `_H200`."""

    def __init__(self, library: Any) -> None:
        self._library, self._device = library, library.create_device_properties(json.dumps(_H200))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def create_handle(self) -> None:
        return None

    def pygraph(self, **settings: Any) -> Any:
        return self._library.pygraph(**settings, device_property=self._device, sm_version=90)


def test_the_library_has_a_plan_for_each_case(library: HostCuDnn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library itself makes a plan for each request to the stand-in."""
    requests: list[Any] = []
    make_plan = CuDnn._make_plan
    monkeypatch.setattr(CuDnn, "_make_plan", lambda self, key: (requests.append(key), make_plan(self, key))[1])
    for name in CASES:
        test_convolutions_and_gradients_are_those_of_numpy(name, library)
    monkeypatch.delitem(sys.modules, "cudnn")
    library_plans = CuDnn(
        _WithoutDevice(pytest.importorskip("cudnn", reason="needs nvidia-cudnn-frontend and cuDNN, but no device"))
    )
    assert len(requests) == len(CASES) * 18
    missing = [request for request in requests if make_plan(library_plans, request) is None]
    assert not missing
    graph = make_plan(library_plans, requests[0])
    with pytest.raises(ValueError, match="missing a buffer for tensor uid 2"):
        graph.execute({0: 64, 1: 64}, 0, handle=library_plans._library.Handle(0, 0, 0))
    with pytest.raises(RuntimeError, match="is_valid_spatial_dim"):
        make_plan(library_plans, requests[0]._replace(strides=(2, 2)))


def test_the_stand_in_refuses_what_the_library_refuses(library: HostCuDnn) -> None:
    convolved()
    graph = library.graphs[-1]
    with pytest.raises(ValueError, match="missing a buffer for tensor uid 2"):
        graph.execute({0: 64, 1: 64}, 0, handle=library.create_handle())
    with pytest.raises(TypeError, match=r"cudnn\.Handle"):
        graph.execute({0: 64, 1: 64, 2: 64}, 0, handle=None)
    plans = cudnn._cudnn_on(0)
    assert plans is not None
    with pytest.raises(RuntimeError, match="is_valid_spatial_dim"):
        plans.plan(next(iter(plans._plans))._replace(strides=(2, 2)))
    stream = cupy.cuda.Stream()
    stream.begin_capture()
    with stream, pytest.raises(RuntimeError, match="capturing"):
        library.create_handle()
