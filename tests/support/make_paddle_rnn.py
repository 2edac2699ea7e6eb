"""Make `golden/paddle_rnn.npz`: what Paddle 2.6.2 gives for the recurrent ops, with gradients.

Run ``python tests/support/make_paddle_rnn.py`` where Paddle is installed. The file holds, for each case, the outputs and the
gradients of their sum, each weighted by an array; inputs and weights are drawn here again by who compares. Gradients are left
out where Paddle's are no derivatives: it takes none of the cells of `lstm`, and for the backward direction of `rnn` with
SequenceLength, others than central differences give.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from paths import TESTS

TARGET = TESTS / "golden" / "paddle_rnn.npz"


class Case:
    """An op with inputs (a list of lengths with those whose rows form sequences), attributes, and outputs to look at.

    `differentiated` are the slots of the outputs whose gradients are taken; all by default.
    """

    def __init__(
        self,
        op_type: str,
        make: Callable[[Any], dict[str, Any]],
        outputs: dict[str, int],
        differentiated: tuple[str, ...] | None = None,
        **attrs: Any,
    ) -> None:
        self.op_type, self.outputs, self.attrs = op_type, outputs, attrs
        self.differentiated = tuple(outputs) if differentiated is None else differentiated
        self.rng = np.random.default_rng(zlib.crc32(repr((op_type, attrs)).encode()))
        self.inputs = make(lambda *shape: self.rng.uniform(-1, 1, shape).astype("float32"))

    def weight_of(self, array: Any) -> Any:
        """The next random array like `array`: call once for each output, in order."""
        return self.rng.uniform(-1, 1, array.shape).astype("float32")


LENGTHS = [3, 1, 4]


def network(mode: str, directions: int, lengths: bool) -> Callable[[Any], dict[str, Any]]:
    gates = {"LSTM": 4, "GRU": 3}.get(mode, 1)

    def make(draw: Any) -> dict[str, Any]:
        passes = 2 * directions
        features = [size for layer in (3, 2 * directions) for size in (layer, 2) * directions]
        made = {
            "Input": draw(4, 3, 3),
            "PreState": [draw(passes, 3, 2) for _ in range(2 if mode == "LSTM" else 1)],
            "WeightList": [draw(gates * 2, size) for size in features] + [draw(gates * 2) for _ in range(2 * passes)],
        }
        return {**made, "SequenceLength": np.array(LENGTHS, "int32")} if lengths else made

    return make


def lstm(peepholes: bool, first: bool) -> Callable[[Any], dict[str, Any]]:
    def make(draw: Any) -> dict[str, Any]:
        made = {"Input": (draw(8, 8), LENGTHS), "Weight": draw(2, 8), "Bias": draw(1, 14 if peepholes else 8)}
        return {**made, **({"H0": draw(3, 2), "C0": draw(3, 2)} if first else {})}

    return make


def gru(first: bool, bias: bool) -> Callable[[Any], dict[str, Any]]:
    def make(draw: Any) -> dict[str, Any]:
        made: dict[str, Any] = {"Input": (draw(8, 6), LENGTHS), "Weight": draw(2, 6)}
        return {**made, **({"H0": draw(3, 2)} if first else {}), **({"Bias": draw(1, 6)} if bias else {})}

    return make


def gru_unit(draw: Any) -> dict[str, Any]:
    return {"Input": draw(3, 6), "HiddenPrev": draw(3, 2), "Weight": draw(2, 6), "Bias": draw(1, 6)}


def cases() -> list[Case]:
    found = []
    for mode in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU"):
        for directions, lengths in ((2, False), (1, True), (2, True)):
            outputs = {"Out": 1, "State": 2 if mode == "LSTM" else 1}
            attrs = {"mode": mode, "num_layers": 2, "is_bidirec": directions == 2, "input_size": 3, "hidden_size": 2}
            known = () if directions == 2 and lengths else None
            found.append(Case("rnn", network(mode, directions, lengths), outputs, known, **attrs, dropout_prob=0.0))
    for origin_mode in (False, True):
        found.append(Case("gru_unit", gru_unit, {"Hidden": 1}, origin_mode=origin_mode, activation=2, gate_activation=1))
        found.append(Case("gru", gru(origin_mode, True), {"Hidden": 1}, origin_mode=origin_mode, is_reverse=False))
        found.append(Case("gru", gru(True, origin_mode), {"Hidden": 1}, origin_mode=origin_mode, is_reverse=True))
    cells = {"Hidden": 1, "Cell": 1}
    for number in range(4):
        flags = {"use_peepholes": number > 1, "is_reverse": number % 2 == 1}
        found.append(Case("lstm", lstm(number > 1, number % 2 == 1), cells, ("Hidden",), **flags))
    activations = {"gate_activation": "sigmoid", "cell_activation": "relu", "candidate_activation": "identity"}
    found.append(Case("lstm", lstm(True, True), cells, ("Hidden",), use_peepholes=True, is_reverse=False, **activations))
    return found


def by_paddle(case: Case) -> dict[str, Any]:
    """Outputs by slot and number, and gradients by slot and number with ``@GRAD``."""
    import paddle

    main, place = paddle.static.Program(), paddle.CPUPlace()
    executor = paddle.static.Executor(place)
    block, feed = main.global_block(), {}
    inputs: dict[str, Any] = {}
    with paddle.static.program_guard(main):
        for slot, value in case.inputs.items():
            inputs[slot] = []
            for number, item in enumerate(value if isinstance(value, list) else [value]):
                array, lengths = item if isinstance(item, tuple) else (item, None)
                name = f"{slot}:{number}"
                var = block.create_var(
                    name=name, shape=array.shape, dtype=str(array.dtype), lod_level=1 if lengths else 0, is_data=True
                )
                var.stop_gradient = array.dtype.kind != "f"
                feed[name] = array if lengths is None else paddle.base.create_lod_tensor(array, [lengths], place)
                inputs[slot].append(var)
        made = {
            slot: [block.create_var(name=f"{slot}:{n}", dtype="float32") for n in range(count)]
            for slot, count in case.outputs.items()
        }
        kept = {
            "rnn": ["Reserve", "DropoutState"],
            "gru_unit": ["Gate", "ResetHiddenPrev"],
            "gru": ["BatchGate", "BatchResetHiddenPrev", "BatchHidden"],
            "lstm": ["BatchGate", "BatchCellPreAct"],
        }[case.op_type]
        others = {slot: [block.create_var(name=slot, dtype="uint8" if "State" in slot else "float32")] for slot in kept}
        block.append_op(type=case.op_type, inputs=inputs, outputs={**made, **others}, attrs=case.attrs)
        outputs = [var for variables in made.values() for var in variables]
        found = executor.run(main, feed=feed, fetch_list=outputs, return_numpy=False)
        arrays = [np.array(value) for value in found]
        result = {var.name: array for var, array in zip(outputs, arrays, strict=True)}
        targets = [var for slot in case.differentiated for var in made[slot]]
        if not targets:
            return result
        factors = []
        for var in targets:
            array = result[var.name]
            factors.append(block.create_var(name=var.name + "@W", shape=array.shape, dtype="float32", is_data=True))
            weight = case.weight_of(array)
            lod = var.lod_level or case.op_type in ("lstm", "gru")
            feed[var.name + "@W"] = paddle.base.create_lod_tensor(weight, [LENGTHS], place) if lod else weight
        wanted = [var for variables in inputs.values() for var in variables if not var.stop_gradient]
        grads = paddle.static.gradients(targets, wanted, factors)
        values = executor.run(main, feed=feed, fetch_list=grads, return_numpy=False)
    return {**result, **{var.name + "@GRAD": np.array(value) for var, value in zip(wanted, values, strict=True)}}


def main() -> None:
    import paddle

    paddle.enable_static()
    kept = {f"{number}/{name}": value for number, case in enumerate(cases()) for name, value in by_paddle(case).items()}
    np.savez_compressed(TARGET, **kept)
    print(f"{len(kept)} arrays in {TARGET}")


if __name__ == "__main__":
    main()
