"""Make `paddle_math.npz`: what Paddle 2.6.2 computes for some ops, and its gradients, beside the inputs.

Run it by a Python that has paddlepaddle 2.6.2: ``python tests/golden/make_paddle_math.py``. For each case, the entry ``cases``
(JSON) holds op, attributes and slots; arrays are named ``case/in|out|grad/slot[/position]``, cotangents ``case/cotangent/slot``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import paddle

RNG = np.random.default_rng(16)
FP32, INT32, INT64 = 5, 2, 3


def floats(*shape: int, low: float = -1.0, high: float = 1.0) -> Any:
    return RNG.uniform(low, high, shape).astype("float32")


def ints(*shape: int, high: int, dtype: str = "int64") -> Any:
    return RNG.integers(0, high, shape).astype(dtype)


def case(op: str, inputs: dict[str, Any], attrs: dict[str, Any], outputs: dict[str, str], grads: str = "", **more: Any) -> Any:
    """A case: outputs are slot -> dtype, ``"float32*2"`` for a list of two; `grads` names input slots, `more` the cotangent's."""
    return {"op": op, "inputs": inputs, "attrs": attrs, "outputs": outputs, "grads": grads.split(), **more}


def probabilities(*shape: int) -> Any:
    return floats(*shape, low=0.05, high=0.95)


BINARY = np.float32([[0], [1], [1], [0]])
SORTED = {"is_sorted": True, "return_index": True, "return_inverse": True, "return_counts": True, "dtype": INT64}
WINDOW = {"average_window": 0.5, "max_average_window": 20, "min_average_window": 2}
AUC = {"StatPosOut": "StatPos", "StatNegOut": "StatNeg"}
SCALING = {"incr_every_n_steps": 3, "decr_every_n_nan_or_inf": 2, "incr_ratio": 2.0, "decr_ratio": 0.5, "stop_update": False}


def cases() -> list[Any]:
    x34 = floats(3, 4)
    found = [
        case("label_smooth", {"X": probabilities(3, 4)}, {"epsilon": 0.1}, {"Out": "float32"}, "X"),
        case(
            "label_smooth",
            {"X": probabilities(3, 4), "PriorDist": probabilities(1, 4)},
            {"epsilon": 0.1},
            {"Out": "float32"},
            "X",
        ),
        case("hinge_loss", {"Logits": floats(4, 1, low=-2, high=2), "Labels": BINARY}, {}, {"Loss": "float32"}, "Logits"),
        case("bce_loss", {"X": probabilities(4, 1), "Label": probabilities(4, 1)}, {}, {"Out": "float32"}, "X"),
        case("rank_loss", {"Label": BINARY, "Left": floats(4, 1), "Right": floats(4, 1)}, {}, {"Out": "float32"}, "Left Right"),
        case(
            "modified_huber_loss",
            {"X": np.float32([[-3], [0.5], [2], [0.3]]), "Y": np.float32([[1], [1], [1], [0]])},
            {},
            {"Out": "float32", "IntermediateVal": "float32"},
            "X",
        ),
        case("bpr_loss", {"X": floats(4, 3), "Label": ints(4, 1, high=3)}, {}, {"Y": "float32"}, "X"),
        case(
            "teacher_student_sigmoid_loss",
            {"X": floats(8, 1, low=-3, high=3), "Label": np.float32([[-2], [-1], [0.3], [1.6], [0], [1], [-2], [-1]])},
            {},
            {"Y": "float32"},
            "X",
        ),
        case(
            "teacher_student_sigmoid_loss",
            {"X": np.float32([[5], [-5], [5], [-5]]), "Label": np.float32([[0.3], [1.6], [-2], [-1]])},
            {"soft_max_up_bound": 2.0, "soft_max_lower_bound": -2.0},
            {"Y": "float32"},
            "X",
        ),
        case(
            "bilinear_tensor_product",
            {"X": floats(3, 2), "Y": floats(3, 4), "Weight": floats(5, 2, 4), "Bias": floats(1, 5)},
            {},
            {"Out": "float32"},
            "X Y Weight Bias",
        ),
        case("multiplex", {"X": [x34, floats(3, 4)], "Ids": np.int32([[1], [0], [1]])}, {}, {"Out": "float32"}, "X"),
        case("add_position_encoding", {"X": floats(2, 3, 6)}, {"alpha": 0.5, "beta": 2.0}, {"Out": "float32"}, "X"),
        case("index_sample", {"X": x34, "Index": ints(3, 2, high=4)}, {}, {"Out": "float32"}, "X"),
        case("take_along_axis", {"Input": x34, "Index": ints(3, 2, high=4)}, {"Axis": 1}, {"Result": "float32"}, "Input"),
        case("masked_select", {"X": x34, "Mask": x34 > 0}, {}, {"Y": "float32"}),
        case("argsort", {"X": x34}, {"descending": True}, {"Out": "float32", "Indices": "int64"}, "X"),
        case("meshgrid", {"X": [floats(3), floats(2)]}, {}, {"Out": "float32*2"}),
        case(
            "shard_index",
            {"X": ints(5, 1, high=20)},
            {"index_num": 20, "nshards": 3, "shard_id": 1, "ignore_value": -1},
            {"Out": "int64"},
        ),
        case("hash", {"X": ints(4, 2, high=10**9)}, {"num_hash": 3, "mod_by": 100000}, {"Out": "int64"}),
        case("hash", {"X": ints(4, 3, high=10**9, dtype="int32")}, {"num_hash": 2, "mod_by": 1000}, {"Out": "int32"}),
        case("hash", {"X": ints(4, 9, high=10**9)}, {"num_hash": 2, "mod_by": 10**9}, {"Out": "int64"}),
        case("unique", {"X": ints(7, high=4)}, {"dtype": INT32}, {"Out": "int64", "Index": "int32"}),
        case(
            "unique",
            {"X": ints(3, 4, high=4)},
            {**SORTED, "axis": []},
            {"Out": "int64", "Indices": "int64", "Index": "int64", "Counts": "int64"},
        ),
        case(
            "unique_with_counts", {"X": ints(7, high=4)}, {"dtype": INT32}, {"Out": "int64", "Index": "int32", "Count": "int32"}
        ),
        case("gather_tree", {"Ids": ints(4, 2, 3, high=9), "Parents": ints(4, 2, 3, high=3)}, {}, {"Out": "int64"}),
        case("sequence_mask", {"X": np.int64([2, 0, 3])}, {"maxlen": 4, "out_dtype": FP32}, {"Y": "float32"}),
        case(
            "check_finite_and_unscale",
            {"X": [floats(3), floats(2)], "Scale": np.float32([8])},
            {},
            {"Out": "float32*2", "FoundInfinite": "bool"},
        ),
        case(
            "coalesce_tensor",
            {"Input": [x34, floats(5)]},
            {"dtype": FP32, "copy_data": True, "set_constant": False, "use_align": False},
            {"Output": "float32*2", "FusedOutput": "float32"},
        ),
        case(
            "einsum",
            {"Operands": [x34, floats(5, 4)]},
            {"equation": "ij,kj->ik"},
            {"Out": "float32", "InnerCache": "float32*2", "XShape": "float32*2"},
            "Operands",
            only=["Out"],
        ),
        case(
            "einsum",
            {"Operands": [floats(2, 3, 4), floats(4, 2)]},
            {"equation": "bij,jk->bki"},
            {"Out": "float32", "InnerCache": "float32*2", "XShape": "float32*2"},
            "Operands",
            only=["Out"],
        ),
    ]
    for reduction in ("none", "mean", "sum", "batchmean"):
        inputs = {"X": floats(3, 4), "Target": np.float32(np.maximum(floats(3, 4), 0))}
        found.append(case("kldiv_loss", inputs, {"reduction": reduction}, {"Loss": "float32"}, "X"))
    for reduction in ("none", "mean", "sum"):
        for shape in ((4, 3), (2, 3, 2, 2)):
            label = ints(shape[0], *shape[2:], high=3)
            inputs = {"X": floats(*shape), "Label": label, "Weight": probabilities(3)}
            attrs = {"reduction": reduction, "ignore_index": 1}
            found.append(case("nll_loss", inputs, attrs, {"Out": "float32", "Total_weight": "float32"}, "X"))
    for reduce in ("assign", "add", "mul"):
        inputs = {"Input": floats(3, 4), "Index": np.int64([[2, 0], [1, 3], [0, 1]]), "Value": floats(3, 2)}
        attrs = {"Axis": 1, "Reduce": reduce, "Include_self": True}
        found.append(case("put_along_axis", inputs, attrs, {"Result": "float32"}, "Input Value" if reduce != "mul" else ""))
    for slide in (0, 1, 3):
        # After the sums of each of the last batches, and of all, comes the number of batches.
        stats = [ints(slide or 1, 9, high=5) for _ in range(2)]
        pos, neg = (np.append(np.append(stat, stat.sum(0)), 4) if slide else stat for stat in stats)
        inputs = {"Predict": probabilities(20, 2), "Label": ints(20, 1, high=2), "StatPos": pos, "StatNeg": neg}
        outs = {"AUC": "float64", "StatPosOut": "int64", "StatNegOut": "int64"}
        found.append(case("auc", inputs, {"curve": "ROC", "num_thresholds": 8, "slide_steps": slide}, outs, updates=AUC))
    for infinite, good, bad in ((True, 2, 1), (False, 2, 1), (True, 0, 0)):
        found.append(
            case(
                "update_loss_scaling",
                {
                    "X": [floats(3)],
                    "FoundInfinite": np.array([infinite]),
                    "PrevLossScaling": np.float32([8]),
                    "InGoodSteps": np.int32([good]),
                    "InBadSteps": np.int32([bad]),
                },
                SCALING,
                {"Out": "float32*1", "LossScaling": "float32", "OutGoodSteps": "int32", "OutBadSteps": "int32"},
                updates={
                    "Out": "X",
                    "LossScaling": "PrevLossScaling",
                    "OutGoodSteps": "InGoodSteps",
                    "OutBadSteps": "InBadSteps",
                },
            )
        )
    for counts in ((0, 0, 0), (1, 5, 3), (19, 5, 300), (3, 0, 16383)):
        state = {slot: floats(2, 3) for slot in ("param", "in_sum_1", "in_sum_2", "in_sum_3")}
        names = ("in_num_accumulates", "in_old_num_accumulates", "in_num_updates")
        state.update((name, np.int64([count])) for name, count in zip(names, counts, strict=True))
        outs = {slot.replace("in_", "out_"): str(value.dtype) for slot, value in state.items() if slot != "param"}
        updates = {slot: slot.replace("out_", "in_") for slot in outs}
        found.append(case("average_accumulates", state, WINDOW, outs, updates=updates))
    # Without pos_weight: with it, Paddle adds max(-X, 0) once, where the definition has it pos_weight times.
    for label in (probabilities(4, 3), (floats(4, 3) > 0).astype("float32")):
        for attrs in ({}, {"normalize": True, "ignore_index": 1}):
            inputs = {"X": floats(4, 3, low=-3, high=3), "Label": label}
            found.append(case("sigmoid_cross_entropy_with_logits", inputs, attrs, {"Out": "float32"}, "X"))
    return found


def run(number: int, one: Any, arrays: dict[str, Any]) -> None:
    main = paddle.static.Program()
    feed: dict[str, Any] = {}
    with paddle.static.program_guard(main):
        block = main.global_block()

        def data(slot: str, value: Any, place: str = "") -> Any:
            name = f"{slot}{place}"
            arrays[f"{number}/in/{slot}{place}"] = feed[name] = value
            var = paddle.static.data(name, value.shape, str(value.dtype))
            var.stop_gradient = value.dtype.kind != "f"
            return var

        inputs = {
            slot: [data(slot, item, f"/{i}") for i, item in enumerate(value)] if isinstance(value, list) else data(slot, value)
            for slot, value in one["inputs"].items()
        }
        outputs: dict[str, Any] = {}
        for slot, kind in one["outputs"].items():
            dtype, _, count = kind.partition("*")
            made = [block.create_var(name=f"out_{slot}_{i}", dtype=dtype) for i in range(int(count or 1))]
            source = one.get("updates", {}).get(slot)  # state is updated where it lies
            if source:
                made = inputs[source] if count else [inputs[source]]
            outputs[slot] = made if count else made[0]
        block.append_op(type=one["op"], inputs=inputs, outputs=outputs, attrs=dict(one["attrs"]))
        kept = {slot: value for slot, value in outputs.items() if slot in one.get("only", outputs)}
        fetch = {
            f"{number}/out/{slot}" + (f"/{i}" if isinstance(value, list) else ""): var
            for slot, value in kept.items()
            for i, var in enumerate(value if isinstance(value, list) else [value])
        }
        found = paddle.static.Executor().run(main, feed=feed, fetch_list=list(fetch.values()))
        arrays.update(zip(fetch, found, strict=True))
        if one["grads"]:
            slot = next(iter(outputs))
            cotangent = floats(*arrays[f"{number}/out/{slot}"].shape)
            arrays[f"{number}/cotangent/{slot}"] = cotangent
            target = paddle.static.data("cotangent", cotangent.shape, "float32")
            wrt = {
                f"{number}/grad/{name}" + (f"/{i}" if isinstance(inputs[name], list) else ""): var
                for name in one["grads"]
                for i, var in enumerate(inputs[name] if isinstance(inputs[name], list) else [inputs[name]])
            }
            grads = paddle.static.gradients([outputs[slot]], list(wrt.values()), target_gradients=[target])
            found = paddle.static.Executor().run(main, feed={**feed, "cotangent": cotangent}, fetch_list=grads)
            arrays.update(zip(wrt, found, strict=True))


def main() -> None:
    paddle.enable_static()
    arrays: dict[str, Any] = {}
    kept = []
    for one in cases():
        print(one["op"], one["attrs"])
        run(len(kept), one, arrays)
        kept.append({"op": one["op"], "attrs": one["attrs"]})
    arrays["cases"] = np.array(json.dumps(kept))
    target = Path(__file__).parent / "paddle_math.npz"
    np.savez_compressed(target, **arrays)
    print(f"{len(kept)} cases, {target.stat().st_size} bytes in {target}")


if __name__ == "__main__":
    main()
