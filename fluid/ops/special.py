"""Special functions, elementwise: of Euler's gamma function, of Bessel, and inverses of erf and of the logistic function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..opdef.registry import Attr, at_most, define, least, like


def _special(op_type: str, **attrs: Any) -> Callable[[Callable[..., Any]], Any]:
    return define(f"{op_type}(X: real) -> Out", infer=like("X"), **attrs)


@_special("lgamma")
def lgamma(f: Any, X: Any, dOut: Any) -> Any:
    """The logarithm of the absolute value of the gamma function."""
    return {"X": dOut * f.digamma(X)}


@_special("digamma")
def digamma(f: Any, X: Any, dOut: Any) -> Any:
    """The derivative of `lgamma`."""
    return {"X": dOut * f.polygamma(X, n=1)}


@define("polygamma(x: real) -> out", infer=like("x"), n=at_most(64, least(0, Attr("int", required=True))))
def polygamma(f: Any, x: Any, dout: Any, n: int) -> Any:
    """The derivative of order `n` of `digamma`; NaN below -64."""
    return {"x": dout * f.polygamma(x, n=n + 1)}


@_special("erfinv")
def erfinv(f: Any, Out: Any, dOut: Any) -> Any:
    """The number whose `erf` is X, which lies in [-1, 1]."""
    return {"X": dOut * f.exp(Out * Out) * (math.sqrt(math.pi) / 2)}


@_special("logit", eps=9.999999974752427e-07)
def logit(f: Any, X: Any, dOut: Any, eps: float) -> Any:
    """``log(X / (1 - X))``, where X is first clipped to ``[eps, 1 - eps]``; with `eps` 0, NaN outside of [0, 1]."""
    in_range = f.logical_and(X >= eps, X <= 1.0 - eps).astype(X.dtype)
    return {"X": dOut * in_range / (X * (1.0 - X) * in_range + (1.0 - in_range))}


def _bessel(op_type: str) -> Callable[[Callable[..., Any]], Any]:
    return define(f"{op_type}(x: real) -> out", infer=like("x"))


@_bessel("i0")
def i0(f: Any, x: Any, dout: Any) -> Any:
    """The modified Bessel function of the first kind of order 0."""
    return {"x": dout * f.i1(x)}


@_bessel("i0e")
def i0e(f: Any, x: Any, out: Any, dout: Any) -> Any:
    """``exp(-|x|) * i0(x)``, which does not overflow."""
    return {"x": dout * (f.i1e(x) - f.sign(x) * out)}


def _per(f: Any, out: Any, x: Any) -> Any:
    """``out / x`` for a function whose slope at 0 is a half."""
    at_zero = f.equal(x, f.fill_zeros_like(x)).astype(x.dtype)
    return (out + at_zero * 0.5) / (x + at_zero)


@_bessel("i1")
def i1(f: Any, x: Any, out: Any, dout: Any) -> Any:
    """The modified Bessel function of the first kind of order 1."""
    return {"x": dout * (f.i0(x) - _per(f, out, x))}


@_bessel("i1e")
def i1e(f: Any, x: Any, out: Any, dout: Any) -> Any:
    """``exp(-|x|) * i1(x)``, which does not overflow."""
    return {"x": dout * (f.i0e(x) - f.sign(x) * out - _per(f, out, x))}
