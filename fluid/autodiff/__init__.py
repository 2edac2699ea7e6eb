"""Differentiating programs: the reverse walk, ops that own blocks, higher orders, recomputation, explanations."""
