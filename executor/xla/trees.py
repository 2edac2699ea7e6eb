"""Values of environments as trees of jax values, as loops and branches of XLA pass them.

The leaves of a value are its arrays. Facts known at trace time (the LoD, the height of sparse rows, the length of a list) belong
to the tree, and have to be the same in each trip of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

from fluid.errors import ExecutionError
from fluid.values.lod_array import LoDArray
from fluid.values.selected_rows import SelectedRows

from ..stepwise.rank_table import RankTable
from .arrays import Array, wrap


def _rows_of(height: int, leaves: Sequence[Any]) -> SelectedRows:
    index, value = leaves
    return SelectedRows(index, value, height)


def _register(kind: type, leaves: Callable[[Any], Any], static: Callable[[Any], Any], build: Callable[[Any, Any], Any]) -> None:
    jax.tree_util.register_pytree_node(kind, lambda value: (leaves(value), static(value)), build)


_register(Array, lambda array: (array.read(),), lambda array: None, lambda _, leaves: wrap(leaves[0]))
_register(LoDArray, lambda value: (value.array,), lambda value: value.lod, lambda lod, leaves: LoDArray(leaves[0], lod))
_register(SelectedRows, lambda rows: (rows.index, rows.value), lambda rows: rows.shape[0], _rows_of)
jax.tree_util.register_static(RankTable)


class ShapesVary(ExecutionError):
    """A value that XLA needs in one shape has several; `subject` names it."""

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"{subject}; where only running tells how often a loop runs, which branch is taken, or which entry of an array is "
            "read, XLA needs one shape. Make that a constant of the program, or run it on CPUPlace()"
        )


class Form(NamedTuple):
    """The form of a value, known at trace time: its tree, and the shapes and element types of its leaves."""

    tree: Any
    leaves: tuple[tuple[tuple[int, ...], Any], ...]

    def __str__(self) -> str:
        shapes = [f"{dtype}{list(shape)}" for shape, dtype in self.leaves]
        return shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})" if shapes else "not set"


def flatten(value: Any) -> tuple[list[Any], Any]:
    """Split a value into its leaves and its tree."""
    leaves, tree = jax.tree.flatten(value)
    return leaves, tree


def unflatten(tree: Any, leaves: Sequence[Any]) -> Any:
    """Build a value from a tree and leaves, in new arrays."""
    return jax.tree.unflatten(tree, leaves)


def form_of(value: Any) -> Form:
    """The form of a value."""
    leaves, tree = flatten(value)
    return Form(tree, tuple((tuple(leaf.shape), leaf.dtype) for leaf in leaves))


def zeros_of(form: Form) -> Any:
    """A value of zeros of this form."""
    return unflatten(form.tree, [jnp.zeros(shape, dtype) for shape, dtype in form.leaves])
