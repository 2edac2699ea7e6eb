"""Which engines have code of their own for each op: ``python tests/support/written.py`` prints a table.

Ops that are written for numpy, native code and ONNX alike come first: ops with a formula, then the ops in `PRIMITIVES`, then
all others. ``--thrice`` prints only the last kind. tests/ops/test_one_definition.py holds that their number does not grow.
"""

from __future__ import annotations

import argparse
import pkgutil
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple

import fluid.executor.native
import fluid.executor.xla
import fluid.onnx.writing
from fluid.executor.kernels.table import KERNELS, load_kernels
from fluid.opdef import registry

__all__ = ["PRIMITIVES", "Row", "rows", "written_thrice"]

_BY_KIND = {
    "elementwise functions, of which others are made": (
        "abs acos asin atan ceil cos cosh erf exp expm1 floor log log1p pow reciprocal relu round sigmoid sign sin sinh sqrt "
        "tanh cast clip scale elementwise_add elementwise_div elementwise_max elementwise_min elementwise_mul elementwise_pow "
        "elementwise_sub elementwise_mod elementwise_floordiv "
        "equal not_equal greater_than greater_equal less_than less_equal logical_and logical_or logical_xor "
        "logical_not where isfinite_v2 isinf_v2 isnan_v2"
    ),
    "numbers and shapes": (
        "assign fill_any_like fill_constant fill_constant_batch_size_like reshape reshape2 reshape_like squeeze squeeze2 "
        "unsqueeze unsqueeze2 flatten flatten2 flatten_contiguous_range transpose transpose2 shape size"
    ),
    "parts of arrays, moved": (
        "concat split split_like stack unstack unbind slice slice_like strided_slice strided_slice_like unslice strided_unslice "
        "flip reverse roll pad pad2d pad3d pad_by unpad_by expand expand_as expand_as_v2 expand_to expand_v2 tile tile_like "
        "untile expand_reduced"
    ),
    "elements by number": (
        "gather gather_nd scatter arg_max arg_min argsort top_k top_k_v2 "
        "lookup_table lookup_table_v2 one_hot one_hot_v2 scatter_add_like scatter_nd_add "
        "scatter_rows_like sequence_mask take_along_axis put_along_axis take_rows add_rows graph_send_recv"
    ),
    "sums and extremes": "sum sum_to reduce_sum reduce_mean reduce_max reduce_min reduce_prod reduce_all reduce_any cumsum",
    "parts of matrices": "tril_triu diagonal undiagonal",
    "equations of matrices": "cholesky inverse solve triangular_solve",
    "products, convolutions, pools": (
        "mul matmul matmul_v2 einsum einsum_like conv2d conv2d_backprop_filter conv2d_backprop_input conv2d_transpose "
        "depthwise_conv2d depthwise_conv2d_transpose pool2d pool2d_average_back "
        "conv3d conv3d_backprop_filter conv3d_backprop_input conv3d_transpose pool3d maxout"
    ),
    "images and volumes, resampled": (
        "nearest_interp nearest_interp_v2 linear_interp linear_interp_v2 bilinear_interp bilinear_interp_v2 "
        "trilinear_interp trilinear_interp_v2 interp_like uninterp grid_gather grid_scatter affine_grid places_like"
    ),
    "fused for speed or exactness, by an op of ONNX too": "softmax log_softmax batch_norm layer_norm",
    "counts and states, exact in integers": "accuracy auc",
    "drawn": "dropout",
}
PRIMITIVES = frozenset(name for names in _BY_KIND.values() for name in names.split())
"""Ops that are no formula of others: each engine computes them in its own way."""


class Row(NamedTuple):
    """The code that is written for one op.

    Attributes:
        formula: "composed" (the op has no kernel), "meaning" (a formula beside a kernel), "rule" (a gradient) or "".
    """

    op_type: str
    numpy: bool
    native: bool
    onnx: bool
    xla: bool
    formula: str


def _load(package: Any) -> None:
    for module in pkgutil.iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")


def rows() -> list[Row]:
    """A row for each op, gradient ops included."""
    for package in (fluid.executor.native, fluid.executor.xla, fluid.onnx.writing):
        _load(package)
    load_kernels()
    from fluid.executor.native.lowering import _LOWERINGS
    from fluid.executor.xla.kernels import KERNELS as XLA_KERNELS
    from fluid.onnx.writing.exporting import EXPORTS

    def formula(definition: registry.OpDef) -> str:
        if definition.composition is not None:
            return "composed"
        if definition.meaning is not None:
            return "meaning"
        return "rule" if definition.forward is not None and isinstance(definition.forward.rule, registry.Rule) else ""

    return [
        Row(name, *(name in table for table in (KERNELS, _LOWERINGS, EXPORTS, XLA_KERNELS)), formula(definition))
        for name, definition in sorted(registry.all_ops().items())
    ]


def written_thrice(table: Iterable[Row]) -> list[Row]:
    """Ops with code of their own for numpy, native code and ONNX, though they have no formula and are not primitive."""
    return [row for row in table if row.numpy and row.native and row.onnx and not row.formula and row.op_type not in PRIMITIVES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thrice", action="store_true", help="only ops that are written three times and should not be")
    table = rows()
    chosen = written_thrice(table) if parser.parse_args().thrice else table
    print(f"{'op':44} numpy native onnx xla formula")
    for row in sorted(chosen, key=lambda row: -(row.numpy + row.native + row.onnx)):
        marks = [("x" if has else "").ljust(width) for has, width in zip(row[1:5], (5, 6, 4, 3), strict=True)]
        print(f"{row.op_type:44} {' '.join(marks)} {row.formula}".rstrip())
    print(f"{len(chosen)} ops, {sum(row.numpy and row.native and row.onnx for row in chosen)} written three times")


if __name__ == "__main__":
    main()
