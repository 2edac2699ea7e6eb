"""The ONNX graph under construction: nodes as plain data, constants that are written once, and nested scopes.

`OnnxGraph` appends nodes of one opset; its methods are the helpers that most ops need, in ONNX's ops. An `OnnxTensor` is a value
of the graph, and an ordinary value to gradient rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from fluid.values.spec import Spec, agreed_sizes
from fluid.values.types import VarType, as_dtype

if TYPE_CHECKING:
    from fluid.opdef.inference import OpNamespace

from .tensors import ELEMENTS, GraphScope, NodeRecord, NotExported, OnnxTensor, Size, Symbol, is_number, without_symbols

__all__ = [
    "ELEMENTS",
    "GraphScope",
    "NodeRecord",
    "NotExported",
    "OnnxGraph",
    "OnnxTensor",
    "Size",
    "Symbol",
    "is_number",
    "without_symbols",
]

_MOST_FOLDED = 64
"""The most elements of constants to fold."""
_FOLDED: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "And": np.logical_and,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Reshape": lambda array, shape: array.reshape(shape),
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}
"""Ops that are folded if all operands are constants."""
_COMPARISONS = frozenset(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"))


class OnnxGraph:
    """An ONNX graph under construction.

    Attributes:
        opset: the version of ONNX's ops.
        ops: the namespace of Fluid's ops over its tensors.
        constants: name -> array, for all values that no node computes.
        weights: name -> array, of the parameters that are constants of the model.
    """

    def __init__(self, opset: int, ops: Callable[[OnnxGraph], OpNamespace]) -> None:
        self.opset, self.ops = opset, ops(self)
        self.constants: dict[str, Any] = {}
        self.weights: dict[str, Any] = {}
        self._constants: dict[Any, OnnxTensor] = {}
        self._names: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._symbol_of: dict[int, tuple[OnnxTensor, int, GraphScope]] = {}
        self.scopes: list[GraphScope] = [GraphScope()]

    # -- names, scopes
    def unique(self, base: str) -> str:
        """A name that no other value has."""
        count = self._names.get(base)
        if count is None:
            self._names[base] = 0
            return base
        while True:
            count += 1
            name = f"{base}.{count}"
            if name not in self._names:
                self._names[base], self._names[name] = count, 0
                return name

    def rows_of(self, lengths: OnnxTensor, rows: int | None = None) -> int:
        """The symbol for the number of rows of sequences with these lengths: `rows`, the first time."""
        if lengths.sizes == (-1,):
            lengths.sizes = (Symbol(),)
        return self._rows.setdefault(lengths._name, Symbol() if rows is None else rows)

    @property
    def scope(self) -> GraphScope:
        return self.scopes[-1]

    @contextmanager
    def inner_graph(self) -> Iterator[GraphScope]:
        """Open a graph inside a node: new nodes go into its scope, which is yielded."""
        self.scopes.append(GraphScope())
        try:
            yield self.scopes[-1]
        finally:
            self.scopes.pop()

    def input(self, name: str, spec: Spec, sizes: tuple[int, ...] | None = None) -> OnnxTensor:
        """Add an input to the current scope; its unknown sizes get symbols."""
        if sizes is None:
            sizes = tuple(Symbol() if size < 0 else size for size in spec.shape)
        tensor = OnnxTensor(self, self.unique(name), spec, sizes)
        self.scope.inputs.append(tensor)
        self._note(tensor)
        return tensor

    def _note(self, tensor: OnnxTensor) -> None:
        """Remember a tensor that has the size of a new symbol."""
        for axis, size in enumerate(tensor.sizes):
            if isinstance(size, Symbol):
                self._symbol_of.setdefault(size, (tensor, axis, self.scope))

    # -- nodes
    def nodes(self, op: str, inputs: Sequence[OnnxTensor | None], specs: Sequence[Spec], **attrs: Any) -> list[OnnxTensor]:
        """Append a node with several outputs of these specs."""
        names = ["" if tensor is None else tensor.name for tensor in inputs]
        fewest = 2 if op == "Loop" else 0  # its count and its condition, each of which may be absent
        while len(names) > fewest and not names[-1]:
            names.pop()
        outputs = [OnnxTensor(self, self.unique(op), spec) for spec in specs]
        self.scope.nodes.append(NodeRecord(op, names, [output._name for output in outputs], attrs))
        return outputs

    def node(self, op: str, inputs: Sequence[OnnxTensor | None], spec: Spec | OnnxTensor, **attrs: Any) -> OnnxTensor:
        """Append a node with one output, of the given spec (and sizes); ``domain`` among the attributes is the node's domain."""
        folded = self._folded(op, inputs, attrs)
        if folded is not None:
            return folded
        if isinstance(spec, OnnxTensor):
            [result] = self.nodes(op, inputs, [spec.spec], **attrs)
            result.sizes = spec.sizes
            return result
        return self.nodes(op, inputs, [spec], **attrs)[0]

    def _folded(self, op: str, inputs: Sequence[OnnxTensor | None], attrs: dict[str, Any]) -> OnnxTensor | None:
        """Fold an op on constants, for the ops of shapes and conditions; None for others."""
        function = _FOLDED.get(op)
        if function is None or any(tensor is None or tensor.value is None for tensor in inputs):
            return None
        arrays = [tensor.value for tensor in inputs if tensor is not None]
        if sum(array.size for array in arrays) > _MOST_FOLDED:
            return None
        return self.constant(np.asarray(function(*arrays)))

    def unary(self, op: str, x: OnnxTensor, **attrs: Any) -> OnnxTensor:
        """Append a node that preserves shape and element type."""
        return self.node(op, [x], x, **attrs)

    def binary(self, op: str, x: OnnxTensor, y: OnnxTensor) -> OnnxTensor:
        """Append a node of two operands that broadcast as in numpy. Its result has the type of `x`; a comparison's is BOOL."""
        dtype = VarType.BOOL if op in _COMPARISONS else x.dtype
        return self.sized_node(op, [x, y], dtype, self._common(x.sizes, y.sizes))

    def differ(self, x: OnnxTensor, y: OnnxTensor) -> OnnxTensor:
        """Whether elements of two operands, which broadcast, are unequal."""
        return self.unary("Not", self.binary("Equal", x, y))

    def identity(self, x: OnnxTensor) -> OnnxTensor:
        return self.unary("Identity", x)

    # -- constants
    def constant(self, value: Any, dtype: VarType | None = None, name: str = "constant") -> OnnxTensor:
        """An array as a tensor."""
        array = np.asarray(value, None if dtype is None else dtype.numpy)
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= 64 else None
        if key is not None and key in self._constants:
            return self._constants[key]
        tensor = OnnxTensor(self, self.unique(name), Spec(array.shape, as_dtype(array.dtype)))
        tensor.value = array
        self.constants[tensor._name] = array
        if key is not None:
            self._constants[key] = tensor
        return tensor

    def ints(self, *values: int) -> OnnxTensor:
        """A vector of int64."""
        return self.constant(np.array(values, np.int64))

    def number(self, value: float, like: OnnxTensor) -> OnnxTensor:
        """A number with the element type of `like`, of shape [], which broadcasts with anything."""
        return self.constant(np.array(value).astype(like.dtype.numpy))

    # -- shapes
    def size(self, x: OnnxTensor, axis: int) -> Size:
        """The size of a dimension."""
        axis = axis % x.ndim
        if is_number(x.sizes[axis]):
            return x.sizes[axis]
        if x.like is not None:
            return self._lazy_size(x, axis)
        return self._cached(("size", x.name, axis), lambda: self.gather(self.dims(x), self.ints(axis)))

    def _lazy_size(self, x: OnnxTensor, axis: int) -> Size:
        assert x.like is not None
        return 0 if axis == 0 else self.size(x.like, axis - 1)

    def _cached(self, key: Any, make: Callable[[], OnnxTensor]) -> OnnxTensor:
        for scope in reversed(self.scopes):
            if key in scope.cached:
                return scope.cached[key]
        tensor = self.scope.cached[key] = make()
        return tensor

    def dims(self, x: OnnxTensor) -> OnnxTensor:
        """The shape of a tensor, as int64."""
        if all(is_number(size) for size in x.sizes):
            return self.ints(*x.sizes)
        if x.like is not None:
            return self.joined_sizes([self._lazy_size(x, axis) for axis in range(x.ndim)])
        return self._cached(("dims", x.name), lambda: self.node("Shape", [x], Spec((x.ndim,), VarType.INT64)))

    def sizes_of(self, x: OnnxTensor) -> list[Size]:
        """The size of each dimension."""
        return [self.size(x, axis) for axis in range(x.ndim)]

    def joined_sizes(self, sizes: Sequence[Size]) -> OnnxTensor:
        """Join sizes into one vector."""
        if all(isinstance(size, int) for size in sizes):
            return self.ints(*sizes)  # type: ignore[arg-type]
        parts: list[OnnxTensor] = []
        run: list[int] = []
        for size in sizes:
            if isinstance(size, int):
                run.append(size)
                continue
            if run:
                parts.append(self.ints(*run))
            run = []
            parts.append(size)
        if run:
            parts.append(self.ints(*run))
        return parts[0] if len(parts) == 1 else self.concat(parts, 0)

    def product_of(self, sizes: Sequence[Size]) -> Size:
        """The product of sizes."""
        number = prod(size for size in sizes if isinstance(size, int))
        result: OnnxTensor | None = None
        for size in sizes:
            if isinstance(size, OnnxTensor):
                result = size if result is None else self.binary("Mul", result, size)
        if result is None:
            return number
        return result if number == 1 else self.binary("Mul", result, self.ints(number))

    def as_size(self, size: Size) -> OnnxTensor:
        """A size as an int64 tensor of shape [1]."""
        return self.ints(size) if isinstance(size, int) else size

    def empty_like(self, x: OnnxTensor) -> OnnxTensor:
        """A tensor without elements for a tensor that only stands for a shape: its first size is 0."""
        assert x.like is not None
        dims = self.dims(x)
        return self._cached(("empty", x.like.name), lambda: self.filled(dims, 0, Spec(x.shape, x.dtype)))

    def filled(self, dims: OnnxTensor, value: float, spec: Spec) -> OnnxTensor:
        """A tensor of a computed shape, filled with a number."""
        if spec.dtype is VarType.BF16:
            raise NotExported("constants of bfloat16")
        return self.node("ConstantOfShape", [dims], spec, value=np.array([value], spec.dtype.numpy))

    def reshape(self, x: OnnxTensor, sizes: Sequence[Size], shape: tuple[int, ...] | None = None) -> OnnxTensor:
        """Reshape a tensor; `shape` has the known sizes, by default from `sizes`."""
        if shape is None:
            shape = tuple(size if isinstance(size, int) else -1 for size in sizes)
        tensors = [place for place, size in enumerate(sizes) if not isinstance(size, int)]
        if len(tensors) == 1 and 0 not in sizes:
            sizes = [-1 if not isinstance(size, int) else size for size in sizes]
        return self._reshape(x, self.joined_sizes(sizes), shape)

    def _reshape(self, x: OnnxTensor, dims: OnnxTensor, shape: tuple[int, ...]) -> OnnxTensor:
        spec = Spec(without_symbols(shape), x.dtype)
        zeros: dict[str, Any] = {}
        if dims.value is None or 0 in dims.value:
            if self.opset >= 14:
                zeros = {"allowzero": 1}
            elif 0 in shape and dims.value is not None:  # opset 13 cannot reshape to no elements
                return self.filled(self.ints(*(max(size, 0) for size in shape)), 0, spec)
        if zeros and dims.value is not None and -1 in dims.value:
            zeros = {}
        result = self.node("Reshape", [x, dims], spec, **zeros)
        if result.value is None:
            result.sizes = shape
        return result

    def reshape_as(self, x: OnnxTensor, like: OnnxTensor) -> OnnxTensor:
        """Reshape a tensor to the shape of another tensor."""
        if x.sizes == like.sizes and -1 not in x.sizes:
            return x
        return self.in_shape(x, like.sizes, lambda: self.sizes_of(like))

    def in_shape(self, x: OnnxTensor, sizes: tuple[int, ...], exact: Callable[[], Sequence[Size]] | None = None) -> OnnxTensor:
        """Reshape a tensor to sizes with at most one unknown; if there are more, `exact` computes them."""
        unknown = [place for place, size in enumerate(sizes) if not is_number(size)]
        if len(unknown) > 1 or (unknown and 0 in sizes):
            if exact is None:
                raise NotExported(f"a reshape of {x.spec} to {sizes}: it leaves more than one size to be computed at run time")
            return self.reshape(x, list(exact()), sizes)
        return self._reshape(x, self.ints(*(-1 if place in unknown else size for place, size in enumerate(sizes))), sizes)

    def squeeze(self, x: OnnxTensor, *axes: int) -> OnnxTensor:
        axes = tuple(axis % x.ndim for axis in axes)
        if not axes:
            return x
        sizes = tuple(size for axis, size in enumerate(x.sizes) if axis not in axes)
        return self.sized_node("Squeeze", [x, self.ints(*axes)], x.dtype, sizes)

    def unsqueeze(self, x: OnnxTensor, *axes: int) -> OnnxTensor:
        """Add dimensions of size 1 at these axes of the result."""
        if not axes:
            return x
        ndim = x.ndim + len(axes)
        places = sorted(axis % ndim for axis in axes)
        sizes = iter(x.sizes)
        return self.sized_node(
            "Unsqueeze", [x, self.ints(*places)], x.dtype, tuple(1 if i in places else next(sizes) for i in range(ndim))
        )

    def sized_node(
        self, op: str, inputs: Sequence[OnnxTensor | None], dtype: VarType, sizes: tuple[int, ...], **attrs: Any
    ) -> OnnxTensor:
        """Append a node whose output has these sizes."""
        result = self.node(op, inputs, Spec(without_symbols(sizes), dtype), **attrs)
        if result.value is None:
            result.sizes = sizes
        return result

    def transpose(self, x: OnnxTensor, order: Sequence[int]) -> OnnxTensor:
        order = [axis % x.ndim for axis in order]
        if order == list(range(x.ndim)):
            return x
        return self.sized_node("Transpose", [x], x.dtype, tuple(x.sizes[axis] for axis in order), perm=order)

    def concat(self, xs: Sequence[OnnxTensor], axis: int) -> OnnxTensor:
        axis = axis % xs[0].ndim
        total = -1 if any(x.shape[axis] < 0 for x in xs) else sum(x.shape[axis] for x in xs)
        sizes = tuple(total if at == axis else max(x.sizes[at] for x in xs) for at in range(xs[0].ndim))
        if len(xs) == 1:
            return self.identity(xs[0])
        return self.sized_node("Concat", xs, xs[0].dtype, sizes, axis=axis)

    def expand(self, x: OnnxTensor, dims: OnnxTensor, sizes: tuple[int, ...]) -> OnnxTensor:
        """Broadcast a tensor to a shape."""
        if x.sizes == sizes and -1 not in sizes:
            return x
        return self.sized_node("Expand", [x, dims], x.dtype, sizes)

    def expand_as(self, x: OnnxTensor, like: OnnxTensor) -> OnnxTensor:
        if x.sizes == like.sizes and -1 not in x.sizes:
            return x
        return self.expand(x, self.dims(like), like.sizes)

    def gather(self, x: OnnxTensor, index: OnnxTensor, axis: int = 0) -> OnnxTensor:
        axis = axis % max(x.ndim, 1)
        return self.sized_node("Gather", [x, index], x.dtype, (*x.sizes[:axis], *index.sizes, *x.sizes[axis + 1 :]), axis=axis)

    def slice(
        self, x: OnnxTensor, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int], steps: Sequence[int] | None = None
    ) -> OnnxTensor:
        """Slice with bounds as in Python; `None` as an end with a negative step is a very small number."""
        steps = steps or [1] * len(axes)
        sizes = list(x.sizes)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            size = sizes[axis % x.ndim]
            sizes[axis % x.ndim] = len(range(*slice(start, end, step).indices(size))) if is_number(size) else -1
            if end < -(2**31):
                sizes[axis % x.ndim] = len(range(*slice(start, None, step).indices(size))) if is_number(size) else -1
        inputs = [x, self.ints(*starts), self.ints(*ends), self.ints(*axes)]
        inputs += [self.ints(*steps)] if any(step != 1 for step in steps) else []
        return self.sized_node("Slice", inputs, x.dtype, tuple(sizes))

    # -- types and choices
    def cast(self, x: OnnxTensor, dtype: VarType) -> OnnxTensor:
        if x.dtype is dtype:
            return x
        if dtype not in ELEMENTS:
            raise NotExported(f"elements of {dtype.text}")
        if x.value is not None and x.value.size <= _MOST_FOLDED and dtype is not VarType.BF16:
            return self.constant(x.value.astype(dtype.numpy))
        return self.sized_node("Cast", [x], dtype, x.sizes, to=ELEMENTS[dtype])

    def where(self, condition: OnnxTensor, x: OnnxTensor, y: OnnxTensor) -> OnnxTensor:
        sizes = self._common(self._common(condition.sizes, x.sizes), y.sizes)
        return self.sized_node("Where", [condition, x, y], x.dtype, sizes)

    def _common(self, one: tuple[int, ...], two: tuple[int, ...]) -> tuple[int, ...]:
        """The broadcast shape, with -1 where symbols that may be equal meet."""
        ndim = max(len(one), len(two))
        one, two = (1,) * (ndim - len(one)) + one, (1,) * (ndim - len(two)) + two
        return tuple(_common_size(*pair) for pair in zip(one, two, strict=True))

    def reduce(self, op: str, x: OnnxTensor, axes: Sequence[int], keep: bool = False) -> OnnxTensor:
        """Reduce over axes (``ReduceSum`` and others); without axes, the tensor itself."""
        axes = sorted(axis % x.ndim for axis in axes)
        if not axes:
            return self.identity(x)
        sizes = tuple(1 if axis in axes else size for axis, size in enumerate(x.sizes) if keep or axis not in axes)
        if op == "ReduceSum" or self.opset >= 18:
            return self.sized_node(op, [x, self.ints(*axes)], x.dtype, sizes, keepdims=int(keep))
        return self.sized_node(op, [x], x.dtype, sizes, axes=axes, keepdims=int(keep))

    def matmul(self, x: OnnxTensor, y: OnnxTensor) -> OnnxTensor:
        """Multiply two tensors of at least two dimensions, as numpy does."""
        batch = self._common(x.sizes[:-2], y.sizes[:-2])
        return self.sized_node("MatMul", [x, y], x.dtype, (*batch, x.sizes[-2], y.sizes[-1]))

    def arange(self, count: Size) -> OnnxTensor:
        """0, 1, ... as int64."""
        if isinstance(count, int):
            return self.constant(np.arange(count))
        end = self.squeeze(count, 0)
        return self.node("Range", [self.constant(np.int64(0)), end, self.constant(np.int64(1))], Spec((-1,), VarType.INT64))

    # -- graphs inside nodes
    def choose(
        self, condition: OnnxTensor, yes: Callable[[], Sequence[OnnxTensor]], no: Callable[[], Sequence[OnnxTensor]]
    ) -> list[OnnxTensor]:
        """Append `If` for a condition of one element."""
        branches = []
        for make in (yes, no):
            with self.inner_graph() as scope:
                scope.outputs = [self.identity(value) for value in make()]
            branches.append(scope)
        flag = condition if condition.ndim == 0 else self.reshape(condition, [])
        specs = []
        for yes_value, no_value in zip(branches[0].outputs, branches[1].outputs, strict=True):
            same = yes_value.ndim == no_value.ndim
            shape = agreed_sizes(yes_value.shape, no_value.shape) if same else yes_value.shape
            specs.append(Spec(shape, yes_value.dtype, yes_value.spec.type))
        return self.nodes("If", [flag], specs, then_branch=branches[0], else_branch=branches[1])


def _common_size(one: int, two: int) -> int:
    """The broadcast size of a dimension; -1 if it is unknown which of the two sizes is 1."""
    if one == two or two == 1:
        return one
    if one == 1:
        return two
    numbers = [size for size in (one, two) if is_number(size)]
    return numbers[0] if numbers else -1
