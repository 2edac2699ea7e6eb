"""Runs programs op by op: loops, branches, recurrences, arrays of tensors, and ops with side effects."""
