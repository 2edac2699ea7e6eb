"""Layers of `fluid.layers` as objects, their parameters given, and ops that reach outside, in eager mode."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.dygraph import LayerOf, Tensor
from fluid.errors import BackwardError, ExecutionError, FluidTypeError, InferenceError, ProgramError
from fluid.formats.tensors import write_tensor

pytestmark = pytest.mark.numpy_alone

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield


def tensor(*shape: int, lod: Any = None, grad: bool = False) -> Tensor:
    found = Tensor(RNG.random(shape).astype("float32"), stop_gradient=not grad)
    return found if lod is None else found.with_lod((lod,))


def labels(*values: int, lod: Any = None) -> Tensor:
    found = Tensor(np.array(values, "int64")[:, None])
    return found if lod is None else found.with_lod((lod,))


# --------------------------------------------------------------------------------------------------------------- objects
def test_a_layer_is_made_of_a_function() -> None:
    layer = LayerOf(layers.hsigmoid, num_classes=4)
    assert layer.weight is None and layer.full_name() == "hsigmoid_0"
    first = layer(tensor(2, 3), labels(1, 2))
    assert [(name, p.name, p.shape) for name, p in layer.named_parameters()] == [
        ("weight", "hsigmoid_0.w_0", (3, 3)),
        ("bias", "hsigmoid_0.b_0", (3, 1)),
    ]
    before = layer.weight
    layers.reduce_mean(first).backward()
    assert before.grad is not None
    layer(input=tensor(5, 3), label=labels(0, 1, 2, 3, 0))
    assert layer.weight is before
    assert repr(layer) == "LayerOf(hsigmoid, weight=[3, 3], bias=[3, 1])"


def test_a_function_of_several_layers_keeps_the_parameters_of_all() -> None:
    net = LayerOf(lambda x: layers.fc(layers.fc(x, 4, act="relu"), 2))
    x = tensor(2, 3)
    out = net(x)
    assert list(net.state_dict()) == ["weight", "bias", "weight_1", "bias_1"]
    expected = np.maximum(x.numpy() @ net.weight.numpy() + net.bias.numpy(), 0) @ net.weight_1.numpy() + net.bias_1.numpy()
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(copy.deepcopy(net)(x).numpy(), out.numpy())


def test_it_is_part_of_a_layer_and_learns() -> None:
    class Tagger(dygraph.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.emission = dygraph.Linear(4, 3)
            self.crf = LayerOf(layers.linear_chain_crf)

        def forward(self, words: Any, tags: Any) -> Any:
            return layers.reduce_mean(self.crf(self.emission(words), tags, length=Tensor(np.array([3, 3]))))

    net, words, tags = Tagger(), tensor(2, 3, 4), Tensor(RNG.integers(0, 3, (2, 3)))
    first = net(words, tags)
    assert set(net.state_dict()) == {"emission.weight", "emission.bias", "crf.weight"}
    optimizer = fluid.optimizer.SGD(0.5, parameter_list=net.parameters())
    for _ in range(5):
        loss = net(words, tags)
        loss.backward()
        optimizer.minimize(loss)
        net.clear_gradients()
    assert net(words, tags).item() < first.item()


def test_one_parameter_in_two_layers() -> None:
    emission, tags = tensor(5, 3, lod=(0, 2, 5)), labels(0, 1, 2, 0, 1, lod=(0, 2, 5))
    crf = LayerOf(layers.linear_chain_crf)
    crf(emission, tags)
    decode = LayerOf(layers.crf_decoding, param_attr=crf.weight)
    path = decode(emission)
    assert decode.weight is crf.weight
    other, weight = (path.numpy()[0, 0] + 1) % 3, np.zeros((5, 3), "float32")
    weight[0, other] = 1000.0  # of beginning with another tag than before
    crf.weight.set_value(weight)
    assert decode(emission).numpy()[0, 0] == other
    np.testing.assert_array_equal(decode(emission).numpy(), layers.crf_decoding(emission, param_attr=crf.weight).numpy())
    with pytest.raises(
        ProgramError, match=r"crf_decoding decodes with what linear_chain_crf has learned; .* param_attr=crf\.weight"
    ):
        LayerOf(layers.crf_decoding, param_attr=fluid.ParamAttr("crf"))(emission)


def test_a_state_read_before_the_first_call() -> None:
    x, make = tensor(2, 3), lambda: LayerOf(lambda x: layers.fc(layers.fc(x, 4), 2))
    net, other = make(), make()
    out = net(x)
    other.set_dict({name: value.numpy() for name, value in net.state_dict().items()})
    np.testing.assert_array_equal(other(x).numpy(), out.numpy())


def test_it_tells_the_function_whether_it_is_trained() -> None:
    drop = LayerOf(layers.dropout, dropout_prob=0.5)
    x = Tensor(np.ones((20, 20), "float32"))
    assert 0 < drop(x).numpy().mean() < 1
    np.testing.assert_array_equal(drop.eval()(x).numpy(), np.full((20, 20), 0.5, "float32"))
    assert LayerOf(layers.dropout, dropout_prob=1.0, is_test=False).eval()(x).numpy().max() == 0


def test_what_it_refuses() -> None:
    with pytest.raises(FluidTypeError, match=r"LayerOf: hsigmoid has no argument 'classes'; it has input, label, num_classes"):
        LayerOf(layers.hsigmoid, classes=4)
    with pytest.raises(FluidTypeError, match=r"LayerOf takes a function, such as fluid.layers.hsigmoid, not 3"):
        LayerOf(3)  # type: ignore[arg-type]
    with pytest.raises(FluidTypeError, match=r"layer_of_0 takes x, but is given 2"):
        LayerOf(lambda x: x)(tensor(1), tensor(1))


def test_it_keeps_what_is_asked_for() -> None:
    x, ids = tensor(2, 3), labels(1, 2)
    layer = LayerOf(layers.fc)
    layer(x, 4)
    with pytest.raises(
        ProgramError,
        match=r"fc_0 keeps float32\[3, 4\] as its weight, but in this call fc asks for float32\[3, 7\] in this place.* another",
    ):
        layer(x, 7)
    with pytest.raises(ProgramError, match=r"fc_0 keeps float32\[3, 4\] as its weight, .* fc asks for float64\[3, 4\]"):
        layer(x.astype("float64"), 4)
    assert layer(x, 4).shape == (2, 4)
    table = LayerOf(layers.embedding)
    table(ids, [10, 3])
    with pytest.raises(ProgramError, match=r"embedding_0 keeps float32\[10, 3\] as its weight, .* float32\[20, 7\]"):
        table(ids, [20, 7])
    norm = LayerOf(layers.fc, param_attr=fluid.WeightNormParamAttr(dim=1))
    norm(x, 4)
    with pytest.raises(ProgramError, match=r"fc_1 keeps float32\[3, 4\] as its weight, .* float32\[3, 5\]"):
        norm(x, 5)


def test_it_keeps_what_is_asked_for_by_name() -> None:
    x, layer = tensor(2, 3), LayerOf(layers.fc, size=3, bias_attr=False)
    layer(x, param_attr=fluid.ParamAttr("A"))
    for other, said in ((fluid.ParamAttr("B"), "one called 'B'"), (None, "one without a name")):
        with pytest.raises(ProgramError, match=f"fc_0 keeps one called 'A' as its weight, but in this call fc asks for {said}"):
            layer(x, param_attr=other)
    mine, yours = (dygraph.Parameter(np.eye(3, dtype="float32"), name=name) for name in ("mine", "yours"))
    given = LayerOf(layers.fc, size=3, bias_attr=False)
    given(x, param_attr=mine)
    assert given.weight is mine
    with pytest.raises(ProgramError, match=r"keeps one called 'mine' as its weight, .* asks for one called 'yours'"):
        given(x, param_attr=yours)
    kept = copy.deepcopy(given)
    np.testing.assert_array_equal(kept(x, param_attr=kept.weight).numpy(), x.numpy())


def test_parameters_are_shared_by_name_as_in_a_program() -> None:
    first = np.float32([[0.5, 1, 0], [0, 1, 0], [2, 0, 1]])

    def net(x: Any) -> Any:
        for _ in range(2):
            attr = fluid.ParamAttr(name="S", initializer=fluid.initializer.NumpyArrayInitializer(first))
            x = layers.fc(x, 3, param_attr=attr, act="tanh")
        return layers.mean(x)

    data = RNG.random((2, 3)).astype("float32")
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        loss = net(fluid.data("x", [2, 3]))
        fluid.optimizer.SGD(0.5).minimize(loss)
        exe = fluid.Executor()
        exe.run(fluid.default_startup_program())
        expected = [exe.run(feed={"x": data}, fetch_list=[loss])[0].item() for _ in range(3)]
    layer = LayerOf(net)
    optimizer, found = fluid.optimizer.SGD(0.5, parameter_list=layer), []
    for _ in range(3):
        out = layer(Tensor(data))
        out.backward()
        optimizer.step()
        layer.clear_gradients()
        found.append(out.item())
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert {name: p.name for name, p in layer.named_parameters()} == {"weight": "S", "bias": "net_0.b_0", "bias_1": "net_0.b_1"}

    def unlike(x: Any) -> Any:
        return layers.fc(layers.fc(x, 3, param_attr="T"), 5, param_attr="T")

    with pytest.raises(ProgramError, match=r"unlike_0 keeps float32\[3, 3\] as its weight, .* float32\[3, 5\]"):
        LayerOf(unlike)(Tensor(data))


class _Own(layers.RNNCell):
    def call(self, inputs: Any, states: Any, **kwargs: Any) -> Any:
        found = layers.fc([inputs, states], 3)
        return found, found

    @property
    def state_shape(self) -> list[int]:
        return [3]


@each("traced", [False, True])
@each("where", ["a branch of cond", "a while_loop", "the steps of rnn"])
def test_no_parameters_are_made_in_branches_and_loops(where: str, traced: bool) -> None:
    def inside(x: Any, layer: Any) -> Any:
        if where == "a branch of cond":
            return layers.cond(layers.reduce_sum(x) > 0.0, lambda: layer(x), lambda: layer(-x))
        if where == "a while_loop":
            last = layers.fill_constant([1], "int64", 3)
            return layers.while_loop(
                lambda i, h: layers.less_than(i, last),
                lambda i, h: [i + 1, layer(h)],
                [layers.fill_constant([1], "int64", 0), x],
            )[1]
        return layers.rnn(_Own(), layers.unsqueeze(x, [0]))[0]

    def run(layer: Any) -> Any:
        return dygraph.to_static(layer) if traced else layer

    x = tensor(2, 3)
    bad = LayerOf(lambda x: inside(x, lambda x: layers.fc(x, 3)))
    with (
        dygraph.no_grad(),
        pytest.raises(
            ProgramError, match=f"layer_of_0: fc asks for a parameter inside {where}.* make the layer outside, once, .*dygraph.FC"
        ),
    ):
        run(bad)(x)
    assert bad.weight is None
    if where == "the steps of rnn":
        assert LayerOf(layers.rnn, cell=layers.GRUCell(3))(layers.unsqueeze(x, [0]))[0].shape == (1, 2, 3)
        return
    for layer in (dygraph.FC(None, 3), LayerOf(layers.fc, size=3)):
        outer = LayerOf(lambda x, layer=layer: inside(layers.fc(x, 3), layer))
        with dygraph.no_grad():
            out = run(outer)(x)
            np.testing.assert_allclose(run(outer)(x).numpy(), out.numpy(), rtol=1e-6)
        assert (list(outer.state_dict()), list(layer.state_dict())) == (["weight", "bias"], ["weight", "bias"])


def test_what_has_a_name_is_used_in_a_branch() -> None:
    def net(x: Any) -> Any:
        x = layers.fc(x, 3, param_attr="S", bias_attr=False)
        return layers.cond(layers.reduce_sum(x) > 0.0, lambda: layers.fc(x, 3, param_attr="S", bias_attr=False), lambda: x)

    layer, x = LayerOf(net), tensor(2, 3)
    out, weight = layer(x), layer.weight.numpy()
    once = x.numpy() @ weight
    np.testing.assert_allclose(out.numpy(), once @ weight if once.sum() > 0 else once, rtol=1e-5)
    assert list(layer.state_dict()) == ["weight"]


MIXED = {
    "a function": lambda: (LayerOf(layers.fc, size=3, act="tanh"), lambda layer, x: layer(x)),
    "a function of lists": lambda: (LayerOf(layers.fc, size=3), lambda layer, x: layer([x, x])),
    "FC of a list": lambda: (dygraph.FC("net", 3), lambda layer, x: layer([x, x])),
}


@each("case", MIXED)
def test_a_program_computes_what_tensors_compute(case: str) -> None:
    layer, call = MIXED[case]()
    x = RNG.random((2, 4)).astype("float32")
    wanted = call(layer, Tensor(x)).numpy()
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        out = call(layer, fluid.data("x", [None, 4]))
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    assert np.array_equal(executor.run(main, {"x": x}, [out], scope=scope)[0], wanted)


@each(
    "make",
    [
        lambda: LayerOf(layers.fc, size=3),
        lambda: LayerOf(fluid.contrib.layers.basic_gru, init_hidden=None, hidden_size=3),
        lambda: LayerOf(fluid.nets.glu),
        lambda: LayerOf(_doubled),
    ],
)
def test_it_is_pickled(make: Any) -> None:
    layer, x = make(), tensor(2, 3, 4)
    unmade = pickle.loads(pickle.dumps(layer))
    layer(x)
    unmade.set_dict(layer.state_dict())
    for other in (unmade, pickle.loads(pickle.dumps(layer)), copy.copy(layer), copy.deepcopy(layer)):
        expected, found = ((out[0] if isinstance(out, tuple) else out).numpy() for out in (layer(x), other(x)))
        np.testing.assert_array_equal(found, expected)


def _doubled(x: Any) -> Any:
    return layers.fc(x, 2) * 2.0


# ------------------------------------------------------------------------------------------------------ given parameters
def test_a_tensor_in_place_of_a_parameter() -> None:
    x, weight, bias = tensor(2, 3), tensor(3, 2, grad=True), tensor(2, grad=True)
    out = layers.fc(x, 2, param_attr=weight * 2.0, bias_attr=bias)
    np.testing.assert_allclose(out.numpy(), x.numpy() @ (2 * weight.numpy()) + bias.numpy(), rtol=1e-6)
    out.sum().backward()
    np.testing.assert_allclose(weight.grad.numpy(), 2 * np.repeat(x.numpy().sum(0)[:, None], 2, 1), rtol=1e-6)
    with pytest.raises(
        ProgramError, match=r"fc is given \w+ \(float32\[3, 2\]\) in place of a parameter that should be float32\[3, 5\]"
    ):
        layers.fc(x, 5, param_attr=weight)


# ------------------------------------------------------------------------------------------------------- what users read
def test_a_layer_that_would_lose_its_parameters_says_what_to_write() -> None:
    said = "would make its parameters anew in each call; in eager mode make, once, an object that keeps them, layer = "
    x = tensor(2, 3)
    for call, text in (
        (lambda: layers.fc(x, 2), "fc {}fluid.dygraph.FC(...), and call that with the tensors"),
        (lambda: layers.spectral_norm(x), "spectral_norm {}fluid.dygraph.SpectralNorm(...)"),
        (lambda: layers.hsigmoid(x, labels(1, 2), 4), "hsigmoid {}fluid.dygraph.LayerOf(fluid.layers.hsigmoid, num_classes=...)"),
        (lambda: layers.lstm_unit(x, x, x), "lstm_unit {}fluid.dygraph.LayerOf(fluid.layers.lstm_unit)"),
        (lambda: layers.dynamic_gru(x, 1), "dynamic_gru {}fluid.dygraph.LayerOf(fluid.layers.dynamic_gru, size=...)"),
        (
            lambda: fluid.contrib.layers.basic_gru(tensor(2, 3, 4), None, 3),
            "basic_gru {}fluid.dygraph.LayerOf(fluid.contrib.layers.basic_gru, hidden_size=...)",
        ),
    ):
        with pytest.raises(ProgramError) as caught:
            call()
        assert str(caught.value).startswith(text.format(said))


def test_every_layer_with_parameters_can_be_kept() -> None:
    rows = tensor(5, 4, lod=(0, 2, 5))
    for layer, inputs in (
        (LayerOf(layers.dynamic_lstm, size=4), [rows]),
        (LayerOf(layers.dynamic_lstmp, size=4, proj_size=2), [rows]),
        (LayerOf(layers.sequence_conv, num_filters=3), [rows]),
        (LayerOf(layers.data_norm), [tensor(2, 3)]),
        (LayerOf(layers.instance_norm), [tensor(2, 3, 4, 4)]),
        (LayerOf(layers.lstm, max_len=3, hidden_size=2, num_layers=1), [tensor(3, 2, 4), tensor(1, 2, 2), tensor(1, 2, 2)]),
        (
            LayerOf(fluid.nets.simple_img_conv_pool, num_filters=2, filter_size=3, pool_size=2, pool_stride=2),
            [tensor(1, 1, 8, 8)],
        ),
        (LayerOf(fluid.contrib.layers.basic_gru, init_hidden=None, hidden_size=3, bidirectional=True), [tensor(2, 3, 4)]),
    ):
        first = layer(*inputs)
        first = first[0] if isinstance(first, tuple) else first
        assert layer.parameters()
        again = layer(*inputs)
        np.testing.assert_array_equal((again[0] if isinstance(again, tuple) else again).numpy(), first.numpy())


# ------------------------------------------------------------------------------------------------------------------- rnn
def test_a_cell_keeps_its_parameters() -> None:
    cell, x = layers.GRUCell(5), tensor(2, 4, 3)
    out, last = layers.rnn(cell, x)
    np.testing.assert_array_equal(out.numpy()[:, -1], last.numpy())
    np.testing.assert_array_equal(layers.rnn(cell, x)[0].numpy(), out.numpy())
    out.sum().backward()
    kept = LayerOf(layers.rnn, cell=layers.LSTMCell(5))
    kept(x, sequence_length=Tensor(np.array([2, 4])))
    assert [p.shape for p in kept.parameters()] == [(8, 20), (20,)]
    with pytest.raises(ProgramError, match=r"rnn: inputs should have the same number of time steps, at least one; they have 0"):
        layers.rnn(cell, Tensor(np.ones((2, 0, 3), "float32")))


def test_a_recurrence_is_traced_step_by_step() -> None:
    cell, x = layers.GRUCell(5), tensor(2, 4, 3)
    traced = dygraph.trace(lambda x: layers.rnn(cell, x)[0], x)
    np.testing.assert_array_equal(traced(x).numpy(), layers.rnn(cell, x)[0].numpy())


# ---------------------------------------------------------------------------------------------------------------- arrays
def test_arrays_are_lists() -> None:
    x = tensor(2, 3, grad=True)
    with dygraph.guard():
        i, array = layers.fill_constant([1], "int64", 1), layers.create_array("float32")
        assert array == []
        assert layers.array_write(x, i, array) is array and array[0] is None
        layers.increment(i)
        layers.array_write(x * 2.0, i, array=array)
        assert layers.array_length(array).numpy().tolist() == [3]
        layers.array_read(array, i).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), np.full((2, 3), 2, "float32"))
        with pytest.raises(ProgramError, match=r"array_read: nothing was written to position 0 of the array, of length 3"):
            layers.array_read(array, Tensor([0]))
        with pytest.raises(ProgramError, match=r"array_write: i should not be below 0, but is -1"):
            layers.array_write(x, Tensor([-1]), array)
        with pytest.raises(ProgramError, match=r"tensor_array_to_tensor: input should hold tensors, at least one"):
            layers.tensor_array_to_tensor(array)
    stacked, sizes = layers.tensor_array_to_tensor(array[1:], axis=0, use_stack=True)
    assert (stacked.shape, sizes.numpy().tolist()) == ((2, 2, 3), [2, 2])
    with pytest.raises(FluidTypeError, match=r"array_write: array should be a list: on tensors, arrays are Python's lists"):
        layers.array_write(x, i, x)
    with pytest.raises(FluidTypeError, match=r"array_read: array should be a list: on tensors, arrays are Python's lists"):
        layers.array_read(x, i)
    with pytest.raises(FluidTypeError, match=r"array_read: i should be a tensor, or an int; i is a Variable of a program"):
        layers.array_read(array, layers.data("i", [1], False, "int64"))


# --------------------------------------------------------------------------------------------------------------- effects
def test_print_shows_a_tensor_and_its_gradient(capsys: Any) -> None:
    x = Tensor(np.float32([1, 2]), stop_gradient=False, name="x")
    y = layers.Print(x, message="here")
    (y * y).sum().backward()
    out = capsys.readouterr().out
    assert out.startswith(
        "Variable: x\n  - message: here\n  - lod: []\n  - shape: [2]\n  - dtype: float32\n  - data: [1.0 2.0]\n"
    )
    assert "Variable: x@GRAD\n" in out and out.endswith("  - data: [2.0 4.0]\n")
    np.testing.assert_array_equal(x.grad.numpy(), np.float32([2, 4]))
    for _ in range(4):
        layers.Print(x, first_n=2, print_phase="forward")
    assert capsys.readouterr().out.count("Variable: x") == 2


def test_print_is_traced(capsys: Any) -> None:
    x = tensor(2)
    traced = dygraph.trace(lambda x: layers.Print(x) * 2.0, x)
    capsys.readouterr()
    np.testing.assert_array_equal(traced(x).numpy(), 2 * x.numpy())
    assert capsys.readouterr().out.count("Variable:") == 1


def test_py_func_on_tensors() -> None:
    x, out = Tensor(np.float32([1, 2]), stop_gradient=False), Tensor(np.zeros(2, "float32"))
    calls: list[Any] = []

    def backward(x: Any, y: Any, dy: Any) -> Any:
        calls.append((x.tolist(), y.tolist()))
        return dy * 3

    found = layers.py_func(lambda x: 3 * x, x, out, backward)
    assert found is out and out.numpy().tolist() == [3, 6]
    (out * out).sum().backward()
    assert x.grad.numpy().tolist() == [18, 36] and calls == [([1, 2], [3, 6])]
    with dygraph.guard():
        any_shape = layers.create_tensor("float32")
        layers.py_func(lambda x: x[:1], x, any_shape)
    assert any_shape.shape == (1,) and any_shape.stop_gradient
    with pytest.raises(ExecutionError, match=r"the Python function gave a value of shape \[1\] for \w+ \(float32\[2\]\)"):
        layers.py_func(lambda x: x[:1], x, Tensor(np.zeros(2, "float32")))
    with pytest.raises(ExecutionError, match=r"the Python function gave 2 values, and there are 1 variables for them"):
        layers.py_func(lambda x: (x, x), x, Tensor(np.zeros(2, "float32")))
    squared = layers.py_func(lambda x: 3 * x, x, Tensor(np.zeros(2, "float32")), backward) ** 2.0
    (gradient,) = dygraph.grad(squared.sum(), x, create_graph=True)
    with pytest.raises(BackwardError, match=r"py_func is computed by backward_func, and cannot be differentiated"):
        dygraph.grad(gradient.sum(), x)
    with pytest.raises(ProgramError, match=r"py_func cannot be traced; call it before, and pass its result to the function"):
        dygraph.trace(lambda x: layers.py_func(lambda x: x, x, out), x)


def test_load_reads_a_tensor(tmp_path: Path) -> None:
    with (tmp_path / "rows").open("wb") as file:
        write_tensor(file, np.float32([[1], [2], [3]]), [[0, 1, 3]])
    out = Tensor(np.zeros((3, 1), "float32"))
    assert layers.load(out, str(tmp_path / "rows")) is out
    assert (out.numpy()[:, 0].tolist(), out.lod) == ([1, 2, 3], ((0, 1, 3),))
    with pytest.raises(ProgramError, match=r"cannot be given a value of shape \[3, 1\]"):
        layers.load(Tensor(np.zeros(2, "float32")), str(tmp_path / "rows"))


# ---------------------------------------------------------------------------------------------------------- refused
@each("guarded", [False, True])
def test_what_builds_blocks_is_for_programs(guarded: bool) -> None:
    yes, rows = Tensor([True]), tensor(3, 2, lod=(0, 1, 3))

    def step(network: Any, body: str, x: Any) -> None:
        with getattr(network, body)():
            network.step_input(x)

    def switch() -> None:
        with layers.Switch() as switch, switch.case(yes):
            pass

    with dygraph.guard() if guarded else contextlib.nullcontext():
        for call, said in (
            (lambda: layers.While(yes), r"While builds a block of a program, and \w+ is a tensor; on tensors use Python's while"),
            (switch, r"Switch builds a block of a program, .* Python's if, or layers.cond and layers.case"),
            (lambda: layers.IfElse(yes), r"IfElse builds a block of a program, .* layers.gather of where\(cond\)"),
            (
                lambda: step(layers.DynamicRNN(), "block", rows),
                r"DynamicRNN builds a block of a program, .* layers.rnn with a cell",
            ),
            (lambda: step(layers.StaticRNN(), "step", rows), r"blocks are parts of programs|Static.* layers.rnn with a cell"),
        ):
            with pytest.raises(ProgramError, match=said):
                call()


def test_rows_that_are_no_sequences() -> None:
    with pytest.raises(InferenceError, match=r"should hold sequences; .*; in eager mode, use x.with_lod\(\[offsets\]\)"):
        layers.sequence_softmax(tensor(3, 1))
    with pytest.raises(InferenceError, match=r"lod_reset: X float32\[\] has no rows that could form sequences"):
        layers.lod_reset(Tensor(np.float32(1)), Tensor(np.array([1])))
    with pytest.raises(ExecutionError, match=r"slice: strides \[0\] should not be 0"):
        layers.strided_slice(tensor(4, 5), [1], [0], [5], [Tensor(np.array([0], "int32"))])


# ------------------------------------------------------------------------------------------------------ no dimensions
@each(
    "call",
    [
        lambda a, b: layers.kldiv_loss(a, b, "mean"),
        lambda a, b: layers.kldiv_loss(a, b, "none"),
        lambda a, b: layers.rank_loss(b, a, b),
        lambda a, b: layers.teacher_student_sigmoid_loss(a, b),
        lambda a, b: layers.pad_constant_like(b, a),
        lambda a, b: dygraph.ops.slice(a * b, axes=[], starts=[], ends=[]),
    ],
)
def test_tensors_without_dimensions(call: Any) -> None:
    found = []
    for shape in ((), (1,)):
        a = Tensor(np.full(shape, 0.5, "float32"), stop_gradient=False)
        out = call(a, Tensor(np.full(shape, 0.25, "float32")))
        out.backward()
        assert a.grad.shape == shape
        found.append((out.numpy().reshape(-1).tolist(), a.grad.numpy().reshape(-1).tolist()))
    assert found[0] == found[1]


def test_no_batch_to_divide_by() -> None:
    a = Tensor(np.array(0.5, "float32"))
    with pytest.raises(InferenceError, match=r"kldiv_loss: X float32\[\] has no batch to divide by; use the reduction 'mean'"):
        layers.kldiv_loss(a, a, "batchmean")
