"""What layers are written with, by the name that Fluid 1.6 has for this: see `fluid.building.layer_helper`."""

from .building.layer_helper import LayerHelper

__all__ = ["LayerHelper"]
