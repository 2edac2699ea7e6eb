"""Edits of programs: their changes, right results afterwards, and no change after a failure."""

from __future__ import annotations

import numpy as np
import pytest
from checks import each
from paths import TESTS

import fluid
from fluid import layers
from fluid.errors import FluidError, FluidTypeError, InferenceError, NameNotFoundError, ProgramError
from fluid.ir.program import Operator, OpRole, Parameter

ZOO = TESTS / "golden" / "zoo"


@pytest.fixture
def executor():
    return fluid.Executor(fluid.CPUPlace())


def main():
    return fluid.default_main_program()


def op_of(program, kind, number=0):
    return [op for block in program.blocks for op in block.ops if op.type == kind][number]


def kinds(program):
    return [op.type for op in program.global_block().ops]


def classifier():
    """Image -> conv, batch_norm, relu -> fc, batch_norm -> fc -> softmax -> loss."""
    image = fluid.data("image", [None, 3, 6, 6])
    label = fluid.data("label", [None, 1], "int64")
    found = layers.batch_norm(layers.conv2d(image, 4, 3, padding=1), act="relu")
    found = layers.batch_norm(layers.fc(layers.dropout(found, 0.3), 8))
    scores = layers.fc(found, 5)
    return image, scores, layers.mean(layers.softmax_with_cross_entropy(scores, label))


def started(executor, seed=0):
    """Run the startup program, and give every persistable value noise, so that mistakes in any of them show."""
    executor.run(fluid.default_startup_program())
    scope, random = fluid.global_scope(), np.random.default_rng(seed)
    for var in sorted(main().list_vars(), key=lambda var: var.name):
        if var.persistable and scope.array(var.name) is not None:
            scope.put(var.name, (np.abs(random.normal(size=var.shape)) * 0.5 + 0.1).astype("float32"))
    return scope


def images(count=4, seed=1):
    return np.random.default_rng(seed).normal(size=(count, 3, 6, 6)).astype("float32")


# ---------------------------------------------------------------------------------------------------- prune and extract
def test_prune_leaves_what_the_targets_need(executor):
    _, scores, _ = classifier()
    started(executor)
    test = main().clone(for_test=True)
    (before,) = executor.run(test, {"image": images()}, [scores.name])
    report = test.prune(["image"], scores)
    assert kinds(test)[-1] == "elementwise_add" and "label" not in test.global_block().vars
    assert report.program is test and report.changed
    assert [line.split(" = ")[1].partition("(")[0] for line in report.removed_ops] == ["softmax_with_cross_entropy", "mean"]
    text = str(report)
    assert text.startswith(f"prune to {scores.name}: 2 ops and 4 variables removed\n  - ")
    assert "  - var label: int64[-1, 1] data" in text
    np.testing.assert_array_equal(executor.run(test, {"image": images()}, [scores.name])[0], before)


def test_prune_says_what_is_missing_and_changes_nothing():
    _, scores, loss = classifier()
    before = main().to_string()
    with pytest.raises(ProgramError, match=r"(?s)'label' is needed, but it is neither.* fed .image..*op: .*cross_entropy"):
        main().prune(["image"], loss)
    with pytest.raises(NameNotFoundError, match="no variable 'lable' is visible in block 0; did you mean label"):
        main().prune(["image", "lable"], loss)
    with pytest.raises(ProgramError, match="nothing to keep: name at least one target"):
        main().prune(["image"], [])
    assert main().to_string() == before
    assert main().prune(None, loss).removed_ops == ()
    assert scores.name in main().global_block().vars


def test_an_edit_that_changes_nothing_says_so():
    _, _, loss = classifier()
    version = main().version
    report = main().rename("image", "image")
    assert not report.changed and str(report).endswith("nothing changed")
    assert loss.block.program.version == version


def test_extract_makes_a_program_of_the_part_between(executor):
    _, scores, _ = classifier()
    hidden = op_of(main(), "relu").output("Out")[0]
    started(executor)
    test = main().clone(for_test=True)
    before = test.to_string()
    middle, whole = executor.run(test, {"image": images()}, [hidden, scores.name])
    report = test.extract(hidden, scores.name)
    assert test.to_string() == before
    part = report.program
    assert "conv2d" not in kinds(part) and part.global_block().var(hidden).is_data
    np.testing.assert_array_equal(executor.run(part, {hidden: middle}, [scores.name])[0], whole)
    assert test.extract([hidden, "label"], scores.name).notes == ("label is not needed",)
    with pytest.raises(ProgramError, match=r"extract .*: 'image' is needed"):
        test.extract([], scores.name)


def test_extract_takes_a_parameter_as_an_input(executor):
    x = fluid.data("x", [2, 3])
    y = layers.fc(x, 2, bias_attr=False)
    (weight,) = main().all_parameters()
    part = main().extract(["x", weight], y).program
    values = {"x": np.ones((2, 3), "float32"), weight.name: np.full((3, 2), 2, "float32")}
    np.testing.assert_array_equal(executor.run(part, values, [y.name])[0], np.full((2, 2), 6))


# ------------------------------------------------------------------------------------------------------------ renaming
def test_rename_reaches_every_block_and_the_attributes_that_hold_names(executor):
    x = fluid.data("x", [2, 4])
    step, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    weight = fluid.ParamAttr(name="w")
    _, out = layers.while_loop(
        lambda i, h: layers.less_than(i, last),
        lambda i, h: [i + 1, layers.fc(h, 4, param_attr=weight, bias_attr=False)],
        [step, x],
    )
    loss = layers.mean(out)
    fluid.optimizer.SGD(0.1).minimize(loss)
    scope = started(executor)
    value = np.asarray(scope.array("w")).copy()
    main().rename({"w": "weight", "w@GRAD": "weight@GRAD", "x": "input"}, scope=scope)
    named = {name for block in main().blocks for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    assert {"weight", "weight@GRAD", "input"} <= named and not {"w", "x"} & named
    assert op_of(main(), "mul").block.idx == 1 and op_of(main(), "mul").input("Y") == ["weight"]
    assert op_of(main(), "sgd").attr(OpRole.VARS) == ["weight", "weight@GRAD"]
    assert main().global_block().var("weight").name == "weight"
    (grad_op,) = (op for op in main().global_block().ops if op.type == "while_grad")
    assert "weight@GRAD" in grad_op.sub_blocks[0].vars and "weight@GRAD" in grad_op.attr("input_grads")
    np.testing.assert_array_equal(np.asarray(scope.array("weight")), value)
    (first,) = executor.run(feed={"input": np.ones((2, 4), "float32")}, fetch_list=[loss])
    assert np.isfinite(first).all() and (np.asarray(scope.array("weight")) != value).any()


def recurrence():
    """(x, a sequence computed from it, the outputs of the steps, their gradient by x)."""
    x = fluid.data("x", [3, 2])
    x.stop_gradient = False
    sequence = layers.tanh(x)
    rnn = layers.StaticRNN()
    with rnn.step():
        step, before = rnn.step_input(sequence), rnn.memory(shape=[2], batch_ref=sequence, init_value=0.5)
        after = layers.tanh(before * step)
        rnn.update_memory(before, after)
        rnn.step_output(after)
    return x, sequence, rnn()


def test_rename_reaches_the_slices_of_a_recurrence(executor):
    """A slice has the name of its sequence, and a step's output the name of the stacked output."""
    x, sequence, out = recurrence()
    (grad,) = fluid.gradients(out, x)
    feed = {"x": np.arange(6, dtype="float32").reshape(3, 2) / 6}
    before = executor.run(feed=feed, fetch_list=[out, grad])
    main().rename({sequence.name: "sequence", out.name: "steps"})
    (op,) = (op for op in main().global_block().ops if op.type == "recurrent")
    assert op.input("inputs") == ["sequence"] and "sequence" in op.sub_blocks[0].vars and op.attr("states") == ["steps"]
    after = executor.run(main(), feed, [out, grad])
    assert [array.tobytes() for array in after] == [array.tobytes() for array in before]


def test_insert_before_a_recurrence(executor):
    _, sequence, out = recurrence()
    main().insert(lambda Out: layers.scale(Out, 2.0), after=sequence)
    feed = {"x": np.arange(6, dtype="float32").reshape(3, 2) / 6}
    (found,) = executor.run(feed=feed, fetch_list=[out])
    state, expected = np.full(2, 0.5), []
    for step in np.tanh(feed["x"]) * 2:
        state = np.tanh(state * step)
        expected.append(state)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_insert_refuses_a_slice_of_a_name_that_the_recurrence_reads(executor):
    """In the block, the slice of the inserted variable would hide the variable that the recurrence reads."""
    x = fluid.data("x", [2, 2])
    sequence, other = layers.tanh(x), layers.exp(x)
    rnn = layers.StaticRNN()
    with rnn.step():
        step, before = rnn.step_input(sequence), rnn.memory(shape=[2], batch_ref=sequence)
        after = layers.elementwise_add(before * step, layers.reduce_sum(other, dim=0))
        rnn.update_memory(before, after)
        rnn.step_output(after)
    text = main().to_string()
    with pytest.raises(ProgramError, match=f"'{other.name}' cannot take the place of '{sequence.name}'"):
        main().insert(lambda **_: {"inputs": [other]}, before=op_of(main(), "recurrent"))
    assert main().to_string() == text


def test_two_names_may_swap():
    x, y = fluid.data("x", [2]), fluid.data("y", [2])
    layers.elementwise_sub(x, y)
    main().rename({"x": "y", "y": "x"})
    assert op_of(main(), "elementwise_sub").inputs == {"X": ["y"], "Y": ["x"]} and x.name == "y"


@each(
    ("arguments", "message"),
    [
        (("image", "label"), "'image' cannot be called 'label': block 0 has such a variable"),
        (("imagine", "other"), "no variable 'imagine' is visible in block 0; did you mean image"),
        (({"image": "z", "label": "z"},), "two variables would be called 'z'"),
        (("image", ""), "'image' cannot be called ''"),
        (("image",), "'image' cannot be called None; give rename"),
    ],
)
def test_names_that_cannot_be(arguments, message):
    classifier()
    before = main().to_string()
    with pytest.raises(ProgramError, match=message):
        main().rename(*arguments)
    assert main().to_string() == before


# -------------------------------------------------------------------------------------------------------------- shapes
def test_set_shape_infers_what_follows():
    image, scores, loss = classifier()
    report = main().set_shape(image, [8, 3, 6, 6])
    assert image.shape == (8, 3, 6, 6) and scores.shape == (8, 5) and loss.shape == (1,)
    assert (f"{scores.name}: float32[-1, 5]", f"{scores.name}: float32[8, 5]") in report.changed_vars
    assert "image: float32[-1, 3, 6, 6] data  ->  image: float32[8, 3, 6, 6] data" in str(report)
    main().set_shape(image, [-1, 3, 6, 6])
    assert scores.shape == (-1, 5)


def test_set_shape_reaches_gradients_and_loops():
    x = fluid.data("x", [None, 4])
    x.stop_gradient = False
    step, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    _, out = layers.while_loop(
        lambda i, h: layers.less_than(i, last), lambda i, h: [i + 1, layers.tanh(h)], [step, layers.scale(x, 2.0)]
    )
    loss = layers.mean(out)
    fluid.append_backward(loss, parameter_list=[x])
    main().set_shape(x, [5, 4])
    assert main().global_block().var("x@GRAD").shape == (5, 4)
    tanh = op_of(main(), "tanh")
    assert tanh.block.idx == 1 and tanh.block.var(tanh.output("Out")[0]).shape == (5, 4)


def test_contradictions_name_both_sides_and_change_nothing():
    image, scores, loss = classifier()
    before = main().to_string()
    for var, shape, message in (
        (image, [8, 2, 6, 6], r"(?s)set_shape of image to .* conv2d: .*\[8, 2, 6, 6\].*has 2 channels, but Filter .*reads 3"),
        (image, [8, 3, 5, 5], r"(?s)mul: .*100.*144"),
        (scores, [8, 6], r"elementwise_add makes .* as float32\[-1, 5\], which contradicts \[8, 6\]"),
        (loss, [3, 1], r"mean makes .* as float32\[1\], which contradicts \[3, 1\]"),
    ):
        with pytest.raises(InferenceError, match=message):
            main().set_shape(var, shape)
    with pytest.raises(ProgramError, match="has a dimension below -1"):
        main().set_shape(image, [-2, 3, 6, 6])
    for odd in ([1.5, 3, 6, 6], "abc", 3):
        with pytest.raises(FluidTypeError, match=r"set_shape: shape should be a list of integers, not "):
            main().set_shape(image, odd)
    assert main().to_string() == before and image.shape == (-1, 3, 6, 6)


def test_ops_that_are_not_well_formed_are_named():
    x = fluid.data("x", [None, 3])
    layers.elementwise_add(x, x)
    main().global_block().ops[0].inputs.pop("Y")
    with pytest.raises(InferenceError, match="does not fit the op elementwise_add: the input slot 'Y' is empty; it needs"):
        main().set_shape(x, [2, 3])


# -------------------------------------------------------------------------------------------------- replace and insert
def test_replace_puts_what_is_built_in_the_place_of_an_op(executor):
    classifier()
    scope = started(executor)
    test = main().clone(for_test=True)
    relu = op_of(test, "relu")
    name, position = relu.output("Out")[0], relu.idx
    (x,) = executor.run(test, {"image": images()}, relu.input("X"))
    report = test.replace(relu, lambda X: layers.elementwise_max(X, layers.scale(X, 0.1)))
    assert kinds(test)[position : position + 2] == ["scale", "elementwise_max"]
    assert len(report.added_ops) == 2 and report.removed_ops[0].endswith(f"= relu(X={relu.input('X')[0]})")
    (y,) = executor.run(test, {"image": images()}, [name], scope=scope)
    np.testing.assert_allclose(y, np.maximum(x, x * np.float32(0.1)), rtol=1e-6)


def test_replaced_layers_have_new_names_and_a_startup_program(executor):
    x = fluid.data("x", [None, 4])
    y = layers.tanh(layers.fc(x, 3))
    executor.run(fluid.default_startup_program())
    with fluid.unique_name.guard():  # as in a process that has only loaded the program
        report = main().replace("fc_0.tmp_0", lambda X, Y: layers.fc(X, 3, bias_attr=False))
    assert "fc_0.w_0" in main().global_block().vars and "fc_1.w_0" in main().global_block().vars
    executor.run(report.startup_program)
    weight = np.asarray(fluid.global_scope().array("fc_1.w_0"))
    (found,) = executor.run(feed={"x": np.eye(4, dtype="float32")}, fetch_list=[y])
    np.testing.assert_allclose(found, np.tanh(weight), rtol=1e-5)


def test_what_a_builder_gives_back_may_exist_already(executor):
    x = fluid.data("x", [3])
    hidden = layers.relu(x)
    out = layers.scale(hidden, 2.0)
    main().replace(hidden, lambda X: X)
    assert kinds(main()) == ["assign", "scale"]
    (found,) = executor.run(feed={"x": np.array([-1, 0, 2], "float32")}, fetch_list=[out])
    assert found.tolist() == [-2, 0, 4]


def test_replace_follows_a_change_of_shape():
    _, scores, loss = classifier()
    main().replace(op_of(main(), "elementwise_add", -1), lambda X, Y: layers.fc(X, 9))
    assert scores.shape == (-1, 9) and loss.shape == (1,)


def test_replacements_that_do_not_fit_change_nothing():
    classifier()
    relu = op_of(main(), "relu")
    before, version = main().to_string(), main().version

    def broken(X):
        layers.tanh(X)
        raise KeyError("in the builder")

    for which, builder, error, message in (
        (relu, lambda X: layers.reshape(X, [-1, 4, 4, 8]), InferenceError, "mul"),
        (relu, lambda X: None, ProgramError, "the builder should return what takes the place"),
        (relu, lambda X: {"Oat": X}, ProgramError, "'Oat' cannot be .* the op's output slots hold variables so: Out"),
        (relu, lambda X: "x", ProgramError, "'Out' cannot be 'x'"),
        (relu, broken, KeyError, "in the builder"),
        ("nowhere", layers.relu, ProgramError, "no variable 'nowhere'"),
        ("image", layers.relu, ProgramError, "no op writes 'image'"),
        (99, layers.relu, ProgramError, r"there is no op 99: block 0 has \d+ ops"),
        (2.5, layers.relu, ProgramError, "an op is given as an Operator, a position"),
        (Operator(main().global_block(), "relu", {}, {}, {}), layers.relu, ProgramError, "is not in this program"),
    ):
        with pytest.raises(error, match=message):
            main().replace(which, builder)
        assert main().to_string() == before
    assert main().version >= version


def test_all_that_is_read_must_be_replaced():
    x = fluid.data("x", [4, 3])
    _, indices = layers.topk(x, 2)
    layers.cast(indices, "float32")
    with pytest.raises(ProgramError, match=r"nothing takes the place of its output Indices .*return a dict"):
        main().replace(op_of(main(), "top_k_v2" if "top_k_v2" in kinds(main()) else "top_k"), lambda X: {"Out": X})


def test_forward_ops_under_gradients_stay():
    _, _, loss = classifier()
    relu = op_of(main(), "relu")
    fluid.optimizer.SGD(0.1).minimize(loss)
    with pytest.raises(ProgramError, match=r"replace relu: the program has \d+ gradient ops, made from the forward ops"):
        main().replace(relu, lambda X: layers.tanh(X))
    with pytest.raises(ProgramError, match=r"fold its clone"):
        main().fold_batch_norm()
    with pytest.raises(ProgramError, match=r"fold its clone"):
        main().fold_constants(fluid.global_scope())


def test_insert_between_an_op_and_its_readers(executor):
    x = fluid.data("x", [3])
    hidden = layers.scale(x, 3.0)
    a, b = layers.scale(hidden, 1.0, bias=1.0), layers.relu(hidden)
    report = main().insert(lambda Out: layers.scale(Out, 10.0), after=hidden)
    assert len(report.added_ops) == 1 and len(report.changed_ops) == 2
    feed = {"x": np.array([1, -2, 0], "float32")}
    found = executor.run(feed=feed, fetch_list=[hidden, a, b])
    assert [value.tolist() for value in found] == [[3, -6, 0], [31, -59, 1], [30, 0, 0]]
    main().insert(lambda X: layers.scale(X, 0.5), before=b)
    assert executor.run(feed=feed, fetch_list=[a, b])[1].tolist() == [15, 0, 0]


def test_insert_stops_where_a_name_is_overwritten(executor):
    x = fluid.data("x", [2])
    y = layers.scale(x, 1.0)
    first = layers.scale(y, 1.0)
    layers.assign(layers.scale(x, 5.0), output=y)
    second = layers.scale(y, 1.0)
    main().insert(lambda Out: layers.scale(Out, 10.0), after=0)
    found = executor.run(feed={"x": np.ones(2, "float32")}, fetch_list=[first, second])
    assert [value.tolist() for value in found] == [[10, 10], [5, 5]]


def test_insert_reaches_into_loops_but_not_past_overwriting_there():
    x = fluid.data("x", [2])
    bias, total = layers.scale(x, 1.0), layers.scale(x, 2.0)
    step, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    go = layers.less_than(step, last)
    with layers.While(go).block():
        layers.assign(layers.elementwise_add(total, bias), output=total)
        layers.increment(step)
        layers.less_than(step, last, cond=go)
    main().insert(lambda Out: layers.scale(Out, 10.0), after=bias)
    add = op_of(main(), "elementwise_add")
    assert add.block.idx == 1 and bias.name not in add.input_arg_names and total.name in add.input_arg_names
    before = main().to_string()
    with pytest.raises(ProgramError, match="is overwritten in block 1"):
        main().insert(lambda Out: layers.scale(Out, 10.0), after=op_of(main(), "scale", 2))
    assert main().to_string() == before


def test_insert_without_a_result_only_adds(executor):
    x = fluid.data("x", [2])
    y = layers.scale(x, 2.0)

    def more(X):
        layers.fill_constant([1], "float32", 7)

    main().insert(more, before=y)
    assert kinds(main()) == ["fill_constant", "scale"] and op_of(main(), "scale").input("X") == ["x"]
    for wrong in ({}, {"before": y, "after": y}):
        with pytest.raises(ProgramError, match="say before=op or after=op"):
            main().insert(lambda **_: None, **wrong)


# ------------------------------------------------------------------------------------------------------------- folding
def test_constants_are_computed_beforehand(executor):
    x = fluid.data("x", [None, 6])
    table = layers.reshape(layers.range(0, 6, 1, "float32"), [2, 3])
    out = layers.elementwise_add(x, layers.reshape(layers.scale(table, 2.0), [6]))
    noise = layers.uniform_random([2], seed=3)
    feed = {"x": np.ones((2, 6), "float32")}
    before = executor.run(feed=feed, fetch_list=[out, noise])
    report = main().fold_constants()
    assert kinds(main()) == ["assign_value", "elementwise_add", "uniform_random"]
    assert len(report.removed_ops) > 3 and not report.values
    for a, b in zip(executor.run(feed=feed, fetch_list=[out, noise]), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not main().fold_constants().changed


def test_weights_count_as_constants_where_a_scope_is_given(executor):
    x = fluid.data("x", [None, 3])
    y = layers.matmul(x, layers.transpose(layers.create_parameter([2, 3], "float32", name="w"), [1, 0]))
    scope = started(executor)
    (before,) = executor.run(feed={"x": np.eye(3, dtype="float32")}, fetch_list=[y])
    assert not main().fold_constants().changed
    report = main().fold_constants(scope)
    assert len(kinds(main())) == 1 and len(report.values) == 1 and "w" not in main().global_block().vars
    np.testing.assert_array_equal(scope.array(report.values[0]), np.asarray(scope.array("w")).T)
    np.testing.assert_array_equal(executor.run(feed={"x": np.eye(3, dtype="float32")}, fetch_list=[y])[0], before)


def test_what_is_large_or_overwritten_is_not_folded():
    x = fluid.data("x", [1])
    large = layers.scale(layers.fill_constant([64, 64], "float32", 1), 2.0)
    counter = layers.fill_constant([1], "float32", 0)
    layers.increment(counter)
    layers.elementwise_add(layers.reduce_sum(large), layers.elementwise_add(counter, x))
    before = kinds(main())
    main().fold_constants()
    assert before.count("fill_constant") == 2
    assert kinds(main()) == ["fill_constant", "increment", "fill_constant", "elementwise_add", "elementwise_add"]


def test_a_file_cannot_make_folding_fill_the_memory():
    block = main().global_block()
    for index, shape in enumerate([[1 << 40], *[[1 << 20]] * 40]):
        made, used = (block.create_var(name=f"{kind}{index}", dtype="float32") for kind in ("made", "used"))
        block.append_op("fill_constant", {}, {"Out": made}, {"shape": shape, "value": 1.0, "dtype": 5})
        made.shape = [1]  # a lie
        block.append_op("reduce_sum", {"X": made}, {"Out": used}, {"reduce_all": True})
    main().fold_constants()
    left = [op.type for op in block.ops]
    assert left[:2] == ["fill_constant", "reduce_sum"] and 20 < left.count("reduce_sum") < 41


def test_batch_norm_is_folded_into_convolutions_and_products(executor):
    _, scores, _ = classifier()
    scope = started(executor)
    test = main().clone(for_test=True)
    test.prune(["image"], scores)
    (before,) = executor.run(test, {"image": images()}, [scores.name])
    names = set(scope.local_var_names())
    old = {name: np.asarray(scope.array(name)).copy() for name in names}
    report = test.fold_batch_norm(scope)
    assert "batch_norm" not in kinds(test) and not report.notes
    assert set(report.values) == set(scope.local_var_names()) - names and len(report.values) == 4
    (after,) = executor.run(test, {"image": images()}, [scores.name])
    np.testing.assert_allclose(after, before, rtol=2e-5, atol=1e-5)
    assert np.abs(before).max() > 0.1
    for name, value in old.items():  # whoever else uses them
        np.testing.assert_array_equal(np.asarray(scope.array(name)), value)


@pytest.mark.parametrize("kind", ["depthwise", "nhwc", "no bias", "matmul_v2"])
def test_batch_norm_folds_in_every_layout(executor, kind):
    if kind == "matmul_v2":
        x = fluid.data("x", [None, 5])
        weight = layers.create_parameter([3, 5], "float32", name="w")
        y = fluid.extend.ops().matmul_v2(x, weight, trans_y=True)
        feed = np.random.default_rng(0).normal(size=(4, 5))
    elif kind == "nhwc":
        x = fluid.data("x", [None, 6, 6, 4])
        y = layers.conv2d(x, 4, 3, data_format="NHWC")
        feed = np.random.default_rng(0).normal(size=(2, 6, 6, 4))
    else:
        x = fluid.data("x", [None, 4, 6, 6])
        groups = 4 if kind == "depthwise" else 1
        y = layers.conv2d(x, 4, 3, groups=groups, use_cudnn=False, bias_attr=False if kind == "no bias" else None)
        feed = np.random.default_rng(0).normal(size=(2, 4, 6, 6))
    out = layers.batch_norm(y, is_test=True, data_layout="NHWC" if kind == "nhwc" else "NCHW")
    scope = started(executor)
    feed = {"x": feed.astype("float32")}
    (before,) = executor.run(feed=feed, fetch_list=[out])
    report = main().fold_batch_norm(scope)
    assert "batch_norm" not in kinds(main()), report.notes
    np.testing.assert_allclose(executor.run(feed=feed, fetch_list=[out])[0], before, rtol=2e-5, atol=2e-5)


def test_batch_norms_that_stay_say_why(executor):
    x = fluid.data("x", [None, 4, 5, 5])
    y = layers.conv2d(x, 4, 3)
    layers.batch_norm(y)
    z = layers.conv2d(x, 4, 3, bias_attr=False)
    layers.batch_norm(z, is_test=True)
    layers.mean(z)
    layers.batch_norm(layers.relu(x), is_test=True)
    started(executor)
    report = main().fold_batch_norm()
    assert not report.changed
    for note, why in zip(
        report.notes,
        ("statistics of each batch; clone", "is read by other ops than batch_norm, too", "relu comes before it"),
        strict=True,
    ):
        assert why in note


def test_folding_needs_the_values():
    x = fluid.data("x", [None, 4, 5, 5])
    layers.batch_norm(layers.conv2d(x, 4, 3), is_test=True)
    before = main().to_string()
    with pytest.raises(ProgramError, match="has no value in the scope; load it first"):
        main().fold_batch_norm()
    assert main().to_string() == before


# ---------------------------------------------------------------------------------------------------------- fine-tuning
def loaded(executor):
    return fluid.io.load_inference_model(str(ZOO / "lenet" / "model"), executor)


def tune(executor, program, fetch, steps=12):
    """Append a loss to a loaded program and train: the losses."""
    startup = fluid.Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard("tuned_"):
        label = fluid.data("label", [None, 1], "int64")
        loss = layers.mean(layers.softmax_with_cross_entropy(fetch, label))
        fluid.optimizer.Adam(0.01).minimize(loss)
    executor.run(startup)
    random = np.random.default_rng(0)
    feed = {"img": random.normal(size=(16, 1, 28, 28)).astype("float32"), "label": random.integers(0, 10, (16, 1))}
    return [float(np.asarray(executor.run(program, feed, [loss])[0]).item()) for _ in range(steps)]


def test_a_recurrence_over_what_is_fed_is_pruned(executor):
    """In its block, a slice has the name of the sequence, and is no data."""
    x, first = fluid.data("x", [5, 2, 3]), fluid.data("first", [2, 3])
    rnn = layers.StaticRNN()
    with rnn.step():
        row, state = rnn.step_input(x), rnn.memory(init=first)
        after = layers.tanh(row * state)
        rnn.update_memory(state, after)
        rnn.step_output(after)
    out = layers.relu(rnn())
    layers.exp(out)
    main().prune(None, [out])
    assert kinds(main()) == ["recurrent", "relu"]


def test_a_loaded_model_learns(executor):
    program, _, (fetch,) = loaded(executor)
    report = program.make_trainable()
    assert not {"feed", "fetch"} & set(kinds(program))
    assert op_of(program, "batch_norm").attr("is_test") is False
    assert "is_test=True" in str(report)
    scope = fluid.global_scope()
    names = [parameter.name for parameter in program.all_parameters()]
    assert len(names) == 10 and "batch_norm_0.w_1" not in names
    before = {name: np.asarray(scope.array(name)).copy() for name in [*names, "batch_norm_0.w_1"]}
    losses = tune(executor, program, fetch)
    assert losses[-1] < losses[0] / 2
    for name, value in before.items():
        assert (np.asarray(scope.array(name)) != value).any(), name


def test_only_what_matches_is_trained(executor):
    program, _, (fetch,) = loaded(executor)
    report = program.make_trainable(["fc_1.*", "conv2d_1*"])
    chosen = {"fc_1.w_0", "fc_1.b_0", "conv2d_1.w_0", "conv2d_1.b_0"}
    assert {parameter.name for parameter in program.all_parameters() if parameter.trainable} == chosen
    assert "keeps its statistics" in report.notes[0] and op_of(program, "batch_norm").attr("use_global_stats")
    scope = fluid.global_scope()
    names = [var.name for var in program.list_vars() if var.persistable]
    before = {name: np.asarray(scope.array(name)).copy() for name in names}
    tune(executor, program, fetch, steps=2)
    assert {name for name in names if (np.asarray(scope.array(name)) != before[name]).any()} == chosen


def test_variables_that_a_file_calls_persistable_only_become_parameters(executor):
    x = fluid.data("x", [None, 3])
    root = main().global_block()
    root.create_var(name="w", shape=[3, 2], dtype="float32", persistable=True, stop_gradient=True)
    hidden = layers.mul(x, root.var("w"))
    hidden.stop_gradient = True
    main().make_trainable("w")
    assert isinstance(root.var("w"), Parameter) and not hidden.stop_gradient
    assert fluid.append_backward(layers.mean(hidden))[0][0].name == "w"


def test_outputs_that_an_inference_program_lacks_are_added(executor):
    x = fluid.data("x", [None, 4])
    out = layers.dropout(layers.fc(x, 4), 0.5, is_test=True)
    op_of(main(), "dropout").outputs.pop("Mask")
    main().make_trainable()
    assert op_of(main(), "dropout").output("Mask") == [f"{out.name}.Mask"] and not op_of(main(), "dropout").attr("is_test")
    fluid.optimizer.SGD(0.1).minimize(layers.mean(out))
    executor.run(fluid.default_startup_program())
    executor.run(feed={"x": np.ones((2, 4), "float32")})


@each("in_place", [True, False])
@each("file_name", ["net.pdmodel", "net.json", "net.onnx"])
def test_running_statistics_that_later_ops_read_are_constants(executor, tmp_path, in_place, file_name):
    """No gradient reaches a batch_norm through MeanOut and VarianceOut, which may have names of their own in a file."""
    if file_name == "net.onnx":
        pytest.importorskip("onnx")
    x = fluid.data("x", [None, 4])
    root = main().global_block()
    values = {"Scale": 1.0, "Bias": 0.1, "Mean": 0.2, "Variance": 1.5}
    inputs = {"X": layers.mul(x, layers.create_parameter([4, 3], "float32", name="w"))}
    for slot, value in values.items():
        inputs[slot] = layers.create_parameter([3], "float32", name=slot, default_initializer=fluid.initializer.Constant(value))
    outputs = {slot: root.create_var(name=slot) for slot in ("Y", "SavedMean", "SavedVariance")}
    for slot in ("Mean", "Variance"):
        outputs[f"{slot}Out"] = inputs[slot] if in_place else root.create_var(name=f"{slot}Out")
    root.append_op("batch_norm", inputs, outputs, {"is_test": True, "momentum": 0.5})
    y = layers.elementwise_mul(outputs["Y"] + outputs["MeanOut"], outputs["VarianceOut"])
    executor.run(fluid.default_startup_program())
    fed = np.arange(12, dtype="float32").reshape(3, 4) / 8
    (before,) = executor.run(feed={"x": fed}, fetch_list=[y])
    fluid.save_model(tmp_path / file_name, main(), feeds=[x], fetches=[y])
    scope = fluid.Scope()
    model = fluid.load_model(tmp_path / file_name, scope=scope)
    (again,) = executor.run(model.program, {"x": fed}, model.fetches, scope=scope)
    np.testing.assert_allclose(again, before, rtol=1e-5, atol=1e-6)
    if file_name == "net.onnx":  # the statistics are weights of a formula there
        return
    w, mean, variance = (np.array(scope.array(name)) for name in ("w", "Mean", "Variance"))
    model.program.make_trainable(scope=scope)
    with fluid.program_guard(model.program, fluid.Program()):
        loss = layers.mean(model.program.global_block().var(model.fetches[0].name))
        _, pairs = fluid.optimizer.SGD(0.1).minimize(loss)
        startup = fluid.default_startup_program()
    assert sorted(parameter.name for parameter, _ in pairs) == ["Bias", "Scale", "w"]
    executor.run(startup, scope=scope)
    grads = executor.run(model.program, {"x": fed}, [grad for _, grad in pairs], scope=scope)
    result = {parameter.name: grad for (parameter, _), grad in zip(pairs, grads, strict=True)}
    hidden = fed @ w
    mean = 0.5 * mean + 0.5 * hidden.mean(0)
    variance = 0.5 * variance + 0.5 * hidden.var(0)
    np.testing.assert_allclose(scope.array("Mean"), mean, rtol=1e-5)
    np.testing.assert_allclose(scope.array("Variance"), variance, rtol=1e-5)
    np.testing.assert_allclose(result["Bias"], variance / 3, rtol=1e-5)  # of Y + MeanOut only Y has a gradient
    np.testing.assert_allclose(result["w"], np.zeros((4, 3)), atol=1e-5)  # the mean of the normalized values is 0, whatever w is
    fluid.save_model(tmp_path / f"after_{file_name}", model.program, feeds=["x"], fetches=model.fetches, scope=scope)
    again = fluid.load_model(tmp_path / f"after_{file_name}", scope=fluid.Scope())
    (result,) = executor.run(again.program, {"x": fed}, again.fetches, scope=again.scope)
    assert result.shape == (3, 3)


def test_weights_that_nobody_has(executor):
    program, _, _ = loaded(executor)
    before = program.to_string()
    with pytest.raises(ProgramError, match=r"no weight is called 'fc_9.*'; there are 10, such as"):
        program.make_trainable("fc_9.*")
    assert program.to_string() == before
    program.make_trainable()
    with fluid.program_guard(program), fluid.unique_name.guard("tuned_"):
        fluid.optimizer.SGD(0.1).minimize(layers.mean(program.global_block().var("fc_1.tmp_1")))
    with pytest.raises(ProgramError, match="for training already"):
        program.make_trainable()


# --------------------------------------------------------------------------------------------------------------- clones
@each("rate", ["constant", "decay", "piecewise"])
@each("kind", ["plain", "loop", "branch"])
def test_a_clone_for_tests_is_the_same_before_and_after_minimize(kind, rate):
    x, label = fluid.data("x", [4, 6]), fluid.data("label", [4, 1], "int64")
    found = x
    if kind == "loop":
        step, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
        weight = fluid.ParamAttr(name="w")
        _, found = layers.while_loop(
            lambda i, h: layers.less_than(i, last),
            lambda i, h: [i + 1, layers.dropout(layers.fc(h, 6, param_attr=weight), 0.5)],
            [step, x],
        )
    elif kind == "branch":
        below = layers.less_than(layers.reduce_sum(x), layers.fill_constant([1], "float32", 0.0))
        found = layers.cond(below, lambda: layers.fc(x, 6), lambda: layers.dropout(layers.fc(x, 6, act="relu"), 0.2))
    found = layers.batch_norm(layers.fc(found, 8))
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(found, 5), label))
    before = main().clone(for_test=True)
    rates = {
        "constant": lambda: 0.1,
        "decay": lambda: layers.exponential_decay(0.1, 10, 0.9),
        "piecewise": lambda: layers.piecewise_decay([3, 6], [0.1, 0.01, 0.001]),
    }
    fluid.optimizer.Adam(rates[rate](), regularization=fluid.regularizer.L2Decay(0.1)).minimize(loss)
    after = main().clone(for_test=True)
    assert after.to_string() == before.to_string()
    after.verify()


# --------------------------------------------------------------------------------------------------------- all or none
def test_a_result_that_is_not_well_formed_is_taken_back():
    from fluid.transform.edit import Edit

    classifier()
    before = main().to_string()
    with (
        pytest.raises(ProgramError, match=r"(?s)breaking: the result would not be well formed.*that no visible block declares"),
        Edit(main(), "breaking"),
    ):
        main().global_block().vars.pop("image")
    assert main().to_string() == before


def test_faults_that_were_there_are_nobodys_fault():
    x = fluid.data("x", [2])
    layers.scale(x)
    main().global_block().ops.append(Operator(main().global_block(), "odd", {"X": ["nowhere"]}, {}, {}))
    main().rename("x", "y")
    assert op_of(main(), "scale").input("X") == ["y"]


def test_an_edited_program_is_compiled_anew(executor):
    x = fluid.data("x", [2])
    y = layers.scale(x, 2.0)
    feed = {"x": np.ones(2, "float32")}
    assert executor.run(feed=feed, fetch_list=[y])[0].tolist() == [2, 2]
    main().replace(y, lambda X: layers.scale(X, 3.0))
    assert executor.run(feed=feed, fetch_list=[y])[0].tolist() == [3, 3]


# --------------------------------------------------------------------------------------------------- what cannot run
def odd_program():
    x = fluid.data("x", [2])
    block = main().global_block()
    for index, kind in enumerate(["odd", "scale", "odd", "strange"]):
        block.create_var(name=f"o{index}", shape=[2], dtype="float32")
        block.append_op(kind, {"X": "x" if not index else f"o{index - 1}"}, {"Out": f"o{index}"})
    return x


def test_what_cannot_run_is_listed_before_anything_runs(executor):
    odd_program()
    found = main().unsupported_ops()
    assert [(item.type, item.count, item.block, item.position) for item in found] == [("odd", 2, 0, 0), ("strange", 1, 0, 3)]
    assert str(found[0]).startswith("the op odd is not known here, so it cannot run; 2 times, first as op 0 of block 0, made at ")
    feed = {"x": np.ones(2, "float32")}
    with pytest.raises(FluidError, match=r"(?s)2 kinds of ops of the program cannot run:\n  - the op odd .*\n  - the op strange"):
        executor.run(feed=feed, fetch_list=["o3"])
    with pytest.raises(FluidError, match="the op odd is not known here, so it cannot run; once, first as op 0 of block 0"):
        executor.run(feed=feed, fetch_list=["o0"])


def test_a_program_from_a_file_runs_no_python_unless_it_may(executor):
    x = fluid.data("x", [2])
    out = main().global_block().create_var(name="out", shape=[2], dtype="float32")
    calls = []
    layers.py_func(lambda value: calls.append(1) or np.asarray(value) * 2, x, out)
    feed = {"x": np.ones(2, "float32")}
    assert executor.run(feed=feed, fetch_list=[out])[0].tolist() == [2, 2]
    again = fluid.Program.parse_from_string(main().serialize_to_string())
    seen = len(calls)
    for run in (executor.run, executor.interpret):
        with pytest.raises(FluidError, match="the op py_func runs code of the process, which a program from a file may do only"):
            run(again, feed, ["out"])
    assert len(calls) == seen
    again.allowed_ops = frozenset({"py_func"})
    assert executor.run(again, feed, ["out"])[0].tolist() == [2, 2]


def test_ops_of_files_that_reach_out_need_to_be_allowed(monkeypatch):
    from fluid.executor.stepwise import unsupported

    odd_program()
    monkeypatch.setitem(unsupported.REACHES_OUT, "scale", "writes files")
    assert [item.type for item in main().unsupported_ops()] == ["odd", "strange"]  # built here: what the user wanted
    for again in (
        fluid.Program.parse_from_string(main().serialize_to_string()),
        fluid.text.parse_program_text(main().to_string()),
    ):
        found = again.unsupported_ops()
        assert [item.type for item in found] == ["odd", "scale", "strange"]
        assert "writes files, which a program from a file may do only where its allowed_ops name it" in str(found[1])
        assert [item.type for item in again.clone().unsupported_ops(allow=["scale"])] == ["odd", "strange"]
        again.allowed_ops = frozenset({"scale"})
        assert [item.type for item in again.clone().unsupported_ops()] == ["odd", "strange"]
