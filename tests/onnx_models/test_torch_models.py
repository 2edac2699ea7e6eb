"""Models that torch exports: outputs, gradients and training beside torch's own.

The exporter's optimizations join parameters of equal values, and put constants into weights; so what is to be trained is exported
without them, and what only computes with them.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import torch

import fluid
from fluid import layers

pytestmark = pytest.mark.slow

RATE, STEPS = 0.01, 20


def vision() -> Any:
    """torchvision; where its compiled ops do not fit torch, which these models do not use, without them."""
    for package in ("PIL", "torchvision"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"could not import {package}")
    try:
        import torchvision
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            with contextlib.suppress(RuntimeError):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    return torchvision


class Recurrent(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 16)
        self.lstm = torch.nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.out = torch.nn.Linear(48, 5)

    def forward(self, ids: Any) -> Any:
        return self.out(self.lstm(self.table(ids))[0][:, -1])


class Logits(torch.nn.Module):  # type: ignore[misc]
    """A model of transformers, as a function of tensors."""

    def __init__(self, model: Any, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Any) -> Any:
        return self.model(**dict(zip(self.names, inputs, strict=True))).logits


def build(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A model with random weights, and inputs."""
    torch.manual_seed(1)
    image, ids = torch.randn(2, 3, 64, 64), torch.randint(0, 50, (2, 12))
    if name == "resnet18":
        return vision().models.resnet18(num_classes=10), (image,)
    if name == "mobilenet_v3":
        return vision().models.mobilenet_v3_small(num_classes=10, dropout=0.0), (image,)
    if name == "vit_b_16":
        sizes = {"num_layers": 2, "num_heads": 4, "hidden_dim": 64, "mlp_dim": 128}
        return vision().models.vision_transformer.VisionTransformer(image_size=64, patch_size=16, num_classes=10, **sizes), (
            image,
        )
    if name == "lstm":
        return Recurrent(), (ids,)
    transformers = pytest.importorskip("transformers")
    if name == "bert":
        config = transformers.BertConfig(
            vocab_size=100,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        mask = torch.ones(2, 12, dtype=torch.long)
        mask[0, 8:] = 0
        return Logits(transformers.BertForSequenceClassification(config), "input_ids", "attention_mask"), (ids, mask)
    if name == "gpt2":
        sizes = {
            "n_positions": 64,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        }
        config = transformers.GPT2Config(vocab_size=100, use_cache=False, **sizes)
        return Logits(transformers.GPT2LMHeadModel(config), "input_ids"), (ids,)
    config = transformers.T5Config(
        vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0, use_cache=False
    )
    return Logits(transformers.T5ForConditionalGeneration(config), "input_ids", "decoder_input_ids"), (ids, ids[:, :7])


@contextlib.contextmanager
def silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def export(model: Any, inputs: Any, path: Path, by: str, **how: Any) -> None:
    model = copy.deepcopy(model)
    with silence():
        if by == "dynamo":
            torch.onnx.export(model.eval(), inputs, str(path), dynamo=True, external_data=False, verbose=False, **how)
        elif by == "script, trained":
            how = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
            torch.onnx.export(model.train(), inputs, str(path), dynamo=False, opset_version=17, **how)
        else:
            torch.onnx.export(model.eval(), inputs, str(path), dynamo=False, opset_version=17, **how)


def distance(actual: Any, expected: Any) -> float:
    """The greatest difference, relative to the greatest number."""
    return float(np.abs(np.asarray(actual) - expected).max() / max(np.abs(expected).max(), 1e-3))


def outputs_of(model: Any, inputs: Any) -> Any:
    """The outputs of a loaded model."""
    feed = {name: value.numpy() for name, value in zip(model.feeds, inputs, strict=True)}
    return fluid.Executor().run(model.program, feed=feed, fetch_list=model.fetches, scope=model.scope)[0]


BOTH = [("dynamo", name) for name in ("resnet18", "mobilenet_v3", "vit_b_16", "bert", "gpt2", "lstm")]
BOTH += [("script", name) for name in ("resnet18", "mobilenet_v3", "vit_b_16", "bert", "t5", "lstm")]
"""What torch can export: T5 is not for the one exporter, GPT-2 not for the other."""


@pytest.mark.parametrize("by, name", BOTH)
def test_outputs(by: str, name: str, tmp_path: Path) -> None:
    model, inputs = build(name)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
        expected = model(*inputs).numpy()
    export(model, inputs, tmp_path / "m.onnx", by)
    loaded = fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope())
    assert distance(outputs_of(loaded, inputs), expected) < 1e-5


@pytest.mark.parametrize(
    "by, name", [("dynamo", "bert"), ("dynamo", "gpt2"), ("script", "t5"), ("dynamo", "lstm"), ("script", "vit_b_16")]
)
def test_sizes_that_a_run_tells(by: str, name: str, tmp_path: Path) -> None:
    model, inputs = build(name)
    model.eval()
    of_text = inputs[0].dtype is torch.int64
    if by == "dynamo":
        sizes = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=2, max=60)}
        shapes = tuple(sizes if of_text else {0: sizes[0]} for _ in inputs)
        export(model, inputs, tmp_path / "m.onnx", by, dynamic_shapes=(shapes,) if isinstance(model, Logits) else shapes)
    else:
        names = [f"in{n}" for n in range(len(inputs))]
        axes = {input_name: {0: "batch", 1: f"length of {input_name}"} if of_text else {0: "batch"} for input_name in names}
        export(model, inputs, tmp_path / "m.onnx", by, input_names=names, dynamic_axes=axes)
    loaded = fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope())
    assert {sizes[0] for sizes in loaded.dimensions.values()} == {"batch"}
    for count in (1, 3):
        fed = [torch.cat([value] * 2)[:count] for value in inputs]
        fed = [torch.cat([value, value[:, :3]], 1) for value in fed] if of_text else fed
        with torch.no_grad():
            expected = model(*fed).numpy()
        assert distance(outputs_of(loaded, fed), expected) < 1e-5


WAYS = [("dynamo", name) for name in ("resnet18", "mobilenet_v3", "vit_b_16", "bert", "gpt2", "lstm")] + [
    ("script, trained", "t5")
]


@pytest.mark.parametrize("by, name", WAYS)
def test_training(by: str, name: str, tmp_path: Path) -> None:
    model, inputs = build(name)
    export(model, inputs, tmp_path / "m.onnx", by, **({"optimize": False} if by == "dynamo" else {}))
    with torch.no_grad():
        classes = copy.deepcopy(model).eval()(*inputs)
    labels = torch.randint(0, classes.shape[-1], classes.shape[:-1])
    parameters = dict(model.named_parameters(remove_duplicate=False))  # a tied weight has one of its names

    loaded = fluid.load_model(tmp_path / "m.onnx", scope=fluid.Scope())
    program = loaded.program
    loaded_names = {name.replace("/", "."): name for name in loaded.parameters}
    program.make_trainable([loaded_names[name] for name in parameters if name in loaded_names])
    with fluid.program_guard(program, fluid.Program()):
        label = fluid.data("label", [*labels.shape, 1], "int64")
        output = program.global_block().var(loaded.fetches[0].name)
        loss = layers.mean(layers.softmax_with_cross_entropy(output, label))
        _, pairs = fluid.optimizer.SGD(RATE).minimize(loss)
        startup = fluid.default_startup_program()
    executor = fluid.Executor()
    executor.run(startup, scope=loaded.scope)
    feed = {name: value.numpy() for name, value in zip(loaded.feeds, inputs, strict=True)}
    feed["label"] = labels.numpy()[..., None]

    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        scores = model(*inputs)
        expected = torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), labels.reshape(-1))
        expected.backward()
        wanted = [gradient for _, gradient in pairs] if step == 0 else []
        value, *gradients = executor.run(program, feed=feed, fetch_list=[loss, *wanted], scope=loaded.scope)
        for (parameter, _), gradient in zip(pairs, gradients, strict=False):
            assert distance(gradient, parameters[parameter.name].grad.numpy()) < 1e-4, parameter.name
        losses.append((float(np.reshape(value, ())), expected.item()))
        optimizer.step()
    assert len(pairs) == len([parameter for parameter in model.parameters() if parameter.grad is not None])
    ours, theirs = zip(*losses, strict=True)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert ours[-1] < ours[0]
