"""The documents that are made from the program are current, and every op is in them."""

from __future__ import annotations

import re

import pytest

import fluid  # noqa: F401  (fills the registry)
from fluid.opdef import registry
from fluid.opdef.registry import Rule, ShapeOnly, define, like
from fluid.ops import document


def test_every_op_is_documented_once() -> None:
    text = document.render()
    titles = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    ours = {name for name, op in registry.all_ops().items() if op.forward is None and op.module.startswith("fluid.ops.")}
    assert len(titles) == len(set(titles)) and set(titles) == ours
    for link in re.findall(r"\]\(#([\w-]+)\)", text):
        assert re.search(rf"^##+ {link.replace('-ops', ' ops')}$", text, re.MULTILINE | re.IGNORECASE), f"#{link} leads nowhere"


def entry(op_type: str, text: str | None = None) -> str:
    """The entry of an op in a text, by default in a newly generated one."""
    match = re.search(rf"^### {op_type}\n\n(.*?)(?=^##|\Z)", text or document.render(), re.MULTILINE | re.DOTALL)
    assert match is not None
    return match.group(1)


def test_an_entry_says_it_all() -> None:
    text = document.render()
    assert entry("tanh", text) == (
        "`tanh(X: float) -> Out`\n\nHyperbolic tangent.\n\nGradient: `dX = dOut * (1.0 - Out * Out)`\n\n"
        "Gradient op: `tanh_grad(Out, Out@GRAD) -> X@GRAD?`\n\n"
    )
    assert "Attributes: `threshold`: float = `6.0`." in entry("relu6", text)
    assert "Gradient: zero." in entry("elementwise_floordiv", text)
    assert "Gradient: none; asking for one is an error." in entry("accuracy", text)
    assert "Gradient: that of the block it owns" in entry("while", text)
    assert "required" in entry("cast", text)


def test_a_rule_of_several_lines_is_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ops", dict(registry._ops))

    @define("documented(X, Y*, Z?) -> Out, Kept~", infer=like("X"), wrt=("X",), axis=-1)
    def documented(f, X: ShapeOnly, Z, dOut, axis):  # type: ignore[no-untyped-def]
        """Two lines
        of words."""
        if Z is None:  # as ever
            Z = f.exp(dOut)
        return {"X": f.tanh(Z) * axis}

    assert isinstance(documented.rule, Rule)
    monkeypatch.setattr(documented, "module", "fluid.ops.norm")
    assert entry("documented") == (
        "`documented(X, Y*, Z?) -> Out, Kept~`\n\nTwo lines\nof words.\n\nAttributes: `axis`: int = `-1`.\n\nGradient:\n\n"
        '```python\nif Z is None:  # as ever\n    Z = exp(dOut)\nreturn {"X": tanh(Z) * axis}\n```\n\n'
        "Gradient op: `documented_grad(X:shape, Z?, Out@GRAD) -> X@GRAD?`\n\n"
    )


def test_a_lambda_is_its_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ops", dict(registry._ops))

    @define("lazy(X, Y) -> Out", infer=like("X"))
    def lazy(f, X, Y, dOut):  # type: ignore[no-untyped-def]
        """Words."""
        return {"X": lambda: f.relu(Y) * dOut, "Y": dOut}

    monkeypatch.setattr(lazy, "module", "fluid.ops.norm")
    assert "```python\ndX = relu(Y) * dOut\ndY = dOut\n```" in entry("lazy")
