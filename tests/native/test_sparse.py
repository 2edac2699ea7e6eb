"""Sparse gradients of tables in native code: the numbers of the kernels, and the same bits for any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from checks import each
from harness import TARGETS, run

import fluid
from fluid import layers
from fluid.executor.native import sparse
from fluid.executor.native.emitter import FLOAT, INT64, Function, Value
from fluid.executor.native.kernel import Share

ROWS, WIDTH, STEPS = 40, 37, 2
IDS = np.array([3, 0, 3, 39, 7, 3, 0, 12, 7, 7, 3, 38, 1])

Optimizer = Callable[[], Any]


def decayed() -> Any:
    return fluid.optimizer.SGD(0.5, regularization=fluid.regularizer.L2Decay(0.1))


def trained(
    optimizer: Optimizer, native: bool, monkeypatch: pytest.MonkeyPatch, ids: Any = IDS, dtype: str = "float32",
    paddings: Sequence[int | None] = (None,), clip: Any = None, fetch: str | None = None, threads: int = 2,
) -> tuple[dict[str, Any], str]:  # fmt: skip
    """The scope after some steps, the losses, and the plan; the table has one lookup per entry of `paddings`."""
    monkeypatch.setenv("FLUID_NATIVE", str(int(native)))
    random = np.random.default_rng(0)
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        attr = fluid.ParamAttr("table", initializer=fluid.initializer.Constant(0.0))
        feeds = [fluid.data(f"ids{number}", ids.shape, str(ids.dtype)) for number in range(len(paddings))]
        factors = fluid.data("factors", [*ids.shape, WIDTH], dtype)
        total = layers.sums(
            [
                fluid.embedding(one, [ROWS, WIDTH], True, padding_idx=padding, param_attr=attr, dtype=dtype) * factors
                for one, padding in zip(feeds, paddings, strict=True)
            ]
        )
        loss = layers.reduce_sum(layers.square(total))
        if clip is not None:
            fluid.clip.set_gradient_clip(clip)
        optimizer().minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup, scope=scope)
    scope.find_var("table").get_tensor().set(random.standard_normal((ROWS, WIDTH)).astype(dtype))
    before = fluid.get_num_threads()
    fluid.set_num_threads(threads)
    try:
        results: dict[str, Any] = {}
        fetches = [loss, *([fetch] if fetch else [])]
        for step in range(STEPS):
            feed = {f"ids{number}": np.roll(ids, number + step) for number in range(len(paddings))}
            feed["factors"] = random.standard_normal((*ids.shape, WIDTH)).astype(dtype)
            results[f"loss {step}"] = executor.run(main, feed, fetches, scope=scope)[0]
        plan = str(executor.plan(main, feed, fetches, scope=scope))
    finally:
        fluid.set_num_threads(before)
    names = sorted(var.name for var in main.list_vars() if var.persistable)
    return results | {name: np.array(scope.find_var(name).get_tensor()) for name in names}, plan


def agree(monkeypatch: pytest.MonkeyPatch, optimizer: Optimizer, is_native: bool = True, **options: Any) -> None:
    """Check native code against the kernels, that it computes the whole program, and that threads do not change a bit."""
    expected, _ = trained(optimizer, False, monkeypatch, **options)
    of_threads = {}
    for threads in (1, 3):
        of_threads[threads], plan = trained(optimizer, True, monkeypatch, threads=threads, **options)
        assert ("step by step" not in plan) is is_native, plan
    bound = 1e-11 if options.get("dtype") == "float64" else 2e-5
    for name, value in expected.items():
        np.testing.assert_allclose(of_threads[1][name], value, bound, bound, err_msg=name)
        assert of_threads[1][name].tobytes() == of_threads[3][name].tobytes(), f"{name} by 3 threads"


def momentum() -> Any:
    return fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True)


OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": lambda: fluid.optimizer.SGD(0.1),
    "lazy Adam": lambda: fluid.optimizer.Adam(0.1, lazy_mode=True),
    "Adam": lambda: fluid.optimizer.Adam(0.1),
    "momentum": momentum,
    "Adagrad": lambda: fluid.optimizer.Adagrad(0.1),
    "SGD with decay": decayed,
    "Adadelta": lambda: fluid.optimizer.Adadelta(0.1),
    "Adamax": lambda: fluid.optimizer.Adamax(0.1),
    "DecayedAdagrad": lambda: fluid.optimizer.DecayedAdagrad(0.1),
    "Ftrl": lambda: fluid.optimizer.Ftrl(0.1),
    "Lamb": lambda: fluid.optimizer.Lamb(0.1),
    "LARS": lambda: fluid.optimizer.LarsMomentum(0.1, 0.9),
    "Lion": lambda: fluid.optimizer.Lion(0.1),
    "NAdam": lambda: fluid.optimizer.NAdam(0.1),
    "RAdam": lambda: fluid.optimizer.RAdam(0.1),
    "RMSProp": lambda: fluid.optimizer.RMSProp(0.1, centered=True),
}


@each("name", list(OPTIMIZERS))
def test_optimizers_take_sparse_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agree(monkeypatch, OPTIMIZERS[name])
    agree(monkeypatch, OPTIMIZERS[name], paddings=(None, 3))


@each(
    "options",
    [
        {"paddings": (3, 3)},
        {"paddings": (None, 7, None)},
        {"ids": np.array([5])},
        {"ids": IDS.astype(np.int32), "dtype": "float64", "paddings": (None, 0)},
        {"ids": np.full(9, 4), "paddings": (4,)},  # no row at all
        {"clip": fluid.clip.GradientClipByValue(0.5), "paddings": (None, None)},
        {"clip": fluid.clip.GradientClipByNorm(0.7)},
        {"clip": fluid.clip.GradientClipByGlobalNorm(0.7), "paddings": (3, None)},
    ],
    ids=["padding", "three lookups", "one id", "float64", "padding alone", "clip by value", "by norm", "by global norm"],
)
def test_rows_are_those_that_were_looked_up(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SGD", "lazy Adam"):
        agree(monkeypatch, OPTIMIZERS[name], **options)


@each(
    "optimizer, options",
    [
        ("SGD", {"fetch": "table@GRAD"}),
        ("Adam", {"fetch": "table@GRAD", "paddings": (None, 3)}),
        ("SGD", {"ids": np.zeros(0, np.int64)}),
    ],
)
def test_what_has_no_native_code_runs_as_without(
    optimizer: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    agree(monkeypatch, OPTIMIZERS[optimizer], is_native=False, **options)


def test_an_id_outside_of_the_table_is_told_before_anything_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    for native in (True, False):
        with pytest.raises(fluid.errors.IndexRangeError, match=rf"should lie in \[0, {ROWS}\)|{ROWS}"):
            trained(OPTIMIZERS["SGD"], native, monkeypatch, ids=np.array([3, ROWS]))


def _rows(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def test_kernels_touch_what_belongs_to_them_alone() -> None:
    """Of vectors, tails and single columns; ids that collide in the hash table, and more than its slots of one bit."""
    random = np.random.default_rng(0)
    for ids, width in (
        (np.array([5]), 1),
        (np.array([2, 2, -1]), 7),
        (random.integers(-1, 30, 67), 100),
        (np.arange(64) << 40, 1),
    ):
        count, firsts = len(ids), np.empty((len(ids), 1), np.int64)
        for row, number in enumerate(ids):
            firsts[row] = -1 if number < 0 else ids.tolist().index(number)
        column = ids.reshape(-1, 1)
        for target in TARGETS:
            *_, found = run(_firsts(count), [column, np.zeros(256, np.int32), np.zeros_like(firsts)], target)
            np.testing.assert_array_equal(found, firsts)
            if ids.max() > 100:
                continue
            height, is_first = 30, (firsts[:, 0] == np.arange(count))
            rows, table = _rows(count, width), _rows(height, width)
            merged, added, put = np.zeros((count + 1, width), np.float32), table.copy(), table.copy()
            for row, number in enumerate(ids):
                if number >= 0:
                    merged[firsts[row, 0]] += rows[row]
                    added[number] += rows[row]
            put[ids[is_first]] = rows[is_first]
            columns = np.asfortranarray(rows)  # steps of any size
            for source in (rows, columns):
                *_, actual = run(
                    _on_rows(sparse.write_merged, 2, count, width, source), [source, firsts, _rows(count + 1, width)], target
                )
                np.testing.assert_array_equal(actual, merged)
                *_, actual = run(
                    _on_rows(partial(sparse.write_put, height=height), 3, count, width, source),
                    [source, column, firsts, table],
                    target,
                )
                np.testing.assert_array_equal(actual, put)
                *_, actual = run(_scattered(count, width, source, height, 0), [source, column, table], target)
                np.testing.assert_array_equal(actual, added)
            *_, actual = run(_scattered(count, width, rows, height, height), [rows, column, table], target)
            np.testing.assert_allclose(actual, added - table, rtol=1e-5, atol=1e-5)
            places = np.full((height, 1), count)
            places[ids[is_first], 0] = np.flatnonzero(is_first)
            *_, actual = run(_places(count, height), [column, firsts, np.zeros((height, 1), np.int64)], target)
            np.testing.assert_array_equal(actual, places)


def _source(pointer: Value, array: Any) -> sparse.RowSource:
    element = {"float32": FLOAT, "int64": INT64}[array.dtype.name]
    return sparse.RowSource(pointer, [stride // array.itemsize for stride in array.strides], array.shape, element)


def _ids_of(pointer: Value, count: int) -> sparse.RowSource:
    return sparse.RowSource(pointer, (1, 1), (count, 1), INT64)


def _firsts(count: int) -> Any:
    return lambda f, p, share: sparse.write_firsts(f, _ids_of(p[0], count), p[2], p[1], share)


def _places(count: int, height: int) -> Any:
    return lambda f, p, share: sparse.write_places(
        f, _ids_of(p[0], count), _ids_of(p[1], count), p[2], height, share, TARGETS[-1]
    )


def _scattered(count: int, width: int, rows: Any, height: int, cleared: int) -> Any:
    return lambda f, p, share: sparse.write_scattered(
        f, _source(p[0], rows), _ids_of(p[1], count), p[2], height, cleared, "sum", share, TARGETS[-1]
    )


def _on_rows(write: Callable[..., None], sources: int, count: int, width: int, rows: Any) -> Any:
    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        others = [_ids_of(pointer, count) for pointer in pointers[1:sources]]
        write(f, _source(pointers[0], rows), *others, pointers[sources], share=share, target=TARGETS[-1])

    return body
