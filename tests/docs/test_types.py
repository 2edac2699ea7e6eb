"""Type checkers know the types of layers: mypy checks the examples, and code made of the functions below.

The package is put together from three folders, which mypy finds under one name in a folder of links.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from fluid.layers import generate_types

EAGER = """
import numpy as np
import fluid
from fluid import dygraph, layers

class Net(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = dygraph.Linear(8, 32, act="relu")

    def forward(self, x: dygraph.Tensor) -> dygraph.Tensor:
        hidden: dygraph.Tensor = self.hidden(x)
        return layers.relu(hidden)

with dygraph.guard():
    x = dygraph.to_variable(np.ones([2, 8], "float32"))
    y = layers.softmax(x)
    reveal_type(y)  # Tensor
    reveal_type(layers.matmul(x, y, transpose_y=True))  # Tensor
    reveal_type(layers.concat([x, y]))  # Tensor
    reveal_type(layers.topk(x, 1))  # tuple[Tensor, Tensor]
    reveal_type(layers.elementwise_add(x, dygraph.Parameter([1.0])))  # Tensor
    reveal_type(layers.fill_constant([2], "float32", 1.0))  # Any
    reveal_type(fluid.nets.glu(x))  # Tensor
    loss = layers.mean(layers.square(y))
    loss.backward()
    print(loss.numpy(), y.gradient())
    net = Net()
    optimizer = fluid.optimizer.Adam(learning_rate=0.01, parameter_list=net.parameters())
    optimizer.minimize(loss)
    layers.concat([x * 2.0, y])
"""

STATIC = """
import fluid
from fluid import layers

x = fluid.data("x", [None, 8])
reveal_type(x)  # Variable
reveal_type(layers.fc(x, 3))  # Variable
reveal_type(layers.fc([x, x], 3))  # Variable
reveal_type(layers.elementwise_add(x, layers.create_parameter([8], "float32")))  # Variable
reveal_type(layers.split(x, 2))  # list[Variable]
words = fluid.data("words", [None, 20], "int64")
reveal_type(fluid.embedding(words, [1000, 64]))  # Variable
updates, pairs = fluid.optimizer.SGD(0.1).minimize(layers.mean(x))
"""

WRONG = """
import fluid
from fluid import layers

fluid.optimizer.Adam(lr=0.1)  # Unexpected keyword argument "lr" for "AdamOptimizer"
layers.relu("x")  # Value of type variable "_V" of "relu" cannot be "str"
layers.relu(fluid.data("x", [1])).numpy()  # "Variable" has no attribute "numpy"
"""


@pytest.mark.parametrize("path", generate_types.render())
def test_types_of_layers_are_current(path: str) -> None:
    assert Path(path).read_text(encoding="utf-8") == generate_types.render()[path], "run: python -m fluid.layers.generate_types"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as it is installed."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("site")
    (folder / "fluid").mkdir()
    for path in (*(ROOT / "fluid").iterdir(), ROOT / "executor", ROOT / "proto"):
        (folder / "fluid" / path.name).symlink_to(path)
    return folder


def checked(package: Path, *arguments: str | Path) -> list[str]:
    """The lines that mypy prints. It looks into the package and says nothing of it, which ``.ci/types`` does."""
    options = [
        "--config-file=",
        "--check-untyped-defs",
        "--ignore-missing-imports",
        "--follow-imports=silent",
        "--no-error-summary",
    ]
    command = [sys.executable, "-m", "mypy", *options, "--cache-dir", str(package / "cache"), *map(str, arguments)]
    environment = {**os.environ, "MYPYPATH": str(package)}
    done = subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    unable = ": error: Cannot infer type of lambda"  # mypy, of one with a default such as ``lambda path, epoch=epoch: ...``
    return [line for line in done.stdout.splitlines() if unable not in line]


@pytest.mark.slow
def test_examples(package: Path) -> None:
    """Variables of scopes and programs of models may be None, which scripts do not ask."""
    options = ("--no-strict-optional", "--disable-error-code=var-annotated")
    assert not checked(package, *options, *sorted((ROOT / "examples").glob("*.py")))


@pytest.mark.slow
@pytest.mark.parametrize("text", [EAGER, STATIC], ids=["eager", "static"])
def test_what_layers_give(package: Path, tmp_path: Path, text: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    wanted = re.findall(r"^ *reveal_type\(.*\)  # (.*)$", text, re.MULTILINE)
    said = [
        re.sub(r"[\w.]+\.(?=Tensor|Variable)", "", line.partition(': note: Revealed type is "')[2][:-1] or line)
        for line in checked(package, script)
    ]
    assert said == wanted


@pytest.mark.slow
def test_what_is_wrong_is_told(package: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WRONG)
    lines = [line for line in checked(package, script) if ": error: " in line]
    wanted = re.findall(r"  # (.*)$", WRONG, re.MULTILINE)
    assert len(lines) == len(wanted) and all(text in line for text, line in zip(wanted, lines, strict=True)), lines
