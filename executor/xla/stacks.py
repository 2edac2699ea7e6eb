"""Arrays of tensors whose length or positions are known only at run time.

With positions known at trace time, an array of tensors is a list, as on other engines. A write at a traced position turns it into
a `Stack`: all entries have one form, and each leaf is stacked along a new first axis with a fixed room.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import jax
from jax import numpy as jnp

from fluid.errors import ExecutionError, IndexRangeError, locate
from fluid.ir.program import Operator
from fluid.values.lod_array import array_of

from ..stepwise.handlers import HANDLERS
from ..stepwise.interpreter import Environment
from .arrays import wrap
from .tracing import XlaTracer, traces
from .trees import Form, ShapesVary, flatten, form_of, unflatten, zeros_of


@jax.tree_util.register_pytree_node_class
class Stack:
    """An array of tensors, or of arrays in turn.

    Attributes:
        tree: the tree of an entry.
        leaves: the leaves of all entries, each of shape [room, ...]; entries that were never stored are zero.
        length: the number of entries, an int or a traced int32; it exceeds the room if entries were dropped.
    """

    __slots__ = ("leaves", "length", "tree")

    def __init__(self, tree: Any, leaves: Sequence[Any], length: Any) -> None:
        self.tree, self.leaves, self.length = tree, list(leaves), length

    def tree_flatten(self) -> tuple[Any, Any]:
        is_static = isinstance(self.length, int)
        return (self.leaves, None if is_static else self.length), (self.tree, self.length if is_static else None)

    @classmethod
    def tree_unflatten(cls, static: Any, parts: Any) -> Stack:
        return cls(static[0], parts[0], parts[1] if static[1] is None else static[1])

    @classmethod
    def of(cls, values: Sequence[Any], like: Any, room: int) -> Stack:
        """Stack the entries of a list, in the form of `like`; None becomes zeros."""
        entries = [fit(value, like) for value in values]
        like = reduce(lambda model, entry: fit(model, entry), entries, like)
        entries = [fit(entry, like) for entry in entries]
        form = form_of(like)
        for entry in entries:
            if form_of(entry) != form:
                raise ShapesVary(f"an array has entries of the shapes {form_of(entry)} and {form}")
        blank = [jnp.zeros((max(room - len(entries), 0), *shape), dtype) for shape, dtype in form.leaves]
        parts = [flatten(entry)[0] for entry in entries]
        stacked = [jnp.stack(leaves) for leaves in zip(*parts, strict=True)] if parts else [leaf[:0] for leaf in blank]
        return cls(form.tree, [jnp.concatenate(pair) for pair in zip(stacked, blank, strict=True)], len(entries))

    @property
    def room(self) -> int:
        return int(self.leaves[0].shape[0]) if self.leaves else 0

    @property
    def form(self) -> Form:
        """The form of an entry."""
        return Form(self.tree, tuple((tuple(leaf.shape[1:]), leaf.dtype) for leaf in self.leaves))

    def with_room(self, room: int) -> Stack:
        """The same entries in arrays with room for at least `room` entries."""
        more = room - self.room
        if more <= 0:
            return self
        return Stack(self.tree, [jnp.pad(leaf, [(0, more)] + [(0, 0)] * (leaf.ndim - 1)) for leaf in self.leaves], self.length)

    def with_entries_like(self, like: Any) -> Stack:
        """The same entries, with nested stacks enlarged to the room of the stacks in `like`."""
        form = form_of(fit(zeros_of(self.form), like))
        if form == self.form:
            return self
        leaves = jax.vmap(lambda *leaves: flatten(fit(unflatten(self.tree, leaves), like))[0])(*self.leaves)
        return Stack(form.tree, leaves, self.length)

    def of_traced_length(self) -> Stack:
        return Stack(self.tree, self.leaves, jnp.asarray(self.length, jnp.int32))

    def entry(self, position: Any) -> Any:
        """The entry at a position; zeros where there is none."""
        return unflatten(self.tree, [leaf.at[position].get(mode="fill", fill_value=0) for leaf in self.leaves])

    def with_entry(self, position: Any, value: Any) -> Stack:
        """A copy with `value` at a position, or zeros for None; dropped if the position exceeds the room."""
        value = zeros_of(self.form) if value is None else value
        stack = self.with_entries_like(value)
        value = fit(value, zeros_of(stack.form))
        if form_of(value) != stack.form:
            raise ShapesVary(f"an array has entries of the shapes {form_of(value)} and {stack.form}")
        leaves = [leaf.at[position].set(new, mode="drop") for leaf, new in zip(stack.leaves, flatten(value)[0], strict=True)]
        both = isinstance(position, int) and isinstance(stack.length, int)
        return Stack(stack.tree, leaves, max(stack.length, position + 1) if both else jnp.maximum(stack.length, position + 1))

    def entries(self, count: int) -> list[Any]:
        """The first entries, as a list."""
        stack = self.with_room(count)
        return [unflatten(stack.tree, [leaf[number] for leaf in stack.leaves]) for number in range(count)]

    def copy(self) -> Stack:
        return self


def fit(value: Any, like: Any) -> Any:
    """Convert a value to the form of `like`, if it has several forms: None to zeros, an array of tensors to a stack with the
    same room."""
    if value is None:
        return None if like is None else zeros_of(form_of(like))
    if not isinstance(like, Stack) or not isinstance(value, (list, Stack)):
        return value
    blank = zeros_of(like.form)
    stack = value if isinstance(value, Stack) else Stack.of(value, blank, like.room)
    stack = stack.with_room(like.room).with_entries_like(blank)
    return stack if stack.length is like.length or _same_int(stack.length, like.length) else stack.of_traced_length()


def _same_int(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a == b


def add(left: Stack, right: Stack) -> Stack:
    """The sum of two stacks, entry by entry."""
    left, right = fit(left, right), fit(right, left)
    leaves = [a + b for a, b in zip(left.leaves, right.leaves, strict=True)]
    return Stack(
        left.tree, leaves, left.length if _same_int(left.length, right.length) else jnp.maximum(left.length, right.length)
    )


# -------------------------------------------------------------------------------------------- ops on arrays of tensors
def _position(op: Operator, env: Environment) -> Any:
    """The position in slot I: an int if it is known while tracing, otherwise a jax value."""
    value = array_of(env.need(op.input("I")[0]))
    return int(value.item()) if value.is_known else value.read().reshape(()).astype(jnp.int32)


def _first_present(*values: Any) -> Any:
    """The first value that is not None, in values and lists of values."""
    return next((item for value in values for item in (value if isinstance(value, list) else [value]) if item is not None), None)


@traces("write_to_array")
def write_to_array(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    (name,), position = op.output("Out"), _position(op, env)
    array, source = env.get(name), env.get(op.input("X")[0])
    is_known = isinstance(position, int)
    if is_known and not isinstance(array, Stack):
        HANDLERS[op.type](tracer, op, env)
        return
    value = None if op.attr("clears") else source
    if not isinstance(array, Stack):
        like = value if value is not None else _first_present(array or [], [source])
        if like is None:
            return  # zeros of an unknown shape, in an array without entries
        array = Stack.of(array or (), like, 0)
    bound = position + 1 if is_known else tracer.lengths.get(op)
    if bound is None:
        room = tracer.sizes.room(op, max(tracer.trips_around + 1, array.room))
        tracer.sizes.met(op, position + 1)
    else:
        room = bound
    env.set(name, array.with_room(room).with_entry(position, value))


@traces("read_from_array")
def read_from_array(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    (name,), position = op.input("X"), _position(op, env)
    array = env.get(name)
    if isinstance(position, int) and not isinstance(array, Stack):
        HANDLERS[op.type](tracer, op, env)
        return
    if not isinstance(array, Stack):
        like = _first_present(array or [], [env.get(source) for source in op.input("X_W")])
        if like is None:
            raise ExecutionError(f"an entry is read from {name}, which has none")
        array = Stack.of(array or (), like, 1)
    if tracer.checks_values and not op.input("X_W"):
        tracer.host.add_check(partial(_check_position, op), jnp.asarray(position), jnp.asarray(array.length))
    env.set(op.output("Out")[0], array.entry(position))


def _check_position(op: Operator, position: Any, length: Any) -> None:
    if position >= length:
        raise IndexRangeError(f"entry {position} is read from {op.input('X')[0]}, which has {length} entries\n{locate(op)}")


@traces("lod_array_length")
def lod_array_length(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    array = env.get(op.input("X")[0])
    if isinstance(array, Stack) and not isinstance(array.length, int):
        env.set(op.output("Out")[0], wrap(array.length.astype(jnp.int64).reshape(1)))
    else:
        length = array.length if isinstance(array, Stack) else len(array or ())
        env.set(op.output("Out")[0], tracer.xp.asarray([length], dtype="int64"))


@traces("stack_array_like")
def stack_array_like(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    array = env.get(op.input("X")[0])
    if not isinstance(array, Stack):
        HANDLERS[op.type](tracer, op, env)
        return
    count = array_of(env.need(op.input("Like")[0])).shape[0]
    env.set(op.output("Out")[0], wrap(_one_leaf(array.with_room(count))[:count]))


@traces("stack_array")
def stack_array(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    array = env.get(op.input("X")[0])
    if not isinstance(array, Stack):
        HANDLERS[op.type](tracer, op, env)
        return
    count = _length(tracer, op, array)
    env.set(op.output("Out")[0], wrap(_one_leaf(array.with_room(count))[:count]))


def _one_leaf(stack: Stack) -> Any:
    (leaf,) = stack.leaves
    return leaf


def _length(tracer: XlaTracer, op: Operator, stack: Stack) -> int:
    """The length of a stack; a traced length is assumed (see `Sizes`)."""
    return stack.length if isinstance(stack.length, int) else tracer.sizes.exact(op, stack.length, stack.room)


@traces("tensor_array_to_tensor", "join_array", "split_array", "tensor_array_to_tensor_grad")
def on_lists(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    """Run an op whose shapes depend on the lengths of arrays."""
    stacks = {name: value for name in op.input_arg_names if isinstance(value := env.get(name), Stack)}
    HANDLERS[op.type](
        tracer, op, _ReadOverlay(env, {name: stack.entries(_length(tracer, op, stack)) for name, stack in stacks.items()})
    )


class OverlayEnvironment(Environment):
    """Local values over another environment: writes stay local, and reads of missing names fall through."""

    __slots__ = ("_env",)

    def __init__(self, env: Environment, values: dict[str, Any]) -> None:
        super().__init__(env.block, None, values)
        self._env = env

    def _look_up_outside(self, name: str) -> Any:
        return self._env.get(name)


class _ReadOverlay(OverlayEnvironment):
    """An environment where reads of some names return replacement values; writes go to the original."""

    def set(self, name: str, value: Any) -> None:
        self._env.set(name, value)


# ---------------------------------------------------------------------------------------------- ordinary ops on stacks
def _assign(op: Operator, stacks: list[Stack]) -> Any:
    return stacks[0]


def _sum(op: Operator, stacks: list[Stack]) -> Any:
    return reduce(add, stacks)


def _fill_zeros_like(op: Operator, stacks: list[Stack]) -> Any:
    return []


def _scale(op: Operator, stacks: list[Stack]) -> Any:
    (stack,) = stacks
    return Stack(stack.tree, [leaf * leaf.dtype.type(op.attr("scale")) for leaf in stack.leaves], stack.length)


_ON_STACKS = {"assign": _assign, "fill_zeros_like": _fill_zeros_like, "scale": _scale, "sum": _sum}


@traces(*_ON_STACKS)
def on_stacks(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    """Run an ordinary op whose inputs may be stacks."""
    values = [value for name in op.input("X") if (value := env.get(name)) is not None]
    stack = next((value for value in values if isinstance(value, Stack)), None)
    if stack is None:
        tracer.trace_kernel(op, env)
    else:
        env.set(op.output("Out")[0], _ON_STACKS[op.type](op, [fit(value, stack) for value in values]))
