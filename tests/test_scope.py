"""Scopes and the tensors that they hold."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.errors import ExecutionError
from fluid.executor import CPUPlace, LoDTensor, Scope, global_scope, scope_guard


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
    assert seen == [global_scope()] and global_scope() is not mine


def test_sequences_outlive_a_run(fresh: None) -> None:
    """What a run leaves in a persistable variable has its sequences in the next one, and for who looks at the tensor."""
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
