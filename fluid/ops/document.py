"""The reference of all ops, made from their definitions: ``python -m fluid.ops.document`` prints it; the site has it, too."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from operator import itemgetter
from typing import Any

from ..opdef import registry
from ..opdef.registry import NOT_DIFFERENTIABLE, REGION, ZERO_GRADIENT, Attr, OpDef, Rule, Slot

_HEAD = """# Ops

The inputs, outputs, attributes and gradient of each op, from the definitions in `fluid/ops/`.

In signatures, `X*` is a slot of many variables, `X?` may be empty, `Out~` is an output that only the op's own gradient reads, and
`Out&` is one that the op updates. In gradients, `dX` is the gradient of `X`. Of a slot written `X:shape` in the signature of a
gradient op, only shape and dtype are read. Gradients are made of ops, so that there are gradients of every order.
"""


# -------------------------------------------------------------------------------------------------------------- gradient
class _PlainCalls(ast.NodeTransformer):
    """``f.exp(X)`` as ``exp(X)``."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == self._namespace:
            return ast.copy_location(ast.Name(node.attr, ast.Load()), node)
        return node


def _function(fn: Callable[..., Any]) -> tuple[ast.FunctionDef, list[str]] | None:
    """The syntax tree of a function, and its source lines; None if there is no source."""
    try:
        source = textwrap.dedent(inspect.getsource(fn))
        (node,) = ast.parse(source).body
    except (OSError, SyntaxError, TypeError, ValueError):
        return None
    return (node, source.splitlines()) if isinstance(node, ast.FunctionDef) else None


def _formulas(rule: Rule) -> list[str] | None:
    """``dX = ...`` for each input, if the rule only returns a dict of expressions; otherwise None."""
    parsed = _function(rule.fn)
    if parsed is None:
        return None
    body = parsed[0].body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or not isinstance(body[0].value, ast.Dict):
        return None
    plain = _PlainCalls(next(iter(inspect.signature(rule.fn).parameters)))
    lines = []
    for key, value in zip(body[0].value.keys, body[0].value.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        value = value.body if isinstance(value, ast.Lambda) else value
        lines.append(f"d{key.value} = {ast.unparse(plain.visit(value))}")
    return lines


def _body(fn: Callable[..., Any]) -> list[str]:
    """The lines of a rule's or a composition's code, after the docstring."""
    parsed = _function(fn)
    if parsed is None:
        return []
    node, lines = parsed
    body = node.body
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
    start = body[0].end_lineno if documented else body[0].lineno - 1
    assert start is not None
    namespace = next(iter(inspect.signature(fn).parameters))
    text = textwrap.dedent("\n".join(lines[start : node.end_lineno]))
    return re.sub(rf"\b{namespace}\.(?=\w+\()", "", text).splitlines()


def _gradient(definition: OpDef) -> Iterator[str]:
    rule = definition.rule
    if rule is ZERO_GRADIENT:
        yield "Gradient: zero."
    elif rule is NOT_DIFFERENTIABLE:
        yield "Gradient: none; asking for one is an error."
    elif rule is REGION:
        yield "Gradient: that of the block it owns, as a block of its own."
    elif definition.is_composed:
        yield "Gradient: that of the ops that it is made of, written as ordinary ops."
    elif isinstance(rule, Rule):
        if definition.decomposition is not None:
            where = f"`{definition.decomposition.__name__}` in `{definition.module}`"
            yield f"Gradient: through its decomposition into ordinary ops, {where}."
        else:
            formulas = _formulas(rule)
            if formulas is not None and len(formulas) == 1 and len(formulas[0]) < 100:
                yield f"Gradient: `{formulas[0]}`"
            else:
                yield from ("Gradient:", "", "```python", *(_body(rule.fn) if formulas is None else formulas), "```")
        if definition.inline_grad:
            yield from ("", "Its gradient is written as these ops, not as one op.")
        else:
            yield from ("", f"Gradient op: `{_signature(registry.get(definition.grad_type))}`")
        if definition.constants:
            yield from ("", f"Treated as constants, to which no gradient flows: {', '.join(definition.constants)}.")


# ------------------------------------------------------------------------------------------------------------ definition
def _slot(slot: Slot) -> str:
    marks = "*" * slot.many + "?" * slot.optional + "~" * slot.intermediate + "&" * slot.updated
    takes = slot.describe("|")
    return slot.name + marks + (":shape" if slot.shape_only else "") + (f": {takes}" if takes else "")


def _signature(definition: OpDef) -> str:
    ins, outs = (", ".join(_slot(slot) for slot in slots.values()) for slots in (definition.inputs, definition.outputs))
    return f"{definition.type}({ins}) -> {outs}".rstrip()


def _attribute(name: str, attr: Attr) -> str:
    if attr.required:
        return f"`{name}`: {attr.kind}, required"
    return f"`{name}`: {attr.kind} = `{attr.default!r}`"


def described(definition: OpDef) -> tuple[str, dict[str, str]]:
    """Split an op's docstring: the text about the op, and the texts under ``Args:`` about slots and attributes, by name."""
    doc, _, args = (definition.doc or f"The op `{definition.type}`.").partition("\n\nArgs:\n")
    texts: dict[str, str] = {}
    for item in re.split(r"\n(?=\S)", textwrap.dedent(args)) if args else []:
        names, _, text = item.partition(": ")
        texts.update(dict.fromkeys(names.split(", "), " ".join(text.split())))
    return doc, texts


def _op(definition: OpDef) -> Iterator[str]:
    doc, texts = described(definition)
    yield from (f"### {definition.type}", "", f"`{_signature(definition)}`", "", doc, "")
    items = [(text, [f"`{name}`" for name, _ in items]) for text, items in itertools.groupby(texts.items(), key=itemgetter(1))]
    yield from (*(f"- {', '.join(names)}: {text}" for text, names in items), "")
    if definition.attrs:
        yield from ("Attributes: " + "; ".join(_attribute(name, attr) for name, attr in definition.attrs.items()) + ".", "")
    if definition.formula is not None and definition.formula.fn is not None and (body := _body(definition.formula.fn)):
        yield from ("Made of other ops:", "", "```python", *body, "```", "")
    yield from (*_gradient(definition), "")


def _families() -> dict[str, list[OpDef]]:
    """Ops by the module that defines them."""
    families: dict[str, list[OpDef]] = {}
    for _, definition in sorted(registry.all_ops().items()):
        if definition.forward is None and definition.module.startswith(__package__ + "."):
            families.setdefault(definition.module.rpartition(".")[2], []).append(definition)
    return dict(sorted(families.items()))


def _lines(families: dict[str, list[OpDef]]) -> Iterable[str]:
    yield from (f"{sum(map(len, families.values()))} ops:", "")
    for family, ops in families.items():
        names = ", ".join(f"[{op.type}](#{op.type.lower()})" for op in ops)
        yield f"- [{family}](#{family}-ops): {names}"
    for family, ops in families.items():
        doc = inspect.getdoc(import_module(f".{family}", __package__)) or ""
        yield from ("", f"## {family} ops", "", doc, "")
        for op in ops:
            yield from _op(op)


def render() -> str:
    """The reference as Markdown."""
    text = _HEAD + "\n" + "\n".join(_lines(_families()))
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


if __name__ == "__main__":
    print(render(), end="")
