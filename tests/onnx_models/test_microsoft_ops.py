"""Ops of the domain com.microsoft, beside onnxruntime."""

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
from test_gradients import check as check_gradients

import fluid
from fluid.errors import FormatError
from fluid.executor.native import integer_lowering

RANDOM = np.random.default_rng(0)
MICROSOFT = helper.make_opsetid("com.microsoft", 1)


def floats(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def integers(dtype: Any, *shape: int) -> Any:
    bounds = np.iinfo(dtype)
    return RANDOM.integers(bounds.min, bounds.max, shape, endpoint=True).astype(dtype)


def weights(dtype: Any, *shape: int) -> Any:
    """Integers of 7 bits: without VNNI, onnxruntime's sums of two products of a byte and a signed byte saturate at 16 bits."""
    return (integers(dtype, *shape) // 2).astype(dtype)


def model_of(op_type: str, inputs: list[Any], outputs: int = 1, fed: int = 1, domain: str = "com.microsoft", **attrs: Any) -> Any:
    """A model of one node; the first `fed` inputs are fed, the others constants, None is left out."""
    names = ["" if value is None else f"x{n}" for n, value in enumerate(inputs)]
    results = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(op_type, names, results, domain=domain, **attrs)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value))
        for name, value in zip(names[:fed], inputs, strict=False)
        if name
    ]
    weights = [
        numpy_helper.from_array(np.asarray(value), name) for name, value in zip(names[fed:], inputs[fed:], strict=True) if name
    ]
    graph = helper.make_graph([node], "graph", infos, [onnx.ValueInfoProto(name=name) for name in results], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), MICROSOFT], ir_version=9)


def results_of(model: Any, path: Path, feed: dict[str, Any]) -> list[Any]:
    onnx.save(model, path)
    loaded = fluid.load_model(path, scope=fluid.Scope())
    feed = {name: feed[name] for name in loaded.feeds}
    return fluid.Executor().run(loaded.program, feed, loaded.fetches, scope=loaded.scope)  # type: ignore[no-any-return]


def check(path: Path, op_type: str, inputs: list[Any], most: float = 2e-6, **how: Any) -> None:
    """Compare with onnxruntime: floats relatively to the greatest number, integers by `most` steps."""
    model = model_of(op_type, inputs, **how)
    fed = {f"x{n}": np.asarray(value) for n, value in enumerate(inputs[: how.get("fed", 1)]) if value is not None}
    for ours, theirs in zip(results_of(model, path, fed), session_of(model.SerializeToString()).run(None, fed), strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        off = np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max()
        assert off <= (most * max(np.abs(theirs).max(), 1) if theirs.dtype.kind == "f" else round(most)), off


X, GAMMA, BETA = floats(2, 5, 8), floats(8), floats(8)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
SQUARE = np.tril(np.ones((2, 5, 5), np.int32))
QKV, BIAS = floats(8, 24), floats(24)
IDS = np.array([[1, 4, 2], [0, 3, 3]], np.int32)
IMAGE, FILTER = floats(2, 3, 6, 6), floats(4, 3, 3, 3)
CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "gelu": ("Gelu", [X], {}),
    "bias gelu": ("BiasGelu", [X, BETA], {}),
    "fast gelu": ("FastGelu", [X, BETA], {}),
    "quick gelu": ("QuickGelu", [X], {"alpha": 1.5}),
    "product": ("FusedMatMul", [X, floats(3, 8)], {"alpha": 0.5, "transB": 1}),
    "gemm": ("FusedGemm", [X[0], floats(8, 3), floats(3)], {"activation": "LeakyRelu", "activation_alpha": 0.2}),
    "convolution": ("FusedConv", [IMAGE, FILTER, floats(4)], {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    "added": ("FusedConv", [IMAGE, FILTER, floats(4), floats(2, 4, 4, 4)], {"activation": "Relu"}),
    "clipped": ("FusedConv", [IMAGE, FILTER], {"activation": "Clip", "activation_params": [-0.5, 1.5]}),
    "skip norm": ("SkipLayerNormalization", [X, floats(2, 5, 8), GAMMA, BETA, floats(8)], {"epsilon": 1e-5}),
    "skip norm without beta": ("SkipLayerNormalization", [X, floats(2, 5, 8), GAMMA], {}),
    "skip rms": ("SkipSimplifiedLayerNormalization", [X, floats(2, 5, 8), GAMMA], {"epsilon": 1e-5}),
    "rms": ("SimplifiedLayerNormalization", [X, GAMMA], {"domain": "", "epsilon": 1e-5}),
    "embeddings": (
        "EmbedLayerNormalization",
        [IDS, IDS // 4, floats(5, 8), floats(6, 8), floats(2, 8), GAMMA, BETA, MASK[:, :3]],
        {"outputs": 3, "fed": 2},
    ),
    "embeddings at positions": (
        "EmbedLayerNormalization",
        [IDS, None, floats(5, 8), floats(6, 8), None, GAMMA, BETA, None, IDS[::-1].copy()],
        {"outputs": 2},
    ),
    "attention": ("Attention", [X, QKV, BIAS], {"num_heads": 2}),
    "masked": ("Attention", [X, QKV, BIAS, MASK], {"num_heads": 2}),
    "masked by lengths": ("Attention", [X, QKV, BIAS, np.array([3, 5], np.int32)], {"num_heads": 2}),
    "masked by places": ("Attention", [X, QKV, BIAS, SQUARE], {"num_heads": 2, "scale": 0.3}),
    "causal": ("Attention", [X, QKV, BIAS], {"num_heads": 2, "unidirectional": 1}),
    "with a past": (
        "Attention",
        [X, QKV, BIAS, None, floats(2, 2, 2, 3, 4)],
        {"num_heads": 2, "unidirectional": 1, "outputs": 2},
    ),
    "of other sizes": ("Attention", [X, floats(8, 20), floats(20)], {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]}),
    "with a bias": ("Attention", [X, QKV, BIAS, None, None, floats(2, 2, 5, 5)], {"num_heads": 2}),
    "heads": ("MultiHeadAttention", [X, floats(2, 7, 8), floats(2, 7, 8), BIAS], {"num_heads": 4}),
}


@each("name", list(CASES))
def test_fused_ops(name: str, tmp_path: Path) -> None:
    op_type, inputs, how = CASES[name]
    check(tmp_path / "m.onnx", op_type, inputs, most=4e-6, **how)


@each("name", [name for name, (_, _, how) in CASES.items() if "fed" not in how and "positions" not in name])
def test_gradients_of_fused_ops(name: str, tmp_path: Path) -> None:
    op_type, inputs, how = CASES[name]
    assert (
        check_gradients(model_of(op_type, inputs, **how), inputs[:1], tmp_path / "m.onnx", np.random.default_rng(0)) == "checked"
    )


SCALE, ZERO = np.float32(0.02), np.uint8(120)
BYTES, OTHERS = integers(np.uint8, 2, 4, 5), integers(np.uint8, 2, 4, 5)
SIGNED, PIXELS = weights(np.int8, 5, 6), integers(np.uint8, 2, 3, 4, 4)
OUT = [np.float32(0.05), np.uint8(130)]
ONE = [BYTES, SCALE, ZERO]
INTEGER_CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "sum": ("QLinearAdd", [*ONE, OTHERS, np.float32(0.03), np.uint8(100), *OUT], {}),
    "product": ("QLinearMul", [*ONE, OTHERS, np.float32(0.03), np.uint8(100), *OUT], {}),
    "sigmoid": ("QLinearSigmoid", [*ONE, np.float32(1 / 256), np.uint8(0)], {}),
    "leaky": ("QLinearLeakyRelu", [*ONE, *OUT], {"alpha": 0.1}),
    "softmax": ("QLinearSoftmax", [*ONE, np.float32(1 / 256), np.uint8(0)], {"opset": 13, "axis": -1}),
    "concat": ("QLinearConcat", [*OUT, BYTES, SCALE, ZERO, OTHERS, np.float32(0.03), np.uint8(9)], {"axis": 1, "fed": 3}),
    "global pool": ("QLinearGlobalAveragePool", [integers(np.uint8, 2, 3, 4, 4), SCALE, ZERO, *OUT], {"channels_last": 0}),
    "global pool of rows": (
        "QLinearGlobalAveragePool",
        [integers(np.uint8, 2, 4, 4, 3), SCALE, ZERO, *OUT],
        {"channels_last": 1},
    ),
    "pool": ("QLinearAveragePool", [integers(np.uint8, 2, 3, 4, 4), SCALE, ZERO, *OUT], {"kernel_shape": [2, 2]}),
    "gemm": (
        "QGemm",
        [BYTES[0], SCALE, ZERO, SIGNED, np.float32(0.01), np.int8(3), integers(np.int8, 6).astype(np.int32), *OUT],
        {"alpha": 1.0},
    ),
    "gemm to floats": (
        "QGemm",
        [BYTES[0], SCALE, ZERO, SIGNED.T.copy(), np.abs(floats(6)), np.zeros(6, np.int8)],
        {"transB": 1},
    ),
    "quantize": ("QuantizeLinear", [X, SCALE, ZERO], {}),
    "dequantize": ("DequantizeLinear", [BYTES, SCALE, ZERO], {}),
    "to floats": (
        "MatMulIntegerToFloat",
        [BYTES, SIGNED, SCALE, np.abs(floats(6)), ZERO, integers(np.int8, 6), floats(6)],
        {},
    ),
    "dynamic": ("DynamicQuantizeMatMul", [floats(2, 4, 5), SIGNED, np.float32(0.01), np.int8(5), floats(6)], {}),
}


@each("name", list(INTEGER_CASES))
def test_quantized_ops(name: str, tmp_path: Path) -> None:
    op_type, inputs, how = INTEGER_CASES[name]
    check(tmp_path / "m.onnx", op_type, inputs, most=1 if "QLinear" in op_type else 4e-6, **how)


def quantized_lstm(
    steps: int,
    batch: int,
    width: int,
    size: int,
    dtype: Any = np.int8,
    by_columns: bool = False,
    directions: int = 1,
    **inputs: Any,
) -> list[Any]:
    """The inputs of DynamicQuantizeLSTM, of which gates become about 1; zero points of columns are 0, as onnxruntime demands."""
    scales = (directions, 4 * size) if by_columns else (directions,)
    zero = inputs.get("zero", 128 if dtype == np.uint8 and not by_columns else 0)
    zeros = np.full(scales, zero, dtype)
    of_x, of_h = ((RANDOM.uniform(0.5, 2, scales) / 35 / rows**0.5).astype(np.float32) for rows in (width, size))
    w, r = (weights(dtype, directions, rows, 4 * size) for rows in (width, size))
    states = [inputs.get(name) for name in ("lengths", "h", "c", "peepholes")]
    return [floats(steps, batch, width), w, r, floats(directions, 8 * size), *states, of_x, zeros, of_h, zeros]


LSTMS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "one step": (quantized_lstm(1, 1, 3, 4), {}),
    "odd sizes": (quantized_lstm(6, 3, 5, 7), {}),
    "both directions": (quantized_lstm(7, 2, 20, 17, directions=2), {"direction": "bidirectional"}),
    "reverse": (quantized_lstm(5, 2, 3, 4), {"direction": "reverse"}),
    "scales of columns": (quantized_lstm(6, 5, 9, 16, by_columns=True, directions=2), {"direction": "bidirectional"}),
    "without signs": (quantized_lstm(6, 33, 33, 18, np.uint8), {}),
    "without signs, scales of columns": (quantized_lstm(6, 2, 5, 6, np.uint8, True), {}),
    "zero points": (quantized_lstm(6, 2, 5, 6, zero=3), {}),
    "zero points, without signs": (quantized_lstm(6, 2, 5, 6, np.uint8, zero=3), {}),
    "many steps": (quantized_lstm(70, 2, 12, 64), {}),
    "wide": (quantized_lstm(3, 2, 600, 260), {}),
    "first states": (quantized_lstm(4, 3, 3, 4, h=3 * floats(1, 3, 4), c=floats(1, 3, 4)), {}),
    "lengths": (quantized_lstm(6, 4, 3, 4, lengths=np.array([6, 2, 1, 4], np.int32), h=floats(1, 4, 4)), {}),
    "lengths, both directions": (
        quantized_lstm(6, 3, 3, 4, directions=2, lengths=np.array([5, 2, 3], np.int32)),
        {"direction": "bidirectional"},
    ),
    "peepholes": (quantized_lstm(6, 2, 3, 4, peepholes=floats(1, 12)), {}),
    "peepholes, both directions": (
        quantized_lstm(6, 2, 3, 4, np.uint8, True, 2, peepholes=floats(2, 12)),
        {"direction": "bidirectional"},
    ),
    "clipped": (quantized_lstm(6, 2, 3, 4), {"clip": 0.5}),
    "other activations": (quantized_lstm(6, 2, 3, 4), {"activations": ["Sigmoid", "Relu", "Tanh"]}),
}


@each("name", list(LSTMS))
def test_a_quantized_lstm(name: str, tmp_path: Path) -> None:
    """States are rounded as onnxruntime rounds them: without that, results differ by hundredths."""
    inputs, how = LSTMS[name]
    size = inputs[2].shape[1]
    check(tmp_path / "m.onnx", "DynamicQuantizeLSTM", inputs, most=2e-6, outputs=3, hidden_size=size, **how)


def test_a_quantized_lstm_with_more_steps_than_a_plan_unrolls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integer_lowering, "_MOST_STEPS", 5)
    check(tmp_path / "m.onnx", "DynamicQuantizeLSTM", quantized_lstm(6, 2, 3, 4), outputs=3, hidden_size=4)


def test_a_quantized_lstm_of_zeros(tmp_path: Path) -> None:
    """A range of 0 has the scale 1."""
    inputs = quantized_lstm(4, 2, 3, 4)
    inputs[0][...] = 0
    inputs[3] = None
    check(tmp_path / "m.onnx", "DynamicQuantizeLSTM", inputs, outputs=3, hidden_size=4)


def test_a_quantized_lstm_with_fed_weights(tmp_path: Path) -> None:
    inputs = quantized_lstm(4, 2, 3, 4, directions=2)
    check(tmp_path / "m.onnx", "DynamicQuantizeLSTM", inputs, outputs=3, fed=3, hidden_size=4, direction="bidirectional")


def test_weights_of_a_quantized_lstm_stay_bytes(tmp_path: Path) -> None:
    onnx.save(model_of("DynamicQuantizeLSTM", quantized_lstm(4, 2, 40, 50), hidden_size=50), tmp_path / "m.onnx")
    loaded = fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope())
    weights = [var for var in loaded.program.list_vars() if var.persistable and var.shape in ((40, 200), (50, 200))]
    assert [var.dtype for var in weights] == ["int8", "int8"]


@pytest.mark.parametrize(("dtype", "by_columns"), [(np.int8, False), (np.uint8, False), (np.int8, True)])
def test_a_quantized_lstm_trains(dtype: Any, by_columns: bool, tmp_path: Path) -> None:
    """Its integers become weights of floats, which are rounded as before; gradients go straight through."""
    inputs = quantized_lstm(5, 2, 3, 4, dtype, by_columns, 2)
    onnx.save(model_of("DynamicQuantizeLSTM", inputs, outputs=3, hidden_size=4, direction="bidirectional"), tmp_path / "m.onnx")
    model = fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope())
    feed, executor = {"x0": inputs[0]}, fluid.Executor()
    before = executor.run(model.program, feed, model.fetches, scope=model.scope)
    model.program.make_trainable(scope=model.scope)
    for ours, theirs in zip(executor.run(model.program, feed, model.fetches, scope=model.scope), before, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    floats_of = [parameter for parameter in model.program.all_parameters() if parameter.name.endswith(".floats")]
    assert [parameter.shape for parameter in floats_of] == [(3, 16), (4, 16)] * 2
    with fluid.program_guard(model.program, fluid.Program()), fluid.scope_guard(model.scope):
        loss = fluid.layers.mean(fluid.layers.square(model.program.global_block().var("y0")))
        fluid.optimizer.SGD(0.5).minimize(loss)
        executor.run(fluid.default_startup_program())
        losses = [executor.run(model.program, feed, [loss])[0].item() for _ in range(50)]
    assert losses[-1] < 0.9 * losses[0]


def test_a_quantized_lstm_without_values_does_not_train(tmp_path: Path) -> None:
    onnx.save(model_of("DynamicQuantizeLSTM", quantized_lstm(5, 2, 3, 4), hidden_size=4), tmp_path / "m.onnx")
    model = fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope())
    report = model.program.make_trainable(scope=fluid.Scope())
    assert "dynamic_quantize_lstm keeps its integers: x1.0 has no value in the scope" in str(report)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_products_with_packed_weights(bits: int, has_zeros: bool, tmp_path: Path) -> None:
    inner, columns, block = 48, 5, 32
    packed = integers(np.uint8, columns, 2, block * bits // 8)
    zeros = integers(np.uint8, columns * -(-2 * bits // 8)) if has_zeros else None
    inputs = [floats(3, inner), packed, np.abs(floats(columns * 2)), zeros]
    check(tmp_path / "m.onnx", "MatMulNBits", inputs, most=1e-5, K=inner, N=columns, bits=bits, block_size=block)


def test_weights_of_few_bits_train(tmp_path: Path) -> None:
    packed = integers(np.uint8, 5, 1, 8)
    model = model_of("MatMulNBits", [floats(3, 16), packed, np.abs(floats(5))], K=16, N=5, bits=4, block_size=16)
    onnx.save(model, tmp_path / "m.onnx")
    loaded = fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope())
    loaded.program.make_trainable()
    (name,) = [parameter.name for parameter in loaded.program.all_parameters()]
    with fluid.program_guard(loaded.program, fluid.Program()), fluid.scope_guard(loaded.scope):
        loss = fluid.layers.mean(loaded.program.global_block().var("y0"))
        (gradient,) = fluid.gradients(loss, loaded.program.global_block().var(name))
        x = floats(3, 16)
        (value,) = fluid.Executor().run(loaded.program, {"x0": x}, [gradient])
    np.testing.assert_allclose(value, np.repeat(x.sum(0)[:, None] / 15, 5, 1), rtol=1e-5)


LSTM = quantized_lstm(4, 2, 3, 4)
BAD: dict[str, tuple[Any, str]] = {
    "a scale of 0": (
        model_of("QLinearSigmoid", [BYTES, np.float32(0), ZERO, *OUT]),
        "its scale (input 1) holds 0.0; scales should be finite floats above 0",
    ),
    "a scale that is no number": (model_of("QLinearAdd", [*ONE, OTHERS, np.float32(np.nan), ZERO, *OUT]), "input 4) holds nan"),
    "a negative scale": (model_of("MatMulIntegerToFloat", [BYTES, SIGNED, SCALE, np.float32(-1)]), "(input 3) holds -1.0"),
    "a zero point of another type": (
        model_of("QLinearLeakyRelu", [BYTES, SCALE, np.int8(-3), *OUT]),
        "its zero point (input 2) is of INT8; it should be of the type of input 0, UINT8",
    ),
    "parts without scales": (model_of("QLinearConcat", [*OUT, BYTES, SCALE], axis=0, fed=3), "it has 4 inputs"),
    "an activation that is none": (
        model_of("FusedConv", [IMAGE, FILTER], activation="Magic"),
        "its activation 'Magic' should be one of Relu, Tanh",
    ),
    "bits of another number": (
        model_of("MatMulNBits", [floats(3, 16), integers(np.uint8, 5, 1, 6), floats(5)], K=16, N=5, bits=3, block_size=16),
        "its bits, 3, should be 2, 4 or 8",
    ),
    "weights of another shape": (
        model_of("MatMulNBits", [floats(3, 16), integers(np.uint8, 5, 1, 7), floats(5)], K=16, N=5, bits=4, block_size=16),
        "its weights should be uint8 of the shape [5, 1, 8]",
    ),
    "too few scales": (
        model_of("MatMulNBits", [floats(3, 16), integers(np.uint8, 5, 1, 8), floats(4)], K=16, N=5, bits=4, block_size=16),
        "its scales should be 5 numbers",
    ),
    "an axis that is none": (
        model_of("DequantizeLinear", [SIGNED, np.ones(6, np.float32)], fed=0, axis=-(1 << 62)),
        "its axis is -4611686018427387904; integers of 2 dimensions have axes from -2 to 1",
    ),
    "a recurrence without directions": (
        model_of("DynamicQuantizeLSTM", [*LSTM[:1], LSTM[1][0], *LSTM[2:]], hidden_size=4),
        "the shape of its weights (input 1) is [3, 16]; it should be [1, 3, 16]",
    ),
    "a recurrence of another size": (
        model_of("DynamicQuantizeLSTM", LSTM, hidden_size=5),
        "the shape of its weights (input 1) is [1, 3, 16]; it should be [1, 3, 20]",
    ),
    "a recurrence with weights of floats": (
        model_of("DynamicQuantizeLSTM", [*LSTM[:2], floats(1, 4, 16), *LSTM[3:]], hidden_size=4),
        "its weights (input 2) are of FLOAT; they should be of INT8 or UINT8",
    ),
    "a recurrence with too few scales": (
        model_of("DynamicQuantizeLSTM", [*LSTM[:8], np.ones((1, 3), np.float32), *LSTM[9:]], hidden_size=4),
        "the shape of its scale (input 8) is [1, 3]; it should be [1] or [1, 16]",
    ),
    "a recurrence with a scale of 0": (
        model_of("DynamicQuantizeLSTM", [*LSTM[:8], np.zeros(1, np.float32), *LSTM[9:]], hidden_size=4),
        "its scale (input 8) holds 0.0",
    ),
    "a recurrence with a zero point of another type": (
        model_of("DynamicQuantizeLSTM", [*LSTM[:9], np.zeros(1, np.uint8), *LSTM[10:]], hidden_size=4),
        "its zero point (input 9) is of UINT8",
    ),
    "a recurrence of no size": (
        model_of("DynamicQuantizeLSTM", LSTM, hidden_size=0),
        "its hidden_size is 0; it should be",
    ),
    "no heads": (model_of("Attention", [X, QKV, BIAS], num_heads=0), "num_heads"),
    "blocks of nothing": (
        model_of("MatMulNBits", [floats(3, 16), integers(np.uint8, 5, 1, 6), floats(5)], K=16, N=5, bits=4, block_size=0),
        "block_size",
    ),
}


@each("name", list(BAD))
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    model, words = BAD[name]
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(FormatError) as caught:
        fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope())
    assert words in str(caught.value), caught.value
    assert str(caught.value).startswith(f"{tmp_path / 'm.onnx'}: node 0 (com.microsoft.")
