"""Moved to `fluid.eager.tensor`; pickles that earlier versions wrote name it here."""

from fluid.eager.tensor import Tensor, _unpickled

__all__ = ["Tensor", "_unpickled"]
