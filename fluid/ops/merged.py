"""Updates of many parameters at once, and of some rows, as optimizers of Paddle 2.x write them; and ops of its training loops."""

from __future__ import annotations

from typing import Any

from ..errors import InferenceError
from ..opdef.composition import Composition, composed
from ..opdef.registry import NOT_DIFFERENTIABLE, ShapeOnly, define, floats, least, long, required, strings
from ..values.types import VarType
from . import activation, creation, elementwise, manipulation, matmul, norm, reduction, selection  # noqa: F401  (made of these)


def _refuse_masters(op: str, masters: Any) -> None:
    if masters:
        raise InferenceError(f"{op} with 32-bit masters of 16-bit parameters (MasterParam) is not here")


# ------------------------------------------------------------------------------------------------------------- momentum
_MOMENTUM: dict[str, Any] = {"mu": required("float"), "use_nesterov": False, "multi_precision": False, "rescale_grad": 1.0}


def _with_momentum(f: Any, param: Any, grad: Any, velocity: Any, rate: Any, decay: float, attrs: Any) -> tuple[Any, Any]:
    """The new parameter and velocity, as of `momentum`."""
    grad = grad * attrs["rescale_grad"]
    grad = grad + param * decay if decay else grad
    velocity = velocity * attrs["mu"] + grad
    step = grad + velocity * attrs["mu"] if attrs["use_nesterov"] else velocity
    return param - f.elementwise_mul(step, rate), velocity


@composed(
    "merged_momentum(Param*, Grad*, Velocity*, LearningRate*, MasterParam*?) -> ParamOut*, VelocityOut*, MasterParamOut*?",
    grad=NOT_DIFFERENTIABLE,
    regularization_method=strings(),
    regularization_coeff=floats(),
    **_MOMENTUM,
)
def merged_momentum(f: Any, values: Any, attrs: Any) -> Any:
    """`momentum` of several parameters; LearningRate is one for all, or one for each."""
    _refuse_masters("merged_momentum", values.get("MasterParam"))
    rates, results = values["LearningRate"], []
    for place, (param, grad, velocity) in enumerate(zip(values["Param"], values["Grad"], values["Velocity"], strict=True)):
        decays = attrs["regularization_method"][place : place + 1] == ["l2_decay"]
        decay = attrs["regularization_coeff"][place] if decays else 0.0
        rate = rates[0 if len(rates) == 1 else place]
        results.append(_with_momentum(f, param, grad, velocity, rate, decay, attrs))
    return {"ParamOut": [param for param, _ in results], "VelocityOut": [velocity for _, velocity in results]}


@composed(
    "sparse_momentum(Param: float, Grad, Velocity, Index: int, Axis?, LearningRate, MasterParam?)"
    " -> ParamOut, VelocityOut, MasterParamOut?",
    grad=NOT_DIFFERENTIABLE,
    regularization_method="",
    regularization_coeff=0.0,
    axis=0,
    **_MOMENTUM,
)
def sparse_momentum(f: Any, values: Any, attrs: Any) -> Any:
    """`momentum` with a gradient of the rows (or, with `axis` 1, columns) that Index names; all others have gradient zero."""
    _refuse_masters("sparse_momentum", values.get("MasterParam"))
    if values.get("Axis") is not None or attrs["axis"] not in (0, 1):
        raise InferenceError("sparse_momentum goes along the axis 0 or 1, which its attribute says")
    param, grad, index = values["Param"], values["Grad"], f.reshape2(values["Index"], shape=[-1])
    zeros = f.fill_zeros_like(param)
    if attrs["axis"] == 0:
        grad = f.scatter(zeros, index, grad, overwrite=False)
    else:
        turned = f.scatter(f.transpose2(zeros, axis=[1, 0]), index, f.transpose2(grad, axis=[1, 0]), overwrite=False)
        grad = f.transpose2(turned, axis=[1, 0])
    decay = attrs["regularization_coeff"] if attrs["regularization_method"] == "l2_decay" else 0.0
    param, velocity = _with_momentum(f, param, grad, values["Velocity"], values["LearningRate"], decay, attrs)
    return {"ParamOut": param, "VelocityOut": velocity}


# ----------------------------------------------------------------------------------------------------------------- adam
_ADAM: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "multi_precision": False, "use_global_beta_pow": False}


def _adam(f: Any, param: Any, grad: Any, rate: Any, state: Any, attrs: Any) -> tuple[Any, ...]:
    """The new parameter, moments and powers, as of `adam`."""
    first, second, power1, power2 = state
    beta1, beta2 = attrs["beta1"], attrs["beta2"]
    first, second = first * beta1 + grad * (1.0 - beta1), second * beta2 + f.square(grad) * (1.0 - beta2)
    root = f.sqrt(1.0 - power2)
    step = f.elementwise_div(first, f.elementwise_add(f.sqrt(second), root * attrs["epsilon"]))
    param = param - f.elementwise_mul(step, rate * root / (1.0 - power1))
    is_shared = attrs["use_global_beta_pow"]
    return param, first, second, *((power1, power2) if is_shared else (power1 * beta1, power2 * beta2))


def _adams(f: Any, values: Any, names: tuple[str, ...], attrs: Any, decay: float = 0.0) -> dict[str, Any]:
    """Adam of several parameters; `names` are the slots of the updated values, the parameters first."""
    rates = values["LearningRate"]
    rates = rates if isinstance(rates, list) else [rates]
    grads = values["Grad" if names[0] == "Param" else "Grads"]
    results = []
    for place, (param, *state) in enumerate(zip(*(values[name] for name in names), strict=True)):
        rate = rates[0 if len(rates) == 1 else place]
        param = f.elementwise_mul(param, 1.0 - rate * decay) if decay else param
        results.append(_adam(f, param, grads[place], rate, state, attrs))
    return {name + "Out": list(items) for name, items in zip(names, zip(*results, strict=True), strict=True)}


_MERGED = ("Param", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow")
_FUSED = ("Params", "Moments1", "Moments2", "Beta1Pows", "Beta2Pows")


@composed(
    "merged_adam(Param*, Grad*, LearningRate*, Moment1*, Moment2*, Beta1Pow*, Beta2Pow*, MasterParam*?)"
    " -> ParamOut*, Moment1Out*, Moment2Out*, Beta1PowOut*, Beta2PowOut*, MasterParamOut*?",
    grad=NOT_DIFFERENTIABLE,
    **_ADAM,
)
def merged_adam(f: Any, values: Any, attrs: Any) -> Any:
    """`adam` of several parameters; LearningRate is one for all, or one for each."""
    _refuse_masters("merged_adam", values.get("MasterParam"))
    return _adams(f, values, _MERGED, attrs)


@composed(
    "fused_adam(Params*, Grads*, LearningRate, Moments1*, Moments2*, Beta1Pows*, Beta2Pows*, MasterParams*?, SkipUpdate?)"
    " -> ParamsOut*, Moments1Out*, Moments2Out*, Beta1PowsOut*, Beta2PowsOut*, MasterParamsOut*?",
    grad=NOT_DIFFERENTIABLE,
    chunk_size=32768,
    weight_decay=0.0,
    use_adamw=False,
    **_ADAM,
)
def fused_adam(f: Any, values: Any, attrs: Any) -> Any:
    """`adam` of several parameters; with `use_adamw`, they shrink by ``LearningRate * weight_decay`` before."""
    _refuse_masters("fused_adam", values.get("MasterParams"))
    if values.get("SkipUpdate") is not None:
        raise InferenceError("fused_adam with SkipUpdate is not here")
    return _adams(f, values, _FUSED, attrs, attrs["weight_decay"] if attrs["use_adamw"] else 0.0)


# --------------------------------------------------------------------------------------------------- rates, losses, parts
@composed(
    "pow2_decay_with_linear_warmup(LearningRate: float, Step: int) -> LearningRateOut, StepOut",
    grad=NOT_DIFFERENTIABLE,
    warmup_steps=least(1, long(1)),
    total_steps=least(1, long(1)),
    base_lr=required("float"),
    end_lr=required("float"),
)
def pow2_decay_with_linear_warmup(f: Any, LearningRate: Any, Step: Any, attrs: Any) -> Any:
    """A rate that rises to `base_lr` in `warmup_steps`, and falls as a square to `end_lr` until `total_steps`; Step counts on."""
    step, warmup, total = Step + 1, attrs["warmup_steps"], attrs["total_steps"]
    now = step.astype(LearningRate.dtype)
    left = (total - now) / float(max(total - warmup, 1))
    falling = f.square(left) * (attrs["base_lr"] - attrs["end_lr"]) + attrs["end_lr"]
    end = f.fill_any_like(now, value=attrs["end_lr"])
    later = f.where(now < float(total), falling, end)
    return {"LearningRateOut": f.where(now <= float(warmup), now * (attrs["base_lr"] / warmup), later), "StepOut": step}


@composed("identity_loss(X: float) -> Out", listed=[], reduction=1)
def identity_loss(f: Any, X: Any, attrs: Any) -> Any:
    """The sum of X (`reduction` 0), its mean (1), or X itself (2), as the loss to minimize."""
    kind = attrs["reduction"]
    if kind not in (0, 1, 2):
        raise InferenceError(f"identity_loss: reduction {kind} should be 0 for a sum, 1 for a mean, or 2 for none")
    return f.assign(X) if kind == 2 else (f.reduce_mean if kind else f.reduce_sum)(X, dim=[0], reduce_all=True)


@composed("batch_fc(Input: float[S, N, I], W: float[S, I, O], Bias: float[S, O]) -> Out", listed=[])
def batch_fc(f: Any, Input: Any, W: Any, Bias: Any) -> Any:
    """``Input @ W + Bias`` for each of the matrices of a batch."""
    return f.elementwise_add(f.matmul_v2(Input, W), f.unsqueeze2(Bias, axes=[1]))


@composed(
    "margin_cross_entropy(Logits: float[N, C], Label: int) -> Softmax, Loss",
    wrt=["Logits"],
    listed=["Softmax"],
    return_softmax=False,
    ring_id=0,
    rank=0,
    nranks=1,
    margin1=1.0,
    margin2=0.5,
    margin3=0.0,
    scale=64.0,
)
def margin_cross_entropy(f: Any, Logits: Any, Label: Any, attrs: Any) -> Any:
    """The cross entropy of ``scale * Logits``, cosines of angles, where the label's cosine is first made harder:
    ``cos(margin1 * angle + margin2) - margin3``. Classes are all here (`nranks` is 1)."""
    if attrs["nranks"] != 1:
        raise InferenceError("margin_cross_entropy over classes on several devices (nranks) is not here")
    classes = f.cumsum(f.fill_any_like(Logits, value=1, dtype=int(Label.dtype)), axis=1, exclusive=True)
    chosen = f.equal(classes, f.reshape2(Label, shape=[-1, 1])).astype(Logits.dtype)
    cosine = f.reduce_sum(Logits * chosen, dim=[1], keep_dim=True)
    harder = f.cos(f.acos(cosine) * attrs["margin1"] + attrs["margin2"]) - attrs["margin3"]
    scores = (Logits + f.elementwise_mul(chosen, harder - cosine)) * attrs["scale"]
    loss = f.reduce_sum(f.log_softmax(scores, axis=-1) * chosen, dim=[1], keep_dim=True) * -1.0
    return {"Softmax": f.softmax(scores, axis=-1), "Loss": loss}


# -------------------------------------------------------------------------------------- dropout fused, where it drops nothing
def _undropped(x: Any, op: str, probability: float, is_test: bool, implementation: str) -> Any:
    """Apply a dropout that draws nothing to x: it may still scale."""
    if probability and not is_test:
        raise InferenceError(f"{op} in training draws on a GPU what is dropped; set its dropout to 0, or is_test")
    return x * (1.0 - probability) if is_test and implementation == "downgrade_in_infer" else x


def _dropped_and_added(f: Any, values: Any, attrs: Any, wanted: set[str]) -> dict[str, Any]:
    if values.get("PTensor") is not None:
        raise InferenceError("fused_dropout_add with its probability in a tensor (PTensor) is not here")
    return {"out": _undropped(values["x"], "fused_dropout_add", attrs["p"], attrs["is_test"], attrs["mode"]) + values["y"]}


@define(
    "fused_dropout_add(x: float, y, seed_tensor?, PTensor?) -> out, seed_offset?",
    composition=Composition(_dropped_and_added),
    wrt=["x", "y"],
    p=required("float"),
    is_test=False,
    mode="upscale_in_train",
    seed=0,
    fix_seed=False,
)
def fused_dropout_add(f: Any, PTensor: ShapeOnly, seed_offset: ShapeOnly, dout: Any, p: float, is_test: bool, mode: str) -> Any:
    """``dropout(x) + y``, where nothing is drawn: in test mode, or with `p` 0."""
    return {"x": _undropped(dout, "fused_dropout_add", p, is_test, mode), "y": dout}


@composed(
    "fused_bias_dropout_residual_layer_norm(X: float, Residual, Bias?, LnScale?, LnBias?)"
    " -> Y, BiasDropoutResidualOut~, DropoutMaskOut~, LnMean~, LnVariance~",
    listed=["BiasDropoutResidualOut", "DropoutMaskOut", "LnMean", "LnVariance"],
    dropout_rate=0.5,
    is_test=False,
    dropout_fix_seed=True,
    dropout_seed=1,
    dropout_implementation="downgrade_in_infer",
    ln_epsilon=least(0, 1e-5),
)
def fused_bias_dropout_residual_layer_norm(
    f: Any, X: Any, Residual: Any, Bias: Any, LnScale: Any, LnBias: Any, attrs: Any
) -> Any:
    """`layer_norm`, along the last axis, of ``dropout(X + Bias) + Residual`` in test mode."""
    x = X if Bias is None else f.elementwise_add(X, Bias)
    name, rate = "fused_bias_dropout_residual_layer_norm", attrs["dropout_rate"]
    x = _undropped(x, name, rate, attrs["is_test"], attrs["dropout_implementation"]) + Residual
    y = f.layer_norm(x, LnScale, LnBias, epsilon=attrs["ln_epsilon"], begin_norm_axis=x.ndim - 1)
    rows = f.flatten2(x, axis=x.ndim - 1)
    mean = f.reduce_mean(rows, dim=[1], keep_dim=True)
    saved = {"LnMean": f.reshape2(mean, shape=[-1]), "LnVariance": f.reduce_mean(f.square(rows - mean), dim=[1])}
    mask = f.fill_any_like(X, value=1.0, dtype=int(VarType.UINT8))
    return {"Y": y, "BiasDropoutResidualOut": x, "DropoutMaskOut": mask, **saved}
