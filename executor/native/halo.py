"""The border of zeros around images, which stands for the padding of convolutions and pools."""

from __future__ import annotations

from typing import NamedTuple


class Halo(NamedTuple):
    """The zeros on each side of an image: rows above and below it, and columns on its left and right."""

    rows: int
    columns: int

    def __bool__(self) -> bool:
        return bool(self.rows or self.columns)

    def __str__(self) -> str:
        return str(self.rows) if self.rows == self.columns else f"{self.rows} x {self.columns}"

    def covers(self, least: Halo) -> bool:
        """Whether it is at least as wide as another one along each axis."""
        return self.rows >= least.rows and self.columns >= least.columns

    def joined(self, halo: Halo) -> Halo:
        """The narrowest halo that covers this one and another."""
        return Halo(max(self.rows, halo.rows), max(self.columns, halo.columns))


NO_HALO = Halo(0, 0)
