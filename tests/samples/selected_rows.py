"""Samples of `fluid.ops.selected_rows`."""

from __future__ import annotations

from .base import structural

structural("test_selected_rows.py", "merge_selected_rows", "get_tensor_from_selected_rows", "select_rows_like")
