"""What stands among the ops of a plan where native code is used. These are few lines, as each plan knows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from fluid.ir.program import Block, Operator
from fluid.ir.versions import Value
from fluid.values.spec import Spec
from fluid.values.types import is_floating

from ..kernels.table import check_call, check_of
from ..runtime.calls import Call

if TYPE_CHECKING:
    from .bounds import Footprint

__all__ = [
    "AFTER_BARRIER", "CLEARED", "NATIVE_PREFIX", "RECORD_WORDS", "SERIAL", "WORKSPACE", "Check", "KernelCall",
    "NativeInstruction", "Operand", "Writer", "WrittenKernel", "is_persistable", "stand_in", "values_read",
]  # fmt: skip

NATIVE_PREFIX = "native."
"""How the names of values begin that regions hand to each other."""
CLEARED = f"{NATIVE_PREFIX}images."
"""How the names of those begin whose memory holds zeros before the first run: images with a halo."""


class WrittenKernel(NamedTuple):
    """The text of a module with a kernel, and what the kernel accesses of each operand.

    Other functions in the module are the kernel's own, whatever they are called.
    """

    text: str
    footprints: Sequence[Footprint]


Writer: TypeAlias = Callable[[str], WrittenKernel]
"""Writes a kernel of a name."""
Operand: TypeAlias = "tuple[Value | None, int]"
"""What a kernel is given: the value in whose array it lies, and bytes from the start of that."""
WORKSPACE: Operand = (None, 0)
"""Stands for memory that a kernel uses while it runs."""


RECORD_WORDS = 4
"""Words of a record in a table: a kernel, the addresses of its operands, and flags (see `kernel`)."""
SERIAL = 1
"""Flag of a record that only the first thread computes."""
AFTER_BARRIER = 2
"""Flag of a record that waits until all threads have done the records before it."""


class KernelCall(NamedTuple):
    """A call of a kernel: the signature of the kernel, its operands, and whether the first thread computes it alone."""

    kernel: str
    operands: Sequence[Operand]
    is_serial: bool


class _Reader:
    """What reads values that no slots or names of an op tell."""

    definition = None
    dynamic = False
    is_native = is_op = False
    read: Any
    """A list of values."""

    @property
    def reads(self) -> dict[str, list[Value | None]]:
        return {"": list(self.read)}

    @property
    def outer(self) -> dict[str, Value]:
        """The values that are read, by a text that tells versions of one name apart."""
        return {f"{name}.{version}": (name, version) for name, version in self.read}


def is_persistable(op: Operator, name: str) -> bool:
    """Whether a name that an op writes is a variable of the scope, which keeps it from run to run."""
    block: Block | None = op.block  # None for an op that is computed by itself
    var = block.vars.get(name) if block is not None else None
    return var is not None and var.persistable


def values_read(instruction: Any) -> list[Value]:
    """The values that an instruction of a plan may read, by blocks of its op, too; some of them twice."""
    return instruction.read if isinstance(instruction, _Reader) else [*instruction.read, *instruction.outer.values()]


class NativeInstruction(_Reader):
    """What a table of native code computes (`regions.NativeRegion`): of ops, the reading and writing of values.

    Attributes:
        ops: the ops, of which some may be computed by several regions.
        read, written: values.
        layouts: how values lie in memory that are no plain tensors.
        shares: images with a halo that are written -> those whose memory they take over.
        calls: the calls of kernels that compute it, in order.
        writers: signature of each of these kernels -> what writes it.
        workspace_bytes: the bytes of workspace that the kernels need.
    """

    is_native = True
    ops: list[Operator]
    read: list[Value]
    written: list[Value]
    layouts: dict[Value, str]
    shares: dict[Value, Value]
    calls: list[KernelCall]
    writers: dict[str, Writer]
    workspace_bytes: int

    @property
    def op(self) -> Operator:
        """The last of the ops."""
        return self.ops[-1]

    def describe(self) -> str:
        """What is computed, in a line."""
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


class Check(_Reader):
    """What looks at the values that an op reads, and raises an error for wrong ones, before native code computes the op."""

    def __init__(self, instruction: Any, specs: Mapping[Value, Spec]) -> None:
        self.instruction, self.op, self.specs = instruction, instruction.op, specs
        self.shares: dict[Value, Value] = {}
        self.written: list[Value] = []
        self.writes: dict[str, list[Value | None]] = {}
        values = [value for values in instruction.reads.values() for value in values if value is not None]
        self.read = [value for value in dict.fromkeys(values) if not is_floating(specs[value].dtype)]

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
        """The call that checks; of what is not looked at it is given the shape alone."""
        definition = self.instruction.definition

        def operands(slots: Mapping[str, list[Value | None]], declared: Mapping[str, Any]) -> dict[str, Any]:
            arrays: dict[str, Any] = {}
            for slot, values in slots.items():
                if values and slot in declared:
                    items = [None if value is None else self._array(value, array) for value in values]
                    arrays[slot] = items if declared[slot].many else items[0]
            return arrays

        inputs = operands(self.instruction.reads, definition.inputs)
        outputs = operands(self.instruction.writes, definition.outputs)
        check = check_of(definition.type)
        assert check is not None
        return check_call(check, inputs, outputs, definition.defaults(self.op.attrs), {"xp": np}, {})

    def _array(self, value: Value, array: Callable[[Value], Any]) -> Any:
        return array(value) if value in self.read else stand_in(self.specs[value])


def stand_in(spec: Spec) -> Any:
    """An array of which only shape and type matter."""
    return np.broadcast_to(np.zeros((), spec.dtype.array_dtype), spec.shape)
