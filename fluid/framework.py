"""Programs and what they are made of, by the name that Fluid 1.6 has for this: see `fluid.ir.program`."""

from __future__ import annotations

import re

from .errors import ProgramError
from .ir.inference import BuildNamespace
from .ir.program import (
    Block,
    Operator,
    OpRole,
    Parameter,
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    in_dygraph_mode,
    name_scope,
    program_guard,
)
from .values.place import cpu_places, cuda_pinned_places, cuda_places, is_compiled_with_cuda

__all__ = [
    "Block",
    "BuildNamespace",
    "OpRole",
    "Operator",
    "Parameter",
    "Program",
    "Variable",
    "cpu_places",
    "cuda_pinned_places",
    "cuda_places",
    "default_main_program",
    "default_startup_program",
    "in_dygraph_mode",
    "is_compiled_with_cuda",
    "load_op_library",
    "name_scope",
    "program_guard",
    "require_version",
]


def load_op_library(lib_filename: str) -> None:
    """Not here: libraries of ops in C++ need Paddle's own run time. `ProgramError` says what to use."""
    raise ProgramError(
        f"load_op_library({lib_filename!r}): ops compiled for Paddle cannot run here; define the op in Python, with fluid.extend"
    )


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Accepts any version: scripts that ask for a version of Paddle get this package's own interface, that of 1.6.

    `ProgramError` if an argument is not a version such as ``"1.6.0"``.
    """
    for version in (min_version, max_version):
        if version is not None and not (isinstance(version, str) and re.fullmatch(r"\d+(\.\d+){0,3}", version)):
            raise ProgramError(f"{version!r} is not a version such as '1.6.0'")
