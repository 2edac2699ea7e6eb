"""Every example in a docstring of `fluid.layers` runs and prints what it says, and the most used layers have one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from types import ModuleType

import numpy as np
import pytest

import fluid
from fluid import layers

MOST_USED = """
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
""".split()  # noqa: SIM905


def docstrings(module: ModuleType) -> list[doctest.DocTest]:
    """The docstrings with examples of a module and of its public functions and classes, with what their examples need."""
    public = {name: inspect.unwrap(getattr(module, name)) for name in module.__all__ if callable(getattr(module, name))}
    names = {"fluid": fluid, "layers": layers, "np": np}
    tests = doctest.DocTestFinder(recurse=False, exclude_empty=True).find(module, module.__name__, globs=names)
    for name, value in public.items():
        tests += doctest.DocTestFinder(exclude_empty=True).find(value, name, module, globs=names)
    return [test for test in tests if test.examples]


DOCSTRINGS = {
    info.name: docstrings(importlib.import_module(f"fluid.layers.{info.name}"))
    for info in pkgutil.iter_modules(layers.__path__)
    if info.name != "arguments"
}


def count(tests: list[doctest.DocTest]) -> str:
    return f"{sum(len(test.examples) for test in tests)} examples in {len(tests)} docstrings"


@pytest.mark.parametrize(
    "tests", [pytest.param(tests, id=f"{name}: {count(tests)}") for name, tests in DOCSTRINGS.items() if tests]
)
def test_examples_print_what_they_say(tests: list[doctest.DocTest]) -> None:
    """Each docstring has programs, names and a scope of its own; numbers are printed with four digits."""
    runner = doctest.DocTestRunner(verbose=False)
    report: list[str] = []
    for test in tests:
        with (
            np.printoptions(precision=4, suppress=True),
            fluid.program_guard(fluid.Program(), fluid.Program()),
            fluid.unique_name.guard(),
            fluid.scope_guard(fluid.Scope()),
        ):
            runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)


def test_the_most_used_layers_have_an_example() -> None:
    documented = {test.name for tests in DOCSTRINGS.values() for test in tests}
    everything = [test for tests in DOCSTRINGS.values() for test in tests]
    missing = [name for name in MOST_USED if name not in documented]
    assert not missing, f"fluid.layers has {count(everything)}, but none in {', '.join(missing)}"
