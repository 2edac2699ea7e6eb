"""Ops that rearrange elements, and ops that pick elements by index.

These ops are linear. The gradient of an op is its transpose, whose gradient is the op again: `reshape2` and `unreshape`,
`slice` and `unslice`, `gather` and `scatter_add_like`, `pick` and `place`. The transposes are internal ops, with a slot for the
original value; only its shape is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from ..errors import ElementTypeError, InferenceError
from ..opdef.composition import means
from ..opdef.registry import ZERO_GRADIENT, ShapeOnly, define, get, ints, least, long, longs, required, strings
from ..values.spec import Spec
from ..values.types import VarType, as_dtype
from .shapes import (
    alike,
    broadcast,
    different_axes,
    may_equal,
    normalize_axes,
    normalize_axis,
    one_each,
    scalar_shape,
    slice_of,
    unknown_shape,
)

Shape = tuple[int, ...]


# ----------------------------------------------------------------------------------------------------- inference
def product(sizes: Sequence[int]) -> int:
    """The product of sizes; -1 if one is unknown."""
    return -1 if -1 in sizes else prod(sizes)


def _agree(a: int, b: int, subject: str, first: Shape, second: Shape) -> int:
    if -1 in (a, b) or a == b:
        return max(a, b)
    raise InferenceError(f"{subject}: sizes {a} and {b} differ in shapes {list(first)} and {list(second)}")


def _unknown(X: Spec) -> Shape:
    return (-1,) * X.ndim


def _with_xshape(X: Spec, shape: Shape) -> tuple[Spec, Spec]:
    return X.with_shape(shape), X.with_shape((0, *X.shape))


def _like_shape(X: Spec, Like: Spec) -> Spec:
    return X.with_shape(Like.shape)


LIKE: dict[str, Any] = {"infer": _like_shape, "wrt": ("X",), "shape_only": ("Like",)}
"""Arguments of `define` for ops that bring X to the shape of Like; only Like's shape is read."""


def transpose_of(op_type: str, source: str = "X") -> dict[str, Any]:
    """As `LIKE`, for the transpose of an op: X has the shape that the op makes of Like."""
    return {**LIKE, "infer": partial(_fitted, op_type, source, True)}


def like_result_of(op_type: str, source: str = "X") -> dict[str, Any]:
    """As `LIKE`, for an op whose result is known to have the shape of Like: that is possible for the shape of X."""
    return {**LIKE, "infer": partial(_fitted, op_type, source, False)}


def _fitted(op_type: str, source: str, transposes: bool, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> Spec:
    """Infer as `transpose_of` or `like_result_of`; axes that a slice drops may be there, with a size of 1."""
    X: Spec = inputs["X"]
    Like: Spec = inputs["Like"]
    definition, (first, second) = get(op_type), (Like, X) if transposes else (X, Like)
    slots = {slot: value for slot, value in inputs.items() if slot in definition.inputs and slot != "Like"}
    attributes = definition.defaults({name: value for name, value in attrs.items() if name in definition.attrs})

    def result(**changes: Any) -> Spec:
        declared = dict.fromkeys(definition.outputs, second)
        specs = definition.infer_specs({**slots, source: first.with_dtype(X.dtype)}, {**attributes, **changes}, declared)
        out: Spec = next(iter(specs.values()))
        return out

    out = result()
    shapes = [out.shape, result(decrease_axis=[]).shape] if attributes.get("decrease_axis") else [out.shape]
    if X.type is Like.type is VarType.LOD_TENSOR and not any(may_equal(shape, second.shape) for shape in shapes):
        raise InferenceError(f"X {X} and Like {Like} do not fit: {op_type} makes {out} of {'Like' if transposes else 'X'}")
    return X.with_shape(Like.shape)


def _like_of_first(X: list[Spec], Like: Spec) -> Spec:
    return X[0].with_shape(Like.shape)


def reshaped(x: Shape, shape: Sequence[int]) -> Shape:
    """The shape that the attribute `shape` asks for: 0 copies the size of `x`; one -1 is inferred from the number of elements."""
    if list(shape).count(-1) > 1 or any(size < -1 for size in shape):
        raise InferenceError(f"cannot reshape {list(x)} to {list(shape)}: at most one size may be -1, none below")
    out = []
    for axis, size in enumerate(shape):
        if size == 0 and axis >= len(x):
            raise InferenceError(f"cannot reshape {list(x)} to {list(shape)}: 0 at axis {axis} has no size to copy")
        out.append(x[axis] if size == 0 else size)
    have, requested = list(x), list(out)
    for axis in [axis for axis, size in enumerate(shape) if size == 0 and x[axis] in ((-1, 0) if -1 in shape else (-1,))]:
        requested[axis] = have[axis] = 1  # unknown or 0, but equal on both sides
    if -1 in have:
        return tuple(out)
    total, requested_count = prod(have), prod(size for size in requested if size != -1)
    if -1 in requested and requested_count and total % requested_count == 0:
        out[requested.index(-1)] = total // requested_count
    elif -1 in requested or total != requested_count:
        raise InferenceError(f"cannot reshape {list(x)} ({total} elements) to {list(shape)} ({requested_count} elements)")
    return tuple(out)


def _reshape_shape(X: Spec, Shape: Spec | None, ShapeTensor: Sequence[Spec] | None, shape: list[int]) -> Shape:
    if ShapeTensor:
        count = len(ShapeTensor)
        return tuple(size if size > 0 else -1 for size in shape) if len(shape) == count else (-1,) * count
    if Shape is not None:
        rank = Shape.size
        return unknown_shape(rank if rank >= 0 else len(shape)) if rank else reshaped(X.shape, ())
    return reshaped(X.shape, shape)


def _reshape(X: Spec, Shape: Spec | None, ShapeTensor: Sequence[Spec] | None, shape: list[int]) -> Spec:
    return X.with_shape(_reshape_shape(X, Shape, ShapeTensor, shape))


def _reshape2(X: Spec, Shape: Spec | None, ShapeTensor: Sequence[Spec] | None, shape: list[int]) -> tuple[Spec, Spec]:
    return _with_xshape(X, _reshape_shape(X, Shape, ShapeTensor, shape))


def _transposed(X: Spec, axis: list[int]) -> Spec:
    if sorted(i + X.ndim if i < 0 else i for i in axis) != list(range(X.ndim)):
        raise InferenceError(f"axis {axis} is not an order of the {X.ndim} dimensions of X {X}")
    return X.with_shape(tuple(X.shape[i] for i in axis))


def _squeezed(X: Spec, axes: list[int], declared: Mapping[str, Any]) -> Shape:
    """Remove the `axes` of size 1 from X's shape. An unknown size is assumed to be 1, which is checked at run time."""
    drop = set(normalize_axes(axes, X.ndim)) if axes else {i for i, size in enumerate(X.shape) if size == 1}
    remaining = tuple(size for i, size in enumerate(X.shape) if i not in drop or size not in (1, -1))
    out = declared.get("Out")
    if axes and out is not None and out.ndim < len(remaining) and -1 not in X.shape:
        raise InferenceError(
            f"axes {axes} of X {X} should have size 1, which was unknown when the program was built: Out was declared as {out}"
        )
    return remaining


def _unsqueezed(X: Spec, axes: list[int], AxesTensor: Spec | None = None, AxesTensorList: Any = None) -> Shape:
    if AxesTensorList:
        return (-1,) * (X.ndim + len(AxesTensorList))
    if AxesTensor is not None:
        return unknown_shape(X.ndim + (AxesTensor.size if AxesTensor.size >= 0 else 1))
    shape = list(X.shape)
    for axis in axes:
        shape.insert(normalize_axis(axis, len(shape) + 1), 1)
    return tuple(shape)


def _unsqueeze(X: Spec, axes: list[int]) -> Spec:
    return X.with_shape(_unsqueezed(X, axes))


def _unsqueeze2(X: Spec, axes: list[int], AxesTensor: Spec | None, AxesTensorList: Any) -> tuple[Spec, Spec]:
    return _with_xshape(X, _unsqueezed(X, axes, AxesTensor, AxesTensorList))


def _flattened(X: Spec, axis: int) -> Shape:
    if not 0 <= axis <= X.ndim:
        raise InferenceError(f"flatten: axis {axis} is outside of [0, {X.ndim}] for X {X}")
    return product(X.shape[:axis]), product(X.shape[axis:])


def _flatten(X: Spec, axis: int) -> Spec:
    return X.with_shape(_flattened(X, axis))


def _flatten_range(X: Spec, start_axis: int, stop_axis: int) -> tuple[Spec, Spec]:
    if X.ndim == 0:
        return _with_xshape(X, (1,))
    start, stop = normalize_axes([start_axis, stop_axis], X.ndim)
    if start > stop:
        raise InferenceError(
            f"flatten_contiguous_range: start_axis {start_axis} should not come after stop_axis {stop_axis} in X {X}"
        )
    return _with_xshape(X, (*X.shape[:start], product(X.shape[start : stop + 1]), *X.shape[stop + 1 :]))


def joined(shapes: Sequence[Shape], axis: int) -> Shape:
    """The shape of arrays of these shapes, of the same rank, joined along `axis`."""
    axis = normalize_axis(axis, len(shapes[0]))
    shape = list(shapes[0])
    for later in shapes[1:]:
        for i, size in enumerate(later):
            if i != axis:
                shape[i] = _agree(shape[i], size, f"concat along axis {axis}", shapes[0], later)
            else:
                shape[i] = -1 if -1 in (shape[i], size) else shape[i] + size
    return tuple(shape)


def _concat(X: list[Spec], AxisTensor: Spec | None, axis: int) -> Spec:
    first = X[0]
    for later in X[1:]:
        if later.ndim != first.ndim or later.dtype is not first.dtype:
            raise InferenceError(f"concat: inputs {first} and {later} differ in rank or element type")
    if AxisTensor is not None:
        normalize_axis(0, first.ndim)
        return first.with_shape(_unknown(first))
    return first.with_shape(joined([spec.shape for spec in X], axis))


def cut_sizes(shape: Shape, axis: int, count: int, sections: Sequence[int]) -> list[int]:
    """Sizes of the parts that `axis` is cut into: `sections`, where one may be -1, or else `count` equal ones."""
    size, parts = shape[axis], list(sections)
    if not parts:
        if size >= 0 and size % count:
            raise InferenceError(f"split: axis {axis} of X {list(shape)} cannot be cut into {count} equal parts")
        return [size // count if size >= 0 else -1] * count
    if size >= 0 and parts.count(-1) == 1:
        parts[parts.index(-1)] = size - sum(parts) - 1
    if size >= 0 and (sum(parts) != size or min(parts) < 0):
        raise InferenceError(
            f"split: sections {list(sections)} do not add up to {size}, the size of axis {axis} of X {list(shape)}"
        )
    return parts


def _split(
    X: Spec,
    AxisTensor: Spec | None,
    SectionsTensorList: Any,
    axis: int,
    num: int,
    sections: list[int],
    declared: Mapping[str, Any],
) -> list[Spec]:
    if num < 0:
        raise InferenceError(f"split: num {num} should not be below 0")
    count = num or len(sections) or len(SectionsTensorList or ()) or len(declared.get("Out") or ())
    if not count:
        raise InferenceError("split: give the number of parts in 'num' or their sizes in 'sections'")
    unknown = alike(X.with_shape(_unknown(X)), count, f"split: num {num}")
    if AxisTensor is not None:
        return unknown
    axis = normalize_axis(axis, X.ndim)
    if not SectionsTensorList:
        parts = cut_sizes(X.shape, axis, count, [] if num else sections)
    else:  # the attribute says which sizes are not in variables
        parts = [size if size > 0 else -1 for size in sections] if len(sections) == count else [-1] * count
    return [X.with_shape((*X.shape[:axis], part, *X.shape[axis + 1 :])) for part in parts]


def _split_like(X: Spec, Like: list[Spec], AxisTensor: Spec | None, axis: int) -> list[Spec]:
    if AxisTensor is None and not may_equal(X.shape, shape := joined([like.shape for like in Like], axis)):
        raise InferenceError(f"split_like: the parts {Like} of X {X} would be joined to {list(shape)}")
    return [X.with_shape(like.shape) for like in Like]


def sliced_size(size: int, start: int, end: int, stride: int = 1) -> int:
    """The number of elements that a strided slice takes of `size`; -1 if that is unknown."""
    return len(range(*slice_of(start, end, stride).indices(size))) if size >= 0 else -1


_BOUNDS = ("StartsTensor", "EndsTensor", "StridesTensor", "StartsTensorList", "EndsTensorList", "StridesTensorList")


def _slice(inputs: Mapping[str, Any], attrs: Mapping[str, Any], declared: Mapping[str, Any]) -> Spec:
    Input: Spec = inputs["Input"]
    if Input.type is VarType.LOD_TENSOR_ARRAY:
        return replace(Input, type=VarType.LOD_TENSOR) if attrs["decrease_axis"] else Input
    shape = list(Input.shape)
    axes, starts, ends = attrs["axes"], attrs["starts"], attrs["ends"]
    strides = attrs.get("strides") or [1] * len(axes)
    by_tensor = any(inputs.get(slot) for slot in _BOUNDS)
    if not by_tensor and not len(axes) == len(starts) == len(ends) == len(strides):
        raise InferenceError(f"slice: axes {axes}, starts {starts}, ends {ends} and strides {strides} differ in length")
    if 0 in strides:
        raise InferenceError(f"slice: strides {strides} should not be 0")
    for place, axis in enumerate(different_axes("axes", axes, Input.ndim)):
        shape[axis] = -1 if by_tensor else sliced_size(shape[axis], starts[place], ends[place], strides[place])
    decreased = different_axes("decrease_axis", attrs["decrease_axis"], Input.ndim)
    for slot in _BOUNDS:
        bounds = inputs.get(slot)
        count = -1 if not bounds else len(bounds) if isinstance(bounds, list) else bounds.shape[0]
        if count not in (-1, len(axes)):
            raise InferenceError(f"slice: {slot} has {count} bounds; it should have one for each of axes {axes}")
    for axis in decreased:
        if shape[axis] not in (1, -1):
            raise InferenceError(f"slice: axis {axis} is to be dropped but keeps {shape[axis]} elements of Input {Input}")
    left = tuple(size for axis, size in enumerate(shape) if axis not in decreased)
    if not left and decreased and not (declared.get("Out") is not None and declared["Out"].shape == ()):
        left = (1,)
    return Input.with_shape(left)


def _stack(X: list[Spec], axis: int) -> Spec:
    shape = list(X[0].shape)
    for spec in X[1:]:
        if spec.ndim != X[0].ndim or spec.dtype is not X[0].dtype:
            raise InferenceError(f"stack: inputs {X[0]} and {spec} differ in rank or element type")
        shape = [_agree(a, b, "stack", X[0].shape, spec.shape) for a, b in zip(shape, spec.shape, strict=True)]
    shape.insert(normalize_axis(axis, len(shape) + 1), len(X))
    return X[0].with_shape(tuple(shape))


def _unstack(X: Spec, axis: int, num: int, declared: Mapping[str, Any]) -> list[Spec]:
    axis = normalize_axis(axis, X.ndim)
    size = X.shape[axis]
    count = max(size, num) or len(declared.get("Y") or ())
    if count <= 0 or (num and size not in (-1, num)):
        raise InferenceError(f"unstack: axis {axis} of X {X} has {size} elements, but num is {num}")
    return alike(X.with_shape((*X.shape[:axis], *X.shape[axis + 1 :])), count, f"unstack: axis {axis} of X {X}, or num {num},")


def _gather(X: Spec, Index: Spec, Axis: Spec | None, axis: int) -> Spec:
    if Index.ndim > 2 or (Index.ndim == 2 and Index.shape[1] not in (1, -1)):
        raise InferenceError(f"gather: Index {Index} should have one dimension, or two with the second of size 1")
    rank = X.ndim - (Index.ndim == 0)
    if Axis is not None:
        return X.with_shape((-1,) * rank)
    axis = normalize_axis(axis, X.ndim)
    return X.with_shape((*X.shape[:axis], *Index.shape[:1], *X.shape[axis + 1 :]))


def _table(W: Spec) -> int:
    if W.ndim != 2:
        raise InferenceError(f"the table W {W} should have two dimensions, [rows, width]")
    return W.shape[1]


def _lookup(W: Spec, Ids: Spec) -> Spec:
    if not Ids.ndim or Ids.shape[-1] not in (1, -1):
        raise InferenceError(f"lookup_table: the last dimension of Ids {Ids} should be 1; fluid.embedding takes ids without it")
    return _rows_of_table(W, Ids.shape[:-1])


def _rows_of_table(W: Spec, shape: tuple[int, ...]) -> Spec:
    """Rows of a table, one for each element of `shape`; a dense tensor, also from a table that stores only some rows."""
    return replace(W.with_shape((*shape, _table(W))), type=VarType.LOD_TENSOR)


def _picked(X: Spec, Index: Spec, axis: int) -> Spec:
    axis = normalize_axis(axis, X.ndim)
    if Index.ndim != X.ndim:
        raise InferenceError(f"indices {Index} should have as many dimensions as {X}, from which they pick along axis {axis}")
    pairs = enumerate(zip(X.shape, Index.shape, strict=True))
    return X.with_shape(tuple(i if at == axis else _agree(x, i, "pick", X.shape, Index.shape) for at, (x, i) in pairs))


def _placed(X: Spec, Like: Spec) -> Spec:
    return X.with_shape(Like.shape[-X.ndim :])


def _expand_v2(X: Spec, Shape: Spec | None, expand_shapes_tensor: Any, shape: list[int]) -> Spec:
    if expand_shapes_tensor or Shape is not None:
        rank = len(expand_shapes_tensor) if expand_shapes_tensor else product(Shape.shape)  # type: ignore[union-attr]
        if 0 <= rank < X.ndim:
            raise InferenceError(f"expand_v2: Shape asks for {rank} dimensions, which should not be fewer than X {X} has")
        return X.with_shape(unknown_shape(max(rank, X.ndim)))
    return X.with_shape(expanded(X.shape, shape))


def expanded(x: Shape, shape: Sequence[int]) -> Shape:
    """`x` broadcast to `shape`, where -1 keeps a size."""
    if len(shape) < len(x) or any(size < -1 for size in shape):
        raise InferenceError(
            f"cannot expand {list(x)} to shape {list(shape)}, which should not have fewer dimensions, or any below -1"
        )
    x = (1,) * (len(shape) - len(x)) + x
    out = []
    for have, want in zip(x, shape, strict=True):
        if have not in (1, -1, want) and want != -1:
            raise InferenceError(f"cannot expand {list(x)} to {list(shape)}: {have} does not become {want}")
        out.append(have if want == -1 else want)
    return tuple(out)


def _expand_as(X: Spec, Y: Spec | None, target_shape: list[int]) -> Spec:
    if Y is not None and -1 in Y.shape:  # unknown, unlike the -1 of `target_shape`, which keeps X's size
        return X.with_shape(broadcast(X.shape, Y.shape))
    return X.with_shape(expanded(X.shape, Y.shape if Y is not None else target_shape))


def _repeated(X: Spec, times: Sequence[int], name: str) -> Spec:
    """The spec of X repeated along its last `len(times)` dimensions; X gets new dimensions in front if it has fewer."""
    if any(time < 1 for time in times):
        raise InferenceError(f"{name} {list(times)}, how often X {X} is repeated, should not be below 1")
    rank = max(X.ndim, len(times))
    shape = (1,) * (rank - X.ndim) + X.shape
    times = (1,) * (rank - len(times)) + tuple(times)
    return X.with_shape(tuple(-1 if size < 0 else size * time for size, time in zip(shape, times, strict=True)))


def _tile(X: Spec, RepeatTimes: Spec | None, repeat_times_tensor: Any, repeat_times: list[int]) -> Spec:
    if RepeatTimes is not None or repeat_times_tensor:
        rank = len(repeat_times_tensor) if repeat_times_tensor else product(RepeatTimes.shape)  # type: ignore[union-attr]
        return X.with_shape(unknown_shape(max(rank, X.ndim)))
    return _repeated(X, repeat_times, "repeat_times")


def _expand(X: Spec, ExpandTimes: Spec | None, expand_times_tensor: Any, expand_times: list[int]) -> Spec:
    if ExpandTimes is not None or expand_times_tensor:
        count = len(expand_times_tensor) if expand_times_tensor else ExpandTimes.shape[0]  # type: ignore[union-attr]
        if count not in (-1, X.ndim):
            raise InferenceError(f"expand: there are {count} numbers to repeat X {X}; there should be one for each dimension")
        return X.with_shape(_unknown(X))
    if len(expand_times) != X.ndim:
        raise InferenceError(f"expand: expand_times {expand_times} should have one number for each dimension of X {X}")
    return _repeated(X, expand_times, "expand_times")


def _depth(depth: int, depth_tensor: Spec | None) -> int:
    if depth_tensor is not None:
        return -1
    if depth < 1:
        raise InferenceError(f"depth {depth}, the number of classes, should be at least 1")
    return depth


def _one_hot(X: Spec, depth: int, dtype: int, depth_tensor: Spec | None) -> Spec:
    if not X.ndim or X.shape[-1] not in (1, -1):
        raise InferenceError(f"one_hot: the last dimension of X {X} should be 1; fluid.one_hot takes ids without it")
    return Spec((*X.shape[:-1], _depth(depth, depth_tensor)), as_dtype(dtype))


# ------------------------------------------------------------------------------------------------------- reshaping
@define("reshape2(X, Shape?: int[R], ShapeTensor*?: int[one]) -> Out, XShape~", infer=_reshape2, wrt=("X",), shape=ints())
def reshape2(f: Any, XShape: ShapeOnly, dOut: Any) -> Any:
    """X in another shape: 0 copies X's size of the axis, one -1 is inferred from the number of elements.

    XShape is an empty tensor of shape [0, ...X's shape], which passes X's shape to the gradient op.
    """
    return {"X": f.unreshape(dOut, XShape)}


@define("reshape(X, Shape?: int[R], ShapeTensor*?: int[one]) -> Out", infer=_reshape, wrt=("X",), shape=ints())
def reshape(f: Any, X: ShapeOnly, Out: ShapeOnly, Shape: ShapeOnly, ShapeTensor: ShapeOnly, dOut: Any) -> Any:
    """X in another shape, as `reshape2`."""
    return {"X": f.reshape_like(dOut, X)}


@define("reshape_like(X, Like) -> Out", **LIKE)
def reshape_like(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """X in the shape of Like."""
    return {"X": f.reshape_like(dOut, X)}


@define("unreshape(X, XShape) -> Out", infer=lambda X, XShape: X.with_shape(XShape.shape[1:]), wrt=("X",), shape_only=("XShape",))
def unreshape(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """X in the shape of XShape without its first dimension."""
    return {"X": f.reshape_like(dOut, X)}


@define("squeeze2(X) -> Out, XShape~", infer=lambda X, axes, declared: _with_xshape(X, _squeezed(X, axes, declared)), axes=ints())
def squeeze2(f: Any, XShape: ShapeOnly, dOut: Any) -> Any:
    """X without the `axes` that have size 1; without all axes of size 1 if `axes` is empty.

    A size that is unknown when the program is built is assumed to be 1; it is an error if it is not when the program runs.
    """
    return {"X": f.unreshape(dOut, XShape)}


@define("squeeze(X) -> Out", infer=lambda X, axes, declared: X.with_shape(_squeezed(X, axes, declared)), axes=ints())
def squeeze(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """X without axes of size 1, as `squeeze2`."""
    return {"X": f.reshape_like(dOut, X)}


@define("unsqueeze2(X, AxesTensor?: int, AxesTensorList*?: int[one]) -> Out, XShape~", infer=_unsqueeze2, wrt=("X",), axes=ints())
def unsqueeze2(f: Any, XShape: ShapeOnly, AxesTensor: ShapeOnly, AxesTensorList: ShapeOnly, dOut: Any) -> Any:
    """X with axes of size 1 inserted, one after the other, at `axes`."""
    return {"X": f.unreshape(dOut, XShape)}


@define("unsqueeze(X) -> Out", infer=_unsqueeze, axes=ints())
def unsqueeze(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """X with axes of size 1 inserted, as `unsqueeze2`."""
    return {"X": f.reshape_like(dOut, X)}


@define("flatten2(X) -> Out, XShape~", infer=lambda X, axis: _with_xshape(X, _flattened(X, axis)), axis=1)
def flatten2(f: Any, XShape: ShapeOnly, dOut: Any) -> Any:
    """X as a matrix: the axes before `axis` become its rows, the others its columns."""
    return {"X": f.unreshape(dOut, XShape)}


@define("flatten(X) -> Out", infer=_flatten, axis=1)
def flatten(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """X as a matrix, as `flatten2`."""
    return {"X": f.reshape_like(dOut, X)}


@define("flatten_contiguous_range(X) -> Out, XShape~", infer=_flatten_range, start_axis=1, stop_axis=1)
def flatten_contiguous_range(f: Any, XShape: ShapeOnly, dOut: Any) -> Any:
    """X with the axes from `start_axis` to `stop_axis`, inclusive, joined into one."""
    return {"X": f.unreshape(dOut, XShape)}


def _inverse(axis: list[int]) -> list[int]:
    axis = [i % len(axis) for i in axis]
    return [axis.index(i) for i in range(len(axis))]


@define("transpose2(X) -> Out, XShape~", infer=lambda X, axis: _with_xshape(X, _transposed(X, axis).shape), axis=required("ints"))
def transpose2(f: Any, XShape: ShapeOnly, dOut: Any, axis: Any) -> Any:
    """X with its axes in the order `axis`."""
    return {"X": f.transpose(dOut, axis=_inverse(axis))}


@define("transpose(X) -> Out", infer=_transposed, axis=required("ints"))
def transpose(f: Any, X: ShapeOnly, Out: ShapeOnly, dOut: Any, axis: Any) -> Any:
    """X with its axes in the order `axis`."""
    return {"X": f.transpose(dOut, axis=_inverse(axis))}


# ------------------------------------------------------------------------------------------------ joining and cutting
@define(
    "concat(X*, AxisTensor?: int[one]) -> Out",
    infer=_concat,
    wrt=("X",),
    joins_rows=lambda attrs: attrs["axis"] == 0,
    axis=0,
)
def concat(f: Any, X: ShapeOnly, AxisTensor: Any, dOut: Any, axis: Any) -> Any:
    """The inputs joined along `axis`; along axis 0, their sequences too."""
    return {"X": f.split_like(dOut, X, AxisTensor, axis=axis)}


@define("split_like(X, Like*, AxisTensor?: [one]) -> Out*", infer=_split_like, wrt=("X",), shape_only=("Like",), axis=0)
def split_like(f: Any, X: ShapeOnly, AxisTensor: Any, dOut: Any, axis: Any) -> Any:
    """X cut along `axis` into parts shaped as the Likes: the transpose of `concat`."""
    return {"X": f.concat(dOut, axis=axis) if AxisTensor is None else f.concat_like(dOut, X, AxisTensor)}


@define("concat_like(X*, Like, AxisTensor: [one]) -> Out", infer=_like_of_first, wrt=("X",), shape_only=("Like",))
def concat_like(f: Any, X: ShapeOnly, AxisTensor: Any, dOut: Any) -> Any:
    """The inputs joined along the axis in AxisTensor; the result has the shape of Like."""
    return {"X": f.split_like(dOut, X, AxisTensor)}


@define(
    "split(X, AxisTensor?: [one], SectionsTensorList*?: [one]) -> Out*",
    infer=_split,
    wrt=("X",),
    inline_grad=True,
    axis=0,
    num=0,
    sections=ints(),
)
def split(f: Any, X: ShapeOnly, AxisTensor: Any, dOut: Any, axis: Any) -> Any:
    """X cut along `axis` into `num` equal parts, or into parts of the sizes `sections`, one of which may be -1."""
    return {"X": f.concat(dOut, axis=axis) if AxisTensor is None else f.concat_like(dOut, X, AxisTensor)}


@define("stack(X*) -> Y", infer=_stack, axis=0)
def stack(f: Any, X: ShapeOnly, dY: Any, axis: Any) -> Any:
    """The inputs, all of one shape, joined along a new axis."""
    return {"X": f.unstack(dY, axis=axis, num=len(X))}  # type: ignore[arg-type]  # a list of values


@define("unstack(X) -> Y*", infer=_unstack, axis=0, num=0)
def unstack(f: Any, dY: Any, axis: Any) -> Any:
    """The parts of X along `axis`, without that axis."""
    return {"X": f.stack(dY, axis=axis)}


_SLICE_ATTRS: dict[str, Any] = {"axes": ints(), "starts": ints(), "ends": ints(), "decrease_axis": ints(), "infer_flags": ints()}


_SLICE_SLOTS = "StartsTensor?: int[R], EndsTensor?: int[R], StartsTensorList*?: int[one], EndsTensorList*?: int[one]"


@define(f"slice(Input, {_SLICE_SLOTS}) -> Out", infer=_slice, wrt=("Input",), **_SLICE_ATTRS)
def slice_(
    f: Any,
    Input: ShapeOnly,
    StartsTensor: Any,
    EndsTensor: Any,
    StartsTensorList: Any,
    EndsTensorList: Any,
    dOut: Any,
    attrs: dict[str, Any],
) -> Any:
    """``Input[starts:ends]`` along `axes`, as Python slices; the axes in `decrease_axis`, which must get size 1, are dropped.

    Bounds in tensors replace those in attributes. If all axes are dropped, the shape is [1], or [] if the output is declared so.
    An array of tensors has its entries along axis 0.
    """
    bounds = (StartsTensor, EndsTensor, StartsTensorList, EndsTensorList)
    return {"Input": f.unslice(dOut, Input, *bounds, **attrs)}


_STRIDED_SLOTS = (
    "StartsTensor?: int|float[R], EndsTensor?: int|float[R], StridesTensor?: int|float[R], "
    "StartsTensorList*?: int[one], EndsTensorList*?: int[one], StridesTensorList*?: int[one]"
)


@define(f"strided_slice(Input, {_STRIDED_SLOTS}) -> Out", infer=_slice, wrt=("Input",), strides=ints(), **_SLICE_ATTRS)
def strided_slice(
    f: Any,
    Input: ShapeOnly,
    StartsTensor: Any,
    EndsTensor: Any,
    StridesTensor: Any,
    StartsTensorList: Any,
    EndsTensorList: Any,
    StridesTensorList: Any,
    dOut: Any,
    attrs: dict[str, Any],
) -> Any:
    """``Input[starts:ends:strides]`` along `axes`, as Python slices; otherwise as `slice`.

    However, with a negative stride, -1 as the end means no end, as Paddle writes ``x[::-1]``.
    """
    bounds = (StartsTensor, EndsTensor, StridesTensor, StartsTensorList, EndsTensorList, StridesTensorList)
    return {"Input": f.strided_unslice(dOut, Input, *bounds, **attrs)}


def _define_like(op_type: str, transpose: str, fit: dict[str, Any], doc: str, *, strided: bool = False) -> None:
    """Define one of a pair of ops that are each other's transposes; its result has the shape of Like."""

    def plain(
        f: Any,
        X: ShapeOnly,
        StartsTensor: Any,
        EndsTensor: Any,
        StartsTensorList: Any,
        EndsTensorList: Any,
        dOut: Any,
        attrs: dict[str, Any],
    ) -> Any:
        bounds = (StartsTensor, EndsTensor, StartsTensorList, EndsTensorList)
        return {"X": getattr(f, transpose)(dOut, X, *bounds, **attrs)}

    def with_strides(
        f: Any,
        X: ShapeOnly,
        StartsTensor: Any,
        EndsTensor: Any,
        StridesTensor: Any,
        StartsTensorList: Any,
        EndsTensorList: Any,
        StridesTensorList: Any,
        dOut: Any,
        attrs: dict[str, Any],
    ) -> Any:
        bounds = (StartsTensor, EndsTensor, StridesTensor, StartsTensorList, EndsTensorList, StridesTensorList)
        return {"X": getattr(f, transpose)(dOut, X, *bounds, **attrs)}

    rule: Any = with_strides if strided else plain
    rule.__doc__ = doc
    more: dict[str, Any] = {"strides": ints()} if strided else {}
    signature = f"{op_type}(X, Like, {_STRIDED_SLOTS if strided else _SLICE_SLOTS}) -> Out"
    define(signature, **fit, **more, **_SLICE_ATTRS)(rule)


for _slice_op in ("slice", "strided_slice"):
    _back, _again, _strided = _slice_op.replace("slice", "unslice"), f"{_slice_op}_like", _slice_op != "slice"
    _doc = f"X at its place in zeros of Like's shape: the transpose of `{_slice_op}`."
    _define_like(_back, _again, transpose_of(_slice_op, "Input"), _doc, strided=_strided)
    _doc = f"As `{_slice_op}`, with a result known to have the shape of Like."
    _define_like(_again, _back, like_result_of(_slice_op, "Input"), _doc, strided=_strided)


def _flip(X: Spec, axis: list[int]) -> Spec:
    if len(set(normalize_axes(axis, X.ndim))) != len(axis):
        raise InferenceError(f"axis {axis} names a dimension of X {X} twice; each should come once")
    return X


@define("flip(X) -> Out", infer=_flip, inline_grad=True, axis=required("ints"))
def flip(f: Any, dOut: Any, axis: Any) -> Any:
    """X with the order of its elements reversed along each of `axis`."""
    return {"X": f.flip(dOut, axis=axis)}


@define("reverse(X) -> Out", infer=_flip, inline_grad=True, axis=required("ints"))
def reverse(f: Any, dOut: Any, axis: Any) -> Any:
    """X with the order of its elements reversed along each of `axis`."""
    return {"X": f.reverse(dOut, axis=axis)}


# ---------------------------------------------------------------------------------------------------------- indexing
@define("gather(X: [N, ...], Index: int, Axis?: int[one]) -> Out", infer=_gather, wrt=("X",), axis=0)
def gather(f: Any, X: ShapeOnly, Index: Any, Axis: Any, dOut: Any, axis: Any) -> Any:
    """The slices of X along `axis` (or the axis in Axis) with the indices in Index, of shape [n] or [n, 1]."""
    return {"X": f.scatter_add_like(dOut, Index, X, Axis, axis=axis)}


@define("scatter_add_like(X, Index: int, Like, Axis?: [one]) -> Out", **transpose_of("gather"), axis=0)
def scatter_add_like(f: Any, X: ShapeOnly, Index: Any, Axis: Any, dOut: Any, axis: Any) -> Any:
    """The slices of X added, at the indices in Index, to zeros of Like's shape: the transpose of `gather`."""
    return {"X": f.gather(dOut, Index, axis=axis) if Axis is None else f.gather_like(dOut, Index, X, Axis)}


@define("gather_like(X, Index: int, Like, Axis: int[one]) -> Out", **like_result_of("gather"))
def gather_like(f: Any, X: ShapeOnly, Index: Any, Axis: Any, dOut: Any) -> Any:
    """As `gather` along the axis in Axis, with a result known to have the shape of Like."""
    return {"X": f.scatter_add_like(dOut, Index, X, Axis)}


def _scatter(X: Spec, Ids: Spec, Updates: Spec) -> Spec:
    if not may_equal(X.shape[1:], Updates.shape[1:]):
        raise InferenceError(f"scatter: Updates {Updates} should hold rows of X {X}")
    one_each("Ids", Ids, Updates.shape[0])
    return X


@define("scatter(X: [N, ...], Ids: int, Updates: [M, ...]) -> Out", infer=_scatter, wrt=("X", "Updates"), overwrite=True)
def scatter(f: Any, Ids: Any, Updates: ShapeOnly, dOut: Any) -> Any:
    """X with the rows Ids replaced by the rows of Updates; without `overwrite`, by the sums of the rows with the same id.

    With `overwrite`, ids should not repeat: the last row would count, but each would get the gradient.

    Args:
        X: ``[N, ...]``.
        Ids: ``[M]`` or ``[M, 1]``, each below N.
        Updates: ``[M, ...]``, with the other dimensions of X.
        overwrite: whether rows of Updates replace the rows of X, rather than their sums.
    """
    return {"X": lambda: f.scatter(dOut, Ids, f.fill_zeros_like(Updates)), "Updates": lambda: f.gather(dOut, Ids)}


def _gather_nd(X: Spec, Index: Spec, declared: Mapping[str, Any]) -> Spec:
    depth = Index.shape[-1] if Index.ndim else 0
    if depth == -1:  # then even the rank of Out is unknown, unless it is declared
        out: Spec | None = declared.get("Out")
        if out is None:
            raise InferenceError(f"gather_nd: the last dimension of Index {Index} should be known: it decides the rank of Out")
        return out
    if depth > X.ndim:
        raise InferenceError(f"gather_nd: the last dimension of Index {Index} is more than the dimensions of X {X}")
    return X.with_shape((*Index.shape[:-1], *X.shape[depth:]))


@define("gather_nd(X: [N, ...], Index: int[..., D]) -> Out", infer=_gather_nd, wrt=("X",))
def gather_nd(f: Any, X: Any, Index: Any, dOut: Any) -> Any:
    """``Out[i, ...] = X[Index[i, 0], Index[i, 1], ...]``: the last axis of Index holds indices of X's first axes.

    Args:
        X: a tensor.
        Index: ``[..., D]``, with D at most the number of dimensions of X; ``Out`` is ``[*Index.shape[:-1], *X.shape[D:]]``.
    """
    return {"X": f.scatter_nd_add(f.fill_zeros_like(X), Index, dOut)}


def _scatter_nd(X: Spec, Index: Spec, Updates: Spec) -> Spec:
    depth = Index.shape[-1]
    if X.dtype is not Updates.dtype:
        raise ElementTypeError(f"scatter_nd_add: X {X} and Updates {Updates} should have one element type")
    if depth > X.ndim:
        raise InferenceError(f"scatter_nd_add: Index {Index} names {depth} axes of X {X}; there should not be more than it has")
    if depth >= 0:
        expected = (*Index.shape[:-1], *X.shape[depth:])
        if not may_equal(expected, Updates.shape):
            raise InferenceError(
                f"scatter_nd_add: Updates {Updates} should have shape {list(expected)}, by Index {Index} and X {X}"
            )
    return X


@define("scatter_nd_add(X: [N, ...], Index: int[..., D], Updates) -> Out", infer=_scatter_nd, wrt=("X", "Updates"))
def scatter_nd_add(f: Any, Index: Any, Updates: ShapeOnly, dOut: Any) -> Any:
    """X with Updates added at the indices in Index, as in `gather_nd`.

    Args:
        X: a tensor.
        Index: ``[..., D]``, positions in the first D dimensions of X.
        Updates: ``[*Index.shape[:-1], *X.shape[D:]]``; those for the same position are added up.
    """
    return {"X": dOut, "Updates": lambda: f.gather_nd(dOut, Index)}


@define(
    "lookup_table_v2(W, Ids: int) -> Out",
    infer=lambda W, Ids: _rows_of_table(W, Ids.shape),
    wrt=("W",),
    sparse_grad="W",
    padding_idx=long(-1),
    is_sparse=False,
    is_distributed=False,
    remote_prefetch=False,
)
def lookup_table_v2(f: Any, W: ShapeOnly, Ids: Any, dOut: Any, padding_idx: Any) -> Any:
    """The rows of W with the indices in Ids; zeros, without a gradient, for the id `padding_idx` (-1: none)."""
    return {"W": f.scatter_rows_like(dOut, Ids, W, padding_idx=padding_idx)}


@define(
    "lookup_table(W, Ids: int) -> Out",
    infer=_lookup,
    wrt=("W",),
    sparse_grad="W",
    padding_idx=long(-1),
    is_sparse=False,
    is_distributed=False,
    remote_prefetch=False,
    is_test=False,
    entry_config="",
    entry="none",
    table_class="none",
    table_names=strings(),
    trainer_id=0,
    slot=0,
    grad_inplace=False,
    epmap=strings(),
    height_sections=longs(),
)
def lookup_table(f: Any, W: ShapeOnly, Ids: Any, dOut: Any, padding_idx: Any) -> Any:
    """The rows of W with the indices in Ids, of shape [..., 1]; as `lookup_table_v2`."""
    return {"W": f.scatter_rows_like(dOut, Ids, W, padding_idx=padding_idx)}


@define("scatter_rows_like(X, Ids: int, Like) -> Out", **LIKE, padding_idx=long(-1))
def scatter_rows_like(f: Any, X: ShapeOnly, Ids: Any, Like: ShapeOnly, dOut: Any, padding_idx: Any) -> Any:
    """The rows of X added, at the indices in Ids, to zeros of Like's shape: the transpose of `lookup_table_v2`."""
    return {"X": f.reshape_like(f.lookup_table_v2(dOut, Ids, padding_idx=padding_idx), X)}


def _without_ignored(f: Any, Index: Any, ignore_index: int) -> tuple[Any, Any]:
    """A mask of the indices that equal `ignore_index`, and the indices with 0 in their places."""
    ignored = f.fill_constant(shape=[1] * len(Index.shape), dtype=int(VarType.INT64), str_value=str(ignore_index))
    is_ignored = f.equal(Index.astype(VarType.INT64), ignored)
    return is_ignored, f.where(is_ignored, f.fill_zeros_like(Index), Index)


def _pick(f: Any, X: Any, Index: Any, axis: int, ignore_index: int, default: float) -> Any:
    is_ignored, index = _without_ignored(f, Index, ignore_index)
    picked = f.take_along_axis(X, index, Axis=axis)
    return f.where(is_ignored, f.fill_any_like(picked, value=default, dtype=-1), picked)


def _place(f: Any, X: Any, Index: Any, Like: Any, axis: int, ignore_index: int) -> Any:
    is_ignored, index = _without_ignored(f, Index, ignore_index)
    values = f.where(is_ignored, f.fill_zeros_like(X), X)
    return f.put_along_axis(f.fill_zeros_like(Like), index, values, Axis=axis, Reduce="add")


@define(
    "pick(X, Index: int) -> Out",
    infer=_picked,
    wrt=("X",),
    meaning=means(_pick),
    axis=-1,
    ignore_index=long(-100),
    default=0.0,
)
def pick(f: Any, X: ShapeOnly, Index: Any, dOut: Any, axis: Any, ignore_index: Any) -> Any:
    """``Out[.., j, ..] = X[.., Index[.., j, ..], ..]`` along `axis`; `default` where the index is `ignore_index`."""
    return {"X": f.place(dOut, Index, X, axis=axis, ignore_index=ignore_index)}


@define(
    "place(X, Index: int, Like) -> Out",
    infer=_placed,
    wrt=("X",),
    shape_only=("Like",),
    meaning=means(_place),
    axis=-1,
    ignore_index=long(-100),
)
def place(f: Any, Index: Any, dOut: Any, axis: Any, ignore_index: Any) -> Any:
    """X added to zeros of Like's shape at the indices in Index along `axis`: the transpose of `pick`.

    Like may also be an XShape, with a dimension of size 0 in front.
    """
    return {"X": f.pick(dOut, Index, axis=axis, ignore_index=ignore_index)}


@define(
    "one_hot(X: int|float, depth_tensor?: int[one]) -> Out",
    infer=_one_hot,
    grad=ZERO_GRADIENT,
    depth=least(-1, -1),
    dtype=5,
    allow_out_of_range=False,
)
def one_hot() -> None:
    """Ones at the ids in X, of shape [..., 1], in zeros of shape [..., depth].

    An id outside of [0, depth) is an error, or gives a row of zeros if `allow_out_of_range`.
    """


@define(
    "one_hot_v2(X: int|float, depth_tensor?: int[one]) -> Out",
    infer=lambda X, depth, dtype, depth_tensor: Spec((*X.shape, _depth(depth, depth_tensor)), as_dtype(dtype)),
    grad=ZERO_GRADIENT,
    depth=least(-1, -1),
    dtype=5,
    allow_out_of_range=False,
)
def one_hot_v2() -> None:
    """Ones at the ids in X in zeros of shape X.shape + [depth]; as `one_hot`."""


# --------------------------------------------------------------------------------------------------------- repeating
@define("expand_v2(X, Shape?: int[R], expand_shapes_tensor*?: int[one]) -> Out", infer=_expand_v2, wrt=("X",), shape=ints())
def expand_v2(f: Any, X: ShapeOnly, Shape: ShapeOnly, expand_shapes_tensor: ShapeOnly, dOut: Any) -> Any:
    """X broadcast to `shape`, where -1 keeps X's size."""
    return {"X": f.sum_to(dOut, X)}


@define("expand_as_v2(X, Y?) -> Out", infer=_expand_as, wrt=("X",), shape_only=("Y",), target_shape=ints())
def expand_as_v2(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """X broadcast to the shape of Y, or to `target_shape`."""
    return {"X": f.sum_to(dOut, X)}


@define("tile(X, RepeatTimes?: int[R], repeat_times_tensor*?) -> Out", infer=_tile, wrt=("X",), repeat_times=ints())
def tile(f: Any, X: ShapeOnly, RepeatTimes: ShapeOnly, repeat_times_tensor: ShapeOnly, dOut: Any) -> Any:
    """X repeated `repeat_times` along its last axes; missing axes are added in front."""
    return {"X": f.untile(dOut, X)}


@define(
    "expand(X, ExpandTimes?: int|float[R], expand_times_tensor*?: int[one]) -> Out",
    infer=_expand,
    wrt=("X",),
    expand_times=ints(),
)
def expand(f: Any, X: ShapeOnly, ExpandTimes: ShapeOnly, expand_times_tensor: ShapeOnly, dOut: Any) -> Any:
    """X repeated `expand_times` along its axes; a tensor with these numbers may be declared of floats, as in Fluid 1.6."""
    return {"X": f.untile(dOut, X)}


def _expand_as_target(X: Spec, target_tensor: Spec) -> Spec:
    pairs = list(zip(X.shape, target_tensor.shape, strict=False))
    if X.ndim != target_tensor.ndim or any(b % a if a else b for a, b in pairs if -1 not in (a, b)):
        raise InferenceError(f"expand_as: X {X} does not repeat to fill target_tensor {target_tensor}")
    return X.with_shape(target_tensor.shape)


@define("expand_as(X, target_tensor) -> Out", infer=_expand_as_target, wrt=("X",), shape_only=("target_tensor",))
def expand_as(f: Any, X: ShapeOnly, target_tensor: ShapeOnly, dOut: Any) -> Any:
    """X repeated along its axes to the shape of target_tensor.

    Args:
        X: a tensor.
        target_tensor: a tensor of X's rank whose sizes are multiples of X's; only its shape is read.
    """
    return {"X": f.untile(dOut, X)}


def _check_tiles(tile: Spec, tiled: Spec) -> None:
    """`InferenceError` unless a tensor consists of repetitions of a smaller one."""
    sizes = (1,) * (tiled.ndim - tile.ndim) + tile.shape
    if tile.ndim > tiled.ndim or not all(
        -1 in (part, size) or (size % part == 0 if part else size == 0) for part, size in zip(sizes, tiled.shape, strict=True)
    ):
        raise InferenceError(f"{tiled} does not consist of repetitions of {tile} along its axes; X and Like should fit")


def _untiled(X: Spec, Like: Spec) -> Spec:
    _check_tiles(Like, X)
    return X.with_shape(Like.shape)


def _tiled_like(X: Spec, Like: Spec) -> Spec:
    _check_tiles(X, Like)
    return X.with_shape(Like.shape)


@define("untile(X, Like) -> Out", **LIKE | {"infer": _untiled})
def untile(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """The sum of the parts of X that are shaped like Like: the transpose of `tile`."""
    return {"X": f.tile_like(dOut, X)}


@define("tile_like(X, Like) -> Out", **LIKE | {"infer": _tiled_like})
def tile_like(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """X repeated along its axes to the shape of Like."""
    return {"X": f.untile(dOut, X)}


# --------------------------------------------------------------------------------------------------- triangles, diagonals
def _tril_triu(X: Spec) -> Spec:
    if X.ndim < 2:
        raise InferenceError(f"tril_triu: X {X} should have 2 dimensions at least")
    return X


@define("tril_triu(X) -> Out", infer=_tril_triu, diagonal=0, lower=False)
def tril_triu(f: Any, dOut: Any, diagonal: int, lower: bool) -> Any:
    """X with zeros above (with `lower`) or below a diagonal: 0 is the main one, 1 the next one above it, and so on."""
    return {"X": f.tril_triu(dOut, diagonal=diagonal, lower=lower)}


def _diagonal(Input: Spec, offset: int, axis1: int, axis2: int) -> Spec:
    first, second = normalize_axes([axis1, axis2], Input.ndim)
    if first == second:
        raise InferenceError(f"axis1 {axis1} and axis2 {axis2} should be two axes of Input {Input}")
    rows, columns = Input.shape[first], Input.shape[second]
    size = -1 if -1 in (rows, columns) else max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    return Input.with_shape((*(n for axis, n in enumerate(Input.shape) if axis not in (first, second)), size))


@define("diagonal(Input) -> Out", infer=_diagonal, offset=0, axis1=0, axis2=1)
def diagonal(f: Any, Input: ShapeOnly, dOut: Any, offset: int, axis1: int, axis2: int) -> Any:
    """The diagonals of the matrices along `axis1` and `axis2`; they form the last dimension, in place of these two."""
    return {"Input": f.undiagonal(dOut, Input, offset=offset, axis1=axis1, axis2=axis2)}


def _undiagonal(X: Spec, Like: Spec, offset: int, axis1: int, axis2: int) -> Spec:
    diagonals = _diagonal(Like, offset, axis1, axis2)
    if not may_equal(broadcast(diagonals.shape, X.shape), diagonals.shape):
        raise InferenceError(f"X {X} should be {diagonals}, as the diagonals of Like {Like}, or broadcast to it")
    return X.with_shape(Like.shape)


@define("undiagonal(X, Like) -> Out", **{**LIKE, "infer": _undiagonal}, offset=0, axis1=0, axis2=1)
def undiagonal(f: Any, X: ShapeOnly, dOut: Any, offset: int, axis1: int, axis2: int) -> Any:
    """X, broadcast if necessary, on the diagonals of zeros of Like's shape: the transpose of `diagonal`."""
    return {"X": f.sum_to(f.diagonal(dOut, offset=offset, axis1=axis1, axis2=axis2), X)}


def _trace(Input: Spec, offset: int, axis1: int, axis2: int, declared: Mapping[str, Any]) -> Spec:
    return Input.with_shape(_diagonal(Input, offset, axis1, axis2).shape[:-1] or scalar_shape(declared))


def _sum_of_diagonal(f: Any, Input: Any, attrs: Mapping[str, Any]) -> Any:
    return f.reduce_sum(f.diagonal(Input, **attrs), dim=[-1], reduce_all=Input.ndim == 2)


@define("trace(Input: int|float) -> Out", infer=_trace, meaning=means(_sum_of_diagonal), offset=0, axis1=0, axis2=1)
def trace(f: Any, Input: ShapeOnly, dOut: Any, offset: int, axis1: int, axis2: int) -> Any:
    """The sums of the diagonals of the matrices along `axis1` and `axis2`."""
    column = f.unsqueeze(dOut, axes=[dOut.ndim]) if Input.ndim > 2 else dOut  # type: ignore[attr-defined]
    return {"Input": f.undiagonal(column, Input, offset=offset, axis1=axis1, axis2=axis2)}


def _diag_v2(X: Spec, offset: int) -> Spec:
    if X.ndim == 1:
        size = -1 if X.shape[0] < 0 else X.shape[0] + abs(offset)
        return X.with_shape((size, size))
    if X.ndim != 2:
        raise InferenceError(f"diag_v2: X {X} should be a vector or a matrix")
    return _diagonal(X, offset, 0, 1)


@define("diag_v2(X) -> Out", infer=_diag_v2, offset=0, padding_value=0.0)
def diag_v2(f: Any, X: ShapeOnly, dOut: Any, offset: int) -> Any:
    """The matrix with the vector X on a diagonal and `padding_value` elsewhere, or the diagonal of the matrix X."""
    if X.ndim == 1:  # type: ignore[attr-defined]
        return {"X": f.diagonal(dOut, offset=offset)}
    return {"X": f.undiagonal(dOut, X, offset=offset)}


def _diag(Diagonal: Spec) -> Spec:
    if Diagonal.ndim != 1:
        raise InferenceError(f"diag: Diagonal {Diagonal} should be a vector")
    return Diagonal.with_shape(Diagonal.shape * 2)


@define("diag(Diagonal) -> Out", infer=_diag, meaning=means(lambda f, Diagonal: f.diag_embed(Diagonal)))
def diag(f: Any, dOut: Any) -> Any:
    """The square matrix with the vector Diagonal on its diagonal and zeros elsewhere.

    Args:
        Diagonal: ``[N]``.
    """
    return {"Diagonal": f.diagonal(dOut)}


def _meshgrid(X: list[Spec]) -> list[Spec]:
    for spec in X:
        if spec.ndim > 1 or spec.dtype is not X[0].dtype:
            raise InferenceError(f"meshgrid: {spec} and {X[0]} should be vectors of one element type")
    shape = tuple(spec.shape[0] if spec.shape else 1 for spec in X)
    return [X[0].with_shape(shape)] * len(X)


def _grids(f: Any, X: list[Any]) -> dict[str, Any]:
    shape = [x.shape[0] if x.ndim else 1 for x in X]
    lines = [f.reshape2(x, shape=[1] * axis + [-1] + [1] * (len(X) - 1 - axis)) for axis, x in enumerate(X)]
    return {"Out": [f.expand_v2(line, shape=shape) for line in lines]}


@define("meshgrid(X*) -> Out*", infer=_meshgrid, meaning=means(_grids))
def meshgrid(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """Vectors broadcast to one shape: ``Out[i]`` varies along axis ``i``, whose size is the length of ``X[i]``."""

    def gradient(axis: int, like: Any, grad: Any) -> Any:
        return f.sum_to(grad, like, axis=axis) if like.ndim else f.sum_to(grad, like)

    return {"X": lambda: [gradient(axis, *pair) for axis, pair in enumerate(zip(X, dOut, strict=True))]}  # type: ignore[call-overload]


# ----------------------------------------------------------------------------------------------- rolling, choosing, parting
def _roll(X: Spec, ShiftsTensor: Spec | None, shifts: list[int], axis: list[int]) -> Spec:
    normalize_axes(axis, X.ndim)
    count = len(shifts) if ShiftsTensor is None else ShiftsTensor.size
    if count not in (-1, len(axis) or 1):
        subject = f"shifts {shifts}" if ShiftsTensor is None else f"ShiftsTensor {ShiftsTensor}"
        raise InferenceError(f"roll: {subject} should be as many as axis {axis}, or one without axis")
    return X


@define("roll(X, ShiftsTensor?: int) -> Out", infer=_roll, wrt=("X",), shifts=longs(), axis=longs())
def roll(f: Any, X: ShapeOnly, ShiftsTensor: Any, dOut: Any, shifts: list[int], axis: list[int]) -> Any:
    """X with its elements moved cyclically by `shifts` along `axis`; without `axis`, along the flattened X."""
    back = None if ShiftsTensor is None else -ShiftsTensor
    return {"X": f.roll(dOut, back, shifts=[-shift for shift in shifts], axis=axis)}


@define(
    "index_select(X, Index: int) -> Out",
    infer=lambda X, Index, dim: _gather(X, Index, None, dim),
    wrt=("X",),
    dim=0,
    composition=means(lambda f, X, Index, dim: f.gather(X, Index, axis=dim)),
)
def index_select(f: Any, X: ShapeOnly, Index: Any, dOut: Any, dim: int) -> Any:
    """The slices of X along `dim` with the indices in the vector Index."""
    return {"X": f.scatter_add_like(dOut, Index, X, axis=dim)}


def _unbind(X: Spec, axis: int, declared: Mapping[str, Any]) -> list[Spec]:
    return _unstack(X, axis, 0, {"Y": declared.get("Out")})


@define("unbind(X) -> Out*", infer=_unbind, inline_grad=True, axis=0)
def unbind(f: Any, dOut: Any, axis: int) -> Any:
    """The parts of X along `axis`, without that axis."""
    return {"X": f.stack(dOut, axis=axis)}


# ------------------------------------------------------------------------------------------------------------- padding
def _padded(X: Spec, paddings: list[int], mode: str = "constant") -> Spec:
    if len(paddings) != 2 * X.ndim or min(paddings, default=0) < 0:
        raise InferenceError(f"paddings {paddings} should hold two numbers, not below 0, for each dimension of X {X}")
    shape = []
    for size, low, high in zip(X.shape, paddings[::2], paddings[1::2], strict=True):
        if mode in ("edge", "wrap") and size == 0 < low + high:
            raise InferenceError(f"paddings {low} and {high} by elements of X {X} need some, but a size is 0")
        if mode == "reflect" and 0 <= size <= max(low, high):
            raise InferenceError(f"paddings {low} and {high} by reflection should be less than the size {size} in X {X}")
        shape.append(size + low + high if size >= 0 else -1)
    return X.with_shape(tuple(shape))


def _cut(f: Any, dOut: Any, paddings: list[int]) -> Any:
    """`dOut` without the padding."""
    axes = [axis for axis in range(len(paddings) // 2) if paddings[2 * axis] or paddings[2 * axis + 1]]
    ends = [-paddings[2 * axis + 1] or 2**31 - 1 for axis in axes]
    return f.slice(dOut, axes=axes, starts=[paddings[2 * axis] for axis in axes], ends=ends)


@define("pad(X) -> Out", infer=_padded, paddings=required("ints"), pad_value=0.0)
def pad(f: Any, dOut: Any, paddings: list[int]) -> Any:
    """X padded with `pad_value`: `paddings` holds, for each dimension, the padding before and after.

    Args:
        X: a tensor.
        paddings: two numbers for each dimension, ``[before_0, after_0, before_1, ...]``.
        pad_value: a number.
    """
    return {"X": _cut(f, dOut, paddings)}


PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "replicate": "edge", "circular": "wrap"}
"""Modes of pad2d and pad3d -> numpy's names for them."""


def all_paddings(paddings: list[int], data_format: str, innermost_first: bool) -> list[int]:
    """Paddings of all dimensions, made from the paddings of the spatial ones."""
    places = [paddings[i : i + 2] for i in range(0, len(paddings), 2)]
    places = places[::-1] if innermost_first else places
    order = [[0, 0], *places, [0, 0]] if data_format.endswith("C") else [[0, 0], [0, 0], *places]
    return [number for pair in order for number in pair]


def _checked_mode(mode: str) -> str:
    if mode not in PAD_MODES:
        raise InferenceError(f"mode {mode!r} should be one of {', '.join(PAD_MODES)}")
    return PAD_MODES[mode]


def _pad2d(X: Spec, Paddings: Spec | None, paddings: list[int], mode: str, data_format: str) -> Spec:
    if Paddings is not None:
        _checked_mode(mode)
        if Paddings.size not in (-1, 4) or X.ndim != 4:
            raise InferenceError(f"pad2d: Paddings {Paddings} should have four numbers, and X {X} four dimensions")
        return _padded_at_run(X, data_format)
    return _padded(X, all_paddings(paddings, data_format, False), _checked_mode(mode))


def _padded_at_run(X: Spec, data_format: str) -> Spec:
    """The spec of X with margins around its rows and columns that only tensors tell."""
    spatial = range(1, 3) if data_format.endswith("C") else range(2, 4)
    return X.with_shape(tuple(-1 if axis in spatial else size for axis, size in enumerate(X.shape)))


def _pad3d(X: Spec, paddings: list[int], mode: str, data_format: str) -> Spec:
    return _padded(X, all_paddings(paddings, data_format, True), _checked_mode(mode))


def _unpadded(f: Any, X: Any, dOut: Any, paddings: list[int], mode: str) -> Any:
    if mode == "constant":
        return {"X": _cut(f, dOut, paddings)}
    return {"X": f.unpad_by(dOut, X, paddings=paddings, mode=PAD_MODES[mode])}


@define(
    "pad2d(X, Paddings?: int) -> Out",
    infer=_pad2d,
    wrt=("X",),
    paddings=ints(0, 0, 0, 0),
    mode="constant",
    pad_value=0.0,
    data_format="NCHW",
)
def pad2d(f: Any, X: ShapeOnly, Paddings: Any, dOut: Any, paddings: list[int], mode: str, data_format: str) -> Any:
    """Padded images: `paddings`, or the numbers in Paddings, are top, bottom, left, right.

    The mode "constant" pads with `pad_value`, "reflect" mirrors the image at its outermost elements, "edge" repeats those.
    """
    if Paddings is not None:
        return {"X": f.unpad_by(dOut, X, Paddings, paddings=[], mode=PAD_MODES[mode], data_format=data_format)}
    return _unpadded(f, X, dOut, all_paddings(paddings, data_format, False), mode)


@define("pad3d(X) -> Out", infer=_pad3d, paddings=required("ints"), mode="constant", value=0.0, data_format="NCDHW")
def pad3d(f: Any, X: ShapeOnly, dOut: Any, paddings: list[int], mode: str, data_format: str) -> Any:
    """Padded volumes: `paddings` are left, right, top, bottom, front, back.

    The mode "constant" pads with `value`, "reflect" mirrors at the outermost elements, "replicate" repeats those, "circular"
    continues at the opposite end.
    """
    return _unpadded(f, X, dOut, all_paddings(paddings, data_format, True), mode)


_BY: dict[str, Any] = {"paddings": required("ints"), "mode": "edge", "data_format": "NCHW"}


@define("unpad_by(X, Like, Paddings?: int) -> Out", **transpose_of("pad_by"), **_BY)
def unpad_by(f: Any, X: ShapeOnly, Paddings: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """X without its padding, which is added to the elements that it copies, if any: the transpose of `pad_by`."""
    return {"X": f.pad_by(dOut, Paddings, X, **attrs)}


def _pad_by(X: Spec, Paddings: Spec | None, Like: Spec | None, paddings: list[int], mode: str, data_format: str) -> Spec:
    out = _padded(X, paddings, mode) if Paddings is None else _padded_at_run(X, data_format)
    if Like is not None and not may_equal(out.shape, Like.shape):
        raise InferenceError(f"Like {Like} should have the shape of X {X} with its padding, {list(out.shape)}")
    return out if Like is None else X.with_shape(Like.shape)


@define("pad_by(X, Paddings?: int, Like?) -> Out", infer=_pad_by, wrt=("X",), shape_only=("Like",), **_BY)
def pad_by(f: Any, X: ShapeOnly, Paddings: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """X padded with zeros (mode "constant") or, by numpy's mode "edge", "reflect" or "wrap", with copies of its elements.

    The `paddings` are as in `pad`, those in Paddings as in `pad2d`; the result has the shape of Like.
    """
    return {"X": f.unpad_by(dOut, X, Paddings, **attrs)}
