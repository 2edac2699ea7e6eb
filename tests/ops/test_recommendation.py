"""Counts of shows and clicks (`cvm`, with numbers in test_proposals.py), instances chosen by tags, convolutions of images of
different sizes, and attention by ranks."""

from __future__ import annotations

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.backward import gradients
from fluid.errors import ExecutionError, InferenceError
from fluid.extend import ops


@each("use_cvm", [True, False])
def test_counts_are_the_gradient_of_their_columns(use_cvm: bool) -> None:
    """The second derivative is that of a linear op, which passes on the parts of the other columns."""
    x = layers.data("x", [4], lod_level=1, stop_gradient=False)
    counts = layers.data("counts", [2])
    out = layers.continuous_value_model(x, counts, use_cvm)
    weight = layers.data("weight", [4 if use_cvm else 2], lod_level=1, stop_gradient=False)
    (grad,) = gradients([out], [x], [weight])
    (again,) = gradients([grad], [weight])
    rng, lengths = np.random.default_rng(0), [[1, 2]]
    feed = {"x": rng.random((3, 4), "float32"), "weight": rng.random((3, 4 if use_cvm else 2), "float32")}
    fed = {name: (value, lengths) for name, value in feed.items()} | {"counts": np.array([[7, 1], [9, 2]], "float32")}
    first, second = fluid.Executor().run(feed=fed, fetch_list=[grad, again])
    np.testing.assert_allclose(first, np.concatenate([[[7, 1], [9, 2], [9, 2]], feed["weight"][:, -2:]], 1))
    np.testing.assert_allclose(second, [[0, 0, 1, 1] if use_cvm else [1, 1]] * 3)


@each("use_cvm", [True, False])
def test_fused_seqpool_cvm_is_what_it_is_made_of(use_cvm: bool) -> None:
    x, counts = layers.data("x", [4], lod_level=1, stop_gradient=False), layers.data("counts", [2])
    (fused,) = ops().fused_seqpool_cvm([x], counts, use_cvm=use_cvm)
    parts = layers.continuous_value_model(layers.sequence_pool(x, "sum"), counts, use_cvm)
    fetches = [fused, parts, *gradients([fused], [x]), *gradients([parts], [x])]
    feed = {"x": (np.random.default_rng(0).random((3, 4), "float32"), [[1, 2]]), "counts": np.array([[7, 1], [9, 2]], "float32")}
    one, other, first, second = fluid.Executor().run(feed=feed, fetch_list=fetches)
    np.testing.assert_allclose(one, other, rtol=1e-6)
    assert np.array_equal(first, second) and (first[:, 0] == [7, 9, 9]).all()


def test_only_tagged_instances_train() -> None:
    ins, tags = layers.data("ins", [2], lod_level=1), layers.data("tags", [1], dtype="int64", lod_level=1)
    table = layers.fc(ins, 2, param_attr="w", bias_attr=False)
    table.stop_gradient = False
    wanted = layers.data("wanted", [1], dtype="int64", append_batch_size=False)
    chosen, factor = layers.filter_by_instag(table, tags, wanted, is_lod=True)
    loss = layers.reduce_sum(layers.sequence_pool(chosen, "sum") * factor)
    (grad,) = gradients([loss], [table])
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    feed = {"ins": (np.ones((5, 2), "float32"), [[2, 1, 2]]), "tags": (np.array([[1], [2], [1], [3]]), [[1, 2, 1]])}
    for tag, rows in ((1, [1, 1, 1, 0, 0]), (3, [0, 0, 0, 1, 1]), (9, [0] * 5)):
        found, weight = exe.run(feed={**feed, "wanted": np.array([tag])}, fetch_list=[grad, factor])
        np.testing.assert_array_equal(found, np.array(rows)[:, None].repeat(2, 1))
        assert weight.max() == (tag != 9)


def test_refused() -> None:
    x = layers.data("x", [1])
    with pytest.raises(InferenceError, match=r"X .* should begin with two columns, of how often something was shown and clicked"):
        layers.continuous_value_model(x, layers.data("counts", [2]))


def test_ranks_and_rows_that_are_none() -> None:
    x, offsets, matrices = layers.data("x", [3]), layers.data("offsets", [5], dtype="int64"), layers.data("matrices", [2])
    _, out, _ = ops().rank_attention(x, offsets, matrices, MaxRank=2)
    feed = {"x": np.ones((2, 3), "float32"), "matrices": np.ones((12, 2), "float32")}
    exe = fluid.Executor()
    for row, message in (
        ([3, 1, 0, 0, 0], "the rank 3; MaxRank"),
        ([1, 3, 0, 0, 0], "the rank 3"),
        ([1, 1, 2, 0, 0], "rows from 2 to 2; X has those from 0 to 1"),
        ([1, 1, -1, 0, 0], "rows from -1"),
    ):
        with pytest.raises(ExecutionError, match=message):
            exe.run(feed={**feed, "offsets": np.array([row, [0] * 5])}, fetch_list=[out])
    (result,) = exe.run(feed={**feed, "offsets": np.array([[1, 1, 0, 0, 9], [0, 1, 9, 1, 9]])}, fetch_list=[out])
    assert result.tolist() == [[3, 3], [0, 0]]
    with pytest.raises(InferenceError, match="1 \\+ 2 \\* MaxRank = 7 columns"):
        ops().rank_attention(x, offsets, matrices, MaxRank=3)


def test_images_whose_sides_do_not_fit() -> None:
    image = layers.data("image", [1], lod_level=1)
    rows, columns = (layers.data(name, [1], lod_level=1) for name in ("rows", "columns"))
    weights = layers.data("weights", [2, 4], append_batch_size=False)
    out, _ = ops().var_conv_2d(image, rows, columns, weights, OutputChannel=2, KernelH=2, KernelW=2)
    feed = {"image": (np.ones((10, 1), "float32"), [[6, 4]]), "weights": np.ones((2, 4), "float32")}
    sides = {"rows": (np.zeros((4, 1), "float32"), [[2, 2]]), "columns": (np.zeros((5, 1), "float32"), [[3, 2]])}
    exe = fluid.Executor()
    (result,) = exe.run(feed={**feed, **sides}, fetch_list=[out], return_numpy=False)
    assert result.recursive_sequence_lengths() == [[12, 8]]
    for wrong, message in (
        ({"rows": (np.zeros((4, 1), "float32"), [[1, 3]])}, "should be InputChannel 1 times the lengths"),
        ({"rows": (np.zeros((4, 1), "float32"), [[4]])}, "should be as many"),
    ):
        with pytest.raises(ExecutionError, match=message):
            exe.run(feed={**feed, **sides, **wrong}, fetch_list=[out])


def test_layers_of_trees() -> None:
    items, ways, nodes = (layers.data(name, [width], dtype="int64") for name, width in (("items", 1), ("ways", 2), ("nodes", 1)))
    how = {"neg_samples_num_list": [1, 2], "layer_offset_lod": [0, 2, 6]}
    out, _, _ = ops().tdm_sampler(items, ways, nodes, **how)
    feed = {"items": np.array([[1]]), "ways": np.array([[0, 0], [1, 4]]), "nodes": np.arange(1, 7)[:, None]}
    exe = fluid.Executor()
    assert exe.run(feed=feed, fetch_list=[out])[0].shape == (1, 5)
    for wrong, message in (
        ({"items": np.array([[2]])}, "X has items from 2 to 2; Travel has those from 0 to 1"),
        ({"nodes": np.arange(1, 6)[:, None]}, "layer_offset_lod ends at 6; Layer has 5 nodes"),
    ):
        with pytest.raises(ExecutionError, match=message):
            exe.run(feed={**feed, **wrong}, fetch_list=[out])
    for attrs, message in (
        ({"neg_samples_num_list": [2, 2]}, "less than the 2 nodes of layer 0, not 2"),
        ({"layer_offset_lod": [0, 2]}, "where each of 2 layers begins"),
        ({"neg_samples_num_list": [1], "layer_offset_lod": [0, 2]}, "a column for each of 1 layers"),
        ({"dtype": 5}, "should be that of int32 or int64"),
    ):
        with pytest.raises(InferenceError, match=message):
            ops().tdm_sampler(items, ways, nodes, **{**how, **attrs})


@pytest.mark.parametrize("places", [[[0, 2, 1], [1, 6, 1]], [[0, 2, 1], [0, 6, 2]], [[0, 2, 4], [4, 6, -1]]])
def test_index_maps_that_do_not_split_the_rows_are_refused(places: list[list[int]]) -> None:
    feed = {"map": np.array(places), "weight": np.ones((2, 1), "float32"), "like": np.ones((3, 2), "float32")}
    index_map, weight, like = fluid.data("map", [2, 3], "int64"), fluid.data("weight", [2, 1]), fluid.data("like", [3, 2])
    rows = ops().rows_of_tagged(index_map, weight, like)
    with pytest.raises(ExecutionError, match="IndexMap should split the 3 rows of Like"):
        fluid.Executor().run(feed=feed, fetch_list=[rows])
