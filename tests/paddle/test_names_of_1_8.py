"""Names that Fluid 1.7 and 1.8 added, as their scripts use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.errors import ExecutionError, FluidTypeError, ProgramError


# ------------------------------------------------------------------------------------------------------- the top level
@each("pair", [("enable_dygraph", "disable_dygraph"), ("enable_imperative", "disable_imperative")])
def test_eager_mode_is_switched_at_the_top(pair: tuple[str, str]) -> None:
    enable, disable = (getattr(fluid, name) for name in pair)
    enable(fluid.CPUPlace())
    try:
        assert fluid.in_dygraph_mode()
        assert layers.ones([2], "float32").numpy().tolist() == [1.0, 1.0]
    finally:
        disable()
    assert not fluid.in_dygraph_mode()


def test_modules_of_names_that_are_elsewhere_too() -> None:
    from fluid.dygraph.dygraph_to_static import ProgramTranslator
    from fluid.dygraph.static_runner import StaticModelRunner

    assert ProgramTranslator is dygraph.ProgramTranslator and StaticModelRunner is dygraph.StaticModelRunner


def test_ops_made_under_a_device_guard_name_their_device() -> None:
    x = fluid.data("x", [None, 2])
    with fluid.device_guard("gpu:1"):
        y = layers.relu(x)
        with fluid.device_guard():
            plain = layers.tanh(y)
        z = layers.relu(plain)
    last = layers.relu(z)
    assert [var.op.attr("op_device") for var in (y, plain, z, last)] == ["gpu:1", "", "gpu:1", ""]
    feed = np.array([[-1.0, 1.0]], "float32")
    assert fluid.Executor().run(feed={"x": feed}, fetch_list=[y])[0].tolist() == [[0.0, 1.0]]
    with (
        pytest.raises(ProgramError, match=r"the device should be 'cpu', 'gpu' or such as 'gpu:0', not 'tpu'"),
        fluid.device_guard("tpu"),
    ):
        pass


@pytest.fixture
def flags() -> Iterator[None]:
    names = ["FLAGS_check_nan_inf", "FLAGS_paddle_num_threads", "FLAGS_benchmark", "FLAGS_eager_delete_tensor_gb"]
    before = fluid.get_flags(names)
    yield
    fluid.set_flags(before)


def test_flags_are_kept(flags: None) -> None:
    fluid.set_flags({"FLAGS_eager_delete_tensor_gb": 2, "FLAGS_benchmark": 1})
    assert fluid.get_flags(["FLAGS_eager_delete_tensor_gb", "FLAGS_benchmark"]) == {
        "FLAGS_eager_delete_tensor_gb": 2.0,
        "FLAGS_benchmark": True,
    }


def test_flags_with_a_meaning_here(flags: None) -> None:
    fluid.set_flags({"FLAGS_paddle_num_threads": 2})
    assert fluid.get_num_threads() == 2
    fluid.set_num_threads(1)
    assert fluid.get_flags("FLAGS_paddle_num_threads") == {"FLAGS_paddle_num_threads": 1}

    x = fluid.data("x", [1])
    y = layers.log(x)

    def run() -> Any:
        return fluid.Executor().run(feed={"x": np.zeros(1, "float32")}, fetch_list=[y])

    assert np.isneginf(run()[0])
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    with pytest.raises(ExecutionError, match="log"):
        run()


@each(
    "case",
    [
        (
            ProgramError,
            r"there is no flag 'FLAGS_benchmar'; did you mean FLAGS_benchmark",
            lambda: fluid.set_flags({"FLAGS_benchmar": 1}),
        ),
        (ProgramError, "there is no flag 'benchmark'", lambda: fluid.get_flags("benchmark")),
        (
            FluidTypeError,
            "FLAGS_benchmark should be of type bool, not 'yes'",
            lambda: fluid.set_flags({"FLAGS_benchmark": "yes"}),
        ),
        (
            FluidTypeError,
            "number should be an int|should be of type int",
            lambda: fluid.set_flags({"FLAGS_paddle_num_threads": "2"}),
        ),
        (FluidTypeError, "set_flags takes a dict of names and values, not a list", lambda: fluid.set_flags([])),
        (FluidTypeError, "get_flags takes a name or a list of names, not a int", lambda: fluid.get_flags(3)),
    ],
)
def test_wrong_flags_are_refused(flags: None, case: tuple[type[Exception], str, Callable[[], Any]]) -> None:
    kind, message, call = case
    before = fluid.get_flags("FLAGS_benchmark")
    with pytest.raises(kind, match=message):
        call()
    assert fluid.get_flags("FLAGS_benchmark") == before


def test_one_wrong_flag_leaves_all_unchanged(flags: None) -> None:
    with pytest.raises(ProgramError):
        fluid.set_flags({"FLAGS_benchmark": True, "FLAGS_nothing": 1})
    assert fluid.get_flags("FLAGS_benchmark") == {"FLAGS_benchmark": False}


def test_a_worker_knows_its_rank_under_the_name_of_1_8() -> None:
    assert (dygraph.ParallelEnv().nranks, dygraph.ParallelEnv().local_rank) == (1, 0)


# -------------------------------------------------------------------------------------------------------- in submodules
class Pair(NamedTuple):
    one: Any
    other: Any


def test_structures_are_mapped_packed_and_compared() -> None:
    utils = layers.utils
    nest = {"b": [1, Pair(2, (3,))], "a": 4}
    assert utils.flatten(nest) == [4, 1, 2, 3] and utils.flatten(7) == [7]
    mapped = utils.map_structure(lambda x, y: x * y, nest, {"b": [10, Pair(10, [10])], "a": 10})
    assert mapped == {"b": [10, Pair(20, (30,))], "a": 40} and list(mapped) == ["b", "a"] and type(mapped["b"][1]) is Pair
    assert utils.pack_sequence_as(5, [6]) == 6
    assert [utils.is_sequence(value) for value in ([], (), {}, "text", np.zeros(2))] == [True, True, True, False, False]
    utils.assert_same_structure([1, (2,)], [3, (4,)])
    with dygraph.guard():
        x = dygraph.to_variable(np.ones(2, "float32"))
        assert utils.map_structure(lambda t: t * 2.0, [x])[0].numpy().tolist() == [2.0, 2.0]


@each(
    "case",
    [
        (FluidTypeError, "a list and a tuple", lambda: layers.utils.assert_same_structure([1], (1,))),
        (FluidTypeError, "1 items and 2", lambda: layers.utils.map_structure(max, [1], [1, 2])),
        (FluidTypeError, "keys .*a.* and .*b", lambda: layers.utils.map_structure(max, {"a": 1}, {"b": 1})),
        (FluidTypeError, r"the structures differ: 1 and \[1\]", lambda: layers.utils.map_structure(max, [1], [[1]])),
        (ProgramError, "the structure has 2 items, and flat_sequence 1", lambda: layers.utils.pack_sequence_as([0, 0], [1])),
    ],
)
def test_structures_that_differ_are_refused(case: tuple[type[Exception], str, Callable[[], Any]]) -> None:
    kind, message, call = case
    with pytest.raises(kind, match=message):
        call()


def test_tensors_of_scopes_share_memory_by_capsules() -> None:
    tensor = fluid.create_lod_tensor(np.array([[1], [2]], "int64"), [[1, 1]], fluid.CPUPlace())
    shared = fluid.core.from_dlpack(tensor._to_dlpack())
    assert isinstance(shared, fluid.core.LoDTensor) and np.asarray(shared).tolist() == [[1], [2]]
    array = np.zeros(2, "float32")
    again = fluid.core.from_dlpack(array)
    array[1] = 3.0
    assert np.asarray(again).tolist() == [0.0, 3.0]


def test_functions_for_one_mode_refuse_the_other() -> None:
    build = fluid.framework.dygraph_not_support(lambda x: x + 1)
    step = fluid.framework.dygraph_only(lambda x: x + 2)
    assert build(1) == 2
    with pytest.raises(ProgramError, match="is for eager mode; call it inside"):
        step(1)
    with dygraph.guard():
        assert step(1) == 3
        with pytest.raises(ProgramError, match="builds a part of a program, and eager mode is on"):
            build(1)


def test_clips_have_a_base_class() -> None:
    class Halving(fluid.clip.GradientClipBase):
        def clip(self, pairs: Any) -> Any:
            return [grad * 0.5 for _, grad in pairs]

    assert isinstance(fluid.clip.GradientClipByNorm(1.0), fluid.clip.GradientClipBase)
    w = dygraph.Parameter([1.0])
    optimizer = fluid.optimizer.SGD(1.0, parameter_list=[w], grad_clip=Halving())
    (w * 3.0).sum().backward()
    optimizer.step()
    assert w.numpy().tolist() == [-0.5]


# ---------------------------------------------------------------------------------------------------------------- runs
@pytest.fixture
def trained() -> Any:
    """A regression that trains: its loss, prediction and parameter."""
    x, y = fluid.data("x", [None, 2]), fluid.data("y", [None, 1])
    prediction = layers.fc(x, 1, param_attr="w", bias_attr=False)
    loss = layers.mean(layers.square_error_cost(prediction, y))
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    return executor, loss, prediction


FEED = {"x": np.array([[1.0, 2.0], [3.0, 4.0]], "float32"), "y": np.array([[1.0], [2.0]], "float32")}


def weight() -> Any:
    return np.array(fluid.global_scope().find_var("w").get_tensor())  # type: ignore[union-attr]


def test_a_pruned_run_updates_nothing(trained: Any) -> None:
    """Of a program that trains, it runs the ops that the fetches need; feeds that these do not read are passed over."""
    executor, loss, prediction = trained
    before = weight()
    for _ in range(2):
        (result,) = executor.run(feed=FEED, fetch_list=[prediction], use_prune=True)
        assert np.allclose(result, FEED["x"] @ before) and np.array_equal(weight(), before)
        (value,) = executor.run(
            feed={fluid.default_main_program().global_block().var("x"): FEED["x"], "y": FEED["y"]},
            fetch_list=[loss],
            use_prune=True,
        )
        assert np.allclose(value, np.mean((FEED["x"] @ before - FEED["y"]) ** 2)) and np.array_equal(weight(), before)
    layers.scale(prediction, 2.0)  # another version of the program
    assert np.allclose(executor.run(feed=FEED, fetch_list=[prediction], use_prune=True)[0], FEED["x"] @ before)
    with pytest.warns(UserWarning, match="'z' is fed, but the program has no such variable"):
        executor.run(feed={**FEED, "z": FEED["x"]}, fetch_list=[loss], use_prune=True)
    executor.run(feed=FEED, use_prune=True)
    assert not np.array_equal(weight(), before), "without fetches, all runs"


def test_programs_say_what_scripts_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fluid.Program, "_first_seed", 0)
    program = fluid.default_main_program()
    x = fluid.data("x", [None, 4])
    h = layers.dropout(layers.fc(x, 3), 0.5)
    fluid.optimizer.SGD(0.1).minimize(layers.mean(h))
    assert h.grad_name in program.global_block().vars
    assert str(x.dtype) == f"{x.dtype}" == "VarType.FP32" and f"{x.dtype:d}" == "5"
    tested = program._inference_optimize(prune_read_op=False)
    assert [op.type for op in tested.global_block().ops] == [op.type for op in program.global_block().ops]
    is_test = [[op.attr("is_test") for op in one.global_block().ops if op.type == "dropout"] for one in (tested, program)]
    assert is_test == [[True], [False]]
    program.global_seed(7)
    assert program.random_seed == fluid.Program().random_seed == 7


def test_arguments_of_1_8() -> None:
    batches = [list(fluid.io.BatchSampler(batch_size=2, **given)) for given in ({"dataset": range(3)}, {"indices": [7, 5, 6]})]
    assert batches == [[[0, 1], [2]], [[7, 5], [6]]]
    shuffled = fluid.io.BatchSampler(indices=[7, 5, 6], shuffle=True, batch_size=3)
    assert len(shuffled) == 1 and sorted(next(iter(shuffled))) == [5, 6, 7]
    with pytest.raises(fluid.errors.ProgramError, match="give a sampler, a dataset, or indices"):
        fluid.io.BatchSampler(batch_size=2)
    x = fluid.data("x", [5, None, 4])
    states = layers.GRUCell(3).get_initial_states(x, batch_dim_idx=1)
    executor = fluid.Executor()
    assert executor.run(feed={"x": np.zeros((5, 2, 4), "float32")}, fetch_list=[states])[0].shape == (2, 3)
    fluid.io.DataLoader.from_generator([x], capacity=2, drop_last=False)
    from fluid.layers.sequence_lod import sequence_pool
    from fluid.parallel_executor import ParallelExecutor

    assert sequence_pool.__name__ == "sequence_pool" and ParallelExecutor is fluid.ParallelExecutor


def test_fetches_by_device(trained: Any) -> None:
    executor, loss, prediction = trained
    (values, losses) = executor.run(feed=FEED, fetch_list=[prediction, loss], return_merged=False)
    assert [value.shape for value in values] == [(2, 1)] and [value.shape for value in losses] == [(1,)]


# ---------------------------------------------------------------------------------------------------------------- YOLO
def test_boxes_of_yolo_within_the_image_and_beyond() -> None:
    x = np.full((1, 6, 2, 2), 2.0, "float32")  # one anchor, as large as the image
    size = layers.assign(np.array([[64, 64]], "int32"))
    clipped, beyond, wider = (
        layers.yolo_box(layers.assign(x), size, [32, 32], 1, 0.01, 32, **how)[0]
        for how in ({}, {"clip_bbox": False}, {"clip_bbox": False, "scale_x_y": 1.5})
    )
    result, free, moved = fluid.Executor().run(fetch_list=[clipped, beyond, wider])
    assert result.min() >= 0 and result.max() <= 63 and np.array_equal(result, free.clip(0, 63)) and free.max() > 63
    offset = 1 / (1 + np.exp(-2.0))
    centers = (free[..., :2] + free[..., 2:]) / 2
    assert np.allclose((moved[..., :2] + moved[..., 2:]) / 2 - centers, 32 * (offset - 0.5) * 0.5, atol=1e-3)


def test_loss_of_yolo_with_stretched_offsets() -> None:
    """They change which predicted boxes overlap a labelled one, so that it is not learned that there is nothing."""
    x = layers.assign(np.random.default_rng(0).normal(0, 1, (1, 6, 8, 8)).astype("float32"))
    boxes = layers.assign(np.array([[[0.55, 0.55, 0.3, 0.3]]], "float32"))
    labels = layers.assign(np.zeros((1, 1), "int32"))
    losses = [layers.yolov3_loss(x, boxes, labels, [72, 72], [0], 1, 0.3, 32, scale_x_y=scale) for scale in (1.0, 2.0)]
    plain, stretched = fluid.Executor().run(fetch_list=losses)
    assert np.isfinite([plain, stretched]).all() and plain != stretched


# --------------------------------------------------------------------------------------------------------- in eager mode
def test_an_optimizer_tells_its_rate_and_takes_another() -> None:
    with dygraph.guard():
        w = dygraph.to_variable(np.zeros(1, "float32"), "w", zero_copy=False)
        assert w.name == "w"
        w.stop_gradient = False
        optimizer = fluid.optimizer.SGD(0.5, parameter_list=[w])
        values = []
        for rate in (None, 0.25, dygraph.to_variable(np.float32([0.125]))):
            if rate is not None:
                optimizer.set_lr(rate)
            layers.reduce_sum(w).backward()
            optimizer.minimize(layers.reduce_sum(w))
            w.clear_gradient()
            values.append((w.numpy().item(), optimizer.current_step_lr()))
        assert values == [(-0.5, 0.5), (-0.75, 0.25), (-0.875, 0.125)]
        with pytest.raises(ProgramError, match="rate should be a finite number, at least 0, not -1"):
            optimizer.set_lr(-1)


def test_an_optimizer_tells_the_rate_of_its_schedule() -> None:
    with dygraph.guard():
        w = dygraph.Parameter([0.0])
        optimizer = fluid.optimizer.SGD(dygraph.PiecewiseDecay([1], [0.5, 0.25], 0), parameter_list=[w])
        rates = [optimizer.current_step_lr(), optimizer.current_step_lr()]  # asking changes nothing
        for _ in range(2):
            layers.reduce_sum(w).backward()
            optimizer.step()
            rates.append(optimizer.current_step_lr())
        assert rates == [0.5, 0.5, 0.5, 0.25]
        with pytest.raises(ProgramError, match="is computed by a schedule"):
            optimizer.set_lr(0.1)


def test_a_state_is_taken_by_the_names_of_the_tensors_too() -> None:
    with dygraph.guard():
        net = dygraph.Linear(2, 1)
        given_value, file_value = np.full([2, 1], 2.0, "float32"), np.full([2, 1], 3.0, "float32")
        state = {net.weight.name: given_value, "weight": file_value, net.bias.name: np.zeros(1, "float32")}
        with pytest.warns(UserWarning, match="has nothing under these names"):
            net.set_dict(state, use_structured_name=False)
        assert net.weight.numpy().tolist() == given_value.tolist()
        with pytest.warns(UserWarning, match="has nothing under these names"):
            net.set_dict(state)
        assert net.weight.numpy().tolist() == file_value.tolist()
