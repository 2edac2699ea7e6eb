"""Processors with other vectors, fewer registers and other limits than this one, for which code that runs here can be made.

With tiny limits, each tile, part, chunk, copy and block that large sizes have is there at small ones.
"""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

from fluid.executor.native import compiler
from fluid.executor.native.target import Limits, Target

__all__ = ["OTHER_TARGETS", "random_target"]

LIMITS = [field.name for field in fields(Limits)]


def _all_at(number: int) -> Limits:
    """Limits that are all a number."""
    return Limits(**{name: (number, number) if name == "winograd_block_tiles" else number for name in LIMITS})  # type: ignore[arg-type]


def random_target(seed: int) -> Target:
    """This processor with random vectors, registers and limits; each limit is tiny or unchanged."""
    rng, host = random.Random(seed), compiler.host()
    limits: dict[str, Any] = {}
    for name in LIMITS:
        drawn = rng.choice([1, 2, 3, 5, 8, 17, 64, None])
        if drawn is None:
            limits[name] = getattr(host.limits, name)
        else:
            limits[name] = (drawn, drawn + rng.randrange(9)) if name == "winograd_block_tiles" else drawn
    vector_bytes, registers, fused = rng.choice([4, 16, 32, 64]), rng.choice([16, 32]), rng.choice([(), ("float",), host.fused])
    return replace(host, vector_bytes=vector_bytes, registers=registers, fused=fused, limits=Limits(**limits))


OTHER_TARGETS: dict[str, Target] = {
    "vectors of 128 bits": replace(compiler.host(), vector_bytes=16, registers=32),
    "those of AVX2": replace(compiler.host(), vector_bytes=32, registers=16),
    "those of AVX-512": replace(compiler.host(), vector_bytes=64, registers=32),
    "those of SSE2": replace(compiler.host(), vector_bytes=16, registers=16, fused=(), has_rounding=False),
    "no vectors": replace(compiler.host(), vector_bytes=4, registers=16, fused=("float",)),
    "limits of 1": replace(compiler.host(), limits=_all_at(1)),
    "limits of 3, vectors of 128 bits": replace(compiler.host(), vector_bytes=16, registers=16, limits=_all_at(3)),
}
