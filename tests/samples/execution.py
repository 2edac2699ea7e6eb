"""Samples of `fluid.ops.execution`: ops that change nothing."""

from __future__ import annotations

from .base import Data, Sample, add

data = Data("execution")

for op_type in ("memcpy", "memcpy_d2h", "memcpy_h2d", "share_data"):
    add(op_type, Sample({"X": data(2, 3)}, {}, lambda X: X))
for op_type in ("npu_identity", "shadow_output"):
    add(op_type, Sample({"x": data(2, 3)}, {}, lambda x: x))
add("depend", Sample({"X": data(2, 3), "Dep": [data(1), data.ints(2)]}, {}, lambda X, Dep: X, wrt=["X"]))
add("share_buffer", Sample({"X": [data(2, 3), data(4)]}, {}, lambda X: {"Out": X, "XOut": X}))
for source, target in ((5, 6), (6, 5)):
    dtype = {5: "float32", 6: "float64"}
    sample = Sample(
        {"X": data(2, 3)},
        {"in_dtype": source, "out_dtype": target},
        lambda X, in_dtype, out_dtype, dtype=dtype: X.astype(dtype[out_dtype]),
        dtypes=[dtype[source]],
        tolerance=1e4,
        orders=0 if target == 5 else 2,
    )
    add("transfer_dtype", sample)
