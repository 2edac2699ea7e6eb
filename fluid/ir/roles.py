"""The roles of ops in programs, and the attributes that any op may carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class OpRole:
    """The role of an op in its program: the value of its attribute ``op_role``, a bit set.

    >>> loss = layers.mean(layers.fc(fluid.data("x", [None, 2]), 1))
    >>> updates, pairs = fluid.optimizer.SGD(0.1).minimize(loss)
    >>> updates[0].role == fluid.framework.OpRole.OPTIMIZE
    True
    """

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZE = 2
    RPC = 4
    DIST = 8
    LR_SCHED = 16
    LOSS = 256
    NAME = "op_role"
    VARS = "op_role_var"


COMMON_ATTRS: Mapping[str, Any] = {
    OpRole.NAME: OpRole.FORWARD,
    OpRole.VARS: [],
    "op_namescope": "/",
    "op_callstack": [""],
    "op_device": "",
    "with_quant_attr": False,
}
"""Attributes that any op may carry, with the values that count where it does not say them."""

ROLE_NAMES = {
    OpRole.BACKWARD: "backward",
    OpRole.OPTIMIZE: "optimizer",
    OpRole.RPC: "rpc",
    OpRole.DIST: "dist",
    OpRole.LR_SCHED: "lr_sched",
    OpRole.LOSS: "loss",
}
"""Bit of a role -> its name in the text of programs."""
