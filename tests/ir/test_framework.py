"""Programs, blocks, operators and variables as data."""

from __future__ import annotations

import copy
import pickle
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.errors import (
    AttributeRuleError,
    ExecutionError,
    FeedError,
    FluidTypeError,
    InferenceError,
    NameNotFoundError,
    ProgramError,
)
from fluid.executor import Executor
from fluid.ir.program import (
    Block,
    Operator,
    OpRole,
    Parameter,
    Program,
    Variable,
    default_main_program,
    name_scope,
    program_guard,
)
from fluid.values.types import VarType


def main() -> Program:
    return default_main_program()


def block() -> Block:
    return main().global_block()


def data(name: str = "x", shape: Any = (2, 3), dtype: str = "float32") -> Variable:
    return fluid.data(name, list(shape), dtype)


def value_of(var: Variable, **feed: Any) -> Any:
    return Executor().run(main(), feed, [var])[0]


def line_here() -> int:
    return sys._getframe(1).f_lineno


# ------------------------------------------------------------------------------------------------------------ variables
def test_variables_know_what_they_are() -> None:
    x = data("x", [None, 3])
    assert (x.shape, x.dtype, x.type, x.ndim) == ((-1, 3), VarType.FP32, VarType.LOD_TENSOR, 2)
    assert x.is_data and x.stop_gradient and not x.persistable
    assert str(x) == "x: float32[-1, 3]" and repr(x) == "<Variable x: float32[-1, 3]>"
    bare = block().create_var(name="bare")
    assert (bare.shape, bare.has_shape, bare.has_dtype, bare.describe()) == ((), False, False, "??")
    steps = block().create_var(name="steps", type=VarType.STEP_SCOPES)
    assert steps.describe() == "step_scopes"
    assert block().create_var(dtype=np.float64, shape=(1,)).name == "_generated_var_0"
    with pytest.raises(FluidTypeError, match="'float33' is not an element type; known are bfloat16, bool"):
        block().create_var(name="y", dtype="float33")


def test_parameters_live_in_block_0() -> None:
    inner = main().create_block()
    parameter = inner.create_parameter(name="w", shape=[2, 3], dtype="float32")
    assert isinstance(parameter, Parameter) and parameter.block is block() and "w" in block().vars
    assert parameter.persistable and parameter.trainable and parameter.optimize_attr == {"learning_rate": 1.0}
    assert inner.create_parameter(name="w", shape=[2, 3], dtype="float32") is parameter
    with pytest.raises(
        ProgramError, match=r"the parameter 'w' exists as float32\[2, 3\]; it cannot be shared as float32\[3, 2\]"
    ):
        inner.create_parameter(name="w", shape=[3, 2], dtype="float32")
    assert main().all_parameters() == [parameter] == block().all_parameters()
    for missing in ("shape", "dtype"):
        with pytest.raises(ProgramError, match=f"the parameter v needs a shape and an element type, not .*{missing}=None"):
            inner.create_parameter(**{"name": "v", "shape": [2], "dtype": "float32", missing: None})
    assert "v" not in block().vars


def test_a_parameters_initializer_appends_its_op_where_it_is_created() -> None:
    """As in Fluid 1.6: to the block that is asked, once."""
    startup = Program()
    for home in (block(), startup.global_block()):
        parameter = home.create_parameter(name="w", shape=[2, 3], dtype="float32", initializer=fluid.initializer.Constant(2.5))
        again = home.create_parameter(name="w", shape=[2, 3], dtype="float32", initializer=fluid.initializer.Constant(1.0))
        assert again is parameter and isinstance(parameter.initializer, fluid.initializer.ConstantInitializer)
        assert [op.type for op in home.ops] == ["fill_constant"]
        scope = fluid.Scope()
        (value,) = fluid.Executor().run(home.program, fetch_list=[parameter], scope=scope)
        np.testing.assert_array_equal(value, np.full((2, 3), 2.5))
        np.testing.assert_array_equal(scope.array("w"), value)


@each(
    ("said", "message"),
    [
        ({"shape": [3, 2]}, "with shape [2, 3]; it cannot be declared again with shape [3, 2]"),
        ({"dtype": "int64"}, "with dtype float32; it cannot be declared again with dtype int64"),
        ({"type": VarType.LOD_TENSOR_ARRAY}, "with type lod_tensor; it cannot be declared again with type lod_tensor_array"),
        ({"persistable": True}, "with persistable False; it cannot be declared again with persistable True"),
        (
            {"shape": [1], "lod_level": 1},
            "with shape [2, 3]; lod_level 0; it cannot be declared again with shape [1]; lod_level 1",
        ),
    ],
)
def test_a_name_is_declared_once(said: dict[str, Any], message: str) -> None:
    var = block().create_var(name="x", shape=[2, 3], dtype="float32")
    assert block().create_var(name="x") is var is block().create_var(name="x", shape=(2, 3), dtype=np.float32)
    with pytest.raises(ProgramError, match=re.escape(f"'x' is declared in block 0 already, {message}")):
        block().create_var(name="x", **said)
    inner = main().create_block()
    assert inner.create_var(name="x", shape=[7]) is not var  # hides it
    bare = block().create_var(name="bare")
    assert block().create_var(name="bare", shape=[2]) is bare and bare.shape == (2,) and not bare.has_dtype


OPERATIONS: list[tuple[str, Callable[..., Any]]] = [
    ("add", lambda x, y: x + y),
    ("subtract", lambda x, y: x - y),
    ("multiply", lambda x, y: x * y),
    ("divide", lambda x, y: x / y),
    ("power", lambda x, y: x**y),
    ("floor divide", lambda x, y: x // y),
    ("remainder", lambda x, y: x % y),
    ("less", lambda x, y: x < y),
    ("less or equal", lambda x, y: x <= y),
    ("greater", lambda x, y: x > y),
    ("greater or equal", lambda x, y: x >= y),
    ("equal", lambda x, y: x == y),
    ("not equal", lambda x, y: x != y),
]
A = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "float32")
B = np.array([[3.0, 2.0, 1.5], [2.0, 5.0, 0.5]], "float32")


@each("apply", [apply for _, apply in OPERATIONS], ids=[name for name, _ in OPERATIONS])
def test_operators(apply: Callable[..., Any]) -> None:
    x, y = data("x"), data("y")
    fetch = [apply(x, y), apply(x, 2.0), apply(2.0, x), apply(x, 3)]
    found = Executor().run(main(), {"x": A, "y": B}, fetch)
    for value, expected in zip(found, (apply(A, B), apply(A, 2.0), apply(2.0, A), apply(A, 3)), strict=True):
        assert value.dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_more_operators() -> None:
    x, w = data("x"), data("w", [3, 2])
    found = Executor().run(main(), {"x": A, "w": B.reshape(3, 2)}, [-x, x @ w, x.astype("int64")])
    for value, expected in zip(found, (-A, A @ B.reshape(3, 2), A.astype("int64")), strict=True):
        assert value.dtype == expected.dtype
        np.testing.assert_allclose(value, expected, rtol=1e-6)


@each("apply", [lambda x: x < 2.5, lambda x: x == 2.5, lambda x: x**0.5, lambda x: x % 2.5, lambda x: 0.5**x, lambda x: x / 2.5])
def test_whole_numbers_and_fractions(apply: Callable[..., Any]) -> None:
    """A fraction is never cut off in silence."""
    x = data("x", [3], "int64")
    with pytest.raises(InferenceError, match=r"int64\[3\].*fraction of .* would be lost: cast"):
        apply(x)
    assert not block().ops
    assert apply(layers.cast(x, "float32")).shape == (3,)


def test_integers_divided_by_integers() -> None:
    """Quotients are those of `elementwise_div`: integers, as for two variables, and as in Fluid 1.6."""
    x = data("x", [4], "int64")
    quotients = [x / 7, x / 7.0, x / layers.fill_constant([1], "int64", 7), x / np.int64(7)]
    values = np.array([3, 14, -10, 18])
    for quotient in Executor().run(main(), {"x": values}, quotients):
        assert quotient.dtype == np.int64 and quotient.tolist() == [0, 2, -1, 2]


def test_operators_append_to_the_current_block() -> None:
    x = data()
    inner = main().create_block()
    with main().block_guard(inner) as current:
        assert current is inner is main().current_block()
        y = x + 1.0
    assert y.block is inner and len(inner.ops) == 1 and not block().ops
    assert main().current_block() is block()


def test_what_python_cannot_ask_of_a_variable() -> None:
    x = data()
    with pytest.raises(ProgramError, match=r"the value of tmp_\d is not known while the program is built; use layers\.cond"):
        if x > 0.0:
            pass
    with pytest.raises(ProgramError, match=r"x cannot be iterated over while the program is built; use layers.unstack"):
        list(x)
    with pytest.raises(ProgramError, match=r"the value of tmp_\d is not known .* or its .name to compare variables"):
        assert data("y") in [x]
    with pytest.raises(TypeError):
        x + "1"
    assert (x == None) is False and (x != None) is True  # noqa: E711
    assert {x: 1}[x] == 1


def test_detached_variables_let_no_gradient_through() -> None:
    x = data()
    x.stop_gradient = False
    (grad,) = fluid.gradients(layers.reduce_sum(x * x.detach()), [x])
    np.testing.assert_allclose(value_of(grad, x=A), A)


# --------------------------------------------------------------------------------------------------------------- blocks
def test_names_are_looked_up_outwards() -> None:
    x = data()
    inner = main().create_block()
    innermost = main().create_block(parent=inner)
    assert innermost.var("x") is x and innermost.find_var("y") is None
    shadow = inner.create_var(name="x", shape=[1], dtype="int64")
    assert innermost.var("x") is shadow and block().var("x") is x
    assert inner.create_var(name="x") is shadow
    assert not innermost.has_var("x") and inner.has_var("x")
    gradient = main().create_block(parent=block(), forward=inner)
    inner.create_var(name="local")
    assert gradient.find_var("local") is inner.vars["local"]
    assert (innermost.idx, innermost.parent_idx, gradient.forward_block_idx, block().parent_idx) == (2, 1, 1, -1)
    assert main().num_blocks == 4 and main().block(1) is inner
    with pytest.raises(NameNotFoundError, match="no variable 'xs' is visible in block 0; did you mean x"):
        block().var("xs")
    with pytest.raises(KeyError):
        block().var("something else")
    inner.remove_var("x")
    assert innermost.var("x") is x


def test_suggestions_reach_as_far_as_the_lookup() -> None:
    data("image")
    inner = main().create_block()
    with pytest.raises(NameNotFoundError, match=r"no variable 'imgae' is visible in block 1; did you mean image\?"):
        inner.var("imgae")


def test_fresh_names() -> None:
    data("x")
    inner = main().create_block()
    inner.create_var(name="x_0")
    assert (block().fresh_name("y"), block().fresh_name("x"), inner.fresh_name("x")) == ("y", "x_0", "x_1")
    assert main().fresh_name("x") == "x_1"


def test_ops_are_put_where_one_says() -> None:
    x = data()
    out = [block().create_var(name=f"out{i}") for i in range(3)]
    block().append_op("relu", {"X": x}, {"Out": out[0]})
    block().prepend_op("tanh", inputs={"X": "x"}, outputs={"Out": "out1"})
    block().insert_op(1, "exp", inputs={"X": [x]}, outputs={"Out": [out[2]]})
    assert [op.type for op in block().ops] == ["tanh", "exp", "relu"]
    assert [op.idx for op in block().ops] == [0, 1, 2]
    assert all(var.shape == (2, 3) and var.dtype is VarType.FP32 for var in out)
    gone = block().ops[1]
    block().remove_op(1)
    assert [op.type for op in block().ops] == ["tanh", "relu"]
    with pytest.raises(ProgramError, match="exp is no longer in its block"):
        _ = gone.idx


# ------------------------------------------------------------------------------------------------------------ operators
def test_attributes_and_their_defaults() -> None:
    y = layers.scale(data(), 2.0)
    (op,) = block().ops
    assert op.attr("scale") == 2.0 and op.attr("bias_after_scale") is True
    assert op.has_attr("bias") and not op.has_attr("slope")
    assert op.all_attrs()["bias"] == 0.0
    with pytest.raises(ProgramError, match=r"scale has no attribute 'slope'; it has .*bias_after_scale.*"):
        op.attr("slope")
    op.set_attr("scale", 3)
    assert isinstance(op.attr("scale"), float)
    with pytest.raises(AttributeRuleError, match="scale: attribute 'scale' should be of kind float"):
        op.set_attr("scale", "much")
    np.testing.assert_allclose(value_of(y, x=A), A * 3)
    assert op.role == OpRole.FORWARD


def test_defaults_are_nobodys_to_change() -> None:
    """A list that an op leaves at its default is not shared with other ops by way of `attr`."""
    x = data("x", [2, 1, 3])
    block().append_op("squeeze2", {"X": x}, {"Out": block().create_var(name="a"), "XShape": block().create_var(name="as")})
    block().append_op("squeeze2", {"X": x}, {"Out": block().create_var(name="b"), "XShape": block().create_var(name="bs")})
    first, second = block().ops
    first.attr("axes").append(0)
    assert second.attr("axes") == [] == second.all_attrs()["axes"]


def test_slots() -> None:
    x, y = data(), data("y")
    out = layers.sums([x, y, x])
    (op,) = block().ops
    assert op.input("X") == ["x", "y", "x"] == op.input_arg_names
    assert op.output("Out") == [out.name] == op.output_arg_names
    assert (op.input_names, op.output_names, op.input("Y")) == (["X"], ["Out"], [])
    with pytest.raises(ProgramError, match=r"(?s)sum has no input slot 'Xs'; it has X; did you mean X\?.*made at"):
        op.input("Xs")
    with pytest.raises(ProgramError, match="sum has no output slot 'Nope'; it has Out"):
        op.output("Nope")
    with pytest.raises(ProgramError, match="sum has no input slot 0; it has X"):
        op.input(0)  # type: ignore[arg-type]
    op.input("X").append("z")  # a copy
    op.rename_input("x", "y")
    op.rename_output(out.name, "new")
    assert op.input("X") == ["y", "y", "y"] and op.output("Out") == ["new"]


def test_ops_that_break_their_definition() -> None:
    x = data()
    out = block().create_var(name="out")
    with pytest.raises(ProgramError, match="relu has no input slot 'Y'; it has X") as caught:
        block().append_op("relu", {"X": x, "Y": x}, {"Out": out})
    at = line_here() - 1
    assert f"made at: {__file__}:{at} in test_ops_that_break_their_definition" in str(caught.value)
    with pytest.raises(AttributeRuleError, match=r"(?s)elementwise_add needs a variable in its input slot 'Y'.*made at"):
        block().append_op("elementwise_add", {"X": x}, {"Out": out})
    with pytest.raises(AttributeRuleError, match="sum needs a variable in its input slot 'X'"):
        layers.sums([])
    with pytest.raises(ProgramError, match="relu has no output slot 'Ou'; it has Out"):
        block().append_op("relu", {"X": x}, {"Ou": out})
    with pytest.raises(AttributeRuleError, match="transpose2: attribute 'axis' should be of kind ints: 'ab' is not a list"):
        block().append_op("transpose2", {"X": x}, {"Out": out}, {"axis": "ab"})
    with pytest.raises(InferenceError, match=r"elementwise_add: shapes \[2, 3\] and \[2, 4\] do not broadcast") as caught:
        x + data("y", [2, 4])
    at = line_here() - 1
    text = str(caught.value)
    assert f"{__file__}:{at}" in text and "x: float32[2, 3]; y: float32[2, 4]" in text
    with pytest.raises(NameNotFoundError, match=r"relu: no variable 'nobody' is visible in block 0\n  op: .*\n  made at: "):
        block().append_op("relu", {"X": "nobody"}, {"Out": out})


def test_an_op_that_cannot_be_made_leaves_no_trace() -> None:
    x, y = data("x", [2, 3]), data("y", [2, 4])
    out = block().create_var(name="out")
    before, version = str(main()), main().version
    for attempt in (
        lambda: block().append_op("elementwise_add", {"X": x, "Y": y}, {"Out": out}),
        lambda: block().prepend_op("elementwise_add", inputs={"X": x, "Y": y}, outputs={"Out": out}),
        lambda: block().append_op("relu", {"X": "nobody"}, {"Out": out}),
    ):
        with pytest.raises(ProgramError):
            attempt()
    assert str(main()) == before and main().version == version and not block().ops


def helper(x: Variable) -> Variable:
    return layers.relu(x)


def test_ops_remember_the_users_line() -> None:
    x = data()
    at = line_here() + 1
    y = layers.fc(x, 4, act="relu")
    assert [op.user_frame[:2] for op in block().ops] == [(__file__, at)] * 3  # type: ignore[index]
    inside = helper(y)
    (file, line, function) = block().ops[-1].user_frame  # type: ignore[misc]
    assert (file, function) == (__file__, "helper") and line == helper.__code__.co_firstlineno + 1
    assert [code.co_name for code, _ in block().ops[-1].frames[:2]] == ["helper", "test_ops_remember_the_users_line"]
    at = line_here() + 1
    total = inside + 1.0
    assert block().ops[-1].user_frame == (__file__, at, "test_ops_remember_the_users_line")
    fluid.backward.append_backward(layers.mean(total))
    for op in block().ops:
        assert op.user_frame is not None and op.user_frame[0] == __file__, op
    relu_grads = [op for op in block().ops if op.type == "relu_grad"]
    assert [op.user_frame[2] for op in relu_grads] == ["helper", "test_ops_remember_the_users_line"]  # type: ignore[index]


# ------------------------------------------------------------------------------------------------------------- programs
def test_versions_count_changes() -> None:
    x = data()
    seen = [main().version]

    def changed() -> bool:
        seen.append(main().version)
        assert seen[-1] >= seen[-2]
        return seen[-1] != seen[-2]

    y = layers.scale(x, 2.0)
    assert changed()
    assert y.shape == (2, 3) and str(main()) and main().list_vars() and block().find_var("q") is None
    value_of(y, x=A)
    main().clone()
    main().serialize_to_string()
    assert not changed()
    op = block().ops[0]
    for act in (
        lambda: op.set_attr("scale", 4.0),
        lambda: op.rename_input("x", "x"),
        lambda: setattr(y, "stop_gradient", True),
        lambda: setattr(y, "persistable", True),
        lambda: setattr(y, "shape", [3, 2]),
        lambda: setattr(y, "dtype", "float64"),
        lambda: setattr(main(), "random_seed", 3),
        lambda: main().create_block(),
        lambda: block().create_var(name="new"),
        lambda: block().remove_var("new"),
        lambda: block().remove_op(0),
    ):
        act()
        assert changed()


def test_guards_choose_where_layers_append() -> None:
    outer, (main_program, startup) = main(), (Program(), Program())
    with program_guard(main_program, startup):
        assert default_main_program() is main_program
        layers.fc(data(), 2)
        with program_guard(Program()):
            assert fluid.default_startup_program() is startup
            layers.relu(data())
        with pytest.raises(ZeroDivisionError), program_guard(Program()):
            raise ZeroDivisionError
        assert default_main_program() is main_program
    assert main() is outer and not block().ops
    assert [op.type for op in main_program.global_block().ops] == ["mul", "elementwise_add"]
    assert len(startup.global_block().ops) == 2
    with pytest.raises(ProgramError, match="program_guard takes a Program, not str"), program_guard("main"):  # type: ignore[arg-type]
        pass


def test_guards_are_the_threads_own() -> None:
    mine, seen = main(), []

    def work() -> None:
        seen.append(default_main_program())
        with program_guard(Program()):
            seen.append(default_main_program())
            layers.relu(data("of the thread"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(seen) == 2 and mine not in seen and seen[0] is not seen[1]
    assert not block().ops


def test_name_scopes_are_written_on_ops() -> None:
    x = data()
    with name_scope("encoder"):
        layers.relu(x)
        with name_scope("attention"):
            layers.relu(x)
        layers.relu(x)
    y = layers.relu(x)
    assert [op.attrs.get("op_namescope") for op in block().ops] == ["/encoder/", "/encoder/attention/", "/encoder/", None]
    assert y.name == "relu_3.tmp_0"  # names stay as they are


def test_name_scopes_that_come_again_are_numbered() -> None:
    def build() -> None:
        x = data("x")
        for prefix in ("s1", "s1", "s2"):
            with name_scope(prefix):
                layers.relu(x)
                with name_scope("s1"):
                    layers.relu(x)

    first = ["/s1/", "/s1/s1/", "/s1_1/", "/s1_1/s1/", "/s2/", "/s2/s1/"]
    build()
    assert [op.attrs["op_namescope"] for op in block().ops] == first
    copy = main().clone()
    with program_guard(copy):
        build()
    again = ["/s1_2/", "/s1_2/s1/", "/s1_3/", "/s1_3/s1/", "/s2_1/", "/s2_1/s1/"]
    assert [op.attrs["op_namescope"] for op in copy.global_block().ops] == [*first, *again]
    with program_guard(Program()):  # each program counts its own
        build()
        assert [op.attrs["op_namescope"] for op in block().ops] == first
    for wrong in (None, "", 3):
        with pytest.raises(ProgramError, match="name_scope: the prefix should be a name, not"), name_scope(wrong):  # type: ignore[arg-type]
            pass


def network() -> Variable:
    hidden = layers.dropout(layers.fc(data("x", [-1, 3]), 4, act="relu"), 0.5)
    return layers.mean(layers.batch_norm(hidden))


def test_clones_share_nothing() -> None:
    loss = network()
    fluid.optimizer.Adam(0.1).minimize(loss)
    main().random_seed = 5
    text = main().to_string()
    twin = main().clone()
    assert twin.to_string() == text and twin.random_seed == 5
    for ours, theirs in zip(main().blocks, twin.blocks, strict=True):
        assert theirs.program is twin
        assert all(theirs.vars[name] is not var and theirs.vars[name].block is theirs for name, var in ours.vars.items())
        assert all(type(theirs.vars[name]) is type(var) for name, var in ours.vars.items())
        for op, other in zip(ours.ops, theirs.ops, strict=True):
            assert other is not op and other.block is theirs and other.frames == op.frames
    for op in twin.global_block().ops:
        op.inputs.clear()
        op.attrs.clear()
        for names in op.outputs.values():
            names.clear()
    twin.global_block().vars.clear()
    assert main().to_string() == text


@each("for_test", [False, True])
def test_clones_say_which_shape_does_not_fit(for_test: bool) -> None:
    out = layers.scale(data("x", [None, 3]), 2.0)
    main().fixed_sizes["x"] = "size 3 was fixed"
    twin = main().clone(for_test)
    with pytest.raises(FeedError, match=re.escape("x is declared float32[-1, 3], but float32[2, 4] is fed (size 3 was fixed)")):
        Executor().run(twin, {"x": np.ones((2, 4), "float32")}, [out.name])


@each("copied", [lambda program: pickle.loads(pickle.dumps(program)), copy.deepcopy])
def test_pickles_and_deep_copies(copied: Callable[[Program], Program]) -> None:
    """All that a program is, with the places of the user's code, but not its loaders."""
    x, line = data("x", [None, 3]), line_here()
    loss = layers.mean(layers.cond(layers.reduce_sum(x) > 0, lambda: layers.fc(x, 2), lambda: layers.fc(x, 2)))
    fluid.optimizer.Adam(0.1, regularization=fluid.regularizer.L2Decay(0.1)).minimize(loss)
    main().random_seed = 7
    main().loaders.append(threading.Lock())
    copy_of_it = copied(main())
    assert copy_of_it.to_string(True) == main().to_string(True)
    assert copy_of_it.random_seed == 7 and copy_of_it.loaders == [] and main().loaders
    op = copy_of_it.global_block().ops[0]
    assert op.block is copy_of_it.global_block() and op.user_frame == (__file__, line + 1, "test_pickles_and_deep_copies")
    values = []
    for program in (main(), copy_of_it):
        program.loaders.clear()
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        values.append([executor.run(program, {"x": np.ones((2, 3), "float32")}, [loss.name], scope=scope)[0] for _ in range(2)])
    np.testing.assert_array_equal(values[0], values[1])


def test_clones_of_loops_own_their_blocks() -> None:
    x = data("x", [1])
    limit = layers.fill_constant([1], "float32", 5.0)
    (found,) = layers.while_loop(lambda v: v < limit, lambda v: [layers.cond(v < 2.0, lambda: v + 1.0, lambda: v * 2.0)], [x])
    twin = main().clone(for_test=True)
    owners = [op for b in twin.blocks for op in b.ops if op.sub_blocks]
    assert owners and all(sub.program is twin and twin.blocks[sub.idx] is sub for op in owners for sub in op.sub_blocks)
    assert twin.to_string().count("while") == main().to_string().count("while")
    expected = value_of(found, x=[0.5])
    assert np.array_equal(Executor().run(twin, {"x": [0.5]}, [found.name])[0], expected)


def test_clones_for_test() -> None:
    loss = network()
    plain = main().clone(for_test=True)
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    test = main().clone(for_test=True)
    assert test.to_string() == plain.to_string()
    types = [op.type for op in test.global_block().ops]
    assert not any(op_type.endswith("_grad") or op_type == "momentum" for op_type in types)
    assert all(op.attr("is_test") for op in test.global_block().ops if op.has_attr("is_test"))
    assert not any(op.attr("is_test") for op in block().ops if op.has_attr("is_test"))
    assert not any("@GRAD" in var.name or "velocity" in var.name for var in test.list_vars())
    assert [p.name for p in test.all_parameters()] == [p.name for p in main().all_parameters()]
    test.verify()


def test_clones_for_test_keep_gradients_that_forward_ops_read() -> None:
    """A gradient penalty is computed in test mode too, as by a program that was never trained."""

    def build() -> tuple[Program, Variable, Variable]:
        x = fluid.data("x", [4, 3])
        x.stop_gradient = False
        with fluid.unique_name.guard():
            hidden = layers.fc(x, 5, act="tanh")
            score = layers.reduce_sum(layers.softmax(hidden) * hidden)
            (slope,) = fluid.gradients([score], [x])
            penalty = layers.mean(layers.square(slope))
            loss = layers.elementwise_add(layers.mean(score), penalty)
        return main(), penalty, loss

    program, penalty, loss = build()
    early = program.clone(for_test=True)
    fluid.optimizer.Adam(fluid.layers.exponential_decay(0.1, 1, 0.5), grad_clip=fluid.clip.GradientClipByNorm(1.0)).minimize(loss)
    late = program.clone(for_test=True)
    assert not any(op.role & (OpRole.OPTIMIZE | OpRole.LR_SCHED) for op in late.global_block().ops)
    executor, array = Executor(fluid.CPUPlace()), np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)
    executor.run(fluid.default_startup_program())
    weights = {param.name: np.array(fluid.global_scope().find_var(param.name).get_tensor()) for param in program.all_parameters()}
    values = [executor.run(test, {"x": array}, [penalty.name])[0] for test in (early, late, early)]
    assert values[0] == values[2] > 0  # neither draws nor updates
    np.testing.assert_allclose(values[1], values[0], rtol=1e-5)
    for name, value in weights.items():
        np.testing.assert_array_equal(np.array(fluid.global_scope().find_var(name).get_tensor()), value)
    step = np.float32(1e-2)
    score = next(op for op in late.global_block().ops if op.type == "reduce_sum").output("Out")[0]

    def slopes() -> Any:
        for row, column in np.ndindex(4, 3):
            ends = []
            for sign in (1, -1):
                moved = array.copy()
                moved[row, column] += sign * step
                ends.append(executor.run(late, {"x": moved}, [score])[0].item())
            yield (ends[0] - ends[1]) / (2 * step)

    np.testing.assert_allclose(values[0].item(), np.mean(np.square([*slopes()])), rtol=0.05)


def test_clones_for_test_leave_out_gradients_of_branches_that_train() -> None:
    x = fluid.data("x", [None, 3])
    loss = layers.mean(layers.square(layers.fc(x, 2)))
    layers.cond(layers.reduce_all(loss > 0.5), lambda: fluid.optimizer.SGD(0.1).minimize(loss) and None, lambda: None)
    test = main().clone(for_test=True)
    assert not any(op.role & (OpRole.BACKWARD | OpRole.OPTIMIZE) for block in test.blocks for op in block.ops)


def test_clones_for_test_keep_gradients_inside_loops() -> None:
    """Newton's method for the root of 2, beside training of another parameter."""
    root, steps = layers.fill_constant([1], "float32", 1.0), layers.fill_constant([1], "int64", 0)
    root.stop_gradient = False
    goes_on = layers.less_than(steps, layers.fill_constant([1], "int64", 6))
    loop = layers.While(goes_on)
    with loop.block():
        value = layers.elementwise_mul(root, root) - 2.0
        (slope,) = fluid.gradients([value], [root])
        layers.assign(root - value / slope, root)
        layers.increment(steps)
        layers.less_than(steps, layers.fill_constant([1], "int64", 6), cond=goes_on)
    fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.fc(fluid.data("x", [None, 2]), 1)))
    executor = Executor(fluid.CPUPlace())
    (found,) = executor.run(main().clone(for_test=True), fetch_list=[root.name])
    np.testing.assert_allclose(found, np.sqrt(2.0), rtol=1e-6)


def test_clones_for_test_of_programs_with_loops() -> None:
    """Clones drop the blocks of gradients, and renumber the remaining blocks."""
    x = data("x", [1])
    x.stop_gradient = False
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    state = layers.assign(x)
    condition = layers.less_than(i, n)
    loop = layers.While(condition)
    with loop.block():
        layers.assign(layers.tanh(state) * x, state)
        layers.increment(i)
        layers.less_than(i, n, cond=condition)
    other = layers.cond(x < 0.0, lambda: state * 2.0, lambda: state * 3.0)
    loss = layers.mean(other)
    count = len(main().blocks)
    expected = Executor().run(main(), {"x": [0.5]}, [loss])[0]
    fluid.gradients(loss, [x])
    assert len(main().blocks) > count
    test = main().clone(for_test=True)
    assert len(test.blocks) == count and [b.idx for b in test.blocks] == list(range(count))
    test.verify()
    assert np.array_equal(Executor().run(test, {"x": [0.5]}, [loss.name])[0], expected)


def test_what_a_program_shows_of_itself() -> None:
    network()
    assert repr(main()) == f"<Program of 1 blocks, {len(block().ops)} ops, {len(main().all_parameters())} parameters>"
    assert "fc_0.w_0" in str(main()) and "fc_0.w_0" in main().to_string()
    assert str(block().ops[0]) in repr(block().ops[0])
    assert {var.name for var in main().list_vars()} == set(block().vars)


def test_unknown_ops_may_be_built_and_kept() -> None:
    out = block().create_var(name="out", shape=[2], dtype="float32")
    op = block().append_op("frobnicate", {"Whatever": data()}, {"Out": out}, {"how": "much", "none": None})
    assert op.definition is None and op.attrs == {"how": "much"} and op.attr("how") == "much"
    assert not op.has_attr("none") and op.all_attrs() == {"how": "much"}
    with pytest.raises(ProgramError, match="frobnicate has no attribute 'why'"):
        op.attr("why")
    with pytest.raises(ExecutionError, match="frobnicate is not known"):
        Executor().run(main(), {"x": A}, [out])


def test_roles() -> None:
    x = data()
    with main().role_guard(OpRole.LR_SCHED):
        layers.relu(x)
    layers.relu(x)
    assert [op.role for op in block().ops] == [OpRole.LR_SCHED, OpRole.FORWARD]
    assert isinstance(block().ops[0], Operator)


def test_prune_as_fluid_has_it() -> None:
    program = Program()
    with fluid.program_guard(program, Program()):
        x = fluid.data("x", [2])
        middle = fluid.layers.tanh(x)
        wanted, other = fluid.layers.exp(middle), fluid.layers.relu(x)
    before = program.to_string()
    assert [op.type for op in program._prune([wanted]).global_block().ops] == ["tanh", "exp"]
    assert [op.type for op in program._prune(other).global_block().ops] == ["relu"]
    assert [op.type for op in program._prune_with_input([middle.name], [wanted]).global_block().ops] == ["exp"]
    assert program.to_string() == before
