"""Rows for Paddle 3: ops that its programs have no equivalent of, as ops that they have. `fluid.formats.pir` writes those."""

from __future__ import annotations

import functools
import math

from ..autodiff.expand import expand_regions, recurrence_as_loop
from ..formats.pir.files import WRITTEN
from ..formats.pir.table import types_with_rows
from ..ir.program import Block, Operator, Program, Variable
from ..opdef.registry import EMPTY
from ..values.types import VarType
from .op_rows import Refused, Row, input_of, only, put, set_type, shape_of, temporary

__all__ = ["SHARED", "TO_3", "types_of_paddle_3", "without_gradients_of_blocks"]

SHARED = (
    "one_hot",
    "unsqueeze",
    "expand_as",
    "expand_to",
    "diag",
    "read_from_array",
    "rnn_memory_helper",
    "rnn_memory_helper_grad",
)
"""Ops that are rewritten as for Paddle 2.6."""


@functools.cache
def types_of_paddle_3() -> frozenset[str]:
    """The types of ops that can be written for Paddle 3."""
    return frozenset({*types_with_rows(), *WRITTEN})


# ------------------------------------------------------------------------------------------------------------ products
def _is_plain_product(op: Operator) -> bool:
    """Whether a ``mul`` is a product along the last dimension of X and the first of Y, a matrix."""
    x, y = shape_of(input_of(op, "X")), shape_of(input_of(op, "Y"))
    return len(y) == 2 and op.attr("y_num_col_dims") == 1 and op.attr("x_num_col_dims") == len(x) - 1


def _sizes_of_product(op: Operator) -> tuple[int, int]:
    """The length of the sums of a ``mul``, and the number of columns of its result."""
    others, rows = shape_of(input_of(op, "Y")), op.attr("y_num_col_dims")
    if -1 in others:
        raise Refused(f"it multiplies by {list(others)}, of which a dimension is not known")
    return math.prod(others[:rows]), math.prod(others[rows:])


def _as_matrix(op: Operator, slot: str, shape: tuple[int, int]) -> Variable | None:
    """Put a matrix in the place of an input; returns the variable that keeps the input's shape, None if it is one already."""
    var = input_of(op, slot)
    if len(shape_of(var)) == 2:
        return None
    matrix, kept = temporary(op, var, shape), temporary(op, var, (0, *shape_of(var)))
    put(op, "reshape2", {"X": var}, {"Out": matrix, "XShape": kept}, {"shape": list(shape)}, after=False)
    op.inputs[slot] = [matrix.name]
    return kept


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
        outputs = {"Out": out, "XShape": temporary(op, product, (0, *shape_of(product)))}
        put(op, "reshape2", {"X": product}, outputs, {"shape": wanted}, after=True)
        op.outputs["Out"] = [product.name]
    set_type(op, "matmul_v2", trans_x=False, trans_y=False)


def _mul_grad(op: Operator) -> None:
    if _is_plain_product(op):
        return set_type(op, "matmul_v2_grad", trans_x=False, trans_y=False)
    inner, columns = _sizes_of_product(op)
    shapes = {"X": (-1, inner), "Y": (inner, columns), "Out@GRAD": (-1, columns)}
    kept = {f"{slot}@GRAD": _as_matrix(op, slot, shape) for slot, shape in shapes.items()}
    for slot, shape_kept in kept.items():
        names = op.output(slot)
        if shape_kept is not None and names and names[0] != EMPTY:
            matrix = temporary(op, op.block.var(names[0]), shapes[slot.removesuffix("@GRAD")])
            op.outputs[slot] = [matrix.name]
            put(op, "reshape2_grad", {"Out@GRAD": matrix, "XShape": shape_kept}, {"X@GRAD": names[0]}, {}, after=True)
    set_type(op, "matmul_v2_grad", trans_x=False, trans_y=False)


def _matmul(op: Operator) -> None:
    alpha = op.attr("alpha")
    flags = {"trans_x": op.attr("transpose_X"), "trans_y": op.attr("transpose_Y")}
    if alpha != 1.0:
        (out,) = op.output("Out")
        product = temporary(op, op.block.var(out), shape_of(op.block.var(out)))
        op.outputs["Out"] = [product.name]
        put(op, "scale", {"X": product}, {"Out": out}, {"scale": alpha}, after=True)
    set_type(op, "matmul_v2", **flags)


def _matmul_grad(op: Operator) -> None:
    alpha = op.attr("alpha")
    flags = {"trans_x": op.attr("transpose_X"), "trans_y": op.attr("transpose_Y")}
    if alpha != 1.0:
        gradient = input_of(op, "Out@GRAD")
        scaled = temporary(op, gradient, shape_of(gradient))
        put(op, "scale", {"X": gradient}, {"Out": scaled}, {"scale": alpha}, after=False)
        op.inputs["Out@GRAD"] = [scaled.name]
    set_type(op, "matmul_v2_grad", **flags)


# --------------------------------------------------------------------------------------------------------- broadcasting
def _elementwise(op: Operator) -> None:
    """Y is given ones behind its dimensions, where it is not aligned with the last ones of X."""
    axis = op.attr("axis")
    x, y = input_of(op, "X"), input_of(op, "Y")
    sizes, rank = shape_of(y), len(shape_of(x))
    behind = rank - axis - len(sizes) if axis != -1 else 0
    op.attrs["axis"] = -1
    if behind <= 0 or not sizes:
        return
    if sizes.count(-1) > 1:
        raise Refused(f"its Y is {list(sizes)}, of which too many dimensions are not known")
    shape = [*sizes, *[1] * behind]
    aligned = temporary(op, y, shape)
    xshape = temporary(op, y, (0, *sizes))
    put(op, "reshape2", {"X": y}, {"Out": aligned, "XShape": xshape}, {"shape": shape}, after=False)
    op.inputs["Y"] = [aligned.name]
    gradients = op.output("Y@GRAD")
    if op.type.endswith("_grad") and gradients and gradients[0] in op.block.vars:
        inner = temporary(op, y, shape)
        op.outputs["Y@GRAD"] = [inner.name]
        put(op, "reshape2_grad", {"Out@GRAD": inner, "XShape": xshape}, {"X@GRAD": gradients[0]}, {}, after=True)


# ------------------------------------------------------------------------------------------------------- other versions
def _top_k(op: Operator) -> None:
    given = {} if op.input("K") else {"k": op.attr("k")}
    set_type(op, "top_k_v2", axis=-1, largest=True, sorted=True, **given)


def _top_k_grad(op: Operator) -> None:
    given = {} if op.input("K") else {"k": op.attr("k")}
    set_type(op, "top_k_v2_grad", axis=-1, largest=True, sorted=True, **given)


def _lookup_table(op: Operator) -> None:
    ids = input_of(op, "Ids")
    shape = shape_of(ids)
    if not shape or shape[-1] != 1:
        raise Refused(f"its Ids are {list(shape)}, the last dimension of which should be 1")
    flat = temporary(op, ids, shape[:-1])
    put(op, "squeeze2", {"X": ids}, {"Out": flat, "XShape": temporary(op, ids, (0, *shape))}, {"axes": [-1]}, after=False)
    op.inputs["Ids"] = [flat.name]
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


def _with_xshape(op: Operator) -> None:
    """The first version of an op keeps no shape for its gradient."""
    x = input_of(op)
    op.outputs["XShape"] = [temporary(op, x, (0, *shape_of(x))).name]
    op.type += "2"


def _cross_entropy(op: Operator) -> None:
    """Of probabilities, which the softmax before has made."""
    x = input_of(op)
    (out,) = op.output("Y")
    op.inputs = {"Logits": op.input("X"), "Label": op.input("Label")}
    op.outputs = {"Softmax": [temporary(op, x, shape_of(x)).name], "Loss": [out]}
    attrs = {name: op.attr(name) for name in ("soft_label", "ignore_index")}
    set_type(op, "softmax_with_cross_entropy", use_softmax=False, axis=-1, **attrs)


def _cross_entropy_grad(op: Operator) -> None:
    op.inputs = {"Softmax": op.input("X"), "Label": op.input("Label"), "Loss@GRAD": op.input("Y@GRAD")}
    op.outputs = {"Logits@GRAD": op.output("X@GRAD")}
    attrs = {name: op.attr(name) for name in ("soft_label", "ignore_index")}
    set_type(op, "softmax_with_cross_entropy_grad", use_softmax=False, axis=-1, **attrs)


def _tested(op: Operator) -> None:
    """Whether any, or for ``isfinite`` each, element is."""
    x = input_of(op)
    (out,) = op.output("Out")
    each = temporary(op, x, shape_of(x))
    each._dtype = VarType.BOOL
    op.outputs["Out"] = [each.name]
    reduction = "reduce_all" if op.type == "isfinite" else "reduce_any"
    op.type += "_v2"
    axes = list(range(len(shape_of(x))))
    put(op, reduction, {"X": each}, {"Out": out}, {"dim": axes, "reduce_all": True, "keep_dim": False}, after=True)


def _interp(op: Operator) -> None:
    scale = op.attr("scale")
    dimensions = len(shape_of(input_of(op))) - 2
    names = ("out_d", "out_h", "out_w", "interp_method", "align_corners", "align_mode", "data_layout")
    kept = {name: op.attrs[name] for name in names if name in op.attrs}
    name = op.type.removesuffix("_grad") + "_v2" + "_grad" * op.type.endswith("_grad")
    set_type(op, name, scale=[scale] * dimensions if scale else [], **kept)


_PADDINGS = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


def _pad2d(op: Operator) -> None:
    """As images of one layer in depth."""
    only(op, "X")
    x, out = input_of(op), op.block.var(op.output("Out")[0])
    sizes = list(shape_of(x))
    depth = 2 if op.attr("data_format") == "NCHW" else 1
    top, bottom, left, right = op.attr("paddings")
    deep = temporary(op, x, [*sizes[:depth], 1, *sizes[depth:]])
    outputs = {"Out": deep, "XShape": temporary(op, x, (0, *sizes))}
    put(op, "unsqueeze2", {"X": x}, outputs, {"axes": [depth]}, after=False)
    wide = shape_of(out)
    padded = temporary(op, x, [*wide[:depth], 1, *wide[depth:]])
    outputs = {"Out": out, "XShape": temporary(op, x, (0, *shape_of(padded)))}
    put(op, "squeeze2", {"X": padded}, outputs, {"axes": [depth]}, after=True)
    op.inputs, op.outputs = {"X": [deep.name]}, {"Out": [padded.name]}
    layout = "NCDHW" if depth == 2 else "NDHWC"
    mode, value = _PADDINGS[op.attr("mode")], op.attr("pad_value")
    set_type(op, "pad3d", paddings=[left, right, top, bottom, 0, 0], mode=mode, value=value, data_format=layout)


def _einsum(op: Operator) -> None:
    if len(op.input("Operands")) > 2:
        raise Refused("it has more than two operands, at which Paddle 3 ends the process")


# -------------------------------------------------------------------------------------------------- arrays and branches
def _select_output(op: Operator) -> None:
    """Of X and zeros, the one or the other for each output."""
    x, mask, outs = input_of(op), input_of(op, "Mask"), op.output("Out")
    if len(outs) != 2:
        raise Refused(f"it chooses among {len(outs)} values")
    zeros = temporary(op, x, x._shape)
    put(op, "fill_any_like", {"X": x}, {"Out": zeros}, {"value": 0.0, "dtype": -1}, after=False)
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
    row, entry = (body.create_var(name=block.program.fresh_name(f"{out}.{what}"), dtype=x.dtype) for what in ("row", "entry"))
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
    """The parts of `Like` say how many entries there are, and of which shapes."""
    x, like = input_of(op), input_of(op, "Like")
    parts = temporary(op, like, shape_of(like)[1:])
    parts.type = VarType.LOD_TENSOR_ARRAY
    put(op, "unstack_array", {"X": like}, {"Out": parts}, {}, after=False)
    op.inputs = {"X": [x.name], "Like": [parts.name]}
    _unstack_array(op.block.ops[op.idx - 1])
    set_type(op, "join_array", axis=0, use_stack=True)


def without_gradients_of_blocks(program: Program) -> None:
    """Replace gradients of loops and branches, and recurrences, by loops and branches, as Paddle 3 writes no others."""
    for block in list(program.blocks):
        expand_regions(block)
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
    *[Row(f"elementwise_{kind}{grad}", _elementwise) for kind in _BINARY for grad in ("", "_grad")],
    *[Row(kind, _elementwise) for kind in _COMPARISONS],
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
    *[Row(kind, _with_xshape) for kind in ("reshape", "squeeze", "transpose")],
    Row("cross_entropy", _cross_entropy),
    Row("cross_entropy_grad", _cross_entropy_grad),
    Row("einsum", check=_einsum),
    Row("select_output", _select_output),
    Row("unstack_array", _unstack_array),
    Row("stack_array_like", _stack_array_like),
    Row("pad2d", _pad2d),
    Row("minus", _minus),
    *[Row(kind, _tested) for kind in ("isfinite", "isinf", "isnan")],
    *[Row(f"{kind}_interp{grad}", _interp) for kind in _OLD_INTERP for grad in ("", "_grad")],
    Row("conditional_block_infer", lambda op: set_type(op, "conditional_block", **dict(op.attrs))),
]
