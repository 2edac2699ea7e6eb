"""Gradients of gradients that Paddle wrote give Paddle's numbers: see `golden/make_paddle_higher_orders.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from checks import each
from paths import TESTS

import fluid
from fluid.ir.program import Program

with np.load(TESTS / "golden" / "paddle_higher_orders.npz") as file:
    GOLDEN = dict(file)
CASES = sorted({key.partition(".")[0] for key in GOLDEN})


def load(name: str) -> tuple[Program, dict[str, Any], list[str], list[Any]]:
    """The program of a case, its feeds, the names of its gradients, and their values."""
    feed = {key.rpartition(".")[2]: value for key, value in GOLDEN.items() if key.startswith(f"{name}.feed.")}
    fetch = [str(item) for item in GOLDEN[f"{name}.fetch"]]
    values = [GOLDEN[f"{name}.value.{number}"] for number in range(len(fetch))]
    return Program.parse_from_string(GOLDEN[f"{name}.program"].tobytes()), feed, fetch, values


@each("name", CASES)
def test_numbers_of_paddle(name: str) -> None:
    """Planned and op by op."""
    program, feed, fetch, values = load(name)
    executor = fluid.Executor()
    for run in (executor.run, executor.interpret):
        for fetched, value, expected in zip(fetch, run(program, feed, fetch, scope=fluid.Scope()), values, strict=True):
            np.testing.assert_allclose(value, expected, 5e-5, 5e-5 * np.abs(expected).max(), err_msg=fetched)


COVERED = """
abs_double_grad batch_norm_grad_grad celu_grad_grad clip_double_grad conv2d_grad_grad conv3d_grad_grad cos_double_grad
cos_triple_grad elementwise_add_grad_grad elementwise_add_triple_grad elementwise_div_grad_grad
elementwise_mul_grad_grad elementwise_mul_triple_grad elementwise_sub_grad_grad elu_grad_grad instance_norm_double_grad
leaky_relu_grad_grad log_grad_grad matmul_v2_grad_grad matmul_v2_triple_grad pad3d_double_grad pool2d_double_grad
pow_double_grad pow_triple_grad relu_grad_grad reshape2_grad_grad rsqrt_grad_grad sigmoid_grad_grad sigmoid_triple_grad
sin_double_grad sin_triple_grad softplus_double_grad sqrt_grad_grad square_grad_grad tanh_grad_grad tanh_triple_grad
"""


def test_each_op_is_in_a_program_of_paddle() -> None:
    programs = [load(name)[0] for name in CASES]
    assert {op.type for program in programs for op in program.global_block().ops} >= set(COVERED.split())


@each("name", [name for name in CASES if b"_triple_grad" in GOLDEN[f"{name}.program"].tobytes() and name != "penalty"])
def test_they_are_differentiated_further(name: str) -> None:
    """The third derivative, of programs that Paddle wrote for the second."""
    program, feed, fetch, values = load(name)
    count = len(fetch) // 3
    root = program.global_block()
    inputs = [root.var(key) for key in feed]
    with fluid.program_guard(program):
        squares = [fluid.layers.reduce_sum(root.var(each) * root.var(each)) for each in fetch[count : 2 * count]]
        total = fluid.layers.sums([square * (1 + 0.1 * number) for number, square in enumerate(squares)])
        third = fluid.gradients(total, inputs)
    for value, expected in zip(fluid.Executor().run(program, feed, third, scope=fluid.Scope()), values[2 * count :], strict=True):
        np.testing.assert_allclose(value, expected, 5e-5, 5e-5 * np.abs(expected).max())


@each(
    ("op", "transposed", "shapes"),
    [
        ("depthwise_conv2d", False, [(2, 4, 4, 4), (4, 1, 3, 3), (2, 4, 4, 4)]),
        ("conv2d_transpose", True, [(2, 3, 3, 3), (3, 2, 3, 3), (2, 2, 3, 3)]),
    ],
)
def test_what_paddle_has_no_kernel_for(op: str, transposed: bool, shapes: list[tuple[int, ...]]) -> None:
    """depthwise_conv2d_grad_grad and conv2d_transpose_grad_grad against the gradients that Fluid writes."""
    random = np.random.default_rng(3)
    program = Program()
    root = program.global_block()
    attrs = {"paddings": [1, 1], "groups": 1 if transposed else 4}
    feed = {}

    def data(name: str, shape: tuple[int, ...]) -> str:
        root.create_var(name=name, shape=shape, dtype="float32", is_data=True)
        feed[name] = random.normal(size=shape).astype("float32")
        return name

    image, filter_, back = map(data, ("image", "filter", "back"), shapes)
    ddimage, ddfilter = map(data, ("ddimage", "ddfilter"), shapes)
    for name in ("out", "gimage", "gfilter", "again.image", "again.filter", "again.back"):
        root.create_var(name=name, dtype="float32")
    root.append_op(op, {"Input": image, "Filter": filter_}, {"Output": "out"}, attrs)
    gradient = {"Input": image, "Filter": filter_, "Output@GRAD": back}
    root.append_op(op + "_grad", gradient, {"Input@GRAD": "gimage", "Filter@GRAD": "gfilter"}, attrs)
    again = "grad_x@GRAD" if transposed else "grad_input@GRAD"
    root.append_op(
        op + "_grad_grad",
        {"Input": image, "Filter": filter_, "grad_out": back, again: ddimage, "grad_filter@GRAD": ddfilter},
        {"Input@GRAD": "again.image", "Filter@GRAD": "again.filter", "grad_out@GRAD": "again.back"},
        attrs,
    )
    of = [root.var(name) for name in ("gimage", "gfilter")]
    written = fluid.gradients(of, [root.var(name) for name in (image, filter_, back)], [root.var(ddimage), root.var(ddfilter)])
    fetch = ["again.image", "again.filter", "again.back", *written]
    found = fluid.Executor().run(program, feed, fetch, scope=fluid.Scope())
    for value, expected in zip(found[:3], found[3:], strict=True):
        assert np.abs(expected).max() > 1
        np.testing.assert_allclose(value, expected, 1e-4, 1e-4)
