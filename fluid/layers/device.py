"""Layers about places, as in Fluid 1.6."""

from __future__ import annotations

from ..ir.program import Variable, default_main_program
from ..not_here import names_here
from ..values.types import VarType

__all__ = ["get_places"]

__dir__ = names_here(__name__)


def get_places(device_count: int | None = None, device_type: str | None = None) -> Variable:
    """A variable that stands for places; no op of Fluid 1.6 reads it any more.

    Programs run on one device here; `fluid.cpu_places` and `fluid.cuda_places` list them.

    Args:
        device_count, device_type: accepted as in Fluid.

    >>> layers.device.get_places().type is fluid.core.VarDesc.VarType.PLACE_LIST
    True
    """
    return default_main_program().current_block().create_var(type=VarType.PLACE_LIST)
