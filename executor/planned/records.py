"""Stores the native code of plans on disk, so that the next process need not lower the program again.

A file is named by a digest of everything that native code depends on: the program, the spec of each value, the fetches, the
sources of this package (their names, sizes and times, like Python's cache of bytecode), processor and LLVM. It lies among the
kernels (see `fluid.executor.native.cache`) and is JSON: instructions and values by number, kernels by signature. It is used if
its kernels are loaded or on disk.

Only native code is read. Each process computes versions, specs and the placement of values again, and verifies the file against
them; a file that disagrees is ignored. Anyone who can write to the folder of the cache can replace machine code there; the
digest in a file only detects damage.

Plans are stored for programs without blocks, and without ops or kernels defined outside of this package.
"""

from __future__ import annotations

import json
import marshal
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from fluid import errors
from fluid.ir.program import Operator, Program
from fluid.ir.versions import Value
from fluid.opdef import registry
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..kernels.table import CHECKS, KERNELS, NATIVE_CHECKS, SPARSE_CHECKS, SPARSE_KERNELS, check_of
from ..native.cache import Kernels, available_kernels, made_by
from ..native.fallback import NativeUnavailable, fault
from ..native.instructions import NATIVE_PREFIX, Check, KernelCall, NativeInstruction, Writer, WrittenKernel
from ..native.sealed import PLAN, folder, read_sealed, write_sealed
from ..native.target import Target
from ..native.verifying import verify_accesses, verify_order, verify_writes
from ..stepwise.handlers import HANDLERS

if TYPE_CHECKING:
    from .plan import AnyInstruction, Instruction

__all__ = ["NativeCode", "read_native_code", "record_path", "write_native_code"]

_HEAD = b"fluid plan 2\n"
"""The first bytes of a file; the number is the version of the format."""
_FEWEST_OPS = 32
"""Programs of fewer ops are not stored: lowering them takes as long as looking for a file."""


# ------------------------------------------------------------------------------------------------------------ the name
def record_path(
    program: Program,
    specs: Mapping[Value, Spec],
    storage: Iterable[str],
    unchanging: Iterable[str],
    fetches: Sequence[str],
    target: Target,
) -> str | None:
    """The file of a program's native code; None if it is not stored.

    Args:
        specs: the specs of all values of the program's plan, before native code is made.
        storage: names whose values live in the scope, where they are overwritten in place.
        unchanging: names of variables of the scope that nothing can change.
        target: the processor that the code is for.
    """
    ops = program.global_block().ops
    if len(program.blocks) > 1 or len(ops) < _FEWEST_OPS:
        return None
    sources = _sources()
    if not sources or not all(map(_is_built_in, {op.type for op in ops})):
        return None
    if not all(_is_plain(value) for op in ops for value in op.attrs.values()):
        return None
    place = folder()
    if place is None:
        return None
    spec_rows = [(*value, spec.shape, int(spec.dtype), int(spec.type), spec.lod) for value, spec in specs.items()]
    try:
        parts = [
            made_by(target),
            sources,
            spec_rows,
            sorted(storage),
            sorted(unchanging),
            list(fetches),
            *_program_facts(program),
        ]
    except NativeUnavailable:
        return None
    digest = sha256(marshal.dumps(parts, 2))  # version 2 maps equal parts to equal bytes; several times as fast as JSON
    return os.path.join(place, digest.hexdigest() + PLAN)


def _program_facts(program: Program) -> Iterator[Any]:
    """All parts of a one-block program that its plan depends on, including the permission to run."""
    block = program.global_block()
    yield None if program.allowed_ops is None else sorted(program.allowed_ops)
    yield [(op.type, op.inputs, op.outputs, op.attrs) for op in block.ops]
    for var in block.vars.values():
        dtype, shape = int(var.dtype) if var.has_dtype else None, var.shape if var.has_shape else None
        yield var.name, int(var.type), dtype, shape, var.lod_level, var.persistable, var.is_data


_PLAIN = frozenset({bool, int, float, str, type(None)})


def _is_plain(value: Any) -> bool:
    """Whether an attribute is plain data."""
    return value.__class__ in _PLAIN or (value.__class__ is list and all(map(_is_plain, value)))


def _is_built_in(op_type: str) -> bool:
    """Whether this package defines an op and its kernels."""
    definition = registry.find(op_type)
    if definition is None:
        return False
    tables = KERNELS, SPARSE_KERNELS, CHECKS, NATIVE_CHECKS, SPARSE_CHECKS
    functions: list[Any] = [table[op_type].fn for table in tables if op_type in table]
    if op_type in HANDLERS:
        functions.append(HANDLERS[op_type])
    modules = [(definition.forward or definition).module, *(function.__module__ for function in functions)]
    return all(module.startswith("fluid.") for module in modules)


@cache
def _sources() -> list[tuple[str, int, int]]:
    """Name, modification time and size of each module of this package; empty if they lie in no folder."""
    folders = {os.path.dirname(errors.__file__), os.path.dirname(os.path.dirname(__file__))}
    return sorted({module for folder in folders for module in _modules_in(folder)})


def _modules_in(folder: str) -> Iterator[tuple[str, int, int]]:
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, status.st_mtime_ns, status.st_size
            elif entry.is_dir(follow_symlinks=False):
                yield from _modules_in(entry.path)


# -------------------------------------------------------------------------------------------------------- to the disk
@dataclass(frozen=True)
class NativeCode:
    """Native code of a plan, read from the disk.

    Attributes:
        instructions: the instructions of the plan, including native code.
        specs: the specs of the values that only native code uses.
        kernels: keeps the kernels loaded, which this process cannot compile again.
    """

    instructions: list[AnyInstruction]
    specs: dict[Value, Spec]
    kernels: Kernels


def write_native_code(
    path: str, originals: Sequence[Instruction], instructions: Sequence[AnyInstruction], specs: Mapping[Value, Spec]
) -> None:
    """Write the native code of a plan into the file that `record_path` names.

    Args:
        originals: the instructions of the plan without native code.
        instructions: the instructions including native code.
        specs: the specs of all values.
    """
    record = _Recorder(originals, specs).record(instructions)
    write_sealed(path, _HEAD, json.dumps(record, separators=(",", ":")).encode())


class _Recorder:
    """Converts instructions to lists, numbers and texts."""

    def __init__(self, originals: Sequence[Instruction], specs: Mapping[Value, Spec]) -> None:
        self._specs = specs
        self._number_of = {id(instruction): number for number, instruction in enumerate(originals)}
        self._number_of.update((id(instruction.op), number) for number, instruction in enumerate(originals))
        self._values: dict[Value, int] = {}
        self._kernels: dict[str, int] = {}

    def record(self, instructions: Sequence[AnyInstruction]) -> dict[str, Any]:
        rows = [self._instruction(instruction) for instruction in instructions]
        return {
            "instructions": rows,
            "kernels": list(self._kernels),
            "values": [
                [*value, *([self._specs[value].shape, self._specs[value].dtype] if value[0].startswith(NATIVE_PREFIX) else [])]
                for value in self._values
            ],
        }

    def _instruction(self, instruction: AnyInstruction) -> list[Any]:
        if isinstance(instruction, Check):
            return ["check", self._number_of[id(instruction.instruction)]]
        if isinstance(instruction, NativeInstruction):
            return ["native", *self._native(instruction)]
        number = self._number_of.get(id(instruction))
        if number is not None:
            return ["op", number]
        ((slot, (value,)),) = instruction.writes.items()
        return ["draw", self._number_of[id(instruction.op)], slot, self._value(value)]

    def _native(self, instruction: NativeInstruction) -> list[Any]:
        return [
            [self._number_of[id(op)] for op in instruction.ops],
            instruction.describe(),
            [[self._value(value), layout] for value, layout in instruction.layouts.items()],
            [self._value(value) for value in instruction.read],
            [self._value(value) for value in instruction.written],
            instruction.workspace_bytes,
            [self._call(call) for call in instruction.calls],
        ]

    def _call(self, call: KernelCall) -> list[Any]:
        kernel = self._kernels.setdefault(call.kernel, len(self._kernels))
        return [kernel, call.is_serial, [self._value(value) for value, _ in call.operands],
                [offset for _, offset in call.operands]]  # fmt: skip

    def _value(self, value: Value | None) -> int | None:
        return None if value is None else self._values.setdefault(value, len(self._values))


# ------------------------------------------------------------------------------------------------------ from the disk
_MOST_SLACK = 4096
"""The most bytes of a small value, or of a small workspace, that native code does not access."""


@dataclass(eq=False)
class _Recorded(NativeInstruction):
    """Native code, read from a record."""

    ops: list[Operator]
    text: str
    layouts: dict[Value, str]
    read: list[Value]
    written: list[Value]
    workspace_bytes: int
    calls: list[KernelCall]
    writers: dict[str, Writer]
    shares: dict[Value, Value] = field(default_factory=dict)

    def describe(self) -> str:
        return self.text


def read_native_code(
    path: str,
    originals: Sequence[Instruction],
    specs: Mapping[Value, Spec],
    storage: Mapping[str, Spec],
    fetched: Iterable[Value],
    target: Target,
) -> NativeCode | None:
    """Read the native code for the instructions of a plan from a file; None if there is no usable code.

    Args:
        originals: the instructions of the plan, without native code.
        specs: the specs of their values.
        storage: names whose values live in the scope, where they are overwritten in place.
        fetched: values that are fetched.
        target: the processor that the code is for.
    """
    body = read_sealed(path, _HEAD)
    if body is None:
        return None
    try:
        record = json.loads(body)
        kernels = available_kernels(record["kernels"], target)
        if kernels is None:
            return None
        code = _Reader(record, originals, specs).native_code(kernels)
        _verify(code, originals, {**specs, **code.specs}, storage, fetched)
    except Exception:  # the contents are untrusted
        return None
    return code


def _verify(
    code: NativeCode,
    originals: Sequence[Instruction],
    specs: Mapping[Value, Spec],
    storage: Mapping[str, Spec],
    fetched: Iterable[Value],
) -> None:
    """Raise an error if instructions cannot run, or access memory outside of their values."""
    verify_order(code.instructions, storage, specs)
    verify_writes(originals, code.instructions)
    available = {value for instruction in code.instructions for value in instruction.written}
    read = {*fetched, *(value for instruction in code.instructions for value in instruction.read_within)}
    if any(version and (name, version) not in available for name, version in read):
        raise fault("a value is read that no instruction writes")
    calls = [call for instruction in code.instructions for call in instruction.calls]
    workspace_bytes = max((instruction.workspace_bytes for instruction in code.instructions), default=0)
    verify_accesses(calls, code.kernels.footprints, lambda value: specs[value].nbytes, workspace_bytes)
    for item in code.instructions:
        operands = {value for call in item.calls for value, _ in call.operands}
        if item.is_native and operands - {None} != {*item.read, *item.written}:
            raise fault(f"{item.describe()} is given other values than it reads and writes")
    _verify_sizes(calls, code, workspace_bytes)


def _verify_sizes(calls: Iterable[KernelCall], code: NativeCode, workspace_bytes: int) -> None:
    """Raise an error if values of native code, or its workspace, are much larger than the calls need."""
    ends: dict[Value | None, int] = {}
    for call in calls:
        for (value, offset), (_, high) in zip(call.operands, code.kernels.footprints[call.kernel], strict=True):
            ends[value] = max(ends.get(value, 0), offset + high)
    sizes = {value: spec.nbytes for value, spec in code.specs.items()}
    # Of images with a halo, rows behind the last one that is written may be unread: less than half of all rows.
    if any(size > 2 * ends.get(value, 0) + _MOST_SLACK for value, size in [*sizes.items(), (None, workspace_bytes)]):
        raise fault("a value has more bytes than native code accesses")


class _Reader:
    """Builds instructions from a record with untrusted contents."""

    def __init__(self, record: Mapping[str, Any], originals: Sequence[Instruction], specs: Mapping[Value, Spec]) -> None:
        self._record = record
        self._originals: dict[int, Instruction] = dict(enumerate(originals))  # a dict: a list would accept index -1
        self._remaining = dict(self._originals)
        """The ops that no instruction of the record runs yet."""
        self._program_specs = specs
        self._kernels: dict[int, str] = dict(enumerate(record["kernels"]))
        self._writers: dict[str, Writer] = dict.fromkeys(record["kernels"], _raise_unloaded)
        self._values: dict[Any, Value] = {}
        self._specs: dict[Value, Spec] = {}
        for number, (name, version, *spec) in enumerate(record["values"]):
            self._values[number] = value = _text(name), _number(version)
            if name.startswith(NATIVE_PREFIX):
                shape, dtype = spec
                self._specs[value] = Spec(tuple(map(_number, shape)), VarType(dtype))
            elif value not in specs:
                raise ValueError(f"the program has no {name}, version {version}")

    def native_code(self, kernels: Kernels) -> NativeCode:
        makers: dict[str, Callable[..., AnyInstruction]] = {
            "op": self._op,
            "check": self._check,
            "draw": self._draw,
            "native": self._native,
        }
        instructions = [makers[kind](*parts) for kind, *parts in self._record["instructions"]]
        return NativeCode(instructions, self._specs, kernels)

    def _op(self, number: int) -> Instruction:
        return self._remaining.pop(number)  # each runs once

    def _check(self, number: int) -> Check:
        instruction = self._originals[number]
        if check_of(instruction.op.type) is None:
            raise ValueError(f"{instruction.op.type} needs no check")
        return Check(instruction, self._program_specs)

    def _draw(self, number: int, slot: str, value: int) -> Instruction:
        instruction = self._originals[number]
        if instruction.writes[slot] != [self._values[value]]:
            raise ValueError(f"{instruction.op.type} does not write this")
        return instruction.drawing(slot, self._program_specs)

    def _native(self, ops: Any, text: Any, layouts: Any, read: Any, outputs: Any, workspace_bytes: Any, calls: Any) -> _Recorded:
        return _Recorded(
            [self._originals[number].op for number in ops],
            _text(text),
            {self._values[number]: _text(layout) for number, layout in layouts},
            [self._values[number] for number in read],
            [self._values[number] for number in outputs],
            _number(workspace_bytes),
            [self._call(*call) for call in calls],
            self._writers,
        )

    def _call(self, kernel: Any, is_serial: Any, numbers: Any, offsets: Any) -> KernelCall:
        values = [None if number is None else self._values[number] for number in numbers]
        operands = [(value, _number(offset)) for value, offset in zip(values, offsets, strict=True)]
        return KernelCall(self._kernels[kernel], operands, bool(is_serial))


def _number(value: Any) -> int:
    """A number of bytes, a version, or the length of an axis."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no number from 0")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is no text")
    return value


def _raise_unloaded(name: str) -> WrittenKernel:
    raise NativeUnavailable("a kernel that the plan keeps is not loaded any more")
