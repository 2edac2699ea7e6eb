"""Resizes between all pairs of sizes take Paddle's pixels, with Paddle's weights: see `golden/make_paddle_resize.py`."""

from __future__ import annotations

import numpy as np
import pytest
from checks import each
from paths import TESTS

from fluid.executor.binding.compiled import apply_op

with np.load(TESTS / "golden" / "paddle_resize.npz") as file:
    GOLDEN = dict(file)
PIXELS, WEIGHTS = GOLDEN.pop("pixels"), GOLDEN.pop("weights")


@each("key", GOLDEN)
def test_numbers_of_paddle(key: str) -> None:
    check(key, slice(2, None, 14))


@pytest.mark.slow
@each("key", GOLDEN)
def test_all_numbers_of_paddle(key: str) -> None:
    check(key, slice(None))


def check(key: str, chosen: slice) -> None:
    """Resizes from the chosen ones of all sizes to every size."""
    method, corners, mode, *scale = key.split(",")
    axes = {"linear": 1, "trilinear": 3}.get(method, 2)
    sizes = dict(zip(("out_d", "out_h", "out_w")[-axes:], [1] * axes, strict=True))
    attrs = {"align_corners": corners == "1", "align_mode": int(mode), "interp_method": method}
    attrs |= {"data_layout": "NCHW"}
    for source, expected in list(enumerate(GOLDEN[key], 1))[chosen]:
        image = PIXELS[:source].reshape(*[1] * (axes + 1), source)
        targets = [0] if scale else range(1, len(expected) + 1)
        if scale and not int(source * float(scale[0])):
            continue
        for target, total in zip(targets, np.atleast_1d(expected), strict=True):
            wanted = {"scale": [1.0] * (axes - 1) + [float(scale[0])]} if scale else {**sizes, "out_w": target}
            row = apply_op(f"{method}_interp_v2", {"X": image}, {**attrs, **wanted})["Out"].reshape(-1)
            found = row.astype("float64") @ WEIGHTS[: row.size]
            assert abs(found - total) < 2e-5 + 1e-5 * row.size, f"from {source} to {row.size}: {found}, of Paddle {total}"


def test_factors_are_single_precision() -> None:
    """In a file, 0.7 is the float32 below it; times 10 that is 7 for Paddle, and 6.99 in double precision."""
    factor = float(np.float32(0.7))
    out = apply_op(
        "nearest_interp_v2", {"X": PIXELS[:10].reshape(1, 1, 1, 10)}, {"scale": [1.0, factor], "interp_method": "nearest"}
    )
    assert out["Out"].shape == (1, 1, 1, 7)
    x = np.arange(1.0, 21.0).reshape(2, 10, 1, 1)
    shifted = apply_op("temporal_shift", {"X": x}, {"seg_num": 2, "shift_ratio": float(np.float32(0.35))})["Out"]
    assert (shifted[0] != x[0]).sum() == 7  # of which 3 come from the image before
