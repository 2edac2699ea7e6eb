"""Write special functions: their kernels run on arrays of the graph in place of numpy's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fluid.executor.kernels import special
from fluid.values.types import VarType

from .exporting import exports
from .graph import OnnxGraph, OnnxTensor


class _OnnxArray:
    """A tensor, or a number, with the operators of a float64 or bool array."""

    __array_ufunc__ = None  # numpy's numbers leave operators to this class

    def __init__(self, g: OnnxGraph, tensor: OnnxTensor) -> None:
        self.g, self.tensor = g, tensor

    def _with(self, op: str, operand: Any, turned: bool = False) -> _OnnxArray:
        pair = (_tensor(self.g, self, op != "Or"), _tensor(self.g, operand, op != "Or"))
        return _OnnxArray(self.g, self.g.binary(op, *(pair[::-1] if turned else pair)))

    def __add__(self, operand: Any) -> _OnnxArray:
        return self._with("Add", operand)

    def __sub__(self, operand: Any) -> _OnnxArray:
        return self._with("Sub", operand)

    def __rsub__(self, operand: Any) -> _OnnxArray:
        return self._with("Sub", operand, turned=True)

    def __mul__(self, operand: Any) -> _OnnxArray:
        return self._with("Mul", operand)

    def __truediv__(self, operand: Any) -> _OnnxArray:
        return self._with("Div", operand)

    def __rtruediv__(self, operand: Any) -> _OnnxArray:
        return self._with("Div", operand, turned=True)

    def __pow__(self, power: float) -> _OnnxArray:
        """Multiply repeatedly, as not every runtime has powers of float64."""
        result, factor, count = None, self, abs(int(power))
        assert count == abs(power) and count
        while count:
            if count & 1:
                result = factor if result is None else result * factor
            factor, count = factor * factor, count >> 1
        assert result is not None
        return result if power > 0 else 1.0 / result

    def __neg__(self) -> _OnnxArray:
        return _OnnxArray(self.g, self.g.unary("Neg", self.tensor))

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, operand: Any) -> _OnnxArray:
        return self._with("Less", operand)

    def __le__(self, operand: Any) -> _OnnxArray:
        return self._with("LessOrEqual", operand)

    def __gt__(self, operand: Any) -> _OnnxArray:
        return self._with("Greater", operand)

    def __eq__(self, operand: object) -> _OnnxArray:  # type: ignore[override]
        return self._with("Equal", operand)

    def __or__(self, operand: _OnnxArray) -> _OnnxArray:
        return self._with("Or", operand)

    def any(self) -> bool:
        """Always true: a graph computes whatever may be needed."""
        return True


def _tensor(g: OnnxGraph, value: Any, as_numbers: bool = True) -> OnnxTensor:
    if not isinstance(value, _OnnxArray):
        return g.constant(np.array(float(value)))
    return g.cast(value.tensor, VarType.FP64) if as_numbers else value.tensor


class _Functions:
    """The functions of numpy that kernels of special functions call."""

    inf, nan = math.inf, math.nan
    arange, zeros, cos = np.arange, np.zeros, np.cos

    def __init__(self, g: OnnxGraph) -> None:
        self.g = g
        for name in ("log", "exp", "sqrt", "abs", "sin", "round"):
            setattr(self, name, self._unary(name.capitalize()))

    def _unary(self, op: str) -> Any:
        return lambda x: _OnnxArray(self.g, self.g.unary(op, x.tensor))

    def where(self, condition: _OnnxArray, x: Any, y: Any) -> _OnnxArray:
        if not isinstance(x, _OnnxArray) and not isinstance(y, _OnnxArray) and {x, y} == {0, 1}:
            return condition * 1.0 if x else 1.0 - condition
        flag = self.g.cast(condition.tensor, VarType.BOOL)
        return _OnnxArray(self.g, self.g.where(flag, _tensor(self.g, x), _tensor(self.g, y)))

    def tan(self, x: _OnnxArray) -> _OnnxArray:
        """Compute sin / cos by sines: runtimes lack tangent and cosine of float64."""
        return self.sin(x) / self.sin(x + math.pi / 2)  # type: ignore[attr-defined, no-any-return]

    def isinf(self, x: _OnnxArray) -> _OnnxArray:
        return self.abs(x) == math.inf  # type: ignore[attr-defined, no-any-return]

    def ones_like(self, x: _OnnxArray) -> Any:
        return self.where(x == x, 1.0, 1.0)

    def zeros_like(self, x: _OnnxArray) -> Any:
        return self.where(x == x, 0.0, 0.0)

    def minimum(self, x: _OnnxArray, y: Any) -> _OnnxArray:
        return x._with("Min", y)

    def maximum(self, x: _OnnxArray, y: Any) -> _OnnxArray:
        return x._with("Max", y)

    def clip(self, x: _OnnxArray, low: float, high: float) -> _OnnxArray:
        return self.minimum(self.maximum(x, low), high)

    def copysign(self, x: Any, like: _OnnxArray) -> _OnnxArray:
        size = self.abs(x) if isinstance(x, _OnnxArray) else abs(x)  # type: ignore[attr-defined]
        return self.where(like < 0, -size, size)


def _traced(function: Any, names: tuple[str, ...] = ()) -> Any:
    """Write an op by its kernel's function of float64s and these attributes."""

    def write(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any]) -> OnnxTensor:
        [x] = inputs.values()
        wide = _OnnxArray(g, g.cast(x, VarType.FP64))
        result: OnnxTensor = function(_Functions(g), wide, *(attrs[name] for name in names)).tensor
        return g.cast(result, x.dtype)

    return write


for _function in (special.lgamma, special.digamma, special.erfinv, special.i0, special.i0e, special.i1, special.i1e):
    exports(_function.__name__)(_traced(_function))
exports("polygamma")(_traced(special.polygamma, ("n",)))
exports("logit")(_traced(special.logit, ("eps",)))
