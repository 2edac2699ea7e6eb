"""Plans kept on disk: what a program comes to is data, which the next process need not find again.

The file of a plan is named by a digest of all that the plan was made of: the program, what is fed and fetched, the sources of
this package (their names, sizes and times, by which Python itself knows what it has compiled), processor and LLVM. It lies among
the kernels (see `fluid.executor.native.cache`, which also says what is read), and is JSON: ops by their number in the program,
values by their number in a list, calls of kernels by signatures. It is used if its kernels are loaded or on disk. Whether a plan
fits what a scope holds is asked by who uses it, as of any plan.

Only plans with native code are kept, of programs without blocks, and without ops or kernels that others have defined.
"""

from __future__ import annotations

import json
import marshal
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

from fluid import errors
from fluid.ir.program import Operator, Program
from fluid.ir.versions import Value
from fluid.opdef import registry
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..kernels.table import CHECKS, KERNELS, SPARSE_CHECKS, SPARSE_KERNELS
from ..native.cache import PLAN, Kernels, folder, kept_kernels, made_by, read_sealed, write_sealed
from ..native.fallback import NativeUnavailable
from ..native.instructions import Check, KernelCall, NativeInstruction, Writer, WrittenKernel
from ..native.tables import Tables
from ..stepwise.handlers import HANDLERS
from .placement import Tenant
from .plan import AnyInstruction, Instruction, Plan

__all__ = ["kept_at", "read_plan", "write_plan"]

_HEAD = b"fluid plan 1\n"
"""How files begin; the number counts the changes of what they say."""
_FEWEST_OPS = 32
"""Programs of fewer ops are planned about as soon as they are looked for."""


# ------------------------------------------------------------------------------------------------------------ the name
def kept_at(program: Program, feeds: Mapping[str, Spec], fetches: Sequence[str]) -> str | None:
    """The file in which the plan of a program with native code is, or would be; None if it is not kept."""
    ops = program.global_block().ops
    if len(program.blocks) > 1 or len(ops) < _FEWEST_OPS:
        return None
    sources = _sources()
    if not sources or not all(map(_is_ours, {op.type for op in ops})):
        return None
    if not all(_is_plain(value) for op in ops for value in op.attrs.values()):
        return None
    place = folder()
    if place is None:
        return None
    try:
        parts = [made_by(), sources, _specs_told(feeds), fetches, *_told(program)]
    except NativeUnavailable:
        return None
    told = marshal.dumps(parts, 2)  # in this version equal parts give equal bytes; several times as quick as JSON
    return os.path.join(place, sha256(told).hexdigest() + PLAN)


def _told(program: Program) -> Iterator[Any]:
    """All that plans depend on of a program of one block, and whether they may be made."""
    block = program.global_block()
    yield None if program.allowed_ops is None else sorted(program.allowed_ops)
    yield [(op.type, op.inputs, op.outputs, op.attrs) for op in block.ops]
    for var in block.vars.values():
        dtype, shape = int(var.dtype) if var.has_dtype else None, var.shape if var.has_shape else None
        yield var.name, int(var.type), dtype, shape, var.lod_level, var.persistable, var.is_data


def _specs_told(specs: Mapping[str, Spec]) -> list[Any]:
    return [(name, spec.shape, int(spec.dtype), int(spec.type), spec.lod) for name, spec in specs.items()]


_PLAIN = frozenset({bool, int, float, str, type(None)})


def _is_plain(value: Any) -> bool:
    """Whether an attribute is plain data."""
    return value.__class__ in _PLAIN or (value.__class__ is list and all(map(_is_plain, value)))


def _is_ours(op_type: str) -> bool:
    """Whether an op, and what computes it, are those of this package."""
    definition = registry.find(op_type)
    if definition is None:
        return False
    functions: list[Any] = [table[op_type].fn for table in (KERNELS, SPARSE_KERNELS, CHECKS, SPARSE_CHECKS) if op_type in table]
    if op_type in HANDLERS:
        functions.append(HANDLERS[op_type])
    modules = [(definition.forward or definition).module, *(function.__module__ for function in functions)]
    return all(module.startswith("fluid.") for module in modules)


@cache
def _sources() -> list[tuple[str, int, int]]:
    """Name, time of change and size of each module of this package; none if they are in no folders."""
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
def write_plan(path: str, plan: Plan) -> None:
    """Keep a plan in the file that `kept_at` gives, if it has native code that runs."""
    if plan.new_tables is None or plan.step_by_step:
        return
    record = _Recorder(plan).record()
    if record is not None:
        write_sealed(path, _HEAD, json.dumps(record, separators=(",", ":")).encode())


class _Unrecorded(Exception):
    """A plan has what a record cannot say."""


class _Recorder:
    """Says a plan as lists, numbers and texts."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._op_numbers = {id(op): number for number, op in enumerate(plan.program.global_block().ops)}
        self._values: dict[Value, int] = {}
        self._specs: dict[Spec, int] = {}
        self._kernels: dict[str, int] = {}

    def record(self) -> dict[str, Any] | None:
        plan = self._plan
        try:
            record = {
                "ops": [self._op(op) for op in plan.ops],
                "instructions": [self._instruction(instruction) for instruction in plan.instructions],
                "feeds": self._named(plan.feeds),
                "storage": self._named(plan.storage),
                "externals": self._named(plan.externals),
                "absent": sorted(plan.absent),
                "fetches": self._all(plan.fetch_values),
                "frees": [self._all(values) for values in plan.frees],
                "tenants": self._tenants(),
                "bytes": [plan.arena_bytes, plan.temporaries_bytes, plan.live_bytes],
            }
            values = list(self._values)
            specs = [None if (spec := plan.specs.get(value)) is None else self._spec(spec) for value in values]
        except _Unrecorded:
            return None
        return {
            **record,
            "values": [[name for name, _ in values], [version for _, version in values], specs],
            "specs": [[spec.shape, spec.dtype, spec.type, spec.lod] for spec in self._specs],
            "kernels": list(self._kernels),
        }

    def _instruction(self, instruction: AnyInstruction) -> list[Any]:
        if isinstance(instruction, Check):
            return ["check", *self._of_op(instruction.instruction)]
        if isinstance(instruction, NativeInstruction):
            return ["native", *self._native(instruction)]
        return ["op", *self._of_op(instruction)]

    def _of_op(self, instruction: Instruction) -> list[Any]:
        return [
            self._op(instruction.op),
            {slot: self._all(values) for slot, values in instruction.reads.items()},
            {slot: self._all(values) for slot, values in instruction.writes.items()},
            {name: self._value(value) for name, value in instruction.outer.items()},
            instruction.dynamic,
            self._shares(instruction.shares),
            self._named(instruction.stand_ins),
        ]

    def _native(self, instruction: NativeInstruction) -> list[Any]:
        return [
            [self._op(op) for op in instruction.ops],
            instruction.describe(),
            [[self._value(value), layout] for value, layout in instruction.layouts.items()],
            self._all(instruction.read),
            self._all(instruction.written),
            self._shares(instruction.shares),
            instruction.workspace_bytes,
            [self._call(call) for call in instruction.calls],
        ]

    def _call(self, call: KernelCall) -> list[Any]:
        kernel = self._kernels.setdefault(call.kernel, len(self._kernels))
        return [kernel, call.is_serial, [None if value is None else self._value(value) for value, _ in call.operands],
                [offset for _, offset in call.operands]]  # fmt: skip

    def _tenants(self) -> list[Any]:
        values: dict[int, list[int]] = {}
        for value, tenant in self._plan.tenants.items():
            values.setdefault(id(tenant), []).append(self._value(value))
        tenants = {id(tenant): tenant for tenant in self._plan.tenants.values()}
        return [[each.size, each.start, each.end, each.offset, values[number]] for number, each in tenants.items()]

    def _op(self, op: Operator) -> int:
        number = self._op_numbers.get(id(op))
        if number is None:  # an op that planning has made
            raise _Unrecorded
        return number

    def _value(self, value: Value) -> int:
        return self._values.setdefault(value, len(self._values))

    def _all(self, values: Iterable[Value | None]) -> list[int | None]:
        return [None if value is None else self._value(value) for value in values]

    def _shares(self, shares: Mapping[Value, Value]) -> list[list[int]]:
        return [[self._value(out), self._value(value)] for out, value in shares.items()]

    def _spec(self, spec: Spec) -> int:
        return self._specs.setdefault(spec, len(self._specs))

    def _named(self, specs: Mapping[str, Spec]) -> dict[str, int]:
        return {name: self._spec(spec) for name, spec in specs.items()}


# ------------------------------------------------------------------------------------------------------ from the disk
@dataclass(eq=False)
class _Recorded(NativeInstruction):
    """Native code as a record says it."""

    ops: list[Operator]
    text: str
    layouts: dict[Value, str]
    read: list[Value]
    written: list[Value]
    shares: dict[Value, Value]
    workspace_bytes: int
    calls: list[KernelCall]
    writers: dict[str, Writer]

    def describe(self) -> str:
        return self.text


def read_plan(path: str, program: Program, fetches: Sequence[str]) -> Plan | None:
    """The plan that a file keeps for a program; None if there is none, or kernels of it are nowhere."""
    body = read_sealed(path, _HEAD)
    if body is None:
        return None
    record = json.loads(body)
    try:
        kernels = kept_kernels(record["kernels"])
    except NativeUnavailable:
        return None
    return None if kernels is None else _Reader(record, program).plan(list(fetches), kernels)


class _Reader:
    """Makes a plan of what a record says."""

    def __init__(self, record: Mapping[str, Any], program: Program) -> None:
        self._record, self._program = record, program
        self._ops = program.global_block().ops
        names, versions, spec_numbers = record["values"]
        self._values: list[Value] = list(zip(names, versions, strict=True))
        self._specs = [_spec_of(*told) for told in record["specs"]]
        self._writers: dict[str, Writer] = dict.fromkeys(record["kernels"], _is_gone)
        self._spec_of = {
            value: self._specs[number] for value, number in zip(self._values, spec_numbers, strict=True) if number is not None
        }

    def plan(self, fetches: list[str], kernels: Kernels) -> Plan:
        record = self._record
        arena_bytes, temporaries_bytes, live_bytes = record["bytes"]
        tenants: dict[Value, Tenant] = {}
        for *numbers, values in record["tenants"]:
            tenants.update(dict.fromkeys(self._all(values), Tenant(*numbers)))
        makers: dict[str, Callable[..., AnyInstruction]] = {"op": self._of_op, "check": self._check, "native": self._native}
        return Plan(
            self._program,
            self._named(record["feeds"]),
            fetches,
            [self._ops[number] for number in record["ops"]],
            [makers[kind](*told) for kind, *told in record["instructions"]],
            self._spec_of,
            {value: tenant.offset for value, tenant in tenants.items()},
            arena_bytes,
            self._named(record["storage"]),
            self._named(record["externals"]),
            [self._all(values) for values in record["frees"]],
            self._all(record["fetches"]),
            frozenset(record["absent"]),
            temporaries_bytes,
            live_bytes,
            tenants,
            new_tables=Tables,
            kernels=kernels,
        )

    def _of_op(self, op: int, reads: Any, writes: Any, outer: Any, dynamic: bool, shares: Any, stand_ins: Any) -> Instruction:
        operator, values = self._ops[op], self._values
        return Instruction(
            operator,
            operator.definition,
            {slot: [None if number is None else values[number] for number in numbers] for slot, numbers in reads.items()},
            {slot: [None if number is None else values[number] for number in numbers] for slot, numbers in writes.items()},
            {name: values[number] for name, number in outer.items()},
            dynamic,
            self._shares(shares),
            self._named(stand_ins),
        )

    def _check(self, *told: Any) -> Check:
        return Check(self._of_op(*told), self._spec_of)

    def _native(
        self, ops: Any, text: str, layouts: Any, read: Any, written: Any, shares: Any, workspace_bytes: int, calls: Any
    ) -> _Recorded:
        return _Recorded(
            [self._ops[number] for number in ops],
            text,
            {self._values[number]: layout for number, layout in layouts},
            self._all(read),
            self._all(written),
            self._shares(shares),
            workspace_bytes,
            [self._call(*call) for call in calls],
            self._writers,
        )

    def _call(self, kernel: int, is_serial: bool, numbers: list[int | None], offsets: list[int]) -> KernelCall:
        values = [None if number is None else self._values[number] for number in numbers]
        return KernelCall(self._record["kernels"][kernel], list(zip(values, offsets, strict=True)), is_serial)

    def _all(self, numbers: Iterable[int]) -> list[Value]:
        values = self._values
        return [values[number] for number in numbers]

    def _shares(self, pairs: Iterable[tuple[int, int]]) -> dict[Value, Value]:
        return {self._values[out]: self._values[value] for out, value in pairs}

    def _named(self, numbers: Mapping[str, int]) -> dict[str, Spec]:
        return {name: self._specs[number] for name, number in numbers.items()}


def _spec_of(shape: list[int], dtype: int, type: int, lod: list[Any]) -> Spec:
    levels = tuple(None if level is None else tuple(level) for level in lod)
    return Spec(tuple(shape), VarType(dtype), VarType(type), levels)


def _is_gone(name: str) -> WrittenKernel:
    raise NativeUnavailable("a kernel that the plan keeps is not loaded any more")
