"""Random single ops with their gradients, at sizes from practice.

Half of them come of families that say what shapes and attributes are sensible; the others are samples of any op, some of whose
dimensions are stretched.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from checks import fresh_programs
from numeric import flat
from samples import OPS, Sample

import fluid
from fluid import layers
from fluid.errors import FluidError
from fluid.executor.binding.compiled import apply_op
from fluid.ir.program import Variable
from fluid.opdef import registry
from fluid.opdef.registry import Rule, updated_input
from fluid.values.lod_array import array_of, lod_of, with_lod

from .arrays import Fed
from .building import ACTIVATIONS, broadcast_shape, dense, random_order, refusals
from .cases import Case, Unfit, names_of
from .choices import BATCHES, IMAGE_SIZES, Choices
from .windows import divisor, filter_window, pool_window

__all__ = ["FAMILIES", "make_op"]

Inputs = dict[str, Any]
"""Slot -> what is fed, or a list of that."""
OpCall = tuple[str, Inputs, dict[str, Any]]
"""An op, its inputs and its attributes."""

ELEMENTS = 1_000_000
PRODUCTS = 25_000_000


class Draft:
    """Makes what an op is fed."""

    def __init__(self, choices: Choices, dtype: str) -> None:
        self.choices, self.dtype, self.count = choices, dtype, 0

    def _arguments(self, shape: Sequence[int], dtype: str | None = None) -> tuple[Any, ...]:
        self.count += 1
        if prod(shape) > 4 * ELEMENTS:
            raise Unfit("too many elements")
        return self.count, tuple(shape), dtype or self.dtype

    def normal(self, shape: Sequence[int], scale: float = 1.0) -> Fed:
        return Fed("normal", (*self._arguments(shape), scale))

    def uniform(self, shape: Sequence[int], low: float, high: float) -> Fed:
        return Fed("uniform", (*self._arguments(shape), low, high))

    def integers(self, shape: Sequence[int], high: int, dtype: str = "int64") -> Fed:
        return Fed("integers", (*self._arguments(shape, dtype), 0, high))

    def bools(self, shape: Sequence[int]) -> Fed:
        return Fed("bools", self._arguments(shape)[:2])

    def shape(self, *ranks: int, elements: int = ELEMENTS) -> list[int]:
        """A shape of one of some ranks; which of its axes is long is left to chance."""
        rank = self.choices.pick(ranks or (2, 1, 3, 4))
        extents, order = [1] * rank, list(range(rank))
        for place in range(rank):
            axis = order.pop(self.choices.below(len(order)))
            most = elements // prod(extents)
            extents[axis] = self.choices.extent(min(most, 8192 if place == 0 else 5000))
        return extents


# ------------------------------------------------------------------------------------------------------------- families
_OPS: dict[str, str] = {
    "elementwise": """elementwise_add elementwise_sub elementwise_mul elementwise_div elementwise_max elementwise_min
        elementwise_pow elementwise_mod minus maximum minimum""",
    "comparison": """
        less_than less_equal greater_than greater_equal equal not_equal logical_and logical_or logical_xor""",
    "reduction": """reduce_sum reduce_mean reduce_max reduce_min reduce_prod reduce_any reduce_all reduce_amax reduce_amin
        logsumexp frobenius_norm p_norm norm mean squared_l2_norm l1_norm cumsum arg_max arg_min clip_by_norm""",
    "loss": """softmax_with_cross_entropy softmax log_softmax cross_entropy sigmoid_cross_entropy_with_logits huber_loss
        log_loss kldiv_loss smooth_l1_loss hinge_loss bce_loss rank_loss margin_rank_loss bpr_loss cos_sim
        squared_l2_distance label_smooth mse_loss""",
    "movement": """transpose2 concat split stack unstack slice strided_slice pad pad2d expand tile reshape2 flip roll where
        expand_v2""",
    "indexing": """lookup_table gather index_select gather_nd scatter_nd_add scatter one_hot lookup_table_v2 top_k argsort
        index_sample""",
}
"""Family -> its ops, the simplest first."""


def elementwise(d: Draft) -> OpCall:
    c = d.choices
    op_type = c.pick(_OPS["elementwise"].split())
    shape = d.shape()
    attrs: dict[str, Any] = {}
    if op_type == "minus":
        second = shape
    elif c.chance(25) and len(shape) > 1:  # a run of axes
        start = c.below(len(shape))
        end = c.between(start + 1, len(shape))
        second, attrs["axis"] = shape[start:end], start
    else:
        second = broadcast_shape(c, shape) if len(shape) > 1 else [c.pick((1, shape[0]))]
        if c.chance(20):
            shape = [1 if c.chance(30) else extent for extent in shape]
    low, high = {"elementwise_div": (0.5, 2.0), "elementwise_pow": (-2.0, 2.0), "elementwise_mod": (0.5, 2.0)}.get(
        op_type, (-2.0, 2.0)
    )
    first = d.uniform(shape, 0.3, 2.0) if op_type == "elementwise_pow" else d.normal(shape)
    return op_type if op_type in OPS else "elementwise_add", {"X": first, "Y": d.uniform(second, low, high)}, attrs


def comparison(d: Draft) -> OpCall:
    c = d.choices
    op_type = c.pick(_OPS["comparison"].split())
    shape = d.shape()
    second = broadcast_shape(c, shape) if len(shape) > 1 else shape
    if op_type.startswith("logical"):
        return op_type, {"X": d.bools(shape), "Y": d.bools(second)}, {}
    if c.chance(50):
        dtype = c.pick(("int64", "int32"))
        return op_type, {"X": d.integers(shape, 5, dtype), "Y": d.integers(second, 5, dtype)}, {}
    return op_type, {"X": d.normal(shape), "Y": d.normal(second)}, {}


@cache
def unary_ops() -> dict[str, tuple[float, float, list[dict[str, Any]]]]:
    """Op from X to Out of the same shape -> the range of X in its samples, and its attributes there."""
    ranges = {}
    for op_type, samples in sorted(OPS.items()):
        usable = [
            s for s in samples if set(s.inputs) == {"X"} and not isinstance(s.inputs["X"], list) and not s.random and not s.lods
        ]
        usable = [s for s in usable if np.asarray(s.inputs["X"]).dtype.kind == "f" and np.asarray(s.inputs["X"]).size]
        definition = registry.find(op_type)
        if not usable or definition is None or set(definition.outputs) != {"Out"} or len(usable) < 2:
            continue
        try:
            is_alike = all(
                apply_op(op_type, {"X": s.inputs["X"]}, s.attrs)["Out"].shape == np.shape(s.inputs["X"]) for s in usable
            )
        except (FluidError, TypeError, AttributeError):
            continue
        if is_alike and len({np.ndim(s.inputs["X"]) for s in usable}) > 1:
            every = np.concatenate([np.ravel(s.inputs["X"]) for s in usable])
            ranges[op_type] = float(every.min()), float(every.max()), [s.attrs for s in usable]
    return ranges


def activation(d: Draft) -> OpCall:
    ops = unary_ops()
    op_type = d.choices.pick(list(ops))
    low, high, attrs = ops[op_type]
    chosen = d.choices.pick(attrs)
    shape = d.shape()
    fits = [sample for sample in OPS[op_type] if sample.attrs == chosen]
    if "axis" in chosen or "dim" in chosen:
        shape = d.shape(max(np.ndim(sample.inputs["X"]) for sample in fits))
    return op_type, {"X": d.uniform(shape, low, high)}, dict(chosen)


def reduction(d: Draft) -> OpCall:
    c = d.choices
    op_type = c.pick(_OPS["reduction"].split())
    shape = d.shape(2, 1, 3, 4)
    axes = [axis for axis in range(len(shape)) if c.chance(50)] or [c.below(len(shape))]
    if c.chance(25):
        axes = [axis - len(shape) for axis in axes]
    attrs: dict[str, Any] = {"dim": axes, "keep_dim": c.chance(40), "reduce_all": c.chance(20)}
    value = d.normal(shape)
    if op_type in ("reduce_any", "reduce_all"):
        value = d.bools(shape)
    elif op_type == "reduce_prod":
        value = d.uniform(shape, 0.99, 1.01)
    elif op_type == "logsumexp":
        attrs = {"axis": axes, "keepdim": attrs["keep_dim"], "reduce_all": attrs["reduce_all"]}
    elif op_type == "p_norm":
        attrs = {
            "axis": axes[0],
            "keepdim": attrs["keep_dim"],
            "porder": c.pick((2.0, 1.0, 3.0, float("inf"))),
            "asvector": c.chance(20),
        }
    elif op_type == "norm":
        attrs = {"axis": axes[0], "epsilon": 1e-10}
    elif op_type == "cumsum":
        attrs = {"axis": axes[0], "exclusive": c.chance(30), "reverse": c.chance(30)}
    elif op_type in ("arg_max", "arg_min"):
        attrs = {"axis": axes[0], "keepdims": c.chance(30)}
    elif op_type == "clip_by_norm":
        attrs = {"max_norm": c.pick((1.0, 1000.0))}
    elif op_type in ("mean", "squared_l2_norm", "l1_norm"):
        attrs = {}
    return op_type, {"X": value}, attrs


def product(d: Draft) -> OpCall:
    c = d.choices
    op_type = c.pick(("matmul", "mul", "matmul_v2", "bmm", "mv", "dot", "addmm"))
    sizes, order, left = [1, 1, 1], [0, 1, 2], PRODUCTS
    for _ in range(3):
        place = order.pop(c.below(len(order)))
        most = left
        most = min([most, *(ELEMENTS // size for axis, size in enumerate(sizes) if axis != place)])
        sizes[place] = c.extent(min(most, 8192))
        left //= sizes[place]
    m, k, n = sizes
    if op_type == "mul":
        x, y = [m, k], [k, n]
        attrs = {"x_num_col_dims": 1, "y_num_col_dims": 1}
        part = divisor(c, m, (1, 2, 3, 5, 8, 16))
        if part > 1:
            x, attrs["x_num_col_dims"] = [part, m // part, k], 2
        return op_type, {"X": d.normal(x), "Y": d.normal(y)}, attrs
    if op_type == "mv":
        return op_type, {"X": d.normal([m, k]), "Vec": d.normal([k])}, {}
    if op_type == "dot":
        return op_type, {"X": d.normal([m, k]), "Y": d.normal([m, k])}, {}
    if op_type == "addmm":
        added = c.pick(([m, n], [n], [1, n], [m, 1]))
        return op_type, {"Input": d.normal(added), "X": d.normal([m, k]), "Y": d.normal([k, n])}, {"Alpha": 0.5, "Beta": 2.0}
    batch = [c.extent(max(min(left, 64), 1))] if op_type == "bmm" or c.chance(40) else []
    if batch and c.chance(30) and op_type != "bmm":
        batch = [2, *batch]
    if prod(batch) * max(m * k, k * n, m * n) > 4 * ELEMENTS:
        raise Unfit("too many elements")
    if op_type == "bmm":
        return op_type, {"X": d.normal([*batch, m, k]), "Y": d.normal([*batch, k, n])}, {}
    turn_x, turn_y = c.chance(35), c.chance(35)
    x, y = [*batch, *((k, m) if turn_x else (m, k))], [*batch, *((n, k) if turn_y else (k, n))]
    if batch and c.chance(25) and op_type == "matmul_v2":
        y = y[len(batch) :]
    names = ("transpose_X", "transpose_Y") if op_type == "matmul" else ("trans_x", "trans_y")
    attrs = dict(zip(names, (turn_x, turn_y), strict=True))
    if op_type == "matmul" and c.chance(30):
        attrs["alpha"] = 0.125
    return op_type, {"X": d.normal(x), "Y": d.normal(y)}, attrs


def _image(d: Draft, channels: Sequence[int] = (3, 1, 2, 4, 8, 16, 17, 32, 33, 64, 128)) -> list[int]:
    c = d.choices
    batch, count = c.extent(256, BATCHES), c.pick(channels)
    if batch * count > ELEMENTS // 4:
        batch = 1
    most = max(int((ELEMENTS / (batch * count)) ** 0.5), 1)
    height = c.extent(min(most, 224), IMAGE_SIZES)
    width = height if c.chance(50) else c.extent(min(ELEMENTS // (batch * count * height), 224), IMAGE_SIZES)
    return [batch, count, height, width]


def convolution(d: Draft) -> OpCall:
    c = d.choices
    op_type = c.pick(("conv2d", "depthwise_conv2d", "conv2d_transpose", "conv2d", "depthwise_conv2d_transpose"))
    is_depthwise, is_transposed = op_type.startswith("depthwise"), op_type.endswith("transpose")
    batch, channels, *extents = _image(d)
    window = filter_window(c, extents)
    outputs = window.transposed_outputs(extents) if is_transposed else window.outputs(extents)
    groups = channels if is_depthwise else 1 if c.chance(60) else divisor(c, channels, (1, 2, 4, 8))
    taps = prod(window.sizes) * channels // groups
    places = batch * prod(extents if is_transposed else outputs)
    most = min(PRODUCTS // max(places * taps, 1), ELEMENTS // max(batch * prod(outputs), taps), 512) // groups
    if most < 1:
        raise Unfit("too much work")
    per_group = c.extent(min(most, 3) if is_depthwise else most)
    attrs = {"strides": window.strides, "paddings": window.paddings, "dilations": window.dilations, "groups": groups}
    if c.chance(10):
        attrs["padding_algorithm"] = c.pick(("SAME", "VALID"))
    shape = [batch, channels, *extents]
    if c.chance(35) and not is_depthwise:  # native code reads such images and gradients where they lie
        attrs["data_format"], shape = "NHWC", [batch, *extents, channels]
    filters = [channels, per_group] if is_transposed else [per_group * groups, channels // groups]
    return op_type, {"Input": d.normal(shape), "Filter": d.normal([*filters, *window.sizes], 0.3)}, attrs


def pooling(d: Draft) -> OpCall:
    c = d.choices
    op_type = c.pick(("pool2d", "max_pool2d_with_index"))
    batch, channels, *extents = _image(d, (3, 1, 2, 4, 16, 17, 64))
    window = pool_window(c, extents)
    attrs: dict[str, Any] = {"ksize": window.sizes, "strides": window.strides, "paddings": window.paddings}
    if c.chance(10):
        attrs["global_pooling"] = True
    elif c.chance(15):
        attrs |= {"adaptive": True, "ksize": [c.between(1, min(extent, 9)) for extent in extents], "paddings": [0, 0]}
    shape = [batch, channels, *extents]
    if op_type == "pool2d":
        attrs |= {"pooling_type": c.pick(("max", "avg")), "ceil_mode": c.chance(35), "exclusive": c.chance(60)}
        if c.chance(10):
            attrs["data_format"], shape = "NHWC", [batch, *extents, channels]
    return op_type, {"X": d.normal(shape)}, attrs


def normalization(d: Draft) -> OpCall:
    c = d.choices
    op_type = c.pick(("batch_norm", "layer_norm", "group_norm", "instance_norm", "affine_channel", "lrn", "data_norm"))
    shape = d.shape(4, 3) if op_type in ("group_norm", "instance_norm") else d.shape(2, 4, 3)
    if op_type in ("lrn", "affine_channel"):
        shape = d.shape(4)
    inputs: Inputs = {"X": d.normal(shape, c.pick((1.0, 5.0, 0.1)))}
    count = shape[1]
    if op_type == "batch_norm":
        attrs: dict[str, Any] = {"momentum": 0.9, "epsilon": 1e-5, "use_global_stats": c.chance(15)}
        if c.chance(15) and len(shape) == 4:
            attrs["data_layout"], count = "NHWC", shape[-1]
        inputs |= {"Scale": d.uniform([count], 0.5, 1.5), "Bias": d.normal([count])}
        return op_type, inputs | {"Mean": d.normal([count]), "Variance": d.uniform([count], 0.5, 2.0)}, attrs
    if op_type == "layer_norm":
        first = c.between(1, len(shape) - 1)
        width = prod(shape[first:])
        inputs |= {} if c.chance(20) else {"Scale": d.uniform([width], 0.5, 1.5)}
        return (
            op_type,
            inputs | ({} if c.chance(20) else {"Bias": d.normal([width])}),
            {"begin_norm_axis": first, "epsilon": 1e-5},
        )
    if op_type == "data_norm":
        inputs = {"X": d.normal(shape := d.shape(2))}
        inputs |= {
            "BatchSize": d.uniform([shape[1]], 5, 9),
            "BatchSum": d.normal([shape[1]]),
            "BatchSquareSum": d.uniform([shape[1]], 5, 9),
        }
        return op_type, inputs, {}
    if op_type == "lrn":
        return op_type, inputs, {"n": c.pick((3, 5)), "alpha": 0.1, "beta": 0.75, "k": 1.0}
    more = {"Scale": d.uniform([count], 0.5, 1.5), "Bias": d.normal([count])}
    if op_type == "affine_channel":
        return op_type, inputs | more, {}
    attrs = {"epsilon": 1e-5}
    if op_type == "group_norm":
        attrs["groups"] = divisor(c, count, (1, 2, 3, 4, 8, 16, 32))
    return op_type, inputs | ({} if c.chance(20) else more), attrs


def loss(d: Draft) -> OpCall:
    c = d.choices
    op_type = c.pick(_OPS["loss"].split())
    rows, classes = d.shape(2)
    shape, column = [rows, classes], [rows, 1]
    if op_type in ("softmax", "log_softmax"):
        shape = d.shape(2, 3, 4, 1)
        return op_type, {"X": d.normal(shape, 2.0)}, {"axis": c.between(-len(shape), len(shape) - 1)}
    if op_type == "softmax_with_cross_entropy":
        if c.chance(30):
            return op_type, {"Logits": d.normal(shape), "Label": d.uniform(shape, 0.0, 2.0 / classes)}, {"soft_label": True}
        if c.chance(30):
            shape = d.shape(3, 4)
            axis = c.between(1, len(shape) - 1)
            labels = [1 if place == axis else extent for place, extent in enumerate(shape)]
            return op_type, {"Logits": d.normal(shape), "Label": d.integers(labels, shape[axis])}, {"axis": axis}
        return op_type, {"Logits": d.normal(shape), "Label": d.integers(column, classes)}, {"ignore_index": c.pick((-100, 0))}
    if op_type == "cross_entropy":
        if c.chance(30):
            return op_type, {"X": d.uniform(shape, 0.1, 1.0), "Label": d.uniform(shape, 0.0, 1.0)}, {"soft_label": True}
        return (
            op_type,
            {"X": d.uniform(shape, 0.1, 1.0), "Label": d.integers(column, classes)},
            {"ignore_index": c.pick((-100, 0))},
        )
    if op_type == "sigmoid_cross_entropy_with_logits":
        return op_type, {"X": d.normal(shape), "Label": d.uniform(shape, 0.0, 1.0)}, {}
    if op_type == "huber_loss":
        return op_type, {"X": d.normal(column), "Y": d.normal(column)}, {"delta": 0.5}
    if op_type == "log_loss":
        return op_type, {"Predicted": d.uniform(column, 0.1, 0.9), "Labels": d.uniform(column, 0.0, 1.0)}, {"epsilon": 1e-4}
    if op_type == "kldiv_loss":
        return (
            op_type,
            {"X": d.normal(shape), "Target": d.uniform(shape, 0.1, 1.0)},
            {"reduction": c.pick(("mean", "sum", "none", "batchmean"))},
        )
    if op_type == "smooth_l1_loss":
        return op_type, {"X": d.normal(shape), "Y": d.normal(shape)}, {"sigma": c.pick((1.0, 2.0))}
    if op_type == "hinge_loss":
        return op_type, {"Logits": d.normal(column), "Labels": d.uniform(column, 0.0, 1.0)}, {}
    if op_type == "bce_loss":
        return op_type, {"X": d.uniform(shape, 0.05, 0.95), "Label": d.uniform(shape, 0.0, 1.0)}, {}
    if op_type in ("rank_loss", "margin_rank_loss"):
        slots = ("Left", "Right") if op_type == "rank_loss" else ("X1", "X2")
        attrs = {} if op_type == "rank_loss" else {"margin": 0.1}
        return op_type, {"Label": d.uniform(column, 0.0, 1.0), slots[0]: d.normal(column), slots[1]: d.normal(column)}, attrs
    if op_type == "bpr_loss":
        return op_type, {"X": d.normal([rows, max(classes, 2)]), "Label": d.integers(column, max(classes, 2))}, {}
    if op_type == "label_smooth":
        return op_type, {"X": d.uniform(shape, 0.0, 1.0)}, {"epsilon": 0.1}
    if op_type in ("cos_sim", "squared_l2_distance"):
        return op_type, {"X": d.normal(shape), "Y": d.normal([1 if c.chance(30) else rows, classes])}, {}
    return "huber_loss", {"X": d.normal(shape), "Y": d.normal(shape)}, {"delta": 1.0}


def movement(d: Draft) -> OpCall:
    c = d.choices
    op_type = c.pick(_OPS["movement"].split())
    shape = d.shape(2, 3, 4, 1)
    rank = len(shape)
    axis = c.below(rank)
    value = d.normal(shape)
    if op_type == "transpose2":
        return op_type, {"X": value}, {"axis": random_order(c, rank)}
    if op_type == "concat":
        more = [
            d.normal([c.extent(64) if place == axis else extent for place, extent in enumerate(shape)])
            for _ in range(c.between(1, 3))
        ]
        return op_type, {"X": [value, *more]}, {"axis": axis}
    if op_type == "split":
        if c.chance(50) or shape[axis] < 2:
            return op_type, {"X": value}, {"axis": axis, "num": divisor(c, shape[axis], (1, 2, 3, 4, 8))}
        first = c.between(1, shape[axis] - 1)
        return op_type, {"X": value}, {"axis": axis, "sections": [first, shape[axis] - first]}
    if op_type == "stack":
        return op_type, {"X": [d.normal(shape) for _ in range(c.between(1, 4))]}, {"axis": c.below(rank + 1)}
    if op_type == "unstack":
        shape[axis] = min(shape[axis], 9)
        return op_type, {"X": d.normal(shape)}, {"axis": axis, "num": shape[axis]}
    if op_type in ("slice", "strided_slice"):
        axes = [place for place in range(rank) if c.chance(50)] or [axis]
        starts = [c.below(shape[place]) for place in axes]
        ends = [c.between(start + 1, shape[place]) for place, start in zip(axes, starts, strict=True)]
        attrs = {"axes": axes, "starts": starts, "ends": ends}
        if op_type == "strided_slice":
            attrs["strides"] = [c.between(1, 3) for _ in axes]
        return op_type, {"Input": value}, attrs
    if op_type == "pad":
        return op_type, {"X": value}, {"paddings": [c.below(4) for _ in range(2 * rank)], "pad_value": 0.5}
    if op_type == "pad2d":
        shape = _image(d)
        return (
            op_type,
            {"X": d.normal(shape)},
            {"paddings": [c.below(min(shape[2 + i // 2], 5)) for i in range(4)], "mode": c.pick(("constant", "edge", "reflect"))},
        )
    if op_type in ("expand", "tile"):
        times = [c.pick((1, 2, 3, 5)) for _ in shape]
        if prod(shape) * prod(times) > 2 * ELEMENTS:
            times = [1] * rank
        return op_type, {"X": value}, {"expand_times" if op_type == "expand" else "repeat_times": times}
    if op_type == "expand_v2":
        target = [extent if extent != 1 else c.pick((1, 3, 17)) for extent in shape]
        return op_type, {"X": value}, {"shape": [c.between(1, 3), *target]}
    if op_type == "reshape2":
        return op_type, {"X": value}, {"shape": [-1] if c.chance(50) else [0, -1]}
    if op_type == "flip":
        return op_type, {"X": value}, {"axis": [place for place in range(rank) if c.chance(50)] or [axis]}
    if op_type == "roll":
        return op_type, {"X": value}, {"shifts": [c.between(0, shape[axis])], "axis": [axis]}
    return "where", {"Condition": d.bools(shape), "X": value, "Y": d.normal(shape)}, {}


def indexing(d: Draft) -> OpCall:
    c = d.choices
    op_type = c.pick(_OPS["indexing"].split())
    rows, width = d.shape(2)
    count = c.extent(min(8192, 2 * ELEMENTS // width))
    table = d.normal([rows, width])
    if op_type in ("lookup_table", "lookup_table_v2"):
        shape = [count, 1] if op_type == "lookup_table" else [count]
        return op_type, {"W": table, "Ids": d.integers(shape, rows)}, {"padding_idx": c.pick((-1, 0))}
    if op_type == "gather":
        return op_type, {"X": table, "Index": d.integers([count], rows, c.pick(("int64", "int32")))}, {}
    if op_type == "index_select":
        axis = c.below(2)
        count = min(count, 2 * ELEMENTS // (rows if axis else width))
        return op_type, {"X": table, "Index": d.integers([count], (rows, width)[axis])}, {"dim": axis}
    if op_type == "gather_nd":
        return op_type, {"X": table, "Index": d.integers([count, c.between(1, 2)], min(rows, width))}, {}
    if op_type == "scatter_nd_add":
        return op_type, {"X": table, "Index": d.integers([count, 1], rows), "Updates": d.normal([count, width])}, {}
    if op_type == "scatter":
        return op_type, {"X": table, "Ids": d.integers([count], rows), "Updates": d.normal([count, width])}, {"overwrite": False}
    if op_type == "one_hot":
        return op_type, {"X": d.integers([count, 1], width)}, {"depth": width}
    if op_type == "top_k":
        return op_type, {"X": table}, {"k": c.between(1, min(width, 9))}
    if op_type == "index_sample":
        return op_type, {"X": table, "Index": d.integers([rows, c.between(1, 9)], width)}, {}
    return "argsort", {"X": table}, {"axis": c.pick((-1, 0)), "descending": c.chance(50)}


@cache
def optimizer_ops() -> dict[str, list[Sample]]:
    """Ops that update a parameter of any shape, and their samples."""
    ops = {}
    for op_type, samples in sorted(OPS.items()):
        usable = [
            s
            for s in samples
            if not isinstance(s.inputs.get("Param"), (list, type(None))) and not s.random and np.ndim(s.inputs["Param"]) == 2
        ]
        if usable and op_type not in ("average_accumulates",):
            ops[op_type] = usable
    return ops


def optimizer(d: Draft) -> OpCall:
    """An update of a parameter; what has its shape in a sample has it here."""
    c = d.choices
    ops = optimizer_ops()
    op_type = c.pick(list(ops))
    sample = c.pick(ops[op_type])
    shape, small = d.shape(2, 1, 3), np.shape(sample.inputs["Param"])
    inputs: Inputs = {}
    for slot, value in sample.inputs.items():
        array = np.asarray(value)
        if value is None or isinstance(value, list):
            raise Unfit("lists of parameters")
        if array.shape == small and array.dtype.kind == "f" and array.size:
            inputs[slot] = d.uniform(shape, float(array.min()), float(array.max()))
        else:
            inputs[slot] = _as_fed(array, d.dtype)
    return op_type, inputs, dict(sample.attrs)


def contraction(d: Draft) -> OpCall:
    """A sum of products of two or three operands, whose axes have any order."""
    c = d.choices
    count = 3 if c.chance(30) else 2
    sizes: dict[str, int] = {}
    terms = [""] * count
    for letter in "abcdefg"[: 2 + c.below(6)]:
        sizes[letter] = c.extent(max(1, min(PRODUCTS // prod(sizes.values()), 2048)))
        places = [place for place in range(count) if c.chance(55)] or [c.below(count)]
        for place in places:
            at = c.below(len(terms[place]) + 1)
            terms[place] = terms[place][:at] + letter + terms[place][at:]
    if not all(terms):
        raise Unfit("an operand without axes")
    result = "".join(letter for letter in "gfedcba" if letter in sizes and c.chance(60))
    shapes = [[sizes[letter] for letter in term] for term in terms]
    if prod(sizes[letter] for letter in result) > 4 * ELEMENTS:
        raise Unfit("too many elements")
    return "einsum", {"Operands": [d.normal(shape) for shape in shapes]}, {"equation": f"{','.join(terms)}->{result}"}


FAMILIES: dict[str, Callable[[Draft], OpCall]] = {
    family.__name__: family
    for family in (
        elementwise, activation, reduction, product, convolution, pooling, normalization, loss, movement, indexing, optimizer,
        comparison, contraction,
    )
}  # fmt: skip


# ----------------------------------------------------------------------------------------------------- stretched samples
DECOMPOSITIONS = {
    *("svd", "qr", "eigh", "eigvalsh", "lu", "lu_unpack", "cholesky", "cholesky_solve", "inverse", "solve", "triangular_solve"),
    *("lstsq", "pinverse", "matrix_power", "determinant", "slogdeterminant", "matrix_rank", "spectral_norm", "spectral_vectors"),
}
LEFT_OUT = {"py_func", "print", "save", "load", "save_combine", "load_combine", "fl_listen_and_serv"}
_SIZES_IN_ATTRS = {
    "shape",
    "depth",
    "num",
    "expand_times",
    "target_shape",
    "class_num",
    "num_classes",
    "hidden_size",
    "input_size",
    "maxlen",
}
"""Attributes that may name the size of a dimension."""
SMALL = 200_000
"""Elements that a stretched sample may have."""


def _as_fed(array: Any, dtype: str) -> Fed:
    return Fed("values", (array.ravel().tolist(), array.shape, dtype if array.dtype.kind == "f" else array.dtype.name))


@cache
def sampled_ops() -> list[str]:
    usable = []
    for op_type, samples in sorted(OPS.items()):
        definition = registry.find(op_type)
        is_ordinary = definition is not None and definition.forward is None and definition.rule is not registry.REGION
        if (
            is_ordinary
            and op_type not in LEFT_OUT
            and not op_type.startswith("c_")
            and any(not sample.random for sample in samples)
        ):
            usable.append(op_type)
    return usable


def stretched(c: Choices, op_type: str, dtype: str) -> tuple[OpCall, Sample]:
    """A sample of an op, with some dimensions of other sizes."""
    sample = c.pick([sample for sample in OPS[op_type] if not sample.random])
    inputs = {slot: [np.asarray(item) for item in flat(value)] for slot, value in sample.inputs.items() if value is not None}
    if any(array.dtype.kind not in "fiub" for arrays in inputs.values() for array in arrays):
        raise Unfit("other elements than numbers")
    attrs, sizes = dict(sample.attrs), {}
    for number in range(c.between(1, 2)):
        if sample.lods:
            break
        places = [
            (slot, index, axis)
            for slot, arrays in inputs.items()
            for index, array in enumerate(arrays)
            for axis in range(array.ndim)
        ]
        if not places:
            break
        slot, index, axis = c.pick(places)
        size = inputs[slot][index].shape[axis]
        if not size or inputs[slot][index].shape[axis] != size:
            break
        how = c.below(3)
        group = [
            place
            for place in places
            if place == (slot, index, axis)
            or (how == 0 and inputs[place[0]][place[1]].shape[place[2]] == size)
            or (how == 1 and place[2] == axis and inputs[place[0]][place[1]].shape[axis] == size)
        ]
        total = max(prod(array.shape) for arrays in inputs.values() for array in arrays)
        extent = c.extent(min(SMALL * size // max(total, 1), 5000 if number == 0 else 130))
        for one, number_in_slot, its_axis in group:
            sizes.setdefault((one, number_in_slot), []).append((its_axis, extent))
            array = inputs[one][number_in_slot]
            inputs[one][number_in_slot] = np.broadcast_to(
                np.zeros((), array.dtype), [extent if i == its_axis else n for i, n in enumerate(array.shape)]
            )
        if any(prod(array.shape) > 4 * SMALL for arrays in inputs.values() for array in arrays):
            raise Unfit("too many elements")
        if how == 0:
            attrs = {name: _resized(name, value, size, extent) for name, value in attrs.items()}
    fed: Inputs = {}
    for slot, value in sample.inputs.items():
        if value is None:
            continue
        items = [_stretched_fed(np.asarray(item), dtype, sizes.get((slot, index), ())) for index, item in enumerate(flat(value))]
        lods = sample.lods.get(slot, ())
        if lods:
            lods_of_items = lods if isinstance(value, list) else [lods]
            items = [
                Fed(item.maker, item.arguments, tuple(tuple(level) for level in lod))
                for item, lod in zip(items, lods_of_items, strict=True)
            ]
        fed[slot] = items if isinstance(value, list) else items[0]
    if sample.lods:
        _repeat_sequences(c, fed)
    return (op_type, fed, attrs), sample


def _resized(name: str, value: Any, size: int, extent: int) -> Any:
    if name not in _SIZES_IN_ATTRS:
        return value
    if isinstance(value, (list, tuple)):
        return [extent if item == size else item for item in value]
    return extent if value == size and not isinstance(value, bool) else value


def _stretched_fed(array: Any, dtype: str, sizes: Sequence[tuple[int, int]]) -> Fed:
    plain = _as_fed(array, dtype)
    return Fed("grown", (1, *plain.arguments, tuple(sizes))) if sizes else plain


def _repeat_sequences(c: Choices, fed: Inputs) -> None:
    """All sequences several times, and all other rows."""
    times = c.pick((1, 2, 3, 7, 16, 33, 100))
    rows = {item.arguments[1][0] for value in fed.values() for item in flat(value) if item.lod}
    counts = {len(item.lod[0]) - 1 for value in fed.values() for item in flat(value) if item.lod}
    for slot, value in fed.items():
        items = []
        for item in flat(value):
            shape = item.arguments[1]
            if times > 1 and shape and (item.lod or shape[0] in rows | counts) and item.maker == "values":
                lod = tuple(_times(level, times) for level in item.lod)
                item = Fed("repeated", (*item.arguments, times), lod)
            items.append(item)
        fed[slot] = items if isinstance(value, list) else items[0]


def _times(level: Sequence[int], times: int) -> tuple[int, ...]:
    return (0, *(number * level[-1] + offset for number in range(times) for offset in level[1:]))


# --------------------------------------------------------------------------------------------------------------- cases
@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Inside the ``with``, so much of the processor's time at most; `Unfit` after it."""

    def stop(number: int, frame: Any) -> None:
        raise Unfit(f"more than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def _in_memory(size: int) -> Iterator[None]:
    """Inside the ``with``, the process may take so many bytes more; `MemoryError` beyond."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _computed(op_type: str, inputs: Inputs, attrs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Input and output arrays of an op by slot; `Unfit` where it takes no such inputs, or where they are too large."""
    arrays = {
        slot: [with_lod(item.array(), item.lod) for item in value]
        if isinstance(value, list)
        else with_lod(value.array(), value.lod)
        for slot, value in inputs.items()
    }
    try:
        with within(2.0), _in_memory(2**30):
            outputs = apply_op(op_type, arrays, attrs)
    except Unfit:
        raise
    except Exception as error:
        raise Unfit(f"{op_type}: {type(error).__name__}: {error}") from error
    sizes = [array_of(item).size for value in outputs.values() for item in flat(value) if item is not None]
    if sum(sizes) > 6 * ELEMENTS:
        raise Unfit("too many elements")
    return arrays, outputs


class _OneOp:
    """Appends one op to the default program, with its inputs and outputs."""

    def __init__(self, choices: Choices, call: OpCall) -> None:
        self.choices, (self.op_type, self._fed, attrs) = choices, call
        self.definition = registry.get(self.op_type)
        self.arrays, self.results = _computed(self.op_type, self._fed, attrs)
        self.feeds: dict[str, Fed] = {}
        self.state: dict[str, Fed] = {}
        updated = {updated_input(self.definition, slot) for slot in self.results}
        self.block = fluid.default_main_program().global_block()
        self.inputs = {slot: self._variables(slot, value, slot in updated) for slot, value in self._fed.items()}
        self.outputs: dict[str, Any] = {}
        for slot, value in self.results.items():
            source = updated_input(self.definition, slot)
            if value is None or (self.definition.outputs[slot].optional and self.definition.composition is None):
                continue
            if source in self.inputs:
                self.outputs[slot] = self.inputs[source]
            elif isinstance(value, list):
                self.outputs[slot] = [self.block.create_var(name=f"{slot}_{i}") for i in range(len(value))]
            else:
                self.outputs[slot] = self.block.create_var(name=slot)
        self.block.append_op(self.op_type, self.inputs, self.outputs, attrs)

    def _variables(self, slot: str, value: Any, is_updated: bool) -> Any:
        if isinstance(value, list):
            return [self._variable(f"{slot}_{index}", item, is_updated) for index, item in enumerate(value)]
        return self._variable(slot, value, is_updated)

    def _variable(self, name: str, fed: Fed, is_updated: bool) -> Variable:
        array = fed.array()
        is_held = is_updated or (array.dtype.kind == "f" and not fed.lod and self.choices.chance(12))
        (self.state if is_held else self.feeds)[name] = fed
        shape = (-1, *array.shape[1:]) if fed.lod else array.shape
        var = self.block.create_var(
            name=name, shape=shape, dtype=array.dtype, lod_level=len(fed.lod), is_data=not is_held, persistable=is_held
        )
        var.stop_gradient = array.dtype.kind != "f"
        return var

    @property
    def wrt(self) -> list[Variable]:
        """The variables to differentiate by."""
        rule = self.definition.rule
        slots = [slot for slot in rule.wrt if slot in self.inputs] if isinstance(rule, Rule) else []
        variables = [var for slot in slots for var in flat(self.inputs[slot])]
        return [var for var in variables if var.dtype.text.startswith("float")]

    def differentiated(self) -> tuple[list[Variable], list[Variable | None]]:
        """Outputs that have gradients, and their factors: fed, or ones."""
        rule, targets, factors = self.definition.rule, [], []
        are_ones = self.choices.chance(25)
        for slot in rule.cotangents if isinstance(rule, Rule) else ():
            pairs = zip(flat(self.outputs.get(slot, [])), flat(self.results.get(slot, [])), strict=False)
            for var, result in pairs:
                array = array_of(result)
                if array is None or array.dtype.kind != "f":
                    continue
                targets.append(var)
                factors.append(None if are_ones else self._factor(f"d{var.name}", array, lod_of(result)))
        return targets, factors

    def _factor(self, name: str, array: Any, lod: Any) -> Variable:
        self.feeds[name] = Fed("normal", (len(self.feeds) + 50, array.shape, array.dtype.name, 1.0), tuple(map(tuple, lod)))
        shape = (-1, *array.shape[1:]) if lod else array.shape
        return self.block.create_var(
            name=name, shape=shape, dtype=array.dtype, lod_level=len(lod), is_data=True, stop_gradient=True
        )


def case_of_op(choices: Choices, call: OpCall, sample: Sample | None = None) -> Case:
    """The case of one op and its gradient, perhaps with an elementwise op after it."""
    with fresh_programs() as (main, startup), refusals():
        main.random_seed = startup.random_seed = 1
        op = _OneOp(choices, call)
        fetches = [var for value in op.outputs.values() for var in flat(value)]
        wrt = op.wrt
        if wrt and (sample is None or sample.orders):
            targets, factors = op.differentiated()
            if targets and choices.chance(25):
                act = choices.pick(ACTIVATIONS)
                targets = [act(var) for var in targets]
                fetches += targets
            if targets:
                fetches += [grad for grad in fluid.gradients(targets, wrt, factors) if grad is not None]
        elif choices.chance(20) and all(not isinstance(value, list) for value in op.outputs.values()):
            fetches += [layers.scale(var, 0.5) for var in fetches if var.has_dtype and var.dtype.text.startswith("float")]
        case = Case(call[0], main, startup, [op.feeds], names_of(dense(fetches)), op.state, True, call[0] in DECOMPOSITIONS)
        if sample is not None and sample.reference is not None and not sample.lods and op.op_type not in _OF_OWN_INPUTS:
            case.expected = _stated(op, sample, call[2])
        return case


_OF_OWN_INPUTS = {
    *("crf_counts", "double_inner", "filter_by_instag", "generate_mask_labels", "hash", "searchsorted"),
    *("pool2d_index", "pool3d_index", "max_pool2d_with_index", "max_pool3d_with_index"),
    *("grid_gather", "grid_scatter"),  # by differences, which other places let cross kinks
    "is_label",  # the sample fixes the labels
    "matrix_rank",  # counts what is above the roundoff of its element type
}
"""Ops whose samples state something of their own inputs alone."""


_NOT_STRETCHED = {
    *("coalesce_tensor", "determinant", "eig", "eigh", "lu", "matrix_rank", "qr", "random_crop"),
    *("shuffle_batch", "slogdeterminant", "svd", "view_dtype", "masked_place"),
}
"""Ops whose inputs have to have full rank, or to keep the size of their elements, or as many as a mask has places; whose results
have any sign (eigenvectors); or that draw by a seed that they are fed: XLA draws other numbers than numpy."""


def _stated(op: _OneOp, sample: Sample, attrs: dict[str, Any]) -> dict[str, Any]:
    """The expected outputs by a sample's numpy statement, if it is fast enough."""
    from conformance.case import call_reference

    if sum(array_of(item).size for value in op.arrays.values() for item in flat(value)) > 20_000:
        return {}
    wide = {
        slot: [_plain(item) for item in value] if isinstance(value, list) else _plain(value) for slot, value in op.arrays.items()
    }
    changed = Sample(wide, attrs, sample.reference)
    try:
        with within(1.0):
            outputs = call_reference(changed, wide, op.definition)
    except Exception:  # the statement is of other shapes
        return {}
    stated = {}
    for slot, value in outputs.items():
        for var, array, result in zip(flat(op.outputs.get(slot, [])), flat(value), flat(op.results.get(slot, [])), strict=False):
            if np.shape(array) == array_of(result).shape and slot in op.outputs:
                stated[f"{var.name} of run 0"] = np.asarray(array)
    return stated


def _plain(value: Any) -> Any:
    array = array_of(value)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def make_op(choices: Choices) -> Case:
    """An op of the registry that has samples, and its gradient."""
    dtype = "float64" if choices.chance(15) else "float32"
    if choices.chance(60):
        family = choices.pick([*FAMILIES.values(), convolution, convolution, product])
        return case_of_op(choices, family(Draft(choices, dtype)))
    op_type = choices.pick(sampled_ops())
    if op_type in _NOT_STRETCHED:
        raise Unfit(f"{op_type} with other sizes")
    call, sample = stretched(choices, op_type, dtype)
    if "Paddings" in sample.inputs:
        raise Unfit("paddings that fit the sizes of the sample alone")
    if dtype not in sample.dtypes:
        raise Unfit(f"{op_type} in {dtype}")
    return case_of_op(choices, call, sample)
