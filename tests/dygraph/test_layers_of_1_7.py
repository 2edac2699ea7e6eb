"""Eager layers in the form of Fluid 1.7 and 1.8: without a name, with the sizes of the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph
from fluid.dygraph import Tensor
from fluid.errors import FluidTypeError, ProgramError

RNG = np.random.default_rng(0)
IMAGES, VOLUMES, ROWS = (RNG.normal(size=size).astype("float32") for size in ([2, 4, 7, 6], [2, 4, 5, 6, 7], [3, 6]))
IDS = np.array([[1], [3], [0]])
SIZES = [15, 13]

CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], tuple[Any, ...]]] = {
    "Conv2D": (lambda: dygraph.Conv2D(4, 6, 3, 2, 1), lambda: dygraph.Conv2D(None, 6, 3, 2, 1), (IMAGES,)),
    "Conv2D, dilated": (
        lambda: dygraph.Conv2D(num_channels=4, num_filters=6, filter_size=[3, 2], dilation=2, groups=2, act="relu"),
        lambda: dygraph.Conv2D(None, num_filters=6, filter_size=[3, 2], dilation=2, groups=2, act="relu"),
        (IMAGES,),
    ),
    "Conv3D": (lambda: dygraph.Conv3D(4, 2, 3), lambda: dygraph.Conv3D(None, 2, 3), (VOLUMES,)),
    "Conv2DTranspose": (
        lambda: dygraph.Conv2DTranspose(4, 3, 3, SIZES, stride=2),
        lambda: dygraph.Conv2DTranspose(None, 3, SIZES, 3, stride=2),
        (IMAGES,),
    ),
    "Conv3DTranspose": (
        lambda: dygraph.Conv3DTranspose(4, 3, 2, 1, 2),
        lambda: dygraph.Conv3DTranspose(None, 3, filter_size=2, padding=1, stride=2),
        (VOLUMES,),
    ),
    "Pool2D": (lambda: dygraph.Pool2D(2, "avg", 2), lambda: dygraph.Pool2D(None, 2, "avg", 2), (IMAGES,)),
    "Pool2D, global": (lambda: dygraph.Pool2D(global_pooling=True), lambda: dygraph.Pool2D(None, global_pooling=True), (IMAGES,)),
    "BatchNorm": (lambda: dygraph.BatchNorm(4, "relu"), lambda: dygraph.BatchNorm(None, 4, "relu"), (IMAGES,)),
    "Embedding": (lambda: dygraph.Embedding([10, 4], True), lambda: dygraph.Embedding(None, [10, 4], True), (IDS[:, 0],)),
    "LayerNorm": (lambda: dygraph.LayerNorm(6), lambda: dygraph.LayerNorm(None), (ROWS,)),
    "LayerNorm of images": (
        lambda: dygraph.LayerNorm([7, 6], shift=False),
        lambda: dygraph.LayerNorm(None, shift=False, begin_norm_axis=2),
        (IMAGES,),
    ),
    "GroupNorm": (lambda: dygraph.GroupNorm(4, 2), lambda: dygraph.GroupNorm(None, 2), (IMAGES,)),
    "InstanceNorm": (
        lambda: dygraph.InstanceNorm(4, bias_attr=fluid.initializer.Normal()),
        lambda: dygraph.InstanceNorm(None, bias_attr=fluid.initializer.Normal()),
        (IMAGES,),
    ),
    "SpectralNorm": (lambda: dygraph.SpectralNorm([3, 6], 1, 40), lambda: dygraph.SpectralNorm(None, 1, 40), (ROWS,)),
    "PRelu": (lambda: dygraph.PRelu("all"), lambda: dygraph.PRelu(None, "all"), (IMAGES,)),
    "PRelu of channels": (lambda: dygraph.PRelu(mode="channel", channel=4), lambda: dygraph.PRelu("name", "channel"), (IMAGES,)),
    "PRelu of elements": (
        lambda: dygraph.PRelu("element", input_shape=[2, 4, 7, 6]),
        lambda: dygraph.PRelu(None, mode="element"),
        (IMAGES,),
    ),
    "BilinearTensorProduct": (
        lambda: dygraph.BilinearTensorProduct(6, 6, 5),
        lambda: dygraph.BilinearTensorProduct(None, 5),
        (ROWS, ROWS),
    ),
    "GRUUnit": (lambda: dygraph.GRUUnit(6), lambda: dygraph.GRUUnit(None, 6), (ROWS, ROWS[:, :2])),
    "NCE": (lambda: dygraph.NCE(10, 6, seed=3), lambda: dygraph.NCE(None, 10, seed=3), (ROWS, IDS)),
}


def test_rows_of_a_table_keep_the_shape_of_ids() -> None:
    """In Fluid 1.6, the form with a name, a last dimension of size 1 gives way to the row; from 1.7 on, it stays."""
    with dygraph.guard():
        ids = Tensor(IDS)
        assert dygraph.Embedding([10, 4])(ids).shape == (3, 1, 4)
        for size in (10, [10]):
            with pytest.raises(
                fluid.errors.FluidTypeError, match=r"Embedding: size should be \[rows, columns\] of the table, not"
            ):
                dygraph.Embedding(size, 4)
        assert dygraph.Embedding("words", [10, 4])(ids).shape == dygraph.Embedding(None, [10, 4])(ids).shape == (3, 4)


def test_states_have_the_names_of_1_8() -> None:
    with dygraph.guard():
        norm = dygraph.InstanceNorm(4)
        assert [*norm.state_dict()] == ["scale", "bias"] and norm.weight is norm.scale
        net = dygraph.LayerList(sublayers=[dygraph.Sequential(norm), dygraph.ParameterList(parameters=[norm.bias])])
        assert [*net.state_dict(structured_name_prefix="net.")] == ["net.0.0.scale", "net.0.0.bias", "net.1.0"]
        assert [name for name, _ in net.named_sublayers("net", include_sublayers=False)] == ["net.0", "net.1"]
        assert [name for name, _ in net.named_sublayers(layers_set={net[0]})] == ["1"]


def outputs_of(layer: Any, tensors: list[Tensor]) -> list[Any]:
    outputs = layer(*tensors)
    return [output.numpy() for output in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]


@each("name", CASES)
def test_both_forms_compute_the_same(name: str) -> None:
    build, build_named, inputs = CASES[name]
    with dygraph.guard():
        tensors = [Tensor(array) for array in inputs]
        named, layer = build_named(), build()
        made = [*map(id, layer.parameters())]
        outputs_of(named, tensors)  # makes its parameters
        layer.set_dict({key: value.numpy() for key, value in named.state_dict().items()})
        for right, got in zip(outputs_of(named, tensors), outputs_of(layer, tensors), strict=True):
            np.testing.assert_allclose(got, right, 1e-5)
        assert made == [*map(id, layer.parameters())]
        assert len(made) == len(named.parameters())


def test_parameters_are_there_for_an_optimizer() -> None:
    with dygraph.guard():
        net = dygraph.Sequential(dygraph.Conv2D(3, 4, 3), dygraph.BatchNorm(4))
        optimizer = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
        before = net[1].bias.numpy()
        loss = fluid.layers.reduce_mean(net(Tensor(IMAGES[:, :3])))
        loss.backward()
        optimizer.minimize(loss)
        assert not np.array_equal(before, net[1].bias.numpy())


def test_instance_norm_normalizes_each_channel_of_each_image() -> None:
    with dygraph.guard():
        norm = dygraph.InstanceNorm(num_channels=4)
        result = norm(Tensor(IMAGES)).numpy()
        assert norm.scale is norm.weight and norm.bias.shape == [4]
    mean, variance = IMAGES.mean((2, 3), keepdims=True), IMAGES.var((2, 3), keepdims=True)
    np.testing.assert_allclose(result, (IMAGES - mean) / np.sqrt(variance + 1e-5), rtol=1e-4, atol=1e-5)


def test_a_convolution_over_sequences() -> None:
    with dygraph.guard():
        conv = dygraph.nn.SequenceConv("conv", 3, filter_size=3, bias_attr=False)
        rows = Tensor(ROWS).with_lod([(0, 2, 3)])
        result = conv(rows).numpy()
        np.testing.assert_allclose(
            result, fluid.layers.sequence_conv(rows, 3, 3, bias_attr=False, param_attr=conv.weight).numpy()
        )
        near = [np.concatenate(three) for three in ([0 * ROWS[0], ROWS[0], ROWS[1]], [ROWS[0], ROWS[1], 0 * ROWS[0]])]
        np.testing.assert_allclose(result[:2], np.stack(near) @ conv.weight.numpy(), rtol=1e-4, atol=1e-5)


def test_arrays_are_taken() -> None:
    """As in Fluid 1.6, where `FC` turned them into tensors."""
    with dygraph.guard():
        assert tuple(dygraph.FC("fc", 2)(ROWS).shape) == (3, 2)


def test_what_does_not_fit() -> None:
    with dygraph.guard():
        with pytest.raises(FluidTypeError, match="PRelu: mode='channel' needs channel"):
            dygraph.PRelu("channel")
        with pytest.raises(ProgramError, match=r"normalizes \[\.\.\., 5\], not float32\[3, 6\]"):
            dygraph.LayerNorm(5)(Tensor(ROWS))
        with pytest.raises(
            TypeError,
            match=r"Conv2D: missing a required argument: 'filter_size'; it takes num_channels, num_filters, filter_size",
        ):
            dygraph.Conv2D(3, 8)
