"""Decoders of `fluid.contrib`."""

from __future__ import annotations

from ...not_here import names_here
from . import beam_search_decoder
from .beam_search_decoder import *  # noqa: F403

__all__ = [*beam_search_decoder.__all__, "beam_search_decoder"]

__dir__ = names_here(__name__)
