"""Nodes save exactly the values that the wanted gradients read."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from checks import MORE, Checks
from conformance.in_eager_mode import SAMPLES, differentiable, run_eagerly, tensors, wrt_of
from numeric import direction_like, flat
from samples import Sample, cast

import fluid
from fluid import dygraph
from fluid.dygraph import Tensor, ops
from fluid.errors import BackwardError, FluidTypeError
from fluid.opdef import registry


def saved_by(y: Tensor) -> list[Any]:
    """The arrays that the node of a tensor keeps."""
    assert y.grad_fn is not None
    return [entry[0] for entry in y.grad_fn._saved]


def test_what_only_unwanted_gradients_read_is_not_saved() -> None:
    x, c = Tensor(np.ones((2, 2), "float32"), requires_grad=True), Tensor(np.full((2, 2), 3.0, "float32"))
    h = x * 1.0
    kernel, image = Tensor(np.ones((1, 1, 1, 1), "float32")), Tensor(np.ones((1, 1, 2, 2), "float32"), requires_grad=True)
    for found, kept in (
        (h * c, [c]), (c * h, [c]), (h @ c, [c]), (c @ h, [c]), (h / c, [c]), (ops.mul(h, c), [c]), (h * h, [h, h]), (h + c, []),
        (ops.conv2d(image, kernel), [kernel]), (ops.where(c > 1.0, h, c), None),
    ):  # fmt: skip
        if kept is not None:
            assert [id(array) for array in saved_by(found)] == [id(tensor._array) for tensor in kept], found
    y = (h * c).sum()
    h.add_(1.0)  # no value that backward reads
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    y = (h * c).sum()
    c.add_(1.0)
    with pytest.raises(BackwardError, match="modified in place"):
        y.backward()


def test_hooks_on_what_is_saved() -> None:
    """Packed when it is saved, unpacked in each backward, of any order; then changes of the tensor do not matter."""
    x, c, told = Tensor([2.0], requires_grad=True), Tensor([5.0]), []

    def pack(tensor: Tensor) -> Any:
        told.append("pack")
        return tensor.numpy()

    def unpack(array: Any) -> Tensor:
        told.append("unpack")
        return Tensor(array)

    with dygraph.saved_tensors_hooks(pack, unpack):
        y = x * x * c + ops.split(x * 2.0, num=1)[0].tanh()
        assert told == ["pack"] * 4  # x twice, c, and tanh's result; x * x is not read
        del told[:]
    c.add_(1.0)
    y.program()  # can be shown
    y.backward(retain_graph=True)
    assert told == ["unpack"] * 4
    expected = 20.0 + 2.0 * (1.0 - np.tanh(4.0) ** 2)
    assert x.grad is not None and x.grad.item() == pytest.approx(expected)
    (slope,) = dygraph.grad(y, x, create_graph=True)
    (second,) = dygraph.grad(slope, x, retain_graph=True)
    assert slope.item() == pytest.approx(expected) and second.item() == pytest.approx(10.0, abs=0.02)
    y.backward()
    with pytest.raises(BackwardError, match="saved values were freed"):
        y.backward()
    del told[:]
    with dygraph.saved_tensors_hooks(pack, unpack):
        fluid.layers.tanh(x.reshape(1, 1, 1))  # a layer that is called for the first time with such a tensor
    assert told == ["pack"]
    with dygraph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        y = x * c
    c.add_(1.0)  # packed as it is
    with pytest.raises(BackwardError, match="modified in place"):
        y.backward()
    with dygraph.saved_tensors_hooks(lambda tensor: None, lambda nothing: c.astype("float64")):
        y = x * c
    with pytest.raises(FluidTypeError, match=r"unpack should give a tensor that is float32\[1\], not float64\[1\]"):
        y.backward()


def one_by_one(op_type: str, sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute the gradient of each input alone: the bits equal those of the joint computation."""
    wrt = wrt_of(op_type, sample)
    inputs = cast(sample.inputs, "float64")
    rng = np.random.default_rng(zlib.crc32(op_type.encode()))
    rule: Any = registry.get(op_type).rule

    def gradients(slots: list[str], create_graph: bool) -> dict[str, Any]:
        given = tensors(sample, inputs, slots)
        found = run_eagerly(op_type, sample, given)
        outs = [out for slot in rule.cotangents for out in flat(found.get(slot)) if out is not None and not out.stop_gradient]
        weights = [part[: out.size].reshape(out.shape).astype(out.numpy().dtype) for out, part in zip(outs, noise, strict=False)]
        leaves = [(slot, item) for slot in slots for item in flat(given[slot])]
        with monkeypatch.context() as patch:
            patch.setattr(
                np, "empty", lambda shape, dtype=float: np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 7, dtype)
            )
            values = dygraph.grad(outs, [leaf for _, leaf in leaves], weights, create_graph=create_graph, allow_unused=True)
        by_slot: dict[str, Any] = {}
        for (slot, _), value in zip(leaves, values, strict=True):
            by_slot.setdefault(slot, []).append(None if value is None else value.numpy())
        return by_slot

    noise = [direction_like(rng, np.zeros(4096)) for _ in range(16)]
    for create_graph in (False, True):
        together = gradients(wrt, create_graph)
        for slot in wrt:
            for one, other in zip(gradients([slot], create_graph)[slot], together[slot], strict=True):
                assert (one is None) == (other is None), slot
                if one is not None:
                    np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13, err_msg=slot)


@pytest.mark.random
def test_each_gradient_alone_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients over arrays, and recorded gradients by the rule, read no value that the node did not save."""
    with Checks() as check:
        for op_type, cases in SAMPLES.items():
            for name, sample in list(cases.items())[: (MORE + 1) // 2]:
                if differentiable(op_type, sample) and len(wrt_of(op_type, sample)) > 1:
                    with check(name):
                        one_by_one(op_type, sample, monkeypatch)
