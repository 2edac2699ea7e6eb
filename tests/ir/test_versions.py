"""Versions of names: what each op reads and writes, and what blocks read and write of the names around them."""

from __future__ import annotations

import fluid
from fluid import layers
from fluid.ir.program import Block
from fluid.ir.versions import BlockVersions, outer_names, reads_and_writes


def block() -> Block:
    return fluid.default_main_program().global_block()


def test_each_write_makes_a_version() -> None:
    x = fluid.data("x", [2, 3])
    y = x * 2.0
    layers.assign(y, x)
    layers.increment(x)
    versions = BlockVersions(block())
    assert [dict(reads) for reads in versions.reads] == [{"X": [("x", 0)]}, {"X": [(y.name, 1)]}, {"X": [("x", 1)]}]
    assert [dict(writes) for writes in versions.writes] == [{"Out": [(y.name, 1)]}, {"Out": [("x", 1)]}, {"Out": [("x", 2)]}]
    assert versions.current("x") == ("x", 2) and versions.current("unknown") == ("unknown", 0)
    assert versions.last == {"x": 2, y.name: 1}
    assert versions.writer == {(y.name, 1): 0, ("x", 1): 1, ("x", 2): 2}
    assert versions.read_first == {"x"}


def test_an_updated_output_is_read_too() -> None:
    x, i = fluid.data("x", [2]), layers.fill_constant([1], "int64", 0)
    array = layers.create_array("float32")
    layers.array_write(x, i, array)
    layers.array_write(x, i, array)
    versions = BlockVersions(block())
    name = array.name
    assert versions.updates[-2:] == [{"Out": (name, 0)}, {"Out": (name, 1)}]
    assert ("Out", 0, (name, 1)) in list(versions.read_at(len(versions.ops) - 1))
    assert list(versions.written_at(len(versions.ops) - 1)) == [("Out", 0, (name, 2))]


def test_empty_places() -> None:
    x = fluid.data("x", [2])
    op = block().append_op("sum", {"X": [x]}, {"Out": block().create_var(name="out")})
    op.inputs["X"].append("@EMPTY@")
    versions = BlockVersions(block())
    assert versions.reads[0] == {"X": [("x", 0), None]}
    assert list(versions.read_at(0)) == [("X", 0, ("x", 0))]


def test_versions_are_of_the_ops_as_they_stood() -> None:
    x = fluid.data("x", [2])
    layers.relu(x)
    versions = BlockVersions(block())
    layers.relu(x)
    assert len(versions.ops) == 1


def test_what_blocks_read_and_write_around_them() -> None:
    x, y = fluid.data("x", [1]), fluid.data("y", [1])
    state = layers.assign(x)
    other = layers.assign(x)
    limit = layers.fill_constant([1], "float32", 9.0)
    condition = layers.less_than(state, limit)
    loop = layers.While(condition)
    with loop.block():
        local = layers.relu(state)
        switch = layers.Switch()
        with switch, switch.case(layers.less_than(local, limit)):
            layers.assign(y, other)
        layers.assign(local + other, state)
        layers.less_than(state, limit, cond=condition)
    (body,) = block().ops[-1].sub_blocks
    reads, writes = outer_names(body)
    # `other` is written in a branch that may not be taken, so that it may be read as it was
    assert sorted(reads) == sorted([state.name, limit.name, "y", other.name])
    assert sorted(writes) == sorted([other.name, state.name, condition.name])
    assert local.name in reads_and_writes(body)[1] and local.name not in writes
    reads, writes = reads_and_writes(block())
    assert "x" in reads and "y" in reads and other.name not in reads
    assert state.name in writes


def test_names_that_only_hold_what_was_written_are_not_read_first() -> None:
    x = fluid.data("x", [2])
    y = layers.relu(x)
    layers.assign(layers.relu(y), x)
    layers.relu(x)
    assert BlockVersions(block()).read_first == {"x"}
    assert reads_and_writes(block())[0] == ["x"]
