"""Programs that compute shapes, and choose branches, from sizes and numbers that are fed: their plans know the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.ir.program import Program


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def step_by_step(executor: fluid.Executor, feed: dict[str, Any], fetches: list[Any]) -> list[str]:
    """Types of the ops that a plan does not bind to arrays beforehand."""
    plan: Any = executor.plan(feed=feed, fetch_list=fetches)
    return [instruction.op.type for instruction in plan.instructions if getattr(instruction, "dynamic", False)]


def run_like_the_reference(executor: fluid.Executor, feed: dict[str, Any], fetches: list[Any]) -> list[Any]:
    """The results of a run, which agree with those of the reference."""
    expected = executor.interpret(feed=feed, fetch_list=fetches)
    results = executor.run(feed=feed, fetch_list=fetches)
    for result, reference in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, reference, rtol=2e-6, atol=1e-6)
        assert result.shape == reference.shape and result.dtype == reference.dtype
    return results


def halved_rows(x: Any) -> Any:
    """`x` [n, t, 8] as [n, t / 2, 16], by sizes that the program computes."""
    sizes = layers.shape(x)
    n, t = (layers.slice(sizes, axes=[0], starts=[axis], ends=[axis + 1]) for axis in (0, 1))
    return layers.reshape(x, [n, layers.elementwise_floordiv(t, layers.fill_constant([1], "int32", 2)), 16])


def test_shapes_that_are_computed_from_shapes_are_known_to_the_plan() -> None:
    x = fluid.data("x", [None, None, 8])
    out = layers.softmax(layers.fc(halved_rows(x), 3, num_flatten_dims=2))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    for shape in ((3, 6, 8), (1, 2, 8), (5, 4, 8)):
        feed = {"x": array(*shape)}
        assert not step_by_step(executor, feed, [out])
        assert run_like_the_reference(executor, feed, [out])[0].shape == (shape[0], shape[1] // 2, 3)


def test_gradients_and_updates_behind_a_computed_shape_are_planned() -> None:
    x = fluid.data("x", [None, None, 8])
    x.stop_gradient = False
    loss = layers.mean(layers.square(layers.fc(halved_rows(x), 3, num_flatten_dims=2)))
    (gradient,) = fluid.gradients([loss], [x])
    fluid.optimizer.Adam(0.01).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": array(3, 6, 8)}
    assert not step_by_step(executor, feed, [loss, gradient])
    losses = [executor.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    other = fluid.Scope()
    with fluid.scope_guard(other):
        executor.run(fluid.default_startup_program())
        reference = [executor.interpret(feed=feed, fetch_list=[loss])[0].item() for _ in range(5)]
    np.testing.assert_allclose(losses, reference, rtol=1e-5)


def test_as_many_numbers_as_a_size_says_are_known_to_the_plan() -> None:
    x = fluid.data("x", [None, None])
    count = layers.slice(layers.shape(x), axes=[0], starts=[1], ends=[2])
    places = layers.range(layers.fill_constant([1], "int32", 0), count, layers.fill_constant([1], "int32", 1), "int32")
    out = layers.scale(x + layers.cast(places, "float32"), 2.0)
    executor = fluid.Executor()
    for width in (1, 7):
        feed = {"x": array(2, width)}
        assert not step_by_step(executor, feed, [out])
        run_like_the_reference(executor, feed, [out])


def fed_width() -> tuple[Any, Any]:
    x = fluid.data("x", [None, 12])
    return x, layers.scale(layers.reshape(layers.scale(x, 2.0), [-1, fluid.data("width", [1], "int32")]), 3.0)


def test_a_plan_knows_a_fed_number_that_decides_a_shape() -> None:
    _, out = fed_width()
    executor = fluid.Executor()
    for width in (3, 4, 3, 6, 4):
        feed = {"x": array(2, 12, seed=width), "width": np.array([width], "int32")}
        assert run_like_the_reference(executor, feed, [out])[0].shape == (24 // width, width)
        assert not step_by_step(executor, feed, [out])


def test_a_number_with_many_values_does_not_compile_a_plan_for_each() -> None:
    x = fluid.data("x", [None, 64])
    out = layers.scale(layers.slice(layers.scale(x, 2.0), axes=[1], starts=[0], ends=[fluid.data("end", [1], "int32")]), 3.0)
    executor = fluid.Executor()
    for end in range(1, 40):
        feed = {"x": array(2, 64), "end": np.array([end], "int32")}
        assert run_like_the_reference(executor, feed, [out])[0].shape == (2, end)
    assert len(executor._plans) == 9  # eight values, and a plan for all others
    assert step_by_step(executor, feed, [out]) == ["slice", "scale"]


def test_a_branch_on_a_fed_number_is_decided_by_the_plan() -> None:
    x, rate = fluid.data("x", [None, 4]), fluid.data("rate", [1], "int64")
    chosen = layers.cond(
        layers.equal(rate, layers.fill_constant([1], "int64", 8000)),
        lambda: layers.fc(x, 3, name="low"),
        lambda: layers.relu(layers.fc(x, 3, name="high")),
    )
    out = layers.softmax(chosen)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    for number in (8000, 16000, 8000):
        feed = {"x": array(5, 4), "rate": np.array([number])}
        run_like_the_reference(executor, feed, [out])
        plan: Any = executor.plan(feed=feed, fetch_list=[out])
        assert not step_by_step(executor, feed, [out])
        assert {op.type for op in plan.ops}.isdisjoint({"conditional_block", "select_input"})


def test_branches_inside_branches_are_decided() -> None:
    x, rate = fluid.data("x", [None, 4]), fluid.data("rate", [1], "int64")

    def is_below(limit: int) -> Any:
        return layers.less_than(rate, layers.fill_constant([1], "int64", limit))

    out = layers.cond(
        is_below(10), lambda: layers.cond(is_below(5), lambda: x * 2.0, lambda: x + 1.0), lambda: layers.scale(x, -1.0)
    )
    executor = fluid.Executor()
    for number, expected in ((3, 2.0), (7, 2.0), (12, -1.0), (5, 2.0)):
        feed = {"x": np.ones((2, 4), "float32"), "rate": np.array([number])}
        assert (run_like_the_reference(executor, feed, [out])[0] == expected).all()
        assert not step_by_step(executor, feed, [out])


def test_a_branch_that_is_differentiated_stays_a_block() -> None:
    x, rate = fluid.data("x", [None, 4]), fluid.data("rate", [1], "int64")
    x.stop_gradient = False
    is_low = layers.less_than(rate, layers.fill_constant([1], "int64", 5))
    loss = layers.mean(layers.cond(is_low, lambda: layers.square(x), lambda: x * 3.0))
    (gradient,) = fluid.gradients([loss], [x])
    executor = fluid.Executor()
    for number in (3, 7):
        run_like_the_reference(executor, {"x": array(2, 4), "rate": np.array([number])}, [loss, gradient])


def test_a_size_that_a_loop_changes_is_not_taken_for_the_size_before() -> None:
    x = fluid.data("x", [None, 2])
    grown, i = layers.assign(x), layers.fill_constant([1], "int64", 0)
    end = layers.fill_constant([1], "int64", 3)
    going = layers.less_than(i, end)
    loop = layers.While(going)
    with loop.block():
        layers.assign(layers.concat([grown, x], axis=0), grown)
        layers.increment(i, 1)
        layers.less_than(i, end, cond=going)
    rows = layers.slice(layers.shape(grown), axes=[0], starts=[0], ends=[1])
    out = layers.scale(layers.reshape(grown, [layers.fill_constant([1], "int32", 2), rows]), 2.0)
    for count in (1, 3):
        assert run_like_the_reference(fluid.Executor(), {"x": array(count, 2)}, [out])[0].shape == (2, 4 * count)


def test_random_numbers_are_those_of_the_program_itself() -> None:
    x = fluid.data("x", [None, None, 8])
    out = layers.dropout(layers.scale(halved_rows(x), 2.0), 0.5)
    fluid.default_main_program().random_seed = 3
    executor, feed = fluid.Executor(), {"x": array(3, 6, 8)}
    with fluid.scope_guard(fluid.Scope()):
        planned = executor.run(feed=feed, fetch_list=[out])[0]
    with fluid.scope_guard(fluid.Scope()):
        np.testing.assert_allclose(planned, executor.interpret(feed=feed, fetch_list=[out])[0], rtol=1e-6)


def test_a_failing_op_names_its_own_line() -> None:
    x = fluid.data("x", [None, 12])
    out = layers.reshape(x, [-1, fluid.data("width", [1], "int32")])
    executor = fluid.Executor()
    for _ in range(2):
        with pytest.raises(fluid.errors.ExecutionError, match=r"test_specialization\.py"):
            executor.run(feed={"x": array(2, 12), "width": np.array([7], "int32")}, fetch_list=[out])


@pytest.mark.parametrize("resize", [layers.resize_bilinear, layers.resize_nearest])
def test_images_of_a_computed_size_are_planned(resize: Any) -> None:
    x, like = fluid.data("x", [None, 3, None, None]), fluid.data("like", [None, 3, None, None])
    sizes = layers.shape(like)
    out = layers.relu(resize(x, out_shape=[layers.slice(sizes, axes=[0], starts=[axis], ends=[axis + 1]) for axis in (2, 3)]))
    executor = fluid.Executor()
    for height in (5, 9):
        feed = {"x": array(2, 3, 4, 5), "like": array(2, 3, height, 7)}
        assert not step_by_step(executor, feed, [out])
        run_like_the_reference(executor, feed, [out])


def test_every_slot_of_numbers_says_what_its_attribute_says() -> None:
    """Each op that takes numbers from tensors computes the same when a plan has made attributes of them."""
    x, number = fluid.data("x", [None, 6]), fluid.data("number", [1], "int32")
    one, two, six = (layers.fill_constant([1], "int32", value) for value in (1, 2, 6))
    f = x.block.namespace
    outputs: dict[str, Any] = {
        "expand_v2": f.expand_v2(layers.unsqueeze(x, [0]), expand_shapes_tensor=[number, two, six]),
        "tile": f.tile(x, repeat_times_tensor=[number, two], repeat_times=[1, 1]),
        "expand": f.expand(x, expand_times_tensor=[number, two], expand_times=[1, 1]),
        "slice": f.slice(x, EndsTensorList=[number], axes=[1], starts=[0], ends=[-1]),
        "strided_slice": f.strided_slice(x, StridesTensorList=[number], axes=[1], starts=[0], ends=[6], strides=[1]),
        "gather": f.gather(x, layers.fill_constant([2], "int32", 1), Axis=f.elementwise_sub(two, one)),
        "top_k_v2": f.top_k_v2(x, K=number)[0],
        "one_hot_v2": f.one_hot_v2(layers.fill_constant([2], "int64", 1), depth_tensor=number),
        "fill_constant": f.fill_constant(ShapeTensorList=[number, two], shape=[-1, -1], value=3.0, dtype=5),
        "roll": f.roll(x, ShiftsTensor=number, axis=[1]),
        "sequence_mask": f.sequence_mask(layers.fill_constant([2], "int64", 1), MaxLenTensor=number, out_dtype=5),
    }
    executor = fluid.Executor()
    for value in (2, 3):
        feed = {"x": array(2, 6), "number": np.array([value], "int32")}
        for op_type, out in outputs.items():
            run_like_the_reference(executor, feed, [out])
            assert not step_by_step(executor, feed, [out]), op_type


def test_the_program_itself_does_not_change() -> None:
    _, out = fed_width()
    program: Program = fluid.default_main_program()
    text = str(program)
    fluid.Executor().run(feed={"x": array(2, 12), "width": np.array([4], "int32")}, fetch_list=[out])
    assert str(program) == text
