"""Moved to `fluid.transform.widen`; this is its public name."""

from .not_here import names_here
from .transform.widen import widen

__all__ = ["widen"]

__dir__ = names_here(__name__)
