"""Make `golden/op_schemas.json`: of a file with all of Paddle's op schemas, the ops that Fluid defines.

Run ``python tests/support/make_op_schemas.py all_schemas.json`` after defining an op that Paddle has too. The big file maps op
types to ``inputs`` and ``outputs`` (slot -> flags), ``attrs`` (attribute -> kind), ``defaults`` and ``grad`` (what a
gradient op maker writes: ``type``, ``inputs`` and ``outputs``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from paths import TESTS

from fluid.opdef import registry


def reduced(schema: dict[str, Any]) -> dict[str, Any]:
    """The part that the tests compare. ``grad`` is null if Paddle has no gradient, and absent if that is unknown."""
    found = {key: schema[key] for key in ("inputs", "outputs", "attrs", "defaults")}
    grad = schema.get("grad", "unknown")
    if not grad:
        found["grad"] = None
    elif isinstance(grad, list) and isinstance(grad[0], dict):
        found["grad"] = {"type": grad[0]["type"], "inputs": sorted(grad[0]["inputs"]), "outputs": sorted(grad[0]["outputs"])}
    return found


def main(source: str) -> None:
    schemas = json.loads(Path(source).read_text(encoding="utf-8"))
    ours = {op_type: reduced(schemas[op_type]) for op_type in sorted(registry.all_ops()) if op_type in schemas}
    lines = (f" {json.dumps(op_type)}: {json.dumps(schema, sort_keys=True)}" for op_type, schema in ours.items())
    target = TESTS / "golden" / "op_schemas.json"
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(ours)} ops in {target}")


if __name__ == "__main__":
    main(*sys.argv[1:])
