"""The quantized LSTM of the domain com.microsoft: weights of 8 bits, and states that are rounded in each step."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import FormatError
from ...ops.quantization import product_by_range
from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from ..types import name_of
from .microsoft import count_of, microsoft
from .quantization import check_parameters, type_of
from .rnn import lstm


class _Weight(NamedTuple):
    """The weight of one direction: integers [rows, 4 * size], their scale, and their zero point."""

    integers: Any
    scale: Any
    zero: Any


@microsoft("DynamicQuantizeLSTM", trains=False)
def dynamic_quantize_lstm(b: Builder, node: OnnxNode) -> Any:
    size = count_of(node, "hidden_size")
    directions = 2 if node.string("direction", "forward") == "bidirectional" else 1
    weights = [
        [_weight(b, node, number, directions, place, rows, size) for place, rows in ((1, node[0].shape[-1]), (2, size))]
        for number in range(directions)
    ]

    def by_op(number: int, x: Any, states: list[Any], is_reverse: bool) -> Any:
        (w, r), bias, lengths = weights[number], _bias(b, node, number, directions, size), node.get(4)
        return b.f.dynamic_quantize_lstm(
            x, *states, w.integers, r.integers, w.scale, r.scale, w.zero, r.zero, bias, lengths, is_reverse=is_reverse
        )

    def products(number: int) -> Any:
        w, r = weights[number]
        return (lambda f, x: product_by_range(f, x, *w)), [lambda f, h: product_by_range(f, h, *r)]

    return lstm(b, node, size, products, by_op)


def _weight(b: Builder, node: OnnxNode, number: int, directions: int, place: int, rows: int, size: int) -> _Weight:
    """The weight of a direction; input `place` has the weights of all directions."""
    at_scale = 6 + 2 * place
    value, columns = node.tensor(place), 4 * size
    if value.dtype not in (VarType.INT8, VarType.UINT8):
        raise FormatError(f"its weights (input {place}) are of {name_of(type_of(value))}; they should be of INT8 or UINT8")
    check_parameters(node, place, at_scale, at_scale + 1)
    _check_shape(f"its weights (input {place})", value.shape, (directions, rows, columns))
    for label, at in (("scale", at_scale), ("zero point", at_scale + 1)):
        if node.value(at) is not None:
            _check_shape(f"its {label} (input {at})", node.tensor(at).shape, (directions,), (directions, columns))
    return _Weight(*(_of_direction(b, node, at, number) for at in (place, at_scale, at_scale + 1)))


def _bias(b: Builder, node: OnnxNode, number: int, directions: int, size: int) -> Any:
    """The sum of a direction's biases, of the inputs and of the hidden state; None if there are none."""
    value, rows = node.value(3), 4 * size
    if value is None:
        return None
    _check_shape("its biases (input 3)", node.tensor(3).shape, (directions, 2 * rows))
    array = node.array(3)
    if array is not None:
        return b.persistable(b.fresh_name(node.proto.input[3]), array[number, :rows] + array[number, rows:])
    bias = b.squeeze(b.slice(node[3], 0, number, number + 1), [0])
    return b.slice(bias, 0, 0, rows) + b.slice(bias, 0, rows, 2 * rows)


def _check_shape(what: str, shape: tuple[int, ...], *allowed: tuple[int, ...]) -> None:
    for sizes in allowed:
        if len(shape) == len(sizes) and all(-1 in pair or pair[0] == pair[1] for pair in zip(shape, sizes, strict=True)):
            return
    raise FormatError(f"the shape of {what} is {list(shape)}; it should be {' or '.join(str(list(sizes)) for sizes in allowed)}")


def _of_direction(b: Builder, node: OnnxNode, place: int, number: int) -> Any:
    """The part of an input for one direction, at least a vector; None if the input is missing."""
    value = node.value(place)
    if value is None:
        return None
    array, ndim = node.array(place), len(node.tensor(place).shape)
    if array is None:
        part = b.slice(node[place], 0, number, number + 1)
        return part if ndim == 1 else b.squeeze(part, [0])
    if ndim == 3:
        return b.persistable(b.fresh_name(node.proto.input[place]), array[number])
    return b.constant(array[number : number + 1].reshape(-1)).variable(b.block)
