"""XLA as a backend. jax, which takes a second to import, is imported when the first program is compiled."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from fluid.values.place import XLAPlace

from ..backend import Request
from .lod import LodPolicy

if TYPE_CHECKING:
    from .execution import XlaPlan


class XlaBackend:
    """Compiles programs by XLA; programs with sequences only for the first or frequent lengths (`LodPolicy`)."""

    takes_bfloat16 = True

    def __init__(self, place: XLAPlace) -> None:
        self._place = place
        self._lods = LodPolicy()

    def key(self, request: Request) -> Hashable | None:
        lods = {name: spec.lod for name, spec in request.specs.items() if spec.lod}
        if lods and not self._lods.is_compiled(request.program, request.fetches, lods):
            return None
        return (*request.specs.items(), request.mesh)

    def compile(self, request: Request) -> XlaPlan:
        from .execution import XlaPlan

        return XlaPlan(request.program, request.specs, request.fetches, request.scope, self._place, mesh=request.mesh)
