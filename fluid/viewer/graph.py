"""A program as nodes and values: numbers and short texts, as the page needs them."""

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
"""Parts of a program, which the page draws side by side."""
KINDS = ("forward", "backward", "optimizer")

_ROLES = {OpRole.RPC: "rpc", OpRole.DIST: "dist", OpRole.LR_SCHED: "learning rate", OpRole.LOSS: "loss"}
_CALLSTACK = "op_callstack"
_ITEMS = 32
_LETTERS = 1000


def _carried(op: Operator) -> dict[str, str]:
    """What the runs of an op's block hand to each other; nothing where a file holds an op that does not fit together."""
    try:
        region = region_of(op)
    except ProgramError:
        return {}
    return region.carried if region is not None else {}


@dataclass
class Node:
    """An op, or (`op` is None) what a block finds from outside: data that is fed, a value of the block around it.

    Attributes:
        reads, writes: (slot, number of a value or -1 where the place is empty).
        updates: values that the op reads because it updates an output.
        made_from: number of the op whose gradient this is, or -1.
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
    """What a name holds in a block from one op that writes it to the next.

    Attributes:
        version: 0 for what the block finds.
        node: the node that makes it, or -1.
        source: for what a block finds, the value outside that this is, or -1.
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
        owner: block -> number of the node that owns it, -1 for none; the first one counts.
        links: (value, value) pairs by which values get into blocks and out, and from one trip of a loop to the next.
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
        for slots, found in ((versions.reads[index], node.reads), (versions.writes[index], node.writes)):
            for slot, values in slots.items():
                found.extend((slot, -1 if value is None else self._value(block, *value)) for value in values)
        node.updates = [self._value(block, *value) for value in versions.updates[index].values() if value[0] != EMPTY]
        for value in node.all_writes():
            self.values[value].node = len(self.nodes)
        return node

    def _value(self, block: int, name: str, version: int) -> int:
        key = block, name, version
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(Value(name, version, block, self.blocks[block].find_var(name)))
        return found

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
        """Whether `inner` lies in `block`, or is it: files may let blocks own each other."""
        while inner != block and owner[inner] >= 0:
            inner = self.nodes[owner[inner]].block
        return inner == block

    def body_of(self, block: int) -> int:
        """For a block of gradients, the block that these are of if their owners are gradient op and op; or -1."""
        forward = self.blocks[block].forward
        place = self._place.get(forward, -1) if forward is not None else -1
        if place < 0 or self.owner[place] < 0 or self.owner[block] < 0:
            return -1
        return place if self.nodes[self.owner[block]].made_from == self.owner[place] else -1

    def _join(self) -> None:
        """Find where values that a block finds come from, and where those that it leaves go."""
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
                found = self._value(block, name, 0)
                self.values[found].source = source
                self.links.append((source, found))
            assert node.op is not None
            after = {self.values[value].name: value for value in node.all_writes()}
            carried = _carried(node.op)
            for name, version in versions.last.items():
                if name in after and name not in inside:
                    left = self._value(block, name, version)
                    self.links.append((left, after[name]))
                    if name in carried and name in versions.read_first:
                        self.links.append((left, self._value(block, name, 0)))

    def _add_inputs(self) -> None:
        """Nodes for what forward ops find that is not kept from run to run: that is said where it is read."""
        known = {value for node in self.nodes if node.kind == FORWARD for value in node.all_reads()}
        for value in sorted(known):
            found = self.values[value]
            if found.version == 0 and found.var is not None and not found.var.persistable:
                if found.source >= 0 and self.values[found.source].block == self.body_of(found.block):
                    continue
                found.node = len(self.nodes)
                self.nodes.append(Node(found.block, FORWARD, writes=[("", value)]))

    # ------------------------------------------------------------------------------------------------------ as JSON
    def to_json(self) -> dict[str, Any]:
        """Numbers and texts; lists that repeat are kept once."""
        texts: dict[Any, int] = {}
        stored: list[Any] = []

        def once(item: Any) -> int:
            """The place of a text, or a tuple of such, in the list of what is kept once."""
            found = texts.get(item)
            if found is None:
                found = texts[item] = len(stored)
                stored.append(item)
            return found

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
            "nodes": [self._node_json(node, once) for node in self.nodes],
            "values": values,
            "vars": variables,
            "links": self.links,
            "loss": self._loss(),
            "once": stored,
        }

    def _node_json(self, node: Node, once: Any) -> dict[str, Any]:
        found: dict[str, Any] = {
            "block": node.block,
            "kind": node.kind,
            "reads": [[once(slot), value] for slot, value in node.reads],
            "writes": [[once(slot), value] for slot, value in node.writes],
        }
        if node.updates:
            found["updates"] = node.updates
        if node.op is not None:
            op = node.op
            found |= {"type": once(_cut(op.type)), "index": node.index, "attrs": [once(attr) for attr in _attrs(op)]}
            found["frames"] = [once(frame) for frame in _frames(op)]
            subs = [self._place[sub] for sub in op.sub_blocks if sub in self._place]
            if subs:
                found["subs"] = subs
            if node.made_from >= 0:
                found["from"] = node.made_from
            roles = [name for bit, name in _ROLES.items() if has_role(op, bit)]
            if roles:
                found["roles"] = once(", ".join(roles))
            if op.definition is None:
                found["unknown"] = 1
        return found

    def _loss(self) -> int:
        """The value that paths lead to at first: the loss, what is fetched, or what the last forward op makes."""
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
    """An attribute's value, shortened."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Block):
        return f"block {value.idx}"
    if isinstance(value, (list, tuple)):
        more = [f"... {len(value) - _ITEMS} more"] if len(value) > _ITEMS else []
        return f"[{', '.join([*map(show, value[:_ITEMS]), *more])}]"
    return _cut(repr(value))


def _attrs(op: Operator) -> list[tuple[str, str, int]]:
    """(name, value, whether it is what the definition gives) of each attribute."""
    definition = op.definition
    found = []
    for name, value in {**(definition.defaults({}) if definition is not None else {}), **op.attrs}.items():
        if name == _CALLSTACK:
            continue
        known = definition.attrs.get(name) if definition is not None else None
        usual = name.startswith("op_") or (known is not None and not known.required and show(known.default) == show(value))
        found.append((_cut(name), show(value), int(usual)))
    return found


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
    shown = kind + (spec if var.has_dtype or var.has_shape else "")
    return {"name": _cut(value.name), "spec": _cut(shown.strip(), 200), "flags": [flag for flag, holds in flags if holds]}
