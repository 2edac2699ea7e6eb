"""Writes paddle_sequence.npz: ops on sequences run by Paddle 2.6.2, with inputs, LoD, outputs and gradients.

Runs in an environment of its own that has paddlepaddle==2.6.2 and numpy<2.
"""

import json
import sys

import numpy as np
import paddle

paddle.enable_static()
rng = np.random.RandomState(7)


def x(rows, *rest, ints=None):
    if ints:
        return rng.randint(*ints, size=(rows, *rest)).astype("int64")
    return rng.standard_normal((rows, *rest)).astype("float32")


L = [[0, 2, 2, 5, 6]]  # an empty sequence inside
M = [[0, 3, 4, 6]]
TWO = [[0, 2, 3], [0, 1, 3, 6]]
CASES = [
    *(
        ("sequence_pool", {"X": (x(6, 3), L)}, {"pooltype": kind, "pad_value": 0.5}, ["Out"])
        for kind in ("SUM", "AVERAGE", "SQRT", "MAX", "LAST", "FIRST")
    ),
    ("sequence_pool", {"X": (x(6, 2, 2), TWO)}, {"pooltype": "SUM"}, ["Out"]),
    ("sequence_pool", {"X": (x(6, 3), TWO)}, {"pooltype": "MAX"}, ["Out"]),
    ("sequence_softmax", {"X": (x(6, 1), M)}, {}, ["Out"]),
    ("sequence_expand", {"X": (x(3, 2), []), "Y": (x(4, 1), [[0, 2, 2, 4]])}, {"ref_level": 0}, ["Out"]),
    ("sequence_expand", {"X": (x(4, 1), [[0, 2, 4]]), "Y": (x(8, 1), [[0, 2, 4], [0, 3, 6, 7, 8]])}, {"ref_level": 0}, ["Out"]),
    ("sequence_expand", {"X": (x(3, 2), []), "Y": (x(6, 1), TWO)}, {"ref_level": -1}, ["Out"]),
    ("sequence_expand", {"X": (x(3, 2), [[0, 1, 2, 3]]), "Y": (x(6, 1), M)}, {"ref_level": -1}, ["Out"]),
    ("sequence_expand_as", {"X": (x(3, 2), []), "Y": (x(6, 1), M)}, {}, ["Out"]),
    ("sequence_expand_as", {"X": (x(4, 2), []), "Y": (x(6, 1), L)}, {}, ["Out"]),
    ("sequence_concat", {"X": [(x(6, 2), M), (x(5, 2), [[0, 1, 1, 5]])]}, {}, ["Out"]),
    (
        "sequence_slice",
        {
            "X": (x(6, 2), M),
            "Offset": (np.array([[1], [0], [1]], "int64"), []),
            "Length": (np.array([[2], [1], [1]], "int64"), []),
        },
        {},
        ["Out"],
    ),
    ("sequence_pad", {"X": (x(6, 2), M), "PadValue": (np.array([9.0], "float32"), [])}, {"padded_length": -1}, ["Out", "Length"]),
    ("sequence_pad", {"X": (x(6, 2), M), "PadValue": (x(2), [])}, {"padded_length": 5}, ["Out", "Length"]),
    ("sequence_pad", {"X": (x(6, 2), L), "PadValue": (np.array([0.0], "float32"), [])}, {"padded_length": -1}, ["Out", "Length"]),
    ("sequence_unpad", {"X": (x(3, 4, 2), []), "Length": (np.array([2, 4, 1], "int64"), [])}, {}, ["Out"]),
    ("sequence_reshape", {"X": (x(6, 4), [[0, 2, 6]])}, {"new_dim": 8}, ["Out"]),
    ("sequence_reshape", {"X": (x(6, 4), M)}, {"new_dim": 2}, ["Out"]),
    ("sequence_reverse", {"X": (x(6, 2), L)}, {}, ["Y"]),
    ("sequence_enumerate", {"X": (x(6, 1, ints=(1, 9)), M)}, {"win_size": 3, "pad_value": 0}, ["Out"]),
    ("sequence_erase", {"X": (np.array([[2], [2], [6], [1], [3], [9]], "int64"), M)}, {"tokens": [2, 3]}, ["Out"]),
    (
        "sequence_scatter",
        {"X": (x(3, 6), []), "Ids": (np.array([[0], [2], [2], [5], [4], [1]], "int64"), M), "Updates": (x(6, 1), M)},
        {},
        ["Out"],
    ),
    *(
        (
            "sequence_conv",
            {"X": (x(6, 2), M), "Filter": (x(length * 2, 3), [])},
            {"contextStart": start, "contextLength": length, "contextStride": 1},
            ["Out"],
        )
        for start, length in ((-1, 3), (0, 2), (-1, 2), (-2, 4))
    ),
    ("lod_reset", {"X": (x(6, 2), M)}, {"target_lod": [0, 2, 6]}, ["Out"]),
    ("lod_reset", {"X": (x(6, 2), []), "Y": (x(6, 1), TWO)}, {}, ["Out"]),
    ("lod_reset", {"X": (x(6, 2), []), "Y": (np.array([0, 2, 6], "int32"), [])}, {}, ["Out"]),
    ("row_conv", {"X": (x(6, 2), M), "Filter": (x(3, 2), [])}, {}, ["Out"]),
    (
        "im2sequence",
        {"X": (x(2, 2, 4, 4), [])},
        {"kernels": [2, 2], "strides": [1, 2], "paddings": [1, 0, 1, 0]},
        ["Out"],
    ),
    ("add_position_encoding", {"X": (x(6, 4), L)}, {"alpha": 0.5, "beta": 2.0}, ["Out"]),
    ("sequence_unpad", {"X": (x(3, 4), []), "Length": (np.array([2, 4, 1], "int64"), [])}, {}, ["Out"]),
]
DIFFERENTIABLE = {
    "sequence_pool": ["X"], "sequence_softmax": ["X"], "sequence_expand": ["X"], "sequence_expand_as": ["X"],
    "sequence_concat": ["X"], "sequence_slice": ["X"], "sequence_pad": ["X"], "sequence_unpad": ["X"],
    "sequence_reshape": ["X"], "sequence_reverse": ["X"], "sequence_scatter": ["X", "Updates"],
    "sequence_conv": ["X", "Filter"], "lod_reset": ["X"], "row_conv": ["X", "Filter"], "im2sequence": ["X"],
    "add_position_encoding": ["X"],
}  # fmt: skip


def tensor(array, lod):
    found = paddle.base.core.LoDTensor()
    found.set(array, paddle.CPUPlace())
    if lod:
        found.set_lod(lod)
    return found


def run(op_type, inputs, attrs, outputs, arrays, number):
    main = paddle.static.Program()
    with paddle.static.program_guard(main):
        block = main.global_block()
        feed, slots = {}, {}
        for slot, value in inputs.items():
            slots[slot] = []
            for array, lod in value if isinstance(value, list) else [value]:
                name = f"{slot}{len(slots[slot])}"
                var = block.create_var(
                    name=name, shape=[-1, *array.shape[1:]] if lod else array.shape, dtype=str(array.dtype), lod_level=len(lod)
                )
                var.stop_gradient = array.dtype.kind != "f"
                var.is_data = True
                feed[name] = tensor(array, lod)
                slots[slot].append(var)
        made = {name: block.create_var(name=name, dtype="float32" if name != "Length" else "int64") for name in outputs}
        extra = {"MaxIndex": [block.create_var(name="MaxIndex", dtype="int32")]} if op_type == "sequence_pool" else {}
        block.append_op(type=op_type, inputs=slots, outputs={**{k: [v] for k, v in made.items()}, **extra}, attrs=dict(attrs))
        fetch = list(made.values())
        wrt = DIFFERENTIABLE.get(op_type, [])
        if wrt:
            weights = np.cos(np.arange(10000)).astype("float32")
        exe = paddle.static.Executor(paddle.CPUPlace())
        values = exe.run(main, feed=feed, fetch_list=fetch, return_numpy=False)
        record = {"type": op_type, "attrs": attrs, "inputs": {}, "outputs": {}, "gradients": {}}
        for slot, value in inputs.items():
            many = isinstance(value, list)
            record["inputs"][slot] = {"many": many, "lods": []}
            for position, (array, lod) in enumerate(value if many else [value]):
                arrays[f"{number}.in.{slot}.{position}"] = array
                record["inputs"][slot]["lods"].append(lod)
        for name, value in zip(outputs, values, strict=True):
            arrays[f"{number}.out.{name}"] = np.asarray(value)
            record["outputs"][name] = value.lod()
        if wrt:
            shape = np.asarray(values[0]).shape
            seed = weights[: int(np.prod(shape))].reshape(shape)
            arrays[f"{number}.seed"] = seed
            given = block.create_var(name="seed", shape=shape, dtype="float32", lod_level=len(values[0].lod()))
            given.is_data = True
            made[outputs[0]].desc.set_shape(shape)
            wanted = [var for slot in wrt for var in slots[slot]]
            grads = paddle.static.gradients([made[outputs[0]]], wanted, [given])
            feed["seed"] = tensor(seed, values[0].lod())
            found = exe.run(main, feed=feed, fetch_list=grads, return_numpy=False)
            for var, value in zip(wanted, found, strict=True):
                arrays[f"{number}.grad.{var.name}"] = np.asarray(value)
    return record


def main(path):
    arrays, records = {}, []
    for number, (op_type, inputs, attrs, outputs) in enumerate(CASES):
        try:
            records.append(run(op_type, inputs, attrs, outputs, arrays, number))
        except Exception as error:
            print(op_type, attrs, "FAILED", str(error)[-600:])
            records.append(None)
    arrays["records"] = np.array(json.dumps(records))
    np.savez_compressed(path, **arrays)


main(sys.argv[1])
