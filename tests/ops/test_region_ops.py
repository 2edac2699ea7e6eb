"""An op that owns a block, defined outside the package as `fluid.extend` says: its definition, its handler, its gradient.

Everything else that has to know how values pass through the block (inference, pruning, plans, the printed program,
explanations, gradients of gradients, the viewer) goes by the op's region.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from checks import own_ops

import fluid
from fluid import io, layers
from fluid.extend import (
    REGION,
    Region,
    Runs,
    block,
    define,
    differentiate_block,
    differentiates,
    expand_as_loop,
    expands,
    gradient_region,
    run_backwards,
    runs,
    strings,
)
from fluid.formats.text import parse_program_text, program_to_string
from fluid.viewer.graph import ViewGraph

N = 3


@pytest.fixture(scope="module", autouse=True)
def repeat():
    """Define `repeat(n)`, for as long as this file's tests run."""

    def region(op):
        return Region(
            op, op.attr("sub_block"), repeats=True, writes=tuple(op.output("Out")), reads_slot="X", scopes_slot="StepScopes"
        )

    with own_ops():

        @define("repeat(X*?) -> Out*, StepScopes?", grad=REGION, region=region, sub_block=block(), n=1)
        def repeat():
            """Run the block `n` times."""

        @define(
            "repeat_grad(X*, Out*, Out@GRAD*?, StepScopes, Carried*?, Saved*?) -> X@GRAD*?, CarriedOut*?",
            grad=REGION,
            shape_only=("X",),
            region=gradient_region("X", "StepScopes"),
            gradient_of="repeat",
            sub_block=block(),
            input_grads=strings(),
        )
        def repeat_grad():
            """Run the block of gradients once for each run of the block, the last one first."""

        differentiates("repeat")(differentiate_block)
        expands("repeat_grad")(expand_as_loop)

        @runs("repeat")
        def run_repeat(machine, op, env):
            block_runs = Runs(machine, op, env)
            for number in range(op.attr("n")):
                block_runs.once(number)
            block_runs.finish()

        runs("repeat_grad")(run_backwards)
        yield


def repeated(times, reads, writes, body):
    """Append `repeat` to the default program, with a block that `body` fills."""
    program = fluid.default_main_program()
    home = program.current_block()
    with program.block_guard(program.create_block()) as inner:
        body()
    scopes = home.create_var(name=fluid.unique_name.generate("scopes"), type=fluid.core.VarDesc.VarType.STEP_SCOPES)
    home.append_op(
        "repeat",
        {"X": [*reads, *writes]},
        {"Out": writes, "StepScopes": scopes},
        {"sub_block": inner, "n": times},
    )


def powers():
    """h = tanh(h * w), three times, from x; and an idle variable that the block only counts."""
    x = layers.data("x", [2], append_batch_size=False, stop_gradient=False)
    w = layers.create_parameter([2], "float32", "w", default_initializer=fluid.initializer.ConstantInitializer(0.5))
    h = layers.assign(x)
    idle = layers.fill_constant([1], "float32", 0.0)

    def body():
        layers.assign(layers.tanh(layers.elementwise_mul(h, w)), h)
        layers.increment(idle)

    repeated(N, [w], [h, idle], body)
    return x, w, h, idle


def by_hand(x, w, times=N):
    """The same in numpy: the result, and its derivatives by x and by w."""
    h, by_x, by_w = x, np.ones_like(x), np.zeros_like(x)
    for _ in range(times):
        new = np.tanh(h * w)
        slope = 1 - new * new
        h, by_x, by_w = new, slope * w * by_x, slope * (w * by_w + h)
    return h, by_x, by_w


X, W = np.array([0.3, -0.8], "float32"), np.array([0.5, 0.5], "float32")


def run(fetch, **feed):
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    return exe.run(feed={"x": X, **feed}, fetch_list=fetch)


def test_it_runs_and_its_shapes_are_inferred():
    _, _, h, idle = powers()
    assert h.shape == (2,)
    value, count = run([h, idle])
    np.testing.assert_allclose(value, by_hand(X, W)[0], rtol=1e-6)
    assert count == [N]


def test_gradients_are_those_of_the_formula():
    x, w, h, _ = powers()
    found = run(fluid.gradients([h], [x, w]))
    np.testing.assert_allclose(found[0], by_hand(X, W)[1], rtol=1e-5)
    np.testing.assert_allclose(found[1], by_hand(X, W)[2], rtol=1e-5)


def test_gradients_of_gradients():
    x, _, h, _ = powers()
    (first,) = fluid.gradients([h], [x])
    (second,) = fluid.gradients([first], [x])
    step = 1e-6
    wide, weight = X.astype("float64"), W.astype("float64")
    expected = (by_hand(wide + step, weight)[1] - by_hand(wide - step, weight)[1]) / (2 * step)
    np.testing.assert_allclose(run([second])[0], expected, rtol=1e-4)


def test_a_parameter_inside_is_trained():
    _, _, h, _ = powers()
    loss = layers.reduce_mean(layers.square(h - 0.25))
    fluid.optimizer.SGD(0.5).minimize(loss)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    losses = [float(exe.run(feed={"x": X}, fetch_list=[loss])[0].reshape(())) for _ in range(40)]
    assert losses[-1] < 0.6 * losses[0]
    assert all(math.isfinite(value) for value in losses)


def test_what_is_not_needed_inside_is_pruned():
    _, _, h, idle = powers()
    program = fluid.default_main_program()
    inside = [op.type for op in program.blocks[1].ops]
    assert "increment" in inside
    assert "increment" not in [op.type for op in io.prune(program, [h]).blocks[1].ops]
    assert [op.type for op in io.prune(program, [idle]).blocks[1].ops] == ["increment"]


def test_it_is_printed_and_parsed_and_comes_back_from_bytes():
    x, _, h, _ = powers()
    fluid.gradients([h], [x])
    program = fluid.default_main_program()
    program.verify()
    assert "repeat(X=[w, " in str(program)
    text = program_to_string(program)
    assert program_to_string(parse_program_text(text)) == text
    assert str(fluid.Program.parse_from_string(program.serialize_to_string())) == str(program)


def test_its_gradient_is_explained():
    x, w, h, idle = powers()
    program = fluid.default_main_program()
    for start in (x, w):
        assert program.explain_gradient(h, start).startswith(f"The gradient of {h.name} reaches {start.name} along")
    assert "repeat" in program.explain_gradient(h, w)
    (inside,) = program.blocks[1].ops[1].output_arg_names
    program.blocks[1].var(inside).stop_gradient = True
    assert f"{inside} has stop_gradient" in program.explain_gradient(h, w)
    assert program.explain_gradient(idle, w).startswith("No gradient")


def test_the_viewer_has_an_edge_from_one_run_to_the_next():
    _, _, h, idle = powers()
    graph = ViewGraph(fluid.default_main_program())
    numbers = {(value.block, value.name, value.version): number for number, value in enumerate(graph.values)}
    for name in (h.name, idle.name):
        assert (numbers[1, name, 1], numbers[1, name, 0]) in graph.links


def test_a_clone_with_other_names_runs_as_well():
    _, _, h, _ = powers()
    clone = fluid.default_main_program().clone(for_test=True)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    (found,) = exe.run(clone, feed={"x": X}, fetch_list=[h.name])
    np.testing.assert_allclose(found, by_hand(X, W)[0], rtol=1e-6)
