"""Random programs at real sizes (`real_sizes`), and what finds faults in them."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT

pytest.importorskip("llvmlite")

from checks import each
from real_sizes import checking, judging
from real_sizes.arrays import Fed
from real_sizes.cases import Case, Unfit, script_of
from real_sizes.checking import Answer, choices_of, in_a_process
from real_sizes.choices import Choices, shrink
from real_sizes.nets import make_net
from real_sizes.running import guarded

import fluid
from fluid import layers

COMMAND = ROOT / "benchmarks" / "real_sizes.py"


def run_command(folder: Path, *arguments: str) -> str:
    """The output of the command, which must find no fault."""
    done = subprocess.run(
        [sys.executable, str(COMMAND), "--log", str(folder / "log"), *arguments], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("kind, count", [("ops", "10"), ("nets", "5"), ("control", "5")])
def test_programs_of_some_seeds(kind: str, count: str, tmp_path: Path) -> None:
    run_command(tmp_path, "--kinds", kind, "--first", "0", "--count", count, "--xla-every", "5")


@pytest.mark.slow
@pytest.mark.random
def test_programs_of_new_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two minutes of them; the first seed is printed."""
    printed = run_command(tmp_path, "--hours", str(2 / 60), "--jobs", str(os.cpu_count() or 1), "--xla-every", "4")
    with capsys.disabled():
        print(f"\n{printed}")


# ---------------------------------------------------------------------------------------------------- what finds faults
def dense(rows: int = 70, epsilon: float = 0.0) -> Case:
    """A layer with a kink, of whose inputs one lies nearly on it."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [rows, 5])
        x.stop_gradient = False
        hidden = layers.relu(layers.elementwise_add(x, layers.fill_constant([1], "float32", -0.1 + epsilon)))
        (grad,) = fluid.gradients([layers.reduce_sum(hidden)], [x])
    numbers = np.linspace(-1, 1, 5 * rows, dtype="float32")
    numbers[7] = 0.1
    fed = Fed("values", (numbers.tolist(), (rows, 5), "float32"))
    return Case("dense", main, startup, [{"x": fed}], [hidden.name, grad.name])


def judged(case: Case, change: Callable[[dict[str, Any]], None], monkeypatch: pytest.MonkeyPatch) -> list[judging.Problem]:
    """The problems of a case whose native results are changed."""
    run = judging.run_natively

    def changed(*arguments: Any) -> dict[str, Any]:
        arrays = run(*arguments)
        change(arrays)
        return arrays

    monkeypatch.setattr(judging, "run_natively", changed)
    return judging.judge(case, ("numpy", "native")).problems


@each("place, by, is_wrong", [(0, 1e-3, True), (100, 2e-5, True), (100, 3e-8, False), (7, 0.5, False), (8, 0.5, True)])
def test_errors_count_where_rounding_explains_them_not(
    place: int, by: float, is_wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Element 7 lies on the kink, where the gradient may be anything between 0 and 1."""
    case = dense()
    name = f"{case.fetches[1]} of run 0"

    def change(arrays: dict[str, Any]) -> None:
        arrays[name].flat[place] += by

    problems = judged(case, change, monkeypatch)
    assert bool(problems) == is_wrong, problems
    assert not is_wrong or (problems[0].engine, problems[0].kind) == ("native", "wrong values")


def case_of(count: int, append: Callable[[Any], Any], numbers: Any) -> Case:
    """The case that `append` builds from `count` numbers."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        result = append(fluid.data("x", [count]))
    fed = Fed("values", (np.float32(numbers).tolist(), (count,), "float32"))
    return Case("net", main, startup, [{"x": fed}], [result.name])


@each("logit, is_wrong", [(-90.0, False), (-9.0, True)])
def test_a_probability_below_the_smallest_number_may_be_zero(
    logit: float, is_wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XLA rounds exp(-90) to 0, whose logarithm counts as -1e20 in losses."""

    def append(x: Any) -> Any:
        probabilities = layers.softmax(layers.reshape(x, [2, 2]))
        return layers.mean(layers.cross_entropy(probabilities, layers.fill_constant([2, 1], "int64", 0)))

    def change(arrays: dict[str, Any]) -> None:
        arrays[next(iter(arrays))].flat[0] = 5e19

    problems = judged(case_of(4, append, [logit, 0, 0, 0]), change, monkeypatch)
    assert bool(problems) == is_wrong, problems


def remainder(x: Any) -> Any:
    """0.1 (3 x) - 0.3 x, and what rounding leaves of it."""
    return layers.sums([layers.scale(layers.scale(x, 3.0), 0.1), layers.scale(x, -0.3)])


def test_the_sign_of_what_cancels_out_may_be_any() -> None:
    """Of 0.1 (3 x) - 0.3 x something is left in float64, and nothing in float32, for this number."""
    case = case_of(80, lambda x: layers.square(layers.sign(remainder(x))), [0.75] * 80)
    assert not judging.judge(case, ("native",)).problems


def test_what_cancels_out_in_float32_may_be_zero() -> None:
    """0.1 (0.75) is 0.075 in float32, and differs from the feed by 1e-9 in float64."""

    def append(x: Any) -> Any:
        return layers.square(
            layers.sign(layers.elementwise_sub(layers.scale(layers.fill_constant([80], "float32", 0.75), 0.1), x))
        )

    assert not judging.judge(case_of(80, append, [0.075] * 80), ("native",)).problems


def test_of_two_numbers_that_rounding_makes_equal_any_may_be_the_largest() -> None:
    """The gradient of a maximum goes to the larger one, and to both where they are equal."""
    numbers = np.nextafter(np.float32(0.75), np.float32(1)) - np.arange(100, dtype="float32") * 2.0**-24
    place = int(np.flatnonzero(np.diff(numbers * np.float32(0.1)) == 0)[0])

    def append(x: Any) -> Any:
        x.stop_gradient = False
        return fluid.gradients([layers.reduce_max(layers.scale(x, 0.1))], [x])[0]

    case = case_of(10, append, [*numbers[place : place + 2], *[0.0] * 8])
    (grad,) = judging.run(case, "numpy", judging.first_values(case)).values()
    assert np.count_nonzero(grad) == 2
    assert not judging.judge(case, ("numpy",)).problems


def test_what_depends_on_the_size_of_rounding_may_have_any() -> None:
    """The bump is 0 without rounding and where there is much more of it, but not in between."""

    def append(x: Any) -> Any:
        square = layers.scale(layers.mean(layers.square(remainder(x))), 1e15)
        return layers.elementwise_mul(square, layers.exp(layers.scale(square, -1.0)))

    case = case_of(5000, append, np.linspace(1, 2, 5000))
    (bump,) = judging.run(case, "numpy", judging.first_values(case)).values()
    assert bump[0] > 1e-3
    assert not judging.judge(case, ("numpy",)).problems


def training(optimizer: Any) -> Case:
    """A layer before a `layer_norm`, so that its gradients nearly cancel out at first."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        hidden = layers.fc(fluid.data("x", [33, 17]), 40)
        hidden = layers.elementwise_add(layers.softmax(hidden), layers.create_parameter([40], "float32", name="shift"))
        loss = layers.mean(layers.square(layers.layer_norm(hidden)))
        optimizer.minimize(loss)
    feeds = [{"x": Fed("normal", (seed, (33, 17), "float32"))} for seed in range(3)]
    return Case("training", main, startup, feeds, [loss.name])


@each(
    "optimizer, accumulator, name",
    [
        (lambda: fluid.optimizer.Adam(0.01), "moment2_0", "fc_0.w_0"),
        (lambda: fluid.optimizer.Ftrl(0.1, regularization=fluid.regularizer.L1Decay(0.005)), "squared_0", "shift"),
        (lambda: fluid.optimizer.Lamb(0.01), "moment1_0", "fc_0.b_0"),
    ],
)
def test_an_accumulator_that_is_wrong_by_some_per_cent_is_told(
    optimizer: Callable[[], Any], accumulator: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The accumulator of a parameter, in its largest element."""
    name = f"{name}_{accumulator} afterwards"

    def change(arrays: dict[str, Any]) -> None:
        arrays[name].flat[np.abs(arrays[name]).argmax()] *= 1.03

    problems = judged(training(optimizer()), change, monkeypatch)
    assert {problem.engine for problem in problems} == {"native", "native, 2 threads"}, problems
    assert all(problem.message.startswith(name) for problem in problems), problems


def test_threads_that_give_other_bits_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []

    def change(arrays: dict[str, Any]) -> None:
        calls.append(None)
        if len(calls) == 2:
            name = next(iter(arrays))
            arrays[name].flat[-1] = np.nextafter(arrays[name].flat[-1], np.float32(9))

    assert {problem.kind for problem in judged(dense(), change, monkeypatch)} == {"other bits"}


def test_a_warning_of_a_fault_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from fluid.executor.native import plans

    def fail(*arguments: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr(plans, "regions_of" if hasattr(plans, "regions_of") else "with_native_code", fail)
    problems = judging.judge(dense(), ("numpy", "native")).problems
    assert problems and problems[0].kind == "RuntimeWarning" and "fault of Fluid" in problems[0].message


@each("at_end, place", [(True, 4096), (False, -1)])
def test_memory_beside_what_is_fed_cannot_be_touched(at_end: bool, place: int) -> None:
    array = np.arange(4096, dtype=np.uint8)

    def read(where: int) -> int:
        with guarded({"x": array}, at_end) as arrays:
            assert np.array_equal(arrays["x"], array)
            return ctypes.c_ubyte.from_address(arrays["x"].ctypes.data + where).value

    assert in_a_process(lambda: read(5)) == 5
    assert in_a_process(lambda: read(place)).kind == "process: SIGSEGV"


def test_what_fails_is_made_smaller() -> None:
    """Only the numbers that make a check fail remain, as small as possible."""

    def made(choices: Choices) -> list[int]:
        return [choices.extent(5000) for _ in choices.repeat(30, 90)]

    def attempt(replayed: Any) -> Choices | None:
        choices = Choices(replayed=replayed)
        numbers = made(choices)
        return choices if sum(number > 1000 for number in numbers) > 1 else None

    seed = next(seed for seed in range(100) if attempt(_drawn(made, seed)))
    choices = Choices(seed)
    made(choices)
    smallest = shrink(choices, attempt, 20)
    assert made(Choices(replayed=smallest.drawn)) == [1023, 1023]


def _drawn(made: Callable[[Choices], Any], seed: int) -> list[int]:
    choices = Choices(seed)
    made(choices)
    return choices.drawn


def test_a_failure_is_found_again_and_printed_as_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is said to be wrong if it has a softmax shrinks to little more; its script runs by itself."""

    def check(generator: str, choices: Choices, engines: Any = ()) -> Answer:
        try:
            case = make_net(choices)
        except Unfit as reason:
            return Answer(unfit=str(reason))
        is_wrong = any(op.type == "softmax" for op in case.main.global_block().ops)
        answer = Answer(drawn=choices.drawn, spans=choices.spans, script=script_of(case), title="net")
        answer.kind = answer.text = "native: softmax" if is_wrong else ""
        return answer

    monkeypatch.setattr(checking, "check", check)
    seed = next(seed for seed in range(100) if check("nets", choices_of(seed)).kind)
    failure = checking.find_failure("nets", seed, ("numpy",), seconds=5)
    assert failure is not None and f"seed {seed}" in str(failure)
    assert len(failure.smallest.script) <= len(failure.first.script)
    (tmp_path / "script.py").write_text(failure.smallest.script)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path)
    assert re.search(r"of run 0 \[.*\]: native and numpy differ by [\d.e-]+", done.stdout), done.stdout + done.stderr
