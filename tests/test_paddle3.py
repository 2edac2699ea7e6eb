"""Models that Paddle 3.0 to 3.3 wrote: what Fluid reads of them, and that it computes what they did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.executor import Scope, scope_guard

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
