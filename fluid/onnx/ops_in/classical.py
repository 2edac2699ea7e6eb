"""Ops of the domain ai.onnx.ml on tables of numbers: scaled, selected and filled features, linear models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.types import VarType, is_floating
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from .elementwise import choose


def classical(op_type: str, trains: bool = True) -> Callable[[Any], Any]:
    """Register the decorated function as the importer of an op of ai.onnx.ml."""
    return imports(f"ai.onnx.ml::{op_type}", trains=trains)


def as_floats(b: Builder, x: Any) -> Any:
    """Cast integers and halves to float32, as models of this domain compute."""
    return x if x.dtype in (VarType.FP32, VarType.FP64) else b.cast(x, VarType.FP32)


def post_transformed(b: Builder, x: Any, name: str) -> Any:
    """Apply the attribute `post_transform` to scores."""
    match name:
        case "NONE":
            return x
        case "LOGISTIC":
            return b.f.sigmoid(x)
        case "SOFTMAX":
            return b.f.softmax(x, axis=-1)
        case "SOFTMAX_ZERO":  # scores of 0 take no part, and stay
            is_zero = b.cast(b.f.equal(x, b.f.fill_zeros_like(x)), x.dtype)
            exponentials = b.f.exp(x - b.reduce("reduce_max", x, [-1], True)) * (1.0 - is_zero)
            return exponentials / (
                b.reduce("reduce_sum", exponentials, [-1], True) + b.reduce("reduce_prod", is_zero, [-1], True)
            )
        case "PROBIT":
            return b.f.erfinv(x * 2.0 - 1.0) * float(np.sqrt(2))
    raise FormatError(f"its post_transform {name!r} should be NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO or PROBIT")


def whole_labels(node: OnnxNode, name: str) -> Any:
    """The labels of classes as integers."""
    labels = node.ints(name)
    if not labels:
        raise FormatError(
            f"its labels should be integers in {name}; programs hold no strings. Convert the model with numbers as labels"
        )
    return np.array(labels, np.int64)


def _per_feature(node: OnnxNode, name: str, default: float) -> Any:
    return np.array(node.floats(name, [default]), np.float32)


@classical("Scaler")
def scaler(b: Builder, node: OnnxNode) -> Any:
    x = as_floats(b, node[0])
    return (x - _cast(b, _per_feature(node, "offset", 0.0), x)) * _cast(b, _per_feature(node, "scale", 1.0), x)


def _cast(b: Builder, array: Any, like: Any) -> Any:
    return b.variables(b.constant(array.astype(like.dtype.array_dtype)))


@classical("Normalizer")
def normalizer(b: Builder, node: OnnxNode) -> Any:
    x, norm = as_floats(b, node[0]), node.string("norm", "MAX")
    if norm == "MAX":
        size = b.reduce("reduce_max", x, [-1], True)
    elif norm == "L1":
        size = b.reduce("reduce_sum", b.f.abs(x), [-1], True)
    elif norm == "L2":
        size = b.f.sqrt(b.reduce("reduce_sum", x * x, [-1], True))
    else:
        raise FormatError(f"its norm {norm!r} should be MAX, L1 or L2")
    is_zero = b.cast(b.f.equal(size, b.f.fill_zeros_like(size)), x.dtype)
    return x / (size + is_zero)


@classical("Binarizer", trains=False)
def binarizer(b: Builder, node: OnnxNode) -> Any:
    x = as_floats(b, node[0])
    return b.cast(b.f.greater_than(x, b.number(node.float("threshold", 0.0), x.dtype)), x.dtype)


@classical("Imputer")
def imputer(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    kind = "float" if is_floating(x.dtype) else "int64"
    values = node.floats("imputed_value_floats") if kind == "float" else node.ints("imputed_value_int64s")
    if not values:
        raise FormatError(f"it has no values to fill in for elements of {kind}")
    replaced = node.float("replaced_value_float", 0.0) if kind == "float" else node.int("replaced_value_int64", 0)
    is_missing = b.f.isnan_v2(x) if replaced != replaced else b.f.equal(x, b.number(replaced, x.dtype))
    return choose(b, is_missing, _cast(b, np.array(values), x), x)


@classical("ArrayFeatureExtractor")
def array_feature_extractor(b: Builder, node: OnnxNode) -> Any:
    x = node[0] if node[0].ndim > 1 else b.unsqueeze(node[0], [0])
    return b.f.gather(x, b.f.reshape2(node[1], shape=[-1]), axis=x.ndim - 1)


@classical("FeatureVectorizer")
def feature_vectorizer(b: Builder, node: OnnxNode) -> Any:
    parts = [b.cast(part if part.ndim > 1 else b.unsqueeze(part, [0]), VarType.FP32) for part in node.variables()]
    for part, size in zip(parts, node.ints("inputdimensions", []), strict=True):
        if part.shape[1] not in (-1, size):
            raise FormatError(f"an input has {part.shape[1]} features, and inputdimensions says {size}")
    return b.f.concat(parts, axis=1)


def _linear(b: Builder, node: OnnxNode, count: int) -> Any:
    """The scores of a linear model with so many outputs."""
    x = as_floats(b, node[0])
    x = x if x.ndim > 1 else b.unsqueeze(x, [0])
    weights = np.array(node.floats("coefficients", []), np.float32)
    if count < 1 or not weights.size or weights.size % count:
        raise FormatError(f"its {weights.size} coefficients do not divide among {count} outputs")
    scores = b.f.matmul_v2(x, _cast(b, np.ascontiguousarray(weights.reshape(count, -1).T), x))
    intercepts = node.floats("intercepts")
    return scores + _cast(b, np.array(intercepts), x) if intercepts else scores


@classical("LinearRegressor")
def linear_regressor(b: Builder, node: OnnxNode) -> Any:
    return post_transformed(b, _linear(b, node, node.int("targets", 1)), node.string("post_transform", "NONE"))


@classical("LinearClassifier")
def linear_classifier(b: Builder, node: OnnxNode) -> Any:
    labels = whole_labels(node, "classlabels_ints")
    if len(labels) < 2 or len(node.floats("intercepts", labels)) != len(labels):
        raise FormatError("it should have an intercept, and coefficients, for each of two or more labels")
    scores = _linear(b, node, len(labels))
    best = b.f.arg_max(scores, axis=-1, keepdims=False, dtype=int(VarType.INT64))
    label = b.f.gather(_cast(b, labels, best), best)
    return label, post_transformed(b, scores, node.string("post_transform", "NONE"))


@classical("ZipMap")
def zip_map(b: Builder, node: OnnxNode) -> Any:
    raise FormatError("programs hold no dictionaries. Convert the model without them, in skl2onnx by options={'zipmap': False}")
