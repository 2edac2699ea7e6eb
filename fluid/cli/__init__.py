"""The command ``fluid``: look at models, change them, run them. Needs ``pip install fluid-graph[cli]``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; without the libraries for it, say in one line what to install."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        sys.exit(f"fluid: the command line needs {error.name}: pip install fluid-graph[cli]")
    from .commands import cli

    cli()
