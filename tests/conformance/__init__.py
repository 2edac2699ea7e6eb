"""The conformance suite: what holds of every sample of every op, on each engine. `tests/ops/test_conformance.py` runs it.

A facet is a function under `facet`, which says where it applies and on which engine. Engines that are not installed are left out.
"""

from . import in_eager_mode, on_cupy, on_native_code, on_numpy, on_xla  # noqa: F401  (they fill the list of facets)
