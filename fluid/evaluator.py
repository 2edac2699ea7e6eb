"""Metrics over many batches whose sums the program itself keeps. `fluid.metrics` computes the same on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import layers, metrics, unique_name
from .building.layer_helper import LayerHelper
from .errors import ProgramError
from .executor import global_scope
from .initializer import Constant
from .ir.program import Program, Variable
from .metrics import DetectionMAP
from .values.types import DTypeLike, as_dtype

__all__ = ["ChunkEvaluator", "DetectionMAP", "EditDistance", "Evaluator"]


class Evaluator:
    """Sums over batches, in persistable variables to which each run adds.

    Attributes:
        metrics: the metrics of the current batch, as variables to be fetched.
        states: the sums, as variables.
    """

    def __init__(self, name: str) -> None:
        self.helper = LayerHelper(name)
        self.metrics: list[Variable] = []
        self.states: list[Variable] = []

    def _add(self, suffix: str, value: Variable, dtype: DTypeLike) -> Variable:
        """Append ops that add `value`, of one element, to a sum; returns the sum's variable."""
        name = f"{self.helper.name}.{unique_name.generate(suffix)}"
        state = self.helper.create_global_variable(True, name=name, dtype=dtype, shape=[1])
        self.helper.set_variable_initializer(state, Constant(0.0))
        part = layers.reshape(layers.cast(value, dtype), [1])
        layers.sums([state, part], out=state)
        state.stop_gradient = True
        self.states.append(state)
        return state

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Set the sums in the current scope to 0. `reset_program` is accepted as in Fluid, without effect."""
        for state in self.states:
            tensor = global_scope().var(state.name).get_tensor()
            tensor.set(np.zeros([1], as_dtype(state.dtype).numpy), executor.place)

    def _sums(self) -> list[float]:
        sums = []
        for state in self.states:
            var = global_scope().find_var(state.name)
            if var is None or var.get_tensor().array is None:
                raise ProgramError(f"{self.helper.layer_type}: {state.name} has no value; run the startup program, or reset() it")
            sums.append(float(np.asarray(var.get_tensor()).item()))
        return sums


class ChunkEvaluator(Evaluator):
    """Precision, recall and F1 of chunks over many batches; arguments as of `layers.chunk_eval`."""

    def __init__(
        self,
        input: Variable,
        label: Variable,
        chunk_scheme: str,
        num_chunk_types: int,
        excluded_chunk_types: Sequence[int] | None = None,
    ) -> None:
        super().__init__("chunk_eval")
        precision, recall, f1, inferred, labelled, correct = layers.chunk_eval(
            input, label, chunk_scheme, num_chunk_types, excluded_chunk_types
        )
        for name, value in (("num_infer_chunks", inferred), ("num_label_chunks", labelled), ("num_correct_chunks", correct)):
            self._add(name, value, "int64")
        self.metrics += [precision, recall, f1]

    def eval(self, executor: Any, eval_program: Program | None = None) -> Any:
        """Precision, recall and F1 since the last `reset`, as an array ``[3]``."""
        metric = metrics.ChunkEvaluator()
        metric.update(*self._sums())
        return np.array(metric.eval(), np.float32)


class EditDistance(Evaluator):
    """The mean edit distance of sequences, and the share of those that differ, over many batches."""

    def __init__(self, input: Variable, label: Variable, ignored_tokens: Sequence[int] | None = None, **kwargs: Any) -> None:
        super().__init__("edit_distance")
        distances, count = layers.edit_distance(input, label, ignored_tokens=ignored_tokens, **kwargs)
        total = layers.reduce_sum(distances)
        differ = layers.greater_than(distances, layers.zeros_like(distances))
        wrong = layers.reduce_sum(layers.cast(differ, "int64"))
        self._add("total_distance", total, "float32")
        self._add("seq_num", count, "int64")
        self._add("instance_error", wrong, "int64")
        self.metrics += [layers.mean(distances), wrong]

    def eval(self, executor: Any, eval_program: Program | None = None) -> tuple[Any, Any]:
        """Mean distance, and share of sequences with a distance above 0, since the last `reset`, as arrays ``[1]``."""
        total, count, wrong = self._sums()
        if not count:
            raise ProgramError("EditDistance.eval: no sequence has been counted yet; run the program first")
        return np.array([total / count], np.float32), np.array([wrong / count], np.float32)
