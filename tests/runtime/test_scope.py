"""Scopes and the tensors that they hold."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.core import LoDTensorArray
from fluid.errors import ExecutionError
from fluid.executor import CPUPlace, LoDTensor, Scope, global_scope, scope_guard
from fluid.values.selected_rows import SelectedRows
from fluid.values.unchanging import never_changes


def test_variables_are_made_once() -> None:
    scope = Scope()
    assert scope.find_var("x") is None
    assert scope.array("x") is None
    var = scope.var("x")
    assert var.name == "x" and scope.var("x") is var and scope.find_var("x") is var
    assert scope.local_var_names() == ["x"]
    scope.erase(["x", "unknown"])
    assert scope.find_var("x") is None


def test_tensors_hold_copies() -> None:
    tensor = Scope().var("x").get_tensor()
    value = np.arange(6, dtype="float32").reshape(2, 3)
    tensor.set(value, CPUPlace())
    value[:] = -1
    assert np.asarray(tensor).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensor.shape() == [2, 3]
    assert np.asarray(tensor, dtype="int64").dtype == np.int64
    copied = np.array(tensor)
    copied[:] = 7
    assert np.asarray(tensor)[0, 0] == 0
    tensor.set([[1, 2]])
    assert tensor.shape() == [1, 2]
    tensor.set(np.asfortranarray(np.ones((3, 2))))
    assert tensor.array.flags.c_contiguous


def test_a_tensor_that_holds_nothing() -> None:
    tensor = Scope().var("x").get_tensor()
    assert tensor.shape() == [] and tensor.array is None
    with pytest.raises(ExecutionError, match="holds nothing yet; run the startup program"):
        np.asarray(tensor)


def test_sequence_lengths_and_offsets() -> None:
    tensor = LoDTensor()
    assert tensor.lod() == [] and tensor.recursive_sequence_lengths() == []
    tensor.set_recursive_sequence_lengths([[2, 1], [1, 3, 2]])
    assert tensor.lod() == [[0, 2, 3], [0, 1, 4, 6]]
    tensor.set_lod([[0, 4, 5]])
    assert tensor.recursive_sequence_lengths() == [[4, 1]]


@each("lengths", [[[], [1], [3]], [[0], [2], [3]], [[2], [1, 2, 3]], [[1], [2], [2]]])
def test_levels_that_do_not_count_each_other(lengths: list[list[int]]) -> None:
    """Wrong for any rows, unlike lengths of more or fewer rows, which may be set before the rows are."""
    tensor = LoDTensor(np.zeros((3, 1)))
    with pytest.raises(ExecutionError, match=r"level . of the lengths.* counts"):
        tensor.set_recursive_sequence_lengths(lengths)
    with pytest.raises(ExecutionError, match=r"level . of the lengths.* counts"):
        tensor.set_lod([[0, *np.cumsum(level).tolist()] for level in lengths])
    assert tensor.recursive_sequence_lengths() == []


def test_children_find_what_their_parents_hold() -> None:
    parent = Scope()
    parent.var("x").get_tensor().set(np.ones(2))
    kid = parent.new_scope()
    grandchild = kid.new_scope()
    assert grandchild.find_var("x") is parent.find_var("x")
    kid.var("x").get_tensor().set(np.zeros(2))
    assert grandchild.find_var("x") is kid.find_var("x") is not parent.find_var("x")
    grandchild.var("y")
    assert kid.find_var("y") is None and grandchild.local_var_names() == ["y"]
    kid.erase(["x"])
    assert grandchild.find_var("x") is parent.find_var("x")
    parent.drop_kids()


def test_generations_tell_whether_an_array_was_replaced() -> None:
    parent = Scope()
    kid = parent.new_scope()

    def changes(act: Any) -> bool:
        before = kid.generation
        act()
        return kid.generation != before

    tensor = parent.var("x").get_tensor()
    assert changes(lambda: tensor.set(np.ones(2)))
    assert changes(lambda: kid.var("y"))
    assert changes(lambda: kid.erase(["y"]))
    assert not changes(lambda: np.asarray(tensor).sum())
    assert not changes(lambda: tensor.array.__setitem__(0, 5.0))
    assert not changes(lambda: parent.find_var("z"))


def test_scope_guard_is_the_threads_own() -> None:
    mine, seen = Scope(), []
    with scope_guard(mine):
        assert global_scope() is mine and fluid.global_scope() is mine
        inner = Scope()
        with pytest.raises(ZeroDivisionError), scope_guard(inner):
            assert global_scope() is inner
            raise ZeroDivisionError
        assert global_scope() is mine
        thread = threading.Thread(target=lambda: seen.append(global_scope()))
        thread.start()
        thread.join()
    assert global_scope() is not mine and seen[0] not in (mine, global_scope())


def test_sequences_outlive_a_run() -> None:
    """A persistable variable keeps its sequences for the next run and for readers of the tensor."""
    x = fluid.data("x", [None, 1], lod_level=1)
    state = fluid.default_main_program().global_block().create_var(name="state", shape=[1, 1], dtype="float32", persistable=True)
    layers.assign(x, state)
    executor, tensor = fluid.Executor(), fluid.global_scope().var("state").get_tensor()
    rows = np.float32([[1], [2], [4]])
    executor.run(feed={"x": (rows, [[1, 2]])}, fetch_list=[x])
    assert tensor.recursive_sequence_lengths() == [[1, 2]] and tensor.lod() == [[0, 1, 3]]
    with fluid.program_guard(fluid.Program()):
        block = fluid.default_main_program().global_block()
        later = block.create_var(name="state", shape=[-1, 1], dtype="float32", lod_level=1, persistable=True)
        total = layers.sequence_pool(later, "sum") + layers.reduce_sum(fluid.data("y", [None, 1], lod_level=1))
        (found,) = executor.run(fluid.default_main_program(), {"y": (rows[:1], [[1]])}, [total])
    assert found.ravel().tolist() == [2.0, 7.0]


def _array(name: str) -> LoDTensorArray:
    variable = fluid.global_scope().find_var(name)
    assert variable is not None
    return variable.get_lod_tensor_array()


def test_arrays_of_tensors_that_persist_outlive_a_run() -> None:
    """The scope keeps an array of tensors, and the next run appends to it."""
    x = fluid.layers.data("x", shape=[2])
    length = fluid.layers.create_global_var([1], 0, "int64", persistable=True, name="length")
    array = (
        fluid.default_main_program()
        .global_block()
        .create_var(name="array", type=fluid.core.VarDesc.VarType.LOD_TENSOR_ARRAY, dtype="float32", persistable=True)
    )
    fluid.layers.array_write(x, length, array)
    fluid.layers.assign(fluid.layers.array_length(array), length)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    for count in range(1, 4):
        exe.run(feed={"x": np.full((1, 2), count, "float32")})
        np.testing.assert_array_equal(
            np.concatenate([np.array(item) for item in _array("array")]), [[i, i] for i in range(1, count + 1)]
        )
    _array("array")[0].set(np.full((1, 2), 9, "float32"))
    assert exe.run(feed={"x": np.zeros((1, 2), "float32")}, fetch_list=[array])[0][0].tolist() == [[9, 9]]


@each(("attrs", "shape"), [({"axis": 0}, (8, 3)), ({"axis": 1}, (2, 12)), ({"axis": 1, "use_stack": True}, (2, 4, 3))])
def test_arrays_that_a_scope_holds_are_joined(attrs: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Nothing is known of the entries when the program is built; the gradient is an array of as many."""
    scope = fluid.global_scope()
    for value in range(4):
        scope.var("parts").get_lod_tensor_array().append(np.full((2, 3), value, "float32"))
    block = fluid.default_main_program().global_block()
    parts = block.create_var(name="parts", type=fluid.core.VarDesc.VarType.LOD_TENSOR_ARRAY, persistable=True)
    whole, sizes = (block.create_var(name=name) for name in ("whole", "sizes"))
    op = block.append_op("tensor_array_to_tensor", {"X": parts}, {"Out": whole, "OutIndex": sizes}, attrs)
    (gradient,), _ = fluid.core.get_grad_op_desc(op.desc, set(), [])
    block.desc.append_op().copy_from(gradient)
    fluid.layers.assign(whole, block.create_var(name="whole@GRAD", shape=shape, dtype="float32", persistable=True))
    block.ops.insert(1, block.ops.pop())
    for name in gradient.output_arg_names():
        block.create_var(name=name, type=parts.type, persistable=True)
    (result,) = fluid.Executor().run(fetch_list=[whole])
    assert result.shape == shape
    values = [np.array(item) for item in _array("parts@GRAD")]
    assert [value.shape for value in values] == [(2, 3)] * 4 and [value[0, 0] for value in values] == [0, 1, 2, 3]


def test_arrays_of_sequences_are_found_with_their_lengths() -> None:
    words = fluid.layers.data("words", shape=[1], dtype="int64", lod_level=2)
    array = fluid.layers.lod_tensor_to_array(words, fluid.layers.lod_rank_table(words))
    array.persistable = True
    rows = np.arange(5).reshape(5, 1)
    fluid.Executor().run(feed={"words": (rows, [[1, 2], [1, 2, 2]])})
    assert [np.array(item).ravel().tolist() for item in _array(array.name)] == [[1, 2, 0], [3, 4]]
    assert [item.recursive_sequence_lengths() for item in _array(array.name)] == [[[2, 1]], [[2]]]


def test_arrays_that_a_scope_holds_are_read() -> None:
    """An op reads an array that was filled by hand, as a program read from a file does whose variables were set."""
    for value in (3.0, 4.0):
        fluid.global_scope().var("filled").get_lod_tensor_array().append(np.full(1, value, "float32"))
    block = fluid.default_main_program().global_block()
    filled = block.create_var(name="filled", dtype="float32", persistable=True)
    out = block.create_var(name="out", dtype="float32", persistable=True)
    block.append_op("read_from_array", {"X": filled, "I": fluid.layers.fill_constant([1], "int64", 1)}, {"Out": out})
    for _ in range(2):
        fluid.Executor().run()
        assert np.array(fluid.global_scope().find_var("out").get_tensor()).tolist() == [4.0]


def in_one_array() -> tuple[Any, Any]:
    """One array, twice."""
    array = np.ones((3, 4), "float32")
    return array, array


def in_rows_of_one() -> tuple[Any, Any]:
    """Rows that overlap."""
    rows = np.ones((4, 4), "float32")
    return rows[:3], rows[1:]


@each("native", ["0", "1"])
@each("make", [in_one_array, in_rows_of_one])
def test_variables_that_share_memory_are_updated_apart(
    make: Callable[[], tuple[Any, Any]], native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scope is given one array under two names; a program overwrites one, then both."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    x = fluid.data("x", [3, 4])
    a, b, read = (
        layers.create_global_var([3, 4], 0.0, "float32", persistable=True, name=name) for name in ("a", "b", "only_read")
    )
    executor, scope = fluid.Executor(), Scope()
    for name, array in zip(("a", "b"), make(), strict=True):
        scope.put(name, array)
    scope.put("only_read", scope.array("a"))
    layers.assign(layers.tanh(layers.elementwise_add(a, x)), a)
    expected = sums = 1.0
    for number in range(4):
        if number == 2:
            layers.assign(layers.elementwise_add(b, a), b)
        added = np.full((3, 4), number, "float32")
        fetched = executor.run(feed={"x": added}, fetch_list=[a, b, read], scope=scope)
        expected = np.tanh(expected + number)
        sums += expected if number >= 2 else 0.0
        for array, value in zip(fetched, (expected, sums, 1.0), strict=True):
            np.testing.assert_allclose(array, np.full((3, 4), value), rtol=1e-6)


def unaligned(array: Any) -> Any:
    """A read-only view of a copy of an array that begins one byte behind a multiple of the element's size."""
    memory = bytes(1) + array.tobytes()
    return np.frombuffer(memory, np.uint8)[1:].view(array.dtype).reshape(array.shape)


@each("native", ["0", "1"])
def test_parameters_as_they_lie_in_a_file_are_copied_once(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a combined file they begin at any byte. numpy would copy the whole table in each run of a program over sequences."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    table, weight = np.random.default_rng(0).random((50, 4), np.float32), np.arange(12, dtype=np.float32).reshape(4, 3)
    out = layers.fc(layers.embedding(words, [50, 4], param_attr="table"), 3, param_attr="weight", bias_attr=False)
    total = layers.sequence_pool(out, "sum")
    executor, scope = fluid.Executor(), Scope()
    scope.put("table", unaligned(table))
    scope.put("weight", np.asfortranarray(weight))
    held = set()
    for lengths in ([2, 1], [1, 3], [2, 1]):
        ids = np.arange(sum(lengths))[:, None]
        (fetched,) = executor.run(feed={"words": (ids, [lengths])}, fetch_list=[total], scope=scope)
        rows = np.split(table[ids[:, 0]] @ weight, np.cumsum(lengths)[:-1])
        np.testing.assert_allclose(fetched, [part.sum(0) for part in rows], rtol=1e-5)
        held.add((id(scope.array("table")), id(scope.array("weight"))))
    assert len(held) == 1
    assert scope.array("table").flags.aligned and never_changes(scope.array("table"))
    assert scope.array("weight").flags.c_contiguous


@each("native", ["0", "1"])
def test_a_table_in_a_file_is_trained_over_sequences(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update of some rows works in place, which the memory of a mapped file does not allow."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    rows = layers.embedding(words, [5, 2], is_sparse=True, param_attr="table")
    fluid.optimizer.SGD(0.5).minimize(layers.reduce_sum(layers.sequence_pool(rows, "sum")))
    executor, scope = fluid.Executor(), Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    table = np.ones((5, 2), np.float32)
    scope.put("table", unaligned(table))
    for lengths in ([2, 1], [1, 2]):
        executor.run(feed={"words": ([[1], [3], [3]], [lengths])}, scope=scope)
    np.testing.assert_allclose(scope.array("table")[:, 0], [1, 0, 1, -1, 1])
    assert (table == 1).all()


def double_a_counter() -> None:
    """Let the current program double a variable of the scope, which is 1 at first."""
    counter = layers.create_global_var([3, 4], 1.0, "float32", persistable=True, name="counter")
    layers.assign(layers.scale(counter, 2.0), counter)


def with_gaps() -> tuple[Any, Any]:
    """An array, and every second number of the memory that holds it."""
    memory = np.ones((3, 8), "float32")
    return memory[:, :4], memory[:, ::2]


def backwards() -> tuple[Any, Any]:
    """An array, and its rows from the last to the first."""
    array = np.ones((3, 4), "float32")
    return array, array[::-1]


@each("native", ["0", "1"])
@each("is_first", [True, False])
@each("make", [in_one_array, in_rows_of_one, with_gaps, backwards])
def test_variables_that_a_program_does_not_name_keep_their_values(
    make: Callable[[], tuple[Any, Any]], is_first: bool, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scope holds the array of a counter under another name, too, before the first run or after it."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    double_a_counter()
    executor, scope = fluid.Executor(), Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    if not is_first:
        executor.run(scope=scope)
    array, kept = make()
    scope.put("counter", array)
    scope.put("kept", kept)
    for number in range(3):
        executor.run(scope=scope)
        assert (scope.array("counter") == 2.0 ** (number + 1)).all()
        assert (scope.array("kept") == 1).all()


@each("native", ["0", "1"])
def test_a_copy_of_a_variable_made_between_runs_keeps_its_values(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The array of a counter is put into its scope under another name while plans are bound to it."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    double_a_counter()
    executor, scope = fluid.Executor(), Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    for number in range(3):
        executor.run(scope=scope)
        scope.put("kept", scope.array("counter"))
        executor.run(scope=scope)
        assert (scope.array("kept") == 2.0 ** (2 * number + 1)).all()
        assert (scope.array("counter") == 2.0 ** (2 * number + 2)).all()


def in_array_of_tensors(scope: Scope, array: Any) -> Any:
    """Hold an array as the second entry of an array of tensors."""
    scope.put("kept", [np.zeros(1, "float32"), array])
    return scope.find_var("kept").get_lod_tensor_array()[1].array


def in_sparse_rows(scope: Scope, array: Any) -> Any:
    """Hold an array as the values of sparse rows."""
    scope.put("kept", SelectedRows([0, 1, 2], array, 8))
    return scope.array("kept").value


def in_hidden_variable(scope: Scope, array: Any) -> Any:
    """Hold an array in a variable of the scope's parent that has the same name."""
    scope._parent.var("counter").get_tensor().array = array
    return scope._parent.array("counter")


@each("native", ["0", "1"])
@each("keep", [in_array_of_tensors, in_sparse_rows, in_hidden_variable])
def test_other_values_in_the_memory_of_a_variable_are_kept(
    keep: Callable[[Scope, Any], Any], native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUID_NATIVE", native)
    double_a_counter()
    executor, scope = fluid.Executor(), Scope(Scope())
    scope.var("counter").get_tensor().array = array = np.ones((3, 4), "float32")
    kept = keep(scope, array)
    for number in range(3):
        executor.run(scope=scope)
        assert (scope.array("counter") == 2.0 ** (number + 1)).all()
        assert (kept == 1).all()


def share_all(scope: Scope) -> None:
    """Give each array of a scope a second name."""
    for name in scope.local_var_names():
        scope.put(f"{name} again", scope.array(name))


def forbid_writing(scope: Scope) -> None:
    """Make all arrays of a scope read-only, like arrays of mapped files."""
    for name in scope.local_var_names():
        scope.array(name).flags.writeable = False


@each("make_optimizer", [partial(fluid.optimizer.SGD, 0.1), partial(fluid.optimizer.Adam, 0.1)])
@each("change", [share_all, forbid_writing])
def test_sparse_updates_in_programs_with_sequences_write_to_no_other_variable(
    change: Callable[[Scope], None], make_optimizer: Callable[[], Any]
) -> None:
    """Such programs run op by op. The rows of a table are updated in its array, so no other variable may have its memory."""
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    rows = layers.embedding(words, [5, 4], is_sparse=True)
    make_optimizer().minimize(layers.mean(layers.sequence_pool(rows, "sum")))
    executor, scope, other = fluid.Executor(), Scope(), Scope()
    executor.run(fluid.default_startup_program(), scope=other)
    first = {name: array.copy() for name in other.local_var_names() if (array := other.array(name)) is not None}
    for name, array in first.items():
        scope.put(name, array.copy())
    arrays = scope.arrays()
    change(scope)
    for _ in range(2):
        for each_scope in (scope, other):
            executor.run(feed={"words": (np.array([[1], [1], [4]], "int64"), [[2, 1]])}, scope=each_scope)
    for name in first:
        np.testing.assert_array_equal(scope.array(name), other.array(name))
        np.testing.assert_array_equal(arrays[name], first[name])


@each("native", ["0", "1"])
def test_accumulators_in_one_array_are_updated_apart_step_by_step(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse gradient of sequences of ever other lengths updates rows in place."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    pooled = layers.sequence_pool(layers.embedding(words, [9, 4], is_sparse=True, param_attr="table"), "sum")
    fluid.optimizer.Ftrl(0.1).minimize(layers.mean(layers.square(layers.fc(pooled, 1))))
    executor, scopes = fluid.Executor(), [Scope(), Scope()]
    for scope in scopes:
        fluid.default_startup_program().random_seed = 1
        executor.run(fluid.default_startup_program(), scope=scope)
    scopes[1].put("table_squared_0", scopes[1].array("table_linear_0"))
    for length in range(1, 5):
        feed = {"words": (np.arange(length + 2).reshape(-1, 1), [[0, length, length + 2]])}
        for scope in scopes:
            executor.run(feed=feed, scope=scope)
        for name in ("table", "table_squared_0", "table_linear_0"):
            np.testing.assert_array_equal(scopes[0].array(name), scopes[1].array(name), name)
