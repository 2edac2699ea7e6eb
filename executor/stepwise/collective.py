"""Ops that set up Paddle's communicators: they do nothing, because the workers are already connected."""

from __future__ import annotations

from fluid.ir.program import Operator

from ..kernels.collective import check_workers, group_of
from .handlers import runs
from .interpreter import Environment, Machine


@runs("c_gen_nccl_id")
def _gen_nccl_id(machine: Machine, op: Operator, env: Environment) -> None:
    for name in op.output("Out"):
        env.set(name, machine.xp.zeros(1, "uint8"))


@runs("c_comm_init")
def _comm_init(machine: Machine, op: Operator, env: Environment) -> None:
    check_workers(group_of(machine.xp), op.attr("nranks"))


@runs("c_comm_init_all")
def _comm_init_all(machine: Machine, op: Operator, env: Environment) -> None:
    pass
