"""Writes ``ops.py``, the layers that are one op each, from the op definitions: ``python -m fluid.layers.generate``.

The file is checked in, so that editors and type checkers see real functions; a test keeps it current.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from textwrap import indent

from ..opdef import registry
from ..opdef.registry import OpDef

__all__ = ["PATH", "render"]

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops.py")

_WIDTH = 130
_COMPARISONS = ("less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal")
_BY_HAND = ("pow",)
_TYPES = {"float": "float", "int": "int", "bool": "bool", "string": "str", "long": "int"}
# Where Fluid's arguments are not the op's attributes under their own names: (argument, attribute, default). None leaves
# the op's own default.
_ARGUMENTS: dict[str, list[tuple[str, str, object]]] = {
    "cumsum": [("axis", "axis", None), ("exclusive", "exclusive", None), ("reverse", "reverse", None)],
    "hard_shrink": [("threshold", "threshold", None)],
    "selu": [("scale", "scale", None), ("alpha", "alpha", None)],
    "softshrink": [("alpha", "lambda", None)],
    "thresholded_relu": [("threshold", "threshold", None)],
}

# Layers of one op by Fluid's names: ``layer(argument: slot or attribute = default, ...)``, where ``-`` stands for an argument
# that is accepted and changes nothing; ``= op`` follows where the op is not named as the layer.
_LAYERS = (
    "add_position_encoding(input: X, alpha: alpha, beta: beta, name)",
    "argsort(input: X, axis: axis = -1, name)",
    "bpr_loss(input: X, label: Label, name)",
    "cos_sim(X: X, Y: Y)",
    "cumsum(x: X, axis: axis = None, exclusive: exclusive = None, reverse: reverse = None)",
    "diag(diagonal: Diagonal)",
    "expand_as(x: X, target_tensor: target_tensor, name)",
    "gather_nd(input: X, index: Index, name)",
    "gather_tree(ids: Ids, parents: Parents)",
    "gaussian_random_batch_size_like(input: Input, shape: shape, input_dim_idx: input_dim_idx = 0, output_dim_idx: output_dim_idx"
    " = 0, mean: mean = 0.0, std: std = 1.0, seed: seed = 0, dtype: dtype = 'float32')",
    "has_inf(x: X) = isinf",
    "has_nan(x: X) = isnan",
    "hash(input: X, hash_size: mod_by, num_hash: num_hash = 1, name)",
    "isfinite(x: X)",
    "kldiv_loss(x: X, target: Target, reduction: reduction = 'mean', name)",
    "label_smooth(label: X, prior_dist: PriorDist = None, epsilon: epsilon = 0.1, dtype: - = 'float32', name)",
    "log_loss(input: Predicted, label: Labels, epsilon: epsilon = 0.0001, name)",
    "margin_rank_loss(label: Label, left: X1, right: X2, margin: margin = 0.1, name)",
    "mean_iou(input: Predictions, label: Labels, num_classes: num_classes)",
    "multiplex(inputs: X, index: Ids)",
    "pad(x: X, paddings: paddings, pad_value: pad_value = 0.0, name)",
    "rank_loss(label: Label, left: Left, right: Right, name)",
    "sampling_id(x: X, min: min = 0.0, max: max = 1.0, seed: seed = 0, dtype: - = 'float32')",
    "scatter(input: X, index: Ids, updates: Updates, name, overwrite: overwrite = True)",
    "scatter_nd_add(ref: X, index: Index, updates: Updates, name)",
    "shard_index(input: X, index_num: index_num, nshards: nshards, shard_id: shard_id, ignore_value: ignore_value = -1)",
    "size(input: Input)",
    "smooth_l1(x: X, y: Y, inside_weight: InsideWeight = None, outside_weight: OutsideWeight = None, sigma: sigma = None)"
    " = smooth_l1_loss",
    "teacher_student_sigmoid_loss(input: X, label: Label, soft_max_up_bound: soft_max_up_bound = 15.0, soft_max_lower_bound:"
    " soft_max_lower_bound = -15.0)",
    "uniform_random_batch_size_like(input: Input, shape: shape, dtype: dtype = 'float32', input_dim_idx: input_dim_idx = 0,"
    " output_dim_idx: output_dim_idx = 0, min: min = -1.0, max: max = 1.0, seed: seed = 0)",
    "unique(x: X, dtype: dtype = 'int32')",
    "unique_with_counts(x: X, dtype: dtype = 'int32')",
    "where(condition: Condition) = where_index",
)
_LAYER = re.compile(r"(\w+)\((.*)\)(?: = (\w+))?$")

_HEAD = '''"""Layers of one op each. Do not edit: ``python -m fluid.layers.generate`` writes this file from the op definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..building.layer_helper import apply, apply_many
from ..ir.program import Variable
from ..values.types import DTypeLike, as_dtype
from .arguments import speaking_of

__all__ = [  # noqa: RUF022  (in the order of the functions)
{names}
]


def _reduce(op_type: str, input: Variable, dim: int | Sequence[int] | None, keep_dim: bool, name: str | None) -> Variable:
    attrs: dict[str, Any] = {{"keep_dim": keep_dim}}
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        attrs["reduce_all"] = True
    else:
        attrs["dim"] = [dim] if isinstance(dim, int) else list(dim)
    return apply(op_type, {{"X": input}}, attrs, name=name)


def _compare(op_type: str, x: Variable, y: Variable, cond: Variable | None) -> Variable:
    found = apply(op_type, {{"X": x, "Y": y}}, outputs={{"Out": cond}})
    found.stop_gradient = True
    return found


def _given(attrs: dict[str, Any]) -> dict[str, Any]:
    return {{name: value for name, value in attrs.items() if value is not None}}


def _constant(found: Variable) -> Variable:
    found.stop_gradient = True
    return found
'''


def _doc(definition: OpDef) -> str:
    lines = definition.doc.replace("\\", "\\\\").splitlines() or [f"The op `{definition.type}`."]
    if len(lines) == 1:
        return f'    """{lines[0]}"""\n'
    body = "".join(f"    {line}".rstrip() + "\n" for line in lines[1:])
    return f'    """{lines[0]}\n{body}    """\n'


def _arguments(definition: OpDef) -> list[tuple[str, str, str, object]]:
    """(argument, its type, attribute, default) of a function of one tensor."""
    special = _ARGUMENTS.get(definition.type)
    if special is not None:
        return [
            (argument, _TYPES[definition.attrs[attribute].kind] + " | None", attribute, default)
            for argument, attribute, default in special
            if attribute in definition.attrs
        ]
    return [
        (name, _TYPES[attr.kind], name, attr.default)
        for name, attr in definition.attrs.items()
        if attr.kind in _TYPES and not attr.required
    ]


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _head(name: str, arguments: list[str], result: str = "Variable") -> str:
    """The line that begins a function, or lines, as the formatter breaks them."""
    line = f"def {name}({', '.join(arguments)}) -> {result}:\n"
    if len(line) <= _WIDTH + 1:
        return line
    inner = "    " + ", ".join(arguments) + "\n"
    if len(inner) > _WIDTH + 1:
        inner = "".join(f"    {argument},\n" for argument in arguments)
    return f"def {name}(\n{inner}) -> {result}:\n"


def _unary(definition: OpDef) -> str:
    arguments = _arguments(definition)
    said = [f"{name}: {kind} = {_literal(default)}" for name, kind, _, default in arguments]
    given = ", ".join(f'"{attribute}": {name}' for name, _, attribute, _ in arguments)
    if any(kind.endswith("None") for _, kind, _, _ in arguments):
        passed = f", _given({{{given}}})"
    else:
        passed = f", {{{given}}}" if given else ""
    body = f'    return apply("{definition.type}", {{"X": x}}{passed}, name=name)\n'
    return (
        _head(definition.type, ["x: Variable", *said, "name: str | None = None"])
        + _doc(definition)
        + _speaking_of({attribute: name for name, _, attribute, _ in arguments}, body)
    )


def _speaking_of(arguments: dict[str, str], body: str) -> str:
    """`body` where messages name the arguments, by attribute, that are not called as the attribute is."""
    renamed = ", ".join(f'"{attribute}": "{argument}"' for attribute, argument in arguments.items() if attribute != argument)
    return f"    with speaking_of({{{renamed}}}):\n{indent(body, '    ')}" if renamed else body


def _elementwise(definition: OpDef) -> str:
    arguments = ["x: Variable", "y: Variable", "axis: int = -1", "act: str | None = None", "name: str | None = None"]
    call = f'    return apply("{definition.type}", {{"X": x, "Y": y}}, {{"axis": axis}}, name=name, act=act)\n'
    return _head(definition.type, arguments) + _doc(definition) + call


def _comparison(definition: OpDef) -> str:
    arguments = ["x: Variable", "y: Variable", "cond: Variable | None = None"]
    if definition.type == "less_than":
        arguments.insert(2, "force_cpu: bool | None = None")
    return _head(definition.type, arguments) + _doc(definition) + f'    return _compare("{definition.type}", x, y, cond)\n'


def _logical(definition: OpDef) -> str:
    arguments = ["x: Variable", "out: Variable | None = None", "name: str | None = None"]
    inputs = '"X": x'
    if "Y" in definition.inputs:
        arguments.insert(1, "y: Variable")
        inputs += ', "Y": y'
    call = f'    return apply("{definition.type}", {{{inputs}}}, name=name, outputs={{"Out": out}})\n'
    return _head(definition.type, arguments) + _doc(definition) + call


def _reduction(definition: OpDef) -> str:
    dim = "dim: int | Sequence[int] | None = None"
    arguments = ["input: Variable", dim, "keep_dim: bool = False", "name: str | None = None"]
    return (
        _head(definition.type, arguments)
        + _doc(definition)
        + f'    return _reduce("{definition.type}", input, dim, keep_dim, name)\n'
    )


def _layer(text: str) -> tuple[str, str]:
    """Name and function of a line of `_LAYERS`."""
    match = _LAYER.match(text)
    assert match is not None, text
    name, said, op_type = match.groups()
    definition = registry.get(op_type or name)
    arguments, inputs, attrs, given, named = [], [], [], "", False
    spoken: dict[str, str] = {}
    for part in said.split(", "):
        argument, _, rest = part.partition(": ")
        target, _, default = rest.partition(" = ")
        if part == "name":
            arguments.append("name: str | None = None")
            named = True
            continue
        value = argument
        if target in definition.inputs:
            inputs.append(f'"{target}": {argument}')
            kind = "Sequence[Variable]" if definition.inputs[target].many else "Variable"
        elif argument == "dtype":
            kind, value = "DTypeLike", "int(as_dtype(dtype))"
        else:
            attr = definition.attrs[target]
            kind = _TYPES.get(attr.kind, "Sequence[int]")
        if target in definition.attrs:
            attrs.append(f'"{target}": {value}')
            spoken[target] = argument
            given = "_given" if default == "None" else given
        end = f" = {default.replace(chr(39), chr(34))}" if default else ""
        arguments.append(f"{argument}: {kind}{' | None' * (default == 'None')}{end}")
    seen = [slot.name for slot in definition.outputs.values() if not slot.intermediate and not slot.optional]
    constant = definition.rule in (registry.ZERO_GRADIENT, registry.NOT_DIFFERENTIABLE)
    result = "Variable" if len(seen) == 1 else f"tuple[{', '.join(['Variable'] * len(seen))}]"
    body = _body(definition.type, inputs, attrs, given, ", name=name" * named, seen, constant)
    return name, _head(name, arguments, result) + _doc(definition) + _speaking_of(spoken, body)


def _body(op_type: str, inputs: list[str], attrs: list[str], given: str, name: str, seen: list[str], constant: bool) -> str:
    """The lines that append an op and return what it gives."""
    sets = {
        "inputs": f"{{{', '.join(inputs)}}}",
        "attrs": f"{given}({{{', '.join(attrs)}}})" if given else f"{{{', '.join(attrs)}}}",
    }
    lines = []

    def call() -> str:
        found = f'"{op_type}", {sets["inputs"]}{", " + sets["attrs"] if attrs else ""}{name}'
        if len(seen) > 1:
            return f"{', '.join(made)} = apply_many({found})"
        return f"return _constant(apply({found}))" if constant else f"return apply({found})"

    made = [re.sub(r"(?<!^)([A-Z])", r"_\1", slot).lower() for slot in seen]
    for which, items in (("attrs", attrs), ("inputs", inputs)):
        if len("    " + call()) > _WIDTH:
            line = f"    {which}: dict[str, Any] = {sets[which]}\n"
            if len(line) > _WIDTH + 1:
                line = f"    {which}: dict[str, Any] = {{\n" + "".join(f"        {item},\n" for item in items) + "    }\n"
            lines.append(line)
            sets[which] = which
    lines.append(f"    {call()}\n")
    if len(seen) > 1 and constant:
        lines += [f"    _constant({var})\n" for var in made]
    if len(seen) > 1:
        lines.append(f"    return {', '.join(made)}\n")
    return "".join(lines)


def _functions() -> Iterator[tuple[str, str]]:
    from ..ops import activation

    unary = {value.type for value in vars(activation).values() if isinstance(value, OpDef)}
    for name, definition in sorted(registry.all_ops().items()):
        if definition.forward is not None or name in _BY_HAND:
            continue
        needed = [slot.name for slot in definition.inputs.values() if not slot.optional]
        seen = [slot.name for slot in definition.outputs.values() if not slot.intermediate]
        if name in unary and needed == ["X"] and seen == ["Out"]:
            yield name, _unary(definition)
        elif name.startswith("elementwise_") and needed == ["X", "Y"]:
            yield name, _elementwise(definition)
        elif name in _COMPARISONS:
            yield name, _comparison(definition)
        elif name.startswith("logical_"):
            yield name, _logical(definition)
        elif name.startswith("reduce_"):
            yield name, _reduction(definition)


def render() -> str:
    """The text of ``ops.py``."""
    functions = dict(sorted([*_functions(), *map(_layer, _LAYERS)]))
    names = "\n".join(f'    "{name}",' for name in functions)
    return _HEAD.format(names=names) + "".join(f"\n\n{text}" for text in functions.values())


if __name__ == "__main__":
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(render())
