"""Generated names."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from checks import each

import fluid
from fluid import layers, unique_name
from fluid.ir.program import Parameter, Program, program_guard
from fluid.unique_name import UniqueNameGenerator


def test_names_are_numbered_by_key() -> None:
    with unique_name.guard():
        assert [unique_name.generate(key) for key in ("fc", "fc", "conv2d", "fc")] == ["fc_0", "fc_1", "conv2d_0", "fc_2"]


def test_guards_start_anew_and_give_back() -> None:
    with unique_name.guard():
        unique_name.generate("a")
        with unique_name.guard("prefix_"):
            assert unique_name.generate("a") == "prefix_a_0"
        try:
            with unique_name.guard():
                assert unique_name.generate("a") == "a_0"
                raise KeyError
        except KeyError:
            pass
        assert unique_name.generate("a") == "a_1"


def test_switching() -> None:
    mine = UniqueNameGenerator("x_")
    old = unique_name.switch(mine)
    try:
        assert unique_name.generate("a") == "x_a_0"
        assert unique_name.switch() is mine
        assert unique_name.generate("a") == "a_0"
    finally:
        unique_name.switch(old)


def test_layers_are_named_as_in_fluid() -> None:
    """Saved parameters find their variables by these names."""
    with unique_name.guard(), program_guard(Program(), Program()):
        x = fluid.data("x", [-1, 1, 8, 8])
        conv = layers.conv2d(x, 4, 3, act="relu")
        first = layers.fc(conv, 3)
        second = layers.fc(first, 2, act="softmax")
        assert [var.name for var in (conv, first, second)] == ["conv2d_0.tmp_2", "fc_0.tmp_1", "fc_1.tmp_2"]
        names = [parameter.name for parameter in fluid.default_main_program().all_parameters()]
        assert names == ["conv2d_0.w_0", "conv2d_0.b_0", "fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"]


def test_a_thread_that_switches_leaves_the_others_alone() -> None:
    found = []

    def work() -> None:
        with unique_name.guard():
            found.append(unique_name.generate("a"))

    with unique_name.guard():
        unique_name.generate("a")
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert unique_name.generate("a") == "a_1"
    assert found == ["a_0"]


# ------------------------------------------------------------------------------------------------- programs from files
def network(x: Any) -> Any:
    return layers.fc(layers.fc(x, 3, act="relu"), 3)


def saved() -> tuple[Program, set[str]]:
    """A program as a file gives it, and the names in it."""
    program = Program()
    with unique_name.guard(), program_guard(program, Program()):
        network(fluid.data("x", [-1, 3]))
        y = fluid.data("y", [1])
        layers.cond(layers.reduce_sum(y) > 0, lambda: layers.tanh(y), lambda: layers.relu(y))
    loaded = Program.parse_from_string(program.serialize_to_string())
    return loaded, {var.name for var in loaded.list_vars()}


@each("guards", [0, 1, 2])
def test_layers_on_a_program_from_a_file_take_no_name_that_it_has(guards: int) -> None:
    loaded, names = saved()
    before = loaded.to_string()
    shapes = {var.name: var.shape for var in loaded.list_vars()}
    with contextlib.ExitStack() as stack:
        for _ in range(guards):
            stack.enter_context(unique_name.guard())
        stack.enter_context(program_guard(loaded, Program()))
        if guards == 2:
            stack.enter_context(unique_name.guard())  # starts from zero once more
        y = network(loaded.global_block().var("fc_1.tmp_1"))
        loss = layers.mean(y)
        fluid.optimizer.Adam(0.1).minimize(loss)
    made = [var for var in loaded.list_vars() if var.name not in names]
    assert {var.name: var.shape for var in loaded.list_vars() if var.name in names} == shapes
    assert before.splitlines()[-10:] != loaded.to_string().splitlines()[-10:]
    new = [var.name for var in made if isinstance(var, Parameter)]
    assert len(new) == 4 and {name.split(".")[0] for name in new}.isdisjoint({"fc_0", "fc_1"})
    written = [name for op in loaded.global_block().ops for name in op.output_arg_names if op.role == 0]
    assert len(written) == len(set(written))


def test_the_first_names_that_are_free_are_taken() -> None:
    loaded, _ = saved()
    with unique_name.guard(), program_guard(loaded, Program()):
        first = layers.fc(loaded.global_block().var("x"), 3)
        assert first.name == "fc_2.tmp_1" and unique_name.generate("fc") == "fc_3" and unique_name.generate("odd") == "odd_0"
        named = layers.fc(first, 3, name="fc_0")
        assert named.name == "fc_0.tmp_4" and "fc_0.w_1" in loaded.global_block().vars  # tmp_0 to 2 were there
        with program_guard(Program(), Program()):
            assert unique_name.generate("conv2d") == "conv2d_0" and layers.fc(fluid.data("x", [1, 3]), 3).name == "fc_4.tmp_1"
    with unique_name.guard():
        assert unique_name.generate("fc") == "fc_0"


def test_parameters_of_a_program_from_a_file_are_shared_by_name() -> None:
    loaded, _ = saved()
    with unique_name.guard(), program_guard(loaded, Program()):
        layers.fc(loaded.global_block().var("x"), 3, param_attr="fc_0.w_0", bias_attr=False)
    assert [op.input("Y") for op in loaded.global_block().ops if op.type == "mul"][-1] == ["fc_0.w_0"]
    assert len(loaded.all_parameters()) == 4


def test_programs_built_here_are_numbered_as_in_fluid() -> None:
    """Two guards name the same parameters twice: so weights are shared there."""
    program = Program()
    with program_guard(program, Program()):
        x = fluid.data("x", [-1, 3])
        for _ in range(2):
            with unique_name.guard():
                layers.fc(x, 3)
    assert [parameter.name for parameter in program.all_parameters()] == ["fc_0.w_0", "fc_0.b_0"]


def test_errors_and_other_threads_leave_names_alone() -> None:
    loaded, _ = saved()
    found: list[str] = []
    with unique_name.guard():
        with pytest.raises(KeyError), program_guard(loaded):
            thread = threading.Thread(target=lambda: found.append(unique_name.generate("a thread's")))
            thread.start()
            thread.join()
            raise KeyError
        assert unique_name.generate("fc") == "fc_0" and found == ["a thread's_0"]
