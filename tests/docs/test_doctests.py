"""The examples in docstrings run and print the shown output; the most used names have examples.

Each docstring has programs, names, a scope and a folder of its own; numbers are printed with four digits.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from checks import each, fresh_programs
from paths import ROOT

import fluid
from fluid import dygraph, io, layers

NAMES = {"fluid": fluid, "layers": layers, "dygraph": dygraph, "np": np, "os": os}
NEED_ONNX = ("fluid.onnx.table",)
NEED_LLVMLITE = ("fluid.ahead.library", "fluid.ahead.state")


def modules() -> Iterator[ModuleType]:
    """The modules whose text has an example."""
    left_out = NEED_ONNX if find_spec("llvmlite") else NEED_ONNX + NEED_LLVMLITE
    for folder, package in ((ROOT / "fluid", "fluid"), (ROOT / "executor", "fluid.executor")):
        for path in sorted(folder.rglob("*.py")):
            name = ".".join((package, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
            if " >>> " in path.read_text(encoding="utf-8") and name not in left_out:
                yield importlib.import_module(name)


def examples() -> Iterator[doctest.DocTest]:
    """The docstrings with examples of modules, and of the functions and classes that stand in them."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    for module in modules():
        yield from doctest.DocTestFinder(recurse=False).find(module, module.__name__, globs=NAMES)
        for name, value in vars(module).items():
            here = getattr(value, "__module__", None) == module.__name__ and getattr(value, "__name__", None) == name
            if here and callable(value):  # not a ParamSpec, whose docstring is Python's
                yield from finder.find(inspect.unwrap(value), f"{module.__name__}.{name}", module=False, globs=NAMES)


EXAMPLES = {test.name: test for test in examples() if test.examples}


@each("name", EXAMPLES)
def test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report: list[str] = []
    with np.printoptions(precision=4, suppress=True), fresh_programs():
        results = doctest.DocTestRunner(verbose=False).run(EXAMPLES[name], out=report.append)
    assert results.attempted and not results.failed, "".join(report)


MOST_USED = {
    io: """
batch buffered cache chain compose firstn get_parameter_value load load_inference_model load_persistables load_program_state
map_readers save save_inference_model save_persistables set_program_state shuffle xmap_readers
""",
    fluid.optimizer: """
Adagrad Adam ExponentialMovingAverage Lamb LookaheadOptimizer ModelAverage Momentum RecomputeOptimizer RMSProp SGD
""",
    dygraph: """
BatchNorm Conv2D Embedding FC Layer LayerList LayerNorm Linear Pool2D Sequential grad guard load_dygraph no_grad save_dygraph
to_variable
""",
    layers: """
accuracy adaptive_pool2d argmax argmin argsort array_length array_read array_write assign auc autoincreased_step_counter
batch_norm beam_search BeamSearchDecoder case cast Categorical clip clip_by_norm concat cond conv2d conv2d_transpose conv3d
cosine_decay create_array create_global_var create_parameter create_tensor crf_decoding crop_tensor cross_entropy
ctc_greedy_decoder data dropout dynamic_gru dynamic_lstm DynamicRNN edit_distance embedding expand exponential_decay eye fc
fill_constant fill_constant_batch_size_like flatten gather gaussian_random group_norm gru_unit GRUCell hsigmoid huber_loss IfElse
image_resize increment instance_norm inverse_time_decay is_empty l2_normalize layer_norm linear_chain_crf linear_lr_warmup
linspace lod_reset lstm lstm_unit LSTMCell matmul mean mse_loss mul natural_exp_decay nce noam_decay Normal one_hot ones ones_like
pad2d piecewise_decay pixel_shuffle polynomial_decay pool2d pow prelu Print py_func py_reader range rank reshape resize_bilinear
resize_nearest reverse rnn roi_align row_conv scale scatter_nd sequence_concat sequence_conv sequence_expand sequence_expand_as
sequence_first_step sequence_last_step sequence_mask sequence_pad sequence_pool sequence_reshape sequence_reverse sequence_slice
sequence_softmax sequence_unpad shape sigmoid_cross_entropy_with_logits slice softmax softmax_with_cross_entropy split
square_error_cost squeeze stack StaticRNN strided_slice sum sums Switch switch_case tensor_array_to_tensor topk transpose unfold
Uniform uniform_random unsqueeze unstack warpctc While while_loop zeros zeros_like
""",
}


@pytest.mark.parametrize("module", MOST_USED)
def test_what_is_used_most_has_an_example(module: ModuleType) -> None:
    used = {name: inspect.unwrap(getattr(module, name)) for name in MOST_USED[module].split()}
    missing = [name for name, value in used.items() if f"{value.__module__}.{value.__name__}" not in EXAMPLES]
    assert not missing, f"none of the {len(EXAMPLES)} docstrings with examples is that of {', '.join(missing)}"
