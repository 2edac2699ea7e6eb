"""Rearrange, repeat, join and cut tensors, and make tensors from shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from ..types import element_type
from ..values import TensorValue
from .elementwise import broadcast_like, choose
from .padding import padded_at_run

LAST = 2**31 - 1


@imports("Constant", trains=False)
def constant(b: Builder, node: OnnxNode) -> Any:
    raise FormatError("a constant of strings: programs hold none")


@imports("Identity")
def identity(b: Builder, node: OnnxNode) -> Any:
    return node.value(0)


@imports("Shape", trains=False)
def shape(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    start, end, _ = slice(node.int("start", 0), node.int("end", x.ndim)).indices(x.ndim)
    full_shape = b.f.shape(x)
    return b.cast(full_shape if end - start == x.ndim else b.slice(full_shape, 0, start, end), VarType.INT64)


@imports("Size", trains=False)
def size(b: Builder, node: OnnxNode) -> Any:
    value = node.tensor(0)
    if -1 not in value.shape:
        return np.int64(np.prod(value.shape, dtype=np.int64))
    return b.reshape(b.f.size(node[0]), [])


@imports("Reshape")
def reshape(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    if node.opset < 5:
        return b.reshape(x, node.ints("shape", []))
    target = node.tensor(1)
    numbers = target.numbers()
    if numbers is None:
        if len(target.shape) == 1:
            raise FormatError("not even the number of dimensions is known beforehand")
        raise FormatError(f"the shape to which it reshapes should be a vector, not of shape {list(target.shape)}")
    if node.int("allowzero", 0) and any(number == 0 for number in numbers):
        if not all(isinstance(number, int) for number in numbers):
            raise FormatError("allowzero=1 is not supported with a shape known only at run time")
        return b.f.fill_constant(shape=[max(number, 0) for number in numbers], dtype=int(x.dtype), value=0.0)
    return b.reshape(x, numbers)


@imports("Flatten")
def flatten(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    axis = node.int("axis", 1)
    if not x.ndim:
        return b.f.reshape2(x, shape=[1, 1])
    return b.f.flatten2(x, axis=axis + x.ndim if axis < 0 else axis)


@imports("Transpose")
def transpose(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    order = node.ints("perm", list(range(x.ndim))[::-1])
    return x if not order else b.f.transpose2(x, axis=order)


@imports("Squeeze")
def squeeze(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    axes = node.ints("axes") if node.opset < 13 else _known_axes(node, 1)
    if axes is None:
        if -1 in x.shape:
            raise FormatError("it drops the dimensions of size 1, which are known only at run time; name them in its axes")
        axes = [axis for axis, size in enumerate(x.shape) if size == 1]
    for axis in axes:
        if x.shape[axis] not in (1, -1):
            raise FormatError(f"it drops axis {axis}, which has size {x.shape[axis]}, not 1")
    return b.squeeze(x, axes)


@imports("Unsqueeze")
def unsqueeze(b: Builder, node: OnnxNode) -> Any:
    axes = node.ints("axes") if node.opset < 13 else _known_axes(node, 1)
    if axes is None:
        raise FormatError("its axes are missing")
    rank = node[0].ndim + len(axes)
    if len({axis % rank for axis in axes}) < len(axes) or any(not -rank <= axis < rank for axis in axes):
        raise FormatError(f"its axes {axes} should be different ones, of {rank}")
    return b.unsqueeze(node[0], axes)


def _known_axes(node: OnnxNode, index: int) -> list[int] | None:
    array = node.constant_input(index, "its axes")
    return None if array is None else [int(axis) for axis in np.asarray(array).reshape(-1)]


@imports("Concat")
def concat(b: Builder, node: OnnxNode) -> Any:
    inputs = node.variables()
    return b.f.concat(inputs, axis=node.int("axis", 1)) if len(inputs) > 1 else node.value(0)


@imports("Split")
def split(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    count = len(node.proto.output)
    axis = node.int("axis", 0) % max(x.ndim, 1)
    sizes = node.ints("split") if node.opset < 13 else node.numbers(1)
    if sizes is None:
        parts = node.int("num_outputs", count) or count
        if parts != count:
            raise FormatError(f"its num_outputs is {parts}, and it names {count} outputs")
        size = x.shape[axis]
        if size < 0 or size % parts == 0:
            return tuple(b.f.split(x, num=parts, axis=axis))
        part_size = -(-size // parts)
        sizes = [part_size] * (parts - 1) + [size - part_size * (parts - 1)]
    if not all(isinstance(size, int) for size in sizes):
        return tuple(b.f.split(x, SectionsTensorList=[b.number_variable(size) for size in sizes], axis=axis))
    if 0 in sizes or len(sizes) == 1:
        ends = np.cumsum(sizes).tolist()
        return tuple(b.slice(x, axis, end - size, end) for size, end in zip(sizes, ends, strict=True))
    return tuple(b.f.split(x, sections=list(sizes), axis=axis))


@imports("Expand")
def expand(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    numbers = node.numbers(1)
    if numbers is None:
        raise FormatError("even the number of dimensions of its result is known only in a run")
    return expanded(b, x, numbers)


def expanded(b: Builder, x: Any, numbers: Sequence[Any]) -> Any:
    """Broadcast `x` with a shape."""
    x = b.variables(x)
    rank = max(x.ndim, len(numbers))
    input_shape = (1,) * (rank - x.ndim) + x.shape
    wanted = [1] * (rank - len(numbers)) + list(numbers)
    if all(isinstance(number, int) for number in wanted):
        shape = []
        for have, want in zip(input_shape, wanted, strict=True):
            if have == 0 or want == 0:
                shape.append(0)
            else:
                shape.append(-1 if want == 1 else want)
        if 0 in shape:
            return b.f.fill_constant(
                shape=[0 if s == 0 else max(s, h) for s, h in zip(shape, input_shape, strict=True)], dtype=int(x.dtype), value=0.0
            )
        if all(size == -1 or size == have for size, have in zip(shape, input_shape, strict=True)) and rank == x.ndim:
            return x
        if -1 not in input_shape or all(want in (1, -1) or have >= 0 for have, want in zip(input_shape, shape, strict=True)):
            return b.f.expand_v2(
                x, shape=[have if want == -1 and have >= 0 else want for have, want in zip(input_shape, shape, strict=True)]
            )
    like = b.f.fill_constant(
        ShapeTensorList=[b.number_variable(n) for n in wanted],
        shape=[n if isinstance(n, int) else -1 for n in wanted],
        dtype=int(VarType.FP32),
        value=0.0,
    )
    b.declare_shape(like, [n if isinstance(n, int) else -1 for n in wanted])
    return b.f.expand_to(x, broadcast_like(b, [x, like]))


@imports("Tile")
def tile(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    if node.opset < 6:
        repeats = [1] * x.ndim
        repeats[int(node.constant_input(2, "its axis").reshape(()))] = int(
            node.constant_input(1, "how often it repeats").reshape(())
        )
        return b.f.tile(x, repeat_times=repeats)
    numbers = node.numbers(1)
    if numbers is None:
        return b.f.tile(x, node[1])
    if all(isinstance(number, int) for number in numbers):
        if 0 in numbers:
            return b.f.fill_constant(shape=[s * n for s, n in zip(x.shape, numbers, strict=True)], dtype=int(x.dtype), value=0.0)
        return b.f.tile(x, repeat_times=numbers) if x.ndim else x
    return b.f.tile(x, repeat_times_tensor=[b.number_variable(number) for number in numbers])


@imports("ConstantOfShape", trains=False)
def constant_of_shape(b: Builder, node: OnnxNode) -> Any:
    tensor = node.proto_of("value")
    value = np.zeros(1, np.float32) if tensor is None else node.reader.array_of(tensor, "its value").reshape(-1)
    numbers = node.numbers(0)
    if numbers is None:
        raise FormatError("not even the number of dimensions is known beforehand")
    return filled(b, numbers, value[0])


def filled(b: Builder, numbers: Sequence[Any], value: Any) -> Any:
    """A tensor of one value, with a shape that may be partly known."""
    number = b.number(value, TensorValue(array=np.asarray(value)).dtype)
    how: dict[str, Any] = {"dtype": int(number.dtype), "value": float(np.real(value)), "str_value": str(np.asarray(value).item())}
    if np.asarray(value).dtype.kind == "b":
        how["str_value"] = str(int(value))
    if all(isinstance(n, int) for n in numbers):
        return b.f.fill_constant(shape=list(numbers), **how)
    shape = [n if isinstance(n, int) else -1 for n in numbers]
    return b.declare_shape(b.f.fill_constant(ShapeTensorList=[b.number_variable(n) for n in numbers], shape=shape, **how), shape)


@imports("Range", trains=False)
def range_(b: Builder, node: OnnxNode) -> Any:
    return b.f.range(node[0], node[1], node[2])


@imports("EyeLike", trains=False)
def eye_like(b: Builder, node: OnnxNode) -> Any:
    x = node.tensor(0)
    rows, columns = x.shape
    dtype = element_type(node.int("dtype"), "its dtype") if node.has("dtype") else x.dtype
    if -1 in x.shape:
        raise FormatError("the sizes of the matrix are known only in a run")
    b.reserve(rows, columns, itemsize=dtype.numpy.itemsize)
    return np.eye(rows, columns, node.int("k", 0), dtype.numpy)


@imports("DepthToSpace")
def depth_to_space(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    size = node.int("blocksize")
    c, h, w = x.shape[1:]
    if node.string("mode", "DCR") == "DCR":
        parts = b.f.reshape2(x, shape=[0, size, size, c // (size * size), h, w])
        moved = b.f.transpose2(parts, axis=[0, 3, 4, 1, 5, 2])
    else:
        parts = b.f.reshape2(x, shape=[0, c // (size * size), size, size, h, w])
        moved = b.f.transpose2(parts, axis=[0, 1, 4, 2, 5, 3])
    return b.f.reshape2(moved, shape=[0, c // (size * size), h * size, w * size])


@imports("SpaceToDepth")
def space_to_depth(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    size = node.int("blocksize")
    c, h, w = x.shape[1:]
    parts = b.f.reshape2(x, shape=[0, c, h // size, size, w // size, size])
    order = [0, 1, 3, 5, 2, 4] if node.string("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4]
    return b.f.reshape2(b.f.transpose2(parts, axis=order), shape=[0, c * size * size, h // size, w // size])


@imports("Dropout")
def dropout(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    training = False
    ratio = node.float("ratio", 0.5)
    if node.opset >= 12:
        ratio = 0.5 if node.value(1) is None else float(np.reshape(node.constant_input(1, "its ratio"), ()))
        flag = node.constant_input(2, "its training mode")
        training = flag is not None and bool(np.reshape(flag, ()))
    elif node.opset < 7:
        training = not node.int("is_test", 0)
    if training and ratio > 0:
        outputs = {"Out": b.temporary(), "Mask": b.temporary()}
        b.append(
            "dropout", {"X": x}, outputs, {"dropout_prob": ratio, "dropout_implementation": "upscale_in_train", "is_test": False}
        )
        return outputs["Out"], b.cast(outputs["Mask"], VarType.BOOL)
    out = b.f.dropout(x, dropout_prob=ratio, dropout_implementation="upscale_in_train", is_test=True)
    if len(node.proto.output) < 2 or not node.proto.output[1]:
        return out
    return out, b.f.fill_any_like(x, value=1.0, dtype=int(VarType.BOOL))


# ------------------------------------------------------------------------------------------------------------- padding
_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}


@imports("Pad")
def pad(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    mode = node.string("mode", "constant")
    if mode not in _MODES:
        raise FormatError(f"its mode {mode!r} should be one of {', '.join(_MODES)}")
    if node.opset < 11:
        pads, value = node.ints("pads", node.ints("paddings")), node.float("value", 0.0)
        axes = list(range(x.ndim))
    else:
        pads = node.numbers(1)
        value = node.scalar(2) if node.value(2) is not None else 0.0
        axes = node.constant_input(3, "its axes")
        axes = list(range(x.ndim)) if axes is None else [int(axis) % x.ndim for axis in axes.reshape(-1)]
    if pads is None or len(pads) != 2 * len(axes):
        raise FormatError(f"its pads should be two numbers for each of the {len(axes)} axes")
    if not all(isinstance(number, int) for number in pads):
        number = node[2] if node.value(2) is not None else b.number(0, x.dtype)
        for axis, first, last in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
            if first != 0 or last != 0:
                x = padded_at_run(b, x, axis, first, last, _MODES[mode], number)
        return x
    before, after = [0] * x.ndim, [0] * x.ndim
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    if any(number < 0 for number in (*before, *after)):
        x = _cropped(b, x, before, after)
        before, after = ([max(number, 0) for number in side] for side in (before, after))
    if not any(before) and not any(after):
        return x
    paddings = [number for pair in zip(before, after, strict=True) for number in pair]
    if mode != "constant":
        return b.f.pad_by(x, paddings=paddings, mode=_MODES[mode])
    if value is None:
        is_inside = b.f.pad(b.f.fill_any_like(x, value=1.0, dtype=int(VarType.FP32)), paddings=paddings, pad_value=0.0)
        return choose(b, b.cast(is_inside, VarType.BOOL), b.f.pad(x, paddings=paddings, pad_value=0.0), node[2])
    return b.f.pad(x, paddings=paddings, pad_value=float(value))


def _cropped(b: Builder, x: Any, before: list[int], after: list[int]) -> Any:
    axes = [axis for axis in range(x.ndim) if before[axis] < 0 or after[axis] < 0]
    starts = [max(-before[axis], 0) for axis in axes]
    ends = [min(after[axis], 0) or LAST for axis in axes]
    return b.f.slice(x, axes=axes, starts=starts, ends=ends)
