"""From eager mode to programs: traced functions and layers, and recorded graphs as programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.dygraph import Tensor, ops
from fluid.errors import FluidTypeError, ProgramError

pytestmark = pytest.mark.numpy_alone

HERE = os.path.basename(__file__)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield


def leaf(*shape: int, seed: int = 0, stop: bool = True) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype("float32"), stop_gradient=stop)


def assert_same(traced: Any, function: Any, *inputs: Any) -> None:
    found, expected = traced(*inputs), function(*inputs)
    if isinstance(expected, Tensor):
        found, expected = [found], [expected]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def types(program: fluid.Program, block: int = 0) -> list[str]:
    return [op.type for op in program.block(block).ops]


class Net(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = dygraph.Conv2D(None, 3, 3, act="relu")
        self.norm = dygraph.BatchNorm(None, 3)
        self.pool = dygraph.Pool2D(None, 2, "avg", 2)
        self.drop = dygraph.Dropout(0.5)
        self.out = dygraph.FC(None, 4)

    def forward(self, x: Any) -> Any:
        return self.out(self.drop(self.pool(self.norm(self.conv(x)))))


# ------------------------------------------------------------------------------------------------------------ functions
def test_a_function() -> None:
    def f(a: Tensor, b: Tensor) -> Tensor:
        return ((a + b).tanh() * 2.0 - b[0:1]).sum(1)

    traced = dygraph.trace(f, leaf(3, 4), leaf(3, 4, seed=1))
    assert (traced.feed_names, [var.shape for var in traced.feeds]) == (["a", "b"], [(-1, 4), (-1, 4)])
    assert types(traced.program) == ["elementwise_add", "tanh", "scale", "slice", "elementwise_sub", "reduce_sum"]
    assert repr(traced) == "<traced f: a, b -> reduce_sum_0.tmp_0>"
    assert_same(traced, f, leaf(3, 4, seed=2), leaf(3, 4, seed=3))
    assert traced(np.ones((3, 4), "float32"), leaf(3, 4)).stop_gradient
    traced.program.verify()


def test_examples_and_results_may_be_nested() -> None:
    def f(pair: Any, factor: float) -> Any:
        return {"sum": pair["x"] + pair["y"], "both": [pair["x"] * factor, pair["x"]]}

    given = {"x": leaf(2), "y": leaf(2, seed=1)}
    traced = dygraph.trace(f, given, 3.0)
    other = {"x": leaf(2, seed=4), "y": leaf(2, seed=5)}
    found, expected = traced(other, 3.0), f(other, 3.0)
    assert list(found) == ["sum", "both"]
    np.testing.assert_array_equal(found["sum"].numpy(), expected["sum"].numpy())
    np.testing.assert_array_equal(found["both"][0].numpy(), expected["both"][0].numpy())
    np.testing.assert_array_equal(found["both"][1].numpy(), other["x"].numpy())
    assert traced.feed_names == ["pair_0", "pair_1"]


def test_names_of_feeds_and_fetches() -> None:
    traced = dygraph.trace(lambda x: (x, x * 2.0), leaf(2), feed_names=["data"], fetch_names=["same", "double"])
    assert (traced.feed_names, traced.fetch_names) == (["data"], ["same", "double"])
    exe = fluid.Executor()
    same, double = exe.run(traced.program, {"data": np.ones(2, "float32")}, traced.fetch_names, scope=traced.scope)
    assert (same.tolist(), double.tolist()) == ([1, 1], [2, 2])


def test_parameters_are_shared_both_ways() -> None:
    weight = dygraph.Parameter(np.ones(2, "float32"), name="w")
    traced = dygraph.trace(lambda x: x * weight, leaf(2))
    assert isinstance(traced.program.global_block().var("w"), fluid.Parameter)
    x = Tensor([1.0, 1.0])
    weight.set_value([3.0, 4.0])
    assert traced(x).tolist() == [3, 4]
    optimizer = fluid.optimizer.SGD(1.0, parameter_list=[weight])
    (weight * 1.0).sum().backward()
    optimizer.step()
    assert traced(x).tolist() == [2, 3]
    with fluid.program_guard(traced.program, fluid.Program()):
        loss = layers.mean(traced.fetches[0])
        fluid.optimizer.SGD(2.0).minimize(loss)
        startup = fluid.default_startup_program()
    exe = fluid.Executor()
    exe.run(startup, scope=traced.scope)
    exe.run(traced.program, {"x": np.ones(2, "float32")}, [loss], scope=traced.scope)
    assert weight.tolist() == [1, 2]


def test_two_tensors_of_one_name_are_two_variables() -> None:
    a, b = dygraph.Parameter([1.0], name="w"), dygraph.Parameter([2.0], name="w")
    traced = dygraph.trace(lambda x: x * a + b, Tensor([5.0]))
    assert traced(Tensor([5.0])).tolist() == [7]
    assert len(traced.captured) == 2


def test_constants_made_inside_are_made_in_each_run() -> None:
    def f(x: Tensor) -> Tensor:
        count = Tensor([1.0, 2.0])
        count.add_(x)
        big = dygraph.to_variable(np.arange(2000, dtype="float32"))
        big.scale_(2.0)
        return count.sum() + big.sum()

    traced = dygraph.trace(f, leaf(2))
    for seed in range(3):
        assert_same(traced, f, leaf(2, seed=seed))


def test_in_place() -> None:
    state = Tensor([0.0, 0.0], name="state")

    def f(x: Tensor) -> Tensor:
        y = x * 2.0
        y.add_(x)
        y[0] = x[1]
        z = y.clone()
        z.tanh_()
        state.copy_(state + z)
        return y * z

    traced = dygraph.trace(f, leaf(2))
    state.zero_()
    found = [traced(leaf(2, seed=seed)).numpy() for seed in range(3)]
    kept = state.numpy()
    state.zero_()
    expected = [f(leaf(2, seed=seed)).numpy() for seed in range(3)]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(kept, state.numpy())


def test_in_place_with_gradients() -> None:
    def f(x: Tensor) -> Any:
        y = x * 1.0
        y.tanh_()
        return dygraph.grad(y.sum(), x)[0]

    traced = dygraph.trace(f, leaf(3, stop=False))
    assert_same(traced, f, leaf(3, seed=7, stop=False))


def test_gradients_inside_are_part_of_the_program() -> None:
    def penalty(x: Tensor) -> Tensor:
        y = ((x @ x.transpose()).tanh() * 3.0).softmax()
        (slope,) = dygraph.grad(y[:, 0], x, create_graph=True)
        (second,) = dygraph.grad((slope * slope).sum(), x)
        return (second * second).mean()

    traced = dygraph.trace(penalty, leaf(3, 3, stop=False))
    assert not traced.captured
    x = leaf(3, 3, seed=8, stop=False)
    np.testing.assert_allclose(traced(x).numpy(), penalty(x).numpy(), 1e-5)


def test_gradients_of_ops_that_keep_more_than_they_give() -> None:
    norm = dygraph.LayerNorm(None)

    def f(x: Tensor) -> Any:
        return dygraph.grad((norm(x) * x).sum(), x)[0]

    traced = dygraph.trace(f, leaf(3, 4, stop=False))
    assert set(traced.captured) == {parameter.name for parameter in norm.parameters()}
    x = leaf(3, 4, seed=9, stop=False)
    np.testing.assert_allclose(traced(x).numpy(), f(x).numpy(), 1e-4, 1e-6)


# --------------------------------------------------------------------------------------------------- branches and loops
def test_cond() -> None:
    scale = dygraph.Parameter([3.0], name="scale")

    def f(x: Tensor) -> Any:
        return layers.cond(x.sum() > 0.0, lambda: (x * scale, x), lambda: (x.exp(), x - 1.0))

    traced = dygraph.trace(f, leaf(3))
    chosen = set()
    for seed in range(8):
        x = leaf(3, seed=seed)
        chosen.add(bool(x.sum() > 0.0))
        assert_same(traced, f, x)
    assert chosen == {True, False}
    assert types(traced.program).count("conditional_block") == 2


def test_while_loop() -> None:
    def f(x: Tensor, most: Tensor) -> Any:
        steps, total = layers.while_loop(lambda i, t: t.sum() < most, lambda i, t: [i + 1, t * t + x], [Tensor([0]), x])
        return steps, total

    traced = dygraph.trace(f, Tensor([1.0, 0.5], stop_gradient=False), Tensor([100.0]))
    assert "while" in types(traced.program)
    for most in (0.0, 3.0, 1e6):
        assert_same(traced, f, Tensor([1.0, 0.5]), Tensor([most]))
    with fluid.program_guard(traced.program, fluid.Program()):
        grads = fluid.gradients([traced.fetches[1]], [traced.feeds[0]])
    assert grads[0] is not None


def test_nested_control_flow_case_and_switch() -> None:
    def f(x: Tensor, which: Tensor) -> Any:
        inner = layers.cond(x.sum() > 0.0, lambda: layers.cond(x[0] > 0.0, lambda: x * 2.0, lambda: x * 3.0), lambda: -x)
        return layers.switch_case(which, {0: lambda: inner + 1.0, 2: lambda: inner * inner}, default=lambda: inner - 5.0)

    with dygraph.guard():
        traced = dygraph.trace(f, leaf(2), Tensor([0]))
        for seed in range(6):
            assert_same(traced, f, leaf(2, seed=seed), Tensor([seed % 3]))


def test_without_a_trace_control_flow_is_pythons() -> None:
    x = leaf(3, stop=False)
    calls = []
    layers.cond(Tensor([True]), lambda: calls.append("yes"), lambda: calls.append("no"))
    assert calls == ["yes"]
    assert layers.cond(Tensor([False]), lambda: x) is None
    (last,) = layers.while_loop(lambda y: y.sum() < 100.0, lambda y: y * 2.0 + 1.0, [x])
    last.sum().backward()
    assert x.grad is not None
    with pytest.raises(ProgramError, match="while_loop: body takes"):
        layers.while_loop(lambda y: y.sum() < 100.0, lambda y: [y, y], [x])


# ----------------------------------------------------------------------------------------------------------------- layers
def test_a_layer() -> None:
    net, x = Net().eval(), leaf(2, 1, 8, 8)
    traced = dygraph.trace(net, x)
    assert_same(traced, net, leaf(2, 1, 8, 8, seed=1))
    names = {parameter.name for parameter in net.parameters()}
    assert {parameter.name for parameter in traced.program.all_parameters()} == names
    assert "uniform_random" not in types(traced.program)  # its parameters were made while it was traced


def test_batch_norm_in_training_updates_its_statistics_in_the_program() -> None:
    norm = dygraph.BatchNorm(None, 3)
    x = leaf(4, 3, seed=1)
    traced = dygraph.trace(norm, x)
    (op,) = traced.program.global_block().ops
    assert op.outputs["MeanOut"] == op.inputs["Mean"] and op.outputs["VarianceOut"] == op.inputs["Variance"]
    before = norm._mean.numpy()
    found = traced(x).numpy()
    after = norm._mean.numpy()
    assert not np.array_equal(before, after)
    norm._mean.set_value(before)
    np.testing.assert_array_equal(norm(x).numpy(), found)
    np.testing.assert_array_equal(norm._mean.numpy(), after)


def test_traced_layer_as_in_fluid(tmp_path: Path) -> None:
    net, x = Net().eval(), leaf(2, 1, 8, 8)
    out, traced = dygraph.TracedLayer.trace(net, inputs=[x])
    (again,) = traced([x])
    np.testing.assert_array_equal(out.numpy(), again.numpy())
    traced.set_strategy(None, None)
    traced.save_inference_model(str(tmp_path), feed=[0], fetch=[0])
    exe = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), exe)
        (found,) = exe.run(program, {feeds[0]: x.numpy()}, fetches)
    np.testing.assert_array_equal(found, out.numpy())
    assert traced.program.num_blocks == 1


def test_a_traced_program_is_differentiated_saved_and_read() -> None:
    net, x = Net().eval(), leaf(2, 1, 8, 8)
    traced = dygraph.trace(net, x)
    again = fluid.Program.parse_from_string(traced.program.serialize_to_string())
    assert types(again) == types(traced.program)
    with fluid.program_guard(traced.program, fluid.Program()):
        loss = layers.mean(traced.fetches[0])
        pairs = fluid.append_backward(loss)
    weight = net.conv.weight
    (name,) = (grad.name for param, grad in pairs if param.name == weight.name)
    (found,) = fluid.Executor().run(traced.program, {"x": x.numpy()}, [name], scope=traced.scope)
    net(x).mean().backward()
    np.testing.assert_array_equal(found, weight.grad.numpy())


def test_the_shape_of_the_batch_can_be_freed() -> None:
    net = dygraph.Linear(3, 2, act="tanh")
    traced = dygraph.trace(net, leaf(4, 3))
    traced.program.set_shape("input", [-1, 3])
    assert_same(traced, net, leaf(7, 3))


# -------------------------------------------------------------------------------------------------------------- to_static
def test_to_static_traces_once_for_each_kind_of_input() -> None:
    calls = []

    @dygraph.to_static
    def f(x: Tensor, times: int) -> Tensor:
        calls.append(times)
        return (x * float(times)).tanh()

    for shape, times in (((2,), 2), ((2,), 2), ((3,), 2), ((2,), 3), ((2,), 2)):
        np.testing.assert_allclose(f(leaf(*shape), times).numpy(), np.tanh(leaf(*shape).numpy() * times), 1e-6)
    assert calls == [2, 2, 3]
    assert f.__name__ == "f"
    assert types(f.trace(leaf(2), 2).program) == ["scale", "tanh"]
    with pytest.raises(FluidTypeError, match="to_static: arguments should be tensors, or values that can be hashed, not a set"):
        f(leaf(2), {1})


def test_to_static_records_where_gradients_are_asked_for() -> None:
    weight = dygraph.Parameter([2.0])

    @dygraph.declarative
    def f(x: Tensor) -> Tensor:
        return x * weight

    y = f(Tensor([3.0]))
    y.backward()
    assert weight.gradient().tolist() == [3.0]
    with dygraph.no_grad():
        assert f(Tensor([4.0])).tolist() == [8.0]


def test_to_static_of_a_method_and_of_a_layer() -> None:
    class Twice(dygraph.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.linear = dygraph.Linear(3, 3)
            self.drop = dygraph.Dropout(0.5, dropout_implementation="upscale_in_train")

        @dygraph.to_static
        def forward(self, x: Any) -> Any:
            return self.drop(self.linear(self.linear(x)))

    one, other = Twice(), Twice()
    x = leaf(2, 3)
    with dygraph.no_grad():
        one.eval()
        other.eval()
        plain = one.linear(one.linear(x)).numpy()
        np.testing.assert_array_equal(one(x).numpy(), plain)
        assert not np.array_equal(other(x).numpy(), plain)
        one.train()
        assert (one(x).numpy() == 0).any()
    net = dygraph.to_static(Net().eval())
    y = leaf(2, 1, 8, 8)
    with dygraph.no_grad():
        np.testing.assert_array_equal(net(y).numpy(), Net.forward(net, y).numpy())
    assert isinstance(net.forward.trace(y), dygraph.TracedFunction)


# ----------------------------------------------------------------------------------------------------------------- errors
def decided(x: Tensor) -> Tensor:
    if x.sum() > 0.0:
        return x
    return -x


LINE = decided.__code__.co_firstlineno + 1


def test_a_decision_by_a_value_is_refused_with_its_line() -> None:
    with pytest.raises(ProgramError, match=rf"bool\(\) of .* while it is traced(.|\n)*{HERE}:{LINE} in decided") as caught:
        dygraph.trace(decided, leaf(2))
    assert "fluid.layers.cond" in str(caught.value) and "fluid.layers.while_loop" in str(caught.value)


@each(
    ("taken", "how"),
    [
        (r"numpy\(\)", lambda x: x.numpy()),
        (r"item\(\)", lambda x: x[0].item()),
        (r"float\(\)", lambda x: float(x.sum())),
        (r"int\(\)", lambda x: int(x.sum())),
        (r"tolist\(\)", lambda x: x.tolist()),
        ("the array", lambda x: np.asarray(x)),
        (r"__dlpack__\(\)", lambda x: np.from_dlpack(x)),
        (r"Tensor\(...\)", lambda x: Tensor(x)),
        ("the use as an index", lambda x: [1, 2, 3][x.astype("int64")[0]]),
        (r"bool\(\)", lambda x: layers.cond(x.sum() > 0.0, lambda: x if x[0] > 0.0 else x * 2.0, lambda: x)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_cannot_be_taken_out(taken: str, how: Any) -> None:
    with pytest.raises(ProgramError, match=rf"{taken} of .* while it is traced(.|\n)*called at: .*{HERE}"):
        dygraph.trace(lambda x: (how(x), x)[1], leaf(2))
    assert leaf(2).numpy().shape == (2,)  # nothing is traced any more


def test_what_has_nothing_to_do_with_the_trace_keeps_its_value() -> None:
    outside = Tensor([2.0])
    traced = dygraph.trace(lambda x: x * outside.item() + Tensor([3.0]).item(), leaf(2))
    assert_same(traced, lambda x: x * 2.0 + 3.0, leaf(2, seed=1))
    assert dygraph.trace(lambda x: x * float(x.shape[0]) if f"{x}" else x, leaf(2))(Tensor([1.0, 2.0])).tolist() == [2, 4]


def test_what_cannot_be_traced() -> None:
    weight = dygraph.Parameter([2.0])
    optimizer = fluid.optimizer.SGD(0.1, parameter_list=[weight])
    (weight * 1.0).backward()
    with pytest.raises(ProgramError, match=r"backward\(\) cannot be traced; gradients in a program are values"):
        dygraph.trace(lambda x: (x * weight).backward(), Tensor([1.0]))
    with pytest.raises(ProgramError, match=r"grad of parameter_0, as by an optimizer, cannot be traced; .* trace the loss"):
        dygraph.trace(lambda x: optimizer.step(), Tensor([1.0]))
    with pytest.raises(ProgramError, match=r"trace\(\) cannot be traced; a function is being traced already"):
        dygraph.trace(lambda x: dygraph.trace(lambda y: y, x)(x), Tensor([1.0]))
    with pytest.raises(FluidTypeError, match="should return tensors, alone or in lists, tuples or dicts, not 'text'"):
        dygraph.trace(lambda x: "text", Tensor([1.0]))
    with pytest.raises(ProgramError, match="there are 1 example tensors, but 2 feed_names"):
        dygraph.trace(lambda x: x, Tensor([1.0]), feed_names=["a", "b"])
    with pytest.raises(FluidTypeError, match=r"TracedLayer.trace takes a Layer, not a function"):
        dygraph.TracedLayer.trace(lambda x: x, [Tensor([1.0])])
    with pytest.raises(ProgramError, match="was traced with 1 tensors, not 2"):
        dygraph.trace(lambda x: x * 1.0, Tensor([1.0]))(Tensor([1.0]), Tensor([1.0]))

    def writes(x: Tensor) -> Any:
        y = x * 1.0
        return layers.cond(x.sum() > 0.0, lambda: y.add_(x), lambda: x)

    with pytest.raises(ProgramError, match=r"add_: .* is from outside the branch or loop, and cannot be modified in it"):
        dygraph.trace(writes, Tensor([1.0]))


def test_an_error_inside_leaves_nothing_behind() -> None:
    def broken(x: Tensor) -> Tensor:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        dygraph.trace(broken, leaf(2))
    assert dygraph.trace(lambda x: x * 2.0, Tensor([2.0]))(Tensor([3.0])).tolist() == [6.0]


# ---------------------------------------------------------------------------------------------------- the recorded graph
def test_the_recorded_graph_as_a_program() -> None:
    x = leaf(2, 3, stop=False)
    x.name = "x"
    weight = dygraph.Parameter(np.ones((3, 2), "float32"), name="w")
    constant = Tensor([1.0, 2.0])
    y = (ops.mul(x, weight) * constant).tanh()
    z = (y + y * constant).sum()
    program = z.program()
    assert types(program) == ["mul", "elementwise_mul", "tanh", "elementwise_mul", "elementwise_add", "reduce_sum"]
    assert [parameter.name for parameter in program.all_parameters()] == ["w"]
    data = [var.name for var in program.list_vars() if var.is_data]
    assert data == ["x", "constant_0"]  # one constant, which is read twice
    program.verify()
    exe = fluid.Executor()
    scope = fluid.Scope()
    scope.var("w").get_tensor().set(weight.numpy())
    fetch = program.global_block().ops[-1].output("Out")[0]
    (found,) = exe.run(program, {"x": x.numpy(), "constant_0": constant.numpy()}, [fetch], scope=scope)
    np.testing.assert_array_equal(found, z.numpy())
    assert "reduce_all=True" in str(program)


def test_the_graph_of_a_leaf_of_several_outputs_and_of_functions_of_ones_own() -> None:
    class Double(dygraph.PyLayer):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:
            return dy * 2.0

    x = leaf(4, stop=False)
    assert not x.program().global_block().ops
    parts = ops.split(x, num=2, axis=0)
    y = Double.apply(parts[1]) + parts[0]
    assert types(y.program()) == ["split", "Double", "elementwise_add"]
    y.sum().backward()
    assert types(y.program()) == ["split", "Double", "elementwise_add"]  # also when what was saved is gone


def test_a_deep_graph() -> None:
    x = leaf(1, stop=False)
    for _ in range(3000):
        x = x * 1.0
    assert len(x.program().global_block().ops) == 3000


@each("rows", [lambda: dygraph.RowConv(None, 1), lambda: dygraph.SequenceConv(None, 3)])
def test_rows_that_form_sequences(rows: Any) -> None:
    rows = rows()
    traced = dygraph.trace(rows, leaf(5, 2).with_lod(((0, 2, 5),)))
    assert [(var.shape, var.lod_level) for var in traced.feeds] == [((-1, 2), 1)]
    for lod in ((0, 2, 5), (0, 1, 6)):
        x = leaf(lod[-1], 2, seed=lod[1]).with_lod((lod,))
        assert_same(traced, rows, x)
        assert traced(x).lod == (lod,)


def test_large_layers() -> None:
    encoder = dygraph.TransformerEncoder(dygraph.TransformerEncoderLayer(8, 2, 16), 2).eval()
    assert_same(dygraph.trace(encoder, leaf(2, 5, 8)), encoder, leaf(2, 5, 8, seed=1))
    lstm = dygraph.LSTM(3, 4, 2, "bidirect")
    traced = dygraph.trace(lstm, leaf(2, 5, 3))
    x = leaf(2, 5, 3, seed=1)
    (out, (h, c)), (expected, (last, _)) = traced(x), lstm(x)
    np.testing.assert_array_equal(out.numpy(), expected.numpy())
    np.testing.assert_array_equal(h.numpy(), last.numpy())
    assert c.shape == (4, 2, 4)


# ------------------------------------------------------------------------------------------------- operators in place
def test_augmented_operators_are_traced() -> None:
    weight = leaf(3, seed=1, stop=False)

    def function(x: Tensor) -> Any:
        y = z = x * weight
        y += 1.0
        y *= x
        y -= weight
        y /= 2.0
        y **= 2.0
        y += y
        return y, z, dygraph.grad(y.sum(), x)[0]

    x = leaf(3, stop=False)
    traced = dygraph.trace(function, x)
    for given in (x, leaf(3, seed=5, stop=False)):
        assert_same(traced, function, given)


def test_what_a_traced_function_counts_outside() -> None:
    count = Tensor([0.0])

    def function(x: Tensor) -> Tensor:
        nonlocal count
        count += 1.0
        return x + count

    traced = dygraph.trace(function, Tensor([1.0]))
    count.set_value([0.0])
    assert [traced(Tensor([1.0])).item() for _ in range(2)] == [2.0, 3.0]
    assert count.tolist() == [2.0]


def test_loops_modify_copies() -> None:
    def body(i: Tensor, s: Tensor) -> Any:
        i += 1
        s *= 2.0
        return i, s

    start = Tensor([0])

    def function(x: Tensor) -> Any:
        return layers.while_loop(lambda i, s: i < 3, body, [start, x])

    x = Tensor([1.0], stop_gradient=False)
    assert [part.tolist() for part in function(x)] == [[3], [8.0]]
    function(x)[1].backward()
    assert x.grad is not None and x.grad.tolist() == [8.0]
    traced = dygraph.trace(function, Tensor([1.0]))
    assert [part.tolist() for part in traced(Tensor([5.0]))] == [[3], [40.0]]
    assert start.tolist() == [0] and x.tolist() == [1.0]


def test_large_whole_numbers_are_traced() -> None:
    large = 2**53 + 1

    def function(x: Tensor) -> Any:
        return x + large, x * 1 % large, x < large, x.clone().fill_(large)

    traced = dygraph.trace(function, Tensor([1]))
    assert_same(traced, function, Tensor([large - 1]))
    assert traced(Tensor([0]))[0].tolist() == [large]


def test_a_required_attribute_that_has_its_usual_value() -> None:
    def spectrum(x: Tensor) -> Tensor:
        return ops.abs(ops.fft_r2c(x, axes=[0], normalization="backward", forward=True, onesided=True))

    x = Tensor([1.0, 2.0, 4.0])
    np.testing.assert_allclose(dygraph.trace(spectrum, x)(x).numpy(), spectrum(x).numpy(), rtol=1e-6)
