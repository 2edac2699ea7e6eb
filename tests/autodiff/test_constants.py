"""Inputs that ops take as constants: which they are is said, and where a gradient is cut that way, a warning says it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from checks import Checks, each
from samples.base import OPS

import fluid
from fluid import dygraph, layers
from fluid.ir.program import Variable
from fluid.opdef import registry
from fluid.opdef.registry import Rule

NO_DEPENDENCE = {"lod_reset": {"Y"}, "roi_pick": {"ROIs"}, "roi_place": {"ROIs"}}
"""Floating inputs without a gradient that only say sequences, or of which ops of gradients alone read the values."""


def of_gradients(op_type: str) -> bool:
    """Ops that only rules apply: their constant inputs are constants of the rule's op, too."""
    return op_type.endswith(("_back", "_like", "scatter", "sum_to")) or op_type in ("uninterp", "deform_columns", "deform_image")


def check_constants(op_type: str, rule: Rule) -> None:
    definition = registry.get(op_type)
    assert set(definition.constants) <= set(definition.inputs) - set(rule.wrt)
    floating = {
        slot
        for sample in OPS[op_type]
        for slot, value in sample.inputs.items()
        if any(np.asarray(item).dtype.kind in "fc" for item in (value if isinstance(value, list) else [value]))
    }
    shapes = {slot for slot in floating if definition.inputs[slot].shape_only or rule.inputs.get(slot)}
    silent = floating - set(rule.wrt) - shapes - set(definition.constants) - NO_DEPENDENCE.get(op_type, set())
    assert not silent or of_gradients(op_type), (
        f"{op_type} depends on {silent}, to which no gradient flows: name them in constants"
    )


def test_every_input_has_a_gradient_or_is_said_to_be_constant() -> None:
    with Checks() as check:
        for op_type in OPS:
            rule = registry.get(op_type).rule
            if isinstance(rule, Rule):
                with check(op_type):
                    check_constants(op_type, rule)


def clipped(x: Any, bound: Any) -> Any:
    """``clip`` with its greatest value in a tensor."""
    f = x._ops()
    return f.clip(x, None, bound, min=-5.0, max=5.0)


def told(action: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        action()
    return [str(item.message) for item in found]


def data() -> tuple[Variable, Variable]:
    x, bound = fluid.data("x", [3]), fluid.data("bound", [1])
    x.stop_gradient = bound.stop_gradient = False
    return x, bound


def test_where_a_gradient_is_partial() -> None:
    """It flows along one way to `bound`, and is cut along the other."""
    x, bound = data()
    out = clipped(x * bound, layers.square(bound))
    (message,) = told(lambda: fluid.gradients(out, [x, bound]))
    assert (
        "no gradient flows to square_0.tmp_0, which clip takes as a constant (Max); if that is meant, set its stop_gradient"
        in message
    )
    assert "test_constants.py" in message


LABELLED = {
    "margin_rank_loss": lambda x, label: layers.margin_rank_loss(label, x, layers.square(x)),
    "sigmoid_cross_entropy_with_logits": lambda x, label: layers.sigmoid_cross_entropy_with_logits(x, label),
    "teacher_student_sigmoid_loss": lambda x, label: layers.teacher_student_sigmoid_loss(x, label),
}


@each("name", LABELLED)
def test_a_label_without_a_gradient_is_told(name: str) -> None:
    """Paddle also gives no gradient to a label. An autoencoder's gradients equal Paddle's numbers: its label is its feed."""
    x = fluid.data("x", [3, 1])
    x.stop_gradient = False
    (message,) = told(lambda: fluid.gradients(LABELLED[name](x, layers.sigmoid(x)), [x]))
    assert f"no gradient flows to sigmoid_0.tmp_0, which {name} takes as a constant (Label" in message


def test_where_there_is_none_at_all() -> None:
    x, bound = data()
    out = clipped(x, bound)
    grads: list[Any] = []
    (message,) = told(lambda: grads.extend(fluid.gradients(out, [bound])))
    assert grads == [None] and "no gradient flows to bound, which clip takes as a constant" in message


def test_nothing_is_told_where_nothing_is_cut() -> None:
    """No warning off the way to the target, for variables without a wanted gradient, or after the user stopped the gradient."""
    x, bound = data()
    clipped(x, bound)
    assert not told(lambda: fluid.gradients(x * bound, [x, bound]))
    assert not told(lambda: fluid.gradients(clipped(x, bound), [x]))
    limit = layers.square(bound)
    limit.stop_gradient = True
    assert not told(lambda: fluid.gradients(clipped(x, limit) * bound, [x, bound]))


def test_inside_a_loop() -> None:
    x, bound = data()
    step, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2)

    def body(i: Variable, h: Variable) -> list[Variable]:
        return [layers.increment(i, in_place=False), clipped(h * bound, layers.square(bound))]

    _, out = layers.while_loop(lambda i, h: layers.less_than(i, last), body, [step, x])
    (message,) = told(lambda: fluid.gradients(out, [x, bound]))
    assert "which clip takes as a constant (Max)" in message


def test_eager_mode() -> None:
    x = dygraph.to_tensor(np.float32([1, 2, 3]), stop_gradient=False)
    bound = dygraph.to_tensor(np.float32([2.5]), stop_gradient=False)
    (message,) = told(lambda: clipped(x * bound, bound))
    assert "no gradient flows to Max, which clip takes as a constant; if that is meant, detach() it" in message
    assert "test_constants.py" in message
    assert not told(lambda: clipped(x * bound, bound.detach()))
    with dygraph.no_grad():
        assert not told(lambda: clipped(x, bound))
