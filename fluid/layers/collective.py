"""Layers of collective ops, as Fluid 1.6 has them; see `fluid.ops.collective` for their results."""

from __future__ import annotations

from typing import Any

from ..building.layer_helper import LayerHelper
from ..errors import ProgramError
from ..ops.collective import KINDS


def _checked(layer: str, reduce_type: str) -> str:
    if reduce_type not in KINDS:
        raise ProgramError(f"{layer}: reduce_type is {reduce_type!r}; it should be one of {', '.join(KINDS)}")
    return reduce_type


def _run(op_type: str, x: Any, out: Any = None, **attrs: Any) -> Any:
    return LayerHelper(op_type).apply(op_type, {"X": x}, attrs, {"Out": out} if out is not None else None)["Out"]


def _allreduce(x: Any, out: Any = None, reduce_type: str = "sum", sync_mode: bool = False) -> Any:
    """The sum (product, maximum, minimum) of all workers' x.

    >>> fluid.layers.collective._allreduce(fluid.data("x", [3])).shape
    (3,)
    """
    return _run("allreduce", x, out, reduce_type=KINDS.index(_checked("_allreduce", reduce_type)), sync_mode=sync_mode)


def _broadcast(x: Any, root: int, sync_mode: bool = False) -> Any:
    """Copy the x of worker `root` into every worker's x."""
    return _run("c_broadcast", x, x, root=root, use_calc_stream=sync_mode)


def _c_allreduce(x: Any, out: Any = None, reduce_type: str = "sum", ring_id: int = 0, use_calc_stream: bool = False) -> Any:
    """The sum (product, maximum, minimum) of all workers' x."""
    op_type = f"c_allreduce_{_checked('_c_allreduce', reduce_type)}"
    return _run(op_type, x, out, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_broadcast(x: Any, root: int = 0, ring_id: int = 0, use_calc_stream: bool = False) -> Any:
    """Copy the x of worker `root` into every worker's x."""
    return _run("c_broadcast", x, x, root=root, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_allgather(x: Any, nranks: int, ring_id: int = 0, use_calc_stream: bool = False) -> Any:
    """The rows of all workers' x ``[n, ...]``: ``[nranks * n, ...]``.

    >>> fluid.layers.collective._c_allgather(fluid.data("x", [3, 2]), nranks=4).shape
    (12, 2)
    """
    return _run("c_allgather", x, nranks=nranks, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_reducescatter(x: Any, nranks: int, ring_id: int = 0, use_calc_stream: bool = False) -> Any:
    """This worker's part ``[n, ...]`` of the sum of all workers' x ``[nranks * n, ...]``."""
    return _run("c_reducescatter", x, nranks=nranks, ring_id=ring_id, use_calc_stream=use_calc_stream)


def _c_sync_calc_stream(x: Any) -> Any:
    """x, once it is computed."""
    return _run("c_sync_calc_stream", x, x)


def _c_sync_comm_stream(x: Any, ring_id: int = 0) -> Any:
    """x, once the communication is done that it comes from."""
    return _run("c_sync_comm_stream", [x], [x], ring_id=ring_id)[0]
