"""Weights of a mapped file that have been packed: neither their pages nor copies of them stay in memory."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.executor.planned import bound_plan
from fluid.values.unchanging import drop_pages, never_changes

CHANNELS = 64


def saved_net(path: str) -> dict[str, Any]:
    """Save two convolutions; returns their weights."""
    with fresh_programs():
        x = fluid.data("x", [None, CHANNELS, 9, 9])
        h = layers.conv2d(x, CHANNELS, 3, padding=1, act="relu", param_attr=fluid.ParamAttr("a"), bias_attr=False)
        h = layers.conv2d(h, CHANNELS, 3, padding=1, act="tanh", param_attr=fluid.ParamAttr("b"), bias_attr=False)
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        fluid.save_model(path, fluid.default_main_program(), ["x"], [h])
        return {name: fluid.global_scope().array(name).copy() for name in ("a", "b")}


def mapped(path: str | Path) -> Any:
    """The bytes of a file, mapped to be read."""
    with open(path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def resident_bytes(path: str) -> int:
    """The bytes of a mapped file that are in memory."""
    total, is_of_file = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0] and ":" not in line.split(" ")[0]:
            is_of_file = line.endswith(path)
        elif is_of_file and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


@each("offset", [0, 1])
def test_packed_weights_leave_memory(offset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an offset, weights lie at odd bytes of their file, and are packed from there; what is packed leaves memory at once."""
    copied, at_once = [], []
    monkeypatch.setattr(bound_plan, "usable_copy", lambda xp, array, is_overwritten: copied.append(array))
    monkeypatch.setattr(bound_plan, "_PART_BYTES", 1)
    monkeypatch.setattr(bound_plan, "drop_pages", at_once.append)
    path = str(tmp_path / "net.pdmodel")
    weights = saved_net(path)
    model, executor = fluid.load_model(path, scope=fluid.Scope()), fluid.Executor()
    if offset:
        path = str(tmp_path / "weights")
        Path(path).write_bytes(b"." + b"".join(weight.tobytes() for weight in weights.values()))
        for number, (name, weight) in enumerate(weights.items()):
            start = 1 + number * weight.nbytes
            model.scope.put(name, mapped(path)[start : start + weight.nbytes].view(np.float32).reshape(weight.shape))
    arrays = {name: model.scope.array(name) for name in weights}
    assert all(map(never_changes, arrays.values()))
    x = np.random.default_rng(0).standard_normal((3, CHANNELS, 9, 9)).astype("float32")
    firsts = [executor.run(model.program, {"x": x[:rows]}, model.fetches, scope=model.scope)[0][:1] for rows in (1, 3, 1)]
    for first in firsts:
        np.testing.assert_allclose(first, firsts[0], atol=1e-5)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, weights[name])
    plan: Any = executor.plan(model.program, {"x": x[:1]}, model.fetches, scope=model.scope)
    if plan.new_tables is None:
        pytest.skip("there is no native code for this processor")
    assert all(model.scope.array(name) is array for name, array in arrays.items()) and not copied
    assert [id(array) for array in at_once] == [id(array) for array in arrays.values()]


def test_weights_that_runs_read_stay(tmp_path: Path) -> None:
    """A vector that each run reads; the scope gets an aligned copy of it."""
    path = str(tmp_path / "net.pdmodel")
    with fresh_programs():
        x = fluid.data("x", [None, 3000])
        scale = layers.create_parameter([3000], "float32", name="s")
        out = layers.tanh(layers.elementwise_mul(x, scale))
        out = layers.elementwise_add(out, layers.create_parameter([3000], "float32", name="shift"))
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        values = {name: fluid.global_scope().array(name).copy() for name in ("s", "shift")}
        fluid.save_model(path, fluid.default_main_program(), ["x"], [out])
    model, executor = fluid.load_model(path, scope=fluid.Scope()), fluid.Executor()
    feed = np.random.default_rng(0).standard_normal((2, 3000)).astype("float32")
    for _ in range(2):
        (result,) = executor.run(model.program, {"x": feed}, model.fetches, scope=model.scope)
        np.testing.assert_allclose(result, np.tanh(feed * values["s"]) + values["shift"], atol=1e-5)
    assert all(model.scope.array(name).flags.aligned for name in values)


def test_pages_are_dropped_within_the_array_alone(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    np.arange(5000, dtype=np.float64).tofile(path)
    numbers = mapped(path).view(np.float64)
    for start, stop in ((0, 5000), (3, 4990), (100, 101), (7, 7), (600, 1200)):
        drop_pages(numbers[start:stop])
        np.testing.assert_array_equal(numbers, np.arange(5000))
    drop_pages(numbers)
    if Path("/proc/self/smaps").exists():
        assert resident_bytes(str(path)) <= 2 * mmap.PAGESIZE
    plain = np.arange(5.0)
    drop_pages(plain)
    drop_pages(plain[1:])
    np.testing.assert_array_equal(plain, np.arange(5.0))
