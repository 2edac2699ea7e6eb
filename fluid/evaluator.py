"""Metrics over many batches with sums in the program itself. `fluid.metrics` computes the same on the host."""

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
from .not_here import names_here
from .values.types import DTypeLike, as_dtype

__all__ = ["ChunkEvaluator", "DetectionMAP", "EditDistance", "Evaluator"]

__dir__ = names_here(__name__)


class Evaluator:
    """Sums over batches in persistable variables; each run adds to them.

    Args:
        name: the start of the sums' names.

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
        """Set the sums in the current scope to 0, at the place of `executor`; `reset_program` has no effect."""
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
    """Precision, recall and F1 of chunks over many batches.

    Args:
        input, label, chunk_scheme, num_chunk_types, excluded_chunk_types: see `layers.chunk_eval`.

    >>> tags, labels = (fluid.data(name, [None, 1], "int64", lod_level=1) for name in ("tags", "labels"))
    >>> evaluator = fluid.evaluator.ChunkEvaluator(tags, labels, "IOB", num_chunk_types=2)
    >>> exe = fluid.Executor()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> batch = fluid.create_lod_tensor([[0, 1, 4, 2]], [[4]], fluid.CPUPlace())
    >>> _ = exe.run(feed={"tags": batch, "labels": batch}, fetch_list=evaluator.metrics)
    >>> evaluator.eval(exe)
    array([1., 1., 1.], dtype=float32)
    """

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
        """Precision, recall and F1 since the last `reset`, as an array ``[3]``.

        Args:
            executor, eval_program: accepted as in Fluid; the sums are read from the current scope.
        """
        metric = metrics.ChunkEvaluator()
        metric.update(*self._sums())
        return np.array(metric.eval(), np.float32)


class EditDistance(Evaluator):
    """The mean edit distance of sequences, and the share of different ones, over many batches.

    Args:
        input, label, ignored_tokens: see `layers.edit_distance`.
        kwargs: further arguments of `layers.edit_distance`.

    >>> found, labels = (fluid.data(name, [None, 1], "int64", lod_level=1) for name in ("found", "labels"))
    >>> evaluator = fluid.evaluator.EditDistance(found, labels, normalized=False)
    >>> exe = fluid.Executor()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> words = [fluid.create_lod_tensor([row], [[len(row)]], fluid.CPUPlace()) for row in ([1, 2, 3], [1, 3])]
    >>> _ = exe.run(feed={"found": words[0], "labels": words[1]}, fetch_list=evaluator.metrics)
    >>> evaluator.eval(exe)
    (array([1.], dtype=float32), array([1.], dtype=float32))
    """

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
        """Mean distance, and share of sequences with a distance above 0, since the last `reset`, as arrays ``[1]``.

        Args:
            executor, eval_program: accepted as in Fluid; the sums are read from the current scope.

        Raises:
            ProgramError: no sequence has been counted.
        """
        total, count, wrong = self._sums()
        if not count:
            raise ProgramError("EditDistance.eval: no sequence has been counted yet; run the program first")
        return np.array([total / count], np.float32), np.array([wrong / count], np.float32)
