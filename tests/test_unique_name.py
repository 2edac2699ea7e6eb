"""Generated names."""

from __future__ import annotations

import threading

import fluid
from fluid import layers, unique_name
from fluid.framework import Program, program_guard
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
