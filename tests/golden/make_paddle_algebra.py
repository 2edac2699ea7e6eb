"""Writes paddle_algebra.npz: complex numbers, Fourier transforms and linear algebra as Paddle 2.6.2 computes them."""

from pathlib import Path

import numpy as np
from paddle_ops import write

rng = np.random.default_rng(3)


def f(*shape):
    return rng.uniform(-1, 1, shape).astype("float32")


def c(*shape):
    return (rng.uniform(-1, 1, shape) + 1j * rng.uniform(-1, 1, shape)).astype("complex64")


def definite(*batch):
    half = f(*batch, 3, 3)
    return (half @ half.swapaxes(-1, -2) + np.eye(3) * np.arange(1, 4)).astype("float32")


def regular(*batch):
    return (f(*batch, 3, 3) + 2 * np.eye(3)).astype("float32")


F, C, I = "float32", "complex64", "int32"
# Symmetric matrices alone: of a stack of them, Paddle's gradients of eigh and eigvalsh are not symmetric. And no complex cumprod:
# what Paddle gives is not what differences give.
hermitian = (definite() * np.exp(0.4j * (np.arange(3)[:, None] - np.arange(3)))).astype(C)
T = {"normalization": "ortho", "forward": True}
CASES = [
    ("real", {"X": c(2, 3)}, {}, {"Out": F}, ["X"]),
    ("imag", {"X": c(2, 3)}, {}, {"Out": F}, ["X"]),
    ("conj", {"X": c(2, 3)}, {}, {"Out": C}, []),
    ("angle", {"X": c(2, 3)}, {}, {"Out": F}, ["X"]),
    ("angle", {"X": f(2, 3)}, {}, {"Out": F}, ["X"]),
    ("abs", {"X": c(2, 3)}, {}, {"Out": F}, ["X"]),
    ("complex", {"X": f(2, 3), "Y": f(3)}, {}, {"Out": C}, ["X", "Y"]),
    ("as_complex", {"X": f(3, 2)}, {}, {"Out": C}, []),
    ("as_real", {"X": c(3, 2)}, {}, {"Out": F}, []),
    ("elementwise_mul", {"X": c(2, 3), "Y": c(3)}, {"axis": -1}, {"Out": C}, ["X", "Y"]),
    ("elementwise_div", {"X": c(2, 3), "Y": c(2, 3)}, {"axis": -1}, {"Out": C}, ["X", "Y"]),
    ("matmul_v2", {"X": c(2, 3), "Y": c(4, 3)}, {"trans_x": False, "trans_y": True}, {"Out": C}, ["X", "Y"]),
    *((op, {"X": c(2, 3)}, {}, {"Out": C}, ["X"]) for op in ("exp", "sin", "tanh", "sigmoid", "mean")),
    ("kron", {"X": c(2, 2), "Y": c(2, 2)}, {}, {"Out": C}, ["X", "Y"]),
    ("dot", {"X": c(3), "Y": c(3)}, {}, {"Out": C}, ["X", "Y"]),
    ("trace", {"Input": c(3, 3)}, {}, {"Out": C}, ["Input"]),
    ("slice", {"Input": c(3, 3)}, {"axes": [0], "starts": [1], "ends": [2]}, {"Out": C}, ["Input"]),
    ("reduce_sum", {"X": c(2, 3)}, {"dim": [1], "keep_dim": False, "reduce_all": False}, {"Out": C}, ["X"]),
    ("reshape2", {"X": c(2, 3)}, {"shape": [3, 2]}, {"Out": C, "XShape": C}, ["X"]),
    ("transpose2", {"X": c(2, 3)}, {"axis": [1, 0]}, {"Out": C, "XShape": C}, ["X"]),
    *(
        case
        for normalization in ("backward", "ortho", "forward")
        for forward in (True, False)
        for attrs in [{"normalization": normalization, "forward": forward}]
        for case in (
            ("fft_c2c", {"X": c(3, 4)}, {**attrs, "axes": [0, 1]}, {"Out": C}, ["X"]),
            ("fft_r2c", {"X": f(3, 5)}, {**attrs, "axes": [0, 1], "onesided": True}, {"Out": C}, ["X"]),
            ("fft_r2c", {"X": f(3, 4)}, {**attrs, "axes": [1], "onesided": False}, {"Out": C}, ["X"]),
            ("fft_c2r", {"X": c(3, 3)}, {**attrs, "axes": [0, 1], "last_dim_size": 5}, {"Out": F}, ["X"]),
            ("fft_c2r", {"X": c(3, 3)}, {**attrs, "axes": [1], "last_dim_size": 4}, {"Out": F}, ["X"]),
        )
    ),
    ("frame", {"X": f(2, 9)}, {"frame_length": 4, "hop_length": 2, "axis": -1}, {"Out": F}, ["X"]),
    ("frame", {"X": f(9, 2)}, {"frame_length": 4, "hop_length": 3, "axis": 0}, {"Out": F}, ["X"]),
    ("overlap_add", {"X": f(2, 4, 3)}, {"hop_length": 2, "axis": -1}, {"Out": F}, ["X"]),
    ("overlap_add", {"X": f(3, 4, 2)}, {"hop_length": 3, "axis": 0}, {"Out": F}, ["X"]),
    *(
        (
            "stft",
            {"X": f(2, 9), "Window": f(4)},
            {"n_fft": 4, "hop_length": 2, "normalized": normalized, "onesided": True},
            {"Out": C},
            ["X"],
        )
        for normalized in (True, False)
    ),
    ("inverse", {"Input": regular(2)}, {}, {"Output": F}, ["Input"]),
    ("determinant", {"Input": regular(2)}, {}, {"Out": F}, ["Input"]),
    ("slogdeterminant", {"Input": regular(2)}, {}, {"Out": F}, ["Input"]),
    *(("matrix_power", {"X": regular(2)}, {"n": n}, {"Out": F}, ["X"]) for n in (-2, 0, 3)),
    ("multi_dot", {"X": [f(2, 3), f(3, 4), f(4, 2)]}, {}, {"Out": F}, []),
    ("solve", {"X": regular(2), "Y": f(2, 3, 2)}, {}, {"Out": F}, ["X", "Y"]),
    ("solve", {"X": regular(2), "Y": f(2, 3)}, {}, {"Out": F}, ["X", "Y"]),
    *(
        (
            "triangular_solve",
            {"X": regular(), "Y": f(3, 2)},
            {"upper": upper, "transpose": transpose, "unitriangular": unitriangular},
            {"Out": F},
            ["Y"] if unitriangular and not upper else ["X", "Y"],  # of X, Paddle's also has numbers where it is not read
        )
        for upper in (True, False)
        for transpose in (True, False)
        for unitriangular in (True, False)
    ),
    *(("cholesky", {"X": definite(2)}, {"upper": upper}, {"Out": F}, ["X"]) for upper in (True, False)),
    *(
        (
            "cholesky_solve",
            {"X": f(3, 2), "Y": np.triu(regular()) if upper else np.tril(regular())},
            {"upper": upper},
            {"Out": F},
            ["X", "Y"],
        )
        for upper in (True, False)
    ),
    ("eigvalsh", {"X": definite()}, {"UPLO": "L", "is_test": False}, {"Eigenvalues": F, "Eigenvectors": F}, ["X"]),
    ("eigvalsh", {"X": hermitian}, {"UPLO": "L", "is_test": False}, {"Eigenvalues": F, "Eigenvectors": C}, ["X"]),
    ("eigh", {"X": definite()}, {"UPLO": "U"}, {"Eigenvalues": F, "Eigenvectors": F}, ["X"]),
    ("eigh", {"X": definite()}, {"UPLO": "L"}, {"Eigenvectors": F, "Eigenvalues": F}, ["X"]),
    ("eigh", {"X": hermitian}, {"UPLO": "L"}, {"Eigenvalues": F, "Eigenvectors": C}, ["X"]),
    ("eig", {"X": regular()}, {}, {"Eigenvalues": C, "Eigenvectors": C}, []),
    ("svd", {"X": f(3, 2)}, {"full_matrices": False}, {"U": F, "S": F, "VH": F}, ["X"]),
    ("svd", {"X": f(2, 3)}, {"full_matrices": False}, {"VH": F, "S": F, "U": F}, ["X"]),
    ("svd", {"X": f(2, 3)}, {"full_matrices": False}, {"S": F, "VH": F, "U": F}, ["X"]),
    ("svd", {"X": f(2, 3)}, {"full_matrices": True}, {"U": F, "S": F, "VH": F}, []),
    ("qr", {"X": f(4, 3)}, {"mode": "reduced"}, {"Q": F, "R": F}, ["X"]),
    ("qr", {"X": f(3, 4)}, {"mode": "reduced"}, {"Q": F, "R": F}, ["X"]),
    *(
        ("lu", {"X": f(*shape)}, {"pivots": True}, {"Out": F, "Pivots": I, "Infos": I}, ["X"])
        for shape in ((3, 3), (2, 3, 3), (4, 3), (2, 3))
    ),
    (
        "lu_unpack",
        {"X": f(3, 3), "Pivots": np.int32([3, 3, 3])},
        {"unpack_ludata": True, "unpack_pivots": True},
        {"Pmat": F, "L": F, "U": F},
        [],
    ),
    *(
        (
            "lstsq",
            {"X": x, "Y": f(x.shape[0], 2)},
            {"rcond": 1e-6, "driver": driver},
            {"Solution": F, "Residuals": F, "Rank": I, "SingularValues": F},
            [],
        )
        for driver in ("gels", "gelsy", "gelsd", "gelss")
        for x in (f(4, 2), f(2, 3))
    ),
    ("matrix_rank", {"X": f(4, 2)}, {"tol": 0.0, "hermitian": False, "use_default_tol": True}, {"Out": I}, []),
    ("matrix_rank", {"X": definite()}, {"tol": 2.0, "hermitian": True, "use_default_tol": False}, {"Out": I}, []),
]

if __name__ == "__main__":
    write(Path(__file__).parent / "paddle_algebra.npz", CASES)
