"""Layers of sequences, under the module's name in Fluid 1.7 and 1.8."""

from .sequence import *  # noqa: F403
from .sequence import __all__ as __all__
