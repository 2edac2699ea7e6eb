"""Moved to `fluid.executor.runtime.scope`; pickles that earlier versions wrote name it here."""

from .runtime.scope import LoDTensor, Scope

__all__ = ["LoDTensor", "Scope"]
