"""The group of commands, and how it reports errors."""

from __future__ import annotations

import click

from .. import __version__
from ..errors import FluidError, printable
from . import change, compile, doctor, draw, params, run, show


class _CommandGroup(click.Group):
    """Reports errors of Fluid in one line, without a traceback, and exits with status 2."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except FluidError as error:
            text = str(error) if ctx.params.get("verbose") else _one_line(str(error))
        except BrokenPipeError:
            raise  # the reader of the pipe has closed it; click exits quietly
        except (MemoryError, OSError) as error:
            text = str(error) or "out of memory"
        shown = printable(text, "\n")
        click.echo(f"{click.style('error:', fg='red', bold=True)} {shown}", err=True)
        ctx.exit(2)


def _one_line(text: str) -> str:
    """Join the first line of a message with the items of the list below it."""
    first, _, remaining = text.partition("\n")
    if not first.endswith(":"):
        return first
    items = [line.strip().removeprefix("- ") for line in remaining.splitlines() if line.startswith("  - ")]
    return f"{first} {'; '.join(items)}"


@click.group(cls=_CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", is_flag=True, help="Print whole error messages, not only the first line.")
@click.version_option(__version__, prog_name="fluid")
def cli(verbose: bool) -> None:
    """Inspect, change and run models of Paddle and Fluid.

    MODEL is a folder with __model__, a .pdmodel file, the common prefix of .pdmodel and .pdiparams, any other file of a
    program, or its text. Exit status: 0; 1 if `diff` finds differences; 2 on errors.
    """


for _module in (show, params, change, compile, run, draw, doctor):
    for _command in _module.COMMANDS:
        cli.add_command(_command)
