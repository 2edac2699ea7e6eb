"""Programs, blocks, operators and variables under the module name of Fluid 1.6; defined in `fluid.ir.program`."""

from __future__ import annotations

import re

from .errors import ProgramError
from .ir.program import *  # noqa: F403
from .ir.program import __all__ as _PROGRAM
from .values.place import cpu_places, cuda_pinned_places, cuda_places, is_compiled_with_cuda

__all__ = [
    "cpu_places", "cuda_pinned_places", "cuda_places", "is_compiled_with_cuda", "load_op_library", "require_version", *_PROGRAM,
]  # fmt: skip


def load_op_library(lib_filename: str) -> None:
    """Not supported: libraries of ops in C++ need Paddle's runtime. Raises `ProgramError`, which says what to use."""
    raise ProgramError(
        f"load_op_library({lib_filename!r}): ops compiled for Paddle cannot run here; define the op in Python, with fluid.extend"
    )


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Accepts every version: scripts that require some version of Paddle get the interface of 1.6, which this package has.

    `ProgramError` if an argument is not a version such as ``"1.6.0"``.
    """
    for version in (min_version, max_version):
        if version is not None and not (isinstance(version, str) and re.fullmatch(r"\d+(\.\d+){0,3}", version)):
            raise ProgramError(f"{version!r} is not a version such as '1.6.0'")
