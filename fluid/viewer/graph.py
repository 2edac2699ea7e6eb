"""A program, or two, as nodes and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import ProgramError
from ..ir.program import Block, Operator, OpRole, Program, Variable
from ..ir.regions import region_of
from ..ir.versions import BlockVersions
from ..opdef.registry import EMPTY
from .pairs import find_pairs, has_role

FORWARD, BACKWARD, UPDATE = range(3)
"""The parts of a program, which the page draws side by side."""
KINDS = ("forward", "backward", "optimizer")

SAME, CHANGED, ALONE = range(3)
"""How a node compares with those of another program."""


def _carried(op: Operator) -> dict[str, str]:
    """The variables that an op's block carries from one run to the next; empty if the op, from a file, is malformed."""
    try:
        region = region_of(op)
    except ProgramError:
        return {}
    return region.carried if region is not None else {}


@dataclass
class Area:
    """The contents of one box: a block, or a part's nodes of one block and one kind.

    Attributes:
        owner: index of the (first) node in whose box this is drawn, or -1.
        first: index of the area whose rows it shares.
        inputs: value made elsewhere -> the node that stands for it here.
    """

    owner: int
    first: int
    inputs: dict[int, int] = field(default_factory=dict)


@dataclass
class ViewNode:
    """An op; a box of several ops, if it has a name; or an input: fed data, or a value from outside a block or a box.

    Attributes:
        area: index of the area where it is drawn; areas of blocks come first.
        reads, writes: pairs of a slot and the index of a value, or -1 for an empty name.
        updates: values that the op reads because it updates an output.
        made_from: index of the node whose gradient this is, or -1.
        name: of the ops in a box.
        order: sorts the nodes of an area.
        alike: for a box, the index of the first one in a row of boxes of the same structure, or -1.
        twin: index of the node of the other program that it is compared with, or -1.
        difference: how it compares: 0 is not at all, or the same.
    """

    block: int
    kind: int
    op: Operator | None = None
    index: int = -1
    area: int = -1
    name: str = ""
    order: int = -1
    alike: int = -1
    twin: int = -1
    difference: int = SAME
    reads: list[tuple[str, int]] = field(default_factory=list)
    writes: list[tuple[str, int]] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    made_from: int = -1

    def __post_init__(self) -> None:
        if self.area < 0:
            self.area = self.block

    def all_reads(self) -> list[int]:
        return [value for _, value in self.reads if value >= 0] + self.updates

    def all_writes(self) -> list[int]:
        return [value for _, value in self.writes if value >= 0]


@dataclass
class ViewValue:
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


class ViewGraph:
    """Nodes and values of all the blocks of programs.

    Attributes:
        blocks: of all programs, one after the other.
        areas: where nodes are drawn; areas of blocks come first.
        place: block -> its number.
        links: pairs of values: into blocks, out of them, and from one iteration of a loop to the next.
    """

    def __init__(self, *programs: Program) -> None:
        self.programs = programs
        self.blocks: list[Block] = [block for program in programs for block in program.blocks]
        self.nodes: list[ViewNode] = []
        self.values: list[ViewValue] = []
        self.links: list[tuple[int, int]] = []
        self._numbers: dict[tuple[int, str, int], int] = {}
        self._versions = [BlockVersions(block) for block in self.blocks]
        self._first: list[int] = []
        self.place = {block: number for number, block in enumerate(self.blocks)}
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
        self.areas = [Area(owner, number) for number, owner in enumerate(self._owners())]
        for number, area in enumerate(self.areas):
            body = self.body_of(number)
            area.first = self.areas[body].first if 0 <= body < number else number
        self._join()
        self._add_inputs()

    def _node(self, block: int, index: int, op: Operator) -> ViewNode:
        versions = self._versions[block]
        kind = FORWARD
        if has_role(op, OpRole.OPTIMIZE | OpRole.LR_SCHED):
            kind = UPDATE
        elif has_role(op, OpRole.BACKWARD):
            kind = BACKWARD
        node = ViewNode(block, kind, op, index, order=len(self.nodes))
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
            self.values.append(ViewValue(name, version, block, self.blocks[block].find_var(name)))
        return self._numbers[key]

    def _owners(self) -> list[int]:
        owner = [-1] * len(self.blocks)
        for number, node in enumerate(self.nodes):
            assert node.op is not None
            for sub in node.op.sub_blocks:
                place = self.place.get(sub)
                if place and owner[place] < 0 and not self._is_around(place, node.block, owner):
                    owner[place] = number
        return owner

    def _is_around(self, block: int, inner: int, owner: Sequence[int]) -> bool:
        """Whether `inner` is `block` or nested in it; in files, blocks may own each other."""
        while inner != block and owner[inner] >= 0:
            inner = self.nodes[owner[inner]].block
        return inner == block

    def body_of(self, block: int) -> int:
        """The forward block of a gradient block, if its owner is the gradient op of the forward block's owner; else -1."""
        forward = self.blocks[block].forward
        place = self.place.get(forward, -1) if forward is not None else -1
        owner, forward_owner = self.areas[block].owner, self.areas[place].owner if place >= 0 else -1
        if owner < 0 or forward_owner < 0:
            return -1
        return place if self.nodes[owner].made_from == forward_owner else -1

    def _join(self) -> None:
        """Link the inputs of blocks to outside values, and the values that blocks write to their owners' outputs."""
        for block, versions in enumerate(self._versions):
            owner = self.areas[block].owner
            if owner < 0:
                continue
            node = self.nodes[owner]
            local_vars, body = self.blocks[block].vars, self.body_of(block)
            outside = self._versions[node.block]
            for name in sorted(versions.read_first):
                if name in local_vars:
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
                if name in after and name not in local_vars:
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
                self.nodes.append(ViewNode(value.block, FORWARD, writes=[("", index)]))

    def loss(self) -> int:
        """The value that paths lead to initially: the loss, else the first fetched value, else the last forward output."""
        marked = [node for node in self.nodes if node.op is not None and has_role(node.op, OpRole.LOSS) and node.kind == FORWARD]
        if marked:
            return next(iter(marked[-1].all_writes()), -1)
        mains = [node for node in self.nodes if node.block == 0 and node.op is not None and node.kind == FORWARD]
        fetches = [node for node in mains if node.op is not None and node.op.type == "fetch"]
        if fetches:
            return next(iter(fetches[0].all_reads()), -1)
        return next((value for node in reversed(mains) for value in node.all_writes()), -1)
