"""``python -m fluid``: the command line."""

from .cli import main

main()
