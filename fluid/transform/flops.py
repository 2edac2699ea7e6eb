"""Counts the arithmetic operations of a program.

A multiplication and an addition are two operations. Products and convolutions are counted exactly; other ops count
`PER_ELEMENT` operations (mostly one) for each element of their result, whatever the function costs on a machine; moving
elements counts nothing. The gradient op of a product counts as one product for each gradient that it computes. A loop's block
counts once. Ops that are not known here are listed, not guessed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import FluidError
from ..ir.checked import checked
from ..ir.copying import declare_like
from ..ir.inference import BuildNamespace
from ..ir.program import Operator, Program, Variable
from ..not_here import names_here
from ..opdef.registry import EMPTY, OpDef, by_slot
from ..ops.rnn import Geometry
from .edit import infer_downstream

__all__ = ["FlopCount", "count_flops"]

__dir__ = names_here(__name__)

PER_ELEMENT = {
    "batch_norm": 2,
    "group_norm": 7,
    "instance_norm": 7,
    "layer_norm": 7,
    "log_softmax": 5,
    "scale": 2,
    "softmax": 5,
    "softmax_with_cross_entropy": 6,
    "adam": 12,
    "adamw": 14,
    "momentum": 4,
    "sgd": 2,
}
"""Operations for each element of the first output; one for ops that are not listed."""
_MOVES = frozenset(
    """assign assign_value cast concat conditional_block diag_v2 dropout expand expand_as_v2 expand_v2 eye feed fetch
    fill_any_like fill_constant fill_constant_batch_size_like fill_zeros_like flatten flatten2 flatten_contiguous_range
    flip gather gather_nd gaussian_random increment index_select linspace lod_array_length lookup_table lookup_table_v2
    one_hot one_hot_v2 pad pad2d pad3d range read_from_array recurrent reshape reshape2 reverse roll select_input
    select_output sequence_mask shape size slice split squeeze squeeze2 stack strided_slice tile transpose transpose2
    tril_triu truncated_gaussian_random unbind uniform_random unsqueeze unsqueeze2 unstack where_index while
    write_to_array pop_from_array insert_into_array fill_array_like""".split()  # noqa: SIM905  # to be read
)
"""Ops that move elements, make constants or own blocks."""


@dataclass
class FlopCount:
    """The operations of one run, which can be printed.

    Attributes:
        total: operations of all counted ops.
        by_type: operations by type of op.
        uncounted: how many ops there are of each type that cannot be counted.

    >>> from fluid.transform.flops import count_flops
    >>> y = layers.fc(fluid.data("x", [None, 4]), 8, bias_attr=False)
    >>> count_flops(fluid.default_main_program()).by_type
    Counter({'mul': 64})
    """

    total: int = 0
    by_type: Counter[str] = field(default_factory=Counter)
    uncounted: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [f"{human(self.total)}FLOP"]
        lines += [f"  {op_type}: {human(count)}FLOP" for op_type, count in self.by_type.most_common() if count]
        if self.uncounted:
            lines.append("  not counted: " + ", ".join(f"{op_type} ({count})" for op_type, count in self.uncounted.most_common()))
        return "\n".join(lines)


def human(number: float) -> str:
    """A number with a metric prefix, such as ``1.23 G``."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(number) < 1000:
            return f"{number:.3g} {prefix}"
        number /= 1000
    return f"{number:.3g} P"


@checked
def count_flops(program: Program, unknown: int = 1) -> FlopCount:
    """The operations of running every op of a program once.

    Args:
        program: the program.
        unknown: stands for each unknown dimension of data, mostly the batch size.

    >>> y = layers.fc(fluid.data("x", [None, 4]), 8, bias_attr=False)
    >>> from fluid.transform.flops import count_flops
    >>> count_flops(fluid.default_main_program(), unknown=2).total
    128
    """
    data = [var for var in program.list_vars() if var.is_data and var.has_shape]
    try:
        sized = with_shapes(program, {var.name: [unknown if size < 0 else size for size in var.shape] for var in data})
    except FluidError:  # these shapes do not fit: leave them unknown
        sized = program
    result = FlopCount()
    for block in sized.blocks:
        for op in block.ops:
            count = flops_of(op)
            if count is None:
                result.uncounted[op.type] += 1
            else:
                result.total += count
                result.by_type[op.type] += count
    return result


def with_shapes(program: Program, shapes: Mapping[str, Sequence[int]]) -> Program:
    """A copy where data has these shapes, and everything computed from it the shapes that follow.

    Raises:
        InferenceError: they do not fit an op.
    """
    copy = program.clone()
    data = [var for var in copy.list_vars() if var.name in shapes]
    for var in data:
        var._shape = tuple(shapes[var.name])
    infer_downstream(copy, data, "with_shapes")
    return copy


def _shape(op: Operator, slot: str, outputs: bool = False) -> tuple[int, ...] | None:
    names = (op.outputs if outputs else op.inputs).get(slot, ())
    var = op.block.find_var(names[0]) if names and names[0] != EMPTY else None
    if var is None or not var.has_shape or -1 in var.shape:
        return None
    return var.shape


def flops_of(op: Operator) -> int | None:
    """The operations of running an op once; None if its shapes are not known."""
    is_grad = op.type.endswith("_grad")
    base = op.type.removesuffix("_grad")
    if base in _MOVES:
        return 0
    if base in _PRODUCTS:
        count = _PRODUCTS[base](op)
        return None if count is None else count * (_count_gradient_products(op) if is_grad else 1)
    if op.definition is None:
        return None
    if op.definition.is_composed:  # others count as one
        return _composed(op, op.definition)
    elements = _elements(op)
    return None if elements is None else elements * PER_ELEMENT.get(base, 1)


def _count_gradient_products(op: Operator) -> int:
    """How many products a gradient op computes: one for each factor, none for a bias."""
    return min(2, sum(name != EMPTY for names in op.outputs.values() for name in names))


def _elements(op: Operator) -> int | None:
    """Elements of the first output; of all inputs for a reduction, of all gradients for a gradient op. None if unknown."""
    if op.type.startswith("reduce_") or op.type in ("mean", "sum", "squared_l2_norm", "p_norm", "l1_norm"):
        sides = list(op.inputs.values())
    else:
        slots = op.definition.outputs if op.definition is not None else {}
        first = next((slot for slot in slots if op.outputs.get(slot)), "")
        sides = list(op.outputs.values()) if op.type.endswith("_grad") else [op.outputs.get(first, [])]
    total = 0
    for names in sides:
        for name in names:
            var = op.block.find_var(name) if name != EMPTY else None
            if var is None:
                continue
            if not var.has_shape or -1 in var.shape:
                return None
            total += math.prod(var.shape)
    return total


def _composed(op: Operator, definition: OpDef) -> int | None:
    """The operations of the ops that an op is made of."""
    block = Program().global_block()

    def declared(name: str) -> Variable | None:
        var = op.block.find_var(name) if name != EMPTY else None
        return None if var is None else block.vars.get(name) or declare_like(block, name, var)

    values = by_slot(definition.inputs, op.inputs, declared)
    filled_slots = {slot for slot, names in op.outputs.items() if names}
    try:
        definition.composition(BuildNamespace(block), values, definition.defaults(op.attrs), filled_slots)  # type: ignore[misc]
    except FluidError:
        return None
    counts = [flops_of(item) for item in block.ops]
    return None if any(count is None for count in counts) else sum(count for count in counts if count is not None)


def _conv(op: Operator) -> int | None:
    out = _shape(op, "Output", outputs=True) or _shape(op, "Output@GRAD") or _shape(op, "Output")
    weight = _shape(op, "Filter")
    return None if out is None or weight is None else 2 * math.prod(out) * math.prod(weight[1:])


def _conv_transpose(op: Operator) -> int | None:
    image, weight = _shape(op, "Input"), _shape(op, "Filter")
    return None if image is None or weight is None else 2 * math.prod(image) * math.prod(weight[1:])


def _mul(op: Operator) -> int | None:
    x, y = _shape(op, "X"), _shape(op, "Y")
    if x is None or y is None:
        return None
    columns: int = op.attr("y_num_col_dims")
    return 2 * math.prod(x) * math.prod(y[columns:])


def _matmul(op: Operator) -> int | None:
    x, y = _shape(op, "X"), _shape(op, "Y")
    if x is None or y is None:
        return None
    flipped_x = op.attrs.get("trans_x") or op.attrs.get("transpose_X")
    flipped_y = op.attrs.get("trans_y") or op.attrs.get("transpose_Y")
    inner = x[-2] if flipped_x and len(x) > 1 else x[-1]
    rows = math.prod(x[-2:]) // inner if inner else 0
    columns = 1 if len(y) < 2 else y[-2] if flipped_y else y[-1]
    batches = max(math.prod(x[:-2]), math.prod(y[:-2]))
    return 2 * batches * rows * inner * columns


def _pool(op: Operator) -> int | None:
    out, image = _shape(op, "Out", outputs=True) or _shape(op, "Out"), _shape(op, "X")
    if out is None:
        return None
    if op.attrs.get("global_pooling") or op.attrs.get("adaptive"):
        return None if image is None else math.prod(image)
    window: list[int] = op.attr("ksize")
    return math.prod(out) * math.prod(window)


def _rows_by_weights(op: Operator) -> int | None:
    """Each row times the matrices among the weights. The input of `lstm` and `gru` is a product already."""
    rows = _shape(op, "Input") or _shape(op, "X")
    slots = [slot for slot in ("Weight", "ProjWeight", "WeightList", "Filter") if slot in op.inputs]
    weights = [op.block.var(name) for slot in slots for name in op.inputs[slot]]
    if rows is None or not weights or any(not var.has_shape or -1 in var.shape for var in weights):
        return None
    return 2 * math.prod(rows[:-1]) * sum(math.prod(var.shape) for var in weights if len(var.shape) == 2)


def _cudnn_lstm(op: Operator) -> int | None:
    """Each row times the matrices, which lie in one array of weights."""
    rows = _shape(op, "Input")
    matrices = [shape for shape in Geometry.of(op.all_attrs(), "LSTM").weight_shapes() if len(shape) == 2]
    return None if rows is None else 2 * math.prod(rows[:-1]) * sum(map(math.prod, matrices))


def _chosen_classes(op: Operator) -> int | None:
    """A row times a vector, for each class that `nce` draws, or each node on the path of `hierarchical_sigmoid`."""
    slot, rows = ("SampleLogits", "Input") if op.type.startswith("nce") else ("PreOut", "X")
    scores, row = _shape(op, slot, outputs=True) or _shape(op, slot), _shape(op, rows)
    return None if scores is None or row is None else 2 * math.prod(scores) * row[-1]


def _row_conv(op: Operator) -> int | None:
    rows, taps = _shape(op, "X"), _shape(op, "Filter")
    return None if rows is None or taps is None else 2 * math.prod(rows) * taps[0]


def _bilinear(op: Operator) -> int | None:
    rows, weights = _shape(op, "X"), _shape(op, "Weight")
    return None if rows is None or weights is None else 2 * rows[0] * math.prod(weights)


_PRODUCTS: dict[str, Callable[[Operator], int | None]] = {
    **dict.fromkeys(("conv2d", "conv3d", "deformable_conv", "deformable_conv_v1", "depthwise_conv2d"), _conv),
    **dict.fromkeys(("conv2d_transpose", "conv3d_transpose", "depthwise_conv2d_transpose"), _conv_transpose),
    **dict.fromkeys(("matmul", "matmul_v2", "bmm"), _matmul),
    **dict.fromkeys(("pool2d", "pool3d"), _pool),
    **dict.fromkeys(("gru", "gru_unit", "lstm", "lstmp", "rnn", "sequence_conv"), _rows_by_weights),
    **dict.fromkeys(("hierarchical_sigmoid", "nce"), _chosen_classes),
    "bilinear_tensor_product": _bilinear,
    "cudnn_lstm": _cudnn_lstm,
    "mul": _mul,
    "row_conv": _row_conv,
}
