"""Moved to `fluid.values.types`; pickles that earlier versions wrote name it here."""

from fluid.values.types import VarType

__all__ = ["VarType"]
