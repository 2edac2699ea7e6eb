"""A stand-in for NVIDIA's module `cudnn` (nvidia-cudnn-frontend 1.32), on the memory of `support.strict_cupy`.

It has the parts that convolutions need, takes what the module takes, and refuses what the module and cuDNN refuse. Graphs run on
addresses, as cuDNN's do.
"""

from __future__ import annotations

import ctypes
from enum import Enum
from itertools import product
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from .strict_cupy import streams

NUMPY_TYPES = {"HALF": "float16", "FLOAT": "float32", "DOUBLE": "float64"}
_WORKSPACE = 48
"""Bytes that gradients of images need."""


class GraphNotSupported(Exception):
    """cuDNN has no plan for a graph."""


class HostTensor:
    """The description of a tensor. The methods that set a fact return the tensor."""

    def __init__(self, dim: list[int], stride: list[int], data_type: Any, uid: int) -> None:
        self.dim, self.stride, self.data_type, self.uid, self.is_output = dim, stride, data_type, uid, False

    def set_output(self, is_output: bool) -> HostTensor:
        self.is_output = is_output
        return self

    def set_data_type(self, data_type: Any) -> HostTensor:
        self.data_type = data_type
        return self

    def set_dim(self, dim: list[int]) -> HostTensor:
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> HostTensor:
        self.stride = stride
        return self

    def set_uid(self, uid: int) -> HostTensor:
        self.uid = uid
        return self

    def host(self, address: int) -> Any:
        """The memory of the device at an address, as an array."""
        if address % 16:
            raise AssertionError("cuDNN reads 16 bytes at a time, and this address is no multiple of 16")
        dtype = np.dtype(NUMPY_TYPES[self.data_type.name])
        count = sum((size - 1) * stride for size, stride in zip(self.dim, self.stride, strict=True)) + 1
        pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
        memory = np.ctypeslib.as_array(pointer, (count * dtype.itemsize,)).view(dtype)
        return np.lib.stride_tricks.as_strided(memory, self.dim, [stride * dtype.itemsize for stride in self.stride])


class HostHandle:
    """A handle, for one thread at a time."""

    def __init__(self) -> None:
        self.stream = 0
        self.is_busy = False


class HostCuDnn(ModuleType):
    """The module.

    Attributes:
        calls: the kinds of convolutions that were computed.
        graphs: the graphs that were built.
        has_plans: whether there are plans.
    """

    def __init__(self) -> None:
        super().__init__("cudnn")
        self.calls: list[str] = []
        self.graphs: list[HostGraph] = []
        self.has_plans = True
        self.cudnnGraphNotSupportedError = GraphNotSupported
        for name, members in (
            ("data_type", "HALF FLOAT DOUBLE BFLOAT16 INT32"),
            ("heur_mode", "A B FALLBACK"),
            ("numerical_note", "TENSOR_CORE DOWN_CONVERT_INPUTS REDUCED_PRECISION_REDUCTION FFT NONDETERMINISTIC WINOGRAD"),
        ):
            setattr(self, name, Enum(name, members))

    def create_handle(self) -> HostHandle:
        streams.refuse_waiting()  # it allocates
        return HostHandle()

    def set_stream(self, handle: HostHandle, stream: int) -> None:
        if not isinstance(handle, HostHandle):
            raise TypeError("cudnn.set_stream expects a cudnn.Handle")
        handle.stream = stream

    def pygraph(
        self,
        name: str = "graph",
        io_data_type: Any = None,
        intermediate_data_type: Any = None,
        compute_data_type: Any = None,
        handle: HostHandle | None = None,
    ) -> HostGraph:
        assert isinstance(handle, HostHandle)
        return HostGraph(self, compute_data_type)


class HostGraph:
    """A graph of one convolution. Its steps have the order of cuDNN's."""

    _ORDER = ("validate", "build_operation_graph", "create_execution_plans", "check_support", "build_plans")

    def __init__(self, library: HostCuDnn, compute_data_type: Any) -> None:
        self._library, self._compute_data_type = library, compute_data_type
        self._tensors: dict[int, HostTensor] = {}
        self._steps = iter(self._ORDER)
        self._kind = ""
        self.notes: list[Any] = []

    def tensor(self, *, dim: list[int], stride: list[int], data_type: Any, uid: int) -> HostTensor:
        if uid in self._tensors:
            raise ValueError(f"uid {uid} is already user-assigned")
        assert len(dim) == len(stride) and all(isinstance(number, int) and number > 0 for number in (*dim, *stride))
        self._tensors[uid] = HostTensor(dim, stride, data_type, uid)
        return self._tensors[uid]

    def conv_fprop(self, image: HostTensor, weight: HostTensor, **attributes: Any) -> HostTensor:
        return self._convolution("fprop", image, weight, **attributes)

    def conv_dgrad(self, loss: HostTensor, filter: HostTensor, **attributes: Any) -> HostTensor:
        return self._convolution("dgrad", loss, filter, **attributes)

    def conv_wgrad(self, image: HostTensor, loss: HostTensor, **attributes: Any) -> HostTensor:
        return self._convolution("wgrad", image, loss, **attributes)

    def _convolution(
        self,
        kind: str,
        left: HostTensor,
        right: HostTensor,
        *,
        pre_padding: list[int],
        post_padding: list[int],
        stride: list[int],
        dilation: list[int],
        compute_data_type: Any,
    ) -> HostTensor:
        assert not self._kind and compute_data_type == self._compute_data_type
        self._kind, self._operands, self._out = kind, (left, right), HostTensor([], [], None, -1)
        self._pads, self._strides, self._dilations = (pre_padding, post_padding), stride, dilation
        return self._out

    def _roles(self, left: Any, right: Any, out: Any) -> tuple[Any, Any, Any]:
        """Image, filter and output."""
        return {"fprop": (left, right, out), "dgrad": (out, right, left), "wgrad": (left, out, right)}[self._kind]

    def _step(self, name: str) -> None:
        streams.refuse_waiting()
        expected = next(self._steps)
        assert name == expected, f"{name} comes after {expected}"

    def validate(self) -> None:
        self._step("validate")
        assert self._out.is_output, "the output is virtual"
        types = {tensor.data_type for tensor in (*self._operands, self._out)}
        assert len(types) == 1, "mixed types are not used here"
        sums = "DOUBLE" if types == {self._library.data_type.DOUBLE} else "FLOAT"  # type: ignore[attr-defined]
        assert self._compute_data_type.name == sums

    def build_operation_graph(self) -> None:
        self._step("build_operation_graph")
        image, filter_, out = self._roles(*self._operands, self._out)
        groups, remaining = divmod(image.dim[1], filter_.dim[1])
        sizes = zip(image.dim[2:], filter_.dim[2:], out.dim[2:], *self._pads, self._strides, self._dilations, strict=True)
        fits = all((x + lo + hi - (w - 1) * dilation - 1) // stride + 1 == y for x, w, y, lo, hi, stride, dilation in sizes)
        if remaining or filter_.dim[0] % groups or out.dim[:2] != [image.dim[0], filter_.dim[0]] or not fits:
            raise RuntimeError("detail::finalize(convolution_operation.get_raw_desc()) failed: is_valid_spatial_dim")

    def create_execution_plans(self, heuristics: list[Any]) -> None:
        self._step("create_execution_plans")
        assert all(isinstance(mode, self._library.heur_mode) for mode in heuristics)  # type: ignore[attr-defined]
        if not self._library.has_plans:
            raise GraphNotSupported("No valid engine configs returned from heuristics")

    def deselect_numeric_notes(self, notes: list[Any]) -> HostGraph:
        self.notes += notes
        return self

    def check_support(self) -> None:
        self._step("check_support")

    def build_plans(self) -> None:
        self._step("build_plans")
        self._tensors[self._out.uid] = self._out
        assert len(self._tensors) == 3, "the output has the uid of an operand"
        self._library.graphs.append(self)

    def get_workspace_size(self) -> int:
        return _WORKSPACE if self._kind == "dgrad" else 0

    def execute(self, tensor_dict: dict[int, int], workspace: int = 0, handle: HostHandle | None = None) -> None:
        assert next(self._steps, None) is None, "the graph is not built"
        if not isinstance(handle, HostHandle):
            raise TypeError("expected a cudnn.Handle (from cudnn.create_handle()) or None")
        for uid in self._tensors:
            if uid not in tensor_dict:
                raise ValueError(f"the variant pack is missing a buffer for tensor uid {uid}")
        assert not handle.is_busy, "two threads use a handle"
        handle.is_busy = True
        tensors = (*self._operands, self._out)
        left, right, out = (tensor.host(tensor_dict[tensor.uid]) for tensor in tensors)
        written = [SimpleNamespace(_host=out)]
        if size := self.get_workspace_size():
            assert workspace and workspace % 16 == 0
            pointer = ctypes.cast(workspace, ctypes.POINTER(ctypes.c_uint8))
            written.append(SimpleNamespace(_host=np.ctypeslib.as_array(pointer, (size,))))
        self._library.calls.append(self._kind)

        def compute() -> None:
            for memory in written:  # nothing may be read here
                memory._host[...] = 255 if memory._host.dtype == "uint8" else np.nan
            self._compute(*self._roles(left, right, out))

        stream = streams.Stream.by_pointer[handle.stream]
        assert stream is streams.current_stream(), "the handle computes on another stream"
        if stream.is_capturing():
            stream.record_call(compute, tuple(written))
        else:
            compute()
        handle.is_busy = False

    def _compute(self, image: Any, filter_: Any, out: Any) -> None:
        """Tap by tap, in float64."""
        extents = (x + before + after for x, before, after in zip(image.shape[2:], *self._pads, strict=True))
        padded = np.zeros((*image.shape[:2], *extents))
        inner = (..., *(slice(before, before + x) for before, x in zip(self._pads[0], image.shape[2:], strict=True)))
        groups = image.shape[1] // filter_.shape[1]
        of_images = padded.reshape(len(image), groups, -1, *padded.shape[2:])
        of_filters = filter_.astype("float64").reshape(groups, -1, *filter_.shape[1:])
        of_outs = out.astype("float64").reshape(len(out), groups, -1, *out.shape[2:])
        if self._kind != "dgrad":
            padded[inner] = image
        of_result = {"fprop": of_outs, "wgrad": of_filters, "dgrad": of_images}[self._kind]
        of_result[...] = 0
        for tap in product(*map(range, filter_.shape[2:])):
            starts = [place * dilation for place, dilation in zip(tap, self._dilations, strict=True)]
            windows = zip(starts, self._strides, out.shape[2:], strict=True)
            under = (..., *(slice(start, start + stride * (count - 1) + 1, stride) for start, stride, count in windows))
            at = (..., *tap)
            if self._kind == "fprop":
                of_outs += np.einsum("ngc...,gmc->ngm...", of_images[under], of_filters[at])
            elif self._kind == "dgrad":
                of_images[under] += np.einsum("ngm...,gmc->ngc...", of_outs, of_filters[at])
            else:
                left, right = (array.reshape(*array.shape[:3], -1) for array in (of_images[under], of_outs))
                of_filters[at] = np.einsum("ngcp,ngmp->gmc", left, right)
        result = {"fprop": out, "wgrad": filter_, "dgrad": image}[self._kind]
        sums = padded[inner] if self._kind == "dgrad" else of_result.reshape(result.shape)
        result[...] = sums.astype(result.dtype)
