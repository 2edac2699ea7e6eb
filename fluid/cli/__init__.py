"""The command ``fluid``: inspects, changes and runs models. Needs ``pip install fluid-graph[cli]``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; if its libraries are missing, exit with a line that says what to install."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        sys.exit(f"fluid: the command line needs {error.name}: pip install fluid-graph[cli]")
    from .commands import cli

    cli(prog_name="fluid")
