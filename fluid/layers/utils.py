"""Nested structures, as in Fluid 1.6: lists, tuples, named tuples and dicts, whose items are taken in the order of the keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..building.nested import items_of, replaced
from ..errors import FluidTypeError, ProgramError
from ..not_here import names_here

__all__ = ["assert_same_structure", "flatten", "is_sequence", "map_structure", "pack_sequence_as"]

__dir__ = names_here(__name__)


def is_sequence(seq: Any) -> bool:
    """Whether a value is a list, a tuple or a dict.

    >>> layers.utils.is_sequence((1, 2)), layers.utils.is_sequence("12")
    (True, False)
    """
    return isinstance(seq, (list, tuple, Mapping))


def flatten(nest: Any) -> list[Any]:
    """The items of a nested structure, in a list.

    >>> layers.utils.flatten({"b": [2, (3,)], "a": 1})
    [1, 2, 3]
    """
    return items_of(nest)


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """The items of a list, nested as a structure is.

    Args:
        structure: the structure to follow.
        flat_sequence: its items.

    Raises:
        ProgramError: there are more or fewer items.

    >>> layers.utils.pack_sequence_as({"b": [0, (0,)], "a": 0}, [1, 2, 3])
    {'b': [2, (3,)], 'a': 1}
    """
    count = len(flatten(structure))
    if len(flat_sequence) != count:
        raise ProgramError(f"pack_sequence_as: the structure has {count} items, and flat_sequence {len(flat_sequence)}")
    items = iter(flat_sequence)
    return replaced(structure, lambda _: next(items))


def map_structure(func: Callable[..., Any], *structure: Any) -> Any:
    """`func` of the items at each place of some structures, nested as the first one is.

    Args:
        func: takes an item of each structure.
        structure: structures that are nested alike.

    Raises:
        FluidTypeError: the structures differ.

    >>> layers.utils.map_structure(lambda x, y: x + y, [1, (2, 3)], [10, (20, 30)])
    [11, (22, 33)]
    """
    for following in structure[1:]:
        assert_same_structure(structure[0], following, check_types=False)
    return pack_sequence_as(structure[0], [func(*items) for items in zip(*map(flatten, structure), strict=True)])


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True) -> None:
    """Raise an error if two structures are nested differently.

    Args:
        nest1, nest2: the structures.
        check_types: whether a list differs from a tuple.

    Raises:
        FluidTypeError: they differ.

    >>> layers.utils.assert_same_structure([1, {"a": 2}], ["x", {"a": "y"}])
    """
    if is_sequence(nest1) != is_sequence(nest2) or isinstance(nest1, Mapping) != isinstance(nest2, Mapping):
        raise FluidTypeError(f"the structures differ: {nest1!r} and {nest2!r}")
    if not is_sequence(nest1):
        return
    if check_types and type(nest1) is not type(nest2):
        raise FluidTypeError(f"the structures differ: a {type(nest1).__name__} and a {type(nest2).__name__}")
    if isinstance(nest1, Mapping) and nest1.keys() != nest2.keys():
        raise FluidTypeError(f"the structures differ: keys {sorted(nest1)} and {sorted(nest2)}")
    if len(nest1) != len(nest2):
        raise FluidTypeError(f"the structures differ: {len(nest1)} items and {len(nest2)}")
    for key in sorted(nest1) if isinstance(nest1, Mapping) else range(len(nest1)):
        assert_same_structure(nest1[key], nest2[key], check_types)
