"""Numbers of threads, and who holds numpy's BLAS to one."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph
from fluid.executor.runtime import threads


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set three threads, also for BLAS, even if plans of other tests hold it; restore the number afterwards."""
    of_blas = threads.blas_threads()
    monkeypatch.setattr(threads, "_THREADS", threads._Threads())
    fluid.set_num_threads(3)
    yield
    fluid.set_num_threads(of_blas or 1)


def test_number_of_threads_is_checked() -> None:
    before = fluid.get_num_threads()
    of_eager_mode = dygraph.get_num_threads()
    wrong: list[tuple[Any, type[Exception], str]] = [(number, ValueError, "from 1 to 256") for number in (0, -1, 257, 10**5000)]
    wrong += [(value, TypeError, f"an int, not {value!r}") for value in ("2", True, False, 2.0, None, [2], np.True_)]
    for number, error, words in wrong:
        for setter in (fluid.set_num_threads, dygraph.set_num_threads):
            with pytest.raises(error, match=re.escape(words)) as raised:
                setter(number)
            assert isinstance(raised.value, fluid.FluidError)
    assert fluid.get_num_threads() == before and dygraph.get_num_threads() == of_eager_mode


@each("setting, count", [("3", 3), ("2,4", 2), ("", None), ("0", None), ("many", None), (None, None)])
def test_omp_num_threads_is_obeyed(setting: str | None, count: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if setting is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert threads._default() == (count or threads.available_cores())


@pytest.mark.usefixtures("three")
class TestBlas:
    """numpy's wheels have an OpenBLAS; with another BLAS nothing of this has an effect."""

    @pytest.fixture(autouse=True)
    def has_openblas(self) -> None:
        if threads.blas_threads() is None:
            pytest.skip("numpy has another BLAS than OpenBLAS, or the platform does not say which")

    def test_has_the_number_that_is_set(self) -> None:
        assert threads.blas_threads() == 3
        fluid.set_num_threads(np.int64(2))
        assert threads.blas_threads() == 2

    def test_is_held_until_the_last_hold_goes(self) -> None:
        one, two = threads.hold_blas(), threads.hold_blas()
        assert threads.blas_threads() == 1
        del one
        gc.collect()
        assert threads.blas_threads() == 1
        fluid.set_num_threads(4)
        assert (threads.blas_threads(), fluid.get_num_threads()) == (1, 4)
        del two
        gc.collect()
        assert threads.blas_threads() == 4

    def test_has_one_where_numpy_computes(self) -> None:
        with threads.OnNumpy():
            assert threads.blas_threads() == 1
            with threads.OnNumpy():
                assert threads.blas_threads() == 1
            assert threads.blas_threads() == 1 and np.geterr()["divide"] == "ignore"
        assert threads.blas_threads() == 3
        call = threads.on_one_thread(lambda number: (number, threads.blas_threads()))
        assert call(5) == (5, 1) and threads.blas_threads() == 3
        with pytest.raises(ZeroDivisionError):
            threads.on_one_thread(lambda: 1 / 0)()
        assert threads.blas_threads() == 3

    def test_has_one_in_programs_and_ops(self) -> None:
        counts: list[Any] = []

        def note(x: Any) -> Any:
            counts.append(threads.blas_threads())
            return x

        class Noting(fluid.dygraph.PyLayer):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 1.0

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                note(grad)
                return grad

        with fluid.program_guard(fluid.Program(), fluid.Program()):
            x = fluid.data("x", [2])
            out = fluid.default_main_program().current_block().create_var(name="out", dtype="float32", shape=[2])
            fluid.layers.py_func(note, x, out)
            fluid.Executor().run(feed={"x": np.ones(2, "float32")}, fetch_list=[out])
        tensor = fluid.dygraph.Tensor(np.ones(2, "float32"), stop_gradient=False)
        Noting.apply(tensor).sum().backward()
        assert counts == [1, 1] and threads.blas_threads() == 3


def test_another_blas_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fluid.get_num_threads()
    monkeypatch.setattr(threads, "_blas", lambda: None)
    hold = threads.hold_blas()
    fluid.set_num_threads(5)
    assert (threads.blas_threads(), fluid.get_num_threads()) == (None, 5)
    assert threads.on_one_thread(lambda: 7)() == 7
    del hold
    fluid.set_num_threads(before)
