"""Saved programs as layers, under the module name of Fluid 1.8; see `fluid.dygraph.jit`."""

from __future__ import annotations

from ..not_here import names_here
from .translated import StaticModelRunner

__all__ = ["StaticModelRunner"]

__dir__ = names_here(__name__)
