"""Ops outside of plans as instructions that can be lowered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fluid.ir.program import Operator
from fluid.ir.versions import Value
from fluid.opdef.registry import OpDef
from fluid.values.spec import Spec

from .lowering import NotLowered

__all__ = ["Op", "OpInstruction"]


@dataclass
class Op:
    """The attributes of an operator that lowering needs."""

    type: str
    attrs: Mapping[str, Any]
    block: None = None
    sub_blocks: Sequence[Any] = ()


@dataclass
class OpInstruction:
    """The attributes of a plan's instruction that lowering needs."""

    op: Op | Operator
    definition: OpDef
    reads: dict[str, list[Value | None]]
    writes: dict[str, list[Value | None]]
    dynamic: bool = False
    outer: dict[str, Value] = field(default_factory=dict)
    is_native: ClassVar[bool] = False

    @property
    def read(self) -> list[Value]:
        return [value for values in self.reads.values() for value in values if value is not None]

    @property
    def written(self) -> list[Value]:
        return [value for values in self.writes.values() for value in values if value is not None]

    def drawing(self, slot: str, specs: Mapping[Value, Spec]) -> Any:
        raise NotLowered("only plans draw numbers for native code")
