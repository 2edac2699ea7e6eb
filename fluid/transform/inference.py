"""Optimizes programs for inference: removes ops that only training needs, folds constants, fuses several ops into one.

Each pass looks at the ops of block 0 and the names that they read and write; a name that is written more than once, or read where
the pass does not look, is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..executor.runtime.scope import Scope, global_scope
from ..ir.checked import checked
from ..ir.program import Operator, Program, Variable
from ..ir.renaming import redirect_reads
from ..values.types import VarType
from .edit import Edit, EditReport
from .folding import Uses, fold_batch_norm, fold_constants, only_name
from .op_versions import knows
from .pruning import prune_in_place


@checked
def optimize_for_inference(
    program: Program,
    fetches: Iterable[Variable | str] | None = None,
    scope: Scope | None = None,
    target: str | None = None,
) -> EditReport:
    """Make a copy of a program that computes the same to about 1e-5, and faster; the copy is the report's `program`.

    Ops of the backward and optimizer parts, and what the fetches do not need, are left out; the others run in test mode. What
    depends on weights alone is computed now; batch_norms become part of the weights before them; ops that change nothing go (a
    dropout in test mode, say); products or convolutions with their bias and activation, sums with the layer_norm after them,
    and products of one input with several weights become one op each. The new weights are new variables of the scope; the old
    ones stay there, since `program` uses them.

    >>> x = fluid.data("x", [None, 4, 8, 8])
    >>> y = fluid.layers.batch_norm(fluid.layers.conv2d(x, 6, 3, bias_attr=False), act="relu")
    >>> _ = fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    >>> report = fluid.optimize_for_inference(fluid.default_main_program(), [y])
    >>> [op.type for op in report.program.global_block().ops]
    ['fused_conv2d_add_act']

    Args:
        program: any program; one for training, or one that was loaded.
        fetches: the variables to compute; by default the inputs of its fetch ops or, without these, all.
        scope: the scope with the values of the weights; the current one if None.
        target: a version of Paddle that the program will be written for, as of `fluid.save_model`: only ops that it knows are
            made.

    Returns:
        A report, which can be printed.

    Raises:
        ProgramError: a weight has no value in the scope.
        NameNotFoundError: there is no variable to fetch of this name.
    """
    scope = scope if scope is not None else global_scope()
    new = program.clone(for_test=True)
    root = new.global_block()
    retained = [name for op in root.ops if op.type == "fetch" for name in op.input_arg_names]
    if fetches is not None:
        retained = [fetch if isinstance(fetch, str) else fetch.name for fetch in fetches]
    with Edit(new, "optimize_for_inference", scope) as edit:
        if retained:
            traffic = [op for op in root.ops if op.type in ("feed", "fetch")] if fetches is None else []
            prune_in_place(new, [*retained, *(name for op in traffic for name in op.output_arg_names)])
        _drop_identities(new, set(retained))
        edit.notes += fold_constants(new, scope).notes
        edit.notes += fold_batch_norm(new, scope).notes
        for op_type, fuse in _FUSIONS.items():
            if target is None or knows(target, op_type):
                _rewrite(new, set(retained), fuse)
        if retained:
            prune_in_place(new, [*retained, *(op.output_arg_names[0] for op in root.ops if op.type == "fetch")])
    return edit.report


# ------------------------------------------------------------------------------------------------- ops that change nothing
def _is_identity(op: Operator) -> bool:
    """Whether the first output of an op equals its X."""
    if op.type == "dropout":
        return bool(op.attr("is_test")) and op.attr("dropout_implementation") == "upscale_in_train"
    if op.type == "scale":
        return op.attr("scale") == 1.0 and op.attr("bias") == 0.0 and not op.input("ScaleTensor")
    if op.type == "cast":
        return bool(op.attr("in_dtype") == op.attr("out_dtype"))
    return op.type == "assign"


def _drop_identities(program: Program, retained: set[str]) -> None:
    """Remove ops that change nothing; their readers read the inputs instead, or the producers write the results."""
    root = program.global_block()
    for op in [op for op in root.ops if _is_identity(op)]:
        uses = Uses(program)
        source, out = only_name(op, "X"), only_name(op, "Out", "outputs")
        if not source or not out or uses.writes[out] != 1 or uses.writes[source] > 1 or _is_held(program, out):
            continue
        if any(uses.reads[name] for slot, names in op.outputs.items() if slot != "Out" for name in names):
            continue
        if root.var(source).type is not VarType.LOD_TENSOR or root.var(source)._dtype is not root.var(out)._dtype:
            continue
        if out not in retained:
            for block in program.blocks:
                for reader in block.ops:
                    redirect_reads(reader, {out: source})
        elif uses.reads[source] == 1 and uses.writes[source] == 1 and source not in retained and not _is_held(program, source):
            writer = next(candidate for candidate in root.ops if source in candidate.output_arg_names)
            if writer.type == "feed" or writer.sub_blocks:
                continue
            writer.outputs = {slot: [out if name == source else name for name in names] for slot, names in writer.outputs.items()}
        else:
            continue
        root.ops.remove(op)
        _forget(program, [*op.input_arg_names, *op.output_arg_names], retained)


def _is_held(program: Program, name: str) -> bool:
    """Whether a variable lives on between runs, is not one of block 0 alone, or is fed."""
    var = program.global_block().vars.get(name)
    around = sum(name in block.vars for block in program.blocks)
    return var is None or var.persistable or var.is_data or around != 1


def _forget(program: Program, names: Iterable[str], retained: set[str]) -> None:
    """Remove the given variables that no op uses."""
    used = {name for block in program.blocks for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    root = program.global_block()
    for name in names:
        if name not in used and name not in retained and name in root.vars and not root.vars[name].is_data:
            del root.vars[name]


# -------------------------------------------------------------------------------------------------- several ops as one
class _OpChain:
    """A chain of ops; each reads the result of the one before, and no other op reads it."""

    def __init__(self, program: Program, retained: set[str], first: Operator) -> None:
        self.program, self.retained, self.root = program, retained, program.global_block()
        self.ops = [first]
        self._uses = Uses(program)

    def follow(self, slot: str, out_slot: str, kinds: Sequence[str]) -> Operator | None:
        """The next op, if it is one of these kinds and reads the last result in `slot`; it becomes the last op."""
        op = self.following(out_slot, kinds)
        if op is None or only_name(op, slot) != only_name(self.ops[-1], out_slot, "outputs"):
            return None
        self.ops.append(op)
        return op

    def following(self, out_slot: str, kinds: Sequence[str]) -> Operator | None:
        """The op that alone reads the last result, if it is one of these kinds."""
        name = only_name(self.ops[-1], out_slot, "outputs")
        if not name or name in self.retained or _is_held(self.program, name):
            return None
        if self._uses.reads[name] != 1 or self._uses.writes[name] != 1:
            return None
        return next((op for op in self.root.ops if name in op.input_arg_names and op.type in kinds), None)

    def weight(self, op: Operator, slot: str) -> Variable | None:
        """The weight in a slot: it persists, and nothing writes it."""
        name = only_name(op, slot)
        var = self.root.vars.get(name)
        return var if var is not None and var.persistable and not self._uses.writes[name] and var.has_shape else None

    def replace(self, op_type: str, inputs: Mapping[str, Any], out_slot: str, slot: str, attrs: Mapping[str, Any]) -> None:
        """Put one op in the place of the last, which writes its result; the others go."""
        last = self.ops[-1]
        position = last.idx
        out = only_name(last, out_slot, "outputs")
        names = [name for op in self.ops for name in (*op.input_arg_names, *op.output_arg_names)]
        for op in self.ops:
            self.root.ops.remove(op)
        place = position - len(self.ops) + 1
        var = self.root.vars[out]
        shape, dtype = var._shape, var._dtype
        self.root.insert_op(place, op_type, inputs=dict(inputs), outputs={slot: out}, attrs=dict(attrs), frames=last.frames)
        var._shape, var._dtype = shape, dtype
        _forget(self.program, names, self.retained)


Fuse = Callable[[_OpChain], bool]


def _rewrite(program: Program, retained: set[str], fuse: Fuse) -> None:
    """Apply `fuse` to each op of block 0 that still stands there."""
    root = program.global_block()
    for op in list(root.ops):
        if any(op is candidate for candidate in root.ops):
            fuse(_OpChain(program, retained, op))


def _is_bias(var: Variable | None, size: int) -> bool:
    """Whether a weight is a vector of this size, perhaps with dimensions of 1 before it."""
    return var is not None and var.ndim > 0 and var.shape[-1] == size and all(extent == 1 for extent in var.shape[:-1])


def _added_bias(chain: _OpChain, out_slot: str, size: int, axis: int) -> Variable | None:
    """The bias that the next op adds along an axis of the last result; then that op is the last."""
    add = chain.follow("X", out_slot, ("elementwise_add",))
    bias = chain.weight(add, "Y") if add is not None else None
    if add is not None:
        ndim = chain.root.var(only_name(add, "X")).ndim
        at = add.attr("axis")
        start = at if at >= 0 else ndim - (bias.ndim if bias is not None else 0)
        place = start + (bias.ndim - 1 if bias is not None else 0)
        if bias is not None and _is_bias(bias, size) and bias.ndim <= ndim and place == axis % ndim:
            return bias
        chain.ops.pop()
    return None


def _fuse_product(chain: _OpChain) -> bool:
    """A product with a matrix, a bias, and perhaps relu: `fc`."""
    op = chain.ops[0]
    if op.type not in ("mul", "matmul", "matmul_v2"):
        return False
    weight = chain.weight(op, "Y")
    x = chain.root.vars.get(only_name(op, "X"))
    if weight is None or weight.ndim != 2 or x is None or not x.has_shape or x.ndim < 2:
        return False
    flags = ("trans_x", "trans_y", "transpose_X", "transpose_Y")
    if any(op.attrs.get(flag) for flag in flags) or op.attrs.get("alpha", 1.0) != 1.0 or op.attrs.get("y_num_col_dims", 1) != 1:
        return False
    columns = op.attr("x_num_col_dims") if op.type == "mul" else x.ndim - 1
    bias = _added_bias(chain, "Out", weight.shape[1], -1)
    if bias is None:
        return False
    relu = chain.follow("X", "Out", ("relu",))
    attrs = {"in_num_col_dims": columns, "activation_type": "relu" if relu is not None else ""}
    chain.replace("fc", {"Input": x.name, "W": weight.name, "Bias": bias.name}, "Out", "Out", attrs)
    return True


_CONV_ATTRS = ("strides", "paddings", "padding_algorithm", "dilations", "groups", "data_format")
_ACTIVATIONS = ("relu", "sigmoid", "tanh", "relu6", "hard_swish", "swish")


def _fuse_convolution(chain: _OpChain) -> bool:
    """A convolution, its bias, perhaps a sum with another image, and perhaps an activation: `fused_conv2d_add_act`."""
    op = chain.ops[0]
    weight = chain.weight(op, "Filter") if op.type == "conv2d" else None
    if weight is None or weight.ndim != 4 or op.input("Bias") or op.input("ResidualData"):
        return False
    axis = -1 if op.attr("data_format") == "NHWC" else 1
    bias = _added_bias(chain, "Output", weight.shape[0], axis)
    if bias is None or bias.ndim != 1:
        return False
    inputs = {"Input": op.input("Input"), "Filter": weight.name, "Bias": bias.name}
    attrs = {name: op.attr(name) for name in _CONV_ATTRS} | {"activation": "identity"}
    last = chain.follow("X", "Out", _ACTIVATIONS)
    if last is not None and _is_plain(last):
        attrs["activation"] = last.type
    elif last is not None:
        chain.ops.pop()
    chain.replace("fused_conv2d_add_act", inputs, "Out", "Output", attrs)
    return True


def _is_plain(op: Operator) -> bool:
    """Whether an activation has the attributes that fused ops give it."""
    definition = op.definition
    return definition is not None and all(
        op.attr(name) == attr.default for name, attr in definition.attrs.items() if name in op.attrs
    )


def _fuse_normalization(chain: _OpChain) -> bool:
    """A sum of two tensors of one shape, and its layer_norm: `skip_layernorm`."""
    op = chain.ops[0]
    x, y = (chain.root.vars.get(only_name(op, slot)) for slot in ("X", "Y")) if op.type == "elementwise_add" else (None, None)
    if x is None or y is None or not x.has_shape or not y.has_shape or x.ndim != y.ndim or x.shape != y.shape:
        return False
    if x.persistable or y.persistable or -1 in x.shape[1:]:
        return False
    norm = chain.follow("X", "Out", ("layer_norm",))
    if norm is None or not only_name(norm, "Scale") or not only_name(norm, "Bias"):
        return False
    uses = Uses(chain.program)
    if any(uses.reads[name] for slot in ("Mean", "Variance") for name in norm.output(slot)):
        return False
    attrs = {name: norm.attr(name) for name in ("epsilon", "begin_norm_axis")}
    inputs = {"X": x.name, "Y": y.name, "Scale": norm.input("Scale"), "Bias": norm.input("Bias")}
    chain.replace("skip_layernorm", inputs, "Y", "Out", attrs)
    return True


_FUSIONS: dict[str, Fuse] = {
    "fc": _fuse_product,
    "fused_conv2d_add_act": _fuse_convolution,
    "skip_layernorm": _fuse_normalization,
}
"""Op -> the function that makes it of several ops."""
