"""Modules show their public names, but not their imports."""

from __future__ import annotations

import importlib
import pydoc

from checks import each
from test_docstrings import MODULES

import fluid


@each("module", {**MODULES, "layers": "fluid.layers", "nets": "fluid.nets"}.values())
def test_dir_shows_public_names(module: str) -> None:
    loaded = importlib.import_module(module)
    assert isinstance(loaded.__all__, list) and loaded.__all__, "there is no __all__"
    shown = set(dir(loaded))
    also = {*fluid._LAZY, *fluid._LAZY_FROM} if module == "fluid" else set()  # names of Fluid 1.6 that are loaded when used
    assert shown == {*loaded.__all__, *also}
    assert all(hasattr(loaded, name) for name in shown)


def test_help_shows_public_names() -> None:
    text = pydoc.plain(pydoc.render_doc(fluid.optimizer))
    assert "class AdamOptimizer(Optimizer)" in text
    for name in ("Callable", "Protocol", "GivenState", "class Block"):
        assert f"\n    {name}" not in text and f"\n    class {name}" not in text
