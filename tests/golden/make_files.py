"""Writes `files/`: one of each kind of file that Fluid writes, so that later versions can be held to them.

Run it with the version whose files are to be kept: ``python tests/golden/make_files.py``.
`tests/formats/test_old_files.py` reads them.
"""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import fluid
from fluid import dygraph, layers, optimizer
from fluid.ir.program import Program, program_guard

HERE = Path(__file__).parent / "files"
X = np.random.default_rng(4).uniform(-1, 1, (4, 6)).astype("float32")


def training_program() -> tuple[Program, Program, Any]:
    """A loop, a branch, a recurrence, an embedding with sparse gradients, dropout, batch norm, and Adam."""
    main, startup = Program(), Program()
    main.random_seed = startup.random_seed = 7
    with program_guard(main, startup), fluid.unique_name.guard():
        x, ids = fluid.data("x", [None, 6]), fluid.data("ids", [None, 1], "int64")
        hidden = layers.batch_norm(layers.fc(x, 6, act="tanh")) + layers.embedding(ids, [10, 6], is_sparse=True)
        hidden = layers.dropout(hidden, 0.3, dropout_implementation="upscale_in_train")
        step, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2)
        _, hidden = layers.while_loop(
            lambda i, h: layers.less_than(i, last),
            lambda i, h: [
                layers.increment(i, in_place=False),
                layers.tanh(layers.fc(h, 6, param_attr="shared", bias_attr=False)),
            ],
            [step, hidden],
        )
        hidden = layers.cond(layers.less_than(step, last), lambda: hidden * 2.0, lambda: layers.exp(hidden))
        sequence = layers.transpose(layers.reshape(hidden, [-1, 3, 2]), [1, 0, 2])
        rnn = layers.StaticRNN()
        with rnn.step():
            now = rnn.step_input(sequence)
            before = rnn.memory(shape=[-1, 2], batch_ref=now)
            after = layers.tanh(now + before)
            rnn.update_memory(before, after)
            rnn.step_output(after)
        loss = layers.mean(layers.square(rnn()))
        rate = layers.exponential_decay(0.1, 2, 0.5)
        optimizer.Adam(rate, regularization=fluid.regularizer.L2Decay(0.01)).minimize(loss)
    return main, startup, loss


FEED = {"x": X, "ids": np.array([[1], [4], [1], [9]])}


def programs() -> None:
    main, startup, loss = training_program()
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for _ in range(2):
        executor.run(main, FEED, [loss], scope=scope)
    (HERE / "training.program").write_bytes(main.serialize_to_string())
    (HERE / "training.txt").write_text(main.to_string())
    (HERE / "startup.program").write_bytes(startup.serialize_to_string())
    with fluid.scope_guard(scope):
        fluid.io.save_persistables(executor, str(HERE / "separate"), main)
        fluid.io.save_persistables(executor, str(HERE), main, filename="combined.params")
        fluid.save(main, str(HERE / "saved"))
        fluid.save_checkpoint(main, str(HERE / "training.checkpoint"), step=2)
    losses = [executor.run(main, FEED, [loss], scope=scope)[0] for _ in range(3)]
    np.savez(HERE / "training.npz", losses=np.array(losses).reshape(-1), loss=loss.name)

    main, startup = Program(), Program()
    main.random_seed = startup.random_seed = 5
    with program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 6])
        y = layers.softmax(layers.fc(layers.fc(x, 5, act="relu"), 3))
    scope = fluid.Scope()
    executor.run(startup, scope=scope)
    with fluid.scope_guard(scope):
        fluid.io.save_inference_model(str(HERE / "inference"), ["x"], [y], executor, main)
        fluid.save_model(str(HERE / "model.pdmodel"), main, ["x"], [y], target="paddle-2.6")
        fluid.model_io.save_arrays(str(HERE / "arrays.npz"), {"x": X, "n": np.arange(3)})
        fluid.model_io.save_arrays(str(HERE / "arrays.safetensors"), {"x": X, "n": np.arange(3)})
    np.savez(HERE / "inference.npz", y=executor.run(main, {"x": X}, [y], scope=scope)[0])


class Net(dygraph.Sequential):
    pass


def nets() -> dict[str, Any]:
    """Networks with parameters that were made, by name."""
    attr = fluid.ParamAttr(
        name="w",
        initializer=fluid.initializer.Normal(0.0, 0.1, seed=2),
        regularizer=fluid.regularizer.L1Decay(0.1),
        gradient_clip=fluid.clip.GradientClipByNorm(0.5),
    )
    normed = fluid.WeightNormParamAttr(0, initializer=fluid.initializer.Xavier(seed=4))
    made = {
        "linear": dygraph.Linear(6, 3, param_attr=attr),
        "layers": dygraph.Sequential(
            dygraph.FC("fc", 5, param_attr=fluid.initializer.Uniform(-0.5, 0.5, 6)),
            dygraph.BatchNorm("bn", 5),
            dygraph.Linear(5, 2),
        ),
        "norms": dygraph.Sequential(dygraph.Linear(6, 4, param_attr=normed), dygraph.LayerNorm("ln", begin_norm_axis=1)),
        "of": dygraph.LayerOf(layers.fc, size=3, act="tanh", param_attr=fluid.initializer.Constant(0.2)),
    }
    for net in made.values():
        net(dygraph.to_variable(X))
    return made


OPTIMIZERS = {
    "sgd": lambda p: optimizer.SGD(dygraph.PiecewiseDecay([2], [0.1, 0.05], 0), parameter_list=p),
    "momentum": lambda p: optimizer.Momentum(0.1, 0.9, parameter_list=p, regularization=fluid.regularizer.L2Decay(0.1)),
    "adam": lambda p: optimizer.Adam(
        dygraph.NoamDecay(16, 3), parameter_list=p, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)
    ),
    "adagrad": lambda p: optimizer.Adagrad(0.1, parameter_list=p),
    "rmsprop": lambda p: optimizer.RMSProp(0.1, parameter_list=p),
    "lookahead": lambda p: optimizer.LookaheadOptimizer(optimizer.SGD(0.1, parameter_list=p), 0.5, 2),
}


def train(net: Any, how: Any, steps: int) -> list[Any]:
    """A few steps; the parameters after them."""
    for _ in range(steps):
        loss = (net(dygraph.to_variable(X)) ** 2).sum()
        loss.backward()
        how.minimize(loss)
        net.clear_gradients()
    return [parameter.numpy() for parameter in net.parameters()]


def pickles() -> None:
    expected: dict[str, Any] = {}
    for name, net in nets().items():
        how = OPTIMIZERS["adam"](net.parameters())
        train(net, how, 2)
        average = optimizer.ExponentialMovingAverage(0.9, parameter_list=net)
        average.update()
        data = pickle.dumps((net, how, average))
        (HERE / f"net_{name}.pickle").write_bytes(data)
        expected.update({f"net_{name}.{number}": value for number, value in enumerate(train(net, how, 2))})
        if name == "layers":
            dygraph.save_dygraph(net.state_dict(), str(HERE / "eager"))
            dygraph.save_dygraph(how.state_dict(), str(HERE / "eager"))
            expected.update({f"eager.{key}": value.numpy() for key, value in net.state_dict().items()})
    for name, make in OPTIMIZERS.items():
        net = dygraph.Linear(6, 3, param_attr=fluid.initializer.Uniform(-0.5, 0.5, 6))
        how = make(net.parameters())
        train(net, how, 2)
        (HERE / f"optimizer_{name}.pickle").write_bytes(pickle.dumps((net, how)))
        expected.update({f"optimizer_{name}.{number}": value for number, value in enumerate(train(net, how, 2))})
    tensor = dygraph.to_tensor(X, stop_gradient=False)
    sequences = fluid.create_lod_tensor(X, [[1, 3]], fluid.CPUPlace())
    values = {
        "tensor": tensor,
        "places": [fluid.CPUPlace(), fluid.CUDAPlace(1)],
        "types": [fluid.core.VarDesc.VarType.FP32, fluid.types.VarType.LOD_TENSOR],
        "attrs": [fluid.ParamAttr("w"), fluid.WeightNormParamAttr(1)],
        "initializers": [fluid.initializer.MSRA(), fluid.initializer.NumpyArrayInitializer(X)],
        "rates": [dygraph.ExponentialDecay(0.1, 2, 0.5), dygraph.CosineDecay(0.1, 2, 4)],
        "lod": sequences,
        "traced": dygraph.to_static(dygraph.Linear(6, 3)),
        "metrics": [fluid.metrics.Accuracy(), fluid.metrics.Auc("auc")],
        "errors": [fluid.errors.ProgramError("what"), fluid.errors.FeedError("no")],
    }
    for name, value in values.items():
        try:
            data = pickle.dumps(value)
        except Exception as error:
            print(f"{name} is not pickled: {error}")
            continue
        (HERE / f"value_{name}.pickle").write_bytes(data)
    np.savez(HERE / "pickles.npz", **expected)


if __name__ == "__main__":
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    programs()
    with dygraph.guard():
        pickles()
