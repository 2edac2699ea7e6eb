"""The test cases that come with the package onnx, run by Fluid."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import fluid
from fluid.errors import FormatError
from fluid.values.bfloat16 import BFLOAT16, converted

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
IN_FILES = KINDS[1:]
"""Kinds of cases that lie in files; those of single nodes are made by onnx, all of them, in seconds."""
MOST_CONSTANT = 64
STRING = onnx.TensorProto.STRING


@cache
def all_cases(kinds: tuple[str, ...] = KINDS) -> dict[str, Any]:
    """The cases of domain ai.onnx that hold no strings, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case for kind in kinds for case in load_model_tests(kind=kind)]
    return {case.name: case for case in cases if _counts(model_of(case))}


def model_of(case: Any) -> Any:
    return case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")


def _counts(model: Any) -> bool:
    domains = {node.domain for node in model.graph.node} | {opset.domain for opset in model.opset_import}
    infos = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    return domains <= {"", "ai.onnx"} and not any(f"elem_type: {STRING}\n" in str(info) for info in infos)


def data_sets(case: Any, model: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """The inputs and outputs of a case, as arrays, lists of them, and None."""
    if case.data_sets is not None:
        for inputs, outputs in case.data_sets:
            yield [_value(value) for value in inputs], [_value(value) for value in outputs]
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        yield _read(folder, "input", model.graph.input), _read(folder, "output", model.graph.output)


def _read(folder: Path, kind: str, infos: Any) -> list[Any]:
    values = []
    for number, info in enumerate(infos):
        file = folder / f"{kind}_{number}.pb"
        if not file.exists():
            break
        data = file.read_bytes()
        type_case = info.type.WhichOneof("value")
        if type_case == "sequence_type":
            values.append(numpy_helper.to_list(onnx.SequenceProto.FromString(data)))
        elif type_case == "optional_type":
            values.append(numpy_helper.to_optional(onnx.OptionalProto.FromString(data)))
        else:
            values.append(numpy_helper.to_array(onnx.TensorProto.FromString(data)))
    return values


def _value(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return [_value(item) for item in value] if isinstance(value, (list, tuple)) else value


def load(path: Path, model: Any, inputs: list[Any]) -> Any:
    """Load the model of a case into a new scope.

    In many cases, axes, shapes or sizes, which decide the rank of a value, are inputs, where models have constants; these inputs
    are loaded as constants.
    """
    onnx.save(model, path)
    names = [info.name for info in model.graph.input]
    values = dict(zip(names, inputs, strict=False))
    absent = {name: None for name, value in values.items() if value is None}
    try:
        return fluid.load_model(path, scope=fluid.Scope(), constants=absent)
    except FormatError as error:
        if "known" not in str(error):
            raise
    for kinds in ("iu", "iuf"):
        small = {name: value for name, value in values.items() if _is_small(value, kinds)}
        try:
            return fluid.load_model(path, scope=fluid.Scope(), constants=absent | small)
        except FormatError as error:
            last = error
    raise last


def _is_small(value: Any, kinds: str) -> bool:
    if not isinstance(value, (np.ndarray, np.generic)) or value.ndim > 1 or value.size > MOST_CONSTANT:
        return False
    return value.ndim == 0 or value.dtype.kind in kinds


def feed_of(model: Any, loaded: Any, inputs: list[Any]) -> dict[str, Any]:
    """The feed: the inputs that are no constants, in Fluid's element types."""
    root = loaded.program.global_block()
    names = [info.name for info in model.graph.input]
    pairs = zip(names, inputs, strict=False)
    return {name: _as_held(value, root.var(name).dtype.array_dtype) for name, value in pairs if name in loaded.feeds}


def _as_held(value: Any, dtype: Any) -> Any:
    if isinstance(value, list):
        return [_as_held(item, dtype) for item in value]
    return converted(np.asarray(value).astype(np.float32), dtype) if dtype == BFLOAT16 else np.asarray(value).astype(dtype)


def check_same(actual: Any, expected: Any, rtol: float, atol: float) -> None:
    """Compare shapes, element types (where Fluid has them) and, within the tolerances of a case, numbers."""
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for actual_item, expected_item in zip(actual, expected, strict=True):
            check_same(actual_item, expected_item, rtol, atol)
        return
    expected = np.asarray(expected)
    actual = np.asarray(actual)
    assert actual.shape == expected.shape
    if expected.dtype.name == "bfloat16":  # as float16, a softmax on top
        rtol = max(rtol, 2.0**-6)
    if expected.dtype == np.float16:  # whose products of matrices are rounded once here, by steps there
        rtol = max(rtol, 2.0**-9)
    if expected.dtype.isbuiltin != 1:  # a type that numpy lacks
        expected = expected.astype(np.float32)
    elif expected.dtype.name not in ("uint16", "uint32"):
        assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual.astype(expected.dtype), expected, rtol=rtol, atol=atol)


def run(case: Any, path: Path) -> None:
    """Run a case; raises an error if it fails."""
    model = model_of(case)
    for inputs, outputs in data_sets(case, model):
        loaded = load(path, model, inputs)
        feed = feed_of(model, loaded, inputs)
        results = fluid.Executor().run(loaded.program, feed=feed, fetch_list=loaded.fetches, scope=loaded.scope)
        assert len(results) == len(outputs)
        for actual, expected in zip(results, outputs, strict=True):
            check_same(actual, expected, case.rtol, case.atol)
