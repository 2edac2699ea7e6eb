"""What loops and branches make, found before they run: specs by inference over the blocks that ops own.

This is `control` over specs: each rule here mirrors a handler there. A loop is gone through until what is known of the
variables that it carries no longer changes; one that has not the same shape and element type on every trip is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fluid.errors import FluidError
from fluid.ir.program import Block, Operator
from fluid.ir.regions import REGIONS
from fluid.ir.renaming import inner_grad_names
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import EMPTY, grad_slot, updated_input
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .control import ARRAY_HANDLERS, HANDLERS
from .interpreter import declared_scalars

__all__ = ["UNKNOWN", "Fact", "Facts", "infer_op"]


@dataclass(frozen=True)
class Fact:
    """What is known of a value, whichever way the program goes.

    Attributes:
        spec: shape and element type of a tensor, or of the entries of an array of tensors; None if not known.
        made: whether it surely has been made; what only a branch makes may not have been.
        frame: of step scopes: what the names of a trip hold.
    """

    spec: Spec | None
    made: bool = True
    frame: Mapping[str, Fact] | None = None

    @property
    def is_array(self) -> bool:
        return self.spec is not None and self.spec.type is VarType.LOD_TENSOR_ARRAY

    @property
    def tensor(self) -> Spec | None:
        """The spec of a tensor of which every extent is known, or None."""
        return self.spec if self.spec is not None and self.spec.known else None


UNKNOWN = Fact(None, made=False)
_NO_ENTRIES = Spec((), VarType.RAW, VarType.LOD_TENSOR_ARRAY)
"""Of the entries of an array that has none."""

_MOST_ROUNDS = 20


def _either(a: Fact | None, b: Fact | None) -> Fact | None:
    """What is known of a value that is one of two; None stands for a value that was never made."""
    if a is None or b is None:
        found = a if b is None else b
        return None if found is None else replace(found, made=False)
    if a == b:
        return a
    spec = a.spec if a.spec == b.spec else None
    if a.is_array and b.is_array and _NO_ENTRIES in (a.spec, b.spec):
        spec = b.spec if a.spec == _NO_ENTRIES else a.spec
    frame = None
    if a.frame is not None and b.frame is not None:
        names = a.frame.keys() | b.frame.keys()
        frame = {name: found for name in names if (found := _either(a.frame.get(name), b.frame.get(name))) is not None}
    return Fact(spec, a.made and b.made, frame)


class Facts:
    """What is known of the names of a block while its ops are gone through; what is not found here is looked up outside."""

    def __init__(self, outside: Callable[[str], Fact | None], known: Mapping[str, Fact | None] | None = None) -> None:
        self.known: dict[str, Fact | None] = dict(known or {})
        self._outside = outside

    def get(self, name: str) -> Fact | None:
        """What is known of a name; None if it has no value."""
        return self.known[name] if name in self.known else self._outside(name)

    def set(self, names: str | list[str], fact: Fact | None) -> None:
        for name in [names] if isinstance(names, str) else names:
            if name != EMPTY:
                self.known[name] = fact


def infer_op(op: Operator, facts: Facts) -> None:
    """Put down what is known of the outputs of an op after it ran, given what is known of its inputs."""
    rule = _RULES.get(op.type)
    if rule is not None:
        rule(op, facts)
    elif op.type in HANDLERS:
        facts.set(op.output_arg_names, UNKNOWN)
    else:
        _infer_ordinary(op, facts)


def _infer_ordinary(op: Operator, facts: Facts) -> None:
    definition = op.definition
    found = {name: facts.get(name) for name in op.input_arg_names}  # before an output takes the name of an input
    if op.type in ARRAY_HANDLERS and any(fact is None or not fact.made or fact.is_array for fact in found.values()):
        facts.set(op.output_arg_names, _handed_on(op, list(found.values())))
        return
    # Any other op fails if an input was not made, so what it makes is made.
    facts.set(op.output_arg_names, Fact(None))
    for slot, names in op.outputs.items():  # what is updated stays what it is
        source = updated_input(definition, slot) if definition is not None else None
        if source is not None and names and op.inputs.get(source):
            facts.set(names, found[op.inputs[source][0]])
    tensors = {name: fact.tensor for name, fact in found.items() if fact is not None and fact.tensor is not None}
    if definition is None or len(tensors) < len(found):
        return
    inputs: dict[str, Any] = {}
    for slot, names in op.inputs.items():
        known = definition.inputs.get(slot)
        if known is not None and known.many:
            inputs[slot] = [tensors.get(name) for name in names]
        elif known is not None and names and names[0] != EMPTY:
            inputs[slot] = tensors[names[0]]
    try:
        made = infer_specs(definition, inputs, op.attrs, declared_scalars(op))
    except FluidError:
        return  # if this op is ever reached, it says why it cannot run
    for slot, outputs in op.outputs.items():
        specs_made = made.get(slot)
        for name, spec in zip(outputs, specs_made if isinstance(specs_made, list) else [specs_made], strict=False):
            facts.set(name, Fact(spec if spec is not None and spec.known else None))


def _handed_on(op: Operator, found: list[Fact | None]) -> Fact:
    """What is known of the output of an op that hands on arrays, and values that may not have been made."""
    if any(fact is None for fact in found):
        return UNKNOWN
    total = found[0]
    for fact in found[1:]:
        total = _either(total, fact)
    if total is None:
        return UNKNOWN
    if op.type == "fill_zeros_like" and total.is_array:
        return Fact(_NO_ENTRIES, total.made)
    return total


# ------------------------------------------------------------------------------------------------------------- blocks
_Rule = Callable[[Operator, Facts], None]
_RULES: dict[str, _Rule] = {}


def _rule(*op_types: str) -> Callable[[_Rule], _Rule]:
    def register(fn: _Rule) -> _Rule:
        for op_type in op_types:
            _RULES[op_type] = fn
        return fn

    return register


def _go_through(block: Block, outside: Callable[[str], Fact | None], known: Mapping[str, Fact | None] | None = None) -> Facts:
    inner = Facts(outside, known)
    for op in block.ops:
        infer_op(op, inner)
    return inner


def _until_stable(carried: dict[str, Fact | None], once: Callable[[dict[str, Fact | None]], Mapping[str, Fact | None]]) -> bool:
    """Widen `carried` by what `once` gives for it until that changes nothing; whether it came to that."""
    for _ in range(_MOST_ROUNDS):
        before = dict(carried)
        for name, fact in once(before).items():
            carried[name] = _either(before.get(name), fact)
        if carried == before:
            return True
    return False


def _frame(body: Block, inner: Facts, carried: Mapping[str, Fact | None]) -> dict[str, Fact]:
    """What gradient blocks may read of a trip."""
    found = {**carried, **{name: fact for name, fact in inner.known.items() if name in body.vars}}
    return {name: fact for name, fact in found.items() if fact is not None}


@_rule("while", "conditional_block")
def _infer_region(op: Operator, facts: Facts) -> None:
    region = REGIONS[op.type]
    body: Block = op.attr("sub_block")
    carried: dict[str, Fact | None] = {}
    inner = Facts(facts.get)

    def once(now: dict[str, Fact | None]) -> dict[str, Fact | None]:
        nonlocal inner
        inner = _go_through(body, lambda name: now[name] if name in now else facts.get(name))
        written = {name: fact for name, fact in inner.known.items() if name not in body.vars}
        for name in written:
            now.setdefault(name, facts.get(name))
        return written

    if region.loops:
        stable = _until_stable(carried, once)
    else:
        stable, written = True, once({})
        carried = {name: _either(facts.get(name), fact) for name, fact in written.items()}
    before = carried if region.loops else {name: facts.get(name) for name in carried}
    for name, fact in carried.items():
        facts.set(name, fact if stable else UNKNOWN)
    facts.set(op.output(region.scopes), Fact(None, True, _frame(body, inner, before) if stable else None))


@_rule("while_grad", "conditional_block_grad")
def _infer_region_grad(op: Operator, facts: Facts) -> None:
    region = REGIONS[op.type.removesuffix("_grad")]
    block: Block = op.attr("sub_block")
    outputs = op.output(grad_slot(region.inputs))
    scopes = facts.get(op.input(region.scopes)[0])
    if scopes is None or scopes.frame is None:
        facts.set(outputs, UNKNOWN)
        return
    frame = scopes.frame
    incoming = op.attrs.get("original_output_grad") or ()
    carry = dict(zip(incoming, map(facts.get, op.input(grad_slot("Out"))), strict=False))
    inner = Facts(facts.get)

    def once(now: dict[str, Fact | None]) -> dict[str, Fact | None]:
        nonlocal inner
        inner = _go_through(block, lambda name: frame[name] if name in frame else facts.get(name), now)
        return {name: inner.get(name) for name in now}

    carry |= {name: facts.get(name) for name in op.output("CarriedOut")}
    stable = _until_stable(carry, once)
    for name in op.output("CarriedOut"):
        facts.set(name, carry[name] if stable else UNKNOWN)
    if not stable:
        facts.set(outputs, UNKNOWN)
        return
    for name, inside, target in zip(op.input(region.inputs), inner_grad_names(op, region.inputs), outputs, strict=False):
        facts.set(target, carry[inside] if inside in carry else _part(inner.known.get(inside), facts.get(name)))


def _part(fact: Fact | None, like: Fact | None) -> Fact:
    """What is known of a gradient that is the sum of `fact` over trips, and zeros like `like` if there were none."""
    zeros = Fact(_NO_ENTRIES, like.made) if like is not None and like.is_array else like
    found = _either(fact, zeros) if fact is not None else zeros
    return UNKNOWN if found is None else replace(found, made=like is not None and like.made)


def _sliced(fact: Fact | None) -> Fact | None:
    spec = fact.tensor if fact is not None else None
    return Fact(spec.with_shape(spec.shape[1:])) if spec is not None and spec.shape else Fact(None)


def _stacked(fact: Fact | None, length: int) -> Fact:
    spec = fact.tensor if fact is not None and fact.made else None
    return Fact(spec.with_shape((length, *spec.shape)) if spec is not None and length > 0 else None)


def _length(facts: Facts, names: list[str]) -> int:
    """Number of slices of the first of these sequences, or -1 where it is not known."""
    fact = facts.get(names[0]) if names else None
    spec = fact.tensor if fact is not None else None
    return spec.shape[0] if spec is not None and spec.shape else -1


@_rule("recurrent")
def _infer_recurrent(op: Operator, facts: Facts) -> None:
    body: Block = op.attr("sub_block")
    states = list(zip(op.attr("ex_states"), op.attr("states"), strict=True))
    slices = {name: _sliced(facts.get(name)) for name in op.input("inputs")}
    carry = {ex: facts.get(first) for (ex, _), first in zip(states, op.input("initial_states"), strict=True)}
    inner = Facts(facts.get)

    def once(now: dict[str, Fact | None]) -> dict[str, Fact | None]:
        nonlocal inner
        inner = _go_through(body, facts.get, {**now, **slices})
        return {ex: inner.known.get(state) for ex, state in states}

    stable = _until_stable(carry, once)
    length = _length(facts, op.input("inputs"))
    for name in op.output("outputs"):
        facts.set(name, _stacked(inner.known.get(name), length) if stable else UNKNOWN)
    frame = {name: fact for name, fact in inner.known.items() if fact is not None}
    facts.set(op.output("step_scopes"), Fact(None, True, frame if stable else None))


@_rule("recurrent_grad")
def _infer_recurrent_grad(op: Operator, facts: Facts) -> None:
    block: Block = op.attr("sub_block")
    scopes = facts.get(op.input("step_scopes")[0])
    if scopes is None or scopes.frame is None:
        facts.set(op.output_arg_names, UNKNOWN)
        return
    frame = scopes.frame
    given = op.input(grad_slot("outputs"))
    pairs = [(inner, outer) for inner, outer in zip(op.attr("output_grads"), given, strict=True) if outer != EMPTY]
    slices = {inner: _sliced(facts.get(outer)) for inner, outer in pairs}
    states = list(zip(op.attr("state_grads"), op.attr("ex_state_grads"), op.input("initial_states"), strict=False))
    held = [name for name in op.output("CarriedOut") if name != EMPTY]
    carry = {state: facts.get(first) for state, _, first in states if state != EMPTY}
    carry |= {name: facts.get(name) for name in held}
    inner = Facts(facts.get)

    def once(now: dict[str, Fact | None]) -> dict[str, Fact | None]:
        nonlocal inner
        inner = _go_through(block, lambda name: frame[name] if name in frame else facts.get(name), {**now, **slices})
        found = {state: inner.known.get(ex) for state, ex, _ in states if state != EMPTY and ex != EMPTY}
        return found | {name: inner.known.get(name) for name in held}

    if not _until_stable(carry, once):
        facts.set(op.output_arg_names, UNKNOWN)
        return
    for name in held:
        facts.set(name, carry[name])
    length = _length(facts, [outer for _, outer in pairs])
    for slot, names in (
        ("inputs", op.attr("input_grads")),
        ("initial_states", op.attr("ex_state_grads")),
        ("parameters", op.attr("parameter_grads")),
    ):
        for outer, name, target in zip(op.input(slot), names, op.output(grad_slot(slot)), strict=False):
            if name == EMPTY:
                facts.set(target, facts.get(outer))
            else:
                fact = inner.known.get(name)
                facts.set(target, _stacked(fact, length) if slot == "inputs" else fact)


# ------------------------------------------------------------------------------------------------------------- arrays
@_rule("new_array")
def _infer_new_array(op: Operator, facts: Facts) -> None:
    facts.set(op.output("Out"), Fact(_NO_ENTRIES))


@_rule("write_to_array")
def _infer_write(op: Operator, facts: Facts) -> None:
    array, value = facts.get(op.output("Out")[0]), facts.get(op.input("X")[0])
    if op.attr("clears"):
        facts.set(op.output("Out"), Fact(_NO_ENTRIES if array is None else array.spec))
        return
    spec = value.tensor if value is not None else None
    written = Fact(None) if spec is None else Fact(replace(spec, type=VarType.LOD_TENSOR_ARRAY))
    found = written if array is None else _either(array, written)
    facts.set(op.output("Out"), Fact(found.spec if found is not None else None))


@_rule("read_from_array")
def _infer_read(op: Operator, facts: Facts) -> None:
    array = facts.get(op.input("X")[0])
    like = facts.get(op.input("X_W")[0]) if op.input("X_W") else None
    entry: Fact | None = UNKNOWN
    if array is not None and array.is_array and array.spec is not None and array.spec != _NO_ENTRIES:
        entry = Fact(replace(array.spec, type=VarType.LOD_TENSOR), made=False)  # it may never have been written
        if like is not None and like.tensor is not None:
            entry = Fact(entry.spec if entry.spec == like.tensor else None, like.made)
    elif (array is None or array.spec == _NO_ENTRIES) and like is not None:
        entry = like
    facts.set(op.output("Out"), entry)


@_rule("unstack_array")
def _infer_unstack(op: Operator, facts: Facts) -> None:
    found = _sliced(facts.get(op.input("X")[0]))
    spec = found.spec if found is not None else None
    facts.set(op.output("Out"), Fact(None if spec is None else replace(spec, type=VarType.LOD_TENSOR_ARRAY)))


@_rule("stack_array_like")
def _infer_stack_like(op: Operator, facts: Facts) -> None:
    like = facts.get(op.input("Like")[0])
    facts.set(op.output("Out"), Fact(like.tensor if like is not None else None))


@_rule("stack_array", "join_array", "tensor_array_to_tensor")
def _infer_joined(op: Operator, facts: Facts) -> None:
    facts.set(op.output_arg_names, Fact(None))  # as long as the array, which only running tells


@_rule("split_array", "tensor_array_to_tensor_grad")
def _infer_split(op: Operator, facts: Facts) -> None:
    is_split = op.type == "split_array"
    facts.set(op.output("Out" if is_split else grad_slot("X")), facts.get(op.input("Like" if is_split else "X")[0]))


@_rule("lod_array_length")
def _infer_length(op: Operator, facts: Facts) -> None:
    facts.set(op.output("Out"), Fact(Spec((1,), VarType.INT64)))


# ------------------------------------------------------------------------------------------------------------ choosing
@_rule("select_input")
def _infer_select_input(op: Operator, facts: Facts) -> None:
    found = [fact for name in op.input("X") if (fact := facts.get(name)) is not None]
    total: Fact | None = found[0] if found else None
    for fact in found[1:]:
        total = _either(total, fact)
    # The branch that the mask chooses is the one that ran.
    facts.set(op.output("Out"), UNKNOWN if total is None else replace(total, made=True))


@_rule("select_output")
def _infer_select_output(op: Operator, facts: Facts) -> None:
    facts.set(op.output("Out"), facts.get(op.input("X")[0]))


@_rule("print")
def _print(op: Operator, facts: Facts) -> None:
    facts.set(op.output("Out"), facts.get(op.input("In")[0]))


@_rule("py_func")
def _py_func(op: Operator, facts: Facts) -> None:
    for name in op.output("Out"):
        var = op.block.var(name)
        facts.set(name, Fact(var.spec if var.has_shape and var.has_dtype and var.spec.known else None))


@_rule("py_func_backward")
def _py_func_backward(op: Operator, facts: Facts) -> None:
    for name, source in zip(op.output("Out"), op.input("Like"), strict=True):
        fact = facts.get(source)
        facts.set(name, Fact(fact.spec if fact is not None else None))
