"""Moved to `fluid.eager.tensor`; pickles of earlier versions look here."""

from fluid.eager.tensor import Tensor, _unpickled

__all__ = ["Tensor", "_unpickled"]
