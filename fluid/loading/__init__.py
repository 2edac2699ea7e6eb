"""Datasets and loaders: samples, their order, batches, and worker processes. `fluid.io` exports the names."""
