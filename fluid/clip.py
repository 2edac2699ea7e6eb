"""Clipping of gradients: ops appended between backward and the optimizer's updates."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import FluidTypeError, ProgramError
from .ir.checked import check_number
from .ir.program import Block, OpRole, Parameter, Program, Variable, default_main_program
from .not_here import names_here, names_not_here
from .values.types import VarType

__all__ = [
    "ErrorClipByValue",
    "GradientClipBase",
    "GradientClipByGlobalNorm",
    "GradientClipByNorm",
    "GradientClipByValue",
    "append_gradient_clip_ops",
    "error_clip_callback",
    "set_gradient_clip",
]

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)

Pair = tuple[Parameter, Variable | None]


class GradientClipBase:
    """Base of gradient clips; clips with equal `group` are applied together.

    Args:
        need_clip: asks of a parameter whether its gradient is clipped, and counted; by default all are.

    A clip of your own has a method `clip`:

    >>> class Signs(fluid.clip.GradientClipBase):
    ...     def clip(self, pairs):
    ...         return [layers.sign(gradient) for parameter, gradient in pairs]
    >>> w = dygraph.Parameter([1.5, -2.0])
    >>> optimizer = fluid.optimizer.SGD(1.0, parameter_list=[w], grad_clip=Signs())
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy()
    array([ 0.5, -1. ], dtype=float32)
    """

    need_clip: Callable[[Parameter], bool] | None = None  # of clips that were pickled before there was one

    def __init__(self, need_clip: Callable[[Parameter], bool] | None = None) -> None:
        if not callable(need_clip) and need_clip is not None:
            raise FluidTypeError(f"{type(self).__name__}: need_clip should be a function of a parameter, not {need_clip!r}")
        self.need_clip = need_clip

    @property
    def group(self) -> Hashable:
        """The gradients of parameters whose clips have equal groups are clipped in one call."""
        return id(self)

    def clip(self, pairs: list[tuple[Parameter, Variable]]) -> list[Variable]:
        """Append the ops that clip the gradients of `pairs`; the clipped gradients."""
        raise NotImplementedError

    def __call__(self, params_grads: Iterable[Pair]) -> list[Pair]:
        """The same pairs with clipped gradients."""
        pairs = list(params_grads)
        chosen = [
            (param, grad) for param, grad in pairs if grad is not None and (self.need_clip is None or self.need_clip(param))
        ]
        clipped = {param.name: grad for (param, _), grad in zip(chosen, self.clip(chosen) if chosen else (), strict=True)}
        return [(param, clipped.get(param.name, grad)) for param, grad in pairs]


def _bounds(label: str, most: float, least: float | None) -> tuple[float, float]:
    """Check the bounds; max and min."""
    greatest = check_number(most, f"{label}: max")
    lowest = -greatest if least is None else check_number(least, f"{label}: min")
    if not lowest <= greatest:
        hint = " (-max, as none is given)" if least is None else ""
        raise ProgramError(f"{label}: min {lowest}{hint} should not be above max {greatest}")
    return greatest, lowest


def _norm_bound(label: str, clip_norm: float) -> float:
    bound = check_number(clip_norm, f"{label}: clip_norm")
    if not bound >= 0:
        raise ProgramError(f"{label}: clip_norm should not be below 0, as {clip_norm} is")
    return bound


class GradientClipByValue(GradientClipBase):
    """Clip each element to ``[min, max]``.

    Args:
        max: the greatest value.
        min: the least; ``-max`` by default.
        need_clip: asks of a parameter whether its gradient is clipped; by default all are.

    Raises:
        ProgramError: `min` is above `max`.

    >>> w = dygraph.Parameter([1.0, -3.0])
    >>> optimizer = fluid.optimizer.SGD(1.0, parameter_list=[w], grad_clip=fluid.clip.GradientClipByValue(0.5))
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy()
    array([ 0.5, -2.5], dtype=float32)
    """

    def __init__(self, max: float, min: float | None = None, need_clip: Callable[[Parameter], bool] | None = None) -> None:
        super().__init__(need_clip)
        self.max, self.min = _bounds("GradientClipByValue", max, min)

    def clip(self, pairs: list[tuple[Parameter, Variable]]) -> list[Variable]:
        clipped = []
        for param, grad in pairs:
            with param.block.program.updating(param, grad) as block:
                clipped.append(block.namespace.clip(grad, min=self.min, max=self.max))
        return clipped


def _shrink(pairs: list[tuple[Parameter, Variable]], clip_norm: float) -> list[Variable]:
    """These gradients times ``clip_norm / max(clip_norm, norm)``, with ``norm`` over all of them."""
    squares = []
    for param, grad in pairs:
        with param.block.program.updating(param, grad) as block:
            ops = block.namespace
            rows = grad
            if grad.type is VarType.SELECTED_ROWS:
                rows = ops.get_tensor_from_selected_rows(ops.merge_selected_rows(grad))
            squares.append(ops.reduce_sum(ops.square(rows), reduce_all=True))
    with pairs[0][0].block.program.updating(*pairs[0]) as block:
        ops = block.namespace
        norm = ops.sqrt(ops.sum(squares) if len(squares) > 1 else squares[0])
        most = ops.fill_constant(shape=[1], dtype=int(norm.dtype), value=clip_norm)
        factor = ops.elementwise_div(most, ops.elementwise_max(most, norm))
    clipped = []
    for param, grad in pairs:
        with param.block.program.updating(param, grad) as block:
            clipped.append(block.namespace.elementwise_mul(grad, factor))
    return clipped


class GradientClipByNorm(GradientClipBase):
    """Scale each gradient down to a Euclidean norm of at most `clip_norm`: times ``clip_norm / max(clip_norm, norm)``.

    Args:
        clip_norm: the greatest norm, not below 0.
        need_clip: asks of a parameter whether its gradient is clipped; by default all are.

    >>> w = dygraph.Parameter([1.5, 2.0])
    >>> optimizer = fluid.optimizer.SGD(1.0, parameter_list=[w], grad_clip=fluid.clip.GradientClipByNorm(1.0))
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.numpy()
    array([0.9, 1.2], dtype=float32)
    """

    def __init__(self, clip_norm: float, need_clip: Callable[[Parameter], bool] | None = None) -> None:
        super().__init__(need_clip)
        self.clip_norm = _norm_bound("GradientClipByNorm", clip_norm)

    def clip(self, pairs: list[tuple[Parameter, Variable]]) -> list[Variable]:
        return [_shrink([pair], self.clip_norm)[0] for pair in pairs]


class GradientClipByGlobalNorm(GradientClipBase):
    """Scale all gradients of a group by ``clip_norm / max(clip_norm, norm)``, with the Euclidean norm of all of them together.

    Source: Pascanu, Mikolov and Bengio, On the difficulty of training recurrent neural networks, 2013.

    Args:
        clip_norm: the greatest norm, not below 0.
        group_name: parameters whose clips have one name are of one group; they should have one `clip_norm`, too.
        need_clip: asks of a parameter whether its gradient is counted and clipped; by default all are.

    >>> v, w = dygraph.Parameter([1.5]), dygraph.Parameter([2.0])
    >>> optimizer = fluid.optimizer.SGD(1.0, parameter_list=[v, w], grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0))
    >>> (v * v + w * w).sum().backward()
    >>> optimizer.step()
    >>> v.numpy(), w.numpy()
    (array([0.9], dtype=float32), array([1.2], dtype=float32))
    """

    def __init__(
        self,
        clip_norm: float,
        group_name: str = "default_group",
        need_clip: Callable[[Parameter], bool] | None = None,
    ) -> None:
        super().__init__(need_clip)
        self.clip_norm = _norm_bound("GradientClipByGlobalNorm", clip_norm)
        self.group_name = group_name

    @property
    def group(self) -> Hashable:
        """The name of the group."""
        return self.group_name

    def clip(self, pairs: list[tuple[Parameter, Variable]]) -> list[Variable]:
        return _shrink(pairs, self.clip_norm)


def set_gradient_clip(
    clip: GradientClipBase, param_list: Sequence[Parameter | str] | None = None, program: Program | None = None
) -> None:
    """Clip the gradients of these parameters before the optimizer uses them.

    Args:
        clip: a clip of this module.
        param_list: parameters or their names; all of the program by default.
        program: the program of the names; the default main program by default.

    Raises:
        FluidTypeError: `clip` is no clip, or an entry no parameter.

    >>> loss = layers.mean(layers.fc(fluid.data("x", [-1, 4]), 1))
    >>> fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(1.0))
    >>> updates, pairs = fluid.optimizer.SGD(0.1).minimize(loss)
    """
    if not isinstance(clip, GradientClipBase):
        raise FluidTypeError(f"set_gradient_clip takes one of the GradientClipBy... objects, not {clip!r}")
    program = program if program is not None else default_main_program()
    chosen = param_list if param_list is not None else program.all_parameters()
    for item in chosen:
        param = program.global_block().var(item) if isinstance(item, str) else item
        if not isinstance(param, Parameter):
            raise FluidTypeError(f"set_gradient_clip: {item!r} is not a parameter of the program")
        param.gradient_clip_attr = clip


def append_gradient_clip_ops(params_grads: Iterable[Pair]) -> list[Pair]:
    """The (parameter, gradient) pairs of `params_grads` with gradients clipped by the clips of their parameters."""
    pairs = list(params_grads)
    groups: dict[Hashable, list[int]] = {}
    for index, (param, grad) in enumerate(pairs):
        clip = param.gradient_clip_attr
        if grad is None or clip is None:
            continue
        members = groups.setdefault(clip.group, [])
        members.append(index)
        first = pairs[members[0]][0]
        if vars(first.gradient_clip_attr) != vars(clip):
            raise ProgramError(
                f"the gradients of {first.name} and {param.name} are clipped together but by different norms, "
                f"{first.gradient_clip_attr.clip_norm} and {clip.clip_norm}; give one of them another group_name"
            )
    for members in groups.values():
        clip = pairs[members[0]][0].gradient_clip_attr
        for index, pair in zip(members, clip([pairs[index] for index in members]), strict=True):
            pairs[index] = pair
    return pairs


class ErrorClipByValue:
    """Clip each element of a variable's gradient to ``[min, max]`` during backward; set it as ``var.error_clip``.

    Args:
        max: the greatest value.
        min: the least; ``-max`` by default.

    >>> hidden = layers.fc(fluid.data("x", [-1, 4]), 8)
    >>> hidden.error_clip = fluid.clip.ErrorClipByValue(1.0)
    """

    def __init__(self, max: float, min: float | None = None) -> None:
        self.max, self.min = _bounds("ErrorClipByValue", max, min)

    def append_clip_op(self, block: Block, grad_name: str) -> None:
        """Append to `block` the op that clips the gradient named `grad_name` in place."""
        attrs = {"min": self.min, "max": self.max, OpRole.NAME: OpRole.BACKWARD}
        block.append_op("clip", inputs={"X": grad_name}, outputs={"Out": grad_name}, attrs=attrs)


def error_clip_callback(block: Block, context: Mapping[str, Any]) -> None:
    """A callback of `append_backward` that clips the gradients of variables which have an ``error_clip``.

    Args:
        block: the block that the gradient ops are appended to.
        context: what `append_backward` tells its callbacks: the gradient op that was appended, and the names of gradients ->
            the variables that they belong to.
    """
    for grad_name in context["__current_op_desc__"].output_arg_names:
        var = block.find_var(context.get(grad_name, ""))
        if var is not None and var.error_clip is not None:
            var.error_clip.append_clip_op(block, grad_name)
