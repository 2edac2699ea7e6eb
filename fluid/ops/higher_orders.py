"""Paddle's gradients of gradients: ops that its training programs hold where gradients were differentiated again.

Fluid's own programs have none: there, a gradient op is expanded to ordinary ops before it is differentiated. Each row names
the values in the slots of such an op; the rule of the gradient op that it differentiates defines its results. The gradients of
these ops are ordinary ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import composed, higher_gradient
from ..opdef.registry import ShapeOnly, get
from . import activation, conv, elementwise, manipulation, matmul, norm, pool  # noqa: F401  (the ops whose gradients these are)

_Recovered = Callable[[Any, Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]


def _no_cotangent(f: Any, read: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The gradient of the output, on which an op that is linear in it does not depend; it has the input's shape."""
    return {"Out@GRAD": f.fill_zeros_like(read["X@GRAD@GRAD"])}


def _operand(f: Any, read: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """X, which is read for its shape only."""
    return {"X": read.get("X@GRAD@GRAD", read["Out@GRAD"])}


def _summed(f: Any, read: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Y and the gradient of the output, which are read for their shapes only."""
    return {"Y": read.get("DDY", read.get("DDX")), "DOut": read["DDOut@GRAD"]}


def _divided(f: Any, read: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The gradient of a quotient, from the gradient of the dividend; X is read for its shape only."""
    return {"X": read["Out"], "Out@GRAD": f.elementwise_mul(read["X@GRAD"], read["Y"], axis=attrs["axis"])}


def _by_batch(f: Any, read: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Running statistics, which do not count here; the batch's are computed again, since they depend on X."""
    one = f.fill_any_like(read["mean of the batch"], value=1.0, dtype=int(read["mean of the batch"].dtype))
    return {"Mean": one, "Variance": one, "Bias": read.get("Scale", one)}


_RECOVERED: dict[str, _Recovered] = {
    "elementwise_add": _operand,
    "elementwise_add_grad": _summed,
    "elementwise_sub": _operand,
    "elementwise_div": _divided,
    "batch_norm": _by_batch,
    "sqrt": lambda f, read, attrs: {"Out@GRAD": read["X@GRAD"] * read["Out"] * 2.0},
    "rsqrt": lambda f, read, attrs: {"Out@GRAD": read["X@GRAD"] / (read["Out"] * read["Out"] * read["Out"]) * -2.0},
    **dict.fromkeys(("relu", "leaky_relu", "abs", "clip"), _no_cotangent),
}
"""Op -> what the gradient of its gradient op computes again, since Paddle's does not read it."""

_BY_INPUT = "X, grad_out=Out@GRAD, grad_x@GRAD=X@GRAD@GRAD -> X@GRAD, grad_out@GRAD=Out@GRAD@GRAD"
_BY_OUTPUT = "Out, grad_x=X@GRAD, grad_x@GRAD=X@GRAD@GRAD -> Out@GRAD, grad_out@GRAD=Out@GRAD@GRAD"
_KINKED = "X, grad_x@GRAD=X@GRAD@GRAD -> grad_out@GRAD=Out@GRAD@GRAD"
_SUM = "Y, DOut=Out@GRAD, DDX?=X@GRAD@GRAD, DDY?=Y@GRAD@GRAD -> DDOut=Out@GRAD@GRAD"
_TWO = "X, Y, DOut=Out@GRAD, DDX?=X@GRAD@GRAD, DDY?=Y@GRAD@GRAD -> "
_PRODUCT = _TWO + "DX=X@GRAD, DY=Y@GRAD, DDOut=Out@GRAD@GRAD"
_FILTERED = (
    "Input, Filter, grad_out=Output@GRAD, grad_input@GRAD?=Input@GRAD@GRAD, grad_filter@GRAD?=Filter@GRAD@GRAD -> "
    "Input@GRAD, Filter@GRAD, grad_out@GRAD=Output@GRAD@GRAD"
)
_WAVE = (
    "X, grad_out_forward?=grad_out, grad_x_grad_forward=grad_x@GRAD, grad_x@GRAD?=X@GRAD@GRAD, "
    "grad_out_grad@GRAD?=grad_out@GRAD@GRAD -> X@GRAD, grad_out_forward@GRAD=grad_out@GRAD, "
    "grad_x_grad_forward@GRAD=grad_x@GRAD@GRAD"
)

for _row in (
    *(f"{op}_grad_grad of {op}_grad: {_BY_INPUT}" for op in ("celu", "elu", "log", "square")),
    *(f"{op}_double_grad of {op}_grad: {_BY_INPUT}" for op in ("cos", "sin", "softplus")),
    *(f"{op}_grad_grad of {op}_grad: {_BY_OUTPUT}" for op in ("sqrt", "rsqrt")),
    f"leaky_relu_grad_grad of leaky_relu_grad: {_KINKED}",
    f"relu_grad_grad of relu_grad: {_KINKED.replace('X', 'Out', 1)}",
    f"abs_double_grad of abs_grad: {_KINKED.replace('X', 'x=X', 1)}",
    f"clip_double_grad of clip_grad: {_KINKED.replace('X', 'X, Min?, Max?', 1)}",
    f"pow_double_grad of pow_grad: {_BY_INPUT.replace('X', 'X, FactorTensor?', 1)}",
    f"tanh_grad_grad of tanh_grad: {_BY_INPUT.replace('X', 'Out', 1).replace('X@GRAD,', 'Out@GRAD,')}",
    "sigmoid_grad_grad of sigmoid_grad: Out, fwd_grad_out=Out@GRAD, grad_x@GRAD=X@GRAD@GRAD -> "
    "Out@GRAD, fwd_grad_out@GRAD=Out@GRAD@GRAD",
    f"elementwise_add_grad_grad of elementwise_add_grad: {_SUM}",
    f"elementwise_sub_grad_grad of elementwise_sub_grad: {_SUM}",
    f"elementwise_mul_grad_grad of elementwise_mul_grad: {_TWO}X@GRAD, Y@GRAD, DDOut=Out@GRAD@GRAD",
    "elementwise_div_grad_grad of elementwise_div_grad: Y, Out, DX=X@GRAD, DDX?=X@GRAD@GRAD, DDY?=Y@GRAD@GRAD -> "
    "Y@GRAD, DOut=Out@GRAD, DDOut=Out@GRAD@GRAD",
    f"mul_grad_grad of mul_grad: {_PRODUCT}",
    f"matmul_grad_grad of matmul_grad: {_PRODUCT}",
    "matmul_v2_grad_grad of matmul_v2_grad: X, Y, grad_out=Out@GRAD, grad_x@GRAD?=X@GRAD@GRAD, grad_y@GRAD?=Y@GRAD@GRAD -> "
    "X@GRAD, Y@GRAD, grad_out@GRAD=Out@GRAD@GRAD",
    *(f"{op}_grad_grad of {op}_grad: {_FILTERED}" for op in ("conv2d", "depthwise_conv2d", "conv3d")),
    f"conv2d_transpose_grad_grad of conv2d_transpose_grad: {_FILTERED.replace('grad_input@GRAD?', 'grad_x@GRAD?')}",
    "instance_norm_double_grad of instance_norm_grad: x=X, fwd_scale?=Scale, saved_mean=SavedMean, saved_variance=SavedVariance, "
    "grad_y=Y@GRAD, grad_x@GRAD?=X@GRAD@GRAD, grad_scale@GRAD?=Scale@GRAD@GRAD, grad_bias@GRAD?=Bias@GRAD@GRAD -> "
    "x@GRAD=X@GRAD, fwd_scale@GRAD=Scale@GRAD, grad_y@GRAD=Y@GRAD@GRAD",
    "batch_norm_grad_grad of batch_norm_grad: X, Scale?, Mean?, Variance?, SavedMean=mean of the batch, "
    "SavedVariance=variance of the batch, DY=Y@GRAD, DDX?=X@GRAD@GRAD, DDScale?=Scale@GRAD@GRAD, DDBias?=Bias@GRAD@GRAD -> "
    "DX=X@GRAD, DScale=Scale@GRAD, DDY=Y@GRAD@GRAD",
    f"cos_triple_grad of cos_double_grad: {_WAVE}",
    f"sin_triple_grad of sin_double_grad: {_WAVE}",
    "tanh_triple_grad of tanh_grad_grad: Out, grad_out_forward=grad_out, grad_x_grad_forward=grad_x@GRAD, "
    "grad_out_new@GRAD?=Out@GRAD@GRAD, grad_out_grad@GRAD?=grad_out@GRAD@GRAD -> Out@GRAD, grad_out_forward@GRAD=grad_out@GRAD, "
    "grad_x_grad_forward@GRAD=grad_x@GRAD@GRAD",
    "sigmoid_triple_grad of sigmoid_grad_grad: Out, fwd_grad_out, grad_grad_x=grad_x@GRAD, grad_out@GRAD?=Out@GRAD@GRAD, "
    "grad_grad_out@GRAD?=fwd_grad_out@GRAD@GRAD -> Out@GRAD, fwd_grad_out@GRAD, grad_grad_x@GRAD=grad_x@GRAD@GRAD",
    "pow_triple_grad of pow_double_grad: X, FactorTensor?, grad_out, grad_grad_x=grad_x@GRAD, grad_x@GRAD?=X@GRAD@GRAD, "
    "grad_grad_out@GRAD?=grad_out@GRAD@GRAD -> X@GRAD, grad_out@GRAD, grad_grad_x@GRAD=grad_x@GRAD@GRAD",
    "elementwise_add_triple_grad of elementwise_add_grad_grad: DDX?, DDY?, D_DDOut=DDOut@GRAD -> D_DDX=DDX@GRAD, D_DDY=DDY@GRAD",
    "elementwise_mul_triple_grad of elementwise_mul_grad_grad: X, Y, DOut, DDX?, DDY?, D_DX?=X@GRAD@GRAD, D_DY?=Y@GRAD@GRAD, "
    "D_DDOut?=DDOut@GRAD -> D_X=X@GRAD, D_Y=Y@GRAD, D_DOut=DOut@GRAD, D_DDX=DDX@GRAD, D_DDY=DDY@GRAD",
    "matmul_v2_triple_grad of matmul_v2_grad_grad: X, Y, grad_out, grad_grad_x?=grad_x@GRAD, grad_grad_y?=grad_y@GRAD, "
    "grad_x@GRAD?=X@GRAD@GRAD, grad_y@GRAD?=Y@GRAD@GRAD, grad_grad_out@GRAD?=grad_out@GRAD@GRAD -> "
    "X@GRAD, Y@GRAD, grad_out@GRAD, grad_grad_x@GRAD=grad_x@GRAD@GRAD, grad_grad_y@GRAD=grad_y@GRAD@GRAD",
):
    _base = _row.split()[2].rstrip(":").removesuffix("_grad")
    higher_gradient(_row, __name__, _RECOVERED.get(_base))


# ------------------------------------------------------------------------------- linear ops: the second gradient is the op
_POOL: dict[str, Any] = get("pool2d").attrs
_PAD: dict[str, Any] = get("pad3d").attrs


@composed("pool2d_double_grad(grad_x@GRAD) -> grad_out@GRAD", **_POOL)
def pool2d_double_grad(f: Any, values: Any, attrs: Any) -> Any:
    """The gradient of `pool2d_grad`: `pool2d` of averages. Where maxima lie, Paddle's op is not told."""
    if attrs["pooling_type"] != "avg":
        raise InferenceError("pool2d_double_grad of maxima: the op does not read where they are, so that no right value exists")
    return f.pool2d(values["grad_x@GRAD"], **attrs)


@composed("pad3d_double_grad(grad_x@GRAD, Paddings?) -> grad_out@GRAD", **_PAD)
def pad3d_double_grad(f: Any, values: Any, attrs: Any) -> Any:
    """The gradient of `pad3d_grad`: `pad3d` with zeros in place of a value."""
    return f.pad3d(values["grad_x@GRAD"], values.get("Paddings"), **{**attrs, "value": 0.0})


@composed("reshape2_grad_grad(DDX, DOut) -> DDOut")
def reshape2_grad_grad(f: Any, DDX: Any, DOut: ShapeOnly) -> Any:
    """The gradient of `reshape2_grad`: DDX in the shape of DOut."""
    return f.reshape_like(DDX, DOut)
