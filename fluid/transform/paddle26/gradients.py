"""Changes beyond the reach of rows, which see one op: gradients as ordinary ops, compositions, outputs that two ops share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from ...autodiff.expand import expand_composition, expand_gradient
from ...errors import FluidError
from ...ir.program import Block, Operator, Program
from ...opdef.registry import EMPTY
from ..op_rows import Condition, is_written, temporary
from .formulas import is_plain_hard_swish

MORE_GRADIENTS = {
    "bce_loss_grad": ("Label@GRAD",),
    "cross_entropy_grad": ("Label@GRAD",),
    "fill_diagonal_tensor_grad": ("Y@GRAD",),
    "kldiv_loss_grad": ("Target@GRAD",),
    "label_smooth_grad": ("PriorDist@GRAD",),
    "lerp_grad": ("Weight@GRAD",),
    "log_loss_grad": ("Labels@GRAD",),
    "rank_loss_grad": ("Label@GRAD",),
    "sigmoid_cross_entropy_with_logits_grad": ("pos_weight@GRAD",),
    "softmax_with_cross_entropy_grad": ("Label@GRAD",),
    "stft_grad": ("Window@GRAD",),
}
"""Gradients that Paddle's gradient ops do not compute."""


def _always(op: Operator) -> bool:
    return True


def _differ(*slots: str) -> Condition:
    """Whether these inputs of an op have different shapes."""

    def is_needed(op: Operator) -> bool:
        first, second = (op.block.var(op.input(slot)[0]) for slot in slots)
        return first._shape != second._shape

    return is_needed


def _rows_differ(*slots: str) -> Condition:
    """Whether the rows of these inputs of an op have different shapes."""

    def is_needed(op: Operator) -> bool:
        first, second = (op.block.var(op.input(slot)[0]) for slot in slots)
        return first.shape[1:] != second.shape[1:]

    return is_needed


def _is_batch(op: Operator) -> bool:
    return len(op.block.var(op.input("Eigenvectors")[0]).shape) > 2


def _may_reduce_one(op: Operator) -> bool:
    """Whether there may be no more than one element to each result: then Paddle writes no gradient."""
    x = op.block.var(op.input("X")[0])
    if not x.has_shape:
        return True
    rank = len(x.shape)
    axes = range(rank) if op.attr("reduce_all") or not op.attr("dim") else [axis % rank for axis in op.attr("dim") if rank]
    return all(x.shape[axis] in (1, -1) for axis in axes)


EXPANDED: dict[str, Condition] = {
    "atan2_grad": _differ("X1", "X2"),
    "cholesky_solve_grad": lambda op: is_written(op, "Y@GRAD"),
    "celu_grad": _always,  # which Paddle computes as 0 times infinity above 88
    "data_norm_grad": _always,
    "reduce_prod_grad": _always,  # which Paddle divides by zero for
    **{f"{kind}_grad": _is_batch for kind in ("eigh", "eigvalsh")},
    "graph_send_ue_recv_grad": _rows_differ("X", "Y"),
    "graph_send_uv_grad": _rows_differ("x", "y"),
    "spectral_norm_grad": _always,
    "relu6_grad": lambda op: op.attr("threshold") != 6.0,
    "index_select_strided_grad": _always,
    "hard_swish_grad": lambda op: not is_plain_hard_swish(op),
    "reduce_amax_grad": _may_reduce_one,
    "reduce_amin_grad": _may_reduce_one,
    "sigmoid_cross_entropy_with_logits_grad": lambda op: bool(op.input("pos_weight")),
    "soft_relu_grad": lambda op: op.attr("threshold") != 40.0,
    "triangular_solve_grad": lambda op: bool(op.attr("unitriangular")),
    "softmax_with_cross_entropy_grad": lambda op: bool(op.attr("soft_label")),  # which Paddle takes for a sum of 1
}
"""Gradient ops that are written by their rules -> whether one is: Paddle 2.6 computes something else, or nothing."""


_COMPOSED: dict[str, Condition] = {
    "fc": lambda op: op.attr("activation_type") not in ("", "relu" if op.input("Bias") else ""),
    "fused_bias_residual_layernorm": _always,  # which Paddle has for GPUs
    "fused_elemwise_activation_grad": _always,  # Paddle's result depends on which intermediates are saved
    "fused_elemwise_add_activation_grad": _always,
    "fused_elemwise_add_activation": lambda op: "elementwise_add" not in op.attr("functor_list"),
    "fused_embedding_fc_lstm": _always,  # Paddle's gradient op ends the process, or computes something else
    "fusion_gru": _always,
    "fusion_lstm": _always,
    "rms_norm": _always,  # which Paddle has for GPUs
    "share_buffer": _always,
    "fused_conv2d": lambda op: bool(op.input("ResidualData")),  # which Paddle does not add on a CPU
}
"""Ops that are written as the ops that they are composed of -> whether one is."""


def _each_op(program: Program, types: Iterable[str]) -> Iterator[tuple[Block, Operator]]:
    kinds = frozenset(types)
    for block in list(program.blocks):
        for op in [op for op in block.ops if op.type in kinds]:
            yield block, op


def _split_gradients(program: Program) -> None:
    """Let ordinary ops compute the gradients that Paddle's gradient ops do not."""
    for block, op in _each_op(program, MORE_GRADIENTS):
        more = {slot: op.output(slot) for slot in MORE_GRADIENTS[op.type] if is_written(op, slot)}
        if not more:
            continue
        for slot in more:
            del op.outputs[slot]
        index = next(i for i, one in enumerate(block.ops) if one is op)
        remaining = Operator(block, op.type, {slot: list(names) for slot, names in op.inputs.items()}, more, dict(op.attrs))
        block.ops.insert(index + 1, remaining)
        expand_gradient(block, remaining)
        if all(name == EMPTY for name in op.output_arg_names):
            block.ops[:] = [one for one in block.ops if one is not op]


def _expand(program: Program, expanded: Mapping[str, Condition], supported: Collection[str]) -> None:
    """Replace gradient ops by their rules, and composed ops by their parts, where the version needs it."""
    _expand_by(program, expanded, expand_gradient)
    _expand_by(program, _COMPOSED | _lacking(program, supported), expand_composition)
    while lacking := _lacking(program, supported):  # parts of these may be lacking, too
        _expand_by(program, lacking, expand_composition)


def _lacking(program: Program, supported: Collection[str]) -> dict[str, Condition]:
    """The types of ops with a formula that the version lacks."""
    ops = (op for block in program.blocks for op in block.ops if op.type not in supported)
    return {op.type: _always for op in ops if op.definition is not None and op.definition.formula is not None}


def _expand_by(program: Program, table: Mapping[str, Condition], expand: Callable[[Block, Operator], None]) -> None:
    for block, op in _each_op(program, table):
        try:
            is_needed = table[op.type](op)
        except (FluidError, LookupError):  # of an op that is not well formed, which the rows refuse
            continue
        if is_needed:
            expand(block, op)


def _reserve_space(program: Program) -> None:
    """Give each training `batch_norm` the workspace that Paddle asks for, and its gradient op the same."""
    spaces: dict[str, str] = {}
    for block, op in _each_op(program, ["batch_norm"]):
        if op.attr("is_test") or op.attr("use_global_stats") or is_written(op, "ReserveSpace"):
            continue
        saved = op.output("SavedMean")
        space = block.create_var(name=program.fresh_name(f"{(saved or op.output('Y'))[0]}.reserve"), shape=[0], dtype="float32")
        space.stop_gradient = True
        op.outputs["ReserveSpace"] = [space.name]
        if saved:
            spaces[saved[0]] = space.name
    for _, op in _each_op(program, ["batch_norm_grad"]):
        saved = op.input("SavedMean")
        if op.input("ReserveSpace") in ([], [EMPTY]) and saved and saved[0] in spaces:
            op.inputs["ReserveSpace"] = [spaces[saved[0]]]


_WRITES_EACH = frozenset(
    f"{kind}_grad"
    for kind in (
        "addmm", "affine_channel", "batch_norm", "broadcast_tensors", "cholesky_solve", "cross", "deformable_conv",
        "deformable_conv_v1", "graph_send_ue_recv", "graph_send_uv", "grid_sampler", "group_norm", "gru", "hierarchical_sigmoid",
        "index_add", "instance_norm", "layer_norm", "linear_chain_crf", "meshgrid", "multi_dot", "partial_concat", "partial_sum",
        "prelu", "rnn", "sequence_concat", "sequence_scatter", "solve", "triangular_solve", "var_conv_2d",
    )
)  # fmt: skip
"""Gradient ops that fail, or compute something else, where a gradient is not asked for: Paddle writes each of them."""


def _name_each_gradient(program: Program) -> None:
    """Let gradient ops of `_WRITES_EACH` write the gradients of all their inputs."""
    for _, op in _each_op(program, _WRITES_EACH):
        definition = op.definition
        assert definition is not None and definition.forward is not None
        for slot in definition.outputs:
            source = slot.removesuffix("@GRAD")
            sources = [name for name in op.input(source) if name != EMPTY]
            if source not in definition.inputs:  # the op does not read it
                first = op.block.find_var(next(iter(op.input_arg_names)))
                is_there = not definition.forward.inputs[source].optional or bool(op.input("Scale"))
                if is_there and first is not None and op.output(slot) in ([], [EMPTY]):
                    op.outputs[slot] = [temporary(op, first, None).name]
                continue
            names = [*op.output(slot), *[EMPTY] * len(sources)][: len(sources)]
            for position, (name, original) in enumerate(zip(names, sources, strict=True)):
                var = op.block.find_var(original)
                if name == EMPTY and var is not None:
                    names[position] = temporary(op, var, var._shape).name
            op.outputs[slot] = names


def _without_gradients_of_nothing(program: Program) -> None:
    """Leave out gradients of inputs that an op does not have, which Paddle looks for."""
    for op in (op for block in program.blocks for op in block.ops):
        definition = op.definition
        if definition is not None and definition.forward is not None:
            for slot in list(op.outputs):
                source = slot.removesuffix("@GRAD")
                if source in definition.inputs and op.input(source) in ([], [EMPTY]):
                    op.outputs[slot] = []


def prepare(program: Program, expanded: Mapping[str, Condition], supported: Collection[str]) -> None:
    """Replace and complete ops, before the rows convert them one by one.

    Args:
        expanded: `EXPANDED`, or such a table for another version.
        supported: the types of ops that the version has.
    """
    _without_gradients_of_nothing(program)
    _split_gradients(program)
    _expand(program, expanded, supported)
    _name_each_gradient(program)
    _reserve_space(program)
