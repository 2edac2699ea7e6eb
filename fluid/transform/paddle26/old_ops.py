"""Ops that Paddle 2.6 lacks, as ops that it has: ops of Paddle 1.x, and Fluid's own in gradients."""

from __future__ import annotations

from typing import Any

from ...ir.program import Operator
from ...ir.regions import region_of
from ...values.types import VarType
from ..edit import agree
from ..op_rows import (
    Refused,
    Row,
    align,
    filled_like,
    input_of,
    put,
    set_type,
    shape_of,
    squeeze_ids,
    temporary,
    times_in,
)
from .attributes import strided_slice
from .inputs import gather_grad


def _one_hot(op: Operator) -> None:
    squeeze_ids(op, "X", "its input is")
    op.type = "one_hot_v2"


def _isfinite(op: Operator) -> None:
    x = input_of(op)
    (out,) = op.output("Out")
    flags = temporary(op, x, shape_of(x), VarType.BOOL)
    op.outputs["Out"] = [flags.name]
    op.type = "isfinite_v2"
    attrs = {"dim": list(range(len(x.shape))), "reduce_all": True, "keep_dim": False}
    put(op, "reduce_all", {"X": flags}, {"Out": out}, attrs, after=True)


def _expand_as(op: Operator) -> None:
    x, target = shape_of(input_of(op)), shape_of(input_of(op, "target_tensor"))
    times_in(x, target)  # the old op can repeat dimensions larger than 1, the new one cannot
    op.inputs = {"X": op.inputs["X"], "Y": op.inputs["target_tensor"]}
    set_type(op, "expand_as_v2", target_shape=list(target))


def _rnn_memory_helper_grad(op: Operator) -> None:
    gradient = op.input("Out@GRAD")  # zeros if missing
    op.inputs, op.outputs = {"X": gradient or op.input("X")}, {"Out": op.output("X@GRAD")}
    set_type(op, "assign" if gradient else "fill_zeros_like")


def _expand_to(op: Operator) -> None:
    x, like = input_of(op), input_of(op, "Like")
    axis = op.attr("axis")
    if axis in (-1, len(shape_of(like)) - len(shape_of(x))):
        op.inputs = {"X": op.input("X"), "Y": op.input("Like")}
        return set_type(op, "expand_as_v2", target_shape=list(like.shape))
    ones = filled_like(op, like, 1.0)  # a product with them changes no bit
    op.inputs = {"X": [ones.name], "Y": op.input("X")}
    set_type(op, "elementwise_mul", axis=axis)
    align(op)


def _read_from_array(op: Operator) -> None:
    """Add zeros to a gradient array before it is read: Paddle reads zeros behind its end, but fails at skipped entries."""
    if not op.input("X_W"):
        return
    array, like = input_of(op), input_of(op, "X_W")
    if array.has_shape and like.has_shape and not agree(array.shape, like.shape):
        shapes = f"{list(array.shape)} and {list(like.shape)}"
        raise Refused(f"entries of {array.name} are of shapes {shapes}, and Paddle has one for the zeros of overwritten entries")
    zeros = temporary(op, like, like._shape)
    kind: dict[str, Any] = {"type": VarType.LOD_TENSOR_ARRAY, "shape": array._shape, "dtype": array._dtype}
    fresh = op.block.program.fresh_name
    single, filled = (op.block.create_var(name=fresh(f"{array.name}.tmp"), **kind) for _ in range(2))
    is_written = any(candidate.type == "write_to_array" and candidate.output("Out") == [array.name] for candidate in op.block.ops)
    put(op, "fill_any_like", {"X": like}, {"Out": zeros}, {"value": 0.0, "dtype": -1}, after=False)
    put(op, "write_to_array", {"X": zeros, "I": op.input("I")}, {"Out": single}, {}, after=False)
    put(op, "sum", {"X": [array, single]}, {"Out": array if is_written else filled}, {}, after=False)
    if not is_written:
        op.inputs["X"] = [filled.name]


def _split_array(op: Operator) -> None:
    op.inputs = {"X": op.input("Like"), "Out@GRAD": op.input("X")}
    op.outputs = {"X@GRAD": op.output("Out")}
    set_type(op, "tensor_array_to_tensor_grad", axis=op.attr("axis"), use_stack=op.attr("use_stack"))


def _while_grad(op: Operator) -> None:
    scopes = op.input("StepScopes")
    same = (candidate for block in op.block.program.blocks for candidate in block.ops if candidate.type == op.type)
    if next(candidate for candidate in same if candidate.input("StepScopes") == scopes) is not op:
        raise Refused("it is the second gradient of one loop, and Paddle runs one; add the losses before they are differentiated")


def _recurrent_grad(op: Operator) -> None:
    scopes = op.input("step_scopes")
    for block in op.block.program.blocks:
        for forward in block.ops:
            if forward.type == "recurrent" and forward.output("step_scopes") == scopes:
                for name in _overwritten_after(forward) & {*forward.input("inputs"), *forward.input("initial_states")}:
                    raise Refused(
                        f"it reads {name} again, which is overwritten after the recurrence, and Paddle keeps no copy; let the "
                        f"recurrence go over layers.assign({name})"
                    )


def _overwritten_after(op: Operator) -> set[str]:
    """Names that may be written after an op, in its block or around it; in a loop, by any op of a later trip."""
    owners = {sub: owner for block in op.block.program.blocks for owner in block.ops for sub in owner.sub_blocks}
    overwritten: set[str] = set()
    at: Operator | None = op
    while at is not None:
        ops, owner = at.block.ops, owners.get(at.block)
        region = region_of(owner) if owner is not None else None
        runs_again = region is not None and region.repeats
        first = 0 if runs_again else next(i for i, one in enumerate(ops) if one is at) + 1
        local = at.block.vars if first == 0 else {}
        overwritten.update(
            name for later in ops[first:] if later is not at for name in later.output_arg_names if name not in local
        )
        at = owner
    return overwritten


def to_second_version(op: Operator) -> None:
    """Paddle has only the second version of the op, which keeps the shape of X for its gradient."""
    x = input_of(op)
    op.outputs["XShape"] = [temporary(op, x, (0, *shape_of(x))).name]
    op.type += "2"


def _reshape_grad(op: Operator) -> None:
    _as_reshape_grad(op, op.input("X"), op.input("Out@GRAD"), op.output("X@GRAD"))


def _as_reshape_grad(op: Operator, like: list[str], gradient: list[str], result: list[str]) -> None:
    """Let an op put a gradient into the shape of another tensor."""
    op.inputs, op.outputs = {"X": like, "Out": gradient, "Out@GRAD": gradient}, {"X@GRAD": result}
    sizes = shape_of(op.block.var(gradient[0]))  # which the op does not read
    open_size = -1 if sum(size < 1 for size in sizes) == 1 else 0
    set_type(op, "reshape_grad", shape=[size if size > 0 else open_size for size in sizes])


def _where_index(op: Operator) -> None:
    if not op.input("X") and not op.input("Y"):
        op.inputs = {"Condition": op.input("Condition")}
        op.type = "where_index"


_VALUES = {
    VarType.BOOL: ("bool_values", bool),
    VarType.INT32: ("int32_values", int),
    VarType.INT64: ("int64_values", int),
    VarType.FP32: ("fp32_values", float),
}


def _values(op: Operator) -> None:
    dtype = VarType(op.attr("dtype"))
    if dtype not in _VALUES:
        raise Refused(f"its numbers are {dtype.text}, and Paddle's constants of several are not")
    name, kind = _VALUES[dtype]
    values = [kind(value) for value in op.attr("value")]
    shape = list(op.attr("shape")) if "shape" in op.all_attrs() else [len(values)]
    op.inputs, op.outputs = {}, {"Out": op.output("Out") or op.output("out")}
    set_type(op, "assign_value", shape=shape, dtype=int(dtype), **{name: values})


def _view_shape(op: Operator) -> None:
    x = input_of(op, "input")
    op.inputs = {"X": [x.name]}
    op.outputs = {"Out": op.output("out"), "XShape": [temporary(op, x, (0, *shape_of(x))).name]}
    set_type(op, "reshape2", shape=list(op.attr("dims")))


def _view_shape_grad(op: Operator) -> None:
    _as_reshape_grad(op, op.input("input"), op.input("out@GRAD"), op.output("input@GRAD"))


def _copy(op: Operator) -> None:
    """Write an op that only moves its input, or waits for other work, as `assign`."""
    op.inputs, op.outputs = {"X": op.input("X") or op.input("x")}, {"Out": op.output("Out") or op.output("out")}
    set_type(op, "assign")


def _index_select_strided(op: Operator) -> None:
    x = input_of(op, "x")
    axis, index = op.attr("axis") % len(shape_of(x)), op.attr("index")
    op.inputs, op.outputs = {"Input": [x.name]}, {"Out": op.output("out")}
    set_type(op, "slice", axes=[axis], starts=[index], ends=[index + 1 or 2**31 - 1], decrease_axis=[axis], infer_flags=[1])


def _sum_to(op: Operator) -> None:
    """Write `sum_to` as the gradient of a sum whose other term broadcasts to the shape."""
    x = input_of(op)
    op.inputs = {"X": [filled_like(op, x, 0.0).name], "Y": op.input("Like"), "Out@GRAD": [x.name]}
    op.outputs = {"Y@GRAD": op.output("Out")}
    set_type(op, "elementwise_add_grad", axis=op.attr("axis"))
    align(op)


def _expand_reduced(op: Operator) -> None:
    reduced = "reduce_mean_grad" if op.attr("average") else "reduce_sum_grad"
    op.inputs = {"X": op.input("Like"), "Out@GRAD": op.input("X")}
    op.outputs = {"X@GRAD": op.output("Out")}
    set_type(op, reduced, **{name: op.attr(name) for name in ("dim", "keep_dim", "reduce_all")})


def _reshape_like(op: Operator) -> None:
    _as_reshape_grad(op, op.input("Like"), op.input("X"), op.output("Out"))


def _unreshape(op: Operator) -> None:
    op.inputs = {"XShape": op.input("XShape"), "Out@GRAD": op.input("X")}
    op.outputs = {"X@GRAD": op.output("Out")}
    set_type(op, "reshape2_grad", shape=[])


def _unslice(op: Operator) -> None:
    op.inputs = {**op.inputs, "Input": op.input("Like"), "Out@GRAD": op.input("X")}
    del op.inputs["Like"], op.inputs["X"]
    op.outputs = {"Input@GRAD": op.output("Out")}
    op.type = f"{op.type.replace('unslice', 'slice')}_grad"
    if op.type == "strided_slice_grad":
        strided_slice(op)


def _scatter_add_like(op: Operator) -> None:
    op.inputs = {"X": op.input("Like"), "Index": op.input("Index"), "Axis": op.input("Axis"), "Out@GRAD": op.input("X")}
    op.outputs = {"X@GRAD": op.output("Out")}
    set_type(op, "gather_grad", axis=op.attr("axis"))
    gather_grad(op)


ROWS = [
    Row("one_hot", _one_hot),
    *[Row(kind, to_second_version) for kind in ("unsqueeze", "squeeze", "flatten")],
    *[Row(f"{kind}_grad", _reshape_grad) for kind in ("squeeze", "unsqueeze", "flatten")],
    Row("isfinite", _isfinite),
    Row("expand_as", _expand_as),
    Row("expand_to", _expand_to),
    Row("rnn_memory_helper", lambda op: set_type(op, "assign")),
    Row("rnn_memory_helper_grad", _rnn_memory_helper_grad),
    Row("read_from_array", _read_from_array),
    Row("split_array", _split_array),
    Row("while_grad", check=_while_grad),
    Row("recurrent_grad", check=_recurrent_grad),
    Row("where", _where_index),
    Row("fill", _values),
    Row("full_int_array", _values),
    Row("view_shape", _view_shape),
    Row("view_shape_grad", _view_shape_grad),
    *[Row(kind, _copy) for kind in ("memcpy", "memcpy_d2h", "memcpy_h2d", "depend", "shadow_output")],
    Row("index_select_strided", _index_select_strided),
    Row("sum_to", _sum_to),
    Row("expand_reduced", _expand_reduced),
    Row("reshape_like", _reshape_like),
    Row("unreshape", _unreshape),
    *[Row(kind, _unslice) for kind in ("unslice", "strided_unslice")],
    Row("scatter_add_like", _scatter_add_like),
]
