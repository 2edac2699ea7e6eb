"""Running ops one by one, each into fresh arrays: what a program means, without a plan."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fluid.errors import ExecutionError, locate
from fluid.framework import Block, Operator, Program
from fluid.ops import registry
from fluid.ops.registry import EMPTY, OpDef, updated_input
from fluid.recompute import RANDOM_STREAM
from fluid.types import VarType
from fluid.values import Lod, Spec, infer_specs
from fluid.versions import BlockVersions, outer_names

from .arrays import bind_op, each, lods_of, specs_of
from .eager import Argument, Compiled, compiled, kind_of
from .random import RandomStreams
from .selected_rows import SelectedRows
from .sequences import LoDArray, array_of, with_lod

__all__ = ["ARRAY_HANDLERS", "HANDLERS", "Environment", "Handler", "Machine", "OpCall", "apply_op", "step_captures"]

Wants = Mapping[str, Any]
"""Output slot -> whether it is wanted, or a list of that in slots of many."""


def apply_op(
    op_type: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    wanted: Set[str] | None = None,
    use_kernel: bool = True,
    xp: Any = np,
) -> dict[str, Any]:
    """Run one op on arrays.

    Args:
        inputs: arrays, or `LoDArray`s (lists of them in slots of many), by slot.
        attrs: attributes; those left out take their defaults.
        wanted: output slots to compute; all by default.
        use_kernel: off, a gradient op is computed by its rule even where it has a kernel.

    Returns:
        Arrays by output slot.
    """
    definition = registry.get(op_type)
    arrays: dict[str, Any] = {}
    for slot, value in inputs.items():
        if definition.inputs[slot].many:
            arrays[slot] = [None if item is None else _as_value(xp, item) for item in value]
        elif value is not None:
            arrays[slot] = _as_value(xp, value)
    full = definition.defaults(definition.check_attrs(attrs or {}))
    source = RandomStreams(xp, 0).source(op_type, int(full.get("seed") or 0))
    wants = None if wanted is None else {slot: slot in wanted for slot in definition.outputs}
    with np.errstate(all="ignore"):  # as in a run
        return OpCall(definition, full, wants, source, xp, use_kernel)(arrays)


def _as_value(xp: Any, value: Any) -> Any:
    if type(value) is LoDArray:
        return LoDArray(xp.asarray(value.array), value.lod)
    return value if type(value) is SelectedRows else xp.asarray(value)


_KNOWN_SPECS = 64
"""An op may meet other shapes on every trip of a loop; so many are remembered."""
_WRITE_AT = 8
"""So often arrays of one kind are met before the calls are written down as a function, which takes as long as dozens of runs."""


class OpCall:
    """One op with all that is the same each time it is run: calling it with arrays by slot gives arrays by output slot.

    Args:
        attrs: complete attributes.
        wants: what to compute; everything by default.
        rng: gives the random generator of an execution.
        declared: specs of outputs that a declaration settles.
    """

    __slots__ = ("_attrs", "_context", "_declared", "_definition", "_known", "_updates", "_use_kernel", "_wants", "_xp")

    def __init__(
        self,
        definition: OpDef,
        attrs: Mapping[str, Any],
        wants: Wants | None,
        rng: Callable[[], Any],
        xp: Any,
        use_kernel: bool = True,
        declared: Mapping[str, Any] | None = None,
    ) -> None:
        self._definition, self._attrs, self._wants, self._xp = definition, attrs, wants, xp
        self._use_kernel, self._declared = use_kernel, declared
        self._context = {"xp": xp, "scratch": xp.empty, "rng": rng}
        pairs = ((slot, updated_input(definition, slot)) for slot in definition.outputs)
        self._updates = [(slot, source) for slot, source in pairs if source is not None]
        self._known: dict[Any, Made] = {}

    def __call__(self, arrays: dict[str, Any]) -> dict[str, Any]:
        return self.run(self.made(arrays), arrays)

    def run(self, made: Made, arrays: dict[str, Any]) -> dict[str, Any]:
        """Call it, where `made` is what it makes of such arrays."""
        definition, xp = self._definition, self._xp
        if made.lods:
            arrays = each(array_of, arrays)
        outputs: dict[str, Any] = {}
        for slot, shape, dtype in made.arrays:
            outputs[slot] = xp.empty(shape, dtype)
        for slot, spec, want in made.others:
            outputs[slot] = _allocated(xp, spec, want)
        for slot, source in made.updates:
            # A table may be large; where few of its rows change, they change in place.
            outputs[slot] = arrays[source] = arrays[source] if made.is_sparse else arrays[source].copy()
        result = None
        for step in bind_op(
            definition, arrays, outputs, self._attrs, self._context, xp.empty, self._use_kernel, made.lods, made.is_sparse
        ):
            result = step()
        if made.unknown:
            # Extents that only the values decide: the kernel makes the arrays, those that nobody wants too.
            results = result if isinstance(result, tuple) else (result,)
            if len(results) != len(made.unknown) or results[0] is None:
                raise ExecutionError(f"{definition.type}: the shape of {', '.join(made.unknown)} is not known before it runs")
            outputs.update((slot, value) for slot, value in zip(made.unknown, results, strict=True) if slot in outputs)
        return _with_lods(outputs, made.lods) if made.lods else outputs

    def written(self, made: Made, arrays: Mapping[str, Any]) -> Compiled | None:
        """The function that computes the op on arrays like these; None if its calls cannot be written down.

        It takes the arrays of all slots one after another, without gaps; they must lie in order.
        """
        arguments = [
            Argument(slot, None if item is None else kind_of(item), passed=item is not None)
            for slot, value in arrays.items()
            for item in (value if isinstance(value, list) else [value])
        ]
        into = dict(made.updates)
        found = compiled(self._definition, self._attrs, arguments, made.wants, self._xp, into, made.specs, self._context["rng"])
        if not found.is_written:
            return None
        passed = [argument.slot for argument in arguments if argument.passed]
        overwritten = [number for number, slot in enumerate(passed) if slot in into.values()]
        return found._replace(run=partial(_on_copies, found.run, overwritten)) if overwritten else found

    def made(self, arrays: Mapping[str, Any]) -> Made:
        """What the op makes of arrays of these shapes and types, found by inference the first time."""
        key = tuple([_kind(value) for value in arrays.values()])
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KNOWN_SPECS:
                self._known.clear()
            given = specs_of(arrays)
            specs = infer_specs(self._definition, given, self._attrs, self._declared)
            wants = self._wants if self._wants is not None else dict.fromkeys(specs, True)
            found = self._known[key] = Made(given, specs, wants, self._updates, {**lods_of(arrays), **lods_of(specs)})
        return found


def _on_copies(run: Callable[..., Any], overwritten: list[int], *arrays: Any) -> Any:
    """Run with copies of the arrays that will be overwritten."""
    given = list(arrays)
    for number in overwritten:
        given[number] = given[number].copy()
    return run(*given)


class Made:
    """What an op makes of inputs of certain shapes.

    Attributes:
        lods: the LoD of its slots.
        is_sparse: whether an input or output is a `SelectedRows`.
        updates: wanted outputs that take over the array of an input.
        arrays: other wanted outputs: slot, shape, numpy dtype.
        others: those that are lists, or whose shape only running tells: slot, spec, what is wanted.
        unknown: the outputs whose shapes only running tells, if one of them is wanted.
        meetings: how often such inputs have been met.
        is_writable: whether its calls can be written down, as far as is known.
    """

    __slots__ = (
        "arrays",
        "is_sparse",
        "is_writable",
        "lods",
        "meetings",
        "others",
        "specs",
        "unknown",
        "updates",
        "wants",
    )

    def __init__(
        self,
        given: Mapping[str, Any],
        specs: Mapping[str, Any],
        wants: Wants,
        updates: list[tuple[str, str]],
        lods: dict[str, Any],
    ) -> None:
        self.lods, self.specs, self.wants, self.meetings = lods, specs, wants, 0
        self.is_sparse = any(_is_sparse(spec) for spec in (*given.values(), *specs.values()))
        wanted = {slot: wants[slot] for slot in specs if wants.get(slot)}
        self.updates = [(slot, source) for slot, source in updates if slot in wanted and source in given]
        fresh = [slot for slot in wanted if slot not in dict(self.updates)]
        plain = [slot for slot in fresh if isinstance(specs[slot], Spec) and not _unknown(specs[slot])]
        self.arrays = [(slot, specs[slot].shape, specs[slot].dtype.numpy) for slot in plain]
        self.others = [(slot, specs[slot], wanted[slot]) for slot in fresh if slot not in plain]
        unknown = [slot for slot, spec in specs.items() if _unknown(spec)]
        self.unknown = unknown if any(slot in wanted for slot in unknown) else []
        in_lists = any(isinstance(given[source], list) for _, source in self.updates)
        self.is_writable = not (lods or self.is_sparse or self.unknown or in_lists)


def _with_lods(outputs: Mapping[str, Any], lods: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by slot, with the LoD that was inferred for them unless a kernel gave them another."""
    found = {}
    for slot, value in outputs.items():
        if isinstance(value, list):
            found[slot] = [_with_lod(item, lod) for item, lod in zip(value, lods.get(slot) or [()] * len(value), strict=True)]
        else:
            found[slot] = _with_lod(value, lods.get(slot, ()))
    return found


def _with_lod(value: Any, lod: Lod) -> Any:
    return value if type(value) is LoDArray or None in lod else with_lod(value, lod)


def _kind(value: Any) -> Any:
    """Shape and type of an array, or of those in a list."""
    if isinstance(value, list):
        return tuple([_kind(item) for item in value])
    if type(value) is LoDArray:
        return value.shape, value.dtype, value.lod
    if type(value) is SelectedRows:
        return value.shape, value.dtype, SelectedRows
    return None if value is None else (value.shape, value.dtype)


def _unknown(spec: Any) -> bool:
    """Whether an output, or one of a list of them, has extents that only running tells."""
    if isinstance(spec, list):
        return any(_unknown(item) for item in spec)
    return spec is not None and (-1 in spec.shape or spec.type is VarType.SELECTED_ROWS)


def _is_sparse(spec: Any) -> bool:
    if isinstance(spec, list):
        return any(_is_sparse(item) for item in spec)
    return spec is not None and spec.type is VarType.SELECTED_ROWS


def _allocated(xp: Any, spec: Any, want: Any) -> Any:
    """Arrays for what is wanted; None where it is not, or where only running tells the shape."""
    if isinstance(spec, list):
        wanted = want if isinstance(want, list) else [want] * len(spec)
        return [_allocated(xp, *pair) for pair in zip(spec, wanted, strict=False)]
    return None if spec is None or not want or _unknown(spec) else xp.empty(spec.shape, spec.dtype.numpy)


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
    """Step scopes -> what gradient blocks read of each trip, for every step scopes that a gradient op reads."""
    found: dict[str, Captured] = {}
    for block in program.blocks:
        for op in block.ops:
            if not op.type.endswith("_grad"):
                continue
            scopes = op.inputs.get("StepScopes") or op.inputs.get("Scope") or op.inputs.get("step_scopes")
            if scopes and op.sub_blocks:
                reads, writes = outer_names(op.sub_blocks[0])
                forward = op.sub_blocks[0].forward or op.sub_blocks[0].parent
                local = {name for name in reads if forward is not None and name in forward.vars}
                captured = found.setdefault(scopes[0], Captured())
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


Handler = Callable[["Machine", Operator, Environment], None]

HANDLERS: dict[str, Handler] = {}
"""Ops that are no kernels: they run blocks, handle lists, or reach outside. `control` and others fill this table and the next."""
ARRAY_HANDLERS: dict[str, Handler] = {}
"""What ordinary ops mean when an input is an array of tensors, or has never been made."""


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
