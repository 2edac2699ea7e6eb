"""Finding the op whose gradient is no number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import BackwardError
from .graph import Node, chain

if TYPE_CHECKING:
    from .engine import GraphTask

__all__ = ["check", "detect_anomaly", "is_enabled", "set_detect_anomaly"]

_enabled = False


def is_enabled() -> bool:
    """Whether gradients are looked at."""
    return _enabled


class set_detect_anomaly:
    """Look, or do not look, for gradients that are no numbers: from now on, or inside a ``with``."""

    def __init__(self, mode: bool = True) -> None:
        global _enabled
        self._before, _enabled = _enabled, bool(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        global _enabled
        _enabled = self._before


def detect_anomaly(mode: bool = True) -> set_detect_anomaly:
    """Inside the ``with``, a backward pass ends at the first node whose gradient holds a NaN, with an error that names it."""
    return set_detect_anomaly(mode)


def check(node: Node, given: Sequence[Any], found: Sequence[Any], task: GraphTask) -> None:
    """A `BackwardError` if a gradient that `node` found holds a NaN."""
    for number, grad in enumerate(found):
        array = getattr(grad, "_array", grad)
        if array is None or array.dtype.kind not in "fc" or not bool((array != array).any()):
            continue
        before = any(_holds_nan(value) for value in given)
        said = "was given one" if before else "was given none"
        raise BackwardError(
            f"{node.name} gave a gradient that holds a NaN, for input {number} of its op, and {said}\n"
            f"  recorded at: {node.where}\n  its gradient came from:{chain(_parents(node, task)) or ' the start of the pass'}"
        )


def _holds_nan(grad: Any) -> bool:
    array = getattr(grad, "_array", grad)
    return array is not None and bool((array != array).any())


def _parents(node: Node, task: GraphTask) -> list[Node]:
    """Nodes of the pass that give a gradient to `node`."""
    seen: set[Node] = set()
    found = []
    stack = [root for root, _ in task.roots]
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        below = [edge[0] for edge in current._edges if edge is not None]
        if node in below:
            found.append(current)
        stack += below
    return found
