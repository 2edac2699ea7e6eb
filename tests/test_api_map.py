"""Every public name of Fluid 1.6 that this project covers is here, with Fluid's arguments, order and defaults."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from checks import Checks, each

import fluid

LINES = (Path(__file__).parent / "golden" / "fluid_1_6_api.txt").read_text(encoding="utf-8").splitlines()

# What is left out, by section or name, and why.
OUT_SECTIONS = {
    "fluid.dygraph.tracer": "Fluid's own recorder of ops; fluid.dygraph has nodes, an engine and trace",
}
OUT_NAMES = {
    r"fluid\.framework\.Variable\.(numpy|set_value|backward|gradient|clear_gradient)": "of eager tensors, see below",
    r"fluid\.dygraph\.trace": "takes the examples one by one, and gives an object; TracedLayer.trace is as in Fluid",
    r"fluid\.dygraph\.TreeConv.*": "trees of words: an op of its own, as contrib's tree_conv",
    r"fluid\.contrib\.layers\.nn\.search_pyramid_hash": "reads tables of Baidu's parameter servers",
    r"fluid\.contrib\.layers\.nn\.(sequence_topk_avg_pooling|var_conv_2d|match_matrix_tensor|tree_conv)": "search engines' ops",
    r"fluid\.contrib\.layers\.nn\.fused_embedding_seq_pool": "embedding and sequence_pool are two layers here",
}


def entries() -> dict[str, list[str]]:
    """What is covered, by section of the map."""
    sections: dict[str, list[str]] = {}
    section = ""
    for line in LINES:
        if line.startswith("["):
            section = line.strip("[]")
        elif line.startswith("fluid."):
            out = any(section.startswith(out) for out in OUT_SECTIONS)
            if not out and not any(re.fullmatch(out, line.partition("(")[0]) for out in OUT_NAMES):
                sections.setdefault(section, []).append(line)
    return sections


ENTRIES = entries()


def find(path: str) -> Any:
    """The object of this path, importing modules on the way."""
    found: Any = fluid
    for part in path.split(".")[1:]:
        if not hasattr(found, part) and inspect.ismodule(found):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except ModuleNotFoundError:
                raise AttributeError(path) from None
        found = getattr(found, part)
    return found


def parameters(function: Any) -> list[inspect.Parameter]:
    found = list(inspect.signature(function).parameters.values())
    return found[1:] if found and found[0].name == "self" else found


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list):
        return list(ours) == theirs
    return type(ours) is type(theirs) and bool(ours == theirs) if isinstance(theirs, bool) else bool(ours == theirs)


@each("section", ENTRIES)
def test_section(section: str) -> None:
    with Checks() as check:
        for line in ENTRIES[section]:
            with check(line.partition("(")[0]):
                check_entry(line)


def check_entry(line: str) -> None:
    path, _, arguments = line.partition("(")
    try:
        found = find(path)
        if arguments and inspect.ismodule(found):
            raise AttributeError(path)
    except AttributeError:
        raise AssertionError(f"{path} is not here") from None
    if not arguments or arguments == "...)":
        return
    wanted = parameters(eval(f"lambda {arguments[:-1]}: 0", {"kIgnoreIndex": -100, "core": fluid.core}))
    wanted = [item for item in wanted if item.kind is not item.VAR_KEYWORD]  # what Fluid passes over may be refused here
    ours = parameters(found)
    assert [item.name for item in ours[: len(wanted)]] == [item.name for item in wanted]
    for mine, theirs in zip(ours, wanted, strict=False):
        assert mine.kind is theirs.kind, f"{mine.name} is passed in another way"
        # What Fluid requires may be optional here: every call of Fluid's stays good.
        assert theirs.default is theirs.empty or same(mine.default, theirs.default), f"the default of {mine.name}"
    for item in ours[len(wanted) :]:
        assert item.default is not item.empty or item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD), f"{item.name} is required"


def test_eager_tensors_have_what_variables_of_fluid_have() -> None:
    x = fluid.dygraph.to_variable([2.0])
    x.stop_gradient = False
    (x * x).backward(backward_strategy=fluid.dygraph.BackwardStrategy())
    assert isinstance(x, fluid.framework.Variable) and x.gradient() == [4.0] and x.detach().stop_gradient
    x.clear_gradient()
    x.set_value([3.0])
    assert x.gradient() is None and x.numpy() == [3.0]


def test_what_is_left_out_is_in_the_map() -> None:
    """No rule above that leaves out nothing."""
    text, names = "\n".join(LINES), {line.partition("(")[0] for line in LINES}
    for section in OUT_SECTIONS:
        assert f"[{section}" in text, section
    for pattern in OUT_NAMES:
        assert any(re.fullmatch(pattern, name) for name in names), pattern
