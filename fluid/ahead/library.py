"""`compile_program`: from a program to the files of a library."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..errors import FeedError, FluidError, ProgramError
from ..executor import Executor, Scope, global_scope
from ..executor.native.compiler import compile_library
from ..executor.native.fallback import NativeUnavailable
from ..executor.native.id_ranges import tests_of
from ..executor.native.instructions import Check
from ..executor.native.target import Target
from ..executor.planned.native_loops import NativeLoop
from ..executor.planned.plan import ArenaPlan, compile_native_plan
from ..executor.stepwise.loop_body import LOOPS
from ..formats.writing import together, write_file
from ..ir.checked import checked
from ..ir.program import Program, Variable
from ..ir.versions import Value
from ..values.place import CPUPlace
from ..values.spec import Spec
from .code import LibraryCode
from .compression import compress_weights
from .constants import constants_of
from .drawing import TensorDraw, draws_of, is_draw
from .freezing import freeze_parameters
from .header import C_TYPES, c_names, header_of
from .javascript import javascript_of, typescript_of
from .layout import Layout, LibraryFunction
from .targets import find_target
from .wasm import module_of

Names: TypeAlias = "Sequence[str | Variable] | Mapping[str, str | Variable]"
"""Variables, or their names; a mapping gives them other names in C."""


@dataclass(frozen=True)
class CompiledLibrary:
    """The result of `compile_program`.

    Attributes:
        paths: the files that were written.
        description: the contents of the JSON file: sizes in bytes, functions with their feeds and fetches, and for each variable
            of the state its offset, shape and element type.
    """

    paths: tuple[str, ...]
    description: dict[str, Any]


@checked
def compile_program(
    program: Program,
    feeds: Names | None = None,
    fetches: Names = (),
    *,
    predict: Names = (),
    startup: Program | None = None,
    scope: Scope | None = None,
    batch: int | Sequence[int] = (),
    freeze: Sequence[str] = (),
    frozen_as: str = "float32",
    target: str = "host",
    cpu: str = "",
    features: str = "",
    output: str | os.PathLike[str] = "net",
) -> CompiledLibrary:
    """Compile a program to a library for C: an object file, a header, and a description of its state.

    The library has a function ``NAME_step``, which runs the whole program once, with its backward part and its updates, and
    functions ``NAME_predict_B`` that compute predictions for B rows. One thread computes a call. With the same target, it
    computes the same bits as `Executor`. The page "Train without Python" shows a program in C.

    Args:
        program: the program; it is not changed.
        feeds: the variables to feed; by default, all data that is read. A mapping gives other names in C: ``{"image": x}``.
        fetches: the results of a step, such as the loss; without fetches there is no ``NAME_step``.
        predict: the results of a prediction, computed as by ``program.clone(for_test=True)``.
        startup: the startup program, which is run for the first values of all variables.
        scope: holds the first values if `startup` is None; the current scope by default.
        batch: the number of rows where the program leaves it open. The step takes the first; there is a ``NAME_predict_B`` for
            each of them.
        freeze: patterns of names of parameters that are not trained, such as ``conv2d_*``. The library holds them as constants,
            and computes only the gradients that the other parameters need.
        frozen_as: how it stores frozen matrices and filters: ``float32``, ``float16``, or ``int8`` with a scale for each output
            of a layer. The library computes with the rounded ones.
        target: ``host``; a name in `fluid.ahead.TARGETS`, such as ``aarch64`` or ``cortex-m4``; or a triple of LLVM.
        cpu, features: LLVM's names of a processor and of its features, in place of, or besides, the usual ones of the target.
        output: the path of the files, without ending. Its last part, an identifier of C, is the prefix of all names.

    Returns:
        The paths of ``.o``, ``.h`` and ``.json``, or for WebAssembly of ``.wasm``, ``.js``, ``.d.ts``, ``.o`` and ``.json``; and
        the contents of the last.

    Raises:
        ProgramError: an op cannot be compiled: the message lists all of them, with their lines; or the program updates nothing;
            or a pattern of `freeze` fits no parameter that is updated, or `frozen_as` cannot hold one. Then nothing is written.
        FeedError: a feed has sizes that neither the program nor `batch` fixes, or a variable has no first value.
        FluidError: llvmlite is missing, does not know the target, or a file cannot be written.

    >>> x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 1], "int64")
    >>> loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(x, 3), label))
    >>> _ = fluid.optimizer.SGD(0.1).minimize(loss)
    >>> made = fluid.compile_program(
    ...     fluid.default_main_program(), fetches={"loss": loss}, startup=fluid.default_startup_program(), batch=8
    ... )
    >>> made.paths
    ('net.o', 'net.h', 'net.json')
    >>> made.description["functions"]["step"]["fetches"]
    {'loss': {'shape': [1], 'dtype': 'float32', 'bytes': 4}}
    """
    path = os.fspath(output)
    name = os.path.basename(path)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ProgramError(f"output: {name!r} is the prefix of names in C; it must be letters, digits and underscores")
    try:
        processor = find_target(target, cpu, features)
        maker, entries, layout = plan_functions(
            program, feeds, fetches, predict, values_before(program, startup, scope), batch, freeze, frozen_as, processor
        )
        _check_size(layout, processor)
        code = LibraryCode(name, entries, layout, maker.first_values(layout), maker.runs, processor)
        data = compile_library(code.text(), processor)
    except NativeUnavailable as error:
        raise FluidError(f"the program cannot be compiled: {error}") from error
    alignment = max(8, processor.vector_bytes)
    description = _description(name, entries, layout, processor, code.errors)
    files = {".o": data, ".json": json.dumps(description, indent=1).encode()}
    if processor.triple.startswith("wasm"):
        functions = [f"{name}_{part}" for part in ("init", "error", *description["functions"])]
        files = {".wasm": module_of(data, functions), ".js": javascript_of(description).encode(),
                 ".d.ts": typescript_of(description).encode(), **files}  # fmt: skip
    else:
        header = header_of(name, entries, layout, code.errors, alignment, f"{processor.triple}, {processor.cpu}")
        files = {".o": data, ".h": header.encode(), **files}
    paths = {f"{path}{ending}": content for ending, content in files.items()}
    with together():
        for file, content in paths.items():
            write_file(file, [content])
    return CompiledLibrary(tuple(paths), description)


def _rows(batch: int | Sequence[int]) -> tuple[int, ...]:
    rows = (batch,) if isinstance(batch, int) else tuple(batch)
    wrong = [number for number in rows if number < 1]
    if wrong:
        raise ProgramError(f"batch: a number of rows is at least 1, not {wrong[0]}")
    return tuple(dict.fromkeys(rows))


def values_before(program: Program, startup: Program | None, scope: Scope | None) -> Scope:
    """A scope with the values before the first step."""
    if startup is None:
        return scope if scope is not None else global_scope()
    if scope is not None:
        raise ProgramError("the first values come from a startup program or from a scope, not from both")
    values = Scope()
    Executor(CPUPlace()).run(startup, scope=values)
    return values


def plan_functions(
    program: Program,
    feeds: Names | None,
    fetches: Names,
    predict: Names,
    values: Scope,
    batch: int | Sequence[int],
    freeze: Sequence[str],
    frozen_as: str,
    target: Target,
) -> tuple[_Maker, list[LibraryFunction], Layout]:
    """Plan the functions of a library, and place their values. For arguments and errors see `compile_program`."""
    frozen: list[str] = []
    if freeze:
        program = program.clone()
        frozen = freeze_parameters(program, freeze)
    frozen, values = compress_weights(program, frozen, frozen_as, values)
    maker = _Maker(program, values, _rows(batch), target)
    entries = maker.entries(feeds, fetches, predict)
    return maker, entries, Layout(entries, max(8, target.vector_bytes), frozen)


class _Planned(NamedTuple):
    """A plan, how it draws random numbers, its constants, and lines about the ops that cannot be compiled."""

    plan: ArenaPlan
    draws: dict[Value, TensorDraw]
    constants: dict[Value, Any]
    refused: list[str]


class _Maker:
    """Plans the functions of a library.

    Args:
        program: the whole program.
        scope: the values before the first step.
        batch: numbers of rows.
        target: the processor.
    """

    def __init__(self, program: Program, scope: Scope, batch: Sequence[int], target: Target) -> None:
        self._program, self._scope, self._batch, self._target = program, scope, batch, target
        self._refused: list[str] = []

    def entries(self, feeds: Names | None, fetches: Names, predict: Names) -> list[LibraryFunction]:
        """The functions; an error that lists all ops that cannot be compiled."""
        entries: list[LibraryFunction] = []
        if fetches:
            first = self._batch[0] if self._batch else None
            entries += self._entry("step", "step", self._program, feeds, fetches, first)
        if predict:
            pruned = self._program.clone(for_test=True)
            self._refuse_backward(pruned, _named(predict).values())
            pruned.prune(list(_named(feeds).values()) if feeds is not None else None, list(_named(predict).values()))
            for rows in self._batch or (None,):
                entries += self._entry(f"predict_{rows or 1}", "predict", pruned, feeds, predict, rows)
        if self._refused:
            lines = "\n".join(f"  - {line}" for line in dict.fromkeys(self._refused))
            raise ProgramError(f"the program cannot be compiled, as no native code computes some of its ops:\n{lines}")
        if not entries:
            raise ProgramError("name what to compile: fetches, such as the loss, for training; predict for predictions")
        if entries[0].kind == "step" and not _is_updating(entries[0].plan):
            raise ProgramError(
                "a step of the program updates nothing: call minimize of an optimizer before, or name its results as predict"
            )
        return entries

    def _refuse_backward(self, pruned: Program, names: Collection[str]) -> None:
        """Raise an error if a prediction is to compute what only the whole program has."""
        absent = self._program.global_block().vars.keys() - pruned.global_block().vars.keys()
        if wrong := [name for name in names if name in absent]:
            raise ProgramError(
                f"predict: {', '.join(wrong)} made by the backward part or the updates, which predictions leave out; "
                "name as fetches what a step computes"
            )

    def _entry(
        self, name: str, kind: str, program: Program, feeds: Names | None, fetches: Names, rows: int | None
    ) -> Iterator[LibraryFunction]:
        """Plan a function. Yields nothing if some of its ops cannot be compiled."""
        fed, fetched = self._fed(program, feeds), _named(fetches)
        sequences = [variable for variable in fed.values() if program.global_block().var(variable).lod_level]
        if sequences:
            raise FeedError(
                f"{', '.join(sequences)}: sequences, whose lengths differ from batch to batch, cannot be fed to a library; "
                "pad them, and feed their lengths to layers.rnn or layers.sequence_mask"
            )
        specs = {variable: self._spec(program, variable, rows) for variable in fed.values()}
        planned = self._planned(program, specs, list(fetched.values()))
        if planned.refused:
            self._refused += planned.refused
            return
        plan = planned.plan
        wrong = [name for name, value in zip(fetched, plan.fetch_values, strict=True) if plan.specs[value].dtype not in C_TYPES]
        wrong += [name for name, variable in fed.items() if specs[variable].dtype not in C_TYPES]
        self._refused += [f"{name}, a feed or a fetch, has an element type that C lacks; cast it" for name in wrong]
        read = {value for instruction in plan.instructions for value in instruction.read} | set(plan.fetch_values)
        used = {c_name: variable for c_name, variable in fed.items() if (variable, 0) in read or variable in plan.storage}
        yield LibraryFunction(name, kind, plan, used, fetched, planned.draws, planned.constants)

    def _planned(self, program: Program, specs: Mapping[str, Spec], fetches: Sequence[str]) -> _Planned:
        """Plan a program, and find out which of its ops cannot be compiled."""
        plan = compile_native_plan(program, specs, fetches, self._scope, self._target)
        if plan is None or plan.step_by_step:
            raise ProgramError("variables that last hold arrays of tensors or sparse rows: such a program runs op by op")
        draws, constants = draws_of(program, plan.instructions, plan.specs), constants_of(plan.instructions, plan.specs)
        refused = [
            part
            for instruction in plan.instructions
            for part in (instruction.body if isinstance(instruction, NativeLoop) else (instruction,))
            if _is_refused(part, {*draws, *constants})
        ]
        causes = [instruction for instruction in refused if all(value in plan.specs for value in instruction.read)]
        lines = [_refusal(instruction) for instruction in causes or refused]
        if causes and len(causes) < len(refused):
            lines.append(f"{len(refused) - len(causes)} more ops, as the sizes of their inputs are not known")
        return _Planned(plan, draws, constants, lines)

    def _fed(self, program: Program, feeds: Names | None) -> dict[str, str]:
        """Name in C -> the variable, of the feeds that a program has."""
        variables = program.global_block().vars
        if feeds is None:
            return c_names(name for name, var in variables.items() if var.is_data)
        return {c_name: name for c_name, name in _named(feeds).items() if name in variables or program is self._program}

    def _spec(self, program: Program, name: str, rows: int | None) -> Spec:
        """The spec of a feed, with its number of rows filled in."""
        var = program.global_block().var(name)
        shape = tuple(var.shape)
        if shape and shape[0] == -1 and rows is not None:
            shape = (rows, *shape[1:])
        if -1 in shape:
            advice = "give it with batch, or --batch" if shape[0] == -1 and -1 not in shape[1:] else "declare it with fixed sizes"
            raise FeedError(f"{name} is {var.describe()}: a compiled program needs the size of each dimension; {advice}")
        return Spec(shape, var.dtype)

    @property
    def runs(self) -> int:
        """The number of runs in the scope so far."""
        return self._scope.runs

    def first_values(self, layout: Layout) -> dict[str, Any]:
        """Variable of the state, or frozen -> its first value; zeros for variables that the program writes first."""
        lasting = {**layout.state, **layout.frozen}
        arrays = {name: self._scope.array(name) for name in lasting}
        return {
            name: np.zeros(spec.shape, spec.dtype.array_dtype) if arrays[name] is None else np.asarray(arrays[name])
            for name, (_, spec) in lasting.items()
        }


def _named(names: Names) -> dict[str, str]:
    """Name in C -> name of the variable."""
    if isinstance(names, Mapping):
        wrong = [key for key in names if list(c_names([key])) != [key]]
        if wrong:
            raise ProgramError(f"{wrong[0]!r} is no name of a variable in C")
        return {key: item if isinstance(item, str) else item.name for key, item in names.items()}
    return c_names(item if isinstance(item, str) else item.name for item in names)


def _is_updating(plan: ArenaPlan) -> bool:
    """Whether a plan writes a variable that lasts."""
    return any(value[0] in plan.storage for instruction in plan.instructions for value in instruction.written)


def _is_refused(instruction: Any, computed: Container[Value]) -> bool:
    """Whether an instruction cannot be compiled; `computed` are its draws and constants."""
    if instruction.is_op:
        return not (is_draw(instruction) or all(value in computed for value in instruction.written))
    return isinstance(instruction, Check) and tests_of(instruction) is None


def _refusal(instruction: Any) -> str:
    """The line about an op that cannot be compiled."""
    op, frame = instruction.op, instruction.op.user_frame
    made_at = f", made at {frame[0]}:{frame[1]}" if frame is not None else ""
    reason = f": {instruction.obstacle}{_LOOP_ADVICE}" if op.type in LOOPS else ""
    return f"{op.type} of {', '.join(op.output_arg_names)}{made_at}{reason}"


_LOOP_ADVICE = """
    A loop with a gradient compiles if its number of trips follows from sizes and constants, all values keep their shapes, and
    it uses no arrays of tensors (layers.array_write): take layers.StaticRNN or layers.rnn, or pass values by while_loop."""


def _check_size(layout: Layout, target: Target) -> None:
    size = layout.state_bytes + layout.arena_bytes
    if target.pointer_bytes == 4 and size >= 2**31:
        raise ProgramError(
            f"the program needs {size} bytes of memory, and a processor with addresses of 32 bits has at most {2**31}: "
            "take fewer rows in a batch"
        )


def _description(
    name: str, entries: Sequence[LibraryFunction], layout: Layout, target: Target, errors: Sequence[str]
) -> dict[str, Any]:
    """The contents of the JSON file."""
    functions = {
        entry.name: {
            "feeds": {key: _described(spec) for key, spec in entry.feed_specs.items()},
            "fetches": {key: _described(spec) for key, spec in entry.fetch_specs.items()},
        }
        for entry in entries
    }
    return {
        "name": name,
        "target": {"triple": target.triple, "cpu": target.cpu, "features": target.features},
        "state_bytes": layout.state_bytes,
        "arena_bytes": layout.arena_bytes,
        "arena": {
            "images": layout.image_bytes, "temporaries": layout.temporary_bytes, "workspace": layout.workspace_bytes,
        },
        "runs_offset": layout.runs_offset,
        "frozen": list(layout.frozen),
        "functions": functions,
        "errors": list(errors),
        "state": {key: {"offset": offset, **_described(spec)} for key, (offset, spec) in layout.state.items()},
    }  # fmt: skip


def _described(spec: Spec) -> dict[str, Any]:
    return {"shape": list(spec.shape), "dtype": np.dtype(spec.dtype.array_dtype).name, "bytes": spec.nbytes}
