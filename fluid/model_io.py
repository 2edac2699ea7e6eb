"""Moved to `fluid.saving.models`; this is its public name."""

from .not_here import names_here
from .saving.models import Model, load_model, read_arrays, save_arrays, save_model

__all__ = ["Model", "load_model", "read_arrays", "save_arrays", "save_model"]

__dir__ = names_here(__name__)
