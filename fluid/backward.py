"""Differentiating programs: `append_backward` and `gradients`.

Gradient ops on the way to the targets are first expanded into ordinary ops (`fluid.autodiff.expand`); then one reverse walk
(`fluid.autodiff.reverse`) appends the gradient ops of block 0.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from .autodiff.enclosing import EnclosingBlocks
from .autodiff.expand import expand_active
from .autodiff.recompute import copies_of, recompute, recomputed, segment_ends
from .autodiff.reverse import Callback, Differentiator
from .errors import BackwardError, did_you_mean
from .ir.collector import collector_paused
from .ir.dataflow import needed_ops
from .ir.nesting import outwards
from .ir.program import Block, OpRole, Parameter, Program, Variable
from .ir.regions import region_of
from .ir.verify import refuse_deep
from .ir.versions import Value, outer_names
from .not_here import names_here
from .opdef.registry import Rule
from .values.types import is_complex, is_floating

__all__ = ["append_backward", "calc_gradient", "gradients"]

__dir__ = names_here(__name__)


def _block_of(targets: Sequence[Any], label: str) -> Block:
    """The block that receives the gradient ops: from the current block outwards, the first that declares or writes a target."""
    for var in targets:
        if not isinstance(var, Variable):
            raise BackwardError(f"{label} should be a Variable, not {type(var).__name__}")
    program = targets[0].block.program
    names = {var.name for var in targets}
    for block in outwards(program.current_block()):
        if not names.isdisjoint(block.vars) or any(not names.isdisjoint(op.output_arg_names) for op in block.ops):
            break
    for var in targets:
        _check_visible(var, block, label)
    return block


def _check_visible(var: Any, block: Block, label: str) -> None:
    """Raise a `BackwardError` if a variable cannot be read in the block that receives the gradient ops."""
    if not isinstance(var, Variable):
        raise BackwardError(f"{label} should be a Variable, not {type(var).__name__}")
    if var.block.program is not block.program:
        raise BackwardError(f"{label} {var.name} belongs to another program than the target")
    if block.find_var(var.name) is not var:
        raise BackwardError(
            f"{label} {var.name} lives in sub-block {var.block.idx}, which is complete; take it out of the loop or branch (as an "
            "output) first, or differentiate it inside"
        )


def _no_grad_names(items: Iterable[Any] | None, program: Program) -> list[str]:
    """The names of a `no_grad_set`. Names that the program does not have are skipped with a warning, as in Fluid 1.6."""
    listed = [items] if isinstance(items, (str, Variable)) else list(items or ())
    declared = {name for block in program.blocks for name in block.vars} if listed else set()
    declared_items = []
    for item in listed:
        name = item.name if isinstance(item, Variable) else item
        if name in declared or not isinstance(name, str):
            declared_items.append(item)
        else:
            hint = did_you_mean(name, declared)
            warnings.warn(f"no_grad_set names {name!r}, which is not a variable of the program{hint}", stacklevel=3)
    return _names(declared_items, "no_grad_set", program)


def _is_of_a_layer(item: Variable) -> bool:
    """Whether this is a parameter of a layer of `fluid.dygraph`: in a program, the variable of its name stands for it."""
    return item.block.program.eager


def _names(items: Iterable[Any] | None, label: str, program: Program) -> list[str]:
    if items is None:
        return []
    if isinstance(items, (str, Variable)):
        items = [items]
    names = []
    for item in items:
        if not isinstance(item, (str, Variable)):
            raise BackwardError(f"{label} should hold Variables and names, not a {type(item).__name__}")
        if isinstance(item, Variable) and item.block.program is not program and not _is_of_a_layer(item):
            raise BackwardError(f"{label} holds {item.name} of another program than the one that is differentiated")
        name = item if isinstance(item, str) else item.name
        if not any(name in block.vars for block in program.blocks):
            raise BackwardError(f"{label} names {name!r}, which is not a variable of the program")
        names.append(name)
    return names


def _differentiate(
    block: Block,
    targets: Sequence[Variable],
    seeds: Sequence[Variable | None],
    wanted: Sequence[str],
    no_grad: Iterable[str],
    callbacks: Sequence[Callback],
    checkpoints: Sequence[str] = (),
) -> list[str | None]:
    """Append gradient ops to block 0; returns the gradient variables of `wanted`, None if no gradient reaches one."""
    refuse_deep(block.program)
    copies = recomputed(block)
    constant = frozenset(name for var in no_grad for name in (var, *copies_of(var, copies)))
    with collector_paused():
        return _append_gradients(block, targets, seeds, wanted, constant, callbacks, checkpoints)


def _append_gradients(
    block: Block,
    targets: Sequence[Variable],
    seeds: Sequence[Variable | None],
    wanted: Sequence[str],
    no_grad: frozenset[str],
    callbacks: Sequence[Callback],
    checkpoints: Sequence[str],
) -> list[str | None]:
    copies = recomputed(block)
    groups = [[name, *_copies_to_sum(block, name, copies)] for name in wanted]
    names = list(dict.fromkeys(name for group in groups for name in group))
    _expand_gradient_ops(block, [target.name for target in targets], names, no_grad)
    blocks = EnclosingBlocks(block, no_grad, callbacks)
    walker = blocks.inner
    versions = walker.versions
    values = [versions.current(target.name) for target in targets]
    end = max((versions.writer[value] + 1 for value in values if value in versions.writer), default=0)
    blocks.mark_varied(names, end)
    cuts = segment_ends(versions, checkpoints, end)
    bounds = [0, *(position for position, _ in cuts), end]
    appended: list[int] = []
    with _undone_on_error(block.program):
        for target, value, seed in zip(targets, values, seeds, strict=True):
            if value in walker.varied:
                walker.seed(value, seed.name if seed is not None else _ones(walker, target, value))
        for start, stop in zip(bounds[-2::-1], bounds[:0:-1], strict=True):
            appended.append(len(block.ops))
            walker.walk(stop, start)
        appended.append(len(block.ops))
        blocks.walk_outwards()
        results = [_total(walker, [blocks.gradient(name) for name in group]) for group in groups]
        forward = [versions.ops[start:stop] for start, stop in pairwise(bounds)]
        backward = [block.ops[first:after] for first, after in pairwise(appended)][::-1]
        for block_walker in blocks.walkers:
            block_walker.apply_inserts()
        if cuts:
            recompute(block, forward, backward, [value for _, value in cuts], walker.saved)
    blocks.check_loops(values)
    if walker.constants:
        walker.warn_of_constants(needed_ops(versions, set(values)))
    block.program._changed()
    return results


def _expand_gradient_ops(block: Block, targets: Iterable[str], wanted: Sequence[str], no_grad: frozenset[str]) -> None:
    """Expand the gradient ops between targets and wanted variables, in the block and in the blocks around it."""
    names = set(targets)
    for home in outwards(block):
        outer_reads = outer_names(home)[0] if home.parent is not None else []
        expand_active(home, sorted(names), [*wanted, *outer_reads], no_grad)
        names = {name for name in (*names, *outer_reads) if name not in home.vars}


def _copies_to_sum(block: Block, name: str, among: Sequence[str]) -> list[str]:
    """The variables among the `recomputed` ones that recompute `name`; gradients with respect to it are sums over them too."""
    var, copies = block.vars.get(name), copies_of(name, among)
    if not copies or var is None or var.persistable or var.is_data:
        return []  # values from before the run are not recomputed
    writers = Counter(output for op in block.ops for output in op.output_arg_names)
    if any(writers[one] > 1 for one in (name, *copies)):
        raise BackwardError(f"{name} is overwritten and computed again (recomputation), so its gradient is ambiguous")
    return copies


def _total(walker: Differentiator, parts: Sequence[str | None]) -> str | None:
    """The variable with the sum of these gradients; None stands for zero."""
    names = [name for name in parts if name is not None]
    if len(names) < 2:
        return names[0] if names else None
    total = walker.out.fresh_name(names[0])
    walker.append("sum", {"X": names}, {"Out": [total]}, None)
    walker.declare(total, walker.out.var(names[0]))
    return total


def _ones(walker: Differentiator, target: Variable, value: Value) -> str:
    """A new variable of ones with the shape of a target: its gradient with respect to itself."""
    if is_complex(target.dtype):
        raise BackwardError(
            f"{target.name} is {target.describe()}, and only a real number has a gradient that is 1; give its own"
        )
    name = walker.out.fresh_name(target.name + "@GRAD")
    writer = walker.versions.writer.get(value)
    source = walker.versions.ops[writer] if writer is not None else None
    shape, dtype = target.shape, int(target.dtype)
    if -1 in shape or target.lod_level:  # the number of rows is known only in a run
        op = walker.append("fill_any_like", {"X": [target.name]}, {"Out": [name]}, source, value=1.0, dtype=dtype)
    else:
        op = walker.append("fill_constant", {}, {"Out": [name]}, source, shape=list(shape), value=1.0, dtype=dtype)
    op.attrs[OpRole.NAME] = OpRole.BACKWARD | OpRole.LOSS
    walker.declare(name, target)
    walker.grad_names[name] = target.name
    return name


@contextlib.contextmanager
def _undone_on_error(program: Program) -> Iterator[None]:
    """Restore the program if the body of the ``with`` raises."""
    before = [(block, list(block.ops), dict(block.vars)) for block in program.blocks]
    outputs_of = [(op, op.outputs) for _, ops, _ in before for op in ops]
    owners = [(op, op.inputs.copy(), op.outputs.copy()) for op, _ in outputs_of if len(before) > 1 and op.sub_blocks]
    try:
        yield
    except BaseException:
        del program.blocks[len(before) :]
        for block, ops, variables in before:
            block.ops[:] = ops
            block.vars = variables
        for op, outputs in outputs_of:
            op.outputs = outputs
        for op, inputs, outputs in owners:
            op.inputs, op.outputs = inputs, outputs
        raise


def append_backward(
    loss: Variable,
    parameter_list: Iterable[Parameter | str] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
    callbacks: Sequence[Callback] | None = None,
    checkpoints: Sequence[Variable | str] | None = None,
) -> list[tuple[Parameter, Variable]]:
    """Append to the loss's program the ops that compute the loss's gradient with respect to parameters.

    Args:
        loss: a floating-point variable with one element. If a loop or branch that is being built computes it, the gradient ops go
            to that block, and run with it; see `gradients`.
        parameter_list: parameters or their names; all trainable parameters by default.
        no_grad_set: variables or names through which no gradient may flow; a warning lists names that the program does not have.
        callbacks: called as ``callback(block, context)`` whenever a gradient variable is complete; ``context`` maps names of
            gradients to names of their variables, and ``"__current_op_desc__"`` to the op that completed the gradient.
        checkpoints: variables, or their names, that cut the forward part into segments. The values that gradient ops read of a
            segment, except the last, are recomputed for them instead of being kept (`fluid.autodiff.recompute`): gradients are
            the same, bit by bit, and need less memory. Parameters, data and the loss cut nothing, since they are kept anyway.

    Returns:
        (parameter, gradient) for each parameter that the loss depends on.

    Raises:
        BackwardError: the loss is not a scalar, is in a loop or branch that is complete, or depends on a parameter through an op
            without a gradient; a checkpoint is unknown, in a sub-block, or computed after the loss.

    >>> loss = layers.mean(layers.fc(fluid.data("x", [None, 2]), 1))
    >>> [(param.name, grad.name) for param, grad in fluid.append_backward(loss)]
    [('fc_0.w_0', 'fc_0.w_0@GRAD'), ('fc_0.b_0', 'fc_0.b_0@GRAD')]
    """
    block = _block_of([loss], "the loss")
    if not is_floating(loss.dtype):
        raise BackwardError(f"the loss {loss.name} is {loss.describe()}, and only floating-point values have gradients")
    if is_complex(loss.dtype):
        raise BackwardError(
            f"the loss {loss.name} is {loss.describe()}, but a loss is a real number, such as the real part of this"
        )
    if loss.spec.size != 1 and tuple(loss.shape) not in ((), (-1,)):
        raise BackwardError(
            f"the loss {loss.name} is {loss.describe()}, but a loss has one element; reduce it with layers.mean or "
            "layers.reduce_sum, or use gradients() for targets of any shape"
        )
    program = block.program
    if parameter_list is None:
        wanted = [p.name for p in program.all_parameters() if p.trainable]
        data = [var for var in program.global_block().vars.values() if var.is_data and not var.stop_gradient]
        wanted += [var.name for var in data if is_floating(var.dtype)]
    else:
        wanted = _names(parameter_list, "parameter_list", program)
        for name in wanted:
            if block.find_var(name) is None:
                raise BackwardError(f"parameter_list names {name!r}, which the block of the loss does not see")
    no_grad = _no_grad_names(no_grad_set, program)
    cuts = _names(checkpoints, "checkpoints", program)
    for name in cuts:
        if block.parent is not None or name not in block.vars:
            raise BackwardError(f"the checkpoint {name} lives in a sub-block; name a value of block 0, such as the loop's output")
    results = _differentiate(block, [loss], [None], wanted, no_grad, callbacks or (), cuts)
    _mark_loss(block, loss)
    pairs = []
    for name, grad in zip(wanted, results, strict=True):
        parameter = block.var(name)
        if grad is not None and (isinstance(parameter, Parameter) or parameter_list is not None):
            pairs.append((parameter, block.vars[grad]))
    _mark_pairs(block, pairs)
    return pairs  # type: ignore[return-value]


def _mark_loss(block: Block, loss: Variable) -> None:
    writer = loss.op
    if writer is not None:
        writer.attrs[OpRole.NAME] = writer.role | OpRole.LOSS


def _mark_pairs(block: Block, pairs: Sequence[tuple[Variable, Variable]]) -> None:
    """Set ``op_role_var`` of the ops that complete gradients of parameters, as Paddle does."""
    parameter_of = {grad.name: parameter.name for parameter, grad in pairs}
    for op in reversed(block.ops):
        if not parameter_of:
            return
        for names in op.outputs.values():
            for name in names:
                if name in parameter_of:
                    op.attrs[OpRole.VARS] = [*op.attrs.get(OpRole.VARS, ()), parameter_of.pop(name), name]


def gradients(
    targets: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    target_gradients: Variable | Sequence[Variable | None] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
) -> list[Variable | None]:
    """Append ops that compute the gradient of the sum of `targets` with respect to `inputs`.

    Args:
        targets, inputs: variables of one program. If a loop or branch that is being built computes a target, the gradient ops
            go to that block: they run in each trip, and a gradient covers the current trip alone.
        target_gradients: the factor of each target in the sum, of the target's shape; None, the default, stands for ones.
        no_grad_set: variables or names through which no gradient may flow; a warning lists names that the program does not have.

    Returns:
        A gradient variable for each input, zeros where branches read it and cut the gradient. None where no gradient reaches it
        otherwise, or where its ``stop_gradient`` is set, as for
        variables that `fluid.data` declares; set it to False before.

    >>> x = fluid.data("x", [None, 2])
    >>> x.stop_gradient = False
    >>> (grad,) = fluid.gradients(layers.square(x), x)
    >>> fluid.Executor().run(feed={"x": np.array([[1.0, 3.0]], "float32")}, fetch_list=[grad])
    [array([[2., 6.]], dtype=float32)]

    Newton's method for y**3 = 2, with the slope computed in each trip of a loop:

    >>> y = layers.fill_constant([1], "float32", 1.0)
    >>> y.stop_gradient = False
    >>> i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 6)
    >>> less = layers.less_than(i, n)
    >>> with layers.While(less).block():
    ...     error = layers.pow(y, 3.0) - 2.0
    ...     (slope,) = fluid.gradients(error, y)
    ...     y = layers.assign(y - error / slope, y)
    ...     i = layers.increment(i)
    ...     less = layers.less_than(i, n, cond=less)
    >>> fluid.Executor().run(fetch_list=[y])
    [array([1.2599], dtype=float32)]
    """
    targets = [targets] if isinstance(targets, Variable) else list(targets)
    inputs = [inputs] if isinstance(inputs, Variable) else list(inputs)
    seeds: list[Variable | None]
    if target_gradients is None:
        seeds = [None] * len(targets)
    else:
        seeds = [target_gradients] if isinstance(target_gradients, Variable) else list(target_gradients)
    if len(seeds) != len(targets):
        raise BackwardError(f"there are {len(targets)} targets but {len(seeds)} target_gradients")
    if not targets:
        return [None] * len(inputs)
    block = _block_of(targets, "the target")
    for label, variables in (("target", targets), ("input", inputs), ("target gradient", seeds)):
        for var in variables:
            if var is not None:
                _check_visible(var, block, f"the {label}")
    for target, seed in zip(targets, seeds, strict=True):
        if seed is not None and (
            len(seed.shape) != len(target.shape)
            or any(a != b and -1 not in (a, b) for a, b in zip(seed.shape, target.shape, strict=True))
        ):
            raise BackwardError(
                f"the target gradient {seed.name} is {seed.describe()}, but its target {target.name} is {target.describe()}"
            )
    no_grad = _no_grad_names(no_grad_set, block.program)
    results = _differentiate(block, targets, seeds, [var.name for var in inputs], no_grad, ())
    return [
        block.var(name) if name is not None else _zeros_of_branches(block, targets, var, frozenset(no_grad))
        for name, var in zip(results, inputs, strict=True)
    ]


def _zeros_of_branches(block: Block, targets: Sequence[Variable], var: Variable, no_grad: frozenset[str]) -> Variable | None:
    """Zeros for a variable that branches read, where all of them cut its gradient, as in Fluid 1.6; else None."""
    stops_gradient = Differentiator(block, block, no_grad).stops_gradient
    reached = {} if stops_gradient(var.name) else {var.name: False}
    """Name of a value that depends on the variable -> whether a branch is between them."""
    for op in block.ops:
        rule = op.definition.rule if op.definition is not None else None
        region = region_of(op)
        is_branch = region is not None and region.may_skip and not region.repeats
        slots = op.inputs if is_branch else rule.wrt if isinstance(rule, Rule) else ()
        reads = [reached[name] for slot in slots for name in op.input(slot) if name in reached]
        if reads:
            reached.update((name, is_branch or any(reads)) for name in op.output_arg_names if not stops_gradient(name))
    if not any(reached.get(target.name) for target in targets):
        return None
    name = block.program.fresh_name(var.name + "@GRAD")
    zeros = block.create_var(name=name, shape=var.shape, dtype=var.dtype)
    block.append_op("fill_zeros_like", {"X": [var.name]}, {"Out": [name]}, {OpRole.NAME: OpRole.BACKWARD})
    return zeros


def calc_gradient(
    targets: Variable | Sequence[Variable],
    inputs: Variable | Sequence[Variable],
    target_gradients: Variable | Sequence[Variable | None] | None = None,
    no_grad_set: Iterable[Variable | str] | None = None,
) -> Variable | list[Variable | None] | None:
    """`gradients`, under its older name: the gradient itself if there is one input.

    Args:
        targets, inputs, target_gradients, no_grad_set: see `gradients`.

    >>> x = fluid.data("x", [None, 2])
    >>> x.stop_gradient = False
    >>> fluid.backward.calc_gradient(layers.reduce_sum(layers.square(x)), x).shape
    (-1, 2)
    """
    results = gradients(targets, inputs, target_gradients, no_grad_set)
    return results[0] if len(results) == 1 else results
