"""Expands gradient ops into ordinary ops, so that they can be differentiated in turn.

A ``foo_grad`` op expands to its gradient rule; for an op with a decomposition, to the decomposed op and its gradient. The
gradient of a loop becomes a loop that counts down. The forward body writes the values that the gradient block reads of each
trip to arrays. The new loop reads them back, runs the gradient block, carries the gradients of carried variables and sums the
gradients of variables that are only read. The gradient of a branch becomes a branch on the same condition; the forward branch
outputs the values that the gradient block reads. Before a program is differentiated, the gradient ops between its targets and
the wanted variables are expanded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..errors import BackwardError, FluidError, locate
from ..ir.copying import declare_like
from ..ir.dataflow import needed_ops
from ..ir.inference import BuildNamespace
from ..ir.nesting import walk
from ..ir.program import Block, Operator, OpRole, Variable
from ..ir.regions import Region, is_gradient_op, region_of
from ..ir.renaming import rename_variables
from ..ir.verify import misuses_of
from ..ir.versions import Value, outer_names
from ..opdef.registry import EMPTY, OpDef, Rule, grad_slot
from ..opdef.tables import OpTable
from ..values.types import VarType
from .reverse import Differentiator, nameable, unfit


def _holds(block: Block, is_one: Callable[[Operator], bool]) -> bool:
    """Whether there is such an op in `block` or the blocks inside it."""
    return any(map(is_one, walk(block.ops)))


def expand_active(block: Block, targets: Iterable[str], wanted: Iterable[str], no_grad: frozenset[str]) -> None:
    """Replace the gradient ops of `block` through which `targets` depend on `wanted`."""
    while _holds(block, is_gradient_op):
        walker = Differentiator(block, block, no_grad)
        versions = walker.versions
        active = _active(walker, targets, wanted)
        for index in reversed(active):
            op = versions.ops[index]
            if is_gradient_op(op):
                _replace(block, op)
            else:
                for sub in op.sub_blocks:
                    _expand_all(sub, is_gradient_op)
        if not any(is_gradient_op(versions.ops[index]) for index in active):
            return


def _expand_all(block: Block, is_one: Callable[[Operator], bool]) -> None:
    """Replace every such gradient op of `block` and of the blocks inside it."""
    while _holds(block, is_one):
        for op in list(block.ops):
            if is_one(op):
                _replace(block, op)
            else:
                for sub in op.sub_blocks:
                    _expand_all(sub, is_one)


def expand_regions(block: Block) -> None:
    """Replace every gradient op of `block`, and of the blocks inside it, that owns a block by loops and branches."""
    _expand_all(block, lambda op: bool(op.sub_blocks) and is_gradient_op(op))


def expand_gradient(block: Block, op: Operator) -> None:
    """Replace a gradient op of `block` by ordinary ops."""
    _replace(block, op)


def expand_composition(block: Block, op: Operator) -> None:
    """Replace a composed op of `block` by the ops that it is composed of."""
    definition = op.definition
    assert definition is not None and definition.formula is not None
    targets = {slot: names for slot, names in op.outputs.items() if any(name != EMPTY for name in names)}
    with _in_place_of(block, op):
        first = len(block.ops)
        with block.program.derive_guard(block, op.role, op):
            values = _inputs_of(op, definition)
            results = definition.formula(BuildNamespace(block), values, definition.defaults(op.attrs), set(targets))
        _name_results(block, op, first, {slot: (targets[slot], value) for slot, value in _listed(results).items()})


def recurrence_as_loop(block: Block, op: Operator) -> None:
    """Replace a `recurrent` op of `block` by a loop over arrays."""
    with _in_place_of(block, op):
        _lower_recurrent(block, op)


def _active(walker: Differentiator, targets: Iterable[str], wanted: Iterable[str]) -> list[int]:
    """Positions of the ops that lie between `wanted` and `targets`, in order."""
    versions = walker.versions
    walker.mark_varied((name, version) for name in wanted for version in range(versions.last.get(name, 0) + 1))

    def reads(index: int) -> set[Value]:
        if versions.ops[index].role & OpRole.OPTIMIZE:  # an updated parameter does not depend on the old one
            return set()
        return walker.varied.intersection(value for _, _, value in versions.read_at(index))

    needed = walker.varied.intersection(map(versions.current, targets))
    return [index for index in needed_ops(versions, needed, reads) if reads(index)]


Expansion = Callable[[Block, Operator], None]
_EXPANSIONS: OpTable[Expansion] = OpTable("expansion")
"""For gradient ops that own blocks: the function that replaces the op by ordinary ones."""


def expands(*op_types: str) -> Callable[[Expansion], Expansion]:
    """Registers a function that expands gradient ops of these types, which own blocks."""
    return _EXPANSIONS.register(*op_types)


def _replace(block: Block, op: Operator) -> None:
    """Replace a gradient op by ordinary ops."""
    try:
        _expand(block, op)
    except FluidError:
        raise
    except Exception as error:  # files may hold ops that no layer makes
        raise unfit(op, error) from error


def _expand(block: Block, op: Operator) -> None:
    definition = op.definition
    forward = definition.forward if definition is not None else None
    for fault in misuses_of(op):  # an attribute may ask for more than there is memory for
        raise BackwardError(f"{op.type}: {fault}\n{locate(op)}")
    if op.sub_blocks:
        expansion = _EXPANSIONS.get(op.type)
        if expansion is None:
            raise BackwardError(f"{op.type} owns a block and has no gradient of its own\n{locate(op)}")
        expansion(block, op)
        return
    with _in_place_of(block, op):
        if forward is not None and forward.decomposition is not None:
            _expand_decomposition(block, op, forward)
        else:
            _expand_rule(block, op)


@contextlib.contextmanager
def _in_place_of(block: Block, op: Operator) -> Iterator[None]:
    """Inside the ``with``, ops appended to `block` take the place of `op`, which is removed."""
    index = next(i for i, candidate in enumerate(block.ops) if candidate is op)
    after = block.ops[index + 1 :]
    del block.ops[index:]
    try:
        yield
    finally:
        block.ops += after
        block.program._changed()


# ------------------------------------------------------------------------------------------------------ plain ops
class _OpAppender:
    """Appends ops to a block, by default backward ones, on behalf of one op."""

    def __init__(self, block: Block, source: Operator, role: int = OpRole.BACKWARD) -> None:
        self.block = block
        self.source = source
        self.role = role

    def __call__(self, op_type: str, inputs: dict[str, Any], outputs: dict[str, Any], **attrs: Any) -> Operator:
        attrs[OpRole.NAME] = self.role
        return self.block.append_op(op_type, inputs, outputs, attrs, frames=self.source.frames)

    def variable(self, base: str, like: Variable | None = None, **kwargs: Any) -> Variable:
        """A new variable of the block, with the properties of another or those given."""
        if like is not None:
            kwargs = {"type": like.type, "shape": like._shape, "dtype": like._dtype, "lod_level": like.lod_level, **kwargs}
        return self.block.create_var(name=self.block.program.fresh_name(base), **kwargs)

    def index(self, base: str, value: int) -> Variable:
        """A new int64 variable of one element."""
        var = self.variable(base, shape=[1], dtype=VarType.INT64, stop_gradient=True)
        self("fill_constant", {}, {"Out": var}, shape=[1], dtype=int(VarType.INT64), value=float(value))
        return var


def _listed(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {slot: value if isinstance(value, list) else [value] for slot, value in values.items()}


def _inputs_of(op: Operator, definition: OpDef) -> dict[str, Any]:
    """The variables that a gradient op reads, by slot."""
    values: dict[str, Any] = {}
    for slot, names in op.inputs.items():
        variables = [None if name == EMPTY else op.block.var(name) for name in names]
        described = definition.inputs.get(slot)
        if described is not None and described.many:
            values[slot] = variables
        elif variables and variables[0] is not None:
            values[slot] = variables[0]
    return values


def _expand_rule(block: Block, op: Operator) -> None:
    definition = op.definition
    assert definition is not None and definition.forward is not None
    rule = definition.forward.rule
    assert isinstance(rule, Rule)
    values = _inputs_of(op, definition)
    targets = {slot: op.outputs.get(grad_slot(slot), []) for slot in rule.wrt}
    wanted = {slot for slot, names in targets.items() if any(name != EMPTY for name in names)}
    first = len(block.ops)
    with block.program.derive_guard(block, OpRole.BACKWARD, op):
        results = rule(BuildNamespace(block), values, definition.defaults(op.attrs), wanted)
    gradients = _listed(results)
    _name_results(block, op, first, {slot: (targets[slot], gradients.get(slot, [None])) for slot in rule.wrt})


def _name_results(block: Block, op: Operator, first: int, results: Mapping[str, tuple[list[str], list[Any]]]) -> None:
    """Give the values that the ops from position `first` on compute the names that `op` gave its outputs.

    Args:
        results: slot -> the names, and the variables; for a gradient, None in place of zeros.
    """
    write = _OpAppender(block, op, OpRole.BACKWARD if is_gradient_op(op) else op.role)
    places = nameable(block.ops[first:], [value for _, values in results.values() for value in values])
    for slot, (targets, values) in results.items():
        for target, result in zip(targets, values, strict=False):
            if target == EMPTY:
                continue
            if result is None:
                like = op.inputs.get(slot)
                if not like:
                    raise BackwardError(f"the rule of {op.type} gives no gradient for {slot}\n{locate(op)}")
                write("fill_zeros_like", {"X": like[0]}, {"Out": target})
            elif result.name in places:
                producer, out, position = places[result.name]
                producer.outputs[out][position] = target
                block.vars.pop(result.name, None)
            else:
                write("assign", {"X": result}, {"Out": target})


def _expand_decomposition(block: Block, op: Operator, forward: OpDef) -> None:
    """Append the decomposition of the forward op, and its gradient."""
    rule, definition = forward.rule, op.definition
    assert isinstance(rule, Rule) and definition is not None and forward.decomposition is not None
    start = len(block.ops)
    with block.program.derive_guard(block, OpRole.BACKWARD, op):
        outputs = _listed(forward.decomposition(BuildNamespace(block), _inputs_of(op, definition), forward.defaults(op.attrs)))
    walker = Differentiator(block, block, frozenset())
    seeds = [
        (walker.versions.current(var.name), cotangent)
        for slot in rule.cotangents
        for var, cotangent in zip(outputs.get(slot, ()), op.inputs.get(grad_slot(slot), ()), strict=False)
        if cotangent != EMPTY
    ]
    _expand_walk(walker, op, op, rule.wrt, seeds, start, len(block.ops))


def _expand_walk(
    walker: Differentiator,
    op: Operator,
    reader: Operator,
    slots: Iterable[str],
    seeds: Iterable[tuple[Value, str]],
    start: int,
    end: int,
) -> None:
    """Append the gradient of the ops from `start` to `end`, and assign it to the outputs of the gradient op `op`.

    Args:
        reader: the op whose inputs in `slots` gradients are taken with respect to.
        seeds: values, and the variables that hold their gradients.
    """
    wanted = [
        (walker.versions.before(name, start), target)
        for slot in slots
        for name, target in zip(reader.inputs.get(slot, ()), op.outputs.get(grad_slot(slot), ()), strict=False)
        if target != EMPTY
    ]
    walker.mark_varied([value for value, _ in wanted], end, start)
    for value, cotangent in seeds:
        walker.seed(value, cotangent)
    walker.walk(end, start)
    write = _OpAppender(walker.out, op)
    delivered: set[Value] = set()
    for value, target in wanted:
        gradient = walker.gradient(value)
        # A variable in two slots has one gradient, the sum of both: it goes to one of them.
        if gradient is None or value in delivered:
            write("fill_zeros_like", {"X": value[0]}, {"Out": target})
        else:
            write("assign", {"X": gradient}, {"Out": target})
            delivered.add(value)
    walker.apply_inserts()


# ------------------------------------------------------------------------------------------------------------ regions
def _forward_of(block: Block, op: Operator, region: Region) -> Operator:
    """The forward op of the gradient op `op`: the one that writes the frames which `op` reads."""
    var = block.find_var(region.frames) if region.frames is not None else None
    if var is not None:
        for candidate in var.block.ops:
            if var.name in candidate.output_arg_names:
                return candidate
    raise BackwardError(f"the forward op of {op.type} is missing: no op writes {region.frames}\n{locate(op)}")


def _captured(block: Block, body: Block) -> list[Variable]:
    """The variables local to `body` that its gradient block, `block`, reads."""
    return [body.vars[name] for name in outer_names(block)[0] if name in body.vars]


def _make_movable(home: Block, block: Block) -> None:
    """Rename variables until every outside name that `block` uses means the same variable in a block inside `home`."""
    for name in dict.fromkeys(name for names in outer_names(block) for name in names):
        var, home_var = block.find_var(name), home.find_var(name)
        if var is not None and home_var is not None and var is not home_var:
            loser = var if var.block is (block.forward or block.parent) else home_var
            rename_variables({loser: home.program.fresh_name(name)})


def _movable_region(home: Block, op: Operator) -> Region:
    """Make the block of a gradient op ready to become an ordinary block inside `home`; returns the op's region."""
    body: Block = op.attr("sub_block")
    expand_regions(body)
    _make_movable(home, body)
    region = region_of(op)
    assert region is not None, "gradient ops with a block have a region"
    return region


class _GradientBlock:
    """A gradient block that becomes an ordinary sub-block of `home`.

    Attributes:
        carry: for each variable that the forward block carries, the name of its gradient inside -> the variable that holds it
            outside.
        parts: (inside, outside) for each variable that the forward block only reads.
    """

    def __init__(self, home: Block, op: Operator, region: Region) -> None:
        self.op, self.block, self.write = op, region.body, _OpAppender(home, op)
        self.carry: dict[str, str] = {}
        self.parts: list[tuple[str, str]] = []
        outside = {output.inner: output.name for output in region.final}
        for state in region.states:
            outer = outside.get(state.before) or self.write.variable(state.first, home.var(state.first)).name
            self.write("assign", {"X": state.first}, {"Out": outer})
            self.carry[state.before] = outer
        for output in region.summed:
            self.parts.append((output.inner, output.name))
            self.write("fill_zeros_like", {"X": output.like}, {"Out": output.name})
        self._rename_shadowing()

    def _rename_shadowing(self) -> None:
        """Rename inner variables that have the name of an outer one."""
        outer = {*self.carry.values(), *(target for _, target in self.parts)}
        new_names = {}
        for old in sorted(outer & set(self.block.vars)):
            new_names[old] = self.block.program.fresh_name(old)
            rename_variables({self.block.vars[old]: new_names[old]})
        self.carry = {new_names.get(inner, inner): target for inner, target in self.carry.items()}
        self.parts = [(new_names.get(inner, inner), target) for inner, target in self.parts]

    def enter(self) -> list[Operator]:
        """The ops that start a run of the block: they copy the carried gradients inside."""
        return [self.body_op("assign", {"X": [outer]}, {"Out": [inner]}) for inner, outer in self.carry.items()]

    def leave(self) -> list[Operator]:
        """The ops that end a run of the block: they copy the carried gradients outside."""
        return [self.body_op("assign", {"X": [inner]}, {"Out": [outer]}) for inner, outer in self.carry.items()]

    def body_op(self, op_type: str, inputs: dict[str, list[str]], outputs: dict[str, list[str]], **attrs: Any) -> Operator:
        attrs[OpRole.NAME] = OpRole.BACKWARD
        return Operator(self.block, op_type, inputs, outputs, attrs, self.op.frames)

    def lists(self, condition: str | None = None) -> tuple[list[str], list[str]]:
        """Names of the outer variables that the block reads or writes, and of the ones that it writes."""
        reads, writes = outer_names(self.block)
        extra = [condition] if condition is not None and condition not in writes else []
        return list(dict.fromkeys([*reads, *writes])), [*writes, *extra]


@expands("while_grad")
def expand_as_loop(block: Block, op: Operator) -> None:
    """Replace `op`, the gradient op of a loop, in `block` by a loop over its trips, last first."""
    region = _movable_region(block, op)
    with _in_place_of(block, op):
        _count_down(block, op, region)


def _count_down(block: Block, op: Operator, region: Region) -> None:
    """Append the loop over the trips of the forward loop, last first."""
    forward = _forward_of(block, op, region)
    body: Block = forward.attr("sub_block")
    gradient = region.body
    home = forward.block
    captured = _captured(gradient, body)

    # The forward loop stores what the gradient block will read, and counts its trips.
    before = _OpAppender(home, op)
    position = next(i for i, candidate in enumerate(home.ops) if candidate is forward)
    later_ops = home.ops[position:]
    del home.ops[position:]
    trips = before.index("trips", 0)
    arrays = []
    for var in captured:
        array = before.variable(var.name + "@ARRAY", var, type=VarType.LOD_TENSOR_ARRAY)
        before("new_array", {}, {"Out": array}, dtype=int(var.dtype))
        array._stop_gradient = var.stop_gradient
        array._shape = var._shape
        arrays.append(array)
    home.ops += later_ops
    write_body = _OpAppender(body, op)
    for var, array in zip(captured, arrays, strict=True):
        write_body("write_to_array", {"X": var, "I": trips}, {"Out": array})
    write_body("increment", {"X": trips}, {"Out": trips}, step=1.0)
    added = [trips.name, *(array.name for array in arrays)]
    forward.inputs["X"] = [*forward.inputs["X"], *added]
    forward.outputs["Out"] = [*forward.outputs["Out"], *added]

    backward = _GradientBlock(block, op, region)
    write = backward.write
    trip = write.variable("trip", trips)
    trip._stop_gradient = True
    write("assign", {"X": trips}, {"Out": trip})
    write("increment", {"X": trip}, {"Out": trip}, step=-1.0)
    zero = write.index("zero", 0)
    condition = write.variable("condition", shape=[1], dtype=VarType.BOOL, stop_gradient=True)
    write("greater_equal", {"X": trip, "Y": zero}, {"Out": condition})
    gradient.parent, gradient.forward = block, None
    start: list[Operator] = []
    for var, array in zip(captured, arrays, strict=True):
        declare_like(gradient, var.name, var)
        start.append(backward.body_op("read_from_array", {"X": [array.name], "I": [trip.name]}, {"Out": [var.name]}))
    end = backward.leave()
    end += [backward.body_op("sum", {"X": [outer, inner]}, {"Out": [outer]}) for inner, outer in backward.parts]
    end.append(backward.body_op("increment", {"X": [trip.name]}, {"Out": [trip.name]}, step=-1.0))
    end.append(backward.body_op("greater_equal", {"X": [trip.name], "Y": [zero.name]}, {"Out": [condition.name]}))
    gradient.ops[:] = [*start, *backward.enter(), *gradient.ops, *end]
    reads, writes = backward.lists(condition.name)
    new_scopes = write.variable("_step_scopes", type=VarType.STEP_SCOPES)
    write("while", {"X": reads, "Condition": condition}, {"Out": writes, "StepScopes": new_scopes}, sub_block=gradient)


@expands("conditional_block_grad")
def _expand_as_branch(block: Block, op: Operator) -> None:
    """Replace the gradient op of a branch by a branch on the same condition."""
    region = _movable_region(block, op)
    with _in_place_of(block, op):
        _append_branch(block, op, region)


def _append_branch(block: Block, op: Operator, region: Region) -> None:
    forward = _forward_of(block, op, region)
    body: Block = forward.attr("sub_block")
    gradient = region.body
    home = forward.block

    # The forward branch outputs what the gradient block will read.
    for var in _captured(gradient, body):
        if sum(var.name in item.vars for item in home.program.blocks) > 1:
            rename_variables({var: home.program.fresh_name(var.name)})
        body.vars = {key: item for key, item in body.vars.items() if item is not var}
        var.block = home
        home.vars[var.name] = var
        forward.outputs["Out"] = [*forward.outputs["Out"], var.name]

    backward = _GradientBlock(block, op, region)
    gradient.parent, gradient.forward = block, None
    end = backward.leave()
    end += [backward.body_op("assign", {"X": [inner]}, {"Out": [outer]}) for inner, outer in backward.parts]
    gradient.ops[:] = [*backward.enter(), *gradient.ops, *end]
    reads, writes = backward.lists()
    new_scopes = backward.write.variable("_step_scopes", type=VarType.STEP_SCOPES)
    backward.write(
        "conditional_block",
        {"Cond": op.input("Cond"), "Input": reads},
        {"Out": writes, "Scope": new_scopes},
        sub_block=gradient,
        is_scalar_condition=op.attr("is_scalar_condition"),
    )


@expands("recurrent_grad")
def _expand_recurrent_grad(block: Block, op: Operator) -> None:
    """Replace the forward op by a loop, and its gradient op by the gradient of the loop."""
    with _in_place_of(block, op):
        _differentiate_as_loop(block, op)


def _differentiate_as_loop(block: Block, op: Operator) -> None:
    region = region_of(op)
    assert region is not None, "recurrent_grad owns a block"
    forward = _forward_of(block, op, region)
    home = forward.block
    start = next(i for i, candidate in enumerate(home.ops) if candidate is forward)
    later_ops = home.ops[start + 1 :]
    del home.ops[start:]
    _lower_recurrent(home, forward)
    end = len(home.ops)
    home.ops += later_ops
    walker = Differentiator(home, block, frozenset(), runs_later=home.parent is not None and home is not block)
    before = [walker.versions.before(name, start) for name in op.input("outputs")]
    cotangents = zip(before, op.input(grad_slot("outputs")), strict=True)
    seeds = [((name, version + 1), grad) for (name, version), grad in cotangents if grad != EMPTY]
    if "CarriedOut" in op.outputs:
        op.outputs[grad_slot("initial_states")] = op.outputs.pop("CarriedOut")
    _expand_walk(walker, op, forward, ("inputs", "initial_states", "parameters"), seeds, start, end)


def _lower_recurrent(home: Block, op: Operator) -> None:
    """Append to `home` a loop over arrays that is equivalent to a `recurrent` op."""
    write = _OpAppender(home, op)
    body: Block = op.attr("sub_block")
    reverse = op.attr("reverse")
    sequences = {name: home.var(name) for name in op.input("inputs")}
    steps = {}
    for name, var in sequences.items():
        steps[name] = write.variable(name + "@STEPS", var, type=VarType.LOD_TENSOR_ARRAY, shape=var.shape[1:])
        write("unstack_array", {"X": var}, {"Out": steps[name]})
    length = write.variable("steps", shape=[1], dtype=VarType.INT64, stop_gradient=True)
    write("lod_array_length", {"X": next(iter(steps.values()))}, {"Out": length})
    zero, step = write.index("zero", 0), write.index("step", 0)
    if reverse:
        write("assign", {"X": length}, {"Out": step})
        write("increment", {"X": step}, {"Out": step}, step=-1.0)
    condition = write.variable("condition", shape=[1], dtype=VarType.BOOL, stop_gradient=True)
    compare = ("greater_equal" if reverse else "less_than", {"X": [step.name], "Y": [zero.name if reverse else length.name]})
    write(compare[0], compare[1], {"Out": condition})
    states = []
    for ex_state, state, first in zip(op.attr("ex_states"), op.attr("states"), op.input("initial_states"), strict=True):
        carried = write.variable(ex_state + "@STATE", home.var(first))
        write("assign", {"X": first}, {"Out": carried})
        states.append((ex_state, state, carried.name))
    outputs_of = {}
    for name in op.output("outputs"):
        inner = body.vars[name]
        outputs_of[name] = write.variable(name + "@STEPS", inner, type=VarType.LOD_TENSOR_ARRAY)
        write("new_array", {}, {"Out": outputs_of[name]}, dtype=int(inner.dtype))
        outputs_of[name].shape = inner.shape

    def body_op(op_type: str, inputs: dict[str, list[str]], outputs: dict[str, list[str]], **attrs: Any) -> Operator:
        return Operator(body, op_type, inputs, outputs, {**attrs, OpRole.NAME: OpRole.BACKWARD}, op.frames)

    index = [step.name]
    first_ops = [body_op("read_from_array", {"X": [array.name], "I": index}, {"Out": [name]}) for name, array in steps.items()]
    first_ops += [body_op("assign", {"X": [carried]}, {"Out": [ex_state]}) for ex_state, _, carried in states]
    last_ops = [body_op("write_to_array", {"X": [name], "I": index}, {"Out": [array.name]}) for name, array in outputs_of.items()]
    last_ops += [body_op("assign", {"X": [state]}, {"Out": [carried]}) for _, state, carried in states]
    last_ops.append(body_op("increment", {"X": [step.name]}, {"Out": [step.name]}, step=-1.0 if reverse else 1.0))
    last_ops.append(body_op(compare[0], compare[1], {"Out": [condition.name]}))
    body.ops[:] = [*first_ops, *body.ops, *last_ops]
    reads, writes = outer_names(body)
    scopes = write.variable("_step_scopes", type=VarType.STEP_SCOPES)
    names = list(dict.fromkeys([*reads, *writes]))
    write("while", {"X": names, "Condition": condition}, {"Out": writes, "StepScopes": scopes}, sub_block=body)
    for name, array in outputs_of.items():
        write("stack_array", {"X": array}, {"Out": name})
