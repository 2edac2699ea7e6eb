"""Runs ops one by one into new arrays, without a plan: the reference for the results of a program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fluid.errors import ExecutionError, locate, op_failure
from fluid.ir.copying import RANDOM_STREAM
from fluid.ir.program import Block, Operator, Parameter, Program
from fluid.ir.regions import Region, region_of
from fluid.ir.versions import BlockVersions, outer_names
from fluid.opdef.registry import EMPTY, by_slot
from fluid.values.cache import OP_LIMIT, Cache
from fluid.values.lod_array import LoDArray, array_of, lod_of, lods_by_rows
from fluid.values.selected_rows import SelectedRows

from ..binding.compiled import Argument, Compiled, compiled, updates_of
from ..kernels.table import CHECKS, kernel_of
from ..runtime import timing
from ..runtime.random import names_from_zero, own_seed
from ..runtime.specs import spec_of
from .handlers import ARRAY_HANDLERS, HANDLERS
from .repeated import BlockCompiler, Loop

__all__ = ["BlockOp", "Environment", "Machine", "describe", "signature_of", "step_captures"]

Check = Callable[[Operator, str, Any], None]


class Streams(Protocol):
    """The random streams of a program's ops: see `RandomStreams`."""

    def source(self, name: str, op_seed: int, drawer: Hashable = None, op_type: str = "") -> Callable[[], Any]: ...

    def first_values(self, name: str, op_seed: int, name_from_zero: str) -> Callable[[], Any]: ...


class Environment:
    """The values of a block's names while it runs; the parent holds the names of the enclosing block.

    A value is an array, a `LoDArray` if its rows form sequences, a `SelectedRows` if it is sparse, a list of values for an array
    of tensors, or a list of dicts for step scopes.
    """

    __slots__ = ("block", "parent", "values")

    def __init__(self, block: Block, parent: Environment | None, values: dict[str, Any] | None = None) -> None:
        self.block, self.parent = block, parent
        self.values: dict[str, Any] = values if values is not None else {}

    def get(self, name: str) -> Any:
        """The value of a name; None if it has none yet."""
        env = self
        while name not in env.values:
            if env.parent is None:
                return env._look_up_outside(name)
            env = env.parent
        return env.values[name]

    def need(self, name: str) -> Any:
        """The value of a name; `ExecutionError` if it has none."""
        value = self.get(name)
        if value is None:
            raise ExecutionError(f"{name} has no value; feed it, or run the startup program that initializes it")
        return value

    def _look_up_outside(self, name: str) -> Any:
        """The value of a name that no environment holds; called on the outermost environment."""
        return None

    def set(self, name: str, value: Any) -> None:
        """Give a name a value, in the block that declares it."""
        env = self
        while name not in env.values and name not in env.block.vars:
            if env.parent is None:
                env = self
                break
            env = env.parent
        if env.parent is None:
            env._bind_outermost(name, value)
        else:
            env.values[name] = value

    def _bind_outermost(self, name: str, value: Any) -> None:
        """Give a name a value; called on the outermost environment."""
        self.values[name] = value


@dataclass
class Captured:
    """Names whose values gradient blocks read from each trip of a forward block.

    Attributes:
        local: names that the forward block declares, with their values after a trip.
        carried: names from outside, with their values before a trip (as Paddle's gradient blocks expect).
    """

    local: set[str] = field(default_factory=set)
    carried: set[str] = field(default_factory=set)


def step_captures(program: Program) -> dict[str, Captured]:
    """Variable of step scopes -> the names that its gradient op reads from each run."""
    by_scopes: dict[str, Captured] = {}
    for block in program.blocks:
        for op in block.ops:
            region = region_of(op)
            if region is None or region.frames is None:
                continue
            reads, writes = outer_names(region.body)
            forward = region.forward
            local = {name for name in reads if forward is not None and name in forward.vars}
            carried = {*reads} - local - {*writes}  # Paddle's gradient blocks themselves undo updates in place
            captured = by_scopes.setdefault(region.frames, Captured())
            captured.local |= local
            captured.carried |= carried
            if forward is not None and carried and "input_grads" not in op.attrs:
                _warn_of_late_reads(op, forward, carried)
    return by_scopes


def _warn_of_late_reads(op: Operator, forward: Block, carried: set[str]) -> None:
    """Warn if the gradient block of `op` should read a carried variable's value after a trip, not before it.

    Paddle writes such programs, and computes wrong gradients for them; gradient blocks made here, which list `input_grads`, read
    saved values.
    """
    versions = BlockVersions(forward)
    for index, reader in enumerate(versions.ops):
        values = (*versions.read_at(index), *versions.written_at(index))
        late = {slot: name for slot, _, (name, version) in values if name in carried and version}
        for grad_op in op.sub_blocks[0].ops if late and not reader.sub_blocks else ():
            slots = {**reader.inputs, **reader.outputs}
            fits = all(slots.get(slot, names) == names for slot, names in grad_op.inputs.items())
            if fits and grad_op.type == f"{reader.type}_grad":
                for name in {name for slot, name in late.items() if slot in grad_op.inputs}:
                    warnings.warn(
                        f"a gradient is wrong, as it is in Paddle: {grad_op.type} needs what a trip makes of {name}, and Paddle "
                        f"keeps what {name} was before the trip; differentiate the forward program again, with "
                        f"fluid.append_backward or fluid.gradients\n{locate(reader)}",
                        stacklevel=2,
                    )


class BlockOp:
    """An op of a block, with everything that is the same in each run.

    Attributes:
        names: the names that it reads, in order, without gaps.
        may_be_missing: names of outputs that it updates if they have a former value.
        is_lod_aware: whether it reads LoDs; otherwise it is compiled for the plain arrays, once for all lengths of sequences.
        joins_rows: whether its output has the rows of all inputs, one after the other.
        compiled: shapes and types of values -> the op compiled for them, and the names of its results.
    """

    __slots__ = (
        *("_arguments", "_attrs", "_declared", "_definition", "_into", "_rng", "_wants", "_xp"),
        *("compiled", "is_lod_aware", "joins_rows", "may_be_missing", "names", "op"),
    )

    def __init__(self, machine: Machine, op: Operator) -> None:
        definition = op.definition
        if definition is None:
            raise ExecutionError(f"the op {op.type} is not known here, so it cannot run")
        self._wants = by_slot(definition.outputs, op.outputs, lambda name: name != EMPTY)
        self.op, self._definition, self._xp, self._declared = op, definition, machine.xp, declared_scalars(op)
        self._attrs = definition.defaults(op.attrs)
        self._rng, self._into = machine.random_source(op, self._attrs), updates_of(definition)
        pairs = [
            (slot, name)
            for slot, names in op.inputs.items()
            if slot in definition.inputs
            for name in (names if definition.inputs[slot].many else names[:1])
        ]
        former = [(slot, names[0]) for slot, names in op.outputs.items() if names and definition.updates(slot)]
        self._arguments = [Argument(slot, None, name != EMPTY) for slot, name in pairs + former]
        self.names = [name for _, name in pairs + former if name != EMPTY]
        self.may_be_missing = {name for _, name in former} - {name for _, name in pairs}
        functions = (kernel_of(op.type), CHECKS.get(op.type))
        reads_lods = any(function is not None and function.reads_lods for function in functions)
        self.is_lod_aware = (definition.forward or definition).lod_aware or reads_lods
        self.joins_rows = definition.joins_rows is not None and definition.joins_rows(definition.defaults(op.attrs))
        self.compiled: Cache[Any, tuple[Compiled, list[str]]] = Cache(OP_LIMIT)

    def compile(self, key: Any, values: Sequence[Any]) -> tuple[Compiled, list[str]]:
        """Compile the op for values of new shapes or types."""
        specs = (None if value is None else spec_of(value) for value in values)
        compiled_op = compiled(
            self._definition,
            self._attrs,
            [argument._replace(spec=next(specs)) if argument.passed else argument for argument in self._arguments],
            self._xp,
            wants=self._wants,
            into=self._into,
            on_copies=True,
            declared=self._declared,
            rng=self._rng,
        )
        names = [self.op.outputs[slot][number or 0] for slot, number in compiled_op.places]
        return self.compiled.keep(key, (compiled_op, names))  # shapes may change on every trip of a loop


class Machine:
    """Runs ops and blocks in environments; the program must not change meanwhile.

    `streams` are the random streams of its ops; `handlers` run ops without kernels, by type; `compiler` compiles blocks of loops.
    """

    def __init__(
        self,
        xp: Any,
        streams: Streams,
        captures: Mapping[str, Captured],
        handlers: Mapping[str, Callable[[Any, Operator, Environment], None]] = HANDLERS,
        compiler: BlockCompiler | None = None,
    ) -> None:
        self.xp, self.streams, self.captures, self._handlers, self._compiler = xp, streams, captures, handlers, compiler
        self.check: Check | None = None
        """Called after each op, with the op, and the name and array of each output."""
        self._array_type = xp.ndarray
        self._ops: dict[Operator, BlockOp] = {}
        self._regions: dict[Operator, Region | None] = {}
        self._loops: dict[Operator, Sequence[Loop]] = {}
        self._from_zero: dict[str, str] | None = None
        """Name in block 0 -> its renumbered name (`names_from_zero`); filled at the first draw of initial values."""

    def region(self, op: Operator) -> Region | None:
        """The region of an op that owns a block; None for other ops."""
        if op not in self._regions:
            self._regions[op] = region_of(op)
        return self._regions[op]

    def loops(self, op: Operator, region: Region) -> Sequence[Loop]:
        """The ways to run the block of an op as one call for all runs; none if it runs op by op."""
        if self._compiler is None or self.check is not None or timing.current is not None:
            return ()
        if op not in self._loops:
            self._loops[op] = Loop.all_of(self._compiler, op, region, self.captures, self.random_source)
        return self._loops[op]

    def run_block(self, block: Block, env: Environment) -> None:
        """Run the ops of a block in order."""
        watch = timing.current
        for op in block.ops:
            if watch is None:
                self.run_op(op, env)
            else:
                with timing.timed_in_block(watch, op):
                    self.run_op(op, env)

    def run_op(self, op: Operator, env: Environment) -> None:
        """Run one op; if it fails, `ExecutionError` says which op, and where the user created it."""
        handler = self._handlers.get(op.type)
        try:
            if handler is not None:
                handler(self, op, env)
            else:
                self._compute(op, env)
        except Exception as error:
            if isinstance(error, ExecutionError) and error.located:
                raise
            raise self.failure(op, env, error) from error

    def failure(self, op: Operator, env: Environment, error: Exception) -> ExecutionError:
        """Wrap the error of an op in one that names the op and its inputs."""
        values = [f"{name} is {describe(env.get(name))}" for name in dict.fromkeys(op.input_arg_names)]
        at_run = "; ".join(values) or "no inputs"
        return op_failure(op, error, at_run)

    def _compute(self, op: Operator, env: Environment) -> None:
        block_op = self._ops.get(op)
        if block_op is None:
            block_op = self._ops[op] = BlockOp(self, op)
        local_values, get, array_type = env.values, env.get, self._array_type
        key: list[Any] = []
        arrays = []
        for name in block_op.names:
            value = local_values[name] if name in local_values else get(name)
            if type(value) is not array_type or not value.flags.c_contiguous:
                self._compute_any(block_op, env)
                return
            arrays.append(value)
            key += (value.shape, value.dtype)
        signature = tuple(key)
        compiled_op, names = block_op.compiled.get(signature) or block_op.compile(signature, arrays)
        result = compiled_op.run(*arrays)
        values = compiled_op.values(result) if compiled_op.lods else result if type(result) is tuple else (result,)
        if self.check is not None:
            self._set_all(op, env, names, values)
            return
        local: Container[str] = () if env.parent is None else env.block.vars
        for name, value in zip(names, values, strict=True):  # as `_set_all`, without the cost of calls
            if value is not None:
                if name in local:
                    local_values[name] = value
                else:
                    env.set(name, value)

    def _compute_any(self, block_op: BlockOp, env: Environment) -> None:
        """Run an op on any values: arrays that are not contiguous, `LoDArray`s, `SelectedRows`, lists and missing values."""
        op = block_op.op
        values: list[Any] = []
        for name in block_op.names:
            value = env.get(name)
            if value is None and name in block_op.may_be_missing:
                values.append(None)
                continue
            if value is None or isinstance(value, list):
                if op.type in ARRAY_HANDLERS:
                    ARRAY_HANDLERS[op.type](self, op, env)
                    return
                env.need(name)
            values.append(value)
        arrays = [array_of(value) for value in values]
        operands = values if block_op.is_lod_aware else arrays
        key = tuple([part for value in operands for part in signature_of(value)])
        compiled_op, names = block_op.compiled.get(key) or block_op.compile(key, operands)
        contiguous = all(type(array) is self._array_type and array.flags.c_contiguous for array in arrays)
        result = (compiled_op.run if contiguous else compiled_op.bound_run)(*arrays)
        with_lods = [] if block_op.is_lod_aware else [value for value in values if type(value) is LoDArray]
        if with_lods and block_op.joins_rows:
            with_lods = values
        lods = lods_by_rows([(value.shape, lod_of(value)) for value in with_lods], block_op.joins_rows) if with_lods else {}
        self._set_all(op, env, names, compiled_op.with_lods(result, lods) if lods else compiled_op.values(result))

    def _set_all(self, op: Operator, env: Environment, names: Sequence[str], values: Iterable[Any]) -> None:
        """Bind names to the values that an op computed; None stands for a missing value."""
        check = self.check
        for name, value in zip(names, values, strict=True):
            if value is not None:
                env.set(name, value)
                if check is not None:
                    check(op, name, value)

    def random_source(self, op: Operator, attrs: Mapping[str, Any]) -> Callable[[], Any]:
        """Return a function that returns the random generator for the op's next run; `attrs` include defaults."""
        seed = own_seed(attrs)
        if RANDOM_STREAM in op.attrs:  # a copy of the op that writes this name
            return self.streams.source(str(op.attrs[RANDOM_STREAM]), seed, op, op.type)
        name = next(iter(op.output_arg_names), op.type)
        if op.block.idx == 0 and not op.input_arg_names and isinstance(op.block.vars.get(name), Parameter):
            if self._from_zero is None:
                self._from_zero = names_from_zero(op.block.vars)
            return self.streams.first_values(name, seed, self._from_zero[name])
        return self.streams.source(name, seed, None, op.type)


def describe(value: Any) -> str:
    """Describe a value for messages: its element type and shape, or the number of entries of an array."""
    if value is None:
        return "not set"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "shape") else str(value)


def signature_of(value: Any) -> tuple[Any, ...]:
    """The properties of a value that a compiled op depends on: shape, element type, LoD, sparseness; empty for None."""
    if value is None:
        return (None,)
    if type(value) is LoDArray:
        return value.shape, value.dtype, value.lod
    return (value.shape, value.dtype, SelectedRows) if type(value) is SelectedRows else (value.shape, value.dtype)


_HAVE_DECLARED_RANK = ("matmul", "squeeze", "squeeze2")


def declared_scalars(op: Operator) -> dict[str, Any]:
    """Declared specs by slot of outputs with one element; they decide whether the shape is ``[1]`` or ``[]``.

    Also includes outputs whose number of dimensions could not be inferred when the program was built.
    """
    by_slot = {}
    for slot, names in op.outputs.items():
        if len(names) == 1:
            var = op.block.find_var(names[0])
            if var is not None and var.has_shape and (var.shape in ((), (1,)) or op.type in _HAVE_DECLARED_RANK):
                by_slot[slot] = var.spec
    return by_slot
