"""The formats of files that hold a program, a model or arrays: one row each, with how to recognise it, and to read and write it.

The first bytes of a file tell its format.
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

Content = TypeVar("Content")

HEAD = 64
"""How many first bytes of a file suffice to tell its format."""


@dataclass(frozen=True)
class FileType:
    """A type of file that its first bytes tell.

    Attributes:
        name: the type's name; for arrays by name, the extension of their files.
        matches: whether a file with these first bytes and this size has this type.
    """

    name: str
    matches: Callable[[bytes, int], bool]


@dataclass(frozen=True)
class Format(FileType, Generic[Content]):
    """The format of a program, or of arrays by name, that can be read and written without anything else.

    Attributes:
        read: returns the content of the file at a path.
        write: writes it to a path.
    """

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


def _is_onnx(head: bytes, size: int) -> bool:
    """Whether a file starts as an ONNX model does: its first field is a small number, the version of the format."""
    return len(head) > 2 and head[0] == 0x08 and 0 < head[1] < 0x40 and head[2] in b"\x12\x1a\x22\x28\x32\x3a\x42\x72\xa2\xca"


ONNX = FileType("onnx", _is_onnx)
"""A graph of ONNX's ops with their weights: `fluid.onnx` makes a program from it."""
UNNAMED = FileType("unnamed", lambda head, size: head.startswith(b"\0\0\0\0"))
"""Parameters without their names, ``.pdiparams`` or one file per variable: only their program tells how to read them."""
FORMATS: tuple[FileType, ...] = (*ARRAYS, ONNX, UNNAMED, *PROGRAMS)


def head_of(path: str, content: str) -> tuple[bytes, int]:
    """The first bytes of a file and its size; `FormatError` if it is missing, which tells the expected `content`."""
    try:
        with open_saved(path) as file:
            return file.read(HEAD), os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        raise FormatError(f"{path or repr(path)}: there is no such {content}: {reason(error)}") from None


Row = TypeVar("Row", bound=FileType)


def format_of(formats: Iterable[Row], head: bytes, size: int) -> Row | None:
    """Find the format of a file by its first bytes and its size; None if it has another."""
    return next((form for form in formats if form.matches(head, size)), None)
