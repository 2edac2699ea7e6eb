"""Comparisons of results that are not determined to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["VECTORS", "assert_same_up_to_factors"]

VECTORS = {
    "eig": {"Eigenvectors": -2},
    "eigh": {"Eigenvectors": -2},
    "eigvalsh": {"Eigenvectors": -2},
    "svd": {"U": -2, "VH": -1},
}
"""Op -> slot of its vectors, which are determined up to their sign (complex ones up to a factor), and their axis."""


def assert_same_up_to_factors(found: Any, expected: Any, axis: int, what: str) -> None:
    """Vectors along an axis agree but for factors of absolute value 1, so their lengths and directions do."""
    assert found.shape == expected.shape and found.dtype == expected.dtype, what
    products = np.sum(found.conj() * expected, axis, keepdims=True)
    lengths = np.sum(expected.conj() * expected, axis, keepdims=True)
    factors = products / np.where(lengths == 0, 1, lengths)
    np.testing.assert_allclose(found * factors, expected, rtol=1e-4, atol=1e-4, err_msg=what)
    np.testing.assert_allclose(np.abs(factors), np.where(lengths == 0, 0, 1), atol=1e-4, err_msg=what)
