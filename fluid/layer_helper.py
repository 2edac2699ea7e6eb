"""`LayerHelper` under the name of Fluid 1.6: see `fluid.building.layer_helper`."""

from .building.layer_helper import LayerHelper
from .not_here import names_here

__all__ = ["LayerHelper"]

__dir__ = names_here(__name__)
