"""Run ONNX models for the tests: by onnxruntime, or by onnx's reference evaluator for element types that onnxruntime lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from fluid.ir.program import Program
from fluid.onnx.writing import contents_of, signature_of
from fluid.onnx.writing.program import LENGTHS
from fluid.onnx.writing.serializing import Contents, chunks_of

__all__ = ["bytes_of", "lengths_of", "run_bytes", "run_program", "session_of"]

_LACKS = ("NOT_IMPLEMENTED", "NotImplemented", "Could not find an implementation", "Type Error", "in a node with type")
"""What onnxruntime says where it has no kernel for an element type."""


def bytes_of(contents: Contents) -> bytes:
    """A model as bytes, which onnx's full check accepts."""
    data = b"".join(bytes(chunk) for chunk in chunks_of(contents, {}))
    onnx.checker.check_model(data, full_check=True)
    return data


def session_of(model: bytes | str) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_bytes(data: bytes, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of a model, in order."""
    names = {info.name for info in onnx.load_model_from_string(data).graph.input}
    feeds = {name: value for name, value in feeds.items() if name in names}
    try:
        return session_of(data).run(None, feeds)  # type: ignore[no-any-return]
    except Exception as error:
        if not any(part in f"{type(error).__name__} {error}" for part in _LACKS):
            raise
    return ReferenceEvaluator(onnx.load_model_from_string(data)).run(None, feeds)  # type: ignore[no-any-return]


def lengths_of(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an executor's feeds to a model's: ``(array, offsets)`` becomes the array, and its lengths as another input."""
    model_feeds: dict[str, Any] = {}
    for name, value in feeds.items():
        if isinstance(value, tuple):
            model_feeds[name], offsets = np.asarray(value[0]), value[1]
            model_feeds[name + LENGTHS] = np.diff(np.array(offsets[-1], "int64"))
        else:
            model_feeds[name] = np.asarray(value)
    return model_feeds


def run_program(
    program: Program,
    feeds: Mapping[str, Any],
    fetches: Sequence[str],
    value_of: Callable[[str], Any] = lambda name: None,
    opset: int = 18,
) -> list[Any]:
    """Run a program as a model whose parameters are constants."""
    signature = signature_of(program, list(feeds), list(fetches), with_state=False)
    results = run_bytes(bytes_of(contents_of(program, signature, value_of, opset)), lengths_of(feeds))
    return results[: len(fetches)]
