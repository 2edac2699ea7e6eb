"""Variables that are fed, and what feeds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import unique_name
from ..building.layer_helper import LayerHelper
from ..building.versions import builds
from ..errors import FluidTypeError, ProgramError
from ..ir.checked import check_variable
from ..ir.program import Variable, default_main_program
from ..values.types import DTypeLike, VarType, as_dtype

if TYPE_CHECKING:
    from ..reader import PyReader

__all__ = ["create_py_reader_by_data", "data", "double_buffer", "load", "py_reader", "read_file"]


@builds
def declare(
    name: str, shape: Sequence[int | None], dtype: DTypeLike, lod_level: int, type: VarType, stop_gradient: bool, check: bool
) -> Variable:
    """A variable of the root block to be fed under `name`; the same declaration twice gives one variable."""
    extents = [-1 if extent is None else int(extent) for extent in shape]
    if any(extent < -1 for extent in extents):
        raise ProgramError(f"data: shape {extents} of {name} should have no extent below -1, which stands for an unknown one")
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

    >>> layers.data("x", [3, 32, 32]).shape
    (-1, 3, 32, 32)
    >>> layers.data("y", [None, 3]).shape
    (-1, 3)
    """
    if append_batch_size and all(extent is not None and extent >= 0 for extent in shape):
        shape = [-1, *shape]
    return declare(name, shape, dtype, lod_level, type, stop_gradient, False)


# --------------------------------------------------------------------------------------------------------------- readers
def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[DTypeLike],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> PyReader:
    """A loader, not iterable, with variables of its own, which `read_file` gives: see `fluid.io.PyReader`.

    Args:
        capacity: how many batches are read ahead.
        shapes, dtypes, lod_levels: of the variables, the batch's extent (-1) included; lod_levels are 0 if None.
        name: what the variables' names begin with.
        use_double_buffer: accepted as in Fluid; of no effect.

    >>> reader = layers.py_reader(capacity=8, shapes=[[-1, 784], [-1, 1]], dtypes=["float32", "int64"])
    >>> image, label = layers.read_file(reader)
    >>> image.shape, label.shape
    ((-1, 784), (-1, 1))
    """
    levels = lod_levels if lod_levels is not None else [0] * len(shapes)
    if not len(shapes) == len(dtypes) == len(levels):
        raise ProgramError(f"py_reader: there are {len(shapes)} shapes, {len(dtypes)} dtypes and {len(levels)} lod_levels")
    base = name if name is not None else unique_name.generate("py_reader")
    feeds = [
        declare(f"{base}_{number}", shape, dtype, level, VarType.LOD_TENSOR, True, True)
        for number, (shape, dtype, level) in enumerate(zip(shapes, dtypes, levels, strict=True))
    ]
    return create_py_reader_by_data(capacity, feeds, name, use_double_buffer)


@builds
def create_py_reader_by_data(
    capacity: int, feed_list: Sequence[Variable], name: str | None = None, use_double_buffer: bool = True
) -> PyReader:
    """A loader, not iterable, of these variables; arguments as of `py_reader`."""
    from ..reader import PyReader

    return PyReader(feed_list, capacity, use_double_buffer, iterable=False)


def _reader(reader: Any, layer: str) -> PyReader:
    from ..reader import PyReader

    if isinstance(reader, PyReader):
        return reader
    raise FluidTypeError(f"{layer}: reader should be what py_reader gives, not {type(reader).__name__}")


def read_file(reader: Any) -> Variable | list[Variable]:
    """The variables that a reader feeds: a list, or the one there is."""
    found = _reader(reader, "read_file").variables
    return found[0] if len(found) == 1 else found


def double_buffer(reader: Any, place: Any = None, name: str | None = None) -> Any:
    """The reader itself, which reads ahead anyway."""
    return _reader(reader, "double_buffer")


def load(out: Variable, file_path: str, load_as_fp16: bool | None = None) -> Variable:
    """Append an op that reads `out` from a file, as `io.save_vars` writes one of a variable, whenever the program runs.

    Gives `out`. A tensor of eager mode is read at once.
    """
    check_variable(out, "load: out")
    LayerHelper("load").append_op(
        "load", outputs={"Out": out}, attrs={"file_path": file_path, "load_as_fp16": bool(load_as_fp16)}
    )
    return out
