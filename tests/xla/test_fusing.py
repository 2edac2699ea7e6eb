"""Programs for a GPU have no products that XLA cannot fuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import fluid
from fluid.executor.xla import execution
from fluid.executor.xla.namespace import FUSING_XP

pytestmark = pytest.mark.usefixtures("quick_to_compile")

NORMS = {
    "layer_norm": lambda x: fluid.layers.layer_norm(x, begin_norm_axis=1),
    "group_norm": lambda x: fluid.layers.group_norm(x, 2),
    "instance_norm": fluid.layers.instance_norm,
    "batch_norm": fluid.layers.batch_norm,
    "softmax": fluid.layers.softmax,
    "bias": lambda x: x + fluid.layers.create_parameter([4], "float32", "bias"),
}
X = np.random.default_rng(0).standard_normal((3, 4, 5, 4), np.float32)


def built(norm: str) -> list[Any]:
    """The compiled program of a norm and its gradients."""
    x = fluid.data("x", [None, 4, 5, 4])
    x.stop_gradient = False
    y = NORMS[norm](x)
    loss = fluid.layers.reduce_sum(y * y * y)
    return [y, *fluid.gradients(loss, [x, *fluid.default_main_program().all_parameters()])]


@pytest.mark.parametrize("norm", NORMS)
def test_norms_and_their_gradients_are_sums_on_a_gpu(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fetches = [fetch for fetch in built(norm) if fetch is not None]
    expected = fluid.Executor(fluid.CPUPlace())
    expected.run(fluid.default_startup_program())
    wanted = expected.run(feed={"x": X}, fetch_list=fetches)
    monkeypatch.setattr(execution, "namespace_for", lambda device: FUSING_XP)
    executor = fluid.Executor(fluid.XLAPlace())
    assert "dot_general" not in executor.plan(feed={"x": X}, fetch_list=fetches).to_string(calls=True)
    for value, other in zip(executor.run(feed={"x": X}, fetch_list=fetches), wanted, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4,)), ((3,), (3, 4)), ((3,), (3,)), ((3, 4), (4, 5)), ((2, 3, 4), (4,)), ((), (3,))]
)
def test_products_are_those_of_numpy(shapes: tuple[tuple[int, ...], ...]) -> None:
    import jax

    from fluid.executor.xla.arrays import wrap

    left, right = (np.random.default_rng(number).standard_normal(shape) for number, shape in enumerate(shapes))
    with jax.enable_x64(True):
        result = jax.jit(lambda *pair: FUSING_XP.dot(*map(wrap, pair)).read())(left, right)
    np.testing.assert_allclose(result, np.dot(left, right), rtol=1e-12)
