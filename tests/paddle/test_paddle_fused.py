"""Fused ops give Paddle's numbers: see `golden/make_paddle_fused.py`."""

from __future__ import annotations

from checks import each
from paddle_numbers import PaddleNumbers

from fluid.opdef import registry

NUMBERS = PaddleNumbers("paddle_fused.npz")


@each("number", range(len(NUMBERS.records)))
def test_numbers_of_paddle(number: int) -> None:
    """Compare public outputs; workspaces do not exist here. Sums of sequences are rows; Paddle calls them sequences of one
    row."""
    record = NUMBERS.records[number]
    slots = registry.get(record["type"]).outputs
    record["outputs"] = {slot: lods for slot, lods in record["outputs"].items() if not slots[slot].intermediate}
    if "seqpool" in record["type"]:
        record["outputs"] = {slot: [[] for _ in lods] for slot, lods in record["outputs"].items()}
    NUMBERS.check(number)
