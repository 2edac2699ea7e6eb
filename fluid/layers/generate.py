"""Writes ``ops.py``, the layers that are one op each, from the op definitions: ``python -m fluid.layers.generate``.

The file is checked in, so that editors and type checkers see real functions; a test keeps it current.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from textwrap import indent, wrap

from ..opdef import registry
from ..opdef.registry import OpDef
from ..ops.document import described

__all__ = ["PATH", "render"]

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops.py")

_WIDTH = 130
_COMPARISONS = ("less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal")
_BY_HAND = ("pow",)
_TYPES = {"float": "float", "int": "int", "bool": "bool", "string": "str", "long": "int"}
# Layers whose arguments are not all of the op's attributes under their own names: (argument, attribute, default). None means
# the op's default.
_ARGUMENTS: dict[str, list[tuple[str, str, object]]] = {
    "cumsum": [("axis", "axis", None), ("exclusive", "exclusive", None), ("reverse", "reverse", None)],
    "hard_shrink": [("threshold", "threshold", None)],
    "selu": [("scale", "scale", None), ("alpha", "alpha", None)],
    "softshrink": [("alpha", "lambda", None)],
    "thresholded_relu": [("threshold", "threshold", None)],
}

# Layers with Fluid's argument names: ``layer(argument: slot or attribute = default, ...)``. ``-`` marks an argument that is
# accepted and ignored; ``= op`` follows where layer and op have different names.
_LAYERS = (
    "add_position_encoding(input: X, alpha: alpha, beta: beta, name)",
    "argsort(input: X, axis: axis = -1, name, descending: descending = False)",
    "bpr_loss(input: X, label: Label, name)",
    "cos_sim(X: X, Y: Y)",
    "cumsum(x: X, axis: axis = None, exclusive: exclusive = None, reverse: reverse = None)",
    "expand_as(x: X, target_tensor: target_tensor, name)",
    "gather_nd(input: X, index: Index, name)",
    "gather_tree(ids: Ids, parents: Parents)",
    "gaussian_random_batch_size_like(input: Input, shape: shape, input_dim_idx: input_dim_idx = 0, output_dim_idx: output_dim_idx"
    " = 0, mean: mean = 0.0, std: std = 1.0, seed: seed = 0, dtype: dtype = 'float32')",
    "has_inf(x: X) = isinf",
    "has_nan(x: X) = isnan",
    "hash(input: X, hash_size: mod_by, num_hash: num_hash = 1, name)",
    "isfinite(x: X)",
    "kldiv_loss(x: X, target: Target, reduction: reduction = 'mean', name)",
    "label_smooth(label: X, prior_dist: PriorDist = None, epsilon: epsilon = 0.1, dtype: - = 'float32', name)",
    "log_loss(input: Predicted, label: Labels, epsilon: epsilon = 0.0001, name)",
    "margin_rank_loss(label: Label, left: X1, right: X2, margin: margin = 0.1, name)",
    "mean_iou(input: Predictions, label: Labels, num_classes: num_classes)",
    "multiplex(inputs: X, index: Ids)",
    "pad(x: X, paddings: paddings, pad_value: pad_value = 0.0, name)",
    "rank_loss(label: Label, left: Left, right: Right, name)",
    "sampling_id(x: X, min: min = 0.0, max: max = 1.0, seed: seed = 0, dtype: - = 'float32')",
    "scatter(input: X, index: Ids, updates: Updates, name, overwrite: overwrite = True)",
    "scatter_nd_add(ref: X, index: Index, updates: Updates, name)",
    "shard_index(input: X, index_num: index_num, nshards: nshards, shard_id: shard_id, ignore_value: ignore_value = -1)",
    "size(input: Input)",
    "smooth_l1(x: X, y: Y, inside_weight: InsideWeight = None, outside_weight: OutsideWeight = None, sigma: sigma = None)"
    " = smooth_l1_loss",
    "teacher_student_sigmoid_loss(input: X, label: Label, soft_max_up_bound: soft_max_up_bound = 15.0, soft_max_lower_bound:"
    " soft_max_lower_bound = -15.0)",
    "uniform_random_batch_size_like(input: Input, shape: shape, dtype: dtype = 'float32', input_dim_idx: input_dim_idx = 0,"
    " output_dim_idx: output_dim_idx = 0, min: min = -1.0, max: max = 1.0, seed: seed = 0)",
    "unique(x: X, dtype: dtype = 'int32')",
    "unique_with_counts(x: X, dtype: dtype = 'int32')",
)
_LAYER = re.compile(r"(\w+)\((.*)\)(?: = (\w+))?$")

# An example for each layer, run by tests/docs/test_doctests.py: ``layer(arguments) -> what it prints``. Lists among the
# positional arguments stand for tensors.
_EXAMPLES = """
abs([-1.5, 0.0, 2.0]) -> Tensor([1.5, 0. , 2. ], shape=[3], dtype=float32)
acos([-1.0, 0.0, 1.0]) -> Tensor([3.1416, 1.5708, 0.    ], shape=[3], dtype=float32)
acosh([1.0, 2.0]) -> Tensor([0.   , 1.317], shape=[2], dtype=float32)
add_position_encoding([[[0.0, 0.0], [0.0, 0.0]]], alpha=1.0, beta=1.0) -> Tensor([[[0.    , 1.    ],
         [0.0001, 1.    ]]], shape=[1, 2, 2], dtype=float32)
argsort([30, 10, 20]) -> (Tensor([10, 20, 30], shape=[3], dtype=int64), Tensor([1, 2, 0], shape=[3], dtype=int64))
asin([-1.0, 0.0, 1.0]) -> Tensor([-1.5708,  0.    ,  1.5708], shape=[3], dtype=float32)
asinh([-1.0, 0.0, 2.0]) -> Tensor([-0.8814,  0.    ,  1.4436], shape=[3], dtype=float32)
atan([-1.0, 0.0, 2.0]) -> Tensor([-0.7854,  0.    ,  1.1071], shape=[3], dtype=float32)
atanh([-0.5, 0.0, 0.5]) -> Tensor([-0.5493,  0.    ,  0.5493], shape=[3], dtype=float32)
bpr_loss([[1.0, 2.0]], [[1]]) -> Tensor([[0.3133]], shape=[1, 1], dtype=float32)
brelu([-1.0, 5.0, 30.0], t_max=24.0) -> Tensor([ 0.,  5., 24.], shape=[3], dtype=float32)
ceil([-1.5, 0.2, 2.0]) -> Tensor([-1.,  1.,  2.], shape=[3], dtype=float32)
celu([-1.0, 0.0, 2.0]) -> Tensor([-0.6321,  0.    ,  2.    ], shape=[3], dtype=float32)
cos([0.0, 1.0, 3.1416]) -> Tensor([ 1.    ,  0.5403, -1.    ], shape=[3], dtype=float32)
cos_sim([[1.0, 0.0]], [[1.0, 1.0]]) -> Tensor([[0.7071]], shape=[1, 1], dtype=float32)
cosh([-1.0, 0.0, 2.0]) -> Tensor([1.5431, 1.    , 3.7622], shape=[3], dtype=float32)
cumsum([1, 2, 3, 4]) -> Tensor([ 1,  3,  6, 10], shape=[4], dtype=int64)
elementwise_add([1.0, 2.0], [10.0, 20.0]) -> Tensor([11., 22.], shape=[2], dtype=float32)
elementwise_div([1.0, 9.0], [4.0, 3.0]) -> Tensor([0.25, 3.  ], shape=[2], dtype=float32)
elementwise_floordiv([7, -7], [2, 2]) -> Tensor([ 3, -4], shape=[2], dtype=int64)
elementwise_max([1.0, 5.0], [3.0, 2.0]) -> Tensor([3., 5.], shape=[2], dtype=float32)
elementwise_min([1.0, 5.0], [3.0, 2.0]) -> Tensor([1., 2.], shape=[2], dtype=float32)
elementwise_mod([7, -7], [3, 3]) -> Tensor([1, 2], shape=[2], dtype=int64)
elementwise_mul([1.0, 2.0], [10.0, 20.0]) -> Tensor([10., 40.], shape=[2], dtype=float32)
elementwise_pow([2.0, 3.0], [3.0, 2.0]) -> Tensor([8., 9.], shape=[2], dtype=float32)
elementwise_sub([10.0, 20.0], [1.0, 2.0]) -> Tensor([ 9., 18.], shape=[2], dtype=float32)
elu([-1.0, 0.0, 2.0]) -> Tensor([-0.6321,  0.    ,  2.    ], shape=[3], dtype=float32)
equal([1, 2, 3], [2, 2, 2]) -> Tensor([False,  True, False], shape=[3], dtype=bool)
erf([-1.0, 0.0, 2.0]) -> Tensor([-0.8427,  0.    ,  0.9953], shape=[3], dtype=float32)
exp([-1.0, 0.0, 2.0]) -> Tensor([0.3679, 1.    , 7.3891], shape=[3], dtype=float32)
expand_as([[1, 2]], [[0, 0], [0, 0]]) -> Tensor([[1, 2],
        [1, 2]], shape=[2, 2], dtype=int64)
expm1([-1.0, 0.0, 2.0]) -> Tensor([-0.6321,  0.    ,  6.3891], shape=[3], dtype=float32)
floor([-1.5, 0.2, 2.0]) -> Tensor([-2.,  0.,  2.], shape=[3], dtype=float32)
gather_nd([[1, 2], [3, 4]], [[1, 0], [0, 1]]) -> Tensor([3, 2], shape=[2], dtype=int64)
gather_tree([[[5, 6]], [[7, 8]]], [[[0, 0]], [[1, 0]]]).numpy().tolist() -> [[[6, 5]], [[7, 8]]]
gaussian_random_batch_size_like([[1.0], [2.0]], shape=[-1, 3]).shape -> (2, 3)
gelu([-1.0, 0.0, 2.0]) -> Tensor([-0.1587,  0.    ,  1.9545], shape=[3], dtype=float32)
greater_equal([1, 2, 3], [2, 2, 2]) -> Tensor([False,  True,  True], shape=[3], dtype=bool)
greater_than([1, 2, 3], [2, 2, 2]) -> Tensor([False, False,  True], shape=[3], dtype=bool)
hard_shrink([-1.0, 0.2, 2.0]) -> Tensor([-1.,  0.,  2.], shape=[3], dtype=float32)
hard_sigmoid([-4.0, 0.0, 1.0]) -> Tensor([0. , 0.5, 0.7], shape=[3], dtype=float32)
hard_swish([0.0, 1.0, 4.0]) -> Tensor([0.    , 0.6667, 4.    ], shape=[3], dtype=float32)
has_inf([1.0, 2.0]) -> Tensor([False], shape=[1], dtype=bool)
has_nan([1.0, 2.0]) -> Tensor([False], shape=[1], dtype=bool)
hash([[1, 2]], hash_size=100) -> Tensor([[[24]]], shape=[1, 1, 1], dtype=int64)
isfinite([1.0, 2.0]) -> Tensor([ True], shape=[1], dtype=bool)
kldiv_loss([-0.7, -0.7], [0.5, 0.5], reduction="sum") -> Tensor([0.0069], shape=[1], dtype=float32)
label_smooth([[0.0, 1.0]], epsilon=0.1) -> Tensor([[0.05, 0.95]], shape=[1, 2], dtype=float32)
leaky_relu([-1.0, 0.0, 2.0]) -> Tensor([-0.02,  0.  ,  2.  ], shape=[3], dtype=float32)
less_equal([1, 2, 3], [2, 2, 2]) -> Tensor([ True,  True, False], shape=[3], dtype=bool)
less_than([1, 2, 3], [2, 2, 2]) -> Tensor([ True, False, False], shape=[3], dtype=bool)
log([1.0, 2.0, 10.0]) -> Tensor([0.    , 0.6931, 2.3026], shape=[3], dtype=float32)
log10([1.0, 2.0, 10.0]) -> Tensor([0.   , 0.301, 1.   ], shape=[3], dtype=float32)
log1p([0.0, 1.0]) -> Tensor([0.    , 0.6931], shape=[2], dtype=float32)
log2([1.0, 2.0, 10.0]) -> Tensor([0.    , 1.    , 3.3219], shape=[3], dtype=float32)
log_loss([[0.9], [0.2]], [[1.0], [0.0]]) -> Tensor([[0.1052],
        [0.223 ]], shape=[2, 1], dtype=float32)
logical_and([True, True, False], [True, False, False]) -> Tensor([ True, False, False], shape=[3], dtype=bool)
logical_not([True, False]) -> Tensor([False,  True], shape=[2], dtype=bool)
logical_or([True, True, False], [True, False, False]) -> Tensor([ True,  True, False], shape=[3], dtype=bool)
logical_xor([True, True, False], [True, False, False]) -> Tensor([False,  True, False], shape=[3], dtype=bool)
logsigmoid([-1.0, 0.0, 2.0]) -> Tensor([-1.3133, -0.6931, -0.1269], shape=[3], dtype=float32)
margin_rank_loss([[1.0]], [[0.5]], [[0.7]]) -> Tensor([[0.3]], shape=[1, 1], dtype=float32)
mean_iou([0, 1, 1], [0, 1, 0], num_classes=2) ->
(Tensor([0.5], shape=[1], dtype=float32), Tensor([1, 1], shape=[2], dtype=int32), Tensor([1, 1], shape=[2], dtype=int32))
mish([-1.0, 0.0, 2.0]) -> Tensor([-0.3034,  0.    ,  1.944 ], shape=[3], dtype=float32)
multiplex(([[1, 2], [3, 4]], [[5, 6], [7, 8]]), [[1], [0]]) -> Tensor([[5, 6],
        [3, 4]], shape=[2, 2], dtype=int64)
not_equal([1, 2, 3], [2, 2, 2]) -> Tensor([ True, False,  True], shape=[3], dtype=bool)
pad([1, 2], paddings=[1, 2], pad_value=9.0) -> Tensor([9, 1, 2, 9, 9], shape=[5], dtype=int64)
rank_loss([[1.0]], [[0.7]], [[0.5]]) -> Tensor([[0.5981]], shape=[1, 1], dtype=float32)
reciprocal([1.0, 4.0]) -> Tensor([1.  , 0.25], shape=[2], dtype=float32)
reduce_all([[True, False], [True, True]], dim=1) -> Tensor([False,  True], shape=[2], dtype=bool)
reduce_amax([[1.0, 2.0], [3.0, 4.0]], dim=1) -> Tensor([2., 4.], shape=[2], dtype=float32)
reduce_amin([[1.0, 2.0], [3.0, 4.0]], dim=1) -> Tensor([1., 3.], shape=[2], dtype=float32)
reduce_any([[True, False], [False, False]], dim=1) -> Tensor([ True, False], shape=[2], dtype=bool)
reduce_max([[1.0, 2.0], [3.0, 4.0]], dim=1) -> Tensor([2., 4.], shape=[2], dtype=float32)
reduce_mean([[1.0, 2.0], [3.0, 4.0]], dim=1) -> Tensor([1.5, 3.5], shape=[2], dtype=float32)
reduce_min([[1.0, 2.0], [3.0, 4.0]], dim=1) -> Tensor([1., 3.], shape=[2], dtype=float32)
reduce_prod([[1.0, 2.0], [3.0, 4.0]], dim=1) -> Tensor([ 2., 12.], shape=[2], dtype=float32)
reduce_sum([[1.0, 2.0], [3.0, 4.0]], dim=0) -> Tensor([4., 6.], shape=[2], dtype=float32)
relu([-1.0, 0.0, 2.0]) -> Tensor([0., 0., 2.], shape=[3], dtype=float32)
relu6([-1.0, 2.0, 8.0]) -> Tensor([0., 2., 6.], shape=[3], dtype=float32)
rint([-1.5, 0.5, 2.7]) -> Tensor([-2.,  0.,  3.], shape=[3], dtype=float32)
round([-1.5, 0.2, 2.7]) -> Tensor([-2.,  0.,  3.], shape=[3], dtype=float32)
rsqrt([1.0, 4.0]) -> Tensor([1. , 0.5], shape=[2], dtype=float32)
sampling_id([[0.0, 1.0], [1.0, 0.0]]) -> Tensor([1, 0], shape=[2], dtype=int64)
scatter([1.0, 2.0, 3.0], [2, 0], [30.0, 10.0]) -> Tensor([10.,  2., 30.], shape=[3], dtype=float32)
scatter_nd_add([1.0, 2.0, 3.0], [[2], [0]], [30.0, 10.0]) -> Tensor([11.,  2., 33.], shape=[3], dtype=float32)
selu([-1.0, 0.0, 2.0]) -> Tensor([-1.1113,  0.    ,  2.1014], shape=[3], dtype=float32)
shard_index([[1], [6]], index_num=8, nshards=2, shard_id=0) -> Tensor([[ 1],
        [-1]], shape=[2, 1], dtype=int64)
sigmoid([-1.0, 0.0, 2.0]) -> Tensor([0.2689, 0.5   , 0.8808], shape=[3], dtype=float32)
sign([-1.5, 0.0, 2.0]) -> Tensor([-1.,  0.,  1.], shape=[3], dtype=float32)
silu([-1.0, 0.0, 2.0]) -> Tensor([-0.2689,  0.    ,  1.7616], shape=[3], dtype=float32)
sin([0.0, 1.0, 2.0]) -> Tensor([0.    , 0.8415, 0.9093], shape=[3], dtype=float32)
sinh([-1.0, 0.0, 2.0]) -> Tensor([-1.1752,  0.    ,  3.6269], shape=[3], dtype=float32)
size([[1, 2], [3, 4]]) -> Tensor([4], shape=[1], dtype=int64)
smooth_l1([[1.0, 5.0]], [[1.5, 2.0]]) -> Tensor([[2.625]], shape=[1, 1], dtype=float32)
soft_relu([-1.0, 0.0, 2.0]) -> Tensor([0.3133, 0.6931, 2.1269], shape=[3], dtype=float32)
softplus([-1.0, 0.0, 2.0]) -> Tensor([0.3133, 0.6931, 2.1269], shape=[3], dtype=float32)
softshrink([-1.0, 0.2, 2.0]) -> Tensor([-0.5,  0. ,  1.5], shape=[3], dtype=float32)
softsign([-1.0, 0.0, 3.0]) -> Tensor([-0.5 ,  0.  ,  0.75], shape=[3], dtype=float32)
sqrt([1.0, 4.0, 9.0]) -> Tensor([1., 2., 3.], shape=[3], dtype=float32)
square([-1.0, 2.0, 3.0]) -> Tensor([1., 4., 9.], shape=[3], dtype=float32)
stanh([-1.0, 0.0, 2.0]) -> Tensor([-1.0038,  0.    ,  1.4957], shape=[3], dtype=float32)
swish([-1.0, 0.0, 2.0]) -> Tensor([-0.2689,  0.    ,  1.7616], shape=[3], dtype=float32)
tan([-1.0, 0.0, 1.0]) -> Tensor([-1.5574,  0.    ,  1.5574], shape=[3], dtype=float32)
tanh([-1.0, 0.0, 2.0]) -> Tensor([-0.7616,  0.    ,  0.964 ], shape=[3], dtype=float32)
tanh_shrink([-1.0, 0.0, 2.0]) -> Tensor([-0.2384,  0.    ,  1.036 ], shape=[3], dtype=float32)
teacher_student_sigmoid_loss([[0.5]], [[1.3]]) -> Tensor([[1.2982]], shape=[1, 1], dtype=float32)
thresholded_relu([-1.0, 0.5, 2.0]) -> Tensor([0., 0., 2.], shape=[3], dtype=float32)
uniform_random_batch_size_like([[1.0], [2.0]], shape=[-1, 3]).shape -> (2, 3)
unique([7, 3, 7]) -> (Tensor([7, 3], shape=[2], dtype=int64), Tensor([0, 1, 0], shape=[3], dtype=int32))
unique_with_counts([7, 3, 7]) ->
(Tensor([7, 3], shape=[2], dtype=int64), Tensor([0, 1, 0], shape=[3], dtype=int32), Tensor([2, 1], shape=[2], dtype=int32))
"""
# What those arguments are that many layers have, by their kind; what others are, the docstrings of the ops say.
_OPERANDS = {"x, y": "tensors of one type; of the smaller one, dimensions that it lacks, or that have size 1, are repeated."}
_RESULT_VARIABLE = "a bool variable to write to; by default a new one."
_TEXTS = {
    "one op": {},
    "arithmetic": {
        **_OPERANDS,
        "axis": "the dimension of the larger operand that the first one of the smaller is aligned with; -1 aligns the last ones.",
    },
    "comparison": {**_OPERANDS, "cond": _RESULT_VARIABLE},
    "logic": {**_OPERANDS, "x": "a tensor of any shape.", "out": _RESULT_VARIABLE},
    "reduction": {
        "input": "a tensor.",
        "dim": "one dimension or several to reduce, negative ones counted from the end; None or an empty list for all.",
        "keep_dim": "whether reduced dimensions stay, with size 1. If not, and none is left, the result has shape [1].",
    },
}
_EXAMPLE = re.compile(r"^((\w+)\(.*?) ->\s(.*?)(?=^\w|\Z)", re.MULTILINE | re.DOTALL)

_HEAD = '''"""Layers of one op each. Do not edit: ``python -m fluid.layers.generate`` writes this file from the op definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..building.layer_helper import apply, apply_many
from ..ir.program import Variable
from ..values.types import DTypeLike, as_dtype
from .arguments import speaking_of
from .tensor import constant

__all__ = [  # noqa: RUF022  (in the order of the functions)
{names}
]


def _reduce(op_type: str, input: Variable, dim: int | Sequence[int] | None, keep_dim: bool, name: str | None) -> Variable:
    attrs: dict[str, Any] = {{"keep_dim": keep_dim}}
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        attrs["reduce_all"] = True
    else:
        attrs["dim"] = [dim] if isinstance(dim, int) else list(dim)
    return apply(op_type, {{"X": input}}, attrs, name=name)


def _combine(op_type: str, x: Variable, y: Variable, axis: int, act: str | None, name: str | None) -> Variable:
    """An elementwise op; of a `y` as long as `x`, ones at the end give way to `axis`."""
    count = x.ndim - axis if isinstance(x, Variable) and isinstance(y, Variable) else 0
    if axis > 0 and count > 0 and y.ndim == x.ndim and {{*y.shape[count:]}} == {{1}}:
        y = apply("reshape2", {{"X": y}}, {{"shape": [0] * count}})
    return apply(op_type, {{"X": x, "Y": y}}, {{"axis": axis}}, name=name, act=act)


def _compare(op_type: str, x: Variable, y: Variable, cond: Variable | None) -> Variable:
    return constant(apply(op_type, {{"X": x, "Y": y}}, outputs={{"Out": cond}}))


def _without_none(attrs: dict[str, Any]) -> dict[str, Any]:
    return {{name: value for name, value in attrs.items() if value is not None}}
'''


class _NamedTensors(ast.NodeTransformer):
    """Replaces lists among the positional arguments of a call by names of tensors, and collects the lines that make them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        return node

    def visit_List(self, node: ast.List) -> ast.Name:
        name = "xyz"[len(self.lines)]
        self.lines.append(f">>> {name} = fluid.dygraph.to_variable({ast.unparse(node)})")
        return ast.Name(name)


def _example(layer: str) -> list[str]:
    """The lines of the example of a layer; none if `_EXAMPLES` has no row for it."""
    for call, name, result in _EXAMPLE.findall(_EXAMPLES):
        if name == layer:
            tensors = _NamedTensors()
            call = ast.unparse(tensors.visit(ast.parse(call)))
            return ["", *tensors.lines, f">>> layers.{call}", *result.splitlines()]
    return []


def _doc(definition: OpDef, arguments: dict[str, str], kind: str = "one op", layer: str = "") -> str:
    """The docstring of a layer (by default named like its op): the op's text, arguments, and an example.

    `arguments` are those to describe, with their slots or attributes; or several in one, such as ``x, y``.
    """
    doc, texts = described(definition)
    items = [
        (name, _TEXTS[kind].get(name) or texts.get(target) or _any(definition, target)) for name, target in arguments.items()
    ]
    targets = {target: name for name, target in arguments.items() if target not in (name, "-")}
    if "x, y" in arguments:
        targets |= {"X": "x", "Y": "y"}
    lines: list[str] = []
    for paragraph in doc.split("\n\n"):
        lines += [*_filled(_in_words_of(targets, paragraph)), ""]
    lines.append("Args:")
    for text, same in groupby(items, key=itemgetter(1)):
        lines += _filled(_in_words_of(targets, f"    {', '.join(name for name, _ in same)}: {text}"), " " * 8)
    if len(results := _outputs(definition)) > 1:
        lines += ["", "Returns:", f"    {', '.join(results[:-1])} and {results[-1]}."]
    lines += _example(layer or definition.type)
    return indent('"""' + "\n".join(line.rstrip() for line in lines).replace("\\", "\\\\") + '\n"""\n', "    ")


def _outputs(definition: OpDef) -> list[str]:
    """The outputs of an op that its layer returns."""
    return [slot.name for slot in definition.outputs.values() if not slot.intermediate and not slot.optional]


def _filled(paragraph: str, indentation: str = "") -> list[str]:
    text = paragraph.replace("\n", " ")
    return wrap(text, _WIDTH - 7, subsequent_indent=indentation, break_long_words=False, break_on_hyphens=False)


def _in_words_of(targets: dict[str, str], text: str) -> str:
    """Replace names of slots and attributes in `text` by the names of a layer's arguments."""
    if not targets:
        return text
    words = re.compile(rf"\b({'|'.join(targets)})\b")
    result = ""
    for number, part in enumerate(re.split(r"(`+[^`]*`+)", text)):  # plain text, code, plain text, ...
        mark = "" if number % 2 else "`"
        result += words.sub(lambda match, mark=mark: mark + targets[match.group()] + mark, part)
    return result


def _any(definition: OpDef, target: str) -> str:
    """A default description of an input, or of an argument without one (``-``)."""
    if target == "-":
        return "accepted and ignored."
    elements = " or ".join(definition.inputs[target].elements)
    return f"a tensor of any shape{'; ' * bool(elements)}{elements}."


def _arguments(definition: OpDef) -> list[tuple[str, str, str, object]]:
    """(argument, its type, attribute, default) of a function of one tensor."""
    if definition.type in _ARGUMENTS:
        return [
            (argument, _TYPES[definition.attrs[attribute].kind] + " | None", attribute, default)
            for argument, attribute, default in _ARGUMENTS[definition.type]
            if attribute in definition.attrs
        ]
    return [
        (name, _TYPES[attr.kind], name, attr.default)
        for name, attr in definition.attrs.items()
        if attr.kind in _TYPES and not attr.required
    ]


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _head(name: str, arguments: list[str], result: str = "Variable") -> str:
    """The first line of a function, broken into several as the formatter does."""
    line = f"def {name}({', '.join(arguments)}) -> {result}:\n"
    if len(line) <= _WIDTH + 1:
        return line
    inner = "    " + ", ".join(arguments) + "\n"
    if len(inner) > _WIDTH + 1:
        inner = "".join(f"    {argument},\n" for argument in arguments)
    return f"def {name}(\n{inner}) -> {result}:\n"


def _unary(definition: OpDef) -> str:
    arguments = _arguments(definition)
    parameters = [f"{name}: {kind} = {_literal(default)}" for name, kind, _, default in arguments]
    attrs = ", ".join(f'"{attribute}": {name}' for name, _, attribute, _ in arguments)
    if any(kind.endswith("None") for _, kind, _, _ in arguments):
        attrs = f", _without_none({{{attrs}}})"
    elif attrs:
        attrs = f", {{{attrs}}}"
    body = f'    return apply("{definition.type}", {{"X": x}}{attrs}, name=name)\n'
    return (
        _head(definition.type, ["x: Variable", *parameters, "name: str | None = None"])
        + _doc(definition, {"x": "X", **{name: attribute for name, _, attribute, _ in arguments}})
        + _speaking_of({attribute: name for name, _, attribute, _ in arguments}, body)
    )


def _speaking_of(arguments: dict[str, str], body: str) -> str:
    """Wrap `body` so that error messages name the arguments where these have other names than the attributes."""
    renamed = ", ".join(f'"{attribute}": "{argument}"' for attribute, argument in arguments.items() if attribute != argument)
    return f"    with speaking_of({{{renamed}}}):\n{indent(body, '    ')}" if renamed else body


def _elementwise(definition: OpDef) -> str:
    arguments = ["x: Variable", "y: Variable", "axis: int = -1", "act: str | None = None", "name: str | None = None"]
    call = f'    return _combine("{definition.type}", x, y, axis, act, name)\n'
    return _head(definition.type, arguments) + _doc(definition, {"x, y": "X", "axis": "axis"}, "arithmetic") + call


def _comparison(definition: OpDef) -> str:
    arguments = ["x: Variable", "y: Variable", "cond: Variable | None = None"]
    if definition.type == "less_than":
        arguments.insert(2, "force_cpu: bool | None = None")
    doc = _doc(definition, {"x, y": "X", "cond": "Out"}, "comparison")
    return _head(definition.type, arguments) + doc + f'    return _compare("{definition.type}", x, y, cond)\n'


def _logical(definition: OpDef) -> str:
    arguments = ["x: Variable", "out: Variable | None = None", "name: str | None = None"]
    inputs, operands = '"X": x', "x"
    if "Y" in definition.inputs:
        arguments.insert(1, "y: Variable")
        inputs, operands = inputs + ', "Y": y', "x, y"
    call = f'    return apply("{definition.type}", {{{inputs}}}, name=name, outputs={{"Out": out}})\n'
    return _head(definition.type, arguments) + _doc(definition, {operands: "X", "out": "Out"}, "logic") + call


def _reduction(definition: OpDef) -> str:
    dim = "dim: int | Sequence[int] | None = None"
    arguments = ["input: Variable", dim, "keep_dim: bool = False", "name: str | None = None"]
    return (
        _head(definition.type, arguments)
        + _doc(definition, {"input": "X", "dim": "dim", "keep_dim": "keep_dim"}, "reduction")
        + f'    return _reduce("{definition.type}", input, dim, keep_dim, name)\n'
    )


def _layer(text: str) -> tuple[str, str]:
    """Name and source of the function for a line of `_LAYERS`."""
    match = _LAYER.match(text)
    assert match is not None, text
    name, parameters, op_type = match.groups()
    definition = registry.get(op_type or name)
    arguments, inputs, attrs, attrs_filter, named = [], [], [], "", False
    by_attribute: dict[str, str] = {}
    targets: dict[str, str] = {}
    for part in parameters.split(", "):
        argument, _, remaining = part.partition(": ")
        target, _, default = remaining.partition(" = ")
        if part == "name":
            arguments.append("name: str | None = None")
            named = True
            continue
        value, targets[argument] = argument, target
        if target in definition.inputs:
            inputs.append(f'"{target}": {argument}')
            kind = "Sequence[Variable]" if definition.inputs[target].many else "Variable"
        elif argument == "dtype":
            kind, value = "DTypeLike", "int(as_dtype(dtype))"
        else:
            attr = definition.attrs[target]
            kind = _TYPES.get(attr.kind, "Sequence[int]")
        if target in definition.attrs:
            attrs.append(f'"{target}": {value}')
            by_attribute[target] = argument
            attrs_filter = "_without_none" if default == "None" else attrs_filter
        end = f" = {default.replace(chr(39), chr(34))}" if default else ""
        arguments.append(f"{argument}: {kind}{' | None' * (default == 'None')}{end}")
    outputs = _outputs(definition)
    constant = definition.rule in (registry.ZERO_GRADIENT, registry.NOT_DIFFERENTIABLE)
    result = "Variable" if len(outputs) == 1 else f"tuple[{', '.join(['Variable'] * len(outputs))}]"
    body = _body(definition.type, inputs, attrs, attrs_filter, ", name=name" * named, outputs, constant)
    return name, _head(name, arguments, result) + _doc(definition, targets, layer=name) + _speaking_of(by_attribute, body)


def _body(
    op_type: str, inputs: list[str], attrs: list[str], attrs_filter: str, name: str, outputs: list[str], constant: bool
) -> str:
    """The lines that append an op and return its outputs."""
    sources = {"inputs": f"{{{', '.join(inputs)}}}", "attrs": f"{{{', '.join(attrs)}}}"}
    if attrs_filter:
        sources["attrs"] = f"{attrs_filter}({sources['attrs']})"
    variables = [re.sub(r"(?<!^)([A-Z])", r"_\1", slot).lower() for slot in outputs]

    def call() -> str:
        arguments = f'"{op_type}", {sources["inputs"]}{", " + sources["attrs"] if attrs else ""}{name}'
        if len(outputs) > 1:
            return f"{', '.join(variables)} = apply_many({arguments})"
        return f"return constant(apply({arguments}))" if constant else f"return apply({arguments})"

    lines = []
    for kind, items in (("attrs", attrs), ("inputs", inputs)):
        if len("    " + call()) > _WIDTH:
            line = f"    {kind}: dict[str, Any] = {sources[kind]}\n"
            if len(line) > _WIDTH + 1:
                line = f"    {kind}: dict[str, Any] = {{\n" + "".join(f"        {item},\n" for item in items) + "    }\n"
            lines.append(line)
            sources[kind] = kind
    lines.append(f"    {call()}\n")
    if len(outputs) > 1:
        lines += [f"    constant({var})\n" for var in variables if constant]
        lines.append(f"    return {', '.join(variables)}\n")
    return "".join(lines)


def _functions() -> Iterator[tuple[str, str]]:
    """Names and sources of the functions that follow from the ops alone: activations, arithmetic, comparisons, reductions."""
    from ..ops import activation

    unary = {value.type for value in vars(activation).values() if isinstance(value, OpDef)}
    for name, definition in sorted(registry.all_ops().items()):
        if definition.forward is not None or name in _BY_HAND:
            continue
        inputs = [slot.name for slot in definition.inputs.values() if not slot.optional]
        if name in unary and inputs == ["X"] and definition.visible == ("Out",):
            yield name, _unary(definition)
        elif name.startswith("elementwise_") and inputs == ["X", "Y"] and "axis" in definition.attrs:
            yield name, _elementwise(definition)
        elif name in _COMPARISONS:
            yield name, _comparison(definition)
        elif name.startswith("logical_"):
            yield name, _logical(definition)
        elif name.startswith("reduce_"):
            yield name, _reduction(definition)


def render() -> str:
    """The text of ``ops.py``."""
    functions = dict(sorted([*_functions(), *map(_layer, _LAYERS)]))
    names = "\n".join(f'    "{name}",' for name in functions)
    return _HEAD.format(names=names) + "".join(f"\n\n{text}" for text in functions.values())


if __name__ == "__main__":
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(render())
