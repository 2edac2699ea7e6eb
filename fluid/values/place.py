"""Places: a place names a device and the array namespace that computes there."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ExecutionError, how_to_install

_NO_CONTEXT = contextlib.nullcontext()


class Place:
    """A device.

    >>> isinstance(fluid.CPUPlace(), fluid.core.Place)
    True
    """

    @property
    def xp(self) -> Any:
        """The array namespace of this device: numpy or cupy."""
        raise NotImplementedError

    def is_cpu_place(self) -> bool:
        """Whether it is the CPU, with ordinary memory."""
        return type(self) is CPUPlace

    def is_gpu_place(self) -> bool:
        """Whether it is a CUDA device."""
        return isinstance(self, CUDAPlace)

    def is_cuda_pinned_place(self) -> bool:
        """Whether it is a `CUDAPinnedPlace`."""
        return isinstance(self, CUDAPinnedPlace)

    def asarray(self, value: Any) -> Any:
        """`value` as an array of this place; copied only if necessary."""
        return self.xp.asarray(value)

    def from_cuda(self, value: Any) -> Any:
        """An array of this place from `value`, an array of any library on a CUDA device; it shares memory at such a device.

        Raises:
            ExecutionError: `value` does not come to the host by itself, as arrays of cupy and jax do.
        """
        try:
            return to_numpy(value)
        except Exception:  # whatever the library raises
            raise ExecutionError(
                f"it lies on a CUDA device, and the program runs at {self}; bring it to the host, a tensor of torch by .cpu(), "
                "or run the program at fluid.XLAPlace('gpu') or fluid.CUDAPlace(0)"
            ) from None

    @property
    def device_array(self) -> type[Any]:
        """The type of arrays on this device that an executor is fed without conversion, besides numpy's."""
        return np.ndarray

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Start to copy an array to this device, for a run to come; returns it unchanged where there is nothing to gain."""
        return array

    def active(self) -> AbstractContextManager[Any]:
        """A context inside which new arrays are on this device."""
        return _NO_CONTEXT

    def wait(self) -> None:
        """Wait until all work of this device is done."""


@dataclass(frozen=True)
class CPUPlace(Place):
    """The CPU; arrays are numpy's.

    >>> exe = fluid.Executor(fluid.CPUPlace())
    """

    @property
    def xp(self) -> Any:
        """numpy."""
        return namespace_on("cpu")

    def asarray(self, value: Any) -> Any:
        return to_numpy(value)


class CUDAPinnedPlace(CPUPlace):
    """Page-locked host memory in Paddle; ordinary host memory here.

    >>> fluid.Executor(fluid.CUDAPinnedPlace()).run(fluid.default_startup_program())
    []
    """


@dataclass(frozen=True)
class CUDAPlace(Place):
    """A CUDA device; arrays are cupy's.

    Args:
        device_id: the number of the device.
        recorded: record programs as CUDA graphs, which start all kernels of a run at once. What a graph cannot repeat runs call
            by call, with a warning that says why; so does ``print(executor.plan(...))``. Ids and labels are checked at the end of
            a run. This has been tested without a device only.

    Raises:
        ExecutionError: when it is used, if cupy or the device is missing.

    >>> fluid.CUDAPlace(0)
    CUDAPlace(device_id=0, recorded=False)
    """

    device_id: int = 0
    recorded: bool = False

    @property
    def xp(self) -> Any:
        """cupy, if the device is there."""
        cupy = namespace_on("cuda")
        if self.device_id >= cupy.cuda.runtime.getDeviceCount():
            raise ExecutionError(f"there is no CUDA device {self.device_id} on this machine; use CPUPlace()")
        return cupy

    def from_cuda(self, value: Any) -> Any:
        if isinstance(value, self.xp.ndarray):
            return value
        return self.xp.from_dlpack(value) if hasattr(value, "__dlpack__") else self.xp.asarray(value)

    def wait(self) -> None:
        self.xp.cuda.Device(self.device_id).synchronize()

    def active(self) -> AbstractContextManager[Any]:
        return self.xp.cuda.Device(self.device_id)  # type: ignore[no-any-return]


XLA_DEVICES = ("cpu", "gpu", "tpu")
"""The kinds of devices that XLA compiles for."""
_JAX_FOR = {"gpu": """ (of NVIDIA: pip install "jax[cuda13]", or "jax[cuda12]" for a driver of CUDA 12)"""}
"""Kind of device -> how to install the jax for it."""


@dataclass(frozen=True)
class XLAPlace(Place):
    """A device that XLA compiles programs for, through jax: a CPU, GPU or TPU by its number.

    A program is compiled as a whole, once for each set of feed shapes and fetches. What outlives a run (parameters, moments)
    stays on the device until somebody looks at it in the scope. Feeds are arrays of numpy or of jax; the latter stay on the
    device. Fetches are arrays of numpy; with ``return_numpy=False``, `LoDTensor`s that stay on the device until somebody looks,
    and the run returns before it is done. So does a run that fetches nothing.

    Args:
        device: ``"cpu"``, ``"gpu"`` or ``"tpu"``.
        index: number of the device among the devices of this kind.
        strict: refuse programs with ops that XLA cannot compute, instead of calling back to numpy where that is possible.
        check_values: have the ops check their values, such as that ids lie within their tables. A fault is reported after the
            run, with the op; without the check such an id reads the nearest row, and writes none.

    Raises:
        ExecutionError: jax is not installed, or there is no such device.

    >>> place = fluid.XLAPlace("cpu")
    >>> x = fluid.data("x", [2, 3])
    >>> y = fluid.layers.reduce_sum(x)
    >>> fluid.Executor(place).run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=[y])[0].item()  # doctest: +SKIP
    6.0
    """

    device: str = "cpu"
    index: int = 0
    strict: bool = False
    check_values: bool = False

    @property
    def xp(self) -> Any:
        """numpy, for feeds and fetches, if jax and the device are there."""
        self.jax_device()
        return np  # what goes in and comes out

    def asarray(self, value: Any) -> Any:
        return to_numpy(value)

    def from_cuda(self, value: Any) -> Any:
        if self.device != "gpu":
            return super().from_cuda(value)
        jax = import_jax()
        with jax.enable_x64(True):  # int64 stays int64
            array = value if isinstance(value, jax.Array) else jax.numpy.from_dlpack(value)
            return jax.device_put(array, self.jax_sharding())

    @property
    def device_count(self) -> int:
        """How many devices of this kind there are, in all processes."""
        self.jax_device()
        return len(import_jax().devices(self.device))

    @property
    def device_array(self) -> type[Any]:
        """The type of jax's arrays."""
        return type(import_jax().device_put(np.zeros(1, np.float32), self.jax_device()))

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Start to copy an array to this device; returns an array of jax."""
        jax = import_jax()
        owned = np.array(array) if self.device == "cpu" else array  # a CPU would share its memory
        with jax.enable_x64(True):
            return jax.device_put(owned, self.jax_sharding())

    def jax_sharding(self) -> Any:
        """The sharding of arrays on this device: always the same object, which a run compares by identity."""
        return _sharding_on(self.jax_device())

    def jax_device(self) -> Any:
        """The device as a jax object."""
        if self.device not in XLA_DEVICES:
            raise ExecutionError(f"XLAPlace: the device is one of {', '.join(map(repr, XLA_DEVICES))}, not {self.device!r}")
        jax = import_jax()
        try:
            devices = jax.local_devices(backend=self.device)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise ExecutionError(
                f"XLAPlace({self.device!r}): jax finds no {self.device.upper()} here ({reason}); use XLAPlace('cpu'), or install "
                f"the jax for it{_JAX_FOR.get(self.device, '')}: https://docs.jax.dev/en/latest/installation.html"
            ) from None
        if not 0 <= self.index < len(devices):
            raise ExecutionError(
                f"XLAPlace({self.device!r}, {self.index}): jax finds {len(devices)} of these devices, numbered from 0; "
                f"use one of them"
            )
        return devices[self.index]


@functools.lru_cache
def _sharding_on(device: Any) -> Any:
    return import_jax().sharding.SingleDeviceSharding(device)


def import_jax() -> Any:
    """jax, or an `ExecutionError` that says how to install it."""
    try:
        import jax
    except ImportError:
        raise ExecutionError(f"XLAPlace needs jax, which is not installed: {how_to_install('xla')}, or use CPUPlace()") from None
    return jax


def import_cupy() -> Any:
    """cupy, or an `ExecutionError` that says how to install it."""
    try:
        import cupy
    except ImportError:
        raise ExecutionError(
            f'CUDAPlace needs cupy, which is not installed: {how_to_install("cupy")} (CUDA 13; CUDA 12: ".[cupy12]"), '
            "or use CPUPlace()"
        ) from None
    return cupy


def is_compiled_with_cuda() -> bool:
    """Whether cupy and at least one CUDA device are available.

    >>> place = fluid.CUDAPlace(0) if fluid.is_compiled_with_cuda() else fluid.CPUPlace()
    """
    try:
        return bool(import_cupy().cuda.runtime.getDeviceCount())
    except Exception:  # cupy raises errors of its own where the driver is missing
        return False


def get_cuda_device_count() -> int:
    """The number of CUDA devices that cupy finds; 0 if it is not installed.

    >>> places = fluid.cuda_places(range(fluid.core.get_cuda_device_count()))
    """
    return int(import_cupy().cuda.runtime.getDeviceCount()) if is_compiled_with_cuda() else 0


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """A list of `device_count` CPU places (one by default).

    >>> fluid.cpu_places(2)
    [CPUPlace(), CPUPlace()]
    """
    return [CPUPlace()] * (1 if device_count is None else device_count)


def cuda_places(device_ids: Sequence[int] | None = None) -> list[CUDAPlace]:
    """The CUDA devices of these numbers (all available ones by default).

    >>> fluid.cuda_places([0, 1])
    [CUDAPlace(device_id=0, recorded=False), CUDAPlace(device_id=1, recorded=False)]
    """
    return [CUDAPlace(number) for number in (range(get_cuda_device_count()) if device_ids is None else device_ids)]


def cuda_pinned_places(device_count: int | None = None) -> list[CUDAPinnedPlace]:
    """A list of `device_count` pinned places (one by default).

    >>> len(fluid.cuda_pinned_places(2))
    2
    """
    return [CUDAPinnedPlace()] * (1 if device_count is None else device_count)


_namespaces: dict[type, Any] = {np.ndarray: np}
"""Type of arrays -> its namespace, if that is not cupy."""


def namespace_of(array: Any) -> Any:
    """The array namespace that `array` belongs to: numpy, cupy, or one that was added."""
    xp = _namespaces.get(type(array))
    return xp if xp is not None else namespace_on("cpu" if isinstance(array, np.ndarray) else "cuda")


def namespace_on(device: str) -> Any:
    """The array namespace of a device, such as ``"cpu"`` or ``"cuda:0"``."""
    return np if device == "cpu" else import_cupy()


def add_namespace(xp: Any) -> None:
    """Register another namespace, for `namespace_of`."""
    _namespaces[xp.ndarray] = xp


HOST_MEMORY, CUDA_MEMORY = (1, 3), (2, 13)
"""Kinds of devices as DLPack numbers them: the CPU and its pinned memory; CUDA and its managed memory."""


def to_numpy(value: Any) -> np.ndarray[Any, Any]:
    """An array of any place, or another array-like value, as a numpy array."""
    get = getattr(value, "get", None)
    if get is not None and hasattr(value, "__cuda_array_interface__"):
        value = get()
    return np.asarray(value)


def no_place(value: object) -> str:
    """The end of an error's message about something that should be a place.

    >>> from fluid.values.place import no_place
    >>> no_place("gpu")
    "such as fluid.CUDAPlace(0) or fluid.XLAPlace('gpu'), not 'gpu'"
    """
    is_gpu = isinstance(value, str) and value.lower().startswith(("cuda", "gpu"))
    return (
        f"such as {'fluid.CUDAPlace(0) or fluid.XLAPlace(' + repr('gpu') + ')' if is_gpu else 'fluid.CPUPlace()'}, not {value!r}"
    )
