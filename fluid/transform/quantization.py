"""Quantizes models: products and convolutions of integers of 8 bits, with scales measured on data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import ProgramError
from ..executor.executor import Executor
from ..executor.place import CPUPlace
from ..executor.runtime.scope import Scope, global_scope
from ..ir.checked import checked
from ..ir.program import Block, Operator, Program
from ..ir.renaming import redirect_reads
from ..values.types import VarType
from .edit import Edit
from .folding import Uses, fold_batch_norm, only_name

_SLOTS = {
    "conv2d": ("Input", "Filter", "Output"),
    "depthwise_conv2d": ("Input", "Filter", "Output"),
    "mul": ("X", "Y", "Out"),
    "matmul": ("X", "Y", "Out"),
    "matmul_v2": ("X", "Y", "Out"),
    "fc": ("Input", "W", "Out"),
}
"""Op type -> its slots of the data, the weight and the result."""


class QuantizedLayer(NamedTuple):
    """A product or convolution whose data and weight are quantized.

    Attributes:
        out: the name of its result.
        op: the type of the op.
        weight: the name of the weight.
        error: the root mean square of the result's error, divided by the root mean square of the result. All layers before it are
            quantized, too.
    """

    out: str
    op: str
    weight: str
    error: float


@dataclass
class QuantizationReport:
    """The changes of `quantize_model`; it can be printed.

    Attributes:
        program: the quantized program.
        layers: the quantized layers, in order.
        notes: products and convolutions that keep their floats, and why.
    """

    program: Program
    layers: list[QuantizedLayer]
    notes: list[str]

    def __str__(self) -> str:
        lines = [f"{len(self.layers)} layers are quantized"]
        lines += [f"  {layer.error:8.2%}  {layer.out}  ({layer.op}, {layer.weight})" for layer in self.layers]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


Batches = list[dict[str, Any]]


@checked
def quantize_model(
    program: Program,
    calibration: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    scope: Scope | None = None,
    dynamic: bool = False,
    weight_bits: int = 8,
) -> QuantizationReport:
    """Make a copy of an inference program that multiplies integers of 8 bits; the copy is the report's `program`.

    Weights of products and convolutions get a scale for each output, data one scale and zero point. The copy computes with
    `fake_quantize_affine`, so it can be trained (after `make_trainable`) and written for ONNX, as pairs of QuantizeLinear and
    DequantizeLinear. batch_norms become part of the weights before them. The new weights are new variables of the scope.

    >>> x = fluid.data("x", [None, 8])
    >>> y = fluid.layers.fc(x, 3)
    >>> _ = fluid.Executor().run(fluid.default_startup_program())
    >>> report = fluid.quantize_model(fluid.default_main_program(), {"x": np.random.rand(64, 8).astype("float32")})
    >>> [op.type for op in report.program.global_block().ops][-3:]
    ['fake_quantize_affine', 'mul', 'elementwise_add']

    Args:
        program: a program without gradients; one that was loaded, say.
        calibration: typical data to measure scales and errors on: arrays by the names of feeds, or several such batches.
        scope: the scope with the values of the weights; the current one if None.
        dynamic: measure the range of the data anew in each run.
        weight_bits: 8, or 7 for models that onnxruntime is to run on processors without VNNI, such as those with AVX2 alone: it
            adds pairs of products in 16 bits there, which saturate with weights of 8 bits.

    Returns:
        A report, which can be printed.

    Raises:
        ProgramError: there is no data, nothing to quantize, a weight has no value, a value is not finite, or `weight_bits` is
            neither 7 nor 8.
    """
    if weight_bits not in (7, 8):
        raise ProgramError(f"quantize_model: weight_bits is {weight_bits}; weights have 7 or 8 bits")
    scope = scope if scope is not None else global_scope()
    batches = [dict(calibration)] if isinstance(calibration, Mapping) else [dict(batch) for batch in calibration]
    if not batches:
        raise ProgramError("quantize_model: there is no batch of data to measure scales on")
    plain = program.clone(for_test=True)
    fold_batch_norm(plain, scope)
    new = plain.clone(for_test=True)
    root = new.global_block()
    layers, notes = _layers_of(new)
    if not layers:
        why = "; ".join(notes) or ("it is quantized already" if _is_quantized(new) else "nothing is changed")
        raise ProgramError(f"quantize_model: the program has no product or convolution with a weight; {why}")
    names, run = list(dict.fromkeys(data for _, data, _, _ in layers)), _runs_in(scope)
    ranges = {} if dynamic else _ranges(run, plain, names, batches)
    with Edit(new, "quantize_model", scope):
        quantized: dict[str, str] = {}
        for op, data, weight, axis in layers:
            if data not in quantized:
                quantized[data] = _quantize_data(root, op, data, ranges.get(data))
            if weight not in quantized:
                quantized[weight] = _quantize_weight(root, op, weight, axis, scope, weight_bits)
            redirect_reads(op, {data: quantized[data], weight: quantized[weight]})
    outs = [op.outputs[_SLOTS[op.type][2]][0] for op, *_ in layers]
    errors = _errors(run, plain, new, outs, batches)
    rows = [QuantizedLayer(out, op.type, weight, errors[out]) for out, (op, _, weight, _) in zip(outs, layers, strict=True)]
    return QuantizationReport(new, rows, notes)


Layer = tuple[Operator, str, str, int]
"""An op, the names of its data and of its weight, and the axis of the weight along its outputs."""


def _layers_of(program: Program) -> tuple[list[Layer], list[str]]:
    """The layers of block 0 that can be quantized, and notes about the others."""
    root, uses = program.global_block(), Uses(program)
    layers: list[Layer] = []
    notes: list[str] = []
    for op in root.ops:
        if op.type not in _SLOTS:
            continue
        slot, of_weight, _ = _SLOTS[op.type]
        data, weight = only_name(op, slot), only_name(op, of_weight)
        var = root.vars.get(weight)
        if var is None or not var.persistable:
            continue
        is_weight = var.dtype is VarType.FP32 and (var.ndim == 2 or "conv" in op.type)
        if not is_weight or uses.writes[weight] or uses.writes[data] > 1:
            notes.append(f"{op.type} with {weight} keeps its floats; a weight is a matrix or filter of float32 that no op writes")
            continue
        is_turned = op.attrs.get("transpose_Y", False) or op.attrs.get("trans_y", False)
        layers.append((op, data, weight, 0 if "conv" in op.type or is_turned else 1))
    return layers, notes


def _is_quantized(program: Program) -> bool:
    return any(op.type.startswith("fake_quantize") for op in program.global_block().ops)


_Run = Callable[[Program, Mapping[str, Any], list[str]], list[Any]]
"""``run(program, batch, names)``: the values of these names."""


def _runs_in(scope: Scope) -> _Run:
    """A function that runs programs in a scope, all by one executor, which keeps their plans."""
    executor = Executor(CPUPlace())

    def run(program: Program, batch: Mapping[str, Any], names: list[str]) -> list[Any]:
        return list(map(np.asarray, executor.run(program, dict(batch), names, scope=scope)))

    return run


def _ranges(run: _Run, program: Program, names: list[str], batches: Batches) -> dict[str, tuple[float, float]]:
    """The least and the greatest number of each value, 0 included."""
    ranges = dict.fromkeys(names, (0.0, 0.0))
    for batch in batches:
        for name, value in zip(names, run(program, batch, names), strict=True):
            if not np.isfinite(value).all():
                raise ProgramError(f"quantize_model: {name} is not finite for this data, so it has no scale")
            low, high = ranges[name]
            if value.size:
                ranges[name] = min(low, float(value.min())), max(high, float(value.max()))
    return ranges


def _errors(run: _Run, plain: Program, new: Program, outs: list[str], batches: Batches) -> dict[str, float]:
    """The relative error of each result over all batches."""
    sums = {name: np.zeros(2) for name in outs}
    for batch in batches:
        pairs = zip(run(plain, batch, outs), run(new, batch, outs), strict=True)
        for name, (exact, value) in zip(outs, pairs, strict=True):
            wide = exact.astype(np.float64)
            sums[name] += np.square(value - wide).sum(), np.square(wide).sum()
    return {name: float(np.sqrt(off / total)) if total else 0.0 for name, (off, total) in sums.items()}


def _insert(root: Block, op: Operator, op_type: str, inputs: dict[str, str], attrs: dict[str, Any], base: str) -> str:
    """Insert an op before another one; returns the name of its output."""
    out = root.create_var(name=root.fresh_name(base))
    root.insert_op(root.ops.index(op), type=op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out.name


def _numbers(root: Block, op: Operator, values: Any, base: str) -> str:
    """Insert constants before an op; returns their name."""
    attrs = {"shape": [len(values)], "dtype": int(VarType.FP32), "fp32_values": [float(value) for value in values]}
    return _insert(root, op, "assign_value", {}, attrs, base)


def _quantize_data(root: Block, op: Operator, name: str, limits: tuple[float, float] | None) -> str:
    """Quantize the data of an op, by the least and the greatest number, or by the range of each run; returns the name."""
    if limits is None:
        return _insert(root, op, "fake_quantize_by_range", {"X": name}, {}, f"{name}.quantized")
    low, high = limits
    scale = np.float32((high - low) / 255) or np.float32(1)
    inputs = {"X": name, "Scale": _numbers(root, op, [scale], f"{name}.scale")}
    zero = float(np.rint(-low / scale))
    if zero:  # a constant of native code, which pads images with it
        constant = {"shape": [1], "dtype": int(VarType.FP32), "value": zero}
        inputs["ZeroPoint"] = _insert(root, op, "fill_constant", {}, constant, f"{name}.zero_point")
    attrs = {"quant_min": 0, "quant_max": 255}
    return _insert(root, op, "fake_quantize_affine", inputs, attrs, f"{name}.quantized")


def _quantize_weight(root: Block, op: Operator, name: str, axis: int, scope: Scope, bits: int) -> str:
    """Quantize the weight of an op, with a scale for each output; returns the name."""
    array = scope.array(name)
    if array is None:
        raise ProgramError(f"quantize_model: the weight {name} has no value in the scope; run the startup program, or load it")
    magnitude = np.abs(np.asarray(array)).max(tuple(place for place in range(array.ndim) if place != axis))
    if not np.isfinite(magnitude).all():
        raise ProgramError(f"quantize_model: the weight {name} is not finite, so it has no scale")
    scales = magnitude / np.float32(2 ** (bits - 1) - 1)
    scales[scales == 0] = 1
    inputs = {"X": name, "Scale": _numbers(root, op, scales, f"{name}.scales")}
    return _insert(root, op, "fake_quantize_affine", inputs, {"quant_axis": axis, "quant_min": -128}, f"{name}.quantized")
