"""Ops that all workers run together, each on its own X.

A worker that is alone is a group of one: every sum, maximum and gathering is its own value. Gradients are taken of the sum of
the losses of all workers, so the effect of one worker's X on another's result counts. So the gradient of a sum is a sum, the
gradient of a gathering is a scattered sum, and the other way round.

``use_calc_stream`` says where the op stands: if unset, on the stream of communication, which ``c_sync_comm_stream`` waits for.
Here that changes no value: a reduction whose result nothing but ``c_sync_comm_stream`` reads goes on until then, while other ops
run, and any other is waited for at once. ``nranks`` is the number of workers that the program was built for; 0 stands for any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..distributed.parts import Division, FlatDivision, RowDivision
from ..errors import InferenceError
from ..opdef.registry import NOT_DIFFERENTIABLE, Attr, ShapeOnly, choice, define, ints, least, like, long, required, strings
from ..values.spec import Spec
from ..values.types import VarType

COLLECTIVE = frozenset(
    {
        *(
            "c_allreduce_sum",
            "c_allreduce_sum_coalesced",
            "c_allreduce_max",
            "c_allreduce_min",
            "c_allreduce_prod",
            "c_reduce_sum",
            "c_broadcast",
        ),
        *("c_join_parts", "c_lookup_rows", "c_lookup_rows_grad", "c_send_rows"),
        *("c_allgather", "c_reducescatter", "allreduce", "barrier", "sync_batch_norm", "sync_batch_norm_grad"),
    }
)
"""Ops that speak to other workers: all of them run, wherever the program is run, and in its order."""

SETTING_UP = frozenset({"c_comm_init", "c_comm_init_all", "c_gen_nccl_id"})
"""Ops with which Paddle sets up its communicators, and whose attributes differ between workers."""

KINDS = ("sum", "prod", "max", "min")
"""The reduction of `allreduce`, by its attribute ``reduce_type``."""

_STREAM: dict[str, Any] = {"ring_id": 0, "use_calc_stream": False}
_WORKERS = least(0, 0)
_GROUP = Attr("int", None, True, least=1)


# ------------------------------------------------------------------------------------------------------------ reductions
def _extremum(f: Any, X: Any, Out: Any, dOut: Any) -> Any:
    return f.c_allreduce_sum(dOut, use_calc_stream=True) * f.equal(X, Out).astype(X.dtype)


def _sums(X: Sequence[Spec], sent_as: str) -> list[Spec]:
    if any(spec.dtype is not X[0].dtype for spec in X):
        raise InferenceError(f"X are {', '.join(map(str, X))}; they should have one element type")
    if sent_as and X and X[0].dtype is not VarType.FP32:
        raise InferenceError(f"X are {', '.join(map(str, X))}; they should be float32 to be sent as {sent_as}")
    return list(X)


def _define_reduction(kind: str) -> Callable[[Callable[..., Any]], Any]:
    signature = f"c_allreduce_{kind}(X{', Cond?' if kind == 'sum' else ''}) -> Out"
    return define(signature, infer=like("X"), wrt=("X",), inline_grad=True, nranks=_WORKERS, use_model_parallel=False, **_STREAM)


@_define_reduction("sum")
def c_allreduce_sum(f: Any, dOut: Any, nranks: int) -> Any:
    """The sum of all workers' X."""
    return {"X": f.c_allreduce_sum(dOut, use_calc_stream=True, nranks=nranks)}


@define(
    "c_allreduce_sum_coalesced(X*) -> Out*",
    infer=_sums,
    inline_grad=True,
    nranks=_WORKERS,
    sent_as=choice("", "bfloat16"),
    **_STREAM,
)
def c_allreduce_sum_coalesced(f: Any, dOut: Any, nranks: int, sent_as: str) -> Any:
    """The sums of all workers' X, element by element, which travel together: `c_allreduce_sum` of a bucket of gradients.

    Args:
        X: tensors of one element type.
        sent_as: ``bfloat16`` rounds each X before it travels, and the sum, which is computed in float32; X are float32 then.
            Empty: X travel as they are.
    """
    return {"X": f.c_allreduce_sum_coalesced(list(dOut), nranks=nranks, sent_as=sent_as, use_calc_stream=True)}


@_define_reduction("max")
def c_allreduce_max(f: Any, X: Any, Out: Any, dOut: Any) -> Any:
    """The largest of all workers' X, element by element. Every element that equals it gets the whole gradient."""
    return {"X": _extremum(f, X, Out, dOut)}


@_define_reduction("min")
def c_allreduce_min(f: Any, X: Any, Out: Any, dOut: Any) -> Any:
    """The smallest of all workers' X, element by element. Every element that equals it gets the whole gradient."""
    return {"X": _extremum(f, X, Out, dOut)}


@_define_reduction("prod")
def c_allreduce_prod(f: Any, X: Any, Out: Any, dOut: Any) -> Any:
    """The product of all workers' X, element by element. Its gradient divides by X, and is no number where X is 0."""
    return {"X": f.c_allreduce_sum(dOut, use_calc_stream=True) * Out / X}


@define("c_reduce_sum(X) -> Out", infer=like("X"), inline_grad=True, root_id=least(0, 0), **_STREAM)
def c_reduce_sum(f: Any, dOut: Any, root_id: int) -> Any:
    """The sum of all workers' X on worker `root_id`, and zeros on the others."""
    return {"X": f.c_broadcast(dOut, root=root_id, use_calc_stream=True)}


@define(
    "allreduce(X) -> Out", infer=like("X"), inline_grad=True, reduce_type=Attr("int", 0, choices=(0, 1, 2, 3)), sync_mode=False
)
def allreduce(f: Any, X: Any, Out: Any, dOut: Any, reduce_type: int) -> Any:
    """The sum (`reduce_type` 0), product (1), maximum (2) or minimum (3) of all workers' X; older than ``c_allreduce_...``."""
    if KINDS[reduce_type] == "sum":
        return {"X": f.c_allreduce_sum(dOut, use_calc_stream=True)}
    if KINDS[reduce_type] == "prod":
        return {"X": f.c_allreduce_sum(dOut, use_calc_stream=True) * Out / X}
    return {"X": _extremum(f, X, Out, dOut)}


# ------------------------------------------------------------------------------------------------- spreading and gathering
@define("c_broadcast(X) -> Out", infer=like("X"), inline_grad=True, root=least(0, 0), **_STREAM)
def c_broadcast(f: Any, dOut: Any, root: int) -> Any:
    """The X of worker `root`, on all workers."""
    return {"X": f.c_reduce_sum(dOut, root_id=root, use_calc_stream=True)}


def _gathered(X: Spec, nranks: int) -> Spec:
    rows = X.shape[0]
    return X.with_shape((rows * nranks if rows >= 0 else -1, *X.shape[1:]))


@define("c_allgather(X: [N, ...]) -> Out", infer=_gathered, inline_grad=True, nranks=Attr("int", None, True, least=1), **_STREAM)
def c_allgather(f: Any, dOut: Any, nranks: int) -> Any:
    """The rows of all `nranks` workers' X ``[n, ...]``, in the order of their ranks: ``[nranks * n, ...]``."""
    return {"X": f.c_reducescatter(dOut, nranks=nranks, use_calc_stream=True)}


def _scattered(X: Spec, nranks: int) -> Spec:
    rows = X.shape[0]
    if rows >= 0 and rows % nranks:
        raise InferenceError(f"X is {X}; its first dimension should be a multiple of nranks, {nranks}")
    return X.with_shape((rows // nranks if rows >= 0 else -1, *X.shape[1:]))


@define("c_reducescatter(X: [N, ...]) -> Out", infer=_scattered, inline_grad=True, nranks=least(1, 1), **_STREAM)
def c_reducescatter(f: Any, dOut: Any, nranks: int) -> Any:
    """This worker's part ``[n, ...]`` of the sum of all workers' X ``[nranks * n, ...]``."""
    return {"X": f.c_allgather(dOut, nranks=nranks, use_calc_stream=True)}


# -------------------------------------------------------------------------------------------------- divided among workers
DIVISIONS: dict[str, type[Division]] = {"flat": FlatDivision, "rows": RowDivision}
"""The attribute ``by`` of `c_take_part` -> how workers divide a tensor."""


def _part(X: Spec, nranks: int, by: str) -> Spec:
    division = DIVISIONS[by](X.shape, nranks)
    if by == "flat":
        return X.with_shape(division.part_shape if X.known else (-1,))
    return X.with_shape(division.part_shape if X.shape[0] >= 0 else X.shape)


@define(
    "c_take_part(X: [N, ...]) -> Out",
    infer=_part,
    grad=NOT_DIFFERENTIABLE,
    nranks=Attr("int", None, True, least=1),
    by=choice("flat", "rows"),
)
def c_take_part() -> None:
    """This worker's part of X, which all workers have.

    Args:
        by: ``flat``: the `rank`-th of `nranks` equal slices of the elements, ``[ceil(size / nranks)]``; ``rows``: the rows
            `rank`, ``rank + nranks`` and so on, ``[ceil(N / nranks), ...]``. Zeros fill what lies behind the end of X.
    """


def _joined(X: Sequence[Spec], Like: Sequence[Spec], nranks: int) -> list[Spec]:
    for part, tensor in zip(X, Like, strict=True):
        expected = FlatDivision(tensor.shape, nranks).part_shape
        if part.known and tensor.known and part.shape != expected:
            raise InferenceError(
                f"X has a part {part}; the part of a {tensor} among {nranks} workers has the shape {list(expected)}"
            )
    return list(Like)


@define(
    "c_join_parts(X*, Like*) -> Out*",
    infer=_joined,
    grad=NOT_DIFFERENTIABLE,
    shape_only=("Like",),
    nranks=_GROUP,
)
def c_join_parts() -> None:
    """Joins the parts that `c_take_part` by ``flat`` has given the workers to tensors; all X travel together.

    Args:
        X: of one element type.
        Like: for each of X, the shape of the tensor.
    """


def _check_part(table: Spec, rows: int, nranks: int) -> None:
    """Check the number of rows of a worker's part of a table."""
    expected = -(-rows // nranks)
    if table.shape[0] not in (-1, expected):
        raise InferenceError(f"the part of the table is {table}; of {rows} rows, each of {nranks} workers should have {expected}")


def _looked_up(W: Spec, Ids: Spec, squeeze: bool, rows: int, nranks: int) -> Spec:
    _check_part(W, rows, nranks)
    if squeeze and (not Ids.shape or Ids.shape[-1] not in (-1, 1)):
        raise InferenceError(f"Ids is {Ids}; its last dimension should be 1")
    return W.with_shape((*(Ids.shape[:-1] if squeeze else Ids.shape), *W.shape[1:]))


def _sent(X: Spec, Ids: Spec, Like: Spec, rows: int, nranks: int) -> Spec:
    _check_part(Like, rows, nranks)
    if min(X.size, Ids.size, Like.shape[1]) >= 0 and X.size != Ids.size * Like.shape[1]:
        raise InferenceError(f"X is {X}; it should have a row of {Like.shape[1]} elements for each of Ids, {Ids}")
    return Like


_TABLE: dict[str, Any] = {
    "rows": Attr("long", None, True, least=1),
    "nranks": _GROUP,
    "padding_idx": long(-1),
}


@define(
    "c_lookup_rows(W: [N, D], Ids: int) -> Out",
    infer=_looked_up,
    wrt=("W",),
    sparse_grad="W",
    squeeze=False,
    is_sparse=False,
    **_TABLE,
)
def c_lookup_rows(f: Any, W: ShapeOnly, Ids: Any, dOut: Any, rows: int, nranks: int, padding_idx: int) -> Any:
    """The rows of a table that is divided among workers by `c_take_part`: each worker asks the owners of its Ids.

    Args:
        W: this worker's part of the table.
        Ids: this worker's ids, from 0 to below `rows`; their number may differ between workers.
        rows: the number of rows of the table.
        padding_idx: an id whose row reads as zeros and has no gradient; -1: none.
        squeeze: whether the last dimension of Ids, of 1, is left out.
        is_sparse: whether the gradient is a `SelectedRows` of the rows of W that any worker has looked up.
    """
    return {"W": f.c_send_rows(dOut, Ids, W, rows=rows, nranks=nranks, padding_idx=padding_idx)}


@define("c_send_rows(X, Ids: int, Like: [N, D]) -> Out", infer=_sent, wrt=("X",), shape_only=("Like",), **_TABLE)
def c_send_rows(f: Any, X: ShapeOnly, Ids: Any, Like: ShapeOnly, dOut: Any, rows: int, nranks: int, padding_idx: int) -> Any:
    """Adds the rows in X of all workers to a table of zeros, at their ids; Out is this worker's part of the table, shaped as
    Like. The transpose of `c_lookup_rows`."""
    return {"X": f.reshape_like(f.c_lookup_rows(dOut, Ids, rows=rows, nranks=nranks, padding_idx=padding_idx), X)}


# ------------------------------------------------------------------------------------------------------------- streams
@define("c_sync_calc_stream(X) -> Out", infer=like("X"), inline_grad=True)
def c_sync_calc_stream(f: Any, dOut: Any) -> Any:
    """X, once it is computed."""
    return {"X": dOut}


@define("c_sync_comm_stream(X*) -> Out*", infer=lambda X: list(X), inline_grad=True, ring_id=0)
def c_sync_comm_stream(f: Any, dOut: Any) -> Any:
    """Every X, once the communication of ring `ring_id` is done that they come from."""
    return {"X": list(dOut)}


@define("barrier(X) -> Out", infer=like("X"), inline_grad=True, ring_id=0)
def barrier(f: Any, dOut: Any) -> Any:
    """X, once all workers are here."""
    return {"X": dOut}


# ------------------------------------------------------------------------------------------------------------ setting up
@define("c_gen_nccl_id() -> Out", grad=NOT_DIFFERENTIABLE, rank=0, endpoint="", other_endpoints=strings(), ring_id=0)
def c_gen_nccl_id() -> None:
    """Has no effect here, where workers know each other by MPI."""


@define(
    "c_comm_init(X) ->",
    grad=NOT_DIFFERENTIABLE,
    nranks=required("int"),
    rank=required("int"),
    device_id=-1,
    ring_id=0,
    endpoints="",
)
def c_comm_init() -> None:
    """Checks that there are `nranks` workers and that this one is number `rank`."""


@define("c_comm_init_all() ->", grad=NOT_DIFFERENTIABLE, devices=ints(), ring_id=0)
def c_comm_init_all() -> None:
    """Has no effect here: a process is one worker."""
