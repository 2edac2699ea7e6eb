"""Checks the feeds and fetches of a run against the program."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fluid.errors import ExecutionError, FeedError, FeedTypeError, FluidError, FluidTypeError, did_you_mean, shown, type_name
from fluid.ir.advice import of_other_program
from fluid.ir.frames import warn_user
from fluid.ir.program import Block, OpRole, Program, Variable, default_main_program
from fluid.parallel.mesh import Mesh
from fluid.values.bfloat16 import BFLOAT16, computable, to_bfloat16
from fluid.values.lod_array import LoDArray, array_of, to_lod
from fluid.values.lod_tensor import FedArray, Remote
from fluid.values.numeric import DEFAULT_INT, NO_NUMBERS, numeric_array, said_by
from fluid.values.place import CUDA_MEMORY, HOST_MEMORY, Place, XLAPlace, to_numpy
from fluid.values.types import VarType, as_dtype, is_floating

from .runtime.scope import LoDTensor, Scope, checked_scope, global_scope


def checked_feeds(
    program: Program, feed: Mapping[Any, Any], place: Place, device_array: type[Any] = np.ndarray
) -> dict[str, Any]:
    """Check fed values against the declared variables, and convert them to arrays for a place; arrays of type `device_array`
    stay. Values for names that the program lacks are passed over."""
    if type(feed) is not dict and not isinstance(feed, Mapping):
        raise FeedTypeError(f"feed should be a dict of variable name -> array, not {type(feed).__name__}")
    block = program.global_block()
    feeds = {}
    for name, value in feed.items():
        name = name.name if isinstance(name, Variable) else name
        var = block.vars.get(name)
        if var is None:
            _pass_over(name, feed, program)
            continue
        try:
            feeds[name] = _fed(var, value, place, device_array)
        except FluidError:
            raise
        except Exception as error:  # the value raises when it is inspected
            raise FeedError(f"the feed of {var.name} ({var.describe()}) raises an error: {said_by(error)}") from error
    return feeds


_passed_over: WeakKeyDictionary[Program, tuple[int, dict[Any, str]]] = WeakKeyDictionary()
"""Program -> its version, and the warnings so far: a fed name that no variable has, and all fed names -> the text."""


def _pass_over(name: Any, feed: Mapping[Any, Any], program: Program) -> None:
    """Warn that no variable has a fed name; a `FeedError` where it resembles the name of a variable without a feed."""
    version, warnings = _passed_over.get(program, (None, {}))
    if version != program.version:
        warnings = {}
        _passed_over[program] = program.version, warnings
    fed = frozenset(getattr(key, "name", key) for key in feed)
    warning = warnings.get((name, fed))
    if warning is None:
        warnings[name, fed] = warning = _warning_of(name, fed, program.global_block())
    warn_user(warning)


def _warning_of(name: Any, fed: Collection[Any], block: Block) -> str:
    """The text of the warning; a `FeedError` where the name resembles the name of a variable without a feed."""
    data = [var.name for var in block.vars.values() if var.is_data]
    hint = did_you_mean(name, [key for key in data if key not in fed])
    problem = f"{shown(name)} is fed, but the program has no such variable"
    if hint or not isinstance(name, str):
        raise FeedError(problem + (hint or f"; it is fed {', '.join(data) or 'nothing'}"))
    hint = did_you_mean(name, data) or f"; it is fed {', '.join(data) or 'nothing'}"
    return f"{problem}, so the value is passed over{hint}"


def one_feed(feed: Any) -> Any:
    """The feed as one dict; loaders make lists of one."""
    if isinstance(feed, (list, tuple)) and feed and all(isinstance(item, Mapping) for item in feed):
        if len(feed) > 1:
            raise FeedError(f"feed is a list of {len(feed)} dicts, one for each device; programs run on one device here")
        feed = feed[0]
    return feed if feed is not None else {}


def with_loaders(program: Program, feed: Any) -> Any:
    """The feed as one dict, with values of the program's loaders for variables that are not fed."""
    if type(feed) is dict and not program.loaders:
        return feed
    feed = one_feed(feed)
    for loader in program.loaders:
        names = {var.name for var in loader.variables} & set(program.global_block().vars)
        if names and isinstance(feed, Mapping) and not names & {getattr(name, "name", name) for name in feed}:
            feed = {**feed, **{name: value for name, value in loader.next_feed().items() if name in names}}
    return feed


def fetched_names(program: Program, fetch_list: Any) -> list[str]:
    """The names in a fetch list; a `FeedError` for a variable of another program."""
    if type(fetch_list) is list:
        names = [item.name for item in fetch_list if type(item) is Variable and item.block.program is program]
        if len(names) == len(fetch_list):
            return names
    if fetch_list is None:
        return []
    items = [fetch_list] if isinstance(fetch_list, (str, Variable)) else fetch_list
    if type(items) is not list and (isinstance(items, (bytes, Mapping)) or not isinstance(items, Iterable)):
        raise FeedError(f"fetch_list should be a list of Variables or names, not {shown(fetch_list)}")
    try:
        return [_name_of(program, item) if isinstance(item, Variable) else _name(item) for item in items]
    except FluidError:
        raise
    except Exception as error:  # the list raises when it is iterated
        raise FeedError(f"fetch_list should be a list of Variables or names; it raises an error: {said_by(error)}") from error


def _name_of(program: Program, var: Variable) -> str:
    if var.block.program is not program and var.name not in program.global_block().vars:
        raise FeedError(f"fetch_list: {of_other_program(var)}")
    return var.name


def _name(item: Any) -> str:
    if not isinstance(item, str):
        raise FeedTypeError(f"fetch_list holds {shown(item)}, which is neither a Variable nor a name")
    return item


def checked_fetches(program: Program, names: list[str]) -> list[str]:
    """The names, if the program has such variables."""
    variables = program.global_block().vars
    for name in names:
        if name not in variables:
            hint = _why_no_gradient(variables, name) or did_you_mean(name, variables)
            raise FeedError(f"{name!r} is to be fetched, but the program's block 0 has no such variable{hint}")
    return names


def _why_no_gradient(variables: Mapping[str, Variable], name: str) -> str:
    """Advice for the name of a gradient that the program does not compute."""
    var = variables.get(name.removesuffix("@GRAD"))
    if not name.endswith("@GRAD") or var is None:
        return ""
    if var.stop_gradient:
        return (
            f": no gradient flows to {var.name}, as its stop_gradient is True; set {var.name}.stop_gradient = False before "
            f"minimize, or use fluid.gradients(loss, {var.name})"
        )
    return f": no backward part computes it; fluid.gradients(loss, {var.name}) adds it, and returns the variable to fetch"


def _fed(var: Variable, value: Any, place: Place, device_array: type[Any]) -> Any:
    """A fed value as an array of the declared type and shape, with its LoD if any; a list of them for an array of tensors."""
    if var.type is VarType.LOD_TENSOR_ARRAY and isinstance(value, (list, tuple)):
        return [_as_item(var, item) for item in value]
    levels: Any = ()
    if isinstance(value, LoDTensor):
        if value.held is None:
            raise FeedError(f"the LoDTensor that is fed to {var.name} ({var.describe()}) holds nothing; set() it first")
        on_device = value.held.device_array if isinstance(value.held, Remote) else None
        value, levels = on_device if type(on_device) is device_array else value.array, value.lod()
    elif type(value) is FedArray:
        value = value.view(np.ndarray)
    elif var.lod_level and _is_pair(value):
        value, levels = value
    try:
        array = _fed_array(var, _imported(var, value, place, device_array), device_array)
    except FeedError:
        if not _is_pair(value):
            raise
        raise FeedError(
            f"{var.name} ({var.describe()}) is declared without sequences, but an array with lengths is fed; declare it with "
            "lod_level=1, or feed the array alone"
        ) from None
    try:
        lod = to_lod(levels, array.shape[0] if array.ndim else 0)
        return LoDArray(array, lod) if lod else array
    except ExecutionError as error:
        raise FeedError(f"the feed of {var.name} ({var.describe()}, lod_level={var.lod_level}): {error}") from None


def _as_item(var: Variable, item: Any) -> Any:
    """An entry of a list that is fed to an array of tensors."""
    array = numeric_array(item, f"the feed of {var.name} ({var.describe()}) holds an item that is no array")
    if array.dtype != var.dtype.array_dtype:
        raise FeedError(
            f"{var.name} is an array of tensors of {var.dtype.text}, but one of {array.dtype} is fed{_converting(var)}"
        )
    return array


def _is_pair(value: Any) -> bool:
    """Whether a value is a pair of an array and lengths of sequences."""
    return isinstance(value, tuple) and len(value) == 2 and (isinstance(value[1], list) or getattr(value[0], "ndim", 0) > 0)


def _imported(var: Variable, value: Any, place: Place, device_array: type[Any]) -> Any:
    """A fed array of another library, such as a tensor of torch, as an array that shares its memory; other values unchanged."""
    if isinstance(value, (np.ndarray, device_array)):
        return value
    device = getattr(value, "__dlpack_device__", None)
    kind = 0 if device is None else device()[0]
    if kind in HOST_MEMORY:
        try:
            return np.from_dlpack(value)
        except Exception:  # numpy lacks the element type, or shares no such memory: the value may be converted
            return value
    if kind not in CUDA_MEMORY:
        return value
    try:
        return place.from_cuda(value)
    except ExecutionError as error:
        raise FeedError(f"{type(value).__name__} is fed to {var.name} ({var.describe()}), but {error}") from None


def _fed_array(var: Variable, value: Any, device_array: type[Any]) -> Any:
    expected = var.dtype.array_dtype
    if expected == BFLOAT16 and getattr(value, "dtype", None) != BFLOAT16:  # numpy lacks it: round floats
        value = to_bfloat16(_converted(var, value, np.dtype("float32")))
    is_on_device = type(value) is device_array and value.dtype == expected
    is_array = type(value) is np.ndarray or is_on_device or hasattr(value, "__cuda_array_interface__")
    if not is_array or value.dtype.kind in NO_NUMBERS:
        value = _converted(var, value, expected)
    # The default differs from int64 in a browser, where pointers have 32 bits.
    if expected == np.int64 and value.dtype == DEFAULT_INT and not is_on_device:
        value = value.astype(np.int64, copy=False)
    if value.dtype != expected and value.dtype.kind == expected.kind == "f" and _is_unchecked(var):
        warn_user(
            f"{_of_other_sizes(var, value)}; it is converted in each run: convert it once, with .astype({var.dtype.text!r})"
        )
        value = value.astype(expected)
    if value.dtype != expected and not (value.dtype.kind in "biu" and _is_unchecked(var)):
        raise FeedError(_of_other_sizes(var, value) + _converting(var))
    if not value.size:
        _warn_if_trained(var, value)
    if var.need_check_feed and not _is_of_declared_sizes(var, value):
        raise FeedError(_of_other_sizes(var, value) + _reshaping(var, value))
    return value


def _warn_if_trained(var: Variable, value: Any) -> None:
    """Warn of an empty batch for a program that trains: the mean of nothing is NaN, and so are the weights after the update."""
    if any(op.role & OpRole.OPTIMIZE for op in var.block.program.global_block().ops):
        warn_user(
            f"{var.name} is fed {value.dtype}{list(value.shape)}, an empty batch: the mean of its losses is NaN, and the update "
            "makes the weights NaN; leave such a batch out"
        )


def _is_unchecked(var: Variable) -> bool:
    """Whether values of other types and sizes than the declared ones are left to the ops: of `layers.data`, as in Fluid 1.6."""
    return not var.need_check_feed and (var.is_data or not var.persistable)


def _converting(var: Variable) -> str:
    return f"; convert it, for instance with .astype({var.dtype.text!r})"


def _is_of_declared_sizes(var: Variable, value: Any) -> bool:
    if not var.has_shape:
        return True
    return len(value.shape) == len(var.shape) and all(a in (-1, b) for a, b in zip(var.shape, value.shape, strict=True))


def _of_other_sizes(var: Variable, value: Any) -> str:
    fixed = var.block.program.fixed_sizes.get(var.name)
    why = "" if fixed is None else f" ({fixed})"
    return f"{var.name} is declared {var.describe()}, but {value.dtype}{list(value.shape)} is fed{why}"


def _reshaping(var: Variable, value: Any) -> str:
    """Advice for a value that lacks dimensions of size 1, such as labels ``[N]`` in place of ``[N, 1]``, or has too many."""
    if len(var.shape) == len(value.shape) == 4:
        first, second = var.shape[1:], value.shape[1:]
        for was, axes in (((second[2], *second[:2]), (0, 3, 1, 2)), ((*second[1:], second[0]), (0, 2, 3, 1))):
            if all(a in (-1, b) for a, b in zip(first, was, strict=True)):
                return f"; it seems to have its channels elsewhere: .transpose{axes} puts them there"
    if len(var.shape) == len(value.shape) + 1 and all(a in (-1, b) for a, b in zip(var.shape[1:], value.shape, strict=True)):
        return f"; it seems to be one sample: array[None] is a batch of one, of shape {[1, *value.shape]}"
    dimensions, sizes = ([size for size in shape if size != 1] for shape in (var.shape, value.shape))
    if (
        var.shape.count(-1) > 1
        or len(dimensions) != len(sizes)
        or any(a not in (-1, b) for a, b in zip(dimensions, sizes, strict=True))
    ):
        return "; declare a size that varies as None" if len(var.shape) == len(value.shape) else ""
    return f"; give it that shape, by .reshape({', '.join(map(str, var.shape))})"


def add_feed_differences(error: ExecutionError, program: Program, feeds: Mapping[str, Any], feed: Any) -> None:
    """Add to an error a list of the `feeds` that hold NaN, or whose sizes or types differ from the declared ones, and of the
    names in the user's `feed` that the program does not have.

    Only `fluid.data` requires equal sizes; variables of `layers.data` accept any that the ops take, as in Fluid 1.6.
    """
    unknown = [name for name in one_feed(feed) if getattr(name, "name", name) not in program.global_block().vars]
    differences = [f"\n  fed: {shown(name)}, which is no variable of the program" for name in unknown]
    for name, value in feeds.items():
        var, array = program.global_block().vars[name], array_of(value)
        is_other_type = array.dtype != var.dtype.array_dtype
        if is_other_type or not _is_of_declared_sizes(var, array):
            differences.append(f"\n  fed: {_of_other_sizes(var, array)}{_converting(var) if is_other_type else ''}")
        if is_floating(as_dtype(array.dtype)) and (count := int(np.isnan(computable(to_numpy(array))).sum())):
            differences.append(f"\n  fed: {name}, which holds NaN ({count} of {array.size} elements)")
    if differences:
        error.restate(str(error) + "".join(differences))


def _converted(var: Variable, value: Any, expected: np.dtype[Any]) -> Any:
    """Convert a list or number of Python to an array, with the declared type if the cast is safe within its kind."""
    try:
        array = numeric_array(value, f"the feed of {var.name} ({var.describe()}) is not an array")
    except FluidTypeError as error:
        raise FeedError(str(error) + _columns_of_text(value)) from None
    if (
        hasattr(value, "dtype")
        or _leaf_has_dtype(value)
        or not (np.can_cast(array.dtype, expected, "same_kind") or array.size == 0)
    ):
        return array
    try:
        return np.asarray(value, dtype=expected)
    except OverflowError:
        limits = np.iinfo(expected)
        raise FeedError(
            f"{var.name} is declared {var.describe()}, but a number outside of {limits.min} to {limits.max} is fed"
        ) from None


def _leaf_has_dtype(value: Any) -> bool:
    """Whether a list holds numbers or arrays of numpy, which have a type, unlike Python's numbers."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (np.ndarray, np.generic))


def _columns_of_text(table: Any) -> str:
    """Advice for a table, such as a DataFrame of pandas, with columns that are no numbers."""
    if not hasattr(table, "columns") or not hasattr(table, "dtypes"):
        return ""
    kinds = zip(table.columns, table.dtypes, strict=False)
    texts = [repr(name) for name, kind in kinds if getattr(kind, "kind", "O") in "OSUMm"]
    if not texts:
        return ""
    return (
        f"; of its columns {', '.join(texts)} hold{'s' if len(texts) == 1 else ''} no numbers: leave them out, or encode them "
        "(table[name].astype('category').cat.codes)"
    )


def program_of(program: Any) -> Program:
    """Resolve the `program` argument: the default main program for None, the inner program of a `CompiledProgram`."""
    program = program if program is not None else default_main_program()
    inner = getattr(program, "program", None)
    program = inner if isinstance(inner, Program) else program  # a CompiledProgram
    if not isinstance(program, Program):
        order = "; the program comes first: run(program, feed, fetch_list), or run(feed=..., fetch_list=...)"
        hint = order if isinstance(program, (dict, list)) else ""
        raise FeedTypeError(f"an Executor runs a Program, not {type_name(program)}{hint}")
    return program


def mesh_of(program: Any, place: Place) -> Mesh | None:
    """The mesh of devices that a program or a `CompiledProgram` runs on; None for one device."""
    mesh = getattr(program, "mesh", None)
    if not isinstance(place, XLAPlace):
        if mesh is not None:
            raise ExecutionError(f"{mesh} is one of devices of XLA, but the program runs on {place}; use fluid.XLAPlace()")
        return None
    if mesh is not None or not getattr(program, "takes_all_devices", False):
        return mesh if isinstance(mesh, Mesh) else None
    return Mesh(data=place.device_count) if place.device_count > 1 else None


def scope_of(scope: Any) -> Scope:
    """The scope that the user means: the global one for None."""
    return global_scope() if scope is None else checked_scope(scope)
