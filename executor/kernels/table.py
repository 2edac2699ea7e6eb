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

from fluid.errors import ProgramError
from fluid.opdef import registry

from ..runtime.calls import KERNEL_FUNCTIONS, Call, OutArray, fill

__all__ = [
    "CHECKS",
    "FAMILIES",
    "KERNELS",
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
    "fill",
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
class Kernel:
    """A kernel, with its parameters."""

    fn: Callable[..., Any]
    is_prepared: bool
    inplace: Mapping[str, str]
    parameters: tuple[tuple[str, str, str], ...] = field(default=())
    """(parameter, source: ``in``, ``out``, ``attr``, ``lod`` or ``context``, slot or attribute)."""


KERNELS: dict[str, Kernel] = {}
"""Op type -> kernel, once `load_kernels` ran. One table serves numpy and cupy, since kernels take the array namespace."""

SPARSE_KERNELS: dict[str, Kernel] = {}
"""Op type -> kernel where an input or output is a `SelectedRows`."""

CHECKS: dict[str, Kernel] = {}
"""Op type -> function that checks the values of its inputs."""

SPARSE_CHECKS: dict[str, Kernel] = {}
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
    "vision",
    "yolo",
)
"""The modules of kernels, named as in `fluid.ops`."""


MULTIPLYING = frozenset(
    ("conv", "crf", "ctc", "einsum", "fused_sequence", "linalg", "matmul", "norm", "optimizer", "recommendation", "reduction",
     "rnn", "roi", "sampling", "selected_rows", "sequence", "vision")
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
    """The function that checks the input values of an op, or None. Loads only the kernels of the op's family."""
    _load_family(op_type)
    return CHECKS.get(op_type)


def sparse_kernel_of(op_type: str) -> Kernel | None:
    """The kernel of an op with a `SelectedRows` among inputs or outputs; None if it has none."""
    load_kernels()
    return SPARSE_KERNELS.get(op_type)


_CONTEXT = ("xp", "scratch", "rng", "attrs", "inputs", "outputs")


def _resolve(op_type: str, fn: Callable[..., Any]) -> tuple[tuple[str, str, str], ...]:
    definition = registry.get(op_type)
    parameters = []
    for name in registry.parameters_of(fn):
        grad = registry.grad_slot(name[1:]) if name[:1] == "d" else ""
        if name in _CONTEXT:
            parameters.append((name, "context", name))
        elif name in definition.inputs:
            parameters.append((name, "in", name))
        elif name in definition.outputs:
            parameters.append((name, "out", name))
        elif grad in definition.inputs:
            parameters.append((name, "in", grad))
        elif grad in definition.outputs:
            parameters.append((name, "out", grad))
        elif name.endswith("_lod") and (slot := _slot_with_lod(definition, name[:-4])):
            parameters.append((name, "lod", slot))
        elif name.rstrip("_") in definition.attrs:  # lambda_ takes the attribute lambda
            parameters.append((name, "attr", name.rstrip("_")))
        else:
            raise ProgramError(f"the kernel of {op_type} names {name!r}, which is no slot or attribute of it")
    return tuple(parameters)


def _slot_with_lod(definition: registry.OpDef, name: str) -> str:
    """The slot of a parameter ``name_lod``; empty for other parameters."""
    candidates = [name, registry.grad_slot(name[1:])] if name[:1] == "d" else [name]
    return next((slot for slot in candidates if slot in definition.inputs or slot in definition.outputs), "")


def _full_name(name: str) -> str:
    """The slot of a kernel's parameter: ``X@GRAD`` for ``dX``."""
    return registry.grad_slot(name[1:]) if name[:1] == "d" else name


def _register(
    op_type: str, fn: Callable[..., Any], is_prepared: bool, inplace: Mapping[str, str] | None, table: dict[str, Kernel] = KERNELS
) -> None:
    if op_type in table:
        raise ProgramError(f"the op {op_type!r} already has a kernel")
    definition = registry.get(op_type)
    slots = {
        out if out in definition.outputs else _full_name(out): source if source in definition.inputs else _full_name(source)
        for out, source in (inplace or {}).items()
    }
    entry = table[op_type] = Kernel(fn, is_prepared, slots, _resolve(op_type, fn))
    if not is_prepared:
        _name(op_type, entry)


def _name(op_type: str, entry: Kernel) -> None:
    """Name the calls of a kernel after its op."""
    writes = frozenset(name for name, source, _ in entry.parameters if source == "out")
    KERNEL_FUNCTIONS.setdefault(entry.fn, (op_type, writes))


def kernel(
    *op_types: str, inplace: Mapping[str, str] | None = None, table: dict[str, Kernel] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that computes these ops each time it is called; see the module's docstring.

    Args:
        op_types: the types of op.
        inplace: output slot -> input slot whose array it may share.
        table: the table of an engine; the common table if None.
    """

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for op_type in op_types:
            _register(op_type, fn, False, inplace, KERNELS if table is None else table)
        return fn

    return register


def sparse(*op_types: str, table: dict[str, Kernel] = SPARSE_KERNELS) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that computes these ops with a `SelectedRows` among inputs or outputs; it returns its new
    `SelectedRows`."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for op_type in op_types:
            table[op_type] = Kernel(fn, False, {}, _resolve(op_type, fn))
            _name(op_type, table[op_type])
        return fn

    return register


def prepared(*op_types: str, inplace: Mapping[str, str] | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that returns the calls for these ops; see the module's docstring.

    Args:
        op_types: the types of op.
        inplace: output slot -> input slot whose array it may share.
    """

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for op_type in op_types:
            _register(op_type, fn, True, inplace)
        return fn

    return register


def checked(*op_types: str, table: dict[str, Kernel] = CHECKS) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function that raises an error if these ops cannot compute with the values of their inputs. Its parameters are
    like a kernel's; of outputs, it may use the shapes only."""

    def register(fn: Callable[..., None]) -> Callable[..., None]:
        for op_type in op_types:
            if op_type in table:
                raise ProgramError(f"the op {op_type!r} already has a check")
            table[op_type] = Kernel(fn, False, {}, _resolve(op_type, fn))
        return fn

    return register


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


def _operands(entry: Kernel, inputs: Slots, outputs: Slots, attrs: Slots, context: Slots, lods: Slots) -> dict[str, Any]:
    kwargs = {}
    for name, source, key in entry.parameters:
        if source == "in":
            kwargs[name] = inputs.get(key)
        elif source == "out":
            kwargs[name] = outputs.get(key)
        elif source == "attr":
            kwargs[name] = attrs.get(key)
        elif source == "lod":
            kwargs[name] = lods.get(key, ())
        else:
            kwargs[name] = context[key] if key in context else {"attrs": attrs, "inputs": inputs, "outputs": outputs}[key]
    return kwargs
