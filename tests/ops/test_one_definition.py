"""One definition of an op serves every engine: numpy, native code, eager mode and ONNX, and its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import own_ops
from paths import ROOT

import fluid
from fluid import dygraph, layers
from fluid.extend import composed, define, like, means, ops


@pytest.fixture(autouse=True)
def _own_ops() -> Iterator[None]:
    with own_ops():
        yield


X = np.random.default_rng(0).standard_normal((64, 33)).astype("float32")
EXPECTED = X * 1.5 / (1.0 + np.abs(X))
SLOPE = 1.5 / np.square(1.0 + np.abs(X))


def define_composed() -> None:
    @composed("bent(X: float) -> Out", scale=1.5)
    def bent(f: Any, X: Any, scale: float) -> Any:
        """``scale * X / (1 + |X|)``."""
        return X * scale / (f.abs(X) + 1.0)


def define_with_meaning() -> None:
    @define(
        "bent(X: float) -> Out",
        infer=like("X"),
        scale=1.5,
        meaning=means(lambda f, X, scale: X * scale / (f.abs(X) + 1.0)),
    )
    def bent(f: Any, X: Any, dOut: Any, scale: float) -> Any:
        """``scale * X / (1 + |X|)``."""
        return {"X": dOut * scale / f.square(f.abs(X) + 1.0)}


@pytest.mark.parametrize("definition", [define_composed, define_with_meaning])
def test_a_definition_runs_everywhere(definition: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definition()
    x = fluid.data("x", [None, 33])
    x.stop_gradient = False
    y = ops().bent(x)
    (gradient,) = fluid.gradients([layers.reduce_sum(y)], [x])
    assert gradient is not None
    for native in ("0", "1"):
        monkeypatch.setenv("FLUID_NATIVE", native)
        out, slope = fluid.Executor().run(feed={"x": X}, fetch_list=[y, gradient])
        np.testing.assert_allclose(out, EXPECTED, 1e-6)
        np.testing.assert_allclose(slope, SLOPE, 1e-5)


def test_native_code_computes_the_formula() -> None:
    pytest.importorskip("llvmlite")
    define_with_meaning()
    x = fluid.data("x", [64, 33])
    y = ops().bent(ops().bent(x))
    plan = str(fluid.Executor().plan(feed={"x": X}, fetch_list=[y]))
    assert "on numpy: none" in plan, plan


def test_onnx_has_the_formula(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    define_with_meaning()
    x = fluid.data("x", [None, 33])
    fluid.save_model(tmp_path / "bent.onnx", feeds=[x], fetches=[ops().bent(x)])
    (out,) = runtime.InferenceSession(tmp_path / "bent.onnx").run(None, {"x": X})
    np.testing.assert_allclose(out, EXPECTED, 1e-6)


@pytest.mark.parametrize("definition", [define_composed, define_with_meaning])
def test_eager_mode_differentiates_it(definition: Any) -> None:
    definition()
    with dygraph.guard():
        x = dygraph.to_variable(X)
        x.stop_gradient = False
        y = x._ops().bent(x)
        y.sum().backward()
        np.testing.assert_allclose(y.numpy(), EXPECTED, 1e-6)
        np.testing.assert_allclose(x.gradient(), SLOPE, 1e-5)


@pytest.mark.parametrize("size", [4, 6])
def test_gradients_take_the_sizes_of_a_run(size: int) -> None:
    """A run may have another size than `layers.data` declares; ops that a rule appends for second derivatives do not keep it."""
    x, y = (layers.data(name, [2, 4, 4], stop_gradient=False) for name in ("x", "y"))
    (gradient,) = fluid.gradients([ops().fsp(x, y)], [x])
    logs, target = (layers.data(name, [4, 3], append_batch_size=False, stop_gradient=False) for name in ("logs", "target"))
    (by_logs,) = fluid.gradients([ops().kldiv_loss(logs, target, reduction="batchmean")], [logs])
    for first, by in ((gradient, y), (by_logs, target)):
        fluid.gradients([first], [by])
    rng = np.random.default_rng(0)
    images = {name: rng.random((1, 2, size, size), "float32") for name in ("x", "y")}
    rows = {name: rng.random((size, 3), "float32") for name in ("logs", "target")}
    of_x, of_logs = fluid.Executor().run(feed=images | rows, fetch_list=[gradient, by_logs])
    means = np.broadcast_to(images["y"].sum(1, keepdims=True) / size**2, images["x"].shape)
    np.testing.assert_allclose(of_x, means, 1e-5)
    np.testing.assert_allclose(of_logs, -rows["target"] / size, 1e-5)


def test_fewer_and_fewer_ops_are_written_three_times() -> None:
    """An op written for numpy, native code and ONNX is primitive, or has a formula; the number of others only falls."""
    pytest.importorskip("llvmlite")
    pytest.importorskip("jax")
    from written import PRIMITIVES, rows, written_thrice

    table = rows()
    ops = [row.op_type for row in written_thrice(table)]
    bound = int((ROOT / ".ci" / "thrice.txt").read_text())
    assert len(ops) <= bound, f"give one of these a formula: {', '.join(ops)}"
    assert len(ops) == bound, f"{len(ops)} ops are left: lower the bound in .ci/thrice.txt, so that it stays so"
    thrice = {row.op_type for row in table if row.numpy and row.native and row.onnx and not row.formula}
    assert thrice >= PRIMITIVES, "these are not written three times, so they need not be listed"
    formulas = {row.op_type for row in table if row.formula}
    assert {"mean", "silu", "group_norm", "cross_entropy"} <= formulas


@pytest.mark.parametrize("layout", ["C", "F"])
def test_a_formula_writes_into_the_outputs(layout: Any) -> None:
    """Results go right into the op's outputs: whatever their order, and if several outputs are one value."""
    from fluid.executor.binding.compiled import apply_op

    @composed("twice_given(X: float) -> Out, Same, Reshaped", by=2.0)
    def twice_given(f: Any, X: Any, by: float) -> Any:
        """``by * X``, three times."""
        out = X * by
        return {"Out": out, "Same": out, "Reshaped": f.reshape(out, shape=[-1])}

    x = np.array(X, order=layout)
    found = apply_op("twice_given", {"X": x}, {})
    for slot, shape in (("Out", x.shape), ("Same", x.shape), ("Reshaped", (x.size,))):
        np.testing.assert_array_equal(found[slot], (2 * x).reshape(shape))
    assert not np.may_share_memory(found["Out"], found["Same"]) and not np.may_share_memory(found["Out"], found["Reshaped"])


def test_a_formula_may_give_its_input_in_another_shape() -> None:
    """A reshape inside a formula is a view; one that is a result is not."""
    from fluid.executor.binding.compiled import apply_op

    @composed("flat_and_sum(X: float) -> Flat, Out")
    def flat_and_sum(f: Any, X: Any) -> Any:
        """X as a vector, and twice that."""
        flat = f.reshape(X, shape=[-1])
        return {"Flat": flat, "Out": flat + flat}

    found = apply_op("flat_and_sum", {"X": X}, {})
    np.testing.assert_array_equal(found["Flat"], X.reshape(-1))
    np.testing.assert_array_equal(found["Out"], 2 * X.reshape(-1))
    assert not np.may_share_memory(found["Flat"], X)


def test_a_formula_computes_only_what_is_wanted() -> None:
    """An op whose result nobody reads is left out: here one that would fail."""
    from fluid.executor.binding.compiled import apply_op

    @composed("sum_and_pick(X: float, Index: int) -> Out, Picked")
    def sum_and_pick(f: Any, X: Any, Index: Any) -> Any:
        """Twice X, and some of its rows."""
        return {"Out": X + X, "Picked": f.gather(X, Index)}

    values = {"X": X, "Index": np.array([len(X) + 1])}
    np.testing.assert_array_equal(apply_op("sum_and_pick", values, {}, {"Out"})["Out"], 2 * X)
    with pytest.raises(IndexError):
        apply_op("sum_and_pick", values, {})


def test_a_formula_names_what_the_op_has() -> None:
    with pytest.raises(fluid.errors.ProgramError, match="the formula of bent names 'slope', which is no slot or attribute of it"):
        define("bent(X: float) -> Out", infer=like("X"), meaning=means(lambda f, X, slope: X * slope), scale=1.5)(
            lambda f, X, dOut: {"X": dOut}
        )
