"""Layers of `fluid.layers` that are composed of several ops or have state, and ops whose shapes tensors decide."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.errors import ElementTypeError, ExecutionError, InferenceError
from fluid.executor.runtime.scope import Scope
from fluid.ir.program import Program

RNG = np.random.default_rng(5)


def computed(build: Callable[..., Any], *arrays: Any, grads: bool = False) -> list[Any]:
    """The results of `build`, called with a variable for each array, and gradients of their sum by the floating ones."""
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup):
        variables = [
            layers.data(f"x{i}", list(array.shape), append_batch_size=False, dtype=str(array.dtype))
            for i, array in enumerate(arrays)
        ]
        for var, array in zip(variables, arrays, strict=True):
            var.stop_gradient = array.dtype.kind != "f"
        found = build(*variables)
        fetch = list(found) if isinstance(found, (list, tuple)) else [found]
        if grads:
            fetch += fluid.gradients([layers.reduce_sum(fetch[0])], [var for var in variables if not var.stop_gradient])
    executor, scope = fluid.Executor(), Scope()
    executor.run(startup, scope=scope)
    feed = {f"x{i}": array for i, array in enumerate(arrays)}
    results = executor.run(main, feed, fetch, scope=scope)
    for one, other in zip(results, executor.interpret(main, feed, fetch, scope), strict=True):
        np.testing.assert_array_equal(one, other)
    return results


def floats(*shape: int) -> Any:
    return RNG.uniform(0.1, 0.9, shape).astype("float32")


# -------------------------------------------------------------------------------------------------------------- losses
def test_dice_loss() -> None:
    x, label = floats(2, 3, 4), RNG.integers(0, 4, (2, 3, 1))
    hot = np.eye(4)[label[..., 0]]
    ratio = 2 * (x * hot).sum((1, 2)) / (x.sum((1, 2)) + hot.sum((1, 2)) + 1e-5)
    (found,) = computed(layers.dice_loss, x, label)
    np.testing.assert_allclose(found, [(1 - ratio).mean()], rtol=1e-5)


@pytest.mark.numpy_alone
def test_npair_loss() -> None:
    anchor, positive, labels = floats(4, 3), floats(4, 3), np.int64([1, 2, 1, 3])
    same = (labels[:, None] == labels[None]).astype("float64")
    target = same / same.sum(1, keepdims=True)
    logits = anchor.astype("float64") @ positive.T
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    entropies = -(target * logs).sum(1, keepdims=True)
    penalty = ((anchor**2).sum(1).mean() + (positive**2).sum(1).mean()) * 0.25 * 0.002
    found, *grads = computed(layers.npair_loss, anchor, positive, labels, grads=True)
    np.testing.assert_allclose(found, [(target * entropies).sum(0).mean() + penalty], rtol=1e-5)
    assert [grad.shape for grad in grads] == [(4, 3), (4, 3)]


def test_center_loss_moves_the_centers() -> None:
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup):
        x = layers.data("x", [3])
        label = layers.data("label", [1], dtype="int64")
        loss = layers.center_loss(x, label, 4, 0.5, fluid.ParamAttr("centers", initializer=fluid.initializer.Constant(0.25)))
    executor, scope = fluid.Executor(), Scope()
    executor.run(startup, scope=scope)
    rows, labels = floats(3, 3), np.int64([[1], [3], [1]])
    (found,) = executor.run(main, {"x": rows, "label": labels}, [loss], scope=scope)
    np.testing.assert_allclose(found, 0.5 * ((rows - 0.25) ** 2).sum(1, keepdims=True), rtol=1e-5)
    centers = np.array(scope.find_var("centers").get_tensor())
    expected = np.full((4, 3), 0.25)
    expected[1] += 0.5 * (rows[[0, 2]] - 0.25).sum(0) / 3
    expected[3] += 0.5 * (rows[1] - 0.25) / 2
    np.testing.assert_allclose(centers, expected, rtol=1e-5)


# ------------------------------------------------------------------------------------------------------------- metrics
@each("steps", [2, 0])
def test_auc_over_batches(steps: int) -> None:
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup):
        x = layers.data("x", [2])
        label = layers.data("label", [1], dtype="int64")
        area, of_batches, stats = layers.auc(x, label, num_thresholds=1000, slide_steps=steps)
    of_steps = (3004,) if steps else (1, 1001)
    assert [var.shape for var in stats] == [of_steps, of_steps, (1, 1001), (1, 1001)]
    executor, scope = fluid.Executor(), Scope()
    executor.run(startup, scope=scope)
    scores, labels = [], []
    for _ in range(4):
        p, y = RNG.uniform(0, 1, (20, 1)).round(2).astype("float32"), RNG.integers(0, 2, (20, 1))
        scores.append(p[:, 0])
        labels.append(y[:, 0])
        found = executor.run(main, {"x": np.hstack([1 - p, p]), "label": y}, [area, of_batches], scope=scope)
        for value, batches in zip(found, (slice(None), slice(-steps, None)), strict=True):
            score, truth = np.concatenate(scores[batches]), np.concatenate(labels[batches])
            pairs = score[truth == 1][:, None] - score[truth == 0][None]
            assert value.dtype == np.float64
            np.testing.assert_allclose(value, [((pairs > 1e-3) + 0.5 * (abs(pairs) < 1e-3)).mean()], atol=2e-3)


def test_predictions_of_auc_are_probabilities() -> None:
    with pytest.raises(ExecutionError, match=r"auc failed: predictions should be in \[0, 1\]; there are some from 2.0 to 2.0"):
        computed(lambda x, y: layers.auc(x, y)[0], np.full((3, 2), 2.0, "float32"), np.int64([[0], [1], [1]]))


# ----------------------------------------------------------------------------------- parameters, shapes and small things
def test_bilinear_tensor_product() -> None:
    x, y = floats(3, 2), floats(3, 4)
    ones = fluid.initializer.Constant(1.0)
    attr, bias = fluid.ParamAttr(initializer=ones), fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5))
    (found,) = computed(lambda x, y: layers.bilinear_tensor_product(x, y, 5, param_attr=attr, bias_attr=bias), x, y)
    np.testing.assert_allclose(found, np.tile((x.sum(1) * y.sum(1))[:, None], 5) + 0.5, rtol=1e-5)


def test_eye_linspace_reverse_is_empty() -> None:
    (found,) = computed(lambda: layers.eye(2, 3, batch_shape=[4, 2]))
    np.testing.assert_array_equal(found, np.tile(np.eye(2, 3, dtype="float32"), (4, 2, 1, 1)))
    (found,) = computed(lambda: layers.linspace(1.0, 3.0, 5, "float64"))
    np.testing.assert_array_equal(found, np.linspace(1, 3, 5))
    x = floats(2, 3)
    np.testing.assert_array_equal(computed(lambda x: layers.reverse(x, [0, 1]), x)[0], x[::-1, ::-1])
    np.testing.assert_array_equal(computed(layers.is_empty, x)[0], [False])


def test_scatter_nd_and_pad2d() -> None:
    index, updates = np.int64([[1], [2], [1]]), floats(3)
    (found,) = computed(lambda i, u: layers.scatter_nd(i, u, [4]), index, updates)
    np.testing.assert_allclose(found, [0, updates[0] + updates[2], updates[1], 0], rtol=1e-6)
    x = floats(1, 2, 3, 3)
    (found,) = computed(lambda x: layers.pad2d(x, [1, 0, 0, 2], "edge"), x)
    np.testing.assert_array_equal(found, np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)), "edge"))
    (found,) = computed(lambda x, p: layers.pad2d(x, p, "edge"), x, np.int32([1, 0, 0, 2]))
    np.testing.assert_array_equal(found, np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)), "edge"))
    with pytest.raises(ExecutionError, match=r"paddings \[0, 0, 0, 0, 1, 0, -1, 2\] should hold two numbers, not below 0"):
        computed(lambda x, p: layers.pad2d(x, p), x, np.int32([1, 0, -1, 2]))


def test_bounds_sizes_and_repeats_from_variables() -> None:
    """The gradients reach where the values came from, though only running tells the shapes."""
    x, one, three = floats(4, 5), np.int32([1]), np.int32([3])
    found, grad = computed(lambda x, a, b: layers.slice(x, [0, 1], [a, 0], [b, 4]), x, one, three, grads=True)
    np.testing.assert_array_equal(found, x[1:3, :4])
    expected = np.zeros_like(x)
    expected[1:3, :4] = 1
    np.testing.assert_array_equal(grad, expected)
    found, grad = computed(lambda x, a, b: layers.strided_slice(x, [1], [a], [5], [b]), x, one, three, grads=True)
    np.testing.assert_array_equal(found, x[:, 1:5:3])
    assert grad.sum() == 8
    found, grad = computed(lambda x, a: layers.expand(x, [a, 2]), x, three, grads=True)
    np.testing.assert_array_equal(found, np.tile(x, (3, 2)))
    np.testing.assert_array_equal(grad, np.full_like(x, 6))
    found, grad = computed(lambda x, a: layers.concat([x, x], a), x, one, grads=True)
    np.testing.assert_array_equal(found, np.hstack([x, x]))
    np.testing.assert_array_equal(grad, np.full_like(x, 2))
    found, rest, grad = computed(lambda x, a: layers.split(x, [2, 3], a), x, one, grads=True)
    np.testing.assert_array_equal(rest, x[:, 2:])
    np.testing.assert_array_equal(grad, [[1, 1, 0, 0, 0]] * 4)
    found, indices, grad = computed(lambda x, k: layers.topk(x, k), x, three, grads=True)
    np.testing.assert_array_equal(found, -np.sort(-x, 1)[:, :3])
    assert grad.sum() == 12 and indices.shape == (4, 3)


def test_an_unwanted_output_of_unknown_shape_does_no_harm() -> None:
    x, k = floats(4, 5), np.int32([3])
    (indices,) = computed(lambda x, k: layers.topk(x, k)[1], x, k)
    np.testing.assert_array_equal(indices, np.argsort(-x, 1)[:, :3])


def test_positions_begin_anew_with_each_sequence() -> None:
    x, lengths = floats(6, 4), [2, 0, 3, 1]
    with fluid.program_guard(Program(), Program()):
        var = fluid.data("x", [-1, 4], lod_level=1)
        var.stop_gradient = False
        out = layers.add_position_encoding(var, 0.5, 2.0)
        (grad,) = fluid.gradients([layers.reduce_sum(layers.square(out))], [var])
        feed = {"x": fluid.create_lod_tensor(x, [lengths], fluid.CPUPlace())}
        assert out.lod_level == 1
        found, slope = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out, grad], return_numpy=False)
    assert found.recursive_sequence_lengths() == [lengths]
    starts = np.cumsum([0, *lengths])
    for start, length in zip(starts, lengths, strict=False):
        (alone,) = computed(lambda x: layers.add_position_encoding(x, 0.5, 2.0), x[None, start : start + length])
        np.testing.assert_array_equal(np.asarray(found)[start : start + length], alone[0])
    np.testing.assert_allclose(np.asarray(slope), np.asarray(found), rtol=1e-6)


@each(
    ("build", "arrays", "message"),
    [
        (lambda x, y: layers.cos_sim(x, y), (floats(3, 4), floats(2, 4)), "shapes \\[3, 4\\] and \\[2, 4\\] do not broadcast"),
        (lambda x, i: layers.multiplex([x, x], i), (floats(3, 4), np.int32([1, 0])), "Ids int32\\[2\\] should have shape"),
        (lambda x: layers.kldiv_loss(x, x, "all"), (floats(3, 4),), "'all' should be one of none, mean, sum, batchmean"),
        (
            lambda x: layers.add_position_encoding(x, 1.0, 1.0),
            (floats(3, 4),),
            "length, width\\], or \\[rows, width\\]",
        ),
        (lambda x: layers.diag(x), (floats(3, 4),), "Diagonal float32\\[3, 4\\] should be a vector"),
        (lambda x: layers.unique(x), (floats(3, 4),), "unless is_sorted, it should be a vector"),
        (lambda x: layers.shard_index(x, 20, 2, 2), (np.int64([[1]]),), "shard_id 2 in \\[0, 2\\)"),
        (lambda x: layers.hash(x, 10), (floats(3, 4),), "should hold rows of int32 or int64"),
    ],
)
def test_wrong_arguments_are_named(build: Callable[..., Any], arrays: Any, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        computed(build, *arrays)


@each(
    ("equation", "message"),
    [
        ("ij->ji", "is of 1 operands, but there are 2"),
        ("ij,j1->i", "'1' is not a label"),
        ("ijk,jk->i", "'ijk' does not name the 2 dimensions of its operand"),
        ("ij,jk->ii", "'i' should stand once in the result"),
        ("ij,ik->jk", "'i' has the sizes 3 and 4"),
    ],
)
def test_wrong_equations_are_named(equation: str, message: str) -> None:
    def build(x: Any, y: Any) -> Any:
        block = x.block
        names = {"Out": ["out"], "InnerCache": ["a", "b"], "XShape": ["c", "d"]}
        made = {slot: [block.create_var(name=name) for name in each] for slot, each in names.items()}
        block.append_op("einsum", {"Operands": [x, y]}, made, {"equation": equation})
        return made["Out"]

    with pytest.raises(InferenceError, match=message):
        computed(build, floats(3, 4), floats(4, 2))


def test_large_whole_numbers_and_zeros_beside_variables() -> None:
    large = 2**53 + 1

    def build(x: Any, y: Any) -> Any:
        return x + large, large - x, x * large, x < large, x % large, y / 0, y / -0.0, *divmod(x, 3), +x, round(y)

    x, y = np.array([large - 1, -7]), np.array([1.5, -2.25, 0.0], np.float32)
    with np.errstate(all="ignore"):
        expected = [x + large, large - x, x * np.int64(large), x < large, x % large, y / np.float32(0), y / np.float32(-0.0)]
    expected += [*divmod(x, 3), x, np.array([2.0, -2.0, 0.0])]
    for found, wanted in zip(computed(build, x, y), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)

    program = Program()
    with fluid.program_guard(program, Program()):
        added = fluid.data("x", [1], "int64") + (2**24 + 1)
    again = Program.parse_from_string(program.serialize_to_string())
    assert fluid.Executor().run(again, {"x": np.array([0])}, [added.name])[0].tolist() == [2**24 + 1]
    with fluid.program_guard(program), pytest.raises(InferenceError, match="holds integers from -128 to 127, and 16777217"):
        fluid.data("small", [1], "int8") + (2**24 + 1)


COMPLEX: dict[str, Callable[[Any], Any]] = {
    "x * 2j": lambda x: x * 2j,
    "2j * x": lambda x: 2j * x,
    "x + 1": lambda x: x + 1,
    "x - (1 + 2j)": lambda x: x - (1 + 2j),
    "(1 + 2j) - x": lambda x: (1 + 2j) - x,
    "x / (1 + 2j)": lambda x: x / (1 + 2j),
    "(1 + 2j) / x": lambda x: (1 + 2j) / x,
    "numpy's number": lambda x: np.complex64(1j) * x,
}


@each("name", COMPLEX)
@each("dtype", ["complex64", "complex128"])
def test_complex_numbers_beside_complex_values(name: str, dtype: str) -> None:
    values = (np.arange(1, 4) + 1j).astype(dtype)
    expected = COMPLEX[name](values)
    x = fluid.data(f"{dtype} {name}", [3], dtype)
    (result,) = fluid.Executor().run(feed={x.name: values}, fetch_list=[COMPLEX[name](x)])
    tensor = COMPLEX[name](dygraph.Tensor(values))
    for computed in (result, tensor.numpy()):
        assert computed.dtype == dtype
        np.testing.assert_allclose(computed, expected, rtol=1e-6)


def test_complex_numbers_beside_floats_are_an_error() -> None:
    with pytest.raises(InferenceError, match=r"float32\[3\] holds floats, and 1j is none of them: cast to complex64 first"):
        dygraph.Tensor(np.ones(3, "float32")) * 1j


@each("op", ["add", "sub", "mul", "truediv", "pow", "lt", "eq"])
@each("dtype", ["int64", "int32", "bool", "float64"])
def test_operators_cast_the_right_operand_to_a_left_one_of_floats(op: str, dtype: str) -> None:
    """Paddle 1.8.5 gives these values and element types; scripts multiply a loss by a mask of integers, for instance."""
    x, y = floats(2, 3), np.array([[1, 0, 1], [0, 1, 1]], dtype)
    apply = getattr(operator, op)
    with np.errstate(divide="ignore"):
        expected = apply(x, y.astype("float32"))
    result = computed(apply, x, y)[0]
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_operators_cast_integers_to_each_other_and_refuse_to_cut_fractions() -> None:
    x, y = np.array([5, 7], "int32"), np.array([2, 3], "int64")
    (difference,) = computed(lambda x, y: x - y, x, y)
    assert difference.dtype == np.int32 and difference.tolist() == [3, 4]
    with pytest.raises(ElementTypeError, match="cast one to the element type of the other"):
        computed(lambda x, y: x - y, y, floats(2))
