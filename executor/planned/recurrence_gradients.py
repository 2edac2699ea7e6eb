"""Gradients of recurrences over padded steps (see `recurrences`), in place of the gradients of loops.

The recurrence is differentiated anew, with the ops that have moved out of the loop. Then the gradient ops are written for padded
rows, as all ops are. Rows of steps after the end of a sequence get zeros from outside, so they add nothing to any gradient.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from fluid.autodiff.reverse import Differentiator
from fluid.errors import BackwardError
from fluid.ir.nesting import walk
from fluid.ir.program import Operator
from fluid.opdef.registry import EMPTY, grad_slot
from fluid.values.types import VarType

from .padded_rows import NotRewritten, Padding, Rewriter, RowFacts
from .recurrences import Recurrence
from .step_facts import First, FirstGradients, Ranked, Steps, fact_of

__all__ = ["write_gradient"]

_CLIPS = frozenset({"clip", "clip_by_norm"})


def write_gradient(to: Rewriter, op: Operator, recurrence: Recurrence) -> None:
    """Write the gradient of a recurrence in place of a ``while_grad``."""
    _Gradient(to, op, recurrence).write()


class _Gradient:
    """Writes the gradient of a recurrence; see `write_gradient`."""

    def __init__(self, to: Rewriter, op: Operator, recurrence: Recurrence) -> None:
        self._to, self._op, self._recurrence = to, op, recurrence
        self._outside, self._block = to.block, op.attr("sub_block")
        self._gradients: dict[str, str] = {}
        """Name -> its gradient, as long as nothing has got it: several arrays may hold one value."""

    def write(self) -> None:
        """Write the gradient, and note what the outputs of the op hold."""
        op, to = self._op, self._to
        wanted = [
            (name, gradient) for name, gradient in zip(op.input("X"), op.output(grad_slot("X")), strict=True) if gradient != EMPTY
        ]
        if op.attrs.get("original_output_grad") or op.output("X") or not self._is_plain():
            raise NotRewritten
        firsts = list(dict.fromkeys(fact_of(to, array, First).value for array in self._recurrence.states))
        sources = {name: self._source(name) for name in (*(name for name, _ in wanted), *firsts)}
        self._differentiate(sources.values(), self._cotangents())
        for name, gradient in wanted:
            self._pass_on(name, sources[name], gradient)
        shared = {source: self._take(source) for source in dict.fromkeys(sources[name] for name in firsts)}
        states = FirstGradients({name: self._as_fact(name, shared[sources[name]]) for name in firsts})
        to.loops |= {name: states for name in op.output("CarriedOut") if not isinstance(to.loops.get(name), Steps)}

    def _is_plain(self) -> bool:
        """Whether no gradient is clipped or sparse."""
        ops = [*walk([*self._block.ops, *self._recurrence.segment, *self._recurrence.steps])]
        has_clips = any(op.type in _CLIPS and not {*op.input_arg_names}.isdisjoint(op.output_arg_names) for op in ops)
        return not has_clips and not any(op.attrs.get("is_sparse") for op in ops)

    def _source(self, name: str) -> str:
        """The value outside that stands for a value read by the loop; the two have one gradient."""
        fact = self._to.loops.get(name)
        if isinstance(fact, Steps):
            return fact.rows
        return fact.value if isinstance(fact, Ranked) else name

    def _cotangents(self) -> list[tuple[str, str]]:
        """The rows that the recurrence makes, with their gradients."""
        to, outputs, pairs = self._to, dict(self._recurrence.outputs), list[tuple[str, str]]()
        for name in self._op.input("Carried"):
            fact = to.loops.get(name)
            if isinstance(fact, Steps):
                value = self._value_of(name)
                array = next((array for array, output in outputs.items() if output == value), None)
                if array is None:
                    raise NotRewritten
                del outputs[array]
                pairs.append((fact_of(to, array, Steps).rows, to.with_zeros(self._op, fact.rows)))
            elif name in to.loops or to.writes([name]):
                raise NotRewritten
        return pairs

    def _value_of(self, gradients: str) -> str:
        """The value of the loop's block that is written to an array with these gradients."""
        readers = [op for op in self._block.ops if op.type == "read_from_array" and op.input("X") == [gradients]]
        if len(readers) != 1 or not readers[0].input("X_W"):
            raise NotRewritten
        value: str = readers[0].input("X_W")[0]
        return value

    # -- differentiation
    def _constants(self) -> frozenset[str]:
        """The values of the loop's block without gradients, by the names that the recurrence has given them."""
        recurrence = self._recurrence
        constants = recurrence.names - recurrence.have_gradients
        return frozenset({recurrence.moved[name].name if name in recurrence.moved else name for name in constants})

    def _differentiate(self, sources: Collection[str], cotangents: Sequence[tuple[str, str]]) -> None:
        """Write the gradients of values outside."""
        outside, recurrence = self._outside, self._recurrence
        outer, steps, count = outside.ops, recurrence.body.ops, len(recurrence.segment)
        outside.ops, recurrence.body.ops = [*recurrence.segment], [*recurrence.steps]
        constants = self._constants() - {*sources}
        walker = Differentiator(outside, outside, constants)
        try:
            gradients = walker.gradients_of(sources, cotangents)
            new = outside.ops[count:]
            if outside.ops[:count] != recurrence.segment or recurrence.body.ops != recurrence.steps:
                raise NotRewritten  # a value is overwritten
        except BackwardError as error:
            raise NotRewritten from error
        finally:
            outside.ops, recurrence.body.ops = outer, steps
        self._gradients = {name: gradient for name, gradient in gradients.items() if gradient is not None}
        for op in new:
            if op.type == "recurrent_grad":
                self._write_block(op)
            else:
                self._to.visit(op)

    def _write_block(self, op: Operator) -> None:
        """Append the gradient of the recurrence itself; its block is written for padded rows."""
        to, block = self._to, op.attr("sub_block")
        ops, block.ops, facts = block.ops, [], dict(to.rows)
        with to.writing_to(block):
            for inner in ops:
                to.visit(inner)
        inner_facts, to.rows = to.rows, facts
        self._outside.ops.append(op)
        names = zip(op.input("parameters"), op.attr("parameter_grads"), op.output(grad_slot("parameters")), strict=True)
        for name, inner_gradient, gradient in names:
            if gradient != EMPTY and name in facts:
                if inner_facts.get(inner_gradient, facts[name]).padding is not Padding.ZEROS:
                    raise NotRewritten
                to.rows[gradient] = inner_facts[inner_gradient]

    # -- results
    def _take(self, source: str) -> str:
        """The name of the gradient of a value outside; zeros if there is none, or something has got it already."""
        gradient = self._gradients.pop(source, None)
        if gradient is None:
            gradient = self._to.add(self._op, "fill_zeros_like", {"X": source})
            if source in self._to.rows:
                self._to.rows[gradient] = RowFacts(self._to.rows[source].group, False, Padding.ZEROS)
        if self._outside.var(gradient).type is not VarType.LOD_TENSOR:
            raise NotRewritten
        return gradient

    def _as_fact(self, name: str, gradient: str) -> Any:
        fact = self._to.loops.get(name)
        return Ranked(fact.group, gradient) if isinstance(fact, Ranked) else gradient

    def _pass_on(self, name: str, source: str, gradient: str) -> None:
        """Let the output of the op hold the gradient of a value that the loop has read."""
        to, fact = self._to, self._to.loops.get(name)
        if isinstance(fact, Steps):
            to.loops[gradient] = Steps(fact.group, self._take(source))
        elif isinstance(fact, Ranked):
            to.loops[gradient] = Ranked(fact.group, self._take(source))
        elif fact is None:
            to.add(self._op, "assign", {"X": self._take(source)}, gradient)
        else:
            raise NotRewritten
