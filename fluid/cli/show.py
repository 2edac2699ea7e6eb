"""Commands that print without changing anything: inspect, dump, diff, explain."""

from __future__ import annotations

import math
import shutil
import sys
from collections import Counter
from typing import Any

import click

from ..executor.stepwise.unsupported import unsupported_ops
from ..ir.program import Block, Parameter, Program
from ..saving.checkpoint import progress_of
from ..saving.models import Model
from ..saving.variables import is_persistable
from ..training.fitting import epoch_of
from ..transform.compare import diff
from ..transform.flops import count_flops, human
from .common import (
    as_json,
    echo,
    echo_lines,
    echo_wrapped,
    human_bytes,
    model_argument,
    program_of,
    read_model,
    sizes_option,
    table,
)


@click.command()
@model_argument()
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1), help="The size of unknown dimensions, for FLOPs.")
@click.option("--json", "is_json", is_flag=True, help="For programs.")
@sizes_option
def inspect(model: str, params: str | None, batch: int, is_json: bool, sizes: tuple[str, ...]) -> None:
    """Show inputs, outputs, parameters, ops, arithmetic, and what cannot run."""
    loaded = read_model(model, params, sizes)
    facts = _facts(loaded, batch)
    if is_json:
        return as_json(facts)
    if "epoch" in facts:
        echo(f"{facts['path']}: {facts['format']} after epoch {facts['epoch']}", bold=True)
        echo("fluid.training.fit(trainer, batches, epochs, checkpoint=path) resumes the training")
    elif "step" in facts:
        echo(f"{facts['path']}: {facts['format']} of step {facts['step']}", bold=True)
        echo("fluid.load_checkpoint(program, path) resumes the training")
    else:
        echo(f"{facts['path']}: {facts['format']}", bold=True)
    if loaded.program is None:
        echo(f"{facts['parameters']['count']} arrays, {human_bytes(facts['parameters']['bytes'])}; no program")
        return None
    for title, key in (("inputs", "inputs"), ("outputs", "outputs")):
        if facts[key]:
            table((title, "type"), [(item["name"], item["type"]) for item in facts[key]])
    if facts["open"]:
        echo("open sizes: " + ", ".join(f"{name} [{', '.join(map(str, shape))}]" for name, shape in facts["open"].items()))
        counts = facts["unknown_shapes"]
        echo(f"  shapes that are known in a run only: {counts['count']} of {counts['of']} values")
    parameters = facts["parameters"]
    echo(
        f"parameters: {parameters['count']} of {parameters['elements']:,} elements, {human_bytes(parameters['bytes'])}"
        f" ({parameters['trainable']} trainable)"
    )
    if parameters["missing"]:
        names = ", ".join(parameters["missing"][:5]) + (", ..." if len(parameters["missing"]) > 5 else "")
        echo(f"without a value: {len(parameters['missing'])}: {names}", fg="yellow")
    echo(f"arithmetic: {human(facts['flops']['total'])}FLOP for a batch of {batch}")
    if facts["flops"]["not_counted"]:
        echo(f"  not counted: {', '.join(facts['flops']['not_counted'])}")
    blocks = "" if facts["blocks"] == 1 else f" in {facts['blocks']} blocks"
    flops = facts["flops"]["by_type"]
    rows = [(kind, count, f"{human(flops.get(kind, 0))}FLOP") for kind, count in facts["ops"].items()]
    table(("op", "count", "arithmetic"), rows, f"{sum(facts['ops'].values())} ops{blocks}", right=(1, 2))
    for item in facts["unsupported"]:
        echo(f"cannot run: {item['text']}", fg="red")
    if not facts["unsupported"]:
        echo("everything in it can run", fg="green")
    return None


def _facts(model: Model, batch: int) -> dict[str, Any]:
    program = model.program
    sizes = {name: model.scope.array(name) for name in model.parameters}
    parameters: dict[str, Any] = {"count": len(sizes), "bytes": sum(array.nbytes for array in sizes.values())}
    facts: dict[str, Any] = {"path": model.path, "format": model.format, "parameters": parameters}
    if program is None:
        values = model.values()
        epoch = epoch_of(model.path, values)
        progress = progress_of(model.path, values) if epoch is None else {"epoch": epoch}
        if progress:
            parameters["count"] -= 1
            facts |= {"format": "checkpoint", **progress}
        return facts
    persistables = {var.name: var for var in program.list_vars() if is_persistable(var)}
    shapes = {name: sizes[name].shape if name in sizes else var.shape for name, var in persistables.items()}
    parameters.update(
        count=len(persistables),
        elements=sum(max(math.prod(shape), 0) for shape in shapes.values()),
        trainable=sum(isinstance(var, Parameter) and var.trainable for var in persistables.values()),
        missing=model.missing,
    )
    root = program.global_block()
    flops = count_flops(program, batch)
    ops = Counter(op.type for block in program.blocks for op in block.ops if op.type not in ("feed", "fetch"))
    return facts | {
        "inputs": [{"name": name, "type": root.var(name).describe()} for name in model.feeds],
        "outputs": [{"name": var.name, "type": var.describe()} for var in model.fetches],
        "open": _open_sizes(model),
        "unknown_shapes": _unknown_shapes(root),
        "blocks": len(program.blocks),
        "ops": dict(ops.most_common()),
        "flops": {"total": flops.total, "by_type": dict(flops.by_type), "not_counted": dict(flops.uncounted)},
        "unsupported": [
            {"type": item.type, "count": item.count, "block": item.block, "position": item.position, "text": str(item)}
            for item in unsupported_ops(program)
        ],
    }


def _open_sizes(model: Model) -> dict[str, list[int | str]]:
    """Feed -> its sizes, for feeds with sizes that only a run tells: the name of such a dimension, or ``?``."""
    assert model.program is not None
    variables = [model.program.global_block().var(name) for name in model.feeds]
    shapes = {
        var.name: model.dimensions.get(var.name) or [size if size >= 0 else None for size in var.shape] for var in variables
    }
    return {
        name: ["?" if size is None else size for size in shape]
        for name, shape in shapes.items()
        if not all(isinstance(size, int) for size in shape)
    }


def _unknown_shapes(block: Block) -> dict[str, int]:
    """How many tensors that ops make have a size that only a run tells, of how many."""
    names = {name for op in block.ops if op.type not in ("feed", "fetch") for name in op.output_arg_names}
    shapes = [block.vars[name].shape for name in names if name in block.vars and block.vars[name].has_shape]
    return {"count": sum(-1 in shape for shape in shapes), "of": len(shapes)}


# ------------------------------------------------------------------------------------------------------------- dumping
@click.command()
@model_argument()
@click.option("--format", "kind", type=click.Choice(["text", "json", "pbtxt"]), default="text", show_default=True)
@click.option(
    "--short/--full",
    default=None,
    help="Print a text that fits a screen, or all of it, which can be loaded again. By default, short on a terminal.",
)
def dump(model: str, params: str | None, kind: str, short: bool | None) -> None:
    """Print the program as readable text, as JSON, or as protobuf's text.

    Output to a pipe or a file is complete and can be loaded again.
    """
    program = program_of(read_model(model, params))
    on_terminal = sys.stdout.isatty()
    if kind == "json":
        as_json({"blocks": [_block(block) for block in program.blocks]})
    elif kind == "pbtxt":
        from google.protobuf import text_format

        from ..proto import ProgramDesc

        message = ProgramDesc()
        message.ParseFromString(program.serialize_to_string())
        click.echo(text_format.MessageToString(message), nl=False)
    elif not (on_terminal if short is None else short):
        click.echo(program.to_string(), nl=False)
    elif on_terminal:
        echo_wrapped(str(program), shutil.get_terminal_size().columns)
        click.secho("shortened; --full prints all", err=True, dim=True)
    else:
        click.echo(str(program))


def _block(block: Block) -> dict[str, Any]:
    variables = [
        {
            "name": var.name,
            "kind": var.type.name.lower(),
            "dtype": var.dtype.text if var.has_dtype else None,
            "shape": list(var.shape) if var.has_shape else None,
            "lod_level": var.lod_level,
            "persistable": var.persistable,
            "parameter": isinstance(var, Parameter),
            "data": var.is_data,
            "stop_gradient": var.stop_gradient,
        }
        for var in block.vars.values()
    ]
    ops = [
        {"type": op.type, "inputs": op.inputs, "outputs": op.outputs, "attrs": {k: _attr(v) for k, v in op.attrs.items()}}
        for op in block.ops
    ]
    return {"idx": block.idx, "parent": block.parent_idx, "forward": block.forward_block_idx, "vars": variables, "ops": ops}


def _attr(value: Any) -> Any:
    if isinstance(value, Block):
        return {"block": value.idx}
    return [_attr(item) for item in value] if isinstance(value, (list, tuple)) else value


# ----------------------------------------------------------------------------------------------------- diff and explain
_COLOURS = {"-": "red", "+": "green", "~": "yellow"}


@click.command("diff")
@model_argument("a")
@model_argument("b")
@click.option(
    "--context", "around", default=2, show_default=True, type=click.IntRange(0), help="Equal ops to show around each difference."
)
@click.option("--json", "is_json", is_flag=True, help="For programs.")
@click.pass_context
def diff_command(
    ctx: click.Context, a: str, a_params: str | None, b: str, b_params: str | None, around: int, is_json: bool
) -> None:
    """Show how model B differs from model A: ops, declarations, values. Exit status 1 if there are differences."""
    one, two = read_model(a, a_params), read_model(b, b_params)
    empty = Program()
    values = (one.values(), two.values()) if one.parameters and two.parameters else (None, None)
    if (one.program is None) != (two.program is None):
        program_of(one if one.program is None else two)
    differences = diff(one.program or empty, two.program or empty, *values)
    if is_json:
        changes = [{"sign": sign, "block": block, "text": text} for sign, block, text in differences.ops if sign != " "]
        variables = [{"sign": sign, "block": block, "text": text} for sign, block, text in differences.variables]
        as_json({"ops": changes, "variables": variables, "values": differences.values})
    else:
        for line in differences.lines(around):
            echo(line, fg=_COLOURS.get(line[:1]))
    if differences:
        ctx.exit(1)


@click.command()
@model_argument()
@click.argument("loss")
@click.argument("var")
def explain(model: str, params: str | None, loss: str, var: str) -> None:
    """Show along which ops the gradient of LOSS flows to VAR, or what stops it."""
    echo_lines(program_of(read_model(model, params)).explain_gradient(loss, var))


COMMANDS = [inspect, dump, diff_command, explain]
