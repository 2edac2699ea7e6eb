"""The command that compiles a model to a library for C."""

from __future__ import annotations

import os
from typing import Any

import click

from ..ahead import FROZEN_TYPES, compile_program, report_memory
from ..errors import FeedError
from ..executor import CPUPlace, Executor
from .common import (
    echo,
    echo_lines,
    human_bytes,
    listed,
    may_overwrite,
    model_argument,
    output_option,
    overwriting,
    program_of,
    read_model,
)


@click.command("compile")
@model_argument()
@output_option("Path of the files, without ending; its last part begins all names.", required=True)
@click.option(
    "--fetch", "fetches", multiple=True, metavar="[C=]NAME", help="Result of a training step, such as the loss; makes NET_step."
)
@click.option("--predict", "predict", multiple=True, metavar="[C=]NAME", help="Result of a prediction; makes NET_predict_B.")
@click.option("--feed", "feeds", multiple=True, metavar="[C=]NAME", help="What is fed; by default, all data that is read.")
@click.option("--batch", default="", metavar="32,1", help="Numbers of rows: the step takes the first, predictions take each.")
@click.option("--freeze", multiple=True, metavar="PATTERN", help="Parameters that are not trained, such as conv2d_*.")
@click.option(
    "--frozen-as", type=click.Choice(FROZEN_TYPES), default="float32", show_default=True, help="How frozen weights are stored."
)
@click.option(
    "--report", is_flag=True, help="Tell what the memory of a training step is for, and what freezing layers would save."
)
@click.option("--startup", type=click.Path(), help="Startup program, for the first values; by default, the model's parameters.")
@click.option(
    "--target", default="host", show_default=True, help="Processor: a name such as aarch64, wasm32, cortex-m4, or LLVM's triple."
)
@click.option("--cpu", default="", help="LLVM's name of the processor, more exactly.")
@click.option("--features", default="", help="Further features of the processor, such as +dotprod.")
@overwriting
def compile_model(
    model: str,
    params: str | None,
    output: str,
    fetches: tuple[str, ...],
    predict: tuple[str, ...],
    feeds: tuple[str, ...],
    batch: str,
    freeze: tuple[str, ...],
    frozen_as: str,
    report: bool,
    startup: str | None,
    target: str,
    cpu: str,
    features: str,
    force: bool,
) -> None:
    """Compile a model to an object file and a header for C, for training and for predictions without Python.

    Names in C may be given: --fetch loss=mean_0.tmp_0. Without --fetch and --predict, the model's own results are predicted.
    """
    if report and not fetches:
        raise click.UsageError("--report is about a training step; name a result of the step with --fetch, such as the loss")
    loaded = read_model(model, params)
    program = program_of(loaded)
    if startup is not None:
        Executor(CPUPlace()).run(program_of(read_model(startup)), scope=loaded.scope)
    steps, predictions = _named(fetches), _named(predict)
    if not steps and not predictions:
        predictions = _named(tuple(var.name for var in loaded.fetches))
    for ending in (".o", ".h", ".json", ".wasm", ".js", ".d.ts"):
        may_overwrite(f"{output}{ending}", force)
    options: dict[str, Any] = {
        "scope": loaded.scope,
        "batch": _rows(batch),
        "freeze": listed(freeze),
        "frozen_as": frozen_as,
        "target": target,
        "cpu": cpu,
        "features": features,
    }
    library = compile_program(program, _named(feeds) or None, steps, predict=predictions, output=output, **options)
    for path in library.paths:
        echo(f"{path}: {human_bytes(os.path.getsize(path))}")
    sizes = (f"{part}: {human_bytes(library.description[f'{part}_bytes'])}" for part in ("state", "arena"))
    echo(f"memory of the caller: {', '.join(sizes)}")
    if report:
        echo_lines(str(report_memory(program, _named(feeds) or None, steps, **options)))


def _named(options: tuple[str, ...]) -> dict[str, str] | list[str]:
    """Names of variables; a mapping from names in C if one of them is given."""
    pairs = [name.rpartition("=") for name in listed(options)]
    if not any(sign for _, sign, _ in pairs):
        return [name for _, _, name in pairs]
    return {c_name or name: name for c_name, _, name in pairs}


def _rows(text: str) -> list[int]:
    try:
        return [int(number) for number in listed([text])]
    except ValueError:
        raise FeedError(f"--batch {text}: expected numbers of rows, such as 32,1") from None


COMMANDS = [compile_model]
