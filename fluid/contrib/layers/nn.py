"""Layers that combine several ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...building.layer_helper import LayerHelper, apply, apply_many
from ...errors import ProgramError
from ...initializer import Constant
from ...ir.checked import check_variable
from ...ir.program import Variable
from ...layers import batch_norm, elementwise_add, multiclass_nms2
from ...layers.vision import seed_variable
from ...param_attr import AttrLike
from ...values.types import DTypeLike, VarType, as_dtype

__all__ = [
    "batch_fc",
    "fused_bn_add_act",
    "fused_elemwise_activation",
    "multiclass_nms2",
    "partial_concat",
    "partial_sum",
    "rank_attention",
    "shuffle_batch",
    "tdm_child",
]

_BINARY = ("elementwise_add", "elementwise_mul")
_UNARY = ("relu", "scale", "sigmoid", "tanh")


def fused_elemwise_activation(
    x: Variable,
    y: Variable,
    functor_list: Sequence[str] | str,
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = True,
) -> Variable:
    """A binary op and an activation in either order, as two ops.

    Args:
        x, y: the operands; `y` broadcasts along `axis`.
        functor_list: the two ops, or a string ``"a,b"`` of them: ``["elementwise_add", "relu"]`` is ``x + relu(y)``, and
            ``["relu", "elementwise_add"]`` is ``relu(x + y)``. Binary: elementwise_add, elementwise_mul; unary: relu, scale,
            sigmoid, tanh.
        axis: the dimension of `x` that aligns with the first dimension of `y`; -1 aligns the last ones.
        scale: the factor of ``scale``.
        save_intermediate_out: accepted as in Fluid; of no effect.

    Raises:
        ProgramError: the ops are not one binary and one unary op of these.

    >>> x, y = dygraph.to_variable([1.0, -2.0]), dygraph.to_variable([-3.0, 1.0])
    >>> fluid.contrib.fused_elemwise_activation(x, y, ["relu", "elementwise_add"])
    Tensor([0., 0.], shape=[2], dtype=float32)
    """
    names = [name.strip() for name in functor_list.split(",")] if isinstance(functor_list, str) else list(functor_list)
    check_variable(x, "fused_elemwise_activation: x")
    check_variable(y, "fused_elemwise_activation: y")
    if len(names) != 2 or {names[0] in _BINARY, names[1] in _BINARY} != {True, False} or not set(names) <= {*_BINARY, *_UNARY}:
        raise ProgramError(
            f"fused_elemwise_activation: functor_list should be one of {', '.join(_BINARY)} and one of {', '.join(_UNARY)}, "
            f"in either order, not {names}"
        )

    def unary(op_type: str, value: Variable) -> Variable:
        attrs: dict[str, Any] = {"scale": float(scale)} if op_type == "scale" else {}
        return apply(op_type, {"X": value}, attrs)

    if names[0] in _BINARY:
        return apply(names[0], {"X": x, "Y": unary(names[1], y)}, {"axis": axis})
    return unary(names[0], apply(names[1], {"X": x, "Y": y}, {"axis": axis}))


def fused_bn_add_act(
    x: Variable,
    y: Variable,
    momentum: float = 0.9,
    epsilon: float = 1e-05,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """``act(batch_norm(x) + y)``, as in the blocks of a ResNet.

    Args:
        x: images ``[N, H, W, C]``.
        y: added to the result; of the shape of `x`.
        momentum, epsilon, param_attr, bias_attr, moving_mean_name, moving_variance_name, name: as in `batch_norm`.
        act: an activation; by default none.

    >>> x, y = (fluid.data(name, [None, 8, 8, 16]) for name in "xy")
    >>> fluid.contrib.layers.fused_bn_add_act(x, y, act="relu").shape
    (-1, 8, 8, 16)
    """
    normed = batch_norm(
        x,
        momentum=momentum,
        epsilon=epsilon,
        param_attr=param_attr,
        bias_attr=bias_attr,
        data_layout="NHWC",
        name=name,
        moving_mean_name=moving_mean_name,
        moving_variance_name=moving_variance_name,
    )
    return elementwise_add(normed, y, act=act)


def partial_concat(input: Sequence[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """Some columns of several matrices, side by side.

    Args:
        input: matrices of one shape.
        start_index: the first column; below 0, counted from the end.
        length: how many columns; -1 for all that follow.

    >>> x, y = dygraph.to_variable([[0, 1, 2]]), dygraph.to_variable([[3, 4, 5]])
    >>> fluid.contrib.layers.partial_concat([x, y], start_index=1)
    Tensor([[1, 2, 4, 5]], shape=[1, 4], dtype=int64)
    """
    return apply("partial_concat", {"X": list(input)}, {"start_index": start_index, "length": length})


def partial_sum(input: Sequence[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """The sum of some columns of several matrices.

    Args:
        input: matrices of one shape.
        start_index: the first column; below 0, counted from the end.
        length: how many columns; -1 for all that follow.

    >>> x, y = dygraph.to_variable([[0, 1, 2]]), dygraph.to_variable([[3, 4, 5]])
    >>> fluid.contrib.layers.partial_sum([x, y], start_index=0, length=2)
    Tensor([[3, 5]], shape=[1, 2], dtype=int64)
    """
    return apply("partial_sum", {"X": list(input)}, {"start_index": start_index, "length": length})


def shuffle_batch(x: Variable, seed: int | Variable | None = None) -> Variable:
    """The rows of a batch, in an order that is drawn in each run.

    Args:
        x: rows ``[..., D]``.
        seed: a first seed, or an int64 variable with the seed, which is updated in each run; None is 0.

    >>> fluid.contrib.layers.shuffle_batch(fluid.data("x", [None, 4]), seed=7).shape
    (-1, 4)
    """
    helper = LayerHelper("shuffle_batch")
    attrs = {} if isinstance(seed, Variable) else {"startup_seed": seed or 0}
    state = seed_variable(helper, seed)
    out: Variable = helper.apply("shuffle_batch", {"X": x, "Seed": state}, attrs, {"SeedOut": state})["Out"]
    return out


def batch_fc(
    input: Variable,
    param_size: Sequence[int],
    param_attr: AttrLike,
    bias_size: Sequence[int],
    bias_attr: AttrLike,
    act: str | None = None,
) -> Variable:
    """A fully connected layer for each of several slots: ``act(input @ weight + bias)``.

    Args:
        input: ``[slots, N, I]``.
        param_size: of the weights, ``[slots, I, O]``.
        param_attr: attributes of the weights.
        bias_size: of the biases, ``[slots, O]``.
        bias_attr: attributes of the biases.
        act: an activation; by default none.

    >>> x = fluid.data("x", [16, None, 3])
    >>> fluid.contrib.layers.batch_fc(x, [16, 3, 10], "w", [16, 10], "b", act="relu").shape
    (16, -1, 10)
    """
    check_variable(input, "batch_fc: input")
    helper = LayerHelper("batch_fc", None, param_attr, bias_attr, act)
    weight = helper.create_parameter(helper.param_attr, list(param_size), input.dtype)
    bias = helper.create_parameter(helper.bias_attr, list(bias_size), input.dtype, is_bias=True)
    return helper.append_activation(helper.apply("batch_fc", {"Input": input, "W": weight, "Bias": bias})["Out"])


def rank_attention(
    input: Variable,
    rank_offset: Variable,
    rank_param_shape: Sequence[int],
    rank_param_attr: AttrLike,
    max_rank: int = 3,
    max_size: int = 0,
) -> Variable:
    """For each row, the sum over the other ranks of its page view of their features times a matrix for the pair of ranks.

    Args:
        input: ``[N, D]``.
        rank_offset: int32 ``[N, 1 + 2 * max_rank]``: the rank of the row, and rank and row of each other, 0 and -1 for none.
        rank_param_shape: of the matrices, ``[max_rank * max_rank * D, O]``.
        rank_param_attr: attributes of the matrices.
        max_rank: the largest rank.
        max_size: accepted; memory is taken as needed.

    >>> x, offset = fluid.data("x", [None, 2]), fluid.data("offset", [None, 7], "int32")
    >>> fluid.contrib.layers.rank_attention(x, offset, [18, 3], "ranks").shape
    (-1, 3)
    """
    check_variable(input, "rank_attention: input")
    helper = LayerHelper("rank_attention", None, rank_param_attr)
    weight = helper.create_parameter(helper.param_attr, list(rank_param_shape), input.dtype)
    inputs = {"X": input, "RankOffset": rank_offset, "RankParam": weight}
    out: Variable = helper.apply("rank_attention", inputs, {"MaxRank": max_rank, "MaxSize": max_size})["Out"]
    return out


def tdm_child(
    x: Variable, node_nums: int, child_nums: int, param_attr: AttrLike = None, dtype: DTypeLike = "int32"
) -> tuple[Variable, Variable]:
    """The children of nodes of a tree, 0 for none, and whether each is a leaf.

    Args:
        x: numbers of nodes, int32 or int64 ``[..., 1]``.
        node_nums: how many nodes the tree has.
        child_nums: how many children a node has at most.
        param_attr: attributes of the tree, int32 ``[node_nums, 3 + child_nums]``: item, layer, parent and children of each node.
            It is not trained; give it as a `NumpyArrayInitializer`.
        dtype: of the results, int32 or int64.

    >>> tree = fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(np.zeros((7, 5), "int32")))
    >>> child, is_leaf = fluid.contrib.layers.tdm_child(fluid.data("x", [None, 1], "int64"), 7, 2, tree)
    >>> child.shape, is_leaf.shape
    ((-1, 1, 2), (-1, 1, 2))
    """
    helper = LayerHelper("tdm_child", None, param_attr)
    tree = helper.create_parameter(helper.param_attr, [node_nums, 3 + child_nums], VarType.INT32, default_initializer=Constant(0))
    tree.stop_gradient = True
    attrs = {"child_nums": child_nums, "dtype": int(as_dtype(dtype))}
    child, is_leaf = apply_many("tdm_child", {"X": x, "TreeInfo": tree}, attrs)
    child.stop_gradient = is_leaf.stop_gradient = True
    return child, is_leaf
