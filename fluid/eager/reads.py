"""Find the values of an op that the gradients of its inputs read, so that values only unwanted gradients need are not saved."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..executor.binding.arrays import map_values
from ..executor.kernels.table import check_of
from ..opdef.inference import OpNamespace, infer_specs
from ..opdef.registry import OpDef, Rule
from ..values.spec import Lod, Spec, SpecValue


class Traced(SpecValue):
    """A value for gradient rules with only a spec and its sources.

    Attributes:
        sources: numbers of the saved values whose elements it depends on.
    """

    __slots__ = ("_namespace", "sources", "spec")

    def __init__(self, spec: Spec, namespace: Tracing, sources: frozenset[int] = frozenset()) -> None:
        self.spec, self._namespace, self.sources = spec, namespace, sources

    def _ops(self) -> OpNamespace:
        return self._namespace

    @property
    def lod(self) -> Lod:
        return self.spec.lod


class Tracing(OpNamespace):
    """Ops on traced values: outputs have the sources of the inputs, except of inputs whose shape alone is read.

    Attributes:
        checked: the sources of values that ops check, whether or not their results are needed.
    """

    def __init__(self) -> None:
        self.checked: frozenset[int] = frozenset()

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        values = {slot: list(value) if isinstance(value, tuple) else value for slot, value in inputs.items()}
        specs = infer_specs(definition, map_values(lambda value: value.spec, values), definition.check_attrs(attrs))
        read = [
            value for slot, value in values.items() if slot not in definition.inputs or not definition.inputs[slot].shape_only
        ]
        sources = sources_of(read)
        if check_of(definition.type) is not None:
            self.checked |= sources
        return map_values(lambda spec: Traced(spec, self, sources), specs)


def sources_of(values: Collection[Any]) -> frozenset[int]:
    """The saved values that traced values, also in lists, depend on."""
    listed = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return frozenset().union(*[item.sources for item in listed if item is not None])


def rule_sources(
    rule: Rule, namespace: Tracing, values: Mapping[str, Any], attrs: Mapping[str, Any], wanted: set[str]
) -> frozenset[int]:
    """The saved values that the wanted gradients of a rule depend on, or that its ops check; `values` are traced."""
    return sources_of(list(rule(namespace, values, attrs, wanted).values())) | namespace.checked
