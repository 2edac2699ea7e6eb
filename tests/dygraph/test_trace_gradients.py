"""Gradients in traced functions: through branches and loops, whichever way the example went; and of traced programs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.dygraph import Tensor
from fluid.errors import BackwardError, ProgramError


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
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


@each(
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


@each("make", [of_the_other_branch, of_a_loop, of_a_branch_in_a_loop, of_several_results])
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


@each(
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
            r"a gradient from inside a while_loop to values before it would skip the iterations in between",
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


@each(
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
@each("recording", [True, False])
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


# ------------------------------------------------------------------------------- tensors from outside in the same memory
def _aliases() -> tuple[Tensor, Tensor]:
    w = Tensor([2.0, 0.5], stop_gradient=False)
    return w, w.detach()


def _total(x: Any) -> Any:
    return layers.reduce_sum(x)


_SHARED: list[Any] = [
    lambda w, d: lambda x: x * w * d,
    lambda w, d: lambda x: x * d * w,
    lambda w, d: lambda x: layers.square(x * w - d * 2.0 * x),
    lambda w, d: lambda x: layers.square(-d * 2.0 * x + x * w),
    lambda w, d: lambda x: layers.cond(_total(x) > 0.0, lambda: x * d, lambda: x * w) + w,
    lambda w, d: lambda x: layers.cond(_total(x) > 0.0, lambda: d, lambda: w) * x + w * x,
    lambda w, d: lambda x: d * layers.cond(_total(x) > 0.0, lambda: w * d * d, lambda: w) * x,
    lambda w, d: lambda x: layers.while_loop(lambda i, y: i < 2.5, lambda i, y: [i + 1.0, y * d * w], [Tensor([0.0]), x])[1] * d,
    lambda w, d: lambda x: dygraph.grad([_total(x * w * w * d)], [w], create_graph=True)[0] * d * w,
    lambda w, d: lambda x: dygraph.grad([_total(layers.cond(_total(x) > 0, lambda: w * d * x, lambda: w * x))], [w])[0] * w,
]


@each("asks", [False, True], ids=["detached", "another leaf"])
@each("number", range(len(_SHARED)))
def test_a_detached_tensor_from_outside_is_another_variable(number: int, asks: bool) -> None:
    w, alias = _aliases()
    alias.stop_gradient = not asks
    function = _SHARED[number](w, alias)
    traced = dygraph.trace(function, Tensor([1.0, 2.0]))
    traced.program.verify()
    wanted = [w, alias] if asks else [w]
    names = [next(name for name, tensor in traced.captured.items() if tensor is item) for item in wanted]
    assert len(traced.captured) == len(wanted)
    variables = [traced.program.global_block().var(name) for name in names]
    assert all(isinstance(variable, fluid.framework.Parameter) for variable in variables)
    with fluid.program_guard(traced.program):
        loss = layers.reduce_sum(traced.fetches[0])
        grads = fluid.gradients([loss], variables)
    for values in ([1.0, 2.0], [-1.0, -2.0]):
        x = Tensor(values)
        y = function(x)
        expected = dygraph.grad([_total(y)], wanted, allow_unused=True)
        kept = [number for number, grad in enumerate(grads) if grad is not None]
        fetches = [traced.fetches[0], *(grads[number] for number in kept)]
        found = fluid.Executor().run(traced.program, {"x": x.numpy()}, fetches, scope=traced.scope)
        np.testing.assert_allclose(found[0], y.numpy(), rtol=1e-6)
        for place, grad in zip(kept, found[1:], strict=True):
            wants = expected[place]
            np.testing.assert_allclose(grad, np.zeros(2) if wants is None else wants.numpy(), rtol=1e-5)
        assert all(expected[place] is None for place in range(len(wanted)) if place not in kept)


@each("first", ["w", "alias"])
@each("other_read", [False, True])
def test_what_is_written_to_shared_memory_is_read_by_both(first: str, other_read: bool) -> None:
    w, alias = _aliases()
    one, other = (w, alias) if first == "w" else (alias, w)

    def f(x: Tensor) -> Tensor:
        y = x - one
        if other_read:
            y = y * 3.0 + other
        with dygraph.no_grad():
            one.scale_(3.0)
        y = y * x + one - other * 5.0
        with dygraph.no_grad():
            other.set_value(other * 2.0 + one)
        return y + one * x + other

    traced = dygraph.trace(f, Tensor([1.0, 2.0]))
    traced.program.verify()
    assert (w.tolist(), w.version, w.stop_gradient, alias.stop_gradient) == ([2.0, 0.5], 0, False, True)
    before = w.numpy()
    for values in ([1.0, 2.0], [-1.0, 4.0]):
        expected, after = f(Tensor(values)).numpy(), w.numpy()
        with dygraph.no_grad():
            w.set_value(before)
        np.testing.assert_allclose(traced(Tensor(values)).numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose(w.numpy(), after, rtol=1e-6)
        w.set_value(before)


def test_two_leaves_in_the_same_memory_are_not_written_to() -> None:
    w, alias = _aliases()
    alias.stop_gradient = False

    def late(x: Tensor) -> Tensor:
        y = x * w * alias
        w.set_value(x)
        return y

    def early(x: Tensor) -> Tensor:
        w.set_value(x)
        return x * w * alias

    for function in (late, early):
        with pytest.raises(ProgramError, match="are in the same memory, both require a gradient, and this memory is modified"):
            dygraph.trace(function, Tensor([1.0, 2.0]))
    assert w.tolist() == [2.0, 0.5]


def test_a_backward_of_ones_own_that_the_program_lacks_is_told() -> None:
    class Reverse(dygraph.PyLayer):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return -grad

    w = Tensor([3.0], stop_gradient=False)

    def hooked(x: Tensor) -> Tensor:
        y = x * w
        y.register_hook(lambda grad: -grad)
        return y * w

    def branch(x: Tensor) -> Tensor:
        return layers.cond(_total(x) > 0, lambda: Reverse.apply(x * w), lambda: x)

    for function, said in (
        (
            lambda x: Reverse.apply(x * w) * w,
            r"the backward of Reverse \(.*test_trace_gradients.py:\d+ in <lambda>\) is not part",
        ),
        (lambda x: Reverse.apply(Reverse.apply(x * w)), r"the backward of Reverse \(.*\) and of 1 more is not part"),
        (hooked, r"the hook of a tensor \(.*in hooked\) is not part of the program of hooked: append_backward would"),
        (branch, r"the backward of Reverse \(.*\) is not part of the program of branch"),
    ):
        with pytest.warns(UserWarning, match=said) as warned:
            dygraph.trace(function, Tensor([1.0]))
        assert len(warned) == 1 and warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dygraph.trace(lambda x: Reverse.apply(x), Tensor([1.0]))  # no gradient is asked for
        dygraph.trace(lambda x: dygraph.grad([Reverse.apply(x * w)], [w])[0], Tensor([1.0]))
        dygraph.trace(lambda x: layers.Print(x * w), Tensor([1.0]))
