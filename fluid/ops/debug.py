"""Ops that reach outside of the program: printing, and calling Python functions.

A function is no data, so a program holds a number that stands for it in this process. The numbers are drawn at random: no
program from a file can name one, and so no file can have a function called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ExecutionError
from ..opdef.registry import NOT_DIFFERENTIABLE, define, like, required, strings

_functions: dict[int, Callable[..., Any]] = {}


def number_of(function: Callable[..., Any]) -> int:
    """A number by which ops of this process can name `function`, which is kept from now on."""
    import secrets  # it loads much, for what few programs do

    number = 0
    while number in (0, *_functions):
        number = secrets.randbelow(2**31)
    _functions[number] = function
    return number


def function_of(number: int) -> Callable[..., Any]:
    """The function that `number` names; `ExecutionError` if it does not name one of this process."""
    found = _functions.get(number)
    if found is None:
        raise ExecutionError(
            "this op calls a Python function, and programs from files or other processes cannot: build the program here, "
            "with layers.py_func"
        )
    return found


@define(
    "print(In) -> Out",
    infer=like("In"),
    inline_grad=True,
    first_n=-1,
    message="",
    summarize=20,
    print_tensor_name=True,
    print_tensor_type=True,
    print_tensor_shape=True,
    print_tensor_layout=True,
    print_tensor_lod=True,
    print_phase="BOTH",
    is_forward=True,
)
def print_(f: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """A copy of In, which is printed on the way, the first `first_n` times (always, if that is below 0).

    The `print_phase` "FORWARD" prints the value alone, "BACKWARD" its gradient alone, "BOTH" both. At most `summarize` elements
    are shown, all if that is below 0.
    """
    return {"In": f.print(dOut, **{**attrs, "is_forward": False})}


@define("py_func(X*) -> Out*", inline_grad=True, forward_callable_id=0, backward_callable_id=-1, backward_skip_vars=strings())
def py_func(f: Any, X: Any, Out: Any, dOut: Any, backward_callable_id: int, backward_skip_vars: list[str]) -> Any:
    """What a Python function gives for the arrays X. Its gradient is what another gives for X, Out and the gradients of Out.

    Variables named in `backward_skip_vars` are left out there. Without a second function no gradient flows.
    """
    if backward_callable_id < 0:
        return {}
    kept = [value for value in (*X, *Out) if value.name not in backward_skip_vars]
    return {"X": lambda: f.py_func_backward([*kept, *dOut], X, callable_id=backward_callable_id)}


@define(
    "py_func_backward(X*, Like*) -> Out*",
    infer=lambda Like: list(Like),
    grad=NOT_DIFFERENTIABLE,
    shape_only=["Like"],
    callable_id=required("int"),
)
def py_func_backward() -> None:
    """What the Python function that computes the gradient of a `py_func` gives, shaped as the Likes; zeros for None."""
