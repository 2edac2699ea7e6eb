"""Gradients through loops, branches, arrays and recurrences that Fluid writes, run by PaddlePaddle 2.6.2.

    pytest -m paddle tests/paddle/test_paddle_control_flow.py

`test_paddle_files` says how Paddle is found.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_flow_programs import BUILDERS
from differentiation import new_case
from test_paddle_files import close, paddle, paddle_python  # noqa: F401  # fixtures

import fluid
from fluid import layers, nets
from fluid.errors import ProgramError
from fluid.transform.op_versions import convert

pytestmark = pytest.mark.paddle

REFUSED = {
    "array_entry_overwritten_in_another_shape": r"are of shapes \[4\] and \[2, 3\]",
    "rnn_in_loop": "tanh_0.tmp_0 again, which is overwritten",
    "rnn_in_loop_in_branch_overwritten_later": "tanh_0.tmp_0 again, which is overwritten",
}
"""What Paddle would run wrongly, and what is said of it."""

RUN = """
import json
for name, case in json.loads(open("cases.json").read()).items():
    program = static.Program.parse_from_string(open(name + ".program", "rb").read())
    scope = paddle.base.core.Scope()
    values = {key: given[f"{name}.{key}"] for key in case["values"]}
    for key in case["persistable"]:
        scope.var(key).get_tensor().set(values.pop(key), paddle.CPUPlace())
    with static.scope_guard(scope):
        for key, value in zip(case["fetch"], executor.run(program, values, case["fetch"])):
            found[f"{name}.{key}"] = value
"""


def test_paddle_runs_our_gradients(paddle: Any, tmp_path: Path) -> None:  # noqa: F811
    """Every small program of the tests of differentiation, with the gradients of its inputs."""
    cases: dict[str, dict[str, list[str]]] = {}
    given: dict[str, Any] = {}
    wanted: dict[str, Any] = {}
    for name, build in BUILDERS.items():
        with new_case(name) as case:
            target, inputs = build(case)
            grads = [grad for grad in fluid.gradients(target, inputs) if grad is not None]
            if name in REFUSED:
                with pytest.raises(ProgramError, match=REFUSED[name]):
                    convert(case.program, "paddle-2.6")
                continue
            fetch = [target.name, *(grad.name for grad in grads)]
            wanted |= {f"{name}.{key}": value for key, value in case.run(fetch).items()}
            given |= {f"{name}.{key}": value for key, value in case.values.items()}
            persistable = [var.name for var in case.program.list_vars() if var.persistable and var.name in case.values]
            cases[name] = {"fetch": fetch, "values": list(case.values), "persistable": persistable}
            (tmp_path / f"{name}.program").write_bytes(convert(case.program, "paddle-2.6").program.serialize_to_string())
    assert len(cases) > 40
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    found = paddle(RUN, **given)
    for key, value in wanted.items():
        assert np.size(found[key]) == value.size, key
        np.testing.assert_allclose(found[key].reshape(value.shape), value, rtol=1e-6, atol=1e-9, err_msg=key)


def test_paddle_differentiates_our_forward_program(paddle: Any, tmp_path: Path) -> None:  # noqa: F811
    """Its own append_backward and optimizer, on a network that was written for it."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        img, label = fluid.data("img", [None, 1, 28, 28]), fluid.data("label", [None, 1], "int64")
        first = nets.simple_img_conv_pool(img, 6, 5, 2, 2, act="relu")
        second = nets.simple_img_conv_pool(layers.batch_norm(first), 16, 5, 2, 2, act="relu")
        prediction = layers.fc(layers.fc(second, 84, act="relu"), 10, act="softmax")
        loss = layers.mean(layers.cross_entropy(prediction, label))
        forward = fluid.default_main_program().clone()
        names = [parameter.name for parameter in forward.all_parameters() if parameter.trainable]
        fluid.optimizer.SGD(0.1).minimize(loss)
        fluid.default_startup_program().random_seed = 1
        fluid.Executor().run(fluid.default_startup_program())
        fluid.save_model(tmp_path / "net.pdmodel", forward, target="paddle-2.6")
        draw = np.random.default_rng(0)
        feed = {"img": draw.normal(size=(4, 1, 28, 28)).astype("float32"), "label": draw.integers(0, 10, (4, 1))}
        fetch = [loss.name, *(name + "@GRAD" for name in names)]
        steps = [fluid.Executor().run(feed=feed, fetch_list=fetch) for _ in range(3)]
    found = paddle(
        f"""
        program, loss = static.Program.parse_from_string(open("net.pdmodel", "rb").read()), {loss.name!r}
        static.io.load_vars(executor, ".", program, predicate=static.io.is_persistable, filename="net.pdiparams")
        startup = static.Program()
        with static.program_guard(program, startup):
            paddle.optimizer.SGD(0.1).minimize(program.global_block().var(loss), parameters={names!r})
        executor.run(startup)
        for step in range(3):
            for name, value in zip({fetch!r}, executor.run(program, dict(given), {fetch!r})):
                found[f"{{step}}.{{name}}"] = value
        """,
        **feed,
    )
    for step, values in enumerate(steps):
        for name, value in zip(fetch, values, strict=True):
            close(found[f"{step}.{name}"].reshape(value.shape), value, 1e-4)
