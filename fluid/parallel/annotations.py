"""Annotations that say how a program's variables are split over the devices of a mesh, whichever mesh it will run on."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ..errors import NameNotFoundError, ProgramError, did_you_mean
from ..ir.program import Program, Variable
from .mesh import Mesh

__all__ = ["check_fits", "shard"]


def shard(program: Program, pattern: str, axes: Sequence[str | None] | str | None) -> list[str]:
    """Say how variables are split; see `Program.shard`."""
    named = axes if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)
    for axis in named or ():
        if axis is not None and (not isinstance(axis, str) or not axis):
            raise ProgramError(f"shard({pattern!r}): an axis is the name of a mesh's axis, or None, not {axis!r}")
    split = [axis for axis in named or () if axis is not None]
    if len(set(split)) != len(split):
        raise ProgramError(f"shard({pattern!r}): one axis of a mesh splits one dimension, but {list(named or ())} repeats one")
    variables = program.global_block().vars
    lasting = {name: var for name, var in variables.items() if var.persistable or var.is_data}
    matched = [var for name, var in lasting.items() if fnmatchcase(name, pattern)]
    if not matched:
        raise NameNotFoundError(
            f"shard: no variable of block 0 that outlives a run, or is fed, matches {pattern!r}{did_you_mean(pattern, lasting)}; "
            "annotate variables that are there"
        )
    fitting = [var for var in matched if named is None or not var.has_shape or len(named) <= var.ndim]
    if not fitting:
        var = matched[0]
        raise ProgramError(
            f"shard({pattern!r}): {var.name} is {var.describe()}, of {var.ndim} dimensions, but {list(named or ())} names "
            f"{len(named or ())}; name an axis, or None, for each dimension"
        )
    for var in fitting:
        var.sharding = named
    program._changed()
    return [var.name for var in fitting]


def check_fits(mesh: Mesh, var: Variable, shape: Sequence[int], axes: Sequence[str | None]) -> None:
    """Raise `ProgramError` if a variable of this shape cannot be split over these axes of the mesh."""
    names = [name for name, _ in mesh.axes]
    if len(axes) > len(shape):
        raise ProgramError(
            f"{var.name} has the shape {list(shape)}, but is annotated with {len(axes)} axes, {list(axes)}; annotate it again "
            f'with program.shard("{var.name}", ...), with an axis or None for each dimension'
        )
    for dimension, axis in enumerate(axes):
        if axis is None:
            continue
        if axis not in names:
            raise ProgramError(
                f"{var.name} is to be split over the axis {axis!r}, but {mesh} has {', '.join(names)}"
                f'{did_you_mean(axis, names)}; add the axis to the mesh, or annotate with program.shard("{var.name}", ...) again'
            )
        if shape[dimension] % mesh.extent(axis):
            raise ProgramError(
                f"{var.name} has {shape[dimension]} along dimension {dimension} (its shape is {list(shape)}), which cannot be "
                f"split evenly over the {mesh.extent(axis)} devices of the axis {axis!r} of {mesh}; make it a multiple of "
                f"{mesh.extent(axis)}, or split another dimension"
            )
