"""Moved to `fluid.training.averaging`; pickles that earlier versions wrote name it here."""

from fluid.training.averaging import ExponentialMovingAverage, ModelAverage

__all__ = ["ExponentialMovingAverage", "ModelAverage"]
