"""Parameters of which length and direction are trained apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import FluidTypeError
from ..initializer import euclidean_norm
from ..opdef.inference import OpNamespace

__all__ = ["PARTS", "WeightNorm", "normalized"]

PARTS = ("_v", "_g")
"""What the names of the two parameters end with."""


def normalized(ops: OpNamespace, v: Any, g: Any, axes: Sequence[int]) -> Any:
    """``g * v / norm(v)``, with the norm over these dimensions."""
    return v * (g / euclidean_norm(ops, v, axes))


class WeightNorm:
    """What a `WeightNormParamAttr` makes in eager mode: two parameters, to be assigned to an attribute of a layer.

    The layer has them as ``<attribute>_v`` and ``<attribute>_g`` from then on, and its attribute is ``g * v / norm(v)``, computed
    each time that it is read.

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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise FluidTypeError(
            f"{self.name} is made of the parameters {' and '.join(part.name for part in self.parts.values())}: {self.what_to_do}"
        )

    def __repr__(self) -> str:
        return f"WeightNorm({self.name}: {self.dtype.text}{list(self.shape)})"
