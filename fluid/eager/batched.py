"""Backward through a graph for a batch of weights at once: the gradients of a whole Jacobian matrix in one pass.

A gradient rule is linear in the gradients that it receives. Here it receives `Batched` ones, with a value for each row of the
batch; results of saved values alone are computed once. An op on batched values runs on all rows together if `_TABLE` says how,
else on one row after another. Nodes that are not ops, or that have hooks, also run row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..executor.binding.array_types import ArrayType, array_type_like
from ..opdef.inference import OpNamespace, infer_specs
from ..opdef.registry import OpDef
from ..ops.conv import image_axes
from ..ops.reduction import reduced_axes
from ..ops.shapes import aligned
from ..values.operators import ValueOperators
from ..values.spec import Lod
from ..values.types import VarType
from .dispatch import namespace, run_rule
from .engine import GraphTask, edge_of, engine
from .graph import Node, OpNode
from .mode import enable_grad, no_grad
from .tensor import Tensor, make

_Shape = tuple[int, ...]


class Batched(ValueOperators):
    """A value for each row of a batch. Gradient rules see it as the value of one row.

    Attributes:
        tensor: all of them, with the batch as first dimension.
    """

    __slots__ = ("tensor",)
    _eager = True

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def _ops(self) -> OpNamespace:
        return _batched_ops

    @property
    def _array(self) -> Any:
        return self.tensor._array

    @property
    def _kind(self) -> ArrayType:
        kind = self.tensor._kind
        return array_type_like(replace(kind.spec, shape=kind.shape[1:]), kind.xp)

    @property
    def shape(self) -> _Shape:
        return self.tensor.shape[1:]

    @property
    def ndim(self) -> int:
        return self.tensor.ndim - 1

    @property
    def dtype(self) -> VarType:
        return self.tensor.dtype

    @property
    def lod(self) -> Lod:
        return ()

    def reshape(self, shape: _Shape) -> Batched:
        """The elements of each row in another shape."""
        return Batched(self.all_rows_as(shape))

    def all_rows_as(self, shape: _Shape) -> Tensor:
        """All rows as one tensor, each row reshaped to this shape."""
        return self.tensor if shape == self.shape else _reshaped(self.tensor, (len(self.tensor), *shape))

    def row(self, number: int) -> Tensor:
        """A copy of one row, which may be modified."""
        if self.tensor._stop:
            return make(self.tensor._array[number : number + 1].reshape(self.shape).copy(), self._kind)
        return self.tensor[number].reshape(self.shape)


def _reshaped(tensor: Tensor, shape: _Shape) -> Tensor:
    """Reshape a tensor, in the same memory unless the op has to be recorded."""
    if not tensor._stop:
        return tensor.reshape(shape)
    kind = tensor._kind
    return make(tensor._array.reshape(shape), array_type_like(replace(kind.spec, shape=shape), kind.xp))


def batched_gradients(output: Tensor, inputs: Sequence[Tensor], weights: Tensor, create_graph: bool) -> list[Tensor | None]:
    """For each row of `weights`, in one pass, the gradients of the sum of `output` with these weights: of shape [rows, *input].

    None for an input that `output` does not depend on.
    """
    targets = [edge_of(tensor) for tensor in inputs]
    values = engine.execute(lambda: BatchedTask([edge_of(output)], [Batched(weights)], targets, create_graph))
    return [None if value is None else value.tensor for value in values]


class BatchedTask(GraphTask):
    """A pass whose gradients are batched."""

    def __init__(
        self, roots: Sequence[tuple[Node, int]], seeds: Sequence[Batched], targets: Sequence[tuple[Node, int]], record: bool
    ) -> None:
        super().__init__(roots, seeds, keep_graph=True, create_graph=True, targets=targets)
        self._record, self._rows = record, len(seeds[0].tensor)

    def _apply(self, node: Node, grads: list[Any], wanted: Sequence[bool] | None) -> Sequence[Any]:
        with enable_grad() if self._record else no_grad():
            if type(node) is OpNode and not _has_sequences(node) and node._compiled_op.op.definition.decomposition is None:
                assert wanted is not None  # as there are targets
                gradients = run_rule(node, grads, wanted, _batched_ops)
                return [value if value is None else _repeat_for_rows(value, self._rows) for value in gradients]
            return self._row_by_row(lambda rows: self._row(node, rows, wanted), grads)

    def _row(self, node: Node, grads: list[Any], wanted: Sequence[bool] | None) -> Sequence[Any]:
        if self._record:
            return node.apply_recorded(grads, wanted, True)
        arrays = node.apply([None if grad is None else grad._array for grad in grads], wanted, True)
        return [None if array is None else Tensor._of(array) for array in arrays]

    def _row_by_row(self, function: Callable[..., Sequence[Any]], *gradients: Sequence[Any]) -> list[Any]:
        """Apply a function of lists of gradients to one row after another."""
        rows = [[[None if g is None else g.row(number) for g in grads] for grads in gradients] for number in range(self._rows)]
        results: list[Any] = _stacked([list(function(*row)) for row in rows])
        return results

    # -- hooks see one row after another
    def _before(self, node: Node, grads: list[Any]) -> list[Any]:
        before = super()._before
        return self._row_by_row(lambda rows: before(node, rows), grads)

    def _after(self, node: Node, received: Sequence[Any], gradients: Sequence[Any]) -> Sequence[Any]:
        after = super()._after
        return self._row_by_row(lambda *rows: after(node, *rows), received, gradients)


def _has_sequences(node: OpNode) -> bool:
    compiled_op = node._compiled_op
    return any(
        kind is None or kind.lod or kind.spec.type is not VarType.LOD_TENSOR
        for kind in (*compiled_op.kinds, *compiled_op.out_kinds)
    )


# ---------------------------------------------------------------------------------------------------------- ops on batches
@dataclass
class _BatchedOp:
    """An op that is applied to batched values.

    Attributes:
        values: the inputs by slot: `Batched` ones, tensors that are common to all rows, lists of both.
        attrs: all attributes.
        rows: how many rows the batch has.
    """

    definition: OpDef
    values: dict[str, Any]
    attrs: Mapping[str, Any]
    rows: int

    def __getitem__(self, slot: str) -> Any:
        return self.values[slot]

    def run(self, *inputs: Any, **attrs: Any) -> Any:
        """Run the op on tensors, with some attributes replaced."""
        return getattr(namespace, self.definition.type)(*inputs, **{**self.attrs, **attrs})

    @property
    def shape(self) -> _Shape:
        """The shape of the first output of one row."""
        specs = infer_specs(self.definition, {slot: value._kind.spec for slot, value in self.values.items()}, self.attrs)
        return specs[next(iter(self.definition.outputs))].shape  # type: ignore[no-any-return]

    def like(self, *batch: int) -> Tensor:
        """A tensor with the shape of Like, for all rows or for all images; nothing reads its elements."""
        shape = self["Like"].shape
        return _empty(self["Like"], (*batch, *shape) if batch else (self.rows * shape[0], *shape[1:]))


_Batching = Callable[[_BatchedOp], Any]
"""Computes the first output for all rows, or returns NotImplemented."""
_TABLE: dict[str, tuple[_Batching, tuple[str, ...]]] = {}
"""Op type -> how to apply it to all rows at once; and the allowed input slots, of which only the first is batched. Without slots,
any input may be."""


def _for(*op_types: str, slots: tuple[str, ...] = ()) -> Callable[[_Batching], _Batching]:
    def enter(batching: _Batching) -> _Batching:
        _TABLE.update(dict.fromkeys(op_types, (batching, slots)))
        return batching

    return enter


class _BatchedOps(OpNamespace):
    """Ops over tensors and batched values."""

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        shaped = {slot for slot in inputs if slot in definition.inputs and definition.inputs[slot].shape_only}
        values = {slot: _one_row(value) if slot in shaped else value for slot, value in inputs.items()}
        rows = next((len(value.tensor) for value in _flat(values) if isinstance(value, Batched)), None)
        if rows is None:
            return namespace.apply(definition, values, attrs)
        call = _BatchedOp(definition, values, definition.defaults(definition.check_attrs(attrs)), rows)
        result = _for_all_rows(call)
        if result is not NotImplemented:
            return {next(iter(definition.outputs)): result}
        outputs = [
            namespace.apply(definition, _map_batched(lambda value: value.row(number), values), attrs)  # noqa: B023
            for number in range(rows)
        ]
        return {slot: _stacked([by_slot[slot] for by_slot in outputs]) for slot in outputs[0]}

    def apply_all(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        if any(isinstance(value, Batched) for value in _flat(inputs)):
            return self.apply(definition, inputs, attrs)
        return namespace.apply_all(definition, inputs, attrs)


_batched_ops = _BatchedOps()


def _for_all_rows(call: _BatchedOp) -> Any:
    """The first output of an op for all rows; NotImplemented if the op is not in the table."""
    batching, slots = _TABLE.get(call.definition.type, (None, ()))
    if batching is None:
        return NotImplemented
    if slots:
        batched = [slot for slot, value in call.values.items() if isinstance(value, Batched)]
        if batched != [slots[0]] or not call.values.keys() <= set(slots):
            return NotImplemented
    result = batching(call)
    if isinstance(result, (list, tuple)):
        return [_batched(item) for item in result]
    return result if result is NotImplemented else _batched(result)


def _batched(value: Any) -> Batched:
    return value if isinstance(value, Batched) else Batched(value)


def _flat(values: Mapping[str, Any]) -> list[Any]:
    return [item for value in values.values() for item in (value if isinstance(value, (list, tuple)) else [value])]


def _map_batched(function: Callable[[Batched], Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a function to the batched inputs, also inside lists."""

    def of(value: Any) -> Any:
        return function(value) if isinstance(value, Batched) else value

    return {
        slot: [of(item) for item in value] if isinstance(value, (list, tuple)) else of(value) for slot, value in values.items()
    }


def _stacked(rows: Sequence[Any]) -> Any:
    """Stack the tensors of rows, with zeros for None, to a batched value; lists of tensors to a list. None if there is no
    tensor."""
    if isinstance(rows[0], (list, tuple)):
        return [_stacked(parts) for parts in zip(*rows, strict=True)]
    example = next((row for row in rows if row is not None), None)
    if example is None:
        return None
    return Batched(namespace.stack([namespace.fill_zeros_like(example) if row is None else row for row in rows], axis=0))


def _empty(value: Any, shape: _Shape) -> Tensor:
    """A tensor of this shape, of the element type and on the device of a value, whose elements nothing reads."""
    kind = array_type_like(replace(value._kind.spec, shape=shape), value._kind.xp)
    return make(kind.xp.empty(shape, kind.numpy_dtype), kind)


def _one_row(value: Any) -> Any:
    """A stand-in for one row of a value; only its shape is read."""
    if isinstance(value, (list, tuple)):
        return [_one_row(item) for item in value]
    return _empty(value, value.shape) if isinstance(value, Batched) else value


def _repeat_for_rows(value: Any, rows: int) -> Batched:
    """The value if batched; else repeat it in each row."""
    if isinstance(value, Batched):
        return value
    return Batched(namespace.expand_v2(_reshaped(value, (1, *value.shape)), shape=[rows, *value.shape]))


def _past_batch_axis(axes: Any) -> Any:
    """Shift an axis of one row, or several axes, past the batch axis."""
    if isinstance(axes, (list, tuple)):
        return [_past_batch_axis(axis) for axis in axes]
    return axes + 1 if axes >= 0 else axes


# -- element by element
@_for("scale", "cast", "assign", slots=("X",))
def _pointwise(call: _BatchedOp) -> Any:
    return call.run(call["X"].tensor)


@_for("elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div")
def _binary(call: _BatchedOp) -> Any:
    axis, rank = call.attrs["axis"], max(call["X"].ndim, call["Y"].ndim)

    def placed(value: Any) -> Tensor:
        shape = aligned(value.shape, rank, axis)
        if isinstance(value, Batched):
            return value.all_rows_as(shape)
        return value if axis == -1 or value.shape == shape else _reshaped(value, shape)

    return call.run(placed(call["X"]), placed(call["Y"]), axis=-1)


@_for("sum")
def _sum(call: _BatchedOp) -> Any:
    return call.run([_repeat_for_rows(item, call.rows).tensor for item in call["X"]])


@_for("where")
def _where(call: _BatchedOp) -> Any:
    return call.run(*[_repeat_for_rows(call[slot], call.rows).tensor for slot in ("Condition", "X", "Y")])


# -- sums, and their transposes
@_for("sum_to")
def _sum_to(call: _BatchedOp) -> Any:
    X, like = call["X"], call["Like"].shape
    if X.ndim < len(like):
        return X.all_rows_as(like) if prod(X.shape) == prod(like) else NotImplemented
    pairs = list(enumerate(zip(aligned(like, X.ndim, call.attrs["axis"]), X.shape, strict=True), 1))
    if any(small not in (1, size) for _, (small, size) in pairs):
        return NotImplemented
    summed = [axis for axis, (small, size) in pairs if small != size]
    return Batched(namespace.reduce_sum(X.tensor, dim=summed, keep_dim=True) if summed else X.tensor).all_rows_as(like)


@_for("expand_to")
def _expand_to(call: _BatchedOp) -> Any:
    shape = aligned(call["X"].shape, call["Like"].ndim, call.attrs["axis"])
    return call.run(call["X"].all_rows_as(shape), call.like(call.rows), axis=-1)


@_for("reduce_sum", "reduce_mean")
def _reduce(call: _BatchedOp) -> Any:
    axes = reduced_axes(call["X"].ndim, call.attrs["dim"], call.attrs["reduce_all"])
    if not axes:
        return NotImplemented
    return Batched(call.run(call["X"].tensor, dim=_past_batch_axis(axes), reduce_all=False)).all_rows_as(call.shape)


@_for("expand_reduced")
def _expand_reduced(call: _BatchedOp) -> Any:
    ndim = call["Like"].ndim
    axes = reduced_axes(ndim, call.attrs["dim"], call.attrs["reduce_all"])
    if not axes:
        return NotImplemented
    x = call["X"].all_rows_as(()) if len(axes) == ndim and not call.attrs["keep_dim"] else call["X"].tensor
    return call.run(x, call.like(call.rows), dim=_past_batch_axis(axes), reduce_all=False)


@_for("cumsum")
def _cumsum(call: _BatchedOp) -> Any:
    return NotImplemented if call.attrs["flatten"] else call.run(call["X"].tensor, axis=_past_batch_axis(call.attrs["axis"]))


# -- the same elements in another shape or order
@_for("reshape", "reshape2", "squeeze", "squeeze2", "unsqueeze", "unsqueeze2", "flatten", "flatten2", slots=("X",))
@_for("reshape_like", "unreshape", "flatten_contiguous_range")
def _reshape(call: _BatchedOp) -> Any:
    return call["X"].all_rows_as(call.shape)


@_for("transpose", "transpose2")
def _transpose(call: _BatchedOp) -> Any:
    return call.run(call["X"].tensor, axis=[0, *(axis % call["X"].ndim + 1 for axis in call.attrs["axis"])])


# -- joining and cutting
@_for("concat", "stack")
def _join(call: _BatchedOp) -> Any:
    if call.values.keys() != {"X"}:
        return NotImplemented
    return call.run([_repeat_for_rows(item, call.rows).tensor for item in call["X"]], axis=_past_batch_axis(call.attrs["axis"]))


@_for("unstack", "split", slots=("X",))
def _cut(call: _BatchedOp) -> Any:
    return _listed(call.run(call["X"].tensor, axis=_past_batch_axis(call.attrs["axis"])))


@_for("split_like")
def _split_like(call: _BatchedOp) -> Any:
    if call.values.keys() != {"X", "Like"}:
        return NotImplemented
    likes = [_empty(item, (call.rows, *item.shape)) for item in call["Like"]]
    return _listed(call.run(call["X"].tensor, likes, axis=_past_batch_axis(call.attrs["axis"])))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


@_for("slice", "strided_slice", slots=("Input",))
def _slice(call: _BatchedOp) -> Any:
    axes, gone = _past_batch_axis(call.attrs["axes"]), _past_batch_axis(call.attrs["decrease_axis"])
    return Batched(call.run(call["Input"].tensor, axes=axes, decrease_axis=gone)).all_rows_as(call.shape)


@_for("unslice", "strided_unslice", "slice_like", "strided_slice_like", slots=("X", "Like"))
def _slice_like(call: _BatchedOp) -> Any:
    axes, gone = _past_batch_axis(call.attrs["axes"]), _past_batch_axis(call.attrs["decrease_axis"])
    return call.run(call["X"].tensor, call.like(call.rows), axes=axes, decrease_axis=gone)


# -- elements at indices
@_for("gather", slots=("X", "Index"))
def _gather(call: _BatchedOp) -> Any:
    return call.run(call["X"].tensor, call["Index"], axis=_past_batch_axis(call.attrs["axis"]))


@_for("scatter_add_like", slots=("X", "Index", "Like"))
def _scatter(call: _BatchedOp) -> Any:
    return call.run(call["X"].tensor, call["Index"], call.like(call.rows), axis=_past_batch_axis(call.attrs["axis"]))


@_for("pick", slots=("X", "Index"))
def _pick(call: _BatchedOp) -> Any:
    return call.run(
        call["X"].tensor, _repeat_for_rows(call["Index"], call.rows).tensor, axis=_past_batch_axis(call.attrs["axis"])
    )


@_for("place", slots=("X", "Index", "Like"))
def _place(call: _BatchedOp) -> Any:
    X, like = call["X"], call["Like"]
    like = _empty(like, (call.rows, *like.shape[like.ndim - X.ndim :]))
    return call.run(X.tensor, _repeat_for_rows(call["Index"], call.rows).tensor, like, axis=_past_batch_axis(call.attrs["axis"]))


# -- products of matrices
@_for("matmul_v2")
def _matmul(call: _BatchedOp) -> Any:
    X, Y = call["X"], call["Y"]
    if X.ndim < 2 or Y.ndim < 2:
        return NotImplemented
    return _product(X, Y, call.attrs["trans_x"], call.attrs["trans_y"], call.rows)


@_for("mul")
def _mul(call: _BatchedOp) -> Any:
    def matrix(value: Any, count: int) -> Any:
        shape = (prod(value.shape[:count]), prod(value.shape[count:]))
        return value.reshape(shape) if isinstance(value, Batched) else _reshaped(value, shape)

    left, right = matrix(call["X"], call.attrs["x_num_col_dims"]), matrix(call["Y"], call.attrs["y_num_col_dims"])
    return _product(left, right, False, False, call.rows).all_rows_as(call.shape)


def _product(X: Any, Y: Any, trans_x: bool, trans_y: bool, rows: int) -> Batched:
    """Multiply matrices, or stacks of them. If all rows share the right matrix, multiply one tall left matrix by it."""
    if not isinstance(Y, Batched) and Y.ndim == 2 and not trans_x:
        tall = _reshaped(X.tensor, (rows * prod(X.shape[:-1]), X.shape[-1]))
        product = namespace.matmul_v2(tall, Y, trans_y=trans_y)
        return Batched(_reshaped(product, (rows, *X.shape[:-1], product.shape[-1])))
    rank = max(X.ndim, Y.ndim)
    x, y = (value.all_rows_as(aligned(value.shape, rank, -1)) if isinstance(value, Batched) else value for value in (X, Y))
    return Batched(namespace.matmul_v2(x, y, trans_x=trans_x, trans_y=trans_y))


# -- images, each computed separately
def _images(value: Batched) -> Tensor:
    """The images of all rows, one after another."""
    return _reshaped(value.tensor, (len(value.tensor) * value.shape[0], *value.shape[1:]))


def _by_row(images: Tensor, rows: int) -> Tensor:
    return _reshaped(images, (rows, images.shape[0] // rows, *images.shape[1:]))


@_for("conv2d", "depthwise_conv2d", "conv3d", slots=("Input", "Filter"))
def _conv(call: _BatchedOp) -> Any:
    return _by_row(call.run(_images(call["Input"]), call["Filter"]), call.rows)


@_for("conv2d_backprop_input", "conv3d_backprop_input", slots=("Output", "Filter", "Like"))
def _conv_input(call: _BatchedOp) -> Any:
    return _by_row(call.run(call["Filter"], _images(call["Output"]), call.like()), call.rows)


@_for("conv2d_backprop_filter", "conv3d_backprop_filter", slots=("Output", "Input", "Like"))
def _conv_filter(call: _BatchedOp) -> Any:
    """Apply each row's filter; the outputs of all rows are channels of one output."""
    Output, (filters, *window) = call["Output"], call["Like"].shape
    if call.attrs["groups"] > 1 or image_axes(call.attrs["data_format"], Output.ndim)[0] != 1:
        return NotImplemented
    images, channels, *sizes = Output.shape
    side_by_side = namespace.transpose2(Output.tensor, axis=[1, 0, *range(2, Output.ndim + 1)])
    output = _reshaped(side_by_side, (images, call.rows * channels, *sizes))
    return _by_row(call.run(call["Input"], output, _empty(Output, (call.rows * filters, *window))), call.rows)


@_for("pool2d", "pool3d", slots=("X",))
def _pool(call: _BatchedOp) -> Any:
    return _by_row(call.run(_images(call["X"])), call.rows)


@_for("pool2d_average_back", "pool3d_average_back")
def _average_back(call: _BatchedOp) -> Any:
    return _by_row(call.run(_images(call["Output"]), call.like()), call.rows)
