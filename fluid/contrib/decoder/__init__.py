"""Decoders of `fluid.contrib`."""

from __future__ import annotations

from . import beam_search_decoder
from .beam_search_decoder import *  # noqa: F403

__all__ = [*beam_search_decoder.__all__, "beam_search_decoder"]
