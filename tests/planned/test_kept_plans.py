"""Plans that are kept on disk: a process that finds one neither plans nor compiles, and computes the same bits."""

from __future__ import annotations

import copy
import gc
import json
import os
import random
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import MORE, Checks, fresh_programs, own_ops

pytest.importorskip("llvmlite")

from test_kernel_cache import DAMAGES, forget

import fluid
from fluid import layers
from fluid.executor.kernels.table import CHECKS, check_of
from fluid.executor.native import cache, compiler, plans, sealed
from fluid.executor.native.compiler import NativeUnavailable
from fluid.executor.native.instructions import NATIVE_PREFIX
from fluid.executor.planned import records
from fluid.opdef import registry

STEPS = 3


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own; no warning may appear."""
    path = tmp_path / "cache"
    monkeypatch.setenv("FLUID_NATIVE_CACHE", str(path))
    monkeypatch.setenv("FLUID_NATIVE", "1")
    monkeypatch.setattr(records, "_FEWEST_OPS", 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield path
    forget()


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ops each planning with native code was given."""
    counts: list[int] = []
    plan = plans.with_native_code

    def counting(instructions: Any, *others: Any) -> Any:
        counts.append(len(instructions))
        return plan(instructions, *others)

    monkeypatch.setattr(plans, "with_native_code", counting)
    return counts


def perceptron(width: int = 5, rate: float = 0.1, factor: float = 2.0) -> Any:
    x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 1], "int64")
    h = layers.fc(x, width, act="tanh") * factor
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(h, 3), label))
    fluid.optimizer.Momentum(rate, 0.9).minimize(loss)
    return loss


def convolutions() -> Any:
    """Images with halos, random numbers that a kernel draws, checks, sums in parts, an op that is left to numpy."""
    x, label = fluid.data("x", [None, 3, 8, 8]), fluid.data("label", [None, 1], "int64")
    h = layers.batch_norm(layers.conv2d(x, 8, 3, padding=1), act="relu")
    h = layers.dropout(layers.conv2d(h, 8, 3, padding=1, act="relu"), 0.3)
    h = layers.argsort(layers.flatten(layers.pool2d(h, 2, "max", 2)), 1)[0]
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(h, 3), label))
    fluid.optimizer.Adam(0.01).minimize(loss)
    return loss


def words() -> Any:
    h = layers.embedding(fluid.data("ids", [6, 1], "int64"), [20, 8], is_sparse=True)
    loss = layers.reduce_mean(layers.square(layers.fc(h, 4)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def strides() -> Any:
    """Images whose last row of zeros no kernel reads or writes."""
    h = layers.conv2d(fluid.data("x", [None, 3, 16, 16]), 160, 3, padding=1)
    return layers.mean(layers.conv2d(h, 8, 3, stride=2, padding=1, act="relu"))


def feed_of(main: Any, rows: int) -> dict[str, Any]:
    draws = np.random.default_rng(0)
    shapes = {var.name: [rows, *var.shape[1:]] for var in main.list_vars() if var.is_data}
    return {
        name: draws.integers(0, 3, shape)
        if main.global_block().var(name).dtype.name == "INT64"
        else draws.random(shape, np.float32)
        for name, shape in shapes.items()
    }


class Process:
    """A program, built and run as if in a process of its own."""

    def __init__(self, build: Callable[[], Any], rows: int = 6) -> None:
        gc.collect()
        cache._loaded.clear()
        with fresh_programs() as (main, startup), fluid.unique_name.guard():
            main.random_seed = startup.random_seed = 7
            self.main, self.loss, self.scope = main, build(), fluid.Scope()
        self.startup, self.feed, self.executor = startup, feed_of(main, rows), fluid.Executor()
        self.executor.run(startup, scope=self.scope)

    def losses(self) -> list[float]:
        results = [self.executor.run(self.main, self.feed, [self.loss], scope=self.scope)[0] for _ in range(STEPS)]
        return [result.item() for result in results]

    def plan(self) -> Any:
        return self.executor.plan(self.main, self.feed, [self.loss], scope=self.scope)


def test_what_is_kept_is_not_planned_again(planned: list[int]) -> None:
    for build in (perceptron, convolutions, strides, words):
        first = Process(build)
        expected, text, arena = first.losses(), first.plan().to_string(calls=True), first.plan().arena_bytes
        assert planned
        planned.clear()
        second = Process(build)
        losses, plan = second.losses(), second.plan()
        assert not planned, build.__name__
        assert losses == expected and plan.to_string(calls=True) == text and plan.arena_bytes == arena
        assert plan.ops and all(op in second.main.global_block().ops for op in plan.ops)
        assert [tenant.offset for tenant in plan.tenants.values()] == [plan.offset_of[value] for value in plan.tenants]
        first.executor.close()


IN_A_PROCESS = """
import sys, numpy as np, fluid
from fluid import layers
from fluid.executor.planned import records
records._FEWEST_OPS = 2
ids, label = fluid.data("ids", [6, 1], "int64"), fluid.data("label", [6, 1], "int64")
some = fluid.initializer.Constant(0.3)  # random ones would be drawn by a kernel
h = layers.fc(layers.embedding(ids, [20, 8], param_attr=some), 3, param_attr=some)
loss = layers.mean(layers.softmax_with_cross_entropy(h, label))
fluid.optimizer.SGD(0.1).minimize(loss)
executor = fluid.Executor()
executor.run(fluid.default_startup_program())
feed = {"ids": np.arange(6).reshape(6, 1), "label": np.arange(6).reshape(6, 1) % 3}
losses = [executor.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(3)]
feed["label"][1] = 4
try:
    executor.run(feed=feed, fetch_list=[loss])
except fluid.errors.ExecutionError as error:
    told = str(error).splitlines()[0]
print(losses, told, executor.plan(feed=feed, fetch_list=[loss]).to_string().splitlines()[1])
print("fluid.executor.native.fusion" in sys.modules, "fluid.executor.kernels.conv" in sys.modules)
"""


def test_a_process_of_its_own_plans_nothing_and_loads_few_kernels() -> None:
    """The first process needs the modules that plan, and all kernels; the second one only kernels that check."""
    first, second = (
        subprocess.run([sys.executable, "-c", IN_A_PROCESS], capture_output=True, text=True, check=True).stdout.splitlines()
        for _ in range(2)
    )
    assert first[0] == second[0] and "softmax_with_cross_entropy" in first[0] and first[0].endswith("on numpy: none")
    assert first[1] == "True True" and second[1] == "False False"


def test_checks_stand_with_kernels_of_the_ops_family() -> None:
    for op_type, check in CHECKS.items():
        assert check_of(op_type) is check
        definition = registry.get(op_type)
        module = (definition.forward or definition).module
        assert module.rpartition(".")[2] == check.fn.__module__.rpartition(".")[2], op_type
    assert check_of("relu") is None and check_of("nothing") is None


def test_checks_are_kept(planned: list[int]) -> None:
    Process(perceptron).losses()
    planned.clear()
    again = Process(perceptron)
    again.feed["label"][2] = 17
    with pytest.raises(fluid.errors.ExecutionError, match="softmax_with_cross_entropy"):
        again.losses()
    assert not planned


def path_of(plan: Any, fetches: list[str] | None = None) -> str | None:
    """The file of a plan's native code."""
    specs = {value: spec for value, spec in plan.specs.items() if not value[0].startswith(NATIVE_PREFIX)}
    return records.record_path(plan.program, specs, plan.storage, plan.unchanging, fetches or plan.fetches, compiler.host())


def attribute_set(value: Any) -> Any:
    loss = perceptron()
    fluid.default_main_program().global_block().ops[0].attrs["made_by"] = value
    return loss


def test_another_program_has_a_plan_of_its_own(planned: list[int]) -> None:
    def kept(build: Callable[[], Any], rows: int = 6) -> str | None:
        process = Process(build, rows)
        return path_of(process.plan())

    def fetched_more() -> str | None:
        process = Process(perceptron)
        return path_of(process.plan(), [process.loss.name, "fc_0.tmp_1"])

    def persistent() -> Any:
        loss = perceptron()
        fluid.default_main_program().global_block().var("fc_0.tmp_1").persistable = True
        return loss

    def allowed(*op_types: str) -> Any:
        loss = perceptron()
        fluid.default_main_program().allowed_ops = frozenset(op_types)
        return loss

    names = [
        kept(perceptron),
        kept(allowed),
        kept(lambda: allowed("py_func")),
        kept(perceptron, rows=7),
        kept(lambda: perceptron(width=6)),
        kept(lambda: perceptron(factor=-2.0)),
        kept(persistent),
        kept(words),
        kept(lambda: attribute_set(0.0)),
        kept(lambda: attribute_set(-0.0)),
        kept(lambda: attribute_set(True)),
        kept(lambda: attribute_set(1)),
        kept(lambda: attribute_set(1.0)),
        fetched_more(),
    ]
    assert None not in names and len(set(names)) == len(names)
    assert kept(perceptron) == names[0]


def test_what_is_no_data_or_not_of_this_package_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_kept(build: Callable[[], Any]) -> bool:
        with fresh_programs() as (main, _):
            build()
            return records.record_path(main, {}, {}, [], [], compiler.host()) is not None

    def loop() -> None:
        count = layers.fill_constant([1], "int64", 0)
        layers.while_loop(lambda i: layers.less_than(i, layers.fill_constant([1], "int64", 3)), lambda i: [i + 1], [count])

    def of_user() -> None:
        x = fluid.data("x", [3])
        fluid.extend.ops().twice_and_kept(layers.relu(x))

    with own_ops():

        @fluid.extend.define("twice_and_kept(X) -> Out", infer=fluid.extend.like("X"))
        def twice(f: Any, X: Any, dOut: Any) -> Any:
            """Twice the input."""
            return {"X": dOut * 2.0}

        assert not is_kept(of_user)
    assert is_kept(perceptron) and not is_kept(loop)
    assert not is_kept(lambda: attribute_set(np.float32(2))) and not is_kept(lambda: attribute_set(object()))
    with monkeypatch.context() as patch:
        patch.setattr(records, "_FEWEST_OPS", 1000)
        assert not is_kept(perceptron)
    with monkeypatch.context() as patch:
        patch.setenv("FLUID_NATIVE_CACHE", "0")
        assert not is_kept(perceptron)
    with monkeypatch.context() as patch:
        patch.setattr(records.KERNELS["tanh"].fn, "__module__", "users")
        assert not is_kept(perceptron)
    with monkeypatch.context() as patch:
        patch.setitem(records.HANDLERS, "tanh", unkept := lambda machine, op, env: None)
        assert unkept.__module__ != "fluid" and not is_kept(perceptron)


def test_other_sources_have_plans_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of this package changes, or none can be seen."""
    sources = records._sources.__wrapped__()
    assert {"executor.py", "plan.py", "records.py", "activation.py"} <= {os.path.basename(path) for path, _, _ in sources}
    process = Process(perceptron)
    plan = process.plan()
    before = path_of(plan)
    path, time, size = sources[5]
    for changed in ((path, time + 1, size), (path, time, size + 1), (path + "x", time, size)):
        monkeypatch.setattr(records, "_sources", lambda changed=changed: [*sources[:5], changed, *sources[6:]])
        assert before != path_of(plan) is not None
    monkeypatch.setattr(records, "_sources", list)
    assert path_of(plan) is None


def test_a_plan_without_native_code_is_not_kept(place: Path) -> None:
    def build() -> Any:
        x = fluid.data("x", [6, 9])
        for _ in range(4):
            x = layers.argsort(x, 1)[0]
        return layers.reduce_sum(x)

    Process(build).losses()
    assert not plan_files(place)


def plan_files(place: Path) -> list[Path]:
    return sorted(place.glob("*.plan"), key=lambda path: path.stat().st_size)


def test_what_is_damaged_or_not_the_users_own_is_planned_anew(place: Path, planned: list[int]) -> None:
    expected = Process(perceptron).losses()
    path = plan_files(place)[-1]
    whole = path.read_bytes()
    with Checks() as check:
        for name, damage in DAMAGES.items():
            if name == "of no use":  # is about objects
                continue
            with check(name):
                planned.clear()
                damage(path)
                assert Process(perceptron).losses() == expected
                assert len(planned) == 1 and path.read_bytes() == whole and not path.is_symlink()
                assert path.stat().st_mode & 0o777 == 0o600


def test_kernels_that_are_gone_are_made_again(place: Path, planned: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Process(perceptron).losses()
    for path in place.glob("*.kernels"):
        path.unlink()
    planned.clear()
    assert Process(perceptron).losses() == expected
    assert planned
    planned.clear()
    process = Process(perceptron)
    assert process.losses() == expected and not planned
    shutil.rmtree(place)  # kernels that are loaded stay: the plan is bound again
    name = process.main.all_parameters()[0].name
    process.scope.put(name, np.array(process.scope.array(name)))
    process.losses()
    assert not planned


def test_a_scope_with_other_shapes_has_a_plan_of_its_own(planned: list[int]) -> None:
    def build() -> Any:
        weight = layers.create_parameter([4, 5], "float32", "weight")
        return layers.reduce_sum(layers.tanh(layers.matmul(fluid.data("x", [6, 4]), weight)) * 3.0)

    Process(build).losses()
    planned.clear()
    Process(build).losses()
    assert planned == [1]  # the startup program, which is too short to be kept
    process = Process(build)
    process.scope.put("weight", np.ones((4, 9), np.float32))
    x, weight = process.feed["x"], process.scope.array("weight")
    np.testing.assert_allclose(process.losses()[0], (np.tanh(x @ weight) * 3).sum(), 1e-5)
    assert planned == [1, 1, 4]


def test_where_native_code_cannot_be_made_nothing_is_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Process(perceptron).losses()

    def fail(*arguments: Any) -> Any:
        raise NativeUnavailable("this processor lacks avx2")

    monkeypatch.setattr(compiler, "host", fail)
    with pytest.warns(RuntimeWarning, match="lacks avx2"):
        np.testing.assert_allclose(Process(perceptron).losses(), expected, 1e-5)


THINGS = (-1, 0, 1, 2, 3, 7, 64, 2**31, 2**62, 2**70, -(2**70), 1.5, float("inf"), True, None, "", "x", "native.0", [], [0], {})


def parts_of(record: Any) -> list[tuple[Any, Any]]:
    """Every place in a record: a list or a dict, and an index or a key of it."""
    places = []
    for key in record if isinstance(record, dict) else range(len(record)) if isinstance(record, list) else ():
        places += [(record, key), *parts_of(record[key])]
    return places


def edit(record: Any, draws: random.Random) -> None:
    """Change one thing in a record."""
    holder, key = draws.choice(parts_of(record))
    former = holder[key]
    match draws.randrange(4):
        case 0:
            holder[key] = draws.choice(THINGS)
        case 1:
            holder[key] = former + draws.choice((-64, -8, -4, -1, 1, 4, 8, 64)) if type(former) is int else None
        case 2:
            del holder[key]
        case _:
            other_holder, other_key = draws.choice(parts_of(record))
            holder[key] = copy.deepcopy(other_holder[other_key])


@pytest.mark.parametrize("build", [perceptron, convolutions, words])
def test_edited_plans_raise_nothing(build: Callable[[], Any], place: Path) -> None:
    """Files with a right digest but wrong contents are ignored."""
    expected = Process(build).losses()
    path = plan_files(place)[-1]
    record = json.loads(sealed.read_sealed(str(path), records._HEAD) or b"")
    draws = random.Random(0)
    others = 0
    for _ in range(40 * MORE):
        edited = copy.deepcopy(record)
        edit(edited, draws)
        sealed.write_sealed(str(path), records._HEAD, json.dumps(edited).encode())
        others += Process(build).losses() != expected
    assert others <= 2 * MORE  # nobody can see that a kernel should read at another place of the same array


def test_a_plan_that_runs_an_op_twice_is_passed_over(place: Path, planned: list[int]) -> None:
    expected = Process(convolutions).losses()
    path = plan_files(place)[-1]
    record = json.loads(sealed.read_sealed(str(path), records._HEAD) or b"")
    ops = [number for number, (kind, *_) in enumerate(record["instructions"]) if kind == "op"]
    record["instructions"].insert(ops[0], record["instructions"][ops[0]])
    sealed.write_sealed(str(path), records._HEAD, json.dumps(record).encode())
    planned.clear()
    assert Process(convolutions).losses() == expected and planned
