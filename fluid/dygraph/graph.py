"""Moved to `fluid.eager.graph`; pickles that earlier versions wrote name it here."""

from fluid.eager.graph import Hooks

__all__ = ["Hooks"]
