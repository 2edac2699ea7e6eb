"""Kernels written down as functions of arrays."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fluid.executor.binding.arrays import Recorder, bind_op
from fluid.executor.binding.codegen import Lender, function_of
from fluid.executor.binding.compiled import Argument, compiled
from fluid.executor.kernels.table import KERNELS
from fluid.executor.runtime import spare
from fluid.executor.runtime.specs import spec_of
from fluid.opdef import registry


def source(op_type: str, inputs: dict[str, Any], **attrs: Any) -> tuple[Any, str]:
    """The function for an op on arrays like these, and its source."""
    definition = registry.get(op_type)
    full = definition.defaults(definition.check_attrs(attrs))
    arguments = [Argument(slot, spec_of(array)) for slot, array in inputs.items()]
    found = compiled(definition, full, arguments, np, write_after=0)
    return found.run, found.run.__doc__ or ""


def floats(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def test_one_call_makes_its_own_result() -> None:
    run, text = source("tanh", {"X": floats(2, 3)})
    assert text == "def tanh(a0):\n    b0 = c0(a0)\n    return b0\n"
    x = floats(2, 3)
    assert np.array_equal(run(x), np.tanh(x))
    assert run(x) is not run(x)


def test_reductions_make_their_own_results() -> None:
    x = floats(4, 3)
    run, text = source("softmax", {"X": x}, axis=-1)
    assert "empty" not in text and "(4, 1)" not in text and text.count("b1 = ") == 1
    expected = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(run(x), expected / expected.sum(1, keepdims=True), rtol=1e-6)
    turned = np.asfortranarray(floats(4, 3, 2))  # numpy lays out what it reduces as it finds it
    maxima = np.empty((4, 1, 2), np.float32)
    largest = partial(np.maximum.reduce, turned, 1, None, maxima, True)
    written = function_of("f", [largest], [turned], [maxima], [maxima], Lender(np))
    assert written is not None and written(turned).flags.c_contiguous
    assert np.array_equal(written(turned), turned.max(1, keepdims=True))


def test_results_of_one_element_stay_arrays() -> None:
    run, text = source("tanh", {"X": np.zeros((), np.float32)})
    assert "((), " in text  # an array is made, as numpy would give a number
    assert run(np.asarray(0.5, np.float32)).shape == ()


def test_views_are_made_of_what_is_given() -> None:
    run, text = source("elementwise_add_grad", {"X": floats(4, 3), "Y": floats(3), "Out@GRAD": floats(4, 3)})
    assert ".copy()" in text
    for _ in range(2):
        g = floats(4, 3)
        by_x, by_y = run(floats(4, 3), floats(3), g)
        assert np.array_equal(by_x, g) and not np.shares_memory(by_x, g)
        np.testing.assert_allclose(by_y, g.sum(0), rtol=1e-6)
    x = floats(2, 3, 4)
    for name, attrs, expected in (
        ("transpose2", {"axis": [2, 1, 0]}, x.T),
        ("transpose2", {"axis": [0, 2, 1]}, x.transpose(0, 2, 1)),
        ("transpose2", {"axis": [1, 2, 0]}, x.transpose(1, 2, 0)),
        ("slice", {"axes": [2], "starts": [1], "ends": [3]}, x[:, :, 1:3]),
    ):
        run, text = source(name, {"X" if name == "transpose2" else "Input": x}, **attrs)
        assert ".copy()" in text and "empty" not in text  # a copy is C-contiguous whatever it is a copy of
        result = run(x)[0] if name == "transpose2" else run(x)
        assert np.array_equal(result, expected) and result.flags.c_contiguous and not np.shares_memory(result, x)


def add_all(array: Any, numbers: dict[str, Any], out: Any) -> None:
    np.add(array, numbers["each"][0], out)


def make_all(calls: list[Any]) -> None:
    for call in calls:
        call()


def test_calls_among_the_operands_and_arrays_in_dicts() -> None:
    x, out = np.zeros(3), np.zeros(3)
    run = function_of("f", [partial(make_all, [partial(add_all, x, {"each": [x]}, out)])], [x], [out], [out], Lender(np))
    assert run is not None
    assert run(np.arange(3.0)).tolist() == [0, 2, 4]
    assert not out.any()


def test_what_is_no_data_is_not_written_down() -> None:
    x, out = np.zeros(3), np.zeros(3)

    class Hidden:
        def step(self) -> None:
            np.add(x, 1.0, out)

    hidden = Hidden().step
    for call in (
        hidden,
        partial(hidden),
        partial(lambda: None),
        partial(out.fill, 0),
        partial(print, Hidden()),
        partial(print, [hidden]),
    ):
        assert function_of("f", [call], [x], [out], [out], Lender(np)) is None
    part = np.lib.stride_tricks.as_strided(x, (2,), (8,))
    assert function_of("f", [partial(np.copyto, out[:2], part)], [x], [out], [out], Lender(np))(np.ones(3))[:2].tolist() == [1, 1]  # type: ignore[misc]


def test_overwriting_an_input() -> None:
    definition = registry.get("elementwise_sub")
    arguments = [Argument("X", spec_of(floats(3))), Argument("Y", spec_of(floats(3)))]
    found = compiled(definition, {"axis": -1}, arguments, np, into={"Out": "X"}, write_after=0)
    x, y = floats(3), floats(3)
    assert found.run(x, y) is x and x.tolist() == [0, 0, 0]
    assert "Out" in KERNELS["elementwise_sub"].inplace
    # A kernel that cannot write there gets an array of its own, from which the result is copied.
    found = compiled(registry.get("softmax"), {"axis": -1}, arguments[:1], np, into={"Out": "X"}, write_after=0)
    x = floats(3)
    expected = np.exp(x) / np.exp(x).sum()
    assert found.run(x) is x
    np.testing.assert_allclose(x, expected, rtol=1e-6)


def test_names_that_python_has_taken() -> None:
    x, out = np.zeros(3), np.zeros(3)
    run = function_of("while", [partial(np.add, x, 1.0, out)], [x], [out], [out], Lender(np))
    assert run is not None and run(np.ones(3)).tolist() == [2, 2, 2]


def test_a_loan_of_spare_memory_lends_each_byte_once() -> None:
    """Requests beyond the loan are allocated; the next loan is as large as the memory used."""
    for size in (0, 3 << 20, 1 << 24):
        loan = spare.Loan(size)
        arrays = [
            loan(shape, dtype)
            for shape, dtype in (((512, 1024), "float32"), (3, "int64"), ((1 << 18) + 1, "float64"), ((2, 0), "bool"))
        ]
        for number, array in enumerate(arrays):
            array[...] = number
        assert [array.shape for array in arrays] == [(512, 1024), (3,), ((1 << 18) + 1,), (2, 0)]
        assert all((array == number).all() for number, array in enumerate(arrays))
        assert loan.used >= sum(array.nbytes for array in arrays if array.nbytes >= spare.LARGE)
        loan.give_back()


def test_intermediate_results_of_formulas_share_memory() -> None:
    definition = registry.get("hard_swish")
    x, out, lender = floats(2, 3), np.empty((2, 3), np.float32), Lender(np)
    context = {"xp": np, "scratch": lender, "rng": None}
    attrs = definition.defaults({"offset": 2.0})
    for call in bind_op(definition, {"X": x}, {"Out": out}, attrs, context, lender, use_kernel=False):
        call()
    np.testing.assert_allclose(out, x * np.clip(x + 2, 0, 6) / 6, rtol=1e-6)
    assert not lender.lent


def test_results_that_are_read_again_are_not_overwritten() -> None:
    x, first, second = floats(2, 3), np.empty(6, np.float32), np.empty((2, 3), np.float32)
    f = Recorder({"xp": np, "scratch": np.empty, "rng": None}, np.empty)
    doubled = f.wrap(x) * 2.0
    tanh, more = f.tanh(f.reshape(doubled, shape=[6])), doubled + 1.0
    f.limit_to([tanh, more])
    f.write_into(tanh, first)
    f.write_into(more, second)
    for call in f.calls():
        call()
    np.testing.assert_allclose(first, np.tanh(2 * x).reshape(-1), rtol=1e-6)
    np.testing.assert_allclose(second, 2 * x + 1, rtol=1e-6)
