"""Initializers of parameters: ops appended to the startup program."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ProgramError
from .ir.checked import check_number
from .ir.program import Block, Operator, Variable
from .not_here import names_here, names_not_here
from .values.bfloat16 import computable, converted
from .values.types import VarType

__all__ = [
    "MSRA",
    "Bilinear",
    "BilinearInitializer",
    "Constant",
    "ConstantInitializer",
    "Initializer",
    "MSRAInitializer",
    "Normal",
    "NormalInitializer",
    "NumpyArrayInitializer",
    "TruncatedNormal",
    "TruncatedNormalInitializer",
    "Uniform",
    "UniformInitializer",
    "Xavier",
    "XavierInitializer",
    "force_init_on_cpu",
    "init_on_cpu",
]

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)


class _Where(threading.local):
    on_cpu = False


_where = _Where()


def force_init_on_cpu() -> bool:
    """Whether constants are made on the CPU: True inside `init_on_cpu`.

    >>> fluid.initializer.force_init_on_cpu()
    False
    """
    return _where.on_cpu


@contextlib.contextmanager
def init_on_cpu() -> Iterator[None]:
    """Inside the ``with``, constants carry the attribute ``force_cpu``.

    >>> with fluid.initializer.init_on_cpu():
    ...     fluid.initializer.force_init_on_cpu()
    True
    """
    old, _where.on_cpu = _where.on_cpu, True
    try:
        yield
    finally:
        _where.on_cpu = old


class Initializer:
    """Base of initializers: an initializer is called with a variable and a block, and appends the op that fills the variable."""

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Append to `block` the op that fills `var`."""
        raise NotImplementedError

    def __repr__(self) -> str:
        settings = ", ".join(f"{name.lstrip('_')}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({settings})"


def constant_attrs(shape: Any, dtype: VarType, value: float) -> dict[str, Any]:
    """Attributes of ``fill_constant``. In files `value` is a float32; a number that it cannot represent is stored as text too."""
    attrs: dict[str, Any] = {"shape": [*map(int, shape)], "dtype": int(dtype), "value": float(value)}
    with np.errstate(over="ignore"):
        stored = float(np.float32(value))
    if stored != value and dtype is not VarType.FP32:
        attrs["str_value"] = repr(value)
    return attrs


VALUES = {
    VarType.BOOL: "bool_values",
    VarType.FP32: "fp32_values",
    VarType.FP64: "fp64_values",
    VarType.INT32: "int32_values",
    VarType.INT64: "int64_values",
}
"""The attributes of ``assign_value`` that hold the elements."""


def value_attrs(array: np.ndarray[Any, Any], dtype: VarType) -> dict[str, Any]:
    """Attributes of ``assign_value`` for this array as `dtype`; `ProgramError` for types that the op cannot hold."""
    if dtype not in VALUES:
        raise ProgramError(
            f"constants of {dtype.text} cannot be written into a program; use one of {[k.text for k in VALUES]} and cast"
        )
    try:
        values = array.astype(dtype.numpy).ravel().tolist()
    except MemoryError:
        raise ProgramError(
            f"{array.size} numbers are too many for a program; let it read a variable that is fed, or in the scope"
        ) from None
    return {"shape": list(array.shape), "dtype": int(dtype), VALUES[dtype]: values}


WIDER = {
    VarType.FP16: VarType.FP32,
    VarType.BF16: VarType.FP32,
    VarType.INT8: VarType.INT32,
    VarType.INT16: VarType.INT32,
    VarType.UINT8: VarType.INT32,
    VarType.SIZE_T: VarType.INT64,
}
"""Element types that ``assign_value`` does not support -> wider ones to cast from."""


def _number(initializer: Initializer, name: str, value: Any, at_least: float | None = None) -> Any:
    """Check that `value` is a number, and not below `at_least`; the value."""
    where = f"{type(initializer).__name__.removesuffix('Initializer')}: {name}"
    number = check_number(value, where)
    if at_least is not None and not number >= at_least:
        raise ProgramError(f"{where} should not be below {at_least}, as {value!r} is")
    return value


def fans(var: Variable) -> tuple[int, int]:
    """fan_in and fan_out: how many inputs an output of a weight depends on, and how many outputs an input affects.

    For a matrix, its dimensions; for a convolution filter ``[out, in, *kernel]``, the channels times the kernel's size.
    """
    shape = var.shape
    if not shape:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    if len(shape) == 2:
        return shape[0], shape[1]
    kernel = math.prod(shape[2:])
    return shape[1] * kernel, shape[0] * kernel


def _fill(block: Block, op_type: str, var: Variable, **attrs: Any) -> Operator:
    return block.append_op(op_type, outputs={"Out": var}, attrs={"shape": list(var.shape), "dtype": int(var.dtype), **attrs})


class ConstantInitializer(Initializer):
    """Every element is `value`.

    Args:
        value: the value.
        force_cpu: whether the op carries the attribute ``force_cpu``, which Paddle reads.

    >>> w = layers.create_parameter([2], "float32", default_initializer=fluid.initializer.Constant(0.5))
    >>> exe = fluid.Executor()
    >>> exe.run(fluid.default_startup_program(), fetch_list=[w.name])
    [array([0.5, 0.5], dtype=float32)]
    """

    def __init__(self, value: float = 0.0, force_cpu: bool = False) -> None:
        self._value = _number(self, "value", value)
        self._force_cpu = force_cpu

    def __call__(self, var: Variable, block: Block) -> Operator:
        attrs = constant_attrs(var.shape, var.dtype, self._value)
        if self._force_cpu or force_init_on_cpu():
            attrs["force_cpu"] = True
        return block.append_op("fill_constant", outputs={"Out": var}, attrs=attrs)


class UniformInitializer(Initializer):
    """Uniform in ``[low, high)``.

    Args:
        low, high: the bounds.
        seed: draws the same numbers in each program; 0 uses the program's seed.
        diag_num: this number of elements, at ``i * (diag_step + 1)``, are `diag_val`; 0 for none.
        diag_step: the distance of these elements; the number of columns puts them on the diagonal.
        diag_val: their value.

    Raises:
        ProgramError: `low` is above `high`.

    >>> hidden = layers.fc(fluid.data("x", [-1, 4]), 8, param_attr=fluid.initializer.Uniform(-0.1, 0.1))
    """

    def __init__(
        self, low: float = -1.0, high: float = 1.0, seed: int = 0, diag_num: int = 0, diag_step: int = 0, diag_val: float = 1.0
    ) -> None:
        self._low, self._high, self._seed = _number(self, "low", low), _number(self, "high", high), seed
        if not low <= high:
            raise ProgramError(f"Uniform: low {low} should not be above high {high}")
        self._diag_num, self._diag_step = _number(self, "diag_num", diag_num, 0), _number(self, "diag_step", diag_step, 0)
        self._diag_val = diag_val

    def __call__(self, var: Variable, block: Block) -> Operator:
        diag = {"diag_num": self._diag_num, "diag_step": self._diag_step, "diag_val": self._diag_val} if self._diag_num else {}
        return _fill(block, "uniform_random", var, min=float(self._low), max=float(self._high), seed=self._seed, **diag)


class NormalInitializer(Initializer):
    """Normal, with mean `loc` and standard deviation `scale`.

    Args:
        loc: the mean.
        scale: the standard deviation, not below 0.
        seed: draws the same numbers in each program; 0 uses the program's seed.

    >>> hidden = layers.fc(fluid.data("x", [-1, 4]), 8, param_attr=fluid.initializer.Normal(scale=0.02))
    """

    _op = "gaussian_random"

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        self._mean, self._std_dev, self._seed = _number(self, "loc", loc), _number(self, "scale", scale, 0), seed

    def __call__(self, var: Variable, block: Block) -> Operator:
        return _fill(block, self._op, var, mean=float(self._mean), std=float(self._std_dev), seed=self._seed)


class TruncatedNormalInitializer(NormalInitializer):
    """Normal; values outside two standard deviations are drawn again.

    Args:
        loc, scale, seed: see `Normal`.

    >>> hidden = layers.fc(fluid.data("x", [-1, 4]), 8, param_attr=fluid.initializer.TruncatedNormal(scale=0.02))
    """

    _op = "truncated_gaussian_random"


def _centred(var: Variable, block: Block, uniform: bool, variance: float, seed: int) -> Operator:
    """Append a uniform or normal draw with mean 0 and this variance."""
    if uniform:
        limit = math.sqrt(3.0 * variance)
        return UniformInitializer(-limit, limit, seed)(var, block)
    return NormalInitializer(0.0, math.sqrt(variance), seed)(var, block)


class XavierInitializer(Initializer):
    """Mean 0, variance ``2 / (fan_in + fan_out)``: values keep their variance forward and gradients theirs backward, on average.

    For a matrix, `fan_in` and `fan_out` are its dimensions; for a convolution filter ``[out, in, *kernel]``, the channels times
    the kernel's size. Source: Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks, 2010.

    Args:
        uniform: whether to draw from a uniform rather than a normal distribution.
        fan_in, fan_out: numbers to use in place of the shape's.
        seed: draws the same numbers in each program; 0 uses the program's seed.

    Raises:
        ProgramError: both numbers are 0.

    >>> hidden = layers.fc(fluid.data("x", [-1, 4]), 8, param_attr=fluid.initializer.Xavier(uniform=False))
    """

    def __init__(self, uniform: bool = True, fan_in: float | None = None, fan_out: float | None = None, seed: int = 0) -> None:
        self._uniform = uniform
        self._fan_in = None if fan_in is None else _number(self, "fan_in", fan_in, 0)
        self._fan_out = None if fan_out is None else _number(self, "fan_out", fan_out, 0)
        self._seed = seed

    def __call__(self, var: Variable, block: Block) -> Operator:
        fan_in, fan_out = fans(var)
        fan_in = fan_in if self._fan_in is None else self._fan_in
        fan_out = fan_out if self._fan_out is None else self._fan_out
        if not fan_in + fan_out:
            raise ProgramError(f"Xavier: not both fan_in and fan_out, of {var.name} ({var.describe()}), should be 0")
        return _centred(var, block, self._uniform, 2.0 / (fan_in + fan_out), self._seed)


class MSRAInitializer(Initializer):
    """Mean 0, variance ``2 / fan_in``: with relu, values keep their variance from layer to layer.

    Source: He et al., Delving deep into rectifiers: Surpassing human-level performance on ImageNet classification, 2015.

    Args:
        uniform: whether to draw from a uniform rather than a normal distribution.
        fan_in: a number to use in place of the shape's; see `Xavier`.
        seed: draws the same numbers in each program; 0 uses the program's seed.

    Raises:
        ProgramError: `fan_in` is 0.

    >>> hidden = layers.fc(fluid.data("x", [-1, 4]), 8, act="relu", param_attr=fluid.initializer.MSRA())
    """

    def __init__(self, uniform: bool = True, fan_in: float | None = None, seed: int = 0) -> None:
        self._uniform = uniform
        self._fan_in = None if fan_in is None else _number(self, "fan_in", fan_in, 0)
        self._seed = seed

    def __call__(self, var: Variable, block: Block) -> Operator:
        fan_in = fans(var)[0] if self._fan_in is None else self._fan_in
        if not fan_in:
            raise ProgramError(f"MSRA: fan_in, of {var.name} ({var.describe()}), should not be 0")
        return _centred(var, block, self._uniform, 2.0 / fan_in, self._seed)


class NumpyArrayInitializer(Initializer):
    """The elements of an array, which are written into the program.

    Args:
        value: an array of the parameter's shape.

    Raises:
        ProgramError: the parameter has another shape, or an element type that no program can hold.

    >>> table = np.eye(3, dtype="float32")
    >>> w = layers.create_parameter([3, 3], "float32", default_initializer=fluid.initializer.NumpyArrayInitializer(table))
    """

    def __init__(self, value: Any) -> None:
        self._value = np.asarray(value)

    def __call__(self, var: Variable, block: Block) -> Operator:
        if tuple(self._value.shape) != var.shape:
            raise ProgramError(
                f"{var.name} is {var.describe()}; an array of shape {list(self._value.shape)} cannot initialize it"
            )
        held = WIDER.get(var.dtype, var.dtype)
        if held is var.dtype:
            return block.append_op("assign_value", outputs={"Out": var}, attrs=value_attrs(self._value, held))
        wide = block.namespace.assign_value(**value_attrs(computable(converted(self._value, var.dtype.array_dtype)), held))
        return block.append_op("cast", {"X": wide}, {"Out": var}, {"in_dtype": int(held), "out_dtype": int(var.dtype)})


def euclidean_norm(ops: Any, var: Any, axes: Sequence[int]) -> Any:
    """The norm of `var` over these axes, which are kept with size 1; of each element if there are none."""
    squares = ops.square(var)
    return ops.sqrt(ops.reduce_sum(squares, dim=list(axes), keep_dim=True) if axes else squares)


class NormInitializer(Initializer):
    """The Euclidean norm, over some axes, of a parameter that the program initializes before."""

    def __init__(self, parameter: Variable, axes: Sequence[int]) -> None:
        self._parameter, self._axes = parameter, list(axes)

    def __call__(self, var: Variable, block: Block) -> Operator:
        norm = euclidean_norm(block.namespace, block.own(self._parameter), self._axes)
        return block.append_op("assign", {"X": norm}, {"Out": var})


class BilinearInitializer(Initializer):
    """Filters ``[C, 1, k, k]`` or ``[C, C', k, k]`` that make a transposed convolution interpolate linearly.

    Raises:
        ProgramError: the parameter has another shape.

    >>> x = fluid.data("x", [-1, 3, 8, 8])
    >>> bilinear = fluid.ParamAttr(initializer=fluid.initializer.Bilinear())
    >>> layers.conv2d_transpose(x, 3, filter_size=4, stride=2, padding=1, groups=3, param_attr=bilinear, bias_attr=False).shape
    (-1, 3, 16, 16)
    """

    def __call__(self, var: Variable, block: Block) -> Operator:
        if len(var.shape) != 4 or var.shape[2] != var.shape[3]:
            raise ProgramError(f"{var.name} is {var.describe()}; bilinear filters are [out, in, size, size]")
        size = var.shape[3]
        factor = math.ceil(size / 2.0)
        centre = (2 * factor - 1 - factor % 2) / (2.0 * factor)
        ramp = 1 - np.abs(np.arange(size) / factor - centre)
        return NumpyArrayInitializer(np.broadcast_to(np.outer(ramp, ramp), var.shape))(var, block)


Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
MSRA = MSRAInitializer
Bilinear = BilinearInitializer
