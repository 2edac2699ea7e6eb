"""The formats of files that hold a program, or arrays by name: one row each, with how to recognise, read and write it.

The first bytes of a file tell its format. Parameters without names (``.pdiparams``, or one file per variable) have no row, since
only their program tells how to read them (`fluid.formats.tensors`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..errors import FormatError
from ..ir.program import Program
from ..ir.verify import self_owning
from .commits import open_saved
from .npz import is_archive, read_npz, write_npz
from .pickles import write_arrays
from .pir.files import read_pir, write_pir
from .pir.json_reading import is_pir
from .program import parse_program, serialize_program
from .safetensors import is_safetensors, read_safetensors, write_safetensors
from .state import is_pickle, read_state
from .tensors import read_file
from .text import parse_program_text
from .writing import reason, write_file

__all__ = ["ARRAYS", "HEAD", "MESSAGE", "PIR", "PROGRAMS", "TEXT", "Format", "format_of", "head_of", "is_onnx"]

Content = TypeVar("Content")

HEAD = 64
"""How many first bytes of a file suffice to tell its format."""


@dataclass(frozen=True)
class Format(Generic[Content]):
    """A file format for a program or for arrays by name.

    Attributes:
        name: the format's name; for arrays by name, the extension of their files.
        matches: whether a file with these first bytes and this size has this format.
        read: returns what the file at a path holds.
        write: writes it to a path.
    """

    name: str
    matches: Callable[[bytes, int], bool]
    read: Callable[[str], Content]
    write: Callable[[str, Content], None]


def _read_text(path: str) -> Program:
    try:
        program = parse_program_text(read_file(path).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: the text is not UTF-8, at byte {error.start}") from None
    owner = self_owning(program.blocks)  # possible in text
    if owner is not None:
        raise FormatError(f"{path}: block {owner[0].idx} holds itself, by way of an op of block {owner[1].idx}")
    return program


ARRAYS: tuple[Format[dict[str, Any]], ...] = (
    Format("safetensors", is_safetensors, read_safetensors, write_safetensors),
    Format("npz", is_archive, read_npz, write_npz),
    Format("pdparams", is_pickle, read_state, write_arrays),
)
TEXT = Format(
    "text",
    lambda head, size: head.lstrip().startswith((b"block ", b"program ")),
    _read_text,
    lambda path, program: write_file(path, [program.to_string().encode("utf-8", "surrogateescape")]),
)
MESSAGE = Format(
    "program",
    lambda head, size: head.startswith(b"\x0a"),
    lambda path: parse_program(read_file(path)),
    lambda path, program: write_file(path, [serialize_program(program)]),
)

PIR = Format("pir", is_pir, read_pir, write_pir)
PROGRAMS = (TEXT, MESSAGE, PIR)


def is_onnx(head: bytes, size: int) -> bool:
    """Whether a file with these first bytes is an ONNX model, whose first field is a small number, the version of the format.

    It has no row: it holds a graph of other ops with their weights, and `fluid.onnx` makes a program from it.
    """
    return len(head) > 2 and head[0] == 0x08 and 0 < head[1] < 0x40 and head[2] in b"\x12\x1a\x22\x28\x32\x3a\x42\x72\xa2\xca"


def head_of(path: str, content: str) -> tuple[bytes, int]:
    """The first bytes of a file and its size; `FormatError` if the file is missing; `content` says what it should be."""
    try:
        with open_saved(path) as file:
            return file.read(HEAD), os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        raise FormatError(f"{path or repr(path)}: there is no such {content}: {reason(error)}") from None


def format_of(formats: Iterable[Format[Content]], head: bytes, size: int) -> Format[Content] | None:
    """The one of these formats that a file with this head and size has, or None."""
    return next((form for form in formats if form.matches(head, size)), None)
