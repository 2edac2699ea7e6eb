"""Programs as one web page that needs nothing else: `write_html` writes it, any browser shows it, offline.

The page draws forward ops in layers, beside them the gradient ops made from them, and beside those the updates of parameters;
blocks are nested in the ops that own them. `graph` turns a program into nodes and values, `pairs` finds out which op a
gradient op was made from, `layers` puts nodes into rows; ``*.js`` place, draw and explain them.
"""

from __future__ import annotations

from .page import to_html, write_html

__all__ = ["to_html", "write_html"]
