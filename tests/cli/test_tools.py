"""Tools around programs: the profiler, the check of an installation, versions, older ways to run, `contrib`."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers, profiler
from fluid.errors import ExecutionError, FluidTypeError, ProgramError
from fluid.executor.runtime import timing
from fluid.incubate.fleet.collective import DistributedStrategy


def rows(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()[1:]}


# -------------------------------------------------------------------------------------------------------------- profiler
@pytest.mark.numpy_alone
def test_profiler_counts_calls_and_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = fluid.data("x", [None, 2])
    out = layers.exp(layers.tanh(layers.tanh(x)))
    executor, feed = fluid.Executor(), {"x": np.ones((2, 2), "float32")}
    plain = executor.run(feed=feed, fetch_list=[out])
    path = tmp_path / "profile"
    with profiler.profiler("All", "calls", str(path)):
        for _ in range(3):
            assert np.array_equal(executor.run(feed=feed, fetch_list=[out]), plain)
    text = capsys.readouterr().out
    assert text == path.read_text()
    assert text.splitlines()[0].split() == ["op", "calls", "total", "ms", "min", "ms", "max", "ms", "ave", "ms", "ratio"]
    found = rows(text)
    assert list(found) == ["tanh", "exp"] and [row[0] for row in found.values()] == ["6", "3"]
    for row in found.values():
        total, least, most, mean = map(float, row[1:5])
        assert 0 < total and least <= mean <= most <= total
    assert sum(float(row[5]) for row in found.values()) == pytest.approx(1, abs=1e-3)
    executor.run(feed=feed, fetch_list=[out])
    assert timing.current is None


def test_profiler_of_sequences_and_of_loops(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    out = layers.cast(words, "float32")
    counter, limit = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    going = layers.less_than(counter, limit)
    loop = layers.While(going)
    with loop.block():
        layers.increment(counter)
        layers.less_than(counter, limit, cond=going)
    profiler.start_profiler("CPU")
    feed = fluid.DataFeeder([words], fluid.CPUPlace()).feed([([1, 2],), ([3],)])
    fluid.Executor().run(feed=feed, fetch_list=[out])
    profiler.reset_profiler()
    fluid.Executor().run(feed=feed, fetch_list=[out, counter])
    profiler.stop_profiler("default", str(tmp_path / "profile"))
    found = rows(capsys.readouterr().out)
    assert found["cast"][0] == "1" and found["while"][0] == "1" and found["fill_constant"][0] == "2"


def test_errors_of_the_profiler() -> None:
    with pytest.raises(ProgramError, match="state should be one of CPU, GPU, All, not 'cpu'"):
        profiler.start_profiler("cpu")
    with pytest.raises(ProgramError, match="sorted_key should be None or one of calls, total, max, min, ave, not 'name'"):
        profiler.stop_profiler("name")
    with pytest.raises(ProgramError, match="sorted_key"), profiler.profiler("CPU", "name"):
        pass
    assert timing.current is None
    profiler.reset_profiler()
    profiler.stop_profiler()  # nothing was started


@pytest.mark.skipif(fluid.is_compiled_with_cuda(), reason="there is a CUDA device")
def test_cuda_profiler_without_cuda() -> None:
    with (
        pytest.raises(ExecutionError, match=r"there is no CUDA device here; use fluid.profiler.profiler"),
        profiler.cuda_profiler("x"),
    ):
        pass


# --------------------------------------------------------------------------------------------------------- installation
def test_run_check(capsys: pytest.CaptureFixture[str]) -> None:
    before = len(fluid.default_main_program().global_block().ops), fluid.unique_name.generate("fc")
    fluid.install_check.run_check()
    assert capsys.readouterr().out.startswith("Fluid works: a small program was trained on C")
    assert (len(fluid.default_main_program().global_block().ops), fluid.unique_name.generate("fc")) == (before[0], "fc_1")
    assert fluid.global_scope().local_var_names() == []


def test_run_check_says_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fluid.Executor, "run", lambda *args, **kwargs: [np.array([1.0])])
    with pytest.raises(ExecutionError, match=r"training a small program took its loss from 1.0 to 1.0"):
        fluid.install_check.run_check()


def test_machines_and_versions() -> None:
    framework = fluid.framework
    assert framework.cpu_places() == [fluid.CPUPlace()] and len(framework.cuda_pinned_places(2)) == 2
    assert framework.cuda_places([0, 1]) == [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    assert framework.is_compiled_with_cuda() == fluid.core.is_compiled_with_cuda()
    with pytest.raises(ProgramError, match=r"load_op_library\('x.so'\): ops compiled for Paddle cannot run"):
        framework.load_op_library("x.so")


# ---------------------------------------------------------------------------------------------------- older ways to run
def test_parallel_executor() -> None:
    x = fluid.data("x", [None, 2])
    loss = layers.mean(layers.fc(x, 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.Executor().run(fluid.default_startup_program())
    feed = {"x": np.ones((3, 2), "float32")}
    main = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name, exec_strategy=fluid.ExecutionStrategy())
    first, second = main.run([loss.name], feed=feed)[0], main.run([loss], feed_dict=feed)[0]
    assert main.device_count == 1 and second < first
    main.drop_local_exe_scopes()
    other = fluid.ParallelExecutor(False, main_program=fluid.default_main_program(), scope=fluid.Scope(), share_vars_from=main)
    with pytest.raises(ExecutionError, match="run the startup program"):
        other.run([loss], feed)
    with pytest.raises(ProgramError, match="programs run in one process here, not in 2"):
        fluid.ParallelExecutor(False, num_trainers=2)


_WITHOUT_EFFECT: dict[Any, str] = {
    fluid.ExecutionStrategy: "allow_op_delay num_iteration_per_drop_scope num_threads use_cuda use_experimental_executor "
    "use_thread_barrier",
    fluid.BuildStrategy: "cache_runtime_context enable_backward_optimizer_op_deps enable_inplace enable_parallel_graph "
    "enable_sequential_execution fuse_all_optimizer_ops fuse_all_reduce_ops fuse_bn_act_ops fuse_broadcast_ops "
    "fuse_elewise_add_act_ops fuse_relu_depthwise_conv hierarchical_allreduce_inter_nranks memory_optimize "
    "mkldnn_enabled_op_types nccl_comm_num reduce_strategy remove_unnecessary_lock sync_batch_norm trainer_id "
    "trainers_endpoints use_hierarchical_allreduce",
}
_WITHOUT_EFFECT[DistributedStrategy] = f"{_WITHOUT_EFFECT[fluid.BuildStrategy]} exec_strategy num_trainers is_distribution"
_WITH_EFFECT = {
    fluid.BuildStrategy: "debug_graphviz_path",
    DistributedStrategy: "amp_loss_scaling forward_recompute fuse_all_reduce_ops fuse_grad_size_in_MB gradient_scale_strategy "
    "gradients_sent_as local_sgd_steps recompute_checkpoints shard_optimizer_state sync_batch_norm use_amp use_local_sgd",
}
"""Tests of fleets, and one below, show what these do."""
_REFUSED: dict[Any, dict[str, Any]] = {
    fluid.ExecutionStrategy: {"num_iteration_per_run": 2},
    fluid.BuildStrategy: {
        "async_mode": True,
        "gradient_scale_strategy": fluid.BuildStrategy.GradientScaleStrategy.One,
        "is_distribution": True,
        "num_trainers": 2,
    },
    DistributedStrategy: {
        "async_mode": True,
        "collective_mode": "local_sgd",
        "debug_graphviz_path": "graph.dot",
        "dist_fc_config": {},
        "gradient_scale_strategy": fluid.BuildStrategy.GradientScaleStrategy.Customized,
        "mode": "pserver",
        "use_dist_fc": True,
    },
}


def test_a_build_strategy_lets_the_program_be_drawn(tmp_path: Path) -> None:
    layers.relu(fluid.data("x", [None, 2]))
    strategy = fluid.BuildStrategy()
    strategy.debug_graphviz_path = str(tmp_path / "graph.dot")
    for compiled in (
        lambda: fluid.CompiledProgram(fluid.default_main_program(), strategy),
        lambda: fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(build_strategy=strategy),
    ):
        compiled()
        text = (tmp_path / "graph.dot").read_text()
        assert text.startswith("digraph program {") and "relu" in text
        (tmp_path / "graph.dot").unlink()


@pytest.mark.parametrize("kind", list(_REFUSED))
def test_every_setting_has_its_effect_or_needs_none_or_is_refused(kind: Any) -> None:
    known = {*_WITHOUT_EFFECT[kind].split(), *_WITH_EFFECT.get(kind, "").split(), *_REFUSED[kind]}
    assert known == kind._DEFAULTS.keys()
    for name, value in _REFUSED[kind].items():
        with pytest.raises(ProgramError, match=rf"Strategy\.{name} = .* is not here: \w+"):
            setattr(kind(), name, value)
    for name, value in kind._DEFAULTS.items():
        setattr(kind(), name, value)


def test_settings_of_that_time_are_accepted_and_slips_refused() -> None:
    """Scripts set them for Paddle's sake; a name that Paddle does not have either is a slip."""
    execution, build = fluid.ExecutionStrategy(), fluid.BuildStrategy()
    execution.use_experimental_executor = execution.allow_op_delay = build.cache_runtime_context = True
    build.nccl_comm_num, build.trainers_endpoints = 2, ["localhost"]
    assert execution.allow_op_delay and fluid.BuildStrategy().trainers_endpoints == ()
    with pytest.raises(ProgramError, match=r"ExecutionStrategy has no setting 'num_thread'; it has .*num_threads"):
        execution.num_thread = 1


# -------------------------------------------------------------------------------------------------------- made functions
def test_generated_layers() -> None:
    x, y = fluid.data("x", [2, 2]), fluid.data("y", [2, 2])
    add, tanh = layers.generate_layer_fn("elementwise_add"), layers.generate_activation_fn("tanh")
    values = {"x": np.full((2, 2), -0.5, "float32"), "y": np.ones((2, 2), "float32")}
    out = [add(x, y), add(x=x, y=x, act="relu"), tanh(y, name="top")]
    found = fluid.Executor().run(feed=values, fetch_list=out)
    assert [round(float(value[0, 0]), 4) for value in found] == [0.5, 0.0, 0.7616]
    assert out[2].name.startswith("top") and tanh.__name__ == "tanh" and "Hyperbolic" in (tanh.__doc__ or "")
    values_and_places = layers.generate_layer_fn("top_k")(x, k=1)
    assert [var.shape for var in values_and_places] == [(2, 1), (2, 1)]
    with pytest.raises(ProgramError, match=r"elementwise_add takes no 'z'; it takes x, y, axis"):
        add(x, z=y)
    with pytest.raises(ProgramError, match="elementwise_add takes 2 inputs"):
        add(x, y, x)
    with pytest.raises(ProgramError, match="elementwise_add is not an op of one tensor X"):
        layers.generate_activation_fn("elementwise_add")
    with pytest.raises(ProgramError, match="no op 'tank' is defined; did you mean tan"):
        layers.generate_layer_fn("tank")


def test_documenting() -> None:
    @layers.templatedoc("relu6")
    def first() -> None:
        """It is ${comment} Takes ${x_comment}; threshold: ${threshold_comment}; ${other}."""

    assert first.__doc__ == "It is ``min(max(X, 0), threshold)``. Takes the op's X; threshold: float, by default 6.0; ${other}."

    @layers.autodoc("First. ")
    def tanh() -> None: ...

    assert (tanh.__doc__ or "").startswith("First. Hyperbolic tangent.")

    @layers.deprecated
    def old(value: int) -> int:
        """Words."""
        return value + 1

    with pytest.warns(DeprecationWarning, match="old is deprecated"):
        assert old(2) == 3
    assert old.__doc__ == "Words."


# --------------------------------------------------------------------------------------------------------------- contrib
@each(
    ("functors", "expected"),
    [
        (["elementwise_add", "relu"], lambda x, y: x + np.maximum(y, 0)),
        ("relu, elementwise_add", lambda x, y: np.maximum(x + y, 0)),
        (["elementwise_mul", "scale"], lambda x, y: x * (y * 3)),
        (["tanh", "elementwise_mul"], lambda x, y: np.tanh(x * y)),
    ],
)
def test_fused_elemwise_activation(functors: Any, expected: Any) -> None:
    x, y = np.array([[1.0, -2.0], [3.0, -4.0]], "float32"), np.array([0.5, -1.5], "float32")
    out = fluid.contrib.layers.fused_elemwise_activation(layers.assign(x), layers.assign(y), functors, scale=3.0)
    np.testing.assert_allclose(fluid.Executor().run(fetch_list=[out])[0], expected(x, y), 1e-6)


def test_errors_of_fused_elemwise_activation() -> None:
    x = layers.assign(np.ones(2, "float32"))
    for functors in (["relu", "tanh"], ["elementwise_add"], ["elementwise_add", "elementwise_mul"], ["elementwise_add", "exp"]):
        with pytest.raises(ProgramError, match="functor_list should be one of elementwise_add, elementwise_mul and one of relu"):
            fluid.contrib.layers.fused_elemwise_activation(x, x, functors)
    with pytest.raises(FluidTypeError, match="fused_elemwise_activation: y should be a Variable"):
        fluid.contrib.layers.fused_elemwise_activation(x, 1.0, ["elementwise_add", "relu"])  # type: ignore[arg-type]


def test_decoupled_weight_decay() -> None:
    """``param - coeff * param``, then the optimizer's own update with the gradient at the old parameter."""
    extend = fluid.contrib.extend_optimizer.extend_with_decoupled_weight_decay
    x = fluid.data("x", [None, 2])
    out = layers.fc(x, 1, param_attr=fluid.ParamAttr("w", fluid.initializer.Constant(2.0)), bias_attr=fluid.ParamAttr("b"))
    loss = layers.reduce_sum(layers.square(out))
    made: Any = extend(fluid.optimizer.SGD)
    made(weight_decay=0.25, apply_decay_param_fun=lambda name: name == "w", learning_rate=0.1).minimize(loss)
    assert "SGD" in (made.__doc__ or "") and issubclass(made, fluid.optimizer.SGD)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    executor.run(feed={"x": np.array([[1.0, 0.5]], "float32")})
    grad = 2 * 3.0 * np.array([[1.0], [0.5]])
    np.testing.assert_allclose(np.asarray(fluid.global_scope().find_var("w").get_tensor()), 2 - 0.25 * 2 - 0.1 * grad, 1e-6)
    np.testing.assert_allclose(np.asarray(fluid.global_scope().find_var("b").get_tensor()), [-0.6], 1e-6)
    test = fluid.default_main_program().clone(for_test=True)
    assert not any("w" in op.output_arg_names for op in test.global_block().ops)
    with pytest.raises(FluidTypeError, match="takes a class of optimizers, not"):
        extend("SGD")  # type: ignore[arg-type]
    with pytest.raises(FluidTypeError, match="weight_decay should be a number or a Variable, not str"):
        made(weight_decay="x", learning_rate=0.1)


def test_the_profiler_times_ops_on_tensors(tmp_path: Path) -> None:
    x = fluid.dygraph.Tensor([1.0, 2.0], requires_grad=True)
    fluid.layers.relu(x * x)  # so that it is kept as an op
    sgd = fluid.optimizer.SGD(0.1, parameter_list=[x])
    with profiler.profiler("CPU", "calls", str(tmp_path / "profile")):
        for _ in range(2):
            fluid.layers.relu((x * x).tanh()).sum().backward()
            sgd.step()
    (x * x).sum().backward()  # is no longer counted
    rows = [line.split() for line in (tmp_path / "profile").read_text().splitlines()[1:]]
    counts = {row[0]: int(row[1]) for row in rows}
    names = ("elementwise_mul", "tanh", "relu", "reduce_sum")
    expected = {name: 2 for base in names for name in (base, base + "_grad")} | {"sgd": 2}
    assert expected.items() <= counts.items()  # and what makes the rate's variable
    assert all(float(row[2]) > 0.0 for row in rows)


# ---------------------------------------------------------------------------------------------------------------- traces
def trained_net() -> Any:
    loss = layers.mean(layers.fc(layers.fc(fluid.data("x", [None, 64]), 32, act="tanh"), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def is_inside(event: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(other["ts"] <= event["ts"] and event["ts"] + event["dur"] <= other["ts"] + other["dur"] + 1e-2)


def test_a_trace_is_a_file_of_chromes(tmp_path: Path) -> None:
    """Its shape: thread names, and complete events with microseconds, process, thread and arguments."""
    loss, executor = trained_net(), fluid.Executor()
    executor.run(fluid.default_startup_program())
    with profiler.trace(tmp_path / "run.json") as timeline:
        for _ in range(2):
            executor.run(feed={"x": np.ones((4, 64), "float32")}, fetch_list=[loss])
    saved = json.loads((tmp_path / "run.json").read_text())
    assert saved == json.loads(json.dumps(timeline.to_chrome())) and saved["displayTimeUnit"] == "ms"
    names, *events = saved["traceEvents"]
    assert names["ph"] == "M" and names["name"] == "thread_name" and names["args"] == {"name": "MainThread"}
    for event in events:
        assert event.keys() == {"ph", "name", "cat", "ts", "dur", "pid", "tid", "args"}
        assert event["ph"] == "X" and event["ts"] >= 0 and event["dur"] > 0 and (event["pid"], event["tid"]) == (os.getpid(), 0)
    runs = [event for event in events if event["cat"] == "run"]
    assert [event["name"] for event in runs] == [f"run of {len(fluid.default_main_program().global_block().ops)} ops"] * 2
    inner = [event for event in events if event["cat"] != "run"]
    assert all(any(is_inside(event, run) for run in runs) for event in inner) and len(inner) % 2 == 0
    named = [text for event in inner for text in event["args"]["ops"]]
    assert all(any(f"= {name}(" in text for text in named) for name in ("mul", "tanh", "mean_grad", "sgd"))
    assert all("test_tools.py:" in event["args"]["line"] and "in trained_net" in event["args"]["line"] for event in inner)
    assert timing.current is None


@pytest.mark.numpy_alone
def test_without_native_code_each_op_is_an_event() -> None:
    loss, executor = trained_net(), fluid.Executor()
    executor.run(fluid.default_startup_program())
    with profiler.trace() as timeline:
        executor.run(feed={"x": np.ones((4, 64), "float32")}, fetch_list=[loss])
    ops = fluid.default_main_program().global_block().ops
    assert [event.name for event in timeline.events[:-1]] == [op.type for op in ops]
    assert [event.kind for event in timeline.events] == ["op"] * len(ops) + ["run"]


def test_native_code_is_one_event_with_its_ops() -> None:
    pytest.importorskip("llvmlite")
    loss, executor = trained_net(), fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.ones((4, 64), "float32")}
    executor.run(feed=feed, fetch_list=[loss])
    if "native" not in str(executor.plan(feed=feed, fetch_list=[loss])):
        pytest.skip("there is no native code for this processor")
    with profiler.trace() as timeline:
        executor.run(feed=feed, fetch_list=[loss])
    native = [event for event in timeline.events if event.kind == "native"]
    assert native and {op.type for event in native for op in event.ops} >= {"mul", "tanh", "sgd"}


@pytest.mark.numpy_alone
def test_ops_of_blocks_lie_within_those_that_own_them() -> None:
    total, count = layers.fill_constant([1], "float32", 0.0), layers.fill_constant([1], "int64", 0)
    going = layers.less_than(count, layers.fill_constant([1], "int64", 3))
    loop = layers.While(going)
    with loop.block():
        layers.assign(total + 1.0, total)
        layers.increment(count)
        layers.less_than(count, layers.fill_constant([1], "int64", 3), cond=going)
    with profiler.trace() as timeline:
        fluid.Executor().run(fetch_list=[total])
    events = [event for event in timeline.to_chrome()["traceEvents"] if event["ph"] == "X"]
    (owner,) = [event for event in events if event["name"] == "while"]
    inner = [event for event in events if event["name"] == "increment"]
    assert len(inner) == 3 and all(is_inside(event, owner) for event in inner)


def test_a_trace_of_tensors_says_lines_and_threads(tmp_path: Path) -> None:
    def work() -> None:
        x = fluid.dygraph.Tensor([1.0, 2.0], requires_grad=True)
        layers.reduce_sum(layers.tanh(x)).backward()

    with profiler.trace() as timeline:
        work()
        thread = threading.Thread(target=work, name="helper")
        thread.start()
        thread.join()
    assert [event.name for event in timeline.events] == ["tanh", "reduce_sum", "reduce_sum_grad", "tanh_grad"] * 2
    assert {event.kind for event in timeline.events} == {"tensors"}
    assert all(event.where.startswith(__file__) and event.where.endswith("in work") for event in timeline.events)
    made = timeline.to_chrome()["traceEvents"]
    assert {event["args"]["name"]: event["tid"] for event in made if event["ph"] == "M"} == {"MainThread": 0, "helper": 1}
    assert [event["tid"] for event in made if event["ph"] == "X"] == [0] * 4 + [1] * 4


def test_one_watch_at_a_time() -> None:
    with profiler.trace():
        with pytest.raises(ProgramError, match="runs already"), profiler.trace():
            pass
        with pytest.raises(ProgramError, match="a trace runs already"):
            profiler.start_profiler("CPU")
        profiler.stop_profiler()  # is none of its own
        assert timing.current is not None
    with profiler.trace() as timeline:
        pass
    assert timeline.to_chrome()["traceEvents"] == []
