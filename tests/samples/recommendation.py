"""Samples of `fluid.ops.recommendation`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add, structural

data = Data("recommendation")
structural("test_recommendation.py", "cvm", "fused_seqpool_cvm")  # its gradient is no derivative


def counted(X: Any, use_cvm: bool = True) -> Any:
    shown, clicked = np.log(X[:, :1] + 1), np.log(X[:, 1:2] + 1)
    return np.concatenate([shown, clicked - shown, X[:, 2:]], 1) if use_cvm else X[:, 2:]


LOD = ((0, 1, 4),)
X, CVM = data(4, 5, low=0.1, high=9.0), data(2, 2, high=9.0)
for used in (True, False):
    add("cvm", Sample({"X": X, "CVM": data(4, 2, high=9.0)}, {"use_cvm": used}, counted, orders=0))
    add("cvm", Sample({"X": X, "CVM": CVM}, {"use_cvm": used}, counted, orders=0, lods={"X": LOD}))
add("row_of_each", Sample({"X": CVM, "Like": X}, {}, lambda X: X[[0, 1, 1, 1]], lods={"Like": LOD}))
add("row_of_each", Sample({"X": X, "Like": X}, {}, lambda X: X))


def filtered(Ins: Any, Ins_tag: Any, Filter_tag: Any, is_lod: bool) -> Any:
    """Four instances, of rows as in INSTANCES, with tags as in TAGS."""
    rows, places = [], []
    for instance in range(4):
        start, end = INSTANCES[0][instance : instance + 2] if is_lod else (instance, instance + 1)
        if set(Ins_tag[slice(*TAGS[0][instance : instance + 2])].reshape(-1)) & set(Filter_tag):
            places.append([len(rows), start, end - start])
            rows += list(Ins[start:end])
    weights = np.ones((len(places), 1), "float32")
    if not places:
        rows, places, weights = [np.zeros_like(Ins[0])], [[0, 0, 1]], np.zeros((1, 1), "float32")
    return {"Out": np.array(rows), "LossWeight": weights, "IndexMap": np.array(places)}


INSTANCES, TAGS = ((0, 2, 3, 6, 8),), ((0, 1, 3, 4, 6),)
tags = np.array([[1], [2], [3], [2], [1], [3]])
for is_lod, rows in ((True, data(8, 3)), (False, data(4, 3))):
    lods = {"Ins": INSTANCES, "Ins_tag": TAGS} if is_lod else {"Ins_tag": TAGS}
    for wanted in ([1], [2, 3], [7]):
        inputs = {"Ins": rows, "Ins_tag": tags, "Filter_tag": np.array(wanted)}
        add("filter_by_instag", Sample(inputs, {"is_lod": is_lod}, filtered, lods=lods, shapes_by_value=True))


def rows_before(IndexMap: Any, LossWeight: Any, Like: Any) -> Any:
    rows = []
    for (_, first, count), weight in zip(IndexMap, LossWeight[:, 0], strict=True):
        rows += list(range(first, first + count)) if weight > 0 else [-1] * count
    assert len(rows) == len(Like)
    return np.array(rows)


PLACES = {"IndexMap": np.array([[0, 2, 1], [1, 6, 2]]), "LossWeight": np.ones((2, 1), "float32"), "Like": data(3, 2)}
add("rows_of_tagged", Sample(PLACES, {}, rows_before, dtypes=["float32"]))
none = {"IndexMap": np.array([[0, 0, 1]]), "LossWeight": np.zeros((1, 1), "float32"), "Like": data(1, 2)}
add("rows_of_tagged", Sample(none, {}, rows_before, dtypes=["float32"]))


def children(X: Any, TreeInfo: Any, child_nums: int, dtype: int = 2) -> Any:
    found = np.zeros((*X.shape, child_nums), {2: "int32", 3: "int64"}[dtype])
    leaves = found.copy()
    for place in np.ndindex(X.shape):
        node = TreeInfo[X[place]]
        if X[place] and node[3]:
            found[place] = node[3:]
            leaves[place] = [TreeInfo[child][0] != 0 for child in node[3:]]
    return {"Child": found, "LeafMask": leaves}


TREE = np.array([[0, 0, 0, 0, 0], [0, 1, 0, 3, 4], [0, 1, 0, 5, 0], [1, 2, 1, 0, 0], [2, 2, 1, 0, 0], [3, 2, 2, 0, 0]])
add("tdm_child", Sample({"X": np.array([[1], [2], [3], [0]]), "TreeInfo": TREE}, {"child_nums": 2, "dtype": 3}, children))
WAYS = np.array([[0, 0, 0], [1, 3, 7], [1, 4, 8], [2, 5, 9], [2, 6, 0]])
SAMPLED = {"X": np.array([[1], [2], [4], [3]]), "Travel": WAYS, "Layer": np.arange(1, 11)[:, None]}
LAYERS = [0, 2, 6, 10]


def check_sampled(counts: list[int], is_positive: bool) -> Any:
    def check(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        out, labels, mask = (outputs[name] for name in ("Out", "Labels", "Mask"))
        for way, nodes, label, seen in zip(WAYS[inputs["X"][:, 0]], out, labels, mask, strict=True):
            first = 0
            for layer, count in enumerate(counts):
                end = first + count + is_positive
                own = set(nodes[first:end])
                others = set(inputs["Layer"][LAYERS[layer] : LAYERS[layer + 1], 0]) - {way[layer]}
                if way[layer]:
                    assert seen[first:end].all() and len(own) == end - first
                    assert list(label[first:end]) == [1] * is_positive + [0] * count
                    assert not is_positive or nodes[first] == way[layer]
                    assert own - {way[layer]} <= others and (way[layer] in own) is is_positive
                else:
                    assert not seen[first:end].any() and not label[first:end].any() and own <= {0}
                first = end
            assert first == len(nodes)

    return check


for counts, is_positive in (([1, 2, 3], True), ([1, 0, 2], False)):
    attrs = {"neg_samples_num_list": counts, "layer_offset_lod": LAYERS, "output_positive": is_positive, "dtype": 3}
    add("tdm_sampler", Sample(SAMPLED, attrs, check=check_sampled(counts, is_positive), random=True))
add("tdm_child", Sample({"X": np.array([[1, 2]], "int32"), "TreeInfo": TREE.astype("int32")}, {"child_nums": 2}, children))


PAIRS = {"X": ((0, 2, 5),), "Y": ((0, 3, 4),)}


def matched(X: Any, Y: Any, W: Any, dim_t: int = 1) -> Any:
    """Two sequences of X and of Y, as in PAIRS."""
    spans = zip(((0, 2), (2, 5)), ((0, 3), (3, 4)), strict=True)
    parts = [np.einsum("ih,htk,jk->tij", X[slice(*one)], W, Y[slice(*other)]).reshape(-1, 1) for one, other in spans]
    return {"Out": np.concatenate(parts), "Tmp": np.einsum("ih,htk->itk", X, W).reshape(-1, 1)}


def paired(X: Any, Y: Any, times: int = 1) -> Any:
    grids = [
        [(t, i, j) for t in range(times) for i in range(*one) for j in range(*other)]
        for one, other in (((0, 2), (0, 3)), ((2, 5), (3, 4)))
    ]
    rows = [place for grid in grids for place in grid]
    return {"First": np.array([i * times + t for t, i, _ in rows]), "Second": np.array([j for _, _, j in rows])}


for times in (1, 2):
    inputs = {"X": data(5, 3), "Y": data(4, 2), "W": data(3, times, 2)}
    add("match_matrix_tensor", Sample(inputs, {"dim_t": times}, matched, lods=PAIRS))
    add("sequence_pairs", Sample({"X": data(5, 3), "Y": data(4, 2)}, {"times": times}, paired, lods=PAIRS, dtypes=["float32"]))


# -------------------------------------------------------------------------------------------- images of different sizes
SIDES = ((3, 4), (2, 3))
"""Heights and widths of two images."""


def patches(X: Any, at: Any, steps: Any, kernel: Any, channels: int) -> Any:
    """The rows of X of one image, which begins at a row, by element of a patch and by patch; None in the padding."""
    start, (rows, columns) = at
    found = []
    for c, y, x in np.ndindex(channels, *kernel):
        for i in range(0, rows, steps[0]):
            for j in range(0, columns, steps[1]):
                row, column = i + y - kernel[0] // 2, j + x - kernel[1] // 2
                is_inside = 0 <= row < rows and 0 <= column < columns
                found.append(start + (c * rows + row) * columns + column if is_inside else -1)
    return np.array(found).reshape(channels * kernel[0] * kernel[1], -1)


def convolved(X: Any, W: Any, InputChannel: int = 1, OutputChannel: int = 1, KernelH: int = 1, KernelW: int = 1, StrideH: int = 1,
              StrideW: int = 1, indices: bool = False) -> Any:  # fmt: skip
    start, done, outs, cols, orders = 0, 0, [], [], []
    for rows, columns in SIDES:
        own = patches(X, (start, (rows, columns)), (StrideH, StrideW), (KernelH, KernelW), InputChannel)
        cols.append(own)
        orders.append([(done + place) * OutputChannel + each for each in range(OutputChannel) for place in range(own.shape[1])])
        start, done = start + InputChannel * rows * columns, done + own.shape[1]
    if indices:
        return {"Patches": np.concatenate([own.T for own in cols]), "Elements": np.concatenate([own.reshape(-1) for own in cols]),
                "Order": np.concatenate(orders)}  # fmt: skip
    values = [np.where(own >= 0, X[np.maximum(own, 0), 0], 0) for own in cols]
    outs = [(W @ own).reshape(-1, 1) for own in values]
    return {"Out": np.concatenate(outs), "Col": np.concatenate([own.reshape(-1, 1) for own in values])}


def places_of_patches(X: Any, ROW: Any, COLUMN: Any, **attrs: Any) -> Any:
    return convolved(X, None, **attrs, indices=True)


for channels, given in (
    (1, {}),
    (2, {"InputChannel": 2, "OutputChannel": 3, "KernelH": 3, "KernelW": 2, "StrideH": 2}),
    (1, {"OutputChannel": 2, "KernelH": 2, "KernelW": 3, "StrideW": 2}),
):
    ends = np.cumsum([0, *(channels * high * wide for high, wide in SIDES)]).tolist()
    lods = {"X": (tuple(ends),), "ROW": ((0, 3, 5),), "COLUMN": ((0, 4, 7),)}
    images = {"X": data(ends[-1], 1), "ROW": np.zeros((5, 1)), "COLUMN": np.zeros((7, 1))}
    weights = data(given.get("OutputChannel", 1), channels * given.get("KernelH", 1) * given.get("KernelW", 1))
    add("var_conv_2d", Sample({**images, "W": weights}, given, convolved, lods=lods))
    add("patches_of_sequences", Sample(images, given, places_of_patches, lods=lods, dtypes=["float32"]))


# ----------------------------------------------------------------------------------------------------------------- ranks
def ranked(X: Any, RankOffset: Any, RankParam: Any, MaxRank: int = 3) -> Any:
    width, matrices = X.shape[1], RankParam.reshape(MaxRank, MaxRank, X.shape[1], -1)
    out, others = np.zeros((len(X), RankParam.shape[1]), X.dtype), np.zeros((len(X), MaxRank, width), X.dtype)
    for n, (own, *pairs) in enumerate(RankOffset):
        for k, (rank, row) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
            if own > 0 and rank > 0:
                others[n, k] = X[row]
                out[n] += X[row] @ matrices[own - 1, rank - 1]
    return {"InputHelp": others.reshape(len(X), -1), "Out": out, "InsRank": RankOffset[:, :1].astype(X.dtype)}


SHOWN = np.array([[1, 1, 0, 2, 1, 3, 2], [2, 1, 0, 2, 1, 0, 0], [3, 1, 0, -1, 0, 3, 2], [0, 1, 3, 0, 0, 0, 0]], "int32")
add("rank_attention", Sample({"X": data(4, 2), "RankOffset": SHOWN, "RankParam": data(18, 3)}, {}, ranked))
PAIR = np.array([[2, 1, 1, 2, 0], [1, 1, 1, 0, 0]])
add("rank_attention", Sample({"X": data(2, 3), "RankOffset": PAIR, "RankParam": data(12, 2)}, {"MaxRank": 2}, ranked))
