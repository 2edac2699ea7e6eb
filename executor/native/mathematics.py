"""Elementary functions of vectors, written as instructions: `exp`, `log`, `tanh`, `erf` and the like.

Each takes the function being written and a value of FLOAT or DOUBLE elements, with any number of lanes, and returns a value of
the same type. NaN, infinities, signed zeros and denormal numbers behave as in numpy: nothing is flushed to zero.

Errors are the largest ones measured, in units in the last place (ulp) of the exact result, for FLOAT and DOUBLE: over millions of
numbers of all exponents, and over every FLOAT in the curved range of exp, sigmoid, expm1, tanh, erf, log, log1p, sin, cos, tan,
asin and acos. The bounds in ``tests/native/test_mathematics.py`` are slightly larger. Polynomials and the rational function are
minimax approximations, computed for this file by Remez exchange with 50 digits; coefficients go from the highest power to the
lowest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .emitter import DOUBLE, FLOAT, INT32, INT64, Function, Operand, Type, Value, constant

_INFINITY, _NAN = float("inf"), float("nan")


@dataclass(frozen=True)
class _Format:
    """The binary format of a float type, and constants that depend on it."""

    integer: Type
    """Integers of the same size."""
    fraction: int
    """Bits of the fraction."""
    bias: int
    """Bias of exponents."""
    ln2: tuple[float, float]
    """The logarithm of 2: the nearest number of the type, and its error."""
    exp_bounds: tuple[float, float]
    """Below the first, exp rounds to 0; from the second on, to infinity."""
    exp: Sequence[float]
    """``(exp(x) - 1 - x) / x**2`` for ``|x| <= log(2) / 2``."""

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.fraction


_FLOAT = _Format(
    integer=INT32,
    fraction=23,
    bias=127,
    ln2=(0.6931471824645996, -1.904654299957768e-09),
    exp_bounds=(-105.0, 89.0),
    exp=(0.0013946551990157681, 0.008366643950772492, 0.04166628067191815, 0.16666542545485197, 0.5000000062258979),
)
_DOUBLE = _Format(
    integer=INT64,
    fraction=52,
    bias=1023,
    ln2=(0.6931471805599453, 2.3190468138462996e-17),
    exp_bounds=(-746.0, 710.0),
    exp=(
        2.511459132374432e-08,
        2.7626451543806885e-07,
        2.755722760302875e-06,
        2.4801504145697142e-05,
        0.00019841269903394604,
        0.001388888893261509,
        0.008333333333314439,
        0.041666666666572955,
        0.16666666666666685,
        0.5000000000000006,
    ),
)


def _format(x: Value) -> _Format:
    assert x.type.is_float, f"an elementary function is given floats, not {x.type}"
    return _FLOAT if x.type.element == "float" else _DOUBLE


def _polynomial(f: Function, x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate a polynomial; the coefficient of the highest power comes first."""
    total = f.fma(x, coefficients[0], coefficients[1])
    for coefficient in coefficients[2:]:
        total = f.fma(total, x, coefficient)
    return total


def _modulo(f: Function, x: Value, period: Sequence[float], offset: int) -> tuple[Value, Value]:
    """Reduce an argument: an integer that ends in the bits of ``n + offset``, and ``x - n * period``; ``n = round(x / period)``.

    The period is given as a sum of numbers, the greatest first, so that the difference is nearly exact.
    """
    bits, n = _quotient(f, x, sum(period), offset)
    for part in period:
        x = f.fma(n, -part, x)
    return bits, x


def _quotient(f: Function, x: Value, period: float, offset: int) -> tuple[Value, Value]:
    """An integer that ends in the bits of ``n + offset``, and ``n = round(x / period)``.

    Adding a large number rounds the quotient, and leaves n in the last bits of the sum.
    """
    form = _format(x)
    large = 1.5 * 2.0**form.fraction + offset
    shifted = f.fma(x, 1 / period, large)
    return f.bits_as(shifted, form.integer), f.sub(shifted, large)


# -- exponentials
def _exp(f: Function, x: Value) -> Value:
    """exp of numbers within `exp_bounds`."""
    form = _format(x)
    bits, reduced = _modulo(f, x, form.ln2, 2 * form.bias)
    return _times_power_of_two(f, _polynomial(f, reduced, (*form.exp, 1.0, 1.0)), bits)


def _times_power_of_two(f: Function, x: Value, bits: Value) -> Value:
    """``x * 2**n``; the last bits of `bits` are ``n + 2 * bias``.

    Two factors, 2**floor(n/2) and 2**ceil(n/2), are neither infinite nor denormal, even if the result is. The large constant that
    `_quotient` adds has zeros in the low bits, so these bits alone become exponents.
    """
    half = f.shift_right_logical(bits, 1)
    for exponent in (half, f.sub(bits, half)):
        x = f.mul(x, f.bits_as(f.shift_left(exponent, _format(x).fraction), x.type))
    return x


def _near_expm1(f: Function, x: Value) -> Value:
    """``exp(x) - 1`` for ``|x| <= log(2) / 2``."""
    return f.fma(f.mul(_polynomial(f, x, _format(x).exp), x), x, x)


def exp(f: Function, x: Value) -> Value:
    """``e**x``; within 0.93 and 0.88 ulp."""
    low, high = _format(x).exp_bounds
    return _exp(f, f.min(high, f.max(low, x)))


def sigmoid(f: Function, x: Value) -> Value:
    """``1 / (1 + exp(-x))``; within 2.41 and 2.28 ulp."""
    e = _exp(f, f.max(_format(x).exp_bounds[0], f.neg(absolute(f, x))))
    return f.div(f.select(f.compare("olt", x, 0.0), e, 1.0), f.add(e, 1.0))


def expm1(f: Function, x: Value) -> Value:
    """``exp(x) - 1``; within 1.62 and 2.03 ulp."""
    form = _format(x)
    _, high = form.exp_bounds
    low = -0.7 * (form.fraction + 3)  # below, the result rounds to -1
    bits, reduced = _modulo(f, f.min(high, f.max(low, x)), form.ln2, form.bias - 1)
    scale = f.bits_as(f.shift_left(bits, form.fraction), x.type)  # 2**(n - 1), since 2**n may be infinite
    result = f.mul(f.fma(scale, _near_expm1(f, reduced), f.sub(scale, 0.5)), 2.0)
    is_small = f.compare("olt", absolute(f, x), 2.0 ** (-2 - form.fraction))
    return f.select(is_small, x, result)


def tanh(f: Function, x: Value) -> Value:
    """The hyperbolic tangent; within 2.50 and 2.57 ulp, and never beyond -1 and 1."""
    form = _format(x)
    low = -0.7 * (form.fraction + 3)  # below, e rounds to -1
    # With e = exp(-2|x|) - 1 = (2**n - 1) + 2**n * near, where n <= 0, it is -e / (2 + e). As 2**n falls faster than the error of
    # n * log(2) grows, the nearest number to the logarithm does.
    bits, reduced = _modulo(f, f.max(low, f.mul(absolute(f, x), -2.0)), form.ln2[:1], form.bias)
    scale = f.bits_as(f.shift_left(bits, form.fraction), x.type)
    e = f.fma(scale, _near_expm1(f, reduced), f.sub(scale, 1.0))
    return copysign(f, f.div(e, f.add(e, 2.0)), x)


_WIDE = 20.0
"""Beyond, ``exp(-2x)`` is nothing beside 1."""


def _half_exp(f: Function, size: Value) -> Value:
    """``exp(x) / 2``, also where ``exp(x)`` is infinite."""
    root = exp(f, f.mul(size, 0.5))
    return f.mul(f.mul(root, 0.5), root)


def sinh(f: Function, x: Value) -> Value:
    """The hyperbolic sine; within 2.62 and 2.63 ulp."""
    size = absolute(f, x)
    e = expm1(f, size)
    near = f.mul(f.add(e, f.div(e, f.add(e, 1.0))), 0.5)
    return copysign(f, f.select(f.compare("ogt", size, _WIDE), _half_exp(f, size), near), x)


def cosh(f: Function, x: Value) -> Value:
    """The hyperbolic cosine; within 2.62 and 2.63 ulp."""
    size = absolute(f, x)
    e = exp(f, size)
    near = f.add(f.mul(e, 0.5), f.div(0.5, e))
    return f.select(f.compare("ogt", size, _WIDE), _half_exp(f, size), near)


_ERF_FLOAT = (
    (
        3.1219583433994558e-06,
        0.00043390499195083976,
        0.005735962651669979,
        0.08047770708799362,
        0.2904474139213562,
        1.7223522663116455,
    ),
    (
        5.801837323815562e-05,
        0.0017703378107398748,
        0.022826192900538445,
        0.17408594489097595,
        0.7662000060081482,
        1.5263949632644653,
    ),
)
"""``erf(x) / x`` in ``x * x`` for ``|x| <= 4.1``: numerator and denominator. Coefficients are numbers of FLOAT, chosen among
their neighbours for the least error with its roundings. From 3.92 on erf rounds to 1; at 4.1 the formula has passed 1."""
_ERF_NEAR = (
    5.945265450586091e-11,
    -1.1365668232387858e-09,
    1.4657880449249878e-08,
    -1.6350025315554023e-07,
    1.6460972826013494e-06,
    -1.4925593507463182e-05,
    0.00012055331036923937,
    -0.0008548326978742883,
    0.005223977624780878,
    -0.026866170645072896,
    0.11283791670954857,
    -0.3761263890318375,
    1.1283791670955126,
)
"""``erf(x) / x`` in ``x * x`` for ``|x| <= 1``."""
_ERF_FAR = (
    -2.2489316098746837e-14,
    1.245319929808215e-12,
    -3.2648392225549994e-11,
    5.390704486824962e-10,
    -6.287876876236025e-09,
    5.505018051156584e-08,
    -3.7473662327870794e-07,
    2.023039672504608e-06,
    -8.722408271355792e-06,
    2.977529312200042e-05,
    -7.743902837360753e-05,
    0.00013463035508748253,
    -5.8515736006790634e-05,
    -0.0005071136279862986,
    0.0016300040457444035,
    -0.00016703126606069528,
    -0.019149384076245245,
    0.10278041138070435,
    0.6366177164495318,
    1.128379507651822,
    -2.667281741984813e-08,
)
"""``-log(1 - erf(x))`` for x from 1 to 6."""


def erf(f: Function, x: Value) -> Value:
    """The error function; within 6.22 and 2.5 ulp, and never beyond -1 and 1."""
    if _format(x) is _FLOAT:
        inner = f.min(4.1, f.max(-4.1, x))
        square = f.mul(inner, inner)
        numerator, denominator = (_polynomial(f, square, coefficients) for coefficients in _ERF_FLOAT)
        return f.min(1.0, f.max(-1.0, f.mul(inner, f.div(numerator, denominator))))
    size = f.min(6.0, absolute(f, x))
    near = f.mul(x, _polynomial(f, f.mul(size, size), _ERF_NEAR))
    far = f.sub(1.0, _exp(f, f.neg(_polynomial(f, size, _ERF_FAR))))
    return f.select(f.compare("olt", size, 1.0), near, copysign(f, far, x))


# -- logarithms and powers
_LOG_FLOAT = (
    -0.13192521364001272,
    0.1396307609915713,
    -0.12114930322448912,
    0.1401080605408554,
    -0.1668547963814069,
    0.20010049935762847,
    -0.24999688457113398,
    0.333332237589547,
)
"""``(log(1 + x) - x + x**2 / 2) / x**3`` for ``|x| <= 1 / 3``."""
_LOG_DOUBLE = (
    0.15368748586817074,
    0.1525011693861267,
    0.1818635964734667,
    0.22222138414278558,
    0.28571429396356707,
    0.39999999996155755,
    0.6666666666667272,
)
"""``(log((1 + s) / (1 - s)) / s - 2) / s**2`` in ``s * s`` for ``|s| <= 0.2``."""


def _exponent_and_rest(f: Function, x: Value) -> tuple[Value, Value]:
    """k and m of ``x = 2**k * (1 + m)``, m from -1/3 to 1/3; x is positive and finite."""
    form = _format(x)
    is_denormal = f.compare("olt", x, 2.0 ** (1 - form.bias))
    bits = f.bits_as(f.select(is_denormal, f.mul(x, 2.0**form.fraction), x), form.integer)
    # x = 2**k * (1 + m) with 1 + m from 2/3 to 4/3. The bits of x minus the bits of 2/3 are k, followed by the bits of 1 + m
    # minus those of 2/3. k + bias is an integer from 0 on: the last bits of the float 2**fraction + k + bias.
    two_thirds = form.one - (1 << form.fraction) + (1 << form.fraction) // 3
    above = f.add(bits, form.one - two_thirds)
    integer_offset = 2.0**form.fraction
    k_bits = f.bit_or(f.shift_right_logical(above, form.fraction), form.one + (form.fraction << form.fraction))
    k = f.sub(
        f.bits_as(k_bits, x.type),
        f.select(is_denormal, constant(integer_offset + form.bias + form.fraction, x.type), integer_offset + form.bias),
    )
    m_bits = f.add(f.bit_and(above, (1 << form.fraction) - 1), two_thirds)
    return k, f.sub(f.bits_as(m_bits, x.type), 1.0)


def log(f: Function, x: Value) -> Value:
    """The natural logarithm; within 0.94 and 0.84 ulp."""
    form = _format(x)
    k, m = _exponent_and_rest(f, x)
    high, low = form.ln2
    square = f.mul(m, m)
    if form is _FLOAT:
        near = f.fma(square, f.fma(_polynomial(f, m, _LOG_FLOAT), m, -0.5), m)
        result = f.fma(k, high, f.fma(k, low, near))
    else:
        s = f.div(m, f.add(m, 2.0))
        s_square = f.mul(s, s)
        half = f.mul(square, 0.5)
        series = f.fma(_polynomial(f, s_square, _LOG_DOUBLE), s_square, half)
        # log(1 + m) = m - (half - s * (half + s**2 * polynomial))
        result = f.fma(k, high, f.sub(m, f.sub(half, f.fma(s, series, f.mul(k, low)))))
    if _has_fixes(f, x):
        return _fixed_log(f, x, result)
    result = f.select(f.compare("olt", x, 0.0), _NAN, result)
    return _log_at_bounds(f, x, result)


_LOG_FIXES = 0x03530422
"""What `_fixed_log` gives, as one digit for each kind of argument, from the last one on: a quiet or signalling NaN (itself), 0
(minus infinity), 1 and other positive numbers (the result), minus infinity (NaN), infinity (itself), a negative number (NaN)."""


def _has_fixes(f: Function, x: Value) -> bool:
    """Whether the processor replaces results for kinds of arguments in one instruction."""
    return f.module.target.vector_bytes == x.type.lanes * x.type.bytes == 64


def _fixed_log(f: Function, x: Value, result: Value) -> Value:
    """The logarithm, `result` but for arguments that are no positive numbers."""
    name = f"x86.avx512.mask.fixupimm.{'ps' if x.type.bytes == 4 else 'pd'}.512"
    integer, lanes = _format(x).integer, x.type.lanes
    mask, current = constant(-1, Type(f"i{lanes}")), constant(4, INT32)
    fixes = constant(_LOG_FIXES, integer.of(lanes))
    return f.of_processor(name, x.type, result, x, fixes, constant(0, INT32), mask, current)


def _log_at_bounds(f: Function, x: Value, result: Value) -> Value:
    """The logarithm, `result` but for 0, infinity and NaN."""
    result = f.select(f.compare("oeq", x, 0.0), -_INFINITY, result)
    return f.select(f.compare("olt", x, _INFINITY), result, x)


def log1p(f: Function, x: Value) -> Value:
    """``log(1 + x)``; within 1.44 and 1.44 ulp."""
    total = f.add(x, 1.0)
    lost = f.div(f.sub(x, f.sub(total, 1.0)), total)  # by rounding the sum; NaN where it is 0 or infinite
    lost = f.select(f.compare("olt", absolute(f, lost), 1.0), lost, 0.0)
    return copysign(f, f.add(log(f, total), lost), x)


_LN2_SHORT = (0.6931471805598903, 5.497923018708371e-14)
"""The logarithm of 2: a number of 42 bits, whose product with an exponent is exact, and the remainder."""
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_LOG_TAIL = (
    0.1219635756978303,
    0.11652734508665301,
    0.13337185364142076,
    0.1538454240880213,
    0.1818181893024613,
    0.22222222218460067,
    0.28571428571435764,
    0.39999999999999997,
)
"""``((log((1 + s) / (1 - s)) / s - 2) / s**2 - 2 / 3) / s**2`` in ``s * s`` for ``|s| <= 0.2``; interpolated at Chebyshev's
points."""


def _sum_and_error(f: Function, large: Operand, small: Value) -> tuple[Value, Value]:
    """The rounded sum, and what rounding took from it: exactly if `large` is 0 or of greater magnitude, else nearly."""
    total = f.add(small, large)
    return total, f.sub(small, f.sub(total, large))


def _product_and_error(f: Function, a: Value, b: Value) -> tuple[Value, Value]:
    """The rounded product, and what rounding took from it."""
    product = f.mul(a, b)
    return product, f.fma(a, b, f.neg(product))


def _log_in_two(f: Function, x: Value) -> tuple[Value, Value]:
    """The logarithm of a DOUBLE as a sum of two numbers, within 2**-62 of it; the second means nothing for 0 and infinity."""
    k, m = _exponent_and_rest(f, x)
    divisor, divisor_low = _sum_and_error(f, 2.0, m)
    inverse = f.div(1.0, divisor)
    s = f.mul(m, inverse)
    s_low = f.mul(f.fma(s, f.neg(divisor_low), f.fma(s, f.neg(divisor), m)), inverse)
    square, square_low = _product_and_error(f, s, s)
    square_low = f.fma(f.mul(s, 2.0), s_low, square_low)
    factor, factor_low = _sum_and_error(f, _TWO_THIRDS[0], f.mul(square, _polynomial(f, square, _LOG_TAIL)))
    factor_low = f.add(factor_low, _TWO_THIRDS[1])
    cubic, cubic_low = _product_and_error(f, square, factor)
    cubic_low = f.add(cubic_low, f.fma(square, factor_low, f.mul(square_low, factor)))
    rest, rest_low = _product_and_error(f, s, cubic)
    rest_low = f.add(rest_low, f.fma(s, cubic_low, f.mul(s_low, cubic)))
    near, near_low = _sum_and_error(f, f.mul(s, 2.0), rest)
    near_low = f.add(near_low, f.fma(s_low, constant(2.0, x.type), rest_low))
    high, low = _sum_and_error(f, f.mul(k, _LN2_SHORT[0]), near)
    high, low = _sum_and_error(f, high, f.add(low, f.fma(k, constant(_LN2_SHORT[1], x.type), near_low)))
    return _log_at_bounds(f, x, high), low


def _exp_of_sum(f: Function, x: Value, low: Value) -> Value:
    """``exp(x + low)`` of DOUBLE numbers, within 0.62 ulp; `low` is small beside x or 0."""
    form = _DOUBLE
    small, large = form.exp_bounds
    x = f.min(large, f.max(small, x))
    bits, n = _quotient(f, x, form.ln2[0], 2 * form.bias)
    x, low = _sum_and_error(f, f.fma(n, -_LN2_SHORT[0], x), f.fma(n, -_LN2_SHORT[1], low))
    tail = f.fma(f.mul(x, x), _polynomial(f, x, form.exp), f.fma(low, x, low))
    result, lost = _sum_and_error(f, 1.0, x)
    return _times_power_of_two(f, f.add(result, f.add(lost, tail)), bits)


def _magnitude_of_power(f: Function, base: Value, exponent: Value) -> Value:
    """``base**exponent`` of DOUBLE numbers, the base not negative, within 0.80 ulp; not for infinite powers of 1."""
    high, low = _log_in_two(f, base)
    product, error = _product_and_error(f, exponent, high)
    low = f.fma(exponent, low, error)
    return _exp_of_sum(f, product, f.select(f.compare("olt", absolute(f, product), _DOUBLE.exp_bounds[1] + 40.0), low, 0.0))


def power(f: Function, x: Value, exponent: Value) -> Value:
    """``x**exponent``, special values as C's pow has them; within 0.50 and 0.80 ulp."""
    if x.type.element == "float":
        base, by = f.convert(absolute(f, x), DOUBLE), f.convert(exponent, DOUBLE)
        size = f.convert(exp(f, f.mul(by, log(f, base))), FLOAT)
    elif "double" in f.module.target.fused:
        base, by = absolute(f, x), exponent
        size = _magnitude_of_power(f, base, by)
    else:  # errors of products are not at hand
        return f.intrinsic("pow", x, exponent)
    is_one = f.bit_and(f.compare("oeq", base, 1.0), f.compare("ord", by, by))  # where the exponent is infinite, too
    size = f.select(is_one, 1.0, size)
    is_integer = f.compare("oeq", round_(f, exponent), exponent)
    half = f.mul(exponent, 0.5)
    is_odd = f.bit_and(is_integer, f.compare("une", round_(f, half), half))
    is_negative = f.bit_and(f.compare("olt", x, 0.0), f.compare("ogt", x, -_INFINITY))
    result = f.select(is_odd, copysign(f, size, x), size)
    result = f.select(f.bit_and(is_negative, f.compare("one", round_(f, exponent), exponent)), _NAN, result)
    return f.select(f.bit_or(f.compare("oeq", x, 1.0), f.compare("oeq", exponent, 0.0)), 1.0, result)


def sqrt(f: Function, x: Value) -> Value:
    """The square root, rounded correctly."""
    return f.intrinsic("sqrt", x)


def rsqrt(f: Function, x: Value) -> Value:
    """``1 / sqrt(x)``; within 1.48 and 1.50 ulp."""
    return f.div(1.0, sqrt(f, x))


# -- sine and cosine
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_SIN = (
    1.5896811798615892e-10,
    -2.505075838415035e-08,
    2.7557313693570895e-06,
    -0.00019841269829812383,
    0.008333333333322418,
    -0.16666666666666632,
)
"""``(sin(x) - x) / x**3`` in ``x * x`` for ``|x| <= pi / 4``."""
_COS = (
    -1.1359658892733147e-11,
    2.087572348000881e-09,
    -2.7557314353796687e-07,
    2.4801587289487043e-05,
    -0.0013888888888874131,
    0.0416666666666666,
)
"""``(cos(x) - 1 + x**2 / 2) / x**4`` in ``x * x`` for ``|x| <= pi / 4``."""
_FAR_ANGLE = 2.0**30
"""From here on, the C library computes sine and cosine."""


_HALF_PI_FLOAT = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_SIN_FLOAT = (2.7180840334040113e-06, -0.0001983930851565674, 0.008333329111337662, -0.1666666716337204)
_COS_FLOAT = (2.4432785721728578e-05, -0.0013887312961742282, 0.04166664555668831)
_TAN_FLOAT = (
    0.004381679464131594,
    7.886226376285776e-05,
    0.010844002477824688,
    0.021279118955135345,
    0.05406049266457558,
    0.13332659006118774,
    0.33333349227905273,
)
"""``(tan(x) - x) / x**3`` in ``x * x`` for ``|x| <= pi / 4``."""
_FAR_ANGLE_FLOAT = 2.0**15
"""From here on, angles of FLOAT are computed in DOUBLE."""


def sin(f: Function, x: Value) -> Value:
    """The sine; within 1.58 and 1.58 ulp."""
    return _of_angle(f, x, "sin")


def cos(f: Function, x: Value) -> Value:
    """The cosine; within 1.58 and 1.58 ulp."""
    return _of_angle(f, x, "cos")


def tan(f: Function, x: Value) -> Value:
    """The tangent; within 2.92 and 3.6 ulp."""
    return _of_angle(f, x, "tan")


def _of_angle(f: Function, x: Value, name: str) -> Value:
    """The sine, cosine or tangent of an angle. Far angles are rare, and computed only in vectors that hold one."""
    if x.type.element == "double":
        near, least_far, compute_far = _near_in_double(f, x, name), _FAR_ANGLE, _by_library
    elif "float" not in f.module.target.fused:
        return _in_double(f, x, name)
    else:
        near, least_far, compute_far = _near_in_float(f, x, name), _FAR_ANGLE_FLOAT, _in_double
    if name != "cos":  # for the sign of zero
        near = f.select(f.compare("olt", absolute(f, x), 2.0**-27), x, near)
    is_far = f.compare("oge", absolute(f, x), least_far)
    rounds = f.select(f.any(is_far), f.int64(1), f.int64(0))
    return f.loop(0, rounds, 1, [near], lambda _, value: [f.select(is_far, compute_far(f, x, name), value)])[0]


def _in_double(f: Function, x: Value, name: str) -> Value:
    return f.convert(_of_angle(f, f.convert(x, DOUBLE), name), FLOAT)


def _by_library(f: Function, x: Value, name: str) -> Value:
    if name == "tan":
        return f.div(f.intrinsic("sin", x), f.intrinsic("cos", x))
    return f.intrinsic(name, x)


def _near_in_double(f: Function, x: Value, name: str) -> Value:
    """The function of a near angle of DOUBLE."""
    quarter, reduced = _modulo(f, x, _HALF_PI, int(name == "cos"))
    square = f.mul(reduced, reduced)
    sine = f.fma(f.mul(square, reduced), _polynomial(f, square, _SIN), reduced)
    cosine = f.fma(f.mul(square, square), _polynomial(f, square, _COS), f.fma(square, -0.5, 1.0))
    is_odd = f.compare("ne", f.bit_and(quarter, 1), 0)
    if name == "tan":
        tangent = f.div(f.select(is_odd, cosine, sine), f.select(is_odd, sine, cosine))
        return f.select(is_odd, f.neg(tangent), tangent)
    return _negated_in_half_turn(f, f.select(is_odd, cosine, sine), quarter)


def _near_in_float(f: Function, x: Value, name: str) -> Value:
    """The function of a near angle of FLOAT; the tangent has a polynomial of its own."""
    quarter, reduced = _modulo(f, x, _HALF_PI_FLOAT, int(name == "cos"))
    square = f.mul(reduced, reduced)
    is_odd = f.compare("ne", f.bit_and(quarter, 1), 0)
    if name == "tan":
        tangent = f.fma(f.mul(square, reduced), _polynomial(f, square, _TAN_FLOAT), reduced)
        return f.select(is_odd, f.div(-1.0, tangent), tangent)
    sine = f.fma(f.mul(square, reduced), _polynomial(f, square, _SIN_FLOAT), reduced)
    cosine = f.fma(f.mul(square, square), _polynomial(f, square, _COS_FLOAT), f.fma(square, -0.5, 1.0))
    return _negated_in_half_turn(f, f.select(is_odd, cosine, sine), quarter)


def _negated_in_half_turn(f: Function, value: Value, quarter: Value) -> Value:
    """Change the sign of a sine in the third and the fourth quarter of a turn."""
    form = _format(value)
    flip = f.shift_left(f.bit_and(quarter, 2), form.integer.bytes * 8 - 2)
    return f.bits_as(f.bit_xor(f.bits_as(value, form.integer), flip), value.type)


# -- inverse trigonometric functions
_ATAN_FLOAT = (-0.06451718509197235, 0.10743668675422668, -0.14263950288295746, 0.19999539852142334, -0.3333333134651184)
_ATAN_DOUBLE = (
    -0.019175404711104935,
    0.03923044778479309,
    -0.050854078345894844,
    0.05858140904866328,
    -0.06664510525508936,
    0.07692183125376892,
    -0.0909090457530649,
    0.11111111015187018,
    -0.14285714284665682,
    0.19999999999995516,
    -0.3333333333333333,
)
"""``(atan(x) / x - 1) / x**2`` in ``x * x`` for ``|x| <= tan(pi / 8)``; interpolated at Chebyshev's points."""
_EIGHTH, _THREE_EIGHTHS = math.tan(math.pi / 8), math.tan(3 * math.pi / 8)
_QUARTER_PI = {"float": (0.7853981852531433, -2.1855695000931213e-08), "double": (0.7853981633974483, 3.061616997868383e-17)}
"""A quarter of pi: the nearest number of the type, and its error."""


def atan(f: Function, x: Value) -> Value:
    """The inverse tangent; within 1.79 and 1.81 ulp."""
    size = absolute(f, x)
    is_near, is_far = f.compare("olt", size, _EIGHTH), f.compare("ogt", size, _THREE_EIGHTHS)
    # atan(x) = pi / 4 + atan((x - 1) / (x + 1)) = pi / 2 + atan(-1 / x)
    above = f.select(is_near, size, f.select(is_far, constant(-1.0, x.type), f.sub(size, 1.0)))
    below = f.select(is_near, constant(1.0, x.type), f.select(is_far, size, f.add(size, 1.0)))
    high, low = _QUARTER_PI[x.type.element]

    def added(part: float) -> Value:
        return f.select(is_near, constant(0.0, x.type), f.select(is_far, constant(2 * part, x.type), part))

    turned = f.div(above, below)
    square = f.mul(turned, turned)
    series = _polynomial(f, square, _ATAN_FLOAT if _format(x) is _FLOAT else _ATAN_DOUBLE)
    return copysign(f, f.add(added(high), f.add(turned, f.fma(f.mul(turned, square), series, added(low)))), x)


_ASIN_FLOAT = (
    0.04217823967337608,
    0.02417294681072235,
    0.04547160863876343,
    0.07495288550853729,
    0.16666752099990845,
)
_ASIN_DOUBLE = (
    0.03265399050144144,
    -0.021038632390952397,
    0.021734692425705384,
    0.0036955120239557187,
    0.010783055851836768,
    0.01139842713464805,
    0.013980877936570693,
    0.0173516073913367,
    0.02237221523532216,
    0.030381942699355482,
    0.044642857174779504,
    0.07499999999970633,
    0.1666666666666676,
)
"""``(asin(x) - x) / x**3`` in ``x * x`` for ``|x| <= 1 / 2``."""


def _asin_near_zero(f: Function, x: Value) -> tuple[Value, Value, Value]:
    """Compute the inverse sine of a number from 0 to 1 / 2: of |x| if that is near, else of ``sqrt((1 - |x|) / 2)``.

    The latter gives ``acos(|x|)``, which is twice this inverse sine.

    Returns:
        Whether |x| is near (below 1 / 2), the number, and what its inverse sine adds to it.
    """
    size = absolute(f, x)
    is_near = f.compare("olt", size, 0.5)
    square = f.select(is_near, f.mul(size, size), f.fma(size, -0.5, 0.5))
    root = f.select(is_near, size, sqrt(f, square))
    series = _polynomial(f, square, _ASIN_FLOAT if _format(x) is _FLOAT else _ASIN_DOUBLE)
    return is_near, root, f.mul(f.mul(root, square), series)


def asin(f: Function, x: Value) -> Value:
    """The inverse sine; within 1.65 and 1.62 ulp."""
    is_near, root, added = _asin_near_zero(f, x)
    high, low = _QUARTER_PI[x.type.element]
    far = f.sub(2 * high, f.mul(f.add(root, f.sub(added, low)), 2.0))
    return copysign(f, f.select(is_near, f.add(root, added), far), x)


def acos(f: Function, x: Value) -> Value:
    """The inverse cosine; within 1.15 and 1.10 ulp."""
    is_near, root, added = _asin_near_zero(f, x)
    high, low = _QUARTER_PI[x.type.element]
    is_negative = f.compare("olt", x, 0.0)
    signed, signed_added = (f.select(is_negative, f.neg(part), part) for part in (root, added))
    middle = f.sub(2 * high, f.add(signed, f.sub(signed_added, 2 * low)))
    far = f.select(is_negative, f.sub(2 * high, f.add(root, f.sub(added, 2 * low))), f.add(root, added))
    return f.select(is_near, middle, f.mul(far, 2.0))


# -- parts of numbers
def absolute(f: Function, x: Value) -> Value:
    """``|x|``."""
    return f.intrinsic("fabs", x)


def copysign(f: Function, size: Value, sign_of: Value) -> Value:
    """The magnitude of one number with the sign of another."""
    return f.intrinsic("copysign", size, sign_of)


def sign(f: Function, x: Value) -> Value:
    """-1, 0 or 1; NaN of NaN, and 0 of -0."""
    return f.select(f.compare("ogt", x, 0.0), 1.0, f.select(f.compare("olt", x, 0.0), -1.0, f.add(x, 0.0)))


def floor(f: Function, x: Value) -> Value:
    """Round down to an integer."""
    return f.intrinsic("floor", x) if f.module.target.has_rounding else _floor(f, x)


def ceil(f: Function, x: Value) -> Value:
    """Round up to an integer."""
    return f.intrinsic("ceil", x) if f.module.target.has_rounding else f.neg(_floor(f, f.neg(x)))


def trunc(f: Function, x: Value) -> Value:
    """Round towards zero to an integer."""
    return f.intrinsic("trunc", x) if f.module.target.has_rounding else copysign(f, _floor(f, absolute(f, x)), x)


def round_(f: Function, x: Value) -> Value:
    """Round to the nearest integer; halves to even."""
    return f.intrinsic("rint", x) if f.module.target.has_rounding else _nearest(f, x)


def round_away(f: Function, x: Value) -> Value:
    """Round to the nearest integer; halves away from zero."""
    if f.module.target.has_rounding:
        return f.intrinsic("round", x)
    size = absolute(f, x)
    below = _floor(f, size)
    return copysign(f, f.select(f.compare("oge", f.sub(size, below), 0.5), f.add(below, 1.0), below), x)


def _nearest(f: Function, x: Value) -> Value:
    """`round_` by additions: a sum with a number so large has no fraction."""
    large = 2.0 ** _format(x).fraction
    shift = copysign(f, constant(large, x.type), x)
    nearest = copysign(f, f.sub(f.add(x, shift), shift), x)
    return f.select(f.compare("olt", absolute(f, x), large), nearest, x)


def _floor(f: Function, x: Value) -> Value:
    """`floor` by `_nearest`."""
    nearest = _nearest(f, x)
    return f.select(f.compare("ogt", nearest, x), f.sub(nearest, 1.0), nearest)


# -- two numbers
def floor_divided(f: Function, a: Value, b: Value) -> tuple[Value, Value]:
    """The quotient of integers, rounded down, and the remainder; 0 and 0 for a divisor of 0, as in numpy.

    A divisor of 0, and the lowest integer by -1, would stop the process.
    """
    zero, is_zero, is_negated = constant(0, b.type), f.compare("eq", b, 0), f.compare("eq", b, -1)
    divisor = f.select(f.bit_or(is_zero, is_negated), constant(1, b.type), b)
    quotient = f.div(a, divisor)
    remainder = f.sub(a, f.mul(quotient, divisor))
    is_uneven = f.compare("ne", remainder, 0)
    is_above = f.bit_and(is_uneven, f.bit_xor(f.compare("slt", remainder, 0), f.compare("slt", divisor, 0)))
    quotient = f.select(is_above, f.sub(quotient, 1), quotient)
    remainder = f.select(is_above, f.add(remainder, divisor), remainder)
    quotient = f.select(is_negated, f.sub(zero, a), quotient)
    return f.select(is_zero, zero, quotient), remainder


def maximum(f: Function, a: Value, b: Operand) -> Value:
    """The maximum; NaN if either is NaN. Of two zeros it may be either."""
    if not isinstance(b, Value):
        return f.max(b, a)
    if not a.type.is_float:
        return f.max(a, b)
    return f.select(f.compare("uno", a, a), a, f.max(a, b))


def minimum(f: Function, a: Value, b: Operand) -> Value:
    """The minimum; NaN if either is NaN. Of two zeros it may be either."""
    if not isinstance(b, Value):
        return f.min(b, a)
    if not a.type.is_float:
        return f.min(a, b)
    return f.select(f.compare("uno", a, a), a, f.min(a, b))


_REMAINDER_STEPS = 10
"""The quotient of two numbers of float32 has at most 277 bits; a step of a long division takes 28 of them at least."""


def _remainder_of_sizes(f: Function, a: Value, b: Value) -> Value:
    """``|a| % |b|`` of float32, in float64; exact.

    A long division. Each step subtracts a multiple of the divisor; the multiplier has 29 bits, so that all is exact. Most often
    the first step is the last.
    """
    first, divisor = (absolute(f, f.convert(x, DOUBLE)) for x in (a, b))

    def step(remaining: Value) -> Value:
        quotient = f.bits_as(f.bit_and(f.bits_as(f.div(remaining, divisor), INT64), -(1 << 24)), DOUBLE)
        smaller = f.sub(remaining, f.mul(trunc(f, quotient), divisor))
        return f.select(f.compare("olt", quotient, 1.0), remaining, smaller)  # the divisor may be infinite

    remaining = step(first)
    further = f.select(f.any(f.compare("oge", remaining, divisor)), f.int64(_REMAINDER_STEPS - 1), f.int64(0))
    (remaining,) = f.loop(0, further, 1, [remaining], lambda _, value: [step(value)])
    return f.select(f.compare("olt", remaining, 0.0), f.add(remaining, divisor), remaining)


def remainder(f: Function, a: Value, b: Value) -> Value:
    """numpy's ``a % b`` of float32, with the sign of b; exact."""
    size = f.convert(_remainder_of_sizes(f, a, b), FLOAT)
    is_opposite = f.bit_xor(f.compare("olt", a, 0.0), f.compare("olt", b, 0.0))
    moved = f.select(is_opposite, f.add(f.neg(size), absolute(f, b)), size)
    return copysign(f, f.select(f.compare("oeq", size, 0.0), size, moved), b)


def floor_quotient(f: Function, a: Value, b: Value) -> Value:
    """numpy's ``a // b`` of float32: it subtracts the remainder before it divides, and rounds what that leaves."""
    size = f.convert(_remainder_of_sizes(f, a, b), FLOAT)
    quotient = f.div(f.sub(a, copysign(f, size, a)), b)
    is_opposite = f.bit_xor(f.compare("olt", a, 0.0), f.compare("olt", b, 0.0))
    is_above = f.bit_and(is_opposite, f.compare("une", size, 0.0))
    quotient = f.select(is_above, f.sub(quotient, 1.0), quotient)
    below, plain = floor(f, quotient), f.div(a, b)
    nearest = f.select(f.compare("ogt", f.sub(quotient, below), 0.5), f.add(below, 1.0), below)
    nearest = f.select(f.compare("oeq", quotient, 0.0), copysign(f, constant(0.0, a.type), plain), nearest)
    return f.select(f.compare("oeq", b, 0.0), plain, nearest)
