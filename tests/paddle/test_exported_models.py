"""Exported models of Paddle 2.x: what can be trained, what training lacks, and what an inspection shows."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.errors import FluidError, FormatError
from fluid.transform.flops import count_flops


@pytest.fixture
def executor():
    return fluid.Executor(fluid.CPUPlace())


def main():
    return fluid.default_main_program()


def test_the_products_of_an_exported_einsum_are_trained(executor):
    """The file of an inference model lacks InnerCache, which the gradient reads."""
    x = fluid.data("x", [None, 4, 3])
    w = layers.create_parameter([3, 2], "float32", name="w")
    root = main().global_block()
    out = root.create_var(name="out")
    root.append_op("einsum", {"Operands": [x, w]}, {"Out": out}, {"equation": "bij,jk->bik"})
    main().make_trainable()
    assert len(root.ops[-1].output("InnerCache")) == 2
    loss = layers.mean(out)
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor.run(fluid.default_startup_program())
    feed = {"x": np.ones((2, 4, 3), "float32")}
    first, second = (executor.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(2))
    np.testing.assert_allclose(first - second, 0.1 * 3 * 2 * 0.25, rtol=1e-5)  # every d loss / d w is 1 / 2


def exported_with_buffer(executor, folder, notes):
    """An exported model of a weight, a frozen one and a table, with what Paddle notes beside its parameters."""
    x = fluid.data("x", [None, 3])
    names = ("trained", "frozen", "table")
    made = [layers.create_parameter([3, 3], "float32", name=name) for name in names]
    out = layers.elementwise_add(layers.mul(layers.mul(x, made[0]), made[1]), layers.reduce_sum(made[2], dim=0))
    executor.run(fluid.default_startup_program())
    fluid.save_model(str(folder / "net.pdmodel"), main(), [x], [out])
    (folder / "net.pdiparams.info").write_bytes(pickle.dumps(notes, protocol=2))


NOTES = {
    "trained": {"structured_name": "fc.weight", "stop_gradient": False, "trainable": True},
    "frozen": {"structured_name": "fc2.weight", "stop_gradient": True, "trainable": False},
    "table": {"structured_name": "table", "stop_gradient": True},
}


@each("reads", [lambda path, _: fluid.load_model(path).program, lambda *path: fluid.io.load_inference_model(*path)[0]])
def test_buffers_are_not_trained(executor, tmp_path, reads):
    exported_with_buffer(executor, tmp_path, NOTES)
    path = str(tmp_path / "net")

    def trained(*pattern):
        program = reads(path, executor)
        program.make_trainable(*pattern)
        return sorted(parameter.name for parameter in program.all_parameters() if parameter.trainable)

    assert trained() == ["trained"]
    assert trained("*") == ["frozen", "trained"]  # asked for by name, except the table, which is no parameter
    assert trained(["t*"]) == ["trained"]
    assert trained(["table", "frozen"]) == ["frozen", "table"]
    (tmp_path / "net.pdiparams.info").unlink()
    assert trained() == ["frozen", "table", "trained"]  # nobody says


@each("notes", [[1], {"trained": 3}, "x"])
def test_damaged_notes_on_parameters(executor, tmp_path, notes):
    exported_with_buffer(executor, tmp_path, notes)
    with pytest.raises(FormatError, match=r"net.pdiparams.info: it should hold a dict of properties for each parameter"):
        fluid.load_model(str(tmp_path / "net"), scope=fluid.executor.Scope())


def test_the_arithmetic_of_a_model_whose_feeds_are_not_marked(executor, tmp_path):
    """Paddle's exports do not set ``need_check_feed`` for feeds."""
    x = fluid.data("x", [None, 3])
    out = layers.fc(x, 5, bias_attr=False)
    executor.run(fluid.default_startup_program())
    x.need_check_feed = False
    fluid.save_model(str(tmp_path / "net.pdmodel"), main(), [x], [out])
    program = fluid.load_model(str(tmp_path / "net")).program
    assert program.global_block().var("x").is_data and count_flops(program, 4).total == 2 * 4 * 3 * 5


def test_an_unknown_op_says_what_can_be_computed_before_it(executor):
    x = fluid.data("x", [2])
    hidden = layers.relu(x)
    root = main().global_block()
    for name, read in (("a", [hidden, x]), ("b", ["a"])):
        root.create_var(name=name, shape=[2], dtype="float32")
        root.append_op("odd", {"X": read}, {"Out": name})
    advice = rf"fetch '{hidden.name}', or cut the program there with program.prune\(None, \['{hidden.name}'\]\)"
    with pytest.raises(FluidError, match=advice):
        executor.run(feed={"x": np.ones(2, "float32")}, fetch_list=["b"])
    main().prune(None, [hidden.name])
    assert executor.run(feed={"x": np.ones(2, "float32")}, fetch_list=[hidden])[0].tolist() == [1, 1]


@each("sign", [-1, 1])
def test_branches_of_programs_for_inference(executor, sign):
    """Paddle's predictor writes conditional_block_infer for conditional_block."""
    x = fluid.data("x", [2])
    out = layers.cond(
        layers.less_than(layers.reduce_sum(x), layers.fill_constant([1], "float32", 0.0)), lambda: x * 2.0, lambda: x
    )
    for op in main().global_block().ops:
        op.type = op.type.replace("conditional_block", "conditional_block_infer")
    program = fluid.Program.parse_from_string(main().serialize_to_string())
    assert "conditional_block_infer" in [op.type for op in program.global_block().ops] and not program.unsupported_ops()
    feed = {"x": np.full(2, sign, "float32")}
    for run in (executor.run, executor.interpret):
        assert run(program, feed, [out.name])[0].tolist() == [2.0 * sign if sign < 0 else sign] * 2
