"""Layers and arguments that are new in Fluid 1.7 and 1.8; their names are in `golden/fluid_1_8_api.txt`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.layer_helper import LayerHelper

RNG = np.random.default_rng(0)


def run(fetches: Any, feed: dict[str, Any] | None = None) -> list[Any]:
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    results: list[Any] = executor.run(feed=feed or {}, fetch_list=fetches)
    return results


def floats(*shape: int) -> Any:
    return RNG.normal(0, 1, shape).astype("float32")


def test_zeros_and_ones_of_sizes_that_a_run_tells() -> None:
    size = layers.shape(fluid.data("x", [None, 3]))
    rows = layers.slice(size, [0], [0], [1])
    results = run([layers.zeros([rows, 2], "float32"), layers.ones(size, "int64")], {"x": floats(4, 3)})
    assert np.array_equal(results[0], np.zeros((4, 2))) and np.array_equal(results[1], np.ones((4, 3)))


@each("dtype", ["float32", "int64", "bool"])
def test_tensors_filled_with_a_value_that_a_run_tells(dtype: str) -> None:
    value, size, out = fluid.data("value", [1]), fluid.data("size", [2], "int32"), layers.create_tensor(dtype)
    filled = layers.fill_constant(size, dtype, value)
    assert layers.fill_constant([3], dtype, value, out=out) is out
    results = run([filled, out], {"value": np.array([5], "float32"), "size": np.array([2, 3], "int32")})
    for array, shape in zip(results, ((2, 3), (3,)), strict=True):
        assert array.dtype == dtype and np.array_equal(array, np.full(shape, 5, dtype))


@each("diagonal", [-1, 0, 2])
def test_triangles(diagonal: int) -> None:
    array = floats(2, 3, 4)
    lower, upper = layers.tril(layers.assign(array), diagonal), layers.triu(layers.assign(array), diagonal)
    below, above = run([lower, upper])
    assert np.array_equal(below, np.tril(array, diagonal)) and np.array_equal(above, np.triu(array, diagonal))


def test_unbind() -> None:
    x = fluid.data("x", [None, 3])
    x.stop_gradient = False
    parts = layers.unbind(x, axis=-1)
    array = floats(2, 3)
    (gradient,) = fluid.gradients(layers.reduce_sum(parts[1] * parts[2]), x)
    *results, slope = run([*parts, gradient], {"x": array})
    assert [part.shape for part in parts] == [(-1,)] * 3 and np.array_equal(np.stack(results, 1), array)
    assert np.array_equal(slope, np.stack([np.zeros(2), array[:, 2], array[:, 1]], 1))
    with pytest.raises(fluid.errors.ProgramError, match="along axis 0 is not known; use unstack"):
        layers.unbind(x)


def test_resize_linear() -> None:
    array = floats(2, 3, 5)
    rows = layers.resize_linear(layers.assign(array), [9])
    last = layers.resize_linear(layers.assign(array.transpose(0, 2, 1)), scale=1.8, data_format="NWC")
    of_rows, of_last = run([rows, last])
    places = np.linspace(0, 4, 9)
    expected = [[np.interp(places, np.arange(5), row) for row in rows] for rows in array]
    np.testing.assert_allclose(of_rows, expected, 1e-5, 1e-6)
    np.testing.assert_allclose(of_last, of_rows.transpose(0, 2, 1), 1e-5, 1e-6)


@each("act", [None, "identity", "leaky_relu", "elu"])
def test_inplace_abn(act: str | None) -> None:
    array = floats(4, 3, 5, 5)
    out = layers.inplace_abn(fluid.data("x", [None, 3, 5, 5]), act=act, act_alpha=0.3)
    names = [parameter.name for parameter in fluid.default_main_program().all_parameters()]
    assert names[:2] == ["inplace_abn_0.w_0", "inplace_abn_0.b_0"]
    (result,) = run([out], {"x": array})
    normed = (array - array.mean((0, 2, 3), keepdims=True)) / np.sqrt(array.var((0, 2, 3), keepdims=True) + 1e-5)
    below = {"leaky_relu": 0.3 * normed, "elu": 0.3 * np.expm1(normed)}.get(act or "", normed)
    np.testing.assert_allclose(result, np.where(normed > 0, normed, below), 1e-4, 1e-5)


def test_inplace_abn_of_another_activation() -> None:
    with pytest.raises(fluid.errors.ProgramError, match=r"act should be None, 'identity', 'leaky_relu', 'elu', not 'relu'"):
        layers.inplace_abn(fluid.data("x", [None, 3]), act="relu")


@each("run", [lambda exe, **how: exe.run(**how), lambda exe, **how: exe.interpret(**how)])
def test_assert(run: Callable[..., Any]) -> None:
    x = fluid.data("x", [None])
    op = layers.Assert(layers.reduce_all(x > 0.0), [x], summarize=2)
    assert op.type == "assert"
    run(fluid.Executor(), feed={"x": np.ones(3, "float32")}, fetch_list=[x])
    with pytest.raises(fluid.errors.ExecutionError, match=r"(?s)should be true.*x: \[-1.0, 2.0\]"):
        run(fluid.Executor(), feed={"x": np.array([-1, 2, 3], "float32")}, fetch_list=[x])
    with pytest.raises(TypeError, match="Assert: data should be a list of Variables"):
        layers.Assert(layers.reduce_all(x > 0.0), [1.0])  # type: ignore[list-item]


def test_argsort_descending() -> None:
    array = floats(3, 4)
    values, places = run(layers.argsort(layers.assign(array), axis=0, descending=True))
    assert np.array_equal(values, -np.sort(-array, 0)) and np.array_equal(places, np.argsort(-array, 0, kind="stable"))


def test_lrn_with_channels_last() -> None:
    array = floats(2, 6, 3, 3)
    channels_first, channels_last = run(
        [layers.lrn(layers.assign(array)), layers.lrn(layers.assign(array.transpose(0, 2, 3, 1)), data_format="NHWC")]
    )
    np.testing.assert_allclose(channels_last, channels_first.transpose(0, 2, 3, 1), 1e-6)
    with pytest.raises(fluid.errors.ProgramError, match="lrn: data_format should be NCHW or NHWC, not 'CHW'"):
        layers.lrn(layers.assign(array), data_format="CHW")


def test_instances_without_a_tag_are_one_row_of_a_value() -> None:
    ins, tags, wanted = (
        fluid.data("ins", [None, 2]),
        fluid.data("tags", [None, 1], "int64", lod_level=1),
        layers.assign(np.array([9])),
    )
    chosen, factor = layers.filter_by_instag(ins, tags, wanted, is_lod=False, out_val_if_empty=7)
    sequences = fluid.create_lod_tensor(np.array([[1], [2]]), [[1, 1]], fluid.CPUPlace())
    result, weight = run([chosen, factor], {"ins": floats(2, 2), "tags": sequences})
    assert np.array_equal(result, [[7, 7]]) and np.array_equal(weight, [[0]])


# ---------------------------------------------------------------------------------------------------------------- contrib
def test_columns_of_several_matrices() -> None:
    x, y = floats(4, 6), floats(4, 6)
    both = [layers.assign(x), layers.assign(y)]
    results = run(
        [
            fluid.contrib.layers.partial_concat(both, 1, 2),
            fluid.contrib.layers.partial_concat(both, -2),
            fluid.contrib.layers.partial_sum(both, 3),
        ]
    )
    expected = [np.hstack([x[:, 1:3], y[:, 1:3]]), np.hstack([x[:, -2:], y[:, -2:]]), x[:, 3:] + y[:, 3:]]
    for value, wanted in zip(results, expected, strict=True):
        assert np.array_equal(value, wanted)


@each("seed", [None, 5])
def test_shuffled_batches(seed: int | None) -> None:
    """Each run draws another order, and a gradient goes back to the row that it came from."""
    x, weights = fluid.data("x", [None, 2]), fluid.data("weights", [None, 2])
    x.stop_gradient = False
    shuffled = fluid.contrib.layers.shuffle_batch(x, seed)
    (gradient,) = fluid.gradients(layers.reduce_sum(shuffled * weights), x)
    executor, array, factors = fluid.Executor(), floats(16, 2), floats(16, 2)
    executor.run(fluid.default_startup_program())
    orders = []
    for _ in range(3):
        rows, slope = executor.run(feed={"x": array, "weights": factors}, fetch_list=[shuffled, gradient])
        order = [int(np.flatnonzero((array == row).all(1))[0]) for row in rows]
        assert sorted(order) == list(range(16)) and np.array_equal(slope[order], factors)
        orders.append(order)
    assert orders[0] != orders[1] != orders[2]


def test_batch_fc() -> None:
    array, weight, bias = floats(2, 4, 3), floats(2, 3, 5), floats(2, 5)
    attrs = [fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(value)) for value in (weight, bias)]
    out = fluid.contrib.layers.batch_fc(fluid.data("x", [2, None, 3]), [2, 3, 5], attrs[0], [2, 5], attrs[1], act="relu")
    (result,) = run([out], {"x": array})
    np.testing.assert_allclose(result, np.maximum(array @ weight + bias[:, None], 0), 1e-4, 1e-5)


def test_normed_images_plus_others() -> None:
    array, summand = floats(4, 5, 5, 3), floats(4, 5, 5, 3)
    out = fluid.contrib.layers.fused_bn_add_act(layers.assign(array), layers.assign(summand), act="relu")
    (result,) = run([out])
    normed = (array - array.mean((0, 1, 2))) / np.sqrt(array.var((0, 1, 2)) + 1e-5)
    np.testing.assert_allclose(result, np.maximum(normed + summand, 0), 1e-4, 1e-5)


def test_children_of_a_tree() -> None:
    """Node 1 has the children 2 and 3; 2 has the leaf 4."""
    tree = np.array([[0, 0, 0, 0, 0], [0, 1, 0, 2, 3], [0, 2, 1, 4, 0], [7, 2, 1, 0, 0], [8, 3, 2, 0, 0]], "int32")
    attr = fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(tree))
    child, is_leaf = fluid.contrib.layers.tdm_child(fluid.data("x", [None, 1], "int64"), 5, 2, attr, dtype="int64")
    result, leaves = run([child, is_leaf], {"x": np.array([[1], [2], [4]])})
    assert result.dtype == np.int64 and np.array_equal(result[:, 0], [[2, 3], [4, 0], [0, 0]])
    assert np.array_equal(leaves[:, 0], [[0, 1], [1, 0], [0, 0]])


def test_rank_attention() -> None:
    """A row of rank 1 sees itself and a row of rank 2, each by the matrix of its pair of ranks."""
    array, matrices = floats(2, 3), floats(2 * 2 * 3, 4)
    attr = fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(matrices))
    offsets = np.array([[1, 1, 0, 2, 1], [2, 1, 0, 2, 1]], "int32")
    x, rows = fluid.data("x", [None, 3]), fluid.data("rows", [None, 5], "int32")
    (result,) = run([fluid.contrib.layers.rank_attention(x, rows, [12, 4], attr, max_rank=2)], {"x": array, "rows": offsets})
    by_pair = matrices.reshape(2, 2, 3, 4)
    expected = [sum(array[second] @ by_pair[rank, second] for second in range(2)) for rank in range(2)]
    np.testing.assert_allclose(result, expected, 1e-4, 1e-5)


# ------------------------------------------------------------------------------------------------------- optimizers, devices
@each("kind", ["value", "norm", "global norm"])
def test_gradients_that_need_no_clip(kind: str) -> None:
    """They are updated as they are, and do not count in the norm of all."""

    def needs(parameter: Any) -> bool:
        return bool(parameter.name != "b")

    clip = {
        "value": lambda: fluid.clip.GradientClipByValue(0.5, need_clip=needs),
        "norm": lambda: fluid.clip.GradientClipByNorm(0.5, need_clip=needs),
        "global norm": lambda: fluid.clip.GradientClipByGlobalNorm(0.5, need_clip=needs),
    }[kind]()
    ones = fluid.initializer.Constant(1.0)
    a, b = (layers.create_parameter([1], "float32", name, default_initializer=ones) for name in "ab")
    fluid.optimizer.SGD(1.0, grad_clip=clip).minimize(layers.reduce_sum(a * 3.0 + b * 4.0))
    run([])
    scope = fluid.global_scope()
    assert [np.array(scope.find_var(name).get_tensor()).item() for name in "ab"] == [0.5, -3.0]


def test_need_clip_is_a_function() -> None:
    with pytest.raises(TypeError, match="GradientClipByNorm: need_clip should be a function of a parameter, not True"):
        fluid.clip.GradientClipByNorm(1.0, need_clip=True)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- layers that scripts define
def test_checks_of_a_script() -> None:
    from fluid.data_feeder import check_dtype, check_type, check_variable_and_dtype, convert_dtype

    x = fluid.data("x", [None, 2], "float32")
    check_variable_and_dtype(x, "x", ["float16", "float32"], "mine")
    check_type([1], "axes", (list, tuple), "mine")
    check_dtype(x.dtype, "x", "float32", "mine")
    assert convert_dtype(x.dtype) == convert_dtype("float32") == convert_dtype(np.float32) == "float32"
    for check, message in (
        (
            lambda: check_variable_and_dtype(x, "x", ["int32", "int64"], "mine"),
            "mine: x should be of int32 or int64, not of float32$",
        ),
        (lambda: check_variable_and_dtype(3, "x", "int32", "mine"), "mine: x should be a Variable, not 3$"),
        (
            lambda: check_type(3, "axes", (list, tuple), "mine", "So it is."),
            "mine: axes should be a list or tuple, not 3. So it is$",
        ),
        (lambda: check_dtype("int8", "x", "int32", "mine"), "mine: x should be of int32, not of int8$"),
    ):
        with pytest.raises(TypeError, match=message):
            check()


def weighted(
    input: Any, size: int, param_attr: Any = None, bias_attr: Any = None, act: str | None = None, name: Any = None
) -> Any:
    """A layer as scripts write it: all of its arguments go to the helper."""
    helper = LayerHelper("weighted", **locals())
    dtype, products = helper.input_dtype(), []
    for var, attr in helper.iter_inputs_and_params():
        weight = helper.create_parameter(attr=attr, shape=[var.shape[-1], size], dtype=dtype, is_bias=False)
        product = helper.create_variable_for_type_inference(dtype)
        helper.append_op(type="mul", inputs={"X": var, "Y": weight}, outputs={"Out": product}, attrs={})
        products.append(product)
    return helper.append_activation(helper.append_bias_op(layers.sums(products), dim_start=1))


def test_a_layer_of_a_script() -> None:
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 2])
    ones = fluid.initializer.Constant(1.0)
    both = weighted([x, y], 4, param_attr=[fluid.ParamAttr("a", ones), fluid.ParamAttr("b", ones)], bias_attr="bias", act="relu")
    single = weighted(x, 4, param_attr=ones, bias_attr=False)
    fed = {"x": floats(5, 3), "y": floats(5, 2)}
    result, alone = run([both, single], fed)
    sums = fed["x"].sum(1, keepdims=True)
    np.testing.assert_allclose(alone, np.tile(sums, 4), 1e-5)
    np.testing.assert_allclose(result, np.tile(np.maximum(sums + fed["y"].sum(1, keepdims=True), 0), 4), 1e-5, 1e-6)
    helper = LayerHelper("mine", input=[x, y], ids=fluid.data("ids", [1], "int64"), mixed=[x, fluid.data("z", [1], "int64")])
    assert helper.get_parameter("a").shape == (3, 4) and helper.input("ids").name == "ids"
    variable = helper.create_or_get_global_variable("kept", shape=[1], dtype="float32", persistable=True)
    assert helper.create_or_get_global_variable("kept") is variable
    for call, message in (
        (lambda: helper.input(), "mine: input should be one Variable, not 2"),
        (lambda: helper.input("x"), "mine gave its helper no argument x; it gave ids, input, mixed"),
        (lambda: helper.input_dtype("mixed"), "mine: mixed should have one element type, not float32 and int64"),
        (lambda: helper.get_parameter("x"), "mine: x is not a parameter"),
        (lambda: weighted([x, y, x], 4, param_attr=["a", "b"]), "param_attr should be one, or 3, one for each input, not 2"),
    ):
        with pytest.raises(fluid.FluidError, match=message):
            call()


# ----------------------------------------------------------------------------------------------------------- new arguments
def test_maxout_of_the_last_dimension() -> None:
    array = floats(2, 3, 3, 8)
    (result,) = run([layers.maxout(layers.assign(array), 2, axis=-1)])
    assert np.array_equal(result, array.reshape(2, 3, 3, 4, 2).max(-1))


def test_batch_norm_with_a_momentum_that_a_run_tells() -> None:
    x, momentum = fluid.data("x", [None, 3]), fluid.data("momentum", [1])
    layers.batch_norm(x, momentum=momentum, moving_mean_name="mean")
    array, executor = floats(6, 3), fluid.Executor()
    executor.run(fluid.default_startup_program())
    expected = np.zeros(3)
    for value in (0.5, 0.9):
        executor.run(feed={"x": array, "momentum": np.array([value], "float32")})
        expected = value * expected + (1 - value) * array.mean(0)
    np.testing.assert_allclose(np.array(fluid.global_scope().find_var("mean").get_tensor()), expected, 1e-5, 1e-6)  # type: ignore[union-attr]


def test_linspace_is_of_float32_by_default() -> None:
    assert layers.linspace(0.0, 1.0, 3).dtype is fluid.core.VarType.FP32


def test_diag_of_an_array() -> None:
    matrix = layers.diag(np.arange(3, dtype="int32"))
    (found,) = fluid.Executor().run(fetch_list=[matrix])
    np.testing.assert_array_equal(found, np.diag(np.arange(3)))


@each("normalized", [True, False])
def test_overlap_of_boxes_by_borders_or_pixels(normalized: bool) -> None:
    boxes = np.array([[0, 0, 3, 3], [2, 2, 4, 4]], "float32")
    x = layers.assign(boxes)
    (found,) = fluid.Executor().run(fetch_list=[layers.iou_similarity(x, x, box_normalized=normalized)])
    size = 0 if normalized else 1
    areas, shared = [(3 + size) ** 2, (2 + size) ** 2], (1 + size) ** 2
    overlap = shared / (sum(areas) - shared)
    np.testing.assert_allclose(found, [[1, overlap], [overlap, 1]], rtol=1e-6)
