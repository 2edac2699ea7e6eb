"""Finding the op whose gradient is NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import BackwardError
from ..values.selected_rows import SelectedRows
from .graph import AccumulateGrad, Node, chain

if TYPE_CHECKING:
    from .engine import GraphTask


_enabled = False


def is_enabled() -> bool:
    """Whether gradients are checked for NaN."""
    return _enabled


class set_detect_anomaly:
    """Switch the check of gradients for NaN on or off: from now on, or inside a ``with``.

    Args:
        mode: whether to check.

    >>> x = dygraph.Tensor([0.0], stop_gradient=False)
    >>> with dygraph.set_detect_anomaly():
    ...     layers.sqrt(x * x).sum().backward()  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fluid.errors.BackwardError: a gradient is NaN
    """

    def __init__(self, mode: bool = True) -> None:
        global _enabled
        self._before, _enabled = _enabled, bool(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        global _enabled
        _enabled = self._before


def detect_anomaly(mode: bool = True) -> set_detect_anomaly:
    """In the ``with`` block, a backward pass ends at the first node with a NaN in its gradients, and the error names the node.

    Args:
        mode: whether to check.

    >>> with dygraph.detect_anomaly():
    ...     dygraph.Tensor([2.0], stop_gradient=False).sum().backward()
    """
    return set_detect_anomaly(mode)


def check(node: Node, received: Sequence[Any], gradients: Sequence[Any], task: GraphTask) -> None:
    """Raise a `BackwardError` if a gradient that `node` computed, or that ends there, contains a NaN."""
    if not gradients and any(_holds_nan(value) for value in received):
        raise BackwardError(
            f"the gradient that ends in {_description(node)} holds a NaN, though no node gave one: a hook did, or it is a sum of "
            f"infinite gradients\n  its gradient came from:{_came_from(node, task)}"
        )
    for number, grad in enumerate(gradients):
        if not _holds_nan(grad):
            continue
        origin = "was given one" if any(_holds_nan(value) for value in received) else "was given none"
        raise BackwardError(
            f"{node.name} gave a gradient that holds a NaN, for input {number} of its op, and {origin}\n"
            f"  recorded at: {node.where}\n  its gradient came from:{_came_from(node, task)}"
        )


def _description(node: Node) -> str:
    return f"{node.variable.name} ({node.variable.describe()})" if isinstance(node, AccumulateGrad) else node.name


def _came_from(node: Node, task: GraphTask) -> str:
    return chain(_parents(node, task)) or " the start of the pass"


def _holds_nan(grad: Any) -> bool:
    array = getattr(grad, "_array", grad)
    if isinstance(array, SelectedRows):
        array = array.value
    return array is not None and array.dtype.kind in "fc" and bool((array != array).any())


def _parents(node: Node, task: GraphTask) -> list[Node]:
    """The nodes of the pass with an edge to `node`."""
    seen: set[Node] = set()
    parents = []
    stack = [root for root, _ in task.roots]
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        below = [edge[0] for edge in current._edges if edge is not None]
        if node in below:
            parents.append(current)
        stack += below
    return parents
