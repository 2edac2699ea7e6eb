"""Weights from elsewhere: files of torch and safetensors by name into layers and programs; hostile files get clear errors."""

from __future__ import annotations

import copy
import io
import json
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import dygraph, layers
from fluid.dygraph import Tensor
from fluid.errors import FluidTypeError, FormatError, ProgramError
from fluid.formats.torch_files import read_torch

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    with dygraph.guard():
        yield


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("float32")


# ------------------------------------------------------------------------------------- files as torch writes them, by hand
class Stored:
    """A tensor of a file: a view of elements."""

    def __init__(self, elements: Any, kind: str, offset: Any = 0, size: Any = None, stride: Any = None, key: str = "") -> None:
        self.elements, self.kind, self.offset, self.key = elements, kind, offset, key
        self.size = elements.shape if size is None else size
        self.stride = tuple(step // elements.itemsize for step in elements.strides) if stride is None else stride


def torch_file(path: Path, state: Any, more: dict[str, bytes] | None = None, call: str = "_rebuild_tensor_v2") -> Path:
    """Write a file with the names that torch writes, without torch."""
    modules = {"torch": types.ModuleType("torch"), "torch._utils": types.ModuleType("torch._utils")}
    storages: dict[str, bytes] = {}

    def rebuild(*_: Any) -> None:
        """Stands for the function of torch."""

    rebuild.__module__, rebuild.__qualname__ = "torch._utils", call
    setattr(modules["torch._utils"], call, rebuild)

    class Pickler(pickle._Pickler):  # type: ignore[name-defined]
        def persistent_id(self, value: Any) -> Any:
            return value.args if isinstance(value, Reference) else None

        def reducer_override(self, value: Any) -> Any:
            if not isinstance(value, Stored):
                return NotImplemented
            key = value.key or str(len(storages))
            if not value.key:
                storages[key] = value.elements.tobytes()
            kind = type(value.kind, (), {"__module__": "torch"})
            setattr(modules["torch"], value.kind, kind)
            reference = Reference(("storage", kind, key, "cpu", value.elements.size))
            return rebuild, (reference, value.offset, value.size, value.stride, False, OrderedDict())

    class Reference:
        def __init__(self, args: Any) -> None:
            self.args = args

    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    stream = io.BytesIO()
    try:
        pickler = Pickler(stream, 2)
        pickler.dispatch_table = {Stored: lambda value: pickler.reducer_override(value)}
        pickler.dump(state)
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", stream.getvalue())
        archive.writestr("net/byteorder", "little")
        for key, data in storages.items():
            archive.writestr(f"net/data/{key}", data)
        for name, data in (more or {}).items():
            archive.writestr(name, data)
    return path


def test_a_file_of_torch_is_read_without_torch(tmp_path: Path) -> None:
    a, b = drawn(3, 2), np.arange(4)
    state = OrderedDict(
        weight=Stored(a, "FloatStorage"),
        turned=Stored(a, "FloatStorage", 0, (2, 3), (1, 2)),
        part=Stored(a, "FloatStorage", 1, (2,), (2,)),
        steps=Stored(b, "LongStorage"),
        scalar=Stored(np.array(5, "float64"), "DoubleStorage"),
        empty=Stored(np.zeros([0, 3], "float32"), "FloatStorage"),
        half=Stored(np.array([1.5, -2], "float16"), "HalfStorage"),
        on=Stored(np.array([True, False]), "BoolStorage"),
    )
    found = read_torch(str(torch_file(tmp_path / "net.pt", {"model": state, "epoch": 3, "names": ["a"], "lr": 0.1})))
    expected = {
        "weight": a, "turned": a.T, "part": a.ravel()[1:4:2], "steps": b, "scalar": np.array(5.0), "empty": np.zeros([0, 3]),
        "half": [1.5, -2], "on": [True, False],
    }  # fmt: skip
    assert found.keys() == {f"model.{name}" for name in expected}
    for name, value in expected.items():
        np.testing.assert_array_equal(found[f"model.{name}"], value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": (5, 2)}, r"a tensor \[5, 2\] reaches beyond its storage of 6 elements"),
        ({"offset": 1}, "reaches beyond its storage"),
        ({"stride": (1 << 40, 1)}, "reaches beyond its storage"),
        ({"size": (1 << 40, 1 << 40), "stride": (0, 0)}, "reaches beyond its storage"),
        ({"size": (3, -2)}, "are not numbers"),
        ({"size": (3, 2), "stride": (2,)}, "are not numbers"),
        ({"offset": "a"}, "are not numbers"),
        ({"size": [3, 2]}, "are not numbers"),
        (
            {"kind": "QInt8Storage"},
            r"it refers to torch\.QInt8Storage.* Write weights alone, torch\.save\(net\.state_dict\(\), path\)",
        ),
        ({"key": "../../etc/passwd"}, "refers to the storage .* which is not in the archive"),
    ],
)
def test_hostile_tensors(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    stored = Stored(**{"elements": drawn(3, 2), "kind": "FloatStorage", **changes})
    with pytest.raises(FormatError, match=said):
        read_torch(str(torch_file(tmp_path / "net.pt", {"w": stored})))


class Harm:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('code ran')",))


def test_no_code_of_a_file_runs(tmp_path: Path) -> None:
    for state, name in ((Harm(), "builtins.exec"), ({"w": Harm()}, "builtins.exec"), (Tensor, "fluid.eager.tensor.Tensor")):
        path = tmp_path / "net.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("net/data.pkl", pickle.dumps(state, 2).replace(b"__builtin__", b"builtins"))
        with pytest.raises(FormatError, match=f"refers to {name}; only arrays, containers"):
            fluid.load_weights(dygraph.Linear(2, 3), path)
    with pytest.raises(FormatError, match=r"refers to torch\._utils\._rebuild_sparse_tensor"):
        read_torch(str(torch_file(path, {"w": Stored(drawn(2), "FloatStorage")}, call="_rebuild_sparse_tensor")))


def test_damaged_archives(tmp_path: Path) -> None:
    path = torch_file(tmp_path / "net.pt", {"w": Stored(drawn(50), "FloatStorage")})
    data = path.read_bytes()
    net = dygraph.Linear(2, 3)
    for damaged in (data[: len(data) // 2], data[:-30], b"PK\x03\x04" + bytes(100), b"\x80\x02}q\x00.", b"", b"x"):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=r"net\.pt"):
            fluid.load_weights(net, path)
    torch_file(path, {"w": Stored(drawn(2), "FloatStorage")}, {"other/data.pkl": b""})
    with pytest.raises(FormatError, match=r"holds one data\.pkl, and this one 2"):
        read_torch(str(path))
    with pytest.raises(FormatError, match=r"has weights of PyTorch, and no program; fluid\.load_weights"):
        fluid.load_model(path)


# ---------------------------------------------------------------------------------------------------------------- layers
def net_of_torch() -> tuple[Any, dict[str, Any]]:
    """A net with a square matrix, and a state in torch's names and layouts."""
    net = dygraph.Sequential(
        dygraph.Conv2D(None, 2, 3), dygraph.BatchNorm2D(2), dygraph.Flatten(), dygraph.Linear(8, 8), dygraph.ReLU()
    )
    net(Tensor(drawn(1, 1, 4, 4)))
    state = {
        "0.weight": drawn(2, 1, 3, 3), "0.bias": drawn(2), "1.weight": drawn(2), "1.bias": drawn(2), "1.running_mean": drawn(2),
        "1.running_var": np.abs(drawn(2)), "1.num_batches_tracked": np.array(7), "3.weight": drawn(8, 8), "3.bias": drawn(8),
    }  # fmt: skip
    return net, state


KINDS = {"float32": "FloatStorage", "int64": "LongStorage"}


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_into_a_layer(ending: str, tmp_path: Path) -> None:
    net, state = net_of_torch()
    path = tmp_path / f"w.{ending}"
    if ending == "pt":
        torch_file(path, OrderedDict((name, Stored(value, KINDS[value.dtype.name])) for name, value in state.items()))
    else:
        fluid.model_io.save_arrays(path, state)
        mark_as_torchs(path)
    report = fluid.load_weights(net, path)
    assert report.transposed == ["3.weight"] and not report.missing and not report.unused and len(report.matched) == 8
    assert str(report) == "8 weights set, 1 of them transposed"
    found = net.state_dict()
    np.testing.assert_array_equal(found["3.weight"].numpy(), state["3.weight"].T)
    np.testing.assert_array_equal(found["1._variance"].numpy(), state["1.running_var"])
    np.testing.assert_array_equal(found["0.weight"].numpy(), state["0.weight"])


def mark_as_torchs(path: Path) -> None:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.dumps(json.loads(data[8 : 8 + length]) | {"__metadata__": {"format": "pt"}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length :])


def test_weights_of_ones_own_are_not_transposed(tmp_path: Path) -> None:
    net, peer = dygraph.Linear(4, 4), dygraph.Linear(4, 4)
    fluid.model_io.save_arrays(tmp_path / "w.safetensors", {name: value.numpy() for name, value in net.state_dict().items()})
    report = fluid.load_weights(peer, tmp_path / "w.safetensors")
    np.testing.assert_array_equal(peer.weight.numpy(), net.weight.numpy())
    assert not report.transposed and sorted(report.matched) == ["bias", "weight"]


def test_what_does_not_fit_changes_nothing() -> None:
    net = dygraph.Linear(2, 3)
    before = net.weight.numpy().copy()
    with pytest.raises(ProgramError, match=r"some shapes do not fit:\n(.|\n)*does not fit: bias is \[3\], and the weight \[4\]"):
        fluid.load_weights(net, {"weight": drawn(2, 3), "bias": drawn(4)})
    with pytest.raises(ProgramError, match="no name fits; the target has weight, bias"):
        fluid.load_weights(net, {"w": drawn(2, 3)})
    with pytest.raises(ProgramError, match="the target has no parameters yet"):
        fluid.load_weights(dygraph.FC(None, 3), {"w": drawn(2, 3)})
    np.testing.assert_array_equal(net.weight.numpy(), before)
    report = fluid.load_weights(net, {"weight": drawn(2, 3).astype("float64"), "more": drawn(1)})
    assert (report.missing, report.unused, net.weight.dtype.text) == (["bias"], ["more"], "float32")
    assert str(report).splitlines()[1:] == ["without a value: 1: bias", "not used: 1: more"]
    with pytest.raises(ProgramError, match=r"there is no table 'bart'; did you mean bert\?"):
        fluid.load_weights(net, {}, "bart")
    with pytest.raises(FluidTypeError, match="names should be a dict, a function of a name, or the name of a table"):
        fluid.load_weights(net, {}, 3)  # type: ignore[arg-type]
    with pytest.raises(FluidTypeError, match="the target should be a layer or a program, not int"):
        fluid.load_weights(3, {})


def test_names_are_changed_by_a_dict_or_a_function() -> None:
    net, weight = dygraph.Linear(2, 3), drawn(2, 3)
    report = fluid.load_weights(net, {"w": weight, "b": drawn(3), "old": drawn(1)}, {"w": "weight", "b": "bias", "old": None})
    assert report.matched == ["weight", "bias"] and not report.unused
    fluid.load_weights(net, {"head.weight": weight * 2}, lambda name: name.removeprefix("head."))
    np.testing.assert_array_equal(net.weight.numpy(), weight * 2)


def test_into_a_program(tmp_path: Path) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4])
        y = layers.fc(x, 4, param_attr="fc.w", bias_attr="fc.b")
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        weight, bias = drawn(4, 4), drawn(4)
        torch_file(tmp_path / "w.pt", {"fc.weight": Stored(weight, "FloatStorage"), "fc.bias": Stored(bias, "FloatStorage")})
        report = fluid.load_weights(fluid.default_main_program(), tmp_path / "w.pt", {"fc.weight": "fc.w", "fc.bias": "fc.b"})
        assert report.transposed == ["fc.w"]
        given = drawn(3, 4)
        (found,) = executor.run(feed={"x": given}, fetch_list=[y])
        np.testing.assert_allclose(found, given @ weight.T + bias, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------------------------------- tables of names
class Bert(dygraph.Layer):
    """The part of BERT from embeddings to the last hidden state."""

    def __init__(self, vocabulary: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.encoder = dygraph.TransformerEncoder(
            dygraph.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu"), depth
        )

    def forward(self, x: Any) -> Any:
        return self.encoder(x)


def bert_state(width: int, depth: int) -> dict[str, Any]:
    state = {}
    for number in range(depth):
        start = f"bert.encoder.layer.{number}."
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            state |= {f"{start}{part}.weight": drawn(width, width), f"{start}{part}.bias": drawn(width)}
        state |= {
            f"{start}intermediate.dense.weight": drawn(4 * width, width),
            f"{start}intermediate.dense.bias": drawn(4 * width),
        }
        state |= {f"{start}output.dense.weight": drawn(width, 4 * width), f"{start}output.dense.bias": drawn(width)}
        for part, last in (("attention.output", ("gamma", "beta")), ("output", ("weight", "bias"))):
            state |= {f"{start}{part}.LayerNorm.{name}": drawn(width) for name in last}
    return state


def normalized(x: Any, scale: Any, shift: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift


def attended(q: Any, k: Any, v: Any, heads: int, mask: Any = 0.0) -> Any:
    batch, time, width = q.shape

    def split(x: Any) -> Any:
        return x.reshape(batch, time, heads, width // heads).transpose(0, 2, 1, 3)

    scores = split(q) @ split(k).transpose(0, 1, 3, 2) / np.sqrt(width / heads) + mask
    exp = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = exp / exp.sum(-1, keepdims=True) @ split(v)
    return mixed.transpose(0, 2, 1, 3).reshape(batch, time, width)


def gelu(x: Any) -> Any:
    from math import erf

    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def test_the_table_of_bert_beside_its_formulas() -> None:
    width, heads, depth = 8, 2, 2
    net, state = Bert(10, width, heads, depth), bert_state(width, depth)
    report = fluid.load_weights(net, {**state, "bert.embeddings.position_ids": np.arange(4)}, "bert")
    assert not report.missing and not report.unused and len(report.transposed) == 6 * depth
    x = drawn(2, 5, width)
    hidden = x.astype("float64")
    for number in range(depth):
        start = f"bert.encoder.layer.{number}."

        def linear(value: Any, name: str, start: str = start) -> Any:
            return value @ state[f"{start}{name}.weight"].T + state[f"{start}{name}.bias"]

        q, k, v = (linear(hidden, f"attention.self.{part}") for part in ("query", "key", "value"))
        mixed = linear(attended(q, k, v, heads), "attention.output.dense")
        norm = f"{start}attention.output.LayerNorm."
        hidden = normalized(hidden + mixed, state[norm + "gamma"], state[norm + "beta"])
        inner = linear(gelu(linear(hidden, "intermediate.dense")), "output.dense")
        hidden = normalized(hidden + inner, state[f"{start}output.LayerNorm.weight"], state[f"{start}output.LayerNorm.bias"])
    np.testing.assert_allclose(net(Tensor(x)).numpy(), hidden, rtol=1e-3, atol=1e-4)


def test_the_table_of_gpt2_beside_its_formulas() -> None:
    width, heads, depth = 8, 2, 2
    norm = dygraph.LayerNorm(None, begin_norm_axis=2)
    norm(Tensor(drawn(1, 1, width)))
    layer = dygraph.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="relu", normalize_before=True)
    net = dygraph.Layer()
    net.encoder = dygraph.TransformerEncoder(layer, depth, norm)
    state = {"transformer.ln_f.weight": drawn(width), "transformer.ln_f.bias": drawn(width), "lm_head.weight": drawn(9, width)}
    sizes = {
        "ln_1": (width,), "ln_2": (width,), "attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width),
        "mlp.c_fc": (width, 4 * width), "mlp.c_proj": (4 * width, width),
    }  # fmt: skip
    for number in range(depth):
        start = f"transformer.h.{number}."
        for name, size in sizes.items():
            state |= {f"{start}{name}.weight": drawn(*size), f"{start}{name}.bias": drawn(size[-1])}
        state[f"{start}attn.bias"] = np.tril(np.ones([1, 1, 5, 5]))
    report = fluid.load_weights(net, state, "gpt2")
    assert not report.missing and report.unused == ["lm_head.weight"] and not report.transposed
    x = drawn(2, 5, width)
    mask = np.triu(np.full([5, 5], -1e9), 1)
    hidden = x.astype("float64")
    for number in range(depth):
        part = {
            name: (state[f"transformer.h.{number}.{name}.weight"], state[f"transformer.h.{number}.{name}.bias"]) for name in sizes
        }
        q, k, v = np.split(normalized(hidden, *part["ln_1"]) @ part["attn.c_attn"][0] + part["attn.c_attn"][1], 3, axis=-1)
        hidden = hidden + attended(q, k, v, heads, mask) @ part["attn.c_proj"][0] + part["attn.c_proj"][1]
        inner = np.maximum(normalized(hidden, *part["ln_2"]) @ part["mlp.c_fc"][0] + part["mlp.c_fc"][1], 0)
        hidden = hidden + inner @ part["mlp.c_proj"][0] + part["mlp.c_proj"][1]
    expected = normalized(hidden, state["transformer.ln_f.weight"], state["transformer.ln_f.bias"])
    np.testing.assert_allclose(net.encoder(Tensor(x), Tensor(mask.astype("float32"))).numpy(), expected, rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------------------------------------------------- beside torch
class Block(dygraph.Layer):
    """A block of a ResNet, with torchvision's names."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = dygraph.Conv2D(None, channels, 3, padding=1, bias_attr=False)
        self.bn1 = dygraph.BatchNorm2D(channels)
        self.downsample = dygraph.Sequential(dygraph.Conv2D(None, channels, 1, bias_attr=False), dygraph.BatchNorm2D(channels))
        self.fc = dygraph.Linear(channels, 5)

    def forward(self, x: Any) -> Any:
        y = layers.relu(self.bn1(self.conv1(x)) + self.downsample(x))
        return self.fc(layers.reduce_mean(y, dim=[2, 3]))


def shortened(name: str) -> str:
    return name.removeprefix("state.").replace("running_mean", "_mean").replace("running_var", "_variance")


@pytest.mark.parametrize("table", ["resnet", None])
def test_beside_torch(table: str | None, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Peer(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = torch.nn.Conv2d(3, 4, 3, padding=1, bias=False)
            self.bn1 = torch.nn.BatchNorm2d(4)
            self.downsample = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1, bias=False), torch.nn.BatchNorm2d(4))
            self.fc = torch.nn.Linear(4, 5)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.bn1(self.conv1(x)) + self.downsample(x))
            return self.fc(y.mean(dim=(2, 3)))

    peer, x = Peer(), drawn(2, 3, 6, 6)
    peer(torch.from_numpy(drawn(8, 3, 6, 6)))  # statistics other than 0 and 1
    peer.eval()
    torch.save(peer.state_dict(), tmp_path / "net.pt")
    torch.save({"state": copy.deepcopy(peer).half().state_dict(), "epoch": 3}, tmp_path / "half.pt")
    torch.save(torch.nn.Linear(2, 3), tmp_path / "whole.pt")
    net = Block(4)
    net(Tensor(x))
    net.eval()
    for weights, tolerance in ((tmp_path / "net.pt", 1e-5), (peer.state_dict(), 5e-3), (tmp_path / "half.pt", 5e-3)):
        if str(weights).endswith("half.pt"):
            report = fluid.load_weights(net, weights, shortened)
        else:
            report = fluid.load_weights(net, weights, table)
        assert not report.missing and report.transposed == ["fc.weight"]
        expected = peer(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(net(Tensor(x)).numpy(), expected, rtol=tolerance, atol=tolerance)
    with pytest.raises(
        FormatError, match=r"it refers to torch\.nn\.modules\.linear\.Linear; .* Write weights alone, torch\.save\(net\.state"
    ):
        fluid.load_weights(net, tmp_path / "whole.pt")
    torch.save(peer.state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(FormatError, match=r"is in the format of torch before 1\.6"):
        fluid.load_weights(net, tmp_path / "old.pt")
    found = read_torch(str(tmp_path / "net.pt"))
    for name, value in torch.load(tmp_path / "net.pt").items():
        np.testing.assert_array_equal(found[name], value.numpy())
