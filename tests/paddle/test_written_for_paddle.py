"""Programs written for Paddle 2.6 and 3, without Paddle: the converted program computes the same here, or is refused by name.

`tests/paddle/test_paddle_every_op.py` runs it in Paddle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import Checks, each
from paddle_sweep import Case, cases_of
from samples import OPS

import fluid
from fluid import layers
from fluid.errors import ProgramError
from fluid.executor import Scope, scope_guard
from fluid.transform.op_versions import TABLE, convert, known_ops
from fluid.values.types import VarType

pytestmark = pytest.mark.filterwarnings("ignore:no gradient flows")


def kinds_of(program: fluid.Program) -> list[str]:
    return [op.type for block in program.blocks for op in block.ops]


def cases_of_rows(target: str, count: int | None) -> Iterator[Case]:
    """Some samples, or all, of each op that has a row for a version, and their gradients."""
    kinds = {
        kind if kind in OPS else kind.replace("_grad", "") for kind, row in TABLE[target].items() if row.rewrite or row.check
    }
    for op_type in sorted(kinds & OPS.keys()):
        for index, sample in enumerate(OPS[op_type][:count]):
            if (target, op_type, index) != ("paddle-3", "reshape_like", 4):  # of no elements, whose sizes no tensor says
                yield from cases_of(op_type, index, sample)


def assert_written_right(target: str, count: int | None) -> set[str]:
    """The written program computes the same; returns the types of its ops before the conversion."""
    seen: set[str] = set()
    with Checks() as check:
        for case in cases_of_rows(target, count):
            seen.update(kinds_of(case.program))
            with check(case.key):
                try:
                    new = convert(case.program, target).program
                except ProgramError as error:
                    assert f"cannot be written for {target}:\n  - " in str(error)
                    continue
                assert target == "paddle-3" or set(kinds_of(new)) <= known_ops(target)
                with scope_guard(Scope()):
                    found = fluid.Executor().run(new, case.feed, case.fetches, return_numpy=False)
                for got, want in zip(found, case.values, strict=True):
                    if not case.random:
                        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)
    return seen


@pytest.mark.parametrize("target", ["paddle-2.6", "paddle-3"])
def test_what_is_written_computes_the_same(target: str) -> None:
    assert_written_right(target, 1)


OF_COMPLEX_NUMBERS = {f"fft_{kind}_grad" for kind in ("c2c", "c2r", "r2c")}
OF_FILES = {"elementwise_mod_grad", "elementwise_floordiv_grad"}
"""Gradient ops that only a file could hold: none is defined here."""
OF_ARRAYS = {"read_from_array", "split_array", "select_output", "unstack_array", "stack_array_like", "conditional_block_infer"}
"""Rows that test_op_versions.py, test_paddle3.py and test_paddle3_oracle.py try."""


@pytest.mark.slow
@pytest.mark.parametrize("target", ["paddle-2.6", "paddle-3"])
def test_what_is_written_of_all_samples_computes_the_same(target: str) -> None:
    seen = assert_written_right(target, None)
    assert {kind for kind, row in TABLE[target].items() if row.rewrite} - seen <= OF_COMPLEX_NUMBERS | OF_FILES | OF_ARRAYS


# ------------------------------------------------------------------------------------------------------------ the forms
def written(target: str, kind: str) -> Any:
    """The first op of a type in the program that is written."""
    return next(op for op in convert(fluid.default_main_program(), target).program.global_block().ops if op.type == kind)


@each("index", range(len(OPS["dynamic_quantize_lstm"])))
def test_a_recurrence_makes_the_outputs_that_it_names(index: int) -> None:
    """Paddle finds a step's output in the block by the name of the stacked one."""
    (case,) = cases_of("dynamic_quantize_lstm", index, OPS["dynamic_quantize_lstm"][index])
    new = convert(case.program, "paddle-2.6").program
    (op,) = [op for op in new.global_block().ops if op.type == "recurrent"]
    names_in_block = {name for inner in op.sub_blocks[0].ops for name in inner.output_arg_names}
    assert names_in_block >= set(op.output("outputs"))


@each("index", range(len(OPS["dynamic_quantize_lstm"])))
def test_a_recurrence_of_a_formula_is_a_loop_in_paddle_3(index: int) -> None:
    (case,) = cases_of("dynamic_quantize_lstm", index, OPS["dynamic_quantize_lstm"][index])
    new = convert(case.program, "paddle-3").program
    kinds = {op.type for op in new.global_block().ops}
    assert "while" in kinds and "recurrent" not in kinds
    with scope_guard(Scope()):
        results = fluid.Executor().run(new, case.feed, case.fetches)
    for result, value in zip(results, case.values, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-5)


@each("op_type", ["reduce_amax", "reduce_amin"])
def test_a_reduction_over_all_axes_names_them(op_type: str) -> None:
    """Paddle 2.6 reads `dim` alone."""
    getattr(fluid.extend.ops(), op_type)(fluid.data("x", [3, None, 5]), reduce_all=True)
    assert written("paddle-2.6", op_type).attr("dim") == [0, 1, 2]


def test_a_slice_with_a_step() -> None:
    """Paddle 2.6 ends the process without a flag for each axis; in Paddle 3, an end of -1 is the last element."""
    x = fluid.data("x", [4, 5])
    x[::-1], x[:, 1::2]
    assert written("paddle-2.6", "strided_slice").attr("infer_flags") == [1]
    assert written("paddle-3", "strided_slice").attr("ends")[0] < -5


def test_a_training_batch_norm_has_a_workspace() -> None:
    """Paddle 2.6 refuses one without, as in older programs and models from ONNX; the gradient op has the same."""
    loss = layers.mean(layers.batch_norm(layers.conv2d(fluid.data("x", [2, 3, 4, 4]), 3, 1)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    for op in fluid.default_main_program().global_block().ops:
        op.inputs.pop("ReserveSpace", None)
        op.outputs.pop("ReserveSpace", None)
    forward, backward = written("paddle-2.6", "batch_norm"), written("paddle-2.6", "batch_norm_grad")
    assert len(forward.output("ReserveSpace")) == 1 and backward.input("ReserveSpace") == forward.output("ReserveSpace")
    test = fluid.default_main_program().clone(for_test=True)
    assert convert(test, "paddle-2.6").program


@each("op_type", ["matrix_rank", "crf_decoding"])
def test_a_result_of_another_type_is_cast(op_type: str) -> None:
    """Both are int64 in Paddle 3."""
    ops = fluid.extend.ops()
    if op_type == "matrix_rank":
        out = ops.matrix_rank(fluid.data("x", [3, 3]), tol=0.0, use_default_tol=True)
    else:
        out = layers.crf_decoding(fluid.data("e", [None, 3], lod_level=1), fluid.ParamAttr(name="transition"))
    ops_written = convert(fluid.default_main_program(), "paddle-3").program.global_block().ops
    if out.dtype is VarType.INT64:
        assert [op.type for op in ops_written][-1] == op_type
    else:
        assert [op.type for op in ops_written][-2:] == [op_type, "cast"] and ops_written[-1].output("Out") == [out.name]


@each(
    ("build", "why"),
    [
        (lambda x: layers.layer_norm(x, epsilon=0.1), "layer_norm: its epsilon is 0.1, and Paddle allows 0.001 at most"),
        (lambda x: fluid.extend.ops().logcumsumexp(x, exclusive=True), "logcumsumexp: its sums are exclusive"),
        (lambda x: fluid.extend.ops().einsum([x, x, x], equation="ij,ij,ij->i"), "einsum: it has more than two operands"),
        (lambda x: fluid.extend.ops().pad_by(layers.unsqueeze(x, [0, 1]), paddings=[1, *[0] * 7]), "pads the last three"),
        (lambda x: layers.lrn(layers.unsqueeze(x, [0, 1]), n=4), "lrn: its window n is even, and Paddle's is odd"),
    ],
)
def test_what_paddle_computes_wrongly_is_refused(build: Any, why: str) -> None:
    build(fluid.data("x", [3, 4]))
    with pytest.raises(ProgramError, match=why):
        convert(fluid.default_main_program(), "paddle-2.6")


@pytest.mark.parametrize("target", ["paddle-2.6", "paddle-3"])
@pytest.mark.parametrize(
    "paddings",
    [[0, 3], [0, 0, 0, 2], [0, 0, 2, 1, 0, 0], [1, 0] * 3, [*[0] * 4, 2, 3], [*[0] * 4, 1, 2, 2, 1], [0, 0, 2, 1, 1, 2, 0, 1]],
)
def test_pads_of_any_mode_are_those_of_volumes(tmp_path: Path, target: str, paddings: list[int]) -> None:
    x = fluid.data("x", [4, 3, 4, 5][: len(paddings) // 2])
    outs = [x.block.namespace.pad_by(x, paddings=paddings, mode=mode) for mode in ("reflect", "edge", "wrap", "constant")]
    path = tmp_path / ("net.json" if target == "paddle-3" else "net.pdmodel")
    fluid.save_model(path, feeds=[x], fetches=outs, target=target)
    model, executor = fluid.load_model(path, scope=fluid.Scope()), fluid.Executor()
    feed = {"x": np.random.default_rng(0).standard_normal(x.shape).astype("float32")}
    assert {op.type for op in model.program.global_block().ops}.isdisjoint({"pad_by"})
    written = executor.run(model.program, feed, model.fetches, scope=model.scope)
    for result, expected in zip(written, executor.run(feed=feed, fetch_list=outs), strict=True):
        np.testing.assert_array_equal(result, expected)
