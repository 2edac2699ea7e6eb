"""Write ops on arrays of tensors: an array is a sequence, and zeros, or an empty tensor, stand for a missing entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fluid.ir.program import Operator
from fluid.opdef.registry import grad_slot
from fluid.values.spec import Spec, agreed_sizes
from fluid.values.types import VarType

from .graph import ELEMENTS, NotExported, OnnxGraph, OnnxTensor
from .making import filled, zeros_like
from .program import Names, ProgramWriter, handles, handles_arrays


def is_array(x: OnnxTensor) -> bool:
    return x.spec.type is VarType.LOD_TENSOR_ARRAY


def _array_spec(spec: Spec) -> Spec:
    """The spec of an array whose entries have a spec."""
    return replace(spec, type=VarType.LOD_TENSOR_ARRAY, lod=())


def empty_array(g: OnnxGraph, spec: Spec) -> OnnxTensor:
    """An array without entries; `spec` is the spec of an entry."""
    if spec.dtype not in ELEMENTS:
        raise NotExported(f"arrays of {spec.dtype.text}")
    return g.node("SequenceEmpty", [], _array_spec(spec), dtype=ELEMENTS[spec.dtype])


def _length(g: OnnxGraph, array: OnnxTensor) -> OnnxTensor:
    """The number of entries, of shape []."""
    return g.node("SequenceLength", [array], Spec((), VarType.INT64))


def _number(g: OnnxGraph, x: OnnxTensor) -> OnnxTensor:
    """A position, as int64 of shape []."""
    x = g.cast(x, VarType.INT64)
    return x if not x.ndim else g.reshape(x, [])


def insert(g: OnnxGraph, array: OnnxTensor, entry: OnnxTensor, at: OnnxTensor | None = None) -> OnnxTensor:
    """Insert an entry into an array, at the end or at a position."""
    return g.node("SequenceInsert", [array, entry, at], array.spec)


def _missing(g: OnnxGraph, spec: Spec) -> OnnxTensor:
    """The placeholder of a missing entry: zeros if all entries have one known shape, else a tensor without elements."""
    return filled(g, g.ints(*spec.shape), 0, spec) if _has_one_shape(spec) else g.constant(np.zeros(0, spec.dtype.numpy))


def _has_one_shape(spec: Spec) -> bool:
    return bool(spec.shape) and -1 not in spec.shape


def _entry(g: OnnxGraph, array: OnnxTensor, at: OnnxTensor) -> OnnxTensor:
    return g.node("SequenceAt", [array, at], replace(array.spec, type=VarType.LOD_TENSOR))


def repeat(
    g: OnnxGraph, count: OnnxTensor, array: OnnxTensor, change: Callable[[OnnxTensor, OnnxTensor], OnnxTensor]
) -> OnnxTensor:
    """Apply `change` to an array `count` times; `change` maps the array and the step number to the next array."""
    with g.inner_graph() as scope:
        number = OnnxTensor(g, g.unique("number"), Spec((), VarType.INT64))
        going = OnnxTensor(g, g.unique("going"), Spec((), VarType.BOOL))
        so_far = OnnxTensor(g, g.unique("array"), array.spec)
        scope.inputs += [number, going, so_far]
        scope.outputs = [g.identity(going), change(so_far, number)]
    return g.node("Loop", [count, None, array], array.spec, body=scope)


def stack_of(g: OnnxGraph, count: OnnxTensor, make: Callable[[OnnxTensor], OnnxTensor]) -> OnnxTensor:
    """Stack ``make(0)``, ``make(1)``, ... along a new first axis."""
    with g.inner_graph() as scope:
        number = OnnxTensor(g, g.unique("number"), Spec((), VarType.INT64))
        going = OnnxTensor(g, g.unique("going"), Spec((), VarType.BOOL))
        scope.inputs += [number, going]
        row = g.identity(make(number))
        scope.outputs = [g.identity(going), row]
    return g.node("Loop", [count, None], Spec((-1, *row.shape), row.dtype), body=scope)


def write_entry(g: OnnxGraph, array: OnnxTensor, at: OnnxTensor, entry: OnnxTensor) -> OnnxTensor:
    """Write an entry at a position of an array, which grows as needed."""
    length = _length(g, array)

    def replaced() -> Sequence[OnnxTensor]:
        shorter = g.node("SequenceErase", [array, at], array.spec)
        return [insert(g, shorter, entry, at)]

    def appended() -> Sequence[OnnxTensor]:
        gap = g.binary("Sub", at, length)
        longer = repeat(g, gap, array, lambda so_far, _: insert(g, so_far, _missing(g, array.spec)))
        return [insert(g, longer, entry)]

    is_inside = g.binary("Less", at, length)
    [result] = g.choose(is_inside, replaced, appended)
    result.spec = array.spec
    return result


def read(g: OnnxGraph, array: OnnxTensor, at: OnnxTensor, like: OnnxTensor | None) -> OnnxTensor:
    """The entry at a position; zeros like a tensor if it is missing."""
    if like is None:
        return _entry(g, array, at)
    model = like

    def present() -> Sequence[OnnxTensor]:
        entry = _entry(g, array, at)
        if _has_one_shape(array.spec):
            return [entry]
        count = g.node("Size", [entry], Spec((), VarType.INT64))
        [result] = g.choose(g.binary("Greater", count, g.constant(np.int64(0))), lambda: [entry], lambda: [zeros_like(g, model)])
        return [result]

    [result] = g.choose(g.binary("Less", at, _length(g, array)), present, lambda: [zeros_like(g, model)])
    result.spec, result.sizes = like.spec, like.sizes
    return result


# ------------------------------------------------------------------------------------------------------------------ ops
def _array(writer: ProgramWriter, op: Operator, slot: str, names: Names) -> OnnxTensor:
    name = op.input(slot)[0]
    value = names.get(name)
    if value is not None:
        return value
    var = op.block.find_var(name)
    if var is None:
        raise NotExported(f"{name} is not known")
    return empty_array(writer.graph, var.spec)


def _tensor(op: Operator, slot: str, names: Names) -> OnnxTensor | None:
    slot_names = op.input(slot) if slot in op.inputs else []
    return names.need(slot_names[0], op) if slot_names else None


@handles("new_array")
def new_array(writer: ProgramWriter, op: Operator, names: Names) -> None:
    names.set(op.output("Out")[0], empty_array(writer.graph, Spec((), VarType(op.attr("dtype")))))


@handles("write_to_array")
def write_to_array(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, name = writer.graph, op.output("Out")[0]
    entry, at = _tensor(op, "X", names), _tensor(op, "I", names)
    assert at is not None
    if entry is None:
        raise NotExported(f"{op.input('X')[0]} has no value to write")
    if is_array(entry):
        raise NotExported("arrays of arrays")
    if entry.lengths is not None:
        raise NotExported("arrays of sequences")
    array = names.get(name)
    if array is None:
        var = op.block.find_var(name)
        shape = var.spec.shape if var is not None and var.has_shape and len(var.spec.shape) == entry.ndim else entry.shape
        array = empty_array(g, Spec(shape, entry.dtype))
    if array.dtype is not entry.dtype:  # declared before the element type was known
        array = empty_array(g, entry.spec)
    if not array.spec.shape and entry.ndim:
        array.spec = replace(array.spec, shape=entry.shape)
    if array.spec.shape and len(array.spec.shape) != entry.ndim:
        raise NotExported("an array whose entries differ in their number of dimensions")
    array.spec = replace(array.spec, shape=agreed_sizes(array.spec.shape, entry.shape))
    value = _missing(g, array.spec) if op.attr("clears") else entry
    result = write_entry(g, array, _number(g, at), value)
    names.set(name, result)


@handles("read_from_array")
def read_from_array(writer: ProgramWriter, op: Operator, names: Names) -> None:
    array, at, like = _array(writer, op, "X", names), _tensor(op, "I", names), _tensor(op, "X_W", names)
    assert at is not None
    g = writer.graph
    entry = read(g, array, _number(g, at), like)
    var = op.block.find_var(op.output("Out")[0])
    if like is None and var is not None and var.has_shape and len(var.shape) != entry.ndim:
        entry.spec = Spec(var.shape, entry.dtype)
        entry.sizes = var.shape
    names.set(op.output("Out")[0], entry)


@handles("lod_array_length")
def lod_array_length(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g = writer.graph
    names.set(op.output("Out")[0], g.reshape(_length(g, _array(writer, op, "X", names)), [1]))


@handles("stack_array")
def stack_array(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, array = writer.graph, _array(writer, op, "X", names)
    spec = Spec((-1, *array.shape), array.dtype)
    names.set(op.output("Out")[0], g.node("ConcatFromSequence", [array], spec, axis=0, new_axis=1))


@handles("stack_array_like")
def stack_array_like(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, array, like = writer.graph, _array(writer, op, "X", names), _tensor(op, "Like", names)
    assert like is not None
    count = g.reshape(g.as_size(g.size(like, 0)), [])
    result = stack_of(g, count, lambda number: read(g, array, number, g.gather(like, number)))
    result.sizes = like.sizes
    result.spec = like.spec
    names.set(op.output("Out")[0], result)


@handles("unstack_array")
def unstack_array(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, x = writer.graph, _tensor(op, "X", names)
    assert x is not None
    spec = _array_spec(Spec(x.shape[1:], x.dtype))
    names.set(op.output("Out")[0], g.node("SplitToSequence", [x], spec, axis=0, keepdims=0))


@handles("tensor_array_to_tensor", "join_array")
def join_array(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, array = writer.graph, _array(writer, op, "X", names)
    axis, stacks = op.attr("axis"), bool(op.attr("use_stack"))
    rank = array.ndim + stacks
    axis = axis % rank
    if "Like" in op.inputs:
        like, old = _array(writer, op, "Like", names), array

        def entry(so_far: OnnxTensor, number: OnnxTensor) -> OnnxTensor:
            return insert(g, so_far, read(g, old, number, _entry(g, like, number)))

        array = repeat(g, _length(g, like), empty_array(g, like.spec), entry)
    shape = list(array.shape)
    shape[axis : axis + (not stacks)] = [-1]
    joined = g.node("ConcatFromSequence", [array], Spec(tuple(shape), array.dtype), axis=axis, new_axis=int(stacks))
    names.set(op.output("Out")[0], joined)
    if op.outputs.get("OutIndex"):
        entries = array

        def size(number: OnnxTensor) -> OnnxTensor:
            if axis == entries.ndim:  # they are stacked behind their last axis
                return g.constant(np.int32(1))
            return g.cast(g.reshape(g.as_size(g.size(_entry(g, entries, number), axis)), []), VarType.INT32)

        names.set(op.outputs["OutIndex"][0], stack_of(g, _length(g, array), size))


@handles("split_array", "tensor_array_to_tensor_grad")
def split_array(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, is_grad = writer.graph, op.type != "split_array"
    joined = _tensor(op, grad_slot("Out") if is_grad else "X", names)
    like = _array(writer, op, "X" if is_grad else "Like", names)
    assert joined is not None
    axis = op.attr("axis") % joined.ndim
    out = op.output(grad_slot("X") if is_grad else "Out")[0]
    if op.attr("use_stack"):
        spec = _array_spec(Spec(like.shape, joined.dtype))
        names.set(out, g.node("SplitToSequence", [joined], spec, axis=axis, keepdims=0))
        return

    def size(number: OnnxTensor) -> OnnxTensor:
        return g.reshape(g.as_size(g.size(_entry(g, like, number), axis)), [])

    sizes = stack_of(g, _length(g, like), size)
    names.set(out, g.node("SplitToSequence", [joined, sizes], _array_spec(Spec(like.shape, joined.dtype)), axis=axis))


# ---------------------------------------------------------------------------------------------- ops that arrays share
@handles_arrays("assign")
def assign(writer: ProgramWriter, op: Operator, names: Names) -> None:
    names.set(op.output("Out")[0], _array(writer, op, "X", names))


@handles_arrays("fill_zeros_like")
def fill_zeros_like(writer: ProgramWriter, op: Operator, names: Names) -> None:
    names.set(op.output("Out")[0], empty_array(writer.graph, _array(writer, op, "X", names).spec))


@handles_arrays("scale")
def scale(writer: ProgramWriter, op: Operator, names: Names) -> None:
    g, array = writer.graph, _array(writer, op, "X", names)
    if op.attr("scale") == 1.0 and op.attr("bias") == 0.0:
        names.set(op.output("Out")[0], array)
        return

    def entry(so_far: OnnxTensor, number: OnnxTensor) -> OnnxTensor:
        one = _entry(g, array, number)
        scaled = g.binary("Mul", one, g.number(op.attr("scale"), one))
        return insert(g, so_far, g.binary("Add", scaled, g.number(op.attr("bias"), one)))

    names.set(op.output("Out")[0], repeat(g, _length(g, array), empty_array(g, array.spec), entry))


@handles_arrays("sum")
def sum_(writer: ProgramWriter, op: Operator, names: Names) -> None:
    """Add arrays entry by entry; an entry of only one array is copied."""
    g = writer.graph
    arrays = [value for name in op.input("X") if (value := names.get(name)) is not None]
    total = arrays[0]
    for array in arrays[1:]:
        total = added_arrays(g, total, array)
    names.set(op.output("Out")[0], total)


def added_arrays(g: OnnxGraph, one: OnnxTensor, two: OnnxTensor) -> OnnxTensor:
    """Add two arrays entry by entry; an entry of only one array is copied."""
    same = one.spec.shape == two.spec.shape and _has_one_shape(one.spec)
    placeholder = _missing(g, one.spec) if same else g.constant(np.zeros(0, one.dtype.numpy))

    def entry_of(array: OnnxTensor, number: OnnxTensor) -> OnnxTensor:
        is_inside = g.binary("Less", number, _length(g, array))
        [value] = g.choose(is_inside, lambda: [_entry(g, array, number)], lambda: [placeholder])
        value.spec = Spec(one.shape, one.dtype)
        value.sizes = one.shape
        return value

    def is_missing(x: OnnxTensor) -> OnnxTensor:
        return g.binary("Equal", g.node("Size", [x], Spec((), VarType.INT64)), g.constant(np.int64(0)))

    def entry(so_far: OnnxTensor, number: OnnxTensor) -> OnnxTensor:
        a, b = entry_of(one, number), entry_of(two, number)
        if same:
            return insert(g, so_far, g.binary("Add", a, b))

        def of_both() -> Sequence[OnnxTensor]:
            [value] = g.choose(is_missing(b), lambda: [a], lambda: [g.binary("Add", a, b)])
            return [value]

        [value] = g.choose(is_missing(a), lambda: [b], of_both)
        return insert(g, so_far, value)

    count = g.binary("Max", _length(g, one), _length(g, two))
    return repeat(g, count, empty_array(g, one.spec), entry)
