"""Ops of recommender systems: counts of how often something was shown and clicked, instances that are chosen by tags, trees of
items, how the rows of two sequences match, convolutions of images of different sizes, and attention by ranks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import composed, means
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, ShapeOnly, at_most, define, ints, least, long, required
from ..values.lod_array import lengths_of
from ..values.spec import Spec
from ..values.types import VarType, as_dtype
from .sequence import offsets_of
from .shapes import fits


# --------------------------------------------------------------------------------------------------------------- counts
def _instances(spec: Spec, name: str) -> int:
    """How many sequences there are, or rows, if they form none; -1 if it is not known yet."""
    offsets = offsets_of(spec, name) if spec.lod else range(spec.shape[0] + 1) if spec.shape[0] >= 0 else None
    return -1 if offsets is None else len(offsets) - 1


def _cvm(X: Spec, CVM: Spec, use_cvm: bool) -> Spec:
    width = X.shape[1]
    if 0 <= width < 2:
        raise InferenceError(f"X {X} should begin with two columns, of how often something was shown and clicked")
    return X.with_shape((X.shape[0], width if use_cvm or width < 0 else width - 2))


def _shown_and_clicked(f: Any, X: Any, use_cvm: bool) -> Any:
    features = f.slice(X, axes=[1], starts=[2], ends=[2**31 - 1])
    if not use_cvm:
        return features
    shown, clicked = (f.log1p(f.slice(X, axes=[1], starts=[column], ends=[column + 1])) for column in (0, 1))
    return f.concat([shown, clicked - shown, features], axis=1)


@define(
    "cvm(X: float[N, D], CVM: float[M, 2]) -> Y",
    infer=_cvm,
    wrt=("X",),
    constants=("CVM",),
    meaning=means(_shown_and_clicked),
    use_cvm=True,
)
def cvm(f: Any, X: ShapeOnly, CVM: Any, dY: Any, use_cvm: bool) -> Any:
    """X [N, D] with logarithms of its first two columns, shown and clicked: ``log(s + 1)`` and ``log(c + 1) - log(s + 1)``.

    Without `use_cvm`, X without these columns. The gradient covers the other columns; the two columns get CVM, the counts
    of each row (of each sequence of X, if its rows form some), which is how a table of embeddings learns them.
    """
    features = f.slice(dY, axes=[1], starts=[2], ends=[2**31 - 1]) if use_cvm else dY
    return {"X": f.concat([f.row_of_each(CVM, X), features], axis=1)}


def _row_of_each(X: Spec, Like: Spec) -> Spec:
    if not fits(X.shape[0], _instances(Like, "Like")):
        raise InferenceError(f"X {X} should have a row for each sequence, or row, of Like {Like}")
    return Spec((Like.shape[0], *X.shape[1:]), X.dtype, lod=Like.lod)


@define("row_of_each(X, Like) -> Out", infer=_row_of_each, grad=ZERO_GRADIENT, shape_only=("Like",), lod_aware=True)
def row_of_each() -> None:
    """For each row of Like the row of X that its sequence has; X itself if the rows of Like form no sequences.

    It stands in gradients that treat X as a constant.
    """


# ----------------------------------------------------------------------------------------------------------------- tags
def _filtered(Ins: Spec, Ins_tag: Spec, is_lod: bool) -> tuple[Spec, Spec, Spec]:
    if not fits(Ins_tag.size, Ins_tag.shape[0]):
        raise InferenceError(f"Ins_tag {Ins_tag} should have one tag in each row")
    instances = _instances(Ins, "Ins") if is_lod else Ins.shape[0]
    if not fits(instances, _instances(Ins_tag, "Ins_tag")):
        raise InferenceError(f"Ins_tag {Ins_tag} should have a sequence of tags for each of {instances} instances in Ins {Ins}")
    unknown = (None,)
    return (
        Spec((-1, *Ins.shape[1:]), Ins.dtype, lod=unknown),
        Spec((-1, 1), VarType.FP32, lod=unknown),
        Spec((-1, 3), VarType.INT64, lod=unknown),
    )


@define(
    "filter_by_instag(Ins: [N, ...], Ins_tag: int[T, ...], Filter_tag: int) -> Out, LossWeight, IndexMap",
    infer=_filtered,
    wrt=("Ins",),
    lod_aware=True,
    is_lod=required("bool"),
    out_val_if_empty=long(0),
)
def filter_by_instag(f: Any, Ins: ShapeOnly, LossWeight: Any, IndexMap: Any, dOut: Any) -> Any:
    """The instances in Ins that have one of the tags Filter_tag: sequences of its rows, or single rows without `is_lod`.

    Ins_tag has a sequence of tags for each instance. LossWeight [.., 1] is 1 for each instance that is left, and IndexMap [.., 3]
    says where it begins in Out and in Ins, and how many rows it has. If none is left, Out is a row of `out_val_if_empty` with
    LossWeight 0.
    """
    return {"Ins": f.add_rows(dOut, f.rows_of_tagged(IndexMap, LossWeight, dOut), Ins)}


def _rows_of_tagged(Like: Spec) -> Spec:
    return Spec((Like.shape[0],), VarType.INT64, lod=Like.lod)


@define(
    "rows_of_tagged(IndexMap: int[N, 3], LossWeight: [N, 1], Like) -> Out",
    infer=_rows_of_tagged,
    grad=NOT_DIFFERENTIABLE,
    shape_only=("Like",),
    lod_aware=True,
)
def rows_of_tagged() -> None:
    """For each row of Like, which `filter_by_instag` has made, the row that it was before; -1 for none.

    IndexMap splits the rows of Like, in order and without gaps.
    """


# ---------------------------------------------------------------------------------------------------------------- trees
def _child(X: Spec, TreeInfo: Spec, child_nums: int, dtype: int) -> tuple[Spec, Spec]:
    if as_dtype(dtype) not in (VarType.INT32, VarType.INT64):
        raise InferenceError(f"dtype {dtype} should be that of int32 or int64, for numbers of nodes")
    if not fits(TreeInfo.shape[1], 3 + child_nums):
        raise InferenceError(
            f"TreeInfo {TreeInfo} should have {3 + child_nums} columns: item, layer, parent, and child_nums children"
        )
    out = Spec((*X.shape, child_nums), as_dtype(dtype))
    return out, out


@define(
    "tdm_child(X: int, TreeInfo: int[N, D]) -> Child, LeafMask",
    infer=_child,
    grad=ZERO_GRADIENT,
    child_nums=least(1, at_most(1 << 16, required("int"))),
    dtype=int(VarType.INT32),
)
def tdm_child() -> None:
    """The children [..., `child_nums`] of the nodes X of a tree, and 1 where a child is a leaf, which stands for an item.

    Row n of TreeInfo has the item of node n (0 for none), its layer, its parent and its children. Node 0, and nodes whose first
    child is 0, have none: zeros.
    """


def _drawn_nodes(
    X: Spec, Travel: Spec, neg_samples_num_list: list[int], layer_offset_lod: list[int], output_positive: bool, dtype: int
) -> tuple[Spec, Spec, Spec]:
    layers, offsets = len(neg_samples_num_list), layer_offset_lod
    if as_dtype(dtype) not in (VarType.INT32, VarType.INT64):
        raise InferenceError(f"dtype {dtype} should be that of int32 or int64, for numbers of nodes")
    if not fits(X.size, X.shape[0]):
        raise InferenceError(f"X {X} should have one item in each row")
    if not layers or len(offsets) != layers + 1 or offsets[0] < 0 or sorted(offsets) != offsets:
        raise InferenceError(
            f"layer_offset_lod {offsets} should say where each of {layers} layers begins, and where the last ends"
        )
    if not fits(Travel.shape[1], layers):
        raise InferenceError(f"Travel {Travel} should have a column for each of {layers} layers in neg_samples_num_list")
    for layer, (count, (start, end)) in enumerate(zip(neg_samples_num_list, pairwise(offsets), strict=True)):
        if not 0 <= count < max(end - start, 1):
            raise InferenceError(
                f"neg_samples_num_list should be at least 0, and less than the {end - start} nodes of layer {layer}, not {count}"
            )
    out = Spec((X.shape[0], sum(neg_samples_num_list) + layers * output_positive), as_dtype(dtype))
    return out, out, out


@define(
    "tdm_sampler(X: int[N, ...], Travel: int[L, D], Layer: int[M, 1]) -> Out, Labels, Mask",
    infer=_drawn_nodes,
    grad=ZERO_GRADIENT,
    neg_samples_num_list=ints(),
    layer_offset_lod=ints(),
    output_positive=True,
    seed=0,
    dtype=int(VarType.INT32),
)
def tdm_sampler() -> None:
    """Sample nodes of a tree to tell apart for each item in X [N, 1]: in each layer the node on the way to the item, and
    `neg_samples_num_list` other nodes of the layer, drawn without repetition.

    Row n of Travel has the nodes on the way to item n, 0 from where its way has ended. Layer [M, 1] has the nodes layer by layer,
    which begin at `layer_offset_lod`. In Labels a node on the way is 1, another one 0. Without `output_positive`, there are the
    others alone. Mask is 0, and so are nodes and labels, of layers that a way does not reach.
    """


# ------------------------------------------------------------------------------------------------- pairs of two sequences
def _pairs_lod(X: Spec, Y: Spec, times: int) -> Any:
    of_x, of_y = offsets_of(X, "X"), offsets_of(Y, "Y")
    if of_x is None or of_y is None:
        return (None,)
    if len(of_x) != len(of_y):
        raise InferenceError(f"X has {len(of_x) - 1} sequences and Y {len(of_y) - 1}, which should be as many")
    spans = zip(pairwise(of_x), pairwise(of_y), strict=True)
    counts = (times * (end - start) * (stop - begin) for (start, end), (begin, stop) in spans)
    return (tuple(accumulate(counts, initial=0)),)


def _pairs(X: Spec, Y: Spec, times: int) -> tuple[Spec, Spec]:
    lod = _pairs_lod(X, Y, times)
    index = Spec((-1 if lod[0] is None else lod[0][-1],), VarType.INT64, lod=lod)
    return index, index


@define(
    "sequence_pairs(X, Y) -> First, Second",
    infer=_pairs,
    grad=ZERO_GRADIENT,
    shape_only=("X", "Y"),
    lod_aware=True,
    times=least(1, 1),
)
def sequence_pairs() -> None:
    """Pair each row of a sequence of X with each row of the same sequence of Y, `times` over. A pair has the row of X times
    `times` plus the number of the repetition, and the row of Y. All pairs of one repetition come before the next."""


def _matched(X: Spec, Y: Spec, W: Spec, dim_t: int) -> tuple[Spec, Spec]:
    lod = _pairs_lod(X, Y, dim_t)
    if not fits(W.shape[1], dim_t):
        raise InferenceError(f"W {W} should have dim_t {dim_t} matrices, [width of X, dim_t, width of Y]")
    rows = -1 if X.shape[0] < 0 or W.shape[2] < 0 else X.shape[0] * dim_t * W.shape[2]
    return Spec((-1 if lod[0] is None else lod[0][-1], 1), X.dtype, lod=lod), Spec((rows, 1), X.dtype)


@define(
    "match_matrix_tensor(X: float[N, A], Y: float[M, B], W: float[A, T, B]) -> Out, Tmp",
    infer=_matched,
    wrt=("X", "Y", "W"),
    lod_aware=True,
    dim_t=least(1, 1),
)
def match_matrix_tensor(f: Any, X: Any, Y: Any, W: Any, Tmp: ShapeOnly, dOut: Any, dim_t: int) -> Any:
    """How well the rows of two sequences match: ``x @ W[:, t] @ y`` for each of `dim_t` matrices, each row x of a sequence of X
    and each row y of the same sequence of Y, as one column; Tmp holds the products ``X @ W``."""
    first, second = f.sequence_pairs(X, Y, times=dim_t)
    weights = f.reshape2(W, shape=[-1, dim_t * W.shape[2]])
    half = f.reshape2(f.matmul_v2(X, weights), shape=[-1, W.shape[2]])
    by_half = f.add_rows(f.elementwise_mul(f.take_rows(Y, second), dOut), first, half)
    products = f.reshape2(by_half, shape=[-1, dim_t * W.shape[2]])
    return {
        "X": lambda: f.matmul_v2(products, weights, trans_y=True),
        "Y": lambda: f.add_rows(f.elementwise_mul(f.take_rows(half, first), dOut), second, Y),
        "W": lambda: f.reshape_like(f.matmul_v2(X, products, trans_x=True), W),
    }


# -------------------------------------------------------------------------------------------- images of different sizes
_WINDOWS: dict[str, Any] = {
    "InputChannel": least(1, 1),
    "OutputChannel": least(1, 1),
    "KernelH": least(1, 1),
    "KernelW": least(1, 1),
    "StrideH": least(1, 1),
    "StrideW": least(1, 1),
}


def _sides(ROW: Spec, COLUMN: Spec) -> list[tuple[int, int]] | None:
    """The height and width of each image; None if they are not known yet."""
    rows, columns = offsets_of(ROW, "ROW"), offsets_of(COLUMN, "COLUMN")
    if rows is None or columns is None:
        return None
    if len(rows) != len(columns):
        raise InferenceError(f"ROW has {len(rows) - 1} sequences and COLUMN {len(columns) - 1}, which should be as many")
    return list(zip(lengths_of(rows), lengths_of(columns), strict=True))


def _patches(X: Spec, ROW: Spec, COLUMN: Spec, attrs: Mapping[str, Any]) -> tuple[Spec, Spec, Spec]:
    channels, filters, window = attrs["InputChannel"], attrs["OutputChannel"], attrs["KernelH"] * attrs["KernelW"]
    sides, images = _sides(ROW, COLUMN), offsets_of(X, "X")
    lods: list[Any]
    counts, lods = -1, [(None,), (None,)]
    if sides is not None:
        sizes = [channels * high * wide for high, wide in sides]
        if images is not None and list(lengths_of(images)) != sizes:
            raise InferenceError(
                f"X has sequences of {list(lengths_of(images))} rows, which should be InputChannel {channels} times the lengths "
                f"of those of ROW and COLUMN: {sizes}"
            )
        places = [-(-high // attrs["StrideH"]) * -(-wide // attrs["StrideW"]) for high, wide in sides]
        counts = sum(places)
        lods = [(tuple(accumulate((size * count for count in places), initial=0)),) for size in (channels * window, filters)]
    rows = [-1 if lod[0] is None else lod[0][-1] for lod in lods]
    return (
        Spec((counts, channels * window), VarType.INT64),
        Spec((rows[0],), VarType.INT64, lod=lods[0]),
        Spec((rows[1],), VarType.INT64, lod=lods[1]),
    )


@define(
    "patches_of_sequences(X, ROW, COLUMN) -> Patches, Elements, Order",
    infer=_patches,
    grad=ZERO_GRADIENT,
    shape_only=("X", "ROW", "COLUMN"),
    lod_aware=True,
    **_WINDOWS,
)
def patches_of_sequences() -> None:
    """Patches of images in the form of `var_conv_2d`: the rows of X that each patch reads, -1 in the padding; the same, with all
    patches of an image for each element of a patch; and the products of patches and filters, counted patch by patch, in its
    rows."""


@composed(
    "var_conv_2d(X: float[N, 1], ROW: [R, ...], COLUMN: [C, ...], W: float[O, K]) -> Out, Col",
    wrt=("X", "W"),
    listed=("Out", "Col"),
    lod_aware=True,
    **_WINDOWS,
)
def var_conv_2d(f: Any, X: Any, ROW: ShapeOnly, COLUMN: ShapeOnly, W: Any, attrs: Any) -> Any:
    """A convolution of images of different sizes, each image a sequence of X [.., 1] of `InputChannel` * height * width rows.
    The sequences of ROW and COLUMN have the images' heights and widths as lengths; their elements are not read.

    W is [`OutputChannel`, `InputChannel` * `KernelH` * `KernelW`]. A patch lies around each `StrideH`-th row and each
    `StrideW`-th column, with zeros beyond the image: from ``KernelH // 2`` rows above and ``KernelW // 2`` columns to the left.
    Out [.., 1] has images of `OutputChannel` channels, and Col [.., 1] for each element of a patch what all patches of the image
    have there.
    """
    width = attrs["InputChannel"] * attrs["KernelH"] * attrs["KernelW"]
    if not (fits(W.shape[0], attrs["OutputChannel"]) and fits(W.shape[1], width)):
        raise InferenceError(
            f"W {list(W.shape)} should be [OutputChannel, InputChannel * KernelH * KernelW], [{attrs['OutputChannel']}, {width}]"
        )
    patches, elements, order = f.patches_of_sequences(X, ROW, COLUMN, **attrs)
    rows = f.reshape2(f.take_rows(X, patches), shape=[-1, width])
    products = f.reshape2(f.matmul_v2(rows, W, trans_y=True), shape=[-1, 1])
    return {"Out": f.take_rows(products, order), "Col": f.take_rows(X, elements)}


# ----------------------------------------------------------------------------------------------------------------- ranks
@composed(
    "rank_attention(X: float[N, D], RankOffset: int[N, K], RankParam: float[P, C]) -> InputHelp?, Out, InsRank?",
    wrt=("RankParam",),
    constants=("X",),
    listed=("InputHelp", "InsRank"),
    MaxRank=least(1, at_most(256, 3)),
    MaxSize=0,
)
def rank_attention(f: Any, X: Any, RankOffset: Any, RankParam: Any, MaxRank: int) -> Any:
    """For each instance, sum the features of the instances shown along with it, multiplied by the matrix of both ranks.

    A row of RankOffset is the rank of an instance, from 1 to `MaxRank`, then for each of `MaxRank` others its rank and its row in
    X; a rank below 1 stands for none. RankParam [`MaxRank` * `MaxRank` * D, C] has the matrices [D, C], first by the rank of the
    instance, then by the other's rank. InputHelp [N, `MaxRank` * D] is the features of the others, InsRank [N, 1] the rank
    of the instance. As in Paddle, RankParam has a gradient, and X has none.
    """
    if not fits(RankOffset.shape[1], 1 + 2 * MaxRank):
        raise InferenceError(f"RankOffset {RankOffset} should have 1 + 2 * MaxRank = {1 + 2 * MaxRank} columns")
    own_rank = f.slice(RankOffset, axes=[1], starts=[0], ends=[1])
    none = f.fill_any_like(own_rank, value=-1.0)
    matrices = f.stack(f.split(RankParam, num=MaxRank * MaxRank, axis=0), axis=0)
    features, sums = [], []
    for place in range(MaxRank):
        rank, row = (f.slice(RankOffset, axes=[1], starts=[at], ends=[at + 1]) for at in (2 * place + 1, 2 * place + 2))
        is_shown = f.logical_and(own_rank > 0, rank > 0)
        index, matrix_index = (f.where(is_shown, number, none) for number in (row, (own_rank - 1) * MaxRank + (rank - 1)))
        shown = f.take_rows(X, index)  # [N, 1, D]
        features.append(f.squeeze2(shown, axes=[1]))
        sums.append(f.matmul_v2(shown, f.squeeze2(f.take_rows(matrices, matrix_index), axes=[1])))
    return {
        "Out": f.squeeze2(f.sum(sums), axes=[1]),
        "InputHelp": f.concat(features, axis=1),
        "InsRank": own_rank.astype(X.dtype),
    }
