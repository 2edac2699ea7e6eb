"""``x[...]`` and ``x[...] = v`` with lists, arrays and variables, in programs and in traces, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each, fresh_programs

import fluid
from fluid import dygraph, layers
from fluid.errors import FluidTypeError, IndexRangeError, ProgramError

RANDOM = np.random.default_rng(0)
CUBE = RANDOM.standard_normal((4, 5, 3, 2)).astype("float32")
INDICES: dict[str, Any] = {
    "i": np.int64([0, -2, 3]),
    "j": np.int64([1, 4, -1]),
    "k": np.int32([2, 0, -1]),
    "ij": np.int64([[0, 1], [2, -1]]),
    "mask": RANDOM.random((4, 5)) > 0.5,
    "rows": np.array([True, False, True, True]),
}
Item = Callable[[Any, dict[str, Any]], Any]
CASES: dict[str, Item] = {
    "list": lambda x, v: x[[0, 2]],
    "list from the end": lambda x, v: x[[-1, 0]],
    "no rows": lambda x, v: x[[]],
    "array": lambda x, v: x[np.array([1, 1])],
    "array of columns": lambda x, v: x[..., [1, 0, 0]],
    "array of two axes": lambda x, v: x[:, 1:4, [[0, 1], [2, 2]]],
    "lists": lambda x, v: x[[0, 1], [2, 3]],
    "lists that broadcast": lambda x, v: x[[[0], [1]], [2, 3]],
    "a list of bools": lambda x, v: x[[True, False, False, True]],
    "bools of the second axis": lambda x, v: x[:, [True, False, False, True, True]],
    "variable": lambda x, v: x[v["i"]],
    "variable of the second axis": lambda x, v: x[:, v["i"]],
    "variable of two axes": lambda x, v: x[v["ij"]],
    "variable of two axes in the middle": lambda x, v: x[:, v["ij"]],
    "variables": lambda x, v: x[v["i"], v["j"]],
    "variables of all axes": lambda x, v: x[v["i"], v["j"], [0, 1, 2], 1],
    "variable and list": lambda x, v: x[v["i"], :, [0, 1, 2]],
    "two integer types": lambda x, v: x[v["i"], :, v["k"]],
    "number and variable": lambda x, v: x[1, v["i"]],
    "variable and number": lambda x, v: x[v["i"], 2],
    "number from the end and variable": lambda x, v: x[-1, v["j"]],
    "a list of one and variable": lambda x, v: x[[-1], v["j"]],
    "number from the end and list": lambda x, v: x[-1, [3, 1]],
    "number and variable apart": lambda x, v: x[1, :, v["k"]],
    "number, variable and a slice": lambda x, v: x[::2, v["i"], :, 0],
    "slice and variable": lambda x, v: x[1:3, v["i"]],
    "mask": lambda x, v: x[v["mask"]],
    "mask of rows": lambda x, v: x[v["rows"]],
    "mask and number": lambda x, v: x[v["mask"], 0],
}


@each("case", CASES)
@each("is_dynamic", [False, True])
def test_programs_gather_as_numpy_does(case: str, is_dynamic: bool) -> None:
    with fresh_programs():
        x = fluid.data("x", [None if is_dynamic else 4, 5, 3, 2])
        x.stop_gradient = False
        first = [None] if is_dynamic else []
        variables = {
            name: fluid.data(name, [*first, *array.shape[len(first) :]], str(array.dtype)) for name, array in INDICES.items()
        }
        out = CASES[case](x, variables)
        (gradient,) = fluid.gradients([layers.reduce_sum(layers.square(out))], [x])
        result, to_x = fluid.Executor().run(feed={"x": CUBE, **INDICES}, fetch_list=[out, gradient])
    expected = CASES[case](CUBE, INDICES)
    assert len(out.shape) == expected.ndim and all(a in (-1, b) for a, b in zip(out.shape, expected.shape, strict=True))
    np.testing.assert_array_equal(result, expected)
    places = CASES[case](np.arange(CUBE.size).reshape(CUBE.shape), INDICES).reshape(-1)
    wanted = np.zeros(CUBE.size, "float32")
    np.add.at(wanted, places, 2 * CUBE.reshape(-1)[places])
    np.testing.assert_allclose(to_x, wanted.reshape(CUBE.shape), rtol=1e-6)


@each("case", [case for case in CASES if "variable" in case or "mask" in case or "integer types" in case])
def test_traces_read_indices_in_each_run(case: str) -> None:
    def net(x: Any, *values: Any) -> Any:
        return CASES[case](x, dict(zip(INDICES, values, strict=True))) * 2.0

    with dygraph.guard():
        tensors = [dygraph.to_variable(array) for array in (CUBE, *INDICES.values())]
        traced = dygraph.trace(net, *tensors)
        changed = {name: np.roll(array, 1, 0) for name, array in INDICES.items()}
        result = traced(*[dygraph.to_variable(array) for array in (CUBE[::-1].copy(), *changed.values())])
        np.testing.assert_array_equal(result.numpy(), CASES[case](CUBE[::-1], changed) * 2)


class _Keys:
    """``keys[item]`` is the item."""

    def __getitem__(self, item: Any) -> Any:
        return item


@each("case", CASES)
@each("is_dynamic", [False, True])
@each("is_one", [False, True])
def test_programs_write_as_numpy_does(case: str, is_dynamic: bool, is_one: bool) -> None:
    """Write elements, or one number. Results that were computed before stay, and so do their gradients."""
    places = CASES[case](np.arange(CUBE.size).reshape(CUBE.shape), INDICES)
    value = np.float32([7]) if is_one else RANDOM.standard_normal(places.shape).astype("float32")
    with fresh_programs():
        x = fluid.data("x", [None if is_dynamic else 4, 5, 3, 2])
        first = [None] if is_dynamic else []
        variables = {
            name: fluid.data(name, [*first, *array.shape[len(first) :]], str(array.dtype)) for name, array in INDICES.items()
        }
        new = fluid.data("value", [None, *value.shape[1:]] if is_dynamic and not is_one else value.shape)
        x.stop_gradient = new.stop_gradient = False
        y = x * 1.0
        before = layers.square(y)
        y[CASES[case](_Keys(), variables)] = new
        gradients = fluid.gradients([layers.reduce_sum(layers.square(y)) + layers.reduce_sum(before)], [x, new])
        feed = {"x": CUBE, "value": value, **INDICES}
        result, to_x, to_value = fluid.Executor().run(feed=feed, fetch_list=[y, *gradients])
    expected, of_x = CUBE.copy(), 4 * CUBE
    expected[CASES[case](_Keys(), INDICES)] = value
    of_x[CASES[case](_Keys(), INDICES)] /= 2
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_allclose(to_x, of_x, rtol=1e-6)
    if np.unique(places).size == places.size:  # of elements that are written twice, each gets the gradient
        np.testing.assert_allclose(to_value, 2 * value * (places.size if is_one else 1), rtol=1e-6)


def test_zeros_keep_their_sign() -> None:
    x = fluid.data("x", [4]) * 1.0
    x[[0, 2]] = -0.0
    (result,) = fluid.Executor().run(feed={"x": np.ones(4, "float32")}, fetch_list=[x])
    assert np.signbit(result).tolist() == [True, False, True, False]


def test_programs_write_bools_and_integers() -> None:
    mask, number, i = fluid.data("mask", [4], "bool"), fluid.data("number", [4], "int64"), fluid.data("i", [None], "int64")
    mask, number = layers.assign(mask), layers.assign(number)
    mask[i] = True
    number[number > 2] = 0
    feed = {"mask": np.zeros(4, bool), "number": np.arange(4), "i": np.int64([3, 0])}
    results = fluid.Executor().run(feed=feed, fetch_list=[mask, number])
    assert [array.tolist() for array in results] == [[True, False, False, True], [0, 1, 2, 0]]


def test_writing_beyond_an_axis_or_too_many_dimensions_is_an_error() -> None:
    x, i = fluid.data("x", [4, 5]) * 1.0, fluid.data("i", [3], "int64")
    with pytest.raises(IndexRangeError, match=r"\[\[0, 4\]\] .*index 4 is outside dimension 0 of size 4"):
        x[[0, 4]] = 1.0
    with pytest.raises(IndexRangeError, match=r"a value of shape \[2, 3, 5\] does not fit \[3, 5\] elements"):
        x[i] = np.zeros([2, 3, 5], "float32")
    x[i] = 1.0
    with pytest.raises(fluid.errors.ExecutionError, match="is outside of"):
        fluid.Executor().run(feed={"x": np.zeros((4, 5), "float32"), "i": np.int64([0, 4, 1])}, fetch_list=[x])


CUTS: dict[str, Item] = {
    "to": lambda x, n: x[:n],
    "from, and a number": lambda x, n: x[n:, -1],
    "from and to, and a slice": lambda x, n: x[n - 1 : n + 1, 1:3],
    "an axis in the middle": lambda x, n: x[..., n:, :],
    "two axes": lambda x, n: x[:n, n:],
}


@each("case", CUTS)
@each("writes", [False, True])
def test_traces_read_bounds_of_slices_in_each_run(case: str, writes: bool) -> None:
    def net(x: Any, n: Any) -> Any:
        if not writes:
            return CUTS[case](x, n) * 2.0
        y = x * 2.0
        y[CUTS[case](_Keys(), n)] = 7.0
        return y

    def expected(n: int) -> Any:
        changed = CUBE * 2
        changed[CUTS[case](_Keys(), n)] = 7
        return changed if writes else CUTS[case](CUBE * 2, n)

    with dygraph.guard():
        x, one, two = map(dygraph.to_variable, (CUBE, np.int64([1]), np.int64([2])))
        traced = dygraph.trace(net, x, two)
        for n, value in ((two, 2), (one, 1)):
            np.testing.assert_array_equal(traced(x, n).numpy(), expected(value))


@each("case", [case for case in CASES if "variable" in case or "mask" in case or "integer types" in case])
def test_traces_write_at_indices_of_each_run(case: str) -> None:
    def net(x: Any, *values: Any) -> Any:
        y = x * 2.0
        y[CASES[case](_Keys(), dict(zip(INDICES, values, strict=True)))] = 7.0
        return y

    with dygraph.guard():
        tensors = [dygraph.to_variable(array) for array in (CUBE, *INDICES.values())]
        if case == "number, variable and a slice":
            with pytest.raises(ProgramError, match="a step beside a tensor as bound, in a trace"):
                dygraph.trace(net, *tensors)
            return
        traced = dygraph.trace(net, *tensors)
        changed = {name: np.roll(array, 1, 0) for name, array in INDICES.items()}
        expected = CUBE[::-1] * 2
        expected[CASES[case](_Keys(), changed)] = 7
        result = traced(*[dygraph.to_variable(array) for array in (CUBE[::-1].copy(), *changed.values())])
        np.testing.assert_array_equal(result.numpy(), expected)


def test_sizes_bound_slices_in_traces_with_open_sizes() -> None:
    def halves(x: Any) -> Any:
        return x[:, : x.shape[1] // 2]

    with dygraph.guard():
        traced = dygraph.trace(halves, dygraph.InputSpec([None, None]))
        for width in (4, 6):
            x = np.arange(2.0 * width, dtype="float32").reshape(2, width)
            np.testing.assert_array_equal(traced(dygraph.to_variable(x)).numpy(), x[:, : width // 2])


def test_a_variable_of_one_element_is_a_position() -> None:
    """As in Fluid 1.6."""
    x, i = fluid.data("x", [4, 5]), fluid.data("one", [1], "int64")
    assert x[i].shape == (5,) and x[:, i].shape == (4,)


@each(
    ("item", "kind", "said"),
    [
        ([0, 4], IndexRangeError, r"x\[\[0, 4\]\] \(float32\[4, 5\]\): index 4 is outside dimension 0 of size 4"),
        ([True, False], IndexRangeError, r"a mask of shape \[2\] does not fit the sizes \[4\] from axis 0 on"),
        ([0.5], FluidTypeError, "an index should be of integers or bools, not float64"),
        ([[0], [1, 2]], FluidTypeError, "an index is no array"),
        (([0, 1], [0, 1, 2]), IndexRangeError, r"indices of shapes \[\[2\], \[3\]\] do not broadcast"),
        (([0], [0], [0]), IndexRangeError, "too many indices"),
        (([0], None), ProgramError, "None beside a list"),
    ],
    ids=str,
)
def test_errors(item: Any, kind: type[Exception], said: str) -> None:
    with fresh_programs(), pytest.raises(kind, match=said):
        fluid.data("x", [4, 5])[item]


def test_an_index_of_floats_or_of_another_shape() -> None:
    x, f = fluid.data("x", [4, 5]), fluid.data("f", [3])
    i, j = fluid.data("i", [3], "int64"), fluid.data("j", [2], "int64")
    with pytest.raises(FluidTypeError, match=r"x\[f\] .* an index should be of integers or bools, not float32"):
        x[f]
    with pytest.raises(IndexRangeError, match=r"indices of the shapes \[3\] and \[2\]: they should have one shape"):
        x[i, j]


def test_an_id_beyond_the_axis_is_an_error_of_the_run() -> None:
    x, i = fluid.data("x", [4, 5]), fluid.data("i", [3], "int64")
    out = x[i]
    for wrong in (4, -5):
        with pytest.raises(fluid.errors.ExecutionError, match="is outside of"):
            fluid.Executor().run(feed={"x": np.zeros((4, 5), "float32"), "i": np.int64([0, wrong, 1])}, fetch_list=[out])
