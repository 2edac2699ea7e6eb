"""Sparse gradients of `nce` and `hsigmoid` (is_sparse=True): the rows of the classes, or nodes, that were looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from checks import each

import fluid
from fluid import layers
from fluid.formats.text import parse_program_text, program_to_string
from fluid.ir.program import Program, program_guard
from fluid.values.selected_rows import SelectedRows
from fluid.values.types import VarType

CLASSES, WIDTH, BATCH = 50, 4, 3
rng = np.random.default_rng(9)
FEED = {
    "x": rng.uniform(-1, 1, (BATCH, WIDTH)).astype("float32"),
    "label": np.array([[3], [40], [3]]),
    "share": rng.uniform(0.5, 2, (BATCH, 1)).astype("float32"),
    "table": np.array([[0, 2, 6], [0, 7, -1], [4, -1, -1]]),
    "code": np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]]),
}


def by_nce(x: Any, label: Any, attrs: dict[str, Any], **options: Any) -> Any:
    return layers.nce(x, label, CLASSES, num_neg_samples=5, seed=3, **attrs, **options)


def by_tree(x: Any, label: Any, attrs: dict[str, Any], **options: Any) -> Any:
    return layers.hsigmoid(x, label, CLASSES, **attrs, **options)


def nce_with_shares(x: Any, label: Any, attrs: dict[str, Any]) -> Any:
    share = fluid.data("share", [None, 1])
    return by_nce(x, label, attrs, sample_weight=share, sampler="custom_dist", custom_dist=[1 / CLASSES] * CLASSES)


def own_tree(x: Any, label: Any, attrs: dict[str, Any]) -> Any:
    table, code = (fluid.data(name, [None, 3], "int64") for name in ("table", "code"))
    return by_tree(x, label, attrs, is_custom=True, path_table=table, path_code=code)


LOSSES: dict[str, Callable[..., Any]] = {
    "nce": by_nce,
    "nce log_uniform": lambda x, label, attrs: by_nce(x, label, attrs, sampler="log_uniform"),
    "nce shares": nce_with_shares,
    "nce no bias": lambda x, label, attrs: by_nce(x, label, attrs, bias_attr=False),
    "hsigmoid": by_tree,
    "hsigmoid own tree": own_tree,
    "hsigmoid no bias": lambda x, label, attrs: by_tree(x, label, attrs, bias_attr=False),
}


class Model:
    """A loss over classes, with its gradients."""

    def __init__(
        self, loss: Callable[..., Any], is_sparse: bool, optimizer: Callable[[], Any] | None = None, **weight: Any
    ) -> None:
        self.main, self.startup, self.scope = Program(), Program(), fluid.Scope()
        self.executor = fluid.Executor(fluid.CPUPlace())
        self.main.random_seed = self.startup.random_seed = 11
        with fluid.unique_name.guard(), program_guard(self.main, self.startup):
            x, label = fluid.data("x", [None, WIDTH]), fluid.data("label", [None, 1], "int64")
            x.stop_gradient = False
            attrs = {"is_sparse": is_sparse, "param_attr": fluid.ParamAttr("w", **weight)}
            self.cost = layers.reduce_mean(loss(x, label, attrs))
            if optimizer is not None:
                optimizer().minimize(self.cost)
            else:
                fluid.append_backward(self.cost)
        block = self.main.global_block()
        self.params = [var.name for var in self.main.all_parameters()]
        self.names = [f"{name}@GRAD" for name in ("x", *self.params) if f"{name}@GRAD" in block.vars]
        self.executor.run(self.startup, scope=self.scope)

        self.feed = {var.name: FEED[var.name] for var in self.main.list_vars() if var.is_data}

    def run(self, *fetch: str) -> list[Any]:
        return self.executor.run(self.main, self.feed, list(fetch), scope=self.scope, return_numpy=False)


@each("name", LOSSES)
def test_sparse_gradient_adds_up_to_the_dense_one(name: str) -> None:
    sparse, dense = Model(LOSSES[name], True), Model(LOSSES[name], False)
    assert sparse.names == dense.names and "x@GRAD" in sparse.names
    assert sparse.main.global_block().var("w@GRAD").type is VarType.SELECTED_ROWS
    assert dense.main.global_block().var("w@GRAD").type is VarType.LOD_TENSOR
    found, expected = (dict(zip(model.names, model.run(*model.names), strict=True)) for model in (sparse, dense))
    rows = found["w@GRAD"]
    assert isinstance(rows, SelectedRows) and rows.shape == np.asarray(expected["w@GRAD"]).shape
    touched = np.flatnonzero(np.abs(np.asarray(expected["w@GRAD"])).sum(1))
    assert set(touched) <= set(rows.rows()) and len(set(rows.rows())) < CLASSES / 2
    for gradient in sparse.names:
        np.testing.assert_allclose(np.asarray(found[gradient]), np.asarray(expected[gradient]), rtol=1e-5, atol=1e-7)
    by_step = np.asarray(sparse.executor.interpret(sparse.main, sparse.feed, ["w@GRAD"], sparse.scope)[0])
    np.testing.assert_allclose(np.asarray(sparse.run("w@GRAD")[0]), by_step, rtol=1e-5, atol=1e-7)


@each("name", ["nce", "hsigmoid"])
@each(
    "optimizer",
    [
        lambda: fluid.optimizer.SGD(0.5),
        lambda: fluid.optimizer.Momentum(0.5, 0.9),
        lambda: fluid.optimizer.Adam(0.1),
        lambda: fluid.optimizer.Adagrad(0.5),
        lambda: fluid.optimizer.SGD(0.5, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.01)),
    ],
    ids=["sgd", "momentum", "adam", "adagrad", "sgd with clip"],
)
def test_steps_are_those_of_the_dense_gradient(name: str, optimizer: Callable[[], Any]) -> None:
    models = [Model(LOSSES[name], is_sparse, optimizer) for is_sparse in (True, False)]
    first = models[0].scope.array("w").copy()
    for _ in range(2):
        for model in models:
            model.run(model.cost.name)
    for param in models[0].params:
        found, expected = (np.asarray(model.scope.array(param)) for model in models)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert (np.asarray(models[0].scope.array("w")) != first).any()


def test_rows_that_were_not_looked_at_stay() -> None:
    model = Model(by_nce, True, lambda: fluid.optimizer.SGD(0.5))
    first = np.array(model.scope.array("w"))
    (rows,) = model.run("w@GRAD")
    changed = np.flatnonzero((np.asarray(model.scope.array("w")) != first).any(1))
    assert len(changed) and set(changed) <= set(rows.rows())


@each("name", ["nce", "hsigmoid"])
def test_weight_that_is_not_trained(name: str) -> None:
    sparse, dense = (Model(LOSSES[name], is_sparse, trainable=False) for is_sparse in (True, False))
    assert "w@GRAD" not in sparse.names and len(sparse.names) == 2
    for found, expected in zip(sparse.run(*sparse.names), dense.run(*dense.names), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5, atol=1e-7)


@each("name", ["nce", "hsigmoid"])
def test_round_trips(name: str) -> None:
    main = Model(LOSSES[name], True, lambda: fluid.optimizer.SGD(0.1)).main
    data = main.serialize_to_string()
    assert Program.parse_from_string(data).serialize_to_string() == data
    assert program_to_string(parse_program_text(program_to_string(main))) == program_to_string(main)


def test_eager_mode() -> None:
    attr = fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(rng.uniform(size=(CLASSES, WIDTH))))
    with fluid.dygraph.guard():
        grads = []
        for is_sparse in (True, False):
            layer = fluid.dygraph.NCE("nce", CLASSES, num_neg_samples=5, seed=3, is_sparse=is_sparse, param_attr=attr)
            cost = layer(fluid.dygraph.to_variable(FEED["x"]), fluid.dygraph.to_variable(FEED["label"]))
            layers.reduce_mean(cost).backward()
            grads.append([param.gradient() for param in layer.parameters()])
    for sparse, dense in zip(*grads, strict=True):
        np.testing.assert_allclose(np.asarray(sparse), np.asarray(dense), rtol=1e-5, atol=1e-7)
