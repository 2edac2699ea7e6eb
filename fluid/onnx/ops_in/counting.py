"""Count n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import FormatError
from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports


class _NGrams(list[tuple[Any, Any]]):
    """For each length: the n-grams, [count, length], and their columns in the result."""

    def __init__(self, node: OnnxNode) -> None:
        numbers, starts, columns = (node.ints(name) or [] for name in ("pool_int64s", "ngram_counts", "ngram_indexes"))
        if node.strings("pool_strings"):
            raise FormatError("n-grams of strings are not supported")
        done = 0
        for place, start in enumerate(starts):
            length, end = place + 1, starts[place + 1] if place + 1 < len(starts) else len(numbers)
            if not 0 <= start <= end <= len(numbers) or (end - start) % length:
                raise FormatError(f"its ngram_counts {starts} should say where in pool_int64s the n-grams of each length begin")
            grams = np.array(numbers[start:end], np.int64).reshape(-1, length)
            self.append((grams, np.array(columns[done : done + len(grams)], np.int64)))
            done += len(grams)
        if done != len(columns) or min(columns, default=0) < 0:
            raise FormatError(f"its ngram_indexes name {len(columns)} columns, and its pool has {done} n-grams")
        self.columns = max(columns, default=-1) + 1
        if self.columns > len(columns) + (1 << 16):
            raise FormatError(f"its ngram_indexes go up to {self.columns}, of {len(columns)} n-grams")
        self.places = columns


@imports("TfIdfVectorizer", trains=False)
def tf_idf_vectorizer(b: Builder, node: OnnxNode) -> Any:
    """Count the n-grams of a pool in each row; elements of an n-gram may stand apart, all at equal distance."""
    x, pool = b.cast(node[0], VarType.INT64), _NGrams(node)
    length = x.shape[-1]
    if x.ndim not in (1, 2) or length < 0:
        raise FormatError("rows whose length is known only at run time are not supported")
    rows = x if x.ndim == 2 else b.unsqueeze(x, [0])
    least, most, skips = node.int("min_gram_length", 1), node.int("max_gram_length", 1), node.int("max_skip_count", 0)
    counts: Any = None
    for size in range(least, min(most, len(pool), length) + 1):
        grams, columns = pool[size - 1]
        if not len(grams):
            continue
        for step in range(1, (skips if size > 1 else 0) + 2):
            windows = length - (size - 1) * step
            if windows < 1:
                break
            b.reserve(windows, size, itemsize=16)
            b.reserve(len(grams), pool.columns, itemsize=5)
            places = np.arange(windows)[:, None] + np.arange(size)[None] * step
            parts = b.f.reshape2(b.f.gather(rows, b.constant(places.reshape(-1)), axis=1), shape=[-1, windows, 1, size])
            same = b.cast(b.f.equal(parts, b.constant(grams[None, None])), VarType.INT32)
            hits = b.reduce("reduce_min", same, [3], False)
            occurrences = b.cast(b.reduce("reduce_sum", hits, [1], False), VarType.FP32)
            matrix = (columns[:, None] == np.arange(pool.columns)[None]).astype(np.float32)
            part = b.f.matmul_v2(occurrences, b.constant(matrix))
            counts = part if counts is None else b.f.elementwise_add(counts, part)
    if counts is None:
        zeros = b.cast(b.f.elementwise_mul(b.slice(rows, 1, 0, 1), b.number(0, VarType.INT64)), VarType.FP32)
        counts = b.f.elementwise_mul(zeros, b.constant(np.zeros((1, pool.columns), np.float32)))
    return _weighted(b, node, counts if x.ndim == 2 else b.squeeze(counts, [0]), pool)


def _weighted(b: Builder, node: OnnxNode, counts: Any, pool: _NGrams) -> Any:
    mode, weights = node.string("mode"), node.floats("weights")
    factors = np.ones(pool.columns, np.float32)
    if weights is not None:
        if len(weights) != len(pool.places):
            raise FormatError(f"it has {len(weights)} weights for {len(pool.places)} n-grams")
        factors[pool.places] = weights
    if mode not in ("TF", "IDF", "TFIDF"):
        raise FormatError(f"its mode {mode!r} should be TF, IDF or TFIDF")
    if mode == "TF":
        return counts
    if mode == "IDF":
        counts = b.cast(b.f.greater_than(counts, b.number(0.0, VarType.FP32)), VarType.FP32)
    return b.f.elementwise_mul(counts, b.constant(factors))
