"""Variables that are fed."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ProgramError
from ..framework import Variable, default_main_program
from ..types import DTypeLike, VarType, as_dtype

__all__ = ["data"]


def declare(
    name: str, shape: Sequence[int | None], dtype: DTypeLike, lod_level: int, type: VarType, stop_gradient: bool, check: bool
) -> Variable:
    """A variable of the root block to be fed under `name`; the same declaration twice gives one variable."""
    extents = [-1 if extent is None else int(extent) for extent in shape]
    block = default_main_program().global_block()
    known = block.vars.get(name)
    if known is not None:
        if known.is_data and known.shape == tuple(extents) and known.dtype == as_dtype(dtype):
            return known
        raise ProgramError(
            f"the program has a variable {name!r} already ({known.describe()}); it cannot be declared as data "
            f"of {as_dtype(dtype).text}{extents}"
        )
    return block.create_var(
        name=name,
        shape=extents,
        dtype=dtype,
        type=type,
        lod_level=lod_level,
        stop_gradient=stop_gradient,
        is_data=True,
        need_check_feed=check,
    )


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: DTypeLike = "float32",
    lod_level: int = 0,
    type: VarType = VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """A variable to be fed, of shape ``[-1, *shape]``.

    The batch's extent is put in front unless `append_batch_size` is False or `shape` itself has an unknown extent
    (-1 or None). `fluid.data` takes the shape as it is.
    """
    if append_batch_size and all(extent is not None and extent >= 0 for extent in shape):
        shape = [-1, *shape]
    return declare(name, shape, dtype, lod_level, type, stop_gradient, False)
