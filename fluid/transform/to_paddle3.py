"""Rows for Paddle 3: ops that its programs have no equivalent of, as ops that they have. `fluid.formats.pir` writes those."""

from __future__ import annotations

import functools
import math

from ..autodiff.expand import expand_regions, recurrence_as_loop
from ..formats.pir.files import WRITERS
from ..formats.pir.table import types_with_rows
from ..ir.program import Block, Operator, Program, Variable
from ..opdef.registry import EMPTY
from ..ops.quantization import greatest
from ..values.types import VarType
from .op_rows import (
    BOTH,
    Refused,
    Rewrite,
    Row,
    align,
    cast_input,
    constant,
    filled_like,
    input_of,
    is_written,
    only,
    put,
    put_view,
    refuse_if,
    set_type,
    shape_of,
    squeeze_ids,
    temporary,
    unsqueeze_input,
)
from .paddle26 import EXPANDED
from .paddle26.images import pad_images, pad_sides, refuse_integers
from .paddle26.inputs import columns_of_labels, isclose, matmul_v2_grad
from .paddle26.old_ops import to_second_version

NOT_SHARED = frozenset({"gather_grad", "isfinite", "recurrent_grad", "split_array", "while_grad"})
"""Rows for Paddle 2.6 that Paddle 3 needs no longer, or has others for."""

EXPANDED_3 = {
    **{kind: is_needed for kind, is_needed in EXPANDED.items() if kind not in ("reduce_amax_grad", "reduce_amin_grad")},
    "masked_fill_grad": lambda op: is_written(op, "value@GRAD"),
    "set_value_grad": lambda op: not op.input("ValueTensor"),
}
"""As `EXPANDED`, for Paddle 3."""


@functools.cache
def types_of_paddle_3() -> frozenset[str]:
    """The types of ops that can be written for Paddle 3."""
    return frozenset({*types_with_rows(), *WRITERS})


# ------------------------------------------------------------------------------------------------------------ products
def _is_plain_product(op: Operator) -> bool:
    """Whether a ``mul`` is a product along the last dimension of X and the first of Y, a matrix."""
    x, y = shape_of(input_of(op, "X")), shape_of(input_of(op, "Y"))
    return len(y) == 2 and op.attr("y_num_col_dims") == 1 and op.attr("x_num_col_dims") == len(x) - 1


def _sizes_of_product(op: Operator) -> tuple[int, int]:
    """The length of the sums of a ``mul``, and the number of columns of its result."""
    y_shape, rows = shape_of(input_of(op, "Y")), op.attr("y_num_col_dims")
    if -1 in y_shape:
        raise Refused(f"it multiplies by {list(y_shape)}, of which a dimension is not known")
    return math.prod(y_shape[:rows]), math.prod(y_shape[rows:])


def _as_matrix(op: Operator, slot: str, shape: tuple[int, int]) -> Variable | None:
    """Put a matrix in the place of an input; returns the variable that keeps the input's shape, None if it is one already."""
    var = input_of(op, slot)
    if len(shape_of(var)) == 2:
        return None
    matrix, xshape = temporary(op, var, shape), temporary(op, var, (0, *shape_of(var)))
    put(op, "reshape2", {"X": var}, {"Out": matrix, "XShape": xshape}, {"shape": list(shape)}, after=False)
    op.inputs[slot] = [matrix.name]
    return xshape


def _mul(op: Operator) -> None:
    if _is_plain_product(op):
        return set_type(op, "matmul_v2", trans_x=False, trans_y=False)
    inner, columns = _sizes_of_product(op)
    x, y = input_of(op, "X"), input_of(op, "Y")
    wanted = [*shape_of(x)[: op.attr("x_num_col_dims")], *shape_of(y)[op.attr("y_num_col_dims") :]]
    if wanted.count(-1) > 1:
        raise Refused(f"its result is {wanted}, of which too many dimensions are not known")
    _as_matrix(op, "X", (-1, inner))
    _as_matrix(op, "Y", (inner, columns))
    (out,) = op.output("Out")
    if len(wanted) != 2:
        product = temporary(op, op.block.var(out), (-1, columns))
        put_view(op, "reshape2", product, out, {"shape": wanted}, after=True)
        op.outputs["Out"] = [product.name]
    set_type(op, "matmul_v2", trans_x=False, trans_y=False)


def _mul_grad(op: Operator) -> None:
    if _is_plain_product(op):
        return set_type(op, "matmul_v2_grad", trans_x=False, trans_y=False)
    inner, columns = _sizes_of_product(op)
    shapes = {"X": (-1, inner), "Y": (inner, columns), "Out@GRAD": (-1, columns)}
    xshapes = {f"{slot}@GRAD": _as_matrix(op, slot, shape) for slot, shape in shapes.items()}
    for slot, shape_kept in xshapes.items():
        names = op.output(slot)
        if shape_kept is not None and names and names[0] != EMPTY:
            matrix = temporary(op, op.block.var(names[0]), shapes[slot.removesuffix("@GRAD")])
            op.outputs[slot] = [matrix.name]
            put(op, "reshape2_grad", {"Out@GRAD": matrix, "XShape": shape_kept}, {"X@GRAD": names[0]}, {}, after=True)
    set_type(op, "matmul_v2_grad", trans_x=False, trans_y=False)


def _as_matrices(op: Operator) -> None:
    """Old products take a vector for a row of X or a column of Y, and transpose it: where they do, let it be one."""
    for slot in ("X", "Y"):
        if len(shape_of(input_of(op, slot))) == 1 and (op.attr("transpose_X") or op.attr("transpose_Y")):
            unsqueeze_input(op, slot, [0 if slot == "X" else 1])


def _shape_of_product(op: Operator) -> tuple[int, ...]:
    """The shape that a product of matrices gives."""
    x, y = list(shape_of(input_of(op, "X"))), list(shape_of(input_of(op, "Y")))
    x[-2:] = x[:-3:-1] if op.attr("transpose_X") else x[-2:]
    y[-2:] = y[:-3:-1] if op.attr("transpose_Y") else y[-2:]
    batch = x[:-2] if len(x) > len(y) else y[:-2]
    return *batch, x[-2], y[-1]


def _matmul(op: Operator) -> None:
    alpha = op.attr("alpha")
    _as_matrices(op)
    flags = {"trans_x": op.attr("transpose_X"), "trans_y": op.attr("transpose_Y")}
    (out,) = op.output("Out")
    declared = shape_of(op.block.var(out))
    if alpha != 1.0:
        product = temporary(op, op.block.var(out), declared)
        op.outputs["Out"] = [product.name]
        put(op, "scale", {"X": product}, {"Out": out}, {"scale": alpha}, after=True)
    if all(len(shape_of(input_of(op, slot))) > 1 for slot in ("X", "Y")) and len(shape := _shape_of_product(op)) != len(declared):
        product = temporary(op, op.block.var(out), shape)
        put_view(op, "reshape2", product, op.output("Out"), {"shape": _with_one_unknown(declared)}, after=True)
        op.outputs["Out"] = [product.name]
    set_type(op, "matmul_v2", **flags)


def _matmul_grad(op: Operator) -> None:
    alpha = op.attr("alpha")
    _as_matrices(op)
    flags = {"trans_x": op.attr("transpose_X"), "trans_y": op.attr("transpose_Y")}
    if alpha != 1.0:
        gradient = input_of(op, "Out@GRAD")
        scaled = temporary(op, gradient, shape_of(gradient))
        put(op, "scale", {"X": gradient}, {"Out": scaled}, {"scale": alpha}, after=False)
        op.inputs["Out@GRAD"] = [scaled.name]
    gradient = input_of(op, "Out@GRAD")
    if all(len(shape_of(input_of(op, slot))) > 1 for slot in ("X", "Y")):
        shape = _shape_of_product(op)
        if len(shape) != len(shape_of(gradient)):
            wide = temporary(op, gradient, shape)
            put_view(op, "reshape2", gradient, wide, {"shape": _with_one_unknown(shape)}, after=False)
            op.inputs["Out@GRAD"] = [wide.name]
    set_type(op, "matmul_v2_grad", **flags)
    matmul_v2_grad(op)


def _with_one_unknown(shape: tuple[int, ...]) -> list[int]:
    if shape.count(-1) > 1:
        raise Refused(f"its result is {list(shape)}, of which too many dimensions are not known")
    return list(shape)


# ------------------------------------------------------------------------------------------------------- other versions
def _top_k(op: Operator) -> None:
    k_attrs = {} if op.input("K") else {"k": op.attr("k")}
    set_type(op, "top_k_v2", axis=-1, largest=True, sorted=True, **k_attrs)


def _top_k_grad(op: Operator) -> None:
    """k is the number of elements per row of Indices: the old gradient op does not read K."""
    count = shape_of(input_of(op, "Indices"))[-1]
    if count < 0:
        raise Refused("how many elements it takes is in a tensor, which its gradient does not read")
    set_type(op, "top_k_v2_grad", axis=-1, largest=True, sorted=True, k=count)


def _lookup_table(op: Operator) -> None:
    squeeze_ids(op, "Ids", "its Ids are")
    attrs = {name: op.attr(name) for name in ("padding_idx", "is_sparse")}
    set_type(op, op.type.replace("lookup_table", "lookup_table_v2"), **attrs)


def _expand(op: Operator) -> None:
    only(op, "X", "Out@GRAD")
    set_type(op, "tile_grad" if op.type.endswith("_grad") else "tile", repeat_times=list(op.attr("expand_times")))


def _fill_zeros_like(op: Operator) -> None:
    x = input_of(op)
    if x.type is VarType.LOD_TENSOR_ARRAY:  # entries that are missing count as zeros
        op.inputs = {}
        return set_type(op, "new_array", dtype=int(x.dtype))
    set_type(op, "fill_any_like", value=0.0, dtype=op.attrs.get("dtype", -1))


def _flatten(op: Operator) -> None:
    x = input_of(op)
    sizes, axis = shape_of(x), op.attr("axis")
    if not op.output("XShape"):
        op.outputs["XShape"] = [temporary(op, x, (0, *sizes)).name]
    if axis == 1 and len(sizes) > 1:
        return set_type(op, "flatten_contiguous_range", start_axis=1, stop_axis=len(sizes) - 1)
    rows, columns = sizes[:axis], sizes[axis:]
    if -1 in rows and -1 in columns:
        raise Refused(f"it makes a matrix of {list(sizes)}, of which too many dimensions are not known")
    set_type(op, "reshape2", shape=[-1 if -1 in part else math.prod(part) for part in (rows, columns)])


def _flatten2_grad(op: Operator) -> None:
    set_type(op, "reshape2_grad")


def _cross_entropy(op: Operator) -> None:
    """Write the cross entropy of probabilities that come from a softmax."""
    columns_of_labels(op)
    x = input_of(op)
    (out,) = op.output("Y")
    op.inputs = {"Logits": op.input("X"), "Label": op.input("Label")}
    op.outputs = {"Softmax": [temporary(op, x, shape_of(x)).name], "Loss": [out]}
    attrs = {name: op.attr(name) for name in ("soft_label", "ignore_index")}
    set_type(op, "softmax_with_cross_entropy", use_softmax=False, axis=-1, **attrs)


def _cross_entropy_grad(op: Operator) -> None:
    columns_of_labels(op)
    op.inputs = {"Softmax": op.input("X"), "Label": op.input("Label"), "Loss@GRAD": op.input("Y@GRAD")}
    op.outputs = {"Logits@GRAD": op.output("X@GRAD")}
    attrs = {name: op.attr(name) for name in ("soft_label", "ignore_index")}
    set_type(op, "softmax_with_cross_entropy_grad", use_softmax=False, axis=-1, **attrs)


def _tested(op: Operator) -> None:
    """Whether any, or for ``isfinite`` each, element is."""
    x = input_of(op)
    (out,) = op.output("Out")
    flags = temporary(op, x, shape_of(x), VarType.BOOL)
    op.outputs["Out"] = [flags.name]
    reduction = "reduce_all" if op.type == "isfinite" else "reduce_any"
    op.type += "_v2"
    axes = list(range(len(shape_of(x))))
    put(op, reduction, {"X": flags}, {"Out": out}, {"dim": axes, "reduce_all": True, "keep_dim": False}, after=True)


def _interp(op: Operator) -> None:
    """Here a scale sets the size; in Paddle 3 it sets the ratio too. The two agree only where the scale is a whole number."""
    refuse_integers(op)
    scale, x = op.attr("scale"), input_of(op)
    sizes = [
        size
        for axis, size in enumerate(shape_of(x))
        if axis not in (0, 1 if op.attr("data_layout") == "NCHW" else len(shape_of(x)) - 1)
    ]
    kind = op.type.partition("_interp")[0]
    names = ("out_d", "out_h", "out_w")
    size_attrs = {name: op.attr(name) for name in (*names, "align_corners", "align_mode", "data_layout")}
    if scale > 0 and not float(scale).is_integer() and not op.attr("align_corners"):
        if -1 in sizes:
            raise Refused(f"it resizes what is known when it runs by {scale}, and Paddle 3 computes another ratio of the sizes")
        size_attrs |= dict(zip(names[3 - len(sizes) :], (int(size * scale) for size in sizes), strict=True))
        scale = 0.0
    name = op.type.removesuffix("_grad") + "_v2" + "_grad" * op.type.endswith("_grad")
    set_type(op, name, scale=[scale] * len(sizes) if scale > 0 else [], interp_method=kind, **size_attrs)


def _reshape_as(op: Operator, x: str, like: str, result: str) -> None:
    """Let an op put a tensor into the shape of another."""
    var, shape = op.block.var(x), op.block.var(like)
    sizes = temporary(op, shape, (len(shape_of(shape)),), VarType.INT32)
    put(op, "shape", {"Input": shape}, {"Out": sizes}, {}, after=False)
    op.inputs = {"X": [x], "Shape": [sizes.name]}
    op.outputs = {"Out": [result], "XShape": [temporary(op, var, (0, *shape_of(var))).name]}
    set_type(op, "reshape2", shape=[])


def _reshape_like(op: Operator) -> None:
    _reshape_as(op, op.input("X")[0], op.input("Like")[0], op.output("Out")[0])


def _back_to_shape(op: Operator) -> None:
    _reshape_as(op, op.input("Out@GRAD")[0], op.input("X")[0], op.output("X@GRAD")[0])


def _view_shape_grad(op: Operator) -> None:
    _reshape_as(op, op.input("out@GRAD")[0], op.input("input")[0], op.output("input@GRAD")[0])


def _transpose_grad(op: Operator) -> None:
    order = op.attr("axis")
    gradient = input_of(op, "Out@GRAD")
    op.inputs = {"X": [gradient.name]}
    op.outputs = {"Out": op.output("X@GRAD"), "XShape": [temporary(op, gradient, (0, *shape_of(gradient))).name]}
    set_type(op, "transpose2", axis=sorted(range(len(order)), key=lambda i: order[i]))


def _widened(slot: str) -> Rewrite:
    """Rewrites an op whose output in this slot is int64 there: a cast brings it back to its type."""

    def rewrite(op: Operator) -> None:
        (out,) = op.output(slot)
        var = op.block.var(out)
        if var.dtype is not VarType.INT64:
            wide = temporary(op, var, var._shape, VarType.INT64)
            op.outputs[slot] = [wide.name]
            attrs = {"in_dtype": int(VarType.INT64), "out_dtype": int(var.dtype)}
            put(op, "cast", {"X": wide}, {"Out": out}, attrs, after=True)

    return rewrite


def _tolerances(op: Operator) -> None:
    """Paddle 3 takes them as tensors."""
    like = input_of(op, "Input")
    for slot, name in (("Rtol", "rtol"), ("Atol", "atol")):
        if not op.input(slot):
            op.inputs[slot] = [constant(op, like, [1], float(op.attr(name)), VarType.FP64).name]
        op.attrs.pop(name, None)
    if op.type == "isclose":
        isclose(op)


def _states(op: Operator) -> None:
    """Paddle 3 wants states, also where it does not read them."""
    for slot in ("InAccum", "InState"):
        if not op.input(slot):
            op.inputs[slot] = [constant(op, input_of(op, "Scale"), [1], 0.0).name]


def _dequantize_linear(op: Operator) -> None:
    """Write the op by its formula: Paddle 3 quantizes once more."""
    scale, (out,) = input_of(op, "Scale"), op.output("Y")
    for state in ("Scale", "State", "Accum"):  # which it leaves as they are
        names = op.input("Scale") if state == "Scale" else op.input(f"In{state}")
        if is_written(op, f"Out{state}") and names != op.output(f"Out{state}"):
            source = names or [constant(op, scale, [1], 0.0).name]
            put(op, "assign", {"X": source}, {"Out": op.output(f"Out{state}")}, {}, after=True)
    op.outputs = {"Out": [out]}
    if op.attr("only_observer"):
        op.inputs = {"X": op.input("X")}
        return set_type(op, "assign")
    cast_input(op, "X", scale.dtype)
    x = input_of(op)
    product = temporary(op, scale, x._shape)
    put(op, "scale", {"X": product}, {"Out": out}, {"scale": 1.0 / greatest(op.attr("bit_length"))}, after=True)
    op.inputs, op.outputs = {"X": [x.name], "Y": [scale.name]}, {"Out": [product.name]}
    set_type(op, "elementwise_mul", axis=max(op.attr("quant_axis"), -1))
    align(op)


def _unreshape(op: Operator) -> None:
    sizes = shape_of(input_of(op, "XShape"))[1:]
    if sizes.count(-1) > 1:
        op.inputs, op.outputs = {"XShape": op.input("XShape"), "Out@GRAD": op.input("X")}, {"X@GRAD": op.output("Out")}
        return set_type(op, "reshape2_grad", shape=[])
    x = input_of(op)
    op.inputs = {"X": [x.name]}
    op.outputs = {"Out": op.output("Out"), "XShape": [temporary(op, x, (0, *shape_of(x))).name]}
    set_type(op, "reshape2", shape=list(sizes))


def _rmsprop(op: Operator) -> None:
    """Without `centered`, Paddle makes nothing of MeanGrad, and would overwrite it."""
    if not op.attr("centered"):
        op.inputs.pop("MeanGrad", None)
        op.outputs.pop("MeanGradOut", None)


def _strided_slice(op: Operator) -> None:
    """Backwards, an end of -1 is before the first element here, and the last element there; and nothing is inferred."""
    op.attrs.pop("infer_flags", None)
    strides, ends = op.attr("strides"), list(op.attr("ends"))
    if any(stride < 0 for stride in strides) and (op.input("EndsTensor") or op.input("EndsTensorList")):
        raise Refused("it goes backwards to an end in a tensor, where Paddle 3 takes -1 for the last element")
    for position, (end, stride) in enumerate(zip(ends, strides, strict=False)):
        if end == -1 and stride < 0:
            ends[position] = _BEFORE
    op.attrs["ends"] = ends


_BEFORE = -(2**31 - 1)
"""An end before the first element, however many there are."""


# -------------------------------------------------------------------------------------------------- arrays and branches
def _select_output(op: Operator) -> None:
    """Select X or zeros for each output."""
    x, mask, outs = input_of(op), input_of(op, "Mask"), op.output("Out")
    if len(outs) != 2:
        raise Refused(f"it chooses among {len(outs)} values")
    zeros = filled_like(op, x, 0.0)
    if EMPTY not in outs:
        put(op, "select_input", {"X": [zeros, x], "Mask": mask}, {"Out": outs[1]}, {}, after=True)
    chosen = [zeros.name, x.name] if outs[0] == EMPTY else [x.name, zeros.name]
    op.inputs, op.outputs = {"X": chosen, "Mask": [mask.name]}, {"Out": [next(out for out in outs if out != EMPTY)]}
    set_type(op, "select_input")


def _unstack_array(op: Operator) -> None:
    """A loop that takes slice by slice."""
    x, (out,) = input_of(op), op.output("Out")
    block = op.block
    array = block.var(out)
    sizes = shape_of(x)

    def number(shape: tuple[int, ...], dtype: VarType) -> Variable:
        var = temporary(op, x, shape)
        var._dtype, var.stop_gradient = dtype, True
        return var

    extents, length, position = number((len(sizes),), VarType.INT32), number((1,), VarType.INT32), number((1,), VarType.INT32)
    going, scopes = number((1,), VarType.BOOL), temporary(op, x, ())
    scopes.type = VarType.STEP_SCOPES
    put(op, "shape", {"Input": x}, {"Out": extents}, {}, after=False)
    first = {"axes": [0], "starts": [0], "ends": [1], "decrease_axis": []}
    put(op, "slice", {"Input": extents}, {"Out": length}, first, after=False)
    zero = {"shape": [1], "dtype": int(VarType.INT32), "value": 0.0}
    put(op, "fill_constant", {}, {"Out": position}, zero, after=False)
    put(op, "new_array", {}, {"Out": array}, {"dtype": int(x.dtype)}, after=False)
    put(op, "less_than", {"X": position, "Y": length}, {"Out": going}, {"axis": -1}, after=False)
    body = block.program.create_block(block)
    row, entry = (body.create_var(name=block.program.fresh_name(f"{out}.{suffix}"), dtype=x.dtype) for suffix in ("row", "entry"))
    row._shape, entry._shape = (1, *sizes[1:]), sizes[1:]
    index = body.create_var(name=block.program.fresh_name(f"{out}.index"), shape=[1], dtype=VarType.INT64, stop_gradient=True)
    kinds = {"in_dtype": int(VarType.INT32), "out_dtype": int(VarType.INT64)}
    for type_, inputs, outputs, attrs in (
        ("gather", {"X": x, "Index": position}, {"Out": row}, {"axis": 0}),
        ("squeeze2", {"X": row}, {"Out": entry, "XShape": _kept_shape(body, row)}, {"axes": [0]}),
        ("cast", {"X": position}, {"Out": index}, kinds),
        ("write_to_array", {"X": entry, "I": index}, {"Out": array}, {}),
        ("increment", {"X": position}, {"Out": position}, {"step": 1.0}),
        ("less_than", {"X": position, "Y": length}, {"Out": going}, {"axis": -1}),
    ):
        body.append_op(type_, inputs, outputs, attrs, frames=op.frames)
    op.inputs = {"X": [x.name, length.name, position.name, array.name], "Condition": [going.name]}
    op.outputs = {"Out": [position.name, array.name, going.name], "StepScopes": [scopes.name]}
    set_type(op, "while", sub_block=body, is_test=False)


def _kept_shape(block: Block, var: Variable) -> Variable:
    """A variable that keeps the shape of another for gradient ops."""
    return block.create_var(name=block.program.fresh_name(f"{var.name}.xshape"), shape=[0, *var.shape], dtype=var.dtype)


def _stack_array_like(op: Operator) -> None:
    """`Like` gives the number of entries and their shapes."""
    x, like = input_of(op), input_of(op, "Like")
    parts = temporary(op, like, shape_of(like)[1:])
    parts.type = VarType.LOD_TENSOR_ARRAY
    put(op, "unstack_array", {"X": like}, {"Out": parts}, {}, after=False)
    op.inputs = {"X": [x.name], "Like": [parts.name]}
    _unstack_array(op.block.ops[op.idx - 1])
    set_type(op, "join_array", axis=0, use_stack=True)


def without_gradients_of_blocks(program: Program) -> None:
    """Replace gradients of loops and branches by loops and branches, as Paddle 3 writes no others."""
    for block in list(program.blocks):
        expand_regions(block)
    without_recurrences(program)


def without_recurrences(program: Program) -> None:
    """Replace recurrences by loops over arrays."""
    for block in list(program.blocks):
        for op in [op for op in block.ops if op.type == "recurrent"]:
            recurrence_as_loop(block, op)


# ------------------------------------------------------------------------------------------------------------- the rest
def _minus(op: Operator) -> None:
    set_type(op, "elementwise_sub", axis=-1)


_BINARY = ("add", "sub", "mul", "div", "pow", "max", "min", "mod", "floordiv")
_COMPARISONS = ("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal")
_OLD_INTERP = ("linear", "bilinear", "nearest", "bicubic", "trilinear")

TO_3 = [
    Row("mul", _mul),
    Row("mul_grad", _mul_grad),
    Row("matmul", _matmul),
    Row("matmul_grad", _matmul_grad),
    *[Row(f"elementwise_{kind}{grad}", align) for kind in _BINARY for grad in BOTH],
    *[Row(kind, align) for kind in _COMPARISONS],
    Row("top_k", _top_k),
    Row("top_k_grad", _top_k_grad),
    Row("lookup_table", _lookup_table),
    Row("lookup_table_grad", _lookup_table),
    Row("expand", _expand),
    Row("expand_grad", _expand),
    Row("fill_zeros_like", _fill_zeros_like),
    Row("fill_zeros_like2", _fill_zeros_like),
    Row("flatten", _flatten),
    Row("flatten2", _flatten),
    Row("flatten2_grad", _flatten2_grad),
    *[Row(kind, to_second_version) for kind in ("reshape", "squeeze", "transpose")],
    Row("cross_entropy", _cross_entropy),
    Row("cross_entropy_grad", _cross_entropy_grad),
    *[Row(f"strided_slice{grad}", _strided_slice) for grad in BOTH],
    Row("reshape_like", _reshape_like),
    *[Row(f"{kind}_grad", _back_to_shape) for kind in ("squeeze", "unsqueeze", "flatten", "reshape")],
    Row("transpose_grad", _transpose_grad),
    Row("view_shape_grad", _view_shape_grad),
    Row("matrix_rank", _widened("Out")),
    Row("crf_decoding", _widened("ViterbiPath")),
    Row("sequence_pool_grad", check=refuse_if(lambda op: op.attr("pooltype") == "MAX", "of maxima, it ends Paddle's process")),
    Row("rmsprop", _rmsprop),
    *[Row(kind, _tolerances) for kind in ("isclose", "allclose")],
    Row("unreshape", _unreshape),
    Row("quantize_linear", _states),
    Row("dequantize_linear", _dequantize_linear),
    Row("select_output", _select_output),
    Row("unstack_array", _unstack_array),
    Row("stack_array_like", _stack_array_like),
    Row("pad2d", pad_images),
    Row("pad2d_grad", pad_images),
    Row("pad_by", pad_sides),
    Row("pad_by_grad", pad_sides),
    Row("minus", _minus),
    *[Row(kind, _tested) for kind in ("isfinite", "isinf", "isnan")],
    *[Row(f"{kind}_interp{grad}", _interp) for kind in _OLD_INTERP for grad in BOTH],
    Row("conditional_block_infer", lambda op: set_type(op, "conditional_block", **dict(op.attrs))),
]
