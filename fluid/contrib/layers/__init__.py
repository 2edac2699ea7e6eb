"""Layers of `fluid.contrib`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...not_here import names_here, names_not_here
from . import nn, rnn_impl
from .nn import *  # noqa: F403
from .rnn_impl import *  # noqa: F403

__all__ = [*nn.__all__, *rnn_impl.__all__, "nn", "rnn_impl"]

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)
