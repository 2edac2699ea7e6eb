"""The first hour: what beginners write wrongly gets a message that says what to write, and a traceback of their own lines."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import dygraph, layers
from fluid.errors import BackwardError, FeedError, FluidError, FluidTypeError, FormatError, NameNotFoundError, ProgramError
from fluid.ir.tracebacks import shorten


def run(fetches: Any, **feed: Any) -> Any:
    return fluid.Executor().run(feed=feed, fetch_list=fetches)


# ------------------------------------------------------------------------------------------------------------ tracebacks
def traceback_of(code: str, folder: Path, **settings: str) -> list[str]:
    """The lines that a script writes to stderr."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code))
    env = {key: value for key, value in os.environ.items() if key != "FLUID_FULL_TRACEBACK"} | settings
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr.splitlines()


EAGER = """
    import numpy as np
    from fluid import dygraph

    def forward(net, x):
        return net(x)

    with dygraph.guard():
        forward(dygraph.Sequential(dygraph.Linear(8, 3)), dygraph.to_variable(np.ones([2, 5], "float32")))
"""


def test_a_traceback_has_the_users_lines_alone(tmp_path: Path) -> None:
    lines = traceback_of(EAGER, tmp_path)
    assert lines[0] == "Traceback (most recent call last):"
    assert [line.rpartition(", in ")[2] for line in lines if line.startswith("  File ")] == ["<module>", "forward"]
    assert "    return net(x)" in lines and not any("dygraph/layers.py" in line for line in lines)
    assert lines[-1] == "fluid.errors.ProgramError: linear_0 takes [..., 8], not float32[2, 5]"
    full = traceback_of(EAGER, tmp_path, FLUID_FULL_TRACEBACK="1")
    assert any("layers.py" in line for line in full) and len(full) > len(lines) + 5


def test_a_cause_of_fluid_is_not_repeated_and_another_one_is_shown(tmp_path: Path) -> None:
    code = """
        import numpy as np
        from fluid import dygraph

        with dygraph.guard():
            x = dygraph.to_variable(np.ones([2, 5], "float32"))
            x + dygraph.to_variable(np.ones([2, 4], "float32"))
    """
    lines = traceback_of(code, tmp_path)
    assert sum(line.startswith("Traceback") for line in lines) == 1
    assert sum(line.startswith(("  called at: ", "  made at: ")) for line in lines) == 1
    try:
        try:
            {}["missing"]
        except KeyError as error:
            raise ProgramError("the table is incomplete") from error
    except ProgramError as error:
        assert isinstance(shorten(error).__cause__, KeyError)


def test_errors_in_threads_are_shortened(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from fluid.ir import tracebacks

    monkeypatch.setattr(threading, "excepthook", tracebacks._show_in_thread)

    def fails() -> None:
        layers.fc(3, 4)  # type: ignore[arg-type]

    thread = threading.Thread(target=fails)
    thread.start()
    thread.join()
    text = capsys.readouterr().err
    assert ", in fails" in text and "layers/arguments.py" not in text and "FluidTypeError" in text


def test_a_wrong_call_that_is_shown_twice_is_explained_once() -> None:
    from fluid.ir.tracebacks import _presented

    with pytest.raises(TypeError) as caught:
        layers.exponential_decay(0.1, 100)  # type: ignore[call-arg]
    for _ in range(2):
        text = str(_presented(caught.value, caught.value.__traceback__))
        assert text.count("it takes learning_rate") == 1


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [(layers, "dense", "fc"), (fluid, "Excutor", "Executor"), (layers, "convd2", "conv2d"), (dygraph, "Liner", "Linear")],
)
def test_a_name_that_is_nearly_right_is_suggested_by_every_python(module: Any, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; did you mean .*\b{meant}\b.*\?$"):
        getattr(module, name)
    assert not hasattr(module, name)


# ----------------------------------------------------------------------------------------------------- building programs
def test_a_shape_that_is_no_list() -> None:
    with pytest.raises(FluidTypeError, match=r"the shape of x should be a list of sizes, .*, such as \[None, 8\], not 8"):
        fluid.data("x", 8)  # type: ignore[arg-type]
    with pytest.raises(
        FluidTypeError, match=r"the name should be a string, as in fluid.data\('x', \[None, 8\]\), not \[None, 8\]"
    ):
        fluid.data([None, 8], "float32")  # type: ignore[arg-type]
    with pytest.raises(FluidTypeError, match="should be a list of sizes"):
        fluid.data("x", ["8"])  # type: ignore[list-item]
    with pytest.raises(FluidTypeError, match="data: shape should be a list of integers or None, not 8"):
        layers.data("x", 8)  # type: ignore[arg-type]


def test_functions_of_numpy_name_the_layer() -> None:
    x = fluid.data("x", [None, 2])
    with pytest.raises(FluidTypeError, match=r"np\.exp: x is a Variable of a program, .* write fluid\.layers\.exp\(x\)"):
        np.exp(x)
    with pytest.raises(FluidTypeError, match=r"np\.maximum: .* write fluid\.layers\.elementwise_max\(x\)"):
        np.maximum(x, 0.0)
    with pytest.raises(FluidTypeError, match=r"np\.heaviside: .* to compute with it in the program, use fluid\.layers"):
        np.heaviside(x, 0.0)
    two = np.float32(2)
    computed = [two * x, two + x, two - x, two / x, two**x, two < x]
    found = run(computed, x=np.array([[1, 4]], "float32"))
    expected = [[2, 8], [3, 6], [1, -2], [2, 0.5], [2, 16], [False, True]]
    np.testing.assert_allclose([np.ravel(value) for value in found], expected)


def test_a_variable_of_another_program() -> None:
    x = layers.relu(fluid.data("x", [None, 8]))
    with fluid.program_guard(fluid.Program()):
        with pytest.raises(
            NameNotFoundError, match=r"relu: relu_0\.tmp_0 \(float32\[-1, 8\], made at .*test_first_hour\.py:.*\) belongs to"
        ):
            layers.relu(x)
        fluid.data("z", [1])
        with pytest.raises(FeedError, match=r"fetch_list: relu_0\.tmp_0 .* belongs to another program; build both"):
            run([x], z=np.ones(1, "float32"))
    test = fluid.default_main_program().clone(for_test=True)  # a variable of the original stands for the one of the same name
    given = {"x": np.ones([1, 8], "float32")}
    assert fluid.Executor().run(test, given, [x])[0].shape == (1, 8)


def test_a_tensor_of_eager_mode_in_a_fetch_list() -> None:
    fluid.data("x", [None, 8])
    with dygraph.guard():
        tensor = dygraph.Tensor([1.0])
    with pytest.raises(FeedError, match=r"is a tensor of eager mode, which no program has; \.numpy\(\) gives its value"):
        run([tensor], x=np.ones([1, 8], "float32"))


def test_items_of_a_variable_are_set() -> None:
    x, value = fluid.data("x", [None, 3]), fluid.data("value", [3])
    x.stop_gradient = value.stop_gradient = False
    y = x * 1.0
    y[0] = 5
    y[1:, -1] = 2.5
    y[-1] = value
    weights = fluid.data("weights", [None, 3])
    to_x, to_value = fluid.gradients([layers.reduce_sum(y * weights)], [x, value])
    given, factors = np.arange(12, dtype="float32").reshape(4, 3), np.arange(1, 13, dtype="float32").reshape(4, 3)
    found = run([y, to_x, to_value], x=given, value=np.array([7, 8, 9], "float32"), weights=factors)
    expected, gradient = given.copy(), factors.copy()
    expected[0], expected[1:, -1], expected[-1] = 5, 2.5, [7, 8, 9]
    gradient[0], gradient[1:, -1], gradient[-1] = 0, 0, 0
    for one, wanted in zip(found, (expected, gradient, factors[-1]), strict=True):
        np.testing.assert_array_equal(one, wanted)
    with pytest.raises(ProgramError, match="is persistable, and a program changes such a variable only by an optimizer or"):
        layers.create_parameter([2], "float32", name="w")[0] = 1.0
    with pytest.raises(ProgramError, match="None inserts a dimension"):
        y[None, 0] = 1.0
    with pytest.raises(FluidTypeError, match="cannot be indexed by"):
        y["first"] = 1.0


# ------------------------------------------------------------------------------------------------------------ optimizers
def test_arguments_of_optimizers() -> None:
    with dygraph.guard():
        net = dygraph.Linear(50, 40)
        for given in (net.parameters(), net):
            with pytest.raises(FluidTypeError) as caught:
                fluid.optimizer.SGD(given, 0.1)
            assert str(caught.value).startswith(
                "SGD: the first argument is the learning rate, not parameters: SGD(0.1, parameter_list="
            )
            assert len(str(caught.value)) < 200
        with pytest.raises(AttributeError, match=r"no attribute 'zero_grad'; did you mean clear_grad\?"):
            fluid.optimizer.SGD(0.1, parameter_list=net.parameters()).zero_grad()
    with pytest.raises(FluidTypeError, match=r"AdamOptimizer has no argument 'lr'; did you mean learning_rate\?"):
        fluid.optimizer.Adam(lr=0.1)
    with pytest.raises(FluidTypeError, match=r"has no argument 'beta_1'; did you mean beta1"):
        fluid.optimizer.Adam(beta_1=0.9)
    for rate in (-0.1, float("nan")):
        with pytest.raises(ProgramError, match=r"learning_rate should not be below 0, but is .*minimize the negated value"):
            fluid.optimizer.SGD(rate)


def test_what_nothing_can_be_learned_from() -> None:
    x, y = fluid.data("x", [None, 8]), fluid.data("y", [None, 1], "int64")
    scores = layers.fc(x, 3, act="softmax")
    for measure in (layers.accuracy(scores, y), layers.mean(layers.cast(layers.argmax(scores, axis=1), "float32"))):
        with pytest.raises(BackwardError, match=r"nothing can be learned from .*; minimize a loss, .*(?s:.*) cuts it: "):
            fluid.optimizer.SGD(0.1).minimize(measure)
    with pytest.raises(BackwardError, match="only floating-point values have gradients"):
        fluid.optimizer.SGD(0.1).minimize(layers.argmax(scores, axis=1))
    with pytest.warns(UserWarning, match="there is nothing to optimize"):
        fluid.optimizer.SGD(0.1).minimize(layers.mean(x))


# ----------------------------------------------------------------------------------------------------------------- feeds
def test_feeds_that_nearly_fit() -> None:
    image = fluid.data("image", [None, 3, 4, 4])
    out = layers.relu(image)
    with pytest.raises(FeedError, match=r"it seems to be one sample: array\[None\] is a batch of one, of shape \[1, 3, 4, 4\]"):
        run([out], image=np.ones([3, 4, 4], "float32"))


def test_numbers_of_python_have_no_type_and_arrays_of_float64_have() -> None:
    x = fluid.data("x", [None, 2])
    y = layers.relu(x)
    assert run([y], x=[[1.0, 2.0]])[0].dtype == np.float32
    numbers = np.array([1.0, 2.0])
    for given in (numbers[None], [numbers], [[numbers[0], numbers[1]]]):
        with pytest.raises(FeedError, match=r"but float64\[1, 2\] is fed; convert it, for instance with .astype\('float32'\)"):
            run([y], x=given)


class Table:
    """The parts of pandas.DataFrame that are looked at."""

    columns = ("age", "name")
    dtypes = (np.dtype("int64"), np.dtype(object))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([[1, "x"], [2, "y"]], object)


def test_a_table_with_a_column_of_text() -> None:
    y = layers.relu(fluid.data("x", [None, 2]))
    with pytest.raises(FeedError, match="of its columns 'name' holds no numbers: leave them out, or encode them"):
        run([y], x=Table())
    pandas = pytest.importorskip("pandas")
    with pytest.raises(FeedError, match="of its columns 'b', 'c' hold no numbers"):
        run([y], x=pandas.DataFrame({"a": [1.0], "b": ["text"], "c": ["more"]}))


def test_gradients_of_data() -> None:
    x = fluid.data("x", [None, 8])
    loss = layers.mean(layers.fc(x, 1))
    with pytest.raises(FeedError, match=r"'x@GRAD' is to be fetched.*x\.stop_gradient = False before minimize"):
        run(["x@GRAD"], x=np.ones([1, 8], "float32"))
    x.stop_gradient = False
    with pytest.raises(FeedError, match=r"no backward part computes it; fluid\.gradients\(loss, x\)"):
        run(["x@GRAD"], x=np.ones([1, 8], "float32"))
    assert loss.name


def test_an_empty_batch_is_told_where_it_would_destroy_the_weights() -> None:
    x = fluid.data("x", [None, 8])
    loss = layers.mean(layers.fc(x, 1))
    test = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    empty = {"x": np.ones([0, 8], "float32")}
    with pytest.warns(UserWarning, match=r"x is fed float32\[0, 8\], an empty batch: the mean of its losses is NaN"):
        executor.run(feed=empty, fetch_list=[loss])
    executor.run(test, empty, [loss])  # nothing is lost there


# ----------------------------------------------------------------------------------------------------------------- files
@pytest.mark.parametrize(
    ("name", "head", "said"),
    [
        ("net.h5", b"\x89HDF\r\n\x1a\n", "is an HDF5 file, as Keras writes; export the model to ONNX"),
        ("net.tflite", b"\x1c\0\0\0TFL3", "is a model of TensorFlow Lite; export the original model to ONNX"),
        ("cat.png", b"\x89PNG\r\n\x1a\n", "is a picture; a model takes it as an array of pixels"),
        ("cat.jpg", b"\xff\xd8\xff\xe0", "is a picture"),
        ("net.gguf", b"GGUF", "is weights for llama.cpp"),
        ("net.pdmodel", b"<!DOCTYPE html>", "is a web page: the download did not give the file"),
        ("net.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS"),
        ("net.keras", b"PK\x03\x04", "is a model of another framework, by its name"),
    ],
)
def test_files_of_other_programs(name: str, head: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(head + bytes(200))
    with pytest.raises(FormatError, match=said):
        fluid.load_model(tmp_path / name)


def test_every_error_of_these_is_one_of_fluid() -> None:
    assert all(issubclass(kind, FluidError) for kind in (BackwardError, FeedError, FluidTypeError, FormatError, ProgramError))


@pytest.mark.parametrize("name", ["dygraph.no_grad", "io.batch", "layers.fc"])
def test_names_are_found_in_modules_that_nobody_has_imported(name: str) -> None:
    code = f"import fluid; fluid.{name.partition('.')[2]}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"did you mean fluid.{name}?" in run.stderr


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: fluid.zeros, "did you mean fluid.layers.zeros?"),
        (lambda: fluid.no_grad, "did you mean fluid.dygraph.no_grad?"),
        (lambda: fluid.Sequential, "did you mean fluid.dygraph.Sequential?"),
        (lambda: fluid.nn.Linear, "did you mean fluid.dygraph for eager layers, fluid.layers for programs?"),
        (lambda: fluid.manual_seed, "did you mean fluid.seed?"),
        (lambda: fluid.optim, "did you mean fluid.optimizer?"),
        (lambda: fluid.layers.Input, "did you mean fluid.data?"),
        (lambda: fluid.optimizer.adam, "did you mean Adam"),
        (lambda: fluid.initializer.Zeros, "has no attribute 'Zeros'"),
        (lambda: fluid.io.load_checkpoint, "did you mean fluid.load_checkpoint?"),
        (lambda: fluid.metrics.accuracy, "did you mean fluid.layers.accuracy?"),
        (lambda: dygraph.Linear(2, 2).modules(), r"write net.sublayers\(include_self=True\)"),
        (lambda: dygraph.Linear(2, 2).cuda(), r"write with dygraph.guard\(fluid.CUDAPlace\(0\)\)"),
        (lambda: dygraph.Linear(2, 2).load_state_dict({}), r"write net.set_dict\(state\)"),
        (lambda: dygraph.Linear(2, 2).paramters(), "did you mean parameters"),  # codespell:ignore
        (lambda: fluid.optimizer.SGD(lr=0.1), "SGDOptimizer has no argument 'lr'; did you mean learning_rate?"),
        (lambda: fluid.Executor("gpu"), r"such as fluid.CUDAPlace\(0\) or fluid.XLAPlace\('gpu'\), not 'gpu'"),
        (lambda: fluid.Executor("cpu"), r"such as fluid.CPUPlace\(\), not 'cpu'"),
        (lambda: dygraph.enable_dygraph("cuda:0"), r"such as fluid.CUDAPlace\(0\) or .*, not 'cuda:0'"),
        (lambda: fluid.save_checkpoint("a.ckpt"), r"save_checkpoint\(fluid.default_main_program\(\), 'a.ckpt'\)"),
        (lambda: layers.data("x", [3], "int64"), "not 'int64'; for an element type, write dtype='int64'"),  # type: ignore[arg-type]
        (lambda: fluid.load_checkpoint("a.ckpt"), r"load_checkpoint\(fluid.default_main_program\(\), 'a.ckpt'\)"),
    ],
    ids=range(22),
)
def test_habits_of_other_frameworks_are_told_what_to_write(wrong: Callable[[], Any], said: str) -> None:
    with pytest.raises(FluidError, match=said) as caught:
        wrong()
    assert "\n" not in str(caught.value).partition("\n  made at: ")[0]


def test_one_hot_labels_are_told_of_soft_labels() -> None:
    probabilities, rows = layers.softmax(fluid.data("x", [None, 3])), fluid.data("rows", [None, 3])
    for loss in (layers.cross_entropy, layers.softmax_with_cross_entropy):
        with pytest.raises(FluidError, match="for a probability of each class, such as one-hot rows, give soft_label=True"):
            loss(probabilities, rows)
        loss(probabilities, rows, soft_label=True)


def test_the_absolute_value_of_a_variable() -> None:
    array = np.array([-1.5, 2.0], "float32")
    x = fluid.data("x", [2])
    np.testing.assert_array_equal(fluid.Executor().run(feed={"x": array}, fetch_list=[abs(x)])[0], abs(array))
    with dygraph.guard(fluid.CPUPlace()):
        np.testing.assert_array_equal(abs(dygraph.to_variable(array)).numpy(), abs(array))


def test_element_types_are_compared_with_names_and_types_of_numpy() -> None:
    with dygraph.guard(fluid.CPUPlace()):
        tensors = [dygraph.to_variable(np.ones(2, kind)) for kind in ("float32", "int64", "bool", "complex64")]
    for item in (fluid.data("x", [2]), *tensors, layers.create_array("float32")):
        kind = item.dtype
        assert kind == kind.text and kind.text == kind and (kind != kind.text) is False
        assert kind == kind.numpy and kind == kind.numpy.type and kind.numpy.type == kind
        assert kind == int(kind) and {kind: 1}[int(kind)] == 1 and hash(kind) == hash(int(kind))
        assert kind != "int32" and kind != np.int32 and kind != "no type" and kind != None  # noqa: E711
    assert tensors[0].dtype in ("float32", "float64") and tensors[0].astype("bfloat16").dtype == "bfloat16"
    assert fluid.core.VarType.LOD_TENSOR != "float32"


def test_a_tensor_of_another_library_is_named_with_its_package() -> None:
    """Others have a type called Tensor too, and "should be tensors, not a Tensor" helps nobody."""
    kind = type("Tensor", (), {"__module__": "torch._tensor", "__dlpack__": lambda self: None})
    with dygraph.guard(fluid.CPUPlace()):
        with pytest.raises(FluidTypeError, match=r"relu: x should be a Variable, not torch.Tensor; .* by dygraph.to_variable"):
            layers.relu(kind())
        with pytest.raises(FluidTypeError, match=r"takes tensors, not a torch.Tensor; dygraph.to_variable makes one of an array"):
            dygraph.Linear(2, 2)(kind())
