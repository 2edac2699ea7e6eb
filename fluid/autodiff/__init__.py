"""Differentiating programs: the reverse walk, ops that own blocks, higher orders, recomputation, explanations."""

from . import recurrence, regions  # each registers how it differentiates its ops

__all__ = ["recurrence", "regions"]
