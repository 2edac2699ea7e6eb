"""Compiles programs ahead of time, forward, backward and update, to libraries for C that need neither Python nor a runtime.

`compile_program` makes plans of a program, with native code for any processor (`targets`), places their values in memory of the
caller (`layout`), and writes an object file (`code`), its header (`header`) and the layout of its state as JSON. See README.md
beside this file.
"""

from __future__ import annotations

from ..not_here import names_here
from .compression import FROZEN_TYPES
from .library import CompiledLibrary, compile_program
from .memory import MemoryReport, report_memory
from .state import load_compiled_state, save_compiled_state
from .targets import TARGETS

__all__ = [
    "FROZEN_TYPES",
    "TARGETS",
    "CompiledLibrary",
    "MemoryReport",
    "compile_program",
    "load_compiled_state",
    "report_memory",
    "save_compiled_state",
]

__dir__ = names_here(__name__)
