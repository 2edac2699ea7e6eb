"""Saving and loading: parameters, and programs pruned to what they are used for. Files are those of Paddle.

A folder holds one file a variable, or one file with all of them; an inference model is such a folder with a program,
``__model__``, which feeds and fetches by ops of its own. Files are written whole or not at all, and what is read is
checked against the file's real size and against the program before anything in the scope changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .errors import ExecutionError, FormatError, NameNotFoundError, ProgramError
from .framework import Block, Operator, Parameter, Program, Variable, default_main_program
from .ops.registry import EMPTY
from .reader import batch, buffered, cache, chain, compose, firstn, map_readers, shuffle
from .serde import parse_program, serialize_program
from .tensor_io import Lod, atomic_writer, open_tensors, read_file, write_file, write_tensor
from .types import VarType, as_dtype

__all__ = [
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "is_parameter",
    "is_persistable",
    "load_inference_model",
    "load_params",
    "load_persistables",
    "load_vars",
    "map_readers",
    "prune",
    "save_inference_model",
    "save_params",
    "save_persistables",
    "save_vars",
    "shuffle",
]

_MODEL = "__model__"
_FEED, _FETCH = "feed", "fetch"
_NOT_SAVED = frozenset({VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.READER, VarType.RAW, VarType.STEP_SCOPES})


def is_parameter(var: Variable) -> bool:
    """Whether training changes this variable."""
    return isinstance(var, Parameter)


def is_persistable(var: Variable) -> bool:
    """Whether this variable outlives a run and holds values that a file can keep."""
    return var.persistable and var.type not in _NOT_SAVED


Predicate = Callable[[Variable], bool]


# ------------------------------------------------------------------------------------------------------ which and where
def _chosen(program: Program, chosen: Iterable[Variable | str] | None, predicate: Predicate | None) -> list[Variable]:
    """Variables to save or load, sorted by name."""
    if chosen is None:
        found = {var.name: var for var in program.list_vars() if (predicate or is_persistable)(var)}
    else:
        listed = [program.global_block().var(var) if isinstance(var, str) else var for var in chosen]
        found = {var.name: var for var in listed if predicate is None or predicate(var)}
    for var in found.values():
        if var.type is not VarType.LOD_TENSOR:
            raise ProgramError(f"{var.name!r} is a {var.type.name.lower()}; only tensors can be saved to files and loaded")
    return [found[name] for name in sorted(found)]


def _file_of(dirname: str, var: Variable) -> str:
    """The file of a variable. Its name comes from a program, which may come from anywhere: it must not lead out of the folder."""
    parts = var.name.replace("\\", "/").split("/")
    if os.path.isabs(var.name) or ":" in parts[0] or "\0" in var.name or any(part in ("", ".", "..") for part in parts):
        raise ProgramError(f"the variable {var.name!r} cannot have a file of its own in {dirname}; use one file, with filename=")
    return os.path.join(dirname, *parts)


def _scope() -> Any:
    from .executor.scope import global_scope

    return global_scope()


def _value(scope: Any, var: Variable) -> tuple[Any, Lod]:
    found = scope.find_var(var.name)
    tensor = found.get_tensor() if found is not None else None
    if tensor is None or tensor.array is None:
        raise ExecutionError(
            f"{var.name!r} ({var.describe()}) has no value in the scope; run the startup program, or load it, before it is saved"
        )
    return np.asarray(tensor), tensor.lod()


def _check_fits(var: Variable, array: Any, where: str) -> None:
    shape = array.shape
    scalars = ((), (1,))
    alike = len(shape) == len(var.shape) and all(b < 0 or a == b for a, b in zip(shape, var.shape, strict=True))
    if (var.has_shape and not alike and not (shape in scalars and var.shape in scalars)) or (
        var.has_dtype and var.dtype is not as_dtype(array.dtype)
    ):
        raise FormatError(
            f"{where}, variable {var.name!r}: the file holds {array.dtype}{list(shape)}, the program declares {var.describe()}"
        )


# ------------------------------------------------------------------------------------------------------------ variables
def save_vars(
    executor: Any,
    dirname: str,
    main_program: Program | None = None,
    vars: Sequence[Variable | str] | None = None,
    predicate: Predicate | None = None,
    filename: str | None = None,
) -> None:
    """Save variables of the current scope, each to a file of its name, or all to one file.

    Args:
        executor: not used; saving is no program here.
        dirname: folder, made if need be.
        main_program: whose variables; the default main program if None.
        vars: which variables; those that `predicate` accepts if None.
        predicate: function of a `Variable` that says whether to save it.
        filename: name of the one file for all; a file a variable if None.

    Raises:
        ExecutionError: a variable has no value in the scope.
    """
    chosen = _chosen(main_program or default_main_program(), vars, predicate)
    scope = _scope()
    values = [_value(scope, var) for var in chosen]  # all of them first: nothing is written if one is missing
    if filename is not None:
        with atomic_writer(os.path.join(dirname, filename)) as file:
            for array, lod in values:
                write_tensor(file, array, lod)
        return
    for path, (array, lod) in zip([_file_of(dirname, var) for var in chosen], values, strict=True):
        with atomic_writer(path) as file:
            write_tensor(file, array, lod)


def save_params(executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None) -> None:
    """Save the parameters; see `save_vars`."""
    save_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


def save_persistables(executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None) -> None:
    """Save all that outlives a run: parameters, statistics, the state of optimizers; see `save_vars`."""
    save_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


def load_vars(
    executor: Any,
    dirname: str,
    main_program: Program | None = None,
    vars: Sequence[Variable | str] | None = None,
    predicate: Predicate | None = None,
    filename: str | None = None,
) -> None:
    """Load variables into the current scope, on the executor's place; arguments as of `save_vars`.

    The scope changes only if every variable could be read.

    Raises:
        FormatError: a file is missing, damaged, or holds other shapes or dtypes than the program declares.
    """
    chosen = _chosen(main_program or default_main_program(), vars, predicate)
    found: list[tuple[Variable, Any, Lod]] = []
    if filename is not None:
        path = os.path.join(dirname, filename)
        if chosen:
            with open_tensors(path) as reader:
                for var in chosen:
                    array, lod = reader.read(var.name)
                    _check_fits(var, array, path)
                    found.append((var, array, lod))
                reader.finish(len(chosen))
    else:
        for var in chosen:
            path = _file_of(dirname, var)
            with open_tensors(path, f", variable {var.name!r} ({var.describe()})") as reader:
                array, lod = reader.read(var.name)
                reader.finish(1)
            _check_fits(var, array, path)
            found.append((var, array, lod))
    scope, place = _scope(), getattr(executor, "place", None)
    for var, array, lod in found:
        tensor = scope.var(var.name).get_tensor()
        tensor.set(array, place)
        tensor.set_lod(lod)


def load_params(executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None) -> None:
    """Load the parameters; see `load_vars`."""
    load_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


def load_persistables(executor: Any, dirname: str, main_program: Program | None = None, filename: str | None = None) -> None:
    """Load all that outlives a run; see `load_vars`."""
    load_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


# -------------------------------------------------------------------------------------------------------------- pruning
def prune(program: Program, targets: Iterable[Variable | str], feeds: Iterable[str] = ()) -> Program:
    """A copy of the program with only the ops and variables that the targets need.

    Needs stop at the variables in `feeds`: an op that makes one of them is left out, unless it reads it too (an op that
    overwrites what is fed). An op with a sub-block stays if one of its outputs is needed; in its block, what neither
    those outputs nor its own next round need is left out likewise.

    Raises:
        NameNotFoundError: block 0 declares no such target.
    """
    new = program.clone()
    root = new.global_block()
    names = [target if isinstance(target, str) else target.name for target in targets]
    for name in names:
        root.var(name)
    boundary = set(feeds)
    _prune_block(root, set(names), boundary)
    owned = {id(root)}
    stack = [root]
    while stack:
        block: Block | None = stack.pop()
        assert block is not None
        for near in (block.parent, block.forward, *(sub for op in block.ops for sub in op.sub_blocks)):
            if near is not None and id(near) not in owned:
                owned.add(id(near))
                stack.append(near)
    new.blocks = [block for block in new.blocks if id(block) in owned]
    used = {name for block in new.blocks for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    used.update(names, boundary)
    for index, block in enumerate(new.blocks):
        block._idx = index
        block.vars = {name: var for name, var in block.vars.items() if name in used}
    new._current = 0
    new._changed()
    return new


def _overwrites(op: Operator, name: str) -> bool:
    """Whether after this op nothing of the old value of `name` is left."""
    definition = op.definition
    var = op.block.find_var(name)
    if definition is None or op.sub_blocks or var is None or var.type is not VarType.LOD_TENSOR:
        return False
    return all(
        slot in definition.outputs and not definition.outputs[slot].updated for slot, names in op.outputs.items() if name in names
    )


def _prune_block(block: Block, needed: set[str], boundary: set[str]) -> None:
    """Leave out the ops of the root that `needed` does not need."""
    kept = []
    for op in reversed(block.ops):
        outputs, inputs = set(op.output_arg_names), set(op.input_arg_names)
        wanted = {name for name in outputs & needed if name not in boundary or name in inputs}
        if not wanted:
            continue
        kept.append(op)
        needed -= {name for name in wanted if _overwrites(op, name)}
        needed |= inputs
        if op.sub_blocks:
            needed |= _prune_below(op, wanted | inputs)
    block.ops = kept[::-1]


def _must_make(op: Operator) -> set[str]:
    """Names that the block of `op` has to write each time it runs, whatever they are used for."""
    return {*op.output("outputs"), *op.attr("states")} if op.type == "recurrent" else set()


def _prune_below(owner: Operator, needed: set[str]) -> set[str]:
    """Leave out the ops under `owner` that `needed` does not need; the names from outside that the others read.

    These blocks may run again, so every op that writes a needed name, wherever it stands, is needed.
    """
    blocks: dict[int, tuple[Block, Operator]] = {}
    writers: dict[str, list[tuple[Operator, Operator]]] = {}
    stack = [(sub, owner) for sub in owner.sub_blocks]
    while stack:
        block, above = stack.pop()
        if id(block) in blocks:
            continue
        blocks[id(block)] = block, above
        for op in block.ops:
            stack += [(sub, op) for sub in op.sub_blocks]
            for name in op.output_arg_names:
                writers.setdefault(name, []).append((op, above))
    kept: set[int] = {id(owner)}
    outside: set[str] = set()
    names = [*needed, *_must_make(owner)]
    seen = set(names)
    while names:
        for op, above in writers.get(names.pop(), ()):
            chain = [op, above]
            while chain:
                found = chain.pop()
                if id(found) in kept:
                    continue
                kept.add(id(found))
                if id(found.block) in blocks:
                    chain.append(blocks[id(found.block)][1])
                for name in found.input_arg_names:
                    var = found.block.find_var(name)
                    if var is None or id(var.block) not in blocks:
                        outside.add(name)
                more = {*found.input_arg_names, *_must_make(found)} - seen
                seen |= more
                names += more
    for block, _ in blocks.values():
        block.ops = [op for op in block.ops if id(op) in kept]
    return outside


# ---------------------------------------------------------------------------------------------------- inference models
def save_inference_model(
    dirname: str,
    feeded_var_names: str | Sequence[str],
    target_vars: Variable | str | Sequence[Variable | str],
    executor: Any,
    main_program: Program | None = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Save what computes the targets from the fed variables: the program, pruned and in test mode, and its parameters.

    Args:
        dirname: folder, made if need be.
        feeded_var_names: names of the variables to be fed.
        target_vars: what the model computes.
        executor: as of `save_vars`.
        main_program: the program; the default main program if None.
        model_filename: name of the program's file; ``__model__`` if None.
        params_filename: name of the one file of all parameters; a file a parameter if None.
        export_for_deployment: False saves the program as it is, to ``<model_filename>.main_program``.
        program_only: save no parameters.

    Returns:
        Names of the targets.

    Raises:
        ProgramError: the targets need a variable that is neither fed, computed nor persistable.
    """
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names)
    if isinstance(target_vars, (str, Variable)):
        target_vars = [target_vars]
    targets = [target if isinstance(target, str) else target.name for target in target_vars]
    if not targets:
        raise ProgramError("save_inference_model needs at least one target variable")
    program = main_program or default_main_program()
    path = os.path.join(dirname, os.path.basename(model_filename) if model_filename else _MODEL)
    if export_for_deployment:
        program = _inference_program(program, feeds, targets)
    else:
        path += ".main_program"
    data = serialize_program(program)
    if not program_only:
        save_persistables(executor, dirname, program, os.path.basename(params_filename) if params_filename else None)
    write_file(path, [data])  # the program last: where it is, its parameters are complete
    return targets


def _inference_program(program: Program, feeds: list[str], targets: list[str]) -> Program:
    if len(set(feeds)) < len(feeds):
        raise ProgramError(f"a variable is to be fed twice: {', '.join(feeds)}")
    test = program.clone(for_test=True)
    root = test.global_block()
    for name in (*feeds, *targets):
        if name not in root.vars:
            kept = program.global_block().vars.get(name)
            if kept is None:
                root.var(name)  # says which names are near
                raise NameNotFoundError(f"no variable {name!r} is in block 0")
            var = Variable(root, name=name, type=kept.type, lod_level=kept.lod_level, stop_gradient=kept.stop_gradient)
            var._shape, var._dtype = kept._shape, kept._dtype
            root.vars[name] = var
    root.ops = [op for op in root.ops if op.type not in (_FEED, _FETCH)]
    pruned = prune(test, targets, feeds)
    _check_complete(pruned, feeds, targets)
    for block in pruned.blocks:
        for op in block.ops:
            op.attrs.pop("op_callstack", None)  # paths of the machine that built the program
    root = pruned.global_block()
    for name in (_FEED, _FETCH):
        root.vars.pop(name, None)
    feed = root.create_var(name=_FEED, type=VarType.FEED_MINIBATCH, persistable=True)
    fetch = root.create_var(name=_FETCH, type=VarType.FETCH_LIST, persistable=True)
    for column, name in enumerate(feeds):
        root.insert_op(column, _FEED, inputs={"X": [feed]}, outputs={"Out": [name]}, attrs={"col": column}, frames=())
    for column, name in enumerate(targets):
        root.append_op(_FETCH, inputs={"X": [name]}, outputs={"Out": [fetch]}, attrs={"col": column}, frames=())
    return pruned


def _check_complete(program: Program, feeds: list[str], targets: list[str]) -> None:
    written = {name for block in program.blocks for op in block.ops for name in op.output_arg_names}
    # What a recurrence hands from step to step is written by the recurrence itself.
    written |= {name for block in program.blocks for op in block.ops for name in op.attrs.get("ex_states", ())}
    for block in program.blocks:
        for op in block.ops:
            for name in op.input_arg_names:
                var = block.find_var(name)
                if name != EMPTY and name not in written and name not in feeds and not (var is not None and var.persistable):
                    raise ProgramError(
                        f"the targets {', '.join(targets)} need {name!r}, which is neither fed, computed nor persistable: "
                        f"add it to feeded_var_names ({', '.join(feeds) or 'empty'})\n  read by: {op}"
                    )
    root = program.global_block()
    for name in targets:
        if name not in written and name not in feeds and not root.var(name).persistable:
            raise ProgramError(f"the target {name!r} is neither fed, computed nor persistable")


def load_inference_model(
    dirname: str,
    executor: Any,
    model_filename: str | None = None,
    params_filename: str | None = None,
    pserver_endpoints: Any = None,
) -> list[Any]:
    """Load a model that `save_inference_model`, or Paddle, has saved, and its parameters into the current scope.

    Args:
        dirname: its folder; or, without file names, the common start of ``<path>.pdmodel`` and ``<path>.pdiparams``.
        executor: on whose place the parameters go.
        model_filename: name of the program's file; ``__model__`` if None.
        params_filename: name of the one file of all parameters; a file a parameter if None.
        pserver_endpoints: not used; there are no parameter servers.

    Returns:
        ``[program, feed_names, fetch_vars]``, in the order of the program's feeds and fetches.

    Raises:
        FormatError: a file is missing or damaged, or the program does not say what it is fed and fetches.
    """
    if model_filename is None and params_filename is None and os.path.isfile(dirname + ".pdmodel"):
        dirname, prefix = os.path.split(dirname)
        model_filename, params_filename = prefix + ".pdmodel", prefix + ".pdiparams"
    path = os.path.join(dirname, os.path.basename(model_filename) if model_filename else _MODEL)
    data = read_file(path)
    try:
        program = parse_program(data)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    feeds = _columns(path, program, _FEED, "outputs", "Out")
    fetches = _columns(path, program, _FETCH, "inputs", "X")
    if not fetches:
        raise FormatError(f"{path}: the program fetches nothing, so it is no inference model; use Program.parse_from_string")
    load_persistables(executor, dirname, program, os.path.basename(params_filename) if params_filename else None)
    root = program.global_block()
    return [program, feeds, [root.var(name) for name in fetches]]


def _columns(path: str, program: Program, op_type: str, side: str, slot: str) -> list[str]:
    """Names that feed or fetch ops move, by column."""
    root = program.global_block()
    found: dict[int, str] = {}
    for position, op in enumerate(root.ops):
        if op.type != op_type:
            continue
        names, column = getattr(op, side).get(slot, []), op.attrs.get("col", 0)
        where = f"{path}: block 0, op {position} ({op_type})"
        if len(names) != 1 or names[0] not in root.vars:
            raise FormatError(f"{where}: its slot {slot} should name one variable of the block, not {names}")
        if not isinstance(column, int) or column in found:
            raise FormatError(f"{where}: its column is {column!r}, which should be a number that no other {op_type} has")
        found[column] = names[0]
    return [found[column] for column in sorted(found)]
