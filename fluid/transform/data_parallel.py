"""Turns training programs into programs of many workers, each with its part of the batch: gradients are summed over the workers.

The workers start from the same parameters (`broadcast_parameters`). Each divides the gradient of its loss by their number
(`average_loss`), so that the sum of the workers' gradients is the gradient of the mean loss of the whole batch
(`reduce_gradients`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import ProgramError
from ..ir.program import Block, Operator, OpRole, Program, Variable
from ..ir.versions import outer_names
from ..values.types import VarType


def broadcast_parameters(program: Program, startup_program: Program) -> None:
    """Set each parameter that the startup program initializes to worker 0's value, except those divided among the workers."""
    block = startup_program.global_block()
    for param in program.all_parameters():
        if param.name in block.vars and param.division is None:
            block.append_op("c_broadcast", {"X": param.name}, {"Out": param.name}, {"root": 0, "use_calc_stream": True})


def synchronize_batch_norm(program: Program, workers: int) -> None:
    """Let each batch_norm of a program without a backward part use the statistics of all workers' rows."""
    for block in program.blocks:
        for op in block.ops:
            if op.type == "batch_norm":
                op.type = "sync_batch_norm"
                op.attrs["nranks"] = workers
    program._changed()


def average_loss(loss: Variable, workers: int) -> None:
    """Divide the gradient that backward starts from by the number of workers."""
    block = loss.block.program.global_block()
    start = OpRole.BACKWARD | OpRole.LOSS
    places = [
        place for place, op in enumerate(block.ops) if op.role & start == start and op.output_arg_names == [f"{loss.name}@GRAD"]
    ]
    if len(places) != 1:
        raise ProgramError(
            f"the backward part of {loss.name} should begin with one op that writes {loss.name}@GRAD, not {len(places)}"
        )
    (name,) = block.ops[places[0]].output_arg_names
    _insert(block, places[0] + 1, block.ops[places[0]], "scale", {"X": name}, {"Out": name}, {"scale": 1.0 / workers}, start)


def average_parameters(block: Block, parameters: Sequence[Variable], workers: int, bucket_bytes: int) -> None:
    """Append ops that replace each parameter by its mean over all workers.

    Args:
        block: of the program of the parameters.
        parameters: dense ones.
        workers: how many there are.
        bucket_bytes: so many bytes are averaged at once, or more.
    """
    variables = {parameter.name: parameter for parameter in parameters}
    attrs = {"nranks": workers, "use_calc_stream": True}
    for names in buckets(list(variables.values()), bucket_bytes):
        block.append_op("c_allreduce_sum_coalesced", {"X": names}, {"Out": names}, attrs)
        for name in names:
            block.append_op("scale", {"X": name}, {"Out": name}, {"scale": 1.0 / workers})


class _Bucket(NamedTuple):
    """Gradients that are reduced together.

    Attributes:
        names: in backward's order.
        writer: the position of the op after which all are there.
        reader: the position of the first op, behind backward, that reads or overwrites one of them.
    """

    names: list[str]
    writer: int
    reader: int


def reduce_gradients(
    gradients: Iterable[Variable], end: int, workers: int, bucket_bytes: int, sent_as: str | None = None
) -> None:
    """Sum gradients over the workers, after backward and before the ops that read them.

    They are reduced in buckets, in backward's order. The reduction of a bucket begins after its last gradient, and the first
    op that reads one of them waits for it. Sparse gradients are gathered where they are made.

    Args:
        gradients: variables of block 0 of one program.
        end: the position of the first op behind backward.
        workers: how many there are.
        bucket_bytes: a bucket is full at so many bytes.
        sent_as: ``"bfloat16"`` rounds float32 gradients to bfloat16 before they travel; None sends them as they are.
    """
    variables = {gradient.name: gradient for gradient in gradients}
    if not variables:
        return
    block = next(iter(variables.values())).block
    writers = {name: place for place, op in enumerate(block.ops[:end]) for name in op.output_arg_names if name in variables}
    lacking = sorted(variables.keys() - writers.keys())
    if lacking:
        raise ProgramError(f"no op of backward writes the gradient {lacking[0]}, so that it cannot be reduced")
    in_order = sorted(variables.values(), key=lambda gradient: writers[gradient.name])
    sparse = [gradient.name for gradient in in_order if gradient.type is VarType.SELECTED_ROWS]
    dense = [gradient for gradient in in_order if gradient.name not in sparse]
    readers = _first_uses(block, end, variables)
    reduced = [
        _Bucket(names, max(writers[name] for name in names), min(readers[name] for name in names))
        for names in buckets(dense, bucket_bytes)
    ]
    inserts: list[tuple[int, int, Callable[[int], None]]] = []
    for name in sparse:
        inserts.append((writers[name] + 1, len(inserts), _gathering(block, name, block.ops[writers[name]], workers)))
    for bucket in reduced:
        begin, finish = _reduction(block, bucket, workers, sent_as)
        inserts.append((bucket.writer + 1, len(inserts), begin))
        inserts.append((bucket.reader, len(inserts), finish))
    for place, _, insert in sorted(inserts, key=lambda item: item[:2], reverse=True):
        insert(place)


def _first_uses(block: Block, end: int, names: Iterable[str]) -> dict[str, int]:
    """Name -> the position of the first op from `end` on that uses it; the end of the block if none does."""
    uses = dict.fromkeys(names, len(block.ops))
    for place in range(len(block.ops) - 1, end - 1, -1):
        op = block.ops[place]
        inner = (name for sub in op.sub_blocks for part in outer_names(sub) for name in part)
        uses.update((name, place) for name in (*op.input_arg_names, *op.output_arg_names, *inner) if name in uses)
    return uses


def buckets(gradients: Sequence[Variable], most: int) -> Iterator[list[str]]:
    """The names of gradients, or of parameters, divided into buckets of `most` bytes or more and of one element type each."""
    open_buckets: dict[VarType, tuple[list[str], int]] = {}
    for gradient in gradients:
        names, size = open_buckets.pop(gradient.dtype, ([], 0))
        names.append(gradient.name)
        size += gradient.spec.nbytes
        if size >= most:
            yield names
        else:
            open_buckets[gradient.dtype] = names, size
    yield from (names for names, _ in open_buckets.values())


def _gathering(block: Block, name: str, source: Operator, workers: int) -> Callable[[int], None]:
    def insert(place: int) -> None:
        attrs = {"nranks": workers, "use_calc_stream": True}
        _insert(block, place, source, "c_allreduce_sum", {"X": name}, {"Out": name}, attrs, OpRole.BACKWARD)

    return insert


def _reduction(
    block: Block, bucket: _Bucket, workers: int, sent_as: str | None
) -> tuple[Callable[[int], None], Callable[[int], None]]:
    """Functions that insert the ops: one begins to reduce a bucket, one waits for it."""
    names, source = bucket.names, block.ops[bucket.writer]
    attrs: dict[str, Any] = {"nranks": workers}
    if sent_as is not None and block.var(names[0]).dtype is VarType.FP32:
        attrs["sent_as"] = sent_as

    def begin(place: int) -> None:
        _insert(block, place, source, "c_allreduce_sum_coalesced", {"X": names}, {"Out": names}, attrs, OpRole.BACKWARD)

    def finish(place: int) -> None:
        _insert(block, place, source, "c_sync_comm_stream", {"X": names}, {"Out": names}, {}, OpRole.BACKWARD)

    return begin, finish


def _insert(
    block: Block, place: int, source: Operator, op_type: str, reads: Any, writes: Any, attrs: dict[str, Any], role: int
) -> None:
    """Insert an op that reports the user's line of `source`."""
    attrs = {**attrs, OpRole.NAME: int(role)}
    block.insert_op(place, op_type, inputs=reads, outputs=writes, attrs=attrs, frames=source.frames)
