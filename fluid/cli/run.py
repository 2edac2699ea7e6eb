"""The command that runs a model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click
import numpy as np

from ..errors import FeedError
from ..executor import CPUPlace, Executor, LoDTensor
from ..lod_tensor import create_lod_tensor
from ..saving.models import Model, read_arrays, save_arrays
from .common import as_json, echo, listed, model_argument, needing_parameters, output_option, program_of, read_model, table


@click.command()
@model_argument()
@click.option("--feed", "feed_file", type=click.Path(), help="Arrays by name (.npz, .safetensors, .pdparams).")
@click.option(
    "--lengths",
    multiple=True,
    metavar="NAME=2,3",
    help="How many rows each sequence of an input has; outer levels first, with a slash between: words=2,1/3,1,4. In the file of "
    "--feed: an array NAME@LENGTHS, or for several levels NAME@LENGTHS@0, NAME@LENGTHS@1.",
)
@output_option("Where to write what is computed, in the same formats.")
@click.option("--fetch", "fetches", multiple=True, help="What to compute; by default, what the model says.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1), help="How often to run; the last run counts.")
@click.option("--check-nan", is_flag=True, help="Stop at the first op that makes a NaN or an infinity.")
@click.option("--allow", multiple=True, help="Ops that access files or run code, and are allowed to.")
@click.option("--json", "is_json", is_flag=True, help="For programs.")
def run(
    model: str,
    params: str | None,
    feed_file: str | None,
    lengths: tuple[str, ...],
    output: str | None,
    fetches: tuple[str, ...],
    repeat: int,
    check_nan: bool,
    allow: tuple[str, ...],
    is_json: bool,
) -> None:
    """Run a model on arrays from a file.

    Where rows form sequences, --lengths or arrays in the file say how many rows each has; so do the files of -o.
    """
    loaded = read_model(model, params)
    program = program_of(loaded)
    program.allowed_ops = frozenset(listed(allow))
    names = listed(fetches) or [var.name for var in loaded.fetches]
    if not names:
        raise FeedError(f"{model} does not say what it computes; name it with --fetch")
    feed = read_feeds(loaded, feed_file, _given_lengths(lengths))
    executor = Executor(CPUPlace())
    for _ in range(repeat):
        start = time.perf_counter()
        with needing_parameters(loaded):
            results = executor.run(program, feed, names, scope=loaded.scope, check_nan=check_nan, return_numpy=False)
        seconds = time.perf_counter() - start
    arrays = {name: np.asarray(value) for name, value in zip(names, results, strict=True)}
    levels = {name: _lengths_of(value) for name, value in zip(names, results, strict=True)}
    if output is not None:
        save_arrays(output, arrays | _as_arrays(levels))
    if is_json:
        outputs = [
            {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
            | ({"lengths": levels[name]} if levels[name] else {})
            for name, array in arrays.items()
        ]
        return as_json({"seconds": seconds, "outputs": outputs})
    table(("output", "type", "min", "mean", "max"), [(name, *_summary(array)) for name, array in arrays.items()], right=(2, 3, 4))
    echo(f"{1e3 * seconds:.3g} ms" + (f", written to {output}" if output is not None else ""))
    return None


_SUFFIX = "@LENGTHS"


def _given_lengths(options: tuple[str, ...]) -> dict[str, list[list[int]]]:
    """Name -> lengths, level by level, of the options ``NAME=2,1/3,1,4``."""
    lengths = {}
    for option in options:
        name, sign, text = option.rpartition("=")
        try:
            lengths[name] = [[int(number) for number in level.split(",")] for level in text.split("/")]
        except ValueError:
            sign = ""
        if not sign or not name:
            raise FeedError(
                f"--lengths {option}: expected a name and lengths, such as words=2,3, or words=2,1/3,1,4 for two levels"
            )
    return lengths


def _with_lengths(feed: dict[str, Any], lengths: Mapping[str, list[list[int]]]) -> dict[str, Any]:
    """Attach sequence lengths to the fed arrays: from the option, or else from arrays ``NAME@LENGTHS``, ``NAME@LENGTHS@0``,
    ..."""
    arrays = {name: array for name, array in feed.items() if _SUFFIX not in name or name.partition(_SUFFIX)[0] not in feed}
    unfed = [name for name in lengths if name not in arrays]
    if unfed:
        raise FeedError(
            f"--lengths of {', '.join(unfed)}, which the file of --feed does not have; it has {', '.join(arrays) or 'none'}"
        )
    fed: dict[str, Any] = {}
    for name, array in arrays.items():
        held = sorted((key for key in feed if key.partition(_SUFFIX)[0] == name and key != name), key=lambda key: (len(key), key))
        levels = lengths.get(name) or [_level(key, feed[key]) for key in held]
        fed[name] = create_lod_tensor(array, levels, CPUPlace()) if levels else array
    return fed


def _level(name: str, array: Any) -> list[int]:
    """One level of lengths from a file."""
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise FeedError(
            f"{name} should be the lengths of sequences, integers in one dimension; it is {array.dtype}{list(array.shape)}"
        )
    return [int(number) for number in array]


def _lengths_of(value: Any) -> list[list[int]]:
    """The lengths of the sequences that the rows of a result form, level by level; empty if they form none."""
    return value.recursive_sequence_lengths() if isinstance(value, LoDTensor) else []


def _as_arrays(lengths: dict[str, list[list[int]]]) -> dict[str, Any]:
    """Lengths by the names that `_with_lengths` reads."""
    return {
        f"{name}{_SUFFIX}" + (f"@{number}" if len(levels) > 1 else ""): np.array(level, np.int64)
        for name, levels in lengths.items()
        for number, level in enumerate(levels)
    }


def read_feeds(
    model: Model, feed_file: str | None, lengths: Mapping[str, list[list[int]]], option: str = "--feed"
) -> dict[str, Any]:
    """Read the arrays to feed from a file, with lengths of sequences; `FeedError` if some are missing. Leave out arrays that are
    not in the program."""
    declared = program_of(model).global_block().vars
    feed = read_arrays(feed_file) if feed_file is not None else {}
    missing = [name for name in model.feeds if name not in feed]
    if missing:
        held = f"; {feed_file} has {', '.join(feed) or 'none'}" if feed_file is not None else ""
        raise FeedError(f"the model is fed {', '.join(missing)}; give a file of arrays with these names with {option}{held}")
    feed = _with_lengths(feed, lengths)
    unknown = [name for name in feed if name not in declared]
    if unknown:
        echo(f"not in the program, and left out: {', '.join(unknown)}", err=True)
    return {name: array for name, array in feed.items() if name in declared}


def _summary(array: Any) -> tuple[str, ...]:
    kind = f"{array.dtype}{list(array.shape)}"
    if not array.size or array.dtype.kind not in "fiub":
        return kind, "", "", ""
    wide = array.astype(np.float64)
    return kind, f"{wide.min():.6g}", f"{wide.mean():.6g}", f"{wide.max():.6g}"


COMMANDS = [run]
