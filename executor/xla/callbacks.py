"""Ops that XLA cannot compute: numpy computes some in callbacks at the host, the others are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fluid.errors import ExecutionError, locate
from fluid.ir.nesting import walk
from fluid.ir.program import Operator
from fluid.values.lod_array import array_of
from fluid.values.place import XLAPlace
from fluid.values.spec import Spec

from ..kernels.table import CHECKS, kernel_of
from ..runtime.calls import Source
from ..runtime.threads import on_one_thread
from ..stepwise.handlers import HANDLERS as OF_INTERPRETER
from ..stepwise.interpreter import BlockOp, Environment, Machine, signature_of
from . import function_kernels, region_kernels  # noqa: F401  (they fill the table)
from .arrays import ValueAsked, type_of_jax, value_of, wrap
from .tracing import HANDLERS, XlaTracer

_LENGTHS = "takes sequences as long as values say"
_PATHS = "follows paths that labels decide"
_SEARCH = "goes on with what it found before"
_ALGEBRA = "is computed by numpy's LAPACK"
ON_HOST = {
    "bipartite_match": _SEARCH,
    "chunk_eval": _SEARCH,
    "ctc_states": _PATHS,
    "edit_distance": _PATHS,
    "sample_logits": "draws classes until it has as many different ones as wanted",
    "similarity_focus": _SEARCH,
    "warpctc": _PATHS,
    **dict.fromkeys(("eig", "eigvals", "lu"), _ALGEBRA),
    "roi_pool": "goes through as many places of an image as its regions are large",
}
"""Op type -> why numpy computes it at the host, in the middle of an XLA program. The shapes of its outputs are known."""

OF_LENGTHS = dict.fromkeys(("crf_decoding", "linear_chain_crf", "linear_chain_crf_grad"), "Length")
"""Op type -> slot. The op runs at the host if the slot is fed: it holds lengths of sequences."""

_COUNTS = "makes as many rows as it finds"
REFUSED = {
    **dict.fromkeys(("collect_fpn_proposals", "ctc_align", "detection_map", "distribute_fpn_proposals"), _COUNTS),
    **dict.fromkeys(("filter_by_instag", "generate_mask_labels", "generate_proposal_labels", "generate_proposals"), _COUNTS),
    **dict.fromkeys(
        ("generate_proposals_v2", "locality_aware_nms", "masked_select", "matrix_nms", "mine_hard_examples"), _COUNTS
    ),
    **dict.fromkeys(("multiclass_nms", "multiclass_nms2", "multiclass_nms3", "retinanet_detection_output"), _COUNTS),
    **dict.fromkeys(("retinanet_target_assign", "rows_of_tagged", "rpn_target_assign", "sequence_erase", "unique"), _COUNTS),
    **dict.fromkeys(("mine_hard_examples", "unique_with_counts", "where_index", "bincount", "unique_consecutive"), _COUNTS),
    **dict.fromkeys(("graph_khop_sampler", "graph_reindex", "graph_sample_neighbors", "segment_pool", "nms"), _COUNTS),
    **dict.fromkeys(("weighted_sample_neighbors", "logspace"), _COUNTS),
    **dict.fromkeys(("c_lookup_rows", "c_send_rows"), "exchanges as many rows of a table as a batch touches"),
    "lstsq": "gives residuals only where the rank is full",
    "viterbi_decode": "gives paths as long as the longest sequence",
}
"""Op type -> why it is refused: mostly, values decide the shapes of its outputs."""


def _reason(op: Operator, place: XLAPlace) -> str:
    """Why an op cannot run at a place of XLA; empty if it can."""
    if is_on_host(op):
        return f"{ON_HOST.get(op.type, _LENGTHS)}, and strict=True refuses to call numpy for it" if place.strict else ""
    if op.type in HANDLERS:
        return ""
    if op.type == "where" and not op.inputs.get("X"):
        return _COUNTS
    if op.type in REFUSED:
        return REFUSED[op.type]
    if op.type in OF_INTERPRETER and op.type not in ("feed", "fetch"):
        return "owns a block, which is not traced" if op.sub_blocks else "handles lists, or reaches outside of the program"
    return ""


def is_on_host(op: Operator) -> bool:
    """Whether numpy computes an op at the host."""
    return op.type in ON_HOST or bool(op.inputs.get(OF_LENGTHS.get(op.type, "")))


def refuse_untraceable(ops: Sequence[Operator], place: XLAPlace) -> None:
    """Raise an `ExecutionError` listing the ops, in blocks too, that cannot run at a place."""
    reasons: dict[str, tuple[str, Operator]] = {}
    for op in walk(ops):
        if op.type not in reasons and (reason := _reason(op, place)):
            reasons[op.type] = reason, op
    if not reasons:
        return
    lines = [f"  - {op_type} {reason}" for op_type, (reason, _) in sorted(reasons.items())]
    first = next(iter(reasons.values()))[1]
    subject = "an op of this program" if len(lines) == 1 else f"{len(lines)} kinds of ops of this program"
    raise ExecutionError(
        "\n".join([f"{subject} cannot run at an XLAPlace, where shapes are known before anything runs:", *lines])
        + f"\nrun the program, or the part of it that has them, at a {_else_at(place)}\n"
        + locate(first)
    )


def _else_at(place: XLAPlace) -> str:
    """The places where programs run that XLA refuses."""
    return "CUDAPlace(0), by cupy, or a CPUPlace()" if place.device == "gpu" else "CPUPlace()"


def called_back(ops: Sequence[Operator]) -> list[str]:
    """The types of the ops, in blocks too, that numpy computes at the host."""
    return sorted({op.type for op in walk(ops) if is_on_host(op)})


class _Streams:
    """The source of a host op's random numbers: words passed by the compiled function."""

    def __init__(self) -> None:
        self.words: Any = None

    def source(self, name: str, op_seed: int, drawer: Any = None, op_type: str = "") -> Callable[[], Any]:
        return _Words(self)

    def first_values(self, name: str, op_seed: int, name_from_zero: str) -> Callable[[], Any]:
        return _Words(self)


class _Words(Source):
    __slots__ = ("_streams",)

    def __init__(self, streams: _Streams) -> None:
        self._streams = streams

    def __call__(self) -> Any:
        return np.random.default_rng(self._streams.words)


class _HostOp:
    """An op compiled for numpy's arrays.

    Attributes:
        names: the names of its results.
        operands: the values in `env` that it reads; None for missing ones.
    """

    def __init__(self, op: Operator, env: Environment) -> None:
        self.op, self.streams = op, _Streams()
        self._machine = Machine(np, self.streams, {})
        block_op = BlockOp(self._machine, op)
        self.operands = [
            None if name in block_op.may_be_missing and env.get(name) is None else env.need(name) for name in block_op.names
        ]
        signature = tuple(part for value in self.operands for part in signature_of(value))
        self.compiled, self.names = block_op.compile(signature, self.operands)
        self._env = Environment(env.block, None, {name: env.get(name) for name in op.input_arg_names})  # for messages

    @property
    def specs(self) -> list[Spec]:
        """The specs of its results."""
        places = ((self.compiled.specs[slot], number) for slot, number in self.compiled.places)
        return [spec if number is None else spec[number] for spec, number in places]

    def values(self) -> list[Any]:
        """The arguments that the compiled program passes to it."""
        return [value_of(array_of(value)) for value in self.operands if value is not None]

    def call(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """Call a function with a copy of an array for each operand; errors name the op."""
        remaining = iter(arrays)
        try:
            return function(*(None if value is None else np.array(next(remaining)) for value in self.operands))
        except Exception as error:
            raise self._machine.failure(self.op, self._env, error) from error


def trace_on_host(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    """Call numpy's kernel from the compiled program."""
    host = _HostOp(op, env)
    unknown = [name for name, spec in zip(host.names, host.specs, strict=True) if -1 in spec.shape or None in spec.lod]
    if unknown:
        raise ValueAsked(f"values decide the shape of {', '.join(unknown)}, which has to be known before the program runs")

    def run(words: Any, *arrays: Any) -> Any:
        host.streams.words = words
        result = host.call(on_one_thread(host.compiled.bound_run), arrays)
        return tuple(np.asarray(array_of(value)) for value in host.compiled.values(result))

    shapes = tuple(jax.ShapeDtypeStruct(spec.shape, type_of_jax(spec.dtype.array_dtype)) for spec in host.specs)
    results = tracer.host.add(run, shapes, _words_for(tracer, op), *host.values())
    for name, value in zip(host.names, host.compiled.values(tuple(map(wrap, results))), strict=True):
        env.set(name, value)


def _words_for(tracer: XlaTracer, op: Operator) -> Any:
    """The seed of a numpy generator for an op that draws; zeros for other ops."""
    kernel = kernel_of(op.type)
    draws = kernel is not None and any(source == "rng" for _, _, source in kernel.parameters)
    if not draws or op.definition is None:
        return np.zeros(2, np.uint32)
    return tracer.random_source(op, op.definition.defaults(op.attrs))().words()


def add_value_check(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    """Have the compiled program check the values of an op's inputs."""
    if op.type in CHECKS and op.type not in ON_HOST and op.definition is not None:
        host = _HostOp(op, env)
        if host.compiled.has_check:
            tracer.host.add_check(lambda *arrays: host.call(host.compiled.check, arrays), *host.values())


def _trace_of_lengths(tracer: XlaTracer, op: Operator, env: Environment) -> None:
    (trace_on_host if is_on_host(op) else XlaTracer.trace_kernel)(tracer, op, env)


HANDLERS.update({**dict.fromkeys(ON_HOST, trace_on_host), **dict.fromkeys(OF_LENGTHS, _trace_of_lengths)})
