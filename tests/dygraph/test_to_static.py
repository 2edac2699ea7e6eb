"""`to_static`: one call has the effects of one call, and a program is made again where what it depends on has changed."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.dygraph import Tensor
from fluid.errors import FluidTypeError, ProgramError


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield


def ones(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, "float32"))


def rows(seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal((8, 3)).astype("float32") + 5)


# ------------------------------------------------------------------------------------------------------- effects of one call
@each("recording", [True, False])
def test_a_call_changes_what_one_call_changes(recording: bool) -> None:
    count, called = Tensor([0.0]), []

    @dygraph.to_static
    def f(x: Tensor) -> Tensor:
        called.append(1)
        count.add_(1.0)
        return x + count

    with dygraph.set_grad_enabled(recording):
        for number in range(1, 4):
            assert f(ones(1)).tolist() == [number + 1]
            assert count.tolist() == [number]
    assert called == [1]
    assert count.version == 3


@each("recording", [True, False])
def test_moving_statistics_move_once_a_call(recording: bool) -> None:
    plain, static = dygraph.BatchNorm(None, 3), dygraph.to_static(dygraph.BatchNorm(None, 3))
    with dygraph.set_grad_enabled(recording):
        for seed in range(3):
            np.testing.assert_array_equal(plain(rows(seed)).numpy(), static(rows(seed)).numpy())
            np.testing.assert_array_equal(plain._mean.numpy(), static._mean.numpy())


def test_a_trace_leaves_all_as_it_was() -> None:
    norm, count = dygraph.BatchNorm(None, 3), Tensor([1.0])
    norm(rows())
    before = norm._mean.numpy()
    node = (count * Tensor([2.0], stop_gradient=False)).grad_fn

    def f(x: Tensor) -> Tensor:
        count.add_(1.0)
        return norm(layers.dropout(x, 0.5)) * count

    dygraph.seed(3)
    expected = layers.dropout(rows(), 0.5).numpy()
    dygraph.seed(3)
    for example in (rows(), rows(1)):
        dygraph.trace(f, example)
    np.testing.assert_array_equal(layers.dropout(rows(), 0.5).numpy(), expected)
    np.testing.assert_array_equal(norm._mean.numpy(), before)
    assert (count.tolist(), count.version) == ([1.0], 0)
    assert node is not None and node(Tensor([1.0])) is not None  # what was saved has not been modified

    def broken(x: Tensor) -> Tensor:
        count.add_(1.0)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        dygraph.trace(broken, rows())
    assert count.tolist() == [1.0]


def test_inputs_that_are_changed_in_place_are_changed() -> None:
    def f(pair: Any, y: Tensor) -> Tensor:
        pair["a"].add_(y)
        pair["b"][0] = 7.0
        return pair["a"] * pair["b"]

    for call in (dygraph.trace(f, {"a": ones(2), "b": ones(2)}, ones(2)), dygraph.to_static(f)):
        for _ in range(2):
            pair = {"a": ones(2), "b": ones(2)}
            assert call(pair, ones(2)).tolist() == [14, 2]
            assert (pair["a"].tolist(), pair["b"].tolist()) == ([2, 2], [7, 1])


def test_random_ops_draw_what_they_draw_without_a_trace() -> None:
    def f(x: Tensor) -> Tensor:
        def step(i: Tensor, y: Tensor) -> Any:
            return [i + 1.0, layers.dropout(y, 0.3)]

        return layers.dropout(x, 0.5) + layers.while_loop(lambda i, y: i < 2.5, step, [Tensor([0.0]), x])[1]

    def three(function: Any) -> list[Any]:
        dygraph.seed(7)
        return [function(ones(50)).tolist() for _ in range(3)] + [layers.dropout(ones(9), 0.5).tolist()]

    expected = three(f)
    assert three(dygraph.trace(f, ones(50))) == expected
    assert three(dygraph.to_static(f)) == expected
    assert expected[0] != expected[1]


# -------------------------------------------------------------------------------------------------- what a program depends on
def test_a_change_of_mode_is_seen_wherever_the_layer_comes_from() -> None:
    net = dygraph.Sequential(dygraph.Dropout(0.5, dropout_implementation="upscale_in_train"))
    traces: list[bool] = []

    @dygraph.to_static
    def f(x: Tensor) -> Any:
        traces.append(net.training)
        return net(x)

    for training in (True, False, True, False):
        (net.train if training else net.eval)()
        for _ in range(2):
            assert bool((f(ones(100)).numpy() == 0).any()) is training
    assert traces == [True, False]


def test_replaced_parameters_layers_and_tensors_are_seen() -> None:
    net = dygraph.Sequential(dygraph.Linear(1, 1, bias_attr=False))
    net.scale = Tensor([2.0])
    f = dygraph.to_static(lambda x: net(x) * net.scale * SCALE[0])
    with dygraph.no_grad():

        def value() -> Any:
            return f(ones(1, 1)).tolist()[0][0]

        net[0].weight.set_value([[3.0]])
        assert [value(), value()] == [6.0, 6.0]
        net[0].weight = dygraph.Parameter([[5.0]])
        assert value() == 10.0
        net.scale = Tensor([3.0])
        assert value() == 15.0
        net[0] = dygraph.Linear(1, 1, param_attr=fluid.initializer.Constant(7.0), bias_attr=False)
        assert value() == 21.0
        net.add_sublayer("more", dygraph.Linear(1, 1, param_attr=fluid.initializer.Constant(2.0), bias_attr=False))
        assert value() == 42.0
        handle = net[0].register_forward_post_hook(lambda layer, inputs, found: found * 10.0)
        assert value() == 420.0
        handle.remove()
        assert value() == 42.0
    assert len(f._known) == 1 and sum(map(len, f._known.values())) < 3  # programs that nothing fits any more go


SCALE = [1.0]
GLOBAL = Tensor([2.0])


def test_globals_closures_and_attributes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = Tensor([3.0])
    f = dygraph.to_static(lambda x: x * GLOBAL * inside)
    assert f(ones(1)).tolist() == [6]
    inside = Tensor([5.0])
    assert f(ones(1)).tolist() == [10]
    monkeypatch.setitem(globals(), "GLOBAL", Tensor([7.0]))
    assert f(ones(1)).tolist() == [35]

    class Plain:
        def __init__(self) -> None:
            self.w = Tensor([2.0], stop_gradient=False)

        @dygraph.to_static
        def f(self, x: Tensor) -> Any:
            return self.w * x

    thing, other = Plain(), Plain()
    with dygraph.no_grad():
        assert thing.f(ones(1)).tolist() == [2]
        thing.w.set_value([4.0])
        assert thing.f(ones(1)).tolist() == [4]
        thing.w = Tensor([9.0], stop_gradient=False)
        assert (thing.f(ones(1)).tolist(), other.f(ones(1)).tolist()) == ([9], [2])
    y = thing.f(ones(1))
    y.backward()
    assert thing.w.gradient().tolist() == [1]


def test_a_fixed_trace_stays_what_it_is() -> None:
    net = dygraph.Sequential(dygraph.Linear(2, 2), dygraph.Dropout(0.5)).eval()
    traced, expected = dygraph.trace(net, ones(1, 2)), net(ones(1, 2)).numpy()
    net.train()
    net[0].weight = dygraph.Parameter(np.zeros((2, 2), "float32"))
    np.testing.assert_array_equal(traced(ones(1, 2)).numpy(), expected)


class Slots:
    __slots__ = ("w",)

    def __init__(self, w: float) -> None:
        self.w = Tensor([w])

    @dygraph.to_static
    def f(self, x: Tensor) -> Any:
        return x * self.w


def test_a_class_with_slots() -> None:
    one, other = Slots(2.0), Slots(3.0)
    for _ in range(2):
        assert (one.f(ones(1)).tolist(), other.f(ones(1)).tolist()) == ([2], [3])
    one.w = Tensor([5.0])
    assert (one.f(ones(1)).tolist(), Slots.f.__name__, one.f.__name__) == ([5], "f", "f")
    assert one.f.trace(ones(1)).feed_names == ["x"]


class Base(dygraph.Layer):
    @dygraph.to_static
    def forward(self, x: Tensor) -> Any:
        return x * 2.0


class Derived(Base):
    @dygraph.to_static
    def forward(self, x: Tensor) -> Any:
        return super().forward(x) + 1.0


def test_a_static_method_calls_that_of_its_base_class() -> None:
    layer = Derived()
    for recording in (True, False):
        with dygraph.set_grad_enabled(recording):
            for x in (ones(1), ones(1), Tensor([1.0], stop_gradient=False)):
                assert layer(x).tolist() == [3.0]
                assert super(Derived, layer).forward(x).tolist() == [2.0]


def test_copies_are_traced_for_themselves() -> None:
    class Net(dygraph.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.linear = dygraph.Linear(1, 1)

        @dygraph.to_static
        def forward(self, x: Tensor) -> Any:
            return self.linear(x)

    for net in (Net(), dygraph.to_static(dygraph.Linear(1, 1))):
        with dygraph.no_grad():
            expected = net(ones(1, 1)).numpy()
            twin = copy.deepcopy(net)
            for parameter in twin.parameters():
                parameter.set_value(np.full(parameter.shape, 3.0, "float32"))
            assert twin(ones(1, 1)).tolist() == [[6.0]]
            np.testing.assert_array_equal(net(ones(1, 1)).numpy(), expected)
    again = pickle.loads(pickle.dumps(dygraph.to_static(dygraph.Linear(1, 1))))
    assert again(ones(1, 1)).shape == (1, 1)


def test_a_buffer_that_is_assigned_is_updated_by_the_program() -> None:
    class Sum(dygraph.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", Tensor([0.0]))

        @dygraph.to_static
        def forward(self, x: Tensor) -> Any:
            self.total = self.total + x
            return self.total * 1.0

    layer = Sum()
    buffer = layer.total
    assert [layer(ones(1)).tolist()[0] for _ in range(3)] == [1, 2, 3]
    assert layer.total is buffer and buffer.tolist() == [3]

    class Grows(Sum):
        def forward(self, x: Tensor) -> Any:
            self.total = layers.concat([self.total, x], 0)
            return self.total

    with pytest.raises(ProgramError, match=r"giving the buffer total of grows_\d+, float32\[1\], a float32\[2\] cannot be"):
        dygraph.trace(Grows(), ones(1))


# --------------------------------------------------------------------------------------------------------------- arguments
def test_arguments_by_name() -> None:
    def f(x: Tensor, scale: Any = 2.0, *, y: Any = None) -> Any:
        return x * scale if y is None else x * scale + y

    static = dygraph.to_static(f)
    for _ in range(2):
        assert static(ones(1)).tolist() == [2]
        assert static(ones(1), 3.0).tolist() == [3]
        assert static(ones(1), scale=4.0).tolist() == [4]
        assert static(x=ones(1), y=Tensor([5.0])).tolist() == [7]
        assert static(ones(1), scale=Tensor([3.0]), y=Tensor([5.0])).tolist() == [8]
    traced = dygraph.trace(f, ones(1), y=ones(1), scale=3.0)
    assert traced.feed_names == ["x", "y"]
    assert traced(Tensor([2.0]), scale=3.0, y=Tensor([4.0])).tolist() == [10]
    assert static.trace(ones(1), y=ones(1)).feed_names == ["x", "y"]


@each(
    ("call", "message"),
    [
        (lambda f: f({"b": ones(1), "c": ones(1)}, 2.0), r"argument 0 had the keys 'a', 'b', and now the keys 'b', 'c'"),
        (
            lambda f: f({"a": ones(1)}, 2.0),
            r"traced with 2 tensors, not 1: argument 0 had the keys 'a', 'b', and now the keys 'a'",
        ),
        (lambda f: f([ones(1), ones(1)], 2.0), r"argument 0 had the keys 'a', 'b', and now \["),
        (lambda f: f({"a": ones(1), "b": 2.0}, 2.0), r"not 1: argument 0\['b'\] was a tensor, and now is 2.0"),
        (lambda f: f({"a": ones(1), "b": ones(1)}, 3.0), r"argument 1 was 2.0, which became part of the program, and now is 3.0"),
        (lambda f: f({"a": ones(1), "b": ones(1)}, k=2.0), r"the arguments had 2 entries, and now 1"),
        (
            lambda f: f({"a": ones(1), "b": ones(1)}, 2.0, k=ones(1)),
            r"not 3: the arguments had the keys none, and now the keys 'k",
        ),
    ],
)
def test_arguments_that_differ_from_the_examples(call: Any, message: str) -> None:
    traced = dygraph.trace(lambda d, k: d["a"] * k - d["b"], {"a": ones(1), "b": ones(1)}, 2.0)
    with pytest.raises(ProgramError, match=message):
        call(traced)
    assert traced({"b": ones(1), "a": Tensor([5.0])}, 2.0).tolist() == [9]


# ------------------------------------------------------------------------------------------------------- programs in programs
def test_a_traced_function_in_a_traced_function() -> None:
    w = dygraph.Parameter([2.0], name="w")
    norm = dygraph.BatchNorm(None, 3)
    norm(rows())

    def choose(x: Tensor) -> Tensor:
        y = layers.cond(x.sum() > 0, lambda: x * w, lambda: x - w)
        return layers.while_loop(lambda i, z: i < 3.0, lambda i, z: [i + 1.0, z * w], [Tensor([0.0]), y])[1]

    inner = dygraph.trace(choose, ones(1))
    outer = dygraph.trace(lambda x: inner(inner(x) + 1.0) + choose(x) * w, ones(1))
    again = dygraph.trace(lambda x: outer(x) * 2.0, ones(1))
    for value in (3.0, -3.0):
        x = Tensor([value])
        expected = choose(choose(x) + 1.0) + choose(x) * w
        assert outer(x).tolist() == expected.tolist()
        assert again(x).tolist() == (expected * 2.0).tolist()
    assert list(outer.captured) == ["w"]
    outer.program.verify()
    normal = dygraph.trace(norm, rows())
    state = {name: tensor.numpy() for name, tensor in norm.state_dict().items()}
    both = dygraph.trace(lambda x: normal(normal(x)), rows(1))
    np.testing.assert_array_equal(norm._mean.numpy(), state["_mean"])
    found, moved = both(rows(2)).numpy(), norm._mean.numpy()
    norm.set_dict(state)
    np.testing.assert_allclose(normal(normal(rows(2))).numpy(), found, rtol=1e-5, atol=1e-6)  # one program may round differently
    np.testing.assert_allclose(norm._mean.numpy(), moved, rtol=1e-5, atol=1e-6)
    with fluid.program_guard(normal.program, fluid.Program()):
        fluid.layers.create_parameter([1], "float32", name="late")
    with pytest.raises(ProgramError, match="has got a variable late since it was traced"):
        dygraph.trace(lambda x: normal(x), rows())


def test_tensors_do_not_leave_a_branch_by_the_back_door() -> None:
    found: list[Tensor] = []

    def f(x: Tensor) -> Tensor:
        layers.cond(x.sum() > 0, lambda: (found.append(x * 2.0), x)[1], lambda: x)
        return found[-1] + 1.0

    with pytest.raises(ProgramError, match="was made inside a branch or loop, and is not known outside it"):
        dygraph.trace(f, ones(1))
    norm = dygraph.BatchNorm(None, 3)
    norm(rows())
    with pytest.raises(ProgramError, match="is from outside the branch or loop, and cannot be modified in it"):
        dygraph.trace(lambda x: layers.cond(x.sum() > 0, lambda: norm(x), lambda: x), rows())


def test_only_functions_and_layers_are_traced() -> None:
    with pytest.raises(FluidTypeError, match="to_static takes a function of tensors or a layer, not 3"):
        dygraph.to_static(3)


def test_a_refusal_that_is_not_let_through_is_one_all_the_same() -> None:
    with pytest.raises(ProgramError, match=r"the array of .* while it is traced"):
        dygraph.trace(lambda x: x if np.array_equal(x, [1.0]) else -x, ones(1))


# ---------------------------------------------------------------------------------------------------------------- memory
def test_what_a_traced_function_holds_goes_with_it() -> None:
    """Programs are held by their blocks, so the collector has to find them; it is to find no tensors there."""
    gc.collect()
    gc.disable()
    try:

        class Net(dygraph.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.linear = dygraph.Linear(2, 2)

            @dygraph.to_static
            def forward(self, x: Tensor) -> Any:
                return layers.cond(x.sum() > 0, lambda: self.linear(x), lambda: x)

        net = Net()
        traced = dygraph.trace(net.linear, ones(1, 2))
        with dygraph.no_grad():
            net(ones(1, 2))
        traced(ones(1, 2))
        y = net(ones(1, 2))
        things = [weakref.ref(thing) for thing in (net, net.linear.weight, traced, traced.scope, y)]
        del net, traced, y
        assert [thing() for thing in things] == [None] * len(things)
        x = Tensor([1.0], stop_gradient=False)
        node = weakref.ref((x * 2.0).tanh().grad_fn)
        assert node() is None
        z = (x * 2.0).tanh()
        program = z.program()
        node = weakref.ref(z.grad_fn)
        del z
        assert node() is None and program.global_block().ops
    finally:
        gc.enable()


# ------------------------------------------------------------------------------------------------------ values of Python's
class Scaled(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.t: Any = 1.0
        self.sizes = [1.0, 2.0]
        self.table = {"a": {"w": Tensor([1.0])}}
        self.unused = None

    def helper(self, x: Tensor) -> Any:
        return x * BIAS + OTHERS["w"]

    @dygraph.to_static
    def forward(self, x: Tensor) -> Any:
        total = sum(self.sizes)
        return x * (0.5 if self.t is None else self.t) + total * self.table["a"]["w"] + self.helper(x)


BIAS = 0.0
OTHERS = {"w": Tensor([0.0])}


def _set_size(net: Scaled) -> None:
    net.sizes[1] = 7.0


def _set_tensor(net: Scaled) -> None:
    net.table["a"]["w"] = Tensor([4.0])


CHANGES: list[Any] = [
    lambda net: setattr(net, "t", 10.0),
    lambda net: setattr(net, "t", -0.0),
    lambda net: setattr(net, "t", None),
    lambda net: setattr(net, "sizes", [5.0]),
    lambda net: net.sizes.append(5.0),
    _set_size,
    _set_tensor,
    lambda net: setattr(net, "helper", lambda x: x),
    lambda net: delattr(net, "unused"),
]


@each("number", range(len(CHANGES)))
def test_changed_attributes_of_layers_are_seen(number: int) -> None:
    net = Scaled()
    outer = dygraph.to_static(lambda x: net(x) * 1.0)
    plain = Scaled.__dict__["forward"].__wrapped__
    with dygraph.no_grad():
        for function in (net, outer):
            assert function(ones(1)).tolist() == [4.0]
        CHANGES[number](net)
        expected = plain(net, ones(1)).tolist()
        for function in (net, outer):
            assert [function(ones(1)).tolist() for _ in range(2)] == [expected] * 2


def test_equal_attributes_do_not_make_another_program() -> None:
    traces: list[float] = []

    class Net(dygraph.Layer):
        @dygraph.to_static
        def forward(self, x: Tensor) -> Any:
            traces.append(self.t)
            return x * self.t

    net = Net()
    for value in (1.5, 3.0, 1.5, 3.0):
        net.t, net.pair = float(str(value)), (1, float("2.5"))
        assert [net(ones(1)).tolist() for _ in range(2)] == [[value]] * 2
    assert traces == [1.5, 3.0]


def test_globals_closures_and_defaults_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    net, factor, inside = Scaled(), 2.0, Tensor([3.0])

    def helper(x: Tensor) -> Any:
        return x * inside

    def f(x: Tensor, scale: Any = 1.0, *, shift: Any = 0.0) -> Any:
        return net.helper(helper(x)) * factor * scale + shift + _by_a_helper(x)

    static = dygraph.to_static(f)

    def check(expected: float) -> None:
        with dygraph.no_grad():
            assert [static(ones(1)).tolist(), f(ones(1)).tolist()] == [[expected]] * 2

    check(0.0)
    monkeypatch.setitem(globals(), "BIAS", 1.0)
    check(7.0)
    monkeypatch.setitem(OTHERS, "w", Tensor([1.0]))
    check(10.0)
    factor = 3.0
    check(14.0)
    inside = Tensor([1.0])
    check(8.0)
    f.__defaults__ = (2.0,)
    check(14.0)
    f.__kwdefaults__ = {"shift": Tensor([1.0])}
    check(15.0)


def _by_a_helper(x: Tensor) -> Any:
    return x * OTHERS["w"] + x * BIAS


def test_what_is_written_down_while_it_is_traced_does_not_make_another_program() -> None:
    seen: list[Any] = []

    @dygraph.to_static
    def f(x: Tensor) -> Any:
        seen.append(1.0)
        return x * 2.0

    for _ in range(3):
        f(ones(1))
        f(ones(2))
    assert len(seen) == 2


# ----------------------------------------------------------------------------------------------------- kinds of arguments
def test_lists_and_tuples_and_zeros_with_a_sign_are_told_apart() -> None:
    f = dygraph.to_static(lambda x: x[0] + x[1] if isinstance(x, list) else x[0] - x[1])
    for _ in range(2):
        assert (f([ones(1), ones(1)]).tolist(), f((ones(1), ones(1))).tolist()) == ([2.0], [0.0])
    g = dygraph.to_static(lambda x, a: 1.0 / (x * a))
    for _ in range(2):
        assert (g(ones(1), 0.0).tolist(), g(ones(1), -0.0).tolist()) == ([np.inf], [-np.inf])


def test_a_tensor_that_is_given_twice() -> None:
    def f(x: Tensor, y: Any) -> Any:
        x += 1.0
        return x * x * y["k"]

    for recording in (True, False):
        static = dygraph.to_static(f)
        with dygraph.set_grad_enabled(recording):
            for _ in range(2):
                for make in (lambda: (a := Tensor([2.0]), {"k": a}), lambda: (Tensor([2.0]), {"k": Tensor([2.0])})):
                    one, other = make(), make()
                    assert static(*one).tolist() == f(*other).tolist()
                    assert one[0].tolist() == other[0].tolist() == [3.0]
                    assert one[1]["k"].tolist() == other[1]["k"].tolist()
            a = Tensor([2.0])
            assert [static(a, {"k": a.detach()}).tolist(), a.tolist()] == [[27.0], [3.0]]
    twice = static.trace(a, {"k": a})
    assert twice(a, {"k": a}).tolist() == [64.0]
    with pytest.raises(ProgramError, match=r"f was traced with one tensor for both x and y, and now they are two; trace it for"):
        twice(a, {"k": ones(1)})
    apart = dygraph.trace(f, a, {"k": a})
    assert apart(ones(1), {"k": ones(1)}).tolist() == [4.0]
    with pytest.raises(
        ProgramError, match=r"f changes x in place, .* now two are in the same memory: give it a clone\(\) of one"
    ):
        apart(a, {"k": a})


# ----------------------------------------------------------------------------------------------------------- batch norms
@each("said", [{}, {"is_test": True}, {"use_global_stats": True}])
def test_a_batch_norm_by_its_moving_statistics_is_called_in_a_branch(said: Any) -> None:
    norm = dygraph.BatchNorm(None, 3, **said)
    dygraph.BatchNorm(None, 3)
    norm._mean.set_value([1.0, 2.0, 3.0])
    if not said:
        norm.eval()

    def f(x: Tensor) -> Any:
        return layers.cond(x.sum() > 0, lambda: norm(x), lambda: x * 2.0)

    traced = dygraph.trace(f, rows())
    traced.program.verify()
    for x in (rows(1), rows(1) * -1.0):
        np.testing.assert_allclose(traced(x).numpy(), f(x).numpy(), rtol=1e-6)
    assert norm._mean.tolist() == [1.0, 2.0, 3.0]
    with fluid.program_guard(traced.program):
        (grad,) = fluid.gradients([layers.reduce_sum(traced.fetches[0])], [traced.program.global_block().var(norm.weight.name)])
    (found,) = fluid.Executor().run(traced.program, {"x": rows(2).numpy()}, [grad], scope=traced.scope)
    (expected,) = dygraph.grad([f(rows(2)).sum()], [norm.weight])
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4)
    if not said:
        norm.train()
        with pytest.raises(
            ProgramError, match=r"batch_norm in training: .*call it before or after, or use .* by eval\(\) of the layer"
        ):
            dygraph.trace(f, rows())
