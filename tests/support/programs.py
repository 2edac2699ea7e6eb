"""Random programs, and when two programs are equal."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from fluid.ir.program import Block, Operator, Parameter, Program, Variable
from fluid.values.types import VarType

NAMES = st.one_of(
    st.sampled_from(
        ["x", "fc_0.w_0", "a b", "--", "block", "param", "program", 'q"uo\\te', "}", "名", "x@GRAD", "1e5", "-1", "\u2028", "a=b"]
    ),
    st.text(min_size=1, max_size=6),
).filter(lambda name: not any("\ud800" <= char <= "\udfff" for char in name))
DTYPES = st.sampled_from([VarType.FP32, VarType.INT64, VarType.BOOL, VarType.BF16, VarType.UINT8])
KINDS = st.sampled_from(
    [VarType.LOD_TENSOR, VarType.LOD_TENSOR, VarType.LOD_TENSOR_ARRAY, VarType.SELECTED_ROWS, VarType.STEP_SCOPES]
)
SHAPES = st.lists(st.integers(-1, 2**40), max_size=4)
ROLES = st.sampled_from([None, 0, 1, 2, 16, 256, 257, 1024])
INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=32).map(lambda value: float(str(np.float32(value))))


def values():
    """Values of attributes."""
    scalars = [
        st.booleans(),
        INTS,
        FLOATS,
        st.text(max_size=8).filter(lambda text: not set(text) & set(map(chr, range(0xD800, 0xE000)))),
    ]
    return st.one_of(*scalars, *(st.lists(scalar, max_size=4) for scalar in scalars))


@st.composite
def programs(draw, as_files_have_them=False):
    """Programs of several blocks, well formed as far as the tree of blocks goes.

    `as_files_have_them` leaves out what the wire format has no place for.
    """
    program = Program()
    count = draw(st.integers(1, 4))
    blocks = [program.global_block()]
    for index in range(1, count):
        parent = blocks[draw(st.integers(0, index - 1))]
        forward = draw(st.sampled_from([None, *blocks]))
        blocks.append(Block(program, index, parent, forward))
    program.blocks = blocks
    for block in blocks:
        for name in draw(st.lists(NAMES, max_size=4, unique=True)):
            dtype = draw(st.none() | DTYPES)
            shape = None if dtype is None and as_files_have_them else draw(SHAPES if as_files_have_them else st.none() | SHAPES)
            known = {
                "name": name,
                "lod_level": draw(st.integers(0, 2)) if dtype is not None else 0,
                "need_check_feed": draw(st.booleans()),
            }
            known["is_data"] = known["need_check_feed"] if as_files_have_them else draw(st.booleans())
            if draw(st.booleans()):
                trainable = draw(st.booleans())
                frozen = not trainable if as_files_have_them else draw(st.booleans())
                kept = draw(st.booleans())
                var = Parameter(block, shape, dtype, trainable=trainable, stop_gradient=frozen, persistable=kept, **known)
            else:
                kind = draw(KINDS)
                known["lod_level"] = 0 if kind is VarType.SELECTED_ROWS else known["lod_level"]
                flags = {"stop_gradient": draw(st.booleans()), "persistable": draw(st.booleans())}
                var = Variable(block, kind, shape=shape, dtype=dtype, **known, **flags)
            block.vars[name] = var
        slots = st.dictionaries(
            NAMES | st.just("Out"), st.lists(st.sampled_from(["@EMPTY@", *block.vars]) | NAMES, max_size=3), max_size=3
        )
        for _ in range(draw(st.integers(0, 3))):
            op = Operator(
                block, draw(NAMES | st.just("tanh")), draw(slots), draw(slots), draw(st.dictionaries(NAMES, values(), max_size=3))
            )
            role = draw(ROLES)
            if role is not None:
                op.attrs["op_role"] = role
            block.ops.append(op)
    for sub in blocks[1:]:
        owner = draw(st.sampled_from([None, *sub.parent.ops]))
        if owner is not None:
            owner.attrs[f"sub_block_{sub.idx}"] = sub
    blocks[0].vars["a parameter"] = Parameter(blocks[0], [1], "float32", name="a parameter")
    return program


def plain(value):
    """An attribute in a form that compares types too, and NaN with itself."""
    if isinstance(value, Block):
        return "block", value.idx
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return repr(value)


def content(program, without=()):
    """All that a program says, as nested tuples and dictionaries."""

    def var_content(var):
        found = {
            "class": type(var).__name__,
            "type": var.type,
            "shape": var._shape,
            "dtype": var._dtype,
            "trainable": getattr(var, "trainable", None),
        }
        for name in ("lod_level", "persistable", "stop_gradient", "is_data", "need_check_feed"):
            found[name] = getattr(var, name)
        return {key: value for key, value in found.items() if key not in without}

    return [
        {
            "idx": (block.idx, block.parent_idx, block.forward_block_idx),
            "vars": {name: var_content(var) for name, var in block.vars.items()},
            "ops": [
                (op.type, list(op.inputs.items()), list(op.outputs.items()), {name: plain(v) for name, v in op.attrs.items()})
                for op in block.ops
            ],
        }
        for block in program.blocks
    ]
