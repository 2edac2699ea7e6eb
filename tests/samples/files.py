"""Samples of `fluid.ops.files`."""

from __future__ import annotations

from .base import structural

structural("test_file_ops.py", "save", "load", "save_combine", "load_combine")
