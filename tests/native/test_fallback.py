"""Native code that cannot be made: the program runs on numpy, with one warning that says why."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.executor.kernels.table import load_kernels
from fluid.executor.native import cache, compiler, fallback, kernel_calls, lowering, tables
from fluid.executor.native.fallback import NativeUnavailable
from fluid.executor.native.fusion import FusionSchedule
from fluid.executor.native.regions import NativeRegion
from fluid.opdef.parameters import OpFunction

load_kernels()
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "_warned", {})
    monkeypatch.setenv("FLUID_NATIVE", "1")


@pytest.fixture
def step() -> Iterator[Callable[..., Any]]:
    """A step of training, whose loss a call returns."""
    x = fluid.data("x", [None, 4])
    loss = layers.mean(layers.tanh(layers.fc(x, 3)) * 2.0)
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.default_startup_program().random_seed = 1
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())

    def run(**options: Any) -> float:
        return float(executor.run(feed={"x": X}, fetch_list=[loss], **options)[0])

    run.plan = lambda: executor.plan(feed={"x": X}, fetch_list=[loss])
    yield run


def regions(plan: Any) -> list[NativeRegion]:
    return [instruction for instruction in plan.instructions if isinstance(instruction, NativeRegion)]


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*arguments: Any, **keywords: Any) -> Any:
        raise error

    return fail


def losses(monkeypatch: pytest.MonkeyPatch, step: Callable[..., Any]) -> list[float]:
    """The losses of three steps on numpy, from the parameters that the startup program makes; they are put back."""
    scope = fluid.global_scope()
    names = [var.name for var in fluid.default_main_program().list_vars() if var.persistable]
    before = {name: np.array(scope.array(name)) for name in names}
    with monkeypatch.context() as patch:
        patch.setenv("FLUID_NATIVE", "0")
        values = [step() for _ in range(3)]
    for name, value in before.items():
        scope.put(name, value)
    return values


def test_import_loads_no_native_code() -> None:
    code = "import fluid, sys; print(sorted(name for name in sys.modules if 'llvmlite' in name or '.native' in name))"
    light = ("", ".block_compiler", ".costs", ".fallback", ".id_ranges", ".instructions", ".native_checks", ".one_op", ".target")
    names = [f"fluid.executor.native{name}" for name in light]
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == f"{names}\n"


def test_native_code_is_switched_off(step: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert regions(step.plan())
        monkeypatch.setenv("FLUID_NATIVE", "0")
        assert not regions(step.plan())
        monkeypatch.setenv("FLUID_NATIVE", "1")
        monkeypatch.setattr(fallback, "_is_installed", lambda: False)
        assert not regions(step.plan())


NO_TARGET = NativeUnavailable("this processor lacks avx2")
FAULTS = {
    "an unknown processor": (compiler, "host", NO_TARGET, "lacks avx2$"),
    "no kernel can be compiled": (tables, "compile_kernels", NativeUnavailable("LLVM makes no code"), "LLVM makes no code$"),
    "a compiled kernel cannot be loaded": (cache, "Library", NativeUnavailable("cannot be loaded"), "cannot be loaded$"),
    "the pool cannot be made": (tables, "pool", NativeUnavailable("no pool"), "no pool$"),
    "a fault of fusion": (
        FusionSchedule,
        "place",
        AssertionError("what?"),
        r"AssertionError: what\? \(test_fallback.py:\d+\).*report",
    ),
    "a fault of emission": (kernel_calls, "written_kernel", KeyError("x"), r"KeyError: 'x'.*please report it"),
    "a fault of signatures": (kernel_calls, "signature_of", KeyError("x"), r"KeyError: 'x'.*please report it"),
    "a fault of regions": (NativeRegion, "sources", ValueError("y"), "ValueError: y.*please report it"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_program_runs_on_numpy(fault: str, step: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three steps give numpy's bits, with one warning; a failed compilation is not repeated."""
    expected = losses(monkeypatch, step)
    monkeypatch.setenv("FLUID_NATIVE_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(cache, "_loaded", {})
    place, name, error, message = FAULTS[fault]
    tries = []

    def fail(*arguments: Any) -> Any:
        tries.append(arguments)
        raise error

    monkeypatch.setattr(place, name, property(fail) if name == "sources" else fail)
    with pytest.warns(RuntimeWarning, match=f"native code is not used, programs run on numpy: .*{message}") as told:
        values = [step() for _ in range(3)]
    assert values == expected
    assert len(told) == 1 and len(tries) == 1
    assert not regions(step.plan())


def test_an_op_whose_lowering_fails_is_left_to_its_kernel(step: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = losses(monkeypatch, step)
    parameters = lowering._LOWERINGS["tanh"].parameters
    monkeypatch.setitem(lowering._LOWERINGS, "tanh", OpFunction(raising(ZeroDivisionError("oh")), parameters))
    with pytest.warns(RuntimeWarning, match="native code does not compute tanh, numpy does: ZeroDivisionError: oh") as told:
        values = [step() for _ in range(3)]
    np.testing.assert_allclose(values, expected, 1e-5)
    assert len(told) == 1
    kinds = [instruction.op.type for instruction in step.plan().instructions if not isinstance(instruction, NativeRegion)]
    assert "tanh" in kinds and "mul" not in kinds and regions(step.plan())


def test_a_plan_that_is_bound_again_may_fall_back(step: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter is exchanged after native code has run, when it can no longer be made."""
    expected = losses(monkeypatch, step)
    first = step()
    scope, name = fluid.global_scope(), fluid.default_main_program().all_parameters()[0].name
    scope.put(name, np.array(scope.array(name)))
    monkeypatch.setattr(tables, "compile_kernels", raising(NativeUnavailable("no memory")))
    with pytest.warns(RuntimeWarning, match="no memory"):
        second = step()
    np.testing.assert_allclose([first, second, step()], expected, 1e-5)


def test_runs_that_look_at_each_op_use_numpy(
    step: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    step()
    with fluid.profiler.profiler("CPU", "calls", str(tmp_path / "profile")):
        step()
    counted = capsys.readouterr().out
    assert "tanh_grad" in counted and "sgd" in counted and "native" not in counted
    step(check_nan=True)
    scope, name = fluid.global_scope(), fluid.default_main_program().all_parameters()[0].name
    scope.put(name, np.full_like(scope.array(name), np.nan))
    with pytest.raises(fluid.errors.ExecutionError, match="mul makes NaN in fc_0"):
        step(check_nan=True)
    assert np.isnan(step())
    assert regions(step.plan())


def test_each_program_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault is reported for each program; a lack of the machine only once."""

    def runs(count: int) -> int:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("default")  # which shows a text once for each line
            for _ in range(count):
                program = fluid.Program()
                with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
                    outs = [layers.tanh(layers.tanh(fluid.data("x", [None, 4])))]
                for rows in (1, 2):
                    fluid.Executor().run(program, {"x": X[:rows]}, outs)
            return len(told)

    monkeypatch.setattr(FusionSchedule, "place", raising(AssertionError("what?")))
    assert runs(3) == 3
    monkeypatch.setattr(FusionSchedule, "place", raising(NativeUnavailable("no memory")))
    assert runs(3) == 1
