"""Layers without parameters as objects, `Sequential` with functions, and methods of tensors as in numpy and torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import dygraph, layers
from fluid.dygraph import Tensor
from fluid.errors import FluidTypeError, InferenceError, ProgramError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    with dygraph.guard():
        yield


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("float32")


def test_losses_with_the_arguments_of_1_8() -> None:
    predicted, labels = np.array([[0.2, 0.7], [0.4, 0.9]], "float32"), np.array([[0, 1], [1, 0]], "float32")
    x, y = Tensor(predicted), Tensor(labels)
    squares, differences = (predicted - labels) ** 2, np.abs(predicted - labels)
    entropies = -np.log(np.where(labels == 1, predicted, 1 - predicted))
    weights = np.array([1.0, 3.0], "float32")
    logs, classes = Tensor(np.log(predicted)), Tensor(np.array([1, 0]))
    picked = -np.log(predicted[[0, 1], [1, 0]])
    for reduction, reduce in (("mean", np.mean), ("sum", np.sum), ("none", lambda losses: losses)):
        for loss, expected in (
            (dygraph.MSELoss(reduction)(x, y), squares),
            (dygraph.L1Loss(reduction)(input=x, label=y), differences),
            (dygraph.BCELoss(reduction=reduction)(x, y), entropies),
            (dygraph.BCELoss(Tensor(weights), reduction)(x, y), entropies * weights),
            (dygraph.NLLLoss(reduction=reduction)(logs, classes), picked),
        ):
            np.testing.assert_allclose(loss.numpy(), np.reshape(reduce(expected), loss.shape), rtol=1e-5)
    weighted = {
        kind: dygraph.NLLLoss(Tensor(weights), kind, ignore_index=0)(logs, classes).numpy() for kind in ("mean", "sum", "none")
    }
    np.testing.assert_allclose(weighted["none"], [3 * picked[0], 0.0], rtol=1e-5)
    np.testing.assert_allclose([weighted["sum"], weighted["mean"]], [[3 * picked[0]], [picked[0]]], rtol=1e-5)
    listed = [dygraph.NLLLoss([1.0, 3.0], "sum")(logs, classes), dygraph.BCELoss([1.0, 3.0], "sum")(x, y)]
    expected = [picked @ weights[[1, 0]], (entropies * weights).sum()]
    np.testing.assert_allclose([loss.item() for loss in listed], expected, rtol=1e-5)
    with pytest.raises(ProgramError, match="L1Loss: reduction should be 'mean', 'sum' or 'none', not 'max'"):
        dygraph.L1Loss("max")


def test_a_net_of_modules_and_functions() -> None:
    net = dygraph.Sequential(
        dygraph.Conv2D(None, 4, 3, padding=1),
        dygraph.BatchNorm2D(4),
        dygraph.ReLU(),
        dygraph.MaxPool2D(2),
        layers.tanh,
        ("shrink", lambda x: x * 0.5),
        dygraph.AvgPool2D(3, stride=1, padding=1),
        dygraph.Flatten(),
        dygraph.Linear(4 * 4 * 4, 3),
        dygraph.Softmax(),
    )
    images = Tensor(drawn(2, 1, 8, 8))
    out = net(images)
    assert out.shape == (2, 3) and np.allclose(out.numpy().sum(axis=1), 1) and "shrink" in str(net)
    traced = dygraph.trace(net, images)
    assert traced(Tensor(drawn(5, 1, 8, 8))).shape == (5, 3)
    loss = dygraph.CrossEntropyLoss()(net(images), Tensor(np.array([1, 2])))
    loss.backward()
    assert all(parameter.grad is not None for parameter in net.parameters() if parameter.trainable)
    with pytest.raises(FluidTypeError, match="a layer or a function is wanted, not int"):
        dygraph.Sequential(3)


def test_activations_and_losses_beside_formulas() -> None:
    x, y = drawn(4, 3), drawn(4, 3)
    labels = np.array([0, 2, 1, 1])
    exp = np.exp(x - x.max(axis=1, keepdims=True))
    softmax = exp / exp.sum(axis=1, keepdims=True)
    sigmoid = 1 / (1 + np.exp(-x))
    share = 1 / (1 + np.exp(-y))
    gap = np.abs(x - y)
    cases: list[tuple[Any, Any]] = [
        (dygraph.ReLU()(Tensor(x)), np.maximum(x, 0)),
        (dygraph.LeakyReLU(0.2)(Tensor(x)), np.where(x > 0, x, 0.2 * x)),
        (dygraph.GELU(approximate=True)(Tensor(x)), 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
        (dygraph.Sigmoid()(Tensor(x)), sigmoid),
        (dygraph.Tanh()(Tensor(x)), np.tanh(x)),
        (dygraph.Softmax(axis=1)(Tensor(x)), softmax),
        (dygraph.MSELoss()(Tensor(x), Tensor(y)), np.mean((x - y) ** 2)),
        (dygraph.L1Loss()(Tensor(x), Tensor(y)), np.mean(np.abs(x - y))),
        (dygraph.CrossEntropyLoss()(Tensor(x), Tensor(labels)), -np.mean(np.log(softmax[range(4), labels]))),
        (dygraph.CrossEntropyLoss()(Tensor(x), Tensor(labels[:, None])), -np.mean(np.log(softmax[range(4), labels]))),
        (
            dygraph.BCEWithLogitsLoss()(Tensor(x), Tensor(share)),
            -np.mean(share * np.log(sigmoid) + (1 - share) * np.log(1 - sigmoid)),
        ),
        (dygraph.LogSoftmax()(Tensor(x)), np.log(softmax)),
        (dygraph.NLLLoss()(dygraph.LogSoftmax()(Tensor(x)), Tensor(labels)), -np.mean(np.log(softmax[range(4), labels]))),
        (dygraph.ELU(0.5)(Tensor(x)), np.where(x > 0, x, 0.5 * (np.exp(x) - 1))),
        (dygraph.SiLU()(Tensor(x)), x * sigmoid),
        (dygraph.Hardswish()(Tensor(x)), x * np.clip(x + 3, 0, 6) / 6),
        (dygraph.Identity()(Tensor(x)), x),
        (
            dygraph.BCELoss()(Tensor(sigmoid), Tensor(share)),
            -np.mean(share * np.log(sigmoid) + (1 - share) * np.log(1 - sigmoid)),
        ),
        (dygraph.SmoothL1Loss(0.5)(Tensor(x), Tensor(y)), np.mean(np.where(gap < 0.5, gap * gap, gap - 0.25))),
        (dygraph.KLDivLoss()(Tensor(np.log(softmax)), Tensor(share)), np.mean(share * (np.log(share) - np.log(softmax)))),
        (dygraph.AdaptiveAvgPool2D(1)(Tensor(x.reshape(1, 2, 2, 3))), x.reshape(2, 6).mean(1)),
        (dygraph.AdaptiveMaxPool2D([1, 3])(Tensor(x.reshape(1, 2, 2, 3))), x.reshape(2, 2, 3).max(1)),
    ]
    for found, expected in cases:
        np.testing.assert_allclose(np.squeeze(found.numpy()), expected, rtol=1e-5, atol=1e-6)


def test_batch_norms_check_their_dimensions() -> None:
    for kind, shape, wrong in (
        (dygraph.BatchNorm1D, (5, 2), (5, 2, 3, 3)),
        (dygraph.BatchNorm1D, (5, 2, 7), (5, 2, 3, 3)),
        (dygraph.BatchNorm2D, (5, 2, 3, 3), (5, 2)),
        (dygraph.BatchNorm3D, (5, 2, 2, 3, 3), (5, 2)),
    ):
        norm, x = kind(2), drawn(*shape)
        axes = (0, *range(2, x.ndim))
        expected = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
        np.testing.assert_allclose(norm(Tensor(x)).numpy(), expected, rtol=1e-4, atol=1e-5)
        with pytest.raises(ProgramError, match=r"BatchNorm.D takes .* dimensions, and the input is float32"):
            norm(Tensor(drawn(*wrong)))


def test_methods_beside_numpy() -> None:
    array = drawn(2, 3, 4)
    x = Tensor(array)
    cases: list[tuple[Any, Any]] = [
        (x.argmax(), array.argmax()),
        (x.argmax(1), array.argmax(1)),
        (x.argmin(-1), array.argmin(-1)),
        (x.std(), array.std(ddof=1)),
        (x.std(1, keepdim=True), array.std(1, ddof=1, keepdims=True)),
        (x.var([0, 2], unbiased=False), array.var((0, 2))),
        (x.var(-1), array.var(-1, ddof=1)),
        (x.view(6, -1), array.reshape(6, 4)),
        (x.permute(2, 0, 1), array.transpose(2, 0, 1)),
        (x.flatten(), array.ravel()),
        (x.flatten(1), array.reshape(2, 12)),
        (x.flatten(0, 1), array.reshape(6, 4)),
        (x[:1].expand(5, -1, 4), np.broadcast_to(array[:1], (5, 3, 4))),
        (x[0].expand_as(x), np.broadcast_to(array[0], (2, 3, 4))),
        (x.clamp(-0.5, 0.5), array.clip(-0.5, 0.5)),
        (x.clip(min=0.1), array.clip(0.1)),
        (x.clamp(max=0.1), array.clip(None, 0.1)),
        (x.cumsum(1), array.cumsum(1)),
        (x.argsort(), array.argsort(-1, kind="stable")),
        (x.topk(2)[0], -np.sort(-array, -1)[..., :2]),
        ((x > 0).any(1), (array > 0).any(1)),
        ((x > -9.0).all(), True),
        (x[0].mm(x[1].permute(1, 0)), array[0] @ array[1].T),
        (x.max(1), array.max(1)),
        (x.min(), array.min()),
    ]
    for number, (found, expected) in enumerate(cases):
        np.testing.assert_allclose(np.squeeze(found.numpy()), np.squeeze(expected), rtol=1e-5, atol=1e-6, err_msg=str(number))
    assert (x.dim(), x.numel(), x.cpu() is x, x.to("cpu") is x) == (3, 24, True, True)
    types = [x.to("float64"), x.double(), x.half(), x.int(), x.long(), x.bool(), x.to(x.long()), x.long().float()]
    assert [item.dtype.text for item in types] == ["float64", "float64", "float16", "int32", "int64", "bool", "int64", "float32"]
    with pytest.raises(FluidTypeError, match=r"to\('cuda'\): .* is on cpu; inside dygraph\.guard"):
        x.to("cuda")


@pytest.mark.parametrize("array", [np.array([2**60 + 1, -5, 3]), np.array([np.inf, -np.inf, 1], "float32")])
def test_clip_changes_nothing_within_its_bounds(array: np.ndarray) -> None:
    """Without a bound, the largest numbers stay; integers are not rounded."""
    x = Tensor(array)
    np.testing.assert_array_equal(x.clip(min=0).numpy(), array.clip(0), strict=True)
    np.testing.assert_array_equal(x.clip(max=0).numpy(), array.clip(None, 0), strict=True)
    if array.dtype.kind == "i":
        np.testing.assert_array_equal(x.clip(0, 2**60 + 1).numpy(), array.clip(0, 2**60 + 1), strict=True)


def test_methods_have_gradients() -> None:
    x = Tensor(drawn(3, 4), stop_gradient=False)
    assert dygraph.gradcheck(lambda v: v.std(1) + v.var(), Tensor(RNG.normal(size=(3, 4)), stop_gradient=False))
    (x.flatten().expand(2, 12).sum() + x.clamp(min=0.0).sum()).backward()
    np.testing.assert_allclose(x.gradient(), 2 + (x.numpy() > 0))


def test_where_chooses_and_einsum_sums() -> None:
    x, y = drawn(4, 3), drawn(1, 3)
    np.testing.assert_array_equal(layers.where(Tensor(x) > 0, Tensor(x), Tensor(y)).numpy(), np.where(x > 0, x, y))
    np.testing.assert_array_equal(
        layers.where(Tensor(np.array([2, 0])), Tensor(x[0, :2]), Tensor(y[0, :2])).numpy(), [x[0, 0], y[0, 1]]
    )
    assert layers.where(Tensor(np.array([True, False, True]))).tolist() == [[0], [2]]
    with pytest.raises(ProgramError, match="where takes both x and y"):
        layers.where(Tensor(x) > 0, Tensor(x))
    np.testing.assert_allclose(layers.einsum("ij,kj->ik", Tensor(x), Tensor(y)).numpy(), x @ y.T, rtol=1e-5)
    with pytest.raises(InferenceError, match="einsum"):
        layers.einsum("ij,jk->ik", Tensor(x), Tensor(drawn(2, 3)))
    dygraph.disable_dygraph()
    with fluid.program_guard(fluid.Program()):
        a, b = fluid.data("a", [None, 3]), fluid.data("b", [None, 3])
        a.stop_gradient = False
        chosen = layers.where(a > b, a, b)
        total = layers.einsum("bi,bi->b", a, b)
        (grad,) = fluid.gradients([layers.reduce_sum(chosen) + layers.reduce_sum(total)], [a])
        feed = {"a": x, "b": np.repeat(y, 4, axis=0)}
        found = fluid.Executor().run(feed=feed, fetch_list=[chosen, total, grad])
    np.testing.assert_allclose(found[0], np.maximum(x, y))
    np.testing.assert_allclose(found[1], (x * y).sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(found[2], (x > y) + np.repeat(y, 4, axis=0), rtol=1e-5)
