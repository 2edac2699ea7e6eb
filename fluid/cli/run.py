"""The command that runs a model."""

from __future__ import annotations

import time
from typing import Any

import click
import numpy as np

from ..errors import FeedError
from ..executor import CPUPlace, Executor
from ..saving.models import read_arrays, save_arrays
from .common import as_json, echo, listed, model_argument, program_of, read_model, table

__all__ = ["COMMANDS"]


@click.command()
@model_argument()
@click.option("--feed", "feed_file", type=click.Path(), help="Arrays by name (.npz, .safetensors, .pdparams).")
@click.option("--out", "output", type=click.Path(), help="Where to write what is computed, in the same formats.")
@click.option("--fetch", "fetches", multiple=True, help="What to compute; by default, what the model says.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1), help="How often to run; the last run counts.")
@click.option("--check-nan", is_flag=True, help="Stop at the first op that makes a NaN or an infinity.")
@click.option("--allow", multiple=True, help="Ops that access files or run code, and are allowed to.")
@click.option("--json", "is_json", is_flag=True, help="For programs.")
def run(
    model: str,
    params: str | None,
    feed_file: str | None,
    output: str | None,
    fetches: tuple[str, ...],
    repeat: int,
    check_nan: bool,
    allow: tuple[str, ...],
    is_json: bool,
) -> None:
    """Run a model on arrays from a file."""
    loaded = read_model(model, params)
    program = program_of(loaded)
    program.allowed_ops = frozenset(listed(allow))
    names = listed(fetches) or [var.name for var in loaded.fetches]
    if not names:
        raise FeedError(f"{model} does not say what it computes; name it with --fetch")
    feed = read_arrays(feed_file) if feed_file is not None else {}
    missing = [name for name in loaded.feeds if name not in feed]
    if missing:
        held = f"; {feed_file} has {', '.join(feed) or 'none'}" if feed_file is not None else ""
        raise FeedError(f"the model is fed {', '.join(missing)}; give a file of arrays with these names with --feed{held}")
    unknown = [name for name in feed if name not in program.global_block().vars]
    if unknown:
        echo(f"not in the program, and left out: {', '.join(unknown)}", err=True)
        feed = {name: array for name, array in feed.items() if name not in unknown}
    executor = Executor(CPUPlace())
    for _ in range(repeat):
        start = time.perf_counter()
        results = executor.run(program, feed, names, scope=loaded.scope, check_nan=check_nan)
        seconds = time.perf_counter() - start
    arrays = {name: np.asarray(value) for name, value in zip(names, results, strict=True)}
    if output is not None:
        save_arrays(output, arrays)
    if is_json:
        outputs = [{"name": name, "dtype": array.dtype.name, "shape": list(array.shape)} for name, array in arrays.items()]
        return as_json({"seconds": seconds, "outputs": outputs})
    table(("output", "type", "min", "mean", "max"), [(name, *_summary(array)) for name, array in arrays.items()], right=(2, 3, 4))
    echo(f"{1e3 * seconds:.3g} ms" + (f", written to {output}" if output is not None else ""))
    return None


def _summary(array: Any) -> tuple[str, ...]:
    kind = f"{array.dtype}{list(array.shape)}"
    if not array.size or array.dtype.kind not in "fiub":
        return kind, "", "", ""
    wide = array.astype(np.float64)
    return kind, f"{wide.min():.6g}", f"{wide.mean():.6g}", f"{wide.max():.6g}"


COMMANDS = [run]
