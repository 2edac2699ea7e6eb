"""``hasattr``, which libraries ask of any object, gets an answer of every object of Fluid; it never raises an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluid
import fluid.numpy as xp
from fluid import dygraph, layers
from fluid.errors import MissingAttributeError
from fluid.ir.program import Program, program_guard

FOREIGN_ATTRIBUTES = [
    "T", "mT", "H", "__array_interface__", "__cuda_array_interface__", "__array_struct__", "__dlpack__", "__jax_array__",
    "__torch_function__", "__array_namespace__", "__length_hint__", "__fspath__", "_repr_html_", "_ipython_display_", "columns",
]  # fmt: skip


def _tensors() -> list[Any]:
    tensors: list[Any] = [dygraph.to_variable(np.ones(2)).astype("bfloat16")]
    for dtype in ("float32", "float16", "int64", "bool", "complex64"):
        for shape in ((), (1,), (3,), (2, 3), (0,), (2, 2, 2)):
            tensors += [dygraph.to_variable(np.ones(shape, dtype)), xp.ones(shape, dtype=dtype)]
    leaf = dygraph.to_variable(np.ones(2))
    leaf.stop_gradient = False
    return [*tensors, leaf, leaf * 2, dygraph.Linear(2, 2).weight, dygraph.Linear(2, 2)]


def _of_programs() -> list[Any]:
    x = fluid.data("x", [None, 3])
    y = layers.fc(x, 2)
    program = fluid.default_main_program()
    return [
        x, layers.reduce_sum(y), xp.asarray(y), fluid.data("rows", [-1], "int64", lod_level=1), layers.create_array("float32"),
        program, program.global_block(), program.all_parameters()[0], y.op, fluid.global_scope(), fluid.Executor(),
        fluid.CompiledProgram(program), fluid.optimizer.Adam(0.1), fluid.create_lod_tensor(np.ones((3, 1)), [[1, 2]], None),
    ]  # fmt: skip


def test_hasattr_raises_nothing() -> None:
    with dygraph.guard(fluid.CPUPlace()):
        objects = _tensors()
    with program_guard(Program(), Program()), fluid.unique_name.guard():
        objects += _of_programs()
        for item in objects:
            for name in {*dir(item), *FOREIGN_ATTRIBUTES}:
                hasattr(item, name)


def test_transposes_are_of_matrices() -> None:
    for shape in ((), (3,), (2, 2, 2)):
        assert not hasattr(xp.ones(shape), "T") and hasattr(xp.ones(shape), "mT") == (len(shape) > 1)
        with pytest.raises(MissingAttributeError, match=r"T of float32\[.*only a matrix has it; use mT, or permute_dims"):
            _ = xp.ones(shape).T
    assert xp.ones((2, 3)).T.shape == xp.ones((2, 3)).mT.shape == (3, 2)
    with pytest.raises(MissingAttributeError, match=r"mT of float32\[3\]: it needs two dimensions at least"):
        _ = xp.ones(3).mT
    with pytest.raises(MissingAttributeError, match="has no attribute 'unsqeeze'; did you mean unsqueeze"):
        _ = xp.ones(3).unsqeeze  # codespell:ignore
