"""Every function of `fluid.layers` on tensors: the same bits as in a program, or an error that says what to do instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import ParamAttr, Program, dygraph, layers
from fluid.errors import FluidError
from fluid.executor.runtime.scope import Scope
from fluid.formats.tensors import write_tensor

pytestmark = pytest.mark.numpy_alone


class Inputs:
    """Makes a layer's inputs, with the same values each time: fed variables, or tensors."""

    def __init__(self, eager: bool, folder: Path) -> None:
        self.eager, self.folder, self.feed = eager, folder, dict[str, Any]()
        self._rng = np.random.default_rng(0)

    def f(self, *shape: int, lod: Any = None, dtype: str = "float32") -> Any:
        """Floats between 0.1 and 0.9; `lod` are lengths of sequences."""
        return self._made(np.asarray(self._rng.random(shape) * 0.8 + 0.1, dtype), lod)

    def i(self, *shape: int, lod: Any = None, dtype: str = "int64", high: int = 2) -> Any:
        """Integers below `high`."""
        return self._made(np.asarray(self._rng.integers(0, high, shape), dtype), lod)

    def b(self, *shape: int) -> Any:
        """Bools."""
        return self._made(np.asarray(self._rng.random(shape) > 0.5), None)

    def _made(self, array: Any, lod: Any) -> Any:
        levels = [] if lod is None else lod if isinstance(lod[0], list) else [lod]
        if self.eager:
            tensor = dygraph.Tensor(array)
            return tensor.with_lod(tuple((0, *np.cumsum(level).tolist()) for level in levels)) if levels else tensor
        name = f"x{len(self.feed)}"
        self.feed[name] = (array, levels) if levels else array
        shape = [-1, *array.shape[1:]] if levels else list(array.shape)
        return layers.data(name, shape, append_batch_size=False, dtype=str(array.dtype), lod_level=len(levels))

    def parameter(self, shape: list[int], name: str) -> Any:
        """A parameter as `param_attr` of layers that are to share it."""
        made = layers.create_parameter(shape, "float32", name=name)
        return made if self.eager else ParamAttr(name)

    def file(self) -> str:
        """A file of a tensor."""
        path = self.folder / "tensor"
        with path.open("wb") as file:
            write_tensor(file, np.float32([[1, 2], [3, 4]]), [])
        return str(path)


def blank(shape: list[int]) -> Any:
    """A variable for the result of a function."""
    return fluid.default_main_program().current_block().create_var(name="blank", shape=shape, dtype="float32")


def zero() -> Any:
    return layers.fill_constant([1], "int64", 0)


def sparse_gradient(t: Inputs) -> Any:
    """The gradient of a table: rows of it."""
    table = t.parameter([4, 2], "table")
    out = layers.reduce_sum(layers.square(layers.embedding(t.i(3, 1, high=4), [4, 2], is_sparse=True, param_attr=table)))
    if t.eager:
        return dygraph.grad(out, table)[0]
    return fluid.gradients(out, fluid.default_main_program().global_block().var("table"))[0]


def beams(t: Inputs) -> Any:
    cell = layers.GRUCell(4)
    decoder = layers.BeamSearchDecoder(cell, 0, 1, 2, lambda ids: layers.one_hot(layers.unsqueeze(ids, [2]), 4))
    return layers.dynamic_decode(decoder, inits=t.f(2, 4), max_step_num=3)


def chosen(t: Inputs) -> Any:
    x = t.f(2, 3)
    return layers.case([(layers.less_than(layers.reduce_sum(x), layers.reduce_max(x)), lambda: x * 2.0)], lambda: x * 3.0)


def chosen_by_number(t: Inputs) -> Any:
    x = t.f(2, 3)
    return layers.switch_case(t.i(1), {0: lambda: x * 2.0, 1: lambda: x * 3.0})


def repeated(t: Inputs) -> Any:
    n = t.i(1, high=5)
    return layers.while_loop(lambda i, x: layers.less_than(i, n), lambda i, x: [i + 1, x * 2.0], [zero(), t.f(2)])


def targets(t: Inputs) -> Any:
    truth, crowd = t.f(5, 4, lod=S), t.i(5, 1, lod=S, dtype="int32", high=1)
    logits, anchors = t.f(2, 6, 1), t.f(6, 4)
    return layers.rpn_target_assign(t.f(2, 6, 4), logits, anchors, anchors, truth, crowd, t.f(2, 3), 4, -1.0, use_random=False)


def class_targets(t: Inputs) -> Any:
    truth, crowd, labels = t.f(5, 4, lod=S), t.i(5, 1, lod=S, dtype="int32", high=1), t.i(5, 1, lod=S, dtype="int32")
    logits, anchors = t.f(2, 6, 3), t.f(6, 4)
    return layers.retinanet_target_assign(t.f(2, 6, 4), logits, anchors, anchors, truth, labels, crowd, t.f(2, 3), 3)


def region_targets(t: Inputs) -> Any:
    truth, crowd, labels = t.f(5, 4, lod=S), t.i(5, 1, lod=S, dtype="int32", high=1), t.i(5, 1, lod=S, dtype="int32")
    rois = t.f(7, 4, lod=[4, 3])
    return layers.generate_proposal_labels(rois, labels, crowd, truth, t.f(2, 3), 4, class_nums=3, use_random=False)


def masks(t: Inputs) -> Any:
    classes, crowd = t.i(2, 1, lod=[1, 1], dtype="int32"), t.i(2, 1, lod=[1, 1], dtype="int32", high=1)
    polygons, rois = t.f(7, 2, lod=[[1, 1], [1, 1], [3, 4]]), t.f(3, 4, lod=[2, 1])
    labels = t.i(3, 1, lod=[2, 1], dtype="int32")
    return layers.generate_mask_labels(t.f(2, 3), classes, crowd, polygons, rois, labels, 3, 4)


def corners(t: Inputs, count: int, lod: Any = None) -> Any:
    """Boxes: left, top, right and bottom."""
    first = t.f(count, 2, lod=lod)
    return layers.concat([first, first + t.f(count, 2, lod=lod)], 1)


S = [2, 3]
"""Lengths of sequences."""
CALLS: dict[str, Callable[[Any], Any]] = {
    "collect_fpn_proposals": lambda t: layers.collect_fpn_proposals([t.f(5, 4, lod=S)] * 2, [t.f(5, 1, lod=S)] * 2, 2, 3, 4),
    "continuous_value_model": lambda t: layers.continuous_value_model(t.f(5, 4, lod=S), t.f(2, 2)),
    "deformable_roi_pooling": lambda t: layers.deformable_roi_pooling(t.f(2, 8, 6, 8), t.f(3, 4, lod=[1, 2]), t.f(3, 2, 1, 1)),
    "distribute_fpn_proposals": lambda t: layers.distribute_fpn_proposals(t.f(5, 4, lod=S), 2, 4, 3, 1),
    "filter_by_instag": lambda t: layers.filter_by_instag(t.f(5, 3, lod=S), t.i(5, 1, lod=S), t.i(1), True),
    "generate_mask_labels": lambda t: masks(t),
    "generate_proposal_labels": lambda t: region_targets(t),
    "generate_proposals": lambda t: layers.generate_proposals(
        t.f(2, 3, 4, 5), t.f(2, 12, 4, 5), 30 * t.f(2, 3), t.f(4, 5, 3, 4), t.f(4, 5, 3, 4)
    ),
    "Print": lambda t: layers.Print(t.f(2, 3)),
    "abs": lambda t: layers.abs(x=t.f(3)),
    "accuracy": lambda t: layers.accuracy(t.f(2, 4), t.i(2, 1)),
    "acos": lambda t: layers.acos(x=t.f(3)),
    "acosh": lambda t: layers.acosh(x=t.f(3)),
    "adaptive_pool2d": lambda t: layers.adaptive_pool2d(t.f(2, 3, 8, 8), [2, 3], "avg"),
    "adaptive_pool3d": lambda t: layers.adaptive_pool3d(t.f(2, 2, 4, 6, 8), [2, 3, 1], "avg"),
    "add_position_encoding": lambda t: layers.add_position_encoding(input=t.f(2, 3, 4), alpha=0.5, beta=0.5),
    "affine_channel": lambda t: layers.affine_channel(t.f(2, 4, 6, 8), t.f(4), t.f(4), act="relu"),
    "affine_grid": lambda t: layers.affine_grid(t.f(2, 2, 3), [2, 1, 3, 4]),
    "anchor_generator": lambda t: layers.anchor_generator(t.f(2, 3, 4, 4), [32.0], [0.5, 1.0], stride=[8.0, 8.0]),
    "argmax": lambda t: layers.argmax(x=t.f(3)),
    "argmin": lambda t: layers.argmin(x=t.f(3)),
    "argsort": lambda t: layers.argsort(input=t.f(3)),
    "array_length": lambda t: layers.array_length(layers.array_write(t.f(2, 3), zero(), layers.create_array("float32"))),
    "array_read": lambda t: layers.array_read(layers.array_write(t.f(2, 3), zero()), zero()),
    "array_write": lambda t: layers.array_read(layers.array_write(t.f(2, 3), zero()), zero()),
    "asin": lambda t: layers.asin(x=t.f(3)),
    "asinh": lambda t: layers.asinh(x=t.f(3)),
    "assign": lambda t: layers.assign(t.f(1)),
    "atan": lambda t: layers.atan(x=t.f(3)),
    "atanh": lambda t: layers.atanh(x=t.f(3)),
    "auc": lambda t: layers.auc(t.f(3, 2), t.i(3, 1)),
    "batch_norm": lambda t: layers.batch_norm(t.f(4, 8)),
    "beam_search": lambda t: layers.beam_search(
        t.i(3, 1, lod=[[1, 1], [1, 2]]),
        t.f(3, 1, lod=[[1, 1], [1, 2]]),
        t.i(3, 4, lod=[[1, 1], [1, 2]]),
        t.f(3, 4, lod=[[1, 1], [1, 2]]),
        64,
        0,
    ),
    "bilinear_tensor_product": lambda t: layers.bilinear_tensor_product(x=t.f(2, 1), y=t.f(2, 1), size=2),
    "bipartite_match": lambda t: layers.bipartite_match(t.f(5, 4, lod=S), "per_prediction", 0.4),
    "box_clip": lambda t: layers.box_clip(t.f(5, 4, lod=S), t.f(2, 3)),
    "box_coder": lambda t: layers.box_coder(corners(t, 4), t.f(4, 4), corners(t, 5)),
    "box_coder, of all": lambda t: layers.box_coder(corners(t, 4), [0.1, 0.1, 0.2, 0.2], t.f(2, 4, 4), "decode_center_size"),
    "box_decoder_and_assign": lambda t: layers.box_decoder_and_assign(corners(t, 4), t.f(4), t.f(4, 8), t.f(4, 2), 4.0),
    "bpr_loss": lambda t: layers.bpr_loss(t.f(2, 3), t.i(2, 1)),
    "brelu": lambda t: layers.brelu(x=t.f(3)),
    "case": chosen,
    "cast": lambda t: layers.cast(t.f(1), "int32"),
    "ceil": lambda t: layers.ceil(x=t.f(3)),
    "celu": lambda t: layers.celu(x=t.f(3)),
    "center_loss": lambda t: layers.center_loss(t.f(2, 3), t.i(2, 1), 4, 0.5, None),
    "chunk_eval": lambda t: layers.chunk_eval(t.i(3, 1, lod=[1, 2]), t.i(3, 1, lod=[1, 2]), "IOB", 2),
    "clip": lambda t: layers.clip(t.f(2, 4), 0.2, 0.3),
    "clip_by_norm": lambda t: layers.clip_by_norm(t.f(2, 4), 1.0),
    "concat": lambda t: layers.concat(input=t.f(3)),
    "cond": lambda t: layers.cond(t.b(1), lambda: zero(), lambda: zero() + 1),
    "conv2d": lambda t: layers.conv2d(t.f(2, 4, 5, 5), 4, 3),
    "conv2d_transpose": lambda t: layers.conv2d_transpose(t.f(2, 3, 8, 8), 6, filter_size=3, stride=2),
    "conv3d": lambda t: layers.conv3d(t.f(2, 2, 3, 4, 3), 2, 2),
    "conv3d_transpose": lambda t: layers.conv3d_transpose(t.f(1, 2, 2, 3, 2), 2, filter_size=2, stride=2),
    "cos": lambda t: layers.cos(x=t.f(3)),
    "cos_sim": lambda t: layers.cos_sim(X=t.f(2, 1), Y=t.f(2, 1)),
    "cosh": lambda t: layers.cosh(x=t.f(3)),
    "create_array": lambda t: layers.array_length(layers.array_write(t.f(2, 3), zero(), layers.create_array("float32"))),
    "create_global_var": lambda t: layers.create_global_var([1], 1.0, "float32"),
    "create_parameter": lambda t: layers.create_parameter([4, 6], "float32"),
    "create_tensor": lambda t: layers.assign(t.f(2), layers.create_tensor("float32")),
    "crf_decoding": lambda t: layers.crf_decoding(t.f(5, 3, lod=S), t.parameter([5, 3], "crf")),
    "crop": lambda t: layers.crop(t.f(2, 4, 6, 8), t.f(2, 3, 6, 8)),
    "crop_tensor": lambda t: layers.crop_tensor(t.f(2, 4, 6, 8), [-1, 2, 3, 4], [0, 1, 1, 1]),
    "cross_entropy": lambda t: layers.cross_entropy(t.f(2, 2), t.i(2, 1)),
    "ctc_greedy_decoder": lambda t: layers.ctc_greedy_decoder(t.f(3, 4, lod=[1, 2]), blank=3),
    "cumsum": lambda t: layers.cumsum(x=t.f(3)),
    "data_norm": lambda t: layers.data_norm(t.f(2, 5)),
    "deformable_conv": lambda t: layers.deformable_conv(
        t.f(2, 8, 6, 8),
        t.f(2, 12, 2, 8),
        t.f(2, 6, 2, 8),
        4,
        [2, 3],
        bias_attr=False,
        stride=[2, 1],
        padding=[0, 1],
        dilation=[2, 1],
        groups=2,
        param_attr="w",
    ),
    "density_prior_box": lambda t: layers.density_prior_box(t.f(2, 3, 4, 4), t.f(2, 3, 32, 32), [2], [8.0], [1.0]),
    "detection_map": lambda t: layers.detection_map(layers.round(t.f(5, 6, lod=S)), layers.round(t.f(5, 6, lod=S)), 3),
    "detection_output": lambda t: layers.detection_output(t.f(2, 4, 4), t.f(2, 4, 3), corners(t, 4), t.f(4, 4)),
    "einsum": lambda t: layers.einsum("ij,jk->ik", t.f(2, 3), t.f(3, 4)),
    "diag": lambda t: layers.diag(diagonal=t.f(3)),
    "dice_loss": lambda t: layers.dice_loss(t.f(2, 3, 4), t.i(2, 3, 1)),
    "dropout": lambda t: layers.dropout(t.f(10, 10), 0.5, seed=5),
    "dynamic_decode": beams,
    "dynamic_gru": lambda t: layers.dynamic_gru(t.f(3, 6, lod=[1, 2]), 2),
    "dynamic_lstm": lambda t: layers.dynamic_lstm(t.f(3, 8, lod=[1, 2]), 8),
    "dynamic_lstmp": lambda t: layers.dynamic_lstmp(
        t.f(3, 8, lod=[1, 2]), 8, 3, use_peepholes=False, is_reverse=True, cell_clip=5.0
    ),
    "edit_distance": lambda t: layers.edit_distance(t.i(3, 1, lod=[1, 2]), t.i(3, 1, lod=[1, 2])),
    "elementwise_add": lambda t: layers.elementwise_add(t.f(1), t.f(1)),
    "elementwise_div": lambda t: layers.elementwise_div(x=t.f(3), y=t.f(3)),
    "elementwise_floordiv": lambda t: layers.elementwise_floordiv(x=t.f(3), y=t.f(3)),
    "elementwise_max": lambda t: layers.elementwise_max(t.f(1), t.f(1)),
    "elementwise_min": lambda t: layers.elementwise_min(x=t.f(3), y=t.f(3)),
    "elementwise_mod": lambda t: layers.elementwise_mod(x=t.f(3), y=t.f(3)),
    "elementwise_mul": lambda t: layers.elementwise_mul(t.f(3), t.f(3)),
    "elementwise_pow": lambda t: layers.elementwise_pow(x=t.f(3), y=t.f(3)),
    "elementwise_sub": lambda t: layers.elementwise_sub(t.f(2), t.f(2)),
    "elu": lambda t: layers.elu(x=t.f(3)),
    "embedding": lambda t: layers.embedding(t.i(2, 1), [9, 4]),
    "equal": lambda t: layers.equal(x=t.f(3), y=t.f(3)),
    "erf": lambda t: layers.erf(x=t.f(3)),
    "exp": lambda t: layers.exp(t.f(2)),
    "expand": lambda t: layers.expand(t.f(2, 3, 4), [1, 2, 3]),
    "expand_as": lambda t: layers.expand_as(x=t.f(3), target_tensor=t.f(3)),
    "expm1": lambda t: layers.expm1(x=t.f(3)),
    "eye": lambda t: layers.eye(num_rows=2),
    "fc": lambda t: layers.fc(t.f(2, 4), 4),
    "fill_constant": lambda t: layers.fill_constant([1], "float32", 2.0, out=t.f(1)),
    "fill_constant_batch_size_like": lambda t: layers.fill_constant_batch_size_like(t.f(2, 4), [9, 2], "float32", 1.5),
    "flatten": lambda t: layers.flatten(x=t.f(3)),
    "floor": lambda t: layers.floor(x=t.f(3)),
    "fsp_matrix": lambda t: layers.fsp_matrix(t.f(2, 4, 6, 8), t.f(2, 3, 6, 8)),
    "gather": lambda t: layers.gather(t.f(4, 2), t.i(2)),
    "gather_nd": lambda t: layers.gather_nd(input=t.i(3, 2), index=t.i(3, 2)),
    "gather_tree": lambda t: layers.gather_tree(ids=t.i(2, 3, 4), parents=t.i(2, 3, 4)),
    "gaussian_random": lambda t: layers.gaussian_random([2, 3], seed=5),
    "gaussian_random_batch_size_like": lambda t: layers.gaussian_random_batch_size_like(t.f(3, 2), [-1, 2], seed=5),
    "gelu": lambda t: layers.gelu(x=t.f(3)),
    "get_tensor_from_selected_rows": lambda t: layers.get_tensor_from_selected_rows(sparse_gradient(t)),
    "greater_equal": lambda t: layers.greater_equal(x=t.f(3), y=t.f(3)),
    "greater_than": lambda t: layers.greater_than(x=t.f(3), y=t.f(3)),
    "grid_sampler": lambda t: layers.grid_sampler(t.f(2, 4, 6, 8), t.f(2, 2, 3, 2)),
    "group_norm": lambda t: layers.group_norm(t.f(2, 4, 3, 3), 2),
    "gru_unit": lambda t: layers.gru_unit(t.f(2, 12), t.f(2, 4), 12),
    "hard_shrink": lambda t: layers.hard_shrink(x=t.f(3)),
    "hard_sigmoid": lambda t: layers.hard_sigmoid(x=t.f(3)),
    "hard_swish": lambda t: layers.hard_swish(x=t.f(3)),
    "has_inf": lambda t: layers.has_inf(x=t.f(3)),
    "has_nan": lambda t: layers.has_nan(x=t.f(3)),
    "hash": lambda t: layers.hash(input=t.i(3, 2), hash_size=2),
    "hsigmoid": lambda t: layers.hsigmoid(t.f(2, 4), t.i(2, 1), 12),
    "huber_loss": lambda t: layers.huber_loss(t.f(2, 4), t.f(2, 4), 0.5),
    "im2sequence": lambda t: layers.im2sequence(input=t.f(2, 3, 4, 4)),
    "image_resize": lambda t: layers.image_resize(t.f(2, 4, 6, 8), [3, 5]),
    "image_resize_short": lambda t: layers.image_resize_short(t.f(2, 4, 6, 8), 3),
    "inplace_abn": lambda t: layers.inplace_abn(t.f(2, 3, 4, 4), act="elu"),
    "increment": lambda t: layers.increment(t.f(1)),
    "instance_norm": lambda t: layers.instance_norm(input=t.f(3, 2)),
    "iou_similarity": lambda t: layers.iou_similarity(corners(t, 5), corners(t, 4)),
    "is_empty": lambda t: layers.is_empty(x=t.f(3)),
    "isfinite": lambda t: layers.isfinite(x=t.f(3)),
    "kldiv_loss": lambda t: layers.kldiv_loss(x=t.f(3), target=t.f(3)),
    "l2_normalize": lambda t: layers.l2_normalize(t.f(2, 2), 1),
    "label_smooth": lambda t: layers.label_smooth(label=t.f(3)),
    "layer_norm": lambda t: layers.layer_norm(input=t.f(2, 1)),
    "leaky_relu": lambda t: layers.leaky_relu(x=t.f(3)),
    "less_equal": lambda t: layers.less_equal(x=t.f(3), y=t.f(3)),
    "less_than": lambda t: layers.less_than(t.f(1), t.f(1)),
    "linear_chain_crf": lambda t: layers.linear_chain_crf(t.f(4, 3, 3), t.i(4, 3), length=t.i(4)),
    "linspace": lambda t: layers.linspace(1.0, 3.0, 5, "float64"),
    "load": lambda t: layers.load(blank([2, 2]), t.file()),
    "locality_aware_nms": lambda t: layers.locality_aware_nms(t.f(2, 6, 4), t.f(2, 2, 6), 0.2, -1, -1),
    "lod_append": lambda t: layers.lod_append(x=t.i(3, 2), level=t.i(3, 2)),
    "lod_reset": lambda t: layers.lod_reset(t.f(3, 4, lod=[[1, 1], [1, 2]]), t.f(3, 1, lod=[[1, 1], [1, 2]])),
    "log": lambda t: layers.log(x=t.f(3)),
    "log10": lambda t: layers.log10(x=t.f(3)),
    "log1p": lambda t: layers.log1p(x=t.f(3)),
    "log2": lambda t: layers.log2(x=t.f(3)),
    "log_loss": lambda t: layers.log_loss(input=t.f(3), label=t.f(3)),
    "logical_and": lambda t: layers.logical_and(x=t.f(3), y=t.f(3)),
    "logical_not": lambda t: layers.logical_not(x=t.f(3)),
    "logical_or": lambda t: layers.logical_or(x=t.f(3), y=t.f(3)),
    "logical_xor": lambda t: layers.logical_xor(x=t.f(3), y=t.f(3)),
    "logsigmoid": lambda t: layers.logsigmoid(x=t.f(3)),
    "lrn": lambda t: layers.lrn(t.f(2, 2, 12, 16)),
    "lstm": lambda t: layers.lstm(
        t.f(5, 2, 3), t.f(4, 2, 2), t.f(4, 2, 2), 5, 2, 2, is_bidirec=True, dropout_prob=0.5, is_test=True
    ),
    "lstm_unit": lambda t: layers.lstm_unit(t.f(2, 3), t.f(2, 2), t.f(2, 2), forget_bias=1.0),
    "margin_rank_loss": lambda t: layers.margin_rank_loss(label=t.f(3), left=t.f(3), right=t.f(3)),
    "matmul": lambda t: layers.matmul(x=t.f(3), y=t.f(3)),
    "matrix_nms": lambda t: layers.matrix_nms(t.f(2, 6, 4), t.f(2, 2, 6), 0.2, 0.1, -1, -1, return_index=True),
    "maxout": lambda t: layers.maxout(t.f(2, 4, 6, 8), 2),
    "mean": lambda t: layers.mean(t.f(2)),
    "mean_iou": lambda t: layers.mean_iou(input=t.i(3), label=t.i(3), num_classes=2),
    "merge_selected_rows": lambda t: layers.get_tensor_from_selected_rows(layers.merge_selected_rows(sparse_gradient(t))),
    "mish": lambda t: layers.mish(x=t.f(3)),
    "mse_loss": lambda t: layers.mse_loss(t.f(2, 4), t.f(2, 4)),
    "mul": lambda t: layers.mul(t.f(2, 3), t.f(3, 2)),
    "multi_box_head": lambda t: layers.multi_box_head(
        [t.f(2, 3, 4, 4), t.f(2, 3, 2, 2)],
        t.f(2, 3, 32, 32),
        32,
        3,
        [[2.0], [2.0]],
        min_sizes=[8.0, 16.0],
        max_sizes=[16.0, 28.0],
    ),
    "multiclass_nms": lambda t: layers.multiclass_nms(t.f(2, 6, 4), t.f(2, 2, 6), 0.2, -1, -1),
    "multiclass_nms2": lambda t: layers.multiclass_nms2(t.f(2, 6, 4), t.f(2, 2, 6), 0.2, -1, -1, return_index=True),
    "multiplex": lambda t: layers.multiplex(inputs=[t.i(2, 1), t.i(2, 1)], index=t.i(2, 1)),
    "nce": lambda t: layers.nce(t.f(2, 4), t.i(2, 1), 12, seed=5),
    "not_equal": lambda t: layers.not_equal(x=t.f(3), y=t.f(3)),
    "npair_loss": lambda t: layers.npair_loss(t.f(4, 3), t.f(4, 3), t.i(4)),
    "one_hot": lambda t: layers.one_hot(t.i(2, 1), 5),
    "ones": lambda t: layers.ones([2], "float32"),
    "ones_like": lambda t: layers.ones_like(x=t.f(3)),
    "pad": lambda t: layers.pad(x=t.f(3), paddings=[2, 2]),
    "pad2d": lambda t: layers.pad2d(input=t.f(2, 3, 4, 4)),
    "pad_constant_like": lambda t: layers.pad_constant_like(x=t.f(3), y=t.f(3)),
    "pixel_shuffle": lambda t: layers.pixel_shuffle(t.f(2, 8, 6, 8), 2),
    "polygon_box_transform": lambda t: layers.polygon_box_transform(t.f(2, 4, 3, 3)),
    "pool2d": lambda t: layers.pool2d(t.f(2, 6, 8, 8), 2, "max", 2),
    "pool3d": lambda t: layers.pool3d(t.f(2, 2, 4, 6, 8), 2, "avg", 2),
    "pow": lambda t: layers.pow(x=t.f(3)),
    "prelu": lambda t: layers.prelu(t.f(2, 5), "element"),
    "prroi_pool": lambda t: layers.prroi_pool(t.f(2, 8, 6, 8), t.f(3, 4, lod=[1, 2]), 1.0, 2, 3),
    "prior_box": lambda t: layers.prior_box(t.f(2, 3, 4, 4), t.f(2, 3, 32, 32), [8.0], [16.0], [2.0], flip=True),
    "psroi_pool": lambda t: layers.psroi_pool(t.f(2, 8, 6, 8), t.f(3, 4, lod=[1, 2]), 2, 1.0, 2, 2),
    "py_func": lambda t: layers.py_func(lambda x: x * 2, t.f(2, 3), blank([2, 3])),
    "random_crop": lambda t: layers.random_crop(t.f(2, 40), [5], seed=5),
    "range": lambda t: layers.range(0, 4, 1, "int64"),
    "rank": lambda t: layers.rank(input=t.f(3)),
    "rank_loss": lambda t: layers.rank_loss(label=t.f(3), left=t.f(3), right=t.f(3)),
    "reciprocal": lambda t: layers.reciprocal(x=t.f(3)),
    "reduce_all": lambda t: layers.reduce_all(input=t.b(3)),
    "reduce_amax": lambda t: layers.reduce_amax(input=t.f(3)),
    "reduce_amin": lambda t: layers.reduce_amin(input=t.f(3)),
    "reduce_any": lambda t: layers.reduce_any(input=t.b(3)),
    "reduce_max": lambda t: layers.reduce_max(input=t.f(3)),
    "reduce_mean": lambda t: layers.reduce_mean(t.f(8, 6)),
    "reduce_min": lambda t: layers.reduce_min(input=t.f(3)),
    "reduce_prod": lambda t: layers.reduce_prod(input=t.f(3)),
    "reduce_sum": lambda t: layers.reduce_sum(t.f(4)),
    "relu": lambda t: layers.relu(t.f(2)),
    "relu6": lambda t: layers.relu6(x=t.f(3)),
    "reshape": lambda t: layers.reshape(t.f(1), [1]),
    "resize_bilinear": lambda t: layers.resize_bilinear(t.f(2, 2, 12, 16), [6, 8]),
    "resize_nearest": lambda t: layers.resize_nearest(t.f(2, 4, 6, 8), scale=2.0),
    "resize_linear": lambda t: layers.resize_linear(t.f(2, 2, 4), [3]),
    "resize_trilinear": lambda t: layers.resize_trilinear(t.f(2, 2, 4, 6, 8), [2, 3, 4]),
    "retinanet_detection_output": lambda t: layers.retinanet_detection_output(
        [t.f(2, 5, 4)], [t.f(2, 5, 3)], [t.f(5, 4)], t.f(2, 3)
    ),
    "retinanet_target_assign": lambda t: class_targets(t),
    "reverse": lambda t: layers.reverse(t.f(2, 3), [0, 1]),
    "rnn": lambda t: layers.rnn(layers.GRUCell(4), t.f(2, 3, 5), sequence_length=t.i(2, high=3)),
    "rnn, of an LSTM": lambda t: layers.rnn(layers.LSTMCell(4), t.f(3, 2, 5), time_major=True, is_reverse=True),
    "roi_align": lambda t: layers.roi_align(t.f(2, 8, 6, 8), t.f(3, 4, lod=[1, 2])),
    "roi_perspective_transform": lambda t: layers.roi_perspective_transform(t.f(2, 3, 6, 8), 6.0 * t.f(3, 8, lod=[1, 2]), 2, 3),
    "roi_pool": lambda t: layers.roi_pool(t.f(2, 8, 6, 8), t.f(3, 4, lod=[1, 2]), 2, 3),
    "rint": lambda t: layers.rint(x=t.f(3)),
    "round": lambda t: layers.round(x=t.f(3)),
    "row_conv": lambda t: layers.row_conv(t.f(5, 2, lod=S), 2),
    "rpn_target_assign": lambda t: targets(t),
    "rsqrt": lambda t: layers.rsqrt(x=t.f(3)),
    "sampled_softmax_with_cross_entropy": lambda t: layers.sampled_softmax_with_cross_entropy(
        t.f(3, 5), t.i(3, 1), 4, use_customized_samples=True, customized_samples=t.i(3, 5), customized_probabilities=t.f(3, 5)
    ),
    "sampling_id": lambda t: layers.sampling_id(x=t.f(2, 1)),
    "scale": lambda t: layers.scale(x=t.f(3)),
    "scatter": lambda t: layers.scatter(input=t.i(3), index=t.i(3), updates=t.i(3)),
    "scatter_nd": lambda t: layers.scatter_nd(t.i(3, 1), t.f(3), [4]),
    "scatter_nd_add": lambda t: layers.scatter_nd_add(ref=t.i(2, 1), index=t.i(2, 1), updates=t.i(2, 1)),
    "selu": lambda t: layers.selu(x=t.f(3)),
    "sequence_concat": lambda t: layers.sequence_concat([t.f(5, 2, lod=S), t.f(5, 2, lod=[4, 1])]),
    "sequence_conv": lambda t: layers.sequence_conv(t.f(5, 2, lod=S), 3),
    "sequence_enumerate": lambda t: layers.sequence_enumerate(t.i(5, 1, lod=S), 2),
    "sequence_expand": lambda t: layers.sequence_expand(t.f(2, 3), t.f(5, 2, lod=S)),
    "sequence_expand_as": lambda t: layers.sequence_expand_as(t.f(2, 3), t.f(5, 2, lod=S)),
    "sequence_first_step": lambda t: layers.sequence_first_step(t.f(5, 2, lod=S)),
    "sequence_last_step": lambda t: layers.sequence_last_step(t.f(3, 4, lod=[1, 2])),
    "sequence_mask": lambda t: layers.sequence_mask(x=t.i(3)),
    "sequence_pad": lambda t: layers.sequence_pad(t.f(5, 2, lod=S), t.f(1)),
    "sequence_pool": lambda t: layers.sequence_pool(t.f(3, 8, lod=[1, 2]), "max"),
    "sequence_reshape": lambda t: layers.sequence_reshape(t.f(4, 2, lod=[2, 2]), 4),
    "sequence_reverse": lambda t: layers.sequence_reverse(t.f(5, 2, lod=S)),
    "sequence_scatter": lambda t: layers.sequence_scatter(t.f(2, 5), t.i(5, 1, lod=S), t.f(5, 1, lod=S)),
    "sequence_slice": lambda t: layers.sequence_slice(t.f(5, 2, lod=S), t.i(2, 1), t.i(2, 1) + 1),
    "sequence_softmax": lambda t: layers.sequence_softmax(t.f(5, 1, lod=S)),
    "sequence_unpad": lambda t: layers.sequence_unpad(x=t.i(2, 1), length=t.i(2, 1)),
    "shape": lambda t: layers.shape(input=t.f(3)),
    "shard_index": lambda t: layers.shard_index(t.i(3, 1, high=6), 6, 2, 0),
    "shuffle_channel": lambda t: layers.shuffle_channel(t.f(2, 4, 6, 8), 2),
    "sigmoid": lambda t: layers.sigmoid(x=t.f(3)),
    "sigmoid_cross_entropy_with_logits": lambda t: layers.sigmoid_cross_entropy_with_logits(x=t.f(3), label=t.f(3)),
    "sigmoid_focal_loss": lambda t: layers.sigmoid_focal_loss(t.f(4, 3), t.i(4, 1, dtype="int32", high=4), t.i(1, dtype="int32")),
    "sign": lambda t: layers.sign(x=t.f(3)),
    "silu": lambda t: layers.silu(x=t.f(3)),
    "similarity_focus": lambda t: layers.similarity_focus(t.f(2, 4, 6, 8), 1, [0, 2]),
    "sin": lambda t: layers.sin(x=t.f(3)),
    "sinh": lambda t: layers.sinh(x=t.f(3)),
    "size": lambda t: layers.size(input=t.f(3)),
    "slice": lambda t: layers.slice(t.f(2, 8, 6, 8), [1], [0], [4]),
    "smooth_l1": lambda t: layers.smooth_l1(x=t.f(3, 2), y=t.f(3, 2)),
    "soft_relu": lambda t: layers.soft_relu(x=t.f(3)),
    "softmax": lambda t: layers.softmax(t.f(3)),
    "softmax_with_cross_entropy": lambda t: layers.softmax_with_cross_entropy(t.f(2, 3), t.i(2, 1)),
    "softplus": lambda t: layers.softplus(x=t.f(3)),
    "softshrink": lambda t: layers.softshrink(x=t.f(3)),
    "softsign": lambda t: layers.softsign(x=t.f(3)),
    "space_to_depth": lambda t: layers.space_to_depth(t.f(2, 4, 6, 8), 2),
    "spectral_norm": lambda t: layers.spectral_norm(weight=t.f(3)),
    "split": lambda t: layers.split(t.f(2, 6), 3),
    "sqrt": lambda t: layers.sqrt(x=t.f(3)),
    "square": lambda t: layers.square(t.f(3)),
    "square_error_cost": lambda t: layers.square_error_cost(t.f(2, 1), t.f(2, 1)),
    "squeeze": lambda t: layers.squeeze(input=t.f(2, 3, 4), axes=[2, 2]),
    "ssd_loss": lambda t: layers.ssd_loss(
        t.f(2, 4, 4), t.f(2, 4, 3), corners(t, 5, lod=S), t.i(5, 1, dtype="int32", lod=S), corners(t, 4)
    ),
    "stack": lambda t: layers.stack(x=t.f(3)),
    "stanh": lambda t: layers.stanh(x=t.f(3)),
    "strided_slice": lambda t: layers.strided_slice(t.f(4, 5), [1], [0], [5], [2]),
    "sum": lambda t: layers.sum(x=t.f(3)),
    "sums": lambda t: layers.sums([t.f(2, 3)]),
    "swish": lambda t: layers.swish(x=t.f(3)),
    "switch_case": chosen_by_number,
    "tan": lambda t: layers.tan(x=t.f(3)),
    "tanh": lambda t: layers.tanh(t.f(1)),
    "tanh_shrink": lambda t: layers.tanh_shrink(x=t.f(3)),
    "target_assign": lambda t: layers.target_assign(t.f(5, 4, 2, lod=S), t.i(2, 4, dtype="int32")),
    "teacher_student_sigmoid_loss": lambda t: layers.teacher_student_sigmoid_loss(input=t.f(3), label=t.f(3)),
    "temporal_shift": lambda t: layers.temporal_shift(t.f(2, 4, 6, 8), 2),
    "tensor_array_to_tensor": lambda t: layers.tensor_array_to_tensor(layers.array_write(t.f(2, 3), zero()), axis=0),
    "thresholded_relu": lambda t: layers.thresholded_relu(x=t.f(3)),
    "topk": lambda t: layers.topk(t.f(2, 4), 2),
    "transpose": lambda t: layers.transpose(t.f(3, 2), [1, 0]),
    "unfold": lambda t: layers.unfold(t.f(2, 4, 6, 8), [3, 2], 2, 1),
    "uniform_random": lambda t: layers.uniform_random([2], seed=3),
    "uniform_random_batch_size_like": lambda t: layers.uniform_random_batch_size_like(t.f(3, 2), [-1, 2], seed=5),
    "unique": lambda t: layers.unique(x=t.f(3)),
    "unique_with_counts": lambda t: layers.unique_with_counts(x=t.f(3)),
    "unsqueeze": lambda t: layers.unsqueeze(t.f(2, 2), [0]),
    "unstack": lambda t: layers.unstack(x=t.f(3)),
    "warpctc": lambda t: layers.warpctc(t.f(3, 4, lod=[1, 2]), t.i(3, 1, lod=[1, 2], dtype="int32"), blank=3),
    "where": lambda t: layers.where(condition=t.f(3)),
    "while_loop": repeated,
    "yolo_box": lambda t: layers.yolo_box(t.f(2, 14, 3, 3), t.i(2, 2, dtype="int32", high=30), [10, 13, 16, 30], 2, 0.1, 8),
    "yolov3_loss": lambda t: layers.yolov3_loss(
        t.f(2, 14, 3, 3), t.f(2, 4, 4), t.i(2, 4, dtype="int32"), [10, 13, 16, 30], [0, 1], 2, 0.7, 8
    ),
    "addcmul": lambda t: layers.addcmul(t.f(3), t.f(3), t.f(3), 0.5),
    "addmm": lambda t: layers.addmm(t.f(2, 4), t.f(2, 3), t.f(3, 4), 0.5, 2.0),
    "allclose": lambda t: layers.allclose(t.f(3), t.f(3), atol=0.5),
    "arange": lambda t: layers.arange(0, 4),
    "bmm": lambda t: layers.bmm(t.f(2, 3, 4), t.f(2, 4, 5)),
    "clamp": lambda t: layers.clamp(t.f(3), 0.2, 0.6),
    "clamp, one limit": lambda t: layers.clamp(t.f(3), max=0.6),
    "cross": lambda t: layers.cross(t.f(2, 3), t.f(2, 3)),
    "diag_embed": lambda t: layers.diag_embed(t.f(2, 3), 1),
    "dist": lambda t: layers.dist(t.f(2, 3), t.f(3), 3),
    "dot": lambda t: layers.dot(t.f(2, 3), t.f(2, 3)),
    "elementwise_equal": lambda t: layers.elementwise_equal(t.i(3), t.i(3)),
    "flip": lambda t: layers.flip(t.f(2, 3), [1]),
    "full": lambda t: layers.full([2], 0.5),
    "full_like": lambda t: layers.full_like(t.f(2), 0.5),
    "index_sample": lambda t: layers.index_sample(t.f(2, 3), t.i(2, 1)),
    "index_select": lambda t: layers.index_select(t.f(2, 3), t.i(2), 1),
    "interpolate": lambda t: layers.interpolate(t.f(1, 2, 3, 4), [6, 8]),
    "kron": lambda t: layers.kron(t.f(2), t.f(3)),
    "log_softmax": lambda t: layers.log_softmax(t.f(2, 3)),
    "logsumexp": lambda t: layers.logsumexp(t.f(2, 3), [1]),
    "meshgrid": lambda t: layers.meshgrid([t.f(2), t.f(3)]),
    "nonzero": lambda t: layers.nonzero(t.b(3)),
    "randint": lambda t: layers.randint(0, 5, [3], seed=5),
    "randn": lambda t: layers.shape(layers.randn([3])),
    "randperm": lambda t: layers.randperm(4, seed=5),
    "roll": lambda t: layers.roll(t.f(2, 3), 1),
    "t": lambda t: layers.t(t.f(2, 3)),
    "trace": lambda t: layers.trace(t.f(3, 3)),
    "tril": lambda t: layers.tril(t.f(3, 4), 1),
    "triu": lambda t: layers.triu(t.f(3, 4), -1),
    "unbind": lambda t: layers.unbind(t.f(3, 4), 1),
    "zeros": lambda t: layers.zeros([1], "int64"),
    "zeros_like": lambda t: layers.zeros_like(x=t.f(3)),
}
"""Function -> a call of it; a comma and more behind its name for other calls."""

IN_PROGRAMS = "runs in programs only; on tensors, "
STEPS, ROWS = IN_PROGRAMS + "loop in Python over the steps", IN_PROGRAMS + "choose rows by a mask"
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "Assert": (lambda t: layers.Assert(t.b(1)), IN_PROGRAMS + "use Python's assert"),
    "array_to_lod_tensor": (lambda t: layers.array_to_lod_tensor(t.f(2), t.f(2)), STEPS),
    "autoincreased_step_counter": (
        lambda t: layers.autoincreased_step_counter(),
        "autoincreased_step_counter counts the runs of a program; in eager mode count steps in Python",
    ),
    "beam_search_decode": (
        lambda t: layers.beam_search_decode(t.f(2), t.f(2), 2, 0),
        IN_PROGRAMS + "use layers.dynamic_decode with a BeamSearchDecoder",
    ),
    "create_py_reader_by_data": (
        lambda t: layers.create_py_reader_by_data(2, [t.f(2)]),
        "create_py_reader_by_data feeds variables of programs",
    ),
    "data": (lambda t: layers.data("x", [2]), "data: x would be a variable that a program is fed; in eager mode"),
    "double_buffer": (lambda t: layers.double_buffer(t.f(2)), "double_buffer: reader should be what py_reader gives, not Tensor"),
    "lod_rank_table": (lambda t: layers.lod_rank_table(t.f(5, 1, lod=S)), STEPS),
    "lod_tensor_to_array": (lambda t: layers.lod_tensor_to_array(t.f(5, 1, lod=S), t.f(2)), STEPS),
    "max_sequence_len": (lambda t: layers.max_sequence_len(t.f(2)), STEPS),
    "merge_lod_tensor": (lambda t: layers.merge_lod_tensor(t.f(1, 2), t.f(1, 2), t.f(2, 2), t.b(2, 1)), ROWS),
    "py_reader": (lambda t: layers.py_reader(2, [[-1, 2]], ["float32"]), "py_reader: data: py_reader_0_0 would be a variable"),
    "read_file": (lambda t: layers.read_file(t.f(2)), "read_file: reader should be what py_reader gives, not Tensor"),
    "reorder_lod_tensor_by_rank": (lambda t: layers.reorder_lod_tensor_by_rank(t.f(2, 1), t.f(2)), STEPS),
    "shrink_memory": (lambda t: layers.shrink_memory(t.f(2, 1), t.i(1), t.f(2)), STEPS),
    "split_lod_tensor": (lambda t: layers.split_lod_tensor(t.f(2, 1), t.b(2, 1)), ROWS),
}
"""Function -> a call of it, and what its error says."""
SCHEDULES: dict[str, tuple[Any, ...]] = {
    "cosine_decay": (0.5, 2, 5),
    "exponential_decay": (0.5, 3, 0.8),
    "inverse_time_decay": (0.5, 3, 0.8),
    "natural_exp_decay": (0.5, 3, 0.8),
    "linear_lr_warmup": (0.5, 4, 0.1, 0.7),
    "noam_decay": (16, 3),
    "piecewise_decay": ([2], [0.5, 0.25]),
    "polynomial_decay": (0.5, 4, 0.1, 2.0),
}
"""Learning rates by the number of the step: variables of a program, objects in eager mode."""
MAKERS = {"autodoc", "deprecated", "generate_activation_fn", "generate_layer_fn", "templatedoc"}
"""Functions that make functions, or decorate them."""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield


def test_every_function_is_here() -> None:
    functions = {
        name
        for name, value in vars(layers).items()
        if inspect.isfunction(value) and not name.startswith("_") and value.__module__.startswith("fluid.layers")
    }
    called = {name.partition(",")[0] for name in CALLS}
    assert called | set(REFUSED) | set(SCHEDULES) | MAKERS == functions
    assert not called & set(REFUSED)


def flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in flat(part)]
    return [] if value is None else [value]


def in_a_program(call: Callable[[Inputs], Any], folder: Path) -> tuple[list[Any], list[Any]]:
    """The first values of the parameters, and the results, as pairs of arrays and lengths."""
    main, startup, scope, executor = Program(), Program(), Scope(), fluid.Executor()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        t = Inputs(False, folder)
        outs = flat(call(t))
    executor.run(startup, scope=scope)
    first = [np.array(scope.var(parameter.name).tensor.array) for parameter in main.all_parameters()]
    found = executor.run(main, t.feed, outs, scope=scope, return_numpy=False)
    return first, [(np.asarray(item), item.recursive_sequence_lengths()) for item in found]


def at_once(call: Callable[[Inputs], Any], folder: Path, first: list[Any]) -> list[Any]:
    """The results with these values of the parameters."""
    with dygraph.guard():
        layer = dygraph.LayerOf(lambda: call(Inputs(True, folder)))
        found = layer()
        if first:
            for parameter, value in zip(layer.parameters(), first, strict=True):
                parameter.set_value(value)
            found = layer()
    return [(item.numpy(), [np.diff(level).tolist() for level in item.lod]) for item in flat(found)]


@each("name", CALLS)
def test_tensors_and_programs_give_the_same_bits(name: str, tmp_path: Path) -> None:
    first, wanted = in_a_program(CALLS[name], tmp_path)
    found = at_once(CALLS[name], tmp_path, first)
    assert wanted and len(found) == len(wanted)
    for (array, lengths), (other, others) in zip(found, wanted, strict=True):
        assert (array.shape, array.dtype) == (other.shape, other.dtype)
        assert array.tobytes() == other.tobytes()
        assert lengths == others


@each("name", REFUSED)
def test_what_is_for_programs_says_what_to_do_instead(name: str, tmp_path: Path) -> None:
    call, said = REFUSED[name]
    with dygraph.guard(), pytest.raises(FluidError) as caught:
        call(Inputs(True, tmp_path))
    text = str(caught.value)
    assert said in text.partition("\n")[0]


@each("name", SCHEDULES)
def test_schedules_are_objects_that_give_the_same_rates(name: str) -> None:
    schedule = getattr(layers, name)
    executor, scope = fluid.Executor(), Scope()
    rate = schedule(*SCHEDULES[name])
    executor.run(fluid.default_startup_program(), scope=scope)
    wanted = [executor.run(fetch_list=[rate], scope=scope)[0].item() for _ in range(4)]
    with dygraph.guard():
        found = schedule(*SCHEDULES[name])
        assert isinstance(found, dygraph.LearningRateDecay)
        np.testing.assert_allclose([float(found()) for _ in range(4)], wanted, rtol=1e-6)
