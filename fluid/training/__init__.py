"""State of training beside parameters (averages, optimizer state), and helpers for training loops.

`fit` is a whole loop. Or you write the loop and call the helpers in it; no helper calls back into the loop. Their state is
numbers (`state_dict`), or variables of the program, which checkpoints hold::

    stopping = fluid.training.EarlyStopping(patience=5)
    with fluid.training.CSVLog("training.csv") as log:
        for epoch in range(100):
            ...
            log.write(epoch, loss=loss)
            if stopping.is_over(loss):
                break
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..not_here import names_here

if TYPE_CHECKING:
    from .accumulation import GradientAccumulation
    from .best_checkpoints import BestCheckpoints
    from .fitting import LayerTrainer, ProgramTrainer, fit
    from .logs import CSVLog, TensorBoardLog, read_log
    from .plateaus import ReduceOnPlateau
    from .progress import Progress
    from .rate_search import RateSearch, find_learning_rate
    from .rates import learning_rate_of, set_learning_rate
    from .stopping import EarlyStopping

_HOMES = {
    "BestCheckpoints": "best_checkpoints",
    "CSVLog": "logs",
    "EarlyStopping": "stopping",
    "GradientAccumulation": "accumulation",
    "LayerTrainer": "fitting",
    "ProgramTrainer": "fitting",
    "Progress": "progress",
    "RateSearch": "rate_search",
    "ReduceOnPlateau": "plateaus",
    "TensorBoardLog": "logs",
    "find_learning_rate": "rate_search",
    "fit": "fitting",
    "learning_rate_of": "rates",
    "read_log": "logs",
    "set_learning_rate": "rates",
}
"""Name -> its module, which is loaded at the first use of the name."""

__all__ = [
    "BestCheckpoints",
    "CSVLog",
    "EarlyStopping",
    "GradientAccumulation",
    "LayerTrainer",
    "ProgramTrainer",
    "Progress",
    "RateSearch",
    "ReduceOnPlateau",
    "TensorBoardLog",
    "find_learning_rate",
    "fit",
    "learning_rate_of",
    "read_log",
    "set_learning_rate",
]

__dir__ = names_here(__name__)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
