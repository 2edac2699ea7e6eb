"""Gradients in traced functions: through branches and loops, whichever way the example went; and of traced programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import dygraph, layers
from fluid.dygraph import Tensor
from fluid.errors import BackwardError, ProgramError


@pytest.fixture(autouse=True)
def _fresh(fresh: None) -> Iterator[None]:
    yield


def leaf(value: Any) -> Tensor:
    return Tensor(value, stop_gradient=False)


def numbers(value: Any) -> list[Any]:
    return [item.tolist() for item in (value if isinstance(value, (list, tuple)) else [value])]


# --------------------------------------------------------------------------------------- dygraph.grad through what is chosen
Maker = Callable[[], Callable[[Tensor], Any]]


def of_the_other_branch() -> Any:
    w = leaf([2.0])
    return lambda x: dygraph.grad(layers.cond(x.sum() > 0, lambda: w * x, lambda: w * w * x).sum(), w)[0]


def of_what_a_branch_hands_through() -> Any:
    w = leaf([2.0])

    def f(x: Tensor) -> Any:
        y = w * x
        z = layers.cond(x.sum() > 0, lambda: y, lambda: y * y)
        return dygraph.grad((z * w).sum(), [w, y])

    return f


def of_a_value_and_of_what_it_was_computed_from() -> Any:
    w = leaf([2.0])

    def f(x: Tensor) -> Any:
        y = w * w
        z = layers.cond(x.sum() > 0, lambda: y * w * x, lambda: y + x * w)
        return dygraph.grad(z.sum(), [w, y, z])

    return f


def of_several_results() -> Any:
    w = leaf([2.0])

    def f(x: Tensor) -> Any:
        a, b = layers.cond(x.sum() > 0, lambda: (w * x, x), lambda: (x, w.exp()))
        return dygraph.grad((a * 3.0 + b * b).sum(), w, allow_unused=True)

    return f


def of_a_branch_in_a_branch() -> Any:
    w = leaf([2.0])

    def f(x: Tensor) -> Any:
        def inner() -> Any:
            return layers.cond(x.sum() > 2.0, lambda: w * x, lambda: w * w * x)

        return dygraph.grad(layers.cond(x.sum() > 0, inner, lambda: w.exp() * x).sum(), w)[0]

    return f


def of_a_loop() -> Any:
    w = leaf([2.0])

    def f(x: Tensor) -> Any:
        _, y = layers.while_loop(lambda i, y: i < x.sum(), lambda i, y: [i + 1.0, y * w], [Tensor([-3.0]), w * 1.0])
        return dygraph.grad(y.sum(), w)[0]

    return f


def of_a_loop_that_starts_from_a_constant() -> Any:
    w = leaf([0.5])

    def f(x: Tensor) -> Any:
        _, y = layers.while_loop(lambda i, y: i < x.sum(), lambda i, y: [i + 1.0, y + w * w], [Tensor([-3.0]), Tensor([1.0])])
        return dygraph.grad((y * y).sum(), w, allow_unused=True)[0] * 1.0

    return f


def of_a_branch_in_a_loop() -> Any:
    w = leaf([1.5])

    def f(x: Tensor) -> Any:
        def body(i: Tensor, y: Tensor) -> Any:
            return [i + 1.0, layers.cond(i > 0.5, lambda: y * w, lambda: y + w)]

        _, y = layers.while_loop(lambda i, y: i < x.sum(), body, [Tensor([-3.0]), w * 1.0])
        return dygraph.grad(y.sum(), w)[0]

    return f


def in_a_branch() -> Any:
    w = leaf([2.0])

    def f(x: Tensor) -> Any:
        return layers.cond(
            x.sum() > 0, lambda: dygraph.grad((w * w * x).sum(), w)[0], lambda: dygraph.grad((w * w * w * x).sum(), w)[0]
        )

    return f


def in_a_loop() -> Any:
    def f(x: Tensor) -> Any:
        def body(i: Tensor, y: Tensor) -> Any:
            y.stop_gradient = False
            return [i + 1.0, y - 0.25 * dygraph.grad((y * y).sum(), y)[0]]

        return layers.while_loop(lambda i, y: i < x.sum(), body, [Tensor([-3.0]), Tensor([8.0])])[1]

    return f


def by_a_vector_product() -> Any:
    return lambda x: dygraph.vjp(lambda z: layers.cond(z.sum() > 0, lambda: z * z, lambda: z.exp()), x)[1]


def of_what_is_detached_inside() -> Any:
    w = leaf([2.0])
    return lambda x: dygraph.grad(layers.cond(x.sum() > 0, lambda: w * x, lambda: w.detach() * w * x).sum(), w)[0]


def of_what_is_not_recorded_inside() -> Any:
    w = leaf([2.0])

    def other(x: Tensor) -> Any:
        with dygraph.no_grad():
            y = w * w
        return y * w * x

    return lambda x: dygraph.grad(layers.cond(x.sum() > 0, lambda: w * x, lambda: other(x)).sum(), w)[0]


def with_a_hook_outside() -> Any:
    w = leaf([2.0])

    def f(x: Tensor) -> Any:
        y = w * w
        y.register_hook(lambda grad: grad * 10.0)
        return dygraph.grad(layers.cond(x.sum() > 0, lambda: y * x, lambda: y * y * x).sum(), w)[0]

    return f


@pytest.mark.parametrize(
    "make",
    [
        of_the_other_branch,
        of_what_a_branch_hands_through,
        of_a_value_and_of_what_it_was_computed_from,
        of_several_results,
        of_a_branch_in_a_branch,
        of_a_loop,
        of_a_loop_that_starts_from_a_constant,
        of_a_branch_in_a_loop,
        in_a_branch,
        in_a_loop,
        by_a_vector_product,
        of_what_is_detached_inside,
        of_what_is_not_recorded_inside,
        with_a_hook_outside,
    ],
)
def test_gradients_where_values_decide(make: Maker) -> None:
    function = make()
    for example in ([1.0], [-2.0], [3.0]):
        traced = dygraph.trace(function, Tensor(example))
        for value in ([-1.0], [0.5], [2.5], [-2.0]):
            expected = numbers(_or_zero(function(Tensor(value))))
            np.testing.assert_allclose(numbers(traced(Tensor(value))), expected, 1e-5, 1e-6, err_msg=f"{example}, {value}")
        static = dygraph.to_static(function)
        found = static(Tensor(example))
        np.testing.assert_allclose(numbers(_or_zero(found)), numbers(_or_zero(function(Tensor(example)))), 1e-5, 1e-6)


def _or_zero(value: Any) -> Any:
    return [Tensor([0.0]) if item is None else item for item in (value if isinstance(value, (list, tuple)) else [value])]


def test_the_example_has_the_gradients_of_eager_mode() -> None:
    w = leaf([2.0])
    f = dygraph.to_static(lambda x: layers.cond(x.sum() > 0, lambda: w * x, lambda: w * w * x))
    for value in (3.0, -3.0):
        for _ in range(2):  # the first call is traced, the second runs as it is
            y = f(Tensor([value]))
            y.backward()
            assert w.gradient().tolist() == [3.0 if value > 0 else -12.0]
            w.clear_gradient()
    (slope,) = dygraph.grad(
        dygraph.to_static(lambda x: layers.cond(x.sum() > 0, lambda: w * w * x, lambda: x))(Tensor([1.0])), w, create_graph=True
    )
    assert dygraph.grad(slope, w)[0].tolist() == [2.0]


def test_gradients_in_a_program_are_kept_where_it_is_saved_or_cloned() -> None:
    function = of_the_other_branch()
    traced = dygraph.trace(function, Tensor([1.0]))
    (found,) = fluid.Executor().run(
        traced.program.clone(for_test=True), {"x": np.array([-1.0], "float32")}, traced.fetch_names, scope=traced.scope
    )
    assert found.tolist() == [-4.0]


@pytest.mark.parametrize("make", [of_the_other_branch, of_a_loop, of_a_branch_in_a_loop, of_several_results])
def test_gradients_in_a_saved_program(make: Maker, tmp_path: Path) -> None:
    function = make()
    dygraph.trace(function, Tensor([1.0])).save_inference_model(str(tmp_path))
    exe = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), exe)
        for value in (-1.0, 2.5):
            (found,) = exe.run(program, {feeds[0]: np.array([value], "float32")}, fetches)
            np.testing.assert_allclose([found.tolist()], numbers(_or_zero(function(Tensor([value])))), 1e-5)


class Twice(dygraph.PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        return dy * 100.0


def hooked(x: Tensor) -> Tensor:
    y = x * 2.0
    y.register_hook(lambda grad: grad * 10.0)
    return y * 1.0


W = leaf([2.0])


@pytest.mark.parametrize(
    ("message", "function"),
    [
        (
            r"a gradient of the gradient of cond is not traced; differentiate the traced program instead",
            lambda x: dygraph.hvp(lambda z: layers.cond(x.sum() > 0, lambda: z * z, lambda: z).sum(), W)[1],
        ),
        (
            r"the backward of Twice inside a cond whose gradient is taken cannot be traced",
            lambda x: dygraph.grad(layers.cond(x.sum() > 0, lambda: x * W, lambda: Twice.apply(W)).sum(), W)[0],
        ),
        (
            r"a hook inside a cond whose gradient is taken cannot be traced",
            lambda x: dygraph.grad(layers.cond(x.sum() > 0, lambda: x * W, lambda: hooked(W)).sum(), W)[0],
        ),
        (
            r"a gradient that goes from inside a while_loop to what lies before it would leave out the trips between",
            lambda x: layers.while_loop(
                lambda i, y: i < 3.0,
                lambda i, y: [i + 1.0, dygraph.grad((y * y).sum(), W)[0]],
                [Tensor([0.0]), W * x],
            )[1],
        ),
        (
            r"the gradient of a cond inside another branch or loop cannot be traced; differentiate the traced program instead",
            lambda x: (lambda y: layers.cond(x.sum() > 0, lambda: dygraph.grad(y.sum(), W)[0], lambda: x))(
                layers.cond(x.sum() > 0, lambda: W * x, lambda: W * W * x)
            ),
        ),
    ],
    ids=["second order", "PyLayer", "hook", "out of a loop", "into a branch"],
)
def test_what_the_program_could_not_say_is_refused(message: str, function: Any) -> None:
    with pytest.raises((BackwardError, ProgramError), match=message) as caught:
        dygraph.trace(function, Tensor([1.0]))
    assert __file__ in str(caught.value)


# ---------------------------------------------------------------------------------------- append_backward of traced programs
def program_gradients(traced: Any, x: Tensor) -> dict[str, Any]:
    with fluid.program_guard(traced.program, fluid.Program()):
        pairs = fluid.append_backward(layers.reduce_sum(traced.fetches[0]))
    found = fluid.Executor().run(
        traced.program, {traced.feed_names[0]: x.numpy()}, [grad for _, grad in pairs], scope=traced.scope
    )
    return {parameter.name: value.tolist() for (parameter, _), value in zip(pairs, found, strict=True)}


def without_recording(w: Tensor, x: Tensor) -> Tensor:
    with dygraph.no_grad():
        y = w * 3.0
    return y * w * x


def stopped(w: Tensor, x: Tensor) -> Tensor:
    y = w * w
    y.stop_gradient = True
    return y * w * x


def restarted(w: Tensor, x: Tensor) -> Tensor:
    y = (w * w).detach()
    y.stop_gradient = False
    return y * w * x


def changed_after_detaching(w: Tensor, x: Tensor) -> Tensor:
    y = w * 1.0
    z = y.detach()
    y.mul_(w)
    return y * x + z * 0.5 * w


@pytest.mark.parametrize(
    "body",
    [
        lambda w, x: w * w * x,
        lambda w, x: w.detach() * w * x,
        lambda w, x: (w * w).detach() * w + x,
        lambda w, x: w.clone() * w * x,
        lambda w, x: dygraph.grad((w * w * x).sum(), w)[0] * w,
        lambda w, x: dygraph.grad((w * w * w * x).sum(), w, create_graph=True)[0] * w,
        lambda w, x: layers.cond(x.sum() > 0, lambda: w * w, lambda: w.detach() * w) * x,
        without_recording,
        stopped,
        restarted,
        changed_after_detaching,
    ],
)
@pytest.mark.parametrize("recording", [True, False])
def test_append_backward_flows_where_eager_gradients_flow(body: Any, recording: bool) -> None:
    w = Tensor([2.0], stop_gradient=False, name="w")  # a leaf that asks for a gradient is a parameter, as a dygraph.Parameter is
    with dygraph.set_grad_enabled(recording):
        traced = dygraph.trace(lambda x: body(w, x), Tensor([-1.0]))
    for value in ([-3.0], [5.0]):
        w.clear_gradient()
        body(w, Tensor(value)).sum().backward()
        assert program_gradients(dygraph.trace(lambda x: body(w, x), Tensor([1.0])), Tensor(value)) == {"w": numbers(w.grad)[0]}
    w.clear_gradient()
    body(w, Tensor([4.0])).sum().backward()
    assert program_gradients(traced, Tensor([4.0])) == {"w": numbers(w.grad)[0]}


def test_of_what_comes_from_outside_leaves_are_parameters() -> None:
    w = leaf([2.0])
    y = w * 3.0
    traced = dygraph.trace(lambda x: x * y * w + Tensor([1.0]), Tensor([1.0]))
    assert [parameter.name for parameter in traced.program.all_parameters()] == [w.name]
    assert not traced.program.global_block().var(y.name).stop_gradient


def test_what_is_written_through_a_detached_tensor_is_refused() -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 2.0
        y.detach().zero_()
        return y

    with pytest.raises(ProgramError, match=r"is a detached tensor in the memory of .* give it a clone"):
        dygraph.trace(f, leaf([1.0]))
    w = dygraph.Parameter([2.0])

    def g(x: Tensor) -> Tensor:
        before = w.detach()
        w.detach().copy_(x)
        return before + w

    assert dygraph.trace(g, Tensor([1.0]))(Tensor([5.0])).tolist() == [10.0]
    assert w.tolist() == [5.0]
