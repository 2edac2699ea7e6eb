"""Programs of Paddle 3 in files."""

from __future__ import annotations

from ...errors import FluidError, FormatError
from ...ir.program import Program
from ..tensors import read_file
from ..writing import write_file
from . import arrays_from_blocks, arrays_to_blocks, control_to_blocks, special_from_blocks  # noqa: F401  # they say how ops are read and written
from .from_blocks import WRITERS, is_of_pir, pir_of
from .json_reading import parse_pir
from .json_writing import serialize_pir
from .to_blocks import program_of

__all__ = ["WRITERS", "is_of_pir", "pir_bytes", "read_pir", "write_pir"]


def read_pir(path: str) -> Program:
    """The program in a file; `FormatError` if it is none of Paddle 3."""
    try:
        return program_of(parse_pir(read_file(path)))
    except FluidError as error:
        raise error if str(error).startswith(path) else FormatError(f"{path}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # files may hold anything
        raise FormatError(f"{path}: not a program of Paddle 3: its ops do not fit together: {error!r}") from error


def pir_bytes(program: Program) -> bytes:
    """A program as the bytes of a file of Paddle 3.3; `ProgramError` lists the ops that it has no equivalents of."""
    return serialize_pir(pir_of(program))


def write_pir(path: str, program: Program) -> None:
    """Write a program for Paddle 3.3; errors as of `pir_bytes`."""
    write_file(path, [pir_bytes(program)])
