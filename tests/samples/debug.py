"""Ops of `fluid.ops.debug`, which are covered elsewhere."""

from .base import structural

structural("test_debug.py", "print", "py_func", "py_func_backward", "assert")
