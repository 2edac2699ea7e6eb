"""The formulas of `graph.Map`: name -> function that writes it, for operands of equal type and lanes."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from . import mathematics as m
from .emitter import Function, Type, Value, constant


def _relation(name: str) -> Callable[[Function, Value, Value], Value]:
    integer = {"oeq": "eq", "une": "ne"}.get(name, f"s{name[1:]}")
    return lambda f, a, b: f.compare(name if a.type.is_float else integer, a, b)


_ELEMENTARY = (
    "exp", "log", "log1p", "expm1", "tanh", "sinh", "cosh", "sigmoid", "erf", "sin", "cos", "tan", "asin", "acos", "atan",
    "floor", "ceil", "sign",
)  # fmt: skip
"""Functions of `mathematics`."""
FORMULAS: dict[str, Callable[..., Value]] = {
    "copy": lambda f, x: x,
    "add": lambda f, a, b: f.add(a, b),
    "sub": lambda f, a, b: f.sub(a, b),
    "mul": lambda f, a, b: f.mul(a, b),
    "div": lambda f, a, b: f.div(a, b),
    "floordiv": lambda f, a, b: m.floor_quotient(f, a, b) if a.type.is_float else m.floor_divided(f, a, b)[0],
    "mod": lambda f, a, b: m.remainder(f, a, b) if a.type.is_float else m.floor_divided(f, a, b)[1],
    "max": m.maximum,
    "min": m.minimum,
    "pow": m.power,
    "neg": lambda f, x: f.neg(x),
    "round": m.round_away,
    "rint": m.round_,
    "square": lambda f, x: f.mul(x, x),
    "abs": m.absolute,
    "reciprocal": lambda f, x: f.div(1.0, x),
    "relu": lambda f, x: m.maximum(f, x, 0.0),
    "sqrt": m.sqrt,
    "rsqrt": lambda f, x: f.div(1.0, m.sqrt(f, x)),
    "and": lambda f, a, b: f.bit_and(a, b),
    "or": lambda f, a, b: f.bit_or(a, b),
    "xor": lambda f, a, b: f.bit_xor(a, b),
    "not": lambda f, x: f.bit_xor(x, 1),
    "select": lambda f, condition, a, b: f.select(condition, a, b),
    **{name: getattr(m, name) for name in _ELEMENTARY},
    **{name: _relation(name) for name in ("olt", "ole", "ogt", "oge", "oeq", "une", "ult", "ugt")},
}


# -- reductions: `kind` is sum, prod, max or min
def neutral(kind: str, type_: Type) -> Value:
    """The number that does not change a sum, a product, a maximum or a minimum."""
    half = 1 << (8 * type_.bytes - 1)
    least, greatest = (-inf, inf) if type_.is_float else (-half, half - 1)
    return constant({"sum": 0, "prod": 1, "max": least, "min": greatest}[kind], type_)


def combine(f: Function, kind: str, total: Value, value: Value) -> Value:
    """Add a value to a total: a sum, a product, a maximum or a minimum."""
    return FORMULAS[{"sum": "add", "prod": "mul"}.get(kind, kind)](f, value, total)
