"""Plots by matplotlib (extra ``plot``). Each function draws on given axes, or on new ones, and returns them.

    axes = fluid.plots.curves("training.csv")
    axes.figure.savefig("training.png")

``matplotlib.pyplot.show()`` displays the figure; notebooks do so by themselves.
"""

from ..not_here import names_here
from .curves import curves, learning_rates
from .memory import arena, memory
from .timelines import timeline
from .weights import gradients, weights

__all__ = ["arena", "curves", "gradients", "learning_rates", "memory", "timeline", "weights"]

__dir__ = names_here(__name__)
