"""Complex numbers: their parts, angles, conjugates, and pairs of floats as complex numbers.

The gradient of a real number L by ``z = x + iy`` is ``dL/dx + i dL/dy``, as in Paddle: L grows most in this direction.
`complex_rules` says of other ops how their rules serve complex numbers.
"""

from __future__ import annotations

from typing import Any

from ..errors import ElementTypeError, InferenceError
from ..opdef.registry import EXPLICIT, LINEAR, ShapeOnly, define, like
from ..values.spec import Spec
from ..values.types import complex_of, is_complex, real_of
from .shapes import broadcast


def real_part(X: Spec) -> Spec:
    """Inference of ops that make a real number of each number."""
    return X.with_dtype(real_of(X.dtype))


def with_zeros(f: Any, real: Any) -> Any:
    """Real numbers as complex ones."""
    return real.astype(complex_of(real.dtype))


def unless_zero(f: Any, X: Any) -> Any:
    """X with 1 in place of 0, to divide by."""
    return X + f.equal(X, f.fill_zeros_like(X)).astype(X.dtype)


@define("real(X: complex) -> Out", infer=real_part, complex_rule=EXPLICIT)
def real(f: Any, dOut: Any) -> Any:
    """The real parts."""
    return {"X": with_zeros(f, dOut)}


@define("imag(X: complex) -> Out", infer=real_part, complex_rule=EXPLICIT)
def imag(f: Any, dOut: Any) -> Any:
    """The imaginary parts."""
    return {"X": f.complex(f.fill_zeros_like(dOut), dOut)}


@define("conj(X: int|float) -> Out", infer=like("X"), inline_grad=True, complex_rule=EXPLICIT)
def conj(f: Any, dOut: Any) -> Any:
    """The conjugates: the same real parts, and imaginary parts of the other sign."""
    return {"X": f.conj(dOut)}


@define("angle(X: float) -> Out", infer=real_part, complex_rule=EXPLICIT)
def angle(f: Any, X: Any, dOut: Any) -> Any:
    """The angles of complex numbers, in (-pi, pi]; of real ones 0, or pi below 0. The gradient at 0 is 0."""
    if not is_complex(X.dtype):
        return {"X": f.fill_zeros_like(dOut)}
    x, y = f.real(X), f.imag(X)
    share = dOut / unless_zero(f, x * x + y * y)
    return {"X": f.complex(-share * y, share * x)}


def _complex(X: Spec, Y: Spec) -> Spec:
    if X.dtype is not Y.dtype or complex_of(X.dtype) is X.dtype:
        raise ElementTypeError(f"X is {X} and Y is {Y}: both should be of float32, or both of float64")
    return Spec(broadcast(X.shape, Y.shape), complex_of(X.dtype))


@define("complex(X: real, Y: real) -> Out", infer=_complex, complex_rule=EXPLICIT)
def complex_(f: Any, X: ShapeOnly, Y: ShapeOnly, dOut: Any) -> Any:
    """``X + iY``; X and Y broadcast."""
    return {"X": lambda: f.sum_to(f.real(dOut), X), "Y": lambda: f.sum_to(f.imag(dOut), Y)}


def _as_complex(X: Spec) -> Spec:
    if not X.ndim or X.shape[-1] not in (2, -1):
        raise InferenceError(f"as_complex: X is {X}; its last dimension should be 2, the real and the imaginary part")
    if complex_of(X.dtype) is X.dtype:
        raise ElementTypeError(f"as_complex: X is {X}; it should be of float32 or float64")
    return Spec(X.shape[:-1], complex_of(X.dtype))


@define("as_complex(X: real) -> Out", infer=_as_complex, inline_grad=True, complex_rule=LINEAR)
def as_complex(f: Any, dOut: Any) -> Any:
    """The pairs in the last dimension of X, as complex numbers."""
    return {"X": f.as_real(dOut)}


@define(
    "as_real(X: complex) -> Out",
    infer=lambda X: Spec((*X.shape, 2), real_of(X.dtype)),
    inline_grad=True,
    complex_rule=LINEAR,
)
def as_real(f: Any, dOut: Any) -> Any:
    """Complex numbers as pairs, real and imaginary part, in a new last dimension."""
    return {"X": f.as_complex(dOut)}
