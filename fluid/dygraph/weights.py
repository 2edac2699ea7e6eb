"""Weights from elsewhere, by name: files of torch and safetensors into layers and programs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..errors import FluidTypeError, ProgramError, did_you_mean
from ..executor import Scope, global_scope
from ..formats.safetensors import is_safetensors, read_metadata
from ..formats.table import head_of
from ..formats.torch_files import is_torch_archive, read_torch
from ..ir.program import Program
from ..saving.models import read_arrays
from ..saving.variables import is_persistable
from ..values.types import VarType
from .layers import Layer
from .nn import FC, Linear

__all__ = ["WEIGHT_NAMES", "WeightReport", "load_weights"]


class Weight(NamedTuple):
    """A value for a variable.

    Attributes:
        name: the variable, or the name in the layer.
        array: the value.
        is_out_in: a matrix of a linear layer would be ``[out, in]``, as torch keeps it.
    """

    name: str
    array: Any
    is_out_in: bool


Names = Callable[[str, Any], Iterator[Weight]]


@dataclass
class WeightReport:
    """What `load_weights` did; printed, it is a summary.

    Attributes:
        matched: the names that have got a value.
        transposed: the matched names whose matrices were ``[out, in]``.
        missing: names of the layer or program that the weights do not have.
        unused: names of the weights that have no place.
        misfits: names with another shape, and the two shapes.

    >>> report = fluid.load_weights(dygraph.Linear(2, 3), {"weight": np.ones([2, 3])})
    >>> report.matched, report.missing
    (['weight'], ['bias'])
    """

    matched: list[str] = field(default_factory=list)
    transposed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    misfits: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{len(self.matched)} weights set, {len(self.transposed)} of them transposed"]
        for text, names in (("without a value", self.missing), ("not used", self.unused)):
            if names:
                lines.append(f"{text}: {len(names)}: {', '.join(names[:5])}" + (", ..." if len(names) > 5 else ""))
        for name, (shape, wanted) in self.misfits.items():
            lines.append(f"does not fit: {name} is {list(wanted)}, and the weight {list(shape)}")
        return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------- tables of names
_OF_TORCH = {"running_mean": "_mean", "running_var": "_variance"}


def _of_torch(name: str, array: Any) -> Iterator[Weight]:
    """Names of torch's modules, where the layers here have the same attributes: torchvision's ResNet, MobileNet and others."""
    start, _, last = name.rpartition(".")
    if last != "num_batches_tracked":
        last = _OF_TORCH.get(last, last)
        yield Weight(f"{start}.{last}" if start else last, array, True)


def _as_written(name: str, array: Any) -> Iterator[Weight]:
    yield Weight(name, array, False)


_OF_BERT = (
    (r"^bert\.", ""),
    (r"LayerNorm\.gamma$", "LayerNorm.weight"),
    (r"LayerNorm\.beta$", "LayerNorm.bias"),
    (r"^encoder\.layer\.(\d+)\.", r"encoder.layers.\1."),
    (r"attention\.self\.query\.", "self_attn.q_proj."),
    (r"attention\.self\.key\.", "self_attn.k_proj."),
    (r"attention\.self\.value\.", "self_attn.v_proj."),
    (r"attention\.output\.dense\.", "self_attn.out_proj."),
    (r"attention\.output\.LayerNorm\.", "norm1."),
    (r"intermediate\.dense\.", "linear1."),
    (r"(encoder\.layers\.\d+)\.output\.dense\.", r"\1.linear2."),
    (r"(encoder\.layers\.\d+)\.output\.LayerNorm\.", r"\1.norm2."),
)
"""Patterns in names of transformers' BERT -> names in a `TransformerEncoder` called ``encoder``."""


def _of_bert(name: str, array: Any) -> Iterator[Weight]:
    """transformers' BERT, where ``encoder`` is a `TransformerEncoder` with ``activation="gelu"``; other names stay."""
    for pattern, replacement in _OF_BERT:
        name = re.sub(pattern, replacement, name)
    if not name.endswith("position_ids"):
        yield Weight(name, array, True)


_OF_GPT2 = (
    (r"^transformer\.", ""),
    (r"^h\.(\d+)\.", r"encoder.layers.\1."),
    (r"\.ln_1\.", ".norm1."),
    (r"\.ln_2\.", ".norm2."),
    (r"^ln_f\.", "encoder.norm."),
    (r"\.attn\.c_proj\.", ".self_attn.out_proj."),
    (r"\.mlp\.c_fc\.", ".linear1."),
    (r"\.mlp\.c_proj\.", ".linear2."),
)


def _of_gpt2(name: str, array: Any) -> Iterator[Weight]:
    """transformers' GPT-2, where ``encoder`` is a `TransformerEncoder` with ``normalize_before=True`` and a final norm.

    Its matrices are ``[in, out]`` as here, and one matrix of three times the width holds query, key and value.
    """
    for pattern, replacement in _OF_GPT2:
        name = re.sub(pattern, replacement, name)
    if re.search(r"\.attn\.(masked_)?bias$", name):  # the causal mask
        return
    if ".attn.c_attn." not in name:
        yield Weight(name, array, False)
        return
    for part, piece in zip("qkv", np.split(array, 3, axis=-1), strict=True):
        yield Weight(name.replace(".attn.c_attn.", f".self_attn.{part}_proj."), piece, False)


WEIGHT_NAMES: dict[str, Names] = {
    "as written": _as_written,
    "bert": _of_bert,
    "gpt2": _of_gpt2,
    "mobilenet": _of_torch,
    "resnet": _of_torch,
    "torch": _of_torch,
}
"""Tables of names for `load_weights`: a name and an array of the file -> names and arrays here."""


def _names_of(names: Any, is_of_torch: bool) -> Names:
    """The table that an argument `names` stands for."""
    default = _of_torch if is_of_torch else _as_written
    if names is None:
        return default
    if isinstance(names, str):
        if names not in WEIGHT_NAMES:
            hint = did_you_mean(names, WEIGHT_NAMES)
            raise ProgramError(f"load_weights: there is no table {names!r}{hint}; there are {', '.join(WEIGHT_NAMES)}")
        return WEIGHT_NAMES[names]
    if not callable(names) and not isinstance(names, Mapping):
        raise FluidTypeError(f"load_weights: names should be a dict, a function of a name, or the name of a table, not {names!r}")

    def renamed(name: str, array: Any) -> Iterator[Weight]:
        target = names.get(name, name) if isinstance(names, Mapping) else names(name)
        if target is not None:
            yield Weight(target, array, is_of_torch)

    return renamed


# ----------------------------------------------------------------------------------------------------------------- loading
def load_weights(
    target: Any,
    weights: str | os.PathLike[str] | Mapping[str, Any],
    names: str | Mapping[str, str | None] | Callable[[str], str | None] | None = None,
    scope: Scope | None = None,
) -> WeightReport:
    """Set the weights of a layer or a program by name, from ``.safetensors``, ``.pt``, ``.npz`` or ``.pdparams``.

    Reading runs no code: of a ``.pt``, only tensors in dicts are read, and a pickled model is refused. Values get the element
    types of the target. Matrices of linear layers are ``[in, out]`` here and ``[out, in]`` in torch: they are transposed if the
    weights are of torch (``.pt``, ``.safetensors`` that say so, a ``state_dict()``).

    Args:
        target: a `fluid.dygraph.Layer`, which has its parameters already (call it once where layers make them in a first
            call), or a program.
        weights: a file, or arrays by name.
        names: how names in the file become names of the target: a dict, where None leaves a weight out and other names stay; a
            function of a name; or a table of `fluid.dygraph.WEIGHT_NAMES`: ``"resnet"``, ``"mobilenet"`` (torchvision's, with
            the same attributes), ``"bert"``, ``"gpt2"`` (transformers', on a `fluid.dygraph.TransformerEncoder` called
            ``encoder``). By default torch's names of statistics are changed to those here.
        scope: of a program: the scope with the values; the current scope if None.

    Returns:
        A report of the names that matched, that were transposed, that lack a value, and that were not used. Print it.

    Raises:
        FormatError: the file is damaged, or holds more than weights.
        ProgramError: nothing fits, or a shape does not; nothing has changed then.

    >>> net = dygraph.Linear(2, 3)
    >>> report = fluid.load_weights(net, {"weight": np.ones([2, 3]), "bias": np.zeros([3]), "step": np.ones([])})
    >>> print(report)
    2 weights set, 0 of them transposed
    not used: 1: step
    """
    arrays, is_of_torch = _read(weights)
    rename = _names_of(names, is_of_torch)
    place = _LayerTarget(target) if isinstance(target, Layer) else _ProgramTarget(target, scope)
    report, values = WeightReport(), {}
    for source, array in arrays.items():
        for weight in rename(source, array):
            if weight.name not in place.shapes:
                report.unused.append(source if weight.name == source else f"{source} (as {weight.name})")
                continue
            value, wanted = weight.array, place.shapes[weight.name]
            if weight.is_out_in and value.ndim == 2 and weight.name in place.matrices:
                value = value.T
                report.transposed.append(weight.name)
            if value.shape != wanted:
                report.misfits[weight.name] = (weight.array.shape, wanted)
            values[weight.name] = value
    report.matched = list(values)
    report.missing = [name for name in place.shapes if name not in values]
    if report.misfits or not values:
        where = weights if isinstance(weights, (str, os.PathLike)) else "the weights"
        few = ", ".join(list(place.shapes)[:5])
        reason = "some shapes do not fit" if report.misfits else f"no name fits; the target has {few or 'no parameters yet'}"
        raise ProgramError(f"load_weights: of {where}, {reason}:\n{report}")
    for name, value in values.items():
        place.set(name, value)
    return report


def _read(weights: Any) -> tuple[Mapping[str, Any], bool]:
    """Arrays by name, and whether torch wrote them."""
    if isinstance(weights, Mapping):
        is_of_torch = any(type(value).__module__.startswith("torch") for value in weights.values())
        return {name: _as_array(value) for name, value in weights.items()}, is_of_torch
    path = os.fspath(weights)
    if is_torch_archive(path):
        return read_torch(path), True
    head, size = head_of(path, "file")
    if is_safetensors(head, size):
        return read_arrays(path), read_metadata(path).get("format") == "pt"
    if path.endswith((".pt", ".pth", ".bin")):
        return read_torch(path), True  # which says why it cannot be read
    return read_arrays(path), False


def _as_array(value: Any) -> Any:
    """An array, or a tensor of Fluid or torch, as an array."""
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


class _LayerTarget:
    """The parameters and buffers of a layer."""

    def __init__(self, layer: Layer) -> None:
        self._tensors = layer.state_dict()
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}
        parts = [part for part in layer.sublayers(include_self=True) if isinstance(part, (Linear, FC)) and part._parameters]
        linear = {id(part.weight) for part in parts}
        self.matrices = {name for name, tensor in self._tensors.items() if id(tensor) in linear}

    def set(self, name: str, value: Any) -> None:
        """Give a parameter its value."""
        tensor = self._tensors[name]
        tensor.set_value(np.ascontiguousarray(value).astype(tensor.dtype.array_dtype))


_MATRIX_SLOTS = {"fc": "W", "matmul": "Y", "matmul_v2": "Y", "mul": "Y"}
"""Op -> the slot of its weights."""


class _ProgramTarget:
    """The persistable variables of a program, in a scope."""

    def __init__(self, program: Any, scope: Scope | None) -> None:
        if not isinstance(program, Program):
            raise FluidTypeError(f"load_weights: the target should be a layer or a program, not {type(program).__name__}")
        self._scope = scope if scope is not None else global_scope()
        persistables = (var for var in program.list_vars() if is_persistable(var) and var.type is VarType.LOD_TENSOR)
        self._variables = {var.name: var for var in persistables if var.has_shape}
        self.shapes = {name: tuple(var.shape) for name, var in self._variables.items()}
        self.matrices = {
            name
            for block in program.blocks
            for op in block.ops
            if op.type in _MATRIX_SLOTS and not (op.attrs.get("transpose_Y") or op.attrs.get("trans_y"))
            for name in op.input(_MATRIX_SLOTS[op.type])
        }

    def set(self, name: str, value: Any) -> None:
        """Give a variable its value."""
        dtype = self._variables[name].dtype.array_dtype
        self._scope.put(name, np.ascontiguousarray(value).astype(dtype))
