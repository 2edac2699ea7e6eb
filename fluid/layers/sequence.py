"""Layers over sequences of different lengths, whose rows follow one another in one tensor; the LoD says where each begins."""

from __future__ import annotations

from collections.abc import Sequence

from ..building.layer_helper import LayerHelper, apply, apply_many, extent
from ..errors import ProgramError
from ..ir.checked import Positive
from ..ir.program import Variable
from ..param_attr import AttrLike
from .tensor import constant

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

    Args:
        input: float ``[rows, width]`` of sequences; the width is known.
        num_filters: number of columns of the result.
        filter_size: number of rows that the filter covers.
        filter_stride: 1; no other step is supported.
        padding: accepted and ignored, as in Fluid: rows past the ends of a sequence are zeros.
        padding_start: where the filter begins, relative to the row; by default ``-(filter_size // 2)``.
        bias_attr: attributes of the bias, ``[num_filters]``; False for none.
        param_attr: attributes of the weights, ``[filter_size * width, num_filters]``.

    Raises:
        ProgramError: if the width is unknown.

    >>> words = fluid.data("words", [None, 16], lod_level=1)
    >>> layers.sequence_conv(words, num_filters=32, filter_size=3, act="tanh").shape
    (-1, 32)
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
    output = helper.apply("sequence_conv", {"X": input, "Filter": weight}, attrs)["Out"]
    return helper.append_activation(helper.append_bias_op(output))


def row_conv(input: Variable, future_context_size: int, param_attr: AttrLike = None, act: str | None = None) -> Variable:
    """The weighted sum, element by element, of each row and the `future_context_size` rows after it in its sequence.

    Formula: Amodei et al., Deep Speech 2, 2016.

    Args:
        input: float ``[rows, width]`` of sequences, or ``[batch, steps, width]``.
        future_context_size: number of rows, at least 0.
        param_attr: attributes of the weights, ``[future_context_size + 1, width]``.

    Raises:
        ProgramError: if `future_context_size` is below 0.

    >>> words = fluid.data("words", [None, 16], lod_level=1)
    >>> layers.row_conv(words, future_context_size=2).shape
    (-1, 16)
    """
    if future_context_size < 0:
        raise ProgramError(f"row_conv: future_context_size should not be below 0, as {future_context_size} is")
    helper = LayerHelper("row_conv", None, param_attr, act=act)
    weight = helper.create_parameter(helper.param_attr, [future_context_size + 1, extent(input, -1, "input")], input.dtype)
    return helper.append_activation(helper.apply("row_conv", {"X": input, "Filter": weight})["Out"])


def sequence_pool(input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0) -> Variable:
    """Reduces each sequence of the last level to one row; an empty sequence gives `pad_value`.

    Args:
        input: float ``[rows, ...]`` of sequences.
        pool_type: ``"average"``, ``"sum"``, ``"sqrt"`` (the sum divided by the square root of the length), ``"max"``, ``"last"``
            or ``"first"``, in small or capital letters.
        is_test: accepted and ignored.
        pad_value: what the row of an empty sequence is filled with.

    >>> x = fluid.dygraph.to_variable([[1.0], [2.0], [4.0]]).with_lod([[0, 2, 3]])
    >>> layers.sequence_pool(x, "sum")
    Tensor([[3.],
            [4.]], shape=[2, 1], dtype=float32)
    """
    attrs = {"pooltype": pool_type.upper(), "is_test": is_test, "pad_value": pad_value}
    return apply("sequence_pool", {"X": input}, attrs)


def sequence_first_step(input: Variable) -> Variable:
    """The first row of each sequence.

    Args:
        input: float ``[rows, ...]`` of sequences; an empty one gives zeros.

    >>> x = fluid.dygraph.to_variable([[1.0], [2.0], [4.0]]).with_lod([[0, 2, 3]])
    >>> layers.sequence_first_step(x)
    Tensor([[1.],
            [4.]], shape=[2, 1], dtype=float32)
    """
    return sequence_pool(input, "first")


def sequence_last_step(input: Variable) -> Variable:
    """The last row of each sequence.

    Args:
        input: float ``[rows, ...]`` of sequences; an empty one gives zeros.

    >>> x = fluid.dygraph.to_variable([[1.0], [2.0], [4.0]]).with_lod([[0, 2, 3]])
    >>> layers.sequence_last_step(x)
    Tensor([[2.],
            [4.]], shape=[2, 1], dtype=float32)
    """
    return sequence_pool(input, "last")


def sequence_softmax(input: Variable, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Softmax over each sequence of `input`: ``exp(x) / sum(exp(x))``.

    Args:
        input: float ``[rows]`` or ``[rows, 1]`` of sequences.

    >>> x = fluid.dygraph.to_variable([[1.0], [1.0], [4.0]]).with_lod([[0, 2, 3]])
    >>> layers.sequence_softmax(x)
    Tensor([[0.5],
            [0.5],
            [1. ]], shape=[3, 1], dtype=float32)
    """
    return apply("sequence_softmax", {"X": input}, name=name)


def sequence_expand(x: Variable, y: Variable, ref_level: int = -1, name: str | None = None) -> Variable:
    """Repeats sequence i of `x` (row i, if it has none) as often as the length of sequence i in `y`'s level `ref_level`.

    Args:
        x: rows, or sequences of rows.
        y: sequences; only their lengths are read.
        ref_level: which of its levels; -1 is the innermost.

    >>> x = fluid.dygraph.to_variable([[1.0], [2.0]])
    >>> y = fluid.dygraph.to_variable([[0.0], [0.0], [0.0]]).with_lod([[0, 2, 3]])
    >>> layers.sequence_expand(x, y)
    Tensor([[1.],
            [1.],
            [2.]], shape=[3, 1], dtype=float32)
    """
    return apply("sequence_expand", {"X": x, "Y": y}, {"ref_level": ref_level}, name=name)


def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Repeats row i of `x` as often as the length of sequence i of `y`.

    Args:
        x: one row for each sequence of `y`.
        y: sequences; only their lengths are read.

    >>> x = fluid.dygraph.to_variable([[1.0], [2.0]])
    >>> y = fluid.dygraph.to_variable([[0.0], [0.0], [0.0]]).with_lod([[0, 2, 3]])
    >>> layers.sequence_expand_as(x, y)
    Tensor([[1.],
            [1.],
            [2.]], shape=[3, 1], dtype=float32)
    """
    return apply("sequence_expand_as", {"X": x, "Y": y}, name=name)


def sequence_concat(input: Sequence[Variable], name: str | None = None) -> Variable:
    """Concatenates sequence i of all tensors in `input`, for each i.

    Args:
        input: tensors of one type, with equal numbers of sequences and rows of one shape.

    >>> x = fluid.dygraph.to_variable([[1], [2], [3]]).with_lod([[0, 2, 3]])
    >>> y = fluid.dygraph.to_variable([[7], [8]]).with_lod([[0, 1, 2]])
    >>> layers.sequence_concat([x, y]).numpy().ravel()
    array([1, 2, 7, 3, 8])
    """
    return apply("sequence_concat", {"X": list(input)}, name=name)


def sequence_slice(input: Variable, offset: Variable, length: Variable, name: str | None = None) -> Variable:
    """The ``length[i]`` rows from ``offset[i]`` on of sequence i.

    Args:
        input: rows of sequences.
        offset: the first row for each sequence, int64 ``[sequences, 1]``.
        length: how many rows for each sequence, int64 ``[sequences, 1]``; they lie within the sequence.

    >>> x = fluid.dygraph.to_variable([[1], [2], [3], [4]]).with_lod([[0, 3, 4]])
    >>> offset, length = fluid.dygraph.to_variable([[1], [0]]), fluid.dygraph.to_variable([[2], [1]])
    >>> layers.sequence_slice(x, offset, length).numpy().ravel()
    array([2, 3, 4])
    """
    return apply("sequence_slice", {"X": input, "Offset": offset, "Length": length}, name=name)


def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """The sequences of `x` padded to ``[sequences, maxlen, ...]``, and their lengths, int64 ``[sequences]``.

    Args:
        x: rows of sequences.
        pad_value: a variable of one number, or of the shape of a row.
        maxlen: the length to pad to, not below any sequence's; by default the longest sequence's.

    >>> x = fluid.dygraph.to_variable([1, 2, 4]).with_lod([[0, 2, 3]])
    >>> padded, length = layers.sequence_pad(x, pad_value=fluid.dygraph.to_variable([0]))
    >>> padded
    Tensor([[1, 2],
            [4, 0]], shape=[2, 2], dtype=int64)
    >>> length
    Tensor([2, 1], shape=[2], dtype=int64)
    """
    attrs = {"padded_length": -1 if maxlen is None else maxlen}
    padded, length = apply_many("sequence_pad", {"X": x, "PadValue": pad_value}, attrs, name=name)
    return padded, constant(length)


def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Variable:
    """The first ``length[i]`` entries of each ``x[i]`` as sequences.

    Args:
        x: ``[sequences, steps, ...]``.
        length: int64 ``[sequences]``, none above `steps`.

    >>> x = fluid.dygraph.to_variable([[1, 2], [4, 0]])
    >>> layers.sequence_unpad(x, length=fluid.dygraph.to_variable([2, 1]))
    Tensor([[1],
            [2],
            [4]], shape=[3, 1], dtype=int64)
    """
    return apply("sequence_unpad", {"X": x, "Length": length}, name=name)


def sequence_reshape(input: Variable, new_dim: int) -> Variable:
    """Reshapes each sequence to rows of width `new_dim`.

    Args:
        input: ``[rows, width]`` of sequences.
        new_dim: the new width, which divides the number of elements of each sequence.

    >>> x = fluid.data("x", [None, 6], lod_level=1)
    >>> layers.sequence_reshape(x, new_dim=2).shape
    (-1, 2)
    """
    return apply("sequence_reshape", {"X": input}, {"new_dim": new_dim})


def sequence_reverse(x: Variable, name: str | None = None) -> Variable:
    """The rows of each sequence in reverse order.

    Args:
        x: rows of sequences.

    >>> x = fluid.dygraph.to_variable([[1], [2], [4]]).with_lod([[0, 2, 3]])
    >>> layers.sequence_reverse(x).numpy().ravel()
    array([2, 1, 4])
    """
    return apply("sequence_reverse", {"X": x}, name=name)


def sequence_enumerate(input: Variable, win_size: int, pad_value: int = 0, name: str | None = None) -> Variable:
    """Windows ``[rows, win_size]``: each row of `input`, integers ``[rows, 1]``, and those after it in its sequence.

    Args:
        input: int ``[rows]`` or ``[rows, 1]`` of sequences.
        win_size: number of rows in a window.
        pad_value: stands past the end of the sequence.

    >>> x = fluid.dygraph.to_variable([[1], [2], [3], [4]]).with_lod([[0, 3, 4]])
    >>> layers.sequence_enumerate(x, win_size=2)
    Tensor([[1, 2],
            [2, 3],
            [3, 0],
            [4, 0]], shape=[4, 2], dtype=int64)
    """
    return apply("sequence_enumerate", {"X": input}, {"win_size": win_size, "pad_value": pad_value}, name=name)


def sequence_scatter(input: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """`input` with `updates` added: each row of sequence i to ``input[i, k]``, where k is the same row of `index`.

    Args:
        input: ``[sequences, width]``.
        index: int sequences of columns of `input`.
        updates: numbers in the same sequences, of the type of `input`.

    >>> x = fluid.dygraph.to_variable([[1.0, 1.0], [1.0, 1.0]])
    >>> index = fluid.dygraph.to_variable([[0], [1], [1]]).with_lod([[0, 2, 3]])
    >>> updates = fluid.dygraph.to_variable([[10.0], [20.0], [30.0]]).with_lod([[0, 2, 3]])
    >>> layers.sequence_scatter(x, index, updates)
    Tensor([[11., 21.],
            [ 1., 31.]], shape=[2, 2], dtype=float32)
    """
    return apply("sequence_scatter", {"X": input, "Ids": index, "Updates": updates}, name=name)


def lod_reset(x: Variable, y: Variable | None = None, target_lod: Sequence[int] | None = None) -> Variable:
    """`x` with the sequences of `y`, or with the offsets `target_lod`.

    Args:
        x: a tensor ``[rows, ...]``.
        y: a tensor of sequences; if it has none, its int32 values are offsets.
        target_lod: offsets, from 0 to the number of rows; without `y`.

    Raises:
        ProgramError: without `y` and `target_lod`.

    >>> x = fluid.dygraph.to_variable([[1.0], [2.0], [4.0]])
    >>> layers.sequence_pool(layers.lod_reset(x, target_lod=[0, 2, 3]), "sum")
    Tensor([[3.],
            [4.]], shape=[2, 1], dtype=float32)
    """
    if y is None and target_lod is None:
        raise ProgramError("lod_reset: give y, or the offsets target_lod")
    return apply("lod_reset", {"X": x, "Y": y}, {} if y is not None else {"target_lod": list(target_lod or ())})


def lod_append(x: Variable, level: Variable | Sequence[int]) -> Variable:
    """`x` with one more innermost level of sequences: from the variable `level`, or with these offsets.

    Args:
        x: a tensor ``[rows, ...]``.
        level: offsets, from 0 to the number of rows; or a tensor of sequences, or an int32 one of offsets.

    >>> x = fluid.dygraph.to_variable([[1.0], [2.0], [4.0]])
    >>> layers.lod_append(x, [0, 2, 3]).lod
    ((0, 2, 3),)
    """
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
    """The patches of each image ``[images, channels, height, width]``, row by row, as a sequence.

    Args:
        input: images ``[images, channels, height, width]``.
        filter_size: height and width of the patches, or one number for both.
        stride: steps between patches, down and across, or one number for both.
        padding: zeros around the image: one number, two (height, width), or four (top, left, bottom, right).
        input_image_size: ``[images, 2]``, the sizes of images that were enlarged to one size; only patches within these are
            taken. As in Paddle, it is passed over where there is one image.
        out_stride: what these sizes are divided by (rounded up) before: one number, or height and width.

    Returns:
        ``[images * patches, channels * filter height * filter width]``.

    >>> images = fluid.data("images", [None, 3, 32, 32])
    >>> layers.im2sequence(images, filter_size=[32, 8], stride=[1, 8]).shape
    (-1, 768)
    """

    def repeated(value: int | Sequence[int], count: int) -> list[int]:
        values = [value] if isinstance(value, int) else list(value)
        return values * (count // len(values))

    attrs = {"kernels": repeated(filter_size, 2), "strides": repeated(stride, 2), "paddings": repeated(padding, 4)}
    return apply("im2sequence", {"X": input, "Y": input_image_size}, {**attrs, "out_stride": repeated(out_stride, 2)}, name=name)
