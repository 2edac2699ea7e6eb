"""Imports go down the floors of the table in docs/design.md, never up and never in a circle; and only some code asks whether a
program belongs to eager mode.

Imports inside functions count. Those for type checkers alone do not: nothing is imported for them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx
from paths import ROOT

FOLDERS = {"fluid": ROOT / "fluid", "fluid.executor": ROOT / "executor", "fluid.proto": ROOT / "proto"}

UPWARD = {
    # Conveniences of programs and variables: each method is a call of the function that does it.
    ("fluid.ir.program", "fluid.autodiff.explain"),
    ("fluid.ir.program", "fluid.building.indexing"),
    ("fluid.ir.program", "fluid.executor.stepwise.unsupported"),
    ("fluid.ir.program", "fluid.formats.program"),
    ("fluid.ir.program", "fluid.parallel.annotations"),
    ("fluid.ir.program", "fluid.transform.edit"),
    ("fluid.ir.program", "fluid.transform.folding"),
    ("fluid.ir.program", "fluid.transform.pruning"),
    ("fluid.ir.program", "fluid.transform.sizes"),
    ("fluid.ir.program", "fluid.viewer.notebook"),
    # For who asks a build strategy to draw the program.
    ("fluid.compiler", "fluid.debugger"),
    # For who trains with checkpoints.
    ("fluid.training.fitting", "fluid.saving.checkpoint"),
    # The namespace of a tensor's functions, which the array API standard asks the tensor for.
    ("fluid.eager.tensor", "fluid.numpy"),
    ("fluid.eager.tensor", "fluid.numpy.numpy_functions"),
    # For who adds an op that ONNX has.
    ("fluid.extend", "fluid.onnx.writing.exporting"),
}
"""(importer, imported) that point up, all of them inside functions."""

LATE = {
    ("fluid.ir.program", "fluid.ir.desc"): "views of programs, for scripts that speak to Fluid 1.6's C++",
    ("fluid.ir.program", "fluid.ir.verify"): "verify checks programs, and a program has a method that does",
    ("fluid.cli.show", "fluid.proto"): "one command of many needs protobuf",
    ("fluid.dygraph.layer_of", "fluid.contrib"): "loaded for those who name a layer of it",
    ("fluid.dygraph.tracing", "fluid.saving.inference_models"): "loads protobuf, for who saves",
    ("fluid.executor.planned.plan", "fluid.executor.native.plans"): "some twenty modules, for who has installed llvmlite",
    ("fluid.executor.planned.plan", "fluid.executor.planned.records"): "plans on disk, for who has installed llvmlite",
    ("fluid.executor.planned.plan", "fluid.executor.native.tables"): "the compiler, for who has installed llvmlite",
    ("fluid.executor.native.native_checks", "fluid.executor.native.id_kernels"): "the compiler, if a kernel is not on disk",
    ("fluid.executor.planned.plan", "fluid.executor.planned.native_loops"): "the compiler, for libraries with loops",
    ("fluid.executor.planned.plan", "fluid.executor.planned.unrolled_loops"): "the compiler, for plans with loops",
    ("fluid.executor.planned.nested_loops", "fluid.executor.planned.unrolled_loops"): "the compiler, for loops in loops",
    ("fluid.executor.planned.backend", "fluid.executor.native.compiler"): "the compiler, for who has installed llvmlite",
    ("fluid.executor.native.one_op", "fluid.executor.native.compiler"): "the compiler, for who has installed llvmlite",
    ("fluid.executor.native.one_op", "fluid.executor.native.functions"): "some twenty modules, for who has installed llvmlite",
    ("fluid.executor.native.block_compiler", "fluid.executor.native.repeated"): "the compiler, for programs with loops",
    ("fluid.executor.native.one_op", "fluid.executor.native.recurrent_loops"): "the kernels, for programs that use them",
    ("fluid.executor.native.recurrent_loops", "fluid.executor.native.compiler"): "the compiler, for recurrent layers",
    ("fluid.executor.native.recurrent_loops", "fluid.executor.native.step_loops"): "the compiler, for recurrent layers",
    (
        "fluid.executor.xla.backend",
        "fluid.executor.xla.execution",
    ): "imports jax, which takes a second",
    ("fluid.executor.stepwise.files", "fluid.formats.tensors"): "loads protobuf, for programs that save and load by ops",
    ("fluid.executor.stepwise.files", "fluid.formats.writing"): "as above",
    ("fluid.formats.tensors", "fluid.values.selected_rows"): "reading a file of dense tensors needs no sparse ones",
    ("fluid.formats.text", "fluid.formats.program"): "loads protobuf, which only what came from the wire needs",
    ("fluid.saving.predictor", "fluid.saving.models"): "loads protobuf, for who predicts by the interface of Paddle 1.x",
    ("fluid.saving.models", "fluid.onnx.importing"): "some twenty modules, for who loads an ONNX model",
    ("fluid.layers.generate", "fluid.ops.activation"): "a script for developers, read by the tests",
    ("fluid.saving.models", "fluid.onnx.writing"): "needs the package onnx, an extra",
    ("fluid.extend", "fluid.executor.native.lowering"): "for who lowers an op",
    ("fluid.loading.loader", "fluid.loading.workers"): "imports what a browser lacks: processes",
    ("fluid.layers.io", "fluid.reader"): "loads threads and queues, for programs that read by them",
}
"""Imports inside functions that point down, or beside, and why they are not at the top."""


FLUID_1_6 = {
    "average",
    "backward",
    "clip",
    "compiler",
    "core",
    "data_feeder",
    "debugger",
    "default_scope_funcs",
    "dygraph_grad_clip",
    "evaluator",
    "executor",
    "framework",
    "initializer",
    "input",
    "install_check",
    "io",
    "layer_helper",
    "lod_tensor",
    "metrics",
    "nets",
    "optimizer",
    "param_attr",
    "profiler",
    "reader",
    "regularizer",
    "transpiler",
    "unique_name",
}
"""Modules that lie flat in Fluid 1.6, as far as they are here."""


@cache
def tree_of(path: Path) -> ast.Module:
    """The parsed text of a file."""
    return ast.parse(path.read_text())


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


MODULES = modules()


_WITH_STATEMENTS = ("body", "orelse", "handlers", "finalbody", "cases")
"""Fields of nodes that hold statements, or what holds some; imports stand nowhere else."""


def _name_of(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def imports_of(name: str) -> set[tuple[str, bool]]:
    """The modules of this package that a module imports, and whether it does so inside a function."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, ast.If) and _name_of(node.test) == "TYPE_CHECKING":
            for child in node.orelse:
                visit(child, inside)
            return
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            home = ".".join([*base, *([node.module] if node.module else [])])
            inner = [f"{home}.{alias.name}" for alias in node.names]
            names = [each if each in MODULES else home for each in inner]
        found.update((each, inside) for each in names if each in MODULES and each != name)
        inside |= isinstance(node, ast.FunctionDef)
        for field in _WITH_STATEMENTS:
            for child in getattr(node, field, ()):
                visit(child, inside)

    visit(tree_of(path), False)
    return found


@cache
def all_imports() -> set[tuple[str, str, bool]]:
    """Of every module: itself, a module that it imports, and whether it does so inside a function."""
    return {(name, other, is_inside) for name in MODULES for other, is_inside in imports_of(name)}


def read_floors() -> list[list[str]]:
    """The floors of the table in docs/design.md from the ground up, each with its modules and packages."""
    text = (ROOT / "docs/design.md").read_text()
    table = re.search(r"^ *\| floor \|.*?\n *\|[-| ]+\n((?: *\|.*\n)+)", text, re.MULTILINE)
    assert table, "docs/design.md has no table of floors"
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in table.group(1).splitlines()]
    return [re.findall(r"`([\w.]+)`", row[0]) for row in rows]


FLOORS = read_floors()
NUMBERS = {f"fluid.{part}" if part != "fluid" else part: floor for floor, parts in enumerate(FLOORS) for part in parts}


def floor_of(name: str) -> int:
    """The floor of a module: the floor of the longest matching name in the table."""
    while name not in NUMBERS:
        name = name.rpartition(".")[0]
    return NUMBERS[name]


def test_every_module_has_a_floor():
    tops = {name.split(".")[1] if "." in name else name for name in MODULES}
    listed = [part for parts in FLOORS for part in parts]
    assert sorted(part for part in listed if "." not in part) == sorted(tops)
    assert all(f"fluid.{part}" in MODULES for part in listed if "." in part)
    folders = {path.parent.name for path in FOLDERS["fluid.executor"].glob("*/__init__.py")}
    assert {part.rpartition(".")[2] for part in listed if part.startswith("executor.")} == {*folders, "backend"}


def test_only_methods_of_programs_reach_up():
    imports = all_imports()
    assert {(module, other) for module, other, _ in imports if floor_of(other) > floor_of(module)} == UPWARD
    assert all((*pair, True) in imports and (*pair, False) not in imports for pair in UPWARD)


def test_other_imports_stand_at_the_top():
    late = {(module, other) for module, other, is_inside in all_imports() if is_inside and floor_of(other) <= floor_of(module)}
    assert late == set(LATE)


def test_no_module_imports_itself_through_others():
    graph = networkx.DiGraph()
    doors = UPWARD | {("fluid.ir.program", "fluid.ir.verify")}
    graph.add_edges_from((module, other) for module, other, _ in all_imports() if (module, other) not in doors)
    circles = [sorted(part) for part in networkx.strongly_connected_components(graph) if len(part) > 1]
    assert circles == []


def test_flat_modules_are_those_of_fluid_1_6():
    """Flat modules of the package: names of Fluid 1.6, errors, extend, the command line; others only re-export names."""
    flat = {path.stem for path in (ROOT / "fluid").glob("*.py")} - {"__init__"}
    for door in flat - FLUID_1_6 - {"__main__", "checkout", "errors", "extend", "not_here"}:
        body = ast.parse((ROOT / "fluid" / f"{door}.py").read_text()).body
        assert all(isinstance(node, (ast.Expr, ast.ImportFrom, ast.Assign)) for node in body), door


def test_imports_are_seen_wherever_they_stand():
    """The reader of imports itself: inside functions, relative, of a module or of a name in it, and not for type checkers."""
    imports = all_imports()
    assert ("fluid.ir.program", "fluid.values.types", False) in imports
    assert ("fluid.ir.program", "fluid.transform.edit", True) in imports
    assert ("fluid.executor.runtime.scope", "fluid.values.lod_tensor", False) in imports
    assert ("fluid.opdef.registry", "fluid.opdef.inference", False) not in imports


def test_eager_mode_is_loaded_when_used() -> None:
    code = "import fluid, sys; print([name for name in sys.modules if name.startswith(('fluid.eager', 'fluid.dygraph'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_eager_mode_is_loaded_whole() -> None:
    """Lower files reach higher ones through one object, which is complete whichever is imported first."""
    code = """
import fluid.eager.mode, sys
x = sys.modules["fluid.eager.tensor"].Tensor([1.0, 2.0], stop_gradient=False)
(x[0] * x.tanh()).sum().backward(create_graph=True)
assert x.grad.program().num_blocks == 1 and x.block.program.eager
assert "fluid.dygraph" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


ASKED = {
    # what the question is answered with
    "fluid/ir/program.py in_dygraph_mode": "is the question, asked by users",
    "fluid/framework.py _dygraph_tracer": "the same",
    "fluid/building/versions.py _program_of": "finds the tensor among arguments",
    "fluid/layers/arguments.py eager_program": "the same, where only a tensor's program is wanted",
    "fluid/building/layer_helper.py LayerHelper.apply": "tensors among the inputs say where an op is applied",
    "fluid/backward.py _is_of_a_layer": "in a program, a variable stands for a layer's parameter",
    "fluid/param_attr.py ParamAttr._to_attr": "a tensor stands for a parameter, a variable of a program does not",
    "fluid/layers/rnn.py _merged": "sizes of tensors are numbers, which would become fixed in a trace",
    # errors that say what to use instead
    "fluid/ir/advice.py of_other_program": "a tensor where a variable of a program is wanted",
    "fluid/training/fitting.py ProgramTrainer.__init__": "trains programs, LayerTrainer trains layers",
    "fluid/building/layer_helper.py refuse_tensor": "While, Switch, StaticRNN and DynamicRNN build blocks",
    "fluid/building/layer_helper.py LayerHelper.create_parameter": "nobody would keep the parameter of a call",
    "fluid/building/layer_helper.py check_kept": "nobody would keep the parameters of a call",
    "fluid/building/layer_helper.py _mixed": "names the tensor and the variable that are given together",
    "fluid/layers/structured.py crf_decoding": "on tensors it takes what was learned, not a name",
    "fluid/reader.py _Loader.__init__": "a loader of programs needs variables to feed, one of tensors has none",
    "fluid/optimizer.py Optimizer._own_parameters": "step() and clear_grad() are for tensors",
    "fluid/optimizer.py Optimizer._check_eager": "state_dict() and set_dict() are for tensors",
    "fluid/optimizer.py Optimizer._add_accumulator": "set_dict() gives values to tensors, programs load theirs",
    "fluid/optimizer.py RecomputeOptimizer.backward": "is for programs",
    "fluid/contrib/mixed_precision/decorator.py OptimizerWithMixedPrecison.backward": "is for programs, tensors have amp_guard",
    "fluid/training/averaging.py _Average._chosen": "eager mode has no list of all parameters",
    "fluid/training/averaging.py _Average.__getstate__": "only averages of tensors are pickled",
    "fluid/training/averaging.py _Average._check_eager": "state_dict(), set_dict() and update() are for tensors",
    "fluid/training/states.py ByProgram.__reduce__": "only what is kept for tensors is pickled",
}
"""Where it is asked whether a program is that of eager mode, and why. Elsewhere, a method of the program is what differs."""


def questions(file: Path) -> Iterator[str]:
    """The functions of a file that ask for ``program.eager``, or ``in_dygraph_mode()``."""

    def inside(node: ast.AST, names: tuple[str, ...]) -> Iterator[str]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = (*names, node.name)
        is_call = isinstance(node, ast.Call) and (
            getattr(node.func, "id", "") == "in_dygraph_mode" or getattr(node.func, "attr", "") == "in_dygraph_mode"
        )
        if is_call or (isinstance(node, ast.Attribute) and node.attr == "eager"):
            yield f"{file.relative_to(ROOT)} {'.'.join(names)}"
        for child in ast.iter_child_nodes(node):
            yield from inside(child, names)

    yield from inside(tree_of(file), ())


def test_what_differs_in_eager_mode_is_a_method() -> None:
    outside = (file for name, file in MODULES.items() if not name.startswith(("fluid.eager", "fluid.dygraph")))
    asking = (file for file in outside if re.search(r"\.eager\b|in_dygraph_mode", file.read_text()))
    assert {question for file in asking for question in questions(file)} == ASKED.keys()
