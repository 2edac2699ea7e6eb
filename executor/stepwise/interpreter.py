"""Running ops one by one, each into fresh arrays: what a program means, without a plan."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fluid.errors import ExecutionError, locate
from fluid.ir.copying import RANDOM_STREAM
from fluid.ir.program import Block, Operator, Program
from fluid.ir.regions import Region, region_of
from fluid.ir.versions import BlockVersions, outer_names
from fluid.opdef.registry import EMPTY

from ..binding.op_call import _KNOWN_SPECS, _WRITE_AT, OpCall
from ..random import RandomStreams
from .handlers import ARRAY_HANDLERS, HANDLERS

__all__ = ["Environment", "Machine", "OpCall", "step_captures"]


Check = Callable[[Operator, str, Any], None]


class Environment:
    """The values of a block's names while it runs, inside those of the block around it.

    A value is an array, or a `LoDArray` where its rows form sequences, a `SelectedRows` where only some rows are there, a
    list of values for an array of tensors, or a list of dicts for step scopes.
    """

    __slots__ = ("block", "parent", "values")

    def __init__(self, block: Block, parent: Environment | None, values: dict[str, Any] | None = None) -> None:
        self.block = block
        self.parent = parent
        self.values: dict[str, Any] = values if values is not None else {}

    def get(self, name: str) -> Any:
        """The value of a name, None where it has none yet."""
        env = self
        while name not in env.values:
            if env.parent is None:
                return env._outside(name)
            env = env.parent
        return env.values[name]

    def need(self, name: str) -> Any:
        """The value of a name; `ExecutionError` where it has none."""
        found = self.get(name)
        if found is None:
            raise ExecutionError(f"{name} has no value; feed it, or run the startup program that initializes it")
        return found

    def _outside(self, name: str) -> Any:
        """The value of a name that no environment has, asked of the outermost."""
        return None

    def set(self, name: str, value: Any) -> None:
        """Give a name a value, in the block that declares it."""
        env = self
        while name not in env.values and name not in env.block.vars:
            if env.parent is None:
                env = self
                break
            env = env.parent
        env._keep(name, value)

    def _keep(self, name: str, value: Any) -> None:
        self.values[name] = value


@dataclass
class Captured:
    """What gradient blocks read of a forward block's trips.

    Attributes:
        local: names that the forward block declares, as they are after a trip.
        carried: names from around it, as they are before a trip (as Paddle's gradient blocks expect).
    """

    local: set[str] = field(default_factory=set)
    carried: set[str] = field(default_factory=set)


def step_captures(program: Program) -> dict[str, Captured]:
    """Scopes -> what gradient blocks read of each run, for every variable of scopes that a gradient op reads."""
    found: dict[str, Captured] = {}
    for block in program.blocks:
        for op in block.ops:
            region = region_of(op)
            if region is None or region.frames is None:
                continue
            reads, writes = outer_names(region.body)
            forward = region.forward
            local = {name for name in reads if forward is not None and name in forward.vars}
            captured = found.setdefault(region.frames, Captured())
            captured.local |= local
            # What Paddle's forward blocks update in place, its gradient blocks count back themselves.
            carried = {*reads} - local - {*writes}
            captured.carried |= carried
            if forward is not None and carried and "input_grads" not in op.attrs:
                _warn_of_late_reads(op, forward, carried)
    return found


def _warn_of_late_reads(op: Operator, forward: Block, carried: set[str]) -> None:
    """Warn where the gradient block that `op` runs should read what a trip makes of a carried variable, not what it was before.

    Paddle writes such programs, and its own numbers are wrong then; gradient blocks made here, which list `input_grads`, read
    saved values.
    """
    versions = BlockVersions(forward)
    for index, reader in enumerate(versions.ops):
        values = (*versions.read_at(index), *versions.written_at(index))
        late = {slot: name for slot, _, (name, version) in values if name in carried and version}
        for grad_op in op.sub_blocks[0].ops if late and not reader.sub_blocks else ():
            slots = {**reader.inputs, **reader.outputs}
            if grad_op.type == f"{reader.type}_grad" and all(
                slots.get(slot, used) == used for slot, used in grad_op.inputs.items()
            ):
                for name in {name for slot, name in late.items() if slot in grad_op.inputs}:
                    warnings.warn(
                        f"a gradient is wrong, as it is in Paddle: {grad_op.type} needs what a trip makes of {name}, and Paddle "
                        f"keeps what {name} was before the trip; differentiate the forward program again, with "
                        f"fluid.append_backward or fluid.gradients\n{locate(reader)}",
                        stacklevel=2,
                    )


class _BlockCall:
    """An op of a block, with what is the same each time it is run.

    Attributes:
        slots: (slot, names, whether it is one of many) of what the op reads.
        names: all of these names, one after another, without gaps.
        written: for kinds of arrays that are met often: a function of them, and the names of what it gives.
    """

    __slots__ = ("compute", "names", "op", "slots", "written")

    def __init__(self, machine: Machine, op: Operator) -> None:
        definition = op.definition
        if definition is None:
            raise ExecutionError(f"the op {op.type} is not known here, so it cannot run")
        wants: dict[str, Any] = {}
        for slot, names in op.outputs.items():
            known = definition.outputs.get(slot)
            if known is not None and names:
                wants[slot] = [name != EMPTY for name in names] if known.many else names[0] != EMPTY
        attrs = definition.defaults(op.attrs)
        random = machine.random_source(op, attrs)
        self.op = op
        inputs = [(slot, names) for slot, names in op.inputs.items() if slot in definition.inputs and names]
        self.slots = [(slot, names, definition.inputs[slot].many) for slot, names in inputs]
        self.names = [name for _, names, many in self.slots for name in (names if many else names[:1]) if name != EMPTY]
        self.compute = OpCall(definition, attrs, wants, random, machine.xp, declared=declared_scalars(op))
        self.written: dict[Any, tuple[Callable[..., Any], list[str]]] = {}


class Machine:
    """Runs ops and blocks in environments; the program must not change meanwhile."""

    def __init__(self, xp: Any, streams: RandomStreams, captures: Mapping[str, Captured]) -> None:
        self.xp = xp
        self.streams = streams
        self.captures = captures
        self.check: Check | None = None
        """Called with each op, output name and array as they are made."""
        self._array_type = xp.ndarray
        self._calls: dict[Operator, _BlockCall] = {}
        self._regions: dict[Operator, Region | None] = {}

    def region(self, op: Operator) -> Region | None:
        """How values pass through the block that an op owns."""
        if op not in self._regions:
            self._regions[op] = region_of(op)
        return self._regions[op]

    def run_block(self, block: Block, env: Environment) -> None:
        """Run the ops of a block in order."""
        for op in block.ops:
            self.run_op(op, env)

    def run_op(self, op: Operator, env: Environment) -> None:
        """Run one op; `ExecutionError` says which, and where it was made, if it fails."""
        handler = HANDLERS.get(op.type)
        try:
            if handler is not None:
                handler(self, op, env)
            else:
                self._compute(op, env)
        except Exception as error:
            if isinstance(error, ExecutionError) and error.located:
                raise
            raise self._failure(op, env, error) from error

    def _failure(self, op: Operator, env: Environment, error: Exception) -> ExecutionError:
        values = [f"{name} is {_describe(env.get(name))}" for name in dict.fromkeys(op.input_arg_names)]
        failure = ExecutionError(f"{op.type} failed: {error}\n{locate(op)}\n  at run time: {'; '.join(values) or 'no inputs'}")
        failure.located = True
        return failure

    def _compute(self, op: Operator, env: Environment) -> None:
        call = self._calls.get(op)
        if call is None:
            call = self._calls[op] = _BlockCall(self, op)
        own, get, array_type = env.values, env.get, self._array_type
        key: list[Any] = []
        arrays = []
        for name in call.names:
            value = own[name] if name in own else get(name)
            if type(value) is not array_type or not value.flags.c_contiguous:
                break
            arrays.append(value)
            key += (value.shape, value.dtype)
        else:
            kind = tuple(key)
            written = call.written.get(kind)
            if written is None:
                self._bind(call, env, kind)
                return
            run, names = written
            found = run(*arrays)
            for name, value in zip(names, found if type(found) is tuple else (found,), strict=True):
                self._give(op, env, name, value)
            return
        self._bind(call, env, None)

    def _bind(self, call: _BlockCall, env: Environment, kind: Any) -> None:
        """Run an op that meets arrays of a kind (shapes and types; None for values of other sorts) not often, or not yet."""
        op = call.op
        arrays: dict[str, Any] = {}
        for slot, names, many in call.slots:
            values = [None if name == EMPTY else env.get(name) for name in names]
            for name, value in zip(names, values, strict=True):
                if isinstance(value, list) or (value is None and name != EMPTY):
                    if op.type in ARRAY_HANDLERS:
                        ARRAY_HANDLERS[op.type](self, op, env)
                        return
                    env.need(name)
            if many:
                arrays[slot] = values
            elif values[0] is not None:
                arrays[slot] = values[0]
        made = call.compute.made(arrays)
        for slot, value in call.compute.run(made, arrays).items():
            for name, item in zip(op.outputs[slot], value if isinstance(value, list) else [value], strict=False):
                if name != EMPTY and item is not None:
                    self._give(op, env, name, item)
        if kind is None or not made.is_writable:
            return
        made.meetings += 1
        if made.meetings >= _WRITE_AT:
            found = call.compute.written(made, arrays)
            if found is None:
                made.is_writable = False
                return
            if len(call.written) >= _KNOWN_SPECS:
                call.written.clear()
            call.written[kind] = found.run, [op.outputs[slot][number or 0] for slot, number, _ in found.places]

    def _give(self, op: Operator, env: Environment, name: str, value: Any) -> None:
        env.set(name, value)
        if self.check is not None:
            self.check(op, name, value)

    def random_source(self, op: Operator, attrs: Mapping[str, Any]) -> Callable[[], Any]:
        """A function that gives the random generator for the op's next execution; `attrs` are complete."""
        seed = int(attrs.get("seed") or 0)
        if RANDOM_STREAM in op.attrs:  # a copy of the op that writes this name
            return self.streams.source(str(op.attrs[RANDOM_STREAM]), seed, op)
        names = op.output_arg_names
        return self.streams.source(names[0] if names else op.type, seed)


def _describe(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "shape") else str(value)


_HELD_TO_RANK = ("matmul", "squeeze", "squeeze2")


def declared_scalars(op: Operator) -> dict[str, Any]:
    """Specs of outputs declared with one element, by slot: a declaration settles whether that is ``[1]`` or ``[]``.

    Those of ops of which building could not tell how many dimensions are left, too.
    """
    found = {}
    for slot, names in op.outputs.items():
        if len(names) == 1:
            var = op.block.find_var(names[0])
            if var is not None and var.has_shape and (var.shape in ((), (1,)) or op.type in _HELD_TO_RANK):
                found[slot] = var.spec
    return found
