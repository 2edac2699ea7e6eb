"""Leaves, their gradients, and callbacks for gradients; compared with torch where it has the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import dygraph
from fluid.dygraph import Tensor
from fluid.errors import BackwardError, ProgramError


@pytest.fixture(scope="module", autouse=True)
def loaded_torch() -> None:
    """Load torch where the tests run, and not, which takes a second, wherever they are collected."""
    global torch
    torch = pytest.importorskip("torch")


def pairs() -> list[tuple[Any, Any]]:
    """(a leaf, a function of it that gives a graph's end) for both."""
    array = np.array([1.0, 2.0], np.float32)
    return [(make(array, requires_grad=True), make) for make in (Tensor, torch.tensor)]


def test_a_leaf_frozen_after_forward_gets_no_gradient() -> None:
    for x, make in pairs():
        other = make([3.0, 4.0], requires_grad=True)
        loss = (x * other).sum()
        x.requires_grad = False
        loss.backward()
        assert x.grad is None and other.grad.tolist() == [1.0, 2.0], make


def test_hooks_of_the_leaf_run_with_inputs_too() -> None:
    for x, make in pairs():
        seen: list[Any] = []
        y = x * 3.0
        node = (y if make is torch.tensor else x * 1.0).grad_fn
        leaf = node.next_functions[0][0] if make is torch.tensor else node.next_edges[0].node
        leaf.register_hook(lambda computed, received, seen=seen: seen.append(("node", received[0].tolist())))
        x.register_post_accumulate_grad_hook(lambda leaf, seen=seen: seen.append(("grad", leaf.grad.tolist())))
        x.register_hook(lambda grad: grad * 2.0)
        z = (y * y).sum()
        z.backward(inputs=[x], retain_graph=True)
        z.backward(retain_graph=True)
        assert seen == [
            ("grad", [36.0, 72.0]), ("node", [36.0, 72.0]), ("grad", [72.0, 144.0]), ("node", [36.0, 72.0])
        ], (make, seen)  # fmt: skip
        dygraph.grad(z, x) if make is Tensor else torch.autograd.grad(z, x)
        assert len(seen) == 4, make  # nothing was added to its grad


def test_a_hook_after_accumulation_may_use_up_the_gradient() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)

    def step(leaf: Any) -> None:
        with dygraph.no_grad():
            leaf.sub_(leaf.grad)
        leaf.grad = None

    with x.register_post_accumulate_grad_hook(step):
        (x * x).sum().backward()
    assert x.grad is None and x.tolist() == [-1.0, -2.0]
    (x * x).sum().backward()
    assert x.grad is not None
    with pytest.raises(BackwardError, match="only leaves"):
        (x * 2.0).register_post_accumulate_grad_hook(step)
    with pytest.raises(BackwardError, match="has stop_gradient set"):
        Tensor([1.0]).register_post_accumulate_grad_hook(step)


def test_spellings_of_torch() -> None:
    for x, make in pairs():
        y = x * 2.0
        y.retain_grad()
        y.sum().backward()
        assert y.grad.tolist() == [1.0, 1.0], make
        del x.grad
        assert x.grad is None, make
        assert y.detach_() is y and y.is_leaf and not y.requires_grad, make
        assert y.requires_grad_() is y and y.requires_grad and not y.requires_grad_(False).requires_grad, make


def test_a_gradient_by_nothing_is_an_error() -> None:
    x = Tensor([1.0], requires_grad=True)
    with pytest.raises(ProgramError, match="grad: inputs is empty"):
        dygraph.grad(x * x, [])


def test_tensors_keep_the_sequences_of_what_they_are_made_of() -> None:
    rows = fluid.create_lod_tensor(np.ones((3, 1), "float32"), [[1, 2]], fluid.CPUPlace())
    for made in (dygraph.to_variable(rows), Tensor(rows), Tensor(dygraph.to_variable(rows)), Tensor(rows, "float64")):
        assert made.lod == ((0, 1, 3),)
    assert fluid.layers.sequence_pool(dygraph.to_variable(rows), "sum").tolist() == [[1.0], [2.0]]


def test_in_place_methods() -> None:
    """Values, and gradients of old and new operands, as in torch."""
    array, rows = np.array([[-1.5, 0.4], [2.0, 0.25]]), np.array([[3.0, -4.0]])
    mask, index = array > 0.3, np.array([1])
    for ours, theirs in (
        (lambda y, u: y.clip_(-1.0, 1.0), lambda y, u: y.clip_(-1.0, 1.0)),
        (lambda y, u: y.masked_fill_(Tensor(mask), 2.0), lambda y, u: y.masked_fill_(torch.tensor(mask), 2.0)),
        (lambda y, u: y.scatter_(Tensor(index), u), lambda y, u: y.index_copy_(0, torch.tensor(index), u)),
        (lambda y, u: (y * y + 1.0).pow_(2.0), lambda y, u: (y * y + 1.0).pow_(2.0)),
    ):
        results: list[Any] = []
        for make, change in (
            (lambda a: Tensor(a, requires_grad=True), ours),
            (lambda a: torch.tensor(a, requires_grad=True), theirs),
        ):
            x, update = make(array), make(rows)
            y = x * 2.0
            z = change(y, update)
            (z * z * z).sum().backward()
            results.append([np.asarray(z.detach()), np.asarray(x.grad), None if update.grad is None else np.asarray(update.grad)])
        for one, other in zip(*results, strict=True):
            assert (one is None) == (other is None)
            np.testing.assert_allclose(0 if one is None else one, 0 if other is None else other, rtol=1e-12)
    with pytest.raises(BackwardError, match=r"clip_: .* is a leaf"):
        Tensor([1.0], requires_grad=True).clip_(0.0, 1.0)
