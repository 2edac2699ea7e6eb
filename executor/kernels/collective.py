"""Kernels of `fluid.ops.collective`. They speak to the other workers by the communicator of the engine of their arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from fluid.distributed.communicator import Communicator
from fluid.errors import CommunicationError
from fluid.ops.collective import DIVISIONS, KINDS
from fluid.values.selected_rows import SelectedRows, add_rows_at
from fluid.values.types import BFLOAT16

from .engine import engine_of
from .manipulation import check_ids
from .table import Call, OutArray, checked, kernel, prepared, sparse


def group_of(xp: Any) -> Communicator:
    """The workers that reduce and gather arrays of a namespace."""
    return engine_of(xp).communicator()


def check_workers(group: Communicator, nranks: int) -> None:
    """Raise `CommunicationError` if the number of workers is not `nranks`, for which the program was built; 0 allows any."""
    if nranks not in (0, group.size):
        raise CommunicationError(
            f"the program was built for {nranks} worker{'s' if nranks > 1 else ''}, and here {'are' if group.size > 1 else 'is'} "
            f"{group.size}; start {nranks} (python -m fluid.distributed.launch -n {nranks} script.py), "
            f"or build it for {group.size}"
        )


def _copied(xp: Any, X: Any, Out: Any) -> None:
    if Out is not X:
        xp.copyto(Out, X)


# ------------------------------------------------------------------------------------------------------------ reductions
def start_reduction(xp: Any, X: Any, kind: str, nranks: int, Out: OutArray) -> None:
    """Begin to reduce X into Out."""
    group = group_of(xp)
    check_workers(group, nranks)
    _copied(xp, X, Out)
    group.start_allreduce([Out], kind)


def finish_reduction(xp: Any, Out: OutArray) -> None:
    """Wait for the end of a reduction begun by `start_reduction`."""
    group_of(xp).finish([Out])


def make_progress(xp: Any) -> None:
    """Let reductions go on that were begun."""
    group_of(xp).progress()


def _reduction(xp: Any, X: Any, kind: str, nranks: int, Out: Any) -> list[Call]:
    """Two calls that start and finish a reduction; a plan may delay the second one."""
    return [partial(start_reduction, xp, X, kind, nranks, Out), partial(finish_reduction, xp, Out)]


def _define_reduction(kind: str) -> None:
    @prepared(f"c_allreduce_{kind}", inplace={"Out": "X"})
    def reduction(xp: Any, X: Any, nranks: int, Out: Any) -> list[Call]:
        return _reduction(xp, X, kind, nranks, Out)


for _kind in KINDS:
    _define_reduction(_kind)


def start_coalesced(xp: Any, X: Sequence[Any], nranks: int, sent_as: Any, Out: Sequence[OutArray]) -> None:
    """Begin to sum all X, together, into Out."""
    group = group_of(xp)
    check_workers(group, nranks)
    for x, out in zip(X, Out, strict=True):
        _copied(xp, x, out)
    group.start_allreduce(Out, "sum", sent_as)


def finish_coalesced(xp: Any, Out: Sequence[OutArray]) -> None:
    """Wait for the end of a sum begun by `start_coalesced`."""
    group_of(xp).finish(Out)


@prepared("c_allreduce_sum_coalesced", inplace={"Out": "X"})
def c_allreduce_sum_coalesced(xp: Any, X: list[Any], nranks: int, sent_as: str, Out: list[Any]) -> list[Call]:
    outs = [xp.empty_like(x) if out is None else out for x, out in zip(X, Out, strict=True)]
    travels_as = BFLOAT16 if sent_as else None
    return [partial(start_coalesced, xp, X, nranks, travels_as, outs), partial(finish_coalesced, xp, outs)] if X else []


@prepared("allreduce", inplace={"Out": "X"})
def allreduce(xp: Any, X: Any, reduce_type: int, Out: Any) -> list[Call]:
    return _reduction(xp, X, KINDS[reduce_type], 0, Out)


@sparse("c_allreduce_sum", "allreduce")
def add_rows(xp: Any, X: SelectedRows, attrs: Any) -> SelectedRows:
    """Gather the rows of all workers; duplicates of a row stay, and count as their sum."""
    if attrs.get("reduce_type", 0) != 0:
        raise CommunicationError("allreduce: of sparse gradients there is only the sum (reduce_type 0)")
    group = group_of(xp)
    check_workers(group, attrs.get("nranks", 0))
    index, value = xp.ascontiguousarray(X.index), xp.ascontiguousarray(X.value)
    index, value = group.gather_rows(index, value)
    return SelectedRows(index, value, X.height())


def average(xp: Any, nranks: int, array: OutArray) -> None:
    """Replace an array by its mean over all workers."""
    group = group_of(xp)
    check_workers(group, nranks)
    group.allreduce(array, "sum")
    array /= group.size


@kernel("c_reduce_sum", inplace={"Out": "X"})
def c_reduce_sum(xp: Any, X: Any, root_id: int, Out: Any) -> None:
    _copied(xp, X, Out)
    group_of(xp).reduce(Out, _worker(xp, "root_id", root_id))


# ------------------------------------------------------------------------------------------------- spreading and gathering
def _worker(xp: Any, attribute: str, rank: int) -> int:
    size = group_of(xp).size
    if rank >= size:
        raise CommunicationError(
            f"{attribute} is {rank}, and there {'are' if size > 1 else 'is'} {size}: it should be below that"
        )
    return rank


@kernel("c_broadcast", inplace={"Out": "X"})
def c_broadcast(xp: Any, X: Any, root: int, Out: Any) -> None:
    _copied(xp, X, Out)
    group_of(xp).broadcast(Out, _worker(xp, "root", root))


@kernel("c_allgather")
def c_allgather(xp: Any, X: Any, nranks: int, Out: Any) -> None:
    group = group_of(xp)
    check_workers(group, nranks)
    group.allgather(X, Out)


@kernel("c_reducescatter")
def c_reducescatter(xp: Any, X: Any, nranks: int, Out: Any) -> None:
    group = group_of(xp)
    check_workers(group, nranks)
    group.reducescatter(X, Out)


# ------------------------------------------------------------------------------------------------- divided among workers
@kernel("c_take_part")
def c_take_part(xp: Any, X: Any, nranks: int, by: str, Out: Any) -> None:
    group = group_of(xp)
    check_workers(group, nranks)
    if group.rank < 0:
        raise CommunicationError(
            "tables and states that are divided among workers need a CPUPlace, and workers that speak by MPI"
        )
    DIVISIONS[by](X.shape, nranks).take_part(X, group.rank, Out)


@kernel("c_join_parts")
def c_join_parts(xp: Any, X: list[Any], Like: list[Any], nranks: int, Out: list[Any]) -> None:
    group = group_of(xp)
    check_workers(group, nranks)
    flat = xp.concatenate(X)
    gathered = xp.empty(nranks * flat.size, flat.dtype)
    group.allgather(flat, gathered)
    parts, start = gathered.reshape(nranks, -1), 0
    for x, out in zip(X, Out, strict=True):
        if out is not None:
            xp.copyto(out, DIVISIONS["flat"](out.shape, nranks).join(parts[:, start : start + x.size]))
        start += x.size


@checked("c_lookup_rows", "c_send_rows")
def check_ids_of_table(xp: Any, Ids: Any, padding_idx: int, rows: int) -> None:
    check_ids(Ids if padding_idx == -1 else Ids[Ids != padding_idx], rows, "the table's rows")


@kernel("c_lookup_rows")
def c_lookup_rows(xp: Any, W: Any, Ids: Any, nranks: int, padding_idx: int, Out: Any) -> None:
    group = group_of(xp)
    check_workers(group, nranks)
    ids = Ids.reshape(-1)
    is_read = ids != padding_idx if padding_idx != -1 else slice(None)
    distinct, positions = xp.unique(ids[is_read], return_inverse=True)
    order, counts = _by_owner(xp, distinct, nranks)
    requests, request_counts = group.exchange_rows(distinct[order].astype("int64") // nranks, counts)
    rows, _ = group.exchange_rows(W[requests], request_counts)
    places = xp.empty_like(order)
    places[order] = xp.arange(len(order))
    out = Out.reshape(ids.size, W.shape[1])
    out[...] = 0
    out[is_read] = rows[places[positions]]


@sparse("c_lookup_rows_grad")
def c_lookup_rows_grad(xp: Any, W: Any, Ids: Any, dOut: Any, nranks: int, padding_idx: int) -> SelectedRows:
    """Send the gradients of rows to their owners; what several workers send for one row counts as the sum."""
    return _received_rows(xp, dOut, Ids, nranks, padding_idx, len(W))


@kernel("c_send_rows")
def c_send_rows(xp: Any, X: Any, Ids: Any, nranks: int, padding_idx: int, Out: Any) -> None:
    received = _received_rows(xp, X, Ids, nranks, padding_idx, len(Out))
    Out.fill(0)
    add_rows_at(xp, received.value, received.index, Out)


def _received_rows(xp: Any, X: Any, Ids: Any, nranks: int, padding_idx: int, height: int) -> SelectedRows:
    """Add up the rows of X that have the same id, send the sums to the owners of the ids, and return the rows received."""
    group = group_of(xp)
    check_workers(group, nranks)
    ids = Ids.reshape(-1)
    rows = X.reshape(ids.size, X.shape[-1])
    if padding_idx != -1:
        ids, rows = ids[ids != padding_idx], rows[ids != padding_idx]
    sums = SelectedRows(ids.astype("int64"), rows, height * nranks).merged(xp)
    order, counts = _by_owner(xp, sums.index, nranks)
    index, _ = group.exchange_rows(sums.index[order] // nranks, counts)
    value, _ = group.exchange_rows(sums.value[order], counts)
    return SelectedRows(index, value, height)


def _by_owner(xp: Any, ids: Any, workers: int) -> tuple[Any, list[int]]:
    """The order that sorts ids by the workers that own their rows (`RowDivision`), and the number of ids for each."""
    owners = ids % workers
    return xp.argsort(owners, kind="stable"), xp.bincount(owners, minlength=workers).tolist()


# ------------------------------------------------------------------------------------------------------------- streams
@prepared("c_sync_calc_stream", inplace={"Out": "X"})
def c_sync_calc_stream(xp: Any, X: Any, Out: Any) -> list[Call]:
    return [] if Out is X else [partial(xp.copyto, Out, X)]


@prepared("c_sync_comm_stream", inplace={"Out": "X"})
def c_sync_comm_stream(xp: Any, X: list[Any], Out: list[Any]) -> list[Call]:
    return [partial(xp.copyto, out, x) for x, out in zip(X, Out, strict=True) if out is not None and out is not x]


@sparse("c_sync_comm_stream")
def sync_rows(X: list[Any]) -> list[Any]:
    return list(X)


@kernel("barrier", inplace={"Out": "X"})
def barrier(xp: Any, X: Any, Out: Any) -> None:
    _copied(xp, X, Out)
    group_of(xp).barrier()
