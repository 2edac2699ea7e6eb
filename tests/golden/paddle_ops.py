"""Runs single ops with Paddle 2.6.2, for the scripts beside this one. It needs paddlepaddle==2.6.2 and numpy<2."""

import json

import numpy as np
import paddle

paddle.enable_static()


def tensor(array, lod):
    value = paddle.base.core.LoDTensor()
    value.set(np.ascontiguousarray(array), paddle.CPUPlace())
    if lod:
        value.set_lod(lod)
    return value


def listed(value):
    return value if isinstance(value, list) else [value]


def run(number, op_type, inputs, attrs, outputs, wrt, arrays):
    """Runs one op, and its gradient for a seed of cosines; puts arrays into `arrays` and returns what else there is to know.

    `inputs` has arrays, pairs of array and LoD, or lists of these by slot; `outputs` a type or list of types by slot.
    """
    main = paddle.static.Program()
    with paddle.static.program_guard(main):
        block = main.global_block()
        feed, slots, record_inputs = {}, {}, {}
        for slot, value in inputs.items():
            slots[slot], record_inputs[slot] = [], []
            for place, item in enumerate(listed(value)):
                array, lod = item if isinstance(item, tuple) else (item, [])
                name = f"{number}.in.{slot}.{place}"
                var = block.create_var(name=name, shape=array.shape, dtype=str(array.dtype), lod_level=len(lod))
                var.stop_gradient, var.is_data = slot not in wrt, True
                feed[name] = tensor(array, lod)
                slots[slot].append(var)
                arrays[name] = array
                record_inputs[slot].append(lod)
        made = {
            slot: [
                block.create_var(name=f"{number}.out.{slot}.{place}", dtype=dtype) for place, dtype in enumerate(listed(types))
            ]
            for slot, types in outputs.items()
        }
        block.append_op(type=op_type, inputs=slots, outputs=made, attrs=dict(attrs))
        fetch = [var for variables in made.values() for var in variables]
        exe = paddle.static.Executor(paddle.CPUPlace())
        values = dict(
            zip([var.name for var in fetch], exe.run(main, feed=feed, fetch_list=fetch, return_numpy=False), strict=True)
        )
        values = {name: value for name, value in values.items() if value._is_initialized()}  # Paddle writes what it measures
        for name, value in values.items():
            arrays[name] = np.asarray(value)
        if wrt:
            (target,) = made[next(iter(outputs))]
            shape = arrays[target.name].shape
            kind = str(arrays[target.name].dtype)
            seed = block.create_var(name=f"{number}.seed", shape=target.shape, dtype=kind)
            seed.is_data = True
            steps = np.arange(np.prod(shape))
            waves = np.exp(1j * steps) if kind.startswith("complex") else np.cos(steps)
            feed[seed.name] = arrays[seed.name] = waves.astype(kind).reshape(shape)
            grads = paddle.static.gradients([target], [slots[slot][0] for slot in wrt], [seed])
            for slot, value in zip(wrt, exe.run(main, feed=feed, fetch_list=grads, return_numpy=False), strict=True):
                arrays[f"{number}.grad.{slot}"] = np.asarray(value)
    lods = {slot: [values[var.name].lod() for var in vars_] for slot, vars_ in made.items() if vars_[0].name in values}
    many = [slot for slot, value in {**inputs, **outputs}.items() if isinstance(value, list)]
    return {"type": op_type, "attrs": attrs, "inputs": record_inputs, "outputs": lods, "many": many, "wrt": list(wrt)}


def write(path, cases):
    """Runs all cases, which are the arguments of `run` between number and arrays, and writes their file."""
    arrays = {}
    records = [run(number, *case, arrays) for number, case in enumerate(cases)]
    for record in records:
        print(record["type"], record["attrs"], record["outputs"])
    arrays["records"] = np.array(json.dumps(records))
    np.savez_compressed(path, **arrays)
