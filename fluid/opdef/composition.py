"""Ops made of other ops: they are computed, inferred, differentiated and lowered to native code as these, and need no kernel.

`composed` defines such an op by a function that applies others. `pullback` differentiates a function of this kind over values of
any type (variables, specs, arrays, tensors): the ops that it applies are noted, and their gradient rules are applied in reverse.
`higher_gradient` defines Paddle's gradient ops of gradient ops (``tanh_grad_grad``): each is the pullback of a gradient rule.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import BackwardError, ProgramError
from ..values.operators import ValueOperators
from .inference import OpNamespace
from .parameters import OpFunction, grad_slot, parameters_of
from .registry import SHAPE_ONLY, ZERO_GRADIENT, OpDef, Rule, define, get

Values = Mapping[str, Any]
Function = Callable[[OpNamespace, Values, Values, set[str]], dict[str, Any]]
"""(namespace, values by slot, attributes, wanted slots) -> the values of the wanted slots."""


# ------------------------------------------------------------------------------------------------- differentiating functions
class _Noted(ValueOperators):
    """A value, and the trace that notes the ops on it."""

    __slots__ = ("trace", "value", "varies")

    def __init__(self, value: Any, trace: _Trace, varies: bool) -> None:
        self.value, self.trace, self.varies = value, trace, varies

    def _ops(self) -> OpNamespace:
        return self.trace

    @property
    def _eager(self) -> bool:  # type: ignore[override]
        return bool(self.value._eager)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value, name)  # shape, dtype, spec, ...


class _Trace(OpNamespace):
    """Ops of another namespace, noted as they are applied."""

    def __init__(self, f: OpNamespace) -> None:
        self._f, self.sizes_may_differ = f, f.sizes_may_differ
        self._steps: list[tuple[OpDef, dict[str, Any], Mapping[str, Any], dict[str, Any]]] = []
        self._gradients: dict[int, Any] = {}

    def note(self, value: Any, varies: bool = False) -> Any:
        """A value, or a list of them, whose ops are noted."""
        if isinstance(value, (list, tuple)):
            return [self.note(item, varies) for item in value]
        return None if value is None else _Noted(value, self, varies)

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        noted = {slot: list(value) if isinstance(value, (list, tuple)) else value for slot, value in inputs.items()}
        outputs = self._f.apply_all(definition, {slot: _plain(value) for slot, value in noted.items()}, attrs)
        varies = any(item is not None and item.varies for value in noted.values() for item in _listed(value))
        noted_outputs = {slot: self.note(value, varies) for slot, value in outputs.items()}
        if varies and definition.rule is not ZERO_GRADIENT:
            self._steps.append((definition, noted, definition.defaults(attrs), noted_outputs))
        return noted_outputs

    apply_all = apply

    def seed(self, value: Any, gradient: Any) -> None:
        """Add to the gradient of a noted value, or of each value in a list."""
        for item, part in zip(_listed(value), _listed(gradient), strict=True):
            if item is not None and part is not None and item.varies:
                before = self._gradients.get(id(item))
                self._gradients[id(item)] = part if before is None else self._f.sum([before, part])

    def gradient(self, value: Any) -> Any:
        """The gradient of a noted value, None if it is zero; a list for a list."""
        if isinstance(value, list):
            return [self.gradient(item) for item in value]
        return None if value is None else self._gradients.get(id(value))

    def reverse(self) -> None:
        """Apply the gradient rules of the noted ops, last first."""
        for definition, inputs, attrs, outputs in reversed(self._steps):
            gradients = {slot: self.gradient(value) for slot, value in outputs.items()}
            if not any(part is not None for value in gradients.values() for part in _listed(value)):
                continue
            rule = definition.rule
            if not isinstance(rule, Rule):
                raise BackwardError(f"the op {definition.type} is not differentiable, and the gradient would flow through it")
            for slot, value in gradients.items():
                if slot not in rule.cotangents and any(part is not None for part in _listed(value)):
                    raise BackwardError(f"a gradient reaches the output {slot} of {definition.type}, which has none")
            wanted = {slot for slot in rule.wrt if any(item is not None and item.varies for item in _listed(inputs.get(slot)))}
            if wanted:
                for slot, parts in self._by_rule(definition, rule, inputs, attrs, outputs, gradients, wanted).items():
                    if parts is not None:
                        self.seed(inputs[slot], parts)

    def _by_rule(
        self,
        definition: OpDef,
        rule: Rule,
        inputs: dict[str, Any],
        attrs: Mapping[str, Any],
        outputs: dict[str, Any],
        gradients: dict[str, Any],
        wanted: set[str],
    ) -> dict[str, Any]:
        values = {slot: _plain(value) for slot, value in {**outputs, **inputs}.items()}
        for slot in rule.cotangents:
            value, parts = values.get(slot), gradients.get(slot)
            if value is not None and (slot not in rule.optional or any(part is not None for part in _listed(parts))):
                values[grad_slot(slot)] = _or_zeros(self._f, parts, value)
        if definition.decomposition is None:
            return rule(self._f, values, attrs, wanted)
        gradient_op = get(definition.grad_type)
        read = {slot: value for slot, value in values.items() if slot in gradient_op.inputs and value is not None}
        results = self._f.apply_all(gradient_op, read, {name: attrs[name] for name in gradient_op.attrs})
        return {slot: results.get(grad_slot(slot)) for slot in wanted}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, _Noted) else value


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def pullback(
    f: OpNamespace, function: Function, values: Values, attrs: Values, seeds: Mapping[str, Any], wanted: Iterable[str]
) -> dict[str, Any]:
    """The gradients of ``sum(seeds[slot] * function(values)[slot])`` by the values in the slots `wanted`; None for zero."""
    trace, slots = _Trace(f), set(wanted)
    noted = {slot: trace.note(value, slot in slots) for slot, value in values.items()}
    outputs = function(trace, noted, attrs, set(seeds))
    for slot, gradient in seeds.items():
        if outputs.get(slot) is not None:
            trace.seed(outputs[slot], gradient)
    trace.reverse()
    return {slot: trace.gradient(noted[slot]) for slot in slots if noted.get(slot) is not None}


# ------------------------------------------------------------------------------------------------------------ composed ops
class _ComposedRule(Rule):
    """The gradient of a composed op: apply its ops again and differentiate them."""

    def __init__(
        self,
        definition: OpDef,
        function: Function,
        wrt: tuple[str, ...] | None,
        shape_only: Iterable[str],
        listed: Iterable[str],
    ) -> None:
        def gradient(f: Any) -> Any: ...

        super().__init__(gradient, definition, wrt)
        self._function = function
        self.inputs = {slot: slot in shape_only for slot in definition.inputs}
        self.outputs = dict.fromkeys(listed, True)
        self.cotangents = list(definition.visible)
        self.optional = {*definition.outputs, *(slot.name for slot in definition.inputs.values() if slot.optional)}

    def __call__(self, f: OpNamespace, values: Values, attrs: Values, wanted: set[str]) -> dict[str, Any]:
        inputs = {slot: values[slot] for slot in self.inputs if values.get(slot) is not None}
        seeds = {slot: values[grad_slot(slot)] for slot in self.cotangents if values.get(grad_slot(slot)) is not None}
        gradients = pullback(f, self._function, inputs, attrs, seeds, wanted)
        return {slot: _or_zeros(f, gradient, inputs[slot]) for slot, gradient in gradients.items()}


def _or_zeros(f: OpNamespace, gradient: Any, value: Any) -> Any:
    """The gradient of a value, zeros where there is none; a list for a list."""
    if isinstance(value, list):
        return [_or_zeros(f, *pair) for pair in zip(gradient, value, strict=True)]
    return f.fill_zeros_like(value) if gradient is None and value is not None else gradient


class Composition:
    """The ops that an op consists of. Call it with a namespace, values and attributes by name, and the outputs wanted.

    Attributes:
        fn: the function that states it; None for a gradient of a gradient op.
        shape_only: the inputs read only for their shape and dtype.
        listed: outputs that Paddle's gradient op lists; this one does not read their elements.
    """

    def __init__(self, function: Function, fn: Callable[..., Any] | None = None, listed: Iterable[str] = ()) -> None:
        self._function, self.fn, self.listed = function, fn, tuple(listed)
        annotations = {} if fn is None else parameters_of(fn)
        self.shape_only = frozenset(name for name, (annotation, _) in annotations.items() if annotation in SHAPE_ONLY)

    def of(self, definition: OpDef) -> Composition:
        """The composition of an op; a function that names slots and attributes gets the op's."""
        if self.fn is None:
            return self
        bound = OpFunction.of_one(definition, self.fn, ("f", "wanted", "values", "attrs"), "formula")

        def function(f: OpNamespace, values: Values, attrs: Values, wanted: set[str]) -> dict[str, Any]:
            context = {"f": f, "wanted": wanted, "values": values, "attrs": definition.declared_attrs(attrs)}
            return bound.results(definition, bound.arguments(values, attrs, context))

        return Composition(function, self.fn, self.listed)

    def __call__(self, f: OpNamespace, values: Values, attrs: Values, wanted: set[str]) -> dict[str, Any]:
        results = {slot: value for slot, value in self._function(f, values, attrs, wanted).items() if slot in wanted}
        if not results:
            raise ProgramError(f"nothing computes the outputs {', '.join(sorted(wanted))}")
        return results

    def rule(self, definition: OpDef, wrt: tuple[str, ...] | None) -> Rule:
        """The gradient rule of the op."""
        return _ComposedRule(definition, self._function, wrt, self.shape_only, self.listed)


def composed(
    signature: str, *, wrt: Iterable[str] | None = None, listed: Iterable[str] | None = None, **how: Any
) -> Callable[[Callable[..., Any]], OpDef]:
    """Define an op by other ops; decorates a function of a namespace and of the op's inputs and attributes by name::

        @composed("scale_and_add(X, Y, Bias?) -> Out", factor=1.0)
        def scale_and_add(f, X, Y, Bias, factor):
            out = X * factor + Y
            return out if Bias is None else out + Bias

    The function returns the first output, or a dict by slot. As gradient rules, it must not look at the sizes of dimensions,
    which may be -1. A parameter ``wanted`` is the set of outputs to compute; ``values`` and ``attrs`` are all of them by name.
    The specs of the outputs are inferred by applying the function to specs.

    Args:
        signature: type, inputs and outputs, as of `define`.
        wrt: the inputs to differentiate; all by default.
        listed: where Paddle has a gradient op, the outputs that it lists; the gradient is this op then. By default, it is written
            as ordinary ops.
        how: attributes with their defaults, and further arguments of `define`.

    >>> @fluid.extend.composed("scaled_tanh(X: float) -> Out", scale=2.0)
    ... def scaled_tanh(f, X, scale):
    ...     return f.tanh(X) * scale
    >>> fluid.extend.ops().scaled_tanh(fluid.data("x", [None, 2])).shape
    (-1, 2)
    """

    def register(fn: Callable[..., Any]) -> OpDef:
        composition = Composition(_unbound, fn, listed or ())
        document = _documented(inspect.getdoc(fn), fn)
        inline_grad, shapes = listed is None, composition.shape_only
        return define(signature, wrt=wrt, composition=composition, inline_grad=inline_grad, shape_only=shapes, **how)(document)

    return register


def means(fn: Callable[..., Any]) -> Composition:
    """Make the meaning of an op that also has a kernel, for `define(..., meaning=...)`.

    Args:
        fn: a function of a namespace and of the op's inputs and attributes by name, as of `composed`. It returns the
            first output, or a dict by slot. It may look at the sizes of dimensions only where engines know them.

    >>> formula = fluid.extend.means(lambda f, X: X * f.sigmoid(X))
    >>> @fluid.extend.define("gated(X: float) -> Out", infer=fluid.extend.like("X"), meaning=formula)
    ... def gated(f, X, dOut):
    ...     gate = f.sigmoid(X)
    ...     return {"X": dOut * gate * (1.0 + X * (1.0 - gate))}
    """
    return Composition(_unbound, fn)


def _unbound(f: OpNamespace, values: Values, attrs: Values, wanted: set[str]) -> dict[str, Any]:
    raise ProgramError("a formula is computed for an op; pass it to define(..., meaning=...)")


def _documented(doc: str | None, like: Callable[..., Any] | None = None) -> Callable[[], None]:
    def nothing() -> None: ...

    nothing.__doc__ = doc
    if like is not None:
        nothing.__module__ = like.__module__
    return nothing


# ------------------------------------------------------------------------------------------------ gradients of gradient ops
def _function_of(definition: OpDef) -> Function:
    """The function that a gradient op or a composed op computes."""
    if definition.composition is not None:
        return definition.composition._function
    assert definition.forward is not None and isinstance(definition.forward.rule, Rule)
    forward, rule = definition.forward, definition.forward.rule

    def function(f: OpNamespace, values: Values, attrs: Values, wanted: set[str]) -> dict[str, Any]:
        if any(values.get(slot) is None and not shape_only for slot, shape_only in rule.outputs.items()):
            inputs = {slot: values[slot] for slot in forward.inputs if values.get(slot) is not None}
            values = {**f.apply_all(forward, inputs, attrs), **values}
        slots = {slot for slot in rule.wrt if grad_slot(slot) in wanted}
        return {grad_slot(slot): gradient for slot, gradient in rule(f, values, attrs, slots).items()}

    return function


def higher_gradient(row: str, module: str, recovered: Callable[[Any, Values, Values], dict[str, Any]] | None = None) -> OpDef:
    """Define the gradient op of a gradient op.

    Args:
        row: ``"tanh_grad_grad of tanh_grad: Out, grad_out=Out@GRAD, grad_x@GRAD=X@GRAD@GRAD -> Out@GRAD, grad_out@GRAD=..."``:
            each slot with the name that it stands for, if the two differ: an input of the gradient op, an output, or the
                gradient (``@GRAD``) of one. Inputs that may be absent are marked by ``?``.
        module: the module of the row.
        recovered: takes a namespace, the values read under the gradient op's names, and attributes; returns the values of the
            gradient op that Paddle's op computes again rather than reads.
    """
    head, _, text = row.partition(":")
    name, _, base = head.split()
    lower = get(base)
    function = _function_of(lower)
    left, _, right = text.partition("->")
    read, write = (dict(_pair(part) for part in side.split(",")) for side in (left, right))
    marks = {slot.rstrip("?"): "?" * slot.endswith("?") for slot in read}
    sources = {slot.rstrip("?"): source for slot, source in read.items()}
    wrt = {slot: source.removesuffix("@GRAD") for slot, source in write.items()}

    def gradients(f: OpNamespace, values: Values, attrs: Values, wanted: set[str]) -> dict[str, Any]:
        by_source = {source: values[slot] for slot, source in sources.items() if values.get(slot) is not None}
        if recovered is not None:
            by_source |= {slot: value for slot, value in recovered(f, by_source, attrs).items() if slot not in by_source}
        seeds = {slot: by_source[grad_slot(slot)] for slot in lower.outputs if by_source.get(grad_slot(slot)) is not None}
        slots = [*lower.inputs, *(lower.forward.inputs if lower.forward is not None else ())]
        inputs = {slot: by_source[slot] for slot in slots if by_source.get(slot) is not None}
        results = pullback(f, function, inputs, attrs, seeds, [wrt[slot] for slot in wanted])
        return {
            slot: results[wrt[slot]] if results.get(wrt[slot]) is not None else f.fill_zeros_like(inputs[wrt[slot]])
            for slot in wrt
            if slot in wanted and inputs.get(wrt[slot]) is not None
        }

    signature = f"{name}({', '.join(slot + mark for slot, mark in marks.items())}) -> {', '.join(slot + '?' for slot in wrt)}"
    names = ", ".join(f"{slot} by {source}" for slot, source in wrt.items())
    doc = f"The gradient of `{base}`, as Paddle writes it: {names}."
    attrs: dict[str, Any] = dict(lower.attrs)
    documented = _documented(doc)
    documented.__module__ = module
    return define(signature, composition=Composition(gradients), inline_grad=True, **attrs)(documented)


def _pair(text: str) -> tuple[str, str]:
    slot, _, source = text.strip().partition("=")
    return slot, source or slot.rstrip("?")
