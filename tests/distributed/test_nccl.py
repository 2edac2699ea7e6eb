"""Calls of NCCL, tested with a stand-in for cupy, because there is no GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fluid.distributed import Alone
from fluid.distributed.communicator import Communicator, Statement
from fluid.distributed.nccl import nccl_communicator
from fluid.errors import CommunicationError
from fluid.values.types import BFLOAT16


class Array(np.ndarray[Any, Any]):
    """An array whose address lies where cupy has it."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.__array_interface__["data"][0])


def array(*items: Any, dtype: str = "float32") -> Any:
    return np.array(items, dtype).view(Array)


class Peers(Alone):
    """Worker 1 of two, whose peer says the same; the unique id is that of worker 0."""

    def __init__(self) -> None:
        Communicator.__init__(self, 1, 2)
        self.stated: list[int] = []

    def exchange(self, item: Any) -> list[Any]:
        return [[7, 7] if item is None else item, item]

    def state(self, statement: Statement) -> None:
        self.stated.append(statement.digest)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """numpy with streams and NCCL that record their calls."""
    log: list[Any] = []

    class Stream:
        def __init__(self, name: str = "communication", non_blocking: bool = True) -> None:
            self.name, self.ptr = name, name

        def record(self) -> str:
            return f"event of {self.name}"

        def wait_event(self, event: str) -> None:
            log.append(f"{self.name} waits for {event}")

    class NcclCommunicator:
        def __init__(self, size: int, unique: tuple[int, ...], rank: int) -> None:
            log.append(("join", size, unique, rank))

        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: log.append((name, *arguments))

    computing = Stream("computation")
    kinds = ("SUM", "MAX", "UINT8", "FLOAT32", "INT64", "FLOAT16")
    nccl = SimpleNamespace(NcclCommunicator=NcclCommunicator, **{f"NCCL_{kind}": kind for kind in kinds})
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", nccl)  # cupy.cuda has it once it is imported
    cuda = SimpleNamespace(Stream=Stream, get_current_stream=lambda: computing)
    zeros, empty = (lambda *shape: np.zeros(*shape).view(Array)), (lambda *shape: np.empty(*shape).view(Array))
    return SimpleNamespace(
        cuda=cuda, log=log, zeros=zeros, empty=empty, concatenate=lambda parts: np.concatenate(parts).view(Array)
    )


def test_what_nccl_is_asked_for(cupy: Any) -> None:
    group = nccl_communicator(cupy, Peers())
    log: list[Any] = cupy.log
    begins, ends = "communication waits for event of computation", "computation waits for event of communication"
    assert log == [("join", 2, (7, 7), 1)] and (group.rank, group.size) == (1, 2)
    x, out = array(1, 2, 3, 4), array(0, 0)
    address, target = x.data.ptr, out.data.ptr

    def asked(call: Any) -> list[Any]:
        log.clear()
        call()
        return list(log)

    assert asked(lambda: group.start_allreduce([x], "max")) == [
        begins, ("allReduce", address, address, 4, "FLOAT32", "MAX", "communication")
    ]  # fmt: skip
    assert asked(lambda: group.finish([x])) == [ends]
    y = array(5, 6)
    asked(lambda: group.start_allreduce([x, y], "sum"))
    assert cupy.log[1][3:] == (6, "FLOAT32", "SUM", "communication") and asked(lambda: group.finish([x, y])) == [ends]
    assert (x.tolist(), y.tolist()) == ([1, 2, 3, 4], [5, 6])
    with pytest.raises(CommunicationError, match="leave gradients_sent_as of the strategy unset"):
        group.start_allreduce([x], "sum", BFLOAT16)
    assert asked(lambda: group.broadcast(x, 0))[1] == ("broadcast", address, address, 16, "UINT8", 0, "communication")
    assert asked(lambda: group.reducescatter(x, out))[1] == (
        "reduceScatter", address, target, 2, "FLOAT32", "SUM", "communication"
    )  # fmt: skip
    assert asked(lambda: group.allgather(out, x)) == [begins, ("allGather", target, address, 8, "UINT8", "communication"), ends]
    assert asked(lambda: group.reduce(x, 0))[1] == ("reduce", address, address, 4, "FLOAT32", "SUM", 0, "communication")
    assert x.tolist() == [0, 0, 0, 0], "worker 0 has the sum"
    ((_, _, _, size, kind, _),) = [
        call for call in asked(lambda: group.gather_rows(array(5, dtype="int64"))) if call[0] == "allGather"
    ]
    assert (size, kind) == (8, "UINT8")
    group.state(Statement(5, list))
    assert group.exchange("x")[1] == "x" and group.traffic.calls == 7


def test_a_worker_that_is_alone_needs_no_nccl() -> None:
    assert type(nccl_communicator(None, Alone())) is Alone
