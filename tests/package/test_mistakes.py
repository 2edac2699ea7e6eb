"""What a user sees who calls something wrongly: the message, and a traceback of the user's lines alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
import fluid.numpy as xp
from fluid import dygraph, layers

SNIPPETS = {
    "layers.conv2d(fluid.data('x', [1, 3, 8, 8]), out_channels=3)": r"takes input, num_filters, .*; did you mean num_filters",
    "layers.exponential_decay(0.1, 100)": r"missing 1 .*'decay_rate'; it takes learning_rate, decay_steps, decay_rate",
    "fluid.training.fit(None, [])": r"missing 1 .*'epochs'; it takes trainer, batches, epochs",
    "fluid.load_model('w.npz', scop=None)": r"it takes path, params, scope.*did you mean scope\?",
    "dygraph.Linear(in_features=4, out_features=1)": r"did you mean input_dim\?",
    "dygraph.Linear(4)": r"missing 1 .*'output_dim'; it takes input_dim, output_dim",
    "dygraph.Linear(4, 2)(dygraph.Tensor(np.ones([1, 4], 'float32')), 1)": r"takes 2 positional arguments.*; it takes input",
    "dygraph.trace(dygraph.Linear(4, 2))": r"missing 1 .*'input'; it takes input",
    "dygraph.Conv2D(in_channels=3, out_channels=8, kernel_size=3)": r"no argument 'in_channels'; .*did you mean num_channels\?",
}  # fmt: skip
"""A wrong call -> the end of its error."""


@each("snippet", SNIPPETS)
def test_wrong_arguments_show_the_line_and_the_right_ones(snippet: str, tmp_path: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import numpy as np\nimport fluid\nfrom fluid import layers, dygraph\n{snippet}\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=dict(os.environ), check=False)
    lines = done.stderr.strip().splitlines()
    assert re.search(SNIPPETS[snippet], lines[-1]), done.stderr
    assert [line for line in lines if line.startswith('  File "')] == [f'  File "{script}", line 4, in <module>'], done.stderr


@each("snippet", ["layers.fcc", "fluid.data('x', [2]).shapes", "dygraph.Linear(4, 2).wieght", "fluid.load_model('w', scop=1)"])
def test_one_name_is_suggested_once(snippet: str, tmp_path: Any) -> None:
    """Python 3.12 and 3.13 suggest names, too, where they think that nobody has."""
    script = tmp_path / "script.py"
    script.write_text(f"import fluid\nfrom fluid import layers, dygraph\n{snippet}\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.stderr.strip().splitlines()[-1].lower().count("did you mean") == 1, done.stderr


def test_a_function_of_the_user_is_shown_by_python(tmp_path: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text("import fluid\ndef f(a): pass\nf(b=1)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.stderr.strip().endswith("f() got an unexpected keyword argument 'b'")


class NoForward(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first = dygraph.Linear(2, 2)

    def foward(self, x: Any) -> Any:
        return self.firts(x)


MESSAGES = {
    "a misspelt forward": (lambda: NoForward()(tensor()), r"NoForward should define forward\(\.\.\.\); it defines foward"),
    "a misspelt part": (lambda: NoForward().foward(tensor()), "no attribute 'firts'; did you mean first"),
    "an activation of another case": (lambda: layers.fc(data(), 3, act="ReLU"), r"not an activation.*did you mean relu\?"),
    "an activation of an eager layer": (lambda: dygraph.Linear(2, 2, act="rellu"), "not an activation.*did you mean relu"),
    "an unknown activation": (lambda: layers.fc(data(), 3, act="zzz"), "not an activation.*such as elu, gelu"),
    "feeds in place of the program": (lambda: fluid.Executor().run({}, []), "runs a Program, not dict; the program comes first"),
    "tensors that are no list": (lambda: layers.concat(data(), data("y")), r"come in a list: concat\(\[x, y\], axis=0\)"),
    "layers in a list": (lambda: dygraph.Sequential([dygraph.Linear(2, 2)]), r"not list; .*Sequential\(\*layers\)"),
    "two element types": (lambda: layers.elementwise_add(data(), data("y", "float64")), r"by layers\.cast\(x, 'float32'\)"),
    "floats as ids": (lambda: fluid.embedding(data(), [9, 2]), r"should be int; convert it by layers\.cast\(x, 'int64'\)"),
    "labels without an axis": (lambda: cross_entropy([None]), r"layers\.unsqueeze\(label, axes=\[1\]\) gives it this shape"),
    "one-hot labels": (lambda: cross_entropy([None, 4]), "for one-hot rows, cast them to float32 and give soft_label=True"),
    "a text for a rate": (lambda: fluid.ParamAttr(learning_rate="x"), "ParamAttr: learning_rate should be a number, not 'x'"),
    "a text for a decay": (lambda: fluid.regularizer.L2Decay("x"), "L2Decay: regularization_coeff should be a number"),
    "a text for a bound": (lambda: fluid.clip.GradientClipByNorm("x"), "GradientClipByNorm: clip_norm should be a number"),
    "batches that are no feeds": (lambda: trained(batches=[(1, 2)]), r"a dict of arrays .*, not tuple; .*feed_list=\[x, y\]"),
    "batches that come once": (lambda: trained(batches=iter([FEED])), "no batches to train on; what gives batches once"),
    "epochs as a text": (lambda: trained(epochs="2"), "fit: epochs should be .*, not '2'"),
    "an optimizer as the loss": (lambda: layer_trainer(loss=fluid.optimizer.SGD(0.1)), "loss should be a function .*, not SGD"),
    "a loss as the optimizer": (lambda: layer_trainer(optimizer=layers.mse_loss), "optimizer should be one of fluid.optimizer"),
    "an array as a batch": (lambda: layer_trainer().train(FEED["x"]), "a list of inputs and labels, as tensors, not ndarray"),
    "a text as a seed": (lambda: fluid.seed("a"), "seed: number should be an integer, not 'a'"),
    "a misspelt attribute": (lambda: data().shapes, "no attribute 'shapes'; did you mean shape"),
    "a name of Keras": (lambda: dygraph.Dense(3), r"no attribute 'Dense'; did you mean Linear\?"),
    "a name of numpy": (lambda: xp.concatenate([]), r"no attribute 'concatenate'; did you mean concat\?"),
}  # fmt: skip


FEED = {"x": np.ones([2, 4], "float32")}


def trained(batches: Any = (FEED,), epochs: Any = 2) -> Any:
    loss = layers.mean(layers.fc(data(), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return fluid.training.fit(fluid.training.ProgramTrainer(loss), batches, epochs)


def layer_trainer(loss: Any = layers.mse_loss, optimizer: Any = None) -> Any:
    net = dygraph.Linear(4, 1)
    return fluid.training.LayerTrainer(net, loss, optimizer or fluid.optimizer.SGD(0.1, parameter_list=net.parameters()))


def data(name: str = "x", dtype: str = "float32") -> Any:
    return fluid.data(name, [None, 4], dtype)


def tensor() -> Any:
    return dygraph.to_variable(np.ones([1, 2], "float32"))


def cross_entropy(shape: Any) -> Any:
    return layers.softmax_with_cross_entropy(data(), fluid.data("label", shape, "int64"))


@each("name", MESSAGES)
def test_the_message_says_what_to_write(name: str) -> None:
    call, expected = MESSAGES[name]
    with fluid.program_guard(fluid.Program(), fluid.Program()), pytest.raises(Exception, match=expected):
        call()


def test_an_image_with_its_channels_first_is_not_taken_for_another() -> None:
    with pytest.raises(fluid.errors.InferenceError) as caught:
        layers.pool2d(fluid.data("image", [None, 3, 4, 4]), 5)
    assert "NHWC" not in str(caught.value)


@each("loss", ["of logits", "of a softmax", "of a sigmoid"])
def test_losses_of_the_wrong_kind_get_a_warning(loss: str) -> None:
    label, soft = fluid.data("label", [None, 1], "int64"), fluid.data("soft", [None, 3])
    with pytest.warns(UserWarning, match="softmax already|sigmoid already|without an activation: use softmax_with_cross_entropy"):
        if loss == "of logits":
            layers.cross_entropy(layers.fc(data(), 3), label)
        elif loss == "of a softmax":
            layers.softmax_with_cross_entropy(layers.fc(data(), 3, act="softmax"), label)
        else:
            layers.sigmoid_cross_entropy_with_logits(layers.fc(data(), 3, act="sigmoid"), soft)


def test_losses_of_the_right_kind_get_none() -> None:
    label = fluid.data("label", [None, 1], "int64")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layers.cross_entropy(layers.fc(data(), 3, act="softmax"), label)
        layers.cross_entropy(data("fed"), label)
        weights, experts = (layers.softmax(fluid.data(name, [3, 3])) for name in ("weights", "experts"))
        layers.cross_entropy(layers.matmul(weights, experts), fluid.data("label3", [3, 1], "int64"))  # a mixture
        layers.softmax_with_cross_entropy(layers.fc(data("z"), 3), label)
