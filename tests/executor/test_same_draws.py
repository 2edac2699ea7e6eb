"""The same seed draws the same numbers in eager mode and in a program: first values, masks, noise, and so losses, to the bit."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from checks import MORE, each

import fluid
from fluid import dygraph, layers
from fluid.executor.runtime.random import RANDOM, Draw, draw_of_stream, stream_of_draw

pytestmark = pytest.mark.numpy_alone
WIDTH, ROWS, STEPS, SEED = 6, 4, 3, 11
Step = Callable[[Any], Any]
"""A part of a net: x ``[ROWS, WIDTH]`` -> the same shape."""


def dropped_products(x: Any) -> Any:
    """Two products with a dropout between them; the number in its name lies between theirs."""
    return layers.fc(layers.dropout(layers.fc(x, WIDTH), 0.5), WIDTH)


def as_gru(unit: Any) -> Step:
    return lambda x: unit(layers.concat([x, x, x], 1), x)[0]


def lstm_with_dropout(x: Any) -> Any:
    state = layers.fill_constant([2, ROWS, WIDTH], "float32", 0.0)
    out, _, _ = layers.lstm(layers.stack([x, x], 0), state, state, 2, WIDTH, 2, dropout_prob=0.5)
    return out[1]


def constant_columns() -> Any:
    columns = np.arange(2 * WIDTH * ROWS, dtype="float32").reshape(ROWS, 2 * WIDTH)
    return layers.assign(columns)


def with_nce(nce: Any) -> Step:
    return lambda x: x + nce(x, layers.fill_constant([ROWS, 1], "int64", 3))


def drawn_in_loop(x: Any) -> Any:
    """``x`` with noise that each iteration of a loop draws."""

    def body(i: Any, x: Any) -> Any:
        return [i + 1, x + 0.1 * layers.uniform_random([1, WIDTH])]

    start = layers.fill_constant([1], "int64", 0)
    return layers.while_loop(lambda i, x: i < 3, body, [start, x])[1]


OBJECTS: dict[str, Callable[[], Step]] = {
    "FC": lambda: dygraph.FC("net", WIDTH, act="tanh"),
    "FC without a scope": lambda: dygraph.FC(None, WIDTH, num_flatten_dims=1),
    "FC with names": lambda: dygraph.FC(
        "net", WIDTH, param_attr=f"{fluid.unique_name.generate('named')}.weight", bias_attr=False
    ),
    "Linear": lambda: dygraph.Linear(WIDTH, WIDTH),
    "LayerNorm": lambda: dygraph.LayerNorm("norm"),
    "BatchNorm": lambda: dygraph.BatchNorm("norm", WIDTH),
    "GRUUnit": lambda: as_gru(dygraph.GRUUnit("unit", 3 * WIDTH)),
    "function": lambda: dygraph.LayerOf(dropped_products),
    "lstm": lambda: dygraph.LayerOf(lstm_with_dropout),
    "NCE": lambda: with_nce(dygraph.NCE("nce", 20, num_neg_samples=5)),
    "Dropout": lambda: dygraph.Dropout(0.3, dropout_implementation="upscale_in_train"),
    "frozen Dropout": lambda: dygraph.Dropout(0.3).eval(),
}
"""Layers of `fluid.dygraph`; most make their parameters in the first call."""
FUNCTIONS: dict[str, Step] = {
    "dropout": lambda x: layers.dropout(x, 0.5),
    "scaled dropout": lambda x: layers.dropout(x, 0.5, dropout_implementation="upscale_in_train"),
    "dropout with a name": lambda x: layers.dropout(x, 0.5, name="drop"),
    "dropout of a test": lambda x: layers.dropout(x, 0.5, is_test=True),
    "dropout with a seed": lambda x: layers.dropout(x, 0.5, seed=3),
    "uniform": lambda x: x + layers.uniform_random([1, WIDTH]),
    "gaussian": lambda x: x + layers.gaussian_random([ROWS, WIDTH]),
    "uniform like": lambda x: x + layers.uniform_random_batch_size_like(x, [-1, WIDTH]),
    "gaussian like": lambda x: x * layers.gaussian_random_batch_size_like(x, [-1, WIDTH]),
    "sampling": lambda x: x + layers.reshape(layers.cast(layers.sampling_id(layers.softmax(x)), "float32"), [ROWS, 1]),
    "random crop": lambda x: x + layers.random_crop(constant_columns(), [WIDTH]),
    "distribution": lambda x: x + layers.Normal(0.0, 1.0).sample([1, WIDTH]),
    "loop": drawn_in_loop,
}
"""Layers without parameters."""


def plain_product() -> Step:
    """`layers.fc`, which only programs can call without an object."""
    if fluid.in_dygraph_mode():
        return dygraph.LayerOf(layers.fc, size=WIDTH)
    return lambda x: layers.fc(x, WIDTH)


def net_of(names: list[str], order: list[int] | None) -> Step:
    """The net of these parts: made each before its call, or, with an order, all before, and called in this order."""
    kinds = {**OBJECTS, **{name: (lambda step=step: step) for name, step in FUNCTIONS.items()}, "layers.fc": plain_product}
    made = None if order is None else [kinds[name]() for name in names]

    def forward(x: Any) -> Any:
        nonlocal made
        if made is None:
            made = []
            for name in names:
                made.append(kinds[name]())
                x = made[-1](x)
            return x
        for place in order or range(len(made)):
            x = made[place](x)
        return x

    return forward


def loss_of(net: Step, x: Any) -> Any:
    return layers.mean(layers.square(net(x)))


@contextmanager
def seeded(by_fluid: bool) -> Iterator[tuple[fluid.Program, fluid.Program]]:
    """Programs and names of their own, with the seed set in one of the two ways."""
    main, startup = fluid.Program(), fluid.Program()
    if by_fluid:
        fluid.seed(SEED)
    else:
        fluid.seed(0)
        main.random_seed = startup.random_seed = SEED
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        yield main, startup


BATCHES = [np.random.default_rng(step).standard_normal((ROWS, WIDTH), "float32") for step in range(STEPS)]


Optimizer = Callable[..., fluid.optimizer.Optimizer]


def as_program(
    names: list[str], order: list[int] | None, by_fluid: bool, optimizer: Optimizer = fluid.optimizer.SGD
) -> tuple[dict[str, Any], list[Any]]:
    """First values of the parameters, and the loss of each step of training, in a program."""
    with seeded(by_fluid) as (main, startup):
        loss = loss_of(net_of(names, order), fluid.data("x", [ROWS, WIDTH]))
        parameters = [parameter.name for parameter in main.all_parameters() if parameter.trainable]
        if parameters:
            optimizer(0.1).minimize(loss)
        scope = fluid.Scope()
        executor = fluid.Executor()
        executor.run(startup, scope=scope)
        start = {name: scope.array(name).copy() for name in parameters}
        return start, [executor.run(main, {"x": batch}, [loss], scope=scope)[0].item() for batch in BATCHES]


def eagerly(
    names: list[str], order: list[int] | None, by_fluid: bool, optimizer: Optimizer = fluid.optimizer.SGD
) -> tuple[dict[str, Any], list[Any]]:
    """The same in eager mode."""
    with dygraph.guard():
        fluid.seed(SEED if by_fluid else 0)
        if not by_fluid:
            fluid.default_main_program().random_seed = SEED
        net, losses = net_of(names, order), []
        updates, start = None, {}
        for number, batch in enumerate(BATCHES):
            x = dygraph.to_variable(batch)
            x.stop_gradient = False
            loss = loss_of(net, x)
            losses.append(loss.numpy().item())
            if number == 0:
                parameters = [leaf for leaf in fluid.eager.program.parameters_of(loss) if isinstance(leaf, dygraph.Parameter)]
                start = {parameter.name: parameter.numpy().copy() for parameter in parameters}
                if parameters:
                    updates = optimizer(0.1, parameter_list=parameters)
            loss.backward()
            if updates is not None:
                updates.minimize(loss)
                for parameter in parameters:
                    parameter.clear_gradient()
        if not by_fluid:
            fluid.default_main_program().random_seed = 0
        return start, losses


def check_alike(
    names: list[str], order: list[int] | None = None, by_fluid: bool = False, optimizer: Optimizer = fluid.optimizer.SGD
) -> None:
    """Train the net in both ways, and compare first values and losses to the bit."""
    (first, losses), (first_eagerly, losses_eagerly) = (run(names, order, by_fluid, optimizer) for run in (as_program, eagerly))
    assert first.keys() == first_eagerly.keys()
    for name, value in first.items():
        assert np.array_equal(value, first_eagerly[name]), f"{name} of {names}"
    assert np.array(losses).tobytes() == np.array(losses_eagerly).tobytes(), names


CASES = {
    "two products with a dropout between": ["FC", "dropout", "FC", "dropout", "FC"],
    "layers.fc beside FC": ["layers.fc", "FC without a scope", "dropout", "layers.fc", "FC without a scope", "FC"],
    "GRUUnit before FC": ["GRUUnit", "FC", "GRUUnit", "Linear"],
    "objects that drop": ["Linear", "Dropout", "frozen Dropout", "dropout of a test", "dropout", "Dropout"],
    "functions that drop": ["function", "dropout", "function", "dropout with a name", "dropout with a name", "FC"],
    "parameters with names": ["FC with names", "FC", "FC without a scope", "function"],
    "loops": ["FC", "loop", "dropout", "loop", "uniform"],
}


@each("by_fluid", [False, True])
@each("case", CASES)
def test_a_net_draws_alike_in_eager_mode_and_in_a_program(case: str, by_fluid: bool) -> None:
    check_alike(CASES[case], None, by_fluid)


@each("name", FUNCTIONS)
def test_a_layer_draws_alike_in_eager_mode_and_in_a_program(name: str) -> None:
    check_alike(["FC", name, name, "FC", name])


def test_layers_that_make_their_parameters_late_draw_alike_in_any_order() -> None:
    check_alike(["FC", "FC", "dropout", "function", "FC", "LayerNorm", "GRUUnit"], [4, 1, 2, 3, 6, 5, 0])


@each("seed", range(30 * MORE))
def test_random_nets_draw_alike_in_eager_mode_and_in_a_program(seed: int) -> None:
    choose = random.Random(seed)
    names = choose.choices([*OBJECTS, *FUNCTIONS, *(["layers.fc"] * 3)], k=choose.randint(1, 8))
    order = None
    if choose.random() < 0.5:
        names = [name for name in names if name != "layers.fc"]  # a program has no object of it to make before
        order = choose.sample(range(len(names)), len(names))
    check_alike(names, order, choose.random() < 0.5)


def test_updates_draw_alike() -> None:
    check_alike(["FC", "dropout", "FC"], optimizer=lambda rate, **rest: fluid.optimizer.Dpsgd(rate, 1.0, 4.0, 0.5, **rest))


def first_value(seed: int) -> Any:
    """First values of the second `dygraph.FC` in a program of its own."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = seed
    with fluid.program_guard(main, startup):
        dygraph.FC("net", WIDTH)(dygraph.FC("net", WIDTH)(fluid.data("x", [ROWS, WIDTH])))
    scope = fluid.Scope()
    fluid.Executor().run(startup, scope=scope)
    return scope.array(main.all_parameters()[2].name)


def test_objects_start_alike_in_every_program_with_a_seed() -> None:
    first, second, third = (first_value(SEED) for _ in range(3))
    assert np.array_equal(first, second) and np.array_equal(first, third)
    fluid.seed(SEED)
    assert np.array_equal(first_value(0), first) and np.array_equal(first_value(0), first)
    fluid.seed(0)
    assert not np.array_equal(first_value(0), first_value(0))


def test_nothing_is_drawn_twice_after_a_seed() -> None:
    fluid.seed(SEED)
    drawn = []
    for _ in range(3):
        with dygraph.guard():  # where names count from zero again
            net = dygraph.Linear(WIDTH, WIDTH)
            drawn.append(net.weight.numpy().tobytes())
            for _ in range(2):
                x = dygraph.Tensor(np.ones((1, WIDTH), "float32"), stop_gradient=False)
                noise = layers.gaussian_random([1, WIDTH])
                drawn.append(noise.numpy().tobytes())
                layers.mean(x * noise).backward()
            drawn.append(layers.gaussian_random([1, WIDTH]).numpy().tobytes())
    assert len(set(drawn)) == len(drawn)


def test_what_is_kept_does_not_grow_with_the_draws() -> None:
    def kept() -> int:
        return len(pickle.dumps({key: value for key, value in vars(RANDOM._calls).items() if isinstance(value, dict)}))

    with dygraph.guard():
        fluid.seed(SEED)
        layers.uniform_random([1])
        before = kept()
        for _ in range(1000):
            layers.uniform_random([1])
            layers.uniform_random([1], seed=2)
        assert kept() < before + 50


def test_draws_by_position_are_read() -> None:
    """As programs have them that were written before draws had names."""
    draw = draw_of_stream("@DRAW@-5@3")
    assert draw == Draw(-5, 0, 3, 0)
    named = Draw(-5, 7, 3, 2)
    assert draw_of_stream(stream_of_draw(named)) == named
    assert draw_of_stream("@DRAW@5") is None
