"""Converts programs to the ops of a version of Paddle.

`TABLE` has one row per op. A row either rewrites the op, or lists its attributes and slots that are newer than the version:
these are dropped if that changes nothing, otherwise the op is refused. ``paddle_ops.txt``, generated from the libraries, lists
the ops that each version has. Reading needs no table: attributes that old files lack get the defaults of the definitions, and
slots that they lack are empty. Paddle 2.6 runs ops that lack attributes or slots, but does not differentiate them, so for that
version each op gets all of them.
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Mapping
from dataclasses import replace

from ..errors import FluidError, ProgramError
from ..formats.pir.files import is_of_pir
from ..ir.attr_kinds import KINDS, attr_kind, fits
from ..ir.program import COMMON_ATTRS, Block, Operator, Program, Variable
from ..opdef.registry import EMPTY, PADDLE_OPS
from ..ops.updates import decays_of
from ..values.types import VarType
from .edit import Edit, EditReport, infer_downstream
from .op_rows import Refused, Row
from .op_rows import input_of as _input
from .op_rows import only as _only
from .op_rows import set_type as _set
from .op_rows import shape_of as _shape
from .op_rows import times_in as _times_in
from .paddle26 import EXPANDED, TO_2_6, prepare
from .to_paddle3 import EXPANDED_3, NOT_SHARED, TO_3, types_of_paddle_3, without_gradients_of_blocks, without_recurrences

__all__ = ["TABLE", "TARGETS", "Row", "convert", "known_ops", "knows"]

TARGETS = ("paddle-1.6", "paddle-2.6", "paddle-3")


@functools.cache
def known_ops(target: str) -> frozenset[str]:
    """The types of ops that a version has."""
    if target not in TARGETS:
        raise ProgramError(f"{target!r} is not a version to write for; known are {', '.join(TARGETS)}")
    if target == "paddle-3":
        return types_of_paddle_3()
    sections: dict[str, list[str]] = {}
    with open(os.path.join(os.path.dirname(__file__), "paddle_ops.txt"), encoding="ascii") as file:
        for line in file:
            if line.startswith("["):
                listed = sections.setdefault(line.strip("[]\n"), [])
            elif not line.startswith("#"):
                listed += line.split()
    renamed = PADDLE_OPS if target == "paddle-1.6" else ()
    return frozenset([*sections["both"], *sections[target.removeprefix("paddle-")], *renamed])


def knows(target: str, op_type: str) -> bool:
    """Whether a version of Paddle has an op of this type."""
    return op_type in known_ops(target) or (target == "paddle-3" and is_of_pir(op_type))


# ------------------------------------------------------------------------------------------------------- to Paddle 1.6
def _matmul_v2(op: Operator) -> None:
    x, y = _shape(_input(op, "X")), _shape(_input(op, "Y"))
    if len(x) < 2 or len(y) < 2:
        raise Refused("it multiplies a vector")
    if len(x) > 2 and len(y) > 2 and (x[:-2] != y[:-2]):
        raise Refused(f"it broadcasts over batches, {list(x)} with {list(y)}")
    flags = {"transpose_X": op.attrs.get("trans_x", False), "transpose_Y": op.attrs.get("trans_y", False)}
    _set(op, "matmul", **flags, alpha=1.0)


def _top_k_v2(op: Operator) -> None:
    _only(op, "X", "K")
    axis, rank = op.attrs.get("axis", -1), len(_shape(_input(op)))
    if axis not in (-1, rank - 1):
        raise Refused(f"it looks along axis {axis}, not along the last one")
    if not op.attrs.get("largest", True) or not op.attrs.get("sorted", True):
        raise Refused("it does not ask for the largest values, sorted")
    _set(op, "top_k", k=op.attrs.get("k", 1))


def _tile(op: Operator) -> None:
    _only(op, "X")
    times = op.attrs.get("repeat_times", [])
    if len(times) != len(_shape(_input(op))):
        raise Refused(f"it repeats {list(_input(op).shape)} by {list(times)}, which adds dimensions")
    _set(op, "expand", expand_times=list(times))


def _expand_v2(op: Operator) -> None:
    _only(op, "X")
    shape, wanted = _shape(_input(op)), op.attrs.get("shape", [])
    if len(shape) != len(wanted):
        raise Refused(f"it makes {list(wanted)} of {list(shape)}, which adds dimensions")
    _set(op, "expand", expand_times=_times_in(shape, wanted))


def _flatten_contiguous_range(op: Operator) -> None:
    shape = _shape(_input(op))
    rank = len(shape)
    start, stop = (value % rank for value in (op.attrs.get("start_axis", 1), op.attrs.get("stop_axis", -1)))
    if start == 1 and stop == rank - 1:
        return _set(op, "flatten2", axis=1)
    if -1 in shape[stop + 1 :]:
        raise Refused(f"dimensions of {list(shape)} behind those that it joins are not known")
    return _set(op, "reshape2", shape=[0] * start + [-1] + list(shape[stop + 1 :]))


def _interp_v2(op: Operator) -> None:
    scale = op.attrs.get("scale", [])
    scale = list(scale) if isinstance(scale, (list, tuple)) else [scale]
    if len(set(scale)) > 1:
        raise Refused(f"it scales dimensions by different factors, {scale}")
    names = ("out_d", "out_h", "out_w", "interp_method", "align_corners", "align_mode", "data_layout")
    same_attrs = {name: op.attrs[name] for name in names if name in op.attrs}
    _set(op, op.type.removesuffix("_v2"), scale=float(scale[0]) if scale else 0.0, **same_attrs)


def _fill_constant(op: Operator) -> None:
    _only(op, "ShapeTensor", "ShapeTensorList")
    text, value = op.attrs.get("str_value", ""), op.attrs.get("value", 0.0)
    if text:
        try:
            exact = float(text)
        except ValueError:
            raise Refused(f"its value is {text!r}, which is not a number") from None
        if float(int(exact)) == exact and text.lstrip("-").isdigit() and int(text) != int(exact):
            raise Refused(f"its value {text} is more than a float can hold")
        value = exact
    same_attrs = {name: op.attrs[name] for name in ("dtype", "force_cpu") if name in op.attrs}
    _set(op, "fill_constant", shape=list(op.attrs.get("shape", [])) or [1], value=value, **same_attrs)


def _lars_momentum(op: Operator) -> None:
    (decay, *more) = decays_of(len(op.input("Param")), op.all_attrs())
    if more or op.attr("epsilon") or op.attr("rescale_grad") != 1.0:
        raise Refused("it updates several parameters, adds an epsilon, or scales the gradient")
    same_attrs = {"mu": op.attr("mu"), "lars_coeff": op.attr("lars_coeff"), "lars_weight_decay": decay}
    _set(op, "lars_momentum", **same_attrs)


def _complete(op: Operator) -> None:
    """Add all attributes and empty slots, which Paddle needs to build further ops on an op that it has not made itself."""
    definition = op.definition
    if definition is not None:
        op.inputs = {**{slot: [] for slot in definition.inputs}, **op.inputs}
        op.outputs = {**{slot: [] for slot in definition.outputs}, **op.outputs}
        op.attrs = op.all_attrs()
    op.attrs = {**copy.deepcopy(dict(COMMON_ATTRS)), **op.attrs}
    if op.wire is not None:
        op.wire = replace(op.wire, filled=frozenset())


# ------------------------------------------------------------------------------------------------------------ the table
_FACTORS = {"Scale_x": 1.0, "Scale_y": 1.0, "Scale_out": 1.0, "scale_x": 1.0, "scale_y": 1.0, "scale_out": 1.0}
_QUANTIZED = ("abs_max", "range_abs_max", "moving_average_abs_max", "dequantize_moving_average_abs_max")
_COMPARED = {"force_cpu": False}
_MASTER = ("MasterParam", "MasterParamOut")
_INTERP = {"bilinear_interp_v2", "nearest_interp_v2", "trilinear_interp_v2"}
_DTYPES = {"in_dtype": -1, "out_dtype": -1}

_TO_1_6 = [
    Row("matmul_v2", _matmul_v2),
    Row("bmm", lambda op: _set(op, "matmul", transpose_X=False, transpose_Y=False, alpha=1.0)),
    Row("top_k_v2", _top_k_v2),
    Row("tile", _tile),
    Row("expand_v2", _expand_v2),
    Row("flatten_contiguous_range", _flatten_contiguous_range),
    Row("silu", lambda op: _set(op, "swish", beta=1.0)),
    *[Row(kind, _interp_v2) for kind in sorted(_INTERP)],
    Row("fill_constant", _fill_constant),
    Row("lars_momentum", _lars_momentum),
    Row("adadelta", attrs={"multi_precision": False}, slots=("LearningRate", *_MASTER)),
    Row("adam", attrs={"multi_precision": False, "use_global_beta_pow": False}, slots=(*_MASTER, "SkipUpdate", "EpsilonTensor")),
    Row("arg_max", attrs={"flatten": False, "dtype": 3, "keepdims": False}),
    Row("arg_min", attrs={"flatten": False, "dtype": 3, "keepdims": False}),
    Row("argsort", attrs={"descending": False}),
    Row("assign_value", attrs={"bool_values": [], "int64_values": [], "fp64_values": [], "values": []}),
    Row("batch_norm", attrs={"trainable_statistics": False}, slots=("MomentumTensor", "ReserveSpace")),
    Row("clip", slots=("Min", "Max")),
    Row("collect_fpn_proposals", slots=("MultiLevelRoIsNum", "RoisNum")),
    Row("concat", slots=("AxisTensor",)),
    Row("conv2d", attrs={"use_addto": False}),
    Row(
        "conv2d_transpose",
        attrs={"output_padding": [], "force_fp32_output": False, "mkldnn_data_type": "float32"},
        slots=("Bias",),
    ),
    Row("conv3d", attrs={"use_addto": False}),
    Row("cumsum", attrs={"flatten": False}),
    Row("depthwise_conv2d", attrs={"use_addto": False}),
    Row("depthwise_conv2d_transpose", attrs={"output_padding": []}, slots=("Bias",)),
    Row("distribute_fpn_proposals", attrs={"pixel_offset": True}, slots=("RoisNum", "MultiLevelRoIsNum")),
    Row("dropout", slots=("Seed",)),
    *[Row(f"elementwise_{kind}", attrs=_FACTORS) for kind in ("add", "sub", "mul", "div", "pow", "max", "min")],
    *[Row(kind, attrs=_COMPARED) for kind in ("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal")],
    Row("fake_channel_wise_dequantize_max_abs", attrs={"quant_axis": 0, "x_num_col_dims": 1}),
    Row("fake_channel_wise_quantize_abs_max", attrs={"round_type": 1, "quant_axis": 0, "is_test": False}),
    *[Row(f"fake_quantize_{kind}", attrs={"round_type": 1}) for kind in _QUANTIZED],
    Row("gather", attrs={"axis": 0}, slots=("Axis",)),
    Row("gelu", attrs={"approximate": False}),
    Row("generate_proposal_labels", slots=("MaxOverlap", "MaxOverlapWithGT")),
    Row("generate_proposals", slots=("RpnRoisNum",)),
    Row("grid_sampler", attrs={"mode": "bilinear", "padding_mode": "zeros", "align_corners": True}),
    Row("lamb", slots=("Beta1PowOut", "Beta2PowOut", *_MASTER)),
    Row("linspace", attrs={"dtype": 5}),
    Row("lookup_table", attrs={"entry_config": "", "entry": "none", "slot": 0, "table_class": "none"}),
    Row("matmul", attrs={"fused_reshape_Y": [], "fused_reshape_X": [], "head_number": 1, "Scale_x": 1.0, "Scale_y": 1.0}),
    Row(
        "momentum",
        attrs={"regularization_method": "", "regularization_coeff": 0.0, "multi_precision": False, "rescale_grad": 1.0},
        slots=_MASTER,
    ),
    Row("pixel_shuffle", attrs={"data_format": "NCHW"}),
    *[Row(f"reduce_{kind}", attrs=_DTYPES) for kind in ("sum", "mean", "max", "min", "prod", "all", "any")],
    Row("scale", slots=("ScaleTensor",)),
    Row("sgd", attrs={"multi_precision": False}, slots=_MASTER),
    Row("softmax_with_cross_entropy", attrs={"use_softmax": True}),
    Row("softplus", attrs={"beta": 1.0, "threshold": 20.0}),
    Row("split", slots=("AxisTensor", "SectionsTensorList")),
    *[Row(f"{kind}_random", slots=("ShapeTensor", "ShapeTensorList")) for kind in ("uniform", "gaussian")],
]
TABLE: dict[str, dict[str, Row]] = {
    "paddle-1.6": {row.type: row for row in _TO_1_6},
    "paddle-2.6": {row.type: row for row in TO_2_6},
}
TABLE["paddle-3"] = {row.type: row for row in [*TO_2_6, *TO_3] if row in TO_3 or row.type not in NOT_SHARED}
"""Version -> type of op -> row."""

_SEARCHING = frozenset({"read_from_array", "while_grad", "recurrent_grad"})
"""Op types whose rows look at the other ops of the block. Other rows see only the op, so they take the same time in any block."""

_NEWER_ON_ANY = {"paddle-1.6": ("op_device", "with_quant_attr"), "paddle-2.6": (), "paddle-3": ()}


# ----------------------------------------------------------------------------------------------------------- conversion
def convert(program: Program, target: str) -> EditReport:
    """Convert a program to the ops that a version of Paddle has; the copy is the report's `program`.

    Raises:
        ProgramError: lists every type of op that the version has no equivalent of, with count, first position and reason.
    """
    new = program.clone()
    refused: dict[tuple[str, str], list[str]] = {}
    with Edit(new, f"convert to {target}") as edit:
        changed: list[Variable] = []
        if target == "paddle-3":
            without_gradients_of_blocks(new)
        if target != "paddle-1.6":
            prepare(new, EXPANDED_3 if target == "paddle-3" else EXPANDED, known_ops(target))
        if target == "paddle-3":
            without_recurrences(new)  # of formulas that have been written out
        for block in new.blocks:
            changed += _convert_block(block, target, refused)
        for var in new.list_vars():
            if target == "paddle-1.6" and VarType.BF16 in (var.type, var.dtype if var.has_dtype else None):
                refused[var.name, "bfloat16 tensors came later"] = [f"a variable of block {var.block.idx}"]
        if refused:
            lines = [
                f"  - {name}: {reason} ({'once' if len(places) == 1 else f'{len(places)} times'}, first as {places[0]})"
                for (name, reason), places in refused.items()
            ]
            raise ProgramError("\n".join([f"the program cannot be written for {target}:", *lines]))
        if target == "paddle-1.6":
            new.wire = None  # says which newer version the program was written for
            changed += _without_scalars(new)
        try:
            infer_downstream(new, changed, edit.label)
        except FluidError as error:
            raise ProgramError(f"the program cannot be written for {target}: {error}") from None
    if target == "paddle-2.6":  # after the edit, since a report should not list this
        for op in (op for block in new.blocks for op in block.ops):
            _complete(op)
    return edit.report


def _convert_block(block: Block, target: str, refused: dict[tuple[str, str], list[str]]) -> list[Variable]:
    """Convert the ops of a block; returns the outputs of ops that have become others.

    Args:
        refused: (type, reason) -> where such ops are; refused ops are added.
    """
    changed: list[Variable] = []
    before: list[Operator] = []
    ops = block.ops
    for position, op in enumerate(ops):
        former_type = op.type
        is_searching = former_type in _SEARCHING
        start, after = (before, ops[position + 1 :]) if is_searching else ([], [])
        block.ops = [*start, op, *after]
        try:
            _convert_op(op, TABLE[target], target)
            if not knows(target, op.type):
                raise Refused(f"{target} does not know it")
            if target == "paddle-1.6":
                _check_kinds(op)
        except Refused as reason:
            refused.setdefault((former_type, str(reason)), []).append(f"op {position} of block {block.idx}")
        else:
            if op.type != former_type:
                changed += [block.var(name) for name in op.output_arg_names]
        before += block.ops[len(start) : len(block.ops) - len(after)]
    block.ops = before
    return changed


def _convert_op(op: Operator, rows: Mapping[str, Row], target: str) -> None:
    for name in _NEWER_ON_ANY[target]:
        op.attrs.pop(name, None)
    row = rows.get(op.type) or rows.get(op.type.removesuffix("_grad"))
    if row is None:
        return
    if row.rewrite is not None:
        if row.type == op.type:
            try:
                row.rewrite(op)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise Refused(f"it is not well formed: {error!r}") from None
        return
    if row.check is not None:
        row.check(op)
    for name, neutral in row.attrs.items():
        if name in op.attrs:
            value = op.attrs[name]
            if value != neutral and not (name == "dtype" and value == -1):
                raise Refused(f"its attribute {name} is {value!r}, and {target} has no such attribute")
            del op.attrs[name]
    for slot in row.slots:
        if slot == "ReserveSpace":  # a workspace
            op.inputs.pop(slot, None)
            for name in op.outputs.pop(slot, ()):
                op.block.vars.pop(name, None)
        for side, slots in (("input", op.inputs), ("output", op.outputs)):
            if any(name != EMPTY for name in slots.pop(slot, ())):
                raise Refused(f"its {side} {slot} is given, and {target} has no such {side}")


def _check_kinds(op: Operator) -> None:
    """Refuse an op with a kind of attribute that old versions cannot parse."""
    for name, value in op.attrs.items():
        kind = op.wire.kinds.get(name) if op.wire is not None else None
        if kind is None or not fits(kind, value):
            kind = attr_kind(op, name, value)
        if KINDS[kind].number > KINDS["longs"].number:
            raise Refused(f"its attribute {name} is of the kind {kind}, which came later")


def _without_scalars(program: Program) -> list[Variable]:
    """Declare tensors without dimensions with the shape ``[1]``, since old versions have no others; returns them."""
    scalars = [var for var in program.list_vars() if var.has_shape and var.shape == () and var.has_dtype]
    for var in scalars:
        var._shape = (1,)
    return scalars
