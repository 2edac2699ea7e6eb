"""Weight normalization: length and direction of a parameter are trained separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import FluidTypeError
from ..initializer import euclidean_norm
from ..opdef.inference import OpNamespace
from ..param_attr import WeightNormParamAttr

PARTS = ("_v", "_g")
"""Suffixes of the names of the two parameters."""


def normalized(ops: OpNamespace, v: Any, g: Any, axes: Sequence[int]) -> Any:
    """``g * v / norm(v)``, with the norm over these axes."""
    return v * (g / euclidean_norm(ops, v, axes))


class WeightNorm:
    """Create the two parameters of a `WeightNormParamAttr` and compute the weight from them.

    A program computes the weight once per step (`build`). In eager mode this object is assigned to an attribute of a layer, which
    then has the two as ``<attribute>_v`` and ``<attribute>_g``; reading the attribute computes ``g * v / norm(v)``.

    Attributes:
        name, shape, dtype: of the weight.
        parts: suffix of the name -> parameter.
        axes: the axes that the norm sums over.
    """

    what_to_do = "assign it to an attribute of the layer, which computes it when the attribute is read"

    def __init__(self, name: str, v: Any, g: Any, axes: Sequence[int]) -> None:
        self.name, self.shape, self.dtype = name, v.shape, v.dtype
        self.parts: Mapping[str, Any] = dict(zip(PARTS, (v, g), strict=True))
        self.axes = tuple(axes)

    def build(self, ops: OpNamespace) -> Any:
        """Append the ops that compute the weight; the weight."""
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
