"""Convolutions of cupy's arrays by cuDNN, through NVIDIA's own package for Python (``nvidia-cudnn-frontend``).

To cuDNN, a convolution is a graph with one operation. It makes a plan for the sizes and the layouts, which takes milliseconds.
Plans are kept, so that bound ops of equal sizes share one.
"""

from __future__ import annotations

import os
import warnings
from functools import cache, partial
from threading import Lock
from typing import Any, NamedTuple

from fluid.values.cache import Cache
from fluid.values.memory import address_of

from .calls import Call, OutArray

__all__ = ["ArrayLayout", "CuDnn", "CuDnnConvolution", "convolution_call", "has_cudnn", "layout_of"]

_ALIGNMENT = 16
"""cuDNN reads vectors of this many bytes."""
_TYPES = {"float16": ("HALF", "FLOAT"), "float32": ("FLOAT", "FLOAT"), "float64": ("DOUBLE", "DOUBLE")}
"""Element type -> cuDNN's types of the elements and of the sums."""


class ArrayLayout(NamedTuple):
    """The sizes of an array [N, C, H, W] or [N, C, D, H, W], and its strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


class CuDnnConvolution(NamedTuple):
    """All that the plan of a convolution depends on.

    Attributes:
        device: the number of the device.
        kind: ``"fprop"`` of images and filters, ``"dgrad"`` of the outputs' gradients and filters, or ``"wgrad"`` of images and
            the outputs' gradients.
        left: the layout of the first operand.
        right: the layout of the second one.
        out: the layout of the result.
    """

    device: int
    kind: str
    dtype: str
    left: ArrayLayout
    right: ArrayLayout
    out: ArrayLayout
    pads: tuple[tuple[int, ...], tuple[int, ...]]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]


def layout_of(array: Any) -> ArrayLayout:
    """The layout of an array."""
    return ArrayLayout(tuple(array.shape), tuple(stride // array.itemsize for stride in array.strides))


class CuDnn:
    """cuDNN on one device. Threads take turns: its handle serves one of them at a time.

    Args:
        library: the module ``cudnn``.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._handle = library.create_handle()
        self._lock = Lock()
        self._plans: Cache[CuDnnConvolution, Any] = Cache()

    def plan(self, convolution: CuDnnConvolution) -> Any:
        """The plan of a convolution; None if cuDNN has none."""
        with self._lock:
            if convolution not in self._plans:
                self._plans.keep(convolution, self._make_plan(convolution))
            return self._plans[convolution]

    def _make_plan(self, convolution: CuDnnConvolution) -> Any:
        cudnn = self._library
        of_elements, of_sums = (getattr(cudnn.data_type, name) for name in _TYPES[convolution.dtype])
        graph = cudnn.pygraph(
            io_data_type=of_elements, intermediate_data_type=of_sums, compute_data_type=of_sums, handle=self._handle
        )
        left, right = (
            graph.tensor(dim=list(layout.shape), stride=list(layout.strides), data_type=of_elements, uid=uid)
            for uid, layout in enumerate((convolution.left, convolution.right))
        )
        before, after = convolution.pads
        out = getattr(graph, f"conv_{convolution.kind}")(
            left,
            right,
            pre_padding=list(before),
            post_padding=list(after),
            stride=list(convolution.strides),
            dilation=list(convolution.dilations),
            compute_data_type=of_sums,
        )
        shape, strides = convolution.out
        out.set_output(True).set_data_type(of_elements).set_dim(list(shape)).set_stride(list(strides)).set_uid(2)
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            graph.deselect_numeric_notes(self._refused_notes(convolution.dtype))
            graph.check_support()
            graph.build_plans()
        except cudnn.cudnnGraphNotSupportedError:
            return None
        return graph

    def _refused_notes(self, dtype: str) -> list[Any]:
        """What plans may not do: round float32 to TF32, unless cupy may, and give other bits in each run."""
        notes = self._library.numerical_note
        allows_tf32 = os.environ.get("CUPY_TF32", "0") not in ("", "0")  # as cupy's own products
        rounds = [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS] if dtype == "float32" and not allows_tf32 else []
        return [notes.NONDETERMINISTIC, *rounds]

    def run(self, convolution: CuDnnConvolution, stream: int, addresses: list[int], workspace: int) -> None:
        """Compute a convolution on a stream, from and to addresses on the device."""
        plan = self.plan(convolution)
        with self._lock:
            self._library.set_stream(handle=self._handle, stream=stream)
            plan.execute(dict(enumerate(addresses)), workspace, handle=self._handle)


@cache
def _cudnn_on(device: int) -> CuDnn | None:
    """cuDNN on a device, which is current; None if it is not installed."""
    try:
        import cudnn

        return CuDnn(cudnn)
    except (ImportError, OSError, RuntimeError) as error:
        if getattr(error, "name", "") != "cudnn":  # it is installed
            reason = str(error).partition("\n")[0]
            warnings.warn(f"cuDNN does not work, so convolutions are products of patches: {reason}", RuntimeWarning, stacklevel=2)
        return None


def has_cudnn(xp: Any) -> bool:
    """Whether cuDNN computes convolutions of the arrays of a namespace, on the current device."""
    return xp.__name__ == "cupy" and _cudnn_on(xp.cuda.Device().id) is not None


def convolution_call(xp: Any, scratch: Any, convolution: CuDnnConvolution, left: Any, right: Any, out: Any) -> Call | None:
    """Make the call that computes a convolution by cuDNN; None if cuDNN is not installed, or has no plan."""
    library = _cudnn_on(convolution.device) if convolution.dtype in _TYPES else None
    plan = library.plan(convolution) if library else None
    if plan is None:
        return None
    size = plan.get_workspace_size()
    return partial(convolve, xp, convolution, left, right, out, scratch((size,), "uint8") if size else None)


def convolve(xp: Any, convolution: CuDnnConvolution, left: Any, right: Any, out: OutArray, workspace: OutArray) -> None:
    """Compute a convolution by cuDNN. The arrays are C-contiguous; those at odd addresses are copied."""
    library = _cudnn_on(convolution.device)
    assert library is not None, "cuDNN was there when the call was made"
    result = out if address_of(out) % _ALIGNMENT == 0 else xp.empty(out.shape, out.dtype)
    operands = [array if address_of(array) % _ALIGNMENT == 0 else array.copy() for array in (left, right)]
    addresses = [address_of(array) for array in (*operands, result)]
    stream = xp.cuda.get_current_stream().ptr
    library.run(convolution, stream, addresses, 0 if workspace is None else address_of(workspace))
    if result is not out:
        xp.copyto(out, result)
