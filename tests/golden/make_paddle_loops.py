"""Makes `paddle_loops.npz`: loops that Paddle 2.6 wrote and differentiated, with its numbers. Run it where Paddle is installed.

The file holds, for each case, ``name.program``, the bytes of the program with its gradients, ``name.fetch``, the names of its
result and of the gradients, ``name.feed.variable`` and ``name.value.i``, what Paddle gives for them. In each body a variable is
updated in place (by increment): Paddle keeps no copies of such a variable, its gradient block counts it back.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.static.nn import while_loop
from paddle.static.nn.control_flow import While

paddle.enable_static()
arrays: dict[str, Any] = {}
rng = np.random.default_rng(11)


def integer(value: int) -> Any:
    return paddle.full([1], value, "int64")


def case(build: Callable[[Any, Any], Any]) -> None:
    """A loop over rows of `x`, with another factor `w`; `build` gives the result."""
    main, name = paddle.static.Program(), build.__name__
    with paddle.static.program_guard(main, paddle.static.Program()):
        x, w = paddle.static.data("x", [4, 3]), paddle.static.data("w", [3])
        x.stop_gradient = w.stop_gradient = False
        result = paddle.sum(build(x, w))
        grads = paddle.static.gradients([result], [x, w])
    feed = {"x": rng.uniform(0.5, 1.5, (4, 3)).astype("float32"), "w": rng.uniform(0.5, 1.5, 3).astype("float32")}
    fetch = [result.name, *(grad.name for grad in grads)]
    values = paddle.static.Executor(paddle.CPUPlace()).run(main, feed, fetch)
    arrays[f"{name}.program"] = np.frombuffer(main.desc.serialize_to_string(), "uint8")
    arrays[f"{name}.fetch"] = np.array(fetch)
    arrays.update({f"{name}.feed.{key}": value for key, value in feed.items()})
    arrays.update({f"{name}.value.{i}": value for i, value in enumerate(values)})


@case
def gather_then_increment(x: Any, w: Any) -> Any:
    def body(i: Any, h: Any) -> list[Any]:
        h = paddle.tanh(h * w + paddle.gather(x, i))
        return [paddle.increment(i), h]

    return while_loop(lambda i, h: paddle.less_than(i, integer(3)), body, [integer(0), w * 1.0])[1]


@case
def increment_then_gather(x: Any, w: Any) -> Any:
    def body(i: Any, h: Any) -> list[Any]:
        i = paddle.increment(i)
        return [i, paddle.tanh(h * w + paddle.gather(x, i))]

    return while_loop(lambda i, h: paddle.less_than(i, integer(3)), body, [integer(0), w * 1.0])[1]


@case
def two_counters(x: Any, w: Any) -> Any:
    """One goes up by two, the other down; a third, a float, is multiplied with."""

    def body(i: Any, j: Any, t: Any, h: Any) -> list[Any]:
        h = h * w * t + paddle.gather(x, j)
        j = paddle.increment(j, -1)
        h = paddle.tanh(h * paddle.gather(x, j))
        return [paddle.increment(i, 2), j, paddle.increment(t, 0.5), h]

    start = [integer(0), integer(3), paddle.full([1], 0.5), w * 1.0]
    return while_loop(lambda i, j, t, h: paddle.less_than(i, integer(5)), body, start)[3]


@case
def block_of_ops(x: Any, w: Any) -> Any:
    """As programs of 1.x are: names are overwritten in the block."""
    i, n, h = integer(0), integer(4), w * 1.0
    go = paddle.less_than(i, n)
    loop = While(go)
    with loop.block():
        row = paddle.gather(x, i)
        paddle.assign(paddle.tanh(h * row + w), h)
        paddle.increment(i)
        paddle.assign(paddle.less_than(i, n), go)
    return h


@case
def loop_in_loop(x: Any, w: Any) -> Any:
    def outer(i: Any, h: Any) -> list[Any]:
        def inner(j: Any, g: Any) -> list[Any]:
            g = paddle.tanh(g * paddle.gather(x, j) + paddle.gather(x, i))
            return [paddle.increment(j), g]

        # A copy: of a variable that a trip overwrites and then reads, Paddle's gradient is wrong.
        _, g = while_loop(lambda j, g: paddle.less_than(j, integer(2)), inner, [integer(0), paddle.assign(h)])
        return [paddle.increment(i), g * w]

    return while_loop(lambda i, h: paddle.less_than(i, integer(3)), outer, [integer(0), w * 1.0])[1]


@case
def wrong_in_paddle(x: Any, w: Any) -> Any:
    """The second product reads a variable that the trip overwrote; Paddle's gradient reads the value before the trip."""
    i, n, h = integer(0), integer(3), paddle.tanh(x)
    go = paddle.less_than(i, n)
    loop = While(go)
    with loop.block():
        paddle.assign(h * w, h)
        paddle.assign(paddle.tanh(h * h), h)
        paddle.increment(i)
        paddle.assign(paddle.less_than(i, n), go)
    return h


@case
def recurrence(x: Any, w: Any) -> Any:
    """The op `recurrent`, as layers of 1.x write it; the state is an output too, without which 2.6 has no gradient of it."""
    main = paddle.static.default_main_program()
    outer, first = main.global_block(), w * 0.5
    block = main._create_block()
    row = block.create_var(name=x.name, shape=[3], dtype="float32")
    before, state = (block.create_var(name=name, shape=[3], dtype="float32") for name in ("before", "state"))
    after = paddle.tanh(before * w + row * before)
    output = paddle.assign(after)
    paddle.assign(after, state)
    main._rollback()
    stacked = [outer.create_var(name=each.name, shape=[4, 3], dtype="float32") for each in (output, state)]
    scopes = outer.create_var(name="scopes", type=paddle.base.core.VarDesc.VarType.STEP_SCOPES)
    outer.append_op(
        type="recurrent",
        inputs={"inputs": [x], "initial_states": [first], "parameters": [w]},
        outputs={"outputs": stacked, "step_scopes": [scopes]},
        attrs={"has_states": True, "ex_states": ["before"], "states": ["state"], "sub_block": block, "is_train": True},
    )
    return stacked[0] + 0.0 * stacked[1]


np.savez_compressed(Path(__file__).with_name("paddle_loops.npz"), **arrays)
