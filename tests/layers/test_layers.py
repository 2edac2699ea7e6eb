"""Layers: appended ops, inference, errors; initializers; indexing; control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers, nets
from fluid.errors import FluidTypeError, InferenceError, ProgramError
from fluid.ir.program import Operator, Variable
from fluid.values.types import VarType

Feed = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(autouse=True)
def programs() -> Iterator[fluid.Program]:
    """Every test builds in programs of its own."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        yield main


def run(fetch: Any, feed: Feed | None = None) -> list[np.ndarray[Any, Any]]:
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    return list(executor.run(feed=feed or {}, fetch_list=fetch, scope=scope))


def image(shape: tuple[int, ...] = (3, 8, 8)) -> Variable:
    return layers.data("image", list(shape))


def matrix(columns: int = 4, name: str = "x") -> Variable:
    return layers.data(name, [columns])


def ids(name: str = "ids") -> Variable:
    return layers.data(name, [1], dtype="int64")


def cube() -> Variable:
    return layers.data("cube", [2, 3, 4], append_batch_size=False)


# ----------------------------------------------------------------------------------------- every layer: build, infer, run
BATCH = 2
VALUES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray[Any, Any]]] = {
    "int64": lambda rng, shape: rng.integers(0, 2, shape),
    "bool": lambda rng, shape: rng.random(shape) < 0.5,
    "float32": lambda rng, shape: rng.random(shape, dtype=np.float32) * 0.8 + 0.1,
}

ONE: dict[str, tuple[Callable[[], Any], Any]] = {
    "fc": (lambda: layers.fc(matrix(), 5), [-1, 5]),
    "fc of an image": (lambda: layers.fc(image(), 5, act="relu"), [-1, 5]),
    "fc of two": (lambda: layers.fc([matrix(), matrix(3, "y")], 5), [-1, 5]),
    "fc, last dimension": (lambda: layers.fc(cube(), 5, num_flatten_dims=2), [2, 3, 5]),
    "fc, -1": (lambda: layers.fc(cube(), 5, num_flatten_dims=-1), [2, 3, 5]),
    "fc without bias": (lambda: layers.fc(matrix(), 5, bias_attr=False), [-1, 5]),
    "embedding": (lambda: layers.embedding(ids(), [9, 4]), [-1, 4]),
    "fluid.embedding": (lambda: fluid.embedding(ids(), [9, 4], padding_idx=-1), [-1, 1, 4]),
    "conv2d": (lambda: layers.conv2d(image(), 6, 3), [-1, 6, 6, 6]),
    "conv2d with padding": (lambda: layers.conv2d(image(), 6, [3, 5], stride=2, padding=[1, 2], act="tanh"), [-1, 6, 4, 4]),
    "conv2d, same": (lambda: layers.conv2d(image(), 6, 3, padding="same"), [-1, 6, 8, 8]),
    "conv2d, groups": (lambda: layers.conv2d(image((4, 8, 8)), 6, 3, groups=2, dilation=2, bias_attr=False), [-1, 6, 4, 4]),
    "conv2d_transpose": (lambda: layers.conv2d_transpose(image(), 6, filter_size=3, stride=2), [-1, 6, 17, 17]),
    "conv2d_transpose to a size": (
        lambda: layers.conv2d_transpose(image(), 6, output_size=18, stride=2, padding=1),
        [-1, 6, 18, 18],
    ),
    "pool2d": (lambda: layers.pool2d(image(), 2, pool_stride=2), [-1, 3, 4, 4]),
    "pool2d, average": (lambda: layers.pool2d(image(), 3, "avg", 2, 1), [-1, 3, 4, 4]),
    "pool2d, global": (lambda: layers.pool2d(image(), global_pooling=True), [-1, 3, 1, 1]),
    "adaptive_pool2d": (lambda: layers.adaptive_pool2d(image(), [2, 3], "avg"), [-1, 3, 2, 3]),
    "batch_norm": (lambda: layers.batch_norm(image(), act="relu"), [-1, 3, 8, 8]),
    "batch_norm of a matrix": (lambda: layers.batch_norm(matrix()), [-1, 4]),
    "layer_norm": (lambda: layers.layer_norm(image(), act="relu"), [-1, 3, 8, 8]),
    "layer_norm, bare": (lambda: layers.layer_norm(cube(), scale=False, shift=False, begin_norm_axis=2), [2, 3, 4]),
    "dropout": (lambda: layers.dropout(matrix(), 0.5), [-1, 4]),
    "softmax": (lambda: layers.softmax(matrix()), [-1, 4]),
    "softmax, axis": (lambda: layers.softmax(cube(), axis=1), [2, 3, 4]),
    "cross_entropy": (lambda: layers.cross_entropy(layers.softmax(matrix()), ids()), [-1, 1]),
    "cross_entropy, soft": (lambda: layers.cross_entropy(matrix(), matrix(name="y"), soft_label=True), [-1, 1]),
    "softmax_with_cross_entropy": (lambda: layers.softmax_with_cross_entropy(matrix(), ids()), [-1, 1]),
    "sigmoid_cross_entropy_with_logits": (
        lambda: layers.sigmoid_cross_entropy_with_logits(matrix(), matrix(name="y"), normalize=True),
        [-1, 4],
    ),
    "huber_loss": (lambda: layers.huber_loss(matrix(), matrix(name="y"), 0.5), [-1, 4]),
    "square_error_cost": (lambda: layers.square_error_cost(matrix(), matrix(name="y")), [-1, 4]),
    "mse_loss": (lambda: layers.mse_loss(matrix(), matrix(name="y")), [1]),
    "matmul": (lambda: layers.matmul(cube(), cube(), transpose_y=True, alpha=2.0), [2, 3, 3]),
    "mul": (lambda: layers.mul(matrix(), layers.create_parameter([4, 6], "float32")), [-1, 6]),
    "scale": (lambda: layers.scale(matrix(), 2.0, 1.0, bias_after_scale=False, act="relu"), [-1, 4]),
    "pow": (lambda: layers.pow(matrix(), 2.0), [-1, 4]),
    "mean": (lambda: layers.mean(matrix()), [1]),
    "sum": (lambda: layers.sum([matrix(), matrix(name="y")]), [-1, 4]),
    "sums": (lambda: layers.sums([matrix(), matrix(name="y")]), [-1, 4]),
    "clip": (lambda: layers.clip(matrix(), 0.2, 0.3), [-1, 4]),
    "clip_by_norm": (lambda: layers.clip_by_norm(matrix(), 1.0), [-1, 4]),
    "l2_normalize": (lambda: layers.l2_normalize(matrix(), 1), [-1, 4]),
    "reduce_sum": (lambda: layers.reduce_sum(matrix()), [1]),
    "reduce_sum, dim": (lambda: layers.reduce_sum(cube(), dim=1), [2, 4]),
    "reduce_mean, dims": (lambda: layers.reduce_mean(cube(), dim=[0, 2], keep_dim=True), [1, 3, 1]),
    "reduce_max": (lambda: layers.reduce_max(cube(), dim=-1), [2, 3]),
    "reduce_min": (lambda: layers.reduce_min(cube()), [1]),
    "reduce_prod": (lambda: layers.reduce_prod(cube(), dim=[]), [1]),
    "elementwise_add": (lambda: layers.elementwise_add(cube(), layers.data("y", [3], False), axis=1, act="relu"), [2, 3, 4]),
    "elementwise_sub": (lambda: layers.elementwise_sub(matrix(), matrix(name="y")), [-1, 4]),
    "elementwise_mul": (lambda: layers.elementwise_mul(matrix(), matrix(name="y")), [-1, 4]),
    "elementwise_div": (lambda: layers.elementwise_div(matrix(), matrix(name="y")), [-1, 4]),
    "elementwise_max": (lambda: layers.elementwise_max(matrix(), matrix(name="y")), [-1, 4]),
    "elementwise_min": (lambda: layers.elementwise_min(matrix(), matrix(name="y")), [-1, 4]),
    "elementwise_pow": (lambda: layers.elementwise_pow(matrix(), matrix(name="y")), [-1, 4]),
    "less_than": (lambda: layers.less_than(matrix(), matrix(name="y")), [-1, 4]),
    "equal": (lambda: layers.equal(ids(), ids("other")), [-1, 1]),
    "logical_and": (lambda: layers.logical_and(*[layers.data(n, [3], dtype="bool") for n in "ab"]), [-1, 3]),
    "logical_not": (lambda: layers.logical_not(layers.data("a", [3], dtype="bool")), [-1, 3]),
    "reshape": (lambda: layers.reshape(image(), [-1, 0, 64]), [-1, 3, 64]),
    "transpose": (lambda: layers.transpose(image(), [0, 2, 3, 1]), [-1, 8, 8, 3]),
    "concat": (lambda: layers.concat([matrix(), matrix(3, "y")], axis=1), [-1, 7]),
    "slice": (lambda: layers.slice(cube(), [1, 2], [1, -3], [3, 4]), [2, 2, 3]),
    "stack": (lambda: layers.stack([matrix(), matrix(name="y")], axis=1), [-1, 2, 4]),
    "squeeze": (lambda: layers.squeeze(ids(), [1]), [-1]),
    "unsqueeze": (lambda: layers.unsqueeze(matrix(), [0, 2]), [1, -1, 1, 4]),
    "flatten": (lambda: layers.flatten(cube(), 2), [6, 4]),
    "gather": (lambda: layers.gather(matrix(), layers.data("at", [2], False, "int64")), [2, 4]),
    "expand": (lambda: layers.expand(cube(), [1, 2, 3]), [2, 6, 12]),
    "one_hot": (lambda: layers.one_hot(ids(), 5), [-1, 5]),
    "fluid.one_hot": (lambda: fluid.one_hot(ids(), 5), [-1, 1, 5]),
    "shape": (lambda: layers.shape(cube()), [3]),
    "rank": (lambda: layers.rank(cube()), []),
    "size": (lambda: layers.size(cube()), [1]),
    "cast": (lambda: layers.cast(ids(), "float32"), [-1, 1]),
    "assign": (lambda: layers.assign(matrix()), [-1, 4]),
    "assign of an array": (lambda: layers.assign(np.eye(3, dtype="float32")), [3, 3]),
    "fill_constant": (lambda: layers.fill_constant([2, 3], "int64", 5), [2, 3]),
    "fill_constant_batch_size_like": (lambda: layers.fill_constant_batch_size_like(matrix(), [9, 2], "float32", 1.5), [-1, 2]),
    "zeros": (lambda: layers.zeros([2], "float32"), [2]),
    "ones": (lambda: layers.ones([2], "float32"), [2]),
    "zeros_like": (lambda: layers.zeros_like(matrix()), [-1, 4]),
    "ones_like": (lambda: layers.ones_like(matrix()), [-1, 4]),
    "argmax": (lambda: layers.argmax(cube(), axis=1), [2, 4]),
    "argmin": (lambda: layers.argmin(cube(), axis=-1), [2, 3]),
    "range": (lambda: layers.range(0, 7, 2, "int64"), None),
    "uniform_random": (lambda: layers.uniform_random([2, 3]), [2, 3]),
    "gaussian_random": (lambda: layers.gaussian_random([2, 3], 1.0, 2.0), [2, 3]),
    "accuracy": (lambda: layers.accuracy(matrix(), ids()), [1]),
    "increment": (lambda: layers.increment(layers.zeros([1], "float32"), 2.0, in_place=False), [1]),
    "create_global_var": (lambda: layers.create_global_var([2], 1.5, "float32", persistable=True), [2]),
    "simple_img_conv_pool": (lambda: nets.simple_img_conv_pool(image(), 4, 3, 2, 2, act="relu"), [-1, 4, 3, 3]),
    "img_conv_group": (
        lambda: nets.img_conv_group(image(), [4, 6], 2, conv_act="relu", conv_with_batchnorm=[True, False], pool_stride=2),
        [-1, 6, 4, 4],
    ),
    "glu": (lambda: nets.glu(matrix()), [-1, 2]),
    "attention": (lambda: nets.scaled_dot_product_attention(cube(), cube(), cube(), num_heads=2), [2, 3, 4]),
}


def test_attention_with_heads_projects_its_operands() -> None:
    """As in Paddle 1.6 to 1.8, queries, keys and values have a weight and a bias each."""
    out = nets.scaled_dot_product_attention(*(fluid.data(name, [2, 3, 4]) for name in "qkv"), num_heads=2)
    program = fluid.default_main_program()
    assert [(p.name, p.shape) for p in program.all_parameters()] == [
        (f"fc_{i}.{part}", shape) for i in range(3) for part, shape in (("w_0", (4, 4)), ("b_0", (4,)))
    ]
    exe, rng = fluid.Executor(fluid.CPUPlace()), np.random.default_rng(0)
    exe.run(fluid.default_startup_program())
    q, k, v = feeds = [rng.normal(size=(2, 3, 4)).astype("float32") for _ in "qkv"]
    (attended,) = exe.run(program, dict(zip("qkv", feeds, strict=True)), [out])
    weights = [np.array(fluid.global_scope().find_var(f"fc_{i}.w_0").get_tensor()) for i in range(3)]
    q, k, v = (np.split(x @ w, 2, axis=2) for x, w in zip((q, k, v), weights, strict=True))
    for head in range(2):
        scores = np.exp(q[head] @ k[head].transpose(0, 2, 1) / np.sqrt(2))
        expected = scores / scores.sum(2, keepdims=True) @ v[head]
        np.testing.assert_allclose(attended[:, :, 2 * head : 2 * head + 2], expected, rtol=1e-4, atol=1e-6)


@each("name", list(ONE))
def test_layer_builds_infers_and_runs(name: str, programs: fluid.Program) -> None:
    build, shape = ONE[name]
    found = build()
    assert found.has_dtype
    if shape is not None:
        assert found.has_shape and list(found.shape) == shape
    programs.verify()
    for op in programs.global_block().ops:
        assert op.user_frame is not None and op.user_frame[0] == __file__, f"{op.type} does not know who made it"
    rng = np.random.default_rng(0)
    feed = {
        var.name: VALUES[var.dtype.text](rng, tuple(BATCH if extent < 0 else extent for extent in var.shape)).astype(
            var.dtype.numpy
        )
        for var in programs.list_vars()
        if var.is_data
    }
    (value,) = run([found], feed)
    assert value.dtype == found.dtype.numpy
    assert [a if b >= 0 else -1 for a, b in zip(value.shape, found.shape, strict=True)] == list(found.shape)


def test_every_activation_builds() -> None:
    x = matrix()
    for name in layers.ops.__all__:
        definition = fluid.ops.registry.find(name)
        if definition is not None and definition.module == "fluid.ops.activation" and list(definition.inputs) == ["X"]:
            found = getattr(layers, name)(x)
            assert found.shape == (-1, 4), name
            assert found.name == f"{name}_0.tmp_0"


def test_layers_of_several_outputs() -> None:
    assert [part.shape for part in layers.split(matrix(6, "six"), 3)] == [(-1, 2)] * 3
    assert [part.shape for part in layers.split(matrix(6, "six"), [1, -1, 2], dim=1)] == [(-1, 1), (-1, 3), (-1, 2)]
    assert [part.shape for part in layers.unstack(cube(), axis=1)] == [(2, 4)] * 3
    values, indices = layers.topk(matrix(), 2)
    assert (values.shape, indices.shape, indices.dtype, indices.stop_gradient) == ((-1, 2), (-1, 2), VarType.INT64, True)
    loss, soft = layers.softmax_with_cross_entropy(matrix(), ids(), return_softmax=True)
    assert (loss.shape, soft.shape) == ((-1, 1), (-1, 4))


def test_outputs_that_are_given_are_written() -> None:
    x, y = matrix(), matrix(name="y")
    cond = layers.less_than(x, y)
    assert layers.less_than(y, x, cond=cond) is cond
    total = layers.create_tensor("float32", name="total")
    assert layers.sums([x, y], out=total) is total and total.shape == (-1, 4)
    assert layers.assign(x, total) is total
    number = layers.zeros([1], "float32")
    assert layers.increment(number) is number
    assert layers.fill_constant([1], "float32", 2.0, out=number) is number


def test_values_of_some_layers() -> None:
    x = np.array([[3.0, 4.0], [1.0, 2.0]], np.float32)
    given = layers.data("x", [2])
    out = run(
        [
            layers.l2_normalize(given, 1),
            layers.square_error_cost(given, layers.ones_like(given)),
            layers.mse_loss(given, layers.ones_like(given)),
            layers.range(2, 9, 3, "int64"),
            layers.assign(np.array([[True, False]])),
            layers.fill_constant([1], "int64", 2**53 + 1),
            layers.fill_constant([1], "float64", 0.1),
            nets.scaled_dot_product_attention(*[layers.unsqueeze(given, [0])] * 3),
        ],
        {"x": x},
    )
    np.testing.assert_allclose(out[0], x / np.sqrt((x**2).sum(1, keepdims=True)), rtol=1e-6)
    np.testing.assert_allclose(out[1], (x - 1) ** 2)
    np.testing.assert_allclose(out[2], [((x - 1) ** 2).mean()])
    np.testing.assert_array_equal(out[3], [2, 5, 8])
    np.testing.assert_array_equal(out[4], [[True, False]])
    assert out[5].tolist() == [2**53 + 1]
    assert out[6].tolist() == [0.1]
    scores = np.exp(x @ x.T / np.sqrt(2))
    np.testing.assert_allclose(out[7][0], scores / scores.sum(1, keepdims=True) @ x, rtol=1e-5)


# --------------------------------------------------------------------------------------------------------- declarations
def test_data_declarations(programs: fluid.Program) -> None:
    assert layers.data("a", [3]).shape == (-1, 3)
    assert layers.data("b", [None, 3]).shape == (-1, 3)
    assert layers.data("c", [3], append_batch_size=False).shape == (3,)
    d = fluid.data("d", [None, 3], "int64", lod_level=1)
    assert (d.shape, d.dtype, d.lod_level, d.is_data, d.need_check_feed, d.stop_gradient) == (
        (-1, 3),
        VarType.INT64,
        1,
        True,
        True,
        True,
    )
    assert fluid.data("e", [3]).shape == (3,)
    assert fluid.data("e", [3]) is programs.global_block().var("e")
    with pytest.raises(ProgramError, match=r"has a variable 'e' already \(float32\[3\]\).*float32\[4\].*program_guard"):
        fluid.data("e", [4])


def test_parameters_and_their_attributes(programs: fluid.Program) -> None:
    startup = fluid.default_startup_program()
    decay = fluid.regularizer.L2Decay(0.1)
    attr = fluid.ParamAttr("w", fluid.initializer.Constant(2.0), learning_rate=0.5, regularizer=decay, trainable=False)
    layers.fc(matrix(), 3, param_attr=attr, bias_attr="b")
    w, b = programs.global_block().var("w"), programs.global_block().var("b")
    assert isinstance(w, fluid.Parameter) and w.shape == (4, 3) and w.persistable and not w.trainable
    assert w.optimize_attr == {"learning_rate": 0.5} and w.regularizer is decay and b.trainable
    assert [(op.type, op.output("Out")) for op in startup.global_block().ops] == [
        ("fill_constant", ["w"]),
        ("fill_constant", ["b"]),
    ]
    layers.fc(matrix(name="y"), 3, param_attr="w", bias_attr=False)
    assert len(startup.global_block().ops) == 2, "a shared parameter is initialized once"
    assert len(programs.all_parameters()) == 2
    with pytest.raises(ProgramError, match=r"the parameter 'w' exists as float32\[4, 3\].*float32\[4, 5\]"):
        layers.fc(matrix(), 5, param_attr="w")


def test_param_attr_forms() -> None:
    to = fluid.ParamAttr._to_attr
    assert to(None).name is None and to(True).trainable and to(False) is False
    assert to("w").name == "w"
    first = fluid.initializer.Normal()
    assert to(first).initializer is first
    decay = fluid.regularizer.L1Decay(0.1)
    assert to(decay).regularizer is decay
    assert [attr.name for attr in to(["a", "b"])] == ["a", "b"]
    assert repr(fluid.ParamAttr("w", trainable=False)) == "ParamAttr(name='w', trainable=False)"
    with pytest.raises(FluidTypeError, match="does not describe a parameter"):
        to(3)


def test_initializer_that_is_none() -> None:
    with pytest.raises(FluidTypeError, match=r"initializer should be one of fluid\.initializer, not 3"):
        layers.fc(fluid.data("x", [None, 3]), 2, param_attr=fluid.ParamAttr(initializer=3))  # type: ignore[arg-type]


@each("layer", [layers.batch_norm, lambda x, **given: layers.group_norm(x, 2, **given)])
def test_layout_that_is_none(layer: Callable[..., Any]) -> None:
    with pytest.raises(InferenceError, match="data_layout is 'HWCN'; it should be NCHW or NHWC"):
        layer(fluid.data("x", [None, 4, 4, 4]), data_layout="HWCN")


@each("layout", ["NCHW", "NHWC"])
@each("layer", [layers.batch_norm, lambda x, **given: layers.group_norm(x, 2, **given)])
def test_norms_of_no_rows(layer: Callable[..., Any], layout: str, programs: fluid.Program) -> None:
    """A batch without rows is normalized and differentiated as any other."""
    x = fluid.data("x", [None, 4, 3, 4])
    x.stop_gradient = False
    out = layer(x, data_layout=layout)
    (gradient,) = fluid.gradients(layers.reduce_sum(layers.square(out)), x)
    executor, feed = fluid.Executor(), {"x": np.zeros((0, 4, 3, 4), np.float32)}
    executor.run(fluid.default_startup_program())
    for run in (executor.run, executor.interpret):
        for found in run(programs, feed=feed, fetch_list=[out, gradient]):
            assert found.shape == (0, 4, 3, 4)
    for var in programs.global_block().vars.values():
        if var.persistable:
            assert np.isfinite(fluid.global_scope().array(var.name)).all()


def test_dice_loss_of_float64(programs: fluid.Program) -> None:
    """Labels take the element type of the prediction."""
    loss = layers.dice_loss(fluid.data("x", [None, 2], "float64"), fluid.data("label", [None, 1], "int64"))
    feed = {"x": np.array([[0.25, 0.75], [1.0, 0.0]]), "label": np.array([[1], [0]])}
    (found,) = fluid.Executor().run(programs, feed=feed, fetch_list=[loss])
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, 1 - np.mean([1.5 / (2 + 1e-5), 2 / (2 + 1e-5)]))


def test_batch_norm_statistics(programs: fluid.Program) -> None:
    layers.batch_norm(image(), moving_mean_name="mean", moving_variance_name="variance")
    mean, variance = programs.global_block().var("mean"), programs.global_block().var("variance")
    for var in (mean, variance):
        assert isinstance(var, fluid.Parameter) and var.persistable and var.stop_gradient and not var.trainable
    op = programs.global_block().ops[-1]
    assert op.output("MeanOut") == ["mean"] and op.output("VarianceOut") == ["variance"]


# --------------------------------------------------------------------------------------------------------------- errors
ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "array for a variable": (
        lambda: layers.relu(np.zeros(3)),
        FluidTypeError,
        "relu: x should be a Variable, not ndarray; layers.assign makes one of an array",
    ),
    "nothing for a variable": (
        lambda: layers.fc(None, 3),
        FluidTypeError,
        "fc: input should be a Variable or a list of Variables, not None",
    ),
    "number for variables": (
        lambda: layers.concat(2.0),
        FluidTypeError,
        "concat: input should be a Variable or a list of Variables, not 2.0",
    ),
    "list for a variable": (lambda: layers.softmax([1.0]), FluidTypeError, "softmax: input should be a Variable, not list"),
    "fc of unknown features": (
        lambda: layers.fc(layers.data("x", [3, -1]), 2),
        ProgramError,
        r"fc: the number of features of x \(float32\[3, -1\]\) must be known",
    ),
    "fc num_flatten_dims": (
        lambda: layers.fc(matrix(), 2, num_flatten_dims=2),
        ProgramError,
        "num_flatten_dims=2 leaves no features",
    ),
    "fc param_attr": (
        lambda: layers.fc([matrix()], 2, param_attr=["a", "b"]),
        ProgramError,
        "there are 1 inputs but 2 param_attr",
    ),
    "activation": (lambda: layers.fc(matrix(), 2, act="matmul"), ProgramError, "'matmul' is not an activation"),
    "conv2d dimensions": (
        lambda: layers.conv2d(matrix(), 2, 3),
        ProgramError,
        r"should have 4 dimensions.*x is float32\[-1, 4\]",
    ),
    "conv2d groups": (lambda: layers.conv2d(image(), 4, 3, groups=2), ProgramError, "3 channels of image and 4 filters"),
    "conv2d padding": (lambda: layers.conv2d(image(), 4, 3, padding="full"), ProgramError, "'SAME', 'VALID' or numbers"),
    "conv2d padding of channels": (
        lambda: layers.conv2d(image(), 4, 3, padding=[[0, 0], [1, 1], [0, 0], [0, 0]]),
        ProgramError,
        "batch and channels cannot be padded",
    ),
    "conv2d filter_size": (lambda: layers.conv2d(image(), 4, [3, 3, 3]), ProgramError, "an integer or two of them"),
    "conv2d data_format": (lambda: layers.conv2d(image(), 4, 3, data_format="CHWN"), ProgramError, "'NCHW' or 'NHWC'"),
    "pool2d type": (lambda: layers.pool2d(image(), 2, "sum"), ProgramError, "'max' or 'avg', not 'sum'"),
    "pool2d size": (lambda: layers.pool2d(image()), ProgramError, "give pool_size, or set global_pooling"),
    "dropout": (lambda: layers.dropout(matrix(), 0.5, dropout_implementation="up"), ProgramError, "not 'up'"),
    "embedding": (
        lambda: layers.embedding(ids(), [9, 4], padding_idx=9),
        ProgramError,
        "padding_idx=9 is not a row of a table of 9",
    ),
    "unstack": (lambda: layers.unstack(matrix()), ProgramError, "is not known; give num"),
    "assign": (lambda: layers.assign("x"), FluidTypeError, "a Variable, an array or numbers, not str"),
    "assign of complex": (lambda: layers.assign(np.zeros(2, "c8")), ProgramError, "constants of complex64 cannot be written"),
    "shapes": (
        lambda: layers.elementwise_add(matrix(4), matrix(3, "y")),
        InferenceError,
        r"(?s)elementwise_add.*x: float32\[-1, 4\]; y: float32\[-1, 3\].*made at: .*test_layers.py",
    ),
    "attribute": (lambda: layers.softmax(matrix(), axis="last"), FluidTypeError, "axis should be an integer, not 'last'"),
    "img_conv_group": (
        lambda: nets.img_conv_group(image(), [4, 4], 2, conv_padding=[1]),
        ProgramError,
        "2 convolutions but 1 of",
    ),
    "attention": (lambda: nets.scaled_dot_product_attention(matrix(), cube(), cube()), ProgramError, "3 dimensions; x is"),
    "attention features": (
        lambda: nets.scaled_dot_product_attention(*(fluid.data(name, [2, 3, None]) for name in "qkv")),
        ProgramError,
        "number of features should be known and above 0; k is",
    ),
    "attention heads": (lambda: nets.scaled_dot_product_attention(cube(), cube(), cube(), 3), ProgramError, "into 3 heads"),
    "parameter without initializer": (lambda: layers.create_parameter([2], "int64"), ProgramError, "int64 needs an initializer"),
    "While of a number": (lambda: layers.While(layers.zeros([1], "float32")), FluidTypeError, "should be one bool"),
    "cond of a number": (lambda: layers.cond(layers.zeros([1], "int64")), FluidTypeError, "cond: pred should be one bool"),
    "array": (lambda: layers.array_read(matrix(), layers.zeros([1], "int64")), FluidTypeError, "should be an array of tensors"),
}


@each("name", list(ERRORS))
def test_error(name: str) -> None:
    build, kind, said = ERRORS[name]
    with pytest.raises(kind, match=said):
        build()


# --------------------------------------------------------------------------------------------------------- initializers
def initialized(initializer: fluid.initializer.Initializer, shape: list[int], dtype: str = "float32") -> np.ndarray[Any, Any]:
    w = layers.create_parameter(shape, dtype, attr=fluid.ParamAttr(initializer=initializer))
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    found = np.asarray(scope.find_var(w.name).get_tensor())
    assert found.shape == tuple(shape) and found.dtype == np.dtype(dtype)
    return found


INITIALIZERS = fluid.initializer
N = [200, 300]
KERNEL = [50, 40, 5, 5]


@each(
    ("initializer", "shape", "std", "limit"),
    [
        (INITIALIZERS.Uniform(-2.0, 2.0), N, 4 / np.sqrt(12), 2.0),
        (INITIALIZERS.Normal(0.0, 3.0), N, 3.0, None),
        (INITIALIZERS.TruncatedNormal(0.0, 3.0), N, 3.0 * 0.8796, 6.0),
        (INITIALIZERS.Xavier(), N, np.sqrt(2 / 500), np.sqrt(6 / 500)),
        (INITIALIZERS.Xavier(uniform=False), N, np.sqrt(2 / 500), None),
        (INITIALIZERS.Xavier(fan_in=10, fan_out=20), N, np.sqrt(2 / 30), np.sqrt(6 / 30)),
        (INITIALIZERS.Xavier(), KERNEL, np.sqrt(2 / (2250)), np.sqrt(6 / 2250)),
        (INITIALIZERS.MSRA(), N, np.sqrt(2 / 200), np.sqrt(6 / 200)),
        (INITIALIZERS.MSRA(uniform=False), KERNEL, np.sqrt(2 / 1000), None),
        (INITIALIZERS.MSRA(fan_in=8), N, np.sqrt(2 / 8), np.sqrt(6 / 8)),
    ],
)
def test_random_initializer(initializer: Any, shape: list[int], std: float, limit: float | None) -> None:
    found = initialized(initializer, shape)
    assert abs(found.mean()) < 5 * std / np.sqrt(found.size)
    assert found.std() == pytest.approx(std, rel=0.02)
    if limit is not None:
        assert np.abs(found).max() <= limit * 1.000001
        assert np.abs(found).max() > limit * 0.99


def test_fixed_initializers() -> None:
    assert (initialized(INITIALIZERS.Constant(2.5), [3]) == 2.5).all()
    value = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(initialized(INITIALIZERS.NumpyArrayInitializer(value), [2, 3]), value)
    np.testing.assert_array_equal(initialized(INITIALIZERS.NumpyArrayInitializer(value), [2, 3], "int64"), value)
    with pytest.raises(ProgramError, match=r"shape \[2, 3\] cannot initialize it"):
        layers.create_parameter([3, 2], "float32", attr=fluid.ParamAttr(initializer=INITIALIZERS.NumpyArrayInitializer(value)))
    for dtype in ("float16", "float64", "int8", "int16", "uint8", "uint64", "int32", "bool"):
        found = initialized(INITIALIZERS.NumpyArrayInitializer(value - 1 if dtype[0] in "if" else value), [2, 3], dtype)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, (value - 1 if dtype[0] in "if" else value).astype(dtype))
    tenths = np.arange(6.0).reshape(2, 3) / 10 + 1e-4
    np.testing.assert_array_equal(
        initialized(INITIALIZERS.NumpyArrayInitializer(tenths), [2, 3], "float16"), tenths.astype("float16")
    )
    ramp = np.array([0.25, 0.75, 0.75, 0.25])
    np.testing.assert_allclose(initialized(INITIALIZERS.Bilinear(), [2, 1, 4, 4])[1, 0], np.outer(ramp, ramp))


@each("dtype", ["float16", "int8", "int16", "uint8", "uint64"])
def test_arrays_of_types_that_no_attribute_holds(dtype: str) -> None:
    value = np.array([[0, 1, 100]], dtype) if dtype != "uint64" else np.array([[0, 1, 2**64 - 1]], dtype)
    found = layers.assign(value)
    assert found.shape == (1, 3)
    (back,) = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[found])
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, value)


def test_default_initializers() -> None:
    layers.fc(layers.conv2d(image(), 6, 3), 5)
    ops = {op.output("Out")[0]: op for op in fluid.default_startup_program().global_block().ops}
    assert ops["conv2d_0.w_0"].type == "gaussian_random"
    assert ops["conv2d_0.w_0"].attr("std") == pytest.approx(np.sqrt(2 / 27))
    assert ops["fc_0.w_0"].type == "uniform_random"
    assert ops["fc_0.w_0"].attr("max") == pytest.approx(np.sqrt(6 / (216 + 5)))
    assert ops["fc_0.b_0"].type == "fill_constant" and ops["fc_0.b_0"].attr("value") == 0.0


def test_init_on_cpu() -> None:
    with INITIALIZERS.init_on_cpu():
        assert INITIALIZERS.force_init_on_cpu()
        layers.create_global_var([1], 1.0, "float32")
    assert not INITIALIZERS.force_init_on_cpu()
    assert fluid.default_startup_program().global_block().ops[-1].attr("force_cpu") is True


# ------------------------------------------------------------------------------------------------------------- indexing
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@each(
    "item",
    [
        0,
        -1,
        slice(1, None),
        (slice(None), 1),
        (0, slice(1, 3), -2),
        (Ellipsis, 1),
        (1, Ellipsis, slice(-3, -1)),
        (Ellipsis, 0, slice(None)),
        (None, 1),
        (slice(None), None, 0),
        (0, None, 1, None),
        np.int64(1),
        slice(None),
        Ellipsis,
        slice(None, None, -1),
        (slice(None), slice(None, None, 2), slice(None, None, -1)),
        (0, slice(5, None, -2), slice(-1, 0, -3)),
        (slice(None), slice(2, -3, -1), slice(-2, -9, -1)),
        (Ellipsis, None, slice(3, -1, -1)),
    ],
    ids=str,
)
def test_getitem_is_numpys(item: Any) -> None:
    found = cube()[item]
    want = CUBE[item]
    assert found.shape == want.shape
    np.testing.assert_array_equal(run([found], {"cube": CUBE})[0], want)


def test_getitem_by_variables_and_of_unknown_extents() -> None:
    """Bounds and indices are read when the program runs; a dropped dimension may be indexed by -1."""
    x = fluid.data("cube", [None, 3, None])
    zero, one, last = (layers.fill_constant([1], dtype, value) for dtype, value in (("int32", 0), ("int64", 1), ("int32", -1)))
    cases = [
        (x[last], CUBE[-1]),
        (x[zero, one], CUBE[0, 1]),
        (x[:, last, one:last], CUBE[:, -1, 1:-1]),
        (x[one:, 2:0:last], CUBE[1:, 2:0:-1]),
        (x[last:last:1, zero:3:2], CUBE[-1:-1:1, 0:3:2]),
        (x[::-1, :, -2::-1], CUBE[::-1, :, -2::-1]),
        (x[:, :, 3:-3:-1], CUBE[:, :, 3:-3:-1]),
    ]
    for found, (_, want) in zip(run([out for out, _ in cases], {"cube": CUBE}), cases, strict=True):
        np.testing.assert_array_equal(found, want)
    with pytest.raises(ProgramError, match="the end -1 of a slice backwards along axis 0: its size is not known"):
        x[5:-1:-1]
    with pytest.raises(ProgramError, match="a slice whose step is a variable should have a start and an end"):
        x[::last]


def test_row_conv_of_a_batch() -> None:
    """Each row with the two rows after it, as far as there are any."""
    out = layers.row_conv(cube(), 2, fluid.ParamAttr(initializer=fluid.initializer.Constant(1.0)))
    want = [CUBE[:, step:].sum(1) for step in range(3)]
    np.testing.assert_array_equal(run([out], {"cube": CUBE})[0], np.stack(want, 1))


def test_lists_with_variables() -> None:
    x, two = cube(), layers.fill_constant([1], "int32", 2)
    first, second = layers.split(x, [two, -1], dim=2)
    wide = [layers.unsqueeze(x, [two, 0]), layers.unsqueeze(x, two)]
    found = run([first, second, *wide], {"cube": CUBE})
    for array, want in zip(found, (CUBE[:, :, :2], CUBE[:, :, 2:], CUBE[None, :, :, None], CUBE[:, :, None]), strict=True):
        np.testing.assert_array_equal(array, want)
    assert [part.shape for part in layers.split(x, [two, 1, 1], dim=2)] == [(2, 3, -1), (2, 3, 1), (2, 3, 1)]


def test_getitem_of_one_element_keeps_a_dimension() -> None:
    found = cube()[1, 2, 3]
    assert found.shape == (1,)
    np.testing.assert_array_equal(run([found], {"cube": CUBE})[0], [23])


@each(
    ("item", "kind", "said"),
    [
        ((0, 0, 0, 0), ProgramError, "cube .* cannot be indexed by 0, 0, 0, 0: too many indices"),
        ((Ellipsis, Ellipsis), ProgramError, "too many indices"),
        (5, ProgramError, r"index 5 is outside dimension 0 of cube \(float32\[2, 3, 4\]\)"),
        ("a", FluidTypeError, "cannot be indexed by 'a'; use integers, slices"),
        (True, FluidTypeError, "cannot be indexed by True"),
        (slice(0.5, None), FluidTypeError, "bounds of a slice should be integers, not 0.5"),
        (slice(None, None, 0), ProgramError, "the step of a slice should not be 0"),
    ],
    ids=str,
)
def test_getitem_errors(item: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        cube()[item]


# --------------------------------------------------------------------------------------------------------- control flow
def last_op(program: fluid.Program, op_type: str) -> Operator:
    return next(op for op in reversed(program.global_block().ops) if op.type == op_type)


def test_while_lists_what_its_block_reads_and_writes(programs: fluid.Program) -> None:
    x = matrix(name="x")
    i = layers.fill_constant([1], "int64", 0)
    n = layers.fill_constant([1], "int64", 3)
    total = layers.zeros_like(x)
    cond = layers.less_than(i, n)
    loop = layers.While(cond)
    with loop.block():
        layers.assign(layers.elementwise_add(total, x), total)
        layers.increment(i)
        layers.less_than(i, n, cond=cond)
    op = last_op(programs, "while")
    assert op.input("Condition") == [cond.name]
    assert op.input("X") == [total.name, "x", i.name, n.name]
    assert op.output("Out") == [total.name, i.name, cond.name]
    assert programs.global_block().var(op.output("StepScopes")[0]).type is VarType.STEP_SCOPES
    assert op.attr("sub_block") is programs.block(1) and programs.block(1).parent_idx == 0
    assert programs.current_block() is programs.global_block()
    value = np.ones((2, 4), np.float32)
    found = run([total, i], {"x": value})
    np.testing.assert_array_equal(found[0], 3 * value)
    assert found[1].tolist() == [3]


def test_while_that_cannot_end(programs: fluid.Program) -> None:
    cond = layers.fill_constant([1], "bool", True)
    with pytest.raises(ProgramError, match=f"never writes its condition {cond.name}"), layers.While(cond).block():
        layers.zeros([1], "float32")
    assert programs.num_blocks == 1, "a block that failed is gone"
    assert programs.current_block() is programs.global_block()


def test_nested_while(programs: fluid.Program) -> None:
    i, j, n = (layers.fill_constant([1], "int64", value) for value in (0, 0, 3))
    count = layers.fill_constant([1], "float32", 0.0)
    outer_cond = layers.less_than(i, n)
    with layers.While(outer_cond).block():
        layers.fill_constant([1], "int64", 0, out=j)
        inner_cond = layers.less_than(j, n)
        with layers.While(inner_cond).block():
            layers.increment(count)
            layers.increment(j)
            layers.less_than(j, n, cond=inner_cond)
        layers.increment(i)
        layers.less_than(i, n, cond=outer_cond)
    op = last_op(programs, "while")
    assert set(op.input("X")) == {i.name, j.name, n.name, count.name}
    assert set(op.output("Out")) == {i.name, j.name, count.name, outer_cond.name}
    assert run([count])[0].tolist() == [9.0]


def test_arrays(programs: fluid.Program) -> None:
    zero, one = (layers.fill_constant([1], "int64", value) for value in (0, 1))
    x = matrix()
    array = layers.array_write(x, zero)
    assert array.name == "array_write_0.out" and array.type is VarType.LOD_TENSOR_ARRAY
    assert layers.array_write(layers.scale(x, 2.0), one, array) is array
    back = layers.array_read(array, one)
    assert back.shape == (-1, 4)
    value = np.ones((1, 4), np.float32)
    found = run([back, layers.array_length(array)], {"x": value})
    np.testing.assert_array_equal(found[0], 2 * value)
    assert found[1].tolist() == [2] and found[1].dtype == np.int64
    assert layers.create_array("float32").type is VarType.LOD_TENSOR_ARRAY


def test_cond_builds_two_blocks_and_a_choice(programs: fluid.Program) -> None:
    x = layers.data("x", [2], append_batch_size=False)
    pred = layers.less_than(layers.reduce_sum(x), layers.fill_constant([1], "float32", 1.0))
    out = layers.cond(pred, lambda: layers.scale(x, 2.0), lambda: layers.scale(x, -1.0))
    ops = programs.global_block().ops
    assert [op.type for op in ops[-5:]] == ["conditional_block", "logical_not", "conditional_block", "cast", "select_input"]
    then, other, choice = ops[-5], ops[-3], ops[-1]
    assert then.input("Cond") == [pred.name] and then.input("Input") == ["x"] and other.input("Input") == ["x"]
    assert choice.input("X") == [other.output("Out")[0], then.output("Out")[0]]
    assert then.attr("is_scalar_condition") is True
    assert out.shape == (2,) and out.dtype is VarType.FP32
    for value, want in (([0, 0.5], [0, 1.0]), ([1, 2], [-1, -2])):
        assert run([out], {"x": np.array(value, np.float32)})[0].tolist() == want


def test_cond_structures_and_side_effects() -> None:
    pred = layers.data("pred", [1], append_batch_size=False, dtype="bool")
    seen = layers.fill_constant([1], "float32", 0.0)

    def then() -> Any:
        layers.assign(layers.fill_constant([1], "float32", 5.0), seen)
        return [layers.ones([2], "float32"), (layers.zeros([1], "int64"), {"k": seen})]

    def other() -> Any:
        return [layers.zeros([2], "float32"), (layers.ones([1], "int64"), {"k": layers.scale(seen, 1.0, 1.0)})]

    a, (b, named) = layers.cond(pred, then, other)
    for value, want in ((True, [[1, 1], [0], [5], [5]]), (False, [[0, 0], [1], [1], [0]])):
        assert [item.tolist() for item in run([a, b, named["k"], seen], {"pred": np.array([value])})] == want


def test_cond_without_results(programs: fluid.Program) -> None:
    pred = layers.fill_constant([1], "bool", True)
    count = layers.fill_constant([1], "float32", 0.0)

    def count_up() -> None:
        layers.increment(count)

    assert layers.cond(pred, count_up) is None
    assert layers.cond(pred) is None
    assert run([count])[0].tolist() == [1.0]


@each(
    ("then", "other", "said"),
    [
        (
            lambda: layers.zeros([2], "float32"),
            lambda: layers.zeros([3], "float32"),
            r"output 0 of true_fn is float32\[2\].*float32\[3\]",
        ),
        (lambda: layers.zeros([2], "float32"), lambda: layers.zeros([2], "int64"), "one shape and dtype"),
        (lambda: layers.zeros([2], "float32"), lambda: [layers.zeros([2], "float32")], "the same structure"),
        (lambda: layers.zeros([2], "float32"), None, "the same structure"),
        (lambda: 3, lambda: 3, "but holds a int"),
    ],
)
def test_cond_errors(then: Any, other: Any, said: str) -> None:
    with pytest.raises((ProgramError, FluidTypeError), match=said):
        layers.cond(layers.fill_constant([1], "bool", True), then, other)


def test_case_and_switch_case() -> None:
    x = layers.data("x", [1], append_batch_size=False)
    one, two = (layers.fill_constant([1], "float32", value) for value in (1.0, 2.0))
    pairs = [(layers.less_than(x, one), lambda: layers.fill_constant([1], "int64", 10))]
    pairs.append((layers.less_than(x, two), lambda: layers.fill_constant([1], "int64", 20)))
    last = layers.case(pairs)
    with_default = layers.case(pairs, default=lambda: layers.fill_constant([1], "int64", 30))
    index = layers.cast(x, "int32")
    fns = {1: lambda: layers.fill_constant([1], "int64", 100), 2: lambda: layers.fill_constant([1], "int64", 200)}
    switch = layers.switch_case(index, fns)
    other = layers.switch_case(index, list(fns.values()), default=lambda: layers.fill_constant([1], "int64", -1))
    for value, want in ((0.5, [10, 10, 200, 100]), (1.5, [20, 20, 100, 200]), (2.5, [20, 30, 200, -1])):
        assert [int(item[0]) for item in run([last, with_default, switch, other], {"x": np.array([value], np.float32)})] == want
    with pytest.raises(FluidTypeError, match="pairs of a bool Variable and a function"):
        layers.case([])
    with pytest.raises(ProgramError, match="distinct indices"):
        layers.switch_case(index, [(1, fns[1]), (1, fns[2])])


def test_switch(programs: fluid.Program) -> None:
    x = layers.data("x", [1], append_batch_size=False)
    rate = layers.fill_constant([1], "float32", 0.0)
    limits = [layers.fill_constant([1], "float32", value) for value in (1.0, 2.0)]
    with layers.Switch() as switch:
        for number, limit in enumerate(limits):
            with switch.case(layers.less_than(x, limit)):
                layers.fill_constant([1], "float32", number + 0.5, out=rate)
        with switch.default():
            layers.fill_constant([1], "float32", 9.0, out=rate)
    for value, want in ((0.0, 0.5), (1.0, 1.5), (2.0, 9.0)):
        assert run([rate], {"x": np.array([value], np.float32)})[0].tolist() == [want]
    with pytest.raises(ProgramError, match="inside 'with Switch"):
        switch.case(layers.less_than(x, limits[0]))
    with pytest.raises(ProgramError, match="after a case"), layers.Switch() as empty:
        empty.default()


def test_while_loop_leaves_its_arguments_alone_and_swaps() -> None:
    i = layers.fill_constant([1], "int64", 0)
    a, b = (layers.fill_constant([1], "float32", value) for value in (1.0, 2.0))
    n = layers.fill_constant([1], "int64", 3)
    found = layers.while_loop(
        lambda i, pair: layers.less_than(i, n),
        lambda i, pair: [layers.increment(i, in_place=False), (pair[1], pair[0])],
        [i, (a, b)],
    )
    values = run([found[0], *found[1], i, a, b])
    assert [float(value[0]) for value in values] == [3, 2, 1, 0, 1, 2]


def test_while_loop_of_one_variable_and_of_an_array() -> None:
    i = layers.fill_constant([1], "int64", 0)
    n = layers.fill_constant([1], "int64", 4)
    (last,) = layers.while_loop(lambda i: layers.less_than(i, n), lambda i: layers.increment(i, in_place=False), [i])
    array = layers.create_array("float32")

    def body(i: Variable, array: Variable) -> list[Variable]:
        layers.array_write(layers.cast(i, "float32"), i, array)
        return [layers.increment(i, in_place=False), array]

    _, written = layers.while_loop(lambda i, _: layers.less_than(i, n), body, [i, array])
    values = run([last, layers.array_read(written, layers.fill_constant([1], "int64", 2)), layers.array_length(written)])
    assert [float(value[0]) for value in values] == [4, 2, 4]


def test_while_loop_shapes_may_grow() -> None:
    i = layers.fill_constant([1], "int64", 0)
    n = layers.fill_constant([1], "int64", 3)
    x = layers.ones([1, 2], "float32")
    _, grown = layers.while_loop(
        lambda i, x: layers.less_than(i, n),
        lambda i, x: [layers.increment(i, in_place=False), layers.scale(layers.concat([x, x], axis=0), 2.0)],
        [i, x],
    )
    assert grown.shape == (-1, 2)
    np.testing.assert_array_equal(run([grown])[0], np.full((8, 2), 8.0))


@each(
    ("body", "said"),
    [
        (lambda i: [i, i], "must have the same structure"),
        (lambda i: layers.cast(i, "float32"), r"goes into body as int64\[1\] but comes out as float32\[1\]"),
        (lambda i: layers.reshape(i, [1, 1]), "number of dimensions must stay"),
        (lambda i: 3, "but holds a int"),
    ],
)
def test_while_loop_errors(body: Any, said: str, programs: fluid.Program) -> None:
    i = layers.fill_constant([1], "int64", 0)
    with pytest.raises((ProgramError, FluidTypeError), match=said):
        layers.while_loop(lambda i: layers.less_than(i, i), body, [i])
    assert programs.num_blocks == 1


def rnn_over(x: Variable, size: int = 3) -> Any:
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[-1, size], batch_ref=word)
        after = layers.fc([word, before], size, act="tanh", bias_attr=False)
        rnn.update_memory(before, after)
        rnn.step_output(after)
        rnn.output(before)
    return rnn()


def test_static_rnn(programs: fluid.Program) -> None:
    x = fluid.data("x", [5, None, 4])
    after, before = rnn_over(x)
    op = last_op(programs, "recurrent")
    assert op.input("inputs") == ["x"]
    assert op.input("parameters") == ["fc_0.w_0", "fc_0.w_1"]
    (memory,) = op.attr("ex_states")
    assert op.attr("states") == [after.name] == ["fc_0.tmp_3"]
    assert op.output("outputs") == [after.name, before.name] and op.attr("has_states") is True
    body = op.attr("sub_block")
    assert body.vars["x"].shape == (-1, 4) and body.vars[memory].shape == (-1, 3)
    assert after.shape == (5, -1, 3) and before.shape == (5, -1, 3)
    value = np.random.default_rng(0).random((5, 2, 4)).astype(np.float32)
    got_after, got_before, w, u = run([after, before, "fc_0.w_0", "fc_0.w_1"], {"x": value})
    state = np.zeros((2, 3), np.float32)
    for step in range(5):
        np.testing.assert_allclose(got_before[step], state, rtol=1e-5)
        state = np.tanh(value[step] @ w + state @ u)
        np.testing.assert_allclose(got_after[step], state, rtol=1e-5)


def test_static_rnn_errors(programs: fluid.Program) -> None:
    x, other = fluid.data("x", [5, None, 4]), fluid.data("other", [6, None, 4])
    rnn = layers.StaticRNN()
    with pytest.raises(ProgramError, match=r"inside 'with rnn\.step"):
        rnn.step_input(x)
    with pytest.raises(ProgramError, match="no step_output yet"):
        rnn()
    rnn = layers.StaticRNN()
    with pytest.raises(ProgramError, match="other has 6 time steps but x has 5"), rnn.step():
        rnn.step_input(x)
        rnn.step_input(other)
    rnn = layers.StaticRNN()
    with pytest.raises(ProgramError, match="is never updated"), rnn.step():
        rnn.memory(shape=[-1, 4], batch_ref=rnn.step_input(x))
    rnn = layers.StaticRNN()
    with pytest.raises(ProgramError, match="writes total, a variable from outside"):
        total = layers.create_tensor("float32", name="total")
        with rnn.step():
            layers.assign(rnn.step_input(x), total)
    rnn = layers.StaticRNN()
    with pytest.raises(ProgramError, match=r"the memory .* is float32\[-1, 4\] but .* is float32\[-1, 2\]"), rnn.step():
        word = rnn.step_input(x)
        rnn.update_memory(rnn.memory(shape=[-1, 4], batch_ref=word), layers.fc(word, 2))
    rnn = layers.StaticRNN()
    with pytest.raises(ProgramError, match="init x is made in the step"), rnn.step():
        rnn.memory(init=rnn.step_input(x))
    rnn = layers.StaticRNN()
    with pytest.raises(ProgramError, match="is made in the step; make it before the block begins"), rnn.step():
        rnn.step_input(layers.exp(x))
    assert programs.num_blocks == 1
