"""Moved to `fluid.eager.graph`; pickles of earlier versions look here."""

from fluid.eager.graph import Hooks

__all__ = ["Hooks"]
