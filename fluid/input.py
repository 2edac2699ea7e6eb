"""`fluid.data`, `fluid.embedding` and `fluid.one_hot`: like those in `layers`, without their extra dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from .ir.program import Variable
from .layers.io import declare
from .layers.nn import lookup, one_hot_of
from .param_attr import AttrLike
from .values.types import DTypeLike, VarType

__all__ = ["data", "embedding", "one_hot"]


def data(name: str, shape: Sequence[int | None], dtype: DTypeLike = "float32", lod_level: int = 0) -> Variable:
    """A variable to be fed, with exactly this shape; None or -1 stands for a dimension that is known when it is fed."""
    return declare(name, shape, dtype, lod_level, VarType.LOD_TENSOR, True, True)


def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: AttrLike = None,
    dtype: DTypeLike = "float32",
) -> Variable:
    """Rows of a table of shape `size`: ids of shape ``[...]`` give ``[..., size[1]]``. See `layers.embedding`."""
    return lookup("lookup_table_v2", input, size, is_sparse, is_distributed, padding_idx, param_attr, dtype)


def one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """Ids of shape ``[...]`` as float32 rows ``[..., depth]`` that are 1 at the id and 0 elsewhere."""
    return one_hot_of("one_hot_v2", input, depth, allow_out_of_range)
