"""The set of ops that native code computes, and special values. The conformance suite tests ordinary results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import Checks, each
from conformance.case import CASES, Case, OneOp

import fluid
from fluid import layers
from fluid.errors import ExecutionError
from fluid.executor.planned import plan

LOWERED = {
    "losses": (
        "bce_loss cos_sim cross_entropy cross_entropy2 hinge_loss huber_loss label_smooth log_loss margin_rank_loss "
        "modified_huber_loss pick rank_loss sigmoid_cross_entropy_with_logits smooth_l1_loss softmax_with_cross_entropy "
        "squared_l2_distance teacher_student_sigmoid_loss"
    ),
    "reductions and norms": (
        "affine_channel clip_by_norm dist frobenius_norm group_norm instance_norm l1_norm layer_norm logsumexp mean norm p_norm "
        "reduce_amax reduce_max reduce_mean reduce_min reduce_sum squared_l2_norm"
    ),
    "optimizers": "adadelta adagrad adam adamax adamw decayed_adagrad ftrl lamb lars_momentum momentum rmsprop sgd "
    "uncorrected_lamb",
    "images": "batch_norm conv2d conv2d_transpose depthwise_conv2d depthwise_conv2d_transpose pool2d",
    "products": "addmm bmm dot einsum matmul matmul_v2 mul mv",
    "parts and places": (
        "channel_shuffle concat expand expand_as_v2 expand_v2 fill_constant_batch_size_like gather gather_nd index_select "
        "one_hot pad pad3d reshape2 slice split stack strided_slice tile transpose2 unbind unstack"
    ),
    "activations": (
        "brelu celu elu gelu hard_shrink hard_sigmoid hard_swish leaky_relu logsigmoid mish prelu relu relu6 selu sigmoid silu "
        "soft_relu softplus softshrink softsign stanh swish tanh tanh_shrink thresholded_relu"
    ),
    "recurrences": "cudnn_lstm gru_unit lstm_unit rnn",
    "elementary functions": (
        "abs ceil cos cosh erf exp expm1 floor log log10 log1p log2 pow reciprocal round rsqrt sign sin sinh sqrt square tan"
    ),
    "elementwise": (
        "cast clip elementwise_add elementwise_div elementwise_max elementwise_min elementwise_mul elementwise_pow "
        "elementwise_sub equal fill_any_like greater_than increment less_equal logical_and logical_not logical_or logical_xor "
        "scale"
    ),
}


@each("family", LOWERED)
def test_ops_and_gradients_that_are_lowered(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a first sample of each op, in float32, nothing is left to numpy."""
    monkeypatch.setenv("FLUID_NATIVE", "1")
    monkeypatch.setattr(plan, "_FEWEST", 1)
    with Checks() as checks:
        for op_type in LOWERED[family].split():
            with checks(op_type):
                key = next(key for key, (of, sample) in CASES.items() if of == op_type and "float32" in sample.dtypes)
                assert "on numpy: none" in plan_of(Case(key, "float32")), key


def plan_of(case: Case) -> str:
    """The head of the plan of an op and its gradient."""
    one = OneOp(case)
    fetch = one.with_gradients()  # feeds the factors of the gradients, too
    text = fluid.Executor().plan(one.program, one.fed, fetch).to_string()
    return "\n".join(text.splitlines()[:2])


SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 30.0, -200.0, 1e30], "float32"
)
OF_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "brelu": lambda x: layers.brelu(x, -0.5, 6.0),
    "clip": lambda x: layers.clip(x, -0.5, 6.0),
    "elu": layers.elu,
    "hard_shrink": layers.hard_shrink,
    "hard_sigmoid": layers.hard_sigmoid,
    "hard_swish": layers.hard_swish,
    "leaky_relu": layers.leaky_relu,
    "log": layers.log,
    "logsigmoid": layers.logsigmoid,
    "pow": lambda x: layers.pow(x, 3.0),
    "relu6": layers.relu6,
    "round": layers.round,
    "selu": layers.selu,
    "softplus": layers.softplus,
    "softshrink": layers.softshrink,
    "softsign": layers.softsign,
    "thresholded_relu": layers.thresholded_relu,
}


def test_special_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN, infinities, zeros, denormal numbers, and numbers where a formula changes, as on numpy."""
    x = fluid.data("x", SPECIAL.shape)
    x.stop_gradient = False
    outs = {name: of(x) for name, of in OF_SPECIAL.items()}
    fetch = [var for out in outs.values() for var in (out, *fluid.gradients(out, x)) if var is not None]
    results = []
    for native in "01":
        monkeypatch.setenv("FLUID_NATIVE", native)
        with np.errstate(all="ignore"):
            results.append(fluid.Executor().run(feed={"x": SPECIAL}, fetch_list=fetch))
    with Checks() as checks:
        for var, expected, value in zip(fetch, *results, strict=True):
            with checks(var.name):
                np.testing.assert_allclose(value, expected, 5e-6, 1e-37)


def test_a_constant_that_an_integer_cannot_hold_is_an_error_at_each_size() -> None:
    """A single op of a large array is native code, which would write zeros."""
    for shape in ([2, 3], [219, 232]):
        x = fluid.data(f"x{shape[0]}", shape, "int32")
        out = x.block.create_var(name=f"out{shape[0]}", dtype="int32")
        x.block.append_op("fill_any_like", {"X": x}, {"Out": out}, {"value": 1e100})
        with pytest.raises(ExecutionError, match="fill_any_like failed"):
            fluid.Executor().run(feed={x.name: np.ones(shape, "int32")}, fetch_list=[out])
