"""Ops that own blocks, arrays of tensors, and the ops at a program's edges.

`while`, `conditional_block` and `recurrent` list the outer variables that their block reads and writes; their gradient ops
also own a block (see `fluid.backward`). An array of tensors is a variable whose entries are tensors, or arrays in turn; an
entry that was never written counts as zeros.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import InferenceError
from ..ir.program import Operator
from ..ir.regions import Region, State, Taken, gradient_region
from ..opdef.registry import EMPTY, NOT_DIFFERENTIABLE, REGION, ZERO_GRADIENT, ShapeOnly, block, define, grad_slot, strings
from ..values.spec import Spec, agreed_sizes
from ..values.types import VarType

_SCOPES = Spec((), VarType.FP32, VarType.STEP_SCOPES)
_INDEX = Spec((1,), VarType.INT64)


def _scopes(slot: str) -> Any:
    return lambda: {slot: _SCOPES}


# ------------------------------------------------------------------------------------------------- blocks
def _loop(op: Operator) -> Region:
    return Region(
        op,
        op.attr("sub_block"),
        repeats=True,
        may_skip=True,
        writes=tuple(op.output("Out")),
        reads_slot="X",
        scopes_slot="StepScopes",
    )


def _branch(op: Operator) -> Region:
    return Region(
        op, op.attr("sub_block"), may_skip=True, writes=tuple(op.output("Out")), reads_slot="Input", scopes_slot="Scope"
    )


def _recurrence(op: Operator) -> Region:
    """In the block, a slice has the name of its sequence, and an output of a step the name of the stacked output."""
    states = zip(op.attr("ex_states"), op.attr("states"), op.input("initial_states"), strict=True)
    return Region(
        op,
        op.attr("sub_block"),
        repeats=True,
        slices=tuple((name, name) for name in op.input("inputs")),
        states=tuple(State(before, after, first) for before, after, first in states),
        stacked=tuple(Taken(name, name, name) for name in op.output("outputs")),
        reads_slot="parameters",
        scopes_slot="step_scopes",
    )


def _recurrence_gradient(op: Operator) -> Region:
    """Gradient ops that Paddle wrote do not list the names inside; there it is the variable's name with ``@GRAD``."""

    def inner(attr: str, names: list[str]) -> list[str]:
        listed: list[str] = op.attr(attr)
        return listed if "output_grads" in op.attrs else list(map(grad_slot, names))

    def outputs_of(slot: str, inner_names: list[str]) -> tuple[Taken, ...]:
        triples = zip(op.output(grad_slot(slot)), inner_names, op.input(slot), strict=False)
        return tuple(Taken(*triple) for triple in triples if triple[0] != EMPTY)

    pairs = zip(inner("output_grads", op.input("outputs")), op.input(grad_slot("outputs")), strict=True)
    ex_state_grads = inner("ex_state_grads", op.attr("ex_states"))
    states = zip(inner("state_grads", op.attr("states")), ex_state_grads, op.input("initial_states"), strict=False)
    return Region(
        op,
        op.attr("sub_block"),
        repeats=True,
        writes=tuple(name for name in op.output("CarriedOut") if name != EMPTY),
        slices=tuple((inner, outer) for inner, outer in pairs if outer != EMPTY),
        states=tuple(State(before, after, first, from_zero=True) for before, after, first in states),
        stacked=outputs_of("inputs", inner("input_grads", op.input("inputs"))),
        summed=outputs_of("parameters", inner("parameter_grads", op.input("parameters"))),
        final=outputs_of("initial_states", ex_state_grads),
        frames=op.input("step_scopes")[0],
    )


@define(
    "while(X*?, Condition) -> Out*, StepScopes?",
    infer=_scopes("StepScopes"),
    grad=REGION,
    region=_loop,
    sub_block=block(),
    is_test=False,
)
def while_() -> None:
    """Run the block as long as `Condition`, which the block updates, is true."""


@define(
    "while_grad(X*, Out*, Out@GRAD*?, StepScopes, Carried*?, Saved*?) -> X@GRAD*?, CarriedOut*?",
    grad=REGION,
    shape_only=("X",),
    region=gradient_region("X", "StepScopes"),
    gradient_of="while",
    sub_block=block(),
    original_output_grad=strings(),
    input_grads=strings(),
    is_test=False,
)
def while_grad() -> None:
    """Run the block of gradients once for each iteration of the loop, in reverse order."""


@define(
    "conditional_block(Cond*, Input*?) -> Out*?, Scope?",
    infer=_scopes("Scope"),
    grad=REGION,
    region=_branch,
    sub_block=block(),
    is_scalar_condition=False,
)
def conditional_block() -> None:
    """Run the block once if the condition is true (unless `is_scalar_condition`: if the tensors in Cond are not empty)."""


@define(
    "conditional_block_infer(Cond*, Input*?) -> Out*?, Scope?",
    infer=_scopes("Scope"),
    grad=NOT_DIFFERENTIABLE,
    region=_branch,
    sub_block=block(),
    is_scalar_condition=False,
)
def conditional_block_infer() -> None:
    """`conditional_block` in programs for inference, which keeps nothing for a gradient."""


@define(
    "conditional_block_grad(Cond*, Input*?, Out*, Out@GRAD*?, Scope, Carried*?, Saved*?) -> Input@GRAD*?, CarriedOut*?",
    grad=REGION,
    shape_only=("Input",),
    region=gradient_region("Input", "Scope"),
    gradient_of="conditional_block",
    sub_block=block(),
    original_output_grad=strings(),
    input_grads=strings(),
    is_scalar_condition=False,
)
def conditional_block_grad() -> None:
    """Run the block of gradients if the forward block ran."""


@define(
    "recurrent(inputs*?, initial_states*?, parameters*?) -> outputs*, step_scopes?",
    infer=_scopes("step_scopes"),
    grad=REGION,
    region=_recurrence,
    sub_block=block(),
    has_states=False,
    ex_states=strings(),
    states=strings(),
    reverse=False,
    is_train=True,
    skip_eager_deletion_vars=strings(),
)
def recurrent() -> None:
    """Run the block once for each slice of `inputs` along their first axis, and stack its results into `outputs`.

    At each step the variables named by `ex_states` hold the values of `states` after the previous step, and `initial_states`
    at the first step. `reverse` runs from the last slice to the first.
    """


@define(
    "recurrent_grad(inputs*?, initial_states*?, parameters*?, outputs*, outputs@GRAD*, step_scopes, step_scopes@GRAD?, "
    "Carried*?, Saved*?) -> inputs@GRAD*?, initial_states@GRAD*?, parameters@GRAD*?, CarriedOut*?",
    grad=REGION,
    region=_recurrence_gradient,
    gradient_of="recurrent",
    sub_block=block(),
    output_grads=strings(),
    state_grads=strings(),
    ex_state_grads=strings(),
    input_grads=strings(),
    parameter_grads=strings(),
    has_states=False,
    ex_states=strings(),
    states=strings(),
    reverse=False,
    is_train=True,
    skip_eager_deletion_vars=strings(),
)
def recurrent_grad() -> None:
    """Run the block of gradients once for each step, in reverse order; its attributes name gradients inside the block."""


# ------------------------------------------------------------------------------------------------- choosing
def _infer_select_input(X: list[Spec]) -> Spec:
    first = X[0]
    for candidate in X[1:]:
        if len(candidate.shape) == len(first.shape):
            first = first.with_shape(agreed_sizes(first.shape, candidate.shape))
    return first


@define("select_input(X*, Mask) -> Out", infer=_infer_select_input, wrt=["X"], inline_grad=True)
def select_input(f, X: ShapeOnly, Mask, dOut):  # type: ignore[no-untyped-def]
    """The one of `X` whose position `Mask` holds."""
    return {"X": lambda: f.select_output(dOut, Mask)}


@define("select_output(X, Mask) -> Out*", infer=lambda X: ([X, X],), wrt=["X"], inline_grad=True)
def select_output(f, X: ShapeOnly, Mask, dOut):  # type: ignore[no-untyped-def]
    """`X` at the position that `Mask` holds, zeros at the other."""
    return {"X": f.select_input(dOut, Mask)}


# ------------------------------------------------------------------------------------------------- arrays
def _as_array(X: Spec) -> Spec:
    return replace(X, type=VarType.LOD_TENSOR_ARRAY)


def _new_array(dtype: int) -> Spec:
    return Spec((), VarType(dtype), VarType.LOD_TENSOR_ARRAY)


def _entry(X: Spec, X_W: Spec | None) -> Spec:
    return X_W if X_W is not None else replace(X, type=VarType.LOD_TENSOR)


@define("write_to_array(X, I) -> Out&", infer=_as_array, inline_grad=True, wrt=["X", "Out"], clears=False)
def write_to_array(f, X: ShapeOnly, I, dOut):  # type: ignore[no-untyped-def]
    """Write `X` to position `I` (int64 of one element) of the array `Out`, which grows as needed.

    With `clears`, `X` is zeros, and the entry is removed, which counts as zeros of any shape. Paddle, which lacks this
    attribute, writes the zeros.
    """
    return {
        "X": lambda: f.read_from_array(dOut, I, X_W=X),
        "Out": lambda: f.write_to_array(f.fill_zeros_like(X), I, Out=dOut, clears=True),
    }


@define("read_from_array(X, I, X_W?) -> Out", infer=_entry, inline_grad=True, wrt=["X"])
def read_from_array(f, I, dOut):  # type: ignore[no-untyped-def]
    """The entry at position `I` of the array `X`; if there is none, zeros like `X_W`, if that is given."""
    return {"X": f.write_to_array(dOut, I)}


@define("new_array() -> Out", infer=_new_array, grad=ZERO_GRADIENT, dtype=int(VarType.FP32))
def new_array() -> None:
    """An array without entries."""


@define("stack_array(X) -> Out", infer=lambda X: Spec((-1, *X.shape), X.dtype), inline_grad=True)
def stack_array(f, dOut):  # type: ignore[no-untyped-def]
    """The entries of the array `X` as one tensor, along a new first axis."""
    return {"X": f.unstack_array(dOut)}


@define("unstack_array(X) -> Out", infer=lambda X: Spec(X.shape[1:], X.dtype, VarType.LOD_TENSOR_ARRAY), inline_grad=True)
def unstack_array(f, X: ShapeOnly, dOut):  # type: ignore[no-untyped-def]
    """The slices of `X` along its first axis, as an array."""
    return {"X": f.stack_array_like(dOut, X)}


@define("stack_array_like(X, Like) -> Out", infer=lambda Like: Like, shape_only=["Like"], wrt=["X"], inline_grad=True)
def stack_array_like(f, dOut):  # type: ignore[no-untyped-def]
    """As `stack_array`, with the shape of `Like`; missing entries are zeros."""
    return {"X": f.unstack_array(dOut)}


def _joined(X: Spec, axis: int, use_stack: bool) -> Spec | None:
    """The spec of the joined entries of an array; None if nothing is known of them."""
    rank = X.ndim + use_stack
    if X.ndim == 0 and not (use_stack and axis in (-1, 0)):
        return None
    if not -rank <= axis < rank:
        how = "stacked" if use_stack else "concatenated"
        raise InferenceError(f"tensor_array_to_tensor: axis {axis} does not fit entries of {X.ndim} dimensions that are {how}")
    shape = list(X.shape)
    shape[axis % rank : axis % rank + (not use_stack)] = [-1]
    return Spec(tuple(shape), X.dtype)


def _joined_with_sizes(X: Spec, axis: int, use_stack: bool) -> tuple[Spec | None, Spec]:
    return _joined(X, axis, use_stack), Spec((-1,), VarType.INT32)


@define("tensor_array_to_tensor(X) -> Out, OutIndex", infer=_joined_with_sizes, axis=0, use_stack=False)
def tensor_array_to_tensor(f: Any, X: Any, dOut: Any, axis: int, use_stack: bool) -> Any:
    """The entries of the array `X` as one tensor, concatenated along `axis` or, with `use_stack`, stacked along a new one.

    OutIndex, int32 [entries], has the size of each entry along `axis`; 1 where `use_stack` adds `axis` behind the last one.
    """
    return {"X": f.split_array(dOut, X, axis=axis, use_stack=use_stack)}


@define("split_array(X, Like) -> Out", infer=lambda Like: Like, wrt=["X"], inline_grad=True, axis=0, use_stack=False)
def split_array(f: Any, Like: Any, dOut: Any, axis: int, use_stack: bool) -> Any:
    """The inverse of `tensor_array_to_tensor`: X as an array of entries shaped like the entries of the array `Like`."""
    return {"X": f.join_array(dOut, Like, axis=axis, use_stack=use_stack)}


@define(
    "join_array(X, Like) -> Out",
    infer=lambda Like, axis, use_stack: _joined(Like, axis, use_stack),
    wrt=["X"],
    inline_grad=True,
    axis=0,
    use_stack=False,
)
def join_array(f: Any, Like: Any, dOut: Any, axis: int, use_stack: bool) -> Any:
    """As `tensor_array_to_tensor`; missing entries of the array X are zeros shaped like the entries of the array `Like`."""
    return {"X": f.split_array(dOut, Like, axis=axis, use_stack=use_stack)}


@define("pop_from_array(X) -> Rest, Out", infer=lambda X: (X, _entry(X, None)), inline_grad=True, wrt=["X"], index=-1)
def pop_from_array(f: Any, X: ShapeOnly, dRest: Any, dOut: Any, index: int) -> Any:
    """The entry of the array `X` at `index`, counted from the end if that is negative, and the array without it."""
    return {"X": f.insert_into_array(dRest, dOut, X, index=index)}


@define("insert_into_array(X, Entry, Like) -> Out", infer=lambda Like: Like, grad=NOT_DIFFERENTIABLE, index=-1)
def insert_into_array() -> None:
    """The array, as long as `Like`, that has become `X` when `Entry` was popped from it."""


@define("fill_array_like(X) -> Out", infer=lambda X: X, grad=ZERO_GRADIENT, value=0.0)
def fill_array_like() -> None:
    """An array with entries like `X`, of the same number, shapes and types, filled with `value`."""


@define("lod_array_length(X) -> Out", infer=lambda X: _INDEX, grad=ZERO_GRADIENT)
def lod_array_length() -> None:
    """The number of entries of the array, as int64 of one element."""


# ------------------------------------------------------------------------------------------------- edges
@define("feed(X) -> Out", grad=ZERO_GRADIENT, col=0)
def feed() -> None:
    """Marks the variable that is input number `col` of a saved inference model."""


@define("fetch(X) -> Out", grad=NOT_DIFFERENTIABLE, col=0)
def fetch() -> None:
    """Marks the variable that is output number `col` of a saved inference model."""
