"""Samples of `fluid.ops.beam_search`."""

from __future__ import annotations

from .base import structural

structural("test_structured.py", "beam_search", "beam_search_decode")
