"""Make `paddle_optimizers.npz`: a parameter after one step and after five, by the optimizers' ops of Paddle 2.6.2.

Run it by a Python that has paddlepaddle 2.6.2: ``python tests/golden/make_paddle_optimizers.py``. The entry ``cases`` (JSON) has
for each case the op, its attributes, and which output updates which input; arrays are named ``case/start/slot``,
``case/after1/slot`` and ``case/after5/slot``, gradients ``case/grads`` (one for each step).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import paddle

RNG = np.random.default_rng(26)
SHAPE = (3, 4)
STEPS = 5
RATE = {"LearningRate": np.float32([0.1])}


def zeros() -> Any:
    return np.zeros(SHAPE, "float32")


def some(low: float = -1.0, high: float = 1.0) -> Any:
    return RNG.uniform(low, high, SHAPE).astype("float32")


def power(beta: float) -> Any:
    return np.float32([beta])


def adam() -> dict[str, Any]:
    return {"Moment1": zeros(), "Moment2": zeros(), "Beta1Pow": power(0.9), "Beta2Pow": power(0.999)}


def outputs(state: dict[str, Any]) -> dict[str, str]:
    return {slot.replace("Accumulator", "Accum") + "Out": slot for slot in ("Param", *state)}


def case(op: str, state: dict[str, Any], **attrs: Any) -> Any:
    return {"op": op, "start": {"Param": some(), **state}, "attrs": attrs, "outputs": outputs(state), "rate": True}


BETAS = {"beta1": 0.9, "beta2": 0.999}


def cases() -> list[Any]:
    rms = {"Moment": zeros(), "MeanSquare": zeros(), "MeanGrad": zeros()}
    found = [
        case("sgd", {}),
        case("momentum", {"Velocity": zeros()}, mu=0.9),
        case("momentum", {"Velocity": zeros()}, mu=0.9, use_nesterov=True),
        case("momentum", {"Velocity": some()}, mu=0.5, regularization_method="l2_decay", regularization_coeff=0.1),
        case("adam", adam(), **BETAS, epsilon=1e-8),
        case("adamw", adam(), **BETAS, epsilon=1e-8, coeff=0.05, with_decay=True, lr_ratio=1.0),
        case("lamb", adam(), **BETAS, epsilon=1e-6, weight_decay=0.01),
        case("lamb", adam(), **BETAS, epsilon=1e-6, weight_decay=0.0),
        case("adagrad", {"Moment": zeros()}, epsilon=1e-6),
        case("decayed_adagrad", {"Moment": zeros()}, epsilon=1e-6, decay=0.95),
        case("adadelta", {"AvgSquaredGrad": zeros(), "AvgSquaredUpdate": zeros()}, epsilon=1e-6, rho=0.95),
        case("rmsprop", rms, epsilon=1e-6, decay=0.95, momentum=0.5, centered=False),
        case("rmsprop", rms, epsilon=1e-6, decay=0.95, momentum=0.0, centered=True),
        case("ftrl", {"SquaredAccumulator": zeros(), "LinearAccumulator": zeros()}, l1=0.01, l2=0.1, lr_power=-0.5),
        case("ftrl", {"SquaredAccumulator": some(0.1, 1), "LinearAccumulator": some()}, l1=0.0, l2=0.0, lr_power=-0.3),
        case("lars_momentum", {"Velocity": zeros()}, mu=0.9, lars_coeff=0.01, lars_weight_decay=[0.05], epsilon=1e-6),
    ]
    adamax = case("adamax", {"Moment": zeros(), "InfNorm": zeros()}, **BETAS, epsilon=1e-8)
    adamax["start"]["Beta1Pow"] = power(0.9)
    sums = {f"in_sum_{i}": zeros() for i in (1, 2, 3)}
    counts = {f"in_{name}": np.int64([0]) for name in ("num_accumulates", "old_num_accumulates", "num_updates")}
    average = {
        "op": "average_accumulates",
        "start": {**sums, **counts},
        "attrs": {"average_window": 0.5, "min_average_window": 2, "max_average_window": 3},
        "outputs": {slot.replace("in_", "out_"): slot for slot in (*sums, *counts)},
        "rate": False,
    }
    return [*found, adamax, average]


def run(made: Any, grads: Any) -> list[dict[str, Any]]:
    """The state after each step; of `average_accumulates`, the parameters are the "gradients"."""
    state = {slot: value.copy() for slot, value in made["start"].items()}
    found = []
    for grad in grads:
        main = paddle.static.Program()
        block = main.global_block()
        feed = {**state, ("Grad" if made["rate"] else "param"): grad, **(RATE if made["rate"] else {})}
        for slot, value in feed.items():
            block.create_var(name=slot, shape=value.shape, dtype=str(value.dtype), is_data=True)
        inputs = {slot: [slot] for slot in feed}
        in_place = {out: [source] for out, source in made["outputs"].items()}
        block.append_op(type=made["op"], inputs=inputs, outputs=in_place, attrs=dict(made["attrs"]))
        names = list(made["outputs"].values())
        values = paddle.static.Executor(paddle.CPUPlace()).run(main, feed=feed, fetch_list=names)
        state.update(zip(names, map(np.array, values), strict=True))
        if made["op"] == "adamax":
            state["Beta1Pow"] = state["Beta1Pow"] * np.float32(0.9)
        found.append(dict(state))
    return found


def main() -> None:
    paddle.enable_static()
    arrays: dict[str, Any] = {}
    table = []
    for number, made in enumerate(cases()):
        name = f"{made['op']}_{number}"
        grads = np.stack([some() for _ in range(STEPS)])
        states = run(made, grads)
        table.append({"name": name, "op": made["op"], "attrs": made["attrs"], "outputs": made["outputs"]})
        arrays[f"{name}/grads"] = grads
        for when, state in (("start", made["start"]), ("after1", states[0]), ("after5", states[-1])):
            arrays.update((f"{name}/{when}/{slot}", value) for slot, value in state.items())
    np.savez_compressed(Path(__file__).with_name("paddle_optimizers.npz"), cases=np.array(json.dumps(table)), **arrays)


if __name__ == "__main__":
    main()
