"""`docs/paddle_ops.md` lists what Paddle has and Fluid lacks."""

from __future__ import annotations

import re

from paths import ROOT

from fluid.opdef import registry
from fluid.transform.op_versions import known_ops

DOCUMENT = ROOT / "docs" / "paddle_ops.md"
LISTED = re.findall(r"`([a-z0-9_]+)`", DOCUMENT.read_text(encoding="utf-8"))


def is_gradient(op_type: str) -> bool:
    return bool(re.search(r"_grad$|_grad2$|_grad_grad$", op_type))


def test_what_is_listed_is_paddles_and_not_here() -> None:
    assert len(LISTED) == len(set(LISTED))
    here = registry.all_ops()
    assert [op_type for op_type in LISTED if op_type in here or op_type not in known_ops("paddle-2.6")] == []


def test_what_is_not_here_is_listed() -> None:
    here = {*registry.all_ops(), *LISTED}
    assert [op_type for op_type in sorted(known_ops("paddle-2.6") - here) if not is_gradient(op_type)] == []


def test_gradients_are_here_where_their_ops_are() -> None:
    """Ops in Paddle's training programs have gradients here; ops of inference passes have none there."""
    here, missing = registry.all_ops(), []
    for op_type in known_ops("paddle-2.6") - set(here):
        base = re.sub(r"(_grad|_double|_triple)*_grad2?$", "", op_type)
        if is_gradient(op_type) and base in here:
            missing.append(op_type)
    assert missing == []
