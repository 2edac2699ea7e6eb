"""Moved to `fluid.transform.widen`; this is its public name."""

from fluid.transform.widen import widen

__all__ = ["widen"]
