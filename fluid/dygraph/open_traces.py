"""Traces for any number of rows: sizes that are open in a program, and sizes that a function reads."""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..building.layer_helper import listed
from ..building.sizes import TracedSize
from ..eager.graph import line_text, user_line
from ..eager.mode import state
from ..eager.nested import refilled, tensors_in
from ..eager.program import to_variable
from ..eager.tensor import Tensor, make
from ..errors import FluidTypeError, InferenceError
from ..executor.binding.array_types import array_type_of
from ..ir.program import Block, Program, Variable
from ..values.shape import Shape
from ..values.types import DTypeLike, VarType, as_dtype
from .layers import Layer
from .tracing import TracedFunction, Tracer, check_layer, input_names, is_of_user, traced_call

__all__ = ["InputSpec", "TracedLayer", "trace"]

_EXAMPLE_ROWS, _EXAMPLE_SIZE = 2, 32
"""The sizes that an example has where an `InputSpec` leaves them open, along the first axis and others: not 1, which fits any
size in additions, and enough for a few convolutions."""


class InputSpec:
    """Shape and element type of an input, in place of an example for `dygraph.trace`.

    Args:
        shape: the sizes; None or -1 for a size that each run may choose.
        dtype: the element type.
        name: the name of the input in the program; by default, the name of the function's parameter.

    The function is traced with zeros.

    Raises:
        FluidTypeError: `shape` is no list of sizes.

    >>> traced = dygraph.trace(dygraph.Linear(8, 2), dygraph.InputSpec([None, 8]))
    >>> traced.feeds[0].shape
    (-1, 8)
    >>> traced(np.ones([5, 8], "float32")).shape
    (5, 2)
    """

    def __init__(self, shape: Sequence[int | None], dtype: DTypeLike = "float32", name: str | None = None) -> None:
        if not isinstance(shape, (list, tuple)) or any(
            size is not None and not isinstance(size, (int, np.integer)) for size in shape
        ):
            raise FluidTypeError(f"InputSpec: shape should be a list of sizes, with None for an open one, not {shape!r}")
        self.shape = tuple(-1 if size is None else int(size) for size in shape)
        self.dtype = as_dtype(dtype)
        self.name = name

    def example(self) -> Tensor:
        """A tensor of zeros with this shape; open sizes are 2 along the first axis, and 32 along others."""
        sizes = [(_EXAMPLE_SIZE if axis else _EXAMPLE_ROWS) if size == -1 else size for axis, size in enumerate(self.shape)]
        return Tensor(np.zeros(sizes, self.dtype.array_dtype), self.dtype, copy=False)

    def __repr__(self) -> str:
        shape = [None if size == -1 else size for size in self.shape]
        name = "" if self.name is None else f", name={self.name!r}"
        return f"InputSpec({shape}, {self.dtype.text!r}{name})"


class OpenTracer(Tracer):
    """Traces a function whose inputs may have other sizes than the examples.

    Args:
        open_axes: for each input, the axes whose sizes are open.

    Attributes:
        reads: (size, line of the user's code) where Python used a size as a number, which became part of the program.
    """

    def __init__(self, open_axes: Sequence[frozenset[int]]) -> None:
        super().__init__()
        self._open_axes = iter(open_axes)
        self._sizes: dict[int, Variable] = {}
        """Array of an `OpenSize` -> its variable, which lies in the block of the tensor, not in the one where an op reads it."""
        self._sources: dict[int, OpenSize] = {}
        self.reads: list[tuple[str, str]] = []

    def fed_shape(self, tensor: Tensor) -> tuple[int, ...]:
        axes = next(self._open_axes)
        return tuple(-1 if axis in axes else size for axis, size in enumerate(super().fed_shape(tensor)))

    @contextmanager
    def noting_sizes(self) -> Iterator[None]:
        before, state.sizes = state.sizes, self
        try:
            yield
        finally:
            state.sizes = before

    def shape_of(self, tensor: Tensor) -> Shape:
        """The shape for the caller of `Tensor.shape`; in the user's code, open sizes are `OpenSize` objects."""
        shape = tensor._kind.shape
        declared = self._declared(tensor)
        if -1 not in declared or state.tracer is not self or not is_of_user(sys._getframe(2)):
            return tensor._kind.shape_for_users
        variable = self._variables[id(tensor._array)]
        sizes: list[Any] = [
            OpenSize.of(self, size, variable, axis) if declared[axis] == -1 else size for axis, size in enumerate(shape)
        ]
        return Shape(sizes)

    def note_size(self, tensor: Tensor) -> None:
        """Note that the caller of a property or method of a tensor reads its size as a number."""
        if -1 in self._declared(tensor) and is_of_user(sys._getframe(2)):
            self.note_read(tensor.name)

    def _declared(self, tensor: Tensor) -> tuple[int, ...]:
        variable = self._variables.get(id(tensor._array))
        return variable.shape if variable is not None and variable.has_shape and len(variable.shape) == tensor.ndim else ()

    def note_read(self, text: str) -> None:
        """Note that Python uses a size as a number."""
        self.reads.append((text, line_text(user_line())))

    # -- sizes as variables
    def add_size(self, size: OpenSize) -> None:
        """Note a size; ops that read it will get a variable."""
        self._sources[id(size._array)] = size

    def _variable(self, tensor: Tensor) -> Variable:
        key = id(tensor._array)
        if key not in self._sources:
            return super()._variable(tensor)
        if key not in self._sizes:
            self._sizes[key] = self._computed(self._sources[key])
        return self._sizes[key]

    def _computed(self, size: OpenSize) -> Variable:
        source, axis = size.source
        assert source is not None
        block = source.block
        shape, part = (block.create_var(name=self._names(self._names(kind) + ".tmp")) for kind in ("shape", "slice"))
        block.append_op("shape", {"Input": source}, {"Out": shape})
        block.append_op("slice", {"Input": shape}, {"Out": part}, {"axes": [0], "starts": [axis], "ends": [axis + 1]})
        return part


class OpenSize(TracedSize, Tensor):
    """An open size: an int32 tensor of one element, which the program computes; where Python needs a number, the example's.

    Arithmetic with numbers and sizes gives sizes, arithmetic with tensors tensors.
    """

    __slots__ = ("source", "tracer")

    source: tuple[Variable | None, int]
    """The variable and the axis that it is the size of; None for the result of arithmetic."""
    tracer: OpenTracer

    @classmethod
    def of(cls, tracer: OpenTracer, number: int, source: Variable | None, axis: int) -> OpenSize:
        """The size of a variable at an axis."""
        size = cls._on(np.array([number], np.int32))
        size.source, size.tracer = (source, axis), tracer
        tracer.add_size(size)
        return size

    @classmethod
    def _on(cls, array: Any) -> OpenSize:
        size: OpenSize = object.__new__(cls)
        size._array, size._kind = array, array_type_of(array)
        size._edge = size._grad = size._hooks = size._accumulator = size._name = None
        size._stop, size._version = True, [0]
        return size

    def is_size_of(self, x: Any, axis: int) -> bool:
        return isinstance(x, Tensor) and self._comes_from(self.tracer._variables.get(id(x._array)), axis)

    def _comes_from(self, variable: Variable | None, axis: int) -> bool:
        return variable is not None and self.source[0] is variable and self.source[1] == axis

    # -- as a number
    def _number(self, *_: Any) -> int:
        """The example's size, which becomes part of the program."""
        source, axis = self.source
        self.tracer.note_read("a size" if source is None else f"{source.name}.shape[{axis}]")
        return int(self._array[0])

    def __bool__(self) -> bool:
        return bool(self._number())

    def __int__(self) -> int:
        return self._number()

    def __float__(self) -> float:
        return float(self._number())

    def __index__(self) -> int:
        return self._number()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self._number(), dtype)

    def __repr__(self) -> str:
        return str(int(self._array[0]))

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(int(self._array[0]), spec)

    def __hash__(self) -> int:
        return hash(self._number())

    def _compared(self, operand: Any, how: Callable[[Any, Any], bool]) -> Any:
        if isinstance(operand, OpenSize):
            if self._comes_from(*operand.source):
                return how(0, 0)
            return how(self._number(), operand._number())
        return how(self._number(), operand)

    def __eq__(self, operand: Any) -> Any:
        return self._compared(operand, operator.eq)

    def __ne__(self, operand: Any) -> Any:
        return self._compared(operand, operator.ne)

    def __lt__(self, operand: Any) -> Any:
        return self._compared(operand, operator.lt)

    def __le__(self, operand: Any) -> Any:
        return self._compared(operand, operator.le)

    def __gt__(self, operand: Any) -> Any:
        return self._compared(operand, operator.gt)

    def __ge__(self, operand: Any) -> Any:
        return self._compared(operand, operator.ge)

    # -- in arithmetic
    def _combined(self, operand: Any, how: Callable[[Any, Any], Any], fraction: bool = False) -> Any:
        """``how(self, operand)`` by ops."""
        plain = self._plain()
        if isinstance(operand, Tensor) and not isinstance(operand, OpenSize):
            return how(plain.astype(operand.dtype) if plain.dtype is not operand.dtype else plain, operand)
        if isinstance(operand, OpenSize):
            operand = operand._plain()
        if fraction or isinstance(operand, float):
            operand = operand.astype("float32") if isinstance(operand, Tensor) else float(operand)
            return how(plain.astype("float32"), operand)
        result = how(plain, operand)
        if result is NotImplemented:
            return result
        derived = OpenSize._on(result._array)
        derived.source, derived.tracer = (None, 0), self.tracer
        return derived

    def _plain(self) -> Tensor:
        """The same variable as an ordinary tensor."""
        tensor = Tensor.__new__(Tensor)
        for name in ("_array", "_kind", "_edge", "_grad", "_hooks", "_accumulator", "_name", "_stop", "_version"):
            setattr(tensor, name, getattr(self, name))
        return tensor


def _arithmetic(how: Callable[[Any, Any], Any], fraction: bool = False) -> tuple[Any, Any]:
    """The methods ``a . b`` and, reflected, ``b . a``."""

    def forward(self: OpenSize, operand: Any) -> Any:
        return self._combined(operand, how, fraction)

    def reflected(self: OpenSize, operand: Any) -> Any:
        return self._combined(operand, lambda mine, value: how(value, mine), fraction)

    return forward, reflected


for _name, _how in {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "truediv": operator.truediv,
}.items():  # fmt: skip
    _forward, _reflected = _arithmetic(_how, _name == "truediv")
    setattr(OpenSize, f"__{_name}__", _forward)
    setattr(OpenSize, f"__r{_name}__", _reflected)


# ------------------------------------------------------------------------------------------------------- comparing programs
def difference(one: Tracer, peer: Tracer) -> str:
    """The first place where two traces differ in more than the names of variables; "" if they are the same program."""
    names: dict[str, str] = {}
    for text in _differences(one.program, peer.program, names):
        return text
    for name, tensor in one.captured.items():
        twin = peer.captured.get(names.get(name, name))
        if twin is not tensor and (twin is None or not _same_array(tensor._array, twin._array)):
            return f"the constant {tensor.describe()}"
    return ""


def _same_array(one: Any, peer: Any) -> bool:
    return bool(one.shape == peer.shape and one.dtype == peer.dtype and one.tobytes() == peer.tobytes())


def _differences(one: Program, peer: Program, names: dict[str, str]) -> Iterator[str]:
    if len(one.blocks) != len(peer.blocks):
        yield "a branch or loop"
    for mine, theirs in zip(one.blocks, peer.blocks, strict=False):
        yield from _of_blocks(mine, theirs, names)


def _of_blocks(one: Block, peer: Block, names: dict[str, str]) -> Iterator[str]:
    for mine, theirs in zip(one.ops, peer.ops, strict=False):
        same = mine.type == theirs.type and _attrs(mine.attrs) == _attrs(theirs.attrs)
        for slots, twins in ((mine.inputs, theirs.inputs), (mine.outputs, theirs.outputs)):
            same = same and slots.keys() == twins.keys()
            for slot in slots if same else ():
                same = same and len(slots[slot]) == len(twins[slot])
                for name, twin in zip(slots[slot], twins[slot], strict=False):
                    same = same and names.setdefault(name, twin) == twin
        if not same:
            frame = mine.user_frame
            yield f"the op {mine.type}" + ("" if frame is None else f" at {frame[0]}:{frame[1]} in {frame[2]}")
    if len(one.ops) != len(peer.ops):
        yield "the number of ops"


def _attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that decide what an op computes."""
    return {name: repr(value) for name, value in attrs.items() if not isinstance(value, Block) and name != "op_callstack"}


# ------------------------------------------------------------------------------------------------------------------ tracing
def traced_for_any_size(
    function: Callable[..., Any],
    examples: Sequence[Any],
    named: Mapping[str, Any],
    feed_names: Sequence[str] | None = None,
    fetch_names: Sequence[str] | None = None,
) -> tuple[Any, TracedFunction]:
    """Trace a function for the examples' sizes and twice their open sizes: its result, and a program for any size."""
    specs: list[InputSpec | None] = []
    args, kwargs = _with_examples([list(examples), dict(named)], specs)
    tensors = [to_variable(item) for item in tensors_in([args, kwargs])]
    names = list(feed_names) if feed_names is not None else input_names(function, args, kwargs, len(tensors))
    for number, spec in enumerate(specs):
        if spec is not None and spec.name is not None and feed_names is None:
            names[number] = spec.name
    wanted = [_open_axes(tensor, spec) for tensor, spec in zip(tensors, specs, strict=True)]

    def traced(axes: Sequence[frozenset[int]], inputs: Sequence[Any]) -> tuple[Any, TracedFunction, Tracer]:
        filled = refilled([args, kwargs], iter(inputs))
        return traced_call(function, filled[0], filled[1], names, fetch_names, tracer=OpenTracer(axes))

    closed = [frozenset[int]()] * len(tensors)
    reasons: list[str] = []

    def is_open(axes: Sequence[frozenset[int]], first: Any) -> bool:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # said already
                _, _, second = traced(axes, [_doubled(*item) for item in zip(tensors, axes, strict=True)])
        except Exception as error:  # raised by the user's code, too, for a size that it does not expect
            reasons.append(str(error).partition("\n")[0])
            return False
        place = difference(first, second)
        if place:
            text, line = (first.reads or [("", "")])[0]
            reasons.append(f"{text} is read as a number at {line}" if text else f"{place} depends on it")
        return not place

    def attempt(axes: Sequence[frozenset[int]]) -> tuple[Any, TracedFunction] | None:
        try:
            result, program, tracer = traced(axes, tensors)
        except InferenceError as error:
            if not any(axes):
                raise
            reasons.append(str(error).partition("\n")[0])
            return None
        return (result, program) if is_open(axes, tracer) else None

    outcome = attempt(wanted) if any(wanted) else None
    axes: Sequence[frozenset[int]] = wanted if outcome is not None else closed
    sizes = {tensor._kind.shape[axis] for tensor, open_axes in zip(tensors, wanted, strict=True) for axis in open_axes}
    for size in sorted(sizes) if outcome is None and len(sizes) > 1 else ():
        chosen = [
            frozenset(axis for axis in open_axes if tensor._kind.shape[axis] == size)
            for tensor, open_axes in zip(tensors, wanted, strict=True)
        ]
        outcome = attempt(chosen)
        if outcome is not None:
            axes = chosen
            break
    if outcome is None:
        result, program, _ = traced(closed, tensors)
        outcome = result, program
    for name, tensor, open_axes, wanted_axes in zip(names, tensors, axes, wanted, strict=True):
        for axis in sorted(wanted_axes - open_axes):
            outcome[1].program.fixed_sizes[name] = (
                f"size {tensor._kind.shape[axis]} of axis {axis} had to be fixed in the trace: {reasons[0]}"
            )
    return outcome


def _with_examples(value: Any, specs: list[InputSpec | None]) -> Any:
    """Nested arguments with a tensor in place of each `InputSpec`; add to `specs` the spec of each tensor, or None."""
    if isinstance(value, InputSpec):
        specs.append(value)
        return value.example()
    if isinstance(value, Mapping):
        keys = sorted(value, key=str)
        filled = {key: _with_examples(value[key], specs) for key in keys}
        return {key: filled[key] for key in value}
    if isinstance(value, (list, tuple)):
        items = [_with_examples(item, specs) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    specs.extend([None] * len(tensors_in(value)))
    return value


def _open_axes(tensor: Tensor, spec: InputSpec | None) -> frozenset[int]:
    """The axes of an input whose sizes are open: as a spec says, or the first one."""
    if spec is not None:
        return frozenset(axis for axis, size in enumerate(spec.shape) if size == -1)
    is_dense = tensor.type is VarType.LOD_TENSOR and not tensor.lod
    return frozenset([0]) if is_dense and tensor.ndim else frozenset()


def _doubled(tensor: Tensor, axes: frozenset[int]) -> Tensor:
    """A tensor with each of its open axes repeated."""
    array, xp = tensor._array, tensor._kind.xp
    for axis in axes:
        array = xp.concatenate([array, array], axis=axis)
    copied = make(array, array_type_of(array), None)
    copied._stop = tensor._stop
    return copied


def trace(
    function: Callable[..., Any],
    *examples: Any,
    feed_names: Sequence[str] | None = None,
    fetch_names: Sequence[str] | None = None,
    **named: Any,
) -> TracedFunction:
    """Call a function of tensors, or a layer, with examples, and write its ops to a program.

    The program is for any number of rows: the first size of each example is open, and so are the sizes that an `InputSpec`
    leaves open. Sizes that the function reads, such as ``x.shape[0]``, are ops of the program where ops use them. Python code
    runs twice, for the examples and for twice their open sizes; where the two programs differ, the size is fixed to the
    example's, and a run with another one raises an error that says why. Branches, attributes and modes of layers become fixed
    (see `TracedFunction`). Reading the value of a tensor is an error; use `fluid.layers.cond` and `fluid.layers.while_loop`.

    Changes of tensors from outside, such as moving statistics, are undone afterwards, as are random draws; only parameters that
    layers make in their first call remain, and other side effects in Python. The returned function makes those changes when it is
    called, and draws from the random stream of eager mode; an executor runs the program as any other.

    `dygraph.grad` inside becomes part of the program, also through `cond` and `while_loop`, but not twice through these.
    A later ``append_backward`` respects `detach`, `no_grad` and `stop_gradient`, but not hooks and the backward of a `PyLayer`:
    it differentiates the forward ops, and a `UserWarning` says so.

    Args:
        function: the function or layer.
        examples, named: tensors or `InputSpec`, or nested lists, tuples and dicts of them; other values become part of the
            program, which must be called with the same ones.
        feed_names, fetch_names: names of the inputs and outputs; by default the function's parameters, and the names that the
            ops generate.

    Raises:
        ProgramError: the function reads the value of a tensor, calls `backward`, or runs an optimizer.

    >>> traced = dygraph.trace(lambda x: x * x + 1.0, dygraph.Tensor([1.0, 2.0]))
    >>> [op.type for op in traced.program.global_block().ops]
    ['elementwise_mul', 'scale']
    >>> traced(dygraph.Tensor([3.0, 4.0])).numpy()
    array([10., 17.], dtype=float32)
    >>> mean = dygraph.trace(lambda x: layers.reduce_sum(x, dim=0) / x.shape[0], dygraph.InputSpec([None, 2]))
    >>> mean(np.array([[1.0, 2.0], [3.0, 6.0], [5.0, 1.0]], "float32")).numpy()
    array([3., 3.], dtype=float32)
    """
    return traced_for_any_size(function, examples, named, feed_names, fetch_names)[1]


class TracedLayer:
    """A layer as a program, as in Fluid 1.6; `TracedLayer.trace` makes it.

    Args:
        traced: the program.

    >>> x = dygraph.Tensor(np.ones([2, 4], "float32"))
    >>> out, traced = dygraph.TracedLayer.trace(dygraph.Linear(4, 3), [x])
    >>> [op.type for op in traced.program.global_block().ops]
    ['mul', 'elementwise_add']
    >>> traced([x])[0].shape
    (2, 3)
    """

    def __init__(self, traced: TracedFunction) -> None:
        self._traced = traced

    @staticmethod
    def trace(layer: Layer, inputs: Any) -> tuple[Any, TracedLayer]:
        """The output of `layer` for these `inputs`, and the layer as a program; it undoes changes of state, as `dygraph.trace`
        does.
        """
        check_layer("TracedLayer.trace", layer)
        result, traced = traced_for_any_size(layer, listed(inputs), {})
        if not state.recording:
            result = refilled(result, iter([item.detach() for item in tensors_in(result)]))
        return result, TracedLayer(traced)

    @property
    def program(self) -> Program:
        """The layer's ops."""
        return self._traced.program

    def set_strategy(self, build_strategy: Any = None, exec_strategy: Any = None) -> None:
        """Does nothing: `build_strategy` and `exec_strategy` are accepted, as in Fluid 1.6."""

    def __call__(self, inputs: Any) -> list[Any]:
        """Run the program on these inputs; a list of its outputs."""
        return tensors_in(self._traced(*listed(inputs)))

    def save_inference_model(
        self, dirname: str, feed: Sequence[int] | None = None, fetch: Sequence[int] | None = None
    ) -> list[str]:
        """Save the program as an inference model.

        Args:
            dirname, feed, fetch: see `TracedFunction.save_inference_model`.
        """
        return self._traced.save_inference_model(dirname, feed, fetch)
