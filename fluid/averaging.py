"""Moved to `fluid.training.averaging`; pickles of earlier versions look here."""

from fluid.training.averaging import ExponentialMovingAverage, ModelAverage

__all__ = ["ExponentialMovingAverage", "ModelAverage"]
