"""Control flow and arrays of tensors, op by op.

An array of tensors is a list, in which None stands for an entry that was never written: zeros. Step scopes are a list
with a dict for each trip, of what gradient blocks read of it. A value that was never made (of a branch not taken, say)
is None; ops that only hand values on hand that on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluid.errors import ExecutionError
from fluid.ir.program import Block, Operator
from fluid.ir.regions import REGIONS
from fluid.ir.renaming import inner_grad_names
from fluid.opdef.registry import EMPTY, grad_slot
from fluid.values.lod_array import array_of, lod_of, with_lod
from fluid.values.place import to_numpy
from fluid.values.selected_rows import SelectedRows
from fluid.values.types import VarType

from .interpreter import ARRAY_HANDLERS, HANDLERS, Captured, Environment, Handler, Machine

__all__ = ["ARRAY_HANDLERS", "HANDLERS", "handler", "position_of"]


def handler(table: dict[str, Handler], *op_types: str) -> Callable[[Handler], Handler]:
    """Put a function into `HANDLERS` or `ARRAY_HANDLERS` for these ops."""

    def register(fn: Handler) -> Handler:
        for op_type in op_types:
            table[op_type] = fn
        return fn

    return register


def truth(value: Any, name: str) -> bool:
    """The value of a condition of one element."""
    if value is None:
        raise ExecutionError(f"the condition {name} has no value")
    if value.size != 1:
        raise ExecutionError(f"the condition {name} has {value.size} elements; it should have one")
    return bool(to_numpy(array_of(value)).reshape(()))


# ------------------------------------------------------------------------------------------------------------- blocks
def _run_body(machine: Machine, op: Operator, env: Environment, captured: Captured | None) -> dict[str, Any]:
    """Run the block of an op once; what gradient blocks read of that."""
    body: Block = op.attr("sub_block")
    inner = Environment(body, env)
    if captured is None:
        machine.run_block(body, inner)
        return {}
    carried = [name for name in op.output("Out") if name in captured.carried]
    frame = {name: copy(value) for name in carried if (value := env.get(name)) is not None}
    machine.run_block(body, inner)
    frame.update((name, inner.values[name]) for name in captured.local if name in inner.values)
    return frame


@handler(HANDLERS, "while")
def run_while(machine: Machine, op: Operator, env: Environment) -> None:
    condition = op.input("Condition")[0]
    scopes = op.output("StepScopes")
    captured = machine.captures.get(scopes[0]) if scopes else None
    frames = []
    while truth(env.get(condition), condition):
        frame = _run_body(machine, op, env, captured)
        if captured is not None:
            frames.append(frame)
    if scopes:
        env.set(scopes[0], frames)


@handler(HANDLERS, "conditional_block")
def run_conditional_block(machine: Machine, op: Operator, env: Environment) -> None:
    scopes = op.output("Scope")
    names = op.input("Cond")
    if op.attr("is_scalar_condition"):
        taken = truth(env.get(names[0]), names[0])
    else:
        taken = all(env.get(name) is not None and env.get(name).size for name in names)
    frames = []
    if taken:
        frames.append(_run_body(machine, op, env, machine.captures.get(scopes[0]) if scopes else None))
    if scopes:
        env.set(scopes[0], frames)


def _backwards(op: Operator, scopes: str, env: Environment) -> tuple[Block, Block, list[dict[str, Any]]]:
    """A gradient op's block, the forward block, and what each trip left of that."""
    block: Block = op.attr("sub_block")
    body = block.forward if block.forward is not None else block.parent
    assert body is not None
    frames = env.get(op.input(scopes)[0])
    if frames is None:
        raise ExecutionError(f"{op.input(scopes)[0]} has no value: the forward part of this {op.type} did not run")
    return block, body, frames


@handler(HANDLERS, "while_grad", "conditional_block_grad")
def run_region_grad(machine: Machine, op: Operator, env: Environment) -> None:
    region = REGIONS[op.type.removesuffix("_grad")]
    block, body, frames = _backwards(op, region.scopes, env)
    names = op.input(region.inputs)
    inside = inner_grad_names(op, region.inputs)
    incoming = op.attrs.get("original_output_grad") or ()
    carry = dict(zip(incoming, map(env.get, op.input(grad_slot("Out"))), strict=False))
    totals = _Totals()
    outputs = op.output(grad_slot(region.inputs))
    parts = [inner for inner, target in zip(inside, outputs, strict=False) if target != EMPTY and inner not in carry]
    for frame in reversed(frames):
        values = dict(carry)
        machine.run_block(block, Environment(block, Environment(body, env, dict(frame)), values))
        carry = {inner: values[inner] for inner in carry}
        for inner in parts:
            totals.add(inner, _part(values, inner))
    sums = totals.found()
    for name, inner, target in zip(names, inside, outputs, strict=False):
        if target == EMPTY:
            continue
        found = carry[inner] if inner in carry else sums.get(inner)
        env.set(target, found if found is not None else _no_gradient(machine.xp, op, target, env.get(name)))


def _part(values: dict[str, Any], name: str) -> Any:
    """What a trip of a gradient block leaves under a name; that it leaves nothing there must not pass for zero."""
    if name not in values:
        raise ExecutionError(f"the gradient block leaves no {name}, which should be a part of a gradient")
    return values[name]


@handler(HANDLERS, "recurrent")
def run_recurrent(machine: Machine, op: Operator, env: Environment) -> None:
    body: Block = op.attr("sub_block")
    sequences = {name: array_of(env.get(name)) for name in op.input("inputs")}
    lengths = {value.shape[0] for value in sequences.values() if value is not None}
    if len(lengths) != 1 or any(value is None for value in sequences.values()):
        raise ExecutionError(f"the sequences {', '.join(sequences)} should have one number of steps, not {sorted(lengths)}")
    (length,) = lengths
    scopes = op.output("step_scopes")
    captured = machine.captures.get(scopes[0]) if scopes else None
    names = op.output("outputs")
    made: list[dict[str, Any]] = [{} for _ in range(length)]
    frames: list[dict[str, Any]] = [{} for _ in range(length)]
    states = {ex: env.get(name) for ex, name in zip(op.attr("ex_states"), op.input("initial_states"), strict=True)}
    if captured is not None:  # gradients may be computed when what these lie in holds something else
        sequences = copied(sequences, captured.local)
        states = copied(states, captured.local)
    for step in _steps(op, length):
        inner = Environment(body, env, {**states, **{name: value[step] for name, value in sequences.items()}})
        machine.run_block(body, inner)
        made[step] = {name: inner.values[name] for name in names}
        states = {ex: inner.values[state] for ex, state in zip(op.attr("ex_states"), op.attr("states"), strict=True)}
        if captured is not None:
            frames[step] = {name: inner.values[name] for name in captured.local if name in inner.values}
    for name in names:
        env.set(name, machine.xp.stack([array_of(found[name]) for found in made]))
    if scopes:
        env.set(scopes[0], frames)


def _steps(op: Operator, length: int) -> range:
    return range(length - 1, -1, -1) if op.attr("reverse") else range(length)


@handler(HANDLERS, "recurrent_grad")
def run_recurrent_grad(machine: Machine, op: Operator, env: Environment) -> None:
    xp = machine.xp
    block, body, frames = _backwards(op, "step_scopes", env)
    given = zip(op.attr("output_grads"), op.input(grad_slot("outputs")), strict=True)
    incoming = {inner: env.get(name) for inner, name in given if name != EMPTY}
    firsts = [env.get(name) for name in op.input("initial_states")]
    carried = list(zip(op.attr("state_grads"), op.attr("ex_state_grads"), firsts, strict=False))
    carry = {state: zeros_like(xp, first) for state, _, first in carried if state != EMPTY}
    totals = _Totals()
    parts: dict[str, list[Any]] = {name: [None] * len(frames) for name in op.attr("input_grads") if name != EMPTY}
    left: dict[str, Any] = {}
    for step in reversed(_steps(op, len(frames))):
        values = {**carry, **{name: value[step] for name, value in incoming.items()}}
        machine.run_block(block, Environment(block, Environment(body, env, dict(frames[step])), values))
        for name in parts:
            parts[name][step] = _part(values, name)
        for name in op.attr("parameter_grads"):
            if name != EMPTY:
                totals.add(name, _part(values, name))
        left = {ex: values[ex] for _, ex, _ in carried if ex != EMPTY}
        carry = {state: left[ex] if ex != EMPTY else zeros_like(xp, first) for state, ex, first in carried if state != EMPTY}
    for slot, names, values in (
        ("inputs", op.attr("input_grads"), {name: xp.stack(steps) for name, steps in parts.items() if steps}),
        ("initial_states", op.attr("ex_state_grads"), left),
        ("parameters", op.attr("parameter_grads"), totals.found()),
    ):
        for outer, inner, target in zip(op.input(slot), names, op.output(grad_slot(slot)), strict=False):
            if target != EMPTY:
                env.set(target, values[inner] if inner in values else _no_gradient(xp, op, target, env.get(outer)))


def _no_gradient(xp: Any, op: Operator, name: str, value: Any) -> Any:
    """The gradient of `value`, called `name`, where the block never ran: zeros, of which a sparse one has no row."""
    var = op.block.find_var(name)
    if var is None or var.type is not VarType.SELECTED_ROWS or value is None:
        return zeros_like(xp, value)
    return SelectedRows(xp.empty(0, "int64"), xp.empty((0, *value.shape[1:]), value.dtype), value.shape[0])


# ------------------------------------------------------------------------------------------------------------- lists
def zeros_like(xp: Any, value: Any) -> Any:
    """Zeros shaped like a value: an array without entries for an array of tensors."""
    if value is None or isinstance(value, list):
        return None if value is None else []
    if isinstance(value, SelectedRows):
        return value.empty()
    return with_lod(xp.zeros_like(array_of(value)), lod_of(value))


def add(a: Any, b: Any) -> Any:
    """The sum of two values, entry by entry for arrays of tensors; None counts as zero."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, list):
        longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
        return [add(x, shorter[i]) if i < len(shorter) else x for i, x in enumerate(longer)]
    return with_lod(array_of(a) + array_of(b), lod_of(a) or lod_of(b))


class _Totals:
    """Sums, by name, of what trips give. Rows of sparse gradients are put behind each other once, at the end."""

    def __init__(self) -> None:
        self._sums: dict[str, Any] = {}
        self._rows: dict[str, list[SelectedRows]] = {}

    def add(self, name: str, value: Any) -> None:
        if isinstance(value, SelectedRows):
            self._rows.setdefault(name, []).append(value)
        else:
            self._sums[name] = add(self._sums.get(name), value)

    def found(self) -> dict[str, Any]:
        return {**self._sums, **{name: add(self._sums.get(name), SelectedRows.total(rows)) for name, rows in self._rows.items()}}


def copy(value: Any) -> Any:
    """A value that no later write through the other name changes."""
    return None if value is None else [copy(item) for item in value] if isinstance(value, list) else value.copy()


def copied(values: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """`values`, with copies of those of these names."""
    return {name: copy(value) if name in names else value for name, value in values.items()}


@handler(ARRAY_HANDLERS, "assign")
def assign(machine: Machine, op: Operator, env: Environment) -> None:
    env.set(op.output("Out")[0], copy(env.get(op.input("X")[0])))


@handler(ARRAY_HANDLERS, "sum")
def sum_values(machine: Machine, op: Operator, env: Environment) -> None:
    total = None
    for name in op.input("X"):
        total = add(total, env.get(name))
    env.set(op.output("Out")[0], total if isinstance(total, list) else copy(total))


@handler(ARRAY_HANDLERS, "fill_zeros_like")
def fill_zeros_like(machine: Machine, op: Operator, env: Environment) -> None:
    env.set(op.output("Out")[0], zeros_like(machine.xp, env.get(op.input("X")[0])))


@handler(ARRAY_HANDLERS, "scale")
def scale(machine: Machine, op: Operator, env: Environment) -> None:
    """Scale each entry; this is how the gradient of a sum of arrays reaches its terms."""
    factor, bias = op.attr("scale"), op.attr("bias")

    def apply(value: Any) -> Any:
        if value is None or isinstance(value, list):
            return value and [apply(item) for item in value]
        array = array_of(value)
        scaled = (array * array.dtype.type(factor) + array.dtype.type(bias)).astype(array.dtype)
        return with_lod(scaled, lod_of(value))

    env.set(op.output("Out")[0], apply(env.get(op.input("X")[0])))


def position_of(op: Operator, env: Environment) -> int:
    name = op.input("I")[0]
    value = env.get(name)
    if value is None or value.size != 1:
        raise ExecutionError(f"the position {name} should be one integer")
    found = int(to_numpy(array_of(value)).reshape(()))
    if found < 0:
        raise ExecutionError(f"the position {name} is {found}; arrays are counted from 0")
    return found


@handler(HANDLERS, "new_array")
def new_array(machine: Machine, op: Operator, env: Environment) -> None:
    env.set(op.output("Out")[0], [])


@handler(HANDLERS, "write_to_array")
def write_to_array(machine: Machine, op: Operator, env: Environment) -> None:
    name = op.output("Out")[0]
    position = position_of(op, env)
    array = list(env.get(name) or ())
    array += [None] * (position + 1 - len(array))
    array[position] = None if op.attr("clears") else copy(env.get(op.input("X")[0]))
    env.set(name, array)


@handler(HANDLERS, "read_from_array")
def read_from_array(machine: Machine, op: Operator, env: Environment) -> None:
    array = env.get(op.input("X")[0])
    position = position_of(op, env)
    found = array[position] if array is not None and position < len(array) else None
    like = op.input("X_W")
    if found is None and like:
        found = zeros_like(machine.xp, env.get(like[0]))
    elif found is None and array is not None and position >= len(array):
        raise ExecutionError(f"entry {position} is read of {op.input('X')[0]}, which has {len(array)}")
    env.set(op.output("Out")[0], found)


@handler(HANDLERS, "stack_array", "stack_array_like")
def stack_array(machine: Machine, op: Operator, env: Environment) -> None:
    array = list(env.get(op.input("X")[0]) or ())
    like = env.get(op.input("Like")[0]) if op.input("Like") else None
    if like is not None:
        array += [None] * (like.shape[0] - len(array))
    shape = next((array_of(item) for item in array if item is not None), like[0] if like is not None and like.shape[0] else None)
    if shape is None:
        raise ExecutionError(f"the array {op.input('X')[0]} has no entry to stack")
    env.set(
        op.output("Out")[0],
        machine.xp.stack([machine.xp.zeros_like(shape) if item is None else array_of(item) for item in array]),
    )


@handler(HANDLERS, "unstack_array")
def unstack_array(machine: Machine, op: Operator, env: Environment) -> None:
    env.set(op.output("Out")[0], [item.copy() for item in env.get(op.input("X")[0])])


@handler(HANDLERS, "tensor_array_to_tensor", "join_array")
def join_array(machine: Machine, op: Operator, env: Environment) -> None:
    name, axis, xp = op.input("X")[0], op.attr("axis"), machine.xp
    array = list(env.get(name) or ())
    if op.input("Like"):
        like = env.get(op.input("Like")[0])
        array += [None] * (len(like) - len(array))
        array = [zeros_like(xp, other) if item is None else item for item, other in zip(array, like, strict=True)]
    absent = [str(position) for position, item in enumerate(array) if item is None]
    if absent or not array:
        missing = f"no entry {', '.join(absent)}, of {len(array)}" if array else "no entries"
        raise ExecutionError(f"the array {name} has {missing}, so it cannot be made one tensor")
    entries = [array_of(item) for item in array]
    try:
        joined = xp.stack(entries, axis) if op.attr("use_stack") else xp.concatenate(entries, axis)
    except ValueError as error:
        shapes = ", ".join(str(list(entry.shape)) for entry in entries)
        raise ExecutionError(f"the entries of {name}, of shapes {shapes}, do not fit together: {error}") from None
    env.set(op.output("Out")[0], joined)
    axis %= joined.ndim
    for sizes in op.output("OutIndex"):
        env.set(sizes, xp.asarray([(*entry.shape, 1)[axis] for entry in entries], dtype="int32"))


@handler(HANDLERS, "split_array", "tensor_array_to_tensor_grad")
def split_array(machine: Machine, op: Operator, env: Environment) -> None:
    names = op.input("X") + op.input("Like") if op.type == "split_array" else op.input("Out@GRAD") + op.input("X")
    whole, like = (env.get(name) for name in names)
    whole, axis = array_of(whole), op.attr("axis")
    parts, start = [], 0
    for item in like:
        shape = array_of(item).shape
        end = start + (1 if op.attr("use_stack") else shape[axis])
        part = machine.xp.moveaxis(machine.xp.moveaxis(whole, axis, 0)[start:end], 0, axis)
        parts.append(with_lod(part.reshape(shape).copy(), lod_of(item)))
        start = end
    for name in op.output("Out" if op.type == "split_array" else grad_slot("X")):
        env.set(name, parts)


@handler(HANDLERS, "lod_array_length")
def lod_array_length(machine: Machine, op: Operator, env: Environment) -> None:
    env.set(op.output("Out")[0], machine.xp.asarray([len(env.get(op.input("X")[0]) or ())], dtype="int64"))


# ------------------------------------------------------------------------------------------------------------ choosing
def _choice(op: Operator, env: Environment, count: int) -> int:
    mask = op.input("Mask")[0]
    value = env.get(mask)
    if value is None or value.size != 1:
        raise ExecutionError(f"the mask {mask} should have one element")
    found = int(to_numpy(array_of(value)).reshape(()))
    if not 0 <= found < count:
        raise ExecutionError(f"the mask {mask} is {found}, but there are {count} to choose from")
    return found


@handler(HANDLERS, "select_input")
def select_input(machine: Machine, op: Operator, env: Environment) -> None:
    names = op.input("X")
    env.set(op.output("Out")[0], copy(env.get(names[_choice(op, env, len(names))])))


@handler(HANDLERS, "select_output")
def select_output(machine: Machine, op: Operator, env: Environment) -> None:
    value = env.get(op.input("X")[0])
    names = op.output("Out")
    chosen = _choice(op, env, len(names))
    for position, name in enumerate(names):
        if name != EMPTY:
            env.set(name, copy(value) if position == chosen else zeros_like(machine.xp, value))


@handler(HANDLERS, "feed", "fetch")
def edge(machine: Machine, op: Operator, env: Environment) -> None:
    """Feeding and fetching are the executor's; these ops only mark where."""
