"""The command ``fluid``: inspects, changes and runs models."""

from __future__ import annotations

from .commands import cli

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    cli(prog_name="fluid")
