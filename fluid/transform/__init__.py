"""Changing, pruning, comparing and measuring programs."""
