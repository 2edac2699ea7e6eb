"""Tests that `test_sharding` runs in separate processes, because the number of devices is fixed when jax starts.

python over_devices.py CHECK          on the devices that XLA_FLAGS makes of the CPU
python over_devices.py CHECK ADDRESS NUMBER      as one of two processes
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import fluid
from fluid import layers
from fluid.errors import ExecutionError, FeedError, ProgramError
from fluid.parallel import Mesh

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 16), np.float32), RNG.integers(0, 4, (8, 1))
STEPS = 4


class Net:
    """A classifier of two layers, trained by Adam, in programs of its own."""

    def __init__(self, seed: int = 3) -> None:
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.main.random_seed = self.startup.random_seed = seed
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            x, y = fluid.data("x", [None, 16]), fluid.data("y", [None, 1], "int64")
            self.hidden = layers.fc(x, 32, act="relu")
            dropped = layers.dropout(self.hidden, 0.2)  # the same elements, however they are divided
            logits = layers.fc(dropped, 4)
            self.loss = layers.mean(layers.softmax_with_cross_entropy(logits, y))
            fluid.optimizer.Adam(0.01).minimize(self.loss)
        self.executor, self.scope = fluid.Executor(fluid.XLAPlace()), fluid.Scope()
        self.executor.run(self.startup, scope=self.scope)

    def run(self, program: Any, feed: Any = None, fetch: Any = None) -> list[Any]:
        feed = {"x": X, "y": Y} if feed is None else feed
        return self.executor.run(program, feed, [self.loss] if fetch is None else fetch, scope=self.scope)

    def losses(self, program: Any, feed: Any = None) -> list[float]:
        return [self.run(program, feed)[0].item() for _ in range(STEPS)]

    def collectives(self, program: Any, feed: Any = None) -> Counter[str]:
        """How many of each collective operation XLA's program has."""
        plan = self.executor.plan(program, feed or {"x": X, "y": Y}, [self.loss], scope=self.scope)
        return collectives(plan.compiled.as_text())


def collectives(text: str) -> Counter[str]:
    return Counter(re.findall(r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(", text))


def refused(error: type[Exception], call: Callable[[], Any], *parts: str) -> None:
    """Fail unless a call raises this error, whose message has these parts."""
    try:
        call()
    except error as raised:
        missing = [part for part in parts if part not in str(raised)]
        assert not missing, f"{raised} does not say {missing}"
    else:
        raise AssertionError(f"no {error.__name__} was raised, with {parts}")


def over(net: Net, **axes: int) -> fluid.CompiledProgram:
    return fluid.CompiledProgram(net.main).with_mesh(Mesh(**axes))


def one_device() -> list[float]:
    net = Net()
    return net.losses(net.main)


# ---------------------------------------------------------------------------------------------------- several devices
def two_devices() -> None:
    """Dense data parallel: the losses of one device, and one exchange a step, of the sums of gradients."""
    net = Net()
    program = fluid.CompiledProgram(net.main).with_data_parallel(loss_name=net.loss.name)
    np.testing.assert_allclose(net.losses(program), one_device(), rtol=0, atol=1e-6)
    assert net.collectives(program) == Counter({"all-reduce": 1}), net.collectives(program)
    held = net.scope.held("fc_0.w_0").value
    assert len(held.devices()) == 2 and held.is_fully_replicated
    net.losses(net.main)  # on one device again, with the same state
    assert len(net.scope.held("fc_0.w_0").value.devices()) == 1


def annotations() -> None:
    """Split columns, rows, tables and optimizer states over axes: the losses equal those of one device, and each device holds a
    part."""
    expected = one_device()
    divided: list[tuple[str, Any, dict[str, int], tuple[int, ...]]] = [
        ("fc_0.w_0*", [None, "model"], {"data": 2, "model": 2}, (16, 16)),
        ("fc_0.w_0*", ["model", None], {"data": 2, "model": 2}, (8, 32)),
        ("fc_0.w_0*", ["model", "data"], {"data": 2, "model": 2}, (8, 16)),
        ("*w_0_moment*", "data", {"data": 4}, (16, 32)),
    ]
    for pattern, axes, mesh, part in divided:
        net = Net()
        net.main.shard(pattern, axes)
        np.testing.assert_allclose(net.losses(over(net, **mesh)), expected, rtol=0, atol=1e-6, err_msg=f"{pattern} {axes}")
        assert net.scope.held("fc_0.w_0").value.sharding.shard_shape((16, 32)) == part, (pattern, axes)
    moment = net.scope.held("fc_0.w_0_moment1_0").value  # as ZeRO has it
    assert moment.sharding.shard_shape((16, 32)) == (4, 32)
    assert net.scope.array("fc_0.w_0_moment1_0").shape == (16, 32)  # whoever looks sees all of it
    test = net.main.clone(for_test=True)
    (hidden,) = net.run(fluid.CompiledProgram(test).with_mesh(Mesh(data=4)), fetch=[net.hidden])
    assert hidden.shape == (8, 32)


def tables() -> None:
    """A table whose rows lie on different devices, with dense and with sparse gradients, and a loop over devices."""
    ids, sums = RNG.integers(0, 64, (8, 1)), []
    for is_sparse in (False, True):
        for mesh in (None, Mesh(data=2, model=2)):
            main, startup = fluid.Program(), fluid.Program()
            main.random_seed = startup.random_seed = 1
            with fluid.program_guard(main, startup), fluid.unique_name.guard():
                word, n = fluid.data("word", [None, 1], "int64"), fluid.data("n", [1], "int64")
                table = fluid.ParamAttr(name="table")
                h = layers.scale(layers.embedding(word, [64, 8], is_sparse=is_sparse, param_attr=table), 1.0)
                i = layers.fill_constant([1], "int64", 0)
                go_on = layers.less_than(i, n)
                loop = layers.While(go_on)
                with loop.block():
                    layers.assign(layers.tanh(h * 1.5), h)
                    layers.increment(i)
                    layers.less_than(i, n, cond=go_on)
                loss = layers.reduce_sum(h * h)
                fluid.optimizer.SGD(0.1).minimize(loss)
            main.shard("table", "model")
            executor, scope = fluid.Executor(fluid.XLAPlace()), fluid.Scope()
            executor.run(startup, scope=scope)
            program = main if mesh is None else fluid.CompiledProgram(main).with_mesh(mesh)
            feed = {"word": ids, "n": np.array([3])}
            losses = [executor.run(program, feed, [loss], scope=scope)[0].item() for _ in range(3)]
            assert mesh is None or scope.held("table").value.sharding.shard_shape((64, 8)) == (32, 8)
            sums.append([*losses, *scope.array("table").ravel()])
    for other in sums[1:]:
        np.testing.assert_allclose(other, sums[0], rtol=1e-5, atol=1e-6)


def sequences() -> None:
    """All devices hold the rows that form sequences; a callback at the host gets complete inputs."""
    values = []
    for mesh in (None, Mesh(data=4)):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 1
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x, label = layers.data("x", [6], lod_level=1), layers.data("label", [1], dtype="int32", lod_level=1)
            loss = layers.mean(layers.warpctc(layers.fc(x, 6), label))
            fluid.optimizer.SGD(0.1).minimize(loss)
        executor, scope = fluid.Executor(fluid.XLAPlace()), fluid.Scope()
        executor.run(startup, scope=scope)
        program = main if mesh is None else fluid.CompiledProgram(main).with_mesh(mesh)
        rows = np.random.default_rng(1).standard_normal((9, 6), np.float32)
        feed = {"x": (rows, [[4, 5]]), "label": (np.array([[1], [2], [3]], "int32"), [[1, 2]])}
        values.append([executor.run(program, feed, [loss], scope=scope)[0].item() for _ in range(3)])
    np.testing.assert_allclose(*values, rtol=0, atol=1e-5)


def errors() -> None:
    net = Net()
    before = {name: net.scope.array(name).copy() for name in net.scope.local_var_names()}
    refused(
        ExecutionError, lambda: net.run(over(net, data=4, model=2)), "Mesh(data=4, model=2) takes 8 devices", "are 4", "XLA_FLAGS"
    )
    odd = {"x": X[:3], "y": Y[:3]}
    refused(FeedError, lambda: net.run(over(net, data=2), odd), "x is fed 3 rows", "the 2 devices", "feed a multiple of 2")
    net.main.shard("fc_1.w_0", [None, "model"])
    program = over(net, data=1, model=3)
    refused(
        ProgramError,
        lambda: net.run(program),
        "fc_1.w_0 has 4 along dimension 1",
        "[32, 4]",
        "the 3 devices",
        "Mesh(data=1, model=3)",
    )
    refused(ProgramError, lambda: net.run(over(net, data=2)), "fc_1.w_0", "axis 'model'", "Mesh(data=2) has data", "add the axis")
    for name, value in before.items():
        np.testing.assert_array_equal(net.scope.array(name), value, err_msg=name)  # nothing is lost
    net.main.shard("x", [])
    net.main.shard("y", [])
    net.run(over(net, model=2), odd)


# ----------------------------------------------------------------------------------------------------- two processes
def two_processes(address: str, number: int) -> None:
    """Two processes with half of the batch and different first values: both train with the values of process 0."""
    fluid.parallel.connect(address, 2, number, timeout=30)
    expected = one_device()
    half = slice(4 * number, 4 * number + 4)
    feed = {"x": X[half], "y": Y[half]}
    net = Net(3 + number)
    net.main.random_seed = 3
    program = fluid.CompiledProgram(net.main).with_data_parallel()
    np.testing.assert_allclose(net.losses(program, feed), expected, rtol=0, atol=1e-6)
    assert net.collectives(program, feed) == Counter({"all-reduce": 1}), net.collectives(program, feed)
    net.main.shard("*w_0_moment*", "data")
    (hidden,) = net.run(program, feed, [net.hidden])
    assert hidden.shape == (8, 32)
    moment = net.scope.held("fc_0.w_0_moment1_0").value
    assert not moment.is_fully_addressable and net.scope.array("fc_0.w_0_moment1_0").shape == (16, 32)
    refused(ExecutionError, lambda: net.run(over(net, data=1), feed), "takes 1 device", "in 2 processes")


def processes_that_differ(address: str, number: int) -> None:
    """Two processes are fed different shapes after both shapes were compiled: one asks, the other learns of it while it waits."""
    fluid.parallel.connect(address, 2, number, timeout=30)
    net = Net()
    program = fluid.CompiledProgram(net.main).with_data_parallel()
    for rows in (4, 4, 2, 4, 4 - 2 * number):
        net.run(program, {"x": X[:rows], "y": Y[:rows]})
        print("ran")


if __name__ == "__main__":
    check, *rest = sys.argv[1:]
    globals()[check](*rest[:1], *map(int, rest[1:]))
