"""Ops compiled for arrays of fixed shapes and types. All ops run in this way, except in plans.

`compiled` computes once everything that depends on shapes and types alone: the specs of the outputs, and the kernel (or gradient
rule). Then ``run(*arrays)`` computes the op. At first it binds the kernel in each run; after enough runs, the bound calls become
a function (`fluid.executor.binding.codegen`), which costs as much as dozens of runs. The arrays of plans never change, so plans
bind the kernel themselves, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from fluid.errors import ExecutionError
from fluid.opdef import registry
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import OpDef, updated_input
from fluid.values.lod_array import LoDArray, array_of, with_lod
from fluid.values.selected_rows import SelectedRows
from fluid.values.spec import Lod, Spec
from fluid.values.types import VarType

from ..kernels.engine import engine_of
from ..kernels.table import CHECKS, check_call, kernel_of
from ..runtime import spare
from ..runtime.calls import Call
from ..runtime.random import RANDOM, RandomStreams, own_seed
from ..runtime.specs import spec_of
from ..runtime.threads import OnNumpy
from .arrays import bind_op, lods_of
from .codegen import Lender, function_of, parameters_read
from .halves import in_dtype_of

WRITE_AFTER = 8
"""Number of runs after which the calls of a compiled op become a function."""
_MOST_VARIANTS = 32
"""The most shapes for which an op becomes native code; numpy computes further ones. Sequences of any length would otherwise
cause endless compilations."""


class Argument(NamedTuple):
    """An array that an op reads.

    Attributes:
        slot: the input slot, or the slot of an updated output.
        spec: the spec of the array; None for a gap in a slot of many.
        passed: whether `run` takes it as an argument; if not, the array is read only for its shape, or is all `zeros`.
    """

    slot: str
    spec: Spec | None
    passed: bool = True
    zeros: bool = False


def inputs_of(definition: OpDef, arguments: Sequence[Argument], values: Sequence[Any] | None = None) -> dict[str, Any]:
    """`values` of the arguments by slot; by default, their specs."""
    inputs: dict[str, Any] = {}
    for argument, value in zip(
        arguments, values if values is not None else [argument.spec for argument in arguments], strict=True
    ):
        slot = definition.inputs.get(argument.slot) or definition.outputs[argument.slot]
        if slot.many:
            inputs.setdefault(argument.slot, []).append(value)
        elif argument.spec is not None:
            inputs[argument.slot] = value
    return inputs


def compiled(
    definition: OpDef,
    attrs: Mapping[str, Any],
    arguments: Sequence[Argument],
    xp: Any,
    *,
    wants: Mapping[str, Any] | None = None,
    into: Mapping[str, str] | None = None,
    on_copies: bool = False,
    specs: Mapping[str, Any] | None = None,
    declared: Mapping[str, Any] | None = None,
    rng: Callable[[], Any] | None = None,
    use_kernel: bool = True,
    write_after: int | None = None,
) -> Compiled:
    """Compile an op for arrays like `arguments`.

    Args:
        attrs: all attributes, defaults included.
        arguments: the arrays, in the order in which `run` takes them.
        xp: array namespace.
        wants: output slot -> whether to compute it (a list for slots of many); by default, all outputs are computed.
        into: output slot -> input slot whose array it overwrites.
        on_copies: overwrite copies instead, except tables that a sparse gradient updates in part.
        specs: the specs of the outputs, if they are already inferred.
        declared: declared specs that decide where inference leaves a choice.
        rng: returns the random generator of each run; by default, the generator of the next draw outside programs.
        use_kernel: if False, an op is computed by its formula or gradient rule even if it has a kernel.
        write_after: number of runs after which the calls become a function; 0 for at once.
    """
    inputs = inputs_of(definition, arguments)
    if specs is None:
        specs = infer_specs(definition, inputs, attrs, declared)
    rng = rng or RANDOM.source(xp, own_seed(attrs), definition.type)
    wants = dict.fromkeys(specs, True) if wants is None else wants
    runs = WRITE_AFTER if write_after is None else write_after
    return Compiled(definition, attrs, arguments, inputs, xp, specs, wants, into or {}, on_copies, rng, use_kernel, runs)


class Compiled:
    """An op compiled for arrays of fixed shapes and types, made by `compiled`.

    Attributes:
        specs: the specs of all outputs, wanted or not.
        places: (slot, index in a slot of many or None) of each output, in the order in which `run` returns them.
        lods: the LoDs by slot of inputs and outputs whose rows form sequences.
        read: positions of the arguments that `run` reads; None if unknown.
    """

    def __init__(
        self,
        definition: OpDef,
        attrs: Mapping[str, Any],
        arguments: Sequence[Argument],
        inputs: Mapping[str, Any],
        xp: Any,
        specs: Mapping[str, Any],
        wants: Mapping[str, Any],
        into: Mapping[str, str],
        on_copies: bool,
        rng: Callable[[], Any],
        use_kernel: bool,
        write_after: int,
    ) -> None:
        self._definition, self._attrs, self._arguments, self._xp, self._rng = definition, attrs, arguments, xp, rng
        self._engine = engine_of(xp)
        self._use_kernel, self._runs_left = use_kernel, write_after
        self.specs = specs
        self.read: frozenset[int] | None = None
        self.lods: dict[str, Any] = {**lods_of(inputs), **lods_of(specs)}
        self._wanted = {slot: _wanted(spec, wants.get(slot, False)) for slot, spec in specs.items()}
        self.places: list[tuple[str, int | None]] = []
        self._unknown: list[str] = []
        """Outputs whose shapes depend on values, if one of them is wanted: the kernel allocates the arrays of all of them."""
        self._fresh: list[tuple[str, Any]] = []
        """(slot, (shape, numpy dtype)) of outputs that are new arrays; (slot, None) if the kernel allocates the array."""
        self._into = {slot: source for slot, source in into.items() if self._wanted.get(slot) is not None and source in inputs}
        self._shared = {slot: source for slot, source in self._into.items() if _may_share(definition, slot, source)}
        for slot, spec in self._wanted.items():
            if type(spec) is list:
                self.places += [(slot, number) for number, item in enumerate(spec) if item is not None]
            elif spec is not None:
                self.places.append((slot, None))
            if slot not in self._shared:
                self._fresh.append((slot, _shape_and_dtype(spec)))
        unknown = [slot for slot, spec in specs.items() if slot not in self._shared and _is_unknown(spec)]
        if any(self._wanted[slot] is not None for slot in unknown):
            self._unknown = unknown
        self._is_sparse = any(map(_is_sparse, inputs.values())) or any(map(_is_sparse, self._wanted.values()))
        self._copied = [*dict.fromkeys(self._into.values())] if on_copies and not self._is_sparse else []
        for slot, source in self._into.items():
            for output, target in zip(_listed(specs[slot]), _listed(inputs[source]), strict=True):
                if (target.shape, target.dtype) != (output.shape, output.dtype):
                    raise ExecutionError(f"{definition.type} makes {output}, which cannot take the place of {target}")
        self._spare_bytes = 0
        """Bytes of the intermediate results of the last run."""
        self._is_writable = self._engine.writes_functions and not (self._is_sparse or self._unknown)
        self._fixed = None if all(argument.passed for argument in arguments) else self._placeholders(passed=False)
        if self._is_writable and not write_after:
            self._write_function()

    # -- running
    def run(self, *arrays: Any) -> Any:
        """Compute the outputs from C-contiguous arrays; returns one array, or a tuple in the order of `places`."""
        if self._is_writable:
            self._runs_left -= 1
            if self._runs_left < 0 and self._write_function():
                return self.run(*arrays)
        return self.bound_run(*arrays)

    def bound_run(self, *arrays: Any) -> Any:
        """Compute the outputs from arrays in any layout, by binding the kernel to them."""
        inputs = inputs_of(self._definition, self._arguments, arrays if self._fixed is None else self._with_fixed(arrays))
        for source in self._copied:
            inputs[source] = inputs[source].copy()
        outputs = self._outputs(inputs)
        result = self._run_kernel(inputs, outputs)
        if self._unknown:
            results = result if isinstance(result, tuple) else (result,)
            if len(results) != len(self._unknown) or results[0] is None:
                slots = ", ".join(self._unknown)
                raise ExecutionError(f"{self._definition.type}: the shape of {slots} is not known before it runs")
            for slot, value in zip(self._unknown, results, strict=True):
                if slot in outputs:
                    outputs[slot] = value if self._is_sparse else _rounded_to_spec(value, self.specs[slot])
        values = self._results(inputs, outputs)
        return values[0] if len(values) == 1 else tuple(values)

    def _run_kernel(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
        """Make all calls of the kernel; returns the result of the last one."""
        result = None
        if not self._is_sparse or self._xp is not np:
            for step in self._engine.steps(self._bind(inputs, outputs, self._xp.empty)):
                result = step()
            return result
        loan = spare.Loan(self._spare_bytes)  # sparse kernels are bound in each run
        try:
            for step in self._engine.steps(self._bind(inputs, outputs, loan)):
                result = step()
        finally:
            self._spare_bytes = loan.used
            loan.give_back()
        return result

    @property
    def has_check(self) -> bool:
        """Whether a run checks the values of the inputs before it computes."""
        return not self._is_sparse and self._definition.type in CHECKS

    def check(self, *arrays: Any) -> None:
        """Check the values of the inputs like a run, without computing; raises an error for wrong ones."""
        inputs = inputs_of(self._definition, self._arguments, arrays if self._fixed is None else self._with_fixed(arrays))
        context = {"xp": self._xp, "scratch": self._xp.empty, "rng": self._rng}
        check_call(CHECKS[self._definition.type], inputs, self._outputs(inputs), self._attrs, context, self.lods)()

    @property
    def is_written(self) -> bool:
        """Whether `run` is a function made of the kernel's calls; otherwise it binds the kernel in each run."""
        return "run" in self.__dict__

    def values(self, result: Any) -> Sequence[Any]:
        """Convert the result of `run` to a sequence of values, with the inferred LoDs unless the kernel set them."""
        values: tuple[Any, ...] = result if type(result) is tuple else (result,)
        if not self.lods:
            return values
        return [self._with_lod(*place, value) for place, value in zip(self.places, values, strict=True)]

    def with_lods(self, result: Any, lods: Mapping[int, Lod]) -> list[Any]:
        """Convert the result of `run` to values with the LoDs of the inputs, as `infer_specs` shares them.

        Args:
            lods: number of rows -> the LoD of the first input with so many rows. The op is compiled without LoDs.
        """
        values: list[Any] = []
        for (slot, number), value in zip(self.places, result if type(result) is tuple else (result,), strict=True):
            spec = self.specs[slot] if number is None else self.specs[slot][number]
            has_rows = spec.shape and spec.type is not VarType.SELECTED_ROWS
            values.append(with_lod(value, lods.get(spec.shape[0], ())) if has_rows else value)
        return values

    def _with_lod(self, slot: str, number: int | None, value: Any) -> Any:
        lod = self.lods.get(slot, ())
        if lod and number is not None:
            lod = lod[number]
        return value if type(value) is LoDArray or None in lod else with_lod(value, lod)

    def by_slot(self, result: Any) -> dict[str, Any]:
        """Sort the result of `run` by output slot: lists in slots of many, with None for unwanted outputs."""
        values = {slot: [None] * len(spec) if isinstance(spec, list) else None for slot, spec in self._wanted.items()}
        for (slot, number), value in zip(self.places, self.values(result), strict=True):
            if number is None:
                values[slot] = value
            else:
                values[slot][number] = value  # type: ignore[index]
        return {slot: value for slot, value in values.items() if self._wanted[slot] is not None}

    # -- binding
    def _placeholders(self, passed: bool | None = None) -> list[Any]:
        """Placeholder arrays of all arguments, or only of the passed (or not passed) ones; None for the remaining arguments."""
        return [
            None
            if argument.spec is None or passed not in (None, argument.passed)
            else (self._xp.zeros if argument.zeros else self._xp.empty)(argument.spec.shape, argument.spec.dtype.array_dtype)
            for argument in self._arguments
        ]

    def _with_fixed(self, arrays: Sequence[Any]) -> list[Any]:
        """Merge the passed `arrays` with the fixed ones: one value for each argument."""
        passed = iter(arrays)
        fixed = self._fixed or ()
        return [next(passed) if argument.passed else array for argument, array in zip(self._arguments, fixed, strict=True)]

    def _outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays for the outputs: the overwritten inputs, otherwise new arrays."""
        empty = self._xp.empty
        outputs: dict[str, Any] = {}
        for slot, layout in self._fresh:
            if type(layout) is list:
                outputs[slot] = [None if item is None else empty(*item) for item in layout]
            else:
                outputs[slot] = None if layout is None else empty(*layout)
        for slot, source in self._shared.items():
            outputs[slot] = inputs[source]
        return outputs

    def _bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], lend: Callable[..., Any]) -> list[Call]:
        context = {"xp": self._xp, "scratch": lend, "rng": self._rng}
        calls = bind_op(
            self._definition, inputs, outputs, self._attrs, context, lend, self._use_kernel, self.lods, self._is_sparse
        )
        for slot, source in self._into.items():
            if slot not in self._shared:
                pairs = zip(_listed(inputs[source]), _listed(outputs[slot]), strict=True)
                calls += [partial(self._xp.copyto, target, output) for target, output in pairs]
        return calls

    def _results(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[Any]:
        results = []
        for slot, number in self.places:
            source = self._into.get(slot)
            value = outputs[slot] if source is None else inputs[source]
            results.append(value if number is None else value[number])
        return results

    def _write_function(self) -> bool:
        """Make `run` native code, or a function of the kernel's calls; False if they cannot become one."""
        placeholders, lender = self._placeholders(), Lender(self._xp)
        inputs = inputs_of(self._definition, self._arguments, placeholders)
        outputs = self._outputs(inputs)
        calls = self._bind(inputs, outputs, lender)
        passed = [array for argument, array in zip(self._arguments, placeholders, strict=True) if argument.passed]
        new = [array for value in outputs.values() for array in _listed(value) if array is not None]
        new = [array for array in new if not any(array is argument for argument in passed)]
        copied = [array for source in self._copied for array in _listed(inputs[source])]
        if self._is_compilable() and (compiled := self._function()) is not None:
            self._is_writable = False
            self.__dict__["run"], self.read = compiled
            return True
        function = function_of(self._definition.type, calls, passed, new, self._results(inputs, outputs), lender, copied)
        self._is_writable = False
        if function is not None:
            self.__dict__["run"], self.read = function, parameters_read(function)
        return function is not None

    # -- compiled to one function
    def _is_compilable(self) -> bool:
        """Whether the op only computes numpy arrays from numpy arrays."""
        return self._xp is np and not (self._copied or self._is_sparse or self.lods) and self._use_kernel

    def _function(self) -> tuple[Callable[..., Any], frozenset[int]] | None:
        """Compile the op to one function of the arrays of `run`; returns it with the positions that it reads, None without a
        compiler."""
        specs = {argument.slot: argument.spec for argument in self._arguments if argument.spec is not None}
        specs |= {slot: spec for slot, spec in self._wanted.items() if isinstance(spec, Spec)}
        compiler = next((compiler for compiler in _COMPILERS if compiler.takes(self._definition.type, self._attrs, specs)), None)
        if compiler is None:
            return None
        variants = _variants.setdefault((self._definition.type, repr(self._attrs)), set())
        variants.add(tuple(argument.spec for argument in self._arguments))
        if len(variants) > _MOST_VARIANTS:
            return None
        inputs = [(argument.slot, argument.spec) for argument in self._arguments]
        outputs = [(slot, spec) for slot, value in self._wanted.items() for spec in _listed(value)]
        passed = [argument.passed for argument in self._arguments]
        return compiler.compile(self._definition, self._attrs, inputs, passed, outputs, self._into)


class OpCompiler(Protocol):
    """Compiles single ops, for eager mode."""

    def takes(self, op_type: str, attrs: Mapping[str, Any], specs: Mapping[str, Spec]) -> bool:
        """Whether it computes such an op faster than the kernel's calls; `specs` by slot of inputs and outputs."""
        raise NotImplementedError

    def compile(
        self,
        definition: OpDef,
        attrs: Mapping[str, Any],
        inputs: Sequence[tuple[str, Spec | None]],
        passed: Sequence[bool],
        outputs: Sequence[tuple[str, Spec | None]],
        into: Mapping[str, str],
    ) -> tuple[Callable[..., Any], frozenset[int]] | None:
        """Compile the op to a function of arrays; returns it with the positions that it reads, None if that is impossible."""


_COMPILERS: list[OpCompiler] = []


def add_compiler(compiler: OpCompiler) -> None:
    """Register a compiler of single ops, after the present ones."""
    _COMPILERS.append(compiler)


_variants: dict[tuple[str, str], set[Any]] = {}
"""Op type and attributes -> the shapes for which native code was requested."""


def _wanted(spec: Any, want: Any) -> Any:
    """The spec of a wanted output (in lists, None for unwanted items), or None."""
    if isinstance(spec, list):
        wants = want if isinstance(want, list) else [want] * len(spec)
        return [item if yes else None for item, yes in zip(spec, wants, strict=False)] if want else None
    return spec if want else None


def _is_unknown(spec: Any) -> bool:
    """Whether the shape of an output, or of one in a list, or its number of sparse rows depends on values."""
    if isinstance(spec, list):
        return any(map(_is_unknown, spec))
    return spec is not None and (-1 in spec.shape or spec.type is VarType.SELECTED_ROWS)


def _is_sparse(spec: Any) -> bool:
    if type(spec) is list:
        return any(map(_is_sparse, spec))
    return spec is not None and spec.type is VarType.SELECTED_ROWS


def _shape_and_dtype(spec: Any) -> Any:
    """Shape and numpy dtype of an output's array, a list of them, or None if the kernel allocates it."""
    if isinstance(spec, list):
        return [_shape_and_dtype(item) for item in spec]
    return None if spec is None or _is_unknown(spec) else (spec.shape, spec.dtype.array_dtype)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _rounded_to_spec(value: Any, spec: Any) -> Any:
    """Round a kernel's result of unknown shape to half precision, if the kernel computed it in float32 in place of halves."""
    if isinstance(value, list):
        return [_rounded_to_spec(*pair) for pair in zip(value, spec, strict=True)]
    if type(value) is LoDArray:
        return LoDArray(_rounded_to_spec(value.array, spec), value.lod)
    return in_dtype_of(value, spec.dtype) if isinstance(value, np.ndarray) else value


def _may_share(definition: OpDef, slot: str, source: str) -> bool:
    """Whether the kernel may write an output into the array of an input."""
    kernel = kernel_of(definition.type)
    return source in (slot, updated_input(definition, slot)) or (kernel is not None and kernel.inplace.get(slot) == source)


# ------------------------------------------------------------------------------------------------------------- run once
def apply_op(
    op_type: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    wanted: Set[str] | None = None,
    use_kernel: bool = True,
    xp: Any = np,
) -> dict[str, Any]:
    """Run one op on arrays, once.

    Args:
        inputs: arrays or `LoDArray`s by slot, lists of them in slots of many.
        attrs: attributes; defaults are filled in.
        wanted: output slots to compute; by default, all.
        use_kernel: if False, an op is computed by its formula or gradient rule even if it has a kernel.

    Returns:
        Arrays by output slot.
    """
    definition = registry.get(op_type)
    full = definition.defaults(definition.check_attrs(attrs or {}))
    source = RandomStreams(xp, 0).source(op_type, own_seed(full))
    wants = None if wanted is None else {slot: slot in wanted for slot in definition.outputs}
    listed = {slot: value if definition.inputs[slot].many else [value] for slot, value in inputs.items()}
    values = [(slot, _as_value(xp, item)) for slot, items in listed.items() for item in items]
    arguments = [Argument(slot, None if value is None else spec_of(value)) for slot, value in values]
    into = updates_of(definition)
    op = compiled(definition, full, arguments, xp, wants=wants, into=into, on_copies=True, rng=source, use_kernel=use_kernel)
    with OnNumpy():  # as in a run
        return op.by_slot(op.bound_run(*[array_of(value) for _, value in values]))


def _as_value(xp: Any, value: Any) -> Any:
    if type(value) is LoDArray:
        return LoDArray(xp.asarray(value.array), value.lod)
    return value if value is None or type(value) is SelectedRows else xp.asarray(value)


def updates_of(definition: OpDef) -> dict[str, str]:
    """Output slot -> slot of the input that it updates in place; the output slot itself if it also passes the former value."""
    pairs = ((name, name if slot.updated else updated_input(definition, name)) for name, slot in definition.outputs.items())
    return {slot: source for slot, source in pairs if source is not None}
