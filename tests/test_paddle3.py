"""Models that Paddle 3.0 to 3.3 wrote: what Fluid reads of them, and that it computes what they did."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.executor import Scope, scope_guard
from fluid.formats.pir.data import Attribute, PirBlock, PirOp, PirProgram, Type, Value
from fluid.formats.pir.json_writing import serialize_pir

FOLDER = Path(__file__).parent / "golden" / "paddle3"
TRAINING = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.glob("**/*.pdopt"))
INFERENCE = sorted({str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.glob("**/*.json")} - {*TRAINING})


def arrays_of(name: str, side: str) -> list[Any]:
    """What a golden model was fed (``in``), or computed (``out``), by position."""
    with np.load(FOLDER / f"{name}.npz") as arrays:
        return [arrays[key] for key in sorted(arrays.files) if key.startswith(side)]


def feed_of(model: fluid.Model, name: str) -> dict[str, Any]:
    return dict(zip(model.feeds, arrays_of(name, "in"), strict=False))


def losses(model: fluid.Model, name: str, steps: int = 3) -> list[float]:
    """The losses of some steps of a training program: what its first gradient op starts from."""
    ops = model.program.global_block().ops
    first = next(op for op in ops if op.type.endswith("_grad"))
    (loss,) = next(op for op in ops if op.type == first.type.removesuffix("_grad") and op.input("X") == first.input("X")).output(
        "Out"
    )
    executor = fluid.Executor()
    return [executor.run(model.program, feed_of(model, name), [loss])[0].item() for _ in range(steps)]


def test_there_are_files_of_each_version() -> None:
    assert len(INFERENCE) >= 12 and len(TRAINING) >= 5, (INFERENCE, TRAINING)


@pytest.mark.parametrize("name", INFERENCE)
def test_inference_models_have_their_numbers(name: str) -> None:
    model = fluid.load_model(FOLDER / f"{name}.json", scope=Scope())
    assert (model.format, model.missing) == ("pir", [])
    assert not model.program.unsupported_ops()
    model.program.verify()
    with scope_guard(model.scope):
        outputs = fluid.Executor().run(model.program, feed_of(model, name), model.fetches)
    wanted = arrays_of(name, "out")
    assert len(outputs) == len(wanted)
    for output, want in zip(outputs, wanted, strict=True):
        assert (output.dtype, output.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(output, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", TRAINING)
def test_training_programs_have_their_losses(name: str) -> None:
    model = fluid.load_model(FOLDER / f"{name}.json", scope=Scope())
    assert model.missing == []
    with scope_guard(model.scope):
        np.testing.assert_allclose(losses(model, name), np.ravel(arrays_of(name, "out")[0]), rtol=1e-5)


def looped_gradient() -> PirProgram:
    """``y = tanh(tanh(tanh(x)))`` by a loop, and the gradient of its sum by another, which pops what the first one pushed.

    Paddle 3.0 to 3.3 make such programs, and abort when they should write them.
    """
    floats, count, one = Type("dtensor", "f32", (2, 3)), Type("dtensor", "i64", (1,)), Type("dtensor", "bool", (1,))
    numbers = itertools.count(1)

    def value(type_: Type) -> Value:
        return Value(next(numbers), type_)

    def op(kind: str, operands: list[Value | None], *types: Type, **attrs: Attribute) -> PirOp:
        ops.append(PirOp(kind, operands, [value(type_) for type_ in types], attrs))
        return ops[-1]

    def full(number: float, type_: Type, dtype: str) -> Value:
        shape = Attribute("intarray", list(type_.shape))
        described = {"shape": shape, "value": Attribute("f64", number), "dtype": Attribute("dtype", dtype)}
        return op("pd_op.full", [], type_, **described).results[0]

    root = PirBlock()
    ops = root.ops
    (x,) = op("pd_op.data", [], floats, name=Attribute("str", "x")).results
    stack, inlet, outlet = op("cf.stack_create", [], Type("stack"), Type("inlet"), Type("outlet")).results
    start, end, step = (full(number, count, "int64") for number in (0.0, 3.0, 1.0))
    (go,) = op("pd_op.less_than", [start, end], one).results
    body = PirBlock([Value(-1, count), Value(-2, floats)])
    ops = body.ops
    (y,) = op("pd_op.tanh", [body.args[1]], floats).results
    (i,) = op("pd_op.add", [body.args[0], step], count).results
    (more,) = op("pd_op.less_than", [i, end], one).results
    op("cf.tuple_push", [inlet, y])
    op("cf.yield", [more, i, y])
    ops = root.ops
    loop = op("pd_op.while", [go, start, x], count, floats)
    loop.regions = [body]
    cotangent = full(1.0, floats, "float32")
    (left,) = op("cf.has_elements", [stack], one).results
    back = PirBlock([Value(-3, floats)])
    ops = back.ops
    (kept,) = op("cf.tuple_pop", [outlet], floats).results
    (gradient,) = op("pd_op.tanh_grad", [kept, back.args[0]], floats).results
    (more,) = op("cf.has_elements", [stack], one).results
    op("cf.yield", [more, gradient])
    ops = root.ops
    reverse = op("pd_op.while", [left, cotangent], floats)
    reverse.regions = [back]
    for column, result in enumerate((loop.results[1], reverse.results[0])):
        op("pd_op.fetch", [result], floats, col=Attribute("i32", column))
    return PirProgram(root)


def test_stacks_hand_values_from_a_loop_to_its_gradient(tmp_path: Path) -> None:
    (tmp_path / "looped.json").write_bytes(serialize_pir(looped_gradient()))
    model = fluid.load_model(tmp_path / "looped.json", scope=Scope())
    x = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    y, gradient = fluid.Executor().run(model.program, {"x": x}, model.fetches)
    want, slope = x, np.ones_like(x)
    for _ in range(3):
        want = np.tanh(want)
        slope = slope * (1 - want * want)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    np.testing.assert_allclose(gradient, slope, rtol=1e-5)
