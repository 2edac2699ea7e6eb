"""Random ops: their numbers depend on seed, op, run and draw, and on nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each
from samples import OPS, cast, with_lods

import fluid
from fluid import layers
from fluid.executor import Executor, Scope
from fluid.executor.binding.compiled import apply_op
from fluid.executor.runtime.random import RandomStreams
from fluid.ir.program import Program, Variable
from fluid.values.lod_array import array_of


def main() -> Program:
    return fluid.default_main_program()


def append(op_type: str, **attrs: Any) -> Variable:
    """A random op of 100 elements."""
    block = main().global_block()
    out = block.create_var(name=fluid.unique_name.generate(op_type))
    block.append_op(op_type, {}, {"Out": out}, {"shape": [10, 10], "dtype": 5, **attrs})
    return out


DRAWS: dict[str, Callable[..., Variable]] = {
    "uniform": lambda **attrs: append("uniform_random", min=-1.0, max=1.0, **attrs),
    "gaussian": lambda **attrs: append("gaussian_random", **attrs),
    "truncated": lambda **attrs: append("truncated_gaussian_random", **attrs),
    "integers": lambda **attrs: append("randint", low=0, high=10**6, **{**attrs, "dtype": 3}),
    "dropout": lambda **attrs: layers.dropout(layers.fill_constant([10, 10], "float32", 1.0), 0.5, **attrs),
}


def runs(fetch: Any, times: int = 1, scope: Scope | None = None, program: Program | None = None) -> list[list[Any]]:
    scope = scope or Scope()
    return [Executor().run(program or main(), fetch_list=fetch, scope=scope) for _ in range(times)]


@each("draw", DRAWS)
def test_the_same_seed_gives_the_same_bits_run_after_run(draw: str) -> None:
    main().random_seed = 11
    out = DRAWS[draw]()
    (first,), (second,), (third,) = runs([out], 3)
    for value, again in zip(((first,), (second,), (third,)), runs([out], 3), strict=True):
        assert np.array_equal(value[0], again[0])
    assert not np.array_equal(first, second) and not np.array_equal(second, third)
    scope = Scope()
    assert np.array_equal(Executor().interpret(main(), fetch_list=[out], scope=scope)[0], first)
    assert np.array_equal(Executor().interpret(main(), fetch_list=[out], scope=scope)[0], second)


@each("draw", DRAWS)
def test_another_seed_gives_other_values(draw: str) -> None:
    out = DRAWS[draw]()
    found = []
    for seed in (1, 2, -1, 2**63 + 5):
        main().random_seed = seed
        found.append(runs([out])[0][0])
    assert len({value.tobytes() for value in found}) == 4


@each("draw", DRAWS)
def test_an_ops_own_seed_repeats(draw: str) -> None:
    a, b, other = DRAWS[draw](seed=5), DRAWS[draw](seed=5), DRAWS[draw](seed=-6)
    ((first, twin, different), (again, _, _)) = runs([a, b, other], 2)
    assert np.array_equal(first, twin) and np.array_equal(first, again)
    assert not np.array_equal(first, different)


def test_ops_of_one_program_draw_apart() -> None:
    main().random_seed = 1
    found = runs([DRAWS["uniform"]() for _ in range(20)])[0]
    assert len({value.tobytes() for value in found}) == 20
    correlations = np.corrcoef(np.stack(found).reshape(20, -1)) - np.eye(20)
    assert np.abs(correlations).max() < 0.5


def test_what_an_op_draws_does_not_depend_on_other_ops() -> None:
    """Pruning, and layers added before or after, change nothing."""
    main().random_seed = 9
    with fluid.unique_name.guard("kept_"):
        kept = DRAWS["uniform"]()
    (alone,) = runs([kept])[0]
    others = [DRAWS["gaussian"](), DRAWS["uniform"]()]
    assert np.array_equal(runs([kept, *others])[0][0], alone)
    assert np.array_equal(runs([kept])[0][0], alone)


def test_an_op_that_runs_several_times_in_a_run_draws_anew() -> None:
    main().random_seed = 4
    entries = layers.create_array("float32")
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    condition = layers.less_than(i, n)
    loop = layers.While(condition)
    with loop.block():
        layers.array_write(layers.uniform_random([8], min=0.0), i, entries)
        layers.increment(i)
        layers.less_than(i, n, cond=condition)
    ((first,), (second,)) = runs([entries], 2)
    assert len({value.tobytes() for value in (*first, *second)}) == 6
    for value, again in zip(first, runs([entries])[0][0], strict=True):
        assert np.array_equal(value, again)


def test_distributions() -> None:
    main().random_seed = 2
    shape = {"shape": [200, 200]}
    fetch = [
        DRAWS["uniform"](**shape),
        DRAWS["gaussian"](mean=1.0, std=2.0, **shape),
        DRAWS["truncated"](**shape),
        DRAWS["integers"](**shape),
    ]
    uniform, gaussian, truncated, integers = runs(fetch)[0]
    assert uniform.dtype == gaussian.dtype == truncated.dtype == np.float32 and integers.dtype == np.int64
    assert -1 <= uniform.min() < -0.99 and 0.99 < uniform.max() < 1 and abs(uniform.mean()) < 0.01
    assert abs(gaussian.mean() - 1) < 0.05 and abs(gaussian.std() - 2) < 0.05
    assert np.abs(truncated).max() <= 2 and abs(truncated.std() - 0.88) < 0.02
    assert integers.min() >= 0 and integers.max() < 10**6 and abs(integers.mean() - 5e5) < 1e4


@each("keeping", ["upscale_in_train", "downgrade_in_infer"])
def test_dropout_drops_alike_forward_and_backward(keeping: str) -> None:
    main().random_seed = 3
    x = fluid.data("x", [50, 40])
    x.stop_gradient = False
    out = layers.dropout(x, 0.25, dropout_implementation=keeping)
    (grad,) = fluid.gradients(out, [x])
    value, slope = Executor().run(main(), {"x": np.ones((50, 40), "float32")}, [out, grad])
    scale = np.float32(1 / 0.75) if keeping == "upscale_in_train" else np.float32(1)
    assert set(np.unique(value)) == {np.float32(0), scale}
    assert np.array_equal(value, slope)
    assert abs((value == 0).mean() - 0.25) < 0.03
    test = main().clone(for_test=True)
    (kept,) = Executor().run(test, {"x": np.ones((50, 40), "float32")}, [out])
    np.testing.assert_allclose(kept, 1.0 if keeping == "upscale_in_train" else 0.75, rtol=1e-6)


def test_parameters_start_alike_for_one_seed() -> None:
    fluid.default_startup_program().random_seed = 21
    layers.fc(layers.fc(fluid.data("x", [-1, 6]), 5), 4)
    scopes = [Scope(), Scope()]
    for scope in scopes:
        Executor().run(fluid.default_startup_program(), scope=scope)
    names = scopes[0].local_var_names()
    assert len(names) == 4
    for name in names:
        assert np.array_equal(scopes[0].array(name), scopes[1].array(name))
    assert scopes[0].array("fc_0.w_0").std() > 0.1


PROGRAM = """
import fluid
from fluid import layers
out = layers.uniform_random([8], min=0.0)
for fluid.default_main_program().random_seed in (0, 5):
    print(fluid.Executor().run(fetch_list=[out])[0].tobytes().hex())
"""


def test_seeds_across_processes() -> None:
    """Without a seed, each process draws for itself; with one, all draw the same."""

    processes = [subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    (unseeded, seeded), (other_unseeded, other_seeded) = (process.communicate(timeout=60)[0].split() for process in processes)
    assert unseeded != other_unseeded and seeded == other_seeded != unseeded


def test_a_program_without_seed_does_not_repeat_itself() -> None:
    out = DRAWS["uniform"]()
    scope = Scope()
    ((first,), (second,)) = runs([out], 2, scope)
    assert not np.array_equal(first, second)


def test_streams() -> None:
    streams = RandomStreams(np, 7)
    streams.begin(0)
    draw = streams.source("x", 0)
    first, second = draw().random(4), draw().random(4)
    assert not np.array_equal(first, second)
    streams.begin(0)
    assert np.array_equal(draw().random(4), first)
    streams.begin(1)
    assert not np.array_equal(draw().random(4), first)
    assert np.array_equal(streams.source("x", 8)().random(4), streams.source("y", 8)().random(4))


class _LikeCupy:
    """numpy's generator, but methods that are given no size draw one number and spread it over `out`, as cupy's do."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._generator, name)
        if name not in ("random", "standard_normal"):
            return method

        def draw(size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
            if out is None:
                return method(size, dtype)
            out[...] = method(size, dtype)
            return out

        return draw


@each("op_type", sorted(op_type for op_type, samples in OPS.items() if any(sample.random for sample in samples)))
def test_each_element_is_drawn_by_itself_where_generators_ask_for_a_size(op_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = fluid.executor.runtime.random._generator
    samples = [sample for sample in OPS[op_type] if sample.random]

    def spreads() -> list[bool]:
        """Of each output of more than eight elements, whether some of these differ."""
        found = [apply_op(op_type, with_lods(cast(each.inputs, "float32"), each.lods), each.attrs) for each in samples]
        arrays = [array_of(value) for outputs in found for value in outputs.values() if not isinstance(value, list)]
        return [bool(np.ptp(array.astype("float64"))) for array in arrays if array is not None and array.size > 8]

    expected = spreads()
    with monkeypatch.context() as patch:
        patch.setattr("fluid.executor.runtime.random._generator", lambda *key: _LikeCupy(original(*key)))
        assert spreads() == expected
