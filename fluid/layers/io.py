"""Variables to be fed, and readers that feed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import unique_name
from ..building.layer_helper import LayerHelper
from ..building.versions import builds
from ..errors import FluidTypeError, ProgramError, shown
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
    """A variable of the root block to be fed as `name`; repeating a declaration returns the same variable."""
    if not isinstance(name, str):
        raise FluidTypeError(f"data: the name should be a string, as in fluid.data('x', [None, 8]), not {shown(name)}")
    _check_shape(name, shape)
    sizes = [-1 if size is None else int(size) for size in shape]
    if check and any(size < -1 for size in sizes):
        raise ProgramError(f"data: shape {sizes} of {name} should have no size below -1, which stands for an unknown one")
    sizes = [max(size, -1) for size in sizes]  # scripts multiply a batch size of -1 by other sizes
    block = default_main_program().global_block()
    existing = block.vars.get(name)
    if existing is not None:
        if existing.is_data and existing.shape == tuple(sizes) and existing.dtype == as_dtype(dtype):
            return existing
        raise ProgramError(
            f"the program has a variable {name!r} already ({existing.describe()}); it cannot be declared as data "
            f"of {as_dtype(dtype).text}{sizes}; take another name, or build in a new program: "
            "with fluid.program_guard(fluid.Program(), fluid.Program()): ..."
        )
    kwargs: dict[str, Any] = {"stop_gradient": stop_gradient, "is_data": True, "need_check_feed": check}
    return block.create_var(name=name, shape=sizes, dtype=dtype, type=type, lod_level=lod_level, **kwargs)


def _check_shape(name: str, shape: Any) -> None:
    """Raise a `FluidTypeError` unless `shape` is a list of sizes."""
    if not isinstance(shape, (list, tuple)) or any(
        size is not None and not isinstance(size, (int, np.integer)) for size in shape
    ):
        example = f"[None, {shape}]" if isinstance(shape, int) else "[None, 8]"
        raise FluidTypeError(
            f"data: the shape of {name} should be a list of sizes, with None for any number of rows, such as {example}, not "
            f"{shown(shape)}"
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

    `fluid.data` never adds the batch dimension, and checks the sizes of feeds; this variable accepts all sizes that its ops take.

    Args:
        name: of the variable, for feeds.
        shape: sizes without the batch, or with it as -1 or None.
        append_batch_size: whether to add the batch dimension, unless `shape` has an unknown size (-1 or None).
        dtype: the element type.
        lod_level: how many levels of sequences the rows form.
        type: accepted as in Fluid; a tensor by default.
        stop_gradient: whether gradients end here.

    >>> layers.data("x", [3, 32, 32]).shape
    (-1, 3, 32, 32)
    >>> layers.data("y", [None, 3]).shape
    (-1, 3)
    """
    if append_batch_size and all(size is not None and size >= 0 for size in shape):
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
    """A loader that feeds variables of its own, which `read_file` returns; it is not iterable. See `fluid.io.PyReader`.

    Args:
        capacity: number of batches to read ahead.
        shapes: of the variables, with the batch dimension (-1).
        dtypes: their element types.
        lod_levels: how many levels of sequences each has; by default 0.
        name: prefix of the variables' names.
        use_double_buffer: accepted and ignored.

    Raises:
        ProgramError: if the numbers of shapes, dtypes and lod_levels differ.

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
    """A loader that feeds existing variables. See `fluid.io.PyReader`.

    Args:
        capacity: number of batches to read ahead.
        feed_list: the variables, from `data`.
        name: accepted and ignored.
        use_double_buffer: accepted and ignored.

    >>> x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1], "int64")
    >>> reader = layers.create_py_reader_by_data(capacity=8, feed_list=[x, y])
    >>> [variable.name for variable in layers.read_file(reader)]
    ['x', 'y']
    """
    from ..reader import PyReader

    return PyReader(feed_list, capacity, use_double_buffer, iterable=False)


def _reader(reader: Any, layer: str) -> PyReader:
    from ..reader import PyReader

    if isinstance(reader, PyReader):
        return reader
    raise FluidTypeError(f"{layer}: reader should be what py_reader gives, not {type(reader).__name__}")


def read_file(reader: Any) -> Variable | list[Variable]:
    """The variables that a reader feeds: a list, or a single variable.

    Args:
        reader: what `py_reader` or `create_py_reader_by_data` returned.

    >>> reader = layers.py_reader(capacity=8, shapes=[[-1, 784]], dtypes=["float32"])
    >>> layers.read_file(reader).shape
    (-1, 784)
    """
    variables = _reader(reader, "read_file").variables
    return variables[0] if len(variables) == 1 else variables


def double_buffer(reader: Any, place: Any = None, name: str | None = None) -> Any:
    """Returns `reader`, which reads ahead by itself.

    Args:
        reader: what `py_reader` or `create_py_reader_by_data` returned.
        place, name: accepted and ignored.

    >>> reader = layers.py_reader(capacity=8, shapes=[[-1, 784]], dtypes=["float32"])
    >>> layers.double_buffer(reader) is reader
    True
    """
    return _reader(reader, "double_buffer")


def load(out: Variable, file_path: str, load_as_fp16: bool | None = None) -> Variable:
    """Appends an op that reads `out` from a file of one variable, as written by `io.save_vars`, in every run; returns `out`.

    In eager mode the file is read at once.

    Args:
        out: the variable to write to.
        file_path: of the file.
        load_as_fp16: whether it is converted to float16.

    >>> weight = layers.create_global_var([2], 1.5, "float32", persistable=True, name="weight")
    >>> executor = fluid.Executor()
    >>> _ = executor.run(fluid.default_startup_program())
    >>> fluid.io.save_vars(executor, "folder", vars=[weight])
    >>> executor.run(fetch_list=[layers.load(weight, "folder/weight")])
    [array([1.5, 1.5], dtype=float32)]
    """
    check_variable(out, "load: out")
    attrs = {"file_path": file_path, "load_as_fp16": bool(load_as_fp16)}
    LayerHelper("load").append_op("load", outputs={"Out": out}, attrs=attrs)
    return out
