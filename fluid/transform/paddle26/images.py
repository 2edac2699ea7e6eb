"""Ops on images whose attributes or inputs Paddle 2.6 wants in another form."""

from __future__ import annotations

from ...ir.program import Operator
from ...values.types import VarType, is_floating
from ..op_rows import BOTH, Refused, Row, constant, input_of, only, put, put_view, set_type, shape_of, temporary, unsqueeze_input
from .refusals import refuse_unread


def refuse_integers(op: Operator) -> None:
    if not op.type.startswith("nearest") and not is_floating(input_of(op).dtype):
        raise Refused("its images are of integers, which Paddle rounds otherwise")


def _method(op: Operator) -> None:
    """Paddle looks at the attribute, not at the type of the op, and the attribute's default differs from the type."""
    kind, _, version = op.type.removesuffix("_grad").partition("_interp")
    refuse_integers(op)
    op.attrs["interp_method"] = kind
    if kind == "nearest" and not version and len(shape_of(input_of(op))) == 5:
        if op.attr("scale"):
            raise Refused("it resizes volumes by a scale, and Paddle's has the sizes alone")
        grad = "_grad" * op.type.endswith("_grad")
        names = ("out_d", "out_h", "out_w", "interp_method", "align_corners", "align_mode", "data_layout")
        set_type(op, f"nearest_interp_v2{grad}", scale=[], **{name: op.attr(name) for name in names})


def _paddings(op: Operator) -> None:
    """Four numbers: the top, left, bottom and right."""
    pads = list(op.attr("paddings"))
    op.attrs["paddings"] = pads * 4 if len(pads) == 1 else pads * 2 if len(pads) == 2 else pads


def _paddings_of_fold(op: Operator) -> None:
    _paddings(op)
    top, left, bottom, right = op.attrs["paddings"]
    if (top, left) != (bottom, right):
        raise Refused(f"its paddings {op.attrs['paddings']} differ on two sides, and Paddle takes those of the first for both")


def _channels_second(op: Operator) -> None:
    if op.attr("data_layout") == "AnyLayout":
        op.attrs["data_layout"] = "NCHW"


def _im2col_step(op: Operator) -> None:
    """Paddle takes so many images at a time, and of fewer none."""
    op.attrs["im2col_step"] = 1


def adaptive_maxima(op: Operator) -> None:
    """Take adaptive maxima by the op that gives their places, too: the other one ignores `adaptive`."""
    if op.attr("pooling_type") != "max" or not op.attr("adaptive") or op.attr("global_pooling"):
        return
    ksize = list(op.attr("ksize"))
    if set(ksize) == {1}:
        op.attrs |= {"adaptive": False, "global_pooling": True}
        return
    if not op.attr("data_format").startswith("NC"):
        raise Refused(f"it takes adaptive maxima of {op.attr('data_format')}, and Paddle of channels that come second")
    x = input_of(op)
    count = len(ksize)
    how = {"ksize": ksize, "strides": [1] * count, "paddings": [0] * count, "adaptive": True, "global_pooling": False}
    pooled = f"max_pool{count}d_with_index"
    if not op.type.endswith("_grad"):
        mask = temporary(op, x, op.block.var(op.output("Out")[0])._shape, VarType.INT32)
        op.outputs["Mask"] = [mask.name]
        return set_type(op, pooled, **how)
    again, mask = (temporary(op, x, input_of(op, "Out@GRAD")._shape, dtype) for dtype in (None, VarType.INT32))
    put(op, pooled, {"X": x}, {"Out": again, "Mask": mask}, how, after=False)
    op.inputs = {"X": [x.name], "Mask": [mask.name], "Out@GRAD": op.input("Out@GRAD")}
    set_type(op, f"{pooled}_grad", **how)


def pad_images(op: Operator) -> None:
    """Pad images as volumes of one layer in depth."""
    only(op, "X", "Out@GRAD")
    depth = 2 if op.attr("data_format") == "NCHW" else 1
    top, bottom, left, right = op.attr("paddings")
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}[op.attr("mode")]
    _pad_as_volumes(op, [depth], [left, right, top, bottom, 0, 0], mode, op.attr("pad_value"))


def pad_sides(op: Operator) -> None:
    """Pad the last three dimensions: as volumes, with dimensions of 1 before X's."""
    only(op, "X", "Out@GRAD")
    pads = list(op.attr("paddings"))
    missing = 5 - len(pads) // 2
    margins = [0] * (2 * missing) + pads
    if missing < 0 or any(margins[:4]):
        raise Refused(f"it pads by {pads}, and Paddle's pads the last three of at most five dimensions")
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}[op.attr("mode")]
    _pad_as_volumes(op, list(range(missing)), [*margins[8:], *margins[6:8], *margins[4:6]], mode, 0.0)


def _pad_as_volumes(op: Operator, axes: list[int], paddings: list[int], mode: str, value: float) -> None:
    """Make a padding, or its gradient, one of volumes, whose dimensions at `axes` are 1 and go again."""
    for slot in list(op.inputs):
        unsqueeze_input(op, slot, axes)
    is_gradient = op.type.endswith("_grad")
    if not is_gradient:
        out = op.block.var(op.output("Out")[0])
        sizes = list(shape_of(out))
        for axis in axes:
            sizes.insert(axis, 1)
        deep = temporary(op, out, sizes)
        put_view(op, "squeeze2", deep, out, {"axes": axes}, after=True)
        op.outputs["Out"] = [deep.name]
    attrs = {"paddings": paddings, "mode": mode, "value": value, "data_format": "NCDHW" if axes != [1] else "NDHWC"}
    set_type(op, "pad3d_grad" if is_gradient else "pad3d", **attrs)


def _output_size(op: Operator) -> None:
    """Paddle reads the sizes as they are written, and none as 0."""
    if op.input("OutputSize") and op.type.startswith("unpool3d"):
        raise Refused("Paddle's op takes the sizes of its output as numbers only")
    if not op.attr("output_size") and not op.input("OutputSize"):
        source = op.output("Out") or op.input("Out@GRAD")
        sizes = shape_of(op.block.var(source[0]))[2:]
        if -1 in sizes:
            raise Refused("the size of its output is not known")
        op.attrs["output_size"] = list(sizes)


def _batch_norm_grad(op: Operator) -> None:
    """Give the gradient by fixed statistics these in slots that other gradients leave empty."""
    refuse_unread(op)
    if op.attr("is_test") or op.attr("use_global_stats"):
        op.inputs |= {"Mean": op.input("MeanOut"), "Variance": op.input("VarianceOut")}


def _group_norm_grad(op: Operator) -> None:
    """Without a Scale, Paddle leaves out what comes through the mean."""
    if not op.input("Scale"):
        x = input_of(op)
        channels = shape_of(x)[1 if op.attr("data_layout") == "NCHW" else -1]
        if channels < 0:
            raise Refused("it has no Scale, and how many channels there are is not known")
        op.inputs["Scale"] = [constant(op, x, [channels], 1.0).name]


def _element_of_prelu(op: Operator) -> None:
    """In Paddle, Alpha has the same number of dimensions as X."""
    if op.attr("mode") == "element":
        unsqueeze_input(op, "Alpha", range(len(shape_of(input_of(op))) - len(shape_of(input_of(op, "Alpha")))))


def _shuffle_channel_grad(op: Operator) -> None:
    """Shuffle back: the number of groups becomes the number of channels in one group."""
    gradient = input_of(op, "Out@GRAD")
    channels = shape_of(gradient)[1]
    if channels < 0:
        raise Refused("how many channels there are is not known, and Paddle's gradient shuffles once more instead of back")
    op.inputs, op.outputs = {"X": [gradient.name]}, {"Out": op.output("X@GRAD")}
    set_type(op, "shuffle_channel", group=channels // op.attr("group"))


_INTERP = ("linear", "bilinear", "nearest", "bicubic", "trilinear")

ROWS = [
    *[Row(f"{kind}_interp{version}{grad}", _method) for kind in _INTERP for version in ("", "_v2") for grad in BOTH],
    *[Row(f"unfold{grad}", _paddings) for grad in BOTH],
    *[Row(f"fold{grad}", _paddings_of_fold) for grad in BOTH],
    *[Row(f"affine_channel{grad}", _channels_second) for grad in BOTH],
    *[Row(f"deformable_conv{version}_grad", _im2col_step) for version in ("", "_v1")],
    *[Row(f"pool{dim}d{grad}", adaptive_maxima) for dim in (2, 3) for grad in BOTH],
    *[Row(f"pad2d{grad}", pad_images) for grad in BOTH],
    *[Row(f"pad_by{grad}", pad_sides) for grad in BOTH],
    *[Row(f"unpool{dim}{grad}", _output_size) for dim in ("", "3d") for grad in BOTH],
    Row("batch_norm_grad", _batch_norm_grad),
    Row("group_norm_grad", _group_norm_grad),
    *[Row(f"prelu{grad}", _element_of_prelu) for grad in BOTH],
    Row("shuffle_channel_grad", _shuffle_channel_grad),
]
