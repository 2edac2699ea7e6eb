"""Single numbers that are equal before and after a run: a compiled program takes one of each group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import Checks, fresh_programs

pytest.importorskip("jax")

import fluid

pytestmark = pytest.mark.usefixtures("quick_to_compile")

X = np.random.default_rng(0).standard_normal((8, 5), np.float32)
LAYERS = 3


def net(optimizer: Any) -> Any:
    """The loss of a net with `LAYERS` layers that is trained, in the default program."""
    x = fluid.data("x", [None, 5])
    for number in range(LAYERS):
        x = fluid.layers.fc(x, 5, act="tanh", param_attr=f"w{number}", bias_attr=f"b{number}")
    loss = fluid.layers.mean(x * x)
    optimizer.minimize(loss)
    return loss


def started(place: Any = None) -> tuple[fluid.Executor, fluid.Scope]:
    executor, scope = fluid.Executor(place or fluid.XLAPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    return executor, scope


def run(executor: fluid.Executor, scope: fluid.Scope, *fetches: Any) -> list[Any]:
    return executor.run(feed={"x": X}, fetch_list=list(fetches), scope=scope)


def powers(scope: fluid.Scope, of: str = "beta1") -> dict[str, Any]:
    """The powers in a scope by parameter."""
    names = [name for name in scope.local_var_names() if f"{of}_pow" in name]
    return {name.split("_")[0]: scope.find_var(name) for name in names}


def number(variable: Any) -> float:
    return float(np.asarray(variable.get_tensor()).item())


@pytest.mark.parametrize(
    ("name", "made", "count"),
    [
        ("Adam", lambda: fluid.optimizer.Adam(0.01), 2),
        ("AdamW", lambda: fluid.optimizer.AdamW(0.01), 2),
        ("Lamb", lambda: fluid.optimizer.Lamb(0.01), 2),
        ("Adamax", lambda: fluid.optimizer.Adamax(0.01), 1),
    ],
)
def test_a_program_takes_and_returns_one_number_of_each_kind(name: str, made: Any, count: int) -> None:
    loss = net(made())
    (executor, scope), (cpu, alone) = started(), started(fluid.CPUPlace())
    for variable in alone.local_var_names():
        scope.find_var(variable).get_tensor().set(alone.array(variable))
    for _ in range(3):
        np.testing.assert_allclose(run(executor, scope, loss), run(cpu, alone, loss), rtol=1e-5)
    plan = executor.plan(feed={"x": X}, fetch_list=[loss], scope=scope)
    numbers = [variable for variable in plan.externals if "pow" in variable]
    assert len(numbers) == count * 2 * LAYERS
    assert sum("pow" in variable for variable in plan.block.state_names) == count
    assert sum("pow" in variable for variable in (*plan.updated, *plan.lent)) == count
    for variable in numbers:
        np.testing.assert_allclose(number(scope.find_var(variable)), number(alone.find_var(variable)), rtol=1e-6)


def test_numbers_that_are_set_go_their_own_way() -> None:
    loss = net(fluid.optimizer.Adam(0.01))
    (executor, scope), (cpu, alone) = started(), started(fluid.CPUPlace())
    for variable in alone.local_var_names():
        scope.find_var(variable).get_tensor().set(alone.array(variable))
    for step in range(6):
        if step == 2:
            for each in (scope, alone):
                powers(each)["w1"].get_tensor().set(np.array([0.5], "float32"))
        if step == 4:  # all are equal again
            for each in (scope, alone):
                for of in ("beta1", "beta2"):
                    for variable in powers(each, of).values():
                        variable.get_tensor().set(np.array([0.25], "float32"))
        np.testing.assert_allclose(run(executor, scope, loss), run(cpu, alone, loss), rtol=1e-4)
        for of in ("beta1", "beta2"):
            for param, variable in powers(alone, of).items():
                np.testing.assert_allclose(number(powers(scope, of)[param]), number(variable), rtol=1e-5, err_msg=param)


def test_a_program_that_updates_a_part_changes_that_part_alone() -> None:
    """Two programs in one scope: the second one trains a single parameter, with the same numbers."""
    loss = net(fluid.optimizer.Adam(0.01))
    part = fluid.default_main_program().clone()
    block = part.global_block()
    block.ops[:] = [op for op in block.ops if op.type != "adam" or op.input("Param") == ["w1"]]
    executor, scope = started()
    run(executor, scope, loss)
    before = {param: number(variable) for param, variable in powers(scope).items()}
    executor.run(part, {"x": X}, [loss.name], scope=scope)
    after = {param: number(variable) for param, variable in powers(scope).items()}
    assert after.pop("w1") == pytest.approx(before.pop("w1") * 0.9)
    assert after == before
    run(executor, scope, loss)
    assert number(powers(scope)["w1"]) == pytest.approx(after["w0"] * 0.9 * 0.9)
    assert number(powers(scope)["w0"]) == pytest.approx(after["w0"] * 0.9)


def test_who_takes_the_array_of_one_does_not_write_to_the_others() -> None:
    loss = net(fluid.optimizer.Adam(0.01))
    executor, scope = started()
    run(executor, scope, loss)
    powers(scope)["w0"].get_tensor().array[...] = 0.125
    assert number(powers(scope)["w1"]) == pytest.approx(0.81)
    run(executor, scope, loss)
    assert number(powers(scope)["w0"]) == pytest.approx(0.125 * 0.9)
    assert number(powers(scope)["w1"]) == pytest.approx(0.81 * 0.9)


def test_checkpoints_hold_all_numbers(tmp_path: Any) -> None:
    """A checkpoint of another place is continued here, and the other way round."""
    loss = net(fluid.optimizer.Adam(0.01))
    main = fluid.default_main_program()
    with Checks() as checks:
        for first, second in ((fluid.XLAPlace(), fluid.CPUPlace()), (fluid.CPUPlace(), fluid.XLAPlace())):
            with checks(f"{first} to {second}"):
                executor, scope = started(first)
                for _ in range(3):
                    run(executor, scope, loss)
                fluid.save_checkpoint(main, tmp_path / "at.ckpt", scope=scope)
                again = fluid.Scope()
                fluid.load_checkpoint(main, tmp_path / "at.ckpt", scope=again)
                assert {number(variable) for variable in powers(again).values()} == {number(powers(scope)["w0"])}
                for _ in range(2):
                    pair = run(executor, scope, loss), run(fluid.Executor(second), again, loss)
                    np.testing.assert_allclose(*pair, rtol=1e-5)


def test_parameters_of_different_betas_or_types_share_nothing() -> None:
    first, second = fluid.optimizer.Adam(0.01, beta1=0.9), fluid.optimizer.Adam(0.01, beta1=0.8)
    x = fluid.data("x", [None, 5])
    one, two = (fluid.layers.mean(fluid.layers.fc(x, 5, act="tanh", param_attr=name, bias_attr=False)) for name in ("w0", "w1"))
    first.minimize(one)
    second.minimize(two)
    executor, scope = started()
    run(executor, scope, one, two)
    plan = executor.plan(feed={"x": X}, fetch_list=[one, two], scope=scope)
    assert not any("beta1" in name for name in plan.equal)
    assert number(powers(scope)["w0"]) == pytest.approx(0.81) and number(powers(scope)["w1"]) == pytest.approx(0.64)


def test_infinity_is_looked_for_with_shared_numbers() -> None:
    with fresh_programs():
        loss = net(fluid.optimizer.Adam(0.01))
        executor, scope = started()
        run(executor, scope, loss)
        executor.run(feed={"x": X}, fetch_list=[loss], scope=scope, check_nan=True)
        run(executor, scope, loss)
        assert number(powers(scope)["b2"]) == pytest.approx(0.9**4)
