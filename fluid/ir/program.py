"""Programs as data: `Program` holds `Block`s, a block holds `Variable`s by name and `Operator`s in order.

Nothing here knows the wire format or how an op is computed.
"""

from __future__ import annotations

import contextlib
import copy
import re
import threading
import weakref
from abc import ABCMeta
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from .. import unique_name
from ..distributed.parts import Division
from ..errors import AttributeRuleError, FluidTypeError, NameNotFoundError, ProgramError, did_you_mean, locate
from ..opdef import registry
from ..opdef.inference import OpNamespace
from ..opdef.parameters import grad_slot
from ..opdef.registry import EMPTY, OUR_SLOTS, UNUSED_SLOTS, OpDef, Slot
from ..values.operators import ValueOperators
from ..values.spec import Spec
from ..values.types import AttrType, DTypeLike, VarType, as_dtype, is_complex, is_floating, is_integer
from .advice import missing_attribute, of_numpy, of_other_program, reflected_method, without_value
from .attr_kinds import BlockValue, attr_type
from .frames import Frames, portable, user_frame, user_frames
from .inference import BuildNamespace, infer_shape
from .nesting import outwards
from .printing import block_to_string, op_to_string, program_to_screen, program_to_string
from .roles import COMMON_ATTRS, OpRole

if TYPE_CHECKING:
    from ..executor import Scope
    from ..executor.stepwise.unsupported import UnsupportedOp
    from ..transform.edit import EditReport, NameList, OpLike
    from .desc import BlockDesc, OpDesc, ProgramDesc, VarDesc

__all__ = [
    "COMMON_ATTRS", "MOST_DEPTH", "Block", "BuildNamespace", "OpRole", "Operator", "Parameter", "Program", "Variable",
    "default_main_program", "default_startup_program", "device_guard", "in_dygraph_mode", "name_scope", "program_guard",
    "switch_main_program", "switch_startup_program",
]  # fmt: skip


MOST_DEPTH = 64
"""The deepest nesting of blocks: analyses recurse into them, and look names up through all of them."""


class Variable(ValueOperators, metaclass=ABCMeta):
    """A named value of a block: a tensor, an array of tensors, the scopes of a loop.

    Layers, `fluid.data` and `Block.create_var` make variables. Tensors of `fluid.dygraph` are variables too, of the program that
    runs each op at once.

    Args:
        block: the block that declares it.
        type: kind of variable, `VarType.LOD_TENSOR` for tensors.
        name: its name; generated if None.
        shape: the dimensions, ``-1`` where unknown until fed; ``()`` until inferred (see `has_shape`).
        dtype: element type; float32 until inferred.
        lod_level: how many levels of sequences its rows form.
        capacity: accepted as in Fluid, without effect.
        persistable: keeps its value in the scope from one run to the next.
        error_clip: how its gradient is clipped, such as `fluid.clip.ErrorClipByValue`.
        stop_gradient: no gradient flows into or through it.
        is_data: to be fed.
        need_check_feed: check that a feed has this shape and element type.
        belong_to_optimizer: accepted as in Fluid, without effect.

    Attributes:
        sharding: for each dimension, the axis of a mesh of devices over which it is split, or None (see `Program.shard`).
        division: how the tensor is divided among the workers of a fleet, if this variable is a worker's part of one, or None.

    >>> x = fluid.data("x", [None, 3])
    >>> y = x * 2.0 + 1.0
    >>> y.shape, y.dtype.text, y.op.type
    ((-1, 3), 'float32', 'scale')
    """

    __slots__ = (
        "__dict__", "_dtype", "_persistable", "_shape", "_stop_gradient", "_type", "block", "division", "error_clip", "is_data",
        "lod_level", "name", "need_check_feed", "sharding", "wire",
    )  # fmt: skip

    is_parameter = False

    def __init__(
        self,
        block: Block,
        type: VarType = VarType.LOD_TENSOR,
        name: str | None = None,
        shape: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        lod_level: int | None = None,
        capacity: int | None = None,
        persistable: bool | None = None,
        error_clip: Any = None,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        belong_to_optimizer: bool = False,
    ) -> None:
        self.block = block
        self.name = name if name is not None else unique_name.generate("_generated_var")
        self._type = type if type.__class__ is VarType else VarType(type)
        self._shape = None if shape is None else tuple(map(int, shape))
        self._dtype = None if dtype is None else as_dtype(dtype)
        self.lod_level = lod_level or 0
        self._persistable = bool(persistable)
        self._stop_gradient = bool(stop_gradient)
        self.error_clip = error_clip
        self.is_data = is_data
        self.need_check_feed = need_check_feed
        self.sharding: tuple[str | None, ...] | None = None
        self.division: Division | None = None
        self.wire: Any = None

    # -- setting any of these changes the program
    @property
    def type(self) -> VarType:
        """Kind of variable. Setting it changes the program, as setting any of these properties does."""
        return self._type

    @type.setter
    def type(self, value: VarType) -> None:
        self._type = VarType(value)
        self.block.program._changed()

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions, ``-1`` where unknown until fed; ``()`` until inferred."""
        return self._shape if self._shape is not None else ()

    @shape.setter
    def shape(self, value: Sequence[int] | None) -> None:
        self._shape = None if value is None else tuple(map(int, value))
        self.block.program._changed()

    @property
    def dtype(self) -> VarType:
        """Element type; float32 until inferred."""
        return self._dtype if self._dtype is not None else VarType.FP32

    @dtype.setter
    def dtype(self, value: DTypeLike | None) -> None:
        self._dtype = None if value is None else as_dtype(value)
        self.block.program._changed()

    @property
    def persistable(self) -> bool:
        """Whether it keeps its value in the scope from one run to the next."""
        return self._persistable

    @persistable.setter
    def persistable(self, value: bool) -> None:
        self._persistable = bool(value)
        self.block.program._changed()

    @property
    def stop_gradient(self) -> bool:
        """Whether no gradient flows into or through it."""
        return self._stop_gradient

    @stop_gradient.setter
    def stop_gradient(self, value: bool) -> None:
        self._stop_gradient = bool(value)
        self.block.program._changed()

    @property
    def has_shape(self) -> bool:
        """Whether a shape has been declared or inferred."""
        return self._shape is not None

    @property
    def has_dtype(self) -> bool:
        """Whether an element type has been declared or inferred."""
        return self._dtype is not None

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def grad_name(self) -> str:
        """The name that `append_backward` gives its gradient."""
        return grad_slot(self.name)

    @property
    def spec(self) -> Spec:
        """Shape, element type, kind and number of LoD levels as one value."""
        return Spec(self.shape, self.dtype, self._type, (None,) * self.lod_level)

    def _check_same(self, declared: Mapping[str, Any]) -> None:
        """Raise `ProgramError` if a second declaration of this variable, given by its arguments, contradicts the first."""
        keys = ("shape", "dtype", "type", "lod_level", "persistable")
        wanted = {key: declared[key] for key in keys if declared.get(key) is not None}
        if "shape" in wanted:
            wanted["shape"] = tuple(map(int, wanted["shape"]))
        if "dtype" in wanted:
            wanted["dtype"] = as_dtype(wanted["dtype"])
        has = {key: getattr(self, key) for key in wanted if key not in ("shape", "dtype") or getattr(self, f"has_{key}")}
        differ = [key for key, value in has.items() if value != wanted[key]]
        if differ:
            sides = ("; ".join(f"{key} {_as_text(side[key])}" for key in differ) for side in (has, wanted))
            raise ProgramError(
                f"{self.name!r} is declared in block {self.block.idx} already, with {next(sides)}; it cannot be declared again "
                f"with {next(sides)}. Give the new variable another name"
            )

    def declared_in(self, block: Block) -> Variable:
        """Declare a persistable variable like this one in the block of another program."""
        return block.declare(self)

    def describe(self) -> str:
        """Element type and shape as text, such as ``float32[-1, 784]``; the kind of a variable that is not a tensor."""
        if self._type is not VarType.LOD_TENSOR:
            return self._type.name.lower()
        shape = list(self._shape) if self._shape is not None else "?"
        return f"{self._dtype.text if self._dtype is not None else '?'}{shape}"

    @property
    def op(self) -> Operator | None:
        """The last op of its block that writes it, or None (linear time)."""
        for op in reversed(self.block.ops):
            for names in op.outputs.values():
                if self.name in names:
                    return op
        return None

    @property
    def desc(self) -> VarDesc:
        """The variable as Fluid 1.6 describes it in C++."""
        from .desc import VarDesc

        return VarDesc(self)

    def _set_error_clip(self, error_clip: Any) -> None:
        """Clip the gradient of this variable: `fluid.clip.ErrorClipByValue`."""
        self.error_clip = error_clip

    def _ops(self) -> OpNamespace:
        return BuildNamespace(self.block.program.current_block())

    def _binary(self, op_type: str, operand: Any, swap: bool = False) -> Any:
        is_variable = Variable in operand.__class__.__mro__  # tensors of eager mode are registered, not derived
        return super()._binary(op_type, self._cast(operand) if is_variable else operand, swap)

    def _cast(self, operand: Variable) -> Variable:
        """An operand with this element type, as in Fluid 1.6; floats beside integers stay as they are, and an op refuses them."""
        ours, theirs = self._dtype, operand._dtype
        if ours is theirs or is_complex(theirs) or not (is_floating(ours) or (is_integer(ours) and is_integer(theirs))):
            return operand
        cast: Variable = operand.astype(ours)
        return cast

    def detach(self) -> Variable:
        """The same value, through which no gradient flows."""
        copied: Variable = self._ops().assign(self)
        copied.stop_gradient = True
        return copied

    def __eq__(self, operand: Any) -> Any:
        return self._compare("equal", operand)

    def __ne__(self, operand: Any) -> Any:
        return self._compare("not_equal", operand)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        """True: there is a variable, which is what ``if bias:`` asks. `ProgramError` for a bool, whose value would decide."""
        if self._dtype is not VarType.BOOL:
            return True
        raise ProgramError(
            f"the value of {self.name} is not known while the program is built; "
            "use layers.cond or layers.while_loop to decide on it, or its .name to compare variables"
        )

    # -- what only values have
    def __float__(self) -> float:
        raise without_value(self, "float")

    def __int__(self) -> int:
        raise without_value(self, "int")

    def __index__(self) -> int:
        raise without_value(self, "an index")

    def __format__(self, spec: str) -> str:
        if spec:
            raise without_value(self, f"the format {spec!r}")
        return str(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise without_value(self, "numpy.array")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Operators of numpy arrays defer to those here; functions of numpy have no values to work on."""
        reflected = reflected_method(self, ufunc, method, inputs, kwargs)
        if reflected is not None:
            return getattr(self, reflected)(inputs[0])
        raise of_numpy(self, ufunc.__name__)

    def __setitem__(self, item: Any, value: Any) -> None:
        """Write `value` into a part of the variable, for all ops that follow."""
        from ..building.indexing import setitem

        setitem(self, item, value)

    def __len__(self) -> int:
        raise FluidTypeError(f"len: {self.name} is {self.describe()}; x.shape[0] is its first size, and layers.shape(x) in a run")

    if not TYPE_CHECKING:  # which is to find misspelt names

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)

    def __iter__(self) -> Iterator[Any]:
        raise ProgramError(f"{self.name} cannot be iterated over while the program is built; use layers.unstack or layers.split")

    def __getitem__(self, item: Any) -> Variable:
        from ..building.indexing import getitem

        return getitem(self, item)

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Its name, element type and shape; `throw_on_error` and `with_details` have no effect."""
        return str(self)

    def __str__(self) -> str:
        return f"{self.name}: {self.describe()}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


def _as_text(value: Any) -> str:
    """A property of a variable as text."""
    if isinstance(value, VarType):
        return value.text
    return str(list(value)) if isinstance(value, tuple) else str(value)


class Parameter(Variable):
    """A variable that training changes; it lives in block 0 and persists.

    Args:
        block: block 0 of the program.
        shape: the dimensions, all known.
        dtype: element type.
        name: its name; generated if None.
        trainable: whether optimizers change it.
        optimize_attr: ``learning_rate`` -> the factor on the optimizer's learning rate.
        regularizer: weight decay of this parameter, in place of the optimizer's.
        gradient_clip_attr: how its gradient is clipped.
        do_model_average: whether averages of parameters include it.
        initializer: what fills it.
        kwargs: further arguments of `Variable`.

    >>> w = layers.create_parameter([4, 8], "float32", name="w")
    >>> isinstance(w, fluid.Parameter), w.trainable
    (True, True)
    """

    __slots__ = ("do_model_average", "gradient_clip_attr", "initializer", "optimize_attr", "regularizer", "trainable")

    is_parameter = True

    def __init__(
        self,
        block: Block,
        shape: Sequence[int],
        dtype: DTypeLike,
        name: str | None = None,
        trainable: bool = True,
        optimize_attr: Mapping[str, Any] | None = None,
        regularizer: Any = None,
        gradient_clip_attr: Any = None,
        do_model_average: bool = False,
        initializer: Any = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("persistable", True)
        super().__init__(block, name=name, shape=shape, dtype=dtype, **kwargs)
        self.trainable = trainable
        self.optimize_attr = dict(optimize_attr) if optimize_attr is not None else {"learning_rate": 1.0}
        self.regularizer = regularizer
        self.gradient_clip_attr = gradient_clip_attr
        self.do_model_average = do_model_average
        self.initializer = initializer

    def declared_in(self, block: Block) -> Parameter:
        """Declare a parameter like this one in the block of another program."""
        keys = ("name", "shape", "dtype", "trainable", "optimize_attr", "regularizer", "gradient_clip_attr", "do_model_average")
        return block.create_parameter(**{key: getattr(self, key) for key in keys})


Names = Mapping[str, Any]


def _as_names(value: Any) -> list[str]:
    values = [value] if isinstance(value, (str, Variable)) else () if value is None else value
    return [item if isinstance(item, str) else item.name for item in values]


def _names_by_slot(slots: Names | None) -> dict[str, list[str]]:
    """Slot -> the names of the variable, or variables, that are given for it."""
    names: dict[str, list[str]] = {}
    if slots:
        for slot, value in slots.items():
            is_one = value.__class__ is Variable or value.__class__ is Parameter
            names[slot] = [value.name] if is_one else _as_names(value)
    return names


class Operator:
    """One application of an op: names in its slots, attributes, and the line of the user's code that made it.

    `Block.append_op` makes operators.

    Args:
        block: the block that it is in.
        type: the type of op, such as ``"mul"``.
        inputs, outputs: slot -> names of variables.
        attrs: name -> value.
        frames: the frames of the user's code that asked for it.

    Attributes:
        origin: in a program that an executor has rewritten, the op of the user's program, which errors show; None elsewhere.

    >>> y = layers.scale(fluid.data("x", [None, 3]), 2.0)
    >>> op = fluid.default_main_program().global_block().ops[0]
    >>> op.type, op.input("X"), op.attr("scale")
    ('scale', ['x'], 2.0)
    """

    __slots__ = ("attrs", "block", "frames", "inputs", "origin", "outputs", "type", "wire")

    again: Callable[[Variable], Any] | None = None
    """Repeats an optimizer's update with another gradient, in eager mode. None for ops of programs."""

    def __init__(
        self,
        block: Block,
        type: str,
        inputs: dict[str, list[str]],
        outputs: dict[str, list[str]],
        attrs: dict[str, Any],
        frames: Frames = (),
    ) -> None:
        self.block = block
        self.type = type
        self.inputs = inputs
        self.outputs = outputs
        self.attrs = attrs
        self.frames = frames
        self.wire: Any = None
        self.origin: Operator | None = None

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """The state that pickles and deep copies hold."""
        slots = {name: getattr(self, name) for name in Operator.__slots__}
        return None, {**slots, "frames": portable(self.frames), "origin": None}

    @property
    def definition(self) -> OpDef | None:
        """The definition of this type of op, or None if it has none here."""
        return registry.find(self.type)

    @property
    def idx(self) -> int:
        """Position in its block (linear time)."""
        for index, op in enumerate(self.block.ops):
            if op is self:
                return index
        raise ProgramError(f"{self.type} is no longer in its block")

    def input(self, slot: str) -> list[str]:
        """The names in an input slot, also by Paddle's name for it; `ProgramError` if no op has a slot of this name."""
        return list(self.inputs.get(slot) or self._empty_or_renamed("input", slot))

    def output(self, slot: str) -> list[str]:
        """The names in an output slot, also by Paddle's name for it; `ProgramError` if no op has a slot of this name."""
        return list(self.outputs.get(slot) or self._empty_or_renamed("output", slot))

    def _empty_or_renamed(self, side: str, slot: str) -> Sequence[str]:
        """The names in a slot that is empty, or that has another name in Paddle."""
        filled: Mapping[str, list[str]] = getattr(self, f"{side}s")
        if (ours := OUR_SLOTS.get((self.type, slot))) is not None:
            return filled.get(ours, ())
        definition = self.definition
        if definition is not None and not registry.is_slot(str(slot)):
            raise ProgramError(f"{no_slot(self.type, side, slot, getattr(definition, f'{side}s'))}\n{locate(self)}")
        return ()

    @property
    def input_names(self) -> list[str]:
        """The input slots that are filled."""
        return list(self.inputs)

    @property
    def output_names(self) -> list[str]:
        """The output slots that are filled."""
        return list(self.outputs)

    @property
    def input_arg_names(self) -> list[str]:
        """Names that the op reads, in slot order, without empty positions."""
        return [name for names in self.inputs.values() for name in names if name != EMPTY]

    @property
    def output_arg_names(self) -> list[str]:
        """Names that the op writes, in slot order, without empty positions."""
        return [name for names in self.outputs.values() for name in names if name != EMPTY]

    @property
    def attr_names(self) -> list[str]:
        """Names of the attributes that are set."""
        return list(self.attrs)

    @property
    def desc(self) -> OpDesc:
        """The op as Fluid 1.6 describes it in C++."""
        from .desc import OpDesc

        return OpDesc(self)

    def has_attr(self, name: str) -> bool:
        """Whether it has an attribute of this name, set or by default."""
        definition = self.definition
        return name in self.attrs or (definition is not None and name in definition.attrs) or name in COMMON_ATTRS

    def attr(self, name: str) -> Any:
        """An attribute's value, or its default by the definition; `ProgramError` if there is neither."""
        if name in self.attrs:
            return self.attrs[name]
        definition = self.definition
        if definition is not None and name in definition.attrs:
            return copy.copy(definition.attrs[name].default)
        if name in COMMON_ATTRS:
            return copy.copy(COMMON_ATTRS[name])
        names = list(dict.fromkeys((*self.attrs, *(definition.attrs if definition is not None else ()))))
        raise ProgramError(
            f"{self.type} has no attribute {name!r}; it has {', '.join(names) or 'none'}{did_you_mean(name, names)}"
        )

    def attr_type(self, name: str) -> AttrType:
        """The kind of an attribute; `ProgramError` if there is none of this name."""
        return attr_type(self, name)

    # -- the block, or blocks, in an attribute
    def _block_attr(self, name: str) -> Block:
        block: Block = self.attr(name)
        return block

    def _blocks_attr(self, name: str) -> list[Block]:
        return list(self.attr(name))

    def _block_attr_id(self, name: str) -> int:
        return self._block_attr(name).idx

    def _blocks_attr_ids(self, name: str) -> list[int]:
        return [block.idx for block in self._blocks_attr(name)]

    def all_attrs(self) -> dict[str, Any]:
        """Every attribute, including those left at their defaults."""
        definition = self.definition
        return copy.deepcopy(definition.defaults({})) | self.attrs if definition is not None else dict(self.attrs)

    def set_attr(self, name: str, value: Any) -> None:
        """Set the attribute `name` to `value`; `AttributeRuleError` if the op does not take it."""
        definition = self.definition
        if definition is not None and name in definition.attrs:
            value = definition.check_attrs({**self.attrs, name: value})[name]
        self.attrs[name] = value
        self.block.program._changed()

    _set_attr = set_attr

    def rename_input(self, old: str, new: str) -> None:
        """Read `new` wherever the op reads the name `old`."""
        self.inputs = {slot: [new if name == old else name for name in names] for slot, names in self.inputs.items()}
        self.block.program._changed()

    def rename_output(self, old: str, new: str) -> None:
        """Write `new` wherever the op writes the name `old`."""
        self.outputs = {slot: [new if name == old else name for name in names] for slot, names in self.outputs.items()}
        self.block.program._changed()

    _rename_input, _rename_output = rename_input, rename_output

    @property
    def role(self) -> int:
        """Bits of `OpRole`."""
        role = self.attrs.get(OpRole.NAME, OpRole.FORWARD)
        if role.__class__ is int:
            return role
        return int(role) if isinstance(role, Integral) else OpRole.FORWARD  # a file may hold anything

    @property
    def sub_blocks(self) -> list[Block]:
        """The blocks that this op owns."""
        blocks = []
        for value in self.attrs.values():
            if isinstance(value, Block):
                blocks.append(value)
            elif isinstance(value, list) and value and isinstance(value[0], Block):
                blocks.extend(value)
        return blocks

    @property
    def user_frame(self) -> tuple[str, int, str] | None:
        """(file, line, function) of the user's code that made this op, where known."""
        return user_frame(self.frames)

    def to_string(self, throw_on_error: bool = False) -> str:
        """The op as text; `throw_on_error` has no effect."""
        return str(self)

    def __str__(self) -> str:
        return op_to_string(self)

    def __repr__(self) -> str:
        return f"<Operator {self}>"


class Block(BlockValue):
    """Variables by name and operators in order. The names of the parent block are visible.

    A block of gradient ops has the block that it differentiates as `forward`; it sees that block's names too.

    Args:
        program: the program.
        idx: its position among the program's blocks.
        parent: the block around it; None for block 0.
        forward: the block that it differentiates, if any.

    Attributes:
        checks: called with the op that owns the block, when it is appended; they may raise errors.

    >>> block = fluid.default_main_program().global_block()
    >>> x = block.create_var(name="x", shape=[2, 3], dtype="float32")
    >>> y = block.create_var(name="y")
    >>> op = block.append_op("tanh", {"X": x}, {"Out": y})
    >>> y.shape
    (2, 3)
    """

    __slots__ = ("_idx", "checks", "forward", "ops", "parent", "program", "vars", "wire")

    def __init__(self, program: Program, idx: int, parent: Block | None = None, forward: Block | None = None) -> None:
        self.program = program
        self._idx = idx
        self.parent = parent
        self.forward = forward
        self.vars: dict[str, Variable] = {}
        self.ops: list[Operator] = []
        self.checks: list[Callable[[Operator], None]] = []
        self.wire: Any = None

    @property
    def idx(self) -> int:
        """Its position among the program's blocks."""
        return self._idx

    @property
    def parent_idx(self) -> int:
        """The position of the block around it; -1 for block 0."""
        return self.parent.idx if self.parent is not None else -1

    @property
    def forward_block_idx(self) -> int:
        """The position of the block that it differentiates; -1 if there is none."""
        return self.forward.idx if self.forward is not None else -1

    @property
    def desc(self) -> BlockDesc:
        """The block as Fluid 1.6 describes it in C++."""
        from .desc import BlockDesc

        return BlockDesc(self)

    @property
    def namespace(self) -> OpNamespace:
        """The ops as functions; calling one appends it to this block."""
        return BuildNamespace(self)

    # -- variables
    def find_var(self, name: str) -> Variable | None:
        """The variable of this name that is visible here, or None."""
        var = self.vars.get(name)
        if var is not None or self.parent is None:
            return var
        block: Block | None = self
        while block is not None and block.forward is None:
            var = block.vars.get(name)
            if var is not None:
                return var
            block = block.parent
        return block._find_past_forward(name) if block is not None else None

    def _find_past_forward(self, name: str) -> Variable | None:
        """`find_var` of a gradient block, which sees two blocks around it."""
        seen: set[int] = set()
        stack: list[Block | None] = [self]
        while stack:
            block = stack.pop()
            if block is None or block.idx in seen:
                continue
            seen.add(block.idx)
            var = block.vars.get(name)
            if var is not None:
                return var
            stack += (block.parent, block.forward)
        return None

    _find_var_recursive = find_var

    def has_var(self, name: str) -> bool:
        """Whether this block itself declares the name."""
        return name in self.vars

    def var(self, name: str) -> Variable:
        """The variable of this name that is visible here; `NameNotFoundError` if there is none."""
        var = self.find_var(name)
        if var is None:
            hint = did_you_mean(name, self._visible_names())
            home = next((block.idx for block in self.program.blocks if name in block.vars), None)
            if home is not None:
                hint = (
                    f": it is made in block {home}, and is known only there. Make it before that block begins; or, if it is a "
                    "result, let the block assign it to a variable from outside"
                )
            raise NameNotFoundError(f"no variable {name!r} is visible in block {self.idx}{hint}")
        return var

    _var_recursive = var

    def _visible_names(self) -> list[str]:
        return list(dict.fromkeys(name for block in outwards(self) for name in block.vars))

    def create_var(self, **kwargs: Any) -> Variable:
        """Declare a variable here. If the name is declared already, returns that variable.

        Args:
            kwargs: arguments of `Variable`.

        Raises:
            ProgramError: that variable has another shape, element type, kind, number of LoD levels or persistence.
        """
        declared = self.vars.get(kwargs.get("name"))  # type: ignore[arg-type]
        if declared is not None:
            declared._check_same(kwargs)
            for key in ("shape", "dtype"):
                if kwargs.get(key) is not None and not getattr(declared, f"has_{key}"):
                    setattr(declared, key, kwargs[key])
            return declared
        var = Variable(self, **kwargs)
        self.vars[var.name] = var
        self.program._changed()
        return var

    def create_parameter(self, **kwargs: Any) -> Parameter:
        """Declare a parameter in block 0.

        An `initializer` appends its op to this block, as in Fluid 1.6, unless the parameter was declared before. To set a value
        once before training, rather than in each step, call this on a block of the startup program.

        Args:
            kwargs: arguments of `Parameter`.

        Raises:
            ProgramError: the shape or element type is missing or unknown, or the name has others already.
        """
        home = self.program.global_block()
        name = kwargs.get("name")
        if kwargs.get("shape") is None or kwargs.get("dtype") is None:
            both = f"shape={kwargs.get('shape')}, dtype={kwargs.get('dtype')}"
            raise ProgramError(f"the parameter {name or ''} needs a shape and an element type, not {both}")
        if any(size < 0 for size in kwargs["shape"]):
            raise ProgramError(
                f"the parameter {name or ''} cannot have the shape {list(kwargs['shape'])}: its sizes must be known"
            )
        declared = home.vars.get(name) if name is not None else None
        if isinstance(declared, Parameter):
            if declared.shape != tuple(kwargs["shape"]) or declared.dtype != as_dtype(kwargs["dtype"]):
                raise ProgramError(
                    f"the parameter {name!r} exists as {declared.describe()}; it cannot be shared as "
                    f"{as_dtype(kwargs['dtype']).text}{list(kwargs['shape'])}"
                )
            return declared
        parameter = Parameter(home, **kwargs)
        home.vars[parameter.name] = parameter
        self.program._changed()
        if parameter.initializer is not None:
            parameter.initializer(parameter, self)
        return parameter

    def own(self, var: Variable) -> Variable:
        """The variable here with the same name as `var`, of another program; in eager mode, `var` itself.

        Raises:
            NameNotFoundError: there is none.
        """
        return self.var(var.name)

    def declare(self, var: Variable, **properties: Any) -> Variable:
        """Declare `var`, a persistable variable of another program, here too, with further `properties`; a tensor of eager mode
        needs no declaration.
        """
        return self.create_var(name=var.name, type=var.type, shape=var.shape, dtype=var.dtype, persistable=True, **properties)

    def initialize(self, var: Variable, initializer: Callable[[Variable, Block], Any]) -> Variable:
        """Set the first value of a persistable variable of another program; returns the variable of its name here.

        Declares the variable here, and ``initializer(variable, block)`` appends the op that fills it. A name that is declared
        here already keeps its first value. Eager mode fills the tensor `var` itself at once.

        Args:
            var: the variable.
            initializer: one of `fluid.initializer`.
        """
        if isinstance(var, Parameter):
            var.initializer = initializer
        if self.has_var(var.name):
            return self.vars[var.name]
        twin = var.declared_in(self)
        if isinstance(twin, Parameter):
            twin.initializer = initializer
        initializer(twin, self)
        return twin

    def derive(self, parameter: Any) -> Any:
        """The variable for a parameter that is computed from others in each step: ``parameter.build(namespace)``.

        In eager mode it is `parameter` itself, which a layer of `fluid.dygraph` computes when it is read.
        """
        return parameter.build(self.namespace)

    def remove_var(self, name: str) -> None:
        """Remove the variable of this name, if there is one; ops that name it stay."""
        self.vars.pop(name, None)
        self.program._changed()

    _remove_var = remove_var

    def _rename_var(self, name: str, new_name: str) -> Variable:
        """Rename a variable of this block wherever it is named; errors as of `Program.rename`."""
        var = self.var(name)
        self.program.rename(var, new_name)
        return var

    def _clone_variable(self, var: Variable, force_persistable: bool = True) -> Variable:
        """Declare a variable like one of another program, by default a persistable one."""
        keys = ("name", "type", "shape", "dtype", "lod_level", "is_data", "need_check_feed")
        return self.create_var(**{key: getattr(var, key) for key in keys}, persistable=force_persistable or var.persistable)

    def all_parameters(self) -> list[Parameter]:
        """The parameters that this block declares."""
        return list(self.iter_parameters())

    def iter_parameters(self) -> Iterator[Parameter]:
        """The parameters that this block declares, one after the other."""
        return (var for var in self.vars.values() if isinstance(var, Parameter))

    def fresh_name(self, base: str) -> str:
        """`base`, followed by a number if this block or one around it declares it."""
        return _first_free(base, lambda name: self.find_var(name) is not None)

    # -- operators
    def append_op(
        self,
        type: str,
        inputs: Names | None = None,
        outputs: Names | None = None,
        attrs: Mapping[str, Any] | None = None,
        frames: Frames | None = None,
    ) -> Operator:
        """Append an op, and infer the shapes of its outputs.

        Args:
            type: the type of op.
            inputs, outputs: slot -> a variable or name, or a list of them.
            attrs: name -> value; None leaves an attribute out.
            frames: the frames of the user's code that asked for it; by default, the callers' frames.

        Returns:
            The operator.

        Raises:
            ProgramError: the op has no such slot, or lacks a required input.
            AttributeRuleError: an attribute is unknown, or has a wrong value.
            InferenceError: the inputs do not fit each other.
        """
        op = self._make_op(type, inputs, outputs, attrs, frames)
        for body in op.sub_blocks if attrs and "sub_block" in attrs else ():
            for check in body.checks:
                check(op)
            body.checks.clear()
        try:
            infer_shape(op)
        except NameNotFoundError:
            self._refuse_foreign(type, inputs)
            raise
        self.ops.append(op)
        self.program._changed()
        return op

    def _refuse_foreign(self, type: str, inputs: Names | None) -> None:
        """Raise an error that names the first input from another program, if there is one."""
        for value in (inputs or {}).values():
            for item in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(item, Variable) and item.block.program is not self.program and self.find_var(item.name) is None:
                    raise NameNotFoundError(f"{type}: {of_other_program(item)}")

    def insert_op(self, index: int, type: str, **kwargs: Any) -> Operator:
        """Insert an op before position `index`.

        Args:
            index: a position in the block.
            type: the type of op.
            kwargs: inputs, outputs, attrs and frames, as of `append_op`.
        """
        op = self._make_op(type, kwargs.get("inputs"), kwargs.get("outputs"), kwargs.get("attrs"), kwargs.get("frames"))
        infer_shape(op)
        self.ops.insert(index, op)
        self.program._changed()
        return op

    _insert_op = insert_op

    def apply(
        self,
        definition: OpDef,
        inputs: Names,
        attrs: Names,
        outputs: Names,
        temporary: Callable[[], Variable],
        count: int = 1,
        also: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Apply an op to variables; returns its outputs by slot, lists in slots of many.

        A program appends the op. Eager mode runs it.

        Args:
            definition: of the op.
            inputs: slot -> variable, or None for an omitted input.
            attrs: name -> value.
            outputs: slot -> variable to write to; eager mode assigns its results to these tensors. Optional outputs exist only if
                they are here.
            temporary: makes a new variable, for all other outputs.
            count: how many are made for a slot of many.
            also: in eager mode, outputs that only the gradient reads and that are returned.
        """
        outputs_by_slot: dict[str, Any] = {}
        for name, slot in definition.outputs.items():
            if outputs.get(name) is not None:
                outputs_by_slot[name] = outputs[name]
            elif slot.many:
                outputs_by_slot[name] = [temporary() for _ in range(count)]
            elif not slot.optional:
                outputs_by_slot[name] = temporary()
        self.append_op(
            definition.type, {name: value for name, value in inputs.items() if value is not None}, outputs_by_slot, attrs
        )
        return outputs_by_slot

    def prepend_op(self, type: str, **kwargs: Any) -> Operator:
        """Insert an op of this `type` at the start; `kwargs` as of `insert_op`."""
        return self.insert_op(0, type, **kwargs)

    _prepend_op = prepend_op

    def remove_op(self, index: int) -> None:
        """Remove the op at position `index`."""
        del self.ops[index]
        self.program._changed()

    _remove_op = remove_op

    def _make_op(
        self, type: str, inputs: Names | None, outputs: Names | None, attrs: Mapping[str, Any] | None, frames: Frames | None
    ) -> Operator:
        program = self.program
        if frames is None:
            frames = program._frames if program._frames is not None else user_frames()
        op_attrs = {name: value for name, value in attrs.items() if value is not None} if attrs else {}
        op = Operator(self, type, _names_by_slot(inputs), _names_by_slot(outputs), op_attrs, frames)
        if _defaults.scope is not None:
            op_attrs.setdefault("op_namescope", _defaults.scope.path(program))
        if _defaults.device:
            op_attrs.setdefault("op_device", _defaults.device)
        if program._role:
            op_attrs.setdefault(OpRole.NAME, program._role)
        definition = registry.find(type)
        if definition is not None:
            try:
                op.attrs = definition.check_attrs(op_attrs)
            except AttributeRuleError as error:
                raise AttributeRuleError(f"{error}\n{locate(op)}") from None
            _check_slots(op, definition)
            for slot in definition.required:
                if not op.inputs.get(slot):
                    raise AttributeRuleError(f"{type} needs a variable in its input slot {slot!r}\n{locate(op)}")
        return op

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """The block as text; `throw_on_error` and `with_details` have no effect."""
        return str(self)

    def __str__(self) -> str:
        return block_to_string(self)


def _check_slots(op: Operator, definition: OpDef) -> None:
    """Raise `ProgramError` if an op fills a slot that it does not have, or crowds one; renames slots that have Paddle's name."""
    is_sound = True
    for filled, defined in ((op.inputs, definition.inputs), (op.outputs, definition.outputs)):
        for slot, names in filled.items():
            if slot not in defined or (len(names) > 1 and not defined[slot].many):
                is_sound = False
    if is_sound:
        return
    _rename_slots(op, "input", op.inputs, definition.inputs)
    _rename_slots(op, "output", op.outputs, definition.outputs)
    if faults := crowded_slots(op, definition):
        raise ProgramError(f"{op.type}: {faults[0]}\n{locate(op)}")


def _rename_slots(op: Operator, side: str, filled: dict[str, list[str]], defined: Mapping[str, Slot]) -> None:
    """Rename slots that have Paddle's name; `ProgramError` for others that the op does not have."""
    for name in [name for name in filled if name not in defined]:
        names = filled.pop(name)
        if (ours := OUR_SLOTS.get((op.type, name))) is not None:
            filled[ours] = names
        elif (op.type, name) not in UNUSED_SLOTS:
            raise ProgramError(f"{no_slot(op.type, side, name, defined)}\n{locate(op)}")


def no_slot(op_type: str, side: str, slot: str, slots: Iterable[str]) -> str:
    """The message for a slot that a type of op lacks, with the `slots` that it has."""
    return f"{op_type} has no {side} slot {slot!r}; it has {', '.join(slots) or 'none'}{did_you_mean(slot, slots)}"


def crowded_slots(op: Operator, definition: OpDef) -> list[str]:
    """The slots of an op that take one name and hold several, as messages."""
    faults = []
    for side, filled, defined in (("input", op.inputs, definition.inputs), ("output", op.outputs, definition.outputs)):
        for slot, names in filled.items():
            if len(names) > 1 and slot in defined and not defined[slot].many:
                faults.append(f"the {side} slot {slot!r} holds {len(names)} names, {', '.join(names[:4])}; it takes one")
    return faults


class _Derived(contextlib.AbstractContextManager[None]):
    """The context of `Program.derive_guard`; a class, since one is entered for each gradient that consists of ordinary ops."""

    __slots__ = ("_program", "_state")

    def __init__(self, program: Program, state: tuple[int, int, Frames | None]) -> None:
        self._program, self._state = program, state

    def __enter__(self) -> None:
        self._swap()

    def __exit__(self, *error: object) -> None:
        self._swap()

    def _swap(self) -> None:
        program, state = self._program, self._state
        self._state = program._current, program._role, program._frames
        program._current, program._role, program._frames = state


def _first_free(base: str, is_taken: Callable[[str], bool]) -> str:
    name, number = base, 0
    while is_taken(name):
        name = f"{base}_{number}"
        number += 1
    return name


class Program:
    """A program: a tree of blocks; block 0 is the root.

    Layers append to the default main program, what initializes parameters goes to the default startup program; `program_guard`
    makes others the default ones. ``print(program)`` shows it as text, and a notebook shows it with blocks to fold.

    >>> main, startup = fluid.Program(), fluid.Program()
    >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
    ...     loss = layers.mean(layers.fc(fluid.data("x", [None, 2]), 1))
    >>> print(main)
    block 0 {
      data x: float32[-1, 2]
      param fc_0.w_0: float32[2, 1]
      param fc_0.b_0: float32[1]
      fc_0.tmp_0: float32[-1, 1] = mul(X=x, Y=fc_0.w_0)
      fc_0.tmp_1: float32[-1, 1] = elementwise_add(X=fc_0.tmp_0, Y=fc_0.b_0) {axis=1}
      mean_0.tmp_0: float32[1] = mean(X=fc_0.tmp_1)
    }
    """

    __slots__ = (
        "__weakref__", "_current", "_frames", "_role", "_scopes", "_seed", "_version", "allowed_ops", "blocks", "fixed_sizes",
        "loaders", "wire",
    )  # fmt: skip

    _first_seed = 0

    eager = False
    """Whether ops run when they are appended and are not kept: True for the one program of `fluid.dygraph`."""

    def __init__(self) -> None:
        self.blocks = [Block(self, 0)]
        self._current = 0
        self._seed = Program._first_seed
        self._role = 0
        self._frames: Frames | None = None
        self._scopes: Counter[str] = Counter()
        """How many name scopes with ops of this program have used each path."""
        self._version = 0
        self.loaders: list[Any] = []
        """Loaders of `fluid.reader` that are not iterable: a run takes the missing feeds from them."""
        self.wire: Any = None
        self.fixed_sizes: dict[str, str] = {}
        """Fed variable of a traced program -> why one of its sizes is that of the example."""
        self.allowed_ops: frozenset[str] | None = None
        """For a program from a file: the ops that it may run though they touch files or run code. Otherwise None, for any."""

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """The state that pickles and deep copies hold: all but the loaders, which have threads."""
        slots = {name: getattr(self, name) for name in Program.__slots__ if name != "__weakref__"}
        return None, {**slots, "loaders": []}

    # -- version
    @property
    def version(self) -> int:
        """The number of changes made to this program so far; as long as it stays, the program is unchanged."""
        return self._version

    def _changed(self) -> None:
        self._version += 1

    @property
    def random_seed(self) -> int:
        """Seed of the random ops that have none of their own; 0 stands for a new one in every process."""
        return self._seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        self._seed = int(seed)
        self._changed()

    def global_seed(self, seed: int = 0) -> None:
        """Set `random_seed` of this program and of all later ones."""
        self.random_seed = seed
        Program._first_seed = int(seed)

    # -- blocks
    @property
    def num_blocks(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    def global_block(self) -> Block:
        """Block 0."""
        return self.blocks[0]

    def block(self, index: int) -> Block:
        """The block at this position."""
        return self.blocks[index]

    def current_block(self) -> Block:
        """The block that layers append to."""
        return self.blocks[self._current]

    def create_block(self, parent: Block | None = None, forward: Block | None = None) -> Block:
        """Add a block, without making it the one that layers append to; by default, inside the one that they append to.

        Args:
            parent: the block around it.
            forward: the block that it differentiates, if any.

        Raises:
            ProgramError: `MOST_DEPTH` blocks lie inside of each other already.
        """
        parent = parent if parent is not None else self.current_block()
        around: Block | None = parent
        for _ in range(MOST_DEPTH - 1):
            around = around.parent if around is not None else None
        if around is not None:
            raise ProgramError(
                f"a block in block {parent.idx} would be nested more than {MOST_DEPTH} deep, which no program may be: "
                "let a loop or a recurrence repeat what branches and loops inside of each other do"
            )
        block = Block(self, len(self.blocks), parent, forward)
        self.blocks.append(block)
        self._changed()
        return block

    def _create_block(self, parent_idx: int | None = None) -> Block:
        """Add a block, which layers append to until `_rollback`."""
        block = self.create_block(None if parent_idx is None else self.blocks[parent_idx])
        self._current = block.idx
        return block

    def _rollback(self) -> None:
        """Let layers append to the parent of the current block."""
        self._current = max(self.current_block().parent_idx, 0)

    def _sync_with_cpp(self) -> None:
        """Does nothing: `desc` is a view of the program."""

    @property
    def desc(self) -> ProgramDesc:
        """The program as Fluid 1.6 describes it in C++."""
        from .desc import ProgramDesc

        return ProgramDesc(self)

    @contextlib.contextmanager
    def block_guard(self, block: Block) -> Iterator[Block]:
        """Inside the ``with``, layers append to `block`."""
        old, self._current = self._current, block.idx
        try:
            yield block
        finally:
            self._current = old

    @contextlib.contextmanager
    def role_guard(self, role: int) -> Iterator[None]:
        """Ops appended inside the ``with`` have this role."""
        old, self._role = self._role, role
        try:
            yield
        finally:
            self._role = old

    def derive_guard(self, block: Block, role: int, source: Operator) -> contextlib.AbstractContextManager[None]:
        """Inside the ``with``, ops are appended to a block with this role and the frames of another op.

        Args:
            block: the block.
            role: bits of `OpRole`.
            source: the op whose frames they have.
        """
        return _Derived(self, (block.idx, role, source.frames))

    # -- what eager mode overrides
    @property
    def startup(self) -> Program:
        """The program that sets first values of variables: the default startup program; in eager mode, this program."""
        return default_startup_program()

    def apart(self) -> contextlib.AbstractContextManager[None]:
        """Inside the ``with``, parameters are created. In eager mode, that is not traced, and draws its own random numbers."""
        return contextlib.nullcontext()

    def drawing(
        self, layer: str, name: str | None, definition: OpDef, outputs: Mapping[str, Any], count: int
    ) -> contextlib.AbstractContextManager[None]:
        """Inside the ``with``, a layer applies an op. In eager mode a random op draws the same numbers as in a program.

        Args:
            layer: its type.
            name: of the layer; None for a generated one.
            definition, outputs, count: see `Block.apply`.
        """
        return contextlib.nullcontext()

    def version_of(self, layer: Callable[..., Any]) -> Callable[..., Any]:
        """The function to call for a layer that builds what only programs have, such as blocks and schedules: the layer itself.

        In eager mode, a function that does at once what the layer builds: see `fluid.building.versions`.
        """
        return layer

    def standing_in(self, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """The arguments `args` and `kwargs` with variables for parameters, where a layer of `fluid.dygraph` appends to a program;
        None elsewhere.
        """
        return None

    def loaded(self, array: Any) -> Any:
        """Convert an array from a loader: unchanged here, since it is fed; to a tensor in eager mode."""
        return array

    def key_of(self, parameter: Variable) -> Any:
        """The key of a parameter's optimizer state: its name; in eager mode, where names may repeat, the parameter."""
        return parameter.name

    def gradients(
        self, loss: Variable | None, parameters: Any, left_out: Any, append: Callable[[Any, Any, Any], list[Any]]
    ) -> list[Any]:
        """Pairs (parameter, gradient) for an optimizer.

        For a program, ``append(loss, parameters, left_out)`` appends the backward part and returns them. In eager mode,
        ``loss.backward()`` has computed them.

        Args:
            loss: the loss.
            parameters: the parameters; all by default.
            left_out: the parameters to leave out.
            append: appends the backward part.
        """
        return append(loss, parameters, left_out)

    def scheduled_rate(self, schedule: Callable[[], float]) -> Any:
        """The learning rate of the next step by a schedule of eager mode, as the value of a variable of one element."""
        raise ProgramError(
            f"{type(schedule).__name__} is for eager mode; programs have fluid.layers.exponential_decay and others"
        )

    def note_optimizer(self, optimizer: Any) -> None:
        """Note an optimizer that appends updates; only a traced step of eager mode, which depends on its settings, does."""

    def updating(self, param: Variable, grad: Variable) -> contextlib.AbstractContextManager[Block]:
        """Ops appended to the current block inside the ``with`` belong to the update of `param` by `grad`; eager mode records
        none.
        """
        return _updating(self, param, grad)

    # -- names under which scripts of Fluid 1.6 say what ops of their own are part of
    def _lr_schedule_guard(self, is_with_opt: bool = False) -> contextlib.AbstractContextManager[None]:
        """Ops appended inside the ``with`` compute a learning rate."""
        return self.role_guard(OpRole.LR_SCHED)

    def _optimized_guard(self, param_and_grads: Sequence[Variable]) -> contextlib.AbstractContextManager[Block]:
        """Ops appended inside the ``with`` belong to the update of a parameter, the first of the two."""
        return self.updating(*param_and_grads)

    def fresh_name(self, base: str) -> str:
        """`base`, followed by a number if a block declares it."""
        declared = [block.vars for block in self.blocks if block.vars]

        def is_taken(name: str) -> bool:
            for names in declared:  # noqa: SIM110 - twice the speed of any()
                if name in names:
                    return True
            return False

        return _first_free(base, is_taken)

    def list_vars(self) -> Iterator[Variable]:
        """Every variable of every block."""
        for block in self.blocks:
            yield from block.vars.values()

    def all_parameters(self) -> list[Parameter]:
        """The parameters of all blocks."""
        return [parameter for block in self.blocks for parameter in block.all_parameters()]

    # -- whole programs
    def clone(self, for_test: bool = False) -> Program:
        """A copy, which shares only the regularizers and initializers of parameters with this program.

        Args:
            for_test: leave out the ops of the backward and optimizer parts, and have the others run in test mode (``is_test``),
                whether the clone is made before or after ``minimize``. Gradients that ops of the forward part read, such as those
                of a gradient penalty, stay.

        >>> x = layers.dropout(fluid.data("x", [None, 2]), 0.5)
        >>> test = fluid.default_main_program().clone(for_test=True)
        >>> test.global_block().ops[0].attr("is_test")
        True
        """
        new = Program.__new__(Program)
        new._current = 0 if for_test else self._current
        new._seed, new._role, new._frames, new._version = self._seed, 0, None, 0
        new.wire, new.allowed_ops = self.wire, self.allowed_ops
        new._scopes = Counter(self._scopes)
        new.loaders, new.fixed_sizes = list(self.loaders), dict(self.fixed_sizes)
        new.blocks = [Block(new, block.idx) for block in self.blocks]
        for old_block, block in zip(self.blocks, new.blocks, strict=True):
            block.parent = new.blocks[old_block.parent.idx] if old_block.parent is not None else None
            block.forward = new.blocks[old_block.forward.idx] if old_block.forward is not None else None
            block.wire = old_block.wire
            for name, var in old_block.vars.items():
                twin = copy.copy(var)
                twin.block = block
                block.vars[name] = twin
            block.ops = [_clone_op(op, block, new.blocks) for op in old_block.ops]
        if for_test:
            from ..transform.pruning import leave_out_training

            leave_out_training(new.blocks[0])
            new._enter_test_mode()
            for block in new.blocks:
                for op in block.ops:
                    role = op.role & ~OpRole.LOSS  # no loss is minimized in a test
                    op.attrs.pop(OpRole.NAME, None)
                    if role:
                        op.attrs[OpRole.NAME] = role
            new._drop_unused()
        return new

    def _drop_unused(self) -> None:
        """Remove blocks that no op owns, and variables that no op names, except parameters and fed variables."""
        owned = {0}
        stack = [self.blocks[0]]
        while stack:
            for op in stack.pop().ops:
                for block in op.sub_blocks:
                    if block.idx not in owned:
                        owned.add(block.idx)
                        stack.append(block)
        self.blocks = [block for block in self.blocks if block.idx in owned]
        for index, block in enumerate(self.blocks):
            block._idx = index
        used = {name for block in self.blocks for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
        for block in self.blocks:
            block.vars = {
                name: var for name, var in block.vars.items() if name in used or isinstance(var, Parameter) or var.is_data
            }
        self._changed()

    def _inference_optimize(self, prune_read_op: bool = True) -> Program:
        """A copy whose ops run in test mode, as in Fluid 1.x. All ops stay; `prune_read_op` has no effect, as there are no ops
        that read."""
        new = self.clone()
        new._enter_test_mode()
        return new

    def _enter_test_mode(self) -> None:
        for block in self.blocks:
            for op in block.ops:
                if op.has_attr("is_test"):
                    op.attrs["is_test"] = True
        self._changed()

    def serialize_to_string(self) -> bytes:
        """The program as bytes: a ``ProgramDesc`` of Paddle."""
        from ..formats.program import serialize_program

        return serialize_program(self)

    @staticmethod
    def parse_from_string(binary_str: bytes) -> Program:
        """The program in these bytes (a ``ProgramDesc`` of Paddle 1.x to 2.6); `FormatError` if they are not one."""
        from ..formats.program import parse_program

        return parse_program(binary_str)

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """The whole program as text; `throw_on_error` and `with_details` have no effect."""
        return program_to_string(self)

    def verify(self) -> None:
        """Check that names resolve, slots and attributes are legal and blocks form a tree; `ProgramError` if not."""
        from .verify import verify

        verify(self)

    def explain_gradient(self, loss: Variable | str, var: Variable | str) -> str:
        """Text that lists the ops along which a gradient flows from `loss` to `var`, or names the op or flag that cuts it.

        >>> x = fluid.data("x", [None, 2])
        >>> loss = layers.mean(layers.fc(x, 1))
        >>> print(fluid.default_main_program().explain_gradient(loss, "fc_0.w_0"))  # doctest: +ELLIPSIS
        The gradient of mean_0.tmp_0 reaches fc_0.w_0 along:
          mean_0.tmp_0  <-  mean ...
        """
        from ..autodiff.explain import explain_gradient

        return explain_gradient(self, loss, var)

    def view(self, height: int = 600, title: str | None = None) -> Any:
        """The page that shows this program, for a notebook to show in a cell; `fluid.viewer.write_html` writes it to a file.

        Args:
            height: of the cell, in pixels.
            title: the page's heading.
        """
        from ..viewer.notebook import framed

        return framed(self, height, title)

    def _repr_html_(self) -> str:
        """For notebooks: the readable text, with blocks to fold."""
        from ..viewer.notebook import program_as_html

        return program_as_html(self)

    # -- edits: each verifies its result, changes nothing if it fails, and reports its changes
    def _prune(self, targets: Iterable[Variable | str] | Variable | str) -> Program:
        """A copy with only what `targets` need, as in Fluid 1.x; `prune` does it in place and reports."""
        return self._prune_with_input((), [targets] if isinstance(targets, (Variable, str)) else targets)

    def _prune_with_input(self, feeded_var_names: Iterable[str], targets: Iterable[Variable | str]) -> Program:
        """A copy that only computes `targets` from these feeds."""
        from ..transform.pruning import prune

        feeds = list(feeded_var_names)
        if targets is None or not all(isinstance(name, str) for name in feeds):
            raise ProgramError(f"a program is pruned for names of feeds, and to targets, not for {feeds}, to {targets}")
        return prune(self, targets, feeds)

    def prune(self, feeds: NameList | None, targets: NameList) -> EditReport:
        """Leave only the ops and variables that the targets need.

        Args:
            feeds: variables of block 0 to be fed, which need no op; None for all that are declared as data.
            targets: variables to compute.

        Raises:
            ProgramError: a target needs a variable that is neither fed, computed nor persistable.
        """
        from ..transform.edit import prune

        return prune(self, feeds, targets)

    def extract(self, inputs: NameList, outputs: NameList) -> EditReport:
        """Copy the part between inputs and outputs to a new program, the report's `program`; this one is unchanged.

        Args:
            inputs: any variables of block 0; in the new program they are data.
            outputs: variables to compute.

        Raises:
            ProgramError: an output needs a variable that is neither an input, computed nor persistable.
        """
        from ..transform.edit import extract

        return extract(self, inputs, outputs)

    def with_sizes(
        self,
        sizes: Mapping[str, Sequence[int | None]] | None = None,
        constants: Mapping[str, Any] | None = None,
        scope: Scope | None = None,
    ) -> Program:
        """Copy the program for certain sizes of its feeds: shapes that are computed from them become known, and known branches
        are decided. This program stays unchanged.

        Args:
            sizes: feed -> its shape, None for sizes that stay open.
            constants: feed -> its value; it is not fed any more.
            scope: where small persistable variables that decide shapes have their values; without it, they decide nothing.

        Raises:
            NameNotFoundError: there is no such feed.
            InferenceError: a shape does not fit the feed.

        >>> x = fluid.data("x", [None, None])
        >>> y = layers.reshape(x, layers.shape(x))
        >>> program = fluid.default_main_program().with_sizes({"x": [2, 3]})
        >>> [op.type for op in program.global_block().ops], program.global_block().var(y.name).shape
        (['reshape2'], (2, 3))
        """
        from ..transform.sizes import with_sizes

        return with_sizes(self, sizes, constants, scope)

    def rename(self, old: Variable | str | Mapping[str, str], new: str | None = None, scope: Scope | None = None) -> EditReport:
        """Rename a variable, or several, wherever they are named; two may swap.

        Args:
            old: the variable or its name; or a dict of old -> new names.
            new: the new name.
            scope: where the values of persistable variables get the new names too.

        Raises:
            ProgramError: a name is unknown, or a new one is in use.
        """
        from ..transform.edit import rename

        return rename(self, old, new, scope)

    def set_shape(self, var: Variable | str, shape: Sequence[int]) -> EditReport:
        """Declare another `shape` of `var` (-1 for an unknown dimension), and infer again all shapes that depend on it.

        Raises:
            InferenceError: the shape contradicts the op that writes the variable, or a shape that follows does not fit an op,
                a parameter or a fed variable; the error names both sides.
        """
        from ..transform.edit import set_shape

        return set_shape(self, var, shape)

    def replace(self, op: OpLike, builder: Callable[..., Any]) -> EditReport:
        """Replace an op by the ops that `builder` appends.

        Args:
            op: an `Operator`, its position in block 0, or a variable that no other op writes.
            builder: called with the op's inputs by slot, as variables (lists in slots of many). It calls layers, and returns
                the variable that replaces the op's output, or a dict of slot -> variable.

        The report's `startup_program` initializes the parameters that the builder created, if any.

        Raises:
            ProgramError: the op has gradient ops already, or an output that is read is not replaced.
            InferenceError: later ops do not fit the new shapes.
        """
        from ..transform.edit import replace

        return replace(self, op, builder)

    def insert(self, builder: Callable[..., Any], *, before: OpLike | None = None, after: OpLike | None = None) -> EditReport:
        """Insert the ops that a function appends before or after an op. It raises and reports as `replace` does.

        Args:
            builder: called with the op's inputs (`before`) or outputs (`after`) by slot. If it returns a variable, or a dict of
                slot -> variable, that replaces the op's input, or the op's output in all later reads.
            before, after: the op, one of the two, as `replace` takes it.
        """
        from ..transform.edit import insert

        return insert(self, builder, before=before, after=after)

    def fold_constants(self, scope: Scope | None = None) -> EditReport:
        """Compute now what depends only on constants and, if a `scope` is given, on its persistable values.

        Small results become ops that hold them, others persistable variables of the scope. For inference only: with a scope,
        parameters count as constants, so a program with gradient ops is refused. Ops that draw random numbers, own blocks or
        write persistable variables stay.
        """
        from ..transform.folding import fold_constants

        return fold_constants(self, scope)

    def fold_batch_norm(self, scope: Scope | None = None) -> EditReport:
        """Fold each batch_norm in test mode into the convolution or product before it, by new weights and a bias.

        ``W' = W * s`` and ``b' = (b - Mean) * s + Bias`` for each channel, where ``s = Scale / sqrt(Variance + epsilon)``.
        The new weights are new variables of the scope (the global one by default); the old ones stay there. The report
        notes each batch_norm that stays, and why.
        """
        from ..transform.folding import fold_batch_norm

        return fold_batch_norm(self, scope)

    def make_trainable(self, pattern: str | Iterable[str] | None = None, scope: Scope | None = None) -> EditReport:
        """Make an inference program trainable: after it, append a loss and call `minimize`.

        Ops leave test mode; a batch_norm whose scale and bias are not trained keeps its statistics. ``feed`` and ``fetch`` ops
        are removed. Biases, scales and statistics that an exporter merged, since their values were equal, become variables of
        their own, except where the layers around them share their matrices, too.

        Args:
            pattern: weights (persistable, floating, read and never written) whose names match it, such as ``"fc_*"``, or one of
                several, become trainable parameters; the others become parameters that are not trained. Without a pattern, these
                are the weights that were trained, if the model's files say which (``.pdiparams.info`` does), otherwise all. What
                the files call a buffer (a table of positions, say) is trained only where a pattern is its exact name.
            scope: has the values of the weights; the current one if None.

        Raises:
            ProgramError: no weight matches, the program is one for training already, or merged statistics have no value.
        """
        from ..transform.edit import make_trainable

        return make_trainable(self, pattern, scope)

    def shard(self, pattern: str, axes: Sequence[str | None] | str | None) -> list[str]:
        """Say how variables are split where the program runs on a mesh of devices; clones and pruned programs say the same.

        Results do not depend on it: it decides where memory and work are. Each device holds all of a variable without a
        sharding, but feeds are split over the axis ``data``. XLA decides about the values between. Program files do not keep it.

        Args:
            pattern: the name of a variable that outlives a run or is fed, or of several: ``*``, ``?`` and ``[...]`` mean the same
                as in file names, and leave out variables with fewer dimensions than there are axes. Optimizer state is there
                after `minimize`.
            axes: for each dimension, the axis of the mesh over which it is split, or None; one name is the axis of the first
                dimension. None removes the sharding.

        Returns:
            The names of the variables.

        Raises:
            NameNotFoundError: no variable matches.
            ProgramError: there are more axes than dimensions, or one is named twice.

        >>> import fluid
        >>> program = fluid.Program()
        >>> with fluid.program_guard(program), fluid.unique_name.guard():
        ...     table = fluid.layers.create_parameter([1000, 64], "float32", name="table")
        >>> program.shard("tab*", ["model", None])
        ['table']
        >>> table.sharding
        ('model', None)
        """
        from ..parallel.annotations import shard

        return shard(self, pattern, axes)

    def unsupported_ops(self, allow: Iterable[str] = ()) -> list[UnsupportedOp]:
        """The types of op that cannot run here, or may not because they touch files or run code, with count and first position.

        `allow` names types of the second kind that may run.
        """
        from ..executor.stepwise.unsupported import unsupported_ops

        return unsupported_ops(self, allow)

    def __str__(self) -> str:
        return program_to_screen(self)

    def __repr__(self) -> str:
        ops = sum(len(block.ops) for block in self.blocks)
        return f"<Program of {len(self.blocks)} blocks, {ops} ops, {len(self.all_parameters())} parameters>"


def _clone_op(op: Operator, block: Block, blocks: Sequence[Block]) -> Operator:
    def move(value: Any) -> Any:
        if isinstance(value, Block):
            return blocks[value.idx]
        if isinstance(value, list):
            return [move(item) for item in value]
        return value

    twin = Operator(
        block,
        op.type,
        {slot: list(names) for slot, names in op.inputs.items()},
        {slot: list(names) for slot, names in op.outputs.items()},
        {name: move(value) for name, value in op.attrs.items()},
        op.frames,
    )
    twin.wire, twin.origin = op.wire, op.origin
    return twin


# ------------------------------------------------------------------------------------------------- default programs
_main = Program()
_startup = Program()


class _Defaults(threading.local):
    """The default programs of a thread; all threads share them until one enters `program_guard`."""

    def __init__(self) -> None:
        self.main = _main
        self.startup = _startup
        self.scope: _NameScope | None = None
        self.device = ""


_defaults = _Defaults()


def default_main_program() -> Program:
    """The program that layers append to.

    >>> x = fluid.data("x", [None, 2])
    >>> x.block.program is fluid.default_main_program()
    True
    """
    return _defaults.main


def default_startup_program() -> Program:
    """The program that initializes parameters.

    >>> w = layers.create_parameter([2], "float32")
    >>> fluid.default_startup_program().global_block().has_var(w.name)
    True
    """
    return _defaults.startup


def switch_main_program(program: Program) -> Program:
    """From now on, layers of this thread append to `program`; returns the program that they appended to until now.

    >>> program = fluid.Program()
    >>> former = fluid.framework.switch_main_program(program)
    >>> fluid.framework.switch_main_program(former) is program
    True
    """
    old, _defaults.main = _defaults.main, program
    return old


def switch_startup_program(program: Program) -> Program:
    """From now on, `program` initializes what layers of this thread create; returns the one until now.

    >>> program = fluid.Program()
    >>> former = fluid.framework.switch_startup_program(program)
    >>> fluid.framework.switch_startup_program(former) is program
    True
    """
    old, _defaults.startup = _defaults.startup, program
    return old


def static_defaults() -> tuple[Program, Program]:
    """The main and startup program that layers append to outside all guards."""
    return _main, _startup


@contextlib.contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Inside the ``with``, layers append to these programs.

    Args:
        main_program: the default main program there.
        startup_program: the default startup program; None for the one that is.

    Raises:
        ProgramError: an argument is no program.

    >>> main = fluid.Program()
    >>> with fluid.program_guard(main):
    ...     x = fluid.data("x", [None, 2])
    >>> x.block.program is main
    True
    """
    for program in (main_program, startup_program):
        if program is not None and not isinstance(program, Program):
            raise ProgramError(f"program_guard takes a Program, not {type(program).__name__}")
    old = _defaults.main, _defaults.startup
    is_from_file = main_program is not None and main_program.allowed_ops is not None
    previous_names = unique_name.avoid(unique_name.TakenNames(main_program) if is_from_file else None)
    _defaults.main = main_program
    if startup_program is not None:
        _defaults.startup = startup_program
    try:
        yield
    finally:
        unique_name.avoid(previous_names)
        _defaults.main, _defaults.startup = old


class _NameScope:
    """One ``with name_scope(prefix)``. A prefix that a program uses again is numbered."""

    __slots__ = ("_paths", "parent", "prefix")

    def __init__(self, prefix: str, parent: _NameScope | None) -> None:
        self.prefix, self.parent = prefix, parent
        self._paths: weakref.WeakKeyDictionary[Program, str] = weakref.WeakKeyDictionary()

    def path(self, program: Program) -> str:
        """The value of ``op_namescope`` for ops of a program, such as ``/encoder/attention_1/``."""
        path = self._paths.get(program)
        if path is None:
            base = (self.parent.path(program) if self.parent is not None else "/") + self.prefix
            number = program._scopes[base]
            program._scopes[base] += 1
            path = self._paths[program] = f"{base}_{number}/" if number else f"{base}/"
        return path


@contextlib.contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Ops made inside the ``with`` have a prefix in their attribute ``op_namescope``; names of variables do not change.

    Args:
        prefix: the prefix. Within the same outer scopes, one that a program uses again is numbered, as in Fluid 1.6: ``s1``,
            ``s1_1``, ``s1_2``.

    Raises:
        ProgramError: the prefix is no name.

    >>> with fluid.name_scope("encoder"):
    ...     y = layers.relu(fluid.data("x", [None, 2]))
    >>> y.op.attr("op_namescope")
    '/encoder/'
    """
    if not isinstance(prefix, str) or not prefix:
        raise ProgramError(f"name_scope: the prefix should be a name, not {prefix!r}")
    outside = _defaults.scope
    _defaults.scope = _NameScope(prefix, outside)
    try:
        yield
    finally:
        _defaults.scope = outside


@contextlib.contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Ops made inside the ``with`` have this device in their attribute ``op_device``, for files that Paddle runs.

    Runs here do not read it: all ops of a program run at the executor's place.

    Args:
        device: ``"cpu"``, ``"gpu"``, ``"gpu:0"`` and so on; None for no device.

    Raises:
        ProgramError: `device` is no device.

    >>> with fluid.device_guard("cpu"):
    ...     y = layers.relu(fluid.data("x", [None, 2]))
    >>> y.op.attr("op_device")
    'cpu'
    """
    if device is not None and not (isinstance(device, str) and re.fullmatch(r"cpu|gpu(:\d+)?", device)):
        raise ProgramError(f"device_guard: the device should be 'cpu', 'gpu' or such as 'gpu:0', not {device!r}")
    outside = _defaults.device
    _defaults.device = device or ""
    try:
        yield
    finally:
        _defaults.device = outside


@contextlib.contextmanager
def _updating(program: Program, param: Variable, grad: Variable) -> Iterator[Block]:
    block = program.current_block()
    start = len(block.ops)
    with program.role_guard(OpRole.OPTIMIZE):
        yield block
    for op in block.ops[start:]:
        op.attrs[OpRole.VARS] = [param.name, grad.name]


def in_dygraph_mode() -> bool:
    """Whether layers without tensor arguments run at once: inside `fluid.dygraph.guard`. Layers on tensors always do.

    >>> with dygraph.guard():
    ...     fluid.in_dygraph_mode()
    True
    """
    return default_main_program().eager
