"""How ops of Paddle 2.x and ops of PIR correspond: ``ops.txt`` as data. `tests/support/make_pir_table.py` makes it."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...opdef.registry import OUR_SLOTS


class Operand(NamedTuple):
    """An operand of an op of PIR.

    Attributes:
        slot: the slot of the variable, or ``""``.
        many: all variables of the slot, combined.
        attr: the attribute that it stands for if a constant is given, or ``""``.
        constant: the value if neither is there.
        type: the element type of the constant; ``[]int64`` for a list, ``""`` if it may not be a constant.
    """

    name: str
    slot: str = ""
    many: bool = False
    attr: str = ""
    constant: Any = None
    type: str = ""


class PirAttr(NamedTuple):
    """An attribute of an op of PIR: the attribute of 2.x that it comes from, or a constant."""

    name: str
    attr: str
    constant: Any
    type: str


class Result(NamedTuple):
    """A result of an op of PIR, and its slot."""

    name: str
    slot: str
    many: bool


@dataclass(frozen=True)
class PirRow:
    """One op of 2.x, and the op of PIR that is the same."""

    type: str
    pir: str
    operands: tuple[Operand, ...]
    attrs: tuple[PirAttr, ...]
    results: tuple[Result, ...]
    implied: Mapping[str, Any]
    """Attributes of the op of 2.x, with the values that they have if it is this op of PIR."""


_SECOND_CHOICE = {"grad_add", "deformable_conv_v1", "matmul"}
"""Ops of 2.x that are not what their op of PIR is read as."""
_CONSTANT = re.compile(r"(#.*|\w+)@((?:\[\])?(?:bool|u?int\d+|float\d+))")

BY_HAND = """\
batch_norm batch_norm_ x=X mean=Mean variance=Variance scale=Scale bias=Bias { is_test=is_test:bool momentum=momentum:f32\
 epsilon=epsilon:f32 data_format=data_layout:str use_global_stats=use_global_stats:bool\
 trainable_statistics=trainable_statistics:bool } out=Y mean_out=MeanOut variance_out=VarianceOut saved_mean=SavedMean\
 saved_variance=SavedVariance reserve_space=ReserveSpace
tril_triu triu x=X { diagonal=diagonal:i32 } out=Out +lower=false
tril_triu tril x=X { diagonal=diagonal:i32 } out=Out +lower=true
tril_triu_grad triu_grad out_grad=Out@GRAD { diagonal=diagonal:i32 } x_grad=X@GRAD +lower=false
tril_triu_grad tril_grad out_grad=Out@GRAD { diagonal=diagonal:i32 } x_grad=X@GRAD +lower=true
split split_with_num x=X axis=axis@int32|AxisTensor { num=num:i32 } out=Out* +sections=[]
split split x=X sections=sections@[]int64|SectionsTensorList* axis=axis@int32|AxisTensor { } out=Out* +num=0
set_value set_value x=Input starts=starts@[]int64|StartsTensorList* ends=ends@[]int64|EndsTensorList*\
 steps=steps@[]int64|StepsTensorList* { axes=axes:[i64] decrease_axes=decrease_axes:[i64] none_axes=none_axes:[i64]\
 shape=shape:[i64] values=values:[f64] } out=Out
set_value_grad set_value_with_tensor_grad values=ValueTensor out_grad=Out@GRAD starts=starts@[]int64|StartsTensorList*\
 ends=ends@[]int64|EndsTensorList* steps=steps@[]int64|StepsTensorList* { axes=axes:[i64] decrease_axes=decrease_axes:[i64]\
 none_axes=none_axes:[i64] } x_grad=Input@GRAD values_grad=ValueTensor@GRAD
set_value_grad set_value_grad out_grad=Out@GRAD starts=starts@[]int64|StartsTensorList* ends=ends@[]int64|EndsTensorList*\
 steps=steps@[]int64|StepsTensorList* { axes=axes:[i64] decrease_axes=decrease_axes:[i64] none_axes=none_axes:[i64] }\
 x_grad=Input@GRAD
repeat_interleave_grad repeat_interleave_grad x=X out_grad=Out@GRAD { repeats=Repeats:i32 axis=dim:i32 output_size=#-1:i64 }\
 x_grad=X@GRAD
unpool unpool x=X indices=Indices output_size=output_size@[]int64|OutputSize* { ksize=ksize:[i32] strides=strides:[i32]\
 padding=paddings:[i32] data_format=data_format:str } out=Out
masked_fill masked_fill x=x mask=mask value=value { } out=out
masked_fill_grad masked_fill_grad x=x mask=mask value=value out_grad=out@GRAD { } x_grad=x@GRAD value_grad=value@GRAD
median median x=x { axis=axis:intarray keepdim=keepdim:bool mode=mode:str } out=out medians=medians
median_grad median_grad x=x out=out medians=medians out_grad=out@GRAD { axis=axis:intarray keepdim=keepdim:bool mode=mode:str }\
 x_grad=x@GRAD
meshgrid_grad meshgrid_grad inputs=X* out_grad=Out@GRAD* { } inputs_grad=X@GRAD*
set_value set_value_with_tensor x=Input values=ValueTensor starts=starts@[]int64|StartsTensorList*\
 ends=ends@[]int64|EndsTensorList* steps=steps@[]int64|StepsTensorList* { axes=axes:[i64] decrease_axes=decrease_axes:[i64]\
 none_axes=none_axes:[i64] } out=Out
"""
"""Rows that the translation of single ops does not give: Paddle 3 has the statistics of batch_norm updated in place; ops that
become one or another, as their attributes and inputs are; an attribute that it asks for, and does not translate. Words that
begin with ``+`` are attributes of 2.x that a row implies."""


@functools.cache
def _rows() -> tuple[dict[str, list[PirRow]], dict[str, PirRow]]:
    """Rows by the op of 2.x, and by the op of PIR that is read as one of 2.x."""
    to_pir: dict[str, list[PirRow]] = {}
    from_pir: dict[str, PirRow] = {}
    with open(os.path.join(os.path.dirname(__file__), "ops.txt"), encoding="ascii") as file:
        lines = [line for line in file if not line.startswith("#")]
    for line in lines:
        row = _row(line.split())
        to_pir[row.type] = [row]
        if row.type not in _SECOND_CHOICE:
            from_pir[row.pir] = row
    by_hand: dict[str, list[PirRow]] = {}
    for row in map(_row, map(str.split, BY_HAND.splitlines())):
        by_hand.setdefault(row.type, []).append(row)
        from_pir[row.pir] = row
    to_pir.update(by_hand)
    return to_pir, from_pir


def rows_to(type_: str) -> list[PirRow]:
    """The rows of an op of 2.x: none, one, or several; the first that fits applies."""
    return _rows()[0].get(type_, [])


def types_with_rows() -> frozenset[str]:
    """The ops of 2.x that PIR has an equivalent of."""
    return frozenset(_rows()[0])


def row_from(pir: str) -> PirRow | None:
    """The row of an op of PIR, by its name without the dialect, or None."""
    return _rows()[1].get(pir)


def _row(words: list[str]) -> PirRow:
    implied = dict(word[1:].split("=", 1) for word in words if word.startswith("+"))
    words = [word for word in words if not word.startswith("+")]
    ours = {slot: name for (type_, slot), name in OUR_SLOTS.items() if type_ == words[0]}
    opening, closing = words.index("{"), words.index("}")
    return PirRow(
        words[0],
        words[1],
        tuple(_operand(name, text, ours) for name, text in (word.split("=", 1) for word in words[2:opening])),
        tuple(_attr(name, text) for name, text in (word.split("=", 1) for word in words[opening + 1 : closing])),
        tuple(
            Result(name, ours.get(slot.rstrip("*"), slot.rstrip("*")), slot.endswith("*"))
            for name, slot in (word.split("=", 1) for word in words[closing + 1 :])
        ),
        {name: json.loads(value) for name, value in implied.items()},
    )


def _operand(name: str, text: str, ours: Mapping[str, str]) -> Operand:
    """An operand in the table; `ours` are names of slots that are others here."""
    source, _, slot = text.rpartition("|") if "|" in text else (text, "", "")
    constant = _CONSTANT.fullmatch(source)
    if constant is None:
        slot = slot or source
        return Operand(name, ours.get(slot.rstrip("*"), slot.rstrip("*")), slot.endswith("*"))
    attr, type_ = constant.groups()
    value = json.loads(attr[1:]) if attr.startswith("#") else None
    return Operand(name, slot.rstrip("*"), slot.endswith("*"), "" if attr.startswith("#") else attr, value, type_)


def _attr(name: str, text: str) -> PirAttr:
    source, _, type_ = text.rpartition(":")
    if source.startswith("#"):
        return PirAttr(name, "", json.loads(source[1:]), type_)
    return PirAttr(name, source, None, type_)


IGNORED = frozenset({("rnn", "dropout_state_in")})
"""Operands that say nothing: the state of dropout, which Paddle 3 keeps in a parameter, is made anew in each run."""

ALIASES = {
    "check_finite_and_unscale_": {"out": "x"},
    "update_loss_scaling_": {
        "out": "x", "loss_scaling": "prev_loss_scaling", "out_good_steps": "in_good_steps", "out_bad_steps": "in_bad_steps"
    },
    "assign_out_": {"out": "output"},
    "assign_value_": {"out": "output"},
    "full_": {"out": "output"},
    "adadelta_": {
        "param_out": "param", "moment_out": "avg_squared_grad", "inf_norm_out": "avg_squared_update",
        "master_param_out": "master_param",
    },
    "average_accumulates_": {
        "out_sum_1": "in_sum_1", "out_sum_2": "in_sum_2", "out_sum_3": "in_sum_3", "out_num_accumulates": "in_num_accumulates",
        "out_old_num_accumulates": "in_old_num_accumulates", "out_num_updates": "in_num_updates",
    },
}  # fmt: skip
"""Ops that overwrite operands: result -> operand, where the names do not say it."""


def updated_operands(pir: str, operands: list[str], results: list[str]) -> dict[str, str]:
    """Result -> the operand whose memory it is, of an op whose name ends in ``_``."""
    if pir in ALIASES:
        return ALIASES[pir]
    named = {name: name.removesuffix("_out") for name in results if name.endswith("_out")}
    matches = {name: source for name, source in named.items() if source in operands}
    return matches or ({results[0]: operands[0]} if results and operands else {})
