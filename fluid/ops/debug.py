"""Ops that act outside of the program: printing, and calling Python functions.

A program cannot hold a function, so it holds a number that stands for the function in this process. The numbers are random, so
that no program from a file can name one and call a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ExecutionError
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, define, like, long, required, strings

_functions: dict[int, Callable[..., Any]] = {}


def number_of(function: Callable[..., Any]) -> int:
    """A number that stands for `function` in this process, which keeps it from now on."""
    import secrets  # slow to import, and few programs need it

    number = 0
    while number in (0, *_functions):
        number = secrets.randbelow(2**31)
    _functions[number] = function
    return number


def function_of(number: int) -> Callable[..., Any]:
    """The function that `number` stands for; `ExecutionError` if there is none in this process."""
    if number not in _functions:
        raise ExecutionError(
            "this op calls a Python function, and programs from files or other processes cannot: build the program here, "
            "with layers.py_func"
        )
    return _functions[number]


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
    """A copy of In, which is printed in the first `first_n` runs (in all, if that is below 0).

    The `print_phase` is "FORWARD" to print the value, "BACKWARD" to print its gradient, or "BOTH". At most `summarize` elements
    are printed (all, if that is below 0).
    """
    return {"In": f.print(dOut, **{**attrs, "is_forward": False})}


@define("py_func(X*?) -> Out*", inline_grad=True, forward_callable_id=0, backward_callable_id=-1, backward_skip_vars=strings())
def py_func(f: Any, X: Any, Out: Any, dOut: Any, backward_callable_id: int, backward_skip_vars: list[str]) -> Any:
    """The result of a Python function of the arrays X. Its gradient is the result of another of X, Out and the gradients of Out.

    Variables named in `backward_skip_vars` are not passed to the second function. Without one, no gradient flows.
    """
    if backward_callable_id < 0:
        return {}
    passed = [value for value in (*X, *Out) if value.name not in backward_skip_vars]
    return {"X": lambda: f.py_func_backward([*passed, *dOut], X, callable_id=backward_callable_id)}


@define(
    "py_func_backward(X*, Like*) -> Out*",
    infer=lambda Like: list(Like),
    grad=NOT_DIFFERENTIABLE,
    shape_only=["Like"],
    callable_id=required("int"),
)
def py_func_backward() -> None:
    """The results of the Python function for the gradient of a `py_func`, shaped as the Likes; zeros for None."""


@define("assert(Cond: bool[one], Data*) -> ", grad=ZERO_GRADIENT, summarize=long(-1))
def assert_() -> None:
    """Stops the run with an error unless Cond holds. The error shows the first `summarize` elements (all, if that is below 0) of
    each of Data."""
