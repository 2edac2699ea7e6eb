"""Layers over sequences: rows of different numbers that lie one after the other, told apart by their LoD."""

from __future__ import annotations

from collections.abc import Sequence

from ..building.layer_helper import LayerHelper, apply, apply_many, extent
from ..errors import ProgramError
from ..ir.checked import Positive
from ..ir.program import Variable
from ..param_attr import AttrLike

__all__ = [
    "im2sequence",
    "lod_append",
    "lod_reset",
    "row_conv",
    "sequence_concat",
    "sequence_conv",
    "sequence_enumerate",
    "sequence_expand",
    "sequence_expand_as",
    "sequence_first_step",
    "sequence_last_step",
    "sequence_pad",
    "sequence_pool",
    "sequence_reshape",
    "sequence_reverse",
    "sequence_scatter",
    "sequence_slice",
    "sequence_softmax",
    "sequence_unpad",
]


def sequence_conv(
    input: Variable,
    num_filters: Positive,
    filter_size: Positive = 3,
    filter_stride: int = 1,
    padding: bool = True,
    padding_start: int | None = None,
    bias_attr: AttrLike = None,
    param_attr: AttrLike = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Convolution over the rows of each sequence of `input`, ``[rows, width]``: ``[rows, num_filters]``.

    The filter sees `filter_size` rows from `padding_start` on (``-filter_size // 2`` by default), zeros past the ends. Its
    weights are ``[filter_size * width, num_filters]``. `padding` False is not supported by the op, as in Fluid.
    """
    helper = LayerHelper("sequence_conv", name, param_attr, bias_attr, act)
    if extent(input, 1, "input") < 0:
        raise ProgramError(f"sequence_conv: the width of {input.name} ({input.describe()}) must be known")
    weight = helper.create_parameter(helper.param_attr, [filter_size * input.shape[1], num_filters], input.dtype)
    attrs = {
        "contextStride": filter_stride,
        "contextStart": -(filter_size // 2) if padding_start is None else padding_start,
        "contextLength": filter_size,
    }
    found = helper.apply("sequence_conv", {"X": input, "Filter": weight}, attrs)["Out"]
    return helper.append_activation(helper.append_bias_op(found))


def row_conv(input: Variable, future_context_size: int, param_attr: AttrLike = None, act: str | None = None) -> Variable:
    """Each row and the `future_context_size` after it in its sequence, weighted element by element and added up."""
    if future_context_size < 0:
        raise ProgramError(f"row_conv: future_context_size should not be below 0, as {future_context_size} is")
    helper = LayerHelper("row_conv", None, param_attr, act=act)
    weight = helper.create_parameter(helper.param_attr, [future_context_size + 1, extent(input, 1, "input")], input.dtype)
    return helper.append_activation(helper.apply("row_conv", {"X": input, "Filter": weight})["Out"])


def sequence_pool(input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0) -> Variable:
    """Each sequence of the last level as one row: `pool_type` is average, sum, sqrt, max, last or first; `pad_value` for an
    empty one."""
    attrs = {"pooltype": pool_type.upper(), "is_test": is_test, "pad_value": pad_value}
    return apply("sequence_pool", {"X": input}, attrs)


def sequence_first_step(input: Variable) -> Variable:
    """The first row of each sequence."""
    return sequence_pool(input, "first")


def sequence_last_step(input: Variable) -> Variable:
    """The last row of each sequence."""
    return sequence_pool(input, "last")


def sequence_softmax(input: Variable, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Softmax over each sequence of `input`, ``[rows, 1]``."""
    return apply("sequence_softmax", {"X": input}, name=name)


def sequence_expand(x: Variable, y: Variable, ref_level: int = -1, name: str | None = None) -> Variable:
    """Sequence (or row, where `x` has no sequences) i of `x` as often as sequence i of `y`'s level `ref_level` is long."""
    return apply("sequence_expand", {"X": x, "Y": y}, {"ref_level": ref_level}, name=name)


def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Row i of `x` as often as sequence i of `y` is long."""
    return apply("sequence_expand_as", {"X": x, "Y": y}, name=name)


def sequence_concat(input: Sequence[Variable], name: str | None = None) -> Variable:
    """Sequence i of each of `input` after the other, as sequence i."""
    return apply("sequence_concat", {"X": list(input)}, name=name)


def sequence_slice(input: Variable, offset: Variable, length: Variable, name: str | None = None) -> Variable:
    """Of each sequence of `input`, ``length[i]`` rows from ``offset[i]`` on; both are int64 of shape ``[sequences, 1]``."""
    return apply("sequence_slice", {"X": input, "Offset": offset, "Length": length}, name=name)


def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """The sequences of `x` as ``[sequences, maxlen, ...]``, filled up with `pad_value` (one number, or a row), and their
    lengths, int64 of shape ``[sequences]``. By default, `maxlen` is the length of the longest."""
    attrs = {"padded_length": -1 if maxlen is None else maxlen}
    padded, length = apply_many("sequence_pad", {"X": x, "PadValue": pad_value}, attrs, name=name)
    length.stop_gradient = True
    return padded, length


def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Variable:
    """The first ``length[i]`` entries of each ``x[i]``, as sequences; `length` is int64 of shape ``[sequences]``."""
    return apply("sequence_unpad", {"X": x, "Length": length}, name=name)


def sequence_reshape(input: Variable, new_dim: int) -> Variable:
    """The numbers of each sequence in rows of `new_dim`."""
    return apply("sequence_reshape", {"X": input}, {"new_dim": new_dim})


def sequence_reverse(x: Variable, name: str | None = None) -> Variable:
    """The rows of each sequence in reverse order."""
    return apply("sequence_reverse", {"X": x}, name=name)


def sequence_enumerate(input: Variable, win_size: int, pad_value: int = 0, name: str | None = None) -> Variable:
    """Each row of `input`, whole numbers ``[rows, 1]``, with the `win_size` - 1 that follow it in its sequence:
    ``[rows, win_size]``, `pad_value` past the end."""
    return apply("sequence_enumerate", {"X": input}, {"win_size": win_size, "pad_value": pad_value}, name=name)


def sequence_scatter(input: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """`input` with `updates` added: row j of sequence i, whose index is k, to ``input[i, k]``."""
    return apply("sequence_scatter", {"X": input, "Ids": index, "Updates": updates}, name=name)


def lod_reset(x: Variable, y: Variable | None = None, target_lod: Sequence[int] | None = None) -> Variable:
    """`x` with other sequences: those of `y`, or, where it has none, between the offsets that it holds, or `target_lod`."""
    if y is None and target_lod is None:
        raise ProgramError("lod_reset: give y, or the offsets target_lod")
    return apply("lod_reset", {"X": x, "Y": y}, {} if y is not None else {"target_lod": list(target_lod or ())})


def lod_append(x: Variable, level: Variable | Sequence[int]) -> Variable:
    """`x` with one more, innermost, level of sequences: the offsets `level`, or the sequences of that variable."""
    if isinstance(level, Variable):
        return apply("lod_reset", {"X": x, "Y": level}, {"append": True}, layer="lod_append")
    return apply("lod_reset", {"X": x}, {"append": True, "target_lod": list(level)}, layer="lod_append")


def im2sequence(
    input: Variable,
    filter_size: int | Sequence[int] = 1,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    input_image_size: Variable | None = None,
    out_stride: int | Sequence[int] = 1,
    name: str | None = None,
) -> Variable:
    """The patches of each image of `input`, ``[images, channels, height, width]``, row by row, as a sequence:
    ``[images * patches, channels * filter height * filter width]``. `padding` is up, left, down, right."""

    def several(value: int | Sequence[int], count: int) -> list[int]:
        found = [value] * count if isinstance(value, int) else list(value)
        return found * (count // len(found))

    attrs = {"kernels": several(filter_size, 2), "strides": several(stride, 2), "paddings": several(padding, 4)}
    return apply("im2sequence", {"X": input, "Y": input_image_size}, {**attrs, "out_stride": several(out_stride, 2)}, name=name)
