"""Commands that write a changed model: prune, convert, quantize."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from ..saving.models import Model, save_arrays, save_model
from ..transform.inference import optimize_for_inference
from ..transform.op_versions import TARGETS
from ..transform.quantization import quantize_model
from .common import (
    as_json,
    echo,
    listed,
    may_overwrite,
    model_argument,
    needing_parameters,
    output_as_argument,
    output_option,
    overwriting,
    program_of,
    read_model,
    sizes_option,
    table,
)  # fmt: skip
from .run import read_feeds

_TARGETS = click.Choice(list(TARGETS))


@click.command()
@model_argument()
@output_as_argument
@output_option("Where to write the model; its ending says how.")
@click.option("--feed", "feeds", multiple=True, help="What is fed; several times, or with commas. By default, as the model says.")
@click.option("--fetch", "fetches", multiple=True, required=True, help="What to compute.")
@click.option("--target", type=_TARGETS, help="Write ops that this version knows.")
@overwriting
def prune(
    model: str,
    params: str | None,
    output: str,
    feeds: tuple[str, ...],
    fetches: tuple[str, ...],
    target: str | None,
    force: bool,
) -> None:
    """Write the part of a model that computes some of its variables, as an inference model."""
    loaded = read_model(model, params)
    program = program_of(loaded)
    before = sum(len(block.ops) for block in program.blocks)
    wanted = listed(fetches)
    report = program.prune(listed(feeds) or None, wanted)
    names = listed(feeds) or [name for name, var in program.global_block().vars.items() if var.is_data]
    may_overwrite(output, force)
    _save(loaded, output, names, wanted, target)
    echo(f"{len(report.removed_ops)} of {before} ops and {len(report.removed_vars)} variables left out")


@click.command()
@model_argument()
@output_as_argument
@output_option("Where to write the model; its ending says how.")
@click.option("--target", type=_TARGETS, help="Write ops that this version knows.")
@click.option("--fold", is_flag=True, help="Compute constants now, and put batch_norms into the weights before them.")
@click.option("--for-inference", is_flag=True, help="Fold, leave out what only training needs, and make several ops one.")
@sizes_option
@overwriting
def convert(
    model: str,
    params: str | None,
    output: str,
    target: str | None,
    fold: bool,
    for_inference: bool,
    sizes: tuple[str, ...],
    force: bool,
) -> None:
    """Write a model in another form; the ending of OUTPUT says which.

    .pdmodel or, for Paddle 3, .json (and .pdiparams beside it), .onnx, .txt (the program alone), .npz, .safetensors, .pdparams
    (the values alone), anything else: a folder with __model__ and a file a parameter. Existing files are overwritten only if you
    say so.
    """
    loaded = read_model(model, params, sizes)
    may_overwrite(output, force, model)
    if loaded.program is None:
        if not output.endswith((".npz", ".safetensors", ".pdparams")):
            program_of(loaded)  # raises the error that there is none
        save_arrays(output, loaded.values())
        echo(f"{output}: {len(loaded.parameters)} values")
        return
    if fold:
        for report in (loaded.program.fold_constants(loaded.scope), loaded.program.fold_batch_norm(loaded.scope)):
            echo(str(report).partition("\n")[0])
    if for_inference:
        wanted = "paddle-3" if output.endswith(".json") else target
        report = optimize_for_inference(loaded.program, scope=loaded.scope, target=wanted)
        loaded.program = report.program
        echo(str(report).partition("\n")[0])
    _save(loaded, output, None, None, target)


@click.command()
@model_argument()
@click.argument("calibration", type=click.Path())
@output_option("Where to write the quantized model.", required=True)
@click.option("--dynamic", is_flag=True, help="Measure the range of the data in each run; CALIBRATION only tells the errors.")
@click.option(
    "--batch", type=click.IntRange(1), default=32, show_default=True, help="How many rows of CALIBRATION to run at once."
)
@click.option(
    "--weight-bits",
    type=click.IntRange(7, 8),
    default=8,
    show_default=True,
    help="7 for onnxruntime on processors without VNNI, where it saturates with 8.",
)
@click.option("--json", "is_json", is_flag=True, help="For programs.")
@sizes_option
@overwriting
def quantize(
    model: str,
    params: str | None,
    calibration: str,
    output: str,
    dynamic: bool,
    batch: int,
    weight_bits: int,
    is_json: bool,
    sizes: tuple[str, ...],
    force: bool,
) -> None:
    """Write a model that multiplies integers of 8 bits, with scales measured on CALIBRATION: arrays by the names of inputs.

    The errors are printed layer by layer: the root mean square of the error of its result, relative to the result's.
    """
    loaded = read_model(model, params, sizes)
    program = program_of(loaded)
    may_overwrite(output, force, model)
    with needing_parameters(loaded):
        report = quantize_model(program, _in_batches(loaded, calibration, batch), loaded.scope, dynamic, weight_bits)
    paths = save_model(output, report.program, scope=loaded.scope)
    if is_json:
        as_json({"layers": [layer._asdict() for layer in report.layers], "notes": report.notes, "paths": paths})
        return
    table(["error", "layer", "op", "weight"], [(f"{x.error:.2%}", x.out, x.op, x.weight) for x in report.layers])
    for line in (*(f"note: {note}" for note in report.notes), *paths):
        echo(line)


def _in_batches(model: Model, path: str, rows: int) -> list[dict[str, Any]]:
    """The arrays of a file in batches of rows; as one batch where the model's inputs say how many rows there are."""
    feeds = read_feeds(model, path, {}, "CALIBRATION")
    root = program_of(model).global_block()
    counts = {np.shape(array)[:1] for array in feeds.values()}
    if len(counts) != 1 or () in counts or any(root.var(name).shape[:1] != (-1,) for name in feeds):
        return [feeds]
    ((count,),) = counts
    return [{name: array[start : start + rows] for name, array in feeds.items()} for start in range(0, count, rows)]


def _save(model: Model, output: str, feeds: list[str] | None, fetches: list[str] | None, target: str | None) -> None:
    for path in save_model(output, model.program, feeds, fetches, scope=model.scope, target=target):
        echo(path)


COMMANDS = [prune, convert, quantize]
