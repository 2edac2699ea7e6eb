"""Programs in other versions' ops: each row of the table is tested, and inexpressible programs are listed."""

from __future__ import annotations

import numpy as np
import pytest
from checks import each
from paths import TESTS

import fluid
from fluid import layers
from fluid.errors import ProgramError
from fluid.ir.program import Operator
from fluid.proto import ProgramDesc
from fluid.transform.op_versions import TABLE, TARGETS, Row, convert, known_ops

ZOO = TESTS / "golden" / "zoo"
RANDOM = np.random.default_rng(0)


def main():
    return fluid.default_main_program()


def ops():
    return fluid.extend.ops()


def data(name, shape, dtype="float32"):
    return fluid.data(name, shape, dtype)


def append(kind, inputs, attrs, **outputs):
    """An op that no layer makes; of its outputs, given by slot with their dtypes, the first."""
    block = main().global_block()
    known = fluid.ops.registry.find(kind)
    slots = [slot for slot in outputs if known is None or slot in known.outputs]
    written = {slot: block.create_var(name=f"made_{slot}", dtype=outputs[slot]) for slot in slots}
    block.append_op(kind, inputs, written, attrs)
    return next(iter(written.values()))


def ids(shape, high):
    return RANDOM.integers(0, high, shape)


# For each row that rewrites: builds a program of the op; gives its output, the feed, and the types of ops that it becomes.
def matmul_v2():
    return ops().matmul_v2(data("x", [2, 3, 4]), data("y", [5, 4]), trans_y=True), ["matmul"]


def bmm():
    return ops().bmm(data("x", [2, 3, 4]), data("y", [2, 4, 5])), ["matmul"]


def top_k_v2():
    return append("top_k_v2", {"X": data("x", [3, 6])}, {"k": 2, "axis": -1}, Out="float32", Indices="int64"), ["top_k"]


def tile():
    return ops().tile(data("x", [2, 3]), repeat_times=[2, 1]), ["expand"]


def expand_v2():
    return ops().expand_v2(data("x", [2, 1, 3]), shape=[-1, 4, 3]), ["expand"]


def flatten_contiguous_range():
    x = data("x", [2, 3, 4, 5])
    first = ops().flatten_contiguous_range(x, start_axis=1, stop_axis=-1)
    second = ops().flatten_contiguous_range(x, start_axis=1, stop_axis=2)
    return layers.reduce_sum(first) + layers.reduce_sum(second * second), ["flatten2", "reshape2"]


def silu():
    return ops().silu(data("x", [3, 4])), ["swish"]


def lars_momentum():
    inputs = {slot: data(slot.lower(), [3]) for slot in ("Param", "Grad", "Velocity")}
    inputs["LearningRate"] = data("rate", [1])
    return append("lars_momentum", inputs, {"mu": 0.9}, ParamOut="float32", VelocityOut="float32"), ["lars_momentum"]


def interp(kind, shape, size):
    names = ("out_h", "out_w") if len(size) == 2 else ("out_d", "out_h", "out_w")
    x, attrs = data("x", shape), dict(zip(names, size, strict=True))
    return append(f"{kind}_interp_v2", {"X": x}, {**attrs, "interp_method": kind, "align_corners": True}, Out="float32"), [
        f"{kind}_interp"
    ]


def bilinear_interp_v2():
    return interp("bilinear", [1, 2, 4, 4], [8, 8])


def nearest_interp_v2():
    return interp("nearest", [1, 2, 4, 4], [8, 8])


def trilinear_interp_v2():
    return interp("trilinear", [1, 2, 3, 4, 4], [6, 8, 8])


def fill_constant():
    x = data("x", [2])
    made = append(
        "fill_constant", {}, {"shape": [2], "dtype": 5, "value": 0.0, "str_value": "2.5", "place_type": -1}, Out="float32"
    )
    return layers.elementwise_add(x, made), ["fill_constant", "elementwise_add"]


def one_hot():
    return append("one_hot", {"X": data("i", [4, 1], "int64")}, {"depth": 5}, Out="float32"), ["squeeze2", "one_hot_v2"]


def unsqueeze():
    return append("unsqueeze", {"X": data("x", [2, 3])}, {"axes": [1]}, Out="float32"), ["unsqueeze2"]


def isfinite():
    return append("isfinite", {"X": data("x", [2, 3])}, {}, Out="bool"), ["isfinite_v2", "reduce_all"]


def expand_as():
    x, target = data("x", [2, 1]), data("y", [2, 3])
    return append("expand_as", {"X": x, "target_tensor": target}, {}, Out="float32"), ["expand_as_v2"]


def expand_to():
    x, like = data("x", [3]), data("y", [2, 3])
    return append("expand_to", {"X": x, "Like": like}, {}, Out="float32") * like, ["expand_as_v2"]


def read_from_array():
    x, zero = data("x", [2, 3]), layers.fill_constant([1], "int64", 0)
    array = layers.array_write(layers.exp(x), layers.fill_constant([1], "int64", 1))
    skipped = append("read_from_array", {"X": array, "I": zero, "X_W": x}, {}, Out="float32")
    kinds = ["write_to_array", "fill_any_like", "write_to_array", "sum", "read_from_array"]
    return skipped + x, kinds


def split_array():
    x, first = data("x", [2, 3]), layers.fill_constant([1], "int64", 0)
    array = layers.array_write(layers.exp(x), first)
    parts = main().global_block().create_var(name="parts", type=array.type, shape=[2, 3], dtype="float32")
    main().global_block().append_op("split_array", {"X": x, "Like": array}, {"Out": parts}, {"axis": 0, "use_stack": False})
    return layers.array_read(parts, first), ["tensor_array_to_tensor_grad"]


def rnn_memory_helper():
    return append("rnn_memory_helper", {"X": data("x", [2, 3])}, {}, Out="float32"), ["assign"]


def rnn_memory_helper_grad():
    x = data("x", [2, 3])
    x.stop_gradient = False
    copied = append("rnn_memory_helper", {"X": x}, {}, Out="float32")
    (gradient,) = fluid.gradients(layers.square(copied), [x])
    return gradient, ["assign", "square", "square_grad", "assign"]


REWRITTEN = {
    "paddle-1.6": [
        matmul_v2, bmm, top_k_v2, tile, expand_v2, flatten_contiguous_range, silu, bilinear_interp_v2, nearest_interp_v2,
        trilinear_interp_v2, fill_constant, lars_momentum,
    ],
    "paddle-2.6": [
        one_hot, unsqueeze, isfinite, expand_as, expand_to, read_from_array,
        split_array, rnn_memory_helper, rnn_memory_helper_grad,
    ],
}  # fmt: skip


@each(("target", "build"), [(target, build) for target, builds in REWRITTEN.items() for build in builds])
def test_a_rewritten_op_computes_the_same(target, build):
    out, expected = build()
    before = main().to_string()
    feed = {}
    for name, var in main().global_block().vars.items():
        if var.is_data:
            feed[name] = ids(var.shape, 5) if name == "i" else RANDOM.normal(size=var.shape).astype("float32")
    new = convert(main(), target).program
    new.verify()
    assert main().to_string() == before
    kinds = [op.type for op in new.global_block().ops]
    assert [kind for kind in kinds if kind in expected] == expected and set(kinds) <= known_ops(target)
    executor = fluid.Executor(fluid.CPUPlace())
    (want,) = executor.run(main(), feed, [out])
    (got,) = executor.run(new, feed, [out.name])
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_every_rewriting_row_is_tried():
    """`tests/paddle/test_written_for_paddle.py` tests the rows of Paddle 2.6 and 3 with the samples of their ops."""
    for target, builds in REWRITTEN.items():
        rewriting = {kind for kind, row in TABLE[target].items() if row.rewrite is not None}
        tried = {build.__name__ for build in builds}
        assert tried == rewriting if target == "paddle-1.6" else tried <= rewriting
    assert set(TABLE) == set(TARGETS)


def another(value):
    """A value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value + "x"
    return [*value, 1] if isinstance(value, list) else value + 4


PLAIN_ROWS = [(target, row) for target in TARGETS for row in TABLE[target].values() if row.attrs or row.slots]


@each(("target", "row"), PLAIN_ROWS, ids=[row.type for _, row in PLAIN_ROWS])
def test_newer_attributes_and_slots_are_left_out_or_refused(target: str, row: Row):
    assert row.type in known_ops(target)
    block = main().global_block()

    def program_with(attrs, inputs=()):
        block.ops[:] = [Operator(block, row.type, {slot: ["v"] for slot in inputs}, {}, dict(attrs))]
        return main()

    block.create_var(name="v", shape=[1], dtype="float32")
    (op,) = convert(program_with(row.attrs), target).program.global_block().ops
    assert op.type == row.type and not set(op.attrs) & set(row.attrs)
    for name, neutral in row.attrs.items():
        message = rf"for {target}:\n  - {row.type}: its attribute {name} is .*, and {target} has no such attribute"
        with pytest.raises(ProgramError, match=message):
            convert(program_with({name: another(neutral)}), target)
    for slot in row.slots:
        if slot != "ReserveSpace":
            with pytest.raises(ProgramError, match=f"its input {slot} is given, and {target} has no such input"):
                convert(program_with({}, [slot]), target)


def test_workspaces_are_left_out():
    x = data("x", [2, 3, 4, 4])
    out = layers.batch_norm(x)
    block = main().global_block()
    block.create_var(name="space", shape=[0], dtype="float32")
    block.ops[0].outputs["ReserveSpace"] = ["space"]
    new = convert(main(), "paddle-1.6").program
    assert "ReserveSpace" not in new.global_block().ops[0].outputs and "space" not in new.global_block().vars
    assert new.global_block().var(out.name).shape == (2, 3, 4, 4)


def test_all_that_cannot_be_said_is_listed_at_once():
    x = data("x", [2, 3, 4])
    ops().matmul_v2(x, data("y", [4]))
    ops().mish(x)
    ops().mish(ops().mish(x))
    append("top_k_v2", {"X": x}, {"k": 2, "axis": 1}, Out="float32", Indices="int64")
    before = main().to_string()
    with pytest.raises(ProgramError) as caught:
        convert(main(), "paddle-1.6")
    assert str(caught.value).splitlines() == [
        "the program cannot be written for paddle-1.6:",
        "  - matmul_v2: it multiplies a vector (once, first as op 0 of block 0)",
        "  - mish: paddle-1.6 does not know it (3 times, first as op 1 of block 0)",
        "  - top_k_v2: it looks along axis 1, not along the last one (once, first as op 4 of block 0)",
    ]
    assert main().to_string() == before
    assert not convert(main(), "paddle-2.6").changed


def made(kind, inputs, **attrs):
    """Builds an op of this kind on float data of these shapes."""

    def build():
        append(kind, {slot: data(f"x_{slot}", shape) for slot, shape in inputs.items()}, attrs, Out="float32", Indices="int64")

    build.__name__ = kind
    return build


@each(
    ("build", "why"),
    [
        (made("matmul_v2", {"X": [2, 3, 4], "Y": [1, 4, 5]}), r"it broadcasts over batches, \[2, 3, 4\] with \[1, 4, 5\]"),
        (made("tile", {"X": [3]}, repeat_times=[2, 2]), "which adds dimensions"),
        (made("expand_v2", {"X": [3]}, shape=[2, 3]), "which adds dimensions"),
        (made("expand_v2", {"X": [None, 3]}, shape=[4, 3]), "how often a dimension of -1 is in 4 is not known"),
        (made("top_k_v2", {"X": [3]}, k=1, largest=False), "it does not ask for the largest values, sorted"),
        (made("fill_constant", {}, shape=[1], str_value="9007199254740993", dtype=3), "more than a float can hold"),
    ],
)
def test_what_the_old_op_cannot_do(build, why):
    build()
    with pytest.raises(ProgramError, match=why):
        convert(main(), "paddle-1.6")


def test_broken_ops_are_refused():
    ops().expand_v2(data("x", [1, 3]), shape=[2, 3])
    main().global_block().ops[0].attrs["shape"] = 2.5
    with pytest.raises(ProgramError, match="expand_v2: it is not well formed: TypeError"):
        convert(main(), "paddle-1.6")


def test_gradient_ops_of_a_rewritten_op_are_refused_with_it():
    x = data("x", [2, 3])
    loss = layers.mean(ops().matmul_v2(x, layers.create_parameter([3, 4], "float32")))
    fluid.optimizer.SGD(0.1).minimize(loss)
    with pytest.raises(ProgramError, match=r"matmul_v2_grad: paddle-1.6 does not know it"):
        convert(main(), "paddle-1.6")


def test_a_training_program_of_old_layers_stays_as_it_is():
    x, label = data("x", [None, 8]), data("label", [None, 1], "int64")
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(layers.fc(x, 6, act="relu"), 4), label))
    fluid.optimizer.Adam(0.1).minimize(loss)
    assert not convert(main(), "paddle-1.6").changed_ops


def test_tensors_without_dimensions_get_one():
    x = data("x", [4])
    block = main().global_block()
    block.create_var(name="total", shape=[], dtype="float32")
    block.append_op("reduce_sum", {"X": x}, {"Out": "total"}, {"reduce_all": True, "dim": [0]})
    out = layers.scale(block.var("total"), 2.0)
    new = convert(main(), "paddle-1.6").program
    assert new.global_block().var("total").shape == (1,) and new.global_block().var(out.name).shape == (1,)
    assert block.var("total").shape == ()


def test_what_old_readers_cannot_parse():
    x = data("x", [4])
    ops().relu(x)
    op = main().global_block().ops[0]
    op.attrs["odd"] = 1 << 40
    assert not convert(main(), "paddle-1.6").changed
    op.attrs["odd"] = 1e300  # needs 64 bits
    with pytest.raises(ProgramError, match="relu: its attribute odd is of the kind float64, which came later"):
        convert(main(), "paddle-1.6")
    del op.attrs["odd"]
    main().global_block().create_var(name="small", shape=[2], dtype="bfloat16")
    with pytest.raises(ProgramError, match=r"small: bfloat16 tensors came later \(once, first as a variable of block 0\)"):
        convert(main(), "paddle-1.6")


def test_files_for_old_versions_do_not_claim_to_be_newer():
    new = fluid.Program.parse_from_string((ZOO / "lenet" / "model.pdmodel").read_bytes())
    message = ProgramDesc()
    message.ParseFromString(new.serialize_to_string())
    assert message.version.version or message.HasField("op_version_map")
    message.ParseFromString(convert(new, "paddle-1.6").program.serialize_to_string())
    assert message.version.version == 0 and not message.HasField("op_version_map")


def loop(trips, body):
    i, n = (layers.fill_constant([1], "int64", number) for number in (0, trips))
    go_on = layers.less_than(i, n)
    with layers.While(go_on).block():
        body()
        layers.increment(i)
        layers.less_than(i, n, cond=go_on)


def test_a_second_gradient_of_one_loop_is_refused():
    x = data("x", [2, 3])
    x.stop_gradient = False
    h = layers.tanh(x)
    loop(2, lambda: layers.assign(layers.tanh(h * x), h))
    fluid.gradients(layers.mean(h), x)
    assert convert(main(), "paddle-2.6").program
    fluid.gradients(layers.mean(h * h), x)
    with pytest.raises(ProgramError, match="while_grad: it is the second gradient of one loop, and Paddle runs one; add"):
        convert(main(), "paddle-2.6")


def test_gradients_of_an_array_of_two_shapes_are_refused():
    x, y, zero = data("x", [2, 3]), data("y", [4]), layers.fill_constant([1], "int64", 0)
    x.stop_gradient = False
    array = layers.array_write(layers.tanh(x), zero)
    first = layers.reduce_sum(layers.array_read(array, zero))
    layers.array_write(layers.exp(y), zero, array)
    fluid.gradients(first + layers.reduce_sum(layers.array_read(array, zero)), x)
    with pytest.raises(ProgramError, match=r"are of shapes \[4\] and \[2, 3\], and Paddle has one for the zeros of overwritten"):
        convert(main(), "paddle-2.6")


@each("copied", [False, True])
def test_a_recurrence_over_what_is_overwritten_is_refused(copied):
    x, first = data("x", [3, 2]), data("first", [2])
    x.stop_gradient = False
    h = layers.tanh(x)
    sequence, rnn = layers.assign(h) if copied else h, layers.StaticRNN()
    with rnn.step():
        step, memory = rnn.step_input(sequence), rnn.memory(init=first)
        rnn.update_memory(memory, memory * step)
        rnn.step_output(memory + step)
    layers.assign(rnn(), h)
    fluid.gradients(layers.mean(h), x)
    if copied:
        assert convert(main(), "paddle-2.6").program
    else:
        with pytest.raises(
            ProgramError, match=f"recurrent_grad: it reads {h.name} again, which is overwritten after the recurrence"
        ):
            convert(main(), "paddle-2.6")


def test_ops_say_all_that_paddle_needs_to_build_with_them():
    x = data("x", [2, 3])
    layers.fc(layers.reshape(x, [3, 2]), 4)
    (before, *_), (reshape, *others) = main().global_block().ops, convert(main(), "paddle-2.6").program.global_block().ops
    assert "ShapeTensor" not in before.inputs and "op_device" not in before.attrs
    assert reshape.inputs == {"X": ["x"], "Shape": [], "ShapeTensor": []} and reshape.attrs["op_namescope"] == "/"
    for op in (reshape, *others):
        assert set(op.inputs) == set(op.definition.inputs) and set(op.outputs) == set(op.definition.outputs)
        general = {"op_role", "op_role_var", "op_device", "op_callstack", "op_namescope", "with_quant_attr"}
        assert set(op.attrs) == general | set(op.definition.attrs)


def test_unknown_versions():
    with pytest.raises(ProgramError, match=r"'paddle-9' is not a version to write for; known are paddle-1.6, paddle-2.6"):
        convert(main(), "paddle-9")


def test_what_versions_know():
    old, new = known_ops("paddle-1.6"), known_ops("paddle-2.6")
    assert {"mul", "reshape2", "lookup_table_v2", "one_hot", "while_grad", "conv2d_grad"} <= old
    assert {"mul", "matmul_v2", "lookup_table", "one_hot_v2", "while_grad"} <= new
    assert not {"matmul_v2", "tile", "select_input"} & old and "one_hot" not in new and "sum_to" not in old | new
