"""Scripts of Fluid 1.6 run with only the import changed: idioms of that time, and errors for idioms without a meaning."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import math
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import Checks, each, fresh_programs

import fluid
from fluid import layers


def loss_and_feed() -> tuple[fluid.Variable, dict[str, Any]]:
    """A regression's loss, and a feed."""
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
    loss = layers.mean(layers.square_error_cost(layers.fc(x, 1), y))
    rng = np.random.default_rng(1)
    return loss, {"x": rng.random((4, 3), np.float32), "y": rng.random((4, 1), np.float32)}


# ------------------------------------------------------------------------------------------------ values of one element
def of_a_program() -> Any:
    fluid.default_startup_program().random_seed = 3
    loss, feed = loss_and_feed()
    fluid.optimizer.SGD(0.01).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe.run(feed=feed, fetch_list=[loss])[0]


def of_a_tensor() -> Any:
    with fluid.dygraph.guard():
        return fluid.dygraph.to_variable(np.array([0.5], np.float32)).numpy()


def of_a_gradient() -> Any:
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.array([0.5], np.float32))
        x.stop_gradient = False
        (x * 2.0).backward()
        return x.gradient()


@each("fetch", [of_a_program, of_a_tensor, of_a_gradient])
def test_a_value_of_one_element_converts_as_it_did(fetch: Callable[[], Any]) -> None:
    """numpy 2.4 refuses these for arrays of the shape [1], which is what losses are."""
    value = fetch()
    number = value.item()
    assert isinstance(value, np.ndarray) and value.shape == (1,)
    assert float(value) == number and int(value) == int(number) and complex(value) == number and not math.isnan(value)
    assert "%.4f" % value == f"{number:.4f}" == f"{value:.4f}" and "%d" % value == str(int(number))  # noqa: UP031
    average = (value + value) / 2  # a sum over batches is printed, too
    assert f"{average:.3f} {float(np.exp(value)):.3f}" == f"{number:.3f} {np.exp(number):.3f}"
    total = np.zeros(3)
    total[1] = value
    assert total[1] == number
    with pytest.raises(TypeError):
        range(value)  # as always: a float is no index

    same = [
        np.asarray(value),
        np.array([value]),
        np.concatenate([value, value]),
        value + np.zeros(2),
        pickle.loads(pickle.dumps(value)),
    ]
    assert {type(other) for other in same} == {np.ndarray}
    assert repr(value) == repr(np.asarray(value)) and str(value) == str(np.asarray(value)) == f"{value}"
    assert copy.deepcopy(value) == value and (value == value).all()


def test_values_of_other_sizes_are_plain_arrays() -> None:
    x = fluid.data("x", [None, 3])
    exe = fluid.Executor()
    row, total, count = exe.run(feed={"x": np.ones((1, 3), np.float32)}, fetch_list=[x, layers.reduce_sum(x), layers.size(x)])
    assert type(row) is np.ndarray and float(total) == 3.0 and list(range(count)) == [0, 1, 2]
    with pytest.raises(TypeError, match="converted to Python scalars"):
        float(np.broadcast_to(total, (2,), subok=True))
    exe.run(feed={"x": np.ones((1, 3), np.float32) * total}, fetch_list=[x])


def test_a_tensor_of_a_scope_converts() -> None:
    """numpy.array(tensor), which scripts write, is always a plain array; the tensor itself has its element."""
    scope = fluid.Scope()
    tensor = scope.var("loss").get_tensor()
    tensor.set(np.array([0.5], np.float32), fluid.CPUPlace())
    assert float(tensor) == 0.5 and int(tensor) == 0 and f"{tensor:.2f}" == "0.50" and math.sqrt(tensor) == math.sqrt(0.5)


# ------------------------------------------------------------------------------------------------ sizes of what is fed
def test_layers_data_is_fed_any_sizes_and_fluid_data_checks_them() -> None:
    """Scripts declare a batch size, or the sizes of another batch, and feed other sizes."""
    old = layers.data("old", [2, 3], append_batch_size=False)
    flat = layers.data("flat", [-256, 1], append_batch_size=False, dtype="int64")  # of 256 words for each row of an unknown batch
    total = layers.reduce_sum(layers.scale(old, 2.0), dim=-1)
    exe = fluid.Executor()
    for shape in ((5, 3), (1, 4, 2)):
        array = np.random.default_rng(0).random(shape, np.float32)
        assert np.allclose(exe.run(feed={"old": array}, fetch_list=[total])[0], 2 * array.sum(-1))
    assert flat.shape == (-1, 1) and exe.run(feed={"flat": np.zeros((512, 1), np.int64)}, fetch_list=[flat])[0].shape == (512, 1)


@each("run", [lambda exe, **how: exe.run(**how), lambda exe, **how: exe.interpret(**how)])
def test_layers_data_is_fed_floats_of_any_width_which_fluid_data_refuses(run: Callable[..., Any]) -> None:
    """numpy makes float64 where nobody asks for it. A loop warns once, whatever its batches."""
    old, new = layers.data("old", [3]), fluid.data("new", [None, 3])
    exe, doubled = fluid.Executor(), old * 2.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for array in (np.full((2, 3), 0.1), np.full((2, 3), 0.1, ">f4")) * 2:
            (result,) = run(exe, feed={"old": array}, fetch_list=[doubled])
            assert result.dtype == np.float32 and np.array_equal(result, np.full((2, 3), 0.2, np.float32))
    declared = r"{0} is declared float32[-1, 3], but {1}[2, 3] is fed"
    assert [str(item.message) for item in caught] == [
        f"{declared.format('old', kind)}; it is converted in each run: convert it once, with .astype('float32')"
        for kind in ("float64", ">f4")
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(3):
            (result,) = run(exe, feed={"old": np.full((2, 3), number + 0.1)}, fetch_list=[doubled])
            assert result.dtype == np.float32 and np.allclose(result, 2 * number + 0.2)
    assert len(caught) == 3, "no run takes the array as it is"
    with pytest.raises(fluid.errors.FeedError, match=re.escape(declared.format("new", "float64"))):
        run(exe, feed={"new": np.zeros((2, 3))}, fetch_list=[new])


def test_labels_of_layers_data_are_fed_integers_whatever_they_declare() -> None:
    """As in Fluid 1.6, whose labels often left dtype at its default; labels of floats are refused where they are fed or sure."""
    logits, label = layers.fc(layers.data("x", [4]), 3), layers.data("label", [1])
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, label))
    accuracy = layers.accuracy(layers.softmax(logits), label)
    layers.mean(layers.cross_entropy(layers.softmax(logits), label))
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.eye(4, dtype="float32"), "label": np.array([[0], [1], [2], [0]])}
    losses = [float(executor.run(feed=feed, fetch_list=[loss, accuracy])[0]) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    with pytest.raises(RuntimeError, match=r"Label float32.*class numbers, as integers"):
        executor.run(feed={**feed, "label": feed["label"].astype("float32")}, fetch_list=[loss])
    for sure in (fluid.data("sure", [None, 1]), layers.scale(label)):
        with pytest.raises(TypeError, match="class numbers, as integers"):
            layers.softmax_with_cross_entropy(logits, sure)


def test_sizes_and_indices_of_layers_data_are_fed_integers_whatever_they_declare() -> None:
    """As in Fluid 1.6, where dtype was left at its default, and a list of sizes declared as a row."""

    def sizes(name: str, *shape: int) -> fluid.Variable:
        return layers.data(name, list(shape), append_batch_size=False)

    x, ids = layers.data("x", [2, 12], append_batch_size=False), layers.data("ids", [1])
    starts, ends, shape, times = sizes("starts", 1, 2), sizes("ends", 2), sizes("shape", 3), sizes("times", 2)
    rows = layers.embedding(ids, [5, 3])
    fetches = [
        layers.slice(x, axes=[0, 1], starts=starts, ends=ends),
        layers.reshape(x, shape),
        layers.expand(x, times),
        layers.fill_constant(shape, "float32", 1.5),
        layers.crop_tensor(x, shape=ends, offsets=starts),
        rows,
    ]
    fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.slice(rows, axes=[0, 1], starts=starts, ends=ends)))
    array, exe = np.arange(24, dtype="float32").reshape(2, 12), fluid.Executor()
    exe.run(fluid.default_startup_program())
    sizes = {"starts": [0, 1], "ends": [2, 2], "shape": [3, 2, 4], "times": [2, 3]}
    feed = {"x": array, "ids": np.array([[1], [4], [1]]), **{name: np.array(value, "int32") for name, value in sizes.items()}}
    results = exe.run(feed=feed, fetch_list=fetches)
    expected = [array[0:2, 1:2], array.reshape(3, 2, 4), np.tile(array, (2, 3)), np.full((3, 2, 4), 1.5), array[0:2, 1:3]]
    for value, wanted in zip(results, expected, strict=False):
        assert np.array_equal(value, wanted)
    assert results[-1].shape == (3, 3) and np.array_equal(results[-1][0], results[-1][2])
    with pytest.raises(fluid.errors.ExecutionError, match=r"StartsTensor is float32\[2\]; it should be int"):
        exe.run(feed={**feed, "starts": np.array([0, 1], "float32")}, fetch_list=fetches[:1])
    with pytest.raises(TypeError, match=r"StartsTensor is float32\[2\]; it should be int"):
        layers.slice(x, axes=[0, 1], starts=fluid.data("sure", [2]), ends=ends)


def test_sizes_that_an_op_refuses_are_told_beside_the_declared_ones() -> None:
    x = layers.data("x", [3])
    out = layers.fc(x, 2)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    for run in (exe.run, exe.interpret):
        with pytest.raises(
            fluid.errors.ExecutionError, match=r"(?s)mul.*x is declared float32\[-1, 3\], but float32\[2, 4\] is fed"
        ):
            run(feed={"x": np.zeros((2, 4), np.float32)}, fetch_list=[out])


def test_labels_without_their_second_dimension_get_advice() -> None:
    label = fluid.data("label", [None, 1], "int64")
    with pytest.raises(
        fluid.errors.FeedError, match=r"label is declared int64\[-1, 1\], but int64\[4\] is fed; .*\.reshape\(-1, 1\)"
    ):
        fluid.Executor().run(feed={"label": np.arange(4)}, fetch_list=[label])


# ------------------------------------------------------------------------------------------------ truth
def test_the_truth_of_a_variable_is_that_there_is_one() -> None:
    """``if bias:`` and ``x if x else y`` test whether a variable is given; the result of a comparison is unknown while the
    program is built."""
    x = fluid.data("x", [None, 3])
    assert x and (None or x) is x and bool(fluid.data("label", [None], "int64"))
    with pytest.raises(fluid.errors.ProgramError, match=r"use layers\.cond or layers\.while_loop"):
        bool(x > 0.0)
    with fluid.dygraph.guard():
        row = fluid.dygraph.to_variable(np.zeros((2, 3), np.float32))
        zero = fluid.dygraph.to_variable(np.zeros(1, np.float32))
        assert (row or None) is row and not zero  # one element is a value, which a script may decide on
        with pytest.raises(fluid.errors.ProgramError, match=r"bool\[2, 3\] cannot become bool: it has 6 elements, .*reduce_all"):
            bool(row > 0.0)


# ------------------------------------------------------------------------------------------------ seeds
def weights_of_a_net(seed: int, scope: fluid.Scope, guard: bool = False) -> list[Any]:
    """First values of the parameters of a net that is built into programs of its own."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard() if guard else contextlib.nullcontext():
        x = layers.fc(fluid.data("x", [None, 4]), 3, param_attr=fluid.ParamAttr(initializer=fluid.initializer.Normal()))
        layers.fc([x, x], 3, name="twice")
        layers.batch_norm(layers.fc(x, 2, param_attr=fluid.ParamAttr("mine", initializer=fluid.initializer.MSRA())))
    with fluid.scope_guard(scope):
        fluid.Executor().run(startup)
        return [np.array(scope.find_var(var.name).get_tensor()) for var in main.all_parameters()]


def test_the_same_seed_gives_the_same_weights() -> None:
    """In a second program, whatever the names have come to, in a scope where programs have run, and again in the same scope."""
    scope = fluid.Scope()
    first = weights_of_a_net(5, scope)
    assert len({value.tobytes() for value in first if value.std()}) == 4
    for again in (weights_of_a_net(5, scope), weights_of_a_net(5, scope, guard=True), weights_of_a_net(5, fluid.Scope())):
        assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    assert not np.array_equal(first[0], weights_of_a_net(6, fluid.Scope())[0])
    fluid.seed(0)
    assert not np.array_equal(weights_of_a_net(0, scope)[0], weights_of_a_net(0, scope)[0])  # no seed: each for itself


def test_fluid_seed_is_for_all_that_draws() -> None:
    noise = layers.uniform_random([3])
    draws = []
    for seed in (9, 9, 8):
        fluid.seed(seed)
        scope = fluid.Scope()
        with fluid.dygraph.guard():
            eager = layers.uniform_random([3]).numpy()
        draws.append([*weights_of_a_net(0, scope)[:1], eager, *fluid.Executor().run(fetch_list=[noise], scope=fluid.Scope())])
    for first, again, other in zip(*draws, strict=True):
        assert np.array_equal(first, again) and not np.array_equal(first, other)
    fluid.default_main_program().random_seed = 3  # a program's own seed goes first
    own = fluid.Executor().run(fetch_list=[noise], scope=fluid.Scope())[0]
    fluid.seed(9)
    assert np.array_equal(fluid.Executor().run(fetch_list=[noise], scope=fluid.Scope())[0], own)


# ------------------------------------------------------------------------------------------------ backward and updates
def test_no_grad_set_may_name_what_is_not_there() -> None:
    """As in Fluid 1.6; where a name is a slip, the warning says so."""
    loss, _ = loss_and_feed()
    with pytest.warns(UserWarning, match=r"no_grad_set names 'fc_0\.w_1', which is not .*; did you mean fc_0\.w_0"):
        pairs = fluid.append_backward(loss, no_grad_set={"fc_0.w_1"})
    assert len(pairs) == 2


def test_minimizing_a_loss_twice_warns_with_the_line_of_the_first_call() -> None:
    loss, _ = loss_and_feed()
    optimizer = fluid.optimizer.SGD(0.1)
    first = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    optimizer.minimize(loss)
    with pytest.warns(UserWarning, match=rf"{loss.name} is minimized again: .*twice in each run.*test_scripts\.py:{first} "):
        fluid.optimizer.Adam(0.1).minimize(loss)


CELL = """
x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
fluid.optimizer.SGD(0.01).minimize(loss)
"""


def test_a_cell_of_a_notebook_that_builds_again_warns() -> None:
    def run() -> None:
        exec(compile(CELL, "<ipython-input-1-0f3a>", "exec"), {"fluid": fluid})

    with fresh_programs(), warnings.catch_warnings():
        warnings.simplefilter("error")
        run()
        with pytest.raises(UserWarning, match=r"built again, beside the first.*program_guard.*<ipython-input-1-0f3a>:4"):
            run()
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            run()


def test_losses_of_their_own_are_minimized_without_a_warning() -> None:
    """As of a generator and its critic, through one function; and so is one loss for parameters of several optimizers."""
    x = fluid.data("x", [None, 3])
    one, two = layers.mean(layers.fc(x, 1)), layers.mean(layers.fc(layers.fc(x, 2), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for loss in (one, two):
            parameters = [var for var in fluid.default_main_program().all_parameters() if (var.name < "fc_1") is (loss is one)]
            fluid.optimizer.SGD(0.1).minimize(loss, parameter_list=parameters[:1])
            fluid.optimizer.Adam(0.1).minimize(loss, parameter_list=parameters[1:])


# ------------------------------------------------------------------------------------------------ types of errors
def gather_outside(run: Callable[..., Any]) -> None:
    ids = fluid.data("ids", [None, 1], "int64")
    table = layers.fill_constant([4, 2], "float32", 1.0)
    run(feed={"ids": np.array([[9]])}, fetch_list=[layers.gather(table, layers.reshape(ids, [-1]))])


def gather_outside_eagerly() -> None:
    with fluid.dygraph.guard():
        layers.gather(fluid.dygraph.to_variable(np.ones((4, 2), np.float32)), fluid.dygraph.to_variable(np.array([9])))


WRONG: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "an element type that an op does not take": (TypeError, lambda: layers.dropout(fluid.data("x", [3], "int32"), 0.5)),
    "element types that differ": (TypeError, lambda: fluid.data("x", [3], "int64") + fluid.data("y", [3])),
    "an element type that a layer does not take": (TypeError, lambda: layers.fc(fluid.data("x", [3, 4], "int64"), 2)),
    "random integers, whatever the shape": (TypeError, lambda: layers.uniform_random(fluid.data("x", [None, 4]), "int32")),
    "arithmetic of bools": (TypeError, lambda: fluid.data("x", [3], "bool") + 1),
    "no Variable": (TypeError, lambda: layers.fc([[1.0]], 2)),
    "a value": (ValueError, lambda: layers.pool2d(fluid.data("x", [1, 1, 4, 4]), 2, pool_type="min")),
    "partial windows without padding": (
        ValueError,
        lambda: layers.pool2d(fluid.data("x", [1, 1, 5, 5]), 2, pool_padding="VALID", ceil_mode=True),
    ),
    "partial windows of volumes": (
        ValueError,
        lambda: layers.pool3d(fluid.data("x", [1, 1, 5, 5, 5]), 2, pool_padding="valid", ceil_mode=True),
    ),
    "lengths that do not fit": (AssertionError, lambda: fluid.create_lod_tensor([[1, 2], [3]], [[2, 2]], fluid.CPUPlace())),
    "pruning for what is no name": (ValueError, lambda: fluid.default_main_program()._prune_with_input([1], [])),
    "pruning to nothing": (ValueError, lambda: fluid.default_main_program()._prune(None)),
    "what tensors of eager mode do": (AssertionError, lambda: layers.mean(fluid.data("x", [3])).backward()),
    "sizes": (ValueError, lambda: layers.matmul(fluid.data("x", [3, 4]), fluid.data("y", [3, 4]))),
    "sizes of a parameter": (
        ValueError,
        lambda: fluid.default_main_program().global_block().create_parameter(name="w", shape=[-1], dtype="float32"),
    ),
    "an index while building": (IndexError, lambda: fluid.data("x", [3])[5]),
    "an index in a run": (IndexError, lambda: gather_outside(fluid.Executor().run)),
    "an index in a run op by op": (IndexError, lambda: gather_outside(fluid.Executor().interpret)),
    "an index in eager mode": (IndexError, gather_outside_eagerly),
    "a feed that is no dict": (TypeError, lambda: fluid.Executor().run(feed=[1.0], fetch_list=[fluid.data("x", [3])])),
    "a fetch that is no Variable": (TypeError, lambda: fluid.Executor().run(fetch_list=[3])),
    "what is run is no Program": (TypeError, lambda: fluid.Executor().run("main")),
}


@each("what", WRONG)
def test_errors_have_the_types_of_python(what: str) -> None:
    kind, call = WRONG[what]
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, fluid.FluidError)


# ------------------------------------------------------------------------------------------------ what a Variable is
SAID = {
    "np.mean(loss)": r"loss is a Variable of a program, float32\[1\], .*no value.*fetch_list=\[loss\].*reduce_mean",
    "np.array(loss)": r"has no value until that runs.*exe\.run\(program, feed, fetch_list=\[loss\]\)",
    "float(loss)": "has no value until that runs.*fetch_list",
    "int(loss)": "has no value until that runs.*fetch_list",
    "'%f' % loss": "has no value until that runs.*fetch_list",
    "f'{loss:.3f}'": "has no value until that runs.*fetch_list",
    "[1, 2][loss]": "has no value until that runs.*fetch_list",
    "loss.numpy()": "has no value until that runs.*fetch_list",
    "loss.backward()": r"optimizer\.minimize\(loss\).*fluid\.append_backward\(loss\)",
    "x.gradient()": r"fluid\.gradients\(loss, x\)",
    "x.set_value(1)": r"scope\.find_var\('x'\)\.get_tensor\(\)\.set\(array, place\)",
    "x.reshape([3])": r"no attribute 'reshape'; write fluid\.layers\.reshape\(x, shape=\[\.\.\.\]\)",
    "x.T": r"write fluid\.layers\.transpose\(x, perm=\[1, 0\]\)",
    "x.sum()": r"write fluid\.layers\.reduce_sum\(x\)",
    "x.mean()": r"write fluid\.layers\.reduce_mean\(x\)",
    "x.softmax()": r"write fluid\.layers\.softmax\(x, \.\.\.\)",
    "x.colour": "'Variable' object has no attribute 'colour'",
    "len(x)": r"x\.shape\[0\] .*layers\.shape\(x\)",
    "x[0]": None,
    "x + np.ones(3)": r"float64\[3\]; write fluid\.layers\.assign\(array\)",
    "np.ones(3) * x": r"float64\[3\]; write fluid\.layers\.assign\(array\)",
    "np.exp(x)": r"np.exp: x is a Variable of a program, .*write fluid.layers.exp\(x\)",
    "x * np.array([0.5])": None,
}


NOT_IN_PROGRAMS = ["numpy", "backward", "gradient", "clear_gradient", "set_value"]


def test_methods_of_tensors_raise_what_they_did_in_programs() -> None:
    """An AssertionError, as scripts for both modes expect it; hasattr tells, too."""
    x = fluid.data("x", [None, 3])
    with Checks() as check:
        for name in NOT_IN_PROGRAMS:
            with check(name), pytest.raises(AssertionError, match=f"no attribute '{name}'; "):
                getattr(x, name)()
            assert not hasattr(x, name)


@each("code", SAID)
def test_a_variable_says_what_it_is_and_what_to_write(code: str) -> None:
    names = {"x": fluid.data("x", [None, 3]), "np": np}
    names["loss"] = layers.mean(names["x"], name="mine")
    program = fluid.default_main_program()
    program.rename(names["loss"], "loss")
    names["loss"] = program.global_block().var("loss")
    if SAID[code] is None:
        eval(code, names)
        return
    with pytest.raises((TypeError, AttributeError), match=f"(?s){SAID[code]}") as caught:
        eval(code, names)
    assert isinstance(caught.value, fluid.FluidError) or "ufunc" in str(caught.value)


def test_settings_that_optimizers_do_not_have_are_type_errors() -> None:
    for make, says in (
        (lambda: fluid.optimizer.Adam(lr=0.1), "has no argument 'lr'; did you mean learning_rate"),
        (lambda: fluid.optimizer.Adam(0.1, weight_decay=0.1), "has no argument 'weight_decay'"),
    ):
        with pytest.raises(TypeError, match=says):
            make()


def test_images_with_channels_last_are_told() -> None:
    with pytest.raises(fluid.FluidError, match=r"float32\[-1, 32, 32, 3\].*NHWC.*transpose\(x, perm=\[0, 3, 1, 2\]\)"):
        layers.conv2d(fluid.data("image", [None, 32, 32, 3]), 8, 5)
    with pytest.raises(fluid.errors.FeedError, match=r"float32\[2, 32, 32, 3\] is fed; .*\.transpose\(0, 3, 1, 2\)"):
        x = fluid.data("fed", [None, 3, 32, 32])
        fluid.Executor().run(feed={"fed": np.zeros((2, 32, 32, 3), np.float32)}, fetch_list=[x])


def test_variables_take_any_attribute_and_do_not_hide_what_they_lack() -> None:
    """Scripts keep notes at variables, and ask with hasattr."""
    x = fluid.data("x", [None, 3])
    x.note = "mine"
    assert x.note == "mine" and not hasattr(x, "numpy") and copy.copy(x).note == "mine" and getattr(x, "is_distributed", 1) == 1
    with fluid.dygraph.guard():
        tensor = fluid.dygraph.to_variable(np.ones(2, np.float32))
        tensor.note = "mine"
        tensor._stop_gradient = False
        assert tensor.note == "mine" and not tensor.stop_gradient and tensor._ivar is tensor
        assert copy.deepcopy(tensor).note == "mine"


def test_gradients_are_read_by_the_names_that_they_had() -> None:
    """Scripts read gradients of parameters by name to compare them."""
    with fluid.dygraph.guard():
        used, unused = fluid.dygraph.Linear(2, 2), fluid.dygraph.Linear(2, 2)
        x = fluid.dygraph.to_variable(np.ones((3, 2), np.float32))
        layers.reduce_sum(used(x)).backward()
        gradients = {p.name + fluid.core.grad_var_suffix(): p._ivar._grad_ivar() for p in used.parameters()}
        assert all(p._ivar._grad_ivar() is None for p in unused.parameters()) and x.lod_level == 0
    read = {name: np.array(grad.value().get_tensor()).tolist() for name, grad in gradients.items()}
    assert read == {"linear_0.w_0@GRAD": [[3.0, 3.0]] * 2, "linear_0.b_0@GRAD": [3.0, 3.0]}


def test_a_tensor_persists_as_long_as_something_refers_to_it() -> None:
    weight, tensor = fluid.dygraph.Parameter([1.0]), fluid.dygraph.to_variable([1.0])
    for one, persists in ((weight, True), (tensor, False)):
        with pytest.warns(UserWarning, match="persistable means nothing for tensors"):
            one.persistable = not persists
        assert one.persistable is persists


def test_what_is_alive_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """As scripts do that look for leaks: in a loop that keeps nothing, nothing grows."""
    with fluid.dygraph.guard():
        linear, counts = fluid.dygraph.Linear(2, 2), []
        for _ in range(3):
            linear(fluid.dygraph.to_variable(np.ones((1, 2), np.float32))).backward()
            counts.append(fluid.dygraph.base._print_debug_msg(is_test=True))
        kept = [linear(fluid.dygraph.to_variable(np.ones((1, 2), np.float32)))]
        names, ops, tensors = fluid.dygraph.base._print_debug_msg(is_test=True)
        fluid.dygraph.base._print_debug_msg(limit=1)
    assert counts[1] == counts[2] and len(kept) == 1
    assert (names, ops, tensors) == (counts[2][0], counts[2][1] + 2, counts[2][2] + 1)
    assert f"{ops} recorded ops, {tensors} tensors" in capsys.readouterr().out


OLD_NAMES: dict[str, tuple[Callable[[], Any], str, tuple[int, ...]]] = {
    "FC": (lambda: fluid.FC("a", 3), "_w _b", (2, 4)),
    "Embedding": (lambda: fluid.Embedding("a", [4, 3]), "_w", ()),
    "Conv2D": (lambda: fluid.Conv2D("a", 3, 2), "_filter_param _bias_param", (1, 2, 4, 4)),
    "Conv3D": (lambda: fluid.dygraph.Conv3D("a", 3, 2), "_filter_param _bias_param", (1, 2, 4, 4, 4)),
    "Conv2DTranspose": (lambda: fluid.dygraph.Conv2DTranspose("a", 3, filter_size=2), "_img_filter _bias_param", (1, 2, 4, 4)),
    "Conv3DTranspose": (lambda: fluid.dygraph.Conv3DTranspose("a", 3, filter_size=2), "_img_filter _bias_param", (1, 2, 3, 3, 3)),
    "BatchNorm": (lambda: fluid.BatchNorm("a", 2), "_scale _bias _mean _variance", (2, 2, 3, 3)),
    "LayerNorm": (lambda: fluid.dygraph.LayerNorm("a"), "_scale_w _bias_w", (2, 4)),
    "GroupNorm": (lambda: fluid.dygraph.GroupNorm("a", 2), "_scale _bias", (2, 4, 3, 3)),
    "SpectralNorm": (lambda: fluid.dygraph.SpectralNorm("a"), "u v", (2, 4)),
    "PRelu": (lambda: fluid.dygraph.PRelu("a", "channel"), "_alpha", (2, 4, 3, 3)),
}


@each("kind", OLD_NAMES)
def test_parameters_have_the_names_that_layers_gave_them(kind: str) -> None:
    """Assigned parameters keep their names, too, because scripts share them by name; once this added an unused parameter."""
    make, names, shape = OLD_NAMES[kind]
    with fluid.dygraph.guard():
        one, other = make(), make()
        x = np.ones(shape, np.float32) if shape else np.array([[1], [2]])
        for layer in (one, other):
            layer(fluid.dygraph.to_variable(x))
        for name in names.split():
            assert getattr(one, name) is not getattr(other, name)
            setattr(other, name, getattr(one, name))
            assert getattr(one, name) is getattr(other, name)
        assert {id(param) for param in other.parameters()} == {id(param) for param in one.parameters()}


def test_layers_are_layers_of_core_too() -> None:
    linear = fluid.dygraph.Linear(2, 2)
    assert isinstance(linear, fluid.core.Layer) and fluid.core.Layer().forward([]) == []
    with pytest.raises(NotImplementedError, match="Layer should define forward"):
        fluid.dygraph.Layer("l").forward([])


def test_arrays_are_arguments_of_layers_in_eager_mode() -> None:
    """Inside a guard layers take them for tensors, also in lists and beside tensors; outside, it is an error as before."""
    x, y = np.array([[1.0, 2.0]], np.float32), np.array([[3.0, 5.0]], np.float32)
    with fluid.dygraph.guard():
        tensor = fluid.dygraph.to_variable(y)
        assert layers.elementwise_sub(x, y).numpy().tolist() == [[-2.0, -3.0]]
        assert layers.elementwise_mul(tensor, y=x).numpy().tolist() == [[3.0, 10.0]]
        assert layers.concat([x, tensor], axis=0).shape == (2, 2) and layers.sums([x, y]).numpy().tolist() == [[4.0, 7.0]]
        assert float(layers.reduce_sum(x).numpy()) == 3.0 and layers.reshape(x, np.array([2, 1])).shape == (2, 1)
        weights = fluid.dygraph.to_variable(np.ones((2, 2), np.float32))
        weights.stop_gradient = False
        layers.matmul(x, weights).backward()
        assert weights.gradient().tolist() == [[1.0, 1.0], [2.0, 2.0]]
        with pytest.raises(TypeError, match="should be a Variable, not list"):
            layers.elementwise_sub([1.0], y)
    with pytest.raises(TypeError, match=r"should be a Variable, not ndarray; layers\.assign makes one"):
        layers.elementwise_sub(x, y)


# ------------------------------------------------------------------------------------------------ loaders in eager mode
def images_and_labels() -> Any:
    for number in range(5):
        yield np.full((1, 2), number, np.float32), np.array([number])


LOADERS = {
    "PyReader": lambda: fluid.io.PyReader(capacity=2),
    "from_generator": lambda: fluid.io.DataLoader.from_generator(capacity=2),
    "from_generator, with a list": lambda: fluid.io.DataLoader.from_generator(capacity=2, return_list=True),
}


@each("make", LOADERS)
def test_loaders_in_eager_mode_give_tensors(make: str) -> None:
    with fluid.dygraph.guard():
        loader = LOADERS[make]()
        batches = fluid.io.batch(images_and_labels, 2)
        if make == "PyReader":
            loader.decorate_sample_list_generator(batches, places=fluid.CPUPlace())
        else:
            loader.set_sample_list_generator(batches, places=fluid.CPUPlace())
        for _ in range(2):
            images, labels = zip(*loader(), strict=True)
            assert [image.shape for image in images] == [(2, 1, 2), (2, 1, 2), (1, 1, 2)] and images[0].stop_gradient
            assert [label.numpy().ravel().tolist() for label in labels] == [[0, 1], [2, 3], [4]]
        loader = LOADERS[make]().set_batch_generator(lambda: iter([(np.ones((2, 3)), np.ones(2, np.int64))]))
        ((image, label),) = list(loader())
        assert isinstance(image, fluid.Variable) and image.dtype is fluid.core.VarDesc.VarType.FP64 and label.shape == (2,)
        sample = LOADERS[make]().set_sample_generator(images_and_labels, batch_size=2, drop_last=True)
        assert [image.shape for image, _ in sample()] == [(2, 1, 2)] * 2
        with pytest.raises(fluid.FluidError, match="row 1 has 1 fields, but row 0 has 2"):
            list(LOADERS[make]().set_sample_list_generator(lambda: iter([[(1, 2), (3,)]]))())
    with pytest.raises(fluid.FluidError, match="feed_list should name the variables"):
        LOADERS[make]()


# ------------------------------------------------------------------------------------------------ names of that time, used
def test_descriptions_in_the_words_of_the_c_classes() -> None:
    program = fluid.core.ProgramDesc()
    block = program.block(0)
    op = block.append_op()
    op.set_type("mul")
    for slot in ("X", "Y"):
        block.var(slot).set_shape([4, 4])
        block.var(slot).set_dtype("float32")
        op.set_input(slot, [slot])
    block.var(b"Out")
    op.set_output("Out", ["Out"])
    op._set_attr("x_num_col_dims", 1)
    op.infer_shape(block)
    assert block.find_var("Out").shape() == [4, 4] and op.attr("x_num_col_dims") == 1 and op.input_arg_names() == ["X", "Y"]
    (grad,), of_grad = fluid.core.get_grad_op_desc(op, {"Y"}, [])
    assert grad.type() == "mul_grad" and grad.output_arg_names() == ["X@GRAD"] and of_grad == {"X@GRAD": "X"}
    assert fluid.Program.parse_from_string(program.serialize_to_string()).global_block().ops[0].type == "mul"
    inner = program.append_block(block)
    inner._prepend_op().set_type("scale")
    assert (inner.parent, inner.op_size(), program.num_blocks()) == (0, 1, 2)

    y = layers.scale(fluid.data("x", [None, 3]), 2.0, name="twice")
    assert y.op.type == y.op.desc.type() == "scale" and "scale" in y.op.attr_names and y.desc.shape() == [-1, 3]
    assert y.block.desc == fluid.default_main_program().desc.block(0) and fluid.data("z", [1]).op is None


def test_ops_and_blocks_are_looked_into_as_then() -> None:
    kinds, w = fluid.core.AttrType, layers.create_parameter([3], "float32", name="w")
    y = layers.cond(layers.fill_constant([1], "bool", 1), lambda: layers.scale(w, 2.0), lambda: w)
    program = fluid.default_main_program()
    block = program.global_block()
    fill, branch = (next(op for op in block.ops if op.type == type_) for type_ in ("fill_constant", "conditional_block"))
    types = {"shape": kinds.LONGS, "dtype": kinds.INT, "value": kinds.FLOAT, "force_cpu": kinds.BOOL, "str_value": kinds.STRING}
    assert {name: fill.attr_type(name) for name in types} == {name: fill.desc.attr_type(name) for name in types} == types
    assert branch.attr_type("sub_block") is kinds.BLOCK and branch._block_attr_id("sub_block") == 1
    assert branch._block_attr("sub_block") is program.block(1) and branch.to_string() == str(branch)
    assert fill.attr("op_role") == fluid.core.op_proto_and_checker_maker.OpRole.Forward and fill.attr("op_role_var") == []
    assert fill.attr("op_namescope") == "/" and fill.has_attr("op_callstack") and "op_role" not in fill.attrs
    op = block.desc.append_op()
    op.set_type("theirs")
    values = {"i": 3, "f": 1.5, "is": [1, 2], "fs": [0.5], "bs": [True], "long": 1 << 40, "blocks": [program.block(1)]}
    for name, value in values.items():
        op._set_attr(name, value)
    assert [op.attr_type(name).name for name in op.attr_names()] == ["INT", "FLOAT", "INTS", "FLOATS", "BOOLS", "LONG", "BLOCKS"]
    assert op._op._blocks_attr_ids("blocks") == [1] and op._op._blocks_attr("blocks") == [program.block(1)]

    assert list(block.iter_parameters()) == block.all_parameters() == [w] and block.to_string() == str(block)
    assert y.desc == block.desc.find_var(y.name) and {y.desc, w.desc} == {block.desc.var(name) for name in (y.name, "w")}
    assert block._rename_var("w", "v") is w and w.name == "v" and "w" not in block.vars and not w.op
    assert "v" in program.block(1).ops[0].input_arg_names
    with pytest.raises(ValueError, match="no variable 'u'"):
        block._rename_var("u", "v")
    with pytest.raises(ValueError, match="block 0 has such a variable"):
        block._rename_var(y.name, "v")
    program.block(1).ops[0]._rename_input("v", "other")
    assert program.block(1).ops[0].input_arg_names == ["other"]
    copied = fluid.Program().global_block()._clone_variable(y)
    assert copied.name == y.name and copied.spec == y.spec and copied.persistable


def test_what_scopes_hold_is_read_as_then() -> None:
    scope = fluid.Scope()
    tensor = scope.var("t").get_tensor()
    tensor._set_dims([2, 3])
    tensor._alloc_float(fluid.CPUPlace())
    tensor._set_float_element(4, 2.5)
    assert tensor._get_float_element(4) == 2.5 and tensor._dtype() is fluid.core.VarDesc.VarType.FP32 and tensor[1].shape() == [3]
    tensor.set_recursive_sequence_lengths([[1, 1]])
    assert tensor.has_valid_recursive_sequence_lengths()
    tensor.set_recursive_sequence_lengths([[1, 2]])
    assert not tensor.has_valid_recursive_sequence_lengths()
    with pytest.raises(fluid.FluidError, match="t holds no sparse gradient"):
        scope.find_var("t").get_selected_rows()
    array = scope.var("a").get_lod_tensor_array()
    array.append(np.ones(2))
    assert len(scope.var("a").get_lod_tensor_array()) == 1 and array[0].shape() == [2]
    fresh_tensor = fluid.core.LoDTensor()
    fresh_tensor._set_dims([2, 2])
    assert fresh_tensor._mutable_data(fluid.CPUPlace(), fluid.core.VarDesc.VarType.FP64) == fresh_tensor.array.ctypes.data
    assert fresh_tensor.shape() == [2, 2] and fresh_tensor._dtype() is fluid.core.VarDesc.VarType.FP64
    rows = fluid.core.SelectedRows()
    rows.set_height(9)
    assert rows.height() == 9 and rows.rows() == []

    number = scope.var("n")
    assert not number.is_int() and not number.is_float()
    number.set_int(3)
    assert number.is_int() and number.get_int() == 3
    number.set_float(1.5)
    assert number.is_float() and not number.is_int() and number.get_float() == 1.5
    with pytest.raises(fluid.FluidError, match="n holds no int"):
        number.get_int()

    scope.var("kept").get_tensor().set(np.array([1.5], np.float32))
    assert float(fluid.executor._fetch_var("kept", scope)) == 1.5
    assert [float(item) for item in fluid.executor.as_numpy([scope.var("kept").get_tensor()])] == [1.5]
    with pytest.raises(fluid.FluidError, match="sequences"):
        fluid.executor.as_numpy(tensor)
    with pytest.raises(fluid.FluidError, match="missing has no value"):
        fluid.executor._fetch_var("missing", scope)


def test_rank_tables_that_persist_are_found_in_the_scope() -> None:
    """Later runs use the table too, which lists (sequence, length) from the longest to the shortest."""
    x = layers.data("x", shape=[1], lod_level=1)
    table = layers.lod_rank_table(x)
    table.persistable = True
    executor = fluid.Executor()
    executor.run(feed={"x": (np.zeros((6, 1), "float32"), [[2, 3, 1]])})
    held = fluid.global_scope().find_var(table.name).get_lod_rank_table()
    assert list(held.items()) == [(1, 3), (0, 2), (2, 1)]
    with fluid.program_guard(fluid.Program()):
        block = fluid.default_main_program().global_block()
        kept = block.create_var(name=table.name, type=table.type, persistable=True)
        (length,) = executor.run(fluid.default_main_program(), fetch_list=[layers.max_sequence_len(kept)])
    assert length.tolist() == [3]
    with pytest.raises(fluid.FluidError, match="t holds no rank table"):
        fluid.global_scope().var("t").get_lod_rank_table()


def test_the_module_of_a_layers_name_is_called_as_the_layer() -> None:
    """An import under another name, such as paddle.fluid.layers.rnn, puts the module where the layer was."""
    module: Any = importlib.import_module("fluid.layers.rnn")
    assert module is not layers.rnn
    out, _ = module(module.GRUCell(4), fluid.data("x", [None, 3, 2]))
    assert out.shape == (-1, 3, 4)


def test_local_scopes_of_a_thread() -> None:
    from fluid import default_scope_funcs as scopes

    def inner() -> None:
        assert scopes.find_var("outer") is not None
        scopes.var("inner").set_int(1)
        assert scopes.get_cur_scope().find_var("inner").get_int() == 1

    assert scopes.find_var("inner") is None
    outer = scopes.get_cur_scope()
    scopes.var("outer")
    scopes.scoped_function(inner)
    assert scopes.get_cur_scope() is outer and scopes.find_var("inner") is None
    with pytest.raises(ZeroDivisionError):
        scopes.scoped_function(lambda: 1 / 0)
    assert scopes.get_cur_scope() is outer
    scopes.enter_local_scope()
    assert scopes.get_cur_scope() is not outer
    scopes.leave_local_scope()
    with pytest.raises(fluid.FluidError, match="no local scope"):
        scopes.leave_local_scope()


def test_programs_are_switched_and_blocks_made_by_hand() -> None:
    other = fluid.Program()
    before = fluid.framework.switch_main_program(other)
    try:
        x = fluid.data("x", [3])
        block = other._create_block()
        y = x + 1.0
        assert y.block is block and x.block.program is other
        other._rollback()
        assert other.current_block() is other.global_block() and fluid.framework._get_var("x") is x
    finally:
        assert fluid.framework.switch_main_program(before) is other
    with fluid.dygraph.guard(), fluid.framework._dygraph_guard(None), fluid.program_guard(other):
        assert not fluid.in_dygraph_mode() and fluid.framework._dygraph_tracer() is None
    assert fluid.framework.convert_np_dtype_to_dtype_("int64") is fluid.core.VarDesc.VarType.INT64
    x._set_error_clip(fluid.clip.ErrorClipByValue(1.0))
    assert x.error_clip.max == 1.0
    single = fluid.gradients(layers.mean(before.global_block().create_parameter(name="w", shape=[2], dtype="float32")), [])
    assert single == []


def test_a_block_runs_unless_its_input_is_empty() -> None:
    x = fluid.data("x", [None, 1])
    x.stop_gradient = False
    out = layers.fill_constant([1], "float32", 7.0)
    with layers.control_flow.ConditionalBlock(inputs=[x]).block():
        layers.assign(layers.reduce_sum(x), out)
    gradient = fluid.backward.calc_gradient(layers.mean(out), x)
    exe = fluid.Executor()
    for rows, total in ((2, 2.0), (0, 7.0)):
        feed = {"x": np.ones((rows, 1), np.float32)}
        assert exe.run(feed=feed, fetch_list=[out])[0] == total
    assert exe.run(feed={"x": np.ones((2, 1), np.float32)}, fetch_list=[gradient])[0].tolist() == [[1.0], [1.0]]


def test_mixed_precision() -> None:
    loss, feed = loss_and_feed()
    optimizer = fluid.contrib.mixed_precision.decorate(
        fluid.optimizer.SGD(0.1), init_loss_scaling=8.0, use_dynamic_loss_scaling=True
    )
    ops, pairs = optimizer.minimize(loss)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    losses = [exe.run(feed=feed, fetch_list=[loss, optimizer.get_loss_scaling()]) for _ in range(3)]
    assert losses[2][0] < losses[0][0] and losses[0][1] == 8.0 and len(ops) == len(pairs) == 2
    with pytest.raises(fluid.FluidError, match="relu cannot be in both lists"):
        fluid.contrib.mixed_precision.AutoMixedPrecisionLists(["relu"], ["relu"])


# ------------------------------------------------------------------------------------------- layers of eager mode in programs
class Net(fluid.dygraph.Layer):
    """Layers that make their parameters at once and in their first call, one parameter of its own, and moving statistics."""

    def __init__(self, name_scope: str) -> None:
        super().__init__(name_scope)
        self._conv = fluid.Conv2D(self.full_name(), num_filters=3, filter_size=3, act="relu")
        self._norm = fluid.BatchNorm(self.full_name(), num_channels=3)
        self._pool = fluid.Pool2D(self.full_name(), pool_size=2, pool_type="avg", global_pooling=True)
        self._fc = fluid.FC(self.full_name(), size=4, act="softmax")
        self._linear = fluid.dygraph.Linear(4, 4, param_attr=fluid.ParamAttr(initializer=fluid.initializer.Normal(scale=0.3)))
        self._bias = self.create_parameter(None, [4], is_bias=True)
        self._listed = [self.add_parameter(f"w_{number}", self.create_parameter(None, [4, 4])) for number in range(2)]

    def forward(self, images: Any) -> Any:
        hidden = self._linear(self._fc(self._pool(self._norm(self._conv(images)))))
        for weight in self._listed:
            hidden = layers.matmul(hidden, weight) + layers.reduce_max(weight)
        return layers.elementwise_add(layers.concat([hidden, hidden * self._listed[0]], axis=0), self._bias)


IMAGES = np.random.default_rng(7).random((4, 2, 6, 6), np.float32)


def trained_eagerly(seed: int) -> tuple[dict[str, Any], list[float]]:
    with fluid.dygraph.guard():
        fluid.default_startup_program().random_seed = fluid.default_main_program().random_seed = seed
        net, optimizer, losses, first = Net("net"), fluid.optimizer.SGD(0.5), [], {}
        for _ in range(3):
            loss = layers.mean(layers.square(net(fluid.dygraph.to_variable(IMAGES))))
            first = first or {param.name: param.numpy() for param in net.parameters() if param.trainable}
            loss.backward()
            optimizer.minimize(loss)
            net.clear_gradients()
            losses.append(float(loss.numpy()))
        return first, losses


def trained_as_a_program(seed: int) -> tuple[dict[str, Any], list[float]]:
    with fresh_programs() as (main, startup):
        startup.random_seed = main.random_seed = seed
        net = Net("net")
        loss = layers.mean(layers.square(net(fluid.data("images", [None, 2, 6, 6]))))
        fluid.optimizer.SGD(0.5).minimize(loss)
        exe = fluid.Executor()
        names = [param.name for param in net.parameters()]
        first = dict(zip(names, exe.run(startup, fetch_list=names), strict=True))
        assert set(names) == {param.name for param in main.all_parameters()}
        return first, [float(exe.run(main, {"images": IMAGES}, [loss])[0]) for _ in range(3)]


def test_a_layer_serves_both_modes() -> None:
    """The same parameters: names, first values, and what training makes of them."""
    (ours, eager), (theirs, static) = trained_eagerly(11), trained_as_a_program(11)
    assert len(ours) == 11 and len(theirs) == 13
    for name, value in ours.items():
        assert np.array_equal(value, theirs[name]), name
    np.testing.assert_allclose(eager, static, rtol=1e-5)


def test_parameters_are_named_by_scope_and_class() -> None:
    """By these names Fluid 1.6 saved what optimizers keep, and scripts choose parameters."""
    names = [param.name for param in Net("net").parameters(include_sublayers=False)]
    assert names == ["net/Net_0.b_0", "net/Net_0.w_0", "net/Net_0.w_1"]
    net = Net("net")
    net(fluid.data("images", [None, 2, 6, 6]))
    assert net.full_name() == "net/Net_1" and net._fc.weight.name == "net/Net_1/FC_0.w_0"
    linear, third = fluid.dygraph.Linear(2, 2), fluid.dygraph.LayerOf(layers.fc, size=2).full_name()
    assert linear.weight.name == "linear_2.w_0" and third == "fc_0"  # names of their own


def test_a_layer_in_programs_of_its_own() -> None:
    """In a test program beside the training one, after `eval`, and with values that were set before."""
    linear, drop = fluid.dygraph.Linear(3, 2), fluid.dygraph.Dropout(0.5, dropout_implementation="upscale_in_train")
    linear.weight.set_value(np.full((3, 2), 0.5, np.float32))
    out = linear(fluid.data("x", [None, 3]))
    test = fluid.Program()
    with fluid.program_guard(test, fluid.default_startup_program()):
        drop.eval()
        tested = drop(linear(fluid.data("x", [None, 3])))
    exe, x = fluid.Executor(), np.ones((2, 3), np.float32)
    exe.run(fluid.default_startup_program())
    for program, fetch in ((fluid.default_main_program(), out), (test, tested)):
        np.testing.assert_allclose(exe.run(program, {"x": x}, [fetch])[0], np.full((2, 2), 1.5))
    assert [op.type for op in fluid.default_startup_program().global_block().ops] == ["assign_value", "fill_constant"]
    eager = linear(fluid.dygraph.to_variable(x))
    np.testing.assert_allclose(eager.numpy(), np.full((2, 2), 1.5))
    fluid.optimizer.SGD(0.1).minimize(layers.mean(out), parameter_list=linear.parameters())
    loaded = fluid.Program.parse_from_string(fluid.default_startup_program().serialize_to_string())
    exe.run(loaded, scope=fluid.Scope())


def test_a_call_is_traced_while_it_trains(tmp_path: Path) -> None:
    """`dygraph.jit.trace` gives the output, with its graph, and a program that runs on what `save_dygraph` wrote."""
    exe, scope, programs = fluid.Executor(), fluid.Scope(), []
    with fluid.dygraph.guard():
        net, optimizer, images = Net("net"), fluid.optimizer.SGD(0.5), fluid.dygraph.to_variable(IMAGES)
        for _ in range(2):
            out, program = fluid.dygraph.jit.trace(net, images, feed_names=["images"], fetch_names=["out"])
            programs.append(program)
            fluid.save_dygraph(net.state_dict(), str(tmp_path / "net"))
            for name, value in fluid.load_dygraph(str(tmp_path / "net"))[0].items():
                scope.var(name).get_tensor().set(np.array(value.value().get_tensor()), fluid.CPUPlace())
                assert (
                    np.array_equal(value.numpy(), net.state_dict()[name].numpy())
                    and type(pickle.loads(value.dumps())) is np.ndarray
                )
            assert fluid.dygraph.jit.extract_vars([images, (out,), {"more": [images]}]) == [images, out, images]
            with fluid.scope_guard(scope), fluid.framework._dygraph_guard(None):
                again = exe.run(program, feed={"images": IMAGES}, fetch_list=["out"])[0]
            np.testing.assert_allclose(out.numpy(), again, rtol=1e-5)
            layers.mean(layers.square(out)).backward()
            assert all(param.gradient() is not None for param in net.parameters() if param.trainable)
            optimizer.minimize(out)
            net.clear_gradients()
    assert str(programs[0]) == str(programs[1]) and programs[0].global_block().has_var("_fc.weight")
    assert net._norm._mean.numpy().any()  # the calls were as any others
    with pytest.raises(TypeError, match=r"jit\.trace takes a Layer, not a function; dygraph\.trace takes any function"):
        fluid.dygraph.jit.trace(lambda x: x, [])


# ------------------------------------------------------------------------------------------------ arguments of layers and ops
def run_all(fetches: Any, feed: Any = None, **kwargs: Any) -> list[Any]:
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    return exe.run(feed=feed or {}, fetch_list=fetches, **kwargs)


SLICES = (
    "x[::2] x[1::2] x[::-1] x[:,::-1] x[1:,::2] x[3:0:-2] x[-1:-4:-1] x[2:-1] x[...,0] x[None] x[0,1,None] x[2:2] x[-2] x[-1] "
    "x[i] x[-i] x[0,i] x[:,i] x[i:] x[:j] x[i:j] x[i:j,1:i] x[i:j:2] x[j:i:-1] x[...,i,None] x[j:0:-1,i] x[i,j] "
    "x[0:4:j] x[3:0:-i,i:]"
)


@each("code", SLICES.split())
def test_slices_of_a_variable(code: str) -> None:
    """With steps, backwards, and by variables, as in Python; the gradient goes back to where the elements came from."""
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    x, i, j = fluid.data("x", [4, 6]), layers.fill_constant([1], "int32", 1), layers.fill_constant([1], "int64", 3)
    x.stop_gradient = False
    part = eval(code, {"x": x, "i": i, "j": j})
    (gradient,) = fluid.gradients(layers.reduce_sum(part), x)
    found, slope = run_all([part, gradient], {"x": array})
    expected = np.asarray(eval(code, {"x": array, "i": 1, "j": 3}))
    np.testing.assert_array_equal(found, expected.reshape(expected.shape or (1,)))
    np.testing.assert_array_equal(slope, np.isin(array, expected).astype(np.float32))


def test_what_cannot_be_sliced_says_what_to_write() -> None:
    x, unknown = fluid.data("x", [4, 6]), fluid.data("unknown", [None])
    for index in ([0.5], np.array(["a"]), True, slice(None, None, 0), slice(0.5, None)):
        with pytest.raises(fluid.FluidError, match=r"layers|step|integers"):
            x[index]
    with pytest.raises(fluid.FluidError, match=r"whose step is a variable should have a start and an end"):
        x[:: layers.fill_constant([1], "int32", -1)]
    with pytest.raises(fluid.FluidError, match=r"the end -1 .* its size is not known"):
        unknown[3:-1:-1]


def test_lists_with_variables_in_them() -> None:
    x, two = fluid.data("x", [2, 6]), layers.fill_constant([1], "int32", 2)
    first, second = layers.split(x, [two, 4], dim=1)
    wider = [layers.unsqueeze(x, axes) for axes in ([two, 0], two, [two])]
    assert (first.shape, second.shape) == ((2, -1), (2, 4))
    values = run_all([first, second, *wider], {"x": np.ones((2, 6), np.float32)})
    assert [value.shape for value in values] == [(2, 2), (2, 4), (1, 2, 6, 1), (2, 6, 1), (2, 6, 1)]


def test_sums_have_the_sequences_of_the_first_term() -> None:
    state, words = fluid.data("state", [None, 2], lod_level=1), fluid.data("words", [None, 2], lod_level=2)
    plain = fluid.data("plain", [None, 2])
    both = [layers.fc([state, words], 2), layers.fc([words, state], 2), layers.sums([plain, words])]
    assert [var.lod_level for var in both] == [1, 2, 0]
    array = np.ones((3, 2), np.float32)
    place = fluid.CPUPlace()
    feed = {"state": fluid.create_lod_tensor(array, [[1, 2]], place), "plain": array}
    feed["words"] = fluid.create_lod_tensor(array, [[1, 1], [1, 2]], place)
    values = run_all(both, feed, return_numpy=False)
    assert [value.recursive_sequence_lengths() for value in values] == [[[1, 2]], [[1, 1], [1, 2]], []]


def test_ops_are_appended_with_paddles_names_of_slots() -> None:
    block = fluid.default_main_program().global_block()
    tags = [fluid.data(name, [None, 1], "int64", lod_level=1) for name in ("found", "true")]
    names = ("Precision", "Recall", "F1-Score", "NumInferChunks", "NumLabelChunks", "NumCorrectChunks")
    outputs = {name: block.create_var(name=name.lower()) for name in names}
    attrs = {"num_chunk_types": 3, "chunk_scheme": "IOB"}
    op = block.append_op("chunk_eval", {"Inference": tags[0], "Label": tags[1]}, outputs, attrs)
    assert op.output("F1_Score") == ["f1-score"]
    x, label = fluid.data("x", [2, 3]), fluid.data("label", [2, 1], "int64")
    w = block.create_parameter(name="w", shape=[5, 3], dtype="float32")
    outputs = {"Out": block.create_var(name="cost"), "PreOut": block.create_var(name="pre"), "W_Out": w}
    block.append_op("hierarchical_sigmoid", {"X": x, "W": w, "Label": label}, outputs, {"num_classes": 6})
    assert block.var("cost").shape == (2, 1)


def test_gathering_by_an_empty_index() -> None:
    """An index of no elements is all of x, and its gradient the sum over the positions."""
    x, index, updates = fluid.data("x", [2, 3]), fluid.data("index", [2, 0], "int32"), fluid.data("updates", [2, 2, 3])
    x.stop_gradient = updates.stop_gradient = False
    out, total = layers.gather_nd(x, index), layers.scatter_nd_add(x, index, updates)
    gradients = fluid.gradients(out, x) + fluid.gradients(total, [x, updates])
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    feed = {"x": array, "index": np.zeros((2, 0), np.int32), "updates": np.ones((2, 2, 3), np.float32)}
    values = run_all([out, total, *gradients], feed)
    expected = [np.stack([array, array]), array + 2, np.full((2, 3), 2), np.ones((2, 3)), np.ones((2, 2, 3))]
    for value, right in zip(values, expected, strict=True):
        np.testing.assert_array_equal(value, right)


def test_calls_of_that_time_that_leave_arguments_out(tmp_path: Path) -> None:
    out = fluid.default_main_program().current_block().create_var(name="made", dtype="float32", shape=[2])
    assert run_all([layers.py_func(lambda: np.ones(2, np.float32), x=None, out=out)])[0].tolist() == [1.0, 1.0]
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    assert compiled.with_data_parallel(places=fluid.CPUPlace()) is compiled
    y = layers.fc(fluid.data("x", [2, 2]), 2)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    assert fluid.io.save_inference_model(str(tmp_path / "whole"), [], [], exe, export_for_deployment=False) == []
    whole = fluid.Program.parse_from_string((tmp_path / "whole" / "__model__.main_program").read_bytes())
    assert [op.type for op in whole.global_block().ops] == ["py_func", "mul", "elementwise_add"]
    assert fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [y], exe, compiled) == [y.name]
    with pytest.raises(fluid.FluidError, match="at least one target"):
        fluid.io.save_inference_model(str(tmp_path / "none"), [], [], exe)


def test_a_layer_that_computes_eagerly_inside_a_program_is_refused() -> None:
    """A tensor that it makes would be a constant of the program, without a gradient."""

    class Half(fluid.dygraph.Layer):
        def forward(self, x: Any) -> Any:
            return x * (fluid.dygraph.to_variable(np.ones(3, np.float32)) + 1.0)

    with pytest.raises(fluid.errors.FluidTypeError, match="one op cannot take both"):
        Half()(fluid.data("x", [None, 3]))


def test_the_inference_transpiler() -> None:
    """It folds batch_norms, in place, and the program predicts what it did in test mode."""
    image = fluid.data("image", [None, 3, 8, 8])
    hidden = layers.batch_norm(layers.conv2d(image, 4, 3, bias_attr=False), act="relu")
    prediction = layers.fc(layers.dropout(layers.pool2d(hidden, 2, "avg", 2), 0.5), 5, act="softmax")
    training = fluid.default_main_program().clone()
    test, program = training.clone(for_test=True), fluid.default_main_program()
    executor, array = fluid.Executor(fluid.CPUPlace()), np.random.default_rng(0).random((4, 3, 8, 8), np.float32)
    executor.run(fluid.default_startup_program())
    executor.run(training, feed={"image": array})  # it changes the statistics
    (expected,) = executor.run(test, feed={"image": array}, fetch_list=[prediction])
    fluid.transpiler.InferenceTranspiler().transpile(program, fluid.CPUPlace())
    assert "batch_norm" not in [op.type for op in program.global_block().ops]
    np.testing.assert_allclose(executor.run(program, {"image": array}, [prediction])[0], expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(fluid.errors.FluidTypeError, match="program should be a Program, not 'program'"):
        fluid.transpiler.InferenceTranspiler().transpile("program", fluid.CPUPlace())  # type: ignore[arg-type]
    with pytest.raises(fluid.errors.FluidTypeError, match=r"a place, such as fluid.CPUPlace\(\), not 'cpu'"):
        fluid.transpiler.InferenceTranspiler().transpile(program, "cpu")  # type: ignore[arg-type]
    fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.fc(fluid.data("x", [None, 2]), 1)))
    with pytest.raises(fluid.errors.ProgramError):
        fluid.transpiler.InferenceTranspiler().transpile(program, fluid.CPUPlace())
