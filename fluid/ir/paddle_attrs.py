"""What files for Paddle 1.8 must say: its gradient ops have no defaults, and some ops lack one."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

_CONVOLUTIONS = "conv2d depthwise_conv2d conv3d"
_IMAGES = f"{_CONVOLUTIONS} conv2d_transpose depthwise_conv2d_transpose"
_ELEMENTWISE = " ".join(f"elementwise_{kind}" for kind in ("add", "div", "max", "min", "mul", "pow", "sub"))
_FUNCTIONS = (
    "abs ceil cos exp floor gelu log log1p logsigmoid reciprocal relu round rsqrt sigmoid sin softplus softsign sqrt square tanh "
    "tanh_shrink"
)
_TABLE: list[tuple[str, str, Any, str]] = [
    (
        *("use_mkldnn", "bool", False),
        f"{_FUNCTIONS} {_IMAGES} {_ELEMENTWISE} addmm batch_norm concat conv3d_transpose data_norm leaky_relu lrn matmul mul "
        "partial_sum pool2d pool3d softmax swish transpose transpose2",
    ),
    ("use_cudnn", "bool", False, f"{_FUNCTIONS} {_IMAGES} conv3d_transpose pool2d pool3d sequence_softmax softmax"),
    ("use_cudnn", "bool", True, "affine_grid grid_sampler"),
    ("use_quantizer", "bool", False, "concat conv2d depthwise_conv2d matmul pool2d reshape2 transpose transpose2"),
    ("is_test", "bool", False, f"{_IMAGES} lrn pool2d softmax"),
    ("data_format", "string", "AnyLayout", "sequence_softmax softmax transpose transpose2"),
    ("x_data_format", "string", "", _ELEMENTWISE),
    ("y_data_format", "string", "", _ELEMENTWISE),
    ("fuse_with_relu", "bool", False, "batch_norm"),
    ("fuse_relu", "bool", False, _IMAGES),
    ("fuse_activation", "string", "", _IMAGES),
    ("fuse_alpha", "float", 0.0, _IMAGES),
    ("fuse_beta", "float", 0.0, _IMAGES),
    ("fuse_residual_connection", "bool", False, _CONVOLUTIONS),
    ("fuse_relu_before_depthwise_conv", "bool", False, "conv2d depthwise_conv2d"),
    ("fuse_brelu", "bool", False, "conv2d depthwise_conv2d"),
    ("fuse_brelu_threshold", "float", 6.0, "conv2d depthwise_conv2d"),
    ("force_fp32_output", "bool", False, f"{_CONVOLUTIONS} mul"),
    ("workspace_size_MB", "int", 512, f"{_IMAGES} conv3d_transpose"),
    ("exhaustive_search", "bool", False, _CONVOLUTIONS),
    ("Scale_in", "float", 1.0, "conv2d depthwise_conv2d"),
    ("Scale_out", "float", 1.0, "conv2d depthwise_conv2d matmul"),
    ("Scale_in_eltwise", "float", 1.0, "conv2d depthwise_conv2d"),
    ("Scale_weights", "floats", [1.0], "conv2d depthwise_conv2d"),
    ("fused_reshape_Out", "ints", [], "matmul"),
    ("fused_transpose_Out", "ints", [], "matmul"),
    ("scale_x", "float", 1.0, "mul"),
    ("scale_y", "floats", [1.0], "mul"),
    ("scale_out", "float", 1.0, "mul"),
    ("@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@", "bool", True, "cos_sim fused_embedding_seq_pool"),
    ("max_len", "int", 20, "cudnn_lstm"),
    ("grad_inplace", "bool", False, "fused_embedding_seq_pool"),
    ("overwrite", "bool", False, "gather"),
    ("remote_prefetch", "bool", False, "hierarchical_sigmoid"),
    ("trainer_id", "int", 0, "lookup_table_v2 nce"),
    ("height_sections", "longs", [], "lookup_table_v2 nce"),
    ("epmap", "strings", [], "lookup_table_v2 nce"),
    ("table_names", "strings", [], "lookup_table_v2 nce"),
    ("custom_neg_classes", "ints", [], "nce"),
    ("skip_eager_deletion_vars", "strings", [], "conditional_block while"),
]
"""Attribute, its kind in files, its value, and the ops with it: they choose between Paddle's kernels, or have no use here."""

SAME_INPUTS = {"leaky_relu_grad": ("Out", "X")}
"""Op -> the input that Paddle 1.8 asks for, and the one of ours that says the same."""

REQUIRED = {
    "anchor_generator": ("variances",),
    "average_accumulates": ("max_average_window",),
    "beam_search": ("level",),
    "center_loss": ("need_update",),
    "density_prior_box": ("variances",),
    "feed": ("col",),
    "fetch": ("col",),
    "fused_elemwise_activation": ("functor_list",),
    "group_norm": ("groups",),
    "pad2d": ("paddings",),
    "print": (
        *("first_n", "message", "summarize", "print_tensor_name", "print_tensor_type", "print_tensor_shape", "print_tensor_lod"),
    ),
    "prior_box": ("aspect_ratios", "variances"),
    "psroi_pool": ("output_channels",),
    "sequence_erase": ("tokens",),
    "sequence_mask": ("out_dtype",),
    "slice": ("axes",),
    "strided_slice": ("axes",),
    "tril_triu": ("lower",),
    "unfold": ("strides", "paddings", "dilations"),
    "unique": ("dtype",),
    "unique_with_counts": ("dtype",),
    "unpool": ("unpooling_type",),
    "unstack": ("num",),
    "yolo_box": ("class_num",),
    "yolov3_loss": ("class_num",),
}
"""Op -> the attributes for which Paddle 1.8 has no default, but we do."""


@functools.cache
def _by_op() -> dict[str, dict[str, tuple[str, Any]]]:
    ops: dict[str, dict[str, tuple[str, Any]]] = {}
    for name, kind, value, types in _TABLE:
        for op_type in types.split():
            ops.setdefault(op_type, {})[name] = kind, value
    return ops


_NONE: Mapping[str, tuple[str, Any]] = {}


def attrs_of_paddle(op_type: str) -> Mapping[str, tuple[str, Any]]:
    """Attribute -> its kind in files and its value, of an op or of one of its gradient ops."""
    return _by_op().get(op_type.replace("_grad", ""), _NONE)


def is_paddle_default(op_type: str, name: str, value: Any) -> bool:
    """Whether an attribute is one that files for Paddle 1.8 add: the op computes the same without it."""
    kind, default = attrs_of_paddle(op_type).get(name, ("", None))
    return bool(kind) and bool(value == default)
