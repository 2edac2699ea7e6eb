"""Runs neighbouring regions block by block of images, if their intermediate values for all images exceed the caches.

After a convolution of many images, the first results are no longer in cache when the next region reads them. If all readers of
an intermediate value treat images independently, the regions run for one block of images after the other, and the value has room
for one block only. The block size depends on shapes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from fluid.ir.program import Operator
from fluid.ir.versions import Value
from fluid.values.spec import Spec

from .cores import shares_work_of_images
from .fusion import Group, breaks_of, source_of
from .graph import Constant, Convolved, GraphNode, Map, PackedFilter, PlanArray, Pooled, memory_shape, operands_of
from .instructions import NATIVE_PREFIX, KernelCall, NativeInstruction, Operand, Writer
from .regions import NativeRegion
from .target import Target


@dataclass(eq=False)
class ImageBlocks(NativeInstruction):
    """Regions that run for one block of images after the other.

    Attributes:
        regions: the regions of a block.
        images: images per block.
        count: number of blocks.
        steps: value with room for all images -> bytes of one block.
    """

    regions: list[NativeRegion]
    images: int
    count: int
    steps: dict[Value, int]

    def __post_init__(self) -> None:
        self.shares = {}
        self.ops: list[Operator] = list({id(op): op for region in self.regions for op in region.ops}.values())
        self.written = [value for region in self.regions for value in region.written]
        read = dict.fromkeys(value for region in self.regions for value in region.read)
        self.read = [value for value in read if value not in set(self.written)]
        self.layouts = {
            value: layout if value in self.steps else f"{layout}, a block"
            for region in self.regions
            for value, layout in region.layouts.items()
        }

    def describe(self) -> str:
        """The blocks, and one line per region."""
        images = f"{self.images} images" if self.images > 1 else "1 image"
        return "\n".join([f"{self.count} blocks of {images}:", *(f"  {region.describe()}" for region in self.regions)])

    @cached_property
    def calls(self) -> list[KernelCall]:  # type: ignore[override]
        """The calls of all regions, for one block of images after the other."""
        calls = [call for region in self.regions for call in region.calls]
        return [
            KernelCall(call.kernel, [self._moved(operand, block) for operand in call.operands], call.is_serial)
            for block in range(self.count)
            for call in calls
        ]

    def _moved(self, operand: Operand, block: int) -> Operand:
        """Move an operand to the start of a block."""
        value, offset = operand
        return operand if value is None or value not in self.steps else (value, offset + block * self.steps[value])

    @property
    def writers(self) -> dict[str, Writer]:  # type: ignore[override]
        return {kernel: writer for region in self.regions for kernel, writer in region.writers.items()}

    @property
    def workspace_bytes(self) -> int:  # type: ignore[override]
        return max(region.workspace_bytes for region in self.regions)


def regions_of(instructions: Sequence[Any]) -> Iterator[NativeRegion]:
    """All native regions of a plan, also those within `ImageBlocks`."""
    for instruction in instructions:
        if isinstance(instruction, ImageBlocks):
            yield from instruction.regions
        elif isinstance(instruction, NativeRegion):
            yield instruction


def in_blocks(instructions: Sequence[Any], specs: dict[Value, Spec], target: Target) -> list[Any]:
    """Replace neighbouring regions by `ImageBlocks` if that pays.

    Args:
        specs: the specs of values; updated for values that now have room for one block only.
        target: the processor that native code is for.
    """
    last_read = {value: place for place, instruction in enumerate(instructions) for value in instruction.read_within}
    results: list[Any] = []
    place = 0
    while place < len(instructions):
        run = _Run(instructions, place, last_read, specs, target)
        stretch = run.stretch()
        if stretch is None:
            end = max(place + 1, run.end)
            results += instructions[place:end]
        else:
            first, end = stretch
            results += instructions[place:first]
            results += [instruction for instruction in instructions[first:end] if instruction in run.before]
            results.append(run.blocks(first, end))
        place = end
    return results


class _Run:
    """The longest run of neighbouring regions, from a position on, that treat images independently.

    Attributes:
        members: position -> region.
        before: regions in between that read only the scope (they pack filters), so they may run before the members.
        end: the position of the first instruction that is neither.
    """

    def __init__(
        self,
        instructions: Sequence[Any],
        start: int,
        last_read: Mapping[Value, int],
        specs: dict[Value, Spec],
        target: Target,
    ) -> None:
        self.last_read, self.specs, self.target = last_read, specs, target
        self.members: dict[int, NativeRegion] = {}
        self.before: set[NativeRegion] = set()
        self.images = 0
        """The number of images."""
        self._write_position: dict[Value, int] = {}
        """Value that a member writes -> the member's position."""
        self.end = start
        while self.end < len(instructions) and isinstance(region := instructions[self.end], NativeRegion) and self._takes(region):
            self.end += 1

    def _takes(self, region: NativeRegion) -> bool:
        if self._is_member(region):
            self.members[self.end] = region
            self._write_position.update(dict.fromkeys(region.written, self.end))
            return True
        if not isinstance(region.group.core, PackedFilter):
            return False
        self.before.add(region)
        return self._write_position.keys().isdisjoint(region.read)

    def _is_member(self, region: NativeRegion) -> bool:
        """Whether a region computes each image only from images with the same number."""
        core = region.group.core
        if not isinstance(core, (Convolved, Pooled)) or core.shape[0] == 1 or core.shape[0] != (self.images or core.shape[0]):
            return False
        if isinstance(core, Convolved) and shares_work_of_images(core, self.target):
            return False
        self.images = core.shape[0]
        return all(self._is_of_images(region, node) for node in region.group.nodes)

    def _is_of_images(self, region: NativeRegion, node: GraphNode) -> bool:
        core = region.group.core
        assert core is not None
        if node is core:
            return self._are_images(core.source)  # type: ignore[attr-defined]
        is_alike = isinstance(node, Map) and node.shape == core.shape and node.within is None
        return is_alike and all(
            isinstance(operand, Constant) or self._are_images(operand) or self._is_one_for_all(region, operand)
            for operand in operands_of(node)
        )

    def _are_images(self, node: GraphNode) -> bool:
        return source_of(node) is node and node.ndim == 4 and node.shape[0] == self.images and node.within is None

    def _is_one_for_all(self, region: NativeRegion, node: GraphNode) -> bool:
        """Whether an operand is the same for all images and is not written by a member."""
        return (node.ndim < 4 or node.shape[0] == 1) and region.value_of.get(source_of(node)) not in self._write_position

    # -- blocks
    def stretch(self) -> tuple[int, int] | None:
        """The range of positions to run in blocks: start and end; None if it does not pay."""
        most = self.target.limits.image_block_bytes
        large = [value for value in self._inner(0, self.end) if self.specs[value].nbytes > most]
        if not large:
            return None
        return min(self._write_position[value] for value in large), max(self.last_read[value] for value in large) + 1

    def _inner(self, first: int, end: int) -> list[Value]:
        """The intermediate values that are written and read only between two positions."""
        return [
            value
            for value, place in self._write_position.items()
            if value[0].startswith(NATIVE_PREFIX) and first <= place < self.last_read.get(value, 0) < end
        ]

    def blocks(self, first: int, end: int) -> ImageBlocks:
        """The instruction that runs the members between two positions in blocks."""
        inner = self._inner(first, end)
        most = self.target.limits.image_block_bytes
        largest = max(self.specs[value].nbytes for value in inner) // self.images
        sizes = [size for size in range(1, self.images) if self.images % size == 0 and (size == 1 or size * largest <= most)]
        cut = _RegionCopy(self.images, sizes[-1])
        regions = [cut.region(self.members[place]) for place in range(first, end) if place in self.members]
        count = self.images // sizes[-1]
        steps = {value: self.specs[value].nbytes // count for value in cut.images_of if value not in inner}
        for value in inner:
            self.specs[value] = replace(self.specs[value], shape=memory_shape(cut.images_of[value]))
        return ImageBlocks(regions, sizes[-1], count, steps)


class _RegionCopy:
    """Copies regions with fewer images: one block.

    Attributes:
        images_of: value that holds images -> the node of one block.
    """

    def __init__(self, images: int, fewer: int) -> None:
        self._images, self._fewer = images, fewer
        self._nodes: dict[GraphNode, GraphNode] = {}
        self.images_of: dict[Value, GraphNode] = {}

    def region(self, region: NativeRegion) -> NativeRegion:
        group, value_of = region.group, region.value_of
        for node in group.nodes:
            self._nodes[node] = self._computed(node, value_of)
        core, core_output = self._nodes[group.core], self._nodes[region.core_output]  # type: ignore[index]
        nodes = [self._nodes[node] for node in group.nodes]
        for node in region.stored:
            self._keep(node, self._nodes[node], value_of)
        new = Group(prod(core.shape), breaks_of(core.shape), core, nodes=nodes, uniform=group.uniform)  # type: ignore[arg-type]
        return NativeRegion(
            region.ops, new, None, value_of, [self._nodes[node] for node in region.stored], {}, core_output, region.target
        )

    def _computed(self, node: GraphNode, value_of: dict[GraphNode, Value]) -> GraphNode:
        shape = self._fewer, *node.shape[1:]
        if isinstance(node, Map):
            operands = tuple([self._read(operand, value_of) for operand in node.operands])
            cut: GraphNode = replace(node, shape=shape, operands=operands)
        else:
            cut = replace(node, shape=shape, source=self._read(node.source, value_of))  # type: ignore[attr-defined,call-arg]
        cut.halo = node.halo
        return cut

    def _read(self, node: GraphNode, value_of: dict[GraphNode, Value]) -> GraphNode:
        if node in self._nodes:
            return self._nodes[node]
        if node.ndim != 4 or node.shape[0] != self._images:
            return node
        self._nodes[node] = cut = PlanArray((self._fewer, *node.shape[1:]), node.element, value_of[node])
        cut.halo = node.halo
        self._keep(node, cut, value_of)
        return cut

    def _keep(self, node: GraphNode, cut: GraphNode, value_of: dict[GraphNode, Value]) -> None:
        value = value_of[cut] = value_of[node]
        self.images_of[value] = cut
