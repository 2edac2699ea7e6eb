"""A program as nodes and values, in the form that the page needs: numbers and short texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ProgramError
from ..ir.program import Block, Operator, OpRole, Parameter, Program, Variable
from ..ir.regions import region_of
from ..ir.versions import BlockVersions
from ..opdef.registry import EMPTY
from ..values.types import VarType
from .pairs import find_pairs, has_role

__all__ = ["BACKWARD", "FORWARD", "KINDS", "UPDATE", "Graph", "Node", "Value", "show"]

FORWARD, BACKWARD, UPDATE = range(3)
"""The parts of a program, which the page draws side by side."""
KINDS = ("forward", "backward", "optimizer")

_ROLES = {OpRole.RPC: "rpc", OpRole.DIST: "dist", OpRole.LR_SCHED: "learning rate", OpRole.LOSS: "loss"}
_CALLSTACK = "op_callstack"
_ITEMS = 32
_LETTERS = 1000


def _carried(op: Operator) -> dict[str, str]:
    """The variables that an op's block carries from one run to the next; empty if the op, from a file, is malformed."""
    try:
        region = region_of(op)
    except ProgramError:
        return {}
    return region.carried if region is not None else {}


@dataclass
class Node:
    """An op or, if `op` is None, an input of a block: data that is fed, or a value of the block around it.

    Attributes:
        reads, writes: pairs of a slot and the index of a value, or -1 for an empty name.
        updates: values that the op reads because it updates an output.
        made_from: index of the node whose gradient this is, or -1.
    """

    block: int
    kind: int
    op: Operator | None = None
    index: int = -1
    reads: list[tuple[str, int]] = field(default_factory=list)
    writes: list[tuple[str, int]] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    made_from: int = -1

    def all_reads(self) -> list[int]:
        return [value for _, value in self.reads if value >= 0] + self.updates

    def all_writes(self) -> list[int]:
        return [value for _, value in self.writes if value >= 0]


@dataclass
class Value:
    """The value of a name in a block, from the op that writes it up to the next op that does.

    Attributes:
        version: counts the writes; 0 is the value at the start of the block.
        node: index of the node that makes the value, or -1.
        source: for version 0, the index of the same value outside of the block, or -1.
    """

    name: str
    version: int
    block: int
    var: Variable | None
    node: int = -1
    source: int = -1


class Graph:
    """Nodes and values of all the blocks of a program.

    Attributes:
        owner: for each block, the index of the (first) node that owns it, or -1.
        links: pairs of values: into blocks, out of them, and from one iteration of a loop to the next.
    """

    def __init__(self, program: Program) -> None:
        self.blocks: list[Block] = list(program.blocks)
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.links: list[tuple[int, int]] = []
        self._numbers: dict[tuple[int, str, int], int] = {}
        self._versions = [BlockVersions(block) for block in self.blocks]
        self._first: list[int] = []
        self._place = {block: number for number, block in enumerate(self.blocks)}
        pairs = find_pairs(self.blocks)
        for number, block in enumerate(self.blocks):
            self._first.append(len(self.nodes))
            for index, op in enumerate(block.ops):
                self.nodes.append(self._node(number, index, op))
        numbers = {node.op: number for number, node in enumerate(self.nodes)}
        for op, forward in pairs.items():
            node = self.nodes[numbers[op]]
            node.made_from = numbers[forward]
            if node.kind == FORWARD and op.type.endswith("_grad"):  # a file without roles
                node.kind = BACKWARD
        self.owner = self._owners()
        self._join()
        self._add_inputs()

    def _node(self, block: int, index: int, op: Operator) -> Node:
        versions = self._versions[block]
        kind = FORWARD
        if has_role(op, OpRole.OPTIMIZE | OpRole.LR_SCHED):
            kind = UPDATE
        elif has_role(op, OpRole.BACKWARD):
            kind = BACKWARD
        node = Node(block, kind, op, index)
        for slots, pairs in ((versions.reads[index], node.reads), (versions.writes[index], node.writes)):
            for slot, values in slots.items():
                pairs.extend((slot, -1 if value is None else self._value(block, *value)) for value in values)
        node.updates = [self._value(block, *value) for value in versions.updates[index].values() if value[0] != EMPTY]
        for value in node.all_writes():
            self.values[value].node = len(self.nodes)
        return node

    def _value(self, block: int, name: str, version: int) -> int:
        key = block, name, version
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(Value(name, version, block, self.blocks[block].find_var(name)))
        return self._numbers[key]

    def _owners(self) -> list[int]:
        owner = [-1] * len(self.blocks)
        for number, node in enumerate(self.nodes):
            assert node.op is not None
            for sub in node.op.sub_blocks:
                place = self._place.get(sub)
                if place and owner[place] < 0 and not self._is_around(place, node.block, owner):
                    owner[place] = number
        return owner

    def _is_around(self, block: int, inner: int, owner: Sequence[int]) -> bool:
        """Whether `inner` is `block` or nested in it; in files, blocks may own each other."""
        while inner != block and owner[inner] >= 0:
            inner = self.nodes[owner[inner]].block
        return inner == block

    def body_of(self, block: int) -> int:
        """For a block of gradients whose owner is the gradient op of another block's owner: that other block; else -1."""
        forward = self.blocks[block].forward
        place = self._place.get(forward, -1) if forward is not None else -1
        if place < 0 or self.owner[place] < 0 or self.owner[block] < 0:
            return -1
        return place if self.nodes[self.owner[block]].made_from == self.owner[place] else -1

    def _join(self) -> None:
        """Link the inputs of blocks to the values outside, and what blocks write to the outputs of their owners."""
        for block, versions in enumerate(self._versions):
            owner = self.owner[block]
            if owner < 0:
                continue
            node = self.nodes[owner]
            inside, body = self.blocks[block].vars, self.body_of(block)
            outside = self._versions[node.block]
            for name in sorted(versions.read_first):
                if name in inside:
                    continue
                if body >= 0 and name in self._versions[body].last and name in self.blocks[body].vars:
                    source = self._value(body, *self._versions[body].current(name))
                else:
                    source = self._value(node.block, *outside.before(name, node.index))
                initial = self._value(block, name, 0)
                self.values[initial].source = source
                self.links.append((source, initial))
            assert node.op is not None
            after = {self.values[value].name: value for value in node.all_writes()}
            carried = _carried(node.op)
            for name, version in versions.last.items():
                if name in after and name not in inside:
                    last = self._value(block, name, version)
                    self.links.append((last, after[name]))
                    if name in carried and name in versions.read_first:
                        self.links.append((last, self._value(block, name, 0)))

    def _add_inputs(self) -> None:
        """Add nodes for the inputs of forward ops, except persistable variables, which are shown at the ops that read them."""
        for index in sorted({index for node in self.nodes if node.kind == FORWARD for index in node.all_reads()}):
            value = self.values[index]
            if value.version == 0 and value.var is not None and not value.var.persistable:
                if value.source >= 0 and self.values[value.source].block == self.body_of(value.block):
                    continue
                value.node = len(self.nodes)
                self.nodes.append(Node(value.block, FORWARD, writes=[("", index)]))

    # ------------------------------------------------------------------------------------------------------ as JSON
    def to_json(self) -> dict[str, Any]:
        """The graph as plain lists and dicts; texts and tuples of texts are stored once, under ``once``."""
        places: dict[Any, int] = {}

        def once(item: Any) -> int:
            """The index of a text, or of a tuple of texts, in the list ``once``."""
            return places.setdefault(item, len(places))

        numbers: dict[tuple[str, int], int] = {}
        variables: list[dict[str, Any]] = []
        values = []
        for value in self.values:
            key = value.name, id(value.var)
            if key not in numbers:
                numbers[key] = len(variables)
                variables.append(_variable(value))
            values.append([numbers[key], value.version, value.block, value.node, value.source])
        return {
            "blocks": [{"parent": block.parent_idx, "forward": block.forward_block_idx} for block in self.blocks],
            "owner": self.owner,
            "nodes": [self._node_json(node, once) for node in self.nodes],  # fills `places`
            "values": values,
            "vars": variables,
            "links": self.links,
            "loss": self._loss(),
            "once": list(places),
        }

    def _node_json(self, node: Node, once: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "block": node.block,
            "kind": node.kind,
            "reads": [[once(slot), value] for slot, value in node.reads],
            "writes": [[once(slot), value] for slot, value in node.writes],
        }
        if node.updates:
            fields["updates"] = node.updates
        if node.op is not None:
            op = node.op
            fields |= {"type": once(_cut(op.type)), "index": node.index, "attrs": [once(attr) for attr in _attrs(op)]}
            fields["frames"] = [once(frame) for frame in _frames(op)]
            subs = [self._place[sub] for sub in op.sub_blocks if sub in self._place]
            if subs:
                fields["subs"] = subs
            if node.made_from >= 0:
                fields["from"] = node.made_from
            roles = [name for bit, name in _ROLES.items() if has_role(op, bit)]
            if roles:
                fields["roles"] = once(", ".join(roles))
            if op.definition is None:
                fields["unknown"] = 1
        return fields

    def _loss(self) -> int:
        """The value that paths lead to initially: the loss, else the first fetched value, else the last forward output."""
        marked = [node for node in self.nodes if node.op is not None and has_role(node.op, OpRole.LOSS) and node.kind == FORWARD]
        if marked:
            return next(iter(marked[-1].all_writes()), -1)
        mains = [node for node in self.nodes if node.block == 0 and node.op is not None and node.kind == FORWARD]
        fetches = [node for node in mains if node.op is not None and node.op.type == "fetch"]
        if fetches:
            return next(iter(fetches[0].all_reads()), -1)
        return next((value for node in reversed(mains) for value in node.all_writes()), -1)


def _cut(text: str, letters: int = _LETTERS) -> str:
    return text if len(text) <= letters else f"{text[:letters]}... {len(text) - letters} more letters"


def show(value: Any) -> str:
    """The value of an attribute as a short text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Block):
        return f"block {value.idx}"
    if isinstance(value, (list, tuple)):
        more = [f"... {len(value) - _ITEMS} more"] if len(value) > _ITEMS else []
        return f"[{', '.join([*map(show, value[:_ITEMS]), *more])}]"
    return _cut(repr(value))


def _attrs(op: Operator) -> list[tuple[str, str, int]]:
    """For each attribute: its name, its value, and whether it has the default."""
    definition = op.definition
    triples = []
    for name, value in {**(definition.defaults({}) if definition is not None else {}), **op.attrs}.items():
        if name == _CALLSTACK:
            continue
        attr = definition.attrs.get(name) if definition is not None else None
        usual = name.startswith("op_") or (attr is not None and not attr.required and show(attr.default) == show(value))
        triples.append((_cut(name), show(value), int(usual)))
    return triples


def _frames(op: Operator) -> list[str]:
    """The lines of the user's code that made an op, innermost first."""
    if op.frames:
        return [f"{code.co_filename}:{line} in {code.co_name}" for code, line in op.frames]
    stack = op.attrs.get(_CALLSTACK)
    if not isinstance(stack, list):
        return []
    return [_cut(str(line).strip()) for line in stack[-2 * _ITEMS :] if str(line).strip()]


def _variable(value: Value) -> dict[str, Any]:
    var = value.var
    if var is None:
        return {"name": _cut(value.name), "spec": "not declared", "flags": []}
    spec = f"{var.dtype.text if var.has_dtype else '?'}{list(var.shape) if var.has_shape else '[?]'}"
    kind = "" if var.type is VarType.LOD_TENSOR else var.type.name.lower().replace("_", " ") + " "
    flags = [
        ("parameter", isinstance(var, Parameter)),
        ("not trainable", isinstance(var, Parameter) and not var.trainable),
        ("persistable", var.persistable and not isinstance(var, Parameter)),
        ("data", var.is_data),
        (f"lod_level {var.lod_level}", var.lod_level),
        ("stop_gradient", var.stop_gradient),
    ]
    text = kind + (spec if var.has_dtype or var.has_shape else "")
    return {"name": _cut(value.name), "spec": _cut(text.strip(), 200), "flags": [flag for flag, holds in flags if holds]}
