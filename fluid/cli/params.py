"""Commands about parameters: list, show, export."""

from __future__ import annotations

import os
from typing import Any

import click
import numpy as np

from ..errors import did_you_mean
from ..saving.models import save_arrays
from ..values.bfloat16 import BFLOAT16, to_float32
from .common import (
    as_json,
    echo,
    echo_lines,
    human_bytes,
    listed,
    may_overwrite,
    model_argument,
    output_as_argument,
    output_option,
    overwriting,
    read_model,
    table,
)


def _dtype(array: Any) -> str:
    return "bfloat16" if array.dtype == BFLOAT16 else str(array.dtype)


class _ListByDefault(click.Group):
    """``fluid params MODEL`` lists, as ``fluid params list MODEL`` does."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word not in self.commands and (os.path.exists(word) or not did_you_mean(word, self.commands)):
            args = ["list", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_ListByDefault)
def params() -> None:
    """Show or export the values in a model, or in a file of parameters. Given a MODEL, list them."""


@params.command("list")
@model_argument()
@click.option("--json", "is_json", is_flag=True, help="For programs.")
def list_(model: str, params: str | None, is_json: bool) -> None:
    """List names, types and sizes."""
    arrays = read_model(model, params).values()
    if is_json:
        return as_json([{"name": n, "dtype": _dtype(a), "shape": list(a.shape), "bytes": a.nbytes} for n, a in arrays.items()])
    rows = [(name, f"{_dtype(array)}{list(array.shape)}", human_bytes(array.nbytes)) for name, array in arrays.items()]
    table(("name", "type", "size"), rows, right=(2,))
    echo(f"{len(rows)} values, {human_bytes(sum(array.nbytes for array in arrays.values()))}")
    return None


@params.command()
@model_argument()
@click.argument("name")
@click.option("--json", "is_json", is_flag=True, help="For programs: all of the elements.")
def show(model: str, params: str | None, name: str, is_json: bool) -> None:
    """Show one value: statistics and some of its elements."""
    array = read_model(model, params).value(name)
    dtype, size = _dtype(array), human_bytes(array.nbytes)
    if array.dtype == BFLOAT16:
        array = to_float32(array)
    if is_json:
        return as_json({"name": name, "dtype": dtype, "shape": list(array.shape), "values": array})
    echo(f"{name}: {dtype}{list(array.shape)}, {size}", bold=True)
    if array.size and array.dtype.kind in "fiu":
        wide = array.astype(np.float64)
        with np.errstate(all="ignore"):  # infinities
            echo(f"min {wide.min():.6g}  mean {wide.mean():.6g}  max {wide.max():.6g}  deviation {wide.std():.6g}")
        if array.dtype.kind == "f" and not np.isfinite(wide).all():
            echo(f"{int((~np.isfinite(wide)).sum())} elements are not finite", fg="red")
    echo_lines(np.array2string(array, threshold=100, edgeitems=3, max_line_width=120))
    return None


@params.command()
@model_argument()
@output_as_argument
@output_option("The file: .npz, .safetensors or .pdparams.")
@click.option("--only", multiple=True, help="Names to write; all by default.")
@overwriting
def export(model: str, params: str | None, output: str, only: tuple[str, ...], force: bool) -> None:
    """Write the values to a file: .npz, .safetensors or .pdparams."""
    loaded = read_model(model, params)
    names = listed(only) or loaded.parameters
    arrays = {name: loaded.value(name) for name in names}
    may_overwrite(output, force)
    save_arrays(output, arrays)
    echo(f"{output}: {len(names)} values")


COMMANDS = [params]
