"""Filters of a loaded model that take over the factors of the batch_norm behind them, once for all plans of a scope."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import Checks, fresh_programs
from harness import TARGETS, set_target

import fluid
from fluid import layers

CONVOLUTIONS = {
    "3 x 3": {"num_filters": 40, "filter_size": 3, "padding": 1},
    "1 x 1": {"num_filters": 37, "filter_size": 1},
    "groups": {"num_filters": 32, "filter_size": 3, "groups": 4, "stride": 2},
    "depthwise": {"num_filters": 32, "filter_size": 3, "groups": 32, "padding": 1},
    "with bias": {"num_filters": 33, "filter_size": 5, "bias_attr": None},
}


class Loaded:
    """A loaded model: a convolution of 32 channels, batch_norm and relu."""

    def __init__(self, folder: Path, how: dict[str, Any]) -> None:
        self.rng = np.random.default_rng(0)
        with fresh_programs():
            y = layers.conv2d(fluid.data("x", [None, 32, 12, 12]), **{"bias_attr": False, **how})
            out = layers.batch_norm(y, is_test=True, act="relu")
            fluid.Executor().run(fluid.default_startup_program())
            for var in fluid.default_main_program().list_vars():
                if var.persistable:
                    fluid.global_scope().put(var.name, self.rng.uniform(0.5, 1.5, var.shape).astype("float32"))
            fluid.save_model(str(folder / "net.pdmodel"), fluid.default_main_program(), ["x"], [out])
        self.model, self.executor = fluid.load_model(str(folder / "net.pdmodel"), scope=fluid.Scope()), fluid.Executor()

    def check(self, images: int, times: int = 1) -> Any:
        """Compare a run with numpy's results, fetched so many times; returns its bound plan."""
        feed = {"x": self.rng.standard_normal((images, 32, 12, 12)).astype("float32")}
        arguments = self.model.program, feed, self.model.fetches * times
        out, *_ = self.executor.run(*arguments, scope=self.model.scope)
        plan = self.executor.plan(*arguments, scope=self.model.scope)
        if plan.new_tables is None:  # type: ignore[attr-defined]
            pytest.skip("there is no native code for this processor")
        bound = next(bound for bound in self.executor._bound_plans[self.model.scope].values() if bound.plan is plan)
        scope = fluid.Scope()  # the batch_norm writes its statistics
        for var in self.model.program.list_vars():
            if var.persistable and self.model.scope.find_var(var.name) is not None:
                scope.put(var.name, self.model.scope.array(var.name))
        expected, *_ = self.executor.interpret(*arguments, scope=scope)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
        return bound


def products_of_runs(bound: Any) -> int:
    """The number of multiplications by formulas in the kernels that each run calls."""
    once = bound._find_constant_code()
    return sum("mul" in item.describe().split() for item in bound.plan.instructions if id(item) not in once)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.vector_bytes} bytes")
def test_batch_norms_multiply_filters(target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_target(monkeypatch, target)
    with Checks() as checks:
        for name, how in CONVOLUTIONS.items():
            with checks(name):
                loaded = Loaded(tmp_path, how)
                assert products_of_runs(loaded.check(1)) == 0
                loaded.check(7)


def test_plans_share_what_they_compute_once(tmp_path: Path) -> None:
    loaded = Loaded(tmp_path, CONVOLUTIONS["1 x 1"])
    arrays = [{id(packed.array) for _, packed in loaded.check(1, times)._packed.values()} for times in (1, 2)]
    assert len(arrays[0]) == 3  # the factors, the terms, and the filter
    assert arrays[0] == arrays[1]


def test_statistics_that_are_set(tmp_path: Path) -> None:
    """A variable that can be written is no factor of a filter that is packed once."""
    loaded = Loaded(tmp_path, CONVOLUTIONS["3 x 3"])
    loaded.check(1)
    scale = next(var.name for var in loaded.model.program.list_vars() if "batch_norm" in var.name and "w_0" in var.name)
    tensor = loaded.model.scope.find_var(scale).get_tensor()
    tensor.set(2 * np.asarray(tensor), fluid.CPUPlace())
    assert products_of_runs(loaded.check(1)) > 0
    tensor.array[...] *= 2
    loaded.check(1)
