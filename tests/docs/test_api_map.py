"""Every public name of Fluid 1.6 that this project covers is here, with Fluid's arguments, order and defaults."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest
from checks import Checks, each
from paths import ROOT, TESTS

import fluid
from fluid.not_here import NOT_HERE, NotHere

LINES = (TESTS / "golden" / "fluid_1_6_api.txt").read_text(encoding="utf-8").splitlines()

NAMES = (TESTS / "golden" / "fluid_1_6_names.txt").read_text(encoding="utf-8").splitlines()

# What is left out, by section or name, and why.
OUT_SECTIONS = {
    "fluid.dygraph.tracer": "Fluid's own recorder of ops; fluid.dygraph has nodes, an engine and trace",
}
OUT_NAMES = {
    r"fluid\.framework\.Variable\.(numpy|set_value|backward|gradient|clear_gradient)": "of eager tensors, see below",
    r"fluid\.dygraph\.trace": "takes the examples one by one, and gives an object; those of jit and TracedLayer are as in Fluid",
    r"fluid\.dygraph\.TreeConv.*": "trees of words: an op of its own, as contrib's tree_conv",
    r"fluid\.contrib\.layers\.nn\.search_pyramid_hash": "reads tables of Baidu's parameter servers",
    r"fluid\.contrib\.layers\.nn\.(sequence_topk_avg_pooling|var_conv_2d|match_matrix_tensor|tree_conv)": "search engines' ops",
    r"fluid\.contrib\.layers\.nn\.fused_embedding_seq_pool": "embedding and sequence_pool are two layers here",
}


# Of the names that Paddle's own list has; stand-ins of `fluid.not_here` say their reasons themselves.
NOT_AS_LISTED = {
    r"fluid\.Variable\.(numpy|set_value|backward|gradient|clear_gradient)": "of eager tensors; errors say what to write",
    r"fluid\.dygraph\.\w+Decay\.create_lr_var": "schedules give numbers, and optimizers make the variables",
    r"fluid\.io\.PyReader\.next": "Python 2's name of __next__",
    r"fluid\.layers\.softplus": "has Paddle 2's beta and threshold before the name, as files do",
}


def entries(lines: list[str] = LINES) -> dict[str, list[str]]:
    """The covered names, by section of the map."""
    sections: dict[str, list[str]] = {}
    section = ""
    for line in lines:
        if line.startswith("["):
            section = line.strip("[]")
        elif line.startswith("fluid."):
            out = any(section.startswith(out) for out in OUT_SECTIONS)
            if not out and not any(re.fullmatch(out, line.partition("(")[0]) for out in OUT_NAMES):
                sections.setdefault(section, []).append(line)
    return sections


ENTRIES = entries()
LATER = entries((TESTS / "golden" / "fluid_1_8_api.txt").read_text(encoding="utf-8").splitlines())


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


@each("section", LATER)
def test_section_of_fluid_1_8(section: str) -> None:
    """Arguments of 1.6 keep their places, also where 1.8 puts new ones between them; the new ones come last here."""
    with Checks() as check:
        for line in LATER[section]:
            with check(line.partition("(")[0]):
                check_by_name(line) if section.endswith("by name") else check_entry(line)


def check_by_name(line: str) -> None:
    """A name whose arguments are all here, with their defaults, in any order."""
    path, _, arguments = line.partition("(")
    ours = {item.name: item for item in parameters(find(path))}
    for theirs in parameters(eval(f"lambda {arguments[:-1]}: 0")):
        assert theirs.name in ours, f"{theirs.name} is missing"
        assert theirs.default is theirs.empty or same(ours[theirs.name].default, theirs.default), f"the default of {theirs.name}"


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


def check_listed(line: str) -> None:
    """A name of Paddle's list, with its arguments in their order."""
    path, _, arguments = line.partition("(")
    obj = find(path)
    if isinstance(obj, NotHere) or not arguments:
        return
    wanted = [argument.rstrip("=") for argument in arguments[:-1].split(", ") if argument and not argument.startswith("*")]
    named = [item.name for item in parameters(obj) if item.kind in (item.POSITIONAL_OR_KEYWORD, item.POSITIONAL_ONLY)]
    assert named[: len(wanted)] == wanted


def test_every_name_of_fluid_1_6() -> None:
    """Each is here with its arguments, or stands for the reason why it is not."""
    with Checks() as check:
        for line in NAMES:
            if line.startswith("fluid.") and not any(re.fullmatch(rule, line.partition("(")[0]) for rule in NOT_AS_LISTED):
                with check(line):
                    check_listed(line)


@each("section", [section for section in ENTRIES if section.startswith("fluid.layers.")])
def test_layers_are_found_where_fluid_1_6_has_them(section: str) -> None:
    module = importlib.import_module(section)
    with Checks() as check:
        for name in {line.partition("(")[0].split(".")[2] for line in ENTRIES[section]}:
            with check(name):
                assert callable(getattr(module, name))


USED = """
BatchNorm Conv2D DataFeedDesc DatasetFactory DistributeTranspiler FC Layer LoDTensorArray Pool2D load_dygraph memory_optimize
release_memory save_dygraph load_program_state set_program_state debugger.pprint_program_codes backward.calc_gradient
contrib.decoder.beam_search_decoder.StateCell contrib.memory_usage contrib.mixed_precision.decorate contrib.slim
core.AttrType core.EnforceNotMet core.PaddleTensor core.ProgramDesc core.SelectedRows core.get_grad_op_desc
core.is_float16_supported core.op_support_gpu executor.FetchHandler executor._fetch_var executor.as_numpy
framework.GRAD_VAR_SUFFIX framework._dygraph_guard framework._get_var framework.convert_np_dtype_to_dtype_
framework.grad_var_name framework.switch_main_program incubate.fleet.base.role_maker.UserDefinedRoleMaker
incubate.fleet.collective.fleet layers.control_flow.ConditionalBlock layers.control_flow.lod_rank_table
layers.control_flow.lod_tensor_to_array layers.control_flow.merge_lod_tensor layers.control_flow.split_lod_tensor
layers.device.get_places layers.io.Send layers.nn.uniform_random op.Operator proto.framework_pb2.ProgramDesc
transpiler.details.program_to_code transpiler.distribute_transpiler.DistributeTranspilerConfig
"""
"""Names that scripts import and that are in no list."""


@each("path", USED.split())
def test_names_that_scripts_import(path: str) -> None:
    module, _, name = f"fluid.{path}".rpartition(".")
    exec(f"from {module} import {name} as obj", namespace := {})
    if isinstance(namespace["obj"], NotHere):
        with pytest.raises(fluid.FluidError, match=r"of Paddle's Fluid is not here: \w"):
            namespace["obj"]()
        with pytest.raises(fluid.FluidError, match="is not here"):
            exec("class Mine(obj): pass", namespace)


def test_the_names_that_are_not_here_are_documented() -> None:
    text = (ROOT / "docs" / "fluid_1_6.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\S+)` \| (.*) \|$", text, re.MULTILINE))
    assert rows == NOT_HERE, "one row for each name in fluid/not_here.py"


def test_eager_tensors_have_what_variables_of_fluid_have() -> None:
    x = fluid.dygraph.to_variable([2.0])
    x.stop_gradient = False
    (x * x).backward(backward_strategy=fluid.dygraph.BackwardStrategy())
    assert isinstance(x, fluid.framework.Variable) and x.gradient() == [4.0] and x.detach().stop_gradient
    x.clear_gradient()
    x.set_value([3.0])
    assert x.gradient() == [0.0] and x.numpy() == [3.0]


def test_what_is_left_out_is_in_the_map() -> None:
    """No rule above that leaves out nothing."""
    text, names = "\n".join(LINES), {line.partition("(")[0] for line in LINES}
    for section in OUT_SECTIONS:
        assert f"[{section}" in text, section
    for pattern in OUT_NAMES:
        assert any(re.fullmatch(pattern, name) for name in names), pattern
