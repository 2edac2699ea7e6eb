"""Control flow and arrays of tensors, op by op.

An array of tensors is a list; None stands for an entry that was never written and counts as zeros. Step scopes are a list with a
dict for each trip, with the values that gradient blocks read. A missing value (for example, from a skipped branch) is None; ops
that only copy values pass it on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from fluid.errors import ExecutionError, IndexRangeError
from fluid.ir.program import Operator
from fluid.opdef.registry import EMPTY, grad_slot
from fluid.values.bfloat16 import computable, converted
from fluid.values.lod_array import array_of, lod_of, with_lod
from fluid.values.selected_rows import SelectedRows
from fluid.values.types import BFLOAT16, VarType

from ..binding.halves import added
from ..runtime.random import RandomStreams
from .handlers import runs, runs_on_arrays
from .indexed_arrays import MOST_ENTRIES, EntryList, block_of
from .interpreter import Environment, Machine, describe
from .repeated import Frames, Loop, repeat_with_room, run_at_once, run_while_true

__all__ = ["Runs", "add", "array_in", "no_gradient", "position_of", "run_backwards", "zeros_like"]

_R = TypeVar("_R")


def truth(value: Any, name: str) -> bool:
    """The truth value of a condition with one element."""
    if value is None:
        raise ExecutionError(f"the condition {name} has no value")
    if value.size != 1:
        raise ExecutionError(f"the condition {name} has {value.size} elements; it should have one")
    return bool(array_of(value).item())


def array_in(op: Operator, slot: str, env: Environment) -> Sequence[Any]:
    """The entries of the array of tensors in an input slot (read only); empty if it has no value."""
    name = op.input(slot)[0]
    value = env.get(name)
    if value is not None and not isinstance(value, list):
        raise ExecutionError(f"{name} is {describe(value)}, and {op.type} takes an array of tensors ({slot})")
    return value or ()


def tensor_in(op: Operator, slot: str, env: Environment) -> Any:
    """The tensor in an input slot."""
    name = op.input(slot)[0]
    value = env.need(name)
    if isinstance(value, list):
        raise ExecutionError(f"{name} is {describe(value)}, and {op.type} takes a tensor ({slot})")
    return value


# ------------------------------------------------------------------------------------------------------------- blocks
class Runs:
    """Runs the block of an op, as often as its handler asks; the op's `Region` says how values pass through the block.

    Attributes:
        count: the number of runs, from the op's sequences or the frames of its forward op; -1 without either.

    Args:
        machine: computes.
        op: the op that owns the block.
        env: the values of the block that it is in, by name.
    """

    def __init__(self, machine: Machine, op: Operator, env: Environment) -> None:
        region = machine.region(op)
        assert region is not None, "only ops that own blocks have runs"
        self._machine, self._op, self._env, self._region = machine, op, env, region
        self._captured = machine.captures.get(region.scopes) if region.scopes is not None else None
        self._frames: dict[int, dict[str, Any]] = {}
        self._past = None if region.frames is None else self._frames_of_forward(region.frames)
        self._sequences = {inner: array_of(env.get(outer)) for inner, outer in region.slices}
        firsts = [(state, env.get(state.first)) for state in region.states]
        self._states = [zeros_like(machine.xp, value) if state.from_zero else value for state, value in firsts]
        self.count = self._count()
        if self._captured is not None:  # gradients may be computed when these arrays have been overwritten
            local = self._captured.local
            self._sequences = {name: copy(value) if name in local else value for name, value in self._sequences.items()}
            pairs = zip(region.states, self._states, strict=True)
            self._states = [copy(value) if state.before in local else value for state, value in pairs]
        self._forward = region.forward
        self._carried = [name for name in region.writes if self._captured is not None and name in self._captured.carried]
        self._befores, self._afters = ([getattr(state, end) for state in region.states] for end in ("before", "after"))
        self._stacks: dict[str, dict[int, Any]] = {passed.inner: {} for passed in region.stacked if passed.inner != EMPTY}
        self._summed = [passed.inner for passed in region.summed if passed.inner != EMPTY]
        self._results = [*self._stacks, *self._summed, *(after for after in self._afters if after != EMPTY)]
        self._totals = _Totals()

    def _frames_of_forward(self, scopes: str) -> Sequence[dict[str, Any]]:
        frames = self._env.get(scopes)
        if frames is None:
            raise ExecutionError(f"{scopes} has no value: the forward part of this {self._op.type} did not run")
        return frames  # type: ignore[no-any-return]

    def _count(self) -> int:
        if self._past is not None:
            return len(self._past)
        if not self._sequences:
            return -1
        lengths = {value.shape[0] for value in self._sequences.values() if value is not None}
        if len(lengths) != 1 or any(value is None for value in self._sequences.values()):
            names = ", ".join(self._sequences)
            raise ExecutionError(f"the sequences {names} should have the same number of steps, not {sorted(lengths)}")
        return int(lengths.pop())

    def once(self, number: int) -> None:
        """Run the block; `number` is the index of this run's slice and frame, and of its results in stacks."""
        region, env = self._region, self._env
        values = dict(zip(self._befores, self._states, strict=True))
        values.pop(EMPTY, None)
        for name, sequence in self._sequences.items():  # the gradient of a state that is an output, too, has two parts
            values[name] = sequence[number] if name not in values else values[name] + sequence[number]
        outside = env
        if self._past is not None and self._forward is not None:
            outside = Environment(self._forward, env, dict(self._past[number]))
        frame = {name: copy(value) for name in self._carried if (value := env.get(name)) is not None} if self._carried else {}
        self._machine.run_block(region.body, Environment(region.body, outside, values))
        if self._captured is not None:
            for name in self._captured.local:
                if name in values:
                    frame[name] = values[name]
        self._frames[number] = frame
        for name in self._results:
            if name not in values:
                raise self._missing(name)
        for inner, items in self._stacks.items():
            items[number] = values[inner]
        for inner in self._summed:
            self._totals.add(inner, values[inner])
        self._states = [values[name] if name != EMPTY else self._zeros(place) for place, name in enumerate(self._afters)]

    def all(self, is_reversed: bool) -> None:
        """Run the block for each slice or frame, and set the op's outputs."""
        past, loops = self._past, self._machine.loops(self._op, self._region)
        for loop in loops if self.count > 0 else ():
            if past is not None and not isinstance(past, Frames):
                break
            env = self._environment(loop)
            if env is not None and self._with_room(loop, partial(run_at_once, loop, env, self.count, is_reversed, past)):
                return
        for number in range(self.count)[:: -1 if is_reversed else 1]:
            self.once(number)
        self.finish()

    def while_true(self, condition: str) -> None:
        """Run the block as long as a condition is true, and set the op's outputs."""
        number = 0
        for loop in self._machine.loops(self._op, self._region):
            if not truth(self._env.get(condition), condition) or (number and self._captured is not None):
                break
            env = self._environment(loop)
            number += (self._with_room(loop, partial(run_while_true, loop, env)) or 0) if env is not None else 0
            if number and not truth(self._env.get(condition), condition):
                return
        if number and self._region.scopes is not None:
            self._frames = dict(enumerate(self._env.get(self._region.scopes)))
        while truth(self._env.get(condition), condition):
            self.once(number)
            number += 1
        self.finish()

    def _environment(self, loop: Loop) -> Environment | None:
        """The environment of a compiled loop, with its hoisted values; None if an op fails, which running op by op reports."""
        if not loop.hoisted:
            return self._env
        env = Environment(self._region.body, self._env)
        try:
            for op in loop.hoisted:
                self._machine.run_op(op, env)
        except ExecutionError:
            return None
        return env

    def _with_room(self, loop: Loop, run: Callable[[], _R]) -> _R | None:
        """Run a loop; None if it has to run op by op, and nothing has changed."""
        streams = self._machine.streams
        assert isinstance(streams, RandomStreams), "loops are compiled for numpy alone"
        return repeat_with_room(loop, run, partial(streams.return_to, streams.position))

    def _zeros(self, place: int) -> Any:
        """Zeros for a state that the block does not write."""
        return zeros_like(self._machine.xp, self._env.get(self._region.states[place].first))

    def _missing(self, name: str) -> ExecutionError:
        """The error for a value that the op returns but a run did not write; it must not count as zero."""
        is_gradient = self._region.frames is not None
        part = ", which should be a part of a gradient" if is_gradient else ""
        return ExecutionError(f"the {'gradient ' if is_gradient else ''}block leaves no {name}{part}")

    def finish(self) -> None:
        """Set the op's outputs from the results of the runs."""
        region, env, xp = self._region, self._env, self._machine.xp
        sums = self._totals.by_name()
        finals = {state.after: value for state, value in zip(region.states, self._states, strict=True) if state.after != EMPTY}
        for passed in (*region.stacked, *region.summed, *region.final):
            if passed.name == EMPTY:
                continue
            if items := self._stacks.get(passed.inner):
                value = xp.stack([array_of(items[number]) for number in sorted(items)])
            else:
                value = sums.get(passed.inner, finals.get(passed.inner))
            env.set(passed.name, value if value is not None else no_gradient(xp, self._op, passed.name, env.get(passed.like)))
        if region.scopes is not None:
            frames = [self._frames[number] for number in sorted(self._frames)]
            env.set(region.scopes, frames if self._captured is not None else [])


@runs("while")
def run_while(machine: Machine, op: Operator, env: Environment) -> None:
    Runs(machine, op, env).while_true(op.input("Condition")[0])


@runs("conditional_block", "conditional_block_infer")
def run_conditional_block(machine: Machine, op: Operator, env: Environment) -> None:
    names = op.input("Cond")
    if op.attr("is_scalar_condition"):
        is_taken = truth(env.get(names[0]), names[0])
    else:
        is_taken = all(env.get(name) is not None and env.get(name).size for name in names)
    block_runs = Runs(machine, op, env)
    if is_taken:
        block_runs.once(0)
    block_runs.finish()


@runs("recurrent")
def run_recurrent(machine: Machine, op: Operator, env: Environment) -> None:
    block_runs = Runs(machine, op, env)
    block_runs.all(is_reversed=op.attr("reverse"))


@runs("while_grad", "conditional_block_grad", "recurrent_grad")
def run_backwards(machine: Machine, op: Operator, env: Environment) -> None:
    """Run a gradient block once for each run of the forward block, in reverse order.

    Args:
        machine: computes.
        op: the gradient op.
        env: the values of the block that it is in, by name.
    """
    block_runs = Runs(machine, op, env)
    block_runs.all(is_reversed=not op.attrs.get("reverse"))


def no_gradient(xp: Any, op: Operator, name: str, value: Any) -> Any:
    """The gradient `name` of `value` if the block never ran: zeros; a sparse gradient has no rows."""
    var = op.block.find_var(name)
    if var is None or var.type is not VarType.SELECTED_ROWS or value is None:
        return zeros_like(xp, value)
    return SelectedRows(xp.empty(0, "int64"), xp.empty((0, *value.shape[1:]), value.dtype), value.shape[0])


# ------------------------------------------------------------------------------------------------------------- lists
def zeros_like(xp: Any, value: Any) -> Any:
    """Zeros shaped like a value; for an array of tensors, an array without entries."""
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
    left, right = array_of(a), array_of(b)
    return with_lod(added(left, right) if left.dtype == BFLOAT16 else left + right, lod_of(a) or lod_of(b))


class _Totals:
    """Sums of the results of runs, by name. Rows of sparse gradients are concatenated once, at the end."""

    def __init__(self) -> None:
        self._sums: dict[str, Any] = {}
        self._rows: dict[str, list[SelectedRows]] = {}

    def add(self, name: str, value: Any) -> None:
        if isinstance(value, SelectedRows):
            self._rows.setdefault(name, []).append(value)
        else:
            self._sums[name] = add(self._sums.get(name), value)

    def by_name(self) -> dict[str, Any]:
        return {**self._sums, **{name: add(self._sums.get(name), SelectedRows.total(rows)) for name, rows in self._rows.items()}}


def copy(value: Any) -> Any:
    """Copy a value, so that later writes to the original do not change it; None for None."""
    return None if value is None else [copy(item) for item in value] if isinstance(value, list) else value.copy()


@runs_on_arrays("assign")
def assign(machine: Machine, op: Operator, env: Environment) -> None:
    env.set(op.output("Out")[0], copy(env.get(op.input("X")[0])))


@runs_on_arrays("sum")
def sum_values(machine: Machine, op: Operator, env: Environment) -> None:
    total = None
    for name in op.input("X"):
        total = add(total, env.get(name))
    env.set(op.output("Out")[0], total if isinstance(total, list) else copy(total))


@runs_on_arrays("fill_zeros_like")
def fill_zeros_like(machine: Machine, op: Operator, env: Environment) -> None:
    env.set(op.output("Out")[0], zeros_like(machine.xp, env.get(op.input("X")[0])))


@runs_on_arrays("scale")
def scale(machine: Machine, op: Operator, env: Environment) -> None:
    """Scale each entry, as the gradient of a sum of arrays does."""
    factor, bias = op.attr("scale"), op.attr("bias")

    def apply(value: Any) -> Any:
        if value is None or isinstance(value, list):
            return value and [apply(item) for item in value]
        held = array_of(value)
        array = computable(held)
        scaled = (array * array.dtype.type(factor) + array.dtype.type(bias)).astype(array.dtype)
        return with_lod(converted(scaled, held.dtype), lod_of(value))

    env.set(op.output("Out")[0], apply(env.get(op.input("X")[0])))


def _integer(op: Operator, slot: str, env: Environment, subject: str) -> int:
    name = op.input(slot)[0]
    value = env.get(name)
    if value is None or value.size != 1:
        raise ExecutionError(f"the {subject} {name} should be one integer")
    return int(array_of(value).item())


def position_of(op: Operator, env: Environment) -> int:
    position = _integer(op, "I", env, "position")
    if position < 0:
        raise IndexRangeError(f"the position {op.input('I')[0]} is {position}; positions in arrays start at 0")
    return position


@runs("new_array")
def new_array(machine: Machine, op: Operator, env: Environment) -> None:
    env.set(op.output("Out")[0], [])


@runs("write_to_array")
def write_to_array(machine: Machine, op: Operator, env: Environment) -> None:
    name = op.output("Out")[0]
    position = position_of(op, env)
    if position >= MOST_ENTRIES:
        raise ExecutionError(f"the position {op.input('I')[0]} is {position}; arrays have {MOST_ENTRIES} entries at most")
    array = env.get(name)
    if array is not None and not isinstance(array, list):
        raise ExecutionError(f"{name} is {describe(array)}, and {op.type} writes to an array of tensors")
    array = list(array or ())
    array += [None] * (position + 1 - len(array))
    array[position] = None if op.attr("clears") else copy(env.get(op.input("X")[0]))
    env.set(name, array)


@runs("read_from_array")
def read_from_array(machine: Machine, op: Operator, env: Environment) -> None:
    array = array_in(op, "X", env)
    position = position_of(op, env)
    entry = array[position] if position < len(array) else None
    like = op.input("X_W")
    if entry is None and like:
        entry = zeros_like(machine.xp, env.get(like[0]))
    elif position >= len(array) and env.get(op.input("X")[0]) is not None:
        raise IndexRangeError(f"entry {position} is read from {op.input('X')[0]}, which has {len(array)} entries")
    env.set(op.output("Out")[0], entry)


@runs("stack_array", "stack_array_like")
def stack_array(machine: Machine, op: Operator, env: Environment) -> None:
    block = block_of(env.get(op.input("X")[0]))
    like = array_of(env.get(op.input("Like")[0])) if op.input("Like") else None
    if block is not None and (like is None or len(like) <= len(block)):
        env.set(op.output("Out")[0], block.copy())
        return
    array = list(array_in(op, "X", env))
    if like is not None:
        array += [None] * (like.shape[0] - len(array))
    model = next((array_of(item) for item in array if item is not None), like[0] if like is not None and like.shape[0] else None)
    if model is None:
        env.set(op.output("Out")[0], _no_entries(machine.xp, op, like))
        return
    entries = [machine.xp.zeros_like(model) if item is None else array_of(item) for item in array]
    env.set(op.output("Out")[0], machine.xp.stack(entries))


@runs("unstack_array")
def unstack_array(machine: Machine, op: Operator, env: Environment) -> None:
    env.set(op.output("Out")[0], [item.copy() for item in array_of(tensor_in(op, "X", env))])


def _no_entries(xp: Any, op: Operator, like: Any) -> Any:
    """The stack of an array without entries, from a loop without trips; sizes of entries that are not known count as 0."""
    if like is not None:
        return xp.zeros_like(like)
    var = op.block.find_var(op.output("Out")[0])
    if var is None or not var.has_shape:
        raise ExecutionError(f"the array {op.input('X')[0]} has no entry to stack")
    return xp.zeros((0, *(max(size, 0) for size in var.shape[1:])), var.dtype.array_dtype)


@runs("tensor_array_to_tensor", "join_array")
def join_array(machine: Machine, op: Operator, env: Environment) -> None:
    name, axis, xp = op.input("X")[0], op.attr("axis"), machine.xp
    array = array_in(op, "X", env)
    like, block = array_in(op, "Like", env) if op.input("Like") else (), block_of(array)
    if block is not None and not axis and len(like) <= len(block):
        env.set(op.output("Out")[0], (block if op.attr("use_stack") else block.reshape(-1, *block.shape[2:])).copy())
        for sizes in op.output("OutIndex"):
            env.set(sizes, xp.full(len(block), block.shape[1], dtype="int32"))
        return
    items = list(array)
    if like:
        items += [None] * (len(like) - len(items))
        items = [zeros_like(xp, model) if item is None else item for item, model in zip(items, like, strict=True)]
    absent = [str(position) for position, item in enumerate(items) if item is None]
    if absent or not items:
        missing = f"no entry {', '.join(absent)}, of {len(items)}" if items else "no entries"
        raise ExecutionError(f"the array {name} has {missing}, so it cannot be made one tensor")
    entries = [array_of(item) for item in items]
    try:
        joined = xp.stack(entries, axis) if op.attr("use_stack") else xp.concatenate(entries, axis)
    except ValueError as error:
        shapes = ", ".join(str(list(entry.shape)) for entry in entries)
        raise ExecutionError(f"the entries of {name}, of shapes {shapes}, do not fit together: {error}") from None
    env.set(op.output("Out")[0], joined)
    axis %= joined.ndim
    for sizes in op.output("OutIndex"):
        env.set(sizes, xp.asarray([(*entry.shape, 1)[axis] for entry in entries], dtype="int32"))


@runs("split_array", "tensor_array_to_tensor_grad")
def split_array(machine: Machine, op: Operator, env: Environment) -> None:
    slots = ("X", "Like") if op.type == "split_array" else (grad_slot("Out"), "X")
    array, like, axis = array_of(tensor_in(op, slots[0], env)), array_in(op, slots[1], env), op.attr("axis")
    names = op.output("Out" if op.type == "split_array" else grad_slot("X"))
    block = block_of(like)
    if block is not None and not axis:
        for name in names:
            env.set(name, EntryList(array.reshape(block.shape).copy()))
        return
    parts, start, is_stack = [], 0, op.attr("use_stack")
    before = (slice(None),) * (axis % array.ndim)
    for item in like:
        shape = array_of(item).shape
        end = start + (1 if is_stack else shape[axis])
        parts.append(with_lod(array[(*before, slice(start, end))].reshape(shape).copy(), lod_of(item)))
        start = end
    for name in names:
        env.set(name, parts)


def _slice_of(op: Operator, length: int, env: Environment) -> slice:
    """The slice that an op selects from an array of this length."""

    def bound(attr: str, slot: str) -> int:
        names = op.inputs.get(f"{slot}TensorList") or op.inputs.get(f"{slot}Tensor") or []
        bounds: list[int] = [int(array_of(env.need(names[0])).item())] if names else op.attr(attr)
        if len(bounds) != 1:
            raise ExecutionError(
                f"{op.input('Input')[0]}, an array of tensors, is sliced by {len(bounds)} {attr}; it should be one"
            )
        return bounds[0]

    start = bound("starts", "Starts")
    if not op.attr("decrease_axis"):
        return slice(*slice(start, bound("ends", "Ends")).indices(length)[:2])
    if not -length <= start < length:
        raise IndexRangeError(f"entry {start} is taken from {op.input('Input')[0]}, which has {length} entries")
    return slice(start % length, start % length + 1)


@runs_on_arrays("slice")
def slice_array(machine: Machine, op: Operator, env: Environment) -> None:
    array = array_in(op, "Input", env)
    part = [copy(item) for item in array[_slice_of(op, len(array), env)]]
    env.set(op.output("Out")[0], part[0] if op.attr("decrease_axis") else part)


@runs_on_arrays("slice_grad")
def unslice_array(machine: Machine, op: Operator, env: Environment) -> None:
    """Set the gradients of the selected entries; other entries have none."""
    length, part = len(array_in(op, "Input", env)), env.get(op.input(grad_slot("Out"))[0])
    slice_, scattered = _slice_of(op, length, env), [None] * length
    entries = [part] if op.attr("decrease_axis") else list(part or ())
    scattered[slice_.start : slice_.start + len(entries)] = map(copy, entries)
    env.set(op.output(grad_slot("Input"))[0], scattered)


def _place(op: Operator, length: int) -> int:
    """The position given by the attribute `index`, in an array of this length."""
    index: int = op.attr("index")
    if not -length <= index < length:
        raise IndexRangeError(f"index {index} is not within the array {op.input('X')[0]}, which has {length} entries")
    return index % length


@runs("pop_from_array")
def pop_from_array(machine: Machine, op: Operator, env: Environment) -> None:
    array = array_in(op, "X", env)
    place = _place(op, len(array))
    env.set(op.output("Out")[0], array[place])
    env.set(op.output("Rest")[0], [*array[:place], *array[place + 1 :]])


@runs("insert_into_array")
def insert_into_array(machine: Machine, op: Operator, env: Environment) -> None:
    array, length = list(array_in(op, "X", env)), len(array_in(op, "Like", env))
    array += [None] * (length - 1 - len(array))
    array.insert(_place(op, length), copy(env.get(op.input("Entry")[0])))
    env.set(op.output("Out")[0], array)


@runs("fill_array_like")
def fill_array_like(machine: Machine, op: Operator, env: Environment) -> None:
    def filled(item: Any) -> Any:
        if item is None or isinstance(item, list):
            return item and [filled(part) for part in item]
        return with_lod(machine.xp.full_like(array_of(item), op.attr("value")), lod_of(item))

    env.set(op.output("Out")[0], filled(list(array_in(op, "X", env))))


@runs("lod_array_length")
def lod_array_length(machine: Machine, op: Operator, env: Environment) -> None:
    env.set(op.output("Out")[0], machine.xp.asarray([len(array_in(op, "X", env))], dtype="int64"))


# ------------------------------------------------------------------------------------------------------------ choosing
def _choice(op: Operator, env: Environment, count: int) -> int:
    choice = _integer(op, "Mask", env, "mask")
    if not 0 <= choice < count:
        raise ExecutionError(f"the mask {op.input('Mask')[0]} is {choice}, but there are {count} branches to choose from")
    return choice


@runs("select_input")
def select_input(machine: Machine, op: Operator, env: Environment) -> None:
    names = op.input("X")
    env.set(op.output("Out")[0], copy(env.get(names[_choice(op, env, len(names))])))


@runs("select_output")
def select_output(machine: Machine, op: Operator, env: Environment) -> None:
    value = env.get(op.input("X")[0])
    names = op.output("Out")
    chosen = _choice(op, env, len(names))
    for position, name in enumerate(names):
        if name != EMPTY:
            env.set(name, copy(value) if position == chosen else zeros_like(machine.xp, value))


@runs("feed", "fetch")
def edge(machine: Machine, op: Operator, env: Environment) -> None:
    """Do nothing: the executor feeds and fetches."""
