"""`fluid.data`, `fluid.embedding` and `fluid.one_hot`: like the functions in `layers`, without their extra dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from .ir.program import Variable
from .layers.io import declare
from .layers.nn import lookup, one_hot_of
from .not_here import names_here
from .param_attr import AttrLike
from .values.types import DTypeLike, VarType

__all__ = ["data", "embedding", "one_hot"]

__dir__ = names_here(__name__)


def data(name: str, shape: Sequence[int | None], dtype: DTypeLike = "float32", lod_level: int = 0) -> Variable:
    """A variable to be fed, with exactly this shape and element type.

    Args:
        name: the name to feed it by.
        shape: its dimensions; None or -1 stands for one that is known when it is fed.
        dtype: its element type.
        lod_level: how many levels of sequences its rows form; 0 for none.

    Returns:
        The variable, of the default main program.

    >>> fluid.data("image", [None, 3, 32, 32])
    <Variable image: float32[-1, 3, 32, 32]>
    """
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
    """Rows of a table: ids of shape ``[...]`` give ``[..., size[1]]``.

    Args:
        input: int64 ids.
        size: shape of the table: how many rows, and how long they are.
        is_sparse: whether the gradient has only the rows that were looked up; see `layers.embedding`.
        is_distributed: whether the workers of a fleet each hold a part of the rows; without several workers, no effect.
        padding_idx: an id that gives zeros; negative ones count from the end; None for no such id.
        param_attr: attributes of the table.
        dtype: its element type.

    >>> words = fluid.data("words", [None, 20], "int64")
    >>> fluid.embedding(words, [1000, 64]).shape
    (-1, 20, 64)
    """
    return lookup("lookup_table_v2", input, size, is_sparse, is_distributed, padding_idx, param_attr, dtype)


def one_hot(input: Variable, depth: int | Variable, allow_out_of_range: bool = False) -> Variable:
    """Ids of shape ``[...]`` as float32 rows ``[..., depth]`` that are 1 at the id and 0 elsewhere.

    Args:
        input: integer ids.
        depth: the length of a row: a number, or a variable of one element.
        allow_out_of_range: whether an id that is not below `depth` gives zeros; otherwise it is an error of the run.

    >>> fluid.one_hot(dygraph.to_variable([0, 2]), 3)
    Tensor([[1., 0., 0.],
            [0., 0., 1.]], shape=[2, 3], dtype=float32)
    """
    return one_hot_of("one_hot_v2", input, depth, allow_out_of_range)
