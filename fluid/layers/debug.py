"""Layers with effects outside the program: printing, and calling Python functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..building.layer_helper import apply, listed
from ..errors import FluidTypeError, ProgramError
from ..ir.checked import check_variable
from ..ir.program import Operator, Variable, default_main_program
from ..ops.debug import number_of

__all__ = ["Assert", "Print", "py_func"]


def Assert(cond: Variable, data: Sequence[Variable] | None = None, summarize: int = 20, name: str | None = None) -> Operator:
    """Stops the run with an error unless `cond` holds, and returns the op that does.

    Args:
        cond: one bool.
        data: variables that the error shows.
        summarize: number of elements to show of each at most; negative for all.

    Raises:
        ExecutionError: in the run, where `cond` does not hold.

    >>> x = fluid.data("x", [None])
    >>> op = layers.Assert(layers.reduce_all(x > 0.0), [x])
    >>> fluid.Executor().run(feed={"x": np.array([1.0, 2.0], "float32")}, fetch_list=[x])
    [array([1., 2.], dtype=float32)]
    """
    for value, argument in ((cond, "cond"), *((var, "data") for var in data or ())):
        check_variable(value, f"Assert: {argument}")
    block = default_main_program().current_block()
    return block.append_op("assert", {"Cond": cond, "Data": list(data or ())}, {}, {"summarize": summarize})


def Print(
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Variable:
    """A copy of `input` that is printed in every run. Use the copy, so that its gradient is printed too.

    In eager mode, printing happens at once, and `first_n` limits it for each line of the user's code.

    Args:
        input: a tensor of any type and shape.
        first_n: how often to print at most; negative for no limit.
        message: printed before the tensor.
        summarize: number of elements to print at most; negative for all.
        print_tensor_name, print_tensor_type, print_tensor_shape, print_tensor_lod: whether to print these, too.
        print_phase: ``"forward"`` to print the value, ``"backward"`` the gradient, ``"both"`` for both.

    Raises:
        ProgramError: for another `print_phase`.

    >>> _ = layers.Print(fluid.dygraph.to_variable([1.0, 2.0]), message="loss", print_tensor_name=False, print_tensor_lod=False)
      - message: loss
      - shape: [2]
      - dtype: float32
      - data: [1.0 2.0]
    """
    if print_phase not in ("forward", "backward", "both"):
        raise ProgramError(f"Print: print_phase should be 'forward', 'backward' or 'both', not {print_phase!r}")
    attrs: dict[str, Any] = {
        "first_n": first_n,
        "message": message or "",
        "summarize": summarize,
        "print_tensor_name": print_tensor_name,
        "print_tensor_type": print_tensor_type,
        "print_tensor_shape": print_tensor_shape,
        "print_tensor_lod": print_tensor_lod,
        "print_phase": print_phase.upper(),
    }
    return apply("print", {"In": input}, attrs)


def py_func(
    func: Callable[..., Any],
    x: Variable | Sequence[Variable] | None,
    out: Variable | Sequence[Variable] | None,
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: Any = None,
) -> Any:
    """Calls a Python function when the program runs; returns `out`.

    In eager mode the function is called at once, and its results are written to the tensors `out`, which must have their shapes
    and element types (a tensor from `create_tensor` takes any shape). The function exists in this process only: a program that is
    saved and loaded elsewhere cannot call it.

    Args:
        func: called with the numpy arrays of `x`; returns one for each of `out`.
        x: a variable, or a list of them.
        out: a variable, or a list of them; create them first, with shapes and element types.
        backward_func: called with the arrays of `x`, of `out`, and the gradients of `out`; returns a gradient or None for each of
            `x`. Without it, no gradient flows to `x`.
        skip_vars_in_backward_input: variables of `x` and `out` that `backward_func` is not called with.

    Raises:
        FluidTypeError: if `func` or `backward_func` is no function.
        ProgramError: if a variable of `out` has no shape or element type.

    >>> out = fluid.dygraph.to_variable([0.0, 0.0])
    >>> layers.py_func(np.cumsum, fluid.dygraph.to_variable([1.0, 2.0]), out)
    Tensor([1., 3.], shape=[2], dtype=float32)
    """
    for name, function in (("func", func), ("backward_func", backward_func)):
        if not callable(function) and not (function is None and name == "backward_func"):
            raise FluidTypeError(f"py_func: {name} should be a function, not {type(function).__name__}")
    inputs, outputs = ([] if value is None else listed(value) for value in (x, out))
    for argument, variables in (("x", inputs), ("out", outputs)):
        for var in variables:
            check_variable(var, f"py_func: {argument}")
    for var in outputs:
        if not var.has_shape or not var.has_dtype:
            raise ProgramError(f"py_func: {var.name}, of out, should have been made with a shape and an element type")
    skipped = [] if skip_vars_in_backward_input is None else listed(skip_vars_in_backward_input)
    skipped = [var.name if isinstance(var, Variable) else str(var) for var in skipped]
    names = [var.name for var in (*inputs, *outputs)]
    for name in skipped:
        if name not in names:
            raise ProgramError(f"py_func: {name} is to be skipped, but is neither in x nor in out ({', '.join(names)})")
    attrs: dict[str, Any] = {"forward_callable_id": number_of(func)}
    if backward_func is not None:
        attrs["backward_callable_id"] = number_of(backward_func)
        attrs["backward_skip_vars"] = skipped
    default_main_program().current_block().append_op("py_func", {"X": inputs}, {"Out": outputs}, attrs)
    return out
