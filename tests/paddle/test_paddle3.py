"""Models that Paddle 3.0 to 3.3 wrote: Fluid reads them and computes the same."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import TESTS

import fluid
from fluid.errors import ExecutionError, ProgramError
from fluid.executor import Scope, scope_guard
from fluid.formats.pir.data import Attribute, PirBlock, PirOp, PirProgram, PirType, PirValue
from fluid.formats.pir.json_writing import serialize_pir
from fluid.values.types import VarType

FOLDER = TESTS / "golden" / "paddle3"
TRAINING = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.glob("**/*.pdopt"))
INFERENCE = sorted({str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.glob("**/*.json")} - {*TRAINING})


def arrays_of(name: str, side: str) -> list[Any]:
    """A golden model's feeds (``in``) or results (``out``), by position."""
    with np.load(FOLDER / f"{name}.npz") as arrays:
        return [arrays[key] for key in sorted(arrays.files, key=lambda key: (len(key), key)) if key.startswith(side)]


def feed_of(model: fluid.Model, name: str) -> dict[str, Any]:
    return dict(zip(model.feeds, arrays_of(name, "in"), strict=False))


def losses(model: fluid.Model, name: str, steps: int = 3) -> list[float]:
    """The losses of some steps of a training program: what its first gradient op starts from."""
    ops = model.program.global_block().ops
    first = next(op for op in ops if op.type.endswith("_grad"))
    (loss,) = next(op for op in ops if op.type == first.type.removesuffix("_grad") and op.input("X") == first.input("X")).output(
        "Out"
    )
    executor = fluid.Executor()
    return [executor.run(model.program, feed_of(model, name), [loss])[0].item() for _ in range(steps)]


def test_there_are_files_of_each_version() -> None:
    assert len(INFERENCE) >= 12 and len(TRAINING) >= 5, (INFERENCE, TRAINING)


@pytest.mark.parametrize("name", INFERENCE)
def test_inference_models_have_their_numbers(name: str) -> None:
    model = fluid.load_model(FOLDER / f"{name}.json", scope=Scope())
    assert (model.format, model.missing) == ("pir", [])
    assert not model.program.unsupported_ops()
    model.program.verify()
    with scope_guard(model.scope):
        outputs = fluid.Executor().run(model.program, feed_of(model, name), model.fetches)
    wanted = arrays_of(name, "out")
    assert len(outputs) == len(wanted)
    for output, want in zip(outputs, wanted, strict=True):
        assert (output.dtype, output.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(output, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", TRAINING)
def test_training_programs_have_their_losses(name: str) -> None:
    model = fluid.load_model(FOLDER / f"{name}.json", scope=Scope())
    assert model.missing == []
    with scope_guard(model.scope):
        np.testing.assert_allclose(losses(model, name), np.ravel(arrays_of(name, "out")[0]), rtol=1e-5)


def test_a_folder_may_hold_other_json(tmp_path: Path) -> None:
    for ending in ("json", "pdiparams"):
        shutil.copy(FOLDER / f"branches.{ending}", tmp_path / f"inference.{ending}")
    (tmp_path / "config.json").write_text("{}")
    model = fluid.load_model(tmp_path, scope=Scope())
    assert (model.format, model.feeds, model.missing) == ("folder", ["x"], [])


def test_what_has_no_equivalent_is_listed_and_kept(tmp_path: Path) -> None:
    """An op of PIR alone: it is named before anything runs, and written as it was."""
    tree = json.loads((FOLDER / "branches.json").read_bytes())
    ops = tree["program"]["regions"][0]["blocks"][0]["ops"]
    scale = next(op for op in ops if op["#"] == "1.scale")
    scale["#"] = "1.unheard_of"
    (tmp_path / "new.json").write_text(json.dumps(tree))
    shutil.copy(FOLDER / "branches.pdiparams", tmp_path / "new.pdiparams")
    model = fluid.load_model(tmp_path / "new.json", scope=Scope())
    assert [op.type for op in model.program.unsupported_ops()] == ["pd_op.unheard_of"]
    with scope_guard(model.scope), pytest.raises(ExecutionError, match=r"the op pd_op.unheard_of is not known here"):
        fluid.Executor().run(model.program, feed_of(model, "branches"), model.fetches)
    with pytest.raises(ProgramError, match=r"pd_op.unheard_of: paddle-2.6 does not know it \(once, first as op"):
        fluid.save_model(tmp_path / "old.pdmodel", model.program, scope=model.scope, target="paddle-2.6")
    fluid.save_model(tmp_path / "again.json", model.program, scope=model.scope)
    again = json.loads((tmp_path / "again.json").read_bytes())["program"]["regions"][0]["blocks"][0]["ops"]
    kept = next(op for op in again if op["#"] == "1.unheard_of")
    assert kept["A"] == scale["A"] and [len(kept[key]) for key in "IO"] == [2, 1]


def test_what_paddle_3_lacks_is_listed_in_one_error(tmp_path: Path) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [1, 8, 3, 4])
        y = fluid.layers.polygon_box_transform(fluid.layers.polygon_box_transform(x))
        z = fluid.layers.similarity_focus(x, 1, [0])
        program = fluid.default_main_program()
    with pytest.raises(ProgramError) as error:
        fluid.save_model(tmp_path / "net.json", program, ["x"], [y, z], scope=Scope())
    text = str(error.value)
    assert text.startswith("the program cannot be written for paddle-3:")
    assert "polygon_box_transform: paddle-3 does not know it (2 times, first as op" in text and "similarity_focus" in text
    assert not list(tmp_path.iterdir())


def test_training_on_labels_is_written(tmp_path: Path) -> None:
    """Paddle 3 has no `cross_entropy` of probabilities: it is written as ops that gather, whose gradients scatter."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(Scope()):
        x, label = fluid.data("x", [6, 5]), fluid.data("label", [6, 1], "int64")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(x, 4, act="softmax"), label, ignore_index=3))
        fluid.optimizer.SGD(0.5).minimize(loss)
        fluid.Executor().run(fluid.default_startup_program())
        root = fluid.default_main_program().global_block()
        fetched = root.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
        root.append_op("fetch", {"X": [loss]}, {"Out": [fetched]}, {"col": 0})
        fluid.save_model(tmp_path / "net.json")
        root.ops.pop()
        feed = {"x": np.linspace(-1, 1, 30, dtype="float32").reshape(6, 5), "label": np.array([[0], [3], [1], [2], [3], [0]])}
        expected = [fluid.Executor().run(feed=feed, fetch_list=[loss])[0].item() for _ in range(3)]
    model = fluid.load_model(tmp_path / "net.json", scope=Scope())
    losses = [fluid.Executor().run(model.program, feed, model.fetches, scope=model.scope)[0].item() for _ in range(3)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert losses[2] < losses[0]


def test_an_array_of_no_known_type_is_refused(tmp_path: Path) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        position = fluid.layers.fill_constant([1], "int64", 0)
        array = fluid.layers.array_write(fluid.data("x", [2]), position)
        array._dtype = None
        with pytest.raises(ProgramError, match=r"write_to_array: the element type of .* is not known"):
            fluid.save_model(tmp_path / "net.json", scope=Scope())


def test_an_einsum_that_ends_paddle_3_is_refused(tmp_path: Path) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 2])
        block = fluid.default_main_program().global_block()
        out = block.create_var(name="out", shape=[2, 2], dtype="float32")
        block.append_op("einsum", {"Operands": [x, x, x]}, {"Out": out}, {"equation": "ij,jk,kl->il"})
        with pytest.raises(ProgramError, match="einsum: it has more than two operands, and Paddle's op has two"):
            fluid.save_model(tmp_path / "net.json", feeds=[x], fetches=[out], scope=Scope())


def test_every_way_between_the_versions(tmp_path: Path) -> None:
    """3.x to 2.6 to 1.6 and back to 3.x, with the same numbers here at each step; Paddle's own are in `test_paddle3_oracle`."""
    model = fluid.load_model(FOLDER / "convolutions.json", scope=Scope())
    for path, target in (("a.pdmodel", "paddle-2.6"), ("b", "paddle-1.6"), ("c.json", "paddle-3"), ("d.json", None)):
        fluid.save_model(tmp_path / path, model.program, scope=model.scope, target=target)
        model = fluid.load_model(tmp_path / path, scope=Scope())
        with scope_guard(model.scope):
            (output,) = fluid.Executor().run(model.program, feed_of(model, "convolutions"), model.fetches)
        np.testing.assert_allclose(output, arrays_of("convolutions", "out")[0], rtol=1e-5, atol=1e-6)
    assert (tmp_path / "c.json").read_bytes() == (tmp_path / "d.json").read_bytes()
    with pytest.raises(ProgramError, match=r"programs for Paddle 3 have names that end in .json"):
        fluid.save_model(tmp_path / "e.pdmodel", model.program, scope=model.scope, target="paddle-3")


def test_each_value_in_the_file_of_parameters_is_declared(tmp_path: Path) -> None:
    """They are found by their order alone, so that one more would shift all others."""
    scope = Scope()
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()), scope_guard(scope):
        y = fluid.layers.fc(fluid.data("x", [None, 2]), 3)
        fluid.default_main_program().global_block().create_var(name="a_spare", shape=[1], dtype="float32", persistable=True)
        fluid.default_startup_program().random_seed = 1
        fluid.Executor().run(fluid.default_startup_program())
        scope.put("a_spare", np.ones(1, "float32"))
        (want,) = fluid.Executor().run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[y])
        fluid.save_model(tmp_path / "net.json")
    model = fluid.load_model(tmp_path / "net.json", scope=Scope())
    assert model.parameters == ["a_spare", "fc_0.b_0", "fc_0.w_0"]
    with scope_guard(model.scope):
        last = model.program.global_block().ops[-1].output("Out")
        np.testing.assert_array_equal(fluid.Executor().run(model.program, {"x": np.ones((1, 2), "float32")}, last)[0], want)


def test_a_model_of_paddle_3_can_be_trained() -> None:
    model = fluid.load_model(FOLDER / "loop.json", scope=Scope())
    program = model.program
    program.make_trainable()
    with scope_guard(model.scope), fluid.program_guard(program, fluid.Program()):
        loss = fluid.layers.mean(fluid.layers.square(model.fetches[0]))
        fluid.optimizer.SGD(0.5).minimize(loss)
        executor = fluid.Executor()
        fluid.default_startup_program().random_seed = 1
        executor.run(fluid.default_startup_program())
        values = [executor.run(program, feed_of(model, "loop"), [loss])[0].item() for _ in range(5)]
    assert values[-1] < 0.5 * values[0], values


def test_arrays_survive_every_way(tmp_path: Path) -> None:
    """3.x to 2.6 to 3.x, with the same numbers."""
    model = fluid.load_model(FOLDER / "array_loops.json", scope=Scope())
    for path, target in (("a.pdmodel", "paddle-2.6"), ("b.json", "paddle-3")):
        fluid.save_model(tmp_path / path, model.program, scope=model.scope, target=target)
        model = fluid.load_model(tmp_path / path, scope=Scope())
        with scope_guard(model.scope):
            outputs = fluid.Executor().run(model.program, feed_of(model, "array_loops"), model.fetches)
        for output, want in zip(outputs, arrays_of("array_loops", "out"), strict=True):
            np.testing.assert_allclose(output, want, rtol=1e-5, atol=1e-6)


def test_what_paddle_2_6_lacks_of_arrays_is_listed(tmp_path: Path) -> None:
    model = fluid.load_model(FOLDER / "arrays.json", scope=Scope())
    with pytest.raises(ProgramError, match=r"pop_from_array: paddle-2.6 does not know it \(2 times, first as") as error:
        fluid.save_model(tmp_path / "a.pdmodel", model.program, scope=model.scope, target="paddle-2.6")
    assert "fill_array_like: paddle-2.6 does not know it (once" in str(error.value)


def test_a_model_with_arrays_can_be_trained() -> None:
    """Gradients through arrays that a loop and a branch write into, against central differences."""
    model = fluid.load_model(FOLDER / "array_loops.json", scope=Scope())
    (feed,) = arrays_of("array_loops", "in")
    with scope_guard(model.scope), fluid.program_guard(model.program, fluid.Program()):
        block = model.program.global_block()
        for variable in model.program.list_vars():
            variable.stop_gradient = variable.dtype is not VarType.FP32
        x = block.var("x")
        parts = [block.var(variable.name) for variable in model.fetches if variable.dtype is VarType.FP32]
        loss = fluid.layers.sums([fluid.layers.reduce_mean(fluid.layers.square(part)) for part in parts])
        (gradient,) = fluid.gradients(loss, x)
        executor = fluid.Executor()
        (found,) = executor.run(model.program, {"x": feed}, [gradient])

        def value(moved: Any) -> float:
            return float(executor.run(model.program, {"x": moved}, [loss])[0].item())

        for place in np.ndindex(feed.shape):
            step = np.zeros_like(feed)
            step[place] = 0.01
            slope = (value(feed + step) - value(feed - step)) / 0.02
            np.testing.assert_allclose(found[place], slope, rtol=1e-2, atol=1e-2)


def test_gradients_of_loops_and_branches_become_loops_and_branches(tmp_path: Path) -> None:
    """Paddle 3 writes no gradients of blocks; `test_paddle3_oracle` has it run such."""
    scope = Scope()
    with fluid.program_guard(fluid.Program(), fluid.Program()), scope_guard(scope):
        x, end = fluid.data("x", [2, 3]), fluid.layers.fill_constant([1], "int64", 3)
        x.stop_gradient = False
        start = [fluid.layers.fill_constant([1], "int64", 0), x]
        _, y = fluid.layers.while_loop(lambda i, y: i < end, lambda i, y: [i + 1, fluid.layers.tanh(y) * x], start)
        z = fluid.layers.cond(fluid.layers.mean(y) > 0.0, lambda: y * 2.0, lambda: y * y)
        program = fluid.default_main_program()
        gradient = fluid.gradients(fluid.layers.reduce_sum(z), x)[0].name
        program.global_block().create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
        program.global_block().append_op("fetch", {"X": [gradient]}, {"Out": ["fetch"]}, {"col": 0})
        feed = {"x": np.linspace(0.5, 2, 6, dtype="float32").reshape(2, 3)}
        (want,) = fluid.Executor().run(program, feed, [gradient])
        fluid.save_model(tmp_path / "net.json", program)
    model = fluid.load_model(tmp_path / "net.json", scope=scope)
    assert not [op.type for block in model.program.blocks for op in block.ops if op.sub_blocks and op.type.endswith("_grad")]
    (found,) = fluid.Executor().run(model.program, feed, model.fetches, scope=scope)
    np.testing.assert_allclose(found, want, rtol=1e-5)


def looped_gradient() -> PirProgram:
    """``y = tanh(tanh(tanh(x)))`` by a loop, and its gradient by another loop, which pops the values that the first one pushed.

    Paddle 3.0 to 3.3 make such programs, and abort when they should write them.
    """
    floats, count, one = PirType("dtensor", "f32", (2, 3)), PirType("dtensor", "i64", (1,)), PirType("dtensor", "bool", (1,))
    numbers = itertools.count(1)

    def value(type_: PirType) -> PirValue:
        return PirValue(next(numbers), type_)

    def op(kind: str, operands: list[PirValue | None], *types: PirType, **attrs: Attribute) -> PirOp:
        ops.append(PirOp(kind, operands, [value(type_) for type_ in types], attrs))
        return ops[-1]

    def full(number: float, type_: PirType, dtype: str) -> PirValue:
        shape = Attribute("intarray", list(type_.shape))
        described = {"shape": shape, "value": Attribute("f64", number), "dtype": Attribute("dtype", dtype)}
        return op("pd_op.full", [], type_, **described).results[0]

    root = PirBlock()
    ops = root.ops
    (x,) = op("pd_op.data", [], floats, name=Attribute("str", "x")).results
    stack, inlet, outlet = op("cf.stack_create", [], PirType("stack"), PirType("inlet"), PirType("outlet")).results
    start, end, step = (full(number, count, "int64") for number in (0.0, 3.0, 1.0))
    (go,) = op("pd_op.less_than", [start, end], one).results
    body = PirBlock([PirValue(-1, count), PirValue(-2, floats)])
    ops = body.ops
    (y,) = op("pd_op.tanh", [body.args[1]], floats).results
    (i,) = op("pd_op.add", [body.args[0], step], count).results
    (more,) = op("pd_op.less_than", [i, end], one).results
    op("cf.tuple_push", [inlet, y])
    op("cf.yield", [more, i, y])
    ops = root.ops
    loop = op("pd_op.while", [go, start, x], count, floats)
    loop.regions = [body]
    cotangent = full(1.0, floats, "float32")
    (left,) = op("cf.has_elements", [stack], one).results
    back = PirBlock([PirValue(-3, floats)])
    ops = back.ops
    (kept,) = op("cf.tuple_pop", [outlet], floats).results
    (gradient,) = op("pd_op.tanh_grad", [kept, back.args[0]], floats).results
    (more,) = op("cf.has_elements", [stack], one).results
    op("cf.yield", [more, gradient])
    ops = root.ops
    reverse = op("pd_op.while", [left, cotangent], floats)
    reverse.regions = [back]
    for column, result in enumerate((loop.results[1], reverse.results[0])):
        op("pd_op.fetch", [result], floats, col=Attribute("i32", column))
    return PirProgram(root)


def test_stacks_hand_values_from_a_loop_to_its_gradient(tmp_path: Path) -> None:
    (tmp_path / "looped.json").write_bytes(serialize_pir(looped_gradient()))
    model = fluid.load_model(tmp_path / "looped.json", scope=Scope())
    x = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    y, gradient = fluid.Executor().run(model.program, {"x": x}, model.fetches)
    want, slope = x, np.ones_like(x)
    for _ in range(3):
        want = np.tanh(want)
        slope = slope * (1 - want * want)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    np.testing.assert_allclose(gradient, slope, rtol=1e-5)


def test_sizes_below_minus_one_are_unknown(tmp_path: Path) -> None:
    """Paddle 3 multiplies unknown sizes: a cumulative sum over all of [-1, 4] has the shape [-4] in its files."""
    x = fluid.data("x", [None, 4])
    out = x.block.namespace.cumsum(x, flatten=True)
    fluid.save_model(tmp_path / "net.json", feeds=[x], fetches=[out])
    tree = json.loads((tmp_path / "net.json").read_text())
    types = [result["TT"]["D"] for op in tree["program"]["regions"][0]["blocks"][0]["ops"] for result in op["O"]]
    changed = [data for data in types if data[1] == [-1]]
    assert changed
    for data in changed:
        data[1] = [-4]
    (tmp_path / "net.json").write_text(json.dumps(tree))
    model = fluid.load_model(tmp_path / "net.json", scope=fluid.Scope())
    assert model.fetches[0].shape == (-1,)
    numbers = np.arange(8, dtype="float32").reshape(2, 4)
    (result,) = fluid.Executor().run(model.program, {"x": numbers}, model.fetches, scope=model.scope)
    np.testing.assert_array_equal(result, np.cumsum(numbers))


def test_tolerances_that_are_constants(tmp_path: Path) -> None:
    """Paddle 3 has the tolerances of allclose as operands; here they are tensors."""
    x = fluid.data("x", [None, 4])
    close = x.block.namespace.allclose(x, x + 0.5, rtol="0.0", atol="0.7")
    fluid.save_model(tmp_path / "net.json", feeds=[x], fetches=[close])
    model = fluid.load_model(tmp_path / "net.json", scope=fluid.Scope())
    (result,) = fluid.Executor().run(model.program, {"x": np.zeros((2, 4), "float32")}, model.fetches, scope=model.scope)
    assert result.item() is True
