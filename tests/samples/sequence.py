"""Samples of `fluid.ops.sequence`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("sequence")

LOD = ((0, 2, 2, 5, 6),)  # an empty sequence inside
FULL = ((0, 3, 4, 6),)
TWO = ((0, 2, 3), (0, 1, 3, 6))


def parts(X: Any, lod: Any) -> list[Any]:
    """The sequences of the last level."""
    return [X[start:end] for start, end in zip(lod[-1], lod[-1][1:], strict=False)]


def joined(found: Sequence[Any], like: Any) -> Any:
    return np.concatenate([*found, like[:0]])


# ------------------------------------------------------------------------------------------------------- moving rows
def taken(X: Any, Index: Any) -> Any:
    return np.stack([X[i] if i >= 0 else np.zeros_like(X[0]) for i in Index.reshape(-1)]).reshape(*Index.shape, *X.shape[1:])


def added(X: Any, Index: Any, Like: Any) -> Any:
    found = np.zeros(Like.shape, X.dtype)
    for row, i in zip(X.reshape(-1, *Like.shape[1:]), Index.reshape(-1), strict=True):
        if i >= 0:
            found[i] += row
    return found


def largest(X: Any, Index: Any, Like: Any) -> Any:
    rows = X.reshape(-1, *Like.shape[1:])
    groups = [rows[Index.reshape(-1) == i] for i in range(len(Like))]
    return np.stack([group.max(0) if len(group) else np.zeros_like(rows[0]) for group in groups])


index = np.array([[2, -1, 0], [2, 3, -1]])
add("take_rows", *(Sample({"X": data(*shape), "Index": index}, {}, taken) for shape in ((4, 2), (4,), (4, 2, 3))))
add(
    "add_rows",
    *(
        Sample({"X": data(2, 3, *inner), "Index": index, "Like": data(4, *inner)}, {}, added, wrt=["X"])
        for inner in ((2,), (), (2, 2))
    ),
)
add(
    "max_rows",
    *(
        Sample({"X": data.distinct(2, 3, *inner), "Index": index, "Like": data(4, *inner)}, {}, largest)
        for inner in ((2,), (), (2, 2))
    ),
)


def taken_at_most(X: Any, Index: Any) -> Any:
    return np.where(Index < 0, 0, np.take_along_axis(X, np.maximum(Index, 0), 0)).astype(X.dtype)


def placed_at_most(X: Any, Index: Any, Like: Any) -> Any:
    found = np.zeros(Like.shape, X.dtype)
    for s, j in np.ndindex(*X.shape):
        if Index[s, j] >= 0:
            found[Index[s, j], j] = X[s, j]
    return found


highest = np.array([[1, 0], [-1, -1], [2, 4]])
add("take_at_most", Sample({"X": data(5, 2), "Index": highest}, {}, taken_at_most))
add("place_at_most", Sample({"X": data(3, 2), "Index": highest, "Like": data(5, 2)}, {}, placed_at_most, wrt=["X"]))


# ----------------------------------------------------------------------------------------------------------- indices
def of_sequences(
    op_type: str, attrs: dict[str, Any], function: Callable[..., Any], lods: Sequence[Any] = (LOD, FULL, TWO)
) -> None:
    """Samples of an op ``X -> Out``; `function` is given X and its LoD."""
    slot = "Y" if op_type == "sequence_reverse" else "Out"
    for lod in lods:
        X = data.distinct(6, 2)
        add(op_type, Sample({"X": X}, attrs, lambda X, lod=lod, **_: {slot: function(X, lod)}, lods={"X": lod}))


def rows_of(lod: Any) -> list[list[int]]:
    return [list(range(start, end)) for start, end in zip(lod[-1], lod[-1][1:], strict=False)]


of_sequences("sequence_ids", {}, lambda X, lod: np.array([s for s, rows in enumerate(rows_of(lod)) for _ in rows]))
of_sequences("sequence_lengths", {}, lambda X, lod: np.array([len(rows) for rows in rows_of(lod)]))
of_sequences("sequence_ends", {}, lambda X, lod: np.array([rows[-1] if rows else -1 for rows in rows_of(lod)]))
of_sequences("sequence_ends", {"first": True}, lambda X, lod: np.array([rows[0] if rows else -1 for rows in rows_of(lod)]))
of_sequences("sequence_reversed", {}, lambda X, lod: np.array([row for rows in rows_of(lod) for row in rows[::-1]]))


def context(lod: Any, start: int, length: int) -> Any:
    return np.array(
        [[t + start + i if t + start + i in rows else -1 for i in range(length)] for rows in rows_of(lod) for t in rows]
    )


def margins(lod: Any, start: int, length: int) -> Any:
    """With the rows around each sequence numbered, those before it first."""
    before = max(0, -start)
    return np.array(
        [
            [
                at - rows[0] + before if at < rows[0] else at - rows[-1] - 1 + before if at > rows[-1] else -1
                for at in range(t, t + length)
            ]
            for rows in rows_of(lod)
            for t in (row + start for row in rows)
        ]
    )


WINDOWS = ((-1, 3), (0, 2), (1, 2), (-3, 2))
for window in WINDOWS:
    attrs = {"start": window[0], "length": window[1]}
    of_sequences("sequence_context", attrs, lambda X, lod, window=window: context(lod, *window))
    of_sequences("sequence_margins", attrs, lambda X, lod, window=window: margins(lod, *window))
BATCH = ((0, 4, 8),)
add("sequence_context", Sample({"X": data(2, 4, 3)}, {"start": -1, "length": 3}, lambda X: context(BATCH, -1, 3)))
add("sequence_margins", Sample({"X": data(2, 4, 3)}, {"start": -1, "length": 3}, lambda X: margins(BATCH, -1, 3)))


def positions(lod: Any, width: int) -> Any:
    return np.array([rows + [-1] * (width - len(rows)) for rows in rows_of(lod)])


of_sequences("sequence_positions", {}, lambda X, lod: positions(lod, max(map(len, rows_of(lod)))))
of_sequences("sequence_positions", {"padded_length": 4}, lambda X, lod: positions(lod, 4))
add(
    "sequence_positions",
    Sample({"X": data(6, 2), "Like": data(3, 5, 2)}, {}, lambda X: positions(FULL, 5), lods={"X": FULL}),
)
EXPANSIONS: Sequence[tuple[Any, Any, int, list[int]]] = (
    ((), ((0, 2, 2, 4),), 0, [0, 0, 2, 2]),
    ((), TWO, -1, [0, 1, 1, 2, 2, 2]),
    ((), TWO, 0, [0, 0, 1]),
    (((0, 2, 3),), ((0, 2, 5),), -1, [0, 1, 0, 1, 2, 2, 2]),
)
for x_lod, y_lod, level, order in EXPANSIONS:
    rows = x_lod[0][-1] if x_lod else len(y_lod[level]) - 1
    given = {"X": data(rows, 2), "Y": data(y_lod[-1][-1], 1)}
    lods = {"X": x_lod, "Y": y_lod} if x_lod else {"Y": y_lod}
    add("sequence_expanded", Sample(given, {"ref_level": level}, lambda order=order: np.array(order), lods=lods))
    add("sequence_expand", Sample(given, {"ref_level": level}, lambda X, order=order: X[order], wrt=["X"], lods=lods))
for lod in (LOD, FULL):
    add(
        "sequence_expand_as",
        Sample(
            {"X": data(len(lod[0]) - 1, 2), "Y": data(6, 1)},
            {},
            lambda X, lod=lod: joined([X[s : s + 1].repeat(len(rows), 0) for s, rows in enumerate(rows_of(lod))], X),
            wrt=["X"],
            lods={"Y": lod},
        ),
    )
OTHER = ((0, 1, 1, 5),)


def concatenated(X: Any) -> Any:
    return joined([part for pair in zip(parts(X[0], FULL), parts(X[1], OTHER), strict=True) for part in pair], X[0])


pair = [data(6, 2), data(5, 2)]
add("sequence_concat", Sample({"X": pair}, {}, concatenated, lods={"X": [FULL, OTHER]}))
for which, expected in enumerate(([0, 1, 2, 4, 5, 6], [3, 7, 8, 9, 10])):
    add(
        "sequence_concatenated",
        Sample({"X": pair}, {"which": which}, lambda expected=expected: np.array(expected), lods={"X": [FULL, OTHER]}),
    )
cut = {"Offset": np.array([[1], [0], [1]]), "Length": np.array([[2], [1], [0]])}
add(
    "sequence_slice",
    Sample({"X": data(6, 2), **cut}, {}, lambda X: X[[1, 2, 3]], wrt=["X"], shapes_by_value=True, lods={"X": FULL}),
)
add(
    "sequence_sliced",
    Sample(
        {"X": data(6, 2), **cut, "Like": data(3, 2)}, {}, lambda: np.array([1, 2, 3]), lods={"X": FULL, "Like": ((0, 2, 3, 3),)}
    ),
)
add(
    "sequence_scattered",
    Sample(
        {"Ids": data.ints(6, 1)},
        {},
        lambda Ids: np.stack([[s for s, rows in enumerate(rows_of(FULL)) for _ in rows], Ids[:, 0]], 1),
        lods={"Ids": FULL},
    ),
)

# ----------------------------------------------------------------------------------------------------------- pooling
POOLS: dict[str, Callable[[Any], Any]] = {
    "SUM": lambda part: part.sum(0),
    "AVERAGE": lambda part: part.mean(0),
    "SQRT": lambda part: part.sum(0) / np.sqrt(len(part)),
    "MAX": lambda part: part.max(0),
    "LAST": lambda part: part[-1],
    "FIRST": lambda part: part[0],
}
for pooltype, pool in POOLS.items():
    of_sequences(
        "sequence_pool",
        {"pooltype": pooltype, "pad_value": 0.5},
        lambda X, lod, pool=pool: np.stack(
            [pool(part) if len(part) else np.full(X.shape[1:], 0.5) for part in parts(X, lod)]
        ).astype(X.dtype),
    )


def softmax(X: Any, lod: Any) -> Any:
    return joined([np.exp(part) / np.exp(part).sum(0) for part in parts(X, lod)], X)


for lod in (LOD, FULL):
    add("sequence_softmax", Sample({"X": data(6, 1)}, {}, lambda X, lod=lod: softmax(X, lod), lods={"X": lod}))


# ---------------------------------------------------------------------------------------------------- shapes
def padded(X: Any, PadValue: Any, lod: Any, width: int) -> Any:
    found = np.zeros((len(lod[-1]) - 1, width, *X.shape[1:]), X.dtype)
    found[:] = PadValue
    for row, part in zip(found, parts(X, lod), strict=True):
        row[: len(part)] = part
    return {"Out": found, "Length": np.array([len(part) for part in parts(X, lod)])}


for lod, width, pad in ((FULL, 3, data(1)), (LOD, 3, data(1)), (FULL, 5, data(2)), (TWO, 3, data(1))):
    add(
        "sequence_pad",
        Sample(
            {"X": data(6, 2), "PadValue": pad},
            {"padded_length": width if width == 5 else -1},
            lambda X, PadValue, lod=lod, width=width: padded(X, PadValue, lod, width),
            wrt=["X"],
            lods={"X": lod},
        ),
    )
add(
    "sequence_unpad",
    Sample(
        {"X": data(3, 4, 2), "Length": np.array([2, 0, 4])},
        {},
        lambda X, Length: joined([row[:n] for row, n in zip(X, Length, strict=True)], X[0]),
        wrt=["X"],
        shapes_by_value=True,
    ),
    Sample(
        {"X": data(3, 4), "Length": np.array([2, 0, 4])},
        {},
        lambda X, Length: joined([row[:n, None] for row, n in zip(X, Length, strict=True)], X[0][:, None]),
        wrt=["X"],
        shapes_by_value=True,
    ),
)
of_sequences("sequence_reshape", {"new_dim": 1}, lambda X, lod: X.reshape(-1, 1))
of_sequences("sequence_reshape", {"new_dim": 4}, lambda X, lod: X.reshape(-1, 4), lods=[((0, 2, 6),)])
of_sequences("sequence_reverse", {}, lambda X, lod: joined([part[::-1] for part in parts(X, lod)], X))
words = np.array([[2], [2], [6], [1], [3], [9]])
add(
    "sequence_enumerate",
    Sample(
        {"X": words},
        {"win_size": 2, "pad_value": 7},
        lambda X: np.where(context(FULL, 0, 2) < 0, 7, X[context(FULL, 0, 2), 0]),
        lods={"X": FULL},
    ),
)
add(
    "sequence_erase",
    Sample({"X": words}, {"tokens": [2, 3]}, lambda X: X[~np.isin(X[:, 0], [2, 3])], shapes_by_value=True, lods={"X": FULL}),
)


def scattered(X: Any, Ids: Any, Updates: Any) -> Any:
    found = X.copy()
    np.add.at(found, ([s for s, rows in enumerate(rows_of(FULL)) for _ in rows], Ids[:, 0]), Updates[:, 0])
    return found


add(
    "sequence_scatter",
    Sample({"X": data(3, 5), "Ids": data.ints(6, 1), "Updates": data(6, 1)}, {}, scattered, lods={"Ids": FULL, "Updates": FULL}),
)


# ------------------------------------------------------------------------------------------------------- convolution
def convolved(X: Any, Filter: Any, start: int, length: int, lod: Any) -> Any:
    return taken(X, context(lod, start, length)).reshape(len(X), -1) @ Filter


def convolved_with_margins(X: Any, PaddingData: Any, Filter: Any, start: int, length: int, lod: Any) -> Any:
    """Over each sequence with rows around it, without the windows that its own rows do not begin."""
    before, after = PaddingData[: max(0, -start)], PaddingData[max(0, -start) :]
    whole = [np.concatenate([before, part, after]) for part in parts(X, lod)]
    first = max(0, start)
    rows = [part[at : at + length].reshape(-1) for part in whole for at in range(first, first + len(part) - len(PaddingData))]
    return np.stack(rows) @ Filter


for lod in (LOD, FULL):
    for start, length in ((-1, 3), (-2, 4), (1, 2)):
        add(
            "sequence_conv",
            Sample(
                {"X": data(6, 2), "PaddingData": data(max(0, -start) + start + length - 1, 2), "Filter": data(2 * length, 3)},
                {"contextStart": start, "contextLength": length, "contextStride": 1, "paddingTrainable": True},
                lambda X, PaddingData, Filter, start=start, length=length, lod=lod: convolved_with_margins(
                    X, PaddingData, Filter, start, length, lod
                ),
                lods={"X": lod},
                known=["Filter"],
            ),
        )
    for start, length in WINDOWS:
        add(
            "sequence_conv",
            Sample(
                {"X": data(6, 2), "Filter": data(2 * length, 3)},
                {"contextStart": start, "contextLength": length, "contextStride": 1},
                lambda X, Filter, start=start, length=length, lod=lod: convolved(X, Filter, start, length, lod),
                lods={"X": lod},
                known=["Filter"],
            ),
        )
    add(
        "row_conv",
        Sample(
            {"X": data(6, 2), "Filter": data(3, 2)},
            {},
            lambda X, Filter, lod=lod: (taken(X, context(lod, 0, len(Filter))) * Filter).sum(1),
            lods={"X": lod},
            known=["Filter"],
        ),
    )

add(
    "row_conv",
    Sample(
        {"X": data(2, 4, 3), "Filter": data(3, 3)},
        {},
        lambda X, Filter: (taken(X.reshape(8, 3), context(BATCH, 0, 3)) * Filter).sum(1).reshape(X.shape),
        known=["Filter"],
    ),
)

# --------------------------------------------------------------------------------------------------------------- LoD
add(
    "lod_reset",
    Sample({"X": data(6, 2)}, {"target_lod": [0, 2, 6]}, lambda X: X, lods={"X": FULL}),
    Sample({"X": data(6, 2)}, {"target_lod": [0, 2, 6]}, lambda X: X),
    Sample({"X": data(6, 2)}, {"target_lod": [*range(7)], "append": True}, lambda X: X, lods={"X": FULL}),
    Sample({"X": data(6, 2), "Y": data(6, 1)}, {}, lambda X: X, wrt=["X"], lods={"Y": TWO}),
    Sample({"X": data(6, 2), "Y": np.array([0, 2, 6])}, {}, lambda X: X, wrt=["X"], shapes_by_value=True),
)


def patches(X: Any, kernels: list[int], strides: list[int], paddings: list[int]) -> Any:
    top, left, bottom, right = paddings
    wide = np.pad(X, ((0, 0), (0, 0), (top, bottom), (left, right)))
    return np.stack(
        [
            image[:, i : i + kernels[0], j : j + kernels[1]].reshape(-1)
            for image in wide
            for i in range(0, wide.shape[2] - kernels[0] + 1, strides[0])
            for j in range(0, wide.shape[3] - kernels[1] + 1, strides[1])
        ]
    )


for attrs in (
    {"kernels": [2, 2], "strides": [1, 2], "paddings": [1, 0, 1, 0]},
    {"kernels": [3, 1], "strides": [2, 1], "paddings": [0, 0, 0, 1]},
):
    X = np.arange(1.0, 2 * 2 * 4 * 4 + 1).reshape(2, 2, 4, 4)
    add("im2sequence", Sample({"X": X}, attrs, patches))
    add(
        "patch_index", Sample({"X": X}, attrs, lambda X, **given: patches(np.arange(1, X.size + 1).reshape(X.shape), **given) - 1)
    )


def patches_of_sizes(X: Any, Y: Any, **attrs: Any) -> Any:
    """Of each image, cut or padded to its size divided by 2, rounded up."""
    images = []
    for image, size in zip(X, Y, strict=True):
        high, wide = (int(extent + 1) // 2 for extent in size)
        at_most = np.pad(image[:, :high, :wide], ((0, 0), (0, max(0, high - X.shape[2])), (0, max(0, wide - X.shape[3]))))
        images.append(patches(at_most[None], **attrs))
    return np.concatenate(images)


sizes = np.array([[8.0, 7.0], [5.0, 10.0]])
plain = {"kernels": [2, 2], "strides": [1, 2], "paddings": [0, 0, 0, 0]}
several = {**plain, "out_stride": [2, 2]}
of_several = Sample({"X": X, "Y": sizes}, several, lambda X, Y: patches_of_sizes(X, Y, **plain), wrt=["X"], shapes_by_value=True)
add("im2sequence", of_several, Sample({"X": X[:1], "Y": sizes[:1]}, several, lambda X: patches(X, **plain), wrt=["X"]))
add(
    "patch_index",
    Sample(
        {"X": X, "Y": sizes, "Like": data(10, 8)},
        several,
        lambda X, Y: patches_of_sizes(np.arange(1, X.size + 1).reshape(X.shape), Y, **plain).astype("int64") - 1,
    ),
)
