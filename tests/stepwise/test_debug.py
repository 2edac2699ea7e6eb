"""Printing, and calling Python functions, when a program runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.errors import ExecutionError, FluidTypeError, ProgramError
from fluid.executor.runtime.scope import Scope
from fluid.ir.program import Program

X = np.float32([[1, 2, 3], [4, 5, 6]])


@pytest.fixture
def x(program: Any) -> Any:
    found = layers.data("x", [2, 3], append_batch_size=False)
    found.stop_gradient = False
    return found


@pytest.fixture
def program() -> Any:
    main = Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, Program()):
        yield main


def run(program: Any, *fetch: Any, feed: Any = None, interpret: bool = False) -> list[Any]:
    executor = fluid.Executor()
    call = executor.interpret if interpret else executor.run
    return call(program, {"x": X} if feed is None else feed, list(fetch), scope=Scope())


# ------------------------------------------------------------------------------------------------------------ printing
@pytest.mark.parametrize("interpret", [False, True])
def test_print_shows_the_value_and_its_gradient(program: Any, x: Any, capsys: Any, interpret: bool) -> None:
    y = layers.Print(layers.scale(x, 2.0), message="doubled", summarize=2)
    (dx,) = fluid.gradients(layers.reduce_sum(layers.square(y)), x)
    found = run(program, y, dx, interpret=interpret)
    np.testing.assert_array_equal(found[0], 2 * X)
    np.testing.assert_array_equal(found[1], 8 * X)
    shown = capsys.readouterr().out
    assert "Variable: scale_0.tmp_0\n  - message: doubled\n  - lod: []\n  - shape: [2, 3]\n  - dtype: float32\n" in shown
    assert "  - data: [2.0 4.0 ...]\n" in shown
    assert "@GRAD" in shown and "  - data: [4.0 8.0 ...]\n" in shown


def test_print_runs_where_nobody_wants_its_output(program: Any, x: Any, capsys: Any) -> None:
    layers.Print(x, print_tensor_name=False, print_tensor_lod=False, print_tensor_shape=False, print_tensor_type=False)
    run(program, layers.reduce_sum(x))
    assert capsys.readouterr().out == "  - data: [1.0 2.0 3.0 4.0 5.0 6.0]\n"


@pytest.mark.parametrize(("phase", "count"), [("forward", 1), ("backward", 1), ("both", 2)])
def test_print_phase(program: Any, x: Any, capsys: Any, phase: str, count: int) -> None:
    (dx,) = fluid.gradients(layers.reduce_sum(layers.Print(x, print_phase=phase)), x)
    run(program, dx)
    assert capsys.readouterr().out.count("Variable:") == count


def test_print_first_n_times(program: Any, x: Any, capsys: Any) -> None:
    y = layers.Print(x, first_n=2)
    executor, scope = fluid.Executor(), Scope()
    for _ in range(4):
        executor.run(program, {"x": X}, [y], scope=scope)
    assert capsys.readouterr().out.count("Variable: x") == 2


def test_print_in_a_loop(program: Any, x: Any, capsys: Any) -> None:
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    condition = layers.less_than(i, n)
    loop = layers.While(condition)
    with loop.block():
        layers.Print(i)
        layers.increment(i)
        layers.less_than(i, n, cond=condition)
    run(program, i)
    assert capsys.readouterr().out.count("Variable:") == 3


def test_what_follows_a_print_is_planned(program: Any, x: Any) -> None:
    y = layers.scale(layers.Print(x), 2.0)
    plan = str(fluid.Executor().plan(program, {"x": X}, [y], scope=Scope()))
    assert plan.count("(step by step)") == 1


def test_print_phase_is_checked(program: Any, x: Any) -> None:
    with pytest.raises(ProgramError, match="print_phase should be 'forward', 'backward' or 'both', not 'sideways'"):
        layers.Print(x, print_phase="sideways")


# --------------------------------------------------------------------------------------------------- Python functions
def out_like(program: Any, name: str = "out", shape: Any = (2, 3), dtype: str = "float32") -> Any:
    return program.current_block().create_var(name=name, shape=list(shape), dtype=dtype)


@pytest.mark.parametrize("interpret", [False, True])
def test_py_func_and_its_gradient(program: Any, x: Any, interpret: bool) -> None:
    out = out_like(program)
    given = layers.py_func(np.tanh, x, out, lambda x, y, dy: dy * (1 - y * y))
    assert given is out
    (dx,) = fluid.gradients(layers.reduce_sum(layers.square(out)), x)
    found = run(program, out, dx, interpret=interpret)
    np.testing.assert_allclose(found[0], np.tanh(X), rtol=1e-6)
    np.testing.assert_allclose(found[1], 2 * np.tanh(X) * (1 - np.tanh(X) ** 2), rtol=1e-5)


def test_py_func_of_many(program: Any, x: Any) -> None:
    outs = [out_like(program, "total", [2, 3]), out_like(program, "count", [1], "int64")]
    seen = []

    def backward(a: Any, b: Any, dtotal: Any, dcount: Any) -> Any:
        seen.append([a, b, dtotal, dcount])
        return dtotal, None

    ones = layers.fill_constant([2, 3], "float32", 1.0)
    ones.stop_gradient = False
    layers.py_func(lambda a, b: (a + b, a.size), [x, ones], outs, backward, skip_vars_in_backward_input=outs)
    dx, dones = fluid.gradients(layers.reduce_sum(outs[0] * 3.0), [x, ones])
    found = run(program, *outs, dx, dones)
    np.testing.assert_array_equal(found[0], X + 1)
    assert found[1].tolist() == [6]
    np.testing.assert_array_equal(found[2], np.full((2, 3), 3.0))
    np.testing.assert_array_equal(found[3], np.zeros((2, 3)))
    assert len(seen[0]) == 4


def test_py_func_runs_for_its_effect(program: Any, x: Any) -> None:
    seen = []
    layers.py_func(lambda a: seen.append(a.sum()), x, None)
    run(program, layers.reduce_sum(x))
    assert seen == [21.0]


def test_py_func_without_inputs(program: Any, x: Any) -> None:
    out = out_like(program, "two", (1,))
    layers.py_func(lambda: np.float32([2.0]), None, out)
    np.testing.assert_array_equal(run(program, x * out)[0], 2 * X)


def test_py_func_without_a_backward_function_stops_gradients(program: Any, x: Any) -> None:
    out = out_like(program)
    layers.py_func(np.tanh, x, out)
    assert fluid.gradients(layers.reduce_sum(out), x) == [None]


def test_py_func_of_a_program_from_a_file_is_refused(program: Any, x: Any) -> None:
    out = out_like(program)
    layers.py_func(np.tanh, x, out)
    read = Program.parse_from_string(program.serialize_to_string())
    with pytest.raises(ExecutionError, match="py_func runs code of the process, which a program from a file may do only where"):
        run(read, "out")
    read.allowed_ops = frozenset(["py_func"])
    np.testing.assert_allclose(run(read, "out")[0], np.tanh(X), rtol=1e-6)


def test_a_file_cannot_name_a_function(program: Any, x: Any) -> None:
    layers.py_func(np.tanh, x, out_like(program))
    program.global_block().ops[0].attrs["forward_callable_id"] = 1  # such numbers are drawn
    with pytest.raises(ExecutionError, match="programs from files or other processes cannot: build the program here"):
        run(program, "out")


def test_py_func_says_what_its_function_did_wrong(program: Any, x: Any) -> None:
    layers.py_func(lambda a: a[0], x, out_like(program, "row"))
    with pytest.raises(ExecutionError, match=r"gave a value of shape \[3\] for row \(float32\[2, 3\]\)"):
        run(program, "row")


def test_py_func_gives_as_many_as_there_are_variables(program: Any, x: Any) -> None:
    layers.py_func(lambda a: (a, a), x, out_like(program))
    with pytest.raises(ExecutionError, match="gave 2 values, and there are 1 variables"):
        run(program, "out")


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (lambda x, y, dy: (dy, dy), "gave 2 gradients; it should give one, or None, for each of"),
        (lambda x, y, dy: dy[0], r"gave a gradient of shape \[3\] for x, of shape \[2, 3\]"),
    ],
)
def test_backward_function_is_checked(program: Any, x: Any, backward: Any, message: str) -> None:
    out = out_like(program)
    layers.py_func(np.tanh, x, out, backward)
    (dx,) = fluid.gradients(layers.reduce_sum(out), x)
    with pytest.raises(ExecutionError, match=message):
        run(program, dx)


def test_py_func_arguments_are_checked(program: Any, x: Any) -> None:
    with pytest.raises(FluidTypeError, match="func should be a function, not 3"):
        layers.py_func(3, x, out_like(program, "a"))
    with pytest.raises(FluidTypeError, match="py_func: x should be a Variable or a list of Variables or None, not ndarray"):
        layers.py_func(np.tanh, X, out_like(program, "b"))
    with pytest.raises(ProgramError, match="shapeless, of out, should have been made with a shape and an element type"):
        layers.py_func(np.tanh, x, program.current_block().create_var(name="shapeless"))
    with pytest.raises(ProgramError, match="other is to be skipped, but is neither in x nor in out"):
        layers.py_func(np.tanh, x, out_like(program, "c"), np.tanh, "other")


def test_second_derivatives_of_python_functions_are_refused(program: Any, x: Any) -> None:
    out = out_like(program)
    layers.py_func(np.square, x, out, lambda x, y, dy: 2 * x * dy)
    (dx,) = fluid.gradients(layers.reduce_sum(out), x)
    with pytest.raises(fluid.FluidError, match="py_func_backward is not differentiable"):
        fluid.gradients(layers.reduce_sum(dx), x)


# ----------------------------------------------------------------------------------------------------------- assertions
@pytest.mark.parametrize("interpret", [False, True])
def test_assert_stops_a_run_that_fetches_other_things(x: Any, program: Any, interpret: bool) -> None:
    holds = layers.reduce_all(layers.less_than(x, layers.fill_constant([1], "float32", 6.5)))
    program.global_block().append_op("assert", {"Cond": holds, "Data": [x]}, {}, {"summarize": 2})
    out = x * 2.0
    assert run(program, out, interpret=interpret)[0].tolist() == (X * 2).tolist()
    with pytest.raises(ExecutionError, match=r"(?s)should be true, as an assert op says, and is not.*x: \[2\.0, 4\.0\]"):
        run(program, out, feed={"x": X * 2}, interpret=interpret)
