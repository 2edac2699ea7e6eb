"""Learning rates that change by epochs, by a watched value, and after a warm-up."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.errors import FluidTypeError, ProgramError


def rates(schedule: Any, epochs: int, steps: int = 2) -> list[float]:
    """The learning rate of an optimizer in each epoch; an epoch has several steps."""
    weight = dygraph.Parameter([0.0])
    optimizer = fluid.optimizer.SGD(schedule, parameter_list=[weight])
    used = []
    for _ in range(epochs):
        in_epoch = set()
        for _ in range(steps):
            before = weight.numpy().item()
            weight.sum().backward()
            optimizer.step()
            optimizer.clear_grad()
            in_epoch.add(round(before - weight.numpy().item(), 4))
        (rate,) = in_epoch
        used.append(rate)
        schedule.epoch()
    return used


@each(
    "case",
    [
        (lambda: dygraph.StepDecay(0.8, 2, 0.5), [0.8, 0.8, 0.4, 0.4, 0.2]),
        (lambda: dygraph.MultiStepDecay(0.8, [1, 3], 0.5), [0.8, 0.4, 0.4, 0.2, 0.2]),
        (lambda: dygraph.LambdaDecay(0.8, lambda epoch: 1 / (1 + epoch)), [0.8, 0.4, 0.2667, 0.2, 0.16]),
    ],
)
def test_rates_change_by_epochs(case: tuple[Callable[[], Any], Sequence[float]]) -> None:
    make, expected = case
    np.testing.assert_allclose(rates(make(), 5), expected, atol=1e-4)
    resumed = make()
    schedule = make()
    schedule.epoch(3)
    resumed.set_dict(schedule.state_dict())
    assert resumed() == schedule() == resumed()


def test_an_optimizer_saves_the_epoch_of_its_schedule() -> None:
    weight = dygraph.Parameter([0.0], name="w")
    schedule = dygraph.StepDecay(0.8, 1, 0.5)
    schedule.epoch(2)
    state = fluid.optimizer.SGD(schedule, parameter_list=[weight]).state_dict()
    resumed = dygraph.StepDecay(0.8, 1, 0.5)
    fluid.optimizer.SGD(resumed, parameter_list=[weight]).set_dict(state)
    assert resumed() == 0.2


@each(
    "case",
    [
        # losses, settings, the rate after each loss
        ([3, 2, 2, 2, 1], {}, [1.0, 1.0, 1.0, 0.1, 0.1]),
        ([3, 4, 4, 4, 5], {"mode": "max"}, [1.0, 1.0, 1.0, 0.1, 0.1]),
        ([1, 1, 1, 1, 1, 1, 1], {"cooldown": 2}, [1.0, 1.0, 0.1, 0.1, 0.1, 0.1, 0.01]),
        ([1, 1, 1, 1, 1], {"min_lr": 0.5}, [1.0, 1.0, 0.5, 0.5, 0.5]),
        ([100, 99, 98, 97, 96], {"threshold": 0.05}, [1.0, 1.0, 0.1, 0.1, 0.01]),
        ([100, 99, 98, 97, 96], {"threshold": 0.5, "threshold_mode": "abs"}, [1.0] * 5),
        ([-100, -101, -102, -103], {"threshold": 0.05}, [1.0, 1.0, 0.1, 0.1]),
        ([1, 1, 1], {"eps": 1.0}, [1.0] * 3),
    ],
)
def test_a_rate_falls_when_the_loss_stays(case: tuple[list[float], dict[str, Any], list[float]]) -> None:
    losses, settings, expected = case
    schedule = dygraph.ReduceLROnPlateau(1.0, patience=1, **settings)
    used = []
    for loss in losses:
        schedule.step(dygraph.Tensor([float(loss)]))
        used.append(schedule())
    np.testing.assert_allclose(used, expected)
    resumed = dygraph.ReduceLROnPlateau(1.0, patience=1, **settings)
    resumed.set_dict(schedule.state_dict())
    for loss in (1000.0, 1000.0, 1000.0):
        schedule.step(loss)
        resumed.step(loss)
        assert resumed() == schedule()


def test_a_plateau_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = dygraph.ReduceLROnPlateau(1.0, patience=0, verbose=True)
    schedule.step(1.0)
    schedule.step(1.0)
    assert capsys.readouterr().out == "epoch 2: the learning rate is 0.1 from now on\n"


def test_a_warm_up_rises_and_goes_on_with_the_rate_or_schedule_behind() -> None:
    warm = dygraph.LinearLrWarmup(0.5, 4, 0.0, 0.4)
    assert [round(warm(), 4) for _ in range(5)] == [0.1, 0.2, 0.3, 0.5, 0.5]  # from step 1, as in Fluid 1.8
    behind = dygraph.LinearLrWarmup(dygraph.PiecewiseDecay([3], [1.0, 0.5]), 2, 0.0, 0.2, begin=0)
    assert [round(behind(), 4) for _ in range(5)] == [0.0, 0.1, 1.0, 0.5, 0.5]  # which counts its steps from the first


def test_the_layer_gives_the_same_warm_up_eagerly_and_in_a_program() -> None:
    rate = layers.linear_lr_warmup(0.5, 3, 0.0, 0.3)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    in_program = [executor.run(fetch_list=[rate])[0].item() for _ in range(5)]
    with dygraph.guard():
        eager = layers.linear_lr_warmup(0.5, 3, 0.0, 0.3)
        np.testing.assert_allclose([eager() for _ in range(5)], in_program, rtol=1e-6)


@each(
    "case",
    [
        (ProgramError, "step_size should be greater than 0", lambda: dygraph.StepDecay(1.0, 0)),
        (ProgramError, r"milestones should increase, not be \[3, 2\]", lambda: dygraph.MultiStepDecay(1.0, [3, 2])),
        (FluidTypeError, "lr_lambda should be a function of the epoch, not 0.5", lambda: dygraph.LambdaDecay(1.0, 0.5)),
        (ProgramError, "mode should be one of min, max, not 'least'", lambda: dygraph.ReduceLROnPlateau(1.0, "least")),
        (ProgramError, "decay_rate should be between 0 and 1, not 2", lambda: dygraph.ReduceLROnPlateau(1.0, decay_rate=2)),
        (ProgramError, "threshold_mode should be one of", lambda: dygraph.ReduceLROnPlateau(1.0, threshold_mode="x")),
        (ProgramError, "warmup_steps should be greater than 0", lambda: dygraph.LinearLrWarmup(1.0, 0, 0.0, 1.0)),
        (FluidTypeError, "learning_rate should be a number, not 'a'", lambda: dygraph.LinearLrWarmup("a", 2, 0.0, 1.0)),
        (FluidTypeError, "StepDecay: learning_rate should be a number, not None", lambda: dygraph.StepDecay(None, 2)),
        (FluidTypeError, "warmup_steps should be a number, not 'a'", lambda: dygraph.LinearLrWarmup(1.0, "a", 0.0, 1.0)),
        (FluidTypeError, "loss should be a number or a tensor", lambda: dygraph.ReduceLROnPlateau(1.0).step("loss")),
        (FluidTypeError, "loss should be a number or a tensor", lambda: dygraph.ReduceLROnPlateau(1.0).step(np.zeros(2))),
        (ProgramError, "start_lr 1.0 should not be above end_lr 0.5", lambda: dygraph.LinearLrWarmup(1.0, 2, 1.0, 0.5)),
    ],
)
def test_senseless_settings_are_refused(case: tuple[type[Exception], str, Callable[[], Any]]) -> None:
    kind, message, make = case
    with pytest.raises(kind, match=message):
        make()


def test_the_step_of_a_schedule_is_saved_and_read_as_in_1_8(tmp_path: Path) -> None:
    """Fluid 1.8 keeps it under LR_Scheduler, a dict in the state, beside the global_step of 1.6."""
    with dygraph.guard():
        net = dygraph.Linear(2, 1)
        optimizer = fluid.optimizer.SGD(dygraph.CosineDecay(0.1, 2, 9), parameter_list=net.parameters())
        for _ in range(3):
            fluid.layers.mean(net(dygraph.to_variable(np.ones((1, 2), "float32")))).backward()
            optimizer.step()
        fluid.save_dygraph(optimizer.state_dict(), str(tmp_path / "net"))
        with open(tmp_path / "net.pdopt", "rb") as file:
            assert pickle.load(file)["LR_Scheduler"] == {"step_num": 3}
        state = fluid.load_dygraph(str(tmp_path / "net"))[1]
        assert state is not None
        by_epochs = {"LR_Scheduler": {"epoch_num": 3}}
        for saved, schedule in ((state, dygraph.CosineDecay(0.1, 2, 9)), (by_epochs, dygraph.StepDecay(0.1, 2))):
            fluid.optimizer.SGD(schedule, parameter_list=net.parameters()).set_dict(saved)
            assert schedule.step_num == 3
        fluid.save_dygraph(state, str(tmp_path / "again"))
        assert fluid.load_dygraph(str(tmp_path / "again"))[1] == state


def test_all_that_a_schedule_keeps_is_saved(tmp_path: Path) -> None:
    """Schedules by epochs and of other schedules go on as if they had not been saved; the file has the names of Fluid 1.8."""
    schedules: dict[str, tuple[Callable[[], Any], set[str]]] = {
        "steps": (lambda: dygraph.StepDecay(0.8, 2), {"epoch_num", "learning_rate"}),
        "milestones": (lambda: dygraph.MultiStepDecay(0.8, [2, 5]), {"epoch_num", "learning_rate"}),
        "function": (lambda: dygraph.LambdaDecay(0.8, lambda epoch: 0.5**epoch), {"epoch_num", "learning_rate"}),
        "plateau": (
            lambda: dygraph.ReduceLROnPlateau(0.8, patience=1, cooldown=1),
            {"epoch_num", "learning_rate", "best_loss", "num_bad_epochs", "cooldown_counter"},
        ),
        "warmup": (
            lambda: dygraph.LinearLrWarmup(dygraph.ExponentialDecay(0.8, 1, 0.5), 3, 0.0, 0.8),
            {"step_num", "schedule"},
        ),
    }

    def train(optimizer: Any, schedule: Any, first: int) -> list[float]:
        rates = []
        for number in range(first, first + 4):
            fluid.layers.mean(optimizer._parameter_list[0]).backward()
            optimizer.step()
            optimizer.clear_grad()
            rates.append(optimizer.current_step_lr())
            if isinstance(schedule, dygraph.ReduceLROnPlateau):
                schedule.step([3.0, 4.0, 5.0, 6.0, 2.0, 7.0, 8.0, 9.0][number])
            elif hasattr(schedule, "epoch"):
                schedule.epoch()
        return rates

    for name, (make, keys) in schedules.items():
        with dygraph.guard():
            schedule, net = make(), dygraph.Linear(2, 1)
            optimizer = fluid.optimizer.SGD(schedule, parameter_list=net.parameters())
            train(optimizer, schedule, 0)
            fluid.save_dygraph(optimizer.state_dict(), str(tmp_path / name))
            fluid.training.LayerTrainer(net, fluid.layers.mse_loss, optimizer).save(str(tmp_path / f"{name}.ckpt"), 1, {})
            expected = train(optimizer, schedule, 4)
        with open(tmp_path / f"{name}.pdopt", "rb") as file:
            assert set(pickle.load(file)["LR_Scheduler"]) == keys, name
        for how in ("pdopt", "checkpoint"):
            with dygraph.guard():
                schedule, net = make(), dygraph.Linear(2, 1)
                optimizer = fluid.optimizer.SGD(schedule, parameter_list=net.parameters())
                if how == "pdopt":
                    state = fluid.load_dygraph(str(tmp_path / name))[1]
                    assert state is not None
                    optimizer.set_dict(state)
                else:
                    fluid.training.LayerTrainer(net, fluid.layers.mse_loss, optimizer).load(str(tmp_path / f"{name}.ckpt"))
                assert train(optimizer, schedule, 4) == expected, (name, how)
