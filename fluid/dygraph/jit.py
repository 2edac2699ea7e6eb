"""Layers as programs, where Fluid 1.6 has them; see `fluid.dygraph.trace`."""

from __future__ import annotations

from .tracing import TracedLayer, declarative, to_static, trace

__all__ = ["TracedLayer", "declarative", "to_static", "trace"]
