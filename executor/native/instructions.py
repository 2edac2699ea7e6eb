"""Native instructions of plans. This module is short because every plan imports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from fluid.errors import ExecutionError, op_failure, values_by_users_name
from fluid.ir.program import Block, Operator
from fluid.ir.versions import Value, values_in
from fluid.opdef.registry import by_slot
from fluid.values.spec import Spec
from fluid.values.types import is_floating

from ..kernels.table import check_call, check_of
from ..runtime.calls import Call

if TYPE_CHECKING:
    from .bounds import Footprint


NATIVE_PREFIX = "native."
"""Prefix of the names of values that regions pass to each other."""
CLEARED = f"{NATIVE_PREFIX}images."
"""Prefix of the names of images with a halo; their memory is zeroed before the first run."""


class WrittenKernel(NamedTuple):
    """The text of a module with a kernel, and the footprint of each operand.

    All other functions of the module are private to the kernel, whatever their names.
    """

    text: str
    footprints: Sequence[Footprint]


Writer: TypeAlias = Callable[[str], WrittenKernel]
"""Writes a kernel under a name."""
Operand: TypeAlias = "tuple[Value | None, int]"
"""An operand of a kernel: a value, and an offset in bytes from the start of its array."""
WORKSPACE: Operand = (None, 0)
"""The operand that stands for the kernel's workspace."""


RECORD_WORDS = 4
"""Words per record of a table: kernel, address of its operands' addresses, flags, and records to skip (see `kernel`)."""
SERIAL = 1
"""Flag: only the first thread computes the record."""
BRANCH = 4
"""Flag: the record calls no kernel. Its operand is a condition of one byte; unless it is true, the next records are skipped."""
UNLESS = 8
"""Flag of a branch: the next records are skipped unless the condition is false."""
IF_TRUE, IF_FALSE, END_BRANCH = "if true", "if false", "end of branch"
"""Signatures in place of a kernel's: they begin records that run under a condition, and end them."""
STOP = "stop if true"
"""Signature in place of a kernel's: all records behind it are skipped if a byte is not zero."""
GO_ON = "go on if true"
"""Signature in place of a kernel's: all records behind it are skipped if a byte is zero."""
ALL_RECORDS = 1 << 40
"""The number of records that these two skip: more than any table has."""
BEGIN_LOOP, LEAVE_LOOP, REPEAT_LOOP = "begin loop if true", "leave loop if false", "repeat loop if true"
"""Signatures in place of a kernel's. The records between the first and the last one run if the byte of the first one is not zero,
and again while the byte of the last one is not zero. The second one, between them, leaves the loop if its byte is zero."""
BRANCH_FLAGS = {
    **dict.fromkeys((IF_TRUE, END_BRANCH, GO_ON, BEGIN_LOOP, LEAVE_LOOP), BRANCH),
    **dict.fromkeys((IF_FALSE, STOP, REPEAT_LOOP), BRANCH | UNLESS),
}
"""Signature in place of a kernel's -> the flags of its record."""


class KernelCall(NamedTuple):
    """A kernel call: the kernel's signature, its operands, and whether the first thread computes it alone."""

    kernel: str
    operands: Sequence[Operand]
    is_serial: bool


class BaseInstruction:
    """Base of the instructions of plans: an op, a check of an op's values, or native code in place of ops.

    Attributes:
        is_op: whether it is an op on numpy.
        is_check: whether it only checks values.
        is_native: whether native code computes it.
        is_stateful: whether it accesses memory that neither `read` nor `written` names.
        layouts: value -> its memory layout, if it is not a plain tensor.
        calls: its kernel calls, in order.
        writers: signature of a kernel -> its writer.
        workspace_bytes: bytes of workspace that its kernels need.
        checks: number of a check -> the check, for native code; if one fails, its number is stored, and the table stops.
    """

    is_op = is_check = is_native = is_stateful = False
    layouts: Mapping[Value, str]
    calls: Sequence[KernelCall]
    writers: Mapping[str, Writer]
    workspace_bytes: int
    checks: Mapping[int, Check] = {}

    @property
    def has_native_code(self) -> bool:
        """Whether native code computes it, at least in some runs."""
        return self.is_native


class _WithoutKernels(BaseInstruction):
    """Base of instructions that numpy runs."""

    layouts: Mapping[Value, str] = {}
    calls: Sequence[KernelCall] = ()
    writers: Mapping[str, Writer] = {}
    workspace_bytes = 0


class BaseOp(_WithoutKernels):
    """Base of instructions with an op on numpy: it reads and writes values by slot."""

    is_op = True
    reads: dict[str, list[Value | None]]
    writes: dict[str, list[Value | None]]
    outer: dict[str, Value]

    @property
    def read(self) -> list[Value]:
        return [*values_in(self.reads)]

    @property
    def results(self) -> list[Value]:
        """The values that its op writes."""
        return [*values_in(self.writes)]

    @property
    def written(self) -> list[Value]:
        return self.results

    @property
    def read_within(self) -> list[Value]:
        """The values that it may read, also in sub-blocks of its op; may contain duplicates."""
        return [*self.read, *self.outer.values()]


class _ListReader(BaseInstruction):
    """Base of instructions with a list of read values, instead of an op's slots."""

    definition = None
    dynamic = False
    read: Any
    """A list of values."""

    @property
    def read_within(self) -> list[Value]:
        return self.read  # type: ignore[no-any-return]

    @property
    def reads(self) -> dict[str, list[Value | None]]:
        return {"": list(self.read)}

    @property
    def outer(self) -> dict[str, Value]:
        """The values that are read, by "name.version"."""
        return {f"{name}.{version}": (name, version) for name, version in self.read}


def is_persistable(op: Operator, name: str) -> bool:
    """Whether an op writes `name` as a variable of the scope, which persists between runs."""
    block: Block | None = op.block  # None for a single op outside of programs
    var = block.vars.get(name) if block is not None else None
    return var is not None and var.persistable


class NativeInstruction(_ListReader):
    """An instruction that native code computes, such as `regions.NativeRegion`.

    Attributes:
        ops: its ops; several instructions may compute parts of one op.
        read, written: the values that it reads and writes.
        shares: written image with a halo -> the image whose memory it reuses.
    """

    is_native = True
    ops: list[Operator]
    read: list[Value]
    written: list[Value]
    shares: dict[Value, Value]

    @property
    def op(self) -> Operator:
        """The last of the ops."""
        return self.ops[-1]

    def describe(self) -> str:
        """The computation, in one line."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """A short name: the first ops."""
        types = [op.type for op in self.ops]
        return " + ".join(types[:3]) + (" + ..." if len(types) > 3 else "")

    def line(self, outs: str, ins: str) -> str:
        """The instruction as a line of a plan, with the values that it writes and reads."""
        return f"{outs} = [{' + '.join(op.type for op in self.ops)}]({ins})"

    @property
    def writes(self) -> dict[str, list[Value | None]]:
        return {"": list(self.written)}


def within_branches(instructions: Sequence[Any]) -> set[int]:
    """The numbers of instructions that run under a condition, and of the marks around them."""
    within, depth = set[int](), 0
    for number, instruction in enumerate(instructions):
        kernel = instruction.calls[0].kernel if len(instruction.calls) == 1 else ""
        depth += kernel in (IF_TRUE, IF_FALSE)
        if depth:
            within.add(number)
        depth -= kernel == END_BRANCH
    return within


CHECKED_FLOATS = {
    "auc": ("Predict",),
    "cholesky": ("X",),
    "cholesky_solve": ("Y",),
    "deformable_psroi_pooling": ("ROIs",),
    "dirichlet": ("Alpha",),
    "inverse": ("Input",),
    "moved_parts": ("ROIs",),
    "moved_parts_back": ("ROIs",),
    "multinomial": ("X",),
    "one_hot": ("X",),
    "one_hot_v2": ("X",),
    "poisson": ("X",),
    "precise_parts": ("ROIs",),
    "precise_parts_back": ("ROIs",),
    "prroi_pool": ("ROIs",),
    "psroi_pool": ("ROIs",),
    "psroi_pool_back": ("ROIs",),
    "roi_align": ("ROIs",),
    "roi_align_back": ("ROIs",),
    "roi_pool": ("ROIs",),
    "shift_of_parts": ("ROIs",),
    "solve": ("X",),
    "sum_of_shifts": ("ROIs",),
    "triangular_solve": ("X",),
}
"""Type of an op -> the slots whose floats its check inspects; all other checks inspect integers alone."""


def inspected_values(instruction: Any, specs: Mapping[Value, Spec]) -> list[Value]:
    """The values that the check of an op inspects."""
    slots = CHECKED_FLOATS.get(instruction.definition.type, ())
    floats = {value for slot in slots for value in instruction.reads.get(slot, ())}
    return [
        value for value in dict.fromkeys(values_in(instruction.reads)) if value in floats or not is_floating(specs[value].dtype)
    ]


class Check(_ListReader, _WithoutKernels):
    """Checks the values that an op reads, and raises an error for wrong ones, before native code computes the op."""

    is_check = True

    def __init__(self, instruction: Any, specs: Mapping[Value, Spec]) -> None:
        self.instruction, self.op, self.specs = instruction, instruction.op, specs
        self.shares: dict[Value, Value] = {}
        self.written: list[Value] = []
        self.writes: dict[str, list[Value | None]] = {}
        self.read = inspected_values(instruction, specs)

    @property
    def key(self) -> tuple[str, tuple[Value, ...]]:
        """A key that an op and its gradient op share if they check the same values."""
        definition = self.instruction.definition
        return (definition.forward or definition).type, tuple(self.read)

    @property
    def label(self) -> str:
        """A short name."""
        return f"the check of {self.op.type}"

    def describe(self) -> str:
        return self.label

    def line(self, outs: str, ins: str) -> str:
        """The instruction as a line of a plan, with the values that it reads."""
        return f"check what {self.op.type} reads: {ins}"

    def call(self, array: Callable[[Value], Any]) -> Call:
        """The call of the check; values that it does not inspect are passed as stand-ins with the right shape."""
        definition = self.instruction.definition

        def operand(value: Value) -> Any:
            if value in self.read:
                return array(value)
            return stand_in(self.specs[value]) if value in self.specs else None  # a sparse gradient has no spec

        inputs = by_slot(definition.inputs, self.instruction.reads, operand)
        outputs = by_slot(definition.outputs, self.instruction.writes, operand)
        check = check_of(definition.type)
        assert check is not None
        return check_call(check, inputs, outputs, definition.defaults(self.op.attrs), {"xp": np}, {})


def failure_of(instruction: Any, error: Exception, specs: Mapping[Value, Spec]) -> ExecutionError:
    """Make the error for an instruction that failed in a run. It shows the inputs by their names in the user's program."""
    if instruction.is_check:
        instruction, specs = instruction.instruction, instruction.specs
    op, reads = instruction.op, getattr(instruction, "reads", {})
    inputs = [f"{name} is {specs[value]}" for name, value in values_by_users_name(op, reads).items() if value in specs]
    return op_failure(op, error, "; ".join(inputs) or ("" if op.input_arg_names else "no inputs"))


def stand_in(spec: Spec) -> Any:
    """A placeholder array; only its shape and type matter."""
    return np.broadcast_to(np.zeros((), spec.dtype.array_dtype), spec.shape)
