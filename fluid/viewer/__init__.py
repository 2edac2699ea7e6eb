"""Programs as one self-contained web page that works offline: `write_html` writes it; `measure` runs one for it.

The page draws forward ops in layers, beside them their gradient ops, and beside those the updates of parameters; blocks are
nested in the ops that own them, and ops in boxes. `graph` turns a program into nodes and values, `pairs` finds the forward op of
each gradient op, `grouping` and `areas` make boxes, `twins` joins two programs that are compared, `measuring` runs one, `layers`
puts nodes into rows; ``*.js`` place, draw and explain them.
"""

from __future__ import annotations

from .measuring import Measured, measure
from .page import to_html, write_html

__all__ = ["Measured", "measure", "to_html", "write_html"]
