"""Lists of ops for mixed precision: which ops compute in half precision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import FluidTypeError, ProgramError
from ..opdef import registry
from ..values.types import DTypeLike, VarType, as_dtype

_WHITE = frozenset(
    {
        "conv2d", "matmul", "matmul_v2", "mul", "bmm"
    }
)  # fmt: skip
_BLACK = frozenset(
    {
        "exp", "square", "log", "mean", "sum", "cos_sim", "softmax", "softmax_with_cross_entropy",
        "sigmoid_cross_entropy_with_logits", "cross_entropy", "cross_entropy2"
    }
)  # fmt: skip
_GRAY = frozenset(
    {
        "elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div", "elementwise_max", "elementwise_min",
        "elementwise_pow", "elementwise_mod", "elementwise_floordiv", "batch_norm", "tanh", "sigmoid", "top_k", "pool2d",
        "dropout", "relu", "relu6", "leaky_relu", "soft_relu", "gelu", "flatten", "flatten2", "flatten_contiguous_range",
        "stack", "unstack", "slice", "strided_slice", "scale", "transpose", "transpose2", "reshape", "reshape2", "squeeze",
        "squeeze2", "unsqueeze", "unsqueeze2", "concat", "split", "gather", "expand", "expand_as", "tile", "sign", "assign",
        "pad", "pad2d"
    }
)  # fmt: skip

FLOAT32_SLOTS: Mapping[str, frozenset[str]] = {"batch_norm": frozenset({"Scale", "Bias", "Mean", "Variance"})}
"""Op type -> slots that stay float32 though the op computes in half precision."""
ANY_PRECISION = frozenset({"cast", "shape", "size", "fill_zeros_like", "lod_reset"})
"""Ops that accept any precision and decide the type of their outputs."""


def half_type(dtype: DTypeLike) -> VarType:
    """float16 or bfloat16 as an element type; `FluidTypeError` for any other."""
    half = as_dtype(dtype)
    if half not in (VarType.FP16, VarType.BF16):
        raise FluidTypeError(f"mixed precision is of float32 and float16, or of float32 and bfloat16, not of {half.text}")
    return half


class AutoMixedPrecisionLists:
    """Op types by the precision of their computation.

    - white: in half precision, where the time goes (products and convolutions);
    - gray: like their inputs: in half precision if an input was computed so, unless another was computed in float32;
    - black, and all ops in no list: in float32, where half precision would lose too much (exponentials, losses, sums).

    Args:
        custom_white_list: ops to make white, regardless of the defaults.
        custom_black_list: ops that are black as well.
        custom_black_varnames: names of variables; ops that read or write one of them compute in float32, whatever their type.

    Attributes:
        white_list, black_list, gray_list: the sets of op types that follow.
        black_varnames: the set of names.

    Raises:
        ProgramError: an op is in both lists.
        FluidError: there is no op of a type.

    >>> lists = fluid.contrib.mixed_precision.AutoMixedPrecisionLists(custom_black_list=["tanh"])
    >>> "tanh" in lists.black_list, "tanh" in lists.gray_list, "mul" in lists.white_list
    (True, False, True)
    """

    def __init__(
        self,
        custom_white_list: Iterable[str] | None = None,
        custom_black_list: Iterable[str] | None = None,
        custom_black_varnames: Iterable[str] | None = None,
    ) -> None:
        white, black = _types("custom_white_list", custom_white_list), _types("custom_black_list", custom_black_list)
        if both := white & black:
            raise ProgramError(f"AutoMixedPrecisionLists: {', '.join(sorted(both))} cannot be in both lists")
        self.white_list = {*_WHITE} - black | white
        self.black_list = {*_BLACK} - white | black
        self.gray_list = {*_GRAY} - white - black
        self.black_varnames = _listed("custom_black_varnames", custom_black_varnames, "names")


def _listed(argument: str, texts: Iterable[str] | None, kind: str) -> set[str]:
    """The texts of a list; one text in place of a list is an error."""
    if isinstance(texts, str):
        raise FluidTypeError(f"AutoMixedPrecisionLists: {argument} should be a list of {kind}, not the text {texts!r}")
    return set(texts or ())


def _types(argument: str, op_types: Iterable[str] | None) -> set[str]:
    wanted = _listed(argument, op_types, "op types")
    for op_type in wanted:
        registry.get(op_type)  # raises an error with a suggestion if there is none
    return wanted
