"""Ops on rows that form sequences.

An op reads the values and the LoD (`fluid.values.spec.Lod`) of its inputs. Most of these ops move rows: an index op computes from
the LoD alone which rows; `take_rows` and `add_rows`, which are each other's transposes, move them. Derivatives of every order
consist of these. In an index, -1 stands for no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from math import prod
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import means
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, ShapeOnly, at_most, counted, define, ints, least, required
from ..values.lod_array import lengths_of, rows_of_copies
from ..values.spec import Lod, Spec
from ..values.types import VarType
from .shapes import fits, may_equal, one_a_row


def offsets_of(spec: Spec, slot: str, level: int = -1) -> tuple[int, ...] | None:
    """Offsets of the sequences of one level; None if they are not known yet. `InferenceError` if there are no sequences."""
    if not spec.lod:
        if spec.ndim and spec.shape[0] == -1:
            return None
        raise InferenceError(
            f"{slot} {spec} should hold sequences; declare it with lod_level=1 and feed (array, lengths) or a LoDTensor; in "
            "eager mode, use x.with_lod([offsets])"
        )
    if not -len(spec.lod) <= level < len(spec.lod):
        raise InferenceError(f"{slot} {spec} has {len(spec.lod)} levels of sequences, but level {level} is asked for")
    return spec.lod[level]


def _rows(spec: Spec) -> int:
    return spec.shape[0] if spec.ndim else 1


def _count(offsets: tuple[int, ...] | None) -> int:
    """The number of sequences, or -1."""
    return -1 if offsets is None else len(offsets) - 1


def images_of(boxes: Spec, counts: Spec | None, name: str) -> int:
    """The number of images that rows of boxes belong to, by their sequences or `counts`; -1 if it is not known yet."""
    return counts.shape[0] if counts is not None else _count(offsets_of(boxes, name))


def _index(*shape: int, lod: Lod = ()) -> Spec:
    """The spec of an index; `lod` is the LoD of the indexed rows."""
    return Spec(shape, VarType.INT64, lod=lod)


# ------------------------------------------------------------------------------------------------------- moving rows
def _take(X: Spec, Index: Spec) -> Spec:
    if not X.ndim:
        raise InferenceError(f"X {X} should have rows")
    return Spec((*Index.shape, *X.shape[1:]), X.dtype, lod=Index.lod)


@define("take_rows(X, Index: int) -> Out", infer=_take, wrt=("X",), lod_aware=True)
def take_rows(f: Any, X: ShapeOnly, Index: Any, dOut: Any) -> Any:
    """``Out[i, ...] = X[Index[i]]``, zeros where the index is -1."""
    return {"X": f.add_rows(dOut, Index, X)}


def _add(X: Spec, Index: Spec, Like: Spec) -> Spec:
    if not Like.ndim or not may_equal(X.shape, (*Index.shape, *Like.shape[1:])):
        raise InferenceError(f"X {X} should have a row like those of {Like} for each of Index {Index}")
    return Spec(Like.shape, X.dtype, lod=Like.lod)


@define("add_rows(X, Index: int, Like) -> Out", infer=_add, wrt=("X",), shape_only=("Like",), lod_aware=True)
def add_rows(f: Any, Index: Any, dOut: Any) -> Any:
    """The rows of X added, at the indices in Index, to zeros of Like's shape: the transpose of `take_rows`."""
    return {"X": f.take_rows(dOut, Index)}


@define("max_rows(X: float, Index: int, Like) -> Out", infer=_add, grad=NOT_DIFFERENTIABLE, shape_only=("Like",), lod_aware=True)
def max_rows() -> None:
    """For each row of Like, the maximum of the rows of X with its index, element by element; zeros where there is none.

    Index -1 stands for no row.
    """


# ----------------------------------------------------------------------------------------------------------- indices
def _ids(X: Spec) -> Spec:
    offsets_of(X, "X")
    return _index(_rows(X), lod=X.lod)


@define("sequence_ids(X) -> Out", infer=_ids, grad=ZERO_GRADIENT, shape_only=("X",), lod_aware=True)
def sequence_ids() -> None:
    """For each row of X, the index of its sequence (of the last level)."""


def _per_sequence(X: Spec) -> Spec:
    return _index(_count(offsets_of(X, "X")))


@define("sequence_lengths(X) -> Out", infer=_per_sequence, grad=ZERO_GRADIENT, shape_only=("X",), lod_aware=True)
def sequence_lengths() -> None:
    """The lengths of X's sequences (of the last level)."""


@define("sequence_ends(X) -> Out", infer=_per_sequence, grad=ZERO_GRADIENT, shape_only=("X",), lod_aware=True, first=False)
def sequence_ends() -> None:
    """The index of the last, or `first`, row of each sequence of X; -1 for an empty one."""


def _context(X: Spec, length: int) -> Spec:
    if _is_batch(X):
        return _index(-1 if -1 in X.shape[:2] else X.shape[0] * X.shape[1], length)
    offsets_of(X, "X")
    return _index(_rows(X), length, lod=X.lod)


def _is_batch(X: Spec) -> bool:
    """Whether X is ``[batch, steps, width]``: sequences of one length."""
    return X.ndim == 3 and not X.lod


_LONGEST_CONTEXT = 1 << 16
"""Rows of a window: a file may ask for no more."""
_CONTEXT: dict[str, Any] = {
    "infer": _context,
    "grad": ZERO_GRADIENT,
    "shape_only": ("X",),
    "lod_aware": True,
    "start": 0,
    "length": at_most(_LONGEST_CONTEXT, 1),
}


@define("sequence_context(X) -> Out", **_CONTEXT)
def sequence_context() -> None:
    """``Out[t, i] = t + start + i``; -1 if that row is not in the sequence of row t. In X [batch, steps, width] without LoD, the
    rows are counted through the batch."""


@define("sequence_margins(X) -> Out", **_CONTEXT)
def sequence_margins() -> None:
    """Where `sequence_context` is -1: the number of the margin row read there; -1 elsewhere.

    The ``max(0, -start)`` rows before a sequence are counted first, then the ``max(0, start + length - 1)`` after it.
    """


@define("sequence_reversed(X) -> Out", infer=_ids, grad=ZERO_GRADIENT, shape_only=("X",), lod_aware=True)
def sequence_reversed() -> None:
    """For each row of X, the index of the row at the mirrored position in its sequence."""


def _padded_positions(X: Spec, Like: Spec | None, padded_length: int) -> Spec:
    offsets = offsets_of(X, "X")
    if Like is not None:
        return _index(_count(offsets), Like.shape[1])
    return _index(_count(offsets), _padded_length(offsets, padded_length))


def _padded_length(offsets: tuple[int, ...] | None, padded_length: int) -> int:
    if offsets is None:
        return padded_length if padded_length > 0 else -1
    longest = max(lengths_of(offsets), default=0)
    if padded_length == -1:
        return longest
    if padded_length < longest:
        raise InferenceError(
            f"sequence_pad: padded_length is {padded_length}, but a sequence has {longest} rows; use -1 for the longest"
        )
    return padded_length


@define(
    "sequence_positions(X, Like?) -> Out",
    infer=_padded_positions,
    grad=ZERO_GRADIENT,
    shape_only=("X", "Like"),
    lod_aware=True,
    padded_length=-1,
)
def sequence_positions() -> None:
    """``Out[s, t]``: the row of X that is entry t of sequence s; -1 past its end. The width is Like's, or the longest length."""


def _expand_index(X: Spec, Y: Spec, ref_level: int) -> Spec:
    lod = _expanded_lod(X, Y, ref_level)
    if lod is None:
        return _index(-1, lod=(None,) * len(X.lod))
    return _index(len(expanded_rows(X, Y, ref_level)), lod=lod)


@define(
    "sequence_expanded(X, Y) -> Out", infer=_expand_index, grad=ZERO_GRADIENT, shape_only=("X", "Y"), lod_aware=True, ref_level=-1
)
def sequence_expanded() -> None:
    """For each output row of `sequence_expand`, the index of the row of X that it copies."""


def _concat_index(X: list[Spec], which: int) -> Spec:
    return _index(_rows(X[which]), lod=X[which].lod)


@define("sequence_concatenated(X*) -> Out", infer=_concat_index, grad=ZERO_GRADIENT, shape_only=("X",), lod_aware=True, which=0)
def sequence_concatenated() -> None:
    """For each row of the input `which`, its index in the output of `sequence_concat`."""


@define(
    "sequence_sliced(X, Offset: int, Length: int, Like) -> Out",
    infer=lambda Like: _index(_rows(Like), lod=Like.lod),
    grad=ZERO_GRADIENT,
    shape_only=("X", "Like"),
    lod_aware=True,
)
def sequence_sliced() -> None:
    """For each output row of `sequence_slice`, one for each row of Like, the index of the row of X that it copies."""


def _scatter_index(Ids: Spec) -> Spec:
    offsets_of(Ids, "Ids")
    return _index(_rows(Ids), 2, lod=Ids.lod)


@define("sequence_scattered(Ids: int) -> Out", infer=_scatter_index, grad=ZERO_GRADIENT, lod_aware=True)
def sequence_scattered() -> None:
    """For each row of Ids, the index of its sequence and the id."""


# ----------------------------------------------------------------------------------------------------------- pooling
_POOLS = ("AVERAGE", "SUM", "SQRT", "MAX", "LAST", "FIRST")


def _pool(X: Spec, pooltype: str) -> tuple[Spec, Spec]:
    if pooltype.upper() not in _POOLS:
        raise InferenceError(f"sequence_pool: pooltype is {pooltype!r}; it should be one of {', '.join(_POOLS)}")
    out = Spec((_count(offsets_of(X, "X")), *X.shape[1:]), X.dtype, lod=X.lod[:-1])
    return out, Spec(out.shape, VarType.INT32)


@define(
    "sequence_pool(X: float) -> Out, MaxIndex~",
    infer=_pool,
    wrt=("X",),
    lod_aware=True,
    pooltype="AVERAGE",
    is_test=False,
    pad_value=0.0,
)
def sequence_pool(f: Any, X: ShapeOnly, MaxIndex: Any, dOut: Any, pooltype: str) -> Any:
    """For each sequence, one row: its AVERAGE, SUM, SQRT (sum divided by the root of the length), MAX, LAST or FIRST row;
    `pad_value` for an empty one. MaxIndex holds the row of each first maximum, -1 for an empty sequence."""
    pooltype = pooltype.upper()
    if pooltype in ("LAST", "FIRST"):
        return {"X": f.add_rows(dOut, f.sequence_ends(X, first=pooltype == "FIRST"), X)}
    if pooltype == "MAX":
        return {"X": f.place_at_most(dOut, MaxIndex, X)}
    if pooltype != "SUM":
        length = f.clip(f.sequence_lengths(X).astype(dOut.dtype), min=1.0, max=3e38)  # empty sequences would divide by zero
        dOut = f.elementwise_mul(dOut, 1.0 / (length if pooltype == "AVERAGE" else f.sqrt(length)), axis=0)
    return {"X": f.take_rows(dOut, f.sequence_ids(X))}


def _at_most(X: Spec, Index: Spec, Like: Spec) -> Spec:
    if not Like.ndim or not may_equal(X.shape, Index.shape) or not may_equal(X.shape[1:], Like.shape[1:]):
        raise InferenceError(f"X {X} should have the shape of Index {Index}, and rows like those of {Like}")
    return Spec(Like.shape, X.dtype, lod=Like.lod)


@define("place_at_most(X, Index: int, Like) -> Out", infer=_at_most, wrt=("X",), shape_only=("Like",), lod_aware=True)
def place_at_most(f: Any, Index: Any, dOut: Any) -> Any:
    """``Out[Index[s, j], j] = X[s, j]``, zeros elsewhere: the transpose of `take_at_most`."""
    return {"X": f.take_at_most(dOut, Index)}


def _taken_at_most(X: Spec, Index: Spec) -> Spec:
    if not X.ndim or not Index.ndim or not may_equal(X.shape[1:], Index.shape[1:]):
        raise InferenceError(f"the rows of Index {Index} should have the shape of those of X {X}")
    return Spec(Index.shape, X.dtype)


@define("take_at_most(X, Index: int) -> Out", infer=_taken_at_most, wrt=("X",), lod_aware=True)
def take_at_most(f: Any, X: ShapeOnly, Index: Any, dOut: Any) -> Any:
    """``Out[s, j] = X[Index[s, j], j]``, zeros where the index is -1."""
    return {"X": f.place_at_most(dOut, Index, X)}


def _softmax(X: Spec) -> Spec:
    offsets_of(X, "X")
    if X.ndim > 2 or (X.ndim == 2 and X.shape[1] not in (1, -1)):
        raise InferenceError(f"sequence_softmax: X {X} should have one number a row")
    return X


@define("sequence_softmax(X: float) -> Out", infer=_softmax, lod_aware=True)
def sequence_softmax(f: Any, X: ShapeOnly, Out: Any, dOut: Any) -> Any:
    """Softmax over each sequence of X, ``[rows, 1]``."""
    ids = f.sequence_ids(X)
    total = f.sequence_pool(f.lod_reset(Out * dOut, X), pooltype="SUM")
    return {"X": Out * (dOut - f.take_rows(total, ids))}


# --------------------------------------------------------------------------------------------------------- expanding
def _expand_levels(X: Spec, Y: Spec, ref_level: int) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Offsets of the repeated sequences (or rows) of X, and offsets of the sequences of Y; None if they are not known."""
    if len(X.lod) > 1:
        raise InferenceError(f"sequence_expand: X {X} has {len(X.lod)} levels of sequences; it should have one or none")
    repeats = offsets_of(Y, "Y", ref_level)
    parts = X.lod[0] if X.lod else None if _rows(X) == -1 else tuple(range(_rows(X) + 1))
    if parts is not None and repeats is not None and len(parts) != len(repeats):
        unit = "sequences" if X.lod else "rows"
        raise InferenceError(
            f"sequence_expand: X {X} has {len(parts) - 1} {unit}, but level {ref_level} of Y {Y} has {len(repeats) - 1} sequences"
        )
    return parts, repeats


def expanded_rows(X: Spec, Y: Spec, ref_level: int) -> Any:
    """The indices of the rows of X that `sequence_expand` copies, in order."""
    parts, repeats = _expand_levels(X, Y, ref_level)
    assert parts is not None and repeats is not None
    return rows_of_copies(parts, lengths_of(repeats))


def _expanded_lod(X: Spec, Y: Spec, ref_level: int) -> Lod | None:
    """The LoD of the output of `sequence_expand`; None if it is not known."""
    parts, repeats = _expand_levels(X, Y, ref_level)
    if parts is None or repeats is None:
        return None
    if not X.lod:
        return ()
    lengths = [length for length, times in zip(lengths_of(parts), lengths_of(repeats), strict=True) for _ in range(times)]
    return (tuple(accumulate(lengths, initial=0)),)


def _expand(X: Spec, Y: Spec, ref_level: int) -> Spec:
    lod = _expanded_lod(X, Y, ref_level)
    if lod is None:
        return Spec((-1, *X.shape[1:]), X.dtype, lod=(None,) * len(X.lod))
    return Spec((len(expanded_rows(X, Y, ref_level)), *X.shape[1:]), X.dtype, lod=lod)


@define("sequence_expand(X, Y) -> Out", infer=_expand, wrt=("X",), shape_only=("Y",), lod_aware=True, ref_level=-1)
def sequence_expand(f: Any, X: ShapeOnly, Y: ShapeOnly, dOut: Any, ref_level: int) -> Any:
    """Sequence i of X (row i, if X has no sequences), repeated as often as sequence i of Y's level `ref_level` is long."""
    return {"X": f.add_rows(dOut, f.sequence_expanded(X, Y, ref_level=ref_level), X)}


def _expand_as(X: Spec, Y: Spec) -> Spec:
    offsets = offsets_of(Y, "Y")
    if offsets is not None and _rows(X) not in (-1, len(offsets) - 1):
        raise InferenceError(f"sequence_expand_as: X {X} should have a row for each of the {len(offsets) - 1} sequences of Y {Y}")
    return Spec((_rows(Y), *X.shape[1:]), X.dtype, lod=Y.lod or (None,))


@define("sequence_expand_as(X, Y) -> Out", infer=_expand_as, wrt=("X",), shape_only=("Y",), lod_aware=True)
def sequence_expand_as(f: Any, X: ShapeOnly, Y: ShapeOnly, dOut: Any) -> Any:
    """Row i of X, repeated as often as sequence i of Y is long."""
    return {"X": f.add_rows(dOut, f.sequence_ids(Y), X)}


# --------------------------------------------------------------------------------------- putting together, cutting
def _concat(X: list[Spec]) -> Spec:
    levels = [offsets_of(x, "X") for x in X]
    for x in X[1:]:
        if not all(map(fits, x.shape[1:], X[0].shape[1:])):
            raise InferenceError(f"sequence_concat: {x} and {X[0]} should have rows of one shape")
    if any(level is None for level in levels):
        return Spec((-1, *X[0].shape[1:]), X[0].dtype, lod=(None,))
    lengths = [lengths_of(level) for level in levels if level is not None]
    if len(set(map(len, lengths))) != 1:
        raise InferenceError(f"sequence_concat: the inputs have {', '.join(str(len(part)) for part in lengths)} sequences")
    totals = [sum(part) for part in zip(*lengths, strict=True)]
    return Spec((sum(totals), *X[0].shape[1:]), X[0].dtype, lod=(tuple(accumulate(totals, initial=0)),))


@define("sequence_concat(X*) -> Out", infer=_concat, lod_aware=True)
def sequence_concat(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """Sequence i is the concatenation of sequence i of all inputs."""
    return {"X": [f.take_rows(dOut, f.sequence_concatenated(X, which=place)) for place in range(len(X))]}  # type: ignore[arg-type]


def _slice(X: Spec, Offset: Spec, Length: Spec) -> Spec:
    offsets = offsets_of(X, "X")
    for name, spec in (("Offset", Offset), ("Length", Length)):
        if offsets is not None and spec.size not in (-1, len(offsets) - 1):
            raise InferenceError(f"sequence_slice: {name} {spec} should have one number for each of {len(offsets) - 1} sequences")
    return Spec((-1, *X.shape[1:]), X.dtype, lod=(None,))


@define("sequence_slice(X, Offset: int, Length: int) -> Out", infer=_slice, wrt=("X",), lod_aware=True)
def sequence_slice(f: Any, X: ShapeOnly, Offset: Any, Length: Any, dOut: Any) -> Any:
    """Length[i] rows of sequence i of X, from Offset[i] on."""
    return {"X": f.add_rows(dOut, f.sequence_sliced(X, Offset, Length, dOut), X)}


def _pad(X: Spec, PadValue: Spec, padded_length: int) -> tuple[Spec, Spec]:
    offsets = offsets_of(X, "X")
    inner = X.shape[1:]
    if PadValue.size not in (-1, 1) and -1 not in inner and PadValue.size != prod(inner):
        raise InferenceError(f"sequence_pad: PadValue {PadValue} should be one number, or have the shape of a row of X {X}")
    count = _count(offsets)
    return Spec((count, _padded_length(offsets, padded_length), *inner), X.dtype), _index(count)


@define(
    "sequence_pad(X, PadValue) -> Out, Length", infer=_pad, wrt=("X",), constants=("PadValue",), lod_aware=True, padded_length=-1
)
def sequence_pad(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """The sequences of X as ``[sequences, padded_length, ...]``, padded with PadValue (one number, or a row), and their lengths;
    a `padded_length` of -1 is the length of the longest."""
    return {"X": f.add_rows(dOut, f.sequence_positions(X, dOut), X)}


def _unpad(X: Spec, Length: Spec) -> Spec:
    if X.ndim < 2:
        raise InferenceError(f"sequence_unpad: X {X} should have at least two dimensions: sequences and steps")
    if not fits(X.shape[0], Length.size):
        raise InferenceError(
            f"sequence_unpad: Length {Length} should have a number for each of the {X.shape[0]} sequences of X {X}"
        )
    return Spec((-1, *(X.shape[2:] or (1,))), X.dtype, lod=(None,))


@define("sequence_unpad(X, Length: int) -> Out", infer=_unpad, wrt=("X",), lod_aware=True)
def sequence_unpad(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """The first Length[i] entries of each X[i], as sequences; for X [sequences, steps], as rows of one element."""
    return {"X": f.reshape_like(f.take_rows(dOut, f.sequence_positions(dOut, X)), X)}


def _reshape(X: Spec, new_dim: int) -> Spec:
    offsets = offsets_of(X, "X")
    if X.ndim != 2 or new_dim < 1:
        raise InferenceError(f"sequence_reshape: X {X} should have two dimensions, and new_dim {new_dim} be at least 1")
    if offsets is None or X.shape[1] == -1:
        return Spec((-1, new_dim), X.dtype, lod=(None,))
    width = X.shape[1]
    for length in lengths_of(offsets):
        if length * width % new_dim:
            raise InferenceError(f"sequence_reshape: a sequence of {length} x {width} numbers does not make rows of {new_dim}")
    return Spec((offsets[-1] * width // new_dim, new_dim), X.dtype, lod=(tuple(at * width // new_dim for at in offsets),))


@define("sequence_reshape(X) -> Out", infer=_reshape, lod_aware=True, new_dim=required("int"))
def sequence_reshape(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """The elements of each sequence in rows of `new_dim` elements."""
    return {"X": f.reshape_like(dOut, X)}


def _with_sequences(X: Spec) -> Spec:
    offsets_of(X, "X")
    return X


@define("sequence_reverse(X) -> Y", infer=_with_sequences, inline_grad=True, lod_aware=True)
def sequence_reverse(f: Any, X: ShapeOnly, dY: Any) -> Any:
    """The rows of each sequence in reverse order."""
    return {"X": f.sequence_reverse(f.lod_reset(dY, X))}  # a gradient has lost its sequences where Y was reshaped


def _enumerate(X: Spec, win_size: int) -> Spec:
    offsets_of(X, "X")
    if X.ndim == 2 and X.shape[1] not in (1, -1):
        raise InferenceError(f"sequence_enumerate: X {X} should have one number a row")
    return Spec((_rows(X), win_size), X.dtype, lod=X.lod)


@define(
    "sequence_enumerate(X: int) -> Out",
    infer=_enumerate,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    win_size=least(1, required("int")),
    pad_value=0,
)
def sequence_enumerate() -> None:
    """For each row, its element and the next `win_size` - 1 ones of its sequence; `pad_value` past the end."""


def _erase(X: Spec) -> Spec:
    offsets_of(X, "X")
    one_a_row("X", X)
    return Spec((-1, *X.shape[1:]), X.dtype, lod=(None,) * max(len(X.lod), 1))


@define("sequence_erase(X: int) -> Out", infer=_erase, grad=NOT_DIFFERENTIABLE, lod_aware=True, tokens=ints())
def sequence_erase() -> None:
    """The sequences of integers X without `tokens`."""


def _scatter(X: Spec, Ids: Spec, Updates: Spec) -> Spec:
    offsets = offsets_of(Ids, "Ids")
    if X.ndim == 2 and offsets is not None and X.shape[0] not in (-1, len(offsets) - 1):
        raise InferenceError(
            f"sequence_scatter: X {X} should have a row for each of the {len(offsets) - 1} sequences of Ids {Ids}"
        )
    if X.ndim != 2 or any(spec.ndim == 2 and spec.shape[1] not in (1, -1) for spec in (Ids, Updates)):
        raise InferenceError(
            f"sequence_scatter: X {X} should have shape [sequences, width], Ids {Ids} and Updates {Updates} [rows, 1]"
        )
    if not fits(_rows(Ids), _rows(Updates)):
        raise InferenceError(f"sequence_scatter: Ids {Ids} and Updates {Updates} should have the same number of rows")
    return X


@define("sequence_scatter(X, Ids: int, Updates) -> Out", infer=_scatter, wrt=("X", "Updates"), lod_aware=True)
def sequence_scatter(f: Any, Ids: Any, Updates: ShapeOnly, dOut: Any) -> Any:
    """X with Updates added: the update in a row of sequence i with the id k goes to ``X[i, k]``."""
    return {"X": dOut, "Updates": lambda: f.reshape_like(f.gather_nd(dOut, f.sequence_scattered(Ids)), Updates)}


# ------------------------------------------------------------------------------------------------------- convolution
def _conv(
    X: Spec,
    PaddingData: Spec | None,
    Filter: Spec,
    contextStart: int,
    contextLength: int,
    contextStride: int,
    paddingTrainable: bool,
) -> Spec:
    offsets_of(X, "X")
    if contextStride != 1:
        raise InferenceError(f"sequence_conv: contextStride should be 1, not {contextStride}")
    if paddingTrainable:
        around = max(0, -contextStart) + max(0, contextStart + contextLength - 1)
        if PaddingData is None or PaddingData.ndim != 2 or not all(map(fits, PaddingData.shape, (around, X.shape[-1]))):
            padding = "none" if PaddingData is None else PaddingData
            raise InferenceError(f"sequence_conv: PaddingData should have shape [{around}, width of X {X}], but is {padding}")
    rows = contextLength * X.shape[1] if X.ndim == 2 and X.shape[1] >= 0 else -1
    if X.ndim != 2 or Filter.ndim != 2 or not fits(Filter.shape[0], rows):
        raise InferenceError(f"sequence_conv: Filter {Filter} should have contextLength ({contextLength}) x width of X {X} rows")
    return Spec((_rows(X), Filter.shape[1]), X.dtype, lod=X.lod)


def _rows_around(f: Any, X: Any, attrs: Mapping[str, Any]) -> tuple[Any, Any]:
    """For the rows around each row, their indices in X, and in PaddingData if the convolution has it."""
    context = {"start": attrs["contextStart"], "length": attrs["contextLength"]}
    return f.sequence_context(X, **context), f.sequence_margins(X, **context) if attrs["paddingTrainable"] else None


def _windows(f: Any, X: Any, PaddingData: Any, index: Any, margins: Any) -> Any:
    """The rows at these indices, joined to one row for each row of X."""
    rows = f.take_rows(X, index)
    return f.flatten(rows if margins is None else rows + f.take_rows(PaddingData, margins), axis=1)


def _convolved(f: Any, X: Any, PaddingData: Any, Filter: Any, attrs: Mapping[str, Any]) -> Any:
    return f.matmul_v2(_windows(f, X, PaddingData, *_rows_around(f, X, attrs)), Filter)


@define(
    "sequence_conv(X: float, PaddingData?, Filter) -> Out",
    infer=_conv,
    wrt=("X", "PaddingData", "Filter"),
    lod_aware=True,
    composition=means(_convolved),
    contextLength=required("int"),
    contextStart=required("int"),
    contextStride=required("int"),
    paddingTrainable=False,
)
def sequence_conv(f: Any, X: Any, PaddingData: Any, Filter: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """Convolution over time: for row t, the contextLength rows of its sequence from t + contextStart on, joined, times Filter,
    ``[contextLength * width, filters]``. Rows outside of the sequence are zeros.

    If `paddingTrainable`, they are rows of PaddingData, ``[rows before + rows after, width]``: first those before a sequence.
    """
    index, margins = _rows_around(f, X, attrs)

    def by_windows() -> Any:
        return f.reshape(f.matmul_v2(dOut, Filter, trans_y=True), shape=[0, attrs["contextLength"], -1])

    gradients = {
        "X": lambda: f.add_rows(by_windows(), index, X),
        "Filter": lambda: f.matmul_v2(_windows(f, X, PaddingData, index, margins), dOut, trans_x=True),
    }
    if margins is not None:
        gradients["PaddingData"] = lambda: f.add_rows(by_windows(), margins, PaddingData)
    return gradients


def _row_conv(X: Spec, Filter: Spec) -> Spec:
    if not _is_batch(X):
        offsets_of(X, "X")
    if Filter.ndim != 2 or X.ndim not in (2, 3) or not fits(Filter.shape[1], X.shape[-1]):
        raise InferenceError(f"row_conv: Filter {Filter} should have the width of X {X}")
    return X


@define("row_conv(X: float, Filter) -> Out", infer=_row_conv, lod_aware=True)
def row_conv(f: Any, X: Any, Filter: Any, dOut: Any) -> Any:
    """``Out[t] = sum over i of X[t + i] * Filter[i]`` within each sequence: a look ahead. X [batch, steps, width] without LoD
    holds sequences of one length."""
    if Filter.shape[0] < 0:
        raise InferenceError("row_conv: the gradient has to know how many rows Filter has")
    index = f.sequence_context(X, start=0, length=Filter.shape[0])
    rows, d_rows = (f.flatten(value, axis=2) for value in (X, dOut)) if len(X.shape) == 3 else (X, dOut)
    return {
        "X": lambda: f.reshape_like(f.add_rows(f.elementwise_mul(f.unsqueeze(d_rows, axes=[1]), Filter), index, rows), X),
        "Filter": lambda: f.sum_to(f.elementwise_mul(f.take_rows(rows, index), f.unsqueeze(d_rows, axes=[1])), Filter),
    }


# --------------------------------------------------------------------------------------------------------------- LoD
def _reset(X: Spec, Y: Spec | None, target_lod: list[int], append: bool) -> Spec:
    if X.ndim == 0:
        raise InferenceError(f"lod_reset: X {X} has no rows that could form sequences")
    outer_lod = X.lod if append else ()
    if Y is not None and Y.lod:
        return X.with_lod((*outer_lod, *Y.lod))
    if Y is not None:
        return Spec((-1, *X.shape[1:]), X.dtype, lod=(*outer_lod, None))  # only the values of Y tell
    if not target_lod:
        raise InferenceError("lod_reset: give Y, or the offsets target_lod")
    if target_lod[0] != 0 or target_lod != sorted(target_lod) or _rows(X) not in (-1, target_lod[-1]):
        raise InferenceError(f"lod_reset: target_lod {target_lod} should hold offsets from 0 to the rows of X {X}")
    return X.with_lod((*outer_lod, tuple(target_lod)))


@define("lod_reset(X, Y?) -> Out", infer=_reset, wrt=("X",), lod_aware=True, target_lod=ints(), append=False)
def lod_reset(f: Any, X: ShapeOnly, dOut: Any) -> Any:
    """X with other sequences: Y's or, if it has none, by the offsets in Y; without Y, by the offsets `target_lod`."""
    return {"X": f.reshape_like(dOut, X)}


def _patches(X: Spec, kernels: list[int], strides: list[int], paddings: list[int]) -> tuple[int, int, int]:
    """The numbers of rows and of columns of patches, and of elements of a patch; -1 if unknown."""
    if X.ndim != 4 or len(kernels) != 2 or len(strides) != 2 or len(paddings) != 4:
        raise InferenceError(
            f"im2sequence: X {X} should be [images, channels, height, width], with two kernels and strides and four paddings, "
            f"not {kernels}, {strides}, {paddings}"
        )
    counts = [
        -1 if size == -1 else (size + low + high - kernel) // stride + 1
        for size, kernel, stride, low, high in zip(X.shape[2:], kernels, strides, paddings[:2], paddings[2:], strict=True)
    ]
    if any(count < 1 and size != -1 for count, size in zip(counts, X.shape[2:], strict=True)):
        raise InferenceError(f"im2sequence: kernels {kernels} should not be larger than the padded images of X {X}")
    return counts[0], counts[1], -1 if X.shape[1] == -1 else X.shape[1] * prod(kernels)


def _patch_index(X: Spec, Like: Spec | None, kernels: list[int], strides: list[int], paddings: list[int]) -> Spec:
    high, wide, size = _patches(X, kernels, strides, paddings)
    if Like is not None:
        return _index(_rows(Like), size)
    return _index(-1 if -1 in (X.shape[0], high, wide) else X.shape[0] * high * wide, size)


_PATCHES: dict[str, Any] = {
    "kernels": least(1, counted(required("ints"), 2)),
    "strides": least(1, counted(ints(1, 1))),
    "paddings": least(0, counted(ints(0, 0, 0, 0))),
    "out_stride": least(1, counted(ints(1, 1))),
}


@define(
    "patch_index(X, Y?, Like?) -> Out",
    infer=_patch_index,
    grad=ZERO_GRADIENT,
    shape_only=("X", "Like"),
    lod_aware=True,
    **_PATCHES,
)
def patch_index() -> None:
    """For each output element of `im2sequence` (one row for each row of Like), its index among the elements of X; -1 in the
    padding."""


def _im2sequence(X: Spec, Y: Spec | None, kernels: list[int], strides: list[int], paddings: list[int]) -> Spec:
    high, wide, size = _patches(X, kernels, strides, paddings)
    if Y is not None and (Y.ndim != 2 or not fits(Y.shape[1], 2) or (X.shape[0] != 1 and not fits(Y.shape[0], X.shape[0]))):
        raise InferenceError(f"im2sequence: Y {Y} should have a height and a width for each image of X {X}")
    if -1 in (X.shape[0], high, wide) or (Y is not None and X.shape[0] != 1):
        return Spec((-1, size), X.dtype, lod=(None,))
    count = X.shape[0] * high * wide
    return Spec((count, size), X.dtype, lod=(tuple(range(0, count + 1, high * wide)),))


def _tiles(shape: tuple[int, ...], attrs: Mapping[str, Any]) -> list[int] | None:
    """Rows and columns of patches and of their elements, by turns, where each element of an image is in one patch; else None."""
    if -1 in shape[1:] or any(attrs["paddings"]):
        return None
    tiles = []
    for size, kernel, stride in zip(shape[2:], attrs["kernels"], attrs["strides"], strict=True):
        if size % kernel or (stride != kernel and size != kernel):
            return None
        tiles += [size // kernel, kernel]
    return tiles


def _take_patches(f: Any, X: Any, Y: Any, attrs: Mapping[str, Any]) -> Any:
    tiles = _tiles(X.shape, attrs) if Y is None else None
    if tiles is None:
        return f.take_rows(f.reshape(X, shape=[-1]), f.patch_index(X, Y, None, **attrs))
    patches = f.transpose(f.reshape(X, shape=[-1, X.shape[1], *tiles]), axis=[0, 2, 4, 1, 3, 5])
    return f.reshape(patches, shape=[-1, X.shape[1] * prod(attrs["kernels"])])


@define(
    "im2sequence(X, Y?) -> Out",
    infer=_im2sequence,
    wrt=("X",),
    constants=("Y",),
    lod_aware=True,
    meaning=means(_take_patches),
    **_PATCHES,
)
def im2sequence(f: Any, X: ShapeOnly, Y: Any, dOut: Any, attrs: Any) -> Any:
    """The patches of each image, row by row, as a sequence: ``[images * patches, channels * kernel height * kernel width]``.

    Where X [images, ...] comes of images of different sizes, Y [images, 2] holds their heights and widths, which are divided by
    `out_stride`, rounded up: only patches that fit there are taken. As in Paddle, Y is passed over where there is one image.
    """
    shape: tuple[int, ...] = X.shape  # type: ignore[attr-defined]
    tiles = _tiles(shape, attrs) if Y is None else None
    if tiles is not None:
        high, height, wide, width = tiles
        patches = f.reshape(dOut, shape=[-1, high, wide, shape[1], height, width])
        return {"X": f.reshape_like(f.transpose(patches, axis=[0, 3, 1, 4, 2, 5]), X)}
    index = f.patch_index(X, Y, dOut, **{name: attrs[name] for name in _PATCHES})
    return {"X": f.reshape_like(f.add_rows(dOut, index, f.reshape(X, shape=[-1])), X)}
