"""Kernels: one module per family, named as in `fluid.ops`; see `fluid.executor.kernels.table`."""
