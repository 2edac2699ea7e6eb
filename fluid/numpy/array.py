"""Arrays: tensors that follow the array API standard, and the ops that make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..eager.mode import state
from ..eager.parts import parts
from ..eager.tensor import Tensor, make
from ..errors import FluidTypeError, MissingAttributeError, ProgramError
from ..executor.binding.array_types import CPU, array_type_of, default_device
from ..opdef.inference import OpNamespace
from ..opdef.registry import OpDef
from ..values.place import get_cuda_device_count, namespace_on

__all__ = ["ARRAYS", "AUGMENTED", "NDArray", "array_like", "device_name", "devices"]


class ArrayOps(OpNamespace):
    """Ops over tensors whose results are arrays."""

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        run = getattr(parts.ops.namespace, op_type)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = run(*args, **kwargs)
            if result.__class__ is Tensor:
                result.__class__ = NDArray
                return result
            return _as_arrays(result)

        call.__name__ = op_type
        self.__dict__[op_type] = call
        return call

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        outputs = parts.ops.namespace.apply(definition, inputs, attrs)
        return {slot: _as_arrays(value) for slot, value in outputs.items()}


def _as_arrays(result: Any) -> Any:
    """The tensors of an op's result as arrays."""
    if isinstance(result, (tuple, list)):
        return type(result)([_as_arrays(item) for item in result])
    if result.__class__ is Tensor:
        result.__class__ = NDArray
    return result


_TRANSPOSES = {"T": "only a matrix has it; use mT, or permute_dims", "mT": "it needs two dimensions at least"}
ARRAYS = ArrayOps()
"""Ops over tensors whose results are arrays."""


class NDArray(Tensor):
    """A tensor that behaves as the Python array API standard says.

    `fluid.numpy` makes arrays, and its functions return them. An array is a tensor: layers, `backward` and optimizers take it.
    What differs from other tensors:

    - Operands of two element types are promoted.
    - ``x[0]`` of a vector has the shape ``()``, where a tensor of Fluid 1.6 has ``[1]``.
    - ``&``, ``|``, ``^`` and ``~`` of integers work bit by bit.
    - The truth of several elements is an error.

    Args:
        data, dtype, stop_gradient, name, requires_grad, copy: as of `fluid.dygraph.Tensor`; see `fluid.numpy.asarray` too.

    >>> import fluid.numpy as xp
    >>> x = xp.asarray([1, 2, 3])
    >>> x + xp.asarray(0.5)
    NDArray([1.5, 2.5, 3.5], dtype=float32)
    >>> x[0].shape
    ()
    """

    __slots__ = ()

    def _ops(self) -> OpNamespace:
        return ARRAYS

    def __repr__(self) -> str:
        if state.tracer is not None:
            state.tracer.note_print(self)
        values = np.array2string(self._host(), separator=", ", prefix="NDArray(")
        shape = "" if self.size or self.shape == (0,) else f", shape={self.shape}"
        device = "" if self.device == CPU else f", device={self.device}"
        gradient = "" if self._stop else ", requires_grad=True"
        return f"NDArray({values}{shape}, dtype={self.dtype.text}{device}{gradient})"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        return _unpickled, (self.numpy(), self._stop, self._name)

    if not TYPE_CHECKING:  # type checkers should report unknown attributes themselves

        def __getattr__(self, name: str) -> Any:
            if name in _TRANSPOSES:  # Python comes here where the property raises an AttributeError
                raise self._lacks(name)
            return super().__getattr__(name)

    def _lacks(self, name: str) -> MissingAttributeError:
        return MissingAttributeError(f"{name} of {self._kind}: {_TRANSPOSES[name]}")

    @property
    def T(self) -> NDArray:
        """The transposed matrix."""
        if self.ndim != 2:
            raise self._lacks("T")
        return self.mT

    @property
    def mT(self) -> NDArray:
        """The transposed matrices of the last two dimensions."""
        if self.ndim < 2:
            raise self._lacks("mT")
        return ARRAYS.transpose2(self, axis=[*range(self.ndim - 2), self.ndim - 1, self.ndim - 2])  # type: ignore[no-any-return]

    def to_device(self, device: Any, /, *, stream: Any = None) -> NDArray:
        """The array on a device, such as ``"cpu"`` or ``"cuda:0"``; itself if it is there.

        Args:
            device: the name of the device.
            stream: None; others are refused.
        """
        if stream is not None:
            raise ProgramError(f"to_device: there are no streams to choose from here, such as {stream!r}; leave it out")
        name = device_name(device)
        if name == self.device:
            return self
        self._read("to_device()")
        return array_like(namespace_on(name).asarray(self._host() if name == CPU else self._array))

    # -- values
    def __bool__(self) -> bool:
        return bool(self._element("bool"))

    def __int__(self) -> int:
        return int(self._element("int"))

    def __float__(self) -> float:
        return float(self._element("float"))

    def __complex__(self) -> complex:
        return complex(self._element("complex"))

    def __index__(self) -> int:
        if self._kind.numpy_dtype.kind not in "iu":
            raise FluidTypeError(f"{self._kind} cannot be an index; an integer can")
        return int(self._element("an index"))

    def _element(self, purpose: str) -> Any:
        if self.size != 1:
            advice = "; any or all makes one of them" if purpose == "bool" else ""
            raise ProgramError(f"{self._kind} cannot become {purpose}: it has {self.size} elements, not one{advice}")
        self._read(f"{purpose}()")
        return self._array.item()

    def __len__(self) -> int:
        if not self.ndim:
            raise FluidTypeError("an array without dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Any:
        if not self.ndim:
            raise FluidTypeError("an array without dimensions has no elements to go through; use float(x) or x.item()")
        return (self[number] for number in range(self.shape[0]))

    # -- in place
    def _augmented(self, sign: str, operand: Any) -> Any:
        self._check_modifiable(sign)
        before = self
        if state.recording and not (self._stop and getattr(operand, "_stop", True)):
            before = make(self._array.copy(), self._kind, self._edge)  # type: ignore[assignment]
            before.__class__ = NDArray
            if state.tracer is not None:
                state.tracer.bind_copy(before, self)
        result = AUGMENTED[sign](before, before if operand is self else operand)
        return result if result is NotImplemented else self._take_over(result, sign)

    def __ilshift__(self, operand: Any) -> Any:
        return self._augmented("<<=", operand)

    def __irshift__(self, operand: Any) -> Any:
        return self._augmented(">>=", operand)

    def __imatmul__(self, operand: Any) -> Any:
        return self._augmented("@=", operand)


NDArray._computed_as = NDArray
AUGMENTED: dict[str, Callable[[Any, Any], Any]] = {}
"""In-place operator -> the binary operator of arrays; `fluid.numpy.operators` fills it."""


def _unpickled(array: Any, stop: bool, name: str | None) -> NDArray:
    return NDArray(array, stop_gradient=stop, name=name, copy=False)


def array_like(array: Any) -> NDArray:
    """An array that takes ownership of an array of numpy or cupy."""
    contiguous = array if array.flags.c_contiguous else array.copy()
    result = make(contiguous, array_type_of(contiguous))
    result.__class__ = NDArray
    if state.tracer is not None:
        state.tracer.note_created(result, array)
    return result  # type: ignore[return-value]


def device_name(device: Any) -> str:
    """The name of a device; of the one where arrays are made by default for None. An error for a device that is not here."""
    if device is None:
        return default_device()
    if device != CPU and device not in devices():
        raise ProgramError(f"there is no device {device!r}; there are {', '.join(map(repr, devices()))}")
    return str(device)


def devices() -> list[str]:
    """The names of all devices."""
    return [CPU, *(f"cuda:{number}" for number in range(get_cuda_device_count()))]
