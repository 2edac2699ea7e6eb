"""`compile`: a step computes as eager mode does, is traced anew where it has to be, and says why where it cannot be."""

from __future__ import annotations

import itertools
import os
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.dygraph import Tensor
from fluid.errors import FluidTypeError, ProgramError

HERE = os.path.basename(__file__)
SETTINGS = types.ModuleType("settings")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield


class Task:
    """A net, an optimizer and steps, as a test needs them; `calls` counts how often Python code of the step ran."""

    def __init__(self, net: Any, optimizer: Any) -> None:
        self.net, self.optimizer = net, optimizer
        self.calls = itertools.count()

    @property
    def called(self) -> int:
        return int(repr(self.calls)[len("count(") : -1])

    def values(self) -> dict[str, Any]:
        """Parameters, buffers, gradients and state of the optimizers."""
        values = {f"net/{name}": tensor.numpy() for name, tensor in self.net.state_dict().items()}
        values |= {f"grad/{p.name}": None if p.grad is None else p.grad.numpy() for p in self.net.parameters()}
        optimizers = self.optimizer if isinstance(self.optimizer, (list, tuple)) else [self.optimizer]
        for number, optimizer in enumerate(item for item in optimizers if item is not None):
            for name, value in optimizer.state_dict().items():
                values[f"optimizer{number}/{name}"] = value.numpy()
        return values


def loss_of(net: Any, x: Any, y: Any) -> Any:
    return layers.mean(layers.square(net(x) - y))


def perceptron(*more: Any) -> Any:
    return dygraph.Sequential(dygraph.Linear(4, 6, act="tanh"), *more, dygraph.Linear(6, 1))


def adam(net: Any, rate: Any = 0.05, **settings: Any) -> Any:
    return fluid.optimizer.Adam(rate, parameter_list=net.parameters(), **settings)


def batch(rows: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    numbers = np.random.default_rng(seed)
    return Tensor(numbers.standard_normal((rows, 4)).astype("float32")), Tensor(
        numbers.standard_normal((rows, 1)).astype("float32")
    )


def step_of(task: Task) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        next(task.calls)
        loss = loss_of(task.net, x, y)
        loss.backward()
        task.optimizer.minimize(loss)
        task.net.clear_gradients()
        return loss

    return step


def numbers_in(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: numbers_in(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(numbers_in(item) for item in value)
    return value.numpy() if isinstance(value, Tensor) else value


def assert_close(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, item in expected.items():
            assert_close(found[key], item)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, item in zip(found, expected, strict=True):
            assert_close(one, item)
    elif isinstance(expected, np.ndarray):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-6)
    else:
        assert found == expected


def check(make: Callable[[], Task], use: Callable[[Task, Callable[[Any], Any]], Any], most_calls: int | None = None) -> Task:
    """``use(task, compile)`` gives the same with `compile` and without, and leaves the same values; the compiled task."""
    tasks, results = [], []
    for wrapper in (lambda function: function, dygraph.compile):
        with dygraph.guard():
            fluid.seed(5)
            tasks.append(make())
            results.append(numbers_in(use(tasks[-1], wrapper)))
    assert_close(results[1], results[0])
    assert_close(tasks[1].values(), tasks[0].values())
    if most_calls is not None:
        assert tasks[1].called == most_calls
    return tasks[1]


def simple() -> Task:
    net = perceptron()
    return Task(net, adam(net))


# ------------------------------------------------------------------------------------------------------------ training steps
def test_a_step_trains_as_in_eager_mode() -> None:
    def use(task: Task, compile: Any) -> Any:
        step = compile(step_of(task))
        return [step(*batch(seed=seed)) for seed in range(5)]

    check(simple, use, most_calls=1)


def test_a_step_is_one_program() -> None:
    task = simple()
    step = dygraph.compile(step_of(task))
    step(*batch())
    ((entry,),) = step._known.values()
    types_of = [op.type for op in entry.step.program.global_block().ops]
    assert types_of[:2] == ["mul", "elementwise_add"]
    assert types_of.count("adam") == 4
    entry.step.program.verify()


def test_sizes_vary_without_another_trace() -> None:
    def use(task: Task, compile: Any) -> Any:
        step = compile(step_of(task))
        return [step(*batch(rows, seed=rows)) for rows in (6, 6, 5, 7, 64, 3, 2)]

    check(simple, use, most_calls=2)


@each("rows", [0, 1])
def test_no_rows_and_one_row_have_programs_of_their_own(rows: int) -> None:
    def use(task: Task, compile: Any) -> Any:
        step = compile(step_of(task))
        return [step(*batch(n, seed=n)) for n in (rows, 4, rows, 3, 8)]

    check(simple, use, most_calls=3)


def test_a_size_that_the_step_reads_is_part_of_the_program() -> None:
    def make_step(task: Task) -> Any:
        def step(x: Any, y: Any) -> Any:
            next(task.calls)
            loss = (task.net(x) - y).sum() / x.shape[0]
            loss.backward()
            task.optimizer.minimize(loss)
            task.optimizer.clear_grad()
            return loss, layers.reshape(x, [x.shape[0] * 2, 2])

        return step

    def use(task: Task, compile: Any) -> Any:
        step = compile(make_step(task))
        return [step(*batch(rows, seed=n)) for n, rows in enumerate((6, 5, 6, 5, 4))]

    check(simple, use, most_calls=3)


@each(
    "read",
    [
        lambda x: x.shape[0],
        lambda x: x.shape[-2],
        lambda x: next(iter(x.shape)),
        len,
        lambda x: x.size // 4,
        lambda x: (lambda rows, columns: rows)(*x.shape),
        lambda x: 3 if x.shape in ((3, 4), (2, 4)) else 10,
        lambda x: np.zeros(x.shape).shape[0],
        lambda x: sum(1 for _ in x),
    ],
)
def test_a_branch_on_a_size_takes_the_right_way(read: Any) -> None:
    step = dygraph.compile(lambda x: x * 2.0 if read(x) > 8 else x * 3.0)
    for rows in (10, 11, 3, 9, 2, 30):
        expected = 2.0 if rows > 8 else 3.0
        assert step(Tensor(np.ones([rows, 4], "float32"))).numpy().max() == expected


def test_other_sizes_are_no_part_of_it() -> None:
    calls = itertools.count()

    def step(x: Any) -> Any:
        next(calls)
        return layers.reshape(x, [-1, x.shape[1] * x.shape[2]]).sum(x.ndim - 2)

    compiled = dygraph.compile(step)
    for rows in (3, 4, 5, 6):
        x = Tensor(np.random.default_rng(rows).standard_normal((rows, 2, 3)).astype("float32"))
        np.testing.assert_allclose(compiled(x).numpy(), x.numpy().reshape(rows, 6).sum(1), rtol=1e-4)
    assert next(calls) == 2


# ---------------------------------------------------------------------------------------------------------------- gradients
def test_gradients_that_are_cleared_first_remain() -> None:
    def use(task: Task, compile: Any) -> Any:
        def step(x: Any, y: Any) -> Any:
            next(task.calls)
            task.optimizer.clear_grad()
            loss = loss_of(task.net, x, y)
            loss.backward()
            task.optimizer.step()
            return loss

        step = compile(step)
        kept = []
        for seed in range(4):
            step(*batch(seed=seed))
            kept.append(task.net.parameters()[0].grad)
        return kept  # later steps do not write to former gradients

    check(simple, use, most_calls=1)


def test_gradients_accumulate_over_calls() -> None:
    def use(task: Task, compile: Any) -> Any:
        def add(x: Any, y: Any) -> Any:
            next(task.calls)
            loss = loss_of(task.net, x, y) / 3.0
            loss.backward()
            return loss

        def update() -> None:
            task.optimizer.step()
            task.optimizer.clear_grad()

        add, update = compile(add), compile(update)
        losses = []
        for round in range(3):
            losses += [add(*batch(seed=3 * round + n)) for n in range(3)]
            gradient = task.net.parameters()[1].grad
            losses.append(gradient.numpy())
            update()
            assert task.net.parameters()[1].grad is None
        return losses

    check(simple, use, most_calls=2)


def test_several_losses_add_up() -> None:
    def use(task: Task, compile: Any) -> Any:
        def step(x: Any, y: Any) -> Any:
            next(task.calls)
            out = task.net(x)
            first, second = layers.mean(layers.square(out - y)), layers.mean(layers.abs(out))
            first.backward(retain_graph=True)
            second.backward()
            weight = task.net.parameters()[0]
            weight.grad = weight.grad * 0.5
            task.optimizer.step()
            task.optimizer.clear_grad()
            return first, second

        step = compile(step)
        return [step(*batch(rows)) for rows in (6, 3, 5)]

    check(simple, use, most_calls=2)


def test_weights_of_outputs_and_selected_inputs() -> None:
    def use(task: Task, compile: Any) -> Any:
        chosen = task.net.parameters()[:1]

        def step(x: Any, y: Any) -> Any:
            dygraph.backward([task.net(x)], [y], inputs=chosen)
            return chosen[0].grad

        step = compile(step)
        return [step(*batch(seed=seed)).numpy() for seed in range(3)]

    check(simple, use)


def test_the_gradient_of_an_argument() -> None:
    def use(task: Task, compile: Any) -> Any:
        step = compile(lambda x: (x * x).sum().backward())
        found = []
        for seed in range(3):
            x = batch(seed=seed)[0]
            x.stop_gradient = False
            for _ in range(3):
                step(x)
                found.append(x.grad.numpy())
        return found

    check(simple, use)


def test_a_penalty_on_gradients() -> None:
    def use(task: Task, compile: Any) -> Any:
        def step(x: Any, y: Any) -> Any:
            next(task.calls)
            x = x * 1.0
            x.stop_gradient = False
            out = task.net(x)
            (slope,) = dygraph.grad(out.sum(), x, create_graph=True)
            loss = layers.mean(layers.square(out - y)) + layers.mean(layers.square(slope))
            loss.backward()
            task.optimizer.step()
            task.optimizer.clear_grad()
            return loss

        step = compile(step)
        return [step(*batch(seed=seed)) for seed in range(4)]

    check(simple, use, most_calls=1)


def test_sparse_gradients() -> None:
    def make() -> Task:
        net = dygraph.Embedding(None, [20, 3], is_sparse=True)
        return Task(net, fluid.optimizer.SGD(0.5, parameter_list=net.parameters()))

    def use(task: Task, compile: Any) -> Any:
        def step(ids: Any) -> Any:
            loss = layers.mean(layers.square(task.net(ids)))
            loss.backward()
            task.optimizer.minimize(loss)
            task.net.clear_gradients()
            return loss

        step = compile(step)
        return [step(Tensor(np.arange(seed, seed + 8)[:, None] % 20)) for seed in range(4)]

    check(make, use)


def test_a_shared_layer_and_frozen_parameters() -> None:
    def make() -> Task:
        inner = dygraph.Linear(6, 6, act="tanh")
        return Task(net := perceptron(inner, inner), adam(net))

    def use(task: Task, compile: Any) -> Any:
        step = compile(step_of(task))
        losses = [step(*batch(seed=seed)) for seed in range(2)]
        weight = task.net.parameters()[0]
        weight.trainable = False
        losses += [step(*batch(seed=seed)) for seed in range(2)]
        weight.stop_gradient = False
        return losses + [step(*batch(seed=seed)) for seed in range(2)]

    check(make, use, most_calls=2)


# ----------------------------------------------------------------------------------------------------------------- optimizers
@each(
    "make",
    [
        lambda net: fluid.optimizer.SGD(0.1, parameter_list=net.parameters()),
        lambda net: fluid.optimizer.Momentum(0.1, 0.9, True, parameter_list=net),
        lambda net: fluid.optimizer.RMSProp(0.01, parameter_list=net.parameters(), centered=True),
        lambda net: fluid.optimizer.Adagrad(0.1, parameter_list=net.parameters()),
        lambda net: fluid.optimizer.AdamW(0.1, weight_decay=0.1, parameter_list=net.parameters()),
        lambda net: fluid.optimizer.Lamb(0.1, parameter_list=net.parameters()),
        lambda net: fluid.optimizer.Adamax(0.1, parameter_list=net.parameters()),
        lambda net: fluid.optimizer.RAdam(0.1, parameter_list=net.parameters()),
        lambda net: fluid.optimizer.Ftrl(0.1, parameter_list=net.parameters()),
        lambda net: adam(net, regularization=fluid.regularizer.L2Decay(0.1)),
        lambda net: adam(net, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)),
        lambda net: adam(net, grad_clip=fluid.clip.GradientClipByValue(0.01)),
        lambda net: adam(net, dygraph.ExponentialDecay(0.1, 2, 0.5)),
        lambda net: adam(net, dygraph.NoamDecay(8, 3)),
        lambda net: adam(net, dygraph.PiecewiseDecay([2, 3], [0.1, 0.01, 0.001], 0)),
    ],
)
def test_optimizers(make: Any) -> None:
    def use(task: Task, compile: Any) -> Any:
        def step(x: Any, y: Any) -> Any:
            loss = loss_of(task.net, x, y)
            loss.backward()
            task.optimizer.step()
            task.optimizer.clear_grad()
            return loss

        step = compile(step)
        return [step(*batch(seed=seed)) for seed in range(6)]

    check(lambda: Task(net := perceptron(), make(net)), use)


def test_a_rate_that_is_set_is_used() -> None:
    def use(task: Task, compile: Any) -> Any:
        step = compile(step_of(task))
        losses = [step(*batch())]
        fluid.training.set_learning_rate(task.optimizer, 0.5)
        return losses + [step(*batch()), step(*batch())]

    check(simple, use, most_calls=1)


def test_changed_settings_of_an_optimizer_are_used() -> None:
    def make() -> Task:
        net = perceptron()
        clip = fluid.clip.GradientClipByGlobalNorm(0.5)
        return Task(net, fluid.optimizer.Momentum(0.1, 0.9, parameter_list=net.parameters(), grad_clip=clip))

    def use(task: Task, compile: Any) -> Any:
        step = compile(step_of(task))
        losses = [step(*batch()), step(*batch())]
        task.optimizer._momentum = 0.1
        losses += [step(*batch()), step(*batch())]
        task.optimizer._grad_clip.clip_norm = 0.01
        losses += [step(*batch()), step(*batch())]
        task.net.parameters()[0].optimize_attr["learning_rate"] = 10.0
        return losses + [step(*batch()), step(*batch())]

    check(make, use, most_calls=4)


def test_two_optimizers_and_dropout_between_two_backward_passes() -> None:
    def make() -> Task:
        net = dygraph.LayerList([perceptron(dygraph.Dropout(0.5)), dygraph.Linear(1, 4, act="tanh")])
        return Task(net, (adam(net[0]), adam(net[1], 0.02)))

    def use(task: Task, compile: Any) -> Any:
        judge, maker = task.net
        of_judge, of_maker = task.optimizer

        def step(x: Any, noise: Any) -> Any:
            next(task.calls)
            judged = layers.mean(judge(maker(noise).detach())) - layers.mean(judge(x))
            judged.backward()
            of_judge.minimize(judged)
            judge.clear_gradients()
            with dygraph.no_grad():
                for weight in judge.parameters():
                    weight.set_value(layers.clip(weight, -0.3, 0.3))
            made = -layers.mean(judge(maker(noise)))
            made.backward()
            of_maker.minimize(made)
            task.net.clear_gradients()
            return {"judged": judged, "made": made}

        step = compile(step)
        return [step(*batch(rows, seed=rows)) for rows in (6, 6, 4, 5)] + [layers.dropout(batch()[0], 0.5)]

    check(make, use, most_calls=2)


def test_averages_of_parameters() -> None:
    def use(task: Task, compile: Any) -> Any:
        average = fluid.optimizer.ExponentialMovingAverage(0.9, parameter_list=task.net.parameters())

        def step(x: Any, y: Any) -> Any:
            next(task.calls)
            loss = loss_of(task.net, x, y)
            loss.backward()
            task.optimizer.minimize(loss)
            task.net.clear_gradients()
            average.update()
            return loss

        step = compile(step)
        losses = [step(*batch(seed=seed)) for seed in range(4)]
        with average.apply():
            return [*losses, loss_of(task.net, *batch())]

    check(simple, use, most_calls=1)


# ---------------------------------------------------------------------------------------------------- state, modes and values
def test_buffers_and_modes() -> None:
    def make() -> Task:
        net = perceptron(dygraph.BatchNorm(None, 6), dygraph.Dropout(0.3))
        return Task(net, adam(net))

    def use(task: Task, compile: Any) -> Any:
        step = compile(step_of(task))
        evaluate = compile(lambda x, y: loss_of(task.net, x, y))
        found = []
        for seed in range(3):
            found += [step(*batch(seed=seed)), step(*batch(seed=seed + 9))]
            task.net.eval()
            found += [evaluate(*batch()), evaluate(*batch(3))]
            task.net.train()
        return found

    check(make, use, most_calls=1)


def test_a_step_may_change_the_mode() -> None:
    def use(task: Task, compile: Any) -> Any:
        def evaluate(x: Any) -> Any:
            next(task.calls)
            task.net.eval()
            out = task.net(x)
            task.net.train()
            return out

        def switch(x: Any) -> Any:
            task.net.eval()
            return task.net(x)

        evaluate, switch = compile(evaluate), compile(switch)
        results = [evaluate(batch()[0]) for _ in range(3)]
        modes = []
        for _ in range(3):
            task.net.train()
            results.append(switch(batch()[0]))
            modes.append(task.net.training)
        return results, modes

    check(lambda: Task(net := perceptron(dygraph.Dropout(0.5)), adam(net)), use, most_calls=1)


def test_eager_and_compiled_steps_alternate(tmp_path: Any) -> None:
    def use(task: Task, compile: Any) -> Any:
        plain = step_of(task)
        step = compile(plain)
        losses = [step(*batch(seed=0)), plain(*batch(seed=1)), step(*batch(seed=2))]
        fluid.save_dygraph(task.net.state_dict(), str(tmp_path / "net"))
        fluid.save_dygraph(task.optimizer.state_dict(), str(tmp_path / "net"))
        losses += [step(*batch(seed=3)), step(*batch(seed=4))]
        parameters, state = fluid.load_dygraph(str(tmp_path / "net"))
        task.net.set_dict(parameters)
        task.optimizer.set_dict(state)
        losses += [step(*batch(seed=3)), step(*batch(seed=4))]
        weight = task.net.parameters()[0]
        weight.set_value(np.ones(weight.shape, "float32"))
        return [*losses, step(*batch()), plain(*batch()), step(*batch())]

    check(simple, use)


class Scaled(dygraph.Layer):
    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.inner = dygraph.Linear(4, 1)
        self.own, self.config, self.optimizer = 2.0, types.SimpleNamespace(shift=0.0), None

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.own * self.factor + self.config.shift

    @dygraph.compile
    def step(self, x: Any, y: Any, weight: float = 1.0, *, extra: Any = None) -> Any:
        loss = layers.mean(layers.square(self(x) - y)) * weight
        if extra is not None:
            loss = loss + layers.mean(extra["shift"])
        loss.backward()
        self.inner.weight.set_value(self.inner.weight - self.inner.weight.grad * 0.1)
        self.clear_gradients()
        return loss


def eager_of(method: Any) -> Any:
    return method._static._function.__get__(method._owner)


def test_a_method_with_all_kinds_of_arguments() -> None:
    nets = []
    for is_eager in (True, False):
        with dygraph.guard():
            fluid.seed(1)
            net = Scaled()
            step = eager_of(net.step) if is_eager else net.step
            found = [step(*batch(seed=1))]
            found += [step(*batch(seed=2), 0.5), step(*batch(seed=2), weight=0.5), step(*batch(seed=3), 2.0)]
            found += [step(*batch(seed=2), extra={"shift": batch()[1]}), step(batch()[0], y=np.ones([6, 1], "float32"))]
            net.own = 3.0
            found.append(step(*batch()))
            net.config.shift = 1.0
            found.append(step(*batch()))
            Scaled.factor = 0.5
            found.append(step(*batch()))
            Scaled.factor = 1.0
            found.append(step(*batch()))
            nets.append((numbers_in(found), net.inner.weight.numpy()))
    assert_close(nets[1], nets[0])


def test_changed_values_are_never_stale() -> None:
    scale, options = 2.0, {"shift": 1.0, "list": [1, 2]}
    SETTINGS.rate = 1.0

    def step(x: Any) -> Any:
        return x * scale + options["shift"] + len(options["list"]) * SETTINGS.rate

    compiled, x = dygraph.compile(step), batch()[0]

    def same() -> None:
        for _ in range(2):
            np.testing.assert_allclose(compiled(x).numpy(), step(x).numpy(), rtol=1e-6)

    same()
    scale = 3.0
    same()
    options["shift"] = 5.0
    same()
    options["list"].append(3)
    same()
    SETTINGS.rate = 7.0
    same()


def test_a_counter_counts() -> None:
    def use(task: Task, compile: Any) -> Any:
        count = 0

        def step(x: Any) -> Any:
            nonlocal count
            count += 1
            return x * count

        step = compile(step)
        return [step(batch()[0]) for _ in range(5)], count

    check(simple, use)


def test_a_value_that_always_changes_is_told_of() -> None:
    count = 0

    def step(x: Any) -> Any:
        return x * count

    compiled = dygraph.compile(step)
    with pytest.warns(UserWarning, match=r"step is traced for the 9th time; cell_contents differs in each call: pass it as a"):
        for count in range(12):
            assert compiled(Tensor([1.0])).item() == count


def test_values_that_python_reads_outside_the_step_are_compared() -> None:
    limit, table = Tensor([1.0]), np.array([1.0, 2.0], "float32")

    def step(x: Any) -> Any:
        return x * 2.0 + Tensor(table) if limit.item() > 0.0 else x

    compiled = dygraph.compile(step)
    assert [compiled(Tensor([1.0, 1.0])).tolist() for _ in range(2)] == [[3, 4], [3, 4]]
    table[0] = 5.0
    assert compiled(Tensor([1.0, 1.0])).tolist() == [7, 4]
    limit.set_value([-1.0])
    assert compiled(Tensor([1.0, 1.0])).tolist() == [1, 1]


# ------------------------------------------------------------------------------------------------- what cannot be compiled
def drawn_by_numpy(x: Any) -> Any:
    noise = np.random.standard_normal(x.shape[-1]).astype("float32")
    return x + Tensor(noise)


def drawn_by_python(x: Any) -> Any:
    return x * random.random()


GENERATOR = np.random.default_rng(0)


def drawn_by_a_generator(x: Any) -> Any:
    return x * float(GENERATOR.standard_normal())


def collective(x: Any) -> None:
    parallel = dygraph.DataParallel(dygraph.Linear(4, 1))
    parallel._strategy.nranks = 2
    parallel.apply_collective_grads()


class Cube(dygraph.PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * x * x

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy


def hooked(x: Any) -> Any:
    weight = dygraph.Parameter([1.0])
    y = x * weight
    y.register_hook(lambda grad: grad * 2.0)
    y.sum().backward()


def by_pylayer(x: Any) -> Any:
    weight = dygraph.Parameter([1.0])
    Cube.apply(x * weight).sum().backward()


def of_an_intermediate(x: Any) -> Any:
    weight = dygraph.Parameter([1.0])
    y = x * weight
    y.sum().backward()
    return y.grad


def formatted(x: Any) -> Any:
    return x * len(f"{x.sum():.3f}")


def printed(x: Any) -> Any:
    print(x.sum())
    return x


@each(
    "function, reason",
    [
        (lambda x: x if x.sum() > 0 else -x, "bool.. of"),
        (lambda x: x * float(x.sum()), "float.. of"),
        (lambda x: x * x.sum().item(), "item.. of"),
        (lambda x: x + np.tanh(x.numpy()), "numpy.. of"),
        (printed, "the text of"),
        (formatted, "item.. of"),
        (drawn_by_numpy, "numbers were drawn from numpy.random here or just before"),
        (drawn_by_python, "numbers were drawn from random here"),
        (drawn_by_a_generator, "numbers were drawn from Generator"),
        (hooked, "the hook of a tensor"),
        (by_pylayer, "the backward of Cube"),
        (of_an_intermediate, "which is computed in the step, cannot be traced"),
        (lambda x: dygraph.trace(lambda y: y, x), "trace.. cannot be traced"),
        (lambda x: dygraph.AmpScaler().scale(x.sum()), "AmpScaler cannot be traced; it decides by values"),
        (collective, "apply_collective_grads.. of several processes cannot be traced"),
    ],
)
def test_an_error_says_why_and_where(function: Any, reason: str) -> None:
    step = dygraph.compile(function)
    with pytest.raises(ProgramError, match=rf"{reason}[\s\S]*{HERE}"):
        step(batch()[0])


@each(
    "make",
    [
        lambda net: fluid.optimizer.LookaheadOptimizer(adam(net), k=2),
        lambda net: fluid.optimizer.Dpsgd(0.1, 1.0, 6.0, 0.1, parameter_list=net.parameters()),
    ],
)
def test_optimizers_that_are_refused(make: Any) -> None:
    task = Task(net := perceptron(), make(net))

    def step(x: Any, y: Any) -> Any:
        loss_of(task.net, x, y).backward()
        task.optimizer.step()

    before = [parameter.numpy() for parameter in net.parameters()]
    with pytest.raises(ProgramError, match=rf"(cannot be modified in it|draws random numbers)[\s\S]*{HERE}"):
        dygraph.compile(step)(*batch())
    assert_close([parameter.numpy() for parameter in net.parameters()], before)


def test_a_hook_of_a_parameter_is_refused() -> None:
    task = simple()
    handle = task.net.parameters()[0].register_hook(lambda grad: grad * 2.0)
    step = dygraph.compile(step_of(task))
    with pytest.raises(ProgramError, match="a hook of a leaf cannot be traced; remove it"):
        step(*batch())
    handle.remove()
    step(*batch())


def test_a_graph_from_outside_is_refused() -> None:
    task = simple()
    scale = dygraph.Parameter([1.0]) * 2.0

    def step(x: Any) -> None:
        (task.net(x) * scale).sum().backward()

    with pytest.raises(ProgramError, match=r"a gradient through scale_grad, which was recorded before the step .* detach\(\) it"):
        dygraph.compile(step)(batch()[0])


def test_a_graph_that_an_earlier_backward_of_the_step_freed_is_refused() -> None:
    w = dygraph.Parameter([2.0])

    @dygraph.compile
    def step(x: Tensor) -> Tensor:
        carried = x * w
        carried.backward()
        (carried * w).backward()
        return w.grad

    with dygraph.guard(), pytest.raises(ProgramError, match=r"through elementwise_mul_grad, which an earlier backward freed"):
        step(Tensor([1.0]))


def test_sequences_are_refused() -> None:
    rows = Tensor(np.ones([3, 2], "float32")).with_lod(((0, 1, 3),))
    with pytest.raises(FluidTypeError, match=r"has rows that form sequences \(LoD\), and a compiled step takes dense tensors"):
        dygraph.compile(lambda x: x * 2.0)(rows)


@each(
    "function, reason",
    [(dygraph.Linear(2, 2), "takes a function, not the layer"), (dygraph.to_static(len), "takes a plain function")],
)
def test_what_is_compiled_is_a_plain_function(function: Any, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        dygraph.compile(function)


def test_parameters_are_taken_from_outside() -> None:
    weight, tensor = dygraph.Parameter([1.0]), Tensor([1.0], stop_gradient=False)
    optimizer = fluid.optimizer.SGD(0.1, parameter_list=[tensor])

    def train(tensor: Any) -> None:
        (tensor * tensor).sum().backward()
        optimizer.apply_gradients([(tensor, tensor.grad)])

    with pytest.raises(FluidTypeError, match=r"the argument .* is a parameter; let the step take parameters from layers"):
        dygraph.compile(lambda x: x * 2.0)(weight)
    with dygraph.guard(), pytest.raises(ProgramError, match="sgd, an update of an argument, cannot be traced"):
        dygraph.compile(train)(tensor)
    with pytest.raises(ProgramError, match="an argument that the step also takes from outside, cannot be traced"):
        dygraph.compile(lambda x: x * tensor)(tensor)
    with pytest.raises(ProgramError, match=r"parameter_.*, which is made in the step, cannot be traced; make it before"):
        dygraph.compile(lambda x: x * dygraph.Parameter([2.0]))(Tensor([1.0]))


def test_layers_and_optimizers_made_in_the_step_are_new_in_each_call() -> None:
    def use(task: Task, compile: Any) -> Any:
        def step(x: Any, y: Any) -> Any:
            optimizer = adam(task.net)
            loss = loss_of(task.net, dygraph.Linear(4, 4)(x), y)
            loss.backward()
            optimizer.minimize(loss)
            optimizer.clear_grad()
            return loss

        step = compile(step)
        return [step(*batch(seed=seed)) for seed in range(4)]

    check(simple, use)


def test_a_result_of_another_kind_is_refused() -> None:
    with pytest.raises(FluidTypeError, match="<lambda> returns a object; a step returns tensors, numbers, strings or None"):
        dygraph.compile(lambda x: [x, object()])(batch()[0])


@each("at", range(4))
def test_an_error_in_the_first_call_changes_nothing(at: int) -> None:
    net = perceptron(dygraph.BatchNorm(None, 6), dygraph.Dropout(0.5))
    task = Task(net, adam(net, dygraph.ExponentialDecay(0.1, 2, 0.5)))
    step_of(task)(*batch())  # makes parameters and state
    failing = True

    def fail(place: int) -> None:
        if failing and place == at:
            raise ValueError("mine")

    def step(x: Any, y: Any) -> Any:
        loss = loss_of(task.net, x, y)
        fail(0)
        loss.backward()
        fail(1)
        task.optimizer.minimize(loss)
        fail(2)
        task.net.clear_gradients()
        fail(3)
        return loss

    before, compiled = task.values(), dygraph.compile(step)
    dygraph.seed(3)
    first = layers.dropout(batch()[0], 0.5).numpy()
    dygraph.seed(3)
    with pytest.raises(ValueError, match="mine"):
        compiled(*batch())
    assert_close(task.values(), before)
    np.testing.assert_array_equal(layers.dropout(batch()[0], 0.5).numpy(), first)
    failing = False
    assert compiled(*batch()).shape == (1,)


# ------------------------------------------------------------------------------------------------------------- other forms
def test_results_and_arguments_may_be_nested_or_absent() -> None:
    def use(task: Task, compile: Any) -> Any:
        step = compile(lambda pair, flag=True: {"a": [pair["x"] * 2.0, None, 3], "b": (pair["x"], "text") if flag else None})
        nothing = compile(lambda: None)
        return [step({"x": batch()[0]}), step({"x": batch(3)[0]}), step({"x": batch()[0]}, flag=False), nothing(), nothing()]

    check(simple, use)


def test_results_have_no_graph_and_own_memory() -> None:
    weight = dygraph.Parameter([2.0])
    step = dygraph.compile(lambda x: (x * weight, weight, x))
    x = Tensor([1.0])
    for _ in range(3):
        for result in step(x):
            assert result.stop_gradient
            result.add_(1.0)
    assert (weight.tolist(), x.tolist()) == ([2.0], [1.0])


def test_branches_and_loops() -> None:
    def use(task: Task, compile: Any) -> Any:
        def step(x: Any, y: Any) -> Any:
            next(task.calls)
            out = task.net(x)
            doubled = layers.cond(out.sum() > 0.0, lambda: out * 2.0, lambda: out * 3.0)
            last = layers.while_loop(lambda i, h: i < 3, lambda i, h: [i + 1, h * 1.5], [Tensor([0]), doubled])[1]
            loss = layers.mean(layers.square(last - y))
            loss.backward()
            task.optimizer.step()
            task.optimizer.clear_grad()
            return loss

        step = compile(step)
        return [step(*batch(seed=seed)) for seed in range(6)]

    check(simple, use, most_calls=1)


def test_arguments_that_are_changed_in_place() -> None:
    def use(task: Task, compile: Any) -> Any:
        step = compile(lambda x, y: x.add_(y))
        found = []
        for rows in (2, 3, 4):
            x, y = Tensor(np.ones([rows, 1], "float32")), Tensor(np.full([rows, 1], 2.0, "float32"))
            step(x, y)
            found.append(x.numpy())
        return found

    check(simple, use)


def test_inside_a_trace_or_mixed_precision_the_function_runs() -> None:
    step = dygraph.compile(lambda x: x * 2.0)
    assert [op.type for op in dygraph.trace(step, Tensor([1.0])).program.global_block().ops] == ["scale"]
    with dygraph.amp_guard():
        assert step(Tensor([1.0])).tolist() == [2.0]


def test_mixed_precision_in_a_step() -> None:
    def use(task: Task, compile: Any) -> Any:
        def step(x: Any, y: Any) -> Any:
            with dygraph.amp_guard():
                loss = loss_of(task.net, x, y)
            loss.backward()
            task.optimizer.step()
            task.optimizer.clear_grad()
            return loss

        step = compile(step)
        return [layers.cast(step(*batch(seed=seed)), "float32").numpy().round(1) for seed in range(3)]

    check(lambda: Task(net := perceptron(), fluid.optimizer.SGD(0.0, parameter_list=net.parameters())), use)


def test_no_gradients_are_recorded() -> None:
    def use(task: Task, compile: Any) -> Any:
        step = compile(lambda x, y: loss_of(task.net, x, y))
        with dygraph.no_grad():
            found = [step(*batch()), step(*batch())]
        return found + [step(*batch())]

    check(simple, use)


def test_float64() -> None:
    weight = dygraph.Parameter(np.array([[1.0, 2.0]], "float64"))
    optimizer = fluid.optimizer.Adam(dygraph.ExponentialDecay(0.1, 1, 0.5), parameter_list=[weight])

    def step(x: Any) -> Any:
        loss = layers.mean(layers.square(x * weight))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    compiled = dygraph.compile(step)
    losses = [compiled(Tensor(np.ones([3, 2]))) for _ in range(4)]
    assert losses[0].dtype is fluid.core.VarDesc.VarType.FP64
    assert losses[-1].item() < losses[0].item()


def test_in_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    step = dygraph.compile(lambda x: layers.reduce_sum(x * x, dim=1))
    arrays = [np.random.default_rng(seed).standard_normal((2 + seed % 5, 4)).astype("float32") for seed in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda array: step(Tensor(array)).numpy(), arrays))
    for array, result in zip(arrays, found, strict=True):
        np.testing.assert_allclose(result, (array * array).sum(1), rtol=1e-5)


def test_by_xla() -> None:
    pytest.importorskip("jax")

    def train(compile: Any, place: Any) -> Any:
        with dygraph.guard(place):
            fluid.seed(5)
            task = simple()
            step = compile(step_of(task))
            return [step(*batch(rows, seed=rows)).numpy() for rows in (6, 4, 5, 6)], [p.numpy() for p in task.net.parameters()]

    expected = train(lambda function: function, fluid.CPUPlace())
    assert_close(train(dygraph.compile, fluid.XLAPlace()), expected)
