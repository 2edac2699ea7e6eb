"""Values of the right type that make no sense: each is refused where it is given, and the message says what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import initializer, layers, optimizer
from fluid.errors import ExecutionError, FluidError, InferenceError
from fluid.ir.inference import BuildNamespace
from fluid.ir.program import Program, program_guard


def tensor(*shape: int, dtype: str = "float32", lod: int = 0) -> Any:
    name = fluid.unique_name.generate("v")
    var = fluid.data(name, list(shape), dtype, lod_level=lod)
    var.stop_gradient = False
    return var


def matrix() -> Any:
    return tensor(2, 3)


def image() -> Any:
    return tensor(2, 4, 8, 8)


def ids(*shape: int) -> Any:
    return tensor(*(shape or (2, 1)), dtype="int64")


def rows(width: int) -> Any:
    return tensor(-1, width, lod=1)


def op(op_type: str, *values: Any, **attrs: Any) -> Any:
    namespace: BuildNamespace = fluid.default_main_program().global_block().namespace
    return getattr(namespace, op_type)(*values, **attrs)


SIZE = "should be an integer above 0"
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    # bounds that are not in order, numbers outside of where they make sense
    "clip": (lambda: layers.clip(matrix(), 2.0, 1.0), "clip: min 2.0 should not be above max 1.0"),
    "clip nan": (lambda: layers.clip(matrix(), float("nan"), 1.0), "clip: min nan should not be above max 1.0"),
    "brelu": (lambda: layers.brelu(matrix(), 3.0, 1.0), "brelu: t_min 3.0 should not be above t_max 1.0"),
    "uniform_random": (
        lambda: layers.uniform_random([2], min=2.0, max=1.0),
        "uniform_random: min 2.0 should not be above max 1.0",
    ),
    "uniform_random_batch_size_like": (
        lambda: layers.uniform_random_batch_size_like(matrix(), [-1, 2], min=2.0, max=1.0),
        "min 2.0 should not be above max 1.0",
    ),
    "sampling_id": (lambda: layers.sampling_id(matrix(), min=2.0, max=1.0), "sampling_id: min 2.0 should not be above max 1.0"),
    "teacher_student": (
        lambda: layers.teacher_student_sigmoid_loss(tensor(2, 1), tensor(2, 1), -15.0, 15.0),
        "soft_max_lower_bound 15.0 should not be above soft_max_up_bound -15.0",
    ),
    "label_smooth above": (
        lambda: layers.label_smooth(matrix(), epsilon=2.0),
        r"label_smooth: epsilon 2.0 should be in \[0, 1\]",
    ),
    "label_smooth below": (
        lambda: layers.label_smooth(matrix(), epsilon=-1.0),
        r"label_smooth: epsilon -1.0 should be in \[0, 1\]",
    ),
    "dropout": (lambda: layers.dropout(matrix(), 1.5), r"dropout: dropout_prob 1.5 should be in \[0, 1\]"),
    "lstm dropout": (
        lambda: layers.lstm(tensor(3, 2, 4), tensor(1, 2, 5), tensor(1, 2, 5), 3, 5, 1, dropout_prob=1.0),
        r"lstm.*dropout_prob 1.0 should be in \[0, 1\)",
    ),
    "batch_norm momentum": (lambda: layers.batch_norm(image(), momentum=2.0), r"batch_norm: momentum 2.0 should be in \[0, 1\]"),
    "batch_norm epsilon": (lambda: layers.batch_norm(image(), epsilon=-1.0), "batch_norm: attribute 'epsilon'.*-1.0 is below 0"),
    "layer_norm": (lambda: layers.layer_norm(matrix(), epsilon=-1.0), "layer_norm: attribute 'epsilon'.*-1.0 is below 0"),
    "group_norm": (lambda: layers.group_norm(image(), 2, epsilon=-1.0), "group_norm: attribute 'epsilon'.*-1.0 is below 0"),
    "instance_norm": (lambda: layers.instance_norm(image(), epsilon=-1.0), "instance_norm: attribute 'epsilon'.*-1.0 is below 0"),
    "data_norm": (lambda: layers.data_norm(matrix(), epsilon=-1.0), "data_norm: attribute 'epsilon'.*-1.0 is below 0"),
    "norm": (lambda: op("norm", matrix(), axis=1, epsilon=-1.0), "norm: attribute 'epsilon'.*-1.0 is below 0"),
    "spectral_norm": (
        lambda: layers.spectral_norm(tensor(4, 4), power_iters=-1),
        "spectral_norm: attribute 'power_iters'.*-1 is below 0",
    ),
    "gaussian_random": (lambda: layers.gaussian_random([2], std=-1.0), "gaussian_random: attribute 'std'.*-1.0 is below 0"),
    "huber_loss": (
        lambda: layers.huber_loss(tensor(2, 1), tensor(2, 1), -1.0),
        "huber_loss: attribute 'delta'.*-1.0 is below 0",
    ),
    "log_loss": (lambda: layers.log_loss(tensor(2, 1), tensor(2, 1), -1.0), "log_loss: attribute 'epsilon'.*-1.0 is below 0"),
    "softshrink": (lambda: layers.softshrink(matrix(), alpha=-1.0), "softshrink: attribute 'alpha'.*-1.0 is below 0"),
    "hash": (lambda: layers.hash(ids(), 0), "hash: attribute 'hash_size'.*0 is below 1"),
    "soft_relu": (lambda: layers.soft_relu(matrix(), threshold=-1.0), "soft_relu: attribute 'threshold'.*-1.0 is below 0"),
    "relu6": (lambda: layers.relu6(matrix(), threshold=-1.0), "relu6: attribute 'threshold'.*-1.0 is below 0"),
    "celu": (lambda: op("celu", matrix(), alpha=0.0), "celu: alpha 0.0, by which X .* is divided, should not be 0"),
    "softplus": (lambda: op("softplus", matrix(), beta=0.0), "softplus: beta 0.0, by which .* is divided, should not be 0"),
    "clip_by_norm": (lambda: layers.clip_by_norm(matrix(), -1.0), "clip_by_norm: max_norm should not be below 0, as -1.0 is"),
    "clip_by_norm op": (lambda: op("clip_by_norm", matrix(), max_norm=-1.0), "clip_by_norm: attribute 'max_norm'.*below 0"),
    "l2_normalize": (
        lambda: layers.l2_normalize(matrix(), 1, epsilon=-1.0),
        "l2_normalize: epsilon should not be below 0, as -1.0 is",
    ),
    "fill_constant sign": (
        lambda: layers.fill_constant([2], "uint8", -1),
        r"fill_constant: value -1.0 should be a number of dtype 20 \(uint8\)",
    ),
    "fill_constant nan": (
        lambda: layers.fill_constant([2], "int32", float("nan")),
        r"fill_constant: str_value 'nan' should be a number of dtype 2 \(int32\)",
    ),
    "fill_constant size": (
        lambda: layers.fill_constant([2], "int32", 2**31),
        r"fill_constant: .*value.* should be a number of dtype 2 \(int32\)",
    ),
    # dimensions
    "elementwise axis": (
        lambda: layers.elementwise_add(matrix(), matrix(), axis=7),
        r"elementwise_add: axis 7 should be -1, or from 0 to 2 for shapes \[2, 3\] and \[2, 3\]",
    ),
    "elementwise axis below": (
        lambda: layers.elementwise_mul(matrix(), tensor(2, 1), axis=-2),
        "elementwise_mul: axis -2 should be -1, or from 0 to 2",
    ),
    "comparison axis": (lambda: op("less_than", matrix(), matrix(), axis=3), "less_than: axis 3 should be -1, or from 0 to 2"),
    "reduce twice": (
        lambda: layers.reduce_sum(matrix(), dim=[0, 0]),
        r"reduce_sum: dim \[0, 0\] should name each dimension once",
    ),
    "reduce twice from the end": (
        lambda: layers.reduce_mean(matrix(), dim=[0, -2]),
        r"reduce_mean: dim \[0, -2\] should name each dimension once",
    ),
    "reduce_all twice": (
        lambda: layers.reduce_all(tensor(2, 3, dtype="bool"), dim=[1, 1]),
        r"reduce_all: dim \[1, 1\] should name each dimension once",
    ),
    "slice twice": (
        lambda: layers.slice(matrix(), [0, 0], [0, 0], [1, 2]),
        r"slice: axes \[0, 0\] should name each dimension once",
    ),
    "split dim": (lambda: layers.split(matrix(), 3, dim=-3), "split: dim -3 does not exist in 2 dimensions"),
    "transpose": (lambda: layers.transpose(matrix(), [0, 0]), r"transpose: .*perm \[0, 0\] is not an order of the 2 dimensions"),
    "transpose too far": (
        lambda: layers.transpose(matrix(), [0, 2]),
        r"transpose: .*perm \[0, 2\] is not an order of the 2 dimensions",
    ),
    "data": (lambda: fluid.data("x", [-3, 3]), r"data: shape \[-3, 3\] of x should have no size below -1"),
    "crop_tensor": (lambda: layers.crop_tensor(matrix(), [0, 3]), r"crop_tensor: shape \[0, 3\] should have no size of 0"),
    # how many, how large
    "fc": (lambda: layers.fc(matrix(), 0), f"fc: size {SIZE}, not 0"),
    "fc below": (lambda: layers.fc(matrix(), -4), f"fc: size {SIZE}, not -4"),
    "bilinear": (lambda: layers.bilinear_tensor_product(matrix(), matrix(), 0), f"bilinear_tensor_product: size {SIZE}, not 0"),
    "embedding": (
        lambda: layers.embedding(ids(), [0, 3]),
        r"embedding: size should be \[rows, columns\] of the table, both above 0, not \[0, 3\]",
    ),
    "embedding extents": (lambda: fluid.embedding(ids(), [3]), r"embedding: size should be \[rows, columns\].*not \[3\]"),
    "dynamic_lstm": (lambda: layers.dynamic_lstm(rows(8), 7), "dynamic_lstm: size should be a multiple of 4, .*not 7"),
    "dynamic_lstmp": (lambda: layers.dynamic_lstmp(rows(8), 7, 2), "dynamic_lstmp: size should be a multiple of 4, .*not 7"),
    "dynamic_lstmp projection": (lambda: layers.dynamic_lstmp(rows(8), 8, 0), f"dynamic_lstmp: proj_size {SIZE}, not 0"),
    "dynamic_gru": (lambda: layers.dynamic_gru(rows(6), 0), f"dynamic_gru: size {SIZE}, not 0"),
    "gru_unit": (lambda: layers.gru_unit(tensor(2, 6), tensor(2, 2), 7), "gru_unit: size should be a multiple of 3, .*not 7"),
    "lstm layers": (
        lambda: layers.lstm(tensor(3, 2, 4), tensor(1, 2, 5), tensor(1, 2, 5), 3, 5, 0),
        f"lstm: num_layers {SIZE}, not 0",
    ),
    "sequence_conv": (lambda: layers.sequence_conv(rows(6), 4, filter_size=0), f"sequence_conv: filter_size {SIZE}, not 0"),
    "row_conv": (lambda: layers.row_conv(rows(6), -1), "row_conv: future_context_size should not be below 0, as -1 is"),
    "conv2d filters": (lambda: layers.conv2d(image(), 0, 3), f"conv2d: num_filters {SIZE}, not 0"),
    "conv2d filter_size": (lambda: layers.conv2d(image(), 2, 0), f"conv2d: filter_size {SIZE} .*not 0"),
    "conv2d stride": (lambda: layers.conv2d(image(), 2, 3, stride=[1, 0]), rf"conv2d: stride {SIZE} .*not \[1, 0\]"),
    "conv2d padding": (lambda: layers.conv2d(image(), 2, 3, padding=-1), r"conv2d: attribute 'padding'.*\[-1, -1\] is below 0"),
    "conv2d groups": (lambda: layers.conv2d(image(), 2, 3, groups=0), f"conv2d: groups {SIZE} or None, not 0"),
    "conv2d_transpose": (
        lambda: layers.conv2d_transpose(image(), 2, output_size=3),
        r"conv2d_transpose: output_size \[3, 3\] is too small for float32\[2, 4, 8, 8\]",
    ),
    "conv3d": (lambda: layers.conv3d(tensor(2, 3, 8, 8, 8), 2, 0), f"conv3d: filter_size {SIZE} .*not 0"),
    "pool2d size": (lambda: layers.pool2d(image(), 0), r"pool2d: pool_size \[0, 0\] should have 2 numbers, none below 1"),
    "pool2d stride": (lambda: layers.pool2d(image(), 2, pool_stride=0), f"pool2d: pool_stride {SIZE} .*not 0"),
    "pool2d padding": (lambda: layers.pool2d(image(), 2, pool_padding=-1), r"pool2d: attribute 'pool_padding'.*is below 0"),
    "adaptive_pool2d": (lambda: layers.adaptive_pool2d(image(), 0), f"adaptive_pool2d: pool_size {SIZE} .*not 0"),
    "topk": (lambda: layers.topk(matrix(), 0), f"topk: k {SIZE} or a Variable, not 0"),
    "topk above": (lambda: layers.topk(matrix(), 4), r"topk: .*k 4 should be in \[1, 3\]"),
    "one_hot": (lambda: layers.one_hot(ids(), 0), f"one_hot: depth {SIZE} or a Variable, not 0"),
    "one_hot op": (lambda: fluid.one_hot(ids(), 0), "one_hot_v2: depth 0, the number of classes, should be at least 1"),
    "sequence_mask": (lambda: layers.sequence_mask(ids(2), maxlen=0), "sequence_mask: maxlen 0 should be above 0, or -1"),
    "expand": (lambda: layers.expand(matrix(), [0, 1]), r"expand: expand_times \[0, 1\], .* should not be below 1"),
    "tile": (lambda: op("tile", matrix(), repeat_times=[0, 1]), r"tile: repeat_times \[0, 1\], .* should not be below 1"),
    "split count": (lambda: layers.split(matrix(), 0), "split: num_or_sections 0 should ask for one part at least"),
    "split sections": (lambda: layers.split(matrix(), [1, 1]), r"split: .*num_or_sections \[1, 1\] do not add up to 3"),
    "unstack": (lambda: layers.unstack(matrix(), num=0), f"unstack: num {SIZE} or None, not 0"),
    "range": (lambda: layers.range(0, 10, 0, "int32"), "range: step should not be 0, between start 0 and end 10"),
    "linspace": (lambda: layers.linspace(0, 1, 0, "float32"), "linspace: num should be at least 1, not 0"),
    "eye": (lambda: layers.eye(3, 2, batch_shape=[0]), r"eye: batch_shape \[0\] should have no size below 1"),
    "resize": (
        lambda: layers.resize_bilinear(image(), scale=0.1),
        r"resize_bilinear: .*scale 0.1.* should leave something of the sizes \[8, 8\], not \[0, 0\]",
    ),
    "nce classes": (lambda: layers.nce(matrix(), ids(), 0), f"nce: num_total_classes {SIZE}, not 0"),
    "nce samples": (lambda: layers.nce(matrix(), ids(), 5, num_neg_samples=0), f"nce: num_neg_samples {SIZE} or None, not 0"),
    "sampled_softmax": (
        lambda: layers.sampled_softmax_with_cross_entropy(tensor(2, 30), ids(), 0),
        f"sampled_softmax_with_cross_entropy: num_samples {SIZE}, not 0",
    ),
    "center_loss": (lambda: layers.center_loss(matrix(), ids(), 0, 0.1, None), f"center_loss: num_classes {SIZE}, not 0"),
    "ctc_greedy_decoder": (
        lambda: layers.ctc_greedy_decoder(rows(6), blank=6),
        r"ctc_greedy_decoder: blank is 6; it should be a class of input, float32\[-1, 6\]",
    ),
    "attention": (
        lambda: fluid.nets.scaled_dot_product_attention(tensor(2, 3, 4), tensor(2, 3, 4), tensor(2, 3, 4), num_heads=0),
        "4 and 4 features cannot be split into 0 heads",
    ),
    "attention, text": (
        lambda: fluid.nets.scaled_dot_product_attention(tensor(2, 3, 4), tensor(2, 3, 4), tensor(2, 3, 4), num_heads="2"),
        "attention: num_heads should be an integer, not '2'",
    ),
    # initializers
    "Uniform": (lambda: initializer.Uniform(2, 1), "Uniform: low 2 should not be above high 1"),
    "Uniform nan": (lambda: initializer.Uniform(0, float("nan")), "Uniform: low 0 should not be above high nan"),
    "Uniform diagonal": (lambda: initializer.Uniform(diag_num=-1), "Uniform: diag_num should not be below 0, as -1 is"),
    "Normal": (lambda: initializer.Normal(0, -1), "Normal: scale should not be below 0, as -1 is"),
    "TruncatedNormal": (lambda: initializer.TruncatedNormal(0, -1), "TruncatedNormal: scale should not be below 0, as -1 is"),
    "Constant": (lambda: initializer.Constant("x"), "Constant: value should be a number, not 'x'"),
    "Xavier": (lambda: initializer.Xavier(fan_in=-3), "Xavier: fan_in should not be below 0, as -3 is"),
    "Xavier of nothing": (
        lambda: layers.create_parameter([2, 3], "float32", default_initializer=initializer.Xavier(fan_in=0, fan_out=0)),
        r"Xavier: not both fan_in and fan_out, of .*\(float32\[2, 3\].*\), should be 0",
    ),
    "MSRA": (lambda: initializer.MSRA(fan_in=-1), "MSRA: fan_in should not be below 0, as -1 is"),
    "MSRA of nothing": (
        lambda: layers.create_parameter([2, 3], "float32", default_initializer=initializer.MSRA(fan_in=0)),
        r"MSRA: fan_in, of .*\(float32\[2, 3\].*\), should not be 0",
    ),
    # training
    "Momentum": (lambda: optimizer.Momentum(0.1, 1.5), r"momentum should be in \[0, 1\], not 1.5"),
    "LarsMomentum": (lambda: optimizer.LarsMomentum(0.1, -0.5), r"momentum should be in \[0, 1\], not -0.5"),
    "Lars coefficient": (lambda: optimizer.LarsMomentum(0.1, 0.5, lars_coeff=-1), "lars_coeff should be not below 0, not -1"),
    "Adam beta1": (lambda: optimizer.Adam(beta1=1.5), r"beta1 should be in \[0, 1\), not 1.5"),
    "Adam beta2": (lambda: optimizer.Adam(beta2=1.0), r"beta2 should be in \[0, 1\), not 1.0"),
    "Adam nan": (lambda: optimizer.Adam(beta2=float("nan")), r"beta2 should be in \[0, 1\), not nan"),
    "Adam epsilon": (lambda: optimizer.Adam(epsilon=-1e-8), "epsilon should be not below 0, not -1e-08"),
    "AdamW": (lambda: optimizer.AdamW(beta1=-0.1), r"beta1 should be in \[0, 1\), not -0.1"),
    "Lamb": (lambda: optimizer.Lamb(beta2=2), r"beta2 should be in \[0, 1\), not 2"),
    "Adamax": (lambda: optimizer.Adamax(beta1=1), r"beta1 should be in \[0, 1\), not 1"),
    "RMSProp rho": (lambda: optimizer.RMSProp(0.1, rho=1.5), r"rho should be in \[0, 1\], not 1.5"),
    "RMSProp momentum": (lambda: optimizer.RMSProp(0.1, momentum=-1), r"momentum should be in \[0, 1\], not -1"),
    "Adadelta": (lambda: optimizer.Adadelta(0.1, rho=-0.5), r"rho should be in \[0, 1\], not -0.5"),
    "DecayedAdagrad": (lambda: optimizer.DecayedAdagrad(0.1, decay=1.5), r"decay should be in \[0, 1\], not 1.5"),
    "Adagrad": (
        lambda: optimizer.Adagrad(0.1, initial_accumulator_value=-1),
        "initial_accumulator_value should be not below 0, not -1",
    ),
    "Ftrl": (lambda: optimizer.Ftrl(0.1, l1=-1), "l1 should be not below 0, not -1"),
    "Ftrl power": (lambda: optimizer.Ftrl(0.1, lr_power=0.5), "lr_power should be not above 0, not 0.5"),
    "Dpsgd": (lambda: optimizer.Dpsgd(0.1, batch_size=0.0), "batch_size should be above 0, not 0.0"),
    "clip by value": (
        lambda: fluid.clip.GradientClipByValue(-1.0),
        r"GradientClipByValue: min 1.0 \(-max, as none is given\) should not be above max -1.0",
    ),
    "error clip": (lambda: fluid.clip.ErrorClipByValue(1.0, 2.0), "ErrorClipByValue: min 2.0 should not be above max 1.0"),
    "clip by norm": (lambda: fluid.clip.GradientClipByNorm(-1), "GradientClipByNorm: clip_norm should not be below 0, as -1 is"),
    "clip by global norm": (
        lambda: fluid.clip.GradientClipByGlobalNorm(-1),
        "GradientClipByGlobalNorm: clip_norm should not be below 0, as -1 is",
    ),
}


@each("name", REFUSED)
def test_value_is_refused(name: str) -> None:
    call, said = REFUSED[name]
    with program_guard(Program(), Program()), fluid.unique_name.guard(), pytest.raises(FluidError) as caught:
        call()
    assert re.search(said, str(caught.value).partition("\n")[0]), str(caught.value)


ALLOWED: dict[str, Callable[[], Any]] = {
    "clip to one number": lambda: layers.clip(matrix(), 1.0, 1.0),
    "smoothing all": lambda: layers.label_smooth(matrix(), epsilon=1.0),
    "axis of equal shapes": lambda: layers.elementwise_add(matrix(), matrix(), axis=0),
    "negative dims": lambda: layers.reduce_sum(matrix(), dim=[-1, -2]),
    "dropout of all": lambda: layers.dropout(matrix(), 1.0),
    "one random number": lambda: layers.uniform_random([2], min=1.0, max=1.0),
    "no deviation": lambda: layers.gaussian_random([2], std=0.0),
    "greatest int": lambda: layers.fill_constant([2], "int32", 2**31 - 1),
    "greatest long": lambda: layers.fill_constant([2], "int64", 2**63 - 1),
    "least byte": lambda: layers.fill_constant([2], "int8", -128),
    "squeeze what is not 1": lambda: layers.squeeze(matrix(), [0]),
    "numpy number": lambda: layers.fc(matrix(), np.int64(3)),
    "fan_out 0": lambda: layers.create_parameter([2, 3], "float32", default_initializer=initializer.Xavier(fan_out=0)),
    "no norm": lambda: layers.clip_by_norm(matrix(), 0.0),
}


@each("name", ALLOWED)
def test_value_at_the_edge_is_taken(name: str) -> None:
    with program_guard(Program(), Program()), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        found = ALLOWED[name]()
        feed = {var.name: np.ones(var.shape, "float32") for var in fluid.default_main_program().list_vars() if var.is_data}
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(fluid.default_startup_program())
        (value,) = executor.run(feed=feed, fetch_list=[found])
        assert value.shape == found.shape


def test_optimizers_take_settings_at_the_edge() -> None:
    optimizer.Momentum(0.1, 1.0)
    optimizer.Adam(beta1=0.0, beta2=0, epsilon=0.0)
    optimizer.RMSProp(0.1, rho=1.0, momentum=0)
    optimizer.Ftrl(0.1, lr_power=0.0)


@each(
    ("slots", "said"),
    [
        ({"Num": 0}, "linspace failed: Num is 0; there should be at least one number"),
        ({"Num": -3}, "linspace failed: Num is -3; there should be at least one number"),
    ],
)
def test_values_that_only_a_run_knows(slots: dict[str, int], said: str) -> None:
    with program_guard(Program(), Program()), fluid.unique_name.guard():
        found = layers.linspace(0.0, 1.0, layers.fill_constant([1], "int32", slots["Num"]), "float32")
        with pytest.raises(ExecutionError, match=said):
            fluid.Executor(fluid.CPUPlace()).run(fetch_list=[found])


# ------------------------------------------------------------------------------------------- what is known only in a run
@each("stepwise", [False, True])
def test_squeeze_of_what_turns_out_not_to_be_1(stepwise: bool) -> None:
    """The declaration holds, or the run is refused; it is not silently another shape."""
    with program_guard(Program(), Program()), fluid.unique_name.guard():
        x = fluid.data("x", [-1, 3])
        y = layers.squeeze(x, [0])
        assert y.shape == (3,)
        z = layers.scale(y, 2.0)
        executor, program = fluid.Executor(fluid.CPUPlace()), fluid.default_main_program()

        def run(rows: int) -> Any:
            feed = {"x": np.ones((rows, 3), "float32")}
            return executor.interpret(program, feed, [z]) if stepwise else executor.run(program, feed, [z])

        assert run(1)[0].shape == (3,)
        with pytest.raises(FluidError) as caught:
            run(2)
    said = r"squeeze2.*: axes \[0\] of X float32\[2, 3\] should have size 1, .*: Out was declared as float32\[3\]"
    assert re.search(said, str(caught.value)) and "made at: " in str(caught.value)


def test_squeeze_without_axes_leaves_what_is_not_1() -> None:
    with program_guard(Program(), Program()), fluid.unique_name.guard():
        y = layers.squeeze(fluid.data("x", [-1, 3, 1]), [])
        assert y.shape == (-1, 3)
        for rows, shape in ((2, (2, 3)), (1, (3,))):
            (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": np.ones((rows, 3, 1), "float32")}, fetch_list=[y])
            assert found.shape == shape


def test_messages_of_other_ops_are_left_alone() -> None:
    """Only the first line, and only whole words, are put into the layer's terms."""
    with program_guard(Program(), Program()), fluid.unique_name.guard(), pytest.raises(InferenceError) as caught:
        layers.transpose(matrix(), [0])
    head, *rest = str(caught.value).split("\n")
    assert "perm [0]" in head and "axis" not in head and any("axis=[0]" in line for line in rest)
