"""How ops of Paddle 2.x and ops of PIR correspond: ``ops.txt``, which `tests/make_pir_table.py` makes and explains, as data."""

from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = [
    "ALIASES",
    "IGNORED",
    "Operand",
    "PirAttr",
    "Result",
    "Row",
    "row_from",
    "row_to",
    "types_with_rows",
    "updated_operands",
]


class Operand(NamedTuple):
    """An operand of an op of PIR.

    Attributes:
        slot: the slot of the variable, or ``""``.
        many: all variables of the slot, combined.
        attr: the attribute that it stands for if a constant is given, or ``""``.
        constant: what it is if neither is there.
        type: the element type of the constant; ``[]int64`` for a list, ``""`` if it may not be a constant.
    """

    name: str
    slot: str = ""
    many: bool = False
    attr: str = ""
    constant: Any = None
    type: str = ""


class PirAttr(NamedTuple):
    """An attribute of an op of PIR: of which attribute of 2.x, or which constant."""

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
class Row:
    """One op of 2.x, and the op of PIR that is the same."""

    type: str
    pir: str
    operands: tuple[Operand, ...]
    attrs: tuple[PirAttr, ...]
    results: tuple[Result, ...]


_SECOND_CHOICE = {"grad_add", "deformable_conv_v1", "matmul"}
"""Ops of 2.x that are not what their op of PIR is read as."""
_CONSTANT = re.compile(r"(#.*|\w+)@((?:\[\])?(?:bool|u?int\d+|float\d+))")

BY_HAND = """\
batch_norm batch_norm_ x=X mean=Mean variance=Variance scale=Scale bias=Bias { is_test=is_test:bool momentum=momentum:f32\
 epsilon=epsilon:f32 data_format=data_layout:str use_global_stats=use_global_stats:bool\
 trainable_statistics=trainable_statistics:bool } out=Y mean_out=MeanOut variance_out=VarianceOut saved_mean=SavedMean\
 saved_variance=SavedVariance reserve_space=ReserveSpace
"""
"""Rows that the translation of single ops does not give: Paddle 3 has the statistics of batch_norm updated in place."""


@functools.cache
def _rows() -> tuple[dict[str, Row], dict[str, Row]]:
    """Rows by the op of 2.x, and by the op of PIR that is read as one of 2.x."""
    to_pir: dict[str, Row] = {}
    from_pir: dict[str, Row] = {}
    with open(os.path.join(os.path.dirname(__file__), "ops.txt"), encoding="ascii") as file:
        lines = [line for line in file if not line.startswith("#")]
    for line in [*lines, *BY_HAND.splitlines()]:
        row = _row(line.split())
        to_pir[row.type] = row
        if row.type not in _SECOND_CHOICE:
            from_pir[row.pir] = row
    return to_pir, from_pir


def row_to(type_: str) -> Row | None:
    """The row of an op of 2.x, or None."""
    return _rows()[0].get(type_)


def types_with_rows() -> frozenset[str]:
    """The ops of 2.x that PIR has an equivalent of."""
    return frozenset(_rows()[0])


def row_from(pir: str) -> Row | None:
    """The row of an op of PIR, by its name without the dialect, or None."""
    return _rows()[1].get(pir)


def _row(words: list[str]) -> Row:
    opening, closing = words.index("{"), words.index("}")
    return Row(
        words[0],
        words[1],
        tuple(_operand(*word.split("=", 1)) for word in words[2:opening]),
        tuple(_attr(*word.split("=", 1)) for word in words[opening + 1 : closing]),
        tuple(
            Result(name, slot.rstrip("*"), slot.endswith("*")) for name, slot in (w.split("=", 1) for w in words[closing + 1 :])
        ),
    )


def _operand(name: str, text: str) -> Operand:
    source, _, slot = text.rpartition("|") if "|" in text else (text, "", "")
    constant = _CONSTANT.fullmatch(source)
    if constant is None:
        slot = slot or source
        return Operand(name, slot.rstrip("*"), slot.endswith("*"))
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
    found = {name: source for name, source in named.items() if source in operands}
    return found or ({results[0]: operands[0]} if results and operands else {})
