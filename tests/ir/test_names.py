"""The package has the names of Fluid 1.6, and generates the same names; `test_api_map` covers the other names."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checks import each

import fluid
from fluid import layers, unique_name
from fluid.layers import generate

FLAT = """
BuildStrategy CPUPlace CUDAPinnedPlace CUDAPlace CompiledProgram DataFeeder ExecutionStrategy Executor LoDTensor ParallelExecutor
ParamAttr Parameter Program Scope Tensor Variable WeightNormParamAttr append_backward average backward clip compiler contrib core
cpu_places create_lod_tensor create_random_int_lodtensor cuda_pinned_places cuda_places data data_feeder default_main_program
default_startup_program embedding evaluator executor framework global_scope gradients in_dygraph_mode initializer install_check io
is_compiled_with_cuda layers load load_op_library lod_tensor metrics name_scope nets one_hot optimizer param_attr profiler
program_guard reader regularizer require_version save scope_guard unique_name
""".split()  # noqa: SIM905


@each("name", FLAT)
def test_flat_name(name: str) -> None:
    assert hasattr(fluid, name)
    assert name in fluid.__all__
    assert name in dir(fluid)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'dynamite'"):
        _ = fluid.dynamite


def test_everything_in_all_is_there() -> None:
    for module in (fluid, layers, fluid.optimizer, fluid.initializer, fluid.clip, fluid.regularizer, fluid.nets, fluid.metrics):
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{module.__name__}.{name}"


def test_core_names() -> None:
    assert fluid.core.VarDesc.VarType.FP32 == 5
    assert fluid.core.VarDesc.VarType.LOD_TENSOR == 7
    assert fluid.core.CPUPlace is fluid.CPUPlace
    assert fluid.core.Scope is fluid.Scope
    assert fluid.cpu_places(2) == [fluid.CPUPlace(), fluid.CPUPlace()]


def test_require_version() -> None:
    fluid.require_version("1.6.0")
    with pytest.raises(fluid.FluidError, match=r"'new' is not a version"):
        fluid.require_version("new")


def test_generated_layers_are_current() -> None:
    found = Path(generate.PATH).read_text(encoding="utf-8")
    assert found == generate.render(), "run: python -m fluid.layers.generate"


def test_generated_layers_are_documented() -> None:
    for name in layers.ops.__all__:
        assert inspect.getdoc(getattr(layers, name)), name


def test_import_takes_numpy_alone() -> None:
    """`import fluid` loads only Fluid, numpy and the standard library."""
    code = "import sys, numpy; before = set(sys.modules); import fluid; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    tops = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert tops == {"fluid"}
    assert not {"difflib", "secrets"} & set(loaded)  # for errors, and for ops that call functions


# ------------------------------------------------------------------------------------------------- generated names
def names_of(build: Any) -> list[str]:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), unique_name.guard():
        build()
    return list(main.global_block().vars)


def test_fc_names() -> None:
    def build() -> None:
        x = fluid.data("x", [None, 4])
        layers.fc(layers.fc(x, 3, act="tanh"), 2)

    assert names_of(build) == [
        *("x", "fc_0.w_0", "fc_0.tmp_0", "fc_0.b_0", "fc_0.tmp_1", "fc_0.tmp_2"),
        *("fc_1.w_0", "fc_1.tmp_0", "fc_1.b_0", "fc_1.tmp_1"),
    ]


def test_fc_names_of_several_inputs() -> None:
    def build() -> None:
        layers.fc([fluid.data("x", [None, 4]), fluid.data("y", [None, 5])], 3)

    assert [name for name in names_of(build) if ".w" in name or ".b" in name] == ["fc_0.w_0", "fc_0.w_1", "fc_0.b_0"]


def test_named_layer() -> None:
    def build() -> None:
        layers.fc(fluid.data("x", [None, 4]), 3, name="top")

    assert names_of(build) == ["x", "top.w_0", "top.tmp_0", "top.b_0", "top.tmp_1"]


def test_conv_and_batch_norm_names() -> None:
    def build() -> None:
        x = fluid.data("x", [None, 3, 8, 8])
        layers.batch_norm(layers.conv2d(x, 4, 3, bias_attr=False), act="relu")

    found = names_of(build)
    assert [name for name in found if name.startswith("conv2d")] == ["conv2d_0.w_0", "conv2d_0.tmp_0"]
    assert [name for name in found if "tmp" not in name and name.startswith("batch")] == [
        *("batch_norm_0.w_0", "batch_norm_0.b_0", "batch_norm_0.w_1", "batch_norm_0.w_2")
    ]


def test_optimizer_names() -> None:
    def build() -> None:
        x = fluid.data("x", [None, 4])
        loss = layers.mean(layers.fc(x, 1))
        fluid.optimizer.Adam(0.1).minimize(loss)

    found = [name for name in names_of(build) if "moment" in name or "pow" in name or "learning" in name]
    assert found == ["learning_rate_0"] + [
        f"fc_0.{param}_0_{name}_0" for param in "bw" for name in ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")
    ]


def test_layer_names_of_one_op() -> None:
    def build() -> None:
        x = fluid.data("x", [2, 3])
        layers.relu(layers.reshape(x, [3, 2]))
        layers.mean(layers.transpose(x, [1, 0]))

    assert [name for name in names_of(build) if name != "x"] == [
        *("reshape2_0.tmp_0", "reshape2_0.tmp_1", "relu_0.tmp_0", "transpose_0.tmp_0", "transpose_0.tmp_1", "mean_0.tmp_0")
    ]
