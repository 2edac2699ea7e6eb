"""Which rules of the families of real ops are right for complex numbers too, and how (see `OpDef.complex_rule`).

Of any other op, gradients of complex numbers are refused. `tests/ops/test_complex.py` holds each of these against differences.
"""

from __future__ import annotations

from ..opdef.registry import ANALYTIC, LINEAR, get
from . import activation, creation, einsum, elementwise, manipulation, matmul, reduction, selection, vision  # noqa: F401

_LINEAR = """
    assign concat concat_like crop crop_like crop_tensor cumsum diag diag_v2 diagonal elementwise_add elementwise_sub expand
    expand_as expand_as_v2 expand_reduced expand_to expand_v2 flatten flatten2 flatten_contiguous_range flip gather gather_like
    gather_nd index_sample index_select masked_pick masked_place masked_select mean meshgrid minus multiplex pad pad2d pad3d
    pad_by pick place reduce_mean reduce_sum reshape reshape2 reshape_like reverse roll scatter_add_like scatter_nd_add slice
    slice_like split split_like squeeze squeeze2 stack strided_slice strided_slice_like strided_unslice sum sum_to
    take_along_axis tile tile_like trace transpose transpose2 tril_triu unbind uncrop undiagonal unpad_by unreshape unslice
    unsqueeze unsqueeze2 unstack untile where
"""
_ANALYTIC = """
    acos acosh asin asinh atan atanh bmm cos cosh cross dot einsum einsum_like elementwise_div elementwise_mul elementwise_pow exp
    expm1 increment kron log log10 log1p log2 matmul matmul_v2 mul mv pow reciprocal reduce_prod rsqrt scale sigmoid silu sin
    sinh sqrt square tan tanh unkron
"""

for _names, _rule in ((_LINEAR, LINEAR), (_ANALYTIC, ANALYTIC)):
    for _name in _names.split():
        get(_name).complex_rule = _rule
