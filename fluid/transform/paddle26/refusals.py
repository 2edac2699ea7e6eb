"""Ops that Paddle 2.6 would compute wrongly, or end over, and that have no other form there."""

from __future__ import annotations

from ...ir.program import Operator
from ...opdef.registry import EMPTY
from ..op_rows import BOTH, Condition, Refused, Row, input_of, is_written, refuse_if, shape_of

UNREAD = {
    "batch_norm_grad": ("SavedMean@GRAD", "SavedVariance@GRAD"),
    "cross_entropy_grad2": ("MatchX@GRAD",),
    "eigvalsh_grad": ("Eigenvectors@GRAD",),
    "einsum_grad": ("InnerCache@GRAD",),
    "flash_attn_grad": ("softmax@GRAD", "softmax_lse@GRAD", "seed_offset@GRAD"),
    "huber_loss_grad": ("Residual@GRAD",),
    "lrn_grad": ("MidOut@GRAD",),
    "lstm_grad": ("Cell@GRAD",),
    "margin_cross_entropy_grad": ("Softmax@GRAD",),
    "memory_efficient_attention_grad": ("logsumexp@GRAD", "seed_and_offset@GRAD"),
    "modified_huber_loss_grad": ("IntermediateVal@GRAD",),
    "nll_loss_grad": ("Total_weight@GRAD",),
    "rrelu_grad": ("Noise@GRAD",),
    "var_conv_2d_grad": ("Col@GRAD",),
}
"""Gradients of further outputs, which Paddle's gradient ops do not have."""


def refuse_unread(op: Operator) -> None:
    for slot in UNREAD[op.type]:
        if any(name != EMPTY for name in op.input(slot)):
            raise Refused(f"it takes a gradient of {slot.removesuffix('@GRAD')}, and Paddle's does not")


def _no_kernel(op: Operator) -> None:
    raise Refused("Paddle runs it outside of programs only")


def _widths(op: Operator) -> None:
    x, y = (shape_of(input_of(op, slot))[-1] for slot in ("X", "Y"))
    if x != y:
        raise Refused(f"the rows of X have {x} numbers and those of Y {y}, and Paddle takes both for as many")


def _small_epsilon(op: Operator) -> None:
    if not 0 <= op.attr("epsilon") <= 0.001:
        raise Refused(f"its epsilon is {op.attr('epsilon')}, and Paddle allows 0.001 at most")


def _rank(op: Operator) -> int:
    return len(shape_of(input_of(op)))


def _frame(op: Operator) -> int:
    """The length of the frames of an ``overlap_add``."""
    return shape_of(input_of(op))[-2 if op.attr("axis") == -1 else 1]


def _is_window_apart(op: Operator) -> bool:
    """Whether the window of a ``sequence_conv`` does not touch the row."""
    start = op.attr("contextStart")
    return (start > 0 and not op.attr("paddingTrainable")) or start + op.attr("contextLength") < 0


_WRONG: dict[str, tuple[Condition, str]] = {
    "auc": (lambda op: bool(op.input("InsTagWeight")), "it weights rows, and Paddle leaves out whole batches"),
    "box_clip": (
        lambda op: not input_of(op, "Input").lod_level,
        "its Input has no sequences, and Paddle reads by them which image a box is in",
    ),
    "bpr_loss_grad": (lambda op: _rank(op) > 2, "its X has more than two dimensions, and Paddle writes the first rows only"),
    "deformable_psroi_pooling_grad": (lambda op: not op.attr("no_trans"), "Paddle computes another gradient of moved parts"),
    "logcumsumexp": (lambda op: bool(op.attr("exclusive")), "its sums are exclusive, of which Paddle's begin otherwise"),
    "lrn": (lambda op: op.attr("n") % 2 == 0, "its window n is even, and Paddle's is odd"),
    "rnn_grad": (
        lambda op: bool(op.attr("is_bidirec") and op.input("SequenceLength")),
        "it goes both ways over rows of different lengths, and Paddle computes another gradient of the weights",
    ),
    "sequence_conv_grad": (
        _is_window_apart,
        "its window does not touch the row, and Paddle computes another gradient of the Filter",
    ),
    "set_value_grad": (
        lambda op: bool(op.attr("none_axes")) and is_written(op, "ValueTensor@GRAD"),
        "its value has new axes, and Paddle computes another gradient of it",
    ),
}
_WRONG_BOTH_WAYS: dict[str, tuple[Condition, str]] = {
    "cummax": (lambda op: not shape_of(input_of(op, "x")), "its x has no dimensions, over which Paddle ends the process"),
    "cummin": (lambda op: not shape_of(input_of(op, "x")), "its x has no dimensions, over which Paddle ends the process"),
    "maxout": (lambda op: _rank(op) != 4, "its X has not four dimensions, as Paddle's has"),
    "overlap_add": (lambda op: op.attr("hop_length") > _frame(op), "it hops further than a frame is long, which Paddle does not"),
    "psroi_pool": (lambda op: op.attr("output_channels") == 1, "it makes one channel, and Paddle two at least"),
}
"""Op -> (condition, fault) of the ops that are refused; the second table covers their gradient ops too."""


ROWS = [
    *[Row(kind, check=refuse_unread) for kind in UNREAD if kind not in ("nll_loss_grad", "batch_norm_grad", "einsum_grad")],
    *[Row(kind, check=refuse_if(*wrong)) for kind, wrong in _WRONG.items()],
    *[Row(f"{kind}{grad}", check=refuse_if(*wrong)) for kind, wrong in _WRONG_BOTH_WAYS.items() for grad in BOTH],
    *[Row(f"layer_norm{grad}", check=_small_epsilon) for grad in BOTH],
    *[Row(f"match_matrix_tensor{grad}", check=_widths) for grad in BOTH],
    *[Row(kind, check=_no_kernel) for kind in ("as_strided", "tensor_unfold", "view_dtype")],
]
