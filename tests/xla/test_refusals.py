"""Programs that cannot run at an XLAPlace are refused before anything runs, and the error says what to do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import fluid
from fluid.errors import ExecutionError
from fluid.executor.xla import callbacks
from fluid.opdef import registry


def refused(match: str, feed: Any, fetch: Any, **place: Any) -> None:
    with pytest.raises(ExecutionError, match=match):
        fluid.Executor(fluid.XLAPlace(**place)).run(feed=feed, fetch_list=fetch)


def test_all_ops_that_cannot_be_compiled_are_listed() -> None:
    x = fluid.data("x", [4])
    found = fluid.layers.where(x > 0)
    values, _ = fluid.layers.unique(x)
    refused(
        "(?s)2 kinds of ops of this program cannot run at an XLAPlace.*- unique makes as many rows.*- where.*at a CPUPlace",
        {"x": np.ones(4, "float32")},
        [found, values],
    )


def test_strict_places_refuse_to_call_numpy() -> None:
    x = fluid.data("x", [2, 3, 2, 2])
    focus = fluid.layers.similarity_focus(x, 1, [0])
    refused("similarity_focus .* strict=True refuses", {"x": np.zeros((2, 3, 2, 2), "float32")}, [focus], strict=True)


def test_shapes_by_value_need_constants() -> None:
    x, size = fluid.data("x", [2, 6]), fluid.data("size", [2], "int64")
    refused(
        "(?s)reshape2.* asks for a value.*from constants, or run it at a CPUPlace.*made at",
        {"x": np.ones((2, 6), "float32"), "size": np.array([3, 4])},
        [fluid.layers.reshape(x, size)],
    )
    constant = fluid.layers.assign(np.array([3, 4], "int64"))
    result = fluid.layers.reshape(x, constant)
    assert fluid.Executor(fluid.XLAPlace()).run(feed={"x": np.ones((2, 6), "float32")}, fetch_list=[result])[0].shape == (3, 4)


def test_unknown_devices() -> None:
    with pytest.raises(ExecutionError, match="the device is one of 'cpu', 'gpu', 'tpu', not 'abacus'"):
        fluid.Executor(fluid.XLAPlace("abacus"))
    with pytest.raises(ExecutionError, match=r"XLAPlace\('cpu', 99\): jax finds \d+ of these devices"):
        fluid.Executor(fluid.XLAPlace("cpu", 99))


def test_without_jax() -> None:
    script = "import sys; sys.modules['jax'] = None\nimport fluid\nfluid.Executor(fluid.XLAPlace())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert 'XLAPlace needs jax, which is not installed: pip install ".[xla]"' in last


def test_jax_is_imported_with_the_first_place() -> None:
    script = "import sys, fluid; fluid.XLAPlace(); assert 'jax' not in sys.modules; fluid.Executor(fluid.XLAPlace()); import jax"
    subprocess.run([sys.executable, "-c", script], check=True)


def gathered(place: fluid.XLAPlace, ids: list[int]) -> Any:
    rows = fluid.layers.gather(fluid.data("x", [3, 2]), fluid.data("ids", [2], "int64"))
    return fluid.Executor(place).run(
        feed={"x": np.arange(6, dtype="float32").reshape(3, 2), "ids": np.array(ids)}, fetch_list=[rows]
    )


def test_ids_outside_of_a_table_are_found_if_asked_for() -> None:
    with pytest.raises(ExecutionError, match=r"(?s)gather failed: index 7 is outside of \[0, 3\).*made at.*test_refusals"):
        gathered(fluid.XLAPlace(check_values=True), [0, 7])


def test_ids_inside_of_a_table_pass_the_check() -> None:
    assert gathered(fluid.XLAPlace(check_values=True), [2, 0])[0].tolist() == [[4, 5], [0, 1]]


def test_an_error_at_the_host_changes_nothing() -> None:
    logits, label = fluid.data("logits", [4, 2, 3]), fluid.data("label", [2, 2], "int64")
    lengths = [fluid.data(name, [2], "int64") for name in ("frames", "words")]
    loss = fluid.layers.mean(fluid.layers.warpctc(fluid.layers.fc(logits, 3, num_flatten_dims=2), label, 0, False, *lengths))
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor(fluid.XLAPlace())
    executor.run(fluid.default_startup_program())
    name = fluid.default_main_program().all_parameters()[0].name
    before = np.array(fluid.global_scope().find_var(name).get_tensor())
    feed = {
        "logits": np.ones((4, 2, 3), "float32"),
        "label": np.array([[1, 2], [2, 1]]),
        "frames": np.array([4, 4]),
        "words": np.array([2, 2]),
    }
    with pytest.raises(ExecutionError, match=r"(?s)warpctc.*Label.*made at"):
        executor.run(feed={**feed, "label": np.array([[1, 9], [2, 1]])}, fetch_list=[loss])
    assert np.array(fluid.global_scope().find_var(name).get_tensor()).tolist() == before.tolist()
    assert np.isfinite(executor.run(feed=feed, fetch_list=[loss])[0])


def test_the_lists_name_ops_that_there_are() -> None:
    types = {*callbacks.ON_HOST, *callbacks.REFUSED, *callbacks.OF_LENGTHS}
    assert types <= {*registry.all_ops()}
    assert len({*callbacks.ON_HOST, *callbacks.OF_LENGTHS}) <= 30
    assert not {*callbacks.ON_HOST} & {*callbacks.REFUSED}
