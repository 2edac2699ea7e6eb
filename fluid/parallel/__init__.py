"""Programs over several devices: a mesh of them, and how variables are split over its axes.

>>> import fluid
>>> fluid.parallel.Mesh(data=4, model=2).size
8
"""

from __future__ import annotations

from ..not_here import names_here
from .mesh import Mesh
from .processes import connect

__all__ = ["Mesh", "connect"]

__dir__ = names_here(__name__)
