"""The group of commands, and how errors leave it."""

from __future__ import annotations

import click

from .. import __version__
from ..errors import FluidError
from . import change, draw, params, run, show

__all__ = ["cli"]


class _Group(click.Group):
    """Tells errors of Fluid in one line, without a traceback, and ends with status 2."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except FluidError as error:
            text = str(error)
            if not ctx.params.get("verbose"):
                text = _one_line(text)
            click.echo(f"{click.style('error:', fg='red', bold=True)} {_printable(text)}", err=True)
        except BrokenPipeError:
            raise  # whoever reads this has seen enough; click ends quietly
        except (MemoryError, OSError) as error:
            click.echo(f"{click.style('error:', fg='red', bold=True)} {_printable(str(error) or 'out of memory')}", err=True)
        ctx.exit(2)


def _one_line(text: str) -> str:
    """The first line of a message, with the list that it announces."""
    first, _, rest = text.partition("\n")
    if not first.endswith(":"):
        return first
    items = [line.strip().removeprefix("- ") for line in rest.splitlines() if line.startswith("  - ")]
    return f"{first} {'; '.join(items)}"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", is_flag=True, help="Tell all of an error message, not its first line.")
@click.version_option(__version__, prog_name="fluid")
def cli(verbose: bool) -> None:
    """Look at models of Paddle and Fluid, change them, run them.

    MODEL is a folder with __model__, a .pdmodel file, the common start of .pdmodel and .pdiparams, any other file of a
    program, or its text. Status: 0; 1 where `diff` finds differences; 2 on errors.
    """


for _module in (show, params, change, run, draw):
    for _command in _module.COMMANDS:
        cli.add_command(_command)
