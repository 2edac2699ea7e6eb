"""Ensembles of trees, linear models and scalers (ai.onnx.ml), beside onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from checks import each
from onnx import helper, numpy_helper
from onnx_running import session_of

import fluid
from fluid.errors import FormatError
from fluid.values.unchanging import never_changes

RANDOM = np.random.default_rng(0)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FEATURES = 4


def table(rows: int = 40, missing: bool = False) -> Any:
    """Small whole numbers, so that features often equal what they are compared with."""
    x = RANDOM.integers(-3, 4, (rows, FEATURES)).astype(np.float32)
    if missing:
        x[RANDOM.random(x.shape) < 0.2] = np.nan
    return x


def model_of(op_type: str, x: Any, outputs: int = 1, opset: int = 3, **attrs: Any) -> Any:
    names = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(op_type, ["x"], names, domain="ai.onnx.ml", **attrs)
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), ["n", *x.shape[1:]])
    graph = helper.make_graph([node], "graph", [info], [onnx.ValueInfoProto(name=name) for name in names])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def check(model: Any, path: Path, x: Any, most: float = 1e-6) -> None:
    onnx.save(model, path)
    loaded, executor = fluid.load_model(path, scope=fluid.Scope()), fluid.Executor()
    session = session_of(model.SerializeToString())
    for feed in (x, x[:1], x[:7]):
        ours = executor.run(loaded.program, {"x": feed}, loaded.fetches, scope=loaded.scope)
        for one, other in zip(ours, session.run(None, {"x": feed}), strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=most, atol=most)


def random_trees(
    leaf: str, count: int, depth: int, modes: tuple[str, ...], outputs: list[int], positive: bool = False
) -> dict[str, Any]:
    """The attributes of an ensemble; about a fifth of the nodes above the last level are leaves."""
    nodes: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes")}
    nodes |= {"truenodeids": [], "falsenodeids": [], "missing_value_tracks_true": []}
    leaves: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}

    def add(tree: int, number: int, level: int, free: list[int]) -> None:
        is_leaf = level == depth or (level and RANDOM.random() < 0.2)
        trues = falses = 0
        if not is_leaf:
            trues, falses = free[0], free[0] + 1
            free[0] += 2
        mode = "LEAF" if is_leaf else str(RANDOM.choice(modes))
        values = (
            tree,
            number,
            int(RANDOM.integers(FEATURES)),
            float(RANDOM.integers(-3, 4)),
            mode,
            trues,
            falses,
            int(RANDOM.integers(2)),
        )
        for name, value in zip(nodes, values, strict=True):
            nodes[name].append(value)
        if is_leaf:
            for output in outputs:
                weight = RANDOM.random() / count if positive else RANDOM.standard_normal()
                for name, value in zip(leaves, (tree, number, output, float(weight)), strict=True):
                    leaves[name].append(value)
        else:
            add(tree, trues, level + 1, free)
            add(tree, falses, level + 1, free)

    for tree in range(count):
        add(tree, 0, 0, [1])
    return {f"nodes_{name}": values for name, values in nodes.items()} | {
        f"{leaf}_{name}": values for name, values in leaves.items()
    }


@each("modes", [*[(mode,) for mode in MODES], MODES])
@each("missing", [False, True])
def test_trees_of_each_mode(modes: tuple[str, ...], missing: bool, tmp_path: Path) -> None:
    x, trees = table(missing=missing), random_trees("target", 5, 5, modes, [0])
    if not missing:
        del trees["nodes_missing_value_tracks_true"]
    check(model_of("TreeEnsembleRegressor", x, n_targets=1, **trees), tmp_path / "m.onnx", x)


@each("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_trees_are_put_together(aggregate: str, tmp_path: Path) -> None:
    """onnxruntime does not add a base value to an output without weights; so one case has each."""
    for outputs, base in (([0, 2], [0.0] * 3), ([0, 1, 2], [0.5, -1.0, 2.0])):
        x, trees = table(), random_trees("target", 7, 4, MODES[:2], outputs)
        attrs = {"aggregate_function": aggregate, "n_targets": 3, "base_values": base}
        check(model_of("TreeEnsembleRegressor", x, **attrs, **trees), tmp_path / "m.onnx", x)


@each("aggregate", ["SUM", "MIN", "MAX"])
def test_a_leaf_with_several_weights_for_one_output(aggregate: str, tmp_path: Path) -> None:
    """Of several outputs: for one alone, onnxruntime reads the first weight of a leaf and passes over the others."""
    x, trees = table(), random_trees("target", 4, 3, MODES[:1], [0, 1])
    for name, values in trees.items():
        if name.startswith("target_"):
            trees[name] = [*values, *([2 * value for value in values] if name == "target_weights" else values)]
    check(model_of("TreeEnsembleRegressor", x, n_targets=2, aggregate_function=aggregate, **trees), tmp_path / "m.onnx", x)


def test_trees_that_are_one_leaf(tmp_path: Path) -> None:
    x, trees = table(), random_trees("target", 2, 0, MODES, [0])
    check(model_of("TreeEnsembleRegressor", x, n_targets=1, **trees), tmp_path / "m.onnx", x)


def test_many_trees_compute_natively(tmp_path: Path) -> None:
    x, trees = table(), random_trees("target", 60, 7, MODES[:1], [0])
    model = model_of("TreeEnsembleRegressor", x, n_targets=1, **trees)
    check(model, tmp_path / "m.onnx", x, most=1e-5)
    loaded = fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope())
    text = fluid.Executor().plan(loaded.program, {"x": x}, loaded.fetches, scope=loaded.scope).to_string()
    assert "tree_leaves" in text and "tree_leaves" not in text.splitlines()[1]
    tables = [loaded.scope.array(name) for name in loaded.scope.local_var_names()]
    assert len(tables) == 4 and all(map(never_changes, tables))  # so that they are checked once, not in each run


@each(
    ("outputs", "positive", "labels", "transform"),
    [
        ([0, 1, 2], False, [5, 7, 9], "SOFTMAX"),
        ([0, 1, 2], True, [0, 1, 2], "NONE"),
        ([0], True, [0, 1], "NONE"),
        ([0], False, [3, 4], "LOGISTIC"),
        ([0], True, [3, 4], "LOGISTIC"),
        ([0], True, [3, 4], "SOFTMAX"),
        ([0], False, [3, 4], "SOFTMAX_ZERO"),
        ([1], False, [0, 1], "NONE"),
        ([1], True, [3, 4], "NONE"),
        ([1], True, [3, 4], "SOFTMAX"),
        ([0, 1, 2], False, [0, 1, 2], "SOFTMAX_ZERO"),
    ],
)
def test_classifiers_of_trees(outputs: list[int], positive: bool, labels: list[int], transform: str, tmp_path: Path) -> None:
    x, trees = table(), random_trees("class", 6, 4, MODES[:1], outputs, positive)
    model = model_of("TreeEnsembleClassifier", x, 2, classlabels_int64s=labels, post_transform=transform, **trees)
    check(model, tmp_path / "m.onnx", x)


def test_trees_of_opset_5(tmp_path: Path) -> None:
    """Leaves have numbers of their own there, and modes are numbers."""
    x = table(missing=True)
    arrays = {"nodes_splits": np.array([0.5, -1, 2], np.float32), "nodes_modes": np.array([0, 1, 0], np.uint8)}
    arrays |= {"leaf_weights": np.array([1, 2, 3, 4], np.float32)}
    lists = {
        "tree_roots": [0, 2],
        "nodes_featureids": [0, 2, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_truenodeids": [1, 0, 3],
        "nodes_falseleafs": [1, 1, 1],
        "nodes_falsenodeids": [1, 2, 3],
        "leaf_targetids": [0, 1, 0, 1],
    }
    attrs = {name: numpy_helper.from_array(array) for name, array in arrays.items()} | lists
    check(model_of("TreeEnsemble", x, opset=5, n_targets=2, aggregate_function=1, **attrs), tmp_path / "m.onnx", x)


@each(
    ("op_type", "attrs"),
    [
        ("Scaler", {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [0.5, 1.0, 2.0, 0.1]}),
        ("Scaler", {"offset": [1.0], "scale": [0.5]}),
        ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}),
        ("Binarizer", {"threshold": 0.5}),
        ("LinearRegressor", {"coefficients": [0.5, 1.0, -2.0, 0.1] * 2, "intercepts": [1.0, 2.0], "targets": 2}),
    ],
)
def test_tables_of_numbers(op_type: str, attrs: dict[str, Any], tmp_path: Path) -> None:
    x = table()
    check(model_of(op_type, x, opset=1, **attrs), tmp_path / "m.onnx", x)


def test_missing_features_are_filled(tmp_path: Path) -> None:
    x = table(missing=True)
    attrs = {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}
    check(model_of("Imputer", x, opset=1, **attrs), tmp_path / "m.onnx", x)


def test_linear_classifiers(tmp_path: Path) -> None:
    x = table()
    attrs = {"coefficients": [0.5, 1.0, -2.0, 0.1, 1.0, 0.2, 0.3, -1.0], "intercepts": [0.1, 0.2], "classlabels_ints": [3, 8]}
    check(model_of("LinearClassifier", x, 2, opset=1, post_transform="SOFTMAX", **attrs), tmp_path / "m.onnx", x)


def test_columns_are_taken_out(tmp_path: Path) -> None:
    x = table()
    model = model_of("ArrayFeatureExtractor", x, opset=1)
    model.graph.node[0].input.append("columns")
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 0], np.int64), "columns"))
    check(model, tmp_path / "m.onnx", x)


@each(
    ("change", "why"),
    [
        ({"nodes_truenodeids": [0, 0, 0]}, "node .0, 0. is not reached from the root"),
        ({"nodes_truenodeids": [9, 0, 0]}, "2 nodes that are no child of others"),
        ({"nodes_falsenodeids": [9, 0, 0], "nodes_nodeids": [0, 1, 1]}, "no node .0, 9., which is the child"),
        ({"nodes_featureids": [7, 0, 0]}, "it tests feature 7 of 4"),
        ({"nodes_modes": ["BRANCH_LIKE", "LEAF", "LEAF"]}, "BRANCH_LIKE.* should be LEAF or one of"),
        ({"nodes_values": [0.5]}, "lists of its nodes have 1, 3 elements"),
        ({"target_ids": [0, 4]}, "a weight for output 4, and there are 1"),
        ({"post_transform": "CUBED"}, "CUBED.* should be NONE, LOGISTIC"),
    ],
)
def test_trees_that_contradict_themselves(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    x = table()
    attrs: dict[str, Any] = {"nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0], "n_targets": 1}
    attrs |= {"nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"]}
    attrs |= {"nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0]}
    attrs |= {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0]}
    onnx.save(model_of("TreeEnsembleRegressor", x, **(attrs | change)), tmp_path / "m.onnx")
    with pytest.raises(FormatError, match=f"(?s)m.onnx: node 0 .*{why}"):
        fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope())


@each(("op_type", "why"), [("ZipMap", "zipmap"), ("TreeEnsembleClassifier", "no strings")])
def test_what_holds_strings_is_refused(op_type: str, why: str, tmp_path: Path) -> None:
    onnx.save(model_of(op_type, table(), classlabels_strings=["a", "b"]), tmp_path / "m.onnx")
    with pytest.raises(FormatError, match=why):
        fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope())


@each("op_type", ["SVMClassifier", "SVMRegressor", "LabelEncoder", "OneHotEncoder"])
def test_what_is_not_read_is_refused(op_type: str, tmp_path: Path) -> None:
    """docs/model_files.md lists them."""
    onnx.save(model_of(op_type, table()), tmp_path / "m.onnx")
    with pytest.raises(FormatError, match=f"the op {op_type} of ai.onnx.ml, opset .* is not known here"):
        fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope())


def test_a_model_of_many_numbers_is_read(tmp_path: Path) -> None:
    """Numbers in attributes are fields of their own, and take less memory than messages."""
    x, trees = table(), random_trees("target", 400, 8, MODES[:1], [0])
    onnx.save(model_of("TreeEnsembleRegressor", x, n_targets=1, **trees), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_size > 400_000
    assert fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope()).feeds == ["x"]
