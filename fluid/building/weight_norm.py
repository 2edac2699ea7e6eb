"""Parameters of which length and direction are trained apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import FluidTypeError
from ..initializer import euclidean_norm
from ..opdef.inference import OpNamespace
from ..param_attr import WeightNormParamAttr

__all__ = ["PARTS", "WeightNorm", "normalized"]

PARTS = ("_v", "_g")
"""What the names of the two parameters end with."""


def normalized(ops: OpNamespace, v: Any, g: Any, axes: Sequence[int]) -> Any:
    """``g * v / norm(v)``, with the norm over these dimensions."""
    return v * (g / euclidean_norm(ops, v, axes))


class WeightNorm:
    """The two parameters that a `WeightNormParamAttr` makes in place of one, which is computed of them.

    A program computes it once in a step (`build`). In eager mode this is assigned to an attribute of a layer, which has the two
    as ``<attribute>_v`` and ``<attribute>_g`` from then on, and whose attribute is ``g * v / norm(v)``, computed each time that
    it is read.

    Attributes:
        name, shape, dtype: of the product.
        parts: the two parameters, by what their names end with.
        axes: the dimensions that the norm goes over.
    """

    what_to_do = "assign it to an attribute of the layer, which computes it when the attribute is read"

    def __init__(self, name: str, v: Any, g: Any, axes: Sequence[int]) -> None:
        self.name, self.shape, self.dtype = name, v.shape, v.dtype
        self.parts: Mapping[str, Any] = dict(zip(PARTS, (v, g), strict=True))
        self.axes = tuple(axes)

    def build(self, ops: OpNamespace) -> Any:
        """The product, by ops of a program."""
        v, g = self.parts.values()
        weight = normalized(ops, v, g, self.axes)
        WeightNormParamAttr.params_with_weight_norm.append(weight)
        return weight

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise FluidTypeError(
            f"{self.name} is made of the parameters {' and '.join(part.name for part in self.parts.values())}: {self.what_to_do}"
        )

    def __repr__(self) -> str:
        return f"WeightNorm({self.name}: {self.dtype.text}{list(self.shape)})"
