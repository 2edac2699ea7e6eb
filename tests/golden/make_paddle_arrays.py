"""Writes paddle_arrays.npz: ops of Paddle 2.x on arrays as Paddle 2.6.2 computes them."""

from pathlib import Path

import numpy as np
from paddle_ops import write

rng = np.random.default_rng(4)


def f(*shape, low=-1.0, high=1.0):
    return rng.uniform(low, high, shape).astype("float32")


def i(*shape, low=0, high=5, dtype="int64"):
    return rng.integers(low, high, shape).astype(dtype)


F, D, I, L, B = "float32", "float64", "int32", "int64", "bool"
NAN = np.float32([[1, np.nan, 3, 2], [np.nan, np.nan, np.nan, np.nan], [5, 4, 7, 6]])
TIES = np.float32([[1, 2, 2, 1, 3], [3, 3, 1, 1, 2]])
CLOSE = {"Input": np.float32([1, 2, np.nan, 0]), "Other": np.float32([1.00001, 2.1, np.nan, 1e-9])}
EDGES = {"Src_index": np.int64([0, 1, 2, 0]), "Dst_index": np.int64([1, 2, 1, 0])}
HOW = ("SUM", "MEAN", "MAX", "MIN")
TOLERANCES = {"rtol": "1e-5", "atol": "1e-8", "equal_nan": True}
CASES = [
    *(
        (f"bitwise_{op}", {"X": i(2, 3, low=-9, high=9), "Y": i(2, 3, low=-9, high=9)}, {}, {"Out": L}, [])
        for op in ("and", "or", "xor")
    ),
    ("bitwise_not", {"X": i(2, 3, low=-9, high=9)}, {}, {"Out": L}, []),
    ("bitwise_not", {"X": np.array([True, False])}, {}, {"Out": B}, []),
    *((f"elementwise_{op}", {"X": TIES, "Y": TIES[:, ::-1].copy()}, {}, {"Out": F}, ["X", "Y"]) for op in ("fmax", "fmin")),
    *((f"elementwise_{op}", {"X": NAN, "Y": f(3, 4)}, {}, {"Out": F}, []) for op in ("fmax", "fmin")),
    ("elementwise_heaviside", {"X": np.float32([-1, 0, 0, 2]), "Y": f(4)}, {}, {"Out": F}, ["X", "Y"]),
    ("atan2", {"X1": f(2, 3), "X2": f(2, 3)}, {}, {"Out": F}, ["X1", "X2"]),
    ("atan2", {"X1": i(4, low=-3), "X2": i(4, low=1)}, {}, {"Out": D}, []),
    ("nextafter", {"x": f(3), "y": f(3)}, {}, {"out": F}, []),
    ("isclose", CLOSE, TOLERANCES, {"Out": B}, []),
    ("allclose", CLOSE, TOLERANCES, {"Out": B}, []),
    ("equal_all", {"X": TIES, "Y": TIES}, {}, {"Out": B}, []),
    ("partial_sum", {"X": [f(2, 4), f(2, 4)]}, {"start_index": 1, "length": 2}, {"Out": F}, []),
    ("partial_concat", {"X": [f(2, 4), f(2, 4)]}, {"start_index": -3, "length": 2}, {"Out": F}, []),
    *((op, {"X": f(2, 5, low=0.1, high=9)}, {}, {"Out": F}, ["X"]) for op in ("lgamma", "digamma")),
    *((op, {"X": np.float32([-3.5, -0.5, 0.25, 30])}, {}, {"Out": F}, ["X"]) for op in ("lgamma", "digamma")),
    *(("polygamma", {"x": f(5, low=0.2, high=9)}, {"n": n}, {"out": F}, ["x"]) for n in (1, 2, 4)),
    ("erfinv", {"X": f(7)}, {}, {"Out": F}, ["X"]),
    ("logit", {"X": np.float32([-0.5, 0.05, 0.4, 0.97, 1.5])}, {"eps": 0.1}, {"Out": F}, ["X"]),
    *(
        (op, {"x": np.float32([-20, -3, -0.4, 0.7, 8, 50])}, {}, {"out": F}, ["x"] if op.endswith("e") else [])
        for op in ("i0", "i0e", "i1", "i1e")
    ),
    *((op, {"x": np.float32([-3, -0.4, 0.7, 8])}, {}, {"out": F}, ["x"]) for op in ("i0", "i1")),
    ("cumprod", {"X": f(2, 5)}, {"dim": 1}, {"Out": F}, ["X"]),
    ("cumprod", {"X": np.float32([[2, 0, 3, 0, 1], [1, 2, 0, 4, 5]])}, {"dim": 1}, {"Out": F}, ["X"]),
    *((op, {"x": TIES}, {"axis": 1, "dtype": 3}, {"out": F, "indices": L}, ["x"]) for op in ("cummax", "cummin")),
    *(
        (op, {"x": np.float32([2, np.nan, 3, 1])}, {"axis": 0, "dtype": 2}, {"out": F, "indices": I}, [])
        for op in ("cummax", "cummin")
    ),
    *(
        (
            "logcumsumexp",
            {"X": f(2, 5)},
            {"axis": axis, "flatten": flatten, "exclusive": False, "reverse": reverse},
            {"Out": F},
            ["X"],
        )
        for axis, flatten, reverse in ((1, False, False), (0, False, True), (-1, True, False))
    ),
    ("kthvalue", {"X": f(2, 5)}, {"k": 2, "axis": 1, "keepdim": False}, {"Out": F, "Indices": L}, ["X"]),
    ("kthvalue", {"X": f(2, 5)}, {"k": 2, "axis": 0, "keepdim": True}, {"Out": F, "Indices": L}, ["X"]),
    ("mode", {"X": TIES}, {"axis": -1, "keepdim": False}, {"Out": F, "Indices": L}, ["X"]),
    ("mode", {"X": i(4, 9, high=3).astype("float32")}, {"axis": 0, "keepdim": True}, {"Out": F, "Indices": L}, ["X"]),
    *(
        ("nanmedian", {"X": f(3, 4)}, {"axis": axis, "keepdim": True}, {"Out": F, "MedianIndex": L}, ["X"])
        for axis in ([], [0], [1])
    ),
    ("nanmedian", {"X": NAN}, {"axis": [1], "keepdim": False}, {"Out": F, "MedianIndex": L}, []),
    (
        "searchsorted",
        {"SortedSequence": np.float32([-1, 0, 0, 1]), "Values": f(2, 3)},
        {"out_int32": False, "right": True},
        {"Out": L},
        [],
    ),
    (
        "searchsorted",
        {"SortedSequence": np.sort(i(2, 4)), "Values": i(2, 3)},
        {"out_int32": True, "right": False},
        {"Out": I},
        [],
    ),
    ("histogram", {"X": f(20)}, {"bins": 5, "min": 0, "max": 0}, {"Out": L}, []),
    ("histogram", {"X": f(20, low=-2, high=2)}, {"bins": 4, "min": -1, "max": 1}, {"Out": L}, []),
    ("bincount", {"X": i(9)}, {"minlength": 7}, {"Out": L}, []),
    ("bincount", {"X": i(9, dtype="int32")}, {"minlength": 0}, {"Out": L}, []),
    ("bincount", {"X": i(9), "Weights": f(9)}, {"minlength": 0}, {"Out": F}, []),
    (
        "unique_consecutive",
        {"X": i(9, high=2)},
        {"return_inverse": True, "return_counts": True, "axis": [], "dtype": 3},
        {"Out": L, "Index": L, "Counts": L},
        [],
    ),
    (
        "unique_consecutive",
        {"X": np.float32([[1, 1, 2], [1, 1, 2], [0, 1, 2]])},
        {"return_inverse": True, "return_counts": True, "axis": [0], "dtype": 2},
        {"Out": F, "Index": I, "Counts": I},
        [],
    ),
    ("index_add", {"X": f(3, 4), "Index": np.int64([2, 0, 2]), "AddValue": f(3, 4)}, {"axis": 0}, {"Out": F}, ["X", "AddValue"]),
    *(
        (
            "index_put",
            {"x": f(3, 4), "indices": [np.int64([2, 0]), np.int64([1, -1])], "value": f(*shape)},
            {"accumulate": accumulate},
            {"out": F},
            ["x", "value"],
        )
        for accumulate in (True, False)
        for shape in ((2,), (1,))
    ),
    ("repeat_interleave", {"X": f(2, 3)}, {"Repeats": 2, "dim": 1}, {"Out": F}, ["X"]),
    ("repeat_interleave", {"X": f(3, 2), "RepeatsTensor": np.int32([2, 0, 1])}, {"dim": 0}, {"Out": F}, ["X"]),
    ("broadcast_tensors", {"X": [f(2, 1), f(3)]}, {}, {"Out": [F, F]}, []),
    *(
        ("fill_diagonal", {"X": f(*shape)}, {"value": 3.0, "offset": offset, "wrap": wrap}, {"Out": F}, ["X"])
        for shape, offset, wrap in (
            ((3, 3), 0, False),
            ((3, 3), 1, False),
            ((4, 3), -1, False),
            ((7, 3), 0, True),
            ((7, 3), 0, False),
            ((2, 2, 2), 0, False),
        )
    ),
    ("fill_diagonal_tensor", {"X": f(3, 4), "Y": f(3)}, {"offset": 1, "dim1": 0, "dim2": 1}, {"Out": F}, ["X"]),
    ("fill_diagonal_tensor", {"X": f(2, 3, 4), "Y": f(3, 2)}, {"offset": 0, "dim1": 0, "dim2": 2}, {"Out": F}, ["X"]),
    ("diag_embed", {"Input": f(2, 3)}, {"offset": -1, "dim1": 0, "dim2": 2}, {"Out": F}, []),
    ("tril_indices", {}, {"rows": 3, "cols": 4, "offset": 1, "dtype": 3}, {"out": L}, []),
    ("triu_indices", {}, {"row": 3, "col": 4, "offset": -1, "dtype": 2}, {"out": I}, []),
    ("renorm", {"X": f(3, 4, low=0.5, high=2)}, {"p": 2.0, "axis": 0, "max_norm": 2.0}, {"Out": F}, ["X"]),
    ("renorm", {"X": f(2, 3, 2)}, {"p": 1.0, "axis": 2, "max_norm": 1.0}, {"Out": F}, ["X"]),
    ("trunc", {"X": f(2, 3, low=-3, high=3)}, {}, {"Out": F}, ["X"]),
    ("fill_any", {"X": f(2, 3)}, {"value": 2.5}, {"Out": F}, ["X"]),
    (
        "logspace",
        {"Start": np.float32([0]), "Stop": np.float32([3]), "Num": np.int32([4]), "Base": np.float32([2])},
        {"dtype": 5},
        {"Out": F},
        [],
    ),
    *(
        (
            "segment_pool",
            {"X": f(5, 2), "SegmentIds": np.int64([0, 0, 1, 3, 3])},
            {"pooltype": how},
            {"Out": F, "SummedIds": F},
            ["X"],
        )
        for how in HOW
    ),
    *(
        ("graph_send_recv", {"X": f(3, 2), **EDGES}, {"reduce_op": how, "out_size": [0]}, {"Out": F, "Dst_count": I}, ["X"])
        for how in HOW
    ),
    *(
        (
            "graph_send_ue_recv",
            {"X": f(3, 2), "Y": f(4, width), **EDGES},
            {"message_op": message, "reduce_op": how, "out_size": [0]},
            {"Out": F, "Dst_count": I},
            ["X", "Y"],
        )
        for how in HOW
        for message in ("ADD", "MUL")
        for width in (1, 2)
    ),
    *(
        (
            "graph_send_uv",
            {"x": f(3, 2), "y": f(3, 2), "src_index": EDGES["Src_index"], "dst_index": EDGES["Dst_index"]},
            {"message_op": message},
            {"out": F},
            ["x", "y"],
        )
        for message in ("ADD", "MUL")
    ),
    (
        "graph_reindex",
        {"X": np.int64([0, 5, 2]), "Neighbors": np.int64([8, 9, 0, 4, 7, 6, 7]), "Count": np.int32([2, 3, 2])},
        {},
        {"Reindex_Src": L, "Reindex_Dst": L, "Out_Nodes": L},
        [],
    ),
    *(
        (
            "viterbi_decode",
            {"Input": f(3, 5, 4), "Transition": f(4, 4), "Length": np.int64(lengths)},
            {"include_bos_eos_tag": tags},
            {"Scores": F, "Path": L},
            [],
        )
        for tags in (True, False)
        for lengths in ([5, 3, 1], [2, 4, 4])
    ),
    *(
        (
            "warprnnt",
            {
                "input": f(2, 4, 3, 5),
                "label": np.int32([[1, 2], [3, 0]]),
                "input_lengths": np.int32([4, 3]),
                "label_lengths": np.int32([2, 1]),
            },
            {"blank": 0, "fastemit_lambda": more},
            {"loss": F, "warprnntgrad": F},
            ["input"],
        )
        for more in (0.0, 0.3)
    ),
]

if __name__ == "__main__":
    write(Path(__file__).parent / "paddle_arrays.npz", CASES)
