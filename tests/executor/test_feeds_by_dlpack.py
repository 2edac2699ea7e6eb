"""Feeds that are arrays of other libraries, on the host and on a CUDA device, by stand-ins for tensors of torch."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.strict_cupy import cupy as strict_cupy

import fluid
from fluid.errors import FeedError
from fluid.values import place as places

HOST, CUDA = (1, 0), (2, 0)


class Tensor:
    """A tensor of another library, whose element type is not numpy's; DLPack is the only way to it."""

    def __init__(self, array: Any, device: tuple[int, int]) -> None:
        self._array, self._device = array, device
        self.shape, self.dtype = array.shape, SimpleNamespace(itemsize=array.itemsize)
        self.asked = 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __dlpack__(self, **keywords: Any) -> Any:
        self.asked += 1
        return self._array.__dlpack__(**{**keywords, "max_version": (1, 0)})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


class CUDATensor(Tensor):
    """One on a CUDA device."""

    def __init__(self, array: Any) -> None:
        super().__init__(array, CUDA)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"version": 3, **self._array.__array_interface__}


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "cupy", strict_cupy)
    return strict_cupy


def doubled() -> Any:
    return fluid.data("x", [-1, 3]) * 2.0


X = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.mark.parametrize("place", [fluid.CPUPlace(), fluid.CUDAPlace(0), fluid.XLAPlace("cpu")], ids=str)
@pytest.mark.parametrize("array", [X, X.T.copy().T])
def test_tensors_on_the_host(place: Any, array: Any, cupy: Any) -> None:
    if isinstance(place, fluid.XLAPlace):
        pytest.importorskip("jax")
    y, exe = doubled(), fluid.Executor(place)
    for run in (exe.run, exe.run, exe.interpret):
        (found,) = run(feed={"x": Tensor(array, HOST)}, fetch_list=[y])
        assert np.array_equal(found, X * 2)


def test_tensors_on_the_device(cupy: Any) -> None:
    y, exe, fed = doubled(), fluid.Executor(fluid.CUDAPlace(0)), CUDATensor(X)
    for run in (exe.run, exe.run, exe.interpret):
        (found,) = run(feed={"x": fed}, fetch_list=[y])
        assert np.array_equal(found, X * 2)
    assert fed.asked == 3
    with pytest.raises(FeedError, match=re.escape("x is declared float32[-1, 3], but float64[2, 3] is fed")):
        exe.run(feed={"x": CUDATensor(X.astype("float64"))}, fetch_list=[y])
    with pytest.raises(FeedError, match=re.escape("but float32[3, 2] is fed")):
        exe.run(feed={"x": CUDATensor(X.reshape(3, 2))}, fetch_list=[y])


@pytest.mark.parametrize("place", [fluid.CPUPlace(), fluid.XLAPlace("cpu")], ids=str)
def test_tensors_on_the_device_where_a_program_runs_on_the_host(place: Any) -> None:
    if isinstance(place, fluid.XLAPlace):
        pytest.importorskip("jax")
    y = doubled()
    advice = (
        f"CUDATensor is fed to x (float32[-1, 3]), but it lies on a CUDA device, and the program runs at {place}; bring it to "
        "the host, a tensor of torch by .cpu(), or run the program at fluid.XLAPlace('gpu') or fluid.CUDAPlace(0)"
    )
    with pytest.raises(FeedError, match=re.escape(advice)):
        fluid.Executor(place).run(feed={"x": CUDATensor(X)}, fetch_list=[y])


def test_arrays_of_cupy_come_to_the_host_by_themselves(cupy: Any) -> None:
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": cupy.asarray(X)}, fetch_list=[doubled()])
    assert np.array_equal(found, X * 2)


def test_xla_shares_the_memory_of_a_tensor_on_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for jax, since there is no GPU: it is given the tensor by DLPack, and its own arrays as they are."""

    class Array:
        """An array of jax."""

    shared = Array()
    jax = SimpleNamespace(
        Array=Array,
        enable_x64=lambda _: nullcontext(),
        numpy=SimpleNamespace(from_dlpack=lambda value: shared if isinstance(value, CUDATensor) else None),
        device_put=lambda array, device: (array, device),
        local_devices=lambda backend: [f"the {backend}"],
        sharding=SimpleNamespace(SingleDeviceSharding=lambda device: device),
    )
    monkeypatch.setattr(places, "import_jax", lambda: jax)
    place = fluid.XLAPlace("gpu")
    assert place.from_cuda(CUDATensor(X)) == (shared, "the gpu")
    mine = Array()
    assert place.from_cuda(mine) == (mine, "the gpu")


def test_tensors_of_a_scope(cupy: Any) -> None:
    tensor = fluid.LoDTensor()
    tensor.set(CUDATensor(X), fluid.CUDAPlace(0))
    assert isinstance(tensor.array, cupy.ndarray) and np.array_equal(tensor.array.get(), X)
    tensor.set(cupy.asarray(X), fluid.CPUPlace())
    assert type(tensor.array) is np.ndarray and np.array_equal(tensor.array, X)
    with pytest.raises(fluid.errors.ExecutionError, match=r"lies on a CUDA device, and the program runs at CPUPlace\(\)"):
        tensor.set(CUDATensor(X), fluid.CPUPlace())
