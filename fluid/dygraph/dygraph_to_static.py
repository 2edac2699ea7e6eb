"""Functions as programs, under the module name of Fluid 1.8; see `fluid.dygraph.to_static`."""

from __future__ import annotations

from ..not_here import names_here
from .program_translator import ProgramTranslator

__all__ = ["ProgramTranslator"]

__dir__ = names_here(__name__)
