"""Arithmetic, comparisons and logic, element by element."""

from __future__ import annotations

from typing import Any

from ...errors import FormatError
from ...values.types import VarType, is_floating
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from ..types import element_type, float_format, integer_bits, is_held_wider, name_of, number_of
from ..values import TensorValue

_UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Log": "log", "Reciprocal": "reciprocal", "Sin": "sin",
    "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan",
}  # fmt: skip
_STEPS = {"Ceil": "ceil", "Floor": "floor", "Sign": "sign"}
_COMPARISONS = {
    "Equal": "equal",
    "Less": "less_than",
    "LessOrEqual": "less_equal",
    "Greater": "greater_than",
    "GreaterOrEqual": "greater_equal",
}
_LOGICAL = {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}
_BITWISE = {"BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "BitwiseNot": "bitwise_not"}


def unary(op: str) -> Any:
    """An importer for a node that is one op of Fluid with one input and no attributes."""

    def build(b: Builder, node: OnnxNode) -> Any:
        return getattr(b.f, op)(node[0])

    return build


def binary(op: str) -> Any:
    def build(b: Builder, node: OnnxNode) -> Any:
        return getattr(b.f, op)(*_older_broadcast(b, node))

    return build


def _older_broadcast(b: Builder, node: OnnxNode) -> tuple[Any, Any]:
    """The two inputs; before opset 7, the second one may be aligned with an axis of the first."""
    x, y = node[0], node[1]
    axis = node.int("axis", None)
    if axis is not None and node.opset < 7 and y.ndim < x.ndim:
        y = b.ones_like_axes(y, 0, x.ndim - axis % x.ndim - y.ndim)
    return x, y


for _onnx, _ours in _UNARY.items():
    imports(_onnx)(unary(_ours))
for _onnx, _ours in _STEPS.items():
    imports(_onnx, trains=False)(unary(_ours))
for _onnx, _ours in (_COMPARISONS | _LOGICAL | _BITWISE).items():
    imports(_onnx, trains=False)(unary(_ours) if _onnx == "BitwiseNot" else binary(_ours))
imports("Not", trains=False)(unary("logical_not"))
imports("IsNaN", trains=False)(unary("isnan_v2"))


@imports("Round", trains=False)
def round_(b: Builder, node: OnnxNode) -> Any:
    return b.f.rint(node[0])


@imports("Neg")
def neg(b: Builder, node: OnnxNode) -> Any:
    return b.f.scale(node[0], scale=-1.0)


@imports("IsInf", trains=False)
def is_inf(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    positive, negative = node.int("detect_positive", 1), node.int("detect_negative", 1)
    out = b.f.isinf_v2(x)
    if not (positive and negative):
        zero = b.number(0.0, x.dtype)
        sign = b.f.greater_than(x, zero) if positive else b.f.less_than(x, zero)
        out = b.f.logical_and(out, sign)
        if not positive and not negative:
            out = b.f.logical_and(out, b.f.logical_not(out))
    return out


def _scaled(b: Builder, node: OnnxNode, how: str) -> Any:
    """Build a float32 tensor plus or times a constant number as a `scale`; None if the node is something else."""
    for this, operand in ((0, 1), (1, 0)):
        number, tensor = node.scalar(operand), node.tensor(this)
        if number is None or tensor.dtype is not VarType.FP32 or tensor.array is not None:
            continue
        if len(node.tensor(operand).shape) > len(tensor.shape) or (
            how in ("bias", "minus", "over") and operand == 0 and how != "bias"
        ):
            continue
        if how == "over":
            return b.f.scale(node[this], scale=1.0 / number) if number and _is_exact(1.0 / number, number) else None
        value = -number if how == "minus" else number
        return b.f.scale(node[this], **{"scale" if how == "scale" else "bias": value})
    return None


def _is_exact(inverse: float, number: float) -> bool:
    """Whether multiplying by the inverse is the same as dividing: for powers of two."""
    return inverse * number == 1.0 and float(number).hex().rstrip("0").split("p")[0] in ("0x1.", "-0x1.", "0x1", "-0x1")


for _onnx, _ours, _how in (
    ("Add", "elementwise_add", "bias"),
    ("Sub", "elementwise_sub", "minus"),
    ("Mul", "elementwise_mul", "scale"),
    ("Div", "elementwise_div", "over"),
):

    def _build(b: Builder, node: OnnxNode, op: str = _ours, how: str = _how) -> Any:
        scaled = _scaled(b, node, how)
        return scaled if scaled is not None else getattr(b.f, op)(*_older_broadcast(b, node))

    imports(_onnx)(_build)


@imports("Pow")
def pow_(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    exponent = node.scalar(1)
    if exponent is not None and is_floating(x.dtype) and len(node.tensor(1).shape) <= x.ndim:
        if exponent == 2:
            return b.f.square(x)
        if exponent == 0.5:
            return b.f.sqrt(x)
        return b.f.pow(x, factor=float(exponent))
    y = node[1]
    if x.dtype is y.dtype:
        return b.f.elementwise_pow(x, y)
    wide = y.dtype if is_floating(y.dtype) else x.dtype
    return b.cast(b.f.elementwise_pow(b.cast(x, wide), b.cast(y, wide)), x.dtype)


@imports("Mod", trains=False)
def mod(b: Builder, node: OnnxNode) -> Any:
    x, y = node[0], node[1]
    if not node.int("fmod", 0):
        return b.f.elementwise_mod(x, y)
    remainder = b.f.elementwise_mod(b.f.abs(x), b.f.abs(y))
    return b.f.elementwise_mul(remainder, b.f.sign(x))


def _accumulated(op: str) -> Any:
    def build(b: Builder, node: OnnxNode) -> Any:
        inputs = node.variables()
        out = inputs[0]
        for operand in inputs[1:]:
            out = getattr(b.f, op)(out, operand)
        return out

    return build


imports("Sum")(_accumulated("elementwise_add"))
imports("Max")(_accumulated("elementwise_max"))
imports("Min")(_accumulated("elementwise_min"))


@imports("Mean")
def mean(b: Builder, node: OnnxNode) -> Any:
    return b.f.scale(_accumulated("elementwise_add")(b, node), scale=1.0 / len(node))


@imports("Clip", since=1)
def clip_attributes(b: Builder, node: OnnxNode) -> Any:
    return b.f.clip(node[0], min=node.float("min", -3.4028234663852886e38), max=node.float("max", 3.4028234663852886e38))


@imports("Clip", since=11)
def clip(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    low, high = node.value(1), node.value(2)
    lowest, highest = node.scalar(1), node.scalar(2)
    is_constant = (low is None or lowest is not None) and (high is None or highest is not None)
    if is_constant and x.dtype is VarType.FP32 and (low is None or high is None or lowest <= highest):
        return b.f.clip(
            x, min=-3.4028234663852886e38 if low is None else lowest, max=3.4028234663852886e38 if high is None else highest
        )
    out = x
    if low is not None:
        out = b.f.elementwise_max(out, node[1])
    if high is not None:
        out = b.f.elementwise_min(out, node[2])
    return out


@imports("Where")
def where(b: Builder, node: OnnxNode) -> Any:
    condition, x, y = node[0], node[1], node[2]
    if x.shape == y.shape == condition.shape and -1 not in x.shape:
        return b.f.where(condition, x, y)
    return choose(b, condition, x, y)


def choose(b: Builder, condition: Any, x: Any, y: Any) -> Any:
    """Select `x` where the condition holds, else `y`; the three broadcast."""
    condition, x, y = b.variables(condition), b.variables(x), b.variables(y)
    parts = [condition, x, y]
    rank = max(part.ndim for part in parts)
    shapes = [(1,) * (rank - part.ndim) + part.shape for part in parts]
    if len(set(shapes)) > 1 or any(-1 in shape for shape in shapes):
        target = broadcast_like(b, parts)
        condition, x, y = (b.f.expand_to(part, target) for part in (condition, x, y))
    return b.f.where(condition, x, y)


def broadcast_like(b: Builder, parts: list[Any]) -> Any:
    """A tensor with the broadcast shape of some tensors; read only its shape."""
    kind = VarType.FP32
    like = [b.f.fill_any_like(part, value=0.0, dtype=int(kind)) for part in parts]
    out = like[0]
    for operand in like[1:]:
        out = b.f.elementwise_add(out, operand)
    return out


# -------------------------------------------------------------------------------------------------------------- types
@imports("Cast", "CastLike")
def cast(b: Builder, node: OnnxNode) -> Any:
    if node.proto.op_type == "CastLike":
        like = node.tensor(1)
        number = like.onnx_type or number_of(like.dtype)
    else:
        number = node.int("to", 1)
    saturate = bool(node.int("saturate", 1))
    if number == POWERS and node.tensor(0).onnx_type != POWERS:
        return _as_powers(b, b.cast(node[0], VarType.FP32), saturate, node.string("round_mode", "up"))
    return as_type(b, node[0], node.tensor(0).onnx_type, number, saturate)


@imports("BitCast", trains=False)
def bit_cast(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    number = node.int("to", 1)
    dtype = element_type(number, "the type that it casts to")
    held = node.tensor(0).onnx_type
    bits = [abs(integer_bits(type_number) or 0) for type_number in (held or number_of(x.dtype), number)]
    if bits[0] == bits[1] > 0 and (held is not None or is_held_wider(number)):
        return as_type(b, x, held, number)  # integers, which wrap around
    if held is not None or is_held_wider(number) or dtype.numpy.itemsize != x.dtype.numpy.itemsize:
        raise FormatError("it reads the bits of one type as another, and Fluid holds one of them in a wider type")
    if not x.ndim:
        return b.squeeze(b.f.view_dtype(b.unsqueeze(x, [0]), dtype=int(dtype)), [0])
    return b.f.view_dtype(x, dtype=int(dtype))


def as_type(b: Builder, x: Any, before: int | None, number: int, saturate: bool = True) -> Any:
    """Cast `x` to an element type of ONNX; where Fluid holds this type in a wider one, round to the values that it has."""
    dtype = element_type(number, "the type that it casts to")
    bits, floats = integer_bits(number), float_format(number)
    if dtype is VarType.BOOL and x.dtype is not VarType.BOOL:
        return b.f.not_equal(x, b.number(0, x.dtype))
    if bits is not None and is_held_wider(number):
        x = b.cast(x, VarType.INT64) if x.dtype is not VarType.SIZE_T else x
        wide = 1 << abs(bits)
        x = b.f.elementwise_mod(x, b.number(wide, x.dtype))
        if bits < 0:
            x = x - b.f.elementwise_mul(
                b.cast(b.f.greater_equal(x, b.number(wide // 2, x.dtype)), x.dtype), b.number(wide, x.dtype)
            )
        return TensorValue(b.cast(x, dtype), onnx_type=number)
    if floats is not None or number == POWERS:
        x = b.cast(x, VarType.FP32)
        return TensorValue(x if before == number else rounded(b, x, number, saturate), onnx_type=number)
    if bits is not None and is_floating(x.dtype) and abs(bits) < 32:
        x = b.cast(x, VarType.INT64)
    return b.cast(x, dtype)


POWERS = 24
"""FLOAT8E8M0, whose numbers are the powers of two from 2 ** -127 to 2 ** 127."""


def _as_powers(b: Builder, x: Any, saturate: bool, how: str) -> TensorValue:
    """Round float32 numbers above 0 to powers of two."""
    if how not in ("up", "down", "nearest"):
        raise FormatError(f"its round_mode {how!r} should be up, down or nearest")
    least, greatest = 2.0**-127, 2.0**127
    size = b.f.clip(x, min=least, max=greatest)
    power = b.f.elementwise_pow(b.number(2.0, VarType.FP32), b.f.floor(b.f.log2(size)))
    half, twice = (b.f.scale(power, scale=factor) for factor in (0.5, 2.0))
    power = choose(b, b.f.greater_than(power, size), half, choose(b, b.f.less_equal(twice, size), twice, power))
    twice = b.f.clip(b.f.scale(power, scale=2.0), min=least, max=greatest)
    if how == "up":
        power = choose(b, b.f.less_than(power, size), twice, power)
    elif how == "nearest":
        power = choose(b, b.f.greater_equal(size, b.f.scale(power, scale=1.5)), twice, power)
    outside = b.f.isnan_v2(x) if saturate else b.f.not_equal(x, size)
    return TensorValue(choose(b, outside, b.number(float("nan"), VarType.FP32), power), onnx_type=POWERS)


def rounded(b: Builder, x: Any, number: int, saturate: bool = True) -> Any:
    """Round float32 numbers to a format of fewer bits, to nearest, ties to even; NaN becomes 0 where the format has none."""
    float_limits = float_format(number)
    if float_limits is None:
        raise FormatError(f"numbers are made {name_of(number)} by Cast alone")
    bits, least, greatest = float_limits
    bounded = b.f.clip(x, min=-(2.0**100), max=2.0**100)
    split = b.f.scale(bounded, scale=float(2 ** (24 - bits) + 1))
    near = split - (split - bounded)  # Veltkamp: the leading bits
    magic = b.number(2.0 ** (least - bits + 1) * 1.5 * 2**23, VarType.FP32)
    small = (bounded + magic) - magic
    is_small = b.f.less_than(b.f.abs(bounded), b.number(2.0**least, VarType.FP32))
    out = choose(b, is_small, small, near)
    nan = b.number(float("nan"), VarType.FP32)
    if number == 23:
        return choose(b, b.f.isnan_v2(x), b.number(0.0, VarType.FP32), b.f.clip(out, min=-greatest, max=greatest))
    if saturate:
        out = b.f.clip(out, min=-greatest, max=greatest)
    else:
        too_large = b.f.greater_than(b.f.abs(out), b.number(greatest, VarType.FP32))
        beyond = b.f.elementwise_mul(b.f.sign(out), b.number(float("inf"), VarType.FP32)) if number == 19 else nan
        out = choose(b, too_large, beyond, out)
    return choose(b, b.f.isnan_v2(x), nan, out)


@imports("BitShift", trains=False)
def bit_shift(b: Builder, node: OnnxNode) -> Any:
    """Shift integers; a shift by more bits than the type has gives 0, or the sign."""
    x, y = node[0], node[1]
    number = node.tensor(0).onnx_type or number_of(x.dtype)
    bits = integer_bits(number)
    if bits is None:
        raise FormatError("it shifts integers")
    wide = VarType.SIZE_T if bits == 64 else VarType.INT64
    count = abs(bits)
    shift = b.cast(y, VarType.INT64)
    out_of_range = b.f.logical_or(
        b.f.less_than(shift, b.number(0, VarType.INT64)), b.f.greater_equal(shift, b.number(count, VarType.INT64))
    )
    bounded = choose(b, out_of_range, b.number(count - 1, VarType.INT64), shift)
    power = b.f.elementwise_pow(b.number(2, wide), b.cast(bounded, wide))
    value = b.cast(x, wide)
    if node.string("direction") == "RIGHT":
        out = b.f.elementwise_floordiv(value, power) if bits > 0 else _floor_divided(b, value, power)
        if bits > 0:
            out = choose(b, out_of_range, b.number(0, wide), out)
        return b.cast(out, x.dtype)
    out = choose(b, out_of_range, b.number(0, wide), b.f.elementwise_mul(value, power))
    return as_type(b, out, None, number) if number in (4, 12) else b.cast(out, x.dtype)


def _floor_divided(b: Builder, value: Any, power: Any) -> Any:
    remainder = b.f.elementwise_mod(value, power)
    return b.f.elementwise_div(value - remainder, power)
