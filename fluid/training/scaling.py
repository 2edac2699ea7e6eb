"""Dynamic loss scaling: how the factor follows the gradients."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from ..errors import ProgramError
from ..ir.program import Block, Variable
from ..layers.tensor import create_global_var


@dataclass(frozen=True)
class ScaleRule:
    """How the factor of a loss begins, grows and shrinks; `ProgramError` for numbers out of their bounds.

    Attributes:
        first: at first; above 0.
        grows_after: number of steps in a row with finite gradients.
        shrinks_after: number of steps in a row without.
        growth: above 1.
        shrinkage: between 0 and 1.
        is_dynamic: whether it changes.
    """

    first: float
    grows_after: int
    shrinks_after: int
    growth: float
    shrinkage: float
    is_dynamic: bool

    def __post_init__(self) -> None:
        for name, value, fits, bounds in (
            ("init_loss_scaling", self.first, self.first > 0 and isfinite(self.first), "a finite number above 0"),
            ("incr_every_n_steps", self.grows_after, self.grows_after >= 1, "at least 1"),
            ("decr_every_n_nan_or_inf", self.shrinks_after, self.shrinks_after >= 1, "at least 1"),
            ("incr_ratio", self.growth, self.growth > 1, "above 1"),
            ("decr_ratio", self.shrinkage, 0 < self.shrinkage < 1, "between 0 and 1"),
        ):
            if not fits:
                raise ProgramError(f"loss scaling: {name} should be {bounds}, not {value!r}")

    @property
    def scales(self) -> bool:
        """Whether the loss is multiplied by anything but 1."""
        return self.is_dynamic or self.first != 1.0

    @property
    def attrs(self) -> dict[str, int | float]:
        """The attributes of the op ``update_loss_scaling``."""
        return {
            "incr_every_n_steps": self.grows_after,
            "decr_every_n_nan_or_inf": self.shrinks_after,
            "incr_ratio": self.growth,
            "decr_ratio": self.shrinkage,
        }

    def append(self, block: Block, is_infinite: Variable, scale: Variable) -> None:
        """Append the op that changes the factor, and the persistable counts of good and of bad steps in a row."""
        good, bad = (
            create_global_var([1], 0, "int32", persistable=True, name=block.program.fresh_name(name))
            for name in ("good_steps", "bad_steps")
        )
        block.append_op(
            "update_loss_scaling",
            inputs={"FoundInfinite": is_infinite, "PrevLossScaling": scale, "InGoodSteps": good, "InBadSteps": bad},
            outputs={"LossScaling": scale, "OutGoodSteps": good, "OutBadSteps": bad},
            attrs=self.attrs,
        )
