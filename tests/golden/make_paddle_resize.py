"""Makes `paddle_resize.npz`: what Paddle 2.6 gives for resizes between sizes up to 64. Run it where Paddle is installed.

Under ``op,align_corners,align_mode`` lies a row of numbers for each source size, one for each target size; with ``,scale``, a
number for each source size: the sum of the resized image times a weight for each place. `pixels` are the images, `weights`
the weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle

MOST = 64
rng = np.random.default_rng(5)
pixels, weights = rng.uniform(-1, 1, MOST).astype("float32"), rng.uniform(-1, 1, 4 * MOST).astype("float32")
arrays: dict[str, Any] = {"pixels": pixels, "weights": weights}
WAYS = [
    ("nearest", False, 1),
    ("nearest", True, 1),
    *(
        (method, corners, mode)
        for method in ("linear", "bilinear", "trilinear")
        for corners, mode in ((True, 1), (False, 0), (False, 1))
    ),
    ("bicubic", True, 1),
    ("bicubic", False, 1),
]


def resized(method: str, source: int, target: int, scale: list[float], corners: bool, mode: int) -> float:
    """Of an image with one row."""
    ones = {"linear": 0, "trilinear": 2}.get(method, 1)
    x = paddle.to_tensor(pixels[:source].reshape([1, 1] + [1] * ones + [source]))
    run = getattr(paddle._C_ops, f"{method}_interp")
    # A factor of 1 for each axis of extent 1, as there is one factor for each.
    factors = [1.0] * ones + scale if scale else []
    out = run(x, None, None, None, "NCHW", 1 if ones == 2 else 0, 1 if ones else 0, target, factors, method, corners, mode)
    assert out.shape[-1] == (int(source * scale[0]) if scale else target), (method, source, target, scale, out.shape)
    row = out.numpy().reshape(-1).astype("float64")
    return float(row @ weights[: row.size])


for method, corners, mode in WAYS:
    key = f"{method},{int(corners)},{mode}"
    sizes = range(1, MOST + 1)
    arrays[key] = np.array([[resized(method, s, t, [], corners, mode) for t in sizes] for s in sizes], "float32")
    for scale in (0.3, 0.5, 1.5, 1.7, 2.0, 3.0):
        sums = [resized(method, s, -1, [scale], corners, mode) if int(s * scale) else 0.0 for s in sizes]
        arrays[f"{key},{scale}"] = np.array(sums, "float32")
np.savez_compressed(Path(__file__).with_name("paddle_resize.npz"), **arrays)
