"""Saves and loads inference models: a folder of parameters with a program, ``__model__``, whose own ops feed and fetch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ..errors import FluidTypeError, FormatError, NameNotFoundError, ProgramError
from ..formats.commits import is_saved
from ..formats.program import parse_program, serialize_program
from ..formats.tensors import read_file
from ..formats.writing import together, write_file
from ..ir.checked import checked
from ..ir.program import Program, Variable, default_main_program
from ..opdef.registry import EMPTY
from ..transform.pruning import prune
from ..values.types import VarType
from .parameter_info import note_what_is_trained
from .variables import FilePath, load_persistables, save_persistables

_MODEL = "__model__"
_FEED, _FETCH = "feed", "fetch"


@checked
def save_inference_model(
    dirname: FilePath,
    feeded_var_names: str | Iterable[str],
    target_vars: Variable | str | Iterable[Variable | str],
    executor: Any,
    main_program: Any = None,
    model_filename: FilePath | None = None,
    params_filename: FilePath | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Save the part of a program that computes targets from fed variables, in test mode, and its parameters.

    Args:
        dirname: folder, created if missing.
        feeded_var_names: names of the variables to be fed.
        target_vars: the variables to compute, or their names.
        executor: as of `save_vars`.
        main_program: a Program or CompiledProgram; the default main program if None.
        model_filename: name of the program's file; ``__model__`` if None.
        params_filename: name of one file for all parameters; if None, one file per parameter.
        export_for_deployment: False saves the whole program, unchanged, to ``<model_filename>.main_program``.
        program_only: save no parameters.

    Returns:
        Names of the targets.

    >>> y, exe = fluid.layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save_inference_model("model", ["x"], [y], exe)
    ['fc_0.tmp_1']

    Raises:
        ProgramError: the targets need a variable that is neither fed, computed nor persistable.
    """
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names)
    if isinstance(target_vars, (str, Variable)):
        target_vars = [target_vars]
    targets = [target if isinstance(target, str) else target.name for target in target_vars]
    if not targets and export_for_deployment:
        raise ProgramError("save_inference_model needs at least one target variable")
    program = default_main_program() if main_program is None else getattr(main_program, "program", main_program)
    if not isinstance(program, Program):
        raise FluidTypeError(f"save_inference_model: main_program should be a Program, not {type(program).__name__}")
    path = os.path.join(dirname, os.path.basename(model_filename) if model_filename else _MODEL)
    if export_for_deployment:
        program = inference_program(program, feeds, targets)
    else:
        path += ".main_program"
    data = serialize_program(program)
    with together():
        if not program_only:
            save_persistables(executor, dirname, program, os.path.basename(params_filename) if params_filename else None)
        write_file(path, [data])  # last: where the program is, its parameters are complete
    return targets


def inference_program(program: Program, feeds: list[str], targets: list[str]) -> Program:
    if len(set(feeds)) < len(feeds):
        raise ProgramError(f"a variable is to be fed twice: {', '.join(feeds)}")
    test = program.clone(for_test=True)
    root = test.global_block()
    for name in (*feeds, *targets):
        if name not in root.vars:
            original = program.global_block().vars.get(name)
            if original is None:
                root.var(name)  # its error suggests similar names
                raise NameNotFoundError(f"no variable {name!r} is in block 0")
            var = Variable(
                root, name=name, type=original.type, lod_level=original.lod_level, stop_gradient=original.stop_gradient
            )
            var._shape, var._dtype = original._shape, original._dtype
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
    outputs = {name for block in program.blocks for op in block.ops for name in op.output_arg_names}
    # A recurrence itself writes the states that it passes from step to step.
    outputs |= {name for block in program.blocks for op in block.ops for name in op.attrs.get("ex_states", ())}
    for block in program.blocks:
        for op in block.ops:
            for name in op.input_arg_names:
                var = block.find_var(name)
                if name != EMPTY and name not in outputs and name not in feeds and not (var is not None and var.persistable):
                    raise ProgramError(
                        f"the targets {', '.join(targets)} need {name!r}, which is neither fed, computed nor persistable: "
                        f"add it to feeded_var_names ({', '.join(feeds) or 'empty'})\n  read by: {op}"
                    )
    root = program.global_block()
    for name in targets:
        if name not in outputs and name not in feeds and not root.var(name).persistable:
            raise ProgramError(f"the target {name!r} is neither fed, computed nor persistable")


@checked
def load_inference_model(
    dirname: FilePath,
    executor: Any,
    model_filename: FilePath | None = None,
    params_filename: FilePath | None = None,
    pserver_endpoints: Any = None,
) -> list[Any]:
    """Load a model saved by `save_inference_model` or Paddle, and its parameters into the current scope.

    Args:
        dirname: its folder; or, without file names, the common start of ``<path>.pdmodel`` and ``<path>.pdiparams``.
        executor: the executor on whose place parameters are put.
        model_filename: name of the program's file; ``__model__`` if None.
        params_filename: name of the one file of all parameters; if None, one file per parameter.
        pserver_endpoints: not used; there are no parameter servers.

    Returns:
        ``[program, feed_names, fetch_vars]``, in the order of the program's feeds and fetches.

    >>> y, exe = fluid.layers.fc(fluid.data("x", [None, 2]), 1, act="softmax"), fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> _ = fluid.io.save_inference_model("model", ["x"], [y], exe)
    >>> program, feeds, fetches = fluid.io.load_inference_model("model", exe)
    >>> exe.run(program, {feeds[0]: np.ones([3, 2], "float32")}, fetches)[0].tolist()
    [[1.0], [1.0], [1.0]]

    Raises:
        FormatError: a file is missing or damaged, or the program lacks feed and fetch ops.
    """
    dirname = os.fspath(dirname)
    if model_filename is None and params_filename is None and is_saved(dirname + ".pdmodel"):
        dirname, prefix = os.path.split(dirname)
        model_filename, params_filename = prefix + ".pdmodel", prefix + ".pdiparams"
    path = os.path.join(dirname, os.path.basename(model_filename) if model_filename else _MODEL)
    data = read_file(path)
    try:
        program = parse_program(data)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    feeds = columns_of(path, program, _FEED, "outputs", "Out")
    fetches = columns_of(path, program, _FETCH, "inputs", "X")
    if not fetches:
        raise FormatError(f"{path}: the program fetches nothing, so it is not an inference model; use Program.parse_from_string")
    load_persistables(executor, dirname, program, os.path.basename(params_filename) if params_filename else None)
    if params_filename:
        note_what_is_trained(program, os.path.join(dirname, os.path.basename(params_filename)))
    root = program.global_block()
    return [program, feeds, [root.var(name) for name in fetches]]


def columns_of(path: str, program: Program, op_type: str, side: str, slot: str) -> list[str]:
    """Names that feed or fetch ops copy, in the order of their columns."""
    root = program.global_block()
    by_column: dict[int, str] = {}
    for position, op in enumerate(root.ops):
        if op.type != op_type:
            continue
        names, column = getattr(op, side).get(slot, []), op.attrs.get("col", 0)
        where = f"{path}: block 0, op {position} ({op_type})"
        if len(names) != 1 or names[0] not in root.vars:
            raise FormatError(f"{where}: its slot {slot} should name one variable of the block, not {names}")
        if not isinstance(column, int) or column in by_column:
            raise FormatError(f"{where}: its column is {column!r}, which should be a number that no other {op_type} has")
        by_column[column] = names[0]
    return [by_column[column] for column in sorted(by_column)]
