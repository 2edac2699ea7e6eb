"""Data sets and what loads them: samples, their order, batches, and processes that make these. `fluid.io` has the names."""
