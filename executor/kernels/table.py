"""The table of kernels, and the definition of a kernel.

A kernel computes one op on an array namespace (`xp`: numpy or cupy) into existing arrays. Its parameters name its arguments:
``xp``; input slots and, for cotangents, ``dOut`` for ``Out@GRAD``; output slots, as the arrays to write to, and ``dX`` for
``X@GRAD``; attributes; ``inputs``, ``outputs`` or ``attrs`` for a dict of all; ``scratch`` (a function of shape and numpy dtype
that lends an array until the op is done) and ``rng`` (a function that returns the op's random generator). ``X_lod`` is the LoD of
slot ``X`` (see `fluid.values.spec.Lod`). Slots of many are lists; absent inputs and unwanted outputs are None::

    @kernel("softmax")
    def softmax(xp, X, axis, Out):
        xp.subtract(X, X.max(axis, keepdims=True), out=Out)
        ...

Such a function runs whenever the op does. If the same arrays are used in every run, work can be done once: a function under
`prepared` has the same parameters, but is called when arrays are bound. It returns the call, or list of calls, that compute the
op, as data (see `fluid.executor.runtime.calls`)::

    @prepared("relu", inplace={"Out": "X"})
    def relu(xp, X, Out):
        return partial(xp.maximum, X, 0, Out)

It must not look at the values in the arrays. `inplace` names, for an output, the input whose array it may share.

A separate function under `checked` checks values. It is called before the kernel and raises errors; engines that cannot read
values skip it::

    @checked("gather")
    def check_gather(X, Index, axis):
        check_ids(Index, X.shape[axis], "gather")

A kernel that needs a value, such as a number of rows, checks that value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from typing import Any

from fluid.opdef import registry
from fluid.opdef.parameters import OpFunction
from fluid.opdef.tables import OpTable

from ..runtime.calls import KERNEL_FUNCTIONS, Call, OutArray, fill

__all__ = [
    "CHECKS",
    "FAMILIES",
    "KERNELS",
    "NATIVE_CHECKS",
    "SPARSE_CHECKS",
    "SPARSE_KERNELS",
    "Call",
    "Kernel",
    "OutArray",
    "Slots",
    "bind",
    "check_call",
    "check_of",
    "checked",
    "checked_op",
    "fill",
    "is_check",
    "kernel",
    "kernel_of",
    "load_kernels",
    "may_thread",
    "prepared",
    "sparse",
    "sparse_kernel_of",
]  # fmt: skip


Slots = Mapping[str, Any]
"""Inputs, outputs or attributes by name."""


@dataclass
class Kernel(OpFunction):
    """A kernel, with its parameters."""

    is_prepared: bool = False
    inplace: Mapping[str, str] = field(default_factory=dict)


KERNELS: OpTable[Kernel] = OpTable("kernel")
"""Op type -> kernel, once `load_kernels` ran. One table serves numpy and cupy, since kernels take the array namespace."""

SPARSE_KERNELS: OpTable[Kernel] = OpTable("kernel for sparse rows")
"""Op type -> kernel where an input or output is a `SelectedRows`."""

CHECKS: OpTable[Kernel] = OpTable("check")
"""Op type -> function that checks the values of its inputs."""

NATIVE_CHECKS: OpTable[Kernel] = OpTable("check before native code")
"""Op type -> function that raises the errors which the kernel finds while it computes, as native code cannot."""

SPARSE_CHECKS: OpTable[Kernel] = OpTable("check for sparse rows")
"""Checks for ops with a `SelectedRows` among inputs or outputs, if they differ."""

FAMILIES = (
    "activation",
    "arithmetic",
    "beam_search",
    "collective",
    "complex",
    "conv",
    "creation",
    "crf",
    "ctc",
    "cumulative",
    "detection",
    "einsum",
    "elementwise",
    "fourier",
    "fused_sequence",
    "graph",
    "indexing",
    "linalg",
    "loss",
    "manipulation",
    "matmul",
    "metric",
    "nms",
    "norm",
    "optimizer",
    "pool",
    "proposals",
    "quantization",
    "random",
    "recommendation",
    "reduction",
    "rnn",
    "roi",
    "sampling",
    "selected_rows",
    "selection",
    "sequence",
    "special",
    "statistics",
    "training",
    "trees",
    "vision",
    "yolo",
)
"""The modules of kernels, named as in `fluid.ops`."""


MULTIPLYING = frozenset(
    ("conv", "crf", "ctc", "einsum", "fused_sequence", "linalg", "matmul", "norm", "optimizer", "recommendation", "reduction",
     "rnn", "roi", "sampling", "selected_rows", "vision")
)  # fmt: skip
"""The families with ops that multiply matrices or vectors, by BLAS."""
_THREADED = 8192
"""OpenBLAS may use threads from this number of elements on: 64^3 multiplications of matrices, or a 96^2 matrix by a vector."""


@cache
def load_kernels() -> None:
    """Import the modules of kernels, which fill the tables; not needed to build, read or print programs."""
    for family in FAMILIES:
        import_module(f"{__package__}.{family}")


def _load_family(op_type: str) -> None:
    """Import the kernels of an op's family; nearly all its kernels are there."""
    definition = registry.find(op_type)
    family = (definition.forward or definition).module.rpartition(".")[2] if definition is not None else ""
    if family in FAMILIES:
        import_module(f"{__package__}.{family}")


def kernel_of(op_type: str) -> Kernel | None:
    """The kernel of an op; None if it has none."""
    if op_type not in KERNELS:
        _load_family(op_type)
    if op_type not in KERNELS:
        load_kernels()
    return KERNELS.get(op_type)


def may_thread(op_type: str, elements: int) -> bool:
    """Whether BLAS may use threads for an op with these numbers of elements."""
    entry = kernel_of(op_type)
    family = entry.fn.__module__.rpartition(".")[2] if entry is not None else ""
    if family in ("matmul", "norm", "optimizer", "reduction"):  # BLAS reads their inputs without a copy
        return elements >= _THREADED
    return not family or family in MULTIPLYING


def check_of(op_type: str) -> Kernel | None:
    """The function that checks the input values of an op before native code computes it, or None. Loads only the kernels of the
    op's family."""
    _load_family(op_type)
    return CHECKS.get(op_type) or NATIVE_CHECKS.get(op_type)


def sparse_kernel_of(op_type: str) -> Kernel | None:
    """The kernel of an op with a `SelectedRows` among inputs or outputs; None if it has none."""
    load_kernels()
    return SPARSE_KERNELS.get(op_type)


_CONTEXT = ("xp", "scratch", "rng", "attrs", "inputs", "outputs")


def _full_name(name: str) -> str:
    """The slot of a kernel's parameter: ``X@GRAD`` for ``dX``."""
    return registry.grad_slot(name[1:]) if name[:1] == "d" else name


def _in_place(op_type: str, inplace: Mapping[str, str]) -> dict[str, str]:
    """The slots of outputs that may share the arrays of inputs; a name such as ``dX`` stands for ``X@GRAD``."""
    definition = registry.get(op_type)
    return {
        out if out in definition.outputs else _full_name(out): source if source in definition.inputs else _full_name(source)
        for out, source in inplace.items()
    }


_Registrar = Callable[[Callable[..., Any]], Callable[..., Any]]


def _registers(
    op_types: tuple[str, ...], table: OpTable[Kernel], is_prepared: bool = False, inplace: Mapping[str, str] | None = None
) -> _Registrar:
    """Make a decorator that adds a function to a table."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        entries: dict[str, Kernel] = Kernel.of(map(registry.get, op_types), fn, _CONTEXT, table.noun, is_prepared=is_prepared)
        for op_type, entry in entries.items():
            entry.inplace = _in_place(op_type, inplace or {})
            if not is_prepared:  # its calls are named after the op
                outputs = frozenset(name for name, source, _ in entry.parameters if source == "out")
                KERNEL_FUNCTIONS.setdefault(fn, (op_type, outputs))
        table.add(entries)
        return fn

    return register


def kernel(*op_types: str, inplace: Mapping[str, str] | None = None, table: OpTable[Kernel] | None = None) -> _Registrar:
    """Register a function that computes these ops each time it is called; see the module's docstring.

    Args:
        op_types: the types of op.
        inplace: output slot -> input slot whose array it may share.
        table: the table of an engine; the common table if None.
    """
    return _registers(op_types, KERNELS if table is None else table, inplace=inplace)


def sparse(*op_types: str, table: OpTable[Kernel] = SPARSE_KERNELS) -> _Registrar:
    """Register a function that computes these ops with a `SelectedRows` among inputs or outputs; it returns its new
    `SelectedRows`."""
    return _registers(op_types, table)


def prepared(*op_types: str, inplace: Mapping[str, str] | None = None) -> _Registrar:
    """Register a function that returns the calls for these ops; see the module's docstring.

    Args:
        op_types: the types of op.
        inplace: output slot -> input slot whose array it may share.
    """
    return _registers(op_types, KERNELS, True, inplace)


def checked(*op_types: str, table: OpTable[Kernel] = CHECKS) -> _Registrar:
    """Register a function that raises an error if these ops cannot compute with the values of their inputs. Its parameters are
    like a kernel's; of outputs, it may use the shapes only."""
    return _registers(op_types, table)


def bind(
    entry: Kernel, check: Kernel | None, inputs: Slots, outputs: Slots, attrs: Slots, context: Slots, lods: Slots
) -> list[Call]:
    """The calls that check and compute an op on these arrays; `lods` holds the LoDs of slots with sequences."""
    operands = _operands(entry, inputs, outputs, attrs, context, lods)
    result = entry.fn(**operands) if entry.is_prepared else partial(entry.fn, **operands)
    calls = result if isinstance(result, list) else [result]
    return calls if check is None else [check_call(check, inputs, outputs, attrs, context, lods), *calls]


def check_call(check: Kernel, inputs: Slots, outputs: Slots, attrs: Slots, context: Slots, lods: Slots) -> Call:
    """The call that checks the values of these arrays for an op."""
    return partial(check.fn, **_operands(check, inputs, outputs, attrs, context, lods))


def is_check(call: Call, op_type: str) -> bool:
    """Whether a call checks the values of an op of this type."""
    check = CHECKS.get(op_type)
    return check is not None and isinstance(call, partial) and call.func is check.fn


def checked_op(call: Call) -> str:
    """The type of the op whose values a call checks; empty for other calls."""
    op_type, _ = KERNEL_FUNCTIONS.get(call.func, ("", None))
    return op_type if op_type and is_check(call, op_type) else ""


def _operands(entry: Kernel, inputs: Slots, outputs: Slots, attrs: Slots, context: Slots, lods: Slots) -> dict[str, Any]:
    everything = {**context, "attrs": attrs, "inputs": inputs, "outputs": outputs}
    return entry.arguments(inputs, attrs, everything, outputs, lods)
