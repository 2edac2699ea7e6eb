"""Programs as text, under the names of Fluid 1.6 and 1.7."""

from __future__ import annotations

from . import program_utils  # noqa: F401  (as in Fluid 1.7)
from .program_utils import program_to_code

__all__ = ["program_to_code"]
