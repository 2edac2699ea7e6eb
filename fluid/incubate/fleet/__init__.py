"""Training by many workers, as Fluid 1.6 has it: `fluid.incubate.fleet.collective`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...not_here import names_not_here

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)
