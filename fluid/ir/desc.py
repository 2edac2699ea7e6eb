"""Programs under the names of Fluid 1.6's classes in C++, such as ``program.desc``: views, which read and change the program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from ..opdef import registry
from ..opdef.registry import EMPTY
from ..values import types
from ..values.types import AttrType, DTypeLike, as_dtype
from .inference import infer_shape

if TYPE_CHECKING:
    from .program import Block, Operator, Program, Variable


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


class VarDesc:
    """A variable.

    >>> fluid.data("x", [None, 2]).desc.shape()
    [-1, 2]
    """

    VarType = types.VarType

    def __init__(self, var: Variable) -> None:
        self._var = var

    def name(self) -> str:
        return self._var.name

    def set_name(self, name: str | bytes) -> None:
        block, old, new = self._var.block, self._var.name, _text(name)
        block.vars = {new if key == old else key: var for key, var in block.vars.items()}
        self._var.name = new
        block.program._changed()

    def type(self) -> types.VarType:
        return self._var.type

    def set_type(self, kind: types.VarType) -> None:
        self._var.type = kind

    def shape(self) -> list[int]:
        return list(self._var.shape)

    def set_shape(self, shape: Sequence[int]) -> None:
        self._var.shape = shape

    def dtype(self) -> types.VarType:
        return self._var.dtype

    def set_dtype(self, dtype: DTypeLike) -> None:
        self._var.dtype = as_dtype(dtype)

    def lod_level(self) -> int:
        return self._var.lod_level

    def set_lod_level(self, level: int) -> None:
        self._var.lod_level = level

    def persistable(self) -> bool:
        return self._var.persistable

    def set_persistable(self, persistable: bool) -> None:
        self._var.persistable = persistable

    def need_check_feed(self) -> bool:
        return self._var.need_check_feed

    def set_need_check_feed(self, check: bool) -> None:
        self._var.need_check_feed = check

    def __eq__(self, value: object) -> bool:
        return isinstance(value, VarDesc) and value._var is self._var

    def __hash__(self) -> int:
        return hash(self._var)


class OpDesc:
    """An op.

    >>> y = layers.relu(fluid.data("x", [None, 2]))
    >>> y.op.desc.input("X")
    ['x']
    """

    def __init__(self, op: Operator) -> None:
        self._op = op

    def copy_from(self, other: OpDesc) -> None:
        """Become an op of the same type, names and attributes as another one."""
        op, source = self._op, other._op
        op.type, op.attrs = source.type, dict(source.attrs)
        op.inputs = {slot: list(names) for slot, names in source.inputs.items()}
        op.outputs = {slot: list(names) for slot, names in source.outputs.items()}
        op.block.program._changed()

    def type(self) -> str:
        return self._op.type

    def set_type(self, op_type: str) -> None:
        self._op.type = op_type
        self._op.block.program._changed()

    def input(self, slot: str) -> list[str]:
        return self._op.input(slot)

    def output(self, slot: str) -> list[str]:
        return self._op.output(slot)

    def input_names(self) -> list[str]:
        return self._op.input_names

    def output_names(self) -> list[str]:
        return self._op.output_names

    def input_arg_names(self) -> list[str]:
        return self._op.input_arg_names

    def output_arg_names(self) -> list[str]:
        return self._op.output_arg_names

    def set_input(self, slot: str, names: Iterable[str]) -> None:
        self._op.inputs[slot] = [_text(name) for name in names]
        self._op.block.program._changed()

    def set_output(self, slot: str, names: Iterable[str]) -> None:
        self._op.outputs[slot] = [_text(name) for name in names]
        self._op.block.program._changed()

    def _rename_input(self, old: str, new: str) -> None:
        self._op.rename_input(old, new)

    def _rename_output(self, old: str, new: str) -> None:
        self._op.rename_output(old, new)

    def __eq__(self, value: object) -> bool:
        return isinstance(value, OpDesc) and value._op is self._op

    def __hash__(self) -> int:
        return hash(self._op)

    def has_attr(self, name: str) -> bool:
        return name in self._op.attrs

    def attr(self, name: str) -> Any:
        return self._op.attr(name)

    def attr_type(self, name: str) -> AttrType:
        return self._op.attr_type(name)

    def attr_names(self) -> list[str]:
        return self._op.attr_names

    def _set_attr(self, name: str, value: Any) -> None:
        self._op.set_attr(name, value)

    def set_block_attr(self, name: str, block: BlockDesc) -> None:
        self._op.set_attr(name, block._block)

    def _block_attr_id(self, name: str) -> int:
        return self._op._block_attr_id(name)

    def check_attrs(self) -> None:
        """`AttributeRuleError` if attributes break the definition of the op; attributes left out get their defaults."""
        if (definition := self._op.definition) is not None:
            self._op.attrs = definition.defaults(definition.check_attrs(self._op.attrs))

    def infer_shape(self, block: BlockDesc) -> None:
        """Infer shapes and element types of the outputs, which the block declares."""
        op = copy(self._op)
        op.block = block._block
        infer_shape(op)

    infer_var_type = infer_shape


class BlockDesc:
    """A block.

    >>> y = layers.relu(fluid.data("x", [None, 2]))
    >>> y.block.desc.op_size()
    1
    """

    def __init__(self, block: Block) -> None:
        self._block = block

    @property
    def id(self) -> int:
        return self._block.idx

    @property
    def parent(self) -> int:
        return self._block.parent_idx

    def op_size(self) -> int:
        return len(self._block.ops)

    def op(self, index: int) -> OpDesc:
        return OpDesc(self._block.ops[index])

    def append_op(self) -> OpDesc:
        """Append an op without a type, which `OpDesc.set_type` and the like say."""
        return self._inserted(len(self._block.ops))

    def _prepend_op(self) -> OpDesc:
        return self._inserted(0)

    def _insert_op(self, index: int) -> OpDesc:
        return self._inserted(index)

    def _inserted(self, index: int) -> OpDesc:
        op = self._block._make_op("", None, None, None, None)
        self._block.ops.insert(index, op)
        self._block.program._changed()
        return OpDesc(op)

    def _remove_op(self, start: int, end: int) -> None:
        del self._block.ops[start:end]
        self._block.program._changed()

    def var(self, name: str | bytes) -> VarDesc:
        """The variable of this name, which is declared if it is not there."""
        return VarDesc(self._block.vars.get(_text(name)) or self._block.create_var(name=_text(name)))

    def has_var(self, name: str | bytes) -> bool:
        return self._block.has_var(_text(name))

    def find_var(self, name: str | bytes) -> VarDesc | None:
        var = self._block.vars.get(_text(name))
        return None if var is None else VarDesc(var)

    def find_var_recursive(self, name: str | bytes) -> VarDesc | None:
        var = self._block.find_var(_text(name))
        return None if var is None else VarDesc(var)

    def all_vars(self) -> list[VarDesc]:
        return [VarDesc(var) for var in self._block.vars.values()]

    def _remove_var(self, name: str | bytes) -> None:
        self._block.remove_var(_text(name))

    def __eq__(self, value: object) -> bool:
        return isinstance(value, BlockDesc) and value._block is self._block

    def __hash__(self) -> int:
        return hash(self._block)


class ProgramDesc:
    """A program.

    >>> fluid.default_main_program().desc.num_blocks()
    1
    """

    def __init__(self, program: Program) -> None:
        self._program = program

    def num_blocks(self) -> int:
        return self._program.num_blocks

    def block(self, index: int) -> BlockDesc:
        return BlockDesc(self._program.blocks[index])

    def append_block(self, parent: BlockDesc) -> BlockDesc:
        return BlockDesc(self._program.create_block(parent._block))

    def serialize_to_string(self) -> bytes:
        return self._program.serialize_to_string()


def get_grad_op_desc(
    op_desc: OpDesc, no_grad_set: Iterable[str], grad_sub_block: Any = ()
) -> tuple[list[OpDesc], dict[str, str]]:
    """The gradient op of one op, in no block, and the variable that each gradient belongs to.

    `fluid.gradients` and `append_backward` differentiate whole programs: they sum gradients, and handle overwritten variables.

    Args:
        op_desc: the op.
        no_grad_set: names of variables without a gradient.
        grad_sub_block: accepted as in Fluid, without effect.

    >>> y = layers.tanh(fluid.data("x", [None, 2]))
    >>> ops, variables = fluid.core.get_grad_op_desc(y.op.desc, set())
    >>> ops[0].type(), variables
    ('tanh_grad', {'x@GRAD': 'x'})
    """
    op, without = op_desc._op, set(no_grad_set)
    definition = registry.find(op.definition.grad_type) if op.definition is not None else None
    if definition is None:
        return [], {}
    forward = {**op.inputs, **op.outputs}
    inputs = {}
    for slot, declared in definition.inputs.items():
        base = slot.removesuffix("@GRAD")
        names = [] if base != slot and declared.optional else forward.get(base, [])  # of outputs that only gradients read, none
        inputs[slot] = list(names) if base == slot else [f"{name}@GRAD" for name in names]
    of_grad: dict[str, str] = {}
    outputs = {}
    for slot in definition.outputs:
        names = op.inputs.get(slot.removesuffix("@GRAD"), [])
        outputs[slot] = [EMPTY if name in without else f"{name}@GRAD" for name in names]
        of_grad.update((f"{name}@GRAD", name) for name in names if name not in without)
    attrs = {name: value for name, value in op.attrs.items() if name in definition.attrs}
    return [OpDesc(op.block._make_op(definition.type, inputs, outputs, attrs, op.frames))], of_grad
