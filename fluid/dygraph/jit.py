"""Tracing, under the module name of Fluid 1.6; see `fluid.dygraph.trace`."""

from __future__ import annotations

from .static_function import declarative, to_static
from .tracing import TracedLayer, trace

__all__ = ["TracedLayer", "declarative", "to_static", "trace"]
