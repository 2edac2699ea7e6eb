"""Differentiating programs: the reverse walk, ops that own blocks, higher orders, recomputation, explanations."""

from . import recurrence, regions  # importing them registers how their ops are differentiated

__all__ = ["recurrence", "regions"]
