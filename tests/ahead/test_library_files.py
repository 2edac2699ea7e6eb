"""The files of compiled libraries: the header, the object, the description, and what bad arguments get."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from libraries import compiler_of_c, made
from networks import build

import fluid
from fluid import layers
from fluid.ahead.header import c_names

PROGRAM = """
#include <stdio.h>
#include "net.h"

static _Alignas(NET_ALIGNMENT) unsigned char state[NET_STATE_BYTES], arena[NET_ARENA_BYTES];

int main(void) {
    static float x[6 * 25];
    static int64_t label[6] = {0, 1, 2, 0, 1, 2};
    float loss[1], first = 0;
    const struct net_step_feeds feeds = {.x = x, .label = label};
    const struct net_step_fetches fetches = {.loss = loss};
    for (int i = 0; i < 6 * 25; i++) x[i] = (float)(i % 7) - 3;
    net_init(state);
    for (int i = 0; i < 50; i++) {
        int code = net_step(state, arena, &feeds, &fetches);
        if (code) return puts(net_error(code)), 1;
        if (!i) first = loss[0];
    }
    return loss[0] < first / 2 ? 0 : 2;
}
"""


def test_a_program_in_c_trains(tmp_path: Path) -> None:
    """It compiles without a warning, and links with nothing besides."""
    network = build("perceptron")
    _, scope = network.started()
    made(network, tmp_path, scope)
    (tmp_path / "main.c").write_text(PROGRAM)
    options = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler_of_c(), *options, "main.c", "net.o", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0


@each("language", ["c", "c++"])
def test_the_header_stands_alone(language: str, tmp_path: Path) -> None:
    compiler = compiler_of_c() if language == "c" else shutil.which("g++") or pytest.skip("there is no compiler of C++ here")
    network = build("words")
    _, scope = network.started()
    made(network, tmp_path, scope, batch=[6, 1])
    standard = "-std=c99" if language == "c" else "-std=c++11"
    options = ["-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", language]
    subprocess.run([compiler, standard, *options, "net.h"], cwd=tmp_path, check=True)


def test_the_object_needs_memcpy_and_memset_alone(tmp_path: Path) -> None:
    nm = shutil.which("nm") or pytest.skip("there is no nm here")
    network = build("convolutions")
    _, scope = network.started()
    made(network, tmp_path, scope)
    lines = subprocess.run([nm, tmp_path / "net.o"], check=True, capture_output=True, text=True).stdout.splitlines()
    symbols = {(line.split()[-2], line.split()[-1]) for line in lines}
    assert {name for kind, name in symbols if kind == "U"} <= {"memcpy", "memset"}
    assert {name for kind, name in symbols if kind == "T"} == {"net_init", "net_step", "net_predict_6", "net_error"}
    assert not {name for kind, name in symbols if kind in "BDC"}, "nothing is written but the caller's memory"


def test_the_description_and_its_sizes(tmp_path: Path) -> None:
    network = build("perceptron")
    _, scope = network.started()
    library = made(network, tmp_path, scope)
    described = json.loads((tmp_path / "net.json").read_text())
    assert described == library.description and [Path(path).name for path in library.paths] == ["net.o", "net.h", "net.json"]
    header = (tmp_path / "net.h").read_text()
    assert f"#define NET_STATE_BYTES {described['state_bytes']}\n" in header
    assert f"#define NET_ARENA_BYTES {described['arena_bytes']}\n" in header
    assert "const float *x;       /* [6, 1, 5, 5] */\n    const int64_t *label; /* [6, 1] */\n" in header
    ends = [(part["offset"], part["offset"] + part["bytes"]) for part in described["state"].values()]
    assert all(end <= start for (_, end), (start, _) in pairwise(ends)) and ends[-1][1] <= described["state_bytes"]


def test_code_is_small(tmp_path: Path) -> None:
    """Text and constants of a small net, with training and prediction."""
    size = shutil.which("size") or pytest.skip("there is no size here")
    network = build("perceptron")
    _, scope = network.started()
    made(network, tmp_path, scope)
    text = subprocess.run([size, tmp_path / "net.o"], check=True, capture_output=True, text=True).stdout.splitlines()[1]
    assert int(text.split()[0]) < 20_000


def test_names_in_c() -> None:
    names = ["x", "fc_0.tmp_1", "fc_0_tmp_1", "class", "1st", "größe", ""]
    assert c_names(names) == {
        "x": "x", "fc_0_tmp_1": "fc_0.tmp_1", "fc_0_tmp_1_2": "fc_0_tmp_1", "class_": "class", "_1st": "1st", "gr__e": "größe",
        "_": "",
    }  # fmt: skip


def test_webassembly_without_a_c_library_is_refused(tmp_path: Path) -> None:
    def powers() -> Any:
        loss = layers.mean(
            layers.elementwise_pow(fluid.data("x", [4], "float64"), layers.fc(fluid.data("y", [4, 1], "float64"), 1))
        )
        fluid.optimizer.SGD(0.1).minimize(loss)
        return loss

    with pytest.raises(fluid.FluidError, match="WebAssembly has no pow"):
        compiled(powers, tmp_path, target="wasm32")
    assert not os.listdir(tmp_path)


def unlowered() -> Any:
    x = fluid.data("x", [9, 3])
    h = layers.fc(layers.argsort(layers.argsort(layers.fc(x, 9))[0], axis=0)[0], 3)
    loss = layers.mean(h)
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def compiled(build_program: Callable[[], Any], tmp_path: Path, **options: Any) -> Any:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = build_program()
    given = {"fetches": {"loss": loss}, "startup": startup, "output": tmp_path / "net"} | options
    return fluid.compile_program(main, **given)


def test_all_ops_that_cannot_be_compiled_are_named(tmp_path: Path) -> None:
    with pytest.raises(fluid.errors.ProgramError) as told:
        compiled(unlowered, tmp_path)
    lines = str(told.value).splitlines()
    assert len(lines) > 2 and any("argsort of argsort_0" in line and "test_library_files.py:" in line for line in lines)
    assert not os.listdir(tmp_path)


def with_halves(half: str) -> Any:
    loss = layers.mean(layers.fc(layers.cast(fluid.data("x", [4, 3], half), "float32"), 3))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_feeds_and_fetches_of_halves_are_refused(half: str, tmp_path: Path) -> None:
    with pytest.raises(fluid.errors.ProgramError, match=r"x, a feed or a fetch, has an element type that C lacks; cast it"):
        compiled(partial(with_halves, half), tmp_path)
    assert not os.listdir(tmp_path)


def forward() -> Any:
    return layers.mean(layers.fc(fluid.data("x", [None, 3]), 2))


def open_width() -> Any:
    return layers.mean(fluid.data("x", [None, None]))


def sequences() -> Any:
    x, y = (layers.data(name, [3], lod_level=1) for name in "xy")
    return layers.mean(layers.sequence_pool(x, "sum")) + layers.mean(layers.sequence_pool(y, "sum"))


def huge() -> Any:
    x = fluid.data("x", [1 << 16, 1 << 13])
    loss = layers.mean(layers.fc(x, 8192))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def differentiated() -> Any:
    """A loss, and the gradient of its parameter w."""
    loss = layers.mean(layers.square(layers.fc(fluid.data("x", [None, 3]), 2, param_attr="w")))
    fluid.append_backward(loss)
    return loss


BAD: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "no updates": (forward, {"batch": 2}, "updates nothing: call minimize"),
    "a gradient as prediction": (
        differentiated,
        {"batch": 2, "fetches": (), "predict": ["w@GRAD"]},
        "w@GRAD made by the backward",
    ),
    "no number of rows": (forward, {}, r"x is .*float32\[-1, 3\].*give it with batch"),
    "an open width": (open_width, {"batch": 2}, "declare it with fixed sizes"),
    "sequences": (sequences, {"batch": 2}, "x, y: sequences, whose lengths differ.*pad them"),
    "an unknown target": (forward, {"batch": 2, "target": "aarch46"}, "there is no target 'aarch46'; did you mean aarch64"),
    "a triple of nothing": (forward, {"batch": 2, "target": "a-b-c"}, "nothing is compiled for a, only for x86_64"),
    "a bad name": (forward, {"batch": 2, "output": "2 nets"}, "prefix of names in C"),
    "no rows": (forward, {"batch": 0}, "at least 1, not 0"),
    "nothing to compile": (forward, {"batch": 2, "fetches": ()}, "name what to compile"),
    "two sources of values": (forward, {"batch": 2, "scope": fluid.Scope()}, "not from both"),
    "a bad name of a fetch": (forward, {"batch": 2, "fetches": {"for": "x"}}, "'for' is no name of a variable in C"),
    "too much memory": (huge, {"target": "cortex-m4", "startup": None}, "has at most 2147483648"),
}


@each("name", BAD)
def test_bad_arguments(name: str, tmp_path: Path) -> None:
    build_program, options, message = BAD[name]
    if name == "too much memory":
        scope = fluid.Scope()
        scope.put("fc_0.w_0", np.broadcast_to(np.float32(0), (8192, 8192)))
        scope.put("fc_0.b_0", np.zeros(8192, "float32"))
        scope.put("learning_rate_0", np.zeros(1, "float32"))
        options = {**options, "scope": scope}
    with pytest.raises(fluid.FluidError, match=message):
        compiled(build_program, tmp_path, **options)
    assert not os.listdir(tmp_path)


def test_a_variable_without_a_value(tmp_path: Path) -> None:
    with pytest.raises(fluid.errors.FeedError, match=r"fc_0.w_0 .* run the startup program"):
        compiled(forward, tmp_path, startup=None, scope=fluid.Scope(), batch=2)


def test_states_that_do_not_fit(tmp_path: Path) -> None:
    network = build("perceptron")
    _, scope = network.started()
    made(network, tmp_path, scope)
    description = tmp_path / "net.json"
    with pytest.raises(fluid.errors.FormatError, match=r"the state has 3 bytes; the state of net has \d+"):
        fluid.load_compiled_state(b"abc", description)
    with pytest.raises(fluid.errors.FormatError, match="cannot be read"):
        fluid.load_compiled_state(tmp_path / "nowhere", description)
    with pytest.raises(fluid.errors.ProgramError, match=r"fc_0.w_0 is part of the state of net"):
        fluid.save_compiled_state(tmp_path / "state", description, scope=fluid.Scope())
    scope.put("fc_0.w_0", np.zeros([2, 2], "float32"))
    with pytest.raises(fluid.errors.ProgramError, match=r"fc_0.w_0 is float32\[2, 2\] in the scope"):
        fluid.save_compiled_state(tmp_path / "state", description, scope=scope)
    described = json.loads(description.read_text())
    described["state"]["fc_0.w_0"]["offset"] = -4
    for text in (json.dumps(described), "[]", "{}", "{", ""):
        description.write_text(text)
        with pytest.raises(fluid.errors.FormatError, match="does not describe the state"):
            fluid.load_compiled_state(b"", description)
