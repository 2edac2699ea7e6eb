"""The formats of files that hold a program, or arrays by name: one row each, with how to recognise, read and write it.

The first bytes of a file tell its format. Parameters without names (``.pdiparams``, or one file per variable) have no row, since
only their program tells how to read them (`fluid.formats.tensors`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import FormatError
from ..ir.program import Program
from ..ir.verify import self_owning
from .npz import is_archive, read_npz, write_npz
from .pickles import write_arrays
from .program import parse_program, serialize_program
from .safetensors import is_safetensors, read_safetensors, write_safetensors
from .state import is_pickle, read_state
from .tensors import read_file
from .text import parse_program_text
from .writing import reason, write_file

__all__ = ["ARRAYS", "HEAD", "PROGRAMS", "ArrayFormat", "ProgramFormat", "array_format", "head_of", "program_format"]

HEAD = 64
"""How many first bytes of a file suffice to tell its format."""


@dataclass(frozen=True)
class ArrayFormat:
    """A format of arrays by name.

    Attributes:
        name: the format's name, which is the extension of its files.
        matches: whether a file with these first bytes and this size has this format.
        read: returns the arrays by name in the file at a path.
        write: writes arrays by name to a path.
    """

    name: str
    matches: Callable[[bytes, int], bool]
    read: Callable[[str], dict[str, Any]]
    write: Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True)
class ProgramFormat:
    """A format of programs.

    Attributes:
        name: the format's name.
        endings: extensions of its files; the first is used for writing.
        matches: whether a file with these first bytes and this size has this format.
        read: returns the program in the file at a path.
        write: writes a program to a path.
    """

    name: str
    endings: tuple[str, ...]
    matches: Callable[[bytes, int], bool]
    read: Callable[[str], Program]
    write: Callable[[str, Program], None]


def _read_text(path: str) -> Program:
    try:
        program = parse_program_text(read_file(path).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: the text is not UTF-8, at byte {error.start}") from None
    owner = self_owning(program.blocks)  # possible in text
    if owner is not None:
        raise FormatError(f"{path}: block {owner[0].idx} holds itself, by way of an op of block {owner[1].idx}")
    return program


ARRAYS = (
    ArrayFormat("safetensors", is_safetensors, read_safetensors, write_safetensors),
    ArrayFormat("npz", is_archive, read_npz, write_npz),
    ArrayFormat("pdparams", is_pickle, read_state, write_arrays),
)
PROGRAMS = (
    ProgramFormat(
        "text",
        (".txt",),
        lambda head, size: head.lstrip().startswith((b"block ", b"program ")),
        _read_text,
        lambda path, program: write_file(path, [program.to_string().encode("utf-8", "surrogateescape")]),
    ),
    ProgramFormat(
        "program",
        (".pdmodel",),
        lambda head, size: head.startswith(b"\x0a"),
        lambda path: parse_program(read_file(path)),
        lambda path, program: write_file(path, [serialize_program(program)]),
    ),
)


def head_of(path: str, what: str) -> tuple[bytes, int]:
    """The first bytes of a file and its size; `FormatError` if the file, which should be a `what`, is missing."""
    try:
        with open(path, "rb") as file:
            return file.read(HEAD), os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        raise FormatError(f"{path or repr(path)}: there is no such {what}: {reason(error)}") from None


def array_format(head: bytes, size: int) -> ArrayFormat | None:
    """The format of arrays by name of a file with this head and size, or None."""
    return next((row for row in ARRAYS if row.matches(head, size)), None)


def program_format(head: bytes, size: int) -> ProgramFormat | None:
    """The format of programs of a file with this head and size, or None."""
    return next((row for row in PROGRAMS if row.matches(head, size)), None)
