"""Moved to `fluid.training.states`; pickles that earlier versions wrote name it here."""

from fluid.training.states import GivenState, _unpickled

__all__ = ["GivenState", "_unpickled"]
